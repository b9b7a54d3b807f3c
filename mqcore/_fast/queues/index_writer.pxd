# The newest index file, full ones that are not yet synced, and the roll from one to the next. One thread.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.base.store_file cimport DIRECTORY_SIZE_MAX, FileFailure
from mqcore._fast.queues.index_file cimport IndexGeometry


cdef enum:
    INDEX_RETIRED_MAX = 16


cdef struct IndexWriter:
    char path[DIRECTORY_SIZE_MAX]   # the directory index
    IndexGeometry geometry
    bint opened                     # what follows has been read from disk
    int64_t name                    # of the newest file, as a number; -1 = none
    uint8_t *map                    # NULL = none
    int64_t reserved                # disk blocks exist up to this position
    uint8_t *retired[INDEX_RETIRED_MAX]
    int32_t retired_count
    int64_t synced_timestamp        # end timestamp of the last full file synced, ms


cdef bint index_open(IndexWriter *index, FileFailure *failure) noexcept nogil
cdef void index_close(IndexWriter *index) noexcept nogil

# Physical offset of the newest indexed record; 0 when there is none.
cdef int64_t index_end(const IndexWriter *index) noexcept nogil

# Append to the newest file, which is made or rolled as needed.
cdef bint index_append(
    IndexWriter *index, int32_t key_hash, int64_t physical_offset, int64_t store_timestamp, FileFailure *failure
) noexcept nogil

# Sync full files, let them go and move synced_timestamp; with *newest* the one in use too.
cdef bint index_sync(IndexWriter *index, bint newest, FileFailure *failure) noexcept nogil
