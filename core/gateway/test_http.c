/*
 * HTTP of bridle-gateway, against the real program: its paths, what they answer and to whom, and
 * requests that are none.
 */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/test_rig.h"

static unsigned status_of(struct gate_rig *r, enum gate_way way, const char *method,
                          const char *path, const char *fields)
{
    struct gate_client *c = gate_http(r, way, method, path, fields);
    unsigned status = c->status;
    gate_close(c);
    return status;
}

static void health(void **state)
{
    struct gate_rig r;
    (void)state;
    gate_start(&r, NULL);
    struct gate_client *c = gate_http(&r, GATE_TCP, "GET", "/health", "");
    assert_int_equal(c->status, 200);
    assert_string_equal(gate_field(c, "Content-Type"), "application/json");
    assert_string_equal(gate_field(c, "Cache-Control"), "no-store");
    json_t *j = json_loadb(c->body, c->nbody, JSON_REJECT_DUPLICATES, NULL);
    assert_true(json_is_true(json_object_get(j, "ready")));
    assert_true(json_is_string(json_object_get(j, "version")));
    assert_int_equal(json_integer_value(json_object_get(j, "connections")), 1);
    json_decref(j);
    struct gate_client *h = gate_http(&r, GATE_UNIX, "HEAD", "/health", "");
    assert_int_equal(h->status, 200);
    assert_int_equal(h->nbody, 0);
    assert_int_not_equal(atoi(gate_field(h, "Content-Length")), 0);
    /* from elsewhere, and unknown */
    c = gate_http(&r, GATE_TLS, "GET", "/health", "");
    assert_string_equal(c->body, "{\"ready\":true}\n");
    c = gate_http(&r, GATE_TLS, "GET", "/health",
                  "Authorization: Bearer " GATE_TOKEN_OBSERVE "\r\n");
    assert_non_null(strstr(c->body, "\"version\""));
    gate_stop(&r);
}

/* ---- the text format 0.0.4, by the letter ---- */

static bool is_name(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyz_", s[i]) && !(i && s[i] >= '0' && s[i] <= '9'))
            return false;
    return n > 0;
}

/* Each family: HELP, TYPE, one sample of its name, a number; each family once. */
static unsigned families(char *text)
{
    unsigned n = 0;
    char *save = NULL, *seen[128];
    assert_int_equal(text[strlen(text) - 1], '\n');
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char help[128], type[128], kind[16], *end;
        assert_int_equal(sscanf(line, "# HELP %127s ", help), 1);
        assert_true(is_name(help, strlen(help)) && !strchr(line, '\\'));
        line = strtok_r(NULL, "\n", &save);
        assert_non_null(line);
        assert_int_equal(sscanf(line, "# TYPE %127s %15s", type, kind), 2);
        assert_string_equal(help, type);
        bool counter = strcmp(kind, "counter") == 0;
        assert_true(counter || strcmp(kind, "gauge") == 0);
        assert_int_equal(counter, strlen(help) > 6 && !strcmp(help + strlen(help) - 6, "_total"));
        line = strtok_r(NULL, "\n", &save);
        assert_non_null(line);
        assert_memory_equal(line, help, strlen(help));
        char *value = line + strlen(help);
        if (*value == '{') {
            assert_memory_equal(value, "{version=\"", 10);
            value = strstr(value, "\"}");
            assert_non_null(value);
            value += 2;
        }
        assert_int_equal(*value, ' ');
        (void)strtod(value + 1, &end);
        assert_true(end > value + 1 && !*end);
        for (unsigned i = 0; i < n; i++)
            assert_string_not_equal(seen[i], help);
        assert_true(n < BR_ARRAY_LEN(seen));
        seen[n++] = strdup(help);
    }
    for (unsigned i = 0; i < n; i++)
        free(seen[i]);
    return n;
}

static void no_metrics(struct br_service *s)
{
    s->metrics = 0;
}

static void metrics(void **state)
{
    struct gate_rig r;
    const struct gate_options off = {.settings = no_metrics};
    (void)state;
    gate_start(&r, NULL);
    struct gate_client *ws = gate_open(&r, GATE_TCP, "");
    gate_send_text(ws, "{}");
    assert_non_null(gate_read_text(ws));
    struct gate_client *c = gate_http(&r, GATE_TCP, "GET", "/metrics", "");
    assert_int_equal(c->status, 200);
    assert_string_equal(gate_field(c, "Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
    assert_non_null(strstr(c->body, "\nbridle_messages_in_total 1\n"));
    assert_non_null(strstr(c->body, "\nbridle_messages_out_total 1\n"));
    assert_non_null(strstr(c->body, "\nbridle_connections_open 2\n"));
    assert_non_null(strstr(c->body, "\nbridle_ready 1\n"));
    assert_true(families(c->body) >= 25);
    assert_int_equal(status_of(&r, GATE_TLS, "GET", "/metrics", ""), 401);
    assert_int_equal(status_of(&r, GATE_TLS, "GET", "/metrics",
                               "Authorization: Bearer " GATE_TOKEN_OBSERVE "\r\n"),
                     200);
    gate_stop(&r);
    gate_start(&r, &off);
    assert_int_equal(status_of(&r, GATE_UNIX, "GET", "/metrics", ""), 404);
    gate_stop(&r);
}

/* ---- paths and methods ---- */

static void paths(void **state)
{
    struct gate_rig r;
    (void)state;
    static const struct {
        const char *method, *path, *fields;
        unsigned status;
        const char *allow;
    } rows[] = {
        {"GET", "/nothing", "", 404, ""},
        {"GET", "/health/", "", 404, ""},
        {"GET", "//health", "", 404, ""},
        {"GET", "/../health", "", 404, ""},
        {"GET", "/%68ealth", "", 404, ""},
        {"GET", "/health?x=1", "", 200, ""},
        {"POST", "/health", "", 405, "GET, HEAD"},
        {"DELETE", "/metrics", "", 405, "GET, HEAD"},
        {"GET", "/login", "", 405, "POST"},
        {"HEAD", "/logout", "", 405, "POST"},
        {"OPTIONS", "/acp", "", 405, "GET, HEAD"},
        {"PUT", "/nothing", "", 404, ""},
        {"GET", "/health", "Content-Length: 5\r\n", 413, ""},
        {"POST", "/login", "Content-Length: 1000000000\r\n", 413, ""},
        {"GET", "/health", "Content-Length: 0\r\n", 200, ""},
    };
    gate_start(&r, NULL);
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct gate_client *c =
            gate_http(&r, GATE_TCP, rows[i].method, rows[i].path, rows[i].fields);
        if (c->status != rows[i].status)
            fail_msg("%s %s: %u", rows[i].method, rows[i].path, c->status);
        assert_string_equal(gate_field(c, "Allow"), rows[i].allow);
        assert_string_equal(gate_field(c, "X-Content-Type-Options"), "nosniff");
        assert_string_equal(gate_field(c, "Connection"), "close");
        assert_int_equal(strlen(gate_field(c, "Date")), 29);
        gate_close(c);
    }
    gate_stop(&r);
}

/* What is no request is refused with one answer, and nothing of it is done. */
static void bad_heads(void **state)
{
    struct gate_rig r;
    (void)state;
    static const struct {
        const char *bytes;
        unsigned status;
    } rows[] = {
        {"GET /health HTTP/1.1\nHost: localhost\n\n", 400},
        {"GET /health HTTP/1.1\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n", 400},
        {"GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
        {"GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n", 505},
        {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a hello of TLS\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: "
         "2\r\n\r\n",
         400},
    };
    gate_start(&r, NULL);
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct gate_client *c = gate_connect(&r, GATE_TCP);
        gate_send_bytes(c, rows[i].bytes, rows[i].bytes[0] == 0x16 ? 29 : strlen(rows[i].bytes));
        gate_read_head(c);
        if (c->status != rows[i].status)
            fail_msg("row %zu: %u", i, c->status);
        gate_expect_eof(c);
        gate_close(c);
    }
    /* the limit of a head, and one byte more */
    for (unsigned more = 0; more < 2; more++) {
        static const char begin[] = "GET /health HTTP/1.1\r\nHost: localhost\r\nX: ";
        char text[8192 + 2];
        size_t n = 8192 + more;
        memset(text, 'x', sizeof(text));
        memcpy(text, begin, sizeof(begin) - 1);
        memcpy(text + n - 4, "\r\n\r\n", 4);
        struct gate_client *c = gate_connect(&r, GATE_TCP);
        gate_send_bytes(c, text, n);
        gate_read_head(c);
        assert_int_equal(c->status, more ? 431 : 200);
    }
    gate_stop(&r);
}

static void one_request_each(void **state)
{
    static const char two[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
                              "POST /login HTTP/1.1\r\nHost: localhost\r\n\r\n";
    struct gate_rig r;
    (void)state;
    gate_start(&r, NULL);
    struct gate_client *c = gate_connect(&r, GATE_TCP);
    gate_send_bytes(c, two, sizeof(two) - 1);
    gate_read_head(c);
    assert_int_equal(c->status, 200);
    gate_expect_eof(c);
    assert_null(memmem(c->in, c->nin, "HTTP/1.1", 8));
    assert_null(strstr(gate_log(&r), "refused"));
    gate_stop(&r);
}

/* ---- upgrades ---- */

static void upgrades(void **state)
{
#define UPGRADE "Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
#define KEY "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
#define VERSION "Sec-WebSocket-Version: 13\r\n"
    struct gate_rig r;
    (void)state;
    static const struct {
        const char *fields;
        unsigned status;
    } rows[] = {
        {"", 426},
        {UPGRADE KEY, 426},
        {UPGRADE KEY "Sec-WebSocket-Version: 8\r\n", 426},
        {UPGRADE VERSION, 400},
        {UPGRADE VERSION "Sec-WebSocket-Key: short\r\n", 400},
        {UPGRADE VERSION KEY "Sec-WebSocket-Protocol: mqtt\r\n", 400},
        {UPGRADE VERSION KEY "Sec-WebSocket-Protocol: harness.acp.1.x\r\n", 400},
    };
    gate_start(&r, NULL);
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct gate_client *c = gate_http(&r, GATE_TCP, "GET", "/acp", rows[i].fields);
        if (c->status != rows[i].status)
            fail_msg("row %zu: %u", i, c->status);
        if (c->status == 426)
            assert_string_equal(gate_field(c, "Sec-WebSocket-Version"), "13");
        gate_close(c);
    }
    assert_null(strstr(gate_log(&r), "connection.open"));
    struct gate_client *c = gate_connect(&r, GATE_TCP);
    assert_int_equal(gate_upgrade(c, "/elsewhere", ""), 404);
    (void)gate_open(&r, GATE_TCP, "acp.v1");
    c = gate_connect(&r, GATE_TCP);
    assert_int_equal(gate_upgrade(c, "/acp", "Sec-WebSocket-Protocol: mqtt, acp.v1\r\n"), 101);
    assert_string_equal(gate_field(c, "Sec-WebSocket-Protocol"), "acp.v1");
    c = gate_connect(&r, GATE_TCP);
    assert_int_equal(gate_upgrade(c, "/acp", ""), 101);
    assert_string_equal(gate_field(c, "Sec-WebSocket-Protocol"), "");
    assert_string_equal(gate_field(c, "Sec-WebSocket-Extensions"), "");
    gate_stop(&r);
}

/* ---- the board's files ---- */

static void remote_board(struct br_service *s)
{
    s->board_remote = 1;
}

static void no_board(struct br_service *s)
{
    s->board = 0;
}

static void board(void **state)
{
    struct gate_rig r;
    const struct gate_options remote = {.settings = remote_board}, off = {.settings = no_board};
    (void)state;
    gate_start(&r, NULL);
    struct gate_client *c = gate_http(&r, GATE_TCP, "GET", "/", "");
    assert_int_equal(c->status, 200);
    assert_string_equal(gate_field(c, "Content-Type"), "text/html; charset=utf-8");
    assert_string_equal(gate_field(c, "Content-Security-Policy"),
                        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src "
                        "'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
                        "frame-ancestors 'none'; require-trusted-types-for 'script'; "
                        "trusted-types 'none'");
    assert_string_equal(gate_field(c, "Cache-Control"), "no-store");
    assert_string_equal(gate_field(c, "Cross-Origin-Opener-Policy"), "same-origin");
    assert_string_equal(gate_field(c, "Cross-Origin-Resource-Policy"), "same-origin");
    assert_string_equal(gate_field(c, "Referrer-Policy"), "no-referrer");
    assert_string_equal(gate_field(c, "Access-Control-Allow-Origin"), "");
    assert_int_equal(atoi(gate_field(c, "Content-Length")), (int)c->nbody);
    c = gate_http(&r, GATE_UNIX, "GET", "/board.js", "");
    assert_int_equal(c->status, 200);
    assert_string_equal(gate_field(c, "Content-Type"), "text/javascript; charset=utf-8");
    c = gate_http(&r, GATE_UNIX, "GET", "/board.css", "");
    assert_string_equal(gate_field(c, "Content-Type"), "text/css; charset=utf-8");
    assert_int_equal(status_of(&r, GATE_TCP, "GET", "/index.html", ""), 404);
    assert_int_equal(status_of(&r, GATE_TCP, "POST", "/", ""), 405);
    assert_int_equal(status_of(&r, GATE_TLS, "GET", "/", ""), 404);
    gate_stop(&r);
    gate_start(&r, &remote);
    assert_int_equal(status_of(&r, GATE_TLS, "GET", "/", ""), 200);
    gate_stop(&r);
    gate_start(&r, &off);
    assert_int_equal(status_of(&r, GATE_TCP, "GET", "/", ""), 404);
    assert_int_equal(status_of(&r, GATE_TCP, "GET", "/board.js", ""), 404);
    gate_stop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(health),    cmocka_unit_test(metrics),          cmocka_unit_test(paths),
        cmocka_unit_test(bad_heads), cmocka_unit_test(one_request_each), cmocka_unit_test(upgrades),
        cmocka_unit_test(board),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
