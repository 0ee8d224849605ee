/*
 * The account of a provider lease. Called by bridle-broker only. A reservation is charged in full
 * before anything goes upstream, so that a crash, a cut or a missing settlement can only leave too
 * much charged. Arithmetic saturates.
 */
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

int br_account_open(struct br_account *a, const struct br_lease *l, uint64_t now_us,
                    struct br_err *err)
{
    if (!l->max_requests || !l->max_request_bytes || !l->max_response_bytes || !l->max_tokens ||
        !l->seconds)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "a provider lease with a ceiling of 0 was not opened");
    *a = (struct br_account){.lease = *l,
                             .deadline_us = add(now_us, (uint64_t)l->seconds * 1000000)};
    return 0;
}

int br_account_reserve(struct br_account *a, uint64_t id, uint64_t now_us, size_t bytes,
                       uint64_t tokens, uint64_t max_tokens, struct br_err *err)
{
    const struct br_lease *l = &a->lease;
#define REFUSE(...) br_err_set(err, BR_E_LEASE_REFUSED, __VA_ARGS__)
    if (a->in_flight)
        return REFUSE("another request is in flight; this one was not sent");
    if (now_us >= a->deadline_us)
        return REFUSE("the provider lease has ended after %u s; the request was not sent",
                      l->seconds);
    if (a->requests >= l->max_requests)
        return REFUSE("the provider lease allows %u requests and all are used; this one was not "
                      "sent",
                      l->max_requests);
    if (bytes > left(l->max_request_bytes, a->request_bytes))
        return REFUSE("the request has %zu bytes and the provider lease has %llu left; it was not "
                      "sent",
                      bytes, (unsigned long long)left(l->max_request_bytes, a->request_bytes));
    if (a->response_bytes >= l->max_response_bytes)
        return REFUSE("the provider lease has no bytes left for an answer; the request was not "
                      "sent");
    if (tokens < max_tokens)
        return REFUSE("the request reserves %llu tokens and asks for up to %llu; it was not sent",
                      (unsigned long long)tokens, (unsigned long long)max_tokens);
    if (tokens > left(l->max_tokens, a->tokens))
        return REFUSE("the request may use %llu tokens and the provider lease has %llu left; it "
                      "was not sent",
                      (unsigned long long)tokens,
                      (unsigned long long)left(l->max_tokens, a->tokens));
#undef REFUSE
    a->requests++;
    a->request_bytes = add(a->request_bytes, bytes);
    a->tokens = add(a->tokens, tokens);
    a->reserved = tokens;
    a->id = id;
    a->in_flight = true;
    a->settled = false;
    return 0;
}

void br_account_release(struct br_account *a, size_t bytes)
{
    br_require(a->in_flight && a->request_bytes >= bytes && a->tokens >= a->reserved);
    a->request_bytes -= bytes;
    a->tokens -= a->reserved;
    a->reserved = 0;
    a->settled = true;
}

size_t br_account_receive(struct br_account *a, size_t n)
{
    uint64_t room = left(a->lease.max_response_bytes, a->response_bytes);
    if (n > room)
        n = (size_t)room;
    a->response_bytes += n;
    return n;
}

void br_account_end(struct br_account *a)
{
    a->in_flight = false;
}

bool br_account_settle(struct br_account *a, uint64_t id, uint64_t prompt, uint64_t completion)
{
    uint64_t used = add(prompt, completion);
    if (a->in_flight || a->settled || id != a->id || id == 0 || used == 0)
        return false;
    a->tokens = add(a->tokens - a->reserved, used);
    a->reserved = used;
    a->settled = true;
    return true;
}
