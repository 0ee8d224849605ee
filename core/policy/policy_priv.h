/*
 * Inside core/policy: compiled patterns, the index over them, and the table itself. Nothing here is
 * for other folders, except that tests and fuzzers of this folder look inside.
 */
#ifndef BR_POLICY_PRIV_H
#define BR_POLICY_PRIV_H

#include "policy/policy.h"

/* Every value of a table of BR_RULES_MAX rules, twelve members each and a command of ten, with keys
 * and room to spare. */
#define TABLE_NODES_MAX 600000u
/* document, rules, rule, command, words, alternatives; two to spare so that the typed error names
 * the place */
#define TABLE_DEPTH_MAX 8u
#define TABLE_CONDITIONS_MAX 10000u
#define TABLE_PROGRAMS_MAX 256u
#define RULE_CONDITIONS_MAX 16u
#define CONDITION_PATTERNS_MAX 256u
#define TABLE_FALLBACKS_MAX 1000u
#define TABLE_SOURCES 3u
/* RFC 1035: a host name is at most 253 characters */
#define HOST_MAX 253u
#define RANK_NONE UINT32_MAX

/* ---- arena: everything that a table owns, freed at once ---- */

struct br_arena_chunk;
struct br_arena {
    struct br_arena_chunk *chunks;
};
/* Zeroed, aligned for any type; NULL when there is no memory. */
void *br_arena_alloc(struct br_arena *a, size_t size);
/* A NUL-terminated copy. */
char *br_arena_strndup(struct br_arena *a, const char *s, size_t n);
void br_arena_free(struct br_arena *a);

/* ---- patterns ---- */

enum br_match_kind {
    BR_MATCH_ANY = 0,
    BR_MATCH_PATH,
    BR_MATCH_COMMAND,
    BR_MATCH_HOST,
    BR_MATCH_TEXT,
    BR_MATCH_PROGRAM, /* its pattern is for the program's name; the rule has a br_command */
};

/* What is between the literal prefix and the literal suffix of a pattern. */
enum br_form {
    BR_FORM_EXACT, /* nothing: prefix is the whole pattern */
    BR_FORM_STAR,  /* one '*' of a path: anything but the separator */
    BR_FORM_ALL,   /* one star that crosses everything */
    BR_FORM_DIRS,  /* a leading or inner "**" segment: nothing, or anything that ends in '/' */
    BR_FORM_TREE,  /* a trailing "**" segment: the directory itself, or anything below it */
    BR_FORM_NFA,   /* anything else */
};

struct br_nfa;
struct br_pattern {
    const char *prefix;
    const char *suffix;
    const struct br_nfa *nfa; /* BR_FORM_NFA only */
    const char *port;         /* host only; NULL: any port, or none */
    uint16_t plen;
    uint16_t slen;
    uint8_t form; /* enum br_form */
    uint8_t kind; /* enum br_match_kind */
    bool assigns; /* of a list of texts: it has '=' in it */
};

/*
 * Compile n bytes of pattern; `out` points into the arena. -BR_E_INVALID_TABLE for what is not a
 * pattern of this kind (empty, too long, not UTF-8, NUL), -BR_E_NOMEM.
 */
int br_pattern_compile(enum br_match_kind kind, const char *s, size_t n, struct br_arena *a,
                       struct br_pattern *out);
/*
 * Does it match the n bytes? For a command they are the words joined by NUL, for a host the
 * lower-case host without port. O(n * ceil(pattern / 64)), no allocation.
 */
bool br_pattern_match(const struct br_pattern *p, const char *s, size_t n);

/* Split "host", "host:port", "[v6]:port". *port is NULL if there is none. */
void br_host_split(const char *s, size_t n, size_t *host_len, const char **port, size_t *port_len);
/* A subject that a host matcher may judge: name or address, and a port without leading zeros. */
bool br_host_valid(const char *s, size_t n);
/* A subject that a path matcher may judge: relative, no empty, "." or ".." segment, no NUL; or "."
 * alone, the workspace. */
bool br_path_valid(const char *s, size_t n);

struct br_patterns {
    struct br_pattern *list;
    uint32_t n;
};
/* One of them matches the text of n bytes. */
bool br_patterns_match(const struct br_patterns *p, const char *s, size_t n);

/* ---- conditions (condition.c) ---- */

struct br_limit {
    uint64_t limit;
    uint8_t counter; /* enum br_counter */
    bool left;       /* what is left, not what was used */
    bool under;
};
struct br_condition {
    struct br_patterns tool, model, env, env_only; /* none: no such condition */
    bool has_env_only;                             /* env_only: [] is "no change at all" */
    bool has_time, local;
    uint8_t days;
    uint16_t from, to;
    int32_t zone;
    struct br_limit *limits;
    uint32_t nlimits;
};
enum br_truth { BR_NO, BR_YES, BR_UNKNOWN };
/* Does it hold; unknown if what it speaks of is absent. c may be NULL: nothing is known. */
enum br_truth br_condition_test(const struct br_condition *k, const struct br_context *c);

/* ---- structured commands (command.c) ---- */

struct br_command;
struct br_program;
/* Do the words of a simple command, whose program's name matched already, match the rest. `allow`:
 * what cannot be told counts as no. */
bool br_command_match(const struct br_command *c, bool allow, const char *const *words, size_t n);
/* What the index finds a rule by: the program and its words, each with the NUL that ends it, up to
 * the first that is a pattern or one of several; of a program that is a pattern, its prefix. */
const char *br_command_key(const struct br_command *c, size_t *n);
/*
 * The same of the words of a request, as far as they are certain, into buf: q->s, q->n, q->name,
 * and whether rules with a longer key may match as well (q->open).
 */
struct br_probe_subject;
void br_command_probe(const struct br_table *t, const char *const *words, size_t n, char *buf,
                      size_t size, struct br_probe_subject *q);

/* ---- index: which patterns can match a subject at all ---- */

struct br_strentry {
    uint64_t key; /* the first eight bytes, big endian: most comparisons end here */
    const char *s;
    uint32_t len;
    uint32_t parent; /* the longest other entry that is a prefix of this one; RANK_NONE */
    uint32_t first;  /* into ranks */
    uint32_t count;
};
/* Sorted literal prefixes, or suffixes read backwards, each with the rules that have it. */
struct br_strindex {
    struct br_strentry *entries;
    uint32_t *ranks;
    uint32_t n;
    bool reversed;
};

/* Subjects that are looked at the same way share a view. */
enum br_view_kind { BR_VIEW_SUBJECT, BR_VIEW_WORDS, BR_VIEW_HOST, BR_VIEW_PROGRAM, BR_VIEWS };
struct br_view {
    struct br_strindex prefixes;
    struct br_strindex suffixes;
    uint32_t *scan; /* rules without a literal end, by rank */
    uint32_t nscan;
    bool used;
};

/* The rules of one action. */
struct br_bucket {
    const char *action;
    struct br_view views[BR_VIEWS];
    uint32_t any[TABLE_SOURCES]; /* best rank of a rule that always matches */
    uint32_t *some;              /* rules that match where their conditions hold, by rank */
    uint32_t nsome;
    uint32_t fallback[TABLE_SOURCES]; /* into fallbacks; RANK_NONE */
    bool has_path;
    bool has_host;
};

struct br_rule {
    struct br_pattern pattern;
    const char *id;
    const char *action;
    const char *text; /* the pattern as written */
    const char *reason;
    const char *file; /* may be NULL */
    uint32_t line;
    uint32_t text_len;
    uint32_t index;                   /* in the JSON */
    const struct br_command *command; /* BR_MATCH_PROGRAM only */
    const uint16_t *when;             /* into conditions, sorted */
    uint8_t nwhen;
    uint8_t source; /* enum br_source */
    uint8_t effect; /* enum br_effect */
};

/* Declared sources are numbered by kind, so that "no manifest" needs no special case. */
enum br_source { BR_SOURCE_PROFILE = 0, BR_SOURCE_OPERATOR = 1, BR_SOURCE_MANIFEST = 2 };

struct br_fallback {
    const char *id;
    const char *action;
    const char *reason; /* of an operator's; may be NULL */
    const char *file;   /* may be NULL */
    uint32_t line;
    uint8_t source;
    uint8_t effect;
};

struct br_table {
    struct br_arena arena;
    /* Sorted by source, then by precedence within it: the first that matches is the vote. The
     * index of a rule is its rank. */
    struct br_rule *rules;
    uint32_t nrules;
    struct br_fallback *fallbacks;
    uint32_t nfallbacks;
    struct br_condition *conditions;
    uint32_t nconditions;
    struct br_program *programs;
    uint32_t nprograms;
    struct br_bucket *buckets; /* sorted by action, "*" excluded */
    uint32_t nbuckets;
    struct br_bucket star; /* rules for every action */
    uint8_t sha256[32];
    bool predicates;
};

/* Sort the rules by rank and build the buckets. -BR_E_NOMEM. */
int br_index_build(struct br_table *t);
/* The bucket of an action, NULL if no rule or fallback names it. */
const struct br_bucket *br_index_bucket(const struct br_table *t, const char *action);

/* What is looked for in the buckets: the subject, and the best rank of each source so far. */
struct br_probe_subject {
    const char *s;
    size_t n;
    const char *port; /* NULL: none; host view only */
    size_t port_len;
    const char *const *words; /* program view only, where s is a br_command_key() */
    size_t nwords;
    size_t name; /* length of the program's name, which s begins with */
    bool open;   /* entries that s is a prefix of are looked at as well */
    /* by rank: where to note what became of every rule that was looked at, as enum br_match_result;
     * NULL: the best is enough */
    uint8_t *matched;
    const struct br_context *context; /* may be NULL */
};
/* The conditions of a rule: what is absent counts against an allow, and for an ask or a deny. */
bool br_rule_applies(const struct br_table *t, const struct br_rule *r, const struct br_context *c);
enum br_match_result {
    BR_MISSED = 0,
    BR_MATCHED, /* by its pattern, its port and its conditions */
    BR_UNMET,   /* all but its conditions */
};
enum br_match_result br_rule_match(const struct br_table *t, const struct br_rule *r,
                                   const struct br_probe_subject *q);
void br_index_find(const struct br_table *t, const struct br_view *v,
                   const struct br_probe_subject *q, uint32_t best[TABLE_SOURCES]);

/* ---- words that are known only in part (uncertain.c) ---- */

bool br_word_is_unknown(const char *word);
/* br_command_match() where some of the words are. */
bool br_command_match_uncertain(const struct br_command *c, bool allow, const char *const *words,
                                size_t n);
struct br_uncertain {
    const struct br_rule *best[TABLE_SOURCES]; /* NULL: none can match */
    bool certain[TABLE_SOURCES];               /* manifest: a rule matches in any case */
};
/* The rule of each source that decides. `joined`: the words joined by NUL. */
void br_uncertain_find(const struct br_table *t, const struct br_request *q, const char *joined,
                       size_t len, uint8_t *matched, struct br_uncertain *out);

/* br_table_decide(); `matched`, unless NULL, receives a 1 for every rule (by rank) that matched. */
void br_decide_noting(const struct br_table *t, const struct br_request *q, uint8_t *matched,
                      struct br_decision *d);
/* "profile", "operator", "manifest". */
const char *br_source_name(unsigned source);

#endif
