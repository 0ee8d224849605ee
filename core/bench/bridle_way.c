/*
 * bridle-broker and bridle-egress as a run has them: with their own confinement, a lease, and a
 * socket on which a guest's requests arrive. This process is in the place of bridled and of the
 * guest; a child is in that of the session and reads what the broker tells it.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/bridle_way.h"
#include "wire/types.h"
#include "wire/wire.h"

#define ENOUGH_BYTES (1ull << 40)
#define TIMEOUT_S 60u

struct bench_bridle {
    pid_t broker, egress, session;
    struct br_chan to_broker, to_egress;
    char ready[BR_NAME_MAX], text[BR_ERR_TEXT_MAX];
};

static int on_ready(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct bench_bridle *b = ctx;
    (void)c;
    (void)err;
    br_rd_str(&m->rd, b->ready, sizeof(b->ready));
    br_rd_str(&m->rd, b->text, sizeof(b->text));
    return 0;
}

static const struct br_msg_rule ready_rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_ready},
};

static int program(struct bench_bridle *b, const char *name, pid_t *pid, struct br_chan *c,
                   struct br_err *err)
{
    int end, r = bench_role_start(name, false, pid, &end, err);
    br_chan_init(c, end, name, ready_rules, BR_ARRAY_LEN(ready_rules), b);
    return r;
}

static int wait_ready(struct bench_bridle *b, struct br_chan *c, struct br_err *err)
{
    b->ready[0] = '\0';
    int r = br_chan_dispatch(c, err);
    if (r == 0 && strcmp(b->ready, br_code_name(BR_OK)) != 0)
        r = br_err_set(err, BR_E_FAILED, "the provider's path did not start: %s", b->text);
    return r;
}

static int start_egress(struct bench_bridle *b, uint16_t port, int broker, struct br_err *err)
{
    char url[64];
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/v1", port);
    br_out_fd(&o, broker, true);
    br_buf_put_str(&o.buf, url);
    br_buf_put_str(&o.buf, "");
    br_buf_put_u8(&o.buf, BR_KEY_NONE);
    br_buf_put_u8(&o.buf, BR_AUTH_BEARER);
    br_buf_put_str(&o.buf, "");
    br_buf_put_str(&o.buf, "");
    for (int i = 0; i < 4; i++)
        br_buf_put_u32(&o.buf, TIMEOUT_S);
    br_buf_put_u8(&o.buf, 0);
    int r = program(b, "bridle-egress", &b->egress, &b->to_egress, err);
    if (r == 0)
        r = br_chan_send(&b->to_egress, BR_MSG_EGRESS_START, 1, &o, err);
    return r < 0 ? r : wait_ready(b, &b->to_egress, err);
}

static int start_broker(struct bench_bridle *b, const struct bench_way *w, int session, int egress,
                        struct br_err *err)
{
    struct br_lease lease = {.max_requests = UINT32_MAX,
                             .max_request_bytes = ENOUGH_BYTES,
                             .max_response_bytes = ENOUGH_BYTES,
                             .max_tokens = ENOUGH_BYTES,
                             .seconds = 3600,
                             .max_answer_tokens = 1000,
                             .max_in_flight = 256,
                             .routes = BR_ROUTE_CHAT,
                             .answers = BR_ANSWERS_STRICT};
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    snprintf(lease.token, sizeof(lease.token), "%s", w->token);
    br_buf_put_str(&o.buf, "run_bench");
    br_buf_put_str(&o.buf, "bench");
    br_lease_put(&o.buf, &lease);
    br_out_fd(&o, session, true);
    br_out_fd(&o, egress, true);
    int r = program(b, "bridle-broker", &b->broker, &b->to_broker, err);
    if (r == 0)
        r = br_chan_send(&b->to_broker, BR_MSG_BROKER_START, 1, &o, err);
    return r < 0 ? r : wait_ready(b, &b->to_broker, err);
}

/* Reads what the broker says of each request, and ends with it. */
static pid_t session_start(int fd)
{
    static char block[BR_MSG_MAX + 64];
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    br_close_from(3, &fd, 1);
    while (recv(fd, block, sizeof(block), 0) > 0) {
    }
    _exit(0);
}

static int listen_guest(struct bench_bridle *b, struct bench_way *w, struct br_err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(w->path, sizeof(w->path), "%s/provider.sock", bench_scratch());
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", w->path);
    BR_CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0 ||
        bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 256) < 0)
        return br_err_errno(err, BR_E_IO, "the guest's socket could not be made");
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u64(&o.buf, 0);
    br_out_fd(&o, fd, false);
    return br_chan_send(&b->to_broker, BR_MSG_BROKER_LISTEN, 0, &o, err);
}

int bench_bridle_open(struct bench_bridle **out, uint16_t port, struct bench_way *w,
                      struct br_err *err)
{
    struct bench_bridle *b = calloc(1, sizeof(*b));
    int session[2] = {-1, -1}, egress[2] = {-1, -1};
    uint8_t raw[32];
    if (!b || br_chan_pair(session) < 0 || br_chan_pair(egress) < 0) {
        free(b);
        return br_err_errno(err, BR_E_IO, "no channels for the provider's path");
    }
    *out = b;
    b->to_broker.fd = b->to_egress.fd = -1;
    w->name = "Bridle";
    br_random(raw, sizeof(raw));
    br_hex(w->token, raw, sizeof(raw));
    b->session = session_start(session[0]);
    int r = start_egress(b, port, egress[1], err);
    if (r == 0)
        r = start_broker(b, w, session[1], egress[0], err);
    br_close(&session[0]);
    return r < 0 ? r : listen_guest(b, w, err);
}

static void reap(pid_t pid)
{
    if (pid > 0)
        (void)waitpid(pid, NULL, 0);
}

void bench_bridle_close(struct bench_bridle **pb)
{
    struct bench_bridle *b = *pb;
    if (!b)
        return;
    br_chan_close(&b->to_broker);
    br_chan_close(&b->to_egress);
    reap(b->broker);
    reap(b->egress);
    reap(b->session);
    free(b);
    *pb = NULL;
}
