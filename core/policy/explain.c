/*
 * Why a decision came out as it did: the same evaluation as br_table_decide(), which here notes
 * every rule that matches instead of only the best one of each source, and then a walk over all
 * rules. For people (`bridle policy why`) and tests; it allocates and takes time in proportion to
 * the table, so nothing that decides an effect calls it. Request and table are not trusted more
 * than there.
 */
#include <stdlib.h>
#include <string.h>

#include "policy/policy_priv.h"

const char *br_why_name(enum br_why w)
{
    static const char *const names[] = {"matched", "action",  "no-subject",
                                        "subject", "refused", "condition"};
    return (unsigned)w < BR_ARRAY_LEN(names) ? names[w] : "refused";
}

/* Before any rule was looked at: the answer is the kernel's, and not for want of an opinion. */
static bool refused(const struct br_decision *d)
{
    return strcmp(d->source, BR_KERNEL_SOURCE) == 0 && strcmp(d->rule_id, BR_RULE_DEFAULT) != 0;
}

static enum br_why why(const struct br_rule *r, const struct br_request *q, uint8_t result)
{
    if (result != BR_MISSED)
        return result == BR_MATCHED ? BR_WHY_MATCHED : BR_WHY_CONDITION;
    if (strcmp(r->action, "*") != 0 && strcmp(r->action, q->action) != 0)
        return BR_WHY_ACTION;
    return q->words || q->subject ? BR_WHY_SUBJECT : BR_WHY_NO_SUBJECT;
}

int br_table_explain(const struct br_table *t, const struct br_request *q, struct br_decision *d,
                     void (*fn)(const struct br_explained *e, void *ctx), void *ctx)
{
    uint32_t n = t ? t->nrules : 0;
    BR_CLEANUP_FREE uint8_t *matched = calloc((size_t)n + 1, 1);
    BR_CLEANUP_FREE uint32_t *rank = calloc((size_t)n + 1, sizeof(*rank)); /* by index */
    if (!matched || !rank) {
        br_table_decide(NULL, NULL, d);
        return -BR_E_NOMEM;
    }
    br_decide_noting(t, q, matched, d);
    for (uint32_t i = 0; i < n; i++)
        rank[t->rules[i].index] = i;
    for (uint32_t i = 0; fn && i < n; i++) {
        const struct br_rule *r = &t->rules[rank[i]];
        struct br_explained e = {.index = i,
                                 .why = refused(d) ? BR_WHY_REFUSED : why(r, q, matched[rank[i]]),
                                 .vote = {.effect = (enum br_effect)r->effect,
                                          .rule_id = r->id,
                                          .reason = r->reason,
                                          .source = br_source_name(r->source),
                                          .file = r->file,
                                          .line = r->line}};
        fn(&e, ctx);
    }
    return 0;
}
