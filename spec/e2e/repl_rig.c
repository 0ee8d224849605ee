/* See repl_rig.h. */
#include "repl_rig.h"

static const char policy[] = "local policy = require \"bridle.policy\"\n"
                             "return policy.bundle { api = 1, name = \"test\", rules = {\n"
                             "  policy.allow { id = \"read\", action = \"fs.read\" },\n"
                             "  policy.ask { id = \"exec\", action = \"process.exec\" },\n"
                             "  policy.deny { id = \"write\", action = \"fs.write\",\n"
                             "    reason = \"frozen\" },\n} }\n";

static const char scenario[] =
    "{\"v\":1,\"name\":\"t\",\"turns\":[{\"when\":{\"assistant_messages\":0},\"tool_calls\":["
    "{\"name\":\"fs_read\",\"arguments\":{\"path\":\"a.txt\"}},"
    "{\"name\":\"process_exec\",\"arguments\":{\"argv\":[\"true\",\"one \\u001b[31mtwo\"]}},"
    "{\"name\":\"fs_write\",\"arguments\":{\"path\":\"a.txt\",\"content\":\"x\"}}]},"
    "{\"text\":\"The end.\"}]}";

struct e2e t;

static char real[BR_PATH_MAX]; /* the programs of the build, while copies are used */

/* As root: a place for an ordinary user's limits, and programs that this user gets at. */
static void lend(void)
{
    struct e2e_result r;
    char bin[128], command[2 * BR_PATH_MAX];
    snprintf(real, sizeof(real), "%s", e2e_bin());
    e2e_copy_bin(&t, NULL, NULL, bin);
    snprintf(command, sizeof(command), "mkdir '%s/tests' && cp '%s/../tests/ptydrive' '%s/tests/'",
             t.dir, real, t.dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(setenv("BRIDLE_BIN", bin, 1), 0);
    t.uid = 0;
    e2e_run(&t, &r, "bridle", "doctor", "--delegate", "61901", NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    snprintf(command, sizeof(command), "rm -f '%s/out.txt' '%s/err.txt'", t.dir, t.dir);
    assert_int_equal(system(command), 0);
    t.uid = ORDINARY_UID;
}

/* Two runs of whoever `uid` is: one after the other, so that 'last' is the second. */
void open_with_runs(uid_t uid)
{
    struct e2e_result r;
    e2e_open(&t, uid);
    real[0] = '\0';
    if (t.uid)
        lend();
    e2e_write(&t, "workspace/a.txt", "a\n");
    e2e_write(&t, "policy.lua", policy);
    e2e_write(&t, "scenario.json", scenario);
    for (int i = 0; i < 2; i++) {
        e2e_run(&t, &r, "bridle", "run", "-C", "workspace", "-p", "policy.lua", "--scenario",
                "scenario.json", i ? "second" : "first", NULL);
        e2e_expect(&r, 0, NULL);
        e2e_result_free(&r);
    }
}

void close_all(void)
{
    e2e_expect_clean(&t);
    if (real[0]) {
        /* empty directories: what the delegation made, and nothing else has this name */
        assert_int_equal(system("find /sys/fs/cgroup -ignore_readdir_race -depth -type d -name "
                                "'bridle-61901' -exec rmdir {} +"),
                         0);
        assert_int_equal(setenv("BRIDLE_BIN", real, 1), 0);
        real[0] = '\0';
    }
    e2e_close(&t);
}

/* bridle repl -e CODE: status and what it says. */
void repl(const char *code, int status, const char *said)
{
    struct e2e_result r;
    e2e_run(&t, &r, "bridle", "repl", "-e", code, NULL);
    if (r.status != status || (said && !e2e_says(&r, said)))
        fail_msg("%s: status %d, not %d; expected '%s' in:\n%s%s", code, r.status, status,
                 said ? said : "", (char *)r.out.data, (char *)r.err.data);
    for (size_t i = 0; i < r.out.len; i++)
        if (r.out.data[i] == 0x1b || r.out.data[i] == 0x7f)
            fail_msg("%s: a control byte comes out", code);
    e2e_result_free(&r);
}

/* In the store's directory, as the store's user. `f` runs in a process of its own. */
void in_store(void (*f)(struct br_store *s))
{
    char path[128];
    snprintf(path, sizeof(path), "%s/audit", t.state);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct br_store *s = NULL;
        struct br_err err = {.code = BR_OK};
        int dir = open(path, O_RDONLY | O_DIRECTORY);
        if (geteuid() == 0 && (setresgid(BR_UID_AUDIT, BR_UID_AUDIT, BR_UID_AUDIT) < 0 ||
                               setresuid(BR_UID_AUDIT, BR_UID_AUDIT, BR_UID_AUDIT) < 0))
            _exit(2);
        umask(077);
        if (dir < 0 || br_store_open(dir, &s, &err) < 0) {
            fprintf(stderr, "%s\n", err.text);
            _exit(3);
        }
        f(s);
        br_store_close(&s);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

void add_run(struct br_store *s, const char *id, const char *owner, unsigned events, bool ended)
{
    struct br_store_info info = {.started_us = 1767225600000000u};
    struct br_store_run run;
    struct br_err err = {.code = BR_OK};
    snprintf(info.run_id, sizeof(info.run_id), "%s", id);
    snprintf(info.model, sizeof(info.model), "m");
    snprintf(info.workspace, sizeof(info.workspace), "/w");
    snprintf(info.goal, sizeof(info.goal), "goal \033[31m\xe2\x80\xae");
    snprintf(info.owner, sizeof(info.owner), "%s", owner);
    int r = br_store_begin(s, &err);
    if (r == 0)
        r = br_store_add_run(s, &info, &run, &err);
    for (unsigned i = 1; r == 0 && i <= events; i++) {
        char event_id[64], body[256];
        snprintf(event_id, sizeof(event_id), "%s-%u", id, i);
        int n =
            snprintf(body, sizeof(body),
                     "{\"v\":1,\"type\":\"error\",\"eventId\":\"%s\",\"at\":\"2026-01-01T00:00:00."
                     "000+00:00\",\"data\":{\"code\":\"X\",\"message\":\"\\u001b[2J \\u202e %u\"}}",
                     event_id, i);
        r = br_store_add_event(s, &run, body, (size_t)n, &err);
    }
    if (r == 0 && ended)
        r = br_store_add_end(s, &run, 1767225601000000u, "completed", &err);
    if (r == 0)
        r = br_store_commit(s, &err);
    if (r < 0) {
        fprintf(stderr, "%s\n", err.text);
        _exit(4);
    }
}

void add_odd_runs(struct br_store *s)
{
    add_run(s, "run_ab1", "1:1:nobody", 3, true);
    add_run(s, "run_ab2", "1:1:nobody", 3, true);
    add_run(s, "run_dead", "1:1:nobody", 2, false);
    add_run(s, "run_exact", "1:1:nobody", 5000, true);
    add_run(s, "run_large", "1:1:nobody", 5001, true);
}
