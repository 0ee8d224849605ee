/*
 * bridled: the supervisor. `bridled --private` serves one verb of one client, whose control channel
 * it inherits on fd 3, and ends with it; that is how `bridle run` works without a service. It links
 * no parser of anything but channel messages. `bridled --standing` serves no verb: see standing.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "supervise/service.h"
#include "supervise/supervise_priv.h"

void sup_fail(struct supervisor *s, int code, const char *fmt, ...)
{
    s->kick = true;
    if (s->fail_code)
        return;
    va_list ap;
    va_start(ap, fmt);
    s->fail_code = code < 0 ? code : -code;
    s->fail_err.code = (enum br_code)(-s->fail_code);
    vsnprintf(s->fail_err.text, sizeof(s->fail_err.text), fmt, ap);
    va_end(ap);
}

int sup_wait_of(struct supervisor *s, const struct program *p, const bool *done,
                uint64_t timeout_us, bool even_if_failed)
{
    uint64_t deadline = br_now_us() + timeout_us;
    while (!*done) {
        if (!even_if_failed && s->fail_code)
            return s->fail_code;
        if (!even_if_failed && s->canceled)
            return br_err_set(&s->fail_err, s->cancel.code, "%s", s->cancel.text);
        if (p && p->ended)
            return -BR_E_PROGRAM_DIED;
        s->kick = false;
        int r = br_loop_run_until(s->loop, &s->kick, deadline, NULL);
        if (r == -BR_E_TIMEOUT)
            return r;
        if (r < 0) {
            sup_fail(s, r, "the supervisor's loop failed");
            return r;
        }
    }
    return 0;
}

int sup_wait(struct supervisor *s, const bool *done, uint64_t timeout_us, bool even_if_failed)
{
    return sup_wait_of(s, NULL, done, timeout_us, even_if_failed);
}

void sup_end(struct supervisor *s, int code, int exit_code, const char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, (uint32_t)(code < 0 ? -code : code));
    br_buf_put_str(&o.buf, text);
    br_buf_put_u32(&o.buf, (uint32_t)exit_code);
    (void)br_chan_send(&s->control, BR_MSG_CTL_ENDED, 0, &o, NULL);
}

/* ---- control ---- */

static int malformed(const struct br_msg *m, struct br_err *err)
{
    return br_err_set(err, BR_E_PEER_PROTOCOL, "the client sent a malformed %s",
                      br_msg_name(m->type));
}

static int on_run(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ctx;
    struct request *q = &s->req;
    (void)c;
    q->mode = (enum br_run_mode)br_rd_u8(&m->rd);
    br_rd_str(&m->rd, q->workspace, sizeof(q->workspace));
    br_rd_str(&m->rd, q->manifest_path, sizeof(q->manifest_path));
    q->manifest_in_workspace = br_rd_u8(&m->rd);
    if (br_msg_blob(m, BR_MANIFEST_MAX, &q->manifest, err) < 0)
        return malformed(m, err);
    br_rd_str(&m->rd, q->policy_path, sizeof(q->policy_path));
    if (br_msg_blob(m, BR_POLICY_MAX, &q->policy, err) < 0)
        return malformed(m, err);
    q->policy_from = br_rd_u8(&m->rd);
    br_rd_str(&m->rd, q->config_path, sizeof(q->config_path));
    if (br_msg_blob(m, BR_CONFIG_MAX, &q->config, err) < 0)
        return malformed(m, err);
    br_rd_str(&m->rd, q->model, sizeof(q->model));
    br_rd_str(&m->rd, q->scenario_path, sizeof(q->scenario_path));
    if (br_msg_blob(m, BR_MANIFEST_MAX, &q->scenario, err) < 0 ||
        br_msg_blob(m, BR_GOAL_MAX, &q->goal, err) < 0)
        return malformed(m, err);
    q->wall_seconds = br_rd_u32(&m->rd);
    q->has_terminal = br_rd_u8(&m->rd);
    br_profile_choice_get(&m->rd, &q->choice);
    uint32_t argc = br_rd_u32(&m->rd);
    if (argc > BR_EXEC_ARGS_MAX)
        return malformed(m, err);
    while (q->argc < argc && (q->argv[q->argc] = br_rd_strdup(&m->rd, BR_PATH_MAX)))
        q->argc++;
    br_rd_str(&m->rd, q->adapter, sizeof(q->adapter));
    br_rd_str(&m->rd, q->resume, sizeof(q->resume));
    if (br_msg_blob(m, BR_SCHEMA_MAX, &q->schema, err) < 0)
        return malformed(m, err);
    br_rd_str(&m->rd, q->run_id, sizeof(q->run_id));
    br_ceilings_get(&m->rd, &q->ceilings);
    br_rd_str(&m->rd, q->root, sizeof(q->root));
    if (br_rd_done(&m->rd) < 0 || q->mode < BR_RUN_AGENT || q->mode > BR_RUN_PROMOTE ||
        q->policy_from > BR_POLICY_BUILT_IN || (q->run_id[0] && !br_is_run_id(q->run_id)) ||
        (q->adapter[0] ? q->mode != BR_RUN_AGENT : q->resume[0] || q->schema.len) ||
        q->wall_seconds > BR_RUN_SECONDS_MAX)
        return malformed(m, err);
    s->verb = BR_MSG_CTL_RUN;
    s->asked = s->kick = true;
    return 0;
}

static int on_show(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ctx;
    (void)c;
    br_show_get(&m->rd, &s->show);
    if (br_rd_done(&m->rd) < 0)
        return malformed(m, err);
    s->verb = BR_MSG_CTL_SHOW;
    s->asked = s->kick = true;
    return 0;
}

static int on_sweep(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ctx;
    (void)c, (void)m, (void)err;
    s->verb = BR_MSG_CTL_SWEEP;
    s->asked = s->kick = true;
    return 0;
}

static int on_doctor(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ctx;
    (void)c, (void)m, (void)err;
    s->verb = BR_MSG_CTL_DOCTOR;
    s->asked = s->kick = true;
    return 0;
}

static int on_activations(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ctx;
    (void)c;
    br_rd_str(&m->rd, s->named, sizeof(s->named));
    if (br_rd_done(&m->rd) < 0)
        return malformed(m, err);
    s->verb = BR_MSG_CTL_ACTIVATIONS;
    s->asked = s->kick = true;
    return 0;
}

static int on_leases(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ctx;
    (void)c, (void)m, (void)err;
    s->verb = BR_MSG_CTL_LEASES;
    s->asked = s->kick = true;
    return 0;
}

static int on_state(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ctx;
    (void)c;
    s->state_what = br_rd_u8(&m->rd);
    br_rd_str(&m->rd, s->named, sizeof(s->named));
    if (br_rd_done(&m->rd) < 0 || s->state_what < BR_STATE_LIST ||
        s->state_what > BR_STATE_PURGE_ALL)
        return malformed(m, err);
    s->verb = BR_MSG_CTL_STATE;
    s->asked = s->kick = true;
    return 0;
}

static int on_reload(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ctx;
    (void)c;
    br_rd_str(&m->rd, s->req.policy_path, sizeof(s->req.policy_path));
    if (br_rd_done(&m->rd) < 0)
        return malformed(m, err);
    s->verb = BR_MSG_CTL_RELOAD;
    s->asked = s->kick = true;
    return 0;
}

static int on_policies(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ctx;
    (void)c, (void)m, (void)err;
    s->verb = BR_MSG_CTL_POLICIES;
    s->asked = s->kick = true;
    return 0;
}

static int on_cancel(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ctx;
    struct br_err why = {.code = BR_E_CANCELED, .text = "the operator canceled the run"};
    (void)c;
    if (m->rd.len > m->rd.off) {
        uint32_t code = br_rd_u32(&m->rd);
        br_rd_str(&m->rd, why.text, sizeof(why.text));
        if (br_rd_done(&m->rd) < 0 || code == 0 || code >= BR_CODE_COUNT_)
            return malformed(m, err);
        why.code = (enum br_code)code;
    }
    if (!s->cancel.code)
        s->cancel = why;
    s->canceled = s->kick = true;
    return 0;
}

static const struct br_msg_rule control_rules[] = {
    {BR_MSG_CTL_RUN, BR_PERMIT | BR_ONCE, 40, BR_MSG_MAX, 0, 6, on_run},
    {BR_MSG_CTL_SHOW, BR_PERMIT | BR_ONCE, 24, 512, 0, 0, on_show},
    {BR_MSG_CTL_DOCTOR, BR_PERMIT | BR_ONCE, 0, 0, 0, 0, on_doctor},
    {BR_MSG_CTL_ACTIVATIONS, BR_PERMIT | BR_ONCE, 4, 64, 0, 0, on_activations},
    {BR_MSG_CTL_LEASES, BR_PERMIT | BR_ONCE, 0, 0, 0, 0, on_leases},
    {BR_MSG_CTL_STATE, BR_PERMIT | BR_ONCE, 5, 128, 0, 0, on_state},
    {BR_MSG_CTL_SWEEP, BR_PERMIT | BR_ONCE, 0, 0, 0, 0, on_sweep},
    {BR_MSG_CTL_RELOAD, BR_PERMIT | BR_ONCE, 4, BR_PATH_MAX + 4, 0, 0, on_reload},
    {BR_MSG_CTL_POLICIES, BR_PERMIT | BR_ONCE, 0, 0, 0, 0, on_policies},
    {BR_MSG_CTL_CANCEL, BR_PERMIT, 0, BR_ERR_TEXT_MAX + 16, 0, 0, on_cancel},
};

static int on_control_end(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct supervisor *s = ctx;
    if (code != -BR_E_PEER_GONE)
        sup_fail(s, code, "%s", err ? err->text : "the control channel broke");
    br_close(&c->fd);
    if (!s->cancel.code) /* a service gives its runs their ids */
        (void)br_err_set(&s->cancel, BR_E_CANCELED, "%s",
                         s->req.run_id[0] ? "the service stopped" : "the client has gone");
    s->control_gone = s->canceled = s->asked = s->kick = true;
    return 0;
}

/* ---- start ---- */

/*
 * Whoever made the control channel decides what is started here, and sees the record. It must be
 * the user that this program runs as, whatever handed it over.
 */
static int check_client(struct br_err *err)
{
    struct ucred peer;
    socklen_t n = sizeof(peer);
    if (getsockopt(3, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0 || n != sizeof(peer))
        return br_err_errno(err, BR_E_FAILED,
                            "who is at the control channel could not be found out");
    if (peer.uid != geteuid())
        return br_err_set(
            err, BR_E_DENIED,
            "the control channel is of uid %u, and this is uid %u; nothing was started",
            (unsigned)peer.uid, (unsigned)geteuid());
    return 0;
}

static int open_bindir(struct br_err *err)
{
    char path[BR_PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    char *slash = n > 0 ? memrchr(path, '/', (size_t)n) : NULL;
    if (!slash)
        return br_err_errno(err, BR_E_FAILED, "the directory of the programs was not found");
    *slash = 0;
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 ? fd : br_err_errno(err, BR_E_FAILED, "'%s' could not be opened", path);
}

static int serve(struct supervisor *s, struct br_err *err)
{
    s->bindir = open_bindir(err);
    if (s->bindir < 0)
        return s->bindir;
    br_chan_init(&s->control, 3, "client", control_rules, BR_ARRAY_LEN(control_rules), s);
    if (br_loop_watch_chan(s->loop, &s->control, on_control_end, s) < 0)
        return br_err_set(err, BR_E_INTERNAL, "the control channel could not be watched");
    int r = sup_wait(s, &s->asked, UINT64_MAX / 2, true);
    if (r < 0 || s->fail_code) {
        *err = s->fail_err;
        sup_end(s, s->fail_code, br_code_exit(s->fail_code), s->fail_err.text);
        return -BR_E_FAILED;
    }
    if (s->verb == BR_MSG_CTL_RUN)
        run_verb(s);
    else if (s->verb == BR_MSG_CTL_SHOW)
        show_verb(s);
    else if (s->verb == BR_MSG_CTL_DOCTOR)
        doctor_verb(s);
    else if (s->verb == BR_MSG_CTL_ACTIVATIONS)
        activations_verb(s);
    else if (s->verb == BR_MSG_CTL_LEASES)
        leases_verb(s);
    else if (s->verb == BR_MSG_CTL_STATE)
        state_verb(s);
    else if (s->verb == BR_MSG_CTL_SWEEP)
        sweep_verb(s);
    else
        standing_verb(s);
    return 0;
}

/*
 * What root is kept for: becoming the uid of a role (SETUID, SETGID), ending it (KILL), giving the
 * store to the audit (CHOWN), opening a workspace that only its owner may (DAC_*), and what
 * bridle-launch inherits: namespaces and mounts (SYS_ADMIN), loopback (NET_ADMIN), cgroups and the
 * OOM score (SYS_RESOURCE), dropping its own bounding set (SETPCAP), and measuring a sandbox, whose
 * user namespace belongs to the sandbox's uid and not to root (SYS_PTRACE).
 */
static const int kept_capabilities[] = {
    CAP_CHOWN,     CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_KILL,
    CAP_SETGID,    CAP_SETUID,       CAP_SETPCAP,         CAP_NET_ADMIN,
    CAP_SYS_ADMIN, CAP_SYS_RESOURCE, CAP_SYS_PTRACE,
};

static int drop_capabilities(struct br_err *err)
{
    uint64_t keep = 0;
    if (geteuid() != 0)
        return 0;
    for (size_t i = 0; i < BR_ARRAY_LEN(kept_capabilities); i++)
        keep |= 1ull << kept_capabilities[i];
    for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
        if (!(keep >> cap & 1))
            (void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &head, data) == 0) {
        for (int i = 0; i < 2; i++) {
            data[i].permitted &= (uint32_t)(keep >> (32 * i));
            data[i].effective = data[i].permitted;
            data[i].inheritable = 0;
        }
        if (syscall(SYS_capset, &head, data) == 0)
            return 0;
    }
    return br_err_errno(err, BR_E_FAILED, "the supervisor could not give up capabilities");
}

/* Over the state directory, until it is told to end. */
static int stand(const char *policy)
{
    static struct standing st;
    struct br_err err = {.code = BR_OK};
    br_log_init("bridled", BR_LOG_INFO);
    br_close_from(3, NULL, 0);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_DUMPABLE, 0);
    umask(077);
    if (strlen(policy) >= sizeof(st.asked_path)) {
        (void)br_err_set(&err, BR_E_USAGE, "the path of the policy is too long");
    } else {
        snprintf(st.asked_path, sizeof(st.asked_path), "%s", policy);
        if (drop_capabilities(&err) == 0 && standing_serve(&st, &err) == 0)
            return 0;
    }
    br_log(BR_LOG_ERROR, "%s", err.text);
    return br_code_exit(err.code);
}

/* The same, with listeners and a gateway. Sockets that were passed stay where they are. */
static int serve_clients(int argc, char **argv)
{
    static struct standing st;
    static struct service sv;
    struct br_err err = {.code = BR_OK};
    br_log_init("bridled", BR_LOG_INFO);
    notify_init(&sv.notify);
    br_close_from(3 + (int)sv.notify.nfds, NULL, 0);
    for (unsigned i = 0; i < sv.notify.nfds; i++)
        (void)fcntl(3 + (int)i, F_SETFD, FD_CLOEXEC);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_DUMPABLE, 0);
    umask(077);
    st.service = &sv;
    int r = service_args_read(&sv.args, argc, argv, &err);
    if (r == 0)
        snprintf(st.asked_path, sizeof(st.asked_path), "%s", sv.args.policy);
    st.beside = sv.args.beside;
    if (st.beside) /* who started it has its own things to say */
        br_log_init("bridled", BR_LOG_WARN);
    if (r == 0 && drop_capabilities(&err) == 0 && standing_serve(&st, &err) == 0)
        return 0;
    br_log(BR_LOG_ERROR, "%s", err.text);
    return br_code_exit(err.code);
}

static void open_standard_fds(void)
{
    for (int fd = 0; fd < 3; fd++) /* never let a channel become a standard descriptor */
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
            _exit(1);
}

int main(int argc, char **argv)
{
    static struct supervisor s = {.workspace_fd = -1,
                                  .kept_lock = -1,
                                  .state_fd = -1,
                                  .store_fd = -1,
                                  .init_session_end = -1,
                                  .sandbox_pidfd = -1,
                                  .session_lock = -1};
    struct br_err err = {.code = BR_OK};
    br_log_init("bridled", BR_LOG_WARN);
    struct stat st;
    open_standard_fds();
    if (argc == 2 && strcmp(argv[1], "--standing") == 0)
        return stand("");
    if (argc == 4 && strcmp(argv[1], "--standing") == 0 && strcmp(argv[2], "--policy") == 0)
        return stand(argv[3]);
    if (argc >= 2 && strcmp(argv[1], "--service") == 0)
        return serve_clients(argc - 2, argv + 2);
    if (argc != 2 || strcmp(argv[1], "--private") != 0 || fstat(3, &st) < 0 ||
        !S_ISSOCK(st.st_mode)) {
        fprintf(stderr, "bridled is started by 'bridle'; by hand only to hold a policy for new "
                        "runs: bridle policy hold [FILE]; or for clients: bridle serve\n");
        return br_code_exit(BR_E_USAGE);
    }
    br_close_from(4, NULL, 0);
    (void)fcntl(3, F_SETFD, FD_CLOEXEC);
    (void)setsid(); /* Ctrl-C goes to the client, which asks for a clean end */
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_DUMPABLE, 0);
    umask(077);
    s.loop = br_loop_new();
    br_require(s.loop);
    if (check_client(&err) < 0 || drop_capabilities(&err) < 0 || serve(&s, &err) < 0) {
        br_log(BR_LOG_ERROR, "%s", err.text);
        return 1;
    }
    return 0;
}
