# The slave's side: the master's log is received where it belongs, published at whole records, and reported.
from libc.stdint cimport int64_t

from mqcore._fast.ha.state cimport HaState

# Take over the connected socket *fd*. An empty log begins at *start*: 0 = with the master's first byte, above that at
# that file; -1 = where the master begins with it. In a failover group *term* is the epoch that the master leads.
cdef bint begin_replica(HaState *state, int fd, int64_t start, int64_t term) noexcept nogil
# Read what has come, publish whole records, report. On failure replica.why says what is wrong.
cdef void read_master(HaState *state) noexcept nogil
# Report if the time has come, and give a master up that is silent.
cdef void tend_replica(HaState *state) noexcept nogil
# Whether there is something that was not worth a report when it came.
cdef bint has_more_to_report(const HaState *state) noexcept nogil
cdef int64_t replica_deadline(const HaState *state) noexcept nogil
cdef void close_replica(HaState *state) noexcept nogil
