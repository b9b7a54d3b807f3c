"""A slave's copy of its master's log.

What comes is received into the mapped file behind the published end, where it belongs, and becomes part of the log
when it is whole records; so the log never holds half a record, and a slave that dies goes on at a whole one.
*received_offset* on the board says how far bytes may lie behind the end: who begins anew wipes them first, or they
could be taken for records if another master sent other ones up to their start. Source: RocketMQ store/ha/HAClient.java.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memmove, memset

from mqcore._fast.base.atomics cimport now_ms, observe, peek, publish, put_relaxed
from mqcore._fast.base.big_endian cimport load_i32, load_i64, store_i32, store_i64
from mqcore._fast.base.layout cimport (HA_FRAME_HEAD_PHYSICAL_OFFSET_AT, HA_FRAME_HEAD_SIZE, HA_FRAME_HEAD_SIZE_AT,
                                       HA_GROUP_FRAME_HEAD_CONFIRMED_AT, HA_GROUP_FRAME_HEAD_SIZE,
                                       HA_GROUP_FRAME_HEAD_TERM_AT, HA_HELLO_END_AT, HA_HELLO_MAGIC, HA_HELLO_MAGIC_AT,
                                       HA_HELLO_MEMBER_AT, HA_HELLO_NONCE_AT, HA_HELLO_SIZE, HA_HELLO_TERM_AT,
                                       HA_REPORT_END_AT, HA_REPORT_SIZE, MASTER_STATE_COPYING, MASTER_STATE_UNKNOWN,
                                       PUT_STATUS_MESSAGE_ILLEGAL, PUT_STATUS_PUT_OK)
from mqcore._fast.ha.state cimport STAGED_SIZE, HaState, Replica, beat_ms, confirm_to, own_end
from mqcore._fast.log.append cimport Appended, begin_log, publish_raw, wipe_behind
from mqcore._fast.log.mapped_file cimport MappedFile, file_made_at

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void *out, size_t size, int flags)
    ssize_t send(int fd, const void *data, size_t size, int flags)
    int MSG_NOSIGNAL, MSG_DONTWAIT

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len
    ssize_t readv(int fd, const iovec *parts, int count)

cdef extern from "<unistd.h>" nogil:
    int close(int fd)

cdef enum:
    READS_PER_TURN = 64             # then what has come is published and reported
    FRAME_SIZE_MAX = 1 << 26        # RocketMQ's slaves take 4 MiB at most; more than this is no frame


cdef void fail(Replica *replica, const char *why, int64_t offset, int error) noexcept nogil:
    if replica.why == NULL:
        replica.why = why
        replica.why_offset = offset
        replica.why_error = error


cdef void say_hello(HaState *state, int64_t end) noexcept nogil:
    cdef Replica *replica = &state.replica
    cdef uint8_t data[HA_HELLO_SIZE]
    memset(data, 0, HA_HELLO_SIZE)
    store_i64(data + HA_HELLO_MAGIC_AT, HA_HELLO_MAGIC)
    store_i64(data + HA_HELLO_TERM_AT, replica.term)
    store_i64(data + HA_HELLO_NONCE_AT, observe(&state.shared.board.ha_nonce))
    store_i64(data + HA_HELLO_END_AT, end)
    store_i32(data + HA_HELLO_MEMBER_AT, <int32_t>observe(&state.shared.board.ha_member))
    if send(replica.fd, data, HA_HELLO_SIZE, MSG_NOSIGNAL | MSG_DONTWAIT) != HA_HELLO_SIZE:
        fail(replica, "a hello could not be written whole", end, errno)


cdef void report(HaState *state) noexcept nogil:
    cdef Replica *replica = &state.replica
    cdef uint8_t data[HA_REPORT_SIZE]
    cdef int64_t end = own_end(state)
    cdef ssize_t sent
    if end == 0 and replica.begins_inside:
        end = 1
    store_i64(data + HA_REPORT_END_AT, end)
    sent = send(replica.fd, data, HA_REPORT_SIZE, MSG_NOSIGNAL | MSG_DONTWAIT)
    replica.wrote_ms = state.turn_ms
    if sent == HA_REPORT_SIZE:
        replica.reported = end
    elif sent >= 0:
        fail(replica, "a report could not be written whole", end, 0)
    elif errno != EAGAIN and errno != EINTR:
        fail(replica, "writing failed", end, errno)
    # A master that does not read its reports gets the next one.


cdef bint begin_replica(HaState *state, int fd, int64_t start, int64_t term) noexcept nogil:
    cdef Replica *replica = &state.replica
    cdef int64_t end
    memset(replica, 0, sizeof(Replica))
    replica.fd = fd
    replica.term = term
    replica.head_size = HA_FRAME_HEAD_SIZE if term == 0 else HA_GROUP_FRAME_HEAD_SIZE
    if not wipe_behind(&state.appender, observe(&state.shared.board.received_offset)):
        fail(replica, "what a connection before left behind cannot be wiped", 0, state.files.error)
        return False
    end = peek(&state.shared.board.wrote_offset)
    if end == 0 and start > 0:
        if not begin_log(&state.appender, start):
            fail(replica, "the log cannot begin there; are the commit log files of the same size?", start,
                 state.files.error)
            return False
        end = start
    if end == 0 and start == 0 and term == 0:
        # Who asks RocketMQ's master from byte 0 on gets the last file only; who asks from byte 1 on gets all. The first
        # byte is that of a record's size, which is 0 in any: one below 16 MiB, and that is what a new file holds.
        if file_made_at(state.files, 0) == NULL:
            fail(replica, "the first file cannot be made", 0, state.files.error)
            return False
        replica.begins_inside = True
        end = 1
    replica.received = end
    replica.read_ms = state.turn_ms
    publish(&state.shared.board.master_end, 0)
    publish(&state.shared.board.master_seen, now_ms())
    publish(&state.shared.board.master_state, MASTER_STATE_COPYING)
    if term > 0:
        say_hello(state, end)
    report(state)
    return replica.why == NULL


cdef void close_replica(HaState *state) noexcept nogil:
    if state.replica.fd >= 0:
        close(state.replica.fd)
    state.replica.fd = -1
    publish(&state.shared.board.master_seen, 0)
    publish(&state.shared.board.master_heard, 0)
    publish(&state.shared.board.master_state, MASTER_STATE_UNKNOWN)


cdef uint8_t *place(HaState *state, int64_t *room) noexcept nogil:
    # Where the next bytes of the frame go, and how many of them fit into their file.
    cdef Replica *replica = &state.replica
    cdef MappedFile *file = file_made_at(state.files, replica.received)
    if file == NULL:
        fail(replica, "no file for what comes", replica.received, state.files.error)
        return NULL
    room[0] = min(<int64_t>replica.frame_left, file.start + state.file_size - replica.received)
    # Before the bytes: who begins anew must know of them.
    publish(&state.shared.board.received_offset, replica.received + room[0])
    return file.base + (replica.received - file.start)


cdef void take_body(HaState *state) noexcept nogil:
    cdef Replica *replica = &state.replica
    cdef int64_t room
    cdef uint8_t *at = place(state, &room)
    if at == NULL:
        return
    room = min(room, <int64_t>(replica.staged_end - replica.staged_start))
    memcpy(at, replica.staged + replica.staged_start, room)
    replica.staged_start += <int32_t>room
    replica.frame_left -= <int32_t>room
    replica.received += room


cdef void take_head(HaState *state) noexcept nogil:
    cdef Replica *replica = &state.replica
    cdef const uint8_t *head = replica.staged + replica.staged_start
    cdef int64_t offset = load_i64(head + HA_FRAME_HEAD_PHYSICAL_OFFSET_AT)
    cdef int32_t size = load_i32(head + HA_FRAME_HEAD_SIZE_AT)
    replica.staged_start += replica.head_size
    if replica.term > 0 and load_i64(head + HA_GROUP_FRAME_HEAD_TERM_AT) != replica.term:
        fail(replica, "the master leads another epoch than the one that is followed", offset, 0)
    elif size < 0 or size > FRAME_SIZE_MAX:
        fail(replica, "a frame without sense", offset, 0)
    elif offset != replica.received and (size > 0 or replica.received > 1):
        fail(replica, "the master sends what does not follow: another history, or another size of files", offset, 0)
    else:
        replica.frame_left = size
        put_relaxed(&state.row.units, state.row.units + 1)
        if offset + size > peek(&state.shared.board.master_end):
            publish(&state.shared.board.master_end, offset + size)
        if replica.term > 0:
            replica.confirmed = max(replica.confirmed, load_i64(head + HA_GROUP_FRAME_HEAD_CONFIRMED_AT))


cdef void take_staged(HaState *state) noexcept nogil:
    cdef Replica *replica = &state.replica
    while replica.why == NULL and replica.staged_start < replica.staged_end:
        if replica.frame_left > 0:
            take_body(state)
        elif replica.staged_end - replica.staged_start >= replica.head_size:
            take_head(state)
        else:
            break
    memmove(replica.staged, replica.staged + replica.staged_start, replica.staged_end - replica.staged_start)
    replica.staged_end -= replica.staged_start
    replica.staged_start = 0


cdef ssize_t receive(HaState *state, bint *is_drained) noexcept nogil:
    # One read: the rest of a frame into its place, and the next one's head; else some small frames at once. Who gets
    # less than there was room for has all that was there.
    cdef Replica *replica = &state.replica
    cdef iovec parts[2]
    cdef int64_t room
    cdef ssize_t got
    cdef int count
    if replica.frame_left == 0 or replica.staged_end > 0:
        got = recv(replica.fd, replica.staged + replica.staged_end, STAGED_SIZE - replica.staged_end, 0)
        is_drained[0] = got < STAGED_SIZE - replica.staged_end
        if got > 0:
            replica.staged_end += <int32_t>got
        return got
    parts[0].iov_base = place(state, &room)
    if parts[0].iov_base == NULL:
        return 0
    parts[0].iov_len = room
    parts[1].iov_base = replica.staged
    parts[1].iov_len = replica.head_size
    count = 2 if room == replica.frame_left else 1
    got = readv(replica.fd, parts, count)
    is_drained[0] = got < room + (replica.head_size if count == 2 else 0)
    if got > 0:
        room = min(room, <int64_t>got)
        replica.frame_left -= <int32_t>room
        replica.received += room
        replica.staged_end = <int32_t>(got - room)
    return got


cdef void publish_received(HaState *state) noexcept nogil:
    cdef Replica *replica = &state.replica
    cdef int64_t end = peek(&state.shared.board.wrote_offset)
    cdef Appended done
    cdef int status
    if replica.received <= end or (end == 0 and replica.received == 1):
        return
    memset(&done, 0, sizeof(done))
    status = publish_raw(&state.appender, end, replica.received - end, &done)
    put_relaxed(&state.row.bytes, state.row.bytes + done.end_offset - end)
    if done.end_offset > end:
        state.has_received = True
    if status == PUT_STATUS_MESSAGE_ILLEGAL:
        fail(replica, "the master sends what is no record of that place", done.end_offset, 0)
    elif status != PUT_STATUS_PUT_OK:
        fail(replica, "the store refuses what comes", done.end_offset, 0)


cdef void note_heard(HaState *state) noexcept nogil:
    state.replica.read_ms = state.turn_ms
    publish(&state.shared.board.master_seen, now_ms())
    publish(&state.shared.board.master_heard, state.turn_ms)


cdef void read_master(HaState *state) noexcept nogil:
    cdef Replica *replica = &state.replica
    cdef ssize_t got = 1
    cdef bint is_drained = False
    cdef int _read
    for _read in range(READS_PER_TURN):
        got = receive(state, &is_drained)
        if got <= 0:
            break
        take_staged(state)
        if replica.why != NULL or is_drained:
            break
    if got > 0:
        note_heard(state)
    elif got == 0:
        fail(replica, "the master has closed the connection", replica.received, 0)
    elif errno != EAGAIN and errno != EINTR:
        fail(replica, "reading failed", replica.received, errno)
    elif _read > 0:
        note_heard(state)
    publish_received(state)
    confirm_to(state, min(replica.confirmed, peek(&state.shared.board.wrote_offset)))
    if replica.fd >= 0 and own_end(state) > replica.reported:
        report(state)


cdef bint has_more_to_report(const HaState *state) noexcept nogil:
    # What was received is reported as it comes; it may be on disk only later.
    return state.settings.acks_flushed and state.replica.fd >= 0 and own_end(state) > state.replica.reported


cdef void tend_replica(HaState *state) noexcept nogil:
    cdef Replica *replica = &state.replica
    if state.turn_ms - replica.read_ms > state.settings.silence_ms:
        fail(replica, "nothing was heard of the master for too long", replica.received, 0)
    elif state.turn_ms - replica.wrote_ms >= beat_ms(state) or has_more_to_report(state):
        report(state)


cdef int64_t replica_deadline(const HaState *state) noexcept nogil:
    return min(state.replica.read_ms + state.settings.silence_ms, state.replica.wrote_ms + beat_ms(state))
