"""Texts read as Java reads numbers. The twin is mqcore/filter/values.py."""

from libc.math cimport INFINITY, NAN, isnan, signbit
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from mqcore.filter import values as twin

cdef extern from "java_text.h" nogil:
    uint32_t mq_next_code_point(const uint8_t *text, size_t size, size_t at, size_t *used)

cdef extern from "<locale.h>" nogil:
    ctypedef void *locale_t
    int LC_ALL_MASK
    locale_t newlocale(int mask, const char *name, locale_t base)

cdef extern from "<stdlib.h>" nogil:
    double strtod_l(const char *text, char **end, locale_t place)

cdef enum:
    NUMBER_SIZE = 512       # texts up to here need no memory of their own
    ZEROS_MAX = 64
    DIGITS_THAT_FIT = 9     # whatever the limit

cdef int32_t zeros[ZEROS_MAX]
cdef int zero_count = 0
cdef locale_t c_locale = newlocale(LC_ALL_MASK, b"C", NULL)    # a decimal point is a point, whatever a program sets

for zero in twin.ZEROS:
    zeros[zero_count] = zero
    zero_count += 1


# The digit at text[at]; -1 if there is none that Java's numbers may have. *used*: its bytes.
cdef inline int digit_at(const uint8_t *text, int32_t size, int32_t at, size_t *used) noexcept nogil:
    cdef int32_t point
    cdef int number
    used[0] = 1
    if text[at] < 0x80:
        return text[at] - 48 if 48 <= text[at] <= 57 else -1
    point = <int32_t>mq_next_code_point(text, size, at, used)
    for number in range(zero_count):
        if zeros[number] <= point < zeros[number] + 10:
            return point - zeros[number]
    return -1


cdef bint parse_integer(const uint8_t *text, int32_t size, int64_t limit, int64_t *out) noexcept nogil:
    cdef bint is_negative = size > 0 and text[0] == 45
    cdef int32_t at = 1 if is_negative or (size > 0 and text[0] == 43) else 0
    cdef uint64_t largest = <uint64_t>limit + (1 if is_negative else 0)
    cdef uint64_t value = 0
    cdef size_t used
    cdef int digit
    if at >= size:
        return False
    while at < size and size <= DIGITS_THAT_FIT and 48 <= text[at] <= 57:
        value = value * 10 + (text[at] - 48)
        at += 1
    while at < size:
        digit = digit_at(text, size, at, &used)
        if digit < 0 or value > (largest - digit) // 10:
            return False
        value = value * 10 + digit
        at += <int32_t>used
    out[0] = <int64_t>(0 - value) if is_negative else <int64_t>value
    return True


cdef inline int32_t digits_end(const uint8_t *text, int32_t size, int32_t at, bint hexadecimal) noexcept nogil:
    while at < size and (48 <= text[at] <= 57 or (hexadecimal and 97 <= (text[at] | 32) <= 102)):
        at += 1
    return at


# Where the exponent that starts at *at* ends; -1 if there is none whole. *mark*: the small letter that it begins with.
cdef inline int32_t exponent_end(const uint8_t *text, int32_t size, int32_t at, uint8_t mark) noexcept nogil:
    cdef int32_t end
    if at >= size or text[at] | 32 != mark:
        return -1
    at += 1
    if at < size and (text[at] == 43 or text[at] == 45):
        at += 1
    end = digits_end(text, size, at, False)
    return end if end > at else -1


# How many bytes of text[0:size], which has no sign, C reads as Java reads all of it; -1: Java throws.
cdef int32_t double_size(const uint8_t *text, int32_t size) noexcept nogil:
    cdef bint hexadecimal = size > 1 and text[0] == 48 and text[1] | 32 == 120
    cdef int32_t start = 2 if hexadecimal else 0
    cdef int32_t at = digits_end(text, size, start, hexadecimal)
    cdef int32_t digits = at - start
    cdef int32_t end
    if at < size and text[at] == 46:
        end = digits_end(text, size, at + 1, hexadecimal)
        digits += end - at - 1
        at = end
    if digits == 0:
        return -1
    end = exponent_end(text, size, at, 112 if hexadecimal else 101)
    if end < 0 and (hexadecimal or (at < size and text[at] | 32 == 101)):
        return -1
    at = max(at, end)
    if at < size - 1 or (at == size - 1 and text[at] | 32 != 100 and text[at] | 32 != 102):
        return -1
    return at


cdef bint parse_double(const uint8_t *text, int32_t size, double *out) noexcept nogil:
    cdef char kept[NUMBER_SIZE]
    cdef char *copy = kept
    cdef bint is_negative = False
    cdef int32_t used
    while size > 0 and text[0] <= 32:
        text += 1
        size -= 1
    while size > 0 and text[size - 1] <= 32:
        size -= 1
    if size > 0 and (text[0] == 43 or text[0] == 45):
        is_negative = text[0] == 45
        text += 1
        size -= 1
    if size == 3 and memcmp(text, b"NaN", 3) == 0:
        out[0] = NAN
        return True
    if size == 8 and memcmp(text, b"Infinity", 8) == 0:
        out[0] = -INFINITY if is_negative else INFINITY
        return True
    used = double_size(text, size)
    if used < 0:
        return False
    if used >= NUMBER_SIZE:
        copy = <char *>malloc(used + 1)
        if copy == NULL:
            return False
    memcpy(copy, text, used)
    copy[used] = 0
    out[0] = strtod_l(copy, NULL, c_locale)
    if is_negative:
        out[0] = -out[0]
    if copy != kept:
        free(copy)
    return True


cdef int compare_doubles(double left, double right) noexcept nogil:
    if left < right:
        return -1
    if left > right:
        return 1
    if isnan(left) or isnan(right):
        return isnan(left) - isnan(right)
    return (signbit(right) != 0) - (signbit(left) != 0)
