/*
 * Two ways to look at a profile without a run: the plan of one (what would be started, for whom,
 * and what is decided about one command), and its activation (one sandbox, /bin/true in it).
 * Neither has a record; what came out is one report to the client.
 */
#include <stdlib.h>
#include <string.h>

#include "session/session_priv.h"

static json_t *sum_json(const uint8_t sum[32])
{
    char hex[65];
    br_hex(hex, sum, 32);
    return json_string(hex);
}

/* What the launcher rendered; it is only ever shown. */
static json_t *rendered(const struct br_buf *b)
{
    const char *p = (const char *)b->data;
    json_t *o = NULL;
    if (b->len && br_json_scan(p, b->len, BR_JSON_DEPTH_MAX, 10 * BR_JSON_NODES_MAX, NULL) == 0)
        o = json_loadb(p, b->len, JSON_REJECT_DUPLICATES, NULL);
    return o ? o : json_object();
}

static json_t *refusal_json(int code, const char *text)
{
    return json_pack("{s:s, s:s, s:i}", "code", br_code_name(code), "text", text, "exitCode",
                     br_code_exit(code));
}

static void send_report(struct session *s, json_t *report)
{
    BR_CLEANUP_FREE char *text = report ? json_dumps(report, JSON_COMPACT) : NULL;
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    json_decref(report);
    br_out_blob(&out, text ? text : "{}", text ? strlen(text) : 2);
    (void)br_chan_send(&s->client, BR_MSG_REPORT, 0, &out, NULL);
}

/* The report says whether, and if not why; so does the outcome. */
static void conclude(struct session *s, json_t *report, int r, struct br_err *err,
                     struct outcome *o)
{
    if (s->stop_code) { /* the reason to stop explains more than what it interrupted */
        r = s->stop_code;
        *err = s->stop_err;
    }
    o->code = r < 0 ? -r : 0;
    o->exit_code = br_code_exit(r);
    snprintf(o->text, sizeof(o->text), "%s", r < 0 ? err->text : "");
    json_object_set_new(report, "ok", json_boolean(r == 0));
    if (r < 0)
        json_object_set_new(report, "refusal", refusal_json(r, err->text));
    send_report(s, report);
}

static void put_profile(struct session *s, json_t *report)
{
    const struct br_plan *p = &s->profile.plan;
    json_t *profile =
        json_pack("{s:s, s:i}", "name", p->profile, "version", (int)p->profile_version);
    json_object_set_new(profile, "sha256", sum_json(p->profile_sha256));
    if (p->profile[0])
        json_object_set(report, "profile", profile);
    json_decref(profile);
}

/* What the policy says about the command; nobody is asked. */
static int foresee(struct session *s, json_t *report, struct br_err *err)
{
    struct effect e = {.action = NULL};
    enum br_effect decided = BR_EFFECT_DENY;
    json_t *decision = NULL;
    if (s->argc == 0)
        return 0;
    int r = tools_resolve_argv(s->argv, s->argc, &e, err);
    if (r == 0)
        r = session_foresee(s, "plan", &e, &decided, &decision, err);
    if (decision)
        json_object_set_new(report, "decision", decision);
    effect_free(&e);
    return r;
}

static int resolve(struct session *s, json_t *report, struct br_err *err)
{
    int r = session_resolve(s, &s->profile.plan, err);
    if (r < 0)
        return r;
    const char *inactive = s->launched.err.text;
    json_object_set_new(report, "plan", rendered(&s->launched.data));
    json_object_set_new(report, "activated", json_boolean(!inactive[0]));
    if (s->choice.backend && s->choice.backend != s->own_backend)
        return 0; /* shown only: no run has it, so that nothing could be activated */
    return inactive[0] ? br_err_set(err, BR_E_REQUIREMENT_MISSING, "%s", inactive) : 0;
}

static void put_offers(struct session *s, json_t *report, int r, struct br_err *err)
{
    json_t *offers = json_array();
    if (r < 0 && s->host_lacks && !s->choice.backend)
        session_offer(s, offers, err);
    json_object_set_new(report, "offers", offers);
}

void session_run_plan(struct session *s, struct outcome *o)
{
    struct br_err err = {.code = BR_OK}, denied = {.code = BR_OK};
    json_t *report = json_object(), *warnings = json_array();
    int r = session_compile(s, &err);
    if (r == 0) {
        put_profile(s, report);
        json_t *table = json_pack("{s:i}", "rules", (int)br_table_rules(s->table));
        json_object_set_new(table, "sha256", sum_json(br_table_sha256(s->table)));
        json_object_set_new(report, "table", table);
        int d = foresee(s, report, &denied);
        r = resolve(s, report, &err);
        put_offers(s, report, r, &err);
        if (r == 0 && d < 0) { /* as exec would: first the sandbox, then the decision */
            r = d;
            err = denied;
        }
    }
    for (size_t off = 0; off < s->warnings.len;) {
        const char *w = (const char *)s->warnings.data + off;
        json_array_append_new(warnings, json_string(w));
        off += strlen(w) + 1;
    }
    json_object_set_new(report, "warnings", warnings);
    conclude(s, report, r, &err, o);
}

/* The operator's own command, about which no policy has a say. */
static int run_true(struct session *s, struct br_err *err)
{
    static char *const usual[] = {(char *)(uintptr_t) "/bin/true", NULL};
    static char *const own[] = {(char *)(uintptr_t) "/.bridle-init", (char *)(uintptr_t) "true",
                                NULL};
    bool none = strcmp(s->profile.plan.image, "none") == 0; /* no other program is there */
    struct effect e = {.action = NULL};
    struct br_grant_ref grant;
    json_t *output = NULL;
    int r = tools_resolve_argv(none ? own : usual, none ? 2 : 1, &e, err);
    if (r == 0)
        r = br_ledger_mint(s->ledger, BR_EFFECT_ALLOW, NULL, NULL, "activate", e.action, e.subject,
                           strlen(e.subject), &grant, err);
    if (r == 0)
        r = session_effect(s, &grant, "activate", &e, &output, err);
    const json_t *code = json_object_get(output, "exitCode");
    if (r == 0 && (!json_is_integer(code) || json_integer_value(code) != 0)) {
        const char *said = json_string_value(json_object_get(output, "stderr"));
        if (!said || !*said)
            said = "no reason was given";
        int n = (int)strnlen(said, 200);
        while (n > 0 && (said[n - 1] == '\n' || said[n - 1] == '\r'))
            n--;
        r = br_err_set(err, BR_E_REQUIREMENT_MISSING,
                       "'%s' did not end well in the sandbox of '%s', so it was not "
                       "activated: %.*s",
                       none ? own[0] : usual[0], s->profile.plan.profile, n, said);
    }
    json_decref(output);
    effect_free(&e);
    return r;
}

void session_run_activate(struct session *s, struct outcome *o)
{
    struct br_err err = {.code = BR_OK};
    json_t *report = json_object();
    int r = session_compile(s, &err);
    if (r == 0) {
        put_profile(s, report);
        s->ledger = br_ledger_new(s->run_id);
        if (!s->ledger)
            r = br_err_set(&err, BR_E_NOMEM, "no memory for the permission ledger");
    }
    if (r == 0) {
        r = session_resolve(s, &s->profile.plan, &err);
        if (r == 0)
            json_object_set_new(report, "plan", rendered(&s->launched.data));
        if (r == 0)
            r = session_launch_bare(s, &err);
        put_offers(s, report, r, &err);
    }
    if (r == 0) {
        json_object_set_new(report, "receipt", rendered(&s->launched.data));
        r = run_true(s, &err);
    }
    int gone = session_unlaunch(s, r);
    if (r == 0 && gone < 0)
        r = br_err_set(&err, BR_E_FAILED, "%s", s->stop_err.text);
    conclude(s, report, r, &err, o);
}
