"""Limits of connections. RocketMQ has none: whoever connects often enough takes the descriptors of all."""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memset

from mqcore._fast.base.atomics cimport observe_i32, peek, publish_i32, put_relaxed
from mqcore._fast.base.hashing cimport hash_bytes
from mqcore._fast.base.layout cimport ADDRESS_COUNTS, SEND_WORKERS_MAX, WORKER_CAPACITY, WORKER_KIND_SEND, WorkerRow
from mqcore._fast.base.sockets cimport AF_INET, AF_INET6
from mqcore._fast.base.worker_log cimport warn_closed
from mqcore._fast.send.state cimport Connection, SendState

cdef extern from "<arpa/inet.h>" nogil:
    const char *inet_ntop(int family, const void *address, char *out, unsigned int size)

cdef enum:
    HALF = ADDRESS_COUNTS >> 1      # each hash has counters of its own


cdef inline int32_t *counts_of(SendState *state, int worker) noexcept nogil:
    return state.shared.address_counts + worker * ADDRESS_COUNTS


cdef inline uint64_t address_hash(const Connection *connection) noexcept nogil:
    return hash_bytes(connection.address, connection.address_size)


cdef void forget_addresses(SendState *state) noexcept nogil:
    memset(counts_of(state, state.worker_number), 0, ADDRESS_COUNTS * sizeof(int32_t))


cdef void count_address(SendState *state, const Connection *connection, int change) noexcept nogil:
    cdef uint64_t hashed = address_hash(connection)
    cdef int32_t *counts = counts_of(state, state.worker_number)
    cdef int32_t *first = &counts[hashed % <uint64_t>HALF]
    cdef int32_t *second = &counts[<uint64_t>HALF + (hashed >> 32) % <uint64_t>HALF]
    publish_i32(first, first[0] + change)
    publish_i32(second, second[0] + change)
    put_relaxed(&state.row.connections, state.clients.count)


cdef int64_t count_from(SendState *state, const Connection *connection) noexcept nogil:
    cdef uint64_t hashed = address_hash(connection)
    cdef int64_t first = 0, second = 0
    cdef int worker
    for worker in range(SEND_WORKERS_MAX):
        first += observe_i32(&counts_of(state, worker)[hashed % <uint64_t>HALF])
        second += observe_i32(&counts_of(state, worker)[<uint64_t>HALF + (hashed >> 32) % <uint64_t>HALF])
    return min(first, second)


cdef int64_t count_all(const SendState *state) noexcept nogil:
    cdef int64_t count = state.clients.count
    cdef const WorkerRow *row
    cdef int index
    for index in range(WORKER_CAPACITY):
        row = &state.shared.workers[index]
        if row != state.row and row.kind == WORKER_KIND_SEND:
            count += peek(&row.connections)
    return count


cdef void turn_away(SendState *state, const Connection *connection, const char *cause) noexcept nogil:
    cdef char address[64]
    inet_ntop(AF_INET if connection.address_size == 4 else AF_INET6, connection.address, address, sizeof(address))
    put_relaxed(&state.row.connections_refused, state.row.connections_refused + 1)
    warn_closed(&state.crowded, address, cause, "")


cdef bint admits(SendState *state, const Connection *connection) noexcept nogil:
    if state.settings.connections_max > 0 and count_all(state) > state.settings.connections_max:
        turn_away(state, connection, "there are connectionsMax already")
        return False
    if state.settings.connections_per_host_max > 0 and (
            count_from(state, connection) > state.settings.connections_per_host_max):
        turn_away(state, connection, "its address has connectionsPerHostMax already")
        return False
    return True
