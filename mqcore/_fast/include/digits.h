/* Numbers and their texts, eight characters at a time. */
#ifndef MQCORE_DIGITS_H
#define MQCORE_DIGITS_H

#include <stdint.h>
#include <string.h>

/* The number that eight decimal digits are; 0 if they are none, and *value is not touched. */
static inline int eight_digits(const uint8_t *at, int64_t *value) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const uint64_t high = 0xF0F0F0F0F0F0F0F0u, zeros = 0x3030303030303030u;
    uint64_t text;
    memcpy(&text, at, 8);
    if ((text & high) != zeros || ((text + 0x0606060606060606u) & high) != zeros) return 0;
    /* Neighbours are joined, the first being ten times as much: to twos, to fours, to eight. */
    text = ((text & 0x0F0F0F0F0F0F0F0Fu) * 2561) >> 8;
    text = ((text & 0x00FF00FF00FF00FFu) * 6553601) >> 16;
    *value = (int64_t)(((text & 0x0000FFFF0000FFFFu) * 42949672960001u) >> 32);
#else
    int64_t sum = 0;
    int number;
    for (number = 0; number < 8; number++) {
        if (at[number] < '0' || at[number] > '9') return 0;
        sum = sum * 10 + (at[number] - '0');
    }
    *value = sum;
#endif
    return 1;
}

/* Eight upper-case hexadecimal digits of four bytes. */
static inline void put_hex_of_4(uint8_t *out, const uint8_t *data) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint32_t bytes;
    uint64_t text;
    memcpy(&bytes, data, 4);
    /* A byte into each pair of characters, its halves into one each. */
    text = ((uint64_t)bytes | (uint64_t)bytes << 16) & 0x0000FFFF0000FFFFu;
    text = (text | text << 8) & 0x00FF00FF00FF00FFu;
    text = (text >> 4 & 0x000F000F000F000Fu) | (text & 0x000F000F000F000Fu) << 8;
    /* From ten on they are letters, seven behind where the digits end. */
    text += 0x3030303030303030u + ((text + 0x0606060606060606u) >> 4 & 0x0101010101010101u) * 7;
    memcpy(out, &text, 8);
#else
    int at;
    for (at = 0; at < 8; at++) out[at] = (uint8_t)"0123456789ABCDEF"[data[at / 2] >> (at & 1 ? 0 : 4) & 15];
#endif
}

#endif
