# What is due soon: a heap by time, the deletions of the slots that are open, and what a predecessor has delivered.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef struct DueEntry:
    int64_t deliver_time            # ms
    int64_t physical_offset
    int64_t slot_time               # of the slot whose chain it is in, ms
    int64_t write_time              # of its unit
    int32_t record_size
    int32_t magic                   # TimerMagic

# The least by (deliver_time, physical_offset) is the first.
cdef struct DueHeap:
    DueEntry *entries
    int64_t count
    int64_t capacity

cdef bint due_push(DueHeap *heap, const DueEntry *entry) noexcept nogil     # False: no memory
cdef void due_pop(DueHeap *heap) noexcept nogil
cdef void due_free(DueHeap *heap) noexcept nogil

# Physical offsets.
cdef struct OffsetSet:
    int64_t *places                 # offset + 1; 0 = free
    int64_t count
    int64_t capacity                # a power of two, or 0

cdef bint offset_add(OffsetSet *set, int64_t offset) noexcept nogil         # False: no memory
cdef bint offset_has(const OffsetSet *set, int64_t offset) noexcept nogil
cdef void offset_free(OffsetSet *set) noexcept nogil

# Keys of messages that are taken back, each within one slot. Few at a time, in a list for each hash.
cdef struct RecalledKey:
    RecalledKey *next
    uint64_t hash
    int64_t slot_time
    int32_t size
    uint8_t text[1]

cdef struct RecallTable:
    RecalledKey *buckets[4096]
    int64_t count

# The key is realTopic + "+" + uniqueKey, as one text or in its two parts.
cdef bint recall_add(RecallTable *table, int64_t slot_time, const uint8_t *key, int32_t size) noexcept nogil
cdef bint recall_has(const RecallTable *table, int64_t slot_time, const uint8_t *topic, int32_t topic_size,
                     const uint8_t *unique_key, int32_t unique_key_size) noexcept nogil
# Forget the keys of slots before *slot_time*.
cdef void recall_trim(RecallTable *table, int64_t slot_time) noexcept nogil
