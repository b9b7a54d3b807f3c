# SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE in the common case: checks, append, answer.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.log.record cimport NewRecord
from mqcore._fast.send.state cimport Connection, SendState, Waiting
from mqcore._fast.wire.header cimport CommandView

cdef enum SendOutcome:
    SEND_DONE                   # answered, or waiting for its flush
    SEND_UNUSUAL                # nothing was done: the broker process decides

cdef SendOutcome handle_send(SendState *state, Connection *connection, const CommandView *command) noexcept nogil

# Where a record comes from, and where it is stored. Its addresses are those of the connection and of the board.
cdef inline void set_hosts(SendState *state, const Connection *connection, NewRecord *fields) noexcept nogil:
    fields.born_host.address = connection.address
    fields.born_host.address_size = connection.address_size
    fields.born_host.port = connection.port
    fields.store_host.address = state.shared.board.store_host
    fields.store_host.address_size = state.shared.board.store_host_size
    fields.store_host.port = state.shared.board.store_host_port


# One of so many queues of a topic, whichever.
cdef int32_t any_queue(SendState *state, int32_t count) noexcept nogil

# Answer what the flushed watermark has passed, and what has waited too long.
cdef void release_waiting(SendState *state) noexcept nogil
# Answer for a message that is stored: at once, or, if it *waits*, when it is on disk and on a slave as far as the
# settings ask for it. sent.ids is given away.
cdef void answer_stored(SendState *state, Connection *connection, Waiting *sent, bint waits) noexcept nogil
# Whether the answer can be given now.
cdef bint can_answer(const SendState *state, const Waiting *sent) noexcept nogil
# A short reply without header object: code and remark, which may be NULL.
cdef void answer_short(SendState *state, Connection *connection, int32_t serialize_type, int32_t opaque, int32_t code,
                       const char *remark) noexcept nogil
# The same for a refusal.
cdef void answer_plain(SendState *state, Connection *connection, int32_t serialize_type, int32_t opaque, int32_t code,
                       const char *remark) noexcept nogil
