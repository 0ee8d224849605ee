/*
 * bridle-promote: brings what a run changed in its copy of a workspace back to the workspace.
 * Started by bridled as the workspace's owner, with its supervision channel on fd 3 and nothing
 * else; it is handed the copy (a read-only mount of a file system that somebody hostile has
 * written), the workspace, the record of what was copied and a journal, as descriptors. It reads
 * names and contents, executes nothing, and writes when it is told to, once.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "promote/promote.h"
#include "promote/row.h"
#include "wire/wire.h"

#define SKIP_MAX 32u

struct promoter {
    struct br_loop *loop;
    struct br_chan sup;
    struct br_promotion p;
    int lock;
    char *skip[SKIP_MAX];
    bool planned, quit;
};

static int malformed(const struct br_msg *m, struct br_err *err)
{
    return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridled' sent a malformed %s",
                      br_msg_name(m->type));
}

/* One PROMOTE_ROW. */
static int send_change(struct promoter *g, const struct br_change *c, struct br_err *err)
{
    static struct br_promote_row w;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(16 * BR_PROMOTE_DIFF_SHOWN);
    w = (struct br_promote_row){.kind = (uint8_t)c->kind,
                                .old_type = (uint8_t)c->old_type,
                                .new_type = (uint8_t)c->new_type,
                                .old_mode = c->old_mode,
                                .new_mode = c->new_mode,
                                .old_size = c->old_size,
                                .new_size = c->new_size,
                                .surface = c->surface,
                                .state = c->state};
    snprintf(w.why, sizeof(w.why), "%s", c->why ? c->why : "");
    snprintf(w.path, sizeof(w.path), "%s", c->path);
    br_promotion_diff(&g->p, c, &text);
    br_promote_row_put(&o.buf, &w);
    br_out_blob(&o, text.data, text.failed ? 0 : text.len);
    return br_chan_send(&g->sup, BR_MSG_PROMOTE_ROW, 0, &o, err);
}

static int send_planned(struct promoter *g, int r, bool recovered, bool applied,
                        const struct br_err *why, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, (uint32_t)-r);
    br_buf_put_str(&o.buf, r < 0 ? why->text : "");
    br_buf_put_u32(&o.buf, (uint32_t)g->p.nchanges);
    br_buf_put_u32(&o.buf, g->p.conflicts);
    br_buf_put_u32(&o.buf, g->p.refused);
    br_buf_put_u32(&o.buf, g->p.skipped);
    br_buf_put_u8(&o.buf, (uint8_t)(!recovered ? 0 : applied ? 1 : 2));
    return br_chan_send(&g->sup, BR_MSG_PROMOTE_PLANNED, 0, &o, err);
}

static int on_start(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct promoter *g = ctx;
    struct br_err why = {.code = BR_OK};
    char run_id[BR_ID_MAX];
    bool recovered = false, applied = false;
    (void)c;
    br_rd_str(&m->rd, run_id, sizeof(run_id));
    g->p.with_git = br_rd_u8(&m->rd);
    uint32_t n = br_rd_u32(&m->rd);
    if (n > SKIP_MAX)
        return malformed(m, err);
    for (uint32_t i = 0; i < n; i++)
        g->skip[i] = br_rd_strdup(&m->rd, BR_PATH_MAX);
    if (br_rd_done(&m->rd) < 0)
        return malformed(m, err);
    g->p.skip = (const char *const *)g->skip;
    g->p.nskip = n;
    g->p.workspace = br_msg_take_fd(m);
    g->p.journal = br_msg_take_fd(m);
    g->p.base = br_msg_take_fd(m);
    g->p.lease = br_msg_take_fd(m);
    snprintf(g->p.stage, sizeof(g->p.stage), BR_PROMOTE_STAGE "%s", run_id);
    g->lock = br_promotion_lock(g->p.workspace, &why);
    int r = g->lock < 0 ? g->lock : br_promotion_alone(&g->p, &why);
    if (r == 0 && br_journal_pending(g->p.journal)) {
        recovered = true;
        r = br_promotion_recover(&g->p, &applied, &why);
    }
    if (r == 0 && !applied && g->p.lease >= 0)
        r = br_promotion_plan(&g->p, &why);
    for (size_t i = 0; r == 0 && i < g->p.nchanges; i++)
        if (send_change(g, &g->p.changes[i], err) < 0)
            return -(int)err->code;
    g->planned = r == 0 && !applied && g->p.lease >= 0;
    if (g->planned && g->p.conflicts + g->p.refused == 0 && g->p.nchanges)
        br_chan_permit(&g->sup, BR_MSG_PROMOTE_GO);
    return send_planned(g, r, recovered, applied, &why, err);
}

static int on_go(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct promoter *g = ctx;
    struct br_err why = {.code = BR_OK};
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    (void)c, (void)m;
    int r = br_promotion_apply(&g->p, &why);
    br_buf_put_u32(&o.buf, (uint32_t)-r);
    br_buf_put_str(&o.buf, r < 0 ? why.text : "");
    br_buf_put_u8(&o.buf, br_journal_pending(g->p.journal));
    return br_chan_send(&g->sup, BR_MSG_PROMOTE_DONE, 0, &o, err);
}

static const struct br_msg_rule rules[] = {
    {BR_MSG_PROMOTE_START, BR_PERMIT | BR_ONCE, 9, BR_MSG_MAX, 2, 4, on_start},
    {BR_MSG_PROMOTE_GO, BR_ONCE, 0, 0, 0, 0, on_go},
};

static int sup_gone(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct promoter *g = ctx;
    if (code != -BR_E_PEER_GONE)
        br_log(BR_LOG_ERROR, "%s", err ? err->text : br_code_name(code));
    br_close(&c->fd);
    br_loop_stop(g->loop);
    return code == -BR_E_PEER_GONE ? 0 : code;
}

int main(void)
{
    static struct promoter g = {.lock = -1};
    static const int calls[] = {
        SYS_openat,   SYS_openat2,  SYS_fcntl,     SYS_getdents64, SYS_readlinkat, SYS_renameat2,
        SYS_mkdirat,  SYS_unlinkat, SYS_symlinkat, SYS_fchmod,     SYS_ftruncate,  SYS_pread64,
        SYS_pwrite64, SYS_fsync,    SYS_syncfs,    SYS_flock,      SYS_flistxattr,
    };
    struct br_err err = {.code = BR_OK};
    br_log_init("bridle-promote", BR_LOG_WARN);
    g.p.lease = g.p.workspace = g.p.base = g.p.journal = -1;
    const struct br_role role = {.name = "bridle-promote",
                                 .max_nofile = 512,
                                 .no_fork = true,
                                 .syscalls = calls,
                                 .nsyscalls = BR_ARRAY_LEN(calls)};
    if (br_role_enter(&role, &err) < 0) {
        br_log(BR_LOG_ERROR, "%s", err.text);
        return 1;
    }
    br_chan_init(&g.sup, 3, "bridled", rules, BR_ARRAY_LEN(rules), &g);
    g.loop = br_loop_new();
    br_require(g.loop);
    int r = br_loop_watch_chan(g.loop, &g.sup, sup_gone, &g);
    if (r == 0)
        r = br_loop_run(g.loop, NULL, &err);
    br_promotion_free(&g.p);
    return r < 0 && r != -BR_E_PEER_GONE;
}
