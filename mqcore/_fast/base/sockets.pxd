# Sockets and epoll as the kernel has them, and who is at the other end of one.
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy


cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        uint64_t u64
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int operation, int fd, epoll_event *event)
    int epoll_wait(int epoll, epoll_event *events, int count, int timeout_ms)
    uint32_t EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP, EPOLLRDHUP, EPOLLEXCLUSIVE, EPOLLET
    int EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL, EPOLL_CLOEXEC

cdef extern from "<sys/socket.h>" nogil:
    struct sockaddr:
        pass
    struct sockaddr_storage:
        unsigned short ss_family
    int accept4(int fd, sockaddr *address, unsigned int *size, int flags)
    int getpeername(int fd, sockaddr *address, unsigned int *size)
    int setsockopt(int fd, int level, int name, const void *value, unsigned int size)
    int AF_INET, AF_INET6, SOCK_NONBLOCK, SOCK_CLOEXEC

cdef extern from "<netinet/in.h>" nogil:
    struct in_addr:
        uint32_t s_addr
    struct sockaddr_in:
        unsigned short sin_port
        in_addr sin_addr
    struct in6_addr:
        uint8_t s6_addr[16]
    struct sockaddr_in6:
        unsigned short sin6_port
        in6_addr sin6_addr
    unsigned short ntohs(unsigned short value)
    int IPPROTO_TCP

cdef extern from "<netinet/tcp.h>" nogil:
    int TCP_NODELAY


# The host and the port of a peer; returns the host's size. An IPv4 peer of a dual-stack socket is told as IPv4, as Java
# does: it decides a record's host size. What is neither has 0 for both, and size 4.
cdef inline int32_t peer_address(const sockaddr_storage *storage, uint8_t *host, int32_t *port) noexcept nogil:
    cdef const sockaddr_in *four = <const sockaddr_in *>storage
    cdef const sockaddr_in6 *six = <const sockaddr_in6 *>storage
    port[0] = 0
    if storage.ss_family == AF_INET:
        memcpy(host, &four.sin_addr, 4)
        port[0] = ntohs(four.sin_port)
        return 4
    if storage.ss_family != AF_INET6:
        memcpy(host, b"\0\0\0\0", 4)
        return 4
    port[0] = ntohs(six.sin6_port)
    if memcmp(six.sin6_addr.s6_addr, b"\0\0\0\0\0\0\0\0\0\0\xff\xff", 12) == 0:
        memcpy(host, six.sin6_addr.s6_addr + 12, 4)
        return 4
    memcpy(host, six.sin6_addr.s6_addr, 16)
    return 16
