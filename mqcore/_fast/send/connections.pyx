"""Connections of a send worker and its link to the broker process.

A connection whose peer does not read is paused first (we stop reading its requests) and closed when its unsent answers
pass the limit. Over all connections there is a budget for unsent answers and one for unfinished frames: when it is
spent, whoever holds most is closed. So memory is bounded, and those who behave do not pay for those who do not.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset, strlen

from mqcore._fast.base.atomics cimport add_relaxed, put_relaxed
from mqcore._fast.base.buffers cimport buffer_free, buffer_size, buffer_take
from mqcore._fast.base.checks cimport check
from mqcore._fast.base.layout cimport (CONNECTION_GENERATION_BITS, CONNECTION_SLOT_BITS, LINK_KIND_CLOSED,
                                       LINK_KIND_CONNECTED, LINK_KIND_REQUEST, RequestHead)
from mqcore._fast.base.sockets cimport (AF_INET, AF_INET6, EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLL_CTL_ADD, EPOLL_CTL_MOD,
                                        IPPROTO_TCP, TCP_NODELAY, epoll_ctl, epoll_event, getpeername, peer_address,
                                        setsockopt, sockaddr, sockaddr_storage)
from mqcore._fast.segment.link cimport link_put, link_unsent, link_write
from mqcore._fast.send.askers cimport asker_set
from mqcore._fast.send.admission cimport count_address
from mqcore._fast.send.state cimport MARK_LINK, TRANSPORT_OPEN, TRANSPORT_TLS, Connection, SendState
from mqcore._fast.send.ticket cimport tickets_end
from mqcore._fast.send.transport cimport transport_close, transport_memory, transport_unsent, transport_write
from mqcore._fast.tls.session cimport TLS_NAME_MAX

cdef extern from "<sys/socket.h>" nogil:
    ssize_t send(int fd, const void *data, size_t size, int flags)
    struct linger:
        int l_onoff
        int l_linger
    int MSG_NOSIGNAL, SOL_SOCKET, SO_LINGER

cdef extern from "<sys/ioctl.h>" nogil:
    int ioctl(int fd, unsigned long request, ...)

cdef extern from "<linux/sockios.h>" nogil:
    unsigned long SIOCOUTQ

cdef extern from "<arpa/inet.h>" nogil:
    const char *inet_ntop(int family, const void *address, char *out, unsigned int size)

cdef extern from "<unistd.h>" nogil:
    int close(int fd)

cdef enum:
    CONNECTION_CAPACITY_MIN = 256
    PAUSE_BYTES = 1 << 22           # unsent answers of a connection that stop us reading its requests
    LINK_BYTES_MAX = 1 << 26        # unsent bytes to the broker process that make it busy
    LINK_HOLD_BYTES = 1 << 21       # with so many, whoever adds to them is not read from
    LINK_RESUME_BYTES = 1 << 20     # until there are no more than these
    INTRODUCTION_MAX = 640          # address, port, and the name in a certificate

assert <int>INTRODUCTION_MAX > 100 + <int>TLS_NAME_MAX
cdef const char *NOTHING = ""
cdef const char *BLANK = " "


cdef int64_t connection_id(const SendState *state, const Connection *connection) noexcept nogil:
    return (<int64_t>state.worker_number << (CONNECTION_GENERATION_BITS + CONNECTION_SLOT_BITS)) | (
        <int64_t>connection.generation << CONNECTION_SLOT_BITS) | connection.slot


cdef Connection *find_connection(SendState *state, int64_t identity) noexcept nogil:
    cdef int32_t slot = <int32_t>(identity & ((1 << CONNECTION_SLOT_BITS) - 1))
    cdef Connection *connection
    if slot >= state.clients.capacity:
        return NULL
    connection = state.clients.slots[slot]
    if connection == NULL or connection.is_closing or connection_id(state, connection) != identity:
        return NULL
    return connection


cdef bint grow_connections(SendState *state) noexcept nogil:
    cdef int32_t capacity = max(<int32_t>CONNECTION_CAPACITY_MIN, state.clients.capacity * 2)
    cdef Connection **connections
    cdef int32_t *dirty
    if capacity > 1 << CONNECTION_SLOT_BITS:
        return False
    connections = <Connection **>realloc(state.clients.slots, capacity * sizeof(Connection *))
    if connections == NULL:
        return False
    state.clients.slots = connections
    dirty = <int32_t *>realloc(state.clients.dirty, 2 * capacity * sizeof(int32_t))
    if dirty == NULL:
        return False
    state.clients.dirty = dirty
    memset(connections + state.clients.capacity, 0,
           (capacity - state.clients.capacity) * sizeof(Connection *))
    state.clients.capacity = capacity
    return True


cdef void read_peer(Connection *connection) noexcept nogil:
    cdef sockaddr_storage storage
    cdef unsigned int size = sizeof(storage)
    memset(&storage, 0, sizeof(storage))
    getpeername(connection.fd, <sockaddr *>&storage, &size)
    connection.address_size = peer_address(&storage, connection.address, &connection.port)


cdef Connection *open_connection(SendState *state, int fd, bint is_vip) noexcept nogil:
    cdef int32_t slot = state.clients.slot_free
    cdef int one = 1
    cdef epoll_event event
    cdef Connection *connection
    while slot < state.clients.capacity and state.clients.slots[slot] != NULL:
        slot += 1
    if slot >= state.clients.capacity and not grow_connections(state):
        return NULL
    connection = <Connection *>calloc(1, sizeof(Connection))
    if connection == NULL:
        return NULL
    connection.slot = slot
    connection.fd = fd
    connection.is_vip = is_vip
    connection.transport = TRANSPORT_OPEN
    connection.generation = state.clients.generation_next
    connection.active_at = state.turn_ms
    connection.first_ticket = -1
    read_peer(connection)
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one))
    event.events = EPOLLIN | EPOLLRDHUP
    event.data.u64 = <uint64_t>connection_id(state, connection)
    if epoll_ctl(state.epoll, EPOLL_CTL_ADD, fd, &event) != 0:
        free(connection)
        return NULL
    state.clients.generation_next += 1
    state.clients.slots[slot] = connection
    state.clients.slot_free = slot + 1
    state.clients.count += 1
    count_address(state, connection, 1)
    return connection


cdef void doom(SendState *state, Connection *connection) noexcept nogil:
    if not connection.is_closing:
        mark_dirty(state, connection)
        connection.is_closing = True


cdef int64_t unsent_size(const Connection *connection) noexcept nogil:
    return buffer_size(&connection.out) + transport_unsent(connection)


cdef bint is_stalled(const SendState *state, const Connection *connection) noexcept nogil:
    # Whether its peer leaves answers unread: some are still here, or it was idle and the system has some.
    cdef int unread = 0
    if unsent_size(connection) > 0:
        return True
    if state.turn_ms - connection.active_at < state.settings.idle_timeout_ms:
        return False
    return ioctl(connection.fd, SIOCOUTQ, &unread) == 0 and unread > 0


cdef void close_connection(SendState *state, Connection *connection) noexcept nogil:
    cdef int64_t identity = connection_id(state, connection)
    cdef linger at_once
    if is_stalled(state, connection):
        # Reset it. After a mere close the system keeps megabytes of answers and goes on offering them for minutes, and
        # the peer does not even hear of the close, which is queued behind them.
        at_once.l_onoff = 1
        at_once.l_linger = 0
        setsockopt(connection.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once))
    transport_close(state, connection)
    close(connection.fd)
    tickets_end(state, connection)
    asker_set(state, connection, NULL, 0)
    if connection.push_count > 0:
        state.pushes.has_lost_asker = True
    drop_partial(state, connection)
    buffer_free(&connection.out)
    count_unsent(state, connection)
    state.clients.slots[connection.slot] = NULL
    state.clients.slot_free = min(state.clients.slot_free, connection.slot)
    state.clients.count -= 1
    count_address(state, connection, -1)
    if connection.is_known:
        # May not be dropped, or the broker process would keep a dead consumer in its group; it is 16 bytes.
        link_put(&state.link, LINK_KIND_CLOSED, identity, NULL, 0)
    free(connection)


cdef void mark_dirty(SendState *state, Connection *connection) noexcept nogil:
    if not connection.is_dirty and not connection.is_closing:
        connection.is_dirty = True
        state.clients.dirty[state.clients.dirty_count] = connection.slot
        state.clients.dirty_count += 1


cdef void drop_partial(SendState *state, Connection *connection) noexcept nogil:
    state.clients.partial_bytes -= connection.partial.capacity
    check(state.clients.partial_bytes >= 0, "unfinished frames give back what they took of the budget")
    buffer_free(&connection.partial)


cdef bint make_room(SendState *state, const Connection *connection) noexcept nogil:
    cdef int32_t slot
    cdef Connection *most
    while state.clients.partial_bytes > state.settings.read_budget:
        most = NULL
        for slot in range(state.clients.capacity):
            if state.clients.slots[slot] != NULL and (
                    most == NULL or state.clients.slots[slot].partial.capacity > most.partial.capacity):
                most = state.clients.slots[slot]
        if most == NULL or most == connection:
            return False
        drop_partial(state, most)
        doom(state, most)
    return True


cdef void count_unsent(SendState *state, Connection *connection) noexcept nogil:
    cdef int64_t memory = connection.out.capacity + transport_memory(connection)
    state.clients.unsent_bytes += memory - connection.unsent_bytes
    check(state.clients.unsent_bytes >= 0, "unsent answers give back what they took of the budget")
    connection.unsent_bytes = memory


cdef void cut_off(SendState *state, Connection *connection) noexcept nogil:
    put_relaxed(&state.row.slow_readers, state.row.slow_readers + 1)
    doom(state, connection)


cdef void cut_off_slowest(SendState *state) noexcept nogil:
    # Close those who leave most unread until the rest is within the budget.
    cdef int32_t slot
    cdef Connection *most
    while state.clients.unsent_bytes > state.settings.write_budget:
        most = NULL
        for slot in range(state.clients.capacity):
            if state.clients.slots[slot] != NULL and (
                    most == NULL or state.clients.slots[slot].unsent_bytes > most.unsent_bytes):
                most = state.clients.slots[slot]
        if most == NULL or most.unsent_bytes == 0:
            return
        cut_off(state, most)
        # Its memory goes at the end of this turn.
        state.clients.unsent_bytes -= most.unsent_bytes
        most.unsent_bytes = 0


cdef void arm(SendState *state, Connection *connection) noexcept nogil:
    cdef epoll_event event
    event.events = EPOLLRDHUP
    if not connection.is_paused and not connection.is_held:
        event.events |= EPOLLIN
    if connection.wants_write:
        event.events |= EPOLLOUT
    event.data.u64 = <uint64_t>connection_id(state, connection)
    epoll_ctl(state.epoll, EPOLL_CTL_MOD, connection.fd, &event)


cdef bint write_plain(SendState *state, Connection *connection) noexcept nogil:
    # As far as the socket takes it; False: it is broken.
    cdef int64_t left = buffer_size(&connection.out)
    cdef ssize_t sent
    while left > 0:
        sent = send(connection.fd, connection.out.data + connection.out.start, left, MSG_NOSIGNAL)
        if sent < 0 and errno == EINTR:
            continue
        if sent <= 0:
            return sent == 0 or errno == EAGAIN
        connection.active_at = state.turn_ms
        add_relaxed(&state.row.bytes, sent)
        buffer_take(&connection.out, sent)
        left -= sent
    return True


cdef void write_connection(SendState *state, Connection *connection) noexcept nogil:
    cdef int64_t left
    cdef bint wanted_write = connection.wants_write
    cdef bint was_paused = connection.is_paused
    if not (transport_write(state, connection) if connection.transport == TRANSPORT_TLS
            else write_plain(state, connection)):
        doom(state, connection)
        return
    left = unsent_size(connection)
    if left > state.settings.write_buffer_max:
        cut_off(state, connection)
        return
    count_unsent(state, connection)
    if state.clients.unsent_bytes > state.settings.write_budget:
        cut_off_slowest(state)
    connection.wants_write = left > 0
    connection.is_paused = left > PAUSE_BYTES
    if connection.wants_write != wanted_write or connection.is_paused != was_paused:
        arm(state, connection)


cdef void write_dirty(SendState *state) noexcept nogil:
    # Writing may doom connections, which puts them at the end of this very list.
    cdef int32_t index = 0
    cdef Connection *connection
    while index < state.clients.dirty_count:
        connection = state.clients.slots[state.clients.dirty[index]]
        index += 1
        if connection == NULL:
            continue
        connection.is_dirty = False
        if not connection.is_closing:
            write_connection(state, connection)
        if connection.is_closing and not connection.is_dirty:
            close_connection(state, connection)
    state.clients.dirty_count = 0


cdef bint link_request(SendState *state, Connection *connection, const uint8_t *payload, int64_t size,
                       bint is_charged) noexcept nogil:
    cdef RequestHead head
    cdef char address[64]
    cdef char text[INTRODUCTION_MAX]
    cdef const char *name = connection.tls.peer_name if connection.tls != NULL else NULL
    cdef int64_t identity = connection_id(state, connection)
    if state.link.is_closed or link_unsent(&state.link) > LINK_BYTES_MAX:
        return False
    if not connection.is_known:
        inet_ntop(AF_INET if connection.address_size == 4 else AF_INET6, connection.address, address, sizeof(address))
        snprintf(text, sizeof(text), "%s %d %d%s%s", address, connection.port, <int>connection.is_vip,
                 NOTHING if name == NULL else BLANK, NOTHING if name == NULL else name)
        if not link_put(&state.link, LINK_KIND_CONNECTED, identity, text, <int64_t>strlen(text)):
            return False
        connection.is_known = True
    head.since = state.arrived_ms
    head.charged = is_charged
    head.spare = 0
    if not link_put(&state.link, LINK_KIND_REQUEST, identity, &head, sizeof(RequestHead), payload, size):
        return False
    if link_unsent(&state.link) > LINK_HOLD_BYTES and not connection.is_held:
        # The broker process is behind: who asks so much waits for it, so that the others' heart-beats do not.
        connection.is_held = True
        state.clients.has_held = True
        arm(state, connection)
    return True


cdef void resume_held(SendState *state) noexcept nogil:
    cdef int32_t slot
    state.clients.has_held = False
    for slot in range(state.clients.capacity):
        if state.clients.slots[slot] != NULL and state.clients.slots[slot].is_held:
            state.clients.slots[slot].is_held = False
            arm(state, state.clients.slots[slot])


cdef void write_link(SendState *state) noexcept nogil:
    cdef epoll_event event
    cdef bint wants_write
    if link_unsent(&state.link) > 0:
        link_write(&state.link)
    if state.clients.has_held and link_unsent(&state.link) <= LINK_RESUME_BYTES:
        resume_held(state)
    wants_write = link_unsent(&state.link) > 0
    if wants_write != state.link_wants_write:
        state.link_wants_write = wants_write
        event.events = EPOLLIN | EPOLLOUT if wants_write else EPOLLIN
        event.data.u64 = MARK_LINK
        epoll_ctl(state.epoll, EPOLL_CTL_MOD, state.link.fd, &event)
