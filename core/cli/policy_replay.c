/*
 * bridle policy replay: decide recorded calls again with another bundle, under the profile and the
 * manifest of their run, whose rules are in the record, and print what would change. The session
 * decides; here the candidate's rules are put in the place of the recorded operator's.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/policy_priv.h"

/* ---- one table of two ---- */

static int kind_of(const json_t *table, const json_t *rule)
{
    static const char *const kinds[] = {"profile", "operator", "manifest"};
    const char *kind = policy_source(table, rule);
    for (int i = 0; i < 3; i++)
        if (strcmp(kind, kinds[i]) == 0)
            return i;
    return -1;
}

/* Rules of `from` whose source is (or is not) the operator, with their sources as `at` numbers
 * them, and their conditions `shift` further. */
static void take_rules(json_t *into, const json_t *from, const char *list, bool operators,
                       const int at[3], size_t shift)
{
    const json_t *rule;
    size_t i, k;
    json_t *when;
    json_array_foreach(json_object_get(from, list), i, rule)
    {
        int kind = kind_of(from, rule);
        if (kind < 0 || (kind == 1) != operators || at[kind] < 0)
            continue;
        json_t *copy = json_deep_copy(rule);
        json_object_set_new(copy, "source", json_integer(at[kind]));
        json_array_foreach(json_object_get(copy, "when"), k, when)
            json_integer_set(when, json_integer_value(when) + (json_int_t)shift);
        json_array_append_new(into, copy);
    }
}

/* The sources in their one order: the candidate's operator, the recorded others. */
static json_t *take_sources(const json_t *recorded, const json_t *candidate, int at[3])
{
    json_t *sources = json_array();
    const json_t *source;
    size_t i;
    for (int kind = 0; kind < 3; kind++) {
        const json_t *from = kind == 1 ? candidate : recorded;
        at[kind] = -1;
        json_array_foreach(json_object_get(from, "sources"), i, source)
        {
            json_t *probe = json_pack("{s:I}", "source", (json_int_t)i);
            if (kind_of(from, probe) == kind && at[kind] < 0) {
                at[kind] = (int)json_array_size(sources);
                json_array_append(sources, (json_t *)(uintptr_t)source);
            }
            json_decref(probe);
        }
    }
    return sources;
}

/* What is known of programs, by name: the candidate's first. */
static json_t *take_programs(const json_t *recorded, const json_t *candidate)
{
    const json_t *tables[] = {candidate, recorded}, *p, *have;
    json_t *out = json_array();
    size_t i, k;
    for (int t = 0; t < 2; t++)
        json_array_foreach(json_object_get(tables[t], "programs"), i, p)
        {
            bool known = false;
            json_array_foreach(out, k, have) known |=
                json_equal(json_object_get(have, "name"), json_object_get(p, "name"));
            if (!known)
                json_array_append(out, (json_t *)(uintptr_t)p);
        }
    return out;
}

json_t *policy_merge(const json_t *recorded, const json_t *candidate)
{
    int at[3];
    if (!json_equal(json_object_get(recorded, "v"), json_object_get(candidate, "v")))
        return NULL;
    json_t *out = json_copy((json_t *)(uintptr_t)candidate), *rules = json_array();
    json_t *fallbacks = json_array(), *conditions = json_array();
    json_object_set_new(out, "sources", take_sources(recorded, candidate, at));
    json_array_extend(conditions, json_object_get(candidate, "conditions"));
    size_t shift = json_array_size(conditions);
    json_array_extend(conditions, json_object_get(recorded, "conditions"));
    take_rules(rules, recorded, "rules", false, at, shift);
    take_rules(rules, candidate, "rules", true, at, 0);
    take_rules(fallbacks, recorded, "fallbacks", false, at, 0);
    take_rules(fallbacks, candidate, "fallbacks", true, at, 0);
    json_object_set_new(out, "rules", rules);
    json_object_set_new(out, "fallbacks", fallbacks);
    if (json_array_size(conditions))
        json_object_set(out, "conditions", conditions);
    json_decref(conditions);
    json_t *programs = take_programs(recorded, candidate);
    if (json_array_size(programs))
        json_object_set(out, "programs", programs);
    json_decref(programs);
    return out;
}

int policy_use_json(struct policy_link *l, const json_t *table, struct br_err *err)
{
    BR_CLEANUP_FREE char *text = json_dumps(table, JSON_COMPACT);
    if (!text)
        return br_err_set(err, BR_E_NOMEM, "no memory for a table");
    return policy_use(l, text, strlen(text), err);
}

/* ---- replay ---- */

struct replay {
    struct policy_link l;
    struct policy_out o;
    bool json;
    json_t *changes, *notes;
    unsigned runs, decisions, loosened, tightened, moved, failed;
};

static void note(struct replay *p, const struct policy_run *r, const char *text)
{
    json_array_append_new(p->notes, json_pack("{s:s, s:s}", "run", r->id, "text", text));
}

/* The table that this run's calls are decided by. */
static int choose_table(struct replay *p, const struct policy_run *r, struct br_err *err)
{
    struct br_err why = {.code = BR_OK};
    json_t *merged = policy_table_usable(r) ? policy_merge(r->table, p->l.table) : NULL;
    const char *lack = !policy_table_usable(r) ? "its record holds no table"
                       : !merged               ? "its table has another format"
                                               : NULL;
    if (merged && policy_use_json(&p->l, merged, &why) < 0) {
        lack = why.code == BR_E_INVALID_ARGUMENTS ? "its recorded table cannot be used" : NULL;
        if (!lack)
            *err = why;
    } else if (merged && !policy_table_exact(r)) {
        note(p, r, "something in its recorded table was redacted, or changed");
    }
    json_decref(merged);
    if (!lack)
        return -(int)err->code;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(2 * BR_ERR_TEXT_MAX);
    br_buf_printf(&b,
                  "%s: the rules of its profile and manifest do not count, those of the command "
                  "line do%s%s",
                  lack, why.code ? ": " : "", why.text);
    note(p, r, b.failed ? lack : br_buf_cstr(&b));
    return policy_use(&p->l, (char *)p->l.raw.data, p->l.raw.len, err);
}

static const char *effect_name(enum br_effect e)
{
    return e == BR_EFFECT_ALLOW ? "allow" : e == BR_EFFECT_ASK ? "ask" : "deny";
}

static enum br_effect effect_of(const json_t *o)
{
    const char *e = json_string_value(json_object_get(o, "effect"));
    return !e                        ? BR_EFFECT_DENY
           : strcmp(e, "allow") == 0 ? BR_EFFECT_ALLOW
           : strcmp(e, "ask") == 0   ? BR_EFFECT_ASK
                                     : BR_EFFECT_DENY;
}

static void put_change(struct policy_out *o, const json_t *c)
{
    size_t n;
    const char *old = view_str(c, "old", &n), *now = view_str(c, "new", &n);
    view_word(&o->v, view_effect_style(old), old, 5);
    br_buf_printf(&o->v.out, " -> ");
    view_word(&o->v, view_effect_style(now), now, 5);
    br_buf_printf(&o->v.out, "  ");
    policy_out_name(o, view_str(c, "run", &n), 1);
    br_buf_printf(&o->v.out, " ");
    policy_out_name(o, view_str(c, "callId", &n), 1);
    br_buf_printf(&o->v.out, "\n    ");
    policy_out_name(o, view_str(c, "action", &n), 1);
    br_buf_printf(&o->v.out, "  ");
    const char *subject = view_str(c, "subject", &n);
    br_cli_put_line(&o->v.out, subject, n, o->tty ? 400 : 8192);
    br_buf_printf(&o->v.out, "\n    ");
    policy_out_name(o, view_str(c, "oldRule", &n), 1);
    br_buf_printf(&o->v.out, " -> ");
    policy_out_name(o, view_str(c, "newRule", &n), 1);
    const char *reason = view_str(c, "reason", &n);
    if (n) {
        br_buf_printf(&o->v.out, ": ");
        br_cli_put_line(&o->v.out, reason, n, o->tty ? 400 : 8192);
    }
    br_buf_printf(&o->v.out, json_is_true(json_object_get(c, "redacted"))
                                 ? "\n    decided on what is left of it: something is redacted\n"
                                 : "\n");
}

static void compare(struct replay *p, const struct policy_run *r, const struct policy_decision *d,
                    const json_t *said)
{
    size_t n;
    const json_t *was = d->votes;
    enum br_effect old = effect_of(was), now = effect_of(said);
    if (old == now) {
        p->moved += !json_equal(json_object_get(was, "ruleId"), json_object_get(said, "ruleId"));
        return;
    }
    p->loosened += now < old;
    p->tightened += now > old;
    json_t *c = json_pack(
        "{s:s, s:O, s:O, s:O*, s:s, s:s, s:O, s:O*, s:s, s:b}", "run", r->id, "callId",
        json_object_get(was, "callId"), "action", json_object_get(was, "action"), "subject",
        json_object_get(was, "subject"), "old", effect_name(old), "new", effect_name(now),
        "oldRule", json_object_get(was, "ruleId"), "newRule", json_object_get(said, "ruleId"),
        "reason", view_str(said, "reason", &n), "redacted", (int)d->redacted);
    if (p->json) {
        json_array_append_new(p->changes, c);
        return;
    }
    put_change(&p->o, c);
    json_decref(c);
}

static int replay_run(struct replay *p, const struct policy_run *r, struct br_err *err)
{
    int e = r->n ? choose_table(p, r, err) : 0;
    for (size_t i = 0; e == 0 && i < r->n; i++) {
        json_t *said = NULL;
        e = policy_ask(&p->l, policy_request(&r->d[i]), &said, err);
        if (e == -BR_E_INVALID_ARGUMENTS) { /* one that cannot be made any more */
            BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
            br_buf_printf(&b, "call '%.80s' could not be decided again: %.800s",
                          json_string_value(json_object_get(r->d[i].votes, "callId")), err->text);
            note(p, r, br_buf_cstr(&b));
            *err = (struct br_err){.code = BR_OK};
            p->failed++;
            e = 0;
        } else if (e == 0) {
            compare(p, r, &r->d[i], said);
        }
        json_decref(said);
        if (!policy_out_flush(&p->o, false))
            return 0;
    }
    p->runs++;
    p->decisions += (unsigned)r->n;
    return e;
}

static void put_end(struct replay *p)
{
    const json_t *n;
    size_t i, len;
    if (p->json) {
        policy_out_json(&p->o, json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:O, s:O}", "runs",
                                         (int)p->runs, "decisions", (int)p->decisions, "loosened",
                                         (int)p->loosened, "tightened", (int)p->tightened,
                                         "otherRule", (int)p->moved, "undecided", (int)p->failed,
                                         "changes", p->changes, "notes", p->notes));
        return;
    }
    json_array_foreach(p->notes, i, n)
    {
        policy_out_name(&p->o, view_str(n, "run", &len), 1);
        br_buf_printf(&p->o.v.out, ": ");
        br_cli_put_line(&p->o.v.out, view_str(n, "text", &len), strlen(view_str(n, "text", &len)),
                        8192);
        br_buf_printf(&p->o.v.out, "\n");
    }
    br_buf_printf(&p->o.v.out,
                  "%u decisions of %u run%s: %u would be looser, %u stricter, %u the same by "
                  "another rule",
                  p->decisions, p->runs, p->runs == 1 ? "" : "s", p->loosened, p->tightened,
                  p->moved);
    br_buf_printf(&p->o.v.out, p->failed ? ", %u could not be decided again\n" : "\n", p->failed);
}

int policy_replay(const struct br_cli_args *a)
{
    struct br_err err = {.code = BR_OK};
    struct policy_history h = {.nruns = 0};
    struct replay p = {.json = br_cli_opt(a, "json") != NULL};
    const char *last = br_cli_opt(a, "last");
    uint32_t n = UINT32_MAX;
    int r = 0;
    if (!br_cli_opt(a, "policy"))
        r = br_err_set(&err, BR_E_USAGE,
                       "there is no candidate: bridle policy replay [RUN|FILE...] --policy FILE");
    if (r == 0 && last)
        r = br_cli_number("--last", last, 1, 10000, &n, &err);
    if (r == 0)
        r = policy_history_read(&h, a->operands + 1, a->noperands - 1, n, &err);
    policy_out_init(&p.o);
    p.changes = json_array();
    p.notes = json_array();
    if (r == 0)
        r = policy_open_good(&p.l, a, NULL, &err);
    for (size_t i = 0; r == 0 && i < h.nruns; i++)
        r = replay_run(&p, &h.runs[i], &err);
    if (r == 0)
        put_end(&p);
    int code = r < 0 ? br_cli_fail(&err) : p.loosened || p.tightened ? POLICY_EXIT_CHANGED : 0;
    code = policy_out_end(&p.o, code);
    policy_close(&p.l);
    policy_history_free(&h);
    json_decref(p.changes);
    json_decref(p.notes);
    return code;
}
