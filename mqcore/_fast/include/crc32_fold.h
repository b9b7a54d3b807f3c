/* CRC-32 as in zlib: eight table steps per word anywhere, carry-less multiplication where the processor has it.

   The folding follows V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel,
   2009), in the bit-reflected form. A constant for a distance of D bits is reflect32(x^(D+32) mod P) << 1 (low half) and
   reflect32(x^(D-32) mod P) << 1 (high half); P is x^32 + the polynomial 0x04C11DB7. */
#ifndef MQCORE_CRC32_FOLD_H
#define MQCORE_CRC32_FOLD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MQ_CRC32_POLYNOMIAL 0xEDB88320u

static uint32_t mq_crc32_table[8][256];

/* Once, before the first checksum: when the module is imported. */
static void mq_crc32_make_table(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (MQ_CRC32_POLYNOMIAL & (0u - (crc & 1u)));
        }
        mq_crc32_table[0][byte] = crc;
    }
    for (int step = 1; step < 8; step++) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t before = mq_crc32_table[step - 1][byte];
            mq_crc32_table[step][byte] = (before >> 8) ^ mq_crc32_table[0][before & 0xFF];
        }
    }
}

/* The register goes in and comes out without the complements. */
static uint32_t mq_crc32_update_plain(uint32_t crc, const uint8_t *data, size_t size) {
    while (size >= 8) {
        uint32_t low, high;
        memcpy(&low, data, 4);
        memcpy(&high, data + 4, 4);
        low ^= crc;
        crc = mq_crc32_table[7][low & 0xFF] ^ mq_crc32_table[6][(low >> 8) & 0xFF]
            ^ mq_crc32_table[5][(low >> 16) & 0xFF] ^ mq_crc32_table[4][low >> 24]
            ^ mq_crc32_table[3][high & 0xFF] ^ mq_crc32_table[2][(high >> 8) & 0xFF]
            ^ mq_crc32_table[1][(high >> 16) & 0xFF] ^ mq_crc32_table[0][high >> 24];
        data += 8;
        size -= 8;
    }
    while (size > 0) {
        crc = (crc >> 8) ^ mq_crc32_table[0][(crc ^ *data) & 0xFF];
        data++;
        size--;
    }
    return crc;
}

static uint32_t mq_crc32_plain(const uint8_t *data, size_t size) {
    return ~mq_crc32_update_plain(0xFFFFFFFFu, data, size);
}

#if defined(__x86_64__)
#include <immintrin.h>

#define MQ_CRC32_TARGET __attribute__((target("pclmul,sse4.1")))

MQ_CRC32_TARGET static inline __m128i mq_crc32_load(const uint8_t *at) {
    return _mm_loadu_si128((const __m128i *)(const void *)at);
}

/* Carry a block over the distance of *keys* and add what lies there. */
MQ_CRC32_TARGET static inline __m128i mq_crc32_fold(__m128i block, __m128i keys, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(block, keys, 0x00);
    __m128i high = _mm_clmulepi64_si128(block, keys, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* size >= 64 and a multiple of 16. */
MQ_CRC32_TARGET static uint32_t mq_crc32_update_fold(uint32_t crc, const uint8_t *data, size_t size) {
    const __m128i over_512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    const __m128i over_128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    const __m128i over_64 = _mm_set_epi64x(0, 0x163cd6124);
    const __m128i barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641);
    const __m128i low_words = _mm_set_epi32(0, -1, 0, -1);

    __m128i a = _mm_xor_si128(mq_crc32_load(data), _mm_cvtsi32_si128((int)crc));
    __m128i b = mq_crc32_load(data + 16);
    __m128i c = mq_crc32_load(data + 32);
    __m128i d = mq_crc32_load(data + 48);
    data += 64;
    size -= 64;
    while (size >= 64) {
        a = mq_crc32_fold(a, over_512, mq_crc32_load(data));
        b = mq_crc32_fold(b, over_512, mq_crc32_load(data + 16));
        c = mq_crc32_fold(c, over_512, mq_crc32_load(data + 32));
        d = mq_crc32_fold(d, over_512, mq_crc32_load(data + 48));
        data += 64;
        size -= 64;
    }
    a = mq_crc32_fold(a, over_128, b);
    a = mq_crc32_fold(a, over_128, c);
    a = mq_crc32_fold(a, over_128, d);
    while (size >= 16) {
        a = mq_crc32_fold(a, over_128, mq_crc32_load(data));
        data += 16;
        size -= 16;
    }
    /* 128 bits to 96, to 64, and by Barrett's reduction to 32 */
    a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, over_128, 0x10));
    a = _mm_xor_si128(_mm_srli_si128(a, 4), _mm_clmulepi64_si128(_mm_and_si128(a, low_words), over_64, 0x00));
    b = _mm_clmulepi64_si128(_mm_and_si128(a, low_words), barrett, 0x10);
    b = _mm_clmulepi64_si128(_mm_and_si128(b, low_words), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(a, b), 1);
}

static uint32_t mq_crc32_folding(const uint8_t *data, size_t size) {
    uint32_t crc = 0xFFFFFFFFu;
    if (size >= 64) {
        size_t blocks = size & ~(size_t)15;
        crc = mq_crc32_update_fold(crc, data, blocks);
        data += blocks;
        size -= blocks;
    }
    return ~mq_crc32_update_plain(crc, data, size);
}

static int mq_crc32_can_fold(void) {
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}
#else
static uint32_t mq_crc32_folding(const uint8_t *data, size_t size) {
    return mq_crc32_plain(data, size);
}

static int mq_crc32_can_fold(void) {
    return 0;
}
#endif

#endif
