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

int session_record(struct session *s, const char *type, const char *actor, json_t *data)
{
    BR_CLEANUP_FREE char *text = data ? json_dumps(data, JSON_COMPACT) : NULL;
    json_decref(data);
    if (s->unrecorded && text) /* there is no record of it, and nothing that acts on one */
        return 0;
    if (!text) {
        session_stop(s, BR_E_EVENT_SCHEMA, "an event '%s' could not be written as JSON", type);
        return -BR_E_EVENT_SCHEMA;
    }
    if (s->audit_lost)
        return -BR_E_STORE_FAILED;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    struct br_err err;
    br_buf_put_str(&o.buf, type);
    br_buf_put_str(&o.buf, actor);
    br_out_blob(&o, text, strlen(text));
    uint64_t id = session_expect(s, &s->audited);
    int r = br_chan_send(&s->audit, BR_MSG_APPEND, id, &o, &err);
    if (r < 0) {
        session_stop(s, BR_E_STORE_FAILED, "an event '%s' could not be sent to the audit: %s", type,
                     err.text);
        s->audit_lost = true;
        return r;
    }
    return wait_stored(s);
}

int session_text(struct session *s, const char *p, size_t n, bool final)
{
    if (s->audit_lost)
        return -BR_E_STORE_FAILED;
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

int session_record_error(struct session *s, int code, const char *text)
{
    return session_record(s, "error", "kernel",
                          json_pack("{s:s, s:s}", "code", br_code_name(code), "message", text));
}
