"""TLS on the sockets of the nogil loops: OpenSSL as the interpreter has it, contexts, and what a connection needs."""
