/*
 * core/confine, private: what happens in the new process.
 */
#ifndef BR_CONFINE_PRIV_H
#define BR_CONFINE_PRIV_H

#include "confine/confine.h"

/* What goes from the namespace to the caller, at most twice; the first one counts. */
struct br_confine_report {
    int32_t error;  /* an errno, if it could not be confined */
    int32_t status; /* else of waitpid(2) */
    char step[56];  /* what could not be done */
};

/* ---- inside.c ---- */

/* pid 1 of the namespaces. `go` is readable when the caller has written the id maps. */
_Noreturn void br_confine_inside(const struct br_confine *c, int go, int report, bool users);
/* A trusted program without namespaces. */
_Noreturn void br_confine_group(const struct br_confine *c, int report);

/* ---- locks.c: what the program itself cannot take off. The step that failed, or NULL ---- */

const char *br_confine_landlock(const struct br_confine *c);
/* Before it becomes somebody: what no capability can come back from. */
void br_confine_bound(bool read_all);
const char *br_confine_capabilities(bool read_all);
const char *br_confine_filter(bool may_fork);

#endif
