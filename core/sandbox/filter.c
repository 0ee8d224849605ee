/*
 * Compiles the table of filter_table.c into one BPF program, once per launcher. Trusts the table.
 *
 * Why not libseccomp: the kernel verifies, translates and dry-runs a filter for every sandbox that
 * installs it, and that costs time in proportion to its length. The same table takes 160 us to
 * install as libseccomp's binary tree and 65 us in this form (neighbouring numbers with the same
 * answer become one interval, a binary search finds the interval, and every answer is written
 * once). libseccomp also cannot express "unless the low 32 bits are X", which ioctl needs
 * (docs/decisions/0010).
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "sandbox/filter.h"

#if defined(__x86_64__)
#define FILTER_ARCH AUDIT_ARCH_X86_64
#define X32_BIT 0x40000000u
#elif defined(__aarch64__)
#define FILTER_ARCH AUDIT_ARCH_AARCH64
#else
#error "no seccomp architecture known for this machine"
#endif

#define NR_MAX 1024u
#define CODE_MAX 4096u
#define JUMPS_MAX 64u

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "argument halves are little endian");

/* Same answer for every number from `first` up to the next interval. */
struct interval {
    uint32_t first;
    uint32_t answer;                 /* SECCOMP_RET_*; ignored if there is a condition */
    const struct br_filter_row *row; /* with a condition, else NULL */
    bool written;
};

struct code {
    struct sock_filter insn[CODE_MAX];
    unsigned n;
    bool failed;
};

static unsigned put(struct code *c, uint16_t op, uint8_t jt, uint8_t jf, uint32_t k)
{
    if (c->n == CODE_MAX) {
        c->failed = true;
        return 0;
    }
    c->insn[c->n] = (struct sock_filter){.code = op, .jt = jt, .jf = jf, .k = k};
    return c->n++;
}

static void put_load(struct code *c, size_t offset)
{
    put(c, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset);
}

static void put_ret(struct code *c, uint32_t answer)
{
    put(c, BPF_RET | BPF_K, 0, 0, answer);
}

static uint32_t refuse(int error)
{
    return SECCOMP_RET_ERRNO | ((uint32_t)error & SECCOMP_RET_DATA);
}

/* ---- conditions ---- */

/* Jumps to a place that is not written yet. */
struct jumps {
    unsigned at[JUMPS_MAX], n;
};

/* A comparison that goes to the place of `out` if it holds (or, with `unless`, if it does not), and
 * on otherwise. */
static void put_jump(struct code *c, struct jumps *out, uint16_t op, uint32_t k, bool unless)
{
    if (out->n == JUMPS_MAX)
        c->failed = true;
    else
        out->at[out->n++] = put(c, BPF_JMP | op | BPF_K, unless ? 0 : 1, unless ? 1 : 0, k);
}

/* The place is here: the marked half of each jump gets its distance. */
static void land(struct code *c, const struct jumps *j)
{
    for (unsigned i = 0; i < j->n && !c->failed; i++) {
        struct sock_filter *f = &c->insn[j->at[i]];
        unsigned distance = c->n - j->at[i] - 1;
        if (f->code == (BPF_JMP | BPF_JA)) {
            f->k = distance;
            continue;
        }
        c->failed = distance > 255; /* a conditional jump reaches no further */
        *(f->jt ? &f->jt : &f->jf) = (uint8_t)distance;
    }
}

static void put_always(struct code *c, struct jumps *out)
{
    if (out->n == JUMPS_MAX)
        c->failed = true;
    else
        out->at[out->n++] = put(c, BPF_JMP | BPF_JA, 0, 0, 0);
}

/* Jumps to `pass` if the test passes, goes on if it does not. */
static void put_test(struct code *c, const struct br_filter_test *t, struct jumps *pass)
{
    struct jumps inside = {.n = 0}, *hit = t->not ? &inside : pass;
    put_load(c, offsetof(struct seccomp_data, args) + t->arg * sizeof(uint64_t));
    if (t->mask != UINT32_MAX && t->n == 1 && t->in[0].last == 0) {
        put_jump(c, hit, BPF_JSET, t->mask, true);
    } else {
        if (t->mask != UINT32_MAX)
            put(c, BPF_ALU | BPF_AND | BPF_K, 0, 0, t->mask);
        for (unsigned i = 0; i < t->n; i++) {
            const struct br_filter_range *r = &t->in[i];
            if (r->first == r->last) {
                put_jump(c, hit, BPF_JEQ, r->first, false);
                continue;
            }
            if (r->first > 0)
                put(c, BPF_JMP | BPF_JGE | BPF_K, 0, 1, r->first);
            put_jump(c, hit, BPF_JGT, r->last, true);
        }
    }
    if (t->not )
        put_always(c, pass);
    land(c, &inside);
}

static void put_condition(struct code *c, const struct br_filter_row *row)
{
    for (unsigned i = 0; i < row->ntests; i++) {
        struct jumps pass = {.n = 0};
        while (put_test(c, &row->tests[i], &pass), row->tests[i].or_next)
            i++;
        put_ret(c, refuse(row->tests[i].error));
        land(c, &pass);
    }
    put_ret(c, SECCOMP_RET_ALLOW);
}

/* ---- the search ---- */

/* A half of a comparison of the search that leads to an interval, whose place is not known yet. */
struct ref {
    unsigned at; /* the comparison */
    bool jt;
    unsigned to; /* the interval */
};
struct refs {
    struct ref list[NR_MAX];
    unsigned n;
};

static void put_ref(struct code *c, struct refs *refs, unsigned at, bool jt, unsigned to)
{
    if (refs->n == NR_MAX)
        c->failed = true;
    else
        refs->list[refs->n++] = (struct ref){.at = at, .jt = jt, .to = to};
}

/* One half of the comparison `at` goes to the next instruction. */
static void land_half(struct code *c, unsigned at, bool jt)
{
    unsigned distance = c->n - at - 1;
    c->failed = c->failed || distance > 255; /* a conditional jump reaches no further */
    *(jt ? &c->insn[at].jt : &c->insn[at].jf) = (uint8_t)distance;
}

/* Binary search over v[0..n): no recursion, a stack of halves still to be written. What it finds
 * comes behind it, once for all who find the same. */
static void put_search(struct code *c, unsigned n, const struct interval *v, struct refs *refs)
{
    struct half {
        unsigned from, to, test; /* test: the comparison that jumps to this half */
    } stack[32];
    unsigned depth = 0, from = 0, to = n;
    for (;;) {
        while (to - from > 1) {
            unsigned mid = from + (to - from) / 2;
            unsigned test = put(c, BPF_JMP | BPF_JGE | BPF_K, 0, 0, v[mid].first);
            br_require(depth < BR_ARRAY_LEN(stack));
            if (to - mid > 1)
                stack[depth++] = (struct half){.from = mid, .to = to, .test = test};
            else
                put_ref(c, refs, test, true, mid);
            if (mid - from == 1)
                put_ref(c, refs, test, false, from);
            to = mid;
        }
        if (depth == 0 || c->failed)
            return;
        struct half h = stack[--depth];
        land_half(c, h.test, true);
        from = h.from;
        to = h.to;
    }
}

static bool same_leaf(const struct interval *a, const struct interval *b)
{
    return a->row && b->row ? a->row->tests == b->row->tests
                            : !a->row && !b->row && a->answer == b->answer;
}

/* The answers, and for a condition the jump to it: conditions are further away than a comparison
 * reaches. */
static void put_leaves(struct code *c, struct interval *v, unsigned n, const struct refs *refs,
                       struct jumps *far, const struct br_filter_row **rows)
{
    for (unsigned i = 0; i < n; i++) {
        if (v[i].written)
            continue;
        for (unsigned k = i; k < n; k++)
            v[k].written |= same_leaf(&v[i], &v[k]);
        for (unsigned k = 0; k < refs->n; k++)
            if (same_leaf(&v[i], &v[refs->list[k].to]))
                land_half(c, refs->list[k].at, refs->list[k].jt);
        if (!v[i].row) {
            put_ret(c, v[i].answer);
            continue;
        }
        if (far->n < JUMPS_MAX)
            rows[far->n] = v[i].row;
        put_always(c, far);
    }
}

static void put_tree(struct code *c, struct interval *v, unsigned n, struct refs *refs)
{
    const struct br_filter_row *rows[JUMPS_MAX];
    struct jumps far = {.n = 0};
    put_search(c, n, v, refs);
    put_leaves(c, v, n, refs, &far, rows);
    for (unsigned i = 0; i < far.n && !c->failed; i++) {
        land(c, &(struct jumps){.at = {far.at[i]}, .n = 1});
        put_condition(c, rows[i]);
    }
}

static unsigned make_intervals(struct interval *v, struct br_err *err)
{
    const struct br_filter_row *by_nr[NR_MAX] = {NULL};
    unsigned n = 0;
    for (unsigned i = 0; i < br_filter_nrows; i++) {
        const struct br_filter_row *row = &br_filter_rows[i];
        if (row->nr < 0)
            continue;
        if ((unsigned)row->nr >= NR_MAX || by_nr[row->nr]) {
            (void)br_err_set(err, BR_E_INTERNAL, "the filter table names '%s' twice", row->name);
            return 0;
        }
        by_nr[row->nr] = row;
    }
    for (uint32_t nr = 0; nr < NR_MAX; nr++) {
        const struct br_filter_row *row = by_nr[nr];
        struct interval w = {.first = nr, .answer = SECCOMP_RET_ERRNO | ENOSYS};
        if (row && row->allow && row->ntests)
            w.row = row;
        else if (row)
            w.answer = row->allow ? SECCOMP_RET_ALLOW : refuse(row->error);
        if (n == 0 || w.row || v[n - 1].row || v[n - 1].answer != w.answer)
            v[n++] = w;
    }
    return n;
}

void br_filter_hash(const struct sock_fprog *prog, char hex[65])
{
    struct br_sha256 s;
    uint8_t digest[32];
    br_sha256_init(&s);
    br_sha256_put(&s, prog->filter, prog->len * sizeof(*prog->filter));
    br_sha256_end(&s, digest);
    br_hex(hex, digest, sizeof(digest));
}

int br_filter_build(struct sock_fprog *prog, struct br_err *err)
{
    BR_CLEANUP_FREE struct interval *v = calloc(NR_MAX, sizeof(*v));
    BR_CLEANUP_FREE struct code *c = calloc(1, sizeof(*c));
    BR_CLEANUP_FREE struct refs *refs = calloc(1, sizeof(*refs));
    if (!v || !c || !refs)
        return br_err_set(err, BR_E_NOMEM, "no memory for the system call filter");
    unsigned n = make_intervals(v, err);
    if (n == 0)
        return -BR_E_INTERNAL;
    put_load(c, offsetof(struct seccomp_data, arch));
    put(c, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, FILTER_ARCH);
    put_ret(c, SECCOMP_RET_KILL_PROCESS);
    put_load(c, offsetof(struct seccomp_data, nr));
#ifdef X32_BIT
    put(c, BPF_JMP | BPF_JGE | BPF_K, 0, 1, X32_BIT);
    put_ret(c, SECCOMP_RET_KILL_PROCESS);
#endif
    put_tree(c, v, n, refs);
    if (c->failed)
        return br_err_set(err, BR_E_INTERNAL, "the system call filter is too long");
    struct sock_filter *code = calloc(c->n, sizeof(*code));
    if (!code)
        return br_err_set(err, BR_E_NOMEM, "no memory for the system call filter");
    memcpy(code, c->insn, c->n * sizeof(*code));
    *prog = (struct sock_fprog){.len = (unsigned short)c->n, .filter = code};
    return 0;
}
