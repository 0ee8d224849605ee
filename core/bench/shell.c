/*
 * What bridle-script costs from the session's side: a shell line (the question, which takes it
 * apart, the answer, and the decision of its commands) and a decision with a check in Lua, each
 * with a table of 200 rules; one question after another, and each after a pause in which both
 * programs and their processors have gone to sleep. The ways are the session's
 * (core/session/script.c).
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/bench.h"
#include "policy/bench.h"
#include "script/command.h"
#include "script/question.h"
#include "wire/wire.h"

#define LINES 1000u
#define PAUSES 100u
#define PAUSE_US 2000u

static const char checks[] =
    "local policy = require 'bridle.policy'\n"
    "return policy.bundle { api = 1, name = 'bench', rules = {},\n"
    "  check = function(request)\n"
    "    if request.action == 'process.exec' and request.budget.calls.used > 500\n"
    "      and request.subject:find('^git push') then\n"
    "      return 'ask', 'it has pushed often enough'\n"
    "    end\n"
    "  end }\n";
static const char line[] = "DEBUG=1 make -j4 target13 2>&1 | tail -20 > out.txt && git verb1 src";

struct script {
    pid_t pid;
    struct br_chan sup, peer;
    struct br_buf body;
    bool ready, compiled, answered;
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

static int on_compiled(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    (void)m;
    (void)err;
    ((struct script *)ctx)->compiled = true;
    return 0;
}

static const struct br_msg_rule rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_ready},
    {BR_MSG_SHELL_PARSED, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_parsed},
    {BR_MSG_PREDICATE_VOTE, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_parsed},
    {BR_MSG_COMPILED, BR_PERMIT, 0, BR_MSG_MAX, 0, 2, on_compiled},
};

static int script_open(struct script *s, struct br_err *err)
{
    int end, peer[2] = {-1, -1};
    br_buf_init(&s->body, BR_MSG_MAX);
    if (br_chan_pair(peer) < 0)
        return br_err_errno(err, BR_E_IO, "a channel could not be made");
    int r = bench_role_start("bridle-script", false, &s->pid, &end, err);
    br_chan_init(&s->sup, end, "script", rules, BR_ARRAY_LEN(rules), s);
    br_chan_init(&s->peer, peer[0], "script", rules, BR_ARRAY_LEN(rules), s);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u8(&o.buf, BR_SCRIPT_POLICY);
    br_out_fd(&o, peer[1], true);
    if (r == 0)
        r = br_chan_send(&s->sup, BR_MSG_SCRIPT_START, 1, &o, err);
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

static int compile_checks(struct script *s, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, ""); /* the usual profile */
    br_buf_put_str(&o.buf, "");
    br_buf_put_str(&o.buf, "bench.lua");
    br_out_blob(&o, checks, sizeof(checks) - 1);
    br_buf_put_str(&o.buf, ""); /* no manifest */
    br_out_blob(&o, "", 0);
    br_buf_put_u8(&o.buf, 0);
    br_out_blob(&o, "measure", 7);
    br_buf_put_u32(&o.buf, 0);
    int r = br_chan_send(&s->peer, BR_MSG_COMPILE, 1, &o, err);
    if (r == 0)
        r = br_chan_dispatch(&s->peer, err);
    if (r == 0 && !s->compiled)
        r = br_err_set(err, BR_E_INTERNAL, "a check did not compile; it was not measured");
    return r;
}

static int ask(struct script *s, enum br_msg_type type, const struct br_out *question)
{
    s->answered = false;
    int r = br_chan_send(&s->peer, type, 1, question, NULL);
    if (r == 0) {
        (void)br_chan_soon(&s->peer, BR_ANSWER_SOON_US);
        r = br_chan_dispatch(&s->peer, NULL);
    }
    return r == 0 && !s->answered ? -BR_E_PEER_PROTOCOL : r;
}

static int parse_line(void *ctx, const char *text, size_t n, const void **body, size_t *len)
{
    struct script *s = ctx;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_out_blob(&o, text, n);
    int r = ask(s, BR_MSG_SHELL, &o);
    *body = s->body.data;
    *len = s->body.len;
    return r;
}

static int decide_line(struct script *s, const struct br_table *table)
{
    const struct br_commander c = {.table = table, .ctx = s, .shell = parse_line};
    struct br_verdict v = {.effect = BR_EFFECT_NONE};
    br_command_line(&c, line, "", &v);
    bool decided = !v.opaque && v.rule_id && strcmp(v.rule_id, "shell-parser") != 0;
    br_verdict_free(&v);
    return decided ? 0 : -1;
}

/* A command that the table lets through, and then the check. */
static int decide_checked(struct script *s, const struct br_table *table)
{
    static const char *const words[] = {"git", "verb1", "src"};
    static const struct br_context context = {.tool = "process_exec",
                                              .model = "model",
                                              .has_env = true,
                                              .has_time = true,
                                              .unix_time = 1767571200,
                                              .has_local = true,
                                              .counters = {{true, 12, 88}, {true, 0, 5000}}};
    const struct br_request q = {
        .action = "process.exec", .words = words, .nwords = 3, .context = &context};
    struct br_decision d;
    br_table_decide(table, &q, &d);
    const struct br_question question = {.action = q.action,
                                         .subject = "git verb1 src",
                                         .call_id = "call-1",
                                         .effect = d.effect,
                                         .words = words,
                                         .nwords = 3,
                                         .context = &context};
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(BR_TOOL_JSON_MAX);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    int r = br_question_put(&text, &question);
    br_out_blob(&o, text.data, text.len);
    if (r == 0)
        r = ask(s, BR_MSG_PREDICATE, &o);
    struct br_rd rd;
    char rule[BR_NAME_MAX], reason[BR_ERR_TEXT_MAX];
    br_rd_init(&rd, s->body.data, s->body.len);
    uint8_t effect = br_rd_u8(&rd);
    br_rd_str(&rd, rule, sizeof(rule));
    br_rd_str(&rd, reason, sizeof(reason));
    return r == 0 && br_rd_done(&rd) == 0 && effect == BR_EFFECT_NONE ? 0 : -1;
}

static int measure(struct script *s, const struct br_table *table,
                   int (*decide)(struct script *, const struct br_table *), unsigned pause_us,
                   double *us, struct br_err *err)
{
    static struct samples samples;
    samples.n = 0;
    for (unsigned i = 0; i < (pause_us ? PAUSES : LINES); i++) {
        struct timespec a, b;
        if (pause_us)
            (void)usleep(pause_us);
        (void)clock_gettime(CLOCK_MONOTONIC, &a);
        int r = decide(s, table);
        (void)clock_gettime(CLOCK_MONOTONIC, &b);
        if (r < 0)
            return br_err_set(err, BR_E_INTERNAL,
                              "bridle-script gave no usable answer; nothing was measured");
        samples.v[samples.n++] =
            (double)(b.tv_sec - a.tv_sec) * 1e6 + (double)(b.tv_nsec - a.tv_nsec) / 1e3;
    }
    *us = samples_median(&samples);
    return 0;
}

int bench_questions(struct bench_questions *q, struct br_err *err)
{
    struct script s = {.pid = -1, .sup = {.fd = -1}, .peer = {.fd = -1}};
    struct br_table *table = NULL;
    int r = br_bench_table(200, &table, err);
    if (r == 0)
        r = script_open(&s, err);
    if (r == 0)
        r = compile_checks(&s, err);
    if (r == 0)
        r = measure(&s, table, decide_line, 0, &q->line_us, err);
    if (r == 0)
        r = measure(&s, table, decide_checked, 0, &q->check_us, err);
    if (r == 0)
        r = measure(&s, table, decide_line, PAUSE_US, &q->line_alone_us, err);
    if (r == 0)
        r = measure(&s, table, decide_checked, PAUSE_US, &q->check_alone_us, err);
    script_close(&s);
    br_table_free(&table);
    return r;
}
