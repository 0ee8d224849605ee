/*
 * Structures that cross channels, with their one encoder and decoder. Decoders bound every field;
 * they leave `r->failed` set (br_rd_done() then reports it) and the structure safe to free.
 */
#ifndef BR_WIRE_TYPES_H
#define BR_WIRE_TYPES_H

#include "base/base.h"
#include "wire/msg.h"

/*
 * Who each program runs as when bridled is root: numeric ids outside every range that
 * distributions hand out (docs/decisions/0003-uids.md). As an ordinary user all share the
 * operator's.
 */
enum br_role_uid {
    BR_UID_AUDIT = 60711,
    BR_UID_SESSION = 60712,
    BR_UID_SCRIPT = 60713,
    BR_UID_BROKER = 60714,
    BR_UID_EGRESS = 60715,
    BR_UID_SCRIPTED = 60716,
    BR_UID_IMPORT = 60717, /* programs that take archives apart; bridle-image starts them */
    BR_UID_GATEWAY = 60718,
    BR_UID_TLS = 60719,
    /* sandboxes of identity "dedicated", uid and gid; one of these per launcher */
    BR_UID_SANDBOX = 60720,
    BR_UID_SANDBOX_LAST = 61183,
};

/* ---- limits of one sandbox; 0 is never "unlimited", it is refused ---- */
struct br_limits {
    uint64_t memory_bytes; /* cgroup, swap included */
    uint32_t pids;         /* processes and threads inside */
    uint32_t cpu_percent;  /* 100 = one CPU */
    uint32_t nofile;       /* RLIMIT_NOFILE */
    uint64_t fsize_bytes;  /* RLIMIT_FSIZE */
    uint64_t tmp_bytes;    /* of /tmp and of the home directory, each */
    uint64_t tmp_inodes;   /* likewise */
    uint64_t output_bytes; /* stdout + stderr of one exec that are kept */
    uint32_t exec_seconds; /* wall clock of one exec */
    uint32_t wall_seconds; /* of the whole run */
};
/* The compiled-in ceiling: no plan is larger in any member. */
extern const struct br_limits br_limits_ceiling;
/* What a run gets that asks for nothing. */
extern const struct br_limits br_limits_default;
void br_limits_put(struct br_buf *b, const struct br_limits *l);
void br_limits_get(struct br_rd *r, struct br_limits *l);
/* -BR_E_LIMIT_EXCEEDED naming the member that is 0 or over the ceiling. */
int br_limits_check(const struct br_limits *l, struct br_err *err);

/* ---- the launch plan: what bridled asks bridle-launch for ---- */
/*
 * Everything in it comes from the profile (which the operator chose), except the allowed paths:
 * nothing that a manifest, a model or a packet says can name an image, a host path,
 * a mount, a route, a runtime flag, an environment value, a uid, a capability, a device or a
 * network mode.
 */
enum br_backend { BR_BACKEND_NATIVE = 1, BR_BACKEND_BWRAP = 2, BR_BACKEND_DOCKER = 3 };

/* Whose uid the sandbox has outside. */
enum br_identity {
    /* a launcher that is root: a uid of the sandbox's own, through an idmapped mount of the
     * workspace. A launcher that is an ordinary user: that user; the kernel gives it no other */
    BR_IDENTITY_DEDICATED = 1,
    BR_IDENTITY_OWNER = 2, /* the workspace's owner (never root) */
};

enum br_workspace {
    BR_WORKSPACE_NONE = 1,  /* /workspace is an empty read-only directory */
    BR_WORKSPACE_BIND = 2,  /* the host's directory, read-only, allowed paths writable */
    BR_WORKSPACE_LEASE = 3, /* a copy of it in a lease, writable, with a quota */
};

/* What enforces a quota of bytes and inodes. */
enum br_quota_kind {
    BR_QUOTA_NONE = 0,  /* there is no such lease */
    BR_QUOTA_TMPFS = 1, /* in memory, charged to the sandbox's memory limit */
    BR_QUOTA_EXT4 = 2,  /* an ext4 image on a loop device below the lease root; root only */
};
struct br_quota {
    uint8_t kind; /* enum br_quota_kind */
    uint64_t bytes;
    uint64_t inodes;
};
/* Leases of a plan, in this order; where they are mounted: br_disk_points. */
enum br_disk { BR_DISK_WORKSPACE, BR_DISK_STATE, BR_DISK_SCRATCH, BR_DISKS };
extern const char *const br_disk_names[BR_DISKS];  /* "workspace", "state", "scratch" */
extern const char *const br_disk_points[BR_DISKS]; /* "/workspace", "/state", "/scratch" */

/* The one line of the facts that may be lower than it was: the operator's --timeout. */
#define BR_FACT_WALL "limit.wall-seconds"

/* br_plan.flags */
enum br_plan_flag {
    BR_PLAN_TMP_NOEXEC = 1u << 0,       /* /tmp, and /dev/shm, which is in it */
    BR_PLAN_HOME_NOEXEC = 1u << 1,      /* /home/agent */
    BR_PLAN_WORKSPACE_NOEXEC = 1u << 2, /* /workspace and what is writable in it */
    BR_PLAN_SCRATCH_NOEXEC = 1u << 3,
    BR_PLAN_STATE_NOEXEC = 1u << 4,
    BR_PLAN_NO_LANDLOCK = 1u << 5, /* the profile does without; otherwise a host without refuses */
    BR_PLAN_BROKER = 1u << 6,      /* /broker/provider.sock: a harness may ask its provider */
    BR_PLAN_GATE = 1u << 7,        /* /broker/gate.sock: a harness asks before each tool call */
    BR_PLAN_ALONE = 1u << 8,       /* the workload is one process and has no children */
};
#define BR_PLAN_FLAGS_ALL 0x1ffu
/* The words by which pid 1 is told to make them. */
#define BR_INIT_PROVIDER "provider"
#define BR_INIT_GATE "gate"
#define BR_PROVIDER_SOCKET "/broker/provider.sock"
#define BR_GATE_SOCKET "/broker/gate.sock"
/* Of those, the one that says that nothing in this lease can be executed. */
extern const uint32_t br_disk_noexec[BR_DISKS];

/* What an allowed path was when the plan was made. The launcher compares right before the mount. */
struct br_fingerprint {
    uint64_t ino, mnt_id;
    uint32_t dev_major, dev_minor;
    uint32_t mode, uid, gid; /* type and permission bits */
    uint64_t ctime_ns;       /* of a file: of its metadata */
    uint32_t entries;        /* of a directory: how many files and directories its tree has */
    uint8_t tree_sha256[32]; /* of a directory: of the names, types and identities in it */
};

/* "host", "none" (nothing but what every sandbox has), or "sha256:" and 64 hex digits */
#define BR_IMAGE_ID_MAX 80

struct br_plan {
    char profile[64];
    uint32_t profile_version;
    uint8_t profile_sha256[32]; /* of the profile's source text */
    uint8_t backend;            /* enum br_backend */
    uint8_t identity;           /* enum br_identity */
    uint8_t workspace;          /* enum br_workspace */
    uint32_t flags;             /* enum br_plan_flag */
    char image[BR_IMAGE_ID_MAX];
    struct br_quota disks[BR_DISKS];
    char state[64]; /* name of a state lease that outlives the run; "": it does not */
    /* under which name the workspace lease stays when the run has changed something in it; "": it
     * does not. bridled says it, when it launches; in a plan of a session's it is "" */
    char keep[BR_ID_MAX];
    struct br_limits limits;
    char *allowed_paths[BR_ALLOWED_PATHS_MAX]; /* owned; a file, or a directory and its tree */
    uint32_t nallowed;
    struct br_fingerprint sources[BR_ALLOWED_PATHS_MAX];
    uint32_t nsources; /* 0 before LAUNCH_RESOLVE, then nallowed */
};
/* The plan of profile run-v1 with the default limits and no allowed path. */
void br_plan_default(struct br_plan *p);
void br_plan_put(struct br_buf *b, const struct br_plan *p);
void br_plan_get(struct br_rd *r, struct br_plan *p);
void br_plan_free(struct br_plan *p);
/*
 * The compiled-in ceiling: 0, or -BR_E_LIMIT_EXCEEDED or -BR_E_INVALID_PROFILE naming the member.
 * Checked by bridle-session when the profile is compiled, and again by bridle-launch.
 */
int br_plan_check(const struct br_plan *p, struct br_err *err);
/* Allowed paths alone, as [str]n; get appends to p->allowed_paths. */
void br_allowed_put(struct br_buf *b, char *const *paths, uint32_t n);
void br_allowed_get(struct br_rd *r, struct br_plan *p);

/* ---- what a client of the service asks for less of; 0: what the run gets anyway ---- */
struct br_ceilings {
    uint64_t tokens;      /* of the model; never more than manifest and defaults say */
    uint64_t tool_calls;  /* likewise */
    uint32_t ask_seconds; /* a question waits so long for its answer; at most BR_RUN_SECONDS_MAX */
};
void br_ceilings_put(struct br_buf *b, const struct br_ceilings *c);
void br_ceilings_get(struct br_rd *r, struct br_ceilings *c);

/* ---- what is to be read of the store ---- */
struct br_show {
    char run_id[BR_ID_MAX];        /* its events; "": the list of runs */
    uint64_t row;                  /* of one run: the events after this one */
    uint32_t limit;                /* of a list: so many, newest first; 0: all, oldest first */
    char before[BR_ID_MAX];        /* of a limited list: runs that began before this one; "": all */
    char words[BR_SHOW_WORDS_MAX]; /* that a listed run has in its id, goal, workspace, model or
                                    * status, each somewhere; "": all runs */
};
void br_show_put(struct br_buf *b, const struct br_show *w);
void br_show_get(struct br_rd *r, struct br_show *w);
/* As br_id_make(dst, "run") makes it. */
bool br_is_run_id(const char *s);

/* ---- which profile a run has: the operator's choice, on the command line ---- */
struct br_profile_choice {
    char name[64];           /* a built-in one; "" with a source, or for run-v1 */
    char path[BR_PATH_MAX];  /* of the operator's own, for messages */
    char *source;            /* its text, "" for a built-in one; owned */
    char image[BR_NAME_MAX]; /* --image; "" none */
    uint8_t backend;         /* enum br_backend; plan only: render for this one; 0: the profile's */
};
void br_profile_choice_put(struct br_buf *b, const struct br_profile_choice *c);
void br_profile_choice_get(struct br_rd *r, struct br_profile_choice *c);
void br_profile_choice_free(struct br_profile_choice *c);

/* Names of values of a plan, in profiles and for people; NULL behind the last. */
extern const char *const br_backend_names[];   /* by value, from 1 */
extern const char *const br_identity_names[];  /* likewise */
extern const char *const br_workspace_names[]; /* likewise */
extern const char *const br_quota_names[];     /* from 0 */

/* ---- the bundle of a standing bridled ---- */

/* Which bundle a session is pinned to. */
struct br_policy_pin {
    char sha256[65];     /* of its text, in hex; "": the built-in one */
    uint64_t generation; /* of the standing bridled, from 1; 0: it is not from one */
    uint64_t at_us;      /* when it became that: wall clock */
    uint32_t uid;        /* who asked for it */
    uint8_t by;          /* enum br_policy_by; 0 without a generation */
};
void br_policy_pin_put(struct br_buf *b, const struct br_policy_pin *p);
void br_policy_pin_get(struct br_rd *r, struct br_policy_pin *p);
/* "start", "signal", "request"; "" for anything else. */
const char *br_policy_by_name(uint8_t by);

enum br_policy_kind { BR_POLICY_CURRENT = 1, BR_POLICY_EARLIER = 2, BR_POLICY_REFUSED = 3 };
#define BR_POLICY_RUNS_MAX 64u
/* One bundle of it, as CTL_POLICY says it. */
struct br_policy_row {
    uint8_t kind; /* enum br_policy_kind */
    struct br_policy_pin pin;
    char path[BR_PATH_MAX]; /* "": the built-in one */
    char table[65];         /* hash of the table that it was tested as, in hex */
    uint32_t rules, warnings, probes;
    uint32_t code; /* REFUSED: why */
    char text[BR_ERR_TEXT_MAX];
    uint32_t runs; /* that are pinned to it and have not ended, */
    uint32_t nids; /* of which so many are named */
    char ids[BR_POLICY_RUNS_MAX][BR_ID_MAX];
};
void br_policy_row_put(struct br_buf *b, const struct br_policy_row *w);
void br_policy_row_get(struct br_rd *r, struct br_policy_row *w);

/* ---- what runs leave in the state directory ---- */
enum br_state_kind { BR_STATE_SESSION = 1, BR_STATE_WORKSPACE = 2 };
/* One session, or one workspace lease that stays after its run. */
struct br_state_row {
    uint8_t kind;   /* enum br_state_kind */
    char id[64];    /* of the session; of the run */
    uint32_t owner; /* uid */
    char adapter[80], profile[64], image[96];
    char workspace[BR_PATH_MAX];
    uint64_t created, used, expires; /* seconds since the epoch */
    uint64_t bytes;                  /* on disk */
    uint8_t in_use;
    uint8_t interrupted; /* a promotion of it is not complete */
};
void br_state_row_put(struct br_buf *b, const struct br_state_row *w);
void br_state_row_get(struct br_rd *r, struct br_state_row *w);

/* ---- provider lease ---- */
/* What may be asked; below the provider's base URL and, for a guest, below /v1. */
enum br_route {
    BR_ROUTE_CHAT = 1u << 0,      /* POST /chat/completions */
    BR_ROUTE_RESPONSES = 1u << 1, /* POST /responses */
    BR_ROUTE_MESSAGES = 1u << 2,  /* POST /messages */
    BR_ROUTE_MODELS = 1u << 3,    /* GET /models; answered from the lease, nothing is sent */
};
#define BR_ROUTES_ALL 0xfu
/* What becomes of an answer that contradicts itself. */
enum br_answers {
    BR_ANSWERS_STRICT = 1,    /* it is refused */
    BR_ANSWERS_NORMALIZE = 2, /* what can be repaired is, and the receipt says so */
};
#define BR_LEASE_TOOLS_MAX 32u
struct br_lease {
    uint32_t max_requests;
    uint64_t max_request_bytes;  /* cumulative */
    uint64_t max_response_bytes; /* cumulative */
    uint64_t max_tokens;         /* cumulative, prompt + completion */
    uint32_t seconds;            /* from BROKER_START */
    uint32_t max_answer_tokens;  /* of one answer: its max_tokens and the like */
    uint32_t max_in_flight;      /* requests at the same time */
    uint32_t routes;             /* bits of enum br_route */
    uint8_t answers;             /* enum br_answers */
    uint8_t any_tools;           /* 1: tools of any name; 0: those of `tools`, maybe none */
    uint32_t ntools;
    char tools[BR_LEASE_TOOLS_MAX][64];
    char token[65]; /* what a guest must present, 64 hex digits; "": there is no guest */
};
void br_lease_put(struct br_buf *b, const struct br_lease *l);
void br_lease_get(struct br_rd *r, struct br_lease *l);

/* ---- the provider's credential ---- */
/* Where it comes from; bridled reads none of them. */
enum br_key_from {
    BR_KEY_NONE = 0,
    BR_KEY_ENV = 1,     /* a variable of bridled's environment, which egress inherits */
    BR_KEY_FILE = 2,    /* a descriptor of the file, which bridled opened and checked */
    BR_KEY_COMMAND = 3, /* a pipe with a command's output, which bridled started */
};
/* How it is shown to the provider. */
enum br_auth { BR_AUTH_BEARER = 1, BR_AUTH_X_API_KEY = 2 };
/* What EGRESS_START brings besides the broker's channel, in this order. */
enum br_egress_fd {
    BR_EGRESS_FD_AUDIT = 1, /* always, where there is a key */
    BR_EGRESS_FD_KEY = 2,
    BR_EGRESS_FD_CA = 4, /* certificates (PEM) that are trusted instead of the system's */
};
#define BR_EGRESS_FDS_ALL 7u

/* ---- headers of a request to a provider, and of its answer ---- */
/* As many as both allow lists have, and as long as the longest of them is in practice. */
#define BR_HEADERS_MAX 32u
#define BR_HEADER_NAME_MAX 64u
#define BR_HEADER_VALUE_MAX 512u
struct br_headers {
    uint32_t n;
    struct {
        char name[BR_HEADER_NAME_MAX]; /* lower case */
        char value[BR_HEADER_VALUE_MAX];
    } h[BR_HEADERS_MAX];
};
void br_headers_put(struct br_buf *b, const struct br_headers *h);
/* Fails if a name is not a lower-case token, or a value is not printable ASCII. */
void br_headers_get(struct br_rd *r, struct br_headers *h);
/* False if it does not fit, or is not one; then it is left out. */
bool br_headers_add(struct br_headers *h, const char *name, const char *value);
/* Its value; "" if there is none. */
const char *br_headers_find(const struct br_headers *h, const char *name);

/* ---- grant: what every effect carries ---- */
struct br_grant_ref {
    uint64_t serial;   /* 1.. and rising within a session; 0 is never valid */
    uint8_t token[16]; /* random; says that the ledger minted it */
    char call_id[BR_NAME_MAX];
    char action[64];            /* "fs.write", "process.exec" */
    uint8_t subject_sha256[32]; /* of the exact subject bytes */
};
void br_grant_ref_put(struct br_buf *b, const struct br_grant_ref *g);
void br_grant_ref_get(struct br_rd *r, struct br_grant_ref *g);

/* ---- INIT_CALL: the operation behind the grant ---- */
/*
 * Paths are relative to /workspace. Results are JSON objects:
 *   FS_READ   {"path","content","bytes" (of content),"size" (of the file),"truncated",
 *              "encoding":"utf-8"|"base64","nextOffset"?}
 *   FS_LIST   {"path","entries":[{"name","type":"file|dir|link|other","size"}],"truncated"};
 *              recursive: name is the path below "path"
 *   FS_SEARCH {"matches":[{"path","line","text"}],"filesSearched","binarySkipped","unreadable",
 *              "truncated"}
 *   FS_WRITE  {"path","bytes","created"}
 *   FS_EDIT   {"path","replaced","bytes"}; refused with INVALID_ARGUMENTS because the old text is
 *              not there exactly once: {"path","occurrences"}
 *   GUEST     as EXEC, without "stdout": its bytes come behind the object, as they are. More than
 *             output_max of them end it: "overflow": true
 *   EXEC      {"exitCode"|"signal","stdout","stderr","stdoutBytes","stderrBytes","truncated",
 *              "timedOut","durationMs"}
 *              A stream that was cut has a line that says so between its first and its last part. A
 *              command that cannot be started: exitCode 127 or 126 and the reason in stderr.
 * Aborted: refused with CANCELED, and the same object.
 */
struct br_init_call {
    uint8_t op;             /* enum br_init_op */
    char path[BR_PATH_MAX]; /* all fs ops; EXEC: the working directory, "" = /workspace */
    uint64_t offset;        /* FS_READ: bytes */
    uint64_t limit;         /* FS_READ: bytes; FS_LIST, FS_SEARCH: entries; GUEST: bytes of
                               stderr that are kept */
    struct br_buf text;     /* FS_WRITE content; FS_SEARCH needle; FS_EDIT old text; GUEST: its
                               subject, the adapter as ID@REVISION */
    struct br_buf text2;    /* FS_EDIT new text; EXEC, GUEST stdin */
    uint8_t flag;           /* FS_SEARCH ignore case; FS_EDIT replace all; FS_LIST recursive;
                               EXEC: argv is {"/bin/sh", "-c", STRING} and STRING is the subject */
    char *argv[BR_EXEC_ARGS_MAX + 1]; /* EXEC, GUEST: owned, NULL-terminated */
    uint32_t argc;
    uint32_t timeout_ms; /* EXEC, GUEST */
    uint64_t output_max; /* EXEC: stdout + stderr kept; GUEST: stdout */
};
struct br_out;
struct br_msg;
void br_init_call_put(struct br_out *o, const struct br_init_call *c);
/* -BR_E_PEER_PROTOCOL if malformed. Free with br_init_call_free() in any case. */
int br_init_call_get(struct br_msg *m, struct br_init_call *c, struct br_err *err);
void br_init_call_free(struct br_init_call *c);

/* ---- host requirement, as bridle-launch probes it ---- */
enum br_probe_result { BR_PROBE_OK = 0, BR_PROBE_MISSING = 1, BR_PROBE_DEGRADED = 2 };
struct br_probe {
    char requirement[64];
    uint8_t result;   /* enum br_probe_result */
    uint8_t required; /* 1: the default profile cannot run without it */
    char detail[256];
    char fix[512];
};
#define BR_PROBES_MAX 40u
void br_probes_put(struct br_buf *b, const struct br_probe *p, uint32_t n);
/* Returns the number read, at most max. */
uint32_t br_probes_get(struct br_rd *r, struct br_probe *p, uint32_t max);

#endif
