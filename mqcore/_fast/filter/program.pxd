# Compiled SQL92 expressions, run over the properties of records where they lie. mqcore/filter/program.py makes them.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.base.layout cimport FilterName, FilterStep


cdef enum FilterResult:
    FILTER_FALSE = 0
    FILTER_TRUE = 1             # the only one that lets a message through
    FILTER_UNKNOWN = 2
    FILTER_ERROR = 3            # Java would throw


cdef struct FilterProgram:      # all zero: there is none
    uint8_t *memory             # its own
    int64_t size
    const FilterStep *steps
    int32_t step_count
    const FilterName *names
    int32_t name_count
    const uint8_t *texts


# Copy and check the program in data[0:size]. False: it is not whole and sound, or memory is short.
cdef bint filter_load(FilterProgram *out, const uint8_t *data, int64_t size) noexcept nogil
cdef void filter_free(FilterProgram *program) noexcept nogil

# Run it over a properties text.
cdef FilterResult filter_run(const FilterProgram *program, const uint8_t *properties, int32_t size) noexcept nogil

# About what a run costs, in units of a few nanoseconds: for limits on the work of a scan.
cdef inline int64_t filter_cost(const FilterProgram *program, int32_t properties_size) noexcept nogil:
    return program.step_count + properties_size // 8 + 4
