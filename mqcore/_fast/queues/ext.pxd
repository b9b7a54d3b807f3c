# Units of a consume queue ext file; a consume queue unit holds the address of one in the place of its tags code.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t


cdef struct ExtUnit:
    int32_t size                        # the whole unit, bytes
    int64_t tags_code
    int64_t store_timestamp
    const uint8_t *bitmap               # borrowed
    int32_t bitmap_size


# What turns addresses into tags codes for a scan; False: the ext unit cannot be read.
ctypedef bint (*ExtLookUp)(void *source, int64_t address, int64_t *tags_code) noexcept nogil


cdef struct ExtSource:
    ExtLookUp look_up
    void *source


# A tags code at or below EXT_ADDRESS_MAX is the address of an ext unit: no hash of 32 bits is.
cdef inline bint is_ext_address(int64_t tags_code) noexcept nogil:
    return tags_code <= -(<int64_t>1 << 31) - 1


cdef inline int64_t ext_address(int64_t offset) noexcept nogil:
    return <int64_t>(<uint64_t>offset ^ (<uint64_t>1 << 63))


cdef inline int64_t ext_offset(int64_t address) noexcept nogil:
    return <int64_t>(<uint64_t>address ^ (<uint64_t>1 << 63))


# Write a unit; a bitmap of 0 bytes is none.
cdef void write_ext_unit(uint8_t *at, int64_t tags_code, int64_t store_timestamp, const uint8_t *bitmap,
                         int32_t bitmap_size) noexcept nogil

# The unit at the start of at[0:length]; False, and *out is not set, if no whole one is there.
cdef bint read_ext_unit(const uint8_t *at, int64_t length, ExtUnit *out) noexcept nogil

# Where the units that follow one another from base[0] on end, bytes; only their sizes are looked at.
cdef int64_t ext_units_end(const uint8_t *base, int64_t length) noexcept nogil
