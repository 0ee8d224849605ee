/*
 * core/frame: the run frame, by which a program in a sandbox (the guest of an adapter) is told what
 * to do and says what came of it: one frame on its stdin, one on its stdout. A frame is a length of
 * four bytes, big endian, and that many bytes of UTF-8 JSON, strict: no unknown key, no key twice,
 * nothing behind it. docs/frames.md says the same for people who write guests.
 *
 * bridle-session writes packets and reads results; a guest in C may use the other half. What is
 * read is hostile in either case.
 */
#ifndef BR_FRAME_H
#define BR_FRAME_H

#include <jansson.h>

#include "base/base.h"

#define BR_FRAME_PROTOCOL "bridle/run/1"
#define BR_FRAME_HEAD 4u
/* Of the JSON of a packet: prompt and instructions, each byte of which may become six. */
#define BR_FRAME_PACKET_MAX (4u * 1024 * 1024)
/* The most that `ceilings.outputBytes` says: an artifact and what is around it. */
#define BR_FRAME_OUTPUT_MAX (1024u * 1024)
/* The artifact, as JSON writes it: what a client takes as the final text. */
#define BR_FRAME_ARTIFACT_MAX (512u * 1024)
/* The most that `ceilings.traceBytes` says: diagnostics on stderr. */
#define BR_FRAME_TRACE_MAX (64u * 1024)
#define BR_FRAME_SYSTEM_MAX (64u * 1024)
#define BR_FRAME_TOOLS_MAX 32u
/* Each tool in each of its three states. */
#define BR_FRAME_RECEIPTS_MAX (3u * BR_FRAME_TOOLS_MAX)
#define BR_FRAME_COUNT_MAX 1000000u
#define BR_FRAME_NAME_MAX 64u
#define BR_FRAME_SESSION_MAX 128u
#define BR_FRAME_REVISION_MAX 128u
#define BR_FRAME_TOKENS_MAX 9007199254740991ll

/* ---- one frame ---- */

/*
 * Is this exactly one frame of at most `max` bytes of JSON? Then *json and *len are in `p`.
 * -BR_E_INVALID_FRAME: nothing, truncated, oversized, bytes behind it, a second frame.
 */
int br_frame_open(const void *p, size_t n, size_t max, const char **json, size_t *len,
                  struct br_err *err);
/* Append length and JSON; -BR_E_LIMIT_EXCEEDED if it is larger than `max` or does not fit. */
int br_frame_put(struct br_buf *out, const json_t *root, size_t max, struct br_err *err);

/* ---- what a guest is told ---- */

struct br_frame_packet {
    const char *run_id;
    const char *adapter; /* kebab-case */
    uint32_t revision;
    const char *profile;
    const char *prompt;
    size_t prompt_len;
    const char *system; /* NULL: none */
    struct {
        const char *id;
        uint32_t routes;        /* bits: 1 chat, 2 responses, 4 messages, 8 models */
        uint64_t answer_tokens; /* of one answer at most */
        bool streaming;
    } model;
    const char *socket, *token; /* of the provider */
    const char *gate;           /* socket; NULL: there is none */
    const char *tools[BR_FRAME_TOOLS_MAX];
    uint32_t ntools;
    bool resume;
    const char *session; /* id; NULL: the adapter keeps no sessions */
    bool context_files;  /* AGENTS.md and the like may be shown to the model, as data */
    uint32_t output_bytes, trace_bytes;
    const char *deadline; /* ISO 8601 */
    json_t *root;         /* of one that was read: what everything else points into */
};
/* Names of the bits of model.routes, from 1; NULL behind the last. */
extern const char *const br_frame_routes[];

int br_frame_packet_put(struct br_buf *out, const struct br_frame_packet *p, struct br_err *err);
/* Free in any case. */
int br_frame_packet_get(const void *p, size_t n, struct br_frame_packet *out, struct br_err *err);
void br_frame_packet_free(struct br_frame_packet *p);

/* ---- what a guest says ---- */

enum br_frame_artifact { BR_ARTIFACT_NONE, BR_ARTIFACT_TEXT, BR_ARTIFACT_JSON };
extern const char *const br_frame_artifacts[]; /* "none", "text", "json" */
enum br_frame_tool_status { BR_FRAME_TOOL_OK, BR_FRAME_TOOL_ERROR, BR_FRAME_TOOL_DENIED };
extern const char *const br_frame_tool_statuses[]; /* "ok", "error", "denied" */

struct br_frame_receipt {
    const char *name;
    uint8_t status; /* enum br_frame_tool_status */
    uint32_t count;
};

struct br_frame_result {
    const char *run_id;
    bool completed; /* else it says that it failed */
    const char *adapter;
    uint32_t revision;
    const char *session;         /* NULL: none */
    enum br_frame_artifact kind; /* NONE: it has none */
    const json_t *artifact;      /* the text (a JSON string), or the value */
    struct br_frame_receipt tools[BR_FRAME_RECEIPTS_MAX];
    uint32_t ntools;
    bool has_usage;
    uint64_t prompt_tokens, completion_tokens;
    const char *provider_revision; /* NULL: it says none */
    json_t *root;
};

/* What the one who started the guest knows. */
struct br_frame_expect {
    const char *run_id, *adapter;
    uint32_t revision;
    const char *session; /* NULL: it keeps none */
    const char *const *tools;
    uint32_t ntools;
    enum br_frame_artifact kind; /* what a completed one has */
    size_t artifact_bytes;       /* at most, as JSON */
    size_t output_bytes;         /* of the whole JSON */
};

int br_frame_result_put(struct br_buf *out, const struct br_frame_result *r, struct br_err *err);
/* Free in any case. `e` is compared member by member. -BR_E_INVALID_FRAME: nothing of it counts. */
int br_frame_result_get(const void *p, size_t n, const struct br_frame_expect *e,
                        struct br_frame_result *out, struct br_err *err);
void br_frame_result_free(struct br_frame_result *r);

/* ---- the gate ---- */

#define BR_FRAME_ASK_MAX (BR_TOOL_JSON_MAX + 1024u)
#define BR_FRAME_REASON_MAX 1000u

/* What a guest asks before a tool call: frames on a stream. */
struct br_frame_ask {
    const char *id, *tool;
    json_t *input; /* an object; borrowed */
    json_t *root;
};
/* How long the frame is that begins here, head included; 0: not known yet. -BR_E_INVALID_FRAME if
 * it is over `max`. */
int64_t br_frame_size(const void *p, size_t n, size_t max, struct br_err *err);
/* Free in any case. */
int br_frame_ask_get(const void *p, size_t n, const char *const *tools, uint32_t ntools,
                     struct br_frame_ask *out, struct br_err *err);
void br_frame_ask_free(struct br_frame_ask *a);
/* The answer; `reason` (may be NULL) is cut. */
int br_frame_answer_put(struct br_buf *out, const char *id, bool allow, const char *reason,
                        struct br_err *err);

#endif
