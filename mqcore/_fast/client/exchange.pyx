"""One request and its answer on a blocking socket, without the interpreter in between.

The twin is mqcore.transport.exchange. To write the request and read the answer takes 0.8 us, the twin 23 us,
without system calls.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec, timeval

from mqcore._fast.base.big_endian cimport load_i32
from mqcore._fast.base.buffers cimport Buffer, buffer_free, buffer_put, buffer_room, buffer_size, buffer_take
from mqcore._fast.base.layout cimport FRAME_LENGTH_MAX
from mqcore._fast.client.frames cimport SendHead
from mqcore._fast.wire.header cimport (COMMAND_OK, CommandView, TextView, field_of, scan_command, text_to_i32,
                                       text_to_i64)

from mqcore import codes
from mqcore.transport import exchange as twin
from mqcore.errors import RemotingSendError, RemotingTimeoutError

cdef extern from "sys/socket.h" nogil:
    ssize_t c_send "send"(int fd, const void *data, size_t size, int flags)
    ssize_t c_recv "recv"(int fd, void *data, size_t size, int flags)
    int setsockopt(int fd, int level, int name, const void *value, unsigned int size)
    int MSG_NOSIGNAL, MSG_DONTWAIT, MSG_PEEK, SOL_SOCKET, SO_RCVTIMEO, SO_SNDTIMEO

cdef enum:
    READ_SIZE = 16384
    HEADER_MARK_SIZE = 4
    LENGTH_SIZE = 4
    RESPONSE_FLAG = 1
    NS_PER_US = 1000

cdef enum CallOutcome:
    DONE, CLOSED, FAILED, TIMED_OUT, INTERRUPTED, NO_MEMORY, BAD_FRAME

cdef frozenset STORED_CODES = frozenset(int(code) for code in codes.STORED_CODES)


cdef inline int64_t now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


cdef object text_or_none(const CommandView *view, const char *name, int32_t size):
    # Raises UnicodeDecodeError; an escaped text is for the twin.
    cdef TextView text = field_of(view, name, size)
    if text.at == NULL:
        return None
    if text.is_escaped:
        raise UnicodeError
    return PyUnicode_DecodeUTF8(<const char *>text.at, text.size, NULL)


cdef object stored_answer(const CommandView *view):
    # The answer of a send that was stored, or None where the twin has to decide.
    cdef int32_t queue_id
    cdef int64_t queue_offset
    cdef TextView text = field_of(view, b"queueId", 7)
    if not text_to_i32(&text, &queue_id):
        return None
    text = field_of(view, b"queueOffset", 11)
    if not text_to_i64(&text, &queue_offset) or field_of(view, b"msgId", 5).at == NULL:
        return None
    try:
        return (
            view.code, None, text_or_none(view, b"msgId", 5), queue_id, queue_offset,
            text_or_none(view, b"transactionId", 13), text_or_none(view, b"MSG_REGION", 10),
            text_or_none(view, b"TRACE_ON", 8),
        )
    except UnicodeError:
        return None


def decode_send_answer(const uint8_t[::1] payload not None):
    """Return what a broker answered to a send, as the twin does; what is unusual is left to it."""
    cdef CommandView view
    cdef Py_ssize_t size = payload.shape[0]
    answer = None
    if HEADER_MARK_SIZE < size <= FRAME_LENGTH_MAX:
        if scan_command(&payload[0], <int32_t>size, &view) == COMMAND_OK and view.code in STORED_CODES:
            answer = stored_answer(&view)
    return twin.decode_send_answer(payload) if answer is None else answer


# The answer in a frame without its length field; None when that is not the answer to *opaque*.
cdef object answer_in(const uint8_t *payload, int32_t length, int32_t opaque):
    cdef CommandView view
    cdef object answer = None
    if scan_command(payload, length, &view) != COMMAND_OK:
        return twin.answer_of(PyBytes_FromStringAndSize(<const char *>payload, length), opaque)
    if not view.flag & RESPONSE_FLAG or view.opaque != opaque:
        return None
    if view.code in STORED_CODES:
        answer = stored_answer(&view)
    if answer is None:
        answer = twin.decode_send_answer(PyBytes_FromStringAndSize(<const char *>payload, length))
    return answer


def answer_of(const uint8_t[::1] payload not None, int32_t opaque):
    """Return the answer to the send with *opaque*, or None when *payload* is something else, as the twin does."""
    cdef Py_ssize_t size = payload.shape[0]
    if not HEADER_MARK_SIZE < size <= FRAME_LENGTH_MAX:
        return twin.answer_of(payload, opaque)
    return answer_in(&payload[0], <int32_t>size, opaque)


cdef class Exchange:
    """One connected blocking socket, given by its descriptor, which stays the caller's. One request at a time."""

    cdef int fd
    cdef str peer
    cdef Buffer out
    cdef Buffer into
    cdef Buffer scratch
    cdef double timeout_s
    cdef readonly int64_t answers  # of the sends over it, whatever they said

    def __cinit__(self):
        memset(&self.out, 0, sizeof(self.out))
        memset(&self.into, 0, sizeof(self.into))
        memset(&self.scratch, 0, sizeof(self.scratch))

    def __init__(self, int descriptor, str peer not None):
        self.fd = descriptor
        self.peer = peer
        self.timeout_s = -1.0

    def __dealloc__(self):
        buffer_free(&self.out)
        buffer_free(&self.into)
        buffer_free(&self.scratch)

    def send(
        self, head not None, int32_t opaque, int32_t sys_flag, int64_t born_timestamp, int32_t flag,
        dict properties not None, const uint8_t[::1] body not None, double timeout_s
    ):
        """Send one message and return the answer, or None when the connection was closed before anything was sent.

        Raises RemotingSendError or RemotingTimeoutError; ProtocolError when the message cannot travel or the answer
        cannot be read. After an error the socket must be closed, because an answer may still be on its way.
        """
        cdef int64_t size = body.shape[0]
        cdef int64_t deadline_ns
        cdef CallOutcome outcome
        self.out.start = self.out.end = 0
        if type(head) is SendHead:
            (<SendHead>head).put_frame(&self.out, &self.scratch, opaque, sys_flag, born_timestamp, flag, properties,
                                       &body[0] if size > 0 else NULL, size)
        else:
            self.put_encoded(head.encode(opaque, sys_flag, born_timestamp, flag, properties, body))
        if not self.is_clean():
            return None
        self.set_timeout(timeout_s)
        deadline_ns = now_ns() + <int64_t>(timeout_s * 1e9)
        outcome = self.transmit(deadline_ns)
        if outcome == CLOSED:
            return None
        while outcome == DONE:
            outcome = self.receive(deadline_ns)
            if outcome != DONE:
                break
            answer = self.answer_of(opaque)
            if answer is not None:
                self.answers += 1
                return answer
        raise self.error_of(outcome, timeout_s)

    # A frame that Python has written: signed ones.
    cdef int put_encoded(self, bytes frame) except -1:
        if not buffer_put(&self.out, PyBytes_AS_STRING(frame), PyBytes_GET_SIZE(frame)):
            raise MemoryError()
        return 0

    cdef bint is_clean(self) noexcept:
        # Whether the peer has neither closed the connection nor said something that nobody asked for.
        cdef uint8_t byte
        return (c_recv(self.fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0
                and errno == EAGAIN and buffer_size(&self.into) == 0)

    cdef int set_timeout(self, double timeout_s) except -1:
        cdef timeval value
        if timeout_s == self.timeout_s:
            return 0
        value.tv_sec = <long>timeout_s
        value.tv_usec = <long>((timeout_s - value.tv_sec) * 1e6)
        if value.tv_sec == 0 and value.tv_usec == 0:
            value.tv_usec = 1           # zero would mean to wait for ever
        setsockopt(self.fd, SOL_SOCKET, SO_RCVTIMEO, &value, sizeof(value))
        setsockopt(self.fd, SOL_SOCKET, SO_SNDTIMEO, &value, sizeof(value))
        self.timeout_s = timeout_s
        return 0

    cdef CallOutcome transmit(self, int64_t deadline_ns) except *:
        cdef int64_t at = 0
        cdef ssize_t sent
        cdef int error = 0
        while at < self.out.end:
            with nogil:
                sent = c_send(self.fd, self.out.data + at, self.out.end - at, MSG_NOSIGNAL)
                error = errno
            if sent >= 0:
                at += sent
            elif error == EINTR:
                PyErr_CheckSignals()
            elif error == EAGAIN:
                return TIMED_OUT
            else:
                return CLOSED if at == 0 else FAILED
            if at < self.out.end and now_ns() > deadline_ns:
                return TIMED_OUT
        return DONE

    # Read until a whole frame is in the buffer.
    cdef CallOutcome receive(self, int64_t deadline_ns) except *:
        cdef ssize_t got
        cdef int32_t length
        cdef uint8_t *room
        cdef int error = 0
        cdef int pieces = 0
        while True:
            if buffer_size(&self.into) >= LENGTH_SIZE:
                length = load_i32(self.into.data + self.into.start)
                if not HEADER_MARK_SIZE <= length <= FRAME_LENGTH_MAX:
                    return BAD_FRAME
                if buffer_size(&self.into) - LENGTH_SIZE >= length:
                    return DONE
            # The socket's own timeout begins anew with each piece that arrives; the deadline does not.
            if pieces > 0 and now_ns() > deadline_ns:
                return TIMED_OUT
            pieces += 1
            room = buffer_room(&self.into, READ_SIZE)
            if room == NULL:
                return NO_MEMORY
            with nogil:
                got = c_recv(self.fd, room, READ_SIZE, 0)
                error = errno
            if got > 0:
                self.into.end += got
            elif got == 0:
                return FAILED
            elif error == EINTR:
                PyErr_CheckSignals()
            else:
                return TIMED_OUT if error == EAGAIN else FAILED

    # The answer in the frame at the front, which is taken out; None when that is not the answer to *opaque*.
    cdef object answer_of(self, int32_t opaque):
        cdef int32_t length = load_i32(self.into.data + self.into.start)
        answer = answer_in(self.into.data + self.into.start + LENGTH_SIZE, length, opaque)
        buffer_take(&self.into, LENGTH_SIZE + length)
        return answer

    cdef object error_of(self, CallOutcome outcome, double timeout_s):
        if outcome == TIMED_OUT:
            return RemotingTimeoutError(f"no response from {self.peer} within {timeout_s * 1000:.0f} ms")
        if outcome == BAD_FRAME:
            length = load_i32(self.into.data + self.into.start)
            return RemotingSendError(f"connection to {self.peer}: got a frame of length {length}")
        if outcome == NO_MEMORY:
            return MemoryError()
        return RemotingSendError(f"connection to {self.peer} was closed")
