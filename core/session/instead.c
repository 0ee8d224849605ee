/*
 * What a model is told of a denial, beside the sentence: a small object that a program can read,
 * with the rule and what is allowed instead. It leaves for a provider, so it is bounded, and what
 * looks like a credential in it is taken out.
 */
#include <string.h>

#include "audit/redact.h"
#include "session/session_priv.h"

#define PATTERN_MAX 160u
#define REASON_MAX 512u

static json_t *cut(const char *text, size_t max)
{
    char out[REASON_MAX + 4];
    size_t n = strlen(text);
    br_require(max <= REASON_MAX);
    if (n <= max)
        return json_string(text);
    n = br_utf8_floor(text, max);
    memcpy(out, text, n);
    memcpy(out + n, "...", 4);
    return json_string(out);
}

static const char *answer_name(const struct attempt *a)
{
    switch (a->end) {
    case BR_ASK_DENIED:
        return "denied";
    case BR_ASK_EXPIRED:
        return "expired";
    case BR_ASK_CANCELED:
        return "canceled";
    case BR_ASK_NO_RESOLVER:
        return "unavailable";
    default:
        return NULL;
    }
}

/* What the strictest part of it is like. */
static const char *near(const struct attempt *a)
{
    const json_t *piece;
    size_t i;
    json_array_foreach(a->v.asking, i, piece)
    {
        const char *effect = json_string_value(json_object_get(piece, "effect"));
        const char *action = json_string_value(json_object_get(piece, "action"));
        if (strcmp(effect, br_effect_name(a->v.effect)) == 0 && strcmp(action, a->e->action) == 0)
            return json_string_value(json_object_get(piece, "subject"));
    }
    return a->e->subject;
}

static json_t *allowed(struct session *s, const struct attempt *a)
{
    struct br_instead list[BR_INSTEAD_MAX];
    json_t *out = json_array();
    struct br_context context = s->context;
    context.env = NULL;
    context.nenv = 0;
    context.tool = a->e->tool;
    unsigned n = br_table_instead(s->table, a->e->action, near(a), &context, list, BR_INSTEAD_MAX);
    for (unsigned i = 0; i < n; i++)
        json_array_append_new(out, cut(list[i].pattern, PATTERN_MAX));
    return out;
}

json_t *instead_json(struct session *s, const struct attempt *a)
{
    struct br_err err;
    if (a->code != -BR_E_DENIED || !a->v.rule_id || !a->v.source)
        return NULL;
    if (!s->redact)
        s->redact = br_redact_new();
    json_t *o = s->redact
                    ? json_pack("{s:s, s:s, s:s*, s:s, s:s, s:o}", "action", a->e->action, "effect",
                                br_effect_name(a->v.effect), "answer", answer_name(a), "rule",
                                a->v.rule_id, "source", a->v.source, "allowed", allowed(s, a))
                    : NULL;
    if (o && a->v.reason)
        json_object_set_new(o, "reason", cut(a->v.reason, REASON_MAX));
    json_t *clean = o ? br_redact_json(s->redact, o, false, &err) : NULL;
    json_decref(o);
    return clean;
}
