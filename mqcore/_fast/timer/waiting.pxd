# How many messages wait, by commit log file and by topic; and what of the log has to stay for them.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.timer.state cimport TimerState

# So many more, or fewer, wait in the commit log file that holds the offset. False: no memory.
cdef bint count_waiting(TimerState *state, int64_t physical_offset, int64_t change) noexcept nogil
cdef void count_topic(TimerState *state, const uint8_t *topic, int32_t topic_size, int64_t change) noexcept nogil
# Put on the board from where on files of the log are needed.
cdef void publish_keeps(TimerState *state) noexcept nogil
# Count from nothing.
cdef void forget_waiting(TimerState *state) noexcept nogil
