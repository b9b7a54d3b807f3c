/* Taking the units of a tail of the log out of consume queues after a crash, where that is plain to see.

   A store may have hundreds of thousands of queues, and recovery has to look at each. Here it is some ten system calls for a
   queue; whatever is not plain is for somebody who looks closely (ConsumeQueue.truncate, which says what is right), and
   who finds nothing half done: what was made zero here would have been there too. */
#ifndef MQCORE_QUEUE_CUT_H
#define MQCORE_QUEUE_CUT_H

#include "queue_survey.h"

enum { MQ_CUT_BYTES = 65520, MQ_RUN_MAX = 1 << 20 };      /* whole units; a longer run of data is not for us */

typedef struct {
    mq_queue_found queue;
    int32_t cut;                /* bytes were made zero, and have to be synced */
    int32_t last_size;          /* the last unit that stays; 0 if none does */
    int64_t last_physical;
    int64_t file_start;         /* of the newest file, bytes in the queue's stream; -1 without files */
} mq_queue_cut;

/* How many units stand before the first that is not written or whose record starts at *end* or later; -1 if the file cannot
   be read. *last* is the unit before that one. */
static int64_t mq_count_below(int fd, int64_t per_file, int32_t pre_fill_size, int64_t end, mq_unit *last) {
    uint8_t raw[MQ_CUT_BYTES];
    int64_t count = 0, wanted = MQ_PAGE_UNITS;
    while (count < per_file) {
        if (wanted > per_file - count) wanted = per_file - count;
        if (!mq_read_units(fd, count, wanted, raw)) return -1;
        for (int64_t at = 0; at < wanted; at++) {
            mq_unit unit = mq_unit_of(raw + at * MQ_UNIT_SIZE);
            if (!mq_is_written(unit) || (unit.physical_offset >= end && unit.record_size != pre_fill_size)) return count + at;
            *last = unit;
        }
        count += wanted;
        wanted = MQ_CUT_BYTES / MQ_UNIT_SIZE;
    }
    return count;
}

/* Make every byte from *position* on zero, the first bytes first; whether there was something to write, -1 on failure. */
static int mq_zero_from(int fd, int64_t position) {
    static const uint8_t zeros[MQ_CUT_BYTES];
    uint8_t raw[MQ_CUT_BYTES];
    int wrote = 0;
    while ((position = lseek(fd, position, SEEK_DATA)) >= 0) {
        int64_t run = lseek(fd, position, SEEK_HOLE) - position;
        if (run <= 0 || run > MQ_RUN_MAX) return -1;
        for (ssize_t size; run > 0; run -= size, position += size) {
            size = pread(fd, raw, run < MQ_CUT_BYTES ? (size_t)run : MQ_CUT_BYTES, position);
            if (size <= 0) return -1;
            ssize_t used = size;
            while (used > 0 && raw[used - 1] == 0) used--;
            if (used > 0 && pwrite(fd, zeros, (size_t)used, position) != used) return -1;
            wrote |= used > 0;
        }
    }
    return errno == ENXIO ? wrote : -1;
}

typedef struct {
    int64_t file_size;
    int64_t end;                /* physical offset: units from there on go */
    int32_t pre_fill_size;
} mq_cut;

static int mq_cut_queue(int directory, const void *options, void *result) {
    const mq_cut *cut = options;
    mq_queue_cut *out = result;
    const int64_t file_size = cut->file_size;
    int64_t first, last;
    struct stat status;
    mq_unit unit = {0, 0};
    char name[32];
    if (!mq_list_unit_files(directory, file_size, 0, &first, &last)) return 0;
    out->file_start = last;
    if (last < 0) return 1;
    snprintf(name, sizeof name, "%020lld", (long long)last);
    int fd = openat(directory, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return 0;
    int plain = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size == file_size;
    if (plain) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
        int64_t count = mq_count_below(fd, file_size / MQ_UNIT_SIZE, cut->pre_fill_size, cut->end, &unit);
        /* A file of which nothing stays goes, but for the first. */
        plain = count > 0 || (count == 0 && first == last);
        out->cut = plain ? mq_zero_from(fd, count * MQ_UNIT_SIZE) : 0;
        plain = plain && out->cut >= 0;
    }
    close(fd);
    out->last_physical = unit.physical_offset;
    out->last_size = unit.record_size;
    return plain;
}

static int mq_cut_topic(const char *path, const mq_cut *cut, mq_queue_cut **out, int64_t *count) {
    return mq_each_queue(path, mq_cut_queue, cut, sizeof **out, (void **)out, count);
}

#endif
