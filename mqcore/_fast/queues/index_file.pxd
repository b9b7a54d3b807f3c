# One hash index file: put a key, find the records of a key.
from libc.stdint cimport int32_t, int64_t, uint8_t


cdef enum IndexStatus:
    INDEX_OK
    INDEX_FULL                  # no entry left: go on in a new file


cdef struct IndexGeometry:
    int32_t slot_count          # maxHashSlotNum
    int32_t entry_count         # maxIndexNum; entry 0 is never used


# Size of the whole file, bytes.
cdef int64_t index_file_size(const IndexGeometry *geometry) noexcept nogil

# Hash of topic + '#' + key as the index keeps it: never negative.
cdef int32_t index_key_hash(
    const uint8_t *topic, Py_ssize_t topic_size, const uint8_t *key, Py_ssize_t key_size
) noexcept nogil

# What an entry says of its time: whole seconds since the begin of its file.
cdef int32_t seconds_between(int64_t begin_timestamp, int64_t store_timestamp) noexcept nogil

# Append one entry to the mapped file at *base* (index_file_size bytes, writable, aligned to 4). One writer only;
# readers in other processes see the entry before the slot and the count that lead to it.
cdef IndexStatus index_put(
    uint8_t *base, const IndexGeometry *geometry, int32_t key_hash, int64_t physical_offset, int64_t store_timestamp
) noexcept nogil

# Physical offsets of key_hash with begin <= store time <= end (whole seconds), newest first, at most max_count, into
# *out*. Returns how many. Says nothing about whether the file's time range fits: see index_covers.
cdef int index_query(
    const uint8_t *base, const IndexGeometry *geometry, int32_t key_hash, int64_t begin_timestamp,
    int64_t end_timestamp, int64_t *out, int max_count
) noexcept nogil

# Whether the file's time range and [begin, end] meet as upstream tests it.
cdef bint index_covers(const uint8_t *base, int64_t begin_timestamp, int64_t end_timestamp) noexcept nogil
