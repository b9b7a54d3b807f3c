# The connections that are not plain, or not known to be: chosen by their first byte, read, written, given up.
from libc.stdint cimport int32_t, int64_t

from mqcore._fast.send.state cimport Connection, SendState

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len

cdef enum TransportChoice:
    CHOICE_MADE, CHOICE_LATER, CHOICE_CLOSED

# Look at the first byte of a connection in TRANSPORT_OPEN. CHOICE_CLOSED: it may not come so, or is gone.
cdef TransportChoice transport_choose(SendState *state, Connection *connection) noexcept nogil
# What has come is put into the read buffer, as read(2) says it.
cdef ssize_t transport_read(SendState *state, Connection *connection) noexcept nogil
# Write the answers of a connection with TLS as far as its socket takes them. False: it is broken.
cdef bint transport_write(SendState *state, Connection *connection) noexcept nogil
# Write *parts* of which nothing waits before them; how many of their bytes need no longer be kept, or -1.
cdef int64_t transport_write_parts(
    SendState *state, Connection *connection, const iovec *parts, int32_t count) noexcept nogil
# Whether its handshake should be over by now; it is counted then.
cdef bint transport_is_late(SendState *state, const Connection *connection) noexcept nogil
cdef int64_t transport_unsent(const Connection *connection) noexcept nogil
cdef int64_t transport_memory(const Connection *connection) noexcept nogil
cdef void transport_close(SendState *state, Connection *connection) noexcept nogil
