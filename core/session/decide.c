/*
 * From intent to authority: decide a call with the one table, and record the decision with every
 * vote. Whatever goes wrong on the way (a script that dies, a predicate that fails, a command that
 * cannot be taken apart) makes the answer stricter, never looser. What follows from "ask" is in
 * ask.c.
 */
#include <stdlib.h>
#include <string.h>

#include "script/command.h"
#include "script/question.h"
#include "session/session_priv.h"

/* Pieces of a command that an event names, bytes of a piece, and changes of the environment. */
#define PIECES_MAX 32u
#define PIECE_MAX 512u
#define ENV_MAX 16u

void verdict_init(struct verdict *v)
{
    *v = (struct verdict){.effect = BR_EFFECT_NONE,
                          .votes = json_array(),
                          .pieces = json_array(),
                          .asking = json_array(),
                          .env = json_array()};
}

void verdict_free(struct verdict *v)
{
    free(v->rule_id);
    free(v->source);
    free(v->reason);
    json_decref(v->votes);
    json_decref(v->pieces);
    json_decref(v->asking);
    json_decref(v->env);
    memset(v, 0, sizeof(*v));
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
    return json_array_size(v->votes) < SESSION_VOTES_MAX;
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

/* n bytes of somebody's text for an event, cut at a character. */
static json_t *text_json(const char *text, size_t max)
{
    size_t n = strlen(text);
    return json_stringn(text, n > max ? br_utf8_floor(text, max) : n);
}

static void on_piece(void *ctx, const struct br_command_piece *p)
{
    struct verdict *v = ((struct deciding *)ctx)->v;
    enum br_effect effect = p->effect == BR_EFFECT_NONE ? BR_EFFECT_ASK : p->effect;
    json_t *piece = json_pack("{s:s, s:o, s:s, s:s*, s:s*}", "action", p->action, "subject",
                              text_json(p->text, PIECE_MAX), "effect", br_effect_name(effect),
                              "ruleId", p->rule_id, "source", p->source);
    if (piece && json_array_size(v->pieces) < PIECES_MAX)
        json_array_append(v->pieces, piece);
    if (piece && effect != BR_EFFECT_ALLOW) {
        if (json_array_size(v->asking) < PIECES_MAX)
            json_array_append(v->asking, piece);
        else
            v->more++;
    }
    if (strcmp(p->action, "process.exec") != 0)
        v->files = true;
    json_decref(piece);
}

static void on_env(void *ctx, const char *change)
{
    struct verdict *v = ((struct deciding *)ctx)->v;
    char text[PIECE_MAX + 1];
    snprintf(text, sizeof(text), "%s", change);
    for (char *c = text; *c; c++)
        if (br_is_unknown(*c))
            *c = '?';
    text[br_utf8_floor(text, strlen(text))] = 0;
    if (json_array_size(v->env) < ENV_MAX)
        json_array_append_new(v->env, json_string(text));
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
                                   .piece = on_piece,
                                   .env = on_env};
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
    const bool argv = e->op.op == BR_OP_EXEC && !e->shell;
    const struct br_question q = {.action = e->action,
                                  .subject = e->subject,
                                  .call_id = call_id,
                                  .effect = v->effect,
                                  .manifest = manifest_said(v),
                                  .words = argv ? (const char *const *)e->op.argv : NULL,
                                  .nwords = argv ? e->op.argc : 0,
                                  .context = &s->context};
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(BR_TOOL_JSON_MAX + BR_SUBJECT_MAX);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    bool whole = br_question_put(&text, &q) == 0; /* none is answered with an error, which denies */
    br_out_blob(&o, text.data, whole ? text.len : 0);
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

int session_record_decision(struct session *s, const struct verdict *v, const char *call_id,
                            const struct effect *e, const char *grant)
{
    json_t *d = json_pack("{s:s, s:s, s:s}", "action", e->action, "subject", e->subject, "effect",
                          br_effect_name(v->effect));
    if (v->reason)
        json_object_set_new(d, "reason", json_string(v->reason));
    json_object_set_new(d, "ruleId", json_string(v->rule_id));
    int r = session_record_ahead(s, "policy.decision", "kernel", d);
    if (r < 0)
        return r;
    json_t *votes =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:O}", "callId", call_id, "action",
                  e->action, "subject", e->subject, "effect", br_effect_name(v->effect), "ruleId",
                  v->rule_id, "source", v->source, "opaque", (int)v->opaque, "votes", v->votes);
    if (json_array_size(v->pieces))
        json_object_set(votes, "pieces", v->pieces);
    if (grant && *grant)
        json_object_set_new(votes, "grant", json_string(grant));
    return session_record(s, "bridle.votes", "kernel", votes);
}

int session_decide(struct session *s, const char *call_id, const struct effect *e,
                   const struct br_context *before, struct verdict *v)
{
    session_context(s, e, &s->context);
    if (before)
        memcpy(s->context.counters, before->counters, sizeof(s->context.counters));
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

int session_denied(const struct verdict *v, const struct effect *e, struct br_err *err)
{
    return br_err_set(err, BR_E_DENIED, "%s was denied by rule '%s'%s%s", e->action,
                      v->rule_id ? v->rule_id : "undecided", v->reason ? ": " : "",
                      v->reason ? v->reason : "");
}

int session_foresee(struct session *s, const char *call_id, const struct effect *e,
                    enum br_effect *decided, json_t **decision, struct br_err *err)
{
    struct verdict v;
    verdict_init(&v);
    int r = session_decide(s, call_id, e, NULL, &v);
    *decided = v.effect;
    *decision =
        json_pack("{s:s, s:s*, s:s, s:s*, s:s*, s:s*, s:b, s:O}", "action", e->action, "subject",
                  e->subject, "effect", br_effect_name(v.effect), "ruleId", v.rule_id, "source",
                  v.source, "reason", v.reason, "opaque", (int)v.opaque, "votes", v.votes);
    if (r < 0)
        r = br_err_set(err, (enum br_code) - r, "%s", s->stop_err.text);
    else if (v.effect != BR_EFFECT_ALLOW && v.effect != BR_EFFECT_ASK)
        r = session_denied(&v, e, err);
    verdict_free(&v);
    return r;
}

/* What the policy says about reading one file, without asking anybody. */
static enum br_effect read_effect(struct session *s, const char *call_id, const char *path)
{
    struct verdict v;
    verdict_init(&v);
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
