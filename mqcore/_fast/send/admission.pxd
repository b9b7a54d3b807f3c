# How many connections there may be, in all and from one address, over all send workers.
#
# Each worker counts its own, in counters that all can read: an address has two, by two hashes, and the lesser of their
# sums is how many connections it has, or a few more where others meet it in both.
from mqcore._fast.send.state cimport Connection, SendState

# What a predecessor has counted is gone with its connections.
cdef void forget_addresses(SendState *state) noexcept nogil
cdef void count_address(SendState *state, const Connection *connection, int change) noexcept nogil
# Whether *connection*, which is counted already, may stay.
cdef bint admits(SendState *state, const Connection *connection) noexcept nogil
