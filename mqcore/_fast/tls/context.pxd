# What a server shows its peers and asks of them, as OpenSSL has it.
from mqcore._fast.tls.library cimport SSL_CTX

cdef class ServerContext:
    cdef SSL_CTX *pointer       # connections made from it keep it, whatever becomes of this object
    cdef bytes password
    cdef _show(self, bytes certificate, bytes key, bytes password)
    cdef _ask(self, trust, bint requires)
