/*
 * A run against an OpenAI-compatible server on loopback TCP, as an operator would configure one:
 * from the environment and from bridle.lua, streaming and not. The server is the scripted provider
 * on a TCP socket. The key must reach the server and nothing else.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <signal.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/e2e.h"
#include "wire/wire.h"

#define KEY "zxcanary7f3a9b1c5d8e2f40"

static const char allow_all[] = "local policy = require \"bridle.policy\"\n"
                                "return policy.bundle { api = 1, name = \"test\", rules = {\n"
                                "  policy.allow { id = \"exec\", action = \"process.exec\" },\n"
                                "  policy.allow { id = \"write\", action = \"fs.write\" },\n} }\n";

/* The bridle-scripted of the build on a loopback port; *port receives it. */
static pid_t serve(const char *scenario, unsigned *port, int *control)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(sa);
    char program[BR_PATH_MAX];
    int ends[2], sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(sock >= 0 && bind(sock, (struct sockaddr *)&sa, sizeof(sa)) == 0);
    assert_int_equal(listen(sock, 8), 0);
    assert_int_equal(getsockname(sock, (struct sockaddr *)&sa, &n), 0);
    *port = ntohs(sa.sin_port);
    assert_int_equal(br_chan_pair(ends), 0);
    snprintf(program, sizeof(program), "%s/bridle-scripted", e2e_bin());
    pid_t pid = fork();
    if (pid == 0) {
        if (dup2(ends[1], 3) == 3)
            execl(program, "bridle-scripted", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    struct br_chan c;
    br_chan_init(&c, ends[0], "scripted", NULL, 0, NULL);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_out_blob(&o, scenario, strlen(scenario));
    br_out_fd(&o, sock, true);
    assert_int_equal(br_chan_send(&c, BR_MSG_SCRIPTED_START, 0, &o, NULL), 0);
    *control = c.fd;
    return pid;
}

static unsigned count(const struct br_buf *b, const char *what)
{
    return b->data && memmem(b->data, b->len, what, strlen(what)) ? 1 : 0;
}

/* No byte of the state directory or of the output holds the key in any usual spelling. */
static void expect_no_key(struct e2e *t, const struct e2e_result *r)
{
    char base64[64], hex[64], command[512];
    sodium_bin2base64(base64, sizeof(base64), (const unsigned char *)KEY, strlen(KEY),
                      sodium_base64_VARIANT_ORIGINAL_NO_PADDING);
    sodium_bin2hex(hex, sizeof(hex), (const unsigned char *)KEY, strlen(KEY));
    const char *const spellings[] = {KEY, base64, hex};
    for (size_t i = 0; i < BR_ARRAY_LEN(spellings); i++) {
        assert_int_equal(count(&r->out, spellings[i]), 0);
        assert_int_equal(count(&r->err, spellings[i]), 0);
        snprintf(command, sizeof(command), "grep -rqaF '%s' '%s'", spellings[i], t->state);
        assert_int_equal(WEXITSTATUS(system(command)), 1);
    }
}

/* With a model name from the environment's provider, or, if it is NULL, from bridle.lua. */
static void play(const char *env_form, bool streaming)
{
    struct e2e t;
    struct e2e_result r;
    char scenario[2048], base64[64], hex[64], url[128], text[1024];
    unsigned port;
    int control;
    sodium_bin2base64(base64, sizeof(base64), (const unsigned char *)KEY, strlen(KEY),
                      sodium_base64_VARIANT_ORIGINAL_NO_PADDING);
    sodium_bin2hex(hex, sizeof(hex), (const unsigned char *)KEY, strlen(KEY));
    /* a model that repeats the key, in the text and in the arguments of a call */
    snprintf(scenario, sizeof(scenario),
             "{\"v\":1,\"name\":\"t\",\"turns\":[{\"when\":{\"assistant_messages\":0},\"text\":"
             "\"said " KEY " and %s and %s now\",\"tool_calls\":[{\"name\":\"process_exec\","
             "\"arguments\":{\"argv\":[\"echo\",\"" KEY "\"]}},{\"name\":\"fs_write\","
             "\"arguments\":{\"path\":\"src/made\",\"content\":\"x\"}}]},{\"text\":\"The end.\"}]}",
             base64, hex);
    pid_t server = serve(scenario, &port, &control);
    e2e_open(&t, 0);
    e2e_write(&t, "workspace/src/a.txt", "a\n");
    e2e_write(&t, "policy.lua", allow_all);
    snprintf(url, sizeof(url), "OPENAI_BASE_URL=http://127.0.0.1:%u/v1", port);
    bool config = !env_form;
    const char *const env[] = {config ? "MY_KEY=" KEY : "OPENAI_API_KEY=" KEY, config ? NULL : url,
                               NULL};
    snprintf(text, sizeof(text),
             "return { api = 1, default_model = \"local/some-model\", providers = {\n"
             "  [\"local\"] = { base_url = \"http://127.0.0.1:%u/v1\", key_env = \"MY_KEY\",\n"
             "    streaming = %s, models = { \"some-model\" } } } }\n",
             port, streaming ? "true" : "false");
    e2e_write(&t, "bridle.lua", text);
    /* and an operator who pasted it into the goal */
    char goal[256], command[256];
    snprintf(goal, sizeof(goal), "go with " KEY " or %s or %s, please", base64, hex);
    const char *const plain[] = {"bridle",     "run", "--json", "-C", "workspace", "-p",
                                 "policy.lua", "-m",  env_form, goal, NULL};
    const char *const with_config[] = {"bridle",     "run", "--json",     "-C",
                                       "workspace",  "-p",  "policy.lua", "--config",
                                       "bridle.lua", goal,  NULL};
    e2e_wait(&t, e2e_spawn(&t, (char *const *)(config ? with_config : plain), (char *const *)env),
             60, &r);
    if (r.status != 0 || !count(&r.out, "\"status\":\"completed\""))
        fail_msg("status %d\n%s%s", r.status, (char *)r.out.data, (char *)r.err.data);
    assert_int_equal(count(&r.out, "\"scripted\":true"), 0); /* it is a provider like any other */
    assert_int_equal(count(&r.out, "redacted"), 1);
    char *made = e2e_read(&t, "workspace/src/made");
    assert_string_equal(made, "x");
    free(made);
    expect_no_key(&t, &r);
    snprintf(command, sizeof(command), "grep -rqaF 'go with [redacted:' '%s'", t.state);
    assert_int_equal(WEXITSTATUS(system(command)), 0);
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "show", NULL);
    assert_int_equal(r.status, 0);
    assert_int_equal(count(&r.out, "go with [redacted:"), 1);
    expect_no_key(&t, &r);
    e2e_result_free(&r);
    close(control);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

static void test_environment(void **state)
{
    (void)state;
    play("some-model", true);
}

static void test_config_streaming(void **state)
{
    (void)state;
    play(NULL, true);
}

static void test_config_not_streaming(void **state)
{
    (void)state;
    play(NULL, false);
}

/* ---- a server that answers with what no scenario can say ---- */

static void answer(int sock, const char *body)
{
    int c = accept(sock, NULL, NULL);
    BR_CLEANUP_BUF struct br_buf in = BR_BUF_INIT(8u << 20), out = BR_BUF_INIT(8u << 20);
    const char *end = NULL;
    for (size_t want = SIZE_MAX; c >= 0 && in.len < want;) {
        char part[4096];
        ssize_t n = read(c, part, sizeof(part));
        if (n <= 0 || br_buf_put(&in, part, (size_t)n) < 0)
            break;
        const char *text = br_buf_cstr(&in);
        end = end ? end : strstr(text, "\r\n\r\n");
        const char *length = strcasestr(text, "\r\ncontent-length:");
        if (end && length && want == SIZE_MAX)
            want = (size_t)(end + 4 - text) + strtoul(length + 17, NULL, 10);
    }
    /* of the call before, the request holds no more than what is recorded */
    if (!body)
        body =
            in.len < (64u << 10) && memmem(in.data, in.len, "unparsed", 8)
                ? "{\"choices\":[{\"index\":0,\"finish_reason\":\"stop\",\"message\":{\"content\":"
                  "\"The end.\"}}]}"
                : "{\"error\":\"the request is not as expected\"}";
    br_buf_printf(&out,
                  "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                  "Connection: close\r\n\r\n",
                  strlen(body));
    br_buf_put(&out, body, strlen(body));
    (void)br_write_all(c, out.data, out.len);
    close(c);
}

static void put_call(struct br_buf *b, unsigned i, const char *name, const char *arguments)
{
    br_buf_printf(
        b, "%s{\"id\":\"c%u\",\"type\":\"function\",\"function\":{\"name\":", i ? "," : "", i);
    br_buf_put_json_str(b, name, strlen(name));
    br_buf_printf(b, ",\"arguments\":");
    br_buf_put_json_str(b, arguments, strlen(arguments));
    br_buf_printf(b, "}}");
}

static char *big_write(size_t n)
{
    static const char before[] = "{\"path\":\"src/a.txt\",\"content\":\"";
    char *text = malloc(n + 1);
    assert_non_null(text);
    memset(text, 'x', n);
    memcpy(text, before, sizeof(before) - 1);
    memcpy(text + n - 2, "\"}", 3);
    return text;
}

static unsigned times(const struct br_buf *b, const char *what)
{
    unsigned n = 0;
    for (const char *p = (const char *)b->data; p && (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

/* Each call is answered for itself: the model is told, nothing happens, the run goes on. */
static void test_unusable_arguments(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    char deep[256], url[128];
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(sa);
    int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4u << 20);
    BR_CLEANUP_FREE char *over = big_write(BR_TOOL_JSON_MAX + 1);
    snprintf(deep, sizeof(deep), "{\"a\":%.*s%.*s}", (int)BR_JSON_DEPTH_MAX,
             "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
             (int)BR_JSON_DEPTH_MAX,
             "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]");
    const char *const bad[] = {"{\"path\":\"src/a.txt\",",
                               "{\"path\":\"src/a.txt\",\"path\":\"b\",\"content\":\"x\"}",
                               "{\"path\":\"src/a.txt\",\"content\":\"\\u0000\"}", deep, "[]"};
    br_buf_printf(&b, "{\"choices\":[{\"index\":0,\"finish_reason\":\"tool_calls\",\"message\":{"
                      "\"tool_calls\":[");
    unsigned n = 0;
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++)
        put_call(&b, n++, "fs_write", bad[i]);
    put_call(&b, n++, "fs_write", over);
    put_call(&b, n++, "fs_write\001", "{\"path\":\"src/a.txt\",\"content\":\"x\"}");
    put_call(&b, n++, "fs_write", ""); /* is {}: the arguments lack something, but they are read */
    br_buf_printf(&b, "]}}]}");
    assert_true(bind(sock, (struct sockaddr *)&sa, len) == 0 && listen(sock, 8) == 0);
    assert_int_equal(getsockname(sock, (struct sockaddr *)&sa, &len), 0);
    pid_t server = fork();
    if (server == 0) {
        answer(sock, br_buf_cstr(&b));
        answer(sock, NULL);
        _exit(0);
    }
    close(sock);
    e2e_open(&t, 0);
    e2e_write(&t, "workspace/src/a.txt", "before\n");
    e2e_write(&t, "policy.lua", allow_all);
    snprintf(url, sizeof(url), "OPENAI_BASE_URL=http://127.0.0.1:%u/v1", ntohs(sa.sin_port));
    const char *const env[] = {"OPENAI_API_KEY=" KEY, url, NULL};
    const char *const argv[] = {"bridle",     "run", "--json",     "-C", "workspace", "-p",
                                "policy.lua", "-m",  "some-model", "go", NULL};
    e2e_wait(&t, e2e_spawn(&t, (char *const *)argv, (char *const *)env), 60, &r);
    if (r.status != 0 || !count(&r.out, "The end."))
        fail_msg("status %d\n%s%s", r.status, (char *)r.out.data, (char *)r.err.data);
    assert_int_equal(times(&r.out, "\"ok\":false"), n);
    assert_int_equal(times(&r.out, "\"code\":\"INVALID_ARGUMENTS\""), n - 2);
    assert_int_equal(times(&r.out, "\"code\":\"LIMIT_EXCEEDED\""), 1);
    assert_int_equal(times(&r.out, "\"code\":\"UNKNOWN_TOOL\""), 1);
    assert_int_equal(times(&r.out, "\"input\":{}"), 1);
    assert_int_equal(times(&r.out, "\"type\":\"policy.decision\""), 0);
    char *is = e2e_read(&t, "workspace/src/a.txt");
    assert_string_equal(is, "before\n");
    free(is);
    e2e_result_free(&r);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* Each is refused before anything is started. */
static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *config, *model;
        int status;
    } rows[] = {
        {"return {", "x/y", 5},
        {"while true do end", "x/y", 5},
        {"return { api = 1, providers = { x = { base_url = 'http://192.0.2.1/v1', key_env = 'K' } "
         "} }",
         "x/y", 5},
        {"return { api = 1, providers = { x = { base_url = 'https://192.0.2.1/v1' } } }", "z/y", 3},
        {"return { api = 1, providers = { x = { base_url = 'https://192.0.2.1/v1', models = {'a'} "
         "} } }",
         "x/y", 3},
        {"return { api = 1, providers = { x = { url = 'https://192.0.2.1/v1' } } }", "x/y", 5},
        {"return { api = 1, providers = { x = { base_url = 'https://192.0.2.1/v1', api = "
         "'anthropic' } } }",
         "x/y", 5},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct e2e t;
        struct e2e_result r;
        e2e_open(&t, 0);
        e2e_write(&t, "workspace/a", "a");
        e2e_write(&t, "bridle.lua", rows[i].config);
        e2e_run(&t, &r, "bridle", "run", "--json", "-C", "workspace", "--config", "bridle.lua",
                "-m", rows[i].model, "go", NULL);
        if (r.status != rows[i].status)
            fail_msg("%s: status %d\n%s", rows[i].config, r.status, (char *)r.err.data);
        assert_int_equal(r.out.len, 0); /* no event: nothing was started */
        e2e_result_free(&r);
        e2e_expect_clean(&t);
        e2e_close(&t);
    }
}

int main(void)
{
    e2e_isolate();
    if (sodium_init() < 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_config_streaming),
        cmocka_unit_test(test_config_not_streaming),
        cmocka_unit_test(test_unusable_arguments),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
