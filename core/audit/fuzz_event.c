/*
 * Fuzzes the event schema and the order of events. Input: lines "type actor json". Every event that
 * is accepted must be JSON within the limits, must read back as the same event, and must be written
 * the same way again.
 */
#include <stdlib.h>
#include <string.h>

#include "audit/events.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(const struct br_buf *bytes)
{
    struct br_event e;
    struct br_err err = {.code = BR_OK};
    BR_CLEANUP_BUF struct br_buf again = BR_BUF_INIT(2 * BR_EVENT_MAX);
    if (br_event_parse(bytes->data, bytes->len, &e, &err) < 0 ||
        br_event_build(e.type, e.actor, e.data, e.event_id, 1234567890123456u, &again, &err) < 0 ||
        again.len != bytes->len || memcmp(again.data, bytes->data, again.len) != 0)
        abort();
    br_event_free(&e);
}

static void one_line(struct br_event_order *o, char *line, size_t n)
{
    char *actor = memchr(line, ' ', n);
    char *json = actor ? memchr(actor + 1, ' ', n - (size_t)(actor + 1 - line)) : NULL;
    if (!json || memchr(line, 0, n))
        return;
    *actor++ = 0;
    *json++ = 0;
    size_t len = n - (size_t)(json - line);
    struct br_err err = {.code = BR_OK};
    if (br_json_scan(json, len, BR_JSON_DEPTH_MAX + 4, BR_EVENT_NODES_MAX, &err) < 0)
        return;
    json_t *v = json_loadb(json, len, JSON_REJECT_DUPLICATES, NULL);
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(2 * BR_EVENT_MAX);
    if (json_is_object(v) &&
        br_event_build(line, actor, v, "evt_1", 1234567890123456u, &out, &err) == 0) {
        check_again(&out);
        (void)br_event_order_apply(o, line, v, &err);
    }
    json_decref(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct br_event_order *o = br_event_order_new();
    struct br_event_open open;
    char *copy = malloc(size + 1);
    memcpy(copy, data, size);
    copy[size] = 0;
    for (size_t at = 0; at < size;) {
        char *end = memchr(copy + at, '\n', size - at);
        size_t n = end ? (size_t)(end - (copy + at)) : size - at;
        if (end)
            *end = 0;
        one_line(o, copy + at, n);
        at += n + 1;
    }
    br_event_order_open(o, &open);
    if (open.status && (open.call || open.permission))
        abort();
    br_event_order_free(&o);
    free(copy);
    return 0;
}
