#include "protocol_rig.h"

#include <signal.h>
#include <sys/stat.h>

struct e2e protocol_world;
pid_t protocol_service;
char protocol_socket[128];
#define t protocol_world
#define sock protocol_socket

static const char policy[] =
    "local policy = require 'bridle.policy'\n"
    "return policy.bundle { api = 1, name = 'served', rules = {\n"
    "  policy.allow { id = 'echo', action = 'process.exec', command = 'echo *' },\n"
    "  policy.ask { id = 'touch', action = 'process.exec', command = 'touch *' },\n"
    "} }\n";

/* `touch`: two files, both asked. `load`: thirty turns of echo, each with a text. `echo`: one. */
/* clang-format off */
#define CALL(a, b) "{\"name\":\"process_exec\",\"arguments\":{\"argv\":[\"" a "\",\"" b "\"]}}"
#define FIRST(word, text, calls)                                                                   \
    "{\"when\":{\"assistant_messages\":0,\"last_user_contains\":\"" word "\"},\"text\":\"" text       \
    "\",\"tool_calls\":[" calls "]},"
#define TURN(n)                                                                                    \
    "{\"when\":{\"assistant_messages\":" #n ",\"last_tool_contains\":\"load\"},\"text\":"          \
    "\"Turn " #n ".\",\"tool_calls\":[" CALL("echo", "load") "," CALL("echo", "load") "]},"
#define TEN(d) TURN(d##0) TURN(d##1) TURN(d##2) TURN(d##3) TURN(d##4) TURN(d##5) TURN(d##6)          \
    TURN(d##7) TURN(d##8) TURN(d##9)
static const char scenario[] =
    "{\"v\":1,\"name\":\"served\",\"turns\":["
    FIRST("touch", "May I?", CALL("touch", "out/a") "," CALL("touch", "out/b"))
    FIRST("echo", "I say it.", CALL("echo", "hi"))
    FIRST("load", "Much.", CALL("echo", "load"))
    TURN(1) TURN(2) TURN(3) TURN(4) TURN(5) TURN(6) TURN(7) TURN(8) TURN(9) TEN(1) TEN(2)
    "{\"text\":\"Done.\"}]}";
/* clang-format on */

/* ---- the service ---- */

void protocol_begin(const char *settings)
{
    char text[2048], config[128], rules[128], played[128];
    struct e2e_result r;
    e2e_open(&t, 0);
    snprintf(sock, sizeof(sock), "%s/serve.sock", t.dir);
    e2e_write(&t, "workspace/one/out/seed", "");
    e2e_write(&t, "policy.lua", policy);
    e2e_write(&t, "scenario.json", scenario);
    snprintf(text, sizeof(text), "return { api = 1, service = { root = '%s', %s } }\n", t.workspace,
             settings);
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
    protocol_service = e2e_spawn(&t, argv, NULL);
}

void protocol_end(void)
{
    struct e2e_result r;
    assert_int_equal(kill(protocol_service, SIGTERM), 0);
    e2e_wait(&t, protocol_service, 30, &r);
    protocol_service = 0;
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    e2e_expect_clean(&t); /* no program, no sandbox */
    e2e_close(&t);
}

int protocol_teardown(void **state)
{
    struct e2e_result r;
    (void)state;
    if (protocol_service > 0) {
        (void)kill(protocol_service, SIGKILL);
        e2e_wait(&t, protocol_service, 10, &r);
        if (r.err.data)
            fprintf(stderr, "%.2000s\n", (char *)r.err.data);
        e2e_result_free(&r);
    }
    protocol_service = 0;
    return 0;
}

/* ---- the store ---- */

unsigned protocol_count(const char *text, const char *what)
{
    unsigned n = 0;
    for (const char *p = text; p && (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

char *protocol_record(const char *id)
{
    struct e2e_result r;
    e2e_run(&t, &r, "bridle", "show", id, "--json", NULL);
    e2e_expect(&r, 0, NULL);
    char *text = strdup(r.out.data ? (char *)r.out.data : "");
    e2e_result_free(&r);
    return text;
}

/* An event that any client is shown; the first line is about the run. */
static bool is_shown(const char *line)
{
    return strncmp(line, "{\"v\":1,", 7) == 0 &&
           strncmp(line, "{\"v\":1,\"type\":\"bridle.", 22) != 0;
}

void protocol_check(const char *id, const char *status, const struct strict *c)
{
    char *text = protocol_record(id), want[64], *save = NULL;
    snprintf(want, sizeof(want), "\"status\":\"%s\"", status ? status : "");
    assert_int_equal(protocol_count(text, "\"type\":\"agent.stopped\""), 1);
    assert_int_equal(protocol_count(text, "\"type\":\"permission.requested\""),
                     protocol_count(text, "\"type\":\"permission.resolved\""));
    assert_int_equal(protocol_count(text, "\"type\":\"tool.call\""),
                     protocol_count(text, "\"type\":\"tool.result\""));
    const char *stop = strstr(text, "\"type\":\"agent.stopped\"");
    if (status ? !strstr(stop, want) : strstr(stop, "\"status\":\"completed\"") != NULL)
        fail_msg("it is not %s: %s", status ? status : "ended badly", stop);
    size_t off = 0, n = c ? c->seen.len : 0;
    for (char *line = strtok_r(text, "\n", &save); line && off < n;
         line = strtok_r(NULL, "\n", &save)) {
        size_t len = strlen(line);
        if (!is_shown(line))
            continue;
        if (n - off < len + 1 || memcmp(c->seen.data + off, line, len) != 0 ||
            c->seen.data[off + len] != '\n')
            fail_msg("shown: %.*s stored: %s", (int)(n - off), (char *)c->seen.data + off, line);
        off += len + 1;
        assert_true(off < n || !c->stopped || strstr(line, "\"type\":\"agent.stopped\""));
    }
    assert_int_equal(off, n); /* nothing was shown that is not stored */
    free(text);
}

bool protocol_exists(const char *path)
{
    char full[256];
    struct stat st;
    snprintf(full, sizeof(full), "%s/one/%s", t.workspace, path);
    return stat(full, &st) == 0;
}

void protocol_remove(void)
{
    char full[256];
    for (const char *p = "ab"; *p; p++) {
        snprintf(full, sizeof(full), "%s/one/out/%c", t.workspace, *p);
        (void)unlink(full);
    }
}

void protocol_await(const char *id)
{
    for (int i = 0; i < 1000; i++, usleep(20000)) {
        struct e2e_result r;
        e2e_run(&t, &r, "bridle", "show", id, "--json", NULL);
        bool done = r.status == 0 && e2e_says(&r, "\"type\":\"agent.stopped\"");
        e2e_result_free(&r);
        if (done)
            return;
    }
    fail_msg("the record of '%s' does not end", id);
}
