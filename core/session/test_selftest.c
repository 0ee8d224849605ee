/*
 * The self-test of a bundle, against a policy's process that answers as it is told: what is good
 * decides every probe, and whatever is wrong is a code, a place and an end, never "good".
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "session/test_rig.h"

#define PROBES 30

static const char with_check[] =
    "{\"v\":2,\"sources\":[{\"kind\":\"operator\",\"name\":\"test\"}],\"rules\":["
    "{\"id\":\"all\",\"source\":0,\"action\":\"*\",\"match\":\"any\",\"pattern\":\"\","
    "\"effect\":\"allow\"}],\"fallbacks\":[],\"predicates\":true}";

static void test_bundle(const struct session_rig_options *o, struct session_rig *r,
                        struct outcome *out)
{
    static struct session_rig_options kept; /* the peers read it */
    kept = *o;
    kept.mode = BR_RUN_SELFTEST;
    *out = (struct outcome){.code = 0};
    session_rig_open(r, &kept);
    session_run_selftest(&r->s, out);
    for (int i = 0; i < 1000 && !r->seen->tested; i++)
        (void)br_loop_run_until(r->s.loop, &(bool){false}, br_now_us() + 5000, NULL);
    assert_int_equal(r->seen->tested, 1);
    assert_string_equal(r->seen->types, ""); /* nothing is recorded */
}

/* All is allowed, and still what must be denied is. */
static void test_good(void **state)
{
    (void)state;
    static const struct session_rig_options good[] = {
        {.table = NULL},
        {.table = with_check, .predicate = PREDICATE_ANSWERS, .always = true},
        {.table = NULL, .warnings = 3},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(good); i++) {
        struct session_rig r;
        struct outcome out;
        test_bundle(&good[i], &r, &out);
        assert_int_equal(out.code, 0);
        assert_int_equal(r.seen->probes, PROBES);
        assert_int_equal(r.seen->rules, 1);
        assert_int_equal(r.seen->warnings, good[i].warnings);
        assert_int_equal(strlen(r.seen->tested_table), 64);
        assert_string_equal(r.seen->tested_file, "");
        assert_int_equal(r.seen->line, 0);
        /* a check is asked where the rules did not deny */
        assert_int_equal(r.seen->asked, i == 1 ? 17 : 0);
        session_rig_close(&r);
    }
}

static void test_bad_checks(void **state)
{
    (void)state;
    static const struct {
        enum session_rig_predicate how;
        enum br_code code;
        unsigned line;
        const char *says;
    } rows[] = {
        {PREDICATE_FAILS, BR_E_POLICY_ERROR, 7, "policy.lua:7: boo"},
        {PREDICATE_GARBAGE, BR_E_POLICY_ERROR, 3, "no usable answer"},
        {PREDICATE_SILENT, BR_E_TIMEOUT, 3, "did not answer in time"},
        {PREDICATE_DIES, BR_E_PROGRAM_DIED, 3, ""},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct session_rig r;
        struct outcome out;
        test_bundle(&(struct session_rig_options){.table = with_check,
                                                  .predicate = rows[i].how,
                                                  .always = true},
                    &r, &out);
        assert_int_equal(out.code, rows[i].code);
        if (!strstr(out.text, rows[i].says))
            fail_msg("'%s' is not in '%s'", rows[i].says, out.text);
        assert_int_equal(r.seen->asked, 1); /* the first failure ends it */
        assert_in_range(r.seen->probes, 0, PROBES - 1);
        assert_string_equal(r.seen->tested_file, "policy.lua");
        assert_int_equal(r.seen->line, rows[i].line);
        session_rig_close(&r);
    }
}

/* What the compiler sent is no table. */
static void test_bad_table(void **state)
{
    (void)state;
    static const char *const tables[] = {"", "{}", "{\"v\":3}", "not even JSON"};
    for (size_t i = 0; i < BR_ARRAY_LEN(tables); i++) {
        struct session_rig r;
        struct outcome out;
        test_bundle(&(struct session_rig_options){.table = tables[i]}, &r, &out);
        assert_int_not_equal(out.code, 0);
        assert_int_equal(r.seen->probes, 0);
        assert_string_equal(r.seen->tested_table, "");
        session_rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad_checks),
        cmocka_unit_test(test_bad_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
