# Big-endian signed integers at any address, as every file of the store and every frame has them.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t


cdef extern from "big_endian.h" nogil:
    int16_t load_i16 "mq_load_i16"(const uint8_t *at) noexcept
    int32_t load_i32 "mq_load_i32"(const uint8_t *at) noexcept
    int64_t load_i64 "mq_load_i64"(const uint8_t *at) noexcept
    void store_i16 "mq_store_i16"(uint8_t *at, int16_t value) noexcept
    void store_i32 "mq_store_i32"(uint8_t *at, int32_t value) noexcept
    void store_i64 "mq_store_i64"(uint8_t *at, int64_t value) noexcept
    # What was stored before is in memory before what is stored after.
    void store_fence "mq_store_fence"() noexcept
    # Acquire load and release store of an i32 that another process may read or write; *at* is a multiple of 4.
    int32_t observe_be_i32 "mq_observe_be_i32"(const uint8_t *at) noexcept
    void publish_be_i32 "mq_publish_be_i32"(uint8_t *at, int32_t value) noexcept
