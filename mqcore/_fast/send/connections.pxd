# Client connections of a send worker: found by id, read, written, closed.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.send.state cimport Connection, SendState

cdef int64_t connection_id(const SendState *state, const Connection *connection) noexcept nogil
# NULL when that connection is gone.
cdef Connection *find_connection(SendState *state, int64_t identity) noexcept nogil
cdef Connection *open_connection(SendState *state, int fd, bint is_vip) noexcept nogil
# Close at the end of the turn, when nobody holds a pointer to it any more.
cdef void doom(SendState *state, Connection *connection) noexcept nogil
cdef void close_connection(SendState *state, Connection *connection) noexcept nogil
cdef void drop_partial(SendState *state, Connection *connection) noexcept nogil
# After partial_bytes has grown for *connection*: close who holds most until the budget is kept. False: it is the one.
cdef bint make_room(SendState *state, const Connection *connection) noexcept nogil
# Its out buffer got bytes: write it at the end of the turn.
cdef void mark_dirty(SendState *state, Connection *connection) noexcept nogil
cdef void write_dirty(SendState *state) noexcept nogil
cdef void write_connection(SendState *state, Connection *connection) noexcept nogil
# Bytes that its peer has not been given yet.
cdef int64_t unsent_size(const Connection *connection) noexcept nogil
cdef void arm(SendState *state, Connection *connection) noexcept nogil

# Hand a frame, whose quotas *is_charged* with, to the broker process; False when that is too far behind.
cdef bint link_request(SendState *state, Connection *connection, const uint8_t *payload, int64_t size,
                       bint is_charged) noexcept nogil
cdef void write_link(SendState *state) noexcept nogil
