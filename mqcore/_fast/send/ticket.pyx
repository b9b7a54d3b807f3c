"""Tickets whose pulls nobody waits for any more: the pull workers are told, then the tickets are free."""

from libc.stdint cimport int32_t

from mqcore._fast.base.layout cimport PULL_WORKERS_MAX, RING_KIND_PULLS_ENDED, TICKETS_MAX
from mqcore._fast.segment.rings cimport ring_publish, ring_reserve

cdef enum:
    ENDED_PER_ENTRY = 1024

# A ticket's number has its index below the serial, and is positive.
assert <int>TICKETS_MAX == 1 << <int>SERIAL_SHIFT and <int>SERIAL_MASK < 1 << (31 - <int>SERIAL_SHIFT)


cdef void tickets_open(SendState *state) noexcept nogil:
    cdef int32_t index
    for index in range(TICKETS_MAX):
        state.tickets.slots[index].next = index + 1 if index + 1 < TICKETS_MAX else -1
    state.tickets.free = 0
    state.tickets.left = 0
    state.tickets.has_ended = True
    for index in range(PULL_WORKERS_MAX):
        state.pullers[index].ended = -1
        state.pullers[index].has_begun = False


cdef void ticket_end(SendState *state, int32_t index) noexcept nogil:
    cdef int32_t puller = state.tickets.slots[index].puller
    ticket_leave(state, index)
    state.tickets.slots[index].next = state.pullers[puller].ended
    state.pullers[puller].ended = index
    state.pullers[puller].ended_count += 1
    state.tickets.has_ended = True


cdef void tickets_end(SendState *state, Connection *connection) noexcept nogil:
    while connection.first_ticket >= 0:
        ticket_end(state, connection.first_ticket)


cdef bint tell_some(SendState *state, int32_t puller) noexcept nogil:
    cdef int32_t count = min(state.pullers[puller].ended_count, <int32_t>ENDED_PER_ENTRY)
    cdef int32_t size = count * <int32_t>sizeof(int32_t)
    cdef int32_t *numbers = <int32_t *>ring_reserve(&state.pullers[puller].requests, size, RING_KIND_PULLS_ENDED)
    cdef int32_t number, index
    if numbers == NULL:
        return False
    for number in range(count):
        index = state.pullers[puller].ended
        numbers[number] = state.tickets.slots[index].serial << SERIAL_SHIFT | index
        state.pullers[puller].ended = state.tickets.slots[index].next
        state.tickets.slots[index].next = state.tickets.free
        state.tickets.free = index
    state.pullers[puller].ended_count -= count
    state.tickets.left += count
    ring_publish(&state.pullers[puller].requests, size)
    state.pullers[puller].has_news = True
    return True


cdef bint begin(SendState *state) noexcept nogil:
    # Whether every pull worker's ring has the word that whatever came before it is over.
    cdef int32_t puller
    cdef bint have_begun = True
    for puller in range(state.settings.puller_count):
        if not state.pullers[puller].has_begun:
            if ring_reserve(&state.pullers[puller].requests, 0, RING_KIND_PULLS_ENDED) == NULL:
                have_begun = False
                continue
            ring_publish(&state.pullers[puller].requests, 0)
            state.pullers[puller].has_begun = True
            state.pullers[puller].has_news = True
    return have_begun


cdef void tickets_tell(SendState *state) noexcept nogil:
    cdef int32_t puller
    if not state.tickets.may_pull:
        state.tickets.may_pull = begin(state)
        if not state.tickets.may_pull:
            return
        state.tickets.left = TICKETS_MAX
    state.tickets.has_ended = False
    for puller in range(state.settings.puller_count):
        while state.pullers[puller].ended_count > 0:
            if not tell_some(state, puller):
                state.tickets.has_ended = True
                break
