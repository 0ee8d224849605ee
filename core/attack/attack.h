/*
 * core/attack: `bridle selftest --attack`. An attack is a row of a table (rows_*.c). It is tried
 * against a sandbox as bridle-launch makes it, and then, as its positive control, where what should
 * stop it is missing: in a sandbox of bridle-launch-weak, or, where no lock of ours can be left out
 * (the kernel itself refuses), by performing the operation that the attack looks for. Only if the
 * control gets through does the refusal of the first say something.
 */
#ifndef BR_ATTACK_H
#define BR_ATTACK_H

#include <signal.h>

#include "base/base.h"
#include "sandbox/weak.h"
#include "wire/types.h"
#include "wire/wire.h"

enum attack_class {
    CLASS_FILESYSTEM,
    CLASS_PROC,
    CLASS_NAMESPACES,
    CLASS_TERMINAL,
    CLASS_SIGNALS,
    CLASS_NETWORK,
    CLASS_SOCKETS,
    CLASS_BROKER,
    CLASS_RESOURCES,
    CLASS_ARGUMENTS,
    CLASS_HANDOVER,
    CLASSES,
};
extern const char *const attack_class_names[CLASSES];

/* What came of one try. */
enum outcome {
    OUT_UNDONE,  /* it did not run to its end: nothing is known */
    OUT_BLOCKED, /* it was stopped */
    OUT_THROUGH, /* it reached what it wanted */
};

enum attack_flag {
    A_EXPECTED = 1u << 0,  /* not a boundary, and documented: getting through is no breakout */
    A_OPERATION = 1u << 1, /* control: `inside` performs the operation on the host */
    A_KILLED = 1u << 2,    /* being killed by a signal is being stopped */
    A_REFUSED = 1u << 3,   /* a refused launch is being stopped */
    A_COPY = 1u << 4,      /* with programs that belong to the sandbox's user */
    A_VICTIM = 1u << 5,    /* needs a process of the same user outside */
    A_IPC = 1u << 6,       /* needs System V objects outside */
    A_SMALL = 1u << 7,     /* with limits near which an attack ends quickly */
    A_ROOT = 1u << 8,      /* only where this program is root */
    A_MOUNT = 1u << 9,     /* with a /proc in the workspace, where only the launcher sees it */
    A_BWRAP = 1u << 10,    /* against a sandbox of bubblewrap; only where it is installed */
};

struct stage;
struct attack;
typedef enum outcome attack_fn(struct stage *s);

struct attack {
    const char *id;
    enum attack_class class;
    const char *title;
    const char *source;  /* CVE or where it was described */
    const char *success; /* what getting through would be */
    const char *inside;  /* attack of bridle-attack, and KEY=VALUE arguments, separated by spaces */
    unsigned without;    /* control: the locks that are left out (BR_WEAK_*) */
    unsigned flags;
    const char *control; /* control: what is performed instead, for people */
    unsigned base;       /* locks left out of the attack as well: the one that remains is tried */
    attack_fn *run;      /* NULL: run `inside` */
    int (*setup)(struct stage *s); /* before the launch; 0, or -1 */
};

/* The tables; each ends with an id of NULL. */
extern const struct attack attack_rows_fs[], attack_rows_proc[], attack_rows_calls[],
    attack_rows_net[], attack_rows_resources[], attack_rows_channel[], attack_rows_store[],
    attack_rows_bwrap[], attack_rows_counters[];
/* A repository below an allowed path. */
int attack_setup_git(struct stage *s);

/* ---- stage.c: one sandbox and what lies around it ---- */

#define STAGE_UID 59797u /* who owns workspaces where this program is root */

struct exec_result {
    bool answered, timed_out, truncated;
    int exit, signal; /* -1, 0: not so */
    uint64_t bytes;   /* of stdout and stderr, as bridle-init counted */
    size_t kept;      /* bytes of the result */
    char line[512];   /* the beginning of stdout */
    char text[BR_ERR_TEXT_MAX];
    uint32_t code; /* refused by bridle-init */
};

/* What the directories of stages are called; those of suites that were killed are swept. */
#define STAGE_PREFIX "bridle-selftest-"

struct stage {
    const struct attack *attack;
    bool control;
    unsigned without;
    char note[512]; /* what to tell people */
    /* files */
    char dir[96], ws[128], outside[128], secret[160], token[40];
    uid_t owner;
    /* bait */
    int tcp, udp, abstract, unix_fd, pty, leak;
    int mounts; /* the launcher's mount namespace, where that is its own; -1 */
    unsigned tcp_port, udp_port;
    char abstract_name[64], unix_path[108];
    int shm, queue, shm_key;
    pid_t victim;
    int victim_said;
    /* the launcher and its sandbox */
    pid_t launcher;
    struct br_chan launch, init;
    struct br_plan plan;
    int pidfd;
    bool ready, started, refused, stopped, verified, init_ready, result, forged, resolved;
    uint32_t code;
    uint64_t serial;
    char text[BR_ERR_TEXT_MAX];
    char *receipt;
    unsigned sandbox_uid;
    struct exec_result *answer;
};

/* Make the files and the bait, and start the launcher. -1: s->note says why. */
int stage_open(struct stage *s, const struct attack *a, bool control);
/* Launch: 0, 1 refused (s->code, s->text), -1. `ws_fd` -1: the workspace. */
int stage_launch(struct stage *s, int ws_fd);
/* LAUNCH_RESOLVE: 0 and s->plan is resolved, 1 refused, -1. */
int stage_resolve(struct stage *s, int ws_fd);
/* One INIT_CALL; `call` is completed with a valid grant. 0, or -1. */
int stage_call(struct stage *s, struct br_init_call *call, struct exec_result *out);
/* The same with what the caller makes of the grant. */
int stage_call_grant(struct stage *s, struct br_init_call *call, const struct br_grant_ref *g,
                     struct exec_result *out);
void stage_grant(struct stage *s, const struct br_init_call *call, struct br_grant_ref *g);
/* Run argv (NULL-terminated) inside. */
int stage_exec(struct stage *s, const char *const *argv, uint32_t timeout_ms,
               struct exec_result *out);
/* Run an attack of bridle-attack inside, with all facts as arguments. */
int stage_attack(struct stage *s, const char *inside, uint32_t timeout_ms, struct exec_result *out);
/* The same on the host, as the workspace's owner. */
enum outcome stage_operation(struct stage *s, const char *inside);
/* What an answer of bridle-attack says; also fills s->note. */
enum outcome stage_judge(struct stage *s, const struct exec_result *r);
/* Let pid 1 end and wait for the verified end: 0, or -1. */
int stage_end(struct stage *s);
/* Did something happen outside that must not? Fills s->note. */
bool stage_harmed(struct stage *s);
/* A process of the sandbox's user, outside. */
int stage_victim(struct stage *s);
/* Append to the plan. */
void stage_allow(struct stage *s, const char *pattern);
/* Make a file (text) or directory (NULL) in the workspace, owned by its owner. */
int stage_put(struct stage *s, const char *name, const char *text);
/* Ends and removes everything. */
void stage_close(struct stage *s);
/* Set by SIGINT and SIGTERM: waiting ends, what is there is removed, nothing new is begun. */
extern volatile sig_atomic_t stage_interrupted;
void stage_note(struct stage *s, const char *fmt, ...) BR_PRINTF(2, 3);
/* The directory of the programs. */
const char *stage_bin(void);
/* Receive until one of these is set; 0, or -1 after too long or at the end of the channel. */
int stage_await(struct stage *s, const bool *a, const bool *b, unsigned ms);

/* One row, both tries. */
enum verdict { VERDICT_BLOCKED, VERDICT_EXPECTED, VERDICT_BREAKOUT, VERDICT_INCONCLUSIVE };
extern const char *const verdict_names[];
struct verdict_row {
    const struct attack *attack;
    enum verdict verdict;
    enum outcome strong, control;
    char strong_note[512], control_note[512];
    uint64_t us;
};
void attack_try(const struct attack *a, struct verdict_row *out);

#endif
