/*
 * May a session be made? What a client said is a path, a name of a task and a name of a model; all
 * three are its own words. The workspace is opened below the operator's root by the kernel's own
 * rules, and remembered as where it really was; the task's manifest is read once, and what was
 * checked is what will run. Called for GATE_CHECK; the gateway is not trusted.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "supervise/service.h"

/* ---- the workspace ---- */

static int outside(const char *path, const char *root, const char *why, struct br_err *err)
{
    return br_err_set(err, BR_E_INVALID_WORKSPACE,
                      "the workspace '%.1024s' %s; no session was created. Name a directory in "
                      "'%.1024s'",
                      path, why, root);
}

/* Links are followed, as long as they stay below. */
static int open_below(int root, const char *rest)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, root, rest, &how, sizeof(how));
}

int workspace_below(const struct service_settings *s, const char *path, char real[BR_PATH_MAX],
                    struct br_err *err)
{
    const char *root = s->c.s.root, *rest = path;
    size_t n = strlen(root);
    struct stat st;
    char link[64];
    if (!*path || strlen(path) >= BR_PATH_MAX || !br_utf8_valid(path, strlen(path)))
        return outside(path, root, "is no usable path", err);
    if (path[0] == '/') {
        if (n == 1)
            n = 0; /* the root of everything */
        if (strncmp(path, root, n) != 0 || (path[n] && path[n] != '/'))
            return outside(path, root, "is not in the service's root", err);
        for (rest = path + n; *rest == '/';)
            rest++;
    }
    BR_CLEANUP_FD int fd = open_below(s->root_fd, *rest ? rest : ".");
    if (fd < 0 && (errno == EXDEV || errno == ELOOP))
        return outside(path, root, "leads out of the service's root", err);
    if (fd < 0)
        return outside(path, root, errno == ENOTDIR ? "is not a directory" : "cannot be opened",
                       err);
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, real, BR_PATH_MAX - 1);
    if (len <= 0 || fstat(fd, &st) < 0)
        return outside(path, root, "cannot be examined", err);
    real[len] = 0;
    if (!br_utf8_valid(real, (size_t)len)) /* of a link: neither record nor client could name it */
        return outside(path, root, "leads to a path that is not valid UTF-8", err);
    if (strncmp(real, root, n) != 0 || (real[n] && real[n] != '/' && n))
        return outside(path, root, "is not in the service's root any more", err);
    if (geteuid() == 0 && (st.st_uid == 0 || st.st_gid == 0))
        return outside(path, root,
                       "belongs to root, and a sandbox runs as the owner of its workspace", err);
    return br_steal_fd(&fd);
}

/* ---- the task ---- */

static int bad_task(const char *task, enum br_code code, const char *why, struct br_err *err)
{
    return br_err_set(err, code,
                      "the task '%.128s' cannot be used: 'tasks/%.128s.yaml' %s; no session was "
                      "created",
                      task, task, why);
}

int task_read(int workspace, const char *task, struct br_buf *text, struct br_err *err)
{
    char name[BR_NAME_MAX];
    struct stat st, now;
    br_buf_init(text, BR_MANIFEST_MAX);
    if (!br_is_kebab(task, 128))
        return br_err_set(err, BR_E_INVALID_MANIFEST,
                          "'%.128s' is no id of a task: it is kebab-case; no session was created",
                          task);
    snprintf(name, sizeof(name), "tasks/%s.yaml", task);
    BR_CLEANUP_FD int fd = br_open_beneath(workspace, name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return bad_task(task, errno == ENOENT ? BR_E_NOT_FOUND : BR_E_INVALID_MANIFEST,
                        errno == ENOENT  ? "does not exist in the workspace"
                        : errno == ELOOP ? "is reached by a symbolic link"
                                         : strerror(errno),
                        err);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return bad_task(task, BR_E_INVALID_MANIFEST, "is not a regular file", err);
    if (st.st_nlink != 1)
        return bad_task(task, BR_E_INVALID_MANIFEST, "has another name (a hard link)", err);
    if (st.st_size > (off_t)BR_MANIFEST_MAX)
        return bad_task(task, BR_E_INVALID_MANIFEST, "is larger than a manifest may be", err);
    if (br_read_all(fd, text, name, NULL) < 0 || fstat(fd, &now) < 0 ||
        (off_t)text->len != st.st_size || now.st_size != st.st_size ||
        now.st_mtim.tv_nsec != st.st_mtim.tv_nsec || now.st_mtim.tv_sec != st.st_mtim.tv_sec)
        return bad_task(task, BR_E_INVALID_MANIFEST, "changed while it was read", err);
    return text->len ? 0 : bad_task(task, BR_E_INVALID_MANIFEST, "is empty", err);
}

static void check_failed(struct run *r, int code, const struct br_err *why)
{
    struct service *sv = r->sv;
    gate_checked(sv, r->check_id, code, why, NULL);
    run_free(r);
    checks_advance(sv);
}

static void check_done(struct run *r)
{
    r->state = RUN_CHECKED;
    r->since_us = br_now_us();
    gate_checked(r->sv, r->check_id, 0, NULL, r);
}

static int on_tasked(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct run *r = (struct run *)((char *)ctx - offsetof(struct run, kid));
    char id[BR_NAME_MAX];
    (void)c;
    br_rd_str(&m->rd, id, sizeof(id));
    r->ceilings.tokens = br_rd_u64(&m->rd);
    r->ceilings.tool_calls = br_rd_u64(&m->rd);
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "a malformed SCRIPT_TASKED");
    r->ended = true;
    r->code = 0;
    if (strcmp(id, r->task_id) != 0) {
        r->code = BR_E_INVALID_MANIFEST;
        snprintf(
            r->text, sizeof(r->text),
            "'tasks/%.128s.yaml' is the manifest of '%.128s'; no session was created. Make its "
            "'id' that of the task",
            r->task_id, id);
    }
    kid_kill(&r->kid);
    return 0;
}

static int on_task_failed(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct run *r = (struct run *)((char *)ctx - offsetof(struct run, kid));
    char file[BR_PATH_MAX];
    (void)c;
    r->code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, r->text, sizeof(r->text));
    br_rd_str(&m->rd, file, sizeof(file));
    (void)br_rd_u32(&m->rd);
    if (br_rd_done(&m->rd) < 0 || r->code == 0 || r->code >= BR_CODE_COUNT_)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "a malformed SCRIPT_FAILED");
    r->code = BR_E_INVALID_MANIFEST;
    r->ended = true;
    kid_kill(&r->kid);
    return 0;
}

static int on_script_ready(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)m, (void)ctx, (void)err;
    return 0;
}

static const struct br_msg_rule task_rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT | BR_ONCE, 8, 4096, 0, 0, on_script_ready},
    {BR_MSG_SCRIPT_TASKED, BR_PERMIT | BR_ONCE, 20, 512, 0, 0, on_tasked},
    {BR_MSG_SCRIPT_FAILED, BR_PERMIT | BR_ONCE, 16, 8192, 0, 0, on_task_failed},
};

static void on_task_end(struct kid *k, int status)
{
    struct run *r = (struct run *)((char *)k - offsetof(struct run, kid));
    struct service *sv = r->sv;
    struct br_err why = {.code = BR_OK};
    (void)status;
    sv->ntasks--;
    if (!r->ended)
        (void)bad_task(r->task_id, BR_E_INVALID_MANIFEST, "could not be checked in time", &why);
    else if (r->code)
        (void)br_err_set(&why, (enum br_code)r->code, "%s", r->text);
    r->ended = false;
    r->code = 0;
    r->text[0] = 0;
    if (why.code) {
        check_failed(r, -(int)why.code, &why);
        return;
    }
    check_done(r);
    checks_advance(sv);
}

static int ask_script(struct run *r, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out start = BR_OUT_INIT, task = BR_OUT_INIT;
    int k = kid_start_role(r->sv, &r->kid, "bridle-script", BR_UID_SCRIPT, task_rules,
                           BR_ARRAY_LEN(task_rules), on_task_end, err);
    if (k < 0)
        return k;
    r->sv->ntasks++;
    r->since_us = br_now_us();
    br_buf_put_u8(&start.buf, BR_SCRIPT_CONFIG);
    br_buf_put_str(&task.buf, r->manifest_path);
    br_out_blob(&task, r->manifest.data, r->manifest.len);
    /* if it cannot be told, its end is heard of */
    (void)br_chan_send(&r->kid.chan, BR_MSG_SCRIPT_START, 0, &start, NULL);
    (void)br_chan_send(&r->kid.chan, BR_MSG_SCRIPT_TASK, 1, &task, NULL);
    service_tick(r->sv, SERVICE_TASK_US);
    return 0;
}

void checks_advance(struct service *sv)
{
    struct br_err err = {.code = BR_OK};
    for (struct run *r = sv->runs, *next; r && sv->ntasks < SERVICE_TASKS_MAX; r = next) {
        next = r->next;
        if (r->state != RUN_CHECKING || r->kid.pid > 0)
            continue;
        int k = ask_script(r, &err);
        if (k < 0) {
            gate_checked(sv, r->check_id, k, &err, NULL);
            run_free(r);
        }
    }
}

/* ---- all of it ---- */

static int check_model(const struct service_settings *s, const char *model, struct br_err *err)
{
    if (!*model)
        return 0;
    for (unsigned i = 0; i < s->nmodels; i++)
        if (strcmp(s->models[i], model) == 0)
            return 0;
    return br_err_set(err, BR_E_NOT_FOUND,
                      "the service does not offer the model '%.200s'; no session was created. "
                      "'initialize' lists those that it does",
                      model);
}

static int check_places(struct run *r, const char *workspace, const char *task, const char *model,
                        struct br_err *err)
{
    struct service *sv = r->sv;
    char real[BR_PATH_MAX];
    int k = check_model(sv->now, model, err);
    if (k < 0)
        return k;
    BR_CLEANUP_FD int fd = workspace_below(sv->now, workspace, real, err);
    if (fd < 0)
        return fd;
    r->workspace = strdup(real);
    r->root = strdup(sv->now->c.s.root);
    snprintf(r->model, sizeof(r->model), "%s", *model ? model : sv->now->default_model);
    if (*task) {
        char path[BR_PATH_MAX + 256];
        k = task_read(fd, task, &r->manifest, err);
        if (k < 0)
            return k;
        if (sv->manifest_bytes + r->manifest.len > SERVICE_MANIFESTS_MAX)
            return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                              "the sessions that wait have too many tasks; no session was created. "
                              "Try again when some have run");
        sv->manifest_bytes += r->counted = r->manifest.len;
        snprintf(path, sizeof(path), "%s/tasks/%s.yaml", real, task);
        snprintf(r->task_id, sizeof(r->task_id), "%s", task);
        r->manifest_path = strlen(path) < BR_PATH_MAX ? strdup(path) : strdup(task);
    }
    if (!r->workspace || !r->root || (*task && !r->manifest_path))
        return br_err_set(err, BR_E_NOMEM, "no memory for a session");
    return 0;
}

void check_begin(struct service *sv, uint64_t id, const char *workspace, const char *task,
                 const char *model)
{
    struct br_err err = {.code = BR_OK};
    int k = 0;
    struct run *r = NULL;
    if (sv->draining)
        k = br_err_set(&err, BR_E_CANCELED, "the service is going down; no session was created");
    else if (sv->nruns >= SERVICE_SESSIONS_MAX)
        k = br_err_set(&err, BR_E_LIMIT_EXCEEDED,
                       "the service has %u sessions, which is its limit; no session was created. "
                       "Try again when some have ended",
                       sv->nruns);
    else if (!(r = run_new(sv)))
        k = br_err_set(&err, BR_E_NOMEM, "no memory for a session");
    if (k == 0) {
        r->check_id = id;
        k = check_places(r, workspace, task, model, &err);
    }
    if (k < 0) {
        gate_checked(sv, id, k, &err, NULL);
        if (r)
            run_free(r);
    } else if (r->manifest.len) {
        checks_advance(sv);
    } else {
        check_done(r);
    }
}
