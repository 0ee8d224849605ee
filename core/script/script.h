/*
 * core/script: sandboxed Lua states, the documents that they read (JSON, YAML), and what is
 * compiled with them: policies, manifests, configuration, adapter glue. Private to bridle-script,
 * its tests and fuzzers; only argv.h is for other programs.
 *
 * Lua is not a boundary (docs/decisions/0030): a state has an allocator cap, no way to load code,
 * no coroutines, no finalizers, bounded library functions and a deadline in CPU time, and the
 * process around it has the kernel's limits and a supervisor with a clock of its own.
 */
#ifndef BR_SCRIPT_H
#define BR_SCRIPT_H

#include <jansson.h>
#include <lauxlib.h>
#include <lua.h>
#include <signal.h>
#include <time.h>

#include "base/base.h"
#include "script/pool.h"
#include "wire/types.h"

/* ---- limits ------------------------------------------------------------------------------- */

#ifdef BR_SANITIZED
#define BR_SCRIPT_SLOW 2u /* what sanitizers cost */
#else
#define BR_SCRIPT_SLOW 1u
#endif

/* Memory of one state: a policy of 10,000 rules takes 12 MiB. */
#define BR_SCRIPT_MEMORY_MAX (64u * 1024 * 1024)
/* Of the process: two states, the documents, the libraries. */
#define BR_SCRIPT_AS_MAX (256u * 1024 * 1024)
/* A string that a library function builds. */
#define BR_SCRIPT_STRING_MAX (16u * 1024 * 1024)
/* Elements that one call of a table function walks. */
#define BR_SCRIPT_TABLE_MAX 1000000u
/* Steps of one pattern match, and more for each byte of its subject: linear patterns never meet
 * it, an exponential one does after some milliseconds. */
#define BR_SCRIPT_PATTERN_STEPS 1000000u
#define BR_SCRIPT_PATTERN_STEPS_PER_BYTE 64u
/* CPU time of one call. The peer's wall clock is the real limit; this one makes good errors. */
#define BR_SCRIPT_COMPILE_US (2000000u * BR_SCRIPT_SLOW)
#define BR_SCRIPT_PREDICATE_US (250000u * BR_SCRIPT_SLOW)
#define BR_SCRIPT_ADAPT_US (2000000u * BR_SCRIPT_SLOW)
#define BR_SCRIPT_INSPECT_US (2000000u * BR_SCRIPT_SLOW)
/* After the deadline of a call plus this, the kernel ends the process. */
#define BR_SCRIPT_HARD_US (1000000u * BR_SCRIPT_SLOW)
/* JSON that is exchanged with a state: a table of 10,000 rules has up to 400,000 values. */
#define BR_SCRIPT_NODES_MAX 600000u

/* Errors of one policy that are shown. */
#define BR_SCRIPT_PROBLEMS_MAX 20u

/* Of the registry: the function of policy.lua that gives the data of a bundle. */
#define BR_SCRIPT_BUNDLE_DATA "bridle.bundle"

/* ---- a state ------------------------------------------------------------------------------ */

/* What a text is for, and with it what it may require: bits, as core/script/api.def names them. */
enum br_api_purpose {
    BR_API_POLICY = 1,
    BR_API_CONFIG = 2,
    BR_API_PROFILE = 4,
    BR_API_ADAPTER = 8,
};

struct br_script {
    lua_State *L;
    unsigned purpose; /* of the texts that are loaded; 0: any */
    size_t used;      /* bytes */
    size_t cap;
    struct br_pool pool;
    uint64_t cpu_end_us; /* of the present call; 0 outside of one */
    uint64_t cost;       /* work of library functions since the clock was last looked at */
    bool expired;        /* the present call has passed its deadline, or was interrupted */
    volatile sig_atomic_t interrupted; /* set it, also in a signal handler, to stop the call */
    bool trace_lines;                  /* keep last_line up to date: slow */
    unsigned last_line;                /* the last line of the operator's chunk that ran */
    bool hard_timer;                   /* the kernel tells the deadline, and ends the process when
                                          a call overruns it; SIGPROF is the state's then */
    bool polled;     /* look at the clock and at `interrupted` all the time: slower */
    bool timer_made; /* for that */
    timer_t timer;
    char chunk[64]; /* the name of the operator's chunk in messages, "policy.lua" */
    char traceback[1024];
    unsigned error_line; /* of the last failed call, in the operator's chunk; 0 unknown */
    bool collecting;     /* a policy's errors are noted, as far as each leaves a next one */
    json_t *problems;    /* array of at most BR_SCRIPT_PROBLEMS_MAX texts, while collecting */
    unsigned nproblems;  /* that there were */
};

/* Tests: states that are made from now on have every block of malloc(). */
extern bool br_script_plain_memory;
/* A state with the sandbox's globals; NULL without memory. */
struct br_script *br_script_new(size_t memory_max);
void br_script_free(struct br_script **s);
/* The state behind a lua_State. */
struct br_script *br_script_of(lua_State *L);

/*
 * Compile operator text (never bytecode) and push the function. `path` names it in messages, by its
 * last component. [-0, +1 on success]. -`code` with the message, and error_line set.
 */
int br_script_load(struct br_script *s, const char *path, const void *text, size_t n,
                   enum br_code code, struct br_err *err);

/*
 * The one entry into Lua: calls the function below its nargs arguments, [-(nargs + 1), +nresults]
 * on success and [-(nargs + 1), +0] on failure, within cpu_us of CPU time. Failure is -`code` with
 * a message that names chunk and line.
 */
int br_script_call(struct br_script *s, int nargs, int nresults, uint64_t cpu_us, enum br_code code,
                   struct br_err *err);

/* Push what `require` gives for an embedded module. [-0, +1 on success]. Trusted code; bounded by
 * the compile deadline. */
int br_script_require(struct br_script *s, const char *module, struct br_err *err);

/* The line of the innermost function of the operator's chunk that runs; 0 if none does. */
unsigned br_script_line(lua_State *L, const struct br_script *s);
/* A message without the position inside an embedded module, which tells the operator nothing. */
const char *br_script_without_module(const char *text);

/* Called by library functions: `n` units of work (bytes, elements) were done. Raises an error
 * behind the deadline. */
void br_script_tick(lua_State *L, uint64_t n);
/* Raises if the present call is over its deadline, whatever pcall made of it. */
void br_script_check(lua_State *L);

/* ---- libraries (lib.c, table.c, pattern.c) ---- */

/* Builds the environments that the two below push, and pushes the module `json`. `require` is that
 * of embedded modules. [-0, +1, m] */
void br_script_open_env(lua_State *L, lua_CFunction require);
/* Replaces the table on top by a read-only view in which reading an absent key is an error that
 * names the nearest one. `name` is how messages call it. [-1, +1, m] */
void br_script_lock(lua_State *L, const char *name);
/* Push the environment of embedded modules, and that of an operator's text. [-0, +1] */
void br_script_push_env(lua_State *L);
void br_script_push_operator_env(lua_State *L);
/* Raises unless the API has a module of this name for the purpose of the state. */
void br_script_check_module(lua_State *L, const char *name);

/* ---- the module bridle.host (host.c, quick.c) ---- */

/* Pushes it. [-0, +1, m] */
void br_script_open_host(lua_State *L, lua_CFunction require);
/* If the value at idx is a list that is JSON already, that text without its last ']'. [-0, +0] */
const struct br_buf *br_script_rows(lua_State *L, int idx);
int br_quick_rule(lua_State *L);
int br_quick_names(lua_State *L);

/* ---- JSON (json.c) ---- */

/* To be called before the first use of jansson; br_script_new() does. */
void br_script_watch_json(void);
/* Text to tree: scan, then a strict parse. Owned by the caller. */
int br_script_json_parse(const void *text, size_t n, unsigned max_nodes, json_t **out,
                         unsigned *line, struct br_err *err);
/* The text of a tree, keys sorted, or NULL; the caller frees it. */
char *br_script_json_dump(const json_t *tree);
/* Push a Lua value for a tree. [-0, +1, m] Takes the tree, unless it raises before it could; *tree
 * is NULL when it is taken. */
void br_script_json_push(lua_State *L, json_t **tree);
/*
 * Push a copy of the table on top of another state's stack, and pop that: plain data, which share
 * nothing and have no metatables but the mark of arrays. [-0, +1, m] Raises in L, after which the
 * stack of `from` holds what it holds.
 */
void br_script_copy(lua_State *L, lua_State *from);
/* Append the JSON text of the value at idx, keys sorted. [-0, +0, m] 0 or -BR_E_INVALID_JSON,
 * -BR_E_LIMIT_EXCEEDED. */
int br_script_json_encode(lua_State *L, int idx, struct br_buf *out, struct br_err *err);
/* Make what the functions of the `json` module need, and add its constants to the table on top.
 * [-0, +0, m] */
void br_script_open_json(lua_State *L);

/* ---- read-only views of data (view.c), and values for people (print.c) ---- */

/* Push a view of the plain table at idx: it reads like the table, so do the tables in it, and no
 * script can write to any of them. Other values are pushed as they are. [-0, +1, m] */
void br_script_view_push(lua_State *L, int idx);
/* If the value at idx is a view, push the table behind it. [-0, +(0|1)] */
bool br_script_view_open(lua_State *L, int idx);

struct br_print_limits {
    unsigned depth;  /* of tables in tables */
    unsigned items;  /* of one table */
    unsigned string; /* bytes of one text */
    unsigned width;  /* a table that fits stays on one line */
};
#define BR_PRINT_DEPTH_MAX 32u
/*
 * Append the value at idx as Lua would write it; out->max bounds it. What is left out is said where
 * it would be, control characters are escapes, and no function of a script is called. [-0, +0, m]
 */
void br_script_print(lua_State *L, int idx, const struct br_print_limits *limits,
                     struct br_buf *out);

/* ---- YAML (yaml.c) ---- */

/*
 * A manifest's YAML: one document of mappings, sequences and scalars; everything else is refused.
 * `tree` and `marks` (an object from the path of a value to its line) are the caller's. On failure
 * *line is where. -BR_E_INVALID_MANIFEST.
 */
int br_yaml_parse(const void *text, size_t n, json_t **tree, json_t **marks, unsigned *line,
                  struct br_err *err);

/* ---- embedded modules (the table is made by CMakeLists.txt) ---- */

struct br_script_module {
    const char *name; /* "bridle.policy" */
    const char *file; /* "bridle/policy.lua" */
    const char *text;
    const unsigned *len;
};
extern const struct br_script_module br_script_modules[];
extern const unsigned br_script_nmodules;

/* ---- what is compiled (compile.c) ---- */

/* What a caller who compiles again and again keeps in between: a fuzzer does. */
struct br_compile_kept {
    json_t *profile;             /* of the first time */
    struct br_script *assembler; /* in which profile, rules and manifest are put together */
};
void br_compile_kept_free(struct br_compile_kept *k);

struct br_compile_in {
    struct br_compile_kept *kept; /* NULL: nothing is */
    const char *profile_path; /* or, without a text, the name of a built-in one; "" the default */
    const void *profile;
    size_t profile_len;
    const char *policy_path;
    const void *policy; /* empty: the embedded default */
    size_t policy_len;
    const char *manifest_path;
    const void *manifest; /* empty: one is made from the goal */
    size_t manifest_len;
    bool manifest_in_workspace;
    const void *goal;
    size_t goal_len;
    const char *const *allowed; /* default allowed paths */
    uint32_t nallowed;
};

struct br_compile_out {
    struct br_buf table;    /* JSON */
    struct br_buf manifest; /* JSON */
    struct br_buf launch;   /* JSON: what the profile makes of the launch plan */
    json_t *warnings;       /* array of text */
    json_t *errors;         /* the same, of a policy with several errors; NULL otherwise */
    char check_file[128];   /* where the bundle's one check is; "" if there is none */
    unsigned check_line;
    char file[BR_PATH_MAX]; /* of an error */
    unsigned line;
};
void br_compile_out_init(struct br_compile_out *o);
void br_compile_out_free(struct br_compile_out *o);

/* Evaluate the operator's bundle in `s`, which then answers br_compile_vote(); compile it with
 * profile and manifest in a state of its own. */
int br_compile(struct br_script *s, const struct br_compile_in *in, struct br_compile_out *out,
               struct br_err *err);
/* Run the bundle's predicates. *effect is none, ask or deny, and `id` the one that said so. */
int br_compile_vote(struct br_script *s, const void *request, size_t n, enum br_effect *effect,
                    char id[BR_NAME_MAX], struct br_buf *reason, struct br_err *err);
/* Evaluate a configuration; `out` receives it as JSON. */
int br_compile_config(struct br_script *s, const char *path, const void *text, size_t n,
                      json_t **out, struct br_err *err);
/* Check a manifest; its id, and what its budget says (0: nothing). -BR_E_INVALID_MANIFEST. */
struct br_compile_task {
    char id[BR_NAME_MAX];
    uint64_t tokens, tool_calls;
};
int br_compile_task(struct br_script *s, const char *path, const void *text, size_t n,
                    struct br_compile_task *out, struct br_err *err);
/* The pair of adapter and profile that a manifest declares; "" for none. Nothing else of it is
 * looked at. -BR_E_INVALID_MANIFEST. */
int br_compile_declared(struct br_script *s, const char *path, const void *text, size_t n,
                        char *adapter, size_t nadapter, char *profile, size_t nprofile,
                        struct br_err *err);
/*
 * Evaluate an adapter.lua (n 0: the one that is built in; -BR_E_NOT_FOUND if there is none); `out`
 * receives, as JSON, what concerns the profile, and `sha256` the hash of the text.
 */
int br_compile_adapter(struct br_script *s, const char *ref, const char *profile, const char *path,
                       const void *text, size_t n, json_t **out, uint8_t sha256[32],
                       struct br_err *err);

#endif
