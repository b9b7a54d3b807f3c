"""How far the consume queues of a topic are written, and cutting them. The close look is that of ConsumeQueue."""

from libc.errno cimport ENOENT, ENOTDIR
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free

import os

from mqcore._fast.base.layout cimport PRE_FILL_SIZE


cdef extern from "queue_survey.h" nogil:
    ctypedef struct mq_queue_found:
        int32_t queue_id
        int32_t odd
    ctypedef struct mq_queue_bounds:
        mq_queue_found queue
        int64_t min_offset
        int64_t max_offset
        int64_t max_physical
    ctypedef struct mq_survey:
        int64_t file_size
        int64_t commit_log_min
        int32_t pre_fill_size
    int mq_survey_topic(const char *path, const mq_survey *survey, mq_queue_bounds **out, int64_t *count) noexcept


cdef extern from "queue_cut.h" nogil:
    ctypedef struct mq_queue_cut:
        mq_queue_found queue
        int32_t cut
        int32_t last_size
        int64_t last_physical
        int64_t file_start
    ctypedef struct mq_cut:
        int64_t file_size
        int64_t end
        int32_t pre_fill_size
    int mq_cut_topic(const char *path, const mq_cut *cut, mq_queue_cut **out, int64_t *count) noexcept


cdef check_size(int64_t file_size):
    if file_size <= 0:
        raise ValueError(f"file size: got {file_size}, wanted a positive number")


cdef check_found(int failed, bytes directory):
    # A topic without a directory has no queues.
    if failed and failed != ENOENT and failed != ENOTDIR:
        raise OSError(failed, os.strerror(failed), os.fsdecode(directory))


def survey_topic(bytes directory not None, int64_t file_size, int64_t commit_log_min):
    """Return (queue id, odd, min offset, max offset, max physical) of each queue below a topic's *directory*, in order.

    As a clean stop leaves them. An odd one needs a close look: its numbers mean nothing. Raises OSError.
    """
    cdef mq_queue_bounds *bounds = NULL
    cdef int64_t count = 0, index
    cdef const char *path = directory
    cdef mq_survey survey
    cdef int failed
    check_size(file_size)
    survey.file_size, survey.commit_log_min, survey.pre_fill_size = file_size, commit_log_min, PRE_FILL_SIZE
    with nogil:
        failed = mq_survey_topic(path, &survey, &bounds, &count)
    try:
        check_found(failed, directory)
        found = [
            (bounds[index].queue.queue_id, bounds[index].queue.odd != 0, bounds[index].min_offset,
             bounds[index].max_offset, bounds[index].max_physical)
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
    cdef mq_cut cut
    cdef int failed
    check_size(file_size)
    cut.file_size, cut.end, cut.pre_fill_size = file_size, physical_offset, PRE_FILL_SIZE
    with nogil:
        failed = mq_cut_topic(path, &cut, &cuts, &count)
    try:
        check_found(failed, directory)
        found = [
            (cuts[index].queue.queue_id, cuts[index].queue.odd != 0, cuts[index].file_start, cuts[index].cut > 0,
             cuts[index].last_physical, cuts[index].last_size)
            for index in range(count)
        ]
    finally:
        free(cuts)
    found.sort()
    return found
