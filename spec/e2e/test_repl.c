/*
 * `bridle repl` over real records that real runs made, as root and as an ordinary user: verbs, Lua,
 * a terminal, pipes, and everything that can be wrong with what it is given. It changes nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "audit/store_priv.h"
#include "support/e2e.h"
#include "wire/types.h"
#include "wire/wire.h"

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

static struct e2e t;

#define ORDINARY_UID 61900u

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
    e2e_run(&t, &r, "bridle", "doctor", "--delegate", "61900", NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    snprintf(command, sizeof(command), "rm -f '%s/out.txt' '%s/err.txt'", t.dir, t.dir);
    assert_int_equal(system(command), 0);
    t.uid = ORDINARY_UID;
}

/* Two runs of whoever `uid` is: one after the other, so that 'last' is the second. */
static void open_with_runs(uid_t uid)
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

static void close_all(void)
{
    e2e_expect_clean(&t);
    if (real[0]) {
        /* empty directories: what the delegation made, and nothing else has this name */
        assert_int_equal(system("find /sys/fs/cgroup -ignore_readdir_race -depth -type d -name "
                                "'bridle-61900' -exec rmdir {} +"),
                         0);
        assert_int_equal(setenv("BRIDLE_BIN", real, 1), 0);
        real[0] = '\0';
    }
    e2e_close(&t);
}

/* bridle repl -e CODE: status and what it says. */
static void repl(const char *code, int status, const char *said)
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

/* The record as it is stored; free it. */
static char *stored(const char *id)
{
    struct e2e_result r;
    e2e_run(&t, &r, "bridle", "show", "--json", id, NULL);
    e2e_expect(&r, 0, NULL);
    char *text = strdup((char *)r.out.data);
    e2e_result_free(&r);
    return text;
}

static void run_id(char id[BR_ID_MAX], const char *expression)
{
    struct e2e_result r;
    char code[256];
    snprintf(code, sizeof(code), "print(%s)", expression);
    e2e_run(&t, &r, "bridle", "repl", "-e", code, NULL);
    e2e_expect(&r, 0, "run_");
    snprintf(id, BR_ID_MAX, "%s", (char *)r.out.data);
    id[strcspn(id, "\n")] = '\0';
    e2e_result_free(&r);
}

/* ---- verbs and Lua ---- */

static void over_real_records(uid_t uid)
{
    char first[BR_ID_MAX], code[256];
    open_with_runs(uid);
    char *before = stored("last");
    repl("sessions", 0, "completed");
    repl("session last", 0, "second");
    run_id(first, "sessions[1].runId");
    snprintf(code, sizeof(code), "session %s", first);
    repl(code, 0, "first");
    /* a prefix: all but the last three characters are the first one's own, as ids go by time */
    snprintf(code, sizeof(code), "session %.*s", (int)strlen(first) - 3, first);
    repl(code, 0, "first");
    repl("events last", 0, "agent.stopped");
    repl("events last policy.decision", 0, "action=fs.write effect=deny");
    repl("events last bridle. 1..2", 0, "bridle.run");
    repl("events last 1", 0, "session.created");
    repl("decisions last", 0, "answered deny by kernel");
    repl("leases", 0, "the lease root is empty");
    repl("lease last", 0, "that session had no lease");
    repl("activations", 0, "run-v1");
    repl("policy policy.lua", 0, "operator:write");
    repl("why fs.write a.txt", 0, "by ");
    repl("limits 1 2 3", 0, "depth 1, items 2, bytes 3");
    repl("help", 0, "decisions ID");
    repl("help events", 0, "events(id, {type=, from=, to=})");
    repl("quit", 0, NULL);

    repl("#sessions", 0, "2\n");
    repl("sessions[2].goal", 0, "\"second\"\n");
    repl("map(decisions('last'), function(d) return d.effect end)", 0,
         "{ \"allow\", \"ask\", \"deny\" }\n");
    repl("decisions('last')[2].answer.decision, decisions('last')[2].subject", 0,
         "\"deny\"\n\"true 'one \\x1b[31mtwo'\"\n");
    repl("decisions last", 0, "true 'one \\x1b[31mtwo'");
    repl("print(decisions('last')[2].subject)", 0, "true 'one \\x1b[31mtwo'\n");
    repl("decisions('last')[3].rule", 0, "\"operator:write\"\n");
    repl("decisions('last')[3].reason", 0, "\"frozen\"\n");
    repl("why last 99999", 1, "has no decision about the call '99999'");
    snprintf(code, sizeof(code), "#events('%s') == session('%s').events", first, first);
    repl(code, 0, "true\n");
    repl("events('last', {from = 2, to = 2})[1].type", 0, "\"bridle.run\"\n");
    repl("activations[1].profile", 0, "\"run-v1\"\n");
    repl("leases", 0, NULL);
    /* a call by its id, and by its row */
    struct e2e_result r;
    e2e_run(&t, &r, "bridle", "repl", "-e", "d = decisions('last')[3]", "-e",
            "print(d.callId, d.row)", NULL);
    e2e_expect(&r, 0, NULL);
    char call[64];
    unsigned row;
    assert_int_equal(sscanf((char *)r.out.data, "%63s %u", call, &row), 2);
    e2e_result_free(&r);
    snprintf(code, sizeof(code), "why last %s", call);
    repl(code, 0, "-> deny  operator  operator:write: frozen");
    snprintf(code, sizeof(code), "why last %u", row);
    repl(code, 0, "-> deny  operator  operator:write: frozen");
    /* and all that changed nothing */
    char *after = stored("last");
    assert_string_equal(before, after);
    free(before);
    free(after);
    close_all();
}

static void test_as_root(void **state)
{
    (void)state;
    over_real_records(0);
}

static void test_as_user(void **state)
{
    (void)state;
    over_real_records(ORDINARY_UID);
}

/* Every line of --json is JSON, and the events are the stored bytes behind their row. */
static void test_json(void **state)
{
    (void)state;
    struct e2e_result r;
    open_with_runs(0);
    static const char *const codes[] = {
        "sessions",         "session last", "events last", "decisions last",  "activations",
        "leases",           "limits",       "sessions[1]", "1, 'a', {}, nil", "policy policy.lua",
        "why fs.read a.txt"};
    for (size_t i = 0; i < BR_ARRAY_LEN(codes); i++) {
        e2e_run(&t, &r, "bridle", "repl", "--json", "-e", codes[i], NULL);
        e2e_expect(&r, 0, NULL);
        char *save = NULL;
        for (char *l = strtok_r((char *)r.out.data, "\n", &save); l;
             l = strtok_r(NULL, "\n", &save)) {
            json_t *v = json_loads(l, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
            if (!v)
                fail_msg("%s: '%s' is not JSON", codes[i], l);
            json_decref(v);
        }
        e2e_result_free(&r);
    }
    char *events = stored("last");
    e2e_run(&t, &r, "bridle", "repl", "--json", "-e", "events last", NULL);
    char *save1 = NULL, *save2 = NULL;
    char *a = strtok_r(events, "\n", &save1); /* the row of the list comes first */
    a = strtok_r(NULL, "\n", &save1);
    char *b = strtok_r((char *)r.out.data, "\n", &save2);
    unsigned n = 0;
    for (; a && b; a = strtok_r(NULL, "\n", &save1), b = strtok_r(NULL, "\n", &save2)) {
        char head[32];
        snprintf(head, sizeof(head), "{\"row\":%u,", ++n);
        assert_int_equal(strncmp(b, head, strlen(head)), 0);
        assert_string_equal(b + strlen(head), a + 1);
    }
    assert_true(!a && !b && n > 20);
    free(events);
    e2e_result_free(&r);
    close_all();
}

/* ---- bad input ---- */

static void test_bad_input(void **state)
{
    (void)state;
    open_with_runs(0);
    static const struct {
        const char *code, *says;
    } rows[] = {
        {"session", "that is not how 'session' is written: session ID"},
        {"session a b", "that is not how 'session' is written"},
        {"session run_zzz", "run_zzz"},
        {"session ''", "an id is empty"},
        {"session run_", "run_"},
        {"events nothing", "nothing"},
        {"events last 9..3", "is no range of rows"},
        {"events last 0", "is no range of rows"},
        {"events last 1..2 3..4", "one word too many"},
        {"events last tool.call tool.result", "one word too many"},
        {"why last", "that is not how 'why' is written"},
        {"why run_zzz 1", "run_zzz"},
        {"why last 1 2", "name the session and one call or row"},
        {"lease nothing", "neither a file of the lease root nor the id of a session"},
        {"policy nowhere.lua", "nowhere.lua"},
        {"limits 0", "'depth' must be a number from 1 to 32"},
        {"limits x", "'depth' must be a number"},
        {"limits 33", "'depth' must be a number"},
        {"limits 1 10001", "'items' must be a number"},
        {"limits 1 1 1048577", "'bytes' must be a number"},
        {"help nothing", "there is no help about 'nothing'"},
        {"help evnts", "did you mean 'events'"},
        {"evnts last", "did you mean 'events'"},
        {"sesions", "did you mean 'sessions'"},
        {"session 'last", "the quote ' is not closed"},
        {"session \xff", "not valid UTF-8"},
        {"x = '\xff'", "not valid UTF-8"},
        {"session('run_zzz')", "run_zzz"},
        {"session('')", "an id is empty"},
        {"events('last', { tpye = 1 })", "no option 'tpye'"},
        {"sessions[1].goal = 'x'", "a snapshot cannot be changed"},
        {"io.open('/etc/passwd')", "the sandbox does not have it"},
        {"x = {", "<eof>"},
        {"error('mine')", "-e:1: mine"},
        {"\n\nnil.x()", "-e:3:"},
        {"while true do end", "it ran for more than"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++)
        repl(rows[i].code, 1, rows[i].says);
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1u << 20);
    br_buf_printf(&b, "session ");
    while (b.len < BR_ID_MAX + 8)
        br_buf_put_u8(&b, 'r');
    repl(br_buf_cstr(&b), 1, "is no id of a session");
    while (b.len < 65537)
        br_buf_put_u8(&b, 'r');
    repl(br_buf_cstr(&b), 1, "longer than 65536 bytes");
    /* the command line */
    struct e2e_result r;
    e2e_run(&t, &r, "bridle", "repl", "sessions", NULL);
    e2e_expect(&r, 2, "one word too many");
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "repl", "-e", NULL);
    e2e_expect(&r, 2, "needs a value");
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "repl", "--evl", "1", NULL);
    e2e_expect(&r, 2, "did you mean '--eval'");
    e2e_result_free(&r);
    /* the first failure ends it: nothing after it happens */
    e2e_run(&t, &r, "bridle", "repl", "-e", "print('one')", "-e", "error('two')", "-e",
            "print('three')", NULL);
    e2e_expect(&r, 1, "-e 2:1: two");
    assert_string_equal((char *)r.out.data, "one\n");
    e2e_result_free(&r);
    close_all();
}

static void test_nothing_recorded(void **state)
{
    (void)state;
    struct e2e_result r;
    e2e_open(&t, 0);
    t.activated = true;
    repl("leases", 0, "the lease root is empty");
    repl("activations", 0, "no profile is activated");
    repl("sessions", 0, "no session is recorded yet");
    repl("#sessions, #leases, #activations", 0, "0\n0\n0\n");
    repl("session last", 1, "no run is recorded yet");
    repl("events last", 1, "no run is recorded yet");
    repl("pcall(session, 'last')", 0, "false\n");
    e2e_result_free((e2e_run(&t, &r, "bridle", "repl", "--json", "-e", "sessions", NULL), &r));
    close_all();
    /* a state directory that cannot be used */
    e2e_open(&t, 0);
    t.activated = true;
    assert_int_equal(mkdir(t.state, 0700), 0);
    assert_int_equal(chmod(t.state, 0755), 0);
    repl("sessions", 1, "open to other users");
    repl("leases", 1, "open to other users");
    repl("#sessions", 1, "open to other users");
    repl("1 + 1", 0, "2\n");
    close_all();
}

/* A program that is not there, or is none. */
static void test_programs_missing(void **state)
{
    (void)state;
    char bin[128], path[160], build[BR_PATH_MAX];
    snprintf(build, sizeof(build), "%s", e2e_bin());
    open_with_runs(0);
    e2e_copy_bin(&t, NULL, NULL, bin);
    assert_int_equal(setenv("BRIDLE_BIN", bin, 1), 0);
    snprintf(path, sizeof(path), "%s/bridle-script", bin);
    assert_int_equal(unlink(path), 0);
    repl("sessions", 0, "completed"); /* verbs need no Lua */
    repl("#sessions", 1, "bridle-script' cannot be started; build or install it again");
    assert_int_equal(symlink("/bin/false", path), 0);
    repl("1", 1, "'bridle-script' ended before it was ready; nothing was evaluated");
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof(path), "%s/bridle-audit", bin);
    assert_int_equal(unlink(path), 0);
    repl("sessions", 1, "bridle-audit");
    snprintf(path, sizeof(path), "%s/bridled", bin);
    assert_int_equal(unlink(path), 0);
    repl("sessions", 1, "bridled' cannot be started");
    repl("leases", 1, "bridled' cannot be started");
    assert_int_equal(symlink("/bin/false", path), 0);
    repl("sessions", 1, "'bridled' has gone");
    assert_int_equal(setenv("BRIDLE_BIN", build, 1), 0);
    close_all();
}

/* ---- records that no run would make ---- */

/* In the store's directory, as the store's user. `f` runs in a process of its own. */
static void in_store(void (*f)(struct br_store *s))
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

static void add_run(struct br_store *s, const char *id, const char *owner, unsigned events,
                    bool ended)
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
        r = br_store_add_event(s, &run, event_id, "error", body, (size_t)n, &err);
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

static void add_odd_runs(struct br_store *s)
{
    add_run(s, "run_ab1", "1:1:nobody", 3, true);
    add_run(s, "run_ab2", "1:1:nobody", 3, true);
    add_run(s, "run_dead", "1:1:nobody", 2, false);
    add_run(s, "run_exact", "1:1:nobody", 5000, true);
    add_run(s, "run_large", "1:1:nobody", 5001, true);
}

static void test_odd_records(void **state)
{
    (void)state;
    open_with_runs(0);
    in_store(add_odd_runs);
    repl("session run_ab", 1, "run_ab");
    repl("session run_ab1", 0, "run_ab1");
    repl("session('run_dead').status", 0, "\"interrupted\"\n");
    repl("events run_ab1", 0, "\\x1b[2J \\u202e 1");
    repl("events('run_ab1')[1].data.message", 0, "\"\\x1b[2J \\u202e 1\"");
    /* a page is 5000 rows */
    struct e2e_result r;
    e2e_run(&t, &r, "bridle", "repl", "-e", "#events('run_exact')", NULL);
    e2e_expect(&r, 0, "5000\n");
    assert_string_equal((char *)r.err.data, "");
    e2e_result_free(&r);
    repl("#events('run_large')", 0, "events: 1 more were left out; the next is row 5001\n");
    repl("events('run_large', { from = 5001 })[1].row", 0, "5001\n");
    repl("events run_large 4999..", 0, "5001");
    repl("events run_large 6000..", 0, "no event fits");
    repl("session('run_large').types.error", 0, "5001\n");
    repl("limits 4 3", 0, NULL);
    e2e_run(&t, &r, "bridle", "repl", "-e", "limits 4 3", "-e", "events('run_exact')", NULL);
    e2e_expect(&r, 0, "... 4997 more");
    assert_true(r.out.len < 2000);
    e2e_result_free(&r);
    close_all();
}

/* A third event whose hash is not that of what is before it. */
static void add_damaged(struct br_store *s)
{
    add_run(s, "run_bad", "1:1:nobody", 2, false);
    if (sqlite3_exec(
            s->db,
            "INSERT INTO events(run, row, event_id, type, body, hash) SELECT id, 3, 'bad-3', "
            "'error', '{\"v\":1,\"type\":\"error\",\"data\":{\"message\":\"forged\"}}', "
            "zeroblob(32) FROM runs WHERE run_id = 'run_bad'",
            NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_changes(s->db) != 1) {
        fprintf(stderr, "%s\n", sqlite3_errmsg(s->db));
        _exit(5);
    }
}

/* What comes before the damage is shown, and the error; nothing behind it. */
static void test_damaged(void **state)
{
    (void)state;
    open_with_runs(0);
    in_store(add_damaged);
    repl("session run_bad", 1, "AUDIT_STORE_FAILED");
    repl("session run_bad", 1, "interrupted"); /* its row of the list is sound */
    repl("events run_bad", 1, "\\x1b[2J \\u202e 2");
    repl("events run_bad", 1, "AUDIT_STORE_FAILED");
    repl("events run_bad 1..2", 1,
         "AUDIT_STORE_FAILED"); /* it cannot be told where the damage is */
    repl("decisions run_bad", 1, "AUDIT_STORE_FAILED");
    repl("events('run_bad')", 1, "-e:1:");
    struct e2e_result r;
    e2e_run(&t, &r, "bridle", "repl", "-e", "events run_bad", NULL);
    assert_false(e2e_says(&r, "forged"));
    e2e_result_free(&r);
    repl("#events('last') > 20", 1, NULL); /* 'last' is the damaged one */
    repl("#events(sessions[2].runId) > 20", 0, "true\n");
    close_all();
}

/* A run that goes on while it is looked at. */
static void test_running(void **state)
{
    (void)state;
    open_with_runs(0);
    e2e_write(&t, "allow.lua",
              "local policy = require \"bridle.policy\"\n"
              "return policy.bundle { api = 1, name = \"test\", rules = {\n"
              "  policy.allow { id = \"exec\", action = \"process.exec\" },\n} }\n");
    e2e_write(
        &t, "sleep.json",
        "{\"v\":1,\"name\":\"t\",\"turns\":[{\"when\":{\"assistant_messages\":0},"
        "\"tool_calls\":[{\"name\":\"process_exec\",\"arguments\":{\"argv\":[\"sleep\",\"60\"]}}"
        "]},{\"text\":\"The end.\"}]}");
    char *argv[] = {(char *)"bridle",     (char *)"run",
                    (char *)"-C",         (char *)"workspace",
                    (char *)"-p",         (char *)"allow.lua",
                    (char *)"--scenario", (char *)"sleep.json",
                    (char *)"third",      NULL};
    pid_t pid = e2e_spawn(&t, argv, NULL);
    assert_true(e2e_await(pid, "sleep", 0, 20000) > 0);
    /* its output files are the run's: look with a shell of our own */
    char command[512];
    snprintf(command, sizeof(command),
             "BRIDLE_STATE_DIR='%s' NO_COLOR=1 '%s/bridle' repl -e sessions -e "
             "'session(\"last\").status' "
             "-e '#sessions' </dev/null >'%s/looked.txt' 2>&1",
             t.state, e2e_bin(), t.dir);
    assert_int_equal(system(command), 0);
    char *looked = e2e_read(&t, "looked.txt");
    if (!looked || !strstr(looked, "running") || !strstr(looked, "\"running\"\n3\n"))
        fail_msg("%s", looked ? looked : "");
    free(looked);
    assert_int_equal(kill(pid, SIGINT), 0);
    struct e2e_result r;
    e2e_wait(&t, pid, 30, &r);
    e2e_result_free(&r);
    repl("session('last').status", 0, "\"canceled\"\n");
    close_all();
}

/* ---- leases ---- */

static void test_leases(void **state)
{
    (void)state;
    char path[160];
    open_with_runs(0);
    snprintf(path, sizeof(path), "%s/leases", t.state);
    assert_true(mkdir(path, 0700) == 0 || access(path, F_OK) == 0);
    e2e_write(&t, "state/leases/state-work.img", "0123456789");
    e2e_write(&t, "state/leases/ext4-1-8-8.template", "");
    e2e_write(&t, "state/leases/odd \033[31m", "");
    repl("leases", 0, "state-work.img");
    repl("leases", 0, "odd \\x1b[31m");
    repl("lease work", 0, "10");
    repl("lease state-work.img", 0, "no");
    repl("lease('work')[1].inUse, lease('work')[1].bytes, lease('work')[1].kind", 0,
         "false\n10\n\"state\"\n");
    snprintf(path, sizeof(path), "%s/leases/state-work.img", t.state);
    BR_CLEANUP_FD int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    repl("lease('work')[1].inUse", 0, "true\n");
    br_close(&fd);
    /* it took no lock itself, and the files are what they were */
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    e2e_expect_file(&t, "state/leases/state-work.img", "0123456789");
    close_all();
}

/* ---- pipes ---- */

/* SCRIPT is a shell command in which $B is bridle; its output and status. */
static void shell(struct e2e_result *r, const char *script)
{
    char command[2 * BR_PATH_MAX];
    snprintf(command, sizeof(command), "cd '%s'; B='%s/bridle'; %s", t.dir, e2e_bin(), script);
    e2e_run(&t, r, "../tests/ptydrive", "-t", "60", "--", "/bin/bash", "-c", command, NULL);
}

static void test_pipes(void **state)
{
    (void)state;
    struct e2e_result r;
    open_with_runs(0);
    static const struct {
        const char *script;
        int status;
        const char *says;
    } rows[] = {
        {"printf 'x = 20\\nx + 22\\n' | $B repl | cat", 0, "42"},
        {"printf 'sessions\\r\\n#sessions\\r\\n' | $B repl | cat", 0, "second"},
        {"printf '\\n  \\n-- nothing\\n#sessions' | $B repl | cat", 0, "2"},
        {"printf 'for i = 1, 3 do\\n  print(i)\\nend\\nprint(\"done\")\\n' | $B repl | cat", 0,
         "done"},
        {"printf '1\\nquit\\nerror(1)\\n' | $B repl", 0, "1"},
        {"$B repl </dev/null", 0, NULL},
        {"printf 'print(1)\\n\\nerror(\"here\")\\nprint(\"never\")\\n' | $B repl", 1,
         "stdin:3: here"},
        {"printf '\\nx = {\\n1,\\n' | $B repl", 1, "stdin:3: unexpected symbol near <eof>"},
        {"printf 'a\\0b\\n' | $B repl", 1, "NUL byte"},
        {"printf 'x = \"\\xff\"\\n' | $B repl", 1, "not valid UTF-8"},
        {"head -c 65537 /dev/zero | tr '\\0' x | $B repl", 1, "longer than 65536 bytes"},
        {"$B repl <.", 1, "standard input could not be read"},
        {"$B repl -e sessions >/dev/full", 1, "the output could not be written"},
        {"$B repl -e '1' >/dev/full", 1, "the output could not be written"},
        {"$B repl -e sessions >&-", 1, NULL},
        {"set -o pipefail; $B repl -e 'for i = 1, 1e5 do print(i) end' | head -1; echo "
         "\"${PIPESTATUS[0]}\"",
         0, "1"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        shell(&r, rows[i].script);
        if (r.status != rows[i].status || (rows[i].says && !e2e_says(&r, rows[i].says)) ||
            e2e_says(&r, "never"))
            fail_msg("%s: status %d: %s", rows[i].script, r.status, (char *)r.out.data);
        e2e_result_free(&r);
    }
    close_all();
}

/* ---- a terminal ---- */

#define P "bridle> "

static char *bridle_path(void)
{
    static char path[BR_PATH_MAX];
    snprintf(path, sizeof(path), "%s/bridle", e2e_bin());
    return path;
}

static void terminal(uid_t uid)
{
    struct e2e_result r;
    struct stat st;
    open_with_runs(uid);
    e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "-e", P, "send:1 + 1", "-e", "2\r\n" P,
            "send:error('boo')", "-e", "boo", "raw:", "-e", P, "raw:sessi", "-e", "sessi", "tab",
            "-e", "session", "raw:s[2].go", "-e", "s[2].go", "tab", "-e", "al", "raw:\n", "-e",
            "\"second\"\r\n" P, "send:for i = 7, 8 do", "-e", "... ", "send:print(i) end", "-e",
            "7\r\n8\r\n" P, "send:while true do end", "-e", "end\r\n", "run:sleep 0.3", "-e", "",
            "int", "-e", "it was interrupted", "raw:", "-e", P, "raw:dropped", "-e", "dropped",
            "int", "-e", "^C\r\n" P, "resize:50", "-e", "", "send: 'secret'", "-e", "secret\"\r\n",
            "raw:", "-e", P, "send:x = {", "-e", "... ", "int", "-e", P, "send:sessions", "-e",
            "second", "raw:", "-e", P, "eof", "--", bridle_path(), "repl", NULL);
    e2e_expect(&r, 0, NULL);
    assert_false(e2e_says(&r, "dropped\r\nbridle:"));
    e2e_result_free(&r);
    char *history = e2e_read(&t, "state/repl_history");
    assert_non_null(history);
    if (!strstr(history, "1 + 1\n") || !strstr(history, "sessions[2].goal\n") ||
        strstr(history, "secret") || strstr(history, "dropped"))
        fail_msg("%s", history);
    free(history);
    char path[160];
    snprintf(path, sizeof(path), "%s/repl_history", t.state);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    /* what was typed is there the next time */
    e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "-e", P, "raw:\x10", "-e", "sessions",
            "raw:\n", "-e", "second", "raw:", "-e", P, "send:quit", "--", bridle_path(), "repl",
            NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    close_all();
}

static void test_terminal_as_root(void **state)
{
    (void)state;
    terminal(0);
}

static void test_terminal_as_user(void **state)
{
    (void)state;
    terminal(ORDINARY_UID);
}

/* Colours are for terminals, and for who wants them; a long record comes a screen at a time. */
static void test_terminal_output(void **state)
{
    (void)state;
    struct e2e_result r;
    open_with_runs(0);
    in_store(add_odd_runs);
    static const char *const env[] = {"TERM=xterm", "TERM=dumb"};
    for (size_t i = 0; i < 3; i++) {
        e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "-e", P, "send:events run_exact", "-e",
                "the next is row 201", "raw:", "-e", P, "send:quit", "--", "/usr/bin/env",
                i < 2 ? "-uNO_COLOR" : "TERM=xterm", env[i % 2], bridle_path(), "repl", NULL);
        e2e_expect(&r, 0, "4800 more were left out");
        e2e_expect(&r, 0, "\\x1b[2J \\u202e 200");
        assert_false(e2e_says(&r, "u202e 201"));
        assert_int_equal(e2e_says(&r, "\033[2m"), i == 0);
        assert_false(e2e_says(&r, "\033[2J"));
        e2e_result_free(&r);
    }
    e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "--", bridle_path(), "repl", "--json", "-e",
            "events run_ab1 1", NULL);
    e2e_expect(&r, 0, "\\u202e 1");
    assert_false(e2e_says(&r, "\xe2\x80\xae"));
    e2e_result_free(&r);
    close_all();
}

/* Whatever happens to the client, nothing of it stays. */
static void test_killed(void **state)
{
    (void)state;
    struct e2e_result r;
    static const int signals[] = {SIGKILL, SIGTERM, SIGHUP, SIGINT};
    open_with_runs(0);
    for (size_t i = 0; i < BR_ARRAY_LEN(signals); i++) {
        char *argv[] = {(char *)"bridle",
                        (char *)"repl",
                        (char *)"-e",
                        (char *)"print(#sessions) while true do end",
                        (char *)"-e",
                        (char *)"print('went on')",
                        NULL};
        pid_t pid = e2e_spawn(&t, argv, NULL);
        assert_true(e2e_await(pid, "bridle-script", 0, 20000) > 0);
        usleep(100000);
        assert_int_equal(kill(pid, signals[i]), 0);
        e2e_wait(&t, pid, 30, &r);
        assert_true(signals[i] == SIGINT ? r.status == 1 : r.status == 128 + signals[i]);
        if (signals[i] == SIGINT)
            e2e_expect(&r, 1, "it was interrupted");
        assert_false(e2e_says(&r, "went on"));
        e2e_result_free(&r);
        e2e_expect_clean(&t);
    }
    close_all();
}

/* A history that is a link, or somebody else's, is left alone. */
static void test_history_file(void **state)
{
    (void)state;
    struct e2e_result r;
    char path[160];
    open_with_runs(0);
    snprintf(path, sizeof(path), "%s/repl_history", t.state);
    e2e_write(&t, "precious.txt", "precious\n");
    assert_int_equal(symlink("../precious.txt", path), 0);
#define TYPE_ONE                                                                                   \
    "../tests/ptydrive", "-t", "60", "-e", P, "send:1 + 1", "-e", "2\r\n" P, "eof", "--",          \
        bridle_path(), "repl"
    e2e_run(&t, &r, TYPE_ONE, NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    e2e_expect_file(&t, "precious.txt", "precious\n");
    assert_int_equal(unlink(path), 0);
    char hard[160];
    snprintf(hard, sizeof(hard), "%s/precious.txt", t.dir);
    assert_int_equal(link(hard, path), 0);
    e2e_run(&t, &r, TYPE_ONE, NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    e2e_expect_file(&t, "precious.txt", "precious\n");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    e2e_run(&t, &r, TYPE_ONE, NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    assert_int_equal(rmdir(path), 0);
    /* 1000 lines are kept */
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1u << 20);
    for (int i = 1; i <= 1001; i++)
        br_buf_printf(&b, "%d\n", i);
    e2e_write(&t, "state/repl_history", br_buf_cstr(&b));
    e2e_run(&t, &r, TYPE_ONE, NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    char *history = e2e_read(&t, "state/repl_history");
    assert_int_equal(strncmp(history, "2\n3\n", 4), 0);
    assert_non_null(strstr(history, "\n1001\n1 + 1\n"));
    free(history);
    close_all();
}

/* ---- who may ask bridled ---- */

/* A control channel that somebody else made is refused; one's own is served. */
static void test_peer_credentials(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("only root can be handed a channel of another user's that it can read\n");
        skip();
    }
    char path[BR_PATH_MAX];
    snprintf(path, sizeof(path), "%s/bridled", e2e_bin());
    e2e_open(&t, 0);
    for (int own = 0; own < 2; own++) {
        int ends[2], status;
        assert_int_equal(own ? 0 : seteuid(1000), 0);
        assert_int_equal(br_chan_pair(ends), 0);
        assert_int_equal(seteuid(0), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            (void)setenv("BRIDLE_STATE_DIR", t.state, 1);
            int null = open("/dev/null", O_WRONLY);
            if (dup2(null, 2) < 0 || dup2(ends[1], 3) < 0)
                _exit(126);
            execl(path, "bridled", "--private", (char *)NULL);
            _exit(127);
        }
        close(ends[1]);
        struct br_chan c;
        br_chan_init(&c, ends[0], "bridled", NULL, 0, NULL);
        (void)br_chan_send(&c, BR_MSG_CTL_LEASES, 0, NULL, NULL);
        char answer[1024];
        ssize_t n = read(c.fd, answer, sizeof(answer));
        if (own)
            assert_true(n > 0);
        else
            assert_true(n <= 0);
        br_chan_close(&c);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0) == own);
    }
    close_all();
}

int main(void)
{
    e2e_isolate();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_root),
        cmocka_unit_test(test_as_user),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_bad_input),
        cmocka_unit_test(test_nothing_recorded),
        cmocka_unit_test(test_programs_missing),
        cmocka_unit_test(test_odd_records),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_running),
        cmocka_unit_test(test_leases),
        cmocka_unit_test(test_pipes),
        cmocka_unit_test(test_terminal_as_root),
        cmocka_unit_test(test_terminal_as_user),
        cmocka_unit_test(test_terminal_output),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_history_file),
        cmocka_unit_test(test_peer_credentials),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
