"""TLS beside plain connections on the same port, told apart by the first byte as RocketMQ does.

0x16 begins a handshake, and no frame, whose length would be beyond every limit.

Source: RocketMQ remoting/netty/NettyRemotingServer.java (HandshakeHandler).
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy

from mqcore._fast.base.atomics cimport add_relaxed, put_relaxed
from mqcore._fast.base.buffers cimport buffer_size, buffer_take
from mqcore._fast.base.worker_log cimport warn_closed
from mqcore._fast.send.state cimport (READ_SIZE, REFUSED_HANDSHAKE, REFUSED_PLAIN, REFUSED_SLOW_HANDSHAKE, REFUSED_TLS,
                                      REFUSED_WITHOUT_CONTEXT, TLS_DISABLED, TLS_ENFORCING, TRANSPORT_PLAIN,
                                      TRANSPORT_TLS, Connection, SendState, TransportRefusal)
from mqcore._fast.tls.session cimport (TLS_OPENED_SIZE, TLS_RECORD_SIZE, TLS_SEAL_SIZE, TlsSession, tls_close, tls_open,
                                       tls_push, tls_read, tls_seal, tls_unsent)

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void *out, size_t size, int flags)
    int MSG_PEEK, AF_INET, AF_INET6

cdef extern from "<arpa/inet.h>" nogil:
    const char *inet_ntop(int family, const void *address, char *out, unsigned int size)

cdef enum:
    HANDSHAKE_RECORD = 0x16
    PEER_SIZE = 80

assert <int>TLS_OPENED_SIZE <= <int>READ_SIZE

cdef const char *DETAIL_TLS = "it begins with TLS, and tls.server.mode is disabled"
cdef const char *DETAIL_PLAIN = "it begins without TLS, and tls.server.mode is enforcing"
cdef const char *DETAIL_NO_CONTEXT = "it begins with TLS, and there is no certificate or library for that"
cdef const char *DETAIL_LATE = "not over in tlsHandshakeTimeoutMillis"
cdef const char *CAUSE_TRANSPORT = "transport refused"
cdef const char *CAUSE_HANDSHAKE = "TLS handshake failed"


cdef void refuse(SendState *state, const Connection *connection, TransportRefusal refusal, const char *cause,
                 const char *detail) noexcept nogil:
    cdef char address[64]
    cdef char peer[PEER_SIZE]
    if refusal == REFUSED_HANDSHAKE or refusal == REFUSED_SLOW_HANDSHAKE:
        put_relaxed(&state.row.handshakes_failed, state.row.handshakes_failed + 1)
    else:
        put_relaxed(&state.row.transport_refused, state.row.transport_refused + 1)
    inet_ntop(AF_INET if connection.address_size == 4 else AF_INET6, connection.address, address, sizeof(address))
    snprintf(peer, sizeof(peer), "%s:%d", address, connection.port)
    warn_closed(&state.tls.refusals[<int>refusal], peer, cause, detail)


cdef TransportChoice begin_tls(SendState *state, Connection *connection) noexcept nogil:
    if state.settings.tls_mode == TLS_DISABLED:
        refuse(state, connection, REFUSED_TLS, CAUSE_TRANSPORT, DETAIL_TLS)
        return CHOICE_CLOSED
    if state.tls.link.context == NULL:
        if state.tls.has_no_context:
            refuse(state, connection, REFUSED_WITHOUT_CONTEXT, CAUSE_TRANSPORT, DETAIL_NO_CONTEXT)
            return CHOICE_CLOSED
        state.tls.wants_context = True
        return CHOICE_LATER
    connection.tls = tls_open(&state.tls.link, True, state.turn_ms)
    if connection.tls == NULL:
        return CHOICE_CLOSED
    connection.transport = TRANSPORT_TLS
    return CHOICE_MADE


cdef TransportChoice transport_choose(SendState *state, Connection *connection) noexcept nogil:
    cdef uint8_t first
    cdef ssize_t got = recv(connection.fd, &first, 1, MSG_PEEK)
    if got < 0 and (errno == EAGAIN or errno == EINTR):
        return CHOICE_LATER
    if got <= 0:
        return CHOICE_CLOSED
    if first == HANDSHAKE_RECORD:
        return begin_tls(state, connection)
    if state.settings.tls_mode == TLS_ENFORCING:
        refuse(state, connection, REFUSED_PLAIN, CAUSE_TRANSPORT, DETAIL_PLAIN)
        return CHOICE_CLOSED
    connection.transport = TRANSPORT_PLAIN
    return CHOICE_MADE


cdef ssize_t transport_read(SendState *state, Connection *connection) noexcept nogil:
    cdef TlsSession *session = connection.tls
    cdef bint was_established = session.is_established
    cdef ssize_t got = tls_read(&state.tls.link, session, connection.fd, state.read_buffer)
    if not was_established:
        if session.is_established:
            put_relaxed(&state.row.handshakes, state.row.handshakes + 1)
        elif session.reason != NULL:
            refuse(state, connection, REFUSED_HANDSHAKE, CAUSE_HANDSHAKE, session.reason)
    return got


cdef bint push(SendState *state, Connection *connection) noexcept nogil:
    cdef int64_t sent = tls_push(&state.tls.link, connection.tls, connection.fd)
    if sent > 0:
        connection.active_at = state.turn_ms
        add_relaxed(&state.row.bytes, sent)
    return sent >= 0


cdef bint transport_write(SendState *state, Connection *connection) noexcept nogil:
    cdef TlsSession *session = connection.tls
    cdef int64_t size
    if not push(state, connection):
        return False
    while tls_unsent(session) == 0 and session.is_established:
        size = min(buffer_size(&connection.out), <int64_t>TLS_SEAL_SIZE)
        if size == 0:
            break
        if not tls_seal(&state.tls.link, session, connection.out.data + connection.out.start, size):
            return False
        buffer_take(&connection.out, size)
        if not push(state, connection):
            return False
    return True


cdef int64_t seal_part(SendState *state, TlsSession *session, const uint8_t *data, int64_t size,
                       int64_t *gathered) noexcept nogil:
    # Small pieces go into one record; a large one is sealed where it lies. How much of it was taken, or -1.
    cdef int64_t taken
    if gathered[0] == 0 and size >= TLS_RECORD_SIZE:
        taken = min(size, <int64_t>TLS_SEAL_SIZE)
        return taken if tls_seal(&state.tls.link, session, data, taken) else -1
    taken = min(size, TLS_RECORD_SIZE - gathered[0])
    memcpy(state.tls.link.record + gathered[0], data, taken)
    gathered[0] += taken
    if gathered[0] == TLS_RECORD_SIZE:
        gathered[0] = 0
        if not tls_seal(&state.tls.link, session, state.tls.link.record, TLS_RECORD_SIZE):
            return -1
    return taken


cdef int64_t transport_write_parts(
    SendState *state, Connection *connection, const iovec *parts, int32_t count
) noexcept nogil:
    cdef TlsSession *session = connection.tls
    cdef int64_t total = 0
    cdef int64_t gathered = 0
    cdef int64_t at, taken
    cdef int32_t index = 0
    while index < count and tls_unsent(session) == 0:
        at = 0
        while at < <int64_t>parts[index].iov_len and tls_unsent(session) == 0:
            taken = seal_part(state, session, <const uint8_t *>parts[index].iov_base + at,
                              <int64_t>parts[index].iov_len - at, &gathered)
            if taken < 0:
                return -1
            at += taken
            if buffer_size(&state.tls.link.sealed) >= TLS_SEAL_SIZE and not push(state, connection):
                return -1
        total += at
        index += 1
    if gathered > 0 and not tls_seal(&state.tls.link, session, state.tls.link.record, gathered):
        return -1
    return total if push(state, connection) else -1


cdef bint transport_is_late(SendState *state, const Connection *connection) noexcept nogil:
    if connection.transport != TRANSPORT_TLS or connection.tls.is_established:
        return False
    if state.turn_ms - connection.tls.began_at < state.settings.handshake_timeout_ms:
        return False
    refuse(state, connection, REFUSED_SLOW_HANDSHAKE, CAUSE_HANDSHAKE, DETAIL_LATE)
    return True


cdef int64_t transport_unsent(const Connection *connection) noexcept nogil:
    return 0 if connection.tls == NULL else tls_unsent(connection.tls)


cdef int64_t transport_memory(const Connection *connection) noexcept nogil:
    return 0 if connection.tls == NULL else connection.tls.unsent.capacity


cdef void transport_close(SendState *state, Connection *connection) noexcept nogil:
    if connection.tls != NULL:
        tls_close(&state.tls.link, connection.tls, connection.fd)
        connection.tls = NULL
