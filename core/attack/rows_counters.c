/*
 * Attacks on what the kernel counts for a uid or a user namespace: inside takes all there is and
 * keeps it, while somebody outside needs one. Only where this program is root: an ordinary user's
 * sandboxes share these counters with that user, which is documented.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack/attack.h"

#define PATIENCE_MS 15000

/* In another process: wait until inside holds it, look, and let it go. 0: there is one left. */
static pid_t look(const struct stage *s, int (*there)(struct stage *other), struct stage *other)
{
    char held[192], done[192];
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    snprintf(held, sizeof(held), "%s/out/held", s->ws);
    snprintf(done, sizeof(done), "%s/out/done", s->ws);
    for (int ms = 0; access(held, F_OK) < 0; ms += 10) {
        if (ms >= PATIENCE_MS || stage_interrupted)
            _exit(2);
        usleep(10000);
    }
    int r = there(other);
    int fd = open(done, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    _exit(fd < 0 ? 2 : r == 0 ? 0 : 1);
}

static enum outcome while_held(struct stage *s, int (*there)(struct stage *other),
                               struct stage *other)
{
    struct exec_result r;
    int status = -1;
    if (stage_launch(s, -1) != 0)
        return OUT_UNDONE;
    pid_t pid = look(s, there, other);
    int k = stage_attack(s, s->attack->inside, PATIENCE_MS, &r);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || k < 0 || stage_judge(s, &r) != OUT_BLOCKED ||
        !WIFEXITED(status) || WEXITSTATUS(status) > 1)
        return OUT_UNDONE;
    if (stage_end(s) < 0)
        return OUT_UNDONE;
    return WEXITSTATUS(status) == 0 ? OUT_BLOCKED : OUT_THROUGH;
}

static int inotify_there(struct stage *other)
{
    (void)other;
    return inotify_init1(IN_CLOEXEC) < 0 ? -1 : 0;
}

static enum outcome counters_of_host(struct stage *s)
{
    return while_held(s, inotify_there, NULL);
}

/* A result that travels in a descriptor. */
static int result_there(struct stage *other)
{
    struct exec_result r;
    const char *const argv[] = {"/bin/sh", "-c", "head -c 100000 /dev/zero | tr '\\0' x", NULL};
    return stage_exec(other, argv, PATIENCE_MS, &r) < 0 || !r.answered || r.exit != 0 ? -1 : 0;
}

static enum outcome run_of_other(struct stage *s)
{
    struct stage *other = calloc(1, sizeof(*other));
    if (!other)
        return OUT_UNDONE;
    enum outcome o = OUT_UNDONE;
    if (stage_open(other, s->attack, s->control) == 0 && stage_launch(other, -1) == 0)
        o = while_held(s, result_there, other);
    else
        stage_note(s, "there is no other sandbox: %.300s", other->note);
    stage_close(other);
    free(other);
    return o;
}

const struct attack attack_rows_counters[] = {
    {"res.host-counters", CLASS_RESOURCES, "all inotify instances that root of the host may have",
     "design", "root of the host gets none", "inotify-hold", BR_WEAK_OWNER, A_ROOT,
     .run = counters_of_host},
    {"res.other-run", CLASS_RESOURCES,
     "all descriptors that a uid may have on their way through sockets", "design",
     "the run of another sandbox ends", "in-flight-hold", BR_WEAK_UID, A_ROOT, .run = run_of_other},
    {NULL},
};
