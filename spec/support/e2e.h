/*
 * Support for end-to-end tests: a workspace and a state directory of their own, the real programs,
 * and a look at what is left behind. Root and ordinary users alike.
 */
#ifndef BR_SPEC_E2E_H
#define BR_SPEC_E2E_H

#include <sys/types.h>

#include "base/base.h"

struct e2e {
    char dir[64];        /* everything below is removed by e2e_close() */
    char workspace[96];  /* owned by uid 1000 when root */
    char state[96];      /* BRIDLE_STATE_DIR */
    uid_t uid;           /* who runs bridle; 0 = root */
    bool activated;      /* or tried; set it to leave the state directory as it is */
    char cgroups[16384]; /* names of cgroups of ours at the start */
};

struct e2e_result {
    int status; /* exit status, 128 + n for a signal, -1 if it had to be killed */
    struct br_buf out, err;
    uint64_t us;
};

/*
 * First thing in main(): as root, go on in a pid namespace of the test's own, so that nothing else
 * on the machine is taken for something that the test left behind, and nothing can outlive it.
 */
void e2e_isolate(void);
/* bin/ of the build, from BRIDLE_BIN. */
const char *e2e_bin(void);
/* `uid` 0: as root (or whoever runs the tests); else the programs run as that uid. */
void e2e_open(struct e2e *t, uid_t uid);
void e2e_close(struct e2e *t);
/* Write a file below t->dir ("workspace/src/a.lua", "policy.lua"); parents are made. */
void e2e_write(struct e2e *t, const char *path, const char *text);
/* The content of a file below t->dir, or NULL if there is none; free it. */
char *e2e_read(struct e2e *t, const char *path);

/*
 * Start bin/<argv[0]> in t->dir; stdout and stderr go to files. The first `run` or `exec` of a
 * state directory is preceded by the activation of run-v1 in it, without which both would be
 * refused.
 */
pid_t e2e_spawn(struct e2e *t, char *const *argv, char *const *env);
/* Wait at most `seconds`, then kill; collect the output. Free with e2e_result_free(). */
void e2e_wait(struct e2e *t, pid_t pid, unsigned seconds, struct e2e_result *r);
void e2e_result_free(struct e2e_result *r);
/* Both at once; the arguments end with NULL. */
void e2e_run(struct e2e *t, struct e2e_result *r, const char *arg0, ...) __attribute__((sentinel));

/* Fail the test unless it ended with this status and `said` (NULL: anything) is in its output. */
void e2e_expect(const struct e2e_result *r, int status, const char *said);
/* True if the text is in the output, stdout or stderr. */
bool e2e_says(const struct e2e_result *r, const char *text);
/* Fail the test unless the file below t->dir holds this text, or, for NULL, does not exist. */
void e2e_expect_file(struct e2e *t, const char *path, const char *text);

/* A process named `comm` among the descendants of `root`; nth counts from 0. 0 if none. */
pid_t e2e_find(pid_t root, const char *comm, unsigned nth);
/* The same, waiting at most `ms`. */
pid_t e2e_await(pid_t root, const char *comm, unsigned nth, unsigned ms);
/* Copy a program; whole paths. */
void e2e_copy(const char *from, const char *to);
/* Copy the programs to a bin directory below t->dir, whose path `bin` receives; `replaced` (may be
 * NULL) names the one that `by`, a program of the tests, takes the place of. Set BRIDLE_BIN to use
 * it. */
void e2e_copy_bin(struct e2e *t, const char *replaced, const char *by, char bin[128]);
/* Fail the test if a program of this build is still running, or if a cgroup was left behind. */
void e2e_expect_clean(struct e2e *t);

#endif
