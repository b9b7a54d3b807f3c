"""From the commit log to consume queues and index, without a Python object per message.

The twin, and the readable statement of the rules, is mqcore/store/queues/dispatch.py; here the units of up to 64
records are written before their keys. A message with two keys takes 0.42 us, one that is not indexed 0.22 us; the twin
takes 44 and 17 us.
"""

from libc.errno cimport EBADF
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.string cimport memchr, memcmp

import os

from mqcore._fast.base.layout cimport CQ_UNIT_SIZE
from mqcore._fast.base.store_file cimport DIRECTORY_SIZE_MAX, PATH_SIZE_MAX
from mqcore._fast.log.record cimport (DECODE_BLANK, DECODE_OK, DECODE_SHORT, SYS_TRANSACTION_COMMIT,
                                      SYS_TRANSACTION_MASK, SYS_TRANSACTION_ROLLBACK, IndexedProperties, RecordView,
                                      decode_record, find_indexed_properties, find_property, java_hash)
from mqcore._fast.queues.ext_writer cimport EXT_BITMAP_MAX
from mqcore._fast.queues.index_file cimport index_key_hash
from mqcore._fast.queues.index_writer cimport index_append, index_close, index_end, index_open, index_sync
from mqcore._fast.queues.writer cimport (QueueWriter, append_ext, append_unit, bear_queue, find_writer, is_topic,
                                         make_room, queue_end, queue_was_synced, queues_close, queues_open,
                                         queues_unsynced, sync_queue)

from mqcore.errors import ConfigError
from mqcore.files import SYNCED_ONE_BY_ONE_MAX, can_sync_file_systems, make_directory, sync_file_system
from mqcore.store.queues import dispatch as twin
from mqcore.store.log.record import DecodeStatus as DecodeStatusName


cdef enum:
    MAPPED_QUEUES_MAX = 16384               # vm.max_map_count is 65530 where nobody raised it
    INT32_MAX = 0x7FFFFFFF
    OFFSET_DIGITS_MAX = 18                  # more would not fit 63 bits, and no queue is as long

cdef int64_t SYNCED_ONE_BY_ONE = SYNCED_ONE_BY_ONE_MAX
cdef int64_t QUEUE_OFFSET_MAX = (<int64_t>1 << 62) // CQ_UNIT_SIZE
cdef const char *SCHEDULE_TOPIC = b"SCHEDULE_TOPIC_XXXX"
cdef int32_t SCHEDULE_TOPIC_SIZE = 19
cdef const char *MULTI_DISPATCH = b"INNER_MULTI_DISPATCH"
cdef int32_t MULTI_DISPATCH_SIZE = 20
cdef const char *MULTI_OFFSET = b"INNER_MULTI_QUEUE_OFFSET"
cdef int32_t MULTI_OFFSET_SIZE = 24
cdef const char *LMQ_PREFIX = b"%LMQ%"
cdef int32_t LMQ_PREFIX_SIZE = 5


# The size of what stands before the first comma of text[0:size].
cdef int32_t part_size(const uint8_t *text, int32_t size) noexcept nogil:
    cdef const uint8_t *comma = <const uint8_t *>memchr(text, c",", size)
    return size if comma == NULL else <int32_t>(comma - text)


# How many parts String.split(",") makes of a text: empty ones at its end do not count.
cdef int32_t count_parts(const uint8_t *text, int32_t size) noexcept nogil:
    cdef int32_t count = 1, at
    while size > 0 and text[size - 1] == c",":
        size -= 1
    for at in range(size):
        count += text[at] == c","
    return count if size > 0 else 0


# Long.parseLong of an offset; -1 for what is none.
cdef int64_t parse_offset(const uint8_t *text, int32_t size) noexcept nogil:
    cdef int64_t value = 0
    cdef int32_t at
    if not 0 < size <= OFFSET_DIGITS_MAX:
        return -1
    for at in range(size):
        if not 48 <= text[at] <= 57:
            return -1
        value = value * 10 + (text[at] - 48)
    return value


# Integer.parseInt of a delay level; 0 for what is no positive number.
cdef int32_t parse_level(const uint8_t *text, int32_t size) noexcept nogil:
    cdef int64_t value = 0
    cdef int32_t at = 1 if size > 1 and text[0] == 43 else 0
    while at < size:
        if not 48 <= text[at] <= 57:
            return 0
        value = value * 10 + (text[at] - 48)
        if value > INT32_MAX:
            return 0
        at += 1
    return <int32_t>value


cdef int64_t tags_code_of(
    const RecordView *record, const IndexedProperties *properties, const int64_t *delay_levels_ms, int32_t level_count
) noexcept nogil:
    cdef int32_t level
    if record.topic_size == SCHEDULE_TOPIC_SIZE and memcmp(record.topic, SCHEDULE_TOPIC, SCHEDULE_TOPIC_SIZE) == 0:
        level = min(parse_level(properties.delay, properties.delay_size), level_count)
        if level > 0:
            return record.store_timestamp + delay_levels_ms[level - 1]
    return java_hash(properties.tags, properties.tags_size)


cdef bint open_listed(const RecordView *record, ListedQueues *out, bint *is_odd) noexcept nogil:
    is_odd[0] = False
    if not find_property(record.properties, record.properties_size, MULTI_DISPATCH, MULTI_DISPATCH_SIZE, &out.names,
                         &out.names_size) or not find_property(
            record.properties, record.properties_size, MULTI_OFFSET, MULTI_OFFSET_SIZE, &out.offsets,
            &out.offsets_size):
        return False
    out.left = count_parts(out.names, out.names_size)
    is_odd[0] = out.left != count_parts(out.offsets, out.offsets_size)
    return not is_odd[0]


cdef bint next_listed(ListedQueues *listed) noexcept nogil:
    cdef int32_t name_step, offset_step
    if listed.left <= 0:
        return False
    listed.left -= 1
    listed.topic = listed.names
    listed.topic_size = part_size(listed.names, listed.names_size)
    listed.is_lmq = listed.topic_size >= LMQ_PREFIX_SIZE and memcmp(listed.topic, LMQ_PREFIX, LMQ_PREFIX_SIZE) == 0
    offset_step = part_size(listed.offsets, listed.offsets_size)
    listed.queue_offset = parse_offset(listed.offsets, offset_step)
    name_step = min(listed.topic_size + 1, listed.names_size)
    offset_step = min(offset_step + 1, listed.offsets_size)
    listed.names += name_step
    listed.names_size -= name_step
    listed.offsets += offset_step
    listed.offsets_size -= offset_step
    return True


cdef bytes to_path(path):
    cdef bytes encoded = os.fsencode(path)
    if len(encoded) >= DIRECTORY_SIZE_MAX:
        raise ConfigError(f"store path is longer than {DIRECTORY_SIZE_MAX - 1} bytes: {path}")
    return encoded


cdef class Dispatcher:
    """Writes consume queue units and index entries for commit log records; see the twin for the rules.

    One thread drives it. After a failure the same range may be dispatched again: what is there is recognised.
    """

    def __cinit__(self, paths, geometry, int mapped_count_max=MAPPED_QUEUES_MAX):
        cdef bytes index_path = to_path(paths.index), consume_queue_path = to_path(paths.consume_queue)
        cdef bytes ext_path
        if len(geometry.delay_levels_ms) > DELAY_LEVELS_MAX:
            raise ConfigError(f"messageDelayLevel: got {len(geometry.delay_levels_ms)} levels, "
                              f"wanted at most {DELAY_LEVELS_MAX}")
        for level, duration_ms in enumerate(geometry.delay_levels_ms):
            self.delay_levels_ms[level] = duration_ms
        self.delay_level_count = len(geometry.delay_levels_ms)
        self.index_enabled = geometry.index_enabled
        self.multi_dispatch_enabled = geometry.multi_dispatch_enabled
        self.lmq_enabled = geometry.lmq_enabled
        self.index.geometry.slot_count = geometry.index.slot_count
        self.index.geometry.entry_count = geometry.index.entry_count
        snprintf(self.index.path, DIRECTORY_SIZE_MAX, "%s", <const char *>index_path)
        if not queues_open(&self.queues, consume_queue_path, geometry.consume_queue_file_size,
                           max(1, mapped_count_max)):
            raise MemoryError
        if geometry.ext_enabled:
            make_directory(paths.consume_queue_ext)
            ext_path = to_path(paths.consume_queue_ext)
            snprintf(self.queues.ext_path, DIRECTORY_SIZE_MAX, "%s", <const char *>ext_path)
            self.queues.ext_file_size = geometry.ext_file_size

    def __dealloc__(self):
        queues_close(&self.queues)
        index_close(&self.index)

    @property
    def index_timestamp(self):
        """End timestamp of the last full index file that was synced, ms; 0 when none was."""
        return self.index.synced_timestamp

    @property
    def mapped_count(self):
        """How many consume queue files are mapped."""
        return self.queues.mapped_count

    cdef Py_ssize_t dispatch_range(
        self, const uint8_t *base, int64_t physical_offset, Py_ssize_t length
    ) noexcept nogil:
        cdef Py_ssize_t at = 0
        cdef RecordView record
        self.keyed_count = 0
        self.decode_status = DECODE_OK
        self.status = DISPATCH_ALL
        self.pauses = False
        if self.queues.slots == NULL:
            self.failure.error_number = EBADF
            snprintf(self.failure.path, PATH_SIZE_MAX, "%s", self.queues.path)
            self.status = DISPATCH_FAILED
            return 0
        while at < length:
            self.decode_status = decode_record(base + at, length - at, False, &record)
            if self.decode_status == DECODE_SHORT:
                self.status = DISPATCH_SHORT
                break
            if self.decode_status == DECODE_BLANK:
                self.status = DISPATCH_BLANK
                break
            if self.decode_status != DECODE_OK or record.physical_offset != physical_offset + at:
                self.status = DISPATCH_INVALID
                break
            if not self.dispatch_record(&record):
                self.status = DISPATCH_FAILED
                break
            at += record.total_size
            if self.pauses:
                break
            if self.keyed_count == KEYED_MAX:
                at = self.put_kept(physical_offset, at)
                if self.status == DISPATCH_FAILED:
                    break
        return self.put_kept(physical_offset, at)

    cdef bint dispatch_record(self, const RecordView *record) noexcept nogil:
        cdef int32_t transaction = record.sys_flag & SYS_TRANSACTION_MASK
        cdef IndexedProperties properties
        cdef int64_t tags_code
        find_indexed_properties(record.properties, record.properties_size, &properties)
        if transaction == 0 or transaction == SYS_TRANSACTION_COMMIT:
            tags_code = tags_code_of(record, &properties, self.delay_levels_ms,
                                     self.delay_level_count)
            if not self.put_unit(record, tags_code, self.queues.ext_file_size > 0):
                return False
            if self.multi_dispatch_enabled and not self.put_more_units(record, tags_code):
                return False
        if self.index_enabled and transaction != SYS_TRANSACTION_ROLLBACK:
            self.keep_keys(record, &properties)
        self.record_count += 1
        self.store_timestamp = record.store_timestamp
        return True

    cdef void on_unit(
        self, const uint8_t *topic, int32_t topic_size, int32_t queue_id, int64_t queue_offset,
        int64_t tags_code, int64_t store_timestamp
    ) noexcept nogil:
        pass

    cdef bint put_unit(self, const RecordView *record, int64_t tags_code, bint with_ext) noexcept nogil:
        cdef int64_t current, code = tags_code
        cdef int64_t target = record.queue_offset * CQ_UNIT_SIZE
        cdef QueueWriter *queue
        if record.queue_id < 0 or not is_topic(record.topic, record.topic_size) or not (
                0 <= record.queue_offset <= QUEUE_OFFSET_MAX):
            self.skipped_count += 1
            return True
        queue = find_writer(&self.queues, record.topic, record.topic_size, record.queue_id, &self.failure)
        if queue == NULL:
            return False
        if record.physical_offset < queue.born:
            self.dead_count += 1
            return True
        self.record_end = record.physical_offset + record.total_size
        if self.record_end > queue.max_physical:
            if not make_room(&self.queues, queue, target, self.fill_gaps, &self.failure):
                return False
            current = queue_end(queue)
            if target >= current or target == 0:
                if with_ext:
                    code = self.unit_code(queue, record, tags_code)
                if not append_unit(&self.queues, queue, record.physical_offset, record.total_size, code,
                                   &self.failure):
                    return False
                queue.bare = False
                queue.max_physical = self.record_end
                self.unit_count += 1
                self.order_error_count += target != current
                target = current
        self.logics_timestamp = max(self.logics_timestamp, record.store_timestamp)
        self.on_unit(record.topic, record.topic_size, record.queue_id, target // CQ_UNIT_SIZE, tags_code,
                     record.store_timestamp)
        return True

    cdef bint put_more_units(self, const RecordView *record, int64_t tags_code) noexcept nogil:
        cdef ListedQueues listed
        cdef bint is_odd
        cdef RecordView place = record[0]       # as if the message were one of the listed queue
        if not open_listed(record, &listed, &is_odd):
            self.skipped_count += is_odd
            return True
        while next_listed(&listed):
            place.topic = listed.topic
            place.topic_size = listed.topic_size
            place.queue_id = 0 if self.lmq_enabled and listed.is_lmq else record.queue_id
            place.queue_offset = listed.queue_offset
            # They never have ext units, in RocketMQ neither.
            if not self.put_unit(&place, tags_code, False):
                return False
        return True

    cdef int32_t bitmap_of(self, const RecordView *record, uint8_t *out) noexcept nogil:
        return 0

    cdef int64_t unit_code(self, QueueWriter *queue, const RecordView *record, int64_t tags_code) noexcept nogil:
        cdef uint8_t bitmap[EXT_BITMAP_MAX]
        cdef int32_t bitmap_size = self.bitmap_of(record, bitmap)
        cdef int64_t address
        if append_ext(&self.queues, queue, tags_code, record.store_timestamp, bitmap, bitmap_size, &address,
                      &self.failure):
            return address
        self.ext_failed_count += 1
        return tags_code

    cdef void keep_keys(self, const RecordView *record, const IndexedProperties *properties) noexcept nogil:
        cdef KeyedRecord *keyed = &self.keyed[self.keyed_count]
        if properties.unique_key_size == 0 and properties.keys_size == 0:
            return
        keyed.topic = record.topic
        keyed.topic_size = record.topic_size
        keyed.physical_offset = record.physical_offset
        keyed.store_timestamp = record.store_timestamp
        keyed.unique_key = properties.unique_key
        keyed.unique_key_size = properties.unique_key_size
        keyed.keys = properties.keys
        keyed.keys_size = properties.keys_size
        self.keyed_count += 1

    cdef Py_ssize_t put_kept(self, int64_t physical_offset, Py_ssize_t at) noexcept nogil:
        # How far the range from *physical_offset* on is dispatched with its keys: to *at*, where its units end, or to
        # the first record whose keys could not be put.
        cdef int32_t index, count = self.keyed_count
        self.keyed_count = 0
        for index in range(count):
            if not self.put_keys(&self.keyed[index]):
                self.status = DISPATCH_FAILED
                return self.keyed[index].physical_offset - physical_offset
        return at

    cdef bint put_keys(self, const KeyedRecord *record) noexcept nogil:
        cdef const uint8_t *keys = record.keys
        cdef int32_t keys_size = record.keys_size, start = 0, stop
        if not index_open(&self.index, &self.failure):
            return False
        if record.physical_offset < index_end(&self.index):
            return True
        if record.unique_key_size > 0 and not self.put_key(record, record.unique_key, record.unique_key_size):
            return False
        while start < keys_size:
            stop = start
            while stop < keys_size and keys[stop] != 32:
                stop += 1
            if stop > start and not self.put_key(record, keys + start, stop - start):
                return False
            start = stop + 1
        return True

    cdef bint put_key(self, const KeyedRecord *record, const uint8_t *key, int32_t key_size) noexcept nogil:
        return index_append(&self.index, index_key_hash(record.topic, record.topic_size, key, key_size),
                            record.physical_offset, record.store_timestamp, &self.failure)

    # ------------------------------------------------------------------------------------------- the Python side

    cdef object make_error(self):
        return twin.dispatch_error(self.failure.error_number, os.fsdecode(self.failure.path))

    def dispatch(self, const uint8_t[::1] buffer not None, int64_t physical_offset):
        """Dispatch the records of *buffer*, the commit log from *physical_offset* on; returns a DispatchOutcome."""
        cdef Py_ssize_t length = buffer.shape[0], consumed
        cdef const uint8_t *base = &buffer[0] if length > 0 else NULL
        with nogil:
            consumed = self.dispatch_range(base, physical_offset, length)
        if self.status == DISPATCH_FAILED:
            raise self.make_error()
        return twin.DispatchOutcome(consumed, twin.DispatchStatus(self.status), DecodeStatusName(self.decode_status))

    def queue_end(self, bytes topic not None, int32_t queue_id):
        """Return (max queue offset, end of its newest record in the commit log or -1) of a queue."""
        cdef QueueWriter *queue
        if self.queues.slots == NULL or queue_id < 0 or not is_topic(topic, len(topic)):
            raise ValueError(f"queue: got {topic!r}/{queue_id}, wanted a topic, a number, and an open dispatcher")
        queue = find_writer(&self.queues, topic, len(topic), queue_id, &self.failure)
        if queue == NULL:
            raise self.make_error()
        return max(0, queue_end(queue)) // CQ_UNIT_SIZE, queue.max_physical

    def flush(self):
        """Make every unit and index entry durable; returns how many consume queue files were synced.

        A failed sync raises StoreError and is final: the caller must not take a later success for the lost bytes.
        """
        cdef int64_t synced = 0, of_queue
        cdef size_t at
        if queues_unsynced(&self.queues) > <size_t>SYNCED_ONE_BY_ONE and can_sync_file_systems():
            synced = self.sync_at_once()
        for at in range(self.queues.capacity):
            if self.queues.slots[at] != NULL:
                with nogil:
                    of_queue = sync_queue(&self.queues, self.queues.slots[at], &self.failure)
                if of_queue < 0:
                    raise self.make_error()
                synced += of_queue
        self.flush_index()
        return synced

    cdef int64_t sync_at_once(self) except -1:
        # One sync of the file system instead of four for each queue.
        cdef int64_t synced = 0
        cdef size_t at
        try:
            witness = os.open(os.fsdecode(self.queues.path), os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return 0            # a file system without nameless files: one by one
        try:
            for path in (self.queues.ext_path, self.queues.path):
                if os.path.isdir(path):
                    sync_file_system(os.fsdecode(path), witness)
        finally:
            os.close(witness)
        for at in range(self.queues.capacity):
            if self.queues.slots[at] != NULL:
                synced += queue_was_synced(&self.queues, self.queues.slots[at])
        return synced

    def flush_index(self, bint full_only=False):
        """Make full index files durable, which moves index_timestamp, and the newest too unless *full_only*."""
        cdef bint done
        with nogil:
            done = index_sync(&self.index, not full_only, &self.failure)
        if not done:
            raise self.make_error()

    def bear(self, bytes topic not None, int32_t queue_id, int64_t physical_offset):
        """The queue was dropped and is born anew: records of it that start before *physical_offset* are passed over.

        What is known of its files is forgotten; they are about to be removed, or were.
        """
        if not bear_queue(&self.queues, topic, len(topic), queue_id, physical_offset, &self.failure):
            raise self.make_error()

    def close(self):
        """Unmap everything, synced or not. The dispatcher cannot be used any more."""
        queues_close(&self.queues)
        index_close(&self.index)
