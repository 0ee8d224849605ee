/*
 * Telemetry of the whole service: bridle serve with a collector on loopback, which is the test.
 * Real runs; what is exported is JSON of a trace and of metrics that agree with /metrics, and holds
 * nothing of the prompt, the tools, the answers or the paths. A collector that is away or never
 * answers changes nothing for a run.
 */
#include "strict_client.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "support/e2e.h"

#define CANARY "xyzzy7kanarie"

static struct e2e t;
static pid_t service, collector;
static char sock[128], kept[128];
static int listener = -1;
static uint16_t port;

static const char policy[] =
    "local policy = require 'bridle.policy'\n"
    "return policy.bundle { api = 1, name = 'told', rules = {\n"
    "  policy.allow { id = 'echo', action = 'process.exec', command = 'echo *' },\n"
    "  policy.deny { id = 'rm', action = 'process.exec', command = 'rm *' },\n} }\n";
static const char scenario[] =
    "{\"v\":1,\"name\":\"told\",\"turns\":[{\"when\":{\"assistant_messages\":0},\"text\":"
    "\"I say " CANARY ".\",\"tool_calls\":[{\"name\":\"process_exec\",\"arguments\":{\"argv\":"
    "[\"echo\",\"" CANARY
    "\"]}},{\"name\":\"process_exec\",\"arguments\":{\"argv\":[\"rm\",\"" CANARY
    "\"]}}]},{\"text\":\"Done " CANARY ".\"}]}";

/* ---- the collector ---- */

/* One request after the other, each kept as "PATH BODY" in a line. */
static void collect(int fd)
{
    static char in[1 << 20];
    size_t have = 0;
    for (;;) {
        ssize_t n = read(fd, in + have, sizeof(in) - 1 - have);
        if (n <= 0)
            return;
        have += (size_t)n;
        in[have] = 0;
        char *body = strstr(in, "\r\n\r\n"), *size = strcasestr(in, "content-length:");
        if (!body || !size)
            continue;
        body += 4;
        size_t want = strtoul(size + 15, NULL, 10), whole = (size_t)(body - in) + want;
        if (have < whole)
            continue;
        int out = open(kept, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        char line[96];
        int k = snprintf(line, sizeof(line), "%.*s ", (int)strcspn(in + 5, " "), in + 5);
        if (br_write_all(out, line, (size_t)k) < 0 || br_write_all(out, body, want) < 0 ||
            br_write_all(out, "\n", 1) < 0)
            _exit(1);
        close(out);
        static const char answer[] =
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
        if (write(fd, answer, sizeof(answer) - 1) < 0)
            return;
        memmove(in, in + whole, have - whole);
        have -= whole;
    }
}

static void listen_here(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&a, n), 0);
    assert_int_equal(listen(listener, 16), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &n), 0);
    port = ntohs(a.sin_port);
}

static void collector_start(void)
{
    collector = fork();
    assert_true(collector >= 0);
    if (collector > 0)
        return;
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            _exit(1);
        collect(fd);
        close(fd);
    }
}

/* ---- the service ---- */

static void begin(void)
{
    char text[512], config[128], rules[128], played[128];
    struct e2e_result r;
    e2e_open(&t, 0);
    snprintf(sock, sizeof(sock), "%s/serve.sock", t.dir);
    snprintf(kept, sizeof(kept), "%s/kept", t.dir);
    e2e_write(&t, "workspace/" CANARY "/seed", "");
    e2e_write(&t, "policy.lua", policy);
    e2e_write(&t, "scenario.json", scenario);
    snprintf(text, sizeof(text),
             "return { api = 1, service = { root = '%s', otlp = 'http://127.0.0.1:%u' } }\n",
             t.workspace, port);
    e2e_write(&t, "bridle.lua", text);
    snprintf(config, sizeof(config), "%s/bridle.lua", t.dir);
    snprintf(rules, sizeof(rules), "%s/policy.lua", t.dir);
    snprintf(played, sizeof(played), "%s/scenario.json", t.dir);
    e2e_run(&t, &r, "bridle", "activate", "run-v1", NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    char *const argv[] = {
        (char *)"bridle",     (char *)"serve", (char *)"-c",       config, (char *)"-p", rules,
        (char *)"--scenario", played,          (char *)"--listen", sock,   NULL};
    service = e2e_spawn(&t, argv, NULL);
}

static void end(void)
{
    struct e2e_result r;
    assert_int_equal(kill(service, SIGTERM), 0);
    e2e_wait(&t, service, 30, &r);
    service = 0;
    assert_null(strstr(r.err.data ? (char *)r.err.data : "", CANARY));
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

static int teardown(void **state)
{
    struct e2e_result r;
    (void)state;
    if (collector > 0) {
        (void)kill(collector, SIGKILL);
        (void)waitpid(collector, NULL, 0);
    }
    collector = 0;
    br_close(&listener);
    if (service > 0) {
        (void)kill(service, SIGKILL);
        e2e_wait(&t, service, 10, &r);
        fprintf(stderr, "%.2000s\n", r.err.data ? (char *)r.err.data : "");
        e2e_result_free(&r);
    }
    service = 0;
    return 0;
}

static void run_one(void)
{
    static struct strict c;
    strict_open(&c, sock, false);
    strict_new(&c, CANARY);
    strict_prompt(&c, "please say " CANARY);
    strict_until(&c, "\"type\":\"agent.stopped\"");
    strict_until(&c, "\"id\":2,\"result\":{\"status\":\"completed\"");
    strict_close(&c);
}

/* ---- what was collected ---- */

static char *collected(void)
{
    struct br_buf b = BR_BUF_INIT(64u << 20);
    int fd = open(kept, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        assert_int_equal(br_read_all(fd, &b, "kept", NULL), 0);
    br_close(&fd);
    char *text = strdup(br_buf_cstr(&b));
    br_buf_free(&b);
    return text;
}

/* Wait for a whole line of this path that has this text; its JSON, or of the last such line. */
static json_t *wait_for(const char *path, const char *part)
{
    for (unsigned i = 0; i < 300; i++) {
        char *text = collected(), *save = NULL;
        bool whole = text[0] && text[strlen(text) - 1] == '\n';
        json_t *found = NULL;
        for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
            char *body = strchr(line, ' ');
            bool last = !*save;
            if (!body || strncmp(line, path, strlen(path)) != 0 || !strstr(body, part) ||
                (last && !whole))
                continue;
            json_decref(found);
            found = json_loads(body + 1, JSON_REJECT_DUPLICATES, NULL);
            if (!found)
                fail_msg("not JSON: %s", body);
        }
        free(text);
        if (found)
            return found;
        (void)poll(NULL, 0, 50);
    }
    fail_msg("%s with '%s' did not come", path, part);
    return NULL;
}

static unsigned long long sum_of(json_t *metrics, const char *name)
{
    size_t i;
    json_t *m, *rm = json_array_get(json_object_get(metrics, "resourceMetrics"), 0);
    json_t *sm = json_array_get(json_object_get(rm, "scopeMetrics"), 0);
    json_array_foreach(json_object_get(sm, "metrics"), i, m)
    {
        if (strcmp(json_string_value(json_object_get(m, "name")), name) != 0)
            continue;
        json_t *p = json_array_get(json_object_get(json_object_get(m, "sum"), "dataPoints"), 0);
        return strtoull(json_string_value(json_object_get(p, "asInt")), NULL, 10);
    }
    fail_msg("'%s' was not exported", name);
    return 0;
}

/* GET /metrics over the service's socket. */
static char *scraped(void)
{
    static const char ask[] =
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct br_buf b = BR_BUF_INIT(1u << 20);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", sock);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(write(fd, ask, sizeof(ask) - 1), sizeof(ask) - 1);
    assert_int_equal(br_read_all(fd, &b, "metrics", NULL), 0);
    close(fd);
    char *text = strdup(br_buf_cstr(&b));
    br_buf_free(&b);
    assert_non_null(strstr(text, " 200 "));
    return text;
}

static unsigned long long scraped_value(const char *text, const char *name)
{
    char want[80];
    snprintf(want, sizeof(want), "\nbridle_%s_total ", name);
    const char *p = strstr(text, want);
    if (!p)
        fail_msg("'%s' is not in /metrics", name);
    return strtoull(p + strlen(want), NULL, 10);
}

static void test_what_is_exported(void **state)
{
    (void)state;
    listen_here();
    begin();
    collector_start();
    run_one();
    json_t *trace = wait_for("/v1/traces", "invoke_agent bridle");
    json_t *ss = json_array_get(
        json_object_get(json_array_get(json_object_get(trace, "resourceSpans"), 0), "scopeSpans"),
        0);
    /* the run, two requests, two calls of which one was denied */
    assert_int_equal(json_array_size(json_object_get(ss, "spans")), 5);
    json_decref(trace);
    json_t *metrics = wait_for("/v1/metrics", "\"invoke_agent\"");
    char *prometheus = scraped();
    static const char *const names[] = {"sessions_completed", "model_requests",    "tool_calls",
                                        "tokens_prompt",      "tokens_completion", "events_out",
                                        "sessions_created"};
    for (size_t i = 0; i < BR_ARRAY_LEN(names); i++) {
        char name[64];
        snprintf(name, sizeof(name), "bridle.%s", names[i]);
        if (sum_of(metrics, name) != scraped_value(prometheus, names[i]))
            fail_msg("'%s' differs: %llu", names[i], sum_of(metrics, name));
    }
    assert_int_equal(sum_of(metrics, "bridle.tool_calls"), 2);
    assert_int_equal(sum_of(metrics, "bridle.model_requests"), 2);
    json_decref(metrics);
    char *all = collected();
    assert_null(strstr(all, CANARY));
    assert_null(strstr(all, t.workspace));
    assert_null(strstr(prometheus, CANARY));
    free(all);
    free(prometheus);
    end();
}

/* Nobody listens; then somebody who never answers: runs go on as ever. */
static void test_a_collector_that_does_not_help(void **state)
{
    (void)state;
    listen_here(); /* connections wait in its queue, for ever */
    begin();
    run_one();
    br_close(&listener);
    run_one();
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_what_is_exported, teardown),
        cmocka_unit_test_teardown(test_a_collector_that_does_not_help, teardown),
    };
    return cmocka_run_group_tests_name("e2e_telemetry", tests, NULL, NULL);
}
