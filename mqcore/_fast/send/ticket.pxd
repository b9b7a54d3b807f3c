# Tickets: a send worker's slots for the pulls that are with pull workers.
#
# A ticket belongs to a connection and ends with it: the pull worker is told to let go of the pull, and the ticket is
# free once that is in its ring. There are none before each pull worker is told to let go of what a predecessor had
# asked for. A connection may have as many as are left: one alone half of them, and the more ask, the less each gets; so
# no client takes the last one, and who has few is always served.
from libc.stdint cimport int32_t, int64_t

from mqcore._fast.base.checks cimport check
from mqcore._fast.base.layout cimport CONNECTION_SLOT_BITS, TICKETS_MAX
from mqcore._fast.send.state cimport Connection, SendState, Ticket

cdef enum:
    TICKET_INDEX_MASK = TICKETS_MAX - 1
    SERIAL_SHIFT = 16           # a ticket's number has its serial above: an answer to a former use is told apart
    SERIAL_MASK = 0x7FFF

cdef void tickets_open(SendState *state) noexcept nogil

# Index of a ticket for *connection*, of which *identity* is the id; -1 if it has its share.
cdef inline int32_t ticket_take(SendState *state, Connection *connection, int64_t identity) noexcept nogil:
    cdef int32_t index = state.tickets.free
    cdef Ticket *ticket
    if connection.ticket_count >= state.tickets.left:
        return -1
    check(0 <= index < TICKETS_MAX, "a ticket lies in the table")
    ticket = &state.tickets.slots[index]
    check(ticket.connection_id == 0, "a ticket that is handed out has no holder")
    state.tickets.free = ticket.next
    state.tickets.left -= 1
    ticket.connection_id = identity
    ticket.serial = (ticket.serial + 1) & SERIAL_MASK
    ticket.previous = -1
    ticket.next = connection.first_ticket
    if ticket.next >= 0:
        state.tickets.slots[ticket.next].previous = index
    connection.first_ticket = index
    connection.ticket_count += 1
    return index

cdef inline void ticket_leave(SendState *state, int32_t index) noexcept nogil:
    # It is nobody's. Its connection is there: it would have taken its tickets with it.
    cdef Ticket *ticket = &state.tickets.slots[index]
    cdef Connection *connection = state.clients.slots[ticket.connection_id & ((1 << CONNECTION_SLOT_BITS) - 1)]
    check(ticket.connection_id != 0, "a ticket is given back once")
    check(connection != NULL and connection.ticket_count > 0, "a ticket ends before its connection")
    if ticket.next >= 0:
        state.tickets.slots[ticket.next].previous = ticket.previous
    if ticket.previous >= 0:
        state.tickets.slots[ticket.previous].next = ticket.next
    else:
        connection.first_ticket = ticket.next
    connection.ticket_count -= 1
    ticket.connection_id = 0

# The pull worker has answered, or has never heard of it.
cdef inline void ticket_free(SendState *state, int32_t index) noexcept nogil:
    ticket_leave(state, index)
    state.tickets.slots[index].next = state.tickets.free
    state.tickets.free = index
    state.tickets.left += 1

# Nobody waits for the answer any more.
cdef void ticket_end(SendState *state, int32_t index) noexcept nogil
cdef void tickets_end(SendState *state, Connection *connection) noexcept nogil
# Tell the pull workers which have ended. Some stay for the next turn where a ring is full.
cdef void tickets_tell(SendState *state) noexcept nogil
