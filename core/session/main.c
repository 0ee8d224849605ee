/*
 * bridle-session: one agent session. Started by bridled with its supervision channel on fd 3; has
 * no files, no network and no other program's code. It parses what models say, so it holds neither
 * privilege nor secrets; what it may do to the sandbox is bounded by the ledger and checked again
 * by bridle-init.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/json_memory.h"
#include "session/session_priv.h"

static int say_ready(struct session *s, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, "OK");
    br_buf_put_str(&o.buf, "");
    return br_chan_send(&s->sup, BR_MSG_ROLE_READY, 0, &o, err);
}

static void say_done(struct session *s, const struct outcome *o)
{
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_u32(&out.buf, (uint32_t)o->code);
    br_buf_put_u32(&out.buf, (uint32_t)o->exit_code);
    br_buf_put_str(&out.buf, o->text);
    (void)br_chan_send(&s->sup, BR_MSG_SESSION_DONE, 0, &out, NULL);
}

int main(void)
{
    static struct session s;
    struct br_err err = {.code = BR_OK};
    br_log_init("bridle-session", BR_LOG_WARN);
    br_json_end_without_memory();
    tzset(); /* while /etc/localtime can be read */
    const struct br_role role = {.name = "bridle-session",
                                 .max_nofile = 64,
                                 .no_fork = true,
                                 /* behind the first: the gate of a harness */
                                 .syscalls =
                                     (int[]){SYS_uname, SYS_accept4, SYS_recvfrom, SYS_sendto},
                                 .nsyscalls = 4};
    if (br_role_enter(&role, &err) < 0) {
        br_log(BR_LOG_ERROR, "%s", err.text);
        return 1;
    }
    size_t seed;
    br_random(&seed, sizeof(seed));
    json_object_seed(seed | 1); /* otherwise jansson opens /dev/urandom, behind the filter */
    s.loop = br_loop_new();
    br_require(s.loop);
    if (session_serve(&s, &err) < 0 || say_ready(&s, &err) < 0) {
        br_log(BR_LOG_ERROR, "%s", err.text);
        return 1;
    }
    s.wall_given = s.wall_seconds != 0;
    if (!s.wall_given)
        s.wall_seconds = br_limits_default.wall_seconds;
    s.budget.deadline_us = br_now_us() + (uint64_t)s.wall_seconds * 1000000u;
    struct outcome o = {.code = 0};
    switch (s.mode) {
    case BR_RUN_AGENT:
        s.harness.is ? session_run_harness(&s, &o) : session_run_agent(&s, &o);
        break;
    case BR_RUN_EXEC:
        session_run_exec(&s, &o);
        break;
    case BR_RUN_VALIDATE:
        session_run_validate(&s, &o);
        break;
    case BR_RUN_POLICY:
        session_run_policy(&s, &o);
        break;
    case BR_RUN_SELFTEST:
        session_run_selftest(&s, &o);
        break;
    case BR_RUN_PLAN:
        session_run_plan(&s, &o);
        break;
    case BR_RUN_PROMOTE:
        session_run_promote(&s, &o);
        break;
    case BR_RUN_ACTIVATE:
        session_run_activate(&s, &o);
        break;
    default:
        br_log(BR_LOG_ERROR, "the session was started in an unknown mode");
        return 1;
    }
    say_done(&s, &o);
    /* bridled closes the channel when it has read the outcome */
    bool never = false;
    (void)br_loop_run_until(s.loop, &never, br_now_us() + 10u * 1000000u, &err);
    return 0;
}
