/*
 * core/policy: the decision table and the permission ledger.
 *
 * A table is compiled in Lua (bridle-script) from the profile, the operator's policy and the task
 * manifest, arrives here as JSON text, is validated, indexed and pinned. It is immutable, so one
 * evaluator answers the session, `why` and the tests alike. Matching is linear in pattern and
 * subject; nothing here backtracks without bound, allocates while deciding, or fails open.
 */
#ifndef BR_POLICY_H
#define BR_POLICY_H

#include "base/base.h"
#include "wire/types.h"

/*
 * The JSON of a table; unknown keys are refused:
 * {"v":1,
 *  "sources":[{"kind":"profile"|"operator"|"manifest","name":text}],      in this order, <= 1 each
 *  "rules":[{"id":text,"source":index,"action":"fs.write"|"*","match":"any"|"path"|"command"|
 *            "host"|"text","pattern":text,"effect":"allow"|"ask"|"deny","reason":text?}],
 *  "fallbacks":[{"id":text,"source":index,"action":text,"effect":"deny"|"ask"}],
 *  "predicates":bool}
 *
 * Within profile and operator the strictest matching rule is that source's vote. Within a manifest
 * the longest matching pattern is, on a tie the strictest; if a pattern map matches nothing, its
 * fallback is (ask if there is no subject, deny if the subject is empty). A source in which nothing
 * matches has no vote. The answer is the strictest vote; no vote at all means ask.
 */
struct br_table;

int br_table_load(const void *json, size_t n, struct br_table **out, struct br_err *err);
void br_table_free(struct br_table **t);
/* SHA-256 of the exact bytes that were loaded. */
const uint8_t *br_table_sha256(const struct br_table *t);
unsigned br_table_rules(const struct br_table *t);
bool br_table_has_predicates(const struct br_table *t);

/* What is asked. For commands, `words` is one simple command; subject is then ignored. */
struct br_request {
    const char *action;
    const char *subject; /* NULL: the action has no subject */
    size_t subject_len;
    const char *const *words;
    size_t nwords;
};

#define BR_VOTES_MAX 4u
struct br_vote {
    enum br_effect effect;
    const char *rule_id; /* static within the table */
    const char *reason;  /* may be NULL */
    const char *source;  /* "profile", "operator", "manifest" */
};
struct br_decision {
    enum br_effect effect; /* allow, ask or deny; never none */
    const char *rule_id;   /* of the vote that decided; "default" if nobody had an opinion */
    const char *reason;
    const char *source;
    struct br_vote votes[BR_VOTES_MAX]; /* one per source that had an opinion */
    unsigned nvotes;
};
/* Never fails: a request that cannot be evaluated (no action, too long) is denied. */
void br_table_decide(const struct br_table *t, const struct br_request *q, struct br_decision *d);

const char *br_effect_name(enum br_effect e);
/* BR_EFFECT_NONE for an unknown word. */
enum br_effect br_effect_parse(const char *s, size_t n);
/* The stricter of two, deny > ask > allow > none. */
enum br_effect br_effect_strictest(enum br_effect a, enum br_effect b);

/* The two matchers, for tests and fuzzers. Linear time. */
bool br_match_path(const char *pattern, const char *subject, size_t n);
bool br_match_words(const char *pattern, const char *const *words, size_t nwords);

/* ---- ledger ------------------------------------------------------------------------------- */

/*
 * Asks and grants of one session. Every ask ends in exactly one terminal state; only `allowed`, or
 * a decision of allow, mints a grant; a grant is redeemed once, for exactly what it names.
 */
struct br_ledger;
enum br_ask_end {
    BR_ASK_PENDING = 0,
    BR_ASK_ALLOWED,
    BR_ASK_DENIED,
    BR_ASK_EXPIRED,
    BR_ASK_CANCELED,
    BR_ASK_NO_RESOLVER,
};
enum br_scope { BR_SCOPE_ONCE = 1, BR_SCOPE_RUN = 2 };

struct br_ledger *br_ledger_new(const char *session_id);
void br_ledger_free(struct br_ledger **l);

/* Open an ask; permission_id is made here. -BR_E_LIMIT_EXCEEDED if too many are pending. */
int br_ledger_ask(struct br_ledger *l, const char *call_id, const char *action, const char *subject,
                  size_t subject_len, enum br_scope scope, char permission_id[BR_ID_MAX],
                  struct br_err *err);
/* End it. -BR_E_NOT_FOUND for an unknown id, -BR_E_DENIED if it has ended before (nothing
 * changes then). */
int br_ledger_end(struct br_ledger *l, const char *permission_id, enum br_ask_end how,
                  struct br_err *err);
/* The state of an ask; BR_ASK_DENIED for an unknown id. */
enum br_ask_end br_ledger_state(const struct br_ledger *l, const char *permission_id);
/* Calls fn for every pending ask, then ends it as `how`. */
void br_ledger_end_all(struct br_ledger *l, enum br_ask_end how,
                       void (*fn)(const char *permission_id, void *ctx), void *ctx);
unsigned br_ledger_pending(const struct br_ledger *l);

/*
 * Mint a grant from the decision of a call: `decision` allow, or, for ask, the permission id of an
 * ask of this very call, action and subject that ended as allowed and has not minted before.
 * -BR_E_NO_GRANT otherwise.
 */
int br_ledger_mint(struct br_ledger *l, enum br_effect decision, const char *permission_id,
                   const char *call_id, const char *action, const char *subject, size_t subject_len,
                   struct br_grant_ref *out, struct br_err *err);
/*
 * Use it up for this effect. -BR_E_NO_GRANT (never minted, or forged), -BR_E_GRANT_USED,
 * -BR_E_GRANT_MISMATCH (another call, action or subject); in every error case the effect must not
 * happen.
 */
int br_ledger_redeem(struct br_ledger *l, const struct br_grant_ref *g, const char *call_id,
                     const char *action, const char *subject, size_t subject_len,
                     struct br_err *err);
/* True if an ask with scope run was answered allow for exactly this action and subject. */
bool br_ledger_run_allowed(const struct br_ledger *l, const char *action, const char *subject,
                           size_t subject_len);

#endif
