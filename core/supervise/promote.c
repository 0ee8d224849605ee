/*
 * Mode promote: what a run changed in its copy of a workspace, back to the workspace. bridle-launch
 * mounts the copy read-only, bridle-promote, which is the workspace's owner, compares and applies;
 * the session decides and asks. This file introduces them to each other and sees to it that nothing
 * is applied that was not compared, shown and allowed. It passes on what bridle-promote says of the
 * changes, and reads of it only figures and names.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "promote/promote.h"
#include "promote/row.h"
#include "supervise/kept.h"

#define START_TIMEOUT_US (15u * 1000000u)
#define COMPARE_TIMEOUT_US (600u * 1000000u)
#define APPLY_TIMEOUT_US (600u * 1000000u)
/* Changes that may run something, which are named in the record. */
#define NAMED_MAX 32u

struct promoting {
    struct kept kept;
    int leases, journal, base, mount;
    bool git, dry_run, recover_only;
    const char *skip[BR_EXEC_ARGS_MAX];
    uint32_t nskip;
    bool mounted, refused; /* the launcher has answered */
    struct br_err why;     /* why not */
    bool planned;
    int plan_code;
    uint32_t changes, conflicts, refusals, skipped;
    uint8_t recovered; /* as in PROMOTE_PLANNED */
    uint32_t added, modified, removed, surface_more;
    uint32_t surface; /* of all of them */
    char *named[NAMED_MAX];
    uint32_t nnamed;
    char first[512]; /* what the first one is that cannot be promoted, and why */
    bool going, done, applied, pending;
    int done_code;
    char done_text[BR_ERR_TEXT_MAX];
};

/* ---- which run ---- */

/* The run that is meant: its id, the beginning of one, or "last". */
static int find_run(struct supervisor *s, const char *word, char id[BR_ID_MAX], struct br_err *err)
{
    unsigned found = 0;
    bool last = strcmp(word, "last") == 0;
    BR_CLEANUP_FD int dir = record_dir(s->state_fd, KEPT_DIR, false);
    int copy = dir >= 0 ? openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
    if (!d)
        br_close(&copy);
    id[0] = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!record_name_ok(e->d_name) || strlen(e->d_name) >= BR_ID_MAX)
            continue;
        bool begins = *word && strncmp(e->d_name, word, strlen(word)) == 0;
        found += begins || last;
        if ((begins && (!id[0] || strcmp(e->d_name, word) == 0)) ||
            (last && strcmp(e->d_name, id) > 0))
            snprintf(id, BR_ID_MAX, "%s", e->d_name);
    }
    if (d)
        closedir(d);
    if (found == 0)
        return br_err_set(err, BR_E_NOT_FOUND,
                          "no changed workspace of a run '%.64s' is kept; nothing was promoted. "
                          "'bridle state list' lists them; a run keeps one if it worked on a copy "
                          "on disk, as with the profile workspace-v1, and changed it",
                          word);
    if (found > 1 && !last && strcmp(id, word) != 0)
        return br_err_set(err, BR_E_NOT_FOUND,
                          "%u runs with kept workspaces begin with '%.64s'; nothing was promoted",
                          found, word);
    return 0;
}

static int differs(const struct kept *k, const char *what, const char *was, const char *is,
                   struct br_err *err)
{
    return br_err_set(err, BR_E_DENIED,
                      "the workspace '%.512s' is not the one that the run '%s' worked on: its %s "
                      "was %s and is %s; nothing was promoted",
                      k->workspace, k->run_id, what, was, is);
}

static int compare_workspace(struct supervisor *s, const struct kept *k, struct br_err *err)
{
    struct stat st;
    char was[64], is[64];
    if (k->owner != geteuid())
        return br_err_set(err, BR_E_DENIED,
                          "the run '%s' is of uid %u, and this is uid %u; nothing was promoted",
                          k->run_id, k->owner, (unsigned)geteuid());
    if (fstat(s->workspace_fd, &st) < 0)
        return br_err_errno(err, BR_E_INVALID_WORKSPACE, "the workspace cannot be examined");
    snprintf(was, sizeof(was), "%llu", (unsigned long long)k->dev);
    snprintf(is, sizeof(is), "%llu", (unsigned long long)st.st_dev);
    if (k->dev != (uint64_t)st.st_dev)
        return differs(k, "device", was, is, err);
    snprintf(was, sizeof(was), "%llu", (unsigned long long)k->ino);
    snprintf(is, sizeof(is), "%llu", (unsigned long long)st.st_ino);
    if (k->ino != st.st_ino)
        return differs(k, "inode", was, is, err);
    snprintf(was, sizeof(was), "%u:%u", k->uid, k->gid);
    snprintf(is, sizeof(is), "%u:%u", (unsigned)st.st_uid, (unsigned)st.st_gid);
    if (k->uid != st.st_uid || k->gid != st.st_gid)
        return differs(k, "owner", was, is, err);
    return 0;
}

static int read_options(struct supervisor *s, struct promoting *p, struct br_err *err)
{
    for (uint32_t i = 1; i < s->req.argc; i++) {
        const char *a = s->req.argv[i];
        if (strcmp(a, "--git") == 0)
            p->git = true;
        else if (strcmp(a, "--dry-run") == 0)
            p->dry_run = true;
        else if (strcmp(a, "--recover") == 0)
            p->recover_only = true;
        else if (strcmp(a, "--skip") == 0 && i + 1 < s->req.argc)
            p->skip[p->nskip++] = s->req.argv[++i];
        else
            return br_err_set(err, BR_E_USAGE, "'%.64s' is no option of a promotion", a);
    }
    return 0;
}

static int not_interrupted(const struct promoting *p, struct br_err *err)
{
    return br_err_set(err, BR_E_NOT_FOUND,
                      "no promotion of the run '%s' was interrupted; nothing was done",
                      p->kept.run_id);
}

/* The journal first: who holds it has everything else of the run, until it is closed. That it is
 * there is on the disk before anything happens that only it knows of. */
static int open_files(struct supervisor *s, struct promoting *p, struct br_err *err)
{
    char name[96];
    p->leases = kept_leases(s);
    if (p->leases < 0)
        return br_err_errno(err, BR_E_STORE_FAILED, "the lease root could not be opened");
    p->journal = kept_journal(p->leases, p->kept.run_id, !p->recover_only, err);
    if (p->journal == -BR_E_NOT_FOUND ||
        (p->journal >= 0 && p->recover_only && !br_journal_pending(p->journal)))
        return not_interrupted(p, err);
    if (p->journal < 0) {
        (void)br_err_wrap(err, "nothing was promoted");
        return p->journal;
    }
    if (!p->recover_only && fsync(p->leases) < 0)
        return br_err_errno(err, BR_E_STORE_FAILED,
                            "the lease root could not be written to its disk; nothing was "
                            "promoted");
    kept_name(p->kept.run_id, KEPT_BASE, name);
    p->base = br_open_beneath(p->leases, name, O_RDONLY | O_NONBLOCK, 0);
    if (p->base < 0)
        return br_err_errno(err, BR_E_NOT_FOUND,
                            "the record of what was copied for the run '%s' is not there; nothing "
                            "was promoted",
                            p->kept.run_id);
    return 0;
}

int promote_open(struct supervisor *s, struct br_err *err)
{
    struct br_buf text = BR_BUF_INIT(0);
    char id[BR_ID_MAX];
    struct promoting *p = s->promoting = calloc(1, sizeof(*p));
    if (!p)
        return br_err_set(err, BR_E_NOMEM, "no memory for a promotion");
    p->leases = p->journal = p->base = p->mount = -1;
    int r = s->req.argc ? read_options(s, p, err)
                        : br_err_set(err, BR_E_USAGE, "no run was named; nothing was promoted");
    if (r == 0)
        r = state_open(s, true, err);
    if (r == 0)
        r = find_run(s, s->req.argv[0], id, err);
    if (r < 0)
        return r;
    BR_CLEANUP_FD int dir = record_dir(s->state_fd, KEPT_DIR, false);
    r = dir < 0 ? br_err_errno(err, BR_E_STORE_FAILED, "the record of the run cannot be read")
                : record_read(dir, id, &text, err);
    if (r == 0)
        r = kept_parse(id, br_buf_cstr(&text), &p->kept, err);
    br_buf_free(&text);
    if (r < 0)
        return r;
    snprintf(s->req.workspace, sizeof(s->req.workspace), "%s", p->kept.workspace);
    br_close(&s->state_fd); /* opened again, once the workspace is known that it must be out of */
    r = workspace_open(s, err);
    if (r == 0)
        r = compare_workspace(s, &p->kept, err);
    if (r == 0)
        r = store_open(s, err);
    return r < 0 ? r : open_files(s, p, err);
}

/* ---- what the programs say ---- */

int promote_leased(struct supervisor *s, int mount)
{
    struct promoting *p = s->promoting;
    if (!p || p->mounted)
        return -1;
    p->mount = mount;
    p->mounted = s->kick = true;
    return 0;
}

int promote_lease_refused(struct supervisor *s, int code, const char *text)
{
    struct promoting *p = s->promoting;
    if (!p || p->mounted)
        return -1;
    (void)br_err_set(&p->why, (enum br_code)code, "%s", text);
    p->mounted = p->refused = s->kick = true;
    return 0;
}

static void note_surface(struct promoting *p, const struct br_promote_row *w)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8 * BR_PATH_MAX);
    const char *sep = "";
    p->surface |= w->surface;
    if (!w->surface)
        return;
    if (p->nnamed == NAMED_MAX || strlen(w->path) > 512) {
        p->surface_more++;
        return;
    }
    for (unsigned i = 0; i < BR_SURFACES; i++)
        if (w->surface & 1u << i) {
            br_buf_printf(&b, "%s%s", sep, br_surface_names[i]);
            sep = ", ";
        }
    br_buf_printf(&b, ": ");
    br_buf_put_visible(&b, w->path, strlen(w->path), true);
    if (br_buf_cstr(&b) && (p->named[p->nnamed] = strdup(br_buf_cstr(&b))))
        p->nnamed++;
}

static int on_row(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    static struct br_promote_row w;
    struct supervisor *s = ((struct program *)ctx)->sup;
    struct promoting *p = s->promoting;
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(0);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_promote_row_get(&m->rd, &w);
    if (br_msg_blob(m, BR_BLOB_MAX, &text, err) < 0 || br_rd_done(&m->rd) < 0 || p->planned)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'%s' sent a malformed PROMOTE_ROW", c->peer);
    p->added += w.kind == '+';
    p->modified += w.kind == '~';
    p->removed += w.kind == '-';
    note_surface(p, &w);
    if (w.state && !p->first[0]) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8 * BR_PATH_MAX);
        br_buf_put_visible(&b, w.path, strlen(w.path), true);
        snprintf(p->first, sizeof(p->first), "'%.300s': %s",
                 br_buf_cstr(&b) ? br_buf_cstr(&b) : "?", w.why);
    }
    br_promote_row_put(&o.buf, &w);
    br_out_blob(&o, text.data, text.len);
    if (!s->control_gone)
        (void)br_chan_send(&s->control, BR_MSG_CTL_PROMOTE_ROW, 0, &o, NULL);
    return 0;
}

static int on_planned(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ((struct program *)ctx)->sup;
    struct promoting *p = s->promoting;
    uint32_t code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, p->why.text, sizeof(p->why.text));
    p->changes = br_rd_u32(&m->rd);
    p->conflicts = br_rd_u32(&m->rd);
    p->refusals = br_rd_u32(&m->rd);
    p->skipped = br_rd_u32(&m->rd);
    p->recovered = br_rd_u8(&m->rd);
    if (br_rd_done(&m->rd) < 0 || code >= BR_CODE_COUNT_ || p->recovered > 2)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'%s' sent a malformed PROMOTE_PLANNED",
                          c->peer);
    p->plan_code = -(int)code;
    p->planned = s->kick = true;
    return 0;
}

static int on_done(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ((struct program *)ctx)->sup;
    struct promoting *p = s->promoting;
    uint32_t code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, p->done_text, sizeof(p->done_text));
    p->pending = br_rd_u8(&m->rd);
    if (br_rd_done(&m->rd) < 0 || code >= BR_CODE_COUNT_ || !p->going)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'%s' sent a malformed PROMOTE_DONE", c->peer);
    p->done_code = -(int)code;
    p->done = s->kick = true;
    p->applied = code == 0;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, code);
    br_buf_put_str(&o.buf, p->done_text);
    if (program_running(s, P_SESSION))
        (void)br_chan_send(&s->programs[P_SESSION].chan, BR_MSG_SUP_PROMOTED, 0, &o, NULL);
    return 0;
}

const struct br_msg_rule promote_rules[PROMOTE_RULES] = {
    {BR_MSG_PROMOTE_ROW, BR_PERMIT, 40, BR_MSG_MAX, 0, 1, on_row},
    {BR_MSG_PROMOTE_PLANNED, BR_PERMIT | BR_ONCE, 25, 8192, 0, 0, on_planned},
    {BR_MSG_PROMOTE_DONE, BR_ONCE, 9, 8192, 0, 0, on_done},
};

/* The session's word that it was allowed. */
int promote_go(struct supervisor *s, struct br_err *err)
{
    struct promoting *p = s->promoting;
    if (!p || p->going || !p->planned || p->plan_code || p->conflicts || p->refusals ||
        p->recovered == 1 || p->dry_run)
        return br_err_set(err, BR_E_PEER_PROTOCOL,
                          "'bridle-session' asked for a promotion that there is not");
    p->going = true;
    br_chan_permit(&s->programs[P_PROMOTE].chan, BR_MSG_PROMOTE_DONE);
    return br_chan_send(&s->programs[P_PROMOTE].chan, BR_MSG_PROMOTE_GO, 0, NULL, err);
}

/* ---- comparing ---- */

static int mount_copy(struct supervisor *s, struct promoting *p, struct br_err *err)
{
    struct program *l = &s->programs[P_LAUNCH];
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    int r = program_start(s, P_LAUNCH, err);
    if (r == 0)
        r = launcher_configure(s, err);
    if (r < 0)
        return r;
    br_buf_put_str(&o.buf, p->kept.run_id);
    br_buf_put_u32(&o.buf, p->kept.uid);
    br_buf_put_u32(&o.buf, p->kept.gid);
    br_chan_permit(&l->chan, BR_MSG_LAUNCH_LEASED);
    br_chan_permit(&l->chan, BR_MSG_LAUNCH_REFUSED);
    r = br_chan_send(&l->chan, BR_MSG_LAUNCH_LEASE, 0, &o, err);
    if (r == 0 && (r = sup_wait_of(s, l, &p->mounted, START_TIMEOUT_US, false)) < 0)
        return br_err_set(err, (enum br_code) - r, "%s",
                          s->fail_code ? s->fail_err.text
                                       : "the copy of the run was not mounted in time");
    br_chan_forbid(&l->chan, BR_MSG_LAUNCH_REFUSED);
    if (r == 0 && p->refused) {
        *err = p->why;
        return -(int)p->why.code;
    }
    return r;
}

static int send_start(struct supervisor *s, struct promoting *p, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, p->kept.run_id);
    br_buf_put_u8(&o.buf, p->git);
    br_buf_put_u32(&o.buf, p->nskip);
    for (uint32_t i = 0; i < p->nskip; i++)
        br_buf_put_str(&o.buf, p->skip[i]);
    br_out_fd(&o, s->workspace_fd, false);
    br_out_fd(&o, p->journal, false);
    if (!p->recover_only) {
        br_out_fd(&o, p->base, false);
        br_out_fd(&o, p->mount, true);
        p->mount = -1;
    }
    return br_chan_send(&s->programs[P_PROMOTE].chan, BR_MSG_PROMOTE_START, 0, &o, err);
}

static int tell_plan(struct supervisor *s, const struct promoting *p, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, p->kept.run_id);
    br_buf_put_str(&o.buf, p->kept.workspace);
    br_buf_put_u32(&o.buf, p->changes);
    br_buf_put_u32(&o.buf, p->conflicts);
    br_buf_put_u32(&o.buf, p->refusals);
    br_buf_put_u32(&o.buf, p->skipped);
    br_buf_put_u8(&o.buf, p->recovered);
    return br_chan_send(&s->control, BR_MSG_CTL_PROMOTE_PLAN, 0, &o, err);
}

/* What is not to be promoted, and why. */
static int judge(const struct promoting *p, struct br_err *err)
{
    if (p->recovered == 1)
        return 0;
    if (p->conflicts)
        return br_err_set(err, BR_E_FAILED,
                          "%u changes of the run '%s' are in conflict with the workspace; nothing "
                          "was promoted. The first is %s. Put the workspace as it was, or leave it "
                          "out with --skip PATH",
                          p->conflicts, p->kept.run_id, p->first);
    if (p->refusals)
        return br_err_set(err, BR_E_DENIED,
                          "%u changes of the run '%s' are of a kind that is not promoted; nothing "
                          "was promoted. The first is %s. Leave it out with --skip PATH",
                          p->refusals, p->kept.run_id, p->first);
    return 0;
}

static int put_arg(struct supervisor *s, const char *text)
{
    s->req.argv[s->req.argc] = strdup(text);
    return s->req.argv[s->req.argc++] ? 0 : -1;
}

/* What the session records and asks about takes the place of the client's words. */
static int describe(struct supervisor *s, const struct promoting *p, struct br_err *err)
{
    char text[64];
    struct request *q = &s->req;
    for (uint32_t i = 0; i < q->argc; i++)
        free(q->argv[i]);
    q->argc = 0;
    int r = put_arg(s, p->kept.run_id);
    r |= put_arg(s, p->recovered == 1 ? "recovered" : "");
    const uint32_t counts[] = {p->added, p->modified, p->removed, p->skipped, p->surface_more};
    for (size_t i = 0; i < BR_ARRAY_LEN(counts); i++) {
        snprintf(text, sizeof(text), "%u", counts[i]);
        r |= put_arg(s, text);
    }
    for (uint32_t i = 0; i < p->nnamed; i++)
        r |= put_arg(s, p->named[i]);
    br_buf_reset(&q->goal);
    br_buf_printf(&q->goal, "promote %s", p->kept.run_id);
    return r < 0 || q->goal.failed ? br_err_set(err, BR_E_NOMEM, "no memory for a promotion") : 0;
}

int promote_compare(struct supervisor *s, bool *over, struct br_err *err)
{
    struct promoting *p = s->promoting;
    int r = p->recover_only ? 0 : mount_copy(s, p, err);
    if (r == 0)
        r = program_start(s, P_PROMOTE, err);
    if (r == 0)
        r = send_start(s, p, err);
    if (r == 0 &&
        (r = sup_wait_of(s, &s->programs[P_PROMOTE], &p->planned, COMPARE_TIMEOUT_US, false)) < 0)
        r = br_err_set(err, (enum br_code) - r, "%s",
                       s->fail_code          ? s->fail_err.text
                       : r == -BR_E_CANCELED ? "canceled; nothing was promoted"
                       : r == -BR_E_PROGRAM_DIED
                           ? "'bridle-promote' ended; nothing was promoted"
                           : "the comparison took too long; nothing was promoted");
    if (r == 0 && p->plan_code) {
        r = br_err_set(err, (enum br_code) - p->plan_code, "%s", p->why.text);
    } else if (r == 0) {
        r = tell_plan(s, p, err);
        if (r == 0)
            r = judge(p, err);
    }
    if (p->recovered == 1)
        p->applied = true;
    *over = p->dry_run || (p->recovered != 1 && (p->changes == 0 || p->recover_only));
    return r < 0 || *over ? r : describe(s, p, err);
}

/* ---- the end ---- */

uid_t promote_uid(const struct supervisor *s, gid_t *gid)
{
    *gid = s->promoting ? s->promoting->kept.gid : getegid();
    return s->promoting ? s->promoting->kept.uid : geteuid();
}

void promote_settle(struct supervisor *s)
{
    struct promoting *p = s->promoting;
    if (p && p->going && !p->done) /* what has begun comes to its end, whoever has gone */
        (void)sup_wait_of(s, &s->programs[P_PROMOTE], &p->done, APPLY_TIMEOUT_US, true);
    if (!p || !p->going || p->done)
        return;
    /* it has died: the session, which waits for it, is told, and so is the operator */
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    size_t n = strlen(s->fail_err.text);
    if (br_journal_pending(p->journal))
        snprintf(s->fail_err.text + n, sizeof(s->fail_err.text) - n,
                 "; the workspace may be half promoted. Bring it to its end: bridle promote "
                 "--recover %s",
                 p->kept.run_id);
    else
        snprintf(s->fail_err.text + n, sizeof(s->fail_err.text) - n, "; nothing was promoted");
    br_buf_put_u32(&o.buf, BR_E_PROGRAM_DIED);
    br_buf_put_str(&o.buf, s->fail_err.text);
    if (program_running(s, P_SESSION))
        (void)br_chan_send(&s->programs[P_SESSION].chan, BR_MSG_SUP_PROMOTED, 0, &o, NULL);
}

void promote_end(struct supervisor *s)
{
    struct br_err err = {.code = BR_OK};
    struct promoting *p = s->promoting;
    if (!p)
        return;
    program_stop(s, P_PROMOTE, START_TIMEOUT_US);
    program_stop(s, P_LAUNCH, START_TIMEOUT_US);
    if (p->journal >= 0) /* and held, so that the name is this one's */
        kept_journal_forget(p->leases, p->kept.run_id, p->journal);
    br_close(&p->journal);
    if (p->applied && kept_purge(s, p->kept.run_id, &err) < 0)
        br_log(BR_LOG_WARN, "%s", err.text);
    br_close(&p->base);
    br_close(&p->mount);
    br_close(&p->leases);
    for (uint32_t i = 0; i < p->nnamed; i++)
        free(p->named[i]);
    free(p);
    s->promoting = NULL;
}
