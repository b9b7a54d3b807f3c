/* SHA-1 (FIPS 180-4) of whole blocks of 64 bytes, by the processor's own instructions where it has them. */
#ifndef MQCORE_SHA1_H
#define MQCORE_SHA1_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t mq_sha1_turn(uint32_t value, int bits) {
    return value << bits | value >> (32 - bits);
}

static inline uint32_t mq_sha1_mix(int round, uint32_t b, uint32_t c, uint32_t d) {
    if (round < 20) {
        return (d ^ (b & (c ^ d))) + 0x5A827999u;
    }
    if (round < 40) {
        return (b ^ c ^ d) + 0x6ED9EBA1u;
    }
    if (round < 60) {
        return ((b & c) | (d & (b | c))) + 0x8F1BBCDCu;
    }
    return (b ^ c ^ d) + 0xCA62C1D6u;
}

static void mq_sha1_blocks_plain(uint32_t state[5], const uint8_t *data, size_t count) {
    for (; count > 0; count--, data += 64) {
        uint32_t words[16];
        uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
        for (int index = 0; index < 16; index++) {
            uint32_t word;
            memcpy(&word, data + 4 * index, 4);
            words[index] = __builtin_bswap32(word);
        }
        for (int round = 0; round < 80; round++) {
            uint32_t word = words[round & 15];
            if (round >= 16) {
                word ^= words[(round + 13) & 15] ^ words[(round + 8) & 15] ^ words[(round + 2) & 15];
                word = words[round & 15] = mq_sha1_turn(word, 1);
            }
            uint32_t next = mq_sha1_turn(a, 5) + mq_sha1_mix(round, b, c, d) + e + word;
            e = d;
            d = c;
            c = mq_sha1_turn(b, 30);
            b = a;
            a = next;
        }
        state[0] += a;
        state[1] += b;
        state[2] += c;
        state[3] += d;
        state[4] += e;
    }
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

/* Four rounds: *kind* is which of the four functions. */
#define MQ_SHA1_ROUNDS(words, kind)                    \
    turned = _mm_sha1nexte_epu32(before, words);       \
    before = abcd;                                     \
    abcd = _mm_sha1rnds4_epu32(abcd, turned, kind)

/* The words of sixteen rounds later, from those of the rounds in between, in the place of *first*. */
#define MQ_SHA1_EXPAND(first, second, third, fourth) \
    first = _mm_sha1msg2_epu32(_mm_xor_si128(_mm_sha1msg1_epu32(first, second), third), fourth)

#define MQ_SHA1_WORDS(index) \
    _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(data + 16 * (index))), order)

__attribute__((target("sha,ssse3,sse4.1")))
static void mq_sha1_blocks_by_processor(uint32_t state[5], const uint8_t *data, size_t count) {
    const __m128i order = _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0x1B);
    __m128i e = _mm_set_epi32((int)state[4], 0, 0, 0);
    for (; count > 0; count--, data += 64) {
        const __m128i abcd_at_first = abcd, e_at_first = e;
        __m128i w0 = MQ_SHA1_WORDS(0), w1 = MQ_SHA1_WORDS(1), w2 = MQ_SHA1_WORDS(2), w3 = MQ_SHA1_WORDS(3);
        __m128i turned = _mm_add_epi32(e, w0), before = abcd;
        abcd = _mm_sha1rnds4_epu32(abcd, turned, 0);
        MQ_SHA1_ROUNDS(w1, 0);
        MQ_SHA1_ROUNDS(w2, 0);
        MQ_SHA1_ROUNDS(w3, 0);
        MQ_SHA1_EXPAND(w0, w1, w2, w3); MQ_SHA1_ROUNDS(w0, 0);
        MQ_SHA1_EXPAND(w1, w2, w3, w0); MQ_SHA1_ROUNDS(w1, 1);
        MQ_SHA1_EXPAND(w2, w3, w0, w1); MQ_SHA1_ROUNDS(w2, 1);
        MQ_SHA1_EXPAND(w3, w0, w1, w2); MQ_SHA1_ROUNDS(w3, 1);
        MQ_SHA1_EXPAND(w0, w1, w2, w3); MQ_SHA1_ROUNDS(w0, 1);
        MQ_SHA1_EXPAND(w1, w2, w3, w0); MQ_SHA1_ROUNDS(w1, 1);
        MQ_SHA1_EXPAND(w2, w3, w0, w1); MQ_SHA1_ROUNDS(w2, 2);
        MQ_SHA1_EXPAND(w3, w0, w1, w2); MQ_SHA1_ROUNDS(w3, 2);
        MQ_SHA1_EXPAND(w0, w1, w2, w3); MQ_SHA1_ROUNDS(w0, 2);
        MQ_SHA1_EXPAND(w1, w2, w3, w0); MQ_SHA1_ROUNDS(w1, 2);
        MQ_SHA1_EXPAND(w2, w3, w0, w1); MQ_SHA1_ROUNDS(w2, 2);
        MQ_SHA1_EXPAND(w3, w0, w1, w2); MQ_SHA1_ROUNDS(w3, 3);
        MQ_SHA1_EXPAND(w0, w1, w2, w3); MQ_SHA1_ROUNDS(w0, 3);
        MQ_SHA1_EXPAND(w1, w2, w3, w0); MQ_SHA1_ROUNDS(w1, 3);
        MQ_SHA1_EXPAND(w2, w3, w0, w1); MQ_SHA1_ROUNDS(w2, 3);
        MQ_SHA1_EXPAND(w3, w0, w1, w2); MQ_SHA1_ROUNDS(w3, 3);
        e = _mm_sha1nexte_epu32(before, e_at_first);
        abcd = _mm_add_epi32(abcd, abcd_at_first);
    }
    _mm_storeu_si128((__m128i *)state, _mm_shuffle_epi32(abcd, 0x1B));
    state[4] = (uint32_t)_mm_extract_epi32(e, 3);
}

static int mq_sha1_has_instructions(void) {
    unsigned int a = 0, b = 0, c = 0, d = 0;
    return __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1")
        && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1);
}
#else
static void mq_sha1_blocks_by_processor(uint32_t state[5], const uint8_t *data, size_t count) {
    mq_sha1_blocks_plain(state, data, count);
}

static int mq_sha1_has_instructions(void) {
    return 0;
}
#endif

#endif
