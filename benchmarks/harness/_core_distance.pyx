# cython: language_level=3
"""How far apart two processors are right now.

Two processes, pinned to one processor each, hand a number back and forth in shared memory.
"""

from libc.stdint cimport int64_t
from posix.mman cimport MAP_ANONYMOUS, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

import os
import signal

cdef extern from *:
    """
    static inline void relax(void) { __builtin_ia32_pause(); }
    static inline unsigned long long observe(const unsigned long long *at)
    {
        return __atomic_load_n(at, __ATOMIC_ACQUIRE);
    }
    static inline void publish(unsigned long long *at, unsigned long long value)
    {
        __atomic_store_n(at, value, __ATOMIC_RELEASE);
    }
    """
    void relax() nogil
    unsigned long long observe(const unsigned long long *at) nogil
    void publish(unsigned long long *at, unsigned long long value) nogil

cdef enum:
    PAGE_SIZE = 4096
    ROUNDS = 2000                       # hand-overs and back in one batch
    BATCHES = 20
    BATCH_NS_MAX = 50000000             # a batch disturbed for longer than this ends the measurement


cdef int64_t now_ns() noexcept nogil:
    cdef timespec at
    clock_gettime(CLOCK_MONOTONIC, &at)
    return <int64_t> at.tv_sec * 1000000000 + at.tv_nsec


# Wait until *at is value; False after BATCH_NS_MAX.
cdef bint await_value(const unsigned long long *at, unsigned long long value) noexcept nogil:
    cdef int64_t deadline = 0
    cdef int spins = 0
    while observe(at) != value:
        relax()
        spins += 1
        if spins == 4096:
            spins = 0
            if deadline == 0:
                deadline = now_ns() + BATCH_NS_MAX
            elif now_ns() > deadline:
                return False
    return True


# One side of the exchange; the caller of the first side gets the nanoseconds per hand-over of the fastest batch, or -1.
cdef int64_t exchange(unsigned long long *ball, bint is_first) noexcept nogil:
    cdef int _batch, _i
    cdef unsigned long long turn = 0
    cdef int64_t started, taken, best = -1
    for _batch in range(BATCHES):
        started = now_ns()
        for _i in range(ROUNDS):
            if is_first:
                publish(ball, turn + 1)
                if not await_value(ball, turn + 2):
                    return best
            else:
                if not await_value(ball, turn + 1):
                    return best
                publish(ball, turn + 2)
            turn += 2
        taken = now_ns() - started
        if best < 0 or taken < best:
            best = taken
    return best


def core_distance_ns(int first_cpu, int second_cpu):
    """Return the time of one hand-over from *first_cpu* to *second_cpu*, ns: the mean of the fastest of 20 batches.

    None if the two processes could not run at the same time. Forks; call it from a process with one thread. Takes below
    50 ms on a quiet machine. The caller's affinity is as before when it returns.
    """
    cdef void *page = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)
    cdef unsigned long long *ball = <unsigned long long *> page
    cdef int64_t best = -1
    if page == <void *> -1:
        raise MemoryError
    affinity = os.sched_getaffinity(0)
    child = os.fork()
    if child == 0:
        try:
            os.sched_setaffinity(0, {second_cpu})
            with nogil:
                exchange(ball, False)
        finally:
            os._exit(0)
    try:
        os.sched_setaffinity(0, {first_cpu})
        with nogil:
            best = exchange(ball, True)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.sched_setaffinity(0, affinity)
        munmap(page, PAGE_SIZE)
    return None if best < 0 else best / (2.0 * ROUNDS)
