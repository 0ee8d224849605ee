/*
 * From intent to authority: decide a call with the one table, record the decision with every vote,
 * and where the answer is "ask" wait for one correlated human answer. Whatever goes wrong on the
 * way (a script that dies, a predicate that fails, a command that cannot be taken apart) makes the
 * answer stricter, never looser.
 */
#include <stdlib.h>
#include <string.h>

#include "script/argv.h"
#include "session/session_priv.h"

#define WORDS_MAX 4096u
/* Words of a wrapper that are looked at as the beginning of what it runs. */
#define WRAPPED_MAX 64u
/* Arguments of wrappers that are looked at as lines of a shell. */
#define INNER_LINES_MAX 8u

/* The decision of a whole call: the strictest of its parts. Strings are owned. */
struct verdict {
    enum br_effect effect;
    char *rule_id, *source, *reason;
    bool opaque;
    json_t *votes;
    char *lines[INNER_LINES_MAX]; /* NULL where there was no memory */
    unsigned nlines;
};

static void verdict_free(struct verdict *v)
{
    free(v->rule_id);
    free(v->source);
    free(v->reason);
    for (unsigned i = 0; i < v->nlines; i++)
        free(v->lines[i]);
    json_decref(v->votes);
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

static void add_vote(struct verdict *v, const char *source, const char *rule_id,
                     enum br_effect effect, const char *reason)
{
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

static void mark_opaque(struct verdict *v, const char *why)
{
    v->opaque = true;
    add_vote(v, "kernel", "opaque-command", BR_EFFECT_ASK, why);
    verdict_tighten(v, BR_EFFECT_ASK, "opaque-command", "kernel", why);
}

static bool has_vote(const struct br_decision *d, const struct br_vote *vote)
{
    for (unsigned i = 0; i < d->nvotes; i++)
        if (strcmp(d->votes[i].source, vote->source) == 0 &&
            strcmp(d->votes[i].rule_id, vote->rule_id) == 0)
            return true;
    return false;
}

/*
 * The same command under another name, or one that may be run by this one: what a rule says against
 * it counts, what a rule says for it does not. A rule that would say the same of a program that
 * does not exist (a map's default) does not speak of this one.
 */
static void tighten_named(struct session *s, struct verdict *v, const char *const *words, size_t n)
{
    static const char nobody[] = "\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1";
    struct br_request q = {.action = "process.exec", .words = words, .nwords = n};
    struct br_decision d, other;
    session_table_decide(s, &q, true, &d);
    if (br_effect_strictest(v->effect, d.effect) == v->effect)
        return;
    BR_CLEANUP_FREE const char **copy = calloc(n + 1, sizeof(*copy));
    if (copy) {
        memcpy(copy, words, n * sizeof(*copy));
        copy[0] = nobody;
        q.words = copy;
        br_table_decide(s->table, &q, &other);
    }
    if (!copy || (d.nvotes == 0 && d.effect == BR_EFFECT_DENY)) {
        verdict_tighten(v, BR_EFFECT_DENY, "undecided", "kernel", "a command could not be judged");
        return;
    }
    for (unsigned i = 0; i < d.nvotes; i++) {
        const struct br_vote *vote = &d.votes[i];
        if (br_effect_strictest(v->effect, vote->effect) == v->effect || has_vote(&other, vote))
            continue;
        add_vote(v, vote->source, vote->rule_id, vote->effect, vote->reason);
        verdict_tighten(v, vote->effect, vote->rule_id, vote->source, vote->reason);
    }
}

/* As it is written, and by the last part of its program's path. */
static void tighten_names(struct session *s, struct verdict *v, const char *const *words, size_t n,
                          bool as_written)
{
    const char *slash = strrchr(words[0], '/');
    if (as_written)
        tighten_named(s, v, words, n);
    if (!slash || !slash[1])
        return;
    BR_CLEANUP_FREE const char **copy = calloc(n + 1, sizeof(*copy));
    if (!copy) {
        verdict_tighten(v, BR_EFFECT_DENY, "undecided", "kernel", "no memory to decide a command");
        return;
    }
    memcpy(copy, words, n * sizeof(*copy));
    copy[0] = slash + 1;
    tighten_named(s, v, copy, n);
}

/* Is this argument of a wrapper a line for a shell? (`sh -lc LINE`, `env -S LINE`, `watch LINE`) */
static bool is_line(const char *const *words, size_t i)
{
    static const char *const takers[] = {"eval", "trap", "watch", "ssh", "parallel", "batch"};
    const char *before = words[i - 1], *slash = strrchr(words[0], '/');
    bool takes = before[0] == '-' && strpbrk(before, "cS");
    for (size_t k = 0; k < BR_ARRAY_LEN(takers) && !takes; k++)
        takes = strcmp(slash ? slash + 1 : words[0], takers[k]) == 0;
    return takes && strpbrk(words[i], " \t\n;&|<>");
}

/* A wrapper: each of its words may begin the command that it runs, and one may be a shell's line.
 */
static void tighten_wrapped(struct session *s, struct verdict *v, const char *const *words,
                            size_t n)
{
    for (size_t i = 1; i < n && i < WRAPPED_MAX; i++) {
        if (words[i][0])
            tighten_names(s, v, words + i, n - i, true);
        if (is_line(words, i) && v->nlines < BR_ARRAY_LEN(v->lines))
            v->lines[v->nlines++] = strdup(words[i]);
    }
}

static void decide_words(struct session *s, struct verdict *v, const char *const *words, size_t n)
{
    struct br_request q = {.action = "process.exec", .words = words, .nwords = n};
    const char *why = NULL;
    decide_one(s, v, &q);
    tighten_names(s, v, words, n, false);
    if (br_shell_argv_opaque(words, n, &why)) {
        mark_opaque(v, why);
        tighten_wrapped(s, v, words, n);
    }
}

/* What may be run in a line that cannot be taken apart, or in one that a wrapper is given. */
static void tighten_words(struct session *s, struct verdict *v, const char *const *words, size_t n)
{
    tighten_names(s, v, words, n, true);
    if (br_shell_argv_opaque(words, n, NULL))
        tighten_wrapped(s, v, words, n);
}

/* A line that cannot be taken apart: its blank-separated words still meet the deny rules. */
static void decide_opaque_line(struct session *s, struct verdict *v, const char *line,
                               const char *why)
{
    BR_CLEANUP_FREE char *copy = strdup(line);
    BR_CLEANUP_FREE char **words = calloc(WORDS_MAX, sizeof(*words));
    size_t n = 0;
    char *save = NULL;
    for (char *w = copy && words ? strtok_r(copy, " \t\n", &save) : NULL; w && n < WORDS_MAX;
         w = strtok_r(NULL, " \t\n", &save))
        words[n++] = w;
    if (n == 0 || n == WORDS_MAX)
        verdict_tighten(v, BR_EFFECT_DENY, "opaque-command", "kernel", "the command is too long");
    else
        decide_one(s, v,
                   &(struct br_request){
                       .action = "process.exec", .words = (const char *const *)words, .nwords = n});
    mark_opaque(v, why);
}

typedef void words_fn(struct session *s, struct verdict *v, const char *const *words, size_t n);

/* [[str word]n]n, each command to `fn`. 0, or -1 if it is malformed. */
static int each_command(struct session *s, struct verdict *v, struct br_rd *r, uint32_t ncommands,
                        words_fn *fn)
{
    for (uint32_t i = 0; i < ncommands && !r->failed; i++) {
        uint32_t n = br_rd_u32(r);
        if (n == 0 || n > WORDS_MAX)
            return -1;
        BR_CLEANUP_FREE char **words = calloc(n + 1u, sizeof(*words));
        for (uint32_t k = 0; words && k < n; k++)
            words[k] = br_rd_strdup(r, BR_SUBJECT_MAX);
        if (words && !r->failed)
            fn(s, v, (const char *const *)words, n);
        for (uint32_t k = 0; words && k < n; k++)
            free(words[k]);
        if (!words)
            return -1;
    }
    return br_rd_done(r);
}

/* SHELL_PARSED: u8 opaque, str why, the commands. `inner`: the line is an argument of a wrapper,
 * which was marked as opaque already. 0, or -1 if it is malformed. */
static int decide_parsed(struct session *s, struct verdict *v, const char *line, bool inner)
{
    struct br_rd r;
    char why[BR_ERR_TEXT_MAX];
    br_rd_init(&r, s->scripted_reply.data.data, s->scripted_reply.data.len);
    uint8_t opaque = br_rd_u8(&r);
    br_rd_str(&r, why, sizeof(why));
    uint32_t ncommands = br_rd_u32(&r);
    if (r.failed || (!opaque && ncommands == 0))
        return -1;
    if (opaque && !inner)
        decide_opaque_line(s, v, line, why);
    return each_command(s, v, &r, ncommands, opaque || inner ? tighten_words : decide_words);
}

static void decide_line(struct session *s, struct verdict *v, const char *line, bool inner)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_out_blob(&o, line, strlen(line));
    if (session_script(s, BR_MSG_SHELL, &o) < 0 || decide_parsed(s, v, line, inner) < 0)
        verdict_tighten(v, BR_EFFECT_DENY, "shell-parser", "kernel",
                        "the command could not be taken apart");
}

/* Lines inside of lines; the list is bounded, and so is this. */
static void decide_inner_lines(struct session *s, struct verdict *v)
{
    for (unsigned i = 0; i < v->nlines && v->effect != BR_EFFECT_DENY; i++) {
        if (v->lines[i])
            decide_line(s, v, v->lines[i], true);
        else
            verdict_tighten(v, BR_EFFECT_DENY, "undecided", "kernel", "no memory for a command");
    }
}

/* A command in another directory is `cd DIRECTORY` and the command: `make` and `./test` are what
 * that directory says. */
static void decide_directory(struct session *s, struct verdict *v, const char *path)
{
    const char *const words[] = {"cd", path};
    struct br_decision d;
    char why[BR_ERR_TEXT_MAX];
    if (!path[0] || strcmp(path, ".") == 0)
        return;
    session_table_decide(
        s, &(struct br_request){.action = "process.exec", .words = words, .nwords = 2}, true, &d);
    if (br_effect_strictest(v->effect, d.effect) == v->effect)
        return;
    snprintf(why, sizeof(why), "it runs in '%.*s', which is decided as 'cd'%s%.256s",
             (int)br_utf8_floor(path, strnlen(path, 512)), path, d.reason ? ": " : "",
             d.reason ? d.reason : "");
    why[br_utf8_floor(why, strlen(why))] = 0;
    add_vote(v, d.source ? d.source : "default", d.rule_id, d.effect, why);
    verdict_tighten(v, d.effect, d.rule_id, d.source ? d.source : "default", why);
}

/* The policy failed, which session_script() has recorded; the call is denied. */
static int policy_failed(struct session *s, struct verdict *v)
{
    const char *why = s->scripted_reply.err.text;
    verdict_tighten(v, BR_EFFECT_DENY, "policy-error", "operator", why);
    add_vote(v, "operator", "policy-error", BR_EFFECT_DENY, why);
    return s->audit_lost ? -BR_E_STORE_FAILED : 0;
}

/* The operator's predicates may tighten what the table said. */
static int consult_predicates(struct session *s, struct verdict *v, const char *call_id,
                              const struct effect *e)
{
    if (!br_table_has_predicates(s->table) || v->effect == BR_EFFECT_DENY)
        return 0;
    json_t *req = json_pack("{s:s, s:s*, s:s, s:s}", "action", e->action, "subject", e->subject,
                            "callId", call_id, "effect", br_effect_name(v->effect));
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
    return session_record(s, "bridle.votes", "kernel",
                          json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:O}", "callId", call_id,
                                    "action", e->action, "subject", e->subject, "effect",
                                    br_effect_name(v->effect), "ruleId", v->rule_id, "source",
                                    v->source, "opaque", (int)v->opaque, "votes", v->votes));
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
    else if (e->shell)
        decide_line(s, v, e->subject, false);
    else
        decide_words(s, v, (const char *const *)e->op.argv, e->op.argc);
    if (e->op.op == BR_OP_EXEC) {
        decide_inner_lines(s, v);
        decide_directory(s, v, e->op.path);
    }
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
    struct verdict v = {.effect = BR_EFFECT_NONE, .votes = json_array()};
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
    struct verdict v = {.effect = BR_EFFECT_NONE, .votes = json_array()};
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
    struct verdict v = {.effect = BR_EFFECT_NONE, .votes = json_array()};
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
