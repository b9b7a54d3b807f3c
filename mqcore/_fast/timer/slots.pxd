# Slots of the wheel, opened before they begin and over when everything in them is delivered.
from libc.stdint cimport int64_t

from mqcore._fast.log.record cimport RecordView
from mqcore._fast.log.timed cimport TimedProperties
from mqcore._fast.timer.state cimport TimerState
from mqcore._fast.timer.units cimport TimerUnit

# A unit of an open slot into the heap. *record* and *found* may be NULL: they are looked up if they are needed. False:
# no memory.
cdef bint open_entry(TimerState *state, const TimerUnit *unit, const RecordView *record,
                     const TimedProperties *found) noexcept nogil
# Open the slots that begin within one precision from now. False: no memory.
cdef bint load_slots(TimerState *state, int64_t now) noexcept nogil
# The first slot that is not over.
cdef int64_t over_until(TimerState *state, int64_t now) noexcept nogil
# Slots before *slot* are over.
cdef void advance(TimerState *state, int64_t slot) noexcept nogil
