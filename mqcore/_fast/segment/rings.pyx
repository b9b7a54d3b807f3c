"""Single-producer, single-consumer rings of variable entries in the shared segment.

An entry is a RING_ENTRY head and its payload, padded to 8 bytes; it never wraps: where it would, a skip entry fills
the end of the ring. A full ring refuses, and its producer decides what the client is told.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from mqcore._fast.base.atomics cimport observe, peek, publish, put_relaxed
from mqcore._fast.base.checks cimport check
from mqcore._fast.base.layout cimport (ARRIVAL_RING_BYTES, PULL_RING_BYTES, PULL_WORKERS_MAX, REGION_ARRIVAL_RINGS_AT,
                                       REGION_PULL_REPLY_RINGS_AT, REGION_PULL_REQUEST_RINGS_AT, RingEntry, RingHead)
from mqcore._fast.segment.boards cimport Shared, SharedSegment

cdef enum:
    SKIP = -1


cdef inline int64_t entry_bytes(int32_t size) noexcept nogil:
    return (<int64_t>sizeof(RingEntry) + size + 7) & ~<int64_t>7


cdef void ring_open(Ring *ring, uint8_t *at, int64_t capacity) noexcept nogil:
    ring.head = <RingHead *>at
    ring.data = at + sizeof(RingHead)
    ring.capacity = capacity
    put_relaxed(&ring.head.capacity, capacity)


cdef void open_pull_request_ring(Ring *ring, const Shared *shared, int sender, int puller) noexcept nogil:
    cdef int64_t number = sender * PULL_WORKERS_MAX + puller
    ring_open(ring, <uint8_t *>shared.base + REGION_PULL_REQUEST_RINGS_AT
              + number * (<int64_t>sizeof(RingHead) + PULL_RING_BYTES), PULL_RING_BYTES)


cdef void open_pull_reply_ring(Ring *ring, const Shared *shared, int sender, int puller) noexcept nogil:
    cdef int64_t number = sender * PULL_WORKERS_MAX + puller
    ring_open(ring, <uint8_t *>shared.base + REGION_PULL_REPLY_RINGS_AT
              + number * (<int64_t>sizeof(RingHead) + PULL_RING_BYTES), PULL_RING_BYTES)


cdef void open_arrival_ring(Ring *ring, const Shared *shared, int puller) noexcept nogil:
    ring_open(ring, <uint8_t *>shared.base + REGION_ARRIVAL_RINGS_AT
              + puller * (<int64_t>sizeof(RingHead) + ARRIVAL_RING_BYTES), ARRIVAL_RING_BYTES)


cdef uint8_t *ring_reserve(Ring *ring, int32_t size, int32_t kind) noexcept nogil:
    cdef int64_t tail = peek(&ring.head.tail)
    cdef int64_t used = tail - observe(&ring.head.head)
    cdef int64_t at = tail & (ring.capacity - 1)
    cdef int64_t need = entry_bytes(size)
    cdef int64_t skip = 0
    cdef RingEntry *entry
    check(0 <= used <= ring.capacity, "a ring's head and tail are no further apart than its capacity")
    if at + need > ring.capacity:
        skip = ring.capacity - at
    if size < 0 or need > ring.capacity - used - skip:
        put_relaxed(&ring.head.refused, peek(&ring.head.refused) + 1)
        return NULL
    if skip > 0:
        (<RingEntry *>(ring.data + at)).size = SKIP
        publish(&ring.head.tail, tail + skip)
        at = 0
    entry = <RingEntry *>(ring.data + at)
    entry.size = size
    entry.kind = kind
    return ring.data + at + sizeof(RingEntry)


cdef inline RingEntry *entry_at(const Ring *ring, int64_t position) noexcept nogil:
    return <RingEntry *>(ring.data + (position & (ring.capacity - 1)))


cdef void ring_publish(Ring *ring, int32_t size) noexcept nogil:
    check(entry_at(ring, peek(&ring.head.tail)).size == size, "an entry is published in the size it was reserved in")
    publish(&ring.head.tail, peek(&ring.head.tail) + entry_bytes(size))


cdef const uint8_t *ring_peek(Ring *ring, int32_t *size, int32_t *kind) noexcept nogil:
    cdef int64_t head = peek(&ring.head.head)
    cdef int64_t at
    cdef RingEntry *entry
    while head != observe(&ring.head.tail):
        at = head & (ring.capacity - 1)
        entry = <RingEntry *>(ring.data + at)
        if entry.size != SKIP:
            check(0 <= entry.size <= ring.capacity - at - <int64_t>sizeof(RingEntry), "an entry lies within its ring")
            size[0] = entry.size
            kind[0] = entry.kind
            return ring.data + at + sizeof(RingEntry)
        head += ring.capacity - at
        publish(&ring.head.head, head)
    return NULL


cdef void ring_release(Ring *ring, int32_t size) noexcept nogil:
    check(peek(&ring.head.head) != observe(&ring.head.tail), "what is released has been published")
    check(entry_at(ring, peek(&ring.head.head)).size == size, "an entry is released in the size it has")
    publish(&ring.head.head, peek(&ring.head.head) + entry_bytes(size))


cdef bint ring_is_empty(const Ring *ring) noexcept nogil:
    return peek(&ring.head.head) == observe(&ring.head.tail)


cdef class PullRequestRing:
    """A pull request ring for Python: tests and tools. Producer and consumer each open their own."""

    cdef Ring ring
    cdef SharedSegment segment

    def __init__(self, SharedSegment segment not None, int sender, int puller):
        self.segment = segment
        open_pull_request_ring(&self.ring, &segment.shared, sender, puller)

    def push(self, bytes payload not None, int kind=1):
        """Append an entry; False when it does not fit."""
        cdef uint8_t *at = ring_reserve(&self.ring, <int32_t>len(payload), kind)
        if at == NULL:
            return False
        memcpy(at, <const char *>payload, len(payload))
        ring_publish(&self.ring, <int32_t>len(payload))
        return True

    def pop(self):
        """The oldest entry as (kind, payload), or None."""
        cdef int32_t size, kind
        cdef const uint8_t *at = ring_peek(&self.ring, &size, &kind)
        if at == NULL:
            return None
        payload = (<const char *>at)[:size]
        ring_release(&self.ring, size)
        return kind, payload

    def refused(self):
        """How many entries did not fit since start."""
        return peek(&self.ring.head.refused)
