/*
 * Mode promote: whether what a run changed goes to its workspace is decided like every other
 * effect, asked about, and carries a grant; it happens elsewhere, when bridled is told so. What is
 * recorded of the changes are counts, and the names of those that may be executed, which bridled
 * read from bridle-promote: names are clean text by then.
 */
#include <stdlib.h>
#include <string.h>

#include "session/session_priv.h"

#define CALL_ID "promote"
#define TOOL "workspace_promote"
#define APPLY_TIMEOUT_US (660u * 1000000u)

/* What SESSION_START has of it: argv. */
enum { ARG_RUN, ARG_RECOVERED, ARG_ADDED, ARG_MODIFIED, ARG_REMOVED, ARG_SKIPPED, ARG_MORE, ARGS };

static json_int_t count(const struct session *s, unsigned i)
{
    return (json_int_t)strtoul(s->argv[i], NULL, 10);
}

/* {runId, added, modified, removed, skipped, surface, surfaceMore} */
static json_t *summary(const struct session *s)
{
    json_t *surface = json_array();
    for (uint32_t i = ARGS; i < s->argc; i++)
        json_array_append_new(surface, json_pack("{s:s}", "change", s->argv[i]));
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:o, s:I}", "runId", s->argv[ARG_RUN], "added",
                     count(s, ARG_ADDED), "modified", count(s, ARG_MODIFIED), "removed",
                     count(s, ARG_REMOVED), "skipped", count(s, ARG_SKIPPED), "surface", surface,
                     "surfaceMore", count(s, ARG_MORE));
}

/* The receipt. */
static int record_receipt(struct session *s, const char *status, const char *note)
{
    json_t *data = summary(s);
    if (data) {
        json_object_set_new(data, "workspace", json_string(s->workspace));
        json_object_set_new(data, "status", json_string(status));
        if (note && *note)
            json_object_set_new(data, "note", json_string(note));
    }
    return session_record(s, "bridle.promote", "kernel", data);
}

/* With the grant: exactly this run, once. */
static int apply(struct session *s, struct attempt *a, struct br_err *err)
{
    struct br_grant_ref grant;
    const char *subject = a->e->subject;
    int r = attempt_mint(s, a, &grant);
    if (r == 0)
        r = br_ledger_redeem(s->ledger, &grant, CALL_ID, a->e->action, subject, strlen(subject),
                             &a->err);
    if (r < 0) {
        *err = a->err;
        return r;
    }
    if (s->stop_code)
        return br_err_set(err, (enum br_code) - s->stop_code, "%s", s->stop_err.text);
    (void)session_expect(s, &s->promoted);
    br_chan_permit(&s->sup, BR_MSG_SUP_PROMOTED);
    s->effect_started_us = br_now_us();
    r = br_chan_send(&s->sup, BR_MSG_SUP_PROMOTE, 0, NULL, err);
    /* it is not interrupted half-way: whatever else ends, its end is waited for */
    if (r == 0 && (r = session_wait(s, &s->promoted.done, APPLY_TIMEOUT_US, true)) < 0)
        return br_err_set(err, (enum br_code) - r,
                          "what came of the promotion is not known; see 'bridle state list'");
    if (r == 0 && s->promoted.code < 0) {
        *err = s->promoted.err;
        r = s->promoted.code;
    }
    return r;
}

static int decide_and_apply(struct session *s, struct br_err *err)
{
    struct effect e = {.action = "workspace.promote", .tool = TOOL, .subject = s->argv[ARG_RUN]};
    struct attempt *a = calloc(1, sizeof(*a));
    if (!a)
        return br_err_set(err, BR_E_NOMEM, "no memory for a promotion");
    s->budget.calls = 1;
    s->attempts = a;
    s->nattempts = 1;
    int r = attempt_open(s, a, CALL_ID, &e);
    if (r == 0)
        (void)attempts_answer(s, a, 1);
    s->attempts = NULL;
    s->nattempts = 0;
    r = apply(s, a, err);
    attempt_free(a);
    free(a);
    return r;
}

void session_run_promote(struct session *s, struct outcome *o)
{
    struct br_err err = {.code = BR_OK};
    json_t *output = NULL;
    bool recovered = s->argc >= ARGS && strcmp(s->argv[ARG_RECOVERED], "recovered") == 0;
    int r = s->argc >= ARGS
                ? session_begin_record(s, &err)
                : br_err_set(&err, BR_E_PEER_PROTOCOL, "the supervisor named no promotion");
    if (r == 0 && recovered) {
        r = record_receipt(s, "recovered", "an interrupted promotion, which had been allowed");
    } else if (r == 0) {
        r = session_record(
            s, "tool.call", "operator",
            json_pack("{s:s, s:s, s:o}", "callId", CALL_ID, "tool", TOOL, "input", summary(s)));
        if (r == 0) {
            r = decide_and_apply(s, &err);
            if (r < 0 && s->stop_code) { /* which explains more than what it interrupted */
                r = s->stop_code;
                err = s->stop_err;
            }
            output = r == 0 ? json_pack("{s:b}", "applied", 1) : NULL;
            (void)session_record_result(s, CALL_ID, TOOL, s->effect_started_us, output, r, &err);
            json_decref(output);
            int k = record_receipt(s, r == 0 ? "promoted" : "refused", r < 0 ? err.text : NULL);
            r = r < 0 ? r : k;
        }
    }
    if (r < 0 && !err.code)
        err = s->stop_err;
    session_end(s, r, err.text, NULL);
    o->code = -r;
    o->exit_code = br_code_exit(r);
    snprintf(o->text, sizeof(o->text), "%s", r < 0 ? err.text : "");
}
