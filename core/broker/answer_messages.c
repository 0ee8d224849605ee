/*
 * Answers of Anthropic Messages: the events of a stream, and whole ones. Called by answer.c. A
 * stream is message_start, blocks one after the other (start, deltas, stop), message_delta with
 * the reason why it stopped, message_stop; pings anywhere. Only kinds of blocks that the guest's
 * request can have led to are allowed: nothing ran on the provider's side.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/dialect_priv.h"

enum block { BLOCK_NONE, BLOCK_TEXT, BLOCK_THINKING, BLOCK_REDACTED, BLOCK_TOOL, BLOCK_OTHER };

struct block_read {
    struct br_slice type, id, name, input;
    bool input_given; /* an object with a member */
};

struct br_messages_read {
    bool has_index, has_message, has_block, has_delta;
    uint64_t index;
    struct br_slice delta_type, text, thinking, partial, stop;
    /* tokens: of the prompt, written to a cache, read from one, of the answer */
    uint64_t counts[4];
    bool has_count[4];
    struct block_read block;
    unsigned ncontent, ncalls; /* of a whole message */
    bool other;                /* it has a block of a kind that is not allowed */
    struct block_read calls[BR_TOOL_CALLS_PER_TURN_MAX + 1]; /* not cleared */
};

static void *messages_make(void)
{
    return calloc(1, sizeof(struct br_messages_read));
}

/* ---- reading ---- */

static bool read_usage(struct br_scan *j, struct br_answer *a)
{
    static const struct br_scan_name names[] = {
        BR_NAME("input_tokens"), BR_NAME("cache_creation_input_tokens"),
        BR_NAME("cache_read_input_tokens"), BR_NAME("output_tokens")};
    static const struct br_scan_keys keys = {names, BR_ARRAY_LEN(names)};
    static const char why[] = "has a usage that is not made of token counts";
    struct br_messages_read *r = a->read.messages;
    struct br_scan_in in = {.seen = 0};
    bool null;
    int id;
    if (!br_scan_null(j, &null) || null)
        return j->state == BR_SCAN_OK;
    if (br_scan_peek(j) != '{')
        return br_scan_refuse(j, why);
    br_scan_open(j, '{');
    while (br_scan_key(j, &in, &keys, &id, NULL)) {
        if (id < 0 ? !br_scan_skip(j, NULL) : !br_scan_null(j, &null))
            return false;
        if (id < 0 || null)
            continue;
        if (!br_scan_count(j, &r->counts[id], why))
            return false;
        if (r->counts[id] > BR_ANSWER_TOKENS_MAX)
            return br_scan_refuse(j, why);
        r->has_count[id] = true;
    }
    a->usage.known = true;
    return j->state == BR_SCAN_OK;
}

static bool read_block(struct br_scan *j, struct block_read *b)
{
    enum { TYPE, ID, NAME, INPUT };
    static const struct br_scan_name names[] = {BR_NAME("type"), BR_NAME("id"), BR_NAME("name"),
                                                BR_NAME("input")};
    static const struct br_scan_keys keys = {names, BR_ARRAY_LEN(names)};
    struct br_scan_in in = {.seen = 0};
    int id;
    *b = (struct block_read){.input_given = false};
    if (br_scan_peek(j) != '{')
        return br_scan_refuse(j, "has a block of content that is no object");
    br_scan_open(j, '{');
    while (br_scan_key(j, &in, &keys, &id, NULL)) {
        bool ok;
        if (id == TYPE)
            ok = br_scan_string_or_null(j, &b->type, "has a block of content of no known type");
        else if (id == ID)
            ok = br_scan_string_or_null(j, &b->id, "has a tool call without a usable id");
        else if (id == NAME)
            ok = br_scan_string_or_null(j, &b->name, "has a tool call without a usable name");
        else if (id == INPUT)
            ok = br_scan_skip(j, &b->input);
        else
            ok = br_scan_skip(j, NULL);
        if (!ok)
            return false;
    }
    for (size_t i = 1; i < b->input.n && !b->input_given; i++)
        b->input_given = !strchr(" \t\r\n}", b->input.p[i]);
    return j->state == BR_SCAN_OK;
}

static enum block block_kind(const struct block_read *b)
{
    return br_slice_is(&b->type, "text")                ? BLOCK_TEXT
           : br_slice_is(&b->type, "thinking")          ? BLOCK_THINKING
           : br_slice_is(&b->type, "redacted_thinking") ? BLOCK_REDACTED
           : br_slice_is(&b->type, "tool_use")          ? BLOCK_TOOL
                                                        : BLOCK_OTHER;
}

static bool read_content(struct br_scan *j, struct br_messages_read *r)
{
    struct br_scan_in in = {.seen = 0};
    if (br_scan_peek(j) != '[')
        return br_scan_refuse(j, "has content that is not a list");
    br_scan_open(j, '[');
    while (br_scan_element(j, &in)) {
        if (r->ncalls > BR_TOOL_CALLS_PER_TURN_MAX)
            return br_scan_refuse(j, "has too many tool calls");
        struct block_read *b = &r->calls[r->ncalls];
        if (!read_block(j, b))
            return false;
        enum block kind = block_kind(b);
        r->ncontent++;
        r->ncalls += kind == BLOCK_TOOL;
        r->other = r->other || kind == BLOCK_OTHER;
    }
    return j->state == BR_SCAN_OK;
}

/* The message of message_start, or a whole answer. */
static bool read_message(struct br_scan *j, struct br_answer *a)
{
    enum { TYPE, CONTENT, STOP, USAGE, ERROR };
    static const struct br_scan_name names[] = {BR_NAME("type"), BR_NAME("content"),
                                                BR_NAME("stop_reason"), BR_NAME("usage"),
                                                BR_NAME("error")};
    static const struct br_scan_keys keys = {names, BR_ARRAY_LEN(names)};
    struct br_messages_read *r = a->read.messages;
    struct br_scan_in in = {.seen = 0};
    int id;
    if (br_scan_peek(j) != '{')
        return j->state == BR_SCAN_OK ? br_scan_refuse(j, "is not a JSON object") : false;
    br_scan_open(j, '{');
    while (br_scan_key(j, &in, &keys, &id, NULL)) {
        bool ok;
        switch (id) {
        case TYPE:
            ok = br_scan_string_or_null(j, &a->type, "has a type that is no text");
            break;
        case CONTENT:
            r->has_message = true;
            ok = read_content(j, r);
            break;
        case STOP:
            ok = br_scan_string_or_null(j, &r->stop, "has an unknown stop reason");
            break;
        case USAGE:
            ok = read_usage(j, a);
            break;
        case ERROR:
            ok = br_said_read(j, &a->said);
            break;
        default:
            ok = br_scan_skip(j, NULL);
        }
        if (!ok)
            return false;
    }
    return j->state == BR_SCAN_OK;
}

static bool read_delta(struct br_scan *j, struct br_messages_read *r)
{
    static const struct br_scan_name names[] = {BR_NAME("type"), BR_NAME("text"),
                                                BR_NAME("thinking"), BR_NAME("partial_json"),
                                                BR_NAME("stop_reason")};
    static const struct br_scan_keys keys = {names, BR_ARRAY_LEN(names)};
    struct br_slice *const to[] = {&r->delta_type, &r->text, &r->thinking, &r->partial, &r->stop};
    struct br_scan_in in = {.seen = 0};
    int id;
    if (br_scan_peek(j) != '{')
        return br_scan_refuse(j, "has a delta that is no object");
    br_scan_open(j, '{');
    r->has_delta = true;
    while (br_scan_key(j, &in, &keys, &id, NULL))
        if (!(id >= 0 ? br_scan_string_or_null(j, to[id], "has a delta that is no text")
                      : br_scan_skip(j, NULL)))
            return false;
    return j->state == BR_SCAN_OK;
}

static bool read_event(struct br_scan *j, struct br_answer *a)
{
    enum { TYPE, INDEX, DELTA, BLOCK, MESSAGE, USAGE, ERROR };
    static const struct br_scan_name names[] = {
        BR_NAME("type"),    BR_NAME("index"), BR_NAME("delta"), BR_NAME("content_block"),
        BR_NAME("message"), BR_NAME("usage"), BR_NAME("error")};
    static const struct br_scan_keys keys = {names, BR_ARRAY_LEN(names)};
    struct br_messages_read *r = a->read.messages;
    struct br_scan_in in = {.seen = 0};
    struct br_slice type = {.p = NULL};
    int id;
    if (br_scan_peek(j) != '{')
        return j->state == BR_SCAN_OK ? br_scan_refuse(j, "is not a JSON object") : false;
    br_scan_open(j, '{');
    while (br_scan_key(j, &in, &keys, &id, NULL)) {
        bool ok;
        switch (id) {
        case TYPE:
            ok = br_scan_string_or_null(j, &type, "has an event without a usable type");
            break;
        case INDEX:
            ok = r->has_index = br_scan_count(j, &r->index, "has an event without a usable index");
            break;
        case DELTA:
            ok = read_delta(j, r);
            break;
        case BLOCK:
            ok = r->has_block = read_block(j, &r->block);
            break;
        case MESSAGE:
            ok = read_message(j, a);
            break;
        case USAGE:
            ok = read_usage(j, a);
            break;
        case ERROR:
            ok = br_said_read(j, &a->said);
            break;
        default:
            ok = br_scan_skip(j, NULL);
        }
        if (!ok)
            return false;
    }
    a->type = type; /* that of the event, not of the message in it */
    return j->state == BR_SCAN_OK;
}

static bool messages_read(struct br_answer *a, struct br_scan *j, bool whole)
{
    memset(a->read.messages, 0, offsetof(struct br_messages_read, calls));
    return whole ? read_message(j, a) : read_event(j, a);
}

/* More text in the block that is open. */
static unsigned messages_holes(const struct br_answer *a, struct br_hole *h)
{
    const struct br_messages_read *r = a->read.messages;
    const struct br_slice *s = a->block == BLOCK_TEXT ? &r->text : &r->thinking;
    if (a->block == BLOCK_TOOL || !r->has_delta || !s->p || r->has_block || a->usage.known ||
        !br_slice_is(&a->type, "content_block_delta"))
        return 0;
    *h = (struct br_hole){.p = s->p, .n = s->n};
    return 1;
}

/* ---- judging ---- */

/* What an event does not say again, or says as 0, stays as it was. */
static int take_usage(struct br_answer *a, struct br_err *err)
{
    const struct br_messages_read *r = a->read.messages;
    struct br_usage *u = &a->usage;
    uint64_t prompt = r->counts[0] + r->counts[1] + r->counts[2];
    if (!u->known)
        return 0;
    bool before = a->facts.usage_known;
    u->has_prompt = before || r->has_count[0];
    u->has_completion = before || r->has_count[3];
    u->prompt = prompt || !before ? prompt : a->facts.prompt;
    u->completion = r->has_count[3] || !before ? r->counts[3] : a->facts.completion;
    return br_usage_apply(a, err);
}

static int take_stop(struct br_answer *a, struct br_err *err)
{
    static const struct {
        const char *reason, *finish;
    } known[] = {
        {"end_turn", "stop"},       {"stop_sequence", "stop"},
        {"tool_use", "tool_calls"}, {"max_tokens", "length"},
        {"refusal", "error"},       {"model_context_window_exceeded", "length"},
    };
    const struct br_slice *said = &a->read.messages->stop;
    size_t i = 0;
    while (i < BR_ARRAY_LEN(known) && !br_slice_is(said, known[i].reason))
        i++;
    if (i == BR_ARRAY_LEN(known))
        return br_answer_invalid(err, "has an unknown stop reason");
    if (a->facts.finish[0])
        return br_answer_invalid(err, "stops twice");
    const char *finish = known[i].finish, *want = NULL;
    if (strcmp(finish, "stop") == 0 && a->ncalls)
        want = "tool_use";
    else if (strcmp(finish, "tool_calls") == 0 && !a->ncalls)
        want = "end_turn";
    if (want) {
        if (!a->normalize)
            return br_answer_invalid(err, a->ncalls ? "has tool calls and stops for another reason"
                                                    : "stops for tool calls and has none");
        finish = a->ncalls ? "tool_calls" : "stop";
        a->facts.repairs |= BR_REPAIR_FINISH;
        struct br_slice old = br_slice_quoted(said);
        int r = br_answer_edit(a, &old, err, "\"%s\"", want);
        if (r < 0)
            return r;
    }
    (void)snprintf(a->facts.finish, sizeof(a->facts.finish), "%s", finish);
    return br_calls_check(a, err);
}

static int take_tool(struct br_answer *a, uint64_t index, const struct block_read *b, bool whole,
                     struct br_err *err)
{
    struct br_call *c = br_call_add(a, index, &b->id, &b->name, err);
    if (!c)
        return -(int)err->code;
    if (b->input.p && *b->input.p != '{' && *b->input.p != 'n')
        return br_answer_invalid(err, "has a tool call whose arguments are not a JSON object");
    if (whole ? !b->input.p : !b->input_given)
        return 0;
    int r = br_call_arguments(a, c, &b->input, err);
    c->whole = true;
    return r;
}

static int not_allowed(struct br_err *err)
{
    return br_answer_invalid(err, "has a block of content that the request did not ask for");
}

static int block_start(struct br_answer *a, struct br_err *err)
{
    const struct br_messages_read *r = a->read.messages;
    if (!r->has_block || !r->has_index || a->block || r->index != a->blocks)
        return br_answer_invalid(err, "has blocks of content in no order");
    a->block = block_kind(&r->block);
    if (a->block == BLOCK_OTHER)
        return not_allowed(err);
    return a->block == BLOCK_TOOL ? take_tool(a, r->index, &r->block, false, err) : 0;
}

static int block_delta(struct br_answer *a, struct br_err *err)
{
    const struct br_messages_read *r = a->read.messages;
    static const struct {
        const char *type;
        enum block block;
    } known[] = {
        {"text_delta", BLOCK_TEXT},         {"input_json_delta", BLOCK_TOOL},
        {"thinking_delta", BLOCK_THINKING}, {"signature_delta", BLOCK_THINKING},
        {"citations_delta", BLOCK_TEXT},
    };
    if (!r->has_delta || !r->has_index || !a->block || r->index != a->blocks)
        return br_answer_invalid(err, "has blocks of content in no order");
    for (size_t i = 0; i < BR_ARRAY_LEN(known); i++) {
        if (known[i].block != (enum block)a->block || !br_slice_is(&r->delta_type, known[i].type))
            continue;
        return a->block == BLOCK_TOOL
                   ? br_call_arguments(a, &a->calls[a->ncalls - 1], &r->partial, err)
                   : 0;
    }
    return br_answer_invalid(err, "has a delta that does not fit its block");
}

static int stream_apply(struct br_answer *a, struct br_err *err)
{
    const struct br_messages_read *r = a->read.messages;
    const struct br_slice *type = &a->type;
    enum { BEFORE, BLOCKS, STOPPED };
    if (br_slice_is(type, "content_block_delta"))
        return block_delta(a, err);
    if (br_slice_is(type, "ping"))
        return 0;
    if (br_slice_is(type, "message_start")) {
        if (a->phase != BEFORE || !r->has_message || r->ncontent)
            return br_answer_invalid(err, "begins twice, or with what it should begin");
        a->phase = BLOCKS;
        return take_usage(a, err);
    }
    if (br_slice_is(type, "content_block_start"))
        return a->phase == BLOCKS ? block_start(a, err)
                                  : br_answer_invalid(err, "has blocks of content in no order");
    if (br_slice_is(type, "content_block_stop")) {
        if (!r->has_index || !a->block || r->index != a->blocks)
            return br_answer_invalid(err, "has blocks of content in no order");
        a->block = BLOCK_NONE;
        a->blocks++;
        return 0;
    }
    if (br_slice_is(type, "message_delta")) {
        if (a->phase == BEFORE || a->block)
            return br_answer_invalid(err, "stops inside of a block of content");
        a->phase = STOPPED;
        int e = take_usage(a, err);
        return e < 0 || !r->stop.n ? e : take_stop(a, err);
    }
    if (br_slice_is(type, "message_stop")) {
        if (!a->facts.finish[0])
            return br_answer_invalid(err, "ends without a stop reason");
        a->done = a->facts.complete = true;
        return 0;
    }
    a->drop = true; /* an event of a kind that clients are told to ignore */
    return 0;
}

static int whole_apply(struct br_answer *a, struct br_err *err)
{
    const struct br_messages_read *r = a->read.messages;
    if (!r->has_message)
        return br_answer_invalid(err, "is not a message with content");
    if (r->other)
        return not_allowed(err);
    int e = take_usage(a, err);
    for (unsigned i = 0; e == 0 && i < r->ncalls; i++)
        e = take_tool(a, i, &r->calls[i], true, err);
    if (e < 0)
        return e;
    return r->stop.n ? take_stop(a, err) : br_answer_invalid(err, "has no stop reason");
}

static int messages_apply(struct br_answer *a, bool whole, struct br_err *err)
{
    if (a->said.is)
        return br_said_error(&a->said, err);
    return whole ? whole_apply(a, err) : stream_apply(a, err);
}

const struct br_dialect br_dialect_messages = {.make = messages_make,
                                               .read = messages_read,
                                               .apply = messages_apply,
                                               .holes = messages_holes,
                                               .names = true};
