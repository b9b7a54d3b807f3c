"""Which queue offsets are given to records that may not be dispatched yet.

Who takes the place of a master has such records at the end of the log. They become readable when the group has them,
and until then no unit tells of them; a message that got one of their offsets would be found in place of theirs.
"""

from libc.errno cimport ENOSPC
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.stdio cimport snprintf

from mqcore._fast.base.atomics cimport observe, observe_i32
from mqcore._fast.base.layout cimport CQ_UNIT_SIZE, QUEUE_CAPACITY
from mqcore._fast.base.store_file cimport PATH_SIZE_MAX
from mqcore._fast.log.record cimport RecordView
from mqcore._fast.queues.dispatch cimport Dispatcher
from mqcore._fast.queues.writer cimport is_topic
from mqcore._fast.segment.boards cimport ROW_NONE, Shared, SharedSegment, make_queue, make_topic

cdef int64_t QUEUE_OFFSET_MAX = (<int64_t>1 << 62) // CQ_UNIT_SIZE


cdef class LogTail(Dispatcher):
    """A dispatcher that writes nothing: it counts on the units that it would have written. See ``dispatch``.

    Their queues get rows. What is passed over when it is dispatched is passed over here.
    """

    cdef SharedSegment segment
    cdef int64_t *next_by_row

    def __cinit__(self, *_arguments):
        self.index_enabled = False
        self.next_by_row = <int64_t *>calloc(QUEUE_CAPACITY, sizeof(int64_t))
        if self.next_by_row == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.next_by_row)

    def attach(self, SharedSegment segment not None):
        """Go by the queues on *segment*; once, before anything else."""
        self.segment = segment

    cdef bint put_unit(self, const RecordView *record, int64_t tags_code, bint with_ext) noexcept nogil:
        cdef Shared *shared = &self.segment.shared
        cdef int32_t topic_row
        cdef int32_t row = ROW_NONE
        if record.queue_id < 0 or not is_topic(record.topic, record.topic_size) or not (
                0 <= record.queue_offset <= QUEUE_OFFSET_MAX):
            self.skipped_count += 1
            return True
        topic_row = make_topic(shared, record.topic, record.topic_size)
        if topic_row != ROW_NONE:
            row = make_queue(shared, topic_row, record.queue_id)
        if row == ROW_NONE:
            self.failure.error_number = ENOSPC
            snprintf(self.failure.path, PATH_SIZE_MAX, "the board of queues")
            return False
        if record.physical_offset < observe(&shared.queues[row].born):
            self.dead_count += 1
        elif record.queue_offset >= self.next_by_row[row]:
            self.next_by_row[row] = record.queue_offset + 1
        return True

    def next_offsets(self):
        """(row, next queue offset) of each queue that the records seen so far are in."""
        cdef int32_t row
        found = []
        for row in range(observe_i32(&self.segment.shared.board.queue_rows)):
            if self.next_by_row[row] > 0:
                found.append((row, self.next_by_row[row]))
        return found
