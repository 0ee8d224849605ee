/*
 * Tool calls and their results, as the operator needs to see them: what was asked for, whether it
 * happened, how long it took, and the first lines of what came out.
 */
#include <signal.h>
#include <stdlib.h>

#include "cli/view_priv.h"

#define CALL_LINES 4u    /* of arguments */
#define VALUE_LINES 12u  /* of one long argument: file content, replaced text */
#define RESULT_LINES 8u  /* of one output */
#define CONTENT_LINES 4u /* of a file that was read */
#define GUTTER "  : "

static bool is_long(const json_t *value)
{
    const char *s = json_string_value(value);
    return s && (strchr(s, '\n') || json_string_length(value) > 60);
}

/* `key: "value"` pairs of the short arguments. */
static void put_short(struct br_buf *b, const json_t *input, bool with_long)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)input, key, value)
    {
        if (!with_long && is_long(value))
            continue;
        BR_CLEANUP_FREE char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        br_buf_printf(b, "%s%s: %s", b->len ? "  " : "", key, text ? text : "?");
    }
}

static const char *long_gutter(const char *key)
{
    if (strncmp(key, "old", 3) == 0)
        return "    - ";
    if (strncmp(key, "new", 3) == 0 || strcmp(key, "content") == 0)
        return "    + ";
    return "    : ";
}

/* `> TOOL` begins the account of a call. */
static void put_tool(struct br_cli_view *v, const char *tool, size_t n)
{
    br_buf_printf(&v->out, "\n");
    view_style_on(v, VIEW_BOLD);
    br_buf_printf(&v->out, "> ");
    br_cli_put_line(&v->out, tool, n, 40);
    view_style_off(v, VIEW_BOLD);
}

void view_tool_call(struct br_cli_view *v, const json_t *data)
{
    size_t n, ni;
    const char *tool = view_str(data, "tool", &n), *id = view_str(data, "callId", &ni);
    json_decref(v->call);
    v->call = json_incref((json_t *)data);
    if (!v->calls)
        v->calls = json_object();
    if (ni)
        json_object_set(v->calls, id, v->call);
    snprintf(v->at_call, sizeof(v->at_call), "%.*s", (int)ni, id);
    v->call_shown = true;
    snprintf(v->last_tool, sizeof(v->last_tool), "%.*s", (int)n, tool);
    if (v->folded) {
        v->call_shown = false;
        return;
    }
    put_tool(v, tool, n);
    const json_t *input = json_object_get(data, "input");
    BR_CLEANUP_BUF struct br_buf args = BR_BUF_INIT(BR_VIEW_MAX);
    if (json_is_object(input)) {
        put_short(&args, input, v->exec);
    } else if (input) {
        BR_CLEANUP_FREE char *text = json_dumps(input, JSON_COMPACT | JSON_ENCODE_ANY);
        br_buf_printf(&args, "%s", text ? text : "?");
    }
    unsigned used = 4 + view_columns(tool, n < 40 ? n : 40);
    BR_CLEANUP_BUF struct br_buf line = BR_BUF_INIT(BR_VIEW_MAX);
    if (args.len && br_buf_put_visible(&line, (char *)args.data, args.len, true) == 0 &&
        used + view_columns((char *)line.data, line.len) <= v->width) {
        br_buf_printf(&v->out, "  %.*s\n", (int)line.len, (char *)line.data);
    } else {
        br_buf_printf(&v->out, "\n");
        v->call_shown = view_block(v, "    ", (char *)args.data, args.len, CALL_LINES);
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(json_is_object(input) ? input : NULL), key, value)
    {
        if (v->exec || !is_long(value))
            continue;
        br_buf_printf(&v->out, "    ");
        br_cli_put_line(&v->out, key, strlen(key), 40);
        br_buf_printf(&v->out, ":\n");
        if (!view_block(v, long_gutter(key), json_string_value(value), json_string_length(value),
                        VALUE_LINES))
            v->call_shown = false;
    }
}

/* `content (3,000 lines, 42.1 KiB):`, so that it is known even when it has scrolled away. */
static void put_size(struct br_cli_view *v, const char *key, const char *s, size_t n)
{
    size_t lines = n && s[n - 1] != '\n';
    for (size_t i = 0; i < n; i++)
        lines += s[i] == '\n';
    br_buf_printf(&v->out, "    ");
    br_cli_put_line(&v->out, key, strlen(key), 40);
    br_buf_printf(&v->out, ", the whole of it (");
    view_put_count(&v->out, lines);
    br_buf_printf(&v->out, lines == 1 ? " line, " : " lines, ");
    view_put_bytes(&v->out, n);
    br_buf_printf(&v->out, "):\n");
}

void view_asked_call(struct br_cli_view *v, const char *call_id, const char *subject)
{
    size_t n;
    const json_t *input = json_object_get(v->call, "input");
    if (!v->call || v->call_shown || strcmp(view_str(v->call, "callId", &n), call_id) != 0)
        return;
    if (v->folded) {
        const char *tool = view_str(v->call, "tool", &n);
        put_tool(v, tool, n);
    }
    br_buf_printf(&v->out, "\n");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)input, key, value)
    {
        const char *s = json_string_value(value);
        /* the subject is shown with the question; it is also what 'argv' amounts to */
        if ((s && strcmp(s, subject) == 0) || strcmp(key, "argv") == 0)
            continue;
        if (s && is_long(value)) {
            put_size(v, key, s, json_string_length(value));
            view_whole(v, long_gutter(key), long_gutter(key), s, json_string_length(value));
            continue;
        }
        BR_CLEANUP_FREE char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        br_buf_printf(&v->out, "    ");
        br_cli_put_line(&v->out, key, strlen(key), 40);
        br_buf_printf(&v->out, ":\n");
        view_whole(v, "    : ", "    : ", text ? text : "?", text ? strlen(text) : 1);
    }
    v->call_shown = true;
}

static void put_output_block(struct br_cli_view *v, const json_t *output, const char *key,
                             const char *gutter, unsigned lines)
{
    size_t n;
    const char *s = view_str(output, key, &n);
    if (n)
        view_block(v, gutter, s, n, lines);
}

static bool is_binary(const json_t *output)
{
    size_t n;
    return strcmp(view_str(output, "encoding", &n), "base64") == 0;
}

/* How it went, in a word: a command that ran and failed is not "ok". */
static void put_verdict(struct br_cli_view *v, bool ok, const json_t *output)
{
    const json_t *exit_code = json_object_get(output, "exitCode");
    const json_t *sig = json_object_get(output, "signal");
    char word[40];
    enum view_style style = ok ? VIEW_GREEN : VIEW_RED;
    snprintf(word, sizeof(word), ok ? "ok" : "failed");
    if (ok && json_is_integer(sig)) {
        style = VIEW_RED;
        snprintf(word, sizeof(word), "signal %lld", (long long)json_integer_value(sig));
    } else if (ok && json_is_integer(exit_code) && json_integer_value(exit_code) != 0) {
        json_int_t status = json_integer_value(exit_code);
        style = status == 126 || status == 127 ? VIEW_RED : VIEW_YELLOW;
        snprintf(word, sizeof(word), "exit %lld", (long long)status);
    }
    view_word(v, style, word, 7);
    if (strlen(word) >= 7)
        br_buf_printf(&v->out, "  ");
}

/* The one-line account of an output that init made; false if it is not one of those. */
static bool put_account(struct br_cli_view *v, const json_t *o)
{
    const json_t *list;
    if (json_object_get(o, "exitCode")) {
        json_int_t status = json_integer_value(json_object_get(o, "exitCode"));
        if (status == 0)
            br_buf_printf(&v->out, "  exit 0");
        else if (status == 126 || status == 127)
            br_buf_printf(&v->out, status == 126 ? "  (it could not be run)"
                                                 : "  (there is no such command)");
    } else if (json_object_get(o, "signal")) {
        if (json_integer_value(json_object_get(o, "signal")) == SIGKILL)
            br_buf_printf(&v->out, json_is_true(json_object_get(o, "timedOut"))
                                       ? "  (killed)"
                                       : "  (killed; out of memory?)");
    } else if ((list = json_object_get(o, "entries"))) {
        br_buf_printf(&v->out, "  %zu entries", json_array_size(list));
    } else if ((list = json_object_get(o, "matches"))) {
        br_buf_printf(&v->out, "  %zu matches", json_array_size(list));
    } else if (json_is_integer(json_object_get(o, "bytes"))) {
        br_buf_printf(&v->out, "  ");
        view_put_bytes(&v->out, view_u64(o, "bytes"));
        if (is_binary(o))
            br_buf_printf(&v->out, " of binary data");
        if (json_is_true(json_object_get(o, "created")))
            br_buf_printf(&v->out, ", created");
    } else {
        return false;
    }
    if (json_is_true(json_object_get(o, "timedOut")))
        br_buf_printf(&v->out, ", timed out");
    if (json_is_true(json_object_get(o, "truncated")))
        br_buf_printf(&v->out, ", cut");
    return true;
}

static void put_entries(struct br_cli_view *v, const json_t *list)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_VIEW_MAX);
    size_t i;
    json_t *e;
    json_array_foreach(list, i, e)
    {
        size_t n, nt;
        const char *name = view_str(e, "name", &n), *type = view_str(e, "type", &nt);
        br_buf_printf(&b, "%s%.*s%s", i ? "  " : "", (int)n, name,
                      strcmp(type, "dir") == 0 ? "/" : "");
    }
    view_block(v, GUTTER, (char *)b.data, b.len, CONTENT_LINES);
}

static void put_matches(struct br_cli_view *v, const json_t *list)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_VIEW_MAX);
    size_t i;
    json_t *e;
    json_array_foreach(list, i, e)
    {
        size_t n, nt;
        const char *path = view_str(e, "path", &n), *text = view_str(e, "text", &nt);
        br_buf_printf(&b, "%.*s:%llu: %.*s\n", (int)n, path,
                      (unsigned long long)view_u64(e, "line"), (int)(nt < 200 ? nt : 200), text);
    }
    view_block(v, GUTTER, (char *)b.data, b.len, CONTENT_LINES);
}

static void put_output(struct br_cli_view *v, const json_t *output, bool accounted)
{
    if (json_is_string(output)) {
        view_block(v, GUTTER, json_string_value(output), json_string_length(output), RESULT_LINES);
    } else if (accounted) {
        put_output_block(v, output, "stdout", GUTTER, RESULT_LINES);
        put_output_block(v, output, "stderr", "  ! ", RESULT_LINES);
        if (!is_binary(output))
            put_output_block(v, output, "content", GUTTER, CONTENT_LINES);
        if (json_object_get(output, "entries"))
            put_entries(v, json_object_get(output, "entries"));
        if (json_object_get(output, "matches"))
            put_matches(v, json_object_get(output, "matches"));
    } else if (output && !json_is_null(output)) {
        BR_CLEANUP_FREE char *text = json_dumps(output, JSON_COMPACT | JSON_ENCODE_ANY);
        if (text)
            view_block(v, GUTTER, text, strlen(text), CALL_LINES);
    }
}

/* The result of another call than the one that was shown last says first which. */
static void put_whose(struct br_cli_view *v, const json_t *data)
{
    size_t n, ni;
    const char *id = view_str(data, "callId", &ni), *tool = view_str(data, "tool", &n);
    const json_t *call = json_object_get(v->calls, id);
    if (call && strcmp(v->at_call, id) != 0) {
        BR_CLEANUP_BUF struct br_buf args = BR_BUF_INIT(BR_VIEW_MAX);
        put_tool(v, tool, n);
        put_short(&args, json_object_get(call, "input"), true);
        br_buf_printf(&v->out, "  ");
        br_cli_put_line(&v->out, (char *)args.data, args.len,
                        view_room(v, 4 + (n < 40 ? (unsigned)n : 40)));
        br_buf_printf(&v->out, "\n");
    }
    if (call)
        json_object_del(v->calls, id);
    snprintf(v->at_call, sizeof(v->at_call), "%.*s", (int)ni, id);
}

/* `ok     12 ms  exit 0`; whether that is an account of the output. */
static bool put_outcome(struct br_cli_view *v, const json_t *data, bool account)
{
    const json_t *output = json_object_get(data, "output");
    put_verdict(v, json_is_true(json_object_get(data, "ok")), output);
    if (json_object_get(data, "durationMs"))
        view_put_duration(&v->out, view_u64(data, "durationMs"));
    return account && json_is_object(output) && put_account(v, output);
}

/* The columns of that. */
static unsigned outcome_columns(const struct br_cli_view *v, const json_t *data, bool account)
{
    struct br_cli_view plain = {.width = v->width};
    br_buf_init(&plain.out, BR_VIEW_MAX);
    (void)put_outcome(&plain, data, account);
    unsigned columns = view_columns((char *)plain.out.data, plain.out.len);
    br_buf_free(&plain.out);
    return columns;
}

/* A call and what came of it, in one line: `> fs_read  path: "a"  ok     3 ms  120 bytes`. */
static void put_folded(struct br_cli_view *v, const json_t *data)
{
    size_t n, ni;
    const char *id = view_str(data, "callId", &ni), *tool = view_str(data, "tool", &n);
    const json_t *input = json_object_get(json_object_get(v->calls, id), "input");
    BR_CLEANUP_BUF struct br_buf args = BR_BUF_INIT(BR_VIEW_MAX);
    if (!v->at_fold)
        br_buf_put_u8(&v->out, '\n');
    view_style_on(v, VIEW_BOLD);
    br_buf_printf(&v->out, "> ");
    br_cli_put_line(&v->out, tool, n, 24);
    view_style_off(v, VIEW_BOLD);
    br_buf_printf(&v->out, "  ");
    if (json_is_object(input))
        put_short(&args, input, true);
    unsigned used = 6 + (n < 24 ? (unsigned)n : 24);
    bool account = used + outcome_columns(v, data, true) + 10 <= v->width;
    used += outcome_columns(v, data, account);
    br_cli_put_line(&v->out, (char *)args.data, args.len, view_room(v, used));
    br_buf_printf(&v->out, "  ");
    (void)put_outcome(v, data, account);
    br_buf_put_u8(&v->out, '\n');
    v->at_fold = true;
    const json_t *error = json_object_get(data, "error");
    if (json_is_object(error)) {
        const char *message = view_str(error, "message", &n);
        view_block(v, GUTTER, message, n, 2);
        snprintf(v->last_error, sizeof(v->last_error), "%.*s", (int)n, message);
    }
    if (v->calls)
        json_object_del(v->calls, id);
}

void view_tool_result(struct br_cli_view *v, const json_t *data)
{
    if (v->folded) {
        put_folded(v, data);
        v->tool_calls++;
        json_decref(v->call);
        v->call = NULL;
        return;
    }
    put_whose(v, data);
    const json_t *output = json_object_get(data, "output");
    const json_t *error = json_object_get(data, "error");
    v->tool_calls++;
    json_decref(v->call);
    v->call = NULL;
    br_buf_printf(&v->out, "  ");
    bool accounted = put_outcome(v, data, true);
    if (json_is_object(error)) {
        size_t n, nm;
        const char *code = view_str(error, "code", &n), *message = view_str(error, "message", &nm);
        br_buf_printf(&v->out, "  ");
        br_cli_put_line(&v->out, code, n, 40);
        br_buf_printf(&v->out, "\n");
        view_block(v, GUTTER, message, nm, CALL_LINES);
        snprintf(v->last_error, sizeof(v->last_error), "%.*s", (int)nm, message);
    } else {
        br_buf_printf(&v->out, "\n");
    }
    if (!v->exec && !json_object_get(output, "denied")) /* that is for the model */
        put_output(v, output, accounted);
}
