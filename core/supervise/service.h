/*
 * core/supervise, private: the service (`bridled --service`). It is a standing bridled that also
 * has listeners and a bridle-gateway on them. It parses nothing that a client says: the gateway
 * does, and asks for what it wants with GATE_*. Each session's run is a `bridled --private` of its
 * own, whose two descriptors of CTL_STARTED go to the gateway.
 *
 * service.c: life. service_load.c: settings. service_listen.c: sockets. service_notify.c: systemd.
 * service_kid.c: programs. service_gate.c: what the gateway asks. service_check.c: workspace and
 * task. service_run.c: runs and readings.
 */
#ifndef BR_SUPERVISE_SERVICE_H
#define BR_SUPERVISE_SERVICE_H

#include "supervise/standing.h"
#include "wire/service.h"

#define SERVICE_MODELS_MAX 128u
/* Sessions that wait for their prompt, or run, at one time: what one bridled remembers. */
#define SERVICE_SESSIONS_MAX 4096u
/* Bytes of the manifests that they name, all together. */
#define SERVICE_MANIFESTS_MAX (64u * 1024 * 1024)
/* Readings of the store at one time, and those that may wait in line. */
#define SERVICE_READERS_MAX 32u
#define SERVICE_READS_MAX 256u
/* Manifests that are checked at one time, and what one may take. */
#define SERVICE_TASKS_MAX 4u
#define SERVICE_TASK_US (5u * 1000000u)
/* A gateway that does not take what it is told for so long has broken. */
#define SERVICE_SEND_SECONDS 5

/* The operator's words on the command line; "" and 0: none. */
struct service_args {
    char config[BR_PATH_MAX], root[BR_PATH_MAX], scenario[BR_PATH_MAX], policy[BR_PATH_MAX];
    char model[BR_NAME_MAX];
    struct br_listener listen[BR_LISTENERS_MAX];
    unsigned nlisten;
    bool beside;
};
/* --beside: another bridled may stand over the same state directory; runs are told their policy.
 * --config FILE --root DIR --scenario FILE --policy FILE --model M --listen ADDR..., as many as
 * there are. 0, or -BR_E_USAGE and a sentence. */
int service_args_read(struct service_args *a, int argc, char **argv, struct br_err *err);

/* ---- service_load.c ---- */

struct service;

/* What is re-read as one, and taken as one or not at all. */
struct service_settings {
    struct br_service_config c; /* complete: with root, uids and listeners */
    char config_path[BR_PATH_MAX], scenario_path[BR_PATH_MAX];
    struct br_buf config, scenario;
    char default_model[BR_NAME_MAX];
    char *models[SERVICE_MODELS_MAX];
    unsigned nmodels;
    char
        wanted[BR_NAME_MAX]; /* the default model, until it is known to be one; "": none is named */
    bool wanted_known;       /* a provider of bridle.lua takes it */
    char providers[512];     /* of bridle.lua, for people: "'a', 'b'" */
    struct br_token tokens[BR_TOKENS_MAX];
    unsigned ntokens;
    struct br_buf cert, key, ca; /* PEM; wiped */
    int root_fd;                 /* c.s.root is its real path */
    bool answered;               /* bridle-script has said what is in it, */
    struct br_err why;           /* or what is wrong */
};
void settings_free(struct service_settings **s);
/* All of STATE/tokens; none if there is no such file. -BR_E_INVALID_CONFIG. */
int tokens_read(int state_fd, const char *state_dir, struct br_token *t, unsigned *n,
                struct br_err *err);
/* Which uids the names of /etc/passwd have. */
int users_resolve(const char *passwd, struct br_service_config *c, struct br_err *err);
/* What a refusal means for the service, where it does not say so: nothing was started, or nothing
 * has changed. */
void service_outcome(const struct service *sv, struct br_err *err);
/* May these be listened at? Of what is beyond loopback: TLS or plaintext, and who may come. */
int listeners_check(const struct br_service *s, unsigned ntokens, struct br_err *err);

/* ---- service_listen.c ---- */

struct listening {
    int fd;         /* -1: none */
    bool activated; /* systemd's */
    char path[BR_NAME_MAX];
    uint64_t dev, ino; /* of the socket file that was made here */
};
/*
 * The sockets that systemd passed (sd_listen_fds(3)): `first`.. are looked at and become listeners.
 * Where `want` has listeners, each must be one of them. -BR_E_INVALID_CONFIG.
 */
int listeners_adopt(struct br_service *want, unsigned nfds, const char *names, int first,
                    struct listening l[BR_LISTENERS_MAX], struct br_err *err);
/* Open those of `s`, whose ports become the real ones. Nothing stays open after a failure. */
int listeners_open(struct br_service *s, struct listening l[BR_LISTENERS_MAX], struct br_err *err);
/* Close them; remove the files that were made, unless somebody replaced them. */
void listeners_close(struct listening l[BR_LISTENERS_MAX]);
/* ws://127.0.0.1:8765/acp, wss://[::1]:8443/acp, unix:/run/bridle/service.sock */
void listener_url(const struct br_listener *l, char *dst, size_t cap);

/* ---- service_notify.c ---- */

/* Read NOTIFY_SOCKET, WATCHDOG_USEC, LISTEN_* once, and take them from the environment. */
struct notify {
    char address[108]; /* of the socket; "": nobody wants to know */
    uint64_t watchdog_us;
    unsigned nfds; /* passed sockets, from descriptor 3 on */
    char names[1024];
};
void notify_init(struct notify *n);
/* Lines of sd_notify(3). Failures are not worth more than a warning. */
void notify_send(const struct notify *n, const char *fmt, ...) BR_PRINTF(2, 3);

/* ---- service_kid.c: a program that the service started ---- */

struct kid;
typedef void kid_ended_fn(struct kid *k, int status);
struct kid_ear {
    struct kid *kid;
    bool end; /* of the process; else a message */
};
struct kid {
    struct service *sv;
    const char *name;
    pid_t pid; /* 0: it does not run */
    int pidfd;
    struct br_chan chan;
    struct kid_ear ears[2];
    kid_ended_fn *ended; /* may free it */
    bool mute;           /* its channel broke, and it was killed for that */
};
/* A role of Bridle: its uid, no environment, dies with this process. */
int kid_start_role(struct service *sv, struct kid *k, const char *binary, uid_t uid,
                   const struct br_msg_rule *rules, unsigned nrules, kid_ended_fn *ended,
                   struct br_err *err);
/* A `bridled --private`, with this program's environment; it ends by itself when it is let go of.
 */
int kid_start_private(struct service *sv, struct kid *k, const struct br_msg_rule *rules,
                      unsigned nrules, kid_ended_fn *ended, struct br_err *err);
void kid_kill(struct kid *k);
/* Say nothing more to it; a private bridled then ends its run at once. */
void kid_hang_up(struct kid *k);
/* End it now and forget it; `ended` is not called. */
void kid_discard(struct kid *k);
/* Hang up and forget it: it ends by itself, and is an orphan then. */
void kid_release(struct kid *k);
int kids_watch(struct service *sv, struct br_err *err);
/* Children that are nobody's any more are reaped; true as long as there are others that live. */
bool orphans_reap(struct service *sv);
void orphans_kill(struct service *sv);

/* ---- service_run.c ---- */

enum run_state { RUN_CHECKING, RUN_CHECKED, RUN_WAITING, RUN_RUNNING, RUN_SWEEPING, RUN_ENDING };
struct run {
    struct run *next;
    struct service *sv;
    enum run_state state;
    char id[BR_ID_MAX];
    char model[BR_NAME_MAX]; /* "": the default one */
    char *workspace, *root, *manifest_path;
    struct br_buf manifest, content;
    size_t counted; /* of manifest, in manifest_bytes */
    struct br_ceilings ceilings;
    bool resolver;
    bool ended; /* CTL_ENDED has come */
    bool hung_up;
    struct br_err cause; /* of its cancellation; the first counts */
    bool told;           /* the gateway knows that it is over */
    bool swept;          /* the sweep that is under way is for it, too */
    uint32_t code, exit_code;
    char text[BR_ERR_TEXT_MAX];
    uint64_t since_us; /* of its state */
    struct kid kid;
    /* while its manifest is checked */
    char task_id[BR_NAME_MAX];
    uint64_t check_id;
};
struct run *run_find(struct service *sv, const char *id);
/* A new one in the list; NULL without memory. */
struct run *run_new(struct service *sv);
void run_free(struct run *r);
/* GATE_RUN: now, or when it is its turn. */
void run_queue(struct run *r);
/* Start those whose turn it is. */
void runs_advance(struct service *sv);
/* `now`: without waiting for anything. One that waits is over at once. `why` is for its record. */
void run_cancel(struct run *r, bool now, enum br_code code, const char *why);
void runs_cancel(struct service *sv, bool now, const char *why);
unsigned runs_live(const struct service *sv);
/* The deadlines of runs that end or are swept. */
void runs_tick(struct service *sv);
/* GATE_READ. */
void read_queue(struct service *sv, uint64_t id, const struct br_show *w);
void read_refuse(struct service *sv, uint64_t id, enum br_code code, const char *why);
void reads_drop(struct service *sv);

/* ---- service_check.c ---- */

/* GATE_CHECK; the answer may come later. */
void check_begin(struct service *sv, uint64_t id, const char *workspace, const char *task,
                 const char *model);
void checks_advance(struct service *sv);
/* Open `path`, as a client names it, below the root: a descriptor of the caller's, and its real
 * path. -BR_E_INVALID_WORKSPACE. */
int workspace_below(const struct service_settings *s, const char *path, char real[BR_PATH_MAX],
                    struct br_err *err);
/* Read WORKSPACE/tasks/ID.yaml. -BR_E_INVALID_MANIFEST, -BR_E_NOT_FOUND. */
int task_read(int workspace, const char *task, struct br_buf *text, struct br_err *err);

/* ---- service_gate.c ---- */

int gate_start(struct service *sv, struct br_err *err);
/* Settings have changed. */
void gate_reload(struct service *sv);
void gate_drain(struct service *sv, uint32_t seconds);
bool gate_send(struct service *sv, enum br_msg_type type, uint64_t id, const struct br_out *o);
void gate_ended(struct run *r);
void gate_checked(struct service *sv, uint64_t id, int code, const struct br_err *why,
                  const struct run *r);
/* What TLS_START and TLS_RELOAD begin with. */
void put_certificates(struct br_out *o, const struct service_settings *s);
bool has_tls(const struct br_service *s);
/* End gateway, TLS and egress. */
void gate_stop(struct service *sv);

/* ---- service.c ---- */

struct service {
    struct standing *st;
    struct br_loop *loop;
    struct service_args args;
    struct notify notify;
    int epoll, bindir;
    struct service_settings *now, *next; /* next: while it is read */
    struct kid config, tls_test;         /* read it */
    int config_timer;
    struct listening sockets[BR_LISTENERS_MAX];
    bool listening, announced;
    struct kid gateway, tls, egress, sweeper;
    bool gate_ready, tls_ready;
    uint64_t gate_since_us, backoff_us;
    int restart_timer, tick_timer, watchdog_timer;
    bool draining, hurried; /* the second signal */
    uint64_t drain_until_us, leave_by_us, gate_until_us, tick_due_us;
    struct run *runs; /* oldest first */
    unsigned nruns, ntasks, nreaders;
    size_t manifest_bytes;
    struct reading *readings;
    unsigned nreadings;
    bool sweep_wanted; /* at the start, and after a run's bridled died */
    bool holding;      /* no run that waits is started now */
};

/* standing.c calls these. */
int service_open(struct service *sv, struct standing *st, struct br_err *err);
/* Read everything again; standing_prepared() hears how it ended, unless this fails. */
int service_prepare(struct service *sv, struct br_err *err);
/* What was read counts from now on, or (commit false) is forgotten. */
int service_settle(struct service *sv, bool commit, struct br_err *err);
void service_signal(struct service *sv);
void service_close(struct service *sv);
bool service_is_own(const struct service *sv, pid_t pid);

void service_tick(struct service *sv, uint64_t us);
/* The gateway, or what it needs, has ended. */
void service_gate_died(struct service *sv);
/* Nothing runs any more, or it is time. */
void service_check_end(struct service *sv);
/* It goes down, and no time is left for what runs. */
bool service_is_over(const struct service *sv);

#endif
