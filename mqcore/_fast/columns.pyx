"""Stored records to columns in Arrow's layout, without a Python object per message.

The twin, and the readable statement of the rules, is mqcore/store/column_decoder.py. With the default columns a message
of 100 bytes takes 0.10 us and one of 1 KiB 0.33 us, properties apart another 0.02 us; the twin takes 30 us.

The loop runs without the GIL. What needs Python (a topic seen for the first time, a compressed body, malformed UTF-8,
an IPv6 host) stops it, is done at the border, and the same record is taken again.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memset

import numpy as np

from mqcore._fast.big_endian cimport load_i16, load_i32, load_i64
from mqcore._fast.column_memory cimport Memory, put_bytes, put_end, put_i32, put_i64, put_u8
from mqcore._fast.crc32 cimport crc32
from mqcore._fast.layout cimport (MESSAGE_MAGIC_V2, RECORD_HEAD_BODY_CRC_AT,
                                  RECORD_HEAD_PHYSICAL_OFFSET_AT, RECORD_HEAD_BORN_TIMESTAMP_AT, RECORD_HEAD_FLAG_AT,
                                  RECORD_HEAD_QUEUE_ID_AT, RECORD_HEAD_QUEUE_OFFSET_AT, RECORD_HEAD_SIZE,
                                  RECORD_HEAD_SYS_FLAG_AT, RECORD_MIDDLE_PREPARED_TRANSACTION_OFFSET_AT,
                                  RECORD_MIDDLE_RECONSUME_TIMES_AT, RECORD_MIDDLE_SIZE, RECORD_STORE_TIME_SIZE)
from mqcore._fast.record cimport (BODY_CRC_MASK, DECODE_BAD_CRC, DECODE_BAD_MAGIC, DECODE_BAD_SIZE, DECODE_BLANK,
                                  DECODE_OK, DECODE_SHORT, RECORD_SIZE_MIN, SYS_BORN_HOST_V6, SYS_STORE_HOST_V6,
                                  DecodeStatus, Host, RecordView, decode_record)
from mqcore._fast.utf8 cimport is_utf8

from mqcore.errors import ProtocolError
from mqcore.protocol.compression import decompress as decompress_body
from mqcore.store import column_decoder as twin
from mqcore.store.message_columns import (BATCH_BYTES_DEFAULT, BATCH_ROWS_DEFAULT, EVERYTHING, ColumnBuffers,
                                          ColumnCode, ColumnKind, MessageBatch, bad_body, bad_record, check_limits,
                                          columns_of, constant_column, fixed_column, text_column)


cdef enum:                                  # as ColumnCode; checked below
    TOPIC = 0
    BROKER_NAME = 1
    QUEUE_ID = 2
    QUEUE_OFFSET = 3
    MSG_ID = 4
    TAGS = 5
    KEYS = 6
    BODY = 7
    PROPERTIES = 8
    BORN_TIMESTAMP = 9
    STORE_TIMESTAMP = 10
    BORN_HOST = 11
    RECONSUME_TIMES = 12
    SYS_FLAG = 13
    FLAG = 14
    PHYSICAL_OFFSET = 15
    STORE_SIZE = 16
    BODY_SIZE = 17
    BODY_CRC = 18
    COMPUTED_BODY_CRC = 19
    PREPARED_TRANSACTION_OFFSET = 20
    STORE_HOST = 21
    OFFSET_MSG_ID = 22
    UNIQUE_KEY = 23
    COLUMN_COUNT = 24

cdef enum:
    NAME_VALUE_SEPARATOR = 1
    PROPERTY_SEPARATOR = 2
    SYS_COMPRESSED = 1
    PORT_SIZE = 4
    BODY_SIZE_SIZE = 4
    TOPIC_SIZE_SIZE_V2 = 2
    PROPERTIES_SIZE_SIZE = 2
    HOST_TEXT_SIZE = 64
    INT32_MAX = 0x7FFFFFFF
    ROW_SLACK = 1024                        # what a row adds at most besides body and properties, topic apart
    MICROSECONDS_PER_MS = 1000
    MISPLACED = 6                           # as in mqcore.store.record.DecodeStatus

cdef enum Stop:                             # why the loop stopped
    STOP_END                                # at the end of the buffer, or at a filler in a log
    STOP_FULL                               # the batch is full
    STOP_BAD                                # the bytes are no whole record: s.status, s.view
    STOP_TOPIC                              # a topic that is not in the table yet
    STOP_TEXT                               # properties that are not UTF-8
    STOP_BODY                               # a compressed body
    STOP_BORN_HOST                          # IPv6 hosts, to be written as text
    STOP_STORE_HOST
    STOP_MEMORY

cdef int64_t INT64_MAX = 0x7FFFFFFFFFFFFFFF
cdef int64_t MS_MAX = INT64_MAX // MICROSECONDS_PER_MS

for code, number in (
        (ColumnCode.TOPIC, TOPIC), (ColumnCode.BROKER_NAME, BROKER_NAME), (ColumnCode.QUEUE_ID, QUEUE_ID),
        (ColumnCode.QUEUE_OFFSET, QUEUE_OFFSET), (ColumnCode.MSG_ID, MSG_ID), (ColumnCode.TAGS, TAGS),
        (ColumnCode.KEYS, KEYS), (ColumnCode.BORN_TIMESTAMP, BORN_TIMESTAMP),
        (ColumnCode.STORE_TIMESTAMP, STORE_TIMESTAMP), (ColumnCode.BORN_HOST, BORN_HOST),
        (ColumnCode.RECONSUME_TIMES, RECONSUME_TIMES), (ColumnCode.FLAG, FLAG),
        (ColumnCode.PHYSICAL_OFFSET, PHYSICAL_OFFSET), (ColumnCode.STORE_SIZE, STORE_SIZE),
        (ColumnCode.BODY_SIZE, BODY_SIZE), (ColumnCode.COMPUTED_BODY_CRC, COMPUTED_BODY_CRC),
        (ColumnCode.PREPARED_TRANSACTION_OFFSET, PREPARED_TRANSACTION_OFFSET),
        (ColumnCode.OFFSET_MSG_ID, OFFSET_MSG_ID), (ColumnCode.BODY, BODY),
        (ColumnCode.PROPERTIES, PROPERTIES), (ColumnCode.SYS_FLAG, SYS_FLAG), (ColumnCode.BODY_CRC, BODY_CRC),
        (ColumnCode.STORE_HOST, STORE_HOST), (ColumnCode.UNIQUE_KEY, UNIQUE_KEY), (len(ColumnCode), COLUMN_COUNT)):
    if code != number:
        raise ValueError(f"the numbers of columns differ from those of ColumnCode: {code!r} is {number}")


cdef struct Pair:                           # one property; points into the text
    const uint8_t *name
    int32_t name_size
    const uint8_t *value
    int32_t value_size

cdef struct Range:
    int32_t queue_id
    int64_t start
    int64_t end

cdef struct Topic:                          # one topic that was seen; *name* as stored, *text* as UTF-8
    const uint8_t *name
    int32_t name_size
    const uint8_t *text
    int32_t text_size
    bint is_wanted
    bint only_ranges
    int32_t first_range
    int32_t range_count

cdef struct HostText:                       # the host that was written last, and its text
    uint8_t[16] address
    int32_t address_size                    # 0: none yet
    int32_t port
    uint8_t[HOST_TEXT_SIZE] text
    int32_t text_size

cdef struct Text:
    const uint8_t *data
    Py_ssize_t size

cdef struct State:
    bint[COLUMN_COUNT] wanted
    Memory[COLUMN_COUNT] values
    Memory[COLUMN_COUNT] offsets
    Memory[COLUMN_COUNT] valid
    Memory map_key_offsets
    Memory map_keys
    Memory map_value_offsets
    Memory map_values
    Memory pairs
    Py_ssize_t pair_count
    bint needs_properties
    bint decompress
    bint check_crc
    int64_t bytes                           # collected in this batch
    int64_t fixed_row_size                  # what each row adds whatever is in it
    int64_t rows
    int64_t batch_bytes
    int64_t batch_rows
    # what is wanted
    int32_t *queue_ids
    Py_ssize_t queue_id_count               # -1: all
    int64_t offset_min
    int64_t offset_max
    int64_t store_timestamp_min
    int64_t store_timestamp_max
    Text *tags
    Py_ssize_t tag_count                    # -1: all
    Memory ranges
    # topics
    Memory topics
    int32_t topic_count
    int32_t *slots                          # open addressing: index of the topic + 1, 0 = free
    int32_t slot_count                      # a power of two
    int32_t topic_last                      # index of the topic of the record before
    # the record under way
    HostText born_host
    HostText store_host
    Py_ssize_t override_at                  # place in the buffer that the next two belong to, -1 for none
    Text clean_properties                   # data is NULL: as stored
    Text plain_body
    RecordView view
    DecodeStatus status
    int64_t last_queue_offset


# -------------------------------------------------------------------------------------------- memory


cdef class ColumnBuffer:
    """Memory that a decoder has filled, read-only; freed with its last view."""

    cdef uint8_t *data
    cdef Py_ssize_t size

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)


# Hand the bytes of *memory* to an array; *memory* is empty afterwards.
cdef object take_array(Memory *memory, dtype):
    cdef ColumnBuffer owner
    cdef uint8_t *shrunk
    if memory.size == 0:
        return np.empty(0, dtype=dtype)
    owner = ColumnBuffer.__new__(ColumnBuffer)
    memory.hint = memory.size + memory.size // 16
    if memory.size < memory.capacity // 2:
        shrunk = <uint8_t *>realloc(memory.data, memory.size)
        memory.data = shrunk if shrunk != NULL else memory.data
    owner.data = memory.data
    owner.size = memory.size
    memory.data = NULL
    memory.size = 0
    memory.capacity = 0
    return np.frombuffer(owner, dtype=dtype)


# -------------------------------------------------------------------------------------------- text


cdef inline int32_t write_decimal(uint8_t *out, int64_t value) noexcept nogil:
    cdef uint8_t[20] digits
    cdef int32_t count = 0, size = 0
    cdef uint64_t left
    if value < 0:
        out[0] = 45                         # '-'
        size = 1
    left = <uint64_t>(-value if value < 0 else value)
    while True:
        digits[count] = <uint8_t>(48 + left % 10)
        left //= 10
        count += 1
        if left == 0:
            break
    while count > 0:
        count -= 1
        out[size] = digits[count]
        size += 1
    return size


# Make *cache* hold the text of *host*; False: it is an IPv6 address, which Python writes.
cdef bint write_host(HostText *cache, const Host *host) noexcept nogil:
    cdef int32_t part, size = 0
    if (cache.address_size == host.address_size and cache.port == host.port
            and memcmp(cache.address, host.address, host.address_size) == 0):
        return True
    if host.address_size != 4:
        return False
    for part in range(4):
        size += write_decimal(cache.text + size, host.address[part])
        cache.text[size] = 46 if part < 3 else 58       # '.', ':'
        size += 1
    cache.text_size = size + write_decimal(cache.text + size, host.port)
    memcpy(cache.address, host.address, 4)
    cache.address_size = 4
    cache.port = host.port
    return True


cdef inline void write_hex(uint8_t *out, const uint8_t *data, int32_t size) noexcept nogil:
    cdef int32_t at
    cdef const uint8_t *digits = b"0123456789ABCDEF"
    for at in range(size):
        out[2 * at] = digits[data[at] >> 4]
        out[2 * at + 1] = digits[data[at] & 15]


# -------------------------------------------------------------------------------------------- one record, parsed


cdef inline const uint8_t *read_host(const uint8_t *at, int32_t size, Host *out) noexcept nogil:
    out.address = at
    out.address_size = size
    out.port = load_i32(at + size)
    return at + size + PORT_SIZE


# As decode_record, for magic V2: the topic's length has two bytes.
cdef DecodeStatus decode_v2_record(
    const uint8_t *buf, Py_ssize_t length, bint check_crc, RecordView *out
) noexcept nogil:
    cdef const uint8_t *at
    cdef Py_ssize_t left
    cdef int32_t born_size, store_size
    if out.total_size < RECORD_SIZE_MIN + 1:
        return DECODE_BAD_SIZE
    if out.total_size > length:
        return DECODE_SHORT
    out.body_crc = load_i32(buf + RECORD_HEAD_BODY_CRC_AT)
    out.queue_id = load_i32(buf + RECORD_HEAD_QUEUE_ID_AT)
    out.flag = load_i32(buf + RECORD_HEAD_FLAG_AT)
    out.queue_offset = load_i64(buf + RECORD_HEAD_QUEUE_OFFSET_AT)
    out.physical_offset = load_i64(buf + RECORD_HEAD_PHYSICAL_OFFSET_AT)
    out.sys_flag = load_i32(buf + RECORD_HEAD_SYS_FLAG_AT)
    out.born_timestamp = load_i64(buf + RECORD_HEAD_BORN_TIMESTAMP_AT)
    born_size = 16 if out.sys_flag & SYS_BORN_HOST_V6 else 4
    store_size = 16 if out.sys_flag & SYS_STORE_HOST_V6 else 4
    left = out.total_size - (RECORD_SIZE_MIN + 1 + born_size - 4 + store_size - 4)
    if left < 0:
        return DECODE_BAD_SIZE
    at = read_host(buf + RECORD_HEAD_SIZE, born_size, &out.born_host)
    out.store_timestamp = load_i64(at)
    at = read_host(at + RECORD_STORE_TIME_SIZE, store_size, &out.store_host)
    out.reconsume_times = load_i32(at + RECORD_MIDDLE_RECONSUME_TIMES_AT)
    out.prepared_transaction_offset = load_i64(at + RECORD_MIDDLE_PREPARED_TRANSACTION_OFFSET_AT)
    at += RECORD_MIDDLE_SIZE
    out.body_size = load_i32(at)
    if out.body_size < 0 or out.body_size > left:
        return DECODE_BAD_SIZE
    left -= out.body_size
    out.body = at + BODY_SIZE_SIZE
    at = out.body + out.body_size
    out.topic_size = load_i16(at)
    if out.topic_size < 0 or out.topic_size > left:
        return DECODE_BAD_SIZE
    left -= out.topic_size
    out.topic = at + TOPIC_SIZE_SIZE_V2
    at = out.topic + out.topic_size
    out.properties_size = load_i16(at)
    if out.properties_size < 0 or out.properties_size != left:
        return DECODE_BAD_SIZE
    out.properties = at + PROPERTIES_SIZE_SIZE
    if check_crc and out.body_size > 0:
        if <int32_t>(crc32(out.body, out.body_size) & BODY_CRC_MASK) != out.body_crc:
            return DECODE_BAD_CRC
    return DECODE_OK


cdef inline DecodeStatus decode_any(
    const uint8_t *buf, Py_ssize_t length, bint check_crc, RecordView *out
) noexcept nogil:
    cdef DecodeStatus status = decode_record(buf, length, check_crc, out)
    if status == DECODE_BAD_MAGIC and out.magic == MESSAGE_MAGIC_V2:
        return decode_v2_record(buf, length, check_crc, out)
    return status


cdef inline bint same_text(const uint8_t *a, int32_t a_size, const uint8_t *b, int32_t b_size) noexcept nogil:
    return a_size == b_size and memcmp(a, b, a_size) == 0


# Split a properties text into s.pairs; the last of duplicate names stays, at its place. False: no memory.
cdef bint split_properties(State *s, const uint8_t *text, Py_ssize_t size) noexcept nogil:
    cdef const uint8_t *at = text
    cdef const uint8_t *end = text + size
    cdef const uint8_t *stop
    cdef const uint8_t *split
    cdef Pair pair
    s.pairs.size = 0
    s.pair_count = 0
    while at < end:
        stop = <const uint8_t *>memchr(at, PROPERTY_SEPARATOR, end - at)
        if stop == NULL:
            stop = end
        split = <const uint8_t *>memchr(at, NAME_VALUE_SEPARATOR, stop - at)
        if split != NULL and split > at and split + 1 < stop:
            pair.name = at
            pair.name_size = <int32_t>(split - at)
            pair.value = split + 1
            pair.value_size = <int32_t>(stop - split - 1)
            drop_pair(s, &pair)
            if not put_bytes(&s.pairs, <const uint8_t *>&pair, sizeof(Pair)):
                return False
            s.pair_count += 1
        at = stop + 1
    return True


cdef void drop_pair(State *s, const Pair *pair) noexcept nogil:
    cdef Pair *pairs = <Pair *>s.pairs.data
    cdef Py_ssize_t index, other
    for index in range(s.pair_count):
        if same_text(pairs[index].name, pairs[index].name_size, pair.name, pair.name_size):
            for other in range(index + 1, s.pair_count):
                pairs[other - 1] = pairs[other]
            s.pair_count -= 1
            s.pairs.size -= sizeof(Pair)
            return


cdef const Pair *find_pair(const State *s, const char *name, int32_t name_size) noexcept nogil:
    cdef const Pair *pairs = <const Pair *>s.pairs.data
    cdef Py_ssize_t index
    for index in range(s.pair_count):
        if same_text(pairs[index].name, pairs[index].name_size, <const uint8_t *>name, name_size):
            return &pairs[index]
    return NULL


# -------------------------------------------------------------------------------------------- what is wanted


cdef inline uint32_t hash_name(const uint8_t *name, int32_t size) noexcept nogil:
    cdef uint32_t value = 2166136261
    cdef int32_t at
    for at in range(size):
        value = (value ^ name[at]) * 16777619
    return value


# The topic of the record, or NULL for one that is not in the table.
cdef const Topic *find_topic(State *s, const uint8_t *name, int32_t size) noexcept nogil:
    cdef const Topic *topics = <const Topic *>s.topics.data
    cdef uint32_t slot
    cdef int32_t index
    if s.topic_count > 0 and same_text(topics[s.topic_last].name, topics[s.topic_last].name_size, name, size):
        return &topics[s.topic_last]
    if s.slot_count == 0:
        return NULL
    slot = hash_name(name, size) & <uint32_t>(s.slot_count - 1)
    while s.slots[slot] != 0:               # ends: the table is never more than half full
        index = s.slots[slot] - 1
        if same_text(topics[index].name, topics[index].name_size, name, size):
            s.topic_last = index
            return &topics[index]
        slot = (slot + 1) & <uint32_t>(s.slot_count - 1)
    return NULL


cdef inline bint is_between(int64_t value, int64_t start, int64_t end) noexcept nogil:
    return start <= value and (value < end or end == INT64_MAX)


cdef bint has_queue(const State *s, int32_t queue_id) noexcept nogil:
    cdef Py_ssize_t index
    for index in range(s.queue_id_count):
        if s.queue_ids[index] == queue_id:
            return True
    return s.queue_id_count < 0


cdef bint is_in_ranges(const State *s, const Topic *topic, int32_t queue_id, int64_t queue_offset) noexcept nogil:
    cdef const Range *ranges = <const Range *>s.ranges.data
    cdef int32_t low = topic.first_range, high = topic.first_range + topic.range_count, middle
    cdef int32_t end = high
    while low < high:
        middle = low + (high - low) // 2
        if ranges[middle].queue_id < queue_id:
            low = middle + 1
        else:
            high = middle
    if low < end and ranges[low].queue_id == queue_id:
        return is_between(queue_offset, ranges[low].start, ranges[low].end)
    return not topic.only_ranges


# All but the tags.
cdef inline bint is_wanted(const State *s, const Topic *topic) noexcept nogil:
    return (topic.is_wanted
            and is_between(s.view.queue_offset, s.offset_min, s.offset_max)
            and is_between(s.view.store_timestamp, s.store_timestamp_min, s.store_timestamp_max)
            and (s.queue_id_count < 0 or has_queue(s, s.view.queue_id))
            and (topic.range_count == 0 and not topic.only_ranges
                 or is_in_ranges(s, topic, s.view.queue_id, s.view.queue_offset)))


cdef bint has_tag(const State *s) noexcept nogil:
    cdef const Pair *tags = find_pair(s, b"TAGS", 4)
    cdef Py_ssize_t index
    if tags == NULL:
        return False
    for index in range(s.tag_count):
        if s.tags[index].size == tags.value_size and (
                memcmp(s.tags[index].data, tags.value, tags.value_size) == 0):
            return True
    return False


# -------------------------------------------------------------------------------------------- one row written


cdef inline bint put_text(State *s, int column, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    s.bytes += size
    return put_bytes(&s.values[column], data, size) and put_end(&s.offsets[column], &s.values[column])


cdef inline bint put_optional(State *s, int column, const Pair *pair) noexcept nogil:
    if not put_u8(&s.valid[column], pair != NULL):
        return False
    return put_text(s, column, pair.value, pair.value_size) if pair != NULL else put_text(s, column, NULL, 0)


cdef bint put_map(State *s) noexcept nogil:
    cdef const Pair *pairs = <const Pair *>s.pairs.data
    cdef Py_ssize_t index
    for index in range(s.pair_count):
        s.bytes += pairs[index].name_size + pairs[index].value_size + 8
        if not (put_bytes(&s.map_keys, pairs[index].name, pairs[index].name_size)
                and put_end(&s.map_key_offsets, &s.map_keys)
                and put_bytes(&s.map_values, pairs[index].value, pairs[index].value_size)
                and put_end(&s.map_value_offsets, &s.map_values)):
            return False
    return put_i32(&s.offsets[PROPERTIES], <int32_t>(s.map_key_offsets.size // 4 - 1))


cdef bint put_offset_id(State *s, int column) noexcept nogil:
    cdef uint8_t[56] text
    cdef int32_t size = s.view.store_host.address_size + PORT_SIZE
    cdef uint8_t[8] place
    cdef int index
    for index in range(8):
        place[index] = <uint8_t>((<uint64_t>s.view.physical_offset) >> (56 - 8 * index))
    write_hex(text, s.view.store_host.address, size)
    write_hex(text + 2 * size, place, 8)
    return put_text(s, column, text, 2 * size + 16)


cdef bint put_message_id(State *s) noexcept nogil:
    cdef const Pair *pair = find_pair(s, b"UNIQ_KEY", 8)
    return put_text(s, MSG_ID, pair.value, pair.value_size) if pair != NULL else put_offset_id(s, MSG_ID)


cdef inline int64_t to_microseconds(int64_t ms) noexcept nogil:
    if ms > MS_MAX:
        return INT64_MAX
    return ms * MICROSECONDS_PER_MS if ms >= -MS_MAX else -INT64_MAX


cdef bint put_numbers(State *s) noexcept nogil:
    cdef bint *wanted = s.wanted
    cdef const RecordView *view = &s.view
    cdef bint fine = True
    if wanted[QUEUE_ID]:
        fine = fine and put_i32(&s.values[QUEUE_ID], view.queue_id)
    if wanted[QUEUE_OFFSET]:
        fine = fine and put_i64(&s.values[QUEUE_OFFSET], view.queue_offset)
    if wanted[BORN_TIMESTAMP]:
        fine = fine and put_i64(&s.values[BORN_TIMESTAMP], to_microseconds(view.born_timestamp))
    if wanted[STORE_TIMESTAMP]:
        fine = fine and put_i64(&s.values[STORE_TIMESTAMP], to_microseconds(view.store_timestamp))
    if wanted[RECONSUME_TIMES]:
        fine = fine and put_i32(&s.values[RECONSUME_TIMES], view.reconsume_times)
    if wanted[SYS_FLAG]:
        fine = fine and put_i32(&s.values[SYS_FLAG], view.sys_flag)
    if wanted[FLAG]:
        fine = fine and put_i32(&s.values[FLAG], view.flag)
    if wanted[PHYSICAL_OFFSET]:
        fine = fine and put_i64(&s.values[PHYSICAL_OFFSET], view.physical_offset)
    if wanted[STORE_SIZE]:
        fine = fine and put_i32(&s.values[STORE_SIZE], view.total_size)
    if wanted[BODY_SIZE]:
        fine = fine and put_i32(&s.values[BODY_SIZE], view.body_size)
    if wanted[BODY_CRC]:
        fine = fine and put_i32(&s.values[BODY_CRC], view.body_crc)
    if wanted[COMPUTED_BODY_CRC]:
        fine = fine and put_i32(&s.values[COMPUTED_BODY_CRC],
                                <int32_t>(crc32(view.body, view.body_size) & BODY_CRC_MASK))
    if wanted[PREPARED_TRANSACTION_OFFSET]:
        fine = fine and put_i64(&s.values[PREPARED_TRANSACTION_OFFSET], view.prepared_transaction_offset)
    return fine


cdef bint put_texts(State *s, const Topic *topic, const uint8_t *body, Py_ssize_t body_size) noexcept nogil:
    cdef bint *wanted = s.wanted
    cdef bint fine = True
    if wanted[TOPIC]:
        fine = fine and put_text(s, TOPIC, topic.text, topic.text_size)
    if wanted[MSG_ID]:
        fine = fine and put_message_id(s)
    if wanted[TAGS]:
        fine = fine and put_optional(s, TAGS, find_pair(s, b"TAGS", 4))
    if wanted[KEYS]:
        fine = fine and put_optional(s, KEYS, find_pair(s, b"KEYS", 4))
    if wanted[UNIQUE_KEY]:
        fine = fine and put_optional(s, UNIQUE_KEY, find_pair(s, b"UNIQ_KEY", 8))
    if wanted[BODY]:
        fine = fine and put_text(s, BODY, body, body_size)
    if wanted[PROPERTIES]:
        fine = fine and put_map(s)
    if wanted[BORN_HOST]:
        fine = fine and put_text(s, BORN_HOST, s.born_host.text, s.born_host.text_size)
    if wanted[STORE_HOST]:
        fine = fine and put_text(s, STORE_HOST, s.store_host.text, s.store_host.text_size)
    if wanted[OFFSET_MSG_ID]:
        fine = fine and put_offset_id(s, OFFSET_MSG_ID)
    return fine


# Add the record in s.view, which lies at *position* of the buffer, if it is wanted. STOP_END: done.
cdef Stop add_record(State *s, Py_ssize_t position) noexcept nogil:
    cdef const Topic *topic = find_topic(s, s.view.topic, s.view.topic_size)
    cdef const uint8_t *body = s.view.body
    cdef Py_ssize_t body_size = s.view.body_size
    cdef const uint8_t *properties = s.view.properties
    cdef Py_ssize_t properties_size = s.view.properties_size
    cdef bint is_same = s.override_at == position
    if topic == NULL:
        return STOP_TOPIC
    if not is_wanted(s, topic):
        return STOP_END
    if s.needs_properties:
        if is_same and s.clean_properties.data != NULL:
            properties = s.clean_properties.data
            properties_size = s.clean_properties.size
        elif not is_utf8(properties, properties_size):
            return STOP_TEXT
        if not split_properties(s, properties, properties_size):
            return STOP_MEMORY
        if s.tag_count >= 0 and not has_tag(s):
            return STOP_END
    if s.wanted[BODY] and s.decompress and s.view.sys_flag & SYS_COMPRESSED:
        if not is_same or s.plain_body.data == NULL:
            return STOP_BODY
        body = s.plain_body.data
        body_size = s.plain_body.size
    if s.wanted[BORN_HOST] and not write_host(&s.born_host, &s.view.born_host):
        return STOP_BORN_HOST
    if s.wanted[STORE_HOST] and not write_host(&s.store_host, &s.view.store_host):
        return STOP_STORE_HOST
    # Offsets into a column have 32 bits. A row alone always fits: its record has.
    if s.rows > 0 and s.bytes > INT32_MAX - (body_size + 8 * properties_size + topic.text_size + ROW_SLACK):
        return STOP_FULL
    if not put_numbers(s) or not put_texts(s, topic, body, body_size):
        return STOP_MEMORY
    s.rows += 1
    s.bytes += s.fixed_row_size
    return STOP_END


# Take records from buf[position[0]:length] until something stops it; *position* moves behind each that is done. A
# *physical_offset* >= 0 says where buf[0] lies in the commit log.
cdef Stop run(
    State *s, const uint8_t *buf, Py_ssize_t length, int64_t physical_offset, Py_ssize_t *position
) noexcept nogil:
    cdef Stop stop
    while position[0] < length:
        if s.rows > 0 and (s.bytes >= s.batch_bytes or s.rows >= s.batch_rows):
            return STOP_FULL
        s.status = decode_any(buf + position[0], length - position[0], s.check_crc, &s.view)
        if s.status == DECODE_BLANK and physical_offset >= 0:
            position[0] = length
            return STOP_END
        if s.status != DECODE_OK:
            return STOP_BAD
        if physical_offset >= 0 and s.view.physical_offset != physical_offset + position[0]:
            s.status = <DecodeStatus>MISPLACED
            return STOP_BAD
        stop = add_record(s, position[0])
        if stop != STOP_END:
            return stop
        s.last_queue_offset = s.view.queue_offset
        position[0] += s.view.total_size
    if s.rows > 0 and (s.bytes >= s.batch_bytes or s.rows >= s.batch_rows):
        return STOP_FULL
    return STOP_END


# -------------------------------------------------------------------------------------------- the Python side


cdef dict FIXED_DTYPES = {ColumnKind.INT32: np.int32, ColumnKind.INT64: np.int64, ColumnKind.TIMESTAMP: np.int64}


cdef class ColumnDecoder:
    """Collects messages, record by record, into columns; see the twin for the rules."""

    cdef State s
    cdef tuple columns
    cdef object selection
    cdef object broker_name
    cdef list kept                          # bytes that State points into, for as long as the decoder lives
    cdef object kept_properties             # the same, for the record under way
    cdef object kept_body
    cdef Py_ssize_t at
    cdef bint full

    def __cinit__(self):
        memset(&self.s, 0, sizeof(State))

    def __init__(self, columns=None, *, broker_name=None, selection=EVERYTHING, batch_bytes=BATCH_BYTES_DEFAULT,
                 batch_rows=BATCH_ROWS_DEFAULT, decompress=True, check_crc=False):
        check_limits(batch_bytes, batch_rows)
        if self.kept is not None:
            raise TypeError("a decoder is made once")
        self.kept = []
        self.columns = columns_of(columns)
        self.selection = EVERYTHING if selection is None else selection
        self.broker_name = broker_name
        self.s.batch_bytes = batch_bytes
        self.s.batch_rows = batch_rows
        self.s.decompress = decompress
        self.s.check_crc = check_crc
        self.s.override_at = -1
        self.s.last_queue_offset = -1
        self.set_columns()
        self.set_selection()
        self.start_batch()

    def __dealloc__(self):
        cdef int column
        for column in range(COLUMN_COUNT):
            free(self.s.values[column].data)
            free(self.s.offsets[column].data)
            free(self.s.valid[column].data)
        free(self.s.map_key_offsets.data)
        free(self.s.map_keys.data)
        free(self.s.map_value_offsets.data)
        free(self.s.map_values.data)
        free(self.s.pairs.data)
        free(self.s.ranges.data)
        free(self.s.topics.data)
        free(self.s.slots)
        free(self.s.queue_ids)
        free(self.s.tags)

    cdef set_columns(self):
        for column in self.columns:
            self.s.wanted[<int>column.code] = True
            self.s.fixed_row_size += 4 if column.kind is ColumnKind.INT32 or column.kind not in FIXED_DTYPES else 8
        self.s.needs_properties = (
            self.s.wanted[MSG_ID] or self.s.wanted[TAGS] or self.s.wanted[KEYS] or self.s.wanted[PROPERTIES]
            or self.s.wanted[UNIQUE_KEY] or self.selection.tags is not None
        )

    cdef set_selection(self):
        cdef Py_ssize_t index
        chosen = self.selection
        self.s.offset_min = chosen.offset_min
        self.s.offset_max = chosen.offset_max
        self.s.store_timestamp_min = chosen.store_timestamp_min
        self.s.store_timestamp_max = chosen.store_timestamp_max
        self.s.queue_id_count = -1
        self.s.tag_count = -1
        if chosen.queue_ids is not None:
            numbers = sorted(chosen.queue_ids)
            self.s.queue_ids = <int32_t *>malloc(max(1, len(numbers)) * sizeof(int32_t))
            if self.s.queue_ids == NULL:
                raise MemoryError
            for index in range(len(numbers)):
                self.s.queue_ids[index] = numbers[index]
            self.s.queue_id_count = len(numbers)
        if chosen.tags is not None:
            tags = [self.keep(tag.encode("utf-8", "replace")) for tag in sorted(chosen.tags)]
            self.s.tags = <Text *>malloc(max(1, len(tags)) * sizeof(Text))
            if self.s.tags == NULL:
                raise MemoryError
            for index in range(len(tags)):
                self.s.tags[index].data = tags[index]
                self.s.tags[index].size = len(tags[index])
            self.s.tag_count = len(tags)

    cdef bytes keep(self, bytes text):
        self.kept.append(text)
        return text

    cdef start_batch(self):
        cdef int column
        cdef bint fine = True
        self.s.rows = 0
        self.s.bytes = 0
        self.full = False
        for column in range(COLUMN_COUNT):
            if self.s.wanted[column] and is_text(column):
                fine = fine and put_i32(&self.s.offsets[column], 0)
        if self.s.wanted[PROPERTIES]:
            fine = fine and put_i32(&self.s.map_key_offsets, 0) and put_i32(&self.s.map_value_offsets, 0)
        if not fine:
            raise MemoryError

    @property
    def row_count(self):
        return self.s.rows

    @property
    def size(self):
        return self.s.bytes

    @property
    def is_full(self):
        return self.full

    @property
    def position(self):
        return self.at

    @property
    def last_queue_offset(self):
        return self.s.last_queue_offset

    def feed(self, const uint8_t[::1] buffer not None, Py_ssize_t position=0, physical_offset=None):
        """Take the records of *buffer* from *position* on; return where the next one starts. See the twin."""
        cdef Py_ssize_t length = buffer.shape[0]
        cdef const uint8_t *base = &buffer[0] if length > 0 else NULL
        cdef int64_t place = -1 if physical_offset is None else physical_offset
        cdef Stop stop
        if not 0 <= position <= length:
            raise IndexError(f"position {position} of {length} bytes")
        if physical_offset is not None and place < 0:
            raise ValueError(f"physical offset {place}")
        self.at = position
        # What was made ready for a record belongs to the buffer that it was in.
        self.s.override_at = -1
        while True:
            with nogil:
                stop = run(&self.s, base, length, place, &self.at)
            if stop == STOP_END or stop == STOP_FULL:
                self.full = stop == STOP_FULL
                return self.at
            if stop == STOP_MEMORY:
                raise MemoryError
            if stop == STOP_BAD:
                raise self.record_error(base, length, place)
            self.help(stop, self.at + place if place >= 0 else self.s.view.physical_offset)

    cdef object record_error(self, const uint8_t *base, Py_ssize_t length, int64_t physical_offset):
        cdef int64_t place = -1
        if physical_offset >= 0:
            place = physical_offset + self.at
        elif length - self.at >= RECORD_HEAD_SIZE:
            place = load_i64(base + self.at + RECORD_HEAD_PHYSICAL_OFFSET_AT)
        return bad_record(<int>self.s.status, self.s.view.magic, self.s.view.total_size, place, self.at, length)

    # Do for the record at self.at what needs Python; *place* is where it lies in the commit log.
    cdef help(self, Stop stop, int64_t place):
        cdef const RecordView *view = &self.s.view
        if self.s.override_at != self.at:
            self.s.override_at = self.at
            self.s.clean_properties.data = NULL
            self.s.plain_body.data = NULL
        if stop == STOP_TOPIC:
            self.add_topic(view.topic[:view.topic_size])
        elif stop == STOP_TEXT:
            self.kept_properties = view.properties[:view.properties_size].decode("utf-8", "replace").encode()
            self.s.clean_properties.data = self.kept_properties
            self.s.clean_properties.size = len(self.kept_properties)
        elif stop == STOP_BODY:
            try:
                self.kept_body = decompress_body(view.body[:view.body_size], view.sys_flag)
            except ProtocolError as error:
                raise bad_body(error, place) from error
            self.s.plain_body.data = self.kept_body
            self.s.plain_body.size = len(self.kept_body)
        elif stop == STOP_BORN_HOST:
            set_host(&self.s.born_host, &view.born_host)
        else:
            set_host(&self.s.store_host, &view.store_host)

    cdef add_topic(self, bytes name):
        cdef Topic topic
        cdef Range bounds
        cdef bytes stored = self.keep(name), text = self.keep(name.decode("utf-8", "replace").encode())
        rule = self.selection.rule_of(text.decode())
        memset(&topic, 0, sizeof(Topic))
        topic.name = stored
        topic.name_size = len(stored)
        topic.text = text
        topic.text_size = len(text)
        topic.is_wanted = rule is not None
        if rule is not None:
            topic.only_ranges = rule.only_ranges
            topic.first_range = self.s.ranges.size // sizeof(Range)
            topic.range_count = len(rule.ranges)
            for queue_id, start, end in rule.ranges:
                bounds.queue_id, bounds.start, bounds.end = queue_id, start, end
                if not put_bytes(&self.s.ranges, <const uint8_t *>&bounds, sizeof(Range)):
                    raise MemoryError
        if not put_bytes(&self.s.topics, <const uint8_t *>&topic, sizeof(Topic)):
            raise MemoryError
        self.s.topic_count += 1
        self.fill_slots()

    # Make the table of topics anew: topics are few, and each is added once.
    cdef fill_slots(self):
        cdef int32_t size = 64, index
        cdef uint32_t slot
        cdef int32_t *slots
        cdef const Topic *topics = <const Topic *>self.s.topics.data
        while size < self.s.topic_count * 2:
            size *= 2
        if size != self.s.slot_count:
            slots = <int32_t *>malloc(size * sizeof(int32_t))
            if slots == NULL:
                raise MemoryError
            memset(slots, 0, size * sizeof(int32_t))
            free(self.s.slots)
            self.s.slots = slots
            self.s.slot_count = size
            index = 0
        else:
            index = self.s.topic_count - 1
        while index < self.s.topic_count:
            slot = hash_name(topics[index].name, topics[index].name_size) & <uint32_t>(size - 1)
            while self.s.slots[slot] != 0:
                slot = (slot + 1) & <uint32_t>(size - 1)
            self.s.slots[slot] = index + 1
            index += 1

    def take(self):
        """Return what was collected as a MessageBatch, and start anew. See the twin."""
        cdef int code
        cdef int64_t rows = self.s.rows
        columns = {}
        for column in self.columns:
            code = column.code
            if code == BROKER_NAME:
                columns[column.name] = constant_column(self.broker_name, rows)
            elif code == PROPERTIES:
                columns[column.name] = self.take_map()
            elif column.kind in FIXED_DTYPES:
                columns[column.name] = fixed_column(
                    column.kind, take_array(&self.s.values[code], FIXED_DTYPES[column.kind]))
            else:
                columns[column.name] = text_column(
                    column.kind, take_array(&self.s.values[code], np.uint8),
                    take_array(&self.s.offsets[code], np.int32),
                    take_array(&self.s.valid[code], np.uint8) if code in (TAGS, KEYS, UNIQUE_KEY) else None,
                )
        self.start_batch()
        return MessageBatch(row_count=rows, columns=columns)

    cdef object take_map(self):
        return ColumnBuffers(
            kind=ColumnKind.MAP,
            values=np.empty(0, dtype=np.uint8),
            offsets=take_array(&self.s.offsets[PROPERTIES], np.int32),
            map_keys=text_column(
                ColumnKind.STRING, take_array(&self.s.map_keys, np.uint8),
                take_array(&self.s.map_key_offsets, np.int32)),
            map_values=text_column(
                ColumnKind.STRING, take_array(&self.s.map_values, np.uint8),
                take_array(&self.s.map_value_offsets, np.int32)),
        )


cdef inline bint is_text(int column) noexcept nogil:
    return column in (TOPIC, MSG_ID, TAGS, KEYS, BODY, PROPERTIES, BORN_HOST, STORE_HOST, OFFSET_MSG_ID, UNIQUE_KEY)


cdef set_host(HostText *cache, const Host *host):
    cdef bytes address = host.address[:host.address_size]
    cdef bytes text = twin.host_text(address, host.port).encode()
    cdef const uint8_t *data = text
    if len(text) > HOST_TEXT_SIZE:
        raise ValueError(f"text of a host has {len(text)} bytes")
    memcpy(cache.text, data, len(text))
    cache.text_size = len(text)
    memcpy(cache.address, host.address, host.address_size)
    cache.address_size = host.address_size
    cache.port = host.port
