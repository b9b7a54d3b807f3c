# Reads the header of a remoting command, JSON or ROCKETMQ binary, without making an object per field.
#
# What these scanners do not know at once (an odd escape, a nested value, more than FIELDS_MAX fields) is
# COMMAND_UNUSUAL: the Python reader, mqcore.protocol.command, decides what it means. They never read past the frame.
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum CommandStatus:
    COMMAND_OK
    COMMAND_UNUSUAL             # perhaps legal, not for the fast path
    COMMAND_BAD                 # the lengths or the serialize type are impossible: close the connection

cdef enum:
    FIELDS_MAX = 32
    SERIALIZE_JSON = 0
    SERIALIZE_BINARY = 1
    UNESCAPE_ROOM = 4           # a character beyond the BMP

cdef struct TextView:           # borrowed from the frame
    const uint8_t *at           # NULL = absent
    int32_t size
    bint is_escaped             # JSON escapes inside: use text_unescape

cdef struct CommandView:
    int32_t code
    int32_t language            # -1 = unknown name or number
    int32_t version
    int32_t opaque
    int32_t flag
    int32_t serialize_type
    int32_t header_size
    TextView remark             # at = NULL: none
    bint has_ext_fields
    int32_t field_count
    TextView names[32]
    TextView values[32]
    const uint8_t *body
    int32_t body_size

# Read the payload of one frame: what follows the 4-byte length.
cdef CommandStatus scan_command(const uint8_t *payload, int32_t size, CommandView *out) noexcept nogil

# The value of the field *name*; at = NULL when it is absent.
cdef TextView field_of(const CommandView *view, const char *name, int32_t name_size) noexcept nogil
# Decimal text as Java's parseInt/parseLong reads it; False when it is not that.
cdef bint text_to_i64(const TextView *text, int64_t *out) noexcept nogil
cdef bint long_to_i32(const TextView *text, int32_t *out) noexcept nogil

# Most numbers of a header have one digit.
cdef inline bint text_to_i32(const TextView *text, int32_t *out) noexcept nogil:
    if text.size == 1 and 0x30 <= text.at[0] <= 0x39:
        out[0] = text.at[0] - 0x30
        return True
    return long_to_i32(text, out)

# Java's Boolean.parseBoolean.
cdef bint text_to_bool(const TextView *text) noexcept nogil
# Write the text's bytes to out[0:capacity]; the size, or -1 if an escape is broken or fewer than UNESCAPE_ROOM bytes
# would be left: text.size + UNESCAPE_ROOM is always enough.
cdef int32_t text_unescape(const TextView *text, uint8_t *out, int32_t capacity) noexcept nogil
