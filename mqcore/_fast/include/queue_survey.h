/* How far the files of one consume queue are written, as a clean stop leaves them: no gaps, nothing torn.

   A store may have hundreds of thousands of queues, and a start asks for all of them: some ten system calls for each, no
   mapping, and of a small queue one page read. Whatever is not as expected is for somebody who looks closely. */
#ifndef MQCORE_QUEUE_SURVEY_H
#define MQCORE_QUEUE_SURVEY_H

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
#include <sys/stat.h>
#include <unistd.h>

#include "big_endian.h"

enum { MQ_UNIT_SIZE = 20, MQ_PAGE_UNITS = 204, MQ_NAME_DIGITS = 20, MQ_SURVEYED_FILES = 3, MQ_QUEUE_ID_DIGITS_MAX = 10 };

typedef struct {
    int32_t queue_id;
    int32_t odd;                /* look closely: nothing else that was found counts */
} mq_queue_found;

typedef struct {
    mq_queue_found queue;
    int64_t min_offset;         /* units */
    int64_t max_offset;
    int64_t max_physical;       /* bytes; -1 without a message */
} mq_queue_bounds;

typedef struct {
    int64_t physical_offset;
    int32_t record_size;
} mq_unit;

static inline mq_unit mq_unit_of(const uint8_t *at) {
    mq_unit unit = {mq_load_i64(at), mq_load_i32(at + 8)};
    return unit;
}

static inline int mq_is_written(mq_unit unit) {
    return unit.physical_offset >= 0 && unit.record_size > 0;
}

/* Units [first, first + count) of a file into *out*; 0 unless all could be read. */
static int mq_read_units(int fd, int64_t first, int64_t count, uint8_t *out) {
    return pread(fd, out, (size_t)(count * MQ_UNIT_SIZE), first * MQ_UNIT_SIZE) == count * MQ_UNIT_SIZE;
}

/* How many units of a file are written; -1 if it cannot be read. The first page is read through; behind it the end is
   looked for by halves, a page at a time. */
static int64_t mq_count_units(int fd, int64_t per_file) {
    uint8_t page[MQ_PAGE_UNITS * MQ_UNIT_SIZE];
    int64_t low = 0, high = (per_file + MQ_PAGE_UNITS - 1) / MQ_PAGE_UNITS, middle = 0;
    while (low < high) {                /* the pages before low are full, the end is before the one at high */
        int64_t first = middle * MQ_PAGE_UNITS, at = 0;
        int64_t count = per_file - first < MQ_PAGE_UNITS ? per_file - first : MQ_PAGE_UNITS;
        if (!mq_read_units(fd, first, count, page)) return -1;
        while (at < count && mq_is_written(mq_unit_of(page + at * MQ_UNIT_SIZE))) at++;
        if (at > 0 && at < count) return first + at;
        if (at == count) low = middle + 1;
        else high = middle;
        middle = (low + high) / 2;
    }
    return low * MQ_PAGE_UNITS < per_file ? low * MQ_PAGE_UNITS : per_file;
}

/* The end of the newest record that units [0, count) name into *end*; 0 if the file cannot be read. */
static int mq_newest_record_end(int fd, int64_t count, int32_t pre_fill_size, int64_t *end) {
    uint8_t page[MQ_PAGE_UNITS * MQ_UNIT_SIZE];
    while (count > 0) {
        int64_t step = count < MQ_PAGE_UNITS ? count : MQ_PAGE_UNITS;
        if (!mq_read_units(fd, count - step, step, page)) return 0;
        for (int64_t at = step - 1; at >= 0; at--) {
            mq_unit unit = mq_unit_of(page + at * MQ_UNIT_SIZE);
            if (unit.record_size == pre_fill_size) continue;
            if (unit.physical_offset + unit.record_size > *end) *end = unit.physical_offset + unit.record_size;
            return 1;
        }
        count -= step;
    }
    return 1;
}

/* The first of units [0, count) whose record is still there: its index, *count* if there is none, -1 if only a close look
   can tell. Offsets rise, so it is looked for by halves; a unit that only holds a place tells nothing. */
static int64_t mq_first_kept(int fd, int64_t count, int32_t pre_fill_size, int64_t commit_log_min) {
    uint8_t page[MQ_PAGE_UNITS * MQ_UNIT_SIZE];
    int64_t low = 0, high = (count + MQ_PAGE_UNITS - 1) / MQ_PAGE_UNITS, middle = 0;
    while (low < high) {                /* nothing before the page low is kept, something before the page high is */
        int64_t first = middle * MQ_PAGE_UNITS;
        int64_t size = count - first < MQ_PAGE_UNITS ? count - first : MQ_PAGE_UNITS;
        if (!mq_read_units(fd, first, size, page)) return -1;
        int64_t kept = 0;
        int seen = 0;
        for (; kept < size; kept++) {
            mq_unit unit = mq_unit_of(page + kept * MQ_UNIT_SIZE);
            if (unit.record_size == pre_fill_size) continue;
            if (unit.physical_offset >= commit_log_min) break;
            seen = 1;
        }
        if (kept < size && (seen || middle == low)) return first + kept;
        if (kept == size && !seen && middle > low) return -1;
        if (kept == size) low = middle + 1;
        else high = middle;
        middle = (low + high) / 2;
    }
    if (low * MQ_PAGE_UNITS >= count) return count;
    /* The page at low was seen before as one that begins with what is kept. */
    if (!mq_read_units(fd, low * MQ_PAGE_UNITS, 1, page)) return -1;
    return mq_unit_of(page).record_size == pre_fill_size ? -1 : low * MQ_PAGE_UNITS;
}

static int mq_open_unit_file(int directory, int64_t start) {
    char name[32];
    snprintf(name, sizeof name, "%020lld", (long long)start);
    return openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
}

static int mq_is_unit_file(int directory, const char *name, int64_t file_size) {
    struct stat status;
    return fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode)
        && status.st_size == file_size;
}

/* Where the first and the last file of the queue's directory begin, -1 for none; 0 unless all have the names that they
   should, and, if *sizes* are looked at, too, the length. */
static int mq_list_unit_files(int directory, int64_t file_size, int sizes, int64_t *first, int64_t *last) {
    int64_t files = 0;
    int plain = 1, listed = dup(directory);
    struct dirent *entry;
    DIR *listing = listed < 0 ? NULL : fdopendir(listed);
    *first = *last = -1;
    if (listing == NULL) {
        if (listed >= 0) close(listed);
        return 0;
    }
    while (plain && (entry = readdir(listing)) != NULL) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
        plain = strlen(name) == MQ_NAME_DIGITS && strspn(name, "0123456789") == MQ_NAME_DIGITS && name[0] == '0'
            && (!sizes || mq_is_unit_file(directory, name, file_size));
        if (!plain) break;
        int64_t start = strtoll(name, NULL, 10);
        plain = start >= 0 && start % file_size == 0;
        if (*first < 0 || start < *first) *first = start;
        if (start > *last) *last = start;
        files++;
    }
    closedir(listing);
    return plain && (files == 0 || (*last - *first) / file_size + 1 == files);
}

typedef struct {
    int64_t file_size;
    int64_t commit_log_min;
    int32_t pre_fill_size;
} mq_survey;

static int mq_survey_queue(int directory, const void *options, void *result) {
    const mq_survey *survey = options;
    mq_queue_bounds *out = result;
    const int64_t file_size = survey->file_size, per_file = file_size / MQ_UNIT_SIZE;
    int64_t first, last, end = 0, kept = -1;
    int plain = mq_list_unit_files(directory, file_size, 1, &first, &last);
    out->max_physical = -1;
    for (int64_t start = first; plain && first >= 0 && start <= last; start += file_size) {
        int is_newest = start == last, is_counted = start + MQ_SURVEYED_FILES * file_size > last;
        if (!is_counted && kept >= 0) continue;
        int fd = mq_open_unit_file(directory, start);
        if (fd < 0) {
            plain = 0;
            break;
        }
        int64_t count = is_counted ? mq_count_units(fd, per_file) : per_file;
        plain = count == per_file || (is_newest && count >= 0);
        end = start / MQ_UNIT_SIZE + count;
        if (plain && is_counted) plain = mq_newest_record_end(fd, count, survey->pre_fill_size, &out->max_physical);
        if (plain && kept < 0) {
            int64_t found = mq_first_kept(fd, count, survey->pre_fill_size, survey->commit_log_min);
            plain = found >= 0;
            if (found < count) kept = start / MQ_UNIT_SIZE + found;
        }
        close(fd);
    }
    out->max_offset = end;
    out->min_offset = kept >= 0 ? kept : end;
    return plain;
}

/* A queue's number as the name of a directory; -1 for what is none. */
static int64_t mq_queue_id_of(const char *name) {
    size_t length = strlen(name);
    if (length == 0 || length > MQ_QUEUE_ID_DIGITS_MAX || strspn(name, "0123456789") != length) return -1;
    if (name[0] == '0' && length > 1) return -1;
    int64_t value = strtoll(name, NULL, 10);
    return value <= INT32_MAX ? value : -1;
}

/* What is found of a queue, whose directory stays open, into *result*, which begins with mq_queue_found; 0 if only a close
   look can tell. */
typedef int (*mq_look)(int directory, const void *options, void *result);

/* Look at every queue of the topic's directory. *out* gets *count* results of *size* in memory to be freed; 0 or an errno. */
static int mq_each_queue(
    const char *path, mq_look look, const void *options, size_t size, void **out, int64_t *count
) {
    int64_t capacity = 0;
    *out = NULL;
    *count = 0;
    DIR *listing = opendir(path);
    if (listing == NULL) return errno;
    struct dirent *entry;
    while ((entry = readdir(listing)) != NULL) {
        int64_t queue_id = mq_queue_id_of(entry->d_name);
        if (queue_id < 0) continue;
        if (*count == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            void *grown = realloc(*out, (size_t)capacity * size);
            if (grown == NULL) {
                closedir(listing);
                return ENOMEM;
            }
            *out = grown;
        }
        mq_queue_found *found = (void *)((char *)*out + (size_t)(*count)++ * size);
        memset(found, 0, size);
        found->queue_id = (int32_t)queue_id;
        int directory = openat(dirfd(listing), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        found->odd = directory < 0 || !look(directory, options, found);
        if (directory >= 0) close(directory);
    }
    closedir(listing);
    return 0;
}

static int mq_survey_topic(const char *path, const mq_survey *survey, mq_queue_bounds **out, int64_t *count) {
    return mq_each_queue(path, mq_survey_queue, survey, sizeof **out, (void **)out, count);
}

#endif
