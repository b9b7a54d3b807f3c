# How long answers took, from the turn of the loop in which their requests could be read: a clock is read for a turn, or
# for what was written by one call, and not for a message.
from libc.stdint cimport int64_t

from mqcore._fast.base.atomics cimport monotonic_ns
from mqcore._fast.base.layout cimport LATENCY_KIND_HELD, LATENCY_KIND_PULL, LATENCY_KIND_SEND, LATENCY_KIND_UNCONFIRMED
from mqcore._fast.segment.latencies cimport count_latencies
from mqcore._fast.send.state cimport SendState


# A send of this turn is answered in it; whoever is, has waited as long as the turn takes.
cdef inline void note_answered(SendState *state, bint lacks_something) noexcept nogil:
    state.answered[lacks_something] += 1


# The time of answers that are given side by side: that of the first of them, unless forget_answer_time came between.
cdef inline int64_t answer_time(SendState *state) noexcept nogil:
    if state.answered_ns == 0:
        state.answered_ns = monotonic_ns()
    return state.answered_ns


cdef inline void forget_answer_time(SendState *state) noexcept nogil:
    state.answered_ns = 0


# A send that has waited for disk or slave is answered.
cdef inline void count_waited(SendState *state, int64_t came_ns, bint lacks_something) noexcept nogil:
    count_latencies(&state.latencies[<int>LATENCY_KIND_UNCONFIRMED if lacks_something else <int>LATENCY_KIND_SEND], 1,
                    answer_time(state) - came_ns)


# A pull is answered with messages: one that was not held, or whose hold ended at *woken_ns*.
cdef inline void count_pull(SendState *state, int64_t came_ns, int64_t woken_ns) noexcept nogil:
    if woken_ns == 0:
        count_latencies(&state.latencies[<int>LATENCY_KIND_PULL], 1, answer_time(state) - came_ns)
    else:
        count_latencies(&state.latencies[<int>LATENCY_KIND_HELD], 1, answer_time(state) - woken_ns)


# The answers of this turn are written.
cdef inline void count_answered(SendState *state) noexcept nogil:
    cdef int64_t took_ns
    state.written_ns = 0
    if state.answered[0] + state.answered[1] == 0:
        return
    state.written_ns = monotonic_ns()
    took_ns = state.written_ns - state.turn_ns
    if state.answered[0] > 0:
        count_latencies(&state.latencies[<int>LATENCY_KIND_SEND], state.answered[0], took_ns)
    if state.answered[1] > 0:
        count_latencies(&state.latencies[<int>LATENCY_KIND_UNCONFIRMED], state.answered[1], took_ns)
    state.answered[0] = state.answered[1] = 0
