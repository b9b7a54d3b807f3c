# Texts read as Java reads numbers. The twin is mqcore/filter/values.py.
from libc.stdint cimport int32_t, int64_t, uint8_t

# Integer.parseInt with limit 2**31 - 1, Long.parseLong with limit 2**63 - 1. False: Java throws.
cdef bint parse_integer(const uint8_t *text, int32_t size, int64_t limit, int64_t *out) noexcept nogil

# Double.valueOf. False: Java throws.
cdef bint parse_double(const uint8_t *text, int32_t size, double *out) noexcept nogil

# Double.compare: NaN is equal to itself and above all, -0.0 is below 0.0.
cdef int compare_doubles(double left, double right) noexcept nogil
