# A growing run of bytes with a read end and a write end, for sockets.
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef struct Buffer:
    uint8_t *data
    int64_t start               # the first byte not yet taken
    int64_t end                 # behind the last byte put
    int64_t capacity

cdef inline int64_t buffer_size(const Buffer *buffer) noexcept nogil:
    return buffer.end - buffer.start

# Room for *size* bytes at the write end, to be followed by buffer.end += size; NULL when memory is short.
cdef uint8_t *buffer_room(Buffer *buffer, int64_t size) noexcept nogil
cdef bint buffer_put(Buffer *buffer, const void *data, int64_t size) noexcept nogil
# Take *size* bytes away at the read end; an emptied large buffer gives its memory back.
cdef void buffer_take(Buffer *buffer, int64_t size) noexcept nogil
cdef void buffer_free(Buffer *buffer) noexcept nogil
