# CRC-32 as zlib computes it.
from libc.stdint cimport uint8_t, uint32_t

# CRC-32 (polynomial 0xEDB88320 reflected, initial and final complement) of data[0:size]; 0 for size 0.
# A record stores it as crc32(...) & 0x7FFFFFFF.
cdef uint32_t crc32(const uint8_t *data, size_t size) noexcept nogil
