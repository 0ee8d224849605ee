/*
 * From an operator's policy and a task manifest to one pinned decision table. Lua compiles, in
 * another process; what comes back is validated here and only then counts.
 */
#include <stdlib.h>
#include <string.h>

#include "session/session_priv.h"

#define COMPILE_TIMEOUT_US (10u * 1000000u)
#define DEFAULT_STEPS 50u
#define DEFAULT_CALLS 200u
#define DEFAULT_TOKENS 1000000u

static int send_compile(struct session *s, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    const char *label, *text;
    int r = profile_choose(&s->choice, &label, &text, s->profile.plan.profile_sha256, err);
    if (r < 0)
        return r;
    br_buf_put_str(&o.buf, label);
    br_buf_put_str(&o.buf, text);
    br_buf_put_str(&o.buf, s->policy_path);
    br_out_blob(&o, s->policy.data, s->policy.len);
    br_buf_put_str(&o.buf, s->manifest_path);
    br_out_blob(&o, s->manifest.data, s->manifest.len);
    br_buf_put_u8(&o.buf, s->manifest_in_workspace);
    br_out_blob(&o, s->goal.data, s->goal.len);
    br_allowed_put(&o.buf, s->defaults, s->ndefaults);
    uint64_t id = session_expect(s, &s->scripted_reply);
    return br_chan_send(&s->script, BR_MSG_COMPILE, id, &o, err);
}

/* The goal is an argument of the operator's, not a part of a manifest: it is judged as one. */
static int check_goal(const struct session *s, struct br_err *err)
{
    const uint8_t *p = s->goal.data;
    size_t n = s->goal.len;
    if (!br_utf8_valid(p, n))
        return br_err_set(err, BR_E_USAGE, "the goal is not valid UTF-8; nothing was started");
    for (size_t i = 0; i < n; i++) {
        bool c1 = p[i] == 0xc2 && i + 1 < n && p[i + 1] < 0xa0;
        if ((p[i] < 0x20 && p[i] != '\n' && p[i] != '\t') || p[i] == 0x7f || c1)
            return br_err_set(
                err, BR_E_USAGE,
                "the goal has the control character '\\x%02x' at byte %zu; nothing was "
                "started; leave it out (line ends and tabs may stay)",
                c1 ? p[i + 1] : p[i], i + 1);
    }
    return 0;
}

/*
 * A manifest inside the workspace is written by whoever writes there. Without a manifest, hidden
 * top-level entries are read-only; such a manifest may not undo that. Checked here, since the
 * compiler is no boundary.
 */
static int check_hidden(const struct session *s, struct br_err *err)
{
    json_t *v;
    size_t i;
    if (!s->manifest_in_workspace || !s->manifest.len)
        return 0;
    json_array_foreach(json_object_get(s->task, "allowed_paths"), i, v)
    {
        const char *path = json_string_value(v);
        if (path && path[0] == '.')
            return br_err_set(err, BR_E_INVALID_ALLOWED_PATH,
                              "'%s': the allowed path '%s' is refused: a manifest inside the "
                              "workspace cannot make a hidden entry writable; nothing was started; "
                              "keep the manifest outside of the workspace to allow it",
                              s->manifest_path, path);
    }
    return 0;
}

/* The pair that the manifest declares is the one that runs; bridled read it by itself. */
static int check_declared(struct session *s, struct br_err *err)
{
    const json_t *declared = json_object_get(s->task, "harness");
    const char *adapter = json_string_value(json_object_get(declared, "adapter"));
    const char *profile = json_string_value(json_object_get(declared, "profile"));
    if (!declared || s->mode != BR_RUN_AGENT)
        return 0;
    if (!adapter || !profile || !s->harness.is || strcmp(adapter, s->harness.it.terms.ref) != 0 ||
        strcmp(profile, s->profile.plan.profile) != 0)
        return br_err_set(
            err, BR_E_INVALID_MANIFEST,
            "'%.512s' declares another harness than this run has; nothing was started",
            s->manifest_path);
    return 0;
}

static uint64_t budget_of(json_t *task, const char *key, uint64_t otherwise, uint64_t max)
{
    json_t *v = json_object_get(json_object_get(task, "budget"), key);
    json_int_t n = json_is_integer(v) ? json_integer_value(v) : 0;
    uint64_t value = n > 0 ? (uint64_t)n : otherwise;
    return value > max ? max : value;
}

void session_clamp(struct session *s)
{
    const struct br_ceilings *c = &s->ceilings;
    if (c->tokens && c->tokens < s->budget.tokens_max)
        s->budget.tokens_max = c->tokens;
    if (c->tool_calls && c->tool_calls < s->budget.calls_max)
        s->budget.calls_max = (uint32_t)c->tool_calls;
}

static int read_task(struct session *s, struct br_err *err)
{
    const struct br_buf *b = &s->scripted_reply.data2;
    const char *p = (const char *)b->data;
    int r = br_json_scan(p ? p : "", b->len, BR_JSON_DEPTH_MAX, 10 * BR_JSON_NODES_MAX, err);
    if (r < 0)
        return br_err_wrap(err, "the compiled manifest");
    s->task = json_loadb(p ? p : "", b->len, JSON_REJECT_DUPLICATES, NULL);
    const char *id = json_string_value(json_object_get(s->task, "id"));
    if (!id || !br_is_kebab(id, sizeof(s->task_id) - 1) ||
        !json_is_array(json_object_get(s->task, "allowed_paths")))
        return br_err_set(err, BR_E_INVALID_MANIFEST, "the compiled manifest is not usable");
    snprintf(s->task_id, sizeof(s->task_id), "%s", id);
    s->task_given = !json_is_true(json_object_get(s->task, "generated"));
    r = check_declared(s, err);
    if (r < 0)
        return r;
    s->budget.tokens_max =
        budget_of(s->task, "max_model_tokens", DEFAULT_TOKENS, BR_MODEL_TOKENS_MAX);
    s->budget.calls_max =
        (uint32_t)budget_of(s->task, "max_tool_calls", DEFAULT_CALLS, BR_TOOL_CALLS_MAX);
    s->budget.steps_max = DEFAULT_STEPS;
    session_clamp(s);
    return 0;
}

/* The ceiling of this run: what the profile, an operator's text, became. */
static int read_profile(struct session *s, struct br_err *err)
{
    const char *label, *text;
    uint8_t sha[32];
    int r = profile_read(s->launch_json.data, s->launch_json.len, &s->profile, err);
    br_buf_free(&s->launch_json);
    if (r == 0)
        r = profile_choose(&s->choice, &label, &text, sha, err);
    if (r < 0)
        return r;
    struct br_plan *p = &s->profile.plan;
    memcpy(p->profile_sha256, sha, sizeof(sha));
    struct br_profile_choice same = {.name = ""};
    snprintf(same.name, sizeof(same.name), "%s", p->profile);
    if (profile_choose(&same, &label, &text, sha, NULL) == 0 &&
        memcmp(sha, p->profile_sha256, sizeof(sha)) != 0)
        return br_err_set(err, BR_E_INVALID_PROFILE,
                          "'%.512s': the name '%s' is that of a profile that is built in; nothing "
                          "was started. Give yours another one",
                          s->choice.path, p->profile);
    const char *image = s->choice.image;
    if (!image[0] && s->harness.is && s->profile.image_required)
        image = s->harness.it.terms.image;
    for (uint32_t i = 0; i < s->nimages && !image[0] && s->profile.image_required; i++)
        if (strcmp(s->images[i].profile, p->profile) == 0)
            image = s->images[i].image;
    if (s->mode != BR_RUN_VALIDATE && s->mode != BR_RUN_POLICY && s->mode != BR_RUN_SELFTEST &&
        s->mode != BR_RUN_PROMOTE)
        r = profile_image(&s->profile, image, err);
    s->own_backend = p->backend;
    if (r == 0 && s->choice.backend)
        p->backend = s->choice.backend;
    return r;
}

/* The profile's time is a ceiling; what nobody asked for is the shorter of it and the default. */
static int limit_time(struct session *s, struct br_err *err)
{
    uint32_t max = s->profile.plan.limits.wall_seconds;
    if (s->wall_given && s->wall_seconds > max)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                          "a time limit of %u seconds was asked for, and the profile '%s' allows "
                          "%u; nothing was started",
                          s->wall_seconds, s->profile.plan.profile, max);
    if (s->wall_seconds > max) {
        s->budget.deadline_us -= (uint64_t)(s->wall_seconds - max) * 1000000u;
        s->wall_seconds = max;
    }
    return 0;
}

int session_compile(struct session *s, struct br_err *err)
{
    int r = check_goal(s, err);
    if (r == 0)
        r = send_compile(s, err);
    if (r < 0)
        return r;
    r = session_wait(s, &s->scripted_reply.done, COMPILE_TIMEOUT_US, false);
    /* the profile's text runs first, and which one it was cannot be told from here */
    const char *profile = s->choice.source && s->choice.source[0] ? s->choice.path : "";
    const char *policy = s->policy_path[0] ? s->policy_path : "default";
    if (r < 0 && !*profile) /* for the record */
        snprintf(s->scripted_reply.text, sizeof(s->scripted_reply.text), "%s", policy);
    if (r == -BR_E_TIMEOUT)
        return br_err_set(err, BR_E_INVALID_POLICY,
                          "the policy '%s'%s%.512s%s did not compile within %u seconds; it was not "
                          "used",
                          policy, *profile ? " or the profile '" : "", profile, *profile ? "'" : "",
                          COMPILE_TIMEOUT_US / 1000000u);
    if (r < 0 && s->script.fd < 0)
        return br_err_set(err, BR_E_INVALID_POLICY,
                          "the policy '%s'%s%.512s%s ended its process (out of time or memory); it "
                          "was not used",
                          policy, *profile ? " or the profile '" : "", profile,
                          *profile ? "'" : "");
    if (r < 0)
        return br_err_set(err, (enum br_code) - r, "%s", s->stop_err.text);
    if (s->scripted_reply.code < 0) {
        *err = s->scripted_reply.err;
        return s->scripted_reply.code;
    }
    const struct br_buf *t = &s->scripted_reply.data;
    r = br_table_load(t->data ? (const char *)t->data : "", t->len, &s->table, err);
    if (r == 0)
        r = read_profile(s, err);
    if (r == 0)
        r = limit_time(s, err);
    if (r == 0)
        r = read_task(s, err);
    return r < 0 ? r : check_hidden(s, err);
}
