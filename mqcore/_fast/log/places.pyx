"""Looking for the files of a commit log in all its directories, and making new ones in the right one."""

from libc.errno cimport (EDQUOT, EEXIST, EINTR, EMFILE, ENAMETOOLONG, ENFILE, ENOENT, ENOMEM, ENOSPC, ENOTDIR, errno)
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf
from libc.string cimport memset

import os

from mqcore._fast.base.layout cimport LOG_PLACES_MAX

from mqcore.errors import StoreError
from mqcore.store.log.places import FULL_RATIO

cdef extern from "make_file.h" nogil:
    ctypedef struct mq_nameless:
        pass
    int mq_reserve_nameless(const char *directory, int64_t size, mq_nameless *out)
    int mq_name_file(const mq_nameless *file, const char *path)
    void mq_drop_file(const mq_nameless *file)

cdef extern from "<sys/file.h>" nogil:
    int flock(int fd, int operation)
    int LOCK_EX, LOCK_UN

cdef extern from "<sys/statvfs.h>" nogil:
    struct statvfs_type "statvfs":
        unsigned long f_blocks
        unsigned long f_bfree
        unsigned long f_bavail
    int statvfs(const char *path, statvfs_type *out)

cdef extern from "<fcntl.h>" nogil:
    int open(const char *path, int flags, ...)

cdef extern from "<unistd.h>" nogil:
    int close(int fd)
    int access(const char *path, int mode)
    int F_OK

cdef unsigned long FULL_PERCENT = round(FULL_RATIO * 100)

cdef enum:
    NAME_ROOM = 32              # a slash, 20 digits, or the end of the name of a file that is being made


cdef int places_open(LogPlaces *places, object source, int lock_fd) except -1:
    cdef int index
    memset(places, 0, sizeof(LogPlaces))
    places.guard = -1
    writable, read_only = ([source], []) if isinstance(source, str) else (source.writable, source.read_only)
    encoded = [os.fsencode(path) for path in (*writable, *read_only)]
    if not writable or len(encoded) > LOG_PLACES_MAX:
        raise StoreError(f"a commit log in {len(encoded)} directories: wanted 1 to {LOG_PLACES_MAX}, "
                         "one to be written in")
    for index, path in enumerate(encoded):
        if len(path) > PLACE_PATH_SIZE - NAME_ROOM:
            raise StoreError(f"mapped files in {os.fsdecode(path)}: the path's length is out of range")
        snprintf(places.paths[index], PLACE_PATH_SIZE, "%s", <const char *><bytes>path)
    places.count = len(encoded)
    places.writable_count = len(writable)
    if lock_fd >= 0 and places.count > 1:
        # A description of its own: one that is shared with another process would let both in.
        places.guard = os.open(f"/proc/self/fd/{lock_fd}", os.O_RDWR | os.O_CLOEXEC)
    return 0


cdef void places_close(LogPlaces *places) noexcept nogil:
    if places.guard >= 0:
        close(places.guard)
    places.guard = -1


cdef int place_path(const LogPlaces *places, int place, int64_t start, char *out) noexcept nogil:
    if snprintf(out, PLACE_PATH_SIZE, "%s/%020lld", places.paths[place], <long long>start) >= PLACE_PATH_SIZE:
        return ENAMETOOLONG
    return 0


cdef int looked_at(const LogPlaces *places, int64_t number, int step) noexcept nogil:
    # The place to look in at *step*: first where the file is as a rule, the read-only ones last.
    if step < places.writable_count:
        return <int>((number + step) % places.writable_count)
    return step


cdef int open_placed(const LogPlaces *places, int64_t start, int64_t size, int flags) noexcept nogil:
    cdef char path[PLACE_PATH_SIZE]
    cdef int hindrance = ENOENT
    cdef int step, fd, failed
    for step in range(places.count):
        failed = place_path(places, looked_at(places, start // size, step), start, path)
        if failed == 0:
            fd = open(path, flags)
            if fd >= 0:
                return fd
            failed = errno
        if failed == EMFILE or failed == ENFILE:
            return -failed
        # What cannot be looked into may have the file, so that it must not count as one that is not there.
        if failed != ENOENT and failed != ENOTDIR:
            hindrance = failed
    return -hindrance


cdef bint is_anywhere(const LogPlaces *places, int64_t start) noexcept nogil:
    cdef char path[PLACE_PATH_SIZE]
    cdef int place
    for place in range(places.count):
        if place_path(places, place, start, path) == 0 and access(path, F_OK) == 0:
            return True
    return False


cdef unsigned int full_places(const LogPlaces *places) noexcept nogil:
    # Used / (used + usable by us) in percents, rounded up, as store/disk has it. Who cannot be asked is not full.
    cdef statvfs_type disk
    cdef unsigned long used, entire
    cdef unsigned int full = 0
    cdef int place
    for place in range(places.writable_count):
        if statvfs(places.paths[place], &disk) != 0:
            continue
        used = disk.f_blocks - disk.f_bfree
        entire = used + disk.f_bavail
        if entire > 0 and (used * 100 + entire - 1) // entire > FULL_PERCENT:
            full |= <unsigned int>1 << place
    return full


cdef void order_places(int64_t number, int writable_count, unsigned int full, int *out) noexcept nogil:
    cdef int members[LOG_PLACES_MAX]
    cdef int count, place, step
    cdef int filled = 0
    cdef bint wants_full
    for wants_full in range(2):
        count = 0
        for place in range(writable_count):
            if ((full >> place) & 1) == <unsigned int>wants_full:
                members[count] = place
                count += 1
        for step in range(count):
            out[filled] = members[(number + step) % count]
            filled += 1


cdef int name_once(const LogPlaces *places, const mq_nameless *file, const char *path, int64_t start) noexcept nogil:
    # Give the file its name, unless a place has one of that name already.
    cdef int failed = 0
    if places.guard >= 0:
        while flock(places.guard, LOCK_EX) != 0:
            if errno != EINTR:
                return errno
    if places.count == 1 or not is_anywhere(places, start):
        failed = mq_name_file(file, path)
    if places.guard >= 0:
        flock(places.guard, LOCK_UN)
    return 0 if failed == EEXIST else failed


cdef int make_in(const LogPlaces *places, int place, int64_t start, int64_t size) noexcept nogil:
    cdef char path[PLACE_PATH_SIZE]
    cdef mq_nameless file
    cdef int failed = place_path(places, place, start, path)
    if failed != 0:
        return failed
    # The blocks before the lock: reserving them takes its time.
    failed = mq_reserve_nameless(places.paths[place], size, &file)
    if failed != 0:
        return failed
    failed = name_once(places, &file, path, start)
    mq_drop_file(&file)
    return failed


cdef int make_placed(const LogPlaces *places, int64_t start, int64_t size) noexcept nogil:
    cdef int order[LOG_PLACES_MAX]
    cdef int failed = 0
    cdef int hindrance = 0
    cdef int step
    if places.count > 1 and is_anywhere(places, start):
        return 0
    order_places(start // size, places.writable_count, full_places(places) if places.writable_count > 1 else 0, order)
    for step in range(places.writable_count):
        failed = make_in(places, order[step], start, size)
        if failed == 0 or failed == EMFILE or failed == ENFILE or failed == ENOMEM:
            return failed
        # A disk without room is what an operator can mend, and what a producer is told by a code of its own.
        if hindrance != ENOSPC and hindrance != EDQUOT:
            hindrance = failed
    return hindrance


def place_order(int64_t number, list full not None):
    """The twin of store.log_places.place_order, for tests. At most LOG_PLACES_MAX places."""
    cdef int order[LOG_PLACES_MAX]
    cdef unsigned int bits = 0
    cdef int index
    for index in range(min(len(full), <Py_ssize_t>LOG_PLACES_MAX)):
        if full[index]:
            bits |= <unsigned int>1 << index
    order_places(number, <int>min(len(full), <Py_ssize_t>LOG_PLACES_MAX), bits, order)
    return [order[index] for index in range(min(len(full), <Py_ssize_t>LOG_PLACES_MAX))]
