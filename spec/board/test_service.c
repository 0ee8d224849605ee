/*
 * The board against the real service: `bridle serve` with a scripted provider and three tokens, and
 * Chromium driven by service_test.js, which looks at the page, at what the server refuses, and at
 * the files that a session was allowed to make. Here only what is started is seen to be gone
 * afterwards.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/e2e.h"

static const char config[] = "return { api = 1, service = { detach = \"allow\" } }\n";

/* A token of each access; service_test.js knows their digits. */
static void write_tokens(struct e2e *t)
{
    static const char *const rows[] = {"observe", "answer", "operate"};
    char path[160], file[1024] = "";
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct br_sha256 s;
        uint8_t hash[32];
        char digits[65], hex[65];
        memset(digits, "0af"[i], 64);
        br_sha256_init(&s);
        br_sha256_put(&s, digits, 64);
        br_sha256_end(&s, hash);
        br_hex(hex, hash, sizeof(hash));
        hex[64] = 0;
        snprintf(file + strlen(file), sizeof(file) - strlen(file), "%s-token %s sha256:%s\n",
                 rows[i], rows[i], hex);
    }
    e2e_write(t, "state/tokens", file);
    snprintf(path, sizeof(path), "%s/tokens", t->state);
    assert_int_equal(chmod(path, 0600), 0);
    if (geteuid() == 0)
        assert_int_equal(chown(path, t->uid, t->uid), 0);
}

/* What it says of itself: "The board is at http://127.0.0.1:PORT/". */
static bool listening(struct e2e *t, char url[64])
{
    for (int ms = 0; ms < 20000; ms += 20) {
        char *out = e2e_read(t, "out.txt");
        const char *at = out ? strstr(out, "The board is at http://127.0.0.1:") : NULL;
        bool found = at && sscanf(at, "The board is at %63[^\n]", url) == 1 && strchr(at, '\n');
        free(out);
        if (found)
            return true;
        usleep(20000);
    }
    return false;
}

static int look(struct e2e *t, const char *url)
{
    char script[512];
    snprintf(script, sizeof(script), "%s/spec/board/service_test.js", getenv("BRIDLE_SOURCE"));
    pid_t pid = fork();
    int status = -1;
    if (pid == 0) {
        execlp("node", "node", script, url, t->dir, getenv("BRIDLE_CHROMIUM"), (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_board(void **state)
{
    struct e2e t;
    struct e2e_result r;
    char url[64];
    (void)state;
    e2e_open(&t, 0);
    char scenario[512];
    snprintf(scenario, sizeof(scenario), "%s/spec/board/scenario.json", getenv("BRIDLE_SOURCE"));
    e2e_write(&t, "workspace/out/one", "x\n");
    e2e_write(&t, "bridle.lua", config);
    e2e_run(&t, &r, "bridle", "activate", "run-v1", NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    write_tokens(&t);
    char *argv[] = {(char *)"bridle",
                    (char *)"serve",
                    (char *)"--listen",
                    (char *)"127.0.0.1:0",
                    (char *)"--root",
                    (char *)"workspace",
                    (char *)"--config",
                    (char *)"bridle.lua",
                    (char *)"--scenario",
                    scenario,
                    NULL};
    pid_t service = e2e_spawn(&t, argv, NULL);
    bool ready = listening(&t, url);
    int failed = ready ? look(&t, url) : -1;
    kill(service, SIGTERM);
    e2e_wait(&t, service, 30, &r);
    if (failed || r.status != 0)
        fail_msg("the board failed (%d), the service ended with %d:\n%s%s", failed, r.status,
                 (char *)r.out.data, (char *)r.err.data);
    /* nothing that a client sent as a secret is said in a log */
    assert_false(e2e_says(&r, "0000000000000000"));
    assert_false(e2e_says(&r, "aaaaaaaaaaaaaaaa"));
    assert_true(e2e_says(&r, "answer-token"));
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

int main(void)
{
    e2e_isolate();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_board)};
    return cmocka_run_group_tests_name("board_service", tests, NULL, NULL);
}
