/*
 * Durable sessions (sessions.h). A record is locked through its file as long as a run has it, so
 * that whoever dies lets go of it. Compares and stores text; the private state itself is mounted by
 * bridle-launch, and read by nobody but the sandbox.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervise/sessions.h"

static uint64_t now_s(void)
{
    return br_now_wall_us() / 1000000u;
}

void session_id_make(char id[BR_ID_MAX])
{
    br_id_make(id, "s");
    for (char *c = id; *c; c++)
        *c = *c == '_' ? '-' : (char)tolower((unsigned char)*c);
}

static int no_dir(struct br_err *err)
{
    return br_err_errno(err, BR_E_STORE_FAILED,
                        "'" SESSIONS_DIR "' in the state directory could not be used; nothing was "
                        "started");
}

static int in_use(const char *id, struct br_err *err)
{
    return br_err_set(err, BR_E_IN_USE,
                      "the session '%s' is in use by another run; nothing was changed. Wait for "
                      "its end",
                      id);
}

/*
 * The lock is a file of its own, since the record is replaced as a whole. It is removed with the
 * record, by whoever holds it.
 */
static int lock(int dir, const char *id, struct br_err *err)
{
    char name[96];
    struct stat st, named;
    snprintf(name, sizeof(name), ".%.63s.lock", id);
    BR_CLEANUP_FD int fd = openat(dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return br_err_errno(err, BR_E_STORE_FAILED, "the session '%s' could not be locked", id);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return in_use(id, err);
    /* somebody may have removed it in between */
    if (fstat(fd, &st) < 0 || fstatat(dir, name, &named, AT_SYMLINK_NOFOLLOW) < 0 ||
        st.st_ino != named.st_ino)
        return in_use(id, err);
    return br_steal_fd(&fd);
}

static void unlock_new(int dir, const char *id, int *fd)
{
    char name[96];
    snprintf(name, sizeof(name), ".%.63s.lock", id);
    (void)unlinkat(dir, name, 0);
    br_close(fd);
}

static int put(int dir, const char *id, const struct session_identity *is, uint64_t created,
               uint64_t used, uint64_t keep, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(RECORD_MAX);
#define SESSION_PUT_(member, name) record_put(&b, name, is->member);
    SESSION_FIELDS(SESSION_PUT_)
#undef SESSION_PUT_
    record_put_u64(&b, "created", created);
    record_put_u64(&b, "used", used);
    record_put_u64(&b, "keep", keep);
    return record_write(dir, id, &b, err);
}

int session_create(int state_fd, const char *id, const struct session_identity *is,
                   uint64_t keep_seconds, int *fd, struct br_err *err)
{
    BR_CLEANUP_FD int dir = record_dir(state_fd, SESSIONS_DIR, true);
    if (dir < 0)
        return no_dir(err);
    *fd = lock(dir, id, err);
    if (*fd < 0)
        return *fd;
    int r = put(dir, id, is, now_s(), now_s(), keep_seconds, err);
    if (r < 0)
        unlock_new(dir, id, fd);
    return r;
}

static int differs(const char *id, const char *field, const char *was, const char *is,
                   struct br_err *err)
{
    return br_err_set(err, BR_E_DENIED,
                      "the session '%s' does not go on: its '%s' was '%.200s' and is '%.200s'; "
                      "nothing was started. Make it as it was, or begin a new session",
                      id, field, was, is);
}

static int compare(const char *id, const char *text, const struct session_identity *is,
                   struct br_err *err)
{
    char was[SESSION_VALUE_MAX];
#define SESSION_COMPARE_(member, name)                                                             \
    if (!record_get(text, name, was, sizeof(was)) || strcmp(was, is->member) != 0)                 \
        return differs(id, name, was, is->member, err);
    SESSION_FIELDS(SESSION_COMPARE_)
#undef SESSION_COMPARE_
    return 0;
}

static int no_session(const char *id, struct br_err *err)
{
    return br_err_set(err, BR_E_NOT_FOUND,
                      "there is no session '%.64s'; nothing was started. 'bridle state list' "
                      "lists them",
                      id);
}

static bool has_record(int dir, const char *id)
{
    return dir >= 0 && record_name_ok(id) && faccessat(dir, id, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* The lock of a session that there is. Where there is none, no lock is left either. */
static int lock_existing(int dir, const char *id, struct br_err *err)
{
    if (!has_record(dir, id))
        return no_session(id, err);
    BR_CLEANUP_FD int fd = lock(dir, id, err);
    if (fd < 0)
        return fd;
    if (!has_record(dir, id)) { /* it went in between, and its lock with it */
        unlock_new(dir, id, &fd);
        return no_session(id, err);
    }
    return br_steal_fd(&fd);
}

int session_resume(int state_fd, const char *id, const struct session_identity *is, int *fd,
                   struct br_err *err)
{
    struct br_buf text = BR_BUF_INIT(0);
    BR_CLEANUP_FD int dir = record_dir(state_fd, SESSIONS_DIR, false);
    *fd = lock_existing(dir, id, err);
    if (*fd < 0)
        return *fd;
    int r = record_read(dir, id, &text, err);
    if (r == 0)
        r = compare(id, br_buf_cstr(&text), is, err);
    br_buf_free(&text);
    if (r < 0)
        br_close(fd);
    return r;
}

int session_touch(int state_fd, const char *id, struct br_err *err)
{
    struct br_buf text = BR_BUF_INIT(0);
    struct session_identity is;
    BR_CLEANUP_FD int dir = record_dir(state_fd, SESSIONS_DIR, false);
    int r = dir < 0 ? -BR_E_NOT_FOUND : record_read(dir, id, &text, err);
    if (r == 0) {
        const char *t = br_buf_cstr(&text);
#define SESSION_GET_(member, name) (void)record_get(t, name, is.member, sizeof(is.member));
        SESSION_FIELDS(SESSION_GET_)
#undef SESSION_GET_
        r = put(dir, id, &is, record_get_u64(t, "created", 0), now_s(),
                record_get_u64(t, "keep", SESSION_SECONDS), err);
    }
    br_buf_free(&text);
    return r;
}

/* ---- of a run ---- */

static void image_name(const char *id, char name[96])
{
    snprintf(name, 96, "state-%.63s.img", id);
}

static bool has_state(const struct supervisor *s, const char *id)
{
    char name[96];
    BR_CLEANUP_FD int leases = kept_leases(s);
    image_name(id, name);
    return leases >= 0 && faccessat(leases, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* What may be asked of which model, as far as the operator decides it. */
static void put_model_policy(const struct supervisor *s, char *dst, size_t cap)
{
    struct br_lease l = {.seconds = UINT32_MAX};
    harness_lease(s, &l);
    int n = snprintf(dst, cap,
                     "routes=%u answers=%u requests=%u request-bytes=%llu response-bytes=%llu "
                     "tokens=%llu answer-tokens=%u in-flight=%u seconds=%u tools=%s",
                     l.routes, l.answers, l.max_requests, (unsigned long long)l.max_request_bytes,
                     (unsigned long long)l.max_response_bytes, (unsigned long long)l.max_tokens,
                     l.max_answer_tokens, l.max_in_flight, l.seconds == UINT32_MAX ? 0 : l.seconds,
                     l.any_tools ? "*" : "");
    for (uint32_t i = 0; i < l.ntools && n > 0 && (size_t)n < cap; i++)
        n += snprintf(dst + n, cap - (size_t)n, "%s%s", i ? "," : "", l.tools[i]);
}

/* Where the model is, and as whom it is asked: names of keys and files, never what is in them. */
static void put_provider(const struct provider *p, struct session_identity *is)
{
    snprintf(is->provider_url, sizeof(is->provider_url), "%s", p->base_url);
    snprintf(is->provider_key, sizeof(is->provider_key), "%u %s", (unsigned)p->key_from,
             p->key_name);
    snprintf(is->provider_auth, sizeof(is->provider_auth), "%u", (unsigned)p->auth);
    snprintf(is->provider_proxy, sizeof(is->provider_proxy), "%s", p->proxy);
    snprintf(is->provider_ca, sizeof(is->provider_ca), "%s", p->ca_file);
}

static int identify(const struct supervisor *s, const struct br_plan *plan,
                    struct session_identity *is, struct br_err *err)
{
    struct stat st;
    char hex[65];
    const struct br_adapter *a = &s->harness.adapter;
    if (fstat(s->workspace_fd, &st) < 0)
        return br_err_errno(err, BR_E_INVALID_WORKSPACE, "the workspace cannot be examined");
    memset(is, 0, sizeof(*is));
    snprintf(is->adapter, sizeof(is->adapter), "%s", a->id);
    snprintf(is->revision, sizeof(is->revision), "%u", (unsigned)a->revision);
    snprintf(is->profile, sizeof(is->profile), "%s", plan->profile);
    snprintf(is->profile_version, sizeof(is->profile_version), "%u", plan->profile_version);
    br_hex(hex, plan->profile_sha256, sizeof(plan->profile_sha256));
    snprintf(is->profile_text, sizeof(is->profile_text), "%s", hex);
    snprintf(is->image, sizeof(is->image), "%s", plan->image);
    snprintf(is->workspace, sizeof(is->workspace), "%s", s->req.workspace);
    snprintf(is->workspace_id, sizeof(is->workspace_id), "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    snprintf(is->policy, sizeof(is->policy), "%s",
             s->req.pin.sha256[0] ? s->req.pin.sha256 : "built-in");
    snprintf(is->model, sizeof(is->model), "%s", s->provider.model);
    put_model_policy(s, is->model_policy, sizeof(is->model_policy));
    put_provider(&s->provider, is);
    snprintf(is->owner, sizeof(is->owner), "%u", (unsigned)geteuid());
    return 0;
}

int session_open(struct supervisor *s, struct br_plan *plan, struct br_err *err)
{
    static struct session_identity is;
    const struct br_harness *h = &s->harness;
    const char *id = h->session_id;
    if (!s->req.adapter[0] || !id[0])
        return 0;
    if (plan->disks[BR_DISK_STATE].kind != BR_QUOTA_EXT4)
        return !h->resume ? 0
                          : br_err_set(err, BR_E_REQUIREMENT_MISSING,
                                       "the profile '%s' has its state disk in memory: sessions "
                                       "with it end with their run, and none goes on; nothing was "
                                       "started. Use a profile with an 'ext4' state disk, such as "
                                       "workspace-v1",
                                       plan->profile);
    if (plan->state[0])
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "the profile '%s' names its state disk ('%s'), and a session has one of "
                          "its own; nothing was started. Leave the name out of the profile",
                          plan->profile, plan->state);
    if (!br_is_kebab(id, sizeof(plan->state) - 1))
        return br_err_set(err, BR_E_NOT_FOUND, "'%.64s' is no id of a session; nothing was started",
                          id);
    int r = identify(s, plan, &is, err);
    if (r == 0 && h->resume)
        r = session_resume(s->state_fd, id, &is, &s->session_lock, err);
    else if (r == 0)
        r = session_create(s->state_fd, id, &is,
                           h->terms.keep_seconds ? h->terms.keep_seconds : SESSION_SECONDS,
                           &s->session_lock, err);
    if (r == 0 && h->resume && !has_state(s, id)) {
        BR_CLEANUP_FD int dir = record_dir(s->state_fd, SESSIONS_DIR, false);
        unlock_new(dir, id, &s->session_lock);
        r = br_err_set(err, BR_E_NOT_FOUND,
                       "the state of the session '%s' is not there any more; nothing was started. "
                       "Begin a new session",
                       id);
    }
    if (r == 0)
        snprintf(plan->state, sizeof(plan->state), "%s", id);
    return r;
}

void session_close(struct supervisor *s)
{
    struct br_err err = {.code = BR_OK};
    const char *id = s->harness.session_id;
    if (s->session_lock < 0)
        return;
    BR_CLEANUP_FD int dir = record_dir(s->state_fd, SESSIONS_DIR, false);
    if (dir >= 0 && !s->harness.resume && !has_state(s, id)) {
        (void)unlinkat(dir, id, 0);
        unlock_new(dir, id, &s->session_lock);
    } else if (session_touch(s->state_fd, id, &err) < 0) {
        br_log(BR_LOG_WARN, "%s", err.text);
    }
    br_close(&s->session_lock);
}

/* ---- list and remove ---- */

int session_row(int dir, int leases, const char *id, const char *text, struct br_state_row *w)
{
    char value[64], name[96];
    struct stat st;
    uint64_t used = record_get_u64(text, "used", UINT64_MAX),
             keep = record_get_u64(text, "keep", UINT64_MAX),
             owner = record_get_u64(text, "owner", UINT64_MAX);
    if (used == UINT64_MAX || keep == UINT64_MAX || owner > UINT32_MAX)
        return -1;
    *w = (struct br_state_row){.kind = BR_STATE_SESSION,
                               .owner = (uint32_t)owner,
                               .created = record_get_u64(text, "created", 0),
                               .used = used,
                               .expires = used + keep};
    snprintf(w->id, sizeof(w->id), "%s", id);
    (void)record_get(text, "profile", w->profile, sizeof(w->profile));
    (void)record_get(text, "image", w->image, sizeof(w->image));
    (void)record_get(text, "workspace", w->workspace, sizeof(w->workspace));
    if (record_get(text, "adapter", value, sizeof(value)))
        snprintf(w->adapter, sizeof(w->adapter), "%s@%u", value,
                 (unsigned)record_get_u64(text, "revision", 0));
    image_name(id, name);
    w->bytes = leases >= 0 && fstatat(leases, name, &st, AT_SYMLINK_NOFOLLOW) == 0
                   ? (uint64_t)st.st_blocks * 512u
                   : 0;
    snprintf(name, sizeof(name), ".%.63s.lock", id);
    w->in_use = fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && leases_locked(&st);
    return 0;
}

static bool is_over(int dir, const char *id)
{
    struct br_buf text;
    struct br_state_row w;
    bool over = record_read(dir, id, &text, NULL) == 0 &&
                session_row(dir, -1, id, br_buf_cstr(&text), &w) == 0 && w.expires < now_s();
    br_buf_free(&text);
    return over;
}

int session_purge(struct supervisor *s, const char *id, bool expired, struct br_err *err)
{
    char image[96];
    BR_CLEANUP_FD int dir = record_dir(s->state_fd, SESSIONS_DIR, false);
    BR_CLEANUP_FD int leases = kept_leases(s);
    BR_CLEANUP_FD int held = lock_existing(dir, id, err);
    if (held == -BR_E_NOT_FOUND)
        return br_err_set(err, BR_E_NOT_FOUND, "there is no session '%.64s'", id);
    if (held < 0)
        return held;
    if (expired && !is_over(dir, id)) /* somebody went on with it in between */
        return 0;
    image_name(id, image);
    BR_CLEANUP_FD int fd =
        leases >= 0 ? br_open_beneath(leases, image, O_RDONLY | O_NONBLOCK, 0) : -1;
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0)
        return in_use(id, err);
    /* the state first: a record without it can be removed again, the other way round not */
    if (leases >= 0 && unlinkat(leases, image, 0) < 0 && errno != ENOENT)
        return br_err_errno(err, BR_E_STORE_FAILED, "'leases/%s' could not be removed", image);
    if (unlinkat(dir, id, 0) < 0 && errno != ENOENT)
        return br_err_errno(err, BR_E_STORE_FAILED, "the session '%s' could not be removed", id);
    unlock_new(dir, id, &held);
    return 0;
}

void sessions_sweep(struct supervisor *s)
{
    BR_CLEANUP_FD int dir = record_dir(s->state_fd, SESSIONS_DIR, false);
    int copy = dir >= 0 ? openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
    if (!d)
        br_close(&copy);
    for (struct dirent *e; d && (e = readdir(d));)
        if (record_name_ok(e->d_name) && is_over(dir, e->d_name)) /* or it is not worth a lock */
            (void)session_purge(s, e->d_name, true, NULL);        /* refused while it is in use */
    if (d)
        closedir(d);
}
