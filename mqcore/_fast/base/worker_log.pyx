"""Log lines of the loops that hold no GIL: rare ones, and at most one in ten seconds of each kind."""

from libc.stdint cimport int32_t, int64_t, uint8_t

import logging
import os

from mqcore._fast.base.atomics cimport coarse_ms

logger = logging.getLogger(__name__)

cdef enum:
    PAUSE_MS = 10_000


cdef void write_line(const char *what, int64_t where, int error, int64_t count) noexcept with gil:
    logger.error("not readable what=%s at=%d error=%s times=%d", what.decode(), where, os.strerror(error), count)


cdef void write_closed(const char *peer, const char *cause, const char *detail, int64_t count) noexcept with gil:
    logger.warning("connection closed peer=%s cause=%s: %s times=%d", peer.decode(), cause.decode(),
                   detail.decode("utf-8", "replace"), count)


cdef void write_not_taken(const uint8_t *asker, int32_t size, const char *why, int64_t count) noexcept with gil:
    logger.warning("answer not taken asker=%s reason=%s times=%d", asker[:size].decode("utf-8", "replace"),
                   why.decode(), count)


cdef bint is_due(Warning *warning) noexcept nogil:
    warning.count += 1
    return coarse_ms() >= warning.next_at


cdef void note_written(Warning *warning) noexcept nogil:
    warning.next_at = coarse_ms() + PAUSE_MS
    warning.count = 0


cdef void warn_unreadable(Warning *warning, const char *what, int64_t where, int error) noexcept nogil:
    if is_due(warning):
        write_line(what, where, error, warning.count)
        note_written(warning)


cdef void warn_closed(Warning *warning, const char *peer, const char *cause, const char *detail) noexcept nogil:
    if is_due(warning):
        write_closed(peer, cause, detail, warning.count)
        note_written(warning)


cdef void warn_not_taken(Warning *warning, const uint8_t *asker, int32_t size, const char *why) noexcept nogil:
    if is_due(warning):
        write_not_taken(asker, size, why, warning.count)
        note_written(warning)
