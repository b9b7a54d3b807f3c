"""What a producer does for each message that joins a batch; the readable twin is mqcore.client.produce.batch_body.

A message of 1 KiB joins in 0.5 us, its room, its unique id and its place in the batch's body included; the twin takes
3.6 us. Nothing here runs Python code between a look and what depends on it, so threads see each step whole.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec
from posix.unistd cimport getpid

from mqcore._fast.base.big_endian cimport store_i16, store_i32
from mqcore._fast.base.buffers cimport Buffer
from mqcore._fast.base.layout cimport BATCH_MEMBER_HEAD_SIZE, FRAME_LENGTH_MAX, PROPERTIES_SIZE_MAX
from mqcore._fast.client.frames cimport borrow, hand_back, need, put, put_properties, put_property
from mqcore._fast.wire.replies cimport put_hex

from mqcore.client.produce import batch_body as twin
from mqcore.errors import FrameError, HeaderError, ProtocolError
from mqcore.protocol import message_id
from mqcore.protocol import properties as names

cdef extern from "Python.h":
    ctypedef int (*descrsetfunc)(PyObject *, PyObject *, PyObject *) except -1
    ctypedef struct PyTypeObject:
        descrsetfunc tp_descr_set
    PyTypeObject *Py_TYPE(object value)

cdef enum:
    MEMBERS_MAX = 4096
    PREFIX_SIZE_MAX = 44                # hexadecimal of an IPv6 address, pid and loader bytes
    TAIL_SIZE = 6                       # of an id, before it becomes hexadecimal: time and counter
    PROPERTIES_SIZE_SIZE = 2
    PROPERTIES_SIZE_USUAL = 128
    MAKER_VALUES_MAX = 16

assert MEMBERS_MAX == twin.MEMBERS_MAX

cdef str KEYS = names.PROPERTY_KEYS
cdef str TAGS = names.PROPERTY_TAGS
cdef str WAIT = names.PROPERTY_WAIT_STORE_MSG_OK
cdef str UNIQ_KEY = names.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX
cdef frozenset ALONE = twin.ALONE


cdef class UniqueIdGenerator:
    """Makes unique ids; see ``mqcore.protocol.message_id`` for the layout. Threads may share one."""

    cdef object twin
    cdef int pid
    cdef uint8_t prefix[PREFIX_SIZE_MAX]
    cdef int32_t prefix_size
    cdef int32_t counter
    cdef int64_t last_ms, month_start_ms, month_end_ms

    def __init__(self, str ip not None):
        self.twin = message_id.UniqueIdGenerator(ip)
        self.pid = 0
        self.last_ms = self.month_start_ms = self.month_end_ms = 0

    cdef int begin_process(self) except -1:
        # The twin notices a fork by itself; what it says first is where this one goes on.
        cdef bytes first = self.twin.next_id().encode()
        self.prefix_size = <int32_t>len(first) - 2 * TAIL_SIZE
        memcpy(self.prefix, PyBytes_AS_STRING(first), self.prefix_size)
        self.counter = int(first[-4:], 16)
        self.pid = getpid()
        return 0

    cpdef str next_id(self):
        """Return a new id: 32 characters for an IPv4 address, 56 for IPv6."""
        cdef timespec now
        cdef int64_t now_ms
        cdef uint8_t text[PREFIX_SIZE_MAX + 2 * TAIL_SIZE]
        cdef uint8_t tail[TAIL_SIZE]
        if self.pid != getpid():
            self.begin_process()
        clock_gettime(CLOCK_REALTIME, &now)
        now_ms = <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000
        # The clock may be set back; time and counter together must not come again.
        if now_ms < self.last_ms:
            now_ms = self.last_ms
        self.last_ms = now_ms
        if not self.month_start_ms <= now_ms < self.month_end_ms:
            self.month_start_ms, self.month_end_ms = message_id._month_bounds_ms(now_ms)
        self.counter = (self.counter + 1) & 0xFFFF
        store_i32(tail, <int32_t>(now_ms - self.month_start_ms))
        store_i16(tail + 4, <short>self.counter)
        memcpy(text, self.prefix, self.prefix_size)
        put_hex(text + self.prefix_size, tail, TAIL_SIZE)
        return PyUnicode_DecodeASCII(<const char *>text, self.prefix_size + 2 * TAIL_SIZE, NULL)


cdef class Room:
    """Counts what is under way. ``has_waiters`` is the owner's: while it is set ``try_take`` refuses."""

    cdef readonly int64_t messages
    cdef readonly int64_t bytes
    cdef int64_t messages_max, bytes_max
    cdef public bint has_waiters

    def __init__(self, int64_t messages_max, int64_t bytes_max):
        self.messages = self.bytes = 0
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.has_waiters = False

    cpdef bint try_take(self, int64_t size):
        """Take room for one message of *size* bytes if there is some and nobody waits for it."""
        return not self.has_waiters and self.take(size)

    cpdef bint take(self, int64_t size):
        """Take room for one message of *size* bytes if there is some. One larger than all of it may pass alone."""
        if self.messages > 0:
            if self.messages >= self.messages_max or size > self.bytes_max - self.bytes:
                return False
        self.messages += 1
        self.bytes += size
        return True

    cpdef bint give_back(self, int64_t size, int64_t count):
        """Give back the room of *count* messages of *size* bytes together; return whether somebody is to be told."""
        self.messages -= count
        self.bytes -= size
        return self.has_waiters


cdef class BatchBody:
    """The body of a batch while it is filled, and the ids of its members.

    It is full at *batch_bytes* or MEMBERS_MAX members; messages whose body has *body_size_max* bytes or more may not
    join.
    """

    cdef Buffer buffer
    cdef readonly list ids
    cdef readonly int64_t bodies_size
    cdef public bint is_full
    cdef readonly bint wait_store_ok
    cdef int64_t batch_bytes, body_size_max
    cdef int pid

    def __cinit__(self):
        borrow(&self.buffer)

    def __init__(self, int64_t batch_bytes, int64_t body_size_max, bint wait_store_ok):
        self.ids = []
        self.pid = getpid()
        self.bodies_size = 0
        self.is_full = False
        self.wait_store_ok = wait_store_ok
        self.batch_bytes = batch_bytes
        self.body_size_max = body_size_max

    def __dealloc__(self):
        hand_back(&self.buffer)

    @property
    def size(self):
        """Bytes of the batch's body."""
        return self.buffer.end - self.buffer.start

    @property
    def count(self):
        return len(self.ids)

    def append(self, int32_t flag, dict properties not None, bytes body not None, str unique_id not None):
        """Write one member, whose properties hold its id, and return its place.

        On HeaderError or ProtocolError nothing has been written.
        """
        cdef int64_t start = self.buffer.end - self.buffer.start
        cdef int64_t properties_at
        try:
            properties_at = self.begin_member(body)
            put_properties(&self.buffer, properties)
        except BaseException:
            self.buffer.end = self.buffer.start + start
            raise
        self.end_member(start, properties_at, flag, body, unique_id)
        return len(self.ids) - 1

    cpdef Py_ssize_t try_join(self, message, type kind, UniqueIdGenerator unique_ids, Room room) except -2:
        """Take room for *message*, give it an id, write it, and return its place; -1, and nothing done, if it may not.

        Only a message of exactly the type *kind* may, none that a broker treats by itself, and none in a forked child,
        where nobody would send it.
        """
        cdef int64_t start, properties_at, size
        cdef bytes body
        cdef str unique_id
        cdef bint is_first = True
        if self.is_full or self.pid != getpid() or type(message) is not kind:
            return -1
        if message.delay_level or type(message.body) is not bytes:
            return -1
        body = message.body
        size = PyBytes_GET_SIZE(body)
        if size == 0 or size >= self.body_size_max or <bint>message.wait_store_ok != self.wait_store_ok:
            return -1
        properties, keys = message.properties, message.keys
        if properties and (type(properties) is not dict or not ALONE.isdisjoint(properties)):
            return -1
        if not room.try_take(size):
            return -1
        start = self.buffer.end - self.buffer.start
        try:
            unique_id = unique_ids.next_id()
            properties_at = self.begin_member(body)
            if properties:
                for name, value in (<dict>properties).items():
                    put_property(&self.buffer, name, value, &is_first)
            if message.tag:
                put_property(&self.buffer, TAGS, message.tag, &is_first)
            if keys:
                put_property(&self.buffer, KEYS, " ".join(keys), &is_first)
            if not self.wait_store_ok:
                put_property(&self.buffer, WAIT, "false", &is_first)
            put_property(&self.buffer, UNIQ_KEY, unique_id, &is_first)
            if self.buffer.end - self.buffer.start - properties_at - PROPERTIES_SIZE_SIZE > PROPERTIES_SIZE_MAX:
                raise ProtocolError("properties too long")
            self.end_member(start, properties_at, message.flag, body, unique_id)
        except (HeaderError, ProtocolError, OverflowError, TypeError):
            # The long way finds the words for it.
            self.buffer.end = self.buffer.start + start
            room.give_back(size, 1)
            return -1
        return len(self.ids) - 1

    cdef int64_t begin_member(self, bytes body) except -1:
        # Returns where the properties' size goes, from the start of what is kept.
        cdef int64_t size = PyBytes_GET_SIZE(body)
        cdef int64_t at
        if size > FRAME_LENGTH_MAX:
            raise FrameError(f"body too large: got {size} bytes, wanted at most {FRAME_LENGTH_MAX}")
        need(&self.buffer, BATCH_MEMBER_HEAD_SIZE + size + PROPERTIES_SIZE_SIZE + PROPERTIES_SIZE_USUAL)
        self.buffer.end += BATCH_MEMBER_HEAD_SIZE
        put(&self.buffer, PyBytes_AS_STRING(body), size)
        at = self.buffer.end - self.buffer.start
        self.buffer.end += PROPERTIES_SIZE_SIZE
        return at

    cdef int end_member(
        self, int64_t start, int64_t properties_at, int32_t flag, bytes body, str unique_id
    ) except -1:
        cdef uint8_t *data = self.buffer.data + self.buffer.start
        cdef int64_t end = self.buffer.end - self.buffer.start
        store_i16(data + properties_at, <short>(end - properties_at - PROPERTIES_SIZE_SIZE))
        store_i32(data + start, <int32_t>(end - start))
        store_i32(data + start + 4, 0)
        store_i32(data + start + 8, 0)
        store_i32(data + start + 12, flag)
        store_i32(data + start + 16, <int32_t>PyBytes_GET_SIZE(body))
        self.ids.append(unique_id)
        self.bodies_size += PyBytes_GET_SIZE(body)
        if end >= self.batch_bytes or len(self.ids) >= MEMBERS_MAX:
            self.is_full = True
        return 0

    def take(self):
        """Return the body, and let go of it."""
        data = PyBytes_FromStringAndSize(<const char *>self.buffer.data + self.buffer.start,
                                         self.buffer.end - self.buffer.start)
        hand_back(&self.buffer)
        return data


cdef class Joiner:
    """Lets messages join the open batches of a producer's lanes; see the twin.

    No lock is needed here: between finding the open batch and having written the message no other thread runs.
    """

    cdef dict lanes
    cdef type message_kind
    cdef type future_kind
    cdef UniqueIdGenerator unique_ids
    cdef Room room
    cdef object when_full

    def __init__(self, dict lanes not None, type message_kind not None, type future_kind not None,
                 UniqueIdGenerator unique_ids not None, Room room not None, when_full, lock):
        self.lanes = lanes
        self.message_kind = message_kind
        self.future_kind = future_kind
        self.unique_ids = unique_ids
        self.room = room
        self.when_full = when_full

    def join(self, message, queue=None):
        """Return the future of *message* in the open batch of its lane; None, and nothing done, if it may not join."""
        cdef Py_ssize_t index
        cdef FutureFields future
        cdef BatchBody body
        lane = self.lanes.get(message.topic if queue is None else queue)
        if lane is None:
            return None
        batch = lane.open
        if batch is None:
            return None
        body = batch.body
        if body is None:
            return None
        index = body.try_join(message, self.message_kind, self.unique_ids, self.room)
        if index < 0:
            return None
        future = self.future_kind.__new__(self.future_kind)
        future.batch = batch
        future.index = index
        if body.is_full:
            self.when_full(lane)
        return future


cdef class FutureFields:
    """One place in a batch, and the receipt that will lie there."""

    cdef public object batch
    cdef public Py_ssize_t index

    def __init__(self, batch, Py_ssize_t index):
        self.batch = batch
        self.index = index

    def result(self, timeout_s=None):
        """Wait for the receipt, at most *timeout_s* (then TimeoutError; the message is still sent), and return it."""
        receipts = self.batch.receipts
        if receipts is not None:
            return (<Receipts>receipts).get(self.index)
        return self.batch.wait_receipt(self.index, timeout_s)


cdef class Receipts:
    """The receipts of a batch that was stored: each is made when it is asked for."""

    cdef Maker maker
    cdef list ids
    cdef list offset_ids
    cdef object status, queue, transaction_id, region_id, trace_on, recall_handle
    cdef int64_t offset

    def __init__(self, type kind not None, list ids not None, list offset_ids not None, status, queue, int64_t offset,
                 transaction_id, region_id, trace_on, recall_handle=None):
        self.maker = Maker(kind)
        self.ids = ids
        self.offset_ids = offset_ids
        self.status = status
        self.queue = queue
        self.offset = offset
        self.transaction_id = transaction_id
        self.region_id = region_id
        self.trace_on = trace_on
        self.recall_handle = recall_handle

    cpdef object get(self, Py_ssize_t index):
        """Return the receipt of the message at *index*."""
        cdef PyObject *values[9]
        # Held by names of their own: the values are borrowed from them.
        cdef object msg_id = self.ids[index]
        cdef object offset_id = self.offset_ids[index] if index < len(self.offset_ids) else ""
        cdef object offset = self.offset + index
        values[0] = <PyObject *>self.status
        values[1] = <PyObject *>msg_id
        values[2] = <PyObject *>offset_id
        values[3] = <PyObject *>self.queue
        values[4] = <PyObject *>offset
        values[5] = <PyObject *>self.transaction_id
        values[6] = <PyObject *>self.region_id
        values[7] = <PyObject *>self.trace_on
        values[8] = <PyObject *>self.recall_handle
        return self.maker.made_of(values, 9)


cdef class Maker:
    """Makes objects of a frozen dataclass with slots from all their values, without a call per field."""

    cdef type kind
    cdef tuple descriptors

    def __init__(self, type kind not None):
        self.kind = kind
        self.descriptors = tuple(kind.__dict__[name] for name in kind.__slots__)

    def make(self, *values):
        """Return an object whose slots are *values*, in the order of the fields. Nothing is checked."""
        cdef PyObject *found[MAKER_VALUES_MAX]
        cdef Py_ssize_t index
        if len(values) > MAKER_VALUES_MAX:
            raise TypeError(f"got {len(values)} values, wanted at most {MAKER_VALUES_MAX}")
        for index in range(len(values)):
            found[index] = <PyObject *>values[index]
        return self.made_of(found, len(values))

    cdef object made_of(self, PyObject **values, Py_ssize_t count):
        cdef Py_ssize_t index
        cdef object made = self.kind.__new__(self.kind)
        cdef object descriptor
        if count != len(self.descriptors):
            raise TypeError(f"got {count} values, wanted {len(self.descriptors)}")
        for index in range(count):
            descriptor = self.descriptors[index]
            Py_TYPE(descriptor).tp_descr_set(<PyObject *>descriptor, <PyObject *>made, values[index])
        return made
