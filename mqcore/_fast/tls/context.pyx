"""Contexts of TLS servers.

Sessions are not kept and tickets not given: connections of this protocol last for hours, and any worker may accept the
next one."""

from mqcore._fast.tls.library cimport (OPENSSL_CTRL_MIN_PROTO_VERSION, OPENSSL_CTRL_MODE, OPENSSL_CTRL_SESS_CACHE_MODE,
                                       OPENSSL_FILETYPE_PEM, OPENSSL_MODE_RELEASE_BUFFERS, OPENSSL_OP_NO_COMPRESSION,
                                       OPENSSL_OP_NO_RENEGOTIATION, OPENSSL_OP_NO_TICKET, OPENSSL_TLS1_2,
                                       OPENSSL_VERIFY_FAIL_IF_NO_PEER_CERT, OPENSSL_VERIFY_NONE, OPENSSL_VERIFY_PEER,
                                       load_openssl, openssl, openssl_reason)

from mqcore.errors import TlsError


cdef checked(bint is_good, str what):
    cdef const char *reason
    if not is_good:
        reason = openssl_reason()
        raise TlsError(f"{what}: " + ("refused by OpenSSL" if reason == NULL else reason.decode()))


cdef class ServerContext:
    """TLS 1.2 and 1.3 with the certificate chain and key in two PEM files.

    With *trust*, a PEM file, or "" for the system's, peers that show a certificate are checked against it; *requires*
    refuses those that show none. None asks nobody. Raises TlsError, TlsUnavailableError.
    """

    def __init__(self, str certificate not None, str key not None, str password="", str trust=None,
                 bint requires=False):
        load_openssl()
        if self.pointer == NULL:
            self.pointer = openssl.SSL_CTX_new(openssl.TLS_server_method())
        checked(self.pointer != NULL, "context")
        openssl.ERR_clear_error()
        openssl.SSL_CTX_ctrl(self.pointer, OPENSSL_CTRL_MIN_PROTO_VERSION, OPENSSL_TLS1_2, NULL)
        # Ten thousand connections that are silent do not hold 34 KiB each.
        openssl.SSL_CTX_ctrl(self.pointer, OPENSSL_CTRL_MODE, OPENSSL_MODE_RELEASE_BUFFERS, NULL)
        openssl.SSL_CTX_ctrl(self.pointer, OPENSSL_CTRL_SESS_CACHE_MODE, 0, NULL)
        openssl.SSL_CTX_set_options(
            self.pointer, OPENSSL_OP_NO_TICKET | OPENSSL_OP_NO_COMPRESSION | OPENSSL_OP_NO_RENEGOTIATION)
        openssl.SSL_CTX_set_num_tickets(self.pointer, 0)
        self._show(certificate.encode(), key.encode(), password.encode())
        self._ask(trust, requires)

    cdef _show(self, bytes certificate, bytes key, bytes password):
        # An empty one, too: without any, OpenSSL would ask at the terminal.
        self.password = password
        openssl.SSL_CTX_set_default_passwd_cb_userdata(self.pointer, <char *>self.password)
        checked(openssl.SSL_CTX_use_certificate_chain_file(self.pointer, certificate) == 1, "certificate")
        checked(openssl.SSL_CTX_use_PrivateKey_file(self.pointer, key, OPENSSL_FILETYPE_PEM) == 1, "key")
        checked(openssl.SSL_CTX_check_private_key(self.pointer) == 1, "key and certificate")

    cdef _ask(self, trust, bint requires):
        cdef int mode = OPENSSL_VERIFY_PEER
        cdef void *names
        cdef bytes path
        if trust is None:
            openssl.SSL_CTX_set_verify(self.pointer, OPENSSL_VERIFY_NONE, NULL)
            return
        path = trust.encode()
        if path:
            checked(openssl.SSL_CTX_load_verify_locations(self.pointer, path, NULL) == 1, "trusted certificates")
            names = openssl.SSL_load_client_CA_file(path)
            checked(names != NULL, "trusted certificates")
            openssl.SSL_CTX_set_client_CA_list(self.pointer, names)
        else:
            checked(openssl.SSL_CTX_set_default_verify_paths(self.pointer) == 1, "the system's trusted certificates")
        if requires:
            mode |= OPENSSL_VERIFY_FAIL_IF_NO_PEER_CERT
        openssl.SSL_CTX_set_verify(self.pointer, mode, NULL)

    def __dealloc__(self):
        if self.pointer != NULL:
            openssl.SSL_CTX_free(self.pointer)
