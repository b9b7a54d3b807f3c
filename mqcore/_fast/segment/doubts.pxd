# Whether a group may stand where its client says that it does.
#
# A master whose log may lack what was given out before it led gives the same offsets to other messages. Who has read
# what is lost stands behind some of these, and would never get them. So for a time nobody believes an offset behind the
# beginning of that epoch but what was given here since, and what was committed: its master sends who has another back
# to there, and a slave, which does not know what others were given, has him wait. Who leads next, while there are
# doubts, goes on with them where they began.
from libc.stdint cimport int32_t, int64_t

from mqcore._fast.base.atomics cimport coarse_ms, observe, peek, publish
from mqcore._fast.base.layout cimport OffsetRow, QueueRow
from mqcore._fast.segment.boards cimport Shared

cdef enum:
    DOUBT_MS = 120000       # whoever was not heard for so long is out of its group, and others have its queues


cdef inline void begin_doubts(Shared *shared, int64_t duration_ms) noexcept nogil:
    publish(&shared.board.doubts_until, coarse_ms() + duration_ms)


cdef inline bint are_doubts(const Shared *shared) noexcept nogil:
    return coarse_ms() < peek(&shared.board.doubts_until)


# What is behind *queue_offset* is of the epoch, or of a later one.
cdef inline void doubt_from(QueueRow *queue, int64_t queue_offset, bint goes_on) noexcept nogil:
    if not goes_on or peek(&queue.doubt_offset) < 0:
        publish(&queue.doubt_offset, queue_offset)
    else:
        publish(&queue.doubt_offset, min(queue_offset, peek(&queue.doubt_offset)))


# Where a group is to go on that is not believed.
cdef inline int64_t sure_offset(const Shared *shared, int32_t offset_row) noexcept nogil:
    cdef const OffsetRow *place = &shared.offsets[offset_row]
    return max(peek(&place.committed), observe(&shared.queues[place.queue_row].doubt_offset))


cdef inline bint is_doubted(const Shared *shared, int32_t offset_row, int64_t queue_offset, int64_t now) noexcept nogil:
    return now < observe(&shared.board.doubts_until) and queue_offset > max(
        sure_offset(shared, offset_row), peek(&shared.offsets[offset_row].pull_offset))


# What is to be stored when a client commits *queue_offset*.
cdef inline int64_t believed_commit(const Shared *shared, int32_t offset_row, int64_t queue_offset,
                                    int64_t now) noexcept nogil:
    return sure_offset(shared, offset_row) if is_doubted(shared, offset_row, queue_offset, now) else queue_offset
