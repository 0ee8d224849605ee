/*
 * Two clients of harness/acp/1 that say anything, while their runs go on: each line of the input is
 * a message of the first (1...) or of the second (2..., with the extension), or something that
 * happens (@.). "$P" in a message is the last question. Everything that is sent is one JSON object;
 * the first client's events come without a gap and not behind their end; a question has one
 * outcome; and when all have gone, nothing is left.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/test_world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LINES_MAX 200u

static struct gateway *g;
static struct conn *c[2];
static char permission[BR_ID_MAX], reading[BR_ID_MAX]; /* reading: the run whose rows are read */
static uint64_t next_seq[WORLD_RUNS], row;
/* The second client's events, of both kinds; how often they may begin anew: once for each time
 * that it asked for what was stored. */
static uint64_t next_of[2][WORLD_RUNS];
static unsigned anew[2][WORLD_RUNS];
static bool stopped[WORLD_RUNS], recorded;
static bool plain; /* the first client asked for nothing beyond the protocol */

static unsigned unshown; /* rows that are stored, and not shown yet */

static struct run *last(void)
{
    struct run *r = g->nruns ? &g->runs[g->nruns - 1] : NULL;
    static const struct run *of;
    if (r != of) /* those of one before it are lost */
        unshown = 0;
    of = r;
    return r && r->started && !r->ended && r->audit >= 0 ? r : NULL;
}

static void show(struct run *r)
{
    for (; unshown; unshown--) {
        char text[64];
        int n = snprintf(text, sizeof(text), "{\"v\":1,\"type\":\"error\",\"data\":{}}");
        world_bytes(g, r, r->row - unshown + 1, text, (size_t)n);
    }
}

static void store_only(struct run *r)
{
    if (r->row + 1 >= BR_ARRAY_LEN(r->own))
        return;
    r->own[++r->row] = false;
    r->seq++;
    unshown++;
}

static void resolve(struct run *r)
{
    if (recorded || !permission[0])
        return;
    if (br_ledger_state(r->ledger, permission) == BR_ASK_PENDING)
        br_require(br_ledger_end(r->ledger, permission, BR_ASK_EXPIRED, NULL) == 0);
    recorded = true;
    world_resolved(g, r, "c", permission);
}

static void to_run(struct run *r, char what)
{
    if (what != 'q')
        show(r);
    switch (what) {
    case 'q':
        store_only(r);
        break;
    case 'a':
    case 'r':
        resolve(r);
        world_ask(g, r, "c", what == 'r', permission);
        recorded = false;
        break;
    case 'd':
        resolve(r);
        break;
    case 't':
        world_event(g, r, "tool.call", "model", "{}");
        break;
    case 'x':
        world_event(g, r, "bridle.text", "agent", "{\"text\":\"x\"}");
        break;
    case 'e':
    case 'n':
        resolve(r);
        permission[0] = 0;
        world_end(g, r, what == 'e' ? "completed" : "failed");
        break;
    case 'k': /* the audit dies */
        world_close_audit(r);
        world_pump(g);
        world_ended(g, r, BR_E_PROGRAM_DIED, "");
        permission[0] = 0;
        break;
    case 'g': /* a gap */
        world_bytes(g, r, r->row + 2, "{\"v\":1,\"type\":\"error\"}", 22);
        break;
    default:
        break;
    }
}

/* The next row of what is read, if the store has it. */
static bool stored(void)
{
    const struct run *r = world_run(g, reading);
    if (!r || row >= r->row || row + 1 >= BR_ARRAY_LEN(r->own))
        return false;
    row++;
    world_stored(g, row, r->own[row]);
    return true;
}

/* To the end that the store has now: everything that was shown live was stored before. */
static void read_to_end(void)
{
    while (g->store.fd >= 0 && !g->store_full && stored())
        ;
    world_reading_end(g, g->store_full ? BR_E_STORE_FAILED : 0);
    g->store_full = false;
}

static void happen(char what)
{
    struct run *r = g->nruns ? &g->runs[g->nruns - 1] : NULL;
    if (what == 'h')
        g->hold_runs = !g->hold_runs;
    else if (what == 's' && r && r->asked && !r->started && !r->ended)
        world_start(g, r);
    else if (what == 'w')
        world_wait(g, 300u * 1000000u);
    else if (what == 'o')
        c[1]->room = c[1]->room ? 0 : 2;
    else if (what == 'p' && !c[1]->closing)
        gw_harness.writable(c[1]);
    else if (what == 'l' && g->read_call && g->store.fd < 0) {
        row = 0;
        memcpy(reading, g->read_id, sizeof(reading));
        world_reading(g, 0, "");
    } else if (what == 'm' && g->store.fd >= 0)
        (void)stored();
    else if (what == 'M' && g->store.fd >= 0)
        read_to_end();
    else if (what == '1' || what == '2')
        c[what - '1']->closing = true; /* it hangs up; its end comes with all of them */
    else if (last())
        to_run(last(), what);
}

/* The first client's events, and that all is JSON. */
static void hear(unsigned i)
{
    const char *text;
    while ((text = world_heard(c[i]))) {
        json_t *v = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        br_require(v);
        const json_t *params = json_object_get(v, "params");
        const char *method = json_string_value(json_object_get(v, "method")),
                   *id = json_string_value(json_object_get(params, "sessionId"));
        if (i == 0 && plain && method) {
            br_require(strcmp(method, "session/event") == 0 && strncmp(id, "run_", 4) == 0);
            unsigned k = (unsigned)atoi(id + 4) - 1;
            br_require(k < g->nruns && !stopped[k]);
            br_require((uint64_t)json_integer_value(json_object_get(params, "seq")) ==
                       next_seq[k]++);
            stopped[k] = strstr(text, "\"type\":\"agent.stopped\"") != NULL;
        }
        if (i == 1 && method && strcmp(method, "bridle/session") != 0) {
            unsigned k = (unsigned)atoi(id + 4) - 1, own = method[0] == 'b';
            uint64_t seq = (uint64_t)json_integer_value(json_object_get(params, "seq"));
            br_require(k < g->nruns && (seq == next_of[own][k] || anew[own][k]));
            anew[own][k] -= seq != next_of[own][k];
            next_of[own][k] = seq + 1;
        }
        json_decref(v);
    }
}

static void say(unsigned i, const uint8_t *p, size_t n)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1 << 20);
    for (size_t k = 0; k < n; k++) {
        bool id = k + 1 < n && p[k] == '$' && p[k + 1] == 'P';
        if (id)
            br_buf_put(&b, permission, strlen(permission));
        else
            br_buf_put(&b, p + k, 1);
        k += id;
    }
    if (c[i]->closing)
        return;
    plain &= i != 0 || !b.len || !memmem(b.data, b.len, "capabilities", 12) ||
             !(memmem(b.data, b.len, "sess", 4) || memmem(b.data, b.len, "ext", 3) ||
               memchr(b.data, '\\', b.len));
    bool load = i == 1 && b.len &&
                (memmem(b.data, b.len, "/load", 5) || memmem(b.data, b.len, "/resume", 7) ||
                 memchr(b.data, '\\', b.len));
    for (unsigned k = 0; load && k < WORLD_RUNS; k++)
        for (unsigned own = 0; own < 2; own++)
            anew[own][k] += next_of[own][k] != 0 || memmem(b.data, b.len, "fter", 4) != NULL;
    char *exact = malloc(b.len ? b.len : 1);
    br_require(exact);
    if (b.len)
        memcpy(exact, b.data, b.len);
    gw_harness.message(c[i], exact, b.len);
    free(exact);
    world_pump(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    g = world_new();
    g->settings.detach = 1;
    memset(next_seq, 0, sizeof(next_seq));
    memset(stopped, 0, sizeof(stopped));
    memset(next_of, 0, sizeof(next_of));
    memset(anew, 0, sizeof(anew));
    permission[0] = 0;
    plain = true;
    unshown = 0;
    c[0] = world_connect(g, &gw_harness, "uid:1000", BR_ACCESS_OPERATE);
    c[1] = world_connect(g, &gw_harness, "token:ops", BR_ACCESS_OPERATE);
    unsigned lines = 0;
    for (size_t at = 0; at < size && lines < LINES_MAX && g->nruns < WORLD_RUNS - 1; lines++) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        size_t n = end ? (size_t)(end - data) - at : size - at;
        if (n == 2 && data[at] == '@')
            happen((char)data[at + 1]);
        else if (n && (data[at] == '1' || data[at] == '2'))
            say(data[at] - '1', data + at + 1, n - 1);
        hear(0);
        hear(1);
        at += n + 1;
    }
    world_disconnect(g, c[0]);
    world_disconnect(g, c[1]);
    world_wait(g, 300u * 1000000u); /* one that was detached and never prompted */
    br_require(world_free(&g));
    return 0;
}
