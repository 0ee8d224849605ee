/*
 * The questions of a session. bridle-session's ledger is the only one that decides: an answer is
 * sent there at once, and what comes back, in order, says whether it was the first. Here is known
 * which questions are open (from the record, which is what clients saw as well), so that an answer
 * to one that never was, or is over, does not go anywhere.
 */
#include <stdlib.h>
#include <string.h>

#include "gateway/session_priv.h"

static struct gw_ask *ask_find(struct gw_session *s, const char *id)
{
    for (unsigned i = 0; id && i < s->nasks; i++)
        if (strcmp(s->asks[i].id, id) == 0)
            return &s->asks[i];
    return NULL;
}

static bool was_resolved(const struct gw_session *s, const char *id)
{
    for (unsigned i = s->nresolved; i-- > 0;)
        if (strcmp(s->resolved[i], id) == 0)
            return true;
    return false;
}

static void *grow(void *p, unsigned n, unsigned *cap, size_t size)
{
    if (n < *cap)
        return p;
    *cap = *cap ? 2 * *cap : 4;
    p = reallocarray(p, *cap, size);
    br_require(p);
    return p;
}

/* ---- from the record ---- */

static const char *text_of(const json_t *data, const char *key)
{
    const char *v = json_string_value(json_object_get(data, key));
    return v ? v : "";
}

void session_ask_open(struct gw_session *s, const json_t *data)
{
    s->asks = grow(s->asks, s->nasks, &s->cap_asks, sizeof(*s->asks));
    struct gw_ask *a = &s->asks[s->nasks++];
    *a = (struct gw_ask){.run = strcmp(text_of(data, "scope"), "run") == 0,
                         .deadline_us =
                             br_now_us() + (uint64_t)gw_settings(s->g)->ask_seconds * 1000000u};
    snprintf(a->id, sizeof(a->id), "%s", text_of(data, "permissionId"));
    snprintf(a->call_id, sizeof(a->call_id), "%s", text_of(data, "callId"));
    gw_counters(s->g)->asks_open++;
    session_changed(s);
}

void session_ask_scope(struct gw_session *s, const json_t *data)
{
    struct gw_ask *a = ask_find(s, text_of(data, "permissionId"));
    if (a)
        a->run = strcmp(text_of(data, "scope"), "run") == 0;
}

static void forget(struct gw_session *s, struct gw_ask *a)
{
    s->resolved = grow(s->resolved, s->nresolved, &s->cap_resolved, sizeof(*s->resolved));
    memcpy(s->resolved[s->nresolved++], a->id, sizeof(a->id));
    size_t behind = (size_t)(s->asks + s->nasks - a) - 1;
    memmove(a, a + 1, behind * sizeof(*a));
    s->nasks--;
    gw_counters(s->g)->asks_open--;
}

void session_ask_resolved(struct gw_session *s, const json_t *event, const json_t *data)
{
    struct gw_ask *a = ask_find(s, text_of(data, "permissionId"));
    struct gw_counters *n = gw_counters(s->g);
    if (!a)
        return;
    bool person = strcmp(text_of(event, "actor"), "operator") == 0;
    if (strcmp(text_of(data, "decision"), "allow") == 0)
        n->asks_allowed++;
    else if (person || s->canceling)
        n->asks_denied++;
    else
        n->asks_expired++;
    forget(s, a);
    session_changed(s);
}

/* The session is over: whatever its record did not resolve can be answered no more. */
void session_asks_end(struct gw_session *s)
{
    while (s->nasks) {
        gw_counters(s->g)->asks_denied++;
        forget(s, s->asks);
    }
}

/* ---- answers ---- */

static void say(gw_answer_fn *done, void *ctx, int code, const char *text)
{
    struct br_err err = {.code = BR_OK};
    if (code < 0)
        br_err_set(&err, (enum br_code) - code, "%s", text);
    done(ctx, code, code < 0 ? &err : NULL);
}

void session_answer(struct gw_session *s, const struct gw_who *who, const char *permission,
                    unsigned scope, const char *note, gw_answer_fn *done, void *ctx)
{
    const struct gw_ask *a = ask_find(s, permission);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    struct br_err err = {.code = BR_OK};
    if (!a && !was_resolved(s, permission)) {
        say(done, ctx, -BR_E_NOT_FOUND, "the session asked no such question");
        return;
    }
    if (!a || s->session.fd < 0) {
        say(done, ctx, -BR_E_IN_USE, "the question was answered, has expired or was canceled");
        return;
    }
    br_buf_put_str(&o.buf, a->id);
    br_buf_put_u8(&o.buf, (uint8_t)scope);
    br_buf_put_str(&o.buf, note ? note : "");
    br_buf_put_str(&o.buf, who->name);
    struct answer *w = calloc(1, sizeof(*w));
    br_require(w);
    int r = br_chan_send(&s->session, BR_MSG_ANSWER, 0, &o, &err);
    if (r < 0) {
        free(w);
        bool gone = r == -BR_E_PEER_GONE; /* the run ends, and with it the question */
        say(done, ctx, gone ? -BR_E_IN_USE : -BR_E_IO,
            gone ? "the question was canceled" : "the answer could not be passed on");
        return;
    }
    gw_log(s->g, BR_LOG_INFO, "permission.answered", "session", s->id, "permission", a->id, "who",
           who->name, "decision",
           scope == 0   ? "deny"
           : scope == 1 ? "once"
                        : "run",
           NULL);
    *w = (struct answer){.done = done, .ctx = ctx};
    *s->answers_end = w;
    s->answers_end = &w->next;
}

static struct answer *answer_take(struct gw_session *s)
{
    struct answer *w = s->answers;
    if (w && !(s->answers = w->next))
        s->answers_end = &s->answers;
    return w;
}

static int on_answered(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct gw_session *s = ctx;
    char text[BR_ERR_TEXT_MAX];
    bool accepted = br_rd_u8(&m->rd) != 0;
    uint32_t code = br_rd_u32(&m->rd);
    (void)c;
    br_rd_str(&m->rd, text, sizeof(text));
    struct answer *w = br_rd_done(&m->rd) < 0 ? NULL : answer_take(s);
    if (!w)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'session' sent a malformed ANSWERED");
    say(w->done, w->ctx,
        accepted                         ? 0
        : code == BR_E_DENIED            ? -BR_E_IN_USE /* it had an end before */
        : code == BR_E_INVALID_ARGUMENTS ? -BR_E_DENIED /* of a scope that was not offered */
        : code && code < BR_CODE_COUNT_  ? -(int)code
                                         : -BR_E_INTERNAL,
        text);
    free(w);
    return 0;
}

/* ---- its channel ---- */

static const struct br_msg_rule rules[] = {
    {BR_MSG_ANSWERED, BR_PERMIT, 9, BR_ERR_TEXT_MAX + 16, 0, 0, on_answered},
};

static void answers_end(struct gw_session *s)
{
    struct answer *w;
    while ((w = answer_take(s))) {
        say(w->done, w->ctx, -BR_E_IN_USE, "the question was canceled");
        free(w);
    }
}

static int on_end(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct gw_session *s = ctx;
    br_chan_close(c);
    if (code != -BR_E_PEER_GONE)
        session_break(s, (enum br_code) - code,
                      err && err->text[0] ? err->text : br_code_name(code));
    s->dispatching++; /* whoever is told may leave */
    answers_end(s);
    s->dispatching--;
    session_check_end(s);
    return 0;
}

int session_attach(struct gw_session *s, int fd)
{
    br_chan_init(&s->session, fd, "session", rules, BR_ARRAY_LEN(rules), s);
    return gw_watch_chan(s->g, &s->session, on_end, s);
}

void session_unattach(struct gw_session *s)
{
    if (s->session.fd >= 0) {
        gw_unwatch_chan(s->g, &s->session);
        br_chan_close(&s->session);
    }
    answers_end(s);
}
