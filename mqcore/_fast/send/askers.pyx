"""A small hash table from client ids to connections; an entry belongs to its connection, and ends with it."""

from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from mqcore._fast.base.hashing cimport hash_bytes
from mqcore._fast.base.layout cimport ASKER_SIZE_MAX
from mqcore._fast.send.state cimport ASKER_BUCKETS, Asker, Connection, SendState

# Places are found by masking.
assert <int>ASKER_BUCKETS & (<int>ASKER_BUCKETS - 1) == 0


cdef void leave(SendState *state, Connection *connection) noexcept nogil:
    cdef Asker *asker = connection.asker
    cdef Asker **at
    if asker == NULL:
        return
    at = &state.pushes.askers[asker.hashed & (ASKER_BUCKETS - 1)]
    while at[0] != asker:
        at = &at[0].next
    at[0] = asker.next
    connection.asker = NULL
    free(asker)


cdef Asker *find(const SendState *state, const uint8_t *name, int32_t size, uint64_t hashed) noexcept nogil:
    cdef Asker *asker = state.pushes.askers[hashed & (ASKER_BUCKETS - 1)]
    while asker != NULL:
        if asker.hashed == hashed and asker.size == size and memcmp(asker.name, name, size) == 0:
            break
        asker = asker.next
    return asker


cdef void asker_set(SendState *state, Connection *connection, const uint8_t *name, int32_t size) noexcept nogil:
    cdef uint64_t hashed = hash_bytes(name, size, state.pushes.asker_seed)
    cdef Asker *asker
    leave(state, connection)
    if not 0 < size <= ASKER_SIZE_MAX:
        return
    asker = find(state, name, size, hashed)
    if asker != NULL:
        leave(state, state.clients.slots[asker.slot])
    asker = <Asker *>malloc(sizeof(Asker) + size)
    if asker == NULL:
        return          # the broker process knows it all the same
    asker.slot = connection.slot
    asker.size = size
    asker.hashed = hashed
    memcpy(asker.name, name, size)
    asker.next = state.pushes.askers[hashed & (ASKER_BUCKETS - 1)]
    state.pushes.askers[hashed & (ASKER_BUCKETS - 1)] = asker
    connection.asker = asker


cdef Connection *asker_find(const SendState *state, const uint8_t *name, int32_t size) noexcept nogil:
    cdef Asker *asker = find(state, name, size, hash_bytes(name, size, state.pushes.asker_seed))
    cdef Connection *connection
    if asker == NULL:
        return NULL
    connection = state.clients.slots[asker.slot]
    return NULL if connection.is_closing else connection
