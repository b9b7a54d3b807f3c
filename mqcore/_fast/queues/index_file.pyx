"""One hash index file: put a key, find the records of a key. The twin is mqcore/store/queues/index_file.py.

The writer publishes the entry, then the count, then the slot, so that a reader in another process never follows a slot
to an entry that is not there, and a writer killed in between leaves at most an entry that no chain leads to.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

from mqcore._fast.base.big_endian cimport load_i32, load_i64, observe_be_i32, publish_be_i32, store_i32, store_i64
from mqcore._fast.base.layout cimport (INDEX_ENTRY_KEY_HASH_AT, INDEX_ENTRY_PHYSICAL_OFFSET_AT,
                                       INDEX_ENTRY_PREVIOUS_ENTRY_AT, INDEX_ENTRY_SECONDS_SINCE_BEGIN_AT,
                                       INDEX_ENTRY_SIZE, INDEX_HEADER_BEGIN_PHYSICAL_OFFSET_AT,
                                       INDEX_HEADER_BEGIN_TIMESTAMP_AT, INDEX_HEADER_END_PHYSICAL_OFFSET_AT,
                                       INDEX_HEADER_END_TIMESTAMP_AT, INDEX_HEADER_INDEX_COUNT_AT, INDEX_HEADER_SIZE,
                                       INDEX_HEADER_USED_SLOT_COUNT_AT, INDEX_SLOT_SIZE)
from mqcore._fast.log.record cimport java_hash, java_hash_continue


cdef enum:
    INT32_MIN = -0x80000000
    INT32_MAX = 0x7FFFFFFF


cdef int64_t index_file_size(const IndexGeometry *geometry) noexcept nogil:
    return entry_position(geometry, geometry.entry_count)


# Both are positive and slot_count is checked at the border: C's remainder is Java's.
@cython.cdivision(True)
cdef inline int64_t slot_position(const IndexGeometry *geometry, int32_t key_hash) noexcept nogil:
    return INDEX_HEADER_SIZE + <int64_t>INDEX_SLOT_SIZE * (key_hash % geometry.slot_count)


cdef inline int64_t entry_position(const IndexGeometry *geometry, int32_t entry) noexcept nogil:
    return INDEX_HEADER_SIZE + <int64_t>INDEX_SLOT_SIZE * geometry.slot_count + <int64_t>INDEX_ENTRY_SIZE * entry


cdef int32_t index_key_hash(
    const uint8_t *topic, Py_ssize_t topic_size, const uint8_t *key, Py_ssize_t key_size
) noexcept nogil:
    cdef uint8_t separator = 35     # '#'
    cdef int32_t value = java_hash_continue(java_hash(topic, topic_size), &separator, 1)
    value = java_hash_continue(value, key, key_size)
    if value == INT32_MIN:
        return 0
    return -value if value < 0 else value


# Number of the next entry, as far as the file has room for it.
cdef inline int32_t next_entry(const uint8_t *base, const IndexGeometry *geometry) noexcept nogil:
    cdef int32_t count = observe_be_i32(base + INDEX_HEADER_INDEX_COUNT_AT)
    return max(1, min(count, geometry.entry_count))


@cython.cdivision(True)             # the difference is positive
cdef int32_t seconds_between(int64_t begin_timestamp, int64_t store_timestamp) noexcept nogil:
    if begin_timestamp <= 0 or store_timestamp <= begin_timestamp:
        return 0
    return <int32_t>min((store_timestamp - begin_timestamp) // 1000, <int64_t>INT32_MAX)


cdef IndexStatus index_put(
    uint8_t *base, const IndexGeometry *geometry, int32_t key_hash, int64_t physical_offset, int64_t store_timestamp
) noexcept nogil:
    cdef int32_t entry = next_entry(base, geometry)
    cdef uint8_t *slot = base + slot_position(geometry, key_hash)
    cdef uint8_t *at
    cdef int32_t previous
    if entry >= geometry.entry_count:
        return INDEX_FULL
    previous = observe_be_i32(slot)
    if previous <= 0 or previous > entry:
        previous = 0
    at = base + entry_position(geometry, entry)
    store_i32(at + INDEX_ENTRY_KEY_HASH_AT, key_hash)
    store_i64(at + INDEX_ENTRY_PHYSICAL_OFFSET_AT, physical_offset)
    store_i32(at + INDEX_ENTRY_SECONDS_SINCE_BEGIN_AT,
              seconds_between(load_i64(base + INDEX_HEADER_BEGIN_TIMESTAMP_AT), store_timestamp))
    store_i32(at + INDEX_ENTRY_PREVIOUS_ENTRY_AT, previous)
    if entry <= 1:
        store_i64(base + INDEX_HEADER_BEGIN_PHYSICAL_OFFSET_AT, physical_offset)
        store_i64(base + INDEX_HEADER_BEGIN_TIMESTAMP_AT, store_timestamp)
    if previous == 0:
        store_i32(base + INDEX_HEADER_USED_SLOT_COUNT_AT, load_i32(base + INDEX_HEADER_USED_SLOT_COUNT_AT) + 1)
    store_i64(base + INDEX_HEADER_END_PHYSICAL_OFFSET_AT, physical_offset)
    store_i64(base + INDEX_HEADER_END_TIMESTAMP_AT, store_timestamp)
    publish_be_i32(base + INDEX_HEADER_INDEX_COUNT_AT, entry + 1)
    publish_be_i32(slot, entry)
    return INDEX_OK


cdef bint index_covers(const uint8_t *base, int64_t begin_timestamp, int64_t end_timestamp) noexcept nogil:
    cdef int64_t first = load_i64(base + INDEX_HEADER_BEGIN_TIMESTAMP_AT)
    cdef int64_t last = load_i64(base + INDEX_HEADER_END_TIMESTAMP_AT)
    return ((begin_timestamp < first and end_timestamp > last)
            or (first <= begin_timestamp <= last)
            or (first <= end_timestamp <= last))


cdef int index_query(
    const uint8_t *base, const IndexGeometry *geometry, int32_t key_hash, int64_t begin_timestamp,
    int64_t end_timestamp, int64_t *out, int max_count
) noexcept nogil:
    cdef int32_t entry = observe_be_i32(base + slot_position(geometry, key_hash))
    cdef int32_t count = next_entry(base, geometry), previous, seconds
    cdef int64_t first = load_i64(base + INDEX_HEADER_BEGIN_TIMESTAMP_AT), timestamp
    cdef const uint8_t *at
    cdef int found = 0
    # Entry numbers fall along a chain, so the walk ends; a chain that does not fall is damaged and ends it too.
    while found < max_count and 0 < entry <= count and entry < geometry.entry_count and count > 1:
        at = base + entry_position(geometry, entry)
        seconds = load_i32(at + INDEX_ENTRY_SECONDS_SINCE_BEGIN_AT)
        if seconds < 0:
            break
        timestamp = first + <int64_t>seconds * 1000
        if load_i32(at + INDEX_ENTRY_KEY_HASH_AT) == key_hash and begin_timestamp <= timestamp <= end_timestamp:
            out[found] = load_i64(at + INDEX_ENTRY_PHYSICAL_OFFSET_AT)
            found += 1
        previous = load_i32(at + INDEX_ENTRY_PREVIOUS_ENTRY_AT)
        if previous >= entry or timestamp < begin_timestamp:
            break
        entry = previous
    return found


# ------------------------------------------------------------------------------------------------- the Python side


cdef IndexGeometry to_geometry(geometry) except *:
    cdef IndexGeometry out
    out.slot_count = geometry.slot_count
    out.entry_count = geometry.entry_count
    if out.slot_count < 1 or out.entry_count < 2:
        raise ValueError(f"index geometry: got {geometry}, wanted at least one slot and two entries")
    return out


cdef int check_size(Py_ssize_t size, const IndexGeometry *geometry) except -1:
    if size < index_file_size(geometry):
        raise ValueError(f"index file: got {size} bytes, wanted {index_file_size(geometry)}")
    return 0


def key_hash(bytes topic not None, bytes key not None):
    """Return the hash of topic#key as the index keeps it, 0..2**31-1."""
    return index_key_hash(topic, len(topic), key, len(key))


def put(uint8_t[::1] buffer not None, geometry, int32_t key_hash, int64_t physical_offset, int64_t store_timestamp):
    """Append one entry to the file in *buffer*; False when it is full."""
    cdef IndexGeometry shape = to_geometry(geometry)
    check_size(buffer.shape[0], &shape)
    if key_hash < 0:
        raise ValueError(f"key hash: got {key_hash}, wanted 0..2**31-1")
    return index_put(&buffer[0], &shape, key_hash, physical_offset, store_timestamp) == INDEX_OK


def query(
    const uint8_t[::1] buffer not None, geometry, int32_t key_hash, int64_t begin_timestamp, int64_t end_timestamp,
    int count_max
):
    """Return physical offsets of *key_hash* in the file in *buffer*, newest first, at most *count_max*."""
    cdef IndexGeometry shape = to_geometry(geometry)
    cdef int64_t *found
    cdef int count, index
    check_size(buffer.shape[0], &shape)
    if key_hash < 0:
        raise ValueError(f"key hash: got {key_hash}, wanted 0..2**31-1")
    if count_max <= 0:
        return []
    found = <int64_t *>malloc(count_max * sizeof(int64_t))
    if found == NULL:
        raise MemoryError
    try:
        count = index_query(&buffer[0], &shape, key_hash, begin_timestamp, end_timestamp, found, count_max)
        return [found[index] for index in range(count)]
    finally:
        free(found)


def covers(const uint8_t[::1] buffer not None, int64_t begin_timestamp, int64_t end_timestamp):
    """Return whether the time range of the file in *buffer* meets [begin, end]."""
    if buffer.shape[0] < INDEX_HEADER_SIZE:
        raise ValueError(f"index file: got {buffer.shape[0]} bytes, wanted at least {INDEX_HEADER_SIZE}")
    return bool(index_covers(&buffer[0], begin_timestamp, end_timestamp))
