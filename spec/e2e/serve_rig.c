#include "serve_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#define PATIENCE_MS 20000

const char served_policy[] =
    "local policy = require 'bridle.policy'\n"
    "return policy.bundle { api = 1, name = 'served', rules = {\n"
    "  policy.allow { id = 'echo', action = 'process.exec', command = 'echo *' },\n"
    "  policy.ask { id = 'sleep', action = 'process.exec', command = 'sleep *' },\n"
    "} }\n";

const char served_scenario[] =
    "{\"v\":1,\"name\":\"served\",\"turns\":["
    "{\"when\":{\"assistant_messages\":0,\"last_user_contains\":\"sleep\"},\"text\":\"May I?\","
    "\"tool_calls\":[{\"name\":\"process_exec\",\"arguments\":{\"argv\":[\"sleep\",\"0.2\"]}}]},"
    "{\"when\":{\"assistant_messages\":0,\"last_user_contains\":\"echo\"},\"text\":\"I say it.\","
    "\"tool_calls\":[{\"name\":\"process_exec\",\"arguments\":{\"argv\":[\"echo\",\"hi\"]}}]},"
    "{\"text\":\"Done.\"}]}";

void served_open(struct served *s, uid_t uid)
{
    static char built[BR_PATH_MAX];
    struct e2e_result r;
    if (!built[0])
        snprintf(built, sizeof(built), "%s", e2e_bin());
    assert_int_equal(setenv("BRIDLE_BIN", built, 1), 0);
    memset(s, 0, sizeof(*s));
    s->link = s->notified = -1;
    br_buf_init(&s->heard, BR_BLOB_MAX);
    e2e_open(&s->t, uid);
    snprintf(s->root, sizeof(s->root), "%s", s->t.workspace);
    snprintf(s->socket, sizeof(s->socket), "%s/gate.sock", s->t.dir);
    e2e_copy_bin(&s->t, "bridle-gateway", "served", s->bin);
    assert_int_equal(setenv("BRIDLE_BIN", s->bin, 1), 0);
    e2e_write(&s->t, "workspace/one/out/seed", "");
    e2e_write(&s->t, "workspace/two/out/seed", "");
    e2e_write(&s->t, "scenario.json", served_scenario);
    served_reset(s);
    e2e_run(&s->t, &r, "bridle", "activate", "run-v1", NULL);
    if (!uid) /* an ordinary user may have no cgroups here, which a run then says */
        e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
}

void served_reset(struct served *s)
{
    char path[200];
    if (s->service > 0) { /* of a test that failed */
        (void)kill(s->service, SIGKILL);
        (void)served_ended(s);
    }
    snprintf(path, sizeof(path), "%s/tokens", s->t.state);
    s->without = NULL;
    (void)unlink(path);
    (void)unlink(s->socket);
    (void)unlink(s->notify);
    e2e_write(&s->t, "policy.lua", served_policy);
    served_config(s, "");
}

void served_config(struct served *s, const char *service)
{
    char text[8192];
    snprintf(text, sizeof(text), "return { api = 1, service = { root = '%s', %s } }\n", s->root,
             service);
    e2e_write(&s->t, "bridle.lua", text);
}

void served_become(struct served *s, char *const *more, char *const *env)
{
    char program[BR_PATH_MAX], state[128], home[128], notify[200], asan[512], config[160],
        policy[160], scenario[160];
    char *full[16] = {state, home, (char *)"PATH=/usr/bin:/bin"}, *argv[40] = {NULL};
    unsigned n = 3, a = 0;
    const char *env0 = env ? env[0] : NULL;
    snprintf(program, sizeof(program), "%s/bridle", s->bin);
    snprintf(state, sizeof(state), "BRIDLE_STATE_DIR=%s", s->t.state);
    snprintf(home, sizeof(home), "HOME=%s", s->t.dir);
    snprintf(config, sizeof(config), "%s/bridle.lua", s->t.dir);
    snprintf(policy, sizeof(policy), "%s/policy.lua", s->t.dir);
    snprintf(scenario, sizeof(scenario), "%s/scenario.json", s->t.dir);
    if (getenv("ASAN_OPTIONS")) {
        snprintf(asan, sizeof(asan), "ASAN_OPTIONS=%s", getenv("ASAN_OPTIONS"));
        full[n++] = asan;
    }
    if (s->notified >= 0) {
        snprintf(notify, sizeof(notify), "NOTIFY_SOCKET=%s", s->notify);
        full[n++] = notify;
    }
    for (; env && *env && n < 15; env++) /* the first of a name counts */
        full[n++] = *env;
    if (env0 && strncmp(env0, "BRIDLE_STATE_DIR=", 17) == 0)
        full[0] = (char *)(uintptr_t)env0;
    const char *const first[] = {"bridle", "serve", "-c",         config,
                                 "-p",     policy,  "--scenario", scenario};
    for (size_t i = 0; i < BR_ARRAY_LEN(first); i++)
        if (i < 2 || !s->without || strcmp(first[i & ~(size_t)1], s->without) != 0)
            argv[a++] = (char *)(uintptr_t)first[i];
    if (!more) {
        argv[a++] = (char *)"--listen";
        argv[a++] = s->socket;
    }
    for (; more && *more && a < 39; more++)
        argv[a++] = *more;
    int in = open("/dev/null", O_RDONLY);
    if (chdir(s->t.dir) < 0 || in < 0)
        _exit(126);
    int o = open("out.serve", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
    int e = open("err.serve", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
    if (dup2(in, 0) < 0 || dup2(o, 1) < 0 || dup2(e, 2) < 0)
        _exit(126);
    if (!env0 || strncmp(env0, "LISTEN_FDS", 10) != 0)
        br_close_from(3, NULL, 0);
    (void)setsid();
    uid_t uid = s->t.uid;
    if (uid &&
        (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0))
        _exit(126);
    execve(program, argv, full);
    _exit(127);
}

void served_start(struct served *s, char *const *more, char *const *env)
{
    char path[160];
    for (const char *const *p = (const char *const[]){"out.serve", "err.serve", NULL}; *p; p++) {
        snprintf(path, sizeof(path), "%s/%s", s->t.dir, *p);
        (void)unlink(path);
    }
    s->service = fork();
    if (s->service == 0)
        served_become(s, more, env);
    assert_true(s->service > 0);
}

void served_connect(struct served *s)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    br_close(&s->link);
    br_buf_reset(&s->heard);
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", s->socket);
    s->link = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(s->link, (struct sockaddr *)&sa, sizeof(sa)) < 0)
        fail_msg("%s: %s", s->socket, strerror(errno));
    served_say(s, "INFO");
    (void)served_hear(s, "INFO ");
}

static bool file_has(struct served *s, const char *file, const char *text)
{
    char *said = e2e_read(&s->t, file);
    bool has = said && strstr(said, text);
    free(said);
    return has;
}

void served_ready(struct served *s)
{
    for (int i = 0; i < PATIENCE_MS / 10; i++, usleep(10000)) {
        int status;
        if (waitpid(s->service, &status, WNOHANG) == s->service) {
            char *log = e2e_read(&s->t, "err.serve");
            s->service = 0;
            fail_msg("the service ended: %s", log ? log : "");
        }
        if (file_has(s, "out.serve", "Listening")) {
            served_connect(s);
            return;
        }
    }
    fail_msg("the service is not ready: %s", e2e_read(&s->t, "err.serve"));
}

void served_logged(struct served *s, const char *text)
{
    for (int i = 0; i < PATIENCE_MS / 10; i++, usleep(10000))
        if (file_has(s, "err.serve", text))
            return;
    fail_msg("not said: %s; but: %s", text, e2e_read(&s->t, "err.serve"));
}

void served_say(struct served *s, const char *fmt, ...)
{
    char text[16384];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text) - 1, fmt, ap);
    va_end(ap);
    text[n++] = '\n';
    (void)send(s->link, text, (size_t)n, MSG_NOSIGNAL);
}

/* False at the end, or when its time is over. */
static bool next_line(struct served *s, uint64_t deadline)
{
    for (;;) {
        char *end = s->heard.len ? memchr(s->heard.data, '\n', s->heard.len) : NULL;
        if (end) {
            size_t n = (size_t)(end - (char *)s->heard.data);
            snprintf(s->line, sizeof(s->line), "%.*s", (int)n, (char *)s->heard.data);
            memmove(s->heard.data, end + 1, s->heard.len - n - 1);
            s->heard.len -= n + 1;
            return true;
        }
        char chunk[8192];
        struct pollfd p = {.fd = s->link, .events = POLLIN};
        uint64_t now = br_now_us();
        if (now >= deadline || poll(&p, 1, (int)((deadline - now) / 1000) + 1) <= 0)
            return false;
        ssize_t n = read(s->link, chunk, sizeof(chunk));
        if (n <= 0)
            return false;
        br_buf_put(&s->heard, chunk, (size_t)n);
    }
}

const char *served_try(struct served *s, const char *start)
{
    uint64_t deadline = br_now_us() + PATIENCE_MS * 1000u;
    while (next_line(s, deadline))
        if (strncmp(s->line, start, strlen(start)) == 0)
            return s->line;
    return NULL;
}

const char *served_hear(struct served *s, const char *start)
{
    const char *line = served_try(s, start);
    if (!line)
        fail_msg("not heard: %s; last: %s; log: %s", start, s->line, e2e_read(&s->t, "err.serve"));
    return line;
}

const char *served_word(struct served *s, unsigned n)
{
    static char word[BR_PATH_MAX];
    const char *at = s->line;
    while (n-- && *at)
        at += strcspn(at, " ") + 1;
    snprintf(word, sizeof(word), "%.*s", (int)strcspn(at, " "), at);
    return word;
}

void served_begin(struct served *s, const char *workspace, const char *content, char id[BR_ID_MAX])
{
    served_say(s, "CHECK %s||", workspace);
    served_hear(s, "CHECKED OK ");
    snprintf(id, BR_ID_MAX, "%s", served_word(s, 2));
    served_say(s, "RUN %s 0 0 %s", id, content);
}

int served_ended(struct served *s)
{
    int status = 0;
    for (int i = 0; i < 3 * PATIENCE_MS / 10; i++, usleep(10000)) {
        if (waitpid(s->service, &status, WNOHANG) != s->service)
            continue;
        s->service = 0;
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    fail_msg("the service does not end: %s", e2e_read(&s->t, "err.serve"));
    return -1;
}

void served_notified(struct served *s, const char *text)
{
    char got[2048];
    for (;;) {
        struct pollfd p = {.fd = s->notified, .events = POLLIN};
        if (poll(&p, 1, PATIENCE_MS) <= 0)
            fail_msg("systemd was not told '%s'", text);
        ssize_t n = recv(s->notified, got, sizeof(got) - 1, 0);
        assert_true(n > 0);
        got[n] = 0;
        if (strstr(got, text))
            return;
    }
}

static unsigned count(const char *text, const char *what)
{
    unsigned n = 0;
    for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

void served_record(struct served *s, const char *id, const char *status)
{
    struct e2e_result r;
    char want[64];
    e2e_run(&s->t, &r, "bridle", "show", id, "--json", NULL);
    e2e_expect(&r, 0, NULL);
    const char *out = (const char *)r.out.data;
    assert_int_equal(count(out, "\"type\":\"agent.stopped\""), 1);
    assert_int_equal(count(out, "\"type\":\"permission.requested\""),
                     count(out, "\"type\":\"permission.resolved\""));
    assert_int_equal(count(out, "\"type\":\"tool.call\""), count(out, "\"type\":\"tool.result\""));
    snprintf(want, sizeof(want), "\"status\":\"%s\"", status);
    if (!strstr(strstr(out, "\"type\":\"agent.stopped\""), want))
        fail_msg("not %s: %s", status, strstr(out, "\"type\":\"agent.stopped\""));
    e2e_result_free(&r);
}

void served_recorded(struct served *s, const char *id, const char *why)
{
    struct e2e_result r;
    e2e_run(&s->t, &r, "bridle", "show", id, "--json", NULL);
    const char *end = r.status == 0 ? strstr((char *)r.out.data, "\"agent.stopped\"") : NULL;
    if (!end || !strstr(end, why))
        fail_msg("the record of '%s' does not end with '%s': %s", id, why, end ? end : "");
    e2e_result_free(&r);
}

void served_stop(struct served *s)
{
    if (s->service > 0) {
        (void)kill(s->service, SIGTERM);
        (void)served_ended(s);
    }
    br_close(&s->link);
    br_close(&s->notified);
    br_buf_reset(&s->heard);
    for (int i = 0; i < 300; i++, usleep(10000)) /* what was killed may still be ending */
        if (!e2e_await(1, "bridle-launch", 0, 0) && !e2e_await(1, "bridle-audit", 0, 0))
            break;
    e2e_expect_clean(&s->t);
}

void served_close(struct served *s)
{
    br_buf_free(&s->heard);
    e2e_close(&s->t);
}
