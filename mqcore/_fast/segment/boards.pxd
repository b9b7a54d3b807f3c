# The shared segment: rows of topics, queues, groups and offsets, and how they are found.
#
# A row is found through an open-addressing index of row numbers (stored plus one; 0 = free). Rows are made by anyone
# under the board lock and are never moved or taken away, so that readers need no lock. A row is whole before it counts,
# and counts before its number is published in the index; who inherits the lock from a dead owner does that last step.
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from mqcore._fast.base.atomics cimport observe, observe_i32
from mqcore._fast.base.hashing cimport hash_bytes
from mqcore._fast.base.layout cimport (EPOCH_ROWS, CradleRow, EpochRow, GroupRow, LatencyRow, OffsetRow, QueueRow,
                                       QuotaRow, SlaveRow, StoreBoard, TopicRow, WorkerRow)

cdef struct Shared:
    uint8_t *base
    StoreBoard *board
    WorkerRow *workers
    TopicRow *topics
    int32_t *topic_index
    QueueRow *queues
    int32_t *queue_index
    GroupRow *groups
    int32_t *group_index
    OffsetRow *offsets
    int32_t *offset_index
    int64_t *offset_changes         # a bit for each offset row: it was committed since they were taken
    int64_t *offset_change_words    # a bit for each word of those
    CradleRow *cradles
    uint8_t *cradle_units           # CRADLE_SIZE for each
    EpochRow *topic_epochs
    EpochRow *group_epochs
    SlaveRow *slaves
    QuotaRow *quotas
    int64_t *group_nonces           # of members by their ids, GROUP_MEMBERS_MAX; 0 = not known
    LatencyRow *latencies           # LATENCY_KINDS for each send worker, which alone writes them
    int32_t *address_counts         # ADDRESS_COUNTS for each send worker, which alone writes them

cdef enum:
    ROW_NONE = -1

# Row number of the key, or ROW_NONE.
cdef int32_t find_topic(const Shared *shared, const uint8_t *name, int32_t size) noexcept nogil
cdef int32_t find_queue(const Shared *shared, int32_t topic_row, int32_t queue_id) noexcept nogil
cdef int32_t find_group(const Shared *shared, const uint8_t *name, int32_t size) noexcept nogil
cdef int32_t find_offset(const Shared *shared, int32_t group_row, int32_t queue_row) noexcept nogil

# The same, looked for first where it was last: messages of a topic come one after the other, and a topic's queues have
# rows side by side. *near* is any number of a row; a row once made stays.
cdef inline int32_t find_topic_near(const Shared *shared, const uint8_t *name, int32_t size,
                                    int32_t near) noexcept nogil:
    if near >= 0 and shared.topics[near].name_size == size and memcmp(shared.topics[near].name, name, size) == 0:
        return near
    return find_topic(shared, name, size)

cdef inline int32_t find_queue_near(const Shared *shared, int32_t topic_row, int32_t queue_id,
                                    int32_t near) noexcept nogil:
    cdef int64_t row
    if near >= 0:
        row = <int64_t>near + queue_id - shared.queues[near].queue_id
        # One that is being filled does not count yet.
        if (0 <= row < observe_i32(&shared.board.queue_rows) and shared.queues[row].topic_row == topic_row
                and shared.queues[row].queue_id == queue_id):
            return <int32_t>row
    return find_queue(shared, topic_row, queue_id)

# Row number of the key, made if it is new; ROW_NONE when the board is full, the key too long, or the lock broken.
cdef int32_t make_topic(Shared *shared, const uint8_t *name, int32_t size) noexcept nogil
cdef int32_t make_queue(Shared *shared, int32_t topic_row, int32_t queue_id) noexcept nogil
cdef int32_t make_group(Shared *shared, const uint8_t *name, int32_t size) noexcept nogil
cdef int32_t make_offset(Shared *shared, int32_t group_row, int32_t queue_row) noexcept nogil

# Number of the pull worker that has the queue, of *count*. One has it for good, so that a held pull is told of arrivals
# by one ring.
cdef int puller_of(const uint8_t *topic, int32_t topic_size, int32_t queue_id, int count) noexcept nogil

# Which of topic_epochs or of group_epochs a name has.
cdef inline int32_t epoch_row(const uint8_t *name, int32_t size) noexcept nogil:
    return <int32_t>(hash_bytes(name, size) & (EPOCH_ROWS - 1))

# The epoch of what was found in order for a topic and a group with these rows. The broker process reads it before its
# tables: what it found is so forgotten too early at times, and never kept too long.
cdef inline int64_t pull_epoch(const Shared *shared, int32_t topic_row, int32_t group_row) noexcept nogil:
    return (observe(&shared.board.config_epoch) + observe(&shared.topic_epochs[topic_row].epoch)
            + observe(&shared.group_epochs[group_row].epoch))

# The first failure wins: store_flags gets *flags*, and what broke is written down.
cdef void report_failure(Shared *shared, int64_t flags, int32_t error, int32_t where, int64_t offset) noexcept nogil

cdef class SharedSegment:
    cdef Shared shared
    cdef readonly int fd
    cdef Py_ssize_t size
