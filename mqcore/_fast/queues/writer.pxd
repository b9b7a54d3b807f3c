# Consume queue files that are being written: found by topic and queue id, made, mapped, grown. One thread.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mqcore._fast.base.store_file cimport DIRECTORY_SIZE_MAX, FileFailure
from mqcore._fast.queues.ext_writer cimport ExtWriter
from mqcore._fast.queues.first_files cimport FirstFiles
from mqcore._fast.queues.newest_file cimport NewestFile


cdef enum:
    FILL_UNITS_MAX = 1000000        # a larger gap is taken for a damaged queue offset


cdef struct QueueWriter:            # the newest file of one consume queue
    uint8_t topic[128]
    int32_t topic_size
    int32_t queue_id
    uint64_t hash
    int64_t born                    # records that start before are of a queue that was dropped
    bint loaded                     # what follows has been read from disk
    bint bare                       # the only file, and no unit of a message in it
    int32_t cradle                  # where its units lie while its first file is made, plus one; 0 = in files
    NewestFile file
    int64_t max_physical            # end of the newest record that has a unit; -1 = none
    int64_t known_code              # of the newest unit when the queue was loaded
    ExtWriter ext


cdef struct QueueTable:
    char path[DIRECTORY_SIZE_MAX]   # the directory consumequeue
    int64_t file_size
    char ext_path[DIRECTORY_SIZE_MAX]   # the directory consumequeue_ext
    int64_t ext_file_size               # 0 = ext units are not written
    QueueWriter **slots             # open addressing; capacity is a power of two
    size_t capacity
    size_t count
    int32_t mapped_count
    int32_t mapped_count_max
    size_t clock_hand
    FirstFiles *first_files         # NULL: a new queue waits for its file


cdef bint queues_open(
    QueueTable *queues, const char *path, int64_t file_size, int32_t mapped_count_max
) noexcept nogil
cdef void queues_close(QueueTable *queues) noexcept nogil

# The writer of a queue, its end read from disk the first time. The caller has seen that is_topic(). NULL: *failure
# says.
cdef QueueWriter *find_writer(
    QueueTable *queues, const uint8_t *topic, int32_t topic_size, int32_t queue_id, FileFailure *failure
) noexcept nogil

# See that the newest file has room for a unit; a first file starts, pre-filled, so that *target* (bytes) is its end.
# With *fill* any gap before *target* is filled, up to FILL_UNITS_MAX units.
cdef bint make_room(
    QueueTable *queues, QueueWriter *queue, int64_t target, bint fill, FileFailure *failure
) noexcept nogil

# Bytes in the queue's stream, up to the last unit; -1 = the queue has no file.
cdef inline int64_t queue_end(const QueueWriter *queue) noexcept nogil:
    return queue.file.file_start + queue.file.wrote


# Append after make_room.
cdef bint append_unit(
    QueueTable *queues, QueueWriter *queue, int64_t physical_offset, int32_t record_size, int64_t tags_code,
    FileFailure *failure
) noexcept nogil

# Append a unit to the queue's ext files; *address* is set, and takes the place of the tags code.
cdef bint append_ext(
    QueueTable *queues, QueueWriter *queue, int64_t tags_code, int64_t store_timestamp, const uint8_t *bitmap,
    int32_t bitmap_size, int64_t *address, FileFailure *failure
) noexcept nogil

# Let the queues whose first files are there go on in them; with *all* every one, and a file that is being made is
# waited for. False: a file cannot be made, *failure* says which, and the queue stays where it is.
cdef bint leave_cradles(QueueTable *queues, bint all, FileFailure *failure) noexcept nogil

# A queue whose units lie in a cradle that a predecessor took: it goes on there.
cdef bint resume_cradle(
    QueueTable *queues, const uint8_t *topic, int32_t topic_size, int32_t queue_id, int32_t number, FileFailure *failure
) noexcept nogil

# Sync what was appended since the last time, ext files first; returns files synced, -1 on failure.
cdef int64_t sync_queue(QueueTable *queues, QueueWriter *queue, FileFailure *failure) noexcept nogil

# How many queues sync_queue would have something to do for.
cdef size_t queues_unsynced(const QueueTable *queues) noexcept nogil

# All of the queue is durable, by other means; returns files that had something to sync.
cdef int64_t queue_was_synced(QueueTable *queues, QueueWriter *queue) noexcept nogil

# The queue was dropped and is born anew at a physical offset: what is known of its files is forgotten.
cdef bint bear_queue(
    QueueTable *queues, const uint8_t *topic, int32_t topic_size, int32_t queue_id, int64_t born, FileFailure *failure
) noexcept nogil

# Whether the bytes may become the name of a directory: 1..127 of % | a-z A-Z 0-9 _ -
cdef bint is_topic(const uint8_t *topic, Py_ssize_t size) noexcept nogil
