/* The ends of runs of plain JSON string bytes: sixteen at a time where the processor has SSE2, else one by one. */
#ifndef MQCORE_SCAN_H
#define MQCORE_SCAN_H

#include <stdint.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* The first quote or backslash in [at, end), or end. Never reads past end. */
static inline const uint8_t *find_quote_or_escape(const uint8_t *at, const uint8_t *end) {
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"');
    const __m128i escape = _mm_set1_epi8('\\');
    while (end - at >= 16) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        const int hits = _mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, escape)));
        if (hits) return at + __builtin_ctz((unsigned)hits);
        at += 16;
    }
#endif
    while (at < end && *at != '"' && *at != '\\') at++;
    return at;
}

/* The first byte in [at, end) that a JSON writer may have to escape: a quote, a backslash, a control character, or one
   that is not ASCII; or end. Never reads past end. */
static inline const uint8_t *find_not_plain(const uint8_t *at, const uint8_t *end) {
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"');
    const __m128i escape = _mm_set1_epi8('\\');
    const __m128i delete_ = _mm_set1_epi8(0x7F);
    const __m128i space = _mm_set1_epi8(' ');
    while (end - at >= 16) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        /* Compared as signed, what is not ASCII is below the space too. */
        const __m128i marks = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, escape)),
                                           _mm_or_si128(_mm_cmpeq_epi8(bytes, delete_), _mm_cmplt_epi8(bytes, space)));
        const int hits = _mm_movemask_epi8(marks);
        if (hits) return at + __builtin_ctz((unsigned)hits);
        at += 16;
    }
#endif
    while (at < end && *at != '"' && *at != '\\' && *at >= 0x20 && *at < 0x7F) at++;
    return at;
}

#endif
