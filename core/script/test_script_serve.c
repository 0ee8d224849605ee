/*
 * Purposes config and adapter, and the shell over the channel, in a real bridle-script.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "script/rig.h"
#include "wire/service.h"
#include "wire/types.h"

static void configure(struct rig *g, const char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, "/home/op/bridle.lua");
    br_out_blob(&o, text, strlen(text));
    assert_int_equal(br_chan_send(&g->sup, BR_MSG_SCRIPT_CONFIG, 5, &o, NULL), 0);
    rig_wait(g, 90000);
}

static void expect_str(struct br_rd *r, const char *want)
{
    char text[512];
    br_rd_str(r, text, sizeof(text));
    assert_string_equal(text, want);
}

struct expected {
    const char *name, *base_url;
    uint8_t key_from;
    const char *key_name, *key_at, *command, *ca_file, *proxy;
    uint8_t auth;
    uint32_t routes;
    uint8_t answers;
    uint32_t seconds[4];
    bool streaming;
    const char *models;
};

static void expect_list(struct br_rd *r, const char *want)
{
    char all[512] = "", text[256];
    uint32_t n = br_rd_u32(r);
    for (uint32_t i = 0; i < n; i++) {
        br_rd_str(r, text, sizeof(text));
        snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? " " : "", text);
    }
    assert_string_equal(all, want);
}

static void expect_provider(struct br_rd *r, const struct expected *w)
{
    expect_str(r, w->name);
    expect_str(r, w->base_url);
    assert_int_equal(br_rd_u8(r), w->key_from);
    expect_str(r, w->key_name);
    expect_str(r, w->key_at);
    expect_list(r, w->command);
    assert_int_equal(br_rd_u32(r), w->command[0] ? 5 : 0);
    expect_str(r, w->ca_file);
    expect_str(r, w->proxy);
    assert_int_equal(br_rd_u8(r), w->auth);
    assert_int_equal(br_rd_u32(r), w->routes);
    assert_int_equal(br_rd_u8(r), w->answers);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(br_rd_u32(r), w->seconds[i]);
    assert_int_equal(br_rd_u8(r), w->streaming);
    expect_list(r, w->models);
}

static void test_config(void **state)
{
    (void)state;
    struct rig g;
    rig_start(&g, BR_SCRIPT_CONFIG);
    configure(&g,
              "return { api = 1, default_model = 'openai/gpt-5', keys = {\n"
              "  lab = { file = '/etc/bridle/lab.key' },\n"
              "  vault = { command = { '/usr/bin/pass', 'show' }, timeout = 5 } }, providers = {\n"
              "  claude = { base_url = 'https://api.anthropic.com/v1', api = 'anthropic',\n"
              "    key = 'vault', ca_file = '/etc/ssl/a.pem', answers = 'normalize',\n"
              "    proxy = 'http://proxy.example:3128/', connect_timeout = 7,\n"
              "    first_byte_timeout = 8, idle_timeout = 9, total_timeout = 10 },\n"
              "  lab = { base_url = 'https://lab.example/v1', key = 'lab', dialects = { 'chat' },\n"
              "    timeout = 5 },\n"
              "  openai = { base_url = 'https://api.example.com/v1/', key_env = 'KEY', models = "
              "{ 'gpt-5', 'small' }, timeout = 30 },\n"
              "  here = { base_url = 'http://127.0.0.1:8080', streaming = false } },\n"
              "  profiles = { ['workspace-v1'] = { image = 'debian' } } }");
    if (g.a.type != BR_MSG_SCRIPT_CONFIGURED)
        fail_msg("%s", g.a.text);
    struct br_rd r;
    br_rd_init(&r, g.a.body.data, g.a.body.len);
    expect_str(&r, "openai/gpt-5");
    assert_int_equal(br_rd_u32(&r), 4);
    expect_provider(&r, &(struct expected){"claude",
                                           "https://api.anthropic.com/v1",
                                           BR_KEY_COMMAND,
                                           "vault",
                                           "",
                                           "/usr/bin/pass show",
                                           "/etc/ssl/a.pem",
                                           "http://proxy.example:3128",
                                           BR_AUTH_X_API_KEY,
                                           BR_ROUTE_MESSAGES | BR_ROUTE_MODELS,
                                           BR_ANSWERS_NORMALIZE,
                                           {7, 8, 9, 10},
                                           true,
                                           ""});
    expect_provider(&r, &(struct expected){"here",
                                           "http://127.0.0.1:8080",
                                           BR_KEY_NONE,
                                           "",
                                           "",
                                           "",
                                           "",
                                           "",
                                           BR_AUTH_BEARER,
                                           BR_ROUTE_CHAT | BR_ROUTE_RESPONSES | BR_ROUTE_MODELS,
                                           BR_ANSWERS_STRICT,
                                           {10, 120, 120, 600},
                                           false,
                                           ""});
    expect_provider(&r, &(struct expected){"lab",
                                           "https://lab.example/v1",
                                           BR_KEY_FILE,
                                           "lab",
                                           "/etc/bridle/lab.key",
                                           "",
                                           "",
                                           "",
                                           BR_AUTH_BEARER,
                                           BR_ROUTE_CHAT | BR_ROUTE_MODELS,
                                           BR_ANSWERS_STRICT,
                                           {5, 5, 5, 25},
                                           true,
                                           ""});
    expect_provider(&r, &(struct expected){"openai",
                                           "https://api.example.com/v1",
                                           BR_KEY_ENV,
                                           "KEY",
                                           "KEY",
                                           "",
                                           "",
                                           "",
                                           BR_AUTH_BEARER,
                                           BR_ROUTE_CHAT | BR_ROUTE_RESPONSES | BR_ROUTE_MODELS,
                                           BR_ANSWERS_STRICT,
                                           {10, 30, 30, 150},
                                           true,
                                           "gpt-5 small"});
    assert_int_equal(br_rd_u32(&r), 1);
    expect_str(&r, "workspace-v1");
    expect_str(&r, "debian");
    assert_int_equal(br_rd_u32(&r), 0); /* no adapters */
    struct br_service_config service;
    br_service_config_get(&r, &service); /* there is none: defaults */
    assert_true(!service.given && service.s.nlisteners == 0 && service.s.ask_seconds == 120);
    assert_int_equal(br_rd_done(&r), 0);
    assert_int_equal(rig_stop(&g), 0);
}

static void served(struct rig *g, const char *text, struct br_service_config *c)
{
    struct br_rd r;
    char whole[4096];
    snprintf(whole, sizeof(whole), "return { api = 1, service = { %s } }", text);
    configure(g, whole);
    if (g->a.type != BR_MSG_SCRIPT_CONFIGURED)
        fail_msg("%s", g->a.text);
    br_rd_init(&r, g->a.body.data, g->a.body.len);
    expect_str(&r, "");
    for (int i = 0; i < 3; i++) /* no providers, images, adapters */
        assert_int_equal(br_rd_u32(&r), 0);
    br_service_config_get(&r, c);
    assert_int_equal(br_rd_done(&r), 0);
    assert_true(c->given);
}

static void test_service(void **state)
{
    static struct br_service_config c;
    struct rig g;
    (void)state;
    rig_start(&g, BR_SCRIPT_CONFIG);
    served(&g, "", &c);
    assert_true(c.s.nlisteners == 0 && !c.s.root[0] && c.s.board && c.s.metrics && !c.s.detach);
    assert_true(c.s.message_bytes == 1u << 20 && c.s.running == 8 && c.drain_seconds == 30);
    served(&g,
           "listen = { '127.0.0.1:8765', '[::1]:0', '/run/x.sock', { address = '0.0.0.0:8443', tls "
           "= true }, { address = '10.0.0.1:1', plaintext = true } }, root = '/srv/work', "
           "origins = { 'https://Board.example:8443' }, hosts = { 'board.example' }, users = { "
           "'alice', 1000, 'bob' }, certificates = { ['ops laptop'] = 'operate', b = 'observe' }, "
           "tls = { cert = '/c', key = '/k', client_ca = '/a', require_client_cert = true }, "
           "token_in_url = true, board = false, board_remote = true, metrics = false, detach = "
           "'allow', otlp = 'http://127.0.0.1:4318', drain = 7, limits = { running = 16, "
           "message_bytes = 4096, requests_per_second = 0 }",
           &c);
    const struct br_service *s = &c.s;
    assert_int_equal(s->nlisteners, 5);
    const struct br_listener *l = s->listeners;
    assert_true(l[0].kind == BR_LISTENER_TCP && l[0].loopback && l[0].port == 8765 && !l[0].tls);
    assert_string_equal(l[1].address, "::1");
    assert_true(l[1].loopback && l[1].port == 0);
    assert_true(l[2].kind == BR_LISTENER_UNIX);
    assert_string_equal(l[2].address, "/run/x.sock");
    assert_true(l[3].tls && !l[3].loopback && l[4].plaintext);
    assert_string_equal(s->root, "/srv/work");
    assert_string_equal(s->origins[0], "https://board.example:8443");
    assert_string_equal(s->hosts[0], "board.example");
    assert_true(s->nuids == 1 && s->uids[0] == 1000 && c.nusers == 2);
    assert_string_equal(c.users[1], "bob");
    assert_true(s->nnames == 2 && s->names[1].access == BR_ACCESS_OPERATE);
    assert_string_equal(s->names[1].name, "ops laptop");
    assert_true(s->names[0].access == BR_ACCESS_OBSERVE);
    assert_string_equal(c.client_ca, "/a");
    assert_true(c.require_client_cert && c.drain_seconds == 7);
    assert_true(s->token_in_url && !s->board && s->board_remote && !s->metrics && s->detach);
    assert_true(s->running == 16 && s->message_bytes == 4096 && s->requests_per_second == 0);
    assert_string_equal(s->otlp, "http://127.0.0.1:4318");
    assert_int_equal(rig_stop(&g), 0);
}

static void test_bad_services(void **state)
{
    static const struct {
        const char *text, *says;
    } list[] = {
        {"lisen = {}", "did you mean 'listen'"},
        {"listen = {}", "at least 1 element"},
        {"listen = { 1 }", "expected a mapping"},
        {"listen = { '/x.sock', bogus = 1 }", "found a list that also has the key 'bogus'"},
        {"listen = { '/x.sock', nil, '/y.sock', [9] = '/z.sock' }", "found a list with gaps"},
        {"listen = { 'localhost:1' }", "'service.listen[1]'"},
        {"listen = { 'localhost:1' }", "is a number"},
        {"listen = { '127.0.0.1:1', '127.0.0.1' }", "'service.listen[2]'"},
        {"listen = { '127.0.0.1:' }", "ADDRESS:PORT"},
        {"listen = { '127.0.0.1:65536' }", "at most 65535"},
        {"listen = { '::1:1' }", "is a number"},
        {"listen = { '[::ffff:127.0.0.1]:1' }", "is a number"},
        {"listen = { 'run/x.sock' }", "ADDRESS:PORT"},
        {"listen = { '/' .. ('x'):rep(107) }", "longer"},
        {"listen = { { address = '/x', tls = true } }", "not for a Unix socket"},
        {"listen = { { address = '1.2.3.4:1', tls = true, plaintext = true } }", "exclude"},
        {"listen = { { address = '1.2.3.4:1', tls = true } }", "where certificate and key are"},
        {"listen = { { addres = '1.2.3.4:1' } }", "did you mean 'address'"},
        {"listen = { '/1', '/2', '/3', '/4', '/5', '/6', '/7', '/8', '/9' }", "more than 8"},
        {"root = 'work'", "an absolute path"},
        {"origins = { 'board.example' }", "an origin such as"},
        {"origins = { 'https://a/b' }", "an origin such as"},
        {"hosts = { 'a b' }", "a host"},
        {"users = { -1 }", "an integer from 0"},
        {"users = { 1.5 }", "expected a text"},
        {"users = { 4294967295 }", "an integer from 0"},
        {"certificates = { a = 'admin' }", "expected one of 'observe'"},
        {"certificates = { a = 'oprate' }", "did you mean 'operate'"},
        {"certificates = { ['a\\n'] = 'operate' }", "ASCII"},
        {"tls = { cert = '/a' }", "lacks the key 'key'"},
        {"tls = { cert = 'a', key = '/b' }", "an absolute path"},
        {"tls = { cert = '/a', key = '/b', require_client_cert = true }", "needs 'client_ca'"},
        {"board = 1", "true or false"},
        {"detach = true", "expected one of 'deny', 'allow'"},
        {"limits = { runing = 1 }", "did you mean 'running'"},
        {"limits = { running = 0 }", "an integer from 1 to 64"},
        {"limits = { running = 65 }", "an integer from 1 to 64"},
        {"limits = { message_bytes = 16777217 }", "an integer from"},
        {"limits = { message_bytes = 16777216 }", "less than one message"},
        {"otlp = '127.0.0.1:4318'", "an address such as"},
        {"drain = -1", "an integer from 0"},
    };
    struct rig g;
    (void)state;
    rig_start(&g, BR_SCRIPT_CONFIG);
    for (size_t i = 0; i < BR_ARRAY_LEN(list); i++) {
        char whole[1024];
        snprintf(whole, sizeof(whole), "return { api = 1, service = { %s } }", list[i].text);
        configure(&g, whole);
        if (g.a.type != BR_MSG_SCRIPT_FAILED)
            fail_msg("not refused: %s", list[i].text);
        rig_says(&g, list[i].says);
        rig_code(&g, "INVALID_CONFIG");
    }
    assert_int_equal(rig_stop(&g), 0);
}

/* A manifest by name: which id it has, and what its budget says. */
static void task(struct rig *g, const char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, "tasks/a.yaml");
    br_out_blob(&o, text, strlen(text));
    assert_int_equal(br_chan_send(&g->sup, BR_MSG_SCRIPT_TASK, 9, &o, NULL), 0);
    rig_wait(g, 30000);
}

static void test_task(void **state)
{
#define TASK(more)                                                                                 \
    "id: fix-a\ntitle: t\ngoal: g\nacceptance: [a]\nallowed_paths: [src/**]\n"                     \
    "permissions: {fs.read: allow}\ndelivery: {type: none}\n" more
    struct rig g;
    (void)state;
    rig_start(&g, BR_SCRIPT_CONFIG);
    task(&g, TASK("budget: {max_model_tokens: 70, max_tool_calls: 3}\n"));
    assert_int_equal(g.a.type, BR_MSG_SCRIPT_TASKED);
    assert_string_equal(g.a.text, "fix-a");
    assert_int_equal(g.a.line, 70003);
    task(&g, TASK(""));
    assert_int_equal(g.a.type, BR_MSG_SCRIPT_TASKED);
    assert_int_equal(g.a.line, 0);
    static const char *const bad[] = {"",
                                      "[1]",
                                      "id: [",
                                      TASK("more: 1\n"),
                                      "id: fix-a\n",
                                      TASK("budget: {max_tool_calls: 0}\n")};
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++) {
        task(&g, bad[i]);
        assert_int_equal(g.a.type, BR_MSG_SCRIPT_FAILED);
        rig_code(&g, "INVALID_MANIFEST");
        rig_says(&g, "tasks/a.yaml");
    }
    assert_int_equal(rig_stop(&g), 0);
}

static void test_bad_configs(void **state)
{
    (void)state;
#define PROVIDER(fields) "return { api = 1, providers = { a = { " fields " } } }"
#define KEYS(keys)                                                                                 \
    "return { api = 1, keys = { " keys " }, providers = { a = { base_url = 'https://x', key = "    \
    "'work' } } }"
    static const struct {
        const char *text, *says;
    } list[] = {
        {"return 7", "expected a mapping, found 7"},
        {"return {", "bridle.lua:1:"},
        {"", "expected a mapping"},
        {"return { providers = { a = { base_url = 'https://x' } } }", "lacks the key 'api'"},
        {"return { api = 2, providers = {} }", "'api': expected 1"},
        {"return { api = 1, providers = {} }", "names no provider"},
        {"return { api = 1, provider = {} }", "did you mean 'providers'"},
        {"return { api = 1, providers = { a = 1 } }", "expected a mapping, found 1"},
        {"return { api = 1, providers = { ['A b'] = { base_url = 'https://x' } } }", "lower-case"},
        {PROVIDER("base_ulr = 'https://x'"), "did you mean 'base_url'"},
        {PROVIDER("base_url = 'http://example.com'"), "plaintext is for loopback only"},
        {PROVIDER("base_url = 'http://127.0.0.1.evil.com'"), "plaintext is for loopback only"},
        {PROVIDER("base_url = 'http://localhost.evil.com'"), "plaintext is for loopback only"},
        {PROVIDER("base_url = 'http://localhost@evil.com'"), "user or password"},
        {PROVIDER("base_url = 'https://u:p@x'"), "user or password"},
        {PROVIDER("base_url = 'ftp://x'"), "https://"},
        {PROVIDER("base_url = 'https://'"), "https://"},
        {PROVIDER("base_url = 'https://x:0'"), "port"},
        {PROVIDER("base_url = 'https://x:70000'"), "port"},
        {PROVIDER("base_url = 'https://x/?a'"), "'?'"},
        {PROVIDER("base_url = 'https://x\\ny'"), "control character"},
        {PROVIDER("base_url = 'https://x', key_env = 'A-B'"), "environment variable"},
        {PROVIDER("base_url = 'https://x', timeout = 0"), "an integer from 1"},
        {PROVIDER("base_url = 'https://x', timeout = 3601"), "an integer from 1"},
        {PROVIDER("base_url = 'https://x', streaming = 1"), "true or false"},
        {PROVIDER("base_url = 'https://x', total_timeout = 86401"), "an integer from 1"},
        {PROVIDER("base_url = 'https://x', connect_timout = 1"), "did you mean 'connect_timeout'"},
        {PROVIDER("base_url = 'https://x', api = 'openia'"), "did you mean 'openai'"},
        {PROVIDER("base_url = 'https://x', auth = 'basic'"), "expected one of 'bearer'"},
        {PROVIDER("base_url = 'https://x', answers = 'lax'"), "'strict', 'normalize'"},
        {PROVIDER("base_url = 'https://x', dialects = {}"), "at least 1 element"},
        {PROVIDER("base_url = 'https://x', dialects = { 'chat', 'chat' }"), "'chat' twice"},
        {PROVIDER("base_url = 'https://x', dialects = { 'embeddings' }"), "expected one of 'chat'"},
        {PROVIDER("base_url = 'https://x', ca_file = 'a.pem'"), "an absolute path"},
        {PROVIDER("base_url = 'https://x', ca_file = '/a/../b.pem'"), "an absolute path"},
        {PROVIDER("base_url = 'https://x', proxy = 'socks5://p:1'"), "https://"},
        {PROVIDER("base_url = 'https://x', proxy = 'http://u:p@p:1'"), "user or password"},
        {PROVIDER("base_url = 'https://x', proxy = 'http://p:1/x'"), "a proxy has no path"},
        {PROVIDER("base_url = 'http://127.0.0.1', proxy = 'http://p:1'"), "has no proxy"},
        {PROVIDER("base_url = 'https://x', key = 'work'"), "there are no 'keys'"},
        {PROVIDER("base_url = 'https://x', key = 'a', key_env = 'A'"), "both 'key' and 'key_env'"},
        {KEYS("wrok = { env = 'A' }"), "did you mean 'wrok'"},
        {KEYS("work = {}"), "needs one of 'env', 'file' and 'command'"},
        {KEYS("work = { env = 'A', file = '/a' }"), "needs one of 'env', 'file' and 'command'"},
        {KEYS("work = { env = 'A-B' }"), "environment variable"},
        {KEYS("work = { env = 'A', timeout = 1 }"), "is for a command"},
        {KEYS("work = { command = { '/a' }, timeout = 601 }"), "an integer from 1"},
        {KEYS("work = { file = 'a.key' }"), "an absolute path"},
        {KEYS("work = { command = {} }"), "at least 1 element"},
        {KEYS("work = { command = { 'pass' } }"), "an absolute path"},
        {KEYS("work = { command = '/usr/bin/pass' }"), "expected a list"},
        {KEYS("work = { value = 'sk-1' }"), "'keys.work.value' is not a key here"},
        {PROVIDER("base_url = 'https://x', models = { 1 }"), "expected a text"},
        {"return { api = 1, default_model = 'b/x', providers = { a = { base_url = 'https://x' } } "
         "}",
         "there is no provider 'b'"},
        {"return { api = 1, default_model = 'x', providers = { a = { base_url = 'https://x' } } }",
         "'provider/model'"},
        {"return { api = 1, default_model = 'a/y', providers = { a = { base_url = 'https://x', "
         "models "
         "= { 'x' } } } }",
         "has no model 'y'"},
        {"while true do end", "ran for more than"},
        {"return os.getenv('KEY')", "'os' is not there"},
    };
    struct rig g;
    rig_start(&g, BR_SCRIPT_CONFIG);
    for (size_t i = 0; i < BR_ARRAY_LEN(list); i++) {
        configure(&g, list[i].text);
        if (g.a.type != BR_MSG_SCRIPT_FAILED)
            fail_msg("not refused: %s", list[i].text);
        rig_says(&g, list[i].says);
        rig_code(&g, "INVALID_CONFIG");
        assert_string_equal(g.a.file, "/home/op/bridle.lua");
    }
    configure(&g, PROVIDER("base_url = 'http://[::1]:9'"));
    assert_int_equal(g.a.type, BR_MSG_SCRIPT_CONFIGURED);
    assert_int_equal(rig_stop(&g), 0);
}

static void tell(struct rig *g, enum br_msg_type type, const char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    if (text)
        br_out_blob(&o, text, strlen(text));
    assert_int_equal(br_chan_send(&g->peer, type, 3, &o, NULL), 0);
    rig_wait(g, 90000);
}

static void head(struct rig *g, uint32_t status, const char *type)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, status);
    br_buf_put_str(&o.buf, type);
    assert_int_equal(br_chan_send(&g->peer, BR_MSG_ADAPT_HEAD, 0, &o, NULL), 0);
}

static const char turn[] = "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
                           "\"tools\":[],\"maxTokens\":100,\"stream\":false}";

static void test_adapter(void **state)
{
    (void)state;
    struct rig g;
    rig_start(&g, BR_SCRIPT_ADAPTER);
    for (unsigned round = 0; round < 2; round++) {
        tell(&g, BR_MSG_ADAPT_BUILD, turn);
        if (g.a.type != BR_MSG_ADAPT_BUILT)
            fail_msg("%s", g.a.text);
        assert_non_null(strstr(g.a.file, "/chat/completions"));
        assert_string_equal(g.a.text, "application/json");
        assert_non_null(memmem(g.a.body.data, g.a.body.len, "\"model\":\"m\"", 11));
        head(&g, 200, "application/json");
        tell(&g, BR_MSG_ADAPT_FEED,
             "{\"id\":\"c\",\"object\":\"chat.completion\",\"model\":\"m\",\"choices\":[{\"index\":"
             "0,"
             "\"message\":{\"role\":\"assistant\",\"con");
        assert_int_equal(g.a.type, BR_MSG_ADAPT_DELTA);
        tell(&g, BR_MSG_ADAPT_FEED,
             "tent\":\"hello\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,"
             "\"completion_tokens\":2,\"total_tokens\":5}}");
        assert_int_equal(g.a.type, BR_MSG_ADAPT_DELTA);
        tell(&g, BR_MSG_ADAPT_END, NULL);
        if (g.a.type != BR_MSG_ADAPT_RESPONSE)
            fail_msg("%s", g.a.text);
        json_t *v = json_loadb((char *)g.a.body.data, g.a.body.len, 0, NULL);
        assert_string_equal(json_string_value(json_object_get(v, "text")), "hello");
        assert_true(json_is_array(json_object_get(v, "toolCalls")));
        json_decref(v);
    }
    assert_int_equal(rig_stop(&g), 0);
}

static void test_adapter_failures(void **state)
{
    (void)state;
    struct rig g;
    rig_start(&g, BR_SCRIPT_ADAPTER);
    tell(&g, BR_MSG_ADAPT_BUILD, "{\"model\":");
    rig_code(&g, "INVALID_JSON");
    tell(&g, BR_MSG_ADAPT_BUILD, turn);
    assert_int_equal(g.a.type, BR_MSG_ADAPT_BUILT);
    head(&g, 200, "application/json");
    tell(&g, BR_MSG_ADAPT_FEED, "not json");
    tell(&g, BR_MSG_ADAPT_END, NULL);
    rig_code(&g, "PROVIDER_INVALID_RESPONSE");
    /* an error status is told with the adapter's own code */
    tell(&g, BR_MSG_ADAPT_BUILD, turn);
    assert_int_equal(g.a.type, BR_MSG_ADAPT_BUILT);
    head(&g, 500, "text/html");
    tell(&g, BR_MSG_ADAPT_END, NULL);
    rig_code(&g, "PROVIDER_STATUS");
    /* the program still works */
    tell(&g, BR_MSG_ADAPT_BUILD, turn);
    assert_int_equal(g.a.type, BR_MSG_ADAPT_BUILT);
    /* bytes before a head are a violation */
    tell(&g, BR_MSG_ADAPT_FEED, "x");
    assert_int_equal(g.a.type, 1);
    int status = rig_ended(&g, 5000);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

static void test_shell(void **state)
{
    (void)state;
    struct rig g;
    rig_start(&g, BR_SCRIPT_POLICY);
    rig_shell(&g, "git diff && rm -rf 'a b'");
    assert_int_equal(g.a.type, BR_MSG_SHELL_PARSED);
    assert_int_equal(g.a.flag, 0);
    BR_CLEANUP_FREE char *text = json_dumps(g.a.commands, JSON_COMPACT);
    assert_string_equal(text, "[[\"git\",\"diff\"],[\"rm\",\"-rf\",\"a b\"]]");
    rig_shell(&g, "echo; rm x; if");
    assert_int_equal(g.a.flag, 1);
    rig_says(&g, "grammar"); /* and what may be in it, for rules that deny */
    BR_CLEANUP_FREE char *guess = json_dumps(g.a.commands, JSON_COMPACT);
    assert_string_equal(guess, "[[\"echo\"],[\"rm\",\"x\"]]");
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1 << 20);
    for (unsigned i = 0; i < 60000; i++)
        br_buf_put_str(&b, "");
    for (size_t i = 0; i < b.len; i++)
        b.data[i] = i % 30 ? 'x' : ' ';
    rig_shell(&g, br_buf_cstr(&b)); /* too long: still answered */
    assert_int_equal(g.a.type, BR_MSG_SHELL_PARSED);
    assert_int_equal(g.a.flag, 1);
    b.len = 30000;
    rig_shell(&g, br_buf_cstr(&b)); /* near the limit: the answer fits into a message */
    assert_int_equal(g.a.type, BR_MSG_SHELL_PARSED);
    assert_int_equal(g.a.flag, 0);
    assert_int_equal(rig_stop(&g), 0);
}

/* A message of another purpose is a violation. */
static void test_other_purpose(void **state)
{
    (void)state;
    static const struct {
        enum br_script_purpose purpose;
        enum br_msg_type type;
    } list[] = {{BR_SCRIPT_POLICY, BR_MSG_ADAPT_BUILD}, {BR_SCRIPT_ADAPTER, BR_MSG_COMPILE},
                {BR_SCRIPT_ADAPTER, BR_MSG_SHELL},      {BR_SCRIPT_POLICY, BR_MSG_SCRIPT_CONFIG},
                {BR_SCRIPT_POLICY, BR_MSG_EVENT},       {BR_SCRIPT_ADAPTER, BR_MSG_ADAPT_HEAD}};
    for (size_t i = 0; i < BR_ARRAY_LEN(list); i++) {
        struct rig g;
        rig_start(&g, list[i].purpose);
        tell(&g, list[i].type, "ls");
        assert_int_equal(g.a.type, 1);
        int status = rig_ended(&g, 5000);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config),           cmocka_unit_test(test_service),
        cmocka_unit_test(test_bad_services),     cmocka_unit_test(test_task),
        cmocka_unit_test(test_bad_configs),      cmocka_unit_test(test_adapter),
        cmocka_unit_test(test_adapter_failures), cmocka_unit_test(test_shell),
        cmocka_unit_test(test_other_purpose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
