"""SHA-1 and HMAC-SHA1; what they are compared with in tests is hashlib and hmac.

A key's first block of either pass is done once, so that a signature costs the blocks of what it is of, and one more. By
the processor's instructions a block takes 30 ns, by plain steps 140 ns (one core, x86-64).
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from mqcore._fast.base.big_endian cimport store_i32, store_i64

cdef extern from "sha1.h" nogil:
    void mq_sha1_blocks_plain(uint32_t *state, const uint8_t *data, size_t count) noexcept
    void mq_sha1_blocks_by_processor(uint32_t *state, const uint8_t *data, size_t count) noexcept
    int mq_sha1_has_instructions() noexcept

cdef enum:
    INNER_PAD = 0x36
    OUTER_PAD = 0x5C
    LENGTH_SIZE = 8             # at the end of the last block

cdef bint by_processor = mq_sha1_has_instructions()


cdef inline void blocks(uint32_t *state, const uint8_t *data, int64_t count) noexcept nogil:
    if by_processor:
        mq_sha1_blocks_by_processor(state, data, count)
    else:
        mq_sha1_blocks_plain(state, data, count)


cdef void begin(uint32_t *state) noexcept nogil:
    state[0] = <uint32_t>0x67452301
    state[1] = <uint32_t>0xEFCDAB89
    state[2] = <uint32_t>0x98BADCFE
    state[3] = <uint32_t>0x10325476
    state[4] = <uint32_t>0xC3D2E1F0


cdef void sha1_put(Sha1 *sum, const uint8_t *data, int64_t size) noexcept nogil:
    cdef int64_t full = sum.size % SHA1_BLOCK_SIZE
    cdef int64_t part
    sum.size += size
    if full > 0:
        part = min(size, SHA1_BLOCK_SIZE - full)
        memcpy(sum.block + full, data, part)
        if full + part < SHA1_BLOCK_SIZE:
            return
        blocks(sum.state, sum.block, 1)
        data += part
        size -= part
    if size >= SHA1_BLOCK_SIZE:
        blocks(sum.state, data, size // SHA1_BLOCK_SIZE)
        data += size - size % SHA1_BLOCK_SIZE
        size %= SHA1_BLOCK_SIZE
    memcpy(sum.block, data, size)


cdef void end(Sha1 *sum, uint8_t *out) noexcept nogil:
    cdef int64_t full = sum.size % SHA1_BLOCK_SIZE
    cdef int index
    sum.block[full] = 0x80
    full += 1
    if full > SHA1_BLOCK_SIZE - LENGTH_SIZE:
        memset(sum.block + full, 0, SHA1_BLOCK_SIZE - full)
        blocks(sum.state, sum.block, 1)
        full = 0
    memset(sum.block + full, 0, SHA1_BLOCK_SIZE - LENGTH_SIZE - full)
    store_i64(sum.block + SHA1_BLOCK_SIZE - LENGTH_SIZE, 8 * sum.size)
    blocks(sum.state, sum.block, 1)
    for index in range(5):
        store_i32(out + 4 * index, <int>sum.state[index])


cdef void padded_key(uint32_t *state, const uint8_t *block, uint8_t pad) noexcept nogil:
    cdef uint8_t padded[SHA1_BLOCK_SIZE]
    cdef int index
    for index in range(SHA1_BLOCK_SIZE):
        padded[index] = block[index] ^ pad
    begin(state)
    blocks(state, padded, 1)
    memset(padded, 0, SHA1_BLOCK_SIZE)


cdef void hmac_key(HmacKey *key, const uint8_t *secret, int64_t size) noexcept nogil:
    cdef uint8_t block[SHA1_BLOCK_SIZE]
    cdef Sha1 sum
    memset(block, 0, SHA1_BLOCK_SIZE)
    if size <= SHA1_BLOCK_SIZE:
        memcpy(block, secret, size)
    else:
        begin(sum.state)
        sum.size = 0
        sha1_put(&sum, secret, size)
        end(&sum, block)
    padded_key(key.inner, block, INNER_PAD)
    padded_key(key.outer, block, OUTER_PAD)
    memset(block, 0, SHA1_BLOCK_SIZE)


cdef void hmac_begin(const HmacKey *key, Sha1 *sum) noexcept nogil:
    memcpy(sum.state, key.inner, sizeof(sum.state))
    sum.size = SHA1_BLOCK_SIZE


cdef void hmac_end(const HmacKey *key, Sha1 *sum, uint8_t *out) noexcept nogil:
    end(sum, out)
    memcpy(sum.state, key.outer, sizeof(sum.state))
    sum.size = SHA1_BLOCK_SIZE
    sha1_put(sum, out, SHA1_SIZE)
    end(sum, out)


cdef const uint8_t *bytes_of(bytes data):
    return <const uint8_t *><const char *>data


def hmac(bytes secret not None, list parts not None):
    """Return the HMAC-SHA1, 20 bytes, of the *parts*, one behind the other."""
    cdef HmacKey key
    cdef Sha1 sum
    cdef uint8_t out[SHA1_SIZE]
    hmac_key(&key, bytes_of(secret), len(secret))
    hmac_begin(&key, &sum)
    for part in parts:
        sha1_put(&sum, bytes_of(part), len(part))
    hmac_end(&key, &sum, out)
    return out[:SHA1_SIZE]


def use_plain_steps(bint wanted):
    """Do without the processor's instructions, for tests; return what it is done by."""
    global by_processor
    by_processor = mq_sha1_has_instructions() and not wanted
    return "instructions" if by_processor else "plain steps"
