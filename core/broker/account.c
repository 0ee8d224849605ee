/*
 * The account of a provider lease. Called by bridle-broker only. A reservation is charged in full,
 * and is on the account's page, before anything goes upstream, so that a crash, a cut or a missing
 * usage can only leave too much charged. Arithmetic saturates.
 */
#include "broker/ask_priv.h"
#include "broker/broker_priv.h"

static uint64_t add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t left(uint64_t max, uint64_t used)
{
    return used < max ? max - used : 0;
}

static void publish(struct br_account *a)
{
    if (a->page)
        br_account_page_write(a->page, &a->sums);
}

int br_account_open(struct br_account *a, const struct br_lease *l, uint64_t now_us,
                    struct br_err *err)
{
    if (!l->max_requests || !l->max_request_bytes || !l->max_response_bytes || !l->max_tokens ||
        !l->seconds || !l->max_answer_tokens || !l->max_in_flight || !l->routes || !l->answers)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "a provider lease with a ceiling of 0 was not opened");
    if (l->max_in_flight > BR_BROKER_FLIGHTS_MAX)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "a provider lease of %u requests at the same time was not opened; at "
                          "most %u are possible",
                          l->max_in_flight, BR_BROKER_FLIGHTS_MAX);
    *a = (struct br_account){.lease = *l,
                             .deadline_us = add(now_us, (uint64_t)l->seconds * 1000000)};
    return 0;
}

/* A token is about four bytes of a prompt. The lease is never overdrawn, and reserves the most that
 * a request can cost; a budget is kept by what was used and what is to be expected. */
static bool within_budget(const struct br_account *a, uint64_t tokens, uint64_t max_tokens)
{
    uint64_t prompt = left(tokens, add(max_tokens, BR_ASK_TOKENS_BESIDE)) / 4;
    return !a->budget || prompt < left(a->budget, a->sums.tokens_charged - a->open_tokens);
}

int br_account_reserve(struct br_account *a, struct br_reservation *res, uint64_t now_us,
                       size_t bytes, uint64_t tokens, uint64_t max_tokens, struct br_err *err)
{
    const struct br_lease *l = &a->lease;
    struct br_account_sums *s = &a->sums;
#define REFUSE(...) br_err_set(err, BR_E_LEASE_REFUSED, __VA_ARGS__)
    if (now_us >= a->deadline_us)
        return REFUSE("the provider lease has ended after %u s; the request was not sent",
                      l->seconds);
    if (s->requests >= l->max_requests)
        return REFUSE("the provider lease allows %u requests and all are used; this one was not "
                      "sent",
                      l->max_requests);
    if (s->in_flight >= l->max_in_flight)
        return REFUSE("%u requests are in flight, as many as the provider lease allows at the "
                      "same time; this one was not sent",
                      l->max_in_flight);
    if (bytes > left(l->max_request_bytes, s->request_bytes))
        return REFUSE("the request has %zu bytes and the provider lease has %llu left; it was not "
                      "sent",
                      bytes, (unsigned long long)left(l->max_request_bytes, s->request_bytes));
    if (s->response_bytes >= l->max_response_bytes)
        return REFUSE("the provider lease has no bytes left for an answer; the request was not "
                      "sent");
    if (tokens < max_tokens)
        return REFUSE("the request reserves %llu tokens and asks for up to %llu; it was not sent",
                      (unsigned long long)tokens, (unsigned long long)max_tokens);
    if (tokens > left(l->max_tokens, s->tokens_charged))
        return REFUSE("the request may use %llu tokens and the provider lease has %llu left; it "
                      "was not sent",
                      (unsigned long long)tokens,
                      (unsigned long long)left(l->max_tokens, s->tokens_charged));
#undef REFUSE
    if (!within_budget(a, tokens, max_tokens))
        return br_err_set(err, BR_E_BUDGET_EXCEEDED,
                          "the run used %llu of %llu model tokens, and the request does not fit "
                          "into what is left; it was not sent",
                          (unsigned long long)(s->tokens_charged - a->open_tokens),
                          (unsigned long long)a->budget);
    *res = (struct br_reservation){.open = true, .tokens = tokens, .bytes = bytes};
    s->requests++;
    s->in_flight++;
    s->request_bytes = add(s->request_bytes, bytes);
    s->tokens_reserved = add(s->tokens_reserved, tokens);
    s->tokens_charged = add(s->tokens_charged, tokens);
    a->open_tokens = add(a->open_tokens, tokens);
    publish(a);
    return 0;
}

size_t br_account_receive(struct br_account *a, size_t n)
{
    uint64_t room = left(a->lease.max_response_bytes, a->sums.response_bytes);
    if (n > room)
        n = (size_t)room;
    a->sums.response_bytes += n;
    return n;
}

/* The reservation is over, and this is what it becomes. */
static void become(struct br_account *a, struct br_reservation *res, uint64_t tokens)
{
    struct br_account_sums *s = &a->sums;
    br_require(res->open && s->in_flight && s->tokens_charged >= res->tokens);
    s->tokens_charged = add(s->tokens_charged - res->tokens, tokens);
    a->open_tokens -= res->tokens;
    s->in_flight--;
    res->open = false;
}

void br_account_release(struct br_account *a, struct br_reservation *res, bool sent)
{
    br_require(a->sums.request_bytes >= res->bytes);
    if (!sent)
        a->sums.request_bytes -= res->bytes;
    a->sums.released++;
    become(a, res, 0);
    publish(a);
}

bool br_account_settle(struct br_account *a, struct br_reservation *res, uint64_t prompt,
                       uint64_t completion)
{
    uint64_t used = add(prompt, completion);
    if (used)
        a->sums.settled++;
    else
        a->sums.unsettled++;
    become(a, res, used ? used : res->tokens);
    publish(a);
    return used != 0;
}

void br_account_refused(struct br_account *a)
{
    a->sums.refused++;
    publish(a);
}

void br_account_answered(struct br_account *a, uint32_t repairs, bool cut)
{
    a->sums.repaired += repairs != 0;
    a->sums.repairs |= repairs;
    a->sums.cut += cut;
}
