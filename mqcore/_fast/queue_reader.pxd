# Consume queues, read: one mapped file per queue at a time, opened when it is first wanted.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.boards cimport Shared

cdef struct QueueFile:
    int64_t start               # queue bytes; -1 = nothing mapped
    uint8_t *base
    int64_t used_at             # coarse ms

cdef struct QueueReader:
    const Shared *shared
    const char *root            # the consumequeue directory
    int64_t file_size           # bytes
    QueueFile *files            # by queue row
    int32_t capacity
    int32_t mapped_count
    int error                   # errno of the last units_at that gave NULL; ENOENT: there is no such file

cdef void queues_open(QueueReader *reader, const Shared *shared, const char *root, int64_t file_size) noexcept nogil
cdef void queues_close(QueueReader *reader) noexcept nogil
# Units from *first* to the end of their file, at most up to *limit*; *count* gets how many. NULL: see *error*.
cdef const uint8_t *units_at(QueueReader *reader, int32_t queue_row, int64_t first, int64_t limit, int64_t now,
                             int64_t *count) noexcept nogil
# Unmap what nobody has read since *before*.
cdef void queues_rest(QueueReader *reader, int64_t before) noexcept nogil
