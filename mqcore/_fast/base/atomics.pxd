from libc.stdint cimport int32_t, int64_t

cdef extern from "atomics.h" nogil:
    void publish(int64_t *at, int64_t value)
    int64_t observe(const int64_t *at)
    int64_t peek(const int64_t *at)
    void put_relaxed(int64_t *at, int64_t value)
    void add_relaxed(int64_t *at, int64_t value)
    void exchange_full(int64_t *at, int64_t value)
    int64_t add_full(int64_t *at, int64_t value)
    int64_t or_full(int64_t *at, int64_t bits)
    int64_t and_full(int64_t *at, int64_t bits)
    int64_t take_full(int64_t *at)
    void raise_full(int64_t *at, int64_t value)
    bint claim_full(int64_t *at, int64_t old, int64_t new)
    void full_fence()
    void publish_i32(int32_t *at, int32_t value)
    int32_t observe_i32(const int32_t *at)
    int64_t now_ms()
    int64_t monotonic_ns()
    int64_t coarse_ms()
    int lock_make(void *at)
    int lock_take(void *at, int64_t timeout_ms)
    void lock_release(void *at)
    void wake_fd(int fd)
    void drain_fd(int fd)
    enum:
        LOCK_TAKEN
        LOCK_INHERITED
        LOCK_TIMED_OUT
        LOCK_BROKEN
