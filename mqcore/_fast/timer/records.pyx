"""Records of the timer topic, out of the commit log."""

from libc.errno cimport EIO, ENOENT
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport realloc
from libc.string cimport memcmp

from mqcore._fast.base.atomics cimport observe
from mqcore._fast.log.mapped_file cimport bytes_at
from mqcore._fast.log.places cimport open_placed
from mqcore._fast.log.record cimport DECODE_OK, RecordView, decode_record
from mqcore._fast.timer.state cimport LOG_FDS

cdef extern from "<fcntl.h>" nogil:
    int posix_fadvise(int fd, int64_t offset, int64_t size, int advice)
    int O_RDONLY, O_CLOEXEC, O_NOFOLLOW, POSIX_FADV_WILLNEED

cdef extern from "<unistd.h>" nogil:
    int close(int fd)
    ssize_t pread(int fd, void *out, size_t size, int64_t offset)

cdef enum:
    HOT_BYTES = 256 << 20           # so far behind the end records are read from the mapping, unless cold_end is nearer
    TIMER_TOPIC_SIZE = 19

cdef const char *TIMER_TOPIC = "rmq_sys_wheel_timer"


cdef int64_t hot_from(TimerState *state) noexcept nogil:
    return max(observe(&state.shared.board.cold_end), observe(&state.shared.board.wrote_offset) - HOT_BYTES)


cdef int fd_of(TimerState *state, int64_t offset) noexcept nogil:
    # A descriptor of the commit log file that holds *offset*; -errno.
    cdef int64_t start = offset - offset % state.appender.file_size
    cdef int place = <int>(start // state.appender.file_size % LOG_FDS)
    if state.fds[place] >= 0 and state.fd_starts[place] == start:
        return state.fds[place]
    if state.fds[place] >= 0:
        close(state.fds[place])
    state.fds[place] = open_placed(&state.files.places, start, state.appender.file_size,
                                   O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
    state.fd_starts[place] = start
    return state.fds[place]


cdef const uint8_t *read_cold(TimerState *state, int64_t offset, int32_t size) noexcept nogil:
    # By a plain read: a mapping would fault in one page after the other.
    cdef int64_t done = 0
    cdef ssize_t got
    cdef uint8_t *grown
    cdef int fd = fd_of(state, offset)
    if fd < 0:
        state.error = -fd
        return NULL
    if size > state.scratch_size:
        grown = <uint8_t *>realloc(state.scratch, size)
        if grown == NULL:
            state.error = EIO
            return NULL
        state.scratch = grown
        state.scratch_size = size
    while done < size:
        got = pread(fd, state.scratch + done, size - done, offset % state.appender.file_size + done)
        if got <= 0:
            state.error = EIO
            return NULL
        done += got
    return state.scratch


cdef bint is_of_timers(const RecordView *record) noexcept nogil:
    return record.topic_size == TIMER_TOPIC_SIZE and memcmp(record.topic, TIMER_TOPIC, TIMER_TOPIC_SIZE) == 0


cdef bint timer_record(TimerState *state, int64_t offset, int32_t size, RecordView *out) noexcept nogil:
    # The record that starts at *offset*; good until the next look. False: *error* says why, ENOENT: it is gone.
    cdef const uint8_t *at
    cdef int64_t available = size
    state.error = ENOENT
    if offset < observe(&state.shared.board.min_offset) or offset + size > observe(&state.shared.board.wrote_offset):
        return False
    if offset < hot_from(state):
        at = read_cold(state, offset, size)
    else:
        at = bytes_at(state.files, offset, &available)
        if at == NULL:
            state.error = ENOENT if state.files.error == 0 else state.files.error
    if at == NULL:
        return False
    state.error = ENOENT
    return available >= size and decode_record(at, size, False, out) == DECODE_OK and (
        out.physical_offset == offset and out.total_size == size and is_of_timers(out))


cdef void advise(TimerState *state, int64_t start, int64_t end) noexcept nogil:
    # Have the kernel read ahead; it may be asked for more than it takes, and then the reads wait.
    cdef int64_t stop
    cdef int fd
    while start < end:
        stop = min(end, start - start % state.appender.file_size + state.appender.file_size)
        fd = fd_of(state, start)
        if fd >= 0:
            posix_fadvise(fd, start % state.appender.file_size, stop - start, POSIX_FADV_WILLNEED)
        start = stop
