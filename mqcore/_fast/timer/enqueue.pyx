"""Messages of the timer topic on their way into the wheel."""

from libc.errno cimport EIO, ENOENT
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.base.atomics cimport coarse_ms, put_relaxed
from mqcore._fast.base.layout cimport (CQ_UNIT_SIZE, TIMER_MAGIC_DEFAULT, TIMER_MAGIC_DELETE, TIMER_MAGIC_ROLL,
                                       TOPIC_SIZE_MAX, QueueRow)
from mqcore._fast.base.worker_log cimport warn_unreadable
from mqcore._fast.log.record cimport RecordView, java_hash
from mqcore._fast.log.timed cimport TextSpan, TimedProperties, find_timed, parse_long
from mqcore._fast.queues.reader cimport units_at
from mqcore._fast.queues.units cimport CqUnit
from mqcore._fast.queues.units cimport read_unit as read_queue_unit
from mqcore._fast.segment.bounds cimport queue_max_offset, queue_min_offset
from mqcore._fast.timer.records cimport timer_record
from mqcore._fast.timer.skipped cimport has_skips, put_later, recall_anywhere
from mqcore._fast.timer.slots cimport open_entry
from mqcore._fast.timer.units cimport TimerUnit, append_unit
from mqcore._fast.timer.waiting cimport count_topic, count_waiting
from mqcore._fast.timer.wheel cimport WheelSlot, wheel_add, wheel_slot

cdef enum:
    ENQUEUED_PER_TURN = 512


cdef int64_t exact_time(TimerState *state, const TimedProperties *found, const RecordView *record,
                        int64_t out) noexcept nogil:
    # When the message is due: within its slot (out, out + precision]. Relative times count from its store time,
    # which is no earlier than the time that the slot was computed from.
    cdef int64_t value = 0
    cdef int64_t last = out + state.precision_ms
    cdef const TextSpan *relative = &found.delay_sec if found.delay_sec.size > 0 else &found.delay_ms
    if relative.size == 0:
        return min(max(value, out + 1), last) if parse_long(&found.deliver_ms, &value) else last
    if not parse_long(relative, &value):
        return last
    value = record.store_timestamp + (value * 1000 if found.delay_sec.size > 0 else value)
    return min(max(value, out + 1), last)


cdef bint enqueue(TimerState *state, int64_t offset, int32_t size, int64_t now) noexcept nogil:
    # One message of the timer topic; False: it cannot be done now, and *error* says why.
    cdef RecordView record
    cdef TimedProperties found
    cdef TimerUnit unit
    cdef WheelSlot slot
    cdef int64_t out, position, real_queue_id
    cdef int32_t count
    if not timer_record(state, offset, size, &record):
        if state.error != ENOENT:
            return False
        warn_unreadable(&state.unusable, "timer message", offset, ENOENT)
        return True
    find_timed(record.properties, record.properties_size, &found)
    if not parse_long(&found.out_ms, &out) or not parse_long(&found.real_queue_id, &real_queue_id) or (
            found.real_topic.size == 0 or found.real_topic.size > TOPIC_SIZE_MAX or out < 0
            or not 0 <= real_queue_id <= 0x7FFFFFFF):
        # Who writes into the topic by himself gets what he asks for: RocketMQ would try it for ever.
        warn_unreadable(&state.unusable, "timer properties", offset, EIO)
        return True
    unit.write_time = now // state.precision_ms * state.precision_ms
    unit.slot_time = out // state.precision_ms * state.precision_ms
    unit.deliver_time = exact_time(state, &found, &record, unit.slot_time)
    if has_skips(state):
        put_later(state, &record, &found, &unit)
    unit.magic = TIMER_MAGIC_DEFAULT
    if unit.slot_time - unit.write_time >= state.window_ms:
        unit.magic |= TIMER_MAGIC_ROLL
        if unit.slot_time - unit.write_time - state.window_ms < state.window_slots // 3 * state.precision_ms:
            unit.slot_time = unit.write_time + state.window_slots // 2 * state.precision_ms
        else:
            unit.slot_time = unit.write_time + state.window_ms
        unit.deliver_time = unit.slot_time + state.precision_ms
    else:
        # One that comes late waits in the first slot that is not over, and is due at once.
        unit.slot_time = max(unit.slot_time, state.read_time)
        unit.write_time = min(unit.write_time, unit.slot_time)
    if found.delete_key.size > 0:
        unit.magic |= TIMER_MAGIC_DELETE
    unit.physical_offset = offset
    unit.record_size = size
    unit.topic_hash = java_hash(found.real_topic.at, found.real_topic.size)
    wheel_slot(&state.wheel, unit.slot_time, &slot)
    unit.previous_position = slot.last_position
    if not count_waiting(state, offset, 1):
        state.error = EIO
        return False
    position = append_unit(&state.log, &unit)
    if position < 0:
        count_waiting(state, offset, -1)
        state.error = <int>-position
        return False
    count = -1 if found.delete_key.size > 0 else 1
    wheel_add(&state.wheel, unit.slot_time, position, count)
    state.pending += count
    count_topic(state, found.real_topic.at, found.real_topic.size, count)
    put_relaxed(&state.shared.board.timer_enqueued, state.shared.board.timer_enqueued + 1)
    if unit.slot_time < state.loaded_until and not open_entry(state, &unit, &record, &found):
        state.error = EIO
        return False
    if found.delete_key.size > 0 and has_skips(state) and not recall_anywhere(state, &found, out):
        state.error = EIO
        return False
    return True


cdef void go_on_without(TimerState *state, int64_t now) noexcept nogil:
    # What waits is not held up by what cannot be read.
    state.is_behind = False
    state.met_until = now


cdef int enqueue_some(TimerState *state, int64_t now) noexcept nogil:
    # How many; -1: it failed.
    cdef QueueRow *queue = &state.shared.queues[state.queue_row]
    cdef int64_t limit = queue_max_offset(queue)
    cdef int64_t first = max(state.queue_offset, queue_min_offset(queue))
    cdef int64_t count = 0
    cdef int64_t index
    cdef CqUnit unit
    cdef const uint8_t *units
    if state.stops_enqueue or first >= limit:
        return 0
    units = units_at(&state.queues, state.queue_row, first, limit, coarse_ms(), &count)
    if units == NULL:
        warn_unreadable(&state.unreadable, "consume queue of the timer topic", first, state.queues.error)
        go_on_without(state, now)
        return 0
    count = min(count, <int64_t>ENQUEUED_PER_TURN)
    for index in range(count):
        read_queue_unit(units + index * CQ_UNIT_SIZE, &unit)
        if not enqueue(state, unit.physical_offset, unit.record_size, now):
            go_on_without(state, now)
            return -1
        state.queue_offset = first + index + 1
    put_relaxed(&state.shared.board.timer_queue_offset, state.queue_offset)
    put_relaxed(&state.shared.board.timer_pending, state.pending)
    return <int>count
