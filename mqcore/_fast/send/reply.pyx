"""An answer of request-reply on its way to who asked, and the asker's word on its way back.

Whoever is not known here (the asker is at another send worker, has gone, has never been answered), and everything
that is rare, is SEND_UNUSUAL: broker/processors/reply.py does the same with more thought, and says who is known from
then on.

Source: RocketMQ broker/processor/ReplyMessageProcessor.java.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy, memset

from mqcore._fast.base.atomics cimport now_ms, observe
from mqcore._fast.base.buffers cimport buffer_put
from mqcore._fast.base.checks cimport check
from mqcore._fast.base.crc32 cimport crc32
from mqcore._fast.base.worker_log cimport warn_not_taken
from mqcore._fast.base.layout cimport (ASKER_SIZE_MAX, BODY_CRC_MASK, PROPERTIES_SIZE_MAX, PUSHES_MAX, PUSH_NUMBER_BIT,
                                       PUT_STATUS_PUT_OK, TOPIC_WORD_EXISTS, TOPIC_WORD_READ_SHIFT,
                                       TOPIC_WORD_SENDABLE, TOPIC_WORD_WRITE_SHIFT)
from mqcore._fast.log.append cimport Appended, append_record
from mqcore._fast.log.record cimport NewRecord
from mqcore._fast.segment.boards cimport ROW_NONE, find_queue, find_topic
from mqcore._fast.send.askers cimport asker_find
from mqcore._fast.send.connections cimport (connection_id, doom, find_connection, mark_dirty, unsent_size,
                                            write_connection)
from mqcore._fast.send.request cimport SEND_DONE, SEND_UNUSUAL, SendOutcome, any_queue, set_hosts
from mqcore._fast.send.sent cimport MESSAGE_ID_MAX, put_message_id
from mqcore._fast.send.state cimport SCRATCH_SIZE, Connection, Push, SendState
from mqcore._fast.wire.header cimport (CommandView, TextView, field_of, text_to_bool, text_to_i32, text_to_i64,
                                       text_unescape)
from mqcore._fast.wire.replies cimport Reply, put_decimal, reply_field, reply_put, reply_start, request_start

from mqcore.codes import RequestCode, ResponseCode
from mqcore.protocol.headers import REQUEST_HEADERS

cdef int32_t CODE_LONG = RequestCode.SEND_REPLY_MESSAGE
cdef int32_t PUSH_CODE = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
cdef int32_t SUCCESS = ResponseCode.SUCCESS
cdef int32_t SYSTEM_ERROR = ResponseCode.SYSTEM_ERROR

cdef const char *REFUSED = "the asker refuses it"
cdef const char *LATE = "the asker says nothing"
cdef const char *GONE = "the asker's connection was closed"

cdef enum:
    NOT_STORED = -1
    FLAG_ONEWAY = 2
    PAIR_END = 2                    # between pairs of a properties text
    NAME_END = 1                    # between a name and its value
    HOST_SIZE = 24                  # an IPv4 address and a port as a text
    TIME_PROPERTY_MAX = 40          # PUSH_REPLY_TIME, its time, and what stands around them
    COPIED_MAX = 12
    NAME_SIZE = 32
    REMARK_SIZE = ASKER_SIZE_MAX + 64

# Fields that the push has as the request said them, in the order of the push's header.
cdef struct CopiedField:
    char name[NAME_SIZE]            # in the push, and in the first version of the request
    int32_t name_size
    char letter                     # in the second version
    char type                       # S, I, L or B
    bint is_required

cdef CopiedField copied_fields[COPIED_MAX]
cdef int32_t copied_count = 0

_long = {field.name: field for field in REQUEST_HEADERS[RequestCode.SEND_REPLY_MESSAGE].fields}
_short = {field.name: field for field in REQUEST_HEADERS[RequestCode.SEND_REPLY_MESSAGE_V2].fields}
for _field in REQUEST_HEADERS[RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT].fields:
    if _field.name not in _long:
        continue
    _text = _field.wire_name.encode()
    assert _long[_field.name].wire_name == _field.wire_name and len(_text) < NAME_SIZE
    memcpy(copied_fields[copied_count].name, <const char *><bytes>_text, len(_text))
    copied_fields[copied_count].name_size = <int32_t>len(_text)
    copied_fields[copied_count].letter = ord(_short[_field.name].wire_name)
    copied_fields[copied_count].type = ord(_field.type.value)
    copied_fields[copied_count].is_required = _field.is_required
    copied_count += 1
assert copied_count == 11
cdef int32_t properties_number = [chr(copied_fields[_number].letter) for _number in range(copied_count)].index("i")


# What an answer says of itself.
cdef struct ReplyHeader:
    TextView texts[COPIED_MAX]      # as they were read; of numbers and truths as they are written
    uint8_t numbers[COPIED_MAX][20]
    TextView topic
    int32_t queue_id
    int32_t flag
    int32_t reconsume_times
    int64_t born_timestamp


cdef inline bint is_letter(const CopiedField *field, char letter) noexcept nogil:
    return field.letter == letter


cdef bint read_number(const CopiedField *field, ReplyHeader *out, int32_t index) noexcept nogil:
    # Check and keep it, and put it into plain words.
    cdef TextView *text = &out.texts[index]
    cdef int64_t wide
    cdef int32_t number
    if field.type == c"L":
        if not text_to_i64(text, &wide):
            return False
        out.born_timestamp = wide
    else:
        if not text_to_i32(text, &number):
            return False
        wide = number
        if is_letter(field, c"e"):
            out.queue_id = number
        elif is_letter(field, c"h"):
            out.flag = number
        elif is_letter(field, c"j"):
            out.reconsume_times = number
    text.at = out.numbers[index]
    text.size = put_decimal(out.numbers[index], wide)
    return True


cdef bint read_field(const CopiedField *field, ReplyHeader *out, int32_t index) noexcept nogil:
    cdef TextView *text = &out.texts[index]
    if text.at == NULL or (text.size == 0 and not field.is_required):
        text.size = 0
        return not field.is_required
    if field.type == c"S":
        if is_letter(field, c"b"):
            out.topic = text[0]
        # Properties are read apart.
        return is_letter(field, c"i") or (text.size > 0 and not text.is_escaped)
    if field.type == c"B":
        if text_to_bool(text):
            text.at = <const uint8_t *>"true"
            text.size = 4
        else:
            text.at = <const uint8_t *>"false"
            text.size = 5
        return True
    return read_number(field, out, index)


cdef bint read_reply_header(const CommandView *command, ReplyHeader *out) noexcept nogil:
    cdef const CopiedField *field
    cdef int32_t index
    out.reconsume_times = 0
    for index in range(copied_count):
        field = &copied_fields[index]
        if command.code == CODE_LONG:
            out.texts[index] = field_of(command, field.name, field.name_size)
        else:
            out.texts[index] = field_of(command, &field.letter, 1)
        if not read_field(field, out, index):
            return False
    return True


# Properties -----------------------------------------------------------------------------------------------------------


# What the properties of an answer say of it; the text as it came, and the one that is pushed.
cdef struct ReplyProperties:
    const uint8_t *text
    int32_t size
    const uint8_t *asker            # NULL = nobody is named
    int32_t asker_size
    bint waits                      # its answer waits for disk and slaves
    int32_t pushed_size
    uint8_t pushed[PROPERTIES_SIZE_MAX + TIME_PROPERTY_MAX]


cdef inline bint named(const uint8_t *name, int64_t size, const char *wanted, int64_t wanted_size) noexcept nogil:
    return size == wanted_size and memcmp(name, wanted, size) == 0


cdef bint take_pair(const uint8_t *at, const uint8_t *split, const uint8_t *stop, ReplyProperties *out) noexcept nogil:
    # False for what makes another message of it, which the broker process looks at.
    cdef int64_t size = split - at
    cdef TextView value
    if named(at, size, "DELAY", 5) or named(at, size, "TRAN_MSG", 8) or named(at, size, "INNER_MULTI_DISPATCH", 20) or (
            size > 6 and memcmp(at, b"TIMER_", 6) == 0):
        return False
    if named(at, size, "PUSH_REPLY_TIME", 15):
        return True
    if named(at, size, "REPLY_TO_CLIENT", 15):
        out.asker = split + 1
        out.asker_size = <int32_t>(stop - split - 1)
    elif named(at, size, "WAIT", 4):
        value.at = split + 1
        value.size = <int32_t>(stop - split - 1)
        value.is_escaped = False
        out.waits = text_to_bool(&value)
    memcpy(out.pushed + out.pushed_size, at, stop - at)
    out.pushed_size += <int32_t>(stop - at)
    out.pushed[out.pushed_size] = PAIR_END
    out.pushed_size += 1
    return True


cdef bint read_properties(SendState *state, const TextView *text, ReplyProperties *out) noexcept nogil:
    # False for what the broker process must look at.
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef const uint8_t *stop
    cdef const uint8_t *split
    out.asker = NULL
    out.waits = True
    out.pushed_size = 0
    out.text = text.at
    out.size = text.size
    if text.at == NULL:
        return False
    if text.is_escaped:
        out.text = state.scratch
        out.size = text_unescape(text, state.scratch, SCRATCH_SIZE)
    if not 0 <= out.size <= PROPERTIES_SIZE_MAX:
        return False
    at = out.text
    end = at + out.size
    while at < end:
        stop = <const uint8_t *>memchr(at, PAIR_END, end - at)
        if stop == NULL:
            stop = end
        split = <const uint8_t *>memchr(at, NAME_END, stop - at)
        if split != NULL and split > at and stop > split + 1 and not take_pair(at, split, stop, out):
            return False
        at = stop + 1
    return out.asker != NULL


# Storing --------------------------------------------------------------------------------------------------------------


# Where the answer goes in the store: rows of the boards.
cdef struct ReplyPlace:
    int32_t topic_row
    int32_t queue_row
    int32_t queue_id


cdef bint find_place(SendState *state, const ReplyHeader *header, ReplyPlace *out) noexcept nogil:
    cdef int64_t word
    cdef int32_t read_queues, write_queues
    out.topic_row = find_topic(state.shared, header.topic.at, header.topic.size)
    if out.topic_row == ROW_NONE:
        return False
    word = observe(&state.shared.topics[out.topic_row].config)
    if (word & (TOPIC_WORD_EXISTS | TOPIC_WORD_SENDABLE)) != (TOPIC_WORD_EXISTS | TOPIC_WORD_SENDABLE):
        return False
    read_queues = <int32_t>((word >> TOPIC_WORD_READ_SHIFT) & 0xFFFF)
    write_queues = <int32_t>((word >> TOPIC_WORD_WRITE_SHIFT) & 0xFFFF)
    if header.queue_id >= max(read_queues, write_queues) or write_queues == 0:
        return False
    out.queue_id = header.queue_id if header.queue_id >= 0 else any_queue(state, write_queues)
    out.queue_row = find_queue(state.shared, out.topic_row, out.queue_id)
    return out.queue_row != ROW_NONE


cdef bint keep(SendState *state, const Connection *connection, const CommandView *command, const ReplyHeader *header,
               const ReplyProperties *properties, const ReplyPlace *place, Appended *done) noexcept nogil:
    # The text of the properties as it came, and without the system flags, as upstream: an answer that was compressed
    # does not say so in the store, only its push does.
    cdef NewRecord fields
    memset(&fields, 0, sizeof(fields))
    fields.queue_id = place.queue_id
    fields.flag = header.flag
    fields.born_timestamp = header.born_timestamp
    set_hosts(state, connection, &fields)
    fields.reconsume_times = header.reconsume_times
    fields.topic = header.topic.at
    fields.topic_size = header.topic.size
    fields.body = command.body
    fields.body_size = command.body_size
    fields.body_crc = <int32_t>(crc32(command.body, command.body_size) & BODY_CRC_MASK)
    fields.properties = properties.text
    fields.properties_size = properties.size
    if append_record(&state.appender, &fields, place.topic_row, place.queue_row, done) != PUT_STATUS_PUT_OK:
        return False
    state.has_appended = True
    return True


# Pushing --------------------------------------------------------------------------------------------------------------


cdef Push *open_push(SendState *state, const Connection *connection, const Connection *asker,
                     const CommandView *command, const ReplyProperties *properties) noexcept nogil:
    # NULL: too many are under way, or memory is short.
    cdef int32_t number = (state.pushes.number + 1) & (PUSH_NUMBER_BIT - 1)
    cdef Push **place = &state.pushes.places[number & (PUSHES_MAX - 1)]
    cdef Push *push
    state.pushes.number = number
    if place[0] != NULL:
        return NULL
    push = <Push *>malloc(sizeof(Push) + properties.asker_size)
    if push == NULL:
        return NULL
    push.number = number | PUSH_NUMBER_BIT
    push.answerer_id = connection_id(state, connection)
    push.asker_id = connection_id(state, asker)
    push.deadline = state.turn_ms + state.settings.push_timeout_ms
    push.opaque = command.opaque
    push.serialize_type = command.serialize_type
    push.queue_offset = 0
    push.physical_offset = NOT_STORED
    push.asker_size = properties.asker_size
    memcpy(push.asker, properties.asker, properties.asker_size)
    push.next = NULL
    push.previous = state.pushes.youngest
    if push.previous == NULL:
        state.pushes.oldest = push
    else:
        push.previous.next = push
    state.pushes.youngest = push
    place[0] = push
    return push


cdef void close_push(SendState *state, Push *push) noexcept nogil:
    cdef Push **place = &state.pushes.places[push.number & (PUSHES_MAX - 1)]
    check(place[0] == push, "a push lies in its place until it is over")
    place[0] = NULL
    if push.previous == NULL:
        state.pushes.oldest = push.next
    else:
        push.previous.next = push.next
    if push.next == NULL:
        state.pushes.youngest = push.previous
    else:
        push.next.previous = push.previous
    free(push)


cdef int32_t put_host(uint8_t *out, const uint8_t *address, int32_t port) noexcept nogil:
    # An IPv4 address and a port; the size of the text.
    cdef int32_t size = 0
    cdef int32_t index
    for index in range(4):
        size += put_decimal(out + size, address[index])
        out[size] = c"." if index < 3 else c":"
        size += 1
    return size + put_decimal(out + size, port)


cdef void write_push(SendState *state, const Connection *connection, Connection *asker, const CommandView *command,
                     const ReplyHeader *header, ReplyProperties *properties, int32_t number) noexcept nogil:
    cdef Reply push
    cdef uint8_t now[20]
    cdef uint8_t born_host[HOST_SIZE]
    cdef uint8_t store_host[HOST_SIZE]
    cdef int32_t now_size = put_decimal(now, now_ms())
    cdef int32_t index
    cdef const TextView *text
    memcpy(properties.pushed + properties.pushed_size, b"PUSH_REPLY_TIME\x01", 16)
    memcpy(properties.pushed + properties.pushed_size + 16, now, now_size)
    request_start(&push, PUSH_CODE, number)
    for index in range(copied_count):
        text = &header.texts[index]
        if index == properties_number:
            reply_field(&push, copied_fields[index].name, properties.pushed, properties.pushed_size + 16 + now_size)
        else:
            reply_field(&push, copied_fields[index].name, text.at, text.size)
    reply_field(&push, "bornHost", born_host, put_host(born_host, connection.address, connection.port))
    reply_field(&push, "storeHost", store_host,
                put_host(store_host, state.shared.board.store_host, state.shared.board.store_host_port))
    reply_field(&push, "storeTimestamp", now, now_size)
    asker.push_count += 1
    if not reply_put(&push, &asker.out, command.body_size) or not buffer_put(
            &asker.out, command.body, command.body_size):
        doom(state, asker)
        return
    mark_dirty(state, asker)


cdef bint can_take(SendState *state, Connection *asker) noexcept nogil:
    # One that reads nothing is cut off when it leaves too much; by then it is looked at before each push.
    if unsent_size(asker) > state.settings.write_buffer_max // 2:
        write_connection(state, asker)
    return not asker.is_closing


cdef SendOutcome handle_reply(SendState *state, Connection *connection, const CommandView *command) noexcept nogil:
    cdef ReplyHeader header
    cdef ReplyProperties properties
    cdef ReplyPlace place
    cdef Appended done
    cdef Connection *asker
    cdef Push *push
    if (command.flag & FLAG_ONEWAY or command.body_size == 0 or command.body_size > state.settings.max_message_size
            or connection.address_size != 4 or state.shared.board.store_host_size != 4
            or not read_reply_header(command, &header) or not find_place(state, &header, &place)
            or not read_properties(state, &header.texts[properties_number], &properties)):
        return SEND_UNUSUAL
    if state.settings.keeps_replies and properties.waits and (
            state.settings.waits_for_flush or state.settings.waits_for_slave):
        return SEND_UNUSUAL
    asker = asker_find(state, properties.asker, properties.asker_size)
    if asker == NULL or not can_take(state, asker):
        return SEND_UNUSUAL
    push = open_push(state, connection, asker, command, &properties)
    if push == NULL:
        return SEND_UNUSUAL
    push.queue_id = place.queue_id
    if state.settings.keeps_replies:
        if not keep(state, connection, command, &header, &properties, &place, &done):
            close_push(state, push)
            return SEND_UNUSUAL
        push.queue_offset = done.queue_offset
        push.physical_offset = done.physical_offset
    write_push(state, connection, asker, command, &header, &properties, push.number)
    return SEND_DONE


# The asker's word -----------------------------------------------------------------------------------------------------


cdef void answer_reply(SendState *state, const Push *push, bint is_taken) noexcept nogil:
    # The code speaks of the push alone; a place is there if the answer is kept, or if it was taken.
    cdef Connection *answerer = find_connection(state, push.answerer_id)
    cdef Reply reply
    cdef uint8_t queue_id[20]
    cdef uint8_t queue_offset[20]
    cdef uint8_t message_id[MESSAGE_ID_MAX]
    cdef char remark[REMARK_SIZE]
    cdef int32_t id_size = 1
    if answerer == NULL:
        return
    reply_start(&reply, push.serialize_type, SUCCESS if is_taken else SYSTEM_ERROR, push.opaque)
    message_id[0] = c"0"
    if push.physical_offset != NOT_STORED:
        id_size = put_message_id(state, push.physical_offset, message_id)
    if is_taken or push.physical_offset != NOT_STORED:
        reply_field(&reply, "queueId", queue_id, put_decimal(queue_id, push.queue_id))
    reply_field(&reply, "TRACE_ON", state.settings.trace_on, state.settings.trace_on_size)
    reply_field(&reply, "MSG_REGION", state.settings.region, state.settings.region_size)
    if is_taken or push.physical_offset != NOT_STORED:
        reply_field(&reply, "msgId", message_id, id_size)
        reply_field(&reply, "queueOffset", queue_offset, put_decimal(queue_offset, push.queue_offset))
    if not is_taken:
        memcpy(remark, b"push reply message to ", 22)
        memcpy(remark + 22, push.asker, push.asker_size)
        memcpy(remark + 22 + push.asker_size, b"fail.", 5)
        reply.remark = remark
        reply.remark_size = 27 + push.asker_size
    if not reply_put(&reply, &answerer.out, 0):
        doom(state, answerer)
        return
    mark_dirty(state, answerer)


cdef void end_push(SendState *state, Push *push, const char *why) noexcept nogil:
    # *why*: it was not taken for; NULL if it was.
    cdef Connection *asker = find_connection(state, push.asker_id)
    if asker != NULL:
        asker.push_count -= 1
    if why != NULL:
        warn_not_taken(&state.pushes.not_taken, push.asker, push.asker_size, why)
    answer_reply(state, push, why == NULL)
    close_push(state, push)


cdef void handle_push_answer(SendState *state, const Connection *connection, const CommandView *command) noexcept nogil:
    cdef Push *push = state.pushes.places[command.opaque & (PUSHES_MAX - 1)]
    if push != NULL and push.number == command.opaque and push.asker_id == connection_id(state, connection):
        end_push(state, push, NULL if command.code == SUCCESS else REFUSED)


cdef void pushes_expire(SendState *state) noexcept nogil:
    while state.pushes.oldest != NULL and state.turn_ms >= state.pushes.oldest.deadline:
        end_push(state, state.pushes.oldest, LATE)


cdef void pushes_lose(SendState *state) noexcept nogil:
    cdef Push *following = state.pushes.oldest
    cdef Push *push
    state.pushes.has_lost_asker = False
    while following != NULL:
        push = following
        following = push.next
        if find_connection(state, push.asker_id) == NULL:
            end_push(state, push, GONE)


cdef void pushes_free(SendState *state) noexcept nogil:
    while state.pushes.oldest != NULL:
        close_push(state, state.pushes.oldest)
    free(state.pushes.places)
