/*
 * Prints docs/system-calls.md from the filter's table, so that the page is the table; a test
 * compares the two. Not installed, takes no input.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "sandbox/filter.h"

#define WIDTH 118

static const char *error_name(int e)
{
    static const struct {
        int error;
        const char *name;
    } names[] = {{EPERM, "EPERM"},
                 {ENOSYS, "ENOSYS"},
                 {EAFNOSUPPORT, "EAFNOSUPPORT"},
                 {EOPNOTSUPP, "EOPNOTSUPP"},
                 {ESOCKTNOSUPPORT, "ESOCKTNOSUPPORT"},
                 {EPROTONOSUPPORT, "EPROTONOSUPPORT"},
                 {ENOPROTOOPT, "ENOPROTOOPT"},
                 {ENOTTY, "ENOTTY"},
                 {ENOMEM, "ENOMEM"},
                 {EINVAL, "EINVAL"}};
    for (unsigned i = 0; i < BR_ARRAY_LEN(names); i++)
        if (names[i].error == e)
            return names[i].name;
    return "?"; /* which a test of the page finds */
}

/* "see above" and "see socket" are for readers of the table. */
static const char *reason(unsigned i)
{
    while (i > 0 && strcmp(br_filter_rows[i].why, "see above") == 0)
        i--;
    return br_filter_rows[i].why;
}

static bool in(unsigned i, bool allow, int error)
{
    const struct br_filter_row *r = &br_filter_rows[i];
    return r->allow == allow && r->ntests == 0 && r->error == error;
}

static bool said_before(unsigned i, bool allow, int error)
{
    for (unsigned k = 0; k < i; k++)
        if (in(k, allow, error) && strcmp(reason(k), reason(i)) == 0)
            return true;
    return false;
}

/* One item for each reason, with the calls that it is the reason for. */
static void print_group(bool allow, int error)
{
    for (unsigned i = 0; i < br_filter_nrows; i++) {
        if (!in(i, allow, error) || said_before(i, allow, error))
            continue;
        size_t column = (size_t)printf("- **%s**:", reason(i));
        const char *comma = "";
        for (unsigned k = i; k < br_filter_nrows; k++) {
            if (!in(k, allow, error) || strcmp(reason(k), reason(i)) != 0)
                continue;
            size_t n = strlen(br_filter_rows[k].name) + 4;
            printf("%s%s`%s`", comma, column + n > WIDTH ? "\n  " : " ", br_filter_rows[k].name);
            column = column + n > WIDTH ? n : column + n;
            comma = ",";
        }
        printf("\n");
    }
}

/* The errors of a row's tests, each once, in their order. */
static void print_errors(const struct br_filter_row *r)
{
    int last = 0;
    for (unsigned i = 0; i < r->ntests; i++) {
        if (r->tests[i].or_next || r->tests[i].error == last)
            continue;
        printf("%s%s", last ? ", " : "", error_name(r->tests[i].error));
        last = r->tests[i].error;
    }
}

static void print_conditions(void)
{
    printf("| call | allowed | otherwise | why |\n|---|---|---|---|\n");
    for (unsigned i = 0; i < br_filter_nrows; i++) {
        const struct br_filter_row *r = &br_filter_rows[i];
        if (!r->ntests)
            continue;
        printf("| `%s` | %s | ", r->name, r->only);
        print_errors(r);
        printf(" | %s |\n", r->why);
    }
}

int main(void)
{
    printf("# Which system calls a sandbox may make\n\n"
           "Made from `core/sandbox/filter_table.c`, version %u; a test compares the two. An allow "
           "list: every call\nof Linux up to 6.18 on x86-64 is here, and one that is not gets "
           "`ENOSYS`, as from a kernel that does not know\nit. Arguments are compared in their low "
           "32 bits, as the kernel does that takes an `int`. A 32 bit (i386) or x32\nentry kills "
           "the process. The filter is one of several locks: that a call is allowed says only that "
           "mounts,\nnamespaces, the missing capabilities and limits decide.\n\n",
           BR_FILTER_VERSION);
    printf(
        "A run's receipt has the version, the SHA-256 of the program that was installed, and its "
        "length.\n\n## Refused with EPERM\n\n");
    print_group(false, EPERM);
    printf("\n## Allowed under a condition\n\n");
    print_conditions();
    printf("\n## Answered as if the kernel did not have them: ENOSYS\n\n");
    print_group(false, ENOSYS);
    printf("\n## Allowed\n\n");
    print_group(true, 0);
    return ferror(stdout) ? 1 : 0;
}
