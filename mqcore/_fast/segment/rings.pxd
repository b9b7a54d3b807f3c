# Rings of variable entries in shared memory: one producer, one consumer, no lock.
#
# The producer writes the entry, then publishes the tail; the consumer reads the entry, then publishes the head. A
# producer or consumer that dies between the two leaves an entry that is nobody's, or one that is read twice.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.base.layout cimport RingHead
from mqcore._fast.segment.boards cimport Shared

cdef struct Ring:
    RingHead *head
    uint8_t *data
    int64_t capacity

cdef void ring_open(Ring *ring, uint8_t *at, int64_t capacity) noexcept nogil
cdef void open_pull_request_ring(Ring *ring, const Shared *shared, int sender, int puller) noexcept nogil
cdef void open_pull_reply_ring(Ring *ring, const Shared *shared, int sender, int puller) noexcept nogil
cdef void open_arrival_ring(Ring *ring, const Shared *shared, int puller) noexcept nogil

# Room for a payload of *size* bytes, to be written and then published; NULL (and counted) when it does not fit.
cdef uint8_t *ring_reserve(Ring *ring, int32_t size, int32_t kind) noexcept nogil
cdef void ring_publish(Ring *ring, int32_t size) noexcept nogil

# The oldest entry, or NULL; it stays the consumer's until ring_release.
cdef const uint8_t *ring_peek(Ring *ring, int32_t *size, int32_t *kind) noexcept nogil
cdef void ring_release(Ring *ring, int32_t size) noexcept nogil
cdef bint ring_is_empty(const Ring *ring) noexcept nogil
