"""The start of the timer worker: what its files say, held against one another and against the commit log."""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from mqcore._fast.base.atomics cimport coarse_ms, observe
from mqcore._fast.base.hashing cimport hash_bytes, hash_mix
from mqcore._fast.base.layout cimport (TIMER_MAGIC_DELETE, TIMER_SLOT_COUNT, TIMER_UNIT_SIZE, QueueRow)
from mqcore._fast.log.mapped_file cimport bytes_at
from mqcore._fast.log.record cimport DECODE_OK, DecodeStatus, RecordView, decode_record, find_property, java_hash
from mqcore._fast.log.timed cimport TimedProperties, find_timed
from mqcore._fast.queues.reader cimport units_at
from mqcore._fast.queues.units cimport CqUnit
from mqcore._fast.queues.units cimport read_unit as read_queue_unit
from mqcore._fast.segment.bounds cimport queue_max_offset, queue_min_offset
from mqcore._fast.timer.due cimport offset_add, offset_has
from mqcore._fast.timer.records cimport is_of_timers, timer_record
from mqcore._fast.timer.skipped cimport has_skips, recall_again
from mqcore._fast.timer.units cimport UNIT_FILLER, UNIT_NONE, UNIT_OK, TimerUnit, UnitStatus, unit_at
from mqcore._fast.timer.waiting cimport count_waiting, forget_waiting
from mqcore._fast.timer.wheel cimport WheelSlot, wheel_add, wheel_place, wheel_set_count, wheel_slot

# The bit of names in the set of places: no log is so long. (A constant of an enum has 32 bits in C, and would be 0.)
cdef int64_t NAMES = <int64_t>1 << 62


cdef void apply_unit(TimerState *state, const TimerUnit *unit, int64_t position) noexcept nogil:
    # What was written into the log, and perhaps not into the wheel.
    cdef WheelSlot slot
    if unit.slot_time < state.read_time:
        return
    if wheel_slot(&state.wheel, unit.slot_time, &slot) and slot.last_position >= position:
        return
    wheel_add(&state.wheel, unit.slot_time, position, -1 if unit.magic & TIMER_MAGIC_DELETE else 1)


cdef int64_t scan_log(TimerState *state, int64_t position, int64_t *last) noexcept nogil:
    # Apply the units from *position* on; returns where they end. *last* gets the position of the last one.
    cdef TimerUnit unit
    cdef UnitStatus status
    cdef int64_t end = observe(&state.shared.board.wrote_offset)
    while True:
        status = unit_at(&state.log, position, &unit)
        if status == UNIT_FILLER:
            position += state.log.file_size - position % state.log.file_size
        elif status == UNIT_NONE or unit.physical_offset + unit.record_size > end:
            # The second: its record did not survive a power cut.
            return position
        else:
            apply_unit(state, &unit, position)
            last[0] = position
            position += TIMER_UNIT_SIZE


cdef void wipe_behind(TimerState *state) noexcept nogil:
    # What lies behind the end of the log could one day be taken for units: they have their places.
    cdef int64_t available = 0
    cdef int64_t index
    cdef uint8_t *at
    if state.log.end % state.log.file_size == 0:
        return
    at = bytes_at(state.timer_files, state.log.end, &available)
    if at == NULL:
        return
    for index in range(available):
        if at[index] != 0:
            memset(at + index, 0, available - index)
            return


cdef bint is_ahead(TimerState *state, const WheelSlot *slot, int32_t index) noexcept nogil:
    # Whether what stands at this place of the wheel is a slot that is not over.
    return slot.time > 0 and slot.time >= state.read_time and (
        slot.time // state.precision_ms % TIMER_SLOT_COUNT == index)


cdef bint is_torn(TimerState *state, int64_t *earliest) noexcept nogil:
    # Whether a slot names a unit that is not there: a power cut came when the wheel was written, and the log not.
    # *earliest* gets the first slot in which something waits.
    cdef WheelSlot slot
    cdef int32_t index
    cdef bint torn = False
    earliest[0] = INT64_MAX
    for index in range(TIMER_SLOT_COUNT):
        wheel_place(&state.wheel, index, &slot)
        if not is_ahead(state, &slot, index):
            continue
        torn = torn or slot.last_position >= state.log.end
        earliest[0] = min(earliest[0], slot.time)
    return torn


cdef bint count_chain(TimerState *state, const WheelSlot *slot, int32_t *hashes, int64_t *counts) noexcept nogil:
    # Count what waits in one slot; False: its chain does not hold together.
    cdef TimerUnit unit
    cdef int64_t position = slot.last_position
    cdef int32_t sum = 0
    cdef int32_t place, count
    while position >= 0:
        if unit_at(&state.log, position, &unit) != UNIT_OK or unit.slot_time != slot.time or (
                unit.previous_position >= position):
            return False
        count_waiting(state, unit.physical_offset, 1)
        count = -1 if unit.magic & TIMER_MAGIC_DELETE else 1
        if count < 0 and has_skips(state):
            recall_again(state, &unit)
        place = unit.topic_hash & (HASHES - 1)
        while counts[place] != 0 and hashes[place] != unit.topic_hash:
            place = (place + 1) & (HASHES - 1)
        hashes[place] = unit.topic_hash
        # Twice, and one more, so that a sum of nothing is not an empty place.
        counts[place] = (counts[place] | 1) + 2 * count
        sum += count
        position = unit.previous_position
    # Who died between the count and the position of a slot has left one too many.
    wheel_set_count(&state.wheel, slot.time, sum)
    state.pending += sum
    return True


cdef void count_topics(TimerState *state, const int32_t *hashes, const int64_t *counts) noexcept nogil:
    cdef int32_t row, place, topic_hash
    for row in range(state.shared.board.topic_rows):
        topic_hash = java_hash(state.shared.topics[row].name, state.shared.topics[row].name_size)
        place = topic_hash & (HASHES - 1)
        while counts[place] != 0:
            if hashes[place] == topic_hash:
                state.topic_pending[row] = counts[place] >> 1
                break
            place = (place + 1) & (HASHES - 1)


cdef bint count_all(TimerState *state, int32_t *hashes, int64_t *counts) noexcept nogil:
    # Count what waits in all slots; False: some of it is missing.
    cdef WheelSlot slot
    cdef int32_t index
    cdef bint is_whole = True
    for index in range(TIMER_SLOT_COUNT):
        wheel_place(&state.wheel, index, &slot)
        if is_ahead(state, &slot, index) and not count_chain(state, &slot, hashes, counts):
            is_whole = False
    count_topics(state, hashes, counts)
    return is_whole


cdef bint lacks_first(TimerState *state, int64_t log_first) noexcept nogil:
    # Whether older files of the timer log than the oldest are missing: they go when the commit log has nothing of them.
    cdef TimerUnit unit
    cdef RecordView record
    if unit_at(&state.log, log_first, &unit) != UNIT_OK:
        return False
    return timer_record(state, unit.physical_offset, unit.record_size, &record) and (
        record.queue_offset > queue_min_offset(&state.shared.queues[state.queue_row]))


cdef TimerDamage scan_files(TimerState *state, const Beginning *beginning, int64_t now, int32_t *hashes,
                            int64_t *counts, int64_t *last) noexcept nogil:
    cdef int64_t earliest = INT64_MAX
    cdef TimerDamage damage = DAMAGE_NONE
    forget_waiting(state)
    last[0] = -1
    state.read_time = beginning.read_time // state.precision_ms * state.precision_ms
    state.log.end = scan_log(state, beginning.log_first if beginning.is_new_wheel else beginning.log_start, last)
    wipe_behind(state)
    if is_torn(state, &earliest):
        return DAMAGE_WHEEL
    if state.log.end < beginning.log_position or beginning.is_new_wheel and lacks_first(state, beginning.log_first):
        damage = DAMAGE_LOG
    state.read_time = max(state.read_time, min(earliest, now // state.precision_ms * state.precision_ms))
    state.loaded_until = state.read_time
    if not count_all(state, hashes, counts):
        damage = DAMAGE_LOG
    return damage


cdef int64_t name_of(const TimedProperties *found) noexcept nogil:
    # Of a message for RocketMQ's copies of it, in the set of places: where no record can begin. 0: it has none.
    cdef uint64_t hashed
    if found.unique_key.size == 0 or found.real_topic.size == 0 or found.out_ms.size == 0:
        return 0
    hashed = hash_mix(hash_bytes(found.unique_key.at, found.unique_key.size))
    hashed = hash_mix(hashed ^ hash_bytes(found.real_topic.at, found.real_topic.size))
    hashed = hash_mix(hashed ^ hash_bytes(found.out_ms.at, found.out_ms.size))
    return <int64_t>(hashed >> 2) | NAMES


cdef bint was_delivered(const TimerState *state, int64_t physical_offset, const TimedProperties *found) noexcept nogil:
    cdef int64_t name
    if state.delivered.count == 0:
        return False
    if offset_has(&state.delivered, physical_offset):
        return True
    name = name_of(found)
    return name != 0 and offset_has(&state.delivered, name)


cdef bint remember(TimerState *state, const RecordView *record) noexcept nogil:
    # A record that is a copy. False: no memory.
    cdef TimedProperties found
    cdef const uint8_t *value
    cdef int32_t value_size = 0
    cdef int64_t name
    if not find_property(record.properties, record.properties_size, "TIMER_OUT_MS", 12, &value, &value_size):
        return True
    if record.prepared_transaction_offset > 0:
        return offset_add(&state.delivered, record.prepared_transaction_offset - 1)
    if is_of_timers(record) or not find_property(record.properties, record.properties_size, "TIMER_DEQUEUE_MS", 16,
                                                 &value, &value_size):
        return True
    find_timed(record.properties, record.properties_size, &found)
    name = name_of(&found)
    return name == 0 or offset_add(&state.delivered, name)


cdef int64_t stored_since(TimerState *state, int64_t time) noexcept nogil:
    # By the first records of files, the newest first.
    cdef int64_t at = observe(&state.shared.board.wrote_offset)
    cdef int64_t least = observe(&state.shared.board.min_offset)
    cdef int64_t available
    cdef const uint8_t *base
    cdef RecordView record
    at -= at % state.appender.file_size
    while at > least:
        base = bytes_at(state.files, at, &available)
        if base != NULL and decode_record(base, available, False, &record) == DECODE_OK and (
                record.store_timestamp < time):
            break
        at -= state.appender.file_size
    return max(at, least)


cdef bint find_delivered(TimerState *state, int64_t at) noexcept nogil:
    # Remember the copies that the log has from *at* on; False: no memory.
    cdef int64_t end = observe(&state.shared.board.wrote_offset)
    cdef int64_t available = 0
    cdef const uint8_t *base
    cdef RecordView record
    cdef DecodeStatus status
    at = max(at, observe(&state.shared.board.min_offset))
    while at < end:
        base = bytes_at(state.files, at, &available)
        if base == NULL:
            at += state.appender.file_size - at % state.appender.file_size
            continue
        status = decode_record(base, min(available, end - at), False, &record)
        if status != DECODE_OK:
            at += state.appender.file_size - at % state.appender.file_size
            continue
        if not remember(state, &record):
            return False
        at += record.total_size
    return True


cdef int64_t first_record(TimerState *state) noexcept nogil:
    # In this order: what is not dispatched yet lies behind what was when the queue is looked at.
    cdef int64_t dispatched = observe(&state.shared.board.dispatched_offset)
    cdef QueueRow *queue = &state.shared.queues[state.queue_row]
    cdef int64_t count = 0
    cdef CqUnit unit
    cdef const uint8_t *units
    if queue_min_offset(queue) < queue_max_offset(queue):
        units = units_at(&state.queues, state.queue_row, queue_min_offset(queue), queue_max_offset(queue),
                         coarse_ms(), &count)
        if units != NULL:
            read_queue_unit(units, &unit)
            return min(dispatched, unit.physical_offset)
        return observe(&state.shared.board.min_offset)
    return dispatched
