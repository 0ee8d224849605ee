/*
 * The end of a record, whoever dies, and the reader: clients that do not read, kill -9, recovery of
 * what was left, the listing, the full disk.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fcntl.h>

#include "audit/test_harness.h"
#include "wire/account.h"

#define ALL (H_SESSION | H_CLIENT | H_EGRESS)

static int setup(void **state)
{
    struct harness *h = malloc(sizeof(*h));
    h_init(h);
    *state = h;
    return 0;
}

static int teardown(void **state)
{
    h_free(*state);
    free(*state);
    return 0;
}

static void test_close_completes_the_record(void **state)
{
    struct harness *h = *state;
    h_record(h, ALL, "run_1");
    h_begin(h);
    h_good(h, "sandbox.started", H_SANDBOX);
    h_good(h, "model.request", "{\"requestId\":\"r1\",\"model\":\"m\",\"messageCount\":1}");
    h_good(h, "tool.call", H_CALL);
    h_good(h, "tool.call", "{\"callId\":\"c2\",\"tool\":\"fs_read\",\"input\":null}");
    h_good(h, "permission.requested", H_ASK);
    for (int i = 0; i < 7; i++)
        h_event(h);
    h_close(&h->session); /* it was killed */
    h_send_close(h, BR_E_PROGRAM_DIED, "failed", "the session was killed", 1);
    h_has(h_next(h, "permission.resolved"),
          "\"actor\":\"kernel\",\"data\":{\"permissionId\":\"p1\",\"sessionId\":\"ses_1\","
          "\"callId\":\"c1\",\"action\":\"fs.write\",\"subject\":\"a\",\"scope\":\"once\","
          "\"decision\":\"deny\",");
    h_has(h_next(h, "tool.result"),
          "{\"callId\":\"c1\",\"tool\":\"fs_write\",\"ok\":false,\"output\":null,\"error\":"
          "{\"code\":\"PROGRAM_DIED\",");
    h_has(h_next(h, "tool.result"), "{\"callId\":\"c2\",\"tool\":\"fs_read\",\"ok\":false,");
    h_has(h_next(h, "sandbox.stopped"),
          "{\"runId\":\"run_1\",\"containerName\":\"box\",\"status\":\"failed\",\"exitCode\":137,"
          "\"durationMs\":4321}");
    h_has(h_next(h, "error"), "{\"code\":\"PROGRAM_DIED\",\"message\":\"the session was killed\"}");
    h_has(h_next(h, "agent.stopped"),
          "{\"agentId\":\"agt_1\",\"status\":\"failed\",\"steps\":1,\"toolCalls\":2,\"note\":"
          "\"the session was killed\"}");
    h_end(h, BR_OK, "failed", 0);
}

/* The page of a lease of which one request was in flight when everybody died. */
static void make_page(const struct harness *h, const char *run_id, bool damaged)
{
    char path[128];
    const struct br_account_sums s = {.requests = 3,
                                      .settled = 1,
                                      .released = 1,
                                      .in_flight = 1,
                                      .refused = 7,
                                      .tokens_reserved = 900,
                                      .tokens_charged = 650,
                                      .repaired = 1,
                                      .repairs = 5};
    uid_t uid = geteuid() == 0 ? BR_UID_AUDIT : geteuid();
    snprintf(path, sizeof(path), "%s/" BR_ACCOUNT_DIR, h->dir);
    assert_true(mkdir(path, 0700) == 0 || access(path, F_OK) == 0);
    assert_int_equal(chown(path, uid, uid), 0);
    snprintf(path, sizeof(path), "%s/" BR_ACCOUNT_DIR "/%s", h->dir, run_id);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fchown(fd, uid, uid), 0);
    assert_int_equal(ftruncate(fd, BR_ACCOUNT_PAGE), 0);
    struct br_account_page *p = br_account_page_map(fd, run_id);
    assert_non_null(p);
    br_account_page_write(p, &s);
    if (damaged)
        p->magic[0] = 'x';
    br_account_page_unmap(&p);
    (void)close(fd);
}

#define ACCOUNT                                                                                    \
    "{\"requests\":3,\"settled\":1,\"unsettled\":1,\"released\":1,\"refused\":7,"                  \
    "\"requestBytes\":0,\"responseBytes\":0,\"tokensReserved\":900,\"tokensCharged\":650,"         \
    "\"cut\":0,\"repaired\":1,\"repairs\":[{\"name\":\"finish\"},{\"name\":\"function_call\"}]}"

/* The account is told before the end, whether the session says the end or the audit does. */
static void test_account_is_told(void **state)
{
    struct harness *h = *state;
    h_record(h, ALL, "run_1");
    make_page(h, "run_1", false);
    h_begin(h);
    for (int i = 0; i < 2; i++)
        h_event(h);
    h_good(h, "agent.stopped",
           "{\"agentId\":\"agt_1\",\"status\":\"completed\",\"steps\":0,\"toolCalls\":0}");
    h_has(h_next(h, "bridle.provider.account"), ACCOUNT);
    h_has(h_next(h, "agent.stopped"), "completed");
    h_send_close(h, BR_OK, "completed", "", 0);
    h_end(h, BR_OK, "completed", 0);
}

static void test_account_of_the_dead(void **state)
{
    struct harness *h = *state;
    h_record(h, ALL, "run_1");
    make_page(h, "run_1", false);
    h_begin(h);
    for (int i = 0; i < 2; i++)
        h_event(h);
    h_close(&h->session);
    h_send_close(h, BR_E_PROGRAM_DIED, "failed", "killed", 0);
    h_next(h, "error");
    h_has(h_next(h, "bridle.provider.account"), ACCOUNT);
    h_next(h, "agent.stopped");
    h_end(h, BR_OK, "failed", 0);
}

static void test_account_damaged(void **state)
{
    struct harness *h = *state;
    h_record(h, ALL, "run_1");
    make_page(h, "run_1", true);
    h_begin(h);
    for (int i = 0; i < 2; i++)
        h_event(h);
    h_send_close(h, BR_E_PROGRAM_DIED, "failed", "killed", 0);
    h_next(h, "error");
    h_has(h_next(h, "bridle.notice"), "the account of 'run_1' is damaged");
    h_next(h, "agent.stopped");
    h_end(h, BR_OK, "failed", 0);
}

static void test_close_claims_no_more_than_is_known(void **state)
{
    struct harness *h = *state;
    h_record(h, ALL, "run_1");
    h_begin(h);
    h_good(h, "sandbox.started", H_SANDBOX);
    for (int i = 0; i < 3; i++)
        h_event(h);
    h_send_close(h, BR_E_CANCELED, "canceled", "", 2); /* not verified */
    h_next(h, "error");
    h_has(h_next(h, "agent.stopped"), "\"status\":\"canceled\"");
    h_end(h, BR_OK, "canceled", 0);
}

static void test_close_leaves_a_complete_record_alone(void **state)
{
    struct harness *h = *state;
    h_record(h, ALL, "run_1");
    h_begin(h);
    h_good(h, "agent.stopped",
           "{\"agentId\":\"agt_1\",\"status\":\"budget_exceeded\",\"steps\":0,\"toolCalls\":0}");
    for (int i = 0; i < 3; i++)
        h_event(h);
    h_send_close(h, BR_E_FAILED, "failed", "too late", 1);
    h_end(h, BR_OK, "budget_exceeded", 0);
    assert_int_equal(h_read_back(h, "run_1", NULL, 0), 3);
}

static void test_supervisor_dies(void **state)
{
    struct harness *h = *state;
    h_record(h, ALL, "run_1");
    h_begin(h);
    h_good(h, "tool.call", H_CALL);
    h_text(h, "req_1", "unfinished", false);
    h_close(&h->sup);
    assert_int_equal(h_wait(h), 1);
    for (int i = 0; i < 3; i++)
        h_event(h);
    h_has(h_next(h, "bridle.text"), "\"final\":true");
    h_next(h, "tool.result");
    h_has(h_next(h, "error"), "\"code\":\"PROGRAM_DIED\"");
    h_next(h, "agent.stopped");
    h_expect(h, &h->client, BR_MSG_EVENTS_END);
    assert_int_equal(h_read_back(h, "run_1", NULL, 0), 7);
}

/* ---- the client ---- */

static void test_many_appends_are_answered_in_order(void **state)
{
    struct harness *h = *state;
    h_record(h, ALL, "run_1");
    h_begin(h);
    uint64_t first = h->next_id + 1;
    for (int i = 0; i < 100; i++)
        h_send_append(h, "bridle.notice", "kernel", H_NOTICE);
    for (int i = 0; i < 100; i++) {
        h_expect(h, &h->session, BR_MSG_APPENDED);
        assert_int_equal(h->m.id, first + (unsigned)i);
        assert_int_equal(h->m.row, 3 + i);
    }
    for (int i = 0; i < 102; i++) {
        h_event(h);
        assert_int_equal(h->m.row, i + 1);
    }
}

/* What comes in one message has one answer, and is shown one by one. */
static void test_appends_of_several(void **state)
{
    struct harness *h = *state;
    unsigned sent = 0, shown = 2;
    h_record(h, ALL, "run_1");
    h_begin(h);
    h_event(h);
    h_event(h);
    for (int n = 1; n <= (int)BR_APPEND_MAX; n++) { /* one after the other */
        h_send_appends(h, n, -1);
        h_expect(h, &h->session, BR_MSG_APPENDED);
        assert_int_equal(h->m.row, shown + (unsigned)n);
        for (int i = 0; i < n; i++) {
            h_event(h);
            assert_int_equal(h->m.row, ++shown);
        }
    }
    for (int i = 0; i < 60; i++) { /* and many at a time */
        h_send_appends(h, 1 + i * 7 % (int)BR_APPEND_MAX, -1);
        sent += 1 + (unsigned)i * 7 % BR_APPEND_MAX;
    }
    uint64_t first = h->next_id - 59, row = shown;
    for (int i = 0; i < 60; i++) {
        h_expect(h, &h->session, BR_MSG_APPENDED);
        assert_int_equal(h->m.id, first + (unsigned)i);
        assert_int_equal(h->m.row, row += 1 + (unsigned)i * 7 % BR_APPEND_MAX);
    }
    for (unsigned i = 0; i < sent; i++) {
        h_event(h);
        assert_int_equal(h->m.row, ++shown);
    }
    h_no_more(h, &h->client);
    kill(h->pid, SIGKILL);
    h_wait(h);
    assert_int_equal(h_read_back(h, "run_1", NULL, 0), shown);
}

static void put_event(struct br_out *o, const char *data)
{
    br_buf_put_str(&o->buf, "bridle.notice");
    br_buf_put_str(&o->buf, "kernel");
    br_out_blob(o, data, strlen(data));
}

/* One of several is in a descriptor. */
static void test_a_large_one_among_several(void **state)
{
    struct harness *h = *state;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    static char data[40000];
    memset(data, ' ', sizeof(data) - 1);
    memcpy(data, H_NOTICE, strlen(H_NOTICE));
    h_record(h, ALL, "run_1");
    h_begin(h);
    put_event(&o, H_NOTICE);
    put_event(&o, data);
    put_event(&o, H_NOTICE);
    assert_int_equal(o.nfds, 1);
    for (uint64_t row = 5; row < 200; row += 3) {
        assert_int_equal(br_chan_send(&h->session, BR_MSG_APPEND, ++h->next_id, &o, NULL), 0);
        h_expect(h, &h->session, BR_MSG_APPENDED);
        assert_int_equal(h->m.row, row);
    }
    kill(h->pid, SIGKILL);
    h_wait(h);
    assert_int_equal(h_read_back(h, "run_1", NULL, 0), 197);
}

/* One of a message is refused: those before it are stored and shown, the message is not, nor is any
 * after it. */
static void test_refused_among_several(void **state)
{
    struct harness *h = *state;
    static const int refused[] = {0, 1, 7, 8, 9, 31};
    for (size_t k = 0; k < BR_ARRAY_LEN(refused); k++) {
        char run[32];
        snprintf(run, sizeof(run), "run_%zu", k);
        h_record(h, ALL, run);
        h_begin(h);
        h_send_appends(h, 32, -1);
        h_send_appends(h, 32, refused[k]);
        h_send_appends(h, 32, -1);
        h_expect(h, &h->session, BR_MSG_APPENDED);
        assert_int_equal(h->m.row, 34);
        for (int i = 0; i < 2; i++) {
            h_expect(h, &h->session, BR_MSG_APPEND_FAILED);
            assert_int_equal(h->m.id, h->next_id - 1 + (unsigned)i);
            assert_int_equal(h->m.code, BR_E_EVENT_SCHEMA);
        }
        for (int i = 0; i < 34 + refused[k]; i++) {
            h_event(h);
            assert_int_equal(h->m.row, i + 1);
        }
        h_no_more(h, &h->client);
        kill(h->pid, SIGKILL);
        h_wait(h);
        assert_int_equal(h_read_back(h, run, NULL, 0), 34 + refused[k]);
    }
}

/* One of many on their way is refused: those before it are stored, shown and answered so, each of
 * those after it is refused, and all answers come in order. */
static void test_refused_among_many(void **state)
{
    struct harness *h = *state;
    static const int refused[] = {0, 1, 31, 32, 33, 63, 64, 65, 99};
    for (size_t k = 0; k < BR_ARRAY_LEN(refused); k++) {
        char run[32];
        snprintf(run, sizeof(run), "run_%zu", k);
        h_record(h, ALL, run);
        h_begin(h);
        uint64_t first = h->next_id + 1;
        for (int i = 0; i < 100; i++)
            h_send_append(h, i == refused[k] ? "no.such" : "bridle.notice", "kernel", H_NOTICE);
        for (int i = 0; i < 100; i++) {
            h_expect(h, &h->session, i < refused[k] ? BR_MSG_APPENDED : BR_MSG_APPEND_FAILED);
            assert_int_equal(h->m.id, first + (unsigned)i);
            if (i < refused[k])
                assert_int_equal(h->m.row, 3 + i);
        }
        for (int i = 0; i < 2 + refused[k]; i++) {
            h_event(h);
            assert_int_equal(h->m.row, i + 1);
        }
        kill(h->pid, SIGKILL);
        h_wait(h);
        assert_int_equal(h_read_back(h, run, NULL, 0), 2 + refused[k]);
    }
}

static void test_client_that_does_not_read(void **state)
{
    struct harness *h = *state;
    char data[9000], pad[8001];
    h_record(h, ALL, "run_1");
    h_begin(h);
    memset(pad, 'x', 8000);
    pad[8000] = 0;
    snprintf(data, sizeof(data), "{\"callId\":\"c1\",\"tool\":\"x\",\"input\":\"%s\"}", pad);
    /* ten times what a socket holds */
    for (int i = 0; i < 300; i++) {
        h_good(h, "tool.call", data);
        h_good(h, "tool.result", "{\"callId\":\"c1\",\"tool\":\"x\",\"ok\":true,\"output\":0}");
    }
    /* now it reads: everything is there, in order */
    struct br_buf seen = BR_BUF_INIT(16u * 1024 * 1024);
    for (int i = 0; i < 602; i++) {
        h_event(h);
        assert_int_equal(h->m.row, i + 1);
        br_buf_put(&seen, h->m.body.data, h->m.body.len);
    }
    /* it keeps up again, and is shown what is still in memory: several at a time, too */
    for (int i = 0; i < 70; i++)
        h_send_append(h, "bridle.notice", "kernel", H_NOTICE);
    for (int i = 0; i < 70; i++) {
        h_expect(h, &h->session, BR_MSG_APPENDED);
        h_next(h, "bridle.notice");
        br_buf_put(&seen, h->m.body.data, h->m.body.len);
    }
    h_send_close(h, BR_OK, "completed", "", 0);
    h_next(h, "agent.stopped");
    br_buf_put(&seen, h->m.body.data, h->m.body.len);
    h_end(h, BR_OK, "completed", 0);
    /* and what it was shown, both ways, is what is in the store */
    struct br_buf stored = BR_BUF_INIT(16u * 1024 * 1024);
    h_start(h, H_READ, H_CLIENT, "run_1", "");
    h_expect(h, &h->client, BR_MSG_RUN_ROW);
    while (h_receive(h, &h->client) == 0 && h->m.type == BR_MSG_EVENT)
        br_buf_put(&stored, h->m.body.data, h->m.body.len);
    assert_int_equal(stored.len, seen.len);
    assert_memory_equal(stored.data, seen.data, seen.len);
    br_buf_free(&stored);
    br_buf_free(&seen);
    h_expect(h, &h->sup, BR_MSG_AUDIT_CLOSED);
    assert_int_equal(h_wait(h), 0);
}

static void test_client_that_never_reads_does_not_stop_the_end(void **state)
{
    struct harness *h = *state;
    h_record(h, ALL, "run_1");
    h_begin(h);
    for (int i = 0; i < 1000; i++)
        h_good(h, "bridle.notice", H_NOTICE);
    uint64_t start = br_now_us();
    h_send_close(h, BR_OK, "completed", "", 0);
    h_expect(h, &h->sup, BR_MSG_AUDIT_CLOSED);
    assert_int_equal(h->m.code, 0);
    assert_string_equal(h->m.status, "completed");
    assert_true(br_now_us() - start < 12000000);
    assert_int_equal(h_wait(h), 0);
    assert_int_equal(h_read_back(h, "run_1", NULL, 0), 1003);
}

static void test_client_that_goes_away(void **state)
{
    struct harness *h = *state;
    h_record(h, ALL, "run_1");
    h_begin(h);
    h_close(&h->client);
    for (int i = 0; i < 50; i++)
        h_good(h, "bridle.notice", H_NOTICE);
    h_send_close(h, BR_OK, "completed", "", 0);
    h_expect(h, &h->sup, BR_MSG_AUDIT_CLOSED);
    assert_string_equal(h->m.status, "completed");
    assert_int_equal(h_wait(h), 0);
    assert_int_equal(h_read_back(h, "run_1", NULL, 0), 53);
}

/* ---- crashes ---- */

static void test_kill_in_the_middle(void **state)
{
    struct harness *h = *state;
    for (int round = 0; round < 4; round++) {
        char run[32];
        uint64_t seen = 0, answered = 0;
        snprintf(run, sizeof(run), "run_%d", round);
        h_record(h, ALL, run);
        h_begin(h);
        for (int i = 0; i < 40; i++)
            h_send_appends(h, round % 2 ? 10 : 1, -1);
        for (int i = 0; i < round * 12; i++) {
            h_expect(h, &h->session, BR_MSG_APPENDED);
            answered = h->m.row;
        }
        kill(h->pid, SIGKILL);
        assert_int_equal(h_wait(h), 128 + SIGKILL);
        while (h_receive(h, &h->session) == 0)
            answered = h->m.row;
        while (h_receive(h, &h->client) == 0)
            assert_int_equal(h->m.row, ++seen);
        unsigned stored = h_read_back(h, run, NULL, 0);
        assert_true(stored >= seen && stored >= answered);
    }
}

static void row_status(struct harness *h, const char *run, const char *status)
{
    h_start(h, H_READ, H_CLIENT, run, "");
    h_expect(h, &h->client, BR_MSG_RUN_ROW);
    assert_string_equal(h->m.text, run);
    assert_string_equal(h->m.status, status);
    while (h->m.type != BR_MSG_EVENTS_END)
        assert_int_equal(h_receive(h, &h->client), 0);
    assert_int_equal(h_wait(h), 0);
}

static void killed_run(struct harness *h, const char *run, const char *owner)
{
    h_start(h, H_RECORD, ALL, run, owner);
    assert_string_equal(h->m.text, "OK");
    h_begin(h);
    h_good(h, "tool.call", H_CALL);
    h_good(h, "permission.requested", H_ASK);
    kill(h->pid, SIGKILL);
    h_wait(h);
}

/* A listing as `show` says it; "live dead " of run_live and run_dead. */
static void listed(struct harness *h, struct br_show show, const char *expected)
{
    char got[256] = "";
    h->show = show;
    h_start(h, H_READ, H_CLIENT, "", "");
    assert_string_equal(h->m.text, "OK");
    while (h_receive(h, &h->client) == 0 && h->m.type == BR_MSG_RUN_ROW)
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s ", h->m.text + 4);
    assert_int_equal(h->m.type, BR_MSG_EVENTS_END);
    assert_int_equal(h->m.code, 0);
    assert_int_equal(h_wait(h), 0);
    assert_string_equal(got, expected);
    h->show = (struct br_show){.row = 0};
}

static void test_listing(void **state)
{
    struct harness *h = *state;
    char mine[BR_STORE_OWNER_MAX];
    h_owner(mine, getpid());
    killed_run(h, "run_1", mine);
    killed_run(h, "run_2", "nonsense");
    killed_run(h, "run_3", mine);
    listed(h, (struct br_show){.limit = 0}, "1 2 3 ");
    listed(h, (struct br_show){.limit = 1}, "3 ");
    listed(h, (struct br_show){.limit = 3}, "3 2 1 ");
    listed(h, (struct br_show){.limit = 4}, "3 2 1 ");
    listed(h, (struct br_show){.limit = 1, .before = "run_3"}, "2 ");
    listed(h, (struct br_show){.limit = 9, .before = "run_1"}, "");
    /* the status is that of now: one of them has nobody who writes it */
    listed(h, (struct br_show){.limit = 1, .words = "running", .before = "run_3"}, "1 ");
    listed(h, (struct br_show){.limit = 9, .words = "interrupted"}, "2 ");
    listed(h, (struct br_show){.words = "RUN_"}, "3 2 1 ");
    /* and the events of one, from somewhere on */
    h->show = (struct br_show){.row = 3};
    h_start(h, H_READ, H_CLIENT, "run_1", "");
    h_expect(h, &h->client, BR_MSG_RUN_ROW);
    h_expect(h, &h->client, BR_MSG_EVENT);
    assert_int_equal(h->m.row, 4);
    h_expect(h, &h->client, BR_MSG_EVENTS_END);
    assert_int_equal(h->m.code, 0);
    assert_int_equal(h_wait(h), 0);
}

static void test_recover(void **state)
{
    struct harness *h = *state;
    char mine[BR_STORE_OWNER_MAX], dead[BR_STORE_OWNER_MAX], types[512];
    h_owner(mine, getpid());
    /* the same pid, started at another time: somebody else by now */
    snprintf(dead, sizeof(dead), "%d:1:%s", (int)getpid(), strrchr(mine, ':') + 1);
    killed_run(h, "run_live", mine);
    killed_run(h, "run_dead", dead);
    killed_run(h, "run_boot", "1:1:00000000-0000-0000-0000-000000000000");
    killed_run(h, "run_odd", "nonsense");
    /* a process that has ended and was not waited for is no owner */
    pid_t zombie = fork();
    if (zombie == 0)
        _exit(0);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)zombie, &info, WEXITED | WNOWAIT), 0);
    h_owner(dead, zombie);
    killed_run(h, "run_zombie", dead);
    row_status(h, "run_live", "running");
    row_status(h, "run_dead", "interrupted");
    make_page(h, "run_dead", false);
    make_page(h, "run_live", false);
    h_start(h, H_RECOVER, 0, "", "");
    assert_string_equal(h->m.text, "OK");
    h_expect(h, &h->sup, BR_MSG_AUDIT_CLOSED);
    assert_int_equal(h->m.code, 0);
    assert_string_equal(h->m.text, "4 records were closed");
    assert_int_equal(h_wait(h), 0);
    assert_int_equal(waitpid(zombie, NULL, 0), zombie);
    row_status(h, "run_live", "running");
    row_status(h, "run_dead", "failed");
    assert_int_equal(h_read_back(h, "run_live", NULL, 0), 4);
    h_read_back(h, "run_dead", types, sizeof(types));
    assert_string_equal(types, "session.created agent.started tool.call permission.requested "
                               "permission.resolved tool.result error bridle.provider.account "
                               "agent.stopped ");
    /* it is in the record now, and nowhere else; that of the living stays */
    char path[128];
    snprintf(path, sizeof(path), "%s/" BR_ACCOUNT_DIR "/run_dead", h->dir);
    assert_int_not_equal(access(path, F_OK), 0);
    snprintf(path, sizeof(path), "%s/" BR_ACCOUNT_DIR "/run_live", h->dir);
    assert_int_equal(access(path, F_OK), 0);
    /* nothing is left to do */
    h_start(h, H_RECOVER, 0, "", "");
    h_expect(h, &h->sup, BR_MSG_AUDIT_CLOSED);
    assert_string_equal(h->m.text, "0 records were closed");
    assert_int_equal(h_wait(h), 0);
}

static void test_read(void **state)
{
    struct harness *h = *state;
    static const char *const runs[] = {"run_aa", "run_ab", "run_b"};
    static const struct {
        const char *name;
        enum br_code code;
    } asked[] = {{"run_aa", BR_OK},
                 {"run_b", BR_OK},
                 {"last", BR_OK},
                 {"run_a", BR_E_NOT_FOUND},
                 {"x", BR_E_NOT_FOUND}};
    h_start(h, H_READ, H_CLIENT, "", "");
    h_expect(h, &h->client, BR_MSG_EVENTS_END);
    assert_int_equal(h->m.code, 0);
    h_wait(h);
    for (size_t i = 0; i < BR_ARRAY_LEN(runs); i++) {
        h_record(h, ALL, runs[i]);
        h_send_close(h, BR_OK, "completed", "", 0);
        h_expect(h, &h->sup, BR_MSG_AUDIT_CLOSED);
        h_wait(h);
    }
    h_start(h, H_READ, H_CLIENT, "", "");
    for (size_t i = 0; i < BR_ARRAY_LEN(runs); i++) {
        h_expect(h, &h->client, BR_MSG_RUN_ROW);
        assert_string_equal(h->m.text, runs[i]);
        assert_string_equal(h->m.status, "completed");
    }
    h_expect(h, &h->client, BR_MSG_EVENTS_END);
    h_wait(h);
    for (size_t i = 0; i < BR_ARRAY_LEN(asked); i++) {
        h_start(h, H_READ, H_CLIENT, asked[i].name, "");
        do
            assert_int_equal(h_receive(h, &h->client), 0);
        while (h->m.type != BR_MSG_EVENTS_END);
        assert_string_equal(br_code_name((int)h->m.code), br_code_name(asked[i].code));
        assert_int_equal(h_wait(h), 0);
    }
}

static void test_full_disk(void **state)
{
    struct harness *h = *state;
    h->fsize = 200000;
    h_record(h, ALL, "run_1");
    h_begin(h);
    char data[9000], pad[4001];
    memset(pad, 'x', 4000);
    pad[4000] = 0;
    snprintf(data, sizeof(data), "{\"callId\":\"c1\",\"tool\":\"x\",\"input\":\"%s\"}", pad);
    uint64_t stored = 2;
    for (int i = 0; i < 1000; i++) {
        h_append(h, i % 2 ? "tool.result" : "tool.call", "kernel",
                 i % 2 ? "{\"callId\":\"c1\",\"tool\":\"x\",\"ok\":true,\"output\":0}" : data);
        if (h->m.type != BR_MSG_APPENDED)
            break;
        stored = h->m.row;
    }
    assert_int_equal(h->m.type, BR_MSG_APPEND_FAILED);
    assert_int_equal(h->m.code, BR_E_STORE_FAILED);
    assert_true(stored > 2);
    h_bad(h, "bridle.notice", H_NOTICE, BR_E_STORE_FAILED);
    /* what was stored was shown, and nothing else */
    for (uint64_t i = 0; i < stored; i++) {
        h_event(h);
        assert_int_equal(h->m.row, i + 1);
    }
    h_no_more(h, &h->client);
    h_send_close(h, BR_E_STORE_FAILED, "failed", "", 0);
    do
        assert_int_equal(h_receive(h, &h->sup), 0);
    while (h->m.type != BR_MSG_AUDIT_CLOSED);
    assert_string_equal(h->m.status, "failed");
    h_wait(h);
    h_hangup(h);
    /* with room again the record can be read, and closed */
    h->fsize = 0;
    unsigned rows = h_read_back(h, "run_1", NULL, 0);
    assert_true(rows >= stored);
}

/* With many on their way: what was answered as stored, and only that, was shown and is there. */
static void test_full_disk_with_many(void **state)
{
    struct harness *h = *state;
    char data[1100], text[1001];
    memset(text, 'x', 1000);
    text[1000] = 0;
    snprintf(data, sizeof(data), "{\"code\":\"X\",\"message\":\"%s\"}", text);
    for (unsigned k = 3; k <= BR_APPEND_MAX; k += 5) {
        BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
        char run[32];
        uint64_t stored = 2;
        unsigned sent = 0, failed = 0;
        snprintf(run, sizeof(run), "run_%u", k);
        h->fsize = 400000;
        h_record(h, ALL, run);
        h_begin(h);
        for (unsigned i = 0; i < k; i++)
            put_event(&o, data);
        for (; sent * k < 500; sent++)
            assert_int_equal(br_chan_send(&h->session, BR_MSG_APPEND, ++h->next_id, &o, NULL), 0);
        for (unsigned i = 0; i < sent; i++) {
            assert_int_equal(h_receive(h, &h->session), 0);
            failed += h->m.type == BR_MSG_APPEND_FAILED;
            assert_true(failed ? h->m.code == BR_E_STORE_FAILED : h->m.row == (stored += k));
        }
        assert_true(failed > 0);
        for (uint64_t i = 0; i < stored; i++) {
            h_event(h);
            assert_int_equal(h->m.row, i + 1);
        }
        h_no_more(h, &h->client);
        kill(h->pid, SIGKILL);
        h_wait(h);
        h->fsize = 0;
        assert_int_equal(h_read_back(h, run, NULL, 0), stored);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_close_completes_the_record),
        T(test_account_is_told),
        T(test_account_of_the_dead),
        T(test_account_damaged),
        T(test_close_claims_no_more_than_is_known),
        T(test_close_leaves_a_complete_record_alone),
        T(test_supervisor_dies),
        T(test_many_appends_are_answered_in_order),
        T(test_refused_among_many),
        T(test_appends_of_several),
        T(test_a_large_one_among_several),
        T(test_refused_among_several),
        T(test_client_that_does_not_read),
        T(test_client_that_never_reads_does_not_stop_the_end),
        T(test_client_that_goes_away),
        T(test_kill_in_the_middle),
        T(test_listing),
        T(test_recover),
        T(test_read),
        T(test_full_disk),
        T(test_full_disk_with_many),
    };
    return cmocka_run_group_tests_name("audit_end", tests, NULL, NULL);
}
