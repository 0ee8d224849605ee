/*
 * Answers of chat completions: the chunks of a stream, and whole ones. Called by answer.c. What a
 * guest would not notice itself is what this looks for: a finish reason that contradicts the tool
 * calls, two calls with one id, the function_call of before there were tools.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/dialect_priv.h"

struct call_read {
    bool has_index, foreign;
    uint64_t index;
    const char *at;           /* behind the bracket of its object */
    struct br_slice index_at; /* the number */
    struct br_slice id, name, arguments;
};

struct br_chat_read {
    struct br_slice id, created;
    bool has_choices, has_message;
    unsigned choices;
    uint64_t choice_index;
    struct br_slice content, refusal, finish;
    struct br_slice reasoning, noise; /* text beside the content; and what hides its length */
    /* function_call, which is not null */
    struct br_slice legacy_at, legacy, legacy_name, legacy_arguments;
    struct br_slice calls_at; /* the value of tool_calls */
    unsigned ncalls;
    struct call_read calls[BR_TOOL_CALLS_PER_TURN_MAX + 1]; /* not cleared */
};

static void *chat_make(void)
{
    return calloc(1, sizeof(struct br_chat_read));
}

/* ---- reading ---- */

static bool read_function(struct br_scan *j, struct br_slice *name, struct br_slice *arguments)
{
    static const struct br_scan_name names[] = {BR_NAME("name"), BR_NAME("arguments")};
    static const struct br_scan_keys keys = {names, BR_ARRAY_LEN(names)};
    struct br_scan_in in = {.seen = 0};
    int id;
    *name = *arguments = (struct br_slice){.p = NULL};
    if (br_scan_peek(j) != '{')
        return br_scan_refuse(j, "has a tool call whose function is no object");
    br_scan_open(j, '{');
    while (br_scan_key(j, &in, &keys, &id, NULL)) {
        bool ok;
        if (id == 0)
            ok = br_scan_string_or_null(j, name, "has a tool call without a usable name");
        else if (id == 1)
            ok = br_scan_string_or_null(j, arguments, "has arguments that are no text");
        else
            ok = br_scan_skip(j, NULL);
        if (!ok)
            return false;
    }
    return j->state == BR_SCAN_OK;
}

static bool read_call(struct br_scan *j, struct call_read *c)
{
    enum { INDEX, ID, TYPE, FUNCTION, CUSTOM };
    static const struct br_scan_name names[] = {BR_NAME("index"), BR_NAME("id"), BR_NAME("type"),
                                                BR_NAME("function"), BR_NAME("custom")};
    static const struct br_scan_keys keys = {names, BR_ARRAY_LEN(names)};
    struct br_scan_in in = {.seen = 0};
    struct br_slice type;
    int id;
    *c = (struct call_read){.has_index = false};
    if (br_scan_peek(j) != '{')
        return br_scan_refuse(j, "has a tool call that is no object");
    br_scan_open(j, '{');
    c->at = j->p;
    while (br_scan_key(j, &in, &keys, &id, NULL)) {
        bool ok, null = false;
        switch (id) {
        case INDEX:
            br_scan_peek(j);
            c->index_at.p = j->p;
            ok = c->has_index =
                br_scan_count(j, &c->index, "has a tool call without a usable index");
            c->index_at.n = (size_t)(j->p - c->index_at.p);
            break;
        case ID:
            ok = br_scan_string_or_null(j, &c->id, "has a tool call without a usable id");
            break;
        case TYPE:
            ok = br_scan_string_or_null(j, &type, "has a tool call of no known type");
            if (ok && type.p && type.n && !br_slice_is(&type, "function"))
                c->foreign = true;
            break;
        case FUNCTION:
            ok = read_function(j, &c->name, &c->arguments);
            break;
        case CUSTOM:
            ok = br_scan_null(j, &null) && (null || br_scan_skip(j, NULL));
            c->foreign = c->foreign || !null;
            break;
        default:
            ok = br_scan_skip(j, NULL);
        }
        if (!ok)
            return false;
    }
    return j->state == BR_SCAN_OK;
}

static bool read_calls(struct br_scan *j, struct br_chat_read *r)
{
    struct br_scan_in in = {.seen = 0};
    bool null;
    br_scan_peek(j);
    r->calls_at.p = j->p;
    if (!br_scan_null(j, &null))
        return false;
    if (!null) {
        if (br_scan_peek(j) != '[')
            return br_scan_refuse(j, "has tool calls that are not a list");
        br_scan_open(j, '[');
        while (br_scan_element(j, &in)) {
            if (r->ncalls > BR_TOOL_CALLS_PER_TURN_MAX)
                return br_scan_refuse(j, "has too many tool calls");
            if (!read_call(j, &r->calls[r->ncalls]))
                return false;
            r->ncalls++;
        }
    }
    r->calls_at.n = (size_t)(j->p - r->calls_at.p);
    return j->state == BR_SCAN_OK;
}

static bool read_legacy(struct br_scan *j, struct br_chat_read *r)
{
    const char *key = j->key;
    bool null;
    if (!br_scan_null(j, &null) || null)
        return j->state == BR_SCAN_OK;
    br_scan_peek(j);
    const char *from = j->p;
    if (!read_function(j, &r->legacy_name, &r->legacy_arguments))
        return false;
    r->legacy = (struct br_slice){.p = from, .n = (size_t)(j->p - from)};
    r->legacy_at = (struct br_slice){.p = key, .n = (size_t)(j->p - key)};
    return true;
}

static bool text_or_skip(struct br_scan *j, struct br_slice *s)
{
    return br_scan_peek(j) == '"' ? br_scan_string(j, s) : br_scan_skip(j, NULL);
}

/* The delta of a chunk, or the message of a whole answer. */
static bool read_part(struct br_scan *j, struct br_chat_read *r)
{
    enum { ROLE, CONTENT, CALLS, LEGACY, REFUSAL, REASONING };
    static const struct br_scan_name names[] = {
        BR_NAME("role"),          BR_NAME("content"), BR_NAME("tool_calls"),
        BR_NAME("function_call"), BR_NAME("refusal"), BR_NAME("reasoning_content")};
    static const struct br_scan_keys keys = {names, BR_ARRAY_LEN(names)};
    struct br_scan_in in = {.seen = 0};
    bool null;
    int id;
    if (!br_scan_null(j, &null) || null)
        return j->state == BR_SCAN_OK;
    if (br_scan_peek(j) != '{')
        return br_scan_refuse(j, "has a delta or message that is no object");
    br_scan_open(j, '{');
    r->has_message = true;
    while (br_scan_key(j, &in, &keys, &id, NULL)) {
        bool ok;
        switch (id) {
        case CONTENT:
            ok = br_scan_string_or_null(j, &r->content, "has content that is no text");
            break;
        case REFUSAL:
            ok = br_scan_string_or_null(j, &r->refusal, "has a refusal that is no text");
            break;
        case REASONING:
            ok = text_or_skip(j, &r->reasoning);
            break;
        case CALLS:
            ok = read_calls(j, r);
            break;
        case LEGACY:
            ok = read_legacy(j, r);
            break;
        default:
            ok = br_scan_skip(j, NULL);
        }
        if (!ok)
            return false;
    }
    return j->state == BR_SCAN_OK;
}

static bool read_usage(struct br_scan *j, struct br_usage *u)
{
    static const struct br_scan_name names[] = {
        BR_NAME("prompt_tokens"), BR_NAME("completion_tokens"), BR_NAME("total_tokens")};
    static const struct br_scan_keys keys = {names, BR_ARRAY_LEN(names)};
    return br_usage_read(j, &keys, u);
}

static bool read_choice(struct br_scan *j, struct br_chat_read *r, struct br_usage *usage,
                        bool whole)
{
    enum { INDEX, DELTA, FINISH, MESSAGE, USAGE };
    static const struct br_scan_name names[] = {BR_NAME("index"), BR_NAME("delta"),
                                                BR_NAME("finish_reason"), BR_NAME("message"),
                                                BR_NAME("usage")};
    static const struct br_scan_keys keys = {names, BR_ARRAY_LEN(names)};
    struct br_scan_in in = {.seen = 0};
    bool null = false;
    int id;
    if (br_scan_peek(j) != '{')
        return br_scan_refuse(j, "has a choice that is no object");
    br_scan_open(j, '{');
    while (br_scan_key(j, &in, &keys, &id, NULL)) {
        bool ok;
        if (id == (whole ? MESSAGE : DELTA))
            ok = read_part(j, r);
        else if (id == INDEX)
            ok =
                br_scan_null(j, &null) &&
                (null || br_scan_count(j, &r->choice_index, "has a choice without a usable index"));
        else if (id == FINISH)
            ok = br_scan_string_or_null(j, &r->finish, "has an unknown finish reason");
        else if (id == USAGE && !usage->known)
            ok = read_usage(j, usage);
        else
            ok = br_scan_skip(j, NULL);
        if (!ok)
            return false;
    }
    return j->state == BR_SCAN_OK;
}

static bool read_choices(struct br_scan *j, struct br_chat_read *r, struct br_usage *usage,
                         bool whole)
{
    struct br_scan_in in = {.seen = 0};
    if (br_scan_peek(j) != '[')
        return br_scan_refuse(j, "has no list of choices");
    br_scan_open(j, '[');
    r->has_choices = true;
    while (br_scan_element(j, &in)) {
        if (r->choices++)
            return br_scan_refuse(j, "has more than one choice");
        if (!read_choice(j, r, usage, whole))
            return false;
    }
    return j->state == BR_SCAN_OK;
}

static bool chat_read(struct br_answer *a, struct br_scan *j, bool whole)
{
    enum { ID, CREATED, CHOICES, USAGE, ERROR, NOISE };
    static const struct br_scan_name names[] = {BR_NAME("id"),      BR_NAME("created"),
                                                BR_NAME("choices"), BR_NAME("usage"),
                                                BR_NAME("error"),   BR_NAME("obfuscation")};
    static const struct br_scan_keys keys = {names, BR_ARRAY_LEN(names)};
    struct br_scan_in in = {.seen = 0};
    struct br_chat_read *r = a->read.chat;
    int id;
    memset(r, 0, offsetof(struct br_chat_read, calls));
    if (br_scan_peek(j) != '{')
        return j->state == BR_SCAN_OK ? br_scan_refuse(j, "is not a JSON object") : false;
    br_scan_open(j, '{');
    while (br_scan_key(j, &in, &keys, &id, NULL)) {
        bool ok;
        switch (id) {
        case ID:
            ok = br_scan_string_or_null(j, &r->id, "has an id that is no text");
            break;
        case CREATED:
            ok = br_scan_skip(j, &r->created);
            break;
        case CHOICES:
            ok = read_choices(j, r, &a->usage, whole);
            break;
        case USAGE:
            ok = read_usage(j, &a->usage);
            break;
        case ERROR:
            ok = br_said_read(j, &a->said);
            break;
        case NOISE:
            ok = text_or_skip(j, &r->noise);
            break;
        default:
            ok = br_scan_skip(j, NULL);
        }
        if (!ok)
            return false;
    }
    return j->state == BR_SCAN_OK;
}

static unsigned chat_holes(const struct br_answer *a, struct br_hole *h)
{
    const struct br_chat_read *r = a->read.chat;
    if (r->choices != 1 || r->ncalls || r->legacy.p || r->finish.n || r->refusal.n ||
        a->usage.known || a->facts.finish[0])
        return 0;
    unsigned n = br_hole_text(h, 0, &r->content);
    n = br_hole_text(h, n, &r->reasoning);
    if (!n)
        return 0;
    n = br_hole_text(h, n, &r->id);
    n = br_hole_number(h, n, &r->created);
    return br_hole_text(h, n, &r->noise);
}

/* ---- judging ---- */

static bool is_named(const struct br_slice *s)
{
    return s->p && s->n;
}

/* The call that this is more of, as far as the provider says; NULL: a new one. */
static struct br_call *call_of(struct br_answer *a, const struct call_read *r)
{
    struct br_call *c = NULL;
    char id[BR_CALL_ID_MAX + 1] = "";
    if (is_named(&r->id) && br_slice_text(&r->id, id, sizeof(id)) < 0)
        return NULL;
    for (uint32_t i = a->ncalls; i-- > 0 && !c;)
        if (r->has_index ? a->calls[i].said == r->index : !id[0] || strcmp(a->calls[i].id, id) == 0)
            c = &a->calls[i];
    /* another id and a name: some providers begin all of their calls at one index */
    return c && id[0] && is_named(&r->name) && strcmp(c->id, id) != 0 ? NULL : c;
}

/* The call's place in the text is where it is. */
static int place_call(struct br_answer *a, const struct call_read *r, uint64_t index,
                      struct br_err *err)
{
    if (r->has_index && r->index == index)
        return 0;
    a->facts.repairs |= BR_REPAIR_INDEX;
    if (r->has_index)
        return br_answer_edit(a, &r->index_at, err, "%llu", (unsigned long long)index);
    const struct br_slice front = {.p = r->at, .n = 0};
    return br_answer_edit(a, &front, err, "\"index\":%llu,", (unsigned long long)index);
}

static int take_call(struct br_answer *a, const struct call_read *r, uint64_t position, bool whole,
                     struct br_err *err)
{
    uint64_t index = whole ? position : r->index;
    bool repair = a->normalize && !whole;
    if (r->foreign)
        return br_answer_invalid(err, "calls a tool that is not a function");
    if (!repair && ((!whole && !r->has_index) || index > a->ncalls))
        return br_answer_invalid(err, "has a tool call without a usable index");
    struct br_call *c = repair ? call_of(a, r) : br_call_find(a, index);
    if (!c) {
        c = br_call_add(a, repair ? a->ncalls : index, &r->id, &r->name, err);
        if (!c)
            return -(int)err->code;
        c->said = r->has_index ? r->index : UINT64_MAX;
    } else if (is_named(&r->name) && br_slice_hash(&r->name) != c->name_hash) {
        return br_answer_invalid(err, "has a tool call that changes its name");
    } else {
        int e = br_call_same(a, c, &r->id, err);
        if (e < 0)
            return e;
    }
    int e = repair ? place_call(a, r, c->index, err) : 0;
    return e < 0 ? e : br_call_arguments(a, c, &r->arguments, err);
}

/* function_call becomes the only tool call. */
static int take_legacy(struct br_answer *a, bool whole, struct br_err *err)
{
    const struct br_chat_read *r = a->read.chat;
    char id[32];
    bool first = !a->ncalls;
    if (!a->normalize)
        return br_answer_invalid(err, "uses the legacy 'function_call'");
    if (r->ncalls || (!first && a->phase == 0) || r->legacy.n > BR_ANSWER_EVENT_MAX)
        return br_answer_invalid(err, "uses tool calls and the legacy 'function_call'");
    if (first) {
        a->phase = 1;
        a->seed = br_slice_hash(&r->id);
        (void)snprintf(id, sizeof(id), "call_%016llx", (unsigned long long)a->seed);
        struct br_slice s = {.p = id, .n = strlen(id)};
        if (!br_call_add(a, 0, &s, &r->legacy_name, err))
            return -(int)err->code;
    }
    a->facts.repairs |= BR_REPAIR_FUNCTION;
    int e = br_call_arguments(a, &a->calls[0], &r->legacy_arguments, err);
    if (e < 0)
        return e;
    char begin[128] = "";
    if (first)
        (void)snprintf(begin, sizeof(begin), "\"id\":\"%s\",\"type\":\"function\",",
                       a->calls[0].id);
    struct br_slice at = r->legacy_at;
    if (r->calls_at.p) { /* null or empty: its place is taken, a key comes once */
        at = r->calls_at;
        e = br_answer_edit(a, &r->legacy, err, "null");
    }
    return e < 0
               ? e
               : br_answer_edit(a, &at, err, "%s[{%s%s\"function\":%.*s}]",
                                r->calls_at.p ? "" : "\"tool_calls\":", whole ? "" : "\"index\":0,",
                                begin, (int)r->legacy.n, r->legacy.p);
}

static int finish_edit(struct br_answer *a, const char *want, uint32_t repair, struct br_err *err)
{
    struct br_slice old = br_slice_quoted(&a->read.chat->finish);
    a->facts.repairs |= repair;
    return br_answer_edit(a, &old, err, "\"%s\"", want);
}

static int take_finish(struct br_answer *a, struct br_err *err)
{
    const struct br_slice *said = &a->read.chat->finish;
    const char *want = a->ncalls ? "tool_calls" : "stop";
    int r = 0;
    if (br_slice_is(said, "length")) {
        want = "length";
    } else if (br_slice_is(said, "content_filter")) {
        want = "error";
    } else if (br_slice_is(said, "function_call")) {
        if (!a->normalize)
            return br_answer_invalid(err, "uses the legacy 'function_call'");
        r = finish_edit(a, want, BR_REPAIR_FUNCTION, err);
    } else if (br_slice_is(said, "stop") || br_slice_is(said, "tool_calls")) {
        if (!br_slice_is(said, want)) {
            if (!a->normalize)
                return br_answer_invalid(err, a->ncalls
                                                  ? "has tool calls and finishes with 'stop'"
                                                  : "finishes with 'tool_calls' and has none");
            r = finish_edit(a, want, BR_REPAIR_FINISH, err);
        }
    } else {
        return br_answer_invalid(err, "has an unknown finish reason");
    }
    if (r < 0)
        return r;
    if (a->facts.finish[0] && (!a->normalize || strcmp(a->facts.finish, want) != 0))
        return br_answer_invalid(err, "finishes twice");
    (void)snprintf(a->facts.finish, sizeof(a->facts.finish), "%s", want);
    return br_calls_check(a, err);
}

static int chat_apply(struct br_answer *a, bool whole, struct br_err *err)
{
    const struct br_chat_read *r = a->read.chat;
    if (a->said.is)
        return br_said_error(&a->said, err);
    int e = br_usage_apply(a, err);
    if (e < 0)
        return e;
    if (!r->has_choices)
        return br_answer_invalid(err, "has no list of choices");
    if (r->choices == 0) {
        if (whole)
            return br_answer_invalid(err, "has no choice");
        a->drop = a->usage.known && a->ask.hide_usage;
        return 0;
    }
    if (r->choice_index != 0)
        return br_answer_invalid(err, "has more than one choice");
    if (whole && !r->has_message)
        return br_answer_invalid(err, "has a choice without a message");
    if (a->facts.finish[0] && (r->content.n || r->refusal.n || r->ncalls || r->legacy.p))
        return br_answer_invalid(err, "goes on behind its finish reason");
    if (r->ncalls && a->phase)
        return br_answer_invalid(err, "uses tool calls and the legacy 'function_call'");
    for (unsigned i = 0; i < r->ncalls; i++) {
        e = take_call(a, &r->calls[i], i, whole, err);
        if (e < 0)
            return e;
    }
    if (r->legacy.p) {
        e = take_legacy(a, whole, err);
        if (e < 0)
            return e;
    }
    if (r->finish.n)
        return take_finish(a, err);
    return whole ? br_answer_invalid(err, "has no finish reason") : 0;
}

const struct br_dialect br_dialect_chat = {
    .make = chat_make, .read = chat_read, .apply = chat_apply, .holes = chat_holes, .names = false};
