/*
 * GUEST in this process, which is not pid 1: bytes in, bytes out as they are, its ceilings at N and
 * N + 1, and a grant of its own. From end to end it is tested in spec/e2e/test_harness.c.
 */
#include <sodium/crypto_hash_sha256.h>

#include "frame/frame.h"
#include "init/test_init.h"

_Static_assert(BR_GUEST_OUTPUT_MAX >= BR_FRAME_OUTPUT_MAX + BR_FRAME_HEAD + 8,
               "the largest frame of a guest, and the beginning of what is too much");

static struct ws ws;
static struct br_init in;
static int far_end;

static int setup(void **state)
{
    (void)state;
    int fds[2];
    ws_make(&ws);
    assert_int_equal(br_chan_pair(fds), 0);
    far_end = fds[0];
    assert_int_equal(br_init_open(&in, fds[1], dup(ws.fd), false, NULL), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    br_init_close(&in);
    br_close(&far_end);
    ws_remove(&ws);
    return 0;
}

static void guest_call(struct br_init_call *c, const char *script, uint64_t output, uint64_t trace)
{
    call_init(c, BR_OP_GUEST, "");
    call_sh(c, script);
    c->flag = 0;
    c->timeout_ms = 20000;
    c->output_max = output;
    c->limit = trace;
    br_buf_init(&c->text, 64);
    br_buf_put(&c->text, "my-agent@1", 10);
}

static struct result guest(const char *script, uint64_t output, uint64_t trace)
{
    struct br_init_call c;
    br_buf_free(&in.raw);
    guest_call(&c, script, output, trace);
    return run_op(&in, br_init_guest, &c);
}

static void bytes_in_and_out(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {0, 0, 0, 3, 0xff, 0, '{', '\n'};
    struct br_init_call c;
    guest_call(&c, "cat; echo said >&2; exit 3", 1000, 1000);
    br_buf_init(&c.text2, 64);
    br_buf_put(&c.text2, bytes, sizeof(bytes));
    struct result r = run_op(&in, br_init_guest, &c);
    assert_int_equal(res_int(&r, "exitCode"), 3);
    assert_string_equal(res_str(&r, "stderr"), "said\n");
    assert_null(json_object_get(r.json, "stdout"));
    assert_false(res_bool(&r, "overflow"));
    assert_int_equal(res_int(&r, "stdoutBytes"), sizeof(bytes));
    assert_int_equal(in.raw.len, sizeof(bytes));
    assert_memory_equal(in.raw.data, bytes, sizeof(bytes));
    result_free(&r);
}

static void output_ceiling(void **state)
{
    (void)state;
    struct result r = guest("head -c 1000 /dev/zero", 1000, 10);
    assert_false(res_bool(&r, "overflow"));
    assert_int_equal(res_int(&r, "exitCode"), 0);
    assert_int_equal(in.raw.len, 1000);
    result_free(&r);
    /* one byte more ends it, before it does anything else */
    r = guest("head -c 1001 /dev/zero; sleep 20; touch ran", 1000, 10);
    assert_true(res_bool(&r, "overflow"));
    assert_int_equal(res_int(&r, "signal"), SIGKILL);
    assert_int_equal(in.raw.len, 1000);
    assert_false(ws_has(&ws, "ran"));
    result_free(&r);
    r = guest("yes said >&2 & sleep 0.1", 1000, 100);
    assert_true(res_bool(&r, "truncated"));
    assert_in_range(strlen(res_str(&r, "stderr")), 100, 200);
    result_free(&r);
}

static void bad_limits_start_nothing(void **state)
{
    (void)state;
    static const struct {
        uint64_t output, trace;
        uint32_t ms;
        bool ok;
    } cases[] = {
        {BR_GUEST_OUTPUT_MAX, BR_EXEC_OUTPUT_MAX, BR_RUN_SECONDS_MAX * 1000u, true},
        {BR_GUEST_OUTPUT_MAX + 1, 1, 1000, false},
        {0, 1, 1000, false},
        {1, 0, 1000, false},
        {1, BR_EXEC_OUTPUT_MAX + 1, 1000, false},
        {1, 1, BR_RUN_SECONDS_MAX * 1000u + 1, false},
        {1, 1, 0, false},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(cases); i++) {
        struct br_init_call c;
        char script[32];
        snprintf(script, sizeof(script), "touch ran%zu", i);
        guest_call(&c, script, cases[i].output, cases[i].trace);
        c.timeout_ms = cases[i].ms;
        struct result r = run_op(&in, br_init_guest, &c);
        assert_int_equal(r.code, cases[i].ok ? 0 : BR_E_LIMIT_EXCEEDED);
        assert_true(ws_has(&ws, script + 6) == cases[i].ok);
        result_free(&r);
    }
}

/* For 'adapter.run' and this adapter, and not for a command. */
static void its_own_grant(void **state)
{
    (void)state;
    static const struct {
        const char *action, *subject;
        int code;
    } cases[] = {{"process.exec", "my-agent@1", BR_E_GRANT_MISMATCH},
                 {"adapter.run", "my-agent@2", BR_E_GRANT_MISMATCH},
                 {"adapter.run", "my-agent@1", 0}};
    for (size_t i = 0; i < BR_ARRAY_LEN(cases); i++) {
        struct br_init_call c;
        struct br_grant_ref g = {.serial = i + 1};
        guest_call(&c, "true", 1, 1);
        snprintf(g.action, sizeof(g.action), "%s", cases[i].action);
        crypto_hash_sha256(g.subject_sha256, (const uint8_t *)cases[i].subject,
                           strlen(cases[i].subject));
        assert_int_equal(br_init_check_grant(&in, &g, &c, NULL), -cases[i].code);
        br_init_call_free(&c);
    }
}

/* Of the two words that it knows, each once; nothing is made of another. */
static void sockets(void **state)
{
    (void)state;
    struct br_err err = {.code = BR_OK};
    assert_int_equal(br_init_listen(&in, "docker", &err), -BR_E_USAGE);
    assert_int_equal(br_init_listen(&in, "", &err), -BR_E_USAGE);
    assert_int_equal(in.sockets[0], -1);
    assert_int_equal(in.sockets[1], -1);
    /* outside of a sandbox there is no place for it */
    assert_int_equal(br_init_listen(&in, BR_INIT_PROVIDER, &err), -BR_E_REQUIREMENT_MISSING);
    assert_non_null(strstr(err.text, BR_PROVIDER_SOCKET));
    assert_int_equal(in.sockets[0], -1);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {T(bytes_in_and_out), T(output_ceiling),
                                       T(bad_limits_start_nothing), T(its_own_grant), T(sockets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
