"""What waits, counted."""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from mqcore._fast.base.atomics cimport coarse_ms, observe, publish
from mqcore._fast.base.checks cimport check
from mqcore._fast.base.layout cimport TOPIC_CAPACITY, QueueRow
from mqcore._fast.queues.reader cimport units_at
from mqcore._fast.queues.units cimport CqUnit
from mqcore._fast.queues.units cimport read_unit as read_queue_unit
from mqcore._fast.segment.boards cimport ROW_NONE, find_topic
from mqcore._fast.segment.bounds cimport queue_max_offset, queue_min_offset


cdef bint count_waiting(TimerState *state, int64_t physical_offset, int64_t change) noexcept nogil:
    cdef int64_t number = physical_offset // state.appender.file_size
    cdef int64_t capacity, index
    cdef int64_t *grown
    if state.waiting_capacity == 0:
        state.waiting_base = number
    if number < state.waiting_base or number >= state.waiting_base + state.waiting_capacity:
        # Rare: at the start, and once in 64 files. What is empty in front goes.
        capacity = max(state.waiting_base + state.waiting_capacity, number + 64) - min(state.waiting_base, number)
        grown = <int64_t *>calloc(capacity, sizeof(int64_t))
        if grown == NULL:
            return False
        for index in range(state.waiting_capacity):
            grown[state.waiting_base - min(state.waiting_base, number) + index] = state.waiting[index]
        free(state.waiting)
        state.waiting = grown
        state.waiting_capacity = capacity
        state.waiting_base = min(state.waiting_base, number)
    state.waiting[number - state.waiting_base] += change
    check(state.waiting[number - state.waiting_base] >= 0, "who waits no longer has waited")
    return True


cdef int64_t oldest_waiting(TimerState *state) noexcept nogil:
    cdef int64_t index
    for index in range(state.waiting_capacity):
        if state.waiting[index] > 0:
            return (state.waiting_base + index) * state.appender.file_size
    return INT64_MAX


cdef void count_topic(TimerState *state, const uint8_t *topic, int32_t topic_size, int64_t change) noexcept nogil:
    cdef int32_t row = find_topic(state.shared, topic, topic_size)
    if row != ROW_NONE:
        state.topic_pending[row] += change


cdef void publish_keeps(TimerState *state) noexcept nogil:
    # The end first: what comes into the queue afterwards lies behind it.
    cdef int64_t end = observe(&state.shared.board.dispatched_offset)
    cdef QueueRow *queue = &state.shared.queues[state.queue_row]
    cdef int64_t count
    cdef const uint8_t *units
    cdef CqUnit unit
    cdef int64_t keeps = min(end, oldest_waiting(state))
    if state.queue_offset < queue_max_offset(queue):
        units = units_at(&state.queues, state.queue_row, max(state.queue_offset, queue_min_offset(queue)),
                         queue_max_offset(queue), coarse_ms(), &count)
        if units == NULL:
            return
        read_queue_unit(units, &unit)
        keeps = min(keeps, unit.physical_offset)
    publish(&state.shared.board.timer_keeps, max(<int64_t>1, keeps))


cdef void forget_waiting(TimerState *state) noexcept nogil:
    free(state.waiting)
    state.waiting = NULL
    state.waiting_capacity = 0
    state.pending = 0
    memset(state.topic_pending, 0, TOPIC_CAPACITY * sizeof(int64_t))
