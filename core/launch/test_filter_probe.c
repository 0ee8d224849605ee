/*
 * Tests only: a static program that runs inside of a sandbox, makes every system call of the
 * filter's table, each in a process of its own, and prints what came of it, one line a case:
 *
 *   NAME CASE EXPECTED GOT
 *
 * EXPECTED is "allowed" or the table's errno; GOT an errno, 0, or 1000 + a signal. With a condition
 * there is a case for each side of it. The other arguments are chosen so that nothing happens: all
 * ones, which are no descriptor, no pointer and no valid flag. test_launch_filter.c compares.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/filter_want.h"

#define NOT_RETURNED (-1)
#define HIGH (1ul << 32)

static volatile int *slot; /* shared with the process that makes the call */

struct call {
    long nr;
    unsigned long a[6];
    bool entry; /* not syscall(2): through the gate of 32 bit programs */
};

/* Inlined: the child of a vfork must not return into what its parent still needs. */
__attribute__((always_inline)) static inline long enter(const struct call *c)
{
    long r;
#ifdef __x86_64__
    register unsigned long r10 __asm__("r10") = c->a[3];
    register unsigned long r8 __asm__("r8") = c->a[4];
    register unsigned long r9 __asm__("r9") = c->a[5];
    if (c->entry)
        __asm__ volatile("int $0x80" : "=a"(r) : "a"(c->nr) : "memory", "r8", "r9", "r10", "r11");
    else /* no function, whose return address the child of a vfork would overwrite */
        __asm__ volatile("syscall"
                         : "=a"(r)
                         : "a"(c->nr), "D"(c->a[0]), "S"(c->a[1]), "d"(c->a[2]), "r"(r10), "r"(r8),
                           "r"(r9)
                         : "memory", "rcx", "r11");
#else
    r = syscall(c->nr, c->a[0], c->a[1], c->a[2], c->a[3], c->a[4], c->a[5]);
    r = r == -1 ? -errno : r;
#endif
    return r;
}

static bool makes_process(long nr)
{
#ifdef __x86_64__
    if (nr == SYS_fork || nr == SYS_vfork)
        return true;
#endif
    return nr == SYS_clone;
}

static int try_call(const struct call *c)
{
    int status = 0;
    *slot = NOT_RETURNED;
    pid_t pid = fork();
    if (pid == 0) {
#ifdef SYS_pause
        struct itimerval soon = {.it_value = {.tv_usec = 50000}};
        if (c->nr == SYS_pause) /* waits for ever, which is an answer as well */
            (void)setitimer(ITIMER_REAL, &soon, NULL);
#endif
        long r = enter(c);
        if (r != 0 || !makes_process(c->nr)) /* the new process says nothing */
            *slot = r < 0 && r > -4096 ? (int)-r : 0;
        _exit(0);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (*slot != NOT_RETURNED)
        return *slot;
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : 0;
}

static void report(const char *name, const char *what, int expected, const struct call *c)
{
    int got = try_call(c);
    if (expected)
        printf("%s %s %d %d\n", name, what, expected, got);
    else
        printf("%s %s allowed %d\n", name, what, got);
}

/* Where all ones would be answered like a refusal, or would do something. */
static const struct {
    int nr;
    unsigned long a[6];
} others[] = {
    {SYS_clone, {0, 0, 0, 0, 0, 0}},
    {SYS_futex, {0, 1 /* FUTEX_WAKE, of a null pointer */, 0, 0, 0, 0}},
};

static struct call ones(int nr)
{
    struct call c = {.nr = nr};
    memset(c.a, 0xff, sizeof(c.a));
    for (unsigned i = 0; i < BR_ARRAY_LEN(others); i++)
        if (others[i].nr == nr)
            memcpy(c.a, others[i].a, sizeof(c.a));
    return c;
}

static void probe_args(const struct br_filter_row *r, const unsigned n[6], const uint64_t a[6],
                       uint64_t high)
{
    struct call c = ones(r->nr);
    char what[48] = "";
    for (unsigned i = 0; i < 6; i++) {
        if (!n[i])
            continue;
        c.a[i] = a[i] | high;
        if (i == 1 && (r->nr == SYS_socket || r->nr == SYS_socketpair))
            c.a[i] |=
                0x100; /* no flag of a type: the kernel itself says EINVAL, and loads nothing */
        size_t at = strlen(what);
        (void)snprintf(what + at, sizeof(what) - at, "%s%lx", at ? "," : "", c.a[i]);
    }
    report(r->name, what, br_filter_want(r, a), &c);
}

/* All edges of all arguments with each other; what is refused, also with a high bit. */
static void probe_condition(const struct br_filter_row *r)
{
    static uint32_t v[6][BR_FILTER_EDGES_MAX];
    unsigned n[6], at[6] = {0}, arg = 0;
    for (unsigned i = 0; i < 6; i++)
        n[i] = br_filter_edges(r, i, false, v[i]);
    while (arg < 6) {
        uint64_t a[6];
        for (unsigned i = 0; i < 6; i++)
            a[i] = n[i] ? v[i][at[i]] : 0;
        probe_args(r, n, a, 0);
        if (br_filter_want(r, a))
            probe_args(r, n, a, HIGH);
        for (arg = 0; arg < 6 && (n[arg] == 0 || ++at[arg] == n[arg]); arg++)
            at[arg] = 0;
    }
}

static void probe_entries(void)
{
#ifdef __x86_64__
    struct call c = {.nr = 20 /* getpid of i386 */, .entry = true};
    report("i386", "getpid", 1000 + SIGSYS, &c);
    c = (struct call){.nr = SYS_getpid | 0x40000000};
    report("x32", "getpid", 1000 + SIGSYS, &c);
    c = (struct call){.nr = -1};
    report("minus-one", "call", 1000 + SIGSYS, &c);
#endif
    struct call unknown = ones(999);
    report("unknown", "999", ENOSYS, &unknown);
    unknown = ones(400);
    report("unknown", "400", ENOSYS, &unknown);
}

/* PART of PARTS: every so many rows. */
int main(int argc, char **argv)
{
    unsigned part = argc == 3 ? (unsigned)atoi(argv[1]) : 0;
    unsigned parts = argc == 3 ? (unsigned)atoi(argv[2]) : 1;
    slot = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (slot == MAP_FAILED)
        return 1;
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* so that no process prints it twice */
    for (unsigned i = part; i < br_filter_nrows; i += parts) {
        const struct br_filter_row *r = &br_filter_rows[i];
        if (r->nr < 0)
            continue;
        struct call c = ones(r->nr);
        if (r->ntests)
            probe_condition(r);
        else
            report(r->name, "-", r->allow ? 0 : r->error, &c);
    }
    if (part == 0)
        probe_entries();
    return 0;
}
