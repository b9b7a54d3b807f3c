"""The loop of a pull worker: requests out of rings, consume queues scanned, pulls held, ranges answered.

A pull whose group, topic, queue and subscription the broker process has found in order (a binding that is good) is
answered from the boards and the mapped consume queue alone. Any other is first asked about over the link, and waits.
"""

from libc.errno cimport ENOENT
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

import os

from mqcore._fast.base.atomics cimport (add_full, add_relaxed, coarse_ms, drain_fd, exchange_full, full_fence,
                                        monotonic_ns, now_ms, observe, peek, publish, put_relaxed, wake_fd)
from mqcore._fast.base.buffers cimport Buffer, buffer_free, buffer_put, buffer_size, buffer_take
from mqcore._fast.base.checks cimport check
from mqcore._fast.base.layout cimport (CQ_UNIT_SIZE, GET_STATUS_COMMIT_LOG_NOT_READABLE,
                                       GET_STATUS_CONSUME_QUEUE_NOT_READABLE, GET_STATUS_FOUND,
                                       GET_STATUS_MESSAGE_WAS_REMOVING, GET_STATUS_NO_MATCHED_MESSAGE,
                                       GET_STATUS_NO_MESSAGE_IN_QUEUE, GET_STATUS_OFFSET_FOUND_NULL,
                                       GET_STATUS_OFFSET_OVERFLOW_BADLY, GET_STATUS_OFFSET_OVERFLOW_ONE,
                                       GET_STATUS_OFFSET_TOO_SMALL, GET_STATUS_QUOTA_EXCEEDED,
                                       GET_STATUS_WAITED_TOO_LONG, HA_ROLE_MASTER, LINK_KIND_BINDING,
                                       LINK_KIND_LATE_PULL, LINK_KIND_OFFSET_MOVED, LINK_KIND_RESOLVE, PULL_RANGES_MAX,
                                       RING_KIND_PULL_REPLY, RING_KIND_PULL_REQUEST, RING_KIND_RESCAN,
                                       SEND_WORKERS_MAX, TICKETS_MAX, WORKER_COMMAND_STOP, WORKER_STATE_RUNNING,
                                       WORKER_STATE_STOPPED, Arrival, LatePull, LinkHead, OffsetMoved, OffsetRow,
                                       PullRange, PullReply, PullRequest, QueueRow, Resolve, TopicRow, WorkerRow)
from mqcore._fast.base.layout cimport Binding
from mqcore._fast.pull.bindings cimport (BindingTable, PullRows, binding_is_good, binding_matches, binding_of,
                                         binding_rows, binding_set_filter, binding_set_tags, bindings_close,
                                         bindings_open, bindings_sweep)
from mqcore._fast.log.mapped_file cimport FileSet, files_close, files_open, files_release, files_rest, files_trim
from mqcore._fast.pull.cold_reader cimport COLD_AFTER_BYTES, ColdReader, cold_bring_in, cold_close, cold_open
from mqcore._fast.pull.filtering cimport FILTER_SCAN_NS, FILTER_UNITS_MAX, Filtering, filter_look
from mqcore._fast.pull.held cimport (Held, HeldPulls, held_close, held_open, question_find, question_put, question_take,
                                     queue_leave, queue_put, ticket_clear, ticket_find, ticket_put)
from mqcore._fast.queues.ext cimport ExtSource
from mqcore._fast.queues.reader cimport QueueReader, ext_code_at, queues_close, queues_open, queues_rest, units_at
from mqcore._fast.queues.units cimport (SCAN_FOUND, SCAN_REMOVING, SCAN_SUGGEST_SLAVE, SCAN_UNITS_MIN, RecordFilter,
                                        RecordRange, ScanLimits, ScanResult, scan_units)
from mqcore._fast.segment.boards cimport (ROW_NONE, Shared, SharedSegment, make_group, make_offset, make_queue,
                                          make_topic, puller_of)
from mqcore._fast.segment.bounds cimport queue_max_offset, queue_min_offset
from mqcore._fast.segment.doubts cimport believed_commit, is_doubted, sure_offset
from mqcore._fast.segment.link cimport (Link, link_free, link_next, link_put, link_read, link_take, link_unsent,
                                        link_write)
from mqcore._fast.segment.offset_changes cimport put_committed
from mqcore._fast.segment.quotas cimport (QUOTA_CLIENT, QUOTA_GROUP, QUOTA_PULL, QUOTA_TOPIC, QuotaBook, QuotaDraw,
                                          quota_charge, quota_draw_on, quota_free, quota_key, quota_take_rules,
                                          quota_wait_ns)
from mqcore._fast.segment.rings cimport (Ring, open_arrival_ring, open_pull_reply_ring, open_pull_request_ring,
                                         ring_is_empty, ring_peek, ring_publish, ring_release, ring_reserve)

from mqcore._fast.base.worker_log cimport Warning, warn_unreadable

from mqcore.codes import PullSysFlag, ResponseCode

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *fds, unsigned long count, int timeout_ms)
    short POLLIN, POLLOUT

cdef int32_t SUCCESS = ResponseCode.SUCCESS
cdef int32_t NOT_FOUND = ResponseCode.PULL_NOT_FOUND
cdef int32_t RETRY_IMMEDIATELY = ResponseCode.PULL_RETRY_IMMEDIATELY
cdef int32_t OFFSET_MOVED_CODE = ResponseCode.PULL_OFFSET_MOVED
cdef int32_t SYSTEM_BUSY = ResponseCode.SYSTEM_BUSY
cdef int32_t SYSTEM_ERROR = ResponseCode.SYSTEM_ERROR
cdef int32_t FLAG_COMMIT = PullSysFlag.COMMIT_OFFSET
cdef int32_t FLAG_SUSPEND = PullSysFlag.SUSPEND

cdef enum:
    REQUESTS_PER_TURN = 1024
    HOLD_CHECK_MS = 1000            # how often held pulls are looked at whether or not anything arrived
    SCAN_CHECK_MS = 5000            # how often they are re-read without knowing a tag, as upstream does
    QUEUE_REST_MS = 60000           # an unread consume queue file is unmapped after this
    LINK_READ_SIZE = 65536
    LINK_BYTES_MAX = 1 << 24
    NS_PER_MS = 1_000_000
    ANSWER_MS_MAX = 1000            # a question that stays without answer for so long is asked again, by the next pull
    FILTER_TURN_NS = 1_000_000      # of one turn for pulls that look into records; the others come first


cdef struct PullState:
    Shared *shared
    WorkerRow *row
    int worker_number
    int wake
    Link link
    int sender_count
    WorkerRow *sender_rows[SEND_WORKERS_MAX]
    int sender_wakes[SEND_WORKERS_MAX]
    Ring requests[SEND_WORKERS_MAX]
    Ring replies[SEND_WORKERS_MAX]
    Buffer overflow[SEND_WORKERS_MAX]          # replies that found their ring full
    bint sender_has_news[SEND_WORKERS_MAX]
    Ring arrivals
    BindingTable bindings
    QueueReader queues
    ColdReader cold
    ScanLimits limits
    bint is_slave
    bint in_group               # of brokers that elect their master: the board says who is one
    int64_t doubts_until        # those of the board that held pulls were looked at for
    bint leaves_offsets         # of a slave: who pulls an offset that is not there tries again, and goes nowhere else
    HeldPulls pulls
    FileSet *files                              # the newest part of the log, for filters
    Held *filtered                              # pulls that look into records, the oldest first
    Held *last_filtered
    QuotaBook quotas
    Held *throttled                             # pulls above a quota
    int64_t throttled_due                       # coarse ms at which the first of them is
    int64_t quota_delay_max_ms
    int64_t wait_max_ms                         # a pull that comes later than this is refused; 0 = none is
    int64_t turn_ms
    int64_t turn_ns                             # monotonic_ns of the start of the turn
    int64_t hold_check_at
    int64_t scan_check_at
    Warning unreadable


cdef bint tell_broker(PullState *state, int32_t kind, int64_t identity, const void *first, int64_t first_size,
                      const void *second, int64_t second_size) noexcept nogil:
    if state.link.is_closed or link_unsent(&state.link) > LINK_BYTES_MAX:
        return False
    return link_put(&state.link, kind, identity, first, first_size, second, second_size)


# Answers ---------------------------------------------------------------------------------------------------------


cdef void send_reply(PullState *state, int32_t sender, const PullReply *reply, const PullRange *ranges) noexcept nogil:
    cdef int32_t ranges_size = reply.range_count * <int32_t>sizeof(PullRange)
    cdef int32_t size = <int32_t>sizeof(PullReply) + ranges_size
    cdef uint8_t *at = NULL
    state.sender_has_news[sender] = True
    if buffer_size(&state.overflow[sender]) == 0:
        at = ring_reserve(&state.replies[sender], size, RING_KIND_PULL_REPLY)
    if at != NULL:
        memcpy(at, reply, sizeof(PullReply))
        if ranges_size > 0:
            memcpy(at + sizeof(PullReply), ranges, ranges_size)
        ring_publish(&state.replies[sender], size)
        return
    # In order, behind what overflowed before; tickets bound how much that can be.
    buffer_put(&state.overflow[sender], reply, sizeof(PullReply))
    if ranges_size > 0:
        buffer_put(&state.overflow[sender], ranges, ranges_size)


cdef void send_overflow(PullState *state, int32_t sender) noexcept nogil:
    cdef Buffer *waiting = &state.overflow[sender]
    cdef PullReply reply
    cdef int32_t size
    cdef uint8_t *at
    while buffer_size(waiting) > 0:
        memcpy(&reply, waiting.data + waiting.start, sizeof(PullReply))
        size = <int32_t>sizeof(PullReply) + reply.range_count * <int32_t>sizeof(PullRange)
        at = ring_reserve(&state.replies[sender], size, RING_KIND_PULL_REPLY)
        if at == NULL:
            return
        memcpy(at, waiting.data + waiting.start, size)
        ring_publish(&state.replies[sender], size)
        buffer_take(waiting, size)
        state.sender_has_news[sender] = True


cdef void start_reply(const Held *held, PullReply *reply) noexcept nogil:
    memset(reply, 0, sizeof(PullReply))
    reply.connection_id = held.request.connection_id
    reply.ticket = held.request.ticket
    reply.was_held = not held.is_first
    reply.woken = held.woken


cdef void free_held(PullState *state, Held *held) noexcept nogil:
    ticket_clear(&state.pulls, held)
    if held.binding != NULL:
        check(held.binding.references > 0, "a binding stays as long as a pull points to it")
        held.binding.references -= 1
    free(held)


cdef void answer_refused(PullState *state, Held *held) noexcept nogil:
    cdef PullReply reply
    start_reply(held, &reply)
    reply.refused = 1
    send_reply(state, held.sender, &reply, NULL)
    free_held(state, held)


cdef void answer_busy(PullState *state, Held *held) noexcept nogil:
    cdef PullReply reply
    start_reply(held, &reply)
    reply.code = SYSTEM_BUSY
    reply.status = GET_STATUS_NO_MATCHED_MESSAGE
    reply.next_begin_offset = held.request.queue_offset
    send_reply(state, held.sender, &reply, NULL)
    free_held(state, held)


cdef void answer_late(PullState *state, Held *held, int64_t waited_ms) noexcept nogil:
    cdef PullReply reply
    start_reply(held, &reply)
    reply.code = SYSTEM_BUSY
    reply.status = GET_STATUS_WAITED_TOO_LONG
    reply.max_offset = waited_ms
    send_reply(state, held.sender, &reply, NULL)
    free_held(state, held)


# Quotas ----------------------------------------------------------------------------------------------------------


cdef void find_draw(const PullState *state, const Held *held, QuotaDraw *draw) noexcept nogil:
    cdef const QuotaBook *book = &state.quotas
    cdef const PullRequest *request = &held.request
    cdef const uint8_t *topic = <const uint8_t *>request + sizeof(PullRequest)
    draw.count = 0
    if book.has_kind[<int>QUOTA_TOPIC]:
        quota_draw_on(book, QUOTA_TOPIC, quota_key(QUOTA_PULL, QUOTA_TOPIC, topic, request.topic_size), draw)
    if book.has_kind[<int>QUOTA_GROUP]:
        quota_draw_on(book, QUOTA_GROUP,
                      quota_key(QUOTA_PULL, QUOTA_GROUP, topic + request.topic_size, request.group_size), draw)
    if book.has_kind[<int>QUOTA_CLIENT] and request.client_key != 0:
        quota_draw_on(book, QUOTA_CLIENT, request.client_key, draw)


cdef void charge(PullState *state, const Held *held, const PullReply *reply) noexcept nogil:
    cdef QuotaDraw draw
    find_draw(state, held, &draw)
    quota_charge(state.shared, &draw, reply.message_count, reply.total_size, state.turn_ms * <int64_t>NS_PER_MS)


cdef void answer_above(PullState *state, Held *held) noexcept nogil:
    # Who lets himself be held is told that there is nothing yet, and asks again; who does not, that he is above it.
    cdef PullReply reply
    cdef const QueueRow *queue = &state.shared.queues[held.rows.queue_row]
    put_relaxed(&state.row.quota_refused, state.row.quota_refused + 1)
    start_reply(held, &reply)
    reply.code = NOT_FOUND if held.request.sys_flag & FLAG_SUSPEND else SYSTEM_BUSY
    reply.status = GET_STATUS_QUOTA_EXCEEDED
    reply.next_begin_offset = held.request.queue_offset
    reply.min_offset = queue_min_offset(queue)
    reply.max_offset = queue_max_offset(queue)
    reply.suggest_broker_id = held.binding.broker_id
    send_reply(state, held.sender, &reply, NULL)
    free_held(state, held)


# Whether it is above a quota: then it waits for that, or has been answered.
cdef bint throttle(PullState *state, Held *held) noexcept nogil:
    cdef QuotaDraw draw
    cdef int64_t wait_ns, last
    find_draw(state, held, &draw)
    wait_ns = quota_wait_ns(state.shared, &draw, state.turn_ms * <int64_t>NS_PER_MS)
    if wait_ns == 0:
        return False
    last = held.since + max(state.quota_delay_max_ms, hold_ms(held) if held.request.sys_flag & FLAG_SUSPEND else 0)
    if state.turn_ms >= last:
        answer_above(state, held)
        return True
    if held.due == 0:
        put_relaxed(&state.row.quota_delayed, state.row.quota_delayed + 1)
    held.due = min(last, state.turn_ms + (wait_ns + NS_PER_MS - 1) // NS_PER_MS)
    keep(state, held)
    if state.throttled == NULL or held.due < state.throttled_due:
        state.throttled_due = held.due
    held.next = state.throttled
    state.throttled = held
    return True


cdef void serve_throttled(PullState *state) noexcept nogil:
    cdef Held *following = state.throttled
    cdef Held *held
    if following == NULL or state.turn_ms < state.throttled_due:
        return
    state.throttled = NULL
    while following != NULL:
        held = following
        following = held.next
        held.next = NULL
        if held.is_gone:
            free_held(state, held)
        elif state.turn_ms >= held.due:
            handle(state, held)
        else:
            if state.throttled == NULL or held.due < state.throttled_due:
                state.throttled_due = held.due
            held.next = state.throttled
            state.throttled = held


cdef int idle_ms(const PullState *state) noexcept nogil:
    if state.throttled == NULL:
        return HOLD_CHECK_MS
    return <int>min(<int64_t>HOLD_CHECK_MS, max(<int64_t>0, state.throttled_due - coarse_ms()))


# Reading a queue -------------------------------------------------------------------------------------------------


cdef int32_t code_of(int32_t status, int64_t requested) noexcept nogil:
    if status == GET_STATUS_FOUND:
        return SUCCESS
    if status == GET_STATUS_NO_MATCHED_MESSAGE or status == GET_STATUS_MESSAGE_WAS_REMOVING:
        return RETRY_IMMEDIATELY
    if status == GET_STATUS_OFFSET_FOUND_NULL or status == GET_STATUS_OFFSET_OVERFLOW_ONE:
        return NOT_FOUND
    if status == GET_STATUS_NO_MESSAGE_IN_QUEUE:
        return NOT_FOUND if requested == 0 else OFFSET_MOVED_CODE
    if status == GET_STATUS_CONSUME_QUEUE_NOT_READABLE or status == GET_STATUS_COMMIT_LOG_NOT_READABLE:
        return SYSTEM_ERROR
    return OFFSET_MOVED_CODE


cdef int32_t join_ranges(const RecordRange *records, int32_t count, PullRange *out) noexcept nogil:
    # Records that lie behind one another become one range.
    cdef int32_t index
    cdef int32_t joined = 0
    for index in range(count):
        if joined > 0 and out[joined - 1].physical_offset + out[joined - 1].size == records[index].physical_offset:
            out[joined - 1].size += records[index].size
        else:
            out[joined].physical_offset = records[index].physical_offset
            out[joined].size = records[index].size
            joined += 1
    return joined


cdef void count_found(PullState *state, const Held *held, const PullReply *reply, int64_t behind) noexcept nogil:
    cdef OffsetRow *row = &state.shared.offsets[held.rows.offset_row]
    add_relaxed(&state.shared.board.get_times, reply.message_count)
    add_relaxed(&state.shared.board.get_bytes, reply.total_size)
    add_relaxed(&state.shared.board.get_found, 1)
    add_relaxed(&row.get_nums, reply.message_count)
    add_relaxed(&row.get_bytes, reply.total_size)
    add_relaxed(&row.pulls, 1)
    put_relaxed(&row.behind_bytes, behind)
    put_relaxed(&row.get_timestamp, now_ms())
    if state.quotas.has_any:
        charge(state, held, reply)


cdef void count_time(PullState *state, const Held *held, int64_t took_ns) noexcept nogil:
    # Latencies are counted in whole milliseconds, most of them 0: only the others need a word to the broker process.
    cdef LatePull late
    late.took_ms = took_ns // NS_PER_MS
    if late.took_ms > 0:
        late.offset_row = held.rows.offset_row
        late.spare = 0
        put_relaxed(&state.row.read_ms_max, max(state.row.read_ms_max, late.took_ms))
        tell_broker(state, LINK_KIND_LATE_PULL, 0, &late, sizeof(late), NULL, 0)


cdef void bring_in(PullState *state, const PullRange *ranges, int32_t count) noexcept nogil:
    # What lies far behind the end may be on disk only: read it here, where pulls alone wait for the disk.
    cdef int64_t hot = state.limits.commit_log_max - COLD_AFTER_BYTES
    cdef int64_t done
    cdef int32_t index
    for index in range(count):
        if ranges[index].physical_offset < hot:
            done = cold_bring_in(&state.cold, ranges[index].physical_offset, ranges[index].size, state.turn_ms)
            put_relaxed(&state.row.bytes, state.row.bytes + done)


cdef int64_t hot_from(const PullState *state) noexcept nogil:
    return max(state.limits.commit_log_max - COLD_AFTER_BYTES, observe(&state.shared.board.cold_end))


cdef void start_filtering(PullState *state, const Held *held, int64_t began_ns, Filtering *out) noexcept nogil:
    memset(out, 0, sizeof(Filtering))
    out.files = state.files
    out.cold = &state.cold
    out.queues = &state.queues
    out.binding = held.binding
    out.queue_row = held.rows.queue_row
    out.hot_from = hot_from(state)
    out.now = state.turn_ms
    out.until_ns = began_ns + FILTER_SCAN_NS


cdef struct ScannedQueue:           # of which queue a scan asks for tags codes
    QueueReader *queues
    int32_t queue_row
    int64_t now


cdef bint look_up_code(void *source, int64_t address, int64_t *tags_code) noexcept nogil:
    cdef const ScannedQueue *place = <const ScannedQueue *>source
    return ext_code_at(place.queues, place.queue_row, address, place.now, tags_code)


cdef int32_t scan_queue(PullState *state, const Held *held, PullReply *reply, PullRange *ranges) noexcept nogil:
    # The offset lies within the queue: scan its units. Returns the GetStatus; *reply* gets offsets and sizes.
    cdef RecordRange records[PULL_RANGES_MAX]
    cdef ScanResult result
    cdef ScannedQueue place
    cdef ExtSource ext
    cdef Filtering filtering
    cdef RecordFilter records_filter
    cdef bint filters = held.binding.filter.memory != NULL
    cdef int64_t requested = held.request.queue_offset
    cdef int64_t unit_count, file_units
    cdef int64_t began_ns = monotonic_ns()
    cdef const uint8_t *units = units_at(&state.queues, held.rows.queue_row, requested, reply.max_offset,
                                         state.turn_ms, &unit_count)
    if units == NULL and state.queues.error != ENOENT:
        # The messages are there, and nobody may be sent past them because the disk or the memory fails.
        warn_unreadable(&state.unreadable, "consume queue", requested, state.queues.error)
        return GET_STATUS_CONSUME_QUEUE_NOT_READABLE
    if units == NULL or unit_count <= 0:
        file_units = state.queues.file_size // CQ_UNIT_SIZE
        reply.next_begin_offset = requested + file_units - requested % file_units
        return GET_STATUS_OFFSET_FOUND_NULL
    state.limits.count_max = held.request.max_msg_nums
    state.limits.units_max = FILTER_UNITS_MAX if filters else SCAN_UNITS_MIN
    state.limits.commit_log_min = observe(&state.shared.board.min_offset)
    state.limits.commit_log_max = observe(&state.shared.board.readable_offset)
    place.queues = &state.queues
    place.queue_row = held.rows.queue_row
    place.now = state.turn_ms
    ext.look_up = look_up_code
    ext.source = &place
    if filters:
        start_filtering(state, held, began_ns, &filtering)
        records_filter.look = filter_look
        records_filter.source = &filtering
    reply.message_count = scan_units(units, unit_count, &state.limits, held.binding.tags, held.binding.tag_count, &ext,
                                     &records_filter if filters else NULL, records, PULL_RANGES_MAX, &result)
    if filters and filtering.error != 0 and result.units_examined == 0:
        warn_unreadable(&state.unreadable, "commit log for the filter of queue", requested, filtering.error)
        return GET_STATUS_COMMIT_LOG_NOT_READABLE
    reply.next_begin_offset = requested + result.units_examined
    reply.total_size = <int32_t>result.bytes_total
    if result.flags & SCAN_SUGGEST_SLAVE:
        reply.suggest_broker_id = held.binding.slow_broker_id
    if result.flags & SCAN_FOUND:
        reply.range_count = join_ranges(records, reply.message_count, ranges)
        bring_in(state, ranges, reply.range_count)
        count_found(state, held, reply, state.limits.commit_log_max - result.physical_offset_last)
        count_time(state, held, monotonic_ns() - began_ns)
        return GET_STATUS_FOUND
    return GET_STATUS_MESSAGE_WAS_REMOVING if result.flags & SCAN_REMOVING else GET_STATUS_NO_MATCHED_MESSAGE


cdef bint is_slave(const PullState *state) noexcept nogil:
    return observe(&state.shared.board.ha_role) != HA_ROLE_MASTER if state.in_group else state.is_slave


cdef bint has_doubts(const PullState *state, const Held *held) noexcept nogil:
    return is_doubted(state.shared, held.rows.offset_row, held.request.queue_offset, state.turn_ms)


cdef int32_t read_queue(PullState *state, const Held *held, PullReply *reply, PullRange *ranges) noexcept nogil:
    cdef QueueRow *queue = &state.shared.queues[held.rows.queue_row]
    cdef int64_t requested = held.request.queue_offset
    cdef int64_t born = observe(&queue.born)
    cdef int32_t status
    reply.max_offset = queue_max_offset(queue)
    reply.min_offset = queue_min_offset(queue)
    reply.suggest_broker_id = held.binding.broker_id
    reply.next_begin_offset = requested
    if has_doubts(state, held):
        if is_slave(state):
            # What the group was given there its master knows: it waits, and asks that one then.
            return GET_STATUS_OFFSET_OVERFLOW_ONE
        reply.next_begin_offset = sure_offset(state.shared, held.rows.offset_row)
        return GET_STATUS_OFFSET_OVERFLOW_BADLY
    if reply.max_offset == 0:
        reply.next_begin_offset = 0
        return GET_STATUS_NO_MESSAGE_IN_QUEUE
    if requested < reply.min_offset:
        reply.next_begin_offset = reply.min_offset
        return GET_STATUS_OFFSET_TOO_SMALL
    if requested == reply.max_offset:
        return GET_STATUS_OFFSET_OVERFLOW_ONE
    if requested > reply.max_offset:
        reply.next_begin_offset = reply.max_offset
        return GET_STATUS_OFFSET_OVERFLOW_BADLY
    status = scan_queue(state, held, reply, ranges)
    if observe(&queue.born) == born:
        return status
    # It was dropped meanwhile: what was read may be of the old files by the new bounds, or the other way round.
    reply.max_offset = reply.min_offset = reply.next_begin_offset = 0
    reply.message_count = reply.range_count = reply.total_size = 0
    return GET_STATUS_NO_MESSAGE_IN_QUEUE


# Holding ---------------------------------------------------------------------------------------------------------


cdef void count_waiter(PullState *state, int32_t row, int64_t change) noexcept nogil:
    add_full(&state.shared.queues[row].waiters, change)
    put_relaxed(&state.row.parked, state.pulls.waiting)


cdef void stop_waiting(PullState *state, Held *held) noexcept nogil:
    cdef int32_t row = held.queue_row
    held.woken = state.turn_ns
    queue_leave(&state.pulls, held)
    count_waiter(state, row, -1)


cdef void let_go(PullState *state, Held *held) noexcept nogil:
    # Nobody waits for its answer any more.
    ticket_clear(&state.pulls, held)
    if held.queue_row >= 0:
        stop_waiting(state, held)
        free_held(state, held)
    else:
        held.is_gone = True


cdef void keep(PullState *state, Held *held) noexcept nogil:
    # It waits for something: have its ticket lead here. Another pull of this ticket is one that the send worker has
    # given up since, or the same, whose entry a predecessor had read too: its answer would be dropped.
    cdef Held *other
    ticket_put(&state.pulls, held, &other)
    if other != NULL:
        let_go(state, other)


cdef int64_t hold_ms(const Held *held) noexcept nogil:
    if held.binding.suspend_limit_ms >= 0:
        return held.binding.suspend_limit_ms
    return max(<int64_t>0, min(held.request.suspend_timeout_ms, <int64_t>held.binding.suspend_max_ms))


cdef bint hold(PullState *state, Held *held) noexcept nogil:
    # It is in its queue. False: something arrived while it was being put there, so read again.
    held.deadline = held.since + hold_ms(held)
    held.is_first = False
    count_waiter(state, held.queue_row, 1)
    full_fence()
    if observe(&state.shared.queues[held.queue_row].max_offset) > held.request.queue_offset and (
            not has_doubts(state, held)):
        stop_waiting(state, held)
        return False
    keep(state, held)
    return True


# Whether there may be more of a queue than can be read here yet: what a master before has confirmed.
cdef bint may_lag(const PullState *state) noexcept nogil:
    return state.in_group and (is_slave(state) or (
        observe(&state.shared.board.confirmed_offset) < observe(&state.shared.board.epoch_start)))


cdef void commit(PullState *state, const Held *held) noexcept nogil:
    # Of a slave its master says what is committed.
    cdef int32_t row = held.rows.offset_row
    if held.is_first and held.due == 0 and held.request.sys_flag & FLAG_COMMIT and not is_slave(state):
        put_committed(state.shared, row,
                      believed_commit(state.shared, row, held.request.commit_offset, state.turn_ms))


cdef void note_pulled(PullState *state, const Held *held, const PullReply *reply) noexcept nogil:
    # Who is to ask for the same once more, which is not here yet, or not for him, was not sent there.
    cdef OffsetRow *row = &state.shared.offsets[held.rows.offset_row]
    cdef int64_t next_offset = reply.next_begin_offset
    if next_offset > reply.max_offset or (reply.code == NOT_FOUND and has_doubts(state, held)):
        return
    if state.turn_ms < observe(&state.shared.board.doubts_until):
        # Of several that read a queue for a group, none is sent back for what another was given.
        next_offset = max(next_offset, peek(&row.pull_offset))
    put_relaxed(&row.pull_offset, next_offset)


cdef void tell_offset_moved(PullState *state, const Held *held, const PullReply *reply) noexcept nogil:
    cdef OffsetMoved moved
    memset(&moved, 0, sizeof(moved))
    moved.requested = held.request.queue_offset
    moved.corrected = reply.next_begin_offset
    moved.queue_id = held.request.queue_id
    moved.topic_size = <short>held.request.topic_size
    moved.group_size = <short>held.request.group_size
    tell_broker(state, LINK_KIND_OFFSET_MOVED, held.request.connection_id, &moved, sizeof(moved),
                <const uint8_t *>&held.request + sizeof(PullRequest),
                held.request.topic_size + held.request.group_size)


cdef void answer(PullState *state, Held *held, PullReply *reply, const PullRange *ranges) noexcept nogil:
    note_pulled(state, held, reply)
    if reply.code == OFFSET_MOVED_CODE:
        tell_offset_moved(state, held, reply)
    elif reply.code == NOT_FOUND:
        add_relaxed(&state.shared.board.get_missed, 1)
    send_reply(state, held.sender, reply, ranges)
    free_held(state, held)


cdef void read_and_answer(PullState *state, Held *held, bint may_hold) noexcept nogil:
    # Read, then answer or hold. *held* is given away.
    cdef PullRange ranges[PULL_RANGES_MAX]
    cdef PullReply reply
    while True:
        start_reply(held, &reply)
        reply.status = read_queue(state, held, &reply, ranges)
        reply.code = code_of(reply.status, held.request.queue_offset)
        if reply.code == OFFSET_MOVED_CODE and held.request.queue_offset >= reply.max_offset and may_lag(state) and (
                not has_doubts(state, held)):
            # It has read on there: what it asks for comes here, too.
            reply.code = NOT_FOUND
            reply.next_begin_offset = held.request.queue_offset
        if reply.code == OFFSET_MOVED_CODE and state.leaves_offsets and is_slave(state):
            # A slave may only lag, and its queues end where its master's do not.
            reply.code = RETRY_IMMEDIATELY
            reply.next_begin_offset = held.request.queue_offset
        if reply.code == RETRY_IMMEDIATELY and may_hold and not held.is_first:
            # Woken for messages that its filter does not want: it goes on behind them.
            note_pulled(state, held, &reply)
            held.request.queue_offset = reply.next_begin_offset
            filter_later(state, held)
            return
        if reply.code != NOT_FOUND or not may_hold or not queue_put(&state.pulls, held):
            break
        if hold(state, held):
            return
    answer(state, held, &reply, ranges)


cdef void filter_later(PullState *state, Held *held) noexcept nogil:
    # Behind those that were there before; its ticket leads to it meanwhile.
    keep(state, held)
    held.next = NULL
    if state.last_filtered == NULL:
        state.filtered = held
    else:
        state.last_filtered.next = held
    state.last_filtered = held


cdef void serve_filtered(PullState *state) noexcept nogil:
    # As many as the time of a turn allows, one scan each.
    cdef int64_t until
    cdef Held *held
    if state.filtered == NULL:
        return
    until = monotonic_ns() + FILTER_TURN_NS
    while True:
        held = state.filtered
        state.filtered = held.next
        if held.next == NULL:
            state.last_filtered = NULL
        held.next = NULL
        if held.is_gone:
            free_held(state, held)
        else:
            # One that waits for a message that it wants may do so until its time is over, whatever woke it.
            read_and_answer(state, held, held.request.sys_flag & FLAG_SUSPEND and (
                held.is_first or state.turn_ms < held.deadline))
        if state.filtered == NULL or monotonic_ns() >= until:
            return


cdef bint look_up_rows(PullState *state, const PullRequest *request, PullRows *out) noexcept nogil:
    cdef const uint8_t *topic = <const uint8_t *>request + sizeof(PullRequest)
    cdef int32_t topic_row = make_topic(state.shared, topic, request.topic_size)
    cdef int32_t group_row = make_group(state.shared, topic + request.topic_size, request.group_size)
    out.queue_row = out.offset_row = ROW_NONE
    if topic_row != ROW_NONE and group_row != ROW_NONE:
        out.queue_row = make_queue(state.shared, topic_row, request.queue_id)
    if out.queue_row != ROW_NONE:
        out.offset_row = make_offset(state.shared, group_row, out.queue_row)
    return out.offset_row != ROW_NONE


cdef bint find_rows(PullState *state, Held *held) noexcept nogil:
    cdef PullRows *known = binding_rows(&state.bindings, held.binding, held.request.queue_id)
    if known == NULL:
        return look_up_rows(state, &held.request, &held.rows)
    if known.offset_row == ROW_NONE and not look_up_rows(state, &held.request, known):
        return False
    held.rows = known[0]
    return True


cdef void serve(PullState *state, Held *held) noexcept nogil:
    if not find_rows(state, held):
        # The boards are full.
        answer_busy(state, held)
        return
    commit(state, held)
    if held.is_gone:
        # What it has said counts all the same.
        free_held(state, held)
    elif state.quotas.has_any and throttle(state, held):
        pass
    elif held.binding.filter.memory != NULL:
        filter_later(state, held)
    else:
        read_and_answer(state, held, held.is_first and held.request.sys_flag & FLAG_SUSPEND)


# Resolving -------------------------------------------------------------------------------------------------------


cdef void ask_about(PullState *state, Held *held) noexcept nogil:
    cdef Resolve question
    cdef PullReply reply
    if not question_put(&state.pulls.questions, held):
        answer_busy(state, held)
        return
    if not held.is_gone:
        keep(state, held)
    held.binding.asked = held.resolve_id
    held.binding.asked_at = state.turn_ms
    question.resolve_id = held.resolve_id
    if not tell_broker(state, LINK_KIND_RESOLVE, held.request.connection_id, &question, sizeof(question), &held.request,
                       held.size):
        question_take(&state.pulls.questions, held.resolve_id)
        held.binding.asked = 0
        start_reply(held, &reply)
        reply.code = RETRY_IMMEDIATELY
        reply.status = GET_STATUS_NO_MATCHED_MESSAGE
        reply.next_begin_offset = held.request.queue_offset
        send_reply(state, held.sender, &reply, NULL)
        free_held(state, held)


cdef bint is_in_order(const PullState *state, const Held *held) noexcept nogil:
    return binding_is_good(state.shared, held.binding) and (
        0 <= held.request.queue_id < held.binding.queue_count)


cdef Held *under_question(PullState *state, const Held *held) noexcept nogil:
    # The pull with this binding that the broker process is being asked about, if its answer may be waited for.
    if held.binding.asked == 0 or state.turn_ms - held.binding.asked_at > ANSWER_MS_MAX:
        return NULL
    return question_find(&state.pulls.questions, held.binding.asked)


cdef void handle(PullState *state, Held *held) noexcept nogil:
    # A request, fresh or woken: serve it if its binding is good, else ask, once for all that come meanwhile.
    cdef Held *asked
    if is_in_order(state, held):
        serve(state, held)
        return
    asked = under_question(state, held)
    if asked == NULL:
        ask_about(state, held)
        return
    keep(state, held)
    held.line = asked.line
    asked.line = held


cdef void end_line(PullState *state, Held *line) noexcept nogil:
    # The answer that they waited for has come. Those that it does not help are asked about each by itself: what is
    # refused, or changes all the time, must not make one wait for the other.
    cdef Held *held
    cdef Held *oldest = NULL
    while line != NULL:
        held = line
        line = held.line
        held.line = oldest
        oldest = held
    while oldest != NULL:
        held = oldest
        oldest = held.line
        held.line = NULL
        if is_in_order(state, held):
            serve(state, held)
        else:
            ask_about(state, held)


cdef bint take_binding(PullState *state, Held *held, const Binding *message) noexcept nogil:
    cdef const int32_t *tags = <const int32_t *>(<const uint8_t *>message + sizeof(Binding))
    cdef int32_t tag_count = 0 if message.match_all else message.tag_count
    cdef const uint8_t *program = <const uint8_t *>(tags + message.tag_count + message.bit_count)
    if not binding_set_tags(&state.bindings, held.binding, tags, tag_count) or not binding_set_filter(
            &state.bindings, held.binding, program, message.filter_size, tags + message.tag_count, message.bit_count):
        return False
    held.binding.bitmap_from = message.bitmap_from
    held.binding.bitmap_bits = message.bitmap_bits
    held.binding.suspend_limit_ms = message.suspend_limit_ms
    held.binding.suspend_max_ms = message.suspend_max_ms
    held.binding.broker_id = message.broker_id
    held.binding.slow_broker_id = message.slow_broker_id
    held.binding.queue_count = message.queue_count
    held.binding.epoch = message.epoch
    return True


cdef void handle_binding(PullState *state, const Binding *message) noexcept nogil:
    cdef Held *held = question_take(&state.pulls.questions, message.resolve_id)
    cdef Held *line
    if held == NULL:
        return
    line = held.line
    held.line = NULL
    if held.binding.asked == message.resolve_id:
        held.binding.asked = 0
    if message.refused:
        answer_refused(state, held)
    elif not take_binding(state, held, message):
        # The memory is full.
        answer_busy(state, held)
    else:
        # Serve even if the epoch has moved on meanwhile: the checks were good for this very request.
        serve(state, held)
    end_line(state, line)


cdef void read_link(PullState *state) noexcept nogil:
    cdef LinkHead head
    cdef const uint8_t *payload
    link_read(&state.link, LINK_READ_SIZE)
    payload = link_next(&state.link, &head)
    while payload != NULL:
        if head.kind == LINK_KIND_BINDING and head.size >= <int32_t>sizeof(Binding):
            handle_binding(state, <const Binding *>payload)
        link_take(&state.link, &head)
        payload = link_next(&state.link, &head)


# Requests and arrivals -------------------------------------------------------------------------------------------


cdef void let_go_of(PullState *state, int32_t sender, const int32_t *tickets, int32_t count) noexcept nogil:
    cdef int32_t index
    cdef Held *held
    for index in range(count):
        held = ticket_find(&state.pulls, sender, tickets[index])
        if held != NULL:
            let_go(state, held)


cdef void let_go_of_all(PullState *state, int32_t sender) noexcept nogil:
    cdef int32_t index
    for index in range(TICKETS_MAX):
        if state.pulls.tickets[sender][index] != NULL:
            let_go(state, state.pulls.tickets[sender][index])


cdef void take_request(PullState *state, Held *held, int32_t sender, int32_t size) noexcept nogil:
    held.size = size
    held.sender = sender
    held.queue_row = -1
    held.is_first = True
    held.since = state.turn_ms
    state.row.units += 1
    if state.wait_max_ms > 0 and held.request.since > 0 and (
            state.turn_ms - held.request.since >= state.wait_max_ms):
        answer_late(state, held, state.turn_ms - held.request.since)
        return
    held.binding = binding_of(&state.bindings, &held.request, state.turn_ms)
    if held.binding == NULL:
        answer_busy(state, held)
        return
    held.binding.references += 1
    handle(state, held)


cdef void take_requests(PullState *state, int32_t sender) noexcept nogil:
    cdef int32_t _turn, size, kind
    cdef const uint8_t *entry
    cdef Held *held
    for _turn in range(REQUESTS_PER_TURN):
        entry = ring_peek(&state.requests[sender], &size, &kind)
        if entry == NULL:
            return
        if kind == RING_KIND_PULL_REQUEST:
            held = <Held *>malloc(sizeof(Held) + size)
            if held == NULL:
                return
            memset(held, 0, sizeof(Held))
            memcpy(&held.request, entry, size)
            ring_release(&state.requests[sender], size)
            take_request(state, held, sender, size)
            continue
        if size == 0:
            let_go_of_all(state, sender)
        else:
            let_go_of(state, sender, <const int32_t *>entry, size // <int32_t>sizeof(int32_t))
        ring_release(&state.requests[sender], size)


cdef void wake_queue(PullState *state, int32_t row, int64_t max_offset, int64_t tags_code, bint knows_tag,
                     bint only_late) noexcept nogil:
    # Re-read the held pulls of a queue that have something to find (or whose time is over), the oldest first.
    cdef Held *following
    cdef Held *due = NULL
    cdef Held *held
    cdef bint is_due
    if row >= state.pulls.queue_capacity:
        return
    following = state.pulls.queues[row]
    while following != NULL:
        held = following
        following = held.next
        is_due = state.turn_ms >= held.deadline
        if not is_due and not only_late:
            if has_doubts(state, held):
                is_due = not is_slave(state)
            elif max_offset > held.request.queue_offset:
                is_due = not knows_tag or binding_matches(held.binding, tags_code)
        if is_due:
            stop_waiting(state, held)
            held.next = due
            due = held
    while due != NULL:
        held = due
        due = held.next
        handle(state, held)


cdef void look_at_all(PullState *state, bint only_late) noexcept nogil:
    cdef int32_t row
    for row in range(state.pulls.queue_capacity):
        if state.pulls.queues[row] != NULL:
            wake_queue(state, row, queue_max_offset(&state.shared.queues[row]), 0, False, only_late)


cdef void take_arrivals(PullState *state) noexcept nogil:
    cdef int32_t size, kind
    cdef const uint8_t *entry
    cdef const Arrival *arrival
    cdef bint rescan = False
    while True:
        entry = ring_peek(&state.arrivals, &size, &kind)
        if entry == NULL:
            break
        arrival = <const Arrival *>entry
        if kind == RING_KIND_RESCAN:
            rescan = True
        else:
            wake_queue(state, arrival.queue_row, arrival.max_offset, arrival.tags_code, True, False)
        ring_release(&state.arrivals, size)
    if rescan:
        look_at_all(state, False)


cdef void check_doubts(PullState *state) noexcept nogil:
    # A master has begun to doubt: who waits for what is lost is sent back before others get its place.
    cdef int64_t until = observe(&state.shared.board.doubts_until)
    if until != state.doubts_until:
        state.doubts_until = until
        look_at_all(state, False)


cdef void check_held(PullState *state) noexcept nogil:
    if state.turn_ms < state.hold_check_at:
        return
    state.hold_check_at = state.turn_ms + HOLD_CHECK_MS
    bindings_sweep(&state.bindings, state.shared, state.turn_ms)
    # What filters look at is mapped; what has become cold is let go of, so that its pages may leave memory.
    files_trim(state.files, hot_from(state))
    files_rest(state.files)
    files_release(state.files, observe(&state.shared.board.cold_end))
    if state.turn_ms >= state.scan_check_at:
        state.scan_check_at = state.turn_ms + SCAN_CHECK_MS
        look_at_all(state, False)
        queues_rest(&state.queues, state.turn_ms - QUEUE_REST_MS)
    else:
        look_at_all(state, True)
    put_relaxed(&state.row.heartbeat, now_ms())


cdef bint has_news(PullState *state) noexcept nogil:
    cdef int32_t sender
    for sender in range(state.sender_count):
        if not ring_is_empty(&state.requests[sender]) or buffer_size(&state.overflow[sender]) > 0:
            return True
    return state.filtered != NULL or not ring_is_empty(&state.arrivals)


cdef void wake_senders(PullState *state) noexcept nogil:
    cdef int32_t sender
    full_fence()
    for sender in range(state.sender_count):
        if state.sender_has_news[sender]:
            state.sender_has_news[sender] = False
            if peek(&state.sender_rows[sender].sleeping):
                wake_fd(state.sender_wakes[sender])
                state.row.wakes += 1


cdef void turn(PullState *state) noexcept nogil:
    cdef pollfd fds[2]
    cdef int32_t sender
    fds[0].fd = state.wake
    fds[0].events = POLLIN
    fds[1].fd = state.link.fd
    fds[1].events = POLLIN | POLLOUT if link_unsent(&state.link) > 0 else POLLIN
    exchange_full(&state.row.sleeping, 1)
    poll(fds, 2, 0 if has_news(state) else idle_ms(state))
    put_relaxed(&state.row.sleeping, 0)
    state.turn_ms = coarse_ms()
    state.turn_ns = monotonic_ns()
    state.row.turns += 1
    if fds[0].revents:
        drain_fd(state.wake)
    if fds[1].revents & ~POLLOUT:
        read_link(state)
    for sender in range(state.sender_count):
        send_overflow(state, sender)
        take_requests(state, sender)
    take_arrivals(state)
    check_doubts(state)
    check_held(state)
    serve_throttled(state)
    serve_filtered(state)
    if link_unsent(&state.link) > 0:
        link_write(&state.link)
    wake_senders(state)


cdef class PullLoop:
    """A pull worker's loop. *options* names every limit and descriptor; see workers/pull.py."""

    cdef PullState state
    cdef SharedSegment segment
    cdef object kept
    cdef object kept_ext

    def __cinit__(self, SharedSegment segment not None, dict options not None):
        cdef PullState *state = &self.state
        cdef int index
        self.segment = segment
        state.shared = &segment.shared
        state.worker_number = options["number"]
        state.row = &segment.shared.workers[<int>options["row"]]
        state.wake = options["wake"]
        state.link.fd = options["link"]
        state.sender_count = len(options["senders"])
        for index, (row, wake) in enumerate(options["senders"]):
            state.sender_rows[index] = &segment.shared.workers[<int>row]
            state.sender_wakes[index] = wake
            open_pull_request_ring(&state.requests[index], state.shared, index, state.worker_number)
            open_pull_reply_ring(&state.replies[index], state.shared, index, state.worker_number)
        open_arrival_ring(&state.arrivals, state.shared, state.worker_number)
        self.kept = os.fsencode(options["consume_queue"])
        self.kept_ext = os.fsencode(options["consume_queue_ext"])
        if not queues_open(&state.queues, state.shared, <const char *><bytes>self.kept,
                           options["consume_queue_file_size"], <const char *><bytes>self.kept_ext,
                           options["ext_file_size"], options["mapped_queues_max"]):
            raise MemoryError()
        self.use(options)
        state.limits.commit_log_file_size = options["commit_log_file_size"]
        cold_open(&state.cold, options["commit_log"], options["commit_log_file_size"])
        state.files = <FileSet *>malloc(sizeof(FileSet))
        if state.files == NULL:
            raise MemoryError()
        files_open(state.files, options["commit_log"], options["commit_log_file_size"], False)
        if (not bindings_open(&state.bindings, options["binding_budget"])
                or not held_open(&state.pulls, state.sender_count)):
            raise MemoryError()
        self.forget_waiters(options["puller_count"])

    cdef forget_waiters(self, int puller_count):
        # What a predecessor held is gone with it. The queues of the other pull workers have counts of their own.
        cdef Shared *shared = self.state.shared
        cdef const TopicRow *topic
        cdef QueueRow *queue
        cdef int32_t row
        for row in range(self.segment.queue_count()):
            queue = &shared.queues[row]
            topic = &shared.topics[queue.topic_row]
            if puller_of(topic.name, topic.name_size, queue.queue_id, puller_count) == self.state.worker_number:
                publish(&queue.waiters, 0)
        put_relaxed(&self.state.row.parked, 0)

    def use(self, dict options not None):
        """Go by what *options* has of ``live_options`` in workers/pull.py. Not while another thread is in ``run``."""
        cdef PullState *state = &self.state
        state.limits.bytes_in_memory_max = options["bytes_in_memory_max"]
        state.limits.count_in_memory_max = options["count_in_memory_max"]
        state.limits.bytes_on_disk_max = options["bytes_on_disk_max"]
        state.limits.count_on_disk_max = options["count_on_disk_max"]
        state.limits.in_memory_bytes_max = options["in_memory_bytes_max"]
        state.is_slave = options["is_slave"]
        state.in_group = options["in_group"]
        state.wait_max_ms = options["pull_wait_ms"]
        state.quota_delay_max_ms = options["quota_delay_max_ms"]
        if not quota_take_rules(&state.quotas, QUOTA_PULL, options["quotas"]):
            raise MemoryError()
        state.leaves_offsets = not options["corrects_offsets"]

    def run(self, int64_t settings_version=0):
        """Serve until the broker process says STOP or is gone. Holds no GIL; raises nothing.

        True: the board has another version of the settings than *settings_version*; ``use`` them and call again.
        """
        cdef PullState *state = &self.state
        cdef bint is_over = False
        with nogil:
            state.turn_ms = coarse_ms()
            publish(&state.row.state, WORKER_STATE_RUNNING)
            while True:
                is_over = observe(&state.row.command) == WORKER_COMMAND_STOP or state.link.is_closed
                if is_over or observe(&state.shared.board.settings_version) != settings_version:
                    break
                turn(state)
            if is_over:
                publish(&state.row.state, WORKER_STATE_STOPPED)
        return not is_over

    def __dealloc__(self):
        cdef PullState *state = &self.state
        cdef Held *held
        cdef int32_t row
        while state.filtered != NULL:
            held = state.filtered
            state.filtered = held.next
            free_held(state, held)
        while state.throttled != NULL:
            held = state.throttled
            state.throttled = held.next
            free_held(state, held)
        quota_free(&state.quotas)
        held_close(&state.pulls)
        bindings_close(&state.bindings)
        queues_close(&state.queues)
        cold_close(&state.cold)
        if state.files != NULL:
            files_close(state.files)
            free(state.files)
        for row in range(SEND_WORKERS_MAX):
            buffer_free(&state.overflow[row])
        link_free(&state.link)
