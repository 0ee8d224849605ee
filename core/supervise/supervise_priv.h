/*
 * core/supervise, private: bridled starts every other program, introduces the ones that may talk to
 * each other, and ends all of them. It parses nothing but channel messages, keeps no secret, and
 * takes a decision only about life and death: the first failure of any program fails the run, and a
 * run is over only when the sandbox is verified gone and the record is closed.
 */
#ifndef BR_SUPERVISE_PRIV_H
#define BR_SUPERVISE_PRIV_H

#include "base/base.h"
#include "wire/adapter.h"
#include "wire/types.h"
#include "wire/wire.h"

enum program_id {
    P_AUDIT,
    P_SESSION,
    P_POLICY,
    P_ADAPTER,
    P_CONFIG,
    P_BROKER,
    P_EGRESS,
    P_SCRIPTED,
    P_LAUNCH,
    P_PROMOTE,
    P_COUNT
};

struct supervisor;

struct program {
    enum program_id id;
    struct supervisor *sup;
    pid_t pid; /* 0: not running */
    int pidfd;
    struct br_chan chan;
    bool ready;    /* it said so */
    bool expected; /* its end is not a failure any more */
    bool ended;
    int status; /* from waitpid */
};

/* What the client asked for; every member is owned. */
struct request {
    enum br_run_mode mode;
    char workspace[BR_PATH_MAX], manifest_path[BR_PATH_MAX], policy_path[BR_PATH_MAX];
    char config_path[BR_PATH_MAX], scenario_path[BR_PATH_MAX];
    char model[BR_NAME_MAX];
    bool manifest_in_workspace, has_terminal;
    uint32_t wall_seconds;
    struct br_buf manifest, policy, config, scenario, goal;
    uint8_t policy_from;      /* enum br_policy_from */
    struct br_policy_pin pin; /* which text `policy` is; take.c */
    struct br_profile_choice choice;
    char *argv[BR_EXEC_ARGS_MAX + 1];
    uint32_t argc;
    char adapter[BR_ADAPTER_REF_MAX]; /* ID@REVISION; "": Bridle's own agent */
    char resume[BR_ID_MAX];           /* a session of it; "": a new one */
    struct br_buf schema;             /* JSON Schema of what it gives back; empty: none */
    char run_id[BR_ID_MAX];           /* that the run is to have; "": make one */
    struct br_ceilings ceilings;
    char root[BR_PATH_MAX]; /* the workspace lies below it; "": anywhere */
};

#define KEY_WORDS_MAX 16u
/* Where the model is; filled by provider.c. */
struct provider {
    char model[BR_NAME_MAX];    /* "provider/model", as shown */
    char base_url[BR_PATH_MAX]; /* "": egress reads OPENAI_BASE_URL, or has its own default */
    char key_env[BR_NAME_MAX];  /* the variable that egress reads; "" for none */
    uint8_t key_from;           /* enum br_key_from */
    char key_name[BR_NAME_MAX]; /* the operator's name of it, or the variable's */
    char key_file[BR_PATH_MAX];
    char key_command[KEY_WORDS_MAX][BR_NAME_MAX]; /* words; nkey_command of them */
    uint32_t nkey_command, key_command_s;
    char ca_file[BR_PATH_MAX], proxy[BR_PATH_MAX]; /* "" none */
    uint8_t auth;                                  /* enum br_auth */
    uint32_t routes;                               /* bits of enum br_route */
    uint8_t answers;                               /* enum br_answers */
    uint32_t connect_s, first_byte_s, idle_s, total_s;
    bool scripted, streaming;
};

/* A command that says a key; key.c. */
struct key_command {
    pid_t pid; /* 0: none was started */
    int pidfd, status;
    bool ended;
};

/* The image that bridle.lua gives to a profile. */
struct profile_image {
    char profile[64], image[BR_NAME_MAX];
};
#define PROFILE_IMAGES_MAX 16u

enum sandbox_state {
    SANDBOX_NONE,
    SANDBOX_ASKED,
    SANDBOX_UP,
    SANDBOX_GONE,
    SANDBOX_UNVERIFIED,
};

struct supervisor {
    struct br_loop *loop;
    struct br_chan control;
    struct program programs[P_COUNT];
    int bindir; /* where the programs are */
    bool kick;

    /* control */
    bool asked;
    enum br_msg_type verb;
    struct request req;
    struct br_chan standing; /* to the standing bridled, as long as this run lasts; take.c */
    bool taken;              /* it has said what there is to take, or why there is nothing */
    int standing_code;       /* 0, or a negative code with: */
    struct br_err standing_err;
    uint32_t standing_exit;
    char named[64]; /* activations: the profile, or ""; state: an id */
    struct br_show show;
    uint8_t state_what; /* enum br_state_verb */
    bool control_gone;

    /* the first failure wins */
    int fail_code;
    struct br_err fail_err;

    /* run */
    char run_id[BR_ID_MAX];
    uint64_t started_us;
    int workspace_fd;
    int state_fd;                /* the state directory; ours, no program's */
    int store_fd;                /* `audit` in it: the record, owned by bridle-audit's uid */
    char state_dir[BR_PATH_MAX]; /* the path of state_fd, for messages */
    struct provider provider;
    struct key_command key_command;
    struct br_harness harness; /* of req.adapter; terms.ref "" as long as none was found */
    struct {
        char adapter[BR_ADAPTER_REF_MAX], profile[64];
    } declared;   /* by the manifest; "": nothing */
    bool adapted; /* the script has said what the adapter is */
    struct profile_image images[PROFILE_IMAGES_MAX];
    uint32_t nimages;
    bool configured;
    int config_code; /* of the config script's answer */
    struct br_err config_err;
    struct br_buf config_reply;
    bool session_done, canceled;
    struct br_err cancel; /* why; no code: nobody has said */
    int session_code, session_exit;
    char session_text[BR_ERR_TEXT_MAX];
    bool audit_closed;
    int audit_code;
    char audit_text[BR_ERR_TEXT_MAX], audit_status[32];

    /* sandbox */
    enum sandbox_state sandbox;
    bool sandbox_over;    /* GONE or UNVERIFIED, or never started */
    int init_session_end; /* kept until the sandbox is up */
    int sandbox_pidfd;
    uint32_t sandbox_status;
    uint64_t sandbox_ms;
    char sandbox_detail[BR_NAME_MAX];

    int session_lock;      /* the harness's session is this run's; sessions.c */
    bool keeping;          /* the workspace lease of this run may stay; kept.c */
    int kept_lock;         /* its record, locked as long as this program lives */
    uint64_t keep_seconds; /* how long; 0: the default */

    struct promoting *promoting; /* mode promote; promote.c */

    /* activate, plan */
    struct br_buf facts; /* of the host, as the launcher said when it resolved the plan */
    char activated[64];  /* the profile's name, likewise */
    bool only_resolve;   /* what is under way is SUP_RESOLVE */

    /* doctor */
    struct br_probe probes[BR_PROBES_MAX];
    uint32_t nprobes;
    bool probed;
};

/* ---- programs.c ---- */

const char *program_name(enum program_id id);
/* Fork and exec; the supervision channel serves the role's rules. */
int program_start(struct supervisor *s, enum program_id id, struct br_err *err);
/* The uid that a program runs as: its role's, or the caller's when not root. */
uid_t program_uid(enum program_id id);
/* "pid:start-time:boot-id" of a running program; sweeps tell by it who is alive. */
int program_owner(const struct program *p, char dst[128], struct br_err *err);
/* Close its channel, give it grace_us to end by itself, then kill it, and reap it. */
void program_stop(struct supervisor *s, enum program_id id, uint64_t grace_us);
bool program_running(const struct supervisor *s, enum program_id id);

/* ---- main.c ---- */

void sup_fail(struct supervisor *s, int code, const char *fmt, ...) BR_PRINTF(3, 4);
/* Serve everything until *done; the failure's code, or -BR_E_TIMEOUT after timeout_us. */
int sup_wait(struct supervisor *s, const bool *done, uint64_t timeout_us, bool even_if_failed);
/* The same for something that only this program can do: -BR_E_PROGRAM_DIED once it has ended. */
int sup_wait_of(struct supervisor *s, const struct program *p, const bool *done,
                uint64_t timeout_us, bool even_if_failed);
/* Tell the client that the verb is over. */
void sup_end(struct supervisor *s, int code, int exit_code, const char *text);

/* ---- roles.c: what each program may say to the supervisor ---- */

const struct br_msg_rule *role_rules(enum program_id id, unsigned *n);
/* The launcher has ended: end its sandbox, if there is one, and tell the session. */
void sandbox_lost(struct supervisor *s);

/* ---- workspace.c ---- */

int workspace_open(struct supervisor *s, struct br_err *err);
/* For a run that observes: nothing, which is an empty directory of the state. */
int workspace_none(struct supervisor *s, struct br_err *err);
/* The state directory alone; with `make` false, one that is not there stays away (state_fd -1). */
int state_open(struct supervisor *s, bool make, struct br_err *err);
/* Open (and make) the state directory and in it that of the audit store; refuses one inside the
 * workspace. */
int store_open(struct supervisor *s, struct br_err *err);
/* Writable paths of a run without a manifest: the workspace's visible top-level entries. */
uint32_t workspace_defaults(struct supervisor *s, char *out[BR_ALLOWED_PATHS_MAX]);

/* ---- activation.c ---- */

/* -BR_E_PEER_PROTOCOL if the plan is not of the profile that the operator chose. */
int activation_text(const struct supervisor *s, const struct br_plan *plan, struct br_err *err);
/* -BR_E_REQUIREMENT_MISSING if the plan's profile is not activated, or naming what has changed
 * since. */
int activation_check(const struct supervisor *s, const struct br_plan *plan,
                     const struct br_buf *facts, struct br_err *err);
/* Keep s->facts as the evidence for s->activated. */
int activation_store(const struct supervisor *s, struct br_err *err);
/* An empty workspace to try a profile in, and its end. */
int activation_workspace(struct supervisor *s, struct br_err *err);
void activation_workspace_end(struct supervisor *s);
void activations_verb(struct supervisor *s);

/* ---- take.c: what a standing bridled has ---- */

/* Where one stands over the state directory, its bundle takes the place of one that nobody named
 * for this run. In any case, fill req.pin. */
int policy_take(struct supervisor *s, struct br_err *err);
/* CTL_RELOAD, CTL_POLICIES: pass it on, and what comes back. */
void standing_verb(struct supervisor *s);

/* ---- account.c ---- */

/* Make the page of this run's account; a descriptor of the caller's, or -BR_E_STORE_FAILED. Audit,
 * which must run already, removes it with the end of the record. */
int account_open(const struct supervisor *s, struct br_err *err);

/* ---- leases.c, state.c ---- */

void leases_verb(struct supervisor *s);
void state_verb(struct supervisor *s);

/* ---- promote.c ---- */

/* Find the run, its kept workspace and the workspace that it is to go to. */
int promote_open(struct supervisor *s, struct br_err *err);
/* Mount and compare; the client is told. *over: there is nothing to ask about. Only then, or after
 * a failure, promote_end() has to follow at once. */
int promote_compare(struct supervisor *s, bool *over, struct br_err *err);
/* SUP_PROMOTE */
int promote_go(struct supervisor *s, struct br_err *err);
/* LAUNCH_LEASED, LAUNCH_REFUSED; -1 if nobody waits for it. */
int promote_leased(struct supervisor *s, int mount);
int promote_lease_refused(struct supervisor *s, int code, const char *text);
/* What was begun comes to its end. */
void promote_settle(struct supervisor *s);
/* End its programs; remove what was promoted. */
void promote_end(struct supervisor *s);
/* Who bridle-promote runs as. */
uid_t promote_uid(const struct supervisor *s, gid_t *gid);
#define PROMOTE_RULES 3u
extern const struct br_msg_rule promote_rules[PROMOTE_RULES];

/* ---- kept.c ---- */

/* Before the launch of a run whose workspace lease may stay: record whose it is, and name it. */
int kept_begin(struct supervisor *s, struct br_plan *plan, struct br_err *err);
/* After the end of the sandbox: it is there, or the record goes too. */
void kept_end(struct supervisor *s);
/* Remove those whose retention is over, and records of nothing. */
void kept_sweep(struct supervisor *s);

/* ---- provider.c ---- */

/* Names of images become ids: that of --image, which must be there, and those of bridle.lua. */
int images_resolve(struct supervisor *s, struct br_err *err);
/* Of SCRIPT_CONFIGURED, the list of providers: each model that one names; "" for one that names
 * none, and takes any. */
typedef void provider_model_fn(void *ctx, const char *provider, const char *model);
void provider_models(struct br_rd *r, provider_model_fn *fn, void *ctx);
/* Which provider and model this run uses: from bridle.lua, the environment, or scripted. */
int provider_choose(struct supervisor *s, struct br_err *err);
/* After harness_choose(): -BR_E_INVALID_CONFIG if the provider speaks no dialect of the run's. */
int provider_speaks(const struct supervisor *s, struct br_err *err);
/* Start broker, egress and, where needed, the scripted provider. Takes both descriptors. */
int provider_start(struct supervisor *s, int session_fd, int audit_fd, struct br_err *err);

/* ---- key.c: the credential, which passes through here as a descriptor ---- */

/*
 * The descriptor from which egress reads the key: of the file, whose owner and mode are checked, or
 * of the output of the command, which is started. -1 in *fd if it comes another way. 0, or
 * -BR_E_INVALID_CONFIG naming what is wrong.
 */
int key_open(struct supervisor *s, int *fd, struct br_err *err);
/* The certificates of `ca_file`; -1 in *fd if there is none. */
int key_open_ca(struct supervisor *s, int *fd, struct br_err *err);
/* Wait until the command has ended well; it is killed when its time is up. */
int key_wait(struct supervisor *s, struct br_err *err);
/* The run is over, whatever the command does. */
void key_end(struct supervisor *s);

/* ---- harness.c: a run of an adapter ---- */

/* The end of SCRIPT_CONFIGURED: the adapters that the operator allows. */
void harness_read_terms(struct supervisor *s, struct br_rd *r);
/*
 * Fill s->harness: the terms of bridle.lua, which must name the pair of adapter and profile, and
 * what its adapter.lua says. Nothing if the run is not one of an adapter.
 */
int harness_choose(struct supervisor *s, struct br_err *err);
/* The pair that the manifest declares becomes that of the run, unless the operator named one. */
int harness_declared(struct supervisor *s, struct br_err *err);
/* Its image, unless --image names another: a name becomes an id. -BR_E_REQUIREMENT_MISSING if there
 * is none. */
int harness_image(struct supervisor *s, struct br_err *err);
/* What its guest may ask of the provider. */
void harness_lease(const struct supervisor *s, struct br_lease *lease);

/* ---- run.c, read.c ---- */

void run_verb(struct supervisor *s);
void sweep_verb(struct supervisor *s);
void show_verb(struct supervisor *s);
void doctor_verb(struct supervisor *s);
/* Let the running launcher try what it can do; s->probes. */
int launcher_probe(struct supervisor *s, struct br_err *err);
/* Where images and leases are, if there is a state directory: the launcher cannot know, its
 * environment is empty. */
int launcher_configure(struct supervisor *s, struct br_err *err);
/* Start bridle-audit (mode 0 record, 1 read, 2 recover); peers are -1 where there is none, and
 * are taken over. Waits until the store is open. */
int audit_start(struct supervisor *s, uint8_t mode, int session_fd, int client_fd, int egress_fd,
                struct br_err *err);

#endif
