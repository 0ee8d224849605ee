/*
 * The question for the checks of a policy. Every call of a tool that a policy with checks lets
 * through waits for it, so the text is written as it is, without a tree. Called by the session
 * (decide.c) and by `bridle bench`. The texts are a model's and an operator's.
 */
#include <string.h>

#include "script/question.h"

static int put_text(struct br_buf *b, const char *s)
{
    size_t n = strlen(s);
    if (!br_utf8_valid(s, n))
        return -BR_E_INVALID_JSON;
    return br_buf_put_json_str(b, s, n);
}

/* `before` has the name and what stands in front of it. Nothing for NULL. */
static int put_member(struct br_buf *b, const char *before, const char *s)
{
    if (!s)
        return 0;
    int r = br_buf_put(b, before, strlen(before));
    return r < 0 ? r : put_text(b, s);
}

static int put_list(struct br_buf *b, const char *before, const char *const *list, size_t n)
{
    int r = br_buf_put(b, before, strlen(before));
    br_buf_put_u8(b, '[');
    for (size_t i = 0; r == 0 && i < n; i++) {
        if (i > 0)
            br_buf_put_u8(b, ',');
        r = put_text(b, list[i]);
    }
    return r < 0 ? r : br_buf_put_u8(b, ']');
}

static void put_counters(struct br_buf *b, const struct br_context *c)
{
    static const char *const names[] = {
        [BR_COUNTER_CALLS] = "calls", [BR_COUNTER_TOKENS] = "tokens", [BR_COUNTER_ASKS] = "asks"};
    bool first = true;
    br_buf_put(b, ",\"budget\":{", 11);
    for (unsigned k = 0; k < BR_ARRAY_LEN(names); k++) {
        if (!c->counters[k].known)
            continue;
        br_buf_printf(b, "%s\"%s\":{\"used\":%lld,\"left\":%lld}", first ? "" : ",", names[k],
                      (long long)c->counters[k].used, (long long)c->counters[k].left);
        first = false;
    }
    br_buf_put_u8(b, '}');
}

int br_question_put(struct br_buf *b, const struct br_question *q)
{
    const struct br_context *c = q->context;
    int r = put_member(b, "{\"action\":", q->action);
    if (r == 0)
        r = put_member(b, ",\"subject\":", q->subject);
    if (r == 0)
        r = put_member(b, ",\"callId\":", q->call_id);
    if (r == 0)
        r = put_member(b, ",\"effect\":", br_effect_name(q->effect));
    if (r == 0)
        r = put_member(b, ",\"manifest\":", q->manifest);
    if (r == 0 && q->words)
        r = put_list(b, ",\"argv\":", q->words, q->nwords);
    if (r == 0)
        r = put_member(b, ",\"tool\":", c->tool);
    if (r == 0)
        r = put_member(b, ",\"model\":", c->model);
    if (r == 0 && c->has_env)
        r = put_list(b, ",\"env\":", c->env, c->nenv);
    if (r < 0)
        return r;
    if (c->has_time)
        br_buf_printf(b, ",\"time\":%lld", (long long)c->unix_time);
    if (c->has_local)
        br_buf_printf(b, ",\"zone\":%d", (int)c->local_offset);
    put_counters(b, c);
    return br_buf_put_u8(b, '}');
}
