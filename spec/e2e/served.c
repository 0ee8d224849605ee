/*
 * A gateway for the tests of the service: it has the place of bridle-gateway, and does what the
 * lines say that come from whoever connects to its first listener. What it hears is answered in
 * lines. Never installed.
 *
 *   INFO | CHECK workspace|task|model | FORGET id | RUN id tokens calls content | STAY | CANCEL id
 * how READ id|row|limit|before|words | ANSWER id permission scope who | DROP id (its channels) DIE
 * | BAD (breaks the protocol) | DEAF (hears nothing more)
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire/service.h"
#include "wire/types.h"
#include "wire/wire.h"

static struct br_loop *loop;
static struct br_chan sup;
static int listeners[BR_LISTENERS_MAX], client = -1;
static unsigned nlisteners, nruns;
static bool draining;
static char line[BR_GOAL_MAX];
static size_t have;
static struct br_service settings;

#define RUNS_MAX 8
static struct followed {
    char id[BR_ID_MAX];
    struct br_chan session, audit;
} runs[RUNS_MAX];

static void say(const char *fmt, ...) BR_PRINTF(1, 2);
static void say(const char *fmt, ...)
{
    char text[16384];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text) - 1, fmt, ap);
    va_end(ap);
    if (n >= (int)sizeof(text) - 1)
        n = sizeof(text) - 2;
    for (int i = 0; i < n; i++)
        if (text[i] == '\n')
            text[i] = ' ';
    text[n++] = '\n';
    if (client >= 0)
        (void)!write(client, text, (size_t)n);
}

static int gone(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    (void)code, (void)ctx, (void)err;
    if (c == &sup)
        exit(0);
    br_close(&c->fd);
    return 0;
}

/* ---- a run ---- */

static void say_event(const struct followed *f, uint64_t row, const char *bytes, size_t n)
{
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(BR_EVENT_MAX + 1);
    br_buf_put(&text, bytes, n);
    const char *t = br_buf_cstr(&text), *type = strstr(t, "\"type\":\"") + 8;
    const char *p = strstr(t, "\"permissionId\":\"");
    say("EVENT %s %llu %.*s %.31s %s", f ? f->id : "-", (unsigned long long)row,
        (int)strcspn(type, "\""), type, p ? p + 16 : "-", t);
}

static int on_event(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(0);
    (void)c;
    uint64_t row = br_rd_u64(&m->rd);
    br_require(br_msg_blob(m, BR_EVENT_MAX, &text, err) == 0);
    say_event(ctx, row, (const char *)text.data, text.len);
    return 0;
}

static int on_events(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)err;
    uint64_t row = br_rd_u64(&m->rd);
    while (m->rd.off < m->rd.len && !m->rd.failed) {
        size_t n = 0;
        const char *bytes = br_rd_bytes(&m->rd, BR_EVENT_MAX, &n);
        br_require(bytes);
        say_event(ctx, row++, bytes, n);
    }
    return 0;
}

static int on_row(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    char id[BR_ID_MAX], status[32], model[BR_NAME_MAX];
    (void)c, (void)ctx, (void)err;
    br_rd_str(&m->rd, id, sizeof(id));
    (void)br_rd_u64(&m->rd);
    (void)br_rd_u64(&m->rd);
    br_rd_str(&m->rd, status, sizeof(status));
    br_rd_str(&m->rd, model, sizeof(model));
    say("ROW %s %s %s", id, status, model);
    return 0;
}

static int on_end(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct followed *f = ctx;
    (void)c, (void)err;
    say("EVENTS_END %s %u", f ? f->id : "-", br_rd_u32(&m->rd));
    return 0;
}

static int on_answered(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct followed *f = ctx;
    char text[BR_ERR_TEXT_MAX];
    (void)c, (void)err;
    unsigned ok = br_rd_u8(&m->rd), code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, text, sizeof(text));
    say("ANSWERED %s %u %u %s", f->id, ok, code, text);
    return 0;
}

static const struct br_msg_rule audit_rules[] = {
    {BR_MSG_EVENT, BR_PERMIT, 0, BR_MSG_MAX, 0, 1, on_event},
    {BR_MSG_EVENTS, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_events},
    {BR_MSG_RUN_ROW, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_row},
    {BR_MSG_EVENTS_END, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_end},
};
static const struct br_msg_rule session_rules[] = {
    {BR_MSG_ANSWERED, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_answered},
};

static struct followed *find(const char *id)
{
    for (unsigned i = 0; i < RUNS_MAX; i++)
        if (strcmp(runs[i].id, id) == 0)
            return &runs[i];
    return NULL;
}

static void follow(struct br_chan *c, int fd, const struct br_msg_rule *rules, unsigned n,
                   struct followed *f)
{
    br_chan_init(c, fd, "run", rules, n, f);
    br_require(br_loop_watch_chan(loop, c, gone, f) == 0);
}

/* ---- what bridled says ---- */

static int on_checked(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    char text[BR_ERR_TEXT_MAX], id[BR_ID_MAX], workspace[BR_PATH_MAX], model[BR_NAME_MAX];
    (void)c, (void)ctx, (void)err;
    uint32_t code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, text, sizeof(text));
    br_rd_str(&m->rd, id, sizeof(id));
    br_rd_str(&m->rd, workspace, sizeof(workspace));
    br_rd_str(&m->rd, model, sizeof(model));
    uint64_t tokens = br_rd_u64(&m->rd), calls = br_rd_u64(&m->rd);
    br_require(br_rd_done(&m->rd) == 0);
    say("CHECKED %s %s %s %s %llu %llu %s", br_code_name((int)code), id[0] ? id : "-",
        workspace[0] ? workspace : "-", model[0] ? model : "-", (unsigned long long)tokens,
        (unsigned long long)calls, text);
    return 0;
}

static int on_started(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    char id[BR_ID_MAX], model[BR_NAME_MAX];
    (void)c, (void)ctx, (void)err;
    br_rd_str(&m->rd, id, sizeof(id));
    br_rd_str(&m->rd, model, sizeof(model));
    br_require(br_rd_done(&m->rd) == 0);
    struct followed *f = find("");
    br_require(f);
    snprintf(f->id, sizeof(f->id), "%s", id);
    say("STARTED %s %s", id, model);
    follow(&f->session, br_msg_take_fd(m), session_rules, BR_ARRAY_LEN(session_rules), f);
    follow(&f->audit, br_msg_take_fd(m), audit_rules, BR_ARRAY_LEN(audit_rules), f);
    return 0;
}

static void forget(struct followed *f)
{
    if (!f)
        return;
    br_loop_unwatch(loop, f->session.fd);
    br_loop_unwatch(loop, f->audit.fd);
    br_chan_close(&f->session);
    br_chan_close(&f->audit);
    f->id[0] = 0;
}

static int on_ended(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    char id[BR_ID_MAX], text[BR_ERR_TEXT_MAX];
    (void)c, (void)ctx, (void)err;
    br_rd_str(&m->rd, id, sizeof(id));
    uint32_t code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, text, sizeof(text));
    struct followed *f = id[0] ? find(id) : NULL;
    while (f && f->audit.fd >= 0 && br_chan_soon(&f->audit, 1000) &&
           br_chan_dispatch(&f->audit, NULL) == 0)
        ;
    say("ENDED %s %s %u %s", id, br_code_name((int)code), br_rd_u32(&m->rd), text);
    br_require(br_rd_done(&m->rd) == 0);
    forget(f);
    if (--nruns == 0 && draining)
        exit(0);
    return 0;
}

static int on_reading(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    static struct br_chan reader = {.fd = -1};
    char text[BR_ERR_TEXT_MAX];
    (void)c, (void)ctx, (void)err;
    uint32_t code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, text, sizeof(text));
    say("READING %s %s", br_code_name((int)code), text);
    int fd = br_msg_take_fd(m);
    if (fd >= 0 && reader.fd >= 0) { /* one at a time: the one before has said its end */
        br_loop_unwatch(loop, reader.fd);
        br_chan_close(&reader);
    }
    if (fd >= 0)
        follow(&reader, fd, audit_rules, BR_ARRAY_LEN(audit_rules), NULL);
    return 0;
}

static void read_settings(struct br_msg *m)
{
    char model[BR_NAME_MAX], models[4096] = "", tokens[4096] = "";
    struct br_token t;
    br_service_get(&m->rd, &settings);
    for (uint32_t n = br_rd_u32(&m->rd); n > 0 && !m->rd.failed; n--) {
        br_token_get(&m->rd, &t);
        snprintf(tokens + strlen(tokens), sizeof(tokens) - strlen(tokens), "%s=%u,", t.name,
                 t.access);
    }
    for (uint32_t n = br_rd_u32(&m->rd); n > 0 && !m->rd.failed; n--) {
        br_rd_str(&m->rd, model, sizeof(model));
        snprintf(models + strlen(models), sizeof(models) - strlen(models), "%s,", model);
    }
    say("SETTINGS listeners=%u root=%s running=%u uids=%u detach=%u tokens=%s models=%s",
        settings.nlisteners, settings.root, settings.running, settings.nuids, settings.detach,
        tokens, models);
}

static int on_reload(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)ctx, (void)err;
    read_settings(m);
    br_require(br_rd_done(&m->rd) == 0);
    return 0;
}

static int on_drain(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)ctx, (void)err;
    say("DRAIN %u", br_rd_u32(&m->rd));
    draining = true;
    if (nruns == 0)
        exit(0);
    return 0;
}

static int on_listen(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)ctx, (void)err;
    (void)br_rd_u8(&m->rd);
    listeners[nlisteners++] = br_msg_take_fd(m);
    return 0;
}

/* ---- what the test says ---- */

static char *word(char **at, char end)
{
    char *s = *at, *p = strchr(s, end);
    if (p)
        *p = 0;
    *at = p ? p + 1 : s + strlen(s);
    return s;
}

static void ask(enum br_msg_type type, const struct br_out *o)
{
    /* both ends may have much to say: who cannot write reads */
    while (br_chan_send(&sup, type, 7, o, NULL) == -BR_E_TIMEOUT) {
        struct pollfd p = {.fd = sup.fd, .events = POLLIN | POLLOUT};
        if (poll(&p, 1, -1) == 1 && (p.revents & POLLIN))
            (void)br_chan_dispatch(&sup, NULL);
    }
}

static void obey(char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    char *what = word(&text, ' ');
    if (strcmp(what, "INFO") == 0) {
        say("INFO pid=%d uid=%d listeners=%u unprompted=%u", (int)getpid(), (int)getuid(),
            nlisteners, settings.unprompted_seconds);
    } else if (strcmp(what, "CHECK") == 0) {
        br_buf_put_str(&o.buf, word(&text, '|'));
        br_buf_put_str(&o.buf, word(&text, '|'));
        br_buf_put_str(&o.buf, word(&text, '|'));
        br_buf_put_str(&o.buf, "uid:0");
        ask(BR_MSG_GATE_CHECK, &o);
    } else if (strcmp(what, "FORGET") == 0) {
        br_buf_put_str(&o.buf, text);
        ask(BR_MSG_GATE_FORGET, &o);
    } else if (strcmp(what, "RUN") == 0) {
        br_buf_put_str(&o.buf, word(&text, ' '));
        br_buf_put_u64(&o.buf, strtoull(word(&text, ' '), NULL, 10));
        br_buf_put_u64(&o.buf, strtoull(word(&text, ' '), NULL, 10));
        br_buf_put_u8(&o.buf, 1);
        br_out_blob(&o, text, strlen(text));
        nruns++;
        ask(BR_MSG_GATE_RUN, &o);
    } else if (strcmp(what, "STAY") == 0) {
        nruns++; /* whatever ends */
    } else if (strcmp(what, "CANCEL") == 0) {
        br_buf_put_str(&o.buf, word(&text, ' '));
        br_buf_put_u8(&o.buf, (uint8_t)atoi(word(&text, ' ')));
        br_buf_put_u32(&o.buf, BR_E_CANCELED);
        br_buf_put_str(&o.buf, *text ? text : "a client canceled the run");
        ask(BR_MSG_GATE_CANCEL, &o);
    } else if (strcmp(what, "READ") == 0) {
        struct br_show w = {.row = 0};
        snprintf(w.run_id, sizeof(w.run_id), "%s", word(&text, '|'));
        w.row = strtoull(word(&text, '|'), NULL, 10);
        w.limit = (uint32_t)strtoul(word(&text, '|'), NULL, 10);
        snprintf(w.before, sizeof(w.before), "%s", word(&text, '|'));
        snprintf(w.words, sizeof(w.words), "%s", word(&text, '|'));
        br_show_put(&o.buf, &w);
        ask(BR_MSG_GATE_READ, &o);
    } else if (strcmp(what, "ANSWER") == 0) {
        struct followed *f = find(word(&text, ' '));
        br_buf_put_str(&o.buf, word(&text, ' '));
        br_buf_put_u8(&o.buf, (uint8_t)atoi(word(&text, ' ')));
        br_buf_put_str(&o.buf, "");
        br_buf_put_str(&o.buf, text);
        if (f)
            (void)br_chan_send(&f->session, BR_MSG_ANSWER, 0, &o, NULL);
    } else if (strcmp(what, "DROP") == 0) {
        forget(find(text));
    } else if (strcmp(what, "BAD") == 0) {
        ask(BR_MSG_GATE_FORGET, NULL);
    } else if (strcmp(what, "DEAF") == 0) {
        br_loop_unwatch(loop, sup.fd);
    } else if (strcmp(what, "DIE") == 0) {
        _exit(3);
    }
}

static int on_client(void *ctx, int fd, short revents, struct br_err *err)
{
    (void)ctx, (void)revents, (void)err;
    ssize_t n = read(fd, line + have, sizeof(line) - have - 1);
    if (n <= 0) {
        br_loop_unwatch(loop, fd);
        br_close(&client);
        have = 0;
        return 0;
    }
    have += (size_t)n;
    for (char *end; (end = memchr(line, '\n', have));) {
        *end = 0;
        obey(line);
        size_t used = (size_t)(end - line) + 1;
        memmove(line, end + 1, have - used);
        have -= used;
    }
    return 0;
}

static int on_connect(void *ctx, int fd, short revents, struct br_err *err)
{
    (void)ctx, (void)revents, (void)err;
    int sock = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    if (sock < 0)
        return 0;
    if (client >= 0) {
        br_loop_unwatch(loop, client);
        br_close(&client);
    }
    client = sock;
    have = 0;
    return br_loop_watch(loop, client, POLLIN, on_client, NULL);
}

static int on_start(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    (void)ctx, (void)err;
    read_settings(m);
    (void)br_rd_u8(&m->rd);
    br_require(br_rd_done(&m->rd) == 0 && nlisteners > 0);
    while (br_msg_take_fd(m) >= 0) /* who is at the other end goes when this one does */
        ;
    br_buf_put_str(&o.buf, "OK");
    br_buf_put_str(&o.buf, "");
    for (unsigned i = 0; i < nlisteners; i++)
        br_require(br_loop_watch(loop, listeners[i], POLLIN, on_connect, NULL) == 0);
    return br_chan_send(c, BR_MSG_ROLE_READY, 0, &o, NULL);
}

static const struct br_msg_rule sup_rules[] = {
    {BR_MSG_GATE_START, BR_PERMIT | BR_ONCE, 0, BR_MSG_MAX, 0, 2, on_start},
    {BR_MSG_GATE_LISTEN, BR_PERMIT, 1, 1, 1, 1, on_listen},
    {BR_MSG_GATE_RELOAD, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_reload},
    {BR_MSG_GATE_DRAIN, BR_PERMIT, 4, 4, 0, 0, on_drain},
    {BR_MSG_GATE_CHECKED, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_checked},
    {BR_MSG_GATE_STARTED, BR_PERMIT, 0, BR_MSG_MAX, 2, 2, on_started},
    {BR_MSG_GATE_ENDED, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_ended},
    {BR_MSG_GATE_READING, BR_PERMIT, 0, BR_MSG_MAX, 0, 1, on_reading},
};

int main(void)
{
    loop = br_loop_new();
    for (unsigned i = 0; i < RUNS_MAX; i++)
        runs[i].session.fd = runs[i].audit.fd = -1;
    br_chan_init(&sup, 3, "bridled", sup_rules, BR_ARRAY_LEN(sup_rules), NULL);
    (void)fcntl(3, F_SETFL, O_NONBLOCK);
    br_require(br_loop_watch_chan(loop, &sup, gone, NULL) == 0);
    return br_loop_run(loop, NULL, NULL) < 0;
}
