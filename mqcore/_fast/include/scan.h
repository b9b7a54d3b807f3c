/* Where runs of plain JSON string bytes end, many bytes at a time where the processor has SSE2, else one by one. */
#ifndef MQCORE_SCAN_H
#define MQCORE_SCAN_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* A place in a text, and what is known of the bytes around it. A header has a quote every few bytes: looking for each from
   where the last one was, every search would wait for the one before it. The quotes and backslashes of a block are looked
   for at once instead, and where they are is then a matter of shifting bits. */
typedef struct {
    const uint8_t *at;
    const uint8_t *end;
    const uint8_t *start;   /* of the text */
    const uint8_t *block;   /* whose marks are known; NULL: none yet */
    uint64_t marks;         /* bit i: block[i] is a quote or a backslash */
} Cursor;

#define SCAN_BLOCK 64

static inline void cursor_open(Cursor *c, const uint8_t *text, int32_t size) {
    c->at = c->start = text;
    c->end = text + size;
    c->block = NULL;
    c->marks = 0;
}

#if defined(__SSE2__)
static inline uint64_t marks_of(const uint8_t *block) {
    const __m128i quote = _mm_set1_epi8('"');
    const __m128i escape = _mm_set1_epi8('\\');
    uint64_t marks = 0;
    int part;
    for (part = 0; part < SCAN_BLOCK / 16; part++) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(block + 16 * part));
        const __m128i hits = _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, escape));
        marks |= (uint64_t)(uint32_t)_mm_movemask_epi8(hits) << (16 * part);
    }
    return marks;
}

/* Know the marks of a block that *at* lies in: the one from there on, or the last one of the text. */
static __attribute__((noinline)) void look_at_block(Cursor *c, const uint8_t *at) {
    uint8_t copy[SCAN_BLOCK];
    if (c->end - at >= SCAN_BLOCK) {
        c->block = at;
    } else if (c->end - c->start >= SCAN_BLOCK) {
        c->block = c->end - SCAN_BLOCK;
    } else {
        memset(copy, 0, SCAN_BLOCK);
        memcpy(copy, c->start, (size_t)(c->end - c->start));
        c->block = c->start;
        c->marks = marks_of(copy);
        return;
    }
    c->marks = marks_of(c->block);
}
#endif

/* The first quote or backslash from c->at on, or c->end. Never reads outside the text. */
static inline const uint8_t *next_mark(Cursor *c) {
    const uint8_t *at = c->at;
#if defined(__SSE2__)
    uint64_t marks;
    while (at < c->end) {
        /* Behind the block, before it (who could not read on has gone back), or there is none yet. */
        if ((uintptr_t)at - (uintptr_t)c->block >= SCAN_BLOCK) look_at_block(c, at);
        marks = c->marks >> (at - c->block);
        if (marks) return at + __builtin_ctzll(marks);
        at = c->block + SCAN_BLOCK;
    }
    return c->end;
#else
    while (at < c->end && *at != '"' && *at != '\\') at++;
    return at < c->end ? at : c->end;
#endif
}

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
