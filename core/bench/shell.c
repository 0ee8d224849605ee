/*
 * What one shell line costs from the session's side: the question to a real bridle-script, which
 * takes it apart, the answer, and the decision of its commands with a table of 200 rules.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/bench.h"
#include "policy/bench.h"
#include "script/command.h"
#include "wire/wire.h"

#define LINES 1000u

static const char line[] = "DEBUG=1 make -j4 target13 2>&1 | tail -20 > out.txt && git verb1 src";

struct script {
    pid_t pid;
    struct br_chan sup, peer;
    struct br_buf body;
    bool ready, answered;
};

static int on_ready(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    (void)err;
    char code[BR_NAME_MAX];
    br_rd_str(&m->rd, code, sizeof(code));
    ((struct script *)ctx)->ready = strcmp(code, br_code_name(BR_OK)) == 0;
    return 0;
}

static int on_parsed(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    (void)err;
    struct script *s = ctx;
    s->body.len = 0;
    br_buf_put(&s->body, m->rd.p, m->rd.len);
    s->answered = true;
    return 0;
}

static const struct br_msg_rule rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_ready},
    {BR_MSG_SHELL_PARSED, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_parsed},
};

static int script_open(struct script *s, struct br_err *err)
{
    char program[BR_PATH_MAX + 32];
    int sup[2] = {-1, -1}, peer[2] = {-1, -1};
    br_buf_init(&s->body, BR_MSG_MAX);
    snprintf(program, sizeof(program), "%s/bridle-script", bench_bin_path());
    if (br_chan_pair(sup) < 0 || br_chan_pair(peer) < 0)
        return br_err_errno(err, BR_E_IO, "a channel could not be made");
    s->pid = fork();
    if (s->pid == 0) {
        char *argv[] = {(char *)"bridle-script", NULL}, *envp[] = {NULL};
        if (sup[1] == 3)
            (void)fcntl(3, F_SETFD, 0);
        else if (dup2(sup[1], 3) < 0)
            _exit(126);
        execve(program, argv, envp);
        _exit(127);
    }
    br_close(&sup[1]);
    br_chan_init(&s->sup, sup[0], "script", rules, BR_ARRAY_LEN(rules), s);
    br_chan_init(&s->peer, peer[0], "script", rules, BR_ARRAY_LEN(rules), s);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u8(&o.buf, BR_SCRIPT_POLICY);
    br_out_fd(&o, peer[1], true);
    int r = s->pid < 0 ? -BR_E_IO : br_chan_send(&s->sup, BR_MSG_SCRIPT_START, 1, &o, err);
    if (r == 0)
        r = br_chan_dispatch(&s->sup, err);
    if (r == 0 && !s->ready)
        r = br_err_set(err, BR_E_INTERNAL, "bridle-script did not start; lines were not measured");
    return r;
}

static void script_close(struct script *s)
{
    br_chan_close(&s->peer);
    br_chan_close(&s->sup);
    if (s->pid > 0)
        (void)waitpid(s->pid, NULL, 0);
    br_buf_free(&s->body);
}

static int parse_line(void *ctx, const char *text, size_t n, const void **body, size_t *len)
{
    struct script *s = ctx;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_out_blob(&o, text, n);
    s->answered = false;
    int r = br_chan_send(&s->peer, BR_MSG_SHELL, 1, &o, NULL);
    if (r == 0)
        r = br_chan_dispatch(&s->peer, NULL);
    *body = s->body.data;
    *len = s->body.len;
    return r == 0 && !s->answered ? -BR_E_PEER_PROTOCOL : r;
}

int bench_shell_line(double *us, struct br_err *err)
{
    static struct samples lines;
    struct script s = {.pid = -1, .sup = {.fd = -1}, .peer = {.fd = -1}};
    struct br_table *table = NULL;
    lines.n = 0;
    int r = br_bench_table(200, &table, err);
    if (r == 0)
        r = script_open(&s, err);
    const struct br_commander c = {.table = table, .ctx = &s, .shell = parse_line};
    for (unsigned i = 0; r == 0 && i < LINES; i++) {
        struct br_verdict v = {.effect = BR_EFFECT_NONE};
        struct timespec a, b;
        (void)clock_gettime(CLOCK_MONOTONIC, &a);
        br_command_line(&c, line, "", &v);
        (void)clock_gettime(CLOCK_MONOTONIC, &b);
        if (v.opaque || !v.rule_id || strcmp(v.rule_id, "shell-parser") == 0)
            r = br_err_set(err, BR_E_INTERNAL, "a line was not taken apart; nothing was measured");
        br_verdict_free(&v);
        lines.v[lines.n++] =
            (double)(b.tv_sec - a.tv_sec) * 1e6 + (double)(b.tv_nsec - a.tv_nsec) / 1e3;
    }
    script_close(&s);
    br_table_free(&table);
    *us = samples_median(&lines);
    return r;
}
