"""The latencies that the send workers have counted, and where one is counted."""

from libc.stdint cimport int64_t

from mqcore._fast.base.atomics cimport peek
from mqcore._fast.base.layout cimport LATENCY_KINDS, LATENCY_OCTAVES, SEND_WORKERS_MAX
from mqcore._fast.segment.boards cimport SharedSegment

cdef enum:
    COUNTS = 2 * LATENCY_OCTAVES + 2


def place(int64_t took_us):
    """Which of the counts of a row is that of *took_us*; one too many means that it took longer than all bounds."""
    return latency_place(took_us)


def sum_latencies(SharedSegment segment not None, int kind):
    """(sum in us, counts) of a LatencyKind over all send workers, dead ones included.

    Answers that are given meanwhile may be in the one and not in the other yet.
    """
    cdef int64_t totals[COUNTS]
    cdef int64_t sum_us = 0
    cdef int worker, number
    cdef LatencyRow *row
    if not 0 <= kind < LATENCY_KINDS:
        raise IndexError(f"kind of latency {kind}: wanted 0 to {LATENCY_KINDS - 1}")
    for number in range(COUNTS):
        totals[number] = 0
    for worker in range(SEND_WORKERS_MAX):
        row = latencies_of(&segment.shared, worker) + kind
        sum_us += peek(&row.sum_us)
        for number in range(COUNTS):
            totals[number] += peek(&row.count_0 + number)
    return sum_us, tuple([totals[number] for number in range(COUNTS)])
