/*
 * Branches in the text of a bundle: found where Lua's own parser would find them, past strings,
 * comments and nested functions; a changed text has the same lines.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the above first */
#include <cmocka.h>

#include "cli/policy_priv.h"

/* One letter for each: branch, otherwise, condition, deny, ask. */
static void expect(const char *text, const char *kinds)
{
    struct policy_sites s;
    char found[128] = "";
    assert_int_equal(policy_sites_find(&s, text, strlen(text), NULL), 0);
    for (size_t i = 0; i < s.n && i < sizeof(found) - 1; i++)
        found[i] = "bocda"[s.list[i].kind];
    if (strcmp(found, kinds) != 0)
        fail_msg("%s: '%s', not '%s'", text, found, kinds);
    policy_sites_free(&s);
}

static void test_found(void **state)
{
    (void)state;
    expect("", "");
    expect("if a then b() else c() end while x do end", ""); /* not in a function */
    expect("function f() end", "b");
    expect("local f = function(a, b) return a end", "b");
    expect("function a.b:c(...) if x then y() end end", "bcbo");
    expect("function f() if x then y() elseif z then w() end end", "bcbcbo");
    expect("function f() if x then y() else w() end end", "bcbb");
    expect("function f() while a do b() end for i = 1, 2 do c() end do d() end end", "bbb");
    expect("function f() repeat if a then b() end until c end", "bcbo");
    expect("function f() for _ in g(function() do end end) do h() end end", "bbb");
    expect("function f() if (function() return true end)() then b() end end", "bbcbo");
    expect("function f() return 'deny', 'ask' end", "bd");
    expect("function f() return\n \"ask\" end", "ba");
    expect("function f() return 'denyx' end", "b");
    expect("function f() return x, 'deny' end", "b");
}

static void test_not_code(void **state)
{
    (void)state;
    expect("-- function f() end", "");
    expect("--[[ function f() end\n]] x = 1", "");
    expect("--[==[ function f() ]] end ]==] x = 1", "");
    expect("local s = 'function f() end' .. \"if \\\" then\"", "");
    expect("local s = [[ function f() ]] local t = [=[ if ]] ]=]", "");
    expect("local t = { x[1] } function f() end", "b");
    expect("function f() local t = { ['end'] = 1 } return t.format, t:ending() end", "b");
    expect("function f() return 'a'..'end' end", "b");
    expect("function f() local x = a..b goto done ::done::end", "b");
    expect("function f() x = 'a\\\nend' end", "b");
    expect("function f() local functional, iff, endx, _end = 1 end", "b");
}

static void test_unbalanced(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "end", "function f()", "function f() end end", "if a", "until x", "function f() [[", "'"};
    for (size_t i = 0; i < BR_ARRAY_LEN(texts); i++) {
        struct policy_sites s;
        struct br_err err = {.code = BR_OK};
        int r = policy_sites_find(&s, texts[i], strlen(texts[i]), &err);
        assert_true(r == 0 || err.text[0]);
        if (i < 5)
            assert_int_equal(r, -BR_E_INTERNAL);
        policy_sites_free(&s);
    }
    static char deep[250 * 3 + 1]; /* deeper than Lua itself allows */
    for (size_t i = 0; i < sizeof(deep) - 1; i++)
        deep[i] = "do "[i % 3];
    struct policy_sites s;
    assert_int_equal(policy_sites_find(&s, deep, sizeof(deep) - 1, NULL), -BR_E_INTERNAL);
    policy_sites_free(&s);
}

static void test_changed(void **state)
{
    (void)state;
    static const char text[] = "function f(a)\n  if a -- x\n  then return 'deny' end\nend";
    static const char *const changed[] = {
        "function f(a) do error('" POLICY_SITE_MARK
        "') end \n  if a -- x\n  then return 'deny' end\nend",
        "function f(a)\n  if not ( a -- x\n  ) then return 'deny' end\nend",
        "function f(a)\n  if a -- x\n  then do error('" POLICY_SITE_MARK
        "') end  return 'deny' end\nend",
        "function f(a)\n  if a -- x\n  then return 'ask' end\nend",
        "function f(a)\n  if a -- x\n  then return 'deny'  else error('" POLICY_SITE_MARK
        "') end\nend",
    };
    static const unsigned lines[] = {1, 3, 3, 3, 3};
    struct policy_sites s;
    assert_int_equal(policy_sites_find(&s, text, strlen(text), NULL), 0);
    assert_int_equal(s.n, BR_ARRAY_LEN(changed));
    for (size_t i = 0; i < s.n; i++) {
        struct br_buf out;
        assert_int_equal(policy_site_change(&out, text, strlen(text), &s.list[i], NULL), 0);
        assert_string_equal(br_buf_cstr(&out), changed[i]);
        assert_int_equal(s.list[i].line, lines[i]);
        br_buf_free(&out);
    }
    policy_sites_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),
        cmocka_unit_test(test_not_code),
        cmocka_unit_test(test_unbalanced),
        cmocka_unit_test(test_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
