# UTF-8: whether bytes are well-formed, as Unicode has it: no overlong forms, no surrogates, nothing behind U+10FFFF.
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy


cdef inline bint is_ascii(const uint8_t *text, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t at = 0
    cdef uint64_t word, bits = 0
    cdef uint64_t high = 0x80               # becomes the highest bit of each byte; the compiler does that
    high |= high << 8
    high |= high << 16
    high |= high << 32
    while at + 8 <= size:
        memcpy(&word, text + at, 8)
        bits |= word
        at += 8
    while at < size:
        bits |= text[at]
        at += 1
    return bits & high == 0


cdef inline bint is_tail(uint8_t byte) noexcept nogil:
    return byte & 0xC0 == 0x80


# The bytes of the character at text[0:size], which does not start with an ASCII one; 0 if it is malformed.
cdef inline Py_ssize_t character_size(const uint8_t *text, Py_ssize_t size) noexcept nogil:
    cdef uint8_t first = text[0]
    if 0xC2 <= first <= 0xDF:
        return 2 if size >= 2 and is_tail(text[1]) else 0
    if 0xE0 <= first <= 0xEF:
        if size < 3 or not is_tail(text[1]) or not is_tail(text[2]):
            return 0
        if (first == 0xE0 and text[1] < 0xA0) or (first == 0xED and text[1] > 0x9F):
            return 0                        # overlong; a surrogate
        return 3
    if 0xF0 <= first <= 0xF4:
        if size < 4 or not is_tail(text[1]) or not is_tail(text[2]) or not is_tail(text[3]):
            return 0
        if (first == 0xF0 and text[1] < 0x90) or (first == 0xF4 and text[1] > 0x8F):
            return 0                        # overlong; behind U+10FFFF
        return 4
    return 0


cdef inline bint is_utf8(const uint8_t *text, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t at = 0, step
    if is_ascii(text, size):
        return True
    while at < size:
        step = 1 if text[at] < 0x80 else character_size(text + at, size - at)
        if step == 0:
            return False
        at += step
    return True
