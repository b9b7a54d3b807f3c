/* Loads and stores with stated order, and the robust locks, for memory that processes share. */
#ifndef MQCORE_ATOMICS_H
#define MQCORE_ATOMICS_H

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#if !defined(__linux__)
#error "mqcore's shared memory is written for Linux"
#endif

/* Bytes first, then publish() the position; readers observe() the position, then read bytes. */
static inline void publish(int64_t *at, int64_t value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
static inline int64_t observe(const int64_t *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
static inline int64_t peek(const int64_t *at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
static inline void put_relaxed(int64_t *at, int64_t value) { __atomic_store_n(at, value, __ATOMIC_RELAXED); }
static inline void add_relaxed(int64_t *at, int64_t value) { __atomic_fetch_add(at, value, __ATOMIC_RELAXED); }
/* For the two sides of a sleep: store, fence, load. */
static inline void exchange_full(int64_t *at, int64_t value) { __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST); }
static inline int64_t add_full(int64_t *at, int64_t value) { return __atomic_add_fetch(at, value, __ATOMIC_SEQ_CST); }
static inline int64_t or_full(int64_t *at, int64_t bits) { return __atomic_or_fetch(at, bits, __ATOMIC_SEQ_CST); }
static inline int64_t and_full(int64_t *at, int64_t bits) { return __atomic_and_fetch(at, bits, __ATOMIC_SEQ_CST); }
/* What was there; 0 is left. */
static inline int64_t take_full(int64_t *at) { return __atomic_exchange_n(at, 0, __ATOMIC_SEQ_CST); }
/* A bound that several may move: it never goes back. */
static inline void raise_full(int64_t *at, int64_t value) {
    int64_t old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (old < value && !__atomic_compare_exchange_n(at, &old, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
    }
}
/* Of all who want to move it from *from* to *to*, one alone is told that he did. */
static inline int claim_full(int64_t *at, int64_t from, int64_t to) {
    return __atomic_compare_exchange_n(at, &from, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
static inline void full_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void publish_i32(int32_t *at, int32_t value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
static inline int32_t observe_i32(const int32_t *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }

static inline int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
static inline int64_t monotonic_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Cheap: milliseconds to the nearest tick of the kernel (1 to 4 ms). For idle checks, not for records. */
static inline int64_t coarse_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

_Static_assert(sizeof(pthread_mutex_t) <= 64, "a lock has one cache line");

static inline int lock_make(void *at) {
    pthread_mutexattr_t attributes;
    int failed = pthread_mutexattr_init(&attributes);
    if (!failed) failed = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    if (!failed) failed = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    if (!failed) failed = pthread_mutex_init((pthread_mutex_t *)at, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return failed;
}

/* Waits are measured by a clock that nobody sets, where the C library has such waits. */
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 30)
#define LOCK_CLOCK CLOCK_MONOTONIC
#define lock_until(lock, until) pthread_mutex_clocklock(lock, LOCK_CLOCK, until)
#else
#define LOCK_CLOCK CLOCK_REALTIME
#define lock_until(lock, until) pthread_mutex_timedlock(lock, until)
#endif

enum { LOCK_TAKEN = 0, LOCK_INHERITED = 1, LOCK_TIMED_OUT = 2, LOCK_BROKEN = 3 };

/* LOCK_INHERITED: the owner died with the lock; the caller must repair what it guards. The lock is consistent again. */
static inline int lock_take(void *at, int64_t timeout_ms) {
    int result = pthread_mutex_trylock((pthread_mutex_t *)at);
    if (result == EBUSY) {
        struct timespec until;
        clock_gettime(LOCK_CLOCK, &until);
        until.tv_sec += timeout_ms / 1000;
        until.tv_nsec += (timeout_ms % 1000) * 1000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec += 1;
            until.tv_nsec -= 1000000000;
        }
        result = lock_until((pthread_mutex_t *)at, &until);
    }
    if (result == 0) return LOCK_TAKEN;
    if (result == EOWNERDEAD) {
        pthread_mutex_consistent((pthread_mutex_t *)at);
        return LOCK_INHERITED;
    }
    return result == ETIMEDOUT ? LOCK_TIMED_OUT : LOCK_BROKEN;
}
static inline void lock_release(void *at) { pthread_mutex_unlock((pthread_mutex_t *)at); }

/* An eventfd write that cannot block: the counter only has to be non-zero. */
static inline void wake_fd(int fd) {
    uint64_t one = 1;
    if (write(fd, &one, sizeof one) < 0) {
        /* EAGAIN: the counter is full, so the sleeper is being woken already. */
    }
}
static inline void drain_fd(int fd) {
    uint64_t count;
    if (read(fd, &count, sizeof count) < 0) {
        /* EAGAIN: nothing to drain. */
    }
}

#endif
