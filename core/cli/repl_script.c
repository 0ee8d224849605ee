/*
 * The Lua of 'bridle repl' is evaluated in a bridle-script of purpose inspect, which this starts:
 * in a session of its own, with no descriptor but a channel, and with nothing in its environment.
 * It enters its role (own uid if root, no capabilities, seccomp, limits) before it reads any code.
 * What it says is text to be shown and names of snapshots; neither is trusted.
 *
 * SIGINT is passed on once and stops what is evaluated; a process that does not heed it is killed,
 * and what lines had set is gone with it.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/repl.h"

#define CHANNEL_FD 3
/* CPU time is limited inside; this is for a process that is stuck without using any. */
#define SILENT_US (60u * 1000 * 1000)
/* How long a process may take to heed SIGINT. */
#define HEED_US (2u * 1000 * 1000)
#define NAMES_MAX (64u * 1024)

volatile sig_atomic_t repl_interrupted;

static int on_ready(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct repl_script *s = ctx;
    char name[64], text[BR_ERR_TEXT_MAX];
    (void)c;
    br_rd_str(&m->rd, name, sizeof(name));
    br_rd_str(&m->rd, text, sizeof(text));
    if (br_rd_done(&m->rd) < 0 || strcmp(name, br_code_name(BR_OK)) != 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridle-script' is not ready: %s", text);
    s->ready = true;
    return 0;
}

/* bridle-script prints half of this and then says so; of one that goes on nothing more is shown. */
#define PRINT_MAX (2u << 20)

static int on_print(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct repl_script *s = ctx;
    (void)c;
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(0);
    int r = br_msg_blob(m, BR_BLOB_MAX, &text, err);
    if (r == 0)
        r = br_rd_done(&m->rd);
    s->printed += text.len;
    if (r == 0 && s->print && s->printed <= PRINT_MAX)
        s->print(s->ctx, (const char *)text.data, text.len);
    return r;
}

static int on_want(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct repl_script *s = ctx;
    char what[16], id[BR_NAME_MAX], type[64];
    struct br_err why = {.code = BR_OK};
    struct repl_data d;
    br_rd_str(&m->rd, what, sizeof(what));
    br_rd_str(&m->rd, id, sizeof(id));
    br_rd_str(&m->rd, type, sizeof(type));
    struct repl_query q = {.what = what, .id = id, .type = type};
    q.from = br_rd_u64(&m->rd);
    q.to = br_rd_u64(&m->rd);
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridle-script' asked for nonsense");
    int r = repl_data_get(&q, &d, &why);
    if (r < 0 && why.code == BR_E_CANCELED)
        repl_interrupted = 1; /* the signal came while bridled was asked */
    if (r == 0 && d.left_out && s->left_out)
        s->left_out(s->ctx, &q, &d);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, r < 0 ? why.code : 0);
    br_buf_put_str(&o.buf, r < 0 ? why.text : "");
    br_out_blob(&o, d.lines.data, r < 0 ? 0 : d.lines.len);
    r = br_chan_send(c, BR_MSG_INSPECT_DATA, 0, &o, err);
    repl_data_free(&d);
    s->silent_since_us = br_now_us();
    return r;
}

static int on_done(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct repl_script *s = ctx;
    (void)c;
    s->status = br_rd_u8(&m->rd);
    uint32_t code = br_rd_u32(&m->rd);
    s->why.code = code < BR_CODE_COUNT_ ? (enum br_code)code : BR_E_INTERNAL;
    br_rd_str(&m->rd, s->why.text, sizeof(s->why.text));
    s->line = br_rd_u32(&m->rd);
    br_buf_free(&s->result);
    int r = br_msg_blob(m, BR_BLOB_MAX, &s->result, err);
    if (r < 0 || br_rd_done(&m->rd) < 0 || s->status > 2)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridle-script' sent a malformed answer");
    s->done = true;
    return 0;
}

static int on_named(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct repl_script *s = ctx;
    (void)c;
    br_buf_reset(&s->names);
    for (uint32_t n = br_rd_u32(&m->rd); n > 0 && !m->rd.failed; n--) {
        char name[64];
        br_rd_str(&m->rd, name, sizeof(name));
        br_buf_put(&s->names, name, strlen(name) + 1);
    }
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridle-script' sent malformed names");
    s->done = true;
    return 0;
}

static const struct br_msg_rule rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT | BR_ONCE, 8, BR_ERR_TEXT_MAX + 64, 0, 0, on_ready},
    {BR_MSG_INSPECT_PRINT, 0, 5, BR_MSG_MAX, 0, 1, on_print},
    {BR_MSG_INSPECT_WANT, 0, 28, BR_MSG_MAX, 0, 0, on_want},
    {BR_MSG_INSPECT_DONE, BR_ONCE, 18, BR_MSG_MAX, 0, 1, on_done},
    {BR_MSG_INSPECT_NAMED, BR_ONCE, 4, BR_MSG_MAX, 0, 0, on_named},
};

/* ---- start and end ---- */

/* In the child, after fork. The program is executed by descriptor: where root builds, the uid that
 * it gets may not reach its path. */
static _Noreturn void become_script(const char *path, int fd)
{
    char *const argv[] = {(char *)"bridle-script", NULL};
    char *env[2] = {NULL};
#ifdef BR_SANITIZED
    /* the leak checker needs a thread and ptrace, which the role has given up */
    env[0] = (char *)"ASAN_OPTIONS=detect_leaks=0";
#endif
    sigset_t none;
    (void)setsid(); /* Ctrl-C at the terminal is for the client */
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int ch = fcntl(fd, F_DUPFD_CLOEXEC, 10), bin = open(path, O_RDONLY | O_CLOEXEC);
    if (bin >= 0 && bin < 10) { /* out of the way of the low numbers */
        bin = fcntl(bin, F_DUPFD_CLOEXEC, 10);
    }
    if (null < 0 || ch < 0 || bin < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 ||
        dup2(ch, CHANNEL_FD) < 0)
        _exit(126);
#ifndef BR_SANITIZED
    if (dup2(null, 2) < 0) /* with a sanitizer, its reports are wanted */
        _exit(126);
#endif
    br_close_from(4, &bin, 1);
    if (geteuid() == 0 &&
        (setgroups(0, NULL) < 0 || setresgid(BR_UID_SCRIPT, BR_UID_SCRIPT, BR_UID_SCRIPT) < 0 ||
         setresuid(BR_UID_SCRIPT, BR_UID_SCRIPT, BR_UID_SCRIPT) < 0))
        _exit(126);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)signal(SIGINT, SIG_IGN); /* until it can handle it */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    fexecve(bin, argv, env);
    _exit(127);
}

void repl_script_init(struct repl_script *s)
{
    *s = (struct repl_script){.names = BR_BUF_INIT(NAMES_MAX), .result = BR_BUF_INIT(0)};
    s->chan.fd = -1;
}

static void stop(struct repl_script *s)
{
    br_chan_close(&s->chan);
    if (s->pid <= 0)
        return;
    (void)kill(s->pid, SIGKILL);
    while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    s->pid = 0;
    s->ready = false;
}

void repl_script_close(struct repl_script *s)
{
    stop(s);
    br_buf_free(&s->result);
    br_buf_free(&s->names);
}

/* Serve the process until *done; what ends it before that is an error, and ends the process. */
static int serve(struct repl_script *s, const bool *done, struct br_err *err)
{
    uint64_t heed_us = 0;
    s->silent_since_us = br_now_us();
    while (!*done) {
        struct pollfd p = {.fd = s->chan.fd, .events = POLLIN};
        int n = poll(&p, 1, 50);
        uint64_t now = br_now_us();
        if (repl_interrupted && s->ready && !heed_us) {
            heed_us = now + HEED_US;
            (void)kill(s->pid, SIGINT);
        }
        if (heed_us &&
            now > heed_us + (n > 0 ? HEED_US : 0)) /* also one that never stops talking */
            return br_err_set(err, BR_E_CANCELED,
                              "the evaluation did not stop and was killed; what earlier lines had "
                              "set is forgotten");
        if (now - s->silent_since_us > SILENT_US && n <= 0)
            return br_err_set(err, BR_E_TIMEOUT,
                              "the evaluation was silent for too long and was killed; what earlier "
                              "lines had set is forgotten");
        if (n <= 0)
            continue;
        int r = br_chan_dispatch(&s->chan, err);
        if (r == -BR_E_PEER_GONE)
            return br_err_set(err, BR_E_PROGRAM_DIED,
                              s->ready ? "the evaluation could not be stopped in any other way and "
                                         "its process has ended; what earlier lines had set is "
                                         "forgotten"
                                       : "'bridle-script' ended before it was ready; nothing was "
                                         "evaluated");
        if (r < 0)
            return r;
    }
    return 0;
}

static int start(struct repl_script *s, struct br_err *err)
{
    char path[BR_PATH_MAX];
    int ends[2], r = br_cli_program(path, "bridle-script", err);
    if (r < 0)
        return r;
    if (br_chan_pair(ends) < 0)
        return br_err_errno(err, BR_E_IO, "no channel for 'bridle-script'");
    br_chan_init(&s->chan, ends[0], "bridle-script", rules, BR_ARRAY_LEN(rules), s);
    s->ready = false;
    s->pid = fork();
    if (s->pid == 0)
        become_script(path, ends[1]);
    br_close(&ends[1]);
    if (s->pid < 0) {
        s->pid = 0;
        br_chan_close(&s->chan);
        return br_err_errno(err, BR_E_IO, "'%s' could not be started", path);
    }
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u8(&o.buf, BR_SCRIPT_INSPECT);
    r = br_chan_send(&s->chan, BR_MSG_SCRIPT_START, 0, &o, err);
    if (r == 0)
        r = serve(s, &s->ready, err);
    if (r < 0) {
        stop(s);
        return r;
    }
    br_chan_permit(&s->chan, BR_MSG_INSPECT_PRINT);
    br_chan_permit(&s->chan, BR_MSG_INSPECT_WANT);
    return 0;
}

/* Send a question, and serve until its answer came. */
static int converse(struct repl_script *s, enum br_msg_type type, enum br_msg_type answer,
                    const struct br_out *o, struct br_err *err)
{
    int r = s->pid ? 0 : start(s, err);
    if (r < 0)
        return r;
    s->done = false;
    s->printed = 0;
    br_chan_permit(&s->chan, answer);
    r = br_chan_send(&s->chan, type, 0, o, err);
    if (r == 0)
        r = serve(s, &s->done, err);
    br_chan_forbid(&s->chan, answer);
    if (r < 0)
        stop(s);
    return r;
}

int repl_script_eval(struct repl_script *s, unsigned flags, const struct repl_limits *limits,
                     const char *chunk, uint32_t line, const char *code, size_t n,
                     struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    s->why = (struct br_err){.code = BR_OK};
    if (n > 4 * REPL_LINE_MAX)
        return br_err_set(err, BR_E_USAGE,
                          "the code is longer than %u bytes; nothing was evaluated",
                          4 * REPL_LINE_MAX);
    br_buf_put_u8(&o.buf, (uint8_t)flags);
    br_buf_put_u32(&o.buf, limits->depth);
    br_buf_put_u32(&o.buf, limits->items);
    br_buf_put_u32(&o.buf, limits->bytes);
    br_buf_put_str(&o.buf, chunk);
    br_buf_put_u32(&o.buf, line);
    br_out_blob(&o, code, n);
    return converse(s, BR_MSG_INSPECT_EVAL, BR_MSG_INSPECT_DONE, &o, err);
}

int repl_script_names(struct repl_script *s, const char *text, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_reset(&s->names);
    br_buf_put_str(&o.buf, text);
    return converse(s, BR_MSG_INSPECT_NAMES, BR_MSG_INSPECT_NAMED, &o, err);
}
