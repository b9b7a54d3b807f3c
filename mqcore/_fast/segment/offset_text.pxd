# Rows of the offset table, sorted, and as text: see include/offset_text.h.
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef extern from "offset_text.h" nogil:
    ctypedef struct mq_offset:
        int32_t group_row
        int32_t topic_row
        int32_t queue_id
        int32_t is_light
        int64_t committed
    ctypedef struct mq_text:
        char *data
        size_t size
        size_t capacity
        int failed
    void mq_sort_offsets(mq_offset *offsets, int64_t count) noexcept
    void mq_put_text(mq_text *text, const char *data, size_t size) noexcept
    void mq_put_name(mq_text *text, const uint8_t *name, int32_t size) noexcept
    void mq_put_number(mq_text *text, int64_t value) noexcept
