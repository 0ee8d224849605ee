/*
 * bridle-audit as a whole: what is appended is redacted, stored, and only then shown; what cannot
 * be is refused and ends the run; the end of a record is consistent whoever dies.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/test_harness.h"

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

static void test_append_is_stored_and_shown(void **state)
{
    struct harness *h = *state;
    h_record(h, ALL, "run_1");
    h_good(h, "session.created", "{\"workspace\":\"/w\",\"sessionId\":\"ses_1\"}");
    assert_int_equal(h->m.row, 1);
    static const char want[] = "{\"v\":1,\"type\":\"session.created\",\"eventId\":\"evt_";
    const char *e = h_event(h);
    assert_int_equal(h->m.row, 1);
    assert_memory_equal(e, want, strlen(want));
    assert_memory_equal(e + strlen(want) + 26, "\",\"at\":\"", 8);
    h_has(e, ",\"actor\":\"kernel\",\"data\":{\"sessionId\":\"ses_1\",\"workspace\":\"/w\"}}");
    h_send_close(h, BR_OK, "completed", "", 0);
    h_has(h_event(h), "\"type\":\"agent.stopped\"");
    h_expect(h, &h->client, BR_MSG_EVENTS_END);
    assert_int_equal(h->m.code, 0);
    h_expect(h, &h->sup, BR_MSG_AUDIT_CLOSED);
    assert_int_equal(h->m.code, 0);
    assert_string_equal(h->m.status, "completed");
    assert_int_equal(h_wait(h), 0);
}

/* ---- redaction ---- */

static void test_secrets_never_reach_store_or_client(void **state)
{
    struct harness *h = *state;
    h_record(h, ALL, "run_1");
    h_secret(h, "UPSTREAM_KEY", "Very-Secret/Value+1");
    h_begin(h);
    h_event(h);
    h_event(h);
    h_good(h, "tool.call",
           "{\"callId\":\"c1\",\"tool\":\"x\",\"input\":{\"a\":\"say Very-Secret/Value+1\","
           "\"b\":[\"VmVyeS1TZWNyZXQvVmFsdWUrMQ==\"],\"c\":\"Very-Secret%2FValue%2B1\","
           "\"password\":\"swordfish\",\"max_tokens\":7}}");
    h_has(h_next(h, "tool.call"),
          "\"input\":{\"a\":\"say [redacted:UPSTREAM_KEY]\",\"b\":[\"[redacted:UPSTREAM_KEY]==\"],"
          "\"c\":\"[redacted:UPSTREAM_KEY]\",\"password\":\"[redacted:password]\","
          "\"max_tokens\":7}");
    h_send_close(h, BR_E_FAILED, "failed", "it said Very-Secret/Value+1", 0);
    h_next(h, "tool.result");
    h_has(h_next(h, "error"), "it said [redacted:UPSTREAM_KEY]");
    h_has(h_next(h, "agent.stopped"), "it said [redacted:UPSTREAM_KEY]");
    h_end(h, BR_OK, "failed", 0);
    assert_true(h_in_files(h, "[redacted:UPSTREAM_KEY]"));
    assert_false(h_in_files(h, "Secret/Value"));
    assert_false(h_in_files(h, "VmVyeS1TZWNy"));
    assert_false(h_in_files(h, "swordfish"));
    assert_false(h_in_files(h, "hunter2"));
}

/* The row of the run is made with its first event, when the key is known. */
static void test_goal_with_the_key(void **state)
{
    struct harness *h = *state;
    h->goal = "use Very-Secret/Value+1 or VmVyeS1TZWNyZXQvVmFsdWUrMQ== now";
    h->workspace = "/home/Very-Secret/Value+1/w";
    h->model = "m/Very-Secret/Value+1";
    h_record(h, ALL, "run_1");
    assert_false(h_in_files(h, "now"));
    h_secret(h, "K", "Very-Secret/Value+1");
    h_begin(h);
    /* in the files as SQLite writes a row: one text behind the other */
    assert_true(h_in_files(h, "m/[redacted:K]/home/[redacted:K]/wuse [redacted:K] or "
                              "[redacted:K]== now"));
    h_send_close(h, BR_OK, "completed", "", 0);
    for (int i = 0; i < 3; i++)
        h_event(h);
    h_end(h, BR_OK, "completed", 0);
    assert_false(h_in_files(h, "Very-Secret"));
    assert_false(h_in_files(h, "VmVyeS1TZWNy"));
}

/* Streamed text may be the first of all. */
static void test_goal_with_the_key_before_text(void **state)
{
    struct harness *h = *state;
    h->goal = "use Very-Secret/Value+1 now";
    h_record(h, ALL, "run_1");
    h_secret(h, "K", "Very-Secret/Value+1");
    h_text(h, "s", "it begins", false);
    assert_true(h_in_files(h, "use [redacted:K] now"));
    assert_false(h_in_files(h, "Very-Secret"));
}

static void record_goal(struct harness *h, const char *id, const char *goal, const char *key)
{
    h->goal = goal;
    h_record(h, ALL, id);
    h_secret(h, "K", key);
    h_good(h, "session.created", "{\"sessionId\":\"ses_1\"}");
    h_send_close(h, BR_OK, "completed", "", 0);
    h_event(h);
    h_event(h);
    h_end(h, BR_OK, "completed", 0);
}

/* A long goal is cut for the list: never through a secret, wherever it lies. */
static void test_long_goal_with_the_key(void **state)
{
    struct harness *h = *state;
    const char *key = "Very-Secret/Value+1", *longer = "Quite-Long-Secret-Whose-Replacement-Is-"
                                                       "Much-Shorter-Than-Itself";
    char goal[BR_PATH_MAX / 2 + 1], id[32];
    for (size_t at = BR_STORE_GOAL_MAX - 20; at <= BR_STORE_GOAL_MAX + 1; at++) {
        memset(goal, 'g', sizeof(goal));
        memcpy(goal + at, key, strlen(key));
        goal[sizeof(goal) - 1] = 0;
        snprintf(id, sizeof(id), "run_%zu", at);
        record_goal(h, id, goal, key);
        assert_true(h_in_files(h, "gggggggg"));
        assert_false(h_in_files(h, "gVer"));
    }
    /* and bridled has cut through the last one already */
    for (size_t i = 0; i < sizeof(goal) - 1; i++)
        goal[i] = longer[i % strlen(longer)];
    goal[sizeof(goal) - 1] = 0;
    record_goal(h, "run_x", goal, longer);
    assert_true(h_in_files(h, "[redacted:K][redacted:K]"));
    assert_false(h_in_files(h, "Quite"));
}

/* What ends before its key is known is recorded, without what might hold it. */
static void test_end_before_the_key_is_known(void **state)
{
    struct harness *h = *state;
    char types[256];
    h->goal = "use Very-Secret/Value+1 now";
    h->workspace = "/home/Very-Secret/Value+1/w";
    h->model = "m/Very-Secret/Value+1";
    h_record(h, ALL, "run_1");
    h_send_close(h, BR_E_PROGRAM_DIED, "failed", "the egress was killed", 0);
    h_next(h, "session.created");
    h_next(h, "error");
    h_next(h, "agent.stopped");
    h_end(h, BR_OK, "failed", 0);
    h_record(h, ALL, "run_2");
    h_hangup(h); /* the supervisor has died */
    assert_int_equal(h_wait(h), 1);
    assert_int_equal(h_read_back(h, "run_2", types, sizeof(types)), 3);
    assert_string_equal(types, "session.created error agent.stopped ");
    assert_false(h_in_files(h, "Very-Secret"));
    assert_true(h_in_files(h, "[not recorded"));
    /* positive control: where no key can come, the goal is kept */
    h_record(h, H_SESSION | H_CLIENT, "run_3");
    h_hangup(h);
    assert_int_equal(h_wait(h), 1);
    assert_true(h_in_files(h, "use Very-Secret/Value+1 now"));
}

/* Nothing is recorded of what cannot be said in JSON. */
static void test_invalid_utf8_is_refused(void **state)
{
    struct harness *h = *state;
    h->workspace = "/home/\xff\xfe";
    h_start(h, H_RECORD, ALL, "run_1", "");
    assert_string_equal(h->m.text, "EVENT_SCHEMA_FAILED");
    h_has(h->m.status, "is not valid UTF-8");
    assert_int_equal(h_wait(h), 1);
    assert_false(h_in_files(h, "run_1"));
}

/* A file full of assignments, as large as an output may be: its redacted form would be twice as
 * large, and a run must not end over what it has read. */
static void test_redaction_does_not_break_a_limit(void **state)
{
    struct harness *h = *state;
    struct br_buf b = BR_BUF_INIT(BR_TOOL_JSON_MAX + 1000);
    h_record(h, ALL, "run_1");
    h_begin(h);
    h_event(h);
    h_event(h);
    br_buf_printf(&b, "{\"callId\":\"c1\",\"tool\":\"x\",\"input\":\"");
    while (b.len < BR_TOOL_JSON_MAX - 20)
        br_buf_printf(&b, "password=abcd ");
    br_buf_printf(&b, "\"}");
    h_good(h, "tool.call", br_buf_cstr(&b));
    const char *e = h_next(h, "tool.call");
    h_has(e, "password=* password=*");
    assert_null(strstr(e, "abcd"));
    br_buf_free(&b);
}

/* Collect bridle.text events until the final one. */
static void collect_text(struct harness *h, char *text, size_t cap, unsigned *events)
{
    text[0] = 0;
    for (*events = 1;; ++*events) {
        const char *e = h_next(h, "bridle.text"), *t = strstr(e, "\"text\":\"") + 8;
        snprintf(text + strlen(text), cap - strlen(text), "%.*s", (int)strcspn(t, "\""), t);
        if (strstr(e, "\"final\":true"))
            return;
    }
}

static void test_streamed_text_is_redacted_across_messages(void **state)
{
    struct harness *h = *state;
    char text[512];
    unsigned events;
    h_record(h, ALL, "run_1");
    h_secret(h, "KEY", "split-over-chunks");
    h_begin(h);
    h_event(h);
    h_event(h);
    const char *said = "one split-over-chunks two ghp_abcdefghij0123456789ABCD three";
    for (const char *c = said; *c; c++)
        h_text(h, "req_1", (char[]){*c, 0}, false);
    h_text(h, "req_1", "", true);
    collect_text(h, text, sizeof(text), &events);
    assert_string_equal(text, "one [redacted:KEY] two [redacted:github-token] three");
    assert_true(events < 30); /* not one for every letter */
    assert_false(h_in_files(h, "over-chunks"));
}

static void test_text_keeps_its_place(void **state)
{
    struct harness *h = *state;
    h_record(h, ALL, "run_1");
    h_begin(h);
    h_event(h);
    h_event(h);
    h_text(h, "req_1", "before ", false);
    h_text(h, "req_1", "the notice.", false);
    h_good(h, "bridle.notice", H_NOTICE);
    h_has(h_next(h, "bridle.text"),
          "\"actor\":\"agent\",\"data\":{\"stream\":\"req_1\",\"kind\":\"agent\",\"text\":"
          "\"before the notice.\",\"final\":false}}");
    h_next(h, "bridle.notice");
    /* it also comes by itself, soon */
    h_text(h, "req_1", "alone.", false);
    assert_int_equal(h->m.row, 0);
    h_has(h_next(h, "bridle.text"), "\"text\":\"alone.\",\"final\":false");
    /* half a character waits for the other half; bad bytes do not get through */
    h_text(h, "req_1", "\xc3", false);
    h_text(h, "req_1", "\xa4 \xff", false);
    h_text(h, "req_1", "", true);
    char text[64];
    unsigned events;
    collect_text(h, text, sizeof(text), &events);
    assert_string_equal(text, "\xc3\xa4 \xef\xbf\xbd");
    /* the end of the run closes what is open */
    h_text(h, "req_2", "password=", false);
    h_text(h, "req_2", "hunter2", false);
    h_good(h, "agent.stopped",
           "{\"agentId\":\"agt_1\",\"status\":\"completed\",\"steps\":0,\"toolCalls\":0}");
    collect_text(h, text, sizeof(text), &events);
    assert_string_equal(text, "password=[redacted:password]");
    h_next(h, "agent.stopped");
}

static void test_long_text_is_several_events(void **state)
{
    struct harness *h = *state;
    h_record(h, ALL, "run_1");
    h_begin(h);
    h_event(h);
    h_event(h);
    char *text = malloc(300001);
    memset(text, 'a', 300000);
    text[300000] = 0;
    h_text(h, "req_1", text, true);
    size_t total = 0;
    bool final = false;
    while (!final) {
        const char *e = h_next(h, "bridle.text"), *t = strstr(e, "\"text\":\"") + 8;
        assert_true(strcspn(t, "\"") <= 64 * 1024);
        total += strcspn(t, "\"");
        final = strstr(e, "\"final\":true") != NULL;
    }
    assert_int_equal(total, 300000);
    free(text);
}

/* ---- refusals ---- */

static void test_invalid_events_end_the_run(void **state)
{
    static const struct {
        const char *type, *data;
    } bad[] = {
        {"bridle.notice", "{\"code\":\"X\"}"},
        {"bridle.notice", "{\"code\":\"X\",\"message\":\"m\",\"more\":1}"},
        {"bridle.notice", "{\"code\":\"X\",\"code\":\"X\",\"message\":\"m\"}"},
        {"bridle.notice", "{\"code\":\"X\",\"message\":\"\\u0000\"}"},
        {"bridle.notice", "{\"code\":\"X\",\"message\":\"\xff\"}"},
        {"bridle.notice", "{\"code\":\"X\",\"message\":\"m\""},
        {"bridle.notice", "[]"},
        {"bridle.notice", ""},
        {"no.such.type", "{}"},
        {"bridle.text", "{\"stream\":\"s\",\"kind\":\"agent\",\"text\":\"t\",\"final\":true}"},
        {"tool.result", "{\"callId\":\"c9\",\"tool\":\"x\",\"ok\":true,\"output\":1}"},
        {"permission.resolved",
         "{\"permissionId\":\"p9\",\"sessionId\":\"ses_1\",\"action\":\"a\",\"scope\":\"once\","
         "\"decision\":\"allow\"}"},
        {"session.created", "{\"sessionId\":\"ses_1\"}"},
    };
    struct harness *h = *state;
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++) {
        char run[32];
        snprintf(run, sizeof(run), "run_%zu", i);
        h_record(h, ALL, run);
        h_begin(h);
        h_event(h);
        h_event(h);
        h_bad(h, bad[i].type, bad[i].data, BR_E_EVENT_SCHEMA);
        h_no_more(h, &h->client);
        /* and so does everything after it */
        h_bad(h, "bridle.notice", H_NOTICE, BR_E_EVENT_SCHEMA);
        h_no_more(h, &h->client);
        h_send_close(h, BR_OK, "completed", "", 0);
        h_has(h_next(h, "error"), "\"code\":\"EVENT_SCHEMA_FAILED\"");
        h_has(h_next(h, "agent.stopped"), "\"status\":\"failed\"");
        h_end(h, BR_OK, "failed", 0);
        char types[256];
        h_read_back(h, run, types, sizeof(types));
        assert_string_equal(types, "session.created agent.started error agent.stopped ");
    }
}

static void deep(char *dst, unsigned depth)
{
    dst += sprintf(dst, "{\"callId\":\"c1\",\"tool\":\"x\",\"input\":");
    for (unsigned i = 0; i < depth; i++)
        *dst++ = '[';
    for (unsigned i = 0; i < depth; i++)
        *dst++ = ']';
    strcpy(dst, "}");
}

static void test_limits_of_an_append(void **state)
{
    struct harness *h = *state;
    char text[512];
    h_record(h, ALL, "run_1");
    h_begin(h);
    h_good(h, "bridle.notice", "  {\"code\":\"X\",\"message\":\"m\"} ");
    deep(text, BR_JSON_DEPTH_MAX);
    h_good(h, "tool.call", text);
    deep(text, BR_JSON_DEPTH_MAX + 1);
    text[12] = '2'; /* another call */
    h_bad(h, "tool.call", text, BR_E_EVENT_SCHEMA);
}

static void end_of_peer(struct harness *h, const char *why)
{
    char types[512];
    assert_int_equal(h_wait(h), 1);
    h_hangup(h);
    unsigned n = h_read_back(h, why, types, sizeof(types));
    assert_true(n >= 4);
    assert_non_null(strstr(types, "error agent.stopped "));
}

static void test_unpermitted_messages_end_it(void **state)
{
    struct harness *h = *state;
    /* the session may not say what only audit says */
    h_record(h, ALL, "run_session");
    h_begin(h);
    assert_int_equal(br_chan_send(&h->session, BR_MSG_EVENTS_END, 1, NULL, NULL), 0);
    end_of_peer(h, "run_session");
    /* the client may say nothing */
    h_record(h, ALL, "run_client");
    h_begin(h);
    assert_int_equal(br_chan_send(&h->client, BR_MSG_APPEND, 1, NULL, NULL), 0);
    end_of_peer(h, "run_client");
    /* the egress may not append */
    h_record(h, ALL, "run_egress");
    h_begin(h);
    struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, "error");
    br_buf_put_str(&o.buf, "kernel");
    br_out_blob(&o, H_NOTICE, strlen(H_NOTICE));
    assert_int_equal(br_chan_send(&h->egress, BR_MSG_APPEND, 1, &o, NULL), 0);
    br_out_free(&o);
    end_of_peer(h, "run_egress");
    /* the supervisor may not start it twice */
    h_record(h, ALL, "run_sup");
    h_begin(h);
    assert_int_equal(br_chan_send(&h->sup, BR_MSG_AUDIT_START, 1, NULL, NULL), 0);
    end_of_peer(h, "run_sup");
}

/* Whoever asks for something that is malformed is not told that it is stored. */
static void not_stored(struct harness *h, const char *run)
{
    int r = h_receive(h, &h->session);
    if (r == 0)
        assert_string_equal(br_msg_name(h->m.type), "APPEND_FAILED");
    else
        assert_int_equal(r, -BR_E_PEER_GONE);
    end_of_peer(h, run);
}

static void test_malformed_messages_end_it(void **state)
{
    struct harness *h = *state;
    struct br_out o = BR_OUT_INIT;
    h_record(h, ALL, "run_short");
    h_begin(h);
    br_buf_put(&o.buf, "abcdefghijkl", 12);
    assert_int_equal(br_chan_send(&h->session, BR_MSG_APPEND, 1, &o, NULL), 0);
    not_stored(h, "run_short");
    h_record(h, ALL, "run_behind"); /* the first of it is one, what follows is none */
    h_begin(h);
    br_buf_reset(&o.buf);
    br_buf_put_str(&o.buf, "bridle.notice");
    br_buf_put_str(&o.buf, "kernel");
    br_out_blob(&o, H_NOTICE, strlen(H_NOTICE));
    br_buf_put_u8(&o.buf, 7);
    assert_int_equal(br_chan_send(&h->session, BR_MSG_APPEND, 1, &o, NULL), 0);
    not_stored(h, "run_behind");
    h_record(h, ALL, "run_many");
    h_begin(h);
    h_send_appends(h, BR_APPEND_MAX + 1, -1);
    not_stored(h, "run_many");
    h_record(h, ALL, "run_cut"); /* the second needs a descriptor, and there is one */
    h_begin(h);
    br_buf_reset(&o.buf);
    for (unsigned i = 0; i < 2; i++) {
        br_buf_put_str(&o.buf, "bridle.notice");
        br_buf_put_str(&o.buf, "kernel");
        br_buf_put_u8(&o.buf, 1);
        br_buf_put_u64(&o.buf, strlen(H_NOTICE));
    }
    br_out_fd(&o, br_memfd_sealed("notice", H_NOTICE, strlen(H_NOTICE)), true);
    assert_int_equal(br_chan_send(&h->session, BR_MSG_APPEND, 1, &o, NULL), 0);
    br_out_free(&o);
    o = (struct br_out)BR_OUT_INIT;
    not_stored(h, "run_cut");
    h_record(h, ALL, "run_secret");
    h_begin(h);
    br_buf_reset(&o.buf);
    br_buf_put_str(&o.buf, "KEY");
    br_out_blob(&o, "", 0); /* an empty secret hides nothing */
    assert_int_equal(br_chan_send(&h->egress, BR_MSG_SECRET, 1, &o, NULL), 0);
    end_of_peer(h, "run_secret");
    br_out_free(&o);
}

/* What came first on one channel is not overtaken by what came later on another. */
static void test_a_secret_before_an_event(void **state)
{
    struct harness *h = *state;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    h_record(h, ALL, "run_1");
    h_begin(h);
    assert_int_equal(kill(h->pid, SIGSTOP), 0);
    br_buf_put_str(&o.buf, "KEY");
    br_out_blob(&o, "plain-words-here", 16);
    assert_int_equal(br_chan_send(&h->egress, BR_MSG_SECRET, 1, &o, NULL), 0);
    h_send_append(h, "bridle.notice", "kernel",
                  "{\"code\":\"X\",\"message\":\"it is plain-words-here\"}");
    assert_int_equal(kill(h->pid, SIGCONT), 0);
    h_expect(h, &h->session, BR_MSG_APPENDED);
    h_expect(h, &h->egress, BR_MSG_SECRET_KNOWN);
    assert_false(h_in_files(h, "plain-words-here"));
    assert_true(h_in_files(h, "[redacted:KEY]"));
}

static void test_a_run_is_recorded_once(void **state)
{
    struct harness *h = *state;
    h_record(h, ALL, "run_1");
    h_send_close(h, BR_OK, "completed", "", 0);
    h_next(h, "session.created");
    h_next(h, "agent.stopped");
    h_end(h, BR_OK, "completed", 0);
    h_start(h, H_RECORD, ALL, "run_1", "");
    assert_string_equal(h->m.text, "AUDIT_STORE_FAILED");
    assert_int_equal(h_wait(h), 1);
    assert_int_equal(h_read_back(h, "run_1", NULL, 0), 2);
}

static void test_open_directory_is_refused(void **state)
{
    struct harness *h = *state;
    assert_int_equal(chmod(h->dir, 0750), 0);
    h_start(h, H_RECORD, ALL, "run_1", "");
    assert_string_equal(h->m.text, "AUDIT_STORE_FAILED");
    assert_int_equal(h_wait(h), 1);
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", h->dir, BR_STORE_FILE);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(chmod(h->dir, 0700), 0);
    h_record(h, ALL, "run_1");
}

/* ---- the role ---- */

static void test_role(void **state)
{
    struct harness *h = *state;
    char path[64], line[256];
    h_record(h, ALL, "run_1");
    snprintf(path, sizeof(path), "/proc/%d/status", (int)h->pid);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    unsigned found = 0;
    while (fgets(line, sizeof(line), f)) {
        unsigned id;
        if (sscanf(line, "Uid: %u", &id) == 1) {
            assert_int_equal(id, geteuid() == 0 ? BR_UID_AUDIT : geteuid());
            found |= 1;
        }
        if (strncmp(line, "NoNewPrivs:\t1", 13) == 0)
            found |= 2;
        if (strncmp(line, "CapEff:\t0000000000000000", 24) == 0)
            found |= 4;
        if (strncmp(line, "Seccomp:\t2", 10) == 0)
            found |= 8;
    }
    fclose(f);
#ifdef BR_SANITIZED
    found |= 8; /* the sanitizer's runtime makes calls of its own */
#endif
    assert_int_equal(found, 15);
}

static void test_as_ordinary_user(void **state)
{
    struct harness *h = *state;
    if (geteuid() == 0) {
        h->uid = 1000;
        assert_int_equal(chown(h->dir, 1000, 1000), 0);
    }
    h_record(h, ALL, "run_1");
    h_begin(h);
    h_send_close(h, BR_OK, "completed", "", 0);
    for (int i = 0; i < 3; i++)
        h_event(h);
    h_end(h, BR_OK, "completed", 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_append_is_stored_and_shown),
        T(test_secrets_never_reach_store_or_client),
        T(test_goal_with_the_key),
        T(test_goal_with_the_key_before_text),
        T(test_long_goal_with_the_key),
        T(test_end_before_the_key_is_known),
        T(test_invalid_utf8_is_refused),
        T(test_redaction_does_not_break_a_limit),
        T(test_streamed_text_is_redacted_across_messages),
        T(test_text_keeps_its_place),
        T(test_long_text_is_several_events),
        T(test_invalid_events_end_the_run),
        T(test_limits_of_an_append),
        T(test_unpermitted_messages_end_it),
        T(test_malformed_messages_end_it),
        T(test_a_secret_before_an_event),
        T(test_a_run_is_recorded_once),
        T(test_open_directory_is_refused),
        T(test_role),
        T(test_as_ordinary_user),
    };
    return cmocka_run_group_tests_name("audit_program", tests, NULL, NULL);
}
