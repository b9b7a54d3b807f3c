"""A stored record put again under another topic or queue."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy, memset

from mqcore._fast.base.layout cimport (PROPERTIES_SIZE_MAX, PUT_STATUS_MESSAGE_ILLEGAL,
                                       PUT_STATUS_PROPERTIES_SIZE_EXCEEDED, PUT_STATUS_PUT_OK)
from mqcore._fast.log.append cimport Appended, Appender, CommitLogWriter, append_record
from mqcore._fast.log.mapped_file cimport FileSet, file_pinned_at, file_unpin
from mqcore._fast.log.record cimport DECODE_OK, NewRecord, RecordView, decode_record
from mqcore._fast.segment.boards cimport ROW_NONE, Shared, make_queue, make_topic

cdef extern from *:
    """
    static inline void mq_touch(const unsigned char *at, long size) {
        for (long step = 0; step < size; step += 4096) (void)*(volatile const unsigned char *)(at + step);
        if (size > 0) (void)*(volatile const unsigned char *)(at + size - 1);
    }
    """
    void mq_touch(const uint8_t *at, int64_t size) noexcept nogil

cdef enum:
    NAME_END = 1                    # between a name and its value
    PAIR_END = 2                    # between two properties
    NAMES_MAX = 64


cdef bint stored_open(FileSet *files, int64_t physical_offset, int64_t end, StoredRecord *out) noexcept nogil:
    cdef const uint8_t *at
    cdef int64_t size
    out.file = NULL
    if physical_offset < 0 or physical_offset >= end:
        return False
    out.file = file_pinned_at(files, physical_offset)
    if out.file == NULL:
        return False
    at = out.file.base + (physical_offset - out.file.start)
    size = min(out.file.start + files.file_size, end) - physical_offset
    if decode_record(at, size, False, &out.view) == DECODE_OK and out.view.physical_offset == physical_offset:
        return True
    stored_close(out)
    return False


cdef void stored_close(StoredRecord *stored) noexcept nogil:
    if stored.file != NULL:
        file_unpin(stored.file)
        stored.file = NULL


cdef inline bint is_dropped(const Republication *change, const uint8_t *name, int64_t size) noexcept nogil:
    cdef int32_t index
    for index in range(change.dropped_count):
        if change.dropped[index].size == size and memcmp(change.dropped[index].text, name, size) == 0:
            return True
    return False


cdef int32_t rewritten(const RecordView *record, const Republication *change, uint8_t *text) noexcept nogil:
    # The copy's properties text; its size, or -1 if there is no room. A pair without name or value goes, as it does
    # whenever RocketMQ reads properties and writes them again.
    cdef const uint8_t *at = record.properties
    cdef const uint8_t *end = at + record.properties_size
    cdef const uint8_t *stop
    cdef const uint8_t *split
    cdef int32_t size = 0
    while at < end:
        stop = <const uint8_t *>memchr(at, PAIR_END, end - at)
        if stop == NULL:
            stop = end
        split = <const uint8_t *>memchr(at, NAME_END, stop - at)
        if split != NULL and split > at and stop > split + 1 and not is_dropped(change, at, split - at):
            if size > 0:
                text[size] = PAIR_END
                size += 1
            # It fits: the record's own text did, and nothing is longer here.
            memcpy(text + size, at, stop - at)
            size += <int32_t>(stop - at)
        at = stop + 1
    if change.added_size > 0:
        if change.added_size + (size > 0) > PROPERTIES_SIZE_MAX - size:
            return -1
        if size > 0:
            text[size] = PAIR_END
            size += 1
        memcpy(text + size, change.added, change.added_size)
        size += change.added_size
    return size


cdef bint republished(const Shared *shared, const RecordView *record, const Republication *change, uint8_t *text,
                      NewRecord *out) noexcept nogil:
    memset(out, 0, sizeof(NewRecord))
    out.properties_size = rewritten(record, change, text)
    if out.properties_size < 0:
        return False
    out.properties = text
    out.body_crc = record.body_crc
    out.queue_id = change.queue_id
    out.flag = record.flag
    out.sys_flag = (record.sys_flag & ~change.sys_flag_cleared) | change.sys_flag_set
    out.born_timestamp = record.born_timestamp
    out.born_host = record.born_host
    # The board has its own host too, but a record keeps the one under which it was acknowledged, as in RocketMQ.
    out.store_host = record.store_host
    out.reconsume_times = record.reconsume_times
    out.prepared_transaction_offset = change.prepared_transaction_offset
    out.body_size = record.body_size
    out.body = record.body
    out.topic = shared.topics[change.topic_row].name
    out.topic_size = shared.topics[change.topic_row].name_size
    # A page that is not there is waited for here, and not under the put lock.
    mq_touch(record.body, record.body_size)
    return True


cdef int republish(Appender *appender, const RecordView *record, const Republication *change,
                   Appended *out) noexcept nogil:
    cdef uint8_t text[PROPERTIES_SIZE_MAX]
    cdef NewRecord fields
    if not republished(appender.shared, record, change, text, &fields):
        return PUT_STATUS_PROPERTIES_SIZE_EXCEEDED
    return append_record(appender, &fields, change.topic_row, change.queue_row, out)


def republish_record(
    CommitLogWriter writer not None, int64_t physical_offset, *, bytes topic not None, int queue_id,
    tuple dropped not None=(), bytes added not None=b"", int sys_flag_cleared=0, int sys_flag_set=0,
    int64_t prepared_transaction_offset=0
):
    """Append the record at *physical_offset* again, for tests, and return what ``append`` does; None if none is there.

    *dropped*: names of properties; *added*: a properties text.
    """
    cdef PropertyName names[NAMES_MAX]
    cdef Republication change
    cdef StoredRecord stored
    cdef Appended done
    cdef Shared *shared = writer.appender.shared
    cdef int32_t index
    cdef int status = PUT_STATUS_MESSAGE_ILLEGAL
    cdef bytes name
    if len(dropped) > NAMES_MAX:
        raise ValueError(f"dropped: got {len(dropped)} names, wanted at most {NAMES_MAX}")
    memset(&change, 0, sizeof(change))
    memset(&done, 0, sizeof(done))
    change.topic_row = make_topic(shared, <const uint8_t *><const char *>topic, <int32_t>len(topic))
    change.queue_row = make_queue(shared, change.topic_row, queue_id) if change.topic_row != ROW_NONE else ROW_NONE
    if change.queue_row == ROW_NONE:
        return status, [], 0, 0, 0, 0
    for index, name in enumerate(dropped):
        names[index].text = <const char *>name
        names[index].size = <int32_t>len(name)
    change.dropped = names
    change.dropped_count = <int32_t>len(dropped)
    change.added = <const uint8_t *><const char *>added
    change.added_size = <int32_t>len(added)
    change.queue_id = queue_id
    change.sys_flag_cleared = sys_flag_cleared
    change.sys_flag_set = sys_flag_set
    change.prepared_transaction_offset = prepared_transaction_offset
    with nogil:
        if stored_open(writer.files, physical_offset, shared.board.wrote_offset, &stored):
            status = republish(&writer.appender, &stored.view, &change, &done)
            stored_close(&stored)
        else:
            status = -1
    if status < 0:
        return None
    offsets = [done.physical_offset] if status == PUT_STATUS_PUT_OK else []
    return status, offsets, done.end_offset, done.queue_offset, done.store_timestamp, done.size
