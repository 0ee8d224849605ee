/*
 * Tests only: plays bridled for a launcher that is built for tests, with a pid 1 that does what it
 * is told (test_init.c). Everything that it makes lies under one directory in /tmp.
 */
#ifndef BR_LAUNCH_TEST_RIG_H
#define BR_LAUNCH_TEST_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "wire/types.h"
#include "wire/wire.h"

/* The ordinary user of a test program; has no entry in /etc/passwd, and must not need one. Another
 * one in each program, so that they can run side by side. */
#define RIG_USER (59000u + (unsigned)getpid() % 900u)
/* Who owns workspaces when the launcher is root. */
#define RIG_OWNER 59998u

struct rig {
    uid_t uid;         /* the launcher's: 0 or RIG_USER */
    const char *weak;  /* BRIDLE_TEST_WEAK, or NULL */
    const char *fault; /* BRIDLE_TEST_FAIL, or NULL */
    bool loop;         /* BRIDLE_TEST_LOOP */
    const char *pool;  /* BRIDLE_TEST_POOL, or NULL */
    unsigned kill;     /* BRIDLE_TEST_KILL, or 0: then its death is no failure, but sets `gone` */
    bool gone;
    char dir[64], ws[96];
    pid_t pid; /* the launcher */
    struct br_chan chan;
    int init; /* this end of the init channel */
    int pidfd;
    struct br_plan plan;
    /* what the launcher said last */
    bool ready, started, refused, stopped, resolved;
    uint32_t code, mounts, status;
    uint8_t verified;
    char text[BR_ERR_TEXT_MAX], name[BR_NAME_MAX];
    char image[BR_IMAGE_ID_MAX];
    char *receipt;
    struct br_probe probes[BR_PROBES_MAX];
    uint32_t nprobes;
    bool probed, leased;
    int lease; /* of the last LAUNCH_LEASED */
};

/* A directory with a workspace in it, owned by whom it should be. */
void rig_make(struct rig *r, uid_t uid);
/* Start the launcher and wait until it is ready. */
void rig_start(struct rig *r);
/* rig_make() and rig_start(). */
void rig_open(struct rig *r, uid_t uid);
/*
 * Give the launcher a state directory, `state` below r->dir (made here unless it exists), owned by
 * its user.
 */
void rig_config(struct rig *r);
/* End the launcher by closing its channel; assert that nothing is left, remove the directory. */
void rig_close(struct rig *r);
/* Have the plan resolved: fills in r->plan.sources. False: refused; r->code and r->text say why. */
bool rig_resolve(struct rig *r, int ws_fd);
/*
 * Send the plan for `ws_fd` (-1: the workspace); wait for the answer. True: started. A plan with
 * allowed paths that has not been resolved is resolved first; if that is refused, the launcher is
 * asked to start it all the same, and must refuse again with the same code.
 */
bool rig_launch_at(struct rig *r, int ws_fd);
/* Ask for the lease of an ended run, once: its root; -1: refused. */
int rig_lease(struct rig *r, const char *run_id, unsigned uid, unsigned gid);
/* Send the plan as it is. */
bool rig_launch_resolved(struct rig *r, int ws_fd);
bool rig_launch(struct rig *r);
/* Wait for LAUNCH_STOPPED. */
void rig_wait_stopped(struct rig *r);
/* Ask pid 1; the answer is valid until the next call. NULL if it has ended. */
const char *rig_ask(struct rig *r, const char *fmt, ...) BR_PRINTF(2, 3);
/* Run a shell script inside; asserts nothing; returns its exit, *out its output. */
int rig_sh(struct rig *r, const char *script, const char **out);
/* The errno of one system call inside. */
int rig_call(struct rig *r, const char *name);
/* End pid 1 with this status and wait for the verified end. */
void rig_exit(struct rig *r, int status);
/* The uid of this launcher's sandboxes, as the last receipt has it: one of the reserved ones. */
unsigned rig_box_uid(const struct rig *r);
/* Allow one more path in the plan. */
void rig_allow(struct rig *r, const char *pattern);
/* Make a file or directory (a name that ends in '/') in the workspace, owned by its owner. */
void rig_put(struct rig *r, const char *name, const char *text);
/* Cgroups of this launcher that exist on this host. */
unsigned rig_cgroups(pid_t launcher);
/* Do processes of the launcher (its children) exist? */
unsigned rig_children(pid_t launcher);

/* Skips the test, with the reason, unless this is root. */
void rig_need_root(void);
/* Make and remove the ordinary user's place for cgroups, as a group fixture. */
int rig_delegate(void **state);
int rig_undelegate(void **state);

#endif
