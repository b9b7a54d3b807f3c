# Files whose length is known: opened and mapped only if they have it (EUCLEAN). Every int is 0 or an errno.
from libc.stdint cimport int64_t, uint8_t


cdef extern from "fixed_file.h" nogil:
    int mq_open_to_read(const char *path, int64_t size, int *out) noexcept
    int mq_map_open(int fd, int64_t size, bint writable, uint8_t **out) noexcept
    int mq_map_file(const char *path, int64_t size, bint writable, uint8_t **out) noexcept
    void mq_unmap_file(uint8_t *map, int64_t size) noexcept
