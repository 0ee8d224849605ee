/*
 * The record: every event goes to bridle-audit and counts only when that says it is stored. A
 * failure here ends the run; nothing goes on unrecorded.
 */
#include <stdlib.h>
#include <string.h>

#include "session/session_priv.h"

#define APPEND_TIMEOUT_US (30u * 1000000u)

static int wait_stored(struct session *s)
{
    int r = session_wait(s, &s->audited.done, APPEND_TIMEOUT_US, true);
    if (r == 0 && s->audited.code == 0)
        return 0;
    int code = r == 0 ? s->audited.code : -BR_E_STORE_FAILED;
    session_stop(s, code, "%s",
                 r == 0 ? s->audited.err.text : "the record could not be written in time");
    s->audit_lost = true;
    return code;
}

int session_record_flush(struct session *s)
{
    struct br_err err;
    if (!s->nevents)
        return 0;
    uint64_t id = session_expect(s, &s->audited);
    int r = br_chan_send(&s->audit, BR_MSG_APPEND, id, &s->events, &err);
    br_out_free(&s->events);
    s->nevents = 0;
    if (r < 0) {
        session_stop(s, BR_E_STORE_FAILED, "an event could not be sent to the audit: %s", err.text);
        s->audit_lost = true;
        return r;
    }
    return wait_stored(s);
}

/* The event waits to be sent. */
static int add_event(struct session *s, const char *type, const char *actor, json_t *data)
{
    BR_CLEANUP_FREE char *text = data ? json_dumps(data, JSON_COMPACT) : NULL;
    size_t n = text ? strlen(text) : 0;
    int r = 0;
    json_decref(data);
    if (s->unrecorded && text) /* there is no record of it, and nothing that acts on one */
        return 0;
    if (!text) {
        session_stop(s, BR_E_EVENT_SCHEMA, "an event '%s' could not be written as JSON", type);
        return -BR_E_EVENT_SCHEMA;
    }
    if (s->audit_lost)
        return -BR_E_STORE_FAILED;
    /* a large one travels alone */
    if (s->nevents == BR_APPEND_MAX || s->events.buf.len + n > BR_BLOB_INLINE_MAX)
        r = session_record_flush(s);
    if (r < 0)
        return r;
    if (!s->nevents)
        s->events = (struct br_out)BR_OUT_INIT;
    br_buf_put_str(&s->events.buf, type);
    br_buf_put_str(&s->events.buf, actor);
    br_out_blob(&s->events, text, n);
    s->nevents++;
    return s->events.nfds ? session_record_flush(s) : 0;
}

int session_record_ahead(struct session *s, const char *type, const char *actor, json_t *data)
{
    int r = add_event(s, type, actor, data);
    if (r < 0)
        (void)session_record_flush(s);
    return r;
}

int session_record(struct session *s, const char *type, const char *actor, json_t *data)
{
    int r = add_event(s, type, actor, data), sent = session_record_flush(s);
    return r < 0 ? r : sent;
}

int session_text(struct session *s, const char *p, size_t n, bool final)
{
    if (s->audit_lost)
        return -BR_E_STORE_FAILED;
    br_require(!s->nevents);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    struct br_err err;
    br_buf_put_str(&o.buf, s->stream_id);
    br_buf_put_str(&o.buf, "agent");
    br_out_blob(&o, p, n);
    br_buf_put_u8(&o.buf, final);
    uint64_t id = session_expect(s, &s->audited);
    int r = br_chan_send(&s->audit, BR_MSG_TEXT, id, &o, &err);
    if (r < 0) {
        session_stop(s, BR_E_STORE_FAILED, "text could not be sent to the audit: %s", err.text);
        s->audit_lost = true;
        return r;
    }
    return wait_stored(s);
}
