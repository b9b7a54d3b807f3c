"""What the records of a run of the log make of consume queues and index, as counts and sums, without the GIL.

The twin, and the readable statement of the rules, is mqcore/store/queues/tally.py.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

import numpy as np

from mqcore._fast.base.hashing cimport hash_bytes, hash_mix, hash_word
from mqcore._fast.base.layout cimport CQ_UNIT_SIZE, PRE_FILL_SIZE, TOPIC_SIZE_MAX
from mqcore._fast.log.record cimport (DECODE_OK, SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_MASK, SYS_TRANSACTION_ROLLBACK,
                                      DecodeStatus, IndexedProperties, RecordView, decode_record,
                                      find_indexed_properties, is_cut_off, is_torn)
from mqcore._fast.queues.dispatch cimport DELAY_LEVELS_MAX, ListedQueues, next_listed, open_listed, tags_code_of
from mqcore._fast.queues.ext cimport is_ext_address
from mqcore._fast.queues.index_file cimport index_key_hash, seconds_between
from mqcore._fast.queues.units cimport CqUnit, read_unit
from mqcore._fast.queues.writer cimport is_topic

from mqcore.delay_levels import DELAY_LEVELS_MS
from mqcore.errors import ConfigError
from mqcore.store.log.record import DecodeStatus as DecodeStatusName
from mqcore.store.log.record import ScanOutcome
from mqcore.store.queues import tally as twin


cdef enum:
    SLOTS_FIRST = 256               # a power of two, as are all later sizes
    ROWS_FIRST = 1024
    BREAKS_MAX = 64

cdef int64_t OFFSET_MAX = 0x7FFFFFFFFFFFFFFF
cdef int64_t QUEUE_OFFSET_MAX = (<int64_t>1 << 62) // CQ_UNIT_SIZE

cdef struct TallyQueue:
    int64_t record_count
    int64_t byte_count
    int64_t first_timestamp
    int64_t last_timestamp
    int64_t unit_count
    uint64_t unit_sum
    int64_t first_offset
    int64_t next_offset
    int64_t first_physical
    int64_t restarted_at
    int64_t resumes_at
    int64_t born
    int32_t number                  # of the wanted ones; -1: not wanted
    bint is_known
    bint is_met                     # by a record or a unit, not only asked for
    int32_t queue_id
    int32_t topic_size              # 0: nobody is here
    uint8_t topic[128]

cdef struct UnitRow:
    int32_t queue
    int32_t record_size
    int64_t queue_offset
    int64_t physical_offset
    int64_t tags_code
    int64_t store_timestamp

cdef struct KeyRow:
    int64_t physical_offset
    int64_t store_timestamp
    int32_t key_hash
    int32_t unused

cdef struct Break:
    uint8_t topic[128]
    int32_t topic_size
    int32_t queue_id
    int64_t physical_offset
    int64_t wanted
    int64_t got

cdef struct Cover:
    int64_t begin
    int64_t end
    int64_t timestamp

cdef struct Rows:
    uint8_t *data
    int64_t size                    # bytes
    int64_t capacity

assert TOPIC_SIZE_MAX <= 128
assert sizeof(UnitRow) == twin.UNIT_ROW.itemsize and sizeof(KeyRow) == twin.KEY_ROW.itemsize
assert BREAKS_MAX == twin.BREAKS_MAX


cdef uint8_t *add_row(Rows *rows, int64_t size) noexcept nogil:
    cdef int64_t capacity
    cdef uint8_t *data
    if rows.capacity - rows.size < size:
        capacity = max(<int64_t>ROWS_FIRST * size, rows.capacity * 2)
        data = <uint8_t *>realloc(rows.data, capacity)
        if data == NULL:
            return NULL
        rows.data = data
        rows.capacity = capacity
    rows.size += size
    return rows.data + rows.size - size


cdef object take_rows(const Rows *rows, dtype):
    return np.frombuffer(rows.data[:rows.size] if rows.size else b"", dtype=dtype)


cdef inline uint64_t hash_unit(
    int64_t physical_offset, int64_t queue_offset, int64_t record_size, int64_t tags_code
) noexcept nogil:
    return hash_mix(hash_word(hash_word(hash_word(<uint64_t>physical_offset, <uint64_t>queue_offset),
                                        <uint64_t>record_size), <uint64_t>tags_code))


cdef TallyQueue *find(
    TallyQueue *slots, int64_t slot_count, const uint8_t *topic, int32_t size, int32_t queue_id
) noexcept nogil:
    # Where the queue is, or where it would come.
    cdef uint64_t at = hash_bytes(topic, size, <uint64_t>queue_id) & <uint64_t>(slot_count - 1)
    while slots[at].topic_size != 0:
        if (slots[at].queue_id == queue_id and slots[at].topic_size == size
                and memcmp(slots[at].topic, topic, size) == 0):
            break
        at = (at + 1) & <uint64_t>(slot_count - 1)
    return &slots[at]


cdef class LogTally:
    """Takes the log in order, and adds up what its records make; see the twin."""

    cdef TallyQueue *slots
    cdef int64_t slot_count
    cdef int64_t used
    cdef int64_t delay_levels_ms[DELAY_LEVELS_MAX]
    cdef int32_t level_count
    cdef int64_t unit_end
    cdef Cover *covers
    cdef int32_t cover_count
    cdef bint check_crc
    cdef bint wants_keys
    cdef bint has_known
    cdef int32_t wanted_count
    cdef Rows units
    cdef Rows keys
    cdef Break found[BREAKS_MAX]
    cdef readonly int64_t record_count
    cdef readonly int64_t first_timestamp
    cdef readonly int64_t key_count
    cdef uint64_t keys_added
    cdef readonly int64_t break_count

    def __cinit__(self):
        memset(&self.units, 0, sizeof(Rows))
        memset(&self.keys, 0, sizeof(Rows))

    def __init__(self, delay_levels_ms=DELAY_LEVELS_MS, int64_t unit_end=OFFSET_MAX, coverage=(), bint check_crc=True):
        if self.slots != NULL:
            raise TypeError("a tally is made once")
        if len(delay_levels_ms) > DELAY_LEVELS_MAX:
            raise ConfigError(f"delay levels: got {len(delay_levels_ms)}, wanted at most {DELAY_LEVELS_MAX}")
        self.slots = <TallyQueue *>calloc(SLOTS_FIRST, sizeof(TallyQueue))
        self.covers = <Cover *>malloc(max(1, len(coverage)) * sizeof(Cover))
        if self.slots == NULL or self.covers == NULL:
            raise MemoryError
        self.slot_count = SLOTS_FIRST
        for level, duration_ms in enumerate(delay_levels_ms):
            self.delay_levels_ms[level] = duration_ms
        self.level_count = len(delay_levels_ms)
        self.unit_end = unit_end
        self.check_crc = check_crc
        for begin, end, timestamp in coverage:
            self.covers[self.cover_count].begin = begin
            self.covers[self.cover_count].end = end
            self.covers[self.cover_count].timestamp = timestamp
            self.cover_count += 1

    def __dealloc__(self):
        free(self.slots)
        free(self.covers)
        free(self.units.data)
        free(self.keys.data)

    @property
    def key_sum(self):
        return self.keys_added

    # Of a topic of 1 to 127 bytes. NULL: no memory.
    cdef TallyQueue *queue_of(self, const uint8_t *topic, int32_t size, int32_t queue_id) noexcept nogil:
        cdef TallyQueue *queue
        if self.used >= self.slot_count // 2 and not self.grow():
            return NULL
        queue = find(self.slots, self.slot_count, topic, size, queue_id)
        if queue.topic_size == 0:
            memcpy(queue.topic, topic, size)
            queue.topic_size = size
            queue.queue_id = queue_id
            queue.first_offset = queue.next_offset = queue.first_physical = queue.restarted_at = -1
            queue.resumes_at = -1
            queue.number = -1
            self.used += 1
        return queue

    cdef bint grow(self) noexcept nogil:
        cdef int64_t count = self.slot_count * 2, at
        cdef TallyQueue *slots = <TallyQueue *>calloc(count, sizeof(TallyQueue))
        if slots == NULL:
            return False
        for at in range(self.slot_count):
            if self.slots[at].topic_size != 0:
                find(slots, count, self.slots[at].topic, self.slots[at].topic_size, self.slots[at].queue_id)[0] = (
                    self.slots[at])
        free(self.slots)
        self.slots, self.slot_count = slots, count
        return True

    cdef TallyQueue *named(self, bytes topic, int32_t queue_id) except NULL:
        cdef TallyQueue *queue
        cdef const uint8_t *name = topic
        if not 0 < len(topic) <= TOPIC_SIZE_MAX:
            raise ValueError(f"topic: got {len(topic)} bytes, wanted 1 to {TOPIC_SIZE_MAX}")
        queue = self.queue_of(name, <int32_t>len(topic), queue_id)
        if queue == NULL:
            raise MemoryError
        return queue

    def bear(self, bytes topic not None, int32_t queue_id, int64_t physical_offset):
        """Records of the queue that start before *physical_offset* are of one that was dropped, and make no unit."""
        self.named(topic, queue_id).born = physical_offset

    def know(self, bytes topic not None, int32_t queue_id):
        """The queue has files: messages that list it (INNER_MULTI_DISPATCH) make a unit in it."""
        self.named(topic, queue_id).is_known = True
        self.has_known = True

    def want(self, bytes topic not None, int32_t queue_id):
        """Keep the units of this queue as rows."""
        cdef TallyQueue *queue = self.named(topic, queue_id)
        if queue.number < 0:
            queue.number = self.wanted_count
            self.wanted_count += 1

    def want_keys(self):
        """Keep the index entries of all records as rows."""
        self.wants_keys = True

    # ------------------------------------------------------------------------------------------------- one record

    cdef bint take(self, const RecordView *view) noexcept nogil:
        cdef int32_t transaction = view.sys_flag & SYS_TRANSACTION_MASK
        cdef IndexedProperties properties
        cdef TallyQueue *queue
        cdef int64_t tags_code
        if self.record_count == 0:
            self.first_timestamp = view.store_timestamp
        self.record_count += 1
        if view.topic_size > 0:
            queue = self.queue_of(view.topic, view.topic_size, view.queue_id)
            if queue == NULL:
                return False
            queue.is_met = True
            if queue.record_count == 0:
                queue.first_timestamp = view.store_timestamp
            queue.record_count += 1
            queue.byte_count += view.total_size
            queue.last_timestamp = view.store_timestamp
        find_indexed_properties(view.properties, view.properties_size, &properties)
        if (transaction == 0 or transaction == SYS_TRANSACTION_COMMIT) and view.physical_offset < self.unit_end:
            tags_code = tags_code_of(view, &properties, self.delay_levels_ms, self.level_count)
            if not self.put(view, view.topic, view.topic_size, view.queue_id, view.queue_offset, tags_code):
                return False
            if self.has_known and not self.put_more(view, tags_code):
                return False
        if transaction != SYS_TRANSACTION_ROLLBACK and (properties.unique_key_size > 0 or properties.keys_size > 0):
            return self.put_keys(view, &properties)
        return True

    cdef bint put(
        self, const RecordView *view, const uint8_t *topic, int32_t topic_size, int32_t queue_id, int64_t queue_offset,
        int64_t tags_code
    ) noexcept nogil:
        cdef TallyQueue *queue
        cdef UnitRow *row
        if queue_id < 0 or not is_topic(topic, topic_size) or not 0 <= queue_offset <= QUEUE_OFFSET_MAX:
            return True
        queue = self.queue_of(topic, topic_size, queue_id)
        if queue == NULL:
            return False
        if view.physical_offset < queue.born:
            return True
        queue.is_met = True
        if queue.unit_count > 0 and queue.next_offset != queue_offset:
            if queue_offset == 0:
                queue.unit_count = 0
                queue.unit_sum = 0
                queue.restarted_at = view.physical_offset
            elif queue_offset != queue.resumes_at:
                self.note_break(queue, view.physical_offset, queue_offset)
                queue.resumes_at = queue.next_offset + 1
        if queue.unit_count == 0:
            queue.first_offset = queue_offset
            queue.first_physical = view.physical_offset
        queue.next_offset = queue_offset + 1
        queue.unit_count += 1
        queue.unit_sum += hash_unit(view.physical_offset, queue_offset, view.total_size, tags_code)
        if queue.number >= 0:
            row = <UnitRow *>add_row(&self.units, sizeof(UnitRow))
            if row == NULL:
                return False
            row.queue = queue.number
            row.record_size = view.total_size
            row.queue_offset = queue_offset
            row.physical_offset = view.physical_offset
            row.tags_code = tags_code
            row.store_timestamp = view.store_timestamp
        return True

    cdef void note_break(self, const TallyQueue *queue, int64_t physical_offset, int64_t queue_offset) noexcept nogil:
        cdef Break *found
        if self.break_count < BREAKS_MAX:
            found = &self.found[self.break_count]
            memcpy(found.topic, queue.topic, queue.topic_size)
            found.topic_size = queue.topic_size
            found.queue_id = queue.queue_id
            found.physical_offset = physical_offset
            found.wanted = queue.next_offset
            found.got = queue_offset
        self.break_count += 1

    cdef bint is_known(self, const uint8_t *topic, int32_t size, int32_t queue_id) noexcept nogil:
        return 0 < size <= TOPIC_SIZE_MAX and find(self.slots, self.slot_count, topic, size, queue_id).is_known

    cdef bint put_more(self, const RecordView *view, int64_t tags_code) noexcept nogil:
        cdef ListedQueues listed
        cdef bint is_odd
        cdef int32_t queue_id
        if not open_listed(view, &listed, &is_odd):
            return True
        while next_listed(&listed):
            queue_id = view.queue_id
            if listed.is_lmq and self.is_known(listed.topic, listed.topic_size, 0):
                queue_id = 0
            if self.is_known(listed.topic, listed.topic_size, queue_id):
                if not self.put(view, listed.topic, listed.topic_size, queue_id, listed.queue_offset, tags_code):
                    return False
        return True

    # The index file that has the record's keys, by what the files say; NULL: none, or not for certain.
    cdef const Cover *cover_of(self, int64_t physical_offset) noexcept nogil:
        cdef int32_t index
        cdef const Cover *found = NULL
        cdef const Cover *cover
        for index in range(self.cover_count):
            cover = &self.covers[index]
            if physical_offset == cover.begin or physical_offset == cover.end:
                return NULL
            if found == NULL and cover.begin < physical_offset < cover.end:
                found = cover
        return found

    cdef bint put_keys(self, const RecordView *view, const IndexedProperties *properties) noexcept nogil:
        cdef const Cover *cover = self.cover_of(view.physical_offset)
        cdef const uint8_t *keys = properties.keys
        cdef int32_t start = 0, stop
        if cover == NULL and not self.wants_keys:
            return True
        if properties.unique_key_size > 0 and not self.put_key(view, cover, properties.unique_key,
                                                               properties.unique_key_size):
            return False
        while start < properties.keys_size:
            stop = start
            while stop < properties.keys_size and keys[stop] != c" ":
                stop += 1
            if stop > start and not self.put_key(view, cover, keys + start, stop - start):
                return False
            start = stop + 1
        return True

    cdef bint put_key(
        self, const RecordView *view, const Cover *cover, const uint8_t *key, int32_t key_size
    ) noexcept nogil:
        cdef int32_t key_hash = index_key_hash(view.topic, view.topic_size, key, key_size)
        cdef KeyRow *row
        if cover != NULL:
            self.key_count += 1
            self.keys_added += hash_mix(hash_word(
                hash_word(<uint64_t>view.physical_offset, <uint64_t>key_hash),
                <uint64_t>seconds_between(cover.timestamp, view.store_timestamp)))
        if self.wants_keys:
            row = <KeyRow *>add_row(&self.keys, sizeof(KeyRow))
            if row == NULL:
                return False
            row.physical_offset = view.physical_offset
            row.store_timestamp = view.store_timestamp
            row.key_hash = key_hash
            row.unused = 0
        return True

    # --------------------------------------------------------------------------------------------- the Python side

    def feed(self, const uint8_t[::1] buffer not None, int64_t physical_offset):
        """Take the whole records at the start of *buffer*, the log from *physical_offset* on, as ``scan_records``."""
        cdef RecordView view
        cdef DecodeStatus status = DECODE_OK
        cdef Py_ssize_t length = buffer.shape[0], at = 0
        cdef const uint8_t *base = &buffer[0] if length > 0 else NULL
        cdef int64_t count = 0, newest = 0
        cdef bint misplaced = False, torn = False, has_memory = True
        with nogil:
            while at < length:
                status = decode_record(base + at, length - at, self.check_crc, &view)
                if status != DECODE_OK:
                    break
                misplaced = view.physical_offset != physical_offset + at
                torn = not misplaced and (is_torn(base + at, &view) or is_cut_off(
                    &view, base + at + view.total_size, length - at - view.total_size))
                if misplaced or torn:
                    break
                has_memory = self.take(&view)
                if not has_memory:
                    break
                at += view.total_size
                count += 1
                newest = view.store_timestamp if view.store_timestamp > newest else newest
        if not has_memory:
            raise MemoryError
        outcome = DecodeStatusName.MISPLACED if misplaced else (
            DecodeStatusName.TORN if torn else DecodeStatusName(status))
        return ScanOutcome(valid_size=at, status=outcome, record_count=count, store_timestamp_max=newest)

    def queues(self):
        """Return what was added up, a row for each queue that was met."""
        cdef int64_t at
        cdef const TallyQueue *queue
        found = []
        for at in range(self.slot_count):
            queue = &self.slots[at]
            if queue.topic_size != 0 and queue.is_met:
                found.append(twin.QueueTally(
                    queue.topic[:queue.topic_size], queue.queue_id, queue.record_count, queue.byte_count,
                    queue.first_timestamp, queue.last_timestamp, queue.unit_count, queue.unit_sum, queue.first_offset,
                    queue.next_offset, queue.first_physical, queue.restarted_at,
                ))
        return found

    def breaks(self):
        """Return the first breaks of a queue's order, BREAKS_MAX at most."""
        cdef int64_t at
        found = []
        for at in range(min(self.break_count, <int64_t>BREAKS_MAX)):
            found.append(twin.SequenceBreak(
                self.found[at].topic[:self.found[at].topic_size], self.found[at].queue_id,
                self.found[at].physical_offset, self.found[at].wanted, self.found[at].got,
            ))
        return found

    def unit_rows(self):
        """Return the units of the wanted queues, in the order of the log: shape (n,), dtype UNIT_ROW."""
        return take_rows(&self.units, twin.UNIT_ROW)

    def key_rows(self):
        """Return the index entries, in the order of the log: shape (n,), dtype KEY_ROW."""
        return take_rows(&self.keys, twin.KEY_ROW)


@cython.cdivision(True)             # log_file_size is positive, and no offset counts that lies before the log
def sum_units(const uint8_t[::1] buffer not None, int64_t first_offset, int64_t log_first, int64_t log_file_size,
              int64_t log_start, int64_t log_end):
    """Return what *buffer*, a run of a consume queue from queue offset *first_offset* on, says; see the twin."""
    cdef Py_ssize_t count = buffer.shape[0] // CQ_UNIT_SIZE, index = 0
    cdef const uint8_t *base = &buffer[0] if count > 0 else NULL
    cdef CqUnit unit
    cdef int64_t written = 0, end = 0, record_end = -1, file = -1, file_count = 0, file_limit = -1
    cdef uint64_t file_sum = 0
    cdef bint has_ext = False, is_next
    if log_file_size < 1 or log_start < log_first:
        raise ValueError(f"log: got files of {log_file_size} bytes from {log_first} on, and records from {log_start}")
    runs = []
    while index < count:
        is_next = False
        with nogil:
            while index < count:
                read_unit(base + index * CQ_UNIT_SIZE, &unit)
                if unit.physical_offset >= 0 and unit.record_size > 0:
                    if unit.record_size != PRE_FILL_SIZE and log_start <= unit.physical_offset < log_end:
                        if not file <= unit.physical_offset < file_limit:
                            is_next = True
                            break
                        has_ext = has_ext or is_ext_address(unit.tags_code)
                        file_count += 1
                        file_sum += hash_unit(unit.physical_offset, first_offset + index, unit.record_size,
                                              unit.tags_code)
                    written += 1
                    end = index + 1
                    if unit.record_size != PRE_FILL_SIZE:
                        record_end = max(record_end, min(unit.physical_offset, OFFSET_MAX - unit.record_size)
                                         + unit.record_size)
                index += 1
        if file_count > 0:
            runs.append((file, file_count, file_sum))
        if is_next:
            file = log_first + (unit.physical_offset - log_first) // log_file_size * log_file_size
            file_limit = min(file, OFFSET_MAX - log_file_size) + log_file_size
            file_count = 0
            file_sum = 0
    return twin.UnitSums(written, end, has_ext, record_end, runs)
