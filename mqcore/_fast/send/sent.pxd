# What is said to who has sent: where his message lies.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.send.state cimport Connection, SendState, Waiting

cdef enum:
    MESSAGE_ID_MAX = 56             # of the text of an offset message id

# The offset message id of what lies at *physical_offset*; the size of its text.
cdef int32_t put_message_id(const SendState *state, int64_t physical_offset, uint8_t *out) noexcept nogil

# Those of the members of a batch, *count* of state.starts, with commas between: to be freed; NULL when memory is short.
cdef uint8_t *join_message_ids(SendState *state, int32_t count, int32_t *size) noexcept nogil

# Answer for what is stored, *code* being SUCCESS or what is lacking.
cdef void answer_send(SendState *state, Connection *connection, const Waiting *sent, int32_t code) noexcept nogil

# The texts that most answers consist of, by what the settings say; what is returned is to be kept as long as they.
cdef object take_answer_text(SendState *state)
