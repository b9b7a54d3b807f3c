"""Stored records to columns in Arrow's layout, without a Python object per message.

The twin, and the readable statement of the rules, is mqcore/store/column_decoder.py. With the default columns a message
of 100 bytes takes 0.10 us and one of 1 KiB 0.33 us, properties apart another 0.02 us; the twin takes 30 us.

Here records are read and chosen; the columns that they become grow in rows. The loop runs without the GIL. What
needs Python (a topic seen for the first time, a compressed body, malformed UTF-8, an IPv6 host) stops it, is done at
the border, and the same record is taken again.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memset

from mqcore._fast.base.big_endian cimport load_i16, load_i32, load_i64
from mqcore._fast.base.crc32 cimport crc32
from mqcore._fast.base.layout cimport (BODY_CRC_MASK, MESSAGE_MAGIC_V2, RECORD_HEAD_BODY_CRC_AT,
                                       RECORD_HEAD_BORN_TIMESTAMP_AT, RECORD_HEAD_FLAG_AT,
                                       RECORD_HEAD_PHYSICAL_OFFSET_AT, RECORD_HEAD_QUEUE_ID_AT,
                                       RECORD_HEAD_QUEUE_OFFSET_AT, RECORD_HEAD_SIZE, RECORD_HEAD_SYS_FLAG_AT,
                                       RECORD_MIDDLE_PREPARED_TRANSACTION_OFFSET_AT, RECORD_MIDDLE_RECONSUME_TIMES_AT,
                                       RECORD_MIDDLE_SIZE, RECORD_SIZE_MIN, RECORD_STORE_TIME_SIZE)
from mqcore._fast.base.utf8 cimport is_utf8
from mqcore._fast.columns.codes cimport BODY, BORN_HOST, KEYS, MSG_ID, PROPERTIES, STORE_HOST, TAGS, UNIQUE_KEY
from mqcore._fast.columns.memory cimport Memory, put_bytes
from mqcore._fast.columns.property_pairs cimport Pair, Pairs, find_pair, same_text, split_properties
from mqcore._fast.columns.rows cimport (Columns, Row, free_columns, keep_host_text, make_host_text, put_row, start_rows,
                                        take_columns, want_columns)
from mqcore._fast.log.record cimport (DECODE_BAD_CRC, DECODE_BAD_MAGIC, DECODE_BAD_SIZE, DECODE_BLANK, DECODE_OK,
                                      DECODE_SHORT, SYS_BORN_HOST_V6, SYS_STORE_HOST_V6, DecodeStatus, Host, RecordView,
                                      decode_record)

from mqcore.errors import ProtocolError
from mqcore.protocol.compression import decompress as decompress_body
from mqcore.store.message_columns import (BATCH_BYTES_DEFAULT, BATCH_ROWS_DEFAULT, EVERYTHING, MessageBatch, bad_body,
                                          bad_record, check_limits, columns_of)


cdef enum:
    SYS_COMPRESSED = 1
    PORT_SIZE = 4
    BODY_SIZE_SIZE = 4
    TOPIC_SIZE_SIZE_V2 = 2
    PROPERTIES_SIZE_SIZE = 2
    INT32_MAX = 0x7FFFFFFF
    ROW_SLACK = 1024                        # what a row adds at most besides body and properties, topic apart
    MISPLACED = 6                           # as in mqcore.store.log.record.DecodeStatus

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
    int32_t first_birth
    int32_t birth_count

cdef struct Birth:                          # records of the queue that start before are of one that was dropped
    int32_t queue_id
    int64_t born

cdef struct Text:
    const uint8_t *data
    Py_ssize_t size

cdef struct State:
    Columns columns
    Pairs pairs
    bint needs_properties
    bint decompress
    bint check_crc
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
    Memory births
    # topics
    Memory topics
    int32_t topic_count
    int32_t *slots                          # open addressing: index of the topic + 1, 0 = free
    int32_t slot_count                      # a power of two
    int32_t topic_last                      # index of the topic of the record before
    # the record under way
    Py_ssize_t override_at                  # place in the buffer that the next two belong to, -1 for none
    Text clean_properties                   # data is NULL: as stored
    Text plain_body
    RecordView view
    DecodeStatus status
    int64_t last_queue_offset


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


cdef bint is_alive(const State *s, const Topic *topic) noexcept nogil:
    cdef const Birth *births = <const Birth *>s.births.data
    cdef int32_t index
    for index in range(topic.first_birth, topic.first_birth + topic.birth_count):
        if births[index].queue_id == s.view.queue_id:
            return s.view.physical_offset >= births[index].born
    return True


# All but the tags.
cdef inline bint is_wanted(const State *s, const Topic *topic) noexcept nogil:
    return (topic.is_wanted
            and is_between(s.view.queue_offset, s.offset_min, s.offset_max)
            and is_between(s.view.store_timestamp, s.store_timestamp_min, s.store_timestamp_max)
            and (s.queue_id_count < 0 or has_queue(s, s.view.queue_id))
            and (topic.birth_count == 0 or is_alive(s, topic))
            and (topic.range_count == 0 and not topic.only_ranges
                 or is_in_ranges(s, topic, s.view.queue_id, s.view.queue_offset)))


cdef bint has_tag(const State *s) noexcept nogil:
    cdef const Pair *tags = find_pair(&s.pairs, b"TAGS", 4)
    cdef Py_ssize_t index
    if tags == NULL:
        return False
    for index in range(s.tag_count):
        if s.tags[index].size == tags.value_size and (
                memcmp(s.tags[index].data, tags.value, tags.value_size) == 0):
            return True
    return False


# Add the record in s.view, which lies at *position* of the buffer, if it is wanted. STOP_END: done.
cdef Stop add_record(State *s, Py_ssize_t position) noexcept nogil:
    cdef const Topic *topic = find_topic(s, s.view.topic, s.view.topic_size)
    cdef const uint8_t *body = s.view.body
    cdef Py_ssize_t body_size = s.view.body_size
    cdef const uint8_t *properties = s.view.properties
    cdef Py_ssize_t properties_size = s.view.properties_size
    cdef bint is_same = s.override_at == position
    cdef Row row
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
        if not split_properties(&s.pairs, properties, properties_size):
            return STOP_MEMORY
        if s.tag_count >= 0 and not has_tag(s):
            return STOP_END
    if s.columns.wanted[BODY] and s.decompress and s.view.sys_flag & SYS_COMPRESSED:
        if not is_same or s.plain_body.data == NULL:
            return STOP_BODY
        body = s.plain_body.data
        body_size = s.plain_body.size
    if s.columns.wanted[BORN_HOST] and not make_host_text(&s.columns.born_host, &s.view.born_host):
        return STOP_BORN_HOST
    if s.columns.wanted[STORE_HOST] and not make_host_text(&s.columns.store_host, &s.view.store_host):
        return STOP_STORE_HOST
    # Offsets into a column have 32 bits. A row alone always fits: its record has.
    if s.columns.rows > 0 and (
            s.columns.bytes > INT32_MAX - (body_size + 8 * properties_size + topic.text_size + ROW_SLACK)):
        return STOP_FULL
    row.view = &s.view
    row.pairs = &s.pairs
    row.topic = topic.text
    row.topic_size = topic.text_size
    row.body = body
    row.body_size = body_size
    return STOP_END if put_row(&s.columns, &row) else STOP_MEMORY


cdef inline bint is_batch_full(const State *s) noexcept nogil:
    return s.columns.rows > 0 and (s.columns.bytes >= s.batch_bytes or s.columns.rows >= s.batch_rows)


# Take records from buf[position[0]:length] until something stops it; *position* moves behind each that is done. A
# *physical_offset* >= 0 says where buf[0] lies in the commit log.
cdef Stop run(
    State *s, const uint8_t *buf, Py_ssize_t length, int64_t physical_offset, Py_ssize_t *position
) noexcept nogil:
    cdef Stop stop
    while position[0] < length:
        if is_batch_full(s):
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
    if is_batch_full(s):
        return STOP_FULL
    return STOP_END


# -------------------------------------------------------------------------------------------- the Python side


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
        free_columns(&self.s.columns)
        free(self.s.pairs.memory.data)
        free(self.s.ranges.data)
        free(self.s.births.data)
        free(self.s.topics.data)
        free(self.s.slots)
        free(self.s.queue_ids)
        free(self.s.tags)

    cdef set_columns(self):
        cdef bint *wanted = self.s.columns.wanted
        want_columns(&self.s.columns, self.columns)
        self.s.needs_properties = (
            wanted[MSG_ID] or wanted[TAGS] or wanted[KEYS] or wanted[PROPERTIES] or wanted[UNIQUE_KEY]
            or self.selection.tags is not None
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
        self.full = False
        start_rows(&self.s.columns)

    @property
    def row_count(self):
        return self.s.columns.rows

    @property
    def size(self):
        return self.s.columns.bytes

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
            keep_host_text(&self.s.columns.born_host, &view.born_host)
        else:
            keep_host_text(&self.s.columns.store_host, &view.store_host)

    cdef add_topic(self, bytes name):
        cdef Topic topic
        cdef Range bounds
        cdef Birth birth
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
            topic.first_birth = self.s.births.size // sizeof(Birth)
            topic.birth_count = len(rule.births)
            for birth.queue_id, birth.born in rule.births:
                if not put_bytes(&self.s.births, <const uint8_t *>&birth, sizeof(Birth)):
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
        rows = self.s.columns.rows
        columns = take_columns(&self.s.columns, self.columns, self.broker_name)
        self.start_batch()
        return MessageBatch(row_count=rows, columns=columns)
