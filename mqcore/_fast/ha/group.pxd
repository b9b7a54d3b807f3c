# What a broker of a failover group is to the others, and what all of them have.
from mqcore._fast.ha.state cimport HaState

# Go by the role on the board: who leads no more has no slaves, and who leads has no master.
cdef void follow_role(HaState *state) noexcept nogil
# Of a master: move confirmed_offset to what all required members have now.
cdef void count_confirmed(HaState *state) noexcept nogil
