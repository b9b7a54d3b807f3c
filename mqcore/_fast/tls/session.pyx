"""One TLS connection of an event loop, and what those of one loop share.

Renegotiation is off and the library's writes end in memory, so that neither a read ever waits for room nor a write for
bytes of the peer. What a socket does not take stays in the connection's own buffer, whole records of it.
"""

from libc cimport errno as system         # so that system.errno can be set
from libc.errno cimport EAGAIN, EINTR, ENOMEM, EPROTO
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from mqcore._fast.base.buffers cimport buffer_free, buffer_put, buffer_size, buffer_take
from mqcore._fast.base.checks cimport check
from mqcore._fast.tls.library cimport (BIO, OPENSSL_BIO_CTRL_FLUSH, OPENSSL_BIO_CTRL_INFO, OPENSSL_BIO_READ_AGAIN,
                                       OPENSSL_BIO_RETRY_FLAGS, OPENSSL_BIO_SOURCE_SINK, OPENSSL_ERROR_WANT_READ,
                                       OPENSSL_ERROR_ZERO_RETURN, OPENSSL_NAME_RFC2253, OPENSSL_VERIFIED, X509, openssl,
                                       openssl_reason)

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void *out, size_t size, int flags)
    ssize_t send(int fd, const void *data, size_t size, int flags)
    int MSG_NOSIGNAL

# What a record adds to its bytes is never less than nothing, and one may have been begun by an earlier read.
assert <int>TLS_RECEIVED_SIZE + 2 * <int>TLS_RECORD_SIZE <= <int>TLS_OPENED_SIZE

cdef const char *ENDED_EARLY = "the peer closed the connection during the handshake"
cdef const char *NO_REASON = "failed without a reason"


cdef int take_incoming(BIO *bio, char *out, int size) noexcept nogil:
    cdef TlsLink *link = <TlsLink *>openssl.BIO_get_data(bio)
    cdef int64_t taken = min(<int64_t>size, link.incoming_size)
    openssl.BIO_clear_flags(bio, OPENSSL_BIO_RETRY_FLAGS)
    if taken <= 0:
        openssl.BIO_set_flags(bio, OPENSSL_BIO_READ_AGAIN)
        return -1
    memcpy(out, link.incoming, taken)
    link.incoming += taken
    link.incoming_size -= taken
    return <int>taken


cdef int put_sealed(BIO *bio, const char *data, int size) noexcept nogil:
    cdef TlsLink *link = <TlsLink *>openssl.BIO_get_data(bio)
    openssl.BIO_clear_flags(bio, OPENSSL_BIO_RETRY_FLAGS)
    return size if buffer_put(&link.sealed, data, size) else -1


cdef long control(BIO *bio, int command, long value, void *data) noexcept nogil:
    return command == OPENSSL_BIO_CTRL_FLUSH


cdef bint tls_link_open(TlsLink *link) noexcept nogil:
    if link.method != NULL:
        return True
    link.received = <uint8_t *>malloc(TLS_RECEIVED_SIZE)
    link.record = <uint8_t *>malloc(TLS_RECORD_SIZE)
    link.method = openssl.BIO_meth_new(openssl.BIO_get_new_index() | OPENSSL_BIO_SOURCE_SINK, "mqcore")
    return (link.received != NULL and link.record != NULL and link.method != NULL
            and openssl.BIO_meth_set_read(link.method, take_incoming) == 1
            and openssl.BIO_meth_set_write(link.method, put_sealed) == 1
            and openssl.BIO_meth_set_ctrl(link.method, control) == 1)


cdef void tls_link_free(TlsLink *link) noexcept nogil:
    if link.method != NULL:
        openssl.BIO_meth_free(link.method)
    free(link.received)
    free(link.record)
    buffer_free(&link.sealed)


cdef TlsSession *tls_open(TlsLink *link, bint is_server, int64_t now) noexcept nogil:
    cdef TlsSession *session = <TlsSession *>calloc(1, sizeof(TlsSession))
    cdef BIO *bio = openssl.BIO_new(link.method)
    if session != NULL:
        session.ssl = openssl.SSL_new(link.context)
        session.began_at = now
    if session == NULL or bio == NULL or session.ssl == NULL:
        openssl.BIO_free(bio)
        if session != NULL:
            openssl.SSL_free(session.ssl)
        free(session)
        return NULL
    openssl.BIO_set_data(bio, link)
    openssl.BIO_set_init(bio, 1)
    openssl.SSL_set_bio(session.ssl, bio, bio)
    if is_server:
        openssl.SSL_set_accept_state(session.ssl)
    else:
        openssl.SSL_set_connect_state(session.ssl)
    return session


cdef void drop_sealed(TlsLink *link) noexcept nogil:
    # Its memory stays: it is filled again at once.
    link.sealed.start = 0
    link.sealed.end = 0


cdef void tls_close(TlsLink *link, TlsSession *session, int fd) noexcept nogil:
    drop_sealed(link)
    if session.is_established and session.reason == NULL and tls_unsent(session) == 0:
        openssl.ERR_clear_error()
        openssl.SSL_shutdown(session.ssl)
        tls_push(link, session, fd)
    openssl.SSL_free(session.ssl)
    openssl.ERR_clear_error()
    buffer_free(&session.unsent)
    free(session.peer_name)
    free(session)


cdef char *name_of(X509 *certificate) noexcept nogil:
    cdef BIO *bio = openssl.BIO_new(openssl.BIO_s_mem())
    cdef char *text = NULL
    cdef char *name = NULL
    cdef long size
    if bio != NULL:
        openssl.X509_NAME_print_ex(bio, openssl.X509_get_subject_name(certificate), 0, OPENSSL_NAME_RFC2253)
        size = openssl.BIO_ctrl(bio, OPENSSL_BIO_CTRL_INFO, 0, &text)
        if 0 < size <= TLS_NAME_MAX:
            name = <char *>malloc(size + 1)
            if name != NULL:
                memcpy(name, text, size)
                name[size] = 0
        openssl.BIO_free(bio)
    return name


cdef void note_established(TlsSession *session) noexcept nogil:
    cdef X509 *certificate = openssl.SSL_get1_peer_certificate(session.ssl)
    session.is_established = True
    if certificate != NULL:
        if openssl.SSL_get_verify_result(session.ssl) == OPENSSL_VERIFIED:
            session.peer_name = name_of(certificate)
        openssl.X509_free(certificate)


cdef void note_failure(TlsSession *session) noexcept nogil:
    # Of a certificate that was refused OpenSSL says so in the one place and why in the other.
    cdef long verified = openssl.SSL_get_verify_result(session.ssl)
    session.reason = openssl_reason()
    if session.reason == NULL:
        session.reason = NO_REASON
    elif not session.is_established and verified != OPENSSL_VERIFIED:
        session.reason = openssl.X509_verify_cert_error_string(verified)


cdef int64_t open_incoming(TlsSession *session, uint8_t *out) noexcept nogil:
    # All that the records at hand carry.
    cdef int64_t total = 0
    cdef int got, error
    openssl.ERR_clear_error()
    while total < TLS_OPENED_SIZE:
        got = openssl.SSL_read(session.ssl, out + total, <int>(TLS_OPENED_SIZE - total))
        if got > 0:
            total += got
            continue
        error = openssl.SSL_get_error(session.ssl, got)
        if error == OPENSSL_ERROR_ZERO_RETURN:
            session.is_ended = True
        elif error != OPENSSL_ERROR_WANT_READ:
            note_failure(session)
        break
    return total


cdef ssize_t tls_read(TlsLink *link, TlsSession *session, int fd, uint8_t *out) noexcept nogil:
    cdef ssize_t got = recv(fd, link.received, TLS_RECEIVED_SIZE, 0)
    if got <= 0:
        # A reset, too: it may overtake the alert that says why.
        if not session.is_established and (got == 0 or system.errno not in (system.EAGAIN, system.EINTR)):
            session.reason = ENDED_EARLY
        return got
    drop_sealed(link)
    link.incoming = link.received
    link.incoming_size = got
    got = open_incoming(session, out)
    check(link.incoming_size == 0 or session.reason != NULL or session.is_ended, "no record stays unopened")
    link.incoming_size = 0
    if session.reason == NULL and not session.is_established and openssl.SSL_is_init_finished(session.ssl):
        note_established(session)
    # The handshake, or the alert that ends it.
    if buffer_size(&link.sealed) > 0 and tls_push(link, session, fd) < 0:
        if not session.is_established and session.reason == NULL:
            session.reason = ENDED_EARLY
        return -1
    if session.reason != NULL:
        system.errno = EPROTO
        return -1
    if got == 0 and not session.is_ended:
        system.errno = EAGAIN
        return -1
    return got


cdef bint tls_seal(TlsLink *link, TlsSession *session, const uint8_t *data, int64_t size) noexcept nogil:
    openssl.ERR_clear_error()
    if openssl.SSL_write(session.ssl, data, <int>size) == size:
        return True
    note_failure(session)
    system.errno = EPROTO
    return False


cdef int64_t push(int fd, const uint8_t *data, int64_t size) noexcept nogil:
    # How much the socket has taken; -1 and an errno.
    cdef int64_t total = 0
    cdef ssize_t sent
    while total < size:
        sent = send(fd, data + total, size - total, MSG_NOSIGNAL)
        if sent < 0 and system.errno == EINTR:
            continue
        if sent < 0 and system.errno != EAGAIN:
            return -1
        if sent <= 0:
            break
        total += sent
    return total


cdef int64_t tls_push(TlsLink *link, TlsSession *session, int fd) noexcept nogil:
    cdef int64_t total = 0
    cdef int64_t sent = 0
    cdef int64_t size = buffer_size(&link.sealed)
    if tls_unsent(session) > 0:
        total = push(fd, session.unsent.data + session.unsent.start, tls_unsent(session))
        if total < 0:
            return -1
        buffer_take(&session.unsent, total)
    if size > 0 and tls_unsent(session) == 0:
        sent = push(fd, link.sealed.data + link.sealed.start, size)
        if sent < 0:
            return -1
    if sent < size and not buffer_put(&session.unsent, link.sealed.data + link.sealed.start + sent, size - sent):
        system.errno = ENOMEM
        return -1
    drop_sealed(link)
    return total + sent
