"""Quotas of sends: asked before anything is done, so that what is refused has left nothing behind.

A send that must wait less than quotaDelayMaxMillis is kept as it came and handled when its time has come: it is stored,
and answered, late. In the order of their times, which is that of their coming for whoever draws on the same quota.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from mqcore._fast.base.atomics cimport put_relaxed
from mqcore._fast.base.big_endian cimport load_i32
from mqcore._fast.segment.quotas cimport (QUOTA_CLIENT, QUOTA_GROUP, QUOTA_PULL, QUOTA_SEND, QUOTA_TOPIC, QuotaDraw,
                                          QuotaKind, quota_charge, quota_draw_on, quota_key, quota_wait_ns)
from mqcore._fast.send.connections cimport connection_id, find_connection
from mqcore._fast.send.pressure cimport CAUSE_PARKED, refuse_overload
from mqcore._fast.send.request cimport answer_plain
from mqcore._fast.send.state cimport Connection, Parked, SendState
from mqcore._fast.wire.header cimport CommandView, TextView, field_of, text_to_bool

from mqcore.codes import RequestCode, ResponseCode

cdef int32_t SEND_LONG = RequestCode.SEND_MESSAGE
cdef int32_t SEND_BATCH = RequestCode.SEND_BATCH_MESSAGE
cdef int32_t SYSTEM_BUSY = ResponseCode.SYSTEM_BUSY

cdef enum:
    NS_PER_MS = 1_000_000
    PARKED_BYTES_MAX = 64 << 20
    PARKED_MIN = 256
    FLAG_ONEWAY = 2
    REMARK_MAX = 200

cdef const char *KIND_WORDS[3]
KIND_WORDS[:] = [b"topic", b"group", b"client"]


cdef int64_t count_members(const CommandView *command) noexcept nogil:
    # Of a batch each message says how long it is.
    cdef int64_t count = 0
    cdef int32_t at = 0
    cdef int32_t size
    while command.body_size - at >= 4:
        size = load_i32(command.body + at)
        if size < 4 or size > command.body_size - at:
            break
        count += 1
        at += size
    return max(<int64_t>1, count)


cdef int64_t count_messages(const SendState *state, const CommandView *command) noexcept nogil:
    cdef TextView mark
    if not state.quotas.counts_messages:
        return 1
    mark = field_of(command, b"batch", 5) if command.code == SEND_LONG else field_of(command, b"m", 1)
    if command.code == SEND_BATCH or (mark.at != NULL and text_to_bool(&mark)):
        return count_members(command)
    return 1


cdef void draw_on_name(const SendState *state, QuotaKind kind, const TextView *name, QuotaDraw *draw) noexcept nogil:
    if state.quotas.has_kind[<int>kind] and name.at != NULL:
        quota_draw_on(&state.quotas, kind, quota_key(QUOTA_SEND, kind, name.at, name.size), draw)


cdef void find_draw(const SendState *state, const Connection *connection, const CommandView *command,
                    QuotaDraw *draw) noexcept nogil:
    cdef bint is_long = command.code == SEND_LONG
    cdef TextView topic = field_of(command, b"topic", 5) if is_long else field_of(command, b"b", 1)
    cdef TextView group = field_of(command, b"producerGroup", 13) if is_long else field_of(command, b"a", 1)
    draw.count = 0
    draw_on_name(state, QUOTA_TOPIC, &topic, draw)
    draw_on_name(state, QUOTA_GROUP, &group, draw)
    if state.quotas.has_kind[<int>QUOTA_CLIENT]:
        quota_draw_on(&state.quotas, QUOTA_CLIENT,
                      quota_key(QUOTA_SEND, QUOTA_CLIENT, connection.address, connection.address_size), draw)


cdef inline bint is_before(const Parked *first, const Parked *second) noexcept nogil:
    return first.due_ms < second.due_ms or (first.due_ms == second.due_ms and first.number < second.number)


cdef void swap(Parked *first, Parked *second) noexcept nogil:
    cdef Parked kept = first[0]
    first[0] = second[0]
    second[0] = kept


cdef bint grow_parked(SendState *state) noexcept nogil:
    cdef int64_t capacity = max(<int64_t>PARKED_MIN, 2 * state.parked.capacity)
    cdef Parked *parked = <Parked *>realloc(state.parked.sends, capacity * sizeof(Parked))
    if parked == NULL:
        return False
    state.parked.sends = parked
    state.parked.capacity = capacity
    return True


cdef bint park(SendState *state, const Connection *connection, const uint8_t *payload, int32_t size,
               int64_t due_ms) noexcept nogil:
    cdef int64_t at = state.parked.count
    cdef Parked *entry
    if state.parked.bytes + size > PARKED_BYTES_MAX or (at >= state.parked.capacity and not grow_parked(state)):
        return False
    entry = &state.parked.sends[at]
    entry.payload = <uint8_t *>malloc(size)
    if entry.payload == NULL:
        return False
    memcpy(entry.payload, payload, size)
    entry.size = size
    entry.connection_id = connection_id(state, connection)
    entry.due_ms = due_ms
    entry.number = state.parked.number
    state.parked.number += 1
    state.parked.bytes += size
    state.parked.count += 1
    while at > 0 and is_before(&state.parked.sends[at], &state.parked.sends[(at - 1) >> 1]):
        swap(&state.parked.sends[at], &state.parked.sends[(at - 1) >> 1])
        at = (at - 1) >> 1
    return True


cdef void quota_drop(SendState *state) noexcept nogil:
    cdef int64_t at = 0
    cdef int64_t child
    state.parked.bytes -= state.parked.sends[0].size
    free(state.parked.sends[0].payload)
    state.parked.count -= 1
    state.parked.sends[0] = state.parked.sends[state.parked.count]
    while True:
        child = 2 * at + 1
        if child >= state.parked.count:
            return
        if child + 1 < state.parked.count and is_before(&state.parked.sends[child + 1], &state.parked.sends[child]):
            child += 1
        if not is_before(&state.parked.sends[child], &state.parked.sends[at]):
            return
        swap(&state.parked.sends[at], &state.parked.sends[child])
        at = child


cdef const uint8_t *quota_due(SendState *state, Connection **connection, int32_t *size) noexcept nogil:
    while state.parked.count > 0 and state.parked.sends[0].due_ms <= state.turn_ms:
        connection[0] = find_connection(state, state.parked.sends[0].connection_id)
        if connection[0] != NULL:
            size[0] = state.parked.sends[0].size
            return state.parked.sends[0].payload
        quota_drop(state)
    return NULL


cdef int quota_timeout(const SendState *state, int timeout) noexcept nogil:
    if state.parked.count == 0:
        return timeout
    return <int>min(<int64_t>timeout, max(<int64_t>0, state.parked.sends[0].due_ms - state.turn_ms))


cdef void quota_close(SendState *state) noexcept nogil:
    while state.parked.count > 0:
        quota_drop(state)
    free(state.parked.sends)


cdef void refuse_above(SendState *state, Connection *connection, const CommandView *command, QuotaKind kind,
                       int64_t wait_ms) noexcept nogil:
    cdef char remark[REMARK_MAX]
    put_relaxed(&state.row.quota_refused, state.row.quota_refused + 1)
    if command.flag & FLAG_ONEWAY:
        return
    snprintf(remark, REMARK_MAX, "[REJECTREQUEST]system busy, start flow control for a while, "
             "cause: quota of the %s, this send would have to wait for %lldms", KIND_WORDS[<int>kind],
             <long long>wait_ms)
    answer_plain(state, connection, command.serialize_type, command.opaque, SYSTEM_BUSY, remark)


cdef QuotaVerdict quota_ask(SendState *state, Connection *connection, const CommandView *command,
                            const uint8_t *payload, int32_t size) noexcept nogil:
    cdef QuotaDraw draw
    cdef int64_t now_ns = state.turn_ms * <int64_t>NS_PER_MS
    cdef int64_t wait_ns, wait_ms
    find_draw(state, connection, command, &draw)
    if draw.count == 0:
        return QUOTA_PASSED
    wait_ns = quota_wait_ns(state.shared, &draw, now_ns)
    wait_ms = (wait_ns + NS_PER_MS - 1) // NS_PER_MS
    if wait_ms > state.settings.quota_delay_max_ms:
        refuse_above(state, connection, command, draw.slowest, wait_ms)
        return QUOTA_STOPPED
    if wait_ms > 0:
        if not park(state, connection, payload, size, state.turn_ms + wait_ms):
            if not command.flag & FLAG_ONEWAY:
                refuse_overload(state, connection, command, CAUSE_PARKED)
            return QUOTA_STOPPED
        put_relaxed(&state.row.quota_delayed, state.row.quota_delayed + 1)
    quota_charge(state.shared, &draw, count_messages(state, command), command.body_size, now_ns)
    return QUOTA_PASSED if wait_ms == 0 else QUOTA_STOPPED


cdef int64_t quota_pull_key(const SendState *state, const Connection *connection) noexcept nogil:
    if not state.settings.limits_pulling_clients:
        return 0
    return quota_key(QUOTA_PULL, QUOTA_CLIENT, connection.address, connection.address_size)
