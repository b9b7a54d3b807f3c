"""Buffers of the event loops."""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

from mqcore._fast.base.checks cimport check

cdef enum:
    BUFFER_SIZE_MIN = 1024
    BUFFER_SIZE_KEPT = 65536        # an empty buffer larger than this is freed


cdef uint8_t *buffer_room(Buffer *buffer, int64_t size) noexcept nogil:
    cdef int64_t used = buffer.end - buffer.start
    cdef int64_t capacity = buffer.capacity
    cdef uint8_t *data
    if buffer.capacity - buffer.end >= size:
        return buffer.data + buffer.end
    if buffer.start > 0 and buffer.capacity - used >= size and buffer.start >= used:
        memmove(buffer.data, buffer.data + buffer.start, used)
    else:
        if capacity < BUFFER_SIZE_MIN:
            capacity = BUFFER_SIZE_MIN
        while capacity - used < size:
            capacity *= 2
        if buffer.start > 0:
            memmove(buffer.data, buffer.data + buffer.start, used)
        data = <uint8_t *>realloc(buffer.data, capacity)
        if data == NULL:
            # The old block is still good; positions must say where its bytes are now.
            buffer.start = 0
            buffer.end = used
            return NULL
        buffer.data = data
        buffer.capacity = capacity
    buffer.start = 0
    buffer.end = used
    return buffer.data + used


cdef bint buffer_put(Buffer *buffer, const void *data, int64_t size) noexcept nogil:
    cdef uint8_t *at = buffer_room(buffer, size)
    if at == NULL:
        return False
    memcpy(at, data, size)
    buffer.end += size
    return True


cdef void buffer_take(Buffer *buffer, int64_t size) noexcept nogil:
    check(0 <= size <= buffer.end - buffer.start, "what is taken from a buffer is there")
    buffer.start += size
    if buffer.start == buffer.end:
        buffer.start = 0
        buffer.end = 0
        if buffer.capacity > BUFFER_SIZE_KEPT:
            buffer_free(buffer)


cdef void buffer_free(Buffer *buffer) noexcept nogil:
    free(buffer.data)
    buffer.data = NULL
    buffer.start = 0
    buffer.end = 0
    buffer.capacity = 0
