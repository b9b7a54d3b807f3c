# SEND_REPLY_MESSAGE and its V2 in the common case: the answer is kept, and pushed to who asked, over a connection that
# this worker has; the answerer hears what the asker says to it.
from mqcore._fast.send.request cimport SendOutcome
from mqcore._fast.send.state cimport Connection, SendState
from mqcore._fast.wire.header cimport CommandView

cdef SendOutcome handle_reply(SendState *state, Connection *connection, const CommandView *command) noexcept nogil
# An asker's word on a push. One that nobody waits for any more is dropped.
cdef void handle_push_answer(SendState *state, const Connection *connection, const CommandView *command) noexcept nogil
# Give up pushes whose time is over.
cdef void pushes_expire(SendState *state) noexcept nogil
# Give up pushes over connections that have been closed.
cdef void pushes_lose(SendState *state) noexcept nogil
cdef void pushes_free(SendState *state) noexcept nogil
