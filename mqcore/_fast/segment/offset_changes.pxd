# A committed offset, and word of it for who tells others which have changed.
#
# Two bits say that a row has changed: its own in offset_changes, and in offset_change_words that of the word which has
# it, so that nobody looks through a million rows for a few. Writer: offset, bit, bit of the word. Who takes them: bit
# of the word, bit, offset. What is committed meanwhile is seen now or the next time, and twice at worst.
from libc.stdint cimport int32_t, int64_t, uint64_t

from mqcore._fast.base.atomics cimport or_full, peek, publish
from mqcore._fast.base.layout cimport WORD_BITS
from mqcore._fast.segment.boards cimport Shared

cdef inline int64_t bit_of(int64_t number) noexcept nogil:
    return <int64_t>(<uint64_t>1 << (number % WORD_BITS))

cdef inline void mark_offset(Shared *shared, int32_t row) noexcept nogil:
    or_full(&shared.offset_changes[row // WORD_BITS], bit_of(row))
    or_full(&shared.offset_change_words[row // WORD_BITS // WORD_BITS], bit_of(row // WORD_BITS))

cdef inline void put_committed(Shared *shared, int32_t row, int64_t offset) noexcept nogil:
    publish(&shared.offsets[row].committed, offset)
    if peek(&shared.board.keeps_metadata):
        mark_offset(shared, row)
