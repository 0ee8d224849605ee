/*
 * Requests of the dialects: what a lease allows, what it refuses by name, and what is sent.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "broker/dialect.h"

static struct br_lease lease(void)
{
    struct br_lease l = {.routes = BR_ROUTES_ALL, .max_answer_tokens = 100, .ntools = 2};
    strcpy(l.tools[0], "bash");
    strcpy(l.tools[1], "read");
    return l;
}

struct row {
    const char *body, *want; /* the body that is sent; or a part of the refusal */
};

static int ask(const char *path, const char *body, struct br_buf *out, struct br_ask_facts *f,
               struct br_err *err)
{
    struct br_lease l = lease();
    br_buf_reset(out);
    return br_ask_check(&l, "m", "POST", path, "application/json", body, strlen(body), out, f, err);
}

static void allowed(const char *path, const struct row *rows, size_t n)
{
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(1 << 20);
    for (size_t i = 0; i < n; i++) {
        struct br_ask_facts f;
        struct br_err err;
        if (ask(path, rows[i].body, &out, &f, &err) < 0)
            fail_msg("%s was refused: %s", rows[i].body, err.text);
        if (strcmp(br_buf_cstr(&out), rows[i].want) != 0)
            fail_msg("%s became %s", rows[i].body, br_buf_cstr(&out));
        assert_true(f.messages >= 1);
        assert_in_range(f.max_tokens, 1, 100);
        assert_true(f.reserve >= f.max_tokens);
    }
}

static void refused(const char *path, const struct row *rows, size_t n)
{
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(1 << 20);
    for (size_t i = 0; i < n; i++) {
        struct br_ask_facts f;
        struct br_err err = {.code = BR_OK};
        if (ask(path, rows[i].body, &out, &f, &err) != -BR_E_LEASE_REFUSED)
            fail_msg("%s was allowed", rows[i].body);
        if (!strstr(err.text, rows[i].want))
            fail_msg("%s was refused with: %s", rows[i].body, err.text);
        if (!strstr(err.text, "the request was not sent"))
            fail_msg("does not say what did not happen: %s", err.text);
    }
}

#define CHAT "\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define CHAT_1 "\"model\":\"m\",\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":"

static void test_chat(void **state)
{
    static const struct row good[] = {
        {"{" CHAT ",\"max_tokens\":1}", "{" CHAT ",\"max_tokens\":1}"},
        {" { " CHAT " , \"max_completion_tokens\" : 100 } ",
         " { " CHAT " , \"max_completion_tokens\" : 100 }"},
        {"{" CHAT "}", "{" CHAT ",\"max_tokens\":100}"},
        {"{" CHAT ",\"max_tokens\":null}", "{" CHAT ",\"max_tokens\":100}"},
        {"{" CHAT ",\"max_tokens\":1,\"stream\":true}",
         "{" CHAT ",\"max_tokens\":1,\"stream\":true,\"stream_options\":{\"include_usage\":true}}"},
        {"{" CHAT ",\"max_tokens\":1,\"stream_options\":{},\"stream\":true}",
         "{" CHAT ",\"max_tokens\":1,\"stream_options\":{\"include_usage\":true},\"stream\":true}"},
        {"{" CHAT ",\"max_tokens\":1,\"stream_options\":{\"include_usage\":false,"
         "\"include_obfuscation\":false},\"stream\":true}",
         "{" CHAT ",\"max_tokens\":1,\"stream_options\":{\"include_usage\":true,"
         "\"include_obfuscation\":false},\"stream\":true}"},
        {"{" CHAT ",\"max_tokens\":1,\"n\":1,\"store\":false,\"service_tier\":\"auto\"}",
         "{" CHAT ",\"max_tokens\":1,\"n\":1,\"store\":false,\"service_tier\":\"auto\"}"},
        {"{" CHAT ",\"max_tokens\":1,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
         "\"ba\\u0073h\",\"parameters\":{\"x\":[1,{}]}}}],\"tool_choice\":{\"type\":\"function\","
         "\"function\":{\"name\":\"read\"}}}",
         "{" CHAT ",\"max_tokens\":1,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
         "\"ba\\u0073h\",\"parameters\":{\"x\":[1,{}]}}}],\"tool_choice\":{\"type\":\"function\","
         "\"function\":{\"name\":\"read\"}}}"},
        {"{" CHAT_1 "[{\"type\":\"text\",\"text\":\"a\"},{\"image_url\":{\"url\":\"data:image/png;"
         "base64,AAAA\"},\"type\":\"image_url\"}]}]}",
         "{" CHAT_1 "[{\"type\":\"text\",\"text\":\"a\"},{\"image_url\":{\"url\":\"data:image/png;"
         "base64,AAAA\"},\"type\":\"image_url\"}]}]}"},
        {"{\"model\":\"m\",\"max_tokens\":1,\"messages\":[{\"role\":\"assistant\",\"content\":null,"
         "\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"x\","
         "\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"\"}]}",
         "{\"model\":\"m\",\"max_tokens\":1,\"messages\":[{\"role\":\"assistant\",\"content\":null,"
         "\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"x\","
         "\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"\"}]}"},
    };
    static const struct row bad[] = {
        {"", "not a JSON object"},
        {"null", "not a JSON object"},
        {"[]", "not a JSON object"},
        {"{", "not JSON"},
        {"\xef\xbb\xbf{" CHAT ",\"max_tokens\":1}", "not a JSON object"},
        {"{" CHAT ",\"max_tokens\":1}x", "something follows"},
        {"{" CHAT ",\"max_tokens\":1,}", "a comma too many"},
        {"{" CHAT ",\"max_tokens\":1,\"max_tokens\":2}", "a key twice"},
        {"{" CHAT ",\"max_tokens\":1,\"max_\\u0074okens\":2}", "a key twice"},
        {"{" CHAT ",\"max_tokens\":1,\"user\":\"\xff\"}", "UTF-8"},
        {"{" CHAT ",\"max_tokens\":1,\"max_completion_tokens\":1}", "said twice"},
        {"{" CHAT ",\"max_tokens\":0}", "1 to 100"},
        {"{" CHAT ",\"max_tokens\":101}", "1 to 100"},
        {"{" CHAT ",\"max_tokens\":-1}", "whole number"},
        {"{" CHAT ",\"max_tokens\":1.0}", "whole number"},
        {"{" CHAT ",\"max_tokens\":1e1}", "whole number"},
        {"{" CHAT ",\"max_tokens\":\"1\"}", "whole number"},
        {"{" CHAT ",\"max_tokens\":99999999999999999999}", "whole number"},
        {"{\"messages\":[{\"role\":\"user\"}]}", "model"},
        {"{\"model\":\"other\",\"messages\":[]}", "for the model 'm'"},
        {"{\"model\":\"mm\",\"messages\":[]}", "for the model 'm'"},
        {"{\"model\":[\"m\"],\"messages\":[]}", "model"},
        {"{\"model\":null,\"messages\":[]}", "for the model 'm'"},
        {"{\"model\":\"m\"}", "no message"},
        {"{\"model\":\"m\",\"messages\":[]}", "no message"},
        {"{\"model\":\"m\",\"messages\":{}}", "not a list"},
        {"{\"model\":\"m\",\"messages\":[1]}", "not an object"},
        {"{\"model\":\"m\",\"messages\":[{\"role\":\"function\"}]}", "no role"},
        {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"secret\":1}]}", "'secret'"},
        {"{" CHAT ",\"n\":2}", "'n' is not 1"},
        {"{" CHAT ",\"stream\":1}", "stream"},
        {"{" CHAT ",\"store\":true}", "'store'"},
        {"{" CHAT ",\"service_tier\":\"priority\"}", "'service_tier'"},
        {"{" CHAT ",\"web_search_options\":{}}", "'web_search_options'"},
        {"{" CHAT ",\"provider\":{}}", "'provider'"},
        {"{" CHAT ",\"stream_options\":{\"x\":1}}", "stream_options"},
        {"{" CHAT ",\"prompt_cache_retention\":\"24h\"}", "longer"},
        {"{" CHAT ",\"functions\":[{}]}", "'functions'"},
        {"{" CHAT ",\"modalities\":[\"audio\"]}", "audio"},
        {"{" CHAT ",\"tools\":[{\"type\":\"web_search\"}]}", "'web_search'"},
        {"{" CHAT ",\"tools\":[{\"function\":{\"name\":\"bash\"}}]}", "type"},
        {"{" CHAT ",\"tools\":[1]}", "no object"},
        {"{" CHAT ",\"tools\":{}}", "not a list"},
        {"{" CHAT ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"rm\"}}]}",
         "the tool 'rm'"},
        {"{" CHAT ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"bash\",\"name\":"
         "\"rm\"}}]}",
         "twice"},
        {"{" CHAT ",\"tool_choice\":\"always\"}", "choice of tools"},
        {"{" CHAT ",\"tool_choice\":{\"type\":\"custom\"}}", "'custom'"},
        {"{" CHAT_1 "[{\"type\":\"image_url\",\"image_url\":{\"url\":\"https://x/?secret\"}}]}]}",
         "would fetch"},
        {"{" CHAT_1 "[{\"type\":\"image_url\",\"image_url\":{\"url\":\"\"}}]}]}", "would fetch"},
        {"{" CHAT_1 "[{\"type\":\"text\",\"type\":\"image_url\"}]}]}", "twice"},
        {"{" CHAT_1 "[{\"type\":\"text\",\"image_url\":{\"url\":\"https://x\"}}]}]}",
         "'image_url'"},
        {"{" CHAT_1 "[{\"type\":\"file\",\"file\":{\"file_id\":\"f\"}}]}]}", "'file_id'"},
        {"{" CHAT_1 "[{\"text\":\"no type\"}]}]}", "type"},
    };
    (void)state;
    allowed("/chat/completions", good, BR_ARRAY_LEN(good));
    refused("/chat/completions", bad, BR_ARRAY_LEN(bad));
}

#define RESP "\"model\":\"m\",\"input\":\"hi\""

static void test_responses(void **state)
{
    static const struct row good[] = {
        {"{" RESP "}", "{" RESP ",\"max_output_tokens\":100,\"store\":false}"},
        {"{" RESP ",\"store\":true,\"max_output_tokens\":5}",
         "{" RESP ",\"store\":false,\"max_output_tokens\":5}"},
        {"{\"model\":\"m\",\"store\":false,\"max_output_tokens\":5,\"stream\":true,\"input\":[{"
         "\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"x\"}]},{\"type\":"
         "\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},{\"type\":"
         "\"function_call_output\",\"call_id\":\"c\",\"output\":\"y\"},{\"type\":\"reasoning\","
         "\"summary\":[]}],\"include\":[\"reasoning.encrypted_content\"]}",
         "{\"model\":\"m\",\"store\":false,\"max_output_tokens\":5,\"stream\":true,\"input\":[{"
         "\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"x\"}]},{\"type\":"
         "\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},{\"type\":"
         "\"function_call_output\",\"call_id\":\"c\",\"output\":\"y\"},{\"type\":\"reasoning\","
         "\"summary\":[]}],\"include\":[\"reasoning.encrypted_content\"]}"},
    };
    static const struct row bad[] = {
        {"{\"model\":\"m\"}", "no message"},
        {"{\"model\":\"m\",\"input\":1}", "'input'"},
        {"{\"model\":\"m\",\"input\":[]}", "no message"},
        {"{" RESP ",\"previous_response_id\":\"r\"}", "'previous_response_id'"},
        {"{" RESP ",\"conversation\":\"c\"}", "'conversation'"},
        {"{" RESP ",\"prompt\":{\"id\":\"p\"}}", "'prompt'"},
        {"{" RESP ",\"background\":true}", "'background'"},
        {"{" RESP ",\"tools\":[{\"type\":\"web_search\"}]}", "'web_search'"},
        {"{" RESP ",\"tools\":[{\"type\":\"mcp\",\"server_url\":\"https://x\"}]}", "'mcp'"},
        {"{" RESP ",\"tools\":[{\"type\":\"function\",\"name\":\"rm\"}]}", "the tool 'rm'"},
        {"{" RESP ",\"include\":[\"file_search_call.results\"]}", "not what the lease allows"},
        {"{" RESP ",\"max_output_tokens\":101}", "1 to 100"},
        {"{\"model\":\"m\",\"input\":[{\"id\":\"msg_1\"}]}", "without a role"},
        {"{\"model\":\"m\",\"input\":[{\"type\":\"message\",\"id\":\"msg_1\"}]}", "without a role"},
        {"{\"model\":\"m\",\"input\":[{\"role\":null,\"id\":\"msg_1\"}]}", "without a role"},
        {"{\"model\":\"m\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_file\","
         "\"file_data\":\"https://x\"}]}]}",
         "looks like an address"},
        {"{\"model\":\"m\",\"input\":[{\"type\":\"item_reference\",\"id\":\"i\"}]}",
         "'item_reference'"},
        {"{\"model\":\"m\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\","
         "\"image_url\":\"http://x\"}]}]}",
         "would fetch"},
        {"{\"model\":\"m\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_file\","
         "\"file_url\":\"http://x\"}]}]}",
         "'file_url'"},
    };
    (void)state;
    allowed("/responses", good, BR_ARRAY_LEN(good));
    refused("/responses", bad, BR_ARRAY_LEN(bad));
}

#define MSG "\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define MSG_1 "\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":["

static void test_messages(void **state)
{
    static const struct row good[] = {
        {"{" MSG "}", "{" MSG "}"},
        {"{" MSG ",\"stream\":true,\"system\":[{\"type\":\"text\",\"text\":\"s\"}],\"thinking\":{"
         "\"type\":\"enabled\",\"budget_tokens\":8},\"tools\":[{\"name\":\"bash\",\"input_schema\":"
         "{}}],\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":true}}",
         "{" MSG ",\"stream\":true,\"system\":[{\"type\":\"text\",\"text\":\"s\"}],\"thinking\":{"
         "\"type\":\"enabled\",\"budget_tokens\":8},\"tools\":[{\"name\":\"bash\",\"input_schema\":"
         "{}}],\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":true}}"},
        {"{" MSG_1 "{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":[{\"type\":"
         "\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":\"AA\"}}"
         "]}]}]}",
         "{" MSG_1 "{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":[{\"type\":"
         "\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":\"AA\"}}"
         "]}]}]}"},
    };
    static const struct row bad[] = {
        {"{\"model\":\"m\",\"max_tokens\":9,\"messages\":[]}", "no message"},
        {"{" MSG ",\"mcp_servers\":[]}", "'mcp_servers'"},
        {"{" MSG ",\"container\":\"c\"}", "'container'"},
        {"{" MSG ",\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"bash\"}]}",
         "'web_search_20250305'"},
        {"{" MSG ",\"tools\":[{\"name\":\"rm\"}]}", "the tool 'rm'"},
        {"{" MSG ",\"tool_choice\":{\"type\":\"tool\",\"name\":\"rm\"}}", "the tool 'rm'"},
        {"{" MSG_1 "{\"type\":\"image\",\"source\":{\"type\":\"url\",\"url\":\"https://x\"}}]}]}",
         "'url'"},
        {"{" MSG_1 "{\"type\":\"document\",\"source\":{\"type\":\"file\",\"file_id\":\"f\"}}]}]}",
         "'file'"},
        {"{" MSG_1 "{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"data\":\"ftp://x\"}}"
         "]}]}",
         "looks like an address"},
        {"{" MSG_1 "{\"type\":\"server_tool_use\"}]}]}", "'server_tool_use'"},
        {"{" MSG_1 "{\"type\":\"tool_result\",\"content\":[{\"type\":\"image\",\"source\":{"
         "\"type\":\"url\",\"url\":\"https://x\"}}]}]}]}",
         "'url'"},
    };
    (void)state;
    allowed("/messages", good, BR_ARRAY_LEN(good));
    refused("/messages", bad, BR_ARRAY_LEN(bad));
}

/* Kinds of content nest four deep, and no further. */
static void test_nesting(void **state)
{
    (void)state;
    for (unsigned depth = 3; depth <= 4; depth++) { /* above: the list of the message */
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096), out = BR_BUF_INIT(4096);
        struct br_ask_facts f;
        struct br_err err;
        br_buf_printf(&b, "{" MSG_1);
        for (unsigned i = 0; i < depth; i++)
            br_buf_printf(&b, "{\"type\":\"tool_result\",\"content\":[");
        for (unsigned i = 0; i < depth; i++)
            br_buf_printf(&b, "]}");
        br_buf_printf(&b, "]}]}");
        assert_int_equal(ask("/messages", br_buf_cstr(&b), &out, &f, &err),
                         depth <= 3 ? 0 : -BR_E_LEASE_REFUSED);
    }
}

static void test_depth(void **state)
{
    (void)state;
    for (unsigned depth = BR_JSON_DEPTH_MAX; depth <= BR_JSON_DEPTH_MAX + 1; depth++) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096), out = BR_BUF_INIT(4096);
        struct br_ask_facts f;
        struct br_err err;
        br_buf_printf(&b, "{" CHAT ",\"stop\":");
        for (unsigned i = 1; i < depth; i++)
            br_buf_put(&b, "[", 1);
        for (unsigned i = 1; i < depth; i++)
            br_buf_put(&b, "]", 1);
        br_buf_put(&b, "}", 1);
        assert_int_equal(ask("/chat/completions", br_buf_cstr(&b), &out, &f, &err),
                         depth <= BR_JSON_DEPTH_MAX ? 0 : -BR_E_LEASE_REFUSED);
    }
}

static void test_routes(void **state)
{
    static const char chat[] = "{" CHAT ",\"max_tokens\":1}";
    static const struct {
        const char *method, *path, *type;
        uint32_t routes;
        bool ok;
    } rows[] = {
        {"POST", "/chat/completions", "application/json", BR_ROUTES_ALL, true},
        {"POST", "/chat/completions", "Application/JSON; charset=utf-8", BR_ROUTES_ALL, true},
        {"POST", "/chat/completions", "application/json;charset=UTF-8", BR_ROUTES_ALL, true},
        {"POST", "/chat/completions", "application/json", BR_ROUTES_ALL & ~BR_ROUTE_CHAT, false},
        {"GET", "/chat/completions", "application/json", BR_ROUTES_ALL, false},
        {"post", "/chat/completions", "application/json", BR_ROUTES_ALL, false},
        {"POST", "/chat/completions/", "application/json", BR_ROUTES_ALL, false},
        {"POST", "/v1/chat/completions", "application/json", BR_ROUTES_ALL, false},
        {"POST", "/chat/completions?x=y", "application/json", BR_ROUTES_ALL, false},
        {"POST", "/chat/completions", "application/jsonp", BR_ROUTES_ALL, false},
        {"POST", "/chat/completions", "application/json; charset=utf-16", BR_ROUTES_ALL, false},
        {"POST", "/chat/completions", "", BR_ROUTES_ALL, false},
        {"POST", "/embeddings", "application/json", BR_ROUTES_ALL, false},
        {"POST", "", "application/json", BR_ROUTES_ALL, false},
        {"GET", "/models", "", BR_ROUTES_ALL, true},
        {"GET", "/models?limit=20", "", BR_ROUTES_ALL, true},
        {"GET", "/models/m", "", BR_ROUTES_ALL, true},
        {"GET", "/models/other", "", BR_ROUTES_ALL, false},
        {"GET", "/modelsx", "", BR_ROUTES_ALL, false},
        {"GET", "/models", "", BR_ROUTE_CHAT, false},
        {"POST", "/models", "application/json", BR_ROUTES_ALL, false},
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(4096);
        struct br_lease l = lease();
        struct br_ask_facts f;
        struct br_err err;
        l.routes = rows[i].routes;
        int r = br_ask_check(&l, "m", rows[i].method, rows[i].path, rows[i].type, chat,
                             sizeof(chat) - 1, &out, &f, &err);
        if ((r == 0) != rows[i].ok)
            fail_msg("%s %s %s: %d", rows[i].method, rows[i].path, rows[i].type, r);
    }
}

static void test_models(void **state)
{
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(4096);
    struct br_lease l = lease();
    struct br_ask_facts f;
    (void)state;
    assert_int_equal(br_ask_check(&l, "a\"b", "GET", "/models", "", "", 0, &out, &f, NULL), 0);
    assert_int_equal(f.route, BR_ROUTE_MODELS);
    assert_non_null(strstr(br_buf_cstr(&out), "\"data\":[{\"id\":\"a\\\"b\",\"object\":\"model\""));
}

/* Newer models have another name for the limit. */
static void test_limit_key(void **state)
{
    static const struct {
        const char *model, *key;
    } rows[] = {{"gpt-4o", "max_tokens"},
                {"gpt-5.2", "max_completion_tokens"},
                {"o3-mini", "max_completion_tokens"},
                {"olmo", "max_tokens"}};
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(4096), body = BR_BUF_INIT(4096);
        struct br_lease l = lease();
        struct br_ask_facts f;
        char want[64];
        br_buf_printf(&body, "{\"model\":\"%s\",\"messages\":[{\"role\":\"user\"}]}",
                      rows[i].model);
        assert_int_equal(br_ask_check(&l, rows[i].model, "POST", "/chat/completions",
                                      "application/json", body.data, body.len, &out, &f, NULL),
                         0);
        (void)snprintf(want, sizeof(want), ",\"%s\":100}", rows[i].key);
        assert_non_null(strstr(br_buf_cstr(&out), want));
    }
}

/* An image costs what an image costs, not a token a byte; what is no image does not pass for one.
 */
static void test_reserve(void **state)
{
    BR_CLEANUP_BUF struct br_buf body = BR_BUF_INIT(4 << 20), out = BR_BUF_INIT(4 << 20);
    struct br_ask_facts f;
    struct br_err err;
    (void)state;
    assert_int_equal(ask("/chat/completions", "{" CHAT ",\"max_tokens\":7}", &out, &f, &err), 0);
    assert_int_equal(f.reserve, strlen("{" CHAT ",\"max_tokens\":7}") + 1024 + 7);
    br_buf_printf(&body,
                  "{" CHAT_1
                  "[{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,");
    for (int i = 0; i < 1000000; i++)
        br_buf_put(&body, "A", 1);
    br_buf_printf(&body, "\"}}]}]}");
    assert_int_equal(ask("/chat/completions", br_buf_cstr(&body), &out, &f, &err), 0);
    assert_in_range(f.reserve, 8192 + 1024, 8192 + 1024 + 400);
    static const char *const others[] = {"data:application/pdf;base64,AA", "data:,AA",
                                         "data:image/svg+xml;base64,AA", "data:image/pngx,AA"};
    for (size_t i = 0; i < BR_ARRAY_LEN(others); i++) {
        br_buf_reset(&body);
        br_buf_printf(&body,
                      "{" CHAT_1 "[{\"type\":\"image_url\",\"image_url\":{\"url\":\"%s\"}}]}]}",
                      others[i]);
        assert_int_equal(ask("/chat/completions", br_buf_cstr(&body), &out, &f, &err),
                         -BR_E_LEASE_REFUSED);
        assert_non_null(strstr(err.text, "no inline image"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat),     cmocka_unit_test(test_responses),
        cmocka_unit_test(test_messages), cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_depth),    cmocka_unit_test(test_routes),
        cmocka_unit_test(test_models),   cmocka_unit_test(test_limit_key),
        cmocka_unit_test(test_reserve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
