/*
 * Argument injection through the whole way, from `bridle exec MANIFEST -- WORD...` to the program
 * in the sandbox: words that are options, empty or separators are words, and nothing else. The
 * suite `bridle selftest --attack` tries the same on the last part of the way (arg.command,
 * arg.words).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "support/e2e.h"

static const char allow_all[] =
    "local policy = require \"bridle.policy\"\n"
    "return policy.bundle { api = 1, name = \"test\", rules = {\n"
    "  policy.allow { id = \"exec\", action = \"process.exec\" },\n} }\n";

static const char manifest[] = "id: e2e\ntitle: t\ngoal: g\nacceptance: [a]\n"
                               "allowed_paths: [src/**]\npermissions: {}\n"
                               "delivery: {type: none}\n";

#define EXEC "bridle", "exec", "-C", "workspace", "-p", "policy.lua", "task.yaml", "--"

static void mark_is(struct e2e *t, bool there)
{
    char *text = e2e_read(t, "workspace/src/mark");
    assert_int_equal(text != NULL, there);
    free(text);
}

static void test_words_are_words(void **state)
{
    struct e2e t;
    struct e2e_result r;
    (void)state;
    e2e_open(&t, 0);
    e2e_write(&t, "workspace/src/a", "a\n");
    e2e_write(&t, "policy.lua", allow_all);
    e2e_write(&t, "task.yaml", manifest);
    /* as the command: no such program, whatever follows */
    static const char *const commands[] = {
        "--",          "-c",     "--help",          "-",
        "--json",      "-p",     "touch src/mark",  "$(touch src/mark)",
        "--profile=x", ";touch", "src/mark\ntouch", "--bind"};
    for (unsigned i = 0; i < BR_ARRAY_LEN(commands); i++) {
        e2e_run(&t, &r, EXEC, commands[i], "touch", "src/mark", NULL);
        if (r.status != 127 && r.status != 126 && r.status != 4)
            fail_msg("'%s' as a command: status %d: %s", commands[i], r.status,
                     br_buf_cstr(&r.err));
        e2e_result_free(&r);
        mark_is(&t, false);
    }
    /* nothing, and an empty word */
    e2e_run(&t, &r, EXEC, NULL);
    assert_int_equal(r.status, 2);
    e2e_result_free(&r);
    e2e_run(&t, &r, EXEC, "", "touch", "src/mark", NULL);
    assert_int_not_equal(r.status, 0);
    e2e_result_free(&r);
    mark_is(&t, false);
    /* as arguments: all of them arrive, and none is bridle's own */
    e2e_run(&t, &r, EXEC, "printf", "[%s]", "--", "", "-x", "--json", "$(id)", "*", "a b", NULL);
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(br_buf_cstr(&r.out), "[--][][-x][--json][$(id)][*][a b]"));
    e2e_result_free(&r);
    /* control: the plain command works */
    e2e_run(&t, &r, EXEC, "touch", "src/mark", NULL);
    assert_int_equal(r.status, 0);
    e2e_result_free(&r);
    mark_is(&t, true);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_words_are_words)};
    e2e_isolate();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
