/*
 * Attacks on resources. Every one of them stops by itself a little beyond the limit, so that the
 * control, which has none, does no harm.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attack/attack.h"
#include "attack/inside.h"

#define MIB "1048576"

/* nr_throttled of the sandbox's cgroup, or -1. */
static long throttled(const struct stage *s)
{
    char path[BR_PATH_MAX], text[1024];
    for (const char *p = s->receipt; p && (p = strstr(p, "\"path\":\"")); p++) {
        size_t n = strcspn(p + 8, "\"");
        snprintf(path, sizeof(path), "%.*s/cpu.stat", (int)n, p + 8);
        BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t got = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
        text[got > 0 ? got : 0] = 0;
        const char *at = strstr(text, "nr_throttled ");
        if (at)
            return strtol(at + strlen("nr_throttled "), NULL, 10);
    }
    return -1;
}

static enum outcome spin(struct stage *s)
{
    struct exec_result r;
    s->plan.limits.cpu_percent = 10;
    if (stage_launch(s, -1) != 0 || stage_attack(s, s->attack->inside, 15000, &r) < 0)
        return OUT_UNDONE;
    long n = throttled(s);
    if (stage_judge(s, &r) != OUT_THROUGH)
        return OUT_UNDONE;
    stage_note(s, "throttled %ld times", n);
    if (stage_end(s) < 0)
        return OUT_UNDONE;
    return n > 0 ? OUT_BLOCKED : n == 0 || s->control ? OUT_THROUGH : OUT_UNDONE;
}

static enum outcome flood(struct stage *s)
{
    struct exec_result r;
    if (stage_launch(s, -1) != 0 || stage_attack(s, s->attack->inside, 15000, &r) < 0)
        return OUT_UNDONE;
    stage_note(s, "%llu bytes written, %zu kept", (unsigned long long)r.bytes, r.kept);
    if (stage_end(s) < 0 || r.exit != IN_THROUGH)
        return OUT_UNDONE;
    if (s->control) /* what would be kept if nobody counted */
        return r.bytes > BR_TOOL_RESULT_MAX ? OUT_THROUGH : OUT_UNDONE;
    return r.kept <= BR_TOOL_RESULT_MAX && r.truncated ? OUT_BLOCKED : OUT_THROUGH;
}

/* A command that ends for nothing: by its own clock. */
static enum outcome stubborn(struct stage *s)
{
    struct exec_result r;
    if (stage_launch(s, -1) != 0 ||
        stage_attack(s, s->attack->inside, s->control ? 1500 : 200, &r) < 0)
        return OUT_UNDONE;
    bool alive = strncmp(r.line, "waiting", 7) == 0;
    stage_note(s, r.timed_out ? "killed after its time" : "it ended by itself");
    if (stage_end(s) < 0 || !alive || !r.timed_out)
        return r.timed_out ? OUT_UNDONE : OUT_THROUGH;
    if (s->control)
        stage_note(s, "with a later deadline it was still there after the first one");
    return s->control ? OUT_THROUGH : OUT_BLOCKED;
}

static off_t size_of(const struct stage *s, const char *name)
{
    char path[256];
    struct stat st;
    snprintf(path, sizeof(path), "%s/%s", s->ws, name);
    return stat(path, &st) == 0 ? st.st_size : -1;
}

/* Does anything of a command live on after its result? */
static enum outcome daemon_left(struct stage *s)
{
    struct exec_result r;
    if (stage_launch(s, -1) != 0)
        return OUT_UNDONE;
    if (s->control) { /* while its command runs, the daemon writes: so this would be seen */
        const char *const argv[] = {"/bin/sh", "-c",
                                    "/workspace/bridle-attack daemon; a=$(wc -c <out/alive); "
                                    "sleep 0.3; b=$(wc -c <out/alive); test $a -lt $b",
                                    NULL};
        if (stage_exec(s, argv, 5000, &r) < 0 || stage_end(s) < 0)
            return OUT_UNDONE;
        stage_note(s, "the daemon writes as long as its command runs");
        return r.exit == 0 ? OUT_THROUGH : OUT_UNDONE;
    }
    if (stage_attack(s, s->attack->inside, 5000, &r) < 0 || r.exit != IN_BLOCKED)
        return OUT_UNDONE;
    off_t then = size_of(s, "out/alive");
    usleep(200000);
    off_t now = size_of(s, "out/alive");
    if (stage_end(s) < 0 || then < 0)
        return OUT_UNDONE;
    stage_note(s, then == now ? "nothing of the command was left" : "a daemon lives on");
    return then == now ? OUT_BLOCKED : OUT_THROUGH;
}

/* The sandbox ends although everything in it ignores signals and holds its pipes. */
static enum outcome end_with_daemons(struct stage *s)
{
    struct exec_result r;
    if (stage_launch(s, -1) != 0 || stage_attack(s, "orphans", 10000, &r) < 0)
        return OUT_UNDONE;
    if (r.exit != IN_BLOCKED)
        return stage_judge(s, &r);
    struct pollfd p = {.fd = s->pidfd, .events = POLLIN};
    if (s->control) {
        bool there = poll(&p, 1, 0) == 0;
        stage_note(s, "before its end the sandbox is seen");
        return stage_end(s) < 0 ? OUT_UNDONE : there ? OUT_THROUGH : OUT_UNDONE;
    }
    if (stage_end(s) < 0)
        return OUT_THROUGH;
    stage_note(s, "ended, its cgroup empty and removed");
    return poll(&p, 1, 0) == 1 ? OUT_BLOCKED : OUT_THROUGH;
}

#define RES(id_, title_, success_, inside_, without_, flags_)                                      \
    {                                                                                              \
        "res." id_, CLASS_RESOURCES, title_, "design", success_, inside_, without_,                \
            A_SMALL | (flags_)                                                                     \
    }

const struct attack attack_rows_resources[] = {
    RES("forks", "a fork bomb", "48 processes at once (the limit is 32)", "forks n=48",
        BR_WEAK_LIMITS, 0),
    RES("zombies", "a flood of zombies", "48 at once (the limit is 32)", "zombies n=48",
        BR_WEAK_LIMITS, 0),
    RES("memory", "a memory bomb", "128 MiB are used (the limit is 96)", "memory bytes=134217728",
        BR_WEAK_LIMITS, A_KILLED),
    RES("memory-shm", "the same in System V shared memory", "128 MiB are used (the limit is 96)",
        "memory-shm bytes=134217728", BR_WEAK_LIMITS, A_KILLED),
    RES("memory-memfd", "the same in a file in memory", "128 MiB are used (the limit is 96)",
        "memory-memfd bytes=134217728", BR_WEAK_LIMITS | BR_WEAK_RLIMITS, A_KILLED),
    RES("memory-sockets", "the same in connections that nobody reads",
        "128 MiB wait (the limit of memory is 96)", "memory-sockets bytes=134217728",
        BR_WEAK_LIMITS, A_KILLED),
    RES("descriptors", "all descriptors", "128 are open (the limit is 64)", "descriptors n=128",
        BR_WEAK_RLIMITS, 0),
    RES("raise", "raise a hard limit", "one is infinite", "raise-limits", 0, A_OPERATION),
    RES("tmp-bytes", "fill /tmp", "4 MiB are written (the limit is 1)",
        "fill-bytes where=/tmp bytes=4194304", BR_WEAK_TMP | BR_WEAK_RLIMITS, 0),
    RES("tmp-inodes", "fill /tmp with empty files", "256 files are made (the limit is 64)",
        "fill-inodes where=/tmp n=256", BR_WEAK_TMP, 0),
    RES("home-bytes", "fill the home directory", "4 MiB are written (the limit is 1)",
        "fill-bytes where=/home/agent bytes=4194304", BR_WEAK_TMP | BR_WEAK_RLIMITS, 0),
    RES("home-inodes", "fill the home directory with empty files",
        "256 files are made (the limit is 64)", "fill-inodes where=/home/agent n=256", BR_WEAK_TMP,
        0),
    RES("shm-bytes", "fill /dev/shm", "4 MiB are written (the limit is 1)",
        "fill-bytes where=/dev/shm bytes=4194304", BR_WEAK_TMP | BR_WEAK_RLIMITS, 0),
    RES("file-size", "a file below an allowed path that is too large",
        "it is larger than the limit of a file", "file-size bytes=" MIB, BR_WEAK_RLIMITS, A_KILLED),
    RES("files-total", "many files below an allowed path, each within the limit",
        "together they are larger", "files-total bytes=" MIB, 0, A_EXPECTED | A_OPERATION),
    {"res.cpu", CLASS_RESOURCES, "spin", "design", "a spinning command is not slowed down",
     "spin ms=60", BR_WEAK_LIMITS, 0, .run = spin},
    {"res.output", CLASS_RESOURCES, "a flood of output", "design",
     "more than a result may have is kept", "flood bytes=4194304", 0, 0, .run = flood,
     .control = "so much was written that it would not fit"},
    {"res.clock", CLASS_RESOURCES, "a command that never ends and ignores every signal", "design",
     "it outlives its time", "stubborn", 0, A_KILLED, .run = stubborn,
     .control = "the same command with a later deadline"},
    {"res.clock-spin", CLASS_RESOURCES,
     "the same, while pid 1 is put behind processes that keep every CPU busy", "design",
     "it outlives its time", "stubborn-spinning", 0, A_KILLED | A_SMALL, .run = stubborn,
     .control = "the same command with a later deadline"},
    {"res.daemon", CLASS_RESOURCES, "a double-forked daemon that holds the pipes", "design",
     "it lives on after the result of its command", "daemon", 0, 0, .run = daemon_left,
     .control = "the daemon while its command runs"},
    {"res.end", CLASS_RESOURCES, "a sandbox full of orphans does not end", "design",
     "its end is not verified", NULL, 0, 0, .run = end_with_daemons,
     .control = "the same look before the end"},
    RES("inotify", "inotify instances, which are counted per user of the host", "4096 of them",
        "inotify n=4096", BR_WEAK_RLIMITS, A_OPERATION | A_EXPECTED),
    RES("pipes", "pipes with large buffers, which are counted per user of the host",
        "the descriptors do not run out first", "pipes", 0, A_OPERATION | A_EXPECTED),
    {NULL},
};
