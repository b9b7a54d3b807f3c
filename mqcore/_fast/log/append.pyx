"""putMessage below the checks: take the put lock, find room, write the record, publish its end.

Order under the lock: the intent, the bytes, the end (``wrote_offset``, with release), the queue's next offset, and the
intent is cleared. Whoever takes the lock over from a dead owner reads the intent: if its end was published, the message
is there and the queue's next offset is completed; if not, the bytes past the published end are nobody's.
"""

from libc.errno cimport ENOENT, ENOSPC
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from mqcore._fast.base.atomics cimport (LOCK_BROKEN, LOCK_INHERITED, LOCK_TAKEN, LOCK_TIMED_OUT, add_full, add_relaxed,
                                        and_full, coarse_ms, full_fence, lock_release, lock_take, now_ms, observe,
                                        observe_i32, or_full, peek, publish, put_relaxed)
from mqcore._fast.base.big_endian cimport load_i32, store_i32
from mqcore._fast.base.checks cimport check
from mqcore._fast.base.crc32 cimport crc32
from mqcore._fast.base.layout cimport (BATCH_MEMBER_HEAD_SIZE, BLANK_MAGIC, BLANK_RECORD_MAGIC_AT,
                                       BLANK_RECORD_TOTAL_SIZE_AT, BODY_CRC_MASK, FILE_END_MIN_BLANK_SIZE,
                                       HA_ROLE_MASTER, PROPERTIES_SIZE_MAX, PUT_STATUS_CREATE_MAPEDFILE_FAILED,
                                       PUT_STATUS_IN_SYNC_REPLICAS_NOT_ENOUGH, PUT_STATUS_MESSAGE_ILLEGAL,
                                       PUT_STATUS_OS_PAGECACHE_BUSY, PUT_STATUS_PROPERTIES_SIZE_EXCEEDED,
                                       PUT_STATUS_PUT_OK, PUT_STATUS_SERVICE_NOT_AVAILABLE, PUT_STATUS_UNKNOWN_ERROR,
                                       READ_GATE_CONFIRMED, RECORD_OVERHEAD_MAX, REFUSING_FLAGS,
                                       STORE_FLAG_NOT_ENOUGH_REPLICAS, STORE_FLAG_NO_NEXT_FILE, STORE_FLAG_SLAVE,
                                       TOPIC_WORD_EXISTS, OffsetRow, QueueRow, StoreBoard)
from mqcore._fast.log.mapped_file cimport (FileSet, MappedFile, file_at, file_made_at, files_close, files_open,
                                           files_release, files_rest, files_trim)
from mqcore._fast.log.record cimport (DECODE_BLANK, DECODE_OK, DECODE_SHORT, SYS_TRANSACTION_MASK,
                                      SYS_TRANSACTION_PREPARED, SYS_TRANSACTION_ROLLBACK, BatchMember, DecodeStatus,
                                      NewRecord, RecordView, decode_record, encode_record, next_batch_member,
                                      record_size)
from mqcore._fast.segment.boards cimport ROW_NONE, Shared, SharedSegment, make_queue, make_topic
from mqcore._fast.segment.bounds cimport note_flushed, note_written, queue_max_offset
from mqcore._fast.segment.doubts cimport DOUBT_MS, are_doubts, begin_doubts, doubt_from
from mqcore._fast.segment.offset_changes cimport put_committed
from mqcore._fast.wire.replies cimport put_decimal

from mqcore.errors import StoreError
from mqcore.layout import PUT_TALLY_BOUNDS_MS

cdef enum:
    TALLY_COUNT = 13
    OFFSET_TEXT_SIZE = 21           # a queue offset in decimal, and a comma

cdef int64_t TALLY_BOUNDS_MS[TALLY_COUNT - 1]
TALLY_BOUNDS_MS[:] = PUT_TALLY_BOUNDS_MS


cdef void finish_second(Shared *shared) noexcept nogil:
    # The end of a pair is published: its second queue counts on.
    if shared.board.intent_second_queue > 0:
        publish(&shared.queues[shared.board.intent_second_queue - 1].next_offset,
                shared.board.intent_second_next_offset)
        shared.board.intent_second_queue = 0


cdef void finish_intent(Shared *shared) noexcept nogil:
    cdef StoreBoard *board = shared.board
    if board.intent_end == 0 or observe(&board.wrote_offset) != board.intent_end:
        return
    if board.intent_queue_row != ROW_NONE:
        publish(&shared.queues[board.intent_queue_row].next_offset, board.intent_next_offset)
    finish_second(shared)
    put_relaxed(&board.put_times, board.put_times + board.intent_count)
    put_relaxed(&board.put_bytes, board.put_bytes + board.intent_size)
    note_written(board)
    publish(&board.intent_end, 0)


cdef void settle_intent(Appender *appender) noexcept nogil:
    # What a dead owner of the put lock had begun: finish it if its end was published, else wipe it. A whole record that
    # stayed behind the published end could meet the end of a later, shorter one, and recovery would take it for real.
    cdef StoreBoard *board = appender.shared.board
    cdef int64_t start
    cdef MappedFile *file
    finish_intent(appender.shared)
    if board.intent_end != 0:
        start = board.intent_end - board.intent_size
        check(start >= peek(&board.wrote_offset), "what is wiped was never published")
        file = file_at(appender.files, start)
        if file != NULL:
            memset(file.base + (start - file.start), 0, board.intent_size)
        publish(&board.intent_end, 0)
    # Also where the dead had not come to declare what it is of: the next intent would be taken for a pair's.
    board.intent_second_queue = 0
    put_relaxed(&board.locked_since, 0)
    put_relaxed(&board.put_repairs, board.put_repairs + 1)


cdef void give_put_lock(Appender *appender) noexcept nogil:
    appender.holds_lock = appender.keeps_lock
    if not appender.keeps_lock:
        lock_release(appender.shared.board.put_lock)


cdef void append_rest(Appender *appender) noexcept nogil:
    if appender.holds_lock:
        appender.holds_lock = False
        lock_release(appender.shared.board.put_lock)


# The lock alone: also for what must be possible while the store refuses messages.
cdef int hold_put_lock(Appender *appender) noexcept nogil:
    cdef Shared *shared = appender.shared
    cdef int taken = LOCK_TAKEN
    if not appender.holds_lock:
        taken = lock_take(shared.board.put_lock, appender.lock_timeout_ms)
    if taken == LOCK_TIMED_OUT:
        return PUT_STATUS_OS_PAGECACHE_BUSY
    if taken == LOCK_BROKEN:
        return PUT_STATUS_UNKNOWN_ERROR
    # An intent without an heir: the lock was inherited by somebody who could not wipe (see finish_intent).
    if taken == LOCK_INHERITED or peek(&shared.board.intent_end) != 0:
        settle_intent(appender)
    return PUT_STATUS_PUT_OK


cdef int take_put_lock_despite(Appender *appender, int64_t flags) noexcept nogil:
    cdef int status = hold_put_lock(appender)
    cdef int64_t refusing
    if status != PUT_STATUS_PUT_OK:
        return status
    refusing = observe(&appender.shared.board.store_flags) & REFUSING_FLAGS & ~flags
    if refusing != 0:
        give_put_lock(appender)
        return (PUT_STATUS_IN_SYNC_REPLICAS_NOT_ENOUGH if refusing == STORE_FLAG_NOT_ENOUGH_REPLICAS
                else PUT_STATUS_SERVICE_NOT_AVAILABLE)
    return PUT_STATUS_PUT_OK


cdef int take_put_lock(Appender *appender) noexcept nogil:
    return take_put_lock_despite(appender, 0)


cdef uint8_t *room_for(Appender *appender, int64_t size, int64_t *start) noexcept nogil:
    # Where *size* bytes go, after a filler if the file's rest is too small; NULL if there is no file. At least 8 bytes
    # stay free behind every record, for the filler that must follow it one day.
    cdef StoreBoard *board = appender.shared.board
    cdef int64_t end = peek(&board.wrote_offset)
    cdef int64_t rest = appender.file_size - end % appender.file_size
    cdef MappedFile *file
    start[0] = end
    if size + FILE_END_MIN_BLANK_SIZE > rest:
        start[0] = end + rest
        if file_made_at(appender.files, start[0]) == NULL:
            return NULL
        file = file_at(appender.files, end)
        if file == NULL:
            return NULL
        store_i32(file.base + (end - file.start) + BLANK_RECORD_TOTAL_SIZE_AT, <int32_t>rest)
        store_i32(file.base + (end - file.start) + BLANK_RECORD_MAGIC_AT, BLANK_MAGIC)
        put_relaxed(&board.file_rolls, board.file_rolls + 1)
    file = file_made_at(appender.files, start[0])
    if file == NULL:
        return NULL
    return file.base + (start[0] - file.start)


cdef int no_room(Appender *appender) noexcept nogil:
    # A full disk is told apart from a broken one; the flag is for people, the flush worker looks again and clears it.
    if appender.files.error == ENOSPC:
        or_full(&appender.shared.board.store_flags, STORE_FLAG_NO_NEXT_FILE)
        return PUT_STATUS_SERVICE_NOT_AVAILABLE
    return PUT_STATUS_CREATE_MAPEDFILE_FAILED


cdef void declare_intent(Shared *shared, int64_t end, int64_t next_offset, int32_t topic_row, int32_t queue_row,
                         int64_t count, int64_t size) noexcept nogil:
    check(peek(&shared.board.intent_end) == 0, "one append at a time has an intent")
    check(end - size >= peek(&shared.board.wrote_offset), "an append writes behind what is published")
    shared.board.intent_next_offset = next_offset
    shared.board.intent_topic_row = topic_row
    shared.board.intent_queue_row = queue_row
    shared.board.intent_count = count
    shared.board.intent_size = size
    publish(&shared.board.intent_end, end)


cdef void tally_put(Shared *shared, int64_t took_ms) noexcept nogil:
    cdef int64_t *tallies = &shared.board.put_tally_0
    cdef int number = 0
    while number < TALLY_COUNT - 1 and took_ms >= TALLY_BOUNDS_MS[number]:
        number += 1
    add_relaxed(&tallies[number], 1)


cdef inline void publish_end(Appender *appender, int32_t queue_row, int64_t next_offset,
                             const Appended *done) noexcept nogil:
    cdef Shared *shared = appender.shared
    check(done.end_offset == peek(&shared.board.intent_end), "the end that is published is the intent's")
    check(next_offset >= peek(&shared.queues[queue_row].next_offset), "a queue offset is given once")
    publish(&shared.board.wrote_offset, done.end_offset)
    note_written(shared.board)
    publish(&shared.queues[queue_row].next_offset, next_offset)
    publish(&shared.board.wrote_timestamp, done.store_timestamp)


cdef inline void count_append(Appender *appender, int32_t topic_row, int64_t began,
                              const Appended *done) noexcept nogil:
    # The last of an append: its intent ends here.
    cdef Shared *shared = appender.shared
    cdef StoreBoard *board = shared.board
    cdef int64_t took
    put_relaxed(&board.put_times, board.put_times + done.count)
    put_relaxed(&board.put_bytes, board.put_bytes + done.size)
    if appender.counts_topics:
        put_relaxed(&shared.topics[topic_row].put_nums, shared.topics[topic_row].put_nums + done.count)
        put_relaxed(&shared.topics[topic_row].put_bytes, shared.topics[topic_row].put_bytes + done.size)
    publish(&board.intent_end, 0)
    took = coarse_ms() - began
    if took > board.put_ms_max:
        put_relaxed(&board.put_ms_max, took)
    if appender.tallies:
        tally_put(shared, took)
    put_relaxed(&board.locked_since, 0)


cdef inline bint counts_in_queue(int32_t sys_flag) noexcept nogil:
    cdef int32_t kind = sys_flag & SYS_TRANSACTION_MASK
    return kind != SYS_TRANSACTION_PREPARED and kind != SYS_TRANSACTION_ROLLBACK


# Whether the queue is being dropped: no offset of it can be given until its birth is on disk.
cdef inline bint is_dropped(const Shared *shared, int32_t queue_row) noexcept nogil:
    return peek(&shared.queues[queue_row].next_offset) < 0


cdef bint any_dropped(const Shared *shared, const int32_t *rows, int32_t row_count) noexcept nogil:
    cdef int32_t index
    for index in range(row_count):
        if is_dropped(shared, rows[index]):
            return True
    return False


# Under the put lock, which is given back: one record into the log. *more* are rows of queues that it also counts in.
cdef inline int place_record(
    Appender *appender, NewRecord *fields, int32_t topic_row, int32_t queue_row, int32_t size, int64_t began,
    const int32_t *more, int32_t more_count, Appended *out
) noexcept nogil:
    cdef Shared *shared = appender.shared
    cdef int64_t next_offset, start
    cdef uint8_t *at
    if is_dropped(shared, queue_row):
        give_put_lock(appender)
        return PUT_STATUS_SERVICE_NOT_AVAILABLE
    out.store_timestamp = now_ms()
    put_relaxed(&shared.board.locked_since, out.store_timestamp)
    at = room_for(appender, size, &start)
    if at == NULL:
        put_relaxed(&shared.board.locked_since, 0)
        give_put_lock(appender)
        return no_room(appender)
    next_offset = peek(&shared.queues[queue_row].next_offset)
    fields.queue_offset = next_offset if counts_in_queue(fields.sys_flag) else 0
    fields.physical_offset = start
    fields.store_timestamp = out.store_timestamp
    if counts_in_queue(fields.sys_flag):
        next_offset += 1
    out.physical_offset = start
    out.end_offset = start + size
    out.queue_offset = fields.queue_offset
    out.count = 1
    out.size = size
    declare_intent(shared, out.end_offset, next_offset, topic_row, queue_row, 1, size)
    encode_record(at, fields)
    count_on(shared, more, more_count)
    publish_end(appender, queue_row, next_offset, out)
    count_append(appender, topic_row, began, out)
    give_put_lock(appender)
    return PUT_STATUS_PUT_OK


cdef inline bint is_too_large(const Appender *appender, int32_t size) noexcept nogil:
    return size < 0 or size > appender.record_size_max or size + FILE_END_MIN_BLANK_SIZE > appender.file_size


cdef int append_record(Appender *appender, NewRecord *fields, int32_t topic_row, int32_t queue_row,
                       Appended *out) noexcept nogil:
    cdef int32_t size = record_size(fields)
    cdef int64_t began
    cdef int status
    if is_too_large(appender, size):
        return PUT_STATUS_MESSAGE_ILLEGAL
    began = coarse_ms()
    status = take_put_lock(appender)
    if status != PUT_STATUS_PUT_OK:
        return status
    return place_record(appender, fields, topic_row, queue_row, size, began, NULL, 0, out)


cdef int append_pair(Appender *appender, NewRecord *first, int32_t topic_row, int32_t queue_row,
                     NewRecord *second, int32_t second_queue_row, MoreQueues *more, Appended *out) noexcept nogil:
    cdef int32_t *taken = NULL
    cdef int64_t began = coarse_ms()
    cdef int status
    check(queue_row != second_queue_row, "the two of a pair go to different queues")
    check(counts_in_queue(first.sys_flag) and counts_in_queue(second.sys_flag), "both of a pair take an offset")
    if more != NULL:
        if is_listed(more.rows, more.row_count, second_queue_row):
            return PUT_STATUS_MESSAGE_ILLEGAL
        taken = <int32_t *>malloc((more.row_count + 1) * sizeof(int32_t))
        if taken == NULL:
            return PUT_STATUS_UNKNOWN_ERROR
    status = take_put_lock(appender)
    if status == PUT_STATUS_PUT_OK:
        status = place_pair(appender, first, topic_row, queue_row, second, second_queue_row, began, more, taken, out)
        if status != PUT_STATUS_PUT_OK:
            put_relaxed(&appender.shared.board.locked_since, 0)
        give_put_lock(appender)
    free(taken)
    return status


# Under the put lock: two records into the log. *taken* has room for the rows of *more*.
cdef int place_pair(
    Appender *appender, NewRecord *first, int32_t topic_row, int32_t queue_row, NewRecord *second,
    int32_t second_queue_row, int64_t began, MoreQueues *more, int32_t *taken, Appended *out
) noexcept nogil:
    cdef Shared *shared = appender.shared
    cdef StoreBoard *board = shared.board
    cdef int32_t taken_count = 0, size, second_size
    cdef int64_t total, start
    cdef uint8_t *at
    cdef int status
    if is_dropped(shared, queue_row) or is_dropped(shared, second_queue_row):
        return PUT_STATUS_SERVICE_NOT_AVAILABLE
    if more != NULL:
        status = list_offsets(shared, first, queue_row, more, taken, &taken_count)
        if status != PUT_STATUS_PUT_OK:
            return status
    size = record_size(first)
    second_size = record_size(second)
    total = <int64_t>size + second_size
    if is_too_large(appender, size) or is_too_large(appender, second_size) or (
            total + FILE_END_MIN_BLANK_SIZE > appender.file_size):
        return PUT_STATUS_MESSAGE_ILLEGAL
    out.store_timestamp = now_ms()
    put_relaxed(&board.locked_since, out.store_timestamp)
    at = room_for(appender, total, &start)
    if at == NULL:
        return no_room(appender)
    first.queue_offset = peek(&shared.queues[queue_row].next_offset)
    second.queue_offset = peek(&shared.queues[second_queue_row].next_offset)
    first.physical_offset = start
    second.physical_offset = start + size
    first.store_timestamp = second.store_timestamp = out.store_timestamp
    out.physical_offset = start
    out.end_offset = start + total
    out.queue_offset = first.queue_offset
    out.count = 1
    out.size = size
    board.intent_second_next_offset = second.queue_offset + 1
    board.intent_second_queue = second_queue_row + 1
    declare_intent(shared, out.end_offset, first.queue_offset + 1, topic_row, queue_row, 2, total)
    # The second first: a start after the death of everybody takes what is whole in the log, and stops before the pair
    # as long as the first of it is not.
    encode_record(at + size, second)
    full_fence()
    encode_record(at, first)
    count_on(shared, taken, taken_count)
    publish_end(appender, queue_row, first.queue_offset + 1, out)
    finish_second(shared)
    put_relaxed(&board.put_times, board.put_times + 1)
    put_relaxed(&board.put_bytes, board.put_bytes + second_size)
    count_append(appender, topic_row, began, out)
    return PUT_STATUS_PUT_OK


cdef int append_to_queues(Appender *appender, NewRecord *fields, int32_t topic_row, int32_t queue_row,
                          MoreQueues *more, Appended *out) noexcept nogil:
    cdef int32_t *taken = <int32_t *>malloc((more.row_count + 1) * sizeof(int32_t))
    cdef int32_t taken_count = 0, size
    cdef int64_t began = coarse_ms()
    cdef int status
    if taken == NULL:
        return PUT_STATUS_UNKNOWN_ERROR
    status = take_put_lock(appender)
    if status != PUT_STATUS_PUT_OK:
        free(taken)
        return status
    status = list_offsets(appender.shared, fields, queue_row, more, taken, &taken_count)
    size = record_size(fields)
    if status == PUT_STATUS_PUT_OK and is_too_large(appender, size):
        status = PUT_STATUS_MESSAGE_ILLEGAL
    if status != PUT_STATUS_PUT_OK:
        give_put_lock(appender)
        free(taken)
        return status
    if not counts_in_queue(fields.sys_flag):
        taken_count = 0
    status = place_record(appender, fields, topic_row, queue_row, size, began, taken, taken_count, out)
    free(taken)
    return status


# Under the put lock: the offsets that a record takes of the queues *more* become part of its properties. *taken* gets
# the rows to be counted on, each once and not the record's own. A PutStatus.
cdef int list_offsets(const Shared *shared, NewRecord *fields, int32_t queue_row, MoreQueues *more, int32_t *taken,
                      int32_t *taken_count) noexcept nogil:
    cdef int32_t index, row
    cdef int32_t size = more.text_size
    if any_dropped(shared, more.rows, more.row_count):
        return PUT_STATUS_SERVICE_NOT_AVAILABLE
    for index in range(more.row_count):
        row = more.rows[index]
        if index > 0:
            more.text[size] = c","
            size += 1
        size += put_decimal(more.text + size, peek(&shared.queues[row].next_offset))
        if row != queue_row and not is_listed(taken, taken_count[0], row):
            taken[taken_count[0]] = row
            taken_count[0] += 1
    fields.properties = more.text
    fields.properties_size = size
    return PUT_STATUS_PROPERTIES_SIZE_EXCEEDED if size > PROPERTIES_SIZE_MAX else PUT_STATUS_PUT_OK


# Before the end is published: after a death in between an offset is left out in these queues, and none is given twice.
cdef inline void count_on(Shared *shared, const int32_t *rows, int32_t row_count) noexcept nogil:
    cdef int32_t index
    for index in range(row_count):
        publish(&shared.queues[rows[index]].next_offset, peek(&shared.queues[rows[index]].next_offset) + 1)


cdef bint is_listed(const int32_t *rows, int32_t row_count, int32_t row) noexcept nogil:
    cdef int32_t index
    for index in range(row_count):
        if rows[index] == row:
            return True
    return False


cdef int32_t count_batch(const uint8_t *body, int32_t body_size) noexcept nogil:
    cdef BatchMember member
    cdef int32_t at = 0
    cdef int32_t count = 0
    while at < body_size:
        if next_batch_member(body + at, body_size - at, &member) != DECODE_OK:
            return -1
        at += member.total_size
        count += 1
    return count


cdef int64_t batch_size(
    Appender *appender, NewRecord *fields, const uint8_t *body, int32_t body_size
) noexcept nogil:
    # The bytes of all members as records, or -1 if one of them breaks a limit.
    cdef BatchMember member
    cdef int32_t at = 0
    cdef int32_t size
    cdef int64_t total = 0
    while at < body_size:
        if next_batch_member(body + at, body_size - at, &member) != DECODE_OK:
            return -1
        fields.body_size = member.body_size
        fields.properties = member.properties
        fields.properties_size = member.properties_size
        size = record_size(fields)
        if size < 0 or size > appender.record_size_max:
            return -1
        total += size
        at += member.total_size
    return total


cdef int append_batch(Appender *appender, NewRecord *fields, const uint8_t *body, int32_t body_size,
                      int32_t topic_row, int32_t queue_row, int64_t *starts, int32_t starts_capacity,
                      Appended *out) noexcept nogil:
    cdef Shared *shared = appender.shared
    cdef BatchMember member
    cdef int64_t total = batch_size(appender, fields, body, body_size)
    cdef int32_t count = count_batch(body, body_size)
    cdef int64_t next_offset, start, began
    cdef int32_t source = 0
    cdef uint8_t *at
    cdef int status
    if total <= 0 or total + FILE_END_MIN_BLANK_SIZE > appender.file_size or count > starts_capacity:
        return PUT_STATUS_MESSAGE_ILLEGAL
    began = coarse_ms()
    status = take_put_lock(appender)
    if status != PUT_STATUS_PUT_OK:
        return status
    if is_dropped(shared, queue_row):
        give_put_lock(appender)
        return PUT_STATUS_SERVICE_NOT_AVAILABLE
    out.store_timestamp = now_ms()
    put_relaxed(&shared.board.locked_since, out.store_timestamp)
    at = room_for(appender, total, &start)
    if at == NULL:
        put_relaxed(&shared.board.locked_since, 0)
        give_put_lock(appender)
        return no_room(appender)
    next_offset = peek(&shared.queues[queue_row].next_offset)
    out.physical_offset = start
    out.end_offset = start + total
    out.queue_offset = next_offset
    out.count = 0
    out.size = <int32_t>total
    declare_intent(shared, out.end_offset, next_offset + count, topic_row, queue_row, count, total)
    fields.store_timestamp = out.store_timestamp
    while source < body_size:
        next_batch_member(body + source, body_size - source, &member)
        fields.flag = member.flag
        fields.body = member.body
        fields.body_size = member.body_size
        fields.body_crc = <int32_t>(crc32(member.body, member.body_size) & BODY_CRC_MASK)
        fields.properties = member.properties
        fields.properties_size = member.properties_size
        fields.queue_offset = next_offset + out.count
        fields.physical_offset = start
        encode_record(at, fields)
        starts[out.count] = start
        out.count += 1
        at += record_size(fields)
        start += record_size(fields)
        source += member.total_size
    publish_end(appender, queue_row, next_offset + out.count, out)
    count_append(appender, topic_row, began, out)
    give_put_lock(appender)
    return PUT_STATUS_PUT_OK


# How many bytes of data[0:size], which belong at *offset*, are whole records and fillers of one file; -1 if it begins
# with something else. *out* gets what the last of them says.
cdef int64_t whole_run(const Appender *appender, const uint8_t *data, int64_t size, int64_t offset,
                       Appended *out) noexcept nogil:
    cdef int64_t rest = appender.file_size - offset % appender.file_size
    cdef int64_t at = 0
    cdef RecordView record
    cdef DecodeStatus status
    while at < min(size, rest):
        status = decode_record(data + at, size - at, False, &record)
        if status == DECODE_SHORT and record.total_size + FILE_END_MIN_BLANK_SIZE <= rest - at:
            break  # what is to come fits into this file
        if status == DECODE_BLANK and load_i32(data + at + BLANK_RECORD_TOTAL_SIZE_AT) == rest - at:
            return rest if size >= rest else at
        if status != DECODE_OK or record.physical_offset != offset + at or (
                record.total_size + FILE_END_MIN_BLANK_SIZE > rest - at):
            return at if at > 0 else -1
        at += record.total_size
        out.count += 1
        out.store_timestamp = record.store_timestamp
    return at


cdef int append_raw(Appender *appender, int64_t offset, const uint8_t *data, int64_t size,
                    Appended *out) noexcept nogil:
    cdef Shared *shared = appender.shared
    cdef StoreBoard *board = shared.board
    cdef int64_t run = 1
    cdef MappedFile *file
    cdef int status = take_put_lock_despite(appender, STORE_FLAG_SLAVE | STORE_FLAG_NOT_ENOUGH_REPLICAS)
    out.physical_offset = out.end_offset = offset
    out.count = 0
    if status != PUT_STATUS_PUT_OK:
        return status
    if peek(&board.wrote_offset) != offset:
        give_put_lock(appender)
        return PUT_STATUS_MESSAGE_ILLEGAL
    put_relaxed(&board.locked_since, now_ms())
    while out.end_offset - offset < size:
        run = whole_run(appender, data + (out.end_offset - offset), size - (out.end_offset - offset), out.end_offset,
                        out)
        if run <= 0:
            status = PUT_STATUS_PUT_OK if run == 0 else PUT_STATUS_MESSAGE_ILLEGAL
            break
        file = file_made_at(appender.files, out.end_offset)
        if file == NULL:
            status = no_room(appender)
            break
        declare_intent(shared, out.end_offset + run, 0, ROW_NONE, ROW_NONE, 0, run)
        memcpy(file.base + (out.end_offset - file.start), data + (out.end_offset - offset), run)
        out.end_offset += run
        publish(&board.wrote_offset, out.end_offset)
        note_written(board)
        publish(&board.wrote_timestamp, max(peek(&board.wrote_timestamp), out.store_timestamp))
        publish(&board.intent_end, 0)
    put_relaxed(&board.locked_since, 0)
    give_put_lock(appender)
    return status


cdef int publish_raw(Appender *appender, int64_t offset, int64_t size, Appended *out) noexcept nogil:
    cdef StoreBoard *board = appender.shared.board
    cdef MappedFile *file
    cdef int64_t run = 1
    cdef int status = PUT_STATUS_PUT_OK
    out.physical_offset = out.end_offset = offset
    out.count = 0
    # Nobody else writes there, so it is looked at before the lock is taken.
    while run > 0 and out.end_offset - offset < size:
        file = file_at(appender.files, out.end_offset)
        if file == NULL:
            return no_room(appender)
        run = whole_run(appender, file.base + (out.end_offset - file.start), size - (out.end_offset - offset),
                        out.end_offset, out)
        out.end_offset += max(<int64_t>0, run)
    if out.end_offset > offset:
        status = take_put_lock_despite(appender, STORE_FLAG_SLAVE | STORE_FLAG_NOT_ENOUGH_REPLICAS)
        if status != PUT_STATUS_PUT_OK:
            out.end_offset = offset
            return status
        if peek(&board.wrote_offset) != offset:
            out.end_offset = offset
            run = -1
        else:
            publish(&board.wrote_offset, out.end_offset)
            note_written(board)
            publish(&board.wrote_timestamp, max(peek(&board.wrote_timestamp), out.store_timestamp))
        give_put_lock(appender)
    return PUT_STATUS_PUT_OK if run >= 0 else PUT_STATUS_MESSAGE_ILLEGAL


cdef bint begin_log(Appender *appender, int64_t offset) noexcept nogil:
    cdef StoreBoard *board = appender.shared.board
    cdef bint ok
    if hold_put_lock(appender) != PUT_STATUS_PUT_OK:
        return False
    ok = (peek(&board.wrote_offset) == 0 and offset % appender.file_size == 0
          and file_made_at(appender.files, offset) != NULL)
    if ok:
        # What is kept and on disk begins there too; the end comes last, since everybody else goes by that.
        publish(&board.min_offset, offset)
        publish(&board.flushed_offset, offset)
        publish(&board.wrote_offset, offset)
        note_written(board)
        note_flushed(board)
    give_put_lock(appender)
    return ok


cdef bint wipe_behind(Appender *appender, int64_t end) noexcept nogil:
    cdef int64_t at, size
    cdef MappedFile *file
    cdef bint ok = True
    if hold_put_lock(appender) != PUT_STATUS_PUT_OK:
        return False
    at = peek(&appender.shared.board.wrote_offset)
    while ok and at < end:
        size = min(end - at, appender.file_size - at % appender.file_size)
        file = file_at(appender.files, at)
        if file != NULL:
            memset(file.base + (at - file.start), 0, size)
        elif appender.files.error != ENOENT:
            ok = False
        at += size
    give_put_lock(appender)
    return ok


cdef bint fill_fields(SharedSegment segment, NewRecord *fields, bytes topic, int queue_id, int flag, int sys_flag,
                      int64_t born_timestamp, bytes born_address, int born_port, bytes store_address, int store_port,
                      int reconsume_times, int64_t prepared_transaction_offset, int32_t *topic_row,
                      int32_t *queue_row) except -1:
    # What is not content, borrowed from the arguments; the rows are made if they are not there. False: there is none.
    cdef const uint8_t *name = <const uint8_t *><const char *>topic
    memset(fields, 0, sizeof(NewRecord))
    topic_row[0] = make_topic(&segment.shared, name, <int32_t>len(topic))
    queue_row[0] = ROW_NONE
    if topic_row[0] != ROW_NONE:
        queue_row[0] = make_queue(&segment.shared, topic_row[0], queue_id)
    fields.queue_id = queue_id
    fields.flag = flag
    fields.sys_flag = sys_flag
    fields.born_timestamp = born_timestamp
    fields.born_host.address = <const uint8_t *><const char *>born_address
    fields.born_host.address_size = <int32_t>len(born_address)
    fields.born_host.port = born_port
    fields.store_host.address = <const uint8_t *><const char *>store_address
    fields.store_host.address_size = <int32_t>len(store_address)
    fields.store_host.port = store_port
    fields.reconsume_times = reconsume_times
    fields.prepared_transaction_offset = prepared_transaction_offset
    fields.topic = name
    fields.topic_size = <int32_t>len(topic)
    return queue_row[0] != ROW_NONE


cdef void fill_content(NewRecord *fields, bytes body, bytes properties):
    fields.body = <const uint8_t *><const char *>body
    fields.body_size = <int32_t>len(body)
    fields.body_crc = <int32_t>(crc32(fields.body, fields.body_size) & BODY_CRC_MASK)
    fields.properties = <const uint8_t *><const char *>properties
    fields.properties_size = <int32_t>len(properties)


cdef void close_more(MoreQueues *more) noexcept nogil:
    free(<void *>more.rows)
    free(more.text)
    memset(more, 0, sizeof(MoreQueues))


cdef void raise_next_offset(QueueRow *queue, int64_t next_offset) noexcept nogil:
    # One that is being dropped has none: it begins anew.
    if 0 <= peek(&queue.next_offset) < next_offset:
        publish(&queue.next_offset, next_offset)


# What groups are said to have got to and to have been given ends where their queues do now; under the put lock.
cdef void lower_offsets(Shared *shared) noexcept nogil:
    cdef OffsetRow *place
    cdef int64_t end
    cdef int32_t row
    for row in range(observe_i32(&shared.board.offset_rows)):
        place = &shared.offsets[row]
        end = peek(&shared.queues[place.queue_row].epoch_offset)
        if observe(&place.committed) > end:
            put_committed(shared, row, end)
        if observe(&place.pull_offset) > end:
            publish(&place.pull_offset, end)


cdef class CommitLogWriter:
    """The appender for Python: the broker process's own messages, and tests. One object belongs to one thread.

    *places*: the directory of the commit log, or a LogPlaces.
    """

    def __cinit__(self, SharedSegment segment not None, places not None, int64_t file_size,
                  int64_t max_message_size, int64_t lock_timeout_ms=1000, bint tallies=True):
        self.files = <FileSet *>malloc(sizeof(FileSet))
        if self.files == NULL:
            raise MemoryError()
        files_open(self.files, places, file_size, True, segment.fd)
        self.segment = segment
        self.appender.shared = &segment.shared
        self.appender.files = self.files
        self.appender.file_size = file_size
        self.appender.record_size_max = max_message_size + RECORD_OVERHEAD_MAX
        self.appender.lock_timeout_ms = lock_timeout_ms
        self.appender.counts_topics = False
        self.appender.tallies = tallies

    def __dealloc__(self):
        if self.files != NULL:
            files_close(self.files)
            free(self.files)

    def use(self, int64_t max_message_size, int64_t lock_timeout_ms):
        """Go by other limits from the next append on."""
        self.appender.record_size_max = max_message_size + RECORD_OVERHEAD_MAX
        self.appender.lock_timeout_ms = lock_timeout_ms

    def trim(self, int64_t offset):
        """Unmap the files that end at or before *offset*."""
        files_trim(self.files, offset)
        files_rest(self.files)

    def release(self, int64_t offset):
        """Let go of the pages before *offset*; their bytes stay readable."""
        files_release(self.files, offset)

    def begin_drop(self, list rows not None, int64_t dead_before=-1):
        """Refuse messages for the queues *rows* from here on; (physical offset, the rows).

        Every record of these queues starts before the offset, and stays dead once that is their birth. Queues that
        never had a message are left alone, and those of topics that exist; with *dead_before* all those are taken whose
        messages start before this offset, none of them undispatched. Raises StoreError if the put lock is not to be
        had.
        """
        cdef Shared *shared = &self.segment.shared
        cdef QueueRow *queue
        cdef int64_t next_offset, place
        cdef int32_t row
        cdef bint is_dead
        self.hold_lock()
        place = peek(&shared.board.wrote_offset)
        taken = []
        for row in rows:
            queue = &shared.queues[row]
            next_offset = peek(&queue.next_offset)
            if dead_before >= 0:
                is_dead = next_offset == queue_max_offset(queue) and 0 < peek(&queue.max_physical) <= dead_before
            else:
                is_dead = not observe(&shared.topics[queue.topic_row].config) & TOPIC_WORD_EXISTS
            if not is_dead or next_offset < 0 or (next_offset == 0 and queue_max_offset(queue) == 0):
                continue
            publish(&queue.next_offset, ~next_offset)
            taken.append(row)
        self.give_lock()
        return place, taken

    def end_drop(self, list rows not None, int64_t born):
        """The births of the queues *rows* are on disk: they begin at offset 0 again.

        With a negative *born* they are not, and the queues go on where they were. Raises StoreError if the put lock is
        not to be had.
        """
        cdef Shared *shared = &self.segment.shared
        cdef int32_t row
        self.hold_lock()
        if born >= 0:
            for row in rows:
                publish(&shared.queues[row].born, born)
            # Before the first message of a new queue: who sees that sees this, and clears the old files first.
            add_full(&shared.board.drops, 1)
        for row in rows:
            publish(&shared.queues[row].next_offset, 0 if born >= 0 else ~peek(&shared.queues[row].next_offset))
        self.give_lock()

    def stop_appends(self):
        """Refuse messages as a slave does: when this returns none is being appended, and none will be.

        Raises StoreError if the put lock is not to be had.
        """
        self.hold_lock()
        or_full(&self.segment.shared.board.store_flags, STORE_FLAG_SLAVE)
        self.give_lock()

    def begin_epoch(self, int64_t term, list tail not None, bint may_lack=False, bint waits_for_nobody=False):
        """Lead epoch *term* from the end of the log on, which is returned; messages are taken from here on.

        Nobody copies into the log any more. Queues go on behind their units, and behind *tail*, (row, next offset) of
        those whose records no unit tells of yet; groups stand behind none of these ends. *may_lack*: the log may lack
        what was given out. *waits_for_nobody*: what is not confirmed may be read from now on. Raises StoreError if the
        put lock, or a file, is not to be had.
        """
        cdef Shared *shared = &self.segment.shared
        cdef StoreBoard *board = shared.board
        cdef int64_t end, next_offset
        cdef int32_t row
        cdef bint goes_on
        # Half a record that came last, which could be met behind a shorter one.
        if not wipe_behind(&self.appender, observe(&board.received_offset)):
            raise StoreError("what was received in part cannot be wiped")
        self.hold_lock()
        for row in range(observe_i32(&board.queue_rows)):
            raise_next_offset(&shared.queues[row], queue_max_offset(&shared.queues[row]))
        for row, next_offset in tail:
            raise_next_offset(&shared.queues[row], next_offset)
        goes_on = are_doubts(shared)
        for row in range(observe_i32(&board.queue_rows)):
            next_offset = max(<int64_t>0, peek(&shared.queues[row].next_offset))
            publish(&shared.queues[row].epoch_offset, next_offset)
            doubt_from(&shared.queues[row], next_offset, goes_on)
        lower_offsets(shared)
        if may_lack:
            begin_doubts(shared, DOUBT_MS)
        end = peek(&board.wrote_offset)
        publish(&board.epoch_start, end)
        publish(&board.ha_term, term)
        if waits_for_nobody:
            and_full(&board.read_gates, ~<int64_t>READ_GATE_CONFIRMED)
            note_written(board)
            note_flushed(board)
        publish(&board.ha_role, HA_ROLE_MASTER)
        and_full(&board.store_flags, ~<int64_t>STORE_FLAG_SLAVE)
        self.give_lock()
        return end

    def append_raw(self, int64_t physical_offset, const uint8_t[::1] data not None):
        """Append bytes of another broker's log as they are: whole records and fillers that belong at *physical_offset*.

        Returns the end of what was taken; a record that *data* holds in part only stays out. Queue offsets are not
        counted on: who begins to append messages of his own sets them by the consume queues. Raises StoreError, and
        then what went before is stored, if the log does not end at *physical_offset*, if the bytes do not belong there,
        or if there is no room.
        """
        cdef Appended done
        cdef int64_t size = data.shape[0]
        cdef const uint8_t *base = &data[0] if size > 0 else NULL
        cdef int status
        memset(&done, 0, sizeof(done))
        with nogil:
            status = append_raw(&self.appender, physical_offset, base, size, &done)
        if status == PUT_STATUS_PUT_OK:
            return done.end_offset
        if status == PUT_STATUS_MESSAGE_ILLEGAL:
            end = observe(&self.segment.shared.board.wrote_offset)
            raise StoreError(
                f"bytes for {done.end_offset}: no whole record or filler of that place; the log ends at {end}"
            )
        raise StoreError(f"bytes for {done.end_offset} not appended: PutStatus {status}")

    cdef int hold_lock(self) except -1:
        cdef int status
        with nogil:
            status = hold_put_lock(&self.appender)
        if status != PUT_STATUS_PUT_OK:
            raise StoreError("the put lock is not to be had")
        return 0

    cdef void give_lock(self) noexcept:
        give_put_lock(&self.appender)

    def append(self, *, bytes topic not None, int queue_id, bytes body not None, bytes properties not None,
               int flag, int sys_flag, int64_t born_timestamp, bytes born_address not None, int born_port,
               bytes store_address not None, int store_port, int reconsume_times=0,
               int64_t prepared_transaction_offset=0, bint is_batch=False, list more_queues=None,
               int64_t wait_ms=-1):
        """Append a message, or the members of a batch body whose shared properties are *properties*.

        With *more_queues*, (topic, queue id) each, a message takes the next offset of these queues too; *properties*
        then ends with the name of the property that gets the offsets, and its 0x01.

        Returns (PutStatus, physical offsets of the records, end offset, first queue offset, store timestamp, size).
        Only on PUT_OK is anything stored. Addresses have 4 or 16 bytes. Blocks at most *wait_ms* for the lock, by
        default for its timeout, and lets other threads run meanwhile; they must not use this writer.
        """
        cdef NewRecord fields
        cdef Appended done
        cdef int64_t lock_timeout_ms = self.appender.lock_timeout_ms
        cdef int32_t topic_row, queue_row
        memset(&done, 0, sizeof(done))
        if not fill_fields(self.segment, &fields, topic, queue_id, flag, sys_flag, born_timestamp, born_address,
                           born_port, store_address, store_port, reconsume_times, prepared_transaction_offset,
                           &topic_row, &queue_row):
            return PUT_STATUS_MESSAGE_ILLEGAL, [], 0, 0, 0, 0
        if wait_ms < 0:
            return self.append_fields(&fields, &done, topic_row, queue_row, body, properties, is_batch, more_queues)
        self.appender.lock_timeout_ms = wait_ms
        try:
            return self.append_fields(&fields, &done, topic_row, queue_row, body, properties, is_batch, more_queues)
        finally:
            self.appender.lock_timeout_ms = lock_timeout_ms

    def append_pair(self, dict first not None, dict second not None, int64_t wait_ms=-1):
        """Append two messages of different queues, both or neither, whoever dies over it; as ``append`` of *first*.

        The dicts are the arguments of ``append`` that make one message: no batch, and further queues of the first only.
        The end offset is that of the second, and the size that of the first.
        """
        cdef NewRecord fields[2]
        cdef int32_t topic_rows[2]
        cdef int32_t queue_rows[2]
        cdef Appended done
        cdef int64_t lock_timeout_ms = self.appender.lock_timeout_ms
        cdef MoreQueues more
        cdef int status, index
        memset(&done, 0, sizeof(done))
        memset(&more, 0, sizeof(more))
        for index, message in enumerate((first, second)):
            if not fill_fields(
                    self.segment, &fields[index], message["topic"], message["queue_id"], message["flag"],
                    message["sys_flag"], message["born_timestamp"], message["born_address"], message["born_port"],
                    message["store_address"], message["store_port"], message.get("reconsume_times", 0),
                    message.get("prepared_transaction_offset", 0), &topic_rows[index], &queue_rows[index]):
                return PUT_STATUS_MESSAGE_ILLEGAL, [], 0, 0, 0, 0
            fill_content(&fields[index], message["body"], message["properties"])
        if queue_rows[0] == queue_rows[1]:
            return PUT_STATUS_MESSAGE_ILLEGAL, [], 0, 0, 0, 0
        more_queues = first.get("more_queues")
        if more_queues:
            status = self.open_more(&more, &fields[0], more_queues)
            if status != PUT_STATUS_PUT_OK:
                return status, [], 0, 0, 0, 0
        if wait_ms >= 0:
            self.appender.lock_timeout_ms = wait_ms
        with nogil:
            status = append_pair(&self.appender, &fields[0], topic_rows[0], queue_rows[0], &fields[1], queue_rows[1],
                                 &more if more.rows != NULL else NULL, &done)
        self.appender.lock_timeout_ms = lock_timeout_ms
        close_more(&more)
        offsets = [done.physical_offset] if status == PUT_STATUS_PUT_OK else []
        return status, offsets, done.end_offset, done.queue_offset, done.store_timestamp, done.size

    cdef object append_fields(self, NewRecord *fields, Appended *done, int32_t topic_row, int32_t queue_row,
                              bytes body, bytes properties, bint is_batch, list more_queues):
        cdef int64_t *starts = NULL
        cdef const uint8_t *members
        cdef int32_t count, size
        cdef int status
        if not is_batch:
            fill_content(fields, body, properties)
            if more_queues:
                status = self.append_to_more(fields, topic_row, queue_row, more_queues, done)
            else:
                with nogil:
                    status = append_record(&self.appender, fields, topic_row, queue_row, done)
            offsets = [done.physical_offset] if status == PUT_STATUS_PUT_OK else []
            return status, offsets, done.end_offset, done.queue_offset, done.store_timestamp, done.size
        count = max(1, <int32_t>len(body) // (BATCH_MEMBER_HEAD_SIZE + 2))
        starts = <int64_t *>malloc(count * sizeof(int64_t))
        if starts == NULL:
            raise MemoryError()
        try:
            fields.batch_properties = <const uint8_t *><const char *>properties
            fields.batch_properties_size = <int32_t>len(properties)
            members = <const uint8_t *><const char *>body
            size = <int32_t>len(body)
            with nogil:
                status = append_batch(&self.appender, fields, members, size, topic_row, queue_row, starts, count, done)
            offsets = [starts[index] for index in range(done.count)] if status == PUT_STATUS_PUT_OK else []
            return status, offsets, done.end_offset, done.queue_offset, done.store_timestamp, done.size
        finally:
            free(starts)

    cdef int append_to_more(self, NewRecord *fields, int32_t topic_row, int32_t queue_row, list queues,
                            Appended *out) except -1:
        cdef MoreQueues more
        cdef int status
        memset(&more, 0, sizeof(more))
        status = self.open_more(&more, fields, queues)
        if status == PUT_STATUS_PUT_OK:
            with nogil:
                status = append_to_queues(&self.appender, fields, topic_row, queue_row, &more, out)
        close_more(&more)
        return status

    cdef int open_more(self, MoreQueues *more, const NewRecord *fields, list queues) except -1:
        # Fill *more*, which is all zero; only on PUT_OK is there anything to be closed.
        cdef Shared *shared = &self.segment.shared
        cdef int32_t row, topic, index
        cdef int32_t *rows
        cdef bytes name
        if fields.properties_size > PROPERTIES_SIZE_MAX:
            return PUT_STATUS_PROPERTIES_SIZE_EXCEEDED
        rows = <int32_t *>malloc(len(queues) * sizeof(int32_t))
        more.rows = rows
        more.text = <uint8_t *>malloc(fields.properties_size + len(queues) * OFFSET_TEXT_SIZE)
        if more.rows == NULL or more.text == NULL:
            close_more(more)
            raise MemoryError()
        # Rows are made before the put lock is taken: see SHARING.md.
        for index, (name, queue_id) in enumerate(queues):
            topic = make_topic(shared, <const uint8_t *><const char *>name, <int32_t>len(name))
            row = make_queue(shared, topic, queue_id) if topic != ROW_NONE else ROW_NONE
            if row == ROW_NONE:
                close_more(more)
                return PUT_STATUS_MESSAGE_ILLEGAL
            rows[index] = row
        more.row_count = <int32_t>len(queues)
        more.text_size = fields.properties_size
        memcpy(more.text, fields.properties, more.text_size)
        return PUT_STATUS_PUT_OK
