/* Files whose length is known before they are looked at: one of any other is damaged, or another broker's. */
#ifndef MQCORE_FIXED_FILE_H
#define MQCORE_FIXED_FILE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* All return 0 or an errno; EUCLEAN: it is no plain file of *size* bytes. */
static inline int mq_check_length(int fd, int64_t size) {
    struct stat status;
    if (fstat(fd, &status) < 0) return errno;
    return S_ISREG(status.st_mode) && status.st_size == size ? 0 : EUCLEAN;
}

/* Open it to be read in pieces. */
static inline int mq_open_to_read(const char *path, int64_t size, int *out) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return errno;
    int failed = mq_check_length(fd, size);
    if (failed) close(fd);
    else *out = fd;
    return failed;
}

/* Map the whole of an open file. A file that is shorter than its mapping is a SIGBUS waiting to happen, so it must have
   that length. */
static inline int mq_map_open(int fd, int64_t size, int writable, uint8_t **out) {
    int failed = mq_check_length(fd, size);
    if (failed) return failed;
    void *map = mmap(NULL, (size_t)size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return errno;
    *out = map;
    return 0;
}

/* The same of the file at *path*. */
static inline int mq_map_file(const char *path, int64_t size, int writable, uint8_t **out) {
    int fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return errno;
    int failed = mq_map_open(fd, size, writable, out);
    close(fd);
    return failed;
}

static inline void mq_unmap_file(uint8_t *map, int64_t size) {
    munmap(map, (size_t)size);
}

#endif
