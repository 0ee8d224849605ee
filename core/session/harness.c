/*
 * A run of an adapter: bridle-session does not speak to a model itself, it drives a guest in the
 * sandbox that does. The guest gets one frame and says one; whether it may run is decided like
 * every other effect, and carries a grant. What it says is hostile and read strictly (core/frame);
 * what is recorded of it is its artifact, within the bounds of its adapter, and counts.
 */
#include <stdlib.h>
#include <string.h>

#include "frame/frame.h"
#include "session/session_priv.h"

#define CALL_ID "adapter"
#define TOOL "adapter_run"

int harness_check(struct session *s, struct br_err *err)
{
    const struct br_adapter_terms *t = &s->harness.it.terms;
    const struct br_plan *p = &s->profile.plan;
    if (!br_adapter_allows(t, p->profile))
        return br_err_set(err, BR_E_DENIED,
                          "the adapter '%s' is not allowed with the profile '%s'; nothing was "
                          "started",
                          t->ref, p->profile);
    if (!(p->flags & BR_PLAN_BROKER))
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "the profile '%s' has no socket of a provider (sockets = { \"provider\" "
                          "}), which the adapter '%s' needs; nothing was started",
                          p->profile, t->ref);
    if (s->profile.image_required && strcmp(p->image, "host") == 0)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "the profile '%s' requires an image with an immutable id, which the "
                          "programs of this host are not; nothing was started. 'bridle image list' "
                          "shows those that there are",
                          p->profile);
    if (t->gate && !(p->flags & BR_PLAN_GATE))
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "the profile '%s' has no gate (sockets = { \"gate\" }), at which the "
                          "adapter '%s' is to ask; nothing was started",
                          p->profile, t->ref);
    if (s->harness.it.adapter.session && !p->disks[BR_DISK_STATE].kind)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "the profile '%s' has no state disk, which the sessions of the adapter "
                          "'%s' are kept on; nothing was started",
                          p->profile, t->ref);
    return 0;
}

/* ---- what the guest is told ---- */

/* The run ends then; the operator's --timeout and the profile are both in it. */
static uint64_t deadline_left_us(const struct session *s)
{
    uint64_t now = br_now_us(), until = s->budget.deadline_us;
    return until > now ? until - now : 1;
}

static int packet(struct session *s, struct br_buf *out, struct br_err *err)
{
    const struct br_harness *h = &s->harness.it;
    const struct br_adapter *a = &h->adapter;
    char deadline[32];
    BR_CLEANUP_BUF struct br_buf prompt = BR_BUF_INIT(BR_GOAL_MAX + 1);
    if (!session_prompt(s, &prompt) || !prompt.len)
        return br_err_set(err, BR_E_INVALID_MANIFEST,
                          "goal and task are longer than %u bytes; nothing was started",
                          BR_GOAL_MAX);
    br_time_iso(deadline, br_now_wall_us() + deadline_left_us(s));
    BR_CLEANUP_BUF struct br_buf system = BR_BUF_INIT(BR_FRAME_SYSTEM_MAX);
    br_buf_printf(&system, "%s", a->system);
    if (s->harness.schema.len) {
        br_buf_printf(&system, "\nIt has to fit this JSON Schema:\n");
        br_buf_put(&system, s->harness.schema.data, s->harness.schema.len);
    }
    struct br_frame_packet p = {
        .run_id = s->run_id,
        .adapter = a->id,
        .revision = a->revision,
        .profile = s->profile.plan.profile,
        .prompt = (const char *)prompt.data,
        .prompt_len = prompt.len,
        .system = system.len ? br_buf_cstr(&system) : NULL,
        .model = {.id = strchr(s->model, '/') + 1,
                  .routes = a->routes,
                  .answer_tokens = h->terms.answer_tokens,
                  .streaming = s->streaming},
        .socket = BR_PROVIDER_SOCKET,
        .token = h->token,
        .gate = h->terms.gate ? BR_GATE_SOCKET : NULL,
        .ntools = a->ntools,
        .resume = h->resume,
        .session = h->session_id[0] ? h->session_id : NULL,
        .context_files = h->terms.context_files,
        .output_bytes = a->output_bytes,
        .trace_bytes = a->trace_bytes,
        .deadline = deadline,
    };
    for (uint32_t i = 0; i < a->ntools; i++)
        p.tools[i] = a->tools[i];
    return br_frame_packet_put(out, &p, err);
}

static int guest_effect(struct session *s, struct effect *e, struct br_err *err)
{
    const struct br_harness *h = &s->harness.it;
    uint64_t ms = deadline_left_us(s) / 1000 + 1;
    *e = (struct effect){.action = "adapter.run", .tool = TOOL};
    e->op.op = BR_OP_GUEST;
    e->op.timeout_ms = ms < BR_RUN_SECONDS_MAX * 1000u ? (uint32_t)ms : BR_RUN_SECONDS_MAX * 1000u;
    e->op.output_max =
        BR_FRAME_HEAD + h->adapter.output_bytes + 8; /* enough to see what is wrong */
    e->op.limit = h->adapter.trace_bytes;
    e->subject = strdup(h->terms.ref);
    br_buf_init(&e->op.text, BR_ADAPTER_REF_MAX);
    br_buf_init(&e->op.text2, BR_FRAME_PACKET_MAX + BR_FRAME_HEAD);
    br_buf_put(&e->op.text, h->terms.ref, strlen(h->terms.ref));
    for (uint32_t i = 0; i < h->adapter.nentry; i++) {
        e->op.argv[i] = strdup(h->adapter.entry[i]);
        if (!e->op.argv[i])
            return br_err_set(err, BR_E_NOMEM, "no memory for the guest");
        e->op.argc++;
    }
    return e->subject ? packet(s, &e->op.text2, err)
                      : br_err_set(err, BR_E_NOMEM, "no memory for the guest");
}

/* ---- its record ---- */

static json_t *session_json(const struct br_harness *h)
{
    return json_pack("{s:s, s:s*}", "intent", h->resume ? "resume" : "new", "id",
                     h->session_id[0] ? h->session_id : NULL);
}

int harness_started(struct session *s)
{
    const struct br_harness *h = &s->harness.it;
    const struct br_adapter *a = &h->adapter;
    const struct br_adapter_terms *t = &h->terms;
    char hex[65], deadline[32];
    json_t *tools = json_array();
    for (uint32_t i = 0; i < a->ntools; i++)
        json_array_append_new(tools, json_pack("{s:s}", "name", a->tools[i]));
    br_hex(hex, a->sha256, sizeof(a->sha256));
    br_time_iso(deadline, br_now_wall_us() + deadline_left_us(s));
    json_t *lease = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "requests", (json_int_t)t->requests, "tokens",
        (json_int_t)t->tokens, "requestBytes", (json_int_t)t->request_bytes, "responseBytes",
        (json_int_t)t->response_bytes, "answerTokens", (json_int_t)t->answer_tokens, "inFlight",
        (json_int_t)t->in_flight, "seconds", (json_int_t)t->seconds);
    return session_record(
        s, "bridle.harness.started", "kernel",
        json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:s, s:o, s:o, s:b, s:b, s:o, s:I, s:I, s:s}",
                  "runId", s->run_id, "adapter", a->id, "revision", (json_int_t)a->revision,
                  "adapterSha256", hex, "profile", s->profile.plan.profile, "image",
                  s->sandbox_image, "model", s->model, "session", session_json(h), "tools", tools,
                  "gate", (int)t->gate, "contextFiles", (int)t->context_files, "lease", lease,
                  "outputBytes", (json_int_t)a->output_bytes, "traceBytes",
                  (json_int_t)a->trace_bytes, "deadline", deadline));
}

int harness_serve(struct session *s)
{
    int r = guest_record(s);
    return r < 0 ? r : gate_serve(s);
}

/* ---- what it says ---- */

static void put_result(const struct br_frame_result *r, json_t *data)
{
    json_t *tools = json_object_get(data, "tools");
    for (uint32_t i = 0; i < r->ntools; i++)
        json_array_append_new(tools, json_pack("{s:s, s:s, s:I}", "name", r->tools[i].name,
                                               "status", br_frame_tool_statuses[r->tools[i].status],
                                               "count", (json_int_t)r->tools[i].count));
    if (r->kind != BR_ARTIFACT_NONE)
        json_object_set_new(data, "artifact",
                            json_pack("{s:s, s:O}", "kind", br_frame_artifacts[r->kind],
                                      r->kind == BR_ARTIFACT_TEXT ? "text" : "value", r->artifact));
    if (r->has_usage)
        json_object_set_new(data, "usage",
                            json_pack("{s:I, s:I, s:I}", "promptTokens",
                                      (json_int_t)r->prompt_tokens, "completionTokens",
                                      (json_int_t)r->completion_tokens, "totalTokens",
                                      (json_int_t)(r->prompt_tokens + r->completion_tokens)));
    if (r->provider_revision)
        json_object_set_new(data, "providerRevision", json_string(r->provider_revision));
}

/* How the process ended, before anything that it wrote is looked at. */
static int check_end(const json_t *output, struct br_err *err)
{
    const json_t *exit_code = json_object_get(output, "exitCode");
    if (json_is_true(json_object_get(output, "timedOut")))
        return br_err_set(err, BR_E_TIMEOUT, "the guest was stopped at its deadline");
    if (!json_is_integer(exit_code) && !json_is_true(json_object_get(output, "overflow")))
        return br_err_set(err, BR_E_FAILED,
                          "the guest was ended by signal %d; what it said does "
                          "not count",
                          (int)json_integer_value(json_object_get(output, "signal")));
    if (json_is_integer(exit_code) && json_integer_value(exit_code) != 0)
        return br_err_set(err, BR_E_FAILED,
                          "the guest ended with status %d; what it said does not count",
                          (int)json_integer_value(exit_code));
    return 0;
}

static int read_result(struct session *s, const json_t *output, struct br_frame_result *r,
                       struct br_err *err)
{
    const struct br_harness *h = &s->harness.it;
    const char *tools[BR_LEASE_TOOLS_MAX];
    for (uint32_t i = 0; i < h->adapter.ntools; i++)
        tools[i] = h->adapter.tools[i];
    const struct br_frame_expect e = {.run_id = s->run_id,
                                      .adapter = h->adapter.id,
                                      .revision = h->adapter.revision,
                                      .session = h->session_id[0] ? h->session_id : NULL,
                                      .tools = tools,
                                      .ntools = h->adapter.ntools,
                                      .kind = (enum br_frame_artifact)h->adapter.artifact,
                                      .artifact_bytes = h->adapter.artifact_bytes,
                                      .output_bytes = h->adapter.output_bytes};
    int k = check_end(output, err);
    return k < 0 ? k
                 : br_frame_result_get(s->inited.data2.data ? s->inited.data2.data
                                                            : (const uint8_t *)"",
                                       s->inited.data2.len, &e, r, err);
}

static void copy_member(json_t *to, const json_t *from, const char *key)
{
    json_t *v = json_object_get(from, key);
    if (json_is_integer(v))
        json_object_set(to, key, v);
}

/* bridle.harness.result, of a guest that was started. `code` of what came before it. */
static int record_result(struct session *s, const json_t *output, int code, struct br_err *err)
{
    static const char *const members[] = {"exitCode", "signal", "stdoutBytes", "stderrBytes",
                                          "durationMs"};
    const struct br_harness *h = &s->harness.it;
    struct br_frame_result r = {.root = NULL};
    if (code == 0)
        code = read_result(s, output, &r, err);
    if (code == 0 && !r.completed)
        code = br_err_set(err, BR_E_FAILED, "%s",
                          s->harness.schema.len
                              ? "the model's answer is not one JSON value, or there was none"
                              : "the guest says that it could not do it");
    if (code == 0)
        code = observe_value(s, r.artifact, err);
    if (code < 0 && r.completed) /* it says what was not asked for */
        br_frame_result_free(&r);
    json_t *data =
        json_pack("{s:s, s:s, s:s, s:I, s:o, s:[], s:i, s:i, s:i}", "runId", s->run_id, "status",
                  code == 0 ? "completed"
                  : r.root  ? "failed"
                            : "refused",
                  "adapter", h->adapter.id, "revision", (json_int_t)h->adapter.revision, "session",
                  session_json(h), "tools", "stdoutBytes", 0, "stderrBytes", 0, "durationMs", 0);
    for (size_t i = 0; i < BR_ARRAY_LEN(members); i++)
        copy_member(data, output, members[i]);
    if (r.root)
        put_result(&r, data);
    if (code < 0)
        json_object_set_new(
            data, "error",
            json_pack("{s:s, s:s}", "code", br_code_name(code), "message", err->text));
    br_frame_result_free(&r);
    int k = session_record(s, "bridle.harness.result", "kernel", data);
    return k < 0 ? br_err_set(err, (enum br_code) - k, "%s", s->stop_err.text) : code;
}

/* ---- the run ---- */

/* The provider's socket goes to the broker, which accepts on it, with what the run may use. */
static int pass_listener(struct session *s, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u64(&o.buf, s->budget.tokens_max);
    br_out_fd(&o, br_steal_fd(&s->harness.sockets[0]), true);
    return br_chan_send(&s->sup, BR_MSG_SUP_LISTENER, 0, &o, err);
}

/* A gate that is not to be used is closed: who connects is refused. */
static int open_gate(struct session *s, struct br_err *err)
{
    BR_CLEANUP_FD int fd = br_steal_fd(&s->harness.sockets[1]);
    return s->harness.it.terms.gate ? gate_open(s, br_steal_fd(&fd), err) : 0;
}

/* Only how it ended: neither what it wrote nor what it was told. */
static json_t *result_output(const json_t *output)
{
    static const char *const members[] = {"exitCode", "signal", "stdoutBytes", "stderrBytes"};
    json_t *o = json_object();
    for (size_t i = 0; i < BR_ARRAY_LEN(members); i++)
        copy_member(o, output, members[i]);
    return o;
}

static int run_guest(struct session *s, struct br_err *err)
{
    struct effect e = {.action = NULL};
    json_t *output = NULL;
    const struct br_harness *h = &s->harness.it;
    int r = session_record(s, "tool.call", "operator",
                           json_pack("{s:s, s:s, s:{s:s, s:s, s:o}}", "callId", CALL_ID, "tool",
                                     TOOL, "input", "adapter", h->terms.ref, "profile",
                                     s->profile.plan.profile, "session", session_json(h)));
    if (r < 0)
        return br_err_set(err, (enum br_code) - r, "%s", s->stop_err.text);
    s->budget.calls = 1;
    r = guest_effect(s, &e, err);
    if (r == 0)
        r = session_call_effect(s, CALL_ID, &e, &output, err);
    bool ran = s->effect_started_us != 0;
    uint64_t started = s->effect_started_us;
    int drained = ran ? guest_drain(s) : 0;
    if (ran)
        r = record_result(s, output, r, err);
    if (r == 0 && s->stop_code == -BR_E_BUDGET_EXCEEDED) { /* its last answer was too much */
        r = s->stop_code;
        *err = s->stop_err;
    }
    json_t *said = ran && output ? result_output(output) : json_incref(output);
    (void)session_record_result(s, CALL_ID, TOOL, started, said, r, err);
    json_decref(said);
    json_decref(output);
    effect_free(&e);
    return r < 0 || drained == 0
               ? r
               : br_err_set(err, (enum br_code) - drained, "%s", s->stop_err.text);
}

/* Without a task the lease is what bounds it. */
static void widen_budget(struct session *s)
{
    const json_t *budget = json_object_get(s->task, "budget");
    if (!json_object_get(budget, "max_model_tokens"))
        s->budget.tokens_max = s->harness.it.terms.tokens;
    if (!json_object_get(budget, "max_tool_calls"))
        s->budget.calls_max = UINT32_MAX;
    session_clamp(s);
}

void session_run_harness(struct session *s, struct outcome *o)
{
    struct br_err err = {.code = BR_OK};
    int r = session_begin(s, &err);
    if (r == 0) {
        widen_budget(s);
        r = pass_listener(s, &err);
    }
    if (r == 0)
        r = open_gate(s, &err);
    if (r == 0)
        r = run_guest(s, &err);
    gate_close(s);
    if (r < 0 && s->stop_code) { /* the reason to stop explains more than what it interrupted */
        r = s->stop_code;
        err = s->stop_err;
    }
    session_end(s, r, err.text, NULL);
    if (r == 0 && s->stop_code) {
        r = s->stop_code;
        err = s->stop_err;
    }
    outcome_set(o, r, r < 0 ? err.text : "");
}
