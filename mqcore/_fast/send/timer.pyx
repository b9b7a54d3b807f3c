"""Timers on the way of a message into the log; mqcore.broker.services.timers does the same with more thought."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from mqcore._fast.base.atomics cimport now_ms, observe
from mqcore._fast.log.record cimport SYS_TRANSACTION_MASK, NewRecord
from mqcore._fast.log.timed cimport (TIMED_NOW, TIMED_WAITS, TimedProperties, TimedVerdict, find_timed, is_timed,
                                     judge_timed, put_number_property, put_text_property, slot_of)
from mqcore._fast.send.state cimport SendState
from mqcore._fast.wire.replies cimport put_decimal

cdef enum:
    PAIR_END = 2
    ADDED_MAX = 256                 # names and numbers of what is added, without the topic's name
    HANDLE_MAX = 4096
    TIMER_TOPIC_SIZE = 19

cdef const char *TIMER_TOPIC = "rmq_sys_wheel_timer"
cdef const char *BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


cdef bint names_timer(const uint8_t *name) noexcept nogil:
    return memcmp(name, b"TIMER_", 6) == 0


cdef int32_t encode_base64(const uint8_t *text, int32_t size, uint8_t *out) noexcept nogil:
    # The URL alphabet, with padding; the bytes written.
    cdef int32_t at = 0
    cdef int32_t end = 0
    cdef uint32_t word
    while at < size:
        word = <uint32_t>text[at] << 16
        if at + 1 < size:
            word |= <uint32_t>text[at + 1] << 8
        if at + 2 < size:
            word |= text[at + 2]
        out[end] = <uint8_t>BASE64[word >> 18]
        out[end + 1] = <uint8_t>BASE64[word >> 12 & 63]
        out[end + 2] = <uint8_t>BASE64[word >> 6 & 63] if at + 1 < size else c"="
        out[end + 3] = <uint8_t>BASE64[word & 63] if at + 2 < size else c"="
        at += 3
        end += 4
    return end


cdef int32_t join(uint8_t *out, int32_t at, const uint8_t *text, int32_t size) noexcept nogil:
    memcpy(out + at, text, size)
    out[at + size] = c" "
    return at + size + 1


cdef bint make_handle(SendState *state, const NewRecord *fields, const TimedProperties *found, int64_t slot,
                      TimerPlace *place) noexcept nogil:
    # v1 topic broker time key: what names the message when its producer wants it back.
    cdef uint8_t text[HANDLE_MAX]
    cdef uint8_t digits[20]
    cdef int32_t size = 3
    if fields.topic_size + state.settings.broker_name_size + found.unique_key.size + 64 > HANDLE_MAX:
        return False
    memcpy(text, b"v1 ", 3)
    size = join(text, size, fields.topic, fields.topic_size)
    size = join(text, size, state.settings.broker_name, state.settings.broker_name_size)
    # One more, or it would be rounded down to the slot before.
    size = join(text, size, digits, put_decimal(digits, slot + 1))
    if found.unique_key.size > 0:
        size = join(text, size, found.unique_key.at, found.unique_key.size)
    else:
        size = join(text, size, <const uint8_t *>b"null", 4)
    place.handle = <uint8_t *>malloc((size + 2) // 3 * 4)
    if place.handle == NULL:
        return False
    place.handle_size = encode_base64(text, size - 1, place.handle)
    return True


cdef TimerOutcome rewrite_timer(SendState *state, NewRecord *fields, TimerPlace *place) noexcept nogil:
    cdef TimedProperties found
    cdef TimedVerdict verdict
    cdef int64_t deliver_time = 0
    cdef int64_t slot, row
    cdef uint8_t *text = place.text
    cdef int32_t end = fields.properties_size
    find_timed(text, end, &found)
    if not is_timed(&found):
        return TIMER_NOT
    row = observe(&state.shared.board.timer_row) - 1
    if fields.sys_flag & SYS_TRANSACTION_MASK or row < 0 or state.settings.timer_max_delay_ms == 0:
        return TIMER_UNUSUAL
    verdict = judge_timed(&found, now_ms(), state.settings.timer_max_delay_ms, &deliver_time)
    if verdict == TIMED_NOW:
        return TIMER_NOT
    if verdict != TIMED_WAITS or ADDED_MAX + fields.topic_size + place.wait_size > place.capacity - end:
        return TIMER_UNUSUAL
    slot = slot_of(deliver_time, state.settings.timer_precision_ms)
    if not make_handle(state, fields, &found, slot, place):
        return TIMER_UNUSUAL
    if end > 0 and text[end - 1] != PAIR_END:
        text[end] = PAIR_END
        end += 1
    if place.wait != NULL:
        end += put_text_property(text + end, "WAIT", 4, place.wait, place.wait_size)
    end += put_number_property(text + end, "TIMER_OUT_MS", 12, slot)
    end += put_text_property(text + end, "REAL_TOPIC", 10, fields.topic, fields.topic_size)
    end += put_number_property(text + end, "REAL_QID", 8, fields.queue_id)
    fields.properties_size = end - 1
    place.queue_row = <int32_t>row
    place.topic_row = state.shared.queues[row].topic_row
    fields.topic = <const uint8_t *>TIMER_TOPIC
    fields.topic_size = TIMER_TOPIC_SIZE
    fields.queue_id = 0
    return TIMER_REWRITTEN


def base64(const uint8_t[::1] text not None):
    """The URL-safe Base64 of *text*, for tests."""
    cdef int32_t size = <int32_t>text.shape[0]
    cdef uint8_t *out = <uint8_t *>malloc((size + 3) // 3 * 4)
    if out == NULL:
        raise MemoryError()
    try:
        return out[:encode_base64(&text[0] if size > 0 else NULL, size, out)]
    finally:
        free(out)
