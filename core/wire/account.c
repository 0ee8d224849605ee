/*
 * The page of an account; see account.h. bridle-broker writes it, bridle-audit reads it. The
 * reader trusts nothing on it but its size: the writer may have been killed, or worse.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wire/account.h"

/* How often a page is read that is being written. */
#define READS_MAX 100u

static bool is_page(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == (off_t)BR_ACCOUNT_PAGE;
}

struct br_account_page *br_account_page_map(int fd, const char *run_id)
{
    if (!is_page(fd) || strlen(run_id) >= BR_ID_MAX) {
        errno = EINVAL;
        return NULL;
    }
    struct br_account_page *p =
        mmap(NULL, BR_ACCOUNT_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return NULL;
    memset(p, 0, sizeof(*p));
    memcpy(p->run_id, run_id, strlen(run_id));
    memcpy(p->magic, BR_ACCOUNT_MAGIC, sizeof(p->magic));
    return p;
}

void br_account_page_unmap(struct br_account_page **p)
{
    if (*p)
        (void)munmap(*p, BR_ACCOUNT_PAGE);
    *p = NULL;
}

void br_account_page_write(struct br_account_page *p, const struct br_account_sums *sums)
{
    uint64_t turn = p->turn + 1;
    memcpy(&p->sums[turn & 1], sums, sizeof(*sums));
    __atomic_store_n(&p->turn, turn, __ATOMIC_RELEASE);
}

static bool read_once(int fd, struct br_account_page *p)
{
    ssize_t r;
    do {
        r = pread(fd, p, sizeof(*p), 0);
    } while (r < 0 && errno == EINTR);
    return r == (ssize_t)sizeof(*p);
}

/* Each request is in exactly one place, and so is each token. */
static bool plausible(const struct br_account_sums *s)
{
    uint64_t ended;
    return !__builtin_add_overflow(s->settled, s->unsettled, &ended) &&
           !__builtin_add_overflow(ended, s->released, &ended) &&
           !__builtin_add_overflow(ended, s->in_flight, &ended) && ended == s->requests;
}

int br_account_page_read(int fd, const char *run_id, struct br_account_sums *sums,
                         struct br_err *err)
{
    static const struct br_account_page none;
    struct br_account_page p, again;
    bool same = false;
    if (!is_page(fd))
        return br_err_set(err, BR_E_STORE_FAILED, "the account of '%s' is not one page", run_id);
    for (unsigned i = 0; i < READS_MAX && !same; i++) {
        if (!read_once(fd, &p) || !read_once(fd, &again))
            return br_err_errno(err, BR_E_STORE_FAILED, "the account of '%s' could not be read",
                                run_id);
        same = p.turn == again.turn &&
               memcmp(&p.sums[p.turn & 1], &again.sums[p.turn & 1], sizeof(*sums)) == 0;
    }
    if (memcmp(&p, &none, sizeof(p)) == 0)
        return 0;
    *sums = p.sums[p.turn & 1];
    if (!same || memcmp(p.magic, BR_ACCOUNT_MAGIC, sizeof(p.magic)) != 0 ||
        strnlen(p.run_id, sizeof(p.run_id)) != strlen(run_id) ||
        strncmp(p.run_id, run_id, sizeof(p.run_id)) != 0 || !plausible(sums))
        return br_err_set(err, BR_E_STORE_FAILED, "the account of '%s' is damaged", run_id);
    return 1;
}
