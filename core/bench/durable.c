/*
 * Durable events: appended, redacted, checked, chained, stored, synced and streamed to a WebSocket
 * client, 64 on their way at a time; beside a Node server that stores what it is sent and echoes it
 * (node/server.mjs), with the same client, by turns in one run.
 */
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/gate.h"
#include "bench/node.h"

#define EVENTS BENCH_EVENTS_MAX
#define SESSIONS 8u
#define ROUNDS 5u
#define BODY_MAX 512u

enum { BRIDLE, TICK, EACH, LANES };
static const char *const names[LANES] = {"Bridle", "node, a commit a tick",
                                         "node, a commit an event"};

struct lane {
    uint64_t events, us;
};

/* ---- Bridle ---- */

static void count_event(void *ctx, const char *text, size_t n)
{
    static const char front[] = "{\"jsonrpc\":\"2.0\",\"method\":\"session/event\"";
    uint64_t *shown = ctx;
    *shown += n > sizeof(front) && memcmp(text, front, sizeof(front) - 1) == 0;
}

static int stream(struct bench_recorder *r, struct bench_ws *w, struct lane *l, struct br_err *err)
{
    uint64_t shown = 0, start = br_now_us();
    int ret = 0;
    while (ret == 0 && shown < EVENTS) {
        unsigned room = BENCH_IN_FLIGHT - (unsigned)(r->made - shown);
        unsigned left = EVENTS - (unsigned)r->made;
        if (room && left)
            ret = bench_recorder_append(r, room < left ? room : left, err);
        struct pollfd p = {.fd = w->fd, .events = POLLIN};
        if (ret == 0 && poll(&p, 1, 10000) != 1)
            ret = br_err_set(err, BR_E_TIMEOUT, "the events stopped coming at %llu",
                             (unsigned long long)shown);
        if (ret == 0)
            ret = bench_ws_take(w, count_event, &shown, err);
        if (ret == 0)
            ret = bench_recorder_answers(r, err);
    }
    l->us += br_now_us() - start;
    l->events += shown;
    return ret;
}

static int bridle_round(struct bench_gate *g, struct lane *l, double *cpu_us, struct br_err *err)
{
    static unsigned serial;
    struct bench_recorder next, now = {.pid = 0, .session = -1, .client = -1, .sup = {.fd = -1}};
    char id[BR_ID_MAX];
    /* one begins before the other ends, as in a service: the store stays open */
    snprintf(id, sizeof(id), "run_%026u", ++serial + 500000);
    int r = bench_recorder_open(&next, bench_scratch(), id, err);
    for (unsigned i = 0; r == 0 && i < SESSIONS; i++) {
        struct bench_ws w = {.fd = -1};
        int session = -1;
        now = next;
        snprintf(id, sizeof(id), "run_%026u", ++serial + 500000);
        r = bench_recorder_open(&next, bench_scratch(), id, err);
        if (r == 0)
            r = bench_gate_session(g, &w, &now, &session, err);
        if (r == 0)
            r = stream(&now, &w, l, err);
        int c = bench_recorder_close(&now, r < 0 ? NULL : err);
        r = r < 0 ? r : c;
        *cpu_us += now.cpu_us;
        if (r == 0)
            r = bench_gate_end(g, err);
        br_close(&session);
        bench_ws_close(&w);
    }
    (void)bench_recorder_close(&next, NULL);
    return r;
}

/* ---- Node ---- */

static void make_body(struct br_buf *b, unsigned long n)
{
    br_buf_printf(b,
                  "{\"v\":1,\"type\":\"tool.call\",\"eventId\":\"evt_01HF%022lx\",\"at\":"
                  "\"2026-11-30T09:00:00."
                  "000+00:00\",\"actor\":\"agent\",\"data\":{\"callId\":\"call_%016lx\","
                  "\"tool\":\"fs_write\","
                  "\"input\":{\"path\":\"src/module_%lu/index.ts\",\"content\":\"export "
                  "const value = %lu; // "
                  "what the next step reads\"}}}",
                  n, n, n % 97, n);
}

/* As Bridle's events, before anything is measured. */
static struct {
    struct br_buf bytes;
    size_t end[EVENTS + 1];
} bodies = {.bytes = BR_BUF_INIT(EVENTS * BODY_MAX)};

static void make_bodies(void)
{
    for (unsigned i = 0; i < EVENTS && !bodies.end[EVENTS]; i++) {
        make_body(&bodies.bytes, i);
        bodies.end[i + 1] = bodies.bytes.len;
    }
    br_require(!bodies.bytes.failed);
}

static void count_echo(void *ctx, const char *text, size_t n)
{
    (void)text;
    (void)n;
    ++*(uint64_t *)ctx;
}

static int node_round(struct bench_node *node, struct lane *l, unsigned events, struct br_err *err)
{
    struct bench_ws w = {.fd = -1};
    uint64_t made = 0, shown = 0;
    make_bodies();
    int r = bench_ws_open(&w, node->port, "/", err);
    uint64_t start = br_now_us();
    while (r == 0 && shown < events) {
        for (; made - shown < BENCH_IN_FLIGHT && made < events; made++) {
            const size_t *end = &bodies.end[made % EVENTS];
            bench_ws_put(&w, (char *)bodies.bytes.data + end[0], end[1] - end[0]);
        }
        r = bench_ws_flush(&w, err);
        struct pollfd p = {.fd = w.fd, .events = POLLIN};
        if (r == 0)
            (void)poll(&p, 1, 10000);
        if (r == 0)
            r = bench_ws_take(&w, count_echo, &shown, err);
    }
    l->us += br_now_us() - start;
    l->events += shown;
    bench_ws_close(&w);
    return r;
}

/* ---- the disk ---- */

static double sync_us(struct br_err *err)
{
    static struct samples s;
    static char block[32768];
    char path[160];
    snprintf(path, sizeof(path), "%s/sync", bench_scratch());
    BR_CLEANUP_FD int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    (void)err;
    for (unsigned i = 0; fd >= 0 && i < 64; i++)
        if (pwrite(fd, block, sizeof(block), (off_t)i * (off_t)sizeof(block)) < 0)
            return NAN;
    if (fd < 0 || fsync(fd) < 0)
        return NAN;
    for (unsigned i = 0; i < 300; i++) {
        block[0] = (char)i;
        if (pwrite(fd, block, sizeof(block), (off_t)(i % 64) * (off_t)sizeof(block)) < 0)
            return NAN;
        uint64_t start = br_now_us();
        if (fdatasync(fd) < 0)
            return NAN;
        samples_add(&s, start, br_now_us());
    }
    return samples_median(&s);
}

/* ---- rows ---- */

static double rate(const struct lane *l)
{
    return l->us ? (double)l->events * 1e6 / (double)l->us : NAN;
}

static int measure(struct bench_gate *g, struct bench_node node[LANES], struct br_err *err)
{
    struct lane lanes[LANES] = {{0}};
    double best[LANES] = {0}, cpu = 0;
    uint64_t events = 0;
    int r = 0;
    for (unsigned round = 0; r == 0 && round < ROUNDS; round++) {
        memset(lanes, 0, sizeof(lanes));
        r = bridle_round(g, &lanes[BRIDLE], &cpu, err);
        if (r == 0 && node[TICK].pid)
            r = node_round(&node[TICK], &lanes[TICK], EVENTS * SESSIONS, err);
        if (r == 0 && node[EACH].pid)
            r = node_round(&node[EACH], &lanes[EACH], EVENTS, err);
        events += lanes[BRIDLE].events;
        for (unsigned i = 0; i < LANES; i++)
            if (lanes[i].us && rate(&lanes[i]) > best[i])
                best[i] = rate(&lanes[i]);
        bench_note("  round %u: %s %.0f/s, %s %.0f/s, %s %.0f/s", round + 1, names[BRIDLE],
                   rate(&lanes[BRIDLE]), names[TICK], rate(&lanes[TICK]), names[EACH],
                   rate(&lanes[EACH]));
    }
    if (r < 0)
        return r;
    if (node[TICK].pid) {
        bench_row("durable events to a client", best[BRIDLE], "/s", names[TICK], best[TICK], 1.5,
                  true);
        bench_row("durable events to a client", best[BRIDLE], "/s", names[EACH], best[EACH], 8,
                  true);
    } else {
        bench_row("durable events to a client", best[BRIDLE], "/s", NULL, 0, 40000, true);
    }
    bench_note("  best of %u rounds by turns; bridle-audit takes %.1f us of a processor for an "
               "event; one fdatasync of 32 KiB: %.0f us",
               ROUNDS, cpu / (double)events, sync_us(err));
    return 0;
}

int bench_durable(struct br_err *err)
{
    struct bench_gate g;
    struct bench_node node[LANES] = {{0}};
    int r = bench_gate_open(&g, err);
    if (r == 0 && bench_node_there()) {
        r = bench_node_start(&node[TICK], "tick", err);
        if (r == 0)
            r = bench_node_start(&node[EACH], "each", err);
    }
    if (r == 0)
        r = measure(&g, node, err);
    bench_node_end(&node[TICK]);
    bench_node_end(&node[EACH]);
    uint64_t shown = ROUNDS * SESSIONS * EVENTS;
    bench_gate_close(&g);
    if (r == 0)
        bench_note("  bridle-gateway takes %.1f us", g.cpu_us / (double)shown);
    return r;
}
