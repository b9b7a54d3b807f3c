# The send worker's side of a pull: request into a pull worker's ring, answer out of it to the socket.
from mqcore._fast.send.state cimport Connection, SendState
from mqcore._fast.wire.header cimport CommandView

cdef enum PullOutcome:
    PULL_GIVEN                  # with a pull worker, or refused as busy
    PULL_UNUSUAL                # nothing was done: the broker process decides

cdef PullOutcome handle_pull(SendState *state, Connection *connection, const CommandView *command) noexcept nogil
# Write out what the pull workers have answered.
cdef void take_pull_replies(SendState *state) noexcept nogil
# A pull worker was started anew: what its predecessor held is answered "ask again".
cdef void check_pullers(SendState *state) noexcept nogil
