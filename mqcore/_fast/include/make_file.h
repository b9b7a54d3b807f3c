/* Makes a file of full length, with its blocks reserved, that appears under its name only when it is complete. */
#ifndef MQCORE_MAKE_FILE_H
#define MQCORE_MAKE_FILE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* A file of another length makes Apache's broker refuse the directory, so a half-made one must never be seen: it is
 * made without a name and linked. Where the file system cannot do that, it is made beside the directory and renamed. */
static inline int make_sized_file(const char *path, const char *directory, int64_t size) {
    char from[64], side[4200];
    int named = 0;
    int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
    if (fd < 0) {
        if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL) return errno;
        snprintf(side, sizeof side, "%s.making.%d", directory, (int)getpid());
        /* A leftover may be a second name of a live file: take the name away, never the content. */
        unlink(side);
        fd = open(side, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644);
        if (fd < 0) return errno;
        named = 1;
    }
    int failed = fallocate(fd, 0, 0, size) < 0 ? errno : 0;
    if (failed == EOPNOTSUPP) failed = ftruncate(fd, size) < 0 ? errno : 0;
    if (!failed) {
        if (named) {
            if (link(side, path) < 0 && errno != EEXIST) failed = errno;
        } else {
            snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
            if (linkat(AT_FDCWD, from, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0 && errno != EEXIST) failed = errno;
        }
    }
    if (named) unlink(side);
    close(fd);
    return failed;
}

#endif
