/*
 * The page of a provider lease's account: a file of one page that bridled makes for a run, that
 * bridle-broker maps and writes, and that bridle-audit reads when it closes the record. What the
 * broker has written is there whoever is killed afterwards, since it is the kernel that keeps it.
 *
 * Every sum stands twice. The broker writes the copy that nobody reads, then turns the page with
 * one store; so a reader sees either all of a change or nothing of it.
 */
#ifndef BR_WIRE_ACCOUNT_H
#define BR_WIRE_ACCOUNT_H

#include "base/base.h"

#define BR_ACCOUNT_PAGE 4096u
#define BR_ACCOUNT_MAGIC "BRACCT1\n"
/* Where the pages are, in the directory of the audit store; a page has the name of its run. */
#define BR_ACCOUNT_DIR "accounts"

struct br_account_sums {
    uint64_t requests;        /* charged, */
    uint64_t in_flight;       /* of which so many have not ended, */
    uint64_t settled;         /* so many ended with what the provider says it used, */
    uint64_t unsettled;       /* so many kept their reservation, */
    uint64_t released;        /* and so many were certainly not served: nothing is charged */
    uint64_t request_bytes;   /* bodies sent */
    uint64_t response_bytes;  /* bodies received */
    uint64_t tokens_reserved; /* all reservations together */
    uint64_t tokens_charged;  /* what they became; those of requests in flight in full */
    uint64_t refused;         /* requests of which nothing was sent */
    uint64_t repaired;        /* answers that were repaired */
    uint64_t cut;             /* answers that were refused or cut on the way */
    uint64_t repairs;         /* bits of enum br_repair, of all of them */
};

struct br_account_page {
    char magic[8];
    char run_id[BR_ID_MAX];
    uint64_t turn; /* sums[turn & 1] is valid */
    struct br_account_sums sums[2];
};
_Static_assert(sizeof(struct br_account_page) <= BR_ACCOUNT_PAGE, "one page");

/* Map the page behind fd (not owned), whose size must be right, and make it that of run_id. NULL
 * and errno. */
struct br_account_page *br_account_page_map(int fd, const char *run_id);
void br_account_page_unmap(struct br_account_page **p);
/* Publish the sums. */
void br_account_page_write(struct br_account_page *p, const struct br_account_sums *sums);
/*
 * What is published on the page behind fd (not owned). 1: there it is; 0: the page was never
 * written; -BR_E_STORE_FAILED: it is not a page of this run.
 */
int br_account_page_read(int fd, const char *run_id, struct br_account_sums *sums,
                         struct br_err *err);

#endif
