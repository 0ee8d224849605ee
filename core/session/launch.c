/*
 * The sandbox of a run, as the session sees it: asked for through the supervisor, ready when pid 1
 * has said what it is in, over only when the supervisor has verified that nothing is left.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "session/isolation.h"
#include "session/session_priv.h"

#define LAUNCH_TIMEOUT_US (30u * 1000000u)
#define READY_TIMEOUT_US (10u * 1000000u)
#define SNAPSHOT_TIMEOUT_US (30u * 1000000u)

/* The rule of profile or operator that denies writing `path`; NULL if none does. */
static const char *denied_by(struct session *s, const char *path)
{
    struct br_decision d;
    br_table_decide(
        s->table,
        &(struct br_request){.action = "fs.write", .subject = path, .subject_len = strlen(path)},
        &d);
    for (unsigned i = 0; i < d.nvotes; i++)
        if (d.votes[i].effect == BR_EFFECT_DENY && strcmp(d.votes[i].source, "manifest") != 0)
            return d.votes[i].rule_id;
    return d.nvotes == 0 && d.effect == BR_EFFECT_DENY ? d.rule_id : NULL;
}

/* The same for an allowed path: of a directory both it and a file of any name in it count. */
static const char *allowed_denied_by(struct session *s, const char *allowed)
{
    char path[BR_PATH_MAX];
    size_t n = strlen(allowed);
    bool tree = n > 3 && strcmp(allowed + n - 3, "/**") == 0;
    snprintf(path, sizeof(path), "%.*s", (int)(tree ? n - 3 : n), allowed);
    const char *rule = denied_by(s, path);
    if (rule || !tree)
        return rule;
    snprintf(path, sizeof(path), "%.*s/\1", (int)(n - 3), allowed);
    return denied_by(s, path);
}

/* The allowed paths of the task, without those that profile or operator do not let be written:
 * a mount is not to give a command what the table denies to a tool. */
static int take_allowed(struct session *s, struct br_plan *plan, struct br_err *err)
{
    json_t *paths = json_object_get(s->task, "allowed_paths"), *v;
    size_t i;
    if (plan->workspace != BR_WORKSPACE_BIND) /* there is nothing of the host's to write to */
        return 0;
    if (json_array_size(paths) > BR_ALLOWED_PATHS_MAX)
        return br_err_set(err, BR_E_INVALID_MANIFEST, "'allowed_paths' has more than %u entries",
                          BR_ALLOWED_PATHS_MAX);
    json_array_foreach(paths, i, v)
    {
        const char *path = json_string_value(v), *rule = path ? allowed_denied_by(s, path) : NULL;
        if (!rule) {
            char *copy = path ? strdup(path) : NULL;
            if (!copy)
                return br_err_set(err, BR_E_INVALID_MANIFEST,
                                  "the compiled 'allowed_paths' are not usable");
            plan->allowed_paths[plan->nallowed++] = copy;
            continue;
        }
        if (s->notices_given)
            continue;
        char text[BR_ERR_TEXT_MAX];
        snprintf(text, sizeof(text),
                 "the allowed path '%.512s' stays read-only: the rule '%.256s' denies writing it",
                 path, rule);
        text[br_utf8_floor(text, strlen(text))] = 0;
        if (s->mode == BR_RUN_PLAN) { /* no record: it is said in the report */
            br_buf_put(&s->warnings, text, strlen(text) + 1);
            continue;
        }
        int r = session_record(s, "bridle.notice", "kernel",
                               json_pack("{s:s, s:s}", "code", "POLICY_WARNING", "message", text));
        if (r < 0)
            return br_err_set(err, (enum br_code) - r, "%s", s->stop_err.text);
    }
    s->notices_given = true;
    return 0;
}

/* The plan of this run, made of what a profile says and nothing else but the allowed paths. */
static int send_plan(struct session *s, const struct br_plan *from, enum br_msg_type type,
                     struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    struct br_plan plan = *from;
    int r = take_allowed(s, &plan, err);
    /* what is activated is the profile's time; a run may have less of it */
    if (plan.limits.wall_seconds > s->wall_seconds && s->mode != BR_RUN_ACTIVATE)
        plan.limits.wall_seconds = s->wall_seconds;
    if (r == 0)
        r = br_plan_check(&plan, err);
    br_plan_put(&o.buf, &plan);
    br_plan_free(&plan);
    if (r < 0)
        return r;
    session_expect(s, &s->launched);
    s->host_lacks = false;
    br_chan_permit(&s->sup, type == BR_MSG_SUP_LAUNCH ? BR_MSG_SUP_LAUNCHED : BR_MSG_SUP_RESOLVED);
    br_chan_permit(&s->sup, BR_MSG_SUP_REFUSED);
    r = br_chan_send(&s->sup, type, 0, &o, err);
    if (r == 0 && (r = session_wait(s, &s->launched.done, LAUNCH_TIMEOUT_US, false)) < 0)
        r = br_err_set(err, (enum br_code) - r, "%s",
                       s->stop_code ? s->stop_err.text : "the sandbox did not start in time");
    if (r == 0 && s->launched.code < 0) {
        *err = s->launched.err;
        r = s->launched.code;
    }
    return r;
}

int session_resolve(struct session *s, const struct br_plan *from, struct br_err *err)
{
    return send_plan(s, from, BR_MSG_SUP_RESOLVE, err);
}

void session_offer(struct session *s, json_t *names, struct br_err *err)
{
    for (uint32_t i = 0; i < s->profile.noffers; i++) {
        struct br_plan *offer = &s->profile.offers[i];
        struct br_err ignored = {.code = BR_OK};
        if (!offer->image[0])
            memcpy(offer->image, s->profile.plan.image, sizeof(offer->image));
        if (session_resolve(s, offer, &ignored) < 0)
            continue;
        size_t at = strlen(err->text);
        snprintf(err->text + at, sizeof(err->text) - at,
                 ". The profile '%s' would work: bridle %s --profile %s", offer->profile,
                 s->mode == BR_RUN_AGENT ? "run" : "exec", offer->profile);
        if (names)
            json_array_append_new(names, json_string(offer->profile));
    }
}

static int snapshot(struct session *s, struct br_err *err)
{
    uint64_t id = session_expect(s, &s->inited);
    int r = br_chan_send(&s->init, BR_MSG_INIT_SNAPSHOT, id, NULL, err);
    if (r == 0 && (r = session_wait(s, &s->inited.done, SNAPSHOT_TIMEOUT_US, true)) < 0)
        r = br_err_set(err, (enum br_code) - r, "the workspace could not be listed in time");
    return r;
}

/* Compares what the launcher and pid 1 have measured with the plan; *out is the receipt of both. */
static int receipt_json(struct session *s, json_t **out, struct br_err *err)
{
    const struct br_buf *b = &s->launched.data;
    json_t *receipt =
        json_loadb(b->data ? (const char *)b->data : "", b->len, JSON_REJECT_DUPLICATES, NULL);
    json_t *seen = json_loadb(s->init_ready.data ? (const char *)s->init_ready.data : "",
                              s->init_ready.len, JSON_REJECT_DUPLICATES, NULL);
    int r = br_isolation_check(receipt, seen, &s->profile.plan, err);
    *out = r == 0 ? br_isolation_receipt(receipt, seen) : NULL;
    if (r < 0)
        json_decref(receipt);
    else if (!*out)
        r = br_err_set(err, BR_E_NOMEM, "no memory for the isolation receipt");
    json_decref(seen);
    return r;
}

static int record_launch(struct session *s, struct br_err *err)
{
    json_t *receipt;
    int r = receipt_json(s, &receipt, err);
    if (r < 0)
        return r;
    r = session_record_ahead(s, "sandbox.started", "sandbox-runner",
                             json_pack("{s:s, s:s, s:s, s:s, s:i}", "runId", s->run_id,
                                       "containerName", s->sandbox_name, "image", s->sandbox_image,
                                       "network", s->sandbox_network, "mounts",
                                       (int)s->sandbox_mounts));
    if (r < 0) {
        json_decref(receipt);
        return br_err_set(err, (enum br_code) - r, "%s", s->stop_err.text);
    }
    s->sandbox_recorded = true;
    r = session_record(s, "bridle.launch", "sandbox-runner",
                       json_pack("{s:s, s:s, s:s, s:i, s:o}", "sandbox", s->sandbox_name, "image",
                                 s->sandbox_image, "network", s->sandbox_network, "mounts",
                                 (int)s->sandbox_mounts, "receipt", receipt));
    return r < 0 ? br_err_set(err, (enum br_code) - r, "%s", s->stop_err.text) : 0;
}

int session_launch_bare(struct session *s, struct br_err *err)
{
    if (s->stop_code) /* while the record was written, which waits all the same */
        return br_err_set(err, (enum br_code) - s->stop_code, "%s", s->stop_err.text);
    int r = send_plan(s, &s->profile.plan, BR_MSG_SUP_LAUNCH, err);
    if (r < 0)
        return r;
    r = session_wait(s, &s->init_is_ready, READY_TIMEOUT_US, false);
    if (r < 0)
        return br_err_set(err, (enum br_code) - r, "%s",
                          s->stop_code ? s->stop_err.text : "pid 1 of the sandbox said nothing");
    json_t *receipt = NULL;
    if (s->unrecorded) /* otherwise when it is recorded */
        r = receipt_json(s, &receipt, err);
    json_decref(receipt);
    return r;
}

int session_launch(struct session *s, struct br_err *err)
{
    int r = session_launch_bare(s, err);
    if (r < 0 && s->host_lacks)
        session_offer(s, NULL, err);
    if (r == 0)
        r = record_launch(s, err);
    return r < 0 ? r : snapshot(s, err);
}

int session_changes(struct session *s)
{
    struct br_err err = {.code = BR_OK};
    if (!s->sandbox_up || s->init.fd < 0)
        return 0;
    int r = snapshot(s, &err);
    const struct br_buf *b = &s->inited.data;
    json_t *changes =
        r == 0 ? json_loadb(b->data ? (const char *)b->data : "", b->len, 0, NULL) : NULL;
    if (!changes)
        return session_record(s, "bridle.notice", "kernel",
                              json_pack("{s:s, s:s}", "code", br_code_name(BR_E_FAILED), "message",
                                        "what changed in the workspace could not be listed"));
    return session_record(s, "bridle.workspace", "sandbox-runner", changes);
}

int session_unlaunch(struct session *s, int outcome)
{
    if (!s->sandbox_up)
        return 0;
    s->stopping_sandbox = true;
    int r = s->stopped.done ? 0 : br_chan_send(&s->sup, BR_MSG_SUP_STOP, 0, NULL, NULL);
    if (r == 0)
        r = session_wait(s, &s->stopped.done, LAUNCH_TIMEOUT_US, true);
    s->sandbox_up = false;
    if (r < 0 || !s->stop_verified) {
        /* no sandbox.stopped: it is only said of what was verified */
        session_stop(s, BR_E_FAILED, "the removal of the sandbox could not be verified: %s",
                     r < 0 ? "no answer" : s->stop_detail);
        return r < 0 ? r : -BR_E_FAILED;
    }
    if (!s->sandbox_recorded)
        return 0;
    const char *status = outcome == -BR_E_CANCELED ? "canceled"
                         : outcome < 0             ? "failed"
                                                   : "completed";
    json_t *data = json_pack("{s:s, s:s, s:s}", "runId", s->run_id, "containerName",
                             s->sandbox_name, "status", status);
    if (WIFEXITED((int)s->stop_status))
        json_object_set_new(data, "exitCode", json_integer(WEXITSTATUS((int)s->stop_status)));
    json_object_set_new(data, "durationMs", json_integer((json_int_t)s->stop_ms));
    return session_record(s, "sandbox.stopped", "sandbox-runner", data);
}
