/*
 * The channel of pid 1: which message may come when, and what answers it. One call at a time; while
 * a command runs only INIT_ABORT is legal, and anything else ends the sandbox. The peer is
 * bridle-session; what it sends is checked all the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "init/init_priv.h"

static int send_result(struct br_init *in, uint64_t id, int code, const struct br_err *why,
                       const struct br_buf *json, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u8(&o.buf, code == 0);
    br_buf_put_u32(&o.buf, (uint32_t)-code);
    br_buf_put_str(&o.buf, code ? why->text : "");
    br_out_blob(&o, json->data, json->len);
    if (in->raw.max) /* of a guest */
        br_out_blob(&o, in->raw.data, in->raw.len);
    return br_chan_send(&in->chan, BR_MSG_INIT_RESULT, id, &o, err);
}

static int do_op(struct br_init *in, const struct br_init_call *call, struct br_buf *out,
                 struct br_err *err)
{
    static br_init_op_fn *const ops[] = {
        [BR_OP_FS_READ] = br_init_fs_read,     [BR_OP_FS_LIST] = br_init_fs_list,
        [BR_OP_FS_SEARCH] = br_init_fs_search, [BR_OP_FS_WRITE] = br_init_fs_write,
        [BR_OP_FS_EDIT] = br_init_fs_edit,     [BR_OP_EXEC] = br_init_exec,
        [BR_OP_GUEST] = br_init_guest,
    };
    if (call->op >= BR_ARRAY_LEN(ops) || !ops[call->op])
        return br_err_set(err, BR_E_INVALID_ARGUMENTS, "operation %u is not known", call->op);
    return ops[call->op](in, call, out, err);
}

static int on_call(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct br_init *in = ctx;
    struct br_grant_ref grant;
    struct br_init_call call;
    struct br_err why = {.code = BR_OK};
    BR_CLEANUP_BUF struct br_buf json = BR_BUF_INIT(BR_TOOL_RESULT_MAX);
    uint64_t id = m->id;
    br_grant_ref_get(&m->rd, &grant);
    int r = br_init_call_get(m, &call, err);
    if (r < 0) {
        br_init_call_free(&call);
        return r;
    }
    br_chan_forbid(c, BR_MSG_INIT_CALL);
    br_chan_forbid(c, BR_MSG_INIT_SNAPSHOT);
    in->call_id = id;
    r = br_init_check_grant(in, &grant, &call, &why);
    if (r == 0)
        r = do_op(in, &call, &json, &why);
    br_init_call_free(&call);
    if (in->fatal < 0)
        return br_err_set(err, (enum br_code) - in->fatal, "%s", why.text);
    br_chan_permit(c, BR_MSG_INIT_CALL);
    br_chan_permit(c, BR_MSG_INIT_SNAPSHOT);
    r = send_result(in, id, r, &why, &json, err);
    br_buf_free(&in->raw);
    br_buf_init(&in->raw, 0);
    return r;
}

static int on_abort(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    (void)m;
    (void)err;
    br_init_exec_abort(ctx);
    return 0;
}

static int on_snapshot(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf json = BR_BUF_INIT(BR_TOOL_JSON_MAX);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    (void)br_init_snapshot(ctx, &json, NULL); /* a failure says "truncated" */
    br_out_blob(&o, json.data, json.len);
    return br_chan_send(c, BR_MSG_INIT_CHANGES, m->id, &o, err);
}

static const struct br_msg_rule init_rules[] = {
    {BR_MSG_INIT_CALL, BR_PERMIT, 64, BR_MSG_MAX, 0, 3, on_call},
    {BR_MSG_INIT_ABORT, BR_PERMIT, 0, 0, 0, 0, on_abort},
    {BR_MSG_INIT_SNAPSHOT, BR_PERMIT, 0, 0, 0, 0, on_snapshot},
};

static int on_child(void *ctx, int fd, short revents, struct br_err *err)
{
    (void)revents;
    (void)err;
    struct signalfd_siginfo drop[8];
    (void)!read(fd, drop, sizeof(drop));
    br_init_exec_reap(ctx);
    return 0;
}

int br_init_open(struct br_init *in, int chan_fd, int root_fd, bool pid1, struct br_err *err)
{
    *in = (struct br_init){.root = root_fd, .pid1 = pid1, .sigfd = -1, .sockets = {-1, -1}};
    br_chan_init(&in->chan, chan_fd, "session", init_rules, BR_ARRAY_LEN(init_rules), in);
    sigset_t chld;
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    if (fcntl(chan_fd, F_SETFD, br_init_weak ? 0 : FD_CLOEXEC) < 0 ||
        sigprocmask(SIG_BLOCK, &chld, NULL) < 0)
        return br_err_errno(err, BR_E_IO, "the channel of the sandbox could not be prepared");
    in->sigfd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
    if (in->sigfd < 0)
        return br_err_errno(err, BR_E_IO, "a signal descriptor could not be made");
    in->loop = br_loop_new();
    if (!in->loop)
        return br_err_set(err, BR_E_NOMEM, "no memory for the loop");
    int r = br_loop_watch(in->loop, in->sigfd, POLLIN, on_child, in);
    return r < 0 ? r : br_loop_watch_chan(in->loop, &in->chan, NULL, NULL);
}

void br_init_close(struct br_init *in)
{
    br_chan_close(&in->chan);
    br_close(&in->sigfd);
    br_close(&in->root);
    br_init_snapshot_free(&in->base);
    br_buf_free(&in->raw);
    for (unsigned i = 0; i < BR_ARRAY_LEN(in->sockets); i++)
        br_close(&in->sockets[i]);
    if (in->loop)
        br_loop_free(&in->loop);
}

int br_init_serve(struct br_init *in, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf json = BR_BUF_INIT(BR_BLOB_INLINE_MAX);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    int r = br_init_measure(&json, in->inherited);
    if (r < 0)
        return br_err_set(err, BR_E_INTERNAL, "the measurements of the sandbox do not fit");
    br_out_blob(&o, json.data, json.len);
    for (unsigned i = 0; i < BR_ARRAY_LEN(in->sockets); i++)
        if (in->sockets[i] >= 0) /* and nothing in here can accept on them */
            br_out_fd(&o, br_steal_fd(&in->sockets[i]), true);
    r = br_chan_send(&in->chan, BR_MSG_INIT_READY, 0, &o, err);
    br_out_free(&o);
    if (r < 0)
        return r;
    return br_loop_run(in->loop, NULL, err);
}
