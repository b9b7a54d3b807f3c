"""Timer properties, read and written. The twin is mqcore.store.timer.timed. Source: broker/util/HookUtils.java."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy, memset

from mqcore._fast.wire.header cimport TextView, text_to_i64
from mqcore._fast.wire.replies cimport put_decimal

cdef enum:
    PAIR_END = 2
    NAME_END = 1


cdef inline bint is_name(const uint8_t *at, int32_t size, const char *name, int32_t name_size) noexcept nogil:
    return size == name_size and memcmp(at, name, name_size) == 0


cdef TextSpan *span_of(TimedProperties *out, const uint8_t *name, int32_t size) noexcept nogil:
    # Where the value of the property goes; NULL for one that says nothing of timers.
    if name[0] == c"T" and size > 9:
        if is_name(name, size, b"TIMER_DELAY_SEC", 15):
            return &out.delay_sec
        if is_name(name, size, b"TIMER_DELAY_MS", 14):
            return &out.delay_ms
        if is_name(name, size, b"TIMER_DELIVER_MS", 16):
            return &out.deliver_ms
        if is_name(name, size, b"TIMER_OUT_MS", 12):
            return &out.out_ms
        if is_name(name, size, b"TIMER_ROLL_TIMES", 16):
            return &out.roll_times
        if is_name(name, size, b"TIMER_DEL_UNIQKEY", 17):
            return &out.delete_key
    elif name[0] == c"U" and is_name(name, size, b"UNIQ_KEY", 8):
        return &out.unique_key
    elif name[0] == c"R":
        if is_name(name, size, b"REAL_TOPIC", 10):
            return &out.real_topic
        if is_name(name, size, b"REAL_QID", 8):
            return &out.real_queue_id
    return NULL


cdef void find_timed(const uint8_t *props, int32_t size, TimedProperties *out) noexcept nogil:
    cdef const uint8_t *at = props
    cdef const uint8_t *end = props + size
    cdef const uint8_t *stop
    cdef const uint8_t *value
    cdef TextSpan *span
    memset(out, 0, sizeof(TimedProperties))
    while at < end:
        stop = <const uint8_t *>memchr(at, PAIR_END, end - at)
        if stop == NULL:
            stop = end
        value = <const uint8_t *>memchr(at, NAME_END, stop - at)
        if value != NULL and value > at and stop - value > 1:
            span = span_of(out, at, <int32_t>(value - at))
            if span != NULL:
                span.at = value + 1
                span.size = <int32_t>(stop - value - 1)
        at = stop + 1


cdef bint is_timed(const TimedProperties *found) noexcept nogil:
    return found.out_ms.size == 0 and (found.delay_sec.size > 0 or found.delay_ms.size > 0
                                       or found.deliver_ms.size > 0)


cdef bint parse_long(const TextSpan *text, int64_t *out) noexcept nogil:
    cdef TextView view
    cdef int32_t at = 0
    memset(&view, 0, sizeof(view))
    view.at = text.at
    view.size = text.size
    # Java takes any number of zeros in front; a sign is the other reader's.
    while view.size > 19 and text.at[at] == c"0":
        at += 1
        view.at = text.at + at
        view.size -= 1
    return text_to_i64(&view, out)


cdef TimedVerdict judge_timed(const TimedProperties *found, int64_t now, int64_t max_delay_ms,
                              int64_t *deliver_time) noexcept nogil:
    cdef int64_t value
    # As in Java, a sum that is too large begins again at the other end.
    if found.delay_sec.size > 0:
        if not parse_long(&found.delay_sec, &value):
            return TIMED_ILLEGAL
        deliver_time[0] = now + value * 1000
    elif found.delay_ms.size > 0:
        if not parse_long(&found.delay_ms, &value):
            return TIMED_ILLEGAL
        deliver_time[0] = now + value
    elif not parse_long(&found.deliver_ms, deliver_time):
        return TIMED_ILLEGAL
    if deliver_time[0] <= now:
        return TIMED_ILLEGAL if found.delete_key.size > 0 else TIMED_NOW
    return TIMED_ILLEGAL if deliver_time[0] - now > max_delay_ms else TIMED_WAITS


cdef int32_t put_text_property(uint8_t *out, const char *name, int32_t name_size, const uint8_t *value,
                               int32_t value_size) noexcept nogil:
    memcpy(out, name, name_size)
    out[name_size] = NAME_END
    memcpy(out + name_size + 1, value, value_size)
    out[name_size + 1 + value_size] = PAIR_END
    return name_size + value_size + 2


cdef int32_t put_number_property(uint8_t *out, const char *name, int32_t name_size, int64_t value) noexcept nogil:
    cdef uint8_t digits[20]
    return put_text_property(out, name, name_size, digits, put_decimal(digits, value))


def judge(const uint8_t[::1] properties not None, int64_t now, int64_t max_delay_ms):
    """When a message with these *properties* that comes in at *now* is due, ms.

    None: it does not wait, as none of them asks for it, or the time has come. -1: illegal. All times ms.
    """
    cdef TimedProperties found
    cdef int64_t deliver_time = 0
    cdef TimedVerdict verdict
    if properties.shape[0] == 0:
        return None
    find_timed(&properties[0], <int32_t>properties.shape[0], &found)
    if not is_timed(&found):
        return None
    verdict = judge_timed(&found, now, max_delay_ms, &deliver_time)
    if verdict == TIMED_ILLEGAL:
        return -1
    return deliver_time if verdict == TIMED_WAITS else None
