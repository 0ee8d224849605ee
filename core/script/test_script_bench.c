/*
 * The measurement that `bridle bench` prints: it runs, and says what it cannot do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "script/bench.h"

static void test_figures(void **state)
{
    (void)state;
    static const unsigned sizes[] = {1, 200, 9990};
    for (unsigned i = 0; i < BR_ARRAY_LEN(sizes); i++) {
        struct br_err err = {.code = BR_OK};
        double ms = 0;
        if (br_bench_compile(sizes[i], &ms, &err) < 0)
            fail_msg("%s", err.text);
        print_message("%5u rules: %.1f ms to compile\n", sizes[i], ms);
        assert_true(ms > 0);
    }
}

static void test_limits(void **state)
{
    (void)state;
    struct br_err err;
    double ms = -1;
    assert_int_equal(br_bench_compile(0, &ms, &err), -BR_E_INVALID_ARGUMENTS);
    assert_int_equal(br_bench_compile(9991, &ms, &err), -BR_E_INVALID_ARGUMENTS);
    assert_true(ms == -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_figures),
                                       cmocka_unit_test(test_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
