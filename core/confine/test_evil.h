/*
 * For tests of whatever starts a confined program: a copy of evil (test_evil.c), within reach of a
 * confined one, and what it tries to reach.
 */
#ifndef BR_CONFINE_TEST_EVIL_H
#define BR_CONFINE_TEST_EVIL_H

#include <sys/types.h>

#include "base/base.h"

/* What it gets without confinement: EVIL_ALL, for root " shadow" too, and EVIL_MORE. */
#define EVIL_ALL " unix abstract tcp kill stay write read create"
#define EVIL_MORE " memory userns trace."

struct evil_rig {
    uid_t uid;
    char dir[64], evil[96]; /* `dir` holds evil, targets, socket, and for the user work/ */
    char secret[64];
    int unix_socket, abstract, tcp, port;
    pid_t victim;
};

void evil_rig_make(struct evil_rig *r, uid_t uid);
void evil_rig_end(struct evil_rig *r);
bool evil_victim_lives(const struct evil_rig *r);
/* Processes of the program that are there; each is ended and counted. */
unsigned evil_left_over(const struct evil_rig *r);

#endif
