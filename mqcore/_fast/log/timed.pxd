# The properties by which a message says when it wants to be delivered, and those that the broker adds.
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef struct TextSpan:               # borrowed; size 0 = absent
    const uint8_t *at
    int32_t size

cdef struct TimedProperties:
    TextSpan delay_sec              # TIMER_DELAY_SEC
    TextSpan delay_ms               # TIMER_DELAY_MS
    TextSpan deliver_ms             # TIMER_DELIVER_MS
    TextSpan out_ms                 # TIMER_OUT_MS
    TextSpan roll_times             # TIMER_ROLL_TIMES
    TextSpan delete_key             # TIMER_DEL_UNIQKEY
    TextSpan unique_key             # UNIQ_KEY
    TextSpan real_topic             # REAL_TOPIC
    TextSpan real_queue_id          # REAL_QID

cdef enum TimedVerdict:
    TIMED_NOW                       # it does not wait
    TIMED_WAITS                     # it does, until *deliver_time
    TIMED_ILLEGAL                   # no number, too far away, or a deletion that comes too late

# Find them all in one pass; find_property's rules.
cdef void find_timed(const uint8_t *props, int32_t size, TimedProperties *out) noexcept nogil
# Whether one of *props* asks the broker for a time. TIMER_OUT_MS says that it was asked before.
cdef bint is_timed(const TimedProperties *found) noexcept nogil
# When a message that comes in at *now* wants to be delivered: seconds before milliseconds before a date.
cdef TimedVerdict judge_timed(const TimedProperties *found, int64_t now, int64_t max_delay_ms,
                              int64_t *deliver_time) noexcept nogil
# The slot that a message due at *deliver_time* waits in: due in (slot, slot + precision].
cdef inline int64_t slot_of(int64_t deliver_time, int64_t precision_ms) noexcept nogil:
    return (deliver_time - 1) // precision_ms * precision_ms
# Java's Long.parseLong; False where that throws.
cdef bint parse_long(const TextSpan *text, int64_t *out) noexcept nogil
# Write NAME 0x01 value 0x02 to out[0:]; the bytes written.
cdef int32_t put_number_property(uint8_t *out, const char *name, int32_t name_size, int64_t value) noexcept nogil
cdef int32_t put_text_property(uint8_t *out, const char *name, int32_t name_size, const uint8_t *value,
                               int32_t value_size) noexcept nogil
