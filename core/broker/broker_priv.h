/*
 * core/broker, private: the checks and the accounting of a provider lease, apart from the program
 * so that tests and fuzzers can call them.
 */
#ifndef BR_BROKER_PRIV_H
#define BR_BROKER_PRIV_H

#include "base/base.h"
#include "wire/account.h"
#include "wire/types.h"

#define BR_PATH_CHAT "/chat/completions"
/* Requests of one lease at the same time; egress has as many connections. */
#define BR_BROKER_FLIGHTS_MAX 256u

/* The lease's account. Everything is charged when it is reserved; a settlement corrects tokens. */
struct br_account {
    struct br_lease lease;
    uint64_t deadline_us;
    struct br_account_sums sums;
    struct br_account_page *page; /* where the sums are published; NULL: nowhere */
    uint64_t budget;              /* tokens that the run may use; 0: as many as the lease has */
    uint64_t open_tokens;         /* of tokens_charged: reservations, and nothing used yet */
};
/* What one request in flight has charged. */
struct br_reservation {
    bool open;
    uint64_t tokens, bytes;
};
/* -BR_E_INVALID_CONFIG if a ceiling is 0 (never "unlimited") or too high. */
int br_account_open(struct br_account *a, const struct br_lease *l, uint64_t now_us,
                    struct br_err *err);
/*
 * Charge a request, all or nothing: one request, its bytes, and `tokens` (prompt and answer, at
 * least max_tokens). -BR_E_LEASE_REFUSED and a sentence, and then nothing has changed.
 */
int br_account_reserve(struct br_account *a, struct br_reservation *res, uint64_t now_us,
                       size_t bytes, uint64_t tokens, uint64_t max_tokens, struct br_err *err);
/* How many of n bytes of an answer may still be passed on; charges them. Published with the next
 * end of a request. */
size_t br_account_receive(struct br_account *a, size_t n);
/* One of these ends a reservation. The provider did not serve it: its tokens come back, and its
 * bytes if they were not sent either. The request stays counted. */
void br_account_release(struct br_account *a, struct br_reservation *res, bool sent);
/* What the provider says was used replaces the reservation; 0 tokens are no answer, and it stays
 * charged (false). */
bool br_account_settle(struct br_account *a, struct br_reservation *res, uint64_t prompt,
                       uint64_t completion);
/* A request was refused. */
void br_account_refused(struct br_account *a);
/* What became of an answer; before its settlement, which publishes it. */
void br_account_answered(struct br_account *a, uint32_t repairs, bool cut);

#endif
