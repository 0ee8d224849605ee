/*
 * The decision: one vote per source, the strictest wins. It never fails and never allocates; what
 * cannot be evaluated is denied under a rule id of its own. Called by the session before every
 * effect, by `why`, and by tests. The request comes from a model and is not trusted.
 */
#include <string.h>

#include "policy/policy_priv.h"

static const char *const source_names[TABLE_SOURCES] = {"profile", "operator", "manifest"};

const char *br_source_name(unsigned source)
{
    return source_names[source];
}

const char *br_effect_name(enum br_effect e)
{
    switch (e) {
    case BR_EFFECT_ALLOW:
        return "allow";
    case BR_EFFECT_ASK:
        return "ask";
    case BR_EFFECT_DENY:
        return "deny";
    case BR_EFFECT_NONE:
        return "none";
    }
    return "deny";
}

enum br_effect br_effect_parse(const char *s, size_t n)
{
    for (enum br_effect e = BR_EFFECT_ALLOW; s && e <= BR_EFFECT_DENY; e++)
        if (strlen(br_effect_name(e)) == n && memcmp(br_effect_name(e), s, n) == 0)
            return e;
    return BR_EFFECT_NONE;
}

static enum br_effect known(enum br_effect e)
{
    return e == BR_EFFECT_NONE || e == BR_EFFECT_ALLOW || e == BR_EFFECT_ASK ? e : BR_EFFECT_DENY;
}

enum br_effect br_effect_strictest(enum br_effect a, enum br_effect b)
{
    return known(a) > known(b) ? known(a) : known(b);
}

static void answer(struct br_decision *d, enum br_effect effect, const char *id, const char *reason)
{
    d->effect = effect;
    d->rule_id = id;
    d->reason = reason;
    d->source = BR_KERNEL_SOURCE;
}

static struct br_vote *vote(struct br_decision *d, enum br_effect effect, const char *id,
                            const char *reason, unsigned source)
{
    effect = known(effect);
    if (effect == BR_EFFECT_NONE)
        effect = BR_EFFECT_DENY;
    if (d->nvotes == 0 || effect > d->effect) {
        answer(d, effect, id, reason);
        d->source = source_names[source];
        d->file = NULL;
        d->line = 0;
    }
    struct br_vote *v = &d->votes[d->nvotes++];
    *v = (struct br_vote){
        .effect = effect, .rule_id = id, .reason = reason, .source = source_names[source]};
    return v;
}

static void set_origin(struct br_decision *d, struct br_vote *v, const char *file, unsigned line)
{
    v->file = file;
    v->line = line;
    if (d->rule_id == v->rule_id) { /* it leads */
        d->file = file;
        d->line = line;
    }
}

static void vote_rule(struct br_decision *d, const struct br_rule *r)
{
    struct br_vote *v = vote(d, (enum br_effect)r->effect, r->id, r->reason, r->source);
    set_origin(d, v, r->file, r->line);
}

/* What is left of a request once it is known to be one that can be evaluated. */
struct evaluation {
    const struct br_table *t;
    const char *action;
    const struct br_bucket *bucket;   /* may be NULL */
    const struct br_context *context; /* may be NULL */
    bool has_subject;
    uint32_t best[TABLE_SOURCES];
    uint8_t *matched; /* by rank; NULL: nobody asks */
};

static void find(struct evaluation *e, enum br_view_kind kind, const struct br_probe_subject *q)
{
    if (e->bucket && e->bucket->views[kind].used)
        br_index_find(e->t, &e->bucket->views[kind], q, e->best);
    if (e->t->star.views[kind].used)
        br_index_find(e->t, &e->t->star.views[kind], q, e->best);
}

static bool uses_view(const struct evaluation *e, enum br_view_kind kind)
{
    return (e->bucket && e->bucket->views[kind].used) || e->t->star.views[kind].used;
}

/* No rule of this source matched: the manifest's map for this action or for every one, or the
 * operator's "otherwise". */
static void vote_fallback(const struct evaluation *e, unsigned source, struct br_decision *d)
{
    const struct br_bucket *buckets[] = {e->bucket, &e->t->star};
    const struct br_fallback *f = NULL;
    for (unsigned i = 0; i < BR_ARRAY_LEN(buckets); i++) {
        if (!buckets[i] || buckets[i]->fallback[source] == RANK_NONE)
            continue;
        const struct br_fallback *g = &e->t->fallbacks[buckets[i]->fallback[source]];
        if (!f || g->effect > f->effect)
            f = g;
    }
    if (!f)
        return;
    bool ask = source == BR_SOURCE_MANIFEST && !e->has_subject;
    const char *reason = ask ? "patterns exist, and there is no subject to match"
                             : "no pattern of this action matches";
    if (source != BR_SOURCE_MANIFEST)
        reason = f->reason;
    struct br_vote *v =
        vote(d, ask ? BR_EFFECT_ASK : (enum br_effect)f->effect, f->id, reason, source);
    set_origin(d, v, f->file, f->line);
}

/* Rules that match whatever the subject is are not looked up one by one. */
static void note_any(const struct evaluation *e)
{
    for (uint32_t i = 0; i < e->t->nrules; i++) {
        const struct br_rule *r = &e->t->rules[i];
        if (r->pattern.kind == BR_MATCH_ANY &&
            (strcmp(r->action, "*") == 0 || strcmp(r->action, e->action) == 0))
            e->matched[i] = br_rule_applies(e->t, r, e->context) ? BR_MATCHED : BR_UNMET;
    }
}

/* Rules for every subject that have conditions. */
static void find_some(struct evaluation *e, const struct br_bucket *b)
{
    for (uint32_t i = 0; i < b->nsome; i++) {
        const struct br_rule *r = &e->t->rules[b->some[i]];
        if (b->some[i] < e->best[r->source] && br_rule_applies(e->t, r, e->context))
            e->best[r->source] = b->some[i];
    }
}

static void conclude(struct evaluation *e, struct br_decision *d)
{
    if (e->matched)
        note_any(e);
    if (e->bucket)
        find_some(e, e->bucket);
    find_some(e, &e->t->star);
    for (unsigned s = 0; s < TABLE_SOURCES; s++) {
        uint32_t best = e->best[s];
        if (e->bucket && e->bucket->any[s] < best)
            best = e->bucket->any[s];
        if (e->t->star.any[s] < best)
            best = e->t->star.any[s];
        if (best != RANK_NONE)
            vote_rule(d, &e->t->rules[best]);
        else
            vote_fallback(e, s, d);
    }
    if (d->nvotes == 0)
        answer(d, BR_EFFECT_ASK, BR_RULE_DEFAULT, "no rule has an opinion");
}

/* ---- subjects ---- */

static bool is_path_action(const char *action)
{
    return strncmp(action, "fs.", 3) == 0;
}

static bool subject_valid(const struct evaluation *e, const char *action, const char *s, size_t n)
{
    if (memchr(s, 0, n))
        return false;
    bool path = is_path_action(action) || (e->bucket && e->bucket->has_path) || e->t->star.has_path;
    if (path && !br_path_valid(s, n))
        return false;
    bool host = strcmp(action, "network") == 0 || (e->bucket && e->bucket->has_host);
    return !host || br_host_valid(s, n);
}

/* Lower-case host, port apart. A subject that is no host matches no host pattern. */
static void find_host(struct evaluation *e, const char *s, size_t n)
{
    char host[HOST_MAX];
    struct br_probe_subject q = {.s = host, .matched = e->matched, .context = e->context};
    if (!br_host_valid(s, n))
        return;
    br_host_split(s, n, &q.n, &q.port, &q.port_len);
    for (size_t i = 0; i < q.n; i++)
        host[i] = s[i] >= 'A' && s[i] <= 'Z' ? (char)(s[i] - 'A' + 'a') : s[i];
    find(e, BR_VIEW_HOST, &q);
}

static void decide_subject(struct evaluation *e, const struct br_request *q, struct br_decision *d)
{
    if (q->subject_len == 0) {
        answer(d, BR_EFFECT_DENY, BR_RULE_EMPTY, "the subject is empty");
        return;
    }
    if (q->subject_len > BR_SUBJECT_MAX) {
        answer(d, BR_EFFECT_DENY, BR_RULE_TOO_LONG, "the subject is too long to be judged");
        return;
    }
    if (!subject_valid(e, q->action, q->subject, q->subject_len)) {
        answer(d, BR_EFFECT_DENY, BR_RULE_INVALID_SUBJECT,
               "the subject is not in the one form that rules are written for");
        return;
    }
    e->has_subject = true;
    struct br_probe_subject probe = {
        .s = q->subject, .n = q->subject_len, .matched = e->matched, .context = e->context};
    find(e, BR_VIEW_SUBJECT, &probe);
    if (uses_view(e, BR_VIEW_HOST))
        find_host(e, q->subject, q->subject_len);
    conclude(e, d);
}

/* ---- commands ---- */

/* Bytes of the words joined by one separator each, or SIZE_MAX if that is over the limit. */
static size_t joined_length(const char *const *words, size_t nwords)
{
    size_t total = nwords - 1;
    for (size_t i = 0; i < nwords && total <= BR_SUBJECT_MAX; i++)
        total += strnlen(words[i], BR_SUBJECT_MAX + 1);
    return total <= BR_SUBJECT_MAX ? total : SIZE_MAX;
}

static void join(char *dst, const char *const *words, size_t nwords)
{
    for (size_t i = 0; i < nwords; i++) {
        dst = stpcpy(dst, words[i]);
        dst++; /* stpcpy left the NUL that separates words */
    }
}

static __attribute__((noinline)) void
decide_uncertain(struct evaluation *e, const struct br_request *q, size_t n, struct br_decision *d)
{
    char buf[BR_SUBJECT_MAX + 1];
    struct br_uncertain u;
    join(buf, q->words, q->nwords);
    br_uncertain_find(e->t, q, buf, n, e->matched, &u);
    for (unsigned s = 0; s < TABLE_SOURCES; s++) {
        struct br_decision rest = {.effect = BR_EFFECT_NONE};
        if (s == BR_SOURCE_MANIFEST ? !u.certain[s] : !u.best[s]) /* perhaps nothing matches */
            vote_fallback(e, s, &rest);
        if (rest.nvotes && (!u.best[s] || rest.effect > (enum br_effect)u.best[s]->effect))
            vote_fallback(e, s, d);
        else if (u.best[s])
            vote_rule(d, u.best[s]);
    }
    if (d->nvotes == 0)
        answer(d, BR_EFFECT_ASK, BR_RULE_DEFAULT, "no rule has an opinion");
}

static void find_words(struct evaluation *e, const struct br_request *q, char *buf, size_t n)
{
    join(buf, q->words, q->nwords);
    struct br_probe_subject probe = {
        .s = buf, .n = n, .matched = e->matched, .context = e->context};
    find(e, BR_VIEW_WORDS, &probe);
}

/* Two sizes of stack frame: almost every command is short, and a large frame costs more to enter
 * than the decision. */
#define SHORT_COMMAND 1024u
/* Of a program and its sub-command; what is longer costs time, not certainty. */
#define PROGRAM_KEY 512u

static __attribute__((noinline)) void find_short(struct evaluation *e, const struct br_request *q,
                                                 size_t n)
{
    char buf[SHORT_COMMAND + 1];
    find_words(e, q, buf, n);
}

static __attribute__((noinline)) void find_long(struct evaluation *e, const struct br_request *q,
                                                size_t n)
{
    char buf[BR_SUBJECT_MAX + 1];
    find_words(e, q, buf, n);
}

static void decide_words(struct evaluation *e, const struct br_request *q, struct br_decision *d)
{
    for (size_t i = 0; i < q->nwords; i++) {
        if (!q->words[i]) {
            answer(d, BR_EFFECT_DENY, BR_RULE_INVALID_REQUEST, "a word of the command is missing");
            return;
        }
    }
    if (q->nwords == 0 || !q->words[0][0]) {
        answer(d, BR_EFFECT_DENY, BR_RULE_EMPTY, "the command is empty");
        return;
    }
    size_t n = joined_length(q->words, q->nwords);
    if (n == SIZE_MAX) {
        answer(d, BR_EFFECT_DENY, BR_RULE_TOO_LONG, "the command is too long to be judged");
        return;
    }
    e->has_subject = true;
    if (q->unknown) {
        decide_uncertain(e, q, n, d);
        return;
    }
    if (uses_view(e, BR_VIEW_PROGRAM)) {
        char key[PROGRAM_KEY];
        struct br_probe_subject probe = {
            .words = q->words, .nwords = q->nwords, .matched = e->matched, .context = e->context};
        br_command_probe(e->t, q->words, q->nwords, key, sizeof(key), &probe);
        find(e, BR_VIEW_PROGRAM, &probe);
    }
    if (uses_view(e, BR_VIEW_WORDS)) {
        if (n <= SHORT_COMMAND)
            find_short(e, q, n);
        else
            find_long(e, q, n);
    }
    conclude(e, d);
}

void br_decide_noting(const struct br_table *t, const struct br_request *q, uint8_t *matched,
                      struct br_decision *d)
{
    memset(d, 0, sizeof(*d));
    answer(d, BR_EFFECT_DENY, BR_RULE_INVALID_REQUEST, "the request cannot be evaluated");
    size_t action_len = t && q && q->action ? strnlen(q->action, BR_ACTION_MAX + 1) : 0;
    if (action_len == 0 || action_len > BR_ACTION_MAX)
        return;
    struct evaluation e = {.t = t,
                           .action = q->action,
                           .bucket = br_index_bucket(t, q->action),
                           .context = q->context,
                           .best = {RANK_NONE, RANK_NONE, RANK_NONE},
                           .matched = matched};
    if (q->words)
        decide_words(&e, q, d);
    else if (q->subject)
        decide_subject(&e, q, d);
    else
        conclude(&e, d);
}

void br_table_decide(const struct br_table *t, const struct br_request *q, struct br_decision *d)
{
    br_decide_noting(t, q, NULL, d);
}

/* ---- the matchers alone ---- */

static bool match_once(enum br_match_kind kind, const char *pattern, const char *s, size_t n,
                       const char *port, size_t port_len)
{
    struct br_arena arena = {.chunks = NULL};
    struct br_pattern p;
    bool yes = n <= BR_SUBJECT_MAX &&
               br_pattern_compile(kind, pattern, strlen(pattern), &arena, &p) == 0 &&
               br_pattern_match(&p, s, n);
    if (yes && kind == BR_MATCH_HOST && p.port)
        yes = port && strlen(p.port) == port_len && memcmp(p.port, port, port_len) == 0;
    br_arena_free(&arena);
    return yes;
}

bool br_match_path(const char *pattern, const char *subject, size_t n)
{
    return match_once(BR_MATCH_PATH, pattern, subject, n, NULL, 0);
}

bool br_match_text(const char *pattern, const char *subject, size_t n)
{
    return match_once(BR_MATCH_TEXT, pattern, subject, n, NULL, 0);
}

bool br_match_host(const char *pattern, const char *subject, size_t n)
{
    char host[HOST_MAX];
    const char *port;
    size_t len, port_len;
    if (!br_host_valid(subject, n))
        return false;
    br_host_split(subject, n, &len, &port, &port_len);
    for (size_t i = 0; i < len; i++)
        host[i] =
            subject[i] >= 'A' && subject[i] <= 'Z' ? (char)(subject[i] - 'A' + 'a') : subject[i];
    return match_once(BR_MATCH_HOST, pattern, host, len, port, port_len);
}

bool br_match_words(const char *pattern, const char *const *words, size_t nwords)
{
    char buf[BR_SUBJECT_MAX + 1];
    size_t n = nwords ? joined_length(words, nwords) : SIZE_MAX;
    if (n == SIZE_MAX)
        return false;
    join(buf, words, nwords);
    return match_once(BR_MATCH_COMMAND, pattern, buf, n, NULL, 0);
}
