# Sends that are above a quota wait here, as they came, for a while; what would have to wait longer is refused.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.send.state cimport Connection, SendState
from mqcore._fast.wire.header cimport CommandView

cdef enum QuotaVerdict:
    QUOTA_PASSED
    QUOTA_STOPPED               # it waits, or has been refused

# Ask about a send whose frame is payload[0:size].
cdef QuotaVerdict quota_ask(SendState *state, Connection *connection, const CommandView *command,
                            const uint8_t *payload, int32_t size) noexcept nogil
# The frame that is due at turn_ms, and its connection; NULL if none is, and a size of -1 if there is none at all. It is
# there until quota_drop.
cdef const uint8_t *quota_due(SendState *state, Connection **connection, int32_t *size) noexcept nogil
cdef void quota_drop(SendState *state) noexcept nogil
# How long until one is due, ms, if that is sooner than *timeout*.
cdef int quota_timeout(const SendState *state, int timeout) noexcept nogil
# The key of a connection's client for pulls; 0 = none is asked for.
cdef int64_t quota_pull_key(const SendState *state, const Connection *connection) noexcept nogil
cdef void quota_close(SendState *state) noexcept nogil
