# Writes response frames, in the serialize type of the request, byte for byte as RocketMQ's broker does, and requests of
# the broker's own.
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport strlen

from mqcore._fast.base.buffers cimport Buffer

cdef enum:
    REPLY_FIELDS_MAX = 16

cdef struct ReplyField:
    const char *name
    int32_t name_size
    const uint8_t *value
    int32_t value_size          # 0 = leave the field out

cdef struct Reply:
    int32_t serialize_type
    int32_t code
    int32_t flag                # 1 = a response, 0 = a request of the broker's own
    int32_t opaque
    const char *remark          # NULL = none
    int32_t remark_size
    bint has_ext_fields         # False: the reply has no header object at all
    ReplyField fields[REPLY_FIELDS_MAX]
    int32_t field_count

cdef inline void reply_start(Reply *reply, int32_t serialize_type, int32_t code, int32_t opaque) noexcept nogil:
    reply.serialize_type = serialize_type
    reply.code = code
    reply.flag = 1
    reply.opaque = opaque
    reply.remark = NULL
    reply.remark_size = 0
    reply.has_ext_fields = False
    reply.field_count = 0

# A request of the broker's own, which is in JSON.
cdef inline void request_start(Reply *request, int32_t code, int32_t opaque) noexcept nogil:
    reply_start(request, 0, code, opaque)
    request.flag = 0

# Name and value are borrowed until reply_put. Inline, so that the length of a literal name costs nothing.
cdef inline void reply_field(Reply *reply, const char *name, const uint8_t *value, int32_t value_size) noexcept nogil:
    cdef ReplyField *field = &reply.fields[reply.field_count]
    reply.has_ext_fields = True
    if value_size > 0:
        field.name = name
        field.name_size = <int32_t>strlen(name)
        field.value = value
        field.value_size = value_size
        reply.field_count += 1

cdef inline void reply_remark(Reply *reply, const char *remark) noexcept nogil:
    reply.remark = remark
    reply.remark_size = <int32_t>strlen(remark)

# Write the frame's head for a body of *body_size* bytes, which the caller puts behind it. False when memory is short.
cdef bint reply_put(const Reply *reply, Buffer *out, int64_t body_size) noexcept nogil

# Decimal text; the number of bytes written, at most 20.
cdef int32_t put_decimal(uint8_t *out, int64_t value) noexcept nogil
# Upper-case hexadecimal of *size* bytes; writes 2 * size bytes.
cdef void put_hex(uint8_t *out, const uint8_t *data, int32_t size) noexcept nogil
# Write *text* inside a JSON string, escaped as fastjson does; room for 6 * size bytes. The end of what was written.
cdef uint8_t *put_escaped(uint8_t *at, const uint8_t *text, int32_t size) noexcept nogil
