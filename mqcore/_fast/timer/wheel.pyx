"""Slots of the timer wheel. The twin is mqcore.store.timer.wheel; the layout is TIMER_SLOT."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.base.big_endian cimport load_i32, load_i64, store_fence, store_i32, store_i64
from mqcore._fast.base.layout cimport (TIMER_SLOT_COUNT, TIMER_SLOT_COUNT_AT, TIMER_SLOT_FIRST_POSITION_AT,
                                       TIMER_SLOT_LAST_POSITION_AT, TIMER_SLOT_MAGIC_AT, TIMER_SLOT_SIZE,
                                       TIMER_SLOT_TIME_AT, TIMER_WHEEL_FILE_SIZE)


cdef inline uint8_t *slot_at(const TimerWheel *wheel, int64_t time) noexcept nogil:
    return wheel.base + time // wheel.precision_ms % TIMER_SLOT_COUNT * TIMER_SLOT_SIZE


cdef void read_slot(const uint8_t *at, int64_t precision_ms, WheelSlot *out) noexcept nogil:
    out.time = load_i64(at + TIMER_SLOT_TIME_AT) * precision_ms
    out.first_position = load_i64(at + TIMER_SLOT_FIRST_POSITION_AT)
    out.last_position = load_i64(at + TIMER_SLOT_LAST_POSITION_AT)
    out.count = load_i32(at + TIMER_SLOT_COUNT_AT)


cdef bint wheel_slot(const TimerWheel *wheel, int64_t time, WheelSlot *out) noexcept nogil:
    read_slot(slot_at(wheel, time), wheel.precision_ms, out)
    if out.time == time:
        return True
    out.time = time
    out.first_position = -1
    out.last_position = -1
    out.count = 0
    return False


cdef void wheel_place(const TimerWheel *wheel, int32_t index, WheelSlot *out) noexcept nogil:
    read_slot(wheel.base + <int64_t>index * TIMER_SLOT_SIZE, wheel.precision_ms, out)


cdef void wheel_add(TimerWheel *wheel, int64_t time, int64_t position, int32_t count) noexcept nogil:
    cdef uint8_t *at = slot_at(wheel, time)
    cdef WheelSlot slot
    if not wheel_slot(wheel, time, &slot):
        # The time last: who dies before it leaves a slot of a time that is over.
        store_i64(at + TIMER_SLOT_FIRST_POSITION_AT, position)
        store_i64(at + TIMER_SLOT_LAST_POSITION_AT, position)
        store_i32(at + TIMER_SLOT_COUNT_AT, count)
        store_i32(at + TIMER_SLOT_MAGIC_AT, 0)
        store_fence()
        store_i64(at + TIMER_SLOT_TIME_AT, time // wheel.precision_ms)
        return
    # The position last: a start counts the units behind it again.
    store_i32(at + TIMER_SLOT_COUNT_AT, slot.count + count)
    store_fence()
    store_i64(at + TIMER_SLOT_LAST_POSITION_AT, position)


cdef void wheel_set_count(TimerWheel *wheel, int64_t time, int32_t count) noexcept nogil:
    store_i32(slot_at(wheel, time) + TIMER_SLOT_COUNT_AT, count)


cdef class WheelView:
    """A wheel for Python and for tests, over a writable buffer of TIMER_WHEEL_FILE_SIZE bytes."""

    cdef TimerWheel wheel
    cdef uint8_t[::1] memory

    def __cinit__(self, uint8_t[::1] memory not None, int64_t precision_ms):
        if memory.shape[0] != TIMER_WHEEL_FILE_SIZE or precision_ms <= 0:
            raise ValueError(f"wheel of {memory.shape[0]} bytes, wanted {TIMER_WHEEL_FILE_SIZE}")
        self.memory = memory
        self.wheel.base = &memory[0]
        self.wheel.precision_ms = precision_ms

    def slot(self, int64_t time):
        """(first position, last position, count) of the slot of *time*; (-1, -1, 0) if it has none."""
        cdef WheelSlot slot
        wheel_slot(&self.wheel, time, &slot)
        return slot.first_position, slot.last_position, slot.count

    def add(self, int64_t time, int64_t position, int count):
        """Put the unit at *position* into the slot of *time*."""
        wheel_add(&self.wheel, time, position, count)
