"""Pulls pass here twice: as a descriptor to a pull worker, and back as ranges of the commit log.

No message byte crosses a ring. The ranges go from the mapped file to the socket in one writev; what the socket does
not take at once is copied into the connection's bounded buffer.
"""

from libc.errno cimport EAGAIN, EINTR, ENOENT, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from mqcore._fast.base.atomics cimport add_relaxed, observe
from mqcore._fast.base.buffers cimport Buffer, buffer_put, buffer_size, buffer_take
from mqcore._fast.base.layout cimport (GET_STATUS_COMMIT_LOG_NOT_READABLE, GET_STATUS_MESSAGE_WAS_REMOVING,
                                       GET_STATUS_QUOTA_EXCEEDED, GET_STATUS_WAITED_TOO_LONG,
                                       PULL_RANGES_MAX, PULL_STRINGS_MAX, PullRange, PullReply, PullRequest,
                                       RING_KIND_PULL_REQUEST, STORE_FLAG_PULL_CLOSED, TICKETS_MAX)
from mqcore._fast.base.store_file cimport EUCLEAN
from mqcore._fast.base.worker_log cimport warn_unreadable
from mqcore._fast.log.mapped_file cimport FILE_MAPPINGS_MAX, MappedFile, file_pinned_at, file_unpin
from mqcore._fast.segment.boards cimport puller_of
from mqcore._fast.segment.rings cimport ring_peek, ring_publish, ring_release, ring_reserve
from mqcore._fast.send.connections cimport (connection_id, doom, find_connection, mark_dirty, unsent_size,
                                            write_connection)
from mqcore._fast.send.latency cimport count_pull, forget_answer_time
from mqcore._fast.send.pressure cimport CAUSE_DISK, CAUSE_PULLS, refuse_late, refuse_overload
from mqcore._fast.send.quota_gate cimport quota_pull_key
from mqcore._fast.send.request cimport answer_plain
from mqcore._fast.send.state cimport TRANSPORT_TLS, Connection, SendState, Ticket
from mqcore._fast.send.ticket cimport SERIAL_SHIFT, TICKET_INDEX_MASK, ticket_end, ticket_free, ticket_take
from mqcore._fast.send.transport cimport iovec, transport_write_parts
from mqcore._fast.wire.header cimport CommandView, TextView, field_of, text_to_i32, text_to_i64, text_unescape
from mqcore._fast.wire.replies cimport Reply, put_decimal, reply_field, reply_put, reply_remark, reply_start

from mqcore.codes import RequestCode, ResponseCode, SerializeType
from mqcore.layout import constants

cdef extern from "<sys/uio.h>" nogil:
    ssize_t writev(int fd, const iovec *parts, int count)

cdef int32_t PULL_MESSAGE = RequestCode.PULL_MESSAGE
cdef int32_t SUCCESS = ResponseCode.SUCCESS
cdef int32_t SYSTEM_BUSY = ResponseCode.SYSTEM_BUSY
cdef int32_t SYSTEM_ERROR = ResponseCode.SYSTEM_ERROR
cdef int32_t RETRY_IMMEDIATELY = ResponseCode.PULL_RETRY_IMMEDIATELY
cdef int32_t SERVER_TYPE = SerializeType.JSON

cdef enum:
    STATUS_COUNT = 16
    STATUS_SIZE = 32
    DIRECT_BYTES_MIN = 4096         # a smaller answer is copied, to be written together with others
    UNSENT_MIN = 1 << 16            # bytes that each connection may leave unread before it gets no more messages

cdef const char *NO_PULL_WORKER = "[REJECTREQUEST]system busy, the pull worker does not stay up"
cdef const char *PULL_QUOTA = (
    "[REJECTREQUEST]system busy, start flow control for a while, cause: quota, this pull would have to wait for long")
cdef char status_names[STATUS_COUNT][STATUS_SIZE]

for _name, _number in constants("GetStatus").items():
    _text = _name.encode() + b"\0"
    memcpy(status_names[<int>_number], <const char *><bytes>_text, len(_text))


cdef inline int32_t text_size(const TextView *text) noexcept nogil:
    return text.size if text.at != NULL else -1


cdef uint8_t *put_text(uint8_t *at, const TextView *text, int32_t *size) noexcept nogil:
    # An escaped text shrinks; its size in the request is what is there in the end. NULL: it cannot be read.
    size[0] = -1
    if text.at == NULL:
        return at
    size[0] = text_unescape(text, at, PULL_STRINGS_MAX)
    return NULL if size[0] < 0 else at + size[0]


cdef bint read_numbers(const CommandView *command, PullRequest *out) noexcept nogil:
    cdef TextView queue_id = field_of(command, b"queueId", 7)
    cdef TextView queue_offset = field_of(command, b"queueOffset", 11)
    cdef TextView count = field_of(command, b"maxMsgNums", 10)
    cdef TextView sys_flag = field_of(command, b"sysFlag", 7)
    cdef TextView commit_offset = field_of(command, b"commitOffset", 12)
    cdef TextView suspend = field_of(command, b"suspendTimeoutMillis", 20)
    cdef TextView sub_version = field_of(command, b"subVersion", 10)
    return (text_to_i32(&queue_id, &out.queue_id) and text_to_i64(&queue_offset, &out.queue_offset)
            and text_to_i32(&count, &out.max_msg_nums) and text_to_i32(&sys_flag, &out.sys_flag)
            and text_to_i64(&commit_offset, &out.commit_offset)
            and text_to_i64(&suspend, &out.suspend_timeout_ms) and text_to_i64(&sub_version, &out.sub_version))


cdef int32_t read_request(SendState *state, const CommandView *command, PullRequest *out) noexcept nogil:
    # Fill the descriptor and put its strings into scratch; the size of the strings, or -1.
    cdef TextView topic = field_of(command, b"topic", 5)
    cdef TextView group = field_of(command, b"consumerGroup", 13)
    cdef TextView subscription = field_of(command, b"subscription", 12)
    cdef TextView expression_type = field_of(command, b"expressionType", 14)
    cdef uint8_t *at = state.scratch
    memset(out, 0, sizeof(PullRequest))
    if topic.at == NULL or group.at == NULL or not read_numbers(command, out):
        return -1
    if topic.size + group.size + text_size(&subscription) + text_size(&expression_type) > PULL_STRINGS_MAX:
        return -1
    at = put_text(at, &topic, &out.topic_size)
    at = put_text(at, &group, &out.group_size) if at != NULL else NULL
    at = put_text(at, &subscription, &out.subscription_size) if at != NULL else NULL
    at = put_text(at, &expression_type, &out.expression_type_size) if at != NULL else NULL
    return -1 if at == NULL else <int32_t>(at - state.scratch)


cdef int32_t take_ticket(SendState *state, Connection *connection, const CommandView *command, int32_t puller,
                         const PullRequest *request) noexcept nogil:
    cdef int32_t index = ticket_take(state, connection, request.connection_id)
    cdef Ticket *ticket
    if index < 0:
        return -1
    ticket = &state.tickets.slots[index]
    ticket.queue_offset = request.queue_offset
    ticket.came_ns = state.turn_ns
    ticket.opaque = command.opaque
    ticket.serialize_type = command.serialize_type
    ticket.puller = puller
    return ticket.serial << SERIAL_SHIFT | index


cdef PullOutcome handle_pull(SendState *state, Connection *connection, const CommandView *command) noexcept nogil:
    cdef PullRequest request
    cdef int32_t strings, puller
    cdef uint8_t *at
    if connection.is_vip and command.code == PULL_MESSAGE:
        return PULL_UNUSUAL
    strings = read_request(state, command, &request)
    if strings < 0:
        return PULL_UNUSUAL
    if observe(&state.shared.board.store_flags) & STORE_FLAG_PULL_CLOSED:
        answer_plain(state, connection, command.serialize_type, command.opaque, SYSTEM_BUSY, NO_PULL_WORKER)
        return PULL_GIVEN
    puller = puller_of(state.scratch, request.topic_size, request.queue_id, state.settings.puller_count)
    request.connection_id = connection_id(state, connection)
    request.opaque = command.opaque
    request.serialize_type = command.serialize_type
    request.code = command.code
    request.version = command.version
    request.since = state.arrived_ms
    request.client_key = quota_pull_key(state, connection)
    request.ticket = take_ticket(state, connection, command, puller, &request)
    if request.ticket < 0:
        refuse_overload(state, connection, command, CAUSE_PULLS)
        return PULL_GIVEN
    at = ring_reserve(&state.pullers[puller].requests, <int32_t>sizeof(PullRequest) + strings, RING_KIND_PULL_REQUEST)
    if at == NULL:
        ticket_free(state, request.ticket & TICKET_INDEX_MASK)
        refuse_overload(state, connection, command, CAUSE_PULLS)
        return PULL_GIVEN
    memcpy(at, &request, sizeof(PullRequest))
    memcpy(at + sizeof(PullRequest), state.scratch, strings)
    ring_publish(&state.pullers[puller].requests, <int32_t>sizeof(PullRequest) + strings)
    state.pullers[puller].has_news = True
    return PULL_GIVEN


# Each range of an answer may lie in a file of its own, and all of them are pinned together.
assert <int>PULL_RANGES_MAX < <int>FILE_MAPPINGS_MAX


# The messages of one answer in their mappings, which are pinned until unpin_ranges.
cdef struct MappedRanges:
    int32_t file_count
    MappedFile *files[PULL_RANGES_MAX]
    iovec parts[PULL_RANGES_MAX + 1]    # the first is the frame's head


cdef void unpin_ranges(MappedRanges *mapped) noexcept nogil:
    cdef int32_t index
    for index in range(mapped.file_count):
        file_unpin(mapped.files[index])


cdef int cannot_map(SendState *state, MappedRanges *mapped, int64_t offset, int error) noexcept nogil:
    unpin_ranges(mapped)
    if error != ENOENT:
        warn_unreadable(&state.unreadable, "commit log", offset, error)
    return error


cdef int map_ranges(SendState *state, const PullReply *answer, MappedRanges *mapped) noexcept nogil:
    # 0, or an errno, and then nothing is pinned: ENOENT if a file is gone since the pull worker looked.
    cdef const PullRange *ranges = <const PullRange *>(<const uint8_t *>answer + sizeof(PullReply))
    cdef int64_t file_size = state.read_files.file_size
    cdef int32_t index
    cdef int64_t at, size
    cdef MappedFile *file = NULL
    mapped.file_count = 0
    for index in range(answer.range_count):
        at = ranges[index].physical_offset
        size = ranges[index].size
        if file == NULL or not 0 <= at - file.start < file_size:
            file = file_pinned_at(state.read_files, at)
            if file == NULL:
                return cannot_map(state, mapped, at, state.read_files.error if state.read_files.error != 0 else EUCLEAN)
            mapped.files[mapped.file_count] = file
            mapped.file_count += 1
        if size > file.start + file_size - at:
            return cannot_map(state, mapped, at, EUCLEAN)
        mapped.parts[index + 1].iov_base = file.base + (at - file.start)
        mapped.parts[index + 1].iov_len = size
    return 0


cdef bint keep_rest(Connection *connection, const iovec *parts, int32_t count, ssize_t sent) noexcept nogil:
    # Copy what the socket did not take. parts[0] is the head, which stands in the out buffer already.
    cdef int32_t index
    cdef ssize_t size
    for index in range(1, count):
        size = <ssize_t>parts[index].iov_len
        if sent >= size:
            sent -= size
            continue
        if not buffer_put(&connection.out, <const uint8_t *>parts[index].iov_base + sent, size - sent):
            return False
        sent = 0
    return True


cdef ssize_t write_parts(SendState *state, Connection *connection, const iovec *parts, int32_t count) noexcept nogil:
    # How much the socket has taken, or -1.
    cdef ssize_t sent
    while True:
        sent = writev(connection.fd, parts, count)
        if sent >= 0 or errno != EINTR:
            break
    if sent < 0:
        return 0 if errno == EAGAIN else -1
    if sent > 0:
        connection.active_at = state.turn_ms
    add_relaxed(&state.row.bytes, sent)
    return sent


cdef void write_ranges(SendState *state, Connection *connection, iovec *parts, int32_t count, int64_t head_start,
                       int64_t total) noexcept nogil:
    # The head was just put behind *head_start* bytes of unsent answers. If there were none, socket first, copy after.
    cdef Buffer *out = &connection.out
    cdef int64_t head_size = buffer_size(out) - head_start
    cdef ssize_t sent = 0
    if head_start == 0 and not connection.wants_write and total >= DIRECT_BYTES_MIN:
        parts[0].iov_base = out.data + out.start
        parts[0].iov_len = head_size
        if connection.transport == TRANSPORT_TLS:
            sent = transport_write_parts(state, connection, parts, count)
        else:
            sent = write_parts(state, connection, parts, count)
        forget_answer_time(state)
        if sent < 0:
            doom(state, connection)
            return
        if sent < head_size:
            buffer_take(out, sent)
            sent = 0
        else:
            buffer_take(out, head_size)
            sent -= head_size
    if not keep_rest(connection, parts, count, sent):
        doom(state, connection)
        return
    if unsent_size(connection) > 0:
        mark_dirty(state, connection)


cdef bint reads_slowly(SendState *state, Connection *connection) noexcept nogil:
    # Whether so many answers wait for it already that messages would only pile up here. It may close the connection.
    # Each has its share of one half of the budget; the other half is for answers that must be given.
    cdef int64_t share = state.settings.write_budget // 2 // max(1, state.clients.count)
    cdef int64_t limit = min(max(<int64_t>UNSENT_MIN, share), state.settings.write_buffer_max // 2)
    if unsent_size(connection) <= limit:
        return False
    write_connection(state, connection)
    return unsent_size(connection) > limit


cdef void answer_pull(SendState *state, Connection *connection, const Ticket *ticket,
                      const PullReply *answer) noexcept nogil:
    cdef MappedRanges mapped
    cdef uint8_t numbers[4][20]
    cdef Reply reply
    cdef int32_t code = answer.code
    cdef int32_t status = answer.status
    cdef int32_t range_count = answer.range_count
    cdef int64_t total = answer.total_size
    cdef int64_t next_offset = answer.next_begin_offset
    cdef int64_t head_start
    cdef bint is_slow = range_count > 0 and reads_slowly(state, connection)
    cdef int failed = 0
    if connection.is_closing:
        return
    if answer.code == SYSTEM_BUSY and answer.status == GET_STATUS_WAITED_TOO_LONG:
        refuse_late(state, connection, ticket.serialize_type, ticket.opaque, answer.max_offset,
                    TICKETS_MAX - state.tickets.left, CAUSE_DISK)
        return
    if answer.code == SYSTEM_BUSY and answer.status == GET_STATUS_QUOTA_EXCEEDED:
        answer_plain(state, connection, ticket.serialize_type, ticket.opaque, SYSTEM_BUSY, PULL_QUOTA)
        return
    head_start = buffer_size(&connection.out)
    if range_count > 0 and not is_slow:
        failed = map_ranges(state, answer, &mapped)
    if is_slow or failed:
        # It asks again, for the same messages unless they are gone; later, if they cannot be read now.
        if failed != ENOENT:
            next_offset = ticket.queue_offset
        code = RETRY_IMMEDIATELY
        status = GET_STATUS_MESSAGE_WAS_REMOVING
        if failed and failed != ENOENT:
            code = SYSTEM_ERROR
            status = GET_STATUS_COMMIT_LOG_NOT_READABLE
        range_count = 0
        total = 0
    reply_start(&reply, SERVER_TYPE if answer.was_held else ticket.serialize_type, code, ticket.opaque)
    reply_field(&reply, "suggestWhichBrokerId", numbers[0], put_decimal(numbers[0], answer.suggest_broker_id))
    reply_field(&reply, "nextBeginOffset", numbers[1], put_decimal(numbers[1], next_offset))
    reply_field(&reply, "maxOffset", numbers[2], put_decimal(numbers[2], answer.max_offset))
    reply_field(&reply, "minOffset", numbers[3], put_decimal(numbers[3], answer.min_offset))
    reply_remark(&reply, status_names[status])
    if not reply_put(&reply, &connection.out, total):
        doom(state, connection)
    elif range_count > 0:
        write_ranges(state, connection, mapped.parts, range_count + 1, head_start, total)
        count_pull(state, ticket.came_ns, answer.woken)
    else:
        mark_dirty(state, connection)
    if range_count > 0:
        unpin_ranges(&mapped)


cdef void take_reply(SendState *state, const PullReply *answer) noexcept nogil:
    cdef int32_t index = answer.ticket & TICKET_INDEX_MASK
    cdef Ticket *ticket = &state.tickets.slots[index]
    cdef Connection *connection
    if ticket.connection_id != answer.connection_id or ticket.serial != (answer.ticket >> SERIAL_SHIFT):
        return
    connection = find_connection(state, ticket.connection_id)
    if connection != NULL and not answer.refused:
        answer_pull(state, connection, ticket, answer)
    ticket_free(state, index)


cdef void take_pull_replies(SendState *state) noexcept nogil:
    cdef int32_t puller, size, kind
    cdef const uint8_t *entry
    forget_answer_time(state)
    for puller in range(state.settings.puller_count):
        while True:
            entry = ring_peek(&state.pullers[puller].replies, &size, &kind)
            if entry == NULL:
                break
            take_reply(state, <const PullReply *>entry)
            ring_release(&state.pullers[puller].replies, size)


cdef void answer_ask_again(SendState *state, const Ticket *ticket) noexcept nogil:
    cdef PullReply answer
    cdef Connection *connection = find_connection(state, ticket.connection_id)
    if connection == NULL:
        return
    memset(&answer, 0, sizeof(answer))
    answer.code = RETRY_IMMEDIATELY
    answer.status = GET_STATUS_MESSAGE_WAS_REMOVING
    answer.next_begin_offset = ticket.queue_offset
    answer_pull(state, connection, ticket, &answer)


cdef void check_pullers(SendState *state) noexcept nogil:
    cdef int32_t puller, index
    cdef int64_t generation
    for puller in range(state.settings.puller_count):
        generation = observe(&state.pullers[puller].row.generation)
        if generation == state.pullers[puller].generation:
            continue
        state.pullers[puller].generation = generation
        for index in range(TICKETS_MAX):
            if state.tickets.slots[index].connection_id != 0 and state.tickets.slots[index].puller == puller:
                answer_ask_again(state, &state.tickets.slots[index])
                # Its successor may find it in the ring.
                ticket_end(state, index)
