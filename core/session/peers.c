/*
 * The channels of a session and what each peer may say. A message that its table does not permit
 * ends the session; so does the loss of the audit or of the supervisor. The loss of another peer
 * fails what waits for it.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "session/session_priv.h"

#define EXTRA_FDS_MIN 2u
#define EXTRA_FDS_MAX 8u
/* bridled knows why a client has gone, and says so: it is waited for so long. */
#define CLIENT_GONE_US 500000u

static int bad(struct br_chan *c, const struct br_msg *m, struct br_err *err)
{
    return br_err_set(err, BR_E_PEER_PROTOCOL, "'%s' sent a malformed %s", c->peer,
                      br_msg_name(m->type));
}

/* A violation if nothing with this id is awaited. Before anything is taken from the message: what
 * an earlier answer left may be in use further up. */
static int awaited(const struct br_chan *c, const struct br_msg *m, const struct reply *r,
                   struct br_err *err)
{
    if (m->id != r->id || r->done || m->id == 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'%s' sent %s, which answers nothing", c->peer,
                          br_msg_name(m->type));
    return 0;
}

static int answer(struct session *s, struct reply *r)
{
    r->done = true;
    s->kick = true;
    return 0;
}

/* u32 code, str text */
static void read_failure(struct br_msg *m, struct reply *r)
{
    uint32_t code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, r->err.text, sizeof(r->err.text));
    r->err.code = code && code < BR_CODE_COUNT_ ? (enum br_code)code : BR_E_INTERNAL;
    r->code = -(int)r->err.code;
}

/* ---- audit ---- */

static int on_appended(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    if (awaited(c, m, &s->audited, err) < 0)
        return -BR_E_PEER_PROTOCOL;
    br_rd_u64(&m->rd); /* the row: nobody asks for it */
    return br_rd_done(&m->rd) < 0 ? bad(c, m, err) : answer(s, &s->audited);
}

static int on_append_failed(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    if (awaited(c, m, &s->audited, err) < 0)
        return -BR_E_PEER_PROTOCOL;
    read_failure(m, &s->audited);
    return br_rd_done(&m->rd) < 0 ? bad(c, m, err) : answer(s, &s->audited);
}

static const struct br_msg_rule audit_rules[] = {
    {BR_MSG_APPENDED, BR_PERMIT, 8, 8, 0, 0, on_appended},
    {BR_MSG_APPEND_FAILED, BR_PERMIT, 8, 4096, 0, 0, on_append_failed},
};

/* ---- client ---- */

static void tell_client(struct session *s, bool accepted, int code, const char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u8(&o.buf, accepted);
    br_buf_put_u32(&o.buf, (uint32_t)(code < 0 ? -code : code));
    br_buf_put_str(&o.buf, text);
    (void)br_chan_send(&s->client, BR_MSG_ANSWERED, 0, &o, NULL); /* a client may have gone */
}

static bool is_who(const char *who)
{
    for (; *who; who++)
        if (*who < ' ' || *who > '~')
            return false;
    return true;
}

static int on_answer(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    char id[BR_ID_MAX], note[BR_PATH_MAX + 1], who[BR_WHO_MAX];
    br_rd_str(&m->rd, id, sizeof(id));
    uint8_t allow = br_rd_u8(&m->rd);
    br_rd_str(&m->rd, note, sizeof(note));
    br_rd_str(&m->rd, who, sizeof(who));
    if (br_rd_done(&m->rd) < 0 || allow > BR_SCOPE_RUN || !is_who(who))
        return bad(c, m, err);
    struct br_err why;
    int r = ask_answer(s, id, allow, note, who, &why);
    if (r < 0) {
        tell_client(s, false, r, why.text);
        return 0;
    }
    s->kick = true;
    tell_client(s, true, 0, "");
    return 0;
}

static int on_cancel(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)m, (void)err;
    session_stop(ctx, BR_E_CANCELED, "the operator canceled the run");
    return 0;
}

/* One at a time; the next is taken when this one was answered. */
static int on_policy_ask(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    s->asked.table = m->type == BR_MSG_POLICY_USE;
    s->asked.id = m->id;
    if (br_msg_blob(m, s->asked.table ? BR_TABLE_MAX : BR_EVENT_MAX, &s->asked.text, err) < 0 ||
        br_rd_done(&m->rd) < 0)
        return bad(c, m, err);
    session_permit_policy(s, false);
    s->asked.is = s->kick = true;
    return 0;
}

void session_permit_policy(struct session *s, bool yes)
{
    if (s->client.fd < 0)
        return;
    (yes ? br_chan_permit : br_chan_forbid)(&s->client, BR_MSG_POLICY_ASK);
    (yes ? br_chan_permit : br_chan_forbid)(&s->client, BR_MSG_POLICY_USE);
}

static const struct br_msg_rule client_rules[] = {
    {BR_MSG_POLICY_ASK, 0, 1, BR_MSG_MAX, 0, 1, on_policy_ask}, /* once there is a table */
    {BR_MSG_POLICY_USE, 0, 1, BR_MSG_MAX, 0, 1, on_policy_ask},
    {BR_MSG_ANSWER, 0, 13, 2 * BR_PATH_MAX, 0, 0, on_answer}, /* once there is a ledger */
    {BR_MSG_CANCEL, BR_PERMIT, 0, 0, 0, 0, on_cancel},
};

/* ---- script: policy and adapter ---- */

static struct reply *script_reply(struct session *s, const struct br_chan *c)
{
    return c == &s->adapter ? &s->adapted : &s->scripted_reply;
}

static int on_script_failed(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    struct reply *r = script_reply(s, c);
    if (awaited(c, m, r, err) < 0)
        return -BR_E_PEER_PROTOCOL;
    read_failure(m, r);
    br_rd_str(&m->rd, r->text, sizeof(r->text));
    r->n1 = br_rd_u32(&m->rd);
    return br_rd_done(&m->rd) < 0 ? bad(c, m, err) : answer(s, r);
}

/* A list of texts, each with its NUL, in the place of what was there. */
static bool read_lines(struct br_msg *m, struct br_buf *out)
{
    uint32_t n = br_rd_u32(&m->rd);
    struct br_buf lines = BR_BUF_INIT(BR_MSG_MAX);
    if (n > 256)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        size_t len;
        const char *w = br_rd_lstr(&m->rd, BR_ERR_TEXT_MAX, &len);
        br_buf_put(&lines, w ? w : "", w ? len : 0);
        br_buf_put_u8(&lines, 0);
    }
    br_buf_free(out);
    *out = lines;
    return true;
}

/* The refusal itself is still to come. */
static int on_compile_errors(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    if (awaited(c, m, &s->scripted_reply, err) < 0)
        return -BR_E_PEER_PROTOCOL;
    return !read_lines(m, &s->errors) || br_rd_done(&m->rd) < 0 ? bad(c, m, err) : 0;
}

static int on_compiled(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    struct reply *r = &s->scripted_reply;
    if (awaited(c, m, r, err) < 0)
        return -BR_E_PEER_PROTOCOL;
    if (br_msg_blob(m, BR_TABLE_MAX, &r->data, err) < 0 ||
        br_msg_blob(m, BR_TABLE_MAX, &r->data2, err) < 0 ||
        br_msg_blob(m, BR_LAUNCH_JSON_MAX, &s->launch_json, err) < 0)
        return -BR_E_PEER_PROTOCOL;
    if (!read_lines(m, &s->warnings)) /* they become notices */
        return bad(c, m, err);
    br_rd_str(&m->rd, s->check_file, sizeof(s->check_file));
    s->check_line = br_rd_u32(&m->rd);
    return br_rd_done(&m->rd) < 0 ? bad(c, m, err) : answer(s, r);
}

/* Everything else from a script is kept as bytes and read by whoever asked. */
static int on_script_bytes(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    struct reply *r = script_reply(s, c);
    if (awaited(c, m, r, err) < 0)
        return -BR_E_PEER_PROTOCOL;
    br_buf_init(&r->data, BR_MSG_MAX);
    br_buf_put(&r->data, m->rd.p, m->rd.len);
    return answer(s, r);
}

static int on_script_blob(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    struct reply *r = script_reply(s, c);
    if (awaited(c, m, r, err) < 0)
        return -BR_E_PEER_PROTOCOL;
    if (br_msg_blob(m, BR_BLOB_MAX, &r->data, err) < 0)
        return -BR_E_PEER_PROTOCOL;
    return br_rd_done(&m->rd) < 0 ? bad(c, m, err) : answer(s, r);
}

static int on_built(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    struct reply *r = &s->adapted;
    if (awaited(c, m, r, err) < 0)
        return -BR_E_PEER_PROTOCOL;
    br_rd_str(&m->rd, r->text, sizeof(r->text));
    if (br_msg_blob(m, BR_BLOB_MAX, &r->data, err) < 0)
        return -BR_E_PEER_PROTOCOL;
    br_rd_str(&m->rd, s->content_type, sizeof(s->content_type));
    return br_rd_done(&m->rd) < 0 ? bad(c, m, err) : answer(s, r);
}

static const struct br_msg_rule script_rules[] = {
    {BR_MSG_COMPILED, BR_PERMIT | BR_ONCE, 7, BR_MSG_MAX, 0, 3, on_compiled},
    {BR_MSG_SCRIPT_FAILED, BR_PERMIT, 16, 8192, 0, 0, on_script_failed},
    {BR_MSG_COMPILE_ERRORS, BR_PERMIT | BR_ONCE, 4, BR_MSG_MAX, 0, 0, on_compile_errors},
    {BR_MSG_SHELL_PARSED, BR_PERMIT, 9, BR_MSG_MAX, 0, 0, on_script_bytes},
    {BR_MSG_PREDICATE_VOTE, BR_PERMIT, 9, 8192, 0, 0, on_script_bytes},
    {BR_MSG_VALUE_FITS, BR_PERMIT, 0, 0, 0, 0, on_script_bytes},
};

static const struct br_msg_rule adapter_rules[] = {
    {BR_MSG_ADAPT_BUILT, BR_PERMIT, 9, BR_MSG_MAX, 0, 1, on_built},
    {BR_MSG_ADAPT_DELTA, BR_PERMIT, 5, BR_MSG_MAX, 0, 1, on_script_blob},
    {BR_MSG_ADAPT_RESPONSE, BR_PERMIT, 5, BR_MSG_MAX, 0, 1, on_script_blob},
    {BR_MSG_SCRIPT_FAILED, BR_PERMIT, 16, 8192, 0, 0, on_script_failed},
};

/* ---- broker ---- */

static void body_moved(struct session *s)
{
    if (s->body_kick)
        *s->body_kick = true;
    s->kick = true;
}

static int on_head(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    char retry_after[BR_NAME_MAX];
    if (m->id != s->provided.id || s->provided.done || s->http_headed)
        return bad(c, m, err);
    s->http_status = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, s->content_type, sizeof(s->content_type));
    br_rd_str(&m->rd, s->provider_request_id, sizeof(s->provider_request_id));
    br_rd_str(&m->rd, retry_after, sizeof(retry_after));
    s->http_headed = true;
    body_moved(s);
    return br_rd_done(&m->rd) < 0 ? bad(c, m, err) : 0;
}

static int on_data(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    BR_CLEANUP_BUF struct br_buf part;
    if (m->id != s->provided.id || s->provided.done || !s->http_headed)
        return bad(c, m, err);
    if (br_msg_blob(m, BR_BLOB_MAX, &part, err) < 0 || br_rd_done(&m->rd) < 0)
        return bad(c, m, err);
    if (br_buf_put(&s->provided.data, part.data, part.len) < 0)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED, "the response is larger than %u bytes",
                          BR_BLOB_MAX);
    body_moved(s);
    return 0;
}

static int on_provided(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    if (awaited(c, m, &s->provided, err) < 0)
        return -BR_E_PEER_PROTOCOL;
    uint32_t code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, s->provided.err.text, sizeof(s->provided.err.text));
    s->request_bytes = br_rd_u64(&m->rd);
    s->response_bytes = br_rd_u64(&m->rd);
    s->provided.code = code < BR_CODE_COUNT_ ? -(int)code : -BR_E_INTERNAL;
    s->provided.err.code = (enum br_code) - s->provided.code;
    body_moved(s);
    return br_rd_done(&m->rd) < 0 ? bad(c, m, err) : answer(s, &s->provided);
}

/* ---- broker: what a guest asks ---- */

static int on_guest(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    struct guest_event e = {.type = m->type};
    if (!s->harness.is)
        return bad(c, m, err);
    if (m->type != BR_MSG_GUEST_REFUSED)
        e.serial = br_rd_u64(&m->rd);
    if (m->type == BR_MSG_GUEST_REQUEST) {
        e.route = br_rd_u32(&m->rd);
        e.messages = br_rd_u32(&m->rd);
        e.tokens = br_rd_u64(&m->rd);
        e.bytes = br_rd_u64(&m->rd);
    } else {
        e.code = br_rd_u32(&m->rd);
        br_rd_str(&m->rd, e.text, sizeof(e.text));
    }
    if (m->type == BR_MSG_GUEST_RESPONSE) {
        e.status = br_rd_u32(&m->rd);
        br_rd_str(&m->rd, e.finish, sizeof(e.finish));
        e.prompt = br_rd_u64(&m->rd);
        e.completion = br_rd_u64(&m->rd);
        e.settled = br_rd_u8(&m->rd);
        e.repairs = br_rd_u32(&m->rd);
        e.calls = br_rd_u32(&m->rd);
        e.bytes = br_rd_u64(&m->rd);
    }
    if (br_rd_done(&m->rd) < 0 || e.code >= BR_CODE_COUNT_ || !guest_note(s, &e))
        return bad(c, m, err);
    if (s->init_kick)
        *s->init_kick = true;
    s->kick = true;
    return 0;
}

static const struct br_msg_rule broker_rules[] = {
    {BR_MSG_PROV_HEAD, BR_PERMIT, 16, 2048, 0, 0, on_head},
    {BR_MSG_PROV_DATA, BR_PERMIT, 5, BR_MSG_MAX, 0, 1, on_data},
    {BR_MSG_PROV_END, BR_PERMIT, 24, 4096, 0, 0, on_provided},
    {BR_MSG_GUEST_REQUEST, BR_PERMIT, 32, 32, 0, 0, on_guest},
    {BR_MSG_GUEST_RESPONSE, BR_PERMIT, 53, 4096, 0, 0, on_guest},
    {BR_MSG_GUEST_REFUSED, BR_PERMIT, 8, 4096, 0, 0, on_guest},
};

/* ---- init ---- */

static void init_moved(struct session *s)
{
    if (s->init_kick)
        *s->init_kick = true;
    s->kick = true;
}

static int on_init_ready(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    uint32_t flags = s->profile.plan.flags,
             want[2] = {flags & BR_PLAN_BROKER, flags & BR_PLAN_GATE};
    if (br_msg_blob(m, BR_MSG_MAX, &s->init_ready, err) < 0 || br_rd_done(&m->rd) < 0)
        return bad(c, m, err);
    for (unsigned i = 0; i < 2; i++) {
        s->harness.sockets[i] = want[i] ? br_msg_take_fd(m) : -1;
        if (want[i] && s->harness.sockets[i] < 0)
            return bad(c, m, err);
    }
    if (br_msg_take_fd(m) >= 0) /* more than was planned */
        return bad(c, m, err);
    s->init_is_ready = true;
    s->kick = true;
    return 0;
}

static int on_init_result(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    struct reply *r = &s->inited;
    if (awaited(c, m, r, err) < 0)
        return -BR_E_PEER_PROTOCOL;
    uint8_t ok = br_rd_u8(&m->rd);
    read_failure(m, r);
    if (br_msg_blob(m, BR_BLOB_MAX, &r->data, err) < 0)
        return bad(c, m, err);
    if (m->rd.off < m->rd.len && /* of a guest */
        br_msg_blob(m, BR_GUEST_OUTPUT_MAX, &r->data2, err) < 0)
        return bad(c, m, err);
    if (br_rd_done(&m->rd) < 0)
        return bad(c, m, err);
    if (ok)
        r->code = 0;
    init_moved(s);
    return answer(s, r);
}

static int on_init_progress(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    s->progress_out = br_rd_u64(&m->rd);
    s->progress_err = br_rd_u64(&m->rd);
    s->progress_ms = br_rd_u64(&m->rd);
    s->progress_new = true;
    init_moved(s);
    return br_rd_done(&m->rd) < 0 ? bad(c, m, err) : 0;
}

static int on_init_changes(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    if (awaited(c, m, &s->inited, err) < 0)
        return -BR_E_PEER_PROTOCOL;
    if (br_msg_blob(m, BR_BLOB_MAX, &s->inited.data, err) < 0 || br_rd_done(&m->rd) < 0)
        return bad(c, m, err);
    return answer(s, &s->inited);
}

static const struct br_msg_rule init_rules[] = {
    {BR_MSG_INIT_READY, BR_PERMIT | BR_ONCE, 5, BR_MSG_MAX, 0, 3, on_init_ready},
    {BR_MSG_INIT_RESULT, BR_PERMIT, 10, BR_MSG_MAX, 0, 2, on_init_result},
    {BR_MSG_INIT_PROGRESS, BR_PERMIT, 24, 24, 0, 0, on_init_progress},
    {BR_MSG_INIT_CHANGES, BR_PERMIT, 5, BR_MSG_MAX, 0, 1, on_init_changes},
};

/* ---- supervisor ---- */

/* Which profile, and the images that bridle.lua gives to profiles. */
static void read_start_profile(struct session *s, struct br_msg *m)
{
    br_profile_choice_get(&m->rd, &s->choice);
    s->nimages = br_rd_u32(&m->rd);
    if (s->nimages > BR_ARRAY_LEN(s->images))
        m->rd.failed = true;
    for (uint32_t i = 0; i < s->nimages && !m->rd.failed; i++) {
        br_rd_str(&m->rd, s->images[i].profile, sizeof(s->images[i].profile));
        br_rd_str(&m->rd, s->images[i].image, sizeof(s->images[i].image));
    }
    if (m->rd.failed)
        s->nimages = 0;
}

static int read_start_lists(struct session *s, struct br_msg *m, struct br_err *err)
{
    s->argc = br_rd_u32(&m->rd);
    if (s->argc > BR_EXEC_ARGS_MAX)
        return -BR_E_PEER_PROTOCOL;
    s->argv = calloc(s->argc + 1, sizeof(*s->argv));
    for (uint32_t i = 0; s->argv && i < s->argc; i++)
        s->argv[i] = br_rd_strdup(&m->rd, BR_PATH_MAX);
    s->ndefaults = br_rd_u32(&m->rd);
    if (s->ndefaults > BR_ALLOWED_PATHS_MAX)
        return -BR_E_PEER_PROTOCOL;
    s->defaults = calloc(s->ndefaults + 1, sizeof(*s->defaults));
    for (uint32_t i = 0; s->defaults && i < s->ndefaults; i++)
        s->defaults[i] = br_rd_strdup(&m->rd, BR_PATH_MAX);
    if (!s->argv || !s->defaults)
        return -BR_E_NOMEM;
    uint8_t harness = br_rd_u8(&m->rd);
    s->harness.is = harness == 1;
    if (s->harness.is)
        br_harness_get(&m->rd, &s->harness.it);
    if (s->harness.is && br_msg_blob(m, BR_SCHEMA_MAX, &s->harness.schema, err) < 0)
        return -BR_E_PEER_PROTOCOL;
    return harness > 1 || (s->harness.is && s->mode != BR_RUN_AGENT) ? -BR_E_PEER_PROTOCOL
                                                                     : br_rd_done(&m->rd);
}

static int session_peer_end(struct br_chan *c, int code, void *ctx, struct br_err *err);

static void open_chan(struct session *s, struct br_chan *c, struct br_msg *m, const char *peer,
                      const struct br_msg_rule *rules, unsigned n)
{
    int fd = br_msg_take_fd(m);
    if (fd < 0)
        return;
    br_chan_init(c, fd, peer, rules, n, s);
    br_require(br_loop_watch_chan(s->loop, c, session_peer_end, s) == 0);
}

static int on_start(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    br_rd_str(&m->rd, s->run_id, sizeof(s->run_id));
    s->mode = (enum br_run_mode)br_rd_u8(&m->rd);
    s->manifest_in_workspace = br_rd_u8(&m->rd);
    br_rd_str(&m->rd, s->workspace, sizeof(s->workspace));
    br_rd_str(&m->rd, s->manifest_path, sizeof(s->manifest_path));
    if (br_msg_blob(m, BR_MANIFEST_MAX, &s->manifest, err) < 0)
        return bad(c, m, err);
    br_rd_str(&m->rd, s->policy_path, sizeof(s->policy_path));
    if (br_msg_blob(m, BR_POLICY_MAX, &s->policy, err) < 0)
        return bad(c, m, err);
    br_policy_pin_get(&m->rd, &s->pin);
    br_rd_str(&m->rd, s->model, sizeof(s->model));
    s->scripted = br_rd_u8(&m->rd);
    s->has_terminal = br_rd_u8(&m->rd);
    s->streaming = br_rd_u8(&m->rd);
    s->wall_seconds = br_rd_u32(&m->rd);
    br_ceilings_get(&m->rd, &s->ceilings);
    read_start_profile(s, m);
    if (br_msg_blob(m, BR_GOAL_MAX, &s->goal, err) < 0 || read_start_lists(s, m, err) < 0)
        return bad(c, m, err);
    open_chan(s, &s->client, m, "client", client_rules, BR_ARRAY_LEN(client_rules));
    /* a client that does not read is not waited for */
    if (s->client.fd >= 0)
        (void)fcntl(s->client.fd, F_SETFL, O_NONBLOCK);
    s->unrecorded = s->mode != BR_RUN_AGENT && s->mode != BR_RUN_EXEC && s->mode != BR_RUN_PROMOTE;
    if (!s->unrecorded)
        open_chan(s, &s->audit, m, "audit", audit_rules, BR_ARRAY_LEN(audit_rules));
    open_chan(s, &s->script, m, "script", script_rules, BR_ARRAY_LEN(script_rules));
    if (s->mode == BR_RUN_AGENT) {
        if (!s->harness.is)
            open_chan(s, &s->adapter, m, "adapter", adapter_rules, BR_ARRAY_LEN(adapter_rules));
        open_chan(s, &s->broker, m, "broker", broker_rules, BR_ARRAY_LEN(broker_rules));
    }
    s->started = true;
    s->kick = true;
    return 0;
}

void session_permit_answers(struct session *s)
{
    if (s->client.fd >= 0)
        br_chan_permit(&s->client, BR_MSG_ANSWER);
}

void session_adopt_init(struct session *s, int fd)
{
    br_chan_init(&s->init, fd, "init", init_rules, BR_ARRAY_LEN(init_rules), s);
    br_require(br_loop_watch_chan(s->loop, &s->init, session_peer_end, s) == 0);
}

static int on_launched(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    br_rd_str(&m->rd, s->sandbox_name, sizeof(s->sandbox_name));
    br_rd_str(&m->rd, s->sandbox_image, sizeof(s->sandbox_image));
    br_rd_str(&m->rd, s->sandbox_network, sizeof(s->sandbox_network));
    s->sandbox_mounts = br_rd_u32(&m->rd);
    if (br_msg_blob(m, BR_EVENT_MAX, &s->launched.data, err) < 0 || br_rd_done(&m->rd) < 0)
        return bad(c, m, err);
    session_adopt_init(s, br_msg_take_fd(m));
    s->sandbox_up = true;
    s->launched_us = br_now_us();
    br_chan_permit(c, BR_MSG_SUP_STOPPED);
    s->launched.done = s->kick = true;
    return 0;
}

static int on_resolved(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    if (br_msg_blob(m, BR_EVENT_MAX, &s->launched.data, err) < 0)
        return -BR_E_PEER_PROTOCOL;
    br_rd_str(&m->rd, s->launched.err.text, sizeof(s->launched.err.text));
    br_chan_forbid(c, BR_MSG_SUP_RESOLVED);
    s->launched.done = s->kick = true;
    return br_rd_done(&m->rd) < 0 ? bad(c, m, err) : 0;
}

static int on_refused(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    read_failure(m, &s->launched);
    s->host_lacks = br_rd_u8(&m->rd);
    s->launched.done = s->kick = true;
    return br_rd_done(&m->rd) < 0 ? bad(c, m, err) : 0;
}

static int on_stopped(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    s->stop_verified = br_rd_u8(&m->rd);
    s->stop_status = br_rd_u32(&m->rd);
    s->stop_ms = br_rd_u64(&m->rd);
    br_rd_str(&m->rd, s->stop_detail, sizeof(s->stop_detail));
    s->stopped.done = s->kick = true;
    if (!s->stopping_sandbox)
        session_stop(s, BR_E_PROGRAM_DIED, "the sandbox ended by itself: %s", s->stop_detail);
    return br_rd_done(&m->rd) < 0 ? bad(c, m, err) : 0;
}

/* What came of a promotion. */
static int on_promoted(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    uint32_t code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, s->promoted.err.text, sizeof(s->promoted.err.text));
    s->promoted.err.code = (enum br_code)code;
    s->promoted.code = -(int)code;
    s->promoted.done = s->kick = true;
    return br_rd_done(&m->rd) < 0 || code >= BR_CODE_COUNT_ ? bad(c, m, err) : 0;
}

static int on_sup_cancel(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    char why[BR_ERR_TEXT_MAX];
    uint32_t code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, why, sizeof(why));
    if (br_rd_done(&m->rd) < 0 || code == 0 || code >= BR_CODE_COUNT_)
        return bad(c, m, err);
    session_stop(ctx, (int)code, "%s", why);
    return 0;
}

static const struct br_msg_rule sup_rules[] = {
    {BR_MSG_SESSION_START, BR_PERMIT | BR_ONCE, 40, BR_MSG_MAX, EXTRA_FDS_MIN, EXTRA_FDS_MAX,
     on_start},
    {BR_MSG_SUP_LAUNCHED, 0, 16, BR_MSG_MAX, 1, 2, on_launched},
    {BR_MSG_SUP_REFUSED, 0, 9, 4096, 0, 0, on_refused},
    {BR_MSG_SUP_RESOLVED, 0, 9, BR_MSG_MAX, 0, 1, on_resolved},
    {BR_MSG_SUP_STOPPED, BR_ONCE, 17, 4096, 0, 0, on_stopped},
    {BR_MSG_SUP_PROMOTED, BR_ONCE, 8, 8192, 0, 0, on_promoted},
    {BR_MSG_SESSION_CANCEL, BR_PERMIT, 8, 4096, 0, 0, on_sup_cancel},
};

/* ---- the end of a peer ---- */

static int on_client_gone(void *ctx, struct br_err *err)
{
    (void)err;
    session_stop(ctx, BR_E_CANCELED, "the client has gone");
    return 0;
}

static int session_peer_end(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct session *s = ctx;
    const char *text = err && err->code ? err->text : "it closed its channel";
    br_close(&c->fd);
    if (c == &s->sup)
        return br_err_set(err, BR_E_PEER_GONE, "the supervisor has gone");
    if (c == &s->client && code == -BR_E_PEER_GONE) {
        if (br_loop_timer(s->loop, CLIENT_GONE_US, on_client_gone, s) <= 0)
            session_stop(s, BR_E_CANCELED, "the client has gone");
        return 0;
    }
    if (c == &s->init && s->stopping_sandbox)
        return 0;
    if (c == &s->audit)
        s->audit_lost = true;
    session_stop(s, code == -BR_E_PEER_PROTOCOL ? code : -BR_E_PROGRAM_DIED,
                 "the run lost '%s': %s", c->peer, text);
    return 0;
}

int session_serve(struct session *s, struct br_err *err)
{
    br_chan_init(&s->sup, 3, "bridled", sup_rules, BR_ARRAY_LEN(sup_rules), s);
    s->harness.sockets[0] = s->harness.sockets[1] = -1;
    s->client.fd = s->audit.fd = s->script.fd = s->adapter.fd = s->broker.fd = s->init.fd = -1;
    if (br_loop_watch_chan(s->loop, &s->sup, session_peer_end, s) < 0)
        return br_err_set(err, BR_E_INTERNAL, "the supervision channel could not be watched");
    return br_loop_run(s->loop, &s->started, err);
}
