/*
 * Questions to the operator. Each belongs to one call, has an id of its own and gets exactly one
 * answer, which is recorded once: by a person, or by the session where nobody answers. Those of a
 * turn are open at the same time, so that a client can show them together. Answers come from a
 * client and are not trusted further than the ledger lets them.
 */
#include <stdlib.h>
#include <string.h>

#include "session/session_priv.h"

#define FOR_THE_RUN "for the rest of this run"

static json_t *ask_data(struct session *s, const struct attempt *a)
{
    /* "once" is what a plain yes gives, and all that the protocol's clients know to answer */
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "permissionId", a->permission, "sessionId",
                     s->run_id, "callId", a->call_id, "action", a->e->action, "subject",
                     a->e->subject, "scope", "once");
}

int ask_open(struct session *s, struct attempt *a)
{
    const struct effect *e = a->e;
    int r = br_ledger_ask(s->ledger, a->call_id, e->action, e->subject, strlen(e->subject),
                          a->scope, a->environment, a->permission, &a->err);
    if (r < 0) { /* the call fails, the run goes on */
        a->code = r;
        return 0;
    }
    if (!s->has_terminal || s->client.fd < 0) /* before anybody hears of it */
        (void)br_ledger_end(s->ledger, a->permission, BR_ASK_NO_RESOLVER, NULL);
    json_t *request = ask_data(s, a);
    if (a->v.reason)
        json_object_set_new(request, "reason", json_string(a->v.reason));
    r = session_record_ahead(s, "permission.requested", "kernel", request);
    if (r == 0)
        r = session_record(s, "bridle.ask", "kernel", prompt_data(s, a));
    if (r < 0) {
        (void)br_ledger_end(s->ledger, a->permission, BR_ASK_CANCELED, NULL);
        a->code = br_err_set(&a->err, (enum br_code) - r, "%s", s->stop_err.text);
    }
    return r;
}

int ask_answer(struct session *s, const char *permission, unsigned scope, const char *note,
               const char *who, struct br_err *err)
{
    int r = scope ? br_ledger_allow(s->ledger, permission, (enum br_scope)scope, err)
                  : br_ledger_end(s->ledger, permission, BR_ASK_DENIED, err);
    for (size_t i = 0; r == 0 && i < s->nattempts; i++) {
        struct attempt *a = &s->attempts[i];
        if (strcmp(a->permission, permission) != 0)
            continue;
        if (note[0])
            a->note = strdup(note);
        snprintf(a->who, sizeof(a->who), "%s", who);
    }
    return r;
}

static const char *end_note(const struct session *s, enum br_ask_end how)
{
    if (how == BR_ASK_CANCELED && !s->stop_code && s->harness.withdrawn && *s->harness.withdrawn)
        return "who asked does not wait for the answer any more";
    switch (how) {
    case BR_ASK_EXPIRED:
        return "nobody answered in time";
    case BR_ASK_CANCELED:
        return "the run was canceled";
    case BR_ASK_NO_RESOLVER:
        return "there is no terminal to ask on";
    default:
        return NULL;
    }
}

/* ---- the record of an answer ---- */

static int record_grant(struct session *s, const struct attempt *a)
{
    char hex[2 * BR_ENVIRONMENT_BYTES + 1];
    br_hex(hex, a->environment, BR_ENVIRONMENT_BYTES);
    return session_record_ahead(
        s, "bridle.grant", "kernel",
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "permissionId", a->permission,
                  "callId", a->call_id, "action", a->e->action, "subject", a->e->subject, "scope",
                  "run", "environment", hex, "ruleId", a->v.rule_id, "source", a->v.source));
}

/* The contract's permission.resolved has no place for it. */
static int record_who(struct session *s, const struct attempt *a, bool allowed, bool run)
{
    return session_record_ahead(s, "bridle.answered", "kernel",
                                json_pack("{s:s, s:s, s:s, s:s}", "permissionId", a->permission,
                                          "by", a->who, "decision", allowed ? "allow" : "deny",
                                          "scope", run ? "run" : "once"));
}

static int record_answer(struct session *s, struct attempt *a)
{
    char note[BR_PATH_MAX];
    a->end = br_ledger_state(s->ledger, a->permission);
    a->resolved = true;
    bool allowed = a->end == BR_ASK_ALLOWED, person = allowed || a->end == BR_ASK_DENIED;
    bool run = allowed && br_ledger_scope(s->ledger, a->permission) == BR_SCOPE_RUN;
    const char *said = person ? a->note : end_note(s, a->end);
    if (run) {
        snprintf(note, sizeof(note), FOR_THE_RUN "%s%s", said ? ": " : "", said ? said : "");
        note[br_utf8_floor(note, strlen(note))] = 0;
        said = note;
    }
    json_t *data = ask_data(s, a);
    json_object_set_new(data, "decision", json_string(allowed ? "allow" : "deny"));
    if (said)
        json_object_set_new(data, "note", json_string(said));
    int r = session_record_ahead(s, "permission.resolved", person ? "operator" : "kernel", data);
    if (r == 0 && person && a->who[0])
        r = record_who(s, a, allowed, run);
    if (r == 0 && run)
        r = record_grant(s, a);
    if (r == 0)
        r = session_record_flush(s);
    if (r < 0)
        a->code = br_err_set(&a->err, (enum br_code) - r, "%s", s->stop_err.text);
    else if (!allowed)
        a->code = br_err_set(&a->err, BR_E_DENIED, "%s was not permitted: %s", a->e->action,
                             person ? "the operator denied it" : end_note(s, a->end));
    return r;
}

/* ---- waiting ---- */

static bool is_open(const struct session *s, const struct attempt *a)
{
    return a->permission[0] && !a->resolved &&
           br_ledger_state(s->ledger, a->permission) == BR_ASK_PENDING;
}

static size_t count_open(const struct session *s, const struct attempt *a, size_t n)
{
    size_t open = 0;
    for (size_t i = 0; i < n; i++)
        open += is_open(s, &a[i]);
    return open;
}

static void end_open(struct session *s, const struct attempt *a, size_t n, enum br_ask_end how)
{
    for (size_t i = 0; i < n; i++)
        if (is_open(s, &a[i]))
            (void)br_ledger_end(s->ledger, a[i].permission, how, NULL);
}

/* Until an answer has come, or whatever ends the questions without one. */
static void await_one(struct session *s, struct attempt *a, size_t n, uint64_t deadline)
{
    size_t open = count_open(s, a, n);
    while (count_open(s, a, n) == open) {
        uint64_t now = br_now_us();
        bool withdrawn = s->harness.withdrawn && *s->harness.withdrawn;
        if (s->stop_code || withdrawn || now >= deadline) {
            end_open(s, a, n, s->stop_code || withdrawn ? BR_ASK_CANCELED : BR_ASK_EXPIRED);
            return;
        }
        s->kick = false;
        uint64_t until = deadline;
        if (s->budget.deadline_us && s->budget.deadline_us < until)
            until = s->budget.deadline_us;
        struct br_err err = {.code = BR_OK};
        int r = br_loop_run_until(s->loop, &s->kick, until, &err);
        if (r == -BR_E_TIMEOUT && until < deadline)
            session_stop(s, BR_E_TIMEOUT, "the run reached its time limit of %u seconds",
                         s->wall_seconds);
        else if (r < 0 && r != -BR_E_TIMEOUT)
            session_stop(s, r, "%s", err.code ? err.text : br_code_name(r));
    }
}

static int record_answers(struct session *s, struct attempt *a, size_t n)
{
    int r = 0;
    for (size_t i = 0; i < n; i++) {
        if (!a[i].permission[0] || a[i].resolved || is_open(s, &a[i]) || a[i].code < 0)
            continue;
        int one = record_answer(s, &a[i]);
        r = r < 0 ? r : one;
    }
    return r;
}

/* The client may put the questions now: these are all of the turn. */
static int record_group(struct session *s, const struct attempt *a, size_t n)
{
    json_t *asks = json_array();
    for (size_t i = 0; i < n; i++)
        if (is_open(s, &a[i]))
            json_array_append_new(asks, json_pack("{s:s}", "permissionId", a[i].permission));
    return session_record(s, "bridle.asks", "kernel", json_pack("{s:o}", "asks", asks));
}

int attempts_answer(struct session *s, struct attempt *a, size_t n)
{
    int r = 0;
    if (count_open(s, a, n))
        r = record_group(s, a, n);
    if (r < 0)
        end_open(s, a, n, BR_ASK_CANCELED);
    int rec = record_answers(s, a, n);
    while (rec == 0 && count_open(s, a, n)) {
        /* each question has its time from when the one before it was answered */
        uint32_t seconds = s->ceilings.ask_seconds ? s->ceilings.ask_seconds : BR_ASK_SECONDS;
        await_one(s, a, n, br_now_us() + (uint64_t)seconds * 1000000u);
        rec = record_answers(s, a, n);
    }
    return r < 0 ? r : rec;
}
