"""The end of a transaction: its half message becomes a message of its topic, or is forgotten.

A commit appends two records as one: the message, and the op message which says that the half is done with. So a
death leaves both or neither, and nobody is asked about what has been delivered. A rollback appends the op message
alone. broker/processors/transaction.py does the same with more thought: for a delayed message, a topic that may not be
sent to, a half message that is not in memory.

Source: RocketMQ broker/processor/EndTransactionProcessor.java,
broker/transaction/queue/TransactionalMessageBridge.java.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp, memset

from mqcore._fast.base.atomics cimport now_ms, observe
from mqcore._fast.base.crc32 cimport crc32
from mqcore._fast.base.layout cimport (BODY_CRC_MASK, PROPERTIES_SIZE_MAX, PUT_STATUS_PUT_OK, STORE_FLAG_SLAVE,
                                       TOPIC_WORD_EXISTS, TOPIC_WORD_SENDABLE)
from mqcore._fast.log.append cimport Appended, append_pair, append_record
from mqcore._fast.log.record cimport SYS_TRANSACTION_MASK, NewRecord, RecordView
from mqcore._fast.log.republish cimport Republication, StoredRecord, republished, stored_close, stored_open
from mqcore._fast.segment.boards cimport ROW_NONE, find_queue, find_topic
from mqcore._fast.send.connections cimport connection_id
from mqcore._fast.send.request cimport SEND_DONE, SEND_UNUSUAL, SendOutcome, answer_short, answer_stored
from mqcore._fast.send.state cimport Connection, SendState, Waiting
from mqcore._fast.wire.header cimport CommandView, TextView, field_of, text_to_i32, text_to_i64
from mqcore._fast.wire.replies cimport put_decimal

from mqcore.codes import ResponseCode, SysFlag
from mqcore.protocol import transactions
from mqcore.protocol.names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC

cdef int32_t SUCCESS = ResponseCode.SUCCESS
cdef int32_t SYSTEM_ERROR = ResponseCode.SYSTEM_ERROR
cdef int32_t COMMIT = SysFlag.TRANSACTION_COMMIT
cdef int32_t ROLLBACK = SysFlag.TRANSACTION_ROLLBACK

cdef bytes HALF_TOPIC = TRANS_HALF_TOPIC.encode()
cdef bytes OP_TOPIC = TRANS_OP_HALF_TOPIC.encode()
cdef bytes OP_PROPERTIES = transactions.OP_PROPERTIES_TEXT.encode()
cdef const char *half_topic = HALF_TOPIC
cdef int32_t half_topic_size = <int32_t>len(HALF_TOPIC)
cdef const char *op_topic = OP_TOPIC
cdef int32_t op_topic_size = <int32_t>len(OP_TOPIC)
cdef const char *op_properties = OP_PROPERTIES
cdef int32_t op_properties_size = <int32_t>len(OP_PROPERTIES)

cdef bytes NOT_SET = transactions.NOT_SET.encode()
cdef bytes GROUP_WRONG = transactions.GROUP_WRONG.encode()
cdef bytes TABLE_OFFSET_WRONG = transactions.TABLE_OFFSET_WRONG.encode()
cdef const char *not_set = NOT_SET
cdef const char *group_wrong = GROUP_WRONG
cdef const char *table_offset_wrong = TABLE_OFFSET_WRONG

cdef enum:
    NOT_DECIDED = 0                 # the third outcome
    HALF_QUEUE_ID = 0               # of the half topic and of the op topic
    PAIR_END = 2                    # between pairs of a properties text
    NAME_END = 1                    # between a name and its value
    FLAG_ONEWAY = 2


cdef struct EndHeader:
    TextView group
    int64_t commit_log_offset
    int64_t table_offset            # the half's queue offset
    int32_t outcome


# What the properties of a half message say of it; a view is empty where there is none.
cdef struct Half:
    TextView group
    TextView topic
    TextView queue_id
    bint is_unusual                 # the message does not simply go to its queue


cdef bint read_end_header(const CommandView *command, EndHeader *out) noexcept nogil:
    cdef TextView table_offset = field_of(command, "tranStateTableOffset", 20)
    cdef TextView commit_log_offset = field_of(command, "commitLogOffset", 15)
    cdef TextView outcome = field_of(command, "commitOrRollback", 16)
    out.group = field_of(command, "producerGroup", 13)
    if out.group.at == NULL or out.group.is_escaped or field_of(command, "msgId", 5).at == NULL:
        return False
    return (text_to_i64(&table_offset, &out.table_offset) and text_to_i64(&commit_log_offset, &out.commit_log_offset)
            and text_to_i32(&outcome, &out.outcome))


cdef inline bint is_named(const uint8_t *name, int64_t size, const char *wanted, int64_t wanted_size) noexcept nogil:
    return size == wanted_size and memcmp(name, wanted, size) == 0


cdef void take_property(const uint8_t *name, int64_t size, const TextView *value, Half *out) noexcept nogil:
    if is_named(name, size, "PGROUP", 6):
        out.group = value[0]
    elif is_named(name, size, "REAL_TOPIC", 10):
        out.topic = value[0]
    elif is_named(name, size, "REAL_QID", 8):
        out.queue_id = value[0]
    elif is_named(name, size, "DELAY", 5) or is_named(name, size, "INNER_MULTI_DISPATCH", 20) or (
            size > 6 and memcmp(name, b"TIMER_", 6) == 0):
        out.is_unusual = True


cdef void read_half(const RecordView *record, Half *out) noexcept nogil:
    cdef const uint8_t *at = record.properties
    cdef const uint8_t *end = at + record.properties_size
    cdef const uint8_t *stop
    cdef const uint8_t *split
    cdef TextView value
    memset(out, 0, sizeof(Half))
    memset(&value, 0, sizeof(value))
    while at < end:
        stop = <const uint8_t *>memchr(at, PAIR_END, end - at)
        if stop == NULL:
            stop = end
        split = <const uint8_t *>memchr(at, NAME_END, stop - at)
        if split != NULL and stop - split > 1:
            value.at = split + 1
            value.size = <int32_t>(stop - split - 1)
            take_property(at, split - at, &value, out)
        at = stop + 1


cdef inline bint is_same(const TextView *first, const TextView *second) noexcept nogil:
    return first.size == second.size and memcmp(first.at, second.at, first.size) == 0


cdef int32_t sendable_queue(const SendState *state, const Half *half, Republication *change) noexcept nogil:
    # The row of the queue that the message belongs to; ROW_NONE if somebody must think about it.
    cdef int64_t word
    if half.is_unusual or half.topic.at == NULL or not text_to_i32(&half.queue_id, &change.queue_id):
        return ROW_NONE
    change.topic_row = find_topic(state.shared, half.topic.at, half.topic.size)
    if change.topic_row == ROW_NONE or change.queue_id < 0:
        return ROW_NONE
    word = observe(&state.shared.topics[change.topic_row].config)
    if (word & (TOPIC_WORD_EXISTS | TOPIC_WORD_SENDABLE)) != (TOPIC_WORD_EXISTS | TOPIC_WORD_SENDABLE):
        return ROW_NONE
    return find_queue(state.shared, change.topic_row, change.queue_id)


cdef void make_op(const SendState *state, int64_t table_offset, uint8_t *body, NewRecord *out) noexcept nogil:
    # The message which says that the half message at *table_offset* is done with; *body* has room for 20 bytes.
    memset(out, 0, sizeof(NewRecord))
    out.body = body
    out.body_size = put_decimal(body, table_offset)
    out.body_crc = <int32_t>(crc32(body, out.body_size) & BODY_CRC_MASK)
    out.queue_id = HALF_QUEUE_ID
    out.born_timestamp = now_ms()
    out.store_host.address = state.shared.board.store_host
    out.store_host.address_size = state.shared.board.store_host_size
    out.store_host.port = state.shared.board.store_host_port
    out.born_host = out.store_host
    out.topic = <const uint8_t *>op_topic
    out.topic_size = op_topic_size
    out.properties = <const uint8_t *>op_properties
    out.properties_size = op_properties_size


cdef int append_end(SendState *state, const EndHeader *header, const RecordView *record, const Half *half,
                    Appended *done) noexcept nogil:
    # A PutStatus, or -1 for what the broker process must look at.
    cdef uint8_t text[PROPERTIES_SIZE_MAX]
    cdef uint8_t op_body[20]
    cdef Republication change
    cdef NewRecord message, op
    cdef int32_t op_topic_row = find_topic(state.shared, <const uint8_t *>op_topic, op_topic_size)
    cdef int32_t op_queue_row = ROW_NONE
    cdef bint counts_topics = state.appender.counts_topics
    cdef int status
    if op_topic_row != ROW_NONE:
        op_queue_row = find_queue(state.shared, op_topic_row, HALF_QUEUE_ID)
    if op_queue_row == ROW_NONE:
        return -1
    make_op(state, header.table_offset, op_body, &op)
    if header.outcome == ROLLBACK:
        # Op messages are in no statistics of topics, nor of what the broker has been sent.
        state.appender.counts_topics = False
        status = append_record(&state.appender, &op, op_topic_row, op_queue_row, done)
        state.appender.counts_topics = counts_topics
        return status
    memset(&change, 0, sizeof(change))
    change.queue_row = sendable_queue(state, half, &change)
    if change.queue_row == ROW_NONE:
        return -1
    change.sys_flag_cleared = SYS_TRANSACTION_MASK
    change.sys_flag_set = COMMIT
    change.prepared_transaction_offset = header.commit_log_offset
    # TRAN_MSG, REAL_TOPIC and REAL_QID stay in the stored properties, as they do in RocketMQ.
    if not republished(state.shared, record, &change, text, &message):
        return -1
    return append_pair(&state.appender, &message, change.topic_row, change.queue_row, &op, op_queue_row, NULL, done)


cdef void answer_end(SendState *state, Connection *connection, const CommandView *command, int32_t code,
                     const char *remark) noexcept nogil:
    if not command.flag & FLAG_ONEWAY:
        answer_short(state, connection, command.serialize_type, command.opaque, code, remark)


cdef void answer_end_stored(SendState *state, Connection *connection, const CommandView *command,
                            const EndHeader *header, const Appended *done) noexcept nogil:
    cdef Waiting sent
    cdef const char *remark = not_set if header.outcome == ROLLBACK else NULL
    state.has_appended = True
    if command.flag & FLAG_ONEWAY:
        return
    memset(&sent, 0, sizeof(sent))
    sent.connection_id = connection_id(state, connection)
    sent.serialize_type = command.serialize_type
    sent.opaque = command.opaque
    sent.end_offset = done.end_offset
    sent.since = state.turn_ms
    sent.is_short = True
    sent.remark = remark
    answer_stored(state, connection, &sent, True)


cdef SendOutcome end_stored(SendState *state, Connection *connection, const CommandView *command,
                            const EndHeader *header, const RecordView *record) noexcept nogil:
    cdef Half half
    cdef Appended done
    cdef int status
    if record.topic_size != half_topic_size or memcmp(record.topic, half_topic, half_topic_size) != 0 or (
            record.queue_id != HALF_QUEUE_ID):
        return SEND_UNUSUAL
    read_half(record, &half)
    if half.group.at == NULL:
        return SEND_UNUSUAL
    if not is_same(&half.group, &header.group):
        answer_end(state, connection, command, SYSTEM_ERROR, group_wrong)
        return SEND_DONE
    if record.queue_offset != header.table_offset:
        answer_end(state, connection, command, SYSTEM_ERROR, table_offset_wrong)
        return SEND_DONE
    status = append_end(state, header, record, &half, &done)
    if status != PUT_STATUS_PUT_OK:
        return SEND_UNUSUAL
    answer_end_stored(state, connection, command, header, &done)
    return SEND_DONE


cdef SendOutcome handle_end_transaction(SendState *state, Connection *connection,
                                        const CommandView *command) noexcept nogil:
    cdef EndHeader header
    cdef StoredRecord half
    cdef SendOutcome outcome
    if not read_end_header(command, &header) or observe(&state.shared.board.store_flags) & STORE_FLAG_SLAVE:
        return SEND_UNUSUAL
    if header.outcome != COMMIT and header.outcome != ROLLBACK:
        # Not decided: the broker will ask. RocketMQ gives no answer either, also to who waits for one.
        return SEND_DONE if header.outcome == NOT_DECIDED else SEND_UNUSUAL
    if header.commit_log_offset < observe(&state.shared.board.min_offset) or (
            header.commit_log_offset < observe(&state.shared.board.cold_end)):
        return SEND_UNUSUAL
    # What has been written may be read, flushed or not: its commit lies behind it in the log, and is flushed no sooner.
    if not stored_open(state.read_files, header.commit_log_offset, observe(&state.shared.board.wrote_offset), &half):
        return SEND_UNUSUAL
    outcome = end_stored(state, connection, command, &header, &half.view)
    stored_close(&half)
    return outcome
