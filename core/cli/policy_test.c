/*
 * bridle policy test: run a bundle's specs, and measure them. busted decides whether they pass;
 * what they asked of the bundle is recorded by bridle.testing, and from it comes which rules the
 * cases reach, and whether they would notice that a rule is gone or says something else: the
 * recorded requests are decided again by each mutant, and only if no case notices, but an answer
 * differs that a spec looked at by itself, busted runs again. The session decides, here is only
 * counted.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/policy_test.h"

#define CHECKS_MAX 256u

/* ---- rules ---- */

static const char *id_of(const json_t *row)
{
    const char *id = json_string_value(json_object_get(row, "id"));
    return id ? id : "";
}

static unsigned find_rule(const struct test *t, const char *id)
{
    size_t n = policy_base_id(id);
    for (unsigned i = 0; i < t->nrules; i++)
        if (t->rules[i].len == n && memcmp(t->rules[i].id, id, n) == 0)
            return i;
    return UINT_MAX;
}

/* Rules of a bundle that is extended are tested by its own specs. */
static bool is_own(const struct test *t, const json_t *row)
{
    const char *file = json_string_value(json_object_get(row, "file"));
    const char *path = t->v[0].l.d.policy.path, *slash = strrchr(path, '/');
    return !file || !*path || strcmp(file, slash ? slash + 1 : path) == 0;
}

static int take_rules(struct test *t, struct br_err *err)
{
    static const char *const lists[] = {"rules", "fallbacks"};
    const json_t *table = t->v[0].l.table, *row;
    size_t i, total = json_array_size(json_object_get(table, "rules")) +
                      json_array_size(json_object_get(table, "fallbacks"));
    const char *inherited = "";
    t->rules = calloc(total + 1, sizeof(*t->rules));
    if (!t->rules)
        return br_err_set(err, BR_E_NOMEM, "no memory for the rules");
    for (int k = 0; k < 2; k++)
        json_array_foreach(json_object_get(table, lists[k]), i, row)
        {
            const char *id = id_of(row);
            size_t n = policy_base_id(id);
            const struct rule *last = t->nrules ? &t->rules[t->nrules - 1] : NULL;
            if (strcmp(policy_source(table, row), "operator") != 0 ||
                (last && last->len == n && memcmp(last->id, id, n) == 0))
                continue;
            if (is_own(t, row)) {
                if (find_rule(t, id) == UINT_MAX)
                    t->rules[t->nrules++] =
                        (struct rule){.id = id, .len = n, .row = row, .fallback = k == 1};
            } else if (policy_base_id(inherited) != n || memcmp(inherited, id, n) != 0) {
                inherited = id;
                t->inherited++;
            }
        }
    return t->nrules ? 0
                     : br_err_set(err, BR_E_NOT_FOUND,
                                  "the bundle has no rules of its own; nothing was tested");
}

/* ---- links ---- */

static int map_rows(struct test *t, struct variant *v, struct br_err *err)
{
    const json_t *rules = json_object_get(v->l.table, "rules"), *row;
    size_t i;
    v->of_row = calloc(json_array_size(rules) + 1, sizeof(*v->of_row));
    if (!v->of_row)
        return br_err_set(err, BR_E_NOMEM, "no memory for the rules");
    unsigned last = UINT_MAX;
    json_array_foreach((json_t *)(uintptr_t)rules, i, row)
    {
        const char *id = id_of(row);
        if (last == UINT_MAX || t->rules[last].len != policy_base_id(id) ||
            memcmp(t->rules[last].id, id, t->rules[last].len) != 0)
            last = find_rule(t, id);
        v->of_row[i] = last;
    }
    return 0;
}

static void set_opt(struct br_cli_args *a, const char *name, const char *value)
{
    for (unsigned i = 0; i < BR_CLI_OPTS_MAX && a->verb->opts[i].name; i++)
        if (strcmp(a->verb->opts[i].name, name) == 0)
            a->value[i] = value && *value ? value : NULL;
}

static struct br_cli_args args_of(const struct test *t, const struct variant *v)
{
    struct br_cli_args a = *t->a;
    set_opt(&a, "profile", v->profile);
    set_opt(&a, "manifest", v->manifest);
    return a;
}

/* The link for what a request was asked of. */
static int find_variant(struct test *t, const char *profile, const char *manifest, unsigned *out,
                        struct br_err *err)
{
    for (*out = 0; *out < t->nv; ++*out)
        if (strcmp(t->v[*out].profile, profile) == 0 && strcmp(t->v[*out].manifest, manifest) == 0)
            return 0;
    if (t->nv == VARIANTS_MAX)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                          "the specs load the bundle with more than %u profiles and manifests",
                          VARIANTS_MAX);
    struct variant *v = &t->v[t->nv++];
    *v = (struct variant){.profile = profile, .manifest = manifest};
    struct br_cli_args a = args_of(t, v);
    int r = policy_open_good(&v->l, &a, *t->specs.bundle ? t->specs.bundle : NULL, err);
    return r < 0 ? r : map_rows(t, v, err);
}

/* ---- what the cases reach ---- */

static void note_rule(struct test *t, struct asked *q, unsigned i, size_t stamp, bool matched)
{
    struct rule *r = &t->rules[i];
    for (unsigned k = 0; k < q->nrules; k++)
        if (q->rules[k] == i)
            goto known;
    q->rules[q->nrules++] = i;
known:
    if (matched && r->stamp != stamp) {
        r->stamp = stamp;
        r->matched++;
    }
}

static void note_checks(struct test *t, const struct variant *v, const json_t *said)
{
    const json_t *vote;
    bool voted = false, other_denies = false;
    size_t i;
    if (!json_is_true(json_object_get(v->l.table, "predicates")))
        return;
    json_array_foreach(json_object_get(said, "votes"), i, vote)
    {
        const char *id = json_string_value(json_object_get(vote, "ruleId"));
        const char *effect = json_string_value(json_object_get(vote, "effect"));
        const char *source = json_string_value(json_object_get(vote, "source"));
        bool check = id && effect && source && strcmp(source, "operator") == 0 &&
                     !json_object_get(vote, "where") && find_rule(t, id) == UINT_MAX;
        other_denies |= !check && effect && strcmp(effect, "deny") == 0;
        if (!check)
            continue;
        voted = true;
        json_t *seen = json_object_get(t->checks, id);
        if (!seen && json_object_size(t->checks) < CHECKS_MAX) {
            seen = json_object();
            json_object_set_new(t->checks, id, seen);
        }
        json_object_set_new(seen, effect,
                            json_integer(json_integer_value(json_object_get(seen, effect)) + 1));
    }
    t->checked += voted || !other_denies;
    t->unnamed += !voted && !other_denies;
}

/* The rules whose vote was as strict as the answer. */
static void note_decided(struct test *t, const json_t *said)
{
    const json_t *vote;
    size_t i, n;
    json_array_foreach(json_object_get(said, "votes"), i, vote)
    {
        unsigned rule =
            policy_carries(said, vote) ? find_rule(t, view_str(vote, "ruleId", &n)) : UINT_MAX;
        if (rule != UINT_MAX)
            t->rules[rule].decided++;
    }
}

static int note_request(struct test *t, const json_t *record, size_t stamp, struct br_err *err)
{
    const json_t *said = json_object_get(record, "said"), *step, *vote;
    struct asked *q = &t->asked[t->nasked];
    size_t i, k;
    *q = (struct asked){.record = record};
    size_t n;
    int r = find_variant(t, view_str(record, "profile", &n), view_str(record, "manifest", &n),
                         &q->variant, err);
    if (r < 0)
        return r;
    const struct variant *v = &t->v[q->variant];
    q->rules = calloc(t->nrules, sizeof(*q->rules));
    if (!q->rules)
        return br_err_set(err, BR_E_NOMEM, "no memory for the requests");
    t->nasked++;
    q->all = json_array_size(json_object_get(said, "trace")) >= 64;
    json_array_foreach(json_object_get(said, "trace"), i, step)
    {
        const char *letters = json_string_value(json_object_get(step, "rules"));
        size_t rows = json_array_size(json_object_get(v->l.table, "rules"));
        for (k = 0; letters && letters[k] && k < rows; k++)
            if ((letters[k] == 'm' || letters[k] == 'c') && v->of_row[k] != UINT_MAX)
                note_rule(t, q, v->of_row[k], stamp, letters[k] == 'm');
        json_array_foreach(json_object_get(step, "votes"), k, vote)
        {
            unsigned rule = find_rule(t, view_str(vote, "ruleId", &n));
            if (rule != UINT_MAX && t->rules[rule].fallback)
                note_rule(t, q, rule, stamp, true);
        }
    }
    note_decided(t, said);
    note_checks(t, v, said);
    return 0;
}

static int note_requests(struct test *t, struct br_err *err)
{
    const json_t *record;
    size_t i;
    int r = 0;
    t->asked = calloc(json_array_size(t->records) + 1, sizeof(*t->asked));
    if (!t->asked)
        return br_err_set(err, BR_E_NOMEM, "no memory for the requests");
    json_array_foreach(t->records, i, record)
    {
        if (r == 0)
            r = note_request(t, record, i + 1, err);
    }
    return r;
}

/* ---- mutants ---- */

static bool concerns(const struct asked *q, unsigned rule)
{
    for (unsigned k = 0; k < q->nrules; k++)
        if (q->rules[k] == rule)
            return true;
    return q->all || rule == UINT_MAX;
}

/* Decide again what the rule concerns. *noticed by a case; *differs where a spec looked itself. */
static int replay_one(struct test *t, struct policy_link *l, unsigned variant, unsigned rule,
                      bool *noticed, bool *differs, struct br_err *err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && !*noticed && i < t->nasked; i++) {
        const struct asked *q = &t->asked[i];
        const json_t *expect = json_object_get(q->record, "expect");
        json_t *said = NULL;
        if (q->variant != variant || !concerns(q, rule))
            continue;
        json_t *request = json_copy(json_object_get(q->record, "request"));
        json_object_del(request, "explain");
        r = policy_ask(l, request, &said, err);
        if (r == -BR_E_INVALID_ARGUMENTS) { /* one that no table decides */
            *err = (struct br_err){.code = BR_OK};
            r = 0;
            continue;
        }
        if (r < 0)
            break;
        if (json_is_object(expect))
            *noticed |= !policy_expected(said, expect);
        else
            *differs |= !policy_same_answer(said, json_object_get(q->record, "said"));
        json_decref(said);
    }
    return r;
}

static int run_again(struct test *t, const json_t *mutant, bool *noticed, struct br_err *err)
{
    int status = 0;
    BR_CLEANUP_FREE char *text = json_dumps(mutant, JSON_COMPACT);
    t->rerun++;
    int r = text ? policy_specs_run(&t->specs, text, &status, err)
                 : br_err_set(err, BR_E_NOMEM, "no memory for a mutant");
    *noticed = status != 0;
    return r;
}

static int try_mutant(struct test *t, const json_t *mutant, unsigned rule, bool *possible,
                      bool *noticed, struct br_err *err)
{
    bool differs = false;
    int r = 0;
    *possible = true;
    *noticed = false;
    for (unsigned v = 0; r == 0 && *possible && !*noticed && v < t->nv; v++) {
        json_t *table = policy_mutate(t->v[v].l.table, mutant);
        const struct br_buf *raw = &t->v[v].l.raw;
        r = table ? policy_use_json(&t->v[v].l, table, err)
                  : policy_use(&t->v[v].l, (char *)raw->data, raw->len, err);
        json_decref(table);
        if (r == -BR_E_INVALID_ARGUMENTS) { /* a table that cannot be */
            *err = (struct br_err){.code = BR_OK};
            *possible = false;
            r = 0;
        } else if (r == 0) {
            r = replay_one(t, &t->v[v].l, v, rule, noticed, &differs, err);
        }
    }
    if (r < 0 || !*possible || *noticed || !differs)
        return r;
    return run_again(t, mutant, noticed, err);
}

static int mutant(struct test *t, unsigned rule, const char *effect, struct br_err *err)
{
    bool possible, noticed;
    char where[BR_PATH_MAX + 16] = "";
    const json_t *row = rule != UINT_MAX ? t->rules[rule].row : NULL;
    json_t *id = row ? json_stringn(t->rules[rule].id, t->rules[rule].len) : NULL;
    json_t *m = json_pack("{s:o*, s:s*}", "rule", id, "effect", effect);
    int r = try_mutant(t, m, rule, &possible, &noticed, err);
    if (r == 0 && possible) {
        t->mutants++;
        t->killed += noticed;
        if (!noticed) {
            size_t n;
            json_t *s =
                json_pack("{s:s%, s:s, s:s*, s:s*}", "rule", row ? t->rules[rule].id : "check",
                          row ? t->rules[rule].len : 5, "mutation", effect ? "effect" : "removed",
                          "effect", row ? view_str(row, "effect", &n) : NULL, "instead", effect);
            if (row && *policy_where(row, where))
                json_object_set_new(s, "where", json_string(where));
            json_array_append_new(t->survivors, s);
        }
    } else if (r == 0) {
        t->impossible++;
    }
    json_decref(m);
    return r;
}

static int mutate_all(struct test *t, struct br_err *err)
{
    static const char *const effects[] = {"allow", "ask", "deny"};
    int r = 0;
    for (unsigned i = 0; r == 0 && i < t->nrules; i++) {
        size_t n;
        const char *has = view_str(t->rules[i].row, "effect", &n);
        r = mutant(t, i, NULL, err);
        for (size_t k = 0; r == 0 && k < BR_ARRAY_LEN(effects); k++)
            if (strcmp(effects[k], has) != 0)
                r = mutant(t, i, effects[k], err);
    }
    if (r == 0 && json_is_true(json_object_get(t->v[0].l.table, "predicates")))
        r = mutant(t, UINT_MAX, NULL, err);
    return r;
}

/* ---- branches of checks ---- */

/* True if a vote of this answer is the error that was put into a branch. */
static bool is_marked(const json_t *said)
{
    const json_t *vote;
    size_t i, n;
    json_array_foreach(json_object_get(said, "votes"), i, vote)
    {
        if (strstr(view_str(vote, "reason", &n), POLICY_SITE_MARK))
            return true;
    }
    return false;
}

/* A branch: does a request reach it, or the loading of the bundle? */
static int try_branch(struct test *t, size_t site, struct br_err *err)
{
    int r = 0;
    for (unsigned v = 0; r == 0 && !t->reached[site] && v < t->nv; v++) {
        struct policy_link l;
        struct br_cli_args a = args_of(t, &t->v[v]);
        const char *file = *t->specs.bundle ? t->specs.bundle : NULL;
        r = policy_open_changed(&l, &a, file, site, err);
        if (r < 0 && strstr(err->text, POLICY_SITE_MARK)) {
            *err = (struct br_err){.code = BR_OK};
            t->reached[site] = true;
            r = 0;
        }
        for (size_t i = 0; r == 0 && !t->reached[site] && i < t->nasked; i++) {
            json_t *said = NULL;
            if (t->asked[i].variant != v)
                continue;
            r = policy_ask(&l, json_copy(json_object_get(t->asked[i].record, "request")), &said,
                           err);
            if (r == -BR_E_INVALID_ARGUMENTS) {
                *err = (struct br_err){.code = BR_OK};
                r = 0;
            }
            t->reached[site] = said && is_marked(said);
            json_decref(said);
        }
        policy_close(&l);
    }
    return r;
}

/* A condition or an answer: does a case notice another one? */
static int try_change(struct test *t, size_t site, bool *possible, bool *noticed,
                      struct br_err *err)
{
    bool differs = false;
    int r = 0;
    *possible = true;
    *noticed = false;
    for (unsigned v = 0; r == 0 && *possible && !*noticed && v < t->nv; v++) {
        struct policy_link l;
        struct br_cli_args a = args_of(t, &t->v[v]);
        r = policy_open_changed(&l, &a, *t->specs.bundle ? t->specs.bundle : NULL, site, err);
        if (r == -BR_E_INVALID_POLICY) { /* a bundle that cannot be */
            *err = (struct br_err){.code = BR_OK};
            *possible = false;
            r = 0;
        } else if (r == 0) {
            r = replay_one(t, &l, v, UINT_MAX, noticed, &differs, err);
        }
        policy_close(&l);
    }
    if (r < 0 || !*possible || *noticed || !differs)
        return r;
    json_t *m = json_pack("{s:I}", "site", (json_int_t)site);
    r = run_again(t, m, noticed, err);
    json_decref(m);
    return r;
}

static int note_change(struct test *t, size_t site, struct br_err *err)
{
    bool possible, noticed;
    char where[BR_PATH_MAX + 16];
    const struct policy_site *s = &t->sites.list[site];
    const char *path = t->v[0].l.d.policy.path, *slash = strrchr(path, '/');
    int r = try_change(t, site, &possible, &noticed, err);
    if (r < 0 || !possible) {
        t->impossible += r == 0;
        return r;
    }
    t->mutants++;
    t->killed += noticed;
    snprintf(where, sizeof(where), "%s:%u", slash ? slash + 1 : path, s->line);
    if (!noticed)
        json_array_append_new(t->survivors,
                              json_pack("{s:s, s:s, s:s, s:s}", "rule", "check", "mutation", "text",
                                        "change", s->what, "where", where));
    return 0;
}

/* Those of the bundle's own text, if it has checks. */
static int try_sites(struct test *t, struct br_err *err)
{
    const struct br_buf *text = &t->v[0].l.d.policy.text;
    if (!json_is_true(json_object_get(t->v[0].l.table, "predicates")))
        return 0;
    int r = policy_sites_find(&t->sites, (const char *)text->data, text->len, err);
    t->reached = calloc(t->sites.n + 1, sizeof(*t->reached));
    if (r == 0 && !t->reached)
        r = br_err_set(err, BR_E_NOMEM, "no memory for the branches");
    for (size_t i = 0; r == 0 && i < t->sites.n; i++) {
        if (policy_site_is_branch(&t->sites.list[i]))
            r = try_branch(t, i, err);
        else
            r = note_change(t, i, err);
    }
    return r;
}

/* ---- the action ---- */

/* BUNDLE_spec.lua beside it, or else spec/ beside it. */
static int default_spec(struct test *t, char dst[BR_PATH_MAX], const char **spec,
                        struct br_err *err)
{
    const char *path = t->v[0].l.d.policy.path, *slash = strrchr(path, '/');
    size_t n = strlen(path), dir = slash ? (size_t)(slash - path) + 1 : 0;
    if (!n)
        return br_err_set(err, BR_E_NOT_FOUND,
                          "the policy that is built in has no specs beside it; nothing was "
                          "tested. Name a bundle, or a spec with --spec");
    if (n > 4 && strcmp(path + n - 4, ".lua") == 0)
        n -= 4;
    *spec = dst;
    int len = snprintf(dst, BR_PATH_MAX, "%.*s_spec.lua", (int)n, path);
    if (len < (int)BR_PATH_MAX && access(dst, F_OK) == 0)
        return 0;
    len = snprintf(dst, BR_PATH_MAX, "%.*sspec", (int)dir, path);
    if (len < (int)BR_PATH_MAX && access(dst, F_OK) == 0)
        return 0;
    return br_err_set(err, BR_E_NOT_FOUND,
                      "'%.300s' has no spec: there is neither '%.*s_spec.lua' nor a directory "
                      "'%.*sspec'; nothing was tested. bridle-policy(1) shows how to write one",
                      path, (int)(n > 300 ? 300 : n), path, (int)(dir > 300 ? 300 : dir), path);
}

static int find_specs(struct test *t, char dst[BR_PATH_MAX], const char **spec, struct br_err *err)
{
    const char *path = t->v[0].l.d.policy.path;
    if (*path && !realpath(path, t->specs.bundle))
        return br_err_errno(err, BR_E_IO, "the path of '%.512s' could not be found", path);
    t->specs.specs = t->a->many;
    t->specs.nspecs = t->a->nmany;
    for (unsigned i = 0; i < t->a->nmany; i++)
        if (access(t->a->many[i], R_OK) < 0)
            return br_err_errno(err, BR_E_NOT_FOUND,
                                "the spec '%.512s' could not be read; nothing was tested",
                                t->a->many[i]);
    if (t->a->nmany)
        return 0;
    t->specs.specs = spec;
    t->specs.nspecs = 1;
    return default_spec(t, dst, spec, err);
}

static int run_specs(struct test *t, struct br_err *err)
{
    char dst[BR_PATH_MAX];
    const char *spec = NULL;
    int r = policy_open_good(&t->v[0].l, t->a, t->a->noperands > 1 ? t->a->operands[1] : NULL, err);
    t->nv = 1;
    t->v[0].profile = br_cli_opt(t->a, "profile") ? br_cli_opt(t->a, "profile") : "";
    t->v[0].manifest = br_cli_opt(t->a, "manifest") ? br_cli_opt(t->a, "manifest") : "";
    t->specs.profile = br_cli_opt(t->a, "profile");
    t->specs.manifest = br_cli_opt(t->a, "manifest");
    t->specs.quiet_stdout = br_cli_opt(t->a, "json") != NULL;
    if (r == 0)
        r = find_specs(t, dst, &spec, err);
    if (r == 0)
        r = take_rules(t, err);
    if (r == 0)
        r = map_rows(t, &t->v[0], err);
    if (r == 0)
        r = policy_specs_open(&t->specs, err);
    if (r == 0)
        r = policy_specs_run(&t->specs, NULL, &t->status, err);
    if (r == 0)
        r = policy_specs_read(&t->specs, &t->records, err);
    if (r == 0 && t->status == 0 && json_array_size(t->records) == 0)
        r = br_err_set(err, BR_E_NOT_FOUND,
                       "'%.512s' asks nothing of the bundle '%.512s'; nothing was tested. A spec "
                       "calls testing.load() and testing.cases(...)",
                       t->specs.specs[0], *t->specs.bundle ? t->specs.bundle : "default");
    if (r == 0)
        r = note_requests(t, err);
    if (r == 0 && t->status == 0)
        r = mutate_all(t, err);
    if (r == 0 && t->status == 0)
        r = try_sites(t, err);
    return r;
}

static int below(const char *option, unsigned have, unsigned least)
{
    if (have >= least)
        return 0;
    fprintf(stderr, "bridle: %u %% is less than %s %u\n", have, option, least);
    return POLICY_EXIT_BELOW;
}

static int verdict(const struct test *t, uint32_t coverage, uint32_t mutation)
{
    if (t->status) {
        fprintf(stderr, "bridle: the specs fail; no mutants were tried\n");
        return POLICY_EXIT_SPEC;
    }
    unsigned rules = policy_test_percent(policy_test_rules(t, true), t->nrules);
    unsigned branches =
        policy_test_percent(policy_test_branches(t, true), policy_test_branches(t, false));
    int a = below("--min-coverage", rules < branches ? rules : branches, coverage);
    int b = below("--min-mutation", policy_test_percent(t->killed, t->mutants), mutation);
    return a ? a : b;
}

static void close_test(struct test *t)
{
    policy_specs_close(&t->specs);
    for (unsigned i = 0; i < t->nv; i++) {
        policy_close(&t->v[i].l);
        free(t->v[i].of_row);
    }
    for (size_t i = 0; i < t->nasked; i++)
        free(t->asked[i].rules);
    free(t->asked);
    free(t->rules);
    free(t->reached);
    policy_sites_free(&t->sites);
    json_decref(t->records);
    json_decref(t->checks);
    json_decref(t->survivors);
}

int policy_test(const struct br_cli_args *a)
{
    struct br_err err = {.code = BR_OK};
    struct policy_out o;
    uint32_t coverage = 0, mutation = 0;
    const char *c = br_cli_opt(a, "min-coverage"), *m = br_cli_opt(a, "min-mutation");
    if (br_cli_opt(a, "serve"))
        return policy_serve(a);
    if ((c && br_cli_number("--min-coverage", c, 0, 100, &coverage, &err) < 0) ||
        (m && br_cli_number("--min-mutation", m, 0, 100, &mutation, &err) < 0))
        return br_cli_fail(&err);
    struct test *t = calloc(1, sizeof(*t));
    if (!t)
        return br_cli_fail(&(struct br_err){.code = BR_E_NOMEM, .text = "no memory for a test"});
    t->a = a;
    t->checks = json_object();
    t->survivors = json_array();
    policy_out_init(&o);
    int code = run_specs(t, &err);
    if (code < 0) {
        code = br_cli_fail(&err);
    } else {
        code = verdict(t, coverage, mutation);
        if (br_cli_opt(a, "json")) {
            policy_test_json(&o, t, code);
        } else {
            policy_test_put(&o, t);
        }
    }
    code = policy_out_end(&o, code);
    close_test(t);
    free(t);
    return code;
}
