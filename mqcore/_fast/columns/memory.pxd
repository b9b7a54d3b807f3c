# Memory that grows: what the buffers of columns are collected in. Each function gives False when there is no more.
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy


cdef enum:
    FIRST_CAPACITY = 4096


cdef struct Memory:                         # grows; data is NULL while capacity is 0
    uint8_t *data
    Py_ssize_t size
    Py_ssize_t capacity
    Py_ssize_t hint                         # what the batch before needed, and a little more


cdef inline bint grow(Memory *memory, Py_ssize_t extra) noexcept nogil:
    cdef Py_ssize_t capacity = max(memory.capacity * 2, memory.size + extra, <Py_ssize_t>FIRST_CAPACITY)
    if memory.capacity == 0:                # growing step by step copies, and makes the kernel clear pages
        capacity = max(capacity, memory.hint)
    cdef uint8_t *data = <uint8_t *>realloc(memory.data, capacity)
    if data == NULL:
        return False
    memory.data = data
    memory.capacity = capacity
    return True


cdef inline bint reserve(Memory *memory, Py_ssize_t extra) noexcept nogil:
    return extra <= memory.capacity - memory.size or grow(memory, extra)


cdef inline bint put_bytes(Memory *memory, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    if not reserve(memory, size):
        return False
    if size > 0:                            # memcpy must not be given NULL, even for nothing
        memcpy(memory.data + memory.size, data, size)
    memory.size += size
    return True


cdef inline bint put_i32(Memory *memory, int32_t value) noexcept nogil:
    return put_bytes(memory, <const uint8_t *>&value, 4)


cdef inline bint put_i64(Memory *memory, int64_t value) noexcept nogil:
    return put_bytes(memory, <const uint8_t *>&value, 8)


cdef inline bint put_u8(Memory *memory, uint8_t value) noexcept nogil:
    return put_bytes(memory, &value, 1)


# The end of a value whose bytes are in *data* by now.
cdef inline bint put_end(Memory *offsets, const Memory *data) noexcept nogil:
    return put_i32(offsets, <int32_t>data.size)
