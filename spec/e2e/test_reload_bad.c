/*
 * Everything that must not become the policy of new sessions: files of all wrong kinds, bundles
 * that do not compile, prove, end or answer, a test whose processes are killed at any moment, and
 * people to whom the bridled does not belong. Each time the one that stands is the one that stood.
 */
#include "reload_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "wire/wire.h"

#define FOREIGN_UID 23456

static char before[4096]; /* what stands, in all that is said of it */

static void remember(void)
{
    char *rows = reload_rows("current");
    snprintf(before, sizeof(before), "%s", rows);
    free(rows);
}

static void expect_nothing_happened(const char *after_what)
{
    char *rows = reload_rows("current");
    if (strcmp(rows, before) != 0)
        fail_msg("after '%s': %snot %s", after_what, rows, before);
    free(rows);
}

/* A policy that takes what there is: stopped by a limit of its own, or, on a busy machine, by the
 * peer that waits for it. */
#define HUNGRY (-1)

static void reload(const char *file, int status, const char *said)
{
    e2e_run(&t, &r, "bridle", "policy", "reload", file, NULL);
    if (status == HUNGRY)
        status = r.status == 7 ? 7 : 5;
    e2e_expect(&r, status, said);
    if (status != 0 && r.out.len)
        fail_msg("on standard output: %s", (char *)r.out.data);
    e2e_result_free(&r);
}

/* And that it is remembered; the rows of what was refused are the last ones. */
static void refused(const char *file, int status, const char *said)
{
    reload(file, status, said);
    char *rows = reload_rows("");
    char *last = rows, *current = strstr(rows, "{\"kind\":\"current\"");
    if (!current || strncmp(current, before, strlen(before)) != 0)
        fail_msg("after '%s': %snot %s", file, rows, before);
    for (char *p = rows; (p = strchr(p, '\n')) && p[1];)
        last = ++p;
    if (!strstr(last, said))
        fail_msg("'%s' is not in the last of what was refused: %s", said, last);
    free(rows);
}

static void path_of(char path[128], const char *name)
{
    snprintf(path, 128, "%s/%s", t.dir, name);
}

/* ---- files ---- */

static void test_files(void **state)
{
    (void)state;
    char path[128], to[128];
    reload_open(0, STRICT);
    remember();
    refused("gone.lua", 3, "gone.lua' does not exist");
    path_of(path, "dir.lua");
    assert_int_equal(mkdir(path, 0755), 0);
    refused("dir.lua", 5, "is a directory");
    path_of(path, "fifo.lua");
    assert_int_equal(mkfifo(path, 0644), 0);
    refused("fifo.lua", 5, "is a FIFO");
    refused("/dev/null", 5, "is no regular file");
    e2e_write(&t, "loose.lua", LOOSE);
    path_of(path, "loose.lua");
    assert_int_equal(chmod(path, 0664), 0);
    refused("loose.lua", 4, "can be written by others (mode 664)");
    assert_int_equal(chmod(path, 0646), 0);
    refused("loose.lua", 4, "can be written by others (mode 646)");
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(chown(path, FOREIGN_UID, 0), 0);
    refused("loose.lua", 4, "belongs to uid 23456, neither to root");
    /* a link is as good as what it leads to */
    path_of(to, "link.lua");
    assert_int_equal(symlink("loose.lua", to), 0);
    refused("link.lua", 4, "belongs to uid 23456, neither to root");
    /* a directory in which others can put another file in its place */
    e2e_write(&t, "open/mine.lua", LOOSE);
    path_of(path, "open");
    assert_int_equal(chmod(path, 0777), 0);
    refused("open/mine.lua", 4, "can be written by others (mode 777)");
    /* larger than a policy may be; the control is one byte less */
    char *big = malloc(BR_POLICY_MAX + 2);
    assert_non_null(big);
    size_t n = strlen(LOOSE);
    memcpy(big, LOOSE, n);
    memset(big + n, ' ', BR_POLICY_MAX + 1 - n);
    big[BR_POLICY_MAX + 1] = '\0';
    e2e_write(&t, "big.lua", big);
    refused("big.lua", 5, "has 1048577 bytes, more than 1048576");
    big[BR_POLICY_MAX] = '\0';
    e2e_write(&t, "big.lua", big);
    free(big);
    reload("big.lua", 0, "generation 2, ");
    reload_close();
}

/* ---- bundles ---- */

static void test_bundles(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
        int status;
    } bundles[] = {
        {"return 5 +\n", "bad.lua:2: unexpected symbol", 5},
        {"\n\n", "bad.lua", 5},
        {"\x1bLua\x54", "bad.lua", 5},
        {"return { api = 1 }\n", "bad.lua", 5},
        {BUNDLE("", "rules = { policy.deny { id = 'a', action = 'fs.wirte' } } "),
         "did you mean 'fs.write'", 5},
        {BUNDLE("",
                "rules = { policy.allow { id = 'a', action = 'process.exec', command = 'ls' },\n"
                "  policy.allow { id = 'a', action = 'process.exec', command = 'df' } } "),
         "bad.lua:5: rule 'a': the id is used in line 4 already", 5},
        {"error('on purpose')\n", "bad.lua:1: on purpose", 5},
        {"while true do pcall(error) end\n", "bad.lua", HUNGRY},
        {"local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1e6) .. i end\n", "bad.lua", HUNGRY},
        {"local function f() return f() + 1 end f()\n", "bad.lua", HUNGRY},
        /* it compiles, and its check does not answer */
        {BUNDLE("local function check(q)\n  return q.nothing.x\nend",
                "check = check, rules = { " ALLOW " } "),
         "bad.lua:3: a request has no field 'nothing'", 5},
        {BUNDLE("local function check(q)\n  while true do end\nend",
                "check = check, rules = { " ALLOW " } "),
         "bad.lua", HUNGRY},
        {BUNDLE("local function check(q)\n  return 'maybe'\nend",
                "check = check, rules = { " ALLOW " } "),
         "bad.lua", 5},
        {BUNDLE(
             "local function check(q)\n  local s = {}\n  for i = 1, 1e9 do s[i] = ('y'):rep(1e7) "
             ".. i end\nend",
             "check = check, rules = { " ALLOW " } "),
         "bad.lua", HUNGRY},
    };
    reload_open(0, STRICT);
    remember();
    for (size_t i = 0; i < BR_ARRAY_LEN(bundles); i++) {
        e2e_write(&t, "bad.lua", bundles[i].text);
        refused("bad.lua", bundles[i].status, bundles[i].said);
    }
    e2e_run(&t, &r, "bridle", "policy", "why", "process.exec", "touch", "x", NULL);
    e2e_expect(&r, 0, "operator:no-touch");
    e2e_result_free(&r);
    reload_close();
}

/* ---- processes ---- */

/* Its text takes a moment, and each answer of its check another one. */
#define SLOW                                                                                       \
    BUNDLE("local n = 0\nfor i = 1, 4000000 do n = n + i end\n"                                    \
           "local function check(q)\n  for i = 1, 400000 do n = n + i end\nend",                   \
           "check = check, rules = { " ALLOW " } ")

static pid_t start_reload(const char *name)
{
    char *const argv[] = {(char *)"bridle", (char *)"policy", (char *)"reload", (char *)"slow.lua",
                          NULL};
    return reload_spawn(name, argv);
}

static void test_killed(void **state)
{
    (void)state;
    static const char *const victims[] = {"bridle-script", "bridle-session", "bridled"};
    static const unsigned delays_ms[] = {0, 10, 40};
    reload_open(0, STRICT);
    e2e_write(&t, "slow.lua", SLOW);
    remember();
    unsigned killed = 0;
    for (size_t v = 0; v < BR_ARRAY_LEN(victims); v++)
        for (size_t d = 0; d < BR_ARRAY_LEN(delays_ms); d++) {
            pid_t pid = start_reload("slow");
            pid_t script = e2e_await(standing, "bridle-script", 0, 5000);
            if (d == 0) /* in the middle of compiling; later ones are as it happens */
                assert_true(script > 0 && kill(script, SIGSTOP) == 0);
            pid_t victim = e2e_await(standing, victims[v], v == 2, 5000);
            usleep(delays_ms[d] * 1000);
            bool there = victim > 0 && kill(victim, SIGKILL) == 0;
            reload_wait("slow", pid, &r);
            if (r.status == 0) { /* it was too late */
                assert_true(d > 0);
                remember();
            } else {
                assert_true(there);
                killed++;
                if (r.status != 1 && r.status != 5)
                    e2e_expect(&r, 1, NULL);
                e2e_expect(&r, r.status, "slow.lua'");
                expect_nothing_happened(victims[v]);
            }
            e2e_result_free(&r);
        }
    assert_true(killed >= BR_ARRAY_LEN(victims));
    /* and one that nobody kills */
    reload_wait("slow", start_reload("slow"), &r);
    e2e_expect(&r, 0, "30 probes decided");
    e2e_result_free(&r);
    reload_close();
}

/* While one is under way: another is refused, sessions begin, a signal is not lost. */
static void test_at_once(void **state)
{
    (void)state;
    reload_open(0, STRICT);
    e2e_write(&t, "slow.lua", SLOW);
    remember();
    pid_t pid = start_reload("slow");
    pid_t script = e2e_await(standing, "bridle-script", 0, 5000);
    assert_true(script > 0 && kill(script, SIGSTOP) == 0);
    refused("policy.lua", 1, "another reload is under way");
    e2e_run(&t, &r, "bridle", "policy", "why", "process.exec", "touch", "x", NULL);
    e2e_expect(&r, 0, "operator:no-touch");
    e2e_result_free(&r);
    assert_int_equal(kill(standing, SIGHUP), 0);
    reload_expect_current("\"generation\":1,");
    assert_int_equal(kill(script, SIGCONT), 0);
    reload_wait("slow", pid, &r);
    e2e_expect(&r, 0, "generation 2, ");
    e2e_result_free(&r);
    for (int i = 0; i < 1000; i++, usleep(10000)) {
        char *rows = reload_rows("current");
        bool third = strstr(rows, "\"generation\":3,") != NULL;
        free(rows);
        if (third)
            break;
    }
    reload_expect_current("\"generation\":3,");
    /* ending does not wait for one */
    pid = start_reload("slow");
    script = e2e_await(standing, "bridle-script", 0, 5000);
    assert_true(script > 0 && kill(script, SIGSTOP) == 0);
    assert_int_equal(kill(standing, SIGTERM), 0);
    assert_int_equal(reload_ended(), 0);
    reload_wait("slow", pid, &r);
    e2e_expect(&r, 1, NULL);
    e2e_result_free(&r);
    reload_close();
}

/* The one that holds dies in the middle: what tests for it ends, and so does who waits. */
static void test_holder_dies(void **state)
{
    (void)state;
    char path[128];
    reload_open(0, STRICT);
    e2e_write(&t, "slow.lua", SLOW);
    pid_t pid = start_reload("slow");
    pid_t script = e2e_await(standing, "bridle-script", 0, 5000);
    assert_true(script > 0 && kill(script, SIGSTOP) == 0);
    assert_int_equal(kill(standing, SIGKILL), 0);
    assert_int_equal(reload_ended(), 128 + SIGKILL);
    reload_wait("slow", pid, &r);
    e2e_expect(&r, 1, "left without an answer");
    e2e_result_free(&r);
    for (int i = 0; i < 500 && kill(script, 0) == 0; i++)
        usleep(10000);
    path_of(path, "policy.lua");
    reload_start(path); /* over what it left */
    reload_ready();
    reload_close();
}

/* ---- people ---- */

static int on_ended(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    char text[512];
    (void)c, (void)err;
    *(uint32_t *)ctx = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, text, sizeof(text));
    return strstr(text, "nothing was done") ? 0 : -BR_E_FAILED;
}

/* As `uid`, ask for a reload; how it ended: 0 for an answer that is none of these. */
static uint32_t ask_as(uid_t uid, enum br_msg_type type)
{
    static const struct br_msg_rule rules[] = {
        {BR_MSG_CTL_ENDED, BR_PERMIT, 12, 4096, 0, 0, on_ended}};
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        struct br_chan c;
        uint32_t code = 0;
        BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
        snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/control", t.state);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0 ||
            connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
            _exit(255);
        br_chan_init(&c, fd, "standing", rules, 1, &code);
        if (type != BR_MSG_CTL_POLICIES)
            br_buf_put_str(&o.buf, type == BR_MSG_CTL_RELOAD ? "strict" : "run_x");
        (void)br_chan_send(&c, type, 0, &o, NULL);
        _exit(br_chan_dispatch(&c, NULL) == 0 ? (int)code : 254);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return (uint32_t)WEXITSTATUS(status);
}

/* Even where directories and socket are open to all. */
static void test_foreign(void **state)
{
    (void)state;
    static const enum br_msg_type types[] = {BR_MSG_CTL_RELOAD, BR_MSG_CTL_POLICIES,
                                             BR_MSG_POLICY_TAKE};
    char path[128];
    reload_open(0, STRICT);
    remember();
    assert_int_equal(ask_as(FOREIGN_UID, BR_MSG_CTL_RELOAD), 255); /* it cannot even connect */
    snprintf(path, sizeof(path), "%s/control", t.state);
    assert_int_equal(chmod(path, 0666), 0);
    assert_int_equal(chmod(t.dir, 0755), 0);
    assert_int_equal(chmod(t.state, 0755), 0);
    for (size_t i = 0; i < BR_ARRAY_LEN(types); i++)
        assert_int_equal(ask_as(FOREIGN_UID, types[i]), BR_E_DENIED);
    assert_int_equal(chmod(t.state, 0700), 0);
    expect_nothing_happened("a foreign uid");
    reload_expect_log("of uid 23456 was refused at the control socket");
    reload_close();
}

/* Nobody can keep it from others: who says nothing, says nonsense, or does not listen. */
static void test_nonsense(void **state)
{
    (void)state;
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int fds[300];
    reload_open(0, STRICT);
    remember();
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/control", t.state);
    for (int i = 0; i < 20; i++) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
        char bytes[64];
        memset(bytes, i * 7, sizeof(bytes));
        (void)!send(fd, bytes, (size_t)i * 3, MSG_NOSIGNAL);
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, 5000), 1);
        assert_true(recv(fd, bytes, sizeof(bytes), 0) <= 0);
        close(fd);
    }
    expect_nothing_happened("nonsense");
    /* as many as there are places, and more: they are let go, and others come in */
    for (size_t i = 0; i < BR_ARRAY_LEN(fds); i++) {
        fds[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fds[i], (struct sockaddr *)&sa, sizeof(sa)), 0);
    }
    for (size_t i = 0; i < BR_ARRAY_LEN(fds); i++)
        close(fds[i]);
    expect_nothing_happened("a crowd");
    reload_close();
}

/* An ordinary user's own: the user and root may, and the files of both count. */
static void test_ordinary_user(void **state)
{
    (void)state;
    char path[128];
    if (geteuid() != 0)
        return;
    reload_open(1000, STRICT);
    remember();
    path_of(path, "loose.lua");
    e2e_write(&t, "loose.lua", LOOSE);
    assert_int_equal(chown(path, 1000, 1000), 0);
    reload("loose.lua", 0, "generation 2, ");
    assert_int_equal(chown(path, 0, 0), 0);
    t.uid = 0; /* root asks the user's */
    reload("loose.lua", 0, "generation 3, ");
    reload_expect_current("\"uid\":0,");
    t.uid = 1000;
    assert_int_equal(chown(path, FOREIGN_UID, 0), 0);
    remember();
    refused("loose.lua", 4, "belongs to uid 23456, neither to root nor to uid 1000");
    e2e_run(&t, &r, "bridle", "policy", "why", "process.exec", "touch", "x", NULL);
    e2e_expect(&r, 0, "allow");
    e2e_result_free(&r);
    reload_close();
}

int main(void)
{
    e2e_isolate();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_files, reload_teardown),
        cmocka_unit_test_teardown(test_bundles, reload_teardown),
        cmocka_unit_test_teardown(test_killed, reload_teardown),
        cmocka_unit_test_teardown(test_at_once, reload_teardown),
        cmocka_unit_test_teardown(test_holder_dies, reload_teardown),
        cmocka_unit_test_teardown(test_foreign, reload_teardown),
        cmocka_unit_test_teardown(test_nonsense, reload_teardown),
        cmocka_unit_test_teardown(test_ordinary_user, reload_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
