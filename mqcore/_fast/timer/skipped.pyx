"""The time that tests have skipped."""

from libc.stdint cimport INT64_MAX, int64_t

from mqcore._fast.base.atomics cimport now_ms, observe
from mqcore._fast.log.record cimport RecordView
from mqcore._fast.log.timed cimport TimedProperties, find_timed, parse_long, slot_of
from mqcore._fast.timer.due cimport recall_add
from mqcore._fast.timer.records cimport timer_record
from mqcore._fast.timer.state cimport TimerState
from mqcore._fast.timer.units cimport TimerUnit


cdef int64_t skipped_before(const TimerState *state, int64_t stored_at) noexcept nogil:
    cdef int64_t skipped = 0
    cdef int64_t index
    for index in range(observe(state.skips)):
        if state.skips[1 + 2 * index] >= stored_at:
            break
        skipped += state.skips[2 + 2 * index]
    return skipped


cdef int64_t timer_now(const TimerState *state) noexcept nogil:
    return now_ms() + skipped_before(state, INT64_MAX)


cdef void put_later(const TimerState *state, const RecordView *record, const TimedProperties *found,
                    TimerUnit *unit) noexcept nogil:
    # Of one that was rolled, nobody knows any more when it was stored, but when it was born.
    cdef int64_t stored_at = record.store_timestamp if found.roll_times.size == 0 else record.born_timestamp
    unit.deliver_time += skipped_before(state, stored_at)
    unit.slot_time = slot_of(unit.deliver_time, state.precision_ms)


cdef void recall_again(TimerState *state, const TimerUnit *unit) noexcept nogil:
    cdef RecordView record
    cdef TimedProperties found
    cdef int64_t out
    if timer_record(state, unit.physical_offset, unit.record_size, &record):
        find_timed(record.properties, record.properties_size, &found)
        if found.delete_key.size > 0 and parse_long(&found.out_ms, &out):
            recall_anywhere(state, &found, out)


cdef bint recall_anywhere(TimerState *state, const TimedProperties *found, int64_t out) noexcept nogil:
    cdef int64_t count = observe(state.skips)
    cdef int64_t skipped = 0
    cdef int64_t index, slot
    for index in range(count + 1):
        # What is due within (out, out + precision] may be in two slots now.
        slot = (out + skipped) // state.precision_ms * state.precision_ms
        if not recall_add(state.recalled, slot, found.delete_key.at, found.delete_key.size) or not recall_add(
                state.recalled, slot + state.precision_ms, found.delete_key.at, found.delete_key.size):
            return False
        if index < count:
            skipped += state.skips[2 + 2 * index]
    return True
