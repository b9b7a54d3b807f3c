# What a send worker refuses because too much is going on, in RocketMQ's words, with the cause behind them.
from libc.stdint cimport int32_t, int64_t

from mqcore._fast.send.state cimport Connection, SendState
from mqcore._fast.wire.header cimport CommandView

cdef enum Cause:
    CAUSE_NONE, CAUSE_DISK, CAUSE_CPU, CAUSE_SHARED_CPU, CAUSE_REPLICA, CAUSE_PULLS, CAUSE_LINK, CAUSE_PARKED, CAUSES

# The bytes of *connection* are about to be read: note since when they have been here.
cdef void note_arrival(SendState *state, Connection *connection) noexcept nogil
# A turn begins, or ends: what it has taken is what those who came meanwhile have waited.
cdef void note_turn_start(SendState *state) noexcept nogil
cdef void note_turn_end(SendState *state) noexcept nogil

# Whether the request is refused, and answered, because it has waited for *limit_ms*; 0 is no limit.
cdef bint is_too_late(SendState *state, Connection *connection, const CommandView *command,
                      int64_t limit_ms) noexcept nogil
# Look whether an append has been under way for so long that a send would only wait for it.
cdef void look_at_page_cache(SendState *state) noexcept nogil
# The put lock was not to be had in time; and it was.
cdef void note_put_busy(SendState *state) noexcept nogil
cdef void note_put(SendState *state) noexcept nogil
# Answer a send that has not got it.
cdef void refuse_page_cache_busy(SendState *state, Connection *connection, const CommandView *command) noexcept nogil
# The same because too many answers wait for disk or slave.
cdef bint has_too_many_waiting(SendState *state, Connection *connection, const CommandView *command) noexcept nogil
# Answer SYSTEM_BUSY.
cdef void refuse_overload(SendState *state, Connection *connection, const CommandView *command,
                          Cause cause) noexcept nogil
cdef void refuse_late(SendState *state, Connection *connection, int32_t serialize_type, int32_t opaque,
                      int64_t waited_ms, int64_t queue_size, Cause cause) noexcept nogil
