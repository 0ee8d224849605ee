/*
 * Every limit of the product, named once, with the reason for its value. Each has a test at N and
 * at N + 1. A limit that only one folder knows may live in that folder's private header instead.
 */
#ifndef BR_LIMITS_H
#define BR_LIMITS_H

/* wire: SEQPACKET passes 128 KiB but not 256 KiB; half of that leaves room for the kernel's own
 * accounting and keeps one message in a few pages. Larger bodies travel as sealed memfds. */
#define BR_MSG_MAX (64u * 1024)
#define BR_MSG_FDS_MAX 8u
/* A blob of at most this many bytes travels inside the message. */
#define BR_BLOB_INLINE_MAX (32u * 1024)
/* The largest body of any kind that crosses a channel. */
#define BR_BLOB_MAX (16u * 1024 * 1024)

/* Events in one APPEND: those that belong together are a few; this bounds what one message brings.
 */
#define BR_APPEND_MAX 32u

/* names and paths */
#define BR_NAME_MAX 256u
#define BR_PATH_MAX 4096u
#define BR_ERR_TEXT_MAX 1024u

/* documents written by people */
#define BR_MANIFEST_MAX (256u * 1024)
#define BR_POLICY_MAX (1024u * 1024)
#define BR_CONFIG_MAX (256u * 1024)
#define BR_GOAL_MAX (512u * 1024)
/* A profile always travels inside of a message, whose descriptors are taken by channels. */
#define BR_PROFILE_MAX (16u * 1024)
/* What one compiles to: its launch object, and one for each profile that it offers. */
#define BR_LAUNCH_JSON_MAX (256u * 1024)

/* JSON, checked by a scan before any parser sees it (jansson's own depth limit is 2048) */
#define BR_JSON_DEPTH_MAX 64u
#define BR_JSON_NODES_MAX 10000u
#define BR_TOOL_JSON_MAX (256u * 1024)

/* decision table */
#define BR_TABLE_MAX (4u * 1024 * 1024)
#define BR_RULES_MAX 10000u
#define BR_PATTERN_MAX 1024u
#define BR_SUBJECT_MAX (64u * 1024)
/* Simple commands of one request whose rules `bridle policy why` explains one by one. */
#define BR_POLICY_TRACE_MAX 64u

/* agent loop; a manifest can only lower these */
#define BR_STEPS_MAX 200u
#define BR_TOOL_CALLS_MAX 1000u
#define BR_TOOL_CALLS_PER_TURN_MAX 128u
#define BR_MODEL_TOKENS_MAX 10000000u
#define BR_RUN_SECONDS_MAX 86400u
#define BR_ASK_SECONDS 120u

/* sandbox tool results, in bytes: what a model can use in one turn, and no more */
#define BR_TOOL_RESULT_MAX (128u * 1024)
#define BR_EXEC_OUTPUT_MAX (64u * 1024)
#define BR_EXEC_ARGS_MAX 256u
/* What a guest may write to stdout: one run frame (core/frame says how large that is), and the
 * beginning of what is too much. */
#define BR_GUEST_OUTPUT_MAX (1024u * 1024 + 16)

/* allowed_paths of one manifest: each becomes a mount */
#define BR_ALLOWED_PATHS_MAX 64u

/* Words that a listing of runs is narrowed by, with their NUL. */
#define BR_SHOW_WORDS_MAX 257u

/* A JSON Schema of 'bridle observe': it is told to the model, with the instructions. */
#define BR_SCHEMA_MAX (32u * 1024)

/* one stored event, after redaction */
#define BR_EVENT_MAX (1024u * 1024)

#endif
