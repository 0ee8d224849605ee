/*
 * A whole run against an OpenAI-compatible server on loopback, which answers with the very key that
 * it was sent: the key reaches the server, and is in nothing that was shown or stored.
 */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "broker/test_rig.h"
#include "support/e2e.h"

static struct odd_server server;

static bool has(const void *p, size_t n, const char *text)
{
    return p && memmem(p, n, text, strlen(text));
}

/* Every file of the state directory, as it is on disk. Returns how many there were. */
static unsigned expect_not_stored(const struct e2e *t, const char *text)
{
    unsigned n = 0;
    char dir[BR_PATH_MAX];
    snprintf(dir, sizeof(dir), "%s/audit", t->state);
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[BR_PATH_MAX];
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%.200s/%s", dir, e->d_name);
        BR_CLEANUP_FILE FILE *f = fopen(path, "re");
        assert_non_null(f);
        struct stat st;
        if (fstat(fileno(f), &st) == 0 && S_ISDIR(st.st_mode)) {
            assert_string_equal(e->d_name, "accounts"); /* each is gone with its run */
            assert_int_equal(rmdir(path), 0);
            continue;
        }
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(64u << 20);
        assert_int_equal(br_read_all(fileno(f), &b, path, NULL), 0);
        if (has(b.data, b.len, text))
            fail_msg("'%s' is in '%s'", text, path);
        n += b.len > 0;
    }
    closedir(d);
    return n;
}

/* Runs bridle and checks what it showed; `config` NULL: the provider comes from the environment. */
static void run(enum odd_mode mode, const char *config, const char *model, bool json)
{
    bool refused = mode == ODD_ECHO_REFUSED;
    struct e2e t;
    struct e2e_result r;
    char base[128];
    atomic_store(&server.shared->mode, mode);
    atomic_store(&server.shared->requests, 0);
    e2e_open(&t, 0);
    e2e_write(&t, "workspace/src/a.txt", "before\n");
    snprintf(base, sizeof(base), "OPENAI_BASE_URL=http://127.0.0.1:%u/v1", server.port);
    char *const from_env[] = {base, (char *)(uintptr_t) "OPENAI_API_KEY=" RIG_KEY, NULL};
    char *const from_config[] = {(char *)(uintptr_t)RIG_KEY_ENV "=" RIG_KEY, NULL};
    const char *argv[16] = {"bridle", "run", "-C", "workspace", "-m", model};
    unsigned n = 6;
    if (json)
        argv[n++] = "--json";
    if (config) {
        e2e_write(&t, "bridle.lua", config);
        argv[n++] = "--config";
        argv[n++] = "bridle.lua";
    }
    argv[n++] = "go";
    pid_t pid = e2e_spawn(&t, (char *const *)(uintptr_t)argv, config ? from_config : from_env);
    e2e_wait(&t, pid, 60, &r);
    if (r.status != (refused ? 1 : 0))
        fail_msg("status %d: %.*s", r.status, (int)r.err.len, (const char *)r.err.data);
    /* positive controls: the key was sent, and the answer that held it was shown */
    assert_int_equal(atomic_load(&server.shared->requests), 1);
    assert_non_null(strstr(server.shared->last, "Authorization: Bearer " RIG_KEY "\r\n"));
    assert_true(has(r.out.data, r.out.len, refused ? "incorrect key" : "it is"));
    assert_true(has(r.out.data, r.out.len, refused ? ", sorry" : ", yes"));
    if (refused) /* the last line that a person sees says why, too */
        assert_true(has(r.err.data, r.err.len, "incorrect key"));
    assert_false(has(r.out.data, r.out.len, RIG_KEY));
    assert_false(has(r.err.data, r.err.len, RIG_KEY));
    /* nor its halves, which is how a stream carries it */
    assert_false(has(r.out.data, r.out.len, "sk-canary"));
    assert_false(has(r.out.data, r.out.len, "8e77aa90b3"));
    assert_true(expect_not_stored(&t, RIG_KEY) > 0);
    (void)expect_not_stored(&t, "8e77aa90b3");
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

static void test_environment_streamed(void **state)
{
    (void)state;
    run(ODD_ECHO_STREAM, NULL, "some-model", true);
    run(ODD_ECHO_STREAM, NULL, "some-model", false);
}

static void test_config_whole(void **state)
{
    char config[512];
    (void)state;
    snprintf(config, sizeof(config),
             "return { api = 1, providers = { near = { base_url = 'http://127.0.0.1:%u/v1', "
             "key_env = '" RIG_KEY_ENV "', streaming = false } } }\n",
             server.port);
    run(ODD_ECHO_WHOLE, config, "near/some-model", true);
    assert_null(strstr(server.shared->last, "\"stream\":true"));
}

/* The reason of a failed run travels past the record: it is shown only as audit redacted it. */
static void test_refused(void **state)
{
    (void)state;
    run(ODD_ECHO_REFUSED, NULL, "some-model", true);
    run(ODD_ECHO_REFUSED, NULL, "some-model", false);
}

static int setup(void **state)
{
    (void)state;
    odd_start(&server);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    odd_stop(&server);
    return 0;
}

int main(void)
{
    e2e_isolate();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_environment_streamed),
        cmocka_unit_test(test_config_whole),
        cmocka_unit_test(test_refused),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, setup, teardown);
}
