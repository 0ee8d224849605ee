/*
 * bridle policy why: one decision, with what every rule has to say about it. The session decides
 * and explains; here the letters that it sends, one a rule, are put beside the rules of the table.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/policy_priv.h"

/* ---- as text ---- */

static const char *why_text(char letter)
{
    switch (letter) {
    case 'm':
        return "matches";
    case 'a':
        return "another action";
    case 'n':
        return "needs a subject";
    case 'o':
        return "a rule of its source matches";
    case 'c':
        return "its condition does not hold";
    case 's':
        return "its pattern does not match";
    default:
        return "not looked at: the request is refused as such";
    }
}

static void put_vote(struct policy_out *o, const char *lead, const json_t *vote)
{
    char where[BR_PATH_MAX + 16];
    size_t n;
    const char *effect = view_str(vote, "effect", &n);
    br_buf_printf(&o->v.out, "%s", lead);
    policy_out_cell(o, view_str(vote, "source", &n), 9);
    view_word(&o->v, view_effect_style(effect), effect, 5);
    br_buf_printf(&o->v.out, "  ");
    policy_out_name(o, view_str(vote, "ruleId", &n), 1);
    if (*policy_where(vote, where)) {
        br_buf_printf(&o->v.out, "  ");
        policy_out_name(o, where, 1);
    }
    const char *reason = view_str(vote, "reason", &n);
    if (n) {
        br_buf_printf(&o->v.out, "  ");
        br_cli_put_line(&o->v.out, reason, n, o->tty ? 200 : 8192);
    }
    br_buf_printf(&o->v.out, "\n");
}

/* `n` rules of one author's rule, of which this is the first, that have the same to say. */
static void put_rule(struct policy_out *o, const json_t *rule, char letter, unsigned n)
{
    char where[BR_PATH_MAX + 16], matcher[BR_PATTERN_MAX + 32], id[BR_NAME_MAX];
    size_t len;
    const char *effect = view_str(rule, "effect", &len), *full = view_str(rule, "id", &len);
    snprintf(id, sizeof(id), "%.*s", (int)(n > 1 ? policy_base_id(full) : len), full);
    br_buf_printf(&o->v.out, letter == 'm' ? "    + " : "    - ");
    view_word(&o->v, letter == 'm' ? view_effect_style(effect) : VIEW_DIM, effect, 5);
    br_buf_printf(&o->v.out, "  ");
    policy_out_name(o, id, 28);
    br_buf_printf(&o->v.out, "  ");
    if (n > 1)
        snprintf(matcher, sizeof(matcher), "%u patterns", n);
    policy_out_cell(o, n > 1 ? matcher : policy_matcher(rule, matcher), 28);
    br_buf_printf(&o->v.out, "  ");
    if (*policy_where(rule, where)) {
        policy_out_name(o, where, 1);
        br_buf_printf(&o->v.out, "  ");
    }
    bool fallback = !json_object_get(rule, "match");
    br_buf_printf(&o->v.out, "%s\n",
                  n > 1 && letter == 's'      ? "none matches"
                  : fallback && letter == 'm' ? "no rule of its source matches"
                                              : why_text(letter));
}

/* How many rules from i on are one rule of their author's with the same letter. */
static unsigned run_of(const json_t *rules, const char *letters, size_t i)
{
    size_t n;
    const char *first = view_str(json_array_get(rules, i), "id", &n);
    size_t len = policy_base_id(first);
    unsigned k = 1;
    for (; letters[i + k] == letters[i] && i + k < json_array_size(rules); k++) {
        const char *id = view_str(json_array_get(rules, i + k), "id", &n);
        if (policy_base_id(id) != len || memcmp(id, first, len) != 0)
            break;
    }
    return k;
}

/* `only`: those that match, and how many there are of the others. */
static void put_rules(struct policy_out *o, const json_t *table, const char *letters, bool all,
                      bool only)
{
    const json_t *rules = json_object_get(table, "rules");
    unsigned actions = 0, others = 0;
    for (size_t i = 0; letters[i] && i < json_array_size(rules);) {
        unsigned n = all || letters[i] == 'm' ? 1 : run_of(rules, letters, i);
        if (!all && letters[i] == 'a')
            actions += n;
        else if (!all && letters[i] != 'm' && (only || letters[i] == 'r'))
            others += n;
        else
            put_rule(o, json_array_get(rules, i), letters[i], n);
        i += n;
        if (!policy_out_flush(o, false))
            return;
    }
    if (others)
        br_buf_printf(&o->v.out,
                      letters[0] == 'r'
                          ? "    - the request is refused as such; none of %u rules was "
                            "looked at\n"
                          : "    - %u rules do not match\n",
                      others);
    if (actions)
        br_buf_printf(&o->v.out, "    - %u rules speak of other actions (--all shows them)\n",
                      actions);
}

static void put_words(struct policy_out *o, const json_t *t)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_VIEW_MAX);
    size_t i, n;
    const json_t *w;
    json_array_foreach(json_object_get(t, "words"), i, w)
    {
        const char *s = json_string_value(w);
        bool plain = *s && !s[strcspn(s, " \t\n\"'\\$`;&|<>(){}*?[]#~!")];
        br_buf_printf(&b, plain ? "%s" : "%s'", i ? " " : "");
        br_buf_put(&b, s, strlen(s));
        br_buf_printf(&b, plain ? "" : "'");
    }
    const char *subject = view_str(t, "subject", &n);
    if (json_object_get(t, "subject"))
        br_buf_put(&b, subject, n);
    br_cli_put_line(&o->v.out, (char *)b.data, b.len, o->tty ? 400 : 8192);
}

/* Its vote is the fallback's: no rule of its source matched. */
static bool voted(const json_t *t, const json_t *fallback)
{
    const json_t *vote;
    size_t i;
    json_array_foreach(json_object_get(t, "votes"), i,
                       vote) if (json_equal(json_object_get(vote, "ruleId"),
                                            json_object_get(fallback, "id"))) return true;
    return false;
}

static bool speaks_of(const json_t *fallback, const json_t *t)
{
    const char *action = json_string_value(json_object_get(fallback, "action"));
    return action && (strcmp(action, "*") == 0 || json_equal(json_object_get(fallback, "action"),
                                                             json_object_get(t, "action")));
}

/* What is done where no rule of a source matches. */
static void put_fallbacks(struct policy_out *o, const json_t *table, const json_t *t)
{
    const json_t *f;
    size_t i;
    json_array_foreach(json_object_get(table, "fallbacks"), i, f) if (speaks_of(f, t))
        put_rule(o, f, voted(t, f) ? 'm' : 'o', 1);
}

static void put_step(struct policy_out *o, const json_t *table, const json_t *t, bool all)
{
    size_t i, n;
    const json_t *vote;
    br_buf_printf(&o->v.out, "  ");
    policy_out_name(o, view_str(t, "action", &n), 1);
    br_buf_printf(&o->v.out, " ");
    put_words(o, t);
    bool against = json_is_true(json_object_get(t, "against"));
    if (against && !all && !strchr(view_str(t, "rules", &n), 'm')) {
        br_buf_printf(&o->v.out, "  (no rule speaks against it)\n");
        return;
    }
    if (against)
        br_buf_printf(&o->v.out, "  (only what speaks against it counts)");
    br_buf_printf(&o->v.out, "\n");
    put_rules(o, table, view_str(t, "rules", &n), all, against);
    put_fallbacks(o, table, t);
    json_array_foreach(json_object_get(t, "votes"), i, vote) put_vote(o, "    vote  ", vote);
}

static void put_answer(struct policy_out *o, const json_t *said)
{
    size_t n;
    const char *effect = view_str(said, "effect", &n);
    view_word(&o->v, view_effect_style(effect), effect, 0);
    br_buf_printf(&o->v.out, "  by ");
    policy_out_name(o, view_str(said, "ruleId", &n), 1);
    br_buf_printf(&o->v.out, " (%s)", view_str(said, "source", &n));
    const char *reason = view_str(said, "reason", &n);
    if (n) {
        br_buf_printf(&o->v.out, ": ");
        br_cli_put_line(&o->v.out, reason, n, 8192);
    }
    br_buf_printf(&o->v.out, "\n");
}

/* Votes that no rule of the table has: of the shell's parser, of predicates. */
static void put_other_votes(struct policy_out *o, const json_t *said, const json_t *table)
{
    size_t i, n;
    const json_t *vote;
    json_array_foreach(json_object_get(said, "votes"), i, vote)
    {
        const char *id = view_str(vote, "ruleId", &n);
        if (strcmp(view_str(vote, "source", &n), "kernel") == 0 ||
            strcmp(id, "operator:check") == 0 || strcmp(id, "policy-error") == 0)
            put_vote(o, "  also  ", vote);
    }
    if (!json_is_true(json_object_get(table, "predicates")))
        return;
    if (strcmp(view_str(said, "effect", &n), "deny") == 0 &&
        strcmp(view_str(said, "ruleId", &n), "operator:check") != 0 &&
        strcmp(view_str(said, "ruleId", &n), "policy-error") != 0)
        br_buf_printf(&o->v.out,
                      "  the bundle's function 'check' was not asked: it is denied already\n");
    else
        br_buf_printf(&o->v.out, "  the bundle's function 'check' was asked\n");
}

/* The words that rules know, for one that none does. */
static void put_unknown(struct policy_out *o, const json_t *table, const char *action)
{
    const char *names[256];
    size_t n = 0, i, len;
    const json_t *rule;
    if (!action)
        return;
    json_array_foreach(json_object_get(table, "rules"), i, rule)
    {
        const char *name = view_str(rule, "action", &len);
        if (strcmp(name, action) == 0)
            return;
        if (n < BR_ARRAY_LEN(names) && strcmp(name, "*") != 0)
            names[n++] = name;
    }
    const char *near = br_cli_nearest(action, names, n);
    br_buf_printf(&o->v.out, "  no rule speaks of the action '");
    br_cli_put_line(&o->v.out, action, strlen(action), 80);
    br_buf_printf(&o->v.out, near ? "'; did you mean '%s'?\n" : "'\n", near);
}

static void put_text(struct policy_out *o, const json_t *said, const json_t *table, bool all)
{
    size_t i, n;
    const json_t *t;
    const char *subject = view_str(said, "subject", &n);
    size_t len = n;
    put_answer(o, said);
    if (json_array_size(json_object_get(said, "trace")) != 1 && len) {
        br_buf_printf(&o->v.out, "  ");
        policy_out_name(o, view_str(said, "action", &n), 1);
        br_buf_printf(&o->v.out, " ");
        br_cli_put_line(&o->v.out, subject, len, o->tty ? 400 : 8192);
        br_buf_printf(&o->v.out, ", which is decided as\n");
    }
    json_array_foreach(json_object_get(said, "trace"), i, t)
    {
        put_step(o, table, t, all);
        if (!policy_out_flush(o, false))
            return;
    }
    if (json_is_true(json_object_get(said, "cut")))
        br_buf_printf(&o->v.out, "  only the first %u are explained; all were decided\n",
                      BR_POLICY_TRACE_MAX);
    put_other_votes(o, said, table);
    put_unknown(o, table, json_string_value(json_object_get(said, "action")));
}

/* ---- as JSON ---- */

static json_t *rule_json(const json_t *table, const json_t *rule, char letter)
{
    char where[BR_PATH_MAX + 16];
    size_t n;
    json_t *o = json_pack("{s:s, s:s, s:s, s:b}", "id", view_str(rule, "id", &n), "effect",
                          view_str(rule, "effect", &n), "source", policy_source(table, rule),
                          "matched", letter == 'm');
    if (letter != 'm')
        json_object_set_new(o, "why", json_string(why_text(letter)));
    if (*policy_where(rule, where))
        json_object_set_new(o, "where", json_string(where));
    return o;
}

/* The letters become rules. */
static json_t *spell_out(json_t *said, const json_t *table, bool all)
{
    json_t *commands = json_array(), *t;
    const json_t *rules = json_object_get(table, "rules");
    size_t i;
    json_array_foreach(json_object_get(said, "trace"), i, t)
    {
        const char *letters = json_string_value(json_object_get(t, "rules"));
        json_t *list = json_array();
        for (size_t k = 0; letters && letters[k] && k < json_array_size(rules); k++)
            if (all || letters[k] != 'a')
                json_array_append_new(list, rule_json(table, json_array_get(rules, k), letters[k]));
        const json_t *f;
        size_t n;
        json_array_foreach(json_object_get(table, "fallbacks"), n, f) if (speaks_of(f, t))
            json_array_append_new(list, rule_json(table, f, voted(t, f) ? 'm' : 'o'));
        json_object_set_new(t, "rules", list);
        json_array_append(commands, t);
    }
    json_object_del(said, "trace");
    json_object_set_new(said, "decided", commands);
    return said;
}

/* ---- the request ---- */

static json_t *request(const struct br_cli_args *a, struct br_err *err)
{
    const char *shell = br_cli_opt(a, "shell"), *action = a->noperands > 1 ? a->operands[1] : NULL;
    json_t *q = json_pack("{s:b}", "explain", 1);
    unsigned words = a->noperands > 2 ? a->noperands - 2 : 0;
    if (shell && a->noperands > 2) {
        (void)br_err_set(err, BR_E_USAGE, "'--shell' and the words of a command are two commands");
    } else if (shell && action && strcmp(action, "process.exec") != 0) {
        (void)br_err_set(err, BR_E_USAGE, "'--shell' is a command: its action is process.exec");
    } else if (!shell && !action) {
        (void)br_err_set(err, BR_E_USAGE,
                         "something is missing: bridle policy why WHAT SUBJECT..., or --shell");
    } else if (!shell && strcmp(action, "process.exec") == 0 && words == 0) {
        (void)br_err_set(err, BR_E_USAGE,
                         "there is no command: bridle policy why process.exec COMMAND...");
    } else if (!shell && words && strncmp(a->operands[2], "--shell", 7) == 0) {
        (void)br_err_set(
            err, BR_E_USAGE,
            "'%.80s' would be the program, no option; a line of a shell is asked about "
            "with: bridle policy why --shell 'LINE'",
            a->operands[2]);
    } else if (!shell && strcmp(action, "process.exec") != 0 && words > 1) {
        (void)br_err_set(err, BR_E_USAGE,
                         "'%.80s' is one word too many: only process.exec has several",
                         a->operands[3]);
    }
    if (err->code) {
        json_decref(q);
        return NULL;
    }
    json_object_set_new(q, "action", json_string(shell ? "process.exec" : action));
    if (shell) {
        json_object_set_new(q, "shell", json_string(shell));
    } else if (strcmp(action, "process.exec") == 0 && words) {
        json_t *argv = json_array();
        for (unsigned i = 0; i < words; i++)
            json_array_append_new(argv, json_string(a->operands[2 + i]));
        if (json_array_size(argv) != words)
            (void)br_err_set(err, BR_E_USAGE, "a word is not text in UTF-8");
        json_object_set_new(q, "argv", argv);
    } else if (words) {
        json_object_set_new(q, "subject", json_string(a->operands[2]));
    }
    if ((shell && !json_object_get(q, "shell")) || !json_object_get(q, "action") ||
        (words && !json_object_get(q, "argv") && !json_object_get(q, "subject")))
        (void)br_err_set(err, BR_E_USAGE, "a word is not text in UTF-8");
    if (!err->code)
        return q;
    json_decref(q);
    return NULL;
}

/* ---- a recorded decision ---- */

/* What the record says, before it is said again. */
static void put_recorded(struct policy_out *o, const struct policy_run *r,
                         const struct policy_decision *d, const char *basis)
{
    size_t n, i;
    const json_t *vote;
    br_buf_printf(&o->v.out, "recorded: ");
    put_answer(o, d->votes);
    json_array_foreach(json_object_get(d->votes, "votes"), i, vote) put_vote(o, "  vote  ", vote);
    const char *grant = view_str(d->votes, "grant", &n);
    if (n) {
        br_buf_printf(&o->v.out, "  allowed for the rest of the run before: ");
        policy_out_name(o, grant, 1);
        br_buf_printf(&o->v.out, "\n");
    }
    br_buf_printf(&o->v.out, "  of run ");
    policy_out_name(o, r->id, 1);
    br_buf_printf(&o->v.out, ", call ");
    policy_out_name(o, view_str(d->votes, "callId", &n), 1);
    br_buf_printf(&o->v.out, "\n%s%s\nnow: ", basis,
                  d->redacted ? "; something of the call is redacted" : "");
}

static const struct policy_decision *find_call(const struct policy_run *r, const char *id,
                                               struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf known = BR_BUF_INIT(600);
    bool more = false;
    for (size_t i = 0; i < r->n; i++) {
        const char *have = json_string_value(json_object_get(r->d[i].votes, "callId"));
        if (id && strcmp(have, id) == 0)
            return &r->d[i];
        if (known.len < 300)
            br_buf_printf(&known, "%s%.80s", known.len ? ", " : "", have);
        else
            more = true;
    }
    br_buf_printf(&known, more ? ", ..." : "");
    const char *names = known.len ? br_buf_cstr(&known) : "none";
    if (id)
        (void)br_err_set(err, BR_E_NOT_FOUND,
                         "no decision about a call '%.80s' is recorded in '%.80s'; there are: "
                         "%.400s",
                         id, r->id, names ? names : "?");
    else
        (void)br_err_set(err, BR_E_USAGE, "which call of '%.80s'? Say --call with one of: %.400s",
                         r->id, names ? names : "?");
    return NULL;
}

/* Decide by the recorded table; its predicates went with the run. *basis says what it rests on. */
static int use_recorded(struct policy_link *l, const struct policy_run *r, const char **basis,
                        struct br_err *err)
{
    if (!policy_table_usable(r)) {
        *basis = "the record holds no table: explained with the present policy, which may be "
                 "another one";
        return 0;
    }
    bool exact = policy_table_exact(r), predicates = false;
    json_t *table = json_copy(r->table);
    predicates = json_is_true(json_object_get(table, "predicates"));
    json_object_set_new(table, "predicates", json_false());
    int e = policy_use_json(l, table, err);
    if (e < 0) {
        json_decref(table);
        return br_err_wrap(err, "the recorded table cannot be used by this version");
    }
    json_decref(l->table);
    l->table = table;
    *basis = !exact ? "explained with the table of the record, of which something was redacted"
             : predicates ? "explained with the table that was pinned then; the bundle's function "
                            "'check' is not in the record: its vote is only what is recorded"
                          : "explained with the table that was pinned then";
    return 0;
}

static int why_recorded(const struct br_cli_args *a, struct policy_out *o, struct br_err *err)
{
    struct policy_history h = {.nruns = 0};
    struct policy_link l = {.open = false};
    char *run = (char *)(uintptr_t)br_cli_opt(a, "run");
    const char *basis = "";
    const struct policy_decision *d = NULL;
    json_t *said = NULL;
    int r = policy_history_read(&h, &run, 1, 1, err);
    if (r == 0) {
        d = find_call(&h.runs[0], br_cli_opt(a, "call"), err);
        r = d ? policy_open_good(&l, a, policy_table_usable(&h.runs[0]) ? "" : NULL, err)
              : -(int)err->code;
    }
    if (r == 0)
        r = use_recorded(&l, &h.runs[0], &basis, err);
    if (r == 0) {
        json_t *q = policy_request(d);
        json_object_set_new(q, "explain", json_true());
        r = policy_ask(&l, q, &said, err);
    }
    if (r == 0 && br_cli_opt(a, "json")) {
        (void)spell_out(said, l.table, br_cli_opt(a, "all") != NULL);
        policy_out_json(o, json_pack("{s:s, s:s, s:O, s:O}", "run", h.runs[0].id, "basis", basis,
                                     "recorded", d->votes, "now", said));
    } else if (r == 0) {
        put_recorded(o, &h.runs[0], d, basis);
        put_text(o, said, l.table, br_cli_opt(a, "all") != NULL);
    }
    json_decref(said);
    policy_close(&l);
    policy_history_free(&h);
    return r;
}

/* ---- the action ---- */

static int why_request(const struct br_cli_args *a, struct policy_out *o, struct br_err *err)
{
    struct policy_link l = {.open = false};
    bool all = br_cli_opt(a, "all") != NULL;
    json_t *said = NULL, *q = request(a, err);
    int r = q ? policy_open_good(&l, a, NULL, err) : -(int)err->code;
    if (r == 0)
        r = policy_ask(&l, json_incref(q), &said, err);
    json_decref(q);
    if (r == 0 && br_cli_opt(a, "json")) {
        json_object_set(said, "tableSha256", json_object_get(l.report, "sha256"));
        policy_out_json(o, spell_out(json_incref(said), l.table, all));
    } else if (r == 0) {
        put_text(o, said, l.table, all);
    }
    json_decref(said);
    policy_close(&l);
    return r;
}

int policy_why(const struct br_cli_args *a)
{
    struct br_err err = {.code = BR_OK};
    struct policy_out o;
    bool run = br_cli_opt(a, "run"), call = br_cli_opt(a, "call");
    int r;
    policy_out_init(&o);
    if (call && !run)
        r = br_err_set(&err, BR_E_USAGE, "'--call' names a call of a run; say which with --run");
    else if (run && (a->noperands > 1 || br_cli_opt(a, "shell")))
        r = br_err_set(&err, BR_E_USAGE, "'--run' explains a recorded call; it takes no request");
    else
        r = run ? why_recorded(a, &o, &err) : why_request(a, &o, &err);
    return policy_out_end(&o, r < 0 ? br_cli_fail(&err) : 0);
}
