# Equally sized files, named by the offset of their first byte in 20 digits, mapped on demand; log_places knows where.
#
# One FileSet belongs to one thread. At most FILE_MAPPINGS_MAX files are mapped at a time: for one more, a file is
# unmapped that nobody has asked for lately. So a pointer is good until the next call on its set, and one that must
# outlive that call needs a pin: a pinned file stays mapped, whatever else is asked for, trimmed or rested, until as
# many unpins have followed. Pins are held for the length of one piece of work, never while the owner waits for others.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.log.places cimport LogPlaces

cdef enum:
    FILE_MAPPINGS_MAX = 1024    # a power of two, and more than a pull has ranges, each perhaps in a file of its own
    FILE_ROUNDS_KEPT = 16

cdef struct MappedFile:
    int64_t start               # -1 = nothing is mapped here
    uint8_t *base
    MappedFile *next            # of the same bucket
    int32_t used_in             # the round in which it was last asked for
    int32_t pins                # it is not unmapped while there are any

cdef struct FileSet:
    LogPlaces places
    int64_t file_size
    bint writable
    int error
    int32_t round
    int64_t released            # pages before it are no longer held by these mappings, unless somebody read there since
    int spare                   # a descriptor kept for the day on which connections have taken all others
    int32_t hand                # where a mapping was last taken; the search for another one goes on behind it
    MappedFile mappings[FILE_MAPPINGS_MAX]
    MappedFile *buckets[FILE_MAPPINGS_MAX]      # by the file's number

# *places* and *lock_fd* are those of places_open; the latter is needed only by who makes files. Raises as that.
cdef int files_open(FileSet *files, object places, int64_t file_size, bint writable, int lock_fd=*) except -1
# Nothing may be pinned any more.
cdef void files_close(FileSet *files) noexcept nogil
# Unmap every file that ends at or before *offset*.
cdef void files_trim(FileSet *files, int64_t offset) noexcept nogil
# A round has passed: unmap what nobody has asked for in the last FILE_ROUNDS_KEPT.
cdef void files_rest(FileSet *files) noexcept nogil
# Let go of the pages before *offset* that no call has released yet; the bytes stay readable, from the page cache or the
# disk. Clean or dirty, nothing is lost: the kernel alone decides when a page leaves memory.
cdef void files_release(FileSet *files, int64_t offset) noexcept nogil
# The mapped file that holds *offset*, opened if it must be; NULL (errno in files.error) if it is not there. ENOBUFS:
# all mappings are pinned.
cdef MappedFile *file_at(FileSet *files, int64_t offset) noexcept nogil
# The same, pinned.
cdef MappedFile *file_pinned_at(FileSet *files, int64_t offset) noexcept nogil
cdef void file_unpin(MappedFile *file) noexcept nogil
# The same, made with all its blocks reserved if it is not there and *offset* is its start: a file that has been written
# to is there, or lost, and an empty one must not take its place. NULL with ENOSPC in files.error on a full disk.
cdef MappedFile *file_made_at(FileSet *files, int64_t offset) noexcept nogil
# Bytes at *offset*; *available* gets how many follow in that file. NULL as above.
cdef uint8_t *bytes_at(FileSet *files, int64_t offset, int64_t *available) noexcept nogil
