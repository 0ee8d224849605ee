/*
 * The first steps of a connection to a service: name, socket, TLS. Plain TCP reaches addresses of
 * this machine only, whatever a name resolves to; everything else goes through bridle-tls, which
 * has the keys and checks the server's certificate against the host of the URL. Used by remote.c.
 *
 * Without TLS the kernel says who is at the other end, before a byte is sent: anybody on this
 * machine can listen at the port of a service that does not run, and would be given the token.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/remote_priv.h"
#include "diag/diag.h"
#include "wire/types.h"

#define PEM_MAX (1024u * 1024)
#define LEAVE_MS 2000u
#define CONTROL_FD 3

int br_remote_wait(int fd, short events, uint64_t until)
{
    for (;;) {
        uint64_t now = br_now_us();
        if (now >= until)
            return -BR_E_TIMEOUT;
        struct pollfd p = {.fd = fd, .events = events};
        int r = poll(&p, 1, (int)((until - now + 999) / 1000));
        if (r > 0)
            return 0;
        if (r < 0 && errno != EINTR)
            return -BR_E_IO;
    }
}

/* ---- who listens? ---------------------------------------------------------------------------- */

struct trust {
    bool any, more;
    uid_t uid; /* of `more` */
};

static int trust_read(struct trust *t, const char *text, struct br_err *err)
{
    char *end = NULL;
    *t = (struct trust){.any = text && strcmp(text, "any") == 0, .more = text != NULL};
    if (!text || t->any)
        return 0;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (errno || *end || *text < '0' || *text > '9' || n >= UINT32_MAX)
        return br_err_set(err, BR_E_USAGE,
                          "'--server-uid %.40s': that is neither the number of a user nor 'any'; "
                          "nothing was connected",
                          text);
    t->uid = (uid_t)n;
    return 0;
}

static int trust_uid(const struct trust *t, uid_t uid, const char *where, struct br_err *err)
{
    bool own = uid == getuid() && uid != BR_DIAG_UID_OVERFLOW;
    bool roots = uid == 0 || uid == BR_UID_GATEWAY || uid == BR_UID_TLS; /* who accepts for it */
    if (t->any || own || roots || (t->more && uid == t->uid))
        return 0;
    return br_err_set(err, BR_E_DENIED,
                      "who listens at '%.256s' is uid %u: neither you (uid %u), nor root, nor a "
                      "service that root runs; nothing was sent to it. If it is the service that "
                      "you mean: --server-uid %u",
                      where, (unsigned)uid, (unsigned)getuid(), (unsigned)uid);
}

/* The one that has accepted, which may take it a moment. */
static int check_net(int fd, const struct trust *t, const char *where, uint64_t until,
                     struct br_err *err)
{
    uid_t uid;
    int r = 1;
    if (t->any)
        return 0;
    BR_CLEANUP_FD int diag = br_diag_open();
    while ((r = br_diag_peer_uid(diag, fd, &uid)) == 1 && br_now_us() < until)
        (void)poll(NULL, 0, 2);
    if (r == 1)
        return br_err_set(err, BR_E_TIMEOUT,
                          "who listens at '%.256s' did not accept the connection in time; nothing "
                          "was sent to it",
                          where);
    if (r < 0)
        return br_err_set(
            err, BR_E_DENIED,
            "the kernel does not say whose the server at '%.256s' is (it has closed, "
            "is in another network namespace, or the kernel cannot be asked); nothing "
            "was sent to it. Use its Unix socket or wss://, or, where you trust "
            "everybody on this machine: --server-uid any",
            where);
    return trust_uid(t, uid, where, err);
}

/* The one that listens. */
static int check_local(int fd, const struct trust *t, const char *where, struct br_err *err)
{
    struct ucred peer = {.uid = BR_DIAG_UID_OVERFLOW};
    socklen_t n = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0)
        return br_err_errno(err, BR_E_DENIED, "whose the server at '%.256s' is could not be told",
                            where);
    return trust_uid(t, peer.uid, where, err);
}

/* ---- sockets -------------------------------------------------------------------------------- */

/* 0, or an errno. */
static int connect_until(int fd, const struct sockaddr *sa, socklen_t n, uint64_t until)
{
    int e = 0;
    socklen_t len = sizeof(e);
    if (connect(fd, sa, n) == 0)
        return 0;
    if (errno == EAGAIN && sa->sa_family == AF_UNIX) /* its backlog is full */
        return EAGAIN;
    if (errno != EINPROGRESS && errno != EINTR)
        return errno;
    if (br_remote_wait(fd, POLLOUT, until) < 0)
        return ETIMEDOUT;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0 ? errno : e;
}

static int no_connection(struct br_err *err, const char *where, int e)
{
    enum br_code code = e == ETIMEDOUT ? BR_E_TIMEOUT : e == EACCES ? BR_E_DENIED : BR_E_PEER_GONE;
    errno = e;
    if (e == ECONNREFUSED || e == ENOENT)
        return br_err_set(err, code,
                          "no service listens at '%.256s'; nothing was connected. Start one with "
                          "'bridle serve'",
                          where);
    return br_err_errno(err, code, "'%.256s' could not be connected", where);
}

static int dial_local(const struct br_cli_url *u, const struct trust *t, uint64_t until, int *out,
                      struct br_err *err)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    BR_CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    memcpy(sa.sun_path, u->socket, strlen(u->socket) + 1);
    int e = fd < 0 ? errno : EAGAIN;
    while (fd >= 0 && e == EAGAIN && br_now_us() < until) {
        e = connect_until(fd, (struct sockaddr *)&sa, sizeof(sa), until);
        if (e == EAGAIN)
            (void)poll(NULL, 0, 20);
    }
    if (e)
        return no_connection(err, u->socket, e == EAGAIN ? ETIMEDOUT : e);
    int r = check_local(fd, t, u->socket, err);
    if (r < 0)
        return r;
    *out = br_steal_fd(&fd);
    return 0;
}

static bool is_loopback(const struct sockaddr *sa)
{
    if (sa->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)sa)->sin_addr.s_addr) >> 24 == 127;
    return sa->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr);
}

static int dial_net(const struct br_cli_url *u, const struct trust *t, uint64_t until, int *out,
                    struct br_err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list = NULL;
    char port[8];
    snprintf(port, sizeof(port), "%u", (unsigned)u->port);
    int r = getaddrinfo(u->host, port, &hints, &list);
    if (r != 0)
        return br_err_set(err, BR_E_PEER_GONE, "the host '%s' has no address: %s", u->host,
                          gai_strerror(r));
    int e = EADDRNOTAVAIL, one = 1;
    BR_CLEANUP_FD int fd = -1;
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        if (!u->tls && !is_loopback(a->ai_addr))
            continue; /* somebody's idea of localhost */
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        e = fd < 0 ? errno : connect_until(fd, a->ai_addr, a->ai_addrlen, until);
        if (e)
            br_close(&fd);
    }
    freeaddrinfo(list);
    if (fd < 0)
        return no_connection(err, u->authority, e);
    r = u->tls ? 0 : check_net(fd, t, u->authority, until, err);
    if (r < 0)
        return r;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    *out = br_steal_fd(&fd);
    return 0;
}

int br_remote_dial(const struct br_cli_url *u, const struct br_cli_remote_options *o, int *out,
                   struct br_err *err)
{
    uint64_t until = br_now_us() + o->seconds * 1000000ull;
    struct trust t;
    int r = trust_read(&t, o->server_uid, err);
    if (r < 0)
        return r;
    return u->local ? dial_local(u, &t, until, out, err) : dial_net(u, &t, until, out, err);
}

/* ---- TLS ------------------------------------------------------------------------------------ */

static _Noreturn void become_tls(const char *path, int fd)
{
    char *const argv[] = {(char *)"bridle-tls", NULL};
    (void)setsid();
    signal(SIGPIPE, SIG_DFL);
    if (fd == CONTROL_FD)
        (void)fcntl(fd, F_SETFD, 0);
    else if (dup2(fd, CONTROL_FD) < 0)
        _exit(126);
    execv(path, argv);
    _exit(127);
}

struct handshake {
    bool done;
    char code[48], text[BR_ERR_TEXT_MAX];
};

static int on_shaken(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct handshake *h = ctx;
    (void)c;
    br_rd_str(&m->rd, h->code, sizeof(h->code));
    br_rd_str(&m->rd, h->text, sizeof(h->text));
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridle-tls' sent a malformed ROLE_READY");
    h->done = true;
    return 0;
}

static const struct br_msg_rule tls_rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT | BR_ONCE, 8, BR_ERR_TEXT_MAX + 64, 0, 0, on_shaken},
};

static int code_of(const char *name)
{
    for (int c = 0; c < BR_CODE_COUNT_; c++)
        if (strcmp(br_code_name(c), name) == 0)
            return c;
    return BR_E_FAILED;
}

static int put_pem(struct br_out *o, const char *path, const char *what, struct br_err *err)
{
    struct br_cli_file f = {.path = ""};
    if (!path) {
        br_out_blob(o, "", 0);
        return 0;
    }
    int r = br_cli_file_read(&f, path, what, BR_E_INVALID_CONFIG, PEM_MAX, err);
    if (r == 0)
        br_out_blob(o, f.text.data, f.text.len);
    if (f.text.data)
        explicit_bzero(f.text.data, f.text.cap); /* one of them is a key */
    br_cli_file_free(&f);
    return r;
}

/* What no TLS server says. */
static const char *hint_plain(const struct handshake *h)
{
    return strstr(h->text, "wrong version number") || strstr(h->text, "packet length too long") ||
                   strstr(h->text, "http request")
               ? "; who listens there seems to speak no TLS: without it the URL begins with ws://"
               : "";
}

/* Ask for the handshake on the channel, and wait for what came of it. */
static int ask_tls(int chan, const struct br_cli_url *u, const struct br_cli_remote_options *o,
                   int net, int plain, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out m = BR_OUT_INIT;
    struct handshake h = {.done = false};
    struct br_chan c;
    br_buf_put_str(&m.buf, u->host);
    int r = put_pem(&m, o->ca_file, "file of authorities", err);
    if (r == 0)
        r = put_pem(&m, o->cert, "certificate", err);
    if (r == 0)
        r = put_pem(&m, o->key, "private key", err);
    if (r < 0)
        return r;
    br_buf_put_u32(&m.buf, o->seconds);
    br_out_fd(&m, net, false);
    br_out_fd(&m, plain, false);
    br_chan_init(&c, chan, "tls", tls_rules, BR_ARRAY_LEN(tls_rules), &h);
    r = br_chan_send(&c, BR_MSG_TLS_CONNECT, 0, &m, err);
    if (m.buf.data)
        explicit_bzero(m.buf.data, m.buf.cap);
    uint64_t until = br_now_us() + (o->seconds + 2) * 1000000ull;
    if (r == 0 && br_remote_wait(chan, POLLIN, until) < 0)
        r = br_err_set(err, BR_E_TIMEOUT, "'bridle-tls' did not answer in time");
    if (r == 0)
        r = br_chan_dispatch(&c, err);
    br_buf_free(&c.in_);
    if (r < 0)
        return r;
    int code = code_of(h.code);
    return code ? br_err_set(err, (enum br_code)code, "%s%s", h.text, hint_plain(&h)) : 0;
}

int br_remote_secure(const struct br_cli_url *u, const struct br_cli_remote_options *o, int *fd,
                     pid_t *pid, int *chan, struct br_err *err)
{
    char path[BR_PATH_MAX];
    int pair[2] = {-1, -1}, plain[2] = {-1, -1};
    int r = br_cli_program(path, "bridle-tls", err);
    if (r < 0)
        return r;
    if (br_chan_pair(pair) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, plain) < 0) {
        br_close(&pair[0]);
        br_close(&pair[1]);
        return br_err_errno(err, BR_E_FAILED, "no sockets for 'bridle-tls'");
    }
    *chan = pair[0];
    *pid = fork();
    if (*pid == 0)
        become_tls(path, pair[1]);
    br_close(&pair[1]);
    if (*pid < 0) {
        *pid = 0;
        r = br_err_errno(err, BR_E_FAILED, "'%s' could not be started", path);
    } else {
        r = ask_tls(*chan, u, o, *fd, plain[1], err);
    }
    br_close(&plain[1]);
    br_close(fd);
    *fd = plain[0];
    return r;
}

void br_remote_reap(pid_t pid)
{
    if (pid <= 0)
        return;
    uint64_t until = br_now_us() + LEAVE_MS * 1000u;
    while (br_now_us() < until) {
        if (waitpid(pid, NULL, WNOHANG) != 0)
            return;
        (void)poll(NULL, 0, 5);
    }
    (void)kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}
