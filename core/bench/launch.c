/*
 * A client of bridle-launch and bridle-init, as bridled and bridle-session are: it sends plans,
 * calls programs and waits for the verified end. Synchronous, since that is what is measured.
 */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "wire/types.h"
#include "wire/wire.h"

struct bench_launcher {
    pid_t pid;
    int workspace, pidfd;
    struct br_chan launch, init;
    struct br_plan plan;
    bool ready, started, stopped, result, verified;
    uint64_t serial;
    char text[BR_ERR_TEXT_MAX];
};

static int on_ready(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct bench_launcher *l = ctx;
    (void)m, (void)err;
    l->ready |= c == &l->launch;
    return 0;
}

static int on_started(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct bench_launcher *l = ctx;
    (void)c, (void)err;
    br_close(&l->pidfd);
    l->pidfd = br_msg_take_fd(m);
    l->started = true;
    return 0;
}

static int on_refused(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct bench_launcher *l = ctx;
    (void)c;
    uint32_t code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, l->text, sizeof(l->text));
    return br_err_set(err, code && code < BR_CODE_COUNT_ ? (enum br_code)code : BR_E_FAILED, "%s",
                      l->text);
}

static int on_stopped(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct bench_launcher *l = ctx;
    (void)c, (void)err;
    l->verified = br_rd_u8(&m->rd);
    l->stopped = true;
    return 0;
}

static int on_result(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct bench_launcher *l = ctx;
    (void)c;
    l->result = true;
    return br_rd_u8(&m->rd) ? 0 : br_err_set(err, BR_E_FAILED, "a call in the sandbox failed");
}

static const struct br_msg_rule launch_rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_ready},
    {BR_MSG_LAUNCH_STARTED, BR_PERMIT, 0, BR_MSG_MAX, 0, 2, on_started},
    {BR_MSG_LAUNCH_REFUSED, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_refused},
    {BR_MSG_LAUNCH_STOPPED, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_stopped},
};

static const struct br_msg_rule init_rules[] = {
    {BR_MSG_INIT_READY, BR_PERMIT, 0, BR_MSG_MAX, 0, 1, on_ready},
    {BR_MSG_INIT_PROGRESS, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_ready},
    {BR_MSG_INIT_RESULT, BR_PERMIT, 0, BR_MSG_MAX, 0, 1, on_result},
};

static int receive_until(struct br_chan *c, const bool *done, struct br_err *err)
{
    int r = 0;
    while (r == 0 && !*done)
        r = br_chan_dispatch(c, err);
    return r;
}

int bench_launcher_open(struct bench_launcher **out, const char *dir, const char *workspace,
                        unsigned pool, struct br_err *err)
{
    char path[BR_PATH_MAX];
    struct bench_launcher *l = calloc(1, sizeof(*l));
    int ends[2];
    br_require(l);
    *out = l;
    l->init.fd = l->launch.fd = l->pidfd = -1;
    l->workspace = open(workspace, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(path, sizeof(path), "%s/bridle-launch", dir);
    if (l->workspace < 0 || br_chan_pair(ends) < 0)
        return br_err_errno(err, BR_E_IO, "the launcher could not be started");
    l->pid = fork();
    if (l->pid == 0) {
        char number[16];
        snprintf(number, sizeof(number), "%u", pool);
        const char *const argv[] = {"bridle-launch", "--pool", number, NULL};
        char *const env[] = {NULL};
        int null = open("/dev/null", O_RDWR);
        if (dup2(ends[1], 3) == 3 && dup2(null, 0) == 0 && dup2(null, 1) == 1)
            execve(path, (char *const *)argv, env);
        _exit(127);
    }
    close(ends[1]);
    br_chan_init(&l->launch, ends[0], "launch", launch_rules, BR_ARRAY_LEN(launch_rules), l);
    br_plan_default(&l->plan);
    return 0;
}

void bench_launcher_close(struct bench_launcher **lp)
{
    struct bench_launcher *l = *lp;
    if (!l)
        return;
    br_chan_close(&l->init);
    br_chan_close(&l->launch);
    br_close(&l->workspace);
    br_close(&l->pidfd);
    if (l->pid > 0)
        waitpid(l->pid, NULL, 0);
    free(l);
    *lp = NULL;
}

int bench_launcher_ready(struct bench_launcher *l, struct br_err *err)
{
    return receive_until(&l->launch, &l->ready, err);
}

static int send_plan(struct bench_launcher *l, struct br_err *err)
{
    int ends[2];
    if (br_chan_pair(ends) < 0)
        return br_err_errno(err, BR_E_IO, "no channel for pid 1");
    l->started = l->stopped = false;
    l->serial = 0;
    br_chan_init(&l->init, ends[0], "init", init_rules, BR_ARRAY_LEN(init_rules), l);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_plan_put(&o.buf, &l->plan);
    br_out_fd(&o, l->workspace, false);
    br_out_fd(&o, ends[1], true);
    return br_chan_send(&l->launch, BR_MSG_LAUNCH_PLAN, 0, &o, err);
}

static int send_true(struct bench_launcher *l, struct br_err *err)
{
    static const char subject[] = "/bin/true";
    char *word = (char *)subject;
    struct br_grant_ref g = {.serial = ++l->serial, .call_id = "bench", .action = "process.exec"};
    struct br_init_call call = {
        .op = BR_OP_EXEC, .argc = 1, .timeout_ms = 10000, .output_max = 4096};
    call.argv[0] = word;
    crypto_hash_sha256(g.subject_sha256, (const unsigned char *)subject, strlen(subject));
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_grant_ref_put(&o.buf, &g);
    br_init_call_put(&o, &call);
    l->result = false;
    return br_chan_send(&l->init, BR_MSG_INIT_CALL, l->serial, &o, err);
}

int bench_sandbox_start(struct bench_launcher *l, struct br_err *err)
{
    int r = send_plan(l, err);
    return r < 0 ? r : receive_until(&l->launch, &l->started, err);
}

int bench_sandbox_true(struct bench_launcher *l, struct br_err *err)
{
    int r = send_true(l, err);
    return r < 0 ? r : receive_until(&l->init, &l->result, err);
}

int bench_sandbox_end(struct bench_launcher *l, uint64_t *exit_us, struct br_err *err)
{
    struct pollfd ended = {.fd = l->pidfd, .events = POLLIN};
    br_chan_close(&l->init);
    while (poll(&ended, 1, -1) < 0 && errno == EINTR)
        ;
    *exit_us = br_now_us();
    int r = receive_until(&l->launch, &l->stopped, err);
    if (r == 0 && !l->verified)
        r = br_err_set(err, BR_E_FAILED, "the cleanup of a sandbox was not verified");
    return r;
}

int bench_launch(struct bench_launcher *l, uint64_t *exit_us, struct br_err *err)
{
    int r = bench_sandbox_start(l, err);
    return r < 0 ? r : bench_sandbox_end(l, exit_us, err); /* pid 1 ends when its channel does */
}

int bench_launch_call(struct bench_launcher *l, uint64_t *exit_us, struct br_err *err)
{
    int r = bench_sandbox_start(l, err);
    if (r == 0)
        r = bench_sandbox_true(l, err);
    return r < 0 ? r : bench_sandbox_end(l, exit_us, err);
}
