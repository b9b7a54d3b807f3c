/* Java's String.hashCode of bytes that Java would decode as UTF-8, without making the string.

   Malformed bytes count as U+FFFD, one per run as java.lang.String decodes it: an encoded surrogate is one run, a
   sequence that the text ends in is one run, and otherwise the longest start of a sequence that could have gone on. */
#ifndef MQCORE_JAVA_TEXT_H
#define MQCORE_JAVA_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MQ_REPLACEMENT 0xFFFDu

static inline int mq_continues(const uint8_t *text, size_t size, size_t at) {
    return at < size && (text[at] & 0xC0) == 0x80;
}

/* Whether the byte behind the lead byte may stand there: no overlong form, nothing above U+10FFFF. */
static inline int mq_second_fits(uint8_t lead, uint8_t second) {
    if ((second & 0xC0) != 0x80) return 0;
    if (lead == 0xE0) return second >= 0xA0;
    if (lead == 0xF0) return second >= 0x90;
    if (lead == 0xF4) return second <= 0x8F;
    return 1;
}

/* The code point at text[at] (at < size); *used gets the bytes that it, or the malformed run, takes. */
static inline uint32_t mq_next_code_point(const uint8_t *text, size_t size, size_t at, size_t *used) {
    uint8_t lead = text[at];
    size_t wanted = lead < 0x80 ? 1 : (lead >= 0xC2 && lead <= 0xDF) ? 2 : (lead >> 4) == 0xE ? 3
                    : (lead >= 0xF0 && lead <= 0xF4) ? 4 : 0;
    *used = 1;
    if (wanted == 1) return lead;
    if (wanted == 0 || at + 1 >= size || !mq_second_fits(lead, text[at + 1])) return MQ_REPLACEMENT;
    uint32_t point = ((uint32_t)lead & (0x7Fu >> wanted)) << 6 | (text[at + 1] & 0x3Fu);
    for (*used = 2; *used < wanted; (*used)++) {
        if (!mq_continues(text, size, at + *used)) return MQ_REPLACEMENT;
        point = point << 6 | (text[at + *used] & 0x3Fu);
    }
    return (point >= 0xD800 && point <= 0xDFFF) ? MQ_REPLACEMENT : point;
}

static inline int32_t mq_java_hash(int32_t start, const uint8_t *text, size_t size) {
    uint32_t hash = (uint32_t)start;
    size_t at = 0;
    while (at < size) {
        uint32_t four;
        /* Four ASCII characters at once: one step to wait for instead of four. */
        while (size - at >= 4 && (memcpy(&four, text + at, 4), !(four & 0x80808080u))) {
            hash = 923521u * hash + 29791u * text[at] + 961u * text[at + 1] + 31u * text[at + 2] + text[at + 3];
            at += 4;
        }
        if (at == size) break;
        size_t used = 1;
        uint32_t point = text[at];
        if (point >= 0x80) point = mq_next_code_point(text, size, at, &used);
        if (point >= 0x10000) {
            hash = 31u * hash + (0xD800u + ((point - 0x10000u) >> 10));
            point = 0xDC00u + ((point - 0x10000u) & 0x3FFu);
        }
        hash = 31u * hash + point;
        at += used;
    }
    return (int32_t)hash;
}

#endif
