"""The way of a message from its frame into the commit log, and of its answer back.

Everything that is rare (an unknown topic, a retry topic, a delay, a refusal that wants words) is SEND_UNUSUAL: the
frame goes to the broker process as it came, and mqcore.broker.processors.send does the same with more thought.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy, memset, strlen

from mqcore._fast.base.atomics cimport observe, put_relaxed
from mqcore._fast.base.checks cimport check
from mqcore._fast.base.crc32 cimport crc32
from mqcore._fast.base.layout cimport (BODY_CRC_MASK, PROPERTIES_SIZE_MAX, PUT_STATUS_OS_PAGECACHE_BUSY,
                                       PUT_STATUS_PUT_OK, STORE_FLAG_SLAVE, STORE_FLAG_SYNC_FAILED,
                                       TOPIC_WORD_EXISTS, TOPIC_WORD_MULTI_TAG, TOPIC_WORD_READ_SHIFT,
                                       TOPIC_WORD_SENDABLE, TOPIC_WORD_WRITE_SHIFT, StoreBoard)
from mqcore._fast.log.append cimport Appended, append_batch, append_record, tally_put
from mqcore._fast.log.record cimport SYS_TRANSACTION_MASK, NewRecord
from mqcore._fast.segment.boards cimport ROW_NONE, find_queue, find_queue_near, find_topic, find_topic_near
from mqcore._fast.send.connections cimport connection_id, doom, find_connection, mark_dirty
from mqcore._fast.send.latency cimport count_waited, forget_answer_time, note_answered
from mqcore._fast.send.pressure cimport note_put, note_put_busy, refuse_page_cache_busy
from mqcore._fast.send.timer cimport TIMER_UNUSUAL, TimerPlace, names_timer, rewrite_timer
from mqcore._fast.send.sent cimport answer_send, join_message_ids
from mqcore._fast.send.state cimport MEMBERS_MAX, SCRATCH_SIZE, Connection, SendState, Waiting
from mqcore._fast.wire.header cimport CommandView, TextView, text_to_bool, text_to_i32, text_to_i64, text_unescape
from mqcore._fast.wire.replies cimport Reply, put_decimal, reply_put, reply_remark, reply_start

from mqcore.codes import RequestCode, ResponseCode, SysFlag
from mqcore.protocol.names import TRANS_HALF_TOPIC

cdef int32_t CODE_LONG = RequestCode.SEND_MESSAGE
cdef int32_t SUCCESS = ResponseCode.SUCCESS
cdef int32_t SYSTEM_ERROR = ResponseCode.SYSTEM_ERROR
cdef int32_t SERVICE_NOT_AVAILABLE = ResponseCode.SERVICE_NOT_AVAILABLE
cdef int32_t FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
cdef int32_t FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
cdef int32_t SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
cdef int32_t MULTI_TAGS = SysFlag.MULTI_TAGS

cdef bytes HALF_TOPIC_TEXT = TRANS_HALF_TOPIC.encode()
cdef const uint8_t *HALF_TOPIC = HALF_TOPIC_TEXT
cdef int32_t HALF_TOPIC_SIZE = <int32_t>len(HALF_TOPIC_TEXT)

cdef enum:
    WAITING_MIN = 1024
    PAIR_END = 2                    # between pairs of a properties text
    NAME_END = 1                    # between a name and its value
    HALF_QUEUE_ID = 0

cdef const char *PAGE_CACHE_BUSY = "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
cdef const char *SYNC_FAILED = (
    "the store is read-only: a sync of the commit log failed, so this message may not be durable")

cdef const char *LEADS_NO_MORE = (
    "this broker is no longer the master of its group: the message may be stored or not, send it to the new one")


cdef struct SendHeader:
    TextView topic
    TextView properties
    int64_t born_timestamp
    int32_t queue_id
    int32_t sys_flag
    int32_t flag
    int32_t reconsume_times
    bint is_batch


cdef inline bint named(const TextView *text, const char *name, int32_t size) noexcept nogil:
    return text.size == size and memcmp(text.at, name, size) == 0


cdef uint8_t short_name(const TextView *name) noexcept nogil:
    # The one-letter name of a long one; 0 for what this path has no use for.
    if named(name, b"topic", 5):
        return c"b"
    if named(name, b"queueId", 7):
        return c"e"
    if named(name, b"sysFlag", 7):
        return c"f"
    if named(name, b"bornTimestamp", 13):
        return c"g"
    if named(name, b"flag", 4):
        return c"h"
    if named(name, b"properties", 10):
        return c"i"
    if named(name, b"reconsumeTimes", 14):
        return c"j"
    if named(name, b"batch", 5):
        return c"m"
    return 0


cdef bint read_send_header(const CommandView *command, SendHeader *out) noexcept nogil:
    # False when a required field is missing or is not of its type. producerGroup, defaultTopic and its queue count are
    # required too, but only a topic's creation asks for them, and that is not done here.
    cdef int32_t index
    cdef uint32_t seen = 0
    cdef uint8_t name
    cdef const TextView *value
    memset(out, 0, sizeof(SendHeader))
    for index in range(command.field_count):
        value = &command.values[index]
        if command.code == CODE_LONG:
            name = short_name(&command.names[index])
        else:
            name = command.names[index].at[0] if command.names[index].size == 1 else 0
        if name == c"b":
            out.topic = value[0]
        elif name == c"e":
            if not text_to_i32(value, &out.queue_id):
                return False
        elif name == c"f":
            if not text_to_i32(value, &out.sys_flag):
                return False
        elif name == c"g":
            if not text_to_i64(value, &out.born_timestamp):
                return False
        elif name == c"h":
            if not text_to_i32(value, &out.flag):
                return False
        elif name == c"i":
            out.properties = value[0]
        elif name == c"j":
            if not text_to_i32(value, &out.reconsume_times):
                return False
        elif name == c"m":
            out.is_batch = text_to_bool(value)
        if 0x61 <= name <= 0x7A:
            seen |= <uint32_t>1 << (name - 0x61)
    # b, e, f, g and h.
    return (seen & 0b11110010) == 0b11110010 and not out.topic.is_escaped


cdef enum PropertyVerdict:
    PROPERTY_KEEP
    PROPERTY_DROP
    PROPERTY_UNUSUAL


# What the properties of a message say of it.
cdef struct Traits:
    bint waits                  # its answer waits for the flush
    bint is_half                # it is the half of a transaction
    bint is_timed               # it may have to wait for its time
    const uint8_t *wait         # the value of WAIT, in the text that was read; NULL = it has none
    int32_t wait_size


cdef inline bint is_true(const uint8_t *value, int32_t size) noexcept nogil:
    return size == 4 and (value[0] | 0x20) == c"t" and (value[1] | 0x20) == c"r" and (
        value[2] | 0x20) == c"u" and (value[3] | 0x20) == c"e"


cdef PropertyVerdict judge_property(const uint8_t *name, int32_t name_size, const uint8_t *value, int32_t value_size,
                                    bint is_batch, Traits *traits) noexcept nogil:
    if name_size == 4 and memcmp(name, b"WAIT", 4) == 0:
        traits.waits = is_true(value, value_size)
        traits.wait = value
        traits.wait_size = value_size
        return PROPERTY_KEEP if is_batch else PROPERTY_DROP
    if name_size == 7 and memcmp(name, b"CLUSTER", 7) == 0:
        return PROPERTY_DROP
    if name_size == 5 and memcmp(name, b"DELAY", 5) == 0:
        return PROPERTY_UNUSUAL
    if name_size == 8 and memcmp(name, b"TRAN_MSG", 8) == 0:
        traits.is_half = is_true(value, value_size) and not is_batch
        return PROPERTY_KEEP
    if name_size == 20 and memcmp(name, b"INNER_MULTI_DISPATCH", 20) == 0:
        return PROPERTY_UNUSUAL
    if name_size > 11 and names_timer(name):
        traits.is_timed = True
    return PROPERTY_KEEP


cdef int32_t stored_properties(SendState *state, const TextView *text, bint is_batch, uint8_t *out, int32_t capacity,
                               Traits *traits) noexcept nogil:
    # The properties text as it is stored: WAIT left out (but for batches), CLUSTER added, no 0x02 at the end.
    # Returns its size, or -1 for what the broker process must look at.
    cdef const uint8_t *at = text.at
    cdef const uint8_t *end = text.at
    cdef const uint8_t *stop
    cdef const uint8_t *split
    cdef int32_t size = 0
    cdef int32_t source_size
    cdef PropertyVerdict verdict
    if text.at != NULL:
        source_size = text.size
        if text.is_escaped:
            source_size = text_unescape(text, state.scratch, SCRATCH_SIZE)
            if source_size < 0:
                return -1
            at = state.scratch
        end = at + source_size
    while at < end:
        stop = <const uint8_t *>memchr(at, PAIR_END, end - at)
        if stop == NULL:
            stop = end
        split = <const uint8_t *>memchr(at, NAME_END, stop - at)
        if split != NULL and split > at and stop > split + 1:
            verdict = judge_property(at, <int32_t>(split - at), split + 1, <int32_t>(stop - split - 1), is_batch,
                                     traits)
            if verdict == PROPERTY_UNUSUAL:
                return -1
            if verdict == PROPERTY_KEEP:
                if stop - at + 1 > capacity - size:
                    return -1
                memcpy(out + size, at, stop - at)
                size += <int32_t>(stop - at)
                out[size] = PAIR_END
                size += 1
        at = stop + 1
    if state.settings.cluster_property_size > capacity - size:
        return -1
    memcpy(out + size, state.settings.cluster_property, state.settings.cluster_property_size)
    return size + state.settings.cluster_property_size


cdef int32_t put_pair(uint8_t *out, int32_t size, const char *name, const uint8_t *value,
                      int32_t value_size) noexcept nogil:
    # Behind the pairs out[0:size]: 0x02, name, 0x01, value. -1 once there was no room.
    cdef int32_t name_size = <int32_t>strlen(name)
    if size < 0 or name_size + value_size + 2 > PROPERTIES_SIZE_MAX - size:
        return -1
    out[size] = PAIR_END
    memcpy(out + size + 1, name, name_size)
    out[size + 1 + name_size] = NAME_END
    memcpy(out + size + 2 + name_size, value, value_size)
    return size + 2 + name_size + value_size


# A half message goes to a queue of its own until its transaction has ended. Its properties say where it belongs, and
# WAIT comes back into them, as in RocketMQ. False: the broker process must look at it.
cdef bint make_half(SendState *state, const Traits *traits, NewRecord *fields, uint8_t *properties,
                    int32_t *topic_row, int32_t *queue_row) noexcept nogil:
    cdef uint8_t queue_id[20]
    cdef int32_t size = fields.properties_size
    topic_row[0] = find_topic(state.shared, HALF_TOPIC, HALF_TOPIC_SIZE)
    if state.settings.refuses_halves or topic_row[0] == ROW_NONE:
        return False
    queue_row[0] = find_queue(state.shared, topic_row[0], HALF_QUEUE_ID)
    if queue_row[0] == ROW_NONE:
        return False
    if traits.wait != NULL:
        size = put_pair(properties, size, "WAIT", traits.wait, traits.wait_size)
    size = put_pair(properties, size, "REAL_TOPIC", fields.topic, fields.topic_size)
    size = put_pair(properties, size, "REAL_QID", queue_id, put_decimal(queue_id, fields.queue_id))
    fields.properties_size = size
    fields.sys_flag &= ~SYS_TRANSACTION_MASK
    fields.topic = HALF_TOPIC
    fields.topic_size = HALF_TOPIC_SIZE
    fields.queue_id = HALF_QUEUE_ID
    return size >= 0


cdef void answer_plain(SendState *state, Connection *connection, int32_t serialize_type, int32_t opaque, int32_t code,
                       const char *remark) noexcept nogil:
    put_relaxed(&state.row.refused, state.row.refused + 1)
    answer_short(state, connection, serialize_type, opaque, code, remark)


cdef void answer_short(SendState *state, Connection *connection, int32_t serialize_type, int32_t opaque, int32_t code,
                       const char *remark) noexcept nogil:
    cdef Reply reply
    reply_start(&reply, serialize_type, code, opaque)
    if remark != NULL:
        reply_remark(&reply, remark)
    if not reply_put(&reply, &connection.out, 0):
        doom(state, connection)
        return
    mark_dirty(state, connection)


cdef bint grow_waiting(SendState *state) noexcept nogil:
    cdef int64_t capacity = max(<int64_t>WAITING_MIN, state.waiting.capacity * 2)
    cdef Waiting *waiting = <Waiting *>malloc(capacity * sizeof(Waiting))
    cdef int64_t index
    if waiting == NULL:
        return False
    for index in range(state.waiting.head, state.waiting.tail):
        waiting[index & (capacity - 1)] = state.waiting.answers[index & (state.waiting.capacity - 1)]
    free(state.waiting.answers)
    state.waiting.answers = waiting
    state.waiting.capacity = capacity
    return True


cdef bint wait_for_others(SendState *state, const Waiting *sent) noexcept nogil:
    if state.waiting.tail - state.waiting.head >= state.waiting.capacity and not grow_waiting(state):
        return False
    check(state.waiting.head == state.waiting.tail or sent.end_offset > state.waiting.answers[
        (state.waiting.tail - 1) & (state.waiting.capacity - 1)].end_offset, "answers wait in the order of the log")
    state.waiting.answers[state.waiting.tail & (state.waiting.capacity - 1)] = sent[0]
    state.waiting.tail += 1
    put_relaxed(&state.row.parked, state.waiting.tail - state.waiting.head)
    return True


cdef void answer_waiter(SendState *state, Connection *connection, const Waiting *sent, int32_t code) noexcept nogil:
    if sent.is_short:
        # The end of a transaction is one wherever it is stored, as upstream has it.
        answer_short(state, connection, sent.serialize_type, sent.opaque, SUCCESS, sent.remark)
    else:
        answer_send(state, connection, sent, code)


cdef bint has_slave(const SendState *state, int64_t end) noexcept nogil:
    return state.settings.in_group or (
        observe(&state.shared.board.slave_count) > 0
        and end - observe(&state.shared.board.replicated_offset) < state.settings.slave_lag_max)


cdef inline void free_texts(Waiting *sent) noexcept nogil:
    free(sent.ids)
    if sent.handle != NULL:
        free(sent.handle)


cdef void answer_stored(SendState *state, Connection *connection, Waiting *sent, bint waits) noexcept nogil:
    if waits:
        sent.needs_flush = state.settings.waits_for_flush
        sent.needs_slave = state.settings.waits_for_slave and has_slave(state, sent.end_offset)
        if state.settings.waits_for_slave and not sent.needs_slave:
            sent.slave_code = SLAVE_NOT_AVAILABLE
    if sent.needs_flush or sent.needs_slave:
        if not wait_for_others(state, sent):
            free_texts(sent)
            doom(state, connection)
        return
    answer_waiter(state, connection, sent, sent.slave_code)
    if not sent.is_short:
        note_answered(state, sent.slave_code != SUCCESS)
    free_texts(sent)


# Whether what waits in a group will not be confirmed by this broker any more.
cdef inline bint leads_no_more(const SendState *state) noexcept nogil:
    return state.settings.in_group and (observe(&state.shared.board.store_flags) & STORE_FLAG_SLAVE) != 0


cdef bint can_answer(const SendState *state, const Waiting *sent) noexcept nogil:
    # Whether what it waits for has come, or will not. Both have a time of their own, and are waited for side by side.
    cdef const StoreBoard *board = state.shared.board
    cdef int64_t age = state.turn_ms - sent.since
    if leads_no_more(state):
        return True
    if (sent.needs_flush and sent.end_offset > observe(&board.flushed_offset)
            and not observe(&board.store_flags) & STORE_FLAG_SYNC_FAILED and age < state.settings.sync_timeout_ms):
        return False
    return (not sent.needs_slave or sent.end_offset <= observe(&board.replicated_offset)
            or age >= state.settings.slave_timeout_ms)


cdef void release(SendState *state, Connection *connection, const Waiting *sent) noexcept nogil:
    # What is said of the slaves is said before what is said of the disk, as upstream has it; but what may be gone after
    # a sync that failed was not stored.
    cdef bint is_flushed = not sent.needs_flush or sent.end_offset <= observe(&state.shared.board.flushed_offset)
    cdef bint has_failed = (observe(&state.shared.board.store_flags) & STORE_FLAG_SYNC_FAILED) != 0
    cdef bint is_copied = not sent.needs_slave or sent.end_offset <= observe(&state.shared.board.replicated_offset)
    cdef int32_t code = sent.slave_code
    if not (is_flushed and is_copied) and leads_no_more(state):
        answer_plain(state, connection, sent.serialize_type, sent.opaque, SERVICE_NOT_AVAILABLE, LEADS_NO_MORE)
        return
    if not is_flushed and has_failed:
        answer_plain(state, connection, sent.serialize_type, sent.opaque, SERVICE_NOT_AVAILABLE, SYNC_FAILED)
        return
    if not is_copied:
        code = FLUSH_SLAVE_TIMEOUT
    elif code == SUCCESS and not is_flushed:
        code = FLUSH_DISK_TIMEOUT
    if code == SUCCESS:
        tally_put(state.shared, state.turn_ms - sent.since)
    answer_waiter(state, connection, sent, code)
    if not sent.is_short:
        count_waited(state, sent.came_ns, code != SUCCESS)


cdef void release_waiting(SendState *state) noexcept nogil:
    cdef Waiting *sent
    cdef Connection *connection
    forget_answer_time(state)
    while state.waiting.head < state.waiting.tail:
        sent = &state.waiting.answers[state.waiting.head & (state.waiting.capacity - 1)]
        if not can_answer(state, sent):
            break
        connection = find_connection(state, sent.connection_id)
        if connection != NULL:
            release(state, connection, sent)
        free_texts(sent)
        state.waiting.head += 1
    put_relaxed(&state.row.parked, state.waiting.tail - state.waiting.head)


cdef int32_t any_queue(SendState *state, int32_t count) noexcept nogil:
    state.random ^= state.random << 13
    state.random ^= state.random >> 17
    state.random ^= state.random << 5
    return <int32_t>(state.random % <uint32_t>count)


cdef bint make_timer(SendState *state, const Traits *traits, NewRecord *fields, uint8_t *properties,
                     int32_t *topic_row, int32_t *queue_row, Waiting *sent) noexcept nogil:
    # Let the message wait if it asks to; False: the broker process decides.
    cdef TimerPlace place
    place.text = properties
    place.capacity = PROPERTIES_SIZE_MAX
    place.wait = traits.wait
    place.wait_size = traits.wait_size
    place.topic_row = topic_row[0]
    place.queue_row = queue_row[0]
    place.handle = NULL
    if rewrite_timer(state, fields, &place) == TIMER_UNUSUAL:
        return False
    topic_row[0] = place.topic_row
    queue_row[0] = place.queue_row
    sent.handle = place.handle
    sent.handle_size = place.handle_size
    return True


cdef SendOutcome handle_send(SendState *state, Connection *connection, const CommandView *command) noexcept nogil:
    cdef SendHeader header
    cdef NewRecord fields
    cdef Appended done
    cdef Waiting sent
    cdef int32_t topic_row, queue_row, read_queues, write_queues, properties_size, status
    cdef int64_t word
    cdef Traits traits
    cdef uint8_t properties[PROPERTIES_SIZE_MAX]
    if not read_send_header(command, &header) or command.body_size > state.settings.max_message_size:
        return SEND_UNUSUAL
    topic_row = find_topic_near(state.shared, header.topic.at, header.topic.size, state.last_topic_row)
    if topic_row == ROW_NONE:
        return SEND_UNUSUAL
    state.last_topic_row = topic_row
    word = observe(&state.shared.topics[topic_row].config)
    if (word & (TOPIC_WORD_EXISTS | TOPIC_WORD_SENDABLE)) != (TOPIC_WORD_EXISTS | TOPIC_WORD_SENDABLE):
        return SEND_UNUSUAL
    read_queues = <int32_t>((word >> TOPIC_WORD_READ_SHIFT) & 0xFFFF)
    write_queues = <int32_t>((word >> TOPIC_WORD_WRITE_SHIFT) & 0xFFFF)
    if header.queue_id >= max(read_queues, write_queues) or (header.queue_id < 0 and write_queues == 0):
        return SEND_UNUSUAL
    memset(&fields, 0, sizeof(fields))
    fields.queue_id = header.queue_id
    if header.queue_id < 0:
        fields.queue_id = any_queue(state, write_queues)
    queue_row = find_queue_near(state.shared, topic_row, fields.queue_id, state.last_queue_row)
    memset(&traits, 0, sizeof(traits))
    traits.waits = True
    properties_size = stored_properties(state, &header.properties, header.is_batch, properties, PROPERTIES_SIZE_MAX,
                                        &traits)
    if queue_row == ROW_NONE or properties_size < 0 or command.body_size == 0:
        return SEND_UNUSUAL
    state.last_queue_row = queue_row
    fields.flag = header.flag
    fields.sys_flag = header.sys_flag
    if word & TOPIC_WORD_MULTI_TAG:
        fields.sys_flag |= MULTI_TAGS
    fields.born_timestamp = header.born_timestamp
    set_hosts(state, connection, &fields)
    fields.reconsume_times = header.reconsume_times
    fields.topic = header.topic.at
    fields.topic_size = header.topic.size
    memset(&sent, 0, sizeof(sent))
    # Java answers with the queue that was asked for; for a negative one that is the one that was drawn.
    sent.queue_id = fields.queue_id
    if header.is_batch:
        fields.batch_properties = properties
        fields.batch_properties_size = properties_size
        status = append_batch(&state.appender, &fields, command.body, command.body_size, topic_row, queue_row,
                              state.starts, MEMBERS_MAX, &done)
    else:
        fields.body = command.body
        fields.body_size = command.body_size
        fields.body_crc = <int32_t>(crc32(command.body, command.body_size) & BODY_CRC_MASK)
        fields.properties = properties
        fields.properties_size = properties_size
        if traits.is_half and not make_half(state, &traits, &fields, properties, &topic_row, &queue_row):
            return SEND_UNUSUAL
        if traits.is_timed and not traits.is_half and not make_timer(
                state, &traits, &fields, properties, &topic_row, &queue_row, &sent):
            return SEND_UNUSUAL
        status = append_record(&state.appender, &fields, topic_row, queue_row, &done)
    if sent.handle != NULL and (status != PUT_STATUS_PUT_OK or command.flag & 2):
        free(sent.handle)
        sent.handle = NULL
    if status == PUT_STATUS_OS_PAGECACHE_BUSY:
        if state.is_put_busy:
            refuse_page_cache_busy(state, connection, command)
            return SEND_DONE
        note_put_busy(state)
        answer_plain(state, connection, command.serialize_type, command.opaque, SYSTEM_ERROR, PAGE_CACHE_BUSY)
        return SEND_DONE
    if state.is_put_busy:
        note_put(state)
    if status != PUT_STATUS_PUT_OK:
        return SEND_UNUSUAL
    state.has_appended = True
    if command.flag & 2:
        return SEND_DONE
    sent.connection_id = connection_id(state, connection)
    sent.serialize_type = command.serialize_type
    sent.opaque = command.opaque
    sent.queue_offset = done.queue_offset
    sent.physical_offset = done.physical_offset
    sent.end_offset = done.end_offset
    sent.since = state.turn_ms
    sent.came_ns = state.turn_ns
    if done.count > 1:
        sent.ids = join_message_ids(state, done.count, &sent.ids_size)
    answer_stored(state, connection, &sent, traits.waits)
    return SEND_DONE
