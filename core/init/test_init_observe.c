/*
 * The guest of observer@1 by itself: what it asks, what it makes of an answer, and what it has
 * given up by the time that it reads one. The provider's socket is the test's.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "frame/frame.h"

struct guest {
    char dir[64], socket[96];
    int listener, in, out, fd;
    pid_t pid;
    struct br_buf request;
};

static void start(struct guest *g, const char *prompt)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    char program[4096];
    int in[2], out[2];
    BR_CLEANUP_BUF struct br_buf frame = BR_BUF_INIT(BR_FRAME_PACKET_MAX + 8);
    *g = (struct guest){.request = BR_BUF_INIT(1 << 20)};
    strcpy(g->dir, "/tmp/bridle-observe-XXXXXX");
    assert_non_null(mkdtemp(g->dir));
    snprintf(g->socket, sizeof(g->socket), "%s/s", g->dir);
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", g->socket);
    g->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(g->listener, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(listen(g->listener, 1), 0);
    struct br_frame_packet p = {.run_id = "run_1",
                                .adapter = "observer",
                                .revision = 1,
                                .profile = "observer-v1",
                                .prompt = prompt,
                                .prompt_len = strlen(prompt),
                                .system = "be \"short\"",
                                .model = {.id = "m", .routes = 1, .answer_tokens = 9},
                                .socket = g->socket,
                                .token =
                                    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789ab"
                                    "cdef",
                                .output_bytes = 10000,
                                .trace_bytes = 100,
                                .deadline = "2026-03-01T10:00:00.000+00:00"};
    struct br_err err = {.code = BR_OK};
    if (br_frame_packet_put(&frame, &p, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(pipe2(in, O_CLOEXEC) + pipe2(out, O_CLOEXEC), 0);
    const char *bin = getenv("BRIDLE_BIN");
    snprintf(program, sizeof(program), "%s/bridle-init", bin ? bin : "bin");
    g->pid = fork();
    if (g->pid == 0) {
        (void)dup2(in[0], 0);
        (void)dup2(out[1], 1);
        execl(program, "bridle-init", "observe", (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    assert_int_equal(br_write_all(in[1], frame.data, frame.len), 0);
    close(in[1]);
    g->out = out[0];
}

/* Until the request is here. */
static void take(struct guest *g)
{
    char piece[4096];
    g->fd = accept4(g->listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(g->fd >= 0);
    while (!strstr(br_buf_cstr(&g->request), "}]}")) {
        ssize_t n = read(g->fd, piece, sizeof(piece));
        assert_true(n > 0);
        br_buf_put(&g->request, piece, (size_t)n);
    }
}

/* Answer, collect the result, end. The exit status. */
static int finish(struct guest *g, const char *answer, struct br_frame_result *r)
{
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(1 << 20);
    const struct br_frame_expect e = {.run_id = "run_1",
                                      .adapter = "observer",
                                      .revision = 1,
                                      .kind = BR_ARTIFACT_JSON,
                                      .artifact_bytes = 10000,
                                      .output_bytes = 10000};
    struct br_err err = {.code = BR_OK};
    int status = 0;
    *r = (struct br_frame_result){.root = NULL};
    (void)br_write_all(g->fd, answer, strlen(answer));
    (void)shutdown(g->fd, SHUT_WR);
    assert_int_equal(br_read_all(g->out, &out, "the guest", &err), 0);
    assert_int_equal(waitpid(g->pid, &status, 0), g->pid);
    close(g->fd);
    close(g->out);
    close(g->listener);
    unlink(g->socket);
    rmdir(g->dir);
    br_buf_free(&g->request);
    if (!WIFEXITED(status))
        return 128 + WTERMSIG(status);
    if (WEXITSTATUS(status) == 0 && br_frame_result_get(out.data, out.len, &e, r, &err) < 0)
        fail_msg("%s: %.*s", err.text, (int)out.len, (char *)out.data);
    return WEXITSTATUS(status);
}

#define OK "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
#define CONTENT(text) "{\"choices\":[{\"message\":{\"content\":\"" text "\"}}]}"

static void test_asks_once(void **state)
{
    struct guest g;
    struct br_frame_result r;
    (void)state;
    start(&g, "a \"question\"\n");
    take(&g);
    const char *q = br_buf_cstr(&g.request);
    assert_non_null(strstr(q, "POST /v1/chat/completions HTTP/1.1\r\n"));
    assert_non_null(strstr(q, "Authorization: Bearer 0123456789abcdef"));
    assert_non_null(strstr(q,
                           "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"be "
                           "\\\"short\\\"\"},{\"role\":\"user\",\"content\":\"a "
                           "\\\"question\\\"\\n\"}]}"));
    static const char body[] = "{\"choices\":[{\"message\":{\"content\":\"{\\\"a\\\":[1]}\"}}],"
                               "\"usage\":{\"prompt_tokens\":"
                               "3,\"completion_tokens\":4,\"total_tokens\":7}  }";
    char answer[512];
    snprintf(answer, sizeof(answer), OK "Content-Length: %zu\r\n\r\n%s", sizeof(body) - 1, body);
    assert_int_equal(finish(&g, answer, &r), 0);
    assert_true(r.completed && r.has_usage);
    assert_int_equal(r.prompt_tokens, 3);
    assert_int_equal(r.completion_tokens, 4);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(r.artifact, "a"), 0)), 1);
    br_frame_result_free(&r);
}

/* While it waits: a filter of its own, and no way back. */
static void test_has_given_up(void **state)
{
    struct guest g;
    struct br_frame_result r;
    char path[64], text[8192] = "";
    (void)state;
    start(&g, "q");
    take(&g);
    snprintf(path, sizeof(path), "/proc/%d/status", (int)g.pid);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof(text) - 1, f);
    (void)fclose(f);
    text[n] = 0;
    assert_non_null(strstr(text, "\nNoNewPrivs:\t1\n"));
    assert_non_null(strstr(text, "\nSeccomp:\t2\n"));
    assert_int_equal(finish(&g, "", &r), 1);
}

static void test_answers(void **state)
{
    enum { LENGTH, CHUNKS, RAW };
    static const struct {
        int how;
        const char *head, *body;
        int status;
        const char *value; /* NULL: it says that it failed */
    } rows[] = {
        {LENGTH, OK, CONTENT("\\u0022x\\u0022"), 0, "\"x\""},
        {CHUNKS, OK, CONTENT(" 12 "), 0, "12"},
        {LENGTH, OK, CONTENT("```json\\n[]\\n```   "), 0, "[]"},
        {CHUNKS, OK, CONTENT("```\\n{}\\n```"), 0, "{}"},
        {LENGTH, OK, CONTENT("words"), 0, NULL},
        {LENGTH, OK, CONTENT("1 2"), 0, NULL},
        {LENGTH, OK, CONTENT(""), 0, NULL},
        {LENGTH, OK, CONTENT("``````"), 0, NULL},
        {LENGTH, OK, "{\"choices\":[{\"message\":{\"content\":null}}]}", 0, NULL},
        {LENGTH, OK, "{\"choices\":[]}", 0, NULL},
        {LENGTH, OK, "no JSON", 0, NULL},
        {LENGTH, "HTTP/1.1 429 no\r\n", "{}", 0, NULL},
        {RAW, OK "content-length: 99\r\n\r\n{}", NULL, 1, NULL},
        {RAW, OK "content-length: 99999999999\r\n\r\n{}", NULL, 1, NULL},
        {RAW, OK "\r\n{}", NULL, 1, NULL},
        {RAW, OK "transfer-encoding: chunked\r\n\r\nzz\r\n", NULL, 1, NULL},
        {RAW, OK "transfer-encoding: chunked\r\n\r\nffffffff\r\n", NULL, 1, NULL},
        {RAW, OK "transfer-encoding: chunked\r\n\r\n5\r\nab", NULL, 1, NULL},
        {RAW, "garbage\r\n\r\n", NULL, 1, NULL},
        {RAW, "", NULL, 1, NULL},
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct guest g;
        struct br_frame_result r;
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8192);
        size_t n = rows[i].body ? strlen(rows[i].body) : 0;
        br_buf_printf(&b, "%s", rows[i].head);
        if (rows[i].how == LENGTH)
            br_buf_printf(&b, "Content-Length: %zu\r\n\r\n%s", n, rows[i].body);
        else if (rows[i].how == CHUNKS)
            br_buf_printf(&b,
                          "Transfer-Encoding: chunked\r\n\r\n%x\r\n%.*s\r\n%zX\r\n%s\r\n0\r\n\r\n",
                          7, 7, rows[i].body, n - 7, rows[i].body + 7);
        start(&g, "q");
        take(&g);
        int status = finish(&g, br_buf_cstr(&b), &r);
        if (status != rows[i].status)
            fail_msg("%zu: %d", i, status);
        if (status == 0) {
            BR_CLEANUP_FREE char *text =
                r.completed ? json_dumps(r.artifact, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
            if (r.completed != (rows[i].value != NULL) ||
                (text && strcmp(text, rows[i].value) != 0))
                fail_msg("%zu: %s", i, text ? text : "failed");
        }
        br_frame_result_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_asks_once),
        cmocka_unit_test(test_has_given_up),
        cmocka_unit_test(test_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
