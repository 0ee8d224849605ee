/*
 * Whose is the other end of a loopback connection: the answer, and everything for which there must
 * be none. Inside of this process, with sockets of its own.
 */
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* what happens between the question to the kernel and its answer */
static void (*before_asking)(void), (*after_asking)(void);
static ssize_t asking(int fd, const void *p, size_t n, int flags, const struct sockaddr *to,
                      socklen_t nto)
{
    if (before_asking)
        before_asking();
    ssize_t r = sendto(fd, p, n, flags, to, nto);
    if (after_asking)
        after_asking();
    return r;
}
#define sendto asking
#include "diag/diag.c"
#undef sendto

struct pair {
    int listener, ours, theirs;
};

static socklen_t address(struct sockaddr_storage *ss, int family, const char *text, uint16_t port)
{
    struct sockaddr_in *in = (struct sockaddr_in *)ss;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;
    memset(ss, 0, sizeof(*ss));
    ss->ss_family = (sa_family_t)family;
    if (family == AF_INET) {
        in->sin_port = htons(port);
        assert_int_equal(inet_pton(family, text, &in->sin_addr), 1);
        return sizeof(*in);
    }
    in6->sin6_port = htons(port);
    assert_int_equal(inet_pton(family, text, &in6->sin6_addr), 1);
    return sizeof(*in6);
}

static uint16_t port_of(int fd)
{
    struct sockaddr_storage ss;
    socklen_t n = sizeof(ss);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&ss, &n), 0);
    return ntohs(ss.ss_family == AF_INET ? ((struct sockaddr_in *)&ss)->sin_port
                                         : ((struct sockaddr_in6 *)&ss)->sin6_port);
}

/* A client's socket, bound to a port (0: any), connected. */
static int connect_from(int family, uint16_t from, const char *to, uint16_t port)
{
    struct sockaddr_storage ss;
    int one = 1, fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
    if (from) {
        socklen_t n = address(&ss, family, family == AF_INET ? "127.0.0.1" : "::1", from);
        assert_int_equal(bind(fd, (struct sockaddr *)&ss, n), 0);
    }
    socklen_t n = address(&ss, family, to, port);
    assert_int_equal(connect(fd, (struct sockaddr *)&ss, n), 0);
    return fd;
}

static void pair_make_at(struct pair *p, int family, const char *on, int client, const char *to,
                         uint16_t port, uint16_t from)
{
    struct sockaddr_storage ss;
    int zero = 0;
    p->listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(p->listener >= 0);
    if (family == AF_INET6)
        (void)setsockopt(p->listener, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    socklen_t n = address(&ss, family, on, port);
    assert_int_equal(bind(p->listener, (struct sockaddr *)&ss, n), 0);
    assert_int_equal(listen(p->listener, 8), 0);
    p->theirs = connect_from(client, from, to, port_of(p->listener));
    p->ours = accept(p->listener, NULL, NULL);
    assert_true(p->ours >= 0);
}

/* A free port that the kernel gives to nobody by itself, so that it is still there later. */
static uint16_t quiet_port(void)
{
    struct sockaddr_storage ss;
    static unsigned tries;
    for (;;) {
        uint16_t port = (uint16_t)(16000 + ((unsigned)getpid() * 7 + tries++ * 13) % 16000);
        int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(fd >= 0 && tries < 1000);
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
        bool is_free =
            bind(fd, (struct sockaddr *)&ss, address(&ss, AF_INET, "127.0.0.1", port)) == 0;
        close(fd);
        if (is_free)
            return port;
    }
}

static void pair_make(struct pair *p, int family, const char *on, int client, const char *to)
{
    pair_make_at(p, family, on, client, to, 0, 0);
}

static void pair_end(struct pair *p)
{
    br_close(&p->listener);
    br_close(&p->ours);
    br_close(&p->theirs);
}

static void families(void **state)
{
    static const struct {
        int family;
        const char *on;
        int client;
        const char *to;
    } rows[] = {
        {AF_INET, "127.0.0.1", AF_INET, "127.0.0.1"},
        {AF_INET, "0.0.0.0", AF_INET, "127.9.8.7"},
        {AF_INET6, "::1", AF_INET6, "::1"},
        {AF_INET6, "::", AF_INET6, "::1"},
        {AF_INET6, "::", AF_INET, "127.0.0.1"},               /* ours is IPv6 with IPv4 inside */
        {AF_INET, "127.0.0.1", AF_INET6, "::ffff:127.0.0.1"}, /* theirs is */
        {AF_INET6, "::", AF_INET6, "::ffff:127.0.0.1"},       /* both are */
    };
    int diag = br_diag_open();
    (void)state;
    assert_true(diag >= 0);
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct pair p;
        uid_t uid = 4242;
        pair_make(&p, rows[i].family, rows[i].on, rows[i].client, rows[i].to);
        if (br_diag_peer_uid(diag, p.ours, &uid) != 0)
            fail_msg("row %zu", i);
        assert_int_equal(uid, geteuid());
        pair_end(&p);
    }
    close(diag);
}

static void nobody(void **state)
{
    struct pair p;
    uid_t uid = 4242;
    int diag = br_diag_open(), ends[2];
    (void)state;
    /* another kind of socket */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_int_equal(br_diag_peer_uid(diag, ends[0], &uid), -1);
    /* a listener, and no way to ask */
    pair_make(&p, AF_INET, "127.0.0.1", AF_INET, "127.0.0.1");
    assert_int_equal(br_diag_peer_uid(diag, p.listener, &uid), -1);
    assert_int_equal(br_diag_peer_uid(-1, p.ours, &uid), -1);
    assert_int_equal(br_diag_peer_uid(diag, p.ours, &uid), 0); /* control */
    uid = 4242;
    /* who has closed is nobody, though its bytes can still be read */
    assert_int_equal(write(p.theirs, "x", 1), 1);
    br_close(&p.theirs);
    assert_int_equal(br_diag_peer_uid(diag, p.ours, &uid), -1);
    assert_int_equal(read(p.ours, &(char){0}, 1), 1);
    pair_end(&p);
    assert_int_equal(uid, 4242);
    br_close(&ends[0]);
    br_close(&ends[1]);
    close(diag);
}

/*
 * A connection is reset behind its request, and somebody else comes from the same port: of the
 * first one nothing may be said, though the kernel knows a socket with exactly its addresses.
 */
static void port_again(void **state)
{
    struct pair p;
    struct linger reset = {.l_onoff = 1};
    uid_t uid = 4242;
    int diag = br_diag_open();
    (void)state;
    pair_make_at(&p, AF_INET, "127.0.0.1", AF_INET, "127.0.0.1", 0, quiet_port());
    uint16_t from = port_of(p.theirs);
    assert_int_equal(write(p.theirs, "request", 7), 7);
    assert_int_equal(setsockopt(p.theirs, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
    br_close(&p.theirs);
    p.theirs = connect_from(AF_INET, from, "127.0.0.1", port_of(p.listener));
    int second = accept(p.listener, NULL, NULL);
    assert_true(second >= 0);
    assert_int_equal(br_diag_peer_uid(diag, p.ours, &uid), -1);
    assert_int_equal(uid, 4242);
    assert_int_equal(br_diag_peer_uid(diag, second, &uid), 0); /* control: it is this one's */
    close(second);
    pair_end(&p);
    close(diag);
}

/* The same, while the kernel is asked: its answer is about the other one. */
static struct pair racing;
static int second;

static void reset_first(void)
{
    struct linger reset = {.l_onoff = 1};
    assert_int_equal(setsockopt(racing.theirs, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
    br_close(&racing.theirs);
}

static void reuse_port(void)
{
    uint16_t from = port_of(racing.theirs);
    reset_first();
    racing.theirs = connect_from(AF_INET, from, "127.0.0.1", port_of(racing.listener));
    second = accept(racing.listener, NULL, NULL);
    assert_true(second >= 0);
}

static void close_first(void)
{
    br_close(&racing.theirs);
}

static void race(void **state)
{
    uid_t uid = 4242;
    int diag = br_diag_open();
    (void)state;
    pair_make_at(&racing, AF_INET, "127.0.0.1", AF_INET, "127.0.0.1", 0, quiet_port());
    before_asking = reuse_port;
    assert_int_equal(br_diag_peer_uid(diag, racing.ours, &uid), -1);
    before_asking = NULL;
    assert_int_equal(br_diag_peer_uid(diag, second, &uid), 0); /* control */
    uid = 4242;
    br_close(&second);
    pair_end(&racing);
    void (*const ends[])(void) = {reset_first, close_first};
    for (size_t i = 0; i < BR_ARRAY_LEN(ends); i++) { /* it was there, and is no more */
        pair_make(&racing, AF_INET, "127.0.0.1", AF_INET, "127.0.0.1");
        after_asking = ends[i];
        assert_int_equal(br_diag_peer_uid(diag, racing.ours, &uid), -1);
        after_asking = NULL;
        pair_end(&racing);
    }
    assert_int_equal(uid, 4242);
    close(diag);
}

static void up(void)
{
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &lo) < 0)
        _exit(9);
    close(fd);
}

/* The same addresses in another network namespace are other sockets. */
static void other_namespace(void **state)
{
    int status;
    (void)state;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct pair here, p;
        uid_t uid;
        int outside = br_diag_open();
        pair_make(&here, AF_INET, "127.0.0.1", AF_INET, "127.0.0.1");
        if (br_diag_peer_uid(outside, here.ours, &uid) != 0)
            _exit(3); /* control */
        if (unshare((geteuid() ? CLONE_NEWUSER : 0) | CLONE_NEWNET) < 0)
            _exit(8);
        up();
        pair_make_at(&p, AF_INET, "127.0.0.1", AF_INET, "127.0.0.1", port_of(here.listener),
                     port_of(here.theirs));
        int inside = br_diag_open();
        if (br_diag_peer_uid(outside, p.ours, &uid) == 0)
            _exit(1);
        if (geteuid() == 0 && br_diag_peer_uid(inside, p.ours, &uid) != 0)
            _exit(2); /* control */
        _exit(0);
    }
    assert_true(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Nobody has accepted it: it is not root's, whatever the kernel says, nor that of who listens. */
static void not_accepted(void **state)
{
    struct pair p;
    struct sockaddr_storage ss;
    uid_t uid = 4242;
    int diag = br_diag_open(), wait = 100;
    (void)state;
    for (unsigned deferred = 0; deferred < 2; deferred++) {
        p.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(p.listener >= 0);
        if (deferred)
            assert_int_equal(
                setsockopt(p.listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &wait, sizeof(wait)), 0);
        socklen_t n = address(&ss, AF_INET, "127.0.0.1", 0);
        assert_int_equal(bind(p.listener, (struct sockaddr *)&ss, n), 0);
        assert_int_equal(listen(p.listener, 8), 0);
        p.theirs = connect_from(AF_INET, 0, "127.0.0.1", port_of(p.listener));
        assert_int_equal(br_diag_peer_uid(diag, p.theirs, &uid), 1);
        assert_int_equal(uid, 4242);
        assert_int_equal(write(p.theirs, "x", 1), 1); /* what a deferred one waits for */
        p.ours = accept(p.listener, NULL, NULL);
        assert_true(p.ours >= 0);
        assert_int_equal(br_diag_peer_uid(diag, p.theirs, &uid), 0);
        assert_int_equal(uid, geteuid());
        uid = 4242;
        pair_end(&p);
    }
    close(diag);
}

/* It is that of who accepts it, whoever listens. */
static void accepted_by(void **state)
{
    enum { STRANGER = 54321 };
    struct pair p;
    struct sockaddr_storage ss;
    uid_t uid = 4242, who = geteuid() == 0 ? STRANGER : geteuid();
    int diag = br_diag_open(), done[2];
    (void)state;
    assert_int_equal(pipe(done), 0);
    p.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t n = address(&ss, AF_INET, "127.0.0.1", 0);
    assert_int_equal(bind(p.listener, (struct sockaddr *)&ss, n), 0);
    assert_int_equal(listen(p.listener, 8), 0);
    p.theirs = connect_from(AF_INET, 0, "127.0.0.1", port_of(p.listener));
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char byte;
        close(done[1]);
        if (setresuid(who, who, who) < 0 || accept(p.listener, NULL, NULL) < 0)
            _exit(1);
        _exit(read(done[0], &byte, 1) != 0);
    }
    close(done[0]);
    int r;
    unsigned early = 0; /* the kernel gives it its socket a moment before it gives it its owner */
    do
        r = br_diag_peer_uid(diag, p.theirs, &uid);
    while (r == 1 || (r == 0 && uid != who && early++ < 1000));
    assert_int_equal(r, 0);
    assert_int_equal(uid, who);
    close(done[1]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(p.theirs);
    close(p.listener);
    close(diag);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families),        cmocka_unit_test(nobody),
        cmocka_unit_test(port_again),      cmocka_unit_test(race),
        cmocka_unit_test(other_namespace), cmocka_unit_test(not_accepted),
        cmocka_unit_test(accepted_by),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
