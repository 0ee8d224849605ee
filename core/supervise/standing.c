/*
 * `bridled --standing`: a bridled that lives longer than any run and holds the operator's bundle.
 * It listens on a socket in the state directory; who may talk to it is asked of the kernel, and is
 * root or the owner. It reads requests of three kinds and nothing else: take the bundle for a
 * session, list what there is and was, replace the bundle. It starts no session itself.
 *
 * SIGHUP reads the bundle's file again. SIGTERM lets no new session begin, and ends this program
 * when those that have its bundle have ended; a second one ends it at once, the sessions go on.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "supervise/service.h"

#define BACKLOG 64
/* How long a client may take to say what it wants, and to leave when it was told how it ended. */
#define ASK_TIMEOUT_US (10u * 1000000u)
#define LEAVE_TIMEOUT_US (2u * 1000000u)
#define EVENTS_MAX 16

/* ---- connections ---- */

static unsigned pinned(const struct standing *st)
{
    unsigned n = 0;
    for (unsigned i = 0; i < STANDING_CONNS_MAX; i++)
        n += st->conns[i].chan.fd >= 0 && st->conns[i].generation;
    return n;
}

static void leave(struct standing *st)
{
    st->leave = true;
}

static void conn_close(struct conn *c)
{
    if (c->chan.fd < 0)
        return;
    br_chan_close(&c->chan); /* epoll forgets it by itself */
    c->generation = 0;
    if (c->st->draining && pinned(c->st) == 0)
        leave(c->st);
}

/* Say how it ended, and let the client leave: a close right now could take the words away. */
static int conn_end(struct conn *c, int code, const char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, (uint32_t)(code < 0 ? -code : code));
    br_buf_put_str(&o.buf, text);
    br_buf_put_u32(&o.buf, (uint32_t)br_code_exit(code));
    (void)br_chan_send(&c->chan, BR_MSG_CTL_ENDED, 0, &o, NULL);
    c->told = true;
    c->waits = false;
    c->since_us = br_now_us();
    return 0;
}

/* Copy a row, with the runs that have this bundle. */
static int put_row(struct conn *c, const struct br_policy_row *from)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    struct br_policy_row row = *from;
    row.runs = row.nids = 0;
    for (unsigned i = 0; i < STANDING_CONNS_MAX && row.kind != BR_POLICY_REFUSED; i++) {
        const struct conn *k = &c->st->conns[i];
        if (k->chan.fd < 0 || !k->generation || k->generation != row.pin.generation)
            continue;
        row.runs++;
        if (row.nids < BR_POLICY_RUNS_MAX)
            memcpy(row.ids[row.nids++], k->run_id, sizeof(k->run_id));
    }
    br_policy_row_put(&o.buf, &row);
    return br_chan_send(&c->chan, BR_MSG_CTL_POLICY, 0, &o, NULL);
}

/* ---- what a client may ask ---- */

static int on_take(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct conn *c = ctx;
    struct standing *st = c->st;
    char run_id[BR_ID_MAX];
    br_rd_str(&m->rd, run_id, sizeof(run_id));
    if (br_rd_done(&m->rd) < 0 || !run_id[0] || c->asked)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "a malformed POLICY_TAKE");
    c->asked = true;
    if (st->draining ||
        (st->service && st->service->draining && !service_is_own(st->service, c->pid)))
        return conn_end(c, BR_E_CANCELED,
                        "the standing bridled is ending and lets no session begin; nothing was "
                        "started");
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_policy_pin_put(&o.buf, &st->current.pin);
    br_buf_put_str(&o.buf, st->current.path);
    br_out_blob(&o, st->text.data, st->text.len);
    int r = br_chan_send(ch, BR_MSG_POLICY_TAKEN, 0, &o, err);
    if (r < 0)
        return r;
    c->generation = st->current.pin.generation;
    memcpy(c->run_id, run_id, sizeof(c->run_id));
    return 0;
}

static int on_policies(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct conn *c = ctx;
    struct standing *st = c->st;
    int r = 0;
    (void)ch, (void)m;
    if (c->asked)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "a second request");
    c->asked = true;
    for (unsigned i = 0; i < st->nearlier && r == 0; i++)
        r = put_row(c, &st->earlier[i]);
    if (r == 0)
        r = put_row(c, &st->current);
    for (unsigned i = 0; i < st->nrefused && r == 0; i++)
        r = put_row(c, &st->refused[i]);
    return r < 0 ? r : conn_end(c, BR_OK, "");
}

static void log_refusal(const struct br_err *why, uint8_t by, uid_t uid)
{
    br_log(BR_LOG_WARN, "%s (%s of uid %u)", why->text, br_policy_by_name(by), (unsigned)uid);
}

/* The settings of a service come first; both are taken, or neither. */
static int replace_begin(struct standing *st, const char *word, uint8_t by, uid_t uid,
                         struct br_err *err)
{
    if (!st->service)
        return reload_begin(st, word, by, uid, err);
    if (st->service->draining)
        return br_err_set(err, BR_E_CANCELED, "the service is ending; nothing was reloaded");
    if (st->preparing.on || st->next.on)
        return br_err_set(err, BR_E_IN_USE,
                          "another reload is under way; try again when it is over");
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    if (st->service->listening)
        notify_send(&st->service->notify, "RELOADING=1\nMONOTONIC_USEC=%llu",
                    (unsigned long long)now.tv_sec * 1000000u + (unsigned)now.tv_nsec / 1000u);
    st->preparing.by = by;
    st->preparing.uid = uid;
    snprintf(st->preparing.word, sizeof(st->preparing.word), "%s", word);
    int r = service_prepare(st->service, err);
    st->preparing.on = r == 0;
    if (r < 0)
        service_outcome(st->service, err);
    if (r < 0 && st->service->listening)
        (void)service_settle(st->service, false, NULL);
    return r;
}

void standing_prepared(struct standing *st, int code, const struct br_err *why)
{
    struct br_err err = *why;
    st->preparing.on = false;
    if (code == 0)
        code = reload_begin(st, st->preparing.word, st->preparing.by, st->preparing.uid, &err);
    if (code < 0) {
        service_outcome(st->service, &err);
        reload_over(st, code, &err);
    }
}

static int on_reload(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct conn *c = ctx;
    struct br_err why = {.code = BR_OK};
    char word[BR_PATH_MAX];
    (void)ch;
    br_rd_str(&m->rd, word, sizeof(word));
    if (br_rd_done(&m->rd) < 0 || c->asked)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "a malformed CTL_RELOAD");
    c->asked = true;
    int r = replace_begin(c->st, word, BR_POLICY_BY_REQUEST, c->uid, &why);
    if (r == 0) {
        c->waits = true;
        return 0;
    }
    log_refusal(&why, BR_POLICY_BY_REQUEST, c->uid);
    return conn_end(c, r, why.text);
}

static const struct br_msg_rule conn_rules[] = {
    {BR_MSG_POLICY_TAKE, BR_PERMIT | BR_ONCE, 5, 4 + BR_ID_MAX, 0, 0, on_take},
    {BR_MSG_CTL_POLICIES, BR_PERMIT | BR_ONCE, 0, 0, 0, 0, on_policies},
    {BR_MSG_CTL_RELOAD, BR_PERMIT | BR_ONCE, 4, 4 + BR_PATH_MAX, 0, 0, on_reload},
};

/* A client that was told reads, and leaves; what it still sends is of no interest. */
static void let_leave(struct conn *c)
{
    char byte;
    ssize_t n = recv(c->chan.fd, &byte, 1, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        conn_close(c);
}

static int on_conns(void *ctx, int fd, short revents, struct br_err *err)
{
    struct standing *st = ctx;
    struct epoll_event events[EVENTS_MAX];
    (void)revents, (void)err;
    int n = epoll_wait(fd, events, EVENTS_MAX, 0);
    for (int i = 0; i < n; i++) {
        struct conn *c = &st->conns[events[i].data.u32];
        struct br_err why = {.code = BR_OK};
        if (c->chan.fd < 0)
            continue;
        if (c->told) {
            let_leave(c);
            continue;
        }
        int r = br_chan_dispatch(&c->chan, &why);
        if (r == 0 || r == -BR_E_TIMEOUT)
            continue;
        if (r != -BR_E_PEER_GONE)
            br_log(BR_LOG_WARN, "process %d of uid %u broke the protocol: %s", (int)c->pid,
                   (unsigned)c->uid, why.text);
        conn_close(c);
    }
    return 0;
}

static int on_sweep(void *ctx, struct br_err *err)
{
    struct standing *st = ctx;
    uint64_t now = br_now_us();
    unsigned left = 0;
    (void)err;
    st->sweeping = false;
    for (unsigned i = 0; i < STANDING_CONNS_MAX; i++) {
        struct conn *c = &st->conns[i];
        uint64_t patience = c->told ? LEAVE_TIMEOUT_US : ASK_TIMEOUT_US;
        if (c->chan.fd < 0 || (c->asked && !c->told))
            continue;
        if (now - c->since_us >= patience)
            conn_close(c);
        else
            left++;
    }
    if (left && br_loop_timer(st->loop, LEAVE_TIMEOUT_US, on_sweep, st) > 0)
        st->sweeping = true;
    return 0;
}

static struct conn *free_place(struct standing *st)
{
    for (unsigned i = 0; i < STANDING_CONNS_MAX; i++)
        if (st->conns[i].chan.fd < 0)
            return &st->conns[i];
    return NULL;
}

static int on_client(void *ctx, int fd, short revents, struct br_err *err)
{
    struct standing *st = ctx;
    struct ucred peer;
    socklen_t n = sizeof(peer);
    (void)revents, (void)err;
    int sock = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (sock < 0)
        return 0;
    struct conn *c = free_place(st);
    if (!c || getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0) {
        br_log(BR_LOG_WARN, "a client was turned away: %u are connected", STANDING_CONNS_MAX);
        br_close(&sock);
        return 0;
    }
    memset(c, 0, sizeof(*c));
    c->st = st;
    c->uid = peer.uid;
    c->pid = peer.pid;
    c->since_us = br_now_us();
    br_chan_init(&c->chan, sock, "client", conn_rules, BR_ARRAY_LEN(conn_rules), c);
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)(c - st->conns)};
    if (epoll_ctl(st->epoll, EPOLL_CTL_ADD, sock, &e) < 0) {
        br_chan_close(&c->chan);
        return 0;
    }
    if (peer.uid != 0 && peer.uid != geteuid()) {
        char text[160];
        snprintf(text, sizeof(text),
                 "this bridled is that of uid %u, and this is uid %u; nothing was done",
                 (unsigned)geteuid(), (unsigned)peer.uid);
        br_log(BR_LOG_WARN, "process %d of uid %u was refused at the control socket", (int)peer.pid,
               (unsigned)peer.uid);
        (void)conn_end(c, BR_E_DENIED, text);
    }
    if (!st->sweeping && br_loop_timer(st->loop, LEAVE_TIMEOUT_US, on_sweep, st) > 0)
        st->sweeping = true;
    return 0;
}

/* ---- places ---- */

/* Made under another name, so that whoever finds the socket finds somebody who listens. */
static int listen_there(struct standing *st, struct br_err *err)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    BR_CLEANUP_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && st->beside) { /* it has a bundle now, and nobody asks for it */
        st->listener = br_steal_fd(&fd);
        return 0;
    }
    snprintf(sa.sun_path, sizeof(sa.sun_path), "/proc/self/fd/%d/%s", st->state_fd,
             STANDING_SOCKET_NEW);
    (void)unlinkat(st->state_fd, STANDING_SOCKET_NEW, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(fd, BACKLOG) < 0 ||
        renameat(st->state_fd, STANDING_SOCKET_NEW, st->state_fd, STANDING_SOCKET) < 0)
        return br_err_errno(err, BR_E_IO, "the socket '%s/%s' could not be made", st->state_dir,
                            STANDING_SOCKET);
    if (br_loop_watch(st->loop, fd, POLLIN, on_client, st) < 0)
        return br_err_set(err, BR_E_INTERNAL, "the socket could not be watched");
    st->listener = br_steal_fd(&fd);
    return 0;
}

/* Held as long as this program lives: a socket without it is a dead one's. */
static int lock_place(struct standing *st, struct br_err *err)
{
    int fd = openat(st->state_fd, STANDING_LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return br_err_errno(err, BR_E_STORE_FAILED, "'%s/%s' could not be opened", st->state_dir,
                            STANDING_LOCK);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        st->lock = fd;
        return 0;
    }
    int r =
        errno == EWOULDBLOCK
            ? br_err_set(err, BR_E_IN_USE,
                         "another bridled stands over '%s'; this one was not started. End it, or "
                         "choose another BRIDLE_STATE_DIR",
                         st->state_dir)
            : br_err_errno(err, BR_E_IO, "'%s/%s' could not be locked", st->state_dir,
                           STANDING_LOCK);
    br_close(&fd);
    return r;
}

/* ---- the bundle ---- */

static void reload_by_signal(struct standing *st, uid_t uid)
{
    struct br_err why = {.code = BR_OK};
    if ((st->next.on || st->preparing.on) && !st->draining) {
        st->again = true;
        st->again_uid = uid;
        return;
    }
    st->again = false;
    if (replace_begin(st, "", BR_POLICY_BY_SIGNAL, uid, &why) < 0)
        log_refusal(&why, BR_POLICY_BY_SIGNAL, uid);
}

static void log_current(const struct standing *st)
{
    const struct br_policy_row *w = &st->current;
    br_log(BR_LOG_INFO,
           "the policy '%s' is generation %llu: %u rules, %u warnings, %u probes, text %.12s, "
           "table %.12s (%s of uid %u)",
           w->path[0] ? w->path : "default (built in)", (unsigned long long)w->pin.generation,
           w->rules, w->warnings, w->probes, w->pin.sha256[0] ? w->pin.sha256 : "built in",
           w->table, br_policy_by_name(w->pin.by), (unsigned)w->pin.uid);
}

void reload_over(struct standing *st, int code, const struct br_err *why)
{
    struct br_err err = {.code = BR_OK};
    bool first = st->listener < 0, served = st->service != NULL;
    for (unsigned i = 0; i < STANDING_CONNS_MAX; i++) {
        struct conn *c = &st->conns[i];
        if (c->chan.fd < 0 || !c->waits)
            continue;
        if (code == 0)
            (void)put_row(c, &st->current);
        (void)conn_end(c, code, code < 0 ? why->text : "");
    }
    if (code == 0)
        log_current(st);
    else if (!first)
        log_refusal(why, served ? st->preparing.by : st->next.by,
                    served ? st->preparing.uid : st->next.row.pin.uid);
    if (served && !first)
        (void)service_settle(st->service, code == 0, NULL);
    if (first && code == 0)
        code = listen_there(st, &err);
    if (first && served && code == 0) /* its runs take their policy from the socket */
        code = service_settle(st->service, true, &err);
    if (first && code < 0) {
        st->failed = code;
        st->why = err.code ? err : *why;
        leave(st);
        return;
    }
    if (st->again)
        reload_by_signal(st, st->again_uid);
}

/* ---- life ---- */

static int on_signal(void *ctx, int fd, short revents, struct br_err *err)
{
    struct standing *st = ctx;
    struct signalfd_siginfo si;
    (void)revents, (void)err;
    if (read(fd, &si, sizeof(si)) != (ssize_t)sizeof(si))
        return 0;
    if (si.ssi_signo == SIGHUP) {
        reload_by_signal(st, si.ssi_uid);
    } else if (st->service) {
        service_signal(st->service);
    } else if (st->draining || st->listener < 0 || pinned(st) == 0) {
        leave(st);
    } else {
        st->draining = true;
        br_log(BR_LOG_INFO, "no new session begins; %u that have a policy from here go on",
               pinned(st));
    }
    return 0;
}

static int open_all(struct standing *st, struct br_err *err)
{
    sigset_t set;
    ssize_t n = readlink("/proc/self/exe", st->program, sizeof(st->program) - 1);
    if (n <= 0)
        return br_err_errno(err, BR_E_FAILED, "this program was not found");
    st->program[n] = 0;
    int r = br_state_path(st->state_dir, getenv, err);
    if (r < 0 || (st->state_fd = r = br_state_open(st->state_dir, err)) < 0 ||
        (!st->beside && (r = lock_place(st, err)) < 0))
        return r;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, &st->old_mask);
    st->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    st->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (st->signals < 0 || st->epoll < 0 ||
        br_loop_watch(st->loop, st->signals, POLLIN, on_signal, st) < 0 ||
        br_loop_watch(st->loop, st->epoll, POLLIN, on_conns, st) < 0)
        return br_err_errno(err, BR_E_FAILED, "signals could not be watched");
    return 0;
}

static void close_all(struct standing *st)
{
    if (st->service)
        service_close(st->service);
    if (st->listener >= 0 && !st->beside)
        (void)unlinkat(st->state_fd, STANDING_SOCKET, 0);
    br_close(&st->listener);
    if (st->next.pid > 0) {
        (void)syscall(SYS_pidfd_send_signal, st->next.pidfd, SIGKILL, NULL, 0);
        while (waitpid(st->next.pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    br_chan_close(&st->next.control);
    br_close(&st->next.session);
    br_close(&st->next.pidfd);
    br_buf_free(&st->next.text);
    for (unsigned i = 0; i < STANDING_CONNS_MAX; i++)
        br_chan_close(&st->conns[i].chan);
    br_buf_free(&st->text);
    br_close(&st->signals);
    br_close(&st->epoll);
    br_close(&st->lock);
    br_close(&st->state_fd);
    br_loop_free(&st->loop);
}

int standing_serve(struct standing *st, struct br_err *err)
{
    st->state_fd = st->listener = st->epoll = st->signals = st->lock = -1;
    st->next.session = st->next.pidfd = st->next.control.fd = -1;
    br_buf_init(&st->text, BR_POLICY_MAX);
    br_buf_init(&st->next.text, BR_POLICY_MAX);
    for (unsigned i = 0; i < STANDING_CONNS_MAX; i++)
        st->conns[i].chan.fd = -1;
    st->loop = br_loop_new();
    br_require(st->loop);
    int r = open_all(st, err);
    if (r == 0 && st->service)
        r = service_open(st->service, st, err);
    if (r == 0)
        r = replace_begin(st, st->asked_path, BR_POLICY_BY_START, geteuid(), err);
    if (r == 0)
        r = br_loop_run(st->loop, &st->leave, err);
    if (r == 0 && st->failed) {
        r = st->failed;
        *err = st->why;
    }
    if (r < 0 && st->service && !st->service->listening)
        service_outcome(st->service, err);
    close_all(st);
    return r;
}
