"""How far the consume queues of a topic are written, and cutting them. The close look is that of ConsumeQueue."""

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


cdef extern from "queue_cut.h" nogil:
    ctypedef struct mq_queue_cut:
        int32_t queue_id
        int32_t odd
        int32_t cut
        int32_t last_size
        int64_t last_physical
        int64_t file_start
    int mq_cut_topic(const char *path, int64_t file_size, int32_t pre_fill_size, int64_t end, mq_queue_cut **out,
                     int64_t *count) noexcept


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


def cut_topic(bytes directory not None, int64_t file_size, int64_t physical_offset):
    """Drop the units of records at *physical_offset* or behind it from each queue below a topic's *directory*.

    Returns (queue id, odd, start of the newest file or -1, whether that file has to be synced, physical offset and size
    of the last unit that stays) of each, in order; size 0: none stays. An odd one needs a close look, and its numbers
    mean nothing. Whether the last unit points at a record is for the caller to find out. Raises OSError.
    """
    cdef mq_queue_cut *cuts = NULL
    cdef int64_t count = 0, index
    cdef const char *path = directory
    cdef int failed
    if file_size <= 0:
        raise ValueError(f"file size: got {file_size}, wanted a positive number")
    with nogil:
        failed = mq_cut_topic(path, file_size, PRE_FILL_SIZE, physical_offset, &cuts, &count)
    try:
        if failed and failed != ENOENT and failed != ENOTDIR:
            raise OSError(failed, os.strerror(failed), os.fsdecode(directory))
        found = [
            (cuts[index].queue_id, cuts[index].odd != 0, cuts[index].file_start, cuts[index].cut > 0,
             cuts[index].last_physical, cuts[index].last_size)
            for index in range(count)
        ]
    finally:
        free(cuts)
    found.sort()
    return found
