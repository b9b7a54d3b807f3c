"""Pulls that a pull worker keeps, found by whatever may end their wait without a walk over the others."""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

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


cdef Held *question_take(Questions *questions, int64_t resolve_id) noexcept nogil:
    cdef int64_t place = resolve_id & ((1 << PLACE_BITS) - 1)
    cdef Held *held
    if place >= questions.capacity:
        return NULL
    held = questions.places[place].held
    if held == NULL or held.resolve_id != resolve_id:
        return NULL
    questions.places[place].held = NULL
    questions.places[place].next_free = questions.free
    questions.free = <int32_t>place
    return held


cdef void questions_close(Questions *questions) noexcept nogil:
    cdef int32_t place
    for place in range(questions.capacity):
        free(questions.places[place].held)
    free(questions.places)
    questions.places = NULL
    questions.capacity = 0
