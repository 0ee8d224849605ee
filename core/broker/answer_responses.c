/*
 * Answers of OpenAI Responses: the events of a stream, and whole ones. Called by answer.c. A stream
 * says everything up to three times (deltas, "done" events, the whole response in the last event):
 * the arguments of a tool call must be the same wherever they come. Only items that the guest's
 * request can have led to are allowed: nothing ran on the provider's side.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/dialect_priv.h"

struct item_read {
    uint64_t index;
    struct br_slice type, call_id, name, arguments;
};

struct br_responses_read {
    bool has_index, has_item, has_response, has_output;
    uint64_t index;
    struct br_slice delta, arguments, status, reason, number, noise;
    struct br_said top; /* of an event "error", which says it beside its type */
    struct item_read item;
    uint64_t nitems;
    bool other; /* it has an item of a kind that is not allowed */
    unsigned ncalls;
    struct item_read calls[BR_TOOL_CALLS_PER_TURN_MAX + 1]; /* not cleared */
};

static void *responses_make(void)
{
    return calloc(1, sizeof(struct br_responses_read));
}

/* ---- reading ---- */

static bool read_usage(struct br_scan *j, struct br_usage *u)
{
    static const struct br_scan_name names[] = {BR_NAME("input_tokens"), BR_NAME("output_tokens"),
                                                BR_NAME("total_tokens")};
    static const struct br_scan_keys keys = {names, BR_ARRAY_LEN(names)};
    return br_usage_read(j, &keys, u);
}

static bool read_item(struct br_scan *j, struct item_read *t)
{
    static const struct br_scan_name names[] = {BR_NAME("type"), BR_NAME("call_id"),
                                                BR_NAME("name"), BR_NAME("arguments")};
    static const struct br_scan_keys keys = {names, BR_ARRAY_LEN(names)};
    struct br_slice *const to[] = {&t->type, &t->call_id, &t->name, &t->arguments};
    struct br_scan_in in = {.seen = 0};
    int id;
    *t = (struct item_read){.index = 0};
    if (br_scan_peek(j) != '{')
        return br_scan_refuse(j, "has an item that is no object");
    br_scan_open(j, '{');
    while (br_scan_key(j, &in, &keys, &id, NULL))
        if (!(id >= 0 ? br_scan_string_or_null(j, to[id],
                                               "has an item whose type, id, name or "
                                               "arguments are no text")
                      : br_scan_skip(j, NULL)))
            return false;
    return j->state == BR_SCAN_OK;
}

static bool is_call(const struct item_read *t)
{
    return br_slice_is(&t->type, "function_call");
}

static bool is_other(const struct item_read *t)
{
    return !is_call(t) && !br_slice_is(&t->type, "message") && !br_slice_is(&t->type, "reasoning");
}

static bool read_output(struct br_scan *j, struct br_responses_read *r)
{
    struct br_scan_in in = {.seen = 0};
    bool null;
    if (!br_scan_null(j, &null) || null)
        return j->state == BR_SCAN_OK;
    if (br_scan_peek(j) != '[')
        return br_scan_refuse(j, "has an output that is not a list");
    br_scan_open(j, '[');
    r->has_output = true;
    while (br_scan_element(j, &in)) {
        if (r->ncalls > BR_TOOL_CALLS_PER_TURN_MAX)
            return br_scan_refuse(j, "has too many tool calls");
        struct item_read *t = &r->calls[r->ncalls];
        if (!read_item(j, t))
            return false;
        t->index = r->nitems++;
        r->ncalls += is_call(t);
        r->other = r->other || is_other(t);
    }
    return j->state == BR_SCAN_OK;
}

static bool read_details(struct br_scan *j, struct br_slice *reason)
{
    static const struct br_scan_name names[] = {BR_NAME("reason")};
    static const struct br_scan_keys keys = {names, BR_ARRAY_LEN(names)};
    struct br_scan_in in = {.seen = 0};
    bool null;
    int id;
    if (!br_scan_null(j, &null) || null)
        return j->state == BR_SCAN_OK;
    if (!br_scan_open(j, '{'))
        return false;
    while (br_scan_key(j, &in, &keys, &id, NULL))
        if (!(id == 0 ? br_scan_string_or_null(j, reason, "is incomplete for no known reason")
                      : br_scan_skip(j, NULL)))
            return false;
    return j->state == BR_SCAN_OK;
}

/* A response: a whole answer, or what some events carry. */
static bool read_response(struct br_scan *j, struct br_answer *a)
{
    enum { STATUS, ERROR, DETAILS, OUTPUT, USAGE };
    static const struct br_scan_name names[] = {BR_NAME("status"), BR_NAME("error"),
                                                BR_NAME("incomplete_details"), BR_NAME("output"),
                                                BR_NAME("usage")};
    static const struct br_scan_keys keys = {names, BR_ARRAY_LEN(names)};
    struct br_responses_read *r = a->read.responses;
    struct br_scan_in in = {.seen = 0};
    int id;
    if (br_scan_peek(j) != '{')
        return j->state == BR_SCAN_OK ? br_scan_refuse(j, "is not a JSON object") : false;
    br_scan_open(j, '{');
    r->has_response = true;
    while (br_scan_key(j, &in, &keys, &id, NULL)) {
        bool ok;
        switch (id) {
        case STATUS:
            ok = br_scan_string_or_null(j, &r->status, "has a status that is no text");
            break;
        case ERROR:
            ok = br_said_read(j, &a->said);
            break;
        case DETAILS:
            ok = read_details(j, &r->reason);
            break;
        case OUTPUT:
            ok = read_output(j, r);
            break;
        case USAGE:
            ok = read_usage(j, &a->usage);
            break;
        default:
            ok = br_scan_skip(j, NULL);
        }
        if (!ok)
            return false;
    }
    return j->state == BR_SCAN_OK;
}

/* A member that has its meaning in some events only: text there, anything in others. */
static bool text_or_skip(struct br_scan *j, struct br_slice *s)
{
    return br_scan_peek(j) == '"' ? br_scan_string(j, s) : br_scan_skip(j, NULL);
}

static bool read_event(struct br_scan *j, struct br_answer *a)
{
    enum { TYPE, INDEX, DELTA, ARGUMENTS, ITEM, RESPONSE, ERROR, CODE, MESSAGE, NUMBER, NOISE };
    static const struct br_scan_name names[] = {
        BR_NAME("type"),    BR_NAME("output_index"),    BR_NAME("delta"),      BR_NAME("arguments"),
        BR_NAME("item"),    BR_NAME("response"),        BR_NAME("error"),      BR_NAME("code"),
        BR_NAME("message"), BR_NAME("sequence_number"), BR_NAME("obfuscation")};
    static const struct br_scan_keys keys = {names, BR_ARRAY_LEN(names)};
    struct br_responses_read *r = a->read.responses;
    struct br_scan_in in = {.seen = 0};
    struct br_said said = {.is = false};
    int id;
    if (br_scan_peek(j) != '{')
        return j->state == BR_SCAN_OK ? br_scan_refuse(j, "is not a JSON object") : false;
    br_scan_open(j, '{');
    while (br_scan_key(j, &in, &keys, &id, NULL)) {
        bool ok;
        switch (id) {
        case TYPE:
            ok = br_scan_string_or_null(j, &a->type, "has an event without a usable type");
            break;
        case INDEX:
            ok = r->has_index = br_scan_count(j, &r->index, "has an event without a usable index");
            break;
        case DELTA:
            ok = text_or_skip(j, &r->delta);
            break;
        case ARGUMENTS:
            ok = text_or_skip(j, &r->arguments);
            break;
        case ITEM:
            ok = r->has_item = read_item(j, &r->item);
            break;
        case RESPONSE:
            ok = read_response(j, a);
            break;
        case ERROR:
            ok = br_said_read(j, &said);
            break;
        case CODE:
            ok = text_or_skip(j, &r->top.code);
            break;
        case MESSAGE:
            ok = text_or_skip(j, &r->top.message);
            break;
        case NUMBER:
            ok = br_scan_skip(j, &r->number);
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
    if (said.is)
        a->said = said;
    else if (!a->said.is && br_slice_is(&a->type, "error"))
        a->said = (struct br_said){.is = true, .code = r->top.code, .message = r->top.message};
    return j->state == BR_SCAN_OK;
}

static bool responses_read(struct br_answer *a, struct br_scan *j, bool whole)
{
    memset(a->read.responses, 0, offsetof(struct br_responses_read, calls));
    return whole ? read_response(j, a) : read_event(j, a);
}

/* More text: no event of that kind changes anything. */
static unsigned responses_holes(const struct br_answer *a, struct br_hole *h)
{
    const struct br_responses_read *r = a->read.responses;
    if (!r->delta.p || r->has_item || r->has_response ||
        !br_slice_is(&a->type, "response.output_text.delta"))
        return 0;
    unsigned n = br_hole_text(h, 0, &r->delta);
    n = br_hole_text(h, n, &r->noise);
    return br_hole_number(h, n, &r->number);
}

/* ---- judging ---- */

/* An item with all that it has, for the first time or again. */
static int take_item(struct br_answer *a, uint64_t index, const struct item_read *t, bool all,
                     struct br_err *err)
{
    struct br_call *c = br_call_find(a, index);
    if (!c) {
        c = br_call_add(a, index, &t->call_id, &t->name, err);
        if (!c)
            return -(int)err->code;
    } else {
        int r = br_call_same(a, c, &t->call_id, err);
        if (r < 0)
            return r;
        if (t->name.p && br_slice_hash(&t->name) != c->name_hash)
            return br_answer_invalid(err, "has a tool call that changes its name");
    }
    return all ? br_call_all(a, c, &t->arguments, err)
               : br_call_arguments(a, c, &t->arguments, err);
}

static int not_allowed(struct br_err *err)
{
    return br_answer_invalid(err, "has an item that the request did not ask for");
}

static int take_response(struct br_answer *a, struct br_err *err)
{
    const struct br_responses_read *r = a->read.responses;
    bool complete = br_slice_is(&r->status, "completed");
    const char *finish = a->ncalls || r->ncalls ? "tool_calls" : "stop";
    if (r->other)
        return not_allowed(err);
    if (!r->has_output)
        return br_answer_invalid(err, "has no output");
    int e = br_usage_apply(a, err);
    for (unsigned i = 0; e == 0 && i < r->ncalls; i++)
        e = take_item(a, r->calls[i].index, &r->calls[i], true, err);
    if (e < 0)
        return e;
    if (r->ncalls != a->ncalls)
        return br_answer_invalid(err, "leaves out tool calls at its end");
    if (!complete && !br_slice_is(&r->status, "incomplete"))
        return br_answer_invalid(err, "ends with an unknown status");
    if (!complete)
        finish = br_slice_is(&r->reason, "max_output_tokens") ? "length" : "error";
    (void)snprintf(a->facts.finish, sizeof(a->facts.finish), "%s", finish);
    return br_calls_check(a, err);
}

static int item_event(struct br_answer *a, bool all, struct br_err *err)
{
    const struct br_responses_read *r = a->read.responses;
    if (!r->has_item || !r->has_index)
        return br_answer_invalid(err, "has an event without its item");
    if (is_other(&r->item))
        return not_allowed(err);
    return is_call(&r->item) ? take_item(a, r->index, &r->item, all, err) : 0;
}

static int arguments_event(struct br_answer *a, bool all, struct br_err *err)
{
    const struct br_responses_read *r = a->read.responses;
    struct br_call *c = r->has_index ? br_call_find(a, r->index) : NULL;
    if (!c)
        return br_answer_invalid(err, "has arguments without a tool call");
    return all ? br_call_all(a, c, &r->arguments, err) : br_call_arguments(a, c, &r->delta, err);
}

static int stream_apply(struct br_answer *a, struct br_err *err)
{
    const struct br_slice *type = &a->type;
    if (br_slice_is(type, "response.output_text.delta"))
        return 0;
    if (br_slice_is(type, "response.function_call_arguments.delta"))
        return arguments_event(a, false, err);
    if (br_slice_is(type, "response.function_call_arguments.done"))
        return arguments_event(a, true, err);
    if (br_slice_is(type, "response.output_item.added"))
        return item_event(a, false, err);
    if (br_slice_is(type, "response.output_item.done"))
        return item_event(a, true, err);
    bool end = br_slice_is(type, "response.completed") || br_slice_is(type, "response.incomplete");
    if (end) {
        if (!a->read.responses->has_response)
            return br_answer_invalid(err, "ends without a response");
        int r = take_response(a, err);
        a->done = a->facts.complete = r == 0;
        return r;
    }
    return br_slice_is(type, "response.failed") ? br_answer_invalid(err, "failed for no reason")
                                                : 0;
}

static int responses_apply(struct br_answer *a, bool whole, struct br_err *err)
{
    if (a->said.is)
        return br_said_error(&a->said, err);
    return whole ? take_response(a, err) : stream_apply(a, err);
}

const struct br_dialect br_dialect_responses = {.make = responses_make,
                                                .read = responses_read,
                                                .apply = responses_apply,
                                                .holes = responses_holes,
                                                .names = true};
