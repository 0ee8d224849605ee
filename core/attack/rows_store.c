/*
 * Attacks with images, leases and mounts: what comes from a store or lies in the workspace. Data,
 * and what prepares it.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack/attack.h"

/* The launcher's state directory, made by bridle-image or here. */
static int send_state(struct stage *s)
{
    char path[256];
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    snprintf(path, sizeof(path), "%s/state", s->dir);
    (void)mkdir(path, 0700);
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    br_out_fd(&o, fd, false);
    return fd < 0 ? -1 : br_chan_send(&s->launch, BR_MSG_LAUNCH_CONFIG, 0, &o, NULL);
}

/* ---- images ---- */

/* A directory whose names, as far as they mean something to a launcher, all lead out. */
static int setup_image(struct stage *s)
{
    static const char *const names[] = {"dev",  "proc",   "sys",       "run",     "tmp",
                                        "etc",  "home",   "workspace", "state",   "scratch",
                                        "root", "broker", "usr",       ".bridle", "var"};
    char path[256];
    snprintf(path, sizeof(path), "%s/image", s->dir);
    if (mkdir(path, 0755) < 0)
        return -1;
    for (unsigned i = 0; i < BR_ARRAY_LEN(names); i++) {
        snprintf(path, sizeof(path), "%s/image/%s", s->dir, names[i]);
        if (symlink(s->outside, path) < 0)
            return -1;
    }
    snprintf(path, sizeof(path), "%s/image/.bridle-init", s->dir);
    if (symlink(s->secret, path) < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/agent", s->outside);
    return mkdir(path, 0777);
}

/* Import it; 0, 1 if no image can be made on this host, or -1. */
static int import_image(struct stage *s)
{
    char program[BR_PATH_MAX], dir[256], state[256];
    int out[2], status = -1;
    snprintf(program, sizeof(program), "%s/bridle-image", stage_bin());
    snprintf(dir, sizeof(dir), "%s/image", s->dir);
    snprintf(state, sizeof(state), "BRIDLE_STATE_DIR=%s/state", s->dir);
    if (pipe2(out, O_CLOEXEC) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        char *const argv[] = {program, (char *)(uintptr_t) "import", (char *)(uintptr_t) "--", dir,
                              NULL};
        char *const env[] = {state, (char *)(uintptr_t) "PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
        int null = open("/dev/null", O_RDWR);
        if (null < 0 || dup2(null, 0) < 0 || dup2(out[1], 1) < 0 || dup2(null, 2) < 0)
            _exit(70);
        execve(program, argv, env);
        _exit(70);
    }
    close(out[1]);
    ssize_t n = read(out[0], s->plan.image, sizeof(s->plan.image) - 1);
    close(out[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return -1;
    if (WEXITSTATUS(status) == 6)
        return 1;
    s->plan.image[n > 0 ? n : 0] = 0;
    s->plan.image[strcspn(s->plan.image, "\n")] = 0;
    stage_note(s, "bridle-image ended with %d", WEXITSTATUS(status));
    return WEXITSTATUS(status) == 0 && s->plan.image[0] ? 0 : -1;
}

static enum outcome hostile_image(struct stage *s)
{
    static const char *const marks[] = {"mark", "agent/mark", "null", "kcore", "passwd"};
    char path[256];
    struct exec_result r;
    int k = import_image(s);
    if (k > 0) {
        stage_note(s, "images cannot be imported on this host, hostile ones neither");
        return OUT_BLOCKED;
    }
    if (k < 0)
        return OUT_UNDONE;
    if (send_state(s) < 0 || stage_launch(s, -1) != 0)
        return OUT_UNDONE;
    if (stage_attack(s, s->attack->inside, 10000, &r) < 0)
        return OUT_UNDONE;
    enum outcome o = stage_judge(s, &r);
    for (unsigned i = 0; i < BR_ARRAY_LEN(marks); i++) {
        snprintf(path, sizeof(path), "%s/%s", s->outside, marks[i]);
        if (access(path, F_OK) == 0) {
            stage_note(s, "'%s' was made outside", marks[i]);
            o = OUT_THROUGH;
        }
    }
    return stage_end(s) < 0 ? OUT_UNDONE : o;
}

/* ---- leases ---- */

#define LEASE_BYTES (16u << 20)
#define LEASE_INODES 512u

/* A copy of the workspace with a quota; the control has room for what is written. */
static enum outcome fill_lease(struct stage *s, enum br_quota_kind kind, const char *inside)
{
    struct exec_result r;
    uint64_t more = s->control ? 8 : 1;
    br_plan_free(&s->plan);
    s->plan.workspace = BR_WORKSPACE_LEASE;
    s->plan.disks[BR_DISK_WORKSPACE] = (struct br_quota){
        .kind = (uint8_t)kind, .bytes = more * LEASE_BYTES, .inodes = more * LEASE_INODES};
    if (send_state(s) < 0 || stage_launch(s, -1) != 0 || stage_attack(s, inside, 20000, &r) < 0)
        return OUT_UNDONE;
    enum outcome o = stage_judge(s, &r);
    return stage_end(s) < 0 ? OUT_UNDONE : o;
}

static enum outcome fill_tmpfs(struct stage *s)
{
    return fill_lease(s, BR_QUOTA_TMPFS, s->attack->inside);
}

static enum outcome fill_ext4(struct stage *s)
{
    return fill_lease(s, BR_QUOTA_EXT4, s->attack->inside);
}

/* ---- mounts in the workspace ---- */

/* As root, in the launcher's mount namespace: a /proc of the host, as a chroot leaves it. */
static int setup_mount(struct stage *s)
{
    s->plan.identity = BR_IDENTITY_OWNER; /* /proc cannot be mounted with other ids */
    return stage_put(s, "chroot", NULL) < 0 || stage_put(s, "chroot/proc", NULL) < 0 ? -1 : 0;
}

const struct attack attack_rows_store[] = {
    {"image.links", CLASS_FILESYSTEM,
     "an image in which /dev, /proc, /tmp, /etc and others are links",
     "crun CVE-2022-27650, youki CVE-2025-62161, runc CVE-2025-31133 and CVE-2019-19921",
     "a file of the host is read, or something is made outside, through one of them", "image-links",
     0, A_OPERATION, .run = hostile_image, .setup = setup_image,
     .control = "the same links, on the host"},
    {"lease.bytes", CLASS_RESOURCES, "fill a leased workspace in memory", "design",
     "64 MiB are written (the quota is 16)", "fill-bytes where=/workspace bytes=67108864", 0, 0,
     .run = fill_tmpfs, .control = "a lease that is eight times as large"},
    {"lease.inodes", CLASS_RESOURCES, "fill it with empty files", "design",
     "2048 files are made (the quota is 512)", "fill-inodes where=/workspace n=2048", 0, 0,
     .run = fill_tmpfs, .control = "a lease with eight times as many"},
    {"lease.disk-bytes", CLASS_RESOURCES, "fill a leased workspace on disk", "design",
     "64 MiB are written (the quota is 16)", "fill-bytes where=/workspace bytes=67108864", 0,
     A_ROOT, .run = fill_ext4, .control = "a lease that is eight times as large"},
    {"lease.disk-inodes", CLASS_RESOURCES, "fill it with empty files", "design",
     "2048 files are made (the quota is 512)", "fill-inodes where=/workspace n=2048", 0, A_ROOT,
     .run = fill_ext4, .control = "a lease with eight times as many"},
    {"mount.proc", CLASS_PROC, "a /proc of the host that is mounted in the workspace",
     "runc CVE-2025-52881; chroots that somebody built there",
     "a process of the host is visible in it", "mounted-proc", BR_WEAK_PATHS,
     A_ROOT | A_VICTIM | A_REFUSED | A_MOUNT, .setup = setup_mount},
    {NULL},
};
