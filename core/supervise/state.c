/*
 * The verb `state`: what runs have left in the state directory, sessions with their private state
 * and workspace leases that stay, and its removal. Names, figures and times only: no program ever
 * reads what is in a session's state but the sandbox that resumes it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "promote/journal.h"
#include "supervise/kept.h"
#include "supervise/sessions.h"

static uint64_t blocks_of(int dir, const char *name)
{
    struct stat st;
    return dir >= 0 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0
               ? (uint64_t)st.st_blocks * 512u
               : 0;
}

/* One CTL_STATE_ROW. */
static int send_row(struct supervisor *s, const struct br_state_row *w, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_state_row_put(&o.buf, w);
    return br_chan_send(&s->control, BR_MSG_CTL_STATE_ROW, 0, &o, err);
}

static int kept_row(int leases, const char *id, const char *text, struct br_state_row *w)
{
    struct kept k;
    char name[96];
    if (kept_parse(id, text, &k, NULL) < 0)
        return -1;
    *w = (struct br_state_row){.kind = BR_STATE_WORKSPACE,
                               .owner = k.owner,
                               .created = k.created,
                               .used = k.ended ? k.ended : k.created,
                               .expires = (k.ended ? k.ended : k.created) + k.keep};
    snprintf(w->id, sizeof(w->id), "%s", id);
    snprintf(w->profile, sizeof(w->profile), "%s", k.profile);
    snprintf(w->image, sizeof(w->image), "%s", k.image);
    snprintf(w->adapter, sizeof(w->adapter), "%s", k.adapter);
    snprintf(w->workspace, sizeof(w->workspace), "%s", k.workspace);
    kept_name(id, KEPT_IMAGE, name);
    w->bytes = blocks_of(leases, name);
    w->in_use = kept_in_use(leases, name);
    kept_name(id, KEPT_BASE, name);
    w->bytes += blocks_of(leases, name);
    kept_name(id, KEPT_JOURNAL, name);
    BR_CLEANUP_FD int journal =
        leases >= 0 ? br_open_beneath(leases, name, O_RDONLY | O_NONBLOCK, 0) : -1;
    w->interrupted = journal >= 0 && br_journal_pending(journal);
    return 0;
}

/* Rows of one directory; `fn` is told of each, and returns a negative code to end it. */
typedef int state_fn(struct supervisor *s, const struct br_state_row *w, void *ctx,
                     struct br_err *err);

static int each_of(struct supervisor *s, const char *dir_name, bool sessions, state_fn *fn,
                   void *ctx, struct br_err *err)
{
    int r = 0;
    BR_CLEANUP_FD int dir = record_dir(s->state_fd, dir_name, false);
    BR_CLEANUP_FD int leases = kept_leases(s);
    int copy = dir >= 0 ? openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
    if (!d)
        br_close(&copy);
    for (struct dirent *e; d && r == 0 && (e = readdir(d));) {
        struct br_buf text;
        struct br_state_row w;
        if (!record_name_ok(e->d_name))
            continue;
        if (record_read(dir, e->d_name, &text, NULL) == 0 &&
            (sessions ? session_row(dir, leases, e->d_name, br_buf_cstr(&text), &w)
                      : kept_row(leases, e->d_name, br_buf_cstr(&text), &w)) == 0)
            r = fn(s, &w, ctx, err);
        br_buf_free(&text);
    }
    if (d)
        closedir(d);
    return r;
}

static int each(struct supervisor *s, state_fn *fn, void *ctx, struct br_err *err)
{
    int r = each_of(s, SESSIONS_DIR, true, fn, ctx, err);
    return r < 0 ? r : each_of(s, KEPT_DIR, false, fn, ctx, err);
}

static int tell(struct supervisor *s, const struct br_state_row *w, void *ctx, struct br_err *err)
{
    (void)ctx;
    return send_row(s, w, err);
}

/* ---- purge ---- */

struct purging {
    uint8_t what; /* enum br_state_verb */
    const char *id;
    unsigned found, removed;
    int failed; /* the first refusal, */
    struct br_err why;
};

static int purge_one(struct supervisor *s, const struct br_state_row *w, void *ctx,
                     struct br_err *err)
{
    struct purging *p = ctx;
    struct br_err why = {.code = BR_OK};
    if (p->what == BR_STATE_PURGE_ID        ? strcmp(w->id, p->id) != 0
        : p->what == BR_STATE_PURGE_EXPIRED ? w->expires > br_now_wall_us() / 1000000u
                                            : false)
        return 0;
    p->found++;
    int r = w->kind == BR_STATE_SESSION
                ? session_purge(s, w->id, p->what == BR_STATE_PURGE_EXPIRED, &why)
                : kept_purge(s, w->id, &why);
    if (r == 0) {
        p->removed++;
        return send_row(s, w, err);
    }
    if (!p->failed) {
        p->failed = r;
        p->why = why;
    }
    return 0;
}

static int purge(struct supervisor *s, struct br_err *err)
{
    struct purging p = {.what = s->state_what, .id = s->named};
    int r = each(s, purge_one, &p, err);
    if (r == 0 && p.failed) {
        *err = p.why;
        return p.failed;
    }
    if (r == 0 && p.what == BR_STATE_PURGE_ID && p.found == 0)
        r = br_err_set(err, BR_E_NOT_FOUND,
                       "there is no session and no kept workspace '%s'; nothing was removed. "
                       "'bridle state list' lists them",
                       s->named);
    return r;
}

void state_verb(struct supervisor *s)
{
    struct br_err err = {.code = BR_OK};
    int r = state_open(s, false, &err);
    if (r == 0)
        r = s->state_what == BR_STATE_LIST ? each(s, tell, NULL, &err) : purge(s, &err);
    sup_end(s, -r, br_code_exit(r), r < 0 ? err.text : "");
}
