# Appends to the commit log, by whoever holds the put lock: the send workers, and the broker process for what is rare.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.log.mapped_file cimport FileSet
from mqcore._fast.log.record cimport NewRecord
from mqcore._fast.segment.boards cimport Shared, SharedSegment

cdef struct Appender:
    Shared *shared
    FileSet *files
    int64_t file_size
    int64_t record_size_max       # maxMessageSize + 64 KiB
    int64_t lock_timeout_ms       # longer than this is OS_PAGECACHE_BUSY
    bint counts_topics            # whether appends count into the topic's row
    bint tallies                  # whether a put ends with its append: nobody waits for a flush
    bint keeps_lock               # take the put lock once for many appends, until append_rest
    bint holds_lock

cdef struct Appended:
    int64_t physical_offset       # of the first record
    int64_t end_offset            # what must be flushed for the message to be durable
    int64_t queue_offset          # of the first record
    int64_t store_timestamp
    int32_t count
    int32_t size

cdef struct MoreQueues:           # beside its own, of one record
    const int32_t *rows
    int32_t row_count
    uint8_t *text                 # its properties so far; their offsets follow there, in the order of *rows*
    int32_t text_size             # with commas between, for which there must be room for 21 bytes each

# Append one record (fields.queue_id names the queue, *queue_row* its row). Returns a PutStatus; *out* is set on PUT_OK.
# On PUT_OK the record is complete in the mapped file and its end is published.
cdef int append_record(Appender *appender, NewRecord *fields, int32_t topic_row, int32_t queue_row,
                       Appended *out) noexcept nogil

# Append one record that takes the next offset of further queues too.
cdef int append_to_queues(Appender *appender, NewRecord *fields, int32_t topic_row, int32_t queue_row,
                          MoreQueues *more, Appended *out) noexcept nogil

# Append two records of different queues, both or neither, whoever dies over it: they lie side by side, and their end is
# published once. *out* tells of the first, but for end_offset; the second counts in no topic's row. The first takes
# offsets of further queues if *more* is not NULL.
cdef int append_pair(Appender *appender, NewRecord *first, int32_t topic_row, int32_t queue_row,
                     NewRecord *second, int32_t second_queue_row, MoreQueues *more, Appended *out) noexcept nogil

# Append the members of a batch body as records of their own, contiguous, with consecutive queue offsets. *fields* has
# what they share, *ends* room for *ends_capacity* physical offsets (each member's start); batch.count says how many.
cdef int append_batch(Appender *appender, NewRecord *fields, const uint8_t *body, int32_t body_size,
                      int32_t topic_row, int32_t queue_row, int64_t *starts, int32_t starts_capacity,
                      Appended *out) noexcept nogil

# After a row of appends with keeps_lock, before anything that may wait: give the put lock back.
cdef void append_rest(Appender *appender) noexcept nogil

# Count a put by the time that it took.
cdef void tally_put(Shared *shared, int64_t took_ms) noexcept nogil

# Append bytes of another broker's log, which belong at *offset*, as they are: whole records and fillers. The end of
# what was taken is out.end_offset, also when the status is not PUT_OK: MESSAGE_ILLEGAL for what does not belong there.
cdef int append_raw(Appender *appender, int64_t offset, const uint8_t *data, int64_t size, Appended *out) noexcept nogil

# The same for bytes that lie in the mapped file already, behind the published end *offset*.
cdef int publish_raw(Appender *appender, int64_t offset, int64_t size, Appended *out) noexcept nogil

# Let an empty log begin at *offset*, the start of a file, which is made. False: it is not empty, or the file is not to
# be had.
cdef bint begin_log(Appender *appender, int64_t offset) noexcept nogil

# Zeros in [published end, end), which hold what somebody had not published; False: the lock or a file is not to be had.
cdef bint wipe_behind(Appender *appender, int64_t end) noexcept nogil

# How many members a batch body has, or -1 if it is malformed.
cdef int32_t count_batch(const uint8_t *body, int32_t body_size) noexcept nogil

cdef class CommitLogWriter:
    cdef Appender appender
    cdef FileSet *files
    cdef SharedSegment segment
    cdef int hold_lock(self) except -1
    cdef void give_lock(self) noexcept
    cdef object append_fields(self, NewRecord *fields, Appended *done, int32_t topic_row, int32_t queue_row,
                              bytes body, bytes properties, bint is_batch, list more_queues)
    cdef int append_to_more(self, NewRecord *fields, int32_t topic_row, int32_t queue_row, list queues,
                            Appended *out) except -1
    cdef int open_more(self, MoreQueues *more, const NewRecord *fields, list queues) except -1
