"""Filter bitmaps: which groups want a message. The reput worker makes them, for topics that it is told of.

A bitmap has the bits of every filter of its topic that wants the message, or it is not made: pulls believe it.
"""

from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from mqcore._fast.filter.program cimport FILTER_TRUE, FilterProgram, filter_free, filter_load, filter_run


cdef void free_filters(TopicPrograms *filters) noexcept nogil:
    cdef int32_t number
    if filters.programs != NULL:
        for number in range(filters.count):
            filter_free(&filters.programs[number])
    free(filters.programs)
    free(filters.bits)
    free(filters)


cdef void bitmaps_clear(BitmapMaker *maker, int32_t topic_row) noexcept nogil:
    if 0 <= topic_row < maker.capacity and maker.topics[topic_row] != NULL:
        free_filters(maker.topics[topic_row])
        maker.topics[topic_row] = NULL
        maker.topic_count -= 1


cdef void bitmaps_close(BitmapMaker *maker) noexcept nogil:
    cdef int32_t row
    for row in range(maker.capacity):
        bitmaps_clear(maker, row)
    free(maker.topics)
    memset(maker, 0, sizeof(BitmapMaker))


cdef int32_t make_bitmap(const TopicPrograms *filters, const uint8_t *properties, int32_t size,
                         uint8_t *out) noexcept nogil:
    cdef int32_t number, at, bit
    memset(out, 0, filters.bitmap_size)
    for number in range(filters.count):
        if filter_run(&filters.programs[number], properties, size) != FILTER_TRUE:
            continue
        for at in range(filters.bit_count):
            bit = filters.bits[number * filters.bit_count + at]
            out[bit >> 3] |= 1 << (bit & 7)
    return filters.bitmap_size


cdef bint grow(BitmapMaker *maker, int32_t topic_row) noexcept nogil:
    cdef int32_t capacity = max(64, 2 * maker.capacity, topic_row + 1)
    cdef TopicPrograms **topics
    if topic_row < maker.capacity:
        return True
    topics = <TopicPrograms **>realloc(maker.topics, capacity * sizeof(TopicPrograms *))
    if topics == NULL:
        return False
    memset(topics + maker.capacity, 0, (capacity - maker.capacity) * sizeof(TopicPrograms *))
    maker.topics = topics
    maker.capacity = capacity
    return True


cdef int fill(TopicPrograms *made, int32_t bitmap_bits, list filters) except -1:
    cdef int32_t number, at
    cdef const uint8_t[::1] program
    made.bitmap_size = bitmap_bits // 8
    made.bit_count = len(filters[0][0])
    made.programs = <FilterProgram *>calloc(len(filters), sizeof(FilterProgram))
    made.bits = <int32_t *>calloc(len(filters) * made.bit_count, sizeof(int32_t))
    if made.programs == NULL or made.bits == NULL:
        raise MemoryError()
    for number, (bits, program) in enumerate(filters):
        if len(bits) != made.bit_count or not all(0 <= bit < bitmap_bits for bit in bits):
            raise ValueError(f"filter {number}: got bits {bits}, wanted {made.bit_count} of {bitmap_bits}")
        if not filter_load(&made.programs[number], &program[0], program.shape[0]):
            raise ValueError(f"filter {number}: not a sound program, or memory is short")
        made.count += 1
        for at in range(made.bit_count):
            made.bits[number * made.bit_count + at] = bits[at]
    return 0


cdef int bitmaps_set(BitmapMaker *maker, int32_t topic_row, int32_t bitmap_bits, list filters) except -1:
    cdef TopicPrograms *made
    bitmaps_clear(maker, topic_row)
    if not filters:
        return 0
    if not 0 < bitmap_bits <= EXT_BITMAP_MAX * 8 or bitmap_bits % 8 != 0 or topic_row < 0:
        raise ValueError(f"bitmap: got {bitmap_bits} bits, topic row {topic_row}")
    made = <TopicPrograms *>calloc(1, sizeof(TopicPrograms))
    if made == NULL or not grow(maker, topic_row):
        free(made)
        raise MemoryError()
    try:
        fill(made, bitmap_bits, filters)
    except BaseException:
        free_filters(made)
        raise
    maker.topics[topic_row] = made
    maker.topic_count += 1
    return 0
