/*
 * Tests only: bridle-launch with a weakened configuration or an injected failure, as its
 * environment says:
 *   BRIDLE_TEST_WEAK=NAME,...         what is left out, see sandbox/weak.h
 *   BRIDLE_TEST_POOL=N               struct br_host_config.pool; 1 by default
 *   BRIDLE_TEST_LOOP=1               images are mounted on loop devices
 *   BRIDLE_TEST_FAIL=CALL:N:ERRNO    the N-th call of that wrapper (1...) fails, and all later ones
 *   BRIDLE_TEST_FAIL=CALL:N:nothing  they say that they have worked and do nothing
 *   BRIDLE_TEST_FAIL=CALL:N:once     the N-th alone does so
 *   BRIDLE_TEST_FAIL=CALL:N:own=ERRNO  the launcher's own N-th alone fails
 *   BRIDLE_TEST_FAIL=CALL:N:kill     the launcher is killed right before its N-th call
 *   BRIDLE_TEST_KILL=N               SIGKILL for bridle-launch at the N-th call of any wrapper, by
 *                                    itself or by any process that it made
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "launch/launch.h"
#include "sandbox/image.h"
#include "sandbox/sys.h"
#include "sandbox/weak.h"

static enum br_sys fail_call;
static int fail_at, fail_errno, seen;
static bool once;
static pid_t launcher; /* 0: nobody is killed */
static pid_t own;      /* 0: calls of every process are counted */

static int hook(enum br_sys call)
{
    if (own && getpid() != own)
        return 0;
    if (call != fail_call || ++seen < fail_at || (once && seen > fail_at))
        return 0;
    if (launcher && getpid() == launcher)
        (void)kill(launcher, SIGKILL);
    return launcher ? 0 : fail_errno;
}

static int set_failure(const char *text)
{
    char name[32], how[16];
    if (sscanf(text, "%31[A-Z0-9_]:%d:%15s", name, &fail_at, how) != 3)
        return -1;
    launcher = strcmp(how, "kill") == 0 ? getpid() : 0;
    bool nothing = strcmp(how, "once") == 0 || strcmp(how, "nothing") == 0;
    own = strncmp(how, "own=", 4) == 0 ? getpid() : 0;
    once = own || strcmp(how, "once") == 0;
    fail_errno = nothing ? BR_SYS_NOTHING : atoi(own ? how + 4 : how);
    for (int c = 0; c < BR_SYS_COUNT_; c++)
        if (strcmp(br_sys_name((enum br_sys)c), name) == 0) {
            fail_call = (enum br_sys)c;
            br_sys_hook = hook;
            return 0;
        }
    return -1;
}

/* Shared with every process that this one makes, until it executes. */
static struct steps {
    atomic_int count, at, dead;
} * steps;

/* In another pid namespace nobody can kill the launcher: somebody outside does. The step itself
 * goes on when it is dead. */
static int kill_hook(enum br_sys call)
{
    if (call == BR_SYS_PRCTL || atomic_fetch_add(&steps->count, 1) + 1 != steps->at)
        return 0;
    atomic_store(&steps->at, -1);
    while (!atomic_load(&steps->dead))
        usleep(100);
    return 0;
}

static int set_kill(int at)
{
    pid_t self = getpid();
    steps = mmap(NULL, sizeof(*steps), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (steps == MAP_FAILED)
        return -1;
    steps->at = at;
    br_sys_hook = kill_hook;
    pid_t killer = fork();
    if (killer != 0)
        return killer < 0 ? -1 : 0;
    close(3);
    while (getppid() == self) {
        if (atomic_load(&steps->at) < 0)
            (void)kill(self, SIGKILL);
        usleep(100);
    }
    atomic_store(&steps->dead, 1);
    _exit(0);
}

int main(void)
{
    struct br_host_config cfg = {.init_fd = -1};
    const char *weak = getenv("BRIDLE_TEST_WEAK"), *failure = getenv("BRIDLE_TEST_FAIL");
    br_log_init("bridle-launch", BR_LOG_INFO);
    const char *pool = getenv("BRIDLE_TEST_POOL");
    cfg.pool = pool ? (unsigned)atoi(pool) : 1;
    br_image_force_loop = getenv("BRIDLE_TEST_LOOP") != NULL;
    if (weak && br_weak_parse(weak) < 0)
        return 2;
    const char *kill_at = getenv("BRIDLE_TEST_KILL");
    if (kill_at && set_kill(atoi(kill_at)) < 0)
        return 2;
    if (failure && set_failure(failure) < 0)
        return 2;
    return br_launch_serve(3, &cfg);
}
