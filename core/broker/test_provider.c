/*
 * The provider path with real processes and real sockets: this test as the session, then
 * bridle-broker, bridle-egress, and a provider that behaves or does not.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "broker/test_rig.h"

static struct odd_server server;

static unsigned requests_seen(void)
{
    return atomic_load(&server.shared->requests);
}

static unsigned connections_seen(void)
{
    return atomic_load(&server.shared->connections);
}

static void set_mode(enum odd_mode mode)
{
    atomic_store(&server.shared->mode, mode);
    atomic_store(&server.shared->requests, 0);
    atomic_store(&server.shared->connections, 0);
    atomic_store(&server.shared->sent, 0);
}

static int setup(void **state)
{
    (void)state;
    odd_start(&server);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    odd_stop(&server);
    return 0;
}

/* ---- what works ---- */

static void test_answer_passes_through(void **state)
{
    struct rig r = {.server = &server};
    (void)state;
    set_mode(ODD_JSON);
    assert_int_equal(rig_start(&r, &(struct rig_options){.key = NULL}), 0);
    rig_ask_wait(&r, 1);
    assert_int_equal(r.end_code, 0);
    assert_int_equal(r.status, 200);
    assert_string_equal(r.content_type, "application/json");
    assert_string_equal(r.request_id, "req-1");
    assert_string_equal(r.retry_after, "7");
    assert_string_equal(rig_body(&r), "{\"good\":true}");
    assert_int_equal(r.response_bytes, 13);
    assert_int_equal(r.request_bytes, 140);
    assert_int_equal(requests_seen(), 1);
    assert_non_null(strstr(server.shared->last, "POST /v1/chat/completions HTTP/1.1\r\n"));
    assert_non_null(strstr(server.shared->last, "Accept-Encoding: identity\r\n"));
    /* positive control of every search for the key: it is there where it must be */
    assert_non_null(strstr(server.shared->last, "Authorization: Bearer " RIG_KEY "\r\n"));
    assert_int_equal(r.secrets, 1);
    assert_true(r.secret_right);
    /* a second one on the same lease, over a fresh connection */
    rig_ask_wait(&r, 2);
    assert_int_equal(r.end_code, 0);
    assert_int_equal(connections_seen(), 2);
    rig_stop(&r, 0, 0);
}

static void test_large_request(void **state)
{
    struct rig r = {.server = &server};
    (void)state;
    set_mode(ODD_JSON);
    assert_int_equal(rig_start(&r, &(struct rig_options){.key_env = ""}), 0);
    static char body[4000000];
    int n = snprintf(body, sizeof(body),
                     "{\"model\":\"test-model\",\"max_tokens\":1,\"messages\":[{"
                     "\"role\":\"user\",\"content\":\"");
    /* the odd server keeps 32 KiB; more than one memfd's worth of inline message is enough */
    memset(body + n, 'a', 30000 - (size_t)n);
    memcpy(body + 30000, "\"}]}", 5);
    rig_send(&r, 7, BR_PATH_CHAT, "application/json", 9000, body, strlen(body));
    assert_true(rig_until(&r, &r.have_end, 10000));
    assert_int_equal(r.end_code, 0);
    assert_int_equal(r.request_bytes, strlen(body));
    assert_null(strstr(server.shared->last, "Authorization"));
    rig_stop(&r, 0, 0);
}

static void test_key_is_hidden(void **state)
{
    struct rig r = {.server = &server};
    char path[64];
    (void)state;
    set_mode(ODD_JSON);
    assert_int_equal(rig_start(&r, &(struct rig_options){.key = NULL}), 0);
    static const char *const files[] = {"environ", "cmdline"};
    for (unsigned i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "/proc/%d/%s", (int)r.egress, files[i]);
        BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue; /* not dumpable: an ordinary user may not even look */
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1u << 20);
        assert_int_equal(br_read_all(fd, &b, path, NULL), 0);
        assert_null(memmem(b.data ? b.data : (void *)"", b.len, RIG_KEY, strlen(RIG_KEY)));
        /* what stood around it is still there */
        if (i == 0)
            assert_non_null(memmem(b.data, b.len, RIG_KEY_ENV, strlen(RIG_KEY_ENV)));
    }
    rig_ask_wait(&r, 1);
    assert_non_null(strstr(server.shared->last, RIG_KEY));
    rig_stop(&r, 0, 0);
}

static void test_interim_answer(void **state)
{
    struct rig r = {.server = &server};
    (void)state;
    set_mode(ODD_CONTINUE);
    assert_int_equal(rig_start(&r, &(struct rig_options){.key = NULL}), 0);
    rig_ask_wait(&r, 1);
    assert_int_equal(r.status, 200);
    assert_string_equal(r.request_id, "req-1");
    rig_stop(&r, 0, 0);
}

static void test_headers_are_sanitised(void **state)
{
    struct rig r = {.server = &server};
    (void)state;
    set_mode(ODD_HEADER_TRICKS);
    assert_int_equal(rig_start(&r, &(struct rig_options){.key = NULL}), 0);
    rig_ask_wait(&r, 1);
    assert_int_equal(r.end_code, 0);
    assert_string_equal(r.content_type, "");
    assert_string_equal(r.request_id, "spaced");
    assert_string_equal(r.retry_after, "");
    rig_stop(&r, 0, 0);
}

/* ---- providers that misbehave ---- */

static void expect_end(enum odd_mode mode, const struct rig_options *o, enum br_code code,
                       const char *text)
{
    struct rig r = {.server = &server};
    set_mode(mode);
    assert_int_equal(rig_start(&r, o), 0);
    uint64_t before = br_now_us();
    rig_ask_wait(&r, 1);
    if (r.end_code != code || !strstr(r.end_text, text))
        fail_msg("mode %d ended with %s: %s", mode, br_code_name((int)r.end_code), r.end_text);
    assert_true(br_now_us() - before < 8000000);
    assert_int_equal(r.ends, 1);
    assert_true(requests_seen() <= 1);
    rig_stop(&r, 0, 0);
}

static void test_statuses_pass_through(void **state)
{
    static const unsigned statuses[] = {400, 401, 404, 429, 500, 503};
    struct rig r = {.server = &server};
    (void)state;
    set_mode(ODD_STATUS);
    assert_int_equal(rig_start(&r, &(struct rig_options){.key = NULL}), 0);
    for (unsigned i = 0; i < BR_ARRAY_LEN(statuses); i++) {
        atomic_store(&server.shared->status, statuses[i]);
        rig_ask_wait(&r, i + 1);
        assert_int_equal(r.end_code, 0);
        assert_int_equal(r.status, statuses[i]);
        assert_string_equal(r.retry_after, "3");
    }
    assert_int_equal(requests_seen(), BR_ARRAY_LEN(statuses)); /* no retries */
    rig_stop(&r, 0, 0);
}

static void test_redirect_is_not_followed(void **state)
{
    struct rig r = {.server = &server};
    (void)state;
    set_mode(ODD_REDIRECT);
    assert_int_equal(rig_start(&r, &(struct rig_options){.key = NULL}), 0);
    rig_ask_wait(&r, 1);
    assert_int_equal(r.status, 307);
    (void)poll(NULL, 0, 100);
    assert_int_equal(requests_seen(), 1);
    assert_int_equal(connections_seen(), 1);
    rig_stop(&r, 0, 0);
}

static void test_broken_answers(void **state)
{
    const struct rig_options plain = {.timeouts = {2, 1, 1, 5}};
    (void)state;
    expect_end(ODD_HALF, &plain, BR_E_PROVIDER_TRUNCATED, "in the middle of its answer");
    expect_end(ODD_HALF_CHUNKED, &plain, BR_E_PROVIDER_TRUNCATED, "in the middle of its answer");
    expect_end(ODD_CLOSE, &plain, BR_E_PROVIDER_TRUNCATED, "before it answered");
    expect_end(ODD_RESET, &plain, BR_E_PROVIDER_TRUNCATED, "before it answered");
    expect_end(ODD_NOISE, &plain, BR_E_PROVIDER_INVALID, "did not answer in HTTP/1.1");
    expect_end(ODD_GZIP, &plain, BR_E_PROVIDER_INVALID, "compressed, though none was asked for");
    expect_end(ODD_HEADERS, &plain, BR_E_PROVIDER_INVALID, "64 KiB of headers");
}

static void test_timeouts(void **state)
{
    const struct rig_options o = {.timeouts = {2, 1, 1, 3}};
    (void)state;
    expect_end(ODD_SILENT, &o, BR_E_TIMEOUT, "did not begin to answer within 1 s");
    expect_end(ODD_STALL, &o, BR_E_TIMEOUT, "stood still within 1 s");
    expect_end(ODD_DRIP, &o, BR_E_TIMEOUT, "did not end within 3 s");
}

/* A listener whose queue is full: loopback then drops the handshake. */
static void test_connect_timeout(void **state)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fill[4];
    (void)state;
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 0), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    for (unsigned i = 0; i < 4; i++) {
        fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(fill[i], (struct sockaddr *)&a, sizeof(a));
    }
    char url[64];
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/v1", ntohs(a.sin_port));
    expect_end(ODD_JSON, &(struct rig_options){.base_url = url, .timeouts = {1, 5, 5, 5}},
               BR_E_TIMEOUT, "no connection within 1 s");
    for (unsigned i = 0; i < 4; i++)
        (void)close(fill[i]);
    (void)close(fd);
}

static void test_provider_down(void **state)
{
    (void)state;
    /* port 1 of loopback: nobody listens */
    expect_end(ODD_JSON, &(struct rig_options){.base_url = "http://127.0.0.1:1/v1"},
               BR_E_PROVIDER_UNREACHABLE, "cannot be reached");
    expect_end(ODD_JSON, &(struct rig_options){.base_url = "http://[::1]:1/v1"},
               BR_E_PROVIDER_UNREACHABLE, "cannot be reached");
    expect_end(ODD_JSON,
               &(struct rig_options){.base_url = "http://localhost/v1",
                                     .unix_socket = "/nonexistent/provider.sock"},
               BR_E_PROVIDER_UNREACHABLE, "cannot be reached");
}

/* The resolver's thread under the system call filter, with the name of this very machine. */
static void test_resolver(void **state)
{
    char name[128], url[256];
    (void)state;
    assert_int_equal(gethostname(name, sizeof(name)), 0);
    snprintf(url, sizeof(url), "https://%s:1/v1", name);
    expect_end(ODD_JSON, &(struct rig_options){.base_url = url}, BR_E_PROVIDER_UNREACHABLE,
               "cannot be reached");
}

static void test_tls_is_required_to_work(void **state)
{
    char url[64];
    (void)state;
    /* TLS to a server that speaks plain HTTP: no request, no key, ever reaches it */
    snprintf(url, sizeof(url), "https://127.0.0.1:%u/v1", server.port);
    set_mode(ODD_JSON);
    memset(server.shared->last, 0, sizeof(server.shared->last));
    struct rig r = {.server = &server};
    assert_int_equal(
        rig_start(&r, &(struct rig_options){.base_url = url, .timeouts = {1, 1, 1, 2}}), 0);
    rig_ask_wait(&r, 1);
    assert_true(r.end_code == BR_E_PROVIDER_UNREACHABLE || r.end_code == BR_E_TIMEOUT);
    assert_int_equal(requests_seen(), 0);
    assert_null(memmem(server.shared->last, sizeof(server.shared->last), RIG_KEY, strlen(RIG_KEY)));
    rig_stop(&r, 0, 0);
}

/* ---- configurations that are refused ---- */

static void expect_refused_start(const struct rig_options *o, const char *text)
{
    struct rig r = {.server = &server};
    set_mode(ODD_JSON);
    assert_int_equal(rig_start(&r, o), -1);
    assert_string_equal(r.ready_code, "INVALID_CONFIG");
    if (!strstr(r.ready_text, text))
        fail_msg("refused with: %s", r.ready_text);
    assert_int_equal(connections_seen(), 0);
    rig_stop(&r, -1, -1);
}

static void test_refused_configurations(void **state)
{
    (void)state;
    expect_refused_start(
        &(struct rig_options){.base_url = "http://192.0.2.7/v1", .expect_refused = true},
        "plaintext");
    expect_refused_start(&(struct rig_options){.base_url = "http://u:" RIG_KEY "@127.0.0.1/v1",
                                               .expect_refused = true},
                         "credentials");
    expect_refused_start(&(struct rig_options){.key = "short", .expect_refused = true},
                         "does not hold a key");
    expect_refused_start(&(struct rig_options){.key = "sk-canary-4f1d2c8e77aa90b3\r\nX-A: b",
                                               .expect_refused = true},
                         "does not hold a key");
    expect_refused_start(
        &(struct rig_options){.key_env = "BRIDLE_TEST_UNSET", .expect_refused = true},
        "'BRIDLE_TEST_UNSET'");
    expect_refused_start(
        &(struct rig_options){.timeouts = {1, 1, 1, 86401}, .expect_refused = true}, "timeout");
    expect_refused_start(
        &(struct rig_options){.lease = {.max_requests = 1}, .expect_refused = true},
        "ceiling of 0");
}

/* ---- the redactor first ---- */

/* Neither a request, nor readiness, before audit knows the key. */
static void test_no_request_before_secret_known(void **state)
{
    struct rig r = {.server = &server};
    (void)state;
    set_mode(ODD_JSON);
    assert_int_equal(rig_start(&r, &(struct rig_options){.no_secret_known = true}), 0);
    r.ready_code[0] = '\0'; /* the broker's */
    rig_ask(&r, 1);
    assert_false(rig_until(&r, &r.have_end, 300));
    assert_true(r.secret_right);
    assert_int_equal(connections_seen(), 0);
    assert_string_equal(r.ready_code, "");
    assert_int_equal(br_chan_send(&r.audit, BR_MSG_SECRET_KNOWN, 1, NULL, NULL), 0);
    assert_true(rig_until(&r, &r.have_end, 5000));
    assert_string_equal(r.ready_code, "OK");
    assert_int_equal(r.end_code, 0);
    assert_int_equal(requests_seen(), 1);
    rig_stop(&r, 0, 0);
}

/* It says so and ends; what waited is not sent. */
static void expect_no_egress(struct rig *r)
{
    assert_int_equal(WEXITSTATUS(rig_wait_child(r->egress, 15000)), 1);
    r->egress = 0;
    (void)rig_until(r, NULL, 100);
    assert_string_equal(r->ready_code, "EVENT_REDACTION_FAILED");
    assert_false(r->have_end && r->end_code == BR_OK);
    assert_int_equal(connections_seen(), 0);
    rig_stop(r, 0, -1);
}

static void test_no_start_without_audit(void **state)
{
    struct rig r = {.server = &server};
    (void)state;
    set_mode(ODD_JSON);
    assert_int_equal(rig_start(&r, &(struct rig_options){.no_secret_known = true}), 0);
    r.ready_code[0] = '\0';
    rig_ask(&r, 1);
    assert_false(rig_until(&r, &r.have_end, 100));
    br_chan_close(&r.audit);
    expect_no_egress(&r);
}

static void test_no_start_with_silent_audit(void **state)
{
    struct rig r = {.server = &server};
    (void)state;
    set_mode(ODD_JSON);
    assert_int_equal(rig_start(&r, &(struct rig_options){.no_secret_known = true}), 0);
    r.ready_code[0] = '\0';
    expect_no_egress(&r);
}

/* Audit goes after it knew the key. */
static void test_no_request_without_audit(void **state)
{
    struct rig r = {.server = &server};
    (void)state;
    set_mode(ODD_JSON);
    assert_int_equal(rig_start(&r, &(struct rig_options){.key = NULL}), 0);
    br_chan_close(&r.audit);
    (void)rig_until(&r, NULL, 100);
    rig_ask_wait(&r, 1);
    assert_int_equal(r.end_code, BR_E_REDACTION_FAILED);
    assert_int_equal(connections_seen(), 0);
    rig_stop(&r, 0, 0);
}

/* ---- the lease ---- */

static const struct br_lease small = {.max_requests = 1,
                                      .max_request_bytes = 1000,
                                      .max_response_bytes = 100000,
                                      .max_tokens = 3000,
                                      .seconds = 60,
                                      RIG_LEASE_REST};

static void test_one_request_lease(void **state)
{
    struct rig r = {.server = &server};
    (void)state;
    set_mode(ODD_JSON);
    assert_int_equal(rig_start(&r, &(struct rig_options){.lease = small}), 0);
    rig_ask_wait(&r, 1);
    assert_int_equal(r.end_code, 0);
    assert_int_equal(requests_seen(), 1);
    rig_ask_wait(&r, 2);
    assert_int_equal(r.end_code, BR_E_LEASE_REFUSED);
    assert_non_null(strstr(r.end_text, "allows 1 requests and all are used"));
    assert_false(r.have_head);
    (void)poll(NULL, 0, 100);
    assert_int_equal(requests_seen(), 1);
    assert_int_equal(connections_seen(), 1);
    rig_stop(&r, 0, 0);
}

static void test_second_in_flight(void **state)
{
    struct rig r = {.server = &server};
    (void)state;
    set_mode(ODD_STALL);
    assert_int_equal(rig_start(&r, &(struct rig_options){.timeouts = {5, 5, 5, 10}}), 0);
    rig_ask(&r, 1);
    assert_true(rig_until(&r, &r.have_head, 5000));
    rig_ask_wait(&r, 2);
    assert_int_equal(r.end_code, BR_E_LEASE_REFUSED);
    assert_non_null(strstr(r.end_text, "in flight"));
    assert_int_equal(requests_seen(), 1);
    /* the first one still is, and can be cancelled */
    r.have_end = false;
    assert_int_equal(br_chan_send(&r.session, BR_MSG_PROV_CANCEL, 1, NULL, NULL), 0);
    assert_true(rig_until(&r, &r.have_end, 5000));
    assert_int_equal(r.end_id, 1);
    assert_int_equal(r.end_code, BR_E_CANCELED);
    /* and after it the lease goes on */
    set_mode(ODD_JSON);
    rig_ask_wait(&r, 3);
    assert_int_equal(r.end_code, 0);
    rig_stop(&r, 0, 0);
}

static void test_response_ceiling(void **state)
{
    struct rig r = {.server = &server};
    (void)state;
    set_mode(ODD_FLOOD);
    struct br_lease l = small;
    l.max_requests = 3;
    assert_int_equal(rig_start(&r, &(struct rig_options){.lease = l}), 0);
    rig_ask_wait(&r, 1);
    assert_int_equal(r.end_code, BR_E_LIMIT_EXCEEDED);
    assert_int_equal(r.body.len, 100000); /* exactly the ceiling, no byte more */
    assert_int_equal(r.response_bytes, 100000);
    /* the upstream was let go long before its 256 MiB were out */
    (void)poll(NULL, 0, 100);
    assert_true(atomic_load(&server.shared->sent) < 32u << 20);
    rig_ask_wait(&r, 2);
    assert_int_equal(r.end_code, BR_E_LEASE_REFUSED);
    assert_non_null(strstr(r.end_text, "no bytes left for an answer"));
    assert_int_equal(requests_seen(), 1);
    rig_stop(&r, 0, 0);
}

static void test_lease_ends(void **state)
{
    struct rig r = {.server = &server};
    struct br_lease l = small;
    (void)state;
    l.seconds = 1;
    l.max_requests = 3;
    set_mode(ODD_STALL);
    assert_int_equal(rig_start(&r, &(struct rig_options){.lease = l}), 0);
    rig_ask_wait(&r, 1);
    assert_int_equal(r.end_code, BR_E_TIMEOUT);
    assert_non_null(strstr(r.end_text, "lease has ended"));
    rig_ask_wait(&r, 2);
    assert_int_equal(r.end_code, BR_E_LEASE_REFUSED);
    assert_int_equal(requests_seen(), 1);
    rig_stop(&r, 0, 0);
}

static void expect_refusal(struct rig *r, const char *path, const char *type, uint32_t reserve,
                           const char *body, const char *text)
{
    static uint64_t id = 1000;
    rig_send(r, ++id, path, type, reserve, body, strlen(body));
    assert_true(rig_until(r, &r->have_end, 5000));
    assert_int_equal(r->end_id, id);
    if (r->end_code != BR_E_LEASE_REFUSED || !strstr(r->end_text, text))
        fail_msg("'%s' ended with %s: %s", body, br_code_name((int)r->end_code), r->end_text);
    assert_false(r->have_head);
}

static void test_refused_requests(void **state)
{
    static const char json[] = "application/json";
    static const char good[] = "{\"model\":\"test-model\",\"messages\":[{\"role\":\"user\","
                               "\"content\":\"\"}],\"max_tokens\":10}";
    struct rig r = {.server = &server};
    (void)state;
    set_mode(ODD_JSON);
    struct br_lease l = small;
    l.max_requests = 2;
    assert_int_equal(rig_start(&r, &(struct rig_options){.lease = l}), 0);
    expect_refusal(&r, "/models", json, 10, good, "is not a route");
    expect_refusal(&r, "/chat/completions/../x", json, 10, good, "is not a route");
    expect_refusal(&r, BR_PATH_CHAT, "text/plain", 10, good, "content type");
    expect_refusal(&r, BR_PATH_CHAT, json, 10, "{", "is not JSON");
    expect_refusal(&r, BR_PATH_CHAT, json, 9, good, "reserves 9 tokens and asks for up to 10");
    expect_refusal(&r, BR_PATH_CHAT, json, 3001, good,
                   "3001 tokens and the provider lease has 3000");
    char big[1200];
    int n = snprintf(big, sizeof(big),
                     "{\"model\":\"test-model\",\"messages\":[{\"role\":\"user\",\"content\":\"\"}]"
                     ",\"max_tokens\":10");
    memset(big + n, ' ', 1001 - (size_t)n - 1);
    memcpy(big + 1000, "}", 2);
    expect_refusal(&r, BR_PATH_CHAT, json, 10, big, "1001 bytes and the provider lease has 1000");
    (void)poll(NULL, 0, 50);
    assert_int_equal(connections_seen(), 0);
    /* positive control: the same request without its fault, at exactly the limit */
    memmove(big + 999, "}", 2);
    rig_send(&r, 1, BR_PATH_CHAT, json, 3000, big, 1000);
    assert_true(rig_until(&r, &r.have_end, 5000));
    assert_int_equal(r.end_code, 0);
    assert_int_equal(requests_seen(), 1);
    rig_stop(&r, 0, 0);
}

/* ---- programs that die, messages that are not permitted ---- */

static void test_egress_killed(void **state)
{
    struct rig r = {.server = &server};
    (void)state;
    set_mode(ODD_DRIP);
    assert_int_equal(rig_start(&r, &(struct rig_options){.key = NULL}), 0);
    rig_ask(&r, 1);
    assert_true(rig_until(&r, &r.have_head, 5000));
    assert_int_equal(kill(r.egress, SIGKILL), 0);
    assert_true(rig_until(&r, &r.have_end, 5000));
    assert_int_equal(r.end_code, BR_E_PROGRAM_DIED);
    assert_non_null(strstr(r.end_text, "'bridle-egress' has gone"));
    rig_ask_wait(&r, 2);
    assert_int_equal(r.end_code, BR_E_LEASE_REFUSED);
    rig_stop(&r, 0, -1);
}

static void test_broker_killed(void **state)
{
    struct rig r = {.server = &server};
    (void)state;
    set_mode(ODD_DRIP);
    assert_int_equal(rig_start(&r, &(struct rig_options){.key = NULL}), 0);
    rig_ask(&r, 1);
    assert_true(rig_until(&r, &r.have_head, 5000));
    assert_int_equal(kill(r.broker, SIGKILL), 0);
    assert_true(rig_until(&r, &r.session_gone, 5000));
    /* egress lets go of the provider, which then sends no more */
    unsigned long sent, before = 0;
    for (int i = 0; (sent = atomic_load(&server.shared->sent)) != before && i < 20; i++) {
        before = sent;
        (void)poll(NULL, 0, 500);
    }
    assert_int_equal(sent, before);
    rig_stop(&r, -1, 0);
}

static void test_unpermitted_messages(void **state)
{
    static const enum br_msg_type wrong[] = {BR_MSG_PROV_HEAD, BR_MSG_APPEND, BR_MSG_SECRET_KNOWN};
    (void)state;
    set_mode(ODD_JSON);
    for (unsigned i = 0; i < BR_ARRAY_LEN(wrong); i++) {
        struct rig r = {.server = &server};
        assert_int_equal(rig_start(&r, &(struct rig_options){.key = NULL}), 0);
        assert_int_equal(br_chan_send(&r.session, wrong[i], 1, NULL, NULL), 0);
        assert_true(rig_until(&r, &r.session_gone, 5000));
        assert_int_equal(connections_seen(), 0);
        rig_stop(&r, 1, 0);
    }
    /* audit may say SECRET_KNOWN once */
    struct rig r = {.server = &server};
    assert_int_equal(rig_start(&r, &(struct rig_options){.key = NULL}), 0);
    assert_true(rig_until(&r, &r.secret_right, 1000));
    assert_int_equal(br_chan_send(&r.audit, BR_MSG_SECRET_KNOWN, 1, NULL, NULL), 0);
    assert_int_equal(WEXITSTATUS(rig_wait_child(r.egress, 5000)), 1);
    r.egress = 0;
    rig_stop(&r, 0, -1);
}

static void test_supervisor_gone(void **state)
{
    struct rig r = {.server = &server};
    (void)state;
    set_mode(ODD_DRIP);
    assert_int_equal(rig_start(&r, &(struct rig_options){.key = NULL}), 0);
    rig_ask(&r, 1);
    assert_true(rig_until(&r, &r.have_head, 5000));
    rig_stop(&r, 0, 0); /* closes the supervision channels and waits for exit 0 */
}

/* A session that does not read: nothing is lost, nothing piles up, and the idle clock stands. */
static void test_backpressure(void **state)
{
    struct rig r = {.server = &server};
    (void)state;
    set_mode(ODD_FLOOD);
    assert_int_equal(rig_start(&r, &(struct rig_options){.timeouts = {5, 5, 1, 20}}), 0);
    rig_ask(&r, 1);
    assert_true(rig_until(&r, &r.have_head, 5000));
    (void)poll(NULL, 0, 1500); /* longer than idle_s */
    unsigned long sent = atomic_load(&server.shared->sent);
    assert_true(sent < 24u << 20); /* socket buffers, not memory of ours */
    (void)poll(NULL, 0, 200);
    assert_int_equal(atomic_load(&server.shared->sent), sent);
    /* reading again brings exactly the lease's bytes and its end */
    assert_true(rig_until(&r, &r.have_end, 20000));
    assert_int_equal(r.end_code, BR_E_LIMIT_EXCEEDED);
    assert_int_equal(r.body.len, 32u << 20);
    rig_stop(&r, 0, 0);
}

/* The parts in which root and ordinary users differ: identities, limits, filters, sockets. */
static int run_as_user(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answer_passes_through),
        cmocka_unit_test(test_large_request),
        cmocka_unit_test(test_key_is_hidden),
        cmocka_unit_test(test_provider_down),
        cmocka_unit_test(test_resolver),
        cmocka_unit_test(test_egress_killed),
        cmocka_unit_test(test_unpermitted_messages),
    };
    rig_open_programs();
    if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(1000, 1000, 1000) < 0 ||
                           setresuid(1000, 1000, 1000) < 0))
        return 1;
    return cmocka_run_group_tests(tests, setup, teardown);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answer_passes_through),
        cmocka_unit_test(test_large_request),
        cmocka_unit_test(test_key_is_hidden),
        cmocka_unit_test(test_interim_answer),
        cmocka_unit_test(test_headers_are_sanitised),
        cmocka_unit_test(test_statuses_pass_through),
        cmocka_unit_test(test_redirect_is_not_followed),
        cmocka_unit_test(test_broken_answers),
        cmocka_unit_test(test_timeouts),
        cmocka_unit_test(test_connect_timeout),
        cmocka_unit_test(test_provider_down),
        cmocka_unit_test(test_resolver),
        cmocka_unit_test(test_tls_is_required_to_work),
        cmocka_unit_test(test_refused_configurations),
        cmocka_unit_test(test_no_request_before_secret_known),
        cmocka_unit_test(test_no_start_without_audit),
        cmocka_unit_test(test_no_start_with_silent_audit),
        cmocka_unit_test(test_no_request_without_audit),
        cmocka_unit_test(test_one_request_lease),
        cmocka_unit_test(test_second_in_flight),
        cmocka_unit_test(test_response_ceiling),
        cmocka_unit_test(test_lease_ends),
        cmocka_unit_test(test_refused_requests),
        cmocka_unit_test(test_egress_killed),
        cmocka_unit_test(test_broker_killed),
        cmocka_unit_test(test_unpermitted_messages),
        cmocka_unit_test(test_supervisor_gone),
        cmocka_unit_test(test_backpressure),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    if (argc == 2 && strcmp(argv[1], "user") == 0)
        return run_as_user();
    return cmocka_run_group_tests(tests, setup, teardown);
}
