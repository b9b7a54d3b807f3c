"""Log lines of the loops that hold no GIL: rare ones, and at most one in ten seconds of each kind."""

from libc.stdint cimport int64_t

import logging
import os

from mqcore._fast.base.atomics cimport coarse_ms

logger = logging.getLogger(__name__)

cdef enum:
    PAUSE_MS = 10_000


cdef void write_line(const char *what, int64_t where, int error, int64_t count) noexcept with gil:
    logger.error("not readable what=%s at=%d error=%s times=%d", what.decode(), where, os.strerror(error), count)


cdef void warn_unreadable(Warning *warning, const char *what, int64_t where, int error) noexcept nogil:
    cdef int64_t now = coarse_ms()
    warning.count += 1
    if now < warning.next_at:
        return
    write_line(what, where, error, warning.count)
    warning.next_at = now + PAUSE_MS
    warning.count = 0
