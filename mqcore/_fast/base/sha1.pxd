# SHA-1 and HMAC-SHA1, for signatures of requests; not for anything else, as SHA-1 alone is broken.
from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef enum:
    SHA1_BLOCK_SIZE = 64
    SHA1_SIZE = 20

# What has been put so far.
cdef struct Sha1:
    uint32_t state[5]
    int64_t size                # bytes
    uint8_t block[64]           # of which size % 64 bytes are full

# A key, with its first block of either pass done.
cdef struct HmacKey:
    uint32_t inner[5]
    uint32_t outer[5]

cdef void hmac_key(HmacKey *key, const uint8_t *secret, int64_t size) noexcept nogil
cdef void hmac_begin(const HmacKey *key, Sha1 *sum) noexcept nogil
cdef void sha1_put(Sha1 *sum, const uint8_t *data, int64_t size) noexcept nogil
cdef void hmac_end(const HmacKey *key, Sha1 *sum, uint8_t *out) noexcept nogil
