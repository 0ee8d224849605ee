/*
 * The real static program over its real channel: what it measures, the grant of every call, what is
 * legal when, and, as pid 1 of its own namespaces, that nothing outlives a call or the channel.
 */
#include "init/test_init.h"

static void measures_itself(void **state)
{
    (void)state;
    struct ws w;
    struct peer p;
    ws_make(&w);
    peer_start(&p, &w, true);
    assert_int_equal(json_integer_value(json_object_get(p.ready, "pid")), 1);
    assert_int_equal(json_integer_value(json_object_get(p.ready, "uid")), 1000);
    assert_int_equal(json_integer_value(json_object_get(p.ready, "gid")), 1000);
    assert_string_equal(json_string_value(json_object_get(p.ready, "uids")), "1000 1000 1000 1000");
    assert_true(json_is_integer(json_object_get(p.ready, "noNewPrivs")));
    assert_true(json_is_integer(json_object_get(p.ready, "seccomp")));
    assert_true(json_integer_value(json_object_get(p.ready, "mounts")) > 0);
    assert_int_equal(json_object_size(json_object_get(p.ready, "namespaces")), 8);
    if (geteuid() == 0)
        assert_string_equal(json_string_value(json_object_get(p.ready, "capEff")),
                            "0000000000000000");
    assert_int_equal(peer_end(&p), 0);
    ws_remove(&w);
}

static void a_call_works(void **state)
{
    (void)state;
    struct ws w;
    struct peer p;
    struct br_init_call c;
    ws_make(&w);
    ws_puts(&w, "a.txt", "hello\n");
    peer_start(&p, &w, false);
    call_init(&c, BR_OP_FS_READ, "a.txt");
    struct result r = peer_call(&p, &c);
    assert_int_equal(r.code, 0);
    assert_string_equal(res_str(&r, "content"), "hello\n");
    result_free(&r);
    call_init(&c, BR_OP_EXEC, "");
    c.flag = 1;
    call_sh(&c, "echo out; echo err >&2; exit 3");
    r = peer_call(&p, &c);
    assert_int_equal(r.code, 0);
    assert_int_equal(res_int(&r, "exitCode"), 3);
    assert_string_equal(res_str(&r, "stdout"), "out\n");
    assert_string_equal(res_str(&r, "stderr"), "err\n");
    result_free(&r);
    assert_int_equal(peer_end(&p), 0);
    ws_remove(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measures_itself),
        cmocka_unit_test(a_call_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
