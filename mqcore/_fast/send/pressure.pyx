"""Fast failure: who has waited for too long, or would, is told so at once, with RocketMQ's code and words, and why.

RocketMQ has queues in front of its threads, whose heads a timer looks at. Here a request waits in its socket while the
worker is busy with a turn of its loop. How long it has been there is asked of the kernel, and only after a turn that
took longer than the limit. It says when the newest bytes came, so that nobody is thought to have waited longer than he
has. Source: RocketMQ broker/latency/BrokerFastFailure.java.
"""

from libc.stdint cimport int32_t, int64_t
from libc.stdio cimport snprintf

from mqcore._fast.base.atomics cimport coarse_ms, now_ms, observe, put_relaxed
from mqcore._fast.base.sockets cimport IPPROTO_TCP
from mqcore._fast.send.request cimport answer_plain
from mqcore._fast.send.state cimport LOOK_MS, Connection, SendState
from mqcore._fast.wire.header cimport CommandView

from mqcore.codes import ResponseCode

cdef extern from "<netinet/tcp.h>" nogil:
    struct tcp_info:
        unsigned int tcpi_last_data_recv
    int TCP_INFO

cdef extern from "<sys/socket.h>" nogil:
    int getsockopt(int fd, int level, int name, void *value, unsigned int *size)

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec *out)
    int CLOCK_THREAD_CPUTIME_ID

cdef extern from "<fcntl.h>" nogil:
    int open(const char *path, int flags)
    int O_RDONLY, O_CLOEXEC

cdef extern from "<unistd.h>" nogil:
    ssize_t read(int fd, void *out, size_t size)
    int close(int fd)

cdef extern from "<stdlib.h>" nogil:
    long long strtoll(const char *text, char **end, int base)

cdef int32_t SYSTEM_BUSY = ResponseCode.SYSTEM_BUSY

cdef enum:
    FLAG_ONEWAY = 2
    REMARK_MAX = 320
    BUSY_MS_MAX = 10_000_000        # RocketMQ's: who has had the lock for longer has not said when he took it
    NS_PER_MS = 1_000_000

cdef const char *CAUSE_WORDS[CAUSES]
CAUSE_WORDS[:] = [
    b"", b"disk, the commit log is written to slowly", b"CPU, this broker has more to do than one processor can",
    b"CPU, others have this broker's processor", b"replica, too many sends wait for a slave",
    b"queue, too many pulls of this connection are under way",
    b"queue, too many requests wait for the broker process", b"queue, too many sends wait for their quota",
]

cdef const char *NO_WORDS = ""


cdef int64_t thread_cpu_ms() noexcept nogil:
    cdef timespec now
    if clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0:
        return 0
    return now.tv_sec * 1000 + now.tv_nsec // NS_PER_MS


cdef int64_t thread_delayed_ms() noexcept nogil:
    # How long this thread has waited for a processor; 0 where the kernel does not count it.
    cdef char text[128]
    cdef char *end
    cdef int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)
    cdef ssize_t size
    if fd < 0:
        return 0
    size = read(fd, text, sizeof(text) - 1)
    close(fd)
    if size <= 0:
        return 0
    text[size] = 0
    strtoll(text, &end, 10)
    return strtoll(end, NULL, 10) // NS_PER_MS


cdef Cause cause_of_delay(SendState *state) noexcept nogil:
    # What the worker has done since the housekeeping before last: run, waited for a processor, or for the disk.
    cdef int64_t running = thread_cpu_ms() - state.pressure.cpu_ms
    cdef int64_t delayed = thread_delayed_ms() - state.pressure.delayed_ms
    cdef int64_t passed = coarse_ms() - state.pressure.since_ms - state.pressure.idle_ms
    if delayed > running and delayed > passed - running - delayed:
        return CAUSE_SHARED_CPU
    return CAUSE_CPU if running >= passed - running - delayed else CAUSE_DISK


cdef void begin_looking(SendState *state) noexcept nogil:
    state.pressure.since_ms = state.turn_ms
    state.pressure.idle_ms = 0
    state.pressure.cpu_ms = thread_cpu_ms()
    state.pressure.delayed_ms = thread_delayed_ms()


cdef void note_turn_start(SendState *state) noexcept nogil:
    # turn_ms is this turn's already, ended_ms when the one before was over.
    state.pressure.was_long = state.settings.wait_limit_ms > 0 and (
        state.pressure.ended_ms - state.pressure.began_ms >= state.settings.wait_limit_ms)
    state.pressure.idle_ms += state.turn_ms - state.pressure.ended_ms
    state.pressure.began_ms = state.turn_ms


cdef void note_turn_end(SendState *state) noexcept nogil:
    state.pressure.ended_ms = coarse_ms()
    if state.turn_ms - state.pressure.since_ms >= LOOK_MS:
        begin_looking(state)


cdef int64_t unread_for_ms(const Connection *connection) noexcept nogil:
    cdef tcp_info info
    cdef unsigned int size = sizeof(info)
    info.tcpi_last_data_recv = 0
    if getsockopt(connection.fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0:
        return 0
    return info.tcpi_last_data_recv


cdef void note_arrival(SendState *state, Connection *connection) noexcept nogil:
    state.arrived_ms = coarse_ms()
    if state.pressure.was_long or (state.settings.wait_limit_ms > 0
                                   and state.arrived_ms - state.turn_ms >= state.settings.wait_limit_ms):
        state.arrived_ms -= unread_for_ms(connection)


cdef void refuse(SendState *state, Connection *connection, int32_t serialize_type, int32_t opaque, const char *words,
                 Cause cause) noexcept nogil:
    cdef char remark[REMARK_MAX]
    snprintf(remark, REMARK_MAX, "%s, cause: %s", words, CAUSE_WORDS[<int>cause])
    answer_plain(state, connection, serialize_type, opaque, SYSTEM_BUSY, remark)


cdef void refuse_waited(SendState *state, Connection *connection, int32_t serialize_type, int32_t opaque,
                        const char *prefix, int64_t waited_ms, int64_t queue_size, Cause cause) noexcept nogil:
    cdef char words[REMARK_MAX]
    snprintf(words, REMARK_MAX,
             "[%s]broker busy, start flow control for a while, period in queue: %lldms, size of queue: %lld",
             prefix, <long long>waited_ms, <long long>queue_size)
    refuse(state, connection, serialize_type, opaque, words, cause)


cdef void refuse_late(SendState *state, Connection *connection, int32_t serialize_type, int32_t opaque,
                      int64_t waited_ms, int64_t queue_size, Cause cause) noexcept nogil:
    put_relaxed(&state.row.timed_out, state.row.timed_out + 1)
    refuse_waited(state, connection, serialize_type, opaque, "TIMEOUT_CLEAN_QUEUE", waited_ms, queue_size, cause)


cdef void refuse_overload(SendState *state, Connection *connection, const CommandView *command,
                          Cause cause) noexcept nogil:
    refuse(state, connection, command.serialize_type, command.opaque,
           "[OVERLOAD]system busy, start flow control for a while", cause)


cdef bint is_too_late(SendState *state, Connection *connection, const CommandView *command,
                      int64_t limit_ms) noexcept nogil:
    cdef int64_t waited
    if limit_ms == 0:
        return False
    waited = coarse_ms() - state.arrived_ms
    if waited < limit_ms:
        return False
    if command.flag & FLAG_ONEWAY:
        put_relaxed(&state.row.timed_out, state.row.timed_out + 1)
    else:
        refuse_late(state, connection, command.serialize_type, command.opaque, waited, state.events_left,
                    cause_of_delay(state))
    return True


cdef void refuse_page_cache_busy(SendState *state, Connection *connection, const CommandView *command) noexcept nogil:
    # Without a look at the oneway bit, as upstream.
    put_relaxed(&state.row.page_cache_busy, state.row.page_cache_busy + 1)
    refuse_waited(state, connection, command.serialize_type, command.opaque, "PCBUSY_CLEAN_QUEUE",
                  coarse_ms() - state.arrived_ms, state.events_left, CAUSE_DISK)


cdef void look_at_page_cache(SendState *state) noexcept nogil:
    cdef int64_t since = observe(&state.shared.board.locked_since)
    cdef int64_t held
    if since == 0 or state.is_put_busy:
        return
    held = now_ms() - since
    if state.settings.lock_timeout_ms < held < BUSY_MS_MAX:
        note_put_busy(state)


cdef void note_put_busy(SendState *state) noexcept nogil:
    # From now on nobody waits for the put lock. Each send looks, though: who had it may be dead, and has left it to us.
    state.is_put_busy = True
    state.appender.lock_timeout_ms = 0


cdef void note_put(SendState *state) noexcept nogil:
    state.is_put_busy = False
    state.appender.lock_timeout_ms = state.settings.lock_timeout_ms


cdef bint has_too_many_waiting(SendState *state, Connection *connection, const CommandView *command) noexcept nogil:
    cdef Cause cause = CAUSE_DISK
    if state.waiting.tail - state.waiting.head < state.settings.waiting_max:
        return False
    if state.waiting.answers[state.waiting.head & (state.waiting.capacity - 1)].needs_slave:
        cause = CAUSE_REPLICA
    if not command.flag & FLAG_ONEWAY:
        refuse_overload(state, connection, command, cause)
    return True
