/*
 * bridle-audit: the process that holds what must not be shown, and shows the rest. Started by
 * bridled with its supervision channel on fd 3; everything else it works with comes as descriptors
 * in AUDIT_START. It trusts bridled; what the session, the egress and the client send is checked.
 *
 * Exit status: 0 when it did what it was asked to, 1 when it could not, a peer broke the protocol,
 * or the supervisor died (the record is then closed as failed first).
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "audit/audit_priv.h"
#include "audit/syncer.h"
#include "base/json_memory.h"
#include "wire/types.h"

#define SUPERVISION_FD 3
enum { WITH_SESSION = 1, WITH_CLIENT = 2, WITH_EGRESS = 4 };

/* What SQLite needs to keep a WAL database in its working directory, and reading /proc. No sockets,
 * no exec, no fork, nothing that changes identity. */
static const int sqlite_calls[] = {
    SYS_openat,     SYS_pread64, SYS_pwrite64, SYS_fsync,      SYS_fdatasync, SYS_ftruncate,
    SYS_unlinkat,   SYS_fchmod,  SYS_fchown,   SYS_fchdir,     SYS_getuid,    SYS_geteuid,
    SYS_getgid,     SYS_getegid, SYS_getcwd,   SYS_readlinkat, SYS_faccessat, SYS_fallocate,
    SYS_mlock,      SYS_munlock,
#ifdef SYS_open
    SYS_open,       SYS_stat,    SYS_lstat,    SYS_unlink,     SYS_access,    SYS_readlink,
#endif
#ifdef SYS_faccessat2
    SYS_faccessat2,
#endif
};

/* Who records does not wait for the disk while there is something to do. */
static void start_threads(void *ctx)
{
    struct audit *a = ctx;
    a->syncer = a->mode == AUDIT_RECORD ? br_syncer_new() : NULL;
}

static int enter_role(struct audit *a, struct br_err *err)
{
    struct br_role role = {.name = "bridle-audit",
                           .uid = geteuid() == 0 ? BR_UID_AUDIT : 0,
                           .max_nofile = 64,
                           .max_as = 1ull << 30,
                           .no_fork = true,
                           .syscalls = sqlite_calls,
                           .nsyscalls = BR_ARRAY_LEN(sqlite_calls),
                           .threads = start_threads,
                           .ctx = a};
    return br_role_enter(&role, err);
}

int audit_send_closed(struct audit *a, int code, const char *text, const char *status)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, (uint32_t)(code < 0 ? -code : code));
    br_buf_put_str(&o.buf, text);
    br_buf_put_str(&o.buf, status);
    return br_chan_send(&a->sup, BR_MSG_AUDIT_CLOSED, 0, &o, NULL);
}

static int send_ready(struct audit *a, int code, const char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, br_code_name(code));
    br_buf_put_str(&o.buf, text);
    return br_chan_send(&a->sup, BR_MSG_AUDIT_READY, 0, &o, NULL);
}

/* Too long a text for the list of runs is cut there; the record has the whole. */
static void copy_cut(struct br_rd *rd, char *dst, size_t cap)
{
    size_t n = 0;
    const char *s = br_rd_lstr(rd, BR_MSG_MAX, &n);
    if (s && n > cap - 1)
        n = br_utf8_floor(s, cap - 1);
    if (s)
        memcpy(dst, s, n);
    dst[s ? n : 0] = 0;
}

static int on_start(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct audit *a = ctx;
    struct br_rd *rd = &m->rd;
    uint8_t mode = br_rd_u8(rd), flags = br_rd_u8(rd);
    (void)c;
    br_rd_str(rd, a->wanted, sizeof(a->wanted));
    a->info.started_us = br_rd_u64(rd);
    copy_cut(rd, a->info.workspace, sizeof(a->info.workspace));
    copy_cut(rd, a->info.model, sizeof(a->info.model));
    copy_cut(rd, a->goal, sizeof(a->goal));
    br_rd_str(rd, a->info.owner, sizeof(a->info.owner));
    br_rd_str(rd, a->token, sizeof(a->token));
    br_show_get(rd, &a->show);
    a->dirfd = br_msg_take_fd(m);
    a->session.fd = flags & WITH_SESSION ? br_msg_take_fd(m) : -1;
    a->client.fd = flags & WITH_CLIENT ? br_msg_take_fd(m) : -1;
    a->egress.fd = flags & WITH_EGRESS ? br_msg_take_fd(m) : -1;
    a->with_egress = a->egress.fd >= 0;
    a->mode = (enum audit_mode)mode;
    unsigned peers = !!(flags & WITH_SESSION) + !!(flags & WITH_CLIENT) + !!(flags & WITH_EGRESS);
    bool named = a->wanted[0] && strlen(a->wanted) < BR_ID_MAX;
    if (br_rd_done(rd) < 0 || mode > AUDIT_RECOVER || flags > 7 || m->nfds != 1 + peers ||
        (mode == AUDIT_RECORD && !named))
        return br_err_set(err, BR_E_PEER_PROTOCOL, "an AUDIT_START is malformed");
    a->started = true;
    return 0;
}

static const struct br_msg_rule supervision_rules[] = {
    {BR_MSG_AUDIT_START, BR_PERMIT | BR_ONCE, 58, BR_MSG_MAX, 1, 4, on_start},
    {BR_MSG_AUDIT_CLOSE, BR_ONCE, 25, BR_MSG_MAX, 0, 0, record_on_close},
};

/* Nothing but standard error, the channels and the directory stays open. */
static void close_others(struct audit *a)
{
    const int keep[] = {SUPERVISION_FD, a->dirfd, a->session.fd, a->client.fd, a->egress.fd};
    br_close_from(3, keep, BR_ARRAY_LEN(keep));
}

static int on_supervisor_end(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    (void)c;
    (void)ctx;
    (void)err;
    return code;
}

static int record(struct audit *a, struct br_err *err)
{
    int r = br_loop_watch_chan(a->loop, &a->sup, on_supervisor_end, a);
    br_chan_permit(&a->sup, BR_MSG_AUDIT_CLOSE);
    if (r == 0)
        r = br_loop_run(a->loop, &a->done, err);
    if (a->done)
        return 0;
    if (r == -BR_E_PEER_GONE) {
        r = -BR_E_PROGRAM_DIED;
        br_err_set(err, BR_E_PROGRAM_DIED, "'bridled' has gone before it said how the run ended");
    }
    record_abandon(a, r, err->text[0] ? err->text : br_code_name(r));
    return r;
}

static int serve(struct audit *a, struct br_err *err)
{
    unsigned closed = 0;
    char text[64];
    int r;
    if (a->mode == AUDIT_RECORD)
        return record(a, err);
    r = a->mode == AUDIT_READ ? read_run(a, err) : recover_run(a, &closed, err);
    snprintf(text, sizeof(text), "%u records were closed", closed);
    (void)audit_send_closed(a, r, r < 0 ? err->text : a->mode == AUDIT_RECOVER ? text : "", "");
    /* an unknown run is an answer, not a failure of this program */
    return r == -BR_E_NOT_FOUND || r == -BR_E_PEER_GONE ? 0 : r;
}

static int start(struct audit *a, struct br_err *err)
{
    close_others(a);
    br_chan_init(&a->client, a->client.fd, "client", NULL, 0, a);
    int r = enter_role(a, err);
    if (r == 0)
        r = br_store_open(a->dirfd, &a->rec.store, err);
    if (r == 0)
        br_store_use(a->rec.store, a->syncer);
    if (r == 0 && !(a->rec.redact = br_redact_new()))
        r = br_err_set(err, BR_E_REDACTION_FAILED, "no memory for the redactor");
    if (r == 0 && !(a->rec.quick = br_quick_new()))
        r = br_err_set(err, BR_E_NOMEM, "no memory for events");
    if (r == 0 && a->token[0])
        r = br_redact_secret(a->rec.redact, "run-token", a->token, strlen(a->token), err);
    explicit_bzero(a->token, sizeof(a->token));
    if (r == 0 && !(a->loop = br_loop_new()))
        r = br_err_set(err, BR_E_NOMEM, "no memory for the event loop");
    if (r == 0 && a->mode == AUDIT_RECORD)
        r = record_start(a, err);
    if (r == 0)
        feed_init(a);
    (void)send_ready(a, r, r < 0 ? err->text : "");
    return r;
}

int main(void)
{
    static struct audit a = {
        .dirfd = -1, .session = {.fd = -1}, .client = {.fd = -1}, .egress = {.fd = -1}};
    struct br_err err = {.code = BR_OK};
    uint32_t seed;
    umask(077);
    br_log_init("bridle-audit", BR_LOG_WARN);
    br_json_end_without_memory();
    /* a full disk or a limit is an error to report, not a reason to die */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGINT, SIG_IGN); /* Ctrl-C goes to the whole group; bridled decides when we end */
    br_random(&seed, sizeof(seed));
    json_object_seed(seed ? seed : 1);
    br_sha256_fast(true);
    if (sodium_init() < 0)
        return 1;
    br_chan_init(&a.sup, SUPERVISION_FD, "supervisor", supervision_rules,
                 BR_ARRAY_LEN(supervision_rules), &a);
    int r = br_chan_dispatch(&a.sup, &err);
    if (r == 0 && a.started)
        r = start(&a, &err);
    if (r == 0)
        r = serve(&a, &err);
    else if (r < 0)
        br_log(BR_LOG_ERROR, "%s", err.text[0] ? err.text : br_code_name(r));
    text_free(&a);
    br_event_order_free(&a.rec.order);
    br_redact_free(&a.rec.redact);
    br_quick_free(&a.rec.quick);
    br_store_close(&a.rec.store); /* which may wait for the other */
    br_syncer_free(&a.syncer);
    br_chan_close(&a.session);
    br_chan_close(&a.egress);
    br_chan_close(&a.client);
    br_chan_close(&a.sup);
    br_loop_free(&a.loop);
    return r < 0 ? 1 : 0;
}
