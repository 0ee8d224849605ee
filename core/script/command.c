/*
 * The decision of a command on what will run. See command.h. The words are a model's, and what the
 * parser says comes from a program that reads hostile text: whatever is malformed denies, and
 * whatever cannot be looked through is asked about at least.
 */
#include <stdlib.h>
#include <string.h>

#include "script/argv.h"
#include "script/command.h"

#define WORKSPACE "/workspace"
/* Words of an opaque command that are looked at as the beginning of what it runs. */
#define WRAPPED_MAX 64u

/* One decision while it is made. */
struct work {
    const struct br_commander *c;
    struct br_verdict *v;
    const char *directory;
    unsigned depth;
    bool guess; /* inside of something opaque: only what a rule says against it counts */
    char *lines[BR_COMMAND_LINES_MAX]; /* to be parsed yet, with whether they are a guess */
    bool guesses[BR_COMMAND_LINES_MAX];
    unsigned nlines;
    char **env; /* the changes in front of the command that is decided */
    size_t nenv;
};

void br_verdict_free(struct br_verdict *v)
{
    free(v->rule_id);
    free(v->source);
    free(v->reason);
    memset(v, 0, sizeof(*v));
}

void br_verdict_tighten(struct br_verdict *v, enum br_effect effect, const char *rule_id,
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

static void tell_vote(struct work *k, const char *source, const char *rule_id,
                      enum br_effect effect, const char *reason)
{
    if (k->c->vote)
        k->c->vote(k->c->ctx, source, rule_id, effect, reason);
}

static void mark_opaque(struct work *k, const char *why)
{
    if (k->guess)
        return;
    k->v->opaque = true;
    tell_vote(k, "kernel", "opaque-command", BR_EFFECT_ASK, why);
    br_verdict_tighten(k->v, BR_EFFECT_ASK, "opaque-command", "kernel", why);
}

static void no_memory(struct work *k)
{
    br_verdict_tighten(k->v, BR_EFFECT_DENY, "undecided", "kernel",
                       "no memory to decide a command");
}

/* ---- one request ---- */

static void table_decide(const struct work *k, const struct br_request *asked, bool against,
                         bool seen, struct br_decision *d)
{
    struct br_context context;
    struct br_request q = *asked;
    for (size_t i = 0; q.words && i < q.nwords && !q.unknown; i++)
        q.unknown = br_word_unknown(q.words[i]);
    q.context = k->c->context;
    if (k->env && q.context && q.context->has_env) {
        context = *q.context;
        context.env = (const char *const *)k->env;
        context.nenv = k->nenv;
        q.context = &context;
    }
    if (seen && k->c->decide)
        k->c->decide(k->c->ctx, &q, against, d);
    else
        br_table_decide(k->c->table, &q, d);
}

static void decide_one(struct work *k, const struct br_request *q)
{
    struct br_decision d;
    table_decide(k, q, k->guess, true, &d);
    for (unsigned i = 0; i < d.nvotes; i++)
        tell_vote(k, d.votes[i].source, d.votes[i].rule_id, d.votes[i].effect, d.votes[i].reason);
    br_verdict_tighten(k->v, d.effect, d.rule_id, d.source ? d.source : "default",
                       d.reason   ? d.reason
                       : d.nvotes ? NULL
                                  : "no rule has an opinion");
    if (k->c->piece && q->subject && strcmp(q->action, "process.exec") != 0)
        k->c->piece(k->c->ctx, &(struct br_command_piece){.action = q->action,
                                                          .text = q->subject,
                                                          .effect = d.effect,
                                                          .rule_id = d.rule_id,
                                                          .source = d.source,
                                                          .reason = d.reason});
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
static void tighten_words(struct work *k, const char *const *words, size_t n)
{
    static const char nobody[] = "\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1";
    struct br_request q = {.action = "process.exec", .words = words, .nwords = n};
    struct br_decision d, other;
    table_decide(k, &q, true, true, &d);
    if (br_effect_strictest(k->v->effect, d.effect) == k->v->effect)
        return;
    BR_CLEANUP_FREE const char **copy = calloc(n + 1, sizeof(*copy));
    if (copy) {
        memcpy(copy, words, n * sizeof(*copy));
        copy[0] = nobody;
        q.words = copy;
        table_decide(k, &q, true, false, &other);
    }
    if (!copy || (d.nvotes == 0 && d.effect == BR_EFFECT_DENY)) {
        br_verdict_tighten(k->v, BR_EFFECT_DENY, "undecided", "kernel",
                           "a command could not be judged");
        return;
    }
    for (unsigned i = 0; i < d.nvotes; i++) {
        const struct br_vote *vote = &d.votes[i];
        if (vote->effect == BR_EFFECT_ALLOW ||
            br_effect_strictest(k->v->effect, vote->effect) == k->v->effect ||
            has_vote(&other, vote))
            continue;
        tell_vote(k, vote->source, vote->rule_id, vote->effect, vote->reason);
        br_verdict_tighten(k->v, vote->effect, vote->rule_id, vote->source, vote->reason);
    }
}

static void tighten_spelling(void *ctx, const char *const *words, size_t n)
{
    if (n == 0)
        no_memory(ctx);
    else
        tighten_words(ctx, words, n);
}

/* ---- commands and what they run ---- */

static void decide_words(struct work *k, const char *const *words, size_t n);

static void add_line(struct work *k, const char *line, bool guess)
{
    if (k->nlines == BR_COMMAND_LINES_MAX) {
        mark_opaque(k, "it has too many lines for a shell in it");
        return;
    }
    k->guesses[k->nlines] = guess;
    k->lines[k->nlines] = strdup(line);
    if (k->lines[k->nlines])
        k->nlines++;
    else
        no_memory(k);
}

static void on_command(void *ctx, const char *const *words, size_t n)
{
    decide_words(ctx, words, n);
}

static void on_line(void *ctx, const char *line, bool certain)
{
    struct work *k = ctx;
    BR_CLEANUP_FREE char *copy = NULL;
    if (!certain) { /* for rules that deny: as if something unknown stood there */
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4 * BR_SUBJECT_MAX);
        for (const char *p = line; *p; p++)
            if (br_is_unknown(*p))
                br_buf_put(&b, "${x}", 4);
            else
                br_buf_put_u8(&b, (uint8_t)*p);
        copy = br_buf_cstr(&b) ? strdup(br_buf_cstr(&b)) : NULL;
        if (!copy)
            no_memory(k);
        line = copy;
    }
    if (line)
        add_line(k, line, k->guess || !certain);
}

static void on_env(void *ctx, const char *change)
{
    struct work *k = ctx;
    if (k->c->env && !k->guess)
        k->c->env(k->c->ctx, change);
    if (!br_env_harmless(change))
        mark_opaque(ctx, "it changes the environment in a way that can change what runs");
}

/* Is this argument of something opaque a line for a shell? (`eval LINE`, `su -c LINE`, `watch
 * LINE`) */
static bool is_line(const char *const *words, size_t i)
{
    static const char *const takers[] = {"compgen", "mispipe", "pee",      "eval", "trap",
                                         "watch",   "ssh",     "parallel", "batch"};
    const char *before = words[i - 1], *slash = strrchr(words[0], '/');
    bool takes = before[0] == '-' && strpbrk(before, "cS");
    for (size_t k = 0; k < BR_ARRAY_LEN(takers) && !takes; k++)
        takes = strcmp(slash ? slash + 1 : words[0], takers[k]) == 0;
    return takes && strpbrk(words[i], " \t\n;&|<>");
}

/* What may be run by something opaque: each of its words may begin it, and one may be a line. */
static void guess_wrapped(struct work *k, const char *const *words, size_t n)
{
    bool guess = k->guess;
    k->guess = true;
    for (size_t i = 1; i < n && i < WRAPPED_MAX; i++) {
        if (words[i][0] && !br_word_unknown(words[i])) {
            tighten_words(k, words + i, n - i);
            br_argv_spellings(words + i, n - i, tighten_spelling, k);
        }
        if (is_line(words, i))
            on_line(k, words[i], !br_word_unknown(words[i]));
    }
    k->guess = guess;
}

/* The words as they are. */
static void decide_exact(struct work *k, const char *const *words, size_t n, bool wrapper)
{
    if (n > 0 && br_word_unknown(words[0])) {
        /* it could be anything: rules for every command speak of it, and it is asked about */
        if (!k->guess)
            decide_one(k, &(struct br_request){
                              .action = "process.exec", .subject = "?", .subject_len = 1});
        return;
    }
    if (k->guess || wrapper)
        tighten_words(k, words, n);
    else
        decide_one(k, &(struct br_request){.action = "process.exec", .words = words, .nwords = n});
    if (n > 0 && words[0][0])
        br_argv_spellings(words, n, tighten_spelling, k);
}

static void tell_piece(struct work *k, const char *const *words, size_t n)
{
    const struct br_verdict *v = k->v;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4 * BR_SUBJECT_MAX);
    if (!k->c->piece || k->guess || br_exec_subject((char *const *)words, (uint32_t)n, &b) < 0)
        return;
    for (size_t i = 0; i < b.len; i++) /* for people */
        if (br_is_unknown((char)b.data[i]))
            b.data[i] = '?';
    if (br_buf_cstr(&b))
        k->c->piece(k->c->ctx, &(struct br_command_piece){.action = "process.exec",
                                                          .text = br_buf_cstr(&b),
                                                          .effect = v->effect,
                                                          .rule_id = v->rule_id,
                                                          .source = v->source,
                                                          .reason = v->reason});
}

/* What was found out about a part of it. */
static void add_verdict(struct br_verdict *to, struct br_verdict *v)
{
    to->opaque |= v->opaque;
    if (v->rule_id && v->source)
        br_verdict_tighten(to, v->effect, v->rule_id, v->source, v->reason);
    else if (v->effect != BR_EFFECT_NONE)
        br_verdict_tighten(to, BR_EFFECT_DENY, "undecided", "kernel", "no memory for a decision");
    br_verdict_free(v);
}

static void decide_words(struct work *k, const char *const *words, size_t n)
{
    const struct br_argv_sink sink = {
        .ctx = k, .command = on_command, .line = on_line, .env = on_env};
    const char *why = NULL;
    if (k->depth == BR_COMMAND_DEPTH_MAX) {
        mark_opaque(k, "it is nested too deeply");
        return;
    }
    k->depth++;
    /* a piece is shown with what is said of it alone */
    struct br_verdict own = {.effect = BR_EFFECT_NONE}, *all = k->v;
    if (!k->guess)
        k->v = &own; /* cppcheck-suppress autoVariables ; until the end of this function */
    enum br_argv_kind kind = br_argv_unwrap(words, n, &sink, &why);
    if (kind == BR_ARGV_OPAQUE)
        mark_opaque(k, why);
    decide_exact(k, words, n, kind == BR_ARGV_WRAPPER);
    if (kind == BR_ARGV_OPAQUE)
        guess_wrapped(k, words, n);
    if (kind != BR_ARGV_WRAPPER)
        tell_piece(k, words, n);
    if (k->v == &own) {
        k->v = all;
        add_verdict(all, &own);
    }
    k->depth--;
}

/* ---- redirections ---- */

/* The one spelling of a path in the workspace, or NULL. */
static char *workspace_path(const char *directory, const char *target)
{
    size_t prefix = strlen(WORKSPACE);
    if (strncmp(target, WORKSPACE "/", prefix + 1) == 0) {
        target += prefix + 1;
        directory = "";
    }
    if (*target == '/')
        return NULL;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_PATH_MAX * 2);
    const char *parts[] = {directory, target};
    for (unsigned i = 0; i < BR_ARRAY_LEN(parts); i++) {
        for (const char *p = parts[i]; *p;) {
            size_t n = strcspn(p, "/");
            if (n == 2 && p[0] == '.' && p[1] == '.') /* where that is depends on links */
                return NULL;
            if (n > 0 && !(n == 1 && p[0] == '.')) {
                if (b.len)
                    br_buf_put_u8(&b, '/');
                br_buf_put(&b, p, n);
            }
            p += n + (p[n] == '/');
        }
    }
    const char *s = br_buf_cstr(&b);
    return s && *s ? strdup(s) : NULL;
}

static void decide_redirect(struct work *k, const char *target, unsigned bits, bool moves)
{
    static const char *const nothing[] = {"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr"};
    for (size_t i = 0; i < BR_ARRAY_LEN(nothing); i++)
        if (strcmp(target, nothing[i]) == 0)
            return;
    if (br_word_unknown(target)) {
        mark_opaque(k, "which file it is redirected to is known only when it runs");
        return;
    }
    if (moves && *target != '/') {
        mark_opaque(k, "it is redirected to a file, and changes its directory");
        return;
    }
    BR_CLEANUP_FREE char *path = workspace_path(k->directory, target);
    if (!path) {
        mark_opaque(k, "it is redirected to a file that is not in the workspace by its name");
        return;
    }
    struct br_request q = {.action = "fs.read", .subject = path, .subject_len = strlen(path)};
    if (bits & 1)
        decide_one(k, &q);
    q.action = "fs.write";
    if (bits & 2)
        decide_one(k, &q);
}

/* ---- lines ---- */

/* n words as a list that is one allocation with its texts; NULL if they are malformed. */
static char **read_words(struct br_rd *r, uint32_t *n, uint32_t least)
{
    *n = br_rd_u32(r);
    if (r->failed || *n > BR_COMMAND_WORDS_MAX || *n < least)
        return NULL;
    char **words = calloc(*n + 1u, sizeof(*words));
    for (uint32_t i = 0; words && i < *n; i++)
        words[i] = br_rd_strdup(r, BR_SUBJECT_MAX);
    return words;
}

static void free_words(char **words)
{
    for (size_t i = 0; words && words[i]; i++)
        free(words[i]);
    free(words);
}

static bool read_command(struct work *k, struct br_rd *r)
{
    uint32_t nenv = 0, n = 0;
    char **env = read_words(r, &nenv, 0);
    char **words = env ? read_words(r, &n, 1) : NULL;
    bool ok = words && !r->failed;
    if (ok) {
        k->env = nenv ? env : NULL;
        k->nenv = nenv;
        for (uint32_t i = 0; i < nenv; i++)
            on_env(k, env[i]);
        decide_words(k, (const char *const *)words, n);
        k->env = NULL;
    }
    free_words(env);
    free_words(words);
    return ok;
}

/* A line that is not taken apart: its blank-separated words still meet the rules. */
static void decide_opaque_line(struct work *k, const char *line, const char *why)
{
    BR_CLEANUP_FREE char *copy = strdup(line);
    BR_CLEANUP_FREE char **words = calloc(BR_COMMAND_WORDS_MAX, sizeof(*words));
    size_t n = 0;
    char *save = NULL;
    for (char *w = copy && words ? strtok_r(copy, " \t\n", &save) : NULL;
         w && n < BR_COMMAND_WORDS_MAX; w = strtok_r(NULL, " \t\n", &save))
        words[n++] = w;
    mark_opaque(k, why);
    if (n == 0)
        br_verdict_tighten(k->v, BR_EFFECT_DENY, BR_RULE_EMPTY, "kernel", "the command is empty");
    else if (n == BR_COMMAND_WORDS_MAX)
        br_verdict_tighten(k->v, BR_EFFECT_DENY, "opaque-command", "kernel",
                           "the command is too long");
    else
        decide_one(k, &(struct br_request){.action = "process.exec",
                                           .words = (const char *const *)words,
                                           .nwords = n});
}

/* The body of SHELL_PARSED. False if it is malformed. */
static bool decide_parsed(struct work *k, const char *line, const void *body, size_t len)
{
    struct br_rd r;
    char why[BR_ERR_TEXT_MAX];
    br_rd_init(&r, body, len);
    unsigned bits = br_rd_u8(&r);
    br_rd_str(&r, why, sizeof(why));
    uint32_t ncommands = br_rd_u32(&r);
    bool opaque = bits & 1;
    if (r.failed || bits > 3 || ncommands > BR_COMMAND_WORDS_MAX)
        return false;
    if (opaque && !k->guess)
        decide_opaque_line(k, line, why);
    k->guess |= opaque;
    for (uint32_t i = 0; i < ncommands; i++)
        if (!read_command(k, &r))
            return false;
    uint32_t nredirects = br_rd_u32(&r);
    if (r.failed || nredirects > BR_COMMAND_WORDS_MAX || (!opaque && ncommands + nredirects == 0))
        return false;
    for (uint32_t i = 0; i < nredirects; i++) {
        unsigned how = br_rd_u8(&r);
        BR_CLEANUP_FREE char *target = br_rd_strdup(&r, BR_SUBJECT_MAX);
        if (r.failed || how < 1 || how > 3)
            return false;
        decide_redirect(k, target, how, bits & 2);
    }
    return br_rd_done(&r) == 0;
}

static void decide_line(struct work *k, const char *line, bool guess)
{
    const void *body;
    size_t len;
    BR_CLEANUP_FREE void *copy = NULL;
    k->guess = guess;
    int r = k->c->shell(k->c->ctx, line, strlen(line), &body, &len);
    if (r == 0 && !(copy = malloc(len + 1)))
        r = -BR_E_NOMEM;
    if (r == 0) {
        memcpy(copy, body, len);
        r = decide_parsed(k, line, copy, len) ? 0 : -BR_E_PEER_PROTOCOL;
    }
    if (r < 0)
        br_verdict_tighten(k->v, BR_EFFECT_DENY, "shell-parser", "kernel",
                           "the command could not be taken apart");
}

/* Lines inside of lines; the list is bounded, and so is this. */
static void decide_inner_lines(struct work *k)
{
    for (unsigned i = 0; i < k->nlines; i++) {
        if (k->v->effect != BR_EFFECT_DENY)
            decide_line(k, k->lines[i], k->guesses[i]);
        free(k->lines[i]);
    }
}

/* A command in another directory is `cd DIRECTORY` and the command: `make` and `./test` are what
 * that directory says. */
static void decide_directory(struct work *k)
{
    const char *const words[] = {"cd", k->directory};
    struct br_decision d;
    char why[BR_ERR_TEXT_MAX];
    const char *path = k->directory;
    if (!path[0] || strcmp(path, ".") == 0)
        return;
    table_decide(k, &(struct br_request){.action = "process.exec", .words = words, .nwords = 2},
                 true, true, &d);
    if (br_effect_strictest(k->v->effect, d.effect) == k->v->effect)
        return;
    snprintf(why, sizeof(why), "it runs in '%.*s', which is decided as 'cd'%s%.256s",
             (int)br_utf8_floor(path, strnlen(path, 512)), path, d.reason ? ": " : "",
             d.reason ? d.reason : "");
    why[br_utf8_floor(why, strlen(why))] = 0;
    tell_vote(k, d.source ? d.source : "default", d.rule_id, d.effect, why);
    br_verdict_tighten(k->v, d.effect, d.rule_id, d.source ? d.source : "default", why);
}

static void finish(struct work *k)
{
    decide_inner_lines(k);
    decide_directory(k);
    k->guess = false;
    if (k->v->effect == BR_EFFECT_NONE)
        mark_opaque(k, "there is nothing in it to be decided");
    if (k->v->effect == BR_EFFECT_NONE || !k->v->rule_id || !k->v->source)
        br_verdict_tighten(k->v, BR_EFFECT_DENY, "undecided", "kernel", "the decision failed");
}

void br_command_argv(const struct br_commander *c, const char *const *words, size_t n,
                     const char *directory, struct br_verdict *v)
{
    struct work k = {.c = c, .v = v, .directory = directory ? directory : ""};
    decide_words(&k, words, n);
    finish(&k);
}

void br_command_line(const struct br_commander *c, const char *line, const char *directory,
                     struct br_verdict *v)
{
    struct work k = {.c = c, .v = v, .directory = directory ? directory : ""};
    decide_line(&k, line, false);
    finish(&k);
}
