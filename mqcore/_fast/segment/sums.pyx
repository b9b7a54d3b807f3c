"""What the boards say of topics and of groups, summed over their queues: for metrics, which ask again and again.

A walk over the rows needs no interpreter; an object is made of each topic, and of each pair of a group and a topic.
"""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc

from mqcore._fast.base.atomics cimport observe, observe_i32, peek
from mqcore._fast.base.layout cimport TOPIC_WORD_EXISTS
from mqcore._fast.segment.boards cimport Shared, SharedSegment
from mqcore._fast.segment.bounds cimport queue_max_offset
from mqcore._fast.segment.offset_text cimport mq_offset, mq_sort_offsets


cdef struct GroupSum:
    int64_t first               # of its offsets, which lie behind one another
    int64_t count
    int64_t get_nums
    int64_t get_bytes
    int64_t committed           # over the queues that have an offset; -1 = none has
    int64_t lag
    int64_t in_flight
    int64_t ready
    int64_t max_offset          # over the same queues


cdef inline bint is_there(const Shared *shared, int32_t topic_row) noexcept nogil:
    return (observe(&shared.topics[topic_row].config) & TOPIC_WORD_EXISTS) != 0


cdef bytes topic_name(const Shared *shared, int32_t row):
    return (<const char *>shared.topics[row].name)[:shared.topics[row].name_size]


cdef void add_ends(const Shared *shared, int64_t *ends, int32_t topic_count) noexcept nogil:
    cdef int32_t row, topic_row
    for row in range(observe_i32(&shared.board.queue_rows)):
        topic_row = shared.queues[row].topic_row
        if topic_row < topic_count:     # one that has come since its count was asked for is for the next time
            ends[topic_row] += queue_max_offset(&shared.queues[row])


cdef class TopicSums:
    """The topics that exist, in the order of their rows."""

    cdef SharedSegment segment
    cdef int32_t *rows
    cdef int64_t *ends
    cdef int64_t count

    def __dealloc__(self):
        free(self.rows)
        free(self.ends)

    def __len__(self):
        return self.count

    def part(self, int64_t first, int64_t count):
        """Return up to *count* from number *first* on: name, messages and bytes since start, max offsets summed."""
        cdef const Shared *shared = &self.segment.shared
        cdef int64_t at
        cdef int32_t row
        found = []
        for at in range(max(0, first), min(self.count, first + count)):
            row = self.rows[at]
            found.append((topic_name(shared, row), peek(&shared.topics[row].put_nums),
                          peek(&shared.topics[row].put_bytes), self.ends[row]))
        return found


def sum_topics(SharedSegment segment not None):
    """Look at all topics. Other threads run meanwhile."""
    cdef TopicSums sums = TopicSums()
    cdef const Shared *shared = &segment.shared
    cdef int32_t capacity = observe_i32(&shared.board.topic_rows)
    cdef int32_t row
    sums.segment = segment
    sums.rows = <int32_t *>malloc((capacity + 1) * sizeof(int32_t))
    sums.ends = <int64_t *>calloc(capacity + 1, sizeof(int64_t))
    if sums.rows == NULL or sums.ends == NULL:
        raise MemoryError()
    with nogil:
        add_ends(shared, sums.ends, capacity)
        for row in range(capacity):
            if is_there(shared, row):
                sums.rows[sums.count] = row
                sums.count += 1
    return sums


# The offset rows of topics that exist, sorted by topic and group: out[i].committed is the number of the row.
cdef int64_t gather(const Shared *shared, mq_offset *out, int32_t capacity) noexcept nogil:
    cdef int64_t count = 0
    cdef int32_t row, queue_row
    for row in range(capacity):
        queue_row = shared.offsets[row].queue_row
        if not is_there(shared, shared.queues[queue_row].topic_row):
            continue
        if observe(&shared.offsets[row].committed) < 0 and peek(&shared.offsets[row].get_nums) == 0:
            continue
        out[count].group_row = shared.offsets[row].group_row
        out[count].topic_row = shared.queues[queue_row].topic_row
        out[count].queue_id = shared.queues[queue_row].queue_id
        out[count].is_light = False
        out[count].committed = row
        count += 1
    mq_sort_offsets(out, count)
    return count


cdef void add_offset(const Shared *shared, int64_t row, GroupSum *total) noexcept nogil:
    cdef int64_t committed = observe(&shared.offsets[row].committed)
    cdef int64_t end = queue_max_offset(&shared.queues[shared.offsets[row].queue_row])
    cdef int64_t pulled
    total.get_nums += peek(&shared.offsets[row].get_nums)
    total.get_bytes += peek(&shared.offsets[row].get_bytes)
    if committed < 0:
        return
    # Who has committed and not pulled, since the broker started or ever, has nothing in flight.
    pulled = max(observe(&shared.offsets[row].pull_offset), committed)
    total.committed = max(<int64_t>0, total.committed) + committed
    total.max_offset += end
    total.lag += max(<int64_t>0, end - committed)
    total.in_flight += pulled - committed
    total.ready += max(<int64_t>0, end - pulled)


cdef class GroupSums:
    """Each group with each topic that it has an offset of, or has read from since the start."""

    cdef SharedSegment segment
    cdef mq_offset *offsets
    cdef GroupSum *sums
    cdef int64_t count

    def __dealloc__(self):
        with nogil:
            free(self.offsets)
            free(self.sums)

    def __len__(self):
        return self.count

    def part(self, int64_t first, int64_t count):
        """Return up to *count* from number *first* on.

        Each: group, topic; messages and bytes given out since start; committed offsets summed (-1 = there are none),
        and of the queues that have one the messages behind them, those in flight, those not given out, and max offsets.
        """
        cdef const Shared *shared = &self.segment.shared
        cdef const GroupSum *one
        cdef int32_t group_row
        cdef int64_t at
        found = []
        for at in range(max(0, first), min(self.count, first + count)):
            one = &self.sums[at]
            group_row = self.offsets[one.first].group_row
            found.append((
                (<const char *>shared.groups[group_row].name)[:shared.groups[group_row].name_size],
                topic_name(shared, self.offsets[one.first].topic_row), one.get_nums, one.get_bytes,
                one.committed, one.lag, one.in_flight, one.ready, one.max_offset,
            ))
        return found

    def behind(self, int64_t index):
        """Return the queues that number *index* has not consumed to their end: offset row, queue id, committed."""
        cdef const Shared *shared = &self.segment.shared
        cdef const mq_offset *offset
        cdef int64_t at, committed
        if not 0 <= index < self.count:
            raise IndexError(f"group sum: got {index}, wanted 0 to {self.count - 1}")
        found = []
        for at in range(self.sums[index].first, self.sums[index].first + self.sums[index].count):
            offset = &self.offsets[at]
            committed = observe(&shared.offsets[offset.committed].committed)
            if 0 <= committed < queue_max_offset(&shared.queues[shared.offsets[offset.committed].queue_row]):
                found.append((offset.committed, offset.queue_id, committed))
        return found


cdef int64_t add_up(const Shared *shared, const mq_offset *offsets, int64_t count, GroupSum *sums) noexcept nogil:
    # *sums* is zero, and long enough for each offset to be of another group.
    cdef int64_t at, found = 0
    for at in range(count):
        if at == 0 or (offsets[at].group_row != offsets[at - 1].group_row
                       or offsets[at].topic_row != offsets[at - 1].topic_row):
            sums[found].first = at
            sums[found].committed = -1
            found += 1
        sums[found - 1].count += 1
        add_offset(shared, offsets[at].committed, &sums[found - 1])
    return found


def sum_groups(SharedSegment segment not None):
    """Look at all offsets. Other threads run meanwhile."""
    cdef GroupSums sums = GroupSums()
    cdef const Shared *shared = &segment.shared
    cdef int32_t capacity = observe_i32(&shared.board.offset_rows)
    cdef int64_t count
    sums.segment = segment
    sums.offsets = <mq_offset *>malloc((<int64_t>capacity + 1) * sizeof(mq_offset))
    if sums.offsets == NULL:
        raise MemoryError()
    with nogil:
        count = gather(shared, sums.offsets, capacity)
        sums.sums = <GroupSum *>calloc(count + 1, sizeof(GroupSum))
        if sums.sums != NULL:
            sums.count = add_up(shared, sums.offsets, count, sums.sums)
    if sums.sums == NULL:
        raise MemoryError()
    return sums
