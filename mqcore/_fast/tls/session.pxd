# TLS over sockets that an event loop owns. The library never sees a socket: what has come in is given to it in one
# piece, and what it has to say gathers in one buffer, so that a read and a write of a loop stay one system call each,
# however many records they carry, and nothing waits inside the library where epoll does not see it.
from libc.stdint cimport int64_t, uint8_t

from mqcore._fast.base.buffers cimport Buffer, buffer_size
from mqcore._fast.tls.library cimport BIO_METHOD, SSL, SSL_CTX

cdef enum:
    TLS_RECORD_SIZE = 16384     # most that one record carries
    TLS_SEAL_SIZE = 131072      # sealed at once, between two calls of the system
    TLS_RECEIVED_SIZE = 229376  # read from a socket at once; with the start of a record it opens to no more than
    TLS_OPENED_SIZE = 262144    # so much
    TLS_NAME_MAX = 512          # of a peer's subject

# What all connections of one thread share.
cdef struct TlsLink:
    SSL_CTX *context            # borrowed; NULL = there is none yet
    BIO_METHOD *method
    uint8_t *received
    uint8_t *record             # small pieces on their way into one record
    const uint8_t *incoming
    int64_t incoming_size
    Buffer sealed               # of the connection that is being written

cdef struct TlsSession:
    SSL *ssl
    Buffer unsent               # records that the socket has not taken
    bint is_established
    bint is_ended               # the peer has said that nothing more comes
    int64_t began_at
    const char *reason          # why it failed; never freed
    char *peer_name             # subject of the certificate that was checked, as in RFC 2253; NULL = none

cdef inline int64_t tls_unsent(const TlsSession *session) noexcept nogil:
    return buffer_size(&session.unsent)

# Memory for the link; needs load_openssl first. False: there is none.
cdef bint tls_link_open(TlsLink *link) noexcept nogil
cdef void tls_link_free(TlsLink *link) noexcept nogil
# The serving end of a connection, or the calling one. NULL: no memory.
cdef TlsSession *tls_open(TlsLink *link, bint is_server, int64_t now) noexcept nogil
# Say good-bye if the other end may hear it, and free everything.
cdef void tls_close(TlsLink *link, TlsSession *session, int fd) noexcept nogil
# As read(2), of what was sealed; takes part in the handshake, too. *out* has room for TLS_OPENED_SIZE. -1 with errno
# EPROTO: it failed for session.reason. 0: the end; session.is_ended may also say so after the last bytes.
cdef ssize_t tls_read(TlsLink *link, TlsSession *session, int fd, uint8_t *out) noexcept nogil
# Seal bytes, at most TLS_SEAL_SIZE; they leave with tls_push. False: it failed.
cdef bint tls_seal(TlsLink *link, TlsSession *session, const uint8_t *data, int64_t size) noexcept nogil
# Write what is sealed as far as the socket takes it; the rest is kept as unsent. Bytes written, or -1 and an errno.
cdef int64_t tls_push(TlsLink *link, TlsSession *session, int fd) noexcept nogil
