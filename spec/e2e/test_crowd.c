/*
 * A hundred `bridle exec` at once, as real processes that share one state directory, each
 * with a workspace of its own (a run refuses one that changes meanwhile): every one succeeds, each
 * has its own effect, every record is complete, nothing is left.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/e2e.h"

#define CROWD 100u
#define PATIENCE_S 240u
/* Every run has about a dozen programs. */
#define NEEDED_MIB 2048u

static const char policy[] = "local policy = require \"bridle.policy\"\n"
                             "return policy.bundle { api = 1, name = \"crowd\", rules = {\n"
                             "  policy.allow { id = \"touch\", action = \"process.exec\", "
                             "command = \"touch *\" },\n} }\n";
static const char manifest[] = "id: crowd\ntitle: t\ngoal: g\nacceptance: [a]\n"
                               "allowed_paths: [src/**]\npermissions: {}\n"
                               "delivery: {type: none}\n";

static void need_memory(void)
{
    char line[256];
    unsigned long kib = 0;
    FILE *f = fopen("/proc/meminfo", "re");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f) && sscanf(line, "MemAvailable: %lu", &kib) != 1)
        ;
    fclose(f);
    if (kib / 1024 < NEEDED_MIB)
        fail_msg("this host has %lu MiB of memory left; %u runs at once need %u", kib / 1024, CROWD,
                 NEEDED_MIB);
}

static unsigned count(const char *text, const char *what)
{
    unsigned n = 0;
    for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

static int await(pid_t pid, uint64_t deadline)
{
    int status = -1;
    for (;;) {
        pid_t k = waitpid(pid, &status, WNOHANG);
        if (k == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (br_now_us() > deadline) {
            (void)kill(pid, SIGKILL);
            (void)waitpid(pid, &status, 0);
            return -1;
        }
        usleep(5000);
    }
}

static void test_hundred(void **state)
{
    struct e2e t;
    struct e2e_result r;
    pid_t pids[CROWD];
    unsigned failed = 0;
    (void)state;
    need_memory();
    e2e_open(&t, 0);
    e2e_write(&t, "policy.lua", policy);
    e2e_write(&t, "task.yaml", manifest);
    for (unsigned i = 0; i < CROWD; i++) {
        char file[64], dir[32];
        snprintf(dir, sizeof(dir), "workspace/%u", i);
        snprintf(file, sizeof(file), "%s/src/a.txt", dir);
        e2e_write(&t, file, "a\n");
        const char *const argv[] = {"bridle",    "exec", "-C",    dir,        "-p", "policy.lua",
                                    "task.yaml", "--",   "touch", "src/made", NULL};
        pids[i] = e2e_spawn(&t, (char *const *)argv, NULL);
    }
    uint64_t deadline = br_now_us() + PATIENCE_S * 1000000ull;
    for (unsigned i = 0; i < CROWD; i++)
        failed += await(pids[i], deadline) != 0;
    if (failed) {
        char *said = e2e_read(&t, "err.txt");
        fail_msg("%u of %u failed: %s", failed, CROWD, said ? said : "");
    }
    for (unsigned i = 0; i < CROWD; i++) {
        char path[64];
        snprintf(path, sizeof(path), "workspace/%u/src/made", i);
        char *made = e2e_read(&t, path);
        if (!made)
            fail_msg("'%s' was not made", path);
        free(made);
    }
    e2e_expect_clean(&t);
    e2e_run(&t, &r, "bridle", "show", "--json", NULL);
    assert_int_equal(r.status, 0);
    assert_int_equal(count((const char *)r.out.data, "\"status\":\"completed\""), CROWD);
    e2e_result_free(&r);
    e2e_close(&t);
}

int main(void)
{
    e2e_isolate();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hundred)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
