/*
 * Owner tags: pid namespace, boot id, pid and start time. A pid alone is reused; a pid of another
 * pid namespace (a container that shares the cgroup tree) says nothing here, so such names are
 * never judged dead, only foreign. Reads only /proc.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/owner.h"

/* Field 22 of /proc/PID/stat; 0 and errno if there is no such process. */
static uint64_t start_time(long pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    if (br_read_text(AT_FDCWD, path, text, sizeof(text)) <= 0)
        return 0;
    char *p = strrchr(text, ')');            /* the name may hold spaces */
    if (p && (p[2] == 'Z' || p[2] == 'X')) { /* it has ended, and nobody has waited for it yet */
        errno = ESRCH;
        return 0;
    }
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p ? strtoull(p + 1, NULL, 10) : 0;
}

static int host_identity(uint64_t *pidns, char boot[9])
{
    struct stat st;
    char text[64];
    if (stat("/proc/self/ns/pid", &st) < 0)
        return -1;
    *pidns = st.st_ino;
    if (br_read_text(AT_FDCWD, "/proc/sys/kernel/random/boot_id", text, sizeof(text)) < 8)
        return -1;
    memcpy(boot, text, 8);
    boot[8] = 0;
    return 0;
}

int br_owner_tag(char *dst, size_t cap, struct br_err *err)
{
    uint64_t pidns, start = start_time((long)getpid());
    char boot[9];
    if (host_identity(&pidns, boot) < 0 || start == 0)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "'/proc' does not say who this process is; nothing was started. Mount "
                          "/proc");
    snprintf(dst, cap, "bridle.%" PRIu64 ".%s.%d.%" PRIu64, pidns, boot, (int)getpid(), start);
    return 0;
}

/* Whose a name is, as far as it says so. */
struct tag {
    uint64_t pidns, start;
    char boot[9];
    long pid;
};

/* False for a name without a tag, and if /proc does not say where this process is: *here. */
static bool parse(const char *name, struct tag *t, struct tag *here)
{
    return sscanf(name, "bridle.%" SCNu64 ".%8[0-9a-f].%ld.%" SCNu64, &t->pidns, t->boot, &t->pid,
                  &t->start) == 4 &&
           host_identity(&here->pidns, here->boot) == 0;
}

static bool same_boot(const struct tag *a, const struct tag *b)
{
    return strcmp(a->boot, b->boot) == 0;
}

bool br_owner_is_dead(const char *name)
{
    struct tag t, here;
    if (!parse(name, &t, &here) || t.pidns != here.pidns || !same_boot(&t, &here) || t.pid <= 0)
        return false;
    errno = 0;
    uint64_t now = start_time(t.pid);
    return now == 0 ? errno == ENOENT || errno == ESRCH : now != t.start;
}

bool br_owner_is_foreign(const char *name)
{
    struct tag t, here;
    return parse(name, &t, &here) && same_boot(&t, &here) && t.pidns != here.pidns;
}

bool br_owner_is_past(const char *name)
{
    struct tag t, here;
    return parse(name, &t, &here) && !same_boot(&t, &here);
}
