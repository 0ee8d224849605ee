/*
 * Purpose policy: compile once, then answer shell strings and predicates for the life of the
 * session. Called by the session, which is not trusted to ask in order or within bounds; a
 * malformed request ends the program, a refused text is answered and leaves it usable.
 */
#include <stdlib.h>
#include <string.h>

#include "script/question.h"
#include "script/serve.h"
#include "script/shell.h"

/* COMPILED: what of the message is kept free for the warnings, and how many there are at most. */
#define WARNINGS_ROOM (20u * 1024) /* and the place of the check */
#define WARNINGS_MAX 32u
#define WARNING_MAX 512u

struct request {
    char profile_path[BR_PATH_MAX], policy_path[BR_PATH_MAX], manifest_path[BR_PATH_MAX];
    char *profile;
    struct br_buf policy, manifest, goal;
    uint8_t in_workspace;
    char *allowed[BR_ALLOWED_PATHS_MAX];
    uint32_t nallowed;
};

static void request_free(struct request *q)
{
    free(q->profile);
    br_buf_free(&q->policy);
    br_buf_free(&q->manifest);
    br_buf_free(&q->goal);
    for (uint32_t i = 0; i < q->nallowed; i++)
        free(q->allowed[i]);
}

static int request_read(struct br_msg *m, struct request *q, struct br_err *err)
{
    br_rd_str(&m->rd, q->profile_path, sizeof(q->profile_path));
    q->profile = br_rd_strdup(&m->rd, BR_PROFILE_MAX);
    br_rd_str(&m->rd, q->policy_path, sizeof(q->policy_path));
    int r = br_msg_blob(m, BR_POLICY_MAX, &q->policy, err);
    if (r == 0) {
        br_rd_str(&m->rd, q->manifest_path, sizeof(q->manifest_path));
        r = br_msg_blob(m, BR_MANIFEST_MAX, &q->manifest, err);
    }
    if (r == 0) {
        q->in_workspace = br_rd_u8(&m->rd);
        r = br_msg_blob(m, BR_GOAL_MAX, &q->goal, err);
    }
    if (r < 0)
        return r;
    uint32_t n = br_rd_u32(&m->rd);
    if (n > BR_ALLOWED_PATHS_MAX || q->in_workspace > 1)
        m->rd.failed = true;
    for (uint32_t i = 0; i < n && !m->rd.failed; i++) {
        char *path = br_rd_strdup(&m->rd, BR_PATH_MAX);
        if (path)
            q->allowed[q->nallowed++] = path;
    }
    r = br_rd_done(&m->rd);
    return r < 0 ? br_err_set(err, BR_E_PEER_PROTOCOL, "a COMPILE message is malformed") : 0;
}

static void put_warnings(struct br_buf *b, const json_t *warnings)
{
    size_t n = json_array_size(warnings);
    uint32_t shown = n > WARNINGS_MAX ? WARNINGS_MAX : (uint32_t)n;
    br_buf_put_u32(b, shown);
    for (uint32_t i = 0; i < shown; i++) {
        if (n > shown && i + 1 == shown) {
            char text[64];
            snprintf(text, sizeof(text), "and %zu more", n - shown + 1);
            br_buf_put_str(b, text);
            return;
        }
        const json_t *w = json_array_get(warnings, i);
        size_t len = json_string_length(w);
        const char *s = json_string_value(w);
        br_buf_put_lstr(b, s, len > WARNING_MAX ? br_utf8_floor(s, WARNING_MAX) : len);
    }
}

static int answer_compiled(struct br_chan *c, uint64_t id, const struct br_compile_out *out,
                           struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    o.buf.max = BR_MSG_MAX - WARNINGS_ROOM; /* a body that does not fit here goes into a memfd */
    br_out_blob(&o, out->table.data, out->table.len);
    br_out_blob(&o, out->manifest.data, out->manifest.len);
    br_out_blob(&o, out->launch.data, out->launch.len);
    o.buf.max = BR_MSG_MAX;
    put_warnings(&o.buf, out->warnings);
    br_buf_put_str(&o.buf, out->check_file);
    br_buf_put_u32(&o.buf, out->check_line);
    return br_chan_send(c, BR_MSG_COMPILED, id, &o, err);
}

/* All errors of a policy that has several, before the refusal. */
static int tell_errors(struct br_chan *c, uint64_t id, const json_t *errors, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    if (json_array_size(errors) == 0)
        return 0;
    put_warnings(&o.buf, errors);
    return br_chan_send(c, BR_MSG_COMPILE_ERRORS, id, &o, err);
}

static int on_compile(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct serve *s = ctx;
    struct request *q = calloc(1, sizeof(*q));
    struct br_compile_out *out = calloc(1, sizeof(*out));
    int r = q && out ? request_read(m, q, err) : br_err_set(err, BR_E_NOMEM, "no memory");
    if (r == 0)
        r = br_serve_fresh(s, err);
    if (r == 0) {
        struct br_compile_in in = {.profile_path = q->profile_path,
                                   .profile = q->profile,
                                   .profile_len = strlen(q->profile),
                                   .policy_path = q->policy_path,
                                   .policy = q->policy.data,
                                   .policy_len = q->policy.len,
                                   .manifest_path = q->manifest_path,
                                   .manifest = q->manifest.data,
                                   .manifest_len = q->manifest.len,
                                   .manifest_in_workspace = q->in_workspace,
                                   .goal = q->goal.data,
                                   .goal_len = q->goal.len,
                                   .allowed = (const char *const *)q->allowed,
                                   .nallowed = q->nallowed};
        struct br_err why = {.code = BR_OK};
        br_compile_out_init(out);
        if (br_compile(s->script, &in, out, &why) < 0) {
            r = tell_errors(c, m->id, out->errors, err);
            if (r == 0)
                r = br_serve_fail(c, m->id, &why, out->file, out->line, err);
        } else {
            br_chan_forbid(c, BR_MSG_COMPILE); /* one table for the life of the session */
            br_chan_permit(c, BR_MSG_PREDICATE);
            br_chan_permit(c, BR_MSG_VALUE);
            r = answer_compiled(c, m->id, out, err);
        }
        br_compile_out_free(out);
    }
    if (q)
        request_free(q);
    free(q);
    free(out);
    return r;
}

static int on_predicate(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct serve *s = ctx;
    BR_CLEANUP_BUF struct br_buf request = BR_BUF_INIT(0), reason = BR_BUF_INIT(4096);
    int r = br_msg_blob(m, BR_TOOL_JSON_MAX + BR_SUBJECT_MAX, &request, err);
    if (r == 0)
        r = br_rd_done(&m->rd);
    if (r < 0)
        return r;
    enum br_effect effect = BR_EFFECT_DENY;
    struct br_err why = {.code = BR_OK};
    char rule[BR_NAME_MAX];
    if (br_compile_vote(s->script, request.data, request.len, &effect, rule, &reason, &why) < 0)
        return br_serve_fail(c, m->id, &why, s->script->chunk, s->script->error_line, err);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u8(&o.buf, (uint8_t)effect);
    br_buf_put_str(&o.buf, effect == BR_EFFECT_NONE ? "" : rule);
    br_buf_put_lstr(&o.buf, reason.data, reason.len);
    r = br_chan_send(c, BR_MSG_PREDICATE_VOTE, m->id, &o, err);
    (void)br_chan_soon(c, BR_QUESTION_SOON_US);
    return r;
}

static int on_shell(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)ctx;
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(0);
    int r = br_msg_blob(m, BR_TOOL_JSON_MAX, &text, err);
    if (r == 0)
        r = br_rd_done(&m->rd);
    if (r < 0)
        return r;
    static struct br_shell sh; /* 20 KiB; the program has one thread */
    br_shell_parse(&sh, text.data, text.len);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_shell_reply(&sh, &o.buf);
    br_shell_free(&sh);
    r = br_chan_send(c, BR_MSG_SHELL_PARSED, m->id, &o, err);
    (void)br_chan_soon(c, BR_QUESTION_SOON_US);
    return r;
}

const struct br_msg_rule br_serve_policy_rules[] = {
    {BR_MSG_COMPILE, BR_PERMIT, 26, BR_MSG_MAX, 0, 3, on_compile},
    {BR_MSG_PREDICATE, 0, 3, BR_MSG_MAX, 0, 1, on_predicate},
    {BR_MSG_SHELL, BR_PERMIT, 1, BR_MSG_MAX, 0, 1, on_shell},
    {BR_MSG_VALUE, 0, 2, BR_MSG_MAX, 0, 1, br_serve_value},
};
const unsigned br_serve_policy_nrules = BR_ARRAY_LEN(br_serve_policy_rules);
