# From the timer topic into timer log and wheel.
from libc.stdint cimport int64_t

from mqcore._fast.timer.state cimport TimerState

# Put some messages into the wheel; how many, or -1: it failed, and state.error says why.
cdef int enqueue_some(TimerState *state, int64_t now) noexcept nogil
