"""Pulls that a pull worker keeps, found by whatever may end their wait without a walk over the others."""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from mqcore._fast.base.checks cimport check
from mqcore._fast.base.layout cimport SEND_WORKERS_MAX, TICKETS_MAX

cdef enum:
    CAPACITY_FIRST = 1024
    PLACE_BITS = 20


cdef bint grow(Questions *questions) noexcept nogil:
    cdef int32_t capacity = max(<int32_t>CAPACITY_FIRST, 2 * questions.capacity)
    cdef int32_t place
    cdef Question *places
    if capacity > QUESTIONS_MAX:
        return False
    places = <Question *>realloc(questions.places, capacity * sizeof(Question))
    if places == NULL:
        return False
    memset(places + questions.capacity, 0, (capacity - questions.capacity) * sizeof(Question))
    for place in range(questions.capacity, capacity):
        places[place].next_free = place + 1 if place + 1 < capacity else -1
    questions.places = places
    questions.free = questions.capacity
    questions.capacity = capacity
    return True


cdef bint question_put(Questions *questions, Held *held) noexcept nogil:
    cdef int32_t place
    if (questions.capacity == 0 or questions.free < 0) and not grow(questions):
        return False
    place = questions.free
    questions.free = questions.places[place].next_free
    questions.places[place].held = held
    questions.asked += 1
    held.resolve_id = questions.asked << PLACE_BITS | place
    return True


cdef Held *question_find(const Questions *questions, int64_t resolve_id) noexcept nogil:
    cdef int64_t place = resolve_id & ((1 << PLACE_BITS) - 1)
    cdef Held *held
    if place >= questions.capacity:
        return NULL
    held = questions.places[place].held
    return held if held != NULL and held.resolve_id == resolve_id else NULL


cdef Held *question_take(Questions *questions, int64_t resolve_id) noexcept nogil:
    cdef int64_t place = resolve_id & ((1 << PLACE_BITS) - 1)
    cdef Held *held = question_find(questions, resolve_id)
    if held == NULL:
        return NULL
    questions.places[place].held = NULL
    questions.places[place].next_free = questions.free
    questions.free = <int32_t>place
    return held


cdef bint held_open(HeldPulls *pulls, int sender_count) noexcept nogil:
    cdef int sender
    memset(pulls, 0, sizeof(HeldPulls))
    for sender in range(sender_count):
        pulls.tickets[sender] = <Held **>calloc(TICKETS_MAX, sizeof(Held *))
        if pulls.tickets[sender] == NULL:
            return False
    return True


cdef void held_close(HeldPulls *pulls) noexcept nogil:
    cdef int32_t row
    cdef Held *held
    for row in range(pulls.questions.capacity):
        while pulls.questions.places[row].held != NULL:
            held = pulls.questions.places[row].held
            pulls.questions.places[row].held = held.line
            free(held)
    for row in range(pulls.queue_capacity):
        while pulls.queues[row] != NULL:
            held = pulls.queues[row]
            pulls.queues[row] = held.next
            free(held)
    for row in range(SEND_WORKERS_MAX):
        free(pulls.tickets[row])
    free(pulls.questions.places)
    free(pulls.queues)
    memset(pulls, 0, sizeof(HeldPulls))


cdef void ticket_put(HeldPulls *pulls, Held *held, Held **out) noexcept nogil:
    cdef Held **place = &pulls.tickets[held.sender][held.request.ticket & (TICKETS_MAX - 1)]
    out[0] = place[0] if place[0] != held else NULL
    if out[0] != NULL:
        out[0].has_place = False
    place[0] = held
    held.has_place = True


cdef bint grow_queues(HeldPulls *pulls, int32_t row) noexcept nogil:
    cdef int32_t capacity = max(<int32_t>CAPACITY_FIRST, pulls.queue_capacity)
    cdef Held **queues
    while capacity <= row:
        capacity *= 2
    queues = <Held **>realloc(pulls.queues, capacity * sizeof(Held *))
    if queues == NULL:
        return False
    memset(queues + pulls.queue_capacity, 0, (capacity - pulls.queue_capacity) * sizeof(Held *))
    pulls.queues = queues
    pulls.queue_capacity = capacity
    return True


cdef bint queue_put(HeldPulls *pulls, Held *held) noexcept nogil:
    cdef int32_t row = held.rows.queue_row
    if pulls.waiting >= HELD_MAX or (row >= pulls.queue_capacity and not grow_queues(pulls, row)):
        return False
    check(row >= 0 and held.queue_row < 0, "a pull waits in one queue")
    held.queue_row = row
    held.previous = NULL
    held.next = pulls.queues[row]
    if held.next != NULL:
        held.next.previous = held
    pulls.queues[row] = held
    pulls.waiting += 1
    return True


cdef void queue_leave(HeldPulls *pulls, Held *held) noexcept nogil:
    check(held.queue_row >= 0 and pulls.waiting > 0, "a pull leaves a queue that it waits in")
    if held.next != NULL:
        held.next.previous = held.previous
    if held.previous != NULL:
        held.previous.next = held.next
    else:
        pulls.queues[held.queue_row] = held.next
    held.queue_row = -1
    pulls.waiting -= 1
