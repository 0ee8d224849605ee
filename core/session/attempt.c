/*
 * A call on its way from decision to effect. Those of a turn are decided first, one after the
 * other, then all open questions are put together, then the calls run in their order. Nothing runs
 * before every question of its turn has an answer. A decision that is from another minute than its
 * effect is made again (rules may name times of the day); it can only get stricter by that.
 */
#include <stdlib.h>
#include <string.h>

#include "session/session_priv.h"

static int64_t this_minute(void)
{
    return (int64_t)(br_now_wall_us() / 60000000u);
}

static int end(struct attempt *a, int r, const char *text)
{
    a->code = br_err_set(&a->err, (enum br_code) - r, "%s", text);
    return r;
}

/* Of an ask: is there a grant for this run that covers exactly it, and may there be one. */
static void look_for_grant(struct session *s, struct attempt *a)
{
    session_environment(s, a, a->environment);
    /* What could not be taken apart may be something else the next time; and of a list of votes
     * that is full not every rule is known. A run of one command has no second time. */
    bool known =
        s->mode == BR_RUN_AGENT && !a->v.opaque && json_array_size(a->v.votes) < SESSION_VOTES_MAX;
    a->scope = known ? BR_SCOPE_RUN : BR_SCOPE_ONCE;
    const char *grant = known ? br_ledger_run_allowed(s->ledger, a->e->action, a->e->subject,
                                                      strlen(a->e->subject), a->environment)
                              : NULL;
    snprintf(a->grant, sizeof(a->grant), "%s", grant ? grant : "");
}

int attempt_open(struct session *s, struct attempt *a, const char *call_id, const struct effect *e)
{
    *a = (struct attempt){.call_id = call_id, .e = e, .scope = BR_SCOPE_ONCE};
    verdict_init(&a->v);
    a->minute = this_minute();
    int r = session_decide(s, call_id, e, NULL, &a->v);
    memcpy(a->context.counters, s->context.counters, sizeof(a->context.counters));
    if (r == 0 && a->v.effect == BR_EFFECT_ASK)
        look_for_grant(s, a);
    if (r == 0)
        r = session_record_decision(s, &a->v, call_id, e, a->grant);
    if (r < 0)
        return end(a, r, s->stop_err.text);
    if (a->v.effect == BR_EFFECT_ASK && !a->grant[0])
        return ask_open(s, a);
    if (a->v.effect != BR_EFFECT_ALLOW && a->v.effect != BR_EFFECT_ASK)
        a->code = session_denied(&a->v, e, &a->err);
    return 0;
}

void attempt_free(struct attempt *a)
{
    verdict_free(&a->v);
    free(a->note);
    a->note = NULL;
}

/* The same answer as before, to the same question. */
static bool still_so(struct session *s, const struct attempt *a, const struct verdict *now)
{
    if (br_effect_strictest(a->v.effect, now->effect) != a->v.effect)
        return false;
    if (now->effect != BR_EFFECT_ASK)
        return true;
    struct attempt again = {.e = a->e, .v = *now};
    uint8_t environment[BR_ENVIRONMENT_BYTES], before[BR_ENVIRONMENT_BYTES];
    session_environment(s, &again, environment);
    session_environment(s, a, before);
    return memcmp(environment, before, sizeof(before)) == 0;
}

static void decide_again(struct session *s, struct attempt *a)
{
    struct verdict now;
    if (this_minute() == a->minute)
        return;
    verdict_init(&now);
    int r = session_decide(s, a->call_id, a->e, &a->context, &now);
    if (r < 0) {
        (void)end(a, r, s->stop_err.text);
    } else if (!still_so(s, a, &now)) {
        r = session_record_decision(s, &now, a->call_id, a->e, NULL);
        if (r < 0)
            (void)end(a, r, s->stop_err.text);
        else if (now.effect == BR_EFFECT_DENY)
            a->code = session_denied(&now, a->e, &a->err);
        else
            a->code = br_err_set(&a->err, BR_E_DENIED,
                                 "%s was not permitted: what the policy says has changed while it "
                                 "waited; call it again",
                                 a->e->action);
        verdict_free(&a->v);
        a->v = now;
        return;
    }
    verdict_free(&now);
}

int attempt_mint(struct session *s, struct attempt *a, struct br_grant_ref *grant)
{
    if (a->code == 0)
        decide_again(s, a);
    if (a->code == 0)
        a->code = br_ledger_mint(s->ledger, a->v.effect, a->permission[0] ? a->permission : NULL,
                                 a->grant[0] ? a->environment : NULL, a->call_id, a->e->action,
                                 a->e->subject, strlen(a->e->subject), grant, &a->err);
    return a->code;
}

int attempt_run(struct session *s, struct attempt *a, json_t **output)
{
    struct br_grant_ref grant;
    *output = NULL;
    (void)attempt_mint(s, a, &grant);
    if (a->code == 0)
        a->code = session_effect(s, &grant, a->call_id, a->e, output, &a->err);
    if (a->code == 0 && a->e->op.op == BR_OP_FS_SEARCH)
        session_withhold(s, a->call_id, *output);
    return a->code;
}
