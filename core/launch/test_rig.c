/*
 * The rig of the launcher's tests: see test_rig.h.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/test_tools.h"
#include "launch/test_rig.h"

#define ANSWER_MAX 60000
#define PATIENCE_MS 120000

static int on_ready(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)m, (void)err;
    ((struct rig *)ctx)->ready = true;
    return 0;
}

static int on_resolved(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct rig *r = ctx;
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(BR_BLOB_MAX);
    BR_CLEANUP_BUF struct br_buf facts = BR_BUF_INIT(BR_BLOB_MAX);
    (void)c;
    br_plan_free(&r->plan);
    br_plan_get(&m->rd, &r->plan);
    int k = br_msg_blob(m, BR_BLOB_MAX, &text, err);
    if (k == 0)
        k = br_msg_blob(m, BR_BLOB_MAX, &facts, err);
    if (k < 0 || br_rd_done(&m->rd) < 0)
        return -BR_E_PEER_PROTOCOL;
    r->resolved = true;
    return 0;
}

static int on_started(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct rig *r = ctx;
    char network[64];
    BR_CLEANUP_BUF struct br_buf receipt;
    (void)c;
    br_rd_str(&m->rd, r->name, sizeof(r->name));
    r->mounts = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, r->image, sizeof(r->image));
    br_rd_str(&m->rd, network, sizeof(network));
    int k = br_msg_blob(m, BR_BLOB_MAX, &receipt, err);
    if (k < 0 || br_rd_done(&m->rd) < 0)
        return -BR_E_PEER_PROTOCOL;
    free(r->receipt);
    r->receipt = strdup(br_buf_cstr(&receipt));
    r->pidfd = br_msg_take_fd(m);
    r->started = true;
    return 0;
}

static int on_refused(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct rig *r = ctx;
    (void)c, (void)err;
    r->code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, r->text, sizeof(r->text));
    r->refused = true;
    return br_rd_done(&m->rd);
}

static int on_stopped(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct rig *r = ctx;
    (void)c, (void)err;
    r->verified = br_rd_u8(&m->rd);
    r->status = br_rd_u32(&m->rd);
    (void)br_rd_u64(&m->rd);
    br_rd_str(&m->rd, r->text, sizeof(r->text));
    r->stopped = true;
    return br_rd_done(&m->rd);
}

static int on_probed(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct rig *r = ctx;
    (void)c, (void)err;
    r->nprobes = br_probes_get(&m->rd, r->probes, BR_PROBES_MAX);
    r->probed = true;
    return br_rd_done(&m->rd);
}

static int on_leased(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct rig *r = ctx;
    (void)c, (void)err;
    r->lease = br_msg_take_fd(m);
    r->leased = true;
    return br_rd_done(&m->rd);
}

static const struct br_msg_rule rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT | BR_ONCE, 8, 4096, 0, 0, on_ready},
    {BR_MSG_LAUNCH_STARTED, BR_PERMIT, 16, BR_MSG_MAX, 1, 2, on_started},
    {BR_MSG_LAUNCH_RESOLVED, BR_PERMIT, 16, BR_MSG_MAX, 0, 2, on_resolved},
    {BR_MSG_LAUNCH_REFUSED, BR_PERMIT, 8, 4096, 0, 0, on_refused},
    {BR_MSG_LAUNCH_STOPPED, BR_PERMIT, 17, 4096, 0, 0, on_stopped},
    {BR_MSG_LAUNCH_PROBED, BR_PERMIT, 4, BR_MSG_MAX, 0, 0, on_probed},
    {BR_MSG_LAUNCH_LEASED, BR_PERMIT, 0, 0, 1, 1, on_leased},
};

/* A launcher that is to be killed may be gone at any time. */
static bool died(struct rig *r, int k)
{
    if (k < 0 && r->kill)
        r->gone = true;
    return r->gone;
}

static void receive(struct rig *r, const bool *a, const bool *b)
{
    while (!r->gone && !*a && !*b) {
        struct br_err err = {.code = BR_OK};
        struct pollfd p = {.fd = r->chan.fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
        int k = br_chan_dispatch(&r->chan, &err);
        if (!died(r, k) && k < 0)
            fail_msg("the launcher: %s %s", br_code_name(k), err.text);
    }
}

void rig_need_root(void)
{
    test_need_root();
}

static void own(const struct rig *r, const char *path)
{
    uid_t uid = r->uid ? r->uid : RIG_OWNER;
    assert_int_equal(lchown(path, uid, uid), 0);
}

static void copy_program(const char *name, const char *dir)
{
    char from[512], to[512];
    snprintf(from, sizeof(from), "%s/../tests/launch/%s", getenv("BRIDLE_BIN"), name);
    snprintf(to, sizeof(to), "%s/%s", dir, name);
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(256u << 20);
    BR_CLEANUP_FD int in = open(from, O_RDONLY | O_CLOEXEC);
    BR_CLEANUP_FD int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    assert_true(in >= 0 && out >= 0);
    assert_int_equal(br_read_all(in, &b, name, NULL), 0);
    assert_int_equal(br_write_all(out, b.data, b.len), 0);
    assert_int_equal(fchmod(out, 0755), 0);
}

void rig_make(struct rig *r, uid_t uid)
{
    *r = (struct rig){.uid = uid, .init = -1, .pidfd = -1, .chan = {.fd = -1}};
    snprintf(r->dir, sizeof(r->dir), "/tmp/bridle-rig-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    assert_int_equal(chmod(r->dir, 0755), 0);
    snprintf(r->ws, sizeof(r->ws), "%s/ws", r->dir);
    assert_int_equal(mkdir(r->ws, 0755), 0);
    own(r, r->ws);
    copy_program("bridle-launch", r->dir);
    copy_program("bridle-init", r->dir);
    br_plan_default(&r->plan);
}

/*
 * A launcher whose unshare(2) or mount(2) does nothing must notice before it changes anything. If
 * it does not, it changes this, not the host. Shared, as on most hosts.
 */
static void leave_host(void)
{
    if (unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWNET | CLONE_NEWIPC) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL) < 0)
        _exit(70);
    /* numbers of namespaces that are gone are given out again; these must last */
    static const char *const kept[] = {"mnt", "uts", "net", "ipc"};
    for (unsigned k = 0; k < BR_ARRAY_LEN(kept); k++) {
        char path[64];
        snprintf(path, sizeof(path), "/proc/self/ns/%s", kept[k]);
        if (open(path, O_RDONLY) < 0) /* also after the exec */
            _exit(70);
    }
}

static void exec_launcher(const struct rig *r, int chan)
{
    char path[256], weak[128], fault[128], pool[64], kill_at[64];
    char *const argv[] = {path, NULL};
    char *env[8] = {NULL};
    unsigned n = 0;
    snprintf(path, sizeof(path), "%s/bridle-launch", r->dir);
    snprintf(weak, sizeof(weak), "BRIDLE_TEST_WEAK=%s", r->weak ? r->weak : "");
    snprintf(fault, sizeof(fault), "BRIDLE_TEST_FAIL=%s", r->fault ? r->fault : "");
    env[n++] = weak;
    if (r->fault)
        env[n++] = fault;
    snprintf(kill_at, sizeof(kill_at), "BRIDLE_TEST_KILL=%u", r->kill);
    if (r->kill)
        env[n++] = kill_at;
    if (r->loop)
        env[n++] = (char *)(uintptr_t) "BRIDLE_TEST_LOOP=1";
    snprintf(pool, sizeof(pool), "BRIDLE_TEST_POOL=%s", r->pool ? r->pool : "1");
    env[n++] = pool;
    /* a marker that must not appear inside */
    env[n++] = (char *)(uintptr_t) "BRIDLE_SECRET=marker-of-the-rig";
    if (chan == 3)
        (void)fcntl(3, F_SETFD, 0);
    else if (dup2(chan, 3) < 0)
        _exit(70);
    br_close_from(4, NULL, 0);
    if (r->fault) {
        leave_host();
        (void)dup2(open("/", O_PATH), 0); /* not /dev/null, as by chance */
    }
    const gid_t group = RIG_OWNER; /* one that must not get inside */
    if (!r->uid && setgroups(1, &group) < 0)
        _exit(70);
    if (r->uid && (setgroups(0, NULL) < 0 || setresgid(r->uid, r->uid, r->uid) < 0 ||
                   setresuid(r->uid, r->uid, r->uid) < 0))
        _exit(70);
    execve(path, argv, env);
    _exit(70);
}

void rig_start(struct rig *r)
{
    int pair[2];
    assert_int_equal(br_chan_pair(pair), 0);
    r->pid = fork();
    assert_true(r->pid >= 0);
    if (r->pid == 0)
        exec_launcher(r, pair[1]);
    close(pair[1]);
    r->gone = r->ready = false;
    br_chan_init(&r->chan, pair[0], "launch", rules, BR_ARRAY_LEN(rules), r);
    receive(r, &r->ready, &r->ready);
}

void rig_open(struct rig *r, uid_t uid)
{
    rig_make(r, uid);
    rig_start(r);
}

void rig_config(struct rig *r)
{
    char path[128];
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    snprintf(path, sizeof(path), "%s/state", r->dir);
    if (mkdir(path, 0700) == 0)
        assert_int_equal(lchown(path, r->uid, r->uid), 0);
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    br_out_fd(&o, fd, false);
    int k = br_chan_send(&r->chan, BR_MSG_LAUNCH_CONFIG, 0, &o, NULL);
    if (!died(r, k))
        assert_int_equal(k, 0);
}

void rig_close(struct rig *r)
{
    int status = -1;
    br_close(&r->init);
    br_close(&r->pidfd);
    if (r->pid > 0) {
        br_chan_close(&r->chan);
        assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
        assert_int_equal(status, 0);
        assert_int_equal(rig_cgroups(r->pid), 0);
    }
    free(r->receipt);
    br_plan_free(&r->plan);
    assert_int_equal(test_remove_tree(r->dir), 0);
}

bool rig_resolve(struct rig *r, int ws_fd)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    BR_CLEANUP_FD int own_fd = ws_fd < 0 ? open(r->ws, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    r->resolved = r->refused = false;
    r->plan.nsources = 0;
    br_plan_put(&o.buf, &r->plan);
    br_out_fd(&o, ws_fd < 0 ? own_fd : ws_fd, false);
    int k = br_chan_send(&r->chan, BR_MSG_LAUNCH_RESOLVE, 6, &o, NULL);
    if (!died(r, k))
        assert_int_equal(k, 0);
    receive(r, &r->resolved, &r->refused);
    return r->resolved;
}

bool rig_launch_at(struct rig *r, int ws_fd)
{
    uint32_t code = 0;
    if (r->plan.nallowed && r->plan.nsources != r->plan.nallowed && !rig_resolve(r, ws_fd)) {
        code = r->code;
        r->plan.nsources = r->plan.nallowed;
    }
    bool started = rig_launch_resolved(r, ws_fd);
    r->plan.nsources = 0;
    if (code && (started || r->code != code))
        fail_msg("refused as %s when it was resolved, but then: %s", br_code_name((int)code),
                 started ? "started" : r->text);
    return started;
}

bool rig_launch_resolved(struct rig *r, int ws_fd)
{
    int pair[2];
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    BR_CLEANUP_FD int own_fd = ws_fd < 0 ? open(r->ws, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    r->started = r->refused = r->stopped = false;
    br_close(&r->init);
    br_close(&r->pidfd);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    r->init = pair[0];
    br_plan_put(&o.buf, &r->plan);
    br_out_fd(&o, ws_fd < 0 ? own_fd : ws_fd, false);
    br_out_fd(&o, pair[1], true);
    int k = br_chan_send(&r->chan, BR_MSG_LAUNCH_PLAN, 7, &o, NULL);
    if (!died(r, k))
        assert_int_equal(k, 0);
    receive(r, &r->started, &r->refused);
    return r->started;
}

bool rig_launch(struct rig *r)
{
    bool ok = rig_launch_at(r, -1);
    if (!ok)
        print_message("refused: %s %s\n", br_code_name((int)r->code), r->text);
    return ok;
}

void rig_wait_stopped(struct rig *r)
{
    receive(r, &r->stopped, &r->stopped);
}

const char *rig_ask(struct rig *r, const char *fmt, ...)
{
    static char answer[ANSWER_MAX];
    char command[ANSWER_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(command, sizeof(command), fmt, ap);
    va_end(ap);
    if (send(r->init, command, strlen(command), MSG_NOSIGNAL) < 0)
        return NULL;
    struct pollfd p = {.fd = r->init, .events = POLLIN};
    assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
    ssize_t n = recv(r->init, answer, sizeof(answer) - 1, 0);
    if (n <= 0)
        return NULL;
    answer[n] = 0;
    return answer;
}

int rig_sh(struct rig *r, const char *script, const char **out)
{
    const char *a = rig_ask(r, "sh %s", script);
    assert_non_null(a);
    const char *newline = strchr(a, '\n');
    if (out)
        *out = newline ? newline + 1 : "";
    return atoi(a);
}

int rig_call(struct rig *r, const char *name)
{
    const char *a = rig_ask(r, "call %s", name);
    assert_non_null(a);
    return atoi(a);
}

void rig_exit(struct rig *r, int status)
{
    char command[32];
    snprintf(command, sizeof(command), "exit %d", status);
    assert_true(send(r->init, command, strlen(command), MSG_NOSIGNAL) > 0);
    rig_wait_stopped(r);
    assert_int_equal(r->verified, 1);
    assert_int_equal(r->status, (uint32_t)status << 8);
}

void rig_allow(struct rig *r, const char *pattern)
{
    assert_true(r->plan.nallowed < BR_ALLOWED_PATHS_MAX);
    r->plan.allowed_paths[r->plan.nallowed] = strdup(pattern);
    assert_non_null(r->plan.allowed_paths[r->plan.nallowed]);
    r->plan.nallowed++;
}

void rig_put(struct rig *r, const char *name, const char *text)
{
    char path[512];
    size_t n = (size_t)snprintf(path, sizeof(path), "%s/%s", r->ws, name);
    if (path[n - 1] == '/') {
        path[n - 1] = 0;
        assert_int_equal(mkdir(path, 0755), 0);
    } else {
        BR_CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        assert_true(fd >= 0);
        assert_int_equal(br_write_all(fd, text, strlen(text)), 0);
    }
    own(r, path);
}

/* ---- what is left ---- */

/* Directories below `at` whose names have both parts. By d_type: fts(3) counts on a number of links
 * that other programs' cgroups change meanwhile. */
static unsigned count_cgroups(int at, const char *start, const char *part)
{
    unsigned found = 0;
    DIR *d = at < 0 ? NULL : fdopendir(at);
    if (!d) { /* it has gone */
        br_close(&at);
        return 0;
    }
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_type != DT_DIR || e->d_name[0] == '.')
            continue;
        found += strncmp(e->d_name, start, strlen(start)) == 0 && strstr(e->d_name, part);
        found += count_cgroups(openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                               start, part);
    }
    closedir(d);
    return found;
}

unsigned rig_cgroups(pid_t launcher)
{
    char wanted[32], own[48];
    struct stat ns;
    int root = open("/sys/fs/cgroup", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(root >= 0);
    /* of this pid namespace; others have the same pids */
    assert_int_equal(stat("/proc/self/ns/pid", &ns), 0);
    snprintf(own, sizeof(own), "bridle.%lu.", (unsigned long)ns.st_ino);
    snprintf(wanted, sizeof(wanted), ".%d.", (int)launcher);
    return count_cgroups(root, own, wanted);
}

unsigned rig_children(pid_t launcher)
{
    char path[64], text[4096];
    unsigned n = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)launcher, (int)launcher);
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t k = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    for (ssize_t i = 0; i < k; i++)
        n += text[i] == ' ';
    return n;
}

/* ---- the ordinary user's cgroups ---- */

static const char *const v1[] = {"memory", "pids", "cpu"};

static int delegated_path(unsigned i, char *dst, size_t cap)
{
    snprintf(dst, cap, "/sys/fs/cgroup/%s/bridle-%u", v1[i], RIG_USER);
    return access(dst, F_OK);
}

int rig_delegate(void **state)
{
    char path[512], arg[16];
    int status = 0;
    (void)state;
    if (geteuid() != 0)
        return 0;
    snprintf(path, sizeof(path), "%s/bridle-launch", getenv("BRIDLE_BIN"));
    snprintf(arg, sizeof(arg), "%u", RIG_USER);
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        (void)dup2(null, 1);
        execl(path, path, "--delegate", arg, (char *)NULL);
        _exit(70);
    }
    return waitpid(pid, &status, 0) == pid && status == 0 ? 0 : -1;
}

int rig_undelegate(void **state)
{
    char path[512];
    (void)state;
    for (unsigned i = 0; geteuid() == 0 && i < BR_ARRAY_LEN(v1); i++) {
        if (delegated_path(i, path, sizeof(path)) != 0)
            continue;
        /* the kernel takes removed children off line a little later, and says busy until then */
        int tries = 0;
        while (rmdir(path) < 0 && errno == EBUSY && ++tries < 2000)
            usleep(1000);
        if (access(path, F_OK) == 0)
            return -1;
    }
    return 0;
}

unsigned rig_box_uid(const struct rig *r)
{
    unsigned uid = 0;
    const char *p = strstr(r->receipt, "\"identity\":{\"kind\":\"dedicated\",\"uid\":");
    assert_non_null(p);
    assert_int_equal(sscanf(strstr(p, "\"uid\":"), "\"uid\":%u", &uid), 1);
    assert_in_range(uid, BR_UID_SANDBOX, BR_UID_SANDBOX_LAST);
    return uid;
}

int rig_lease(struct rig *r, const char *run_id, unsigned uid, unsigned gid)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, run_id);
    br_buf_put_u32(&o.buf, uid);
    br_buf_put_u32(&o.buf, gid);
    r->leased = r->refused = false;
    r->lease = -1;
    assert_int_equal(br_chan_send(&r->chan, BR_MSG_LAUNCH_LEASE, 3, &o, NULL), 0);
    receive(r, &r->leased, &r->refused);
    return r->leased ? r->lease : -1;
}
