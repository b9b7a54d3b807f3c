# END_TRANSACTION in the common case: the half message is found, its message goes to its topic, the half is done with.
from mqcore._fast.send.request cimport SendOutcome
from mqcore._fast.send.state cimport Connection, SendState
from mqcore._fast.wire.header cimport CommandView

# SEND_UNUSUAL: nothing was done, the broker process decides. Never waits for the disk: a half message that has left
# memory is for the broker process too.
cdef SendOutcome handle_end_transaction(SendState *state, Connection *connection,
                                        const CommandView *command) noexcept nogil
