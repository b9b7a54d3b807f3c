"""The newest index file and the roll to the next. The rules are those of mqcore/store/queues/dispatch.py."""

from libc.errno cimport ENOENT
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, memmove, memset

from mqcore._fast.base.big_endian cimport load_i32, load_i64, store_i32
from mqcore._fast.base.layout cimport (INDEX_ENTRY_SIZE, INDEX_HEADER_BEGIN_PHYSICAL_OFFSET_AT,
                                       INDEX_HEADER_BEGIN_TIMESTAMP_AT, INDEX_HEADER_END_PHYSICAL_OFFSET_AT,
                                       INDEX_HEADER_END_TIMESTAMP_AT, INDEX_HEADER_INDEX_COUNT_AT, INDEX_HEADER_SIZE,
                                       INDEX_SLOT_SIZE)
from mqcore._fast.base.checks cimport check
from mqcore._fast.base.fixed_file cimport mq_map_file, mq_unmap_file
from mqcore._fast.base.store_file cimport (EUCLEAN, PATH_SIZE_MAX, mq_index_file_name, mq_make_file, mq_newest_file,
                                           mq_reserve_file, mq_sync_map)
from mqcore._fast.queues.index_file cimport INDEX_FULL, IndexStatus, index_file_size, index_put


cdef enum:
    RESERVE_SIZE = 1024 * 1024          # blocks reserved ahead: one system call per 52,428 entries


cdef bint fail(FileFailure *failure, int error_number, const char *path) noexcept nogil:
    failure.error_number = error_number
    snprintf(failure.path, PATH_SIZE_MAX, "%s", path)
    return False


cdef void file_path(char *out, const IndexWriter *index, int64_t name) noexcept nogil:
    snprintf(out, PATH_SIZE_MAX, "%s/%017lld", index.path, <long long>name)


cdef inline int64_t slots_end(const IndexWriter *index) noexcept nogil:
    return INDEX_HEADER_SIZE + <int64_t>INDEX_SLOT_SIZE * index.geometry.slot_count


cdef bint index_open(IndexWriter *index, FileFailure *failure) noexcept nogil:
    cdef char path[PATH_SIZE_MAX]
    cdef int failed
    if index.opened:
        return True
    index.name = -1
    failed = mq_newest_file(index.path, &index.name)
    if failed and failed != ENOENT:
        return fail(failure, failed, index.path)
    if not failed:
        file_path(path, index, index.name)
        failed = mq_map_file(path, index_file_size(&index.geometry), True, &index.map)
        if failed and failed != EUCLEAN:        # one of another geometry is left alone, and a new one begun
            return fail(failure, failed, path)
    index.reserved = 0                          # made by whom we do not know: reserve it anew
    index.opened = True
    return True


cdef void index_close(IndexWriter *index) noexcept nogil:
    cdef int64_t size = index_file_size(&index.geometry)
    cdef int32_t number
    if index.map != NULL:
        mq_unmap_file(index.map, size)
    index.map = NULL
    for number in range(index.retired_count):
        mq_unmap_file(index.retired[number], size)
    index.retired_count = 0
    index.opened = False


cdef int64_t index_end(const IndexWriter *index) noexcept nogil:
    return load_i64(index.map + INDEX_HEADER_END_PHYSICAL_OFFSET_AT) if index.map != NULL else 0


# Begin a new file, which inherits where the one before it ended.
cdef bint make_file(IndexWriter *index, FileFailure *failure) noexcept nogil:
    cdef char path[PATH_SIZE_MAX]
    cdef uint8_t head[INDEX_HEADER_SIZE]
    cdef uint8_t *map = NULL
    cdef int64_t size = index_file_size(&index.geometry)
    cdef int64_t name = max(mq_index_file_name(), index.name + 1)       # the clock may have gone back
    cdef int failed
    memset(head, 0, INDEX_HEADER_SIZE)
    store_i32(head + INDEX_HEADER_INDEX_COUNT_AT, 1)
    if index.map != NULL:
        memcpy(head + INDEX_HEADER_BEGIN_TIMESTAMP_AT, index.map + INDEX_HEADER_END_TIMESTAMP_AT, 8)
        memcpy(head + INDEX_HEADER_END_TIMESTAMP_AT, index.map + INDEX_HEADER_END_TIMESTAMP_AT, 8)
        memcpy(head + INDEX_HEADER_BEGIN_PHYSICAL_OFFSET_AT, index.map + INDEX_HEADER_END_PHYSICAL_OFFSET_AT, 8)
        memcpy(head + INDEX_HEADER_END_PHYSICAL_OFFSET_AT, index.map + INDEX_HEADER_END_PHYSICAL_OFFSET_AT, 8)
    if index.retired_count == INDEX_RETIRED_MAX and not index_sync(index, False, failure):
        return False
    file_path(path, index, name)
    failed = mq_make_file(path, index.path, size, slots_end(index), head, INDEX_HEADER_SIZE, True)
    if not failed:
        failed = mq_map_file(path, size, True, &map)
    if failed:
        return fail(failure, failed, path)
    if index.map != NULL:
        index.retired[index.retired_count] = index.map
        index.retired_count += 1
    index.map = map
    index.name = name
    index.reserved = slots_end(index)
    return True


# See that the next entry has blocks on disk.
cdef bint reserve_entry(IndexWriter *index, FileFailure *failure) noexcept nogil:
    cdef char path[PATH_SIZE_MAX]
    cdef int64_t size = index_file_size(&index.geometry)
    cdef int64_t entry = max(1, load_i32(index.map + INDEX_HEADER_INDEX_COUNT_AT))
    cdef int64_t end = slots_end(index) + INDEX_ENTRY_SIZE * (entry + 1)
    cdef int failed
    if end <= index.reserved or end > size:
        return True
    end = min(size, end + RESERVE_SIZE)
    file_path(path, index, index.name)
    failed = mq_reserve_file(path, index.reserved, end - index.reserved)
    if failed:
        return fail(failure, failed, path)
    index.reserved = end
    return True


cdef bint index_append(
    IndexWriter *index, int32_t key_hash, int64_t physical_offset, int64_t store_timestamp, FileFailure *failure
) noexcept nogil:
    cdef IndexStatus status
    if index.map == NULL and not make_file(index, failure):
        return False
    if not reserve_entry(index, failure):
        return False
    if index_put(index.map, &index.geometry, key_hash, physical_offset, store_timestamp) == INDEX_FULL:
        if not make_file(index, failure) or not reserve_entry(index, failure):
            return False
        status = index_put(index.map, &index.geometry, key_hash, physical_offset, store_timestamp)
        check(status != INDEX_FULL, "a new index file has room for an entry")
    return True


cdef bint index_sync(IndexWriter *index, bint newest, FileFailure *failure) noexcept nogil:
    cdef int64_t size = index_file_size(&index.geometry)
    cdef int failed
    while index.retired_count > 0:
        failed = mq_sync_map(index.retired[0], size)
        if failed:
            return fail(failure, failed, index.path)
        index.synced_timestamp = load_i64(index.retired[0] + INDEX_HEADER_END_TIMESTAMP_AT)
        mq_unmap_file(index.retired[0], size)
        index.retired_count -= 1
        memmove(index.retired, index.retired + 1, index.retired_count * sizeof(uint8_t *))
    if newest and index.map != NULL:
        failed = mq_sync_map(index.map, size)
        if failed:
            return fail(failure, failed, index.path)
    return True
