/*
 * The connection to bridled: start it, speak the control channel, receive the events of a run from
 * audit and talk to its session. Used by the verbs; bridled is trusted, but every channel still has
 * its table of what may come, and events must arrive complete and in order.
 *
 * bridled is started in a session of its own, so that Ctrl-C at the terminal reaches this program
 * alone: the first asks for a clean end, the second closes the control channel, at which bridled
 * ends everything at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"

/* After CTL_ENDED, the rest of the events is on its way in another channel. */
#define DRAIN_US (3u * 1000 * 1000)
/* How long bridled may take to leave once its work is done, or once it was told to. */
#define LEAVE_MS 5000
#define CONTROL_FD 3

static void client_check_done(struct br_cli_client *c)
{
    if (c->ended && c->audit.fd < 0 && c->session.fd < 0)
        c->done = true;
}

static int on_started(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err);
static int on_ended(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err);
static int on_probed(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err);
static int on_activated(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err);
static int on_leased(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err);
static int on_policy(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err);
static int on_state_row(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err);
static int on_promote_row(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err);
static int on_promote_plan(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err);
static int on_state_row(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct br_cli_client *c = ctx;
    struct br_state_row row;
    (void)ch;
    br_state_row_get(&m->rd, &row);
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridled' sent a malformed CTL_STATE_ROW");
    return c->hooks->state ? c->hooks->state(c->ctx, &row) : 0;
}

static int on_event(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err);
static int on_events(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err);
static int on_row(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err);
static int on_events_end(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err);
static int on_answered(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err);
static int on_report(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err);
static int on_table(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err);
static int on_said(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err);

static const struct br_msg_rule ctl_rules[] = {
    {BR_MSG_CTL_STARTED, BR_PERMIT | BR_ONCE, 9, 2048, 1, 2, on_started},
    {BR_MSG_CTL_ENDED, BR_PERMIT | BR_ONCE, 12, BR_ERR_TEXT_MAX + 16, 0, 0, on_ended},
    {BR_MSG_CTL_ACTIVATED, BR_PERMIT | BR_ONCE, 4, BR_MSG_MAX, 0, 0, on_activated},
    {BR_MSG_CTL_LEASED, BR_PERMIT | BR_ONCE, 5, BR_MSG_MAX, 0, 0, on_leased},
    {BR_MSG_CTL_POLICY, BR_PERMIT, 40, BR_MSG_MAX, 0, 0, on_policy},
    {BR_MSG_CTL_PROBED, BR_PERMIT | BR_ONCE, 4, BR_MSG_MAX, 0, 0, on_probed},
    {BR_MSG_CTL_STATE_ROW, BR_PERMIT, 40, BR_MSG_MAX, 0, 0, on_state_row},
    {BR_MSG_CTL_PROMOTE_ROW, BR_PERMIT, 40, BR_MSG_MAX, 0, 1, on_promote_row},
    {BR_MSG_CTL_PROMOTE_PLAN, BR_PERMIT | BR_ONCE, 25, 8192, 0, 0, on_promote_plan},
};
static const struct br_msg_rule audit_rules[] = {
    {BR_MSG_EVENT, BR_PERMIT, 13, BR_MSG_MAX, 0, 1, on_event},
    {BR_MSG_EVENTS, BR_PERMIT, 13, BR_MSG_MAX, 0, 0, on_events},
    {BR_MSG_RUN_ROW, BR_PERMIT, 44, BR_MSG_MAX, 0, 0, on_row},
    {BR_MSG_EVENTS_END, BR_PERMIT | BR_ONCE, 8, BR_ERR_TEXT_MAX + 16, 0, 0, on_events_end},
};
static const struct br_msg_rule session_rules[] = {
    {BR_MSG_ANSWERED, BR_PERMIT, 9, BR_ERR_TEXT_MAX + 16, 0, 0, on_answered},
    {BR_MSG_REPORT, BR_PERMIT | BR_ONCE, 5, BR_MSG_MAX, 0, 1, on_report},
    {BR_MSG_POLICY_TABLE, BR_PERMIT | BR_ONCE, 2, BR_MSG_MAX, 0, 2, on_table},
    {BR_MSG_POLICY_SAID, BR_PERMIT, 1, BR_MSG_MAX, 0, 1, on_said},
};

/* ---- what arrives -------------------------------------------------------------------------- */

static int peer_gone(struct br_chan *ch, int code, void *ctx, struct br_err *err)
{
    struct br_cli_client *c = ctx;
    br_chan_close(ch);
    if (code != -BR_E_PEER_GONE) {
        if (err)
            c->broken = *err;
        return code;
    }
    client_check_done(c);
    return 0;
}

/* bridled leaves after CTL_ENDED, while stored events may still wait in the audit's channel. */
static int ctl_gone(struct br_chan *ch, int code, void *ctx, struct br_err *err)
{
    struct br_cli_client *c = ctx;
    br_close(&ch->fd);
    if (c->ended && code == -BR_E_PEER_GONE)
        return 0;
    if (err)
        c->broken = *err;
    return code;
}

static int on_started(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct br_cli_client *c = ctx;
    char model[BR_NAME_MAX];
    (void)ch;
    br_rd_str(&m->rd, c->run_id, sizeof(c->run_id));
    br_rd_str(&m->rd, model, sizeof(model));
    bool scripted = br_rd_u8(&m->rd) != 0;
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridled' sent a malformed CTL_STARTED");
    /* A run brings session and audit, a validation the session alone, a look at the store audit. */
    if (c->session.fd == -2) {
        br_chan_init(&c->session, br_msg_take_fd(m), "session", session_rules,
                     BR_ARRAY_LEN(session_rules), c);
        if (br_loop_watch_chan(c->loop, &c->session, peer_gone, c) < 0)
            return br_err_set(err, BR_E_INTERNAL, "the session's channel could not be watched");
    }
    int fd = br_msg_take_fd(m);
    if (fd >= 0) {
        br_chan_init(&c->audit, fd, "audit", audit_rules, BR_ARRAY_LEN(audit_rules), c);
        c->audited = true;
        if (br_loop_watch_chan(c->loop, &c->audit, peer_gone, c) < 0)
            return br_err_set(err, BR_E_INTERNAL, "the record's channel could not be watched");
    }
    if (c->nsignals)
        br_cli_client_cancel(c);
    return c->hooks->started ? c->hooks->started(c->ctx, c->run_id, model, scripted) : 0;
}

static int drain_over(void *ctx, struct br_err *err)
{
    struct br_cli_client *c = ctx;
    (void)err;
    c->done = true;
    return 0;
}

static int on_ended(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct br_cli_client *c = ctx;
    (void)ch;
    uint32_t code = br_rd_u32(&m->rd);
    c->code = code < BR_CODE_COUNT_ ? (enum br_code)code : BR_E_INTERNAL;
    br_rd_str(&m->rd, c->text, sizeof(c->text));
    c->exit_code = br_rd_u32(&m->rd);
    if (br_rd_done(&m->rd) < 0 || c->exit_code > 255)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridled' sent a malformed CTL_ENDED");
    c->ended = true;
    if (br_loop_timer(c->loop, DRAIN_US, drain_over, c) < 0)
        c->done = true;
    client_check_done(c);
    return 0;
}

static int on_probed(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct br_cli_client *c = ctx;
    (void)ch;
    BR_CLEANUP_FREE struct br_probe *probes = calloc(BR_PROBES_MAX, sizeof(*probes));
    if (!probes)
        return br_err_set(err, BR_E_NOMEM, "no memory for the host's table");
    uint32_t n = br_probes_get(&m->rd, probes, BR_PROBES_MAX);
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridled' sent a malformed CTL_PROBED");
    return c->hooks->probed ? c->hooks->probed(c->ctx, probes, n) : 0;
}

static int on_activated(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct br_cli_client *c = ctx;
    uint32_t n = br_rd_u32(&m->rd);
    (void)ch;
    for (int r = 0; n > 0 && !m->rd.failed; n--) {
        char profile[64];
        br_rd_str(&m->rd, profile, sizeof(profile));
        uint64_t when = br_rd_u64(&m->rd);
        BR_CLEANUP_FREE char *text = br_rd_strdup(&m->rd, BR_MSG_MAX);
        if (text && c->hooks->activated &&
            (r = c->hooks->activated(c->ctx, profile, when, text)) < 0)
            return r;
    }
    return br_rd_done(&m->rd) < 0
               ? br_err_set(err, BR_E_PEER_PROTOCOL, "'bridled' sent a malformed CTL_ACTIVATED")
               : 0;
}

static int on_leased(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct br_cli_client *c = ctx;
    (void)ch;
    bool more = br_rd_u8(&m->rd) != 0;
    uint32_t n = br_rd_u32(&m->rd);
    for (int r = 0; n > 0 && !m->rd.failed; n--) {
        char name[BR_NAME_MAX];
        struct br_cli_lease l = {.name = name};
        br_rd_str(&m->rd, name, sizeof(name));
        l.in_use = br_rd_u8(&m->rd) != 0;
        l.bytes = br_rd_u64(&m->rd);
        l.allocated = br_rd_u64(&m->rd);
        l.seconds = br_rd_u64(&m->rd);
        if (!m->rd.failed && c->hooks->leased && (r = c->hooks->leased(c->ctx, &l)) < 0)
            return r;
    }
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridled' sent a malformed CTL_LEASED");
    const struct br_cli_lease none = {.name = NULL};
    return more && c->hooks->leased ? c->hooks->leased(c->ctx, &none) : 0;
}

static int on_policy(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct br_cli_client *c = ctx;
    (void)ch;
    BR_CLEANUP_FREE struct br_policy_row *row = calloc(1, sizeof(*row));
    if (!row)
        return br_err_set(err, BR_E_NOMEM, "no memory for a policy of bridled's");
    br_policy_row_get(&m->rd, row);
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridled' sent a malformed CTL_POLICY");
    return c->hooks->policy ? c->hooks->policy(c->ctx, row) : 0;
}

static int on_promote_row(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err)
{
    static struct br_promote_row row;
    struct br_cli_client *c = ctx;
    BR_CLEANUP_BUF struct br_buf diff = BR_BUF_INIT(0);
    (void)ch;
    br_promote_row_get(&m->rd, &row);
    int r = br_msg_blob(m, BR_BLOB_MAX, &diff, err);
    if (r < 0 || br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridled' sent a malformed CTL_PROMOTE_ROW");
    return c->hooks->promote_row ? c->hooks->promote_row(c->ctx, &row, &diff) : 0;
}

static int on_promote_plan(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err)
{
    static struct br_cli_promotion p;
    struct br_cli_client *c = ctx;
    (void)ch;
    br_rd_str(&m->rd, p.run_id, sizeof(p.run_id));
    br_rd_str(&m->rd, p.workspace, sizeof(p.workspace));
    p.changes = br_rd_u32(&m->rd);
    p.conflicts = br_rd_u32(&m->rd);
    p.refused = br_rd_u32(&m->rd);
    p.skipped = br_rd_u32(&m->rd);
    p.recovered = br_rd_u8(&m->rd);
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridled' sent a malformed CTL_PROMOTE_PLAN");
    return c->hooks->promote_plan ? c->hooks->promote_plan(c->ctx, &p) : 0;
}

/* `text` is the caller's. */
static int take_event(struct br_cli_client *c, uint64_t row, struct br_buf *text,
                      struct br_err *err)
{
    if (row != c->row + 1)
        return br_err_set(err, BR_E_PEER_PROTOCOL,
                          "the record has a gap: event %llu came after %llu",
                          (unsigned long long)row, (unsigned long long)c->row);
    c->row = row;
    if (!br_buf_cstr(text))
        return br_err_set(err, BR_E_NOMEM, "no memory for an event");
    return c->hooks->event ? c->hooks->event(c->ctx, (char *)text->data, text->len, err) : 0;
}

static int on_events(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct br_cli_client *c = ctx;
    (void)ch;
    uint64_t row = br_rd_u64(&m->rd);
    while (m->rd.off < m->rd.len) {
        BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(BR_EVENT_MAX);
        size_t n;
        const void *p = br_rd_bytes(&m->rd, BR_MSG_MAX, &n);
        if (!p || !n)
            return br_err_set(err, BR_E_PEER_PROTOCOL, "'audit' sent malformed EVENTS");
        br_buf_put(&text, p, n);
        int r = take_event(c, row++, &text, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int on_event(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct br_cli_client *c = ctx;
    (void)ch;
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(BR_EVENT_MAX);
    uint64_t row = br_rd_u64(&m->rd);
    int r = br_msg_blob(m, BR_EVENT_MAX, &text, err);
    if (r < 0)
        return r;
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'audit' sent a malformed EVENT");
    return take_event(c, row, &text, err);
}

static int on_row(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct br_cli_client *c = ctx;
    (void)ch;
    struct br_cli_row row = {.goal = NULL};
    br_rd_str(&m->rd, row.run_id, sizeof(row.run_id));
    row.started_us = br_rd_u64(&m->rd);
    row.ended_us = br_rd_u64(&m->rd);
    br_rd_str(&m->rd, row.status, sizeof(row.status));
    br_rd_str(&m->rd, row.model, sizeof(row.model));
    br_rd_str(&m->rd, row.workspace, sizeof(row.workspace));
    BR_CLEANUP_FREE char *goal = br_rd_strdup(&m->rd, BR_MSG_MAX);
    row.goal = goal;
    row.events = br_rd_u64(&m->rd);
    if (br_rd_done(&m->rd) < 0 || !goal)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'audit' sent a malformed RUN_ROW");
    return c->hooks->row ? c->hooks->row(c->ctx, &row) : 0;
}

static int on_events_end(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct br_cli_client *c = ctx;
    char text[BR_ERR_TEXT_MAX];
    (void)ch;
    uint32_t code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, text, sizeof(text));
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'audit' sent a malformed EVENTS_END");
    c->listing_done = true;
    if (code) /* bridled will say the same in CTL_ENDED; should it not, this is what is said */
        return br_err_set(err, code < BR_CODE_COUNT_ ? (enum br_code)code : BR_E_INTERNAL, "%s",
                          text);
    return 0;
}

static int on_answered(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct br_cli_client *c = ctx;
    char text[BR_ERR_TEXT_MAX];
    (void)ch;
    bool accepted = br_rd_u8(&m->rd) != 0;
    (void)br_rd_u32(&m->rd);
    br_rd_str(&m->rd, text, sizeof(text));
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'session' sent a malformed ANSWERED");
    if (!accepted && c->hooks->refused)
        c->hooks->refused(c->ctx, text);
    return 0;
}

static int on_report(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct br_cli_client *c = ctx;
    (void)ch;
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(BR_TABLE_MAX);
    int r = br_msg_blob(m, BR_TABLE_MAX, &text, err);
    if (r < 0)
        return r;
    if (br_rd_done(&m->rd) < 0 || !br_buf_cstr(&text))
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'session' sent a malformed REPORT");
    return c->hooks->report ? c->hooks->report(c->ctx, (char *)text.data, text.len) : 0;
}

static int on_table(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct br_cli_client *c = ctx;
    (void)ch;
    BR_CLEANUP_BUF struct br_buf report = BR_BUF_INIT(0), table = BR_BUF_INIT(0);
    int r = br_msg_blob(m, BR_TABLE_MAX, &report, err);
    if (r == 0)
        r = br_msg_blob(m, BR_TABLE_MAX, &table, err);
    if (r < 0)
        return r;
    if (br_rd_done(&m->rd) < 0 || !br_buf_cstr(&report) || !br_buf_cstr(&table))
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'session' sent a malformed POLICY_TABLE");
    return c->hooks->table ? c->hooks->table(c->ctx, &report, &table) : 0;
}

static int on_said(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct br_cli_client *c = ctx;
    (void)ch;
    BR_CLEANUP_BUF struct br_buf answer = BR_BUF_INIT(0);
    int r = br_msg_blob(m, BR_BLOB_MAX, &answer, err);
    if (r < 0)
        return r;
    if (br_rd_done(&m->rd) < 0 || !br_buf_cstr(&answer))
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'session' sent a malformed POLICY_SAID");
    return c->hooks->said ? c->hooks->said(c->ctx, &answer) : 0;
}

static int on_signal(void *ctx, int fd, short revents, struct br_err *err)
{
    struct br_cli_client *c = ctx;
    struct signalfd_siginfo si;
    (void)revents;
    (void)err;
    if (read(fd, &si, sizeof(si)) != (ssize_t)sizeof(si))
        return 0;
    if (++c->nsignals == 1) {
        br_cli_client_cancel(c); /* before any answer: after it a run could go on, and end well */
        if (c->hooks->canceling)
            c->hooks->canceling(c->ctx, (int)si.ssi_signo);
        return 0;
    }
    c->killed = true;
    c->done = true;
    return 0;
}

/* ---- start, send, serve, end --------------------------------------------------------------- */

/* In the child, after fork. */
static _Noreturn void become_bridled(const char *path, int fd, const sigset_t *mask)
{
    char *const argv[] = {(char *)"bridled", (char *)"--private", NULL};
    (void)setsid();
    signal(SIGPIPE, SIG_DFL);
    if (fd == CONTROL_FD) {
        (void)fcntl(fd, F_SETFD, 0);
    } else if (dup2(fd, CONTROL_FD) < 0) {
        _exit(126);
    }
    sigprocmask(SIG_SETMASK, mask, NULL);
    execv(path, argv);
    _exit(127);
}

int br_cli_client_open(struct br_cli_client *c, const struct br_cli_hooks *hooks, void *ctx,
                       struct br_err *err)
{
    *c = (struct br_cli_client){.hooks = hooks, .ctx = ctx, .signals = -1};
    c->ctl.fd = c->session.fd = c->audit.fd = -1;
    char path[BR_PATH_MAX];
    int fds[2], r = br_cli_program(path, "bridled", err);
    if (r < 0)
        return r;
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &ends, &c->old_mask);
    c->signals = signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
    c->loop = br_loop_new();
    if (c->signals < 0 || !c->loop || br_chan_pair(fds) < 0)
        return br_err_errno(err, BR_E_FAILED, "the control channel could not be made");
    br_chan_init(&c->ctl, fds[0], "bridled", ctl_rules, BR_ARRAY_LEN(ctl_rules), c);
    c->pid = fork();
    if (c->pid == 0)
        become_bridled(path, fds[1], &c->old_mask);
    br_close(&fds[1]);
    if (c->pid < 0) {
        c->pid = 0;
        return br_err_errno(err, BR_E_FAILED, "'%s' could not be started", path);
    }
    if (br_loop_watch_chan(c->loop, &c->ctl, ctl_gone, c) < 0 ||
        br_loop_watch(c->loop, c->signals, POLLIN, on_signal, c) < 0)
        return br_err_set(err, BR_E_INTERNAL, "the control channel could not be watched");
    return 0;
}

int br_cli_client_send(struct br_cli_client *c, enum br_msg_type type, const struct br_out *o,
                       struct br_err *err)
{
    if (type == BR_MSG_CTL_RUN)
        c->session.fd = -2; /* CTL_STARTED brings it */
    return br_chan_send(&c->ctl, type, 0, o, err);
}

int br_cli_client_wait(struct br_cli_client *c, struct br_err *err)
{
    struct br_err local = {.code = BR_OK};
    int r = br_loop_run(c->loop, &c->done, &local);
    if (c->killed) {
        c->code = BR_E_CANCELED;
        c->exit_code = (uint32_t)br_code_exit(BR_E_CANCELED);
        snprintf(c->text, sizeof(c->text), "ended at once; the record may lack its end");
        return 0;
    }
    if (r >= 0 || c->ended) {
        if (c->audited && !c->listing_done && c->code == BR_OK)
            return br_err_set(err, BR_E_PEER_GONE,
                              "the record's end did not arrive; what was shown is not complete");
        return 0;
    }
    if (r == -BR_E_PEER_GONE)
        return br_err_set(err, BR_E_PROGRAM_DIED,
                          "'bridled' has gone before it said how this ended; the run has failed");
    if (c->broken.code)
        local = c->broken;
    if (err)
        *err = local;
    return local.code ? r : br_err_set(err, BR_E_INTERNAL, "the connection to 'bridled' broke");
}

int br_cli_client_ask(struct br_cli_client *c, const struct br_cli_hooks *hooks, void *ctx,
                      enum br_msg_type type, const struct br_out *o, struct br_err *err)
{
    int r = br_cli_client_open(c, hooks, ctx, err);
    if (r == 0)
        r = br_cli_client_send(c, type, o, err);
    return r < 0 ? r : br_cli_client_wait(c, err);
}

void br_cli_client_answer(struct br_cli_client *c, const char *permission_id, unsigned scope,
                          const char *note)
{
    if (c->session.fd < 0)
        return;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, permission_id);
    br_buf_put_u8(&o.buf, (uint8_t)scope);
    br_buf_put_str(&o.buf, note);
    br_buf_put_str(&o.buf, ""); /* who is at this terminal */
    (void)br_chan_send(&c->session, BR_MSG_ANSWER, 0, &o, NULL);
}

void br_cli_put_show(struct br_buf *b, const char *run_id)
{
    struct br_show w = {.row = 0};
    snprintf(w.run_id, sizeof(w.run_id), "%s", run_id);
    br_show_put(b, &w);
}

void br_cli_client_cancel(struct br_cli_client *c)
{
    if (c->session.fd >= 0)
        (void)br_chan_send(&c->session, BR_MSG_CANCEL, 0, NULL, NULL);
    if (c->ctl.fd >= 0)
        (void)br_chan_send(&c->ctl, BR_MSG_CTL_CANCEL, 0, NULL, NULL);
}

/* The control channel is closed: bridled ends what is left of the run and leaves. */
static void wait_for_bridled(struct br_cli_client *c)
{
    struct pollfd p = {.fd = (int)syscall(SYS_pidfd_open, c->pid, 0), .events = POLLIN};
    uint64_t until = br_now_us() + LEAVE_MS * 1000u;
    int r = 0;
    while (p.fd >= 0 && (r = poll(&p, 1, LEAVE_MS)) < 0 && errno == EINTR && br_now_us() < until)
        ;
    if (r <= 0)
        (void)kill(c->pid, SIGKILL);
    br_close(&p.fd);
    while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    c->pid = 0;
}

void br_cli_client_close(struct br_cli_client *c)
{
    br_chan_close(&c->session);
    br_chan_close(&c->audit);
    br_chan_close(&c->ctl);
    if (c->pid > 0)
        wait_for_bridled(c);
    if (c->loop)
        br_loop_free(&c->loop);
    if (c->signals >= 0) {
        br_close(&c->signals);
        sigprocmask(SIG_SETMASK, &c->old_mask, NULL);
    }
}
