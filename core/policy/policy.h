/*
 * core/policy: the decision table and the permission ledger.
 *
 * A table is compiled in Lua (bridle-script) from the profile, the operator's policy and the task
 * manifest, arrives here as JSON text, is validated, indexed and pinned. It is immutable, so one
 * evaluator answers the session, `why` and the tests alike. Matching is linear in pattern and
 * subject; nothing here backtracks, allocates while deciding, or fails open.
 */
#ifndef BR_POLICY_H
#define BR_POLICY_H

#include "base/base.h"
#include "wire/types.h"

/* As in struct br_grant_ref, which carries an action and its terminator in 64 bytes. */
#define BR_ACTION_MAX 63u
/* Rule ids travel in fields of BR_NAME_MAX bytes with their terminator. */
#define BR_RULE_ID_MAX (BR_NAME_MAX - 1)
#define BR_REASON_MAX 1024u
/* Of one session, ended ones included: four times the tool calls that a session may make. */
#define BR_ASKS_MAX 4096u
#define BR_GRANTS_MAX 4096u

/*
 * The JSON of a table; unknown keys are refused:
 * {"v":2,
 *  "sources":[{"kind":"profile"|"operator"|"manifest","name":text}],      in this order, <= 1 each
 *  "rules":[{"id":text,"source":index,"action":"fs.write"|"*","match":"any"|"path"|"command"|
 *            "host"|"text"|"program","pattern":text,"effect":"allow"|"ask"|"deny","reason":text?,
 *            "file":text?,"line":integer?,"when":[index of a condition]?,"command":object?}],
 *  "fallbacks":[{"id":text,"source":index,"action":text,"effect":"deny"|"ask","reason":text?,
 *                "file":text?,"line":integer?}],
 *  "predicates":bool,
 *  "conditions":[condition]?,
 *  "programs":[program]?}
 * "pattern" may be left out with "any"; otherwise it is then "" or "*". "*" is the only action that
 * is not taken literally. "file" and "line" are where a person wrote the rule; nothing else than
 * that is done with them.
 *
 * Within profile and operator the strictest matching rule is that source's vote. Within a manifest
 * the longest matching pattern (in bytes, as written) is, on a tie the strictest; if a pattern map
 * matches nothing, its fallback is (ask if there is no subject, deny if the subject is empty).
 * The operator's fallbacks ask where no rule of the operator's matches. One an action and source;
 * there is no other kind: a rule that matches switches a fallback off, so that one that denies
 * would let an added ask loosen the answer. A source in which nothing matches has no vote. The
 * answer is the strictest vote; no vote at all means ask. Votes do not depend on the order of
 * rules: what ties is told apart by pattern length, id, then pattern.
 *
 * Patterns. '*' and '?' cannot be escaped; '?' is one UTF-8 character.
 *
 * path: '*' and '?' stay inside a segment. "**" as a whole segment stands for any number of
 * segments, none included: "src/<double star>" matches "src", "src/a" and "src/a/b", and
 * "<double star>/x" matches "x" and "a/x". "**" beside other characters crosses segments: "src**"
 * matches "src2/a". A pattern that no subject can match is refused (absolute, "." or ".." or empty
 * segments, trailing '/'): it would be a rule that silently does nothing. "." alone is the
 * workspace.
 *
 * command: one simple command, word by word. A run of spaces is exactly one boundary between
 * words, '*' is anything, boundaries and slashes included, '?' one character inside a word. "rm *"
 * does not match `rm`; "git diff*" matches `git diff a`. A space inside a word is not a boundary.
 * Leading and trailing spaces are refused. It matches words only, never a subject.
 *
 * host: "host" or "host:port", without regard to case; '*' and '?' match within the host, dots
 * included; no port, or ":*", is any port. "*.example.com" does not match "example.com".
 *
 * text: '*' is anything, '?' one character.
 *
 * any: every request of this action, with or without a subject. In a manifest the pattern "*" is
 * "any", whatever its matcher: it is the map's own default.
 *
 * program: one simple command by what it means; the rule has "command" then:
 *   {"program":[name],"words":[[pattern]]?,"flags":[[flag]]?,"without":[flag]?,
 *    "any":[pattern]?,"every":[pattern]?}
 * and the table "programs" (what is known of a program's global options):
 *   {"name":text,"options":[option]?,"values":[option]?,"unsafe":[option]?,"rewrites":[text]?,
 *    "anywhere":bool?}
 * See core/policy/command.c for what each means. "pattern" is how the rule is shown.
 *
 * For process.exec only command, program and any are accepted, for fs.read and fs.write path, text
 * and any, for network host, text and any: another matcher would never see such a subject.
 *
 * Conditions: a rule with "when" matches only where all the named ones hold. Those of a manifest's
 * rules are refused, since there a rule that matches can switch another one off.
 *   {"tool":[pattern]?,"model":[pattern]?,"env":[pattern]?,"env_only":[pattern]?,
 *    "time":{"days":bits,"from":minute,"to":minute,"zone":minutes?}?,
 *    "budget":[{"counter":"calls"|"tokens"|"asks","value":"used"|"left","is":"over"|"under",
 *               "limit":integer}]?}
 * Patterns are of kind text. env: one of the changes matches one of the patterns, by its name, or
 * as NAME=VALUE where the pattern has '='; env_only: every change does, and there may be none.
 * time: bit 0 of days is Monday; minutes of the day, from <= now < to; where from > to the window
 * ends on the day after the one that "days" names. "zone" is an offset in minutes, local time
 * without it.
 */
struct br_table;

/*
 * Load a table from n bytes of JSON. On success *out is to be freed with br_table_free(); on
 * failure *out is NULL. -BR_E_INVALID_TABLE names the place and what was expected there, as in
 * 'rules[12].effect'; -BR_E_NOMEM.
 */
int br_table_load(const void *json, size_t n, struct br_table **out, struct br_err *err);
void br_table_free(struct br_table **t);
/* SHA-256 of the exact bytes that were loaded. */
const uint8_t *br_table_sha256(const struct br_table *t);
unsigned br_table_rules(const struct br_table *t);
/* True if the operator has predicates in Lua, whose vote the caller must add. */
bool br_table_has_predicates(const struct br_table *t);

enum br_counter { BR_COUNTER_CALLS, BR_COUNTER_TOKENS, BR_COUNTER_ASKS, BR_COUNTERS };

/*
 * What is known beside action and subject. Zeroed means that nothing is: what is absent makes the
 * condition of an allow rule false, and that of an ask or deny rule true.
 */
struct br_context {
    const char *tool;       /* NULL: unknown */
    const char *model;      /* NULL: unknown */
    bool has_env;           /* false: it is not known what the call changes */
    const char *const *env; /* each "NAME=VALUE", or "NAME" for a variable that is removed */
    size_t nenv;
    bool has_time;
    int64_t unix_time;    /* seconds */
    bool has_local;       /* the next is known */
    int32_t local_offset; /* minutes that local time is ahead of UTC */
    struct {
        bool known;
        uint64_t used, left;
    } counters[BR_COUNTERS]; /* by enum br_counter */
};

/*
 * What is asked. For commands, `words` is one simple command, and subject is then ignored. A shell
 * string that cannot be taken apart comes as subject without words: no command pattern matches it.
 */
struct br_request {
    const char *action;
    const char *subject; /* NULL: the action has no subject */
    size_t subject_len;
    const char *const *words;
    size_t nwords;
    const struct br_context *context; /* NULL: nothing is known */
    /* There are marks in the words (BR_UNKNOWN_ANY and its kin): an allow must match whatever they
     * become, an ask or a deny something that they can become. */
    bool unknown;
};

#define BR_VOTES_MAX 4u
struct br_vote {
    enum br_effect effect;
    const char *rule_id; /* static within the table */
    const char *reason;  /* may be NULL */
    const char *source;  /* "profile", "operator", "manifest" */
    const char *file;    /* where the rule was written; may be NULL */
    unsigned line;       /* 0: unknown */
};
struct br_decision {
    enum br_effect effect; /* allow, ask or deny; never none */
    const char *rule_id;   /* of the vote that decided, the first of equals; or one of these: */
#define BR_RULE_DEFAULT "default"                 /* ask: nobody had an opinion */
#define BR_RULE_INVALID_REQUEST "invalid-request" /* deny: no action, too long a one, no word */
#define BR_RULE_EMPTY "empty-subject"             /* deny: length 0, no words, empty command */
#define BR_RULE_TOO_LONG "subject-too-long"       /* deny: over BR_SUBJECT_MAX bytes */
#define BR_RULE_INVALID_SUBJECT "invalid-subject" /* deny: see br_table_decide() */
    const char *reason;                           /* may be NULL */
    const char *source;                           /* of that vote, or BR_KERNEL_SOURCE */
#define BR_KERNEL_SOURCE "kernel"
    const char *file;                   /* of that vote; may be NULL */
    unsigned line;                      /* 0: unknown */
    struct br_vote votes[BR_VOTES_MAX]; /* one per source that had an opinion */
    unsigned nvotes;
};
/*
 * Decide. Never fails: a request that cannot be evaluated is denied. Nothing is normalised. A
 * subject of an fs.* action, or of any action with a path rule, is denied unless it is relative
 * without empty, "." or ".." segments; one of `network`, or of an action with a host rule, unless
 * it is a host name or address with an optional port, without trailing dot; any subject with NUL.
 * The workspace itself is ".", its one spelling, which "**" and "*" match.
 * Pointers in *d live as long as the table.
 */
void br_table_decide(const struct br_table *t, const struct br_request *q, struct br_decision *d);

/* ---- explain.c: why ---- */

/* What became of one rule. */
enum br_why {
    BR_WHY_MATCHED = 0,
    BR_WHY_ACTION,     /* it speaks of another action */
    BR_WHY_NO_SUBJECT, /* it has a pattern, and the request has no subject */
    BR_WHY_SUBJECT,    /* its pattern does not match the subject */
    BR_WHY_REFUSED,    /* the request itself was refused; no rule was looked at */
    BR_WHY_CONDITION,  /* its conditions do not hold */
};
/* "matched", "action", "no-subject", "subject", "refused", "condition". */
const char *br_why_name(enum br_why w);

struct br_explained {
    unsigned index; /* of the rule in the "rules" of the JSON that was loaded */
    enum br_why why;
    struct br_vote vote; /* what the rule says where it matches */
};
/*
 * Decide as br_table_decide() does, by the same code, and call fn (may be NULL) for every rule of
 * the table, in the order of its JSON. Within profile and operator the vote is the strictest rule
 * that matched, within a manifest the one with the longest pattern. -BR_E_NOMEM: nothing was
 * called, and *d denies.
 */
int br_table_explain(const struct br_table *t, const struct br_request *q, struct br_decision *d,
                     void (*fn)(const struct br_explained *e, void *ctx), void *ctx);

/* ---- instead.c: after a decision, for people and models ---- */

#define BR_INSTEAD_MAX 8u
struct br_instead {
    const char *pattern; /* as written; "*" for a rule without one. Good as long as the table */
    const char *rule_id;
};
/*
 * Patterns that are allowed for this action, at most `max` (BR_INSTEAD_MAX) of them, those first
 * that have most in common with `near` (a subject, or words with blanks between them; may be NULL).
 * Each has an example that the whole table allows in this context; that is no promise for the rest.
 * Returns how many; 0 without a table.
 */
unsigned br_table_instead(const struct br_table *t, const char *action, const char *near,
                          const struct br_context *context, struct br_instead *out, unsigned max);

struct br_where {
    const char *file; /* NULL: not known */
    unsigned line;    /* 0: not known */
    bool otherwise;   /* a fallback, which a rule that matches switches off */
};
/* Where the rule of this source with this id was written; false if there is none. */
bool br_table_where(const struct br_table *t, const char *source, const char *rule_id,
                    struct br_where *out);

/* "allow", "ask", "deny", "none"; "deny" for a number that is no effect. */
const char *br_effect_name(enum br_effect e);
/* BR_EFFECT_NONE for an unknown word. */
enum br_effect br_effect_parse(const char *s, size_t n);
/* The stricter of two, deny > ask > allow > none; a number that is no effect counts as deny. */
enum br_effect br_effect_strictest(enum br_effect a, enum br_effect b);

/* The matchers alone, for tests and fuzzers; these compile, and so allocate. Linear time. False for
 * what is not a pattern. */
bool br_match_path(const char *pattern, const char *subject, size_t n);
bool br_match_words(const char *pattern, const char *const *words, size_t nwords);
bool br_match_host(const char *pattern, const char *subject, size_t n);
bool br_match_text(const char *pattern, const char *subject, size_t n);

/* ---- ledger ------------------------------------------------------------------------------- */

/*
 * Asks and grants of one session. Every ask ends in exactly one terminal state; only `allowed`, or
 * a decision of allow, mints a grant; a grant is redeemed once, for exactly what it names. No
 * subject and an empty subject are different things.
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
/* What an allow covers: this one call, or the same effect until the run ends; nothing is wider. */
enum br_scope { BR_SCOPE_ONCE = 1, BR_SCOPE_RUN = 2 };
/*
 * SHA-256 of what an effect depends on beside action and subject (the session's environment.c says
 * what that is). A run-scoped allow covers exactly one action, one subject and one environment.
 */
#define BR_ENVIRONMENT_BYTES 32u

/* NULL when there is no memory. The session id is copied. */
struct br_ledger *br_ledger_new(const char *session_id);
void br_ledger_free(struct br_ledger **l);

/*
 * Open an ask; permission_id is made here. `scope` is the widest that its answer may have; with
 * BR_SCOPE_RUN `environment` is BR_ENVIRONMENT_BYTES long, else it may be NULL.
 * -BR_E_LIMIT_EXCEEDED if the session has made BR_ASKS_MAX of them, -BR_E_INVALID_ARGUMENTS for a
 * call id, action or scope that cannot be bound (empty, too long), -BR_E_NOMEM.
 */
int br_ledger_ask(struct br_ledger *l, const char *call_id, const char *action, const char *subject,
                  size_t subject_len, enum br_scope scope, const uint8_t *environment,
                  char permission_id[BR_ID_MAX], struct br_err *err);
/* Answer it with allow, for this scope. As br_ledger_end(), and -BR_E_INVALID_ARGUMENTS for a scope
 * that was not offered: the ask is pending still. */
int br_ledger_allow(struct br_ledger *l, const char *permission_id, enum br_scope scope,
                    struct br_err *err);
/* What an ask that was allowed was allowed for; BR_SCOPE_ONCE for every other. */
enum br_scope br_ledger_scope(const struct br_ledger *l, const char *permission_id);
/* End it; BR_ASK_ALLOWED allows it once. -BR_E_NOT_FOUND for an unknown id, -BR_E_DENIED if it has
 * ended before, -BR_E_INVALID_ARGUMENTS if `how` is not an end (nothing changes in these cases). */
int br_ledger_end(struct br_ledger *l, const char *permission_id, enum br_ask_end how,
                  struct br_err *err);
/* The state of an ask; BR_ASK_DENIED for an unknown id. */
enum br_ask_end br_ledger_state(const struct br_ledger *l, const char *permission_id);
/*
 * Calls fn (may be NULL) for every ask that is pending now, then ends it as `how`; nobody allows
 * wholesale, so BR_ASK_ALLOWED ends them as denied. fn may end asks and open new ones; new ones
 * stay pending.
 */
void br_ledger_end_all(struct br_ledger *l, enum br_ask_end how,
                       void (*fn)(const char *permission_id, void *ctx), void *ctx);
unsigned br_ledger_pending(const struct br_ledger *l);
/* Asks that were ever opened. */
unsigned br_ledger_asks(const struct br_ledger *l);

/*
 * Mint a grant from the decision of a call: `decision` allow, or, for ask, the permission id of an
 * ask of this very call, action and subject that ended as allowed and has not minted before; or,
 * for ask with permission_id NULL, an earlier run-scoped allow (br_ledger_run_allowed()) of this
 * action, subject and environment (NULL: there is none, and nothing is covered).
 * -BR_E_NO_GRANT otherwise, -BR_E_LIMIT_EXCEEDED after BR_GRANTS_MAX of them, -BR_E_NOMEM; *out is
 * then all zero, which redeems nothing.
 */
int br_ledger_mint(struct br_ledger *l, enum br_effect decision, const char *permission_id,
                   const uint8_t *environment, const char *call_id, const char *action,
                   const char *subject, size_t subject_len, struct br_grant_ref *out,
                   struct br_err *err);
/*
 * Use it up for this effect. -BR_E_NO_GRANT (never minted, or forged), -BR_E_GRANT_USED,
 * -BR_E_GRANT_MISMATCH (another call, action or subject, in the arguments or in the reference
 * itself); in every error case nothing changes, and the effect must not happen.
 */
int br_ledger_redeem(struct br_ledger *l, const struct br_grant_ref *g, const char *call_id,
                     const char *action, const char *subject, size_t subject_len,
                     struct br_err *err);
/* The permission that was allowed for the run for exactly this action, subject and environment;
 * NULL if there is none. Good until the next ask. */
const char *br_ledger_run_allowed(const struct br_ledger *l, const char *action,
                                  const char *subject, size_t subject_len,
                                  const uint8_t *environment);

#endif
