# A message that wants to be delivered later: into the timer topic, with its real place in its properties.
from libc.stdint cimport int32_t, uint8_t

from mqcore._fast.log.record cimport NewRecord
from mqcore._fast.send.state cimport SendState

cdef enum TimerOutcome:
    TIMER_NOT                       # its time has come, or it has been asked before: stored as any other
    TIMER_REWRITTEN
    TIMER_UNUSUAL                   # the broker process decides

# Where the message goes, and what names it.
cdef struct TimerPlace:
    uint8_t *text               # fields.properties: with room for *capacity* bytes
    int32_t capacity
    const uint8_t *wait         # the value of WAIT, which comes back into the text; NULL = none
    int32_t wait_size
    int32_t topic_row           # set on TIMER_REWRITTEN, as what follows
    int32_t queue_row
    uint8_t *handle             # by which its producer takes it back; to be freed
    int32_t handle_size

# Whether a property, whose name is longer than 11, has to do with timers.
cdef bint names_timer(const uint8_t *name) noexcept nogil
# Rewrite *fields*; on TIMER_REWRITTEN topic and queue are those of the timer topic.
cdef TimerOutcome rewrite_timer(SendState *state, NewRecord *fields, TimerPlace *place) noexcept nogil
