/*
 * Sessions of a harness that outlive their runs: private state that only they see, and that goes on
 * only with everything as it was. Root only: without disks there is no such state.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "e2e/harness_rig.h"

#define CANARY "canary-of-private-state"

static const char disks[] = "disks = { workspace = { kind = 'ext4', bytes = 4 << 20, inodes = 128 "
                            "}, state = { kind = 'ext4', bytes = 2 << 20, inodes = 64 } } } }\n";

/* Counts in its state how often it ran, and says it. */
static const char guest[] =
    "sid=$(printf %s \"$json\" | sed -nE 's/.*\"session\":\\{[^}]*\"id\":\"([^\"]*)\".*/\\1/p')\n"
    "n=$(cat /state/count 2>/dev/null || echo 0); n=$((n + 1))\n"
    "echo $n > /state/count; echo " CANARY " >> /state/talk\n"
    "say '{\"runId\":\"'$run'\",\"status\":\"completed\",\"adapter\":{\"id\":\"test-guest\","
    "\"revision\":3},\"session\":{\"id\":\"'$sid'\"},\"artifact\":{\"kind\":\"text\",\"text\":"
    "\"run "
    "number '$n'\"},\"tools\":[]}'\n";

static bool open_sessions(struct e2e *t)
{
    char text[4096];
    if (geteuid() != 0) {
        print_message("state disks need root\n");
        return false;
    }
    harness_open(t, "keep = '2d'");
    const char *end = strstr(harness_profile, "disks = ");
    snprintf(text, sizeof(text), "%.*s%s", (int)(end - harness_profile), harness_profile, disks);
    e2e_write(t, "hosted.lua", text);
    snprintf(text, sizeof(text), "%.*s, session = true }\n",
             (int)(strrchr(harness_adapter, '}') - harness_adapter), harness_adapter);
    e2e_write(t, "adapter.lua", text);
    harness_activate(t, "hosted.lua", NULL);
    harness_guest(t, guest);
    return true;
}

static void expect_run(struct e2e *t, int status, const char *said, const char *a, const char *b)
{
    struct e2e_result r;
    harness_run(t, &r, a, b);
    e2e_expect(&r, status, said);
    e2e_result_free(&r);
}

static void expect_bridle(struct e2e *t, int status, const char *said, const char *verb,
                          const char *a, const char *b)
{
    struct e2e_result r;
    e2e_run(t, &r, "bridle", verb, a, b, NULL);
    e2e_expect(&r, status, said);
    e2e_result_free(&r);
}

/* The only session. */
static void session_id(struct e2e *t, char id[64])
{
    struct e2e_result r;
    e2e_run(t, &r, "bridle", "state", "list", "--json", NULL);
    e2e_expect(&r, 0, "\"kind\":\"session\"");
    const char *p = strstr(br_buf_cstr(&r.out), "\"kind\":\"session\",\"id\":\"");
    assert_int_equal(sscanf(p, "\"kind\":\"session\",\"id\":\"%63[^\"]", id), 1);
    e2e_result_free(&r);
}

static void sh(struct e2e *t, const char *line)
{
    char text[2048];
    snprintf(text, sizeof(text), "cd '%s' && { %s\n}", t->dir, line);
    assert_int_equal(system(text), 0); /* NOLINT(cert-env33-c) */
}

static void test_resumed(void **state)
{
    (void)state;
    struct e2e t;
    char id[64], line[256];
    if (!open_sessions(&t))
        skip();
    expect_run(&t, 0, "run number 1", NULL, NULL);
    session_id(&t, id);
    expect_bridle(&t, 0, "test-guest@3", "state", "list", NULL);
    expect_run(&t, 0, "run number 2", "--resume", id);
    expect_run(&t, 0, "\"intent\":\"resume\"", "--resume", id);
    expect_run(&t, 0, "run number 1", NULL, NULL); /* another one */
    /* it is kept as long as bridle.lua says */
    snprintf(line, sizeof(line), "grep -qx 'keep 172800' state/sessions/%s", id);
    sh(&t, line);
    /* and nothing that is in it is anywhere else */
    snprintf(line, sizeof(line), "grep -aq " CANARY " state/leases/state-%s.img", id);
    sh(&t, line);
    sh(&t, "! grep -raq --exclude-dir=leases " CANARY " state");
    expect_bridle(&t, 0, NULL, "show", "last", NULL);
    sh(&t, "BRIDLE_STATE_DIR=$PWD/state " /* what any verb prints of it */
           "sh -c '\"$BRIDLE_BIN/bridle\" show last --json; \"$BRIDLE_BIN/bridle\" show; "
           "\"$BRIDLE_BIN/bridle\" state list --json; \"$BRIDLE_BIN/bridle\" repl -e "
           "\"sessions, leases\"' > printed 2>&1; test -s printed && ! grep -q " CANARY " printed");
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* Every field, in a record that says it was another one. */
static void test_mismatch(void **state)
{
    (void)state;
    static const char *const fields[] = {"adapter",         "revision",           "profile",
                                         "profile-version", "profile-text",       "image",
                                         "workspace",       "workspace-identity", "policy",
                                         "model",           "model-policy",       "owner",
                                         "provider-url",    "provider-key",       "provider-auth",
                                         "provider-proxy",  "provider-ca"};
    struct e2e t;
    char id[64], line[256], said[256];
    if (!open_sessions(&t))
        skip();
    expect_run(&t, 0, "run number 1", NULL, NULL);
    session_id(&t, id);
    snprintf(line, sizeof(line), "cp state/sessions/%s record", id);
    sh(&t, line);
    for (size_t i = 0; i < BR_ARRAY_LEN(fields); i++) {
        snprintf(line, sizeof(line), "sed 's/^%s .*/%s 7/' record > state/sessions/%s", fields[i],
                 fields[i], id);
        sh(&t, line);
        snprintf(said, sizeof(said), "its '%s' was '7' and is '", fields[i]);
        expect_run(&t, 4, said, "--resume", id);
        if (i % 6) /* a field that is missing is no other than one that differs */
            continue;
        snprintf(line, sizeof(line), "grep -v '^%s ' record > state/sessions/%s", fields[i], id);
        sh(&t, line);
        expect_run(&t, 4, fields[i], "--resume", id);
    }
    snprintf(line, sizeof(line), "cp record state/sessions/%s", id);
    sh(&t, line);
    expect_run(&t, 0, "run number 2", "--resume", id); /* none of them ran */
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* The same, by what people do. */
static void test_changed(void **state)
{
    (void)state;
    static const struct {
        const char *line, *back, *said;
        bool activate;
    } rows[] = {
        {"cp bridle.lua b; sed -i \"s/keep = /lease = { tokens = 12345 }, keep = /\" bridle.lua",
         "cp b bridle.lua", "its 'model-policy' was", false},
        {"cp bridle.lua b; sed -i \"s/keep = /lease = { seconds = 50 }, keep = /\" bridle.lua",
         "cp b bridle.lua", "its 'model-policy' was", false},
        {"cp hosted.lua h; sed -i 's/pids = 64/pids = 65/' hosted.lua", "cp h hosted.lua",
         "its 'profile-text' was", true},
        {"mv workspace w; cp -a w workspace", "rm -r workspace; mv w workspace",
         "its 'workspace-identity' was", false},
    };
    struct e2e t;
    struct e2e_result r;
    char id[64];
    if (!open_sessions(&t))
        skip();
    expect_run(&t, 0, "run number 1", NULL, NULL);
    session_id(&t, id);
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        sh(&t, rows[i].line);
        if (rows[i].activate)
            harness_activate(&t, "hosted.lua", NULL);
        expect_run(&t, 4, rows[i].said, "--resume", id);
        sh(&t, rows[i].back);
        if (rows[i].activate)
            harness_activate(&t, "hosted.lua", NULL);
    }
    e2e_run(&t, &r, "bridle", "run", "--json", "-C", "workspace", "--profile", "hosted.lua",
            "--config", "bridle.lua", "-a", "test-guest@3", "-m", "scripted/demo", "do it",
            "--resume", id, NULL);
    e2e_expect(&r, 4, "its 'model' was 'scripted/default' and is 'scripted/demo'");
    e2e_result_free(&r);
    expect_run(&t, 0, "run number 2", "--resume", id);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

static void test_refused(void **state)
{
    (void)state;
    struct e2e t;
    char id[64], path[256];
    if (!open_sessions(&t))
        skip();
    expect_run(&t, 3, "there is no session 's-none'", "--resume", "s-none");
    expect_run(&t, 3, "no id of a session", "--resume", "../x");
    expect_run(&t, 0, "run number 1", NULL, NULL);
    session_id(&t, id);
    snprintf(path, sizeof(path), "%s/sessions/.%s.lock", t.state, id);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
    expect_run(&t, 1, "is in use by another run", "--resume", id);
    /* what it is, is read only by who has it */
    sh(&t, "cp state/sessions/s-* record; sed -i 's/^model .*/model 7/' state/sessions/s-*");
    expect_run(&t, 1, "is in use by another run", "--resume", id);
    sh(&t, "cp record state/sessions/s-*");
    expect_bridle(&t, 1, "is in use", "state", "purge", id);
    close(fd);
    /* what is not there, or has lost its state, leaves no lock */
    expect_run(&t, 3, "there is no session 's-none'", "--resume", "s-none");
    sh(&t, "test ! -e state/sessions/.s-none.lock; mkdir saved; mv state/leases/state-s-* saved");
    expect_run(&t, 3, "is not there any more", "--resume", id);
    sh(&t, "test -z \"$(ls -A state/sessions | grep lock)\"; mv saved/* state/leases");
    expect_run(&t, 0, "run number 2", "--resume", id);
    /* without a disk nothing goes on, and what is new is not kept */
    e2e_write(&t, "hosted.lua", harness_profile);
    expect_bridle(&t, 0, NULL, "activate", "hosted.lua", NULL);
    expect_run(&t, 6, "has no state disk", "--resume", id);
    expect_bridle(&t, 0, id, "state", "purge", id);
    expect_bridle(&t, 0, "no session and no workspace is kept", "state", "list", NULL);
    sh(&t, "test -z \"$(ls state/leases | grep -v template)\" && test -z \"$(ls -A "
           "state/sessions)\"");
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* The run before the last one: launched before it was started, and ended once, as failed; what its
 * provider was charged is there. */
static void check_ended(struct e2e *t)
{
    struct e2e_result r;
    char id[64] = "";
    e2e_run(t, &r, "bridle", "show", "--json", NULL);
    assert_false(e2e_says(&r, "\"status\":\"running\""));
    assert_false(e2e_says(&r, "\"status\":\"interrupted\""));
    char *last = NULL, *before = NULL;
    for (char *p = br_buf_cstr(&r.out); (p = strstr(p, "{\"runId\":\"")); p++) {
        before = last;
        last = p;
    }
    assert_non_null(before);
    assert_int_equal(sscanf(before, "{\"runId\":\"%63[^\"]", id), 1);
    e2e_result_free(&r);
    e2e_run(t, &r, "bridle", "show", "--json", id, NULL);
    const char *text = br_buf_cstr(&r.out), *launch = strstr(text, "\"type\":\"bridle.launch\""),
               *started = strstr(text, "\"type\":\"bridle.harness.started\""),
               *end = strstr(text, "\"type\":\"agent.stopped\"");
    assert_true(launch && started && launch < started && end && started < end);
    assert_null(strstr(end + 1, "\"type\":\"agent.stopped\""));
    assert_null(strstr(text, "\"status\":\"completed\""));
    assert_non_null(strstr(text, "\"type\":\"bridle.provider.account\""));
    e2e_result_free(&r);
}

/* Whoever dies, the session is free again, and goes on. */
static void test_killed(void **state)
{
    (void)state;
    static const char *const programs[] = {"bridled",       "bridle-launch", "bridle-session",
                                           "bridle-broker", "bridle-audit",  "bridle-egress"};
    struct e2e t;
    struct e2e_result r;
    char id[64], said[64];
    unsigned runs = 1;
    if (!open_sessions(&t))
        skip();
    expect_run(&t, 0, "run number 1", NULL, NULL);
    session_id(&t, id);
    for (size_t i = 0; i < BR_ARRAY_LEN(programs); i++) {
        char slow[2048];
        snprintf(slow, sizeof(slow),
                 "echo $(($(cat /state/count) + 1)) > /state/count; sleep 60\n");
        harness_guest(&t, slow);
        const char *const argv[] = {"bridle",
                                    "run",
                                    "--json",
                                    "-C",
                                    "workspace",
                                    "--profile",
                                    "hosted.lua",
                                    "--config",
                                    "bridle.lua",
                                    "-a",
                                    "test-guest@3",
                                    "-m",
                                    "scripted/default",
                                    "do it",
                                    "--resume",
                                    id,
                                    NULL};
        pid_t run = e2e_spawn(&t, (char *const *)argv, NULL);
        assert_true(e2e_await(run, "sleep", 0, 20000) > 0);
        pid_t victim = e2e_find(run, programs[i], 0);
        assert_true(victim > 0 && kill(victim, SIGKILL) == 0);
        e2e_wait(&t, run, 60, &r);
        assert_true(r.status > 0);
        e2e_result_free(&r);
        harness_guest(&t, guest);
        for (int tries = 0; tries < 100; tries++) {
            e2e_run(&t, &r, "bridle", "state", "list", "--json", NULL);
            bool busy = e2e_says(&r, "\"inUse\":true");
            e2e_result_free(&r);
            if (!busy)
                break;
            usleep(50000);
        }
        runs += 2; /* what the killed one wrote is there */
        snprintf(said, sizeof(said), "run number %u\"", runs);
        expect_run(&t, 0, said, "--resume", id);
        check_ended(&t);
    }
    e2e_expect_clean(&t);
    e2e_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resumed), cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_changed), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_killed),
    };
    e2e_isolate();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
