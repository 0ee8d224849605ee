/*
 * EXEC in this process, which is not pid 1: results, environment, descriptors, every limit at N and
 * N + 1, time-out, abort, and children that hold the pipes. What only a pid 1 can do is in
 * test_init_serve.c.
 */
#include "base/test_tools.h"
#include "init/test_init.h"

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

static struct result sh(const char *script, uint32_t timeout_ms, uint64_t output_max)
{
    struct br_init_call c;
    call_init(&c, BR_OP_EXEC, "");
    call_sh(&c, script);
    if (timeout_ms)
        c.timeout_ms = timeout_ms;
    if (output_max)
        c.output_max = output_max;
    return run_op(&in, br_init_exec, &c);
}

static struct result words(const char *const *argv)
{
    struct br_init_call c;
    call_init(&c, BR_OP_EXEC, "");
    call_argv(&c, argv);
    return run_op(&in, br_init_exec, &c);
}

static void exit_codes_and_signals(void **state)
{
    (void)state;
    static const int codes[] = {0, 1, 77, 255};
    for (unsigned i = 0; i < BR_ARRAY_LEN(codes); i++) {
        char script[32];
        snprintf(script, sizeof(script), "exit %d", codes[i]);
        struct result r = sh(script, 0, 0);
        assert_int_equal(res_int(&r, "exitCode"), codes[i]);
        assert_false(res_bool(&r, "timedOut"));
        assert_false(res_bool(&r, "truncated"));
        result_free(&r);
    }
    struct result r = sh("kill -SEGV $$", 0, 0);
    assert_int_equal(res_int(&r, "signal"), SIGSEGV);
    assert_null(json_object_get(r.json, "exitCode"));
    result_free(&r);
    /* signals that this process ignores are not ignored in the command */
    signal(SIGPIPE, SIG_IGN);
    r = sh("kill -PIPE $$; echo survived", 0, 0);
    assert_int_equal(res_int(&r, "signal"), SIGPIPE);
    result_free(&r);
}

static void commands_that_cannot_start(void **state)
{
    (void)state;
    struct result r = words((const char *[]){"no-such-command-here", NULL});
    assert_int_equal(r.code, 0);
    assert_int_equal(res_int(&r, "exitCode"), 127);
    assert_non_null(strstr(res_str(&r, "stderr"), "'no-such-command-here' was not started"));
    result_free(&r);
    r = words((const char *[]){"./missing", NULL});
    assert_int_equal(res_int(&r, "exitCode"), 127);
    result_free(&r);
    r = words((const char *[]){"", NULL});
    assert_int_equal(res_int(&r, "exitCode"), 127);
    result_free(&r);
    ws_puts(&ws, "plain", "echo hi\n");
    r = words((const char *[]){"./plain", NULL});
    assert_int_equal(res_int(&r, "exitCode"), 126);
    result_free(&r);
    assert_int_equal(fchmodat(ws.fd, "plain", 0755, 0), 0);
    r = words((const char *[]){"./plain", NULL}); /* no interpreter line: not guessed */
    assert_int_equal(res_int(&r, "exitCode"), 126);
    result_free(&r);
    ws_puts(&ws, "bad", "#!/no/such/interpreter\n");
    assert_int_equal(fchmodat(ws.fd, "bad", 0755, 0), 0);
    r = words((const char *[]){"./bad", NULL});
    assert_int_equal(res_int(&r, "exitCode"), 127);
    result_free(&r);
    r = words((const char *[]){"/", NULL});
    assert_int_equal(res_int(&r, "exitCode"), 126);
    result_free(&r);
    ws_puts(&ws, "good", "#!/bin/sh\necho ran \"$1\"\n");
    assert_int_equal(fchmodat(ws.fd, "good", 0755, 0), 0);
    r = words((const char *[]){"./good", "a  b", NULL}); /* the control */
    assert_string_equal(res_str(&r, "stdout"), "ran a  b\n");
    result_free(&r);
}

static void bad_arguments_start_nothing(void **state)
{
    (void)state;
    struct br_init_call c;
    for (unsigned i = 0; i < 6; i++) {
        static const char *const why[] = {"1 to 256 words", "time limit",   "time limit",
                                          "output limit",   "output limit", "'missing'"};
        call_init(&c, BR_OP_EXEC, i == 5 ? "missing" : "");
        if (i != 0)
            call_sh(&c, "touch ran");
        c.timeout_ms = i == 1 ? 0 : i == 2 ? BR_INIT_TIMEOUT_MS_MAX + 1 : 20000;
        c.output_max = i == 3 ? 0 : i == 4 ? BR_EXEC_OUTPUT_MAX + 1 : 1024;
        struct result r = run_op(&in, br_init_exec, &c);
        assert_refused(&r,
                       i == 0   ? BR_E_INVALID_ARGUMENTS
                       : i == 5 ? BR_E_NOT_FOUND
                                : BR_E_LIMIT_EXCEEDED,
                       why[i]);
        assert_false(ws_has(&ws, "ran"));
    }
    assert_int_equal(symlinkat("/tmp", ws.fd, "link"), 0);
    static const char *const cwds[] = {"link", "..", "/tmp"};
    for (unsigned i = 0; i < 3; i++) {
        call_init(&c, BR_OP_EXEC, cwds[i]);
        call_sh(&c, "touch ran");
        struct result r = run_op(&in, br_init_exec, &c);
        assert_refused(&r, i ? BR_E_INVALID_ARGUMENTS : BR_E_DENIED, "");
    }
    char *longest = malloc(200001); /* MAX_ARG_STRLEN is 128 KiB */
    memset(longest, 'x', 200000);
    longest[200000] = 0;
    struct result r = words((const char *[]){"true", longest, NULL});
    free(longest);
    assert_refused(&r, BR_E_LIMIT_EXCEEDED, "too long");
    /* the limits themselves are fine */
    call_init(&c, BR_OP_EXEC, "");
    call_sh(&c, "touch ran");
    c.timeout_ms = BR_INIT_TIMEOUT_MS_MAX;
    c.output_max = BR_EXEC_OUTPUT_MAX;
    r = run_op(&in, br_init_exec, &c);
    assert_int_equal(r.code, 0);
    result_free(&r);
    assert_true(ws_has(&ws, "ran"));
}

static void environment_and_descriptors_are_clean(void **state)
{
    (void)state;
    setenv("SECRET_OF_HOST", "1", 1);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int leak = dup2(null, 77); /* not close-on-exec: a plain child would have it */
    close(null);
    assert_int_equal(system("test -e /proc/self/fd/77"), 0);
    struct result r = words((const char *[]){"env", NULL});
    assert_string_equal(res_str(&r, "stdout"),
                        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
                        "HOME=/home/agent\nUSER=agent\nLANG=C.UTF-8\nTERM=dumb\nTMPDIR=/tmp\n");
    result_free(&r);
    r = words((const char *[]){"ls", "/proc/self/fd", NULL});
    assert_string_equal(res_str(&r, "stdout"), "0\n1\n2\n3\n"); /* 3 is the directory itself */
    result_free(&r);
    close(leak);
    /* a session of its own, without input: fields 1 (pid) and 6 (session) of stat */
    r = sh("cat; read -r pid x x x x sid x < /proc/self/stat; test $pid = $sid && echo own", 0, 0);
    assert_string_equal(res_str(&r, "stdout"), "own\n");
    result_free(&r);
    r = sh("grep -E '^Sig(Blk|Ign)' /proc/self/status", 0, 0);
    /* posix_spawn(3) of older glibc leaves its own two (32, 33) ignored; it sets them up
     * again itself */
    if (strcmp(res_str(&r, "stdout"), "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n") !=
        0)
        assert_string_equal(res_str(&r, "stdout"),
                            "SigBlk:\t0000000000000000\nSigIgn:\t0000000180000000\n");
    result_free(&r);
}

static void stdin_and_cwd(void **state)
{
    (void)state;
    struct br_init_call c;
    assert_int_equal(mkdirat(ws.fd, "sub", 0755), 0);
    call_init(&c, BR_OP_EXEC, "sub");
    call_sh(&c, "pwd; cat");
    struct br_buf big = BR_BUF_INIT(BR_BLOB_MAX);
    for (unsigned i = 0; i < 20000; i++)
        br_buf_put(&big, "x\n", 2);
    br_buf_put(&c.text2, big.data, big.len);
    struct result r = run_op(&in, br_init_exec, &c);
    char want[128];
    snprintf(want, sizeof(want), "%s/sub\nx\nx\n", ws.dir);
    assert_int_equal(strncmp(res_str(&r, "stdout"), want, strlen(want)), 0);
    assert_int_equal(res_int(&r, "stdoutBytes"), strlen(ws.dir) + 5 + big.len);
    result_free(&r);
    br_buf_free(&big);
}

static void output_ceiling(void **state)
{
    (void)state;
    struct result r = sh("printf 0123456789", 0, 10);
    assert_string_equal(res_str(&r, "stdout"), "0123456789");
    assert_false(res_bool(&r, "truncated"));
    result_free(&r);
    r = sh("printf 0123456789A", 0, 10);
    assert_true(res_bool(&r, "truncated"));
    assert_int_equal(res_int(&r, "stdoutBytes"), 11);
    assert_string_equal(res_str(&r, "stdout"), "01234\n[... 1 bytes were not kept ...]\n6789A");
    result_free(&r);
    r = sh("printf 01234; printf abcde >&2", 0, 10); /* shared, exactly full */
    assert_string_equal(res_str(&r, "stdout"), "01234");
    assert_string_equal(res_str(&r, "stderr"), "abcde");
    assert_false(res_bool(&r, "truncated"));
    result_free(&r);
    r = sh("printf 012345678; printf ab >&2", 0, 10); /* one too many */
    assert_true(res_bool(&r, "truncated"));
    assert_string_equal(res_str(&r, "stderr"), "ab");
    assert_string_equal(res_str(&r, "stdout"), "0123\n[... 1 bytes were not kept ...]\n5678");
    result_free(&r);
    r = sh("yes 0123456789abcde | head -c 10000000; echo the end", 0, 0);
    assert_int_equal(res_int(&r, "exitCode"), 0);
    assert_int_equal(res_int(&r, "stdoutBytes"), 10000008);
    const char *text = res_str(&r, "stdout");
    assert_in_range(strlen(text), BR_EXEC_OUTPUT_MAX, BR_EXEC_OUTPUT_MAX + 100);
    assert_int_equal(strncmp(text, "0123456789abcde\n0123", 20), 0);
    assert_string_equal(text + strlen(text) - 9, "\nthe end\n");
    result_free(&r);
    r = sh("printf x", 0, 1);
    assert_string_equal(res_str(&r, "stdout"), "x");
    result_free(&r);
}

static void output_that_is_not_text(void **state)
{
    (void)state;
    struct result r = sh("printf 'a\\377b\\000c\\033[31m'", 0, 0);
    assert_string_equal(res_str(&r, "stdout"), "a\xef\xbf\xbd"
                                               "b\xef\xbf\xbd"
                                               "c\x1b[31m");
    assert_int_equal(res_int(&r, "stdoutBytes"), 10);
    result_free(&r);
    /* 64 KiB of control characters would be six times as much JSON: less is shown, and said */
    r = sh("head -c 65536 /dev/zero | tr '\\0' '\\1'", 0, 0);
    assert_int_equal(r.code, 0);
    assert_int_equal(res_int(&r, "stdoutBytes"), 65536);
    assert_true(res_bool(&r, "truncated"));
    assert_true(strlen(res_str(&r, "stdout")) > 15000);
    result_free(&r);
    /* cut between characters */
    r = sh("i=0; while [ $i -lt 40 ]; do printf '\\342\\202\\254'; i=$((i+1)); done", 0, 50);
    assert_true(res_bool(&r, "truncated"));
    assert_null(strstr(res_str(&r, "stdout"), "\xef\xbf\xbd"));
    result_free(&r);
}

static uint64_t now_ms(void)
{
    return br_now_us() / 1000;
}

static void runs_out_of_time(void **state)
{
    (void)state;
    uint64_t start = now_ms();
    struct result r = sh("echo begun; sleep 30; touch late", 300, 0);
    assert_in_range(now_ms() - start, 290, 20000);
    assert_int_equal(r.code, 0);
    assert_true(res_bool(&r, "timedOut"));
    assert_int_equal(res_int(&r, "signal"), SIGKILL);
    assert_string_equal(res_str(&r, "stdout"), "begun\n");
    result_free(&r);
    r = sh("trap '' TERM INT HUP; while :; do :; done", 200, 0); /* nothing can be ignored */
    assert_true(res_bool(&r, "timedOut"));
    result_free(&r);
}

static void children_that_hold_the_pipes_do_not_hold_us(void **state)
{
    (void)state;
    uint64_t start = now_ms();
    struct result r = sh("sleep 30 & echo $!; exit 4", 0, 0);
    assert_in_range(now_ms() - start, 0, 20000);
    assert_int_equal(res_int(&r, "exitCode"), 4);
    pid_t left = (pid_t)strtol(res_str(&r, "stdout"), NULL, 10);
    result_free(&r);
    assert_true(left > 1);
    for (unsigned i = 0; i < 100 && kill(left, 0) == 0; i++) {
        char path[64], state_line[256] = "";
        snprintf(path, sizeof(path), "/proc/%d/stat", (int)left);
        int fd = open(path, O_RDONLY);
        if (fd >= 0 && read(fd, state_line, sizeof(state_line) - 1) > 0 &&
            strstr(state_line, ") Z"))
            i = 100; /* killed, and somebody else's to reap */
        br_close(&fd);
        sleep_ms(10);
        if (i == 99)
            fail_msg("the child of the command still runs");
    }
}

/* From another process, after a while. */
static pid_t send_later(unsigned ms, enum br_msg_type type)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct br_chan c;
        br_chan_init(&c, far_end, "init", NULL, 0, NULL);
        sleep_ms(ms);
        _exit(br_chan_send(&c, type, 0, NULL, NULL) == 0 ? 0 : 1);
    }
    return pid;
}

static void abort_kills_it(void **state)
{
    (void)state;
    int status;
    uint64_t start = now_ms();
    pid_t pid = send_later(200, BR_MSG_INIT_ABORT);
    struct result r = sh("echo begun; sleep 30; touch late", 0, 0);
    assert_in_range(now_ms() - start, 150, 20000);
    assert_string_equal(res_str(&r, "stdout"), "begun\n");
    assert_refused(&r, BR_E_CANCELED, "aborted");
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_false(ws_has(&ws, "late"));
    assert_int_equal(in.fatal, 0);
    /* an abort that comes late, when nothing runs, is for nobody */
    br_init_exec_abort(&in);
    r = sh("echo fine", 0, 0);
    assert_int_equal(r.code, 0);
    result_free(&r);
}

static void a_gone_or_wrong_peer_kills_it(void **state)
{
    (void)state;
    int status;
    uint64_t start = now_ms();
    pid_t pid = send_later(200, BR_MSG_INIT_READY); /* not one that may come */
    struct result r = {.code = 0};
    struct br_init_call c;
    call_init(&c, BR_OP_EXEC, "");
    call_sh(&c, "sleep 30; touch late");
    struct br_buf out = BR_BUF_INIT(BR_TOOL_RESULT_MAX);
    r.code = -br_init_exec(&in, &c, &out, &r.err);
    assert_int_equal(r.code, BR_E_PEER_PROTOCOL);
    assert_int_equal(in.fatal, -BR_E_PEER_PROTOCOL);
    assert_in_range(now_ms() - start, 150, 20000);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    br_init_call_free(&c);
    br_buf_free(&out);
    assert_false(ws_has(&ws, "late"));
}

static void nothing_leaks(void **state)
{
    (void)state;
    struct result r = sh("true", 0, 0);
    result_free(&r);
    unsigned before = test_open_fds();
    for (unsigned i = 0; i < 20; i++) {
        r = sh(i % 2 ? "true" : "exec no-such-thing", 0, 0);
        result_free(&r);
        r = words((const char *[]){"no-such-thing", NULL});
        result_free(&r);
    }
    assert_int_equal(test_open_fds(), before);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child, no zombie */
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(exit_codes_and_signals),
        T(commands_that_cannot_start),
        T(bad_arguments_start_nothing),
        T(environment_and_descriptors_are_clean),
        T(stdin_and_cwd),
        T(output_ceiling),
        T(output_that_is_not_text),
        T(runs_out_of_time),
        T(children_that_hold_the_pipes_do_not_hold_us),
        T(abort_kills_it),
        T(a_gone_or_wrong_peer_kills_it),
        T(nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
