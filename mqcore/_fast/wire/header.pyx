"""Scanners for the headers of remoting commands; their readable twin is mqcore.protocol.command."""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy, memset

from mqcore._fast.base.big_endian cimport load_i16, load_i32
from mqcore._fast.base.layout cimport (BINARY_HEADER_CODE_AT, BINARY_HEADER_FLAG_AT, BINARY_HEADER_LANGUAGE_AT,
                                       BINARY_HEADER_OPAQUE_AT, BINARY_HEADER_SIZE, BINARY_HEADER_VERSION_AT)

from mqcore.codes import LanguageCode
from mqcore.errors import FrameError

cdef int32_t LANGUAGE_MAX = max(LanguageCode)
cdef int32_t LANGUAGE_UNKNOWN = LanguageCode.UNKNOWN

cdef extern from "scan.h" nogil:
    ctypedef struct Cursor:
        const uint8_t *at
        const uint8_t *end
    void cursor_open(Cursor *c, const uint8_t *text, int32_t size)
    const uint8_t *next_mark(Cursor *c)
    const uint8_t *find_quote_or_escape(const uint8_t *at, const uint8_t *end)

cdef extern from "digits.h" nogil:
    bint eight_digits(const uint8_t *at, int64_t *value)

cdef extern from *:
    """
    #include <stdint.h>
    /* INT64_MIN without its last digit, which is 8. */
    static const int64_t I64_MIN_TENTH = INT64_MIN / 10;
    """
    const int64_t I64_MIN_TENTH
    const int64_t INT64_MIN


cdef enum:
    I64_DIGITS_SAFE = 18            # any number of so many digits fits
    MEMBER_SIZE_MAX = 1024          # of an escaped text outside extFields; longer ones are for the Python reader


cdef inline void skip_blanks(Cursor *c) noexcept nogil:
    while c.at < c.end and (c.at[0] == 0x20 or c.at[0] == 0x0A or c.at[0] == 0x0D or c.at[0] == 0x09):
        c.at += 1


cdef inline bint take(Cursor *c, uint8_t wanted) noexcept nogil:
    # Machines write no blanks, so they are looked for only when something else is in the way.
    if c.at < c.end and c.at[0] == wanted:
        c.at += 1
        return True
    skip_blanks(c)
    if c.at < c.end and c.at[0] == wanted:
        c.at += 1
        return True
    return False


cdef inline bint scan_string(Cursor *c, TextView *out) noexcept nogil:
    # The inside of a double-quoted string; escapes are left in place and only noted.
    if not take(c, 0x22):
        return False
    out.at = c.at
    out.is_escaped = False
    while True:
        c.at = next_mark(c)
        if c.at >= c.end:
            return False
        if c.at[0] == 0x22:
            out.size = <int32_t>(c.at - out.at)
            c.at += 1
            return True
        out.is_escaped = True
        c.at += 2


cdef bint is_literal(const TextView *text) noexcept nogil:
    # true, false, or a decimal integer that is spelled as a writer spells it (not 007, not -0); any other bare word is
    # for the Python reader.
    cdef int32_t at = 0
    if text.size == 4 and memcmp(text.at, b"true", 4) == 0:
        return True
    if text.size == 5 and memcmp(text.at, b"false", 5) == 0:
        return True
    if text.size > 0 and text.at[0] == 0x2D:
        at = 1
    if at == text.size or (text.at[at] == 0x30 and text.size > 1):
        return False
    while at < text.size:
        if not 0x30 <= text.at[at] <= 0x39:
            return False
        at += 1
    return True


cdef bint scan_scalar(Cursor *c, TextView *out) noexcept nogil:
    # A string, or the bare text of a number or true/false; null and everything nested is for the Python reader.
    skip_blanks(c)
    if c.at >= c.end:
        return False
    if c.at[0] == 0x22:
        return scan_string(c, out)
    out.at = c.at
    out.is_escaped = False
    while c.at < c.end and (0x30 <= c.at[0] <= 0x39 or c.at[0] == 0x2D or 0x61 <= c.at[0] <= 0x7A):
        c.at += 1
    out.size = <int32_t>(c.at - out.at)
    return is_literal(out)


cdef bint scan_short_fields(Cursor *where, CommandView *view) noexcept nogil:
    # Fields that are a letter and a string, as most are: whether the cursor is behind one, and not before a name.
    cdef Cursor here = where[0]
    cdef const uint8_t *at
    cdef int32_t count = view.field_count
    cdef bint is_behind = False
    while count < FIELDS_MAX and not is_behind:
        at = here.at
        if (here.end - at < 6 or at[0] != 0x22 or at[1] == 0x22 or at[1] == 0x5C or at[2] != 0x22 or at[3] != 0x3A
                or at[4] != 0x22):
            break
        here.at = at + 4
        if not scan_string(&here, &view.values[count]):
            here.at = at
            break
        view.names[count].at = at + 1
        view.names[count].size = 1
        view.names[count].is_escaped = False
        count += 1
        is_behind = here.at >= here.end or here.at[0] != 0x2C
        here.at += not is_behind
    view.field_count = count
    where[0] = here
    return is_behind


cdef bint scan_field(Cursor *c, CommandView *view) noexcept nogil:
    cdef TextView *name = &view.names[view.field_count]
    if view.field_count >= FIELDS_MAX:
        return False
    if not scan_string(c, name) or name.is_escaped:
        return False
    if not take(c, 0x3A) or not scan_scalar(c, &view.values[view.field_count]):
        return False
    view.field_count += 1
    return True


cdef bint scan_ext_fields(Cursor *c, CommandView *view) noexcept nogil:
    if not take(c, 0x7B):
        return False
    view.has_ext_fields = True
    if take(c, 0x7D):
        return True
    while True:
        if not scan_short_fields(c, view) and not scan_field(c, view):
            return False
        if take(c, 0x7D):
            return True
        if not take(c, 0x2C):
            return False


cdef inline bint is_name(const TextView *text, const char *name, int32_t size) noexcept nogil:
    return text.size == size and memcmp(text.at, name, size) == 0


cdef int32_t language_code(const TextView *name) noexcept nogil:
    if is_name(name, b"JAVA", 4):
        return 0
    if is_name(name, b"CPP", 3):
        return 1
    if is_name(name, b"GO", 2):
        return 9
    if is_name(name, b"PYTHON", 6):
        return 3
    return -1


cdef inline bint scan_integer(Cursor *c, int64_t *out) noexcept nogil:
    # An integer as a writer spells it, of not more digits than fit; all else is for scan_scalar, at the same place.
    cdef const uint8_t *at = c.at
    cdef const uint8_t *first
    cdef int64_t value = 0
    cdef bint is_negative = at < c.end and at[0] == 0x2D
    at += is_negative
    first = at
    while at < c.end and 0x30 <= at[0] <= 0x39 and at - first < I64_DIGITS_SAFE:
        value = value * 10 + (at[0] - 0x30)
        at += 1
    # Not 007, not -0, and nothing more behind it that could be part of it.
    if (at == first or at >= c.end or (first[0] == 0x30 and (is_negative or at - first > 1))
            or not (at[0] == 0x2C or at[0] == 0x7D)):
        return False
    c.at = at
    out[0] = -value if is_negative else value
    return True


cdef int32_t *number_called(CommandView *view, const TextView *name) noexcept nogil:
    # Where the number of that name goes; NULL for what is not one of ours, or is none.
    if is_name(name, b"code", 4):
        return &view.code
    if is_name(name, b"flag", 4):
        return &view.flag
    if is_name(name, b"opaque", 6):
        return &view.opaque
    if is_name(name, b"version", 7):
        return &view.version
    return NULL


cdef bint scan_member(Cursor *c, const TextView *name, CommandView *view) noexcept nogil:
    cdef int32_t *place = number_called(view, name)
    cdef int64_t number
    cdef TextView value
    cdef uint8_t scratch[MEMBER_SIZE_MAX]
    if place != NULL and scan_integer(c, &number):
        place[0] = <int32_t>number
        return place[0] == number
    if not scan_scalar(c, &value):
        return False
    # A member that nobody here looks at must be well-formed all the same.
    if value.is_escaped and text_unescape(&value, scratch, MEMBER_SIZE_MAX) < 0:
        return False
    if place != NULL:
        return text_to_i32(&value, place)
    if is_name(name, b"language", 8):
        view.language = language_code(&value)
    elif is_name(name, b"remark", 6):
        view.remark = value
    return True


cdef bint scan_json(const uint8_t *header, int32_t size, CommandView *view) noexcept nogil:
    cdef Cursor cursor
    cdef TextView name
    cdef bint has_opaque = False
    cursor_open(&cursor, header, size)
    if not take(&cursor, 0x7B):
        return False
    while True:
        if not scan_string(&cursor, &name) or name.is_escaped or not take(&cursor, 0x3A):
            return False
        if is_name(&name, b"extFields", 9):
            if view.has_ext_fields or not scan_ext_fields(&cursor, view):
                return False
        else:
            has_opaque |= is_name(&name, b"opaque", 6)
            if not scan_member(&cursor, &name, view):
                return False
        if take(&cursor, 0x7D):
            break
        if not take(&cursor, 0x2C):
            return False
    skip_blanks(&cursor)
    return has_opaque and cursor.at == cursor.end


cdef CommandStatus scan_binary(const uint8_t *header, int32_t size, CommandView *view) noexcept nogil:
    cdef int32_t at = BINARY_HEADER_SIZE
    cdef int32_t part, end
    if size < BINARY_HEADER_SIZE + 8:
        return COMMAND_BAD
    view.code = load_i16(header + BINARY_HEADER_CODE_AT)
    view.language = <int8_t>header[BINARY_HEADER_LANGUAGE_AT]
    if not 0 <= view.language <= LANGUAGE_MAX:
        view.language = LANGUAGE_UNKNOWN
    view.version = load_i16(header + BINARY_HEADER_VERSION_AT)
    view.opaque = load_i32(header + BINARY_HEADER_OPAQUE_AT)
    view.flag = load_i32(header + BINARY_HEADER_FLAG_AT)
    part = load_i32(header + at)
    at += 4
    if part < 0 or part > size - at - 4:
        return COMMAND_BAD
    if part > 0:
        view.remark.at = header + at
        view.remark.size = part
    at += part
    part = load_i32(header + at)
    at += 4
    if part < 0 or part > size - at:
        return COMMAND_BAD
    end = at + part
    view.has_ext_fields = part > 0
    while at < end:
        if view.field_count >= FIELDS_MAX:
            return COMMAND_UNUSUAL
        if end - at < 2:
            return COMMAND_BAD
        part = load_i16(header + at)
        at += 2
        if part < 0 or part > end - at - 4:
            return COMMAND_BAD
        view.names[view.field_count].at = header + at
        view.names[view.field_count].size = part
        view.names[view.field_count].is_escaped = False
        at += part
        part = load_i32(header + at)
        at += 4
        if part < 0 or part > end - at:
            return COMMAND_BAD
        view.values[view.field_count].at = header + at
        view.values[view.field_count].size = part
        view.values[view.field_count].is_escaped = False
        at += part
        # An empty value is the same as a missing field in this form.
        if part > 0 and view.names[view.field_count].size > 0:
            view.field_count += 1
    return COMMAND_OK


cdef CommandStatus scan_command(const uint8_t *payload, int32_t size, CommandView *out) noexcept nogil:
    cdef int32_t mark
    if size < 4:
        return COMMAND_BAD
    mark = load_i32(payload)
    out.serialize_type = (mark >> 24) & 0xFF
    out.header_size = mark & 0xFFFFFF
    if out.header_size > size - 4 or out.serialize_type > SERIALIZE_BINARY:
        return COMMAND_BAD
    out.code = 0
    out.language = 0
    out.version = 0
    out.opaque = 0
    out.flag = 0
    memset(&out.remark, 0, sizeof(out.remark))
    out.has_ext_fields = False
    out.field_count = 0
    out.body = payload + 4 + out.header_size
    out.body_size = size - 4 - out.header_size
    if out.serialize_type == SERIALIZE_BINARY:
        return scan_binary(payload + 4, out.header_size, out)
    return COMMAND_OK if scan_json(payload + 4, out.header_size, out) else COMMAND_UNUSUAL


cdef TextView field_of(const CommandView *view, const char *name, int32_t name_size) noexcept nogil:
    cdef TextView none
    cdef int32_t index
    # From the end: of a repeated name the last one counts, as in a map.
    for index in range(view.field_count - 1, -1, -1):
        if is_name(&view.names[index], name, name_size):
            return view.values[index]
    memset(&none, 0, sizeof(none))
    return none


cdef bint text_to_i64(const TextView *text, int64_t *out) noexcept nogil:
    cdef int32_t at = 0
    cdef bint negative = False
    cdef int64_t value = 0
    if text.at == NULL or text.is_escaped or text.size == 0 or text.size > 20:
        return False
    if text.at[0] == 0x2D or text.at[0] == 0x2B:
        negative = text.at[0] == 0x2D
        at = 1
    if at == text.size or text.size - at > 19:
        return False
    if text.size - at <= 18:
        # No overflow is possible.
        if text.size - at >= 8:
            if not eight_digits(text.at + at, &value):
                return False
            at += 8
        while at < text.size:
            if not 0x30 <= text.at[at] <= 0x39:
                return False
            value = value * 10 + (text.at[at] - 0x30)
            at += 1
        out[0] = -value if negative else value
        return True
    while at < text.size:
        if not 0x30 <= text.at[at] <= 0x39:
            return False
        # Built downwards, since the negative side reaches one further; 19 digits may still overflow.
        if value < I64_MIN_TENTH or (value == I64_MIN_TENTH and text.at[at] > 0x38):
            return False
        value = value * 10 - (text.at[at] - 0x30)
        at += 1
    if not negative and value == INT64_MIN:
        return False
    out[0] = value if negative else -value
    return True


cdef bint long_to_i32(const TextView *text, int32_t *out) noexcept nogil:
    cdef int64_t value
    if not text_to_i64(text, &value) or value > 0x7FFFFFFF or value < -0x7FFFFFFF - 1:
        return False
    out[0] = <int32_t>value
    return True


cdef bint text_to_bool(const TextView *text) noexcept nogil:
    return text.at != NULL and text.size == 4 and not text.is_escaped and (
        (text.at[0] | 0x20) == 0x74 and (text.at[1] | 0x20) == 0x72 and (text.at[2] | 0x20) == 0x75
        and (text.at[3] | 0x20) == 0x65)


cdef int32_t hex_digit(uint8_t c) noexcept nogil:
    if 0x30 <= c <= 0x39:
        return c - 0x30
    if 0x61 <= (c | 0x20) <= 0x66:
        return (c | 0x20) - 0x57
    return -1


cdef int32_t hex_unit(const uint8_t *at) noexcept nogil:
    cdef int32_t index, digit
    cdef int32_t value = 0
    for index in range(4):
        digit = hex_digit(at[index])
        if digit < 0:
            return -1
        value = value * 16 + digit
    return value


cdef int32_t put_utf8(uint32_t point, uint8_t *out) noexcept nogil:
    if point < 0x80:
        out[0] = <uint8_t>point
        return 1
    if point < 0x800:
        out[0] = <uint8_t>(0xC0 | (point >> 6))
        out[1] = <uint8_t>(0x80 | (point & 0x3F))
        return 2
    if point < 0x10000:
        out[0] = <uint8_t>(0xE0 | (point >> 12))
        out[1] = <uint8_t>(0x80 | ((point >> 6) & 0x3F))
        out[2] = <uint8_t>(0x80 | (point & 0x3F))
        return 3
    out[0] = <uint8_t>(0xF0 | (point >> 18))
    out[1] = <uint8_t>(0x80 | ((point >> 12) & 0x3F))
    out[2] = <uint8_t>(0x80 | ((point >> 6) & 0x3F))
    out[3] = <uint8_t>(0x80 | (point & 0x3F))
    return 4


cdef int32_t text_unescape(const TextView *text, uint8_t *out, int32_t capacity) noexcept nogil:
    cdef const uint8_t *at = text.at
    cdef const uint8_t *end = text.at + text.size
    cdef const uint8_t *stop
    cdef int32_t size = 0
    cdef int32_t unit, low, run
    cdef uint8_t c
    while at < end:
        stop = find_quote_or_escape(at, end) if text.is_escaped else end
        if stop < end and stop[0] == 0x22:
            stop += 1
        run = <int32_t>(stop - at)
        if capacity - size < run + UNESCAPE_ROOM:
            return -1
        memcpy(out + size, at, run)
        size += run
        at = stop
        if at >= end or at[0] != 0x5C:
            continue
        at += 1
        if at >= end:
            return -1
        c = at[0]
        at += 1
        if c == 0x75:
            if end - at >= 4 and memcmp(at, b"000", 3) == 0 and 0x31 <= at[3] <= 0x37:
                # The separators of a properties text.
                out[size] = at[3] - 0x30
                size += 1
                at += 4
                continue
            unit = hex_unit(at) if end - at >= 4 else -1
            if unit < 0:
                return -1
            at += 4
            if 0xD800 <= unit < 0xDC00:
                low = hex_unit(at + 2) if end - at >= 6 and at[0] == 0x5C and at[1] == 0x75 else -1
                if not 0xDC00 <= low < 0xE000:
                    return -1
                at += 6
                size += put_utf8(0x10000 + ((<uint32_t>unit - 0xD800) << 10) + (<uint32_t>low - 0xDC00), out + size)
            elif 0xDC00 <= unit < 0xE000:
                return -1
            else:
                size += put_utf8(unit, out + size)
            continue
        if c == 0x6E:
            c = 0x0A
        elif c == 0x74:
            c = 0x09
        elif c == 0x72:
            c = 0x0D
        elif c == 0x62:
            c = 0x08
        elif c == 0x66:
            c = 0x0C
        elif c != 0x22 and c != 0x5C and c != 0x2F:
            return -1
        out[size] = c
        size += 1
    return size


cdef object text_object(const TextView *text):
    cdef bytearray out
    cdef int32_t size
    if not text.is_escaped:
        return (<const char *>text.at)[:text.size].decode("utf-8", "replace")
    out = bytearray(text.size + 8)
    size = text_unescape(text, <uint8_t *><char *>out, text.size + 8)
    return None if size < 0 else out[:size].decode("utf-8", "replace")


def scan(const uint8_t[::1] payload not None):
    """The header of a frame's *payload* (without its 4-byte length) as a dict, or None if it is for the Python reader.

    Members: code, language (-1 = unknown), version, opaque, flag, serialize_type, ext_fields (None = absent), body.
    Raises FrameError when lengths or serialize type are impossible.
    """
    cdef CommandView view
    cdef CommandStatus status = COMMAND_BAD
    cdef int32_t index
    if payload.shape[0] > 0:
        status = scan_command(&payload[0], <int32_t>payload.shape[0], &view)
    if status == COMMAND_BAD:
        raise FrameError("header lengths or serialize type are impossible")
    if status == COMMAND_UNUSUAL:
        return None
    ext_fields = None
    if view.has_ext_fields:
        ext_fields = {}
        for index in range(view.field_count):
            value = text_object(&view.values[index])
            if value is None:
                return None
            ext_fields[text_object(&view.names[index])] = value
    return {
        "code": view.code, "language": view.language, "version": view.version, "opaque": view.opaque,
        "flag": view.flag, "serialize_type": view.serialize_type, "ext_fields": ext_fields,
        "body": (<const char *>view.body)[:view.body_size],
    }


def parse_i64(bytes text not None):
    """Decimal text as Java's Long.parseLong reads it, or None."""
    cdef TextView view
    cdef int64_t value
    view.at = <const uint8_t *><const char *>text
    view.size = <int32_t>len(text)
    view.is_escaped = False
    return value if text_to_i64(&view, &value) else None
