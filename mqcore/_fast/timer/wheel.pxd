# The timer wheel: for each slot of time the first and the last unit of those that wait there, in a mapped file.
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef struct TimerWheel:
    uint8_t *base                   # TIMER_WHEEL_FILE_SIZE bytes
    int64_t precision_ms

cdef struct WheelSlot:
    int64_t time                    # ms
    int64_t first_position          # -1 = none
    int64_t last_position
    int32_t count

# The slot of *time*, a multiple of the precision; False, with no units, if another time has its place.
cdef bint wheel_slot(const TimerWheel *wheel, int64_t time, WheelSlot *out) noexcept nogil
# The slot at place *index*, whatever time it has.
cdef void wheel_place(const TimerWheel *wheel, int32_t index, WheelSlot *out) noexcept nogil
# A unit at *position*, of *count* messages (-1 for one that takes one away), is the last of the slot of *time* now. The
# unit is in the log already; what dies in between is found by the next start.
cdef void wheel_add(TimerWheel *wheel, int64_t time, int64_t position, int32_t count) noexcept nogil
# The slot of *time*, which is there, has so many messages.
cdef void wheel_set_count(TimerWheel *wheel, int64_t time, int32_t count) noexcept nogil
