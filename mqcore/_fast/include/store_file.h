/* Files of consume queues and index, below Python: all return 0 or an errno.

   A file has its full length from the first moment on, because a broker refuses a directory with a file of any other;
   it is a hole whose blocks are reserved in steps ahead of the writer, so that a full disk is ENOSPC and never a SIGBUS,
   and so that a queue of ten messages does not hold 6 MB of disk. */
#ifndef MQCORE_STORE_FILE_H
#define MQCORE_STORE_FILE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int mq_sync_directory(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    int failed = fsync(fd) < 0 ? errno : 0;
    close(fd);
    return failed;
}

/* Make the directory *path*; it is durable when its parent has been synced. One that is there is success. */
static int mq_make_directory(const char *path) {
    return mkdir(path, 0755) < 0 && errno != EEXIST ? errno : 0;
}

/* The largest number that a file of *directory* has for a name, all digits; ENOENT when there is none. */
static int mq_newest_file(const char *directory, int64_t *number) {
    DIR *listing = opendir(directory);
    if (listing == NULL) return errno;
    int64_t newest = -1;
    const struct dirent *entry;
    while ((entry = readdir(listing)) != NULL) {
        size_t length = strlen(entry->d_name);
        if (length == 0 || length > 20 || strspn(entry->d_name, "0123456789") != length) continue;
        errno = 0;
        long long value = strtoll(entry->d_name, NULL, 10);
        if (errno == 0 && value > newest) newest = value;
    }
    closedir(listing);
    if (newest < 0) return ENOENT;
    *number = newest;
    return 0;
}

/* Where one page is missing, bring in that page alone. Else the first unit of a queue brings in all that the device
   reads ahead, 8 MiB here: 1.7 ms and a file's length of memory for each queue. */
static void mq_expect_single_pages(uint8_t *map, int64_t size) {
    madvise(map, (size_t)size, MADV_RANDOM);
}

static int mq_reserve_blocks(int fd, int64_t from, int64_t size) {
    if (size <= 0 || fallocate(fd, 0, from, size) == 0) return 0;
    return errno == EOPNOTSUPP ? 0 : errno;    /* a file system without reservation: nothing better is to be had */
}

/* Reserve the blocks of [from, from + size), which lie within the file. */
static int mq_reserve_file(const char *path, int64_t from, int64_t size) {
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return errno;
    int failed = mq_reserve_blocks(fd, from, size);
    close(fd);
    return failed;
}

static int mq_sync_file(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return errno;
    int failed = fdatasync(fd) < 0 ? errno : 0;
    close(fd);
    return failed;
}

static int mq_sync_map(uint8_t *map, int64_t size) {
    return msync(map, (size_t)size, MS_SYNC) < 0 ? errno : 0;
}

static int mq_fill_new_file(
    int fd, int64_t size, int64_t reserve, const uint8_t *head, size_t head_size, int durable
) {
    if (ftruncate(fd, size) < 0) return errno;
    int failed = mq_reserve_blocks(fd, 0, reserve);
    if (failed) return failed;
    if (head_size > 0) {
        ssize_t wrote = pwrite(fd, head, head_size, 0);
        if (wrote != (ssize_t)head_size) return wrote < 0 ? errno : EIO;
    }
    return durable && fdatasync(fd) < 0 ? errno : 0;
}

/* Make *path* in *directory*: *size* bytes, the first *reserve* with blocks, starting with *head*, and under its name only
   when it is complete: it is made beside the directory, where brokers look for nothing, and linked from there. EEXIST:
   there is one. With *durable* all of it is on disk. Without, nothing is, and a power cut may take it; that the length
   never comes behind the name is then up to the journal, which has them in this order. */
static int mq_make_file(
    const char *path, const char *directory, int64_t size, int64_t reserve, const uint8_t *head, size_t head_size,
    int durable
) {
    char making[4352];
    snprintf(making, sizeof making, "%s.making", directory);
    unlink(making);     /* one that a crash has left may be the second name of a file in use: never open it */
    int fd = open(making, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) return errno;
    int failed = mq_fill_new_file(fd, size, reserve, head, head_size, durable);
    if (!failed && link(making, path) < 0) failed = errno;
    close(fd);
    unlink(making);
    return failed || !durable ? failed : mq_sync_directory(directory);
}

/* *size* bytes at *position* of the file at *path*. */
static int mq_read_bytes(const char *path, int64_t position, uint8_t *out, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return errno;
    ssize_t got = pread(fd, out, size, position);
    int failed = got < 0 ? errno : got != (ssize_t)size ? EUCLEAN : 0;
    close(fd);
    return failed;
}

/* Local time now as the number yyyyMMddHHmmssSSS, which names an index file. */
static int64_t mq_index_file_name(void) {
    struct timespec now;
    struct tm local;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    int64_t name = local.tm_year + 1900;
    name = name * 100 + local.tm_mon + 1;
    name = name * 100 + local.tm_mday;
    name = name * 100 + local.tm_hour;
    name = name * 100 + local.tm_min;
    name = name * 100 + local.tm_sec;
    return name * 1000 + now.tv_nsec / 1000000;
}

#endif
