/*
 * Decision tables from anywhere: whatever loads must decide, every answer must be one of the three,
 * and the strictest of the votes.
 */
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void count(const struct br_explained *e, void *ctx)
{
    unsigned *matched = ctx;
    *matched += e->why == BR_WHY_MATCHED;
}

static void check(const struct br_table *t, const struct br_request *q)
{
    struct br_decision d, again;
    unsigned matched = 0;
    br_table_decide(t, q, &d);
    if (br_table_explain(t, q, &again, count, &matched) == 0)
        br_require(again.effect == d.effect && again.rule_id == d.rule_id &&
                   matched <= br_table_rules(t));
    br_require(d.effect >= BR_EFFECT_ALLOW && d.effect <= BR_EFFECT_DENY);
    br_require(d.rule_id && d.source && d.nvotes <= 3);
    enum br_effect strictest = BR_EFFECT_NONE;
    for (unsigned i = 0; i < d.nvotes; i++)
        strictest = br_effect_strictest(strictest, d.votes[i].effect);
    br_require(d.nvotes == 0 ? d.effect != BR_EFFECT_ALLOW : d.effect == strictest);
}

static void check_instead(const struct br_table *t, const char *action, const char *near)
{
    struct br_instead list[BR_INSTEAD_MAX];
    struct br_where where;
    unsigned n = br_table_instead(t, action, near, NULL, list, BR_INSTEAD_MAX);
    br_require(n <= BR_INSTEAD_MAX);
    for (unsigned i = 0; i < n; i++)
        br_require(list[i].pattern && (br_table_where(t, "profile", list[i].rule_id, &where) ||
                                       br_table_where(t, "operator", list[i].rule_id, &where) ||
                                       br_table_where(t, "manifest", list[i].rule_id, &where)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const words[] = {"git", "diff", "src/a.ts"};
    static const char *const odd[] = {"/bin/git", "-C",   "push", "--x=y", "-rf", "--recurs",
                                      "push",     "--",   "-f",   "",      "-",   "../a/..",
                                      "--=",      "-c=a", "-Cd",  "/etc",  "~",   "alias.x"};
    static const char *const env[] = {"LD_PRELOAD=x", "A", "=", ""};
    static const struct br_context some = {.tool = "fs_read",
                                           .has_env = true,
                                           .env = env,
                                           .nenv = 4,
                                           .has_time = true,
                                           .unix_time = INT64_MIN,
                                           .counters = {{true, 0, UINT64_MAX}}};
    static const struct br_request q[] = {
        {.action = "process.exec", .words = words, .nwords = 3},
        {.action = "process.exec", .words = words, .nwords = 1},
        {.action = "fs.read", .subject = "src/a/b", .subject_len = 7},
        {.action = "fs.write", .subject = "a", .subject_len = 1},
        {.action = "fs.write", .subject = "../a", .subject_len = 4},
        {.action = "network", .subject = "A.example:443", .subject_len = 13},
        {.action = "x"},
        {.action = "process.exec", .words = odd, .nwords = BR_ARRAY_LEN(odd)},
        {.action = "process.exec", .words = odd, .nwords = 9, .context = &some},
        {.action = "fs.read", .subject = "a", .subject_len = 1, .context = &some},
    };
    struct br_table *t;
    struct br_err err = {.code = BR_OK};
    if (br_table_load(data, size, &t, &err) < 0) {
        br_require(!t && err.code != BR_OK && err.text[0]);
        return 0;
    }
    br_require(t && err.code == BR_OK);
    for (size_t i = 0; i < BR_ARRAY_LEN(q); i++)
        check(t, &q[i]);
    check_instead(t, "process.exec", "/bin/git push origin");
    check_instead(t, "fs.write", "src/a/b");
    check_instead(t, "x", NULL);
    br_table_free(&t);
    return 0;
}
