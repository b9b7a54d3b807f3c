"""Columns that grow row by row, in Arrow's layout: fixed numbers, texts with offsets, nulls, the map of properties.

Who reads records says what a row is made of (``put_row``); what was collected leaves as arrays that own their memory.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

import numpy as np

from mqcore._fast.base.crc32 cimport crc32
from mqcore._fast.base.layout cimport BODY_CRC_MASK
from mqcore._fast.columns.codes cimport (BODY, BODY_CRC, BODY_SIZE, BORN_HOST, BORN_TIMESTAMP, BROKER_NAME,
                                         COLUMN_COUNT, COMPUTED_BODY_CRC, FLAG, KEYS, MSG_ID, OFFSET_MSG_ID,
                                         PHYSICAL_OFFSET, PREPARED_TRANSACTION_OFFSET, PROPERTIES, QUEUE_ID,
                                         QUEUE_OFFSET, RECONSUME_TIMES, STORE_HOST, STORE_SIZE, STORE_TIMESTAMP,
                                         SYS_FLAG, TAGS, TOPIC, UNIQUE_KEY, has_offsets)
from mqcore._fast.columns.memory cimport Memory, put_bytes, put_end, put_i32, put_i64, put_u8
from mqcore._fast.columns.property_pairs cimport Pair, Pairs, find_pair, pair_at
from mqcore._fast.log.record cimport Host, RecordView

from mqcore.store import column_decoder as twin
from mqcore.store.message_columns import ColumnBuffers, ColumnKind, constant_column, fixed_column, text_column


cdef enum:
    PORT_SIZE = 4
    MICROSECONDS_PER_MS = 1000

cdef int64_t INT64_MAX = 0x7FFFFFFFFFFFFFFF
cdef int64_t MS_MAX = INT64_MAX // MICROSECONDS_PER_MS

cdef dict FIXED_DTYPES = {ColumnKind.INT32: np.int32, ColumnKind.INT64: np.int64, ColumnKind.TIMESTAMP: np.int64}


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


cdef bint make_host_text(HostText *cache, const Host *host) noexcept nogil:
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


# -------------------------------------------------------------------------------------------- one row written


cdef inline bint put_text(Columns *columns, int column, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    columns.bytes += size
    return put_bytes(&columns.values[column], data, size) and put_end(&columns.offsets[column], &columns.values[column])


cdef inline bint put_optional(Columns *columns, int column, const Pair *pair) noexcept nogil:
    if not put_u8(&columns.valid[column], pair != NULL):
        return False
    if pair == NULL:
        return put_text(columns, column, NULL, 0)
    return put_text(columns, column, pair.value, pair.value_size)


cdef bint put_map(Columns *columns, const Pairs *pairs) noexcept nogil:
    cdef const Pair *pair
    cdef Py_ssize_t index
    for index in range(pairs.count):
        pair = pair_at(pairs, index)
        columns.bytes += pair.name_size + pair.value_size + 8
        if not (put_bytes(&columns.map_keys, pair.name, pair.name_size)
                and put_end(&columns.map_key_offsets, &columns.map_keys)
                and put_bytes(&columns.map_values, pair.value, pair.value_size)
                and put_end(&columns.map_value_offsets, &columns.map_values)):
            return False
    return put_i32(&columns.offsets[PROPERTIES], <int32_t>(columns.map_key_offsets.size // 4 - 1))


cdef bint put_offset_id(Columns *columns, int column, const RecordView *view) noexcept nogil:
    cdef uint8_t[56] text
    cdef int32_t size = view.store_host.address_size + PORT_SIZE
    cdef uint8_t[8] place
    cdef int index
    for index in range(8):
        place[index] = <uint8_t>((<uint64_t>view.physical_offset) >> (56 - 8 * index))
    write_hex(text, view.store_host.address, size)
    write_hex(text + 2 * size, place, 8)
    return put_text(columns, column, text, 2 * size + 16)


cdef bint put_message_id(Columns *columns, const Row *row) noexcept nogil:
    cdef const Pair *pair = find_pair(row.pairs, b"UNIQ_KEY", 8)
    if pair != NULL:
        return put_text(columns, MSG_ID, pair.value, pair.value_size)
    return put_offset_id(columns, MSG_ID, row.view)


cdef inline int64_t to_microseconds(int64_t ms) noexcept nogil:
    if ms > MS_MAX:
        return INT64_MAX
    return ms * MICROSECONDS_PER_MS if ms >= -MS_MAX else -INT64_MAX


cdef bint put_numbers(Columns *columns, const RecordView *view) noexcept nogil:
    cdef bint *wanted = columns.wanted
    cdef bint fine = True
    if wanted[QUEUE_ID]:
        fine = fine and put_i32(&columns.values[QUEUE_ID], view.queue_id)
    if wanted[QUEUE_OFFSET]:
        fine = fine and put_i64(&columns.values[QUEUE_OFFSET], view.queue_offset)
    if wanted[BORN_TIMESTAMP]:
        fine = fine and put_i64(&columns.values[BORN_TIMESTAMP], to_microseconds(view.born_timestamp))
    if wanted[STORE_TIMESTAMP]:
        fine = fine and put_i64(&columns.values[STORE_TIMESTAMP], to_microseconds(view.store_timestamp))
    if wanted[RECONSUME_TIMES]:
        fine = fine and put_i32(&columns.values[RECONSUME_TIMES], view.reconsume_times)
    if wanted[SYS_FLAG]:
        fine = fine and put_i32(&columns.values[SYS_FLAG], view.sys_flag)
    if wanted[FLAG]:
        fine = fine and put_i32(&columns.values[FLAG], view.flag)
    if wanted[PHYSICAL_OFFSET]:
        fine = fine and put_i64(&columns.values[PHYSICAL_OFFSET], view.physical_offset)
    if wanted[STORE_SIZE]:
        fine = fine and put_i32(&columns.values[STORE_SIZE], view.total_size)
    if wanted[BODY_SIZE]:
        fine = fine and put_i32(&columns.values[BODY_SIZE], view.body_size)
    if wanted[BODY_CRC]:
        fine = fine and put_i32(&columns.values[BODY_CRC], view.body_crc)
    if wanted[COMPUTED_BODY_CRC]:
        fine = fine and put_i32(&columns.values[COMPUTED_BODY_CRC],
                                <int32_t>(crc32(view.body, view.body_size) & BODY_CRC_MASK))
    if wanted[PREPARED_TRANSACTION_OFFSET]:
        fine = fine and put_i64(&columns.values[PREPARED_TRANSACTION_OFFSET], view.prepared_transaction_offset)
    return fine


cdef bint put_texts(Columns *columns, const Row *row) noexcept nogil:
    cdef bint *wanted = columns.wanted
    cdef bint fine = True
    if wanted[TOPIC]:
        fine = fine and put_text(columns, TOPIC, row.topic, row.topic_size)
    if wanted[MSG_ID]:
        fine = fine and put_message_id(columns, row)
    if wanted[TAGS]:
        fine = fine and put_optional(columns, TAGS, find_pair(row.pairs, b"TAGS", 4))
    if wanted[KEYS]:
        fine = fine and put_optional(columns, KEYS, find_pair(row.pairs, b"KEYS", 4))
    if wanted[UNIQUE_KEY]:
        fine = fine and put_optional(columns, UNIQUE_KEY, find_pair(row.pairs, b"UNIQ_KEY", 8))
    if wanted[BODY]:
        fine = fine and put_text(columns, BODY, row.body, row.body_size)
    if wanted[PROPERTIES]:
        fine = fine and put_map(columns, row.pairs)
    if wanted[BORN_HOST]:
        fine = fine and put_text(columns, BORN_HOST, columns.born_host.text, columns.born_host.text_size)
    if wanted[STORE_HOST]:
        fine = fine and put_text(columns, STORE_HOST, columns.store_host.text, columns.store_host.text_size)
    if wanted[OFFSET_MSG_ID]:
        fine = fine and put_offset_id(columns, OFFSET_MSG_ID, row.view)
    return fine


cdef bint put_row(Columns *columns, const Row *row) noexcept nogil:
    if not put_numbers(columns, row.view) or not put_texts(columns, row):
        return False
    columns.rows += 1
    columns.bytes += columns.fixed_row_size
    return True


# -------------------------------------------------------------------------------------------- the Python side


cdef int keep_host_text(HostText *cache, const Host *host) except -1:
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
    return 0


cdef int want_columns(Columns *columns, tuple wanted) except -1:
    for column in wanted:
        columns.wanted[<int>column.code] = True
        columns.fixed_row_size += 4 if column.kind is ColumnKind.INT32 or column.kind not in FIXED_DTYPES else 8
    return 0


cdef int start_rows(Columns *columns) except -1:
    cdef int column
    cdef bint fine = True
    columns.rows = 0
    columns.bytes = 0
    for column in range(COLUMN_COUNT):
        if columns.wanted[column] and has_offsets(column):
            fine = fine and put_i32(&columns.offsets[column], 0)
    if columns.wanted[PROPERTIES]:
        fine = fine and put_i32(&columns.map_key_offsets, 0) and put_i32(&columns.map_value_offsets, 0)
    if not fine:
        raise MemoryError
    return 0


cdef dict take_columns(Columns *columns, tuple wanted, broker_name):
    cdef int code
    taken = {}
    for column in wanted:
        code = column.code
        if code == BROKER_NAME:
            taken[column.name] = constant_column(broker_name, columns.rows)
        elif code == PROPERTIES:
            taken[column.name] = take_map(columns)
        elif column.kind in FIXED_DTYPES:
            taken[column.name] = fixed_column(
                column.kind, take_array(&columns.values[code], FIXED_DTYPES[column.kind]))
        else:
            taken[column.name] = text_column(
                column.kind, take_array(&columns.values[code], np.uint8),
                take_array(&columns.offsets[code], np.int32),
                take_array(&columns.valid[code], np.uint8) if code in (TAGS, KEYS, UNIQUE_KEY) else None,
            )
    return taken


cdef object take_map(Columns *columns):
    return ColumnBuffers(
        kind=ColumnKind.MAP,
        values=np.empty(0, dtype=np.uint8),
        offsets=take_array(&columns.offsets[PROPERTIES], np.int32),
        map_keys=text_column(
            ColumnKind.STRING, take_array(&columns.map_keys, np.uint8),
            take_array(&columns.map_key_offsets, np.int32)),
        map_values=text_column(
            ColumnKind.STRING, take_array(&columns.map_values, np.uint8),
            take_array(&columns.map_value_offsets, np.int32)),
    )


cdef void free_columns(Columns *columns) noexcept:
    cdef int column
    for column in range(COLUMN_COUNT):
        free(columns.values[column].data)
        free(columns.offsets[column].data)
        free(columns.valid[column].data)
    free(columns.map_key_offsets.data)
    free(columns.map_keys.data)
    free(columns.map_value_offsets.data)
    free(columns.map_values.data)
