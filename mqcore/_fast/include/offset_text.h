/* The committed offsets of the shared segment as the text of consumerOffset.json, and chosen ones as rows.

   A million of them would stop an event loop for seconds if each became an object of Python, and a thread of Python would
   hold its interpreter nearly as long. Here a thread does it that needs no interpreter. */
#ifndef MQCORE_OFFSET_TEXT_H
#define MQCORE_OFFSET_TEXT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int32_t group_row;
    int32_t topic_row;
    int32_t queue_id;
    int32_t is_light;           /* goes into the table of light queues */
    int64_t committed;
} mq_offset;

static int mq_compare_offsets(const void *left, const void *right) {
    const mq_offset *a = left, *b = right;
    if (a->is_light != b->is_light) return a->is_light > b->is_light ? -1 : 1;
    if (a->topic_row != b->topic_row) return a->topic_row < b->topic_row ? -1 : 1;
    if (a->group_row != b->group_row) return a->group_row < b->group_row ? -1 : 1;
    return a->queue_id < b->queue_id ? -1 : a->queue_id > b->queue_id;
}

static void mq_sort_offsets(mq_offset *offsets, int64_t count) {
    if (count > 1) qsort(offsets, (size_t)count, sizeof *offsets, mq_compare_offsets);
}

typedef struct {
    char *data;
    size_t size, capacity;
    int failed;                 /* no memory */
} mq_text;

static char *mq_text_room(mq_text *text, size_t size) {
    if (text->failed) return NULL;
    if (text->capacity - text->size < size) {
        size_t capacity = 2 * text->capacity + size + 4096;
        char *grown = realloc(text->data, capacity);
        if (grown == NULL) {
            text->failed = 1;
            return NULL;
        }
        text->data = grown;
        text->capacity = capacity;
    }
    return text->data + text->size;
}

static void mq_put_text(mq_text *text, const char *from, size_t size) {
    char *at = mq_text_room(text, size);
    if (at == NULL) return;
    memcpy(at, from, size);
    text->size += size;
}

/* What fastjson escapes: below 0x20, '"', '\\', U+007F to U+009F, U+2028, U+2029 (protocol/fastjson.py has the same). */
static int mq_escape(const uint8_t *at, int32_t left, int32_t *size, char out[8]) {
    static const char marks[] = "\bb\tt\nn\ff\rr\"\"\\\\";
    *size = 1;
    for (const char *mark = marks; *mark; mark += 2) {
        if ((char)at[0] == *mark) return snprintf(out, 8, "\\%c", mark[1]);
    }
    unsigned code = at[0];
    if (at[0] == 0xc2 && left > 1 && at[1] >= 0x80 && at[1] < 0xa0) {
        *size = 2;
        code = at[1];
    } else if (at[0] == 0xe2 && left > 2 && at[1] == 0x80 && (at[2] == 0xa8 || at[2] == 0xa9)) {
        *size = 3;
        code = 0x2000u + (at[2] & 0x3fu);
    } else if (at[0] >= 0x20 && at[0] != 0x7f) {
        return 0;
    }
    return snprintf(out, 8, "\\u%04X", code);
}

static void mq_put_name(mq_text *text, const uint8_t *name, int32_t size) {
    char escaped[8];
    int32_t plain = 0, taken;
    for (int32_t at = 0; at < size; at++) {
        int length = mq_escape(name + at, size - at, &taken, escaped);
        if (length == 0) continue;
        mq_put_text(text, (const char *)name + plain, (size_t)(at - plain));
        mq_put_text(text, escaped, (size_t)length);
        at += taken - 1;
        plain = at + 1;
    }
    mq_put_text(text, (const char *)name + plain, (size_t)(size - plain));
}

static void mq_put_number(mq_text *text, int64_t value) {
    char *at = mq_text_room(text, 24);
    if (at != NULL) text->size += (size_t)snprintf(at, 24, "%lld", (long long)value);
}

#endif
