"""The committed offsets, all or chosen ones, out of the shared segment without an object of Python for each row."""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp

from mqcore._fast.base.atomics cimport observe, observe_i32, peek, publish, take_full
from mqcore._fast.base.checks cimport check
from mqcore._fast.base.layout cimport GROUP_CAPACITY, OFFSET_CAPACITY, WORD_BITS
from mqcore._fast.segment.boards cimport ROW_NONE, Shared, SharedSegment, find_group, find_topic
from mqcore._fast.segment.offset_changes cimport bit_of, mark_offset, put_committed
from mqcore._fast.segment.offset_text cimport (mq_offset, mq_put_name, mq_put_number, mq_put_text, mq_sort_offsets,
                                               mq_text)

cdef const char *LMQ_PREFIX = b"%LMQ%"
cdef int32_t LMQ_PREFIX_SIZE = 5


cdef bint is_light(const Shared *shared, int32_t group_row, int32_t queue_id) noexcept nogil:
    return (queue_id == 0 and shared.groups[group_row].name_size >= LMQ_PREFIX_SIZE
            and memcmp(shared.groups[group_row].name, LMQ_PREFIX, LMQ_PREFIX_SIZE) == 0)


cdef void set_offset(const Shared *shared, int32_t row, int64_t committed, mq_offset *out) noexcept nogil:
    cdef int32_t queue_row = shared.offsets[row].queue_row
    out.group_row = shared.offsets[row].group_row
    out.topic_row = shared.queues[queue_row].topic_row
    out.queue_id = shared.queues[queue_row].queue_id
    out.is_light = False
    out.committed = committed


# Offsets that are committed, of a group and a topic (ROW_NONE: of any), into out[0:capacity]; how many.
cdef int64_t choose(const Shared *shared, int32_t group_row, int32_t topic_row, bint with_light, mq_offset *out,
                    int64_t capacity) noexcept nogil:
    cdef int64_t count = 0
    cdef int64_t committed
    cdef int32_t row, queue_row
    for row in range(<int32_t>capacity):
        committed = observe(&shared.offsets[row].committed)
        queue_row = shared.offsets[row].queue_row
        if committed < 0 or (group_row != ROW_NONE and shared.offsets[row].group_row != group_row) or (
                topic_row != ROW_NONE and shared.queues[queue_row].topic_row != topic_row):
            continue
        set_offset(shared, row, committed, &out[count])
        out[count].is_light = with_light and is_light(shared, out[count].group_row, out[count].queue_id)
        count += 1
    return count


# A line of its own, so deep; with *pretty* only.
cdef void put_line(mq_text *text, bint pretty, size_t depth) noexcept nogil:
    if pretty:
        mq_put_text(text, b"\n\t\t\t", 1 + depth)


cdef void put_key(mq_text *text, const Shared *shared, const mq_offset *offset, bint is_first,
                  bint pretty) noexcept nogil:
    if not is_first:
        mq_put_text(text, b",", 1)
    put_line(text, pretty, 2)
    mq_put_text(text, b"\"", 1)
    mq_put_name(text, shared.topics[offset.topic_row].name, shared.topics[offset.topic_row].name_size)
    mq_put_text(text, b"@", 1)
    mq_put_name(text, shared.groups[offset.group_row].name, shared.groups[offset.group_row].name_size)
    mq_put_text(text, b"\":", 2)


cdef void put_end(mq_text *text, bint pretty, size_t depth) noexcept nogil:
    put_line(text, pretty, depth)
    mq_put_text(text, b"}", 1)


cdef void put_offsets(mq_text *text, const Shared *shared, const mq_offset *offsets, int64_t count, bint with_light,
                      const char *foreign, size_t foreign_size, bint pretty) noexcept nogil:
    cdef int64_t at = 0, first
    cdef bint same
    mq_put_text(text, b"{", 1)
    put_line(text, pretty, 1)
    if with_light:
        mq_put_text(text, b"\"lmqOffsetTable\":{", 18)
        while at < count and offsets[at].is_light:
            put_key(text, shared, &offsets[at], at == 0, pretty)
            mq_put_number(text, offsets[at].committed)
            at += 1
        put_end(text, pretty and at > 0, 1)
        mq_put_text(text, b",", 1)
        put_line(text, pretty, 1)
    mq_put_text(text, b"\"offsetTable\":{", 15)
    first = at
    while at < count:
        same = (at > first and offsets[at].topic_row == offsets[at - 1].topic_row
                and offsets[at].group_row == offsets[at - 1].group_row)
        if not same:
            if at > first:
                put_end(text, pretty, 2)
            put_key(text, shared, &offsets[at], at == first, pretty)
        mq_put_text(text, b"," if same else b"{", 1)
        mq_put_number(text, offsets[at].queue_id)
        mq_put_text(text, b":", 1)
        mq_put_number(text, offsets[at].committed)
        at += 1
    if at > first:
        put_end(text, pretty, 2)
    if foreign_size > 0 and at > first:
        mq_put_text(text, b",", 1)
    mq_put_text(text, foreign, foreign_size)
    put_end(text, pretty and (at > first or foreign_size > 0), 1)
    put_end(text, pretty, 0)


cdef class OffsetText:
    """The text as bytes that are read-only and not copied."""

    cdef mq_text text

    def __dealloc__(self):
        # Giving back 30 MB takes milliseconds.
        with nogil:
            free(self.text.data)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.text.data, <Py_ssize_t>self.text.size, True, flags)

    def __len__(self):
        return self.text.size


def offset_text(SharedSegment segment not None, bint with_light, bytes foreign not None, bint pretty):
    """Return all committed offsets as JSON: what consumerOffset.json has with *pretty*, else without white space.

    With *with_light* groups named like light queues stand in a table of their own. *foreign* are further entries of the
    table, as they are written there. Other threads run meanwhile; for a million offsets that is 0.3 s.
    """
    cdef OffsetText made = OffsetText()
    cdef const Shared *shared = &segment.shared
    cdef int64_t capacity = observe_i32(&shared.board.offset_rows)
    cdef mq_offset *offsets = <mq_offset *>malloc((capacity + 1) * sizeof(mq_offset))
    cdef const char *more = foreign
    cdef size_t more_size = len(foreign)
    cdef int64_t count
    if offsets == NULL:
        raise MemoryError()
    with nogil:
        count = choose(shared, ROW_NONE, ROW_NONE, with_light, offsets, capacity)
        mq_sort_offsets(offsets, count)
        put_offsets(&made.text, shared, offsets, count, with_light, more, more_size, pretty)
        free(offsets)
    if made.text.failed:
        raise MemoryError()
    return made


# One offset of each group and topic; how many.
cdef int64_t keep_pairs(mq_offset *offsets, int64_t count) noexcept nogil:
    cdef int64_t at, kept = 0
    mq_sort_offsets(offsets, count)
    for at in range(count):
        if kept == 0 or offsets[at].topic_row != offsets[kept - 1].topic_row or (
                offsets[at].group_row != offsets[kept - 1].group_row):
            offsets[kept] = offsets[at]
            kept += 1
    return kept


cdef class ChosenOffsets:
    """Committed offsets at one moment. Objects are made of so many as are asked for."""

    cdef SharedSegment segment
    cdef mq_offset *offsets
    cdef int64_t count

    def __dealloc__(self):
        with nogil:
            free(self.offsets)

    def __len__(self):
        return self.count

    def part(self, int64_t first, int64_t count):
        """Return up to *count* of them from the one of number *first* on, as (group, topic, queue id, offset)."""
        cdef const Shared *shared = &self.segment.shared
        cdef const mq_offset *row
        cdef int64_t at
        found = []
        for at in range(max(0, first), min(self.count, first + count)):
            row = &self.offsets[at]
            found.append((
                (<const char *>shared.groups[row.group_row].name)[:shared.groups[row.group_row].name_size],
                (<const char *>shared.topics[row.topic_row].name)[:shared.topics[row.topic_row].name_size],
                row.queue_id, row.committed,
            ))
        return found


# The rows of a group and a topic by name, ROW_NONE for a name that is None; False if one is not known.
cdef bint find_rows(const Shared *shared, bytes group, bytes topic, int32_t *group_row, int32_t *topic_row):
    group_row[0] = topic_row[0] = ROW_NONE
    if group is not None:
        group_row[0] = find_group(shared, <const uint8_t *><const char *>group, <int32_t>len(group))
    if topic is not None:
        topic_row[0] = find_topic(shared, <const uint8_t *><const char *>topic, <int32_t>len(topic))
    return (group is None or group_row[0] != ROW_NONE) and (topic is None or topic_row[0] != ROW_NONE)


def choose_offsets(SharedSegment segment not None, bytes group, bytes topic, bint only_pairs=False):
    """Return the committed offsets of *group* and *topic*; None means any. With *only_pairs* one of each pair of them.

    Other threads run meanwhile: to look through a million rows takes some 10 ms.
    """
    cdef ChosenOffsets chosen = ChosenOffsets()
    cdef const Shared *shared = &segment.shared
    cdef int64_t capacity = observe_i32(&shared.board.offset_rows)
    cdef int32_t group_row, topic_row
    chosen.segment = segment
    if not find_rows(shared, group, topic, &group_row, &topic_row):
        return chosen
    chosen.offsets = <mq_offset *>malloc((capacity + 1) * sizeof(mq_offset))
    if chosen.offsets == NULL:
        raise MemoryError()
    with nogil:
        chosen.count = choose(shared, group_row, topic_row, False, chosen.offsets, capacity)
        if only_pairs:
            chosen.count = keep_pairs(chosen.offsets, chosen.count)
    return chosen


# The rows whose bits are set, into rows[0:capacity], and their bits taken; how many.
cdef int64_t take_marks(Shared *shared, int32_t *rows, int64_t capacity) noexcept nogil:
    cdef int64_t index, number, bit, count = 0
    cdef uint64_t words, marks
    for index in range(OFFSET_CAPACITY // WORD_BITS // WORD_BITS):
        if not peek(&shared.offset_change_words[index]):
            continue
        words = <uint64_t>take_full(&shared.offset_change_words[index])
        for number in range(index * WORD_BITS, (index + 1) * WORD_BITS):
            if not words & <uint64_t>bit_of(number):
                continue
            marks = <uint64_t>take_full(&shared.offset_changes[number])
            for bit in range(WORD_BITS):
                if marks & <uint64_t>bit_of(bit):
                    check(count < capacity, "a row is marked once, and is in use")
                    rows[count] = <int32_t>(number * WORD_BITS + bit)
                    count += 1
    return count


def take_changed_offsets(SharedSegment segment not None):
    """Return the offsets that were committed since the last time, those that were taken away as -1.

    Only while ``keeps_metadata`` is set on the board. It costs what has changed, and not what there is.
    """
    cdef ChosenOffsets chosen = ChosenOffsets()
    cdef Shared *shared = &segment.shared
    cdef int32_t *rows = <int32_t *>malloc(OFFSET_CAPACITY * sizeof(int32_t))
    cdef int64_t at, count
    chosen.segment = segment
    if rows == NULL:
        raise MemoryError()
    with nogil:
        count = take_marks(shared, rows, OFFSET_CAPACITY)
        chosen.offsets = <mq_offset *>malloc((count + 1) * sizeof(mq_offset))
        if chosen.offsets != NULL:
            for at in range(count):
                set_offset(shared, rows[at], observe(&shared.offsets[rows[at]].committed), &chosen.offsets[at])
            chosen.count = count
        else:
            for at in range(count):
                mark_offset(shared, rows[at])
        free(rows)
    if chosen.offsets == NULL:
        raise MemoryError()
    return chosen


def remove_offsets(SharedSegment segment not None, bytes group, bytes topic):
    """Take away all offsets of *group* and *topic*, committed ones and where pulls go on; None means any."""
    cdef Shared *shared = &segment.shared
    cdef int64_t capacity = observe_i32(&shared.board.offset_rows)
    cdef int32_t group_row, topic_row, row
    if not find_rows(shared, group, topic, &group_row, &topic_row):
        return
    with nogil:
        for row in range(<int32_t>capacity):
            if (group_row == ROW_NONE or shared.offsets[row].group_row == group_row) and (
                    topic_row == ROW_NONE or shared.queues[shared.offsets[row].queue_row].topic_row == topic_row):
                put_committed(shared, row, -1)
                publish(&shared.offsets[row].pull_offset, 0)


def slow_groups(SharedSegment segment not None, int64_t behind_max, int64_t since):
    """Return the names of the groups that were more than *behind_max* bytes behind at a pull from *since*, ms, on.

    Other threads run meanwhile.
    """
    cdef const Shared *shared = &segment.shared
    cdef int32_t capacity = observe_i32(&shared.board.offset_rows)
    cdef int32_t row, group_row
    cdef char *is_slow = <char *>calloc(GROUP_CAPACITY, 1)
    if is_slow == NULL:
        raise MemoryError()
    try:
        with nogil:
            for row in range(capacity):
                if (observe(&shared.offsets[row].behind_bytes) > behind_max
                        and observe(&shared.offsets[row].get_timestamp) >= since):
                    is_slow[shared.offsets[row].group_row] = 1
        found = []
        for group_row in range(observe_i32(&shared.board.group_rows)):
            if is_slow[group_row]:
                found.append(
                    (<const char *>shared.groups[group_row].name)[:shared.groups[group_row].name_size])
        return found
    finally:
        free(is_slow)
