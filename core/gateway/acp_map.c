/*
 * What an editor is told: stored events as the updates of the Agent Client Protocol, questions as
 * its permission requests, a run's end as its stop reason; and what it says: the blocks of a prompt
 * as text. Called by acp_turn.c and acp_store.c. Nothing here reads, sends or remembers anything.
 * Events come from bridle-audit and have their form; what a client sent is not trusted.
 */
#include <stdlib.h>
#include <string.h>

#include "gateway/acp_priv.h"

static const char *str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static bool is(const char *type, size_t n, const char *name)
{
    return strlen(name) == n && memcmp(type, name, n) == 0;
}

/* Text for one line of an editor: what a model or a tool says, made visible, and cut. */
static json_t *line(const char *s, size_t n)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8 * ACP_TITLE_MAX);
    size_t cut = n > ACP_TITLE_MAX ? br_utf8_floor(s, ACP_TITLE_MAX) : n;
    if (br_buf_put_visible(&b, s, cut, true) < 0)
        return json_string("?");
    if (cut < n)
        (void)br_buf_printf(&b, "…");
    return json_stringn((char *)b.data, b.len);
}

json_t *acp_map_text(const char *text, size_t n)
{
    return json_pack("{s:s, s:{s:s, s:s%}}", "sessionUpdate", "agent_message_chunk", "content",
                     "type", "text", "text", text, n);
}

/* ---- tools ---- */

static const struct tool_kind {
    const char *tool, *kind, *verb;
} kinds[] = {
    /* Bridle's own */
    {"fs_read", "read", "Read"},
    {"fs_list", "read", "List"},
    {"fs_search", "search", "Search"},
    {"fs_write", "edit", "Write"},
    {"fs_edit", "edit", "Edit"},
    {"process_exec", "execute", NULL},
    /* of harnesses */
    {"read", "read", "Read"},
    {"ls", "read", "List"},
    {"find", "search", "Find"},
    {"grep", "search", "Search"},
    {"write", "edit", "Write"},
    {"edit", "edit", "Edit"},
    {"bash", "execute", NULL},
};

static const struct tool_kind *kind_of(const char *tool)
{
    for (size_t i = 0; i < BR_ARRAY_LEN(kinds); i++)
        if (strcmp(kinds[i].tool, tool) == 0)
            return &kinds[i];
    return NULL;
}

/* A question without its call: a request of a harness's network, a promotion. */
static const char *kind_of_action(const char *action)
{
    return strcmp(action, "fs.read") == 0        ? "read"
           : strcmp(action, "fs.write") == 0     ? "edit"
           : strcmp(action, "process.exec") == 0 ? "execute"
           : strcmp(action, "network") == 0      ? "fetch"
                                                 : "other";
}

static json_t *call_id(const struct acp_scope *s, const json_t *data)
{
    return json_sprintf("%u.%s", s->turn, str(data, "callId"));
}

/* `command`, or the words of `argv` as they would be typed. */
static void put_command(struct br_buf *b, const json_t *input)
{
    const char *command = str(input, "command");
    const json_t *argv = json_object_get(input, "argv");
    if (command[0]) {
        (void)br_buf_put(b, command, strlen(command));
        return;
    }
    char *words[BR_EXEC_ARGS_MAX];
    uint32_t n = 0;
    size_t i;
    json_t *w;
    json_array_foreach(argv, i, w)
    {
        if (n == BR_EXEC_ARGS_MAX || !json_is_string(w))
            return;
        words[n++] = (char *)json_string_value(w);
    }
    (void)br_exec_subject(words, n, b);
}

static json_t *title_of(const char *tool, const json_t *input)
{
    const struct tool_kind *k = kind_of(tool);
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_TOOL_JSON_MAX);
    if (k && k->verb) {
        const char *path = str(input, "path"), *what = strcmp(tool, "fs_search") == 0
                                                           ? str(input, "text")
                                                           : str(input, "pattern");
        (void)br_buf_printf(&b, "%s %s%s%s%s", k->verb, what[0] ? "'" : "", what,
                            what[0] ? "' in " : "", path[0] ? path : ".");
    } else if (k) {
        put_command(&b, input);
    }
    if (!b.len || b.failed) {
        br_buf_reset(&b);
        (void)br_buf_put(&b, tool, strlen(tool));
    }
    return line((char *)b.data, b.len);
}

/* Where it is on the editor's side; only a path that stays below the directory. */
static json_t *locations_of(const struct acp_scope *s, const json_t *input)
{
    const char *path = str(input, "path");
    if (!path[0] || path[0] == '/' || strlen(path) >= BR_PATH_MAX)
        return NULL;
    for (const char *p = path; *p; p += strcspn(p, "/"), p += *p == '/')
        if (strncmp(p, "..", 2) == 0 && (p[2] == '/' || !p[2]))
            return NULL;
    return json_pack("[{s:o}]", "path", json_sprintf("%s/%s", s->cwd, path));
}

static json_t *text_content(const char *text, size_t n)
{
    return json_pack("{s:s, s:{s:s, s:s%}}", "type", "content", "content", "type", "text", "text",
                     text, n);
}

/* What an edit changes. */
static json_t *diff_of(const struct acp_scope *s, const char *tool, const json_t *input)
{
    const struct tool_kind *k = kind_of(tool);
    const json_t *content = json_object_get(input, "content"),
                 *old = json_object_get(input, "old_text"),
                 *new = json_object_get(input, "new_text");
    const char *path = str(input, "path");
    if (!k || strcmp(k->kind, "edit") != 0 || !path[0])
        return NULL;
    json_t *at = path[0] == '/' ? json_string(path) : json_sprintf("%s/%s", s->cwd, path);
    if (json_is_string(content))
        return json_pack("{s:s, s:o, s:O}", "type", "diff", "path", at, "newText", content);
    if (json_is_string(old) && json_is_string(new))
        return json_pack("{s:s, s:o, s:O, s:O}", "type", "diff", "path", at, "oldText", old,
                         "newText", new);
    json_decref(at);
    return NULL;
}

static json_t *tool_call(const struct acp_scope *s, const json_t *data)
{
    const char *tool = str(data, "tool");
    const json_t *input = json_object_get(data, "input");
    const struct tool_kind *k = kind_of(tool);
    json_t *u = json_pack("{s:s, s:o, s:o, s:s, s:s, s:O*}", "sessionUpdate", "tool_call",
                          "toolCallId", call_id(s, data), "title", title_of(tool, input), "kind",
                          k ? k->kind : "other", "status", "pending", "rawInput", input);
    json_t *at = locations_of(s, input), *diff = diff_of(s, tool, input);
    if (at)
        json_object_set_new(u, "locations", at);
    if (diff)
        json_object_set_new(u, "content", json_pack("[o]", diff));
    return u;
}

static json_t *status(const struct acp_scope *s, const json_t *data, const char *now)
{
    return json_pack("{s:s, s:o, s:s}", "sessionUpdate", "tool_call_update", "toolCallId",
                     call_id(s, data), "status", now);
}

/* ---- results ---- */

/* Between fences longer than any in it, so that an editor shows it as it is. */
static json_t *fenced(const char *text, size_t n)
{
    size_t ticks = 3, run = 0, cut = n > ACP_CONTENT_MAX ? br_utf8_floor(text, ACP_CONTENT_MAX) : n;
    for (size_t i = 0; i < cut; i++) {
        run = text[i] == '`' ? run + 1 : 0;
        if (run >= ticks)
            ticks = run + 1;
    }
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4u * ACP_CONTENT_MAX);
    for (unsigned side = 0; side < 2; side++) {
        for (size_t i = 0; i < ticks; i++)
            (void)br_buf_put(&b, "`", 1);
        if (side == 0)
            (void)br_buf_put(&b, "\n", 1);
        if (side == 0)
            (void)br_buf_put(&b, text, cut);
        if (side == 0 && cut && text[cut - 1] != '\n')
            (void)br_buf_put(&b, "\n", 1);
    }
    if (cut < n)
        (void)br_buf_printf(&b, "\n(%zu more bytes are in the record)", n - cut);
    return b.failed ? NULL : text_content((char *)b.data, b.len);
}

static void put_list(struct br_buf *b, const json_t *list)
{
    size_t i;
    json_t *e;
    json_array_foreach(list, i, e)
    {
        if (json_object_get(e, "name"))
            (void)br_buf_printf(b, "%s%s\n", str(e, "name"),
                                strcmp(str(e, "type"), "dir") == 0 ? "/" : "");
        else
            (void)br_buf_printf(b, "%s:%lld: %s\n", str(e, "path"),
                                (long long)json_integer_value(json_object_get(e, "line")),
                                str(e, "text"));
    }
}

static json_t *output_content(const json_t *o)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8u * BR_TOOL_JSON_MAX);
    const json_t *code = json_object_get(o, "exitCode"), *sig = json_object_get(o, "signal");
    if (json_is_string(o)) {
        (void)br_buf_put(&b, json_string_value(o), json_string_length(o));
    } else if (json_is_integer(code) || json_is_integer(sig)) {
        (void)br_buf_printf(&b, "%s%s", str(o, "stdout"), str(o, "stderr"));
        if (json_is_integer(sig) || json_integer_value(code) != 0)
            (void)br_buf_printf(&b, "%s[%s %lld]\n", b.len && b.data[b.len - 1] != '\n' ? "\n" : "",
                                json_is_integer(sig) ? "signal" : "exit status",
                                (long long)json_integer_value(json_is_integer(sig) ? sig : code));
    } else if (json_is_array(json_object_get(o, "entries"))) {
        put_list(&b, json_object_get(o, "entries"));
    } else if (json_is_array(json_object_get(o, "matches"))) {
        put_list(&b, json_object_get(o, "matches"));
    } else if (json_is_string(json_object_get(o, "content")) &&
               strcmp(str(o, "encoding"), "base64") != 0) {
        (void)br_buf_printf(&b, "%s", str(o, "content"));
    }
    return b.len && !b.failed ? fenced((char *)b.data, b.len) : NULL;
}

static json_t *tool_result(const struct acp_scope *s, const json_t *data)
{
    bool ok = json_is_true(json_object_get(data, "ok"));
    const json_t *output = json_object_get(data, "output"), *error = json_object_get(data, "error");
    json_t *u = status(s, data, ok ? "completed" : "failed"), *content = NULL;
    if (json_is_object(error)) {
        bool denied = strcmp(str(error, "code"), "DENIED") == 0;
        json_t *text =
            json_sprintf("%s: %s", denied ? "Denied" : str(error, "code"), str(error, "message"));
        content = text ? text_content(json_string_value(text), json_string_length(text)) : NULL;
        json_decref(text);
    } else if (output) {
        content = output_content(output);
    }
    if (content)
        json_object_set_new(u, "content", json_pack("[o]", content));
    if (output && !json_is_null(output))
        json_object_set(u, "rawOutput", (json_t *)output);
    return u;
}

/* ---- events ---- */

static json_t *notice(const struct acp_scope *s, const char *severity, json_t *title)
{
    if (s->notices && !s->replay && title)
        return json_pack("{s:s, s:s, s:o}", "sessionUpdate", "notice", "severity", severity,
                         "title", title);
    json_decref(title);
    return NULL;
}

/* What belongs to one answer of the model has one id, so that an editor can tell two apart. */
static json_t *message(const json_t *data)
{
    const json_t *text = json_object_get(data, "text"), *stream = json_object_get(data, "stream");
    if (json_string_length(text) == 0)
        return NULL;
    json_t *u = acp_map_text(json_string_value(text), json_string_length(text));
    if (u && json_is_string(stream))
        json_object_set(u, "messageId", (json_t *)stream);
    return u;
}

json_t *acp_map_event(const struct acp_scope *s, const char *type, size_t n, const json_t *data)
{
    if (is(type, n, "bridle.text"))
        return message(data);
    if (is(type, n, "bridle.run") && s->replay)
        return json_pack("{s:s, s:{s:s, s:s}}", "sessionUpdate", "user_message_chunk", "content",
                         "type", "text", "text", str(data, "goal"));
    if (is(type, n, "tool.call"))
        return tool_call(s, data);
    if (is(type, n, "bridle.votes") && str(data, "callId")[0] &&
        (strcmp(str(data, "effect"), "allow") == 0 || str(data, "grant")[0]))
        return status(s, data, "in_progress");
    if (is(type, n, "permission.resolved") && str(data, "callId")[0] &&
        strcmp(str(data, "decision"), "allow") == 0)
        return status(s, data, "in_progress");
    if (is(type, n, "tool.result"))
        return tool_result(s, data);
    if (is(type, n, "budget.warning"))
        return notice(
            s, "warning",
            json_sprintf("%lld %% of the budget of %s is used (%lld of %lld)",
                         (long long)json_number_value(json_object_get(data, "pct")),
                         strcmp(str(data, "metric"), "tokens") == 0 ? "model tokens" : "tool calls",
                         (long long)json_integer_value(json_object_get(data, "used")),
                         (long long)json_integer_value(json_object_get(data, "limit"))));
    if (is(type, n, "bridle.notice"))
        return notice(s, "info", line(str(data, "message"), strlen(str(data, "message"))));
    return NULL;
}

void acp_account_event(struct acp_account *a, const char *type, size_t n, const json_t *data)
{
    if (is(type, n, "budget.warning")) {
        if (strcmp(str(data, "metric"), "tokens") == 0)
            a->tokens_warned = true;
        else
            a->calls_warned = true;
    } else if (is(type, n, "model.response")) {
        a->cut = strcmp(str(data, "finishReason"), "length") == 0;
    } else if (is(type, n, "error")) {
        snprintf(a->code, sizeof(a->code), "%s", str(data, "code"));
        const char *text = str(data, "message");
        size_t m = strlen(text);
        m = m < sizeof(a->text) ? m : br_utf8_floor(text, sizeof(a->text) - 1);
        memcpy(a->text, text, m);
        a->text[m] = 0;
    }
}

const char *acp_account_stop(const struct acp_account *a, const struct gw_result *r, bool canceled)
{
    if (canceled || r->state == GW_CANCELED)
        return "cancelled";
    if (r->state == GW_COMPLETED)
        return "end_turn";
    if (strcmp(r->stopped, "budget_exceeded") == 0)
        return a->cut || (a->tokens_warned && !a->calls_warned) ? "max_tokens"
                                                                : "max_turn_requests";
    /* the policy ended it, not one of its denials: those are results of calls */
    if (strcmp(a->code, "DENIED") == 0)
        return "refusal";
    return NULL;
}

/* ---- questions ---- */

static void put_touches(struct br_buf *b, const json_t *touches, const char *key, const char *name)
{
    const json_t *list = json_object_get(touches, key);
    size_t i;
    json_t *v;
    json_array_foreach(list, i, v)
    {
        if (!json_is_string(v))
            continue;
        (void)br_buf_printf(b, i ? ", " : "%s: ", name);
        (void)br_buf_put_visible(b, json_string_value(v), json_string_length(v), true);
    }
    if (json_array_size(list))
        (void)br_buf_put(b, "\n", 1);
}

/* Who asks, why, and what an answer lets happen. */
static json_t *explain(const json_t *ask)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(ACP_MESSAGE_MAX);
    const json_t *touches = json_object_get(ask, "touches");
    const char *reason = str(ask, "reason"), *subject = str(ask, "subject"),
               *action = str(ask, "action");
    (void)br_buf_printf(&b, "%s: ", action);
    (void)br_buf_put_visible(&b, subject, strlen(subject), false);
    (void)br_buf_printf(&b, "\n\nRule '%s' (%s) asks", str(ask, "ruleId"), str(ask, "source"));
    if (reason[0]) {
        (void)br_buf_printf(&b, ": ");
        (void)br_buf_put_visible(&b, reason, strlen(reason), true);
    }
    (void)br_buf_printf(&b, "\n");
    put_touches(&b, touches, "reads", "reads");
    put_touches(&b, touches, "writes", "writes");
    put_touches(&b, touches, "hosts", "hosts");
    if (json_is_true(json_object_get(ask, "opaque")))
        (void)br_buf_printf(&b, "It cannot be said in advance what this command runs.\n");
    return b.failed ? NULL : text_content((char *)b.data, b.len);
}

static json_t *options_of(bool run)
{
    json_t *list = json_pack("[{s:s, s:s, s:s}]", "optionId", "allow_once", "name", "Allow once",
                             "kind", "allow_once");
    if (run)
        json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "optionId", "allow_always", "name",
                                              "Allow for this run", "kind", "allow_always"));
    json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "optionId", "reject_once", "name",
                                          "Reject", "kind", "reject_once"));
    return list;
}

json_t *acp_map_ask(const struct acp_scope *s, const json_t *ask, const json_t *call)
{
    const char *tool = str(call, "tool"), *subject = str(ask, "subject");
    const struct tool_kind *k = kind_of(tool);
    const json_t *input = json_object_get(call, "input");
    json_t *text = explain(ask), *diff = diff_of(s, tool, input), *at = locations_of(s, input);
    json_t *content = text ? json_pack("[o]", text) : NULL;
    json_t *title = call         ? title_of(tool, input)
                    : subject[0] ? line(subject, strlen(subject))
                                 : line(str(ask, "action"), strlen(str(ask, "action")));
    json_t *t =
        json_pack("{s:o, s:o, s:s, s:s, s:O*, s:o, s:o*}", "toolCallId", call_id(s, ask), "title",
                  title, "kind", k ? k->kind : kind_of_action(str(ask, "action")), "status",
                  "pending", "rawInput", input, "content", content, "locations", at);
    if (diff)
        json_array_append_new(content, diff);
    bool run = strcmp(str(ask, "scope"), "run") == 0;
    return json_pack("{s:s, s:o, s:o}", "sessionId", s->session_id, "toolCall", t, "options",
                     options_of(run));
}

unsigned acp_map_answer(const json_t *result, bool run, const char **note)
{
    const json_t *outcome = json_object_get(result, "outcome");
    const char *how = str(outcome, "outcome"), *option = str(outcome, "optionId");
    *note = "";
    if (!result) {
        *note = "the client answered with an error";
    } else if (strcmp(how, "cancelled") == 0) {
        *note = "the client answered 'cancelled'";
    } else if (strcmp(how, "selected") != 0) {
        *note = "the client's answer was none";
    } else if (strcmp(option, "allow_once") == 0) {
        return 1;
    } else if (strcmp(option, "allow_always") == 0 && run) {
        return 2;
    } else if (strcmp(option, "reject_once") != 0) {
        *note = "the client chose an option that was not offered";
    }
    return 0;
}

/* ---- prompts ---- */

static int bad(struct br_err *err, size_t i, const char *what)
{
    return br_err_set(err, BR_E_INVALID_ARGUMENTS, "'prompt[%zu]' %s; nothing was run", i, what);
}

static int put_block(const json_t *block, size_t i, struct br_buf *out, struct br_err *err)
{
    const char *type = str(block, "type");
    const json_t *text = json_object_get(block, "text");
    if (!json_is_object(block) || !type[0])
        return bad(err, i, "must be an object with a 'type'");
    if (strcmp(type, "text") == 0) {
        if (!json_is_string(text))
            return bad(err, i, "must have a 'text'");
        return br_buf_put(out, json_string_value(text), json_string_length(text));
    }
    if (strcmp(type, "resource_link") == 0) {
        const char *uri = str(block, "uri"), *name = str(block, "name");
        if (!uri[0] || !json_is_string(json_object_get(block, "name")))
            return bad(err, i, "must have a 'uri' and a 'name'");
        return br_buf_printf(out, "[%s](%s)", name, uri);
    }
    if (strcmp(type, "resource") == 0) {
        const json_t *resource = json_object_get(block, "resource");
        text = json_object_get(resource, "text");
        if (!json_is_string(text) || !str(resource, "uri")[0])
            return bad(err, i, "must have a 'resource' with 'uri' and 'text'; others are not read");
        (void)br_buf_printf(out, "\n<context ref=\"%s\">\n", str(resource, "uri"));
        (void)br_buf_put(out, json_string_value(text), json_string_length(text));
        return br_buf_printf(out, "\n</context>\n");
    }
    return bad(err, i, "must be 'text', 'resource_link' or 'resource'; this agent reads no other");
}

int acp_map_prompt(const json_t *blocks, struct br_buf *out, struct br_err *err)
{
    size_t i;
    json_t *block;
    if (!json_is_array(blocks) || json_array_size(blocks) == 0)
        return br_err_set(err, BR_E_INVALID_ARGUMENTS,
                          "'prompt' must be a list of content blocks; nothing was run");
    if (json_array_size(blocks) > ACP_BLOCKS_MAX)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED, "'prompt' has more than %u blocks",
                          ACP_BLOCKS_MAX);
    json_array_foreach(blocks, i, block)
    {
        int r = put_block(block, i, out, err);
        if (out->failed)
            return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                              "'prompt' has more than %u bytes of text; nothing was run",
                              BR_GOAL_MAX);
        if (r < 0)
            return r;
    }
    if (out->len == 0)
        return br_err_set(err, BR_E_INVALID_ARGUMENTS, "'prompt' is empty; nothing was run");
    return 0;
}
