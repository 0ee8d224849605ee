/*
 * A real bridle-script of purpose inspect: what code can do (read what it asks for) and what it
 * cannot (write, open, start or reach anything, run on, print without end), and a client that
 * breaks the protocol.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire/types.h"
#include "wire/wire.h"

/* Far beyond every limit of the program. */
#define WAIT_MS 90000

struct inspector {
    pid_t pid;
    struct br_chan chan;
    bool ready, answered;
    uint8_t status;
    char text[BR_ERR_TEXT_MAX];
    uint32_t line;
    struct br_buf result, printed, names;
    char wanted[1024];
    unsigned nwanted;
    /* how a snapshot is answered */
    enum br_code code;
    const char *data;
    size_t data_len;
    bool interrupt; /* instead of an answer, and then one */
};

static int on_ready(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)m, (void)err;
    ((struct inspector *)ctx)->ready = true;
    return 0;
}

static int on_done(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct inspector *g = ctx;
    (void)c;
    g->status = br_rd_u8(&m->rd);
    (void)br_rd_u32(&m->rd);
    br_rd_str(&m->rd, g->text, sizeof(g->text));
    g->line = br_rd_u32(&m->rd);
    br_buf_free(&g->result);
    assert_int_equal(br_msg_blob(m, BR_BLOB_MAX, &g->result, err), 0);
    assert_int_equal(br_rd_done(&m->rd), 0);
    assert_non_null(br_buf_cstr(&g->result));
    g->answered = true;
    return 0;
}

static int on_print(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct inspector *g = ctx;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(0);
    (void)c;
    assert_int_equal(br_msg_blob(m, BR_BLOB_MAX, &b, err), 0);
    br_buf_put(&g->printed, b.data, b.len);
    return 0;
}

static int on_want(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct inspector *g = ctx;
    char what[32], id[BR_NAME_MAX], type[64];
    br_rd_str(&m->rd, what, sizeof(what));
    br_rd_str(&m->rd, id, sizeof(id));
    br_rd_str(&m->rd, type, sizeof(type));
    unsigned long long from = br_rd_u64(&m->rd), to = br_rd_u64(&m->rd);
    assert_int_equal(br_rd_done(&m->rd), 0);
    snprintf(g->wanted, sizeof(g->wanted), "%s %s %s %llu %llu", what, id, type, from, to);
    g->nwanted++;
    if (g->interrupt)
        assert_int_equal(kill(g->pid, SIGINT), 0);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, g->code);
    br_buf_put_str(&o.buf, g->code ? "the refusal" : "");
    br_out_blob(&o, g->data, g->data_len);
    return br_chan_send(c, BR_MSG_INSPECT_DATA, 0, &o, err);
}

static int on_named(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct inspector *g = ctx;
    (void)c, (void)err;
    br_buf_reset(&g->names);
    for (uint32_t n = br_rd_u32(&m->rd); n > 0 && !m->rd.failed; n--) {
        char name[128];
        br_rd_str(&m->rd, name, sizeof(name));
        br_buf_printf(&g->names, "%s ", name);
    }
    assert_int_equal(br_rd_done(&m->rd), 0);
    assert_non_null(br_buf_cstr(&g->names));
    g->answered = true;
    return 0;
}

static const struct br_msg_rule rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_ready},
    {BR_MSG_INSPECT_DONE, BR_PERMIT, 0, BR_MSG_MAX, 0, 1, on_done},
    {BR_MSG_INSPECT_PRINT, BR_PERMIT, 0, BR_MSG_MAX, 0, 1, on_print},
    {BR_MSG_INSPECT_WANT, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_want},
    {BR_MSG_INSPECT_NAMED, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_named},
};

/* 0, or the code of the channel's end. */
static int serve(struct inspector *g, const bool *done)
{
    while (!*done) {
        struct pollfd p = {.fd = g->chan.fd, .events = POLLIN};
        if (poll(&p, 1, WAIT_MS) <= 0)
            fail_msg("nothing came in time");
        struct br_err err = {.code = BR_OK};
        int r = br_chan_dispatch(&g->chan, &err);
        if (r == -BR_E_PEER_GONE)
            return r;
        if (r < 0)
            fail_msg("%s", err.text);
    }
    return 0;
}

static void begin(struct inspector *g)
{
    int ends[2];
    char path[BR_PATH_MAX];
    *g = (struct inspector){.printed = BR_BUF_INIT(4u << 20), .names = BR_BUF_INIT(1u << 20)};
    g->data = "";
    snprintf(path, sizeof(path), "%s/bridle-script", getenv("BRIDLE_BIN"));
    assert_int_equal(br_chan_pair(ends), 0);
    br_chan_init(&g->chan, ends[0], "script", rules, BR_ARRAY_LEN(rules), g);
    g->pid = fork();
    assert_true(g->pid >= 0);
    if (g->pid == 0) {
        int ch = fcntl(ends[1], F_DUPFD_CLOEXEC, 10);
        (void)signal(SIGINT, SIG_IGN);
        if (ch < 0 || dup2(ch, 3) < 0)
            _exit(126);
        char *argv[] = {(char *)"bridle-script", NULL}, *envp[] = {NULL, NULL};
#ifdef BR_SANITIZED
        /* the leak checker needs a thread and ptrace, which the role has given up */
        envp[0] = (char *)"ASAN_OPTIONS=detect_leaks=0";
#endif
        execve(path, argv, envp);
        _exit(127);
    }
    close(ends[1]);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u8(&o.buf, BR_SCRIPT_INSPECT);
    assert_int_equal(br_chan_send(&g->chan, BR_MSG_SCRIPT_START, 0, &o, NULL), 0);
    assert_int_equal(serve(g, &g->ready), 0);
}

/* Returns the wait status. */
static int end(struct inspector *g)
{
    int status = 0;
    br_chan_close(&g->chan);
    assert_int_equal(waitpid(g->pid, &status, 0), g->pid);
    br_buf_free(&g->result);
    br_buf_free(&g->printed);
    br_buf_free(&g->names);
    return status;
}

static int eval_with(struct inspector *g, unsigned flags, uint32_t bytes, const char *code,
                     size_t n)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u8(&o.buf, (uint8_t)flags);
    br_buf_put_u32(&o.buf, 4);
    br_buf_put_u32(&o.buf, 20);
    br_buf_put_u32(&o.buf, bytes);
    br_buf_put_str(&o.buf, "line");
    br_buf_put_u32(&o.buf, 1);
    br_out_blob(&o, code, n);
    g->answered = false;
    br_buf_reset(&g->printed);
    assert_int_equal(br_chan_send(&g->chan, BR_MSG_INSPECT_EVAL, 0, &o, NULL), 0);
    return serve(g, &g->answered);
}

static void eval(struct inspector *g, const char *code)
{
    if (eval_with(g, 0, 65536, code, strlen(code)) < 0)
        fail_msg("'%s' ended the process", code);
}

static void gives(struct inspector *g, const char *code, const char *want)
{
    eval(g, code);
    if (g->status != 0 || strcmp((char *)g->result.data, want) != 0)
        fail_msg("%s\ngives %u '%s' %s\nnot '%s'", code, g->status, (char *)g->result.data, g->text,
                 want);
}

static void fails(struct inspector *g, const char *code, const char *says)
{
    eval(g, code);
    if (g->status != 2 || !strstr(g->text, says) || g->result.len)
        fail_msg("%s\ngives %u '%s' %s\nnot '%s'", code, g->status, g->text, (char *)g->result.data,
                 says);
}

static void data(struct inspector *g, const char *text)
{
    g->data = text;
    g->data_len = strlen(text);
}

static void test_lines(void **state)
{
    (void)state;
    struct inspector g;
    begin(&g);
    gives(&g, "1 + 1", "2\n");
    gives(&g, "_ * 2", "4\n");
    gives(&g, "=_", "4\n");
    gives(&g, "x = 5", "");
    gives(&g, "x", "5\n");
    gives(&g, "_", "5\n");
    gives(&g, "nil", "");
    gives(&g, "_", "5\n");
    gives(&g, "1, nil, 'a'", "1\nnil\n\"a\"\n");
    gives(&g, "function f(n) return n * 2 end", "");
    gives(&g, "f(21)", "42\n");
    gives(&g, "local y = 3 return y", "3\n");
    gives(&g, "", "");
    gives(&g, "-- nothing", "");
    gives(&g, "print", "function\n");
    gives(&g, "print('a', 1, nil, {})", "");
    assert_string_equal(br_buf_cstr(&g.printed), "a\t1\tnil\ttable\n");
    fails(&g, "y", "line:1: name 'y' is not there");
    fails(&g, "sesions", "did you mean 'sessions'");
    fails(&g, "os.exit()", "name 'os' is not there; the sandbox does not have it");
    fails(&g, "x = = 1", "line:1: unexpected symbol near '='");
    fails(&g, "\n\nerror('boo')", "line:3: boo");
    assert_int_equal(g.line, 3);
    fails(&g, "error({})", "an error that is a table");
    fails(&g, "\x1bLua", "binary chunk");
    gives(&g, "x", "5\n"); /* and all is as it was */
    assert_int_equal(end(&g), 0);
}

static void test_more_lines_and_json(void **state)
{
    (void)state;
    struct inspector g;
    begin(&g);
    static const char *const open[] = {"for i = 1, 2 do", "x = {",   "function f()",
                                       "x = [[a",         "return ", "1 +"};
    for (size_t i = 0; i < BR_ARRAY_LEN(open); i++) {
        assert_int_equal(eval_with(&g, 2, 100, open[i], strlen(open[i])), 0);
        assert_int_equal(g.status, i == 4 ? 0 : 1); /* "return" alone is complete */
        assert_int_equal(eval_with(&g, 0, 100, open[i], strlen(open[i])), 0);
        assert_int_equal(g.status, i == 4 ? 0 : 2);
    }
    static const struct {
        const char *code, *json; /* NULL: refused */
    } rows[] = {{"{ 1, 'a\\27', { b = json.null } }", "[1,\"a\\u001b\",{\"b\":null}]\n"},
                {"1, 2", "1\n2\n"},
                {"1, nil", "1\nnull\n"},
                {"print", NULL},
                {"{ 1, a = 2 }", NULL},
                {"'\\255'", NULL},
                {"0/0", NULL}};
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        assert_int_equal(eval_with(&g, 1, 100, rows[i].code, strlen(rows[i].code)), 0);
        assert_int_equal(g.status, rows[i].json ? 0 : 2);
        assert_string_equal((char *)g.result.data, rows[i].json ? rows[i].json : "");
    }
    /* what is printed of results is bounded, and says so */
    assert_int_equal(eval_with(&g, 0, 10, "'0123456789'", 12), 0);
    assert_string_equal((char *)g.result.data, "\"012345678\n... cut after 10 bytes\n");
    assert_int_equal(end(&g), 0);
}

static void test_snapshots(void **state)
{
    (void)state;
    struct inspector g;
    begin(&g);
    data(&g, "{\"runId\":\"run_1\",\"n\":[1,2]}\n{\"runId\":\"run_2\"}\n");
    gives(&g, "#sessions, sessions[1].runId, sessions[1].n[2]", "2\n\"run_1\"\n2\n");
    assert_string_equal(g.wanted, "sessions   0 0");
    assert_int_equal(g.nwanted, 1); /* once for the whole line */
    gives(&g, "old = sessions", "");
    data(&g, "{\"runId\":\"run_3\"}\n");
    gives(&g, "#sessions, #old", "1\n2\n"); /* and anew for the next */
    gives(&g, "events('run_1', 'tool.call')[1].runId", "\"run_3\"\n");
    assert_string_equal(g.wanted, "events run_1 tool.call 0 0");
    gives(&g, "#events('x', { from = 3, to = 9, type = 'a' })", "1\n");
    assert_string_equal(g.wanted, "events x a 3 9");
    gives(&g, "session('s').runId", "\"run_3\"\n");
    gives(&g, "decisions('s')[1].runId, lease('l')[1].runId, leases[1].runId, activations[1].runId",
          "\"run_3\"\n\"run_3\"\n\"run_3\"\n\"run_3\"\n");
    gives(&g, "copy(sessions)[1].runId, #copy(sessions)", "\"run_3\"\n1\n");
    gives(&g, "c = copy(sessions) c[1].runId = 'mine' return c[1].runId, sessions[1].runId",
          "\"mine\"\n\"run_3\"\n");
    gives(&g, "next(sessions[1])", "\"runId\"\n\"run_3\"\n");
    gives(&g, "count(sessions), count(sessions, function(s) return s.runId end)",
          "1\n{ run_3 = 1 }\n");
    gives(&g, "map(filter(sessions, function(s) return true end), function(s) return s.runId end)",
          "{ \"run_3\" }\n");
    unsigned before = g.nwanted;
    fails(&g, "events()", "string expected");
    fails(&g, "events('x', { tpye = 1 })", "no option 'tpye'");
    fails(&g, "events('x', { from = 0 })", "number of a row");
    fails(&g, "events('x', { type = 1 })", "'type' is a text");
    fails(&g, "events('x', ('t'):rep(64))", "no type as long as that");
    fails(&g, "session(('i'):rep(256))", "at most 255 bytes");
    fails(&g, "sessions[1].runId = 2", "snapshot cannot be changed");
    assert_int_equal(g.nwanted, before + 1);
    data(&g, "");
    gives(&g, "sessions, #sessions", "{}\n0\n");
    gives(&g, "session('x')", "");
    g.code = BR_E_NOT_FOUND;
    fails(&g, "session('x')", "line:1: the refusal");
    gives(&g, "pcall(session, 'x')", "false\n\"the refusal\"\n");
    g.code = BR_E_CANCELED; /* nothing swallows that */
    fails(&g, "pcall(session, 'x') x = 'went on'", "it was interrupted");
    fails(&g, "x", "is not there");
    g.code = BR_OK;
    static const char *const nonsense[] = {"{",  "{\"a\":1,\"a\":2}", "\xff", "1 2",
                                           "\n", "{}\n\n{}"};
    for (size_t i = 0; i < BR_ARRAY_LEN(nonsense); i++) {
        data(&g, nonsense[i]);
        fails(&g, "#sessions", "the snapshot is not understood");
    }
    assert_int_equal(end(&g), 0);
}

/* More than fits into the state is an error, and the next line works. */
static void test_huge_snapshot(void **state)
{
    (void)state;
    struct inspector g;
    begin(&g);
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8u << 20);
    /* many tables in few bytes */
    while (b.len < (6u << 20)) {
        br_buf_printf(&b, "[");
        for (int i = 0; i < 10000; i++)
            br_buf_printf(&b, "[],");
        br_buf_printf(&b, "0]\n");
    }
    g.data = (char *)b.data;
    g.data_len = b.len;
    fails(&g, "#sessions", "memory");
    gives(&g, "1", "1\n");
    br_buf_reset(&b);
    for (int i = 0; i < 5000; i++)
        br_buf_printf(&b, "{\"row\":%d,\"text\":\"%0*d\"}\n", i, 1000, i);
    g.data = (char *)b.data;
    g.data_len = b.len;
    gives(&g, "#sessions, sessions[5000].row", "5000\n4999\n");
    gives(&g, "count(sessions, function(s) return #s.text == 1000 end)", "5000\n");
    assert_int_equal(end(&g), 0);
}

static void test_names(void **state)
{
    (void)state;
    struct inspector g;
    begin(&g);
    data(&g, "{\"runId\":\"run_1\",\"status\":\"x\",\"deep\":{\"er\":1}}\n");
    gives(&g, "mine = { alpha = 1, also = 2 }", "");
    static const struct {
        const char *text, *want; /* a name that must be offered; NULL: none at all */
    } rows[] = {{"sess", "sessions "}, {"sessions[1].ru", "runId "},  {"sessions[1].deep.e", "er "},
                {"mine.al", "also "},  {"string.fo", "format "},      {"mi", "mine "},
                {"nothing.x", NULL},   {"sessions[7].x", NULL},       {"mine.alpha.x", NULL},
                {"[[[.", NULL},        {"sessions[1].runId.x", NULL}, {"1.2.3", NULL}};
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
        br_buf_put_str(&o.buf, rows[i].text);
        g.answered = false;
        assert_int_equal(br_chan_send(&g.chan, BR_MSG_INSPECT_NAMES, 0, &o, NULL), 0);
        assert_int_equal(serve(&g, &g.answered), 0);
        const char *names = (char *)g.names.data;
        if (rows[i].want ? !strstr(names, rows[i].want) : g.names.len > 0)
            fail_msg("'%s' offers '%s'", rows[i].text, names);
    }
    assert_int_equal(end(&g), 0);
}

/* ---- what it cannot do ---- */

static void test_no_way_out(void **state)
{
    (void)state;
    struct inspector g;
    begin(&g);
    data(&g, "{\"secret\":\"seen\"}\n");
    gives(&g, "sessions[1].secret", "\"seen\"\n"); /* the control: reading works */
    static const char *const absent[] = {
        "io",      "os",         "debug",     "package",        "load",        "loadstring",
        "dofile",  "loadfile",   "rawset",    "coroutine",      "xpcall",      "_G",
        "getfenv", "setfenv",    "newproxy",  "collectgarbage", "string.dump", "debug.getregistry",
        "io.open", "os.execute", "os.getenv", "package.loadlib"};
    char code[256];
    for (size_t i = 0; i < BR_ARRAY_LEN(absent); i++) {
        snprintf(code, sizeof(code), "pcall(function() return %s end)", absent[i]);
        eval(&g, code);
        if (g.status != 0 || strncmp((char *)g.result.data, "false\n", 6) != 0)
            fail_msg("%s is there: %s", absent[i], (char *)g.result.data);
    }
    static const struct {
        const char *code, *says;
    } rows[] = {
        {"require 'io'", "there is no module 'io'"},
        {"require 'os'", "there is no module 'os'"},
        {"require '/etc/passwd'", "there is no module"},
        {"string.x = 1", "cannot be set"},
        {"string.format('%p', {})", "has no '%p'"},
        {"getmetatable('').__index = {}", ""},
        {"setmetatable({}, { __gc = print })", "cannot have '__gc'"},
        {"getmetatable(sessions).x = 1", ""},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++)
        fails(&g, rows[i].code, rows[i].says);
    /* what shadows a name of ours is the operator's own, and gone with a nil */
    gives(&g, "sessions = 7 return sessions", "7\n");
    gives(&g, "sessions = nil return #sessions", "1\n");
    assert_int_equal(end(&g), 0);
}

/* What the kernel says of the process: no descriptor but null and the channel, a filter, no uid. */
static void test_the_process_has_nothing(void **state)
{
    (void)state;
    struct inspector g;
    begin(&g);
    gives(&g, "1", "1\n");
    char path[64], line[256];
    snprintf(path, sizeof(path), "/proc/%d/status", (int)g.pid);
    BR_CLEANUP_FILE FILE *f = fopen(path, "re");
    assert_non_null(f);
    unsigned filter = 0, nnp = 0, uid = 0;
    unsigned long long caps = 1;
    while (fgets(line, sizeof(line), f)) {
        (void)sscanf(line, "Seccomp: %u", &filter);
        (void)sscanf(line, "NoNewPrivs: %u", &nnp);
        (void)sscanf(line, "Uid: %u", &uid);
        (void)sscanf(line, "CapPrm: %llx", &caps);
    }
    assert_int_equal(nnp, 1);
    assert_int_equal(caps, 0);
#ifndef BR_SANITIZED
    assert_int_equal(filter, 2);
#else
    (void)filter;
#endif
    assert_int_equal(uid, geteuid() == 0 ? BR_UID_SCRIPT : geteuid());
    assert_int_equal(end(&g), 0);
}

/* Loops, memory, output: each ends in an error, and the next line works. */
static void test_it_does_not_run_on(void **state)
{
    (void)state;
    struct inspector g;
    begin(&g);
    static const struct {
        const char *code, *says;
    } rows[] = {
        {"while true do end", "ran for more than"},
        {"while true do pcall(error) end", "ran for more than"},
        {"repeat local ok = pcall(function() while true do end end) until false",
         "ran for more than"},
        {"('a'):rep(30000):find(('a-'):rep(30) .. 'b')", ""},
        {"t = {} while true do t[#t + 1] = ('x'):rep(10000) .. #t end", "memory"},
        {"string.rep('x', 1e12)", "more than"},
        {"function f() return f() + 1 end f()", ""},
        {"while true do print('x') end", "more than 1024 KiB were printed"},
        {"for i = 1, 1e9 do print(('x'):rep(1000)) end", "more than 1024 KiB were printed"},
        {"table.unpack({}, 1, 200)", "there are 200 results"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        fails(&g, rows[i].code, rows[i].says);
        gives(&g, "t = nil return 1 + 1", "2\n");
    }
    assert_int_equal(end(&g), 0);
}

static void test_interrupted(void **state)
{
    (void)state;
    struct inspector g;
    begin(&g);
    data(&g, "{}\n");
    gives(&g, "x = 1", "");
    /* while the client reads for it, and while it runs */
    g.interrupt = true;
    fails(&g, "x = #sessions", "it was interrupted");
    fails(&g, "pcall(function() x = #sessions end) x = 2", "it was interrupted");
    fails(&g, "pcall(function() local a = #sessions end) while true do end", "it was interrupted");
    g.interrupt = false;
    gives(&g, "x, #sessions", "1\n1\n");
    /* one that comes between two lines changes nothing */
    assert_int_equal(kill(g.pid, SIGINT), 0);
    gives(&g, "x", "1\n");
    assert_int_equal(end(&g), 0);
}

/* ---- a client that breaks the protocol ---- */

static void test_protocol(void **state)
{
    (void)state;
    struct inspector g;
    int status;
    /* a snapshot that nobody asked for */
    begin(&g);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, 0);
    br_buf_put_str(&o.buf, "");
    br_out_blob(&o, "{}", 2);
    assert_int_equal(br_chan_send(&g.chan, BR_MSG_INSPECT_DATA, 0, &o, NULL), 0);
    g.answered = false;
    assert_int_equal(serve(&g, &g.answered), -BR_E_PEER_GONE);
    status = end(&g);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0);
    /* a message of another purpose */
    begin(&g);
    assert_int_equal(br_chan_send(&g.chan, BR_MSG_SCRIPT_CONFIG, 0, &o, NULL), 0);
    g.answered = false;
    assert_int_equal(serve(&g, &g.answered), -BR_E_PEER_GONE);
    status = end(&g);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0);
    /* a client that goes away while it is asked */
    begin(&g);
    BR_CLEANUP_OUT struct br_out e = BR_OUT_INIT;
    br_buf_put_u8(&e.buf, 0);
    for (int i = 0; i < 3; i++)
        br_buf_put_u32(&e.buf, 10);
    br_buf_put_str(&e.buf, "line");
    br_buf_put_u32(&e.buf, 1);
    br_out_blob(&e, "pcall(session, 'x') while true do end", 37);
    assert_int_equal(br_chan_send(&g.chan, BR_MSG_INSPECT_EVAL, 0, &e, NULL), 0);
    struct pollfd p = {.fd = g.chan.fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, WAIT_MS), 1); /* it asks */
    uint64_t before = br_now_us();
    (void)end(&g);
    assert_true(br_now_us() - before < 60000000u); /* it does not stay in the loop */
    /* code that is too long, and just not: 256 KiB */
    begin(&g);
    BR_CLEANUP_BUF struct br_buf code = BR_BUF_INIT(1u << 20);
    br_buf_printf(&code, "'");
    while (code.len < 256u * 1024 - 1)
        br_buf_put_u8(&code, 'x');
    br_buf_printf(&code, "'");
    assert_int_equal(eval_with(&g, 0, 100, (char *)code.data, code.len), 0);
    assert_int_equal(g.status, 0);
    br_buf_put_u8(&code, ' ');
    assert_int_equal(eval_with(&g, 0, 100, (char *)code.data, code.len), -BR_E_PEER_GONE);
    (void)end(&g);
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_more_lines_and_json),
        cmocka_unit_test(test_snapshots),
        cmocka_unit_test(test_huge_snapshot),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_no_way_out),
        cmocka_unit_test(test_the_process_has_nothing),
        cmocka_unit_test(test_it_does_not_run_on),
        cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_protocol),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
