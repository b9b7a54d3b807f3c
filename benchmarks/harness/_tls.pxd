# A client's end of TLS on a non-blocking socket, by the OpenSSL that Python uses; it trusts any server. The library does
# its own reading and writing here, unlike in the broker that is measured.

# 0, or -1: the library or one of its functions is not there.
cdef int tls_load(const char *path) except -1
# Shake hands within *timeout_ms*; NULL if that failed.
cdef void *tls_connect(int fd, int timeout_ms) noexcept nogil
cdef void tls_free(void *ssl) noexcept nogil
# As recv and send: -1 with errno EAGAIN is nothing now. A read gives all that there is and fits.
cdef ssize_t tls_receive(void *ssl, void *out, size_t size) noexcept nogil
cdef ssize_t tls_send(void *ssl, const void *data, size_t size) noexcept nogil
