"""The messages of one pull, while an application takes them; the readable twin is mqcore.client.consume.polled.batch.

Nothing here runs Python code between a look and what depends on it, so threads see each step whole. The load
``receive_each`` of benchmarks.client measures it.
"""

from libc.stdint cimport int64_t

from mqcore._fast.client.records cimport RecordFields

from mqcore._fast.client.records import body_sizes


cdef class Batch:
    """The messages of one pull; see the twin."""

    cdef list messages  # not looked at when all of it has been taken: it is the application's then
    cdef object run
    cdef int64_t turn
    cdef Py_ssize_t count
    cdef Py_ssize_t taken  # those before have been taken from here
    cdef Py_ssize_t got  # and those before, the event loop knows of
    cdef readonly object assigned
    cdef readonly int64_t in_hand_offset
    cdef public bint is_noted  # the event loop is going to catch up

    def __init__(self, assigned, list messages not None):
        self.assigned = assigned
        self.messages = messages
        self.count = len(messages)
        self.run = assigned.held.add(messages)
        self.turn = assigned.turn
        self.taken = 0
        self.got = 0
        self.in_hand_offset = -1
        self.is_noted = False

    def __bool__(self):
        """Whether there is something left to take."""
        return self.taken < self.count

    @property
    def is_current(self):
        """Whether it may be handed out: its queue is still held, and was not sent elsewhere since the pull."""
        return self.may_be_had()

    cdef bint may_be_had(self) except -1:
        return self.turn == <int64_t>self.assigned.turn and not self.assigned.held.dropped

    def take(self, count_max=None):
        """Return the next messages, all that are left or at most *count_max*."""
        cdef Py_ssize_t begin = self.taken
        cdef Py_ssize_t count = self.count - begin
        if count_max is not None and count_max < count:
            count = count_max
        if count > 0:
            self.in_hand_offset = (<RecordFields?>self.messages[begin]).queue_offset
            self.taken = begin + count
        return self.messages if count == self.count else self.messages[begin:begin + count]

    def take_one(self):
        """Return the next message; None when there is none left, or none that may be handed out."""
        return self.next_one()

    cdef RecordFields next_one(self):
        cdef RecordFields message
        if self.taken == self.count or not self.may_be_had():
            return None
        message = self.messages[self.taken]
        self.in_hand_offset = message.queue_offset
        self.taken += 1
        return message

    def catch_up(self):
        """Note in the queue what has been taken from a current batch; return whether there was anything new."""
        cdef Py_ssize_t got = self.got
        cdef Py_ssize_t taken = self.taken
        if taken == got:
            return False
        self.got = taken
        size = self.run.size if taken - got == self.count else body_sizes(self.messages[got:taken])
        next_offset = self.messages[taken].queue_offset if taken < self.count else self.run.last_offset + 1
        self.assigned.held.take_from(self.run, taken - got, size, next_offset)
        return True


cdef class Iteration:
    """Gives message by message out of the batch that is *claimed*; see the twin."""

    cdef object claim
    cdef object note
    cdef public Batch claimed

    def __init__(self, claim, note):
        self.claim = claim
        self.note = note
        self.claimed = None

    def __iter__(self):
        return self

    def __next__(self):
        cdef Batch batch
        cdef RecordFields message
        while True:
            batch = self.claimed
            if batch is not None:
                message = batch.next_one()
                if message is not None:
                    if not batch.is_noted:
                        self.note(batch)
                    return message
            if not self.claim():
                raise StopIteration
