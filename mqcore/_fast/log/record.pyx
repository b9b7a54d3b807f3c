"""Commit log records, message properties and the members of a batch body; the twin is mqcore/store/log/record.py.

Decoding checks every length before it reads, and reads nothing past the buffer, whatever the bytes say. To scan a
record of 1 KiB, CRC included, takes 83 ns; the twin takes 15 us.
"""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy, memset

from mqcore._fast.base.big_endian cimport load_i16, load_i32, load_i64, store_fence, store_i16, store_i32, store_i64
from mqcore._fast.base.crc32 cimport crc32
from mqcore._fast.base.layout cimport (BATCH_MEMBER_HEAD_BODY_SIZE_AT, BATCH_MEMBER_HEAD_FLAG_AT,
                                       BATCH_MEMBER_HEAD_SIZE, BLANK_MAGIC, BLANK_RECORD_SIZE, BODY_CRC_MASK,
                                       MESSAGE_MAGIC_V1, PROPERTIES_SIZE_MAX, RECORD_HEAD_BODY_CRC_AT,
                                       RECORD_HEAD_BORN_TIMESTAMP_AT, RECORD_HEAD_FLAG_AT, RECORD_HEAD_MAGIC_AT,
                                       RECORD_HEAD_PHYSICAL_OFFSET_AT, RECORD_HEAD_QUEUE_ID_AT,
                                       RECORD_HEAD_QUEUE_OFFSET_AT, RECORD_HEAD_SIZE, RECORD_HEAD_SYS_FLAG_AT,
                                       RECORD_HEAD_TOTAL_SIZE_AT, RECORD_MIDDLE_PREPARED_TRANSACTION_OFFSET_AT,
                                       RECORD_MIDDLE_RECONSUME_TIMES_AT, RECORD_MIDDLE_SIZE, RECORD_SIZE_MIN,
                                       RECORD_STORE_TIME_SIZE, TOPIC_SIZE_MAX)

from mqcore.errors import MessageIllegalError
from mqcore.store.log import record as twin


cdef extern from "java_text.h" nogil:
    int32_t mq_java_hash(int32_t start, const uint8_t *text, size_t size) noexcept


cdef enum:
    NAME_VALUE_SEPARATOR = 1
    PROPERTY_SEPARATOR = 2
    PORT_SIZE = 4
    BODY_SIZE_SIZE = 4
    TOPIC_SIZE_SIZE = 1
    PROPERTIES_SIZE_SIZE = 2
    BATCH_MEMBER_SIZE_MIN = BATCH_MEMBER_HEAD_SIZE + PROPERTIES_SIZE_SIZE
    INT32_MAX = 0x7FFFFFFF
    SECTOR_SIZE = 512
    FOLLOWING_SIZE = 8


cdef inline int32_t address_size(int32_t sys_flag, int32_t bit) noexcept nogil:
    return 16 if sys_flag & bit else 4


cdef inline const uint8_t *read_host(const uint8_t *at, int32_t size, Host *out) noexcept nogil:
    out.address = at
    out.address_size = size
    out.port = load_i32(at + size)
    return at + size + PORT_SIZE


cdef DecodeStatus decode_record(const uint8_t *buf, Py_ssize_t length, bint check_crc, RecordView *out) noexcept nogil:
    cdef const uint8_t *at = buf
    cdef Py_ssize_t left
    cdef int32_t fixed_size
    memset(out, 0, sizeof(RecordView))
    if length < BLANK_RECORD_SIZE:
        return DECODE_SHORT
    out.total_size = load_i32(buf + RECORD_HEAD_TOTAL_SIZE_AT)
    out.magic = load_i32(buf + RECORD_HEAD_MAGIC_AT)
    if out.magic == BLANK_MAGIC:
        return DECODE_BLANK
    if out.magic != MESSAGE_MAGIC_V1:
        return DECODE_BAD_MAGIC
    if out.total_size < RECORD_SIZE_MIN:
        return DECODE_BAD_SIZE
    if out.total_size > length:
        return DECODE_SHORT
    read_head(buf, out)
    fixed_size = (RECORD_SIZE_MIN + address_size(out.sys_flag, SYS_BORN_HOST_V6) - 4
                  + address_size(out.sys_flag, SYS_STORE_HOST_V6) - 4)
    left = out.total_size - fixed_size
    if left < 0:
        return DECODE_BAD_SIZE
    at = read_host(buf + RECORD_HEAD_SIZE, address_size(out.sys_flag, SYS_BORN_HOST_V6), &out.born_host)
    out.store_timestamp = load_i64(at)
    at = read_host(at + RECORD_STORE_TIME_SIZE, address_size(out.sys_flag, SYS_STORE_HOST_V6), &out.store_host)
    out.reconsume_times = load_i32(at + RECORD_MIDDLE_RECONSUME_TIMES_AT)
    out.prepared_transaction_offset = load_i64(at + RECORD_MIDDLE_PREPARED_TRANSACTION_OFFSET_AT)
    return read_tail(at + RECORD_MIDDLE_SIZE, left, check_crc, out)


cdef void read_head(const uint8_t *buf, RecordView *out) noexcept nogil:
    out.body_crc = load_i32(buf + RECORD_HEAD_BODY_CRC_AT)
    out.queue_id = load_i32(buf + RECORD_HEAD_QUEUE_ID_AT)
    out.flag = load_i32(buf + RECORD_HEAD_FLAG_AT)
    out.queue_offset = load_i64(buf + RECORD_HEAD_QUEUE_OFFSET_AT)
    out.physical_offset = load_i64(buf + RECORD_HEAD_PHYSICAL_OFFSET_AT)
    out.sys_flag = load_i32(buf + RECORD_HEAD_SYS_FLAG_AT)
    out.born_timestamp = load_i64(buf + RECORD_HEAD_BORN_TIMESTAMP_AT)


# *left*: bytes that body, topic and properties must share exactly. Their length fields are counted in the fixed size,
# so each is inside the record wherever the lengths before it, all <= left, have put it.
cdef DecodeStatus read_tail(const uint8_t *at, Py_ssize_t left, bint check_crc, RecordView *out) noexcept nogil:
    out.body_size = load_i32(at)
    if out.body_size < 0 or out.body_size > left:
        return DECODE_BAD_SIZE
    left -= out.body_size
    out.body = at + BODY_SIZE_SIZE
    at = out.body + out.body_size
    out.topic_size = <int8_t>at[0]
    if out.topic_size < 0 or out.topic_size > left:
        return DECODE_BAD_SIZE
    left -= out.topic_size
    out.topic = at + TOPIC_SIZE_SIZE
    at = out.topic + out.topic_size
    out.properties_size = load_i16(at)
    if out.properties_size < 0 or out.properties_size != left:
        return DECODE_BAD_SIZE
    out.properties = at + PROPERTIES_SIZE_SIZE
    if check_crc and out.body_size > 0:
        if <int32_t>(crc32(out.body, out.body_size) & BODY_CRC_MASK) != out.body_crc:
            return DECODE_BAD_CRC
    return DECODE_OK


# Whether the batch's properties need a separator in front of them.
cdef inline bint needs_separator(const NewRecord *fields) noexcept nogil:
    return (fields.properties_size > 0 and fields.batch_properties_size > 0
            and fields.properties[fields.properties_size - 1] != PROPERTY_SEPARATOR)


cdef inline int64_t joined_size(const NewRecord *fields) noexcept nogil:
    return <int64_t>fields.properties_size + fields.batch_properties_size + needs_separator(fields)


cdef inline bint is_address(int32_t size) noexcept nogil:
    return size == 4 or size == 16


cdef int32_t record_size(const NewRecord *fields) noexcept nogil:
    cdef int64_t size
    if fields.topic_size < 1 or fields.topic_size > TOPIC_SIZE_MAX or fields.body_size < 0:
        return -1
    if fields.properties_size < 0 or fields.batch_properties_size < 0 or joined_size(fields) > PROPERTIES_SIZE_MAX:
        return -1
    if not is_address(fields.born_host.address_size) or not is_address(fields.store_host.address_size):
        return -1
    size = (RECORD_SIZE_MIN - 8 + <int64_t>fields.born_host.address_size + fields.store_host.address_size
            + fields.body_size + fields.topic_size + joined_size(fields))
    return <int32_t>size if size <= INT32_MAX else -1


cdef inline uint8_t *write_host(uint8_t *at, const Host *host) noexcept nogil:
    memcpy(at, host.address, host.address_size)
    store_i32(at + host.address_size, host.port)
    return at + host.address_size + PORT_SIZE


cdef inline uint8_t *write_bytes(uint8_t *at, const uint8_t *data, int32_t size) noexcept nogil:
    if size > 0:                    # memcpy must not be given NULL, even for nothing
        memcpy(at, data, size)
    return at + size


cdef int32_t with_host_bits(const NewRecord *fields) noexcept nogil:
    cdef int32_t sys_flag = fields.sys_flag & ~(SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6)
    if fields.born_host.address_size == 16:
        sys_flag |= SYS_BORN_HOST_V6
    if fields.store_host.address_size == 16:
        sys_flag |= SYS_STORE_HOST_V6
    return sys_flag


cdef void encode_record(uint8_t *out, const NewRecord *fields) noexcept nogil:
    cdef uint8_t *at
    store_i32(out + RECORD_HEAD_BODY_CRC_AT, fields.body_crc)
    store_i32(out + RECORD_HEAD_QUEUE_ID_AT, fields.queue_id)
    store_i32(out + RECORD_HEAD_FLAG_AT, fields.flag)
    store_i64(out + RECORD_HEAD_QUEUE_OFFSET_AT, fields.queue_offset)
    store_i64(out + RECORD_HEAD_PHYSICAL_OFFSET_AT, fields.physical_offset)
    store_i32(out + RECORD_HEAD_SYS_FLAG_AT, with_host_bits(fields))
    store_i64(out + RECORD_HEAD_BORN_TIMESTAMP_AT, fields.born_timestamp)
    at = write_host(out + RECORD_HEAD_SIZE, &fields.born_host)
    store_i64(at, fields.store_timestamp)
    at = write_host(at + RECORD_STORE_TIME_SIZE, &fields.store_host)
    store_i32(at + RECORD_MIDDLE_RECONSUME_TIMES_AT, fields.reconsume_times)
    store_i64(at + RECORD_MIDDLE_PREPARED_TRANSACTION_OFFSET_AT, fields.prepared_transaction_offset)
    at += RECORD_MIDDLE_SIZE
    store_i32(at, fields.body_size)
    at = write_bytes(at + BODY_SIZE_SIZE, fields.body, fields.body_size)
    at[0] = <uint8_t>fields.topic_size
    at = write_bytes(at + TOPIC_SIZE_SIZE, fields.topic, fields.topic_size)
    store_i16(at, <short>joined_size(fields))
    at = write_bytes(at + PROPERTIES_SIZE_SIZE, fields.properties, fields.properties_size)
    if needs_separator(fields):
        at[0] = PROPERTY_SEPARATOR
        at += 1
    at = write_bytes(at, fields.batch_properties, fields.batch_properties_size)
    # Size and magic last: a record whose writer was killed is no record, although its place is in a mapped file.
    store_fence()
    store_i32(out + RECORD_HEAD_TOTAL_SIZE_AT, <int32_t>(at - out))
    store_i32(out + RECORD_HEAD_MAGIC_AT, MESSAGE_MAGIC_V1)


cdef int32_t find_byte(const uint8_t *text, int32_t start, int32_t stop, uint8_t wanted) noexcept nogil:
    while start < stop and text[start] != wanted:
        start += 1
    return start


cdef bint find_property(
    const uint8_t *props, int32_t size, const char *name, int32_t name_size,
    const uint8_t **value, int32_t *value_size
) noexcept nogil:
    cdef int32_t start = 0, stop, split
    cdef bint found = False
    while start < size:
        stop = find_byte(props, start, size, PROPERTY_SEPARATOR)
        split = find_byte(props, start, stop, NAME_VALUE_SEPARATOR)
        if split - start == name_size and name_size > 0 and stop - split > 1 and (
                memcmp(props + start, name, name_size) == 0):
            value[0] = props + split + 1
            value_size[0] = stop - split - 1
            found = True
        start = stop + 1
    return found


cdef void find_indexed_properties(const uint8_t *props, int32_t size, IndexedProperties *out) noexcept nogil:
    cdef const uint8_t *at = props
    cdef const uint8_t *end = props + size
    cdef const uint8_t *stop
    cdef const uint8_t *value
    cdef int32_t name_size, value_size
    memset(out, 0, sizeof(IndexedProperties))
    while at < end:
        stop = <const uint8_t *>memchr(at, PROPERTY_SEPARATOR, end - at)
        if stop == NULL:
            stop = end
        value = <const uint8_t *>memchr(at, NAME_VALUE_SEPARATOR, stop - at)
        if value != NULL and stop - value > 1:
            name_size = <int32_t>(value - at)
            value += 1
            value_size = <int32_t>(stop - value)
            if name_size == 4 and memcmp(at, b"TAGS", 4) == 0:
                out.tags = value
                out.tags_size = value_size
            elif name_size == 4 and memcmp(at, b"KEYS", 4) == 0:
                out.keys = value
                out.keys_size = value_size
            elif name_size == 8 and memcmp(at, b"UNIQ_KEY", 8) == 0:
                out.unique_key = value
                out.unique_key_size = value_size
            elif name_size == 5 and memcmp(at, b"DELAY", 5) == 0:
                out.delay = value
                out.delay_size = value_size
        at = stop + 1


cdef int32_t java_hash(const uint8_t *utf8, Py_ssize_t size) noexcept nogil:
    return mq_java_hash(0, utf8, size)


cdef int32_t java_hash_continue(int32_t h, const uint8_t *utf8, Py_ssize_t size) noexcept nogil:
    return mq_java_hash(h, utf8, size)


cdef DecodeStatus next_batch_member(const uint8_t *buf, Py_ssize_t length, BatchMember *out) noexcept nogil:
    cdef Py_ssize_t left = length - BATCH_MEMBER_SIZE_MIN
    if left < 0:
        return DECODE_SHORT
    out.flag = load_i32(buf + BATCH_MEMBER_HEAD_FLAG_AT)
    out.body_size = load_i32(buf + BATCH_MEMBER_HEAD_BODY_SIZE_AT)
    if out.body_size < 0:
        return DECODE_BAD_SIZE
    if out.body_size > left:
        return DECODE_SHORT
    left -= out.body_size
    out.body = buf + BATCH_MEMBER_HEAD_SIZE
    out.properties_size = load_i16(out.body + out.body_size)
    if out.properties_size < 0:
        return DECODE_BAD_SIZE
    if out.properties_size > left:
        return DECODE_SHORT
    out.properties = out.body + out.body_size + PROPERTIES_SIZE_SIZE
    out.total_size = BATCH_MEMBER_SIZE_MIN + out.body_size + out.properties_size
    return DECODE_OK


# ------------------------------------------------------------------------------------------------- the Python side


cdef object to_host(const Host *host):
    return twin.PackedHost(host.address[:host.address_size], host.port)


cdef object to_record(const RecordView *view):
    return twin.Record(
        queue_id=view.queue_id,
        flag=view.flag,
        queue_offset=view.queue_offset,
        physical_offset=view.physical_offset,
        sys_flag=view.sys_flag,
        born_timestamp=view.born_timestamp,
        born_host=to_host(&view.born_host),
        store_timestamp=view.store_timestamp,
        store_host=to_host(&view.store_host),
        reconsume_times=view.reconsume_times,
        prepared_transaction_offset=view.prepared_transaction_offset,
        body=view.body[:view.body_size],
        topic=view.topic[:view.topic_size],
        properties=view.properties[:view.properties_size],
        body_crc=view.body_crc,
        total_size=view.total_size,
    )


def decode(const uint8_t[::1] buffer not None, physical_offset, check_crc=True):
    """Decode the record at the start of *buffer*; *physical_offset* is used in error messages only."""
    cdef RecordView view
    cdef DecodeStatus status
    cdef Py_ssize_t length = buffer.shape[0]
    if length == 0:                 # &buffer[0] of an empty view raises IndexError
        raise twin.decode_error(DECODE_SHORT, 0, 0, physical_offset)
    status = decode_record(&buffer[0], length, check_crc, &view)
    if status != DECODE_OK:
        raise twin.decode_error(status, view.magic, view.total_size, physical_offset)
    return to_record(&view)


cdef Host from_host(host) except *:
    cdef Host out
    cdef bytes address = host.address
    out.address = address           # the caller keeps *host*, and with it the bytes, until the record is written
    out.address_size = len(address)
    out.port = host.port
    return out


def encode(record, bytes batch_properties=b""):
    """Return the bytes of *record*; body_crc and total_size are computed, not taken from it."""
    cdef NewRecord fields
    cdef bytes body = record.body, topic = record.topic, properties = record.properties
    cdef bytearray out
    cdef uint8_t *target
    cdef int32_t size = -1
    memset(&fields, 0, sizeof(fields))
    if len(body) <= INT32_MAX and len(properties) <= PROPERTIES_SIZE_MAX and (
            len(batch_properties) <= PROPERTIES_SIZE_MAX):
        fields.queue_id = record.queue_id
        fields.flag = record.flag
        fields.queue_offset = record.queue_offset
        fields.physical_offset = record.physical_offset
        fields.sys_flag = record.sys_flag
        fields.born_timestamp = record.born_timestamp
        fields.born_host = from_host(record.born_host)
        fields.store_timestamp = record.store_timestamp
        fields.store_host = from_host(record.store_host)
        fields.reconsume_times = record.reconsume_times
        fields.prepared_transaction_offset = record.prepared_transaction_offset
        fields.body = body
        fields.body_size = len(body)
        fields.topic = topic
        fields.topic_size = len(topic)
        fields.properties = properties
        fields.properties_size = len(properties)
        fields.batch_properties = batch_properties
        fields.batch_properties_size = len(batch_properties)
        fields.body_crc = crc32(fields.body, fields.body_size) & BODY_CRC_MASK
        size = record_size(&fields)
    if size < 0:
        raise MessageIllegalError(twin.limit_broken(record, batch_properties))
    out = bytearray(size)
    target = out
    encode_record(target, &fields)
    return bytes(out)


# Whether the part of a text in a sector behind *first_end* is all zeros; the text lies at *offset* of the commit log.
cdef bint has_zero_sector(const uint8_t *text, int32_t size, int64_t offset, int64_t first_end) noexcept nogil:
    cdef int64_t at = max(<int64_t>0, first_end - offset), end
    while at < size:
        end = min(<int64_t>size, at + SECTOR_SIZE - ((offset + at) & (SECTOR_SIZE - 1)))
        while at < end and text[at] == 0:
            at += 1
        if at == end:
            return True
        at = end
    return False


cdef bint is_cut_off(const RecordView *view, const uint8_t *behind, int64_t size) noexcept nogil:
    cdef const uint8_t *text = view.properties if view.properties_size > 0 else view.topic
    cdef int32_t text_size = view.properties_size if view.properties_size > 0 else view.topic_size
    cdef int64_t at = 0, end = min(size, <int64_t>FOLLOWING_SIZE)
    if text_size == 0 or text[text_size - 1] != 0:
        return False
    while at < end and behind[at] == 0:
        at += 1
    return end > 0 and at == end


cdef bint is_torn(const uint8_t *start, const RecordView *view) noexcept nogil:
    cdef int64_t topic_at = view.physical_offset + (view.topic - start)
    cdef int64_t properties_at = view.physical_offset + (view.properties - start)
    cdef int64_t first_end = (view.physical_offset & ~<int64_t>(SECTOR_SIZE - 1)) + SECTOR_SIZE
    return (has_zero_sector(view.topic, view.topic_size, topic_at, first_end)
            or has_zero_sector(view.properties, view.properties_size, properties_at, first_end))


def scan(const uint8_t[::1] buffer not None, int64_t physical_offset, bint check_crc=True):
    """Walk the records at the start of *buffer*, the commit log from *physical_offset* on, up to the first invalid one.

    Returns a ScanOutcome. A record whose stored physical offset is not its place ends the walk with MISPLACED.
    """
    cdef RecordView view
    cdef DecodeStatus status = DECODE_SHORT
    cdef Py_ssize_t length = buffer.shape[0], at = 0
    cdef const uint8_t *base = &buffer[0] if length > 0 else NULL
    cdef int64_t count = 0, newest = 0
    cdef bint misplaced = False, torn = False
    with nogil:                     # a file of 1 GiB takes 70 ms and more
        while at < length:
            status = decode_record(base + at, length - at, check_crc, &view)
            if status != DECODE_OK:
                break
            misplaced = view.physical_offset != physical_offset + at
            torn = not misplaced and (is_torn(base + at, &view) or is_cut_off(
                &view, base + at + view.total_size, length - at - view.total_size))
            if misplaced or torn:
                break
            at += view.total_size
            count += 1
            newest = view.store_timestamp if view.store_timestamp > newest else newest
    if misplaced:
        outcome = twin.DecodeStatus.MISPLACED
    elif torn:
        outcome = twin.DecodeStatus.TORN
    else:
        outcome = twin.DecodeStatus.OK if at == length else twin.DecodeStatus(status)
    return twin.ScanOutcome(valid_size=at, status=outcome, record_count=count, store_timestamp_max=newest)


def property_value(bytes properties not None, bytes name not None):
    """Return the value of *name* in a properties text, or None; the last duplicate wins."""
    cdef const uint8_t *value = NULL
    cdef int32_t size = 0
    if len(properties) > INT32_MAX or len(name) > INT32_MAX:
        raise OverflowError("a properties text of 2 GiB and more")
    if find_property(properties, len(properties), name, len(name), &value, &size):
        return value[:size]
    return None


def string_hash(bytes utf8 not None):
    """Return Java's String.hashCode of UTF-8 text, signed 32 bits; malformed bytes count as Java decodes them."""
    return java_hash(utf8, len(utf8))


def batch_members(const uint8_t[::1] buffer not None):
    """Return the members of a SEND_BATCH_MESSAGE body as BatchMember values, in order."""
    cdef BatchMember member
    cdef DecodeStatus status
    cdef Py_ssize_t length = buffer.shape[0], at = 0
    members = []
    while at < length:
        status = next_batch_member(&buffer[at], length - at, &member)
        if status != DECODE_OK:
            raise twin.batch_error(status, len(members), at)
        members.append(twin.BatchMember(
            flag=member.flag, body=member.body[:member.body_size],
            properties=member.properties[:member.properties_size],
        ))
        at += member.total_size
    return members
