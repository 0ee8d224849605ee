/*
 * What a provider lease understands of the dialects that providers speak (chat completions,
 * Responses, Anthropic Messages, the list of models): checks of a request before it is charged or
 * sent, and the inspection of an answer while it passes. bridle-broker calls it on bytes of guests
 * and of providers, both of which are hostile. No I/O; no state but the answer's own.
 */
#ifndef BR_BROKER_DIALECT_H
#define BR_BROKER_DIALECT_H

#include "base/base.h"
#include "wire/types.h"

/* ---- requests ---- */

struct br_ask_facts {
    uint32_t route;      /* one bit of enum br_route */
    bool stream;         /* the answer is to be a stream of events */
    bool hide_usage;     /* the guest did not ask for the usage chunk that we asked for */
    uint32_t messages;   /* at least 1; 0 for the list of models */
    uint64_t max_tokens; /* of the answer; 0 for the list of models */
    uint64_t reserve;    /* tokens of prompt and answer together, estimated from above */
};
/*
 * Is this a request that the lease and its model allow? `path` is without /v1. Everything that is
 * allowed is listed: the route, JSON and its size, each parameter, each kind of message, content
 * and tool (inline data only; nothing that the provider would fetch, keep or run), one choice, an
 * answer of at most lease->max_answer_tokens. A request without such a limit gets the lease's.
 * `out` receives the body to send: the same text with the usage of a stream asked for, nothing
 * stored, and the limit. For BR_ROUTE_MODELS it receives the answer, and nothing is sent.
 * -BR_E_LEASE_REFUSED and a sentence if not; `out` and `facts` are then unspecified.
 */
int br_ask_check(const struct br_lease *l, const char *model, const char *method, const char *path,
                 const char *content_type, const void *body, size_t n, struct br_buf *out,
                 struct br_ask_facts *facts, struct br_err *err);

/* ---- answers ---- */

/* What BR_ANSWERS_NORMALIZE has repaired in an answer. */
enum br_repair {
    BR_REPAIR_FINISH = 1u << 0,   /* the finish reason said otherwise than the tool calls */
    BR_REPAIR_IDS = 1u << 1,      /* tool calls with one id: the later ones were renamed */
    BR_REPAIR_FUNCTION = 1u << 2, /* a legacy function_call became a tool call */
    BR_REPAIR_TOTAL = 1u << 3,    /* the total of the usage was not the sum of its parts */
    BR_REPAIR_DONE = 1u << 4,     /* the end of the stream was not said */
    BR_REPAIR_INDEX = 1u << 5, /* tool calls of a stream with one index, or without: renumbered */
};
#define BR_REPAIRS 6u
/* "finish", "ids", "function_call", "total", "done", "index"; by bit number. */
extern const char *const br_repair_names[BR_REPAIRS];

/* One answer, while it passes. */
struct br_answer;

struct br_answer_facts {
    bool usage_known;            /* the provider said what was used, and it adds up */
    uint64_t prompt, completion; /* tokens; of the last usage that it said */
    char finish[32];             /* "stop", "tool_calls", "length", "error"; "" not yet */
    uint32_t calls;              /* tool calls */
    uint32_t repairs;            /* enum br_repair */
    bool complete;               /* it ended, and as it should */
};

/*
 * For the answer to the request with the facts `f`, both copied. NULL without memory. A status
 * other than 2xx makes it an error: the body is not passed on but, at its end, an error of the
 * route's shape with the provider's own type, code and bounded message (none for 401 and 403).
 */
struct br_answer *br_answer_new(const struct br_lease *l, const struct br_ask_facts *f,
                                uint32_t status, const char *content_type);
/*
 * n bytes of the body. What may be passed on now is appended to `out`, in whole events: any way of
 * cutting a body into pieces gives the same bytes and the same verdict. 0, or
 * -BR_E_PROVIDER_INVALID (a contradiction, named), -BR_E_PROVIDER_STATUS (an error that the
 * provider reported inside of a stream), -BR_E_LIMIT_EXCEEDED, -BR_E_NOMEM. What `out` then has is
 * what went before the refused event: it never completes an answer. A failed answer stays failed.
 */
int br_answer_feed(struct br_answer *a, const void *p, size_t n, struct br_buf *out,
                   struct br_err *err);
/* The upstream ended cleanly. As above, and -BR_E_PROVIDER_TRUNCATED if the answer is not whole. */
int br_answer_end(struct br_answer *a, struct br_buf *out, struct br_err *err);
/* Valid until the next call and br_answer_free(). */
const struct br_answer_facts *br_answer_facts(const struct br_answer *a);
void br_answer_free(struct br_answer **a);

/*
 * Append an error in the route's own shape: {"error":{"message","type","code"}}, for messages
 * {"type":"error","error":{"type","message"}}. With `sse` as the event that ends a stream which
 * has begun. `text` is made printable and bounded.
 */
void br_error_body(uint32_t route, bool sse, enum br_code code, const char *text,
                   struct br_buf *out);

#endif
