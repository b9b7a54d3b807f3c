# Consume queues, read: one mapped file per queue at a time, opened when it is first wanted. Of all queues so many are
# mapped at once; another one takes the place of one that has not been read lately.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.queues.ext cimport ExtUnit
from mqcore._fast.segment.boards cimport Shared

cdef struct QueueFile:
    int64_t start               # queue bytes; -1 = nothing mapped
    uint8_t *base
    int64_t used_at             # coarse ms
    bint was_used               # since the hand that looks for mappings to give up came by
    int64_t advised_from        # bytes of the file that were asked for ahead of their reader
    int64_t advised_end
    int64_t files_of            # the birth of the queue whose files are mapped: another, and they are gone
    int64_t ext_start           # bytes of its ext units; -1 = nothing mapped
    uint8_t *ext_base
    int64_t ext_missing         # start of the ext file that was not there at ext_missing_at; -1 = none
    int64_t ext_missing_at

cdef struct QueueReader:
    const Shared *shared
    const char *root            # the consumequeue directory
    int64_t file_size           # bytes
    const char *ext_root        # the consumequeue_ext directory
    int64_t ext_file_size       # bytes
    QueueFile *files            # by queue row
    int32_t capacity
    int32_t mapped_count        # files of units and of ext units
    int32_t mapped_count_max
    int32_t hand                # the row that was looked at last for a mapping to give up
    uint8_t *young              # units that were copied out of a cradle
    int error                   # errno of the last units_at that gave NULL; ENOENT: there is no such file

# False: no memory.
cdef bint queues_open(QueueReader *reader, const Shared *shared, const char *root, int64_t file_size,
                      const char *ext_root, int64_t ext_file_size, int32_t mapped_count_max) noexcept nogil
cdef void queues_close(QueueReader *reader) noexcept nogil
# Units from *first* to the end of their file, at most up to *limit*; *count* gets how many. NULL: see *error*. They
# stay mapped until units are asked for again, whatever is mapped in between.
cdef const uint8_t *units_at(QueueReader *reader, int32_t queue_row, int64_t first, int64_t limit, int64_t now,
                             int64_t *count) noexcept nogil
# The ext unit at *address* of a queue whose units have been asked for; its bitmap stays where it is until the next
# call. False if it cannot be read.
cdef bint ext_unit_at(QueueReader *reader, int32_t queue_row, int64_t address, int64_t now,
                      ExtUnit *unit) noexcept nogil
# The tags code of the ext unit at *address* of a queue whose units have been asked for; False if it cannot be read.
cdef bint ext_code_at(QueueReader *reader, int32_t queue_row, int64_t address, int64_t now,
                      int64_t *tags_code) noexcept nogil
# Unmap what nobody has read since *before*.
cdef void queues_rest(QueueReader *reader, int64_t before) noexcept nogil
