/*
 * core/base: a secret is overwritten before its memory is given back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"

static const void *watched;
static size_t watched_len;
static int wiped = -1;

void __real_free(void *p);
void __wrap_free(void *p);
/* Looks at the bytes of the secret at the moment they are given back. */
void __wrap_free(void *p)
{
    if (p && p == watched) {
        wiped = 1;
        for (size_t i = 0; i < watched_len; i++)
            if (((const unsigned char *)p)[i])
                wiped = 0;
        watched = NULL;
    }
    __real_free(p);
}

static void secrets_are_wiped(void **state)
{
    (void)state;
    struct br_secret s = {0};
    size_t n;
    assert_int_equal(br_secret_set(&s, "hunter2", 7), 0);
    assert_memory_equal(br_secret_bytes(&s, &n), "hunter2", 7);
    assert_int_equal(n, 7);
    watched = br_secret_bytes(&s, &watched_len);
    br_secret_wipe(&s);
    assert_int_equal(wiped, 1);
    assert_null(br_secret_bytes(&s, &n));
    assert_int_equal(n, 0);
    br_secret_wipe(&s); /* harmless */
    wiped = -1;         /* replacing wipes the old one */
    assert_int_equal(br_secret_set(&s, "first", 5), 0);
    watched = br_secret_bytes(&s, &watched_len);
    assert_int_equal(br_secret_set(&s, "", 0), 0);
    assert_int_equal(wiped, 1);
    br_secret_wipe(&s);
    /* the control: the probe does see bytes that are left */
    char *p = malloc(4);
    memcpy(p, "left", 4);
    watched = p;
    watched_len = 4;
    free(p);
    assert_int_equal(wiped, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(secrets_are_wiped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
