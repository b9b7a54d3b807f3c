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

/* A file that has no name yet, or one beside its directory where the file system cannot do without. */
typedef struct {
    int fd;
    int named;
    char side[4200];
} mq_nameless;

static inline void mq_drop_file(const mq_nameless *file) {
    if (file->named) unlink(file->side);
    close(file->fd);
}

/* A file of another length makes Apache's broker refuse the directory, so a half-made one must never be seen: it is
 * made without a name and linked. Where the file system cannot do that, it is made beside the directory and linked.
 * 0, and the file is to be dropped once it is named, or errno. */
static inline int mq_reserve_nameless(const char *directory, int64_t size, mq_nameless *out) {
    out->named = 0;
    out->fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
    if (out->fd < 0) {
        if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL) return errno;
        snprintf(out->side, sizeof out->side, "%s.making.%d", directory, (int)getpid());
        /* A leftover may be a second name of a live file: take the name away, never the content. */
        unlink(out->side);
        out->fd = open(out->side, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644);
        if (out->fd < 0) return errno;
        out->named = 1;
    }
    int failed = fallocate(out->fd, 0, 0, size) < 0 ? errno : 0;
    if (failed == EOPNOTSUPP) failed = ftruncate(out->fd, size) < 0 ? errno : 0;
    if (failed) mq_drop_file(out);
    return failed;
}

/* Give it its name; 0, or errno, EEXIST if there is one of that name. */
static inline int mq_name_file(const mq_nameless *file, const char *path) {
    char from[64];
    if (file->named) return link(file->side, path) < 0 ? errno : 0;
    snprintf(from, sizeof from, "/proc/self/fd/%d", file->fd);
    return linkat(AT_FDCWD, from, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0 ? errno : 0;
}

#endif
