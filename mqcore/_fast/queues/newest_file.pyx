"""The newest of the files that hold one queue's units, being written. Twin: mqcore/store/queues/newest_file.py."""

from libc.errno cimport EEXIST, ENOENT
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf

from mqcore._fast.base.fixed_file cimport mq_map_file, mq_unmap_file
from mqcore._fast.base.store_file cimport (PATH_SIZE_MAX, mq_expect_single_pages, mq_make_directory, mq_make_file,
                                           mq_newest_file, mq_reserve_file, mq_sync_directory, mq_sync_file)


cdef enum:
    # Blocks are reserved ahead: as many as the file has, so that a hundred thousand small queues do not hold the disk,
    # and from 128 KiB on with one system call per 6,553 units of a consume queue.
    RESERVE_SIZE_MIN = 4096
    RESERVE_SIZE_MAX = 128 * 1024


cdef bint fail(FileFailure *failure, int error_number, const char *path) noexcept nogil:
    failure.error_number = error_number
    snprintf(failure.path, PATH_SIZE_MAX, "%s", path)
    return False


cdef void topic_path(char *out, const QueuePlace *place) noexcept nogil:
    snprintf(out, PATH_SIZE_MAX, "%s/%.*s", place.root, <int>place.topic_size, <const char *>place.topic)


cdef void directory_path(char *out, const QueuePlace *place) noexcept nogil:
    snprintf(out, PATH_SIZE_MAX, "%s/%.*s/%d", place.root, <int>place.topic_size, <const char *>place.topic,
             <int>place.queue_id)


cdef void file_path(char *out, const QueuePlace *place, int64_t file_start) noexcept nogil:
    snprintf(out, PATH_SIZE_MAX, "%s/%.*s/%d/%020lld", place.root, <int>place.topic_size, <const char *>place.topic,
             <int>place.queue_id, <long long>file_start)


cdef void begin_without_file(NewestFile *file, const QueuePlace *place) noexcept nogil:
    unmap_file(file, place.file_size)
    file.file_start = -1
    file.wrote = file.reserved = file.flushed = 0


cdef bint find_file(NewestFile *file, const QueuePlace *place, FileFailure *failure) noexcept nogil:
    cdef char path[PATH_SIZE_MAX]
    cdef int failed
    begin_without_file(file, place)
    directory_path(path, place)
    failed = mq_newest_file(path, &file.file_start)
    return not failed or failed == ENOENT or fail(failure, failed, path)


cdef void resume_file(NewestFile *file, const QueuePlace *place, int64_t wrote) noexcept nogil:
    # Who made the file, and whether the one before it was synced, is not known: both are done anew, which costs little.
    file.wrote = file.reserved = wrote
    file.flushed = max(<int64_t>0, file.file_start - place.file_size)
    file.named = False


cdef bint map_file(NewestFile *file, const QueuePlace *place, FileFailure *failure) noexcept nogil:
    cdef char path[PATH_SIZE_MAX]
    cdef int failed
    file_path(path, place, file.file_start)
    failed = mq_map_file(path, place.file_size, True, &file.map)
    if failed:
        return fail(failure, failed, path)
    mq_expect_single_pages(file.map, place.file_size)
    return True


cdef void unmap_file(NewestFile *file, int64_t file_size) noexcept nogil:
    if file.map != NULL:
        mq_unmap_file(file.map, file_size)
        file.map = NULL


cdef bint make_file(NewestFile *file, const QueuePlace *place, int64_t file_start, FileFailure *failure) noexcept nogil:
    cdef char topic[PATH_SIZE_MAX]
    cdef char directory[PATH_SIZE_MAX]
    cdef char name[PATH_SIZE_MAX]
    cdef int64_t reserve = min(<int64_t>RESERVE_SIZE_MIN, place.file_size)
    cdef int failed
    topic_path(topic, place)
    directory_path(directory, place)
    file_path(name, place, file_start)
    failed = mq_make_directory(directory) if file.file_start < 0 else 0
    if failed == ENOENT:
        failed = mq_make_directory(topic)
        if not failed:
            failed = mq_make_directory(directory)
    if not failed:
        failed = mq_make_file(name, directory, place.file_size, reserve, NULL, 0, False)
    if failed and failed != EEXIST:
        return fail(failure, failed, name)
    unmap_file(file, place.file_size)
    if file.file_start < 0:
        file.flushed = file_start
    file.file_start = file_start
    file.wrote = 0
    file.reserved = 0 if failed else reserve
    file.named = False
    return True


cdef bint reserve_file(NewestFile *file, const QueuePlace *place, FileFailure *failure) noexcept nogil:
    cdef char path[PATH_SIZE_MAX]
    cdef int64_t ahead = min(max(file.wrote, <int64_t>RESERVE_SIZE_MIN), <int64_t>RESERVE_SIZE_MAX)
    cdef int64_t end = min(file.wrote + ahead, place.file_size)
    cdef int failed
    file_path(path, place, file.file_start)
    failed = mq_reserve_file(path, file.wrote, end - file.wrote)
    if failed:
        return fail(failure, failed, path)
    file.reserved = end
    return True


cdef bint sync_names(NewestFile *file, const QueuePlace *place, FileFailure *failure) noexcept nogil:
    cdef char path[PATH_SIZE_MAX]
    cdef int failed
    directory_path(path, place)
    failed = mq_sync_directory(path)
    if not failed:
        topic_path(path, place)
        failed = mq_sync_directory(path)
    if not failed:
        failed = mq_sync_directory(place.root)
    file.named = not failed
    return not failed or fail(failure, failed, path)


cdef int64_t sync_files(NewestFile *file, const QueuePlace *place, FileFailure *failure) noexcept nogil:
    cdef char path[PATH_SIZE_MAX]
    cdef int64_t end = file.file_start + file.wrote
    cdef int64_t start = file.flushed - file.flushed % place.file_size
    cdef int64_t synced = 0
    cdef int failed
    while file.file_start >= 0 and file.flushed < end:
        file_path(path, place, start)
        failed = mq_sync_file(path)
        if failed and not (failed == ENOENT and start < file.file_start):       # an older file may have expired
            fail(failure, failed, path)
            return -1
        synced += 0 if failed else 1
        start += place.file_size
        file.flushed = min(start, end)
    if file.file_start >= 0 and not file.named and not sync_names(file, place, failure):
        return -1
    return synced
