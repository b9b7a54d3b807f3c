"""Tables in memory of the timer worker; all of them are made again by a start."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

from mqcore._fast.base.hashing cimport hash_bytes, hash_mix

cdef enum:
    HEAP_MIN = 1024
    SET_MIN = 4096
    BUCKETS = 4096


cdef inline bint is_before(const DueEntry *left, const DueEntry *right) noexcept nogil:
    if left.deliver_time != right.deliver_time:
        return left.deliver_time < right.deliver_time
    return left.physical_offset < right.physical_offset


cdef bint due_push(DueHeap *heap, const DueEntry *entry) noexcept nogil:
    cdef DueEntry *grown
    cdef int64_t at = heap.count
    cdef int64_t parent, capacity
    if heap.count == heap.capacity:
        capacity = max(<int64_t>HEAP_MIN, heap.capacity * 2)
        grown = <DueEntry *>realloc(heap.entries, capacity * sizeof(DueEntry))
        if grown == NULL:
            return False
        heap.entries = grown
        heap.capacity = capacity
    heap.count += 1
    while at > 0:
        parent = (at - 1) // 2
        if not is_before(entry, &heap.entries[parent]):
            break
        heap.entries[at] = heap.entries[parent]
        at = parent
    heap.entries[at] = entry[0]
    return True


cdef void due_pop(DueHeap *heap) noexcept nogil:
    cdef DueEntry *last
    cdef int64_t at = 0
    cdef int64_t child
    heap.count -= 1
    if heap.count == 0:
        return
    last = &heap.entries[heap.count]
    while 2 * at + 1 < heap.count:
        child = 2 * at + 1
        if child + 1 < heap.count and is_before(&heap.entries[child + 1], &heap.entries[child]):
            child += 1
        if not is_before(&heap.entries[child], last):
            break
        heap.entries[at] = heap.entries[child]
        at = child
    heap.entries[at] = last[0]


cdef void due_free(DueHeap *heap) noexcept nogil:
    free(heap.entries)
    heap.entries = NULL
    heap.count = 0
    heap.capacity = 0


cdef bint set_grow(OffsetSet *set) noexcept nogil:
    cdef int64_t capacity = max(<int64_t>SET_MIN, set.capacity * 2)
    cdef int64_t *places = <int64_t *>calloc(capacity, sizeof(int64_t))
    cdef int64_t index, place
    if places == NULL:
        return False
    for index in range(set.capacity):
        if set.places[index] != 0:
            place = <int64_t>(hash_mix(<uint64_t>set.places[index]) & <uint64_t>(capacity - 1))
            while places[place] != 0:
                place = (place + 1) & (capacity - 1)
            places[place] = set.places[index]
    free(set.places)
    set.places = places
    set.capacity = capacity
    return True


cdef int64_t set_place(const OffsetSet *set, int64_t stored) noexcept nogil:
    cdef int64_t place = <int64_t>(hash_mix(<uint64_t>stored) & <uint64_t>(set.capacity - 1))
    while set.places[place] != 0 and set.places[place] != stored:
        place = (place + 1) & (set.capacity - 1)
    return place


cdef bint offset_add(OffsetSet *set, int64_t offset) noexcept nogil:
    cdef int64_t place
    if set.count * 2 >= set.capacity and not set_grow(set):
        return False
    place = set_place(set, offset + 1)
    if set.places[place] == 0:
        set.places[place] = offset + 1
        set.count += 1
    return True


cdef bint offset_has(const OffsetSet *set, int64_t offset) noexcept nogil:
    return set.count > 0 and set.places[set_place(set, offset + 1)] != 0


cdef void offset_free(OffsetSet *set) noexcept nogil:
    free(set.places)
    set.places = NULL
    set.count = 0
    set.capacity = 0


cdef bint recall_add(RecallTable *table, int64_t slot_time, const uint8_t *key, int32_t size) noexcept nogil:
    cdef RecalledKey *entry = <RecalledKey *>malloc(sizeof(RecalledKey) + size)
    if entry == NULL:
        return False
    entry.hash = hash_bytes(key, size)
    entry.slot_time = slot_time
    entry.size = size
    memcpy(entry.text, key, size)
    entry.next = table.buckets[entry.hash % BUCKETS]
    table.buckets[entry.hash % BUCKETS] = entry
    table.count += 1
    return True


cdef bint recall_has(const RecallTable *table, int64_t slot_time, const uint8_t *topic, int32_t topic_size,
                     const uint8_t *unique_key, int32_t unique_key_size) noexcept nogil:
    cdef uint8_t text[2048]
    cdef int32_t size = topic_size + 1 + unique_key_size
    cdef uint64_t key_hash
    cdef const RecalledKey *entry
    if table.count == 0 or unique_key_size == 0 or size > 2048:
        return False
    memcpy(text, topic, topic_size)
    text[topic_size] = c"+"
    memcpy(text + topic_size + 1, unique_key, unique_key_size)
    key_hash = hash_bytes(text, size)
    entry = table.buckets[key_hash % BUCKETS]
    while entry != NULL:
        if entry.hash == key_hash and entry.slot_time == slot_time and entry.size == size and (
                memcmp(entry.text, text, size) == 0):
            return True
        entry = entry.next
    return False


cdef void recall_trim(RecallTable *table, int64_t slot_time) noexcept nogil:
    cdef int32_t index
    cdef RecalledKey **link
    cdef RecalledKey *entry
    if table.count == 0:
        return
    for index in range(BUCKETS):
        link = &table.buckets[index]
        while link[0] != NULL:
            entry = link[0]
            if entry.slot_time < slot_time:
                link[0] = entry.next
                free(entry)
                table.count -= 1
            else:
                link = &entry.next


cdef class Due:
    """The heap for tests: pushes and pops (deliver time, physical offset)."""

    cdef DueHeap heap

    def __dealloc__(self):
        due_free(&self.heap)

    def push(self, int64_t deliver_time, int64_t physical_offset):
        cdef DueEntry entry
        entry.deliver_time = deliver_time
        entry.physical_offset = physical_offset
        entry.slot_time = 0
        entry.write_time = 0
        entry.record_size = 0
        entry.magic = 0
        if not due_push(&self.heap, &entry):
            raise MemoryError()

    def pop(self):
        if self.heap.count == 0:
            return None
        found = self.heap.entries[0].deliver_time, self.heap.entries[0].physical_offset
        due_pop(&self.heap)
        return found


cdef class Offsets:
    """The set of offsets, for tests."""

    cdef OffsetSet offsets

    def __dealloc__(self):
        offset_free(&self.offsets)

    def add(self, int64_t offset):
        if not offset_add(&self.offsets, offset):
            raise MemoryError()

    def __contains__(self, int64_t offset):
        return offset_has(&self.offsets, offset)

    def __len__(self):
        return self.offsets.count
