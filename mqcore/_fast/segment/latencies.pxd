# How long answers took, counted by times: each send worker has rows of its own, which it alone writes.
#
# The bounds are mqcore.layout.LATENCY_BOUNDS_US: two for each power of two.
from libc.stdint cimport int32_t, int64_t, uint64_t

from mqcore._fast.base.atomics cimport peek, put_relaxed
from mqcore._fast.base.layout cimport LATENCY_KINDS, LATENCY_OCTAVES, LatencyRow
from mqcore._fast.segment.boards cimport Shared

cdef extern from * nogil:
    int leading_zeros "__builtin_clzll"(unsigned long long value)

cdef enum:
    NS_PER_US = 1000
    FIRST_BITS = 3              # below 16 us, the first bound, there is nothing to tell apart

# The rows of a send worker, one for each LatencyKind.
cdef inline LatencyRow *latencies_of(const Shared *shared, int worker) noexcept nogil:
    return &shared.latencies[worker * LATENCY_KINDS]


# Which of the counts of a row is that of *took_us*. The power of two that it has reached says which two they may be,
# the bit below that which of them.
cdef inline int32_t latency_place(int64_t took_us) noexcept nogil:
    cdef uint64_t units = <uint64_t>took_us >> FIRST_BITS
    cdef int32_t power
    if took_us < 2 << FIRST_BITS:
        return 0
    power = 63 - leading_zeros(units)
    if power > LATENCY_OCTAVES:
        return 2 * LATENCY_OCTAVES + 1
    return 2 * power - 1 + <int32_t>(units >> (power - 1) & 1)


# *count* answers took *took_ns* each.
cdef inline void count_latencies(LatencyRow *row, int64_t count, int64_t took_ns) noexcept nogil:
    cdef int64_t took_us = took_ns // NS_PER_US if took_ns > 0 else 0
    cdef int64_t *counted = &row.count_0 + latency_place(took_us)
    put_relaxed(counted, peek(counted) + count)
    put_relaxed(&row.sum_us, peek(&row.sum_us) + count * took_us)
