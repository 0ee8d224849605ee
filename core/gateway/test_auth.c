/*
 * Who may speak to bridle-gateway, against the real program: uids of this machine, tokens, cookies,
 * certificates, names in Host, pages of other origins, and who comes too often. And that nothing of
 * what was presented is in its log or in what it tells.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/test_rig.h"

#define BEARER(token) "Authorization: Bearer " token "\r\n"
#define STRANGER 65533u

static char said[512]; /* the body of the last who() */

static unsigned who(struct gate_rig *r, enum gate_way way, const char *fields)
{
    struct gate_client *c = gate_http(r, way, "GET", "/whoami", fields);
    unsigned status = c->status;
    snprintf(said, sizeof(said), "%s", c->body);
    if (status == 401)
        assert_string_equal(gate_field(c, "WWW-Authenticate"), "Bearer realm=\"bridle\"");
    gate_close(c);
    return status;
}

static void no_secrets(struct gate_rig *r)
{
    static const char *const secrets[] = {GATE_TOKEN_OPERATE, GATE_TOKEN_ANSWER, GATE_TOKEN_OBSERVE,
                                          "4444444444", "Bearer 1"};
    struct gate_client *c = gate_http(r, GATE_UNIX, "GET", "/metrics", "");
    for (size_t i = 0; i < BR_ARRAY_LEN(secrets); i++) {
        assert_null(strstr(gate_log(r), secrets[i]));
        assert_null(strstr(c->body, secrets[i]));
    }
}

/* ---- uids ---- */

static void own_uid(void **state)
{
    struct gate_rig r;
    char expected[64];
    (void)state;
    gate_start(&r, NULL);
    snprintf(expected, sizeof(expected), "{\"name\":\"uid:%u\",\"access\":\"operate\"}\n",
             (unsigned)geteuid());
    for (enum gate_way w = 0; w < GATE_TLS; w++) {
        assert_int_equal(who(&r, w, ""), 200);
        assert_string_equal(said, expected);
    }
    assert_int_equal(who(&r, GATE_TLS, ""), 401);
    gate_stop(&r);
}

/* As another user, with a process of its own; the status. */
static unsigned user(const struct gate_rig *r, uid_t uid, enum gate_way way, const char *fields)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_port = htons(r->ports[way]),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        char text[2048];
        unsigned answer = 0;
        if (setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
            _exit(1);
        int fd = socket(way == GATE_UNIX ? AF_UNIX : AF_INET, SOCK_STREAM, 0);
        snprintf(un.sun_path, sizeof(un.sun_path), "%s", r->socket);
        if (connect(fd, way == GATE_UNIX ? (void *)&un : (void *)&in,
                    way == GATE_UNIX ? sizeof(un) : sizeof(in)))
            _exit(2);
        int n = snprintf(text, sizeof(text), "GET /whoami HTTP/1.1\r\nHost: localhost\r\n%s\r\n",
                         fields);
        if (write(fd, text, (size_t)n) != n || read(fd, text, 12) != 12)
            _exit(3);
        text[12] = 0;
        (void)sscanf(text, "HTTP/1.1 %u", &answer);
        _exit((int)(answer / 100 * 10 + answer % 100)); /* 401: 41 */
    }
    assert_true(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return (unsigned)WEXITSTATUS(status);
}

/* The uid that stands for all that have none here is no user, whoever lists it. */
static void with_nobody(struct br_service *s)
{
    s->nuids = 1;
    s->uids[0] = 65534;
}

static void with_stranger(struct br_service *s)
{
    s->nuids = 2;
    s->uids[0] = 4242;
    s->uids[1] = STRANGER;
}

static void without_stranger(struct br_service *s)
{
    s->nuids = 2;
    s->uids[0] = STRANGER - 1;
    s->uids[1] = STRANGER + 1;
}

/* Only root can be somebody else; the ordinary user's part is own_uid(). */
static void other_uids(void **state)
{
    struct gate_rig r;
    const struct gate_options without = {.settings = without_stranger};
    const struct gate_options with = {.settings = with_stranger};
    const struct gate_options nobody = {.settings = with_nobody};
    const enum gate_way ways[] = {GATE_TCP, GATE_ANY, GATE_UNIX};
    (void)state;
    for (size_t i = 0; geteuid() == 0 && i < BR_ARRAY_LEN(ways); i++) {
        gate_start(&r, &without);
        assert_true(chmod(r.dir, 0755) == 0 && chmod(r.socket, 0666) == 0);
        assert_int_equal(user(&r, STRANGER, ways[i], ""), 41);
        assert_int_equal(user(&r, STRANGER, ways[i], BEARER(GATE_TOKEN_OBSERVE)), 20);
        assert_int_equal(who(&r, ways[i], ""), 200); /* root, meanwhile */
        gate_stop(&r);
        gate_start(&r, &with);
        assert_true(chmod(r.dir, 0755) == 0 && chmod(r.socket, 0666) == 0);
        assert_int_equal(user(&r, STRANGER, ways[i], ""), 20);
        assert_int_equal(user(&r, STRANGER, ways[i], BEARER("wrong")), 41);
        gate_stop(&r);
        gate_start(&r, &nobody);
        assert_true(chmod(r.dir, 0755) == 0 && chmod(r.socket, 0666) == 0);
        assert_int_equal(user(&r, 65534, ways[i], ""), 41);
        assert_int_equal(user(&r, 65534, ways[i], BEARER(GATE_TOKEN_OBSERVE)), 20);
        gate_stop(&r);
    }
}

/* ---- tokens ---- */

static void tokens(void **state)
{
    struct gate_rig r;
    (void)state;
    gate_start(&r, NULL);
    assert_int_equal(who(&r, GATE_TLS, BEARER(GATE_TOKEN_OPERATE)), 200);
    assert_string_equal(said, "{\"name\":\"token:operator\",\"access\":\"operate\"}\n");
    assert_int_equal(who(&r, GATE_TLS, BEARER(GATE_TOKEN_ANSWER)), 200);
    assert_string_equal(said, "{\"name\":\"token:answerer\",\"access\":\"answer\"}\n");
    assert_int_equal(who(&r, GATE_TLS, "authorization: bearer " GATE_TOKEN_OBSERVE "\r\n"), 200);
    assert_string_equal(said, "{\"name\":\"token:observer\",\"access\":\"observe\"}\n");
    /* no token, and no failure of one */
    assert_int_equal(who(&r, GATE_TLS, ""), 401);
    assert_int_equal(who(&r, GATE_TLS, "Authorization: Basic MTExMQ==\r\n"), 401);
    assert_int_equal(who(&r, GATE_TLS, "Authorization: Bearer \r\n"), 401);
    assert_int_equal(who(&r, GATE_TLS, BEARER(GATE_TOKEN_OPERATE) BEARER(GATE_TOKEN_OPERATE)), 401);
    /* who brings a wrong one is refused, though it could do without */
    assert_int_equal(who(&r, GATE_UNIX, BEARER("4444444444")), 401);
    assert_int_equal(who(&r, GATE_UNIX, ""), 200);
    /* the query is not looked at */
    struct gate_client *c = gate_http(&r, GATE_TLS, "GET", "/whoami?token=" GATE_TOKEN_OPERATE, "");
    assert_int_equal(c->status, 401);
    no_secrets(&r);
    gate_stop(&r);
}

static void in_url(struct br_service *s)
{
    s->token_in_url = 1;
}

static void token_in_url(void **state)
{
    struct gate_rig r;
    const struct gate_options o = {.settings = in_url};
    (void)state;
    gate_start(&r, &o);
    struct gate_client *c = gate_connect(&r, GATE_TLS);
    assert_int_equal(gate_upgrade(c, "/acp?a=b&token=" GATE_TOKEN_OPERATE "&c", ""), 101);
    c = gate_connect(&r, GATE_TLS);
    assert_int_equal(gate_upgrade(c, "/acp?token=4444444444", ""), 401);
    c = gate_connect(&r, GATE_TLS);
    assert_int_equal(gate_upgrade(c, "/acp?xtoken=" GATE_TOKEN_OPERATE, ""), 401);
    c = gate_http(&r, GATE_TCP, "GET", "/no?token=4444444444", "");
    assert_int_equal(c->status, 404);
    no_secrets(&r);
    gate_stop(&r);
}

/* ---- certificates ---- */

static void one_name(struct br_service *s)
{
    s->nnames = 1;
    snprintf(s->names[0].name, sizeof(s->names[0].name), "ops laptop");
    s->names[0].access = BR_ACCESS_ANSWER;
}

static void certificates(void **state)
{
    struct gate_rig r;
    struct gate_options o = {.settings = one_name, .cert = "ops laptop"};
    (void)state;
    gate_start(&r, &o);
    assert_int_equal(who(&r, GATE_TLS, ""), 200);
    assert_string_equal(said, "{\"name\":\"cert:ops laptop\",\"access\":\"answer\"}\n");
    o.cert = "ops laptop 2";
    assert_int_equal(who(&r, GATE_TLS, ""), 401);
    o.cert = "";
    assert_int_equal(who(&r, GATE_TLS, ""), 401);
    gate_stop(&r);
}

/* ---- cookies ---- */

/* The field `Cookie` for what /login gave. */
static unsigned login(struct gate_rig *r, enum gate_way way, const char *fields, char cookie[256])
{
    struct gate_client *c = gate_http(r, way, "POST", "/login", fields);
    unsigned status = c->status;
    const char *set = gate_field(c, "Set-Cookie");
    snprintf(cookie, 256, "Cookie: a=b; %.*s; c\r\n", (int)strcspn(set, ";"), set);
    assert_int_equal(status == 200, set[0] != 0);
    if (set[0]) {
        bool tls = way == GATE_TLS;
        assert_int_equal(strncmp(set, "__Host-bridle=", 14) == 0, tls);
        assert_int_equal(strstr(set, "; Secure") != NULL, tls);
        assert_true(strstr(set, "; HttpOnly") && strstr(set, "; SameSite=Strict") &&
                    strstr(set, "; Path=/"));
        char value[65];
        snprintf(value, sizeof(value), "%s", strchr(set, '=') + 1);
        assert_null(strstr(gate_log(r), value));
    }
    gate_close(c);
    return status;
}

static void cookies(void **state)
{
    struct gate_rig r;
    const struct gate_options o = {.settings = NULL};
    char cookie[256], other[256];
    (void)state;
    gate_start(&r, &o);
    assert_int_equal(login(&r, GATE_TCP, BEARER(GATE_TOKEN_ANSWER), cookie), 200);
    assert_int_equal(who(&r, GATE_TCP, cookie), 200);
    assert_string_equal(said, "{\"name\":\"token:answerer\",\"access\":\"answer\"}\n");
    assert_int_equal(login(&r, GATE_TCP, "", other), 401);
    assert_int_equal(login(&r, GATE_TCP, BEARER("4444444444"), other), 401);
    assert_int_equal(login(&r, GATE_TCP, cookie, other), 401); /* a cookie makes no other */
    /* one that nobody was given is none: who sends it is who it is without */
    char *digit = strchr(cookie + 15, '=') + 1;
    *digit = *digit == '0' ? '1' : '0';
    assert_int_equal(who(&r, GATE_TCP, cookie), 200);
    assert_non_null(strstr(said, "\"uid:"));
    *digit = 'g';
    assert_int_equal(who(&r, GATE_TCP, cookie), 200);
    assert_non_null(strstr(said, "\"uid:"));
    /* the end of one */
    assert_int_equal(login(&r, GATE_TCP, BEARER(GATE_TOKEN_ANSWER), cookie), 200);
    struct gate_client *c = gate_http(&r, GATE_TCP, "POST", "/logout", cookie);
    assert_int_equal(c->status, 200);
    assert_non_null(strstr(gate_field(c, "Set-Cookie"), "Max-Age=0"));
    assert_int_equal(who(&r, GATE_TCP, cookie), 200);
    assert_non_null(strstr(said, "\"uid:"));
    no_secrets(&r);
    gate_stop(&r);
}

static void remote_board(struct br_service *s)
{
    s->board_remote = 1;
    s->requests_per_second = 0;
}

/* Ten wrong ones from one peer are told so; then it is asking too often, but for who has a token.
 */
static void failures(void **state)
{
    struct gate_rig r;
    (void)state;
    const struct gate_options o = {.settings = remote_board};
    char longer[400], cookie[256];
    static const char *const wrong[] = {
        "4444444444444444444444444444444444444444444444444444444444444444",
        "111111111111111111111111111111111111111111111111111111111111111", /* one less */
        "11111111111111111111111111111111111111111111111111111111111111111",
        "1111111111111111111111111111111111111111111111111111111111111112",
        "1",
        "'",
        GATE_TOKEN_OPERATE "=",
        "Bearer",
        GATE_TOKEN_OPERATE GATE_TOKEN_OBSERVE,
    };
    gate_start(&r, &o);
    for (size_t i = 0; i < 10; i++) {
        if (i < BR_ARRAY_LEN(wrong))
            snprintf(longer, sizeof(longer), "Authorization: Bearer %s\r\n", wrong[i]);
        else
            snprintf(longer, sizeof(longer), "Authorization: Bearer %0300d\r\n", 1);
        assert_int_equal(who(&r, GATE_TLS, longer), 401);
    }
    assert_int_equal(who(&r, GATE_TLS, longer), 429);
    assert_int_equal(who(&r, GATE_TLS, BEARER("4444444444")), 429);
    assert_int_equal(login(&r, GATE_TLS, BEARER("4444444444"), cookie), 429);
    struct gate_client *c = gate_connect(&r, GATE_TLS);
    assert_int_equal(gate_upgrade(c, "/acp", BEARER("4444444444")), 429);
    assert_string_not_equal(gate_field(c, "Retry-After"), "");
    /* somebody else at the same address is who it is, and wins nothing for the others */
    assert_int_equal(who(&r, GATE_TLS, BEARER(GATE_TOKEN_OPERATE)), 200);
    assert_string_equal(said, "{\"name\":\"token:operator\",\"access\":\"operate\"}\n");
    assert_int_equal(login(&r, GATE_TLS, BEARER(GATE_TOKEN_ANSWER), cookie), 200);
    assert_int_equal(who(&r, GATE_TLS, cookie), 200);
    assert_string_equal(said, "{\"name\":\"token:answerer\",\"access\":\"answer\"}\n");
    c = gate_connect(&r, GATE_TLS);
    assert_int_equal(gate_upgrade(c, "/acp", BEARER(GATE_TOKEN_OBSERVE)), 101);
    assert_int_equal(who(&r, GATE_TLS, BEARER("4444444444")), 429);
    assert_int_equal(who(&r, GATE_UNIX, BEARER("4444444444")), 401); /* another peer */
    no_secrets(&r);
    gate_stop(&r);
}

static void cookies_by_tls(void **state)
{
    struct gate_rig r;
    const struct gate_options o = {.settings = remote_board};
    char cookie[256], first[256], last[256];
    (void)state;
    gate_start(&r, NULL);
    assert_int_equal(login(&r, GATE_TLS, BEARER(GATE_TOKEN_ANSWER), cookie), 404);
    gate_stop(&r);
    gate_start(&r, &o);
    assert_int_equal(login(&r, GATE_TLS, BEARER(GATE_TOKEN_ANSWER), first), 200);
    assert_int_equal(who(&r, GATE_TLS, first), 200);
    assert_string_equal(said, "{\"name\":\"token:answerer\",\"access\":\"answer\"}\n");
    /* as many as are kept, and one more, for which the oldest goes */
    for (unsigned i = 1; i < 256; i++)
        assert_int_equal(login(&r, GATE_TLS, BEARER(GATE_TOKEN_OBSERVE), last), 200);
    assert_int_equal(who(&r, GATE_TLS, first), 200);
    assert_int_equal(login(&r, GATE_TLS, BEARER(GATE_TOKEN_OBSERVE), cookie), 200);
    assert_int_equal(who(&r, GATE_TLS, first), 401);
    assert_int_equal(who(&r, GATE_TLS, last), 200);
    assert_int_equal(who(&r, GATE_TLS, cookie), 200);
    gate_stop(&r);
}

/* ---- reload ---- */

static void withdrawn(void **state)
{
    struct gate_rig r;
    const struct gate_options o = {.settings = remote_board};
    char cookie[256];
    (void)state;
    gate_start(&r, &o);
    struct gate_client *kept = gate_open_as(&r, GATE_TLS, "", GATE_TOKEN_OBSERVE);
    struct gate_client *own = gate_open(&r, GATE_TCP, "");
    struct gate_client *gone = gate_open_as(&r, GATE_TLS, "", GATE_TOKEN_OPERATE);
    struct gate_client *less = gate_open_as(&r, GATE_TLS, "", GATE_TOKEN_ANSWER);
    assert_int_equal(login(&r, GATE_TLS, BEARER(GATE_TOKEN_OPERATE), cookie), 200);
    assert_int_equal(who(&r, GATE_TLS, cookie), 200);
    r.tokens[1].access = BR_ACCESS_OBSERVE;
    r.tokens[0] = r.tokens[--r.ntokens];
    gate_reload(&r);
    gate_expect_close(gone, 1008);
    gate_expect_close(less, 1008);
    assert_int_equal(who(&r, GATE_TLS, cookie), 401);
    assert_int_equal(who(&r, GATE_TLS, BEARER(GATE_TOKEN_OPERATE)), 401);
    assert_int_equal(who(&r, GATE_TLS, BEARER(GATE_TOKEN_ANSWER)), 200);
    assert_non_null(strstr(said, "observe"));
    gate_send_text(kept, "{}");
    assert_non_null(gate_read_text(kept));
    gate_send_text(own, "{}");
    assert_non_null(gate_read_text(own));
    gate_stop(&r);
}

/* ---- names and origins ---- */

static void names(struct br_service *s)
{
    s->nhosts = 1;
    snprintf(s->hosts[0], sizeof(s->hosts[0]), "board.example");
    s->norigins = 2;
    snprintf(s->origins[0], sizeof(s->origins[0]), "https://board.example:8443");
    snprintf(s->origins[1], sizeof(s->origins[1]), "null");
}

static void hosts(void **state)
{
    struct gate_rig r;
    const struct gate_options o = {.settings = names};
    (void)state;
    static const struct {
        const char *host;
        unsigned status;
    } rows[] = {
        {"localhost", 200},
        {"LOCALHOST:1", 200},
        {"127.0.0.1:8765", 200},
        {"[::1]", 200},
        {"[::1]:8765", 200},
        {"board.example", 200},
        {"board.example:8443", 200},
        {"evil.example", 403},
        {"board.example.evil.example", 403},
        {"xboard.example", 403},
        {"localhost.evil.example", 403},
        {"127.0.0.1.evil.example:8765", 403},
        {"127.0.0.2", 403},
        {"192.0.2.1", 403},
        {"[::2]", 403},
        {"0x7f000001", 403},
        {"2130706433", 403},
    };
    char fields[128];
    gate_start(&r, &o);
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        snprintf(fields, sizeof(fields), "Host: %s\r\n", rows[i].host);
        if (who(&r, GATE_TCP, fields) != rows[i].status)
            fail_msg("Host: %s", rows[i].host);
    }
    assert_int_equal(who(&r, GATE_TCP, "Host: \r\n"), 400);
    assert_int_equal(who(&r, GATE_TCP, "Host: localhost@evil.example\r\n"), 400);
    assert_int_equal(who(&r, GATE_UNIX, "Host: anything\r\n"), 200);
    struct gate_client *c = gate_connect(&r, GATE_TCP);
    assert_int_equal(gate_upgrade(c, "/acp", "Host: evil.example\r\n"), 403);
    assert_null(strstr(gate_log(&r), "connection.open"));
    gate_stop(&r);
}

static void origins(void **state)
{
    struct gate_rig r;
    const struct gate_options o = {.settings = names};
    (void)state;
    static const struct {
        const char *origin;
        unsigned status;
    } rows[] = {
        {"http://localhost:7", 200}, /* as Host says */
        {"https://board.example:8443", 200},
        {"http://localhost", 403},
        {"http://localhost:8", 403},
        {"https://localhost:7", 403},
        {"http://localhost:7.evil.example", 403},
        {"http://evil.example", 403},
        {"http://board.example:8443", 403},
        {"https://board.example", 403},
        {"null", 403},
        {"", 403},
        {"file://", 403},
    };
    char fields[128];
    gate_start(&r, &o);
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        snprintf(fields, sizeof(fields), "Host: localhost:7\r\nOrigin: %s\r\n", rows[i].origin);
        if (who(&r, GATE_TCP, fields) != rows[i].status)
            fail_msg("Origin: %s", rows[i].origin);
        struct gate_client *c = gate_connect(&r, GATE_TCP);
        assert_int_equal(gate_upgrade(c, "/acp", fields), rows[i].status == 200 ? 101 : 403);
        gate_close(c);
    }
    assert_int_equal(who(&r, GATE_TCP, "Origin: http://localhost\r\nOrigin: http://localhost\r\n"),
                     400);
    /* a page that may not speak cannot log anybody in or out, either */
    struct gate_client *c = gate_http(&r, GATE_TCP, "POST", "/login",
                                      "Origin: http://evil.example\r\n" BEARER(GATE_TOKEN_ANSWER));
    assert_int_equal(c->status, 403);
    assert_string_equal(gate_field(c, "Set-Cookie"), "");
    gate_stop(&r);
}

static void no_board(struct br_service *s)
{
    s->board = 0;
}

static void own_origin_without_board(void **state)
{
    struct gate_rig r;
    const struct gate_options o = {.settings = no_board};
    (void)state;
    gate_start(&r, &o);
    assert_int_equal(who(&r, GATE_TCP, "Origin: http://localhost\r\n"), 403);
    assert_int_equal(who(&r, GATE_TCP, ""), 200);
    gate_stop(&r);
}

/* ---- too often ---- */

static void seldom(struct br_service *s)
{
    s->requests_per_second = 1;
}

static void too_often(void **state)
{
    struct gate_rig r;
    const struct gate_options o = {.settings = seldom};
    (void)state;
    gate_start(&r, &o);
    unsigned good = 0;
    while (good < 13 && who(&r, GATE_TCP, "") == 200)
        good++;
    assert_true(good >= 10 && good <= 12); /* a burst of ten times the rate; a second may pass */
    assert_int_equal(who(&r, GATE_TLS, BEARER(GATE_TOKEN_OPERATE)), 200); /* another peer */
    gate_stop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_uid),      cmocka_unit_test(other_uids),
        cmocka_unit_test(tokens),       cmocka_unit_test(failures),
        cmocka_unit_test(token_in_url), cmocka_unit_test(certificates),
        cmocka_unit_test(cookies),      cmocka_unit_test(cookies_by_tls),
        cmocka_unit_test(withdrawn),    cmocka_unit_test(hosts),
        cmocka_unit_test(origins),      cmocka_unit_test(own_origin_without_board),
        cmocka_unit_test(too_often),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
