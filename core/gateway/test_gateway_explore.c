/*
 * The permission handshake, in every order. Two questions are open; their owner, a second operator
 * and somebody who has no business there answer, the owner cancels or goes, time runs out, and the
 * session, the audit or the gateway dies: whatever may happen next does, after everything that may
 * have happened before, and each message crosses on its own. Sessions, protocol and ledger are the
 * real ones; bridled, the session's loop (core/session/ask.c) and the audit are played, each by a
 * few lines below.
 *
 * Every state is reached by playing its history again in a new world; one that was seen before is
 * not gone through twice. From each, the world is then let run to its end, and has to be in order:
 * one outcome for each question, in the ledger and in the record; no effect without an answer that
 * allows it; at most one answer accepted, and that is the outcome; every request answered; every
 * client shown what is stored, without a gap; nothing open.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/test_strict.h"

#define DEPTH_MAX 40u
#define STATES_MAX 400000u
/* Of every order; BRIDLE_EXPLORE in the environment goes deeper. */
#ifdef BR_SANITIZED
#define DEPTH 3u
#define LONG 400u
#else
#define DEPTH 4u
#define LONG 1500u
#endif

enum action {
    /* clients */
    OWNER_ALLOWS_A,
    OWNER_DENIES_B,
    SECOND_DENIES_A,
    SECOND_ALLOWS_A_FOR_THE_RUN,
    SECOND_ALLOWS_B_FOR_THE_RUN, /* which was offered once only */
    FOREIGN_ALLOWS_A,
    OWNER_CANCELS,
    OWNER_GOES,
    SECOND_GOES,
    /* one message arrives, in the order of enum world_way */
    ARRIVES,
    /* the session's loop, time, and death */
    SESSION_WAKES = ARRIVES + WORLD_WAYS,
    TIME_RUNS_OUT,
    SESSION_DIES,
    AUDIT_DIES,
    GATEWAY_DIES,
    ACTIONS
};

static const char *const names[ACTIONS] = {"owner allows A",
                                           "owner denies B",
                                           "second denies A",
                                           "second allows A for run",
                                           "second allows B for run",
                                           "foreign allows A",
                                           "owner cancels",
                                           "owner goes",
                                           "second goes",
                                           "to bridled",
                                           "from bridled",
                                           "to session",
                                           "from session",
                                           "from audit",
                                           "session wakes",
                                           "time runs out",
                                           "session dies",
                                           "audit dies",
                                           "gateway dies"};

enum { A, B, ASKS };
enum { OWNER, SECOND, FOREIGN, CLIENTS };

/* What is left out, to see that it would be found. */
enum weakness {
    NONE,
    EFFECT_WITHOUT_A_GRANT,
    RESOLVED_TWICE,
    FORGOTTEN_AT_CANCEL,
    STRANGER_LET_IN,
    WEAKNESSES
};
static enum weakness weak;
static unsigned found; /* what was found of a weak one */

/* Everything that is played. */
struct play {
    struct gateway *g;
    struct run *r;
    struct conn *c[CLIENTS];
    char id[ASKS][BR_ID_MAX];
    bool used[ACTIONS];
    bool stop; /* the session was told to, or has to */
    bool session_dead, audit_dead, gateway_dead, over;
    bool recorded[ASKS];
    unsigned effects[ASKS];
    enum br_ask_end outcome[ASKS]; /* in the record */
    unsigned resolutions[ASKS];
    unsigned stored; /* events, not Bridle's own */
    bool stopped;    /* agent.stopped is stored */
    /* what clients heard: per request 0 nothing, 1 accepted, 2 resolved before, 3 another error */
    unsigned answer[ACTIONS];
    uint64_t seen[CLIENTS]; /* session/event */
    unsigned prompt_end;    /* of the owner's prompt: 0 nothing, 1 a result, 2 an error */
    unsigned told;          /* bridle/session, of the record that broke off */
    unsigned accepted_by_ledger[ASKS];
};

static struct play *playing;

static const struct {
    unsigned client, ask;
    bool allow, run;
} answers[] = {
    [OWNER_ALLOWS_A] = {OWNER, A, true, false},
    [OWNER_DENIES_B] = {OWNER, B, false, false},
    [SECOND_DENIES_A] = {SECOND, A, false, false},
    [SECOND_ALLOWS_A_FOR_THE_RUN] = {SECOND, A, true, true},
    [SECOND_ALLOWS_B_FOR_THE_RUN] = {SECOND, B, true, true},
    [FOREIGN_ALLOWS_A] = {FOREIGN, A, true, false},
};

/* ---- the record ---- */

static void store(struct play *p, const char *type, const char *data)
{
    p->stored++;
    p->stopped |= strcmp(type, "agent.stopped") == 0;
    if (!p->gateway_dead && !p->audit_dead)
        world_event(p->g, p->r, type, "kernel", "%s", data);
}

static void store_resolved(struct play *p, unsigned k, enum br_ask_end how)
{
    char data[256];
    p->resolutions[k]++;
    p->recorded[k] = true;
    p->outcome[k] = how;
    snprintf(data, sizeof(data), "{\"permissionId\":\"%s\",\"decision\":\"%s\"}", p->id[k],
             how == BR_ASK_ALLOWED ? "allow" : "deny");
    store(p, "permission.resolved", data);
}

/* Who closes a record that did not end itself: open questions are denied. */
static void complete_record(struct play *p, const char *status)
{
    char data[64];
    for (unsigned k = 0; k < ASKS; k++)
        if (!p->recorded[k])
            store_resolved(p, k, BR_ASK_CANCELED);
    snprintf(data, sizeof(data), "{\"status\":\"%s\"}", status);
    if (!p->stopped)
        store(p, "agent.stopped", data);
}

static void end_run(struct play *p, int code)
{
    p->over = true;
    br_chan_close(&p->r->session);
    world_close_audit(p->r);
    if (!p->gateway_dead)
        world_ended(p->g, p->r, code, "");
}

/* ---- the session's loop, as core/session/ask.c has it ---- */

static enum br_ask_end ask_state(const struct play *p, unsigned k)
{
    return br_ledger_state(p->r->ledger, p->id[k]);
}

static void end_open(struct play *p, enum br_ask_end how)
{
    for (unsigned k = 0; k < ASKS; k++)
        if (ask_state(p, k) == BR_ASK_PENDING)
            (void)br_ledger_end(p->r->ledger, p->id[k], how, NULL);
}

static void do_effect(struct play *p, unsigned k)
{
    static const uint8_t here[BR_ENVIRONMENT_BYTES] = "here";
    static const char *const calls[] = {"a", "b"};
    struct br_grant_ref ref;
    if (weak == EFFECT_WITHOUT_A_GRANT)
        p->effects[k]++;
    /* tried for every question, answered or not: the ledger is what stops it */
    else if (br_ledger_mint(p->r->ledger, BR_EFFECT_ASK, p->id[k], here, calls[k], "fs.write", "a",
                            1, &ref, NULL) == 0 &&
             br_ledger_redeem(p->r->ledger, &ref, calls[k], "fs.write", "a", 1, NULL) == 0)
        p->effects[k]++;
}

static bool session_may_wake(const struct play *p)
{
    bool any = p->stop;
    for (unsigned k = 0; k < ASKS; k++)
        any |= ask_state(p, k) != BR_ASK_PENDING && !p->recorded[k];
    return any && !p->session_dead && !p->over;
}

static void session_wakes(struct play *p)
{
    bool all = true;
    if (p->audit_dead) { /* what cannot be recorded does not happen */
        end_open(p, BR_ASK_CANCELED);
        end_run(p, BR_E_STORE_FAILED);
        return;
    }
    if (p->stop && weak != FORGOTTEN_AT_CANCEL)
        end_open(p, BR_ASK_CANCELED);
    for (unsigned k = 0; k < ASKS; k++) {
        enum br_ask_end how = ask_state(p, k);
        if (how == BR_ASK_PENDING) {
            all = false;
        } else if (!p->recorded[k]) {
            store_resolved(p, k, how);
            if (weak == RESOLVED_TWICE)
                store_resolved(p, k, how);
            if (!p->stop)
                do_effect(p, k);
            store(p, "tool.result", "{}");
        }
    }
    if (!all)
        return;
    store(p, "agent.stopped", p->stop ? "{\"status\":\"canceled\"}" : "{\"status\":\"completed\"}");
    end_run(p, p->stop ? BR_E_CANCELED : 0);
}

static void on_ledger(struct run *r, const char *permission, int code)
{
    (void)r;
    for (unsigned k = 0; k < ASKS; k++)
        if (strcmp(playing->id[k], permission) == 0)
            playing->accepted_by_ledger[k] += code == 0;
}

/* ---- what may happen, and does ---- */

static bool one_died(const struct play *p)
{
    return p->session_dead || p->audit_dead || p->gateway_dead;
}

static bool enabled(struct play *p, enum action a)
{
    if (a < ARRIVES && p->used[a])
        return false;
    switch (a) {
    case OWNER_ALLOWS_A:
    case OWNER_DENIES_B:
    case OWNER_CANCELS:
    case OWNER_GOES:
        return !p->gateway_dead && p->c[OWNER];
    case SECOND_DENIES_A:
    case SECOND_ALLOWS_A_FOR_THE_RUN:
    case SECOND_ALLOWS_B_FOR_THE_RUN:
    case SECOND_GOES:
        return !p->gateway_dead && p->c[SECOND];
    case FOREIGN_ALLOWS_A:
        return !p->gateway_dead;
    case SESSION_WAKES:
        return session_may_wake(p);
    case TIME_RUNS_OUT:
        return !p->session_dead && !p->over &&
               (ask_state(p, A) == BR_ASK_PENDING || ask_state(p, B) == BR_ASK_PENDING);
    case SESSION_DIES:
    case AUDIT_DIES:
    case GATEWAY_DIES:
        return !one_died(p) && !p->over;
    default:
        return !p->gateway_dead && world_waits(p->g, (enum world_way)(a - ARRIVES)) &&
               !(p->session_dead && a - ARRIVES == WORLD_TO_SESSION);
    }
}

static void say_answer(struct play *p, enum action a)
{
    bool extended = answers[a].client != OWNER;
    world_say(p->g, p->c[answers[a].client],
              "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"permission/respond\",\"params\":{"
              "\"sessionId\":\"%s\",\"permissionId\":\"%s\",\"decision\":\"%s\"%s}}",
              (int)a + 100, p->r->id, p->id[answers[a].ask], answers[a].allow ? "allow" : "deny",
              extended && answers[a].run ? ",\"scope\":\"run\"" : "");
}

static void gateway_dies(struct play *p)
{
    p->gateway_dead = true;
    p->stop = true; /* bridled cancels what it had started */
    for (unsigned i = 0; i < CLIENTS; i++) {
        if (p->c[i])
            world_disconnect(p->g, p->c[i]);
        p->c[i] = NULL;
    }
    br_chan_close(&p->r->session); /* its ends are closed with it */
    world_close_audit(p->r);
}

static void act(struct play *p, enum action a)
{
    p->used[a] = true;
    switch (a) {
    case OWNER_CANCELS:
        world_say(p->g, p->c[OWNER], REQ("%d", "session/cancel", "\"sessionId\":\"%s\""),
                  (int)a + 100, p->r->id);
        break;
    case OWNER_GOES:
    case SECOND_GOES:
        world_disconnect(p->g, p->c[a == OWNER_GOES ? OWNER : SECOND]);
        p->c[a == OWNER_GOES ? OWNER : SECOND] = NULL;
        break;
    case SESSION_WAKES:
        session_wakes(p);
        break;
    case TIME_RUNS_OUT:
        end_open(p, BR_ASK_EXPIRED);
        break;
    case SESSION_DIES: /* and audit completes the record */
        p->session_dead = true;
        complete_record(p, "failed");
        end_run(p, BR_E_PROGRAM_DIED);
        break;
    case AUDIT_DIES:
        p->audit_dead = p->stop = true;
        world_close_audit(p->r);
        break;
    case GATEWAY_DIES:
        gateway_dies(p);
        break;
    default:
        if (a < ARRIVES) {
            say_answer(p, a);
            break;
        }
        (void)world_step(p->g, (enum world_way)(a - ARRIVES));
        p->stop |= p->r->cancels + p->r->kills > 0;
    }
}

/* ---- what clients hear ---- */

static void hear(struct play *p)
{
    for (unsigned i = 0; i < CLIENTS; i++) {
        const char *text;
        while (p->c[i] && (text = world_heard(p->c[i]))) {
            int id = 0;
            unsigned long long seq;
            const char *at = strstr(text, "\"seq\":");
            if (sscanf(text, "{\"jsonrpc\":\"2.0\",\"id\":%d,", &id) == 1) {
                if (i == OWNER && id == 2)
                    p->prompt_end += strstr(text, "\"result\":{") ? 1 : 2;
                if (id < 100)
                    continue;
                assert_int_equal(p->answer[id - 100], 0); /* one answer a request */
                p->answer[id - 100] = strstr(text, "\"accepted\":true") ? 1
                                      : strstr(text, "-32021")          ? 2
                                                                        : 3;
            } else if (strstr(text, "session/event")) {
                assert_int_equal(sscanf(at, "\"seq\":%llu", &seq), 1);
                assert_int_equal(seq, p->seen[i]++);
                assert_true(p->seen[i] <= p->stored); /* it was stored before */
            } else if (strstr(text, "bridle/session") && i == SECOND) {
                p->told++;
            }
        }
    }
}

/* ---- a history ---- */

static void begin(struct play *p)
{
    *p = (struct play){.g = world_new()};
    playing = p;
    p->c[OWNER] = client(p->g);
    p->c[SECOND] = extended(p->g);
    p->c[FOREIGN] = extended(p->g);
    p->r = created(p->g, p->c[OWNER]);
    p->r->answered = on_ledger;
    world_say(p->g, p->c[SECOND], REQ("9", "session/load", "\"sessionId\":\"%s\""), p->r->id);
    if (weak == STRANGER_LET_IN)
        world_say(p->g, p->c[FOREIGN], REQ("9", "session/load", "\"sessionId\":\"%s\""), p->r->id);
    prompt(p->g, p->c[OWNER], p->r->id);
    world_ask(p->g, p->r, "a", true, p->id[A]);
    world_ask(p->g, p->r, "b", false, p->id[B]);
    p->stored = 2;
    p->g->manual = true;
    hear(p);
    assert_int_equal(p->seen[OWNER], 2);
    assert_int_equal(p->seen[SECOND], 2);
}

/* What a later step could depend on. Equal keys: the same may happen, and the same comes of it. */
static void key_of(struct play *p, char key[256])
{
    struct gw_session *s = p->gateway_dead ? NULL : session_find(p->g, p->r->id);
    unsigned asks = 0;
    size_t n = 0;
    if (s)
        (void)session_asks(s, &asks);
    for (unsigned a = 0; a < ARRIVES; a++)
        n += (size_t)sprintf(key + n, "%d%u", p->used[a], p->answer[a]);
    for (unsigned k = 0; k < ASKS; k++)
        n += (size_t)sprintf(key + n, "/%d%d%u%d%u", ask_state(p, k), p->recorded[k], p->effects[k],
                             p->outcome[k], p->accepted_by_ledger[k]);
    n += (size_t)sprintf(key + n, "/%d%d%d%d%d/%d%u/%llu %llu %u", p->stop, p->session_dead,
                         p->audit_dead, p->gateway_dead, p->over, s ? (int)session_state(s) : 9,
                         asks, (unsigned long long)p->seen[OWNER],
                         (unsigned long long)p->seen[SECOND], p->stored);
    for (unsigned w = 0; w < WORLD_WAYS; w++)
        n += (size_t)sprintf(key + n, "%d",
                             !p->gateway_dead && world_waits(p->g, (enum world_way)w));
    sprintf(key + n, "/%u%u%u", p->r->answers, p->r->cancels, p->r->kills);
}

/* ---- the end of every history ---- */

static void fail_at(const struct play *p, const unsigned char *path, unsigned n, const char *what)
{
    (void)p;
    if (weak) {
        found++;
        return;
    }
    fprintf(stderr, "%s, after:\n", what);
    for (unsigned i = 0; i < n; i++)
        fprintf(stderr, "  %s\n", names[path[i]]);
    fail_msg("%s", what);
}

#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x))                                                                                  \
            fail_at(p, path, n, #x);                                                               \
    } while (0)

static void finish(struct play *p, const unsigned char *path, unsigned n)
{
    bool moved = true;
    for (unsigned turns = 0; moved && turns < 100;
         turns++) { /* everything arrives, and time passes if nothing else does */
        moved = false;
        for (unsigned a = ARRIVES; a <= SESSION_WAKES; a++)
            for (unsigned i = 0; i < 100 && enabled(p, (enum action)a); i++) {
                act(p, (enum action)a);
                hear(p);
                moved = true;
            }
        if (!moved && enabled(p, TIME_RUNS_OUT)) {
            act(p, TIME_RUNS_OUT);
            moved = true;
        }
    }
    MUST(p->over);
    if (p->audit_dead) /* the next start completes what was left */
        complete_record(p, "failed");
    MUST(p->stopped);
    for (unsigned k = 0; k < ASKS; k++) {
        unsigned accepted = 0;
        bool allowed = false;
        for (unsigned a = 0; a <= FOREIGN_ALLOWS_A; a++) {
            if (answers[a].ask != k || p->answer[a] != 1)
                continue;
            accepted++;
            allowed = answers[a].allow;
        }
        MUST(p->resolutions[k] == 1);               /* one outcome in the record */
        MUST(p->accepted_by_ledger[k] <= 1);        /* one answer was the first */
        MUST(accepted <= p->accepted_by_ledger[k]); /* and only its sender was told so */
        MUST(p->effects[k] <= (p->outcome[k] == BR_ASK_ALLOWED));
        MUST(p->outcome[k] != BR_ASK_ALLOWED || p->accepted_by_ledger[k] == 1);
        MUST(br_ledger_state(p->r->ledger, p->id[k]) != BR_ASK_PENDING || p->session_dead);
        /* what was accepted is the outcome, unless who held it died, and then it is no */
        if (accepted && !(p->session_dead || p->audit_dead))
            MUST((p->outcome[k] == BR_ASK_ALLOWED) == allowed);
        if (accepted && !allowed)
            MUST(p->outcome[k] != BR_ASK_ALLOWED);
    }
    MUST(p->answer[FOREIGN_ALLOWS_A] != 1);
    MUST(p->answer[SECOND_ALLOWS_B_FOR_THE_RUN] != 1);
    if (!p->gateway_dead) {
        for (unsigned a = 0; a <= OWNER_CANCELS; a++) { /* who is there still was answered */
            unsigned who = a == OWNER_CANCELS ? OWNER : answers[a].client;
            MUST(!p->used[a] || !p->c[who] || p->c[who]->close_code || p->answer[a]);
        }
        for (unsigned i = 0; i < CLIENTS; i++)
            MUST(!p->c[i] || !p->c[i]->close_code);
        /* all that is stored was shown, or it was said that something is missing */
        MUST(!p->c[OWNER] || p->audit_dead || p->seen[OWNER] == p->stored);
        MUST(!p->c[OWNER] || p->prompt_end == (p->audit_dead ? 2 : 1));
        MUST(!p->c[SECOND] || p->told == p->audit_dead);
        MUST(p->g->counters.asks_open == 0 && p->g->counters.sessions_running == 0);
    }
    for (unsigned i = 0; i < CLIENTS; i++)
        if (p->c[i])
            world_disconnect(p->g, p->c[i]);
    MUST(p->gateway_dead || !session_find(p->g, p->r->id)); /* nothing of it is kept */
    p->g->manual = false;
    MUST(world_free(&p->g));
}

/* ---- every history ---- */

struct state {
    unsigned char path[DEPTH_MAX];
    unsigned char n;
};

static char (*seen)[256];
static size_t nseen;
static uint32_t *table;
#define TABLE (1u << 21)

static bool is_new(const char *key)
{
    uint32_t h = 2166136261u;
    for (const char *c = key; *c; c++)
        h = (h ^ (unsigned char)*c) * 16777619u;
    for (h %= TABLE; table[h]; h = (h + 1) % TABLE)
        if (strcmp(seen[table[h] - 1], key) == 0)
            return false;
    strcpy(seen[nseen], key);
    table[h] = (uint32_t)++nseen;
    return true;
}

static void play(struct play *p, const struct state *s)
{
    begin(p);
    for (unsigned i = 0; i < s->n; i++) {
        act(p, (enum action)s->path[i]);
        hear(p);
    }
}

struct explored {
    size_t states, histories;
};

static void drop(struct play *p)
{
    p->g->manual = false;
    (void)world_free(&p->g);
}

static struct explored explore(unsigned depth)
{
    struct state *states = calloc(STATES_MAX, sizeof(*states));
    size_t count = 1, histories = 0;
    nseen = 0;
    seen = calloc(STATES_MAX, sizeof(*seen));
    table = calloc(TABLE, sizeof(*table));
    assert_true(states && seen && table && depth < DEPTH_MAX);
    for (size_t first = 0; first < count; first++) {
        struct state s = states[first];
        struct play p;
        bool may[ACTIONS];
        play(&p, &s);
        for (unsigned a = 0; a < ACTIONS; a++)
            may[a] = s.n < depth && enabled(&p, (enum action)a);
        finish(&p, s.path, s.n);
        histories++;
        for (unsigned a = 0; a < ACTIONS; a++) {
            char key[256];
            if (!may[a])
                continue;
            struct state next = s;
            next.path[next.n++] = (unsigned char)a;
            play(&p, &next);
            histories++;
            key_of(&p, key);
            if (is_new(key)) {
                assert_true(count < STATES_MAX);
                states[count++] = next;
            }
            drop(&p);
        }
    }
    free(states);
    free(seen);
    free(table);
    return (struct explored){count, histories};
}

static void test_every_order(void **state)
{
    const char *bound = getenv("BRIDLE_EXPLORE");
    unsigned depth = bound ? (unsigned)atoi(bound) : DEPTH;
    (void)state;
    struct explored e = explore(depth);
    print_message("%zu states, %zu histories of up to %u steps\n", e.states, e.histories, depth);
    assert_true(e.states > 300);
}

/* The same with something left out: it is found. */
static void test_controls(void **state)
{
    (void)state;
    for (weak = NONE + 1; weak < WEAKNESSES; weak++) {
        found = 0;
        (void)explore(2);
        if (!found)
            fail_msg("weakness %d was not found", (int)weak);
    }
    weak = NONE;
}

/* Longer ones than can all be gone through: some of them, the same each time. */
static void test_long_orders(void **state)
{
    uint64_t seed = 88172645463325252u;
    unsigned outcomes[BR_ASK_NO_RESOLVER + 1] = {0}, effects = 0;
    (void)state;
    for (unsigned i = 0; i < LONG; i++) {
        struct play p;
        struct state s = {.n = 0};
        begin(&p);
        while (s.n < DEPTH_MAX && !p.over) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            enum action a = (enum action)(seed % ACTIONS);
            bool death = a >= SESSION_DIES && seed / ACTIONS % 8; /* not in all of them */
            if (death || !enabled(&p, a))
                continue;
            s.path[s.n++] = (unsigned char)a;
            act(&p, a);
            hear(&p);
        }
        finish(&p, s.path, s.n);
        for (unsigned k = 0; k < ASKS; k++) {
            outcomes[p.outcome[k]]++;
            effects += p.effects[k];
        }
    }
    /* each of them was among those */
    assert_true(outcomes[BR_ASK_ALLOWED] && outcomes[BR_ASK_DENIED] && outcomes[BR_ASK_EXPIRED] &&
                outcomes[BR_ASK_CANCELED] && effects);
}

/* A gateway that was started again knows no session of the one before it. */
static void test_restart(void **state)
{
    struct play p;
    (void)state;
    begin(&p);
    char id[BR_ID_MAX], session[BR_ID_MAX];
    strcpy(id, p.id[A]);
    strcpy(session, p.r->id);
    act(&p, GATEWAY_DIES);
    finish(&p, NULL, 0);
    struct gateway *g = world_new();
    struct conn *c = client(g);
    world_say(g, c,
              REQ("1", "permission/respond",
                  "\"sessionId\":\"%s\",\"permissionId\":\"%s\",\"decision\":\"allow\""),
              session, id);
    refused(c, "1", -32010, "ACP_SESSION_NOT_FOUND");
    assert_true(world_free(&g));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_order),
        cmocka_unit_test(test_controls),
        cmocka_unit_test(test_long_orders),
        cmocka_unit_test(test_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
