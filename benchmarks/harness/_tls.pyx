# cython: language_level=3
"""TLS for the load: records are read ahead in large pieces, so that a server that sends many small ones costs it little."""

from libc cimport errno as system           # so that system.errno can be set
from libc.errno cimport EAGAIN, ECONNRESET

cdef extern from "<dlfcn.h>" nogil:
    void *dlopen(const char *path, int flags)
    void *dlsym(void *library, const char *name)
    int RTLD_NOW, RTLD_LOCAL

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *fds, unsigned long count, int timeout_ms)
    short POLLIN, POLLOUT

# Numbers of OpenSSL's headers.
cdef enum:
    CTRL_MODE = 33
    CTRL_SET_READ_AHEAD = 41
    MODE_PARTIAL_AND_MOVING = 3
    ERROR_WANT_READ = 2
    ERROR_WANT_WRITE = 3
    READ_AHEAD_SIZE = 262144

ctypedef void *(*Maker)(void *) noexcept nogil
ctypedef void (*Freer)(void *) noexcept nogil
ctypedef long (*Control)(void *, int, long, void *) noexcept nogil
ctypedef void (*SetSize)(void *, size_t) noexcept nogil
ctypedef int (*SetNumber)(void *, int) noexcept nogil
ctypedef int (*Step)(void *) noexcept nogil
ctypedef int (*Mover)(void *, void *, int) noexcept nogil

cdef Maker client_method, new_context, new_ssl
cdef Freer free_ssl, clear_errors
cdef Control context_control
cdef SetSize set_read_size
cdef SetNumber set_fd, get_error
cdef Step connect_step
cdef Mover read_some, write_some
cdef void *context = NULL


cdef void *symbol(void *library, const char *name) except NULL:
    cdef void *found = dlsym(library, name)
    if found == NULL:
        raise OSError(f"OpenSSL has no {name.decode()}")
    return found


cdef int tls_load(const char *path) except -1:
    global client_method, new_context, new_ssl, free_ssl, clear_errors, context_control, set_read_size, set_fd
    global get_error, connect_step, read_some, write_some, context
    cdef void *library
    if context != NULL:
        return 0
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL)
    if library == NULL:
        raise OSError(f"cannot load {path.decode()}")
    client_method = <Maker>symbol(library, "TLS_client_method")
    new_context = <Maker>symbol(library, "SSL_CTX_new")
    new_ssl = <Maker>symbol(library, "SSL_new")
    free_ssl = <Freer>symbol(library, "SSL_free")
    clear_errors = <Freer>symbol(library, "ERR_clear_error")
    context_control = <Control>symbol(library, "SSL_CTX_ctrl")
    set_read_size = <SetSize>symbol(library, "SSL_CTX_set_default_read_buffer_len")
    set_fd = <SetNumber>symbol(library, "SSL_set_fd")
    get_error = <SetNumber>symbol(library, "SSL_get_error")
    connect_step = <Step>symbol(library, "SSL_connect")
    read_some = <Mover>symbol(library, "SSL_read")
    write_some = <Mover>symbol(library, "SSL_write")
    context = new_context(client_method(NULL))
    if context == NULL:
        raise OSError("OpenSSL makes no context")
    context_control(context, CTRL_MODE, MODE_PARTIAL_AND_MOVING, NULL)
    context_control(context, CTRL_SET_READ_AHEAD, 1, NULL)
    set_read_size(context, READ_AHEAD_SIZE)
    return 0


cdef void *tls_connect(int fd, int timeout_ms) noexcept nogil:
    cdef void *ssl = new_ssl(context)
    cdef pollfd waiting
    cdef int done, error
    if ssl == NULL:
        return NULL
    set_fd(ssl, fd)
    waiting.fd = fd
    while True:
        clear_errors(NULL)
        done = connect_step(ssl)
        if done == 1:
            return ssl
        error = get_error(ssl, done)
        waiting.events = POLLOUT if error == ERROR_WANT_WRITE else POLLIN
        if (error != ERROR_WANT_READ and error != ERROR_WANT_WRITE) or poll(&waiting, 1, timeout_ms) <= 0:
            free_ssl(ssl)
            return NULL


cdef void tls_free(void *ssl) noexcept nogil:
    free_ssl(ssl)


cdef ssize_t failed(void *ssl, int result) noexcept nogil:
    cdef int error = get_error(ssl, result)
    system.errno = EAGAIN if error == ERROR_WANT_READ or error == ERROR_WANT_WRITE else ECONNRESET
    return -1


cdef ssize_t tls_receive(void *ssl, void *out, size_t size) noexcept nogil:
    cdef size_t total = 0
    cdef int got
    clear_errors(NULL)
    while total < size:
        got = read_some(ssl, <char *>out + total, <int>(size - total))
        if got <= 0:
            return <ssize_t>total if total > 0 else failed(ssl, got)
        total += <size_t>got
    return <ssize_t>total


cdef ssize_t tls_send(void *ssl, const void *data, size_t size) noexcept nogil:
    cdef int sent
    clear_errors(NULL)
    sent = write_some(ssl, <void *>data, <int>size)
    return sent if sent > 0 else failed(ssl, sent)
