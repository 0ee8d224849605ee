/*
 * Telemetry on its way: OTLP/HTTP with JSON, one request at a time, through bridle-egress, which
 * alone may open connections. A collector that is down or slow costs the spans that do not fit any
 * more, which are counted; nothing ever waits for it.
 */
#include <stdlib.h>
#include <string.h>

#include "gateway/otlp_priv.h"
#include "wire/types.h"

/* As the semantic conventions say. */
const double otlp_second_bounds[OTLP_BOUNDS_MAX] = {0.01, 0.02, 0.04, 0.08,  0.16,  0.32,  0.64,
                                                    1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92};
const double otlp_token_bounds[OTLP_BOUNDS_MAX] = {
    1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864};

void otlp_count(struct otlp_histogram *h, const double *bounds, unsigned n, double v)
{
    unsigned i = 0;
    while (i < n && v > bounds[i])
        i++;
    h->buckets[i]++;
    h->min = h->count && h->min < v ? h->min : v;
    h->max = h->count && h->max > v ? h->max : v;
    h->sum += v;
    h->count++;
}

static void comma(struct br_buf *b)
{
    if (b->len && b->data[b->len - 1] != '[')
        br_buf_put_u8(b, ',');
}

void otlp_text(struct br_buf *b, const char *key, const char *value)
{
    comma(b);
    br_buf_printf(b, "{\"key\":\"%s\",\"value\":{\"stringValue\":", key);
    br_buf_put_json_str(b, value, strlen(value));
    br_buf_printf(b, "}}");
}

void otlp_int(struct br_buf *b, const char *key, uint64_t value)
{
    comma(b);
    br_buf_printf(b, "{\"key\":\"%s\",\"value\":{\"intValue\":\"%llu\"}}", key,
                  (unsigned long long)value);
}

/* ---- bodies ---- */

/* What all of it is of; `kind` is "resourceSpans" and "scopeSpans", or those of metrics. */
static void put_front(struct br_buf *b, const char *resource, const char *scope, const char *list)
{
    br_buf_printf(b, "{\"%s\":[{\"resource\":{\"attributes\":[", resource);
    otlp_text(b, "service.name", "bridle");
    otlp_text(b, "service.version", gw_version());
    br_buf_printf(b, "]},\"%s\":[{\"scope\":{\"name\":\"bridle\",\"version\":\"%s\"},\"%s\":[",
                  scope, gw_version(), list);
}

static void put_back(struct br_buf *b)
{
    br_buf_printf(b, "]}]}]}");
}

static void drop(struct otlp *o, unsigned n)
{
    gw_counters(o->g)->telemetry_dropped += n;
}

void otlp_put(struct otlp *o, const struct br_buf *span)
{
    size_t n = span->len;
    struct otlp_span *one = NULL;
    if (!span->failed && o->chan.fd >= 0 && o->nspans < OTLP_SPANS_MAX &&
        o->bytes + n <= OTLP_BYTES_MAX)
        one = malloc(sizeof(*one) + n);
    if (!one) {
        drop(o, 1);
        return;
    }
    *one = (struct otlp_span){.n = n};
    memcpy(one->json, span->data, n);
    *o->end = one;
    o->end = &one->next;
    o->nspans++;
    o->bytes += n;
}

/* As many of the spans as fit, which are then no more in the queue. */
static unsigned put_spans(struct otlp *o, struct br_buf *b)
{
    unsigned n = 0;
    put_front(b, "resourceSpans", "scopeSpans", "spans");
    while (o->first && b->len + o->first->n + 16 < OTLP_BODY_MAX) {
        struct otlp_span *one = o->first;
        if (n++)
            br_buf_put_u8(b, ',');
        br_buf_put(b, one->json, one->n);
        o->first = one->next;
        o->nspans--;
        o->bytes -= one->n;
        free(one);
    }
    if (!o->first)
        o->end = &o->first;
    put_back(b);
    return n;
}

static void put_times(const struct otlp *o, struct br_buf *b)
{
    br_buf_printf(b, "\"startTimeUnixNano\":\"%llu\",\"timeUnixNano\":\"%llu\"",
                  (unsigned long long)o->started_ns, (unsigned long long)br_now_wall_us() * 1000);
}

static void put_point(const struct otlp *o, struct br_buf *b, const struct otlp_series *s,
                      const struct otlp_histogram *h, const double *bounds, const char *token_type)
{
    comma(b);
    br_buf_printf(b, "{\"attributes\":[");
    otlp_text(b, "gen_ai.operation.name", s->operation);
    otlp_text(b, "gen_ai.provider.name", "bridle");
    otlp_text(
        b, strcmp(s->operation, "execute_tool") == 0 ? "gen_ai.tool.name" : "gen_ai.request.model",
        s->name);
    if (token_type)
        otlp_text(b, "gen_ai.token.type", token_type);
    br_buf_printf(b, "],");
    put_times(o, b);
    br_buf_printf(b,
                  ",\"count\":\"%llu\",\"sum\":%.9g,\"min\":%.9g,\"max\":%.9g,\"bucketCounts\":[",
                  (unsigned long long)h->count, h->sum, h->min, h->max);
    for (unsigned i = 0; i <= OTLP_BOUNDS_MAX; i++)
        br_buf_printf(b, "%s\"%llu\"", i ? "," : "", (unsigned long long)h->buckets[i]);
    br_buf_printf(b, "],\"explicitBounds\":[");
    for (unsigned i = 0; i < OTLP_BOUNDS_MAX; i++)
        br_buf_printf(b, "%s%g", i ? "," : "", bounds[i]);
    br_buf_printf(b, "]}");
}

static void put_histograms(const struct otlp *o, struct br_buf *b)
{
    br_buf_printf(b, "{\"name\":\"gen_ai.client.operation.duration\",\"unit\":\"s\",\"histogram\":{"
                     "\"aggregationTemporality\":2,\"dataPoints\":[");
    for (unsigned i = 0; i < o->nseries; i++)
        put_point(o, b, &o->series[i], &o->series[i].seconds, otlp_second_bounds, NULL);
    br_buf_printf(b,
                  "]}},{\"name\":\"gen_ai.client.token.usage\",\"unit\":\"{token}\",\"histogram\":"
                  "{\"aggregationTemporality\":2,\"dataPoints\":[");
    for (unsigned i = 0; i < o->nseries; i++) {
        const struct otlp_series *s = &o->series[i];
        if (s->input.count)
            put_point(o, b, s, &s->input, otlp_token_bounds, "input");
        if (s->output.count)
            put_point(o, b, s, &s->output, otlp_token_bounds, "output");
    }
    br_buf_printf(b, "]}}");
}

/* The counters of /metrics, by the same names. */
static void put_counters(const struct otlp *o, struct br_buf *b)
{
    const struct gw_counters *n = gw_counters(o->g);
    static const char *const gauges[] = {"connections_open", "sessions_running", "asks_open"};
    const struct {
        const char *name;
        uint64_t value;
    } all[] = {
#define ROW_(name) {#name, n->name},
        GW_COUNTERS(ROW_)
#undef ROW_
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(all); i++) {
        bool gauge = false;
        for (size_t k = 0; k < BR_ARRAY_LEN(gauges); k++)
            gauge |= strcmp(gauges[k], all[i].name) == 0;
        br_buf_printf(b, ",{\"name\":\"bridle.%s\",\"%s\":{%s\"dataPoints\":[{", all[i].name,
                      gauge ? "gauge" : "sum",
                      gauge ? "" : "\"aggregationTemporality\":2,\"isMonotonic\":true,");
        put_times(o, b);
        br_buf_printf(b, ",\"asInt\":\"%llu\"}]}}", (unsigned long long)all[i].value);
    }
}

/* ---- the channel ---- */

static void go(struct otlp *o);

/* Without it nothing is exported any more; bridled sees it too. */
static void shut(struct otlp *o)
{
    if (o->chan.fd < 0)
        return;
    gw_unwatch_chan(o->g, &o->chan);
    br_chan_close(&o->chan);
    drop(o, o->nspans + o->in_request);
    o->in_request = 0;
    while (o->first) {
        struct otlp_span *one = o->first;
        o->first = one->next;
        free(one);
    }
    o->end = &o->first;
    o->nspans = 0;
    o->bytes = 0;
    gw_timer_cancel(o->g, &o->spans_timer);
    gw_timer_cancel(o->g, &o->metrics_timer);
    gw_timer_cancel(o->g, &o->answer_timer);
}

static void answered(struct otlp *o, bool good, const char *why)
{
    if (!good) {
        drop(o, o->in_request);
        if (!o->failures++)
            gw_log(o->g, BR_LOG_WARN, "telemetry.refused", "why", why, NULL);
    } else {
        if (o->failures)
            gw_log(o->g, BR_LOG_INFO, "telemetry.again", NULL);
        o->failures = 0;
        gw_counters(o->g)->telemetry_sent += o->in_request;
    }
    o->request = 0;
    o->in_request = 0;
    gw_timer_cancel(o->g, &o->answer_timer);
    go(o);
}

static void on_late(void *ctx)
{
    struct otlp *o = ctx;
    if (o->request && br_chan_send(&o->chan, BR_MSG_PROV_CANCEL, o->request, NULL, NULL) < 0)
        shut(o);
    else if (o->request)
        answered(o, false, "the collector does not answer");
}

static void send_one(struct otlp *o, const char *path, struct br_buf *body, unsigned spans)
{
    static const struct br_headers none;
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_str(&out.buf, "POST");
    br_buf_put_str(&out.buf, path);
    br_buf_put_str(&out.buf, "application/json");
    br_headers_put(&out.buf, &none);
    br_buf_put_u32(&out.buf, 64 * 1024);
    br_out_blob(&out, body->data, body->len);
    o->request = ++o->next_id;
    o->in_request = spans;
    int r = body->failed ? -BR_E_LIMIT_EXCEEDED
                         : br_chan_send(&o->chan, BR_MSG_PROV_REQUEST, o->request, &out, NULL);
    if (r == -BR_E_PEER_GONE) {
        shut(o);
    } else if (r < 0) { /* it does not even read */
        drop(o, spans);
        o->request = 0;
        o->in_request = 0;
    } else {
        gw_timer_set(o->g, &o->answer_timer, OTLP_ANSWER_US, on_late, o);
    }
}

static void on_spans_due(void *ctx)
{
    struct otlp *o = ctx;
    o->spans_due = true;
    go(o);
}

static void on_metrics_due(void *ctx)
{
    struct otlp *o = ctx;
    o->metrics_due = true;
    go(o);
}

/* Send what is due, unless a request is under way. */
static void go(struct otlp *o)
{
    if (o->request || o->chan.fd < 0)
        return;
    if (o->spans_due && o->first) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(OTLP_BODY_MAX + 4096);
        unsigned n = put_spans(o, &b);
        send_one(o, "/v1/traces", &b, n);
        return;
    }
    if (o->spans_due) {
        o->spans_due = false;
        gw_timer_set(o->g, &o->spans_timer, OTLP_SPANS_US, on_spans_due, o);
    }
    if (o->metrics_due) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(512u * 1024);
        o->metrics_due = false;
        put_front(&b, "resourceMetrics", "scopeMetrics", "metrics");
        put_histograms(o, &b);
        put_counters(o, &b);
        put_back(&b);
        send_one(o, "/v1/metrics", &b, 0);
        gw_timer_set(o->g, &o->metrics_timer, OTLP_METRICS_US, on_metrics_due, o);
    }
}

static int on_head(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct otlp *o = ctx;
    uint32_t status = br_rd_u32(&m->rd);
    (void)c;
    (void)err;
    if (m->id == o->request)
        o->status = status;
    return 0;
}

static int on_data(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)m, (void)ctx, (void)err; /* what a collector says is of no use */
    return 0;
}

static int on_end(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct otlp *o = ctx;
    char text[BR_ERR_TEXT_MAX];
    uint32_t code = br_rd_u32(&m->rd), status = o->status;
    br_rd_str(&m->rd, text, sizeof(text));
    (void)c;
    (void)err;
    if (m->id != o->request)
        return 0;
    o->status = 0;
    if (!code && (status < 200 || status > 299))
        snprintf(text, sizeof(text), "the collector answered with status %u", status);
    answered(o, !code && status >= 200 && status <= 299, text);
    return 0;
}

static const struct br_msg_rule rules[] = {
    {BR_MSG_PROV_HEAD, BR_PERMIT, 4, BR_MSG_MAX, 0, 0, on_head},
    {BR_MSG_PROV_DATA, BR_PERMIT, 1, BR_MSG_MAX, 0, 1, on_data},
    {BR_MSG_PROV_END, BR_PERMIT, 8, BR_MSG_MAX, 0, 0, on_end},
};

static int on_gone(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct otlp *o = ctx;
    (void)c;
    gw_log(o->g, BR_LOG_ERROR, "telemetry.gone", "why", err ? err->text : br_code_name(code), NULL);
    shut(o);
    return 0;
}

int otlp_open(struct otlp *o, int fd, struct br_err *err)
{
    br_chan_init(&o->chan, fd, "egress", rules, BR_ARRAY_LEN(rules), o);
    o->end = &o->first;
    o->started_ns = br_now_wall_us() * 1000;
    if (gw_watch_chan(o->g, &o->chan, on_gone, o) < 0)
        return br_err_set(err, BR_E_IO, "the channel of 'bridle-egress' cannot be watched");
    gw_timer_set(o->g, &o->spans_timer, OTLP_SPANS_US, on_spans_due, o);
    gw_timer_set(o->g, &o->metrics_timer, OTLP_METRICS_US, on_metrics_due, o);
    return 0;
}
