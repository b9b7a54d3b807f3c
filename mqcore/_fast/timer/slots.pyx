"""Slots that open, and slots that are over."""

from libc.stdint cimport int64_t

from mqcore._fast.base.atomics cimport observe, put_relaxed
from mqcore._fast.base.layout cimport TIMER_MAGIC_DELETE, TIMER_MAGIC_ROLL
from mqcore._fast.base.worker_log cimport warn_unreadable
from mqcore._fast.log.record cimport RecordView
from mqcore._fast.log.timed cimport TimedProperties, find_timed, slot_of
from mqcore._fast.segment.bounds cimport queue_max_offset
from mqcore._fast.timer.due cimport DueEntry, due_push, offset_free, recall_add, recall_trim
from mqcore._fast.timer.records cimport advise, hot_from, timer_record
from mqcore._fast.timer.state cimport HEAP_FULL
from mqcore._fast.timer.units cimport UNIT_OK, TimerUnit, unit_at
from mqcore._fast.timer.wheel cimport WheelSlot, wheel_slot

cdef enum:
    GAP = 1 << 16                   # bytes between two records that are read ahead as one


cdef bint open_entry(TimerState *state, const TimerUnit *unit, const RecordView *record,
                     const TimedProperties *found) noexcept nogil:
    # A unit of an open slot. *record* and *found* may be NULL: they are looked up if they are needed.
    cdef DueEntry entry
    cdef RecordView own
    cdef TimedProperties own_found
    if unit.magic & TIMER_MAGIC_DELETE and not unit.magic & TIMER_MAGIC_ROLL:
        if found == NULL and timer_record(state, unit.physical_offset, unit.record_size, &own):
            find_timed(own.properties, own.properties_size, &own_found)
            found = &own_found
        if found != NULL and found.delete_key.size > 0 and not recall_add(
                state.recalled, unit.slot_time, found.delete_key.at, found.delete_key.size):
            return False
    entry.deliver_time = unit.deliver_time
    if unit.deliver_time <= 0 or unit.deliver_time > unit.slot_time + state.precision_ms:
        entry.deliver_time = unit.slot_time + state.precision_ms     # RocketMQ knows no other time
    entry.physical_offset = unit.physical_offset
    entry.record_size = unit.record_size
    entry.slot_time = unit.slot_time
    entry.write_time = unit.write_time
    entry.magic = unit.magic
    return due_push(&state.heap, &entry)


cdef bint load_slot(TimerState *state, int64_t time) noexcept nogil:
    # Open a slot: its chain into the heap. What lies far back in the log is asked for at once, in order of offset.
    cdef WheelSlot slot
    cdef TimerUnit unit
    cdef int64_t cold_end = hot_from(state)
    cdef int64_t start = 0
    cdef int64_t end = 0
    cdef int64_t position
    if not wheel_slot(&state.wheel, time, &slot):
        return True
    position = slot.last_position
    while position >= 0:
        if unit_at(&state.log, position, &unit) != UNIT_OK or unit.slot_time != time or (
                unit.previous_position >= position):
            warn_unreadable(&state.unreadable, "timer log", position, state.timer_files.error)
            break
        if not open_entry(state, &unit, NULL, NULL):
            return False
        if unit.physical_offset < cold_end:
            if unit.physical_offset + unit.record_size + GAP >= start and unit.physical_offset < end:
                start = min(start, unit.physical_offset)
            else:
                advise(state, start, end)
                start = unit.physical_offset
                end = start + unit.record_size
        position = unit.previous_position
    advise(state, start, end)
    return True


cdef bint load_slots(TimerState *state, int64_t now) noexcept nogil:
    # Open the slots that begin within one precision from now.
    while state.loaded_until <= now + state.precision_ms and state.heap.count < HEAP_FULL:
        if not load_slot(state, state.loaded_until):
            return False
        state.loaded_until += state.precision_ms
    return True


cdef void advance(TimerState *state, int64_t slot) noexcept nogil:
    # Slots before *slot* are over. The end of the log is taken before anything of the others is delivered by us.
    cdef WheelSlot over
    if slot <= state.read_time:
        return
    while state.read_time < slot:
        if wheel_slot(&state.wheel, state.read_time, &over):
            state.pending -= over.count
        state.read_time += state.precision_ms
    recall_trim(state.recalled, slot)
    put_relaxed(&state.shared.board.timer_read_time, slot)
    put_relaxed(&state.shared.board.timer_pending, state.pending)
    if state.delivered.count > 0 and slot >= state.delivered_until and (
            state.queue_offset >= queue_max_offset(&state.shared.queues[state.queue_row])):
        offset_free(&state.delivered)
    if state.delivered.count == 0 and slot > state.newest_delivered:
        # Not before: a predecessor may have been further than we are, and our successor has to find that, too; and
        # while one message waited for its queue, others of later slots were delivered.
        state.scan_offset = observe(&state.shared.board.wrote_offset)


cdef int64_t over_until(TimerState *state, int64_t now) noexcept nogil:
    # The first slot that is not over.
    cdef int64_t slot = min(state.loaded_until, now // state.precision_ms * state.precision_ms)
    cdef int64_t index
    if state.heap.count > 0:
        slot = min(slot, slot_of(state.heap.entries[0].deliver_time, state.precision_ms))
    for index in range(state.parked.count):
        slot = min(slot, state.parked.entries[index].slot_time)
    return slot
