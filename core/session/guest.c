/*
 * What a guest asks of its provider, as the broker tells it: one request is one observable turn.
 * The broker's messages are noted when they come and recorded when the session has time to wait for
 * the audit. Nothing that a guest or a provider wrote is in them but bounded names.
 */
#include <stdlib.h>
#include <string.h>

#include "frame/frame.h"
#include "session/session_priv.h"

/* How long the answers of a guest that has ended are waited for: the broker reads on, to learn what
 * they cost. Less than what bridled gives a run that is over its time. */
#define DRAIN_US (18u * 1000000u)
#define DRAIN_STOPPING_US (5u * 1000000u)

bool guest_note(struct session *s, const struct guest_event *e)
{
    struct harness *h = &s->harness;
    if (!h->events)
        h->events = calloc(GUEST_EVENTS_MAX, sizeof(*h->events));
    if (!h->sent)
        h->sent = calloc(GUEST_SENT_MAX, sizeof(*h->sent));
    if (!h->events || !h->sent || h->nevents == GUEST_EVENTS_MAX)
        return false;
    if (e->type == BR_MSG_GUEST_RESPONSE && h->open == 0)
        return false;
    h->open += e->type == BR_MSG_GUEST_REQUEST;
    h->open -= e->type == BR_MSG_GUEST_RESPONSE;
    struct guest_event *slot = &h->events[(h->first + h->nevents++) % GUEST_EVENTS_MAX];
    *slot = *e;
    slot->at_us = br_now_us();
    return true;
}

static void request_id(const struct guest_event *e, char dst[BR_ID_MAX])
{
    snprintf(dst, BR_ID_MAX, "guest-%llu", (unsigned long long)e->serial);
}

static int record_request(struct session *s, const struct guest_event *e)
{
    char id[BR_ID_MAX];
    request_id(e, id);
    s->harness.sent[e->serial % GUEST_SENT_MAX] = *e;
    s->budget.steps++;
    return session_record(s, "model.request", "agent",
                          json_pack("{s:s, s:s, s:I}", "requestId", id, "model", s->model,
                                    "messageCount", (json_int_t)(e->messages ? e->messages : 1)));
}

/* The guest was told more: what the broker says may quote what the guest, or the provider, wrote.
 */
static json_t *error_of(const struct guest_event *e)
{
    const char *text = "the request failed";
    switch (e->code) {
    case BR_E_LEASE_REFUSED:
        text = "the lease of the run does not allow it; nothing was sent";
        break;
    case BR_E_BUDGET_EXCEEDED:
        text = "it does not fit into the tokens that the run has left; nothing was sent";
        break;
    case BR_E_DENIED:
        text = "who asked is not the guest of this run; nothing was sent";
        break;
    case BR_E_LIMIT_EXCEEDED:
        text = "it is larger than it may be";
        break;
    case BR_E_PROVIDER_INVALID:
        text = "the answer contradicts itself, or could not be read";
        break;
    case BR_E_PROVIDER_STATUS:
        text = "the provider answered with an error";
        break;
    case BR_E_PROVIDER_TRUNCATED:
        text = "the answer ended too early";
        break;
    case BR_E_PROVIDER_UNREACHABLE:
        text = "the provider could not be reached";
        break;
    case BR_E_TIMEOUT:
        text = "there was no answer in time";
        break;
    case BR_E_CANCELED:
        text = "the guest left before the answer was complete";
        break;
    default:
        break;
    }
    return json_pack("{s:s, s:s}", "code", br_code_name((int)e->code), "message", text);
}

/* The reasons that clients know; a provider may have others. */
static const char *finish_of(const struct guest_event *e)
{
    static const char *const known[] = {"stop", "tool_calls", "length"};
    for (size_t i = 0; i < BR_ARRAY_LEN(known); i++)
        if (!e->code && strcmp(e->finish, known[i]) == 0)
            return known[i];
    return e->code || e->status / 100 != 2 ? "error" : "stop";
}

static int record_response(struct session *s, const struct guest_event *e)
{
    char id[BR_ID_MAX];
    static const char *const routes[] = {"chat", "responses", "messages", "models"};
    const struct guest_event *sent = &s->harness.sent[e->serial % GUEST_SENT_MAX];
    bool known = sent->serial == e->serial && sent->type == BR_MSG_GUEST_REQUEST;
    unsigned route = known && sent->route ? (unsigned)__builtin_ctz(sent->route) : 4;
    request_id(e, id);
    json_t *receipt = json_pack(
        "{s:s, s:i, s:I, s:I, s:I, s:b, s:s*, s:I, s:b, s:I, s:I}", "requestId", id, "status",
        (int)(e->status < 1000 ? e->status : 0), "requestBytes",
        known ? (json_int_t)sent->bytes : (json_int_t)0, "responseBytes", (json_int_t)e->bytes,
        "durationMs", known ? (json_int_t)((e->at_us - sent->at_us) / 1000) : (json_int_t)0,
        "scripted", (int)s->scripted, "route", route < 4 ? routes[route] : NULL, "reservedTokens",
        known ? (json_int_t)sent->tokens : (json_int_t)0, "settled", (int)e->settled, "toolCalls",
        (json_int_t)e->calls, "repairs", (json_int_t)e->repairs);
    if (receipt && e->code)
        json_object_set_new(receipt, "error", error_of(e));
    s->harness.sent[e->serial % GUEST_SENT_MAX].type = 0; /* it has its answer */
    uint64_t total = e->prompt + e->completion;
    s->budget.tokens += total;
    s->harness.tokens += total;
    int r = session_record_ahead(s, "bridle.provider", "kernel", receipt);
    if (r == 0)
        r = session_record(s, "model.response", "model",
                           json_pack("{s:s, s:s, s:s, s:{s:I, s:I, s:I}}", "requestId", id, "model",
                                     s->model, "finishReason", finish_of(e), "usage",
                                     "promptTokens", (json_int_t)e->prompt, "completionTokens",
                                     (json_int_t)e->completion, "totalTokens", (json_int_t)total));
    if (r == 0 && s->budget.tokens > s->budget.tokens_max)
        session_stop(s, BR_E_BUDGET_EXCEEDED, "the run used %llu of %llu model tokens",
                     (unsigned long long)s->budget.tokens,
                     (unsigned long long)s->budget.tokens_max);
    return r;
}

/* A run whose next request is beyond its budget is over, as it is with Bridle's own agent. */
static int record_refused(struct session *s, const struct guest_event *e)
{
    int r = session_record(s, "bridle.provider.refused", "kernel", error_of(e));
    if (r == 0 && e->code == BR_E_BUDGET_EXCEEDED)
        session_stop(s, BR_E_BUDGET_EXCEEDED,
                     "the run used %llu of %llu model tokens, and its next request does not fit "
                     "into what is left; it was not sent",
                     (unsigned long long)s->budget.tokens,
                     (unsigned long long)s->budget.tokens_max);
    return r;
}

int guest_record(struct session *s)
{
    struct harness *h = &s->harness;
    int r = 0;
    while (r == 0 && h->nevents) {
        struct guest_event e = h->events[h->first];
        h->first = (h->first + 1) % GUEST_EVENTS_MAX;
        h->nevents--;
        r = e.type == BR_MSG_GUEST_REQUEST    ? record_request(s, &e)
            : e.type == BR_MSG_GUEST_RESPONSE ? record_response(s, &e)
                                              : record_refused(s, &e);
    }
    return r;
}

/* Of a request without an answer the reservation stays charged. */
static int record_unanswered(struct session *s)
{
    int r = 0;
    for (unsigned i = 0; s->harness.sent && r == 0 && i < GUEST_SENT_MAX; i++) {
        const struct guest_event e = {.type = BR_MSG_GUEST_RESPONSE,
                                      .serial = s->harness.sent[i].serial,
                                      .at_us = br_now_us(),
                                      .code = BR_E_CANCELED,
                                      .completion = s->harness.sent[i].tokens};
        if (s->harness.sent[i].type == BR_MSG_GUEST_REQUEST)
            r = record_response(s, &e);
    }
    return r;
}

int guest_drain(struct session *s)
{
    uint64_t deadline = br_now_us() + (s->stop_code ? DRAIN_STOPPING_US : DRAIN_US);
    int r = guest_record(s);
    while (r == 0 && s->harness.open && s->broker.fd >= 0 && br_now_us() < deadline) {
        bool moved = false;
        s->init_kick = &moved;
        int w = session_wait(s, &moved, 1000000, true);
        s->init_kick = NULL;
        r = w < 0 && w != -BR_E_TIMEOUT ? w : guest_record(s);
    }
    if (r == 0)
        r = record_unanswered(s);
    free(br_steal_ptr(&s->harness.events));
    free(br_steal_ptr(&s->harness.sent));
    s->harness.nevents = 0;
    return r;
}
