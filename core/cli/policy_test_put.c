/*
 * What `bridle policy test` says at its end: rules and checks with what reached them, branches that
 * nothing reached, mutants that nothing noticed; as text and as JSON.
 */
#include <string.h>

#include "cli/policy_test.h"

unsigned policy_test_percent(unsigned part, unsigned all)
{
    return all ? (unsigned)((uint64_t)part * 100 / all) : 100;
}

unsigned policy_test_rules(const struct test *t, bool decided)
{
    unsigned n = 0;
    for (unsigned i = 0; i < t->nrules; i++)
        n += (decided ? t->rules[i].decided : t->rules[i].matched) > 0;
    return n;
}

unsigned policy_test_branches(const struct test *t, bool reached)
{
    unsigned n = 0;
    for (size_t i = 0; i < t->sites.n; i++)
        n += policy_site_is_branch(&t->sites.list[i]) && (!reached || t->reached[i]);
    return n;
}

static const char *bare(const char *id)
{
    return strncmp(id, "operator:", 9) == 0 ? id + 9 : id;
}

static void put_place(struct policy_out *o, const char *where, const char *id, size_t n)
{
    char name[BR_NAME_MAX];
    snprintf(name, sizeof(name), "%.*s", (int)(n - (size_t)(bare(id) - id)), bare(id));
    policy_out_name(o, *where ? where : "-", 20);
    br_buf_printf(&o->v.out, "  ");
    policy_out_name(o, name, 28);
}

static void put_rules(struct policy_out *o, const struct test *t)
{
    char where[BR_PATH_MAX + 16];
    unsigned decided = policy_test_rules(t, true);
    br_buf_printf(&o->v.out, "rules: %u of %u decided a request (%u %%), %u matched one\n", decided,
                  t->nrules, policy_test_percent(decided, t->nrules), policy_test_rules(t, false));
    for (unsigned i = 0; i < t->nrules; i++) {
        const struct rule *r = &t->rules[i];
        br_buf_printf(&o->v.out, "  ");
        put_place(o, policy_where(r->row, where), r->id, r->len);
        br_buf_printf(&o->v.out, "  matched %4u  decided %4u%s\n", r->matched, r->decided,
                      r->decided ? "" : "  <- never decided");
        (void)policy_out_flush(o, false);
    }
    if (t->inherited)
        br_buf_printf(&o->v.out, "  %u rules of extended bundles are not counted\n", t->inherited);
}

static void put_checks(struct policy_out *o, const struct test *t)
{
    const char *id;
    json_t *seen;
    if (!json_is_true(json_object_get(t->v[0].l.table, "predicates")))
        return;
    br_buf_printf(&o->v.out, "checks: asked %u times, without a vote %u times\n", t->checked,
                  t->unnamed);
    json_object_foreach(t->checks, id, seen)
    {
        br_buf_printf(&o->v.out, "  ");
        policy_out_name(o, bare(id), 28);
        br_buf_printf(&o->v.out, "  ask %u, deny %u\n", (unsigned)view_u64(seen, "ask"),
                      (unsigned)view_u64(seen, "deny"));
    }
}

static void put_branches(struct policy_out *o, const struct test *t)
{
    char where[BR_PATH_MAX + 16];
    const char *path = t->v[0].l.d.policy.path, *slash = strrchr(path, '/');
    unsigned all = policy_test_branches(t, false), n = policy_test_branches(t, true);
    if (!all || t->status)
        return;
    br_buf_printf(&o->v.out, "branches: %u of %u are reached (%u %%)\n", n, all,
                  policy_test_percent(n, all));
    for (size_t i = 0; i < t->sites.n; i++) {
        const struct policy_site *s = &t->sites.list[i];
        if (!policy_site_is_branch(s) || t->reached[i])
            continue;
        snprintf(where, sizeof(where), "%s:%u", slash ? slash + 1 : path, s->line);
        br_buf_printf(&o->v.out, "  ");
        policy_out_name(o, where, 20);
        br_buf_printf(&o->v.out, "  %s\n", s->what);
    }
}

static void put_mutants(struct policy_out *o, const struct test *t)
{
    const json_t *s;
    size_t i, n, len;
    if (t->status) {
        br_buf_printf(&o->v.out, "mutants: none were tried, because the specs fail\n");
        return;
    }
    br_buf_printf(&o->v.out, "mutants: %u of %u are noticed (%u %%)", t->killed, t->mutants,
                  policy_test_percent(t->killed, t->mutants));
    br_buf_printf(&o->v.out, t->rerun ? ", busted ran again for %u\n" : "\n", t->rerun);
    json_array_foreach(t->survivors, i, s)
    {
        const char *id = view_str(s, "rule", &len), *instead = view_str(s, "instead", &n);
        br_buf_printf(&o->v.out, "  ");
        put_place(o, view_str(s, "where", &n), id, len);
        if (*view_str(s, "change", &n))
            br_buf_printf(&o->v.out, "  %s is not noticed\n", view_str(s, "change", &n));
        else if (*instead)
            br_buf_printf(&o->v.out, "  %s -> %s is not noticed\n", view_str(s, "effect", &n),
                          instead);
        else
            br_buf_printf(&o->v.out, "  its removal is not noticed\n");
        (void)policy_out_flush(o, false);
    }
}

void policy_test_put(struct policy_out *o, const struct test *t)
{
    put_rules(o, t);
    put_checks(o, t);
    put_branches(o, t);
    put_mutants(o, t);
}

static json_t *branches_json(const struct test *t)
{
    char where[BR_PATH_MAX + 16];
    const char *path = t->v[0].l.d.policy.path, *slash = strrchr(path, '/');
    unsigned all = policy_test_branches(t, false), n = policy_test_branches(t, true);
    json_t *missed = json_array();
    for (size_t i = 0; i < t->sites.n; i++) {
        const struct policy_site *s = &t->sites.list[i];
        snprintf(where, sizeof(where), "%s:%u", slash ? slash + 1 : path, s->line);
        if (policy_site_is_branch(s) && !t->reached[i])
            json_array_append_new(missed, json_pack("{s:s, s:s}", "where", where, "what", s->what));
    }
    return json_pack("{s:i, s:i, s:i, s:o}", "percent", (int)policy_test_percent(n, all),
                     "branches", (int)all, "reached", (int)n, "missed", missed);
}

void policy_test_json(struct policy_out *o, const struct test *t, int code)
{
    char where[BR_PATH_MAX + 16];
    json_t *rules = json_array();
    for (unsigned i = 0; i < t->nrules; i++) {
        const struct rule *r = &t->rules[i];
        json_t *row = json_pack("{s:s%, s:i, s:i}", "id", r->id, r->len, "matched", (int)r->matched,
                                "decided", (int)r->decided);
        if (*policy_where(r->row, where))
            json_object_set_new(row, "where", json_string(where));
        json_array_append_new(rules, row);
    }
    json_t *out = json_pack(
        "{s:b, s:b, s:i, s:i, s:{s:i, s:i, s:o}, s:{s:i, s:i, s:O}}", "ok", code == 0, "passed",
        t->status == 0, "requests", (int)t->nasked, "inherited", (int)t->inherited, "coverage",
        "percent", (int)policy_test_percent(policy_test_rules(t, true), t->nrules), "decided",
        (int)policy_test_rules(t, true), "rules", rules, "checks", "asked", (int)t->checked,
        "silent", (int)t->unnamed, "votes", t->checks);
    if (t->status == 0)
        json_object_set_new(out, "branches", branches_json(t));
    if (t->status == 0)
        json_object_set_new(out, "mutation",
                            json_pack("{s:i, s:i, s:i, s:i, s:O}", "percent",
                                      (int)policy_test_percent(t->killed, t->mutants), "mutants",
                                      (int)t->mutants, "noticed", (int)t->killed, "busted",
                                      (int)t->rerun, "survivors", t->survivors));
    policy_out_json(o, out);
}
