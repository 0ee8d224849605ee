/*
 * Where a provider's key may come from: a file that is the operator's alone, or a command. It
 * reaches the provider, and no argument, environment, output, record or error has it; one that may
 * not be used stops the run before anything is sent.
 */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "broker/test_rig.h"
#include "support/e2e.h"

/* RIG_KEY is what the rig's programs look for; here nobody has it but the file. */
#define KEY "sk-canary-77e0b1c95da84f20"

static struct odd_server server;

static bool has(const void *p, size_t n, const char *text)
{
    return p && memmem(p, n, text, strlen(text));
}

/* Every file below a directory. Returns how many had something in them. */
static unsigned expect_not_below(const char *dir, const char *text)
{
    unsigned n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[BR_PATH_MAX];
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        assert_true(snprintf(path, sizeof(path), "%.2000s/%s", dir, e->d_name) > 0);
        assert_int_equal(lstat(path, &st), 0);
        if (S_ISDIR(st.st_mode))
            n += expect_not_below(path, text);
        if (!S_ISREG(st.st_mode))
            continue;
        BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(64u << 20);
        assert_int_equal(br_read_all(fd, &b, path, NULL), 0);
        if (has(b.data, b.len, text))
            fail_msg("the key is in '%s'", path);
        n += b.len > 0;
    }
    closedir(d);
    return n;
}

/* Arguments and environment of every process that there is. Returns how many could be read. */
static unsigned expect_in_no_process(const char *text)
{
    static const char *const files[] = {"cmdline", "environ"};
    unsigned n = 0;
    DIR *d = opendir("/proc");
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        for (unsigned i = 0; i < 2 && e->d_name[0] >= '0' && e->d_name[0] <= '9'; i++) {
            char path[512];
            snprintf(path, sizeof(path), "/proc/%.200s/%s", e->d_name, files[i]);
            BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
            BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1u << 20);
            if (fd < 0 || br_read_all(fd, &b, path, NULL) < 0)
                continue;
            if (has(b.data, b.len, text))
                fail_msg("the key is in '%s'", path);
            n++;
        }
    closedir(d);
    return n;
}

struct setting {
    struct e2e t;
    struct e2e_result r;
    char key_path[160];
};

/* `key`: the Lua of one entry of `keys`; '@' in it is the path of the key's file. */
static void open_setting(struct setting *s, const char *key, mode_t mode)
{
    char config[2048], entry[1024] = "";
    atomic_store(&server.shared->mode, ODD_ECHO_STREAM);
    atomic_store(&server.shared->requests, 0);
    atomic_store(&server.shared->connections, 0);
    memset(server.shared->last, 0, sizeof(server.shared->last));
    e2e_open(&s->t, 0);
    e2e_write(&s->t, "workspace/src/a.txt", "before\n");
    e2e_write(&s->t, "secret/the.key", KEY "\n");
    snprintf(s->key_path, sizeof(s->key_path), "%s/secret/the.key", s->t.dir);
    assert_int_equal(chown(s->key_path, geteuid(), getegid()), 0);
    assert_int_equal(chmod(s->key_path, mode), 0);
    for (const char *p = key; *p; p++)
        snprintf(entry + strlen(entry), sizeof(entry) - strlen(entry), "%.*s", *p == '@' ? 200 : 1,
                 *p == '@' ? s->key_path : p);
    snprintf(config, sizeof(config),
             "return { api = 1, keys = { work = { %s } }, providers = { near = {\n"
             "  base_url = 'http://127.0.0.1:%u/v1', key = 'work', timeout = 5,\n"
             "  idle_timeout = 1, first_byte_timeout = 1 } } }\n",
             entry, server.port);
    e2e_write(&s->t, "bridle.lua", config);
}

static pid_t spawn(struct setting *s)
{
    const char *argv[] = {"bridle",     "run", "--json", "-C", "workspace", "--config",
                          "bridle.lua", "-m",  "near/m", "go", NULL};
    return e2e_spawn(&s->t, (char *const *)(uintptr_t)argv, NULL);
}

/* Ends the run and looks everywhere. */
static void expect_hidden(struct setting *s, pid_t pid, int status)
{
    e2e_wait(&s->t, pid, 60, &s->r);
    if (s->r.status != status)
        fail_msg("status %d: %.*s", s->r.status, (int)s->r.err.len, (const char *)s->r.err.data);
    assert_false(has(s->r.out.data, s->r.out.len, "sk-canary"));
    assert_false(has(s->r.err.data, s->r.err.len, "sk-canary"));
    assert_false(has(s->r.out.data, s->r.out.len, "da84f20"));
    (void)expect_not_below(s->t.state, KEY);
}

static void close_setting(struct setting *s)
{
    e2e_result_free(&s->r);
    e2e_expect_clean(&s->t);
    e2e_close(&s->t);
}

/* ---- what works ---- */

static void works(const char *key, mode_t mode)
{
    struct setting s;
    open_setting(&s, key, mode);
    expect_hidden(&s, spawn(&s), 0);
    assert_int_equal(atomic_load(&server.shared->requests), 1);
    assert_non_null(strstr(server.shared->last, "Authorization: Bearer " KEY "\r\n"));
    assert_true(has(s.r.out.data, s.r.out.len, "it is")); /* the answer that held it was shown */
    assert_true(expect_not_below(s.t.state, KEY) > 0);
    close_setting(&s);
}

static void test_file(void **state)
{
    (void)state;
    works("file = '@'", 0600);
    works("file = '@'", 0400);
}

static void test_command(void **state)
{
    (void)state;
    works("command = { '/bin/cat', '@' }", 0600);
    /* what it says on stderr nobody sees, and it has no input and no descriptors */
    works("command = { '/bin/sh', '-c', 'cat \"$0\"; cat \"$0\" >&2; read x || true; "
          "ls /proc/self/fd | wc -l >&2', '@' }",
          0600);
}

/* While the request is under way. */
static void test_processes(void **state)
{
    struct setting s;
    (void)state;
    open_setting(&s, "file = '@'", 0600);
    atomic_store(&server.shared->mode, ODD_SILENT);
    pid_t pid = spawn(&s);
    for (unsigned i = 0; i < 1000 && atomic_load(&server.shared->requests) == 0; i++)
        (void)usleep(5000);
    assert_non_null(strstr(server.shared->last, KEY));
    assert_true(expect_in_no_process(KEY) > 4);
    expect_hidden(&s, pid, 7); /* TIMEOUT */
    close_setting(&s);
}

/* ---- every kind of failure ---- */

static void test_errors(void **state)
{
    static const struct {
        enum odd_mode mode;
        const char *code;
    } rows[] = {
        {ODD_ECHO_REFUSED, "PROVIDER_STATUS"},   {ODD_HALF, "PROVIDER_TRUNCATED"},
        {ODD_RESET, "PROVIDER_TRUNCATED"},       {ODD_NOISE, "PROVIDER_INVALID_RESPONSE"},
        {ODD_REDIRECT, "PROVIDER_STATUS"},       {ODD_HEADERS, "PROVIDER_INVALID_RESPONSE"},
        {ODD_GZIP, "PROVIDER_INVALID_RESPONSE"},
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct setting s;
        open_setting(&s, "file = '@'", 0600);
        atomic_store(&server.shared->mode, rows[i].mode);
        expect_hidden(&s, spawn(&s), 1);
        if (!has(s.r.err.data, s.r.err.len, rows[i].code))
            fail_msg("mode %d: %.*s", rows[i].mode, (int)s.r.err.len, (const char *)s.r.err.data);
        assert_int_equal(atomic_load(&server.shared->requests), 1);
        assert_non_null(strstr(server.shared->last, KEY));
        close_setting(&s);
    }
}

/* ---- what is refused ---- */

static void refused(const char *key, mode_t mode, void (*spoil)(struct setting *), const char *says)
{
    struct setting s;
    open_setting(&s, key, mode);
    if (spoil)
        spoil(&s);
    expect_hidden(&s, spawn(&s), 5);
    if (!has(s.r.err.data, s.r.err.len, says))
        fail_msg("expected '@': %.*s", says, (int)s.r.err.len, (const char *)s.r.err.data);
    assert_int_equal(atomic_load(&server.shared->connections), 0);
    close_setting(&s);
}

static void make_link(struct setting *s)
{
    char to[200];
    snprintf(to, sizeof(to), "%s.real", s->key_path);
    assert_int_equal(rename(s->key_path, to), 0);
    assert_int_equal(symlink(to, s->key_path), 0);
}

static void make_hard_link(struct setting *s)
{
    char to[200];
    snprintf(to, sizeof(to), "%s.also", s->key_path);
    assert_int_equal(link(s->key_path, to), 0);
}

static void make_missing(struct setting *s)
{
    assert_int_equal(unlink(s->key_path), 0);
}

static void make_fifo(struct setting *s)
{
    make_missing(s);
    assert_int_equal(mkfifo(s->key_path, 0600), 0);
}

static void make_others(struct setting *s)
{
    assert_int_equal(chown(s->key_path, 1234, 1234), 0);
}

static void test_refused_files(void **state)
{
    (void)state;
    refused("file = '@'", 0640, NULL, "'chmod 600' it");
    refused("file = '@'", 0602, NULL, "'chmod 600' it");
    refused("file = '@'", 0600, make_link, "it is a symbolic link");
    refused("file = '@'", 0600, make_hard_link, "a hard link");
    refused("file = '@'", 0600, make_missing, "No such file");
    refused("file = '@'", 0600, make_fifo, "not a regular file");
    if (geteuid() == 0)
        refused("file = '@'", 0600, make_others, "belongs to another user");
}

static void test_refused_commands(void **state)
{
    (void)state;
    refused("command = { '/bin/sh', '-c', 'cat \"$0\"; exit 3', '@' }", 0600, NULL,
            "ended with status 3");
    refused("command = { '/bin/sh', '-c', 'cat \"$0\"; kill -9 $$', '@' }", 0600, NULL,
            "killed by signal 9");
    refused("command = { '/bin/true' }", 0600, NULL, "what was read as the key 'work' is none");
    refused("command = { '@' }", 0600, NULL, "Permission denied");
    refused("command = { '/nonexistent/pass' }", 0600, NULL, "No such file");
    refused("command = { '/bin/sh', '-c', 'cat \"$0\"; yes' , '@' }", 0600, NULL, "the key 'work'");
    refused("command = { '/bin/sh', '-c', 'cat \"$0\"; sleep 100 & sleep 100', '@' }, timeout = 1",
            0600, NULL, "did not say the key 'work' within 1 s");
}

/* ---- certificates and a proxy ---- */

/* Another provider than that of open_setting(), over TLS; `more`: its Lua, '@' is t->dir. */
static void provider(struct setting *s, const char *more, int status, const char *says)
{
    char config[2048], with[512] = "";
    open_setting(s, "file = '@'", 0600);
    for (const char *p = more; *p; p++)
        snprintf(with + strlen(with), sizeof(with) - strlen(with), "%.*s", *p == '@' ? 200 : 1,
                 *p == '@' ? s->t.dir : p);
    snprintf(config, sizeof(config),
             "return { api = 1, keys = { work = { file = '%s' } }, providers = { near = {\n"
             "  base_url = 'https://127.0.0.1:1/v1', key = 'work', connect_timeout = 1, %s } } }\n",
             s->key_path, with);
    e2e_write(&s->t, "bridle.lua", config);
    e2e_write(&s->t, "secret/junk.pem", "no certificate\n");
    expect_hidden(s, spawn(s), status);
    if (!has(s->r.err.data, s->r.err.len, says))
        fail_msg("expected '%s': %.*s", says, (int)s->r.err.len, (const char *)s->r.err.data);
}

static void test_ca_file(void **state)
{
    struct setting s;
    (void)state;
    provider(&s, "ca_file = '@/secret/none.pem'", 5, "No such file");
    close_setting(&s);
    provider(&s, "ca_file = '@/secret'", 5, "is not a regular file");
    close_setting(&s);
    /* nobody listens there, and what is in the file is only looked at when somebody does */
    provider(&s, "ca_file = '@/secret/junk.pem'", 1, "PROVIDER_UNREACHABLE");
    close_setting(&s);
}

static void test_proxy(void **state)
{
    struct setting s;
    char more[64];
    (void)state;
    snprintf(more, sizeof(more), "proxy = 'http://127.0.0.1:%u'", server.port);
    provider(&s, more, 7, "there was no connection within 1 s");
    /* it was asked for a way, and was told nothing else */
    assert_non_null(strstr(server.shared->last, "CONNECT 127.0.0.1:1 HTTP/1.1\r\n"));
    assert_null(strstr(server.shared->last, "sk-"));
    assert_int_equal(atomic_load(&server.shared->requests), 0);
    close_setting(&s);
}

static int setup(void **state)
{
    (void)state;
    odd_start(&server);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    odd_stop(&server);
    return 0;
}

int main(void)
{
    e2e_isolate();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file),          cmocka_unit_test(test_command),
        cmocka_unit_test(test_processes),     cmocka_unit_test(test_errors),
        cmocka_unit_test(test_refused_files), cmocka_unit_test(test_refused_commands),
        cmocka_unit_test(test_ca_file),       cmocka_unit_test(test_proxy),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, setup, teardown);
}
