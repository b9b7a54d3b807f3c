# Hashes for tables in memory: quick, spread over all bits, the same in every process of a broker; never stored.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy


cdef inline uint64_t hash_mix(uint64_t value) noexcept nogil:
    value ^= value >> 33
    value *= <uint64_t>0xff51afd7ed558ccd
    value ^= value >> 33
    value *= <uint64_t>0xc4ceb9fe1a85ec53
    return value ^ (value >> 33)


cdef inline uint64_t hash_word(uint64_t value, uint64_t word) noexcept nogil:
    value = (value ^ word) * <uint64_t>0x9e3779b97f4a7c15
    return value ^ (value >> 32)


# Of *size* bytes, with what *seed* stands for before them. Eight at a time: names have ten to thirty.
cdef inline uint64_t hash_bytes(const uint8_t *data, int64_t size, uint64_t seed=0) noexcept nogil:
    cdef uint64_t value = seed ^ <uint64_t>size
    cdef uint64_t word
    cdef int64_t at = 0
    while size - at >= 8:
        memcpy(&word, data + at, 8)
        value = hash_word(value, word)
        at += 8
    if at < size:
        if size >= 8:
            # The last eight; some of them are counted twice.
            memcpy(&word, data + size - 8, 8)
        else:
            word = 0
            while at < size:
                word = word << 8 | data[at]
                at += 1
        value = hash_word(value, word)
    return hash_mix(value)


cdef inline uint64_t hash_pair(int32_t first, int32_t second) noexcept nogil:
    return hash_mix((<uint64_t>first << 32) ^ <uint64_t><unsigned int>second)
