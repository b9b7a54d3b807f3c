"""Received messages straight from the records of a pull; the readable twin is mqcore.protocol.pulled.

A record of 1 KiB becomes a message in 0.17 us, the twin takes 14 us. IPv6 hosts, long topics and everything that
contradicts the layout are left to the twin.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy

from mqcore._fast.log.record cimport DECODE_OK, RecordView, decode_record, find_property

from mqcore.protocol import pulled as twin
from mqcore.protocol import properties as names
from mqcore.protocol.compression import decompress
from mqcore.protocol.message import MessageExt
from mqcore.protocol.message_id import HostAddress
from mqcore.protocol.properties import decode_properties

cdef extern from "Python.h":
    ctypedef struct TypeSlots "PyTypeObject":
        object (*tp_new)(TypeSlots *, PyObject *, PyObject *)

    void PyObject_GC_UnTrack(PyObject *)

cdef enum:
    SYS_COMPRESSED = 1

cdef tuple NO_ARGUMENTS = ()

cdef bytes TAGS = names.PROPERTY_TAGS.encode()
cdef bytes KEYS = names.PROPERTY_KEYS.encode()
cdef bytes UNIQ_KEY = names.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX.encode()
cdef bytes RETRY_TOPIC = names.PROPERTY_RETRY_TOPIC.encode()


cdef class RecordFields:
    """The fields of a received message; see the twin. ``ext`` is made from the record when somebody asks for it."""

    def __init__(self, ext, queue, *, topic=None, held=None, settler=None):
        self._ext = ext
        self.queue = queue
        self.queue_offset = ext.queue_offset
        self.body_size = len(ext.body)
        self.topic = ext.topic if topic is None else topic
        self.held = held
        self.settled = False
        self.consume_started_s = 0.0
        self.settler = settler

    @property
    def ext(self):
        """The record with everything in it."""
        if self._ext is None:
            self._ext = MessageExt(
                self.record_topic, self.raw_body, flag=self.raw_flag, properties=decode_properties(self.raw_properties),
                queue_id=self.queue_id, queue_offset=self.queue_offset, physical_offset=self.physical_offset,
                sys_flag=self.sys_flag, born_timestamp=self.raw_born_timestamp,
                born_host=host_of(self.born_ip, self.born_port), store_timestamp=self.raw_store_timestamp,
                store_host=host_of(self.store_ip, self.store_port), reconsume_times=self.raw_reconsume_times,
                prepared_transaction_offset=self.prepared_transaction_offset, body_crc=self.body_crc,
                store_size=self.store_size,
            )
            twin.complete(self._ext, self.queue.broker_name, self.min_offset, self.max_offset)
        return self._ext

    @ext.setter
    def ext(self, value):
        self._ext = value

    @property
    def body(self):
        return self.raw_body if self._ext is None else self._ext.body

    @property
    def tag(self):
        return self.raw_property(TAGS) if self._ext is None else self._ext.tags

    @property
    def keys(self):
        text = self.raw_property(KEYS) if self._ext is None else self._ext.keys
        return tuple((text or "").split())

    @property
    def msg_id(self):
        """The id that the sender gave the message, or the offset id when it gave none."""
        unique_id = self.raw_property(UNIQ_KEY) if self._ext is None else None
        return self.ext.msg_id if unique_id is None else unique_id

    @property
    def born_timestamp(self):
        return self.raw_born_timestamp if self._ext is None else self._ext.born_timestamp

    @property
    def store_timestamp(self):
        return self.raw_store_timestamp if self._ext is None else self._ext.store_timestamp

    @property
    def reconsume_times(self):
        """How often the message was delivered before and sent back."""
        return self.raw_reconsume_times if self._ext is None else self._ext.reconsume_times

    @property
    def flag(self):
        return self.raw_flag if self._ext is None else self._ext.flag

    cdef object raw_property(self, bytes name):
        cdef const uint8_t *text = <const uint8_t *>PyBytes_AS_STRING(self.raw_properties)
        return property_of(text, <int32_t>PyBytes_GET_SIZE(self.raw_properties), name)


cdef object host_of(const uint8_t *ip, int32_t port):
    return HostAddress(f"{ip[0]}.{ip[1]}.{ip[2]}.{ip[3]}", port)


# The value of a property, or None.
cdef object property_of(const uint8_t *properties, int32_t size, bytes name):
    cdef const uint8_t *value
    cdef int32_t value_size
    cdef int32_t name_size = <int32_t>PyBytes_GET_SIZE(name)
    if not find_property(properties, size, PyBytes_AS_STRING(name), name_size, &value, &value_size):
        return None
    return PyUnicode_DecodeUTF8(<const char *>value, value_size, "replace")


cdef inline bint is_usual(const RecordView *view) noexcept:
    return view.born_host.address_size == IPV4_SIZE and view.store_host.address_size == IPV4_SIZE


cdef int fill(RecordFields message, const RecordView *view, str topic) except -1:
    message.record_topic = topic
    message.raw_properties = PyBytes_FromStringAndSize(<const char *>view.properties, view.properties_size)
    message.raw_body = PyBytes_FromStringAndSize(<const char *>view.body, view.body_size)
    if view.sys_flag & SYS_COMPRESSED:
        message.raw_body = decompress(message.raw_body, view.sys_flag)
    message.body_size = PyBytes_GET_SIZE(message.raw_body)
    message.queue_offset = view.queue_offset
    message.physical_offset = view.physical_offset
    message.raw_born_timestamp = view.born_timestamp
    message.raw_store_timestamp = view.store_timestamp
    message.prepared_transaction_offset = view.prepared_transaction_offset
    message.queue_id = view.queue_id
    message.raw_flag = view.flag
    message.sys_flag = view.sys_flag
    message.body_crc = view.body_crc
    message.raw_reconsume_times = view.reconsume_times
    message.store_size = view.total_size
    message.born_port = view.born_host.port
    message.store_port = view.store_host.port
    memcpy(message.born_ip, view.born_host.address, IPV4_SIZE)
    memcpy(message.store_ip, view.store_host.address, IPV4_SIZE)
    return 0


def decode_pulled(type kind not None, const uint8_t[::1] body not None, queue, tags, int64_t min_offset,
                  int64_t max_offset, str retry_topic, held, settler, bint acyclic=False, shown=None):
    """Return the messages of a pull, objects of *kind*, which extends RecordFields; see the twin."""
    cdef Py_ssize_t size = body.shape[0]
    cdef const uint8_t *data = &body[0] if size > 0 else NULL
    cdef Py_ssize_t at = 0
    cdef RecordView view
    cdef const uint8_t *last_topic = NULL
    cdef int32_t last_topic_size = 0
    cdef str topic = None
    cdef str topic_shown = None
    cdef RecordFields message
    cdef list messages = []
    while at < size:
        if decode_record(data + at, size - at, False, &view) != DECODE_OK or not is_usual(&view):
            return twin.decode_pulled(
                kind, body, queue, tags, min_offset, max_offset, retry_topic, held, settler, acyclic, shown)
        at += view.total_size
        if tags is not None and property_of(view.properties, view.properties_size, TAGS) not in tags:
            continue
        if (last_topic == NULL or view.topic_size != last_topic_size
                or memcmp(view.topic, last_topic, last_topic_size) != 0):
            topic = PyUnicode_DecodeUTF8(<const char *>view.topic, view.topic_size, "replace")
            topic_shown = topic if shown is None else shown(topic)
            last_topic = view.topic
            last_topic_size = view.topic_size
        message = (<TypeSlots *>kind).tp_new(<TypeSlots *>kind, <PyObject *>NO_ARGUMENTS, NULL)
        fill(message, &view, topic)
        message.topic = topic_shown
        if topic == retry_topic:
            first_topic = property_of(view.properties, view.properties_size, RETRY_TOPIC)
            if first_topic is not None:
                message.topic = first_topic if shown is None else shown(first_topic)
        message.queue = queue
        message.held = held
        message.settler = settler
        message.settled = False
        message.consume_started_s = 0.0
        message.min_offset = min_offset
        message.max_offset = max_offset
        if acyclic:
            # A tracked object costs up to 0.4 us in the collections that its like bring about.
            PyObject_GC_UnTrack(<PyObject *>message)
        messages.append(message)
    return messages


def body_sizes(messages not None):
    """Return how many bytes the bodies of *messages* have together."""
    cdef RecordFields message
    cdef int64_t size = 0
    for message in messages:
        size += message.body_size
    return size
