"""Columns of messages to the bodies of batch sends. The twin is mqcore/protocol/batch_encoder.py.

The arrays come from Arrow and are borrowed while the encoder lives. Offsets are checked when it is made, rows when they
are used, so no loop below reads outside a column.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy

from mqcore._fast.base.big_endian cimport store_i16, store_i32
from mqcore._fast.base.layout cimport (BATCH_MEMBER_HEAD_BODY_CRC_AT, BATCH_MEMBER_HEAD_BODY_SIZE_AT,
                                       BATCH_MEMBER_HEAD_FLAG_AT, BATCH_MEMBER_HEAD_MAGIC_AT, BATCH_MEMBER_HEAD_SIZE,
                                       BATCH_MEMBER_HEAD_TOTAL_SIZE_AT)

from mqcore.protocol import batch_encoder as twin
from mqcore.layout import PROPERTIES_SIZE_MAX as LIMIT
from mqcore.protocol.properties import PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX as UNIQUE_ID


cdef enum:
    FAULT_NONE = 0
    FAULT_SEPARATOR = 1
    FAULT_TOO_LONG = 2
    ID_DIGITS = 12
    TEXTS_MAX = 8
    SYSTEM_NAMES_MAX = 64

cdef int64_t PROPERTIES_MAX = LIMIT
cdef const char *DIGITS = b"0123456789ABCDEF"


cdef struct TextColumn:
    const int32_t *offsets
    const uint8_t *data
    const uint8_t *is_valid     # one byte per value, or NULL
    Py_ssize_t count


cdef struct Named:
    const uint8_t *name
    Py_ssize_t name_size
    TextColumn values


cdef inline int64_t value_of(const TextColumn *view, Py_ssize_t row, const uint8_t **at) noexcept nogil:
    # The size of a value and where it lies; 0 for null.
    at[0] = view.data + view.offsets[row]
    if view.is_valid != NULL and view.is_valid[row] == 0:
        return 0
    return view.offsets[row + 1] - view.offsets[row]


cdef inline bint has_separator(const uint8_t *at, int64_t size) noexcept nogil:
    return memchr(at, 1, <size_t>size) != NULL or memchr(at, 2, <size_t>size) != NULL


cdef class BatchEncoder:
    """Encodes rows of a table; see the twin."""

    cdef TextColumn bodies
    cdef Named texts[TEXTS_MAX]
    cdef int text_count
    cdef bint has_maps
    cdef const int32_t *map_offsets
    cdef const uint8_t *map_is_valid
    cdef TextColumn map_names
    cdef TextColumn map_values
    cdef const int32_t *flags
    cdef const uint8_t *system_names[SYSTEM_NAMES_MAX]
    cdef Py_ssize_t system_sizes[SYSTEM_NAMES_MAX]
    cdef int system_count
    cdef const uint8_t *id_prefix
    cdef const uint8_t *id_suffix
    cdef const uint8_t *id_name
    cdef Py_ssize_t id_prefix_size, id_suffix_size, id_name_size
    cdef int64_t id_base
    cdef uint8_t *buffer
    cdef int64_t size
    cdef int64_t capacity
    cdef list kept

    def __cinit__(self, bodies, texts, maps, flags, *, bytes id_prefix not None, int64_t id_base,
                  bytes id_suffix not None):
        cdef const int32_t[::1] numbers
        cdef bytes name
        self.kept = [id_prefix, id_suffix]
        self.bodies = self.view(bodies)
        if len(texts) > TEXTS_MAX:
            raise ValueError(f"got {len(texts)} columns of properties, wanted at most {TEXTS_MAX}")
        for name, column in texts:
            self.kept.append(name)
            self.texts[self.text_count].name = name
            self.texts[self.text_count].name_size = len(name)
            self.texts[self.text_count].values = self.view(column, self.bodies.count)
            self.text_count += 1
        if maps is not None:
            self.map_names = self.view(maps.names)
            self.map_values = self.view(maps.values, self.map_names.count)
            self.map_offsets = self.offsets_of(maps.offsets, self.map_names.count, self.bodies.count)
            self.map_is_valid = self.bytes_of(maps.is_valid, self.bodies.count)
            self.has_maps = True
        if flags is not None:
            numbers = flags
            if numbers.shape[0] != self.bodies.count:
                raise ValueError(f"got {numbers.shape[0]} flags for {self.bodies.count} rows")
            self.kept.append(numbers)
            if numbers.shape[0]:
                self.flags = &numbers[0]
        for name in twin.SYSTEM_NAMES:
            self.system_names[self.system_count] = name
            self.system_sizes[self.system_count] = len(name)
            self.system_count += 1
        name = UNIQUE_ID.encode()
        self.kept.append(name)
        self.id_name, self.id_name_size = name, len(name)
        self.id_prefix, self.id_prefix_size = id_prefix, len(id_prefix)
        self.id_suffix, self.id_suffix_size = id_suffix, len(id_suffix)
        self.id_base = id_base

    def __dealloc__(self):
        free(self.buffer)

    cdef const uint8_t *bytes_of(self, array, Py_ssize_t wanted) except? NULL:
        # The bytes of *array*, of which there must be *wanted* or more (-1: any number); NULL for None and nothing.
        cdef const uint8_t[::1] data
        if array is None:
            return NULL
        data = array
        if wanted >= 0 and data.shape[0] != wanted:
            raise ValueError(f"got {data.shape[0]} marks of validity for {wanted} values")
        self.kept.append(data)
        return &data[0] if data.shape[0] else NULL

    cdef const int32_t *offsets_of(self, array, int64_t end, Py_ssize_t count) except NULL:
        # n + 1 ascending offsets, none above *end*; *count* is the n that is wanted, -1 for any.
        cdef const int32_t[::1] offsets = array
        cdef Py_ssize_t index
        if offsets.shape[0] < 1 or (count >= 0 and offsets.shape[0] != count + 1):
            raise ValueError(f"got {offsets.shape[0]} offsets for {count} values")
        if offsets[0] < 0 or offsets[offsets.shape[0] - 1] > end:
            raise ValueError("offsets lie outside of their data")
        for index in range(1, offsets.shape[0]):
            if offsets[index] < offsets[index - 1]:
                raise ValueError("offsets descend")
        self.kept.append(offsets)
        return &offsets[0]

    cdef TextColumn view(self, texts, Py_ssize_t count=-1) except *:
        cdef TextColumn view
        cdef const uint8_t[::1] data = texts.data
        view.offsets = self.offsets_of(texts.offsets, data.shape[0], count)
        view.count = len(texts.offsets) - 1
        view.data = self.bytes_of(texts.data, -1)
        view.is_valid = self.bytes_of(texts.is_valid, view.count)
        if view.data == NULL:
            view.data = <const uint8_t *>b""
        return view

    cdef bint reserve(self, int64_t more) noexcept nogil:
        cdef int64_t wanted = self.capacity
        cdef uint8_t *grown
        if more <= self.capacity - self.size:
            return True
        while wanted - self.size < more:
            wanted = max(<int64_t>4096, wanted * 2)
        grown = <uint8_t *>realloc(self.buffer, <size_t>wanted)
        if grown == NULL:
            return False
        self.buffer, self.capacity = grown, wanted
        return True

    cdef inline void put(self, const uint8_t *at, int64_t size) noexcept nogil:
        memcpy(self.buffer + self.size, at, <size_t>size)
        self.size += size

    cdef inline void put_byte(self, uint8_t value) noexcept nogil:
        self.buffer[self.size] = value
        self.size += 1

    cdef bint is_system(self, const uint8_t *name, int64_t size) noexcept nogil:
        cdef int index
        for index in range(self.system_count):
            if self.system_sizes[index] == size and memcmp(self.system_names[index], name, <size_t>size) == 0:
                return True
        return False

    cdef int put_property(self, const uint8_t *name, int64_t name_size, const uint8_t *value,
                          int64_t value_size) noexcept nogil:
        # The caller has put something before: the unique id comes first.
        if name_size == 0 or has_separator(name, name_size) or has_separator(value, value_size):
            return FAULT_SEPARATOR
        if name_size + value_size > PROPERTIES_MAX:
            return FAULT_TOO_LONG
        if not self.reserve(name_size + value_size + 2):
            return -1
        self.put_byte(2)
        self.put(name, name_size)
        self.put_byte(1)
        self.put(value, value_size)
        return FAULT_NONE

    cdef int put_properties(self, Py_ssize_t row) noexcept nogil:
        # Appends the properties text of *row*; -1 when there is no memory. What was put of a faulty row stays there.
        cdef const uint8_t *name
        cdef const uint8_t *value
        cdef int64_t name_size, value_size, start, entry
        cdef int64_t number = self.id_base + row
        cdef int index, fault
        start = self.size
        if not self.reserve(self.id_name_size + self.id_prefix_size + ID_DIGITS + self.id_suffix_size + 1):
            return -1
        self.put(self.id_name, self.id_name_size)
        self.put_byte(1)
        self.put(self.id_prefix, self.id_prefix_size)
        for index in range(ID_DIGITS):
            self.put_byte(<uint8_t>DIGITS[(number >> (4 * (ID_DIGITS - 1 - index))) & 15])
        self.put(self.id_suffix, self.id_suffix_size)
        for index in range(self.text_count):
            value_size = value_of(&self.texts[index].values, row, &value)
            if value_size:
                fault = self.put_property(self.texts[index].name, self.texts[index].name_size, value, value_size)
                if fault:
                    return fault
        if self.has_maps and (self.map_is_valid == NULL or self.map_is_valid[row]):
            for entry in range(self.map_offsets[row], self.map_offsets[row + 1]):
                name_size = value_of(&self.map_names, entry, &name)
                value_size = value_of(&self.map_values, entry, &value)
                if value_size and not self.is_system(name, name_size):
                    fault = self.put_property(name, name_size, value, value_size)
                    if fault:
                        return fault
        return FAULT_TOO_LONG if self.size - start > PROPERTIES_MAX else FAULT_NONE

    cdef int put_message(self, Py_ssize_t row) noexcept nogil:
        # Appends a member of a batch; on a fault the buffer is as it was before.
        cdef int64_t start = self.size
        cdef int64_t properties_at
        cdef const uint8_t *body
        cdef int64_t body_size = value_of(&self.bodies, row, &body)
        cdef int fault
        if not self.reserve(BATCH_MEMBER_HEAD_SIZE + body_size + 2):
            return -1
        self.size += BATCH_MEMBER_HEAD_SIZE
        self.put(body, body_size)
        self.size += 2
        properties_at = self.size
        fault = self.put_properties(row)
        if fault:
            self.size = start
            return fault
        store_i16(self.buffer + properties_at - 2, <int16_t>(self.size - properties_at))
        store_i32(self.buffer + start + BATCH_MEMBER_HEAD_TOTAL_SIZE_AT, <int32_t>(self.size - start))
        store_i32(self.buffer + start + BATCH_MEMBER_HEAD_MAGIC_AT, 0)
        store_i32(self.buffer + start + BATCH_MEMBER_HEAD_BODY_CRC_AT, 0)
        store_i32(self.buffer + start + BATCH_MEMBER_HEAD_FLAG_AT, 0 if self.flags == NULL else self.flags[row])
        store_i32(self.buffer + start + BATCH_MEMBER_HEAD_BODY_SIZE_AT, <int32_t>body_size)
        return FAULT_NONE

    def encode(self, const int64_t[::1] rows not None, Py_ssize_t first, int64_t size_max):
        """Encode rows[first:] until a further one would make the batch larger than *size_max*."""
        cdef Py_ssize_t place = first
        cdef int64_t before
        cdef int fault = FAULT_NONE
        self.size = 0
        if first < 0:
            raise ValueError(f"first: got {first}")
        while place < rows.shape[0]:
            if not 0 <= rows[place] < self.bodies.count:
                raise IndexError(f"row {rows[place]} of {self.bodies.count}")
            before = self.size
            fault = self.put_message(rows[place])
            if fault < 0:
                raise MemoryError("a batch does not fit into memory")
            if fault:
                break
            if place > first and self.size > size_max:
                self.size = before
                break
            place += 1
        body = PyBytes_FromStringAndSize(<char *>self.buffer, self.size) if self.size else b""
        return twin.Encoded(body, place, fault if place == first else FAULT_NONE)

    def properties(self, Py_ssize_t row):
        """Return the properties text of a row and its fault."""
        cdef int fault
        if not 0 <= row < self.bodies.count:
            raise IndexError(f"row {row} of {self.bodies.count}")
        self.size = 0
        fault = self.put_properties(row)
        if fault < 0:
            raise MemoryError("properties do not fit into memory")
        if fault:
            return b"", fault
        return PyBytes_FromStringAndSize(<char *>self.buffer, self.size), FAULT_NONE
