/*
 * core/supervise, private: a bridled that stands over a state directory (`bridled --standing`). It
 * serves no run. It holds one policy bundle, compiled and tested, that new sessions take, and
 * replaces it only by another that is. standing.c listens, bundle.c reads files, reload.c tests.
 */
#ifndef BR_SUPERVISE_STANDING_H
#define BR_SUPERVISE_STANDING_H

#include <sys/types.h>

#include "base/base.h"
#include "wire/types.h"
#include "wire/wire.h"

/* In the state directory: the control socket, its name while it is made, and what one bridled
 * at a time holds locked. */
#define STANDING_SOCKET "control"
#define STANDING_SOCKET_NEW "control.new"
#define STANDING_LOCK "control.lock"

#define STANDING_CONNS_MAX 256u
/* Earlier bundles, and refused ones, that are remembered; each. */
#define STANDING_ROWS_MAX 16u

/* ---- bundle.c ---- */

/*
 * Read a bundle once, by descriptor. It must be a regular file of root's or of `owner`'s that
 * nobody else can write, in directories of which the same holds, of at most BR_POLICY_MAX bytes,
 * and stay as it is while it is read. An empty file is one line end. -BR_E_NOT_FOUND,
 * -BR_E_DENIED, -BR_E_INVALID_POLICY, -BR_E_IN_USE (it changed); `text` is then empty.
 */
int bundle_read(const char *path, uid_t owner, struct br_buf *text, struct br_err *err);
/* The same of what an operator writes: the name of a shipped bundle, or an absolute path. */
int bundle_open(const char *word, uid_t owner, struct br_buf *text, struct br_err *err);
/* policy.lua in the operator's and then the system's configuration; "" if there is none. */
int bundle_find(char path[BR_PATH_MAX], char *(*env)(const char *), struct br_err *err);
/* Both for another file of the operator's: `what` names it, `bad` is one that is not usable. */
int document_read(const char *what, enum br_code bad, size_t max, const char *path, uid_t owner,
                  struct br_buf *text, struct br_err *err);
int document_find(const char *what, enum br_code bad, const char *name, char path[BR_PATH_MAX],
                  char *(*env)(const char *), struct br_err *err);
/* SHA-256 in hex; "" of nothing, which is the built-in one. */
void policy_hash(const struct br_buf *text, char hex[65]);
/* Tests: called between reading a file and looking at it again. NULL in programs. */
extern void (*bundle_was_read)(void);

/* ---- standing.c, reload.c ---- */

struct standing;

struct conn {
    struct standing *st;
    struct br_chan chan; /* fd -1: a free place */
    uid_t uid;
    pid_t pid;
    uint64_t since_us;
    bool asked;          /* it has said what it wants */
    bool told;           /* how it ended; it may leave */
    bool waits;          /* for the reload that is under way */
    uint64_t generation; /* that it has taken; 0: none */
    char run_id[BR_ID_MAX];
};

struct candidate {
    bool on;    /* a reload is under way */
    uint8_t by; /* enum br_policy_by */
    struct br_policy_row row;
    struct br_buf text;
    pid_t pid; /* the bridled that tests it */
    int pidfd;
    struct br_chan control; /* to that */
    int session;            /* the client's end of its session */
    int timer;
    bool tested, over;
    char file[BR_NAME_MAX]; /* where the fault is */
    uint32_t line;
    int code;
    struct br_err why;
};

struct service;

struct standing {
    struct br_loop *loop;
    struct service *service; /* NULL: it has none */
    struct {                 /* what is to be replaced, while the service's settings are read */
        bool on;
        uint8_t by;
        uid_t uid;
        char word[BR_PATH_MAX];
    } preparing;
    int state_fd, lock, listener, epoll, signals; /* listener -1: there is no bundle yet */
    char state_dir[BR_PATH_MAX], program[BR_PATH_MAX];
    char asked_path[BR_PATH_MAX]; /* --policy; "": what the configuration has */
    sigset_t old_mask;
    bool beside; /* it holds no policy for others, so that another may stand here as well */
    bool draining, leave, sweeping;
    bool again;      /* a signal came while a reload was under way, */
    uid_t again_uid; /* from here */
    int failed;      /* the code of the first bundle: there is nothing to stand for */
    struct br_err why;
    struct br_policy_row current; /* generation 0: none yet */
    struct br_buf text;           /* of the current one */
    struct br_policy_row earlier[STANDING_ROWS_MAX], refused[STANDING_ROWS_MAX];
    unsigned nearlier, nrefused; /* oldest first */
    struct candidate next;
    struct conn conns[STANDING_CONNS_MAX];
};

/* Begin to stand; returns when it is over. 0 or a negative code, with what to say. */
int standing_serve(struct standing *st, struct br_err *err);
/*
 * Begin to replace the current bundle. 0: it is under way, and reload_over() will hear how it
 * ended. A negative code: nothing has changed, and it is remembered as refused. `word`: see
 * CTL_RELOAD.
 */
int reload_begin(struct standing *st, const char *word, uint8_t by, uid_t uid, struct br_err *err);
/* standing.c: the service's settings were read; 0 or the code of `why`. */
void standing_prepared(struct standing *st, int code, const struct br_err *why);
/* standing.c: it has ended; 0 or the code of `why`. */
void reload_over(struct standing *st, int code, const struct br_err *why);

#endif
