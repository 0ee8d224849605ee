/*
 * The harness of the program tests: see test_harness.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "audit/test_harness.h"
#include "base/test_tools.h"

/* The next of several events, as if it had come alone. */
static void take_one(struct harness *h)
{
    struct br_rd rd;
    size_t n;
    br_rd_init(&rd, h->many.data + h->many_at, h->many.len - h->many_at);
    const void *p = br_rd_bytes(&rd, BR_EVENT_MAX, &n);
    assert_non_null(p);
    h->many_at += rd.off;
    br_buf_free(&h->m.body);
    h->m = (struct h_message){.type = BR_MSG_EVENT, .row = h->many_row++};
    br_buf_init(&h->m.body, BR_EVENT_MAX);
    br_buf_put(&h->m.body, p, n);
}

static int capture(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct harness *h = ctx;
    struct h_message *out = &h->m;
    (void)c;
    br_buf_free(&out->body);
    *out = (struct h_message){.type = m->type, .id = m->id};
    switch (m->type) {
    case BR_MSG_AUDIT_READY:
        br_rd_str(&m->rd, out->text, sizeof(out->text));
        br_rd_str(&m->rd, out->status, sizeof(out->status));
        m->rd.off = m->rd.len;
        m->rd.failed = false;
        break;
    case BR_MSG_AUDIT_CLOSED:
        out->code = br_rd_u32(&m->rd);
        br_rd_str(&m->rd, out->text, sizeof(out->text));
        br_rd_str(&m->rd, out->status, sizeof(out->status));
        break;
    case BR_MSG_APPEND_FAILED:
    case BR_MSG_EVENTS_END:
        out->code = br_rd_u32(&m->rd);
        br_rd_str(&m->rd, out->text, sizeof(out->text));
        break;
    case BR_MSG_APPENDED:
        out->row = br_rd_u64(&m->rd);
        break;
    case BR_MSG_EVENT:
        out->row = br_rd_u64(&m->rd);
        assert_int_equal(br_msg_blob(m, BR_EVENT_MAX, &out->body, err), 0);
        break;
    case BR_MSG_EVENTS:
        h->many_row = br_rd_u64(&m->rd);
        br_buf_free(&h->many);
        br_buf_init(&h->many, BR_MSG_MAX);
        br_buf_put(&h->many, m->rd.p + m->rd.off, m->rd.len - m->rd.off);
        m->rd.off = m->rd.len;
        h->many_at = 0;
        take_one(h);
        break;
    case BR_MSG_RUN_ROW:
        br_rd_str(&m->rd, out->text, sizeof(out->text));
        br_rd_u64(&m->rd);
        br_rd_u64(&m->rd);
        br_rd_str(&m->rd, out->status, sizeof(out->status));
        m->rd.off = m->rd.len;
        break;
    default:
        break;
    }
    assert_int_equal(br_rd_done(&m->rd), 0);
    return 0;
}

#define RULE(type)                                                                                 \
    {                                                                                              \
        BR_MSG_##type, BR_PERMIT, 0, BR_MSG_MAX, 0, 1, capture                                     \
    }
static const struct br_msg_rule rules[] = {
    RULE(AUDIT_READY), RULE(AUDIT_CLOSED), RULE(APPENDED),   RULE(APPEND_FAILED), RULE(EVENT),
    RULE(EVENTS),      RULE(RUN_ROW),      RULE(EVENTS_END), RULE(SECRET_KNOWN),
};

static void owner_of_dir(struct harness *h)
{
    if (geteuid() == 0)
        assert_int_equal(
            chown(h->dir, h->uid ? h->uid : BR_UID_AUDIT, h->uid ? h->uid : BR_UID_AUDIT), 0);
}

void h_init(struct harness *h)
{
    *h = (struct harness){.pid = 0,
                          .sup = {.fd = -1},
                          .session = {.fd = -1},
                          .client = {.fd = -1},
                          .egress = {.fd = -1}};
    snprintf(h->dir, sizeof(h->dir), "/tmp/bridle-audit-test-XXXXXX");
    assert_non_null(mkdtemp(h->dir));
    owner_of_dir(h);
}

void h_close(struct br_chan *c)
{
    br_chan_close(c);
}

void h_hangup(struct harness *h)
{
    br_chan_close(&h->session);
    br_chan_close(&h->client);
    br_chan_close(&h->egress);
    br_chan_close(&h->sup);
}

int h_wait(struct harness *h)
{
    int status = 0;
    assert_int_equal(waitpid(h->pid, &status, 0), h->pid);
    h->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void h_free(struct harness *h)
{
    h_hangup(h);
    if (h->pid > 0) {
        kill(h->pid, SIGKILL);
        h_wait(h);
    }
    br_buf_free(&h->m.body);
    br_buf_free(&h->many);
    assert_int_equal(test_remove_tree(h->dir), 0);
}

static void run_program(struct harness *h, int fd)
{
    char path[BR_PATH_MAX];
    const char *bin = getenv("BRIDLE_BIN");
    snprintf(path, sizeof(path), "%s/bridle-audit", bin ? bin : "bin");
    int exe = open(path, O_RDONLY | O_CLOEXEC);
    if (h->fsize) {
        struct rlimit lim = {h->fsize, h->fsize};
        setrlimit(RLIMIT_FSIZE, &lim);
    }
    if (h->uid && geteuid() == 0 && (setgid(h->uid) < 0 || setuid(h->uid) < 0))
        _exit(120);
    /* what a test provokes is logged there, and no reader should take it for a failure */
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 ||
        (!getenv("BRIDLE_TEST_LOG") && dup2(null, STDERR_FILENO) < 0))
        _exit(121);
    int keep = fcntl(exe, F_DUPFD_CLOEXEC, 10);
    if (dup2(fd, 3) < 0)
        _exit(122);
    char *argv[] = {(char *)"bridle-audit", NULL}, *envp[] = {NULL, NULL};
#ifdef BR_SANITIZED
    /* the search for leaks needs to be traced and to fork; the role forbids both */
    envp[0] = (char *)"ASAN_OPTIONS=detect_leaks=0";
#endif
    fexecve(keep, argv, envp);
    _exit(123);
}

static int make_pair(struct harness *h, struct br_chan *ours, const char *name)
{
    int fds[2];
    assert_int_equal(br_chan_pair(fds), 0);
    br_chan_init(ours, fds[0], name, rules, BR_ARRAY_LEN(rules), h);
    return fds[1];
}

void h_start(struct harness *h, int mode, unsigned flags, const char *run_id, const char *owner)
{
    h_hangup(h);
    int theirs = make_pair(h, &h->sup, "audit");
    h->pid = fork();
    assert_true(h->pid >= 0);
    if (h->pid == 0)
        run_program(h, theirs);
    close(theirs);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u8(&o.buf, (uint8_t)mode);
    br_buf_put_u8(&o.buf, (uint8_t)flags);
    br_buf_put_str(&o.buf, run_id);
    br_buf_put_u64(&o.buf, 1700000000000000u);
    br_buf_put_str(&o.buf, h->workspace ? h->workspace : "/home/somebody/project");
    br_buf_put_str(&o.buf, h->model ? h->model : "test-model");
    br_buf_put_str(&o.buf, h->goal ? h->goal : "mend the test; password=hunter2-goal");
    br_buf_put_str(&o.buf, owner);
    br_buf_put_str(&o.buf, h->token ? h->token : "");
    struct br_show show = h->show;
    if (mode == 1)
        snprintf(show.run_id, sizeof(show.run_id), "%s", run_id);
    br_show_put(&o.buf, &show);
    br_out_fd(&o, open(h->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), true);
    if (flags & H_SESSION)
        br_out_fd(&o, make_pair(h, &h->session, "audit"), true);
    if (flags & H_CLIENT)
        br_out_fd(&o, make_pair(h, &h->client, "audit"), true);
    if (flags & H_EGRESS)
        br_out_fd(&o, make_pair(h, &h->egress, "audit"), true);
    assert_int_equal(br_chan_send(&h->sup, BR_MSG_AUDIT_START, 0, &o, NULL), 0);
    h_expect(h, &h->sup, BR_MSG_AUDIT_READY);
}

void h_owner(char dst[BR_STORE_OWNER_MAX], pid_t pid)
{
    char path[64], stat[1024] = "", boot[64] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(stat, sizeof(stat), f));
    fclose(f);
    f = fopen("/proc/sys/kernel/random/boot_id", "r");
    assert_non_null(f);
    assert_non_null(fgets(boot, sizeof(boot), f));
    fclose(f);
    boot[strcspn(boot, "\n")] = 0;
    char *p = strrchr(stat, ')');
    for (int field = 2; field < 22; field++)
        p = strchr(p + 1, ' ');
    snprintf(dst, BR_STORE_OWNER_MAX, "%d:%llu:%s", (int)pid, strtoull(p + 1, NULL, 10), boot);
}

void h_record(struct harness *h, unsigned flags, const char *run_id)
{
    char owner[BR_STORE_OWNER_MAX];
    h_owner(owner, getpid());
    h_start(h, H_RECORD, flags, run_id, owner);
    assert_string_equal(h->m.text, "OK");
}

int h_receive(struct harness *h, struct br_chan *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    if (c == &h->client && h->many_at < h->many.len) {
        take_one(h);
        return 0;
    }
    if (poll(&p, 1, 15000) != 1)
        return -BR_E_TIMEOUT;
    return br_chan_dispatch(c, NULL);
}

void h_expect(struct harness *h, struct br_chan *c, enum br_msg_type type)
{
    assert_int_equal(h_receive(h, c), 0);
    assert_string_equal(br_msg_name(h->m.type), br_msg_name(type));
}

static void put_event(struct br_out *o, const char *type, const char *actor, const char *data)
{
    br_buf_put_str(&o->buf, type);
    br_buf_put_str(&o->buf, actor);
    br_out_blob(o, data, strlen(data));
}

void h_send_append(struct harness *h, const char *type, const char *actor, const char *data)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    put_event(&o, type, actor, data);
    assert_int_equal(br_chan_send(&h->session, BR_MSG_APPEND, ++h->next_id, &o, NULL), 0);
}

void h_send_appends(struct harness *h, int n, int bad)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    for (int i = 0; i < n; i++)
        put_event(&o, i == bad ? "no.such" : "bridle.notice", "kernel", H_NOTICE);
    assert_int_equal(br_chan_send(&h->session, BR_MSG_APPEND, ++h->next_id, &o, NULL), 0);
}

void h_append(struct harness *h, const char *type, const char *actor, const char *data)
{
    h_send_append(h, type, actor, data);
    assert_int_equal(h_receive(h, &h->session), 0);
    assert_int_equal(h->m.id, h->next_id);
}

void h_good(struct harness *h, const char *type, const char *data)
{
    h_append(h, type, "kernel", data);
    if (h->m.type != BR_MSG_APPENDED)
        fail_msg("%s was refused: %s", type, h->m.text);
}

void h_bad(struct harness *h, const char *type, const char *data, enum br_code code)
{
    h_append(h, type, "kernel", data);
    assert_int_equal(h->m.type, BR_MSG_APPEND_FAILED);
    assert_string_equal(br_code_name((int)h->m.code), br_code_name(code));
}

void h_text(struct harness *h, const char *stream, const char *bytes, bool final)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, stream);
    br_buf_put_str(&o.buf, "agent");
    br_out_blob(&o, bytes, strlen(bytes));
    br_buf_put_u8(&o.buf, final);
    assert_int_equal(br_chan_send(&h->session, BR_MSG_TEXT, ++h->next_id, &o, NULL), 0);
    h_expect(h, &h->session, BR_MSG_APPENDED);
    assert_int_equal(h->m.id, h->next_id);
}

void h_secret(struct harness *h, const char *name, const char *value)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, name);
    br_out_blob(&o, value, strlen(value));
    assert_int_equal(br_chan_send(&h->egress, BR_MSG_SECRET, 1, &o, NULL), 0);
    h_expect(h, &h->egress, BR_MSG_SECRET_KNOWN);
}

const char *h_event(struct harness *h)
{
    h_expect(h, &h->client, BR_MSG_EVENT);
    const char *s = br_buf_cstr(&h->m.body);
    assert_non_null(s);
    return s;
}

void h_send_close(struct harness *h, enum br_code code, const char *status, const char *note,
                  unsigned sandbox)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, (uint32_t)code);
    br_buf_put_str(&o.buf, status);
    br_buf_put_str(&o.buf, note);
    br_buf_put_u8(&o.buf, (uint8_t)sandbox);
    br_buf_put_u32(&o.buf, 137);
    br_buf_put_u64(&o.buf, 4321);
    assert_int_equal(br_chan_send(&h->sup, BR_MSG_AUDIT_CLOSE, 0, &o, NULL), 0);
}

void h_begin(struct harness *h)
{
    h_good(h, "session.created", "{\"sessionId\":\"ses_1\",\"workspace\":\"/w\"}");
    h_good(h, "agent.started",
           "{\"agentId\":\"agt_1\",\"sessionId\":\"ses_1\",\"model\":\"test-model\"}");
}

void h_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("'%s' is not in %s", part, text);
}

const char *h_next(struct harness *h, const char *type)
{
    char want[64];
    const char *e = h_event(h);
    snprintf(want, sizeof(want), "{\"v\":1,\"type\":\"%s\",", type);
    if (strncmp(e, want, strlen(want)) != 0)
        fail_msg("not a '%s': %s", type, e);
    return e;
}

void h_end(struct harness *h, enum br_code code, const char *status, int exit_status)
{
    h_expect(h, &h->client, BR_MSG_EVENTS_END);
    assert_string_equal(br_code_name((int)h->m.code), br_code_name(code));
    h_expect(h, &h->sup, BR_MSG_AUDIT_CLOSED);
    assert_string_equal(br_code_name((int)h->m.code), br_code_name(code));
    assert_string_equal(h->m.status, status);
    assert_int_equal(h_wait(h), exit_status);
}

unsigned h_read_back(struct harness *h, const char *run, char *types, size_t cap)
{
    unsigned n = 0;
    if (types)
        types[0] = 0;
    h_start(h, H_READ, H_CLIENT, run, "");
    assert_string_equal(h->m.text, "OK");
    h_expect(h, &h->client, BR_MSG_RUN_ROW);
    for (;;) {
        assert_int_equal(h_receive(h, &h->client), 0);
        if (h->m.type == BR_MSG_EVENTS_END)
            break;
        assert_int_equal(h->m.type, BR_MSG_EVENT);
        assert_int_equal(h->m.row, ++n);
        const char *t = strstr(br_buf_cstr(&h->m.body), "\"type\":\"") + 8;
        if (types)
            snprintf(types + strlen(types), cap - strlen(types), "%.*s ", (int)strcspn(t, "\""), t);
    }
    assert_int_equal(h->m.code, 0);
    h_expect(h, &h->sup, BR_MSG_AUDIT_CLOSED);
    assert_int_equal(h_wait(h), 0);
    return n;
}

bool h_in_files(const struct harness *h, const char *needle)
{
    static const char *const files[] = {BR_STORE_FILE, BR_STORE_FILE "-wal", BR_STORE_FILE "-shm"};
    bool found = false;
    for (size_t i = 0; i < BR_ARRAY_LEN(files); i++) {
        char path[128];
        struct br_buf b = BR_BUF_INIT(64u * 1024 * 1024);
        snprintf(path, sizeof(path), "%s/%s", h->dir, files[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        assert_int_equal(br_read_all(fd, &b, path, NULL), 0);
        found |= b.len && memmem(b.data, b.len, needle, strlen(needle)) != NULL;
        close(fd);
        br_buf_free(&b);
    }
    return found;
}

void h_no_more(struct harness *h, struct br_chan *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    (void)h;
    assert_int_equal(poll(&p, 1, 100), 0);
}
