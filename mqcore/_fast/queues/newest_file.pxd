# The newest of the files that hold one queue's units, or its ext units, while it is being written. One thread.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore._fast.base.store_file cimport FileFailure


cdef struct QueuePlace:                 # where the files of a queue lie
    const char *root                    # the directory consumequeue or consumequeue_ext
    const uint8_t *topic
    int32_t topic_size
    int32_t queue_id
    int64_t file_size


cdef struct NewestFile:
    uint8_t *map                        # NULL = not mapped
    int64_t file_start                  # bytes in the queue's stream; -1 = there is no file
    int64_t wrote                       # position in the file
    int64_t reserved                    # disk blocks exist up to this position
    int64_t flushed                     # synced up to here, bytes in the queue's stream
    bint named                          # so are the file's name and those of its directories


cdef void file_path(char *out, const QueuePlace *place, int64_t file_start) noexcept nogil

# It is known that there is no file.
cdef void begin_without_file(NewestFile *file, const QueuePlace *place) noexcept nogil
# Look for the newest file; what it holds is for the caller to find out, and to say by resume_file.
cdef bint find_file(NewestFile *file, const QueuePlace *place, FileFailure *failure) noexcept nogil

# Go on behind *wrote*, in a file that somebody else may have made.
cdef void resume_file(NewestFile *file, const QueuePlace *place, int64_t wrote) noexcept nogil

cdef bint map_file(NewestFile *file, const QueuePlace *place, FileFailure *failure) noexcept nogil

cdef void unmap_file(NewestFile *file, int64_t file_size) noexcept nogil

# Make the file that begins at *file_start*, after which it is the newest one. It is not mapped yet, nor durable: nobody
# waits for the disk here, and who claims that its units are durable syncs its name as well.
cdef bint make_file(NewestFile *file, const QueuePlace *place, int64_t file_start, FileFailure *failure) noexcept nogil

# Reserve disk blocks for what is appended next; for when it would end behind *reserved*.
cdef bint reserve_file(NewestFile *file, const QueuePlace *place, FileFailure *failure) noexcept nogil

# Sync what was appended since the last time, and names that are new; returns files synced, -1 on failure.
cdef int64_t sync_files(NewestFile *file, const QueuePlace *place, FileFailure *failure) noexcept nogil

cdef inline bint is_unsynced(const NewestFile *file) noexcept nogil:
    return file.file_start >= 0 and (not file.named or file.flushed < file.file_start + file.wrote)


# All of it is durable, by other means; returns how many files had something to sync.
cdef inline int64_t was_synced(NewestFile *file, int64_t file_size) noexcept nogil:
    cdef int64_t end = file.file_start + file.wrote
    cdef int64_t files = 0
    if file.file_start < 0:
        return 0
    if file.flushed < end:
        files = (end - 1) // file_size - file.flushed // file_size + 1
    file.flushed = end
    file.named = True
    return files


# Note an error; False.
cdef bint fail(FileFailure *failure, int error_number, const char *path) noexcept nogil
