/*
 * The ledger: no effect without a grant, one effect per grant, one end per ask, in every order of
 * events.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "policy/policy.h"

#define SUBJECT "src/a", 5

static const uint8_t here[BR_ENVIRONMENT_BYTES] = "here";
static const uint8_t there[BR_ENVIRONMENT_BYTES] = "there";

static int setup(void **state)
{
    *state = br_ledger_new("session-1");
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    struct br_ledger *l = *state;
    br_ledger_free(&l);
    return l ? -1 : 0;
}

static void ask(struct br_ledger *l, enum br_scope scope, char id[BR_ID_MAX])
{
    assert_int_equal(br_ledger_ask(l, "call-1", "fs.write", SUBJECT, scope, here, id, NULL), 0);
    assert_int_equal(br_ledger_state(l, id), BR_ASK_PENDING);
}

static void test_allow_mints_once_per_effect(void **state)
{
    struct br_grant_ref g;
    struct br_err err;
    assert_int_equal(br_ledger_mint(*state, BR_EFFECT_ALLOW, NULL, here, "call-1", "fs.write",
                                    SUBJECT, &g, &err),
                     0);
    assert_int_equal(g.serial, 1);
    assert_string_equal(g.call_id, "call-1");
    assert_string_equal(g.action, "fs.write");
    assert_int_equal(br_ledger_redeem(*state, &g, "call-1", "fs.write", SUBJECT, &err), 0);
    assert_int_equal(br_ledger_redeem(*state, &g, "call-1", "fs.write", SUBJECT, &err),
                     -BR_E_GRANT_USED);
    assert_non_null(strstr(err.text, "did not happen"));
}

static void test_serials_rise(void **state)
{
    struct br_grant_ref g;
    for (uint64_t i = 1; i <= 100; i++) {
        assert_int_equal(
            br_ledger_mint(*state, BR_EFFECT_ALLOW, NULL, here, "c", "x", NULL, 0, &g, NULL), 0);
        assert_int_equal(g.serial, i);
    }
}

static void test_no_grant(void **state)
{
    struct br_grant_ref g = {.serial = 0};
    struct br_err err;
    static const enum br_effect effects[] = {BR_EFFECT_NONE, BR_EFFECT_ASK, BR_EFFECT_DENY,
                                             (enum br_effect)7};
    for (size_t i = 0; i < BR_ARRAY_LEN(effects); i++) {
        memset(&g, 0xff, sizeof(g));
        assert_int_equal(
            br_ledger_mint(*state, effects[i], NULL, here, "call-1", "fs.write", SUBJECT, &g, &err),
            -BR_E_NO_GRANT);
        assert_int_equal(g.serial, 0);
        assert_int_equal(br_ledger_redeem(*state, &g, "call-1", "fs.write", SUBJECT, &err),
                         -BR_E_NO_GRANT);
    }
    assert_int_equal(br_ledger_redeem(*state, NULL, "call-1", "fs.write", SUBJECT, &err),
                     -BR_E_NO_GRANT);
    /* a deny is not overridden by an answer */
    char id[BR_ID_MAX];
    ask(*state, BR_SCOPE_ONCE, id);
    assert_int_equal(br_ledger_end(*state, id, BR_ASK_ALLOWED, NULL), 0);
    assert_int_equal(
        br_ledger_mint(*state, BR_EFFECT_DENY, id, here, "call-1", "fs.write", SUBJECT, &g, NULL),
        -BR_E_NO_GRANT);
}

static void test_mismatch(void **state)
{
    struct br_ledger *l = *state;
    struct br_grant_ref g, bad;
    assert_int_equal(
        br_ledger_mint(l, BR_EFFECT_ALLOW, NULL, here, "call-1", "fs.write", SUBJECT, &g, NULL), 0);
    assert_int_equal(br_ledger_redeem(l, &g, "call-2", "fs.write", SUBJECT, NULL),
                     -BR_E_GRANT_MISMATCH);
    assert_int_equal(br_ledger_redeem(l, &g, NULL, "fs.write", SUBJECT, NULL),
                     -BR_E_GRANT_MISMATCH);
    assert_int_equal(br_ledger_redeem(l, &g, "call-1", "fs.read", SUBJECT, NULL),
                     -BR_E_GRANT_MISMATCH);
    assert_int_equal(br_ledger_redeem(l, &g, "call-1", NULL, SUBJECT, NULL), -BR_E_GRANT_MISMATCH);
    assert_int_equal(br_ledger_redeem(l, &g, "call-1", "fs.write", "src/b", 5, NULL),
                     -BR_E_GRANT_MISMATCH);
    assert_int_equal(br_ledger_redeem(l, &g, "call-1", "fs.write", "src/a", 4, NULL),
                     -BR_E_GRANT_MISMATCH);
    assert_int_equal(br_ledger_redeem(l, &g, "call-1", "fs.write", NULL, 0, NULL),
                     -BR_E_GRANT_MISMATCH);
    /* the reference itself says something else than the ledger */
    bad = g;
    strcpy(bad.action, "fs.read");
    assert_int_equal(br_ledger_redeem(l, &bad, "call-1", "fs.write", SUBJECT, NULL),
                     -BR_E_GRANT_MISMATCH);
    bad = g;
    memset(bad.call_id, 'c', sizeof(bad.call_id)); /* not terminated */
    assert_int_equal(br_ledger_redeem(l, &bad, "call-1", "fs.write", SUBJECT, NULL),
                     -BR_E_GRANT_MISMATCH);
    bad = g;
    bad.subject_sha256[31] ^= 1;
    assert_int_equal(br_ledger_redeem(l, &bad, "call-1", "fs.write", SUBJECT, NULL),
                     -BR_E_GRANT_MISMATCH);
    /* nothing of that used it up */
    assert_int_equal(br_ledger_redeem(l, &g, "call-1", "fs.write", SUBJECT, NULL), 0);
}

static void test_no_subject_is_not_an_empty_one(void **state)
{
    struct br_grant_ref g;
    assert_int_equal(
        br_ledger_mint(*state, BR_EFFECT_ALLOW, NULL, here, "c", "git.push", NULL, 0, &g, NULL), 0);
    assert_int_equal(br_ledger_redeem(*state, &g, "c", "git.push", "", 0, NULL),
                     -BR_E_GRANT_MISMATCH);
    assert_int_equal(br_ledger_redeem(*state, &g, "c", "git.push", NULL, 0, NULL), 0);
}

static void test_forged(void **state)
{
    struct br_ledger *l = *state;
    struct br_grant_ref g, bad;
    assert_int_equal(
        br_ledger_mint(l, BR_EFFECT_ALLOW, NULL, here, "call-1", "fs.write", SUBJECT, &g, NULL), 0);
    for (unsigned bit = 0; bit < 128; bit++) {
        bad = g;
        bad.token[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        assert_int_equal(br_ledger_redeem(l, &bad, "call-1", "fs.write", SUBJECT, NULL),
                         -BR_E_NO_GRANT);
    }
    static const uint64_t serials[] = {0, 2, UINT32_MAX, UINT64_MAX};
    for (size_t i = 0; i < BR_ARRAY_LEN(serials); i++) {
        bad = g;
        bad.serial = serials[i];
        assert_int_equal(br_ledger_redeem(l, &bad, "call-1", "fs.write", SUBJECT, NULL),
                         -BR_E_NO_GRANT);
    }
    /* a grant of another session */
    struct br_ledger *other = br_ledger_new("session-2");
    assert_int_equal(br_ledger_mint(other, BR_EFFECT_ALLOW, NULL, here, "call-1", "fs.write",
                                    SUBJECT, &bad, NULL),
                     0);
    assert_int_equal(br_ledger_redeem(l, &bad, "call-1", "fs.write", SUBJECT, NULL),
                     -BR_E_NO_GRANT);
    br_ledger_free(&other);
    assert_int_equal(br_ledger_redeem(l, &g, "call-1", "fs.write", SUBJECT, NULL), 0);
}

static void test_ask_mints_once_for_what_was_asked(void **state)
{
    struct br_ledger *l = *state;
    struct br_grant_ref g;
    char id[BR_ID_MAX];
    ask(l, BR_SCOPE_ONCE, id);
    assert_int_equal(br_ledger_pending(l), 1);
    assert_int_equal(
        br_ledger_mint(l, BR_EFFECT_ASK, id, here, "call-1", "fs.write", SUBJECT, &g, NULL),
        -BR_E_NO_GRANT); /* still pending */
    assert_int_equal(br_ledger_end(l, id, BR_ASK_ALLOWED, NULL), 0);
    assert_int_equal(br_ledger_pending(l), 0);
    assert_int_equal(
        br_ledger_mint(l, BR_EFFECT_ASK, id, here, "call-2", "fs.write", SUBJECT, &g, NULL),
        -BR_E_NO_GRANT);
    assert_int_equal(
        br_ledger_mint(l, BR_EFFECT_ASK, id, here, "call-1", "fs.read", SUBJECT, &g, NULL),
        -BR_E_NO_GRANT);
    assert_int_equal(
        br_ledger_mint(l, BR_EFFECT_ASK, id, here, "call-1", "fs.write", "src/b", 5, &g, NULL),
        -BR_E_NO_GRANT);
    assert_int_equal(br_ledger_mint(l, BR_EFFECT_ASK, "perm_unknown", here, "call-1", "fs.write",
                                    SUBJECT, &g, NULL),
                     -BR_E_NO_GRANT);
    assert_int_equal(
        br_ledger_mint(l, BR_EFFECT_ASK, NULL, here, "call-1", "fs.write", SUBJECT, &g, NULL),
        -BR_E_NO_GRANT); /* not run-scoped */
    assert_int_equal(
        br_ledger_mint(l, BR_EFFECT_ASK, id, here, "call-1", "fs.write", SUBJECT, &g, NULL), 0);
    assert_int_equal(br_ledger_redeem(l, &g, "call-1", "fs.write", SUBJECT, NULL), 0);
    assert_int_equal(
        br_ledger_mint(l, BR_EFFECT_ASK, id, here, "call-1", "fs.write", SUBJECT, &g, NULL),
        -BR_E_NO_GRANT); /* minted twice */
}

static void expect_not_covered(struct br_ledger *l, const char *action, const char *subject,
                               size_t n, const uint8_t *environment)
{
    struct br_grant_ref g;
    assert_null(br_ledger_run_allowed(l, action, subject, n, environment));
    assert_int_equal(
        br_ledger_mint(l, BR_EFFECT_ASK, NULL, environment, "call-9", action, subject, n, &g, NULL),
        -BR_E_NO_GRANT);
}

static void test_run_scope(void **state)
{
    struct br_ledger *l = *state;
    struct br_grant_ref g;
    char once[BR_ID_MAX], id[BR_ID_MAX];
    ask(l, BR_SCOPE_ONCE, once);
    assert_int_equal(br_ledger_end(l, once, BR_ASK_ALLOWED, NULL), 0);
    expect_not_covered(l, "fs.write", SUBJECT, here);
    ask(l, BR_SCOPE_RUN, id);
    expect_not_covered(l, "fs.write", SUBJECT, here);
    assert_int_equal(br_ledger_allow(l, id, BR_SCOPE_RUN, NULL), 0);
    assert_int_equal(br_ledger_scope(l, id), BR_SCOPE_RUN);
    assert_string_equal(br_ledger_run_allowed(l, "fs.write", SUBJECT, here), id);
    for (unsigned i = 0; i < 3; i++) {
        char call[16];
        snprintf(call, sizeof(call), "call-%u", i + 2);
        assert_int_equal(
            br_ledger_mint(l, BR_EFFECT_ASK, NULL, here, call, "fs.write", SUBJECT, &g, NULL), 0);
        assert_int_equal(br_ledger_redeem(l, &g, call, "fs.write", SUBJECT, NULL), 0);
    }
    /* another action, subject or environment, and a subject with more or less in it */
    expect_not_covered(l, "fs.read", SUBJECT, here);
    expect_not_covered(l, "fs.write", "src/b", 5, here);
    expect_not_covered(l, "fs.write", "src/a b", 7, here);
    expect_not_covered(l, "fs.write", "src", 3, here);
    expect_not_covered(l, "fs.write", "", 0, here);
    expect_not_covered(l, "fs.write", NULL, 0, here);
    expect_not_covered(l, "fs.write", SUBJECT, there);
    expect_not_covered(l, "fs.write", SUBJECT, NULL);
    /* a deny stays a deny */
    assert_int_equal(
        br_ledger_mint(l, BR_EFFECT_DENY, NULL, here, "call-9", "fs.write", SUBJECT, &g, NULL),
        -BR_E_NO_GRANT);
    /* and another run knows nothing of it */
    struct br_ledger *next = br_ledger_new("session-2");
    assert_non_null(next);
    expect_not_covered(next, "fs.write", SUBJECT, here);
    assert_int_equal(br_ledger_allow(next, id, BR_SCOPE_RUN, NULL), -BR_E_NOT_FOUND);
    br_ledger_free(&next);
}

/* An answer is never wider than what was offered, and a plain yes is for once. */
static void test_scope_of_an_answer(void **state)
{
    struct br_ledger *l = *state;
    struct br_err err;
    char id[BR_ID_MAX];
    ask(l, BR_SCOPE_ONCE, id);
    assert_int_equal(br_ledger_allow(l, id, BR_SCOPE_RUN, &err), -BR_E_INVALID_ARGUMENTS);
    assert_non_null(strstr(err.text, "once only"));
    assert_int_equal(br_ledger_allow(l, id, (enum br_scope)3, &err), -BR_E_INVALID_ARGUMENTS);
    assert_int_equal(br_ledger_allow(l, id, (enum br_scope)0, &err), -BR_E_INVALID_ARGUMENTS);
    assert_int_equal(br_ledger_state(l, id), BR_ASK_PENDING);
    assert_int_equal(br_ledger_allow(l, id, BR_SCOPE_ONCE, NULL), 0);
    assert_int_equal(br_ledger_allow(l, id, BR_SCOPE_ONCE, &err), -BR_E_DENIED);
    assert_int_equal(br_ledger_scope(l, id), BR_SCOPE_ONCE);
    expect_not_covered(l, "fs.write", SUBJECT, here);
    ask(l, BR_SCOPE_RUN, id);
    assert_int_equal(br_ledger_end(l, id, BR_ASK_ALLOWED, NULL), 0);
    assert_int_equal(br_ledger_allow(l, id, BR_SCOPE_RUN, &err), -BR_E_DENIED);
    assert_int_equal(br_ledger_scope(l, id), BR_SCOPE_ONCE);
    expect_not_covered(l, "fs.write", SUBJECT, here);
    ask(l, BR_SCOPE_RUN, id);
    assert_int_equal(br_ledger_end(l, id, BR_ASK_DENIED, NULL), 0);
    assert_int_equal(br_ledger_allow(l, id, BR_SCOPE_RUN, &err), -BR_E_DENIED);
    expect_not_covered(l, "fs.write", SUBJECT, here);
    assert_int_equal(br_ledger_allow(l, "perm_unknown", BR_SCOPE_RUN, &err), -BR_E_NOT_FOUND);
    assert_int_equal(br_ledger_ask(l, "c", "x", "y", 1, BR_SCOPE_RUN, NULL, id, &err),
                     -BR_E_INVALID_ARGUMENTS); /* a run needs an environment */
}

static void test_ends(void **state)
{
    struct br_ledger *l = *state;
    struct br_err err;
    char id[BR_ID_MAX];
    ask(l, BR_SCOPE_ONCE, id);
    assert_int_equal(br_ledger_end(l, "perm_unknown", BR_ASK_ALLOWED, &err), -BR_E_NOT_FOUND);
    assert_int_equal(br_ledger_end(l, NULL, BR_ASK_ALLOWED, &err), -BR_E_NOT_FOUND);
    assert_int_equal(br_ledger_end(l, id, BR_ASK_PENDING, &err), -BR_E_INVALID_ARGUMENTS);
    assert_int_equal(br_ledger_end(l, id, (enum br_ask_end)6, &err), -BR_E_INVALID_ARGUMENTS);
    assert_int_equal(br_ledger_end(l, id, (enum br_ask_end) - 1, &err), -BR_E_INVALID_ARGUMENTS);
    assert_int_equal(br_ledger_state(l, id), BR_ASK_PENDING);
    assert_int_equal(br_ledger_state(l, "perm_unknown"), BR_ASK_DENIED);
    assert_int_equal(br_ledger_state(l, NULL), BR_ASK_DENIED);
}

/* Every order of three of five ends: the first one stands, and only `allowed` mints. */
static void test_every_order(void **state)
{
    struct br_ledger *l = *state;
    enum br_ask_end e[3];
    for (e[0] = BR_ASK_ALLOWED; e[0] <= BR_ASK_NO_RESOLVER; e[0]++)
        for (e[1] = BR_ASK_ALLOWED; e[1] <= BR_ASK_NO_RESOLVER; e[1]++)
            for (e[2] = BR_ASK_ALLOWED; e[2] <= BR_ASK_NO_RESOLVER; e[2]++) {
                char id[BR_ID_MAX];
                struct br_grant_ref g;
                ask(l, BR_SCOPE_ONCE, id);
                unsigned ended = 0;
                for (unsigned i = 0; i < 3; i++) {
                    int r = br_ledger_end(l, id, e[i], NULL);
                    assert_int_equal(r, i == 0 ? 0 : -BR_E_DENIED);
                    ended += r == 0;
                    assert_int_equal(br_ledger_state(l, id), e[0]);
                }
                assert_int_equal(ended, 1);
                int minted = 0;
                for (unsigned i = 0; i < 2; i++)
                    minted += br_ledger_mint(l, BR_EFFECT_ASK, id, here, "call-1", "fs.write",
                                             SUBJECT, &g, NULL) == 0;
                assert_int_equal(minted, e[0] == BR_ASK_ALLOWED);
            }
    assert_int_equal(br_ledger_pending(l), 0);
}

struct seen {
    struct br_ledger *l;
    unsigned n;
    char late[BR_ID_MAX];
};

static void on_end(const char *id, void *ctx)
{
    struct seen *s = ctx;
    assert_int_equal(br_ledger_state(s->l, id), BR_ASK_PENDING);
    s->n++;
    if (s->n == 2) /* an answer that arrives in the middle */
        assert_int_equal(br_ledger_end(s->l, id, BR_ASK_DENIED, NULL), 0);
    for (unsigned i = 0; s->n == 3 && i < 64; i++) /* moves the array */
        ask(s->l, BR_SCOPE_ONCE, s->late);
}

static void test_end_all(void **state)
{
    struct br_ledger *l = *state;
    char id[4][BR_ID_MAX];
    for (unsigned i = 0; i < 4; i++)
        ask(l, BR_SCOPE_ONCE, id[i]);
    assert_int_equal(br_ledger_end(l, id[0], BR_ASK_ALLOWED, NULL), 0);
    struct seen s = {.l = l};
    br_ledger_end_all(l, BR_ASK_CANCELED, on_end, &s);
    assert_int_equal(s.n, 3);
    assert_int_equal(br_ledger_state(l, id[0]), BR_ASK_ALLOWED);
    assert_int_equal(br_ledger_state(l, id[1]), BR_ASK_CANCELED);
    assert_int_equal(br_ledger_state(l, id[2]), BR_ASK_DENIED);
    assert_int_equal(br_ledger_state(l, id[3]), BR_ASK_CANCELED);
    assert_int_equal(br_ledger_pending(l), 64);
    br_ledger_end_all(l, BR_ASK_ALLOWED, NULL, NULL);
    assert_int_equal(br_ledger_pending(l), 0);
    assert_int_equal(br_ledger_state(l, s.late), BR_ASK_DENIED);
}

static void test_limits(void **state)
{
    struct br_ledger *l = *state;
    struct br_err err;
    struct br_grant_ref g;
    char id[BR_ID_MAX], call[BR_NAME_MAX + 1], action[BR_ACTION_MAX + 2];
    for (unsigned i = 0; i < BR_ASKS_MAX; i++)
        ask(l, BR_SCOPE_RUN, id);
    assert_int_equal(br_ledger_ask(l, "c", "x", NULL, 0, BR_SCOPE_ONCE, NULL, id, &err),
                     -BR_E_LIMIT_EXCEEDED);
    assert_string_equal(id, "");
    assert_int_equal(br_ledger_pending(l), BR_ASKS_MAX);
    for (unsigned i = 0; i < BR_GRANTS_MAX; i++)
        assert_int_equal(
            br_ledger_mint(l, BR_EFFECT_ALLOW, NULL, here, "c", "x", NULL, 0, &g, NULL), 0);
    assert_int_equal(br_ledger_redeem(l, &g, "c", "x", NULL, 0, NULL), 0);
    assert_int_equal(br_ledger_mint(l, BR_EFFECT_ALLOW, NULL, here, "c", "x", NULL, 0, &g, &err),
                     -BR_E_LIMIT_EXCEEDED);
    assert_int_equal(g.serial, 0);

    struct br_ledger *m = br_ledger_new("s");
    memset(call, 'c', sizeof(call));
    memset(action, 'a', sizeof(action));
    call[BR_NAME_MAX - 1] = action[BR_ACTION_MAX] = 0;
    assert_int_equal(br_ledger_ask(m, call, action, NULL, 0, BR_SCOPE_ONCE, NULL, id, &err), 0);
    assert_int_equal(
        br_ledger_mint(m, BR_EFFECT_ALLOW, NULL, here, call, action, NULL, 0, &g, &err), 0);
    assert_int_equal(br_ledger_redeem(m, &g, call, action, NULL, 0, &err), 0);
    call[BR_NAME_MAX - 1] = 'c';
    call[BR_NAME_MAX] = 0;
    assert_int_equal(br_ledger_ask(m, call, action, NULL, 0, BR_SCOPE_ONCE, NULL, id, &err),
                     -BR_E_INVALID_ARGUMENTS);
    assert_int_equal(
        br_ledger_mint(m, BR_EFFECT_ALLOW, NULL, here, call, action, NULL, 0, &g, &err),
        -BR_E_NO_GRANT);
    action[BR_ACTION_MAX] = 'a';
    action[BR_ACTION_MAX + 1] = 0;
    assert_int_equal(br_ledger_ask(m, "c", action, NULL, 0, BR_SCOPE_ONCE, NULL, id, &err),
                     -BR_E_INVALID_ARGUMENTS);
    assert_int_equal(br_ledger_ask(m, "", "x", NULL, 0, BR_SCOPE_ONCE, NULL, id, &err),
                     -BR_E_INVALID_ARGUMENTS);
    assert_int_equal(br_ledger_ask(m, "c", "x", NULL, 0, (enum br_scope)3, NULL, id, &err),
                     -BR_E_INVALID_ARGUMENTS);
    assert_int_equal(br_ledger_pending(m), 1);
    br_ledger_free(&m);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_allow_mints_once_per_effect),
        T(test_serials_rise),
        T(test_no_grant),
        T(test_mismatch),
        T(test_no_subject_is_not_an_empty_one),
        T(test_forged),
        T(test_ask_mints_once_for_what_was_asked),
        T(test_run_scope),
        T(test_scope_of_an_answer),
        T(test_ends),
        T(test_every_order),
        T(test_end_all),
        T(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
