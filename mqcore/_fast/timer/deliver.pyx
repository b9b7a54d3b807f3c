"""Messages that are due, on their way out of the wheel."""

from libc.errno cimport EIO, ENOENT
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memset

from mqcore._fast.base.atomics cimport observe, peek, put_relaxed
from mqcore._fast.base.layout cimport (PROPERTIES_SIZE_MAX, PUT_STATUS_MESSAGE_ILLEGAL,
                                       PUT_STATUS_PROPERTIES_SIZE_EXCEEDED, PUT_STATUS_PUT_OK, TIMER_MAGIC_DELETE,
                                       TIMER_MAGIC_ROLL)
from mqcore._fast.base.worker_log cimport warn_unreadable
from mqcore._fast.log.append cimport Appended, append_record, append_rest
from mqcore._fast.log.record cimport NewRecord, RecordView
from mqcore._fast.log.republish cimport PropertyName, Republication, republished
from mqcore._fast.log.timed cimport TimedProperties, find_timed, parse_long, put_number_property
from mqcore._fast.segment.boards cimport ROW_NONE, find_queue, find_topic, make_queue, make_topic
from mqcore._fast.segment.bounds cimport queue_max_offset
from mqcore._fast.timer.due cimport DueEntry, due_pop, due_push, recall_has
from mqcore._fast.timer.records cimport timer_record
from mqcore._fast.timer.recovery cimport was_delivered
from mqcore._fast.timer.skipped cimport timer_now
from mqcore._fast.timer.slots cimport advance, over_until
from mqcore._fast.timer.waiting cimport count_topic, count_waiting

cdef enum:
    DELIVERED_PER_TURN = 512
    NUMBERS_SIZE = 128              # of the properties that are added

cdef enum Delivery:
    DELIVERY_DONE                   # in the log, or not to be there
    DELIVERY_LATER                  # its queue is being dropped: others may go on
    DELIVERY_REFUSED                # the store takes nothing now

cdef PropertyName STALE[3]
STALE[0].text = "TIMER_ENQUEUE_MS"
STALE[0].size = 16
STALE[1].text = "TIMER_DEQUEUE_MS"
STALE[1].size = 16
STALE[2].text = "TIMER_ROLL_TIMES"
STALE[2].size = 16


cdef int32_t queue_of(TimerState *state, const TimedProperties *found, int32_t *topic_row,
                      int32_t *queue_id) noexcept nogil:
    # The row of the queue where the message belongs. A new row is made without the put lock: see SHARING.md.
    cdef int64_t value = 0
    cdef int32_t row
    parse_long(&found.real_queue_id, &value)
    queue_id[0] = <int32_t>value
    topic_row[0] = find_topic(state.shared, found.real_topic.at, found.real_topic.size)
    row = ROW_NONE if topic_row[0] == ROW_NONE else find_queue(state.shared, topic_row[0], queue_id[0])
    if row != ROW_NONE:
        return row
    append_rest(&state.appender)
    topic_row[0] = make_topic(state.shared, found.real_topic.at, found.real_topic.size)
    return ROW_NONE if topic_row[0] == ROW_NONE else make_queue(state.shared, topic_row[0], queue_id[0])


cdef int32_t new_properties(TimerState *state, const DueEntry *entry, const TimedProperties *found, int64_t now,
                            uint8_t *out) noexcept nogil:
    # What is added to a message that leaves the wheel; no 0x02 at the end.
    cdef int64_t rolls = 0
    cdef int64_t out_ms = 0
    cdef int64_t write_time = entry.write_time
    cdef int32_t size
    if parse_long(&found.out_ms, &out_ms) and not entry.magic & TIMER_MAGIC_ROLL and out_ms < entry.slot_time:
        write_time = INT64_MAX      # as upstream says of what was late
    size = put_number_property(out, "TIMER_ENQUEUE_MS", 16, write_time)
    size += put_number_property(out + size, "TIMER_DEQUEUE_MS", 16, now)
    if entry.magic & TIMER_MAGIC_ROLL:
        parse_long(&found.roll_times, &rolls)
        size += put_number_property(out + size, "TIMER_ROLL_TIMES", 16, rolls + 1)
    return size - 1


cdef Delivery put_due(TimerState *state, const DueEntry *entry, const RecordView *record, const TimedProperties *found,
                      int64_t now) noexcept nogil:
    cdef Republication change
    cdef NewRecord fields
    cdef Appended done
    cdef uint8_t added[NUMBERS_SIZE]
    cdef uint8_t text[PROPERTIES_SIZE_MAX]
    cdef int status
    memset(&change, 0, sizeof(change))
    if entry.magic & TIMER_MAGIC_ROLL:
        change.topic_row = state.topic_row
        change.queue_row = state.queue_row
    else:
        change.queue_row = queue_of(state, found, &change.topic_row, &change.queue_id)
        if change.queue_row == ROW_NONE:
            warn_unreadable(&state.unusable, "no row for the topic of a timer message", entry.physical_offset, EIO)
            return DELIVERY_LATER
    # By it a start tells what was delivered before it. One more, as 0 is that of every other message.
    change.prepared_transaction_offset = entry.physical_offset + 1
    change.added = added
    change.added_size = new_properties(state, entry, found, now, added)
    change.dropped = STALE
    change.dropped_count = 3 if entry.magic & TIMER_MAGIC_ROLL else 2
    if not republished(state.shared, record, &change, text, &fields):
        # Better without its times than not at all.
        change.added_size = 0
        republished(state.shared, record, &change, text, &fields)
    status = append_record(&state.appender, &fields, change.topic_row, change.queue_row, &done)
    if status == PUT_STATUS_PUT_OK:
        state.has_appended = True
        return DELIVERY_DONE
    if status == PUT_STATUS_MESSAGE_ILLEGAL or status == PUT_STATUS_PROPERTIES_SIZE_EXCEEDED:
        # Larger than maxMessageSize is now: the limit is for who sends, and this one was accepted.
        if state.appender.record_size_max < state.appender.file_size:
            state.appender.record_size_max = state.appender.file_size
            return DELIVERY_REFUSED
        warn_unreadable(&state.unusable, "a timer message that no file takes", entry.physical_offset, EIO)
        return DELIVERY_DONE
    if peek(&state.shared.queues[change.queue_row].next_offset) < 0:
        return DELIVERY_LATER
    return DELIVERY_REFUSED


cdef Delivery deliver(TimerState *state, const DueEntry *entry, int64_t now) noexcept nogil:
    cdef RecordView record
    cdef TimedProperties found
    cdef Delivery outcome
    if entry.magic & TIMER_MAGIC_DELETE and not entry.magic & TIMER_MAGIC_ROLL:
        return DELIVERY_DONE
    if not timer_record(state, entry.physical_offset, entry.record_size, &record):
        if state.error != ENOENT:
            return DELIVERY_REFUSED
        warn_unreadable(&state.unreadable, "a timer message that is due", entry.physical_offset, ENOENT)
        return DELIVERY_DONE
    find_timed(record.properties, record.properties_size, &found)
    if was_delivered(state, entry.physical_offset, &found):
        count_topic(state, found.real_topic.at, found.real_topic.size, -1)
        return DELIVERY_DONE
    if not entry.magic & TIMER_MAGIC_ROLL and recall_has(
            state.recalled, entry.slot_time, found.real_topic.at, found.real_topic.size, found.unique_key.at,
            found.unique_key.size):
        put_relaxed(&state.shared.board.timer_recalled, state.shared.board.timer_recalled + 1)
        return DELIVERY_DONE
    outcome = put_due(state, entry, &record, &found, now)
    if outcome == DELIVERY_DONE:
        state.newest_delivered = max(state.newest_delivered, entry.slot_time)
        count_topic(state, found.real_topic.at, found.real_topic.size,
                    1 if entry.magic & TIMER_MAGIC_DELETE else -1)
        if entry.magic & TIMER_MAGIC_ROLL:
            put_relaxed(&state.shared.board.timer_rolled, state.shared.board.timer_rolled + 1)
            if entry.deliver_time + state.precision_ms <= now:
                # After a pause of ours it may be due by now, or take back what is.
                state.has_rolled_late = True
        else:
            put_relaxed(&state.shared.board.timer_delivered, state.shared.board.timer_delivered + 1)
    return outcome


cdef void wait_for_topic(TimerState *state) noexcept nogil:
    # Deliver nothing before what the log has now of the timer topic is in the wheel.
    state.asked_ms = timer_now(state)
    state.stored_before = observe(&state.shared.board.wrote_offset)
    state.behind_until = -1
    state.is_behind = True
    state.has_rolled_late = False


cdef bint waits_for_topic(TimerState *state) noexcept nogil:
    # What came while nobody looked may take back what is due by now: it goes into the wheel first.
    if state.is_behind and state.behind_until < 0 and (
            observe(&state.shared.board.dispatched_offset) >= state.stored_before):
        state.behind_until = queue_max_offset(&state.shared.queues[state.queue_row])
    if state.is_behind and (state.stops_enqueue or 0 <= state.behind_until <= state.queue_offset):
        state.is_behind = False
        state.met_until = state.asked_ms
    return state.is_behind


cdef int deliver_some(TimerState *state, int64_t now) noexcept nogil:
    # How many; -1: the store takes nothing now.
    cdef DueEntry entry
    cdef Delivery outcome
    cdef int count = 0
    if state.stops_dequeue:
        return 0
    # What takes a message back was stored before that is due, and may not be dispatched when it is.
    if not state.is_behind and state.heap.count > 0 and (
            state.met_until < state.heap.entries[0].deliver_time <= now):
        wait_for_topic(state)
    if waits_for_topic(state):
        return 0
    while state.parked.count > 0 and state.parked.entries[0].deliver_time <= now:
        entry = state.parked.entries[0]
        if not due_push(&state.heap, &entry):
            return -1
        due_pop(&state.parked)
    while count < DELIVERED_PER_TURN and state.heap.count > 0 and (
            state.heap.entries[0].deliver_time <= min(now, state.met_until)):
        advance(state, over_until(state, now))
        entry = state.heap.entries[0]
        if state.has_rolled_late and not entry.magic & TIMER_MAGIC_ROLL:
            # A message and what takes it back meet in one slot, so none of a slot is over while one is on its way.
            wait_for_topic(state)
            break
        outcome = deliver(state, &entry, now)
        if outcome == DELIVERY_REFUSED:
            count = -1
            break
        due_pop(&state.heap)
        if outcome == DELIVERY_LATER:
            entry.deliver_time = now + RETRY_MS
            due_push(&state.parked, &entry)
        else:
            count_waiting(state, entry.physical_offset, -1)
        count += 1
    append_rest(&state.appender)
    return count
