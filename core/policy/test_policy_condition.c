/*
 * Conditions of rules: every kind of them, at its edges, with what is absent counted against an
 * allow and for an ask or a deny; and where a rule was written comes back with its vote.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "policy/policy_priv.h"

static struct br_table *load(const char *condition, const char *effect)
{
    char json[1024];
    struct br_table *t = NULL;
    struct br_err err = {.code = BR_OK};
    int n = snprintf(json, sizeof(json),
                     "{\"v\":2,\"sources\":[{\"kind\":\"operator\",\"name\":\"o\"}],\"rules\":["
                     "{\"id\":\"r\",\"source\":0,\"action\":\"x\",\"match\":\"any\",\"effect\":"
                     "\"%s\",\"file\":\"policy.lua\",\"line\":7,\"when\":[0]}],\"fallbacks\":[],"
                     "\"predicates\":false,\"conditions\":[%s]}",
                     effect, condition);
    if (br_table_load(json, (size_t)n, &t, &err) < 0)
        fail_msg("%s: %s", condition, err.text);
    return t;
}

static bool holds(const char *condition, const char *effect, const struct br_context *c)
{
    struct br_decision d;
    struct br_table *t = load(condition, effect);
    br_table_decide(t, &(struct br_request){.action = "x", .context = c}, &d);
    bool yes = d.nvotes == 1;
    if (yes) {
        assert_string_equal(d.rule_id, "r");
        assert_string_equal(d.file, "policy.lua");
        assert_int_equal(d.line, 7);
        assert_string_equal(d.votes[0].file, "policy.lua");
        assert_int_equal(d.votes[0].line, 7);
    } else {
        assert_string_equal(d.rule_id, BR_RULE_DEFAULT);
        assert_null(d.file);
    }
    br_table_free(&t);
    return yes;
}

static void check(const char *condition, const struct br_context *c, bool expected)
{
    static const char *const effects[] = {"allow", "ask", "deny"};
    for (size_t i = 0; i < BR_ARRAY_LEN(effects); i++)
        if (holds(condition, effects[i], c) != expected)
            fail_msg("%s: %s is %s", condition, effects[i], expected ? "missing" : "there");
}

/* Without what it speaks of: no for an allow, yes for the others. */
static void check_absent(const char *condition, const struct br_context *c)
{
    assert_false(holds(condition, "allow", c));
    assert_true(holds(condition, "ask", c));
    assert_true(holds(condition, "deny", c));
}

static void test_absent(void **state)
{
    (void)state;
    static const char *const conditions[] = {
        "{\"tool\":[\"*\"]}",
        "{\"model\":[\"*\"]}",
        "{\"env\":[\"*\"]}",
        "{\"env_only\":[]}",
        "{\"time\":{\"days\":127,\"from\":0,\"to\":1440}}",
        "{\"time\":{\"days\":127,\"from\":0,\"to\":1440,\"zone\":0}}",
        "{\"budget\":[{\"counter\":\"calls\",\"value\":\"used\",\"is\":\"over\",\"limit\":0}]}",
    };
    struct br_context nothing = {.tool = NULL};
    for (size_t i = 0; i < BR_ARRAY_LEN(conditions); i++) {
        check_absent(conditions[i], NULL);
        check_absent(conditions[i], &nothing);
    }
    struct br_context time = {.has_time = true};
    check_absent(conditions[4], &time); /* the time, but not where */
    check(conditions[5], &time, true);
    /* one that does not hold decides, whatever else is unknown */
    struct br_context tool = {.tool = "fs_read"};
    check("{\"tool\":[\"fs_write\"],\"model\":[\"*\"]}", &tool, false);
    check_absent("{\"tool\":[\"fs_*\"],\"model\":[\"*\"]}", &tool);
}

static void test_names(void **state)
{
    (void)state;
    struct br_context c = {.tool = "fs_read", .model = "gpt-9"};
    check("{\"tool\":[\"fs_read\"]}", &c, true);
    check("{\"tool\":[\"x\",\"fs_*\"]}", &c, true);
    check("{\"tool\":[\"fs\"]}", &c, false);
    check("{\"model\":[\"gpt-?\"],\"tool\":[\"*\"]}", &c, true);
    check("{\"model\":[\"gpt-?\"],\"tool\":[\"x\"]}", &c, false);
}

static void test_environment(void **state)
{
    (void)state;
    static const char *const env[] = {"LD_PRELOAD=/tmp/x.so", "PATH", "A=b=c"};
    struct br_context none = {.has_env = true}, c = {.has_env = true, .env = env, .nenv = 3};
    check("{\"env\":[\"*\"]}", &none, false);
    check("{\"env_only\":[]}", &none, true);
    check("{\"env_only\":[\"A\"]}", &none, true);
    check("{\"env\":[\"LD_*\"]}", &c, true);
    check("{\"env\":[\"ld_*\"]}", &c, false);
    check("{\"env\":[\"PATH\"]}", &c, true);
    check("{\"env\":[\"PATH=*\"]}", &c, false); /* it is removed, not set */
    check("{\"env\":[\"LD_PRELOAD=*.so\"]}", &c, true);
    check("{\"env\":[\"LD_PRELOAD=*.dll\"]}", &c, false);
    check("{\"env\":[\"A=b=c\"]}", &c, true);
    check("{\"env\":[\"A=b\"]}", &c, false);
    check("{\"env_only\":[]}", &c, false);
    check("{\"env_only\":[\"A\",\"PATH\"]}", &c, false);
    check("{\"env_only\":[\"A\",\"PATH\",\"LD_*\"]}", &c, true);
    check("{\"env_only\":[\"*\"],\"env\":[\"A\"]}", &c, true);
    check("{\"env_only\":[\"*\"],\"env\":[\"B\"]}", &c, false);
}

static void check_time(const char *fields, int64_t unix_time, int local, bool expected)
{
    char json[128];
    struct br_context c = {
        .has_time = true, .unix_time = unix_time, .has_local = true, .local_offset = local};
    snprintf(json, sizeof(json), "{\"time\":{%s}}", fields);
    check(json, &c, expected);
}

#define MINUTE 60
#define HOUR 3600
#define DAY 86400
/* Monday, 5 January 2026, 00:00 UTC */
#define MONDAY (INT64_C(1767571200))

static void test_time(void **state)
{
    (void)state;
#define OFFICE "\"days\":31,\"from\":540,\"to\":1020"
    check_time(OFFICE ",\"zone\":0", MONDAY + 9 * HOUR - 1, 0, false);
    check_time(OFFICE ",\"zone\":0", MONDAY + 9 * HOUR, 0, true);
    check_time(OFFICE ",\"zone\":0", MONDAY + 17 * HOUR - 1, 0, true);
    check_time(OFFICE ",\"zone\":0", MONDAY + 17 * HOUR, 0, false);
    check_time(OFFICE ",\"zone\":0", MONDAY + 4 * DAY + 12 * HOUR, 0, true);  /* Friday */
    check_time(OFFICE ",\"zone\":0", MONDAY + 5 * DAY + 12 * HOUR, 0, false); /* Saturday */
    check_time(OFFICE ",\"zone\":0", MONDAY - DAY + 12 * HOUR, 0, false);     /* Sunday */
    /* zones: a fixed one does not ask where we are */
    check_time(OFFICE ",\"zone\":120", MONDAY + 7 * HOUR, -600, true);
    check_time(OFFICE ",\"zone\":-120", MONDAY + 7 * HOUR, 120, false);
    check_time(OFFICE, MONDAY + 7 * HOUR, 120, true);
    check_time(OFFICE, MONDAY + 7 * HOUR, 0, false);
    check_time(OFFICE, MONDAY - 12 * HOUR, 23 * 60, true); /* still Sunday in UTC */
    /* over midnight, the day is the one on which it begins: Friday 22:00 to 06:00 */
#define NIGHT "\"days\":16,\"from\":1320,\"to\":360,\"zone\":0"
    check_time(NIGHT, MONDAY + 4 * DAY + 22 * HOUR - 1, 0, false);
    check_time(NIGHT, MONDAY + 4 * DAY + 22 * HOUR, 0, true);
    check_time(NIGHT, MONDAY + 5 * DAY + 6 * HOUR - 1, 0, true);
    check_time(NIGHT, MONDAY + 5 * DAY + 6 * HOUR, 0, false);
    check_time(NIGHT, MONDAY + 4 * DAY + 3 * HOUR, 0, false);
    check_time(NIGHT, MONDAY + 5 * DAY + 23 * HOUR, 0, false);
    /* Sunday night is Monday morning */
    check_time("\"days\":64,\"from\":1320,\"to\":360,\"zone\":0", MONDAY + HOUR, 0, true);
    /* the ends of the day, and of time */
    check_time("\"days\":127,\"from\":0,\"to\":1440,\"zone\":0", MONDAY - 1, 0, true);
    check_time("\"days\":4,\"from\":1439,\"to\":1440,\"zone\":0", -DAY + 23 * HOUR + 59 * MINUTE, 0,
               true); /* Wednesday, 31 December 1969 */
    struct br_context c = {.has_time = true, .unix_time = INT64_MAX};
    check_absent("{\"time\":{" OFFICE ",\"zone\":1}}", &c);
}

static void check_budget(const char *counter, const char *value, const char *is, unsigned limit,
                         const struct br_context *c, bool expected)
{
    char json[160];
    snprintf(json, sizeof(json),
             "{\"budget\":[{\"counter\":\"%s\",\"value\":\"%s\",\"is\":\"%s\",\"limit\":%u}]}",
             counter, value, is, limit);
    check(json, c, expected);
}

static void test_budget(void **state)
{
    (void)state;
    struct br_context c = {.counters = {{true, 10, 5}, {true, 1000, 0}, {false, 0, 0}}};
    check_budget("calls", "used", "over", 9, &c, true);
    check_budget("calls", "used", "over", 10, &c, false);
    check_budget("calls", "used", "under", 10, &c, false);
    check_budget("calls", "used", "under", 11, &c, true);
    check_budget("calls", "left", "under", 6, &c, true);
    check_budget("calls", "left", "under", 5, &c, false);
    check_budget("calls", "left", "over", 4, &c, true);
    check_budget("tokens", "left", "under", 1, &c, true);
    check_budget("tokens", "used", "over", 999, &c, true);
    check_absent(
        "{\"budget\":[{\"counter\":\"asks\",\"value\":\"used\",\"is\":\"over\",\"limit\":0}]}", &c);
}

/* A rule with conditions beside one without: the better of those that hold. */
static void test_beside_others(void **state)
{
    (void)state;
    static const char json[] =
        "{\"v\":2,\"sources\":[{\"kind\":\"operator\",\"name\":\"o\"}],\"rules\":["
        "{\"id\":\"all\",\"source\":0,\"action\":\"x\",\"match\":\"any\",\"effect\":\"ask\"},"
        "{\"id\":\"tool\",\"source\":0,\"action\":\"*\",\"match\":\"any\",\"effect\":\"deny\","
        "\"when\":[1,0]},"
        "{\"id\":\"path\",\"source\":0,\"action\":\"fs.read\",\"match\":\"path\",\"pattern\":\"a/"
        "**\","
        "\"effect\":\"allow\",\"when\":[0]}],"
        "\"fallbacks\":[],\"predicates\":false,\"conditions\":[{\"tool\":[\"t\"]},{\"model\":["
        "\"m\"]}]}";
    struct br_table *t;
    struct br_err err;
    struct br_decision d;
    assert_int_equal(br_table_load(json, strlen(json), &t, &err), 0);
    struct br_context both = {.tool = "t", .model = "m"}, one = {.tool = "t", .model = "n"};
    struct br_request q = {.action = "x", .context = &both};
    br_table_decide(t, &q, &d);
    assert_string_equal(d.rule_id, "tool");
    q.context = &one;
    br_table_decide(t, &q, &d);
    assert_string_equal(d.rule_id, "all");
    q = (struct br_request){"fs.read", "a/b", 3, NULL, 0, &one};
    br_table_decide(t, &q, &d);
    assert_int_equal(d.effect, BR_EFFECT_ALLOW);
    q.context = &both;
    br_table_decide(t, &q, &d);
    assert_string_equal(d.rule_id, "tool");
    br_table_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_absent),      cmocka_unit_test(test_names),
        cmocka_unit_test(test_environment), cmocka_unit_test(test_time),
        cmocka_unit_test(test_budget),      cmocka_unit_test(test_beside_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
