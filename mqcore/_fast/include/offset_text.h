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
    int failed;                 /* no memory, or a name that JSON does not show as it is */
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

static void mq_put_name(mq_text *text, const uint8_t *name, int32_t size) {
    for (int32_t at = 0; at < size; at++) {
        if (name[at] < 0x20 || name[at] >= 0x7f || name[at] == '"' || name[at] == '\\') text->failed = 1;
    }
    mq_put_text(text, (const char *)name, (size_t)size);
}

static void mq_put_number(mq_text *text, int64_t value) {
    char *at = mq_text_room(text, 24);
    if (at != NULL) text->size += (size_t)snprintf(at, 24, "%lld", (long long)value);
}

#endif
