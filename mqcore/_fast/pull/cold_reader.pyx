"""Pages of the commit log that may be on disk only: read in blocks by a pull worker, for the send worker to write.

A plain read brings pages into the page cache on every kernel, returns an error where touching a mapping would be a
SIGBUS, and leaves no mapping behind that would keep the pages there.
"""

from libc.errno cimport EINTR, EIO, ENOMEM, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset

from mqcore._fast.log.places cimport open_placed, places_open

cdef extern from "<fcntl.h>" nogil:
    int posix_fadvise(int fd, int64_t offset, int64_t size, int advice)
    int O_RDONLY, O_CLOEXEC, O_NOFOLLOW, POSIX_FADV_WILLNEED

cdef extern from "<unistd.h>" nogil:
    int close(int fd)
    ssize_t pread(int fd, void *out, size_t size, int64_t offset)

cdef enum:
    SCRATCH_SIZE = 1 << 17      # small enough to stay in a processor's own cache


cdef int cold_open(ColdReader *reader, object places, int64_t file_size) except -1:
    memset(reader, 0, sizeof(ColdReader))
    places_open(&reader.places, places, -1)
    reader.file_size = file_size
    reader.scratch = <uint8_t *>malloc(SCRATCH_SIZE)
    if reader.scratch == NULL:
        raise MemoryError()
    return 0


cdef void cold_close(ColdReader *reader) noexcept nogil:
    free(reader.scratch)
    free(reader.window)
    reader.scratch = reader.window = NULL


cdef bint was_read(ColdReader *reader, int64_t start, int64_t now_ms) noexcept nogil:
    # Whether the block was read a moment ago; if not, it is taken to be from now on.
    cdef ColdBlock *block = &reader.blocks[start // 4096 % COLD_BLOCKS]
    if block.start == start + 1 and now_ms < block.until:
        return True
    block.start = start + 1
    block.until = now_ms + COLD_BLOCK_MS
    return False


cdef int64_t read_block(ColdReader *reader, int64_t file_start, int64_t at, int64_t size) noexcept nogil:
    cdef int64_t done = 0
    cdef ssize_t got
    cdef int fd = open_placed(&reader.places, file_start, reader.file_size, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
    if fd < 0:
        return 0
    posix_fadvise(fd, at, size + COLD_BLOCK_SIZE, POSIX_FADV_WILLNEED)
    while done < size:
        got = pread(fd, reader.scratch, min(size - done, <int64_t>SCRATCH_SIZE), at + done)
        if got <= 0:
            break
        done += got
    close(fd)
    return done


cdef int64_t cold_bring_in(ColdReader *reader, int64_t offset, int64_t size, int64_t now_ms) noexcept nogil:
    cdef int64_t end = offset + size
    cdef int64_t done = 0
    cdef int64_t file_start, at, block_size
    while offset < end:
        file_start = offset - offset % reader.file_size
        at = (offset - file_start) // COLD_BLOCK_SIZE * COLD_BLOCK_SIZE
        block_size = min(<int64_t>COLD_BLOCK_SIZE, reader.file_size - at)
        if not was_read(reader, file_start + at, now_ms):
            done += read_block(reader, file_start, at, block_size)
        offset = file_start + at + block_size
    return done


cdef bint grow_window(ColdReader *reader, int64_t size) noexcept nogil:
    cdef uint8_t *larger
    if size <= reader.window_size:
        return True
    larger = <uint8_t *>realloc(reader.window, size)
    if larger == NULL:
        return False
    reader.window = larger
    reader.window_size = size
    return True


cdef int fill_window(ColdReader *reader, int64_t file_start, int64_t offset, int64_t size) noexcept nogil:
    cdef ssize_t got
    cdef int error = 0
    cdef int fd = open_placed(&reader.places, file_start, reader.file_size, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
    if fd < 0:
        return -fd
    posix_fadvise(fd, offset - file_start, size + COLD_BLOCK_SIZE, POSIX_FADV_WILLNEED)
    reader.window_start = reader.window_end = offset
    while reader.window_end < offset + size:
        got = pread(fd, reader.window + (reader.window_end - offset), offset + size - reader.window_end,
                    reader.window_end - file_start)
        if got < 0 and errno == EINTR:
            continue
        if got <= 0:
            error = EIO if got == 0 else errno
            break
        reader.window_end += got
    close(fd)
    return error


cdef const uint8_t *cold_bytes(ColdReader *reader, int64_t offset, int64_t size, int64_t *done,
                               int *error) noexcept nogil:
    cdef int64_t file_start = offset - offset % reader.file_size
    cdef int64_t wanted
    error[0] = 0
    if offset < reader.window_start or offset + size > reader.window_end:
        wanted = min(max(size, <int64_t>COLD_WINDOW_SIZE), file_start + reader.file_size - offset)
        if size > wanted:
            return NULL
        if not grow_window(reader, wanted):
            error[0] = ENOMEM
            return NULL
        error[0] = fill_window(reader, file_start, offset, wanted)
        done[0] += reader.window_end - reader.window_start
        if error[0] != 0 and reader.window_end < offset + size:
            return NULL
        error[0] = 0
    return reader.window + (offset - reader.window_start)
