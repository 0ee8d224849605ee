/*
 * Workspace leases that stay after their run (kept.h): bridled says before a launch whose lease it
 * will be, and after the end whether it is still there. Whatever dies in between leaves an image
 * with a record; the next run removes what nobody may have any more. Opens no file system.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "promote/journal.h"
#include "sandbox/lease_base.h"
#include "supervise/kept.h"

void kept_name(const char *run_id, enum kept_file f, char name[96])
{
    static const char *const ends[KEPT_FILES] = {"img", "base", "journal"};
    snprintf(name, 96, "run-%.47s.%s", run_id, ends[f]);
}

int kept_leases(const struct supervisor *s)
{
    return record_dir(s->state_fd, "leases", false);
}

static uint64_t now_s(void)
{
    return br_now_wall_us() / 1000000u;
}

int kept_parse(const char *run_id, const char *text, struct kept *k, struct br_err *err)
{
    const uint64_t none = UINT64_MAX;
    *k = (struct kept){.created = record_get_u64(text, "created", none),
                       .ended = record_get_u64(text, "ended", 0),
                       .keep = record_get_u64(text, "keep", none),
                       .dev = record_get_u64(text, "workspace-device", none),
                       .ino = record_get_u64(text, "workspace-inode", none)};
    uint64_t owner = record_get_u64(text, "owner", none),
             uid = record_get_u64(text, "workspace-uid", none),
             gid = record_get_u64(text, "workspace-gid", none);
    snprintf(k->run_id, sizeof(k->run_id), "%s", run_id);
    (void)record_get(text, "profile", k->profile, sizeof(k->profile));
    (void)record_get(text, "image", k->image, sizeof(k->image));
    (void)record_get(text, "adapter", k->adapter, sizeof(k->adapter));
    const char *what = !record_get(text, "workspace", k->workspace, sizeof(k->workspace))
                           ? "workspace"
                       : k->created == none || k->keep == none ? "time"
                       : k->dev == none || k->ino == none      ? "workspace's identity"
                       : owner > UINT32_MAX                    ? "owner"
                       : uid > UINT32_MAX || gid > UINT32_MAX  ? "workspace's owner"
                                                               : NULL;
    if (what)
        return br_err_set(err, BR_E_STORE_FAILED,
                          "the record of the kept workspace of '%s' does not say its %s; it cannot "
                          "be used",
                          run_id, what);
    k->owner = (uint32_t)owner;
    k->uid = (uint32_t)uid;
    k->gid = (uint32_t)gid;
    return 0;
}

static int write_record(struct supervisor *s, const struct kept *k, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(RECORD_MAX);
    BR_CLEANUP_FD int dir = record_dir(s->state_fd, KEPT_DIR, true);
    if (dir < 0)
        return br_err_errno(err, BR_E_STORE_FAILED, "'%s/" KEPT_DIR "' could not be used",
                            s->state_dir);
    record_put_u64(&b, "owner", k->owner);
    record_put(&b, "workspace", k->workspace);
    record_put_u64(&b, "workspace-device", k->dev);
    record_put_u64(&b, "workspace-inode", k->ino);
    record_put_u64(&b, "workspace-uid", k->uid);
    record_put_u64(&b, "workspace-gid", k->gid);
    record_put(&b, "profile", k->profile);
    record_put(&b, "image", k->image);
    record_put(&b, "adapter", k->adapter);
    record_put_u64(&b, "created", k->created);
    record_put_u64(&b, "ended", k->ended);
    record_put_u64(&b, "keep", k->keep);
    return record_write(dir, k->run_id, &b, err);
}

/* The first record, locked before anybody who sweeps can see it: as long as this program lives, the
 * run may still make what the record is about. */
static int begin_record(struct supervisor *s, const struct kept *k, struct br_err *err)
{
    BR_CLEANUP_FD int dir = record_dir(s->state_fd, KEPT_DIR, true);
    if (dir < 0 || flock(dir, LOCK_EX) < 0)
        return br_err_errno(err, BR_E_STORE_FAILED, "'%s/" KEPT_DIR "' could not be used",
                            s->state_dir);
    int r = write_record(s, k, err);
    if (r < 0)
        return r;
    s->kept_lock = br_open_beneath(dir, k->run_id, O_RDONLY | O_NONBLOCK, 0);
    if (s->kept_lock < 0 || flock(s->kept_lock, LOCK_EX | LOCK_NB) < 0)
        return br_err_errno(err, BR_E_STORE_FAILED, "the record '%s' could not be locked",
                            k->run_id);
    return 0;
}

/* Does the program live that wrote this first record? */
static bool record_locked(int dir, const char *run_id)
{
    BR_CLEANUP_FD int fd = br_open_beneath(dir, run_id, O_RDONLY | O_NONBLOCK, 0);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0;
}

int kept_begin(struct supervisor *s, struct br_plan *plan, struct br_err *err)
{
    struct stat st;
    bool records = s->req.mode == BR_RUN_AGENT || s->req.mode == BR_RUN_EXEC;
    if (!records || plan->disks[BR_DISK_WORKSPACE].kind != BR_QUOTA_EXT4)
        return 0;
    if (fstat(s->workspace_fd, &st) < 0)
        return br_err_errno(err, BR_E_INVALID_WORKSPACE, "the workspace cannot be examined");
    struct kept k = {.owner = geteuid(),
                     .dev = (uint64_t)st.st_dev,
                     .ino = st.st_ino,
                     .uid = st.st_uid,
                     .gid = st.st_gid,
                     .created = now_s(),
                     .keep = s->keep_seconds ? s->keep_seconds : KEPT_SECONDS};
    snprintf(k.run_id, sizeof(k.run_id), "%s", s->run_id);
    snprintf(k.workspace, sizeof(k.workspace), "%s", s->req.workspace);
    snprintf(k.profile, sizeof(k.profile), "%s", plan->profile);
    snprintf(k.image, sizeof(k.image), "%s", plan->image);
    snprintf(k.adapter, sizeof(k.adapter), "%s", s->req.adapter);
    int r = begin_record(s, &k, err);
    if (r == 0) {
        memcpy(plan->keep, s->run_id, sizeof(plan->keep));
        s->keeping = true;
    }
    return r;
}

/* Was the copy complete, so that something may have run in it? */
static bool has_base(int leases, const char *run_id)
{
    char name[96];
    struct br_base_head h = {.magic = ""};
    kept_name(run_id, KEPT_BASE, name);
    BR_CLEANUP_FD int fd = br_open_beneath(leases, name, O_RDONLY | O_NONBLOCK, 0);
    return fd >= 0 && pread(fd, &h, sizeof(h), 0) == sizeof(h) &&
           memcmp(h.magic, BR_BASE_MAGIC, sizeof(h.magic)) == 0;
}

bool kept_in_use(int leases, const char *name)
{
    struct stat st;
    return fstatat(leases, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && leases_locked(&st);
}

/* Is this file the one that has the name? */
static bool named(int leases, const char *name, int fd)
{
    struct stat st, there;
    return fstat(fd, &st) == 0 && fstatat(leases, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           st.st_dev == there.st_dev && st.st_ino == there.st_ino;
}

int kept_journal(int leases, const char *run_id, bool make, struct br_err *err)
{
    char name[96];
    kept_name(run_id, KEPT_JOURNAL, name);
    for (int tries = 0; tries < 8; tries++) {
        BR_CLEANUP_FD int fd =
            br_open_beneath(leases, name, O_RDWR | O_NONBLOCK | (make ? O_CREAT : 0), 0600);
        if (fd < 0 && errno == ENOENT && !make)
            return br_err_set(err, BR_E_NOT_FOUND, "there is no journal 'leases/%s'", name);
        if (fd < 0)
            return br_err_errno(err, BR_E_STORE_FAILED,
                                "the journal 'leases/%s' could not be "
                                "opened",
                                name);
        if (flock(fd, LOCK_EX | LOCK_NB) < 0)
            break;
        if (named(leases, name, fd)) /* or whoever had it has removed it in between */
            return br_steal_fd(&fd);
    }
    return br_err_set(err, BR_E_IN_USE,
                      "the journal 'leases/%s' is in use: another promotion of the run '%s' is "
                      "under way. Wait for its end",
                      name, run_id);
}

void kept_journal_forget(int leases, const char *run_id, int fd)
{
    char name[96];
    kept_name(run_id, KEPT_JOURNAL, name);
    if (!br_journal_pending(fd) && named(leases, name, fd))
        (void)unlinkat(leases, name, 0);
}

/* Remove the files; the record is the caller's. -BR_E_IN_USE while somebody has the image, or the
 * journal, which is held from here on until it is the last that is removed. */
static int remove_files(int leases, const char *run_id, struct br_err *err)
{
    char name[KEPT_FILES][96];
    for (int f = 0; f < KEPT_FILES; f++)
        kept_name(run_id, (enum kept_file)f, name[f]);
    BR_CLEANUP_FD int image = br_open_beneath(leases, name[KEPT_IMAGE], O_RDONLY | O_NONBLOCK, 0);
    if (image >= 0 && flock(image, LOCK_EX | LOCK_NB) < 0)
        return br_err_set(err, BR_E_IN_USE,
                          "the workspace of the run '%s' is in use, by the run itself or by a "
                          "promotion; it was not removed",
                          run_id);
    BR_CLEANUP_FD int journal = kept_journal(leases, run_id, true, err);
    if (journal < 0)
        return journal;
    if (br_journal_pending(journal))
        return br_err_set(err, BR_E_IN_USE,
                          "a promotion of the run '%s' was interrupted and is not complete; its "
                          "workspace was not removed. Finish it first: bridle promote --recover %s",
                          run_id, run_id);
    for (int f = 0; f < KEPT_FILES; f++)
        if (unlinkat(leases, name[f], 0) < 0 && errno != ENOENT)
            return br_err_errno(err, BR_E_STORE_FAILED, "'leases/%s' could not be removed",
                                name[f]);
    return 0;
}

int kept_purge(struct supervisor *s, const char *run_id, struct br_err *err)
{
    struct br_buf text;
    BR_CLEANUP_FD int dir = record_dir(s->state_fd, KEPT_DIR, false);
    BR_CLEANUP_FD int leases = kept_leases(s);
    int r = dir < 0 ? -BR_E_NOT_FOUND : record_read(dir, run_id, &text, NULL);
    if (dir >= 0)
        br_buf_free(&text);
    if (r == -BR_E_NOT_FOUND)
        return br_err_set(err, BR_E_NOT_FOUND,
                          "no workspace of a run '%.64s' is kept; nothing was removed", run_id);
    r = leases < 0 ? 0 : remove_files(leases, run_id, err);
    if (r == 0 && unlinkat(dir, run_id, 0) < 0 && errno != ENOENT)
        r = br_err_errno(err, BR_E_STORE_FAILED, "the record of '%s' could not be removed", run_id);
    return r;
}

void kept_end(struct supervisor *s)
{
    struct br_buf text;
    struct kept k;
    struct br_err err = {.code = BR_OK};
    if (!s->keeping)
        return;
    s->keeping = false;
    BR_CLEANUP_FD int dir = record_dir(s->state_fd, KEPT_DIR, false);
    BR_CLEANUP_FD int leases = kept_leases(s);
    if (dir < 0)
        return;
    char image[96];
    kept_name(s->run_id, KEPT_IMAGE, image);
    bool is = leases >= 0 && faccessat(leases, image, F_OK, AT_SYMLINK_NOFOLLOW) == 0 &&
              has_base(leases, s->run_id);
    int r = record_read(dir, s->run_id, &text, &err);
    if (r == 0 && is && (r = kept_parse(s->run_id, br_buf_cstr(&text), &k, &err)) == 0) {
        k.ended = now_s();
        r = write_record(s, &k, &err);
    } else if (r == 0 && !is) {
        r = kept_purge(s, s->run_id, &err);
    }
    br_buf_free(&text);
    if (r < 0)
        br_log(BR_LOG_WARN, "%s", err.text);
}

/* ---- what nobody may have any more ---- */

static void sweep_one(struct supervisor *s, int dir, int leases, const char *run_id)
{
    struct br_buf text;
    struct kept k;
    char image[96];
    kept_name(run_id, KEPT_IMAGE, image);
    int r = record_read(dir, run_id, &text, NULL);
    if (r == 0 && kept_parse(run_id, br_buf_cstr(&text), &k, NULL) == 0) {
        bool there = leases >= 0 && faccessat(leases, image, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
        uint64_t from = k.ended ? k.ended : k.created;
        /* a run that begins writes its record before there is an image */
        bool begins = !k.ended && record_locked(dir, run_id);
        if ((!there && !begins) || (there && now_s() > from + k.keep) ||
            (there && !begins && !has_base(leases, run_id)))
            (void)kept_purge(s, run_id, NULL); /* refused while it is in use */
    }
    br_buf_free(&text);
}

void kept_sweep(struct supervisor *s)
{
    BR_CLEANUP_FD int dir = record_dir(s->state_fd, KEPT_DIR, false);
    BR_CLEANUP_FD int leases = kept_leases(s);
    if (dir >= 0 && flock(dir, LOCK_EX) < 0)
        return;
    int copy = dir >= 0 ? openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
    if (!d)
        br_close(&copy);
    for (struct dirent *e; d && (e = readdir(d));)
        if (record_name_ok(e->d_name))
            sweep_one(s, dir, leases, e->d_name);
    if (d)
        closedir(d);
}
