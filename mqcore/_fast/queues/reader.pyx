"""Reads consume queues through one read-only mapping per queue."""

from libc.errno cimport ENAMETOOLONG, ENOENT, ENOMEM
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset

from mqcore._fast.base.fixed_file cimport mq_map_file, mq_unmap_file
from mqcore._fast.base.layout cimport CQ_UNIT_SIZE, PAGE_SIZE, QueueRow, TopicRow
from mqcore._fast.base.store_file cimport mq_expect_single_pages
from mqcore._fast.queues.ext cimport ExtUnit, ext_offset, read_ext_unit
from mqcore._fast.segment.boards cimport Shared
from mqcore._fast.segment.bounds cimport queue_files_of
from mqcore._fast.segment.cradle cimport CRADLE_BYTES, copy_cradle

cdef extern from "<sys/mman.h>" nogil:
    int madvise(void *address, size_t length, int advice)
    int MADV_WILLNEED

cdef enum:
    READER_PATH_SIZE = 4096
    ROWS_MIN = 1024
    ADVISE_SIZE = 128 * 1024
    ADVISE_BEFORE = 64 * 1024       # a scan reads no more at once


cdef bint queues_open(QueueReader *reader, const Shared *shared, const char *root, int64_t file_size,
                      const char *ext_root, int64_t ext_file_size, int32_t mapped_count_max) noexcept nogil:
    memset(reader, 0, sizeof(QueueReader))
    reader.shared = shared
    reader.root = root
    reader.file_size = file_size
    reader.ext_root = ext_root
    reader.ext_file_size = ext_file_size
    # One queue may have both kinds mapped.
    reader.mapped_count_max = max(<int32_t>2, mapped_count_max)
    reader.young = <uint8_t *>malloc(CRADLE_BYTES)
    return reader.young != NULL


cdef void unmap_ext(QueueReader *reader, QueueFile *file) noexcept nogil:
    if file.ext_base != NULL:
        mq_unmap_file(file.ext_base, reader.ext_file_size)
        reader.mapped_count -= 1
    file.ext_base = NULL
    file.ext_start = -1


cdef void unmap_queue(QueueReader *reader, QueueFile *file) noexcept nogil:
    if file.base != NULL:
        mq_unmap_file(file.base, reader.file_size)
        reader.mapped_count -= 1
    file.base = NULL
    file.start = -1


cdef void queues_close(QueueReader *reader) noexcept nogil:
    cdef int32_t row
    for row in range(reader.capacity):
        unmap_queue(reader, &reader.files[row])
        unmap_ext(reader, &reader.files[row])
    free(reader.files)
    free(reader.young)
    reader.files = NULL
    reader.young = NULL
    reader.capacity = 0


cdef bint grow(QueueReader *reader, int32_t row) noexcept nogil:
    cdef int32_t capacity = max(<int32_t>ROWS_MIN, reader.capacity)
    cdef QueueFile *files
    cdef int32_t index
    while capacity <= row:
        capacity *= 2
    files = <QueueFile *>realloc(reader.files, capacity * sizeof(QueueFile))
    if files == NULL:
        return False
    for index in range(reader.capacity, capacity):
        files[index].start = -1
        files[index].base = NULL
        files[index].ext_start = -1
        files[index].ext_base = NULL
        files[index].ext_missing = -1
        files[index].was_used = False
        files[index].files_of = 0
    reader.files = files
    reader.capacity = capacity
    return True


# Map a file of a queue's directory under *root*; NULL if it is not there in its full length.
cdef uint8_t *map_file(QueueReader *reader, int32_t queue_row, const char *root, int64_t start,
                       int64_t size) noexcept nogil:
    cdef const QueueRow *queue = &reader.shared.queues[queue_row]
    cdef const TopicRow *topic = &reader.shared.topics[queue.topic_row]
    cdef char path[READER_PATH_SIZE]
    cdef uint8_t *base = NULL
    if snprintf(path, READER_PATH_SIZE, "%s/%.*s/%d/%020lld", root, topic.name_size, <const char *>topic.name,
                queue.queue_id, <long long>start) >= READER_PATH_SIZE:
        reader.error = ENAMETOOLONG
        return NULL
    reader.error = mq_map_file(path, size, False, &base)
    return base


# See that there is room for one more mapping. What *queue_row* has stays: somebody may have a pointer into it.
cdef void make_room(QueueReader *reader, int32_t queue_row) noexcept nogil:
    cdef QueueFile *file
    cdef int32_t _tried
    for _tried in range(2 * reader.capacity):
        if reader.mapped_count < reader.mapped_count_max:
            return
        reader.hand = reader.hand + 1 if reader.hand + 1 < reader.capacity else 0
        file = &reader.files[reader.hand]
        if reader.hand == queue_row:
            continue
        if file.was_used:
            file.was_used = False
            continue
        unmap_queue(reader, file)
        unmap_ext(reader, file)


cdef bint map_queue(QueueReader *reader, int32_t queue_row, int64_t start) noexcept nogil:
    cdef uint8_t *base
    make_room(reader, queue_row)
    base = map_file(reader, queue_row, reader.root, start, reader.file_size)
    if base == NULL:
        return False
    unmap_queue(reader, &reader.files[queue_row])
    # Page by page: most queues of a store with very many of them have one. Of more, advise() asks ahead.
    mq_expect_single_pages(base, reader.file_size)
    reader.files[queue_row].base = base
    reader.files[queue_row].start = start
    reader.files[queue_row].advised_from = 0
    reader.files[queue_row].advised_end = 0
    reader.mapped_count += 1
    return True


# Have what is read next brought into memory: a part of the file at a time, and never what nobody has written.
cdef void advise(QueueReader *reader, QueueFile *file, int64_t position, int64_t written_end) noexcept nogil:
    cdef int64_t start
    if not file.advised_from <= position <= file.advised_end:
        file.advised_from = file.advised_end = position & ~<int64_t>(PAGE_SIZE - 1)
    start = file.advised_end
    if position + ADVISE_BEFORE < start or written_end - start < 2 * PAGE_SIZE:
        return
    file.advised_end = min(start + ADVISE_SIZE, written_end) & ~<int64_t>(PAGE_SIZE - 1)
    madvise(file.base + start, file.advised_end - start, MADV_WILLNEED)


cdef bint map_ext(QueueReader *reader, int32_t queue_row, int64_t start, int64_t now) noexcept nogil:
    cdef QueueFile *file = &reader.files[queue_row]
    cdef uint8_t *base
    if file.ext_missing == start and file.ext_missing_at == now:
        return False                # one look a turn, not one for every unit of a scan
    make_room(reader, queue_row)
    base = map_file(reader, queue_row, reader.ext_root, start, reader.ext_file_size)
    if base == NULL:
        file.ext_missing = start
        file.ext_missing_at = now
        return False
    unmap_ext(reader, file)
    file.ext_base = base
    file.ext_start = start
    reader.mapped_count += 1
    return True


cdef bint ext_unit_at(QueueReader *reader, int32_t queue_row, int64_t address, int64_t now,
                      ExtUnit *unit) noexcept nogil:
    cdef int64_t offset = ext_offset(address)
    cdef int64_t start = offset - offset % reader.ext_file_size
    if reader.files[queue_row].ext_start != start and not map_ext(reader, queue_row, start, now):
        return False
    return read_ext_unit(reader.files[queue_row].ext_base + (offset - start), start + reader.ext_file_size - offset,
                         unit)


cdef bint ext_code_at(QueueReader *reader, int32_t queue_row, int64_t address, int64_t now,
                      int64_t *tags_code) noexcept nogil:
    cdef ExtUnit unit
    if not ext_unit_at(reader, queue_row, address, now, &unit):
        return False
    tags_code[0] = unit.tags_code
    return True


cdef const uint8_t *units_at(QueueReader *reader, int32_t queue_row, int64_t first, int64_t limit, int64_t now,
                             int64_t *count) noexcept nogil:
    cdef int64_t position = first * CQ_UNIT_SIZE
    cdef int64_t start = position - position % reader.file_size
    cdef int64_t files_of, young_size
    cdef QueueFile *file
    count[0] = 0
    if first < 0:
        reader.error = ENOENT
        return NULL
    if queue_row >= reader.capacity and not grow(reader, queue_row):
        reader.error = ENOMEM
        return NULL
    file = &reader.files[queue_row]
    young_size = copy_cradle(reader.shared, queue_row, position, limit * CQ_UNIT_SIZE, reader.young)
    if young_size >= 0:
        count[0] = young_size // CQ_UNIT_SIZE
        return reader.young
    files_of = queue_files_of(&reader.shared.queues[queue_row])
    if file.files_of != files_of:
        unmap_queue(reader, file)
        unmap_ext(reader, file)
        file.files_of = files_of
    if file.start != start and not map_queue(reader, queue_row, start):
        return NULL
    file.used_at = now
    file.was_used = True
    advise(reader, file, position - start, min(limit * CQ_UNIT_SIZE - start, reader.file_size))
    count[0] = min(limit - first, (start + reader.file_size - position) // CQ_UNIT_SIZE)
    return file.base + (position - start)


cdef void queues_rest(QueueReader *reader, int64_t before) noexcept nogil:
    cdef int32_t row
    for row in range(reader.capacity):
        if reader.files[row].base != NULL and reader.files[row].used_at < before:
            unmap_queue(reader, &reader.files[row])
            unmap_ext(reader, &reader.files[row])
