/*
 * What the tests of core/init share: a workspace to break, calls, and a peer that talks to the
 * real static program, as pid 1 of its own namespaces or as an ordinary process.
 */
#ifndef BR_TEST_INIT_H
#define BR_TEST_INIT_H

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sodium/crypto_hash_sha256.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "init/init_priv.h"

/* ---- workspace ---- */

struct ws {
    char dir[64];
    int fd;
};

__attribute__((unused)) static void ws_make(struct ws *w)
{
    snprintf(w->dir, sizeof(w->dir), "/tmp/bridle-init-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    assert_int_equal(chmod(w->dir, 0755), 0);
    w->fd = open(w->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(w->fd >= 0);
}

__attribute__((unused)) static void ws_remove(struct ws *w)
{
    char cmd[128];
    br_close(&w->fd);
    snprintf(cmd, sizeof(cmd), "rm -rf -- '%s'", w->dir);
    assert_int_equal(system(cmd), 0);
}

__attribute__((unused)) static void ws_put(const struct ws *w, const char *path, const void *p,
                                           size_t n)
{
    int fd = openat(w->fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(br_write_all(fd, p, n), 0);
    close(fd);
}

__attribute__((unused)) static void ws_puts(const struct ws *w, const char *path, const char *s)
{
    ws_put(w, path, s, strlen(s));
}

/* The content of a file, to be freed; NULL if it is not there. */
__attribute__((unused)) static char *ws_get(const struct ws *w, const char *path)
{
    int fd = openat(w->fd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    struct br_buf b = BR_BUF_INIT(BR_BLOB_MAX);
    assert_int_equal(br_read_all(fd, &b, path, NULL), 0);
    close(fd);
    return br_buf_cstr(&b);
}

__attribute__((unused)) static void ws_same(const struct ws *w, const char *path, const char *want)
{
    char *got = ws_get(w, path);
    assert_non_null(got);
    assert_string_equal(got, want);
    free(got);
}

__attribute__((unused)) static bool ws_has(const struct ws *w, const char *path)
{
    struct stat st;
    return fstatat(w->fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* ---- calls ---- */

__attribute__((unused)) static void call_init(struct br_init_call *c, unsigned op, const char *path)
{
    *c = (struct br_init_call){.op = (uint8_t)op};
    snprintf(c->path, sizeof(c->path), "%s", path);
    br_buf_init(&c->text, BR_BLOB_MAX);
    br_buf_init(&c->text2, BR_BLOB_MAX);
    if (op == BR_OP_EXEC) {
        c->timeout_ms = 20000;
        c->output_max = BR_EXEC_OUTPUT_MAX;
    }
}

__attribute__((unused)) static void call_argv(struct br_init_call *c, const char *const *words)
{
    while (words[c->argc]) {
        c->argv[c->argc] = strdup(words[c->argc]);
        c->argc++;
    }
}

__attribute__((unused)) static void call_sh(struct br_init_call *c, const char *script)
{
    const char *words[] = {"/bin/sh", "-c", script, NULL};
    call_argv(c, words);
}

__attribute__((unused)) static void call_grant(const struct br_init_call *c, uint64_t serial,
                                               struct br_grant_ref *g)
{
    *g = (struct br_grant_ref){.serial = serial, .call_id = "call_1"};
    const char *action = c->op == BR_OP_EXEC                                 ? "process.exec"
                         : c->op == BR_OP_FS_WRITE || c->op == BR_OP_FS_EDIT ? "fs.write"
                                                                             : "fs.read";
    snprintf(g->action, sizeof(g->action), "%s", action);
    struct br_buf s = BR_BUF_INIT(BR_BLOB_MAX);
    if (c->op != BR_OP_EXEC)
        br_buf_put(&s, c->path, strlen(c->path));
    else if (c->flag)
        br_buf_put(&s, c->argv[2], strlen(c->argv[2]));
    else
        br_exec_subject(c->argv, c->argc, &s);
    crypto_hash_sha256(g->subject_sha256, s.data ? s.data : (const uint8_t *)"", s.len);
    br_buf_free(&s);
}

/* ---- one result ---- */

struct result {
    int code; /* 0 or positive */
    struct br_err err;
    json_t *json; /* NULL if there is none */
};

__attribute__((unused)) static void result_free(struct result *r)
{
    json_decref(r->json);
    r->json = NULL;
}

/* Parse what must be a JSON object within the limits of tool results. */
__attribute__((unused)) static json_t *parse_json(const void *p, size_t n)
{
    assert_int_equal(br_json_scan(p, n, BR_JSON_DEPTH_MAX, BR_JSON_NODES_MAX, NULL), 0);
    json_t *j = json_loadb(p, n, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(j);
    return j;
}

/* Run an operation in this process, and free the call. */
__attribute__((unused)) static struct result run_op(struct br_init *in, br_init_op_fn *op,
                                                    struct br_init_call *c)
{
    struct result r = {.code = 0};
    struct br_buf out = BR_BUF_INIT(BR_TOOL_RESULT_MAX);
    r.code = -op(in, c, &out, &r.err);
    assert_true(r.code >= 0);
    assert_false(out.failed);
    if (r.code)
        assert_int_equal(r.code, r.err.code);
    if (out.len)
        r.json = parse_json(out.data, out.len);
    else
        assert_int_not_equal(r.code, 0);
    br_buf_free(&out);
    br_init_call_free(c);
    return r;
}

__attribute__((unused)) static const char *res_str(const struct result *r, const char *key)
{
    const char *s = json_string_value(json_object_get(r->json, key));
    assert_non_null(s);
    return s;
}

__attribute__((unused)) static long long res_int(const struct result *r, const char *key)
{
    json_t *v = json_object_get(r->json, key);
    assert_true(json_is_integer(v));
    return json_integer_value(v);
}

__attribute__((unused)) static bool res_bool(const struct result *r, const char *key)
{
    json_t *v = json_object_get(r->json, key);
    assert_true(json_is_boolean(v));
    return json_is_true(v);
}

__attribute__((unused)) static void assert_refused(struct result *r, int code, const char *text)
{
    if (r->code != code || !strstr(r->err.text, text))
        print_error("got %s: %s\n", br_code_name(r->code), r->err.text);
    assert_int_equal(r->code, code);
    assert_non_null(strstr(r->err.text, text));
    result_free(r);
}

__attribute__((unused)) static void sleep_ms(unsigned ms)
{
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
        ;
}

/* ---- a peer of the real program ---- */

struct peer {
    struct br_chan chan;
    pid_t pid;
    uint64_t serial;
    json_t *ready;
    bool answered;
    struct result result;
    unsigned progress;
};

__attribute__((unused)) static int on_ready(struct br_chan *c, struct br_msg *m, void *ctx,
                                            struct br_err *err)
{
    (void)c;
    struct peer *p = ctx;
    struct br_buf b;
    assert_int_equal(br_msg_blob(m, BR_BLOB_MAX, &b, err), 0);
    p->ready = parse_json(b.data, b.len);
    br_buf_free(&b);
    return 0;
}

__attribute__((unused)) static int on_result(struct br_chan *c, struct br_msg *m, void *ctx,
                                             struct br_err *err)
{
    (void)c;
    struct peer *p = ctx;
    struct br_buf b;
    bool ok = br_rd_u8(&m->rd) != 0;
    p->result = (struct result){.code = (int)br_rd_u32(&m->rd)};
    br_rd_str(&m->rd, p->result.err.text, sizeof(p->result.err.text));
    assert_int_equal(br_msg_blob(m, BR_TOOL_RESULT_MAX, &b, err), 0);
    assert_int_equal(br_rd_done(&m->rd), 0);
    assert_int_equal(ok, p->result.code == 0);
    assert_int_equal(m->id, 7);
    if (b.len)
        p->result.json = parse_json(b.data, b.len);
    br_buf_free(&b);
    p->answered = true;
    return 0;
}

__attribute__((unused)) static int on_changes(struct br_chan *c, struct br_msg *m, void *ctx,
                                              struct br_err *err)
{
    (void)c;
    struct peer *p = ctx;
    struct br_buf b;
    p->result = (struct result){.code = 0};
    assert_int_equal(br_msg_blob(m, BR_TOOL_JSON_MAX, &b, err), 0);
    p->result.json = parse_json(b.data, b.len);
    br_buf_free(&b);
    p->answered = true;
    return 0;
}

__attribute__((unused)) static int on_progress_msg(struct br_chan *c, struct br_msg *m, void *ctx,
                                                   struct br_err *err)
{
    (void)c;
    (void)err;
    struct peer *p = ctx;
    p->progress++;
    br_rd_u64(&m->rd);
    br_rd_u64(&m->rd);
    assert_in_range(br_rd_u64(&m->rd), 900, 60000);
    assert_int_equal(br_rd_done(&m->rd), 0);
    assert_int_equal(m->id, 7);
    return 0;
}

static const struct br_msg_rule peer_rules[] = {
    {BR_MSG_INIT_READY, BR_PERMIT | BR_ONCE, 1, BR_MSG_MAX, 0, 1, on_ready},
    {BR_MSG_INIT_RESULT, BR_PERMIT, 1, BR_MSG_MAX, 0, 1, on_result},
    {BR_MSG_INIT_CHANGES, BR_PERMIT, 1, BR_MSG_MAX, 0, 1, on_changes},
    {BR_MSG_INIT_PROGRESS, BR_PERMIT, 24, 24, 0, 0, on_progress_msg},
};

__attribute__((unused)) static const char *init_program(char dst[BR_PATH_MAX])
{
    const char *bin = getenv("BRIDLE_BIN");
    assert_non_null(bin);
    snprintf(dst, BR_PATH_MAX, "%s/bridle-init", bin);
    return dst;
}

static void put_map(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || br_write_all(fd, text, strlen(text)) < 0)
        _exit(111);
    close(fd);
}

/* In the child: namespaces for a pid 1, then the identity, the descriptors, the program. */
static void peer_child(const struct ws *w, int fd, int gate, bool pid1, bool as_root)
{
    char program[BR_PATH_MAX], c;
    char *const argv[] = {(char[]){"bridle-init"}, NULL};
    char *const envp[] = {(char[]){"SECRET_OF_HOST=1"}, (char[]){"PATH=/nowhere"}, NULL};
    if (read(gate, &c, 1) != 1)
        _exit(110);
    if (pid1 && (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
                 mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0))
        _exit(112);
    /* opened while root: the build may lie where uid 1000 does not get to */
    int binary = open(init_program(program), O_RDONLY | O_CLOEXEC);
    if (as_root && (setgid(1000) < 0 || setuid(1000) < 0))
        _exit(113);
    int null = open("/dev/null", O_RDWR);
    if (chdir(w->dir) < 0 || dup2(fd, 60) < 0)
        _exit(114);
    for (int i = 0; i < 3; i++)
        if (dup2(null, i) < 0)
            _exit(115);
    if (dup2(60, 3) < 0 || dup2(null, 9) < 0) /* 9: one that must not be passed on */
        _exit(116);
    fexecve(binary, argv, envp);
    _exit(117);
}

/*
 * Start the static program. As root it gets uid 1000, as bridle-launch would give it, and the
 * workspace with it; as an ordinary user a pid 1 gets a user namespace.
 */
__attribute__((unused)) static void peer_start(struct peer *p, const struct ws *w, bool pid1)
{
    int fds[2], gate[2];
    bool root = geteuid() == 0;
    *p = (struct peer){.pid = -1};
    assert_int_equal(br_chan_pair(fds), 0);
    assert_int_equal(pipe2(gate, O_CLOEXEC), 0);
    if (root) {
        char cmd[128];
        snprintf(cmd, sizeof(cmd), "chown -hR 1000:1000 '%s'", w->dir);
        assert_int_equal(system(cmd), 0);
    }
    unsigned long flags = SIGCHLD;
    if (pid1)
        flags |= CLONE_NEWPID | CLONE_NEWNS | (root ? 0 : CLONE_NEWUSER);
    long pid = syscall(SYS_clone, flags, NULL, NULL, NULL, NULL);
    assert_true(pid >= 0);
    if (pid == 0) {
        close(gate[1]);
        peer_child(w, fds[1], gate[0], pid1, root);
    }
    p->pid = (pid_t)pid;
    if (pid1 && !root) {
        char path[64], map[64];
        snprintf(path, sizeof(path), "/proc/%ld/setgroups", pid);
        put_map(path, "deny");
        snprintf(path, sizeof(path), "/proc/%ld/uid_map", pid);
        snprintf(map, sizeof(map), "1000 %u 1", (unsigned)getuid());
        put_map(path, map);
        snprintf(path, sizeof(path), "/proc/%ld/gid_map", pid);
        snprintf(map, sizeof(map), "1000 %u 1", (unsigned)getgid());
        put_map(path, map);
    }
    assert_int_equal(write(gate[1], "x", 1), 1);
    close(gate[0]);
    close(gate[1]);
    close(fds[1]);
    br_chan_init(&p->chan, fds[0], "init", peer_rules, BR_ARRAY_LEN(peer_rules), p);
    struct br_err err = {.code = 0};
    int r = br_chan_dispatch(&p->chan, &err);
    if (r < 0) {
        int status = 0;
        waitpid(p->pid, &status, 0);
        print_error("%s; exit %d\n", err.text, WEXITSTATUS(status));
    }
    assert_int_equal(r, 0);
    assert_non_null(p->ready);
}

/* The exit status of the program after its channel was closed. */
__attribute__((unused)) static int peer_end(struct peer *p)
{
    int status = -1;
    br_chan_close(&p->chan);
    json_decref(p->ready);
    p->ready = NULL;
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    return status;
}

__attribute__((unused)) static void peer_send(struct peer *p, const struct br_init_call *c,
                                              const struct br_grant_ref *g)
{
    struct br_out o = BR_OUT_INIT;
    br_grant_ref_put(&o.buf, g);
    br_init_call_put(&o, c);
    p->answered = false;
    assert_int_equal(br_chan_send(&p->chan, BR_MSG_INIT_CALL, 7, &o, NULL), 0);
    br_out_free(&o);
}

/* Wait for the answer. */
__attribute__((unused)) static struct result peer_wait(struct peer *p)
{
    while (!p->answered)
        assert_int_equal(br_chan_dispatch(&p->chan, NULL), 0);
    return p->result;
}

/* A call with a good grant, whose call is then freed. */
__attribute__((unused)) static struct result peer_call(struct peer *p, struct br_init_call *c)
{
    struct br_grant_ref g;
    call_grant(c, ++p->serial, &g);
    peer_send(p, c, &g);
    br_init_call_free(c);
    return peer_wait(p);
}

#endif
