/*
 * The tools that a model may call, each described once: the JSON Schema that the model is shown
 * and the check of its arguments come from the same row. Arguments are strict: an unknown key, a
 * wrong type or a value out of range is a typed failure for the model and nothing else happens.
 */
#include <stdlib.h>
#include <string.h>

#include "session/session_priv.h"

enum arg_type { ARG_PATH, ARG_TEXT, ARG_INT, ARG_BOOL, ARG_WORDS };

struct arg {
    const char *name;
    enum arg_type type;
    bool required;
    uint64_t max; /* bytes of text, or the value of a number */
    const char *what;
};

#define TOOL_ARGS_MAX 6

struct tool {
    const char *name;
    const char *what;
    const char *action;
    enum br_init_op op;
    struct arg args[TOOL_ARGS_MAX];
};

#define PATH_ARG(required_)                                                                        \
    {                                                                                              \
        "path", ARG_PATH, required_, BR_PATH_MAX - 1, "path relative to the workspace"             \
    }

static const struct tool tools[] = {
    {"fs_read",
     "Read a text file of the workspace. A long file is cut; nextOffset says where to go on.",
     "fs.read",
     BR_OP_FS_READ,
     {PATH_ARG(true),
      {"offset", ARG_INT, false, INT64_MAX, "first byte, default 0"},
      {"limit", ARG_INT, false, BR_TOOL_RESULT_MAX, "number of bytes at most"}}},
    {"fs_list",
     "List a directory of the workspace.",
     "fs.read",
     BR_OP_FS_LIST,
     {PATH_ARG(false),
      {"recursive", ARG_BOOL, false, 1, "list subdirectories as well"},
      {"limit", ARG_INT, false, 10000, "number of entries at most"}}},
    {"fs_search",
     "Find the lines that contain a literal text, below a path of the workspace.",
     "fs.read",
     BR_OP_FS_SEARCH,
     {{"text", ARG_TEXT, true, 1024, "the text to find; not a pattern"},
      PATH_ARG(false),
      {"ignore_case", ARG_BOOL, false, 1, "treat A and a alike"},
      {"limit", ARG_INT, false, 10000, "number of matches at most"}}},
    {"fs_write",
     "Create a file of the workspace or replace its content.",
     "fs.write",
     BR_OP_FS_WRITE,
     {PATH_ARG(true), {"content", ARG_TEXT, true, BR_TOOL_JSON_MAX, "the whole new content"}}},
    {"fs_edit",
     "Replace a text that occurs exactly once in a file of the workspace.",
     "fs.write",
     BR_OP_FS_EDIT,
     {PATH_ARG(true),
      {"old_text", ARG_TEXT, true, BR_TOOL_JSON_MAX, "the text to replace, exactly as it is"},
      {"new_text", ARG_TEXT, true, BR_TOOL_JSON_MAX, "what to put in its place"},
      {"replace_all", ARG_BOOL, false, 1, "replace every occurrence"}}},
    {"process_exec",
     "Run a command in the sandbox. Give either argv (preferred) or command, a shell string.",
     "process.exec",
     BR_OP_EXEC,
     {{"argv", ARG_WORDS, false, BR_EXEC_ARGS_MAX, "program and arguments, not a shell line"},
      {"command", ARG_TEXT, false, 16384, "a line for /bin/sh"},
      {"cwd", ARG_PATH, false, BR_PATH_MAX - 1, "working directory relative to the workspace"},
      {"stdin", ARG_TEXT, false, BR_TOOL_JSON_MAX, "standard input"},
      {"timeout_seconds", ARG_INT, false, 3600, "wall clock; default 120"}}},
};

static const char *type_name(enum arg_type t)
{
    switch (t) {
    case ARG_INT:
        return "integer";
    case ARG_BOOL:
        return "boolean";
    case ARG_WORDS:
        return "array";
    default:
        return "string";
    }
}

static json_t *describe_arg(const struct arg *a)
{
    json_t *v = json_pack("{s:s, s:s}", "type", type_name(a->type), "description", a->what);
    if (a->type == ARG_INT)
        json_object_set_new(v, "minimum", json_integer(0));
    if (a->type == ARG_WORDS) {
        json_object_set_new(v, "items", json_pack("{s:s}", "type", "string"));
        json_object_set_new(v, "minItems", json_integer(1));
    }
    return v;
}

json_t *tools_describe(void)
{
    json_t *list = json_array();
    for (size_t i = 0; i < BR_ARRAY_LEN(tools); i++) {
        json_t *props = json_object(), *required = json_array();
        for (const struct arg *a = tools[i].args; a < tools[i].args + TOOL_ARGS_MAX && a->name;
             a++) {
            json_object_set_new(props, a->name, describe_arg(a));
            if (a->required)
                json_array_append_new(required, json_string(a->name));
        }
        json_array_append_new(list, json_pack("{s:s, s:s, s:{s:s, s:o, s:o, s:b}}", "name",
                                              tools[i].name, "description", tools[i].what, "schema",
                                              "type", "object", "properties", props, "required",
                                              required, "additionalProperties", 0));
    }
    return list;
}

static const struct tool *find_tool(const char *name)
{
    for (size_t i = 0; i < BR_ARRAY_LEN(tools); i++)
        if (strcmp(tools[i].name, name) == 0)
            return &tools[i];
    return NULL;
}

static const struct arg *find_arg(const struct tool *t, const char *name)
{
    for (const struct arg *a = t->args; a < t->args + TOOL_ARGS_MAX && a->name; a++)
        if (strcmp(a->name, name) == 0)
            return a;
    return NULL;
}

static int check_words(const struct tool *t, const struct arg *a, json_t *v, struct br_err *err)
{
    size_t n = json_array_size(v);
    if (n == 0 || n > a->max)
        return br_err_set(err, BR_E_INVALID_ARGUMENTS, "%s: '%s' must hold 1 to %llu words",
                          t->name, a->name, (unsigned long long)a->max);
    for (size_t i = 0; i < n; i++)
        if (!json_is_string(json_array_get(v, i)))
            return br_err_set(err, BR_E_INVALID_ARGUMENTS, "%s: '%s[%zu]' must be a string",
                              t->name, a->name, i);
    if (json_string_length(json_array_get(v, 0)) == 0)
        return br_err_set(err, BR_E_INVALID_ARGUMENTS, "%s: '%s[0]' is empty", t->name, a->name);
    return 0;
}

static int check_arg(const struct tool *t, const struct arg *a, json_t *v, struct br_err *err)
{
    bool fits = (a->type == ARG_INT && json_is_integer(v)) ||
                (a->type == ARG_BOOL && json_is_boolean(v)) ||
                (a->type == ARG_WORDS && json_is_array(v)) ||
                ((a->type == ARG_PATH || a->type == ARG_TEXT) && json_is_string(v));
    if (!fits)
        return br_err_set(err, BR_E_INVALID_ARGUMENTS, "%s: '%s' must be a value of type %s",
                          t->name, a->name, type_name(a->type));
    if (a->type == ARG_INT &&
        (json_integer_value(v) < 0 || (uint64_t)json_integer_value(v) > a->max))
        return br_err_set(err, BR_E_INVALID_ARGUMENTS, "%s: '%s' must be 0 to %llu", t->name,
                          a->name, (unsigned long long)a->max);
    if (json_is_string(v) && json_string_length(v) > a->max)
        return br_err_set(err, BR_E_INVALID_ARGUMENTS, "%s: '%s' is larger than %llu bytes",
                          t->name, a->name, (unsigned long long)a->max);
    return a->type == ARG_WORDS ? check_words(t, a, v, err) : 0;
}

static int check_args(const struct tool *t, json_t *args, struct br_err *err)
{
    const char *key;
    json_t *v;
    if (!json_is_object(args))
        return br_err_set(err, BR_E_INVALID_ARGUMENTS, "%s: the arguments must be an object",
                          t->name);
    json_object_foreach(args, key, v)
    {
        const struct arg *a = find_arg(t, key);
        if (!a)
            return br_err_set(err, BR_E_INVALID_ARGUMENTS, "%s: unknown argument '%.64s'", t->name,
                              key);
        int r = check_arg(t, a, v, err);
        if (r < 0)
            return r;
    }
    for (const struct arg *a = t->args; a < t->args + TOOL_ARGS_MAX && a->name; a++)
        if (a->required && !json_object_get(args, a->name))
            return br_err_set(err, BR_E_INVALID_ARGUMENTS, "%s: '%s' is missing", t->name, a->name);
    return 0;
}

/*
 * The one spelling of a workspace path: relative, no empty, "." or ".." segments. A leading
 * "/workspace/" is accepted, since that is where the model sees the files.
 */
static int normalise_path(const char *in, char out[BR_PATH_MAX], struct br_err *err)
{
    if (strcmp(in, "/workspace") == 0)
        in = "";
    else if (strncmp(in, "/workspace/", 11) == 0)
        in += 11;
    if (in[0] == '/')
        return br_err_set(err, BR_E_INVALID_ARGUMENTS,
                          "the path '%.200s' is not below the workspace", in);
    size_t at = 0;
    for (const char *p = in; *p;) {
        size_t n = strcspn(p, "/");
        if (n == 2 && p[0] == '.' && p[1] == '.')
            return br_err_set(err, BR_E_INVALID_ARGUMENTS,
                              "the path '%.200s' contains '..'; name the file directly", in);
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)p[i] < 0x20 || p[i] == 0x7f)
                return br_err_set(err, BR_E_INVALID_ARGUMENTS,
                                  "the path contains a control character");
        if (n > 0 && !(n == 1 && p[0] == '.')) {
            if (at)
                out[at++] = '/';
            if (at + n >= BR_PATH_MAX)
                return br_err_set(err, BR_E_INVALID_ARGUMENTS, "the path is too long");
            memcpy(out + at, p, n);
            at += n;
        }
        p += n + (p[n] == '/');
    }
    out[at] = 0;
    return 0;
}

static int put_text(struct br_buf *b, json_t *args, const char *name, struct br_err *err)
{
    json_t *v = json_object_get(args, name);
    br_buf_init(b, BR_BLOB_MAX);
    if (v && br_buf_put(b, json_string_value(v), json_string_length(v)) < 0)
        return br_err_set(err, BR_E_INVALID_ARGUMENTS, "'%s' is too large", name);
    return 0;
}

static uint64_t arg_int(json_t *args, const char *name, uint64_t otherwise)
{
    json_t *v = json_object_get(args, name);
    return v ? (uint64_t)json_integer_value(v) : otherwise;
}

static int resolve_fs(const struct tool *t, json_t *args, struct effect *e, struct br_err *err)
{
    const char *path = json_string_value(json_object_get(args, "path"));
    int r = normalise_path(path ? path : "", e->op.path, err);
    if (r < 0)
        return r;
    bool whole = t->op == BR_OP_FS_LIST || t->op == BR_OP_FS_SEARCH;
    if (!e->op.path[0] && !whole)
        return br_err_set(err, BR_E_INVALID_ARGUMENTS, "%s: 'path' names no file", t->name);
    if (!e->op.path[0])
        snprintf(e->op.path, sizeof(e->op.path), ".");
    static const char *const flags[] = {"recursive", "ignore_case", "replace_all"};
    for (size_t i = 0; i < BR_ARRAY_LEN(flags); i++)
        e->op.flag |= json_is_true(json_object_get(args, flags[i]));
    e->op.offset = arg_int(args, "offset", 0);
    e->op.limit = arg_int(args, "limit", 0);
    const char *first = t->op == BR_OP_FS_WRITE    ? "content"
                        : t->op == BR_OP_FS_SEARCH ? "text"
                                                   : "old_text";
    if (t->op != BR_OP_FS_READ && t->op != BR_OP_FS_LIST)
        r = put_text(&e->op.text, args, first, err);
    if (r == 0 && t->op == BR_OP_FS_EDIT)
        r = put_text(&e->op.text2, args, "new_text", err);
    if (r < 0)
        return r;
    e->subject = strdup(e->op.path);
    return e->subject ? 0 : br_err_set(err, BR_E_NOMEM, "no memory for a tool call");
}

static int set_argv(struct effect *e, const char *const *words, size_t n, struct br_err *err)
{
    for (size_t i = 0; i < n; i++) {
        e->op.argv[i] = strdup(words[i]);
        if (!e->op.argv[i])
            return br_err_set(err, BR_E_NOMEM, "no memory for a command line");
        e->op.argc++;
    }
    return 0;
}

static int exec_defaults(struct effect *e, uint64_t seconds, struct br_err *err)
{
    e->action = "process.exec";
    e->op.op = BR_OP_EXEC;
    e->op.timeout_ms = (uint32_t)(seconds ? seconds : br_limits_default.exec_seconds) * 1000u;
    e->op.output_max = BR_EXEC_OUTPUT_MAX;
    if (e->shell) {
        e->op.flag = 1;
        e->subject = strdup(e->op.argv[2]);
    } else {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_SUBJECT_MAX);
        br_exec_subject(e->op.argv, e->op.argc, &b);
        char *text = br_buf_cstr(&b);
        e->subject = text ? strdup(text) : NULL;
    }
    return e->subject ? 0
                      : br_err_set(err, BR_E_INVALID_ARGUMENTS,
                                   "the command is longer than %u bytes", BR_SUBJECT_MAX);
}

static int resolve_exec(json_t *args, struct effect *e, struct br_err *err)
{
    json_t *argv = json_object_get(args, "argv"), *command = json_object_get(args, "command");
    const char *cwd = json_string_value(json_object_get(args, "cwd"));
    if (!argv == !command)
        return br_err_set(err, BR_E_INVALID_ARGUMENTS,
                          "process_exec: give exactly one of 'argv' and 'command'");
    int r = normalise_path(cwd ? cwd : "", e->op.path, err);
    if (r < 0)
        return r;
    if (command) {
        const char *text = json_string_value(command);
        if (!text[strspn(text, " \t\n")])
            return br_err_set(err, BR_E_INVALID_ARGUMENTS, "process_exec: 'command' is empty");
        const char *const words[] = {"/bin/sh", "-c", text};
        e->shell = true;
        r = set_argv(e, words, 3, err);
    } else {
        const char *words[BR_EXEC_ARGS_MAX];
        for (size_t i = 0; i < json_array_size(argv); i++)
            words[i] = json_string_value(json_array_get(argv, i));
        r = set_argv(e, words, json_array_size(argv), err);
    }
    if (r == 0)
        r = put_text(&e->op.text2, args, "stdin", err);
    return r < 0 ? r : exec_defaults(e, arg_int(args, "timeout_seconds", 0), err);
}

int tools_resolve(const char *name, json_t *args, struct effect *out, struct br_err *err)
{
    *out = (struct effect){.action = NULL};
    const struct tool *t = find_tool(name);
    if (!t)
        return br_err_set(err, BR_E_UNKNOWN_TOOL,
                          "there is no tool '%s'; the tools are fs_read, fs_list, fs_search, "
                          "fs_write, fs_edit and process_exec",
                          name);
    int r = check_args(t, args, err);
    if (r < 0)
        return r;
    out->action = t->action;
    out->tool = t->name;
    out->op.op = (uint8_t)t->op;
    return t->op == BR_OP_EXEC ? resolve_exec(args, out, err) : resolve_fs(t, args, out, err);
}

int tools_resolve_argv(char *const *argv, uint32_t argc, struct effect *out, struct br_err *err)
{
    *out = (struct effect){.action = NULL};
    if (argc == 0 || argc > BR_EXEC_ARGS_MAX || !argv[0][0])
        return br_err_set(
            err, BR_E_INVALID_ARGUMENTS,
            "the command must have 1 to %u words, and its first, the program, must not be empty",
            BR_EXEC_ARGS_MAX);
    int r = set_argv(out, (const char *const *)argv, argc, err);
    out->tool = "process_exec";
    return r < 0 ? r : exec_defaults(out, 3600, err);
}

void effect_free(struct effect *e)
{
    free(e->subject);
    e->subject = NULL;
    br_init_call_free(&e->op);
}
