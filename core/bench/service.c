/*
 * The rows of the whole service: `bridle serve` as an operator starts it, with real runs through
 * the scripted provider. What 10,000 idle connections cost, 1,000 sessions, how long an answer to a
 * question takes; beside a bare server in Node where there is one.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/node.h"
#include "bench/wsclient.h"

#define IDLE 10000u
#define SESSIONS 1000u
#define CONNECTIONS 40u
#define ASKS 16u /* turns, each with one */
#define ASK_RUNS 15u
#define ECHOES 500u

static const char policy[] =
    "local policy = require \"bridle.policy\"\n"
    "return policy.bundle { api = 1, name = \"bench\", rules = {\n"
    "  policy.ask { id = \"ask\", action = \"process.exec\", command = \"true *\" },\n} }\n";

struct service {
    pid_t pid;
    uint16_t port;
    char dir[128];
};

static int put(const char *dir, const char *name, const char *text, size_t n)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    BR_CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    return fd >= 0 ? br_write_all(fd, text, n) : -1;
}

/* "ask" gets a question in each of so many turns; anything else a text. */
static int put_scenario(const char *dir)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1u << 20);
    br_buf_printf(&b, "{\"v\":1,\"name\":\"bench\",\"turns\":[");
    for (unsigned i = 0; i < ASKS; i++)
        br_buf_printf(
            &b,
            "{\"when\":{\"assistant_messages\":%u%s},\"text\":\"May I?\",\"tool_calls\":[{"
            "\"name\":\"process_exec\",\"arguments\":{\"argv\":[\"true\",\"%u\"]}}]},",
            i, i ? "" : ",\"last_user_contains\":\"ask\"", i);
    br_buf_printf(&b, "{\"text\":\"Done.\"}]}");
    return b.failed ? -1 : put(dir, "scenario.json", (char *)b.data, b.len);
}

/* One client asks more often here than a person does. */
static int put_config(const char *dir, const char *root)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_PATH_MAX + 256);
    br_buf_printf(
        &b,
        "return { api = 1, service = { root = '%s', limits = { requests_per_second = 0 } } "
        "}\n",
        root);
    return b.failed ? -1 : put(dir, "bridle.lua", (char *)b.data, b.len);
}

static int start(struct service *s, struct br_err *err)
{
    char path[BR_PATH_MAX], bridle[BR_PATH_MAX + 16], command[3 * BR_PATH_MAX];
    int out[2];
    *s = (struct service){.pid = 0};
    snprintf(s->dir, sizeof(s->dir), "%s/service", bench_scratch());
    snprintf(path, sizeof(path), "%s/root", s->dir);
    snprintf(bridle, sizeof(bridle), "%s/bridle", bench_bin_path());
    if (mkdir(s->dir, 0755) < 0 || mkdir(path, 0755) < 0 ||
        (geteuid() == 0 && chown(path, 1000, 1000) < 0) || put_config(s->dir, path) < 0 ||
        put(s->dir, "policy.lua", policy, sizeof(policy) - 1) < 0 || put_scenario(s->dir) < 0)
        return br_err_errno(err, BR_E_IO, "'%s' could not be prepared", s->dir);
    snprintf(command, sizeof(command),
             "BRIDLE_STATE_DIR='%s/state' '%s' activate run-v1 >/dev/null", s->dir, bridle);
    if (system(command) != 0)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING, "the profile 'run-v1' does not work here");
    if (pipe2(out, O_CLOEXEC) < 0)
        return br_err_errno(err, BR_E_IO, "no pipe for the service");
    s->pid = fork();
    if (s->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        const char *const argv[] = {"bridle",     "serve",         "--config", "bridle.lua",
                                    "--policy",   "policy.lua",    "--listen", "127.0.0.1:0",
                                    "--scenario", "scenario.json", NULL};
        int null = open("/dev/null", O_RDWR);
        snprintf(path, sizeof(path), "%s/state", s->dir);
        setenv("BRIDLE_STATE_DIR", path, 1);
        if (chdir(s->dir) == 0 && dup2(null, 0) == 0 && dup2(out[1], 1) == 1 && dup2(null, 2) == 2)
            execv(bridle, (char *const *)argv);
        _exit(127);
    }
    br_close(&out[1]);
    char line[512] = "";
    size_t have = 0;
    while (!strstr(line, "127.0.0.1:") || !strchr(line, '\n')) {
        ssize_t n = read(out[0], line + have, sizeof(line) - 1 - have);
        if (n <= 0)
            break;
        have += (size_t)n;
        line[have] = 0;
    }
    br_close(&out[0]);
    const char *port = strstr(line, "127.0.0.1:");
    s->port = port ? (uint16_t)atoi(port + 10) : 0;
    return s->port ? 0 : br_err_set(err, BR_E_FAILED, "'bridle serve' did not start: %s", line);
}

static void stop(struct service *s)
{
    if (s->pid <= 0)
        return;
    (void)kill(s->pid, SIGTERM);
    (void)waitpid(s->pid, NULL, 0);
    s->pid = 0;
}

/* ---- idle connections ---- */

static int open_idle(uint16_t port, const char *path, int *fds, unsigned n, struct br_err *err)
{
    for (unsigned i = 0; i < n; i++) {
        struct bench_ws w;
        int r = bench_ws_open(&w, port, path, err);
        fds[i] = br_steal_fd(&w.fd);
        bench_ws_close(&w);
        if (r < 0)
            return br_err_wrap(err, "connection %u", i + 1);
    }
    return 0;
}

static int idle_rows(const struct service *s, bool node, struct br_err *err)
{
    static int fds[IDLE];
    struct rlimit lim;
    unsigned n = IDLE, programs = 0, ignored;
    double before = 0, bytes = 0, bare = 0;
    if (getrlimit(RLIMIT_NOFILE, &lim) == 0) {
        lim.rlim_cur = lim.rlim_max < IDLE + 256 ? lim.rlim_max : IDLE + 256;
        (void)setrlimit(RLIMIT_NOFILE, &lim);
        if (lim.rlim_cur < IDLE + 64)
            n = (unsigned)lim.rlim_cur - 64;
    }
    memset(fds, -1, sizeof(fds));
    bench_memory(s->pid, &before, &programs);
    int r = open_idle(s->port, "/acp", fds, n, err);
    usleep(500000);
    programs = 0;
    bench_memory(s->pid, &bytes, &programs);
    for (unsigned i = 0; i < n; i++)
        br_close(&fds[i]);
    if (r == 0 && node) {
        struct bench_node bn;
        r = bench_node_start(&bn, "idle", err);
        if (r == 0)
            r = open_idle(bn.port, "/", fds, n, err);
        usleep(500000);
        bench_memory_of(bn.pid, &bare, &ignored);
        for (unsigned i = 0; i < n; i++)
            br_close(&fds[i]);
        bench_node_end(&bn);
    }
    if (r < 0)
        return r;
    if (n < IDLE)
        bench_note("  only %u connections: the limit of open files is low", n);
    bench_row("memory with 10,000 idle connections", bytes / 1e6, "MB", NULL, 0, 100, false);
    bench_note("  proportional set size of %u programs; %.1f MB without connections%s", programs,
               before / 1e6, bare > 0 ? "" : "; no Node to compare with");
    if (bare > 0)
        bench_note("  a bare server of Node and ws: %.1f MB", bare / 1e6);
    return 0;
}

/* ---- a client of the protocol ---- */

struct client {
    struct bench_ws w;
    unsigned left; /* sessions that it still makes */
    unsigned done, errors;
    bool busy;
    /* questions */
    char asked[ASKS][40], session[64];
    unsigned nasked, next; /* the one that is answered now */
    uint64_t said_us;
    struct samples *rtt;
};

static void say(struct client *c, const char *fmt, ...) BR_PRINTF(2, 3);
static void say(struct client *c, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    bench_ws_put(&c->w, text, (size_t)n);
}

static bool value_of(const char *text, size_t n, const char *key, char *dst, size_t cap)
{
    char want[64];
    int k = snprintf(want, sizeof(want), "\"%s\":\"", key);
    const char *p = memmem(text, n, want, (size_t)k);
    const char *end = p ? memchr(p + k, '"', (size_t)(text + n - p - k)) : NULL;
    if (!end || (size_t)(end - p - k) >= cap)
        return false;
    memcpy(dst, p + k, (size_t)(end - p - k));
    dst[end - p - k] = 0;
    return true;
}

/* One after the other. */
static void answer(struct client *c)
{
    if (c->said_us || c->next == c->nasked)
        return;
    say(c,
        "{\"jsonrpc\":\"2.0\",\"id\":\"answer\",\"method\":\"permission/respond\",\"params\":{"
        "\"sessionId\":\"%s\",\"permissionId\":\"%s\",\"decision\":\"allow\"}}",
        c->session, c->asked[c->next]);
    c->said_us = br_now_us();
}

static void begin(struct client *c)
{
    c->nasked = c->next = 0;
    c->said_us = 0;
    if (!c->left)
        return;
    c->left--;
    c->busy = true;
    say(c,
        "{\"jsonrpc\":\"2.0\",\"id\":\"new\",\"method\":\"session/new\",\"params\":{\"workspace\":"
        "\".\"}}");
}

static void on_message(void *ctx, const char *text, size_t n)
{
    struct client *c = ctx;
    char id[64];
    if (memmem(text, n, "\"error\":{\"code\":", 16) && memmem(text, n, "\"jsonrpc\"", 9) &&
        !memmem(text, n, "\"method\"", 8)) {
        c->errors++;
        c->busy = false;
        begin(c);
    } else if (memmem(text, n, "\"id\":\"init\"", 11)) {
        begin(c);
    } else if (memmem(text, n, "\"id\":\"new\"", 10)) {
        (void)value_of(text, n, "sessionId", c->session, sizeof(c->session));
        say(c,
            "{\"jsonrpc\":\"2.0\",\"id\":\"run\",\"method\":\"session/prompt\",\"params\":{"
            "\"sessionId\":\"%s\",\"content\":\"%s\"}}",
            c->session, c->rtt ? "ask" : "go");
    } else if (memmem(text, n, "\"id\":\"run\"", 10)) {
        if (memmem(text, n, "\"status\":\"completed\"", 20))
            c->done++;
        else
            c->errors++;
        c->busy = false;
        begin(c);
    } else if (c->rtt && memmem(text, n, "\"type\":\"permission.resolved\"", 28)) {
        if (!c->said_us || !value_of(text, n, "permissionId", id, sizeof(id)) ||
            strcmp(id, c->asked[c->next]) != 0)
            return;
        samples_add(c->rtt, c->said_us, br_now_us());
        c->said_us = 0;
        c->next++;
        answer(c);
    } else if (c->rtt && c->nasked < ASKS &&
               memmem(text, n, "\"type\":\"permission.requested\"", 29)) {
        if (value_of(text, n, "permissionId", c->asked[c->nasked], sizeof(c->asked[0])))
            c->nasked++;
        answer(c);
    }
}

static int greet(struct client *c, uint16_t port, struct br_err *err)
{
    int r = bench_ws_open(&c->w, port, "/acp", err);
    if (r < 0)
        return r;
    say(c, "{\"jsonrpc\":\"2.0\",\"id\":\"init\",\"method\":\"initialize\",\"params\":{"
           "\"protocolVersion\":\"harness/acp/1\",\"clientName\":\"bench\",\"capabilities\":{"
           "\"streaming\":true,\"permissioning\":true}}}");
    return bench_ws_flush(&c->w, err);
}

/* Serve them until all have done what they were to do. */
static int serve(struct client *c, unsigned n, struct br_err *err)
{
    static struct pollfd p[CONNECTIONS];
    for (;;) {
        bool busy = false;
        for (unsigned i = 0; i < n; i++) {
            p[i] = (struct pollfd){.fd = c[i].w.fd, .events = POLLIN};
            busy |= c[i].busy || c[i].left;
        }
        if (!busy)
            return 0;
        if (poll(p, n, 60000) <= 0)
            return br_err_set(err, BR_E_TIMEOUT, "the service does not go on");
        for (unsigned i = 0; i < n; i++) {
            int r = p[i].revents ? bench_ws_take(&c[i].w, on_message, &c[i], err) : 0;
            if (r < 0)
                return r;
        }
    }
}

static int sessions_row(const struct service *s, struct br_err *err)
{
    static struct client c[CONNECTIONS];
    unsigned done = 0, errors = 0;
    int r = 0;
    uint64_t start_us = br_now_us();
    for (unsigned i = 0; i < CONNECTIONS; i++)
        c[i] = (struct client){.w = {.fd = -1}, .left = SESSIONS / CONNECTIONS};
    for (unsigned i = 0; i < CONNECTIONS && r == 0; i++)
        r = greet(&c[i], s->port, err);
    if (r == 0)
        r = serve(c, CONNECTIONS, err);
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        done += c[i].done;
        errors += c[i].errors;
        bench_ws_close(&c[i].w);
    }
    if (r < 0)
        return r;
    double seconds = (double)(br_now_us() - start_us) / 1e6;
    bench_row("1,000 sessions, errors", errors + (SESSIONS - done), "", NULL, 0, 0, false);
    bench_note("  created, prompted and finished over %u connections in %.1f s: %.1f ms each",
               CONNECTIONS, seconds, seconds * 1000 / SESSIONS);
    return 0;
}

/* ---- answers ---- */

static void on_echo(void *ctx, const char *text, size_t n)
{
    (void)text, (void)n;
    *(bool *)ctx = true;
}

static int echo_us(double *median, struct br_err *err)
{
    static struct samples s;
    struct bench_node node;
    struct bench_ws w = {.fd = -1};
    int r = bench_node_start(&node, "idle", err);
    if (r == 0)
        r = bench_ws_open(&w, node.port, "/", err);
    for (unsigned i = 0; r == 0 && i < ECHOES; i++) {
        bool back = false;
        bench_ws_put(&w, "an answer of the usual length, and back", 39);
        uint64_t start_us = br_now_us();
        r = bench_ws_flush(&w, err);
        while (r == 0 && !back) {
            struct pollfd p = {.fd = w.fd, .events = POLLIN};
            (void)poll(&p, 1, 1000);
            r = bench_ws_take(&w, on_echo, &back, err);
        }
        samples_add(&s, start_us, br_now_us());
    }
    bench_ws_close(&w);
    bench_node_end(&node);
    *median = samples_median(&s);
    return r;
}

static int answer_rows(const struct service *s, bool node, struct br_err *err)
{
    static struct samples rtt;
    static struct client c;
    double echo = 0;
    c = (struct client){.w = {.fd = -1}, .left = ASK_RUNS, .rtt = &rtt};
    int r = greet(&c, s->port, err);
    if (r == 0)
        r = serve(&c, 1, err);
    bench_ws_close(&c.w);
    if (r == 0 && node)
        r = echo_us(&echo, err);
    if (r == 0 && rtt.n < ASKS * ASK_RUNS)
        r = br_err_set(err, BR_E_FAILED, "only %u questions were answered", rtt.n);
    if (r < 0)
        return r;
    bench_row("answer to a question, until resolved", samples_median(&rtt), "us", NULL, 0, 1000,
              false);
    bench_note("  99th percentile %.0f us, of %u; stored and synced on the way%s",
               samples_p99(&rtt), rtt.n, echo > 0 ? "" : "; no Node to compare with");
    if (echo > 0)
        bench_note("  an echo of Node and ws, which stores nothing: %.0f us", echo);
    return 0;
}

/* ---- soak ---- */

static unsigned open_files(pid_t pid)
{
    char path[64];
    unsigned n = 0;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

/* Connections of a few sessions each, one after the other, four at a time. */
static int soak_round(const struct service *s, unsigned *done, unsigned *errors, struct br_err *err)
{
    static struct client c[4];
    int r = 0;
    for (unsigned i = 0; i < BR_ARRAY_LEN(c); i++)
        c[i] = (struct client){.w = {.fd = -1}, .left = 5};
    for (unsigned i = 0; i < BR_ARRAY_LEN(c) && r == 0; i++)
        r = greet(&c[i], s->port, err);
    if (r == 0)
        r = serve(c, BR_ARRAY_LEN(c), err);
    for (unsigned i = 0; i < BR_ARRAY_LEN(c); i++) {
        *done += c[i].done;
        *errors += c[i].errors;
        bench_ws_close(&c[i].w);
    }
    return r;
}

int bench_soak(unsigned seconds, struct br_err *err)
{
    struct service s;
    double first = 0, last = 0;
    unsigned done = 0, errors = 0, programs = 0, files = 0, warm = 0;
    int r = start(&s, err);
    uint64_t start_us = br_now_us(), end_us = start_us + seconds * 1000000ull, told = 0;
    while (r == 0 && br_now_us() < end_us) {
        r = soak_round(&s, &done, &errors, err);
        uint64_t minute = (br_now_us() - start_us) / 60000000;
        if (r == 0 && !warm && done >= 100) {
            usleep(1000000);
            bench_memory(s.pid, &first, &programs);
            files = open_files(s.pid);
            warm = done;
        }
        if (r == 0 && warm && minute > told) {
            double now = 0;
            told = minute;
            bench_memory(s.pid, &now, &programs);
            bench_note("  minute %u: %u sessions, %.2f MB", (unsigned)minute, done, now / 1e6);
        }
    }
    usleep(1000000);
    programs = 0;
    if (r == 0)
        bench_memory(s.pid, &last, &programs);
    unsigned files_after = r == 0 ? open_files(s.pid) : 0;
    stop(&s);
    if (r < 0)
        return r;
    bench_row("memory after a soak", last / 1e6, "MB", "after 100 sessions", first / 1e6, 1.1,
              false);
    bench_note("  %u sessions in %u s, %u errors; %u programs; files of bridled: %u, then %u", done,
               seconds, errors, programs, files, files_after);
    return errors ? br_err_set(err, BR_E_FAILED, "%u sessions had errors", errors) : 0;
}

int bench_service(struct br_err *err)
{
    struct service s;
    if (geteuid() != 0) {
        bench_note("  the service's memory and sessions: measured as root only");
        return 0;
    }
    bool node = bench_node_there();
    int r = start(&s, err);
    if (r == 0)
        r = idle_rows(&s, node, err);
    if (r == 0)
        r = answer_rows(&s, node, err);
    if (r == 0)
        r = sessions_row(&s, err);
    stop(&s);
    return r;
}
