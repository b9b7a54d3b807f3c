"""How far the consume queues of a topic are written. The close look, and the meaning, is ConsumeQueue.recover."""

from libc.errno cimport ENOENT, ENOTDIR
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free

import os

from mqcore._fast.base.layout cimport PRE_FILL_SIZE


cdef extern from "queue_survey.h" nogil:
    ctypedef struct mq_queue_bounds:
        int32_t queue_id
        int32_t odd
        int64_t min_offset
        int64_t max_offset
        int64_t max_physical
    int mq_survey_topic(const char *path, int64_t file_size, int64_t commit_log_min, int32_t pre_fill_size,
                        mq_queue_bounds **out, int64_t *count) noexcept


def survey_topic(bytes directory not None, int64_t file_size, int64_t commit_log_min):
    """Return (queue id, odd, min offset, max offset, max physical) of each queue below a topic's *directory*, in order.

    As a clean stop leaves them. An odd one needs a close look: its numbers mean nothing. Raises OSError.
    """
    cdef mq_queue_bounds *bounds = NULL
    cdef int64_t count = 0, index
    cdef const char *path = directory
    cdef int failed
    if file_size <= 0:
        raise ValueError(f"file size: got {file_size}, wanted a positive number")
    with nogil:
        failed = mq_survey_topic(path, file_size, commit_log_min, PRE_FILL_SIZE, &bounds, &count)
    try:
        if failed and failed != ENOENT and failed != ENOTDIR:
            raise OSError(failed, os.strerror(failed), os.fsdecode(directory))
        found = [
            (bounds[index].queue_id, bounds[index].odd != 0, bounds[index].min_offset, bounds[index].max_offset,
             bounds[index].max_physical)
            for index in range(count)
        ]
    finally:
        free(bounds)
    found.sort()
    return found
