/*
 * core/promote: the journal of a promotion, a file of the lease root that bridled opens and
 * bridle-promote writes. The one byte `state` is what makes a promotion happen: before it is
 * COMMITTED, nothing of the workspace has been touched, and what was staged is thrown away; after
 * that every step is taken, or, where one cannot be, every step is taken back.
 */
#ifndef BR_PROMOTE_JOURNAL_H
#define BR_PROMOTE_JOURNAL_H

#include <string.h>
#include <unistd.h>

#include "base/base.h"

#define BR_JOURNAL_MAGIC "bridle-promo-1\n"

enum br_journal_state {
    BR_JOURNAL_NONE = 0,
    BR_JOURNAL_STAGING = 'S',   /* there may be a stage in the workspace */
    BR_JOURNAL_COMMITTED = 'C', /* the steps are being taken */
    BR_JOURNAL_UNDOING = 'U',   /* and are being taken back */
    BR_JOURNAL_DONE = 'D',      /* all of them are; the stage may still be there */
    BR_JOURNAL_UNDONE = 'N',    /* none of them is; likewise */
};

struct br_journal_head {
    char magic[16];
    char state; /* enum br_journal_state */
    char zero[7];
    uint64_t nops;   /* valid from COMMITTED on */
    uint64_t bytes;  /* of the steps, behind this */
    uint8_t sum[32]; /* SHA-256 of them */
};

/* The state of a journal; NONE for a file that is none. */
static inline enum br_journal_state br_journal_read_state(int fd)
{
    struct br_journal_head h;
    return pread(fd, &h, sizeof(h), 0) == (ssize_t)sizeof(h) &&
                   memcmp(h.magic, BR_JOURNAL_MAGIC, sizeof(h.magic)) == 0
               ? (enum br_journal_state)h.state
               : BR_JOURNAL_NONE;
}

/* Is there something that must be brought to its end first? */
static inline bool br_journal_pending(int fd)
{
    return br_journal_read_state(fd) != BR_JOURNAL_NONE;
}

#endif
