/*
 * JSON-RPC as it is read and written: which messages are requests, what the id of their answer is,
 * and that nothing which two readers could understand differently is taken.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/gateway_priv.h"

static char sent[65536];
static size_t nsent;

int conn_send(struct conn *c, const struct gw_piece *pieces, unsigned n)
{
    (void)c;
    for (unsigned i = 0; i < n; i++) {
        assert_true(nsent + pieces[i].n < sizeof(sent));
        memcpy(sent + nsent, pieces[i].p, pieces[i].n);
        nsent += pieces[i].n;
    }
    sent[nsent] = 0;
    return 0;
}

struct row {
    const char *text;
    int strict, lenient; /* what rpc_read() returns */
    const char *id;      /* in both */
};

static void check(const char *text, size_t n, bool strict, int want, const char *id)
{
    struct rpc_message m;
    struct br_err err = {.code = BR_OK};
    char *exact = malloc(n ? n : 1); /* so that a sanitizer sees a byte too far */
    memcpy(exact, text, n);
    int r = rpc_read(exact, n, strict, &m, &err);
    if (r != want || strcmp(m.id, id) != 0)
        fail_msg("%s (%s): %d with id %s, not %d with %s: %s", text, strict ? "strict" : "lenient",
                 r, m.id, want, id, err.text);
    assert_true((r == 0) == (err.code == BR_OK));
    if (r < 0)
        assert_true(!m.params && !m.result && !m.root_);
    rpc_free(&m);
    free(exact);
}

static void rows(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        check(rows[i].text, strlen(rows[i].text), true, rows[i].strict, rows[i].id);
        check(rows[i].text, strlen(rows[i].text), false, rows[i].lenient, rows[i].id);
    }
}

#define REQ(id) "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"m\"}"
#define BOTH(r) (r), (r)

static void test_ids(void **state)
{
    (void)state;
    static const struct row table[] = {
        {REQ("1"), BOTH(0), "1"},
        {REQ("0"), BOTH(0), "0"},
        {REQ("-1"), BOTH(0), "-1"},
        {REQ("-0"), BOTH(0), "-0"},
        {REQ("1e0"), BOTH(0), "1e0"},
        {REQ("1.0"), BOTH(0), "1.0"},
        {REQ("1E+2"), BOTH(0), "1E+2"},
        {REQ("10e-1"), BOTH(0), "10e-1"},
        {REQ("9007199254740991"), BOTH(0), "9007199254740991"},
        {REQ("-9007199254740991"), BOTH(0), "-9007199254740991"},
        {REQ("9007199254740991.0"), BOTH(0), "9007199254740991.0"},
        {REQ("9007199254740992"), BOTH(-32600), "null"},
        {REQ("-9007199254740992"), BOTH(-32600), "null"},
        {REQ("9007199254740992.0"), BOTH(-32600), "null"},
        {REQ("9223372036854775807"), BOTH(-32600), "null"},
        {REQ("9223372036854775808"), BOTH(-32600), "null"},
        {REQ("1e999"), BOTH(-32600), "null"},
        {REQ("1.5"), BOTH(-32600), "null"},
        {REQ("1e-1"), BOTH(-32600), "null"},
        {REQ("null"), BOTH(-32600), "null"},
        {REQ("true"), BOTH(-32600), "null"},
        {REQ("[1]"), BOTH(-32600), "null"},
        {REQ("{\"a\":1}"), BOTH(-32600), "null"},
        {REQ("\"\""), BOTH(-32600), "null"},
        {REQ("\"a\""), BOTH(0), "\"a\""},
        {REQ("\"__proto__\""), BOTH(0), "\"__proto__\""},
        {REQ("\"\\u0061\\/\\\"\\\\\""), BOTH(0), "\"\\u0061\\/\\\"\\\\\""},
        {REQ("\"\\ud83d\\ude00\""), BOTH(0), "\"\\ud83d\\ude00\""},
        {REQ("\"\xf0\x9f\x98\x80,}\""), BOTH(0), "\"\xf0\x9f\x98\x80,}\""},
        {REQ("  7\t"), BOTH(0), "7"},
        {REQ("01"), BOTH(-32700), "null"},
        {REQ("+1"), BOTH(-32700), "null"},
        {REQ("NaN"), BOTH(-32700), "null"},
        {REQ("0x1"), BOTH(-32700), "null"},
        {REQ("\"\\ud800\""), BOTH(-32700), "null"}, /* no text */
        {REQ("\"\\udc00\\ud800\""), BOTH(-32700), "null"},
        {REQ("\"a\\u0000\""), BOTH(-32600), "null"},
        /* the key, in other spellings and places */
        {"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"\\u0069\\u0064\":5}", BOTH(0), "5"},
        {" { \"params\" : {\"id\":1,\"x\":[\"}\",{}]} , \"id\" : 2 , \"method\":\"m\","
         "\"jsonrpc\":\"2.0\" } ",
         BOTH(0), "2"},
        {"{\"method\":\"\\\"id\\\":3\",\"id\":4,\"jsonrpc\":\"2.0\"}", BOTH(0), "4"},
        /* a NUL is refused, and whoever sent it hears which request that was */
        {"{\"jsonrpc\":\"2.0\",\"id\":\"a\\u0062\",\"method\":\"m\",\"params\":{\"x\":\"\\u0000\"}"
         "}",
         BOTH(-32600), "\"a\\u0062\""},
        {"{\"params\":{\"a\\u0000b\":[\"\\u0000\\u0000\"]},\"jsonrpc\":\"2.0\",\"id\":7,\"method\":"
         "\"m\"}",
         BOTH(-32600), "7"},
        {"{\"jsonrpc\":\"2.0\",\"i\\u0000d\":1,\"id\":8,\"method\":\"m\\u0000\"}", BOTH(-32600),
         "8"},
        {"{\"jsonrpc\":\"2.0\",\"id\\u0000\":1,\"method\":\"m\"}", BOTH(-32600), "null"},
        {"{\"jsonrpc\":\"2.0\\u0000\",\"id\":9,\"method\":\"m\"}", BOTH(-32600), "9"},
        {"{\"jsonrpc\":\"2.0\",\"method\":\"m\\u0000\"}", BOTH(-32600), "null"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":1,\"method\":\"\\u0000\"}", BOTH(-32600), "null"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\\u0000\"", BOTH(-32700), "null"},
        {"\\u0000", BOTH(-32700), "null"},
        {"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"m\",\"params\":{\"x\":\"\\\\u0000\"}}",
         BOTH(0), "5"}, /* that is none */
    };
    rows(table, BR_ARRAY_LEN(table));
}

static void test_long_ids(void **state)
{
    (void)state;
    static char text[8192], id[4096];
    for (unsigned n = 256; n <= 257; n++) {
        char plain[300];
        memset(plain, 'x', n);
        plain[n] = 0;
        snprintf(id, sizeof(id), "\"%s\"", plain);
        snprintf(text, sizeof(text), REQ("%s"), id);
        check(text, strlen(text), true, n == 256 ? 0 : -32600, n == 256 ? id : "null");
        /* every byte written as long as it can be */
        id[0] = '"';
        for (unsigned i = 0; i < n; i++)
            memcpy(id + 1 + 6 * i, "\\u0078", 6);
        memcpy(id + 1 + 6 * n, "\"", 2);
        snprintf(text, sizeof(text), REQ("%s"), id);
        check(text, strlen(text), true, n == 256 ? 0 : -32600, n == 256 ? id : "null");
    }
    /* bytes, not characters: 128 of two bytes are 256 */
    for (unsigned n = 128; n <= 129; n++) {
        id[0] = '"';
        for (unsigned i = 0; i < n; i++)
            memcpy(id + 1 + 2 * i, "\xc3\xa4", 2);
        memcpy(id + 1 + 2 * n, "\"", 2);
        snprintf(text, sizeof(text), REQ("%s"), id);
        check(text, strlen(text), true, n == 128 ? 0 : -32600, n == 128 ? id : "null");
    }
    /* a number of a thousand digits is a number still, and goes back as it came */
    memset(id, '0', 1500);
    memcpy(id, "1.", 2);
    id[1500] = 0;
    snprintf(text, sizeof(text), REQ("%s"), id);
    check(text, strlen(text), true, 0, id);
    memset(id, '0', 1700);
    memcpy(id, "1.", 2);
    id[1700] = 0;
    snprintf(text, sizeof(text), REQ("%s"), id);
    check(text, strlen(text), true, -32600, "null");
}

static void test_shapes(void **state)
{
    (void)state;
    static const struct row table[] = {
        {"", BOTH(-32700), "null"},
        {" ", BOTH(-32700), "null"},
        {"x", BOTH(-32700), "null"},
        {"{", BOTH(-32700), "null"},
        {"{}}", BOTH(-32700), "null"},
        {"{\"a\"}", BOTH(-32700), "null"},
        {"{'a':1}", BOTH(-32700), "null"},
        {REQ("1") " x", BOTH(-32700), "null"},
        {REQ("1") REQ("2"), BOTH(-32700), "null"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",}", BOTH(-32700), "null"},
        {"null", BOTH(-32600), "null"},
        {"1", BOTH(-32600), "null"},
        {"\"m\"", BOTH(-32600), "null"},
        {"[]", BOTH(-32600), "null"},
        {"[" REQ("1") "]", BOTH(-32600), "null"},
        {"{}", BOTH(-32600), "null"},
        {"{\"id\":1,\"method\":\"m\"}", BOTH(-32600), "1"},
        {"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"m\"}", BOTH(-32600), "1"},
        {"{\"jsonrpc\":2.0,\"id\":1,\"method\":\"m\"}", BOTH(-32600), "1"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1}", BOTH(-32600), "1"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}", BOTH(-32600), "1"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":null}", BOTH(-32600), "1"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{}}", BOTH(0), "1"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":[]}", BOTH(0), "1"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":null}", -32600, 0, "1"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":\"x\"}", BOTH(-32600), "1"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"x\":1}", -32600, 0, "1"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"__proto__\":{}}", -32600, 0, "1"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"constructor\":1}", -32600, 0, "1"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"__proto__\"}", BOTH(0), "1"},
        /* two readers would take another one of two */
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":1,\"method\":\"m\"}", BOTH(-32600), "null"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"\\u006dethod\":\"x\"}", BOTH(-32600),
         "null"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{\"a\":1,\"a\":2}}",
         BOTH(-32600), "null"},
        /* notifications and responses */
        {"{\"jsonrpc\":\"2.0\",\"method\":\"m\"}", BOTH(0), "null"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":null}", -32600, 0, "1"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":1,\"message\":\"\"}}", -32600, 0, "1"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":1}", BOTH(-32600), "1"},
        {"{\"jsonrpc\":\"2.0\",\"result\":1}", BOTH(-32600), "null"},
    };
    rows(table, BR_ARRAY_LEN(table));
    check("\xff", 1, true, -32700, "null");
    check("\"\xed\xa0\x80\"", 5, true, -32700, "null");
    check("{}\0", 3, true, -32700, "null");
}

static void test_kinds(void **state)
{
    (void)state;
    struct rpc_message m;
    struct br_err err;
    const char *text = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{\"a\":1}}";
    assert_int_equal(rpc_read(text, strlen(text), true, &m, &err), 0);
    assert_int_equal(m.kind, RPC_REQUEST);
    assert_string_equal(m.method, "m");
    assert_int_equal(json_integer_value(json_object_get(m.params, "a")), 1);
    rpc_free(&m);
    text = "{\"jsonrpc\":\"2.0\",\"method\":\"m\"}";
    assert_int_equal(rpc_read(text, strlen(text), true, &m, &err), 0);
    assert_int_equal(m.kind, RPC_NOTIFICATION);
    assert_null(m.params);
    rpc_free(&m);
    text = "{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":null,\"x\":1}";
    assert_int_equal(rpc_read(text, strlen(text), false, &m, &err), 0);
    assert_int_equal(m.kind, RPC_RESPONSE);
    assert_true(json_is_null(m.result));
    assert_string_equal(m.method, "");
    rpc_free(&m);
    text = "{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":-1,\"message\":\"no\"}}";
    assert_int_equal(rpc_read(text, strlen(text), false, &m, &err), 0);
    assert_int_equal(m.kind, RPC_RESPONSE);
    assert_null(m.result);
    rpc_free(&m);
}

static void test_methods(void **state)
{
    (void)state;
    char text[512], name[160];
    struct rpc_message m;
    struct br_err err;
    for (unsigned n = 127; n <= 128; n++) { /* 128 do not fit: the name of no method */
        memset(name, 'm', n);
        name[n] = 0;
        snprintf(text, sizeof(text), "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\"}", name);
        assert_int_equal(rpc_read(text, strlen(text), true, &m, &err), 0);
        assert_string_equal(m.method, n == 127 ? name : "");
        rpc_free(&m);
    }
}

static char *nested(const char *open, const char *close, unsigned depth)
{
    static char text[1 << 17];
    size_t n = (size_t)sprintf(text, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":");
    for (unsigned i = 0; i < depth; i++)
        n += (size_t)sprintf(text + n, "%s", open);
    for (unsigned i = 0; i < depth; i++)
        n += (size_t)sprintf(text + n, "%s", close);
    sprintf(text + n, "}");
    return text;
}

static void test_depth_and_nodes(void **state)
{
    (void)state;
    char *t = nested("[", "]", BR_JSON_DEPTH_MAX - 1); /* the message is a level itself */
    check(t, strlen(t), true, 0, "1");
    t = nested("[", "]", BR_JSON_DEPTH_MAX);
    check(t, strlen(t), true, -32600, "null");
    t = nested("[", "]", 30000);
    check(t, strlen(t), true, -32600, "null");
    t = nested("[", "", 30000); /* no JSON at all */
    check(t, strlen(t), true, -32700, "null");
    for (unsigned extra = 0; extra <= 1; extra++) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1 << 20);
        br_buf_printf(&b, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":[1");
        unsigned nodes = 10; /* the object, four keys, three values, the list, its first */
        while (nodes++ < BR_JSON_NODES_MAX + extra)
            br_buf_printf(&b, ",1");
        br_buf_printf(&b, "]}");
        check((char *)b.data, b.len, true, extra ? -32600 : 0, extra ? "null" : "1");
    }
}

static void test_safe_integers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
        int64_t v;
    } table[] = {{"0", true, 0},
                 {"-0.0", true, 0},
                 {"1e3", true, 1000},
                 {"9007199254740991", true, 9007199254740991},
                 {"9007199254740992", false, 0},
                 {"-9007199254740992", false, 0},
                 {"1e300", false, 0},
                 {"0.5", false, 0},
                 {"\"1\"", false, 0},
                 {"null", false, 0},
                 {"true", false, 0}};
    for (size_t i = 0; i < BR_ARRAY_LEN(table); i++) {
        json_t *v = json_loads(table[i].text, JSON_DECODE_ANY, NULL);
        int64_t out = 0;
        assert_true(rpc_safe_integer(v, &out) == table[i].ok);
        assert_int_equal(out, table[i].v);
        json_decref(v);
    }
    int64_t out;
    assert_false(rpc_safe_integer(NULL, &out));
}

static void test_writing(void **state)
{
    (void)state;
    nsent = 0;
    assert_int_equal(rpc_result(NULL, "\"\\u0061\"", "{\"a\":1}", 7), 0);
    assert_string_equal(sent, "{\"jsonrpc\":\"2.0\",\"id\":\"\\u0061\",\"result\":{\"a\":1}}");
    nsent = 0;
    assert_int_equal(rpc_error(NULL, "null", -32700, "ACP_PARSE_ERROR", "no \"JSON\"\n\x01"), 0);
    assert_string_equal(sent,
                        "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":"
                        "\"no \\\"JSON\\\"\\n\\u0001\",\"data\":{\"code\":"
                        "\"ACP_PARSE_ERROR\"}}}");
    /* the longest text of an error, each byte escaped, behind the longest id */
    static char text[BR_ERR_TEXT_MAX], id[1600];
    memset(text, 1, sizeof(text) - 1);
    memset(id, '1', sizeof(id) - 1);
    nsent = 0;
    assert_int_equal(rpc_error(NULL, id, -32603, "ACP_INTERNAL_ERROR", text), 0);
    json_t *v = json_loads(sent, 0, NULL);
    (void)v; /* an id of so many digits is no number that jansson reads */
    json_decref(v);
    assert_true(nsent > 6 * (sizeof(text) - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids),           cmocka_unit_test(test_long_ids),
        cmocka_unit_test(test_shapes),        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_methods),       cmocka_unit_test(test_depth_and_nodes),
        cmocka_unit_test(test_safe_integers), cmocka_unit_test(test_writing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
