/*
 * The rig of the provider tests; see test_rig.h. Test code: failures are cmocka assertions.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "broker/test_rig.h"

/* ---- the odd server ---- */

static void odd_write(struct odd_shared *sh, int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t r = send(fd, p, n, MSG_NOSIGNAL);
        if (r <= 0)
            return;
        atomic_fetch_add(&sh->sent, (unsigned long)r);
        p += r;
        n -= (size_t)r;
    }
}

static void odd_say(struct odd_shared *sh, int fd, const char *text)
{
    odd_write(sh, fd, text, strlen(text));
}

/* Until the peer closes, or 20 s. */
static void odd_linger(int fd)
{
    char c;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, 20000) > 0 && read(fd, &c, 1) > 0)
        ;
}

static bool odd_read_request(struct odd_shared *sh, int fd)
{
    size_t n = 0, want = 0;
    while (n < sizeof(sh->last) - 1) {
        ssize_t r = read(fd, sh->last + n, sizeof(sh->last) - 1 - n);
        if (r <= 0)
            return false;
        if (n == 0)
            atomic_fetch_add(&sh->connections, 1);
        n += (size_t)r;
        sh->last[n] = '\0';
        atomic_store(&sh->last_len, (unsigned)n);
        const char *end = strstr(sh->last, "\r\n\r\n"), *len = strstr(sh->last, "Content-Length:");
        if (end && len) {
            want = (size_t)(end - sh->last) + 4 + strtoul(len + 15, NULL, 10);
            if (n >= want)
                return true;
        }
    }
    return true;
}

static void odd_flood(struct odd_shared *sh, int fd)
{
    char block[16384];
    memset(block, 'x', sizeof(block));
    odd_say(sh, fd, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
    for (int i = 0; i < 16384; i++) { /* 256 MiB */
        ssize_t r = send(fd, block, sizeof(block), MSG_NOSIGNAL);
        if (r <= 0)
            return;
        atomic_fetch_add(&sh->sent, (unsigned long)r);
    }
}

static void odd_headers(struct odd_shared *sh, int fd)
{
    odd_say(sh, fd, "HTTP/1.1 200 OK\r\n");
    for (int i = 0; i < 100; i++) {
        char line[1100];
        memset(line, 'h', sizeof(line));
        int k = snprintf(line, 16, "X-H%d: ", i);
        line[k] = 'h';
        memcpy(line + 1000, "\r\n", 3);
        odd_say(sh, fd, line);
    }
    odd_say(sh, fd, "Content-Length: 2\r\n\r\n{}");
}

static void odd_key(struct odd_shared *sh, char key[256])
{
    const char *auth = strstr(sh->last, "Authorization: Bearer ");
    if (!auth || sscanf(auth, "Authorization: Bearer %255s", key) != 1)
        snprintf(key, 256, "none");
}

static void odd_echo_refused(struct odd_shared *sh, int fd)
{
    char key[256], text[1024];
    odd_key(sh, key);
    snprintf(text, sizeof(text),
             "HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\n\r\n"
             "{\"error\":{\"message\":\"incorrect key %s, sorry\"}}",
             key);
    odd_say(sh, fd, text);
}

/* Says the key that came in, as a careless provider might. */
static void odd_echo(struct odd_shared *sh, int fd, bool stream)
{
    char key[256], text[4096];
    odd_key(sh, key);
    int half = (int)strlen(key) / 2;
    if (stream)
        snprintf(text, sizeof(text),
                 "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
                 "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"it is %.*s\"}}]}\n\n"
                 "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s, yes\"},"
                 "\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
                 half, key, key + half);
    else
        snprintf(text, sizeof(text),
                 "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Request-Id: %s\r\n\r\n"
                 "{\"choices\":[{\"index\":0,\"message\":{\"content\":\"it is %s, yes\"},"
                 "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,"
                 "\"completion_tokens\":4,\"total_tokens\":7}}",
                 key, key);
    odd_say(sh, fd, text);
}

static void odd_answer(struct odd_shared *sh, int fd)
{
    static const char json[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                               "X-Request-Id: req-1\r\nRetry-After: 7\r\nSet-Cookie: a=b\r\n"
                               "Content-Length: 13\r\n\r\n{\"good\":true}";
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    char text[512];
    switch ((enum odd_mode)atomic_load(&sh->mode)) {
    case ODD_JSON:
        odd_say(sh, fd, json);
        break;
    case ODD_STATUS:
        snprintf(text, sizeof(text),
                 "HTTP/1.1 %u Odd\r\nContent-Type: application/json\r\nRetry-After: 3\r\n"
                 "Content-Length: 12\r\n\r\n{\"error\":{}}",
                 atomic_load(&sh->status));
        odd_say(sh, fd, text);
        break;
    case ODD_REDIRECT:
        odd_say(sh, fd,
                "HTTP/1.1 307 Temporary Redirect\r\nLocation: /elsewhere\r\n"
                "Content-Length: 0\r\n\r\n");
        break;
    case ODD_HALF:
        odd_say(sh, fd, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n0123456789");
        break;
    case ODD_HALF_CHUNKED:
        odd_say(sh, fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n");
        break;
    case ODD_CLOSE:
        break;
    case ODD_RESET:
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        break;
    case ODD_SILENT:
        odd_linger(fd);
        break;
    case ODD_STALL:
        odd_say(sh, fd, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n0123456789");
        odd_linger(fd);
        break;
    case ODD_DRIP:
        odd_say(sh, fd, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
        for (int i = 0; i < 300 && send(fd, "x", 1, MSG_NOSIGNAL) == 1; i++)
            (void)poll(NULL, 0, 100);
        break;
    case ODD_NOISE:
        odd_say(sh, fd, "\x16\x03\x01 this is not HTTP\r\n\r\n");
        break;
    case ODD_FLOOD:
        odd_flood(sh, fd);
        break;
    case ODD_HEADERS:
        odd_headers(sh, fd);
        break;
    case ODD_HEADER_TRICKS:
        odd_say(sh, fd,
                "HTTP/1.1 200 OK\r\nContent-Type: a\x1b[2Jb\r\nX-Request-Id:   spaced  \r\n"
                "Retry-After: 11111111112222222222333333333344444444445555555555666666666"
                "677777777778888888888\r\nContent-Length: 2\r\n\r\n{}");
        break;
    case ODD_GZIP:
        odd_say(sh, fd,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                "Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x01");
        break;
    case ODD_ECHO_STREAM:
    case ODD_ECHO_WHOLE:
        odd_echo(sh, fd, atomic_load(&sh->mode) == ODD_ECHO_STREAM);
        break;
    case ODD_ECHO_REFUSED:
        odd_echo_refused(sh, fd);
        break;
    case ODD_CONTINUE:
        odd_say(sh, fd, "HTTP/1.1 100 Continue\r\nX-Request-Id: early\r\n\r\n");
        odd_say(sh, fd, json);
        break;
    }
}

static void odd_serve(struct odd_shared *sh, int listener)
{
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            continue;
        if (odd_read_request(sh, fd)) {
            atomic_fetch_add(&sh->requests, 1);
            odd_answer(sh, fd);
        }
        (void)close(fd);
    }
}

void odd_start(struct odd_server *s)
{
    *s = (struct odd_server){.pid = -1};
    s->shared =
        mmap(NULL, sizeof(*s->shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s->shared != MAP_FAILED);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    s->port = ntohs(a.sin_port);
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        odd_serve(s->shared, fd);
        _exit(0);
    }
    (void)close(fd);
}

void odd_stop(struct odd_server *s)
{
    (void)kill(s->pid, SIGKILL);
    (void)waitpid(s->pid, NULL, 0);
    (void)munmap(s->shared, sizeof(*s->shared));
}

/* ---- what the programs say ---- */

static int on_ready(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct rig *r = ctx;
    char code[64], text[BR_ERR_TEXT_MAX];
    (void)c;
    (void)err;
    br_rd_str(&m->rd, code, sizeof(code));
    br_rd_str(&m->rd, text, sizeof(text));
    assert_int_equal(br_rd_done(&m->rd), 0);
    br_buf_put(&r->seen, text, strlen(text));
    if (!r->ready_code[0] || strcmp(r->ready_code, "OK") == 0) {
        memcpy(r->ready_code, code, sizeof(code));
        memcpy(r->ready_text, text, sizeof(text));
    }
    return 0;
}

static int on_head(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct rig *r = ctx;
    (void)c;
    (void)err;
    br_buf_put(&r->seen, m->rd.p, m->rd.len);
    r->status = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, r->content_type, sizeof(r->content_type));
    br_rd_str(&m->rd, r->request_id, sizeof(r->request_id));
    br_rd_str(&m->rd, r->retry_after, sizeof(r->retry_after));
    assert_int_equal(br_rd_done(&m->rd), 0);
    assert_false(r->have_head && r->head_id == m->id);
    r->head_id = m->id;
    r->have_head = true;
    return 0;
}

static int on_data(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct rig *r = ctx;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(0);
    (void)c;
    assert_true(m->id == r->head_id && !(r->have_end && r->end_id == m->id));
    assert_int_equal(br_msg_blob(m, BR_BLOB_MAX, &b, err), 0);
    assert_int_equal(br_rd_done(&m->rd), 0);
    br_buf_put(&r->seen, b.data, b.len);
    br_buf_put(&r->body, b.data, b.len);
    return 0;
}

static int on_end(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct rig *r = ctx;
    (void)c;
    (void)err;
    br_buf_put(&r->seen, m->rd.p, m->rd.len);
    r->end_code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, r->end_text, sizeof(r->end_text));
    r->request_bytes = br_rd_u64(&m->rd);
    r->response_bytes = br_rd_u64(&m->rd);
    assert_int_equal(br_rd_done(&m->rd), 0);
    r->end_id = m->id;
    r->have_end = true;
    r->ends++;
    return 0;
}

static int on_guest_request(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct rig *r = ctx;
    (void)c, (void)err;
    r->request.serial = br_rd_u64(&m->rd);
    r->request.route = br_rd_u32(&m->rd);
    r->request.messages = br_rd_u32(&m->rd);
    r->request.reserved = br_rd_u64(&m->rd);
    r->request.bytes = br_rd_u64(&m->rd);
    assert_int_equal(br_rd_done(&m->rd), 0);
    r->nrequests++;
    return 0;
}

static int on_guest_response(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct rig *r = ctx;
    struct rig_response *a = &r->response;
    (void)c, (void)err;
    br_buf_put(&r->seen, m->rd.p, m->rd.len);
    a->serial = br_rd_u64(&m->rd);
    a->code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, a->text, sizeof(a->text));
    a->status = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, a->finish, sizeof(a->finish));
    a->prompt = br_rd_u64(&m->rd);
    a->completion = br_rd_u64(&m->rd);
    a->settled = br_rd_u8(&m->rd);
    a->repairs = br_rd_u32(&m->rd);
    a->calls = br_rd_u32(&m->rd);
    a->bytes = br_rd_u64(&m->rd);
    assert_int_equal(br_rd_done(&m->rd), 0);
    assert_true(r->nresponses < r->nrequests);
    r->nresponses++;
    return 0;
}

static int on_guest_refused(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct rig *r = ctx;
    (void)c, (void)err;
    r->refused_code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, r->refused_text, sizeof(r->refused_text));
    assert_int_equal(br_rd_done(&m->rd), 0);
    r->nrefused++;
    return 0;
}

static int on_secret(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct rig *r = ctx;
    char name[128];
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(0);
    br_rd_str(&m->rd, name, sizeof(name));
    assert_int_equal(br_msg_blob(m, 65536, &b, err), 0);
    r->secrets++;
    r->secret_right = strcmp(name, RIG_KEY_ENV) == 0 && b.len == strlen(RIG_KEY) &&
                      memcmp(b.data, RIG_KEY, b.len) == 0;
    return r->silent ? 0 : br_chan_send(c, BR_MSG_SECRET_KNOWN, m->id, NULL, err);
}

static const struct br_msg_rule sup_rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT | BR_ONCE, 0, BR_MSG_MAX, 0, 0, on_ready},
};
static const struct br_msg_rule session_rules[] = {
    {BR_MSG_PROV_HEAD, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_head},
    {BR_MSG_PROV_DATA, BR_PERMIT, 0, BR_MSG_MAX, 0, 1, on_data},
    {BR_MSG_PROV_END, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_end},
    {BR_MSG_GUEST_REQUEST, BR_PERMIT, 32, 32, 0, 0, on_guest_request},
    {BR_MSG_GUEST_RESPONSE, BR_PERMIT, 53, BR_MSG_MAX, 0, 0, on_guest_response},
    {BR_MSG_GUEST_REFUSED, BR_PERMIT, 8, BR_MSG_MAX, 0, 0, on_guest_refused},
};
static const struct br_msg_rule audit_rules[] = {
    {BR_MSG_SECRET, BR_PERMIT, 0, BR_MSG_MAX, 0, 1, on_secret},
};

bool rig_until(struct rig *r, const bool *flag, unsigned ms)
{
    uint64_t until = br_now_us() + (uint64_t)ms * 1000;
    while (!(flag && *flag)) {
        uint64_t now = br_now_us();
        if (now >= until)
            return false;
        struct br_chan *chans[] = {&r->session, &r->audit, &r->sup_egress, &r->sup_broker,
                                   &r->sup_scripted};
        struct pollfd p[5];
        struct br_chan *who[5];
        unsigned n = 0;
        for (unsigned i = 0; i < 5; i++)
            if (chans[i]->fd >= 0) {
                p[n] = (struct pollfd){.fd = chans[i]->fd, .events = POLLIN};
                who[n++] = chans[i];
            }
        if (poll(p, n, (int)((until - now) / 1000) + 1) <= 0)
            continue;
        for (unsigned i = 0; i < n; i++) {
            struct br_err err;
            int k = p[i].revents ? br_chan_dispatch(who[i], &err) : 0;
            if (k == -BR_E_PEER_GONE) {
                r->session_gone = r->session_gone || who[i] == &r->session;
                br_chan_close(who[i]);
            } else {
                assert_int_equal(k, 0);
            }
        }
    }
    return true;
}

/* ---- starting ---- */

static const char *const programs[] = {"bridle-broker", "bridle-egress", "bridle-scripted"};
static int program_fds[] = {-1, -1, -1};

void rig_open_programs(void)
{
    const char *bin = getenv("BRIDLE_BIN");
    assert_non_null(bin);
    for (unsigned i = 0; i < BR_ARRAY_LEN(programs); i++) {
        char path[BR_PATH_MAX];
        snprintf(path, sizeof(path), "%s/%s", bin, programs[i]);
        if (program_fds[i] < 0)
            program_fds[i] = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(program_fds[i] >= 0);
    }
}

static pid_t spawn(struct rig *r, const char *program, int chan, const char *env)
{
    unsigned which = 0;
    rig_open_programs();
    while (strcmp(programs[which], program) != 0)
        which++;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid)
        return pid;
    char *argv[] = {(char *)(uintptr_t)program, NULL};
    char *sanitizer = (char *)(uintptr_t) "ASAN_OPTIONS=detect_leaks=0";
    char *envp[] = {sanitizer, (char *)(uintptr_t)env, NULL};
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_RDWR);
    int keep = fcntl(chan, F_DUPFD, 10);
    (void)dup2(null, 0);
    (void)dup2(r->log_fd, 1);
    (void)dup2(r->log_fd, 2);
    int image = fcntl(program_fds[which], F_DUPFD_CLOEXEC, 10);
    (void)dup2(keep, 3);
    br_close_from(4, &image, 1);
    fexecve(image, argv, envp);
    _exit(127);
}

static void pair(int fds[2])
{
    assert_int_equal(br_chan_pair(fds), 0);
}

static void start_scripted(struct rig *r, const struct rig_options *o)
{
    int sup[2];
    snprintf(r->dir, sizeof(r->dir), "/tmp/bridle-test-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    assert_int_equal(chmod(r->dir, 0711), 0);
    snprintf(r->socket, sizeof(r->socket), "%s/provider.sock", r->dir);
    BR_CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, r->socket, strlen(r->socket) + 1);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(chmod(r->socket, 0666), 0);
    assert_int_equal(listen(fd, 4), 0);
    pair(sup);
    r->scripted = spawn(r, "bridle-scripted", sup[1], NULL);
    (void)close(sup[1]);
    br_chan_init(&r->sup_scripted, sup[0], "scripted", sup_rules, 1, r);
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_out_blob(&out, o->scenario, strlen(o->scenario));
    br_out_fd(&out, fd, false);
    assert_int_equal(br_chan_send(&r->sup_scripted, BR_MSG_SCRIPTED_START, 0, &out, NULL), 0);
}

static void start_egress(struct rig *r, const struct rig_options *o, int broker, int audit)
{
    int sup[2];
    char env[256], url[256];
    const char *key_env = o->key_env ? o->key_env : RIG_KEY_ENV;
    snprintf(env, sizeof(env), "%s=%s", RIG_KEY_ENV, o->key ? o->key : RIG_KEY);
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/v1", r->server ? r->server->port : 1);
    pair(sup);
    r->egress = spawn(r, "bridle-egress", sup[1], key_env[0] ? env : NULL);
    (void)close(sup[1]);
    br_chan_init(&r->sup_egress, sup[0], "egress", sup_rules, 1, r);
    const char *unix_socket = o->unix_socket ? o->unix_socket : o->scenario ? r->socket : "";
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_str(&out.buf, o->base_url   ? o->base_url
                             : o->scenario ? "http://scripted.invalid/v1"
                                           : url);
    br_buf_put_str(&out.buf, key_env);
    br_buf_put_u8(&out.buf, key_env[0] ? BR_KEY_ENV : BR_KEY_NONE);
    br_buf_put_u8(&out.buf, o->auth ? o->auth : BR_AUTH_BEARER);
    br_buf_put_str(&out.buf, unix_socket);
    br_buf_put_str(&out.buf, o->proxy ? o->proxy : "");
    for (unsigned i = 0; i < 4; i++)
        br_buf_put_u32(&out.buf, o->timeouts[i] ? o->timeouts[i] : 5);
    br_buf_put_u8(&out.buf, BR_EGRESS_FD_AUDIT | (o->ca_fd > 0 ? BR_EGRESS_FD_CA : 0));
    br_out_fd(&out, broker, false);
    br_out_fd(&out, audit, false);
    if (o->ca_fd > 0)
        br_out_fd(&out, o->ca_fd, false);
    assert_int_equal(br_chan_send(&r->sup_egress, BR_MSG_EGRESS_START, 0, &out, NULL), 0);
}

static void start_broker(struct rig *r, const struct rig_options *o, int session, int egress)
{
    static const struct br_lease generous = {.max_requests = 100,
                                             .max_request_bytes = 32u << 20,
                                             .max_response_bytes = 32u << 20,
                                             .max_tokens = 1000000,
                                             .seconds = 60,
                                             RIG_LEASE_REST};
    int sup[2];
    pair(sup);
    r->broker = spawn(r, "bridle-broker", sup[1], NULL);
    (void)close(sup[1]);
    br_chan_init(&r->sup_broker, sup[0], "broker", sup_rules, 1, r);
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_str(&out.buf, "run_test");
    br_buf_put_str(&out.buf, o->model ? o->model : "test-model");
    br_lease_put(&out.buf, o->lease.max_requests ? &o->lease : &generous);
    br_out_fd(&out, session, false);
    br_out_fd(&out, egress, false);
    r->page = memfd_create("account", MFD_CLOEXEC);
    assert_int_equal(ftruncate(r->page, BR_ACCOUNT_PAGE), 0);
    br_out_fd(&out, r->page, false);
    assert_int_equal(br_chan_send(&r->sup_broker, BR_MSG_BROKER_START, 0, &out, NULL), 0);
}

/* Serve until this program has said that it is ready; false if it refused. */
static bool wait_ready(struct rig *r)
{
    uint64_t until = br_now_us() + 10000000;
    while (!r->ready_code[0] && br_now_us() < until)
        (void)rig_until(r, NULL, 5);
    bool ok = strcmp(r->ready_code, "OK") == 0;
    if (ok)
        r->ready_code[0] = '\0';
    return ok;
}

int rig_start(struct rig *r, const struct rig_options *o)
{
    struct odd_server *server = r->server;
    int session[2], broker[2], audit[2];
    *r = (struct rig){.server = server, .silent = o->no_secret_known};
    r->session.fd = r->audit.fd = r->sup_egress.fd = r->sup_broker.fd = r->sup_scripted.fd = -1;
    br_buf_init(&r->seen, 256u << 20);
    br_buf_init(&r->body, 128u << 20);
    r->log_fd = memfd_create("log", MFD_CLOEXEC);
    pair(session);
    pair(broker);
    pair(audit);
    br_chan_init(&r->session, session[0], "broker", session_rules, BR_ARRAY_LEN(session_rules), r);
    br_chan_init(&r->audit, audit[0], "egress", audit_rules, 1, r);
    bool ok = true;
    if (o->scenario) {
        start_scripted(r, o);
        ok = wait_ready(r);
    }
    if (ok) {
        start_egress(r, o, broker[0], audit[1]);
        ok = o->no_secret_known || wait_ready(r);
    }
    if (ok) {
        start_broker(r, o, session[1], broker[1]);
        ok = wait_ready(r);
    }
    (void)close(session[1]);
    (void)close(audit[1]);
    (void)close(broker[0]);
    (void)close(broker[1]);
    if (!ok && !o->expect_refused)
        print_error("a program refused its start: %s: %s\n", r->ready_code, r->ready_text);
    return ok ? 0 : -1;
}

/* ---- ending ---- */

int rig_wait_child(pid_t pid, unsigned ms)
{
    int status;
    for (unsigned i = 0; i < ms; i++) {
        pid_t k = waitpid(pid, &status, WNOHANG);
        if (k == pid)
            return status;
        (void)poll(NULL, 0, 1);
    }
    return -1;
}

static void end_child(pid_t *pid, int expected, const char *name)
{
    if (*pid <= 0)
        return;
    int status = rig_wait_child(*pid, 10000);
    if (status < 0) {
        (void)kill(*pid, SIGKILL);
        (void)waitpid(*pid, NULL, 0);
        fail_msg("%s did not end with its supervision channel", name);
    }
    *pid = 0;
    if (expected >= 0 && status != expected << 8)
        fail_msg("%s ended with status 0x%x, not with exit %d", name, (unsigned)status, expected);
}

void rig_stop(struct rig *r, int broker_status, int egress_status)
{
    br_chan_close(&r->sup_broker);
    br_chan_close(&r->sup_egress);
    br_chan_close(&r->sup_scripted);
    end_child(&r->broker, broker_status, "bridle-broker");
    end_child(&r->egress, egress_status, "bridle-egress");
    end_child(&r->scripted, -1, "bridle-scripted");
    (void)rig_until(r, NULL, 1);
    br_chan_close(&r->session);
    br_chan_close(&r->audit);
    BR_CLEANUP_BUF struct br_buf log = BR_BUF_INIT(1u << 20);
    assert_int_equal(lseek(r->log_fd, 0, SEEK_SET), 0);
    assert_int_equal(br_read_all(r->log_fd, &log, "log", NULL), 0);
    assert_null(memmem(log.data ? log.data : (void *)"", log.len, RIG_KEY, strlen(RIG_KEY)));
    assert_null(
        memmem(r->seen.data ? r->seen.data : (void *)"", r->seen.len, RIG_KEY, strlen(RIG_KEY)));
    if (log.len && getenv("BRIDLE_TEST_VERBOSE"))
        print_message("%.*s", (int)log.len, (const char *)log.data);
    br_close(&r->log_fd);
    br_close(&r->page);
    if (r->listener[0])
        (void)unlink(r->listener);
    if (r->dir[0]) {
        (void)unlink(r->socket);
        (void)rmdir(r->dir);
    }
    br_buf_free(&r->seen);
    br_buf_free(&r->body);
}

/* ---- asking ---- */

void rig_send(struct rig *r, uint64_t id, const char *path, const char *type, uint32_t reserve,
              const char *body, size_t n)
{
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_str(&out.buf, "POST");
    br_buf_put_str(&out.buf, path);
    br_buf_put_str(&out.buf, type);
    br_buf_put_u32(&out.buf, reserve);
    br_out_blob(&out, body, n);
    r->have_head = r->have_end = false;
    br_buf_reset(&r->body);
    assert_int_equal(br_chan_send(&r->session, BR_MSG_PROV_REQUEST, id, &out, NULL), 0);
}

void rig_ask(struct rig *r, uint64_t id)
{
    static const char body[] = "{\"model\":\"test-model\",\"messages\":[{\"role\":\"user\","
                               "\"content\":\"hello\"}],\"max_tokens\":100,\"stream\":true,"
                               "\"stream_options\":{\"include_usage\":true}}";
    rig_send(r, id, BR_PATH_CHAT, "application/json", 200, body, sizeof(body) - 1);
}

void rig_ask_wait(struct rig *r, uint64_t id)
{
    rig_ask(r, id);
    assert_true(rig_until(r, &r->have_end, 20000));
    assert_int_equal(r->end_id, id);
}

static void make_dir(struct rig *r)
{
    if (r->dir[0])
        return;
    snprintf(r->dir, sizeof(r->dir), "/tmp/bridle-test-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    assert_int_equal(chmod(r->dir, 0711), 0);
}

void rig_listen(struct rig *r)
{
    make_dir(r);
    snprintf(r->listener, sizeof(r->listener), "%s/guests.sock", r->dir);
    BR_CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, r->listener, strlen(r->listener) + 1);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(chmod(r->listener, 0666), 0);
    int on = 1; /* as bridle-init does */
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
    assert_int_equal(listen(fd, 128), 0);
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_u64(&out.buf, 0);
    br_out_fd(&out, fd, false);
    assert_int_equal(br_chan_send(&r->sup_broker, BR_MSG_BROKER_LISTEN, 0, &out, NULL), 0);
}

struct br_account_sums rig_account(const struct rig *r)
{
    struct br_account_sums s = {.requests = 0};
    struct br_err err;
    if (br_account_page_read(r->page, "run_test", &s, &err) != 1)
        fail_msg("the account cannot be read: %s", err.text);
    return s;
}

static void until(struct rig *r, const unsigned *count, unsigned n)
{
    for (unsigned i = 0; i < 1500 && *count < n; i++)
        (void)rig_until(r, NULL, 10);
    assert_int_equal(*count, n);
}

void rig_until_responses(struct rig *r, unsigned n)
{
    until(r, &r->nresponses, n);
}

void rig_until_refused(struct rig *r, unsigned n)
{
    until(r, &r->nrefused, n);
}

const char *rig_body(struct rig *r)
{
    const char *s = br_buf_cstr(&r->body);
    return s ? s : "";
}
