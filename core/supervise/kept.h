/*
 * core/supervise, private: workspace leases that stay after their run. STATE/kept/RUN says whose it
 * is; its files are run-RUN.img and run-RUN.base in the lease root, and run-RUN.journal while a
 * promotion of it is under way.
 */
#ifndef BR_SUPERVISE_KEPT_H
#define BR_SUPERVISE_KEPT_H

#include <sys/stat.h>

#include "supervise/records.h"
#include "supervise/supervise_priv.h"

#define KEPT_DIR "kept"
#define SESSIONS_DIR "sessions"
/* How long they stay if nobody said otherwise. */
#define KEPT_SECONDS (7u * 86400u)
#define SESSION_SECONDS (30u * 86400u)

struct kept {
    char run_id[BR_ID_MAX];
    uint32_t owner; /* uid that bridled had */
    char workspace[BR_PATH_MAX];
    uint64_t dev, ino;
    uint32_t uid, gid; /* the workspace's owner */
    char profile[64], image[96], adapter[80];
    uint64_t created, ended, keep; /* seconds; ended 0: it did not come to its end */
};

/* A record as text is one; -BR_E_STORE_FAILED naming what it lacks. */
int kept_parse(const char *run_id, const char *text, struct kept *k, struct br_err *err);
/* Its files: what is written there must fit kept_parse(). */
enum kept_file { KEPT_IMAGE, KEPT_BASE, KEPT_JOURNAL, KEPT_FILES };
void kept_name(const char *run_id, enum kept_file f, char name[96]);
/* The lease root; -1 and errno. */
int kept_leases(const struct supervisor *s);
/* Does somebody hold a lock on this file of the lease root? */
bool kept_in_use(int leases, const char *name);
/*
 * Its journal, locked: nobody else has it, or removes it, while this descriptor or a copy of it is
 * open. A descriptor; -BR_E_IN_USE; -BR_E_NOT_FOUND if there is none and none was to be made.
 */
int kept_journal(int leases, const char *run_id, bool make, struct br_err *err);
/* Remove its name, unless something is pending in it; for who holds it. */
void kept_journal_forget(int leases, const char *run_id, int fd);
/*
 * Remove it with its files. -BR_E_IN_USE while a run or a promotion has it, or one was interrupted
 * half-way; -BR_E_NOT_FOUND.
 */
int kept_purge(struct supervisor *s, const char *run_id, struct br_err *err);

/* leases.c: is the file locked by anybody, as the kernel's list says? */
bool leases_locked(const struct stat *st);

#endif
