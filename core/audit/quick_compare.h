/* For tests: one event both ways. */
#ifndef BR_AUDIT_QUICK_COMPARE_H
#define BR_AUDIT_QUICK_COMPARE_H

#include <stdlib.h>
#include <string.h>

#include "audit/quick.h"

enum quick_compare { QUICK_NOT, QUICK_SAME, QUICK_DIFFERS };

/* With `o` NULL, an order in which this event may come. */
static inline enum quick_compare quick_compare(struct br_quick *q, const struct br_redact *r,
                                               struct br_event_order *o, const char *type,
                                               const char *actor, const char *data, size_t n)
{
    const uint64_t at = 1234567890123456u;
    const uint8_t *out;
    size_t nout;
    struct br_event_order *own = NULL;
    if (!o) {
        static const char *const before[][2] = {
            {"session.created", "{\"sessionId\":\"ses\"}"},
            {"model.request", "{\"requestId\":\"r\",\"model\":\"m\",\"messageCount\":1}"},
            {"tool.call", "{\"callId\":\"c\",\"tool\":\"t\",\"input\":1}"}};
        o = own = br_event_order_new();
        for (size_t i = 0; i < BR_ARRAY_LEN(before); i++) {
            if (strcmp(before[i][0], type) == 0)
                break;
            json_t *v = json_loads(before[i][1], 0, NULL);
            (void)br_event_order_apply(o, before[i][0], v, NULL);
            json_decref(v);
        }
    }
    bool quick = br_quick_event(q, r, o, type, actor, data, n, "evt_1", at, &out, &nout);
    br_event_order_free(&own);
    if (!quick)
        return QUICK_NOT;
    BR_CLEANUP_BUF struct br_buf want = BR_BUF_INIT(2 * BR_EVENT_MAX);
    json_t *v = NULL, *safe = NULL;
    if (br_json_scan(data, n, BR_JSON_DEPTH_MAX + 4, BR_EVENT_NODES_MAX, NULL) == 0)
        v = json_loadb(data, n, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(v))
        safe = br_redact_json(r, v, false, NULL);
    bool same = safe && br_event_build(type, actor, safe, "evt_1", at, &want, NULL) == 0 &&
                want.len == nout && memcmp(want.data, out, nout) == 0;
    json_decref(v);
    json_decref(safe);
    return same ? QUICK_SAME : QUICK_DIFFERS;
}

#endif
