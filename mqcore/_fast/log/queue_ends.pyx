"""How far a run of the log fills its queues, by its records alone; the twin is mqcore/store/log/queue_ends.py.

A record of 1 KiB takes some 30 ns where it is in memory; bodies are not read.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from mqcore._fast.base.hashing cimport hash_bytes
from mqcore._fast.base.layout cimport TOPIC_SIZE_MAX
from mqcore._fast.log.record cimport (DECODE_OK, SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_MASK, RecordView,
                                      decode_record)

from mqcore.store.log.queue_ends import QueueEnd


cdef enum:
    SLOTS_FIRST = 1024              # a power of two, as are all later sizes
    NOT_FOUND = -1

cdef int64_t NEVER = 0x7FFFFFFFFFFFFFFF

cdef struct Queue:
    int64_t first
    int64_t end
    int64_t count
    int64_t since
    int64_t born
    int64_t asked_timestamp
    int32_t queue_id
    int32_t topic_size              # 0: nobody is here
    uint8_t topic[128]

assert TOPIC_SIZE_MAX <= 128


# Where the queue is, or where it would come.
cdef Queue *find(Queue *slots, int64_t slot_count, const uint8_t *topic, int32_t size, int32_t queue_id) noexcept nogil:
    cdef uint64_t at = hash_bytes(topic, size, <uint64_t>queue_id) & <uint64_t>(slot_count - 1)
    while slots[at].topic_size != 0:
        if (slots[at].queue_id == queue_id and slots[at].topic_size == size
                and memcmp(slots[at].topic, topic, size) == 0):
            break
        at = (at + 1) & <uint64_t>(slot_count - 1)
    return &slots[at]


cdef class QueueEnds:
    """Takes the log in order, and knows of each queue that it has met how far it goes."""

    cdef Queue *slots
    cdef int64_t slot_count
    cdef int64_t used

    def __cinit__(self):
        self.slots = <Queue *>calloc(SLOTS_FIRST, sizeof(Queue))
        if self.slots == NULL:
            raise MemoryError
        self.slot_count = SLOTS_FIRST

    def __dealloc__(self):
        free(self.slots)

    # Of a topic of 1 to 127 bytes. NULL: no memory.
    cdef Queue *queue_of(self, const uint8_t *topic, int32_t size, int32_t queue_id) noexcept nogil:
        cdef Queue *queue
        if self.used >= self.slot_count // 2 and not self.grow():
            return NULL
        queue = find(self.slots, self.slot_count, topic, size, queue_id)
        if queue.topic_size == 0:
            memcpy(queue.topic, topic, size)
            queue.topic_size = size
            queue.queue_id = queue_id
            queue.since = NOT_FOUND
            queue.asked_timestamp = NEVER
            self.used += 1
        return queue

    cdef bint grow(self) noexcept nogil:
        cdef int64_t count = self.slot_count * 2, at
        cdef Queue *slots = <Queue *>calloc(count, sizeof(Queue))
        if slots == NULL:
            return False
        for at in range(self.slot_count):
            if self.slots[at].topic_size != 0:
                find(slots, count, self.slots[at].topic, self.slots[at].topic_size, self.slots[at].queue_id)[0] = (
                    self.slots[at])
        free(self.slots)
        self.slots, self.slot_count = slots, count
        return True

    cdef Queue *named(self, bytes topic, int32_t queue_id) except NULL:
        cdef Queue *queue
        cdef const uint8_t *name = topic
        if not 0 < len(topic) <= TOPIC_SIZE_MAX:
            raise ValueError(f"topic: got {len(topic)} bytes, wanted 1 to {TOPIC_SIZE_MAX}")
        queue = self.queue_of(name, <int32_t>len(topic), queue_id)
        if queue == NULL:
            raise MemoryError
        return queue

    def bear(self, bytes topic not None, int32_t queue_id, int64_t physical_offset):
        """Records of the queue that start before *physical_offset* are of one that was dropped, and do not count."""
        self.named(topic, queue_id).born = physical_offset

    def ask_since(self, bytes topic not None, int32_t queue_id, int64_t store_timestamp):
        """Look for the queue's first record that was stored later than *store_timestamp*, ms."""
        self.named(topic, queue_id).asked_timestamp = store_timestamp

    cdef bint count_record(self, const RecordView *view, int64_t physical_offset) noexcept nogil:
        cdef Queue *queue
        cdef int32_t transaction = view.sys_flag & SYS_TRANSACTION_MASK
        if view.topic_size == 0 or (transaction != 0 and transaction != SYS_TRANSACTION_COMMIT):
            return True
        queue = self.queue_of(view.topic, view.topic_size, view.queue_id)
        if queue == NULL:
            return False
        if physical_offset < queue.born:
            return True
        if queue.count == 0:
            queue.first = view.queue_offset
        queue.count += 1
        if view.queue_offset >= queue.end:
            queue.end = view.queue_offset + 1
        if queue.since == NOT_FOUND and view.store_timestamp > queue.asked_timestamp:
            queue.since = view.queue_offset
        return True

    def feed(self, const uint8_t[::1] buffer not None, int64_t physical_offset):
        """Take the whole records at the start of *buffer*, the log from *physical_offset* on; how many bytes they are.

        CRCs are not looked at. It stops before what is no record.
        """
        cdef RecordView view
        cdef Py_ssize_t length = buffer.shape[0], at = 0
        cdef const uint8_t *base = &buffer[0] if length > 0 else NULL
        cdef bint has_memory = True
        with nogil:
            while at < length:
                if decode_record(base + at, length - at, False, &view) != DECODE_OK:
                    break
                has_memory = self.count_record(&view, physical_offset + at)
                if not has_memory:
                    break
                at += view.total_size
        if not has_memory:
            raise MemoryError
        return at

    def ends(self):
        """Return what was found, by topic and queue id; queues without a record are left out."""
        cdef int64_t at
        cdef Queue *queue
        found = {}
        for at in range(self.slot_count):
            queue = &self.slots[at]
            if queue.topic_size != 0 and queue.count > 0:
                found[(queue.topic[:queue.topic_size], queue.queue_id)] = QueueEnd(
                    queue.first, queue.end, queue.count, queue.since)
        return found
