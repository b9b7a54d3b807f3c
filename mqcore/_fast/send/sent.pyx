"""What is said to who has sent: where his message lies. Nearly all such answers differ in four numbers only."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy, memset

from mqcore._fast.base.big_endian cimport store_i32, store_i64
from mqcore._fast.base.buffers cimport Buffer, buffer_free, buffer_room
from mqcore._fast.send.connections cimport doom, mark_dirty
from mqcore._fast.send.state cimport ANSWER_PARTS, AnswerText, Connection, SendState, Waiting
from mqcore._fast.wire.header cimport SERIALIZE_JSON
from mqcore._fast.wire.replies cimport Reply, put_decimal, put_hex, reply_field, reply_put, reply_start

from mqcore.codes import ResponseCode

cdef int32_t SUCCESS = ResponseCode.SUCCESS

cdef enum:
    ID_BYTES_MAX = 28               # of an offset message id: address, port, offset
    STRIDE = 16                     # of what is copied at once; there is so much behind the end of a text
    NUMBER_MAX = 20
    HEAD_SIZE = 8
    OPAQUE_MARK = 0x7FFFFFFF

assert <int>MESSAGE_ID_MAX == 2 * <int>ID_BYTES_MAX

# What stands for the values in the answer that the others are cut from.
QUEUE_MARK = b"{queueId}"
ID_MARK = b"{msgId}"
OFFSET_MARK = b"{queueOffset}"


cdef int32_t put_message_id(const SendState *state, int64_t physical_offset, uint8_t *out) noexcept nogil:
    cdef uint8_t raw[ID_BYTES_MAX]
    cdef int32_t size = state.shared.board.store_host_size
    memcpy(raw, state.shared.board.store_host, size)
    store_i32(raw + size, state.shared.board.store_host_port)
    store_i64(raw + size + 4, physical_offset)
    put_hex(out, raw, size + 12)
    return 2 * (size + 12)


cdef uint8_t *join_message_ids(SendState *state, int32_t count, int32_t *size) noexcept nogil:
    cdef uint8_t *ids = <uint8_t *>malloc(<size_t>count * (2 * ID_BYTES_MAX + 1))
    cdef int32_t index
    size[0] = 0
    if ids == NULL:
        return NULL
    for index in range(count):
        if index > 0:
            ids[size[0]] = c","
            size[0] += 1
        size[0] += put_message_id(state, state.starts[index], ids + size[0])
    return ids


cdef struct Values:
    const uint8_t *queue_id
    int32_t queue_id_size
    const uint8_t *ids
    int32_t ids_size
    const uint8_t *queue_offset
    int32_t queue_offset_size
    const uint8_t *handle
    int32_t handle_size


cdef inline void list_fields(const SendState *state, Reply *reply, const Values *values) noexcept nogil:
    reply_field(reply, "queueId", values.queue_id, values.queue_id_size)
    reply_field(reply, "TRACE_ON", state.settings.trace_on, state.settings.trace_on_size)
    reply_field(reply, "MSG_REGION", state.settings.region, state.settings.region_size)
    reply_field(reply, "recallHandle", values.handle, values.handle_size)
    reply_field(reply, "msgId", values.ids, values.ids_size)
    reply_field(reply, "queueOffset", values.queue_offset, values.queue_offset_size)


cdef bint put_any(const SendState *state, Buffer *out, const Waiting *sent, int32_t code) noexcept nogil:
    cdef Reply reply
    cdef Values values
    cdef uint8_t queue_id[NUMBER_MAX]
    cdef uint8_t queue_offset[NUMBER_MAX]
    cdef uint8_t message_id[MESSAGE_ID_MAX]
    values.queue_id = queue_id
    values.queue_id_size = put_decimal(queue_id, sent.queue_id)
    values.queue_offset = queue_offset
    values.queue_offset_size = put_decimal(queue_offset, sent.queue_offset)
    values.handle = sent.handle
    values.handle_size = 0 if sent.handle == NULL else sent.handle_size
    if sent.ids != NULL:
        values.ids = sent.ids
        values.ids_size = sent.ids_size
    else:
        values.ids = message_id
        values.ids_size = put_message_id(state, sent.physical_offset, message_id)
    reply_start(&reply, sent.serialize_type, code, sent.opaque)
    list_fields(state, &reply, &values)
    return reply_put(&reply, out, 0)


cdef inline uint8_t *put_part(uint8_t *at, const AnswerText *text, int part) noexcept nogil:
    # Whole strides, the last of them reaching beyond: what comes next is written over that.
    cdef int32_t done = 0
    while done < text.sizes[part]:
        memcpy(at + done, text.parts[part] + done, STRIDE)
        done += STRIDE
    return at + text.sizes[part]


cdef bint put_usual(const SendState *state, Buffer *out, const Waiting *sent) noexcept nogil:
    cdef const AnswerText *text = &state.answer
    cdef uint8_t *frame = buffer_room(out, text.room)
    cdef uint8_t *at
    cdef int32_t header_size
    if frame == NULL:
        return False
    at = put_part(frame + HEAD_SIZE, text, 0)
    at += put_decimal(at, sent.queue_id)
    at = put_part(at, text, 1)
    at += put_message_id(state, sent.physical_offset, at)
    at = put_part(at, text, 2)
    at += put_decimal(at, sent.queue_offset)
    at = put_part(at, text, 3)
    at += put_decimal(at, sent.opaque)
    at = put_part(at, text, 4)
    header_size = <int32_t>(at - frame) - HEAD_SIZE
    store_i32(frame, 4 + header_size)
    store_i32(frame + 4, SERIALIZE_JSON << 24 | header_size)
    out.end += HEAD_SIZE + header_size
    return True


cdef void answer_send(SendState *state, Connection *connection, const Waiting *sent, int32_t code) noexcept nogil:
    cdef bint done
    if sent.serialize_type == SERIALIZE_JSON and code == SUCCESS and sent.ids == NULL and sent.handle == NULL:
        done = put_usual(state, &connection.out, sent)
    else:
        done = put_any(state, &connection.out, sent, code)
    if not done:
        doom(state, connection)
        return
    mark_dirty(state, connection)


cdef object take_answer_text(SendState *state):
    # Written as any other answer is, with marks for its values, and cut at them.
    cdef Reply reply
    cdef Buffer buffer
    cdef Values values
    cdef bint done
    cdef int part
    memset(&buffer, 0, sizeof(Buffer))
    memset(&values, 0, sizeof(Values))
    values.queue_id = <const uint8_t *><const char *><bytes>QUEUE_MARK
    values.queue_id_size = <int32_t>len(QUEUE_MARK)
    values.ids = <const uint8_t *><const char *><bytes>ID_MARK
    values.ids_size = <int32_t>len(ID_MARK)
    values.queue_offset = <const uint8_t *><const char *><bytes>OFFSET_MARK
    values.queue_offset_size = <int32_t>len(OFFSET_MARK)
    reply_start(&reply, SERIALIZE_JSON, SUCCESS, OPAQUE_MARK)
    list_fields(state, &reply, &values)
    done = reply_put(&reply, &buffer, 0)
    text = (<const char *>buffer.data)[HEAD_SIZE:buffer.end] if done else b""
    buffer_free(&buffer)
    if not done:
        raise MemoryError()
    # From both ends: a region may be called like a mark.
    first, rest = text.split(QUEUE_MARK, 1)
    rest, last = rest.rsplit(b"%d" % OPAQUE_MARK, 1)
    rest, fourth = rest.rsplit(OFFSET_MARK, 1)
    second, third = rest.rsplit(ID_MARK, 1)
    parts = tuple(part + bytes(STRIDE) for part in (first, second, third, fourth, last))
    state.answer.room = HEAD_SIZE + MESSAGE_ID_MAX + 3 * NUMBER_MAX + STRIDE
    for part in range(ANSWER_PARTS):
        state.answer.parts[part] = <const uint8_t *><const char *><bytes>parts[part]
        state.answer.sizes[part] = <int32_t>len(parts[part]) - STRIDE
        state.answer.room += state.answer.sizes[part]
    return parts
