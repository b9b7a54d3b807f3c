"""A worker's end of the link to the broker process."""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from mqcore._fast.base.buffers cimport buffer_free, buffer_room, buffer_take
from mqcore._fast.base.checks cimport check

cdef extern from "<sys/socket.h>" nogil:
    ssize_t send(int fd, const void *data, size_t size, int flags)
    int MSG_NOSIGNAL

cdef extern from "<unistd.h>" nogil:
    ssize_t read(int fd, void *out, size_t size)


cdef bint link_put(Link *link, int32_t kind, int64_t identity, const void *first, int64_t first_size,
                   const void *second=NULL, int64_t second_size=0) noexcept nogil:
    cdef LinkHead head
    cdef uint8_t *at = buffer_room(&link.out, <int64_t>sizeof(LinkHead) + first_size + second_size)
    if at == NULL:
        return False
    memset(&head, 0, sizeof(LinkHead))
    head.size = <int32_t>(first_size + second_size)
    head.kind = kind
    head.connection_id = identity
    memcpy(at, &head, sizeof(LinkHead))
    if first_size > 0:
        memcpy(at + sizeof(LinkHead), first, first_size)
    if second_size > 0:
        memcpy(at + sizeof(LinkHead) + first_size, second, second_size)
    link.out.end += <int64_t>sizeof(LinkHead) + first_size + second_size
    return True


cdef void link_write(Link *link) noexcept nogil:
    cdef ssize_t sent
    while not link.is_closed and link_unsent(link) > 0:
        sent = send(link.fd, link.out.data + link.out.start, link_unsent(link), MSG_NOSIGNAL)
        if sent < 0 and errno == EINTR:
            continue
        if sent <= 0:
            link.is_closed = sent < 0 and errno != EAGAIN
            return
        buffer_take(&link.out, sent)


cdef void link_read(Link *link, int64_t size) noexcept nogil:
    cdef uint8_t *at = buffer_room(&link.came, size)
    cdef ssize_t got
    if at == NULL:
        link.is_closed = True
        return
    got = read(link.fd, at, size)
    if got > 0:
        link.came.end += got
    else:
        link.is_closed = got == 0 or (errno != EAGAIN and errno != EINTR)


cdef const uint8_t *link_next(const Link *link, LinkHead *head) noexcept nogil:
    if buffer_size(&link.came) < <int64_t>sizeof(LinkHead):
        return NULL
    memcpy(head, link.came.data + link.came.start, sizeof(LinkHead))
    check(head.size >= 0, "the broker process says how long its message is")
    if buffer_size(&link.came) - <int64_t>sizeof(LinkHead) < head.size:
        return NULL
    return link.came.data + link.came.start + sizeof(LinkHead)


cdef void link_take(Link *link, const LinkHead *head) noexcept nogil:
    buffer_take(&link.came, <int64_t>sizeof(LinkHead) + head.size)


cdef void link_free(Link *link) noexcept nogil:
    buffer_free(&link.came)
    buffer_free(&link.out)
