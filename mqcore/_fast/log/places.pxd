# Where the files of a commit log lie, in one directory or in several: the processes' way to ask store/log_places.
#
# A file is looked for, in the order in which it may have been made. It is made in one place only: who makes it holds a
# lock of all processes of the broker while it looks whether another one was faster.
from libc.stdint cimport int64_t

from mqcore._fast.base.layout cimport LOG_PLACES_MAX

cdef enum:
    PLACE_PATH_SIZE = 4096

cdef struct LogPlaces:
    int count
    int writable_count          # these come first, sorted
    int guard                   # descriptor that the lock is taken on; -1 = with one directory the link itself decides
    char paths[LOG_PLACES_MAX][PLACE_PATH_SIZE]

# Take over a directory (str) or a store.log_places.LogPlaces. *lock_fd* is any descriptor of a file that all makers
# have open; without one (-1) nobody else may make files. Raises StoreError, OSError.
cdef int places_open(LogPlaces *places, object source, int lock_fd) except -1
cdef void places_close(LogPlaces *places) noexcept nogil
# The path of the file at *start* in *place*; 0 or ENAMETOOLONG.
cdef int place_path(const LogPlaces *places, int place, int64_t start, char *out) noexcept nogil
# Open the file of *size* bytes at *start*. The descriptor, or -errno, which is -ENOENT only if no place has it.
cdef int open_placed(const LogPlaces *places, int64_t start, int64_t size, int flags) noexcept nogil
# Make that file, blocks reserved, unless a place has it; 0 or errno, ENOSPC if that is what stood in the way anywhere.
cdef int make_placed(const LogPlaces *places, int64_t start, int64_t size) noexcept nogil
# The twin of store.log_places.place_order; bit i of *full* is place i's.
cdef void order_places(int64_t number, int writable_count, unsigned int full, int *out) noexcept nogil
