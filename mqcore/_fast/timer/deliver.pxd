# Out of the wheel: into the queue where a message belongs, or back into the timer topic.
from libc.stdint cimport int64_t

from mqcore._fast.timer.state cimport TimerState

cdef enum:
    RETRY_MS = 100

# Deliver some of what is due; how many, or -1: the store takes nothing now.
cdef int deliver_some(TimerState *state, int64_t now) noexcept nogil
# Deliver nothing before what the log has now of the timer topic is in the wheel.
cdef void wait_for_topic(TimerState *state) noexcept nogil
