/*
 * The rig of the tests of egress; see test_rig.h. Test code: failures are cmocka assertions.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "egress/test_rig.h"

/* ---- what egress says ---- */

struct eg_answer *eg_of(struct eg *e, uint64_t id)
{
    assert_true(id > 0 && id < EG_ANSWERS);
    return &e->answers[id];
}

static int on_ready(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct eg *e = ctx;
    (void)c, (void)err;
    br_buf_put(&e->seen, m->rd.p, m->rd.len);
    br_rd_str(&m->rd, e->ready_code, sizeof(e->ready_code));
    br_rd_str(&m->rd, e->ready_text, sizeof(e->ready_text));
    assert_int_equal(br_rd_done(&m->rd), 0);
    return 0;
}

static int on_head(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct eg *e = ctx;
    struct eg_answer *a = eg_of(e, m->id);
    (void)c, (void)err;
    br_buf_put(&e->seen, m->rd.p, m->rd.len);
    a->status = br_rd_u32(&m->rd);
    br_headers_get(&m->rd, &a->headers);
    assert_int_equal(br_rd_done(&m->rd), 0);
    assert_int_equal(a->heads++, 0);
    assert_int_equal(a->ends, 0);
    return 0;
}

void eg_credit(struct eg *e, uint64_t id, uint32_t bytes)
{
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_u32(&out.buf, bytes);
    assert_int_equal(br_chan_send(&e->broker, BR_MSG_PROV_CREDIT, id, &out, NULL), 0);
}

static int on_data(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct eg *e = ctx;
    struct eg_answer *a = eg_of(e, m->id);
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(0);
    (void)c;
    assert_true(a->heads == 1 && a->ends == 0);
    assert_int_equal(br_msg_blob(m, BR_BLOB_MAX, &b, err), 0);
    assert_int_equal(br_rd_done(&m->rd), 0);
    assert_true(b.len > 0);
    br_buf_put(&a->body, b.data, b.len);
    if (!e->no_credit)
        eg_credit(e, m->id, (uint32_t)b.len);
    return 0;
}

static int on_end(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct eg *e = ctx;
    struct eg_answer *a = eg_of(e, m->id);
    (void)c, (void)err;
    br_buf_put(&e->seen, m->rd.p, m->rd.len);
    a->code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, a->text, sizeof(a->text));
    a->sent = br_rd_u64(&m->rd);
    a->got = br_rd_u64(&m->rd);
    assert_int_equal(br_rd_done(&m->rd), 0);
    assert_int_equal(a->ends++, 0);
    assert_int_equal(a->got, a->body.len);
    e->open--;
    return 0;
}

static int on_secret(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct eg *e = ctx;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(0);
    br_rd_str(&m->rd, e->secret_name, sizeof(e->secret_name));
    assert_int_equal(br_msg_blob(m, 65536, &b, err), 0);
    e->secrets++;
    e->secret_right = b.len == strlen(EG_KEY) && memcmp(b.data, EG_KEY, b.len) == 0;
    return br_chan_send(c, BR_MSG_SECRET_KNOWN, m->id, NULL, err);
}

static const struct br_msg_rule sup_rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT | BR_ONCE, 0, BR_MSG_MAX, 0, 0, on_ready},
};
static const struct br_msg_rule broker_rules[] = {
    {BR_MSG_PROV_HEAD, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_head},
    {BR_MSG_PROV_DATA, BR_PERMIT, 0, BR_MSG_MAX, 0, 1, on_data},
    {BR_MSG_PROV_END, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_end},
};
static const struct br_msg_rule audit_rules[] = {
    {BR_MSG_SECRET, BR_PERMIT, 0, BR_MSG_MAX, 0, 1, on_secret},
};

/* Until the flag's condition holds: `open` requests and, if `ready`, that it spoke. */
static bool serve(struct eg *e, unsigned open, bool ready, unsigned ms)
{
    uint64_t until = br_now_us() + (uint64_t)ms * 1000;
    while (e->open > open || (ready && !e->ready_code[0])) {
        uint64_t now = br_now_us();
        struct br_chan *chans[] = {&e->broker, &e->audit, &e->sup}, *who[3];
        struct pollfd p[3];
        unsigned n = 0;
        if (now >= until || e->broker_gone)
            return false;
        for (unsigned i = 0; i < 3; i++)
            if (chans[i]->fd >= 0) {
                p[n] = (struct pollfd){.fd = chans[i]->fd, .events = POLLIN};
                who[n++] = chans[i];
            }
        if (poll(p, n, (int)((until - now) / 1000) + 1) <= 0)
            continue;
        for (unsigned i = 0; i < n; i++) {
            struct br_err err;
            int r = p[i].revents ? br_chan_dispatch(who[i], &err) : 0;
            if (r == -BR_E_PEER_GONE) {
                e->broker_gone = e->broker_gone || who[i] == &e->broker;
                br_chan_close(who[i]);
            } else {
                assert_int_equal(r, 0);
            }
        }
    }
    return true;
}

void eg_until_ended(struct eg *e, unsigned ms)
{
    if (!serve(e, 0, false, ms))
        fail_msg("%u requests did not end", e->open);
}

void eg_serve(struct eg *e, unsigned ms)
{
    e->open++; /* one that never ends */
    (void)serve(e, 0, false, ms);
    e->open--;
}

/* ---- starting and ending ---- */

static int program_fd = -1;

void eg_open_program(void)
{
    char path[BR_PATH_MAX];
    assert_non_null(getenv("BRIDLE_BIN"));
    snprintf(path, sizeof(path), "%s/bridle-egress", getenv("BRIDLE_BIN"));
    if (program_fd < 0)
        program_fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(program_fd >= 0);
}

static pid_t spawn(const struct eg *e, int chan, const char *key_env, const char *env)
{
    eg_open_program();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid)
        return pid;
    char *argv[] = {(char *)(uintptr_t) "bridle-egress", NULL};
    const char *envp[4] = {"ASAN_OPTIONS=detect_leaks=0"};
    unsigned n = 1;
    if (key_env)
        envp[n++] = key_env;
    if (env)
        envp[n++] = env;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_RDWR);
    int keep = fcntl(chan, F_DUPFD, 10);
    (void)dup2(null, 0);
    (void)dup2(e->log_fd, 1);
    (void)dup2(e->log_fd, 2);
    int image = fcntl(program_fd, F_DUPFD_CLOEXEC, 10);
    (void)dup2(keep, 3);
    br_close_from(4, &image, 1);
    fexecve(image, argv, (char *const *)(uintptr_t)envp);
    _exit(127);
}

static void send_start(struct eg *e, const struct eg_options *o, uint8_t from, int broker,
                       int audit)
{
    char url[64];
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/v1", e->server ? e->server->port : 1);
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_str(&out.buf, o->base_url ? o->base_url : url);
    br_buf_put_str(&out.buf, from == BR_KEY_NONE ? "" : from == BR_KEY_ENV ? EG_KEY_ENV : "work");
    br_buf_put_u8(&out.buf, from);
    br_buf_put_u8(&out.buf, o->auth ? o->auth : BR_AUTH_BEARER);
    br_buf_put_str(&out.buf, o->unix_socket);
    br_buf_put_str(&out.buf, o->proxy);
    for (unsigned i = 0; i < 4; i++)
        br_buf_put_u32(&out.buf, o->timeouts[i] ? o->timeouts[i] : 10);
    br_buf_put_u8(&out.buf, BR_EGRESS_FD_AUDIT | (o->key_fd ? BR_EGRESS_FD_KEY : 0) |
                                (o->ca_fd ? BR_EGRESS_FD_CA : 0));
    br_out_fd(&out, broker, true);
    br_out_fd(&out, audit, true);
    if (o->key_fd)
        br_out_fd(&out, o->key_fd, false);
    if (o->ca_fd) {
        (void)lseek(o->ca_fd, 0, SEEK_SET); /* the one before has read it to its end */
        br_out_fd(&out, o->ca_fd, false);
    }
    assert_int_equal(br_chan_send(&e->sup, BR_MSG_EGRESS_START, 0, &out, NULL), 0);
}

int eg_start(struct eg *e, const struct eg_options *o)
{
    struct eg_server *server = e->server;
    int sup[2], broker[2], audit[2];
    const char *key = o->key ? o->key : EG_KEY;
    uint8_t from = o->key_from ? o->key_from : key[0] ? BR_KEY_ENV : BR_KEY_NONE;
    char env[16384];
    snprintf(env, sizeof(env), "%s=%s", EG_KEY_ENV, key);
    *e = (struct eg){.server = server, .log_fd = memfd_create("log", MFD_CLOEXEC)};
    br_buf_init(&e->seen, 64u << 20);
    e->answers = calloc(EG_ANSWERS, sizeof(*e->answers));
    assert_non_null(e->answers);
    for (unsigned i = 0; i < EG_ANSWERS; i++)
        br_buf_init(&e->answers[i].body, 128u << 20);
    assert_true(br_chan_pair(sup) == 0 && br_chan_pair(broker) == 0 && br_chan_pair(audit) == 0);
    br_chan_init(&e->sup, sup[0], "egress", sup_rules, 1, e);
    br_chan_init(&e->broker, broker[0], "egress", broker_rules, 3, e);
    br_chan_init(&e->audit, audit[0], "egress", audit_rules, 1, e);
    e->pid = spawn(e, sup[1], from == BR_KEY_ENV ? env : NULL, o->env);
    (void)close(sup[1]);
    send_start(e, o, from, broker[1], audit[1]);
    assert_true(serve(e, UINT32_MAX, true, 15000));
    bool ok = strcmp(e->ready_code, "OK") == 0;
    if (!ok && !o->expect_refused)
        print_error("egress refused its start: %s: %s\n", e->ready_code, e->ready_text);
    return ok ? 0 : -1;
}

static void expect_no_key(const void *p, size_t n)
{
    assert_null(p ? memmem(p, n, EG_KEY, strlen(EG_KEY)) : NULL);
}

void eg_stop(struct eg *e, int status)
{
    int is = -1;
    br_chan_close(&e->sup);
    for (unsigned i = 0; i < 10000 && waitpid(e->pid, &is, WNOHANG) != e->pid; i++)
        (void)poll(NULL, 0, 1);
    if (status >= 0)
        assert_int_equal(is, status << 8);
    br_chan_close(&e->broker);
    br_chan_close(&e->audit);
    BR_CLEANUP_BUF struct br_buf log = BR_BUF_INIT(1u << 20);
    assert_int_equal(lseek(e->log_fd, 0, SEEK_SET), 0);
    assert_int_equal(br_read_all(e->log_fd, &log, "log", NULL), 0);
    if (log.len && getenv("BRIDLE_TEST_VERBOSE"))
        print_message("%.*s", (int)log.len, (const char *)log.data);
    expect_no_key(log.data, log.len);
    expect_no_key(e->seen.data, e->seen.len);
    br_close(&e->log_fd);
    br_buf_free(&e->seen);
    for (unsigned i = 0; i < EG_ANSWERS; i++)
        br_buf_free(&e->answers[i].body);
    free(e->answers);
    e->answers = NULL;
}

/* ---- asking ---- */

uint64_t eg_ask(struct eg *e, const struct eg_request *q)
{
    static const struct br_headers none;
    uint64_t id = 1;
    while (eg_of(e, id)->id)
        id++;
    struct eg_answer *a = eg_of(e, id);
    a->id = id;
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_str(&out.buf, q->method ? q->method : "POST");
    br_buf_put_str(&out.buf, q->path ? q->path : "/ok");
    br_buf_put_str(&out.buf, q->content_type ? q->content_type : "application/json");
    br_headers_put(&out.buf, q->headers ? q->headers : &none);
    br_buf_put_u32(&out.buf, q->window ? q->window : 256 * 1024);
    br_out_blob(&out, q->body ? q->body : "", q->n);
    e->open++;
    assert_int_equal(br_chan_send(&e->broker, BR_MSG_PROV_REQUEST, id, &out, NULL), 0);
    return id;
}

uint64_t eg_ask_path(struct eg *e, const char *path)
{
    static const char body[] = "{\"model\":\"m\"}";
    return eg_ask(e, &(struct eg_request){.path = path, .body = body, .n = sizeof(body) - 1});
}

const char *eg_body(struct eg_answer *a)
{
    const char *s = br_buf_cstr(&a->body);
    return s ? s : "";
}

int eg_file(const char *text, size_t n)
{
    char path[] = "/tmp/bridle-egress-XXXXXX";
    int w = mkstemp(path), r = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(w >= 0 && r >= 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(br_write_all(w, text, n), 0);
    (void)close(w);
    return r;
}

/* ---- its memory ---- */

static unsigned times_in(int mem, unsigned long from, unsigned long to, const char *text)
{
    unsigned n = 0;
    BR_CLEANUP_FREE char *all = malloc(to - from);
    ssize_t len = all ? pread(mem, all, to - from, (off_t)from) : -1;
    for (char *p = all; len > 0 && (p = memmem(p, (size_t)(all + len - p), text, strlen(text)));
         p++)
        n++;
    return n;
}

bool eg_count(pid_t pid, const char *text, unsigned *hidden, unsigned *elsewhere)
{
    char path[64], line[512];
    unsigned long from = 0, to = 0;
    bool writable = false;
    snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
    BR_CLEANUP_FD int mem = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof(path), "/proc/%d/smaps", (int)pid);
    BR_CLEANUP_FILE FILE *f = fopen(path, "re");
    *hidden = *elsewhere = 0;
#ifdef BR_SANITIZED
    return false; /* its runtime keeps copies of its own */
#endif
    if (mem < 0 || !f)
        return false;
    while (fgets(line, sizeof(line), f)) {
        char mode[8];
        unsigned long a, b;
        if (sscanf(line, "%lx-%lx %7s", &a, &b, mode) == 3) {
            from = a;
            to = b;
            writable = mode[0] == 'r' && mode[1] == 'w';
        } else if (writable && strncmp(line, "VmFlags:", 8) == 0) {
            *(strstr(line, " dd") ? hidden : elsewhere) += times_in(mem, from, to, text);
        }
    }
    return true;
}
