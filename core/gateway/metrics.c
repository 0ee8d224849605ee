/*
 * What the service counts: /metrics in the text format of Prometheus (0.0.4), /health in JSON.
 * Numbers only; the one label is the version, so that the series are bounded.
 */
#include <string.h>

#include "gateway/conn_priv.h"

/* One for each of GW_COUNTERS; a gauge goes down as well. */
#define COUNT_(text) false, text
#define GAUGE_(text) true, text
#define HELP_connections_accepted COUNT_("Connections that were accepted")
#define HELP_connections_refused COUNT_("Connections that were refused by a limit")
#define HELP_connections_open GAUGE_("Connections that are open")
#define HELP_messages_in COUNT_("WebSocket messages from clients")
#define HELP_messages_out COUNT_("WebSocket messages to clients")
#define HELP_bytes_in COUNT_("Bytes from clients")
#define HELP_bytes_out COUNT_("Bytes to clients")
#define HELP_protocol_errors COUNT_("Connections that ended because a client broke a protocol")
#define HELP_slow_clients COUNT_("Connections that ended because a client did not read")
#define HELP_auth_refused COUNT_("Requests without credentials that are good")
#define HELP_rate_limited COUNT_("Requests that came too often")
#define HELP_sessions_created COUNT_("Sessions that were created")
#define HELP_sessions_running GAUGE_("Sessions that run")
#define HELP_sessions_completed COUNT_("Sessions that completed")
#define HELP_sessions_failed COUNT_("Sessions that failed")
#define HELP_sessions_canceled COUNT_("Sessions that were canceled")
#define HELP_events_out COUNT_("Stored events that were sent to clients")
#define HELP_asks_open GAUGE_("Questions that wait for an answer")
#define HELP_asks_allowed COUNT_("Questions that were allowed")
#define HELP_asks_denied COUNT_("Questions that were denied")
#define HELP_asks_expired COUNT_("Questions that nobody answered in time")
#define HELP_model_requests COUNT_("Requests to models")
#define HELP_tokens_prompt COUNT_("Tokens of prompts, as charged")
#define HELP_tokens_completion COUNT_("Tokens of completions, as charged")
#define HELP_tool_calls COUNT_("Calls of tools")
#define HELP_telemetry_sent COUNT_("Spans that a collector took")
#define HELP_telemetry_dropped COUNT_("Spans that were too many, or that no collector took")

static const struct {
    const char *name;
    size_t at;
    bool gauge;
    const char *help;
} counters[] = {
#define ROW_(name) {#name, offsetof(struct gw_counters, name), HELP_##name},
    GW_COUNTERS(ROW_)
#undef ROW_
};

static void put(struct br_buf *b, const char *name, bool gauge, const char *help, uint64_t value)
{
    const char *end = gauge ? "" : "_total";
    br_buf_printf(b, "# HELP bridle_%s%s %s.\n# TYPE bridle_%s%s %s\nbridle_%s%s %llu\n", name, end,
                  help, name, end, gauge ? "gauge" : "counter", name, end,
                  (unsigned long long)value);
}

void metrics_put(struct gateway *g, struct br_buf *b)
{
    const uint8_t *base = (const uint8_t *)gw_counters(g);
    for (size_t i = 0; i < BR_ARRAY_LEN(counters); i++) {
        uint64_t value;
        memcpy(&value, base + counters[i].at, sizeof(value));
        put(b, counters[i].name, counters[i].gauge, counters[i].help, value);
    }
    put(b, "uptime_seconds", true, "Seconds since the start",
        (br_now_us() - g->started_us) / 1000000u);
    put(b, "ready", true, "1 if sessions can be created, 0 while the service stops",
        !gw_draining(g));
    put(b, "log_lines_dropped", false, "Lines of the log that were too many, or nobody took",
        g->log_dropped);
    br_buf_printf(b,
                  "# HELP bridle_build_info The version.\n# TYPE bridle_build_info gauge\n"
                  "bridle_build_info{version=\"%s\"} 1\n",
                  gw_version());
}

void health_put(struct gateway *g, struct br_buf *b, bool whole)
{
    const struct gw_counters *n = gw_counters(g);
    br_buf_printf(b, "{\"ready\":%s", gw_draining(g) ? "false" : "true");
    if (whole)
        br_buf_printf(b,
                      ",\"version\":\"%s\",\"protocol\":\"harness/acp/1\",\"draining\":%s,"
                      "\"uptimeSeconds\":%llu,\"connections\":%llu,\"sessionsRunning\":%llu,"
                      "\"asksOpen\":%llu",
                      gw_version(), gw_draining(g) ? "true" : "false",
                      (unsigned long long)((br_now_us() - g->started_us) / 1000000u),
                      (unsigned long long)n->connections_open,
                      (unsigned long long)n->sessions_running, (unsigned long long)n->asks_open);
    br_buf_printf(b, "}\n");
}
