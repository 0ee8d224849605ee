/*
 * What the tests of leases share: see test_lease_rig.h.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "launch/test_lease_rig.h"

void lease_own_mounts(void)
{
    if (geteuid() != 0)
        return;
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        exit(70);
}

void lease_plan(struct rig *r, enum br_disk disk, uint8_t kind, uint64_t bytes, uint64_t inodes)
{
    r->plan.disks[disk] = (struct br_quota){kind, bytes, inodes};
    if (disk == BR_DISK_WORKSPACE)
        r->plan.workspace = BR_WORKSPACE_LEASE;
}

long long lease_number(const struct rig *r, const char *lease, const char *key)
{
    char text[64];
    snprintf(text, sizeof(text), "{\"lease\":\"%s\"", lease);
    const char *p = strstr(r->receipt, text), *end = p ? strstr(p + 1, "{\"lease\"") : NULL;
    snprintf(text, sizeof(text), "\"%s\":", key);
    const char *q = p ? strstr(p, text) : NULL;
    return q && (!end || q < end) ? strtoll(q + strlen(text), NULL, 10) : -1;
}

static void state_path(const struct rig *r, char path[128])
{
    snprintf(path, 128, "%s/state", r->dir);
}

void lease_state_tmpfs(const struct rig *r, const char *size)
{
    char path[128], opts[64];
    state_path(r, path);
    snprintf(opts, sizeof(opts), "mode=0700,size=%s", size);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(mount("tmpfs", path, "tmpfs", 0, opts), 0);
    assert_int_equal(lchown(path, r->uid, r->uid), 0);
}

void lease_state_umount(const struct rig *r)
{
    char path[128];
    state_path(r, path);
    assert_int_equal(umount2(path, MNT_DETACH), 0);
}

const char *lease_file(const struct rig *r, const char *name)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/state/leases%s%s", r->dir, name[0] ? "/" : "", name);
    return path;
}

int lease_files(const struct rig *r, const char *suffix)
{
    DIR *d = opendir(lease_file(r, ""));
    int n = 0;
    if (!d)
        return -1;
    for (struct dirent *e; (e = readdir(d));) {
        size_t a = strlen(e->d_name), b = strlen(suffix);
        n += e->d_name[0] != '.' && a >= b && strcmp(e->d_name + a - b, suffix) == 0;
    }
    closedir(d);
    return n;
}

/* Images have no name any more, but the kernel still tells the directory that they had one in. */
unsigned lease_loops(const struct rig *r)
{
    char owner[32];
    unsigned n = 0;
    char dev[32];
    snprintf(owner, sizeof(owner), ".%d.", (int)r->pid);
    for (unsigned i = 0; i < 1024; i++) {
        struct loop_info64 info = {0};
        snprintf(dev, sizeof(dev), "/dev/loop%u", i);
        BR_CLEANUP_FD int fd = open(dev, O_RDONLY | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT)
            break;
        char file[64], text[512] = "";
        if (fd < 0 || ioctl(fd, LOOP_GET_STATUS64, &info) < 0)
            continue;
        snprintf(file, sizeof(file), "/sys/block/loop%u/loop/backing_file", i);
        BR_CLEANUP_FD int b = open(file, O_RDONLY | O_CLOEXEC);
        if (b >= 0 && read(b, text, sizeof(text) - 1) > 0 &&
            (strstr(text, r->dir) || strstr(text, owner)))
            n++;
    }
    return n;
}

void lease_nothing_left(struct rig *r)
{
    assert_int_equal(lease_loops(r), 0);
    assert_true(lease_files(r, ".tmp") <= 0);
}

void lease_close(struct rig *r)
{
    assert_int_equal(lease_loops(r), 0);
    assert_true(lease_files(r, ".tmp") <= 0);
    rig_close(r);
}

void lease_refused(struct rig *r, enum br_code code, const char *part)
{
    assert_false(rig_launch_at(r, -1));
    if (r->code != (uint32_t)code || !strstr(r->text, part))
        fail_msg("expected %s with '%s', got %s: %s", br_code_name(code), part,
                 br_code_name((int)r->code), r->text);
    assert_null(rig_ask(r, "call getpid"));
    assert_int_equal(rig_children(r->pid), 0);
    assert_int_equal(rig_cgroups(r->pid), 0);
    lease_nothing_left(r);
}
