/*
 * core/gateway, private to telemetry: otlp.c makes spans and sums of a session's events,
 * otlp_send.c writes them and sends them to bridle-egress.
 */
#ifndef BR_GATEWAY_OTLP_PRIV_H
#define BR_GATEWAY_OTLP_PRIV_H

#include "gateway/gateway_priv.h"

/* Spans that wait, and their bytes; what comes beyond is dropped and counted. */
#define OTLP_SPANS_MAX 4096u
#define OTLP_BYTES_MAX (2u * 1024 * 1024)
/* One message, and one request, carry at most this: less than what is inside of a message. */
#define OTLP_BODY_MAX (28u * 1024)
#define OTLP_SPAN_MAX 2048u
/* Spans go out this long after the first of them, sums so often. */
#define OTLP_SPANS_US (2u * 1000000u)
#define OTLP_METRICS_US (5u * 1000000u)
/* A request that has no answer by then is given up. */
#define OTLP_ANSWER_US (30u * 1000000u)
/* Calls and requests of one session that are open at one time; more have no span. */
#define OTLP_OPEN_MAX 32u
#define OTLP_NAME_MAX 128u

struct otlp_span {
    struct otlp_span *next;
    size_t n;
    char json[];
};

/* A histogram with explicit bounds; the last bucket is everything beyond. */
#define OTLP_BOUNDS_MAX 14u
struct otlp_histogram {
    uint64_t count, buckets[OTLP_BOUNDS_MAX + 1];
    double sum, min, max;
};
/* One series: an operation of a model or tool. */
#define OTLP_SERIES_MAX 64u
struct otlp_series {
    const char *operation;    /* "chat", "execute_tool", "invoke_agent" */
    char name[OTLP_NAME_MAX]; /* of the model or the tool */
    struct otlp_histogram seconds, input, output;
};

struct otlp {
    struct gateway *g;
    struct br_chan chan; /* of bridle-egress */
    struct otlp_run *runs;
    struct otlp_span *first, **end;
    unsigned nspans;
    size_t bytes;
    struct otlp_series series[OTLP_SERIES_MAX];
    unsigned nseries;
    uint64_t started_ns;
    uint64_t request;    /* the one that is under way; 0: none */
    unsigned in_request; /* spans in it */
    uint32_t status;     /* of its answer */
    bool metrics_due, spans_due;
    uint64_t next_id;
    struct gw_timer spans_timer, metrics_timer, answer_timer;
    unsigned failures; /* in a row, of which the first is logged */
};

/* otlp_send.c */
int otlp_open(struct otlp *o, int fd, struct br_err *err);
/* One span, whole; dropped if too much waits. */
void otlp_put(struct otlp *o, const struct br_buf *span);
void otlp_count(struct otlp_histogram *h, const double *bounds, unsigned n, double v);
extern const double otlp_second_bounds[OTLP_BOUNDS_MAX], otlp_token_bounds[OTLP_BOUNDS_MAX];
/* {"key":KEY,"value":{"stringValue":VALUE}}, after a comma if it is not the first. */
void otlp_text(struct br_buf *b, const char *key, const char *value);
void otlp_int(struct br_buf *b, const char *key, uint64_t value);

#endif
