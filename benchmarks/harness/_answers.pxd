# What the load generator reads from an answer frame: enough to match it, judge it and follow a queue, no more.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef enum AnswerStatus:
    ANSWER_OK           # one whole answer was read
    ANSWER_SHORT        # more bytes are needed; frame_size says how many in all, or 0 if even that is not known yet
    ANSWER_BAD          # not an answer a RocketMQ broker may send

cdef struct Answer:             # body is borrowed: valid only while the caller holds the buffer
    int32_t code
    int32_t opaque
    int64_t next_begin_offset   # -1 if the header has none
    int64_t queue_offset        # of a stored message, as answers to sends have it; -1 if the header has none
    int64_t physical_offset     # the end of its msgId; -1 if the header has none. Both from JSON headers only
    const uint8_t *body
    size_t body_size

cdef struct PulledRange:        # what a walk over the body of a pull answer found
    int64_t message_count       # records that are whole and follow each other, up to the first that does not
    bint is_sound               # every record had the wanted queue id and offset, and the body ended with a record

cdef uint32_t read_be32(const uint8_t *at) noexcept nogil
cdef uint64_t read_be64(const uint8_t *at) noexcept nogil

# Read one frame from buf[0:length]; *frame_size is set if its length is known, *out only on ANSWER_OK.
cdef AnswerStatus read_answer(const uint8_t *buf, size_t length, size_t *frame_size, Answer *out) noexcept nogil

# Walk the records of a pull answer, which should be consecutive offsets of one queue from first_offset on.
cdef PulledRange walk_records(const uint8_t *body, size_t length, int32_t queue_id, int64_t first_offset) noexcept nogil
