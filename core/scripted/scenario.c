/*
 * Scenarios: strict validation, and the choice of a turn. The text comes from the operator (or is
 * one of the embedded ones) and is still checked key by key, because a misspelled condition would
 * otherwise match everything. Stateless: a turn is chosen from the request alone.
 */
#include <stdlib.h>
#include <string.h>

#include "scripted/scripted_priv.h"

#define BAD(err, ...) br_err_set(err, BR_E_INVALID_CONFIG, __VA_ARGS__)

static int check_keys(json_t *o, const char *where, const char *const *known, struct br_err *err)
{
    const char *key;
    json_t *v;
    json_object_foreach(o, key, v)
    {
        BR_CLEANUP_BUF struct br_buf list = BR_BUF_INIT(1024);
        bool found = false;
        for (unsigned i = 0; known[i]; i++) {
            found = found || strcmp(known[i], key) == 0;
            br_buf_printf(&list, "%s%s", i ? ", " : "", known[i]);
        }
        if (!found)
            return BAD(err,
                       "the scenario's '%s' has an unknown key '%.64s'; expected one of: %s. "
                       "It was not loaded",
                       where, key, br_buf_cstr(&list));
    }
    return 0;
}

static int get_text(json_t *o, const char *key, const char *where, const char **out,
                    struct br_err *err)
{
    json_t *v = json_object_get(o, key);
    if (!v)
        return 0;
    if (!json_is_string(v))
        return BAD(err, "the scenario's '%s.%s' is not a text; it was not loaded", where, key);
    *out = json_string_value(v);
    return 0;
}

static int get_number(json_t *o, const char *key, const char *where, unsigned min, unsigned max,
                      unsigned *out, struct br_err *err)
{
    json_t *v = json_object_get(o, key);
    if (!v)
        return 0;
    if (!json_is_integer(v) || json_integer_value(v) < (json_int_t)min ||
        json_integer_value(v) > (json_int_t)max)
        return BAD(err,
                   "the scenario's '%s.%s' is not a whole number from %u to %u; it was not "
                   "loaded",
                   where, key, min, max);
    *out = (unsigned)json_integer_value(v);
    return 0;
}

static int get_words(json_t *o, const char *key, const char *where, struct br_words *w,
                     struct br_err *err)
{
    json_t *v = json_object_get(o, key), *item;
    size_t i;
    if (!v)
        return 0;
    if (json_is_string(v) && json_string_length(v)) {
        w->text[w->n++] = json_string_value(v);
        return 0;
    }
    if (json_is_array(v) && json_array_size(v) >= 1 &&
        json_array_size(v) <= BR_SCENARIO_WORDS_MAX) {
        json_array_foreach(v, i, item)
        {
            if (!json_is_string(item) || !json_string_length(item))
                break;
            w->text[w->n++] = json_string_value(item);
        }
        if (w->n == json_array_size(v))
            return 0;
    }
    return BAD(err,
               "the scenario's '%s.%s' is neither a text nor a list of 1 to %u texts; it was "
               "not loaded",
               where, key, BR_SCENARIO_WORDS_MAX);
}

static int load_when(struct br_turn *t, json_t *when, const char *where, struct br_err *err)
{
    static const char *const known[] = {"assistant_messages", "last_tool_contains",
                                        "last_tool_lacks", "last_user_contains", NULL};
    unsigned count = 0;
    if (!json_is_object(when))
        return BAD(err, "the scenario's '%s' is not an object; it was not loaded", where);
    int r = check_keys(when, where, known, err);
    if (r == 0)
        r = get_number(when, "assistant_messages", where, 0, 100000, &count, err);
    if (r == 0 && json_object_get(when, "assistant_messages"))
        t->assistant_messages = (int)count;
    if (r == 0)
        r = get_words(when, "last_tool_contains", where, &t->tool_contains, err);
    if (r == 0)
        r = get_words(when, "last_tool_lacks", where, &t->tool_lacks, err);
    if (r == 0)
        r = get_words(when, "last_user_contains", where, &t->user_contains, err);
    return r;
}

static int load_calls(struct br_turn *t, json_t *calls, const char *where, struct br_err *err)
{
    static const char *const known[] = {"name", "arguments", NULL};
    json_t *call;
    size_t i;
    if (!json_is_array(calls) || json_array_size(calls) < 1 ||
        json_array_size(calls) > 2 * BR_TOOL_CALLS_PER_TURN_MAX)
        return BAD(err, "the scenario's '%s' is not a list of 1 to %u calls; it was not loaded",
                   where, 2 * BR_TOOL_CALLS_PER_TURN_MAX);
    json_array_foreach(calls, i, call)
    {
        char at[128];
        snprintf(at, sizeof(at), "%s[%zu]", where, i);
        if (!json_is_object(call))
            return BAD(err, "the scenario's '%s' is not an object; it was not loaded", at);
        int r = check_keys(call, at, known, err);
        if (r < 0)
            return r;
        json_t *name = json_object_get(call, "name");
        if (!json_is_string(name) || json_string_length(name) < 1 ||
            json_string_length(name) > 64 || !json_is_object(json_object_get(call, "arguments")))
            return BAD(err,
                       "the scenario's '%s' needs a 'name' of 1 to 64 bytes and 'arguments' "
                       "that are an object; it was not loaded",
                       at);
    }
    t->tool_calls = calls;
    return 0;
}

static const struct {
    const char *name;
    enum br_fault fault;
} faults[] = {
    {"silent", BR_FAULT_SILENT},
    {"close", BR_FAULT_CLOSE},
    {"stall", BR_FAULT_STALL},
    {"slow", BR_FAULT_SLOW},
    {"garbage", BR_FAULT_GARBAGE},
    {"oversized", BR_FAULT_OVERSIZED},
    {"bad_tool_json", BR_FAULT_BAD_TOOL_JSON},
    {"duplicate_ids", BR_FAULT_DUPLICATE_IDS},
    {"wrong_finish", BR_FAULT_WRONG_FINISH},
    {"no_usage", BR_FAULT_NO_USAGE},
    {"bad_usage", BR_FAULT_BAD_USAGE},
    {"no_done", BR_FAULT_NO_DONE},
    {"two_choices", BR_FAULT_TWO_CHOICES},
    {"legacy_function_call", BR_FAULT_LEGACY},
    {"redirect", BR_FAULT_REDIRECT},
};

static int load_fault(struct br_turn *t, json_t *v, const char *where, struct br_err *err)
{
    static const char *const known[] = {"status", "body", "retry_after", NULL};
    if (json_is_object(v)) {
        int r = check_keys(v, where, known, err);
        t->fault = BR_FAULT_STATUS;
        if (r == 0)
            r = get_number(v, "status", where, 400, 599, &t->fault_status, err);
        if (r == 0)
            r = get_text(v, "body", where, &t->fault_body, err);
        if (r == 0)
            r = get_text(v, "retry_after", where, &t->fault_retry_after, err);
        if (r == 0 && !t->fault_status)
            r = BAD(err, "the scenario's '%s' has no 'status'; it was not loaded", where);
        for (const char *c = t->fault_retry_after; r == 0 && c && *c; c++)
            if (*c < ' ' || *c > '~')
                r = BAD(err,
                        "the scenario's '%s.retry_after' is no header value; it was not "
                        "loaded",
                        where);
        return r;
    }
    for (size_t i = 0; json_is_string(v) && i < BR_ARRAY_LEN(faults); i++)
        if (strcmp(faults[i].name, json_string_value(v)) == 0) {
            t->fault = faults[i].fault;
            return 0;
        }
    BR_CLEANUP_BUF struct br_buf list = BR_BUF_INIT(1024);
    for (size_t i = 0; i < BR_ARRAY_LEN(faults); i++)
        br_buf_printf(&list, "%s%s", i ? ", " : "", faults[i].name);
    return BAD(err,
               "the scenario's '%s' is no known fault; expected an object with 'status' or one "
               "of: %s. It was not loaded",
               where, br_buf_cstr(&list));
}

static int load_turn(struct br_scenario *s, json_t *v, unsigned index, struct br_err *err)
{
    static const char *const known[] = {"when",        "text",          "tool_calls", "delay_ms",
                                        "chunk_words", "finish_reason", "fault",      NULL};
    static const char *const finishes[] = {"stop", "tool_calls", "length", "content_filter"};
    struct br_turn *t = &s->turns[index];
    char where[64], sub[96];
    snprintf(where, sizeof(where), "turns[%u]", index);
    if (!json_is_object(v))
        return BAD(err, "the scenario's '%s' is not an object; it was not loaded", where);
    int r = check_keys(v, where, known, err);
    json_t *part;
    if (r == 0 && (part = json_object_get(v, "when"))) {
        snprintf(sub, sizeof(sub), "%s.when", where);
        r = load_when(t, part, sub, err);
    }
    if (r == 0)
        r = get_text(v, "text", where, &t->text, err);
    if (r == 0 && (part = json_object_get(v, "tool_calls"))) {
        snprintf(sub, sizeof(sub), "%s.tool_calls", where);
        r = load_calls(t, part, sub, err);
    }
    if (r == 0)
        r = get_number(v, "delay_ms", where, 0, BR_SCENARIO_DELAY_MAX_MS, &t->delay_ms, err);
    if (r == 0)
        r = get_number(v, "chunk_words", where, 1, 1000, &t->chunk_words, err);
    if (r == 0)
        r = get_text(v, "finish_reason", where, &t->finish_reason, err);
    if (r == 0 && (part = json_object_get(v, "fault"))) {
        snprintf(sub, sizeof(sub), "%s.fault", where);
        r = load_fault(t, part, sub, err);
    }
    bool finish_ok = t->finish_reason == NULL;
    for (size_t i = 0; r == 0 && !finish_ok && i < BR_ARRAY_LEN(finishes); i++)
        finish_ok = strcmp(finishes[i], t->finish_reason) == 0;
    if (r == 0 && !finish_ok)
        r = BAD(err,
                "the scenario's '%s.finish_reason' is none of stop, tool_calls, length, "
                "content_filter; it was not loaded",
                where);
    if (r == 0 && !t->text[0] && !t->tool_calls && !t->fault)
        r = BAD(err,
                "the scenario's '%s' has neither 'text' nor 'tool_calls' nor 'fault'; it was "
                "not loaded",
                where);
    return r;
}

static int load_turns(struct br_scenario *s, struct br_err *err)
{
    json_t *turns = json_object_get(s->root, "turns"), *v;
    size_t i;
    unsigned delay = 0, words = 3;
    int r = get_number(s->root, "delay_ms", "scenario", 0, BR_SCENARIO_DELAY_MAX_MS, &delay, err);
    if (r == 0)
        r = get_number(s->root, "chunk_words", "scenario", 1, 1000, &words, err);
    if (r < 0)
        return r;
    if (!json_is_array(turns) || json_array_size(turns) < 1 ||
        json_array_size(turns) > BR_SCENARIO_TURNS_MAX)
        return BAD(err, "the scenario's 'turns' is not a list of 1 to %u turns; it was not loaded",
                   BR_SCENARIO_TURNS_MAX);
    s->nturns = (unsigned)json_array_size(turns);
    s->turns = calloc(s->nturns, sizeof(*s->turns));
    if (!s->turns)
        return br_err_set(err, BR_E_NOMEM, "no memory for the scenario");
    json_array_foreach(turns, i, v)
    {
        s->turns[i] = (struct br_turn){
            .assistant_messages = -1, .text = "", .delay_ms = delay, .chunk_words = words};
        r = load_turn(s, v, (unsigned)i, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int load_root(struct br_scenario *s, struct br_err *err)
{
    static const char *const known[] = {"v",           "name",  "title", "delay_ms",
                                        "chunk_words", "turns", NULL};
    if (!json_is_object(s->root))
        return BAD(err, "the scenario is not a JSON object; it was not loaded");
    int r = check_keys(s->root, "scenario", known, err);
    if (r < 0)
        return r;
    json_t *v = json_object_get(s->root, "v");
    if (!json_is_integer(v) || json_integer_value(v) != 1)
        return BAD(err, "the scenario's 'v' is not 1; it was not loaded");
    s->name = s->title = "";
    r = get_text(s->root, "name", "scenario", &s->name, err);
    if (r == 0)
        r = get_text(s->root, "title", "scenario", &s->title, err);
    if (r == 0 && !br_is_kebab(s->name, 64))
        r = BAD(err, "the scenario's 'name' is not a kebab-case word of at most 64 bytes; it was "
                     "not loaded");
    return r < 0 ? r : load_turns(s, err);
}

int br_scenario_load(const void *p, size_t n, struct br_scenario **out, struct br_err *err)
{
    if (n > BR_SCENARIO_MAX)
        return BAD(err, "the scenario is larger than %u bytes; it was not loaded", BR_SCENARIO_MAX);
    struct br_err why = {.code = BR_OK};
    if (br_json_scan(p, n, BR_JSON_DEPTH_MAX, BR_JSON_NODES_MAX, &why) < 0)
        return BAD(err, "the scenario was not loaded: %s", why.text);
    struct br_scenario *s = calloc(1, sizeof(*s));
    if (!s)
        return br_err_set(err, BR_E_NOMEM, "no memory for the scenario");
    json_error_t je;
    s->root = json_loadb(p, n, JSON_REJECT_DUPLICATES, &je);
    int r = s->root ? load_root(s, err)
                    : BAD(err, "the scenario is not JSON (line %d: %.200s); it was not loaded",
                          je.line, je.text);
    if (r < 0)
        br_scenario_free(&s);
    else
        *out = s;
    return r;
}

void br_scenario_free(struct br_scenario **s)
{
    if (!*s)
        return;
    json_decref((*s)->root);
    free((*s)->turns);
    free(*s);
    *s = NULL;
}

/* ---- choosing ---- */

static bool words_in(const struct br_words *w, json_t *message)
{
    const char *text = json_string_value(json_object_get(message, "content"));
    for (unsigned i = 0; text && i < w->n; i++)
        if (strstr(text, w->text[i]))
            return true;
    return false;
}

static bool has_role(json_t *message, const char *role)
{
    const char *r = json_string_value(json_object_get(message, "role"));
    return r && strcmp(r, role) == 0;
}

/* In any of the tool messages behind the last message of the assistant. */
static bool words_in_last_tools(const struct br_words *w, json_t *messages)
{
    for (size_t i = json_array_size(messages); i-- > 0;) {
        json_t *m = json_array_get(messages, i);
        if (has_role(m, "assistant"))
            return false;
        if (has_role(m, "tool") && words_in(w, m))
            return true;
    }
    return false;
}

static bool words_in_last_user(const struct br_words *w, json_t *messages)
{
    for (size_t i = json_array_size(messages); i-- > 0;) {
        json_t *m = json_array_get(messages, i);
        if (has_role(m, "user"))
            return words_in(w, m);
    }
    return false;
}

const struct br_turn *br_scenario_turn(const struct br_scenario *s, const struct br_situation *q)
{
    for (unsigned i = 0; i < s->nturns; i++) {
        const struct br_turn *t = &s->turns[i];
        if (t->assistant_messages >= 0 && (unsigned)t->assistant_messages != q->assistant_messages)
            continue;
        if (t->tool_contains.n && !words_in_last_tools(&t->tool_contains, q->messages))
            continue;
        if (t->tool_lacks.n && words_in_last_tools(&t->tool_lacks, q->messages))
            continue;
        if (t->user_contains.n && !words_in_last_user(&t->user_contains, q->messages))
            continue;
        return t;
    }
    return NULL;
}
