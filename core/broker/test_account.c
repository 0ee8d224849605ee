/*
 * The account of a provider lease and its page, without processes.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "broker/broker_priv.h"

static const struct br_lease lease = {.max_requests = 2,
                                      .max_request_bytes = 100,
                                      .max_response_bytes = 50,
                                      .max_tokens = 1000,
                                      .seconds = 10,
                                      .max_answer_tokens = 1000,
                                      .max_in_flight = 1,
                                      .routes = BR_ROUTE_CHAT,
                                      .answers = BR_ANSWERS_STRICT};

static void test_open(void **state)
{
    struct br_account a;
    (void)state;
    assert_int_equal(br_account_open(&a, &lease, 0, NULL), 0);
    for (unsigned i = 0; i < 9; i++) {
        struct br_lease l = lease;
        struct br_err err;
        l.max_requests *= i != 0;
        l.max_request_bytes *= i != 1;
        l.max_response_bytes *= i != 2;
        l.max_tokens *= i != 3;
        l.seconds *= i != 4;
        l.max_answer_tokens *= i != 5;
        l.max_in_flight *= i != 6;
        l.routes *= i != 7;
        l.answers = i == 8 ? 0 : l.answers;
        assert_int_equal(br_account_open(&a, &l, 0, &err), -BR_E_INVALID_CONFIG);
    }
    for (unsigned i = 0; i < 2; i++) {
        struct br_lease l = lease;
        l.max_in_flight = BR_BROKER_FLIGHTS_MAX + i;
        assert_int_equal(br_account_open(&a, &l, 0, NULL), i ? -BR_E_INVALID_CONFIG : 0);
    }
}

/* Each ceiling at N and at N + 1; a refusal charges nothing. */
static void test_ceilings(void **state)
{
    static const struct {
        uint64_t now;
        size_t bytes;
        uint64_t tokens, max;
        bool ok;
    } rows[] = {
        {9999999, 100, 1000, 1000, true}, {10000000, 100, 1000, 1000, false},
        {0, 101, 1000, 1000, false},      {0, 100, 1001, 1000, false},
        {0, 100, 999, 1000, false},       {0, 100, UINT64_MAX, 1, false},
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct br_account a;
        struct br_reservation res = {.open = false};
        struct br_err err;
        assert_int_equal(br_account_open(&a, &lease, 0, NULL), 0);
        int r = br_account_reserve(&a, &res, rows[i].now, rows[i].bytes, rows[i].tokens,
                                   rows[i].max, &err);
        assert_int_equal(r, rows[i].ok ? 0 : -BR_E_LEASE_REFUSED);
        assert_int_equal(res.open, rows[i].ok);
        assert_int_equal(a.sums.requests, rows[i].ok);
        assert_int_equal(a.sums.request_bytes, rows[i].ok ? rows[i].bytes : 0);
        assert_int_equal(a.sums.tokens_charged, rows[i].ok ? rows[i].tokens : 0);
        assert_int_equal(a.sums.tokens_reserved, rows[i].ok ? rows[i].tokens : 0);
        assert_int_equal(a.sums.in_flight, rows[i].ok);
    }
}

static void test_requests_and_flight(void **state)
{
    struct br_account a;
    struct br_reservation one, two, three;
    struct br_err err;
    struct br_lease l = lease;
    (void)state;
    assert_int_equal(br_account_open(&a, &lease, 0, NULL), 0);
    assert_int_equal(br_account_reserve(&a, &one, 0, 1, 1, 1, &err), 0);
    assert_int_equal(br_account_reserve(&a, &two, 0, 1, 1, 1, &err), -BR_E_LEASE_REFUSED);
    assert_non_null(strstr(err.text, "in flight"));
    assert_false(br_account_settle(&a, &one, 0, 0));
    assert_int_equal(br_account_reserve(&a, &two, 0, 1, 1, 1, &err), 0);
    assert_false(br_account_settle(&a, &two, 0, 0));
    assert_int_equal(br_account_reserve(&a, &three, 0, 1, 1, 1, &err), -BR_E_LEASE_REFUSED);
    assert_non_null(strstr(err.text, "allows 2 requests"));
    assert_int_equal(a.sums.requests, 2);
    assert_int_equal(a.sums.unsettled, 2);
    /* as many at the same time as the lease says, and not one more */
    l.max_requests = 10;
    l.max_in_flight = 2;
    assert_int_equal(br_account_open(&a, &l, 0, NULL), 0);
    assert_int_equal(br_account_reserve(&a, &one, 0, 1, 400, 1, &err), 0);
    assert_int_equal(br_account_reserve(&a, &two, 0, 1, 600, 1, &err), 0);
    assert_int_equal(br_account_reserve(&a, &three, 0, 1, 1, 1, &err), -BR_E_LEASE_REFUSED);
    /* each is settled by itself, in any order */
    assert_true(br_account_settle(&a, &two, 5, 5));
    assert_int_equal(a.sums.tokens_charged, 410);
    assert_int_equal(br_account_reserve(&a, &three, 0, 1, 590, 1, &err), 0);
    assert_true(br_account_settle(&a, &one, 3, 4));
    assert_int_equal(a.sums.tokens_charged, 607);
    assert_int_equal(a.sums.tokens_reserved, 1590);
    assert_int_equal(a.sums.in_flight, 1);
}

static void test_settle(void **state)
{
    struct br_account a;
    struct br_reservation res;
    struct br_err err;
    (void)state;
    assert_int_equal(br_account_open(&a, &lease, 0, NULL), 0);
    assert_int_equal(br_account_reserve(&a, &res, 0, 1, 600, 1, &err), 0);
    assert_int_equal(a.sums.tokens_charged, 600);
    assert_true(br_account_settle(&a, &res, 100, 50));
    assert_false(res.open);
    assert_int_equal(a.sums.tokens_charged, 150);
    /* more than was reserved is charged, and then nothing is left */
    assert_int_equal(br_account_reserve(&a, &res, 0, 1, 850, 1, &err), 0);
    assert_true(br_account_settle(&a, &res, UINT64_MAX, 9));
    assert_int_equal(a.sums.tokens_charged, UINT64_MAX);
    assert_int_equal(a.sums.settled, 2);
    a.sums.requests = 0;
    assert_int_equal(br_account_reserve(&a, &res, 0, 1, 1, 1, &err), -BR_E_LEASE_REFUSED);
}

/* A budget is kept by what was used and what a prompt is expected to cost: 600 tokens that are
 * reserved beside the 1,024 of a provider and the answer are 150 of a prompt. */
static void test_budget(void **state)
{
    static const struct {
        uint64_t budget;
        bool ok;
    } rows[] = {{0, true}, {1, false}, {250, false}, {251, true}, {UINT64_MAX, true}};
    struct br_lease l = lease;
    (void)state;
    l.max_tokens = 100000;
    l.max_requests = l.max_in_flight = 3;
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct br_account a;
        struct br_reservation used, open, res = {.open = false};
        struct br_err err;
        assert_int_equal(br_account_open(&a, &l, 0, NULL), 0);
        assert_int_equal(br_account_reserve(&a, &used, 0, 1, 5000, 1, &err), 0);
        assert_true(br_account_settle(&a, &used, 60, 40));
        assert_int_equal(br_account_reserve(&a, &open, 0, 1, 5000, 1, &err), 0);
        a.budget = rows[i].budget;
        int r = br_account_reserve(&a, &res, 0, 1, 600 + 1024 + 500, 500, &err);
        assert_int_equal(r, rows[i].ok ? 0 : -BR_E_BUDGET_EXCEEDED);
        assert_int_equal(res.open, rows[i].ok);
        assert_int_equal(a.sums.requests, 2 + rows[i].ok);
        assert_int_equal(a.sums.tokens_charged, 100 + 5000 + (rows[i].ok ? 2124 : 0));
        assert_int_equal(a.open_tokens, 5000 + (rows[i].ok ? 2124 : 0));
        br_account_release(&a, &open, false);
        if (rows[i].ok)
            (void)br_account_settle(&a, &res, 0, 0);
        assert_int_equal(a.open_tokens, 0);
    }
}

static void test_release(void **state)
{
    struct br_account a;
    struct br_reservation res;
    struct br_err err;
    (void)state;
    assert_int_equal(br_account_open(&a, &lease, 0, NULL), 0);
    for (int sent = 0; sent <= 1; sent++) {
        assert_int_equal(br_account_reserve(&a, &res, 0, 60, 600, 1, &err), 0);
        br_account_release(&a, &res, sent);
        assert_int_equal(a.sums.tokens_charged, 0);
        assert_int_equal(a.sums.request_bytes, sent ? 60 : 0);
        assert_int_equal(a.sums.requests, sent + 1);
        assert_int_equal(a.sums.released, sent + 1);
        assert_int_equal(a.sums.in_flight, 0);
    }
}

static void test_receive(void **state)
{
    struct br_account a;
    struct br_reservation res;
    struct br_err err;
    (void)state;
    assert_int_equal(br_account_open(&a, &lease, 0, NULL), 0);
    assert_int_equal(br_account_reserve(&a, &res, 0, 1, 1, 1, &err), 0);
    assert_int_equal(br_account_receive(&a, 30), 30);
    assert_int_equal(br_account_receive(&a, 20), 20);
    assert_int_equal(br_account_receive(&a, 1), 0);
    assert_false(br_account_settle(&a, &res, 0, 0));
    assert_int_equal(br_account_reserve(&a, &res, 0, 1, 1, 1, &err), -BR_E_LEASE_REFUSED);
    assert_non_null(strstr(err.text, "no bytes left for an answer"));
}

/* ---- the page ---- */

static int page_file(size_t size)
{
    int fd = memfd_create("account", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    return fd;
}

/* What somebody else sees at each moment is what is charged then. */
static void test_page_follows(void **state)
{
    struct br_account a;
    struct br_reservation res;
    struct br_account_sums s;
    struct br_err err;
    int fd = page_file(BR_ACCOUNT_PAGE);
    (void)state;
    assert_int_equal(br_account_page_read(fd, "run_1", &s, &err), 0); /* never written */
    assert_int_equal(br_account_open(&a, &lease, 0, NULL), 0);
    a.page = br_account_page_map(fd, "run_1");
    assert_non_null(a.page);
    assert_int_equal(br_account_page_read(fd, "run_1", &s, &err), 1);
    assert_int_equal(s.requests, 0);
    assert_int_equal(br_account_reserve(&a, &res, 0, 10, 600, 1, &err), 0);
    assert_int_equal(br_account_page_read(fd, "run_1", &s, &err), 1);
    assert_int_equal(s.requests, 1);
    assert_int_equal(s.in_flight, 1);
    assert_int_equal(s.tokens_charged, 600);
    assert_int_equal(br_account_receive(&a, 7), 7);
    br_account_refused(&a);
    br_account_answered(&a, 5, true);
    assert_true(br_account_settle(&a, &res, 20, 3));
    assert_int_equal(br_account_page_read(fd, "run_1", &s, &err), 1);
    assert_int_equal(s.in_flight, 0);
    assert_int_equal(s.tokens_charged, 23);
    assert_int_equal(s.response_bytes, 7);
    assert_int_equal(s.refused, 1);
    assert_int_equal(s.repairs, 5);
    assert_int_equal(s.repaired, 1);
    assert_int_equal(s.cut, 1);
    br_account_page_unmap(&a.page);
    assert_int_equal(br_account_page_read(fd, "run_1", &s, &err), 1); /* it stays */
    assert_int_equal(s.tokens_charged, 23);
    /* and belongs to its run */
    assert_int_equal(br_account_page_read(fd, "run_2", &s, &err), -BR_E_STORE_FAILED);
    assert_int_equal(br_account_page_read(fd, "run_", &s, &err), -BR_E_STORE_FAILED);
    (void)close(fd);
}

static void test_page_damaged(void **state)
{
    struct br_account_sums s = {.requests = 3, .settled = 1, .unsettled = 1, .in_flight = 1};
    struct br_err err;
    (void)state;
    for (int i = 0; i < 3; i++) {
        int fd = page_file((size_t)((int)BR_ACCOUNT_PAGE + i - 1));
        struct br_account_page *p = br_account_page_map(fd, "run_1");
        assert_int_equal(p != NULL, i == 1);
        assert_int_equal(br_account_page_read(fd, "run_1", &s, &err),
                         i == 1 ? 1 : -BR_E_STORE_FAILED);
        br_account_page_unmap(&p);
        (void)close(fd);
    }
    int fd = page_file(BR_ACCOUNT_PAGE);
    struct br_account_page *p = br_account_page_map(fd, "run_1");
    s = (struct br_account_sums){.requests = 3, .settled = 1, .unsettled = 1, .in_flight = 1};
    br_account_page_write(p, &s);
    assert_int_equal(br_account_page_read(fd, "run_1", &s, &err), 1); /* positive control */
    s.requests = 4;                                                   /* one that is nowhere */
    br_account_page_write(p, &s);
    assert_int_equal(br_account_page_read(fd, "run_1", &s, &err), -BR_E_STORE_FAILED);
    s.requests = 3;
    br_account_page_write(p, &s);
    p->magic[0] = 'x';
    assert_int_equal(br_account_page_read(fd, "run_1", &s, &err), -BR_E_STORE_FAILED);
    p->magic[0] = BR_ACCOUNT_MAGIC[0];
    memset(p->run_id, 'x', sizeof(p->run_id)); /* not even terminated */
    assert_int_equal(br_account_page_read(fd, "run_1", &s, &err), -BR_E_STORE_FAILED);
    br_account_page_unmap(&p);
    (void)close(fd);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(br_account_page_read(ends[0], "run_1", &s, &err), -BR_E_STORE_FAILED);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_ceilings),
        cmocka_unit_test(test_requests_and_flight),
        cmocka_unit_test(test_settle),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_release),
        cmocka_unit_test(test_receive),
        cmocka_unit_test(test_page_follows),
        cmocka_unit_test(test_page_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
