# Brings commit log pages that are far behind the end into the page cache before somebody writes them to a socket.
#
# Whoever touches a page that is on disk only waits for the disk. A pull worker may do that; a send worker, which writes
# the bytes out of its own mapping, has other connections to serve.
from libc.stdint cimport int64_t, uint8_t

from mqcore._fast.log.places cimport LogPlaces

cdef enum:
    COLD_BLOCK_SIZE = 1 << 20       # read at once
    COLD_BLOCKS = 251               # remembered; a prime, for the starts are multiples of powers of two
    COLD_AFTER_BYTES = 64 << 20     # what is nearer to the end has just been written, and is in memory
    COLD_WINDOW_SIZE = 1 << 17      # read at once for who looks into records
    COLD_BLOCK_MS = 1000            # so long a block that was read is taken to be in memory

cdef struct ColdBlock:
    int64_t start                   # physical offset + 1; 0 = none
    int64_t until                   # coarse ms

cdef struct ColdReader:
    LogPlaces places
    int64_t file_size
    uint8_t *scratch
    uint8_t *window                 # a copy of some bytes of the log, for who looks into cold records
    int64_t window_size
    int64_t window_start            # physical offset
    int64_t window_end
    ColdBlock blocks[251]

# *places* (see places_open) and *file_size* are the commit log's. Raises StoreError, MemoryError.
cdef int cold_open(ColdReader *reader, object places, int64_t file_size) except -1
cdef void cold_close(ColdReader *reader) noexcept nogil
# Bring [offset, offset + size) in, and start the reading of what follows. Returns how many bytes were read; what cannot
# be read is left alone.
cdef int64_t cold_bring_in(ColdReader *reader, int64_t offset, int64_t size, int64_t now_ms) noexcept nogil
# A copy of [offset, offset + size), which lies in one file; good until the next call. NULL: errno in *error*, ENOENT if
# the file is gone, 0 if they do not lie in one. *done* grows by the bytes that were read for it.
cdef const uint8_t *cold_bytes(ColdReader *reader, int64_t offset, int64_t size, int64_t *done,
                               int *error) noexcept nogil
