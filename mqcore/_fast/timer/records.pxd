# Records of the timer topic, read out of the commit log: from its mapping while they are hot, else by plain reads.
from libc.stdint cimport int32_t, int64_t

from mqcore._fast.log.record cimport RecordView
from mqcore._fast.timer.state cimport TimerState

# From this offset on records are hot.
cdef int64_t hot_from(TimerState *state) noexcept nogil
# The record that starts at *offset*; good until the next one. False: state.error says why, ENOENT: it is gone.
cdef bint timer_record(TimerState *state, int64_t offset, int32_t size, RecordView *out) noexcept nogil
# Whether it is a record of the timer topic.
cdef bint is_of_timers(const RecordView *record) noexcept nogil
# Have the kernel read ahead from *start* to *end*; it may be asked for more than it takes, and then the reads wait.
cdef void advise(TimerState *state, int64_t start, int64_t end) noexcept nogil
