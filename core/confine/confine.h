/*
 * core/confine: run another project's program on bytes that nobody vouches for, so that one that
 * these bytes have taken over reaches nothing. Namespaces of its own (pid, network, ipc, mounts,
 * host name; as an ordinary user also users), whose pid 1 ends with the caller and takes every
 * descendant along; a uid of its own if the caller is root; no capability; Landlock with scopes; a
 * system call filter; limits. Decision: docs/decisions/0097-confined-tools.md.
 */
#ifndef BR_CONFINE_H
#define BR_CONFINE_H

#include <sys/types.h>

#include "base/base.h"

#define BR_CONFINE_FDS 4

struct br_confine {
    const char *path;        /* the program: absolute */
    const char *const *argv; /* NULL-terminated, and so is the environment */
    const char *const *env;
    int fds[BR_CONFINE_FDS]; /* what its descriptors 0 to 3 are; -1: closed. No others. */
    int work;      /* a directory that it may change, its /tmp and where it starts; -1: none */
    int read_dir;  /* one more that it may read, -1: none */
    int file;      /* one file that it may read and write by /proc/self/fd/3; -1: none */
    uid_t uid;     /* what it becomes if the caller is root; 0: it stays uid 0 */
    bool read_all; /* if the caller is root: keep the capability to read everything */
    bool may_fork; /* processes of its own; else threads only */
    uint64_t max_file, max_memory; /* bytes of one file, of address space; 0: no limit */
    /*
     * A program that is trusted, and needs rights and the network. Root: only namespaces of
     * processes, mounts, ipc and host name. An ordinary user: a process group and nothing else.
     */
    bool trusted;
};

struct br_confined {
    pid_t pid;  /* pid 1 of its namespace; or of a trusted one without namespaces, it itself */
    int pidfd;  /* readable when all of it has ended */
    int report; /* private */
    bool group; /* private: it has no namespace, but a process group */
};

/* Start it. -BR_E_REQUIREMENT_MISSING if it cannot be confined here; nothing runs then. */
int br_confine_start(const struct br_confine *c, struct br_confined *p, struct br_err *err);
/* Ask a trusted program to end; it may have something to clean up. */
void br_confine_ask(const struct br_confined *p);
/* End all of it. */
void br_confine_kill(const struct br_confined *p);
/*
 * Wait until the whole namespace is dead: after that nothing of it changes any file. *status as of
 * waitpid(2). -BR_E_REQUIREMENT_MISSING naming what could not be confined (the program has not
 * run). Call it exactly once for each start.
 */
int br_confine_wait(struct br_confined *p, int *status, struct br_err *err);

#endif
