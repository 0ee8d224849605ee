/*
 * core/base: a secret is overwritten before its memory is given back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/base.h"

static const void *watched;
static size_t watched_len;
static int wiped = -1;

int __real_munmap(void *p, size_t n);
int __wrap_munmap(void *p, size_t n);
/* Looks at the bytes of the secret at the moment they are given back. */
int __wrap_munmap(void *p, size_t n)
{
    if (p && p == watched) {
        wiped = 1;
        for (size_t i = 0; i < watched_len; i++)
            if (((const unsigned char *)p)[i])
                wiped = 0;
        watched = NULL;
    }
    return __real_munmap(p, n);
}

/* Whether the kernel leaves this page out of core dumps: "dd" in its flags. */
static bool in_no_dump(const void *p)
{
    BR_CLEANUP_FILE FILE *f = fopen("/proc/self/smaps", "re");
    char line[512];
    bool here = false;
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            here = (uintptr_t)p >= from && (uintptr_t)p < to;
        else if (here && strncmp(line, "VmFlags:", 8) == 0)
            return strstr(line, " dd") != NULL;
    }
    fail_msg("the page is not there");
    return false;
}

static void secrets_are_in_no_dump(void **state)
{
    (void)state;
    struct br_secret s = {0};
    size_t n;
    assert_int_equal(br_secret_set(&s, "hunter2", 7), 0);
    assert_true(in_no_dump(br_secret_bytes(&s, &n)));
    br_secret_wipe(&s);
    void *plain = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(plain != MAP_FAILED);
    memset(plain, 1, 4096);
    assert_false(in_no_dump(plain)); /* the control */
    (void)munmap(plain, 4096);
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
    void *p = mmap(NULL, 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    memcpy(p, "left", 4);
    watched = p;
    watched_len = 4;
    (void)munmap(p, 4);
    assert_int_equal(wiped, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(secrets_are_wiped),
        cmocka_unit_test(secrets_are_in_no_dump),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
