# cython: language_level=3
"""One thread, one epoll, no Python object per message: a window of requests in flight on each of many connections.

Frames are made once, in Python, and only copied and patched here (opaque, born timestamp, unique keys). Whatever one
read brought is answered with one write. Latency is counted per request from just before its write to just after the
read that brought the answer, into the buckets of histogram.py. Every answer is checked: its opaque must be outstanding
on that connection, a pull's records must be consecutive offsets of the right queue. What does not fit is counted or
ends the run.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove, memset
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec
from posix.unistd cimport close

from benchmarks.harness._answers cimport (
    ANSWER_BAD, ANSWER_OK, Answer, AnswerStatus, PulledRange, read_answer, walk_records,
)

from benchmarks.harness._tls cimport tls_connect, tls_free, tls_load, tls_receive, tls_send

cdef extern from "<sys/socket.h>" nogil:
    enum: MSG_NOSIGNAL
    ssize_t recv(int fd, void *buf, size_t size, int flags)
    ssize_t send(int fd, const void *buf, size_t size, int flags)

cdef extern from "<sys/epoll.h>" nogil:
    enum: EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CLOEXEC
    uint32_t EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP
    ctypedef union epoll_data_t:
        uint64_t u64
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epoll_fd, int operation, int fd, epoll_event *event)
    int epoll_wait(int epoll_fd, epoll_event *events, int count_max, int timeout_ms)

cdef extern from *:
    """
    static inline int highest_bit(unsigned long long value) { return 63 - __builtin_clzll(value); }
    """
    int highest_bit(unsigned long long value) nogil

cdef enum:
    SUB_BUCKET_BITS = 7                     # as in histogram.py; a test compares the two
    BUCKET_COUNT = 4480                     # below 2**41 ns; longer counts in the last bucket
    EVENTS_MAX = 256
    CODES_MAX = 32                          # distinct answer codes kept apart; any further ones count under OTHER_CODE
    OTHER_CODE = -1
    WINDOW_MAX = 65536
    INBOX_SIZE_FIRST = 65536
    OPAQUE_FIRST = 1000000000               # ten digits, so that a patched JSON header keeps its length
    OPAQUE_ROUND = 1000000000
    OPAQUE_DIGITS = 10
    HALF_OFFSET_DIGITS = 15                 # with zeros in front, so that a frame keeps its length
    TIMESTAMP_DIGITS = 13
    UNIQUE_DIGITS = 8
    POLL_MS = 100
    HANDSHAKE_MS_MAX = 10000
    STALL_NS_MAX = 10000000000              # no answer for so long while some are due: the run has failed

cdef enum RunStatus:
    RUN_DONE, RUN_CONNECTION_LOST, RUN_BAD_ANSWER, RUN_STALLED, RUN_SYSTEM_ERROR, RUN_NO_MEMORY

STATUS_TEXT = {
    RUN_CONNECTION_LOST: "the broker closed a connection",
    RUN_BAD_ANSWER: "the broker sent bytes that are not an answer to an outstanding request",
    RUN_STALLED: "no answer for 10 s",
    RUN_SYSTEM_ERROR: "a system call failed",
    RUN_NO_MEMORY: "out of memory",
}


cdef struct Template:
    const uint8_t *data                     # borrowed from the bytes objects in Engine.kept
    size_t size
    size_t opaque_at
    bint opaque_is_text
    Py_ssize_t timestamp_at                 # -1: none
    Py_ssize_t offset_at                    # a pull's queue offset, offset_digits wide; -1: none
    int offset_digits
    Py_ssize_t half_at[2]                   # the half's queue offset and its physical offset; -1: none
    size_t *unique_at
    Py_ssize_t unique_count

cdef struct Slot:                           # one request in flight
    int32_t opaque                          # 0: none
    int32_t turn                            # how often this slot was used; makes its opaques differ
    int32_t queue
    int64_t queue_offset                    # pull: where the outstanding or the next request reads; of a half
    int64_t physical_offset                 # of a half that has been answered
    bint is_ending                          # the request is, or will be, the end of a transaction
    int64_t sent_ns

cdef struct Connection:
    int fd
    void *tls                               # NULL: plain
    bint waits_to_write
    uint8_t *inbox
    size_t inbox_used
    size_t inbox_size
    uint8_t *outbox                         # bytes [outbox_first, outbox_end) wait to be written
    size_t outbox_first
    size_t outbox_end
    Slot *slots


cdef int64_t now_ns(int clock) noexcept nogil:
    cdef timespec at
    clock_gettime(clock, &at)
    return <int64_t> at.tv_sec * 1000000000 + at.tv_nsec


@cython.cdivision(True)     # a division by zero check would need the GIL; the values are never negative
cdef void write_decimal(uint8_t *at, int64_t value, int digits) noexcept nogil:
    cdef int i
    for i in range(digits - 1, -1, -1):
        at[i] = <uint8_t> (c'0' + value % 10)
        value //= 10


cdef void write_hex(uint8_t *at, uint32_t value) noexcept nogil:
    cdef int i
    cdef uint8_t nibble
    for i in range(UNIQUE_DIGITS - 1, -1, -1):
        nibble = value & 15
        at[i] = <uint8_t> (c'0' + nibble if nibble < 10 else c'A' + nibble - 10)
        value >>= 4


@cython.cdivision(True)     # as above
cdef int decimal_digits(int64_t value) noexcept nogil:
    cdef int digits = 1
    while value >= 10:
        value //= 10
        digits += 1
    return digits


cdef int bucket_index(int64_t value_ns) noexcept nogil:
    cdef int shift, index
    if value_ns < (1 << (SUB_BUCKET_BITS + 1)):
        return <int> value_ns if value_ns > 0 else 0
    shift = highest_bit(<uint64_t> value_ns) - SUB_BUCKET_BITS
    index = (shift << SUB_BUCKET_BITS) + <int> (value_ns >> shift)
    return index if index < BUCKET_COUNT else BUCKET_COUNT - 1


def bucket_of(int64_t value_ns):
    """Return the histogram bucket in which a latency of *value_ns* nanoseconds is counted."""
    return bucket_index(value_ns)


cdef class Engine:
    """A load on open, non-blocking sockets. `run` may be called many times; nothing is in flight when it returns.

    *templates* has, per queue, one send frame, or one pull frame for each number of digits that the queue offset may
    have, rising from one. With *ends_transactions* the sends are half messages, and the last template, beside those of
    the queues, ends each that was answered; half and end together are one message, whose latency is that of both.
    *end_offsets* is empty for sends; for pulls it has, per queue, where reading starts again at
    0. The sockets stay the caller's, who closes them after the engine is gone.
    """

    cdef Connection *connections
    cdef Template *templates
    cdef int64_t *end_offsets
    cdef int64_t *buckets
    cdef int64_t code_counts[CODES_MAX]
    cdef int32_t codes[CODES_MAX]
    cdef int code_count
    cdef int64_t other_code_count
    cdef Py_ssize_t connection_count, template_count, queue_count, templates_per_queue
    cdef size_t outbox_size
    cdef int epoll_fd
    cdef int32_t window
    cdef int32_t next_queue
    cdef uint32_t next_unique
    cdef bint is_pull, ends_transactions
    cdef int messages_per_send
    cdef int saved_errno
    cdef object kept
    # what a run counts
    cdef bint is_issuing
    cdef int64_t request_limit, requests, answers, in_flight, messages, bytes_in, bytes_out
    cdef int64_t unsound, slowest_ns, started_ns, stopped_ns, last_answer_ns, realtime_shift_ns
    cdef int64_t counted_messages, counted_answers

    def __cinit__(self):
        self.epoll_fd = -1

    def __init__(self, fds, int32_t window, templates, end_offsets, Py_ssize_t queue_count, int messages_per_send=1,
                 bint ends_transactions=False, tls_library=None):
        if self.connections != NULL:
            raise RuntimeError("an engine is set up once")
        if not 1 <= window <= WINDOW_MAX:
            raise ValueError(f"window: got {window}, wanted 1 to {WINDOW_MAX}")
        if queue_count < 1 or not templates or (len(templates) - ends_transactions) % queue_count:
            raise ValueError(f"templates: got {len(templates)} for {queue_count} queues")
        if not fds:
            raise ValueError("no connection given")
        if end_offsets and (len(end_offsets) != queue_count or min(end_offsets) < 1):
            raise ValueError("end_offsets: every queue that is pulled from needs messages")
        self.window = window
        self.is_pull = bool(end_offsets)
        self.queue_count = queue_count
        self.messages_per_send = messages_per_send
        self.template_count = len(templates)
        self.ends_transactions = ends_transactions
        self.templates_per_queue = self.template_count // queue_count
        self.kept = [template.data for template in templates]
        self._take_templates(templates)
        self._take_end_offsets(end_offsets)
        self._take_connections(fds)
        if tls_library is not None:
            self._shake_hands(tls_library)

    cdef _shake_hands(self, str library):
        cdef Py_ssize_t i
        tls_load(library.encode())
        for i in range(self.connection_count):
            self.connections[i].tls = tls_connect(self.connections[i].fd, HANDSHAKE_MS_MAX)
            if self.connections[i].tls == NULL:
                raise ConnectionError("the broker does not shake hands")

    cdef _take_templates(self, templates):
        cdef Py_ssize_t i, j
        cdef Template *template
        cdef size_t size_max = 0
        self.templates = <Template *> calloc(self.template_count, sizeof(Template))
        self.buckets = <int64_t *> calloc(BUCKET_COUNT, sizeof(int64_t))
        if self.templates == NULL or self.buckets == NULL:
            raise MemoryError
        for i in range(self.template_count):
            source = templates[i]
            template = &self.templates[i]
            template.data = <const uint8_t *> PyBytes_AS_STRING(self.kept[i])
            template.size = PyBytes_GET_SIZE(self.kept[i])
            template.opaque_is_text = source.opaque_is_text
            template.opaque_at = self._hole(
                source.opaque_at, OPAQUE_DIGITS if source.opaque_is_text else 4, template.size)
            template.timestamp_at = -1
            if source.born_timestamp_at is not None:
                template.timestamp_at = self._hole(source.born_timestamp_at, TIMESTAMP_DIGITS, template.size)
            template.offset_at = -1
            if self.is_pull:
                template.offset_digits = <int> (i % self.templates_per_queue) + 1
                template.offset_at = self._hole(source.queue_offset_at, template.offset_digits, template.size)
            template.half_at[0] = template.half_at[1] = -1
            if source.half_at is not None:
                for j in range(2):
                    template.half_at[j] = self._hole(source.half_at[j], HALF_OFFSET_DIGITS, template.size)
            template.unique_count = len(source.unique_keys_at)
            template.unique_at = <size_t *> calloc(template.unique_count + 1, sizeof(size_t))
            if template.unique_at == NULL:
                raise MemoryError
            for j in range(template.unique_count):
                template.unique_at[j] = self._hole(source.unique_keys_at[j], UNIQUE_DIGITS, template.size)
            size_max = max(size_max, template.size)
        self.outbox_size = size_max * <size_t> self.window

    cdef Py_ssize_t _hole(self, at, Py_ssize_t size, Py_ssize_t frame_size) except -1:
        """Return where a patched field starts, after a check that it lies in its frame."""
        if not 0 <= at <= frame_size - size:
            raise ValueError(f"patched field at {at}, size {size}, outside a frame of {frame_size} bytes")
        return at

    cdef _take_end_offsets(self, end_offsets):
        cdef Py_ssize_t i
        self.end_offsets = <int64_t *> calloc(self.queue_count, sizeof(int64_t))
        if self.end_offsets == NULL:
            raise MemoryError
        for i, end in enumerate(end_offsets):
            if decimal_digits(end) > self.templates_per_queue:
                raise ValueError(f"end_offsets: {end} has more digits than there are templates")
            self.end_offsets[i] = end

    cdef _take_connections(self, fds):
        cdef Py_ssize_t i, j
        cdef Connection *connection
        cdef epoll_event event
        self.connections = <Connection *> calloc(len(fds), sizeof(Connection))
        if self.connections == NULL:
            raise MemoryError
        self.connection_count = len(fds)
        self.epoll_fd = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll_fd < 0:
            raise OSError(errno, "epoll_create1 failed")
        for i in range(self.connection_count):
            connection = &self.connections[i]
            connection.fd = fds[i]
            connection.inbox_size = INBOX_SIZE_FIRST
            connection.inbox = <uint8_t *> malloc(connection.inbox_size)
            connection.outbox = <uint8_t *> malloc(self.outbox_size)
            connection.slots = <Slot *> calloc(self.window, sizeof(Slot))
            if connection.inbox == NULL or connection.outbox == NULL or connection.slots == NULL:
                raise MemoryError
            for j in range(self.window):        # a pull's slots are readers of their own, spread over the queues
                connection.slots[j].queue = <int32_t> ((i * self.window + j) % self.queue_count)
            event.events = EPOLLIN
            event.data.u64 = i
            if epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, connection.fd, &event) < 0:
                raise OSError(errno, "epoll_ctl failed")

    def __dealloc__(self):
        cdef Py_ssize_t i
        if self.connections != NULL:
            for i in range(self.connection_count):
                if self.connections[i].tls != NULL:
                    tls_free(self.connections[i].tls)
                free(self.connections[i].inbox)
                free(self.connections[i].outbox)
                free(self.connections[i].slots)
        if self.templates != NULL:
            for i in range(self.template_count):
                free(self.templates[i].unique_at)
        free(self.connections)
        free(self.templates)
        free(self.end_offsets)
        free(self.buckets)
        if self.epoll_fd >= 0:
            close(self.epoll_fd)

    def run(self, double seconds, int64_t request_limit=0):
        """Load until *seconds* have passed or *request_limit* requests (0: no limit) were made; await all answers.

        Blocks without the GIL. Returns a dict: `messages` and `answers` that came while requests were still being made,
        and `elapsed_ns` of that time; `all_messages` with those that came later, too; `codes`, the number of all
        answers by code; `unsound`, pull answers whose records were not the ones asked for; `bytes_in`, `bytes_out`,
        `slowest_ns`; `buckets`, a list of counts as histogram.py wants them. Messages count if their answer is SUCCESS.

        Raises ConnectionError if the broker closed a connection, sent something else than answers, or was silent for
        10 s. The engine is of no further use then.
        """
        cdef RunStatus status
        if not 0 < seconds <= 86400:
            raise ValueError(f"seconds: got {seconds}, wanted above 0, at most a day")
        self._reset(request_limit)
        with nogil:
            status = self._run(<int64_t> (seconds * 1e9))
        if status != RUN_DONE:
            detail = f": {self.saved_errno}" if status == RUN_SYSTEM_ERROR else ""
            raise ConnectionError(
                f"{STATUS_TEXT[status]}{detail} (answers={self.answers} in_flight={self.in_flight})")
        codes = {self.codes[i]: self.code_counts[i] for i in range(self.code_count)}
        if self.other_code_count:
            codes[OTHER_CODE] = self.other_code_count
        return {
            "messages": self.counted_messages,
            "answers": self.counted_answers,
            "elapsed_ns": self.stopped_ns - self.started_ns,
            "all_messages": self.messages,
            "codes": codes,
            "unsound": self.unsound,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "slowest_ns": self.slowest_ns,
            "buckets": [self.buckets[i] for i in range(BUCKET_COUNT)],
        }

    cdef void _reset(self, int64_t request_limit) noexcept:
        memset(self.buckets, 0, BUCKET_COUNT * sizeof(int64_t))
        self.request_limit = request_limit
        self.is_issuing = True
        self.requests = self.answers = self.in_flight = self.messages = self.bytes_in = self.bytes_out = 0
        self.unsound = self.slowest_ns = self.other_code_count = self.counted_messages = self.counted_answers = 0
        self.code_count = 0
        self.saved_errno = 0

    cdef RunStatus _run(self, int64_t duration_ns) noexcept nogil:
        cdef epoll_event events[EVENTS_MAX]
        cdef RunStatus status
        cdef int64_t now
        cdef int count, i
        self.started_ns = now_ns(CLOCK_MONOTONIC)
        self.last_answer_ns = self.started_ns
        self.realtime_shift_ns = now_ns(CLOCK_REALTIME) - self.started_ns
        status = self._open_windows()
        while status == RUN_DONE and (self.is_issuing or self.in_flight > 0):
            count = epoll_wait(self.epoll_fd, events, EVENTS_MAX, POLL_MS)
            now = now_ns(CLOCK_MONOTONIC)
            if count < 0 and errno != EINTR:
                self.saved_errno = errno
                return RUN_SYSTEM_ERROR
            if self.is_issuing and now - self.started_ns >= duration_ns:
                self._stop_issuing(now)
            if now - self.last_answer_ns > STALL_NS_MAX:
                return RUN_STALLED
            for i in range(count):
                status = self._serve(&self.connections[events[i].data.u64], events[i].events)
                if status != RUN_DONE:
                    break
            if self.request_limit and self.is_issuing and self.requests >= self.request_limit and self.in_flight == 0:
                self._stop_issuing(self.last_answer_ns)
        return status

    cdef void _stop_issuing(self, int64_t now) noexcept nogil:
        self.is_issuing = False
        self.stopped_ns = now
        self.counted_messages = self.messages
        self.counted_answers = self.answers

    cdef RunStatus _open_windows(self) noexcept nogil:
        cdef RunStatus status = RUN_DONE
        cdef Py_ssize_t i
        cdef int32_t j
        for i in range(self.connection_count):
            for j in range(self.window):
                self._issue(&self.connections[i], j, now_ns(CLOCK_MONOTONIC))
            status = self._flush(&self.connections[i])
            if status != RUN_DONE:
                break
        return status

    @cython.cdivision(True)     # the window is never 0, and times are positive
    cdef void _issue(self, Connection *connection, int32_t slot_index, int64_t now) noexcept nogil:
        """Append the slot's next request to the outbox, unless the run is over. There is room for a whole window."""
        cdef Slot *slot = &connection.slots[slot_index]
        cdef Template *template
        cdef uint8_t *frame
        cdef Py_ssize_t i
        if not slot.is_ending and (
                not self.is_issuing or (self.request_limit and self.requests >= self.request_limit)):
            return
        if slot.is_ending:
            template = &self.templates[self.template_count - 1]
        elif self.is_pull:
            template = &self.templates[slot.queue * self.templates_per_queue + decimal_digits(slot.queue_offset) - 1]
        else:
            template = &self.templates[self.next_queue]
            self.next_queue = self.next_queue + 1 if self.next_queue + 1 < self.queue_count else 0
        if template.size > self.outbox_size - connection.outbox_end:
            memmove(connection.outbox, connection.outbox + connection.outbox_first,
                    connection.outbox_end - connection.outbox_first)
            connection.outbox_end -= connection.outbox_first
            connection.outbox_first = 0
        frame = connection.outbox + connection.outbox_end
        memcpy(frame, template.data, template.size)
        connection.outbox_end += template.size
        slot.turn = slot.turn + 1 if slot.turn < OPAQUE_ROUND // self.window - 1 else 0
        slot.opaque = OPAQUE_FIRST + slot.turn * self.window + slot_index
        if not slot.is_ending:
            slot.sent_ns = now
        if template.opaque_is_text:
            write_decimal(frame + template.opaque_at, slot.opaque, OPAQUE_DIGITS)
        else:
            for i in range(4):
                frame[template.opaque_at + i] = <uint8_t> (slot.opaque >> (24 - 8 * i))
        if template.timestamp_at >= 0:
            write_decimal(frame + template.timestamp_at, (now + self.realtime_shift_ns) // 1000000, TIMESTAMP_DIGITS)
        for i in range(template.unique_count):
            write_hex(frame + template.unique_at[i], self.next_unique)
            self.next_unique += 1
        if template.offset_at >= 0:
            write_decimal(frame + template.offset_at, slot.queue_offset, template.offset_digits)
        if template.half_at[0] >= 0:
            write_decimal(frame + template.half_at[0], slot.queue_offset, HALF_OFFSET_DIGITS)
            write_decimal(frame + template.half_at[1], slot.physical_offset, HALF_OFFSET_DIGITS)
        self.requests += not slot.is_ending
        self.in_flight += 1

    cdef RunStatus _flush(self, Connection *connection) noexcept nogil:
        """Write what waits, once; ask for EPOLLOUT only while something is left."""
        cdef size_t waiting = connection.outbox_end - connection.outbox_first
        cdef ssize_t written
        if waiting > 0:
            if connection.tls != NULL:
                written = tls_send(connection.tls, connection.outbox + connection.outbox_first, waiting)
            else:
                written = send(connection.fd, connection.outbox + connection.outbox_first, waiting, MSG_NOSIGNAL)
            if written < 0:
                if errno != EAGAIN and errno != EINTR:
                    self.saved_errno = errno
                    return RUN_CONNECTION_LOST
                written = 0
            connection.outbox_first += <size_t> written
            self.bytes_out += written
            waiting -= <size_t> written
        if waiting == 0:
            connection.outbox_first = connection.outbox_end = 0
        if (waiting > 0) != connection.waits_to_write:
            return self._watch(connection, waiting > 0)
        return RUN_DONE

    cdef RunStatus _watch(self, Connection *connection, bint waits_to_write) noexcept nogil:
        cdef epoll_event event
        connection.waits_to_write = waits_to_write
        event.events = EPOLLIN | EPOLLOUT if waits_to_write else EPOLLIN
        event.data.u64 = <uint64_t> (connection - self.connections)
        if epoll_ctl(self.epoll_fd, EPOLL_CTL_MOD, connection.fd, &event) < 0:
            self.saved_errno = errno
            return RUN_SYSTEM_ERROR
        return RUN_DONE

    cdef RunStatus _serve(self, Connection *connection, uint32_t events) noexcept nogil:
        cdef ssize_t received
        cdef size_t room
        cdef RunStatus status
        while events & (EPOLLIN | EPOLLERR | EPOLLHUP):
            room = connection.inbox_size - connection.inbox_used
            if connection.tls != NULL:
                received = tls_receive(connection.tls, connection.inbox + connection.inbox_used, room)
            else:
                received = recv(connection.fd, connection.inbox + connection.inbox_used, room, 0)
            if received == 0 or (received < 0 and errno != EAGAIN and errno != EINTR):
                return RUN_CONNECTION_LOST
            if received > 0:
                connection.inbox_used += <size_t> received
                self.bytes_in += received
                status = self._take_answers(connection, now_ns(CLOCK_MONOTONIC))
                if status != RUN_DONE:
                    return status
            # What TLS has read ahead, epoll does not tell of.
            if connection.tls == NULL or received < 0 or <size_t> received < room:
                break
        return self._flush(connection)

    @cython.cdivision(True)     # the window is never 0, and the opaque is not negative where it is divided
    cdef RunStatus _take_answers(self, Connection *connection, int64_t now) noexcept nogil:
        """Take every whole answer from the inbox and put the next request of its slot into the outbox."""
        cdef size_t at = 0, frame_size = 0
        cdef Answer answer
        cdef AnswerStatus status
        cdef int32_t slot_index
        while True:
            status = read_answer(connection.inbox + at, connection.inbox_used - at, &frame_size, &answer)
            if status != ANSWER_OK:
                break
            if answer.opaque < OPAQUE_FIRST:
                return RUN_BAD_ANSWER
            slot_index = (answer.opaque - OPAQUE_FIRST) % self.window
            if connection.slots[slot_index].opaque != answer.opaque:
                return RUN_BAD_ANSWER
            self._count(&connection.slots[slot_index], &answer, now)
            self._issue(connection, slot_index, now)
            at += frame_size
        if status == ANSWER_BAD:
            return RUN_BAD_ANSWER
        if at > 0:
            memmove(connection.inbox, connection.inbox + at, connection.inbox_used - at)
            connection.inbox_used -= at
        return self._grow_inbox(connection, frame_size)

    cdef RunStatus _grow_inbox(self, Connection *connection, size_t wanted) noexcept nogil:
        cdef uint8_t *grown
        if wanted > connection.inbox_size:      # at most the largest frame, which read_answer limits
            grown = <uint8_t *> realloc(connection.inbox, wanted)
            if grown == NULL:
                return RUN_NO_MEMORY
            connection.inbox = grown
            connection.inbox_size = wanted
        return RUN_DONE

    cdef void _count(self, Slot *slot, Answer *answer, int64_t now) noexcept nogil:
        cdef int64_t latency_ns = now - slot.sent_ns
        cdef PulledRange pulled
        slot.opaque = 0
        self.in_flight -= 1
        self.last_answer_ns = now
        if self.ends_transactions and not slot.is_ending and answer.code == 0:
            slot.is_ending = True
            slot.queue_offset = answer.queue_offset
            slot.physical_offset = answer.physical_offset
            if answer.physical_offset < 0:
                self.unsound += 1
            return
        slot.is_ending = False
        self.answers += 1
        self.buckets[bucket_index(latency_ns)] += 1
        if latency_ns > self.slowest_ns:
            self.slowest_ns = latency_ns
        self._count_code(answer.code)
        if not self.is_pull:
            if answer.code == 0:
                self.messages += self.messages_per_send
            return
        if answer.code == 0:
            pulled = walk_records(answer.body, answer.body_size, slot.queue, slot.queue_offset)
            self.messages += pulled.message_count
            if (not pulled.is_sound or pulled.message_count == 0
                    or answer.next_begin_offset != slot.queue_offset + pulled.message_count):
                self.unsound += 1
        slot.queue_offset = answer.next_begin_offset
        if slot.queue_offset < 0 or slot.queue_offset >= self.end_offsets[slot.queue]:
            slot.queue_offset = 0

    cdef void _count_code(self, int32_t code) noexcept nogil:
        cdef int i
        for i in range(self.code_count):
            if self.codes[i] == code:
                self.code_counts[i] += 1
                return
        if self.code_count == CODES_MAX:
            self.other_code_count += 1
            return
        self.codes[self.code_count] = code
        self.code_counts[self.code_count] = 1
        self.code_count += 1
