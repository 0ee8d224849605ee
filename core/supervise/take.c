/*
 * The standing bridled as seen by one that serves a run: what its bundle is, and passing on what
 * the client asks of it. It is found by one name, the socket `control` of the state directory,
 * which nobody but its owner can put there; who answers there must be that owner, or root. The
 * bytes that it gives are the run's own from then on: whatever it takes later changes nothing here.
 *
 * A socket at which nobody answers is a bridled that died. A run does not go on without the bundle
 * that it would have had.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "supervise/standing.h"
#include "supervise/supervise_priv.h"

#define TAKE_TIMEOUT_US (10u * 1000000u)
/* A self-test has its own, shorter, limit. */
#define RELOAD_WAIT_US (120u * 1000000u)

static int on_row(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ctx;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    (void)c;
    br_buf_put(&o.buf, m->rd.p, m->rd.len);
    return br_chan_send(&s->control, BR_MSG_CTL_POLICY, 0, &o, err);
}

static int on_taken(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ctx;
    struct request *q = &s->req;
    br_policy_pin_get(&m->rd, &q->pin);
    br_rd_str(&m->rd, q->policy_path, sizeof(q->policy_path));
    br_buf_free(&q->policy);
    int r = br_msg_blob(m, BR_POLICY_MAX, &q->policy, err);
    if (r == 0 && (br_rd_done(&m->rd) < 0 || !q->pin.generation))
        r = br_err_set(err, BR_E_PEER_PROTOCOL, "'%s' sent a malformed POLICY_TAKEN", c->peer);
    s->taken = s->kick = true;
    return r;
}

static int on_refusal(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ctx;
    uint32_t code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, s->standing_err.text, sizeof(s->standing_err.text));
    s->standing_exit = br_rd_u32(&m->rd);
    if (br_rd_done(&m->rd) < 0 || code >= BR_CODE_COUNT_ || s->standing_exit > 255)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'%s' sent a malformed CTL_ENDED", c->peer);
    s->standing_err.code = (enum br_code)code;
    s->standing_code = -(int)code;
    s->taken = s->kick = true;
    return 0;
}

static const struct br_msg_rule take_rules[] = {
    {BR_MSG_POLICY_TAKEN, BR_ONCE, 34, BR_MSG_MAX, 0, 1, on_taken},
    {BR_MSG_CTL_POLICY, 0, 40, BR_MSG_MAX, 0, 0, on_row},
    {BR_MSG_CTL_ENDED, BR_PERMIT | BR_ONCE, 12, 4096, 0, 0, on_refusal},
};

/* What was taken stays; only somebody who still waits is told. */
static int on_standing_end(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct supervisor *s = ctx;
    br_chan_close(c);
    if (s->taken)
        return 0;
    s->standing_code = code == -BR_E_PEER_GONE ? -BR_E_PROGRAM_DIED : code;
    br_err_set(&s->standing_err, (enum br_code) - s->standing_code, "%s",
               code == -BR_E_PEER_GONE ? "the standing bridled left without an answer"
               : err                   ? err->text
                                       : br_code_name(code));
    s->standing_exit = (uint32_t)br_code_exit(code);
    s->taken = s->kick = true;
    return 0;
}

/* 1: connected. 0: none stands there. Root may ask another's; its own runs take from nobody else.
 */
static int connect_standing(struct supervisor *s, bool own, struct br_err *err)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    struct stat st;
    struct ucred peer;
    socklen_t n = sizeof(peer);
    char dir[BR_PATH_MAX];
    if (br_state_path(dir, getenv, NULL) < 0)
        return 0; /* who has no state directory has nobody standing over it */
    BR_CLEANUP_FD int at = open(dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (at < 0 || fstat(at, &st) < 0 || (st.st_uid != geteuid() && (own || geteuid() != 0)))
        return 0;
    uid_t owner = st.st_uid;
    if ((fstatat(at, STANDING_SOCKET, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT))
        return 0;
    BR_CLEANUP_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(sa.sun_path, sizeof(sa.sun_path), "/proc/self/fd/%d/%s", at, STANDING_SOCKET);
    if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
        return br_err_errno(err, BR_E_PROGRAM_DIED,
                            "the bridled that stood over '%s' does not answer, and its policy "
                            "would be that of a run; nothing was started. Start it again with "
                            "'bridle policy hold' or 'bridle serve', or remove "
                            "'%s/%s' to do without",
                            dir, dir, STANDING_SOCKET);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0 ||
        (peer.uid != 0 && peer.uid != owner))
        return br_err_set(err, BR_E_DENIED,
                          "who answers at '%s/%s' is uid %u and not the owner; nothing was started",
                          dir, STANDING_SOCKET, (unsigned)peer.uid);
    br_chan_init(&s->standing, br_steal_fd(&fd), "standing bridled", take_rules,
                 BR_ARRAY_LEN(take_rules), s);
    if (br_loop_watch_chan(s->loop, &s->standing, on_standing_end, s) < 0)
        return br_err_set(err, BR_E_INTERNAL, "the standing bridled could not be watched");
    return 1;
}

static int ask_standing(struct supervisor *s, enum br_msg_type type, const struct br_out *o,
                        uint64_t timeout_us, struct br_err *err)
{
    int r = br_chan_send(&s->standing, type, 0, o, err);
    if (r == -BR_E_PEER_GONE) /* it may have said why */
        r = 0;
    if (r == 0)
        r = sup_wait(s, &s->taken, timeout_us, false);
    if (r == -BR_E_TIMEOUT)
        return br_err_set(err, BR_E_TIMEOUT, "the standing bridled did not answer in time");
    if (r < 0 && s->fail_code)
        *err = s->fail_err;
    if (r < 0)
        return err->code ? r : br_err_set(err, BR_E_CANCELED, "interrupted");
    if (s->standing_code < 0)
        *err = s->standing_err;
    return s->standing_code;
}

int policy_take(struct supervisor *s, struct br_err *err)
{
    struct request *q = &s->req;
    s->standing.fd = -1;
    if (q->policy_from == BR_POLICY_FOUND && q->mode != BR_RUN_ACTIVATE) {
        int r = connect_standing(s, true, err);
        if (r > 0) {
            BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
            br_buf_put_str(&o.buf, s->run_id);
            br_chan_permit(&s->standing, BR_MSG_POLICY_TAKEN);
            r = ask_standing(s, BR_MSG_POLICY_TAKE, &o, TAKE_TIMEOUT_US, err);
            if (r == 0 && !q->pin.generation)
                r = br_err_set(err, BR_E_PEER_PROTOCOL, "the standing bridled gave no policy");
        }
        if (r < 0)
            return r;
    }
    policy_hash(&q->policy, q->pin.sha256);
    return 0;
}

void standing_verb(struct supervisor *s)
{
    struct br_err err = {.code = BR_OK};
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    bool reload = s->verb == BR_MSG_CTL_RELOAD;
    s->standing.fd = -1;
    int r = connect_standing(s, false, &err);
    if (r == 0)
        r = br_err_set(&err, BR_E_NOT_FOUND,
                       "no bridled holds a policy for this state directory%s. 'bridle policy hold' "
                       "starts one; without it every run reads its policy anew",
                       reload ? "; nothing was reloaded" : "");
    if (r > 0) {
        br_chan_permit(&s->standing, BR_MSG_CTL_POLICY);
        if (reload)
            br_buf_put_str(&o.buf, s->req.policy_path);
        r = ask_standing(s, s->verb, &o, reload ? RELOAD_WAIT_US : TAKE_TIMEOUT_US, &err);
    }
    sup_end(s, -r, br_code_exit(r), r < 0 ? err.text : "");
}
