# Clients that wait for answers of request-reply, by their ids: which connection of this worker takes them.
#
# The broker process says who they are, when it has pushed the first answer, and takes it back when the client has
# another connection. So who never asks costs nothing here, and a connection has one entry at most.
from libc.stdint cimport int32_t, uint8_t

from mqcore._fast.send.state cimport Connection, SendState

# Let *connection* take the answers for the client name[0:size]; for none any more with a size of 0.
cdef void asker_set(SendState *state, Connection *connection, const uint8_t *name, int32_t size) noexcept nogil
# NULL: it is not known here, or its connection is being closed.
cdef Connection *asker_find(const SendState *state, const uint8_t *name, int32_t size) noexcept nogil
