/*
 * What is allowed instead: the nearest patterns first, never more than there is room for, and none
 * whose example is not allowed by the whole table. And where a rule was written.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "policy/policy.h"

#define RULE(id, source, action, match, pattern, effect, more)                                     \
    "{\"id\":\"" id "\",\"source\":" source ",\"action\":\"" action "\",\"match\":\"" match        \
    "\",\"pattern\":\"" pattern "\",\"effect\":\"" effect "\"" more "}"
#define ALLOW(id, action, match, pattern) RULE(id, "0", action, match, pattern, "allow", "")

static struct br_table *load(const char *rules, const char *more)
{
    char text[8192];
    struct br_table *t = NULL;
    struct br_err err = {.code = BR_OK};
    snprintf(text, sizeof(text),
             "{\"v\":2,\"sources\":[{\"kind\":\"operator\",\"name\":\"o\"},{\"kind\":\"manifest\","
             "\"name\":\"m\"}],\"rules\":[%s],\"fallbacks\":[{\"id\":\"other\",\"source\":0,"
             "\"action\":\"process.exec\",\"effect\":\"ask\",\"file\":\"f.lua\",\"line\":5}],"
             "\"predicates\":false%s}",
             rules, more);
    if (br_table_load(text, strlen(text), &t, &err) < 0)
        fail_msg("%s", err.text);
    return t;
}

static void expect(const struct br_table *t, const char *action, const char *near, unsigned max,
                   const char *want)
{
    struct br_instead list[BR_INSTEAD_MAX];
    char got[1024] = "";
    unsigned n = br_table_instead(t, action, near, NULL, list, max);
    for (unsigned i = 0; i < n; i++) {
        size_t at = strlen(got);
        snprintf(got + at, sizeof(got) - at, "%s%s", i ? "; " : "", list[i].pattern);
    }
    if (strcmp(got, want) != 0)
        fail_msg("%s near '%s': '%s', not '%s'", action, near ? near : "-", got, want);
}

static void test_nearest_first(void **state)
{
    (void)state;
    struct br_table *t = load(
        ALLOW("a", "process.exec", "command", "ls*") "," ALLOW("b", "process.exec", "command", "git diff*") "," RULE(
            "c", "0", "process.exec", "program", "git|hg status|log without -o", "allow",
            ",\"command\":{\"program\":\"git\",\"words\":[[\"status\",\"log\"]],"
            "\"without\":[\"-o\"]}") "," ALLOW("d", "fs.write", "path",
                                               "docs/**") "," ALLOW("e", "fs.write", "path",
                                                                    "src/gen/*") "," ALLOW("f",
                                                                                           "fs."
                                                                                           "write",
                                                                                           "path",
                                                                                           "src/"
                                                                                           "*.h") "," ALLOW("g",
                                                                                                            "fs.write",
                                                                                                            "path",
                                                                                                            "srv/**"),
        "");
    const char *git = "git|hg status|log without -o; ls*; git diff*";
    expect(t, "process.exec", "git push origin", 8, "git diff*; git|hg status|log without -o; ls*");
    expect(t, "process.exec", "/usr/bin/hg push", 8, git);
    expect(t, "process.exec", "make", 8, git);
    expect(t, "process.exec", NULL, 2, "git|hg status|log without -o; ls*");
    expect(t, "process.exec", "x", 0, "");
    expect(t, "fs.write", "src/gen/deep/x", 8, "src/gen/*; src/*.h; docs/**; srv/**");
    expect(t, "fs.read", "a", 8, "");
    expect(NULL, "fs.read", "a", 8, "");
    br_table_free(&t);
}

/* An allow that something stricter always meets is not held out as one. */
static void test_only_what_is_allowed(void **state)
{
    (void)state;
    struct br_table *t = load(
        ALLOW("a", "fs.write", "path", "src/**") "," ALLOW("b", "fs.write", "path", "key/*") "," RULE(
            "c", "0", "fs.write", "path", "key/**", "deny",
            "") "," ALLOW("d", "fs.write", "path",
                          "asked/*") "," RULE("e", "0", "fs.write", "path", "asked/**", "ask",
                                              "") "," ALLOW("f", "fs.write", "path",
                                                            "task/*") "," RULE("g", "1", "fs.write",
                                                                               "path", "task/**",
                                                                               "deny",
                                                                               "") "," RULE("h",
                                                                                            "0",
                                                                                            "fs."
                                                                                            "write",
                                                                                            "path",
                                                                                            "tool/"
                                                                                            "*",
                                                                                            "allow",
                                                                                            ",\"whe"
                                                                                            "n\":["
                                                                                            "0]"),
        ",\"conditions\":[{\"tool\":[\"fs_edit\"]}]");
    expect(t, "fs.write", "key/x", 8, "src/**");
    struct br_context edit = {.tool = "fs_edit"};
    struct br_instead list[BR_INSTEAD_MAX];
    assert_int_equal(br_table_instead(t, "fs.write", "tool/x", &edit, list, 8), 2);
    assert_string_equal(list[0].pattern, "tool/*");
    assert_string_equal(list[0].rule_id, "h");
    br_table_free(&t);
}

static void test_bounds(void **state)
{
    (void)state;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8000);
    for (unsigned i = 0; i < 20; i++)
        br_buf_printf(&b, ALLOW("r%u", "x", "text", "p%u") ",", i, i);
    br_buf_printf(&b, ALLOW("same", "x", "text", "p3") "," ALLOW("any", "*", "any", ""));
    struct br_table *t = load(br_buf_cstr(&b), "");
    expect(t, "x", "p19", 99, "p19; p0; p1; p2; p3; p4; p5; p6");
    expect(t, "y", "p19", 99, "*");
    br_table_free(&t);
}

static void test_where(void **state)
{
    (void)state;
    struct br_where w;
    struct br_table *t =
        load(RULE("a", "0", "x", "text", "p", "ask",
                  ",\"file\":\"a.lua\",\"line\":3") "," RULE("a", "1", "x", "text", "p", "ask", ""),
             "");
    assert_true(br_table_where(t, "operator", "a", &w));
    assert_string_equal(w.file, "a.lua");
    assert_int_equal(w.line, 3);
    assert_false(w.otherwise);
    assert_true(br_table_where(t, "manifest", "a", &w));
    assert_null(w.file);
    assert_true(br_table_where(t, "operator", "other", &w));
    assert_true(w.otherwise);
    assert_int_equal(w.line, 5);
    assert_false(br_table_where(t, "profile", "a", &w));
    assert_false(br_table_where(t, "operator", "b", &w));
    assert_false(br_table_where(t, NULL, "a", &w));
    assert_false(br_table_where(NULL, "operator", "a", &w));
    assert_true(!w.file && !w.line && !w.otherwise);
    br_table_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nearest_first),
        cmocka_unit_test(test_only_what_is_allowed),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
