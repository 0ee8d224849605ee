/*
 * From intent to authority: decide a call with the one table, record the decision with every vote,
 * and where the answer is "ask" wait for one correlated human answer. Whatever goes wrong on the
 * way (a script that dies, a predicate that fails, a command that cannot be taken apart) makes the
 * answer stricter, never looser.
 */
#include <stdlib.h>
#include <string.h>

#include "script/command.h"
#include "session/session_priv.h"

/* Votes and pieces of a command that an event names, and bytes of a piece. */
#define VOTES_MAX 64u
#define PIECES_MAX 32u
#define PIECE_MAX 512u

/* The decision of a whole call: the strictest of its parts. Strings are owned. */
struct verdict {
    enum br_effect effect;
    char *rule_id, *source, *reason;
    bool opaque;
    json_t *votes;
    json_t *pieces; /* of a command: each with its action, subject and effect */
};

static void verdict_free(struct verdict *v)
{
    free(v->rule_id);
    free(v->source);
    free(v->reason);
    json_decref(v->votes);
    json_decref(v->pieces);
}

/* Take over (rule, source, reason) if `effect` is stricter than what is there. */
static void verdict_tighten(struct verdict *v, enum br_effect effect, const char *rule_id,
                            const char *source, const char *reason)
{
    if (br_effect_strictest(v->effect, effect) == v->effect)
        return;
    v->effect = effect;
    free(v->rule_id);
    free(v->source);
    free(v->reason);
    v->rule_id = strdup(rule_id);
    v->source = strdup(source);
    v->reason = reason ? strdup(reason) : NULL;
}

/* A vote that is there already says nothing new; of a long command the first ones are kept. */
static bool worth_adding(const struct verdict *v, const char *source, const char *rule_id)
{
    const json_t *vote;
    size_t i;
    json_array_foreach(v->votes, i, vote)
    {
        if (strcmp(json_string_value(json_object_get(vote, "source")), source) == 0 &&
            strcmp(json_string_value(json_object_get(vote, "ruleId")), rule_id) == 0)
            return false;
    }
    return json_array_size(v->votes) < VOTES_MAX;
}

static void add_vote(struct verdict *v, const char *source, const char *rule_id,
                     enum br_effect effect, const char *reason)
{
    if (!worth_adding(v, source, rule_id))
        return;
    json_t *vote = json_pack("{s:s, s:s, s:s}", "source", source, "ruleId", rule_id, "effect",
                             br_effect_name(effect));
    if (reason)
        json_object_set_new(vote, "reason", json_string(reason));
    json_array_append_new(v->votes, vote);
}

static void decide_one(struct session *s, struct verdict *v, const struct br_request *q)
{
    struct br_decision d;
    session_table_decide(s, q, false, &d);
    for (unsigned i = 0; i < d.nvotes; i++)
        add_vote(v, d.votes[i].source, d.votes[i].rule_id, d.votes[i].effect, d.votes[i].reason);
    verdict_tighten(v, d.effect, d.rule_id, d.source ? d.source : "default",
                    d.reason   ? d.reason
                    : d.nvotes ? NULL
                               : "no rule has an opinion");
}

/* ---- commands (script/command.h) ---- */

struct deciding {
    struct session *s;
    struct verdict *v;
};

static int parse_line(void *ctx, const char *line, size_t n, const void **body, size_t *len)
{
    struct session *s = ((struct deciding *)ctx)->s;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_out_blob(&o, line, n);
    int r = session_script(s, BR_MSG_SHELL, &o);
    *body = s->scripted_reply.data.data;
    *len = s->scripted_reply.data.len;
    return r;
}

static void on_decide(void *ctx, const struct br_request *q, bool against, struct br_decision *d)
{
    session_table_decide(((struct deciding *)ctx)->s, q, against, d);
}

static void on_vote(void *ctx, const char *source, const char *rule_id, enum br_effect effect,
                    const char *reason)
{
    add_vote(((struct deciding *)ctx)->v, source, rule_id, effect, reason);
}

static void on_piece(void *ctx, const char *action, const char *text, enum br_effect effect)
{
    struct verdict *v = ((struct deciding *)ctx)->v;
    size_t n = strlen(text);
    if (json_array_size(v->pieces) < PIECES_MAX)
        json_array_append_new(v->pieces,
                              json_pack("{s:s, s:s%, s:s}", "action", action, "subject", text,
                                        n > PIECE_MAX ? br_utf8_floor(text, PIECE_MAX) : n,
                                        "effect", br_effect_name(effect)));
}

static void decide_command(struct session *s, struct verdict *v, const struct effect *e)
{
    struct deciding d = {.s = s, .v = v};
    const struct br_commander c = {.table = s->table,
                                   .context = &s->context,
                                   .ctx = &d,
                                   .decide = on_decide,
                                   .shell = parse_line,
                                   .vote = on_vote,
                                   .piece = on_piece};
    struct br_verdict result = {.effect = BR_EFFECT_NONE};
    if (e->shell)
        br_command_line(&c, e->subject, e->op.path, &result);
    else
        br_command_argv(&c, (const char *const *)e->op.argv, e->op.argc, e->op.path, &result);
    v->opaque = result.opaque;
    if (result.rule_id && result.source)
        verdict_tighten(v, result.effect, result.rule_id, result.source, result.reason);
    br_verdict_free(&result);
}

/* The policy failed, which session_script() has recorded; the call is denied. */
static int policy_failed(struct session *s, struct verdict *v)
{
    const char *why = s->scripted_reply.err.text;
    verdict_tighten(v, BR_EFFECT_DENY, "policy-error", "operator", why);
    add_vote(v, "operator", "policy-error", BR_EFFECT_DENY, why);
    return s->audit_lost ? -BR_E_STORE_FAILED : 0;
}

/* What the manifest's rules said, the strictest of them; of several pieces nothing, since its word
 * for one of them is none for the others. */
static const char *manifest_said(const struct verdict *v)
{
    const json_t *vote;
    size_t i;
    enum br_effect strictest = BR_EFFECT_NONE;
    if (json_array_size(v->pieces) > 1)
        return NULL;
    json_array_foreach(v->votes, i, vote)
    {
        const char *source = json_string_value(json_object_get(vote, "source"));
        const char *said = json_string_value(json_object_get(vote, "effect"));
        for (int e = BR_EFFECT_ALLOW; e <= BR_EFFECT_DENY; e++)
            if (strcmp(source, "manifest") == 0 &&
                strcmp(said, br_effect_name((enum br_effect)e)) == 0 &&
                (enum br_effect)e > strictest)
                strictest = (enum br_effect)e;
    }
    return strictest == BR_EFFECT_NONE ? NULL : br_effect_name(strictest);
}

/* The operator's predicates may tighten what the table said. */
static int consult_predicates(struct session *s, struct verdict *v, const char *call_id,
                              const struct effect *e)
{
    if (!br_table_has_predicates(s->table) || v->effect == BR_EFFECT_DENY)
        return 0;
    json_t *req = json_pack("{s:s, s:s*, s:s, s:s, s:s*}", "action", e->action, "subject",
                            e->subject, "callId", call_id, "effect", br_effect_name(v->effect),
                            "manifest", manifest_said(v));
    if (e->op.op == BR_OP_EXEC && !e->shell) {
        json_t *argv = json_array();
        for (uint32_t i = 0; i < e->op.argc; i++)
            json_array_append_new(argv, json_string(e->op.argv[i]));
        json_object_set_new(req, "argv", argv);
    }
    session_context_json(&s->context, req);
    BR_CLEANUP_FREE char *text = json_dumps(req, JSON_COMPACT);
    json_decref(req);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_out_blob(&o, text ? text : "", text ? strlen(text) : 0);
    if (session_script(s, BR_MSG_PREDICATE, &o) < 0)
        return policy_failed(s, v);
    struct br_rd rd;
    char rule[BR_NAME_MAX], reason[BR_ERR_TEXT_MAX];
    br_rd_init(&rd, s->scripted_reply.data.data, s->scripted_reply.data.len);
    uint8_t effect = br_rd_u8(&rd);
    br_rd_str(&rd, rule, sizeof(rule));
    br_rd_str(&rd, reason, sizeof(reason));
    if (br_rd_done(&rd) < 0 || effect > BR_EFFECT_DENY) {
        (void)session_script_failed(s, -BR_E_POLICY_ERROR, "the policy gave no usable answer");
        return policy_failed(s, v);
    }
    if (effect == BR_EFFECT_ASK || effect == BR_EFFECT_DENY) {
        add_vote(v, "operator", rule, (enum br_effect)effect, reason[0] ? reason : NULL);
        verdict_tighten(v, (enum br_effect)effect, rule, "operator", reason[0] ? reason : NULL);
    }
    return 0;
}

static int record_decision(struct session *s, const struct verdict *v, const char *call_id,
                           const struct effect *e)
{
    json_t *d = json_pack("{s:s, s:s, s:s}", "action", e->action, "subject", e->subject, "effect",
                          br_effect_name(v->effect));
    if (v->reason)
        json_object_set_new(d, "reason", json_string(v->reason));
    json_object_set_new(d, "ruleId", json_string(v->rule_id));
    int r = session_record(s, "policy.decision", "kernel", d);
    if (r < 0)
        return r;
    json_t *votes =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:O}", "callId", call_id, "action",
                  e->action, "subject", e->subject, "effect", br_effect_name(v->effect), "ruleId",
                  v->rule_id, "source", v->source, "opaque", (int)v->opaque, "votes", v->votes);
    if (json_array_size(v->pieces))
        json_object_set(votes, "pieces", v->pieces);
    return session_record(s, "bridle.votes", "kernel", votes);
}

static json_t *ask_data(struct session *s, const char *permission, const char *call_id,
                        const struct effect *e)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "permissionId", permission, "sessionId",
                     s->run_id, "callId", call_id, "action", e->action, "subject", e->subject,
                     "scope", "once");
}

/* Wait for the answer, or for whatever ends the ask without one. */
static enum br_ask_end await_answer(struct session *s, const char *permission)
{
    uint64_t deadline = br_now_us() + (uint64_t)BR_ASK_SECONDS * 1000000u;
    while (br_ledger_state(s->ledger, permission) == BR_ASK_PENDING) {
        uint64_t now = br_now_us();
        enum br_ask_end how = BR_ASK_PENDING;
        if (s->stop_code)
            how = BR_ASK_CANCELED;
        else if (now >= deadline)
            how = BR_ASK_EXPIRED;
        if (how != BR_ASK_PENDING) {
            (void)br_ledger_end(s->ledger, permission, how, NULL);
            break;
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
    return br_ledger_state(s->ledger, permission);
}

static const char *end_note(enum br_ask_end how)
{
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

static int ask(struct session *s, const struct verdict *v, const char *call_id,
               const struct effect *e, char permission[BR_ID_MAX], struct br_err *err)
{
    int r = br_ledger_ask(s->ledger, call_id, e->action, e->subject, strlen(e->subject),
                          BR_SCOPE_ONCE, permission, err);
    if (r < 0)
        return r;
    if (!s->has_terminal || s->client.fd < 0) /* before anybody hears of it */
        (void)br_ledger_end(s->ledger, permission, BR_ASK_NO_RESOLVER, NULL);
    json_t *request = ask_data(s, permission, call_id, e);
    if (v->reason)
        json_object_set_new(request, "reason", json_string(v->reason));
    s->ask_note[0] = 0;
    r = session_record(s, "permission.requested", "kernel", request);
    enum br_ask_end how = BR_ASK_CANCELED;
    if (r < 0)
        (void)br_ledger_end(s->ledger, permission, how, NULL);
    else
        how = await_answer(s, permission);
    bool person = how == BR_ASK_ALLOWED || how == BR_ASK_DENIED;
    json_t *resolved = ask_data(s, permission, call_id, e);
    json_object_set_new(resolved, "decision",
                        json_string(how == BR_ASK_ALLOWED ? "allow" : "deny"));
    const char *note = person && s->ask_note[0] ? s->ask_note : end_note(how);
    if (note)
        json_object_set_new(resolved, "note", json_string(note));
    int rec =
        r < 0 ? r
              : session_record(s, "permission.resolved", person ? "operator" : "kernel", resolved);
    if (r < 0)
        json_decref(resolved);
    if (rec < 0)
        return br_err_set(err, (enum br_code) - rec, "%s", s->stop_err.text);
    if (how == BR_ASK_ALLOWED)
        return 0;
    return br_err_set(err, BR_E_DENIED, "%s was not permitted: %s", e->action,
                      how == BR_ASK_DENIED ? "the operator denied it" : end_note(how));
}

/* The verdict of a call; its strings are the caller's to free in any case. */
static int decide(struct session *s, const char *call_id, const struct effect *e, struct verdict *v)
{
    session_context(s, e, &s->context);
    if (e->op.op != BR_OP_EXEC)
        decide_one(s, v,
                   &(struct br_request){.action = e->action,
                                        .subject = e->subject,
                                        .subject_len = e->subject ? strlen(e->subject) : 0});
    else
        decide_command(s, v, e);
    int r = consult_predicates(s, v, call_id, e);
    if (v->effect == BR_EFFECT_NONE || !v->rule_id || !v->source)
        verdict_tighten(v, BR_EFFECT_DENY, "undecided", "kernel", "the decision failed");
    return r;
}

static int denied(const struct verdict *v, const struct effect *e, struct br_err *err)
{
    return br_err_set(err, BR_E_DENIED, "%s was denied by rule '%s'%s%s", e->action,
                      v->rule_id ? v->rule_id : "undecided", v->reason ? ": " : "",
                      v->reason ? v->reason : "");
}

int session_authorize(struct session *s, const char *call_id, const struct effect *e,
                      enum br_effect *decided, char permission[BR_ID_MAX], struct br_err *err)
{
    struct verdict v = {.effect = BR_EFFECT_NONE, .votes = json_array(), .pieces = json_array()};
    permission[0] = 0;
    int r = decide(s, call_id, e, &v);
    if (r == 0)
        r = record_decision(s, &v, call_id, e);
    *decided = v.effect;
    if (r < 0)
        r = br_err_set(err, (enum br_code) - r, "%s", s->stop_err.text);
    else if (v.effect == BR_EFFECT_ASK)
        r = ask(s, &v, call_id, e, permission, err);
    else if (v.effect != BR_EFFECT_ALLOW)
        r = denied(&v, e, err);
    verdict_free(&v);
    return r;
}

int session_foresee(struct session *s, const char *call_id, const struct effect *e,
                    enum br_effect *decided, json_t **decision, struct br_err *err)
{
    struct verdict v = {.effect = BR_EFFECT_NONE, .votes = json_array(), .pieces = json_array()};
    int r = decide(s, call_id, e, &v);
    *decided = v.effect;
    *decision =
        json_pack("{s:s, s:s*, s:s, s:s*, s:s*, s:s*, s:b, s:O}", "action", e->action, "subject",
                  e->subject, "effect", br_effect_name(v.effect), "ruleId", v.rule_id, "source",
                  v.source, "reason", v.reason, "opaque", (int)v.opaque, "votes", v.votes);
    if (r < 0)
        r = br_err_set(err, (enum br_code) - r, "%s", s->stop_err.text);
    else if (v.effect != BR_EFFECT_ALLOW && v.effect != BR_EFFECT_ASK)
        r = denied(&v, e, err);
    verdict_free(&v);
    return r;
}

/* What the policy says about reading one file, without asking anybody. */
static enum br_effect read_effect(struct session *s, const char *call_id, const char *path)
{
    struct verdict v = {.effect = BR_EFFECT_NONE, .votes = json_array(), .pieces = json_array()};
    struct effect e = {.action = "fs.read", .subject = (char *)path};
    decide_one(
        s, &v,
        &(struct br_request){.action = e.action, .subject = path, .subject_len = strlen(path)});
    enum br_effect effect = consult_predicates(s, &v, call_id, &e) < 0 ? BR_EFFECT_DENY : v.effect;
    verdict_free(&v);
    return effect;
}

void session_withhold(struct session *s, const char *call_id, json_t *output)
{
    json_t *matches = json_object_get(output, "matches"), *kept = json_array(), *match;
    json_int_t withheld = 0;
    const char *last = "";
    enum br_effect effect = BR_EFFECT_DENY;
    size_t i;
    json_array_foreach(matches, i, match)
    {
        const char *path = json_string_value(json_object_get(match, "path"));
        if (path && strcmp(path, last) != 0) {
            effect = read_effect(s, call_id, path);
            last = path;
        }
        if (path && effect == BR_EFFECT_ALLOW)
            json_array_append(kept, match);
        else
            withheld++;
    }
    json_object_set_new(output, "matches", kept);
    json_object_set_new(output, "withheld", json_integer(withheld));
}
