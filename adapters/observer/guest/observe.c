/*
 * The guest of observer@1: one frame in, one request to the provider, one frame out. It is started
 * by pid 1 of a sandbox in which there is no other program, no file of anybody and no network, and
 * it may be the only process: before it reads a byte of a provider it gives up every system call
 * but the few that it needs, so that not even a mistake in it could start another one. What the
 * model said is passed on as one JSON value, or not at all; whether it is the value that was asked
 * for is judged outside.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "broker/scan.h"
#include "observe.h"

#define PACKET_MAX (4u * 1024 * 1024 + 4)
#define ANSWER_MAX (16u * 1024 * 1024)

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#endif

/* What is left when the packet was read: memory, one socket, stdout and the end. */
static int narrow(void)
{
    static const int calls[] = {SYS_read, SYS_write, SYS_close,     SYS_socket, SYS_connect,
                                SYS_brk,  SYS_mmap,  SYS_munmap,    SYS_mremap, SYS_madvise,
                                SYS_exit, SYS_futex, SYS_exit_group};
    struct sock_filter f[BR_ARRAY_LEN(calls) + 5];
    unsigned n = 0, count = BR_ARRAY_LEN(calls);
    f[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 0,
                                          (unsigned char)(count + 1));
    f[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i < count; i++)
        f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i],
                                              (unsigned char)(count - i), 0);
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog prog = {.len = (unsigned short)n, .filter = f};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

/* ---- the packet ---- */

struct packet {
    struct br_slice run_id, id, revision, prompt, system, model, socket, token;
};

/* The members of an object that are wanted, as text or, with `raw`, as they stand. */
struct want {
    struct br_scan_name name;
    struct br_slice *to;
    bool raw;
};

static bool members(struct br_scan *j, const struct want *w, unsigned n)
{
    struct br_scan_name names[8];
    const struct br_scan_keys keys = {names, n};
    struct br_scan_in in = {.seen = 0};
    int id;
    for (unsigned i = 0; i < n; i++)
        names[i] = w[i].name;
    if (!br_scan_open(j, '{'))
        return false;
    while (br_scan_key(j, &in, &keys, &id, NULL)) {
        bool text = id >= 0 && !w[id].raw && br_scan_peek(j) == '"';
        if (!(text ? br_scan_string(j, w[id].to)
                   : br_scan_skip(j, id >= 0 && w[id].raw ? w[id].to : NULL)))
            return false;
    }
    return j->state == BR_SCAN_OK;
}

static bool inner(const struct br_slice *s, const struct want *w, unsigned n)
{
    struct br_scan j;
    if (!s->p)
        return false;
    br_scan_init(&j, s->p, s->n, true);
    return members(&j, w, n);
}

static bool read_packet(const struct br_buf *b, struct packet *p)
{
    struct br_slice adapter = {.p = NULL}, model = {.p = NULL}, provider = {.p = NULL};
    const struct want top[] = {
        {BR_NAME("runId"), &p->run_id, false},  {BR_NAME("prompt"), &p->prompt, false},
        {BR_NAME("system"), &p->system, false}, {BR_NAME("adapter"), &adapter, true},
        {BR_NAME("model"), &model, true},       {BR_NAME("provider"), &provider, true},
    };
    const struct want of_adapter[] = {{BR_NAME("id"), &p->id, false},
                                      {BR_NAME("revision"), &p->revision, true}};
    const struct want of_model[] = {{BR_NAME("id"), &p->model, false}};
    const struct want of_provider[] = {{BR_NAME("socket"), &p->socket, false},
                                       {BR_NAME("token"), &p->token, false}};
    struct br_scan j;
    if (b->len < 4)
        return false;
    br_scan_init(&j, b->data + 4, b->len - 4, true);
    return members(&j, top, BR_ARRAY_LEN(top)) &&
           inner(&adapter, of_adapter, BR_ARRAY_LEN(of_adapter)) &&
           inner(&model, of_model, BR_ARRAY_LEN(of_model)) &&
           inner(&provider, of_provider, BR_ARRAY_LEN(of_provider)) && p->run_id.p && p->prompt.p &&
           p->id.p && p->revision.p && p->model.p && p->socket.p && p->token.p;
}

/* ---- the request ---- */

static void put_quoted(struct br_buf *b, const struct br_slice *s)
{
    br_buf_put(b, s->p - 1, s->n + 2);
}

static void put_request(const struct packet *p, struct br_buf *out)
{
    char token[128];
    BR_CLEANUP_BUF struct br_buf body = BR_BUF_INIT(PACKET_MAX);
    br_buf_printf(&body, "{\"model\":");
    put_quoted(&body, &p->model);
    br_buf_printf(&body, ",\"messages\":[");
    if (p->system.p) {
        br_buf_printf(&body, "{\"role\":\"system\",\"content\":");
        put_quoted(&body, &p->system);
        br_buf_printf(&body, "},");
    }
    br_buf_printf(&body, "{\"role\":\"user\",\"content\":");
    put_quoted(&body, &p->prompt);
    br_buf_printf(&body, "}]}");
    if (br_slice_text(&p->token, token, sizeof(token)) < 0)
        token[0] = 0;
    br_buf_printf(out,
                  "POST /v1/chat/completions HTTP/1.1\r\nHost: provider\r\nAuthorization: Bearer "
                  "%s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                  token, body.len);
    br_buf_put(out, body.data, body.len);
}

static bool write_all(int fd, const void *p, size_t n)
{
    const char *s = p;
    while (n) {
        ssize_t k = write(fd, s, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        s += k;
        n -= (size_t)k;
    }
    return true;
}

/* ---- the answer ---- */

static const char *header(const struct br_buf *b, size_t head, const char *name)
{
    const char *p = (const char *)b->data, *end = p + head;
    size_t n = strlen(name);
    while (p < end) {
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        if ((size_t)(end - p) > n && strncasecmp(p, name, n) == 0 && p[n] == ':')
            return p + n + 1 + strspn(p + n + 1, " ");
        p = lf ? lf + 1 : end;
    }
    return NULL;
}

/* The chunks from `at` on, joined in place: 1 all of them, 0 there must be more, -1 malformed. */
static int join_chunks(const struct br_buf *b, size_t at, struct br_buf *out)
{
    br_buf_reset(out);
    for (;;) {
        const char *p = (const char *)b->data + at, *end = (const char *)b->data + b->len;
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        char *stop;
        if (!lf)
            return 0;
        unsigned long n = strtoul(p, &stop, 16);
        if (stop == p || n > ANSWER_MAX)
            return -1;
        if (n == 0)
            return 1;
        if ((size_t)(end - lf - 1) < n + 2)
            return 0;
        if (br_buf_put(out, lf + 1, n) < 0)
            return -1;
        at = (size_t)(lf + 1 - (const char *)b->data) + n + 2;
    }
}

/* What was read so far: 1 the body is whole and in `body`, 0 there must be more, -1 malformed. */
static int body_of(struct br_buf *b, unsigned *status, struct br_buf *body)
{
    const char *text = br_buf_cstr(b);
    const char *blank = text ? strstr(text, "\r\n\r\n") : NULL;
    if (!blank)
        return 0;
    size_t head = (size_t)(blank + 4 - text);
    if (strncmp(text, "HTTP/1.1 ", 9) != 0)
        return -1;
    *status = (unsigned)strtoul(text + 9, NULL, 10);
    const char *length = header(b, head, "content-length");
    if (header(b, head, "transfer-encoding"))
        return join_chunks(b, head, body);
    if (!length)
        return -1;
    size_t n = strtoul(length, NULL, 10);
    if (n > ANSWER_MAX)
        return -1;
    if (b->len - head < n)
        return 0;
    br_buf_reset(body);
    return br_buf_put(body, text + head, n) < 0 ? -1 : 1;
}

static bool ask(const struct packet *p, unsigned *status, struct br_buf *body)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    BR_CLEANUP_BUF struct br_buf request = BR_BUF_INIT(PACKET_MAX + 1024);
    BR_CLEANUP_BUF struct br_buf got = BR_BUF_INIT(ANSWER_MAX + 64 * 1024);
    char piece[16384];
    int whole = 0;
    put_request(p, &request);
    if (br_slice_text(&p->socket, sa.sun_path, sizeof(sa.sun_path)) < 0 || request.failed)
        return false;
    BR_CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 ||
        !write_all(fd, request.data, request.len))
        return false;
    while (whole == 0) {
        ssize_t n = read(fd, piece, sizeof(piece));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 || br_buf_put(&got, piece, (size_t)n) < 0)
            return false;
        whole = body_of(&got, status, body);
    }
    return whole > 0;
}

struct answer {
    struct br_slice content, prompt_tokens, completion_tokens;
};

static bool read_answer(const struct br_buf *body, struct answer *a)
{
    struct br_slice choices = {.p = NULL}, usage = {.p = NULL}, message = {.p = NULL};
    const struct want top[] = {{BR_NAME("choices"), &choices, true},
                               {BR_NAME("usage"), &usage, true}};
    const struct want of_choice[] = {{BR_NAME("message"), &message, true}};
    const struct want of_message[] = {{BR_NAME("content"), &a->content, false}};
    const struct want of_usage[] = {{BR_NAME("prompt_tokens"), &a->prompt_tokens, true},
                                    {BR_NAME("completion_tokens"), &a->completion_tokens, true}};
    struct br_scan_in in = {.seen = 0};
    struct br_scan j;
    br_scan_init(&j, body->data, body->len, true);
    if (!members(&j, top, BR_ARRAY_LEN(top)) || !choices.p)
        return false;
    br_scan_init(&j, choices.p, choices.n, true);
    if (!br_scan_open(&j, '[') || !br_scan_element(&j, &in) ||
        !members(&j, of_choice, BR_ARRAY_LEN(of_choice)) ||
        !inner(&message, of_message, BR_ARRAY_LEN(of_message)))
        return false;
    if (usage.p && *usage.p == '{')
        (void)inner(&usage, of_usage, BR_ARRAY_LEN(of_usage));
    return a->content.p != NULL;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* The JSON value that the model's text is, without white space and a fence around it. */
static bool value_of(struct br_slice *content, struct br_buf *out)
{
    char piece[4096];
    size_t n;
    while ((n = br_slice_take(content, piece, sizeof(piece))) > 0)
        if (br_buf_put(out, piece, n) < 0)
            return false;
    const char *p = (const char *)out->data, *end = p + out->len;
    if (!out->len)
        return false;
    while (p < end && is_space(*p))
        p++;
    while (p < end && is_space(end[-1]))
        end--;
    if (end - p > 6 && memcmp(p, "```", 3) == 0 && memcmp(end - 3, "```", 3) == 0) {
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        p = lf ? lf + 1 : p;
        end -= lf ? 3 : 0;
    }
    if (p >= end)
        return false;
    memmove(out->data, p, (size_t)(end - p));
    out->len = (size_t)(end - p);
    br_buf_put(out, "\n", 1); /* so that a number ends */
    struct br_scan j;
    br_scan_init(&j, out->data, out->len, true);
    return !out->failed && br_scan_skip(&j, NULL) && br_scan_done(&j);
}

/* ---- the result ---- */

static int say(const struct packet *p, const struct answer *a, const struct br_buf *value)
{
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(ANSWER_MAX + 4096);
    uint64_t prompt = 0, completion = 0;
    struct br_scan j;
    br_buf_put(&out, "\0\0\0\0{\"runId\":", 4 + 9);
    put_quoted(&out, &p->run_id);
    br_buf_printf(&out, ",\"status\":\"%s\",\"adapter\":{\"id\":", value ? "completed" : "failed");
    put_quoted(&out, &p->id);
    br_buf_printf(&out, ",\"revision\":%.*s},\"session\":{},\"tools\":[],\"artifact\":",
                  (int)p->revision.n, p->revision.p);
    if (value) {
        br_buf_printf(&out, "{\"kind\":\"json\",\"value\":");
        br_buf_put(&out, value->data, value->len);
        br_buf_printf(&out, "}");
    } else {
        br_buf_printf(&out, "null");
    }
    if (a->prompt_tokens.p && a->completion_tokens.p) {
        /* both are followed by something in the text that they lie in */
        br_scan_init(&j, a->prompt_tokens.p, a->prompt_tokens.n + 1, true);
        bool ok = br_scan_count(&j, &prompt, "");
        br_scan_init(&j, a->completion_tokens.p, a->completion_tokens.n + 1, true);
        if (ok && br_scan_count(&j, &completion, ""))
            br_buf_printf(&out,
                          ",\"usage\":{\"promptTokens\":%llu,\"completionTokens\":%llu,"
                          "\"totalTokens\":%llu}",
                          (unsigned long long)prompt, (unsigned long long)completion,
                          (unsigned long long)(prompt + completion));
    }
    br_buf_printf(&out, "}");
    if (out.failed)
        return 1;
    size_t n = out.len - 4;
    for (int i = 0; i < 4; i++)
        out.data[i] = (uint8_t)(n >> (24 - 8 * i));
    return write_all(1, out.data, out.len) ? 0 : 1;
}

static int trouble(const char *text)
{
    (void)write_all(2, text, strlen(text));
    return 1;
}

int br_observe_main(void)
{
    BR_CLEANUP_BUF struct br_buf in = BR_BUF_INIT(PACKET_MAX), body = BR_BUF_INIT(ANSWER_MAX);
    BR_CLEANUP_BUF struct br_buf value = BR_BUF_INIT(ANSWER_MAX);
    struct packet p = {.run_id = {.p = NULL}};
    struct answer a = {.content = {.p = NULL}};
    unsigned status = 0;
    char piece[16384];
    ssize_t n;
    while ((n = read(0, piece, sizeof(piece))) > 0)
        if (br_buf_put(&in, piece, (size_t)n) < 0)
            return trouble("the packet is too large\n");
    if (!read_packet(&in, &p))
        return trouble("the packet could not be read\n");
    if (narrow() < 0)
        return trouble("the system calls could not be given up\n");
    if (!ask(&p, &status, &body))
        return trouble("the provider did not answer\n");
    if (status != 200 || !read_answer(&body, &a) || !value_of(&a.content, &value))
        return say(&p, &a, NULL);
    return say(&p, &a, &value);
}
