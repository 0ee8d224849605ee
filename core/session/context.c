/*
 * What a decision may know beside action and subject: the tool, the model, the time, what of the
 * budget is used and left. Called by decide.c before every decision; a model writes none of it.
 */
#include <string.h>
#include <time.h>

#include "session/session_priv.h"

static void set_counter(struct br_context *c, enum br_counter k, uint64_t used, uint64_t max)
{
    c->counters[k].known = true;
    c->counters[k].used = used;
    c->counters[k].left = used < max ? max - used : 0;
}

void session_context(const struct session *s, const struct effect *e, struct br_context *c)
{
    time_t now =
        s->as_of.unix_time ? (time_t)s->as_of.unix_time : (time_t)(br_now_wall_us() / 1000000u);
    struct tm tm;
    *c = (struct br_context){.tool = s->as_of.tool ? s->as_of.tool : e->tool,
                             .has_env = true, /* no tool changes a variable by itself */
                             .env = s->as_of.env,
                             .nenv = s->as_of.nenv,
                             .has_time = true,
                             .unix_time = now};
    if (s->model[0] || s->mode == BR_RUN_EXEC ||
        s->mode == BR_RUN_PROMOTE) /* there, nobody is "" */
        c->model = s->model;
    /* the zone was read before the process lost its files, see main.c */
    if (localtime_r(&now, &tm)) {
        c->has_local = true;
        c->local_offset = (int32_t)(tm.tm_gmtoff / 60);
    }
    set_counter(c, BR_COUNTER_CALLS, s->budget.calls, s->budget.calls_max);
    set_counter(c, BR_COUNTER_TOKENS, s->budget.tokens, s->budget.tokens_max);
    set_counter(c, BR_COUNTER_ASKS, s->ledger ? br_ledger_asks(s->ledger) : s->as_of.asks,
                BR_ASKS_MAX);
}
