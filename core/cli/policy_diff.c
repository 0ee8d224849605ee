/*
 * bridle policy diff: what another bundle newly allows, asks or denies. Both are compiled and asked
 * the same requests: those of recorded runs, and witnesses of every rule that only one of them has
 * (policy_witness.c). A request that no such rule matches is decided alike by both, unless a
 * function 'check' differs; then every rule has witnesses. It is a sample and no proof, and says
 * so.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/policy_priv.h"

#define RUNS_DEFAULT 20u

struct diff {
    struct policy_link a, b;
    struct policy_out o;
    bool json;
    json_t *only[2];  /* rules that only A, only B has */
    json_t *requests; /* with "rule" or "run" beside what is asked */
    json_t *seen;     /* their texts */
    json_t *changes, *notes;
    size_t recorded, made;
    unsigned count[3]; /* newly allowed, asked, denied */
};

/* ---- rules that only one has ---- */

/* What a rule says, without where, and without the number that its pattern gave its id. */
static json_t *rule_key(const json_t *table, const json_t *rule)
{
    json_t *key = json_copy((json_t *)(uintptr_t)rule), *when, *conditions = json_array();
    size_t i, n;
    const char *id = view_str(rule, "id", &n), *hash = strrchr(id, '#');
    bool numbered = hash && hash[1] && !hash[1 + strspn(hash + 1, "0123456789")];
    json_object_del(key, "file");
    json_object_del(key, "line");
    json_object_set_new(key, "id", json_stringn(id, numbered ? (size_t)(hash - id) : n));
    json_object_set_new(key, "source", json_string(policy_source(table, rule)));
    json_array_foreach(json_object_get(rule, "when"), i, when)
        json_array_append(conditions, json_array_get(json_object_get(table, "conditions"),
                                                     (size_t)json_integer_value(when)));
    json_object_set_new(key, "when", conditions);
    BR_CLEANUP_FREE char *text = json_dumps(key, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(key);
    return json_string(text ? text : "");
}

static const char *const lists[] = {"rules", "fallbacks"};

static json_t *keys_of(const json_t *table)
{
    json_t *keys = json_object();
    const json_t *rule;
    size_t i;
    for (size_t k = 0; k < BR_ARRAY_LEN(lists); k++)
        json_array_foreach(json_object_get(table, lists[k]), i, rule)
        {
            json_t *key = rule_key(table, rule);
            json_object_set_new(keys, json_string_value(key), json_true());
            json_decref(key);
        }
    return keys;
}

static json_t *only_in(const json_t *table, const json_t *other)
{
    json_t *out = json_array(), *keys = keys_of(other), *key;
    const json_t *rule;
    size_t i;
    for (size_t k = 0; k < BR_ARRAY_LEN(lists); k++)
        json_array_foreach(json_object_get(table, lists[k]), i, rule)
        {
            key = rule_key(table, rule);
            if (!json_object_get(keys, json_string_value(key)))
                json_array_append(out, (json_t *)(uintptr_t)rule);
            json_decref(key);
        }
    json_decref(keys);
    return out;
}

/* ---- the requests ---- */

static json_t *actions_of(const json_t *a, const json_t *b)
{
    static const char *const known[] = {"process.exec", "fs.read", "fs.write", "network"};
    const json_t *tables[] = {a, b}, *rule;
    json_t *out = json_object();
    size_t i, n;
    for (i = 0; i < BR_ARRAY_LEN(known); i++)
        json_object_set_new(out, known[i], json_true());
    for (int t = 0; t < 2; t++)
        json_array_foreach(json_object_get(tables[t], "rules"), i, rule)
        {
            const char *action = view_str(rule, "action", &n);
            if (strcmp(action, "*") != 0)
                json_object_set_new(out, action, json_true());
        }
    return out;
}

/* Takes the request; the same one is asked once. */
static void add_request(struct diff *d, json_t *q)
{
    json_t *rule = json_incref(json_object_get(q, "rule"));
    json_t *run = json_incref(json_object_get(q, "run"));
    json_object_del(q, "rule");
    json_object_del(q, "run");
    BR_CLEANUP_FREE char *text = json_dumps(q, JSON_COMPACT | JSON_SORT_KEYS);
    if (text && !json_object_get(d->seen, text)) {
        json_object_set_new(d->seen, text, json_true());
        json_array_append_new(d->requests,
                              json_pack("{s:O, s:O*, s:O*}", "ask", q, "rule", rule, "run", run));
        d->recorded += run != NULL;
        d->made += rule != NULL;
    }
    json_decref(rule);
    json_decref(run);
    json_decref(q);
}

static void add_witnesses(struct diff *d)
{
    json_t *actions = actions_of(d->a.table, d->b.table), *list = json_array(), *q;
    const json_t *rules[4] = {d->only[0], d->only[1], NULL, NULL}, *rule;
    size_t i;
    if (json_is_true(json_object_get(d->a.table, "predicates")) ||
        json_is_true(json_object_get(d->b.table, "predicates"))) {
        rules[2] = json_object_get(d->a.table, "rules");
        rules[3] = json_object_get(d->b.table, "rules");
    }
    for (size_t k = 0; k < 4; k++)
        json_array_foreach((json_t *)(uintptr_t)rules[k], i, rule) policy_witnesses(
            list, rule, actions, json_object_get(k % 2 ? d->b.table : d->a.table, "conditions"));
    json_array_foreach(list, i, q) add_request(d, json_incref(q));
    json_decref(list);
    json_decref(actions);
}

static void add_recorded(struct diff *d, uint32_t last)
{
    struct br_err err = {.code = BR_OK};
    struct policy_history h = {.nruns = 0};
    if (policy_history_all(&h, last, &err) < 0) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(2 * BR_ERR_TEXT_MAX);
        br_buf_printf(&b, "no recorded request counts: %s", err.text);
        json_array_append_new(d->notes, json_string(b.failed ? "?" : br_buf_cstr(&b)));
    }
    for (size_t i = 0; i < h.nruns; i++)
        for (size_t k = 0; k < h.runs[i].n; k++) {
            json_t *q = json_copy(h.runs[i].d[k].call);
            json_object_set_new(q, "run", json_string(h.runs[i].id));
            add_request(d, q);
        }
    policy_history_free(&h);
}

/* ---- asking both ---- */

static int rank(const char *effect)
{
    return strcmp(effect, "allow") == 0 ? 0 : strcmp(effect, "ask") == 0 ? 1 : 2;
}

static int ask_both(struct diff *d, const json_t *r, struct br_err *err)
{
    json_t *said[2] = {NULL, NULL}, *q = json_object_get(r, "ask");
    struct policy_link *links[] = {&d->a, &d->b};
    size_t n;
    for (int i = 0; i < 2; i++) {
        int e = policy_ask(links[i], json_incref(q), &said[i], err);
        if (e == -BR_E_INVALID_ARGUMENTS) { /* nobody can make such a call */
            *err = (struct br_err){.code = BR_OK};
            json_decref(said[0]);
            return 0;
        }
        if (e < 0) {
            json_decref(said[0]);
            return e;
        }
    }
    const char *was = view_str(said[0], "effect", &n), *now = view_str(said[1], "effect", &n);
    if (strcmp(was, now) != 0) {
        d->count[rank(now)]++;
        json_array_append_new(
            d->changes,
            json_pack(
                "{s:O, s:O*, s:s, s:s, s:O, s:O, s:O*, s:O*, s:O*, s:O*}", "action",
                json_object_get(said[1], "action"), "subject", json_object_get(said[1], "subject"),
                "old", was, "new", now, "oldRule", json_object_get(said[0], "ruleId"), "newRule",
                json_object_get(said[1], "ruleId"), "reason", json_object_get(said[1], "reason"),
                "run", json_object_get(r, "run"), "witnessOf", json_object_get(r, "rule"),
                "context", json_object_get(q, "context")));
    }
    json_decref(said[0]);
    json_decref(said[1]);
    return 0;
}

/* ---- output ---- */

static void put_only(struct policy_out *o, const char *lead, const json_t *rules)
{
    char where[BR_PATH_MAX + 16], matcher[BR_PATTERN_MAX + 32];
    const json_t *rule;
    size_t i, n;
    json_array_foreach((json_t *)(uintptr_t)rules, i, rule)
    {
        const char *effect = view_str(rule, "effect", &n);
        br_buf_printf(&o->v.out, "%s", lead);
        view_word(&o->v, view_effect_style(effect), effect, 5);
        br_buf_printf(&o->v.out, "  ");
        policy_out_name(o, view_str(rule, "id", &n), 28);
        br_buf_printf(&o->v.out, "  ");
        policy_out_cell(o, view_str(rule, "action", &n), 12);
        br_buf_printf(&o->v.out, "  ");
        policy_out_cell(o, policy_matcher(rule, matcher), 28);
        br_buf_printf(&o->v.out, "  ");
        policy_out_name(o, policy_where(rule, where), 1);
        br_buf_printf(&o->v.out, "\n");
        if (!policy_out_flush(o, false))
            return;
    }
}

static void put_changes(struct diff *d, const char *effect, const char *title)
{
    const json_t *c;
    size_t i, n;
    if (!d->count[rank(effect)])
        return;
    br_buf_printf(&d->o.v.out, "%s: %u\n", title, d->count[rank(effect)]);
    json_array_foreach(d->changes, i, c)
    {
        if (strcmp(view_str(c, "new", &n), effect) != 0)
            continue;
        const char *old = view_str(c, "old", &n);
        br_buf_printf(&d->o.v.out, "  ");
        policy_out_name(&d->o, view_str(c, "action", &n), 1);
        br_buf_printf(&d->o.v.out, "  ");
        const char *subject = view_str(c, "subject", &n);
        if (json_object_get(c, "subject"))
            br_cli_put_line(&d->o.v.out, subject, n, d->o.tty ? 200 : 8192);
        else
            br_buf_printf(&d->o.v.out, "(no subject)");
        br_buf_printf(&d->o.v.out, "  (");
        policy_out_name(&d->o, json_object_get(c, "run") ? view_str(c, "run", &n) : "made", 1);
        BR_CLEANUP_FREE char *context =
            json_dumps(json_object_get(c, "context"), JSON_COMPACT | JSON_SORT_KEYS);
        if (context) {
            br_buf_printf(&d->o.v.out, " with ");
            policy_out_name(&d->o, context, 1);
        }
        br_buf_printf(&d->o.v.out, ")\n    ");
        view_word(&d->o.v, view_effect_style(old), old, 0);
        br_buf_printf(&d->o.v.out, " by ");
        policy_out_name(&d->o, view_str(c, "oldRule", &n), 1);
        br_buf_printf(&d->o.v.out, ", now ");
        view_word(&d->o.v, view_effect_style(effect), effect, 0);
        br_buf_printf(&d->o.v.out, " by ");
        policy_out_name(&d->o, view_str(c, "newRule", &n), 1);
        br_buf_printf(&d->o.v.out, "\n");
        if (!policy_out_flush(&d->o, false))
            return;
    }
}

static void put_diff(struct diff *d)
{
    const json_t *note;
    size_t i;
    if (d->json) {
        policy_out_json(
            &d->o, json_pack("{s:i, s:i, s:i, s:O, s:O, s:O, s:I, s:I, s:b, s:O}", "newlyAllowed",
                             (int)d->count[0], "newlyAsked", (int)d->count[1], "newlyDenied",
                             (int)d->count[2], "changes", d->changes, "onlyInA", d->only[0],
                             "onlyInB", d->only[1], "recorded", (json_int_t)d->recorded,
                             "witnesses", (json_int_t)d->made, "proof", 0, "notes", d->notes));
        return;
    }
    if (json_array_size(d->only[0]) + json_array_size(d->only[1]))
        br_buf_printf(&d->o.v.out, "rules that only A (-) or only B (+) has: %zu, %zu\n",
                      json_array_size(d->only[0]), json_array_size(d->only[1]));
    put_only(&d->o, "  - ", d->only[0]);
    put_only(&d->o, "  + ", d->only[1]);
    put_changes(d, "allow", "newly allowed");
    put_changes(d, "ask", "newly asked");
    put_changes(d, "deny", "newly denied");
    json_array_foreach(d->notes, i, note)
    {
        policy_out_name(&d->o, json_string_value(note), 1);
        br_buf_printf(&d->o.v.out, "\n");
    }
    br_buf_printf(&d->o.v.out,
                  "%s of %zu requests (%zu recorded, %zu made from the patterns of those rules). "
                  "This is by witnesses and no proof\n",
                  json_array_size(d->changes) ? "found by asking both" : "no decision changes, out",
                  d->recorded + d->made, d->recorded, d->made);
}

static int run_diff(struct diff *d, const struct br_cli_args *a, uint32_t last, struct br_err *err)
{
    const json_t *r;
    size_t i;
    int e = policy_open_good(&d->a, a, a->operands[1], err);
    if (e < 0)
        return e;
    if ((e = policy_open_good(&d->b, a, a->operands[2], err)) < 0)
        return e;
    d->only[0] = only_in(d->a.table, d->b.table);
    d->only[1] = only_in(d->b.table, d->a.table);
    add_recorded(d, last);
    add_witnesses(d);
    json_array_foreach(d->requests, i, r) if ((e = ask_both(d, r, err)) < 0) return e;
    put_diff(d);
    return 0;
}

int policy_diff(const struct br_cli_args *a)
{
    struct br_err err = {.code = BR_OK};
    struct diff d = {.json = br_cli_opt(a, "json") != NULL,
                     .requests = json_array(),
                     .seen = json_object(),
                     .changes = json_array(),
                     .notes = json_array()};
    uint32_t last = RUNS_DEFAULT;
    int r = 0;
    policy_out_init(&d.o);
    if (a->noperands != 3)
        r = br_err_set(&err, BR_E_USAGE, "it takes two policies: bridle policy diff A B");
    if (r == 0 && br_cli_opt(a, "last"))
        r = br_cli_number("--last", br_cli_opt(a, "last"), 0, 10000, &last, &err);
    if (r == 0)
        r = run_diff(&d, a, last, &err);
    int code = r < 0 ? br_cli_fail(&err) : json_array_size(d.changes) ? POLICY_EXIT_CHANGED : 0;
    code = policy_out_end(&d.o, code);
    policy_close(&d.b);
    policy_close(&d.a);
    json_t *const all[] = {d.only[0], d.only[1], d.requests, d.seen, d.changes, d.notes};
    for (size_t i = 0; i < BR_ARRAY_LEN(all); i++)
        json_decref(all[i]);
    return code;
}
