# The newest consume queue ext file of one queue, being written. One thread.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.base.store_file cimport FileFailure
from mqcore._fast.queues.newest_file cimport NewestFile, QueuePlace


cdef enum:
    EXT_BITMAP_MAX = 2048               # bytes of a filter bitmap; 112 bits are 14


cdef struct ExtWriter:                  # all zero: nothing is known yet
    bint loaded                         # what follows has been read from disk
    NewestFile file


# Append a unit, with a bitmap if *bitmap_size* is not 0; *address* is set to its own. *known* is the code of the
# queue's newest unit: if it is an address, the stream goes on behind it, whatever the file looks like.
cdef bint ext_append(
    ExtWriter *ext, const QueuePlace *place, int64_t known, int64_t tags_code, int64_t store_timestamp,
    const uint8_t *bitmap, int32_t bitmap_size, int64_t *address, FileFailure *failure
) noexcept nogil
