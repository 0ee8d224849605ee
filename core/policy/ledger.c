/*
 * The ledger: asks that end once, grants that are used once. Called by the session alone. It
 * trusts neither the permission ids of clients nor the grant references that come back with an
 * effect; both are looked up and compared with what was written down here.
 */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"

/* What an ask or a grant is bound to. */
struct binding {
    char call_id[BR_NAME_MAX];
    char action[BR_ACTION_MAX + 1];
    uint8_t subject_sha256[32];
    bool has_subject;
};

struct ask {
    char permission_id[BR_ID_MAX];
    struct binding bound;
    uint8_t environment[BR_ENVIRONMENT_BYTES];
    enum br_scope scope;   /* the widest that an answer may have */
    enum br_scope granted; /* what the answer had; ONCE until then */
    enum br_ask_end state;
    bool minted;
};

struct grant {
    uint8_t token[16];
    struct binding bound;
    bool used;
};

struct br_ledger {
    char session_id[BR_NAME_MAX];
    struct ask *asks;
    size_t nasks, cap_asks;
    struct grant *grants; /* serial n is grants[n - 1] */
    size_t ngrants, cap_grants;
};

struct br_ledger *br_ledger_new(const char *session_id)
{
    struct br_ledger *l = calloc(1, sizeof(*l));
    if (l)
        snprintf(l->session_id, sizeof(l->session_id), "%s", session_id);
    return l;
}

void br_ledger_free(struct br_ledger **l)
{
    if (!*l)
        return;
    if ((*l)->grants)
        sodium_memzero((*l)->grants, (*l)->cap_grants * sizeof((*l)->grants[0]));
    free((*l)->grants);
    free((*l)->asks);
    free(*l);
    *l = NULL;
}

/* Room for one more of `n` elements; doubles, up to max. */
static int reserve(void **items, size_t n, size_t *cap, size_t size, size_t max)
{
    if (n < *cap)
        return 0;
    if (n >= max)
        return -BR_E_LIMIT_EXCEEDED;
    size_t want = *cap ? *cap * 2 : 16;
    if (want > max)
        want = max;
    void *p = calloc(want, size);
    if (!p)
        return -BR_E_NOMEM;
    if (n) {
        memcpy(p, *items, n * size);
        sodium_memzero(*items, n * size);
    }
    free(*items);
    *items = p;
    *cap = want;
    return 0;
}

static bool bind(struct binding *b, const char *call_id, const char *action, const char *subject,
                 size_t subject_len)
{
    size_t nc = call_id ? strnlen(call_id, BR_NAME_MAX) : 0;
    size_t na = action ? strnlen(action, BR_ACTION_MAX + 1) : 0;
    if (nc == 0 || nc >= BR_NAME_MAX || na == 0 || na > BR_ACTION_MAX)
        return false;
    memset(b, 0, sizeof(*b));
    memcpy(b->call_id, call_id, nc);
    memcpy(b->action, action, na);
    b->has_subject = subject != NULL;
    crypto_hash_sha256(b->subject_sha256, (const uint8_t *)(subject ? subject : ""),
                       subject ? subject_len : 0);
    return true;
}

static bool same_effect(const struct binding *a, const struct binding *b)
{
    return a->has_subject == b->has_subject && strcmp(a->action, b->action) == 0 &&
           memcmp(a->subject_sha256, b->subject_sha256, sizeof(a->subject_sha256)) == 0;
}

static bool same_binding(const struct binding *a, const struct binding *b)
{
    return strcmp(a->call_id, b->call_id) == 0 && same_effect(a, b);
}

/* ---- asks ---- */

static struct ask *ask_find(const struct br_ledger *l, const char *permission_id)
{
    for (size_t i = l->nasks; permission_id && i-- > 0;)
        if (strcmp(l->asks[i].permission_id, permission_id) == 0)
            return &l->asks[i];
    return NULL;
}

int br_ledger_ask(struct br_ledger *l, const char *call_id, const char *action, const char *subject,
                  size_t subject_len, enum br_scope scope, const uint8_t *environment,
                  char permission_id[BR_ID_MAX], struct br_err *err)
{
    struct ask a = {.scope = scope, .granted = BR_SCOPE_ONCE, .state = BR_ASK_PENDING};
    permission_id[0] = 0;
    if (environment)
        memcpy(a.environment, environment, sizeof(a.environment));
    if ((scope != BR_SCOPE_ONCE && scope != BR_SCOPE_RUN) ||
        (scope == BR_SCOPE_RUN && !environment) ||
        !bind(&a.bound, call_id, action, subject, subject_len))
        return br_err_set(err, BR_E_INVALID_ARGUMENTS,
                          "nobody was asked about '%.64s': its call, action or scope is malformed",
                          action ? action : "");
    int r = reserve((void **)&l->asks, l->nasks, &l->cap_asks, sizeof(a), BR_ASKS_MAX);
    if (r == -BR_E_LIMIT_EXCEEDED)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                          "nobody was asked about '%s': the session '%s' has asked %u times, which "
                          "is all it may",
                          action, l->session_id, BR_ASKS_MAX);
    if (r < 0)
        return br_err_set(err, BR_E_NOMEM, "no memory to ask about '%s'", action);
    br_id_make(a.permission_id, "perm");
    l->asks[l->nasks++] = a;
    memcpy(permission_id, a.permission_id, BR_ID_MAX);
    return 0;
}

int br_ledger_end(struct br_ledger *l, const char *permission_id, enum br_ask_end how,
                  struct br_err *err)
{
    if (how < BR_ASK_ALLOWED || how > BR_ASK_NO_RESOLVER)
        return br_err_set(err, BR_E_INVALID_ARGUMENTS, "an ask cannot end as %d", (int)how);
    struct ask *a = ask_find(l, permission_id);
    if (!a)
        return br_err_set(err, BR_E_NOT_FOUND, "the session '%s' has no permission '%.64s'",
                          l->session_id, permission_id ? permission_id : "");
    if (a->state != BR_ASK_PENDING)
        return br_err_set(err, BR_E_DENIED, "the permission '%s' was resolved before",
                          a->permission_id);
    a->state = how;
    return 0;
}

int br_ledger_allow(struct br_ledger *l, const char *permission_id, enum br_scope scope,
                    struct br_err *err)
{
    struct ask *a = ask_find(l, permission_id);
    if (a && a->state == BR_ASK_PENDING &&
        (scope < BR_SCOPE_ONCE || scope > a->scope)) /* never wider than what was offered */
        return br_err_set(err, BR_E_INVALID_ARGUMENTS,
                          "the permission '%s' can be given once only; nothing was answered",
                          a->permission_id);
    int r = br_ledger_end(l, permission_id, BR_ASK_ALLOWED, err);
    if (r == 0)
        a->granted = scope;
    return r;
}

enum br_scope br_ledger_scope(const struct br_ledger *l, const char *permission_id)
{
    const struct ask *a = ask_find(l, permission_id);
    return a && a->state == BR_ASK_ALLOWED ? a->granted : BR_SCOPE_ONCE;
}

enum br_ask_end br_ledger_state(const struct br_ledger *l, const char *permission_id)
{
    const struct ask *a = ask_find(l, permission_id);
    return a ? a->state : BR_ASK_DENIED;
}

void br_ledger_end_all(struct br_ledger *l, enum br_ask_end how,
                       void (*fn)(const char *permission_id, void *ctx), void *ctx)
{
    if (how < BR_ASK_DENIED || how > BR_ASK_NO_RESOLVER)
        how = BR_ASK_DENIED;
    size_t n = l->nasks; /* fn may open new asks and so move the array */
    for (size_t i = 0; i < n; i++) {
        if (l->asks[i].state != BR_ASK_PENDING)
            continue;
        char id[BR_ID_MAX];
        memcpy(id, l->asks[i].permission_id, sizeof(id));
        if (fn)
            fn(id, ctx);
        if (l->asks[i].state == BR_ASK_PENDING)
            l->asks[i].state = how;
    }
}

unsigned br_ledger_asks(const struct br_ledger *l)
{
    return (unsigned)l->nasks;
}

unsigned br_ledger_pending(const struct br_ledger *l)
{
    unsigned n = 0;
    for (size_t i = 0; i < l->nasks; i++)
        n += l->asks[i].state == BR_ASK_PENDING;
    return n;
}

static const struct ask *run_allowed(const struct br_ledger *l, const struct binding *b,
                                     const uint8_t *environment)
{
    for (size_t i = 0; environment && i < l->nasks; i++)
        if (l->asks[i].granted == BR_SCOPE_RUN && l->asks[i].state == BR_ASK_ALLOWED &&
            same_effect(&l->asks[i].bound, b) &&
            memcmp(l->asks[i].environment, environment, BR_ENVIRONMENT_BYTES) == 0)
            return &l->asks[i];
    return NULL;
}

const char *br_ledger_run_allowed(const struct br_ledger *l, const char *action,
                                  const char *subject, size_t subject_len,
                                  const uint8_t *environment)
{
    struct binding b;
    const struct ask *a =
        bind(&b, "any", action, subject, subject_len) ? run_allowed(l, &b, environment) : NULL;
    return a ? a->permission_id : NULL;
}

/* ---- grants ---- */

/* Why this decision may mint: true, and the ask that is used up by it if there is one. */
static bool may_mint(const struct br_ledger *l, enum br_effect decision, const char *permission_id,
                     const struct binding *b, const uint8_t *environment, struct ask **used)
{
    *used = NULL;
    if (decision == BR_EFFECT_ALLOW)
        return true;
    if (decision != BR_EFFECT_ASK)
        return false;
    if (!permission_id)
        return run_allowed(l, b, environment) != NULL;
    *used = ask_find(l, permission_id);
    return *used && (*used)->state == BR_ASK_ALLOWED && !(*used)->minted &&
           same_binding(&(*used)->bound, b);
}

int br_ledger_mint(struct br_ledger *l, enum br_effect decision, const char *permission_id,
                   const uint8_t *environment, const char *call_id, const char *action,
                   const char *subject, size_t subject_len, struct br_grant_ref *out,
                   struct br_err *err)
{
    struct grant g = {.used = false};
    struct ask *used;
    memset(out, 0, sizeof(*out));
    if (!bind(&g.bound, call_id, action, subject, subject_len) ||
        !may_mint(l, decision, permission_id, &g.bound, environment, &used))
        return br_err_set(err, BR_E_NO_GRANT,
                          "'%.64s' was not granted: neither the decision nor an answer allows it",
                          action ? action : "");
    int r = reserve((void **)&l->grants, l->ngrants, &l->cap_grants, sizeof(g), BR_GRANTS_MAX);
    if (r == -BR_E_LIMIT_EXCEEDED)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                          "'%s' was not granted: the session '%s' has used all of its %u grants",
                          action, l->session_id, BR_GRANTS_MAX);
    if (r < 0)
        return br_err_set(err, BR_E_NOMEM, "no memory to grant '%s'", action);
    br_random(g.token, sizeof(g.token));
    if (used)
        used->minted = true;
    l->grants[l->ngrants++] = g;
    out->serial = l->ngrants;
    memcpy(out->token, g.token, sizeof(out->token));
    memcpy(out->call_id, g.bound.call_id, sizeof(out->call_id));
    memcpy(out->action, g.bound.action, sizeof(out->action));
    memcpy(out->subject_sha256, g.bound.subject_sha256, sizeof(out->subject_sha256));
    return 0;
}

static bool same_reference(const struct grant *g, const struct br_grant_ref *ref)
{
    return strncmp(g->bound.call_id, ref->call_id, sizeof(ref->call_id)) == 0 &&
           strncmp(g->bound.action, ref->action, sizeof(ref->action)) == 0 &&
           memcmp(g->bound.subject_sha256, ref->subject_sha256, sizeof(ref->subject_sha256)) == 0;
}

int br_ledger_redeem(struct br_ledger *l, const struct br_grant_ref *ref, const char *call_id,
                     const char *action, const char *subject, size_t subject_len,
                     struct br_err *err)
{
    const char *what = action ? action : "";
    struct grant *g =
        ref && ref->serial && ref->serial <= l->ngrants ? &l->grants[ref->serial - 1] : NULL;
    if (!g || sodium_memcmp(g->token, ref->token, sizeof(g->token)) != 0)
        return br_err_set(err, BR_E_NO_GRANT, "'%.64s' did not happen: nobody granted it", what);
    struct binding b;
    if (!bind(&b, call_id, action, subject, subject_len) || !same_binding(&g->bound, &b) ||
        !same_reference(g, ref))
        return br_err_set(
            err, BR_E_GRANT_MISMATCH,
            "'%.64s' did not happen: the grant is for another call, action or subject", what);
    if (g->used)
        return br_err_set(err, BR_E_GRANT_USED,
                          "'%.64s' did not happen: its grant has been used before", what);
    g->used = true;
    return 0;
}
