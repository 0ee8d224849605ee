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
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/filter.h"

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

static void probe_value(const struct br_filter_row *r, unsigned long value, bool allowed)
{
    struct call c = ones(r->nr);
    char what[32];
    c.a[r->arg] = value;
    snprintf(what, sizeof(what), "0x%lx", value);
    report(r->name, what, allowed ? 0 : r->error, &c);
}

static void probe_mode(const struct br_filter_row *r, unsigned long flags, unsigned long mode,
                       bool allowed)
{
    struct call c = ones(r->nr);
    char what[64];
    c.a[r->arg] = flags;
    c.a[r->arg + 1] = mode;
    snprintf(what, sizeof(what), "0x%lx,0%lo", flags, mode);
    report(r->name, what, allowed ? 0 : r->error, &c);
}

static void probe_condition(const struct br_filter_row *r)
{
    switch (r->cond) {
    case BR_COND_FLAGS_CLEAR:
        probe_value(r, 0, true);
        for (unsigned bit = 0; bit < 32; bit++)
            if (r->list[0] & 1u << bit) {
                probe_value(r, 1ul << bit, false);
                probe_value(r, HIGH | 1ul << bit, false);
            }
        return;
    case BR_COND_ARG_IN:
        for (unsigned i = 0; i < r->nlist; i++)
            probe_value(r, r->list[i], true);
        for (unsigned long v = 0; v < 64; v++) {
            bool in = false;
            for (unsigned i = 0; i < r->nlist; i++)
                in = in || r->list[i] == v;
            if (!in) {
                probe_value(r, v, false);
                probe_value(r, HIGH | v, false);
            }
        }
        return;
    case BR_COND_ARG_NOT_IN:
        for (unsigned i = 0; i < r->nlist; i++) {
            probe_value(r, r->list[i], false);
            probe_value(r, HIGH | r->list[i], false);
            probe_value(r, ~0ul << 32 | r->list[i], false);
        }
        probe_value(r, 0, true);
        return;
    case BR_COND_MODE_CLEAR:
        probe_mode(r, O_RDONLY, 06777, true);
        probe_mode(r, O_CREAT, 01777, true);
        probe_mode(r, O_CREAT | O_WRONLY, 04755, false);
        probe_mode(r, O_CREAT | O_WRONLY, 02755, false);
        probe_mode(r, HIGH | O_CREAT, HIGH | 04755, false);
        probe_mode(r, O_TMPFILE | O_RDWR, 04600, false);
        return;
    default:
        printf("%s condition 0 %d\n", r->name, ENOMSG);
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

int main(void)
{
    slot = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (slot == MAP_FAILED)
        return 1;
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* so that no process prints it twice */
    for (unsigned i = 0; i < br_filter_nrows; i++) {
        const struct br_filter_row *r = &br_filter_rows[i];
        if (r->nr < 0)
            continue;
        struct call c = ones(r->nr);
        if (r->cond != BR_COND_NONE)
            probe_condition(r);
        else
            report(r->name, "-", r->allow ? 0 : r->error, &c);
    }
    probe_entries();
    return 0;
}
