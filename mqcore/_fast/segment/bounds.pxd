# How far the log and its queues may be read: each bound has one writer, and what it means is said here alone.
#
# A queue that is dropped gets a new *born*. The bounds that the reput worker (max) and the flush worker (min) write
# carry the birth that they are of, and are nothing until that is the queue's own again.
from libc.stdint cimport int64_t

from mqcore._fast.base.atomics cimport full_fence, observe, peek, publish, raise_full
from mqcore._fast.base.checks cimport check
from mqcore._fast.base.layout cimport READ_GATE_CONFIRMED, READ_GATE_FLUSHED, QueueRow, StoreBoard


# Queue offset behind the newest readable unit; 0 for a queue that was dropped and is not cleared yet.
cdef inline int64_t queue_max_offset(const QueueRow *queue) noexcept nogil:
    return observe(&queue.max_offset) if observe(&queue.max_born) == observe(&queue.born) else 0


# The oldest queue offset that is kept.
cdef inline int64_t queue_min_offset(const QueueRow *queue) noexcept nogil:
    return observe(&queue.min_offset) if observe(&queue.min_born) == observe(&queue.born) else 0


# Units that are known to be on disk.
cdef inline int64_t queue_flushed_units(const QueueRow *queue) noexcept nogil:
    return observe(&queue.flushed_units) if observe(&queue.min_born) == observe(&queue.born) else 0


# Which files a mapping is of. Who reads takes it before the bounds; what was read counts if it is the same afterwards.
cdef inline int64_t queue_files_of(const QueueRow *queue) noexcept nogil:
    return observe(&queue.max_born)


# The reput worker: a unit is in place.
cdef inline void note_unit(QueueRow *queue, int64_t queue_offset, int64_t record_end) noexcept nogil:
    check(queue_offset >= peek(&queue.max_offset), "a unit lies behind those that may be read")
    check(record_end >= peek(&queue.max_physical), "the records of a queue's units follow each other")
    publish(&queue.max_physical, record_end)
    publish(&queue.max_offset, queue_offset + 1)


# The reput worker: the files of a dropped queue are gone.
cdef inline void note_cleared(QueueRow *queue, int64_t born) noexcept nogil:
    publish(&queue.max_offset, 0)
    publish(&queue.max_physical, 0)
    publish(&queue.max_born, born)


# The flush worker: what it says from now on is of the queue born at *born*.
cdef inline void begin_keeping(QueueRow *queue, int64_t born) noexcept nogil:
    if peek(&queue.min_born) != born:
        publish(&queue.min_offset, 0)
        publish(&queue.flushed_units, 0)
        publish(&queue.min_born, born)


# How far the log may be read goes by gates, which the settings name. Who moves a bound calls the function of its gate
# behind it: put, under the put lock, for what is written; the flush worker for what is flushed; the ha worker for what
# the members of a failover group have. Of two that move two bounds at a time, one sees the other's.
cdef inline void note_written(StoreBoard *board) noexcept nogil:
    if board.read_gates == 0:
        publish(&board.readable_offset, peek(&board.wrote_offset))


cdef inline void note_flushed(StoreBoard *board) noexcept nogil:
    cdef int64_t end = observe(&board.flushed_offset)
    if board.read_gates & READ_GATE_FLUSHED:
        check(end <= observe(&board.wrote_offset), "what is flushed was written")
        if board.read_gates & READ_GATE_CONFIRMED:
            full_fence()
            end = min(end, observe(&board.confirmed_offset))
        raise_full(&board.readable_offset, end)


cdef inline void note_confirmed(StoreBoard *board) noexcept nogil:
    cdef int64_t end = observe(&board.confirmed_offset)
    if board.read_gates & READ_GATE_CONFIRMED:
        check(end <= observe(&board.wrote_offset), "what is confirmed was written")
        if board.read_gates & READ_GATE_FLUSHED:
            full_fence()
            end = min(end, observe(&board.flushed_offset))
        raise_full(&board.readable_offset, end)
