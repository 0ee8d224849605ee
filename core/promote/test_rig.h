/*
 * Support for the tests of promotion: a workspace, and a copy of it with its record, as a launcher
 * makes them, in a directory of their own.
 */
#ifndef BR_PROMOTE_TEST_RIG_H
#define BR_PROMOTE_TEST_RIG_H

#include "promote/promote.h"

struct rig {
    char dir[64], lease[80], workspace[80];
    struct br_promotion p;
};

void rig_open(struct rig *r);
void rig_close(struct rig *r);
/* A shell command in "lease" or "workspace" of the rig; it must succeed. */
void rig_sh(struct rig *r, const char *where, const char *line);
/* Copy the workspace, and record it. What the lease gets later is later than that. */
void rig_copy(struct rig *r);
/* A new comparison of what there is. */
int rig_plan(struct rig *r, struct br_err *err);
/* The change of this path; NULL. */
const struct br_change *rig_change(const struct rig *r, const char *path);
/* What a tree is: types, modes, contents and targets, as one text. Free it. */
char *rig_tree(struct rig *r, const char *where);

#endif
