/*
 * core/broker, private: the checks and the accounting of a provider lease, apart from the program
 * so that tests and fuzzers can call them.
 */
#ifndef BR_BROKER_PRIV_H
#define BR_BROKER_PRIV_H

#include "base/base.h"
#include "wire/types.h"

/* The one route of this version, as BROKER_START names it and PROV_REQUEST asks for it. */
#define BR_PATH_CHAT "/chat/completions"
/* A conversation of the largest allowed size: 1000 calls with their results and tool schemas. */
#define BR_BROKER_NODES_MAX 500000u

/* What the checks found in a request. */
struct br_broker_request {
    uint64_t max_tokens; /* of the answer */
};

/*
 * Is this a request that the lease's route and model allow? -BR_E_LEASE_REFUSED and a sentence if
 * not. Checked: POST of `route`, JSON content type, an object within the limits and without
 * duplicate keys, only known keys, the model, n absent or 1, exactly one of max_tokens and
 * max_completion_tokens, function tools only.
 */
int br_broker_check(const char *route, const char *model, const char *method, const char *path,
                    const char *content_type, const void *body, size_t n,
                    struct br_broker_request *out, struct br_err *err);

/* The lease's account. Everything is charged when it is reserved; a settlement corrects tokens. */
struct br_account {
    struct br_lease lease;
    uint64_t deadline_us;
    uint32_t requests;
    uint64_t request_bytes, response_bytes, tokens;
    /* the last request */
    uint64_t id;       /* 0: none yet */
    uint64_t reserved; /* its tokens, as charged */
    bool in_flight, settled;
};
/* -BR_E_INVALID_CONFIG if a ceiling is 0 (never "unlimited"). */
int br_account_open(struct br_account *a, const struct br_lease *l, uint64_t now_us,
                    struct br_err *err);
/*
 * Charge a request, all or nothing: one request, its bytes, and `tokens` (prompt and answer, as the
 * session estimates; at least max_tokens). -BR_E_LEASE_REFUSED and a sentence.
 */
int br_account_reserve(struct br_account *a, uint64_t id, uint64_t now_us, size_t bytes,
                       uint64_t tokens, uint64_t max_tokens, struct br_err *err);
/* The upstream never saw it: its tokens and bytes come back, the request stays counted. */
void br_account_release(struct br_account *a, size_t bytes);
/* How many of n bytes of the answer may still be passed on; charges them. */
size_t br_account_receive(struct br_account *a, size_t n);
/* The request is over; its reservation stays charged until it is settled. */
void br_account_end(struct br_account *a);
/* What the provider says was used replaces the reservation, once, for the last request only, and
 * never by zero. False if nothing changed. */
bool br_account_settle(struct br_account *a, uint64_t id, uint64_t prompt, uint64_t completion);

#endif
