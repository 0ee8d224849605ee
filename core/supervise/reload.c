/*
 * Replacing the bundle of a standing bridled. The candidate is read once, and its bytes go to a
 * fresh `bridled --private` in mode selftest, whose own bridle-session and bridle-script compile it
 * and decide the probes: this program parses nothing of it, and whatever a bundle does to those
 * processes (hang, eat memory, die) happens to them. Only the answer "good" puts the very same
 * bytes in the place of the current ones; everything else, silence included, leaves them. One at a
 * time. Event-driven: sessions go on taking the current bundle meanwhile.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "supervise/standing.h"

/* Of the whole; a compile alone has 10 s, a question to a check 5. */
#define TEST_TIMEOUT_US (45u * 1000000u)
#define TEST_WALL_S 30u
#define DOCUMENT_INLINE_MAX 4096u

static int on_test_started(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct standing *st = ctx;
    (void)c, (void)err;
    br_close(&st->next.session);
    st->next.session = br_msg_take_fd(m); /* a session whose client has gone would end */
    return 0;
}

static int on_tested(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct candidate *n = &((struct standing *)ctx)->next;
    br_rd_str(&m->rd, n->row.table, sizeof(n->row.table));
    n->row.rules = br_rd_u32(&m->rd);
    n->row.warnings = br_rd_u32(&m->rd);
    n->row.probes = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, n->file, sizeof(n->file));
    n->line = br_rd_u32(&m->rd);
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'%s' sent a malformed CTL_TESTED", c->peer);
    n->tested = n->row.table[0] != 0;
    return 0;
}

static int on_test_ended(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct candidate *n = &((struct standing *)ctx)->next;
    uint32_t code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, n->why.text, sizeof(n->why.text));
    (void)br_rd_u32(&m->rd);
    if (br_rd_done(&m->rd) < 0 || code >= BR_CODE_COUNT_)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'%s' sent a malformed CTL_ENDED", c->peer);
    n->code = -(int)code;
    n->over = true;
    return 0;
}

static const struct br_msg_rule test_rules[] = {
    {BR_MSG_CTL_STARTED, BR_PERMIT | BR_ONCE, 9, 2048, 1, 2, on_test_started},
    {BR_MSG_CTL_TESTED, BR_PERMIT | BR_ONCE, 24, 4096, 0, 0, on_tested},
    {BR_MSG_CTL_ENDED, BR_PERMIT | BR_ONCE, 12, 4096, 0, 0, on_test_ended},
};

/* ---- the end ---- */

static void remember(struct br_policy_row rows[STANDING_ROWS_MAX], unsigned *n,
                     const struct br_policy_row *row)
{
    if (*n == STANDING_ROWS_MAX)
        memmove(rows, rows + 1, --*n * sizeof(*rows));
    rows[(*n)++] = *row;
}

static const char *shown(const struct br_policy_row *row)
{
    return row->path[0] ? row->path : "default (built in)";
}

/* Name it, where the fault is, and what stays; remember it. */
static int refuse(struct standing *st, struct br_policy_row *row, const char *place, int code,
                  struct br_err *err)
{
    char stays[64] = "", why[BR_ERR_TEXT_MAX];
    bool said = !*place || strstr(err->text, place);
    snprintf(why, sizeof(why), "%s", err->text);
    if (st->current.pin.generation)
        snprintf(stays, sizeof(stays), "; generation %llu stays",
                 (unsigned long long)st->current.pin.generation);
    if (strncmp(why, "the policy '", 12) == 0)
        br_err_set(err, (enum br_code) - code, "%.940s%s", why, stays);
    else
        br_err_set(err, (enum br_code) - code, "the policy '%.256s' was refused: %s%s%.640s%s",
                   shown(row), said ? "" : place, said ? "" : ": ", why, stays);
    row->kind = BR_POLICY_REFUSED;
    row->code = (uint32_t)-code;
    row->pin.generation = st->current.pin.generation; /* that it met */
    if (!row->pin.generation)
        row->pin.by = 0;
    snprintf(row->text, sizeof(row->text), "%s", err->text);
    remember(st->refused, &st->nrefused, row);
    return code;
}

static void install(struct standing *st)
{
    struct candidate *n = &st->next;
    uint64_t generation = st->current.pin.generation + 1;
    if (st->current.pin.generation) {
        st->current.kind = BR_POLICY_EARLIER;
        remember(st->earlier, &st->nearlier, &st->current);
    }
    st->current = n->row;
    st->current.kind = BR_POLICY_CURRENT;
    st->current.pin.generation = generation;
    st->current.pin.at_us = br_now_wall_us();
    br_buf_free(&st->text);
    st->text = n->text;
    br_buf_init(&n->text, BR_POLICY_MAX);
}

/* The process that tested it is gone: what it said counts, if it said everything. */
static void finish(struct standing *st, int status)
{
    struct candidate *n = &st->next;
    char place[BR_NAME_MAX + 16] = "";
    if (!n->over)
        n->code = br_err_set(&n->why, BR_E_PROGRAM_DIED,
                             WIFSIGNALED(status) ? "the process that tested it was killed"
                                                 : "the process that tested it ended too early");
    else if (n->code == 0 && !n->tested)
        n->code = br_err_set(&n->why, BR_E_INTERNAL, "its test said nothing");
    if (n->code == 0 && st->draining)
        n->code = br_err_set(&n->why, BR_E_CANCELED, "bridled is ending");
    const char *slash = strrchr(n->file, '/');
    if (n->line) /* as the compiler writes it */
        snprintf(place, sizeof(place), "%s:%u", slash ? slash + 1 : n->file, n->line);
    br_loop_timer_cancel(st->loop, &n->timer);
    br_close(&n->session);
    n->on = false;
    if (n->code == 0)
        install(st);
    else
        (void)refuse(st, &n->row, place, n->code, &n->why);
    br_buf_free(&n->text);
    reload_over(st, n->code, &n->why);
}

static int on_test_end(void *ctx, int fd, short revents, struct br_err *err)
{
    struct standing *st = ctx;
    struct candidate *n = &st->next;
    int status = 0;
    (void)revents, (void)err;
    while (n->control.fd >= 0) { /* what it said before it ended counts */
        struct pollfd p = {.fd = n->control.fd, .events = POLLIN};
        if (poll(&p, 1, 0) <= 0 || !(p.revents & POLLIN) || br_chan_dispatch(&n->control, NULL) < 0)
            break;
    }
    if (n->control.fd >= 0)
        br_loop_unwatch_chan(st->loop, &n->control);
    br_chan_close(&n->control);
    br_loop_unwatch(st->loop, fd);
    br_close(&n->pidfd);
    while (waitpid(n->pid, &status, 0) < 0 && errno == EINTR)
        ;
    n->pid = 0;
    finish(st, status);
    return 0;
}

/* It ends by itself, or is made to; either way its end is heard of. */
static int on_test_control_end(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct standing *st = ctx;
    (void)err;
    br_chan_close(c);
    if (code != -BR_E_PEER_GONE && st->next.pid > 0)
        (void)syscall(SYS_pidfd_send_signal, st->next.pidfd, SIGKILL, NULL, 0);
    return 0;
}

static int on_test_timeout(void *ctx, struct br_err *err)
{
    struct candidate *n = &((struct standing *)ctx)->next;
    (void)err;
    n->timer = 0;
    if (!n->over) {
        n->code = br_err_set(&n->why, BR_E_TIMEOUT, "its test did not end within %u seconds",
                             TEST_TIMEOUT_US / 1000000u);
        n->over = true;
    }
    if (n->pid > 0)
        (void)syscall(SYS_pidfd_send_signal, n->pidfd, SIGKILL, NULL, 0);
    return 0;
}

/* ---- the beginning ---- */

/* In the child, after fork. */
static _Noreturn void become_tester(const struct standing *st, int fd)
{
    char *const argv[] = {(char *)(uintptr_t) "bridled", (char *)(uintptr_t) "--private", NULL};
    if (fd == 3 ? fcntl(fd, F_SETFD, 0) < 0 : dup2(fd, 3) < 0)
        _exit(126);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &st->old_mask, NULL);
    execv(st->program, argv);
    _exit(127);
}

static int send_test(struct candidate *n, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u8(&o.buf, BR_RUN_SELFTEST);
    br_buf_put_str(&o.buf, "/");
    br_buf_put_str(&o.buf, "");
    br_buf_put_u8(&o.buf, 0);
    br_out_blob(&o, "", 0); /* no manifest */
    br_buf_put_str(&o.buf, n->row.path);
    size_t max = o.buf.len + DOCUMENT_INLINE_MAX;
    o.buf.max = max < BR_MSG_MAX ? max : BR_MSG_MAX;
    br_out_blob(&o, n->text.data, n->text.len);
    o.buf.max = BR_MSG_MAX;
    br_buf_put_u8(&o.buf, BR_POLICY_NAMED);
    for (int i = 0; i < 2; i++) { /* configuration; model and scenario */
        br_buf_put_str(&o.buf, "");
        if (i == 1)
            br_buf_put_str(&o.buf, "");
        br_out_blob(&o, "", 0);
    }
    br_out_blob(&o, "policy", 6); /* the goal */
    br_buf_put_u32(&o.buf, TEST_WALL_S);
    br_buf_put_u8(&o.buf, 0);
    br_profile_choice_put(&o.buf, &(struct br_profile_choice){.name = ""});
    br_buf_put_u32(&o.buf, 0);
    br_buf_put_str(&o.buf, ""); /* no adapter, no session, no schema */
    br_buf_put_str(&o.buf, "");
    br_out_blob(&o, "", 0);
    br_buf_put_str(&o.buf, "");
    br_ceilings_put(&o.buf, &(struct br_ceilings){.tokens = 0});
    br_buf_put_str(&o.buf, "");
    return br_chan_send(&n->control, BR_MSG_CTL_RUN, 0, &o, err);
}

static int start_test(struct standing *st, struct br_err *err)
{
    struct candidate *n = &st->next;
    int ends[2];
    if (br_chan_pair(ends) < 0)
        return br_err_errno(err, BR_E_IO, "no channel for its test");
    n->pid = fork();
    if (n->pid == 0)
        become_tester(st, ends[1]);
    br_close(&ends[1]);
    br_chan_init(&n->control, ends[0], "bridled", test_rules, BR_ARRAY_LEN(test_rules), st);
    if (n->pid < 0) {
        n->pid = 0;
        br_chan_close(&n->control);
        return br_err_errno(err, BR_E_IO, "'%s' could not be started", st->program);
    }
    n->pidfd = (int)syscall(SYS_pidfd_open, n->pid, 0);
    n->timer = br_loop_timer(st->loop, TEST_TIMEOUT_US, on_test_timeout, st);
    if (n->pidfd >= 0 && n->timer > 0 &&
        br_loop_watch(st->loop, n->pidfd, POLLIN, on_test_end, st) == 0 &&
        br_loop_watch_chan(st->loop, &n->control, on_test_control_end, st) == 0) {
        /* whatever becomes of this, its end is waited for */
        (void)send_test(n, NULL);
        return 0;
    }
    (void)kill(n->pid, SIGKILL);
    while (waitpid(n->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    n->pid = 0;
    br_close(&n->pidfd);
    br_chan_close(&n->control);
    br_loop_timer_cancel(st->loop, &n->timer);
    return br_err_set(err, BR_E_INTERNAL, "its test could not be watched");
}

/* What `word` stands for; "" is the built-in bundle. */
static int resolve(struct standing *st, const char *word, char path[BR_PATH_MAX],
                   struct br_err *err)
{
    if (!word[0] && st->current.pin.generation)
        word = st->current.path;
    if (!word[0])
        word = st->asked_path;
    if (!word[0])
        return bundle_find(path, getenv, err);
    snprintf(path, BR_PATH_MAX, "%s", word);
    return 0;
}

int reload_begin(struct standing *st, const char *word, uint8_t by, uid_t uid, struct br_err *err)
{
    struct candidate *n = &st->next;
    struct br_policy_row row = {.kind = BR_POLICY_REFUSED};
    row.pin = (struct br_policy_pin){.at_us = br_now_wall_us(), .uid = (uint32_t)uid, .by = by};
    int r = resolve(st, word, row.path, err);
    if (r == 0 && st->draining)
        r = br_err_set(err, BR_E_CANCELED, "bridled is ending");
    if (r == 0 && n->on)
        r = br_err_set(err, BR_E_IN_USE, "another reload is under way; try again when it is over");
    if (r < 0)
        return refuse(st, &row, "", r, err);
    memset(n, 0, sizeof(*n));
    n->pidfd = n->session = n->control.fd = -1;
    br_buf_init(&n->text, BR_POLICY_MAX);
    n->row = row;
    n->by = by;
    if (row.path[0])
        r = bundle_open(row.path, geteuid(), &n->text, err);
    if (r == 0) {
        policy_hash(&n->text, n->row.pin.sha256);
        r = start_test(st, err);
    }
    n->on = r == 0;
    if (r == 0)
        return 0;
    br_buf_free(&n->text);
    return refuse(st, &n->row, "", r, err);
}
