"""Response frames written straight into a connection's buffer. The readable twin is mqcore.protocol.command."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from mqcore._fast.base.big_endian cimport store_i16, store_i32
from mqcore._fast.base.buffers cimport Buffer, buffer_free, buffer_room
from mqcore._fast.wire.header cimport SERIALIZE_BINARY

from mqcore.codes import CURRENT_VERSION

cdef extern from "scan.h" nogil:
    const uint8_t *find_not_plain(const uint8_t *at, const uint8_t *end)

cdef extern from "digits.h" nogil:
    void put_hex_of_4(uint8_t *out, const uint8_t *data)

cdef int32_t VERSION = CURRENT_VERSION
cdef bytes JSON_TAIL_TEXT = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % CURRENT_VERSION
cdef const char *JSON_TAIL = JSON_TAIL_TEXT
cdef int32_t JSON_TAIL_SIZE = <int32_t>len(JSON_TAIL_TEXT)

cdef enum:
    ESCAPE_SIZE_MAX = 6             # \uXXXX
    REPLY_NAME_MAX = 50             # of a field; with what stands around it less than FIELD_OVERHEAD
    FIELD_OVERHEAD = 64
    FRAME_OVERHEAD = 256            # more than the fixed texts of a JSON header


cdef int32_t put_decimal(uint8_t *out, int64_t value) noexcept nogil:
    cdef uint64_t rest = <uint64_t>value
    cdef uint64_t bound = 10
    cdef int32_t size = 1
    cdef int32_t at
    if value < 0:
        out[0] = 0x2D
        size = 2
        rest = 0 - rest
    while rest >= bound:
        # Never more than 10^19, which fits: no int64 is that far from 0.
        size += 1
        bound *= 10
    for at in range(size - 1, 0 if value < 0 else -1, -1):
        out[at] = <uint8_t>(0x30 + rest % 10)
        rest = rest // 10
    return size


cdef void put_hex(uint8_t *out, const uint8_t *data, int32_t size) noexcept nogil:
    cdef const char *digits = "0123456789ABCDEF"
    cdef int32_t index = 0
    while index + 4 <= size:
        put_hex_of_4(out + 2 * index, data + index)
        index += 4
    while index < size:
        out[2 * index] = <uint8_t>digits[data[index] >> 4]
        out[2 * index + 1] = <uint8_t>digits[data[index] & 15]
        index += 1


cdef inline uint8_t *put_text(uint8_t *at, const char *text, int32_t size) noexcept nogil:
    memcpy(at, text, size)
    return at + size


cdef uint8_t *put_unit(uint8_t *at, uint32_t unit) noexcept nogil:
    cdef const char *digits = "0123456789ABCDEF"
    at = put_text(at, "\\u", 2)
    at[0] = <uint8_t>digits[(unit >> 12) & 15]
    at[1] = <uint8_t>digits[(unit >> 8) & 15]
    at[2] = <uint8_t>digits[(unit >> 4) & 15]
    at[3] = <uint8_t>digits[unit & 15]
    return at + 4


cdef uint8_t *put_escaped(uint8_t *at, const uint8_t *text, int32_t size) noexcept nogil:
    # As fastjson: quote, backslash, both ranges of control characters and the two line separators; everything else raw.
    cdef const char *short_escapes = "btn\0fr"
    cdef int32_t index = 0
    cdef int32_t run
    cdef uint8_t c, second
    while index < size:                     # an empty text may be NULL
        run = <int32_t>(find_not_plain(text + index, text + size) - text) - index
        memcpy(at, text + index, run)
        at += run
        index += run
        if index >= size:
            break
        c = text[index]
        second = text[index + 1] if index + 1 < size else 0
        index += 1
        if c == 0x22 or c == 0x5C:
            at[0] = 0x5C
            at[1] = c
            at += 2
        elif 8 <= c <= 13 and c != 11:
            at[0] = 0x5C
            at[1] = <uint8_t>short_escapes[c - 8]
            at += 2
        elif c < 0x20 or c == 0x7F:
            at = put_unit(at, c)
        elif c == 0xC2 and 0x80 <= second <= 0x9F:
            at = put_unit(at, second)
            index += 1
        elif c == 0xE2 and second == 0x80 and index + 1 < size and (text[index + 1] | 1) == 0xA9:
            at = put_unit(at, 0x2028 + (text[index + 1] & 1))
            index += 2
        else:
            at[0] = c
            at += 1
    return at


cdef uint8_t *put_json_header(uint8_t *at, const Reply *reply) noexcept nogil:
    cdef int32_t index
    at = put_text(at, '{"code":', 8)
    at += put_decimal(at, reply.code)
    if reply.has_ext_fields:
        at = put_text(at, ',"extFields":{', 14)
        for index in range(reply.field_count):
            if index > 0:
                at = put_text(at, ",", 1)
            at = put_text(at, '"', 1)
            at = put_text(at, reply.fields[index].name, reply.fields[index].name_size)
            at = put_text(at, '":"', 3)
            at = put_escaped(at, reply.fields[index].value, reply.fields[index].value_size)
            at = put_text(at, '"', 1)
        at = put_text(at, "}", 1)
    at = put_text(at, ',"flag":', 8)
    at += put_decimal(at, reply.flag)
    at = put_text(at, ',"language":"JAVA","opaque":', 28)
    at += put_decimal(at, reply.opaque)
    if reply.remark != NULL:
        at = put_text(at, ',"remark":"', 11)
        at = put_escaped(at, <const uint8_t *>reply.remark, reply.remark_size)
        at = put_text(at, '"', 1)
    return put_text(at, JSON_TAIL, JSON_TAIL_SIZE)


cdef uint8_t *put_binary_header(uint8_t *at, const Reply *reply) noexcept nogil:
    cdef int32_t index
    cdef uint8_t *length_at
    store_i16(at, <short>reply.code)
    at[2] = 0
    store_i16(at + 3, <short>VERSION)
    store_i32(at + 5, reply.opaque)
    store_i32(at + 9, reply.flag)
    store_i32(at + 13, reply.remark_size)
    at = put_text(at + 17, reply.remark, reply.remark_size) if reply.remark_size > 0 else at + 17
    length_at = at
    at += 4
    for index in range(reply.field_count):
        store_i16(at, <short>reply.fields[index].name_size)
        at = put_text(at + 2, reply.fields[index].name, reply.fields[index].name_size)
        store_i32(at, reply.fields[index].value_size)
        at = put_text(at + 4, <const char *>reply.fields[index].value, reply.fields[index].value_size)
    store_i32(length_at, <int32_t>(at - length_at - 4))
    return at


cdef bint reply_put(const Reply *reply, Buffer *out, int64_t body_size) noexcept nogil:
    cdef int64_t room = FRAME_OVERHEAD + <int64_t>reply.remark_size * ESCAPE_SIZE_MAX
    cdef int32_t index, header_size
    cdef uint8_t *frame
    cdef uint8_t *end
    for index in range(reply.field_count):
        room += FIELD_OVERHEAD + <int64_t>reply.fields[index].value_size * ESCAPE_SIZE_MAX
    frame = buffer_room(out, room)
    if frame == NULL:
        return False
    if reply.serialize_type == SERIALIZE_BINARY:
        end = put_binary_header(frame + 8, reply)
    else:
        end = put_json_header(frame + 8, reply)
    header_size = <int32_t>(end - frame - 8)
    store_i32(frame, <int32_t>(4 + header_size + body_size))
    store_i32(frame + 4, (reply.serialize_type << 24) | header_size)
    out.end += 8 + header_size
    return True


def encode(int serialize_type, int code, int opaque, remark, ext_fields, int64_t body_size=0, int flag=1):
    """A reply frame's head as bytes, for tests: *remark* bytes or None, *ext_fields* a list of (name, value) or None.

    Raises ValueError beyond what the workers ask for: REPLY_FIELDS_MAX fields with names of REPLY_NAME_MAX bytes.
    """
    cdef Reply reply
    cdef Buffer buffer
    cdef bint ok
    memset(&buffer, 0, sizeof(buffer))
    reply_start(&reply, serialize_type, code, opaque)
    reply.flag = flag
    if remark is not None:
        reply.remark = <const char *>remark
        reply.remark_size = <int32_t>len(remark)
    if ext_fields is not None:
        if len(ext_fields) > REPLY_FIELDS_MAX or any(len(name) > REPLY_NAME_MAX for name, _ in ext_fields):
            raise ValueError(f"reply: wanted at most {REPLY_FIELDS_MAX} fields, "
                             f"names of at most {REPLY_NAME_MAX} bytes")
        reply.has_ext_fields = True
        for name, value in ext_fields:
            reply_field(&reply, <const char *><bytes>name, <const uint8_t *><const char *><bytes>value,
                        <int32_t>len(value))
    ok = reply_put(&reply, &buffer, body_size)
    if not ok:
        raise MemoryError()
    frame = (<const char *>buffer.data)[:buffer.end]
    buffer_free(&buffer)
    return frame
