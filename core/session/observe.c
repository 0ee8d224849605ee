/*
 * One typed value out of a run ('bridle observe'): the schema is the operator's, the value is what
 * a guest took from a model. Whether the schema says only what can be checked, and whether the
 * value fits, bridle-script judges; whatever it does instead of answering, the value does not
 * count.
 */
#include <stdlib.h>
#include <string.h>

#include "frame/frame.h"
#include "session/session_priv.h"

#define ANSWER_US (5u * 1000000u)

static int ask(struct session *s, uint8_t schema, const void *p, size_t n, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    /* the table that was compiled is still in the reply */
    struct br_buf table = s->scripted_reply.data, task = s->scripted_reply.data2;
    s->scripted_reply.data = s->scripted_reply.data2 = (struct br_buf)BR_BUF_INIT(0);
    uint64_t id = session_expect(s, &s->scripted_reply);
    br_buf_put_u8(&o.buf, schema);
    br_out_blob(&o, p, n);
    int r = s->script.fd < 0 ? -BR_E_PROGRAM_DIED
                             : br_chan_send(&s->script, BR_MSG_VALUE, id, &o, NULL);
    if (r == 0)
        r = session_wait(s, &s->scripted_reply.done, ANSWER_US, false);
    if (r < 0 && s->stop_code)
        br_err_set(err, (enum br_code) - r, "%s", s->stop_err.text);
    else if (r < 0)
        r = br_err_set(err, BR_E_PROGRAM_DIED,
                       "'bridle-script' did not say whether it fits the schema; it does not count");
    else if (s->scripted_reply.code < 0) {
        *err = s->scripted_reply.err;
        r = s->scripted_reply.code;
    }
    br_buf_free(&s->scripted_reply.data);
    br_buf_free(&s->scripted_reply.data2);
    s->scripted_reply.data = table;
    s->scripted_reply.data2 = task;
    return r;
}

int observe_schema(struct session *s, struct br_err *err)
{
    const struct br_buf *b = &s->harness.schema;
    if (!b->len)
        return 0;
    if (s->harness.it.adapter.artifact != BR_ARTIFACT_JSON)
        return br_err_set(
            err, BR_E_USAGE,
            "the adapter '%s' gives no JSON value back, so that no schema can be said "
            "of it; nothing was started",
            s->harness.it.terms.ref);
    int r = ask(s, 1, b->data, b->len, err);
    return r < 0 ? br_err_wrap(err, "nothing was started") : 0;
}

int observe_value(struct session *s, const json_t *value, struct br_err *err)
{
    if (!s->harness.schema.len)
        return 0;
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text)
        return br_err_set(err, BR_E_NOMEM, "no memory for what the guest said");
    int r = ask(s, 0, text, strlen(text), err);
    free(text);
    if (r == -BR_E_INVALID_ARGUMENTS || r == -BR_E_INVALID_JSON) {
        struct br_err why = *err;
        return br_err_set(err, BR_E_PROVIDER_INVALID,
                          "the model's answer does not fit the schema: %s; it was not used",
                          why.text);
    }
    return r;
}
