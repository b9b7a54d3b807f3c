# The newest consume queue ext file of one queue, being written. One thread.
from libc.stdint cimport int64_t

from mqcore._fast.base.store_file cimport FileFailure
from mqcore._fast.queues.newest_file cimport NewestFile, QueuePlace


cdef struct ExtWriter:                  # all zero: nothing is known yet
    bint loaded                         # what follows has been read from disk
    NewestFile file


# Append a unit without a bitmap; *address* is set to its own. *known* is the code of the queue's newest unit: if it is
# an address, the stream goes on behind it, whatever the file looks like.
cdef bint ext_append(
    ExtWriter *ext, const QueuePlace *place, int64_t known, int64_t tags_code, int64_t store_timestamp,
    int64_t *address, FileFailure *failure
) noexcept nogil
