/*
 * core/scripted, private: the scenario, the request parser and the answers of the scripted
 * provider. docs/scenarios.md describes the format for people.
 */
#ifndef BR_SCRIPTED_PRIV_H
#define BR_SCRIPTED_PRIV_H

#include <jansson.h>

#include "base/base.h"

#define BR_SCENARIO_MAX (256u * 1024)
#define BR_SCENARIO_TURNS_MAX 200u
#define BR_SCENARIO_WORDS_MAX 16u /* alternatives of one condition */
#define BR_SCENARIO_DELAY_MAX_MS 60000u
/* One request: a conversation with its tools. */
#define BR_SCRIPTED_BODY_MAX BR_BLOB_MAX
#define BR_SCRIPTED_NODES_MAX 500000u
#define BR_HTTP_HEAD_MAX (16u * 1024)
#define BR_HTTP_FIELDS_MAX 64u

/* ---- scenario ---- */

enum br_fault {
    BR_FAULT_NONE = 0,
    BR_FAULT_STATUS,        /* an HTTP error with a body */
    BR_FAULT_SILENT,        /* nothing at all */
    BR_FAULT_CLOSE,         /* the connection ends after half of the answer */
    BR_FAULT_STALL,         /* half of the answer, then nothing */
    BR_FAULT_SLOW,          /* a few bytes at a time */
    BR_FAULT_GARBAGE,       /* 200 and bytes that are no answer */
    BR_FAULT_OVERSIZED,     /* text without end (64 MiB) */
    BR_FAULT_BAD_TOOL_JSON, /* arguments that are no JSON */
    BR_FAULT_DUPLICATE_IDS, /* two tool calls with one id */
    BR_FAULT_WRONG_FINISH,  /* "stop" with tool calls, "tool_calls" without */
    BR_FAULT_NO_USAGE,
    BR_FAULT_BAD_USAGE, /* a total that is no sum */
    BR_FAULT_NO_DONE,   /* a stream without [DONE] */
    BR_FAULT_TWO_CHOICES,
    BR_FAULT_LEGACY, /* function_call instead of tool_calls */
    BR_FAULT_REDIRECT,
};

struct br_words {
    const char *text[BR_SCENARIO_WORDS_MAX]; /* borrowed from the scenario's JSON */
    unsigned n;
};

struct br_turn {
    int assistant_messages; /* -1: any */
    struct br_words tool_contains, tool_lacks, user_contains;
    const char *text;          /* "" if none */
    json_t *tool_calls;        /* borrowed array, or NULL */
    const char *finish_reason; /* NULL: from the content */
    unsigned delay_ms, chunk_words;
    enum br_fault fault;
    unsigned fault_status;
    const char *fault_body, *fault_retry_after;
};

struct br_scenario {
    json_t *root;
    const char *name, *title;
    struct br_turn *turns;
    unsigned nturns;
};

/* Parse and check. -BR_E_INVALID_CONFIG names the place, what was expected, and that nothing was
 * started. */
int br_scenario_load(const void *p, size_t n, struct br_scenario **out, struct br_err *err);
void br_scenario_free(struct br_scenario **s);

/* What a request says that turns are chosen by. */
struct br_situation {
    unsigned assistant_messages;
    json_t *messages; /* borrowed; the last tool messages are those behind the last assistant's */
};
/* The first turn that matches; NULL if none does. */
const struct br_turn *br_scenario_turn(const struct br_scenario *s, const struct br_situation *q);

/* ---- HTTP request ---- */

struct br_http_request {
    char method[16];
    char path[256];
    char content_type[128];
    size_t head_len; /* bytes up to and with the empty line */
    size_t body_len;
};
/*
 * Parse the head of a request. 1: more bytes are needed. 0: `r` is complete (the body may still be
 * on its way). Negative: refused; *status is the HTTP status to answer with.
 */
int br_http_parse(const char *p, size_t n, struct br_http_request *r, unsigned *status);

/* ---- answer ---- */

/* A piece of the response; sent `repeat` times, after waiting `delay_ms` before each. */
struct br_piece {
    size_t offset, len;
    unsigned delay_ms, repeat;
};
struct br_answer {
    struct br_buf bytes; /* head and pieces, one behind the other */
    struct br_piece *pieces;
    unsigned npieces, cap;
    bool stall;        /* keep the connection open behind the last piece */
    bool failed;       /* no memory */
    unsigned fragment; /* > 0: write at most this many bytes at a time */
};
void br_answer_init(struct br_answer *a);
void br_answer_free(struct br_answer *a);
/* Answer a whole request. `serial` makes ids. */
void br_answer_make(struct br_answer *a, const struct br_scenario *s,
                    const struct br_http_request *r, const char *body, uint64_t serial);
/* An error in the shape of the real API. */
void br_answer_error(struct br_answer *a, unsigned status, const char *code, const char *message);

#endif
