"""The newest consume queue ext file of one queue, being written. The twin is mqcore/store/ext_writer.py."""

from libc.errno cimport EEXIST, ENOENT
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf

from mqcore._fast.big_endian cimport store_i16
from mqcore._fast.consume_queue_ext cimport (ExtUnit, ext_address, ext_offset, ext_units_end, is_ext_address,
                                             read_ext_unit, write_ext_unit)
from mqcore._fast.layout cimport CQ_EXT_UNIT_SIZE, EXT_FILE_END_MIN_BLANK_SIZE, EXT_FILE_FULL
from mqcore._fast.store_file cimport (PATH_SIZE_MAX, mq_make_directory, mq_make_file, mq_map_file, mq_newest_file,
                                      mq_reserve_file, mq_sync_file, mq_unmap_file)


cdef enum:
    EXT_RESERVE_SIZE = 128 * 1024       # blocks reserved ahead


cdef bint fail(FileFailure *failure, int error_number, const char *path) noexcept nogil:
    failure.error_number = error_number
    snprintf(failure.path, PATH_SIZE_MAX, "%s", path)
    return False


cdef void topic_path(char *out, const ExtPlace *place) noexcept nogil:
    snprintf(out, PATH_SIZE_MAX, "%s/%.*s", place.root, <int>place.topic_size, <const char *>place.topic)


cdef void directory_path(char *out, const ExtPlace *place) noexcept nogil:
    snprintf(out, PATH_SIZE_MAX, "%s/%.*s/%d", place.root, <int>place.topic_size, <const char *>place.topic,
             <int>place.queue_id)


cdef void file_path(char *out, const ExtPlace *place, int64_t file_start) noexcept nogil:
    snprintf(out, PATH_SIZE_MAX, "%s/%.*s/%d/%020lld", place.root, <int>place.topic_size, <const char *>place.topic,
             <int>place.queue_id, <long long>file_start)


cdef void ext_unmap(ExtWriter *ext, int64_t file_size) noexcept nogil:
    if ext.map != NULL:
        mq_unmap_file(ext.map, file_size)
        ext.map = NULL


cdef bint map_ext(ExtWriter *ext, const ExtPlace *place, FileFailure *failure) noexcept nogil:
    cdef char path[PATH_SIZE_MAX]
    cdef int failed
    file_path(path, place, ext.file_start)
    failed = mq_map_file(path, place.file_size, &ext.map)
    return not failed or fail(failure, failed, path)


cdef bint load_ext(ExtWriter *ext, const ExtPlace *place, int64_t known, FileFailure *failure) noexcept nogil:
    cdef char path[PATH_SIZE_MAX]
    cdef int failed
    ext_unmap(ext, place.file_size)
    ext.file_start = -1
    ext.wrote = ext.reserved = ext.flushed = 0
    directory_path(path, place)
    failed = mq_newest_file(path, &ext.file_start)
    if failed and failed != ENOENT:
        return fail(failure, failed, path)
    if not failed:
        if not map_ext(ext, place, failure):
            return False
        ext.wrote = max(ext_units_end(ext.map, place.file_size), end_of_known(ext, place, known))
        # Who made the file, and whether the one before it was synced, is not known: both are done anew.
        ext.reserved = ext.wrote
        ext.flushed = max(<int64_t>0, ext.file_start - place.file_size)
    ext.loaded = True
    return True


# Where the ext unit that the queue's newest unit names ends, if it lies in the newest file; else 0.
cdef int64_t end_of_known(const ExtWriter *ext, const ExtPlace *place, int64_t known) noexcept nogil:
    cdef int64_t position
    cdef ExtUnit unit
    if not is_ext_address(known):
        return 0
    position = ext_offset(known) - ext.file_start
    if not 0 <= position <= place.file_size - CQ_EXT_UNIT_SIZE:
        return 0
    if not read_ext_unit(ext.map + position, place.file_size - position, &unit):
        return position + CQ_EXT_UNIT_SIZE
    return position + unit.size


cdef bint make_ext_file(
    ExtWriter *ext, const ExtPlace *place, int64_t file_start, FileFailure *failure
) noexcept nogil:
    cdef char topic[PATH_SIZE_MAX]
    cdef char directory[PATH_SIZE_MAX]
    cdef char name[PATH_SIZE_MAX]
    cdef int64_t reserve = min(<int64_t>EXT_RESERVE_SIZE, place.file_size)
    cdef int failed
    topic_path(topic, place)
    directory_path(directory, place)
    file_path(name, place, file_start)
    failed = mq_make_directory(topic, place.root)
    if not failed:
        failed = mq_make_directory(directory, topic)
    if not failed:
        failed = mq_make_file(name, directory, place.file_size, reserve, NULL, 0)
    if failed and failed != EEXIST:
        return fail(failure, failed, name)
    ext_unmap(ext, place.file_size)
    if ext.file_start < 0:
        ext.flushed = file_start
    ext.file_start = file_start
    ext.wrote = 0
    ext.reserved = 0 if failed else reserve
    return map_ext(ext, place, failure)


# See that the newest file is mapped and has room for a unit and the rest that must stay behind it.
cdef bint open_ext(ExtWriter *ext, const ExtPlace *place, FileFailure *failure) noexcept nogil:
    if ext.file_start < 0:
        return make_ext_file(ext, place, 0, failure)
    if ext.map == NULL and not map_ext(ext, place, failure):
        return False
    if CQ_EXT_UNIT_SIZE <= place.file_size - ext.wrote - EXT_FILE_END_MIN_BLANK_SIZE:
        return True
    if place.file_size - ext.wrote >= EXT_FILE_END_MIN_BLANK_SIZE:
        store_i16(ext.map + ext.wrote, EXT_FILE_FULL)
    return make_ext_file(ext, place, ext.file_start + place.file_size, failure)


cdef bint ext_append(
    ExtWriter *ext, const ExtPlace *place, int64_t known, int64_t tags_code, int64_t store_timestamp, int64_t *address,
    FileFailure *failure
) noexcept nogil:
    cdef char path[PATH_SIZE_MAX]
    cdef int64_t end
    cdef int failed
    if not ext.loaded and not load_ext(ext, place, known, failure):
        return False
    if not open_ext(ext, place, failure):
        return False
    if ext.wrote + CQ_EXT_UNIT_SIZE > ext.reserved:
        end = min(ext.wrote + EXT_RESERVE_SIZE, place.file_size)
        file_path(path, place, ext.file_start)
        failed = mq_reserve_file(path, ext.wrote, end - ext.wrote)
        if failed:
            return fail(failure, failed, path)
        ext.reserved = end
    write_ext_unit(ext.map + ext.wrote, tags_code, store_timestamp)
    address[0] = ext_address(ext.file_start + ext.wrote)
    ext.wrote += CQ_EXT_UNIT_SIZE
    return True


cdef int64_t ext_sync(ExtWriter *ext, const ExtPlace *place, FileFailure *failure) noexcept nogil:
    cdef char path[PATH_SIZE_MAX]
    cdef int64_t end = ext.file_start + ext.wrote
    cdef int64_t start = ext.flushed - ext.flushed % place.file_size
    cdef int64_t synced = 0
    cdef int failed
    while ext.loaded and ext.file_start >= 0 and ext.flushed < end:
        file_path(path, place, start)
        failed = mq_sync_file(path)
        if failed and not (failed == ENOENT and start < ext.file_start):        # an older file may have expired
            fail(failure, failed, path)
            return -1
        synced += 0 if failed else 1
        start += place.file_size
        ext.flushed = min(start, end)
    return synced
