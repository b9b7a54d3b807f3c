# The first units of a new queue lie in a cradle, in the segment, until its first file is there: what was acknowledged
# does not wait for the file system. The reput worker alone takes cradles and gives them back.
#
# A queue's word *cradle* names the cradle and how often that was taken, so it says whether what was read meanwhile is
# the queue's. It is published before the bound of a unit that lies there, and becomes 0 when all are in the file.
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from mqcore._fast.base.atomics cimport full_fence, observe, peek, publish
from mqcore._fast.base.layout cimport CQ_UNIT_SIZE, CRADLE_SIZE, CRADLE_UNITS, CradleRow
from mqcore._fast.segment.boards cimport Shared


cdef enum:
    CRADLE_BYTES = CRADLE_UNITS * CQ_UNIT_SIZE
    CRADLE_NUMBER_BITS = 16


# The cradle that a queue's word names; -1 for none.
cdef inline int32_t cradle_number(int64_t word) noexcept nogil:
    return <int32_t>(word & ((1 << CRADLE_NUMBER_BITS) - 1)) - 1


cdef inline uint8_t *cradle_units(const Shared *shared, int32_t number) noexcept nogil:
    return shared.cradle_units + <int64_t>number * CRADLE_SIZE


# Units of a queue, bytes *first* up to *limit* of its stream, as far as they are whole; how many bytes were copied, -1
# if the queue has no cradle. Bounds are to be taken before.
cdef inline int64_t copy_cradle(const Shared *shared, int32_t queue_row, int64_t first, int64_t limit,
                                uint8_t *out) noexcept nogil:
    cdef const CradleRow *cradle
    cdef int64_t word = observe(&shared.queues[queue_row].cradle)
    cdef int64_t size
    if word == 0:
        return -1
    cradle = &shared.cradles[cradle_number(word)]
    size = min(min(observe(&cradle.count), <int64_t>CRADLE_UNITS) * CQ_UNIT_SIZE, limit) - first
    if size > 0:
        memcpy(out, cradle_units(shared, cradle_number(word)) + first, size)
    full_fence()
    # Given back meanwhile: then everything is in the file.
    return max(size, <int64_t>0) if peek(&shared.queues[queue_row].cradle) == word else -1


# The reput worker: *number*, which is free, becomes the cradle of a queue.
cdef inline CradleRow *begin_cradle(Shared *shared, int32_t number, int32_t queue_row) noexcept nogil:
    cdef CradleRow *cradle = &shared.cradles[number]
    publish(&cradle.serial, cradle.serial + 1)
    publish(&cradle.count, 0)
    publish(&cradle.queue_row, queue_row + 1)
    publish(&shared.queues[queue_row].cradle, cradle.serial << CRADLE_NUMBER_BITS | (number + 1))
    return cradle


# The reput worker: all units are in the file, or of a queue that was dropped.
cdef inline void end_cradle(Shared *shared, int32_t number) noexcept nogil:
    cdef CradleRow *cradle = &shared.cradles[number]
    publish(&shared.queues[cradle.queue_row - 1].cradle, 0)
    # Nobody may take for the queue's what is written here next.
    full_fence()
    publish(&cradle.queue_row, 0)


# Whether the cradle is that of the queue that it names: who dies between two steps of the above leaves one that is not.
cdef inline bint is_cradle(const Shared *shared, int32_t number) noexcept nogil:
    cdef const CradleRow *cradle = &shared.cradles[number]
    cdef int64_t row = observe(&cradle.queue_row)
    return row > 0 and observe(&shared.queues[row - 1].cradle) == (
        cradle.serial << CRADLE_NUMBER_BITS | (number + 1))
