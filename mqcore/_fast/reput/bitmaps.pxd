# Filter bitmaps: which groups want a message. The reput worker makes them, for topics that the broker process tells it.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.filter.program cimport FilterProgram
from mqcore._fast.queues.ext_writer cimport EXT_BITMAP_MAX

cdef struct TopicPrograms:
    int32_t count
    FilterProgram *programs
    int32_t *bits                   # bit_count of each
    int32_t bit_count
    int32_t bitmap_size             # bytes

cdef struct BitmapMaker:            # all zero: no topic has any
    TopicPrograms **topics          # by topic row
    int32_t capacity
    int32_t topic_count

cdef void bitmaps_close(BitmapMaker *maker) noexcept nogil
# Take a topic's filters away. What follows of it has no bitmaps.
cdef void bitmaps_clear(BitmapMaker *maker, int32_t topic_row) noexcept nogil
# The filters of a topic; NULL if it has none.
cdef inline const TopicPrograms *filters_of(const BitmapMaker *maker, int32_t topic_row) noexcept nogil:
    return maker.topics[topic_row] if 0 <= topic_row < maker.capacity else NULL
# Set the bits of all groups whose filter wants a message in out[0:filters.bitmap_size]; return that size.
cdef int32_t make_bitmap(const TopicPrograms *filters, const uint8_t *properties, int32_t size,
                         uint8_t *out) noexcept nogil
# Put the filters of a topic in the place of what it has: (bits, program) each. Raises ValueError, MemoryError, and the
# topic has none then.
cdef int bitmaps_set(BitmapMaker *maker, int32_t topic_row, int32_t bitmap_bits, list filters) except -1
