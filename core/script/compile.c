/*
 * What bridle-script compiles: an operator's bundle, a task manifest, a configuration. The bundle
 * runs in the state that it is given and leaves data and a predicate behind; profile, exported
 * rules and manifest are put together in a second state that never ran anything of the operator's.
 * The texts are hostile; the results are checked again by whoever receives them (core/policy).
 */
#include <stdlib.h>
#include <string.h>

#include "script/script.h"

extern const char br_embed_policy_default[];
extern const unsigned br_embed_policy_default_len;

static const char bundle_key = 0, data_key = 0;

#define DEFAULT_POLICY_NAME "policy/default.lua (built in)"
#define REASON_MAX 512u

void br_compile_out_init(struct br_compile_out *o)
{
    memset(o, 0, sizeof(*o));
    br_buf_init(&o->table, BR_TABLE_MAX);
    br_buf_init(&o->manifest, 4 * BR_GOAL_MAX);
    br_buf_init(&o->launch, BR_LAUNCH_JSON_MAX);
}

void br_compile_out_free(struct br_compile_out *o)
{
    br_buf_free(&o->table);
    br_buf_free(&o->manifest);
    br_buf_free(&o->launch);
    json_decref(o->warnings);
    json_decref(o->errors);
    o->warnings = o->errors = NULL;
}

void br_compile_kept_free(struct br_compile_kept *k)
{
    json_decref(k->profile);
    k->profile = NULL;
    br_script_free(&k->assembler);
}

static void set_place(struct br_compile_out *out, const char *file, unsigned line)
{
    snprintf(out->file, sizeof(out->file), "%s", file ? file : "");
    out->line = line;
}

/* Encode into `out` or raise. */
static void encode_or_raise(lua_State *L, int idx, struct br_buf *out)
{
    struct br_err err = {.code = BR_OK};
    if (br_script_json_encode(L, idx, out, &err) < 0)
        luaL_error(L, "%s", err.text);
}

/* Push require(module)[field]; runs inside a call. */
static void push_member(lua_State *L, const char *module, const char *field)
{
    br_script_push_env(L);
    lua_getfield(L, -1, "require");
    lua_remove(L, -2);
    lua_pushstring(L, module);
    lua_call(L, 1, 1);
    lua_getfield(L, -1, field);
    lua_remove(L, -2);
}

/* ---- the bundle ---- */

/* (result, bundle): keeps the bundle and its data, which policy.lua gives to nobody else, and notes
 * where its check is. */
static int export_bundle(lua_State *L)
{
    struct br_compile_out *out = lua_touserdata(L, 1);
    lua_settop(L, 2);
    push_member(L, "bridle.policy", "export"); /* it is loaded, whatever the text did */
    lua_getfield(L, LUA_REGISTRYINDEX, BR_SCRIPT_BUNDLE_DATA);
    lua_pushvalue(L, 2);
    lua_call(L, 1, 1);
    if (lua_getfield(L, -1, "check") == LUA_TTABLE) {
        lua_getfield(L, -1, "file");
        lua_getfield(L, -2, "line");
        snprintf(out->check_file, sizeof(out->check_file), "%s", lua_tostring(L, -2));
        out->check_line = (unsigned)lua_tointeger(L, -1);
    }
    lua_settop(L, 4); /* the data */
    lua_rawsetp(L, LUA_REGISTRYINDEX, &data_key);
    lua_pushvalue(L, 2);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &bundle_key);
    return 0;
}

/*
 * `return f { ... }` is a tail call: when f raises, the operator's line has left the stack. The
 * sandbox has no clock, no randomness and no input, so that the text runs to the same place again;
 * this time with its lines counted.
 */
static void locate(struct br_script *s, const char *path, const void *text, size_t n,
                   struct br_err *err)
{
    size_t len = strlen(s->chunk);
    if (s->error_line || s->expired || strncmp(err->text, s->chunk, len) != 0 ||
        strncmp(err->text + len, ": ", 2) != 0)
        return;
    struct br_err ignored = {.code = BR_OK};
    s->trace_lines = true;
    if (br_script_load(s, path, text, n, BR_E_FAILED, &ignored) == 0)
        (void)br_script_call(s, 0, 0, BR_SCRIPT_COMPILE_US, BR_E_FAILED, &ignored);
    s->trace_lines = false;
    s->error_line = s->last_line;
    if (!s->error_line)
        return;
    char rest[BR_ERR_TEXT_MAX];
    snprintf(rest, sizeof(rest), "%s", err->text + len + 2);
    br_err_set(err, err->code, "%s:%u: %s", s->chunk, s->error_line, rest);
}

/* Run an operator's text, then `take` (a C function of `out` and the text's value). */
static int evaluate(struct br_script *s, const char *path, const void *text, size_t n,
                    lua_CFunction take, void *out, enum br_code code, struct br_err *err)
{
    int r = br_script_load(s, path, text, n, code, err);
    if (r < 0)
        return r;
    r = br_script_call(s, 0, 1, BR_SCRIPT_COMPILE_US, code, err);
    if (r == 0) {
        lua_pushcfunction(s->L, take);
        lua_insert(s->L, -2);
        lua_pushlightuserdata(s->L, out);
        lua_insert(s->L, -2);
        r = br_script_call(s, 2, 0, BR_SCRIPT_COMPILE_US, code, err);
    }
    if (r < 0)
        locate(s, path, text, n, err);
    return r;
}

/* "and N more" at the end of a list of problems, of which n were found. */
static void end_problems(json_t *list, size_t n)
{
    char text[48];
    if (n <= json_array_size(list))
        return;
    snprintf(text, sizeof(text), "and %zu more", n - json_array_size(list));
    (void)json_array_append_new(list, json_string(text));
}

/* Say behind the first error that there are others. */
static void say_more(struct br_err *err, size_t n)
{
    size_t at = strlen(err->text);
    if (n > 0)
        snprintf(err->text + at, sizeof(err->text) - at, " (and %zu more)", n);
}

/*
 * The text has failed: it runs once more, to the same places (see locate()), and this time a rule
 * that is wrong is noted and left out. Only what it notes counts, and where it ends.
 */
static void collect_problems(struct br_script *s, const struct br_compile_in *in,
                             struct br_compile_out *out, struct br_err *err)
{
    struct br_err last = {.code = BR_OK};
    bool over = s->expired || s->interrupted;
    json_t *problems = over ? NULL : json_array();
    if (!problems)
        return;
    s->problems = problems;
    s->nproblems = 0;
    s->collecting = s->trace_lines = true;
    int top = lua_gettop(s->L);
    if (br_script_load(s, in->policy_path, in->policy, in->policy_len, BR_E_FAILED, &last) == 0)
        (void)br_script_call(s, 0, 0, BR_SCRIPT_COMPILE_US, BR_E_FAILED, &last);
    lua_settop(s->L, top);
    s->collecting = s->trace_lines = false;
    s->problems = NULL;
    if (last.code != BR_OK && !s->expired && s->nproblems > 0) {
        if (json_array_size(problems) < BR_SCRIPT_PROBLEMS_MAX)
            (void)json_array_append_new(problems, json_string(last.text));
        s->nproblems++;
    }
    if (s->nproblems > 1) {
        end_problems(problems, s->nproblems);
        say_more(err, s->nproblems - 1);
        out->errors = json_incref(problems);
    }
    json_decref(problems);
}

static int evaluate_bundle(struct br_script *s, const struct br_compile_in *in,
                           struct br_compile_out *out, struct br_err *err)
{
    bool own = in->policy_len > 0;
    return evaluate(s, own ? in->policy_path : "default.lua",
                    own ? in->policy : br_embed_policy_default,
                    own ? in->policy_len : br_embed_policy_default_len, export_bundle, out,
                    BR_E_INVALID_POLICY, err);
}

/* ---- the profile ---- */

static int export_profile(lua_State *L)
{
    struct br_buf *out = lua_touserdata(L, 1);
    lua_settop(L, 2);
    push_member(L, "bridle.profile", "load");
    lua_pushvalue(L, 2);
    lua_call(L, 1, 1);
    encode_or_raise(L, -1, out);
    return 0;
}

/* The text of a built-in profile; "" is the default one. */
static const struct br_script_module *builtin_profile(const char *name)
{
    char module[BR_NAME_MAX];
    snprintf(module, sizeof(module), "profiles.%s", name && *name ? name : "run-v1");
    for (unsigned i = 0; i < br_script_nmodules; i++)
        if (strcmp(br_script_modules[i].name, module) == 0)
            return &br_script_modules[i];
    return NULL;
}

/* In a state of its own, which nothing of policy or manifest ran in. *profile is the caller's. */
static int evaluate_profile(struct br_script *s, const struct br_compile_in *in, json_t **profile,
                            struct br_compile_out *out, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf json = BR_BUF_INIT(BR_LAUNCH_JSON_MAX);
    const char *path = in->profile_path;
    const void *text = in->profile;
    size_t n = in->profile_len;
    *profile = NULL;
    if (n == 0) {
        const struct br_script_module *m = builtin_profile(path);
        if (!m)
            return br_err_set(err, BR_E_NOT_FOUND, "there is no profile '%s'", path);
        path = m->file;
        text = m->text;
        n = *m->len;
    }
    struct br_script *p = br_script_new(BR_SCRIPT_MEMORY_MAX);
    if (!p)
        return br_err_set(err, BR_E_NOMEM, "no memory to compile the profile");
    p->purpose = BR_API_PROFILE;
    p->hard_timer = s->hard_timer;
    int r = evaluate(p, path, text, n, export_profile, &json, BR_E_INVALID_PROFILE, err);
    if (r < 0)
        set_place(out, path, p->error_line);
    br_script_free(&p);
    if (r == 0)
        r = br_script_json_parse(json.data, json.len, BR_JSON_NODES_MAX, profile, NULL, err);
    if (r < 0)
        return r;
    BR_CLEANUP_FREE char *launch = br_script_json_dump(json_object_get(*profile, "launch"));
    if (launch && br_buf_put(&out->launch, launch, strlen(launch)) == 0)
        return 0;
    json_decref(*profile);
    *profile = NULL;
    return br_err_set(err, BR_E_NOMEM, "no memory to compile the profile");
}

/* ---- the manifest ---- */

static int parse_manifest(const struct br_compile_in *in, json_t **tree, json_t **marks,
                          unsigned *line, struct br_err *err)
{
    const char *text = in->manifest;
    size_t blank = 0;
    *tree = *marks = NULL;
    *line = 0;
    if (in->manifest_len > BR_MANIFEST_MAX)
        return br_err_set(err, BR_E_INVALID_MANIFEST, "the manifest is longer than %u bytes",
                          BR_MANIFEST_MAX);
    while (blank < in->manifest_len && strchr(" \t\r\n", text[blank]) && text[blank])
        blank++;
    if (blank == in->manifest_len)
        return br_err_set(err, BR_E_INVALID_MANIFEST, "the manifest is empty");
    if (text[blank] != '{')
        return br_yaml_parse(text, in->manifest_len, tree, marks, line, err);
    int r = br_script_json_parse(text, in->manifest_len, BR_JSON_NODES_MAX, tree, line, err);
    if (r < 0)
        err->code = BR_E_INVALID_MANIFEST;
    return r;
}

/* ---- profile + operator + manifest ---- */

struct job {
    json_t *input;          /* taken by the call */
    struct br_script *from; /* where the bundle ran */
    struct br_compile_out *out;
    int code; /* of a refusal */
    unsigned line;
    char text[BR_ERR_TEXT_MAX];
};

static int code_of(const char *name)
{
    for (int c = 1; name && c < BR_CODE_COUNT_; c++)
        if (strcmp(br_code_name(c), name) == 0)
            return c;
    return BR_E_INVALID_MANIFEST;
}

/* The list of problems on top, if it is one. */
static void take_errors(lua_State *L, json_t **out)
{
    size_t n = lua_istable(L, -1) ? lua_rawlen(L, -1) : 0;
    json_t *list = n > 1 ? json_array() : NULL;
    for (size_t i = 1; list && i <= n && i <= BR_SCRIPT_PROBLEMS_MAX; i++) {
        lua_rawgeti(L, -1, (lua_Integer)i);
        const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : NULL;
        (void)json_array_append_new(list, json_string(text ? text : "?"));
        lua_pop(L, 1);
    }
    if (list)
        end_problems(list, n);
    *out = list;
}

/* The list of texts on top becomes `out`; all of them, or it raises. */
static void take_warnings(lua_State *L, json_t **out)
{
    *out = json_array();
    int r = *out ? 0 : -1;
    for (lua_Integer i = 1; r == 0 && i <= (lua_Integer)lua_rawlen(L, -1); i++) {
        lua_rawgeti(L, -1, i);
        size_t n;
        const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, &n) : NULL;
        if (text)
            r = json_array_append_new(*out, json_stringn(text, n));
        lua_pop(L, 1);
    }
    if (r < 0)
        luaL_error(L, "no memory for the warnings");
}

static int run_compile(lua_State *L)
{
    struct job *job = lua_touserdata(L, 1);
    push_member(L, "bridle.compile", "run");
    br_script_json_push(L, &job->input);
    lua_State *from = job->from->L;
    int top = lua_gettop(from);
    lua_rawgetp(from, LUA_REGISTRYINDEX, &data_key);
    br_script_copy(L, from);
    br_require(lua_gettop(from) == top);
    lua_setfield(L, -2, "policy");
    lua_call(L, 1, 1);
    if (lua_getfield(L, -1, "error") == LUA_TTABLE) {
        lua_getfield(L, -1, "code");
        lua_getfield(L, -2, "text");
        lua_getfield(L, -3, "line");
        job->code = code_of(lua_tostring(L, -3));
        const char *text = lua_tostring(L, -2);
        snprintf(job->text, sizeof(job->text), "%s", text ? text : "the manifest is invalid");
        job->line = (unsigned)lua_tointeger(L, -1);
        lua_getfield(L, -4, "all");
        take_errors(L, &job->out->errors);
        return 0;
    }
    lua_pop(L, 1);
    lua_getfield(L, -1, "table");
    encode_or_raise(L, -1, &job->out->table);
    lua_getfield(L, -2, "manifest");
    encode_or_raise(L, -1, &job->out->manifest);
    lua_getfield(L, -3, "warnings");
    take_warnings(L, &job->out->warnings);
    return 0;
}

/* Takes the trees. NULL without memory: nothing may be left out, least of all a manifest. */
static json_t *make_input(const struct br_compile_in *in, json_t *profile, json_t *tree,
                          json_t *marks)
{
    json_t *input = json_object(), *allowed = json_array();
    int r = 0;
    for (uint32_t i = 0; i < in->nallowed; i++)
        r |= json_array_append_new(allowed, json_string(in->allowed[i]));
    r |= json_object_set_new(input, "profile", profile);
    if (tree)
        r |= json_object_set_new(input, "manifest", tree);
    if (marks)
        r |= json_object_set_new(input, "marks", marks);
    r |= json_object_set_new(input, "allowed", allowed);
    r |= json_object_set_new(input, "in_workspace", json_boolean(in->manifest_in_workspace));
    r |= json_object_set_new(input, "goal", json_stringn(in->goal ? in->goal : "", in->goal_len));
    if (r == 0)
        return input;
    json_decref(input);
    return NULL;
}

static int assemble(struct job *job, struct br_compile_kept *kept, struct br_err *err)
{
    struct br_script *c = kept ? br_steal_ptr(&kept->assembler) : NULL;
    if (job->input && !c)
        c = br_script_new(BR_SCRIPT_MEMORY_MAX);
    if (!job->input)
        br_script_free(&c);
    if (!c)
        return br_err_set(err, BR_E_NOMEM, "no memory to compile the policy");
    c->hard_timer = job->from->hard_timer;
    lua_pushcfunction(c->L, run_compile);
    lua_pushlightuserdata(c->L, job);
    int r = br_script_call(c, 1, 0, BR_SCRIPT_COMPILE_US, BR_E_INVALID_POLICY, err);
    if (kept && r == 0)
        kept->assembler = br_steal_ptr(&c);
    br_script_free(&c);
    return r;
}

int br_compile(struct br_script *s, const struct br_compile_in *in, struct br_compile_out *out,
               struct br_err *err)
{
    json_t *profile = NULL, *tree = NULL, *marks = NULL;
    unsigned line = 0;
    int r = 0;
    if (in->kept && in->kept->profile)
        profile = json_incref(in->kept->profile);
    else
        r = evaluate_profile(s, in, &profile, out, err);
    if (r < 0)
        return r;
    if (in->kept && !in->kept->profile)
        in->kept->profile = json_incref(profile);
    r = evaluate_bundle(s, in, out, err);
    set_place(out, in->policy_len ? in->policy_path : DEFAULT_POLICY_NAME, s->error_line);
    if (r < 0 && in->policy_len)
        collect_problems(s, in, out, err);
    if (r < 0) {
        json_decref(profile);
        return r;
    }
    if (in->manifest_len) {
        r = parse_manifest(in, &tree, &marks, &line, err);
        if (r < 0) {
            set_place(out, in->manifest_path, line);
            json_decref(profile);
            return br_err_wrap(err, "'%s'", in->manifest_path);
        }
    }
    struct job job = {.input = make_input(in, profile, tree, marks), .from = s, .out = out};
    int top = lua_gettop(s->L);
    r = assemble(&job, in->kept, err);
    lua_settop(s->L, top); /* what a copy that failed left behind */
    json_decref(job.input);
    if (r < 0)
        return r;
    if (!job.code) {
        set_place(out, "", 0);
        return 0;
    }
    br_err_set(err, (enum br_code)job.code, "%s", job.text);
    if (job.code == BR_E_INVALID_POLICY) { /* the file is the policy's, as set above */
        out->line = job.line;
        return -job.code;
    }
    set_place(out, in->manifest_len ? in->manifest_path : "", job.line);
    if (in->manifest_len && job.line)
        return br_err_wrap(err, "'%s' line %u", in->manifest_path, job.line);
    return in->manifest_len ? br_err_wrap(err, "'%s'", in->manifest_path) : -job.code;
}

/* ---- the predicate ---- */

struct vote {
    json_t *request; /* taken by the call */
    enum br_effect effect;
    struct br_buf *reason;
    char *id; /* BR_NAME_MAX */
};

static int run_vote(lua_State *L)
{
    struct vote *v = lua_touserdata(L, 1);
    push_member(L, "bridle.policy", "vote");
    lua_rawgetp(L, LUA_REGISTRYINDEX, &bundle_key);
    br_script_json_push(L, &v->request);
    lua_call(L, 2, 3);
    if (lua_isnil(L, -3)) {
        v->effect = BR_EFFECT_NONE;
        return 0;
    }
    snprintf(v->id, BR_NAME_MAX, "operator:%s", lua_tostring(L, -1));
    lua_pop(L, 1);
    v->effect = strcmp(lua_tostring(L, -2), "ask") == 0 ? BR_EFFECT_ASK : BR_EFFECT_DENY;
    size_t n = 0;
    const char *text = lua_tolstring(L, -1, &n);
    if (text)
        br_buf_put_visible(v->reason, text, br_utf8_floor(text, n < REASON_MAX ? n : REASON_MAX),
                           true);
    return 0;
}

int br_compile_vote(struct br_script *s, const void *request, size_t n, enum br_effect *effect,
                    char id[BR_NAME_MAX], struct br_buf *reason, struct br_err *err)
{
    struct vote v = {.reason = reason, .id = id};
    id[0] = 0;
    *effect = BR_EFFECT_DENY; /* until the predicate has said something else */
    s->error_line = 0;
    int r = br_script_json_parse(request, n, BR_JSON_NODES_MAX, &v.request, NULL, err);
    if (r < 0)
        return r;
    lua_pushcfunction(s->L, run_vote);
    lua_pushlightuserdata(s->L, &v);
    r = br_script_call(s, 1, 0, BR_SCRIPT_PREDICATE_US, BR_E_POLICY_ERROR, err);
    json_decref(v.request);
    if (r == 0)
        *effect = v.effect;
    return r;
}

/* ---- the configuration ---- */

static int run_config(lua_State *L)
{
    struct br_buf *out = lua_touserdata(L, 1);
    lua_settop(L, 2);
    push_member(L, "bridle.config", "load");
    lua_pushvalue(L, 2);
    lua_call(L, 1, 1);
    encode_or_raise(L, -1, out);
    return 0;
}

int br_compile_config(struct br_script *s, const char *path, const void *text, size_t n,
                      json_t **out, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf json = BR_BUF_INIT(BR_CONFIG_MAX);
    int r = evaluate(s, path, text, n, run_config, &json, BR_E_INVALID_CONFIG, err);
    if (r == 0)
        r = br_script_json_parse(json.data, json.len, BR_JSON_NODES_MAX, out, NULL, err);
    return r;
}

/* ---- an adapter ---- */

struct adapter_job {
    const char *ref, *profile;
    struct br_buf *json;
};

static int run_adapter(lua_State *L)
{
    struct adapter_job *job = lua_touserdata(L, 1);
    lua_settop(L, 2);
    push_member(L, "bridle.adapters", "load");
    lua_pushvalue(L, 2);
    lua_pushstring(L, job->ref);
    lua_pushstring(L, job->profile);
    lua_call(L, 3, 1);
    encode_or_raise(L, -1, job->json);
    return 0;
}

/* The text of adapters/ID/adapter.lua. */
static const struct br_script_module *builtin_adapter(const char *ref)
{
    char name[BR_NAME_MAX];
    snprintf(name, sizeof(name), "adapters.%.*s", (int)strcspn(ref, "@"), ref);
    for (unsigned i = 0; i < br_script_nmodules; i++)
        if (strcmp(br_script_modules[i].name, name) == 0)
            return &br_script_modules[i];
    return NULL;
}

int br_compile_adapter(struct br_script *s, const char *ref, const char *profile, const char *path,
                       const void *text, size_t n, json_t **out, uint8_t sha256[32],
                       struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf json = BR_BUF_INIT(BR_CONFIG_MAX);
    struct adapter_job job = {.ref = ref, .profile = profile, .json = &json};
    struct br_sha256 hash;
    if (n == 0) {
        const struct br_script_module *m = builtin_adapter(ref);
        if (!m)
            return br_err_set(err, BR_E_NOT_FOUND,
                              "there is no adapter '%s' in this build; one of your own is named in "
                              "bridle.lua, as 'file'",
                              ref);
        path = m->file;
        text = m->text;
        n = *m->len;
    }
    br_sha256_init(&hash);
    br_sha256_put(&hash, text, n);
    br_sha256_end(&hash, sha256);
    int r = evaluate(s, path, text, n, run_adapter, &job, BR_E_INVALID_CONFIG, err);
    if (r == 0)
        r = br_script_json_parse(json.data, json.len, BR_JSON_NODES_MAX, out, NULL, err);
    return r;
}

/* ---- what a manifest is, for who only names it, and what it declares ---- */

/* A refusal is a table with a message; it is kept and is no error of the call. */
struct manifest_job {
    json_t *tree; /* taken */
    void *out;
    int code;
    char text[BR_ERR_TEXT_MAX];
};

/* False: what schema.catch gave is a refusal, which is kept. */
static bool is_read(lua_State *L, struct manifest_job *job)
{
    if (!lua_isnil(L, -2))
        return true;
    lua_getfield(L, -1, "message");
    snprintf(job->text, sizeof(job->text), "%s", lua_tostring(L, -1));
    job->code = BR_E_INVALID_MANIFEST;
    return false;
}

/* `run` gets a struct manifest_job, whose `out` is the caller's. */
static int read_manifest(struct br_script *s, const char *path, const void *text, size_t n,
                         lua_CFunction run, void *out, struct br_err *err)
{
    const struct br_compile_in in = {.manifest_path = path, .manifest = text, .manifest_len = n};
    struct manifest_job job = {.out = out};
    json_t *marks = NULL;
    unsigned line;
    int r = parse_manifest(&in, &job.tree, &marks, &line, err);
    json_decref(marks);
    if (r < 0)
        return br_err_wrap(err, "'%s'", path);
    lua_pushcfunction(s->L, run);
    lua_pushlightuserdata(s->L, &job);
    r = br_script_call(s, 1, 0, BR_SCRIPT_COMPILE_US, BR_E_INVALID_MANIFEST, err);
    json_decref(job.tree);
    if (r == 0 && job.code)
        r = br_err_set(err, (enum br_code)job.code, "'%s': %s", path, job.text);
    return r;
}

static int ignore_warning(lua_State *L)
{
    (void)L;
    return 0;
}

static uint64_t positive_member(lua_State *L, const char *name)
{
    lua_getfield(L, -1, name);
    lua_Integer v = lua_isinteger(L, -1) ? lua_tointeger(L, -1) : 0;
    lua_pop(L, 1);
    return v > 0 ? (uint64_t)v : 0;
}

static int run_task(lua_State *L)
{
    struct manifest_job *job = lua_touserdata(L, 1);
    struct br_compile_task *out = job->out;
    push_member(L, "bridle.schema", "catch");
    push_member(L, "bridle.manifest", "normalise");
    br_script_json_push(L, &job->tree);
    lua_pushcfunction(L, ignore_warning);
    lua_call(L, 3, 2);
    if (!is_read(L, job))
        return 0;
    lua_pop(L, 1);
    lua_getfield(L, -1, "id");
    snprintf(out->id, sizeof(out->id), "%s", lua_tostring(L, -1));
    lua_pop(L, 1);
    lua_getfield(L, -1, "budget");
    if (lua_istable(L, -1)) {
        out->tokens = positive_member(L, "max_model_tokens");
        out->tool_calls = positive_member(L, "max_tool_calls");
    }
    return 0;
}

int br_compile_task(struct br_script *s, const char *path, const void *text, size_t n,
                    struct br_compile_task *out, struct br_err *err)
{
    memset(out, 0, sizeof(*out));
    return read_manifest(s, path, text, n, run_task, out, err);
}

struct declared {
    char *adapter, *profile;
    size_t nadapter, nprofile;
};

static int run_declared(lua_State *L)
{
    struct manifest_job *job = lua_touserdata(L, 1);
    const struct declared *out = job->out;
    push_member(L, "bridle.schema", "catch");
    push_member(L, "bridle.manifest", "declared");
    br_script_json_push(L, &job->tree);
    lua_call(L, 2, 2);
    if (!is_read(L, job))
        return 0;
    snprintf(out->adapter, out->nadapter, "%s", lua_tostring(L, -2));
    snprintf(out->profile, out->nprofile, "%s", lua_tostring(L, -1));
    return 0;
}

int br_compile_declared(struct br_script *s, const char *path, const void *text, size_t n,
                        char *adapter, size_t nadapter, char *profile, size_t nprofile,
                        struct br_err *err)
{
    struct declared out = {adapter, profile, nadapter, nprofile};
    return read_manifest(s, path, text, n, run_declared, &out, err);
}
