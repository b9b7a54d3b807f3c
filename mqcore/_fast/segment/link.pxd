# A worker's end of the socket pair to the broker process. What travels is LinkHead and a payload, both ways; the other
# end is broker/links.py. One thread has it. Nothing here waits.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.base.buffers cimport Buffer, buffer_size
from mqcore._fast.base.layout cimport LinkHead

cdef struct Link:
    int fd                      # not owned
    bint is_closed              # the broker process is gone: the worker ends, too
    Buffer came                 # read, and not yet taken
    Buffer out

# Bytes that wait until the other end reads; how many are too many is for the caller to say, before it puts.
cdef inline int64_t link_unsent(const Link *link) noexcept nogil:
    return buffer_size(&link.out)

# Queue a message, whose payload may be in two parts; False when memory is short, and then nothing of it is queued.
cdef bint link_put(Link *link, int32_t kind, int64_t identity, const void *first, int64_t first_size,
                   const void *second=*, int64_t second_size=*) noexcept nogil
# Write what the socket takes.
cdef void link_write(Link *link) noexcept nogil
# Read once, at most *size* bytes.
cdef void link_read(Link *link, int64_t size) noexcept nogil
# The payload of the oldest message that has come whole, and its head; NULL if there is none. It lies there until it is
# taken, and until the next link_read at most.
cdef const uint8_t *link_next(const Link *link, LinkHead *head) noexcept nogil
cdef void link_take(Link *link, const LinkHead *head) noexcept nogil
cdef void link_free(Link *link) noexcept nogil
