# The newest consume queue ext file of one queue, being written. One thread.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.store_file cimport FileFailure


cdef struct ExtPlace:                   # where the files of a queue lie
    const char *root                    # the directory consumequeue_ext
    const uint8_t *topic
    int32_t topic_size
    int32_t queue_id
    int64_t file_size


cdef struct ExtWriter:                  # all zero: nothing is known yet
    bint loaded                         # what follows has been read from disk
    uint8_t *map                        # NULL = not mapped
    int64_t file_start                  # bytes in the stream of ext units; -1 = there is no file
    int64_t wrote                       # position in the file
    int64_t reserved                    # disk blocks exist up to this position
    int64_t flushed                     # synced up to here, bytes in the stream


# Append a unit without a bitmap; *address* is set to its own. *known* is the code of the queue's newest unit: if it is
# an address, the stream goes on behind it, whatever the file looks like.
cdef bint ext_append(
    ExtWriter *ext, const ExtPlace *place, int64_t known, int64_t tags_code, int64_t store_timestamp, int64_t *address,
    FileFailure *failure
) noexcept nogil

# Sync what was appended since the last time; returns files synced, -1 on failure.
cdef int64_t ext_sync(ExtWriter *ext, const ExtPlace *place, FileFailure *failure) noexcept nogil

cdef void ext_unmap(ExtWriter *ext, int64_t file_size) noexcept nogil
