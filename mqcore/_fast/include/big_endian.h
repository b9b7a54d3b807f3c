/* Big-endian signed integers at any address: memcpy and a byte swap, since a cast of an unaligned pointer is undefined. */
#ifndef MQCORE_BIG_ENDIAN_H
#define MQCORE_BIG_ENDIAN_H

#include <stdint.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "mqcore is built and tested on little-endian machines only"
#endif

static inline int16_t mq_load_i16(const uint8_t *at) {
    uint16_t raw;
    memcpy(&raw, at, sizeof raw);
    return (int16_t)__builtin_bswap16(raw);
}

static inline int32_t mq_load_i32(const uint8_t *at) {
    uint32_t raw;
    memcpy(&raw, at, sizeof raw);
    return (int32_t)__builtin_bswap32(raw);
}

static inline int64_t mq_load_i64(const uint8_t *at) {
    uint64_t raw;
    memcpy(&raw, at, sizeof raw);
    return (int64_t)__builtin_bswap64(raw);
}

static inline void mq_store_i16(uint8_t *at, int16_t value) {
    uint16_t raw = __builtin_bswap16((uint16_t)value);
    memcpy(at, &raw, sizeof raw);
}

static inline void mq_store_i32(uint8_t *at, int32_t value) {
    uint32_t raw = __builtin_bswap32((uint32_t)value);
    memcpy(at, &raw, sizeof raw);
}

static inline void mq_store_i64(uint8_t *at, int64_t value) {
    uint64_t raw = __builtin_bswap64((uint64_t)value);
    memcpy(at, &raw, sizeof raw);
}

/* What was stored before is in memory before what is stored after, also for whoever looks when the writer was killed. */
static inline void mq_store_fence(void) {
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

/* For fields of mapped files that another process reads while they change; at must be aligned to 4. */
static inline int32_t mq_observe_be_i32(const uint8_t *at) {
    return (int32_t)__builtin_bswap32(__atomic_load_n((const uint32_t *)(const void *)at, __ATOMIC_ACQUIRE));
}

static inline void mq_publish_be_i32(uint8_t *at, int32_t value) {
    __atomic_store_n((uint32_t *)(void *)at, __builtin_bswap32((uint32_t)value), __ATOMIC_RELEASE);
}

#endif
