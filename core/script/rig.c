/*
 * The test rig: starts bridle-script from $BRIDLE_BIN as bridled would and reads its answers.
 * Linked into tests only.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "script/rig.h"

/* Far beyond every limit of the program: its own are in CPU time, and the machine may be busy. */
#define RIG_WAIT_MS 90000u

static void answer_clear(struct rig_answer *a)
{
    json_decref(a->table);
    json_decref(a->manifest);
    json_decref(a->launch);
    json_decref(a->warnings);
    json_decref(a->errors);
    json_decref(a->commands);
    br_buf_free(&a->body);
    memset(a, 0, sizeof(*a));
}

static json_t *read_json(struct br_msg *m)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(0);
    assert_int_equal(br_msg_blob(m, BR_BLOB_MAX, &b, NULL), 0);
    json_t *v = json_loadb((const char *)b.data, b.len, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(v);
    return v;
}

static json_t *read_texts(struct br_msg *m)
{
    json_t *list = json_array();
    uint32_t n = br_rd_u32(&m->rd);
    for (uint32_t i = 0; i < n && !m->rd.failed; i++) {
        size_t len;
        const char *s = br_rd_lstr(&m->rd, BR_MSG_MAX, &len);
        json_array_append_new(list, json_stringn(s ? s : "", len));
    }
    return list;
}

static int on_answer(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    (void)err;
    struct rig_answer *a = &((struct rig *)ctx)->a;
    a->type = m->type;
    a->id = m->id;
    switch ((unsigned)m->type) {
    case BR_MSG_SCRIPT_FAILED:
        a->code = br_rd_u32(&m->rd);
        br_rd_str(&m->rd, a->text, sizeof(a->text));
        br_rd_str(&m->rd, a->file, sizeof(a->file));
        a->line = br_rd_u32(&m->rd);
        break;
    case BR_MSG_COMPILE_ERRORS:
        a->errors = read_texts(m);
        break;
    case BR_MSG_COMPILED:
        a->table = read_json(m);
        a->manifest = read_json(m);
        a->launch = read_json(m);
        a->warnings = read_texts(m);
        br_rd_str(&m->rd, a->file, sizeof(a->file));
        a->line = br_rd_u32(&m->rd);
        break;
    case BR_MSG_SHELL_PARSED:
        br_buf_init(&a->body, BR_MSG_MAX);
        br_buf_put(&a->body, m->rd.p, m->rd.len);
        a->flag = br_rd_u8(&m->rd) & 1;
        br_rd_str(&m->rd, a->text, sizeof(a->text));
        a->commands = json_array();
        for (uint32_t n = br_rd_u32(&m->rd); n > 0 && !m->rd.failed; n--) {
            json_decref(read_texts(m)); /* variables */
            json_array_append_new(a->commands, read_texts(m));
        }
        for (uint32_t n = br_rd_u32(&m->rd); n > 0 && !m->rd.failed; n--) {
            br_rd_u8(&m->rd);
            free(br_rd_strdup(&m->rd, BR_MSG_MAX));
        }
        break;
    case BR_MSG_PREDICATE_VOTE:
        a->flag = br_rd_u8(&m->rd);
        br_rd_str(&m->rd, a->file, sizeof(a->file));
        br_rd_str(&m->rd, a->text, sizeof(a->text));
        break;
    case BR_MSG_VALUE_FITS:
        break;
    case BR_MSG_ADAPT_BUILT:
        br_rd_str(&m->rd, a->file, sizeof(a->file));
        assert_int_equal(br_msg_blob(m, BR_BLOB_MAX, &a->body, NULL), 0);
        br_rd_str(&m->rd, a->text, sizeof(a->text));
        break;
    case BR_MSG_ADAPT_DELTA:
    case BR_MSG_ADAPT_RESPONSE:
        assert_int_equal(br_msg_blob(m, BR_BLOB_MAX, &a->body, NULL), 0);
        break;
    case BR_MSG_SCRIPT_CONFIGURED:
        br_buf_init(&a->body, BR_MSG_MAX);
        br_buf_put(&a->body, m->rd.p, m->rd.len);
        return 0;
    case BR_MSG_SCRIPT_TASKED: {
        br_rd_str(&m->rd, a->text, sizeof(a->text));
        uint64_t tokens = br_rd_u64(&m->rd);
        a->line = (uint32_t)(tokens * 1000 + br_rd_u64(&m->rd));
        break;
    }
    default: /* ROLE_READY */
        br_rd_str(&m->rd, a->file, sizeof(a->file));
        br_rd_str(&m->rd, a->text, sizeof(a->text));
        break;
    }
    assert_int_equal(br_rd_done(&m->rd), 0);
    return 0;
}

static const struct br_msg_rule rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_answer},
    {BR_MSG_SCRIPT_CONFIGURED, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_answer},
    {BR_MSG_SCRIPT_TASKED, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_answer},
    {BR_MSG_SCRIPT_FAILED, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_answer},
    {BR_MSG_COMPILED, BR_PERMIT, 0, BR_MSG_MAX, 0, 2, on_answer},
    {BR_MSG_COMPILE_ERRORS, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_answer},
    {BR_MSG_SHELL_PARSED, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_answer},
    {BR_MSG_PREDICATE_VOTE, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_answer},
    {BR_MSG_VALUE_FITS, BR_PERMIT, 0, 0, 0, 0, on_answer},
    {BR_MSG_ADAPT_BUILT, BR_PERMIT, 0, BR_MSG_MAX, 0, 1, on_answer},
    {BR_MSG_ADAPT_DELTA, BR_PERMIT, 0, BR_MSG_MAX, 0, 1, on_answer},
    {BR_MSG_ADAPT_RESPONSE, BR_PERMIT, 0, BR_MSG_MAX, 0, 1, on_answer},
};

static void wait_on(struct rig *g, struct br_chan *c, unsigned timeout_ms)
{
    answer_clear(&g->a);
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    if (poll(&p, 1, (int)timeout_ms) <= 0)
        return;
    struct br_err err = {.code = BR_OK};
    int r = br_chan_dispatch(c, &err);
    if (r == -BR_E_PEER_GONE)
        g->a.type = 1;
    else if (r < 0)
        fail_msg("%s", err.text);
    else if (g->a.type == BR_MSG_COMPILE_ERRORS) /* what it is about comes at once */
        assert_int_equal(br_chan_dispatch(c, NULL), 0);
}

void rig_wait(struct rig *g, unsigned timeout_ms)
{
    wait_on(g, g->peer.fd >= 0 ? &g->peer : &g->sup, timeout_ms);
}

void rig_start(struct rig *g, enum br_script_purpose purpose)
{
    rig_start_as(g, purpose, 0);
}

void rig_start_as(struct rig *g, enum br_script_purpose purpose, uid_t uid)
{
    int sup[2], peer[2] = {-1, -1};
    char program[BR_PATH_MAX];
    memset(g, 0, sizeof(*g));
    g->peer.fd = -1;
    const char *bin = getenv("BRIDLE_BIN");
    assert_non_null(bin);
    snprintf(program, sizeof(program), "%s/bridle-script", bin);
    assert_int_equal(br_chan_pair(sup), 0);
    if (purpose != BR_SCRIPT_CONFIG)
        assert_int_equal(br_chan_pair(peer), 0);
    /* by descriptor, as bridled does: another user may not reach the path */
    BR_CLEANUP_FD int exe = open(program, O_RDONLY | O_CLOEXEC);
    assert_true(exe >= 0);
    g->pid = fork();
    assert_true(g->pid >= 0);
    if (g->pid == 0) {
        if (uid && (setgroups(0, NULL) < 0 || setgid(uid) < 0 || setuid(uid) < 0))
            _exit(125);
        char *argv[] = {(char *)"bridle-script", NULL}, *envp[] = {NULL, NULL};
#ifdef BR_SANITIZED
        /* the leak checker needs a thread and ptrace, which the role has given up */
        envp[0] = (char *)"ASAN_OPTIONS=detect_leaks=0";
#endif
        if (sup[1] == 3)
            (void)fcntl(3, F_SETFD, 0);
        else if (dup2(sup[1], 3) < 0)
            _exit(126);
        fexecve(exe, argv, envp);
        _exit(127);
    }
    br_close(&sup[1]);
    br_chan_init(&g->sup, sup[0], "script", rules, BR_ARRAY_LEN(rules), g);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u8(&o.buf, (uint8_t)purpose);
    if (purpose != BR_SCRIPT_CONFIG) {
        br_out_fd(&o, peer[1], true);
        br_chan_init(&g->peer, peer[0], "script", rules, BR_ARRAY_LEN(rules), g);
    }
    assert_int_equal(br_chan_send(&g->sup, BR_MSG_SCRIPT_START, 1, &o, NULL), 0);
    wait_on(g, &g->sup, 10000);
    assert_int_equal(g->a.type, BR_MSG_ROLE_READY);
    assert_string_equal(g->a.file, "OK");
}

int rig_ended(struct rig *g, unsigned timeout_ms)
{
    int status = -1;
    for (unsigned t = 0; t < timeout_ms; t += 5) {
        pid_t r = waitpid(g->pid, &status, WNOHANG);
        if (r == g->pid) {
            answer_clear(&g->a);
            br_chan_close(&g->peer);
            br_chan_close(&g->sup);
            return status;
        }
        usleep(5000);
    }
    kill(g->pid, SIGKILL);
    (void)waitpid(g->pid, &status, 0);
    fail_msg("the process did not end by itself");
    return -1;
}

int rig_stop(struct rig *g)
{
    br_chan_close(&g->peer);
    br_chan_close(&g->sup);
    return rig_ended(g, 10000);
}

void rig_compile_n(struct rig *g, const void *policy, size_t policy_len, const void *manifest,
                   size_t manifest_len, bool in_workspace)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, g->profile_path ? g->profile_path : "");
    br_buf_put_str(&o.buf, g->profile ? g->profile : "");
    br_buf_put_str(&o.buf, "/etc/somewhere/policy.lua");
    br_out_blob(&o, policy, policy_len);
    br_buf_put_str(&o.buf, manifest_len ? "tasks/task.yaml" : "");
    br_out_blob(&o, manifest, manifest_len);
    br_buf_put_u8(&o.buf, in_workspace);
    br_out_blob(&o, "make the test pass", 18);
    br_buf_put_u32(&o.buf, 1);
    br_buf_put_str(&o.buf, "src/**");
    assert_int_equal(br_chan_send(&g->peer, BR_MSG_COMPILE, 7, &o, NULL), 0);
    rig_wait(g, RIG_WAIT_MS);
}

void rig_compile(struct rig *g, const char *policy, const char *manifest)
{
    rig_compile_n(g, policy, policy ? strlen(policy) : 0, manifest, manifest ? strlen(manifest) : 0,
                  false);
}

static void send_blob(struct rig *g, enum br_msg_type type, const char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_out_blob(&o, text, strlen(text));
    assert_int_equal(br_chan_send(&g->peer, type, 9, &o, NULL), 0);
    rig_wait(g, RIG_WAIT_MS);
}

void rig_shell(struct rig *g, const char *text)
{
    send_blob(g, BR_MSG_SHELL, text);
}

void rig_predicate(struct rig *g, const char *request)
{
    send_blob(g, BR_MSG_PREDICATE, request);
}

const json_t *rig_rule(const struct rig *g, const char *id)
{
    const json_t *list = json_object_get(g->a.table, "rules");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *rule = json_array_get(list, i);
        const char *s = json_string_value(json_object_get(rule, "id"));
        if (s && strcmp(s, id) == 0)
            return rule;
    }
    return NULL;
}
