"""The event loop of a send worker: epoll, frames in, answers out, and everybody else woken at the end of a turn.

One turn: wait, read every readable socket once, handle every whole frame of it, take what the pull workers and the
broker process have answered, release what was flushed, then write each connection once. Many requests of a read are so
answered by one write, which is worth more than anything else here.
"""

from libc.errno cimport EAGAIN, ECONNABORTED, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

import os

from mqcore._fast.base.atomics cimport (coarse_ms, drain_fd, exchange_full, full_fence, monotonic_ns, now_ms, observe,
                                        peek, publish, put_relaxed, wake_fd)
from mqcore._fast.base.big_endian cimport load_i32
from mqcore._fast.base.buffers cimport buffer_put, buffer_room, buffer_size
from mqcore._fast.base.layout cimport (CONNECTION_GENERATION_BITS, CONNECTION_LIFE_BITS, CONNECTION_SLOT_BITS,
                                       LINK_KIND_ACL_GRANT, LINK_KIND_ACL_TABLE, LINK_KIND_ASKER, LINK_KIND_CLOSE,
                                       LINK_KIND_FRAME, LINK_KIND_INJECT, PULL_STRINGS_MAX, PUSHES_MAX,
                                       PUSH_NUMBER_BIT, RECORD_OVERHEAD_MAX, TICKETS_MAX,
                                       WORKER_COMMAND_DRAIN, WORKER_COMMAND_STOP, WORKER_STATE_DRAINED,
                                       WORKER_STATE_RUNNING, WORKER_STATE_STOPPED, AclGrant,
                                       LinkHead)
from mqcore._fast.base.sockets cimport (EPOLLERR, EPOLLEXCLUSIVE, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP,
                                        EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, SOCK_CLOEXEC, SOCK_NONBLOCK,
                                        accept4, epoll_create1, epoll_ctl, epoll_event, epoll_wait)
from mqcore._fast.log.append cimport append_rest
from mqcore._fast.log.mapped_file cimport FileSet, files_close, files_open, files_release, files_rest, files_trim
from mqcore._fast.segment.boards cimport ROW_NONE, SharedSegment
from mqcore._fast.segment.latencies cimport latencies_of
from mqcore._fast.segment.link cimport link_free, link_next, link_read, link_take
from mqcore._fast.segment.quotas cimport QUOTA_CLIENT, QUOTA_PULL, QUOTA_SEND, quota_free, quota_take_rules
from mqcore._fast.segment.rings cimport open_pull_reply_ring, open_pull_request_ring, ring_is_empty
from mqcore._fast.send.askers cimport asker_set
from mqcore._fast.send.connections cimport (close_connection, doom, drop_partial, find_connection, link_request,
                                            make_room, mark_dirty, open_connection, unsent_size, write_dirty,
                                            write_link)
from mqcore._fast.send.admission cimport admits, forget_addresses
from mqcore._fast.send.guard cimport guard_free, guard_passes, guard_take
from mqcore._fast.send.latency cimport count_answered
from mqcore._fast.send.pressure cimport (CAUSE_LINK, has_too_many_waiting, is_too_late, look_at_page_cache,
                                         note_arrival, note_turn_end, note_turn_start, refuse_overload)
from mqcore._fast.send.pull_gate cimport PULL_UNUSUAL, check_pullers, handle_pull, take_pull_replies
from mqcore._fast.send.reply cimport (handle_push_answer, handle_reply, pushes_expire, pushes_free, pushes_lose)
from mqcore._fast.send.quota_gate cimport (QUOTA_PASSED, quota_ask, quota_close, quota_drop, quota_due,
                                           quota_timeout)
from mqcore._fast.send.request cimport SEND_UNUSUAL, answer_plain, can_answer, handle_send, release_waiting
from mqcore._fast.send.sent cimport take_answer_text
from mqcore._fast.send.state cimport (LISTENERS_MAX, MARK_LINK, MARK_LISTENER, MARK_WAKE, MEMBERS_MAX, READ_SIZE,
                                      SCRATCH_SIZE, TRANSPORT_OPEN, TRANSPORT_PLAIN, TRANSPORT_TLS, Connection, Push,
                                      SendState, Ticket, TlsMode)
from mqcore._fast.send.transaction cimport handle_end_transaction
from mqcore._fast.send.ticket cimport tickets_open, tickets_tell
from mqcore._fast.send.transport cimport (CHOICE_CLOSED, CHOICE_MADE, TransportChoice, transport_choose,
                                          transport_is_late, transport_read)
from mqcore._fast.tls.context cimport ServerContext
from mqcore._fast.tls.session cimport tls_link_free, tls_link_open
from mqcore._fast.wire.header cimport COMMAND_BAD, COMMAND_OK, CommandStatus, CommandView, scan_command

from mqcore.codes import RequestCode, ResponseCode

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len
    ssize_t readv(int fd, const iovec *parts, int count)

cdef extern from "<unistd.h>" nogil:
    ssize_t read(int fd, void *out, size_t size)
    int close(int fd)

cdef int32_t SEND_MESSAGE = RequestCode.SEND_MESSAGE
cdef int32_t SEND_MESSAGE_V2 = RequestCode.SEND_MESSAGE_V2
cdef int32_t SEND_BATCH_MESSAGE = RequestCode.SEND_BATCH_MESSAGE
cdef int32_t PULL_MESSAGE = RequestCode.PULL_MESSAGE
cdef int32_t LITE_PULL_MESSAGE = RequestCode.LITE_PULL_MESSAGE
cdef int32_t END_TRANSACTION = RequestCode.END_TRANSACTION
cdef int32_t SEND_REPLY_MESSAGE = RequestCode.SEND_REPLY_MESSAGE
cdef int32_t SEND_REPLY_MESSAGE_V2 = RequestCode.SEND_REPLY_MESSAGE_V2
cdef int32_t SYSTEM_ERROR = ResponseCode.SYSTEM_ERROR

cdef enum:
    EVENTS_MAX = 256
    ACCEPTS_PER_TURN = 64
    FLAG_RESPONSE = 1
    FLAG_ONEWAY = 2
    LINK_READ_SIZE = 262144
    PARTIAL_STEP_MIN = 65536
    HOUSEKEEPING_MS = 500
    WAITING_TIMEOUT_MS = 20
    DRAIN_MS_MAX = 3000
    LINGER_NS = 40_000
    LINGER_MISSES_MAX = 6           # then it lingers once in 64 turns

# A connection's id has a generation of 1 at least, and is none of the marks.
assert <int>MARK_LISTENER + <int>LISTENERS_MAX < 1 << <int>CONNECTION_SLOT_BITS

cdef const char *PULL_TOO_LONG = "the pull's topic, group and subscription are longer than 32768 bytes together"
assert f"than {<int>PULL_STRINGS_MAX} bytes" in PULL_TOO_LONG.decode()


cdef bint may_pass(SendState *state, const Connection *connection, const CommandView *command) noexcept nogil:
    # Whether it may be served here. The rules may have changed already, and their table be under way.
    return (state.guard.version == observe(&state.shared.board.acl_version)
            and guard_passes(&state.guard, &connection.grant, command, state.scratch, SCRATCH_SIZE))


cdef inline bint is_push_answer(const CommandView *command) noexcept nogil:
    return command.flag & FLAG_RESPONSE and command.opaque & PUSH_NUMBER_BIT and command.opaque > 0


cdef inline bint is_send(const CommandView *command) noexcept nogil:
    return (command.code == SEND_MESSAGE_V2 or command.code == SEND_BATCH_MESSAGE or command.code == SEND_MESSAGE)


cdef inline bint is_refused_early(SendState *state, Connection *connection, const CommandView *command) noexcept nogil:
    look_at_page_cache(state)
    return (is_too_late(state, connection, command, state.settings.send_wait_ms)
            or has_too_many_waiting(state, connection, command))


# Whether it is dealt with; else the broker process must.
cdef bint serve_here(SendState *state, Connection *connection, const CommandView *command) noexcept nogil:
    if is_send(command):
        return is_refused_early(state, connection, command) or handle_send(state, connection, command) != SEND_UNUSUAL
    if command.code == PULL_MESSAGE or command.code == LITE_PULL_MESSAGE:
        return handle_pull(state, connection, command) != PULL_UNUSUAL
    if command.code == END_TRANSACTION:
        return (is_too_late(state, connection, command, state.settings.transaction_wait_ms)
                or handle_end_transaction(state, connection, command) != SEND_UNUSUAL)
    if command.code == SEND_REPLY_MESSAGE_V2 or command.code == SEND_REPLY_MESSAGE:
        return handle_reply(state, connection, command) != SEND_UNUSUAL
    return False


cdef void leave(SendState *state, Connection *connection, const uint8_t *payload, int32_t size, bint is_charged,
                const CommandView *command) noexcept nogil:
    # To the broker process. *command* is NULL where it could not be read here, and so not be answered.
    if not link_request(state, connection, payload, size, is_charged) and command != NULL and not command.flag & 3:
        refuse_overload(state, connection, command, CAUSE_LINK)


cdef void handle_charged(SendState *state, Connection *connection, const uint8_t *payload, int32_t size) noexcept nogil:
    # A send that has waited for its quota. Who may send is asked anew, as it may have changed.
    cdef CommandView command
    cdef bint is_read = scan_command(payload, size, &command) == COMMAND_OK
    if is_read and (not state.settings.is_guarded or may_pass(state, connection, &command)) and (
            serve_here(state, connection, &command)):
        return
    leave(state, connection, payload, size, True, &command if is_read else NULL)


cdef void handle_frame(SendState *state, Connection *connection, const uint8_t *payload, int32_t size) noexcept nogil:
    cdef CommandView command
    cdef CommandStatus status = scan_command(payload, size, &command)
    cdef bint is_charged = False
    state.row.units += 1
    if status == COMMAND_BAD:
        put_relaxed(&state.row.protocol_errors, state.row.protocol_errors + 1)
        doom(state, connection)
        return
    if status == COMMAND_OK and not command.flag & FLAG_RESPONSE and (
            not state.settings.is_guarded or may_pass(state, connection, &command)):
        if state.quotas.has_any and is_send(&command):
            if quota_ask(state, connection, &command, payload, size) != QUOTA_PASSED:
                return
            is_charged = True
        if serve_here(state, connection, &command):
            return
    elif status == COMMAND_OK and is_push_answer(&command):
        handle_push_answer(state, connection, &command)
        return
    leave(state, connection, payload, size, is_charged, &command if status == COMMAND_OK else NULL)


cdef void serve_parked(SendState *state) noexcept nogil:
    cdef Connection *connection = NULL
    cdef int32_t size = 0
    cdef const uint8_t *payload
    if state.parked.count == 0:
        return
    state.arrived_ms = state.turn_ms
    while True:
        payload = quota_due(state, &connection, &size)
        if payload == NULL:
            break
        handle_charged(state, connection, payload, size)
        quota_drop(state)
    append_rest(&state.appender)


cdef int64_t handle_bytes(SendState *state, Connection *connection, const uint8_t *data, int64_t size) noexcept nogil:
    # Handle the whole frames at the start of *data*; how many bytes they have. A bad length dooms the connection.
    cdef int64_t at = 0
    cdef int32_t length
    while size - at >= 4 and not connection.is_closing:
        length = load_i32(data + at)
        if length < 4 or length > state.settings.frame_length_max:
            put_relaxed(&state.row.protocol_errors, state.row.protocol_errors + 1)
            doom(state, connection)
            break
        if size - at - 4 < length:
            break
        handle_frame(state, connection, data + at + 4, length)
        at += 4 + length
    return at


cdef bint keep_partial(SendState *state, Connection *connection, const uint8_t *data, int64_t size) noexcept nogil:
    cdef int64_t before = connection.partial.capacity
    cdef bint ok = buffer_put(&connection.partial, data, size)
    state.clients.partial_bytes += connection.partial.capacity - before
    return ok and make_room(state, connection)


cdef void handle_fresh(SendState *state, Connection *connection, const uint8_t *data, int64_t size) noexcept nogil:
    cdef int64_t handled = handle_bytes(state, connection, data, size)
    if not connection.is_closing and handled < size:
        if not keep_partial(state, connection, data + handled, size - handled):
            doom(state, connection)


cdef void read_rest(SendState *state, Connection *connection, ssize_t got) noexcept nogil:
    if got == 0 or (got < 0 and errno != EAGAIN and errno != EINTR):
        doom(state, connection)


cdef void handle_opened(SendState *state, Connection *connection, const uint8_t *data, int64_t size) noexcept nogil:
    # First what is missing of a frame under way, then the rest where it lies.
    cdef int64_t have = buffer_size(&connection.partial)
    cdef int64_t need, taken
    while have > 0 and size > 0:
        need = 4 - have if have < 4 else (
            4 + <int64_t>load_i32(connection.partial.data + connection.partial.start) - have)
        taken = min(need, size)
        if not keep_partial(state, connection, data, taken):
            doom(state, connection)
            return
        data += taken
        size -= taken
        have += taken
        # Its length, which is looked at here, or all of it.
        if taken == need and handle_bytes(
                state, connection, connection.partial.data + connection.partial.start, have) > 0:
            drop_partial(state, connection)
            have = 0
        if connection.is_closing:
            return
    if size > 0:
        handle_fresh(state, connection, data, size)


cdef void read_tls(SendState *state, Connection *connection) noexcept nogil:
    cdef ssize_t got = transport_read(state, connection)
    if connection.tls.unsent.end > connection.tls.unsent.start:
        mark_dirty(state, connection)
    if got <= 0:
        read_rest(state, connection, got)
        return
    connection.active_at = state.turn_ms
    handle_opened(state, connection, state.read_buffer, got)
    if connection.tls.is_ended:
        doom(state, connection)


cdef void read_special(SendState *state, Connection *connection) noexcept nogil:
    # One that has not said what it is, or is not plain.
    cdef TransportChoice choice
    if connection.transport == TRANSPORT_OPEN:
        choice = transport_choose(state, connection)
        if choice != CHOICE_MADE:
            if choice == CHOICE_CLOSED:
                doom(state, connection)
            return
        if connection.transport == TRANSPORT_PLAIN:
            read_connection(state, connection)
            return
    read_tls(state, connection)


cdef void read_connection(SendState *state, Connection *connection) noexcept nogil:
    # One read. What completes a frame under way goes behind its start, what follows into the common buffer; memory
    # grows with what has arrived, never with what a length promises.
    cdef int64_t have = buffer_size(&connection.partial)
    cdef int64_t need, room, before
    cdef ssize_t got
    cdef iovec parts[2]
    note_arrival(state, connection)
    if connection.transport != TRANSPORT_PLAIN:
        read_special(state, connection)
        return
    if have < 4:
        if have > 0:
            memcpy(state.read_buffer, connection.partial.data + connection.partial.start, have)
        got = read(connection.fd, state.read_buffer + have, READ_SIZE - have)
        if got <= 0:
            read_rest(state, connection, got)
            return
        connection.active_at = state.turn_ms
        drop_partial(state, connection)
        handle_fresh(state, connection, state.read_buffer, have + got)
        return
    need = 4 + <int64_t>load_i32(connection.partial.data + connection.partial.start) - have
    room = min(need, max(<int64_t>PARTIAL_STEP_MIN, have))
    before = connection.partial.capacity
    parts[0].iov_base = buffer_room(&connection.partial, room)
    state.clients.partial_bytes += connection.partial.capacity - before
    if parts[0].iov_base == NULL or not make_room(state, connection):
        doom(state, connection)
        return
    parts[0].iov_len = room
    parts[1].iov_base = state.read_buffer
    parts[1].iov_len = READ_SIZE
    got = readv(connection.fd, parts, 2 if room == need else 1)
    if got <= 0:
        read_rest(state, connection, got)
        return
    connection.active_at = state.turn_ms
    connection.partial.end += min(<int64_t>got, room)
    if got < need:
        return
    handle_bytes(state, connection, connection.partial.data + connection.partial.start, have + need)
    drop_partial(state, connection)
    if not connection.is_closing and got > need:
        handle_fresh(state, connection, state.read_buffer, got - need)


cdef void arm_listeners(SendState *state, bint wanted) noexcept nogil:
    cdef epoll_event event
    cdef int index
    if wanted == state.listeners.are_armed:
        return
    for index in range(state.listeners.count):
        event.events = EPOLLIN | EPOLLEXCLUSIVE
        event.data.u64 = MARK_LISTENER + index
        epoll_ctl(state.epoll, EPOLL_CTL_ADD if wanted else EPOLL_CTL_DEL, state.listeners.fds[index], &event)
    state.listeners.are_armed = wanted


cdef void accept_some(SendState *state, int index) noexcept nogil:
    cdef int _turn, fd
    cdef Connection *connection
    for _turn in range(ACCEPTS_PER_TURN):
        fd = accept4(state.listeners.fds[index], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)
        if fd >= 0:
            connection = open_connection(state, fd, state.listeners.is_vip[index])
            if connection == NULL:
                close(fd)
                continue
            put_relaxed(&state.row.accepted, state.row.accepted + 1)
            if not admits(state, connection):
                doom(state, connection)
        elif errno == EMFILE or errno == ENFILE or errno == ENOBUFS or errno == ENOMEM:
            # Out of descriptors: leave them in the backlog and look again at the next housekeeping.
            arm_listeners(state, False)
            return
        elif errno != EINTR and errno != ECONNABORTED:
            return


cdef void handle_injected(
    SendState *state, Connection *connection, const uint8_t *payload, int32_t size
) noexcept nogil:
    # A pull that the broker process has put into plain words: handle it as if the client had sent it so. What is not
    # plain even now must not go back, or the two would hand it to and fro for ever. Or an asker's word on a push.
    cdef CommandView command
    cdef bint is_plain = scan_command(payload, size, &command) == COMMAND_OK
    if is_plain and is_push_answer(&command):
        handle_push_answer(state, connection, &command)
        return
    if is_plain and handle_pull(state, connection, &command) != PULL_UNUSUAL:
        return
    answer_plain(state, connection, command.serialize_type, command.opaque, SYSTEM_ERROR, PULL_TOO_LONG)


cdef void handle_link_message(SendState *state, const LinkHead *head, const uint8_t *payload) noexcept nogil:
    cdef Connection *connection = find_connection(state, head.connection_id)
    if head.kind == LINK_KIND_ACL_TABLE:
        guard_take(&state.guard, payload, head.size)
        return
    if connection == NULL:
        return
    if head.kind == LINK_KIND_FRAME:
        if buffer_put(&connection.out, payload, head.size):
            mark_dirty(state, connection)
        else:
            doom(state, connection)
    elif head.kind == LINK_KIND_INJECT:
        handle_injected(state, connection, payload, head.size)
    elif head.kind == LINK_KIND_CLOSE:
        doom(state, connection)
    elif head.kind == LINK_KIND_ASKER:
        asker_set(state, connection, payload, head.size)
    elif head.kind == LINK_KIND_ACL_GRANT:
        memcpy(&connection.grant, payload, sizeof(AclGrant))


cdef void read_link(SendState *state) noexcept nogil:
    cdef LinkHead head
    cdef const uint8_t *payload
    link_read(&state.link, LINK_READ_SIZE)
    state.arrived_ms = state.turn_ms
    payload = link_next(&state.link, &head)
    while payload != NULL:
        handle_link_message(state, &head, payload)
        link_take(&state.link, &head)
        payload = link_next(&state.link, &head)


cdef void handle_event(SendState *state, const epoll_event *event) noexcept nogil:
    cdef Connection *connection
    if event.data.u64 == MARK_WAKE:
        drain_fd(state.wake)
    elif event.data.u64 == MARK_LINK:
        if event.events & (EPOLLIN | EPOLLHUP | EPOLLERR):
            read_link(state)
    elif event.data.u64 < MARK_LISTENER + <uint64_t>state.listeners.count:
        accept_some(state, <int>(event.data.u64 - MARK_LISTENER))
    else:
        connection = find_connection(state, <int64_t>event.data.u64)
        if connection == NULL:
            return
        if event.events & (EPOLLERR | EPOLLHUP):
            if connection.transport == TRANSPORT_TLS and not connection.tls.is_established:
                # It has said why, or been reset before it could: a handshake that failed either way, and is counted.
                read_connection(state, connection)
            doom(state, connection)
            return
        if event.events & EPOLLOUT:
            mark_dirty(state, connection)
        if event.events & (EPOLLIN | EPOLLRDHUP) and not state.is_draining:
            if (connection.is_paused or connection.is_held) and not event.events & EPOLLRDHUP:
                return
            read_connection(state, connection)
            append_rest(&state.appender)


cdef void close_idle(SendState *state) noexcept nogil:
    cdef int32_t slot
    cdef Connection *connection
    for slot in range(state.clients.capacity):
        connection = state.clients.slots[slot]
        if connection != NULL and (state.turn_ms - connection.active_at >= state.settings.idle_timeout_ms
                                   or transport_is_late(state, connection)):
            doom(state, connection)


cdef void housekeeping(SendState *state) noexcept nogil:
    cdef int64_t kept = observe(&state.shared.board.min_offset)
    state.housekeeping_at = state.turn_ms + HOUSEKEEPING_MS
    close_idle(state)
    pushes_expire(state)
    files_trim(state.appender.files, kept)
    files_trim(state.read_files, kept)
    files_rest(state.appender.files)
    files_rest(state.read_files)
    if not state.is_draining:
        arm_listeners(state, True)
    put_relaxed(&state.row.connections, state.clients.count)
    put_relaxed(&state.row.buffered, state.clients.partial_bytes + state.clients.unsent_bytes + state.link.out.capacity)
    put_relaxed(&state.row.heartbeat, now_ms())


cdef void release_cold(SendState *state) noexcept nogil:
    cdef int64_t cold = observe(&state.shared.board.cold_end)
    if cold > peek(&state.row.released):
        files_release(state.appender.files, cold)
        files_release(state.read_files, cold)
        publish(&state.row.released, cold)


cdef void wake_others(SendState *state) noexcept nogil:
    # Our news are published; whoever went to sleep before that says so in its row.
    cdef int puller
    full_fence()
    if state.has_appended:
        state.has_appended = False
        if peek(&state.reput.row.sleeping):
            wake_fd(state.reput.wake)
            state.row.wakes += 1
    for puller in range(state.settings.puller_count):
        if state.pullers[puller].has_news:
            state.pullers[puller].has_news = False
            if peek(&state.pullers[puller].row.sleeping):
                wake_fd(state.pullers[puller].wake)
                state.row.wakes += 1


cdef bint has_news(SendState *state) noexcept nogil:
    cdef int puller
    for puller in range(state.settings.puller_count):
        if not ring_is_empty(&state.pullers[puller].replies):
            return True
    return state.waiting.head < state.waiting.tail and can_answer(
        state, &state.waiting.answers[state.waiting.head & (state.waiting.capacity - 1)])


cdef int64_t unsent_connections(SendState *state) noexcept nogil:
    cdef int32_t slot
    cdef int64_t count = 0
    for slot in range(state.clients.capacity):
        if state.clients.slots[slot] != NULL and unsent_size(state.clients.slots[slot]) > 0:
            count += 1
    return count


cdef bint follow_command(SendState *state) noexcept nogil:
    # What the broker process wants; True when this loop is to end.
    cdef int64_t command = observe(&state.row.command)
    if command == WORKER_COMMAND_STOP or state.link.is_closed:
        return True
    if command == WORKER_COMMAND_DRAIN and not state.is_draining:
        state.is_draining = True
        state.drain_deadline = state.turn_ms + DRAIN_MS_MAX
        arm_listeners(state, False)
    if state.is_draining and peek(&state.row.state) != WORKER_STATE_DRAINED:
        if state.turn_ms >= state.drain_deadline or (
                state.waiting.head == state.waiting.tail and unsent_connections(state) == 0):
            publish(&state.row.state, WORKER_STATE_DRAINED)
    return False


cdef int linger(SendState *state, epoll_event *events) noexcept nogil:
    # Who waits for each answer sends its next request within microseconds of it. To be asleep by then costs more than
    # to look out for it: the client must wake us, which takes it longer than the sending itself. Where nothing
    # comes so soon we soon stop looking, and others who want this core go first.
    cdef int64_t until
    cdef int count
    if state.linger.pause > 0:
        state.linger.pause -= 1
        return 0
    # The turn before has looked at the clock if it has answered sends, as most do.
    until = (state.written_ns if state.written_ns > 0 else monotonic_ns()) + LINGER_NS
    while True:
        count = epoll_wait(state.epoll, events, EVENTS_MAX, 0)
        if count != 0 or has_news(state):
            state.linger.misses = 0
            return count
        if monotonic_ns() >= until:
            break
        sched_yield()
    state.linger.misses = min(state.linger.misses + 1, <int32_t>LINGER_MISSES_MAX)
    state.linger.pause = (1 << state.linger.misses) - 1
    return 0


cdef void wake_copiers(SendState *state) noexcept nogil:
    # Disk and slaves first: somebody may wait for them.
    full_fence()
    if state.settings.wakes_flush and peek(&state.flush.row.sleeping):
        wake_fd(state.flush.wake)
        state.row.wakes += 1
    if peek(&state.ha.row.sleeping):
        wake_fd(state.ha.wake)
        state.row.wakes += 1


cdef void turn(SendState *state) noexcept nogil:
    cdef epoll_event events[EVENTS_MAX]
    cdef int count = 0
    cdef int index
    cdef int timeout = HOUSEKEEPING_MS
    if state.waiting.head < state.waiting.tail or state.is_draining:
        timeout = WAITING_TIMEOUT_MS
    if state.linger.was_busy:
        count = linger(state, events)
    if count <= 0:
        exchange_full(&state.row.sleeping, 1)
        count = epoll_wait(state.epoll, events, EVENTS_MAX, 0 if has_news(state) else quota_timeout(state, timeout))
        put_relaxed(&state.row.sleeping, 0)
    state.linger.was_busy = count > 0
    state.turn_ms = coarse_ms()
    state.turn_ns = monotonic_ns()
    state.row.turns += 1
    note_turn_start(state)
    serve_parked(state)
    for index in range(count):
        state.events_left = count - index - 1
        handle_event(state, &events[index])
    if state.has_appended:
        wake_copiers(state)
    check_pullers(state)
    take_pull_replies(state)
    release_waiting(state)
    release_cold(state)
    if state.turn_ms >= state.housekeeping_at:
        housekeeping(state)
    write_dirty(state)
    count_answered(state)
    if state.pushes.has_lost_asker:
        pushes_lose(state)
        write_dirty(state)
    if state.tickets.has_ended:
        tickets_tell(state)
    write_link(state)
    wake_others(state)
    note_turn_end(state)


cdef class SendLoop:
    """A send worker's loop. *options* names every setting of SendSettings and every descriptor; see workers/send.py.

    Some of the settings may change while it serves: ``run`` comes back when the board has another version of them.
    """

    cdef SendState state
    cdef SharedSegment segment
    cdef object kept
    cdef object kept_trace_on
    cdef object kept_answer
    cdef object kept_context

    def __cinit__(self, SharedSegment segment not None, dict options not None):
        cdef SendState *state = &self.state
        cdef int index
        self.segment = segment
        state.shared = &segment.shared
        state.worker_number = options["number"]
        state.row = &segment.shared.workers[<int>options["row"]]
        state.latencies = latencies_of(state.shared, state.worker_number)
        # Ids of an earlier life of this worker may still be under way in rings.
        state.clients.generation_next = (<uint32_t>observe(&state.row.generation)
                                         << (CONNECTION_GENERATION_BITS - CONNECTION_LIFE_BITS)) + 1
        self.take_settings(options)
        self.take_memory(options)
        state.wake = options["wake"]
        state.link.fd = options["link"]
        state.reput.wake = options["reput_wake"]
        state.flush.wake = options["flush_wake"]
        state.ha.wake = options["ha_wake"]
        state.reput.row = &segment.shared.workers[<int>options["reput_row"]]
        state.flush.row = &segment.shared.workers[<int>options["flush_row"]]
        state.ha.row = &segment.shared.workers[<int>options["ha_row"]]
        for index, (row, wake) in enumerate(options["pullers"]):
            state.pullers[index].row = &segment.shared.workers[<int>row]
            state.pullers[index].generation = observe(&state.pullers[index].row.generation)
            state.pullers[index].wake = wake
            open_pull_request_ring(&state.pullers[index].requests, state.shared, state.worker_number, index)
            open_pull_reply_ring(&state.pullers[index].replies, state.shared, state.worker_number, index)
        if len(options["listeners"]) > LISTENERS_MAX:
            raise ValueError(f"listeners: got {len(options['listeners'])}, wanted at most {LISTENERS_MAX}")
        for index, (listener, is_vip) in enumerate(options["listeners"]):
            state.listeners.fds[index] = listener
            state.listeners.is_vip[index] = is_vip
        state.listeners.count = len(options["listeners"])
        self.open_epoll()

    cdef take_settings(self, dict options):
        cdef SendState *state = &self.state
        texts = (b"CLUSTER\x01" + options["cluster"].encode(), options["region"].encode(),
                 options["broker_name"].encode())
        self.kept = texts
        state.settings.cluster_property = <const uint8_t *><const char *><bytes>texts[0]
        state.settings.cluster_property_size = <int32_t>len(texts[0])
        state.settings.region = <const uint8_t *><const char *><bytes>texts[1]
        state.settings.region_size = <int32_t>len(texts[1])
        state.settings.broker_name = <const uint8_t *><const char *><bytes>texts[2]
        state.settings.broker_name_size = <int32_t>len(texts[2])
        state.settings.timer_precision_ms = options["timer_precision_ms"]
        state.settings.frame_length_max = options["frame_length_max"]
        state.settings.write_buffer_max = options["write_buffer_max"]
        state.settings.read_budget = options["read_budget"]
        state.settings.write_budget = options["write_budget"]
        state.settings.idle_timeout_ms = options["idle_timeout_ms"]
        state.settings.waits_for_flush = options["waits_for_flush"]
        state.settings.waits_for_slave = options["waits_for_slave"]
        state.settings.in_group = options["in_group"]
        state.settings.puller_count = len(options["pullers"])
        state.settings.waiting_max = options["waiting_max"]
        state.settings.is_guarded = options["is_guarded"]
        state.settings.push_timeout_ms = options["push_timeout_ms"]
        state.settings.tls_mode = <TlsMode><int>options["tls_mode"]
        state.settings.handshake_timeout_ms = options["handshake_timeout_ms"]
        self.use(options)

    def use(self, dict options not None):
        """Go by what *options* has of ``live_options`` in workers/send.py. Not while another thread is in ``run``."""
        cdef SendState *state = &self.state
        cdef bytes trace_on = b"true" if options["trace_on"] else b"false"
        self.kept_trace_on = trace_on
        state.settings.trace_on = <const uint8_t *><const char *>trace_on
        state.settings.trace_on_size = <int32_t>len(trace_on)
        self.kept_answer = take_answer_text(state)
        state.settings.max_message_size = options["max_message_size"]
        state.settings.sync_timeout_ms = options["sync_timeout_ms"]
        state.settings.slave_timeout_ms = options["slave_timeout_ms"]
        state.settings.slave_lag_max = options["slave_lag_max"]
        state.settings.timer_max_delay_ms = options["timer_max_delay_ms"]
        state.settings.wakes_flush = options["wakes_flush"]
        state.settings.refuses_halves = options["refuses_halves"]
        state.settings.keeps_replies = options["keeps_replies"]
        state.settings.send_wait_ms = options["send_wait_ms"]
        state.settings.transaction_wait_ms = options["transaction_wait_ms"]
        state.settings.wait_limit_ms = min((wait for wait in (options["send_wait_ms"], options["transaction_wait_ms"])
                                            if wait > 0), default=0)
        state.settings.quota_delay_max_ms = options["quota_delay_max_ms"]
        state.settings.connections_max = options["connections_max"]
        state.settings.connections_per_host_max = options["connections_per_host_max"]
        state.settings.limits_pulling_clients = any(
            rule[0] == <int>QUOTA_PULL and rule[1] == <int>QUOTA_CLIENT for rule in options["quotas"])
        if not quota_take_rules(&state.quotas, QUOTA_SEND, options["quotas"]):
            raise MemoryError()
        state.appender.record_size_max = <int64_t>options["max_message_size"] + RECORD_OVERHEAD_MAX
        state.is_put_busy = False
        state.appender.lock_timeout_ms = state.settings.lock_timeout_ms = options["lock_timeout_ms"]

    @property
    def wants_context(self):
        """Whether a client waits in its handshake for ``use_context``."""
        return self.state.tls.wants_context

    def use_context(self, ServerContext context):
        """Let connections that come from now on have TLS by *context*; None: there will be none."""
        cdef SendState *state = &self.state
        state.tls.wants_context = False
        state.tls.has_no_context = context is None
        if context is None:
            return
        if not tls_link_open(&state.tls.link):
            raise MemoryError()
        self.kept_context = context
        state.tls.link.context = context.pointer

    cdef take_memory(self, dict options):
        cdef SendState *state = &self.state
        state.appender.files = <FileSet *>calloc(1, sizeof(FileSet))
        state.read_files = <FileSet *>calloc(1, sizeof(FileSet))
        state.tickets.slots = <Ticket *>calloc(TICKETS_MAX, sizeof(Ticket))
        state.pushes.places = <Push **>calloc(PUSHES_MAX, sizeof(Push *))
        state.pushes.asker_seed = int.from_bytes(os.urandom(8), "little")
        state.read_buffer = <uint8_t *>malloc(READ_SIZE)
        state.scratch = <uint8_t *>malloc(SCRATCH_SIZE)
        state.starts = <int64_t *>malloc(MEMBERS_MAX * sizeof(int64_t))
        if (state.appender.files == NULL or state.read_files == NULL or state.tickets.slots == NULL
                or state.pushes.places == NULL or state.read_buffer == NULL or state.scratch == NULL
                or state.starts == NULL):
            raise MemoryError()
        files_open(state.appender.files, options["commit_log"], options["commit_log_file_size"], True, self.segment.fd)
        files_open(state.read_files, options["commit_log"], options["commit_log_file_size"], False)
        state.appender.shared = state.shared
        state.appender.file_size = options["commit_log_file_size"]
        state.appender.counts_topics = True
        state.appender.tallies = not (options["waits_for_flush"] or options["waits_for_slave"])
        # Alone it may keep the put lock for all the messages of one read; several would wait for each other.
        state.appender.keeps_lock = options["is_only_sender"]
        tickets_open(state)
        forget_addresses(state)
        state.random = <uint32_t>(now_ms() | 1)
        state.last_topic_row = state.last_queue_row = ROW_NONE

    cdef open_epoll(self):
        cdef SendState *state = &self.state
        cdef epoll_event event
        state.epoll = epoll_create1(EPOLL_CLOEXEC)
        if state.epoll < 0:
            raise OSError(errno, "epoll: " + os.strerror(errno))
        for mark, fd in ((MARK_WAKE, state.wake), (MARK_LINK, state.link.fd)):
            event.events = EPOLLIN
            event.data.u64 = mark
            if epoll_ctl(state.epoll, EPOLL_CTL_ADD, fd, &event) != 0:
                raise OSError(errno, "epoll: " + os.strerror(errno))

    def run(self, int64_t settings_version=0):
        """Serve until the broker process says STOP or is gone. Holds no GIL; raises nothing.

        True: the board has another version of the settings than *settings_version*, which are to be ``use``d, or it
        ``wants_context``; call it again after that.
        """
        cdef SendState *state = &self.state
        cdef bint is_over = False
        with nogil:
            if not state.has_started:
                state.has_started = True
                state.turn_ms = state.pressure.ended_ms = coarse_ms()
                note_turn_start(state)
                note_turn_end(state)
                housekeeping(state)
                tickets_tell(state)
                publish(&state.row.state, WORKER_STATE_RUNNING)
            while True:
                is_over = follow_command(state)
                if (is_over or state.tls.wants_context
                        or observe(&state.shared.board.settings_version) != settings_version):
                    break
                turn(state)
            if is_over:
                publish(&state.row.state, WORKER_STATE_STOPPED)
        return not is_over

    def __dealloc__(self):
        cdef SendState *state = &self.state
        cdef int32_t slot
        for slot in range(state.clients.capacity):
            if state.clients.slots[slot] != NULL:
                close_connection(state, state.clients.slots[slot])
        while state.waiting.head < state.waiting.tail:
            free(state.waiting.answers[state.waiting.head & (state.waiting.capacity - 1)].ids)
            free(state.waiting.answers[state.waiting.head & (state.waiting.capacity - 1)].handle)
            state.waiting.head += 1
        pushes_free(state)
        if state.appender.files != NULL:
            files_close(state.appender.files)
        if state.read_files != NULL:
            files_close(state.read_files)
        quota_close(state)
        quota_free(&state.quotas)
        link_free(&state.link)
        guard_free(&state.guard)
        tls_link_free(&state.tls.link)
        free(state.appender.files)
        free(state.read_files)
        free(state.tickets.slots)
        free(state.read_buffer)
        free(state.scratch)
        free(state.starts)
        free(state.waiting.answers)
        free(state.clients.slots)
        free(state.clients.dirty)
        if state.epoll > 0:
            close(state.epoll)
