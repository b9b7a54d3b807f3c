"""The first files of new queues, made by a thread of its own while their units lie in cradles."""

from libc.errno cimport EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy, memset

from mqcore._fast.base.atomics cimport claim_full, observe, peek, publish, wake_fd
from mqcore._fast.base.checks cimport check
from mqcore._fast.base.layout cimport CQ_UNIT_SIZE, CRADLE_CAPACITY
from mqcore._fast.base.store_file cimport close, read
from mqcore._fast.queues.newest_file cimport file_path, make_file, map_file, reserve_file, unmap_file
from mqcore._fast.segment.boards cimport ROW_NONE, make_queue, make_topic
from mqcore._fast.segment.cradle cimport CRADLE_BYTES, begin_cradle, cradle_units, end_cradle, is_cradle

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int initial, int flags)
    int EFD_CLOEXEC

cdef extern from "<time.h>" nogil:
    struct timespec:
        int64_t tv_sec
        int64_t tv_nsec
    int nanosleep(const timespec *wanted, timespec *left)

cdef enum:
    LOOK_NS = 50000                 # between two looks at a job that the other thread has taken
    # A new topic has its messages read before the maker takes processors and locks of directories from those who do.
    LEISURE_NS = 10_000_000
    # Then files are made one at a time: a kernel may let nobody on a processor where one is being made.
    BREATH_NS = 500_000
    LEISURE_MAX = 256               # jobs that may wait for that


cdef bint first_files_open(FirstFiles *files, Shared *shared, int owner_wake) noexcept nogil:
    cdef int32_t number
    memset(files, 0, sizeof(FirstFiles))
    files.shared = shared
    files.owner_wake = owner_wake
    for number in range(CRADLE_CAPACITY - 1, -1, -1):
        if not is_cradle(shared, number):
            files.free[files.free_count] = number
            files.free_count += 1
    files.maker_wake = eventfd(0, EFD_CLOEXEC)
    return files.maker_wake >= 0


cdef void first_files_close(FirstFiles *files) noexcept nogil:
    cdef int32_t number
    for number in range(CRADLE_CAPACITY):
        if files.jobs[number].state == JOB_DONE:
            unmap_file(&files.jobs[number].file, files.jobs[number].place.file_size)
            files.jobs[number].state = JOB_NONE
    if files.maker_wake >= 0:
        close(files.maker_wake)
    files.maker_wake = -1


# ---------------------------------------------------------------------------------------------------------- the owner


cdef void begin_job(FirstFiles *files, int32_t number, const QueuePlace *place, void *queue) noexcept nogil:
    cdef FirstFile *job = &files.jobs[number]
    check(job.state == JOB_NONE, "a free cradle has no job")
    job.place = place[0]
    job.queue = queue
    job.error = 0
    memset(&job.file, 0, sizeof(job.file))
    job.file.file_start = -1
    if files.waiting_end - observe(&files.waiting_begin) < CRADLE_CAPACITY:
        publish(&job.state, JOB_WAITING)
        files.waiting[files.waiting_end % CRADLE_CAPACITY] = number
        publish(&files.waiting_end, files.waiting_end + 1)
    else:
        # The ring is full of jobs that were taken back: one for the owner.
        publish(&job.state, JOB_FAILED)
        files.failing = True


cdef void lie_in_cradle(FirstFiles *files, int32_t number, const QueuePlace *place, NewestFile *file) noexcept nogil:
    memset(file, 0, sizeof(file[0]))
    file.map = cradle_units(files.shared, number)
    # Whole units, should a file be shorter than a cradle.
    file.reserved = min(<int64_t>CRADLE_BYTES, place.file_size)


cdef int32_t row_of(FirstFiles *files, const QueuePlace *place) noexcept nogil:
    cdef int32_t topic_row = make_topic(files.shared, place.topic, place.topic_size)
    return ROW_NONE if topic_row == ROW_NONE else make_queue(files.shared, topic_row, place.queue_id)


cdef bint has_no_units(FirstFiles *files, const QueuePlace *place) noexcept nogil:
    cdef int32_t queue_row = row_of(files, place)
    return queue_row != ROW_NONE and observe(&files.shared.queues[queue_row].max_offset) == 0


cdef int32_t take_cradle(FirstFiles *files, const QueuePlace *place, void *queue, NewestFile *file) noexcept nogil:
    cdef int32_t number, queue_row
    if files.free_count == 0:
        return -1
    queue_row = row_of(files, place)
    if queue_row == ROW_NONE:
        return -1
    files.free_count -= 1
    number = files.free[files.free_count]
    begin_cradle(files.shared, number, queue_row)
    lie_in_cradle(files, number, place, file)
    begin_job(files, number, place, queue)
    return number


cdef void keep_cradle(FirstFiles *files, int32_t number, const QueuePlace *place, void *queue,
                      NewestFile *file) noexcept nogil:
    lie_in_cradle(files, number, place, file)
    file.wrote = peek(&files.shared.cradles[number].count) * CQ_UNIT_SIZE
    begin_job(files, number, place, queue)


cdef void note_cradle(FirstFiles *files, int32_t number, int64_t wrote) noexcept nogil:
    publish(&files.shared.cradles[number].count, wrote // CQ_UNIT_SIZE)


cdef void free_cradle(FirstFiles *files, int32_t number) noexcept nogil:
    end_cradle(files.shared, number)
    files.jobs[number].state = JOB_NONE
    files.free[files.free_count] = number
    files.free_count += 1


cdef void pause(int64_t nanoseconds) noexcept nogil:
    cdef timespec wanted
    wanted.tv_sec = 0
    wanted.tv_nsec = nanoseconds
    nanosleep(&wanted, NULL)


# See that the maker has nothing to do with the job, now or later; the state it has then.
cdef int64_t settle_job(FirstFiles *files, FirstFile *job) noexcept nogil:
    if claim_full(&job.state, JOB_WAITING, JOB_TAKEN):
        return JOB_TAKEN
    while observe(&job.state) == JOB_TAKEN:
        pause(LOOK_NS)
    return job.state


cdef bint leave_cradle(FirstFiles *files, int32_t number, NewestFile *file, FileFailure *failure) noexcept nogil:
    cdef FirstFile *job = &files.jobs[number]
    cdef int64_t state = settle_job(files, job)
    if state != JOB_DONE:
        make_first_file(files, number)
    # What has come since the maker was there.
    if job.error == 0:
        copy_units(files, number, file.wrote)
    if job.error != 0:
        file_path(failure.path, &job.place, 0)
        failure.error_number = job.error
        unmap_file(&job.file, job.place.file_size)
        files.failing = True
        job.state = JOB_FAILED
        return False
    file[0] = job.file
    free_cradle(files, number)
    return True


cdef void drop_cradle(FirstFiles *files, int32_t number) noexcept nogil:
    cdef FirstFile *job = &files.jobs[number]
    settle_job(files, job)
    unmap_file(&job.file, job.place.file_size)
    free_cradle(files, number)


cdef void tell_maker(FirstFiles *files) noexcept nogil:
    if files.told_end != files.waiting_end:
        files.told_end = files.waiting_end
        wake_fd(files.maker_wake)


cdef bint has_finished(FirstFiles *files) noexcept nogil:
    cdef int64_t finished = observe(&files.finished)
    cdef bint is_news = finished != files.seen or files.failing
    files.seen = finished
    return is_news


# ------------------------------------------------------------------------------------------------- whoever has the job


# Copy units into the file until it has all up to *end*, bytes; job.error says if that failed.
cdef void copy_units(FirstFiles *files, int32_t number, int64_t end) noexcept nogil:
    cdef FirstFile *job = &files.jobs[number]
    cdef FileFailure failure
    cdef int64_t size
    while job.file.wrote < end:
        if job.file.reserved <= job.file.wrote and not reserve_file(&job.file, &job.place, &failure):
            job.error = failure.error_number
            return
        size = min(job.file.reserved, end) - job.file.wrote
        memcpy(job.file.map + job.file.wrote, cradle_units(files.shared, number) + job.file.wrote, size)
        job.file.wrote += size


# Make the file, map it, and copy the units that are whole.
cdef void make_first_file(FirstFiles *files, int32_t number) noexcept nogil:
    cdef FirstFile *job = &files.jobs[number]
    cdef FileFailure failure
    job.error = 0
    job.file.file_start = -1
    if not make_file(&job.file, &job.place, 0, &failure) or not map_file(&job.file, &job.place, &failure):
        job.error = failure.error_number
        return
    copy_units(files, number, observe(&files.shared.cradles[number].count) * CQ_UNIT_SIZE)


# ---------------------------------------------------------------------------------------------------------- the maker


cdef void rest_maker(FirstFiles *files, int64_t nanoseconds) noexcept nogil:
    if observe(&files.waiting_end) - files.waiting_begin <= LEISURE_MAX and observe(&files.stopping) == 0:
        pause(nanoseconds)


cdef void make_first_files(FirstFiles *files) noexcept nogil:
    cdef uint64_t count
    cdef int32_t number
    cdef bint is_told = True
    cdef FirstFile *job
    while observe(&files.stopping) == 0:
        while files.waiting_begin < observe(&files.waiting_end) and observe(&files.stopping) == 0:
            number = files.waiting[files.waiting_begin % CRADLE_CAPACITY]
            publish(&files.waiting_begin, files.waiting_begin + 1)
            job = &files.jobs[number]
            if not claim_full(&job.state, JOB_WAITING, JOB_TAKEN):
                continue
            make_first_file(files, number)
            publish(&job.state, JOB_DONE if job.error == 0 else JOB_FAILED)
            publish(&files.finished, files.finished + 1)
            is_told = False
            rest_maker(files, BREATH_NS)
        if not is_told:
            wake_fd(files.owner_wake)
            is_told = True
        if read(files.maker_wake, &count, sizeof(count)) < 0 and errno != EINTR:
            return
        rest_maker(files, LEISURE_NS)


cdef void stop_maker(FirstFiles *files) noexcept nogil:
    publish(&files.stopping, 1)
    wake_fd(files.maker_wake)
