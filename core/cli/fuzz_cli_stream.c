/*
 * Fuzzes the checks of what a service sends: lines of input are its messages. Whatever they hold,
 * an accepted event has the number that was due, nothing follows agent.stopped, and a refusal says
 * that it is the protocol's.
 */
#include <string.h>

#include "cli/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_event(const struct br_stream *s, const struct br_stream_item *item, bool stopped,
                        const int64_t before[2])
{
    bool own = strncmp(item->type, "bridle.", 7) == 0;
    br_require(!stopped);
    br_require(br_stream_last(s, "s", own) == before[own] + 1);
    br_require(br_stream_last(s, "s", !own) == before[!own]);
    br_require(json_is_object(json_object_get(item->value, "data")));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct br_stream *s = br_stream_new();
    br_require(s);
    (void)br_stream_ask(s, BR_STREAM_INITIALIZE, "", "", false);
    (void)br_stream_ask(s, BR_STREAM_NEW, "", "", false);
    (void)br_stream_ask(s, BR_STREAM_PROMPT, "s", "", false);
    (void)br_stream_ask(s, BR_STREAM_LIST, "", "", false);
    (void)br_stream_ask(s, BR_STREAM_WATCH, "", "", false);
    (void)br_stream_ask(s, BR_STREAM_CANCEL, "s", "", false);
    for (size_t at = 0; at < size && size < 65536;) {
        const uint8_t *nl = memchr(data + at, '\n', size - at);
        size_t n = nl ? (size_t)(nl - (data + at)) : size - at;
        struct br_stream_item item;
        struct br_err err = {.code = BR_OK};
        bool stopped = br_stream_stopped(s, "s") != NULL;
        int64_t before[2] = {br_stream_last(s, "s", false), br_stream_last(s, "s", true)};
        int r = br_stream_read(s, (const char *)data + at, n, &item, &err);
        if (r < 0) {
            br_require(err.code == BR_E_PEER_PROTOCOL || err.code == BR_E_NOMEM);
            break;
        }
        if (item.kind == BR_STREAM_EVENT)
            check_event(s, &item, stopped, before);
        if (item.kind == BR_STREAM_EVENT && strcmp(item.type, "permission.requested") == 0)
            (void)br_stream_ask(s, BR_STREAM_RESPOND, "s", item.permission, n % 2);
        at += n + (nl != NULL);
    }
    br_stream_free(&s);
    return 0;
}
