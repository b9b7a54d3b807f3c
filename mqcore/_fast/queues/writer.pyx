"""Consume queue files that are being written. The rules are those of mqcore/store/queues/dispatch.py."""

from libc.errno cimport ENOENT, ENOMEM, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from mqcore._fast.base.atomics cimport observe
from mqcore._fast.base.checks cimport check
from mqcore._fast.base.hashing cimport hash_bytes
from mqcore._fast.base.layout cimport CQ_UNIT_SIZE, CRADLE_CAPACITY, PRE_FILL_SIZE, TOPIC_SIZE_MAX
from mqcore._fast.base.fixed_file cimport mq_open_to_read
from mqcore._fast.base.store_file cimport PATH_SIZE_MAX, close, mq_read_bytes, pread
from mqcore._fast.queues.ext_writer cimport ext_append
from mqcore._fast.queues.first_files cimport (JOB_DONE, JOB_FAILED, JOB_NONE, drop_cradle, has_no_units, keep_cradle,
                                              leave_cradle, note_cradle, take_cradle)
from mqcore._fast.queues.newest_file cimport (QueuePlace, begin_without_file, fail, file_path, find_file, is_unsynced,
                                              make_file, map_file, reserve_file, resume_file, sync_files, unmap_file,
                                              was_synced)
from mqcore._fast.queues.units cimport CqUnit, count_valid_units, read_unit, write_unit


cdef enum:
    TABLE_CAPACITY_FIRST = 256
    CHUNK_UNITS_MIN = 204               # a page: most queues of a store with very many of them have no more
    CHUNK_UNITS_MAX = 3276              # 64 KiB


cdef inline bint is_topic_byte(uint8_t c) noexcept nogil:
    return (97 <= c <= 122) or (65 <= c <= 90) or (48 <= c <= 57) or c == 95 or c == 45 or c == 37 or c == 124


cdef bint is_topic(const uint8_t *topic, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t at
    if not 0 < size <= TOPIC_SIZE_MAX:
        return False
    for at in range(size):
        if not is_topic_byte(topic[at]):
            return False
    return True


cdef uint64_t hash_queue(const uint8_t *topic, int32_t topic_size, int32_t queue_id) noexcept nogil:
    return hash_bytes(topic, topic_size, <uint64_t>queue_id)


cdef QueuePlace place_of(QueueTable *queues, QueueWriter *queue) noexcept nogil:
    cdef QueuePlace place
    place.root = queues.path
    place.topic = queue.topic
    place.topic_size = queue.topic_size
    place.queue_id = queue.queue_id
    place.file_size = queues.file_size
    return place


cdef QueuePlace ext_place(QueueTable *queues, QueueWriter *queue) noexcept nogil:
    cdef QueuePlace place = place_of(queues, queue)
    place.root = queues.ext_path
    place.file_size = queues.ext_file_size
    return place


# ------------------------------------------------------------------------------------------------------- the table


cdef bint queues_open(QueueTable *queues, const char *path, int64_t file_size, int32_t mapped_count_max) noexcept nogil:
    memset(queues, 0, sizeof(QueueTable))
    snprintf(queues.path, DIRECTORY_SIZE_MAX, "%s", path)
    queues.file_size = file_size
    queues.mapped_count_max = mapped_count_max
    queues.capacity = TABLE_CAPACITY_FIRST
    queues.slots = <QueueWriter **>calloc(queues.capacity, sizeof(QueueWriter *))
    return queues.slots != NULL


cdef void queues_close(QueueTable *queues) noexcept nogil:
    cdef size_t at
    if queues.slots == NULL:
        return
    for at in range(queues.capacity):
        if queues.slots[at] != NULL:
            unmap_queue(queues, queues.slots[at])
            free(queues.slots[at])
    free(queues.slots)
    queues.slots = NULL
    queues.capacity = queues.count = 0


cdef bint is_queue(
    const QueueWriter *queue, uint64_t hash, const uint8_t *topic, int32_t topic_size, int32_t queue_id
) noexcept nogil:
    return (queue.hash == hash and queue.queue_id == queue_id and queue.topic_size == topic_size
            and memcmp(queue.topic, topic, topic_size) == 0)


# Move every queue to a new table of *capacity*.
cdef bint rebuild(QueueTable *queues, size_t capacity) noexcept nogil:
    cdef QueueWriter **slots = <QueueWriter **>calloc(capacity, sizeof(QueueWriter *))
    cdef QueueWriter *queue
    cdef size_t at, slot
    if slots == NULL:
        return False
    queues.count = 0
    for at in range(queues.capacity):
        queue = queues.slots[at]
        if queue == NULL:
            continue
        slot = queue.hash & (capacity - 1)
        while slots[slot] != NULL:
            slot = (slot + 1) & (capacity - 1)
        slots[slot] = queue
        queues.count += 1
    free(queues.slots)
    queues.slots = slots
    queues.capacity = capacity
    queues.clock_hand = 0
    return True


cdef bint bear_queue(
    QueueTable *queues, const uint8_t *topic, int32_t topic_size, int32_t queue_id, int64_t born, FileFailure *failure
) noexcept nogil:
    cdef QueueWriter *queue = find_slot(queues, topic, topic_size, queue_id, failure)
    if queue == NULL:
        return False
    if queue.cradle:
        drop_cradle(queues.first_files, queue.cradle - 1)
        memset(&queue.file, 0, sizeof(queue.file))
        queue.cradle = 0
    unmap_queue(queues, queue)
    memset(&queue.ext, 0, sizeof(queue.ext))
    queue.loaded = False
    queue.born = born
    return True


cdef QueueWriter *find_writer(
    QueueTable *queues, const uint8_t *topic, int32_t topic_size, int32_t queue_id, FileFailure *failure
) noexcept nogil:
    cdef QueueWriter *queue = find_slot(queues, topic, topic_size, queue_id, failure)
    if queue != NULL and not queue.loaded and not load_queue(queues, queue, failure):
        return NULL
    return queue


# The place of a queue in the table, made if it is new.
cdef QueueWriter *find_slot(
    QueueTable *queues, const uint8_t *topic, int32_t topic_size, int32_t queue_id, FileFailure *failure
) noexcept nogil:
    cdef uint64_t hash = hash_queue(topic, topic_size, queue_id)
    cdef size_t slot
    cdef QueueWriter *queue
    if 2 * queues.count >= queues.capacity and not rebuild(queues, 2 * queues.capacity):
        fail(failure, ENOMEM, queues.path)
        return NULL
    slot = hash & (queues.capacity - 1)
    while queues.slots[slot] != NULL and not is_queue(queues.slots[slot], hash, topic, topic_size, queue_id):
        slot = (slot + 1) & (queues.capacity - 1)
    queue = queues.slots[slot]
    if queue == NULL:
        queue = <QueueWriter *>calloc(1, sizeof(QueueWriter))
        if queue == NULL:
            fail(failure, ENOMEM, queues.path)
            return NULL
        memcpy(queue.topic, topic, topic_size)
        queue.topic_size = topic_size
        queue.queue_id = queue_id
        queue.hash = hash
        queues.slots[slot] = queue
        queues.count += 1
    return queue


# ------------------------------------------------------------------------------------------------------- one queue


cdef bint load_queue(QueueTable *queues, QueueWriter *queue, FileFailure *failure) noexcept nogil:
    cdef QueuePlace place = place_of(queues, queue)
    unmap_queue(queues, queue)
    memset(&queue.ext, 0, sizeof(queue.ext))
    queue.max_physical = -1
    if takes_cradles(queues) and has_no_units(queues.first_files, &place):
        # Not looked for in its directory, which may be locked for long while others are made beside it.
        begin_without_file(&queue.file, &place)
    elif not find_file(&queue.file, &place, failure):
        return False
    if queue.file.file_start < 0:
        queue.loaded = True
        return True
    queue.loaded = load_wrote(queue, &place, failure) and load_end(queue, &place, failure)
    return queue.loaded


# How far the newest file is written. Read and not mapped: a load of many queues costs neither mappings nor faults.
cdef bint load_wrote(QueueWriter *queue, const QueuePlace *place, FileFailure *failure) noexcept nogil:
    cdef char path[PATH_SIZE_MAX]
    cdef uint8_t raw[CHUNK_UNITS_MAX * CQ_UNIT_SIZE]
    cdef int64_t position = 0
    cdef Py_ssize_t wanted = CHUNK_UNITS_MIN, count, whole
    cdef ssize_t got
    cdef int fd = -1
    cdef int failed
    file_path(path, place, queue.file.file_start)
    failed = mq_open_to_read(path, place.file_size, &fd)
    while not failed:
        got = pread(fd, raw, wanted * CQ_UNIT_SIZE, position)
        if got < 0:
            failed = errno
            break
        count = got // CQ_UNIT_SIZE
        whole = count_valid_units(raw, count)
        position += whole * CQ_UNIT_SIZE
        if whole < wanted:              # the first that is not written, or the end of the file
            break
        wanted = CHUNK_UNITS_MAX
    if fd >= 0:
        close(fd)
    if failed:
        return fail(failure, failed, path)
    resume_file(&queue.file, place, position)
    return True


# The end of the newest record that has a unit: from the last unit, which may be the last one of the file before.
cdef bint load_end(QueueWriter *queue, const QueuePlace *place, FileFailure *failure) noexcept nogil:
    cdef char path[PATH_SIZE_MAX]
    cdef uint8_t raw[CQ_UNIT_SIZE]
    cdef int failed = 0
    memset(raw, 0, CQ_UNIT_SIZE)
    if queue.file.wrote > 0:
        file_path(path, place, queue.file.file_start)
        failed = mq_read_bytes(path, queue.file.wrote - CQ_UNIT_SIZE, raw, CQ_UNIT_SIZE)
    elif queue.file.file_start >= place.file_size:
        file_path(path, place, queue.file.file_start - place.file_size)
        failed = mq_read_bytes(path, place.file_size - CQ_UNIT_SIZE, raw, CQ_UNIT_SIZE)
        if failed == ENOENT:
            failed = 0
    if failed:
        return fail(failure, failed, path)
    note_last_unit(queue, raw)
    return True


# What the queue's newest unit says; NULL if there is none.
cdef void note_last_unit(QueueWriter *queue, const uint8_t *raw) noexcept nogil:
    cdef CqUnit unit
    memset(&unit, 0, sizeof(unit))
    if raw != NULL:
        read_unit(raw, &unit)
    queue.bare = unit.record_size <= 0 or unit.record_size == PRE_FILL_SIZE
    queue.known_code = unit.tags_code
    if not queue.bare and unit.physical_offset >= 0:
        queue.max_physical = unit.physical_offset + unit.record_size


cdef inline bint is_mapped(const QueueWriter *queue) noexcept nogil:
    return queue.file.map != NULL and not queue.cradle


cdef void unmap_queue(QueueTable *queues, QueueWriter *queue) noexcept nogil:
    unmap_file(&queue.ext.file, queues.ext_file_size)
    if is_mapped(queue):
        unmap_file(&queue.file, queues.file_size)
        queues.mapped_count -= 1


# Unmap the next queue in turn: with more queues in use than mappings allowed, every choice is about equally bad.
cdef void evict_queue(QueueTable *queues) noexcept nogil:
    cdef size_t _tried
    for _tried in range(queues.capacity):
        queues.clock_hand = (queues.clock_hand + 1) & (queues.capacity - 1)
        if queues.slots[queues.clock_hand] != NULL and is_mapped(queues.slots[queues.clock_hand]):
            unmap_queue(queues, queues.slots[queues.clock_hand])
            return


cdef bint map_queue(QueueTable *queues, QueueWriter *queue, FileFailure *failure) noexcept nogil:
    cdef QueuePlace place = place_of(queues, queue)
    if queues.mapped_count >= queues.mapped_count_max:
        evict_queue(queues)
    if not map_file(&queue.file, &place, failure):
        return False
    queues.mapped_count += 1
    return True


# Make the queue's first file, or the next one, and map it.
cdef bint begin_file(QueueTable *queues, QueueWriter *queue, int64_t file_start, FileFailure *failure) noexcept nogil:
    cdef QueuePlace place = place_of(queues, queue)
    cdef bint is_first = queue.file.file_start < 0
    unmap_queue(queues, queue)
    if not make_file(&queue.file, &place, file_start, failure):
        return False
    queue.bare = is_first
    return map_queue(queues, queue, failure)


# Queues with ext units wait for their files.
cdef inline bint takes_cradles(const QueueTable *queues) noexcept nogil:
    return queues.first_files != NULL and queues.ext_file_size == 0


# The first file, or a cradle until it is there. What begins with pre-fill waits for its file.
cdef bint begin_queue(QueueTable *queues, QueueWriter *queue, int64_t target, FileFailure *failure) noexcept nogil:
    cdef QueuePlace place
    if target == 0 and takes_cradles(queues):
        place = place_of(queues, queue)
        queue.cradle = take_cradle(queues.first_files, &place, queue, &queue.file) + 1
        queue.bare = True
        if queue.cradle:
            return True
    return begin_file(queues, queue, target - target % queues.file_size, failure)


# The queue goes on in its first file, which is waited for.
cdef bint begin_first_file(QueueTable *queues, QueueWriter *queue, FileFailure *failure) noexcept nogil:
    if queues.mapped_count >= queues.mapped_count_max:
        evict_queue(queues)
    if not leave_cradle(queues.first_files, queue.cradle - 1, &queue.file, failure):
        return False
    queue.cradle = 0
    queues.mapped_count += 1
    return True


cdef bint leave_cradles(QueueTable *queues, bint all, FileFailure *failure) noexcept nogil:
    cdef int64_t state
    cdef int32_t number
    queues.first_files.failing = False
    for number in range(CRADLE_CAPACITY):
        state = observe(&queues.first_files.jobs[number].state)
        if state == JOB_DONE or state == JOB_FAILED or (all and state != JOB_NONE):
            if not begin_first_file(queues, <QueueWriter *>queues.first_files.jobs[number].queue, failure):
                return False
    return True


cdef bint resume_cradle(
    QueueTable *queues, const uint8_t *topic, int32_t topic_size, int32_t queue_id, int32_t number, FileFailure *failure
) noexcept nogil:
    cdef QueueWriter *queue = find_slot(queues, topic, topic_size, queue_id, failure)
    cdef QueuePlace place
    if queue == NULL:
        return False
    place = place_of(queues, queue)
    keep_cradle(queues.first_files, number, &place, queue, &queue.file)
    queue.cradle = number + 1
    queue.loaded = True
    queue.max_physical = -1
    note_last_unit(queue, queue.file.map + queue.file.wrote - CQ_UNIT_SIZE if queue.file.wrote > 0 else NULL)
    return True


cdef bint make_room(
    QueueTable *queues, QueueWriter *queue, int64_t target, bint fill, FileFailure *failure
) noexcept nogil:
    if queue.file.file_start < 0:
        if not begin_queue(queues, queue, target, failure):
            return False
    elif not open_end(queues, queue, failure):
        return False
    # Also when a writer died while it pre-filled: the file is bare until it holds a message.
    if (queue.bare and target < queue.file.file_start + queues.file_size) or (
            fill and target - queue_end(queue) <= <int64_t>FILL_UNITS_MAX * CQ_UNIT_SIZE):
        while queue_end(queue) < target:
            if not append_unit(queues, queue, 0, PRE_FILL_SIZE, 0, failure) or not open_end(queues, queue, failure):
                return False
    return True


# See that the newest file is mapped and not full.
cdef bint open_end(QueueTable *queues, QueueWriter *queue, FileFailure *failure) noexcept nogil:
    if queue.cradle and queue.file.wrote >= queue.file.reserved and not begin_first_file(queues, queue, failure):
        return False
    if queue.file.wrote >= queues.file_size:
        return begin_file(queues, queue, queue.file.file_start + queues.file_size, failure)
    return queue.file.map != NULL or map_queue(queues, queue, failure)


cdef bint append_unit(
    QueueTable *queues, QueueWriter *queue, int64_t physical_offset, int32_t record_size, int64_t tags_code,
    FileFailure *failure
) noexcept nogil:
    cdef QueuePlace place
    if queue.file.wrote + CQ_UNIT_SIZE > queue.file.reserved:
        place = place_of(queues, queue)
        if not reserve_file(&queue.file, &place, failure):
            return False
    check(queue.file.map != NULL, "the newest file is mapped before a unit is written")
    check(queue.file.wrote + CQ_UNIT_SIZE <= queue.file.reserved and queue.file.reserved <= queues.file_size,
          "a unit lies within its file, where blocks are reserved")
    check(physical_offset >= 0 and record_size > 0, "a unit that is written says that it is")
    write_unit(queue.file.map + queue.file.wrote, physical_offset, record_size, tags_code)
    queue.file.wrote += CQ_UNIT_SIZE
    if queue.cradle:
        note_cradle(queues.first_files, queue.cradle - 1, queue.file.wrote)
    return True


cdef bint append_ext(
    QueueTable *queues, QueueWriter *queue, int64_t tags_code, int64_t store_timestamp, const uint8_t *bitmap,
    int32_t bitmap_size, int64_t *address, FileFailure *failure
) noexcept nogil:
    cdef QueuePlace place = ext_place(queues, queue)
    return ext_append(&queue.ext, &place, queue.known_code, tags_code, store_timestamp, bitmap, bitmap_size, address,
                      failure)


cdef int64_t sync_queue(QueueTable *queues, QueueWriter *queue, FileFailure *failure) noexcept nogil:
    cdef QueuePlace place
    cdef int64_t ext_synced = 0
    cdef int64_t synced = 0
    if queue.ext.loaded:
        place = ext_place(queues, queue)
        ext_synced = sync_files(&queue.ext.file, &place, failure)
    if ext_synced >= 0 and queue.loaded:
        place = place_of(queues, queue)
        synced = sync_files(&queue.file, &place, failure)
    return -1 if ext_synced < 0 or synced < 0 else ext_synced + synced


cdef size_t queues_unsynced(const QueueTable *queues) noexcept nogil:
    cdef const QueueWriter *queue
    cdef size_t at, count = 0
    for at in range(queues.capacity):
        queue = queues.slots[at]
        if queue != NULL and (is_unsynced(&queue.file) or (queue.ext.loaded and is_unsynced(&queue.ext.file))):
            count += 1
    return count


cdef int64_t queue_was_synced(QueueTable *queues, QueueWriter *queue) noexcept nogil:
    cdef int64_t synced = was_synced(&queue.file, queues.file_size)
    return synced + (was_synced(&queue.ext.file, queues.ext_file_size) if queue.ext.loaded else 0)
