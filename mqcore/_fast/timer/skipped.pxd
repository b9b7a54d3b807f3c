# The time that tests have skipped; see workers/time_sheet.py.
#
# The worker lives in a time that is ahead by all that was skipped. So what waited before a skip is due that much
# earlier; what was stored after it is put later by as much, and waits its full time.
from libc.stdint cimport int64_t

from mqcore._fast.log.record cimport RecordView
from mqcore._fast.log.timed cimport TimedProperties
from mqcore._fast.timer.state cimport TimerState
from mqcore._fast.timer.units cimport TimerUnit

cdef inline bint has_skips(const TimerState *state) noexcept nogil:
    return state.skips[0] != 0

# The time of the worker, ms.
cdef int64_t timer_now(const TimerState *state) noexcept nogil
# Put a unit into the slot in which its message is due, which depends on when that was stored.
cdef void put_later(const TimerState *state, const RecordView *record, const TimedProperties *found,
                    TimerUnit *unit) noexcept nogil
# What a unit takes back may be in another slot than by its time *out*: wherever it may be, it is gone. False: no
# memory.
cdef bint recall_anywhere(TimerState *state, const TimedProperties *found, int64_t out) noexcept nogil
# The same for a unit that a predecessor has put into the wheel.
cdef void recall_again(TimerState *state, const TimerUnit *unit) noexcept nogil
