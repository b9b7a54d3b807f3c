"""The shared segment: an unnamed memory file that every worker maps, and the rows on it.

Unnamed on purpose: it vanishes with its last process, whoever dies first, and nothing is left to clean up.
What is written by whom, and in which order, is the table in workers/SHARING.md.
"""

from libc.errno cimport errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

import os

from mqcore._fast.base.atomics cimport (LOCK_BROKEN, LOCK_INHERITED, LOCK_TIMED_OUT, add_full, and_full, coarse_ms,
                                        lock_make, lock_release, lock_take, observe, observe_i32, or_full, peek,
                                        publish, publish_i32, put_relaxed)
from mqcore._fast.base.checks cimport check
from mqcore._fast.base.hashing cimport hash_bytes, hash_pair
from mqcore._fast.base.layout cimport (CQ_UNIT_SIZE, GROUP_CAPACITY, GROUP_MEMBERS_MAX, HA_ROLE_NONE,
                                       HA_ROLE_SLAVE, OFFSET_CAPACITY, PAGE_SIZE, QUEUE_CAPACITY,
                                       REGION_BOARD_AT, REGION_CRADLES_AT, REGION_CRADLE_UNITS_AT, REGION_END_AT,
                                       REGION_GROUPS_AT, REGION_GROUP_EPOCHS_AT, REGION_GROUP_INDEX_AT,
                                       REGION_GROUP_NONCES_AT, REGION_LATENCIES_AT,
                                       REGION_ADDRESS_COUNTS_AT, REGION_OFFSETS_AT, REGION_OFFSET_CHANGES_AT,
                                       REGION_OFFSET_CHANGE_WORDS_AT, REGION_OFFSET_INDEX_AT,
                                       REGION_QUEUES_AT, REGION_QUEUE_INDEX_AT, REGION_QUOTAS_AT, REGION_SLAVES_AT,
                                       REGION_TOPICS_AT,
                                       REGION_TOPIC_EPOCHS_AT, REGION_TOPIC_INDEX_AT, REGION_WORKERS_AT, SHARED_MAGIC,
                                       SLAVE_CAPACITY, STORE_FLAG_SYNC_FAILED, TOPIC_CAPACITY, TOPIC_SIZE_MAX,
                                       TOPIC_WORD_EXISTS, TOPIC_WORD_MULTI_TAG, TOPIC_WORD_PERM_SHIFT,
                                       TOPIC_WORD_READ_SHIFT, TOPIC_WORD_SENDABLE, TOPIC_WORD_WRITE_SHIFT,
                                       WORKER_CAPACITY, WORKER_KIND_PULL, CradleRow, EpochRow, GroupRow, LatencyRow,
                                       OffsetRow, QueueRow, QuotaRow, SlaveRow, StoreBoard, TopicRow, WorkerRow)
from mqcore._fast.segment.doubts cimport are_doubts, begin_doubts, believed_commit, doubt_from
from mqcore._fast.segment.offset_changes cimport put_committed
from mqcore._fast.segment.cradle cimport CRADLE_BYTES, copy_cradle
from mqcore._fast.segment.bounds cimport (begin_keeping, note_flushed, queue_files_of, queue_flushed_units,
                                          queue_max_offset, queue_min_offset)

from mqcore import layout as tables
from mqcore.errors import StoreError

cdef extern from "<sys/mman.h>" nogil:
    void *mmap(void *address, size_t length, int protection, int flags, int fd, int64_t offset)
    int munmap(void *address, size_t length)
    int PROT_READ, PROT_WRITE, MAP_SHARED
    void *MAP_FAILED

cdef enum:
    BOARD_LOCK_WAIT_MS = 5000


# Rows that are found by a name, and such that are found by two numbers. The four tables differ in nothing else.
ctypedef fused NamedRow:
    TopicRow
    GroupRow

ctypedef fused PairRow:
    QueueRow
    OffsetRow


cdef inline bint has_pair(const PairRow *row, int32_t first, int32_t second) noexcept nogil:
    if PairRow is QueueRow:
        return row.topic_row == first and row.queue_id == second
    else:
        return row.group_row == first and row.queue_row == second


cdef inline int32_t find_name(const NamedRow *rows, const int32_t *index, uint64_t mask, const uint8_t *name,
                              int32_t size) noexcept nogil:
    cdef uint64_t slot = hash_bytes(name, size) & mask
    cdef int32_t row
    while True:
        row = observe_i32(&index[slot])
        if row == 0:
            return ROW_NONE
        if rows[row - 1].name_size == size and memcmp(rows[row - 1].name, name, size) == 0:
            return row - 1
        slot = (slot + 1) & mask


cdef inline int32_t find_pair(const PairRow *rows, const int32_t *index, uint64_t mask, int32_t first,
                              int32_t second) noexcept nogil:
    cdef uint64_t slot = hash_pair(first, second) & mask
    cdef int32_t row
    while True:
        row = observe_i32(&index[slot])
        if row == 0:
            return ROW_NONE
        if has_pair(&rows[row - 1], first, second):
            return row - 1
        slot = (slot + 1) & mask


cdef enum:
    TOPIC_MASK = 2 * TOPIC_CAPACITY - 1
    GROUP_MASK = 2 * GROUP_CAPACITY - 1
    QUEUE_MASK = 2 * QUEUE_CAPACITY - 1
    OFFSET_MASK = 2 * OFFSET_CAPACITY - 1


cdef int32_t find_topic(const Shared *shared, const uint8_t *name, int32_t size) noexcept nogil:
    return find_name(shared.topics, shared.topic_index, TOPIC_MASK, name, size)


cdef int32_t find_group(const Shared *shared, const uint8_t *name, int32_t size) noexcept nogil:
    return find_name(shared.groups, shared.group_index, GROUP_MASK, name, size)


cdef int32_t find_queue(const Shared *shared, int32_t topic_row, int32_t queue_id) noexcept nogil:
    return find_pair(shared.queues, shared.queue_index, QUEUE_MASK, topic_row, queue_id)


cdef int32_t find_offset(const Shared *shared, int32_t group_row, int32_t queue_row) noexcept nogil:
    return find_pair(shared.offsets, shared.offset_index, OFFSET_MASK, group_row, queue_row)


cdef void claim_slot(int32_t *index, uint64_t mask, uint64_t slot, int32_t row) noexcept nogil:
    # An index has twice as many slots as there are rows, so a free one is always found.
    while observe_i32(&index[slot & mask]) != 0:
        slot += 1
    publish_i32(&index[slot & mask], row + 1)


cdef void index_last_name(const NamedRow *rows, const int32_t *count, int32_t *index, uint64_t mask) noexcept nogil:
    cdef int32_t row = observe_i32(count) - 1
    if row >= 0 and find_name(rows, index, mask, rows[row].name, rows[row].name_size) == ROW_NONE:
        claim_slot(index, mask, hash_bytes(rows[row].name, rows[row].name_size), row)


cdef void index_last_pair(const PairRow *rows, const int32_t *count, int32_t *index, uint64_t mask) noexcept nogil:
    cdef int32_t row = observe_i32(count) - 1
    cdef int32_t first, second
    if row < 0:
        return
    if PairRow is QueueRow:
        first, second = rows[row].topic_row, rows[row].queue_id
    else:
        first, second = rows[row].group_row, rows[row].queue_row
    if find_pair(rows, index, mask, first, second) == ROW_NONE:
        claim_slot(index, mask, hash_pair(first, second), row)


cdef void index_last_rows(Shared *shared) noexcept nogil:
    # What a dead owner of the board lock may have left: a whole row that counts, but that no slot points to yet.
    index_last_name(shared.topics, &shared.board.topic_rows, shared.topic_index, TOPIC_MASK)
    index_last_pair(shared.queues, &shared.board.queue_rows, shared.queue_index, QUEUE_MASK)
    index_last_name(shared.groups, &shared.board.group_rows, shared.group_index, GROUP_MASK)
    index_last_pair(shared.offsets, &shared.board.offset_rows, shared.offset_index, OFFSET_MASK)


cdef bint take_board_lock(Shared *shared) noexcept nogil:
    cdef int result = lock_take(shared.board.board_lock, BOARD_LOCK_WAIT_MS)
    if result == LOCK_INHERITED:
        index_last_rows(shared)
    return result != LOCK_TIMED_OUT and result != LOCK_BROKEN


cdef void add_row(int32_t *count, int32_t *index, uint64_t mask, uint64_t hashed, int32_t row) noexcept nogil:
    # The row is whole: whoever walks the rows sees it, then whoever looks for its key.
    publish_i32(count, row + 1)
    claim_slot(index, mask, hashed, row)


# Both under the board lock, after a look without it: the row of that key, made if there is none and room for one. A
# row that is being filled is nobody's until add_row.
cdef int32_t add_name(NamedRow *rows, int32_t *count, int32_t capacity, int32_t *index, const uint8_t *name,
                      int32_t size) noexcept nogil:
    cdef uint64_t mask = <uint64_t>2 * capacity - 1
    cdef int32_t row = find_name(rows, index, mask, name, size)
    if row != ROW_NONE:
        return row
    row = observe_i32(count)
    if row >= capacity:
        return ROW_NONE
    memcpy(rows[row].name, name, size)
    rows[row].name_size = size
    add_row(count, index, mask, hash_bytes(name, size), row)
    return row


cdef int32_t add_pair(PairRow *rows, int32_t *count, int32_t capacity, int32_t *index, int32_t first,
                      int32_t second) noexcept nogil:
    cdef uint64_t mask = <uint64_t>2 * capacity - 1
    cdef int32_t row = find_pair(rows, index, mask, first, second)
    if row != ROW_NONE:
        return row
    row = observe_i32(count)
    if row >= capacity:
        return ROW_NONE
    if PairRow is QueueRow:
        rows[row].topic_row, rows[row].queue_id = first, second
    else:
        rows[row].group_row, rows[row].queue_row = first, second
        rows[row].committed = -1
    add_row(count, index, mask, hash_pair(first, second), row)
    return row


cdef int32_t make_topic(Shared *shared, const uint8_t *name, int32_t size) noexcept nogil:
    cdef int32_t row = find_topic(shared, name, size)
    if row != ROW_NONE or size <= 0 or size > TOPIC_SIZE_MAX or not take_board_lock(shared):
        return row
    row = add_name(shared.topics, &shared.board.topic_rows, TOPIC_CAPACITY, shared.topic_index, name, size)
    lock_release(shared.board.board_lock)
    return row


cdef int32_t make_group(Shared *shared, const uint8_t *name, int32_t size) noexcept nogil:
    cdef int32_t row = find_group(shared, name, size)
    if row != ROW_NONE or size <= 0 or size > <int32_t>sizeof(shared.groups.name) or not take_board_lock(shared):
        return row
    row = add_name(shared.groups, &shared.board.group_rows, GROUP_CAPACITY, shared.group_index, name, size)
    lock_release(shared.board.board_lock)
    return row


cdef int32_t make_queue(Shared *shared, int32_t topic_row, int32_t queue_id) noexcept nogil:
    cdef int32_t row = find_queue(shared, topic_row, queue_id)
    if row != ROW_NONE or queue_id < 0 or not take_board_lock(shared):
        return row
    row = add_pair(shared.queues, &shared.board.queue_rows, QUEUE_CAPACITY, shared.queue_index, topic_row, queue_id)
    lock_release(shared.board.board_lock)
    return row


cdef int32_t make_offset(Shared *shared, int32_t group_row, int32_t queue_row) noexcept nogil:
    cdef int32_t row = find_offset(shared, group_row, queue_row)
    if row != ROW_NONE or not take_board_lock(shared):
        return row
    row = add_pair(shared.offsets, &shared.board.offset_rows, OFFSET_CAPACITY, shared.offset_index, group_row,
                   queue_row)
    lock_release(shared.board.board_lock)
    return row


cdef int puller_of(const uint8_t *topic, int32_t topic_size, int32_t queue_id, int count) noexcept nogil:
    cdef unsigned int hashed = <unsigned int>queue_id
    cdef int32_t at
    for at in range(topic_size):
        hashed = hashed * 31 + topic[at]
    return <int>(hashed % <unsigned int>count)


cdef void report_failure(Shared *shared, int64_t flags, int32_t error, int32_t where, int64_t offset) noexcept nogil:
    if shared.board.error_number == 0:
        shared.board.error_where = where
        publish(&shared.board.error_offset, offset)
        publish_i32(&shared.board.error_number, error)
    or_full(&shared.board.store_flags, flags)


cdef bytes row_name(const uint8_t *name, int32_t size):
    return (<const char *>name)[:size]


cdef class SharedSegment:
    """The mapped segment. Made by the broker process (``create``), mapped by workers from a descriptor.

    Reads of single words are atomic; what is told together (a queue's bounds) is not taken at one instant.
    """

    def __cinit__(self, int fd):
        cdef void *base
        self.fd = fd
        self.size = REGION_END_AT
        base = mmap(NULL, self.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
        if base == MAP_FAILED:
            raise OSError(errno, "shared segment: " + os.strerror(errno))
        self.shared.base = <uint8_t *>base
        self.shared.board = <StoreBoard *>(self.shared.base + REGION_BOARD_AT)
        self.shared.workers = <WorkerRow *>(self.shared.base + REGION_WORKERS_AT)
        self.shared.topics = <TopicRow *>(self.shared.base + REGION_TOPICS_AT)
        self.shared.topic_index = <int32_t *>(self.shared.base + REGION_TOPIC_INDEX_AT)
        self.shared.queues = <QueueRow *>(self.shared.base + REGION_QUEUES_AT)
        self.shared.queue_index = <int32_t *>(self.shared.base + REGION_QUEUE_INDEX_AT)
        self.shared.groups = <GroupRow *>(self.shared.base + REGION_GROUPS_AT)
        self.shared.group_index = <int32_t *>(self.shared.base + REGION_GROUP_INDEX_AT)
        self.shared.offsets = <OffsetRow *>(self.shared.base + REGION_OFFSETS_AT)
        self.shared.offset_index = <int32_t *>(self.shared.base + REGION_OFFSET_INDEX_AT)
        self.shared.offset_changes = <int64_t *>(self.shared.base + REGION_OFFSET_CHANGES_AT)
        self.shared.offset_change_words = <int64_t *>(self.shared.base + REGION_OFFSET_CHANGE_WORDS_AT)
        self.shared.cradles = <CradleRow *>(self.shared.base + REGION_CRADLES_AT)
        self.shared.cradle_units = self.shared.base + REGION_CRADLE_UNITS_AT
        self.shared.topic_epochs = <EpochRow *>(self.shared.base + REGION_TOPIC_EPOCHS_AT)
        self.shared.group_epochs = <EpochRow *>(self.shared.base + REGION_GROUP_EPOCHS_AT)
        self.shared.slaves = <SlaveRow *>(self.shared.base + REGION_SLAVES_AT)
        self.shared.quotas = <QuotaRow *>(self.shared.base + REGION_QUOTAS_AT)
        self.shared.group_nonces = <int64_t *>(self.shared.base + REGION_GROUP_NONCES_AT)
        self.shared.latencies = <LatencyRow *>(self.shared.base + REGION_LATENCIES_AT)
        self.shared.address_counts = <int32_t *>(self.shared.base + REGION_ADDRESS_COUNTS_AT)

    def __dealloc__(self):
        if self.shared.base != NULL:
            munmap(self.shared.base, self.size)

    @staticmethod
    def create():
        """A new, empty segment. The caller owns the descriptor ``fd``; children inherit it."""
        fd = os.memfd_create("mqcore", os.MFD_CLOEXEC)
        os.ftruncate(fd, REGION_END_AT)
        cdef SharedSegment segment = SharedSegment(fd)
        if lock_make(segment.shared.board.put_lock) != 0 or lock_make(segment.shared.board.board_lock) != 0:
            raise StoreError("this system has no robust process-shared locks")
        publish(&segment.shared.board.magic, SHARED_MAGIC)
        return segment

    @staticmethod
    def attach(int fd):
        """Map the segment behind *fd*. Raises StoreError if it was made by another version."""
        if os.fstat(fd).st_size != REGION_END_AT:
            raise StoreError(f"shared segment: got {os.fstat(fd).st_size} bytes, wanted {REGION_END_AT}")
        cdef SharedSegment segment = SharedSegment(fd)
        if observe(&segment.shared.board.magic) != SHARED_MAGIC:
            raise StoreError("shared segment: its magic is that of another version")
        return segment

    # The store board -------------------------------------------------------------------------------------------

    def get(self, str name not None):
        """A word of the store board by the field's name in mqcore.layout.STORE_BOARD."""
        cdef int64_t at = tables.STORE_BOARD.offsets[name]
        return observe(<int64_t *>(<uint8_t *>self.shared.board + at))

    def set(self, str name not None, int64_t value):
        """Store a word of the store board, with release order."""
        cdef int64_t at = tables.STORE_BOARD.offsets[name]
        publish(<int64_t *>(<uint8_t *>self.shared.board + at), value)

    def add(self, str name not None, int64_t value):
        """Add to a word of the store board; the new value."""
        cdef int64_t at = tables.STORE_BOARD.offsets[name]
        return add_full(<int64_t *>(<uint8_t *>self.shared.board + at), value)

    def set_flags(self, int64_t flags):
        """Set bits of store_flags; the new flags."""
        return or_full(&self.shared.board.store_flags, flags)

    def clear_flags(self, int64_t flags):
        """Clear bits of store_flags; the new flags. A failed sync is final: SYNC_FAILED is never cleared."""
        return and_full(&self.shared.board.store_flags, ~(flags & ~STORE_FLAG_SYNC_FAILED))

    def fail(self, int64_t flags, int error, int where, int64_t offset):
        """Write down a failure (errno, WorkerKind, physical offset) and set *flags*; the first failure is kept."""
        report_failure(&self.shared, flags, error, where, offset)

    def failure(self):
        """(errno, WorkerKind, physical offset) of the first failure, or None."""
        cdef int32_t error = observe_i32(&self.shared.board.error_number)
        if error == 0:
            return None
        return error, self.shared.board.error_where, observe(&self.shared.board.error_offset)

    def set_flushed(self, int64_t offset):
        """Everything before *offset* is on disk; what may be read follows, if it goes by that."""
        publish(&self.shared.board.flushed_offset, offset)
        note_flushed(self.shared.board)

    def set_store_host(self, const uint8_t[::1] address not None, int port):
        """The address that goes into records and message ids: 4 or 16 bytes."""
        if address.shape[0] != 4 and address.shape[0] != 16:
            raise ValueError(f"store host: got {address.shape[0]} address bytes, wanted 4 or 16")
        memcpy(self.shared.board.store_host, &address[0], address.shape[0])
        self.shared.board.store_host_size = <int32_t>address.shape[0]
        self.shared.board.store_host_port = port

    # Topics and queues -----------------------------------------------------------------------------------------

    def topic_row(self, bytes name not None, bint make=False):
        """Row number of a topic, -1 if unknown. With *make* a new row; raises StoreError when the board is full."""
        cdef const uint8_t *at = <const uint8_t *><const char *>name
        cdef int32_t row = make_topic(&self.shared, at, <int32_t>len(name)) if make else find_topic(
            &self.shared, at, <int32_t>len(name))
        if make and row == ROW_NONE:
            raise StoreError(f"topic board: no row for {name!r}; {TOPIC_CAPACITY} topics of at most 127 bytes fit")
        return row

    def topic_name(self, int row):
        return row_name(self.shared.topics[row].name, self.shared.topics[row].name_size)

    def topic_count(self):
        return observe_i32(&self.shared.board.topic_rows)

    def publish_topic(self, bytes name not None, int perm, int read_queues, int write_queues, bint sendable,
                      bint multi_tag):
        """Make a topic's configuration visible to the workers, in one store; its queues get rows first."""
        cdef int32_t row = self.topic_row(name, True)
        cdef int queue_id
        for queue_id in range(max(read_queues, write_queues)):
            if make_queue(&self.shared, row, queue_id) == ROW_NONE:
                raise StoreError(f"queue board: no row for {name!r} queue {queue_id}; {QUEUE_CAPACITY} queues fit")
        cdef int64_t word = TOPIC_WORD_EXISTS
        if sendable:
            word |= TOPIC_WORD_SENDABLE
        if multi_tag:
            word |= TOPIC_WORD_MULTI_TAG
        word |= <int64_t>(perm & 0xff) << TOPIC_WORD_PERM_SHIFT
        word |= <int64_t>(read_queues & 0xffff) << TOPIC_WORD_READ_SHIFT
        word |= <int64_t>(write_queues & 0xffff) << TOPIC_WORD_WRITE_SHIFT
        publish(&self.shared.topics[row].config, word)

    def remove_topic(self, bytes name not None):
        """Hide a topic from the workers; its rows stay."""
        cdef int32_t row = self.topic_row(name)
        if row != ROW_NONE:
            publish(&self.shared.topics[row].config, 0)

    def topic_counters(self, bytes name not None):
        """(messages, bytes) appended to the topic since start."""
        cdef int32_t row = self.topic_row(name)
        if row == ROW_NONE:
            return 0, 0
        return peek(&self.shared.topics[row].put_nums), peek(&self.shared.topics[row].put_bytes)

    def queue_row(self, bytes topic not None, int queue_id, bint make=False):
        """Row number of a queue, -1 if unknown; with *make* the topic and the queue get rows."""
        cdef int32_t topic_row = self.topic_row(topic, make)
        if topic_row == ROW_NONE:
            return ROW_NONE
        cdef int32_t row = make_queue(&self.shared, topic_row, queue_id) if make else find_queue(
            &self.shared, topic_row, queue_id)
        if make and row == ROW_NONE:
            raise StoreError(f"queue board: no row for {topic!r} queue {queue_id}; {QUEUE_CAPACITY} queues fit")
        return row

    def queue_count(self):
        return observe_i32(&self.shared.board.queue_rows)

    def queue_key(self, int row):
        """(topic name, queue id) of a row."""
        return self.topic_name(self.shared.queues[row].topic_row), self.shared.queues[row].queue_id

    def queue_bounds(self, int row):
        """(min, max) readable queue offsets of a row."""
        return queue_min_offset(&self.shared.queues[row]), queue_max_offset(&self.shared.queues[row])

    def queue_births(self, int row):
        """(where in the log the queue was born, the birth of the queue whose files are there) of a row, bytes."""
        return observe(&self.shared.queues[row].born), queue_files_of(&self.shared.queues[row])

    def topic_queues(self, bytes topic not None):
        """The rows of all queues of a topic."""
        cdef int32_t topic_row = self.topic_row(topic), row
        rows = []
        if topic_row != ROW_NONE:
            for row in range(observe_i32(&self.shared.board.queue_rows)):
                if self.shared.queues[row].topic_row == topic_row:
                    rows.append(row)
        return rows

    def born_queues(self):
        """The rows of queues that were dropped once, [(row, born, whether their old files are gone)]."""
        cdef int32_t row
        cdef int64_t born
        rows = []
        for row in range(observe_i32(&self.shared.board.queue_rows)):
            born = observe(&self.shared.queues[row].born)
            if born != 0:
                rows.append((row, born, born == queue_files_of(&self.shared.queues[row])))
        return rows

    def fill_queue(self, int row, int64_t born, int64_t min_offset, int64_t max_offset, int64_t max_physical):
        """Before the first worker starts: what recovery has found of a queue, all of it on disk."""
        cdef QueueRow *queue = &self.shared.queues[row]
        check(0 <= min_offset <= max_offset and born >= 0, "what recovery found of a queue has an order")
        publish(&queue.born, born)
        publish(&queue.next_offset, max_offset)
        publish(&queue.max_offset, max_offset)
        publish(&queue.max_physical, max_physical)
        publish(&queue.max_born, born)
        publish(&queue.min_offset, min_offset)
        publish(&queue.flushed_units, max_offset)
        publish(&queue.min_born, born)

    def keep_queue(self, int row, int64_t born, int64_t min_offset):
        """The flush worker: the oldest queue offset that is kept of the queue born at *born*; it never goes back."""
        begin_keeping(&self.shared.queues[row], born)
        if min_offset > peek(&self.shared.queues[row].min_offset):
            publish(&self.shared.queues[row].min_offset, min_offset)

    def flush_queue(self, int row, int64_t born, int64_t units):
        """The flush worker: how many units of the queue born at *born* are known to be on disk."""
        begin_keeping(&self.shared.queues[row], born)
        publish(&self.shared.queues[row].flushed_units, units)

    def flushed_units(self, int row):
        """How many units of a row's queue are known to be on disk."""
        return queue_flushed_units(&self.shared.queues[row])

    def cradle_units(self, int row):
        """A copy of all units of a queue that lie in a cradle; None if the queue has files, or nothing.

        Bounds that were taken before do not go beyond them. Who is told None finds what is in the bounds in files.
        """
        cdef uint8_t *units = <uint8_t *>malloc(CRADLE_BYTES)
        cdef int64_t size = -1
        if units == NULL:
            raise MemoryError
        try:
            size = copy_cradle(&self.shared, row, 0, CRADLE_BYTES, units)
            return None if size < 0 else (<char *>units)[:size]
        finally:
            free(units)

    def queue_word(self, int row, str name not None):
        """A word of a queue row by the field's name in mqcore.layout.QUEUE_ROW."""
        cdef int64_t at = tables.QUEUE_ROW.offsets[name]
        return observe(<int64_t *>(<uint8_t *>&self.shared.queues[row] + at))

    def set_queue_word(self, int row, str name not None, int64_t value):
        """Store a word of a queue row."""
        cdef int64_t at = tables.QUEUE_ROW.offsets[name]
        publish(<int64_t *>(<uint8_t *>&self.shared.queues[row] + at), value)

    def unflushed_queues(self, int64_t least_pages):
        """Rows of queues with at least so many unflushed pages of consume queue; with 0 any unflushed unit will do."""
        cdef int32_t row
        cdef int64_t end, flushed
        rows = []
        for row in range(observe_i32(&self.shared.board.queue_rows)):
            end = queue_max_offset(&self.shared.queues[row])
            flushed = queue_flushed_units(&self.shared.queues[row])
            if end > flushed and end * CQ_UNIT_SIZE // PAGE_SIZE - flushed * CQ_UNIT_SIZE // PAGE_SIZE >= least_pages:
                rows.append(row)
        return rows

    def queues_end(self):
        """Where the record of the newest unit of all queues ends, bytes; 0 without any."""
        cdef const QueueRow *queue
        cdef int32_t row
        cdef int64_t end = 0
        with nogil:
            for row in range(observe_i32(&self.shared.board.queue_rows)):
                queue = &self.shared.queues[row]
                if queue_max_offset(queue) > 0:
                    end = max(end, observe(&queue.max_physical))
        return end

    # Groups and offsets ----------------------------------------------------------------------------------------

    def offset_row(self, bytes group not None, bytes topic not None, int queue_id, bint make=False):
        """Row number of (group, topic, queue), -1 if unknown; with *make* all rows that it needs."""
        cdef const uint8_t *at = <const uint8_t *><const char *>group
        cdef int32_t queue_row = self.queue_row(topic, queue_id, make)
        if queue_row == ROW_NONE:
            return ROW_NONE
        cdef int32_t group_row = make_group(&self.shared, at, <int32_t>len(group)) if make else find_group(
            &self.shared, at, <int32_t>len(group))
        if group_row == ROW_NONE:
            if make:
                raise StoreError(f"group board: no row for {group!r}; {GROUP_CAPACITY} groups of at most 256 bytes fit")
            return ROW_NONE
        cdef int32_t row = make_offset(&self.shared, group_row, queue_row) if make else find_offset(
            &self.shared, group_row, queue_row)
        if make and row == ROW_NONE:
            raise StoreError(f"offset table: no row for {group!r}; {OFFSET_CAPACITY} offsets fit")
        return row

    def offset_count(self):
        return observe_i32(&self.shared.board.offset_rows)

    def offset_key(self, int row):
        """(group, topic, queue id) of a row."""
        cdef OffsetRow *at = &self.shared.offsets[row]
        topic, queue_id = self.queue_key(at.queue_row)
        group = row_name(self.shared.groups[at.group_row].name, self.shared.groups[at.group_row].name_size)
        return group, topic, queue_id

    def committed(self, int row):
        """The committed offset of a row, -1 = none."""
        return observe(&self.shared.offsets[row].committed)

    def commit(self, int row, int64_t offset):
        """Store the committed offset of a row; the last store wins. -1 takes it away."""
        put_committed(&self.shared, row, offset)

    def doubt(self, int64_t duration_ms, bint has_some_of_it):
        """Doubt where clients stand: the master that is followed leads an epoch that may lack what was given out.

        *has_some_of_it*: the log has messages of that epoch, and nobody knows here where it began in queues.
        """
        cdef QueueRow *queue
        cdef int32_t row
        cdef bint goes_on = are_doubts(&self.shared)
        for row in range(observe_i32(&self.shared.board.queue_rows)):
            queue = &self.shared.queues[row]
            doubt_from(queue, -1 if has_some_of_it else queue_max_offset(queue), goes_on)
        begin_doubts(&self.shared, duration_ms)

    def believed_commit(self, int row, int64_t offset):
        """What is to be stored when a client says that its group has got to *offset*: less, if that is doubted."""
        return believed_commit(&self.shared, row, offset, coarse_ms())

    def offset_word(self, int row, str name not None):
        """A word of an offset row by the field's name in mqcore.layout.OFFSET_ROW."""
        cdef int64_t at = tables.OFFSET_ROW.offsets[name]
        return observe(<int64_t *>(<uint8_t *>&self.shared.offsets[row] + at))

    def set_offset_word(self, int row, str name not None, int64_t value):
        """Store a word of an offset row."""
        cdef int64_t at = tables.OFFSET_ROW.offsets[name]
        publish(<int64_t *>(<uint8_t *>&self.shared.offsets[row] + at), value)

    def behind_bytes_max(self, int64_t since):
        """How far behind the end the farthest of the groups reads that were given messages since *since*, ms; bytes."""
        cdef int32_t row
        cdef int64_t behind = 0
        with nogil:
            for row in range(observe_i32(&self.shared.board.offset_rows)):
                if peek(&self.shared.offsets[row].get_timestamp) >= since:
                    behind = max(behind, peek(&self.shared.offsets[row].behind_bytes))
        return behind

    # Epochs ----------------------------------------------------------------------------------------------------

    def pull_epoch(self, bytes topic not None, bytes group not None):
        """The epoch of what is found in order for *topic* and *group* from now on; read it before the tables."""
        return pull_epoch(&self.shared, epoch_row(<const uint8_t *><const char *>topic, <int32_t>len(topic)),
                          epoch_row(<const uint8_t *><const char *>group, <int32_t>len(group)))

    def bump_topic(self, bytes topic not None):
        """Something has changed about the topic that a pull check may look at."""
        add_full(&self.shared.topic_epochs[epoch_row(<const uint8_t *><const char *>topic,
                                                     <int32_t>len(topic))].epoch, 1)

    def bump_group(self, bytes group not None):
        """Something has changed about the group that a pull check may look at."""
        add_full(&self.shared.group_epochs[epoch_row(<const uint8_t *><const char *>group,
                                                     <int32_t>len(group))].epoch, 1)

    # Replicas --------------------------------------------------------------------------------------------------

    def set_master(self, const uint8_t[::1] address not None, int port, int64_t start=0, int64_t term=0):
        """Tell a slave's ha worker to copy from the master that listens at *address* and *port*.

        An empty log begins at *start*: 0 = with all there is, -1 = where the master, which has nothing, begins. In a
        failover group *term* is the epoch that this master leads.
        """
        if address.shape[0] != 4 and address.shape[0] != 16:
            raise ValueError(f"master: got {address.shape[0]} address bytes, wanted 4 or 16")
        # A version that is under way is odd: what is read between two looks at the same even one is of one master.
        add_full(&self.shared.board.master_version, 1)
        memcpy(self.shared.board.master_host, &address[0], address.shape[0])
        self.shared.board.master_host_size = <int32_t>address.shape[0]
        self.shared.board.master_port = port
        self.shared.board.master_start = start
        if term > 0:
            publish(&self.shared.board.ha_term, term)
            publish(&self.shared.board.ha_role, HA_ROLE_SLAVE)
        add_full(&self.shared.board.master_version, 1)

    def forget_master(self):
        """Tell a slave's ha worker to copy from nobody. It has left its master once it goes by the version returned."""
        add_full(&self.shared.board.master_version, 1)
        self.shared.board.master_port = 0
        publish(&self.shared.board.ha_role, HA_ROLE_NONE)
        return add_full(&self.shared.board.master_version, 1)

    def master(self):
        """(version, address bytes, port, start, term) of the master as it was told last; None while it is being told.

        The port is 0 when there is none, the term 0 outside of failover groups.
        """
        cdef int64_t version = observe(&self.shared.board.master_version)
        address = (<const char *>self.shared.board.master_host)[:self.shared.board.master_host_size]
        port, start = self.shared.board.master_port, self.shared.board.master_start
        term = observe(&self.shared.board.ha_term)
        if version & 1 or observe(&self.shared.board.master_version) != version:
            return None
        return version, address, port, start, term

    def set_nonce(self, int member, int64_t nonce):
        """What *member* of the failover group has announced itself by; 0 = it has not."""
        if not 0 <= member < GROUP_MEMBERS_MAX:
            raise IndexError(f"member {member}: wanted 0 to {GROUP_MEMBERS_MAX - 1}")
        publish(&self.shared.group_nonces[member], nonce)

    def require(self, int64_t generation, int64_t members):
        """What is confirmed from now on is what all of *members*, a bit by id, have: set number *generation*."""
        add_full(&self.shared.board.required_version, 1)
        publish(&self.shared.board.required_generation, generation)
        publish(&self.shared.board.required_members, members)
        add_full(&self.shared.board.required_version, 1)

    def slaves(self):
        """The connections of slaves, each a dict of the fields of mqcore.layout.SLAVE_ROW; *host* are its bytes."""
        cdef const SlaveRow *row
        cdef int index
        found = []
        for index in range(SLAVE_CAPACITY):
            row = &self.shared.slaves[index]
            if observe(&row.state) == 0:
                continue
            found.append({
                "state": observe(&row.state), "port": row.port, "host": (<const char *>row.host)[:row.host_size],
                "connected_at": observe(&row.connected_at), "acked": observe(&row.acked),
                "acked_at": observe(&row.acked_at), "sent": observe(&row.sent),
                "caught_up_at": observe(&row.caught_up_at), "sent_bytes": observe(&row.sent_bytes),
                "member": observe(&row.member),
            })
        return found

    # Workers ---------------------------------------------------------------------------------------------------

    def worker_word(self, int index, str name not None):
        """A word of a worker row by the field's name in mqcore.layout.WORKER_ROW."""
        cdef int64_t at = tables.WORKER_ROW.offsets[name]
        if not 0 <= index < WORKER_CAPACITY:
            raise IndexError(f"worker row {index}: wanted 0 to {WORKER_CAPACITY - 1}")
        return observe(<int64_t *>(<uint8_t *>&self.shared.workers[index] + at))

    def set_worker_word(self, int index, str name not None, int64_t value):
        """Store a word of a worker row."""
        cdef int64_t at = tables.WORKER_ROW.offsets[name]
        if not 0 <= index < WORKER_CAPACITY:
            raise IndexError(f"worker row {index}: wanted 0 to {WORKER_CAPACITY - 1}")
        publish(<int64_t *>(<uint8_t *>&self.shared.workers[index] + at), value)

    def waiting_pulls(self):
        """How many pulls the pull workers hold, over all queues."""
        cdef int64_t count = 0
        cdef int index
        for index in range(WORKER_CAPACITY):
            if self.shared.workers[index].kind == WORKER_KIND_PULL:
                count += observe(&self.shared.workers[index].parked)
        return count

    def describe_worker(self, int index, int kind, int number):
        """Write down which worker owns a row; done by the broker process before it is started."""
        self.shared.workers[index].kind = kind
        self.shared.workers[index].number = number
        put_relaxed(&self.shared.workers[index].state, 0)
