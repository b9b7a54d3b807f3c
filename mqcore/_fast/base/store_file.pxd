# Files of consume queues and index, below Python: every function returns 0 or an errno. See include/store_file.h.
from libc.stdint cimport int64_t, uint8_t


cdef enum:
    DIRECTORY_SIZE_MAX = 1024           # of consumequeue and index, with the final 0
    PATH_SIZE_MAX = 1280                # the same with topic, queue id and file name


cdef struct FileFailure:                # what went wrong last, and where
    int error_number
    char path[PATH_SIZE_MAX]


cdef extern from "store_file.h" nogil:
    int mq_make_directory(const char *path) noexcept
    int mq_sync_directory(const char *path) noexcept
    int mq_newest_file(const char *directory, int64_t *number) noexcept
    void mq_expect_single_pages(uint8_t *map, int64_t size) noexcept
    int mq_reserve_file(const char *path, int64_t start, int64_t size) noexcept
    int mq_sync_file(const char *path) noexcept
    int mq_sync_map(uint8_t *map, int64_t size) noexcept
    int mq_make_file(const char *path, const char *directory, int64_t size, int64_t reserve, const uint8_t *head,
                     size_t head_size, bint durable) noexcept
    int mq_read_bytes(const char *path, int64_t position, uint8_t *out, size_t size) noexcept
    int64_t mq_index_file_name() noexcept


cdef extern from "<unistd.h>" nogil:
    ssize_t read(int fd, void *out, size_t size)
    ssize_t pread(int fd, void *out, size_t size, int64_t position)
    int close(int fd)


cdef extern from "<errno.h>" nogil:
    int EUCLEAN
