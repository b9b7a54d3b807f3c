# The properties of one message, split into pairs that point into its text.
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memchr, memcmp

from mqcore._fast.columns.memory cimport Memory, put_bytes


cdef enum:
    NAME_VALUE_SEPARATOR = 1
    PROPERTY_SEPARATOR = 2


cdef struct Pair:
    const uint8_t *name
    int32_t name_size
    const uint8_t *value
    int32_t value_size


cdef struct Pairs:                          # borrowed: valid as long as the text is; the memory is used again
    Memory memory
    Py_ssize_t count


cdef inline bint same_text(const uint8_t *a, int32_t a_size, const uint8_t *b, int32_t b_size) noexcept nogil:
    return a_size == b_size and memcmp(a, b, a_size) == 0


cdef inline const Pair *pair_at(const Pairs *pairs, Py_ssize_t index) noexcept nogil:
    return <const Pair *>pairs.memory.data + index


cdef inline void drop_pair(Pairs *pairs, const Pair *pair) noexcept nogil:
    cdef Pair *all_pairs = <Pair *>pairs.memory.data
    cdef Py_ssize_t index, other
    for index in range(pairs.count):
        if same_text(all_pairs[index].name, all_pairs[index].name_size, pair.name, pair.name_size):
            for other in range(index + 1, pairs.count):
                all_pairs[other - 1] = all_pairs[other]
            pairs.count -= 1
            pairs.memory.size -= sizeof(Pair)
            return


# Split a properties text into *pairs*; the last of duplicate names stays, at its place. False: no memory.
cdef inline bint split_properties(Pairs *pairs, const uint8_t *text, Py_ssize_t size) noexcept nogil:
    cdef const uint8_t *at = text
    cdef const uint8_t *end = text + size
    cdef const uint8_t *stop
    cdef const uint8_t *split
    cdef Pair pair
    pairs.memory.size = 0
    pairs.count = 0
    while at < end:
        stop = <const uint8_t *>memchr(at, PROPERTY_SEPARATOR, end - at)
        if stop == NULL:
            stop = end
        split = <const uint8_t *>memchr(at, NAME_VALUE_SEPARATOR, stop - at)
        if split != NULL and split > at and split + 1 < stop:
            pair.name = at
            pair.name_size = <int32_t>(split - at)
            pair.value = split + 1
            pair.value_size = <int32_t>(stop - split - 1)
            drop_pair(pairs, &pair)
            if not put_bytes(&pairs.memory, <const uint8_t *>&pair, sizeof(Pair)):
                return False
            pairs.count += 1
        at = stop + 1
    return True


cdef inline const Pair *find_pair(const Pairs *pairs, const char *name, int32_t name_size) noexcept nogil:
    cdef Py_ssize_t index
    cdef const Pair *pair
    for index in range(pairs.count):
        pair = pair_at(pairs, index)
        if same_text(pair.name, pair.name_size, <const uint8_t *>name, name_size):
            return pair
    return NULL
