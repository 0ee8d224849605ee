/*
 * bridle-audit with this process in the place of bridled and of the session: it is started as
 * bridled starts it, in its own role, on a store of its own, and appends what a session appends
 * while its model calls one tool after another.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/recorder.h"
#include "wire/types.h"

#define EVENT_ROOM 1024u

static int on_text(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct bench_recorder *r = ctx;
    (void)c;
    (void)err;
    if (m->type == BR_MSG_AUDIT_CLOSED)
        br_rd_u32(&m->rd);
    else
        br_rd_str(&m->rd, r->ready, sizeof(r->ready));
    br_rd_str(&m->rd, r->text, sizeof(r->text));
    return 0;
}

static const struct br_msg_rule rules[] = {
    {BR_MSG_AUDIT_READY, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_text},
    {BR_MSG_AUDIT_CLOSED, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_text},
};

int bench_recorder_open(struct bench_recorder *r, const char *dir, const char *run_id,
                        struct br_err *err)
{
    char store[BR_PATH_MAX];
    int session[2], client[2];
    enum { WITH_SESSION = 1, WITH_CLIENT = 2 };
    *r = (struct bench_recorder){.session = -1, .client = -1, .sup = {.fd = -1}};
    snprintf(store, sizeof(store), "%s/store", dir);
    if ((mkdir(store, 0700) < 0 && errno != EEXIST) ||
        (geteuid() == 0 && chown(store, BR_UID_AUDIT, BR_UID_AUDIT) < 0) ||
        br_chan_pair(session) < 0 || br_chan_pair(client) < 0)
        return br_err_errno(err, BR_E_IO, "no store could be made in '%s'", dir);
    r->session = session[0];
    r->client = client[0];
    (void)fcntl(r->session, F_SETFL, O_NONBLOCK);
    int end, ret = bench_role_start("bridle-audit", false, &r->pid, &end, err);
    br_chan_init(&r->sup, end, "audit", rules, BR_ARRAY_LEN(rules), r);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u8(&o.buf, 0);
    br_buf_put_u8(&o.buf, WITH_SESSION | WITH_CLIENT);
    br_buf_put_str(&o.buf, run_id);
    br_buf_put_u64(&o.buf, br_now_wall_us());
    const char *const texts[] = {"/home/somebody/project", "bench", "measure", "0:0:bench", ""};
    for (size_t i = 0; i < BR_ARRAY_LEN(texts); i++)
        br_buf_put_str(&o.buf, texts[i]);
    br_show_put(&o.buf, &(struct br_show){.row = 0});
    br_out_fd(&o, open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC), true);
    br_out_fd(&o, session[1], true);
    br_out_fd(&o, client[1], true);
    if (ret == 0)
        ret = br_chan_send(&r->sup, BR_MSG_AUDIT_START, 0, &o, err);
    br_out_free(&o);
    if (ret == 0)
        ret = br_chan_dispatch(&r->sup, err);
    if (ret == 0 && strcmp(r->ready, br_code_name(BR_OK)) != 0)
        ret = br_err_set(err, BR_E_FAILED, "'bridle-audit' did not start: %s", r->text);
    return ret;
}

/* ---- what a session says ---- */

static void put_event(struct br_buf *b, const char *type, const char *actor, const char *data)
{
    br_buf_put_str(b, type);
    br_buf_put_str(b, actor);
    br_buf_put_u8(b, 0); /* a blob that is inside */
    br_buf_put_lstr(b, data, strlen(data));
}

/* The n-th event: the beginning of a session, then turns of a model that calls one tool in each. */
static void make_event(struct br_buf *b, uint64_t n)
{
    char data[EVENT_ROOM];
    unsigned long long turn = (n - 2) / 5;
    if (n == 0)
        return put_event(b, "session.created", "kernel",
                         "{\"sessionId\":\"ses_bench\",\"workspace\":\"/home/somebody/project\"}");
    if (n == 1)
        return put_event(
            b, "agent.started", "kernel",
            "{\"agentId\":\"agent_bench\",\"sessionId\":\"ses_bench\",\"model\":\"bench-model\"}");
    switch ((n - 2) % 5) {
    case 0:
        snprintf(data, sizeof(data),
                 "{\"requestId\":\"req_%016llx\",\"model\":\"bench-model-with-a-usual-name\","
                 "\"messageCount\":%llu}",
                 turn, turn % 200 + 2);
        return put_event(b, "model.request", "agent", data);
    case 1:
        snprintf(data, sizeof(data),
                 "{\"requestId\":\"req_%016llx\",\"model\":\"bench-model-with-a-usual-name\","
                 "\"finishReason\":\"tool_calls\",\"usage\":{\"promptTokens\":%llu,"
                 "\"completionTokens\":41,\"totalTokens\":%llu}}",
                 turn, turn % 9000 + 812, turn % 9000 + 853);
        return put_event(b, "model.response", "model", data);
    case 2:
        snprintf(data, sizeof(data),
                 "{\"callId\":\"call_%016llx\",\"tool\":\"fs_write\",\"input\":{\"path\":"
                 "\"src/module_%llu/index.ts\",\"content\":\"import { readFile } from "
                 "'node:fs/promises';\\n\\nexport const value = %llu; // what the next step "
                 "reads\\n\"}}",
                 turn, turn % 97, turn);
        return put_event(b, "tool.call", "agent", data);
    case 3:
        snprintf(data, sizeof(data),
                 "{\"action\":\"fs.write\",\"subject\":\"src/module_%llu/index.ts\",\"effect\":"
                 "\"allow\",\"reason\":\"the task may write below src\",\"ruleId\":"
                 "\"task.allowed_paths\"}",
                 turn % 97);
        return put_event(b, "policy.decision", "kernel", data);
    default:
        snprintf(data, sizeof(data),
                 "{\"callId\":\"call_%016llx\",\"tool\":\"fs_write\",\"ok\":true,\"output\":"
                 "{\"bytes\":%llu,\"path\":\"src/module_%llu/index.ts\",\"text\":\"written; the "
                 "file was there before and has another content now, see the next read of it\"},"
                 "\"durationMs\":3}",
                 turn, turn % 4000 + 96, turn % 97);
        return put_event(b, "tool.result", "kernel", data);
    }
}

/* What is measured is not how they are made. */
static struct {
    struct br_buf bytes;
    size_t end[BENCH_EVENTS_MAX + 1]; /* end[n] is where the n-th begins */
} made = {.bytes = BR_BUF_INIT(BENCH_EVENTS_MAX * EVENT_ROOM)};

static void make_events(void)
{
    for (unsigned i = 0; i < BENCH_EVENTS_MAX && !made.end[BENCH_EVENTS_MAX]; i++) {
        make_event(&made.bytes, i);
        made.end[i + 1] = made.bytes.len;
    }
    br_require(!made.bytes.failed);
}

int bench_recorder_append(struct bench_recorder *r, unsigned n, struct br_err *err)
{
    make_events();
    for (unsigned done = 0; done < n;) {
        unsigned k = n - done < BR_APPEND_MAX ? n - done : BR_APPEND_MAX;
        size_t at = made.end[r->made], bytes = made.end[r->made + k] - at;
        struct br_msg_header h = {.type = BR_MSG_APPEND, .len = (uint32_t)bytes, .id = r->made + 1};
        struct iovec iov[2] = {{.iov_base = &h, .iov_len = sizeof(h)},
                               {.iov_base = made.bytes.data + at, .iov_len = bytes}};
        ssize_t sent =
            sendmsg(r->session, &(struct msghdr){.msg_iov = iov, .msg_iovlen = 2}, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR && errno != EAGAIN)
            return br_err_errno(err, BR_E_IO, "events could not be appended");
        if (sent < 0) { /* full: the answers are what it may wait for */
            int ret = bench_recorder_answers(r, err);
            if (ret < 0)
                return ret;
            continue;
        }
        done += k;
        r->made += k;
    }
    return 0;
}

int bench_recorder_answers(struct bench_recorder *r, struct br_err *err)
{
    static uint8_t room[BR_ERR_TEXT_MAX + 64];
    for (;;) {
        struct br_msg_header h;
        ssize_t n = recv(r->session, room, sizeof(room), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n <= 0)
            return br_err_errno(err, BR_E_IO, "the answers of 'bridle-audit' could not be read");
        memcpy(&h, room, sizeof(h));
        if ((size_t)n < sizeof(h) || h.type != BR_MSG_APPENDED)
            return br_err_set(err, BR_E_FAILED, "'bridle-audit' refused an event: %.200s",
                              n > 24 ? (char *)room + 24 : "no answer");
    }
}

int bench_recorder_close(struct bench_recorder *r, struct br_err *err)
{
    static uint8_t room[BR_MSG_MAX + 64];
    int ret = 0;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, 0);
    br_buf_put_str(&o.buf, "completed");
    br_buf_put_str(&o.buf, "");
    br_buf_put_u8(&o.buf, 0);
    br_buf_put_u32(&o.buf, 0);
    br_buf_put_u64(&o.buf, 1);
    br_close(&r->session);
    if (r->sup.fd >= 0)
        ret = br_chan_send(&r->sup, BR_MSG_AUDIT_CLOSE, 0, &o, err);
    while (ret == 0 && r->client >= 0 && recv(r->client, room, sizeof(room), 0) > 0) {
    }
    if (ret == 0 && r->sup.fd >= 0)
        ret = br_chan_dispatch(&r->sup, err);
    br_close(&r->client);
    br_chan_close(&r->sup);
    struct rusage used;
    if (r->pid > 0 && wait4(r->pid, NULL, 0, &used) == r->pid)
        r->cpu_us = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
                    (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    r->pid = 0;
    return ret;
}
