# cython: language_level=3
"""Reads answer frames as far as a load generator must: code, opaque, nextBeginOffset, and the records of a pull.

Both header forms are read, whatever the request's form was: a broker may answer a binary request in JSON. JSON is
searched, not parsed: inside a JSON string every quote is escaped, so the bytes `"opaque":` can only be a member's name.
A header that does not hold what every answer must hold is bad, never guessed at.
"""

from libc.string cimport memcmp

cdef extern from "<string.h>" nogil:
    void *memmem(const void *haystack, size_t haystack_size, const void *needle, size_t needle_size)

cdef enum:
    FRAME_SIZE_MAX = 16777216           # a peer's frame, its length field included, is never larger
    LENGTH_FIELD_SIZE = 4
    HEADER_MARK_SIZE = 4
    JSON_FORM = 0
    BINARY_FORM = 1
    BINARY_CODE_AT = 0
    BINARY_OPAQUE_AT = 5
    BINARY_FLAG_AT = 9
    BINARY_REMARK_AT = 13
    RESPONSE_BIT = 1
    DIGITS_MAX = 18                     # of a decimal number that always fits in an int64
    RECORD_QUEUE_ID_AT = 12
    OFFSET_DIGITS = 16                  # hexadecimal, at the end of a message id
    RECORD_QUEUE_OFFSET_AT = 20
    RECORD_SIZE_MIN = 91                # fixed fields and lengths, IPv4 hosts, nothing in the variable parts

cdef const char *CODE_KEY = b'"code":'
cdef const char *OPAQUE_KEY = b'"opaque":'
cdef const char *FLAG_KEY = b'"flag":'
cdef const char *NEXT_KEY = b'"nextBeginOffset":"'
cdef const char *QUEUE_OFFSET_KEY = b'"queueOffset":"'
cdef const char *MESSAGE_ID_KEY = b'"msgId":"'
cdef const char *NEXT_NAME = b'nextBeginOffset'


cdef uint32_t read_be32(const uint8_t *at) noexcept nogil:
    return (<uint32_t> at[0] << 24) | (<uint32_t> at[1] << 16) | (<uint32_t> at[2] << 8) | <uint32_t> at[3]


cdef uint64_t read_be64(const uint8_t *at) noexcept nogil:
    return (<uint64_t> read_be32(at) << 32) | <uint64_t> read_be32(at + 4)


# Read the decimal number at the start of text[0:length] into *value; False if there is none or it is too long.
cdef bint read_decimal(const uint8_t *text, size_t length, int64_t *value) noexcept nogil:
    cdef size_t at = 0
    cdef bint is_negative = length > 0 and text[0] == c'-'
    cdef int64_t total = 0
    cdef size_t first
    if is_negative:
        at = 1
    first = at
    while at < length and c'0' <= text[at] <= c'9':
        if at - first >= DIGITS_MAX:
            return False
        total = total * 10 + (text[at] - c'0')
        at += 1
    value[0] = -total if is_negative else total
    return at > first


# Read the number that follows key in the JSON text; False if the key or the number is not there.
cdef bint read_member(
    const uint8_t *text, size_t length, const char *key, size_t key_size, int64_t *value
) noexcept nogil:
    cdef const uint8_t *found = <const uint8_t *> memmem(text, length, key, key_size)
    if found == NULL:
        return False
    found += key_size
    return read_decimal(found, length - <size_t> (found - text), value)


cdef bint read_message_id(const uint8_t *text, size_t length, int64_t *offset) noexcept nogil:
    # The physical offset: the last 16 hexadecimal digits before the quote that ends the id.
    cdef const uint8_t *found = <const uint8_t *> memmem(text, length, MESSAGE_ID_KEY, 9)
    cdef const uint8_t *end = text + length
    cdef const uint8_t *quote
    cdef uint64_t value = 0
    cdef int digit
    if found == NULL:
        return False
    found += 9
    quote = found
    while quote < end and quote[0] != c'"':
        quote += 1
    if quote == end or quote - found < OFFSET_DIGITS:
        return False
    found = quote - OFFSET_DIGITS
    while found < quote:
        digit = found[0] - c'0' if found[0] <= c'9' else (found[0] | 0x20) - c'a' + 10
        if not 0 <= digit < 16:
            return False
        value = (value << 4) | <uint64_t> digit
        found += 1
    offset[0] = <int64_t> value
    return True


cdef bint read_json_header(const uint8_t *text, size_t length, Answer *out) noexcept nogil:
    cdef int64_t code, opaque, flag
    if not read_member(text, length, CODE_KEY, 7, &code):
        return False
    if not read_member(text, length, OPAQUE_KEY, 9, &opaque):
        return False
    if not read_member(text, length, FLAG_KEY, 7, &flag) or not flag & RESPONSE_BIT:
        return False
    out.code = <int32_t> code
    out.opaque = <int32_t> opaque
    if not read_member(text, length, NEXT_KEY, 19, &out.next_begin_offset):
        out.next_begin_offset = -1
    if not read_member(text, length, QUEUE_OFFSET_KEY, 15, &out.queue_offset):
        out.queue_offset = -1
    if out.queue_offset < 0 or not read_message_id(text, length, &out.physical_offset):
        out.physical_offset = -1
    return True


# Look for nextBeginOffset among the entries; False if an entry reaches past the end.
cdef bint read_binary_entries(const uint8_t *entries, size_t length, Answer *out) noexcept nogil:
    cdef size_t at = 0, key_size, value_size
    cdef const uint8_t *key
    while at < length:
        if length - at < 2:
            return False
        key_size = (<size_t> entries[at] << 8) | entries[at + 1]
        at += 2
        if length - at < 4 or key_size > length - at - 4:
            return False
        key = entries + at
        at += key_size
        value_size = read_be32(entries + at)
        at += 4
        if value_size > length - at:
            return False
        if key_size == 15 and memcmp(key, NEXT_NAME, 15) == 0:
            if not read_decimal(entries + at, value_size, &out.next_begin_offset):
                return False
        at += value_size
    return True


cdef bint read_binary_header(const uint8_t *header, size_t length, Answer *out) noexcept nogil:
    cdef size_t at = BINARY_REMARK_AT, size
    if length < BINARY_REMARK_AT + 4:
        return False
    out.code = (<int32_t> header[BINARY_CODE_AT] << 8) | header[BINARY_CODE_AT + 1]
    out.opaque = <int32_t> read_be32(header + BINARY_OPAQUE_AT)
    out.next_begin_offset = out.queue_offset = out.physical_offset = -1
    if not read_be32(header + BINARY_FLAG_AT) & RESPONSE_BIT:
        return False
    size = read_be32(header + at)
    at += 4
    if size > length - at or length - at - size < 4:
        return False
    at += size
    size = read_be32(header + at)
    at += 4
    if size > length - at:
        return False
    return read_binary_entries(header + at, size, out)


cdef AnswerStatus read_answer(const uint8_t *buf, size_t length, size_t *frame_size, Answer *out) noexcept nogil:
    cdef size_t payload_size, header_size
    cdef bint is_read
    frame_size[0] = 0
    if length < LENGTH_FIELD_SIZE:
        return ANSWER_SHORT
    payload_size = read_be32(buf)
    if payload_size < HEADER_MARK_SIZE or payload_size > FRAME_SIZE_MAX - LENGTH_FIELD_SIZE:
        return ANSWER_BAD
    frame_size[0] = LENGTH_FIELD_SIZE + payload_size
    if length < frame_size[0]:
        return ANSWER_SHORT
    header_size = read_be32(buf + LENGTH_FIELD_SIZE) & 0xFFFFFF
    if header_size > payload_size - HEADER_MARK_SIZE:
        return ANSWER_BAD
    out.body = buf + LENGTH_FIELD_SIZE + HEADER_MARK_SIZE + header_size
    out.body_size = payload_size - HEADER_MARK_SIZE - header_size
    if buf[LENGTH_FIELD_SIZE] == JSON_FORM:
        is_read = read_json_header(buf + LENGTH_FIELD_SIZE + HEADER_MARK_SIZE, header_size, out)
    elif buf[LENGTH_FIELD_SIZE] == BINARY_FORM:
        is_read = read_binary_header(buf + LENGTH_FIELD_SIZE + HEADER_MARK_SIZE, header_size, out)
    else:
        is_read = False
    return ANSWER_OK if is_read else ANSWER_BAD


cdef PulledRange walk_records(
    const uint8_t *body, size_t length, int32_t queue_id, int64_t first_offset
) noexcept nogil:
    cdef PulledRange pulled
    cdef size_t at = 0, record_size
    pulled.message_count = 0
    pulled.is_sound = False
    while length - at >= RECORD_SIZE_MIN:
        record_size = read_be32(body + at)
        if record_size < RECORD_SIZE_MIN or record_size > length - at:
            return pulled
        if <int32_t> read_be32(body + at + RECORD_QUEUE_ID_AT) != queue_id:
            return pulled
        if <int64_t> read_be64(body + at + RECORD_QUEUE_OFFSET_AT) != first_offset + pulled.message_count:
            return pulled
        pulled.message_count += 1
        at += record_size
    pulled.is_sound = at == length
    return pulled


def answer(const uint8_t[::1] frame not None):
    """Return (code, opaque, next_begin_offset, body) of the answer that *frame* holds whole.

    next_begin_offset is None if the header has none. Raises ValueError if *frame* is cut short or is not an answer.
    """
    cdef Answer out
    cdef size_t frame_size = 0
    cdef size_t length = frame.shape[0]
    cdef AnswerStatus status = ANSWER_SHORT
    if length > 0:
        status = read_answer(&frame[0], length, &frame_size, &out)
    if status != ANSWER_OK:
        raise ValueError(f"{'frame cut short' if status == ANSWER_SHORT else 'not an answer'} (size={length})")
    next_begin_offset = None if out.next_begin_offset < 0 else out.next_begin_offset
    return out.code, out.opaque, next_begin_offset, out.body[:out.body_size]


def pulled_count(const uint8_t[::1] body not None, int32_t queue_id, int64_t first_offset):
    """Return (message count, is sound) for the *body* of a pull answer, see walk_records."""
    cdef PulledRange pulled
    if body.shape[0] == 0:
        return 0, True
    pulled = walk_records(&body[0], body.shape[0], queue_id, first_offset)
    return pulled.message_count, bool(pulled.is_sound)
