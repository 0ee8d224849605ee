/*
 * Where cgroups can be made on this host. Per controller: the version 1 hierarchy that carries it,
 * or version 2. Root uses a place below the cgroup that it runs in (version 1) or below the root
 * of the tree (version 2, where a cgroup with processes cannot have children with controllers).
 * An ordinary user needs a delegated place: `bridle-UID` in each version 1 hierarchy (made by
 * br_cg_delegate), or, with version 2, a scope of systemd's that the user owns.
 *
 * Reads /proc and the cgroup file systems; changes only cgroups that it may make or owns.
 */
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/cgroup.h"
#include "sandbox/owner.h"
#include "sandbox/sandbox.h"
#include "sandbox/sys.h"

#define PROC_TEXT_MAX (4u * 1024 * 1024)

const char *const br_cg_ctl_names[BR_CG_CTLS] = {"memory", "pids", "cpu"};

static int read_text(const char *path, struct br_buf *out)
{
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || br_read_all(fd, out, path, NULL) < 0 || !br_buf_cstr(out))
        return -1;
    return 0;
}

/* Is `word` an element of the list (separated by sep, ended by NUL, newline or space)? */
static bool in_list(const char *list, const char *word, char sep)
{
    size_t n = strlen(word);
    for (const char *p = list; *p && *p != '\n';) {
        size_t len = strcspn(p, sep == ',' ? ",\n " : " \n");
        if (len == n && memcmp(p, word, n) == 0)
            return true;
        p += len;
        if (*p != sep)
            return false;
        p++;
    }
    return false;
}

/* The path of this process in the hierarchy that has `ctl` (NULL: version 2). */
static bool own_path(const char *self, const char *ctl, char *dst, size_t cap)
{
    for (const char *line = self; *line;) {
        const char *a = strchr(line, ':'), *end = strchrnul(line, '\n');
        const char *b = a ? strchr(a + 1, ':') : NULL;
        if (b && b < end) {
            char list[512] = "";
            size_t n = (size_t)(b - a - 1);
            if (n < sizeof(list))
                memcpy(list, a + 1, n);
            if (ctl ? in_list(list, ctl, ',') : n == 0) {
                snprintf(dst, cap, "%.*s", (int)(end - b - 1), b + 1);
                return true;
            }
        }
        line = *end ? end + 1 : end;
    }
    return false;
}

struct mount {
    char root[BR_PATH_MAX], point[BR_PATH_MAX];
};

/* The mount of a cgroup hierarchy: type "cgroup" with option `ctl`, or type "cgroup2". */
static bool find_mount(char *mountinfo, const char *ctl, struct mount *m)
{
    for (char *line = mountinfo, *next; line && *line; line = next) {
        char type[64], opts[512];
        int at = 0;
        next = strchr(line, '\n');
        next = next ? next + 1 : line + strlen(line);
        const char *dash = strstr(line, " - ");
        if (!dash || dash >= next)
            continue;
        if (sscanf(dash, " - %63s %*s %511s", type, opts) != 2 ||
            sscanf(line, "%*d %*d %*s %4095s %4095s%n", m->root, m->point, &at) != 2)
            continue;
        if (ctl ? strcmp(type, "cgroup") == 0 && in_list(opts, ctl, ',')
                : strcmp(type, "cgroup2") == 0)
            return true;
    }
    return false;
}

/* `path` as seen below the mount; "" if the mount does not show it. */
static const char *below(const struct mount *m, const char *path)
{
    size_t n = strlen(m->root);
    if (strcmp(m->root, "/") == 0)
        return strcmp(path, "/") == 0 ? "" : path;
    if (strncmp(path, m->root, n) == 0 && (path[n] == '/' || path[n] == 0))
        return path + n;
    return "";
}

static void missing(struct br_cg_place *p, unsigned ctls, const char *fix, const char *why,
                    const char *what)
{
    for (int c = 0; c < BR_CG_CTLS; c++)
        if (ctls & 1u << c) {
            snprintf(p->missing[c], sizeof(p->missing[c]), "%s '%s'", why, what);
            snprintf(p->fix[c], sizeof(p->fix[c]), "%s", fix);
        }
}

static void delegate_fix(uid_t uid, char *dst, size_t cap)
{
    struct passwd *pw = getpwuid(uid);
    if (pw)
        snprintf(dst, cap, "Run once: sudo bridle doctor --delegate %s", pw->pw_name);
    else
        snprintf(dst, cap, "Run once: sudo bridle doctor --delegate %u", (unsigned)uid);
}

static void add_dir(struct br_cg_place *p, int fd, bool v2, unsigned ctls, const char *path)
{
    for (unsigned i = 0; i < p->ndirs; i++)
        if (strcmp(p->dirs[i].path, path) == 0) {
            p->dirs[i].ctls |= ctls;
            p->have |= ctls;
            br_close(&fd);
            return;
        }
    struct br_cg_dir *d = &p->dirs[p->ndirs++];
    d->fd = fd;
    d->v2 = v2;
    d->ctls = ctls;
    snprintf(d->path, sizeof(d->path), "%s", path);
    p->have |= ctls;
}

/* Open a directory in which this uid may make cgroups; -1 if it may not. */
static int open_place(const char *path, uid_t uid)
{
    struct stat st;
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -1;
    if (uid != 0 && st.st_uid != uid) {
        errno = EACCES;
        return -1;
    }
    if (faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) < 0)
        return -1;
    return br_steal_fd(&fd);
}

static void find_v1(struct br_cg_place *p, const struct br_cg_env *env, unsigned c, const char *own,
                    const struct mount *m)
{
    char path[2 * BR_PATH_MAX], fix[512];
    int fd = -1;
    if (env->uid != 0) {
        snprintf(path, sizeof(path), "%s/bridle-%u", m->point, (unsigned)env->uid);
        fd = open_place(path, env->uid);
    }
    if (fd < 0) {
        snprintf(path, sizeof(path), "%s%s", m->point, below(m, own));
        fd = open_place(path, env->uid);
    }
    if (fd >= 0) {
        add_dir(p, fd, false, 1u << c, path);
        return;
    }
    delegate_fix(env->uid, fix, sizeof(fix));
    missing(p, 1u << c, env->uid ? fix : "Mount the cgroup file systems writable (not with 'ro')",
            "no cgroup can be made in", path);
}

/* Version 2: let children have the controllers. Returns those that they now have. */
static unsigned enable_controllers(int fd)
{
    char text[512] = "";
    unsigned have = 0;
    for (int c = 0; c < BR_CG_CTLS; c++) {
        snprintf(text, sizeof(text), "+%s", br_cg_ctl_names[c]);
        (void)br_sys_writecgroup(fd, "cgroup.subtree_control", text);
    }
    (void)br_read_text(fd, "cgroup.subtree_control", text, sizeof(text));
    for (int c = 0; c < BR_CG_CTLS; c++)
        if (in_list(text, br_cg_ctl_names[c], ' '))
            have |= 1u << c;
    return have;
}

/*
 * A delegated scope holds the processes of this very verb, and a cgroup with processes cannot give
 * controllers to children: move them one level down first. All are the user's own.
 */
static void vacate(int fd)
{
    char text[16384];
    if (br_sys_mkcgroup(fd, "bridle-supervisor") < 0 && errno != EEXIST)
        return;
    BR_CLEANUP_FD int leaf = openat(fd, "bridle-supervisor", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (leaf < 0)
        return;
    (void)br_read_text(fd, "cgroup.procs", text, sizeof(text));
    for (char *save = NULL, *pid = strtok_r(text, "\n", &save); pid;
         pid = strtok_r(NULL, "\n", &save))
        (void)br_sys_writecgroup(leaf, "cgroup.procs", pid);
}

/* The directory of version 2 for this uid; -1 if there is none. `path` receives its name. */
static int open_v2(const struct br_cg_env *env, const struct mount *m, const char *own, char *path,
                   size_t cap)
{
    if (env->uid != 0) {
        snprintf(path, cap, "%s%s", m->point, below(m, own));
        int fd = open_place(path, env->uid);
        if (fd >= 0)
            vacate(fd);
        return fd;
    }
    snprintf(path, cap, "%s", m->point);
    BR_CLEANUP_FD int root = open_place(path, 0);
    if (root < 0)
        return -1;
    (void)enable_controllers(root);
    snprintf(path, cap, "%s/bridle", m->point);
    if (br_sys_mkcgroup(root, "bridle") < 0 && errno != EEXIST)
        return -1;
    return open_place(path, 0);
}

static void find_v2(struct br_cg_place *p, const struct br_cg_env *env, unsigned ctls,
                    const char *own, const struct mount *m)
{
    char path[2 * BR_PATH_MAX], fix[512];
    int fd = open_v2(env, m, own, path, sizeof(path));
    if (env->uid != 0)
        snprintf(fix, sizeof(fix),
                 "Start it in a scope that you own: systemd-run --user --scope -p Delegate=yes "
                 "bridle ... (once, as root, if cpu is missing: systemctl set-property "
                 "user@%u.service Delegate='cpu memory pids')",
                 (unsigned)env->uid);
    else
        snprintf(fix, sizeof(fix),
                 "In a container: give it its own writable cgroup tree (--cgroupns=private "
                 "--privileged), with processes in a leaf. On a host: boot with "
                 "cgroup_enable=memory and without cgroup_disable");
    if (fd < 0) {
        missing(p, ctls, fix, "no cgroup can be made in", path);
        return;
    }
    unsigned have = enable_controllers(fd) & ctls;
    missing(p, ctls & ~have, fix, "the controller is not available in", path);
    if (have)
        add_dir(p, fd, true, have, path);
    else
        br_close(&fd);
}

void br_cg_find(struct br_cg_place *p, const struct br_cg_env *env)
{
    BR_CLEANUP_BUF struct br_buf self = BR_BUF_INIT(PROC_TEXT_MAX);
    BR_CLEANUP_BUF struct br_buf mounts = BR_BUF_INIT(PROC_TEXT_MAX);
    char own[BR_PATH_MAX];
    struct mount m;
    unsigned v2 = 0;
    *p = (struct br_cg_place){.stale_seconds = 3600};
    snprintf(p->swaps, sizeof(p->swaps), "%s", env->swaps ? env->swaps : "");
    missing(p, ~0u, "Use a kernel with cgroups and mount them at /sys/fs/cgroup",
            "no hierarchy on this host has it, by", env->self_cgroup);
    struct br_err err = {.code = BR_OK};
    if (read_text(env->self_cgroup, &self) < 0 || read_text(env->mountinfo, &mounts) < 0 ||
        br_owner_tag(p->tag, sizeof(p->tag), &err) < 0) {
        missing(p, ~0u, "Mount /proc", "no cgroup can be read from", env->self_cgroup);
        return;
    }
    for (unsigned c = 0; c < BR_CG_CTLS; c++) {
        if (!own_path((char *)self.data, br_cg_ctl_names[c], own, sizeof(own)))
            v2 |= 1u << c;
        else if (find_mount((char *)mounts.data, br_cg_ctl_names[c], &m))
            find_v1(p, env, c, own, &m);
    }
    if (v2 && own_path((char *)self.data, NULL, own, sizeof(own)) &&
        find_mount((char *)mounts.data, NULL, &m))
        find_v2(p, env, v2, own, &m);
}

void br_cg_place_close(struct br_cg_place *p)
{
    for (unsigned i = 0; i < p->ndirs; i++)
        br_close(&p->dirs[i].fd);
    p->ndirs = 0;
    p->have = 0;
}

/* ---- delegation ---- */

static int delegate_v1(const char *point, uid_t uid, gid_t gid, struct br_err *err)
{
    static const char *const files[] = {"", "cgroup.procs", "tasks"};
    char path[2 * BR_PATH_MAX];
    snprintf(path, sizeof(path), "%s/bridle-%u", point, (unsigned)uid);
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return br_err_errno(err, BR_E_FAILED, "'%s' could not be made", path);
    BR_CLEANUP_FD int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (dir < 0)
        return br_err_errno(err, BR_E_FAILED, "'%s' could not be opened", path);
    for (unsigned i = 0; i < BR_ARRAY_LEN(files); i++)
        if (fchownat(dir, files[i], uid, gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0 &&
            errno != ENOENT)
            return br_err_errno(err, BR_E_FAILED, "'%s/%s' could not be given to uid %u", path,
                                files[i], (unsigned)uid);
    return 0;
}

int br_cgroup_delegate(uid_t uid, struct br_buf *told, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf self = BR_BUF_INIT(PROC_TEXT_MAX);
    BR_CLEANUP_BUF struct br_buf mounts = BR_BUF_INIT(PROC_TEXT_MAX);
    struct passwd *pw = getpwuid(uid);
    char own[BR_PATH_MAX];
    struct mount m;
    unsigned v1 = 0;
    if (geteuid() != 0)
        return br_err_set(err, BR_E_DENIED, "only root can delegate cgroups; nothing was changed");
    if (uid == 0)
        return br_err_set(err, BR_E_USAGE, "root needs no delegation; nothing was changed");
    if (read_text("/proc/self/cgroup", &self) < 0 || read_text("/proc/self/mountinfo", &mounts) < 0)
        return br_err_errno(err, BR_E_FAILED, "'/proc/self' is not readable");
    for (int c = 0; c < BR_CG_CTLS; c++) {
        if (!own_path((char *)self.data, br_cg_ctl_names[c], own, sizeof(own)) ||
            !find_mount((char *)mounts.data, br_cg_ctl_names[c], &m))
            continue;
        int r = delegate_v1(m.point, uid, pw ? pw->pw_gid : (gid_t)uid, err);
        if (r < 0)
            return r;
        v1++;
        br_buf_printf(told, "'%s/bridle-%u' (%s) belongs to uid %u now, until the next boot\n",
                      m.point, (unsigned)uid, br_cg_ctl_names[c], (unsigned)uid);
    }
    if (v1 < BR_CG_CTLS)
        br_buf_printf(told,
                      "controllers of cgroup version 2 are delegated by systemd: run "
                      "`systemctl set-property user@%u.service Delegate='cpu memory pids'` once, "
                      "and start as `systemd-run --user --scope -p Delegate=yes bridle ...`\n",
                      (unsigned)uid);
    return 0;
}
