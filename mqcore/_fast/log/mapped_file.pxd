# Equally sized files, named by the offset of their first byte in 20 digits, mapped on demand; log_places knows where.
#
# One FileSet belongs to one thread. A mapping lives until its slot is needed for another file, the file is trimmed, or
# the set is closed; the owner must not keep pointers across those calls.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.log.places cimport LogPlaces

cdef enum:
    FILE_SLOTS = 512
    FILE_ROUNDS_KEPT = 16

cdef struct MappedFile:
    int64_t start
    uint8_t *base
    int32_t used_in             # the round in which it was last asked for

cdef struct FileSet:
    LogPlaces places
    int64_t file_size
    bint writable
    int error
    int32_t round
    int64_t released            # pages before it are no longer held by these mappings, unless somebody read there since
    int spare                   # a descriptor kept for the day on which connections have taken all others
    MappedFile slots[512]

# *places* and *lock_fd* are those of places_open; the latter is needed only by who makes files. Raises as that.
cdef int files_open(FileSet *files, object places, int64_t file_size, bint writable, int lock_fd=*) except -1
cdef void files_close(FileSet *files) noexcept nogil
# Unmap every file that ends at or before *offset*.
cdef void files_trim(FileSet *files, int64_t offset) noexcept nogil
# A round has passed: unmap what nobody has asked for in the last FILE_ROUNDS_KEPT.
cdef void files_rest(FileSet *files) noexcept nogil
# Let go of the pages before *offset* that no call has released yet; the bytes stay readable, from the page cache or the
# disk. Clean or dirty, nothing is lost: the kernel alone decides when a page leaves memory.
cdef void files_release(FileSet *files, int64_t offset) noexcept nogil
# The mapped file that holds *offset*, opened if it must be; NULL (errno in files.error) if it is not there.
cdef MappedFile *file_at(FileSet *files, int64_t offset) noexcept nogil
# The same, made with all its blocks reserved if it is not there and *offset* is its start: a file that has been written
# to is there, or lost, and an empty one must not take its place. NULL with ENOSPC in files.error on a full disk.
cdef MappedFile *file_made_at(FileSet *files, int64_t offset) noexcept nogil
# Bytes at *offset*; *available* gets how many follow in that file. NULL as above.
cdef uint8_t *bytes_at(FileSet *files, int64_t offset, int64_t *available) noexcept nogil
