# The master's side: slaves come, are sent the log from where they are, and report what they have.
from libc.stdint cimport int64_t

from mqcore._fast.ha.state cimport HaState

# Let in who waits at the door; as many as there are rows.
cdef void accept_slaves(HaState *state) noexcept nogil
# Read what a slave has reported. It may be gone afterwards.
cdef void read_slave(HaState *state, int slot) noexcept nogil
# Write what there is for a slave, up to a turn's share. It may be gone afterwards.
cdef void push_slave(HaState *state, int slot) noexcept nogil
# *why* goes into the log, with the errno *error* unless that is 0; NULL: there is nothing to say.
cdef void close_slave(HaState *state, int slot, const char *why, int error) noexcept nogil
# Who has not been heard for too long is closed; whose files are gone is told so in his row.
cdef void check_slaves(HaState *state) noexcept nogil
# Whether something is there that some slave could be sent now, and whether one waits for it.
cdef bint has_news(const HaState *state) noexcept nogil
cdef bint wants_news(const HaState *state) noexcept nogil
# Whether all slaves that copy have reported everything.
cdef bint is_copied(const HaState *state) noexcept nogil
# When the next slave is to be sent a heart-beat or given up, coarse ms; -1 = none is there.
cdef int64_t next_deadline(const HaState *state) noexcept nogil
# Publish what follows from all rows: how many copy, and from where on the log must be kept.
cdef void publish_slaves(HaState *state) noexcept nogil
