/*
 * core/wire: what a receiver's table lets through and what ends the peer, descriptors that must
 * never be left open, blobs, the loop, and the encoders of the structures that cross channels.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/test_tools.h"
#include "wire/types.h"
#include "wire/wire.h"

/* ---- a receiver ---- */

static struct br_chan rx, tx;
static unsigned calls;
static enum br_msg_type last_type;
static uint64_t last_id;
static size_t last_len;
static int keep_fd; /* 1: the handler takes the first descriptor */
static int kept = -1;
static int handler_code;

static int on_msg(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)err;
    assert_ptr_equal(c, &rx);
    assert_ptr_equal(ctx, &calls);
    calls++;
    last_type = m->type;
    last_id = m->id;
    last_len = m->rd.len;
    if (keep_fd)
        kept = br_msg_take_fd(m);
    return handler_code;
}

static size_t blob_max;
static struct br_buf blob;
static int on_blob(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    (void)ctx;
    calls++;
    br_buf_free(&blob);
    int r = br_msg_blob(m, blob_max, &blob, err);
    return r < 0 ? r : br_rd_done(&m->rd);
}

static const struct br_msg_rule rules[] = {
    {BR_MSG_CTL_CANCEL, BR_PERMIT, 0, 0, 0, 0, on_msg},
    {BR_MSG_CTL_DOCTOR, BR_PERMIT | BR_ONCE, 0, 0, 0, 0, on_msg},
    {BR_MSG_CTL_SHOW, 0, 0, 0, 0, 0, on_msg},
    {BR_MSG_CTL_RUN, BR_PERMIT, 4, 8, 0, 0, on_msg},
    {BR_MSG_CTL_STARTED, BR_PERMIT, 0, 8, 1, 2, on_msg},
    {BR_MSG_SECRET, BR_PERMIT, 0, BR_MSG_MAX, 0, 1, on_blob},
    {BR_MSG_TEXT, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_msg},
};

static int setup(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(br_chan_pair(fds), 0);
    br_chan_init(&rx, fds[0], "peer", rules, BR_ARRAY_LEN(rules), &calls);
    br_chan_init(&tx, fds[1], "rx", NULL, 0, NULL);
    calls = 0;
    handler_code = keep_fd = 0;
    blob_max = BR_BLOB_MAX;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    br_chan_close(&rx);
    br_chan_close(&tx);
    br_buf_free(&blob);
    br_close(&kept);
    return 0;
}

static int pass(enum br_msg_type type, uint64_t id, const void *p, size_t n, unsigned nfds,
                struct br_err *err)
{
    struct br_out o = BR_OUT_INIT;
    br_buf_put(&o.buf, p, n);
    for (unsigned i = 0; i < nfds; i++)
        br_out_fd(&o, 0, false);
    assert_int_equal(br_chan_send(&tx, type, id, &o, NULL), 0);
    br_out_free(&o);
    return br_chan_dispatch(&rx, err);
}

static void assert_violation(enum br_msg_type type, size_t n, unsigned nfds, const char *why)
{
    static const uint8_t zero[64];
    struct br_err err = {.code = BR_OK};
    unsigned before = calls, fds = test_open_fds();
    assert_int_equal(pass(type, 1, zero, n, nfds, &err), -BR_E_PEER_PROTOCOL);
    if (!strstr(err.text, why))
        fail_msg("not '%s': %s", why, err.text);
    assert_int_equal(calls, before); /* the handler did not see it */
    assert_int_equal(test_open_fds(), fds);
}

static void a_permitted_message_arrives(void **state)
{
    (void)state;
    assert_int_equal(pass(BR_MSG_CTL_RUN, 77, "12345", 5, 0, NULL), 0);
    assert_int_equal(calls, 1);
    assert_int_equal(last_type, BR_MSG_CTL_RUN);
    assert_int_equal(last_id, 77);
    assert_int_equal(last_len, 5);
    handler_code = -BR_E_STORE_FAILED; /* what a handler says comes back */
    assert_int_equal(pass(BR_MSG_CTL_CANCEL, 0, NULL, 0, 0, NULL), -BR_E_STORE_FAILED);
}

static void the_table_says_when(void **state)
{
    (void)state;
    assert_violation(BR_MSG_CTL_SHOW, 0, 0, "not permitted now");
    br_chan_permit(&rx, BR_MSG_CTL_SHOW);
    assert_int_equal(pass(BR_MSG_CTL_SHOW, 0, NULL, 0, 0, NULL), 0);
    assert_int_equal(pass(BR_MSG_CTL_SHOW, 0, NULL, 0, 0, NULL), 0);
    br_chan_forbid(&rx, BR_MSG_CTL_SHOW);
    assert_violation(BR_MSG_CTL_SHOW, 0, 0, "not permitted now");
    assert_int_equal(pass(BR_MSG_CTL_DOCTOR, 0, NULL, 0, 0, NULL), 0);
    assert_violation(BR_MSG_CTL_DOCTOR, 0, 0, "not permitted now"); /* once */
    assert_violation(BR_MSG_APPEND, 0, 0, "not permitted");         /* known, not in the table */
    assert_violation((enum br_msg_type)0xffff, 0, 0, "UNKNOWN (0xffff)");
    assert_violation((enum br_msg_type)0, 0, 0, "not permitted");
}

static void the_table_says_how_long(void **state)
{
    (void)state;
    assert_violation(BR_MSG_CTL_RUN, 3, 0, "3 bytes, not 4 to 8");
    assert_int_equal(pass(BR_MSG_CTL_RUN, 0, "1234", 4, 0, NULL), 0);
    assert_int_equal(pass(BR_MSG_CTL_RUN, 0, "12345678", 8, 0, NULL), 0);
    assert_violation(BR_MSG_CTL_RUN, 9, 0, "9 bytes, not 4 to 8");
    assert_violation(BR_MSG_CTL_CANCEL, 1, 0, "1 bytes, not 0 to 0");
    uint8_t *big = calloc(1, BR_MSG_MAX);
    assert_int_equal(pass(BR_MSG_TEXT, 0, big, BR_MSG_MAX, 0, NULL), 0);
    assert_int_equal(last_len, BR_MSG_MAX);
    free(big);
}

static void descriptors_are_counted_and_closed(void **state)
{
    (void)state;
    unsigned before = test_open_fds();
    assert_violation(BR_MSG_CTL_STARTED, 0, 0, "0 descriptors, not 1 to 2");
    assert_int_equal(pass(BR_MSG_CTL_STARTED, 0, NULL, 0, 1, NULL), 0);
    assert_int_equal(test_open_fds(), before); /* the handler took none */
    assert_int_equal(pass(BR_MSG_CTL_STARTED, 0, NULL, 0, 2, NULL), 0);
    assert_int_equal(test_open_fds(), before);
    assert_violation(BR_MSG_CTL_STARTED, 0, 3, "3 descriptors, not 1 to 2");
    assert_violation(BR_MSG_CTL_STARTED, 0, BR_MSG_FDS_MAX, "8 descriptors");
    assert_violation(BR_MSG_CTL_CANCEL, 0, 1, "1 descriptors, not 0 to 0");
    assert_violation(BR_MSG_APPEND, 0, 4, "not permitted");
    keep_fd = 1;
    assert_int_equal(pass(BR_MSG_CTL_STARTED, 0, NULL, 0, 2, NULL), 0);
    assert_int_equal(test_open_fds(), before + 1); /* one was taken, the other closed */
    assert_true(fcntl(kept, F_GETFD) & FD_CLOEXEC);
}

/* What a peer can do that does not use our sender. */
static void send_raw(const void *p, size_t n, unsigned nfds)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * 16)];
    } ctl = {.space = {0}};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)p, .iov_len = n};
    struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
    if (nfds) {
        mh.msg_control = ctl.space;
        mh.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
        struct cmsghdr *h = CMSG_FIRSTHDR(&mh);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
        memset(CMSG_DATA(h), 0, sizeof(int) * nfds); /* descriptor 0, many times */
    }
    assert_int_equal(sendmsg(tx.fd, &mh, 0), n);
}

static void raw_messages_are_checked(void **state)
{
    (void)state;
    static const struct {
        struct br_msg_header head;
        size_t n; /* bytes sent */
        unsigned nfds;
        int code;
    } cases[] = {
        {{.type = BR_MSG_CTL_RUN, .len = 4}, 20, 0, 0}, /* the control */
        {{.type = BR_MSG_CTL_RUN, .len = 4}, 15, 0, -BR_E_PEER_PROTOCOL},
        {{.type = BR_MSG_CTL_RUN, .len = 4}, 1, 2, -BR_E_PEER_PROTOCOL},
        {{.type = BR_MSG_CTL_RUN, .len = 5}, 20, 0, -BR_E_PEER_PROTOCOL},
        {{.type = BR_MSG_CTL_RUN, .len = 3}, 20, 0, -BR_E_PEER_PROTOCOL},
        {{.type = BR_MSG_CTL_RUN, .len = UINT32_MAX}, 20, 0, -BR_E_PEER_PROTOCOL},
        {{.type = BR_MSG_CTL_RUN, .len = 4, .nfds = 1}, 20, 0, -BR_E_PEER_PROTOCOL},
        {{.type = BR_MSG_CTL_STARTED, .len = 4, .nfds = 1}, 20, 2, -BR_E_PEER_PROTOCOL},
        {{.type = BR_MSG_CTL_STARTED, .len = 4, .nfds = 0}, 20, 1, -BR_E_PEER_PROTOCOL},
        {{.type = BR_MSG_CTL_STARTED, .len = 4, .nfds = 9}, 20, 9, -BR_E_PEER_PROTOCOL},
        {{.type = BR_MSG_CTL_STARTED, .len = 4, .nfds = 16}, 20, 16, -BR_E_PEER_PROTOCOL},
        {{.type = BR_MSG_TEXT, .len = BR_MSG_MAX + 1}, BR_MSG_MAX + 17, 1, -BR_E_PEER_PROTOCOL},
        {{.type = BR_MSG_TEXT, .len = BR_MSG_MAX + 4000},
         BR_MSG_MAX + 4016,
         0,
         -BR_E_PEER_PROTOCOL},
        {{.type = 0}, 0, 1, -BR_E_PEER_GONE}, /* an empty datagram looks like the end */
    };
    unsigned before = test_open_fds();
    uint8_t *bytes = calloc(1, BR_MSG_MAX + 8192);
    for (unsigned i = 0; i < BR_ARRAY_LEN(cases); i++) {
        struct br_err err = {.code = BR_OK};
        memcpy(bytes, &cases[i].head, sizeof(cases[i].head));
        send_raw(bytes, cases[i].n, cases[i].nfds);
        unsigned n = calls;
        int r = br_chan_dispatch(&rx, &err);
        if (r != cases[i].code)
            fail_msg("case %u: %d %s", i, r, err.text);
        assert_int_equal(calls, n + (r == 0));
        if (test_open_fds() != before)
            fail_msg("case %u leaves descriptors open", i);
    }
    free(bytes);
}

static void the_end_of_a_peer(void **state)
{
    (void)state;
    struct br_err err = {.code = BR_OK};
    assert_int_equal(fcntl(rx.fd, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(br_chan_dispatch(&rx, &err), -BR_E_TIMEOUT); /* nothing there, still open */
    assert_int_equal(br_chan_send(&tx, BR_MSG_CTL_CANCEL, 0, NULL, NULL), 0);
    br_chan_close(&tx);
    assert_int_equal(br_chan_dispatch(&rx, &err), 0); /* what was sent before still counts */
    assert_int_equal(br_chan_dispatch(&rx, &err), -BR_E_PEER_GONE);
    assert_non_null(strstr(err.text, "'peer' has gone"));
    assert_int_equal(br_chan_send(&rx, BR_MSG_CTL_CANCEL, 0, NULL, &err), -BR_E_PEER_GONE);
    assert_int_equal(br_chan_send(&tx, BR_MSG_CTL_CANCEL, 0, NULL, &err), -BR_E_PEER_GONE);
}

static void a_full_channel_says_so(void **state)
{
    (void)state;
    int r = 0;
    assert_int_equal(fcntl(tx.fd, F_SETFL, O_NONBLOCK), 0);
    struct br_out o = BR_OUT_INIT;
    br_buf_put(&o.buf, "12345678", 8);
    for (unsigned i = 0; i < 100000 && r == 0; i++)
        r = br_chan_send(&tx, BR_MSG_CTL_RUN, 0, &o, NULL);
    assert_int_equal(r, -BR_E_TIMEOUT);
    br_out_free(&o);
}

/* ---- blobs ---- */

static int pass_blob(size_t n, bool as_memfd)
{
    struct br_out o = BR_OUT_INIT;
    uint8_t *p = malloc(n + 1);
    memset(p, 'b', n);
    if (as_memfd) {
        br_buf_put_u8(&o.buf, 1);
        br_buf_put_u64(&o.buf, n);
        br_out_fd(&o, br_memfd_sealed("b", p, n), true);
    } else {
        br_out_blob(&o, p, n);
    }
    assert_int_equal(br_chan_send(&tx, BR_MSG_SECRET, 0, &o, NULL), 0);
    br_out_free(&o);
    unsigned before = test_open_fds();
    int r = br_chan_dispatch(&rx, NULL);
    assert_int_equal(test_open_fds(), before);
    if (r == 0) {
        assert_int_equal(blob.len, n);
        assert_int_equal(n ? memcmp(blob.data, p, n) : 0, 0);
    }
    free(p);
    return r;
}

static void blobs_travel_both_ways(void **state)
{
    (void)state;
    unsigned before = test_open_fds();
    static const size_t sizes[] = {0,          1,       BR_BLOB_INLINE_MAX, BR_BLOB_INLINE_MAX + 1,
                                   BR_MSG_MAX, 1000000, BR_BLOB_MAX};
    for (unsigned i = 0; i < BR_ARRAY_LEN(sizes); i++)
        assert_int_equal(pass_blob(sizes[i], false), 0);
    assert_int_equal(pass_blob(10, true), 0); /* a peer may use a memfd for little, too */
    assert_int_equal(pass_blob(0, true), 0);
    assert_int_equal(test_open_fds(), before);
    struct br_out o = BR_OUT_INIT; /* over the maximum: not sent */
    uint8_t *p = calloc(1, BR_BLOB_MAX + 1);
    br_out_blob(&o, p, BR_BLOB_MAX + 1);
    assert_int_equal(br_chan_send(&tx, BR_MSG_SECRET, 0, &o, NULL), -BR_E_LIMIT_EXCEEDED);
    br_out_free(&o);
    free(p);
    assert_int_equal(test_open_fds(), before);
}

static void blobs_have_a_maximum(void **state)
{
    (void)state;
    blob_max = 100;
    for (int memfd = 0; memfd < 2; memfd++) {
        assert_int_equal(pass_blob(100, memfd), 0);
        assert_int_equal(pass_blob(101, memfd), -BR_E_PEER_PROTOCOL);
    }
    blob_max = BR_BLOB_INLINE_MAX + 1;
    assert_int_equal(pass_blob(BR_BLOB_INLINE_MAX + 1, false), 0);
    assert_int_equal(pass_blob(BR_BLOB_INLINE_MAX + 2, false), -BR_E_PEER_PROTOCOL);
}

static void bad_blobs_are_refused(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        blob_max = i == 7 ? 9 : 100;
        struct br_out o = BR_OUT_INIT;
        int fd = memfd_create("b", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        assert_int_equal(br_write_all(fd, "0123456789", 10), 0);
        unsigned before = test_open_fds() - 1; /* with fd gone */
        br_buf_put_u8(&o.buf, i == 6 ? 2 : i == 5 ? 0 : 1);
        if (i == 5)
            br_buf_put_u32(&o.buf, 1000); /* inline, but longer than the message */
        else
            br_buf_put_u64(&o.buf, i == 1 ? 11 : i == 2 ? 5 : i == 7 ? 9 : 10);
        if ((i >= 1 && i <= 3) || i == 7) /* 0 is not sealed; 7 is larger than it says */
            assert_int_equal(
                fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE),
                0);
        if (i == 3)
            br_buf_put_u8(&o.buf, 0); /* trailing byte */
        if (i < 4 || i == 7)
            br_out_fd(&o, fd, true);
        else
            close(fd); /* 4: says memfd, brings none */
        assert_int_equal(br_chan_send(&tx, BR_MSG_SECRET, 0, &o, NULL), 0);
        br_out_free(&o);
        assert_int_equal(br_chan_dispatch(&rx, NULL), -BR_E_PEER_PROTOCOL);
        assert_int_equal(test_open_fds(), before);
    }
}

static void outgoing_limits(void **state)
{
    (void)state;
    unsigned before = test_open_fds();
    struct br_out o = BR_OUT_INIT;
    uint8_t *p = calloc(1, BR_MSG_MAX + 1);
    br_buf_put(&o.buf, p, BR_MSG_MAX + 1);
    assert_int_equal(br_chan_send(&tx, BR_MSG_TEXT, 0, &o, NULL), -BR_E_LIMIT_EXCEEDED);
    br_out_free(&o);
    free(p);
    o = (struct br_out)BR_OUT_INIT;
    for (unsigned i = 0; i <= BR_MSG_FDS_MAX; i++)
        br_out_fd(&o, dup(0), true); /* the last does not fit and is closed all the same */
    assert_int_equal(br_chan_send(&tx, BR_MSG_TEXT, 0, &o, NULL), -BR_E_LIMIT_EXCEEDED);
    br_out_free(&o);
    assert_int_equal(test_open_fds(), before);
    o = (struct br_out)BR_OUT_INIT;
    br_out_fd(&o, -1, true);
    assert_int_equal(br_chan_send(&tx, BR_MSG_TEXT, 0, &o, NULL), -BR_E_LIMIT_EXCEEDED);
    br_out_free(&o);
}

static void names_of_types(void **state)
{
    (void)state;
    assert_string_equal(br_msg_name(BR_MSG_INIT_CALL), "INIT_CALL");
    assert_string_equal(br_msg_name(0), "UNKNOWN");
    assert_string_equal(br_msg_name(0xffffffff), "UNKNOWN");
}

/* ---- descriptors on their way, which the kernel counts per uid ---- */

#define IN_FLIGHT_UID 59796u
#define IN_FLIGHT_MAX 64

static int send_fds(int fd, int n)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * 50)];
    } ctl;
    memset(&ctl, 0, sizeof(ctl));
    struct iovec iov = {.iov_base = (char[]){'x'}, .iov_len = 1};
    struct msghdr mh = {.msg_iov = &iov,
                        .msg_iovlen = 1,
                        .msg_control = ctl.space,
                        .msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n)};
    struct cmsghdr *h = CMSG_FIRSTHDR(&mh);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n);
    for (int i = 0; i < n; i++)
        memcpy(CMSG_DATA(h) + (size_t)i * sizeof(int), &fd, sizeof(int));
    return sendmsg(fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? errno : 0;
}

/* Another process of this uid, which fills the count, says so, and ends after `ms`. */
static pid_t filler(int ms)
{
    int ready[2], pair[2];
    char c;
    if (pipe(ready) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        if (br_chan_pair(pair) < 0)
            _exit(1);
        while (send_fds(pair[0], 50) == 0)
            ;
        (void)!write(ready[1], "x", 1);
        usleep((useconds_t)ms * 1000);
        _exit(0);
    }
    (void)close(ready[1]);
    (void)!read(ready[0], &c, 1);
    (void)close(ready[0]);
    return pid;
}

/* In a process of its own: 0, or the step that was not as it should be. */
static int sender(void)
{
    struct rlimit l = {IN_FLIGHT_MAX, IN_FLIGHT_MAX};
    struct br_out o = BR_OUT_INIT;
    int pair[2], status;
    if (setrlimit(RLIMIT_NOFILE, &l) < 0 ||
        (getuid() == 0 && (setresgid(IN_FLIGHT_UID, IN_FLIGHT_UID, IN_FLIGHT_UID) < 0 ||
                           setresuid(IN_FLIGHT_UID, IN_FLIGHT_UID, IN_FLIGHT_UID) < 0)) ||
        br_chan_pair(pair) < 0)
        return 1;
    br_chan_init(&tx, pair[0], "peer", NULL, 0, NULL);
    br_out_fd(&o, pair[1], false);
    /* somebody else has them on their way, and is gone soon */
    pid_t other = filler(300);
    if (send_fds(pair[0], 1) != ETOOMANYREFS) /* control: without waiting */
        return 2;
    if (br_chan_send(&tx, BR_MSG_CTL_SHOW, 1, &o, NULL) != 0)
        return 3;
    if (waitpid(other, &status, 0) != other)
        return 4;
    /* and stays: an error, in the end */
    other = filler(60000);
    int r = br_chan_send(&tx, BR_MSG_CTL_SHOW, 1, &o, NULL);
    (void)kill(other, SIGKILL);
    (void)waitpid(other, &status, 0);
    return r == -BR_E_IO ? 0 : 5;
}

static void descriptors_of_others_on_their_way(void **state)
{
    int status = -1;
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        _exit(sender());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static uint64_t standing_clock(void)
{
    return 1;
}

/* Also with a clock that stands, and without a channel: it ends, and takes nothing away. */
static void looking_without_sleep(void **state)
{
    (void)state;
    const struct br_world standing = {.mono_us = standing_clock};
    struct br_chan none = {.fd = -1};
    assert_false(br_chan_soon(&rx, 50));
    assert_false(br_chan_soon(&none, 50));
    br_world_set(&standing);
    assert_false(br_chan_soon(&rx, 50));
    br_world_set(NULL);
    assert_int_equal(br_chan_send(&tx, BR_MSG_CTL_CANCEL, 1, NULL, NULL), 0);
    assert_true(br_chan_soon(&rx, 50));
    assert_int_equal(calls, 0);
    assert_int_equal(br_chan_dispatch(&rx, NULL), 0);
    assert_int_equal(calls, 1);
    assert_false(br_chan_soon(&rx, 0));
    br_chan_close(&tx);
    assert_true(br_chan_soon(&rx, 50));
    assert_int_equal(br_chan_dispatch(&rx, NULL), -BR_E_PEER_GONE);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_permitted_message_arrives),
        T(the_table_says_when),
        T(the_table_says_how_long),
        T(descriptors_are_counted_and_closed),
        T(raw_messages_are_checked),
        T(the_end_of_a_peer),
        T(a_full_channel_says_so),
        T(blobs_travel_both_ways),
        T(blobs_have_a_maximum),
        T(bad_blobs_are_refused),
        T(outgoing_limits),
        T(looking_without_sleep),
        cmocka_unit_test(descriptors_of_others_on_their_way),
        cmocka_unit_test(names_of_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
