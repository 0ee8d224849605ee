/*
 * The rig: bridled's side. The gateway is the real program; this process answers its questions from
 * the fields of struct gate_rig, in a loop that runs while a client of the test waits.
 */
#include "gateway/test_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- runs ---- */

static int on_answer(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct gate_run *run = ctx;
    unsigned i = run->nanswers++;
    (void)c;
    (void)err;
    assert_true(i < BR_ARRAY_LEN(run->answers));
    br_rd_str(&m->rd, run->answers[i].permission, sizeof(run->answers[i].permission));
    run->answers[i].scope = br_rd_u8(&m->rd);
    br_rd_str(&m->rd, run->answers[i].note, sizeof(run->answers[i].note));
    br_rd_str(&m->rd, run->answers[i].who, sizeof(run->answers[i].who));
    assert_int_equal(br_rd_done(&m->rd), 0);
    if (run->hold_answers) {
        run->held[run->nheld++] = m->id;
        return 0;
    }
    run->held[0] = m->id;
    gate_answered(run, 0, run->answer_code, run->answer_code ? "refused" : "");
    return 0;
}

void gate_answered(struct gate_run *run, unsigned i, uint32_t code, const char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u8(&o.buf, code == 0);
    br_buf_put_u32(&o.buf, code);
    br_buf_put_str(&o.buf, text);
    assert_int_equal(br_chan_send(&run->session, BR_MSG_ANSWERED, run->held[i], &o, NULL), 0);
}

static int on_cancel(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct gate_run *run = ctx;
    (void)c, (void)m, (void)err;
    run->ncancels++;
    return 0;
}

static const struct br_msg_rule session_rules[] = {
    {BR_MSG_ANSWER, BR_PERMIT, 1, 8192, 0, 0, on_answer},
    {BR_MSG_CANCEL, BR_PERMIT, 0, 0, 0, 0, on_cancel},
};

static int on_session_end(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct gate_run *run = ctx;
    (void)code, (void)err;
    br_chan_close(c);
    run->gone = true;
    return 0;
}

static int on_audit_end(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    (void)code, (void)ctx, (void)err;
    br_chan_close(c);
    return 0;
}

void gate_end_audit(struct gate_run *run, uint32_t code, const char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, code);
    br_buf_put_str(&o.buf, text);
    if (run->audit.fd < 0)
        return;
    (void)br_chan_send(&run->audit, BR_MSG_EVENTS_END, 0, &o, NULL);
    br_loop_unwatch_chan(run->rig->loop, &run->audit);
    br_chan_close(&run->audit);
}

void gate_end_run(struct gate_run *run, uint32_t code, const char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    if (run->session.fd >= 0) {
        br_loop_unwatch_chan(run->rig->loop, &run->session);
        br_chan_close(&run->session);
    }
    br_buf_put_str(&o.buf, run->id);
    br_buf_put_u32(&o.buf, code);
    br_buf_put_str(&o.buf, text);
    br_buf_put_u32(&o.buf, code ? 1 : 0);
    run->ended = true;
    assert_int_equal(br_chan_send(&run->rig->bridled, BR_MSG_GATE_ENDED, 0, &o, NULL), 0);
}

void gate_end(struct gate_run *run, uint32_t code, const char *text)
{
    gate_end_audit(run, 0, "");
    gate_end_run(run, code, text);
}

void gate_event_bytes(struct gate_run *run, const char *json, size_t n)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    int r = -BR_E_TIMEOUT;
    br_buf_put_u64(&o.buf, ++run->row);
    br_out_blob(&o, json, n);
    for (unsigned i = 0; r == -BR_E_TIMEOUT && i < GATE_WAIT_MS; i++) {
        r = br_chan_send(&run->audit, BR_MSG_EVENT, 0, &o, NULL);
        if (r == -BR_E_TIMEOUT) /* as audit does, it waits for room */
            gate_serve(run->rig, 1);
    }
    assert_int_equal(r, 0);
}

void gate_event(struct gate_run *run, const char *json)
{
    gate_event_bytes(run, json, strlen(json));
}

void gate_event_of(struct gate_run *run, const char *type, const char *data)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_EVENT_MAX);
    br_buf_printf(&b,
                  "{\"v\":1,\"type\":\"%s\",\"eventId\":\"evt_%s_%llu\",\"at\":"
                  "\"2026-03-01T10:00:00.000+00:00\",\"data\":%s}",
                  type, run->id, (unsigned long long)run->row + 1, data);
    assert_false(b.failed);
    gate_event_bytes(run, (const char *)b.data, b.len);
}

/* ---- the gateway's questions ---- */

void gate_checked(struct gate_rig *r, unsigned i, uint32_t code, const char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    char id[BR_ID_MAX] = "";
    if (!code)
        snprintf(id, sizeof(id), "run_%026u", ++r->last_id);
    br_buf_put_u32(&o.buf, code);
    br_buf_put_str(&o.buf, text);
    br_buf_put_str(&o.buf, id);
    br_buf_put_str(&o.buf, r->check_workspace ? r->check_workspace : r->checks[i].workspace);
    br_buf_put_str(&o.buf, r->checks[i].model[0] ? r->checks[i].model : "model-a");
    br_buf_put_u64(&o.buf, r->check_tokens);
    br_buf_put_u64(&o.buf, r->check_calls);
    assert_int_equal(br_chan_send(&r->bridled, BR_MSG_GATE_CHECKED, r->checks[i].id, &o, NULL), 0);
}

static int on_check(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct gate_rig *r = ctx;
    unsigned i = r->nchecks % BR_ARRAY_LEN(r->checks);
    struct gate_check *q = &r->checks[i];
    (void)c, (void)err;
    r->nchecks++;
    br_rd_str(&m->rd, q->workspace, sizeof(q->workspace));
    br_rd_str(&m->rd, q->task_id, sizeof(q->task_id));
    br_rd_str(&m->rd, q->model, sizeof(q->model));
    br_rd_str(&m->rd, q->who, sizeof(q->who));
    assert_int_equal(br_rd_done(&m->rd), 0);
    q->id = m->id;
    if (!r->hold_checks)
        gate_checked(r, i, r->check_code, r->check_text);
    return 0;
}

static void run_start(struct gate_rig *r, struct gate_run *run, uint64_t id)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    int a[2], b[2];
    assert_true(br_chan_pair(a) == 0 && br_chan_pair(b) == 0);
    br_chan_init(&run->session, a[0], "gateway", session_rules, BR_ARRAY_LEN(session_rules), run);
    br_chan_init(&run->audit, b[0], "gateway", NULL, 0, run);
    assert_true(fcntl(b[0], F_SETFL, O_NONBLOCK) == 0);
    assert_int_equal(br_loop_watch_chan(r->loop, &run->session, on_session_end, run), 0);
    assert_int_equal(br_loop_watch_chan(r->loop, &run->audit, on_audit_end, run), 0);
    br_buf_put_str(&o.buf, run->id);
    br_buf_put_str(&o.buf, "model-a");
    br_out_fd(&o, a[1], true);
    br_out_fd(&o, b[1], true);
    assert_int_equal(br_chan_send(&r->bridled, BR_MSG_GATE_STARTED, id, &o, NULL), 0);
}

static int on_run(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct gate_rig *r = ctx;
    struct gate_run *run = calloc(1, sizeof(*run));
    struct br_buf content;
    (void)c;
    assert_non_null(run);
    assert_true(r->nruns < GATE_RUNS_MAX);
    r->runs[r->nruns++] = run;
    run->rig = r;
    run->session.fd = run->audit.fd = -1;
    br_rd_str(&m->rd, run->id, sizeof(run->id));
    run->max_tokens = br_rd_u64(&m->rd);
    run->max_calls = br_rd_u64(&m->rd);
    run->resolver = br_rd_u8(&m->rd) != 0;
    assert_int_equal(br_msg_blob(m, BR_GOAL_MAX, &content, err), 0);
    assert_int_equal(br_rd_done(&m->rd), 0);
    run->content = strndup((const char *)content.data, content.len);
    br_buf_free(&content);
    if (r->refuse_runs)
        gate_end_run(run, BR_E_LIMIT_EXCEEDED, "not now");
    else
        run_start(r, run, m->id);
    return 0;
}

static int on_gate_cancel(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct gate_rig *r = ctx;
    unsigned i = r->ncanceled++ % BR_ARRAY_LEN(r->canceled);
    (void)c, (void)err;
    br_rd_str(&m->rd, r->canceled[i], sizeof(r->canceled[i]));
    r->canceled_how[i] = br_rd_u8(&m->rd);
    r->canceled_code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, r->canceled_why, sizeof(r->canceled_why));
    assert_int_equal(br_rd_done(&m->rd), 0);
    return 0;
}

static int on_forget(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct gate_rig *r = ctx;
    unsigned i = r->nforgotten++ % BR_ARRAY_LEN(r->forgotten);
    (void)c, (void)err;
    br_rd_str(&m->rd, r->forgotten[i], sizeof(r->forgotten[i]));
    assert_int_equal(br_rd_done(&m->rd), 0);
    return 0;
}

static void send_rows(struct gate_rig *r, struct br_chan *audit)
{
    for (unsigned i = 0; i < r->nrows; i++) {
        const struct gate_row *w = &r->rows[i];
        BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
        br_buf_put_str(&o.buf, w->run_id);
        br_buf_put_u64(&o.buf, w->started_us);
        br_buf_put_u64(&o.buf, w->ended_us);
        br_buf_put_str(&o.buf, w->status);
        br_buf_put_str(&o.buf, w->model);
        br_buf_put_str(&o.buf, w->workspace);
        br_buf_put_str(&o.buf, w->goal);
        br_buf_put_u64(&o.buf, w->events);
        assert_int_equal(br_chan_send(audit, BR_MSG_RUN_ROW, 0, &o, NULL), 0);
    }
}

static void send_events(struct gate_rig *r, struct br_chan *audit, uint64_t after)
{
    for (uint64_t i = 0; r->events && r->events[i]; i++) {
        BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
        if (i + 1 <= after)
            continue;
        br_buf_put_u64(&o.buf, i + 1);
        br_out_blob(&o, r->events[i], strlen(r->events[i]));
        assert_int_equal(br_chan_send(audit, BR_MSG_EVENT, 0, &o, NULL), 0);
    }
}

/* A child does it, since a reader that is slow makes it wait. */
static void play_store(struct gate_rig *r, const struct gate_read *q, int fd)
{
    struct br_chan audit;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return;
    br_chan_init(&audit, fd, "gateway", NULL, 0, NULL);
    if (q->run_id[0])
        send_events(r, &audit, q->row);
    else
        send_rows(r, &audit);
    br_buf_put_u32(&o.buf, 0);
    br_buf_put_str(&o.buf, "");
    (void)br_chan_send(&audit, BR_MSG_EVENTS_END, 0, &o, NULL);
    _exit(0);
}

static int on_read(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct gate_rig *r = ctx;
    struct gate_read *q = &r->reads[r->nreads++ % BR_ARRAY_LEN(r->reads)];
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    int ends[2];
    (void)c, (void)err;
    br_rd_str(&m->rd, q->run_id, sizeof(q->run_id));
    q->row = br_rd_u64(&m->rd);
    q->limit = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, q->before, sizeof(q->before));
    br_rd_str(&m->rd, q->words, sizeof(q->words));
    assert_int_equal(br_rd_done(&m->rd), 0);
    q->id = m->id;
    br_buf_put_u32(&o.buf, r->read_code);
    br_buf_put_str(&o.buf, r->read_code ? "there is no such run" : "");
    if (!r->read_code) {
        assert_int_equal(br_chan_pair(ends), 0);
        play_store(r, q, ends[0]);
        br_close(&ends[0]);
        br_out_fd(&o, ends[1], true);
    }
    assert_int_equal(br_chan_send(&r->bridled, BR_MSG_GATE_READING, q->id, &o, NULL), 0);
    return 0;
}

static int on_ready(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct gate_rig *r = ctx;
    (void)c, (void)m, (void)err;
    r->ready = true;
    return 0;
}

static const struct br_msg_rule bridled_rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT | BR_ONCE, 8, 1024, 0, 0, on_ready},
    {BR_MSG_GATE_CHECK, BR_PERMIT, 16, BR_MSG_MAX, 0, 0, on_check},
    {BR_MSG_GATE_RUN, BR_PERMIT, 22, BR_MSG_MAX, 0, 1, on_run},
    {BR_MSG_GATE_CANCEL, BR_PERMIT, 14, 1200, 0, 0, on_gate_cancel},
    {BR_MSG_GATE_FORGET, BR_PERMIT, 4, 128, 0, 0, on_forget},
    {BR_MSG_GATE_READ, BR_PERMIT, 24, 2048, 0, 0, on_read},
};

static int on_gateway_end(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct gate_rig *r = ctx;
    (void)err;
    if (code != -BR_E_PEER_GONE)
        fprintf(stderr, "the gateway broke its protocol: %s\n", err ? err->text : "");
    br_chan_close(c);
    r->exited = true;
    return 0;
}

/* ---- serving ---- */

void gate_serve(struct gate_rig *r, unsigned ms)
{
    struct br_err err = {.code = BR_OK};
    int got = br_loop_run_until(r->loop, NULL, br_now_us() + ms * 1000ull, &err);
    if (got != -BR_E_TIMEOUT)
        fail_msg("the rig's loop ended: %s", err.text);
}

void gate_until(struct gate_rig *r, bool (*is)(void *ctx), void *ctx, const char *what)
{
    uint64_t until = br_now_us() + GATE_WAIT_MS * 1000ull;
    while (!is(ctx)) {
        if (br_now_us() > until || r->exited) {
            fprintf(stderr, "%s\n", gate_log(r));
            fail_msg("%s did not happen%s", what, r->exited ? ": the gateway has ended" : "");
        }
        gate_serve(r, 1);
    }
}

struct counted {
    const unsigned *counter;
    unsigned n;
};

static bool is_counted(void *ctx)
{
    const struct counted *c = ctx;
    return *c->counter >= c->n;
}

void gate_until_count(struct gate_rig *r, const unsigned *counter, unsigned n, const char *what)
{
    struct counted c = {counter, n};
    gate_until(r, is_counted, &c, what);
}

struct gate_run *gate_wait_run(struct gate_rig *r)
{
    gate_until_count(r, &r->nruns, r->nruns_waited + 1, "GATE_RUN");
    return r->runs[r->nruns_waited++];
}

const char *gate_log(struct gate_rig *r)
{
    off_t n = lseek(r->log_fd, 0, SEEK_END);
    free(r->log_);
    r->log_ = calloc(1, (size_t)n + 1);
    assert_non_null(r->log_);
    assert_true(pread(r->log_fd, r->log_, (size_t)n, 0) == n);
    return r->log_;
}

/* ---- start ---- */

static int listen_tcp(struct gate_rig *r, enum gate_way way, int family, bool any)
{
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } a;
    memset(&a, 0, sizeof(a));
    a.any.sa_family = (sa_family_t)family;
    if (family == AF_INET)
        a.in.sin_addr.s_addr = htonl(any ? INADDR_ANY : INADDR_LOOPBACK);
    else
        a.in6.sin6_addr = in6addr_loopback;
    socklen_t n = family == AF_INET ? sizeof(a.in) : sizeof(a.in6);
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, &a.any, n), 0);
    assert_int_equal(listen(fd, 4096), 0);
    assert_int_equal(getsockname(fd, &a.any, &n), 0);
    r->ports[way] = ntohs(family == AF_INET ? a.in.sin_port : a.in6.sin6_port);
    return fd;
}

static int listen_unix(struct gate_rig *r)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", r->socket);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 4096), 0);
    return fd;
}

static void add_listener(struct gate_rig *r, enum gate_way way, int fd)
{
    struct br_service *s = &r->settings;
    struct br_listener *l = &s->listeners[s->nlisteners];
    l->kind = way == GATE_UNIX ? BR_LISTENER_UNIX : BR_LISTENER_TCP;
    l->loopback = way == GATE_TCP || way == GATE_TCP6;
    l->tls = way == GATE_TLS;
    l->plaintext = way == GATE_ANY;
    l->port = r->ports[way];
    snprintf(l->address, sizeof(l->address), "%s",
             way == GATE_UNIX   ? r->socket
             : way == GATE_TCP6 ? "::1"
             : way == GATE_TCP  ? "127.0.0.1"
                                : "0.0.0.0");
    br_require(s->nlisteners == (uint32_t)way);
    if (fd >= 0) {
        BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
        br_buf_put_u8(&o.buf, (uint8_t)s->nlisteners);
        br_out_fd(&o, fd, true);
        assert_int_equal(br_chan_send(&r->bridled, BR_MSG_GATE_LISTEN, 0, &o, NULL), 0);
    }
    s->nlisteners++;
}

static void add_token(struct gate_rig *r, const char *name, enum br_access access,
                      const char *token)
{
    struct br_token *t = &r->tokens[r->ntokens++];
    struct br_sha256 s;
    *t = (struct br_token){.access = (uint8_t)access};
    snprintf(t->name, sizeof(t->name), "%s", name);
    br_sha256_init(&s);
    br_sha256_put(&s, token, strlen(token));
    br_sha256_end(&s, t->sha256);
}

static void put_settings(struct gate_rig *r, struct br_buf *b)
{
    static const char *const two[] = {"model-a", "model-b", NULL};
    const char *const *models = r->options && r->options->models ? r->options->models : two;
    unsigned n = 0;
    while (models[n])
        n++;
    br_service_put(b, &r->settings);
    br_buf_put_u32(b, r->ntokens);
    for (unsigned i = 0; i < r->ntokens; i++)
        br_token_put(b, &r->tokens[i]);
    br_buf_put_u32(b, n);
    for (unsigned i = 0; i < n; i++)
        br_buf_put_str(b, models[i]);
}

static void spawn(struct gate_rig *r, int theirs)
{
    const char *bin = getenv("BRIDLE_BIN");
    char path[BR_PATH_MAX];
    snprintf(path, sizeof(path), "%s/bridle-gateway", bin ? bin : "bin");
    r->pid = fork();
    assert_true(r->pid >= 0);
    if (r->pid > 0)
        return;
    if (dup2(r->log_fd, 2) < 0 || dup2(theirs, 3) < 0)
        _exit(126);
    br_close_from(4, NULL, 0);
    /* leaks are looked for where the same code runs inside of a test: test_pace.c */
    char *argv[] = {(char *)"bridle-gateway", NULL};
    char *env[] = {(char *)"ASAN_OPTIONS=detect_leaks=0", NULL};
    execve(path, argv, env);
    _exit(127);
}

static bool is_ready(void *ctx)
{
    return ((struct gate_rig *)ctx)->ready;
}

static void start_tls(struct gate_rig *r, struct br_out *o)
{
    int ends[2];
    assert_int_equal(br_chan_pair(ends), 0);
    br_chan_init(&r->tls, ends[0], "gateway", NULL, 0, r);
    br_out_fd(o, ends[1], true);
}

void gate_start(struct gate_rig *r, const struct gate_options *o)
{
    int ends[2];
    *r = (struct gate_rig){.options = o, .pid = -1, .log_fd = -1, .tls.fd = -1};
    r->loop = br_loop_new();
    r->log_fd = memfd_create("gate-log", MFD_CLOEXEC);
    assert_true(r->loop && r->log_fd >= 0 && br_chan_pair(ends) == 0);
    assert_true(fcntl(r->log_fd, F_SETFL, O_APPEND) == 0);
    assert_int_equal(br_scratch_make(r->dir, sizeof(r->dir), "/tmp", "bridle-gate-"), 0);
    snprintf(r->socket, sizeof(r->socket), "%s/service.sock", r->dir);
    br_chan_init(&r->bridled, ends[0], "gateway", bridled_rules, BR_ARRAY_LEN(bridled_rules), r);
    spawn(r, ends[1]);
    br_close(&ends[1]);
    assert_int_equal(br_loop_watch_chan(r->loop, &r->bridled, on_gateway_end, r), 0);
    br_service_default(&r->settings);
    snprintf(r->settings.root, sizeof(r->settings.root), "/srv/work");
    add_listener(r, GATE_TCP, listen_tcp(r, GATE_TCP, AF_INET, false));
    add_listener(r, GATE_UNIX, listen_unix(r));
    add_listener(r, GATE_TCP6, listen_tcp(r, GATE_TCP6, AF_INET6, false));
    add_listener(r, GATE_ANY, listen_tcp(r, GATE_ANY, AF_INET, true));
    add_listener(r, GATE_TLS, -1);
    if (!o || !o->no_tokens) {
        add_token(r, "operator", BR_ACCESS_OPERATE, GATE_TOKEN_OPERATE);
        add_token(r, "answerer", BR_ACCESS_ANSWER, GATE_TOKEN_ANSWER);
        add_token(r, "observer", BR_ACCESS_OBSERVE, GATE_TOKEN_OBSERVE);
    }
    if (o && o->settings)
        o->settings(&r->settings);
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    put_settings(r, &out.buf);
    br_buf_put_u8(&out.buf, BR_GATE_FD_TLS);
    start_tls(r, &out);
    assert_int_equal(br_chan_send(&r->bridled, BR_MSG_GATE_START, 1, &out, NULL), 0);
    if (!o || !o->no_wait)
        gate_until(r, is_ready, r, "ROLE_READY");
}

void gate_reload(struct gate_rig *r)
{
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    put_settings(r, &out.buf);
    assert_int_equal(br_chan_send(&r->bridled, BR_MSG_GATE_RELOAD, 0, &out, NULL), 0);
}

void gate_drain(struct gate_rig *r, uint32_t seconds)
{
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_u32(&out.buf, seconds);
    assert_int_equal(br_chan_send(&r->bridled, BR_MSG_GATE_DRAIN, 0, &out, NULL), 0);
}

/* ---- end ---- */

int gate_wait_exit(struct gate_rig *r)
{
    uint64_t until = br_now_us() + GATE_WAIT_MS * 1000ull;
    int status = -1;
    if (r->pid <= 0)
        return r->status;
    for (;;) {
        pid_t got = waitpid(r->pid, &status, WNOHANG);
        if (got == r->pid)
            break;
        if (br_now_us() > until) {
            fprintf(stderr, "%s\n", gate_log(r));
            fail_msg("the gateway does not end");
        }
        gate_serve(r, 2);
    }
    r->pid = -1;
    r->status = status;
    return status;
}

static void run_free(struct gate_run *run)
{
    if (run->session.fd >= 0)
        br_loop_unwatch_chan(run->rig->loop, &run->session);
    if (run->audit.fd >= 0)
        br_loop_unwatch_chan(run->rig->loop, &run->audit);
    br_chan_close(&run->session);
    br_chan_close(&run->audit);
    free(run->content);
    free(run);
}

void gate_stop(struct gate_rig *r)
{
    for (unsigned i = 0; i < GATE_CLIENTS_MAX; i++)
        if (r->clients[i])
            gate_close(r->clients[i]);
    if (r->bridled.fd >= 0) {
        br_loop_unwatch_chan(r->loop, &r->bridled);
        br_chan_close(&r->bridled);
    }
    br_chan_close(&r->tls);
    int status = gate_wait_exit(r);
    if (status != 0)
        fprintf(stderr, "%s\n", gate_log(r));
    assert_int_equal(status, 0);
    for (unsigned i = 0; i < r->nruns; i++)
        run_free(r->runs[i]);
    br_loop_free(&r->loop);
    br_close(&r->log_fd);
    free(r->log_);
    while (waitpid(-1, NULL, WNOHANG) > 0) /* those of play_store() */
        ;
    assert_int_equal(br_scratch_remove(r->dir), 0);
}
