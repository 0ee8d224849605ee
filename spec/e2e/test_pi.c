/*
 * Pi as a harness, from end to end: the real image, the real sandbox, the real broker; the model is
 * scripted. And clients of npm as the guest of an adapter of the operator's, through the broker to
 * a provider on loopback that speaks all dialects (adapters/pi-coding/spec). The test pi.image has
 * made what they need; PI_CACHE says where.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/e2e.h"

#define KEY "upstream-key-0123456789"

static struct e2e world; /* one for all tests: the image is large */
static const char *cache;

static void shell(const char *fmt, ...) BR_PRINTF(1, 2);
static void shell(const char *fmt, ...)
{
    char text[2048], full[2304];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    snprintf(full, sizeof(full), "set -e; cd %s; %s", world.dir, text);
    if (system(full) != 0) /* NOLINT(cert-env33-c) */
        fail_msg("failed: %s", full);
}

/* bridle.lua with these terms of pi-coding, and a provider if one listens. */
static void configure(const char *terms, unsigned port, const char *provider)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8192);
    br_buf_printf(
        &b,
        "return { api = 1, adapters = {\n"
        "  ['pi-coding@1'] = { profiles = { 'workspace-v1' }, image = 'pi-coding', %s },\n"
        "  ['clients@1'] = { profiles = { 'workspace-v1' }, image = 'pi-coding',\n"
        "    file = '%s/adapter.lua', lease = { requests = 12 } } }",
        terms, world.dir);
    if (port)
        br_buf_printf(&b,
                      ",\n  keys = { k = { file = '%s/key' } },\n  providers = { up = { base_url = "
                      "'http://127.0.0.1:%u/v1', key = 'k', %s } }",
                      world.dir, port, provider);
    br_buf_printf(&b, " }\n");
    e2e_write(&world, "bridle.lua", br_buf_cstr(&b));
}

static void run(struct e2e_result *r, const char *adapter, const char *how, const char *what,
                const char *prompt)
{
    e2e_run(&world, r, "bridle", "run", "--json", "-C", "workspace", "--profile", "workspace-v1",
            "--config", "bridle.lua", "-a", adapter, how, what, prompt, NULL);
}

static void fresh_workspace(void)
{
    shell("rm -rf workspace; mkdir workspace; echo before >workspace/a.txt; chown -R 1000:1000 "
          "workspace");
}

/* Is this text in any byte that the audit keeps? */
static bool recorded(const char *text)
{
    char command[512];
    snprintf(command, sizeof(command), "grep -rqF -e '%s' %s/audit", text, world.state);
    return system(command) == 0; /* NOLINT(cert-env33-c) */
}

static int open_world(void **state)
{
    struct e2e_result r;
    (void)state;
    cache = getenv("PI_CACHE");
    assert_non_null(cache);
    e2e_open(&world, 0);
    world.activated = true;
    shell("mkdir -p -m 700 state; cp -a %s/state/images state/; umask 077; printf %s >key", cache,
          KEY);
    e2e_write(
        &world, "adapter.lua",
        "return { id = 'clients', revision = 1, entry = { '/opt/pi/bin/node', "
        "'/workspace/clients.cjs' }, profiles = { ['workspace-v1'] = { tools = { 'read' } } "
        "}, routes = { 'chat', 'responses', 'messages', 'models' }, artifact = { kind = "
        "'text', bytes = 65536 }, ceilings = { outputBytes = 131072, traceBytes = 4096 } }\n");
    e2e_run(&world, &r, "bridle", "image", "verify", NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    e2e_run(&world, &r, "bridle", "activate", "workspace-v1", "--image", "pi-coding", NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    e2e_expect_clean(&world);
    e2e_close(&world);
    return 0;
}

/* ---- the provider on loopback ---- */

static unsigned start_upstream(pid_t *pid)
{
    char node[256], script[256], file[128];
    snprintf(node, sizeof(node), "%s/root/opt/pi/bin/node", cache);
    snprintf(script, sizeof(script), "%s/adapters/pi-coding/spec/upstream.mjs",
             getenv("BRIDLE_SOURCE"));
    snprintf(file, sizeof(file), "%s/port", world.dir);
    shell("rm -f port port.log");
    *pid = fork();
    if (*pid == 0) {
        execl(node, node, script, file, NULL);
        _exit(127);
    }
    for (unsigned i = 0; i < 500; i++, usleep(20000)) {
        char *text = e2e_read(&world, "port");
        unsigned port = text ? (unsigned)strtoul(text, NULL, 10) : 0;
        free(text);
        if (port)
            return port;
    }
    fail_msg("the provider did not start");
    return 0;
}

static void stop_upstream(pid_t pid)
{
    kill(pid, SIGTERM);
    (void)waitpid(pid, NULL, 0);
}

static unsigned upstream_requests(void)
{
    char *text = e2e_read(&world, "port.log");
    unsigned n = 0;
    for (const char *at = text; at && (at = strchr(at, '\n')); at++)
        n++;
    free(text);
    return n;
}

/* ---- Pi ---- */

static const char scenario[] =
    "{\"v\":1,\"name\":\"pi\",\"chunk_words\":50,\"turns\":["
    "{\"when\":{\"assistant_messages\":0},\"text\":\"I write.\",\"tool_calls\":[{\"name\":"
    "\"write\",\"arguments\":{\"path\":\"made.txt\",\"content\":\"CANARY-CONTENT\"}}]},"
    "{\"when\":{\"assistant_messages\":1,\"last_tool_contains\":\"Successfully wrote\"},"
    "\"text\":\"I look.\",\"tool_calls\":[{\"name\":\"bash\",\"arguments\":{\"command\":\"cat "
    "made.txt; echo CANARY-PRINTED; ls -A /workspace /state /home; "
    "find /opt/pi -newermt 2000-01-01; env\"}},{\"name\":\"bash\",\"arguments\":{\"command\":"
    "\"touch /opt/pi/x\"}}]},"
    "{\"when\":{\"assistant_messages\":2,\"last_tool_contains\":\"CANARY-PRINTED\"},\"text\":\"It "
    "is written.\"},"
    "{\"text\":\"Something is wrong.\"}]}";

static void test_run(void **state)
{
    (void)state;
    struct e2e_result r;
    char id[64] = "";
    fresh_workspace();
    configure("", 0, "");
    e2e_write(&world, "scenario.json", scenario);
    run(&r, "pi-coding@1", "--scenario", "scenario.json", "write it");
    e2e_expect(&r, 0, "\"artifact\":{\"kind\":\"text\",\"text\":\"It is written.\"}");
    e2e_expect(&r, 0, "{\"name\":\"write\",\"status\":\"ok\",\"count\":1}");
    e2e_expect(&r, 0, "{\"name\":\"bash\",\"status\":\"ok\",\"count\":1}");
    e2e_expect(&r, 0, "{\"name\":\"bash\",\"status\":\"error\",\"count\":1}");
    e2e_expect(&r, 0, "\"changed\":[{\"path\":\"made.txt\",\"change\":\"added\",\"size\":14}]");
    e2e_expect(&r, 0, "\"image\":\"sha256:");
    e2e_expect(&r, 0, "\"network\":\"none\"");
    e2e_expect(&r, 0, "\"requests\":3,\"settled\":3,\"unsettled\":0");
    assert_false(e2e_says(&r, "CANARY"));
    const char *run_id = strstr(br_buf_cstr(&r.out), "\"runId\":\"");
    assert_non_null(run_id);
    snprintf(id, sizeof(id), "%.*s", (int)strcspn(run_id + 9, "\""), run_id + 9);
    e2e_result_free(&r);
    /* in the lease, and nowhere else */
    e2e_expect_file(&world, "workspace/made.txt", NULL);
    assert_true(recorded("It is written.")); /* the control: this is how one finds something */
    assert_false(recorded("CANARY"));
    e2e_run(&world, &r, "bridle", "show", id, NULL);
    e2e_expect(&r, 0, "pi-coding@1");
    e2e_expect(&r, 0, "It is written.");
    e2e_expect(&r, 0, "write");
    assert_false(e2e_says(&r, "CANARY"));
    e2e_result_free(&r);
}

/* The only session that is kept. */
static void session_id(char id[64])
{
    struct e2e_result r;
    e2e_run(&world, &r, "bridle", "state", "list", "--json", NULL);
    e2e_expect(&r, 0, NULL);
    const char *at = strstr(br_buf_cstr(&r.out), "\"kind\":\"session\",\"id\":\"");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "\"kind\":\"session\",\"id\":\"%63[^\"]", id), 1);
    e2e_result_free(&r);
}

static void run_again(struct e2e_result *r, const char *id)
{
    e2e_run(&world, r, "bridle", "run", "--json", "-C", "workspace", "--profile", "workspace-v1",
            "--config", "bridle.lua", "-a", "pi-coding@1", "--scenario", "again.json", "--resume",
            id, "go on", NULL);
}

/* Pi goes on with what it said before; a new one has nothing to go on with. */
static void test_resume(void **state)
{
    (void)state;
    struct e2e_result r;
    char id[64] = "";
    fresh_workspace();
    configure("", 0, "");
    e2e_write(&world, "scenario.json", scenario);
    e2e_run(&world, &r, "bridle", "state", "purge", "--all", NULL);
    e2e_result_free(&r);
    run(&r, "pi-coding@1", "--scenario", "scenario.json", "write it");
    e2e_expect(&r, 0, "\"text\":\"It is written.\"");
    e2e_result_free(&r);
    session_id(id);
    e2e_write(&world, "again.json",
              "{\"v\":1,\"name\":\"again\",\"turns\":[{\"when\":{\"assistant_messages\":0},"
              "\"text\":\"I forgot.\"},{\"when\":{},\"text\":\"I remember.\"}]}");
    run(&r, "pi-coding@1", "--scenario", "again.json", "go on");
    e2e_expect(&r, 0, "\"text\":\"I forgot.\"");
    e2e_result_free(&r);
    run_again(&r, id);
    e2e_expect(&r, 0, "\"text\":\"I remember.\"");
    e2e_result_free(&r);
    id[strlen(id) - 1] ^= 1;
    run_again(&r, id);
    assert_int_equal(r.status, 3);
    assert_false(e2e_says(&r, "sandbox.started"));
    e2e_result_free(&r);
}

/* Everything that a workspace can hold to be loaded. adapters/pi-coding/spec/hostile_spec.mjs has
 * the control: Pi itself loads it. */
static void test_hostile(void **state)
{
    (void)state;
    struct e2e_result r;
    pid_t pid;
    fresh_workspace();
    shell(
        "mkdir -p workspace/elsewhere/extensions workspace/elsewhere/package; cd workspace; ln -s "
        "elsewhere .pi; for f in SYSTEM.md APPEND_SYSTEM.md; do echo CANARY-$f >elsewhere/$f; "
        "done; echo CANARY-AGENTS >AGENTS.md; printf "
        "'import { writeFileSync } from \"node:fs\"; writeFileSync(\"/workspace/ran\", \"\"); "
        "export default () => {};' | tee elsewhere/extensions/x.ts >elsewhere/package/x.ts; "
        "echo '{\"name\":\"x\",\"version\":\"1.0.0\",\"pi\":{\"extensions\":[\"./x.ts\"]}}' "
        ">elsewhere/package/package.json; echo '{\"packages\":[\"./package\"],\"defaultModel\":"
        "\"other\"}' >elsewhere/settings.json; chown -hR 1000:1000 .");
    unsigned port = start_upstream(&pid);
    configure("", port, "dialects = { 'chat' }");
    run(&r, "pi-coding@1", "-m", "up/m", "say it");
    e2e_expect(&r, 0, "\"text\":\"It is said.\"");
    e2e_expect(&r, 0, "\"changed\":[]");
    e2e_result_free(&r);
    char *log = e2e_read(&world, "port.log");
    assert_non_null(log);
    assert_non_null(strstr(log, "\"model\":\"m\""));
    assert_null(strstr(log, "\"canary\":true"));
    free(log);
    /* as data, where the operator says so: the control of the same request */
    configure("context_files = true", port, "dialects = { 'chat' }");
    run(&r, "pi-coding@1", "-m", "up/m", "say it");
    e2e_expect(&r, 0, "\"text\":\"It is said.\"");
    e2e_result_free(&r);
    log = e2e_read(&world, "port.log");
    assert_non_null(strstr(log, "\"canary\":true"));
    free(log);
    stop_upstream(pid);
}

/* Each dialect that Pi and the provider have in common, and the key that only egress has. */
static void test_dialects(void **state)
{
    (void)state;
    struct e2e_result r;
    pid_t pid;
    static const char *const rows[][3] = {
        {"dialects = { 'chat' }", "/v1/chat/completions", "Bearer " KEY},
        {"dialects = { 'responses' }", "/v1/responses", "Bearer " KEY},
        {"api = 'anthropic'", "/v1/messages", KEY},
    };
    fresh_workspace();
    unsigned port = start_upstream(&pid);
    for (unsigned i = 0; i < BR_ARRAY_LEN(rows); i++) {
        char want[256];
        shell("rm -f port.log");
        configure("", port, rows[i][0]);
        run(&r, "pi-coding@1", "-m", "up/m", "say it");
        e2e_expect(&r, 0, "\"text\":\"It is said.\"");
        e2e_expect(&r, 0, "\"settled\":1");
        assert_false(e2e_says(&r, KEY));
        e2e_result_free(&r);
        char *log = e2e_read(&world, "port.log");
        assert_non_null(log);
        snprintf(want, sizeof(want), "{\"path\":\"%s\",\"key\":\"%s\",", rows[i][1], rows[i][2]);
        if (!strstr(log, want))
            fail_msg("'%s' is not in %s", want, log);
        free(log);
    }
    stop_upstream(pid);
    assert_false(recorded(KEY));
}

/* A lease that is used up ends the run; Pi does not try again. */
static void test_lease(void **state)
{
    (void)state;
    struct e2e_result r;
    fresh_workspace();
    configure("lease = { requests = 1 }", 0, "");
    e2e_write(&world, "scenario.json", scenario);
    run(&r, "pi-coding@1", "--scenario", "scenario.json", "write it");
    assert_int_not_equal(r.status, 0);
    e2e_expect(&r, r.status, "\"requests\":1,\"settled\":1");
    e2e_expect(&r, r.status, "\"refused\":1");
    e2e_expect(&r, r.status, "\"tools\":[{\"name\":\"write\",\"status\":\"ok\",\"count\":1}]");
    e2e_result_free(&r);
}

static const char gate_policy[] =
    "local policy = require \"bridle.policy\"\n"
    "return policy.bundle { api = 1, name = \"gate\", rules = {\n"
    "  policy.allow { id = \"adapter\", action = \"adapter.run\" },\n"
    "  policy.allow { id = \"write\", action = \"fs.write\", path = { \"made.txt\" } },\n"
    "  policy.deny { id = \"no\", action = \"process.exec\", reason = \"no commands here\" },\n} "
    "}\n";

/* The gate asks the policy before each call: what it denies does not happen. */
static void test_gate(void **state)
{
    (void)state;
    struct e2e_result r;
    fresh_workspace();
    configure("gate = 'ask'", 0, "");
    e2e_write(&world, "gate.lua", gate_policy);
    e2e_write(&world, "scenario.json",
              "{\"v\":1,\"name\":\"gate\",\"chunk_words\":50,\"turns\":["
              "{\"when\":{\"assistant_messages\":0},\"text\":\"Both.\",\"tool_calls\":[{\"name\":"
              "\"write\",\"arguments\":{\"path\":\"/workspace/made.txt\",\"content\":\"x\"}},"
              "{\"name\":\"bash\",\"arguments\":{\"command\":\"touch ran\"}}]},"
              "{\"when\":{\"last_tool_contains\":\"no commands here\"},\"text\":\"I see.\"},"
              "{\"text\":\"Something is wrong.\"}]}");
    e2e_run(&world, &r, "bridle", "run", "--json", "-C", "workspace", "-p", "gate.lua", "--profile",
            "workspace-v1", "--config", "bridle.lua", "-a", "pi-coding@1", "--scenario",
            "scenario.json", "do both", NULL);
    e2e_expect(&r, 0, "\"text\":\"I see.\"");
    e2e_expect(&r, 0, "{\"name\":\"bash\",\"status\":\"denied\",\"count\":1}");
    e2e_expect(&r, 0, "{\"name\":\"write\",\"status\":\"ok\",\"count\":1}");
    e2e_expect(&r, 0, "\"changed\":[{\"path\":\"made.txt\",\"change\":\"added\",\"size\":1}]");
    e2e_expect(&r, 0, "\"type\":\"bridle.harness.gate\"");
    e2e_result_free(&r);
}

/* ---- clients of npm ---- */

static void clients(struct e2e_result *r, const char *prompt)
{
    shell("cp %s/clients.cjs workspace/; chown 1000:1000 workspace/clients.cjs", cache);
    run(r, "clients@1", "-m", "up/m", prompt);
    e2e_expect(r, 0, "\"status\":\"completed\"");
}

#define SAID(name, rest) "{\\\"name\\\":\\\"" name "\\\"," rest "}"
#define TEXT "\\\"text\\\":\\\"It is said.\\\","
#define REFUSED(name, status, code)                                                                \
    SAID(name, "\\\"status\\\":" status ",\\\"code\\\":\\\"" code "\\\"," ONE(status))
#define ONE(status) "\\\"statuses\\\":[" status "]"

static void test_clients(void **state)
{
    (void)state;
    struct e2e_result r;
    pid_t pid;
    fresh_workspace();
    unsigned port = start_upstream(&pid);
    configure("", port, "dialects = { 'chat', 'responses' }");
    clients(&r, "chat chat-stream chat-plain-stream responses responses-stream models");
    e2e_expect(&r, 0,
               SAID("chat", TEXT "\\\"usage\\\":110,\\\"finish\\\":\\\"stop\\\"," ONE("200")));
    e2e_expect(
        &r, 0,
        SAID("chat-stream", TEXT "\\\"usage\\\":110,\\\"finish\\\":\\\"stop\\\"," ONE("200")));
    e2e_expect(&r, 0, SAID("chat-plain-stream", TEXT "\\\"usage\\\":\\\"none\\\"," ONE("200")));
    e2e_expect(&r, 0, SAID("responses", TEXT "\\\"usage\\\":110," ONE("200")));
    e2e_expect(&r, 0, SAID("responses-stream", TEXT "\\\"usage\\\":110," ONE("200")));
    e2e_expect(&r, 0, SAID("models", "\\\"list\\\":[\\\"m\\\"]," ONE("200")));
    e2e_expect(&r, 0, "\"requests\":5,\"settled\":5");
    e2e_result_free(&r);
    assert_int_equal(upstream_requests(), 5);
    configure("", port, "api = 'anthropic'");
    clients(&r, "messages messages-stream");
    e2e_expect(&r, 0, SAID("messages", TEXT "\\\"usage\\\":110," ONE("200")));
    e2e_expect(&r, 0, SAID("messages-stream", TEXT "\\\"usage\\\":110," ONE("200")));
    e2e_result_free(&r);
    assert_int_equal(upstream_requests(), 7);
    stop_upstream(pid);
}

/* What the lease refuses is one typed 4xx: clients that retry by themselves do not. */
static void test_clients_refused(void **state)
{
    (void)state;
    struct e2e_result r;
    pid_t pid;
    fresh_workspace();
    unsigned port = start_upstream(&pid);
    configure("", port, "dialects = { 'chat' }");
    clients(&r, "other-model two-answers other-route other-token");
    e2e_expect(&r, 0, REFUSED("other-model", "403", "PROVIDER_LEASE_REFUSED"));
    e2e_expect(&r, 0, REFUSED("two-answers", "403", "PROVIDER_LEASE_REFUSED"));
    e2e_expect(&r, 0, REFUSED("other-route", "403", "PROVIDER_LEASE_REFUSED"));
    e2e_expect(&r, 0, REFUSED("other-token", "401", "DENIED"));
    e2e_result_free(&r);
    /* twelve requests are allowed */
    clients(&r, "chat chat chat chat chat chat chat chat chat chat chat chat chat");
    e2e_expect(&r, 0, REFUSED("chat", "403", "PROVIDER_LEASE_REFUSED"));
    e2e_expect(&r, 0, "\"requests\":12,\"settled\":12");
    e2e_result_free(&r);
    assert_int_equal(upstream_requests(), 12);
    configure("", port, "api = 'anthropic'");
    clients(&r, "other-model-messages");
    e2e_expect(&r, 0, REFUSED("other-model-messages", "403", "PROVIDER_LEASE_REFUSED"));
    e2e_result_free(&r);
    assert_int_equal(upstream_requests(), 12);
    stop_upstream(pid);
}

int main(void)
{
    e2e_isolate();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run),     cmocka_unit_test(test_resume),
        cmocka_unit_test(test_hostile), cmocka_unit_test(test_dialects),
        cmocka_unit_test(test_lease),   cmocka_unit_test(test_gate),
        cmocka_unit_test(test_clients), cmocka_unit_test(test_clients_refused),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
