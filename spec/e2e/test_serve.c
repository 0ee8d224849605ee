/*
 * The service: what a gateway may ask of it, and what it does with good and bad settings, signals
 * and systemd. The gateway is one that tests tell what to say (served.c).
 */
#include "serve_rig.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#define ORDINARY_UID 61900u

static struct served s;

static void started(const char *service)
{
    served_reset(&s);
    served_config(&s, service);
    served_start(&s, NULL, NULL);
    served_ready(&s);
}

static void refused(const char *what, const char *code, const char *why)
{
    served_say(&s, "CHECK %s", what);
    served_hear(&s, "CHECKED ");
    if (strcmp(served_word(&s, 1), code) != 0 || !strstr(s.line, why))
        fail_msg("'%s': not %s, %s: %s", what, code, why, s.line);
}

/* ---- sessions ---- */

static void test_session(void **state)
{
    char id[BR_ID_MAX], want[200];
    (void)state;
    started("");
    served_begin(&s, "one", "echo", id);
    snprintf(want, sizeof(want), "%s/one", s.root);
    served_hear(&s, "STARTED ");
    assert_string_equal(served_word(&s, 1), id);
    snprintf(want, sizeof(want), "EVENT %s 1 session.created", id);
    served_hear(&s, want);
    snprintf(want, sizeof(want), "ENDED %s OK 0", id);
    served_hear(&s, want);
    served_record(&s, id, "completed");
    /* the list, newest first, and the events of one */
    served_begin(&s, "two", "nothing", id);
    snprintf(want, sizeof(want), "ENDED %s OK 0", id);
    served_hear(&s, want);
    served_say(&s, "READ |0|1||");
    served_hear(&s, "READING OK");
    served_hear(&s, "ROW ");
    assert_string_equal(served_word(&s, 1), id);
    assert_string_equal(served_word(&s, 2), "completed");
    served_hear(&s, "EVENTS_END");
    served_say(&s, "READ %s|2|0||", id);
    served_hear(&s, "EVENT - 3 ");
    served_hear(&s, "EVENTS_END - 0");
    const char *const nobody[] = {"run_nothing", "last", "run_", "%"};
    for (size_t i = 0; i < BR_ARRAY_LEN(nobody); i++) {
        served_say(&s, "READ %s|0|0||", nobody[i]);
        served_hear(&s, "READING NOT_FOUND");
    }
    served_say(&s, "READ |0|1|%.20s|", id);
    served_hear(&s, "READING NOT_FOUND");
    served_stop(&s);
}

/* Questions: who answers is in the record; a session whose client has gone denies what is open. */
static void test_asks(void **state)
{
    char id[BR_ID_MAX], want[200];
    (void)state;
    started("");
    served_begin(&s, "one", "sleep", id);
    snprintf(want, sizeof(want), "EVENT %s ", id);
    do
        served_hear(&s, want);
    while (!strstr(s.line, " bridle.asks "));
    const char *permission = strstr(s.line, "perm_");
    assert_non_null(permission);
    served_say(&s, "ANSWER %s %.31s 1 token:ops", id, permission);
    served_hear(&s, "ANSWERED ");
    assert_string_equal(served_word(&s, 2), "1");
    do
        served_hear(&s, want);
    while (!strstr(s.line, " permission.resolved "));
    served_hear(&s, want);
    assert_non_null(strstr(s.line, " bridle.answered "));
    assert_non_null(strstr(s.line, "\"by\":\"token:ops\""));
    snprintf(want, sizeof(want), "ENDED %s OK 0", id);
    served_hear(&s, want);
    served_record(&s, id, "completed");
    /* canceled with a question open */
    served_begin(&s, "one", "sleep", id);
    do
        served_hear(&s, "EVENT ");
    while (!strstr(s.line, " bridle.asks "));
    served_say(&s, "CANCEL %s 0", id);
    snprintf(want, sizeof(want), "ENDED %s CANCELED", id);
    served_hear(&s, want);
    served_record(&s, id, "canceled");
    served_recorded(&s, id, "a client canceled the run");
    /* its channels are dropped, as when the one that asks and shows is no more */
    served_begin(&s, "one", "sleep", id);
    do
        served_hear(&s, "EVENT ");
    while (!strstr(s.line, " bridle.asks "));
    served_say(&s, "DROP %s", id);
    snprintf(want, sizeof(want), "ENDED %s CANCELED", id);
    served_hear(&s, want);
    served_record(&s, id, "canceled");
    served_stop(&s);
}

/* No more run than may; those in line can be canceled, and leave no record. */
static void test_line(void **state)
{
    char id[3][BR_ID_MAX], want[200];
    (void)state;
    started("limits = { running = 1 }");
    for (int i = 0; i < 3; i++)
        served_begin(&s, i == 1 ? "two" : "one", i == 0 ? "sleep" : "echo", id[i]);
    do
        served_hear(&s, "EVENT ");
    while (!strstr(s.line, " bridle.asks "));
    assert_non_null(strstr(s.line, id[0]));
    served_say(&s, "CANCEL %s 0", id[1]);
    snprintf(want, sizeof(want), "ENDED %s CANCELED", id[1]);
    served_hear(&s, want);
    served_say(&s, "CANCEL %s 1", id[0]);
    snprintf(want, sizeof(want), "ENDED %s CANCELED", id[0]);
    served_hear(&s, want);
    snprintf(want, sizeof(want), "STARTED %s", id[2]);
    served_hear(&s, want);
    snprintf(want, sizeof(want), "ENDED %s OK", id[2]);
    served_hear(&s, want);
    struct e2e_result r;
    e2e_run(&s.t, &r, "bridle", "show", id[1], NULL);
    e2e_expect(&r, 3, NULL);
    e2e_result_free(&r);
    served_stop(&s);
}

/* ---- what a client may name ---- */

static void test_workspaces(void **state)
{
    char path[400], link[400];
    (void)state;
    started("");
    e2e_write(&s.t, "elsewhere/x", "");
    const struct {
        const char *name, *to;
    } links[] = {
        {"out", "../elsewhere"}, {"abs", NULL}, {"in", "one"}, {"loop", "loop"}, {"etc", "/etc"}};
    for (size_t i = 0; i < BR_ARRAY_LEN(links); i++) {
        snprintf(path, sizeof(path), "%s/one", s.root);
        snprintf(link, sizeof(link), "%s/%s", s.root, links[i].name);
        assert_int_equal(symlink(links[i].to ? links[i].to : path, link), 0);
    }
    /* these are where they should be */
    const char *const good[] = {"one", "./one", "one/../one", "one/", "in", "one/out"};
    for (size_t i = 0; i < BR_ARRAY_LEN(good); i++) {
        served_say(&s, "CHECK %s||", good[i]);
        served_hear(&s, "CHECKED OK");
        snprintf(path, sizeof(path), "%s/one%s", s.root, i == 5 ? "/out" : "");
        assert_string_equal(served_word(&s, 3), path); /* by their real path */
        assert_string_equal(served_word(&s, 4), "scripted/custom");
    }
    snprintf(path, sizeof(path), "%s/one||", s.root);
    served_say(&s, "CHECK %s", path);
    served_hear(&s, "CHECKED OK");
    /* and these are not */
    const char *const bad[] = {"..",
                               "../elsewhere",
                               "one/../../elsewhere",
                               "out",
                               "out/x",
                               "abs",
                               "loop",
                               "etc",
                               "/",
                               "/etc",
                               "one/out/seed",
                               "nowhere",
                               "/proc/self/root",
                               ""};
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++) {
        snprintf(path, sizeof(path), "%s||", bad[i]);
        refused(path, "INVALID_WORKSPACE", "no session was created");
    }
    snprintf(path, sizeof(path), "%s/../elsewhere||", s.root);
    refused(path, "INVALID_WORKSPACE", "leads out of");
    snprintf(path, sizeof(path), "%sX||", s.root);
    refused(path, "INVALID_WORKSPACE", "not in the service's root");
    snprintf(path, sizeof(path), "%s/\xff", s.root);
    snprintf(link, sizeof(link), "%s/odd", s.root);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(symlink("\xff", link), 0);
    refused("odd||", "INVALID_WORKSPACE", "not valid UTF-8");
    refused("one||scripted/other", "NOT_FOUND", "does not offer");
    if (geteuid() == 0) {
        snprintf(path, sizeof(path), "%s/rooted", s.root);
        assert_int_equal(mkdir(path, 0755), 0);
        refused("rooted||", "INVALID_WORKSPACE", "belongs to root");
    }
    served_stop(&s);
}

/* A link that takes the place of what was checked is not followed; nothing is run there. */
static void test_swapped_workspace(void **state)
{
    char id[BR_ID_MAX], from[200], to[200], want[200];
    (void)state;
    started("");
    e2e_write(&s.t, "workspace/deep/one/out/seed", "");
    served_say(&s, "CHECK deep/one||");
    served_hear(&s, "CHECKED OK ");
    snprintf(id, sizeof(id), "%s", served_word(&s, 2));
    e2e_write(&s.t, "elsewhere/one/out/seed", "");
    snprintf(from, sizeof(from), "%s/deep", s.root);
    snprintf(to, sizeof(to), "%s/deep.old", s.root);
    assert_int_equal(rename(from, to), 0);
    snprintf(to, sizeof(to), "%s/elsewhere", s.t.dir);
    assert_int_equal(symlink(to, from), 0);
    served_say(&s, "RUN %s 0 0 echo", id);
    snprintf(want, sizeof(want), "ENDED %s INVALID_WORKSPACE", id);
    served_hear(&s, want);
    assert_non_null(strstr(s.line, "not in"));
    served_stop(&s);
}

static void test_tasks(void **state)
{
#define TASK(id)                                                                                   \
    "id: " id "\ntitle: t\ngoal: say it\nacceptance: [a]\nallowed_paths: [out/**]\n"               \
    "permissions: {process.exec: allow}\nbudget: {max_model_tokens: 5000, max_tool_calls: 7}\n"    \
    "delivery: {type: none}\n"
    char id[BR_ID_MAX], want[200], from[300], to[300];
    (void)state;
    started("");
    e2e_write(&s.t, "workspace/one/tasks/fix-it.yaml", TASK("fix-it"));
    e2e_write(&s.t, "workspace/one/tasks/other.yaml", TASK("fix-it"));
    e2e_write(&s.t, "workspace/one/tasks/bad.yaml", "id: bad\n");
    e2e_write(&s.t, "workspace/one/tasks/empty.yaml", "");
    e2e_write(&s.t, "elsewhere/secret", "password: hunter2\n");
    snprintf(from, sizeof(from), "%s/elsewhere/secret", s.t.dir);
    snprintf(to, sizeof(to), "%s/one/tasks/linked.yaml", s.root);
    assert_int_equal(symlink(from, to), 0);
    snprintf(to, sizeof(to), "%s/one/tasks/hard.yaml", s.root);
    assert_int_equal(link(from, to), 0);
    snprintf(to, sizeof(to), "%s/one/tasks/fifo.yaml", s.root);
    assert_int_equal(mkfifo(to, 0666), 0);
    served_say(&s, "CHECK one|fix-it|");
    served_hear(&s, "CHECKED OK ");
    snprintf(id, sizeof(id), "%s", served_word(&s, 2));
    assert_string_equal(served_word(&s, 5), "5000");
    assert_string_equal(served_word(&s, 6), "7");
    refused("one|other|", "INVALID_MANIFEST", "is the manifest of 'fix-it'");
    refused("one|bad|", "INVALID_MANIFEST", "tasks/bad.yaml");
    refused("one|empty|", "INVALID_MANIFEST", "is empty");
    refused("one|none|", "NOT_FOUND", "does not exist");
    refused("one|linked|", "INVALID_MANIFEST", "symbolic link");
    refused("one|hard|", "INVALID_MANIFEST", "hard link");
    refused("one|fifo|", "INVALID_MANIFEST", "not a regular file");
    refused("one|../../elsewhere/secret|", "INVALID_MANIFEST", "kebab-case");
    refused("two|fix-it|", "NOT_FOUND", "does not exist");
    /* what was checked is what runs, whatever the file is by now */
    e2e_write(&s.t, "workspace/one/tasks/fix-it.yaml", "id: [");
    served_say(&s, "RUN %s 0 0 echo", id);
    snprintf(want, sizeof(want), "ENDED %s ", id);
    served_hear(&s, want);
    struct e2e_result r;
    e2e_run(&s.t, &r, "bridle", "show", id, "--json", NULL);
    e2e_expect(&r, 0, "\"taskId\":\"fix-it\"");
    e2e_result_free(&r);
    served_stop(&s);
}

/* What is remembered is bounded, at the limit and one beyond it; what is forgotten makes room. */
static void test_limits(void **state)
{
    char last[BR_ID_MAX];
    (void)state;
    started("");
    for (unsigned i = 0; i < 4096; i++) {
        served_say(&s, "CHECK one||");
        served_hear(&s, "CHECKED OK ");
    }
    snprintf(last, sizeof(last), "%s", served_word(&s, 2));
    refused("one||", "LIMIT_EXCEEDED", "which is its limit");
    served_say(&s, "FORGET %s", last);
    served_say(&s, "CHECK one||");
    served_hear(&s, "CHECKED OK ");
    refused("one||", "LIMIT_EXCEEDED", "which is its limit");
    served_stop(&s);
}

/* A session that was made and is forgotten is gone; a gateway that breaks the rules is ended. */
static void test_rules(void **state)
{
    char id[BR_ID_MAX];
    (void)state;
    started("");
    served_say(&s, "CHECK one||");
    served_hear(&s, "CHECKED OK ");
    snprintf(id, sizeof(id), "%s", served_word(&s, 2));
    served_say(&s, "FORGET %s", id);
    served_say(&s, "CANCEL %s 0", id); /* of one that is not known: nothing */
    served_say(&s, "CHECK one||");
    served_hear(&s, "CHECKED OK ");
    served_say(&s, "RUN %s 0 0 echo", id);
    assert_null(served_try(&s, "STARTED"));
    served_logged(&s, "malformed GATE_RUN");
    served_connect(&s); /* another one is there */
    served_say(&s, "BAD");
    assert_null(served_try(&s, "nothing"));
    served_logged(&s, "GATE_FORGET");
    served_connect(&s);
    served_begin(&s, "one", "echo", id);
    served_hear(&s, "ENDED ");
    served_record(&s, id, "completed");
    served_stop(&s);
}

/* As an ordinary user: all programs are that user's, and a run goes as far as the host lets it. */
static void test_ordinary(void **state)
{
    char id[BR_ID_MAX], want[128];
    (void)state;
    started("");
    served_say(&s, "INFO");
    served_hear(&s, "INFO ");
    snprintf(want, sizeof(want), "uid=%u ", s.t.uid ? s.t.uid : (unsigned)geteuid());
    assert_non_null(strstr(s.line, want));
    refused("..||", "INVALID_WORKSPACE", "leads out of");
    served_begin(&s, "one", "echo", id);
    served_hear(&s, "ENDED ");
    assert_string_equal(served_word(&s, 1), id);
    if (strcmp(served_word(&s, 2), "OK") != 0)
        assert_string_equal(served_word(&s, 2), "REQUIREMENT_MISSING");
    served_say(&s, "READ |0|1||");
    served_hear(&s, "ROW ");
    assert_string_equal(served_word(&s, 1), id);
    served_stop(&s);
}

static int open_all(void **state)
{
    (void)state;
    served_open(&s, 0);
    return 0;
}

static int open_ordinary(void **state)
{
    (void)state;
    served_open(&s, ORDINARY_UID);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    served_close(&s);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_session),
        cmocka_unit_test(test_asks),
        cmocka_unit_test(test_line),
        cmocka_unit_test(test_workspaces),
        cmocka_unit_test(test_swapped_workspace),
        cmocka_unit_test(test_tasks),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_limits),
    };
    const struct CMUnitTest ordinary[] = {cmocka_unit_test(test_ordinary)};
    e2e_isolate();
    int failed = cmocka_run_group_tests(tests, open_all, close_all);
    return failed + cmocka_run_group_tests(ordinary, open_ordinary, close_all);
}
