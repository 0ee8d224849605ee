/*
 * The view: stored events in, text for a terminal out. One renderer serves a run in the foreground
 * and `bridle show`. It keeps what the closing summary needs. What a model or a tool said is passed
 * on only through the functions of view_text.c.
 */
#include <stdlib.h>
#include <time.h>

#include "cli/view_priv.h"

#define WORD_MAX 4096u
/* An envelope adds a few nodes to the largest tool result. */
#define EVENT_NODES_MAX (2 * BR_JSON_NODES_MAX)
#define EVENT_DEPTH_MAX (2 * BR_JSON_DEPTH_MAX)

void br_cli_view_init(struct br_cli_view *v, bool colour, unsigned width)
{
    *v = (struct br_cli_view){.colour = colour,
                              .width = width < BR_VIEW_WIDTH_MIN ? BR_VIEW_WIDTH_MIN : width};
    br_buf_init(&v->out, BR_VIEW_MAX);
    br_buf_init(&v->word, WORD_MAX);
}

void br_cli_view_free(struct br_cli_view *v)
{
    br_buf_free(&v->out);
    br_buf_free(&v->word);
    json_decref(v->decision);
    json_decref(v->changes);
    json_decref(v->call);
    json_decref(v->calls);
    json_decref(v->questions);
    v->decision = v->changes = v->call = v->calls = v->questions = NULL;
}

static const char *const styles[] = {"", "\033[1m", "\033[2m", "\033[32m", "\033[33m", "\033[31m"};

void view_style_on(struct br_cli_view *v, enum view_style s)
{
    if (v->colour && s != VIEW_PLAIN)
        br_buf_put(&v->out, styles[s], strlen(styles[s]));
}

void view_style_off(struct br_cli_view *v, enum view_style s)
{
    if (v->colour && s != VIEW_PLAIN)
        br_buf_put(&v->out, "\033[0m", 4);
}

void view_word(struct br_cli_view *v, enum view_style s, const char *word, unsigned width)
{
    view_style_on(v, s);
    br_cli_put_line(&v->out, word, strlen(word), 60);
    view_style_off(v, s);
    for (size_t n = strlen(word); n < width; n++)
        br_buf_put_u8(&v->out, ' ');
}

enum view_style view_effect_style(const char *effect)
{
    return strcmp(effect, "allow") == 0 ? VIEW_GREEN
           : strcmp(effect, "ask") == 0 ? VIEW_YELLOW
                                        : VIEW_RED;
}

const char *view_str(const json_t *o, const char *key, size_t *n)
{
    const json_t *s = json_object_get(o, key);
    *n = json_is_string(s) ? json_string_length(s) : 0;
    return json_is_string(s) ? json_string_value(s) : "";
}

uint64_t view_u64(const json_t *o, const char *key)
{
    json_int_t v = json_integer_value(json_object_get(o, key));
    return v > 0 ? (uint64_t)v : 0;
}

unsigned view_room(const struct br_cli_view *v, unsigned used)
{
    return v->width >= used + 10 ? v->width - used : 10;
}

static void set_phase(struct br_cli_view *v, const char *phase, const char *what)
{
    v->phase = phase;
    v->phase_since_us = br_now_us();
    v->progress_bytes = 0;
    snprintf(v->phase_what, sizeof(v->phase_what), "%s", what);
}

/* ---- decisions and asks -------------------------------------------------------------------- */

/* "(operator:reads)": the rule that made it, and whose it is if the id does not say so itself. */
static void put_rule(struct br_buf *b, const char *source, const char *rule, size_t n)
{
    if (n == 0)
        return;
    br_buf_printf(b, "(");
    if (source[0] && !memchr(rule, ':', n) && strcmp(source, rule) != 0) {
        br_cli_put_line(b, source, strlen(source), 12);
        br_buf_put_u8(b, ':');
    }
    br_cli_put_line(b, rule, n, 48);
    br_buf_put_u8(b, ')');
}

/* One line, or two where subject and rule do not fit beside each other. */
static void put_decision(struct br_cli_view *v, const json_t *d, const char *source)
{
    size_t na, ns, nr, nn;
    const char *action = view_str(d, "action", &na), *subject = view_str(d, "subject", &ns);
    const char *rule = view_str(d, "ruleId", &nr), *reason = view_str(d, "reason", &nn);
    size_t ne;
    const char *effect = view_str(d, "effect", &ne);
    br_buf_printf(&v->out, "  ");
    view_word(v, view_effect_style(effect), effect, 7);
    br_cli_put_line(&v->out, action, na, 30);
    br_buf_put_u8(&v->out, ' ');
    BR_CLEANUP_BUF struct br_buf by = BR_BUF_INIT(4096);
    put_rule(&by, source, rule, nr);
    unsigned room = view_room(v, 10 + (na < 30 ? (unsigned)na : 30u));
    size_t start = v->out.len;
    br_cli_put_line(&v->out, subject, ns, room);
    unsigned used = view_columns((char *)v->out.data + start, v->out.len - start);
    unsigned rule_columns = view_columns((char *)by.data, by.len);
    br_buf_printf(&v->out, used + rule_columns + 2 <= room ? "  " : "\n         ");
    view_style_on(v, VIEW_DIM);
    br_buf_put(&v->out, by.data, by.len);
    view_style_off(v, VIEW_DIM);
    br_buf_printf(&v->out, "\n");
    if (nn && strcmp(effect, "deny") == 0) /* an ask says why when it asks */
        view_block(v, "         ", reason, nn, 3);
}

static void release_decision(struct br_cli_view *v, const char *source)
{
    size_t n;
    json_t *d = br_steal_ptr(&v->decision);
    /* of a folded call only the result is shown, and why there is none */
    if (d && (!v->folded || strcmp(view_str(d, "effect", &n), "deny") == 0))
        put_decision(v, d, source);
    json_decref(d);
}

static void on_decision(struct br_cli_view *v, json_t *data)
{
    size_t n;
    const char *effect = view_str(data, "effect", &n);
    v->decisions[strcmp(effect, "allow") == 0 ? BR_EFFECT_ALLOW
                 : strcmp(effect, "ask") == 0 ? BR_EFFECT_ASK
                                              : BR_EFFECT_DENY]++;
    v->decision = json_incref(data);
    if (strcmp(effect, "allow") == 0)
        set_phase(v, "running", v->last_tool);
}

static void on_votes(struct br_cli_view *v, const json_t *data)
{
    size_t n, i, nr, ne;
    json_t *vote;
    const char *source = view_str(data, "source", &n), *rule = view_str(data, "ruleId", &nr);
    const json_t *votes = json_object_get(data, "votes");
    release_decision(v, source);
    if (v->folded)
        return;
    if (json_is_true(json_object_get(data, "opaque")))
        br_buf_printf(&v->out, "         the command cannot be taken apart: decided as a whole\n");
    const char *grant = view_str(data, "grant", &n);
    if (n) {
        br_buf_printf(&v->out, "         allowed before, for the rest of this run (");
        br_cli_put_line(&v->out, grant, n, 48);
        br_buf_printf(&v->out, ")\n");
    }
    json_array_foreach(votes, i, vote)
    {
        const char *other = view_str(vote, "source", &n), *effect = view_str(vote, "effect", &ne);
        if (strcmp(other, source) == 0)
            continue;
        view_style_on(v, VIEW_DIM);
        br_buf_printf(&v->out, "         also ");
        br_cli_put_line(&v->out, effect, ne, 8);
        rule = view_str(vote, "ruleId", &nr);
        br_buf_put_u8(&v->out, ' ');
        put_rule(&v->out, other, rule, nr);
        view_style_off(v, VIEW_DIM);
        br_buf_printf(&v->out, "\n");
    }
}

/* ---- the other events ---------------------------------------------------------------------- */

static void on_message(struct br_cli_view *v, const char *label, const json_t *data)
{
    size_t n, nm;
    const char *code = view_str(data, "code", &n), *message = view_str(data, "message", &nm);
    if (nm && strcmp(message, v->last_error) == 0)
        return;
    snprintf(v->last_error, sizeof(v->last_error), "%.*s", (int)nm, message);
    br_buf_printf(&v->out, "  ");
    view_word(v, VIEW_RED, label, 7);
    br_cli_put_line(&v->out, code, n, 40);
    br_buf_printf(&v->out, "\n");
    view_block(v, "         ", message, nm, 8);
}

static void on_provider(struct br_cli_view *v, const json_t *data)
{
    const json_t *error = json_object_get(data, "error");
    if (json_is_object(error))
        on_message(v, "model", error);
}

static void on_usage(struct br_cli_view *v, const json_t *data)
{
    const json_t *usage = json_object_get(data, "usage");
    v->prompt_tokens += view_u64(usage, "promptTokens");
    v->completion_tokens += view_u64(usage, "completionTokens");
    v->phase = NULL;
}

static void on_stopped(struct br_cli_view *v, const json_t *data)
{
    size_t n;
    const char *s = view_str(data, "status", &n);
    snprintf(v->status, sizeof(v->status), "%.*s", (int)n, s);
    s = view_str(data, "note", &n);
    snprintf(v->note, sizeof(v->note), "%.*s", (int)n, s);
    v->steps = view_u64(data, "steps");
    v->tool_calls = view_u64(data, "toolCalls");
    v->stopped = true;
    v->phase = NULL;
}

static void on_budget(struct br_cli_view *v, const json_t *data)
{
    size_t n;
    const char *metric = view_str(data, "metric", &n);
    br_buf_printf(&v->out, "  ");
    view_word(v, VIEW_YELLOW, "budget", 7);
    br_cli_put_line(&v->out, metric, n, 30);
    br_buf_printf(&v->out, ": ");
    view_put_count(&v->out, view_u64(data, "used"));
    br_buf_printf(&v->out, " of ");
    view_put_count(&v->out, view_u64(data, "limit"));
    br_buf_printf(&v->out, "\n");
}

static void on_sandbox(struct br_cli_view *v, const json_t *data)
{
    size_t n;
    const char *image = view_str(data, "image", &n);
    view_word(v, VIEW_DIM, "  sandbox", 13);
    br_cli_put_line(&v->out, image, n, 24);
    const char *network = view_str(data, "network", &n);
    br_buf_printf(&v->out, ", network ");
    br_cli_put_line(&v->out, network, n, 10);
    if (v->width >= 64)
        br_buf_printf(&v->out, ", %llu mounts", (unsigned long long)view_u64(data, "mounts"));
    br_buf_put_u8(&v->out, '\n');
}

static bool view_own(struct br_cli_view *v, const char *type, json_t *data)
{
    size_t n;
    if (strcmp(type, "bridle.run") == 0) {
        view_run_header(v, data);
    } else if (strcmp(type, "bridle.text") == 0) {
        const char *s = view_str(data, "text", &n);
        view_text(v, s, n);
        if (json_is_true(json_object_get(data, "final")))
            view_text_end(v);
    } else if (strcmp(type, "bridle.launch") == 0) {
        if (v->receipt)
            view_receipt(v, data);
    } else if (strcmp(type, "bridle.votes") == 0) {
        on_votes(v, data);
    } else if (strcmp(type, "bridle.ask") == 0) {
        view_ask(v, data);
    } else if (strcmp(type, "bridle.asks") == 0) {
        view_asks(v, data);
    } else if (strcmp(type, "bridle.grant") == 0) {
        view_grant(v, data);
    } else if (strcmp(type, "bridle.answered") == 0) {
        view_answered(v, data);
    } else if (strcmp(type, "bridle.provider") == 0) {
        on_provider(v, data);
    } else if (strcmp(type, "bridle.workspace") == 0) {
        json_decref(v->changes);
        v->changes = json_incref(data);
    } else if (strcmp(type, "bridle.promote") == 0) {
        v->promotion = true;
        br_cli_promote_receipt(v, data);
    } else if (strcmp(type, "bridle.notice") == 0) {
        on_message(v, "note", data);
    } else if (strcmp(type, "bridle.policy.error") == 0) {
        on_message(v, "policy", data);
    } else if (strcmp(type, "bridle.exec") == 0) {
        v->progress_bytes = view_u64(data, "stdoutBytes") + view_u64(data, "stderrBytes");
    } else if (strcmp(type, "bridle.provider.refused") == 0) {
        on_message(v, "model", data);
    } else {
        return view_harness(v, type, data);
    }
    return true;
}

static void view_baseline(struct br_cli_view *v, const char *type, const json_t *event,
                          json_t *data)
{
    if (strcmp(type, "model.request") == 0) {
        set_phase(v, "waiting for the model", "");
    } else if (strcmp(type, "model.response") == 0) {
        on_usage(v, data);
    } else if (strcmp(type, "tool.call") == 0) {
        view_tool_call(v, data);
    } else if (strcmp(type, "tool.result") == 0) {
        v->phase = NULL;
        view_tool_result(v, data);
    } else if (strcmp(type, "policy.decision") == 0) {
        on_decision(v, data);
    } else if (strcmp(type, "permission.requested") == 0) {
        view_requested(v, data);
    } else if (strcmp(type, "permission.resolved") == 0) {
        view_resolved(v, event, data);
        if (json_array_size(v->questions) == 0)
            set_phase(v, "running", v->last_tool);
    } else if (strcmp(type, "sandbox.started") == 0) {
        v->sandboxed = true;
        on_sandbox(v, data);
    } else if (strcmp(type, "budget.warning") == 0) {
        on_budget(v, data);
    } else if (strcmp(type, "agent.stopped") == 0) {
        on_stopped(v, data);
    } else if (strcmp(type, "error") == 0) {
        on_message(v, "error", data);
    }
}

/* "2026-03-01T10:00:00.000+00:00" in microseconds; 0 if it is something else. */
static uint64_t parse_at(const char *s)
{
    struct tm tm = {.tm_isdst = 0};
    unsigned ms = 0;
    char sign = '+';
    int oh = 0, om = 0;
    if (sscanf(s, "%4d-%2d-%2dT%2d:%2d:%2d.%3u%c%2d:%2d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
               &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &ms, &sign, &oh, &om) < 7)
        return 0;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    time_t t = timegm(&tm) - (sign == '-' ? -1 : 1) * (oh * 3600 + om * 60);
    return t > 0 ? (uint64_t)t * 1000000u + ms * 1000u : 0;
}

/* Between a call and the question about it nothing else is shown. */
static bool leads_to_ask(const char *type)
{
    return strcmp(type, "tool.call") == 0 || strcmp(type, "policy.decision") == 0 ||
           strcmp(type, "bridle.votes") == 0 || strncmp(type, "permission.", 11) == 0 ||
           strncmp(type, "bridle.ask", 10) == 0;
}

int br_cli_view_event(struct br_cli_view *v, const char *text, size_t n, struct br_err *err)
{
    int r = br_json_scan(text, n, EVENT_DEPTH_MAX, EVENT_NODES_MAX, err);
    if (r < 0)
        return r;
    json_error_t je;
    json_t *event = json_loadb(text, n, JSON_REJECT_DUPLICATES, &je);
    json_t *data = json_object_get(event, "data");
    size_t nt;
    const char *type = view_str(event, "type", &nt);
    if (!json_is_object(data) || nt == 0) {
        json_decref(event);
        return br_err_set(err, BR_E_INVALID_JSON,
                          "what should be an event of the record is not one");
    }
    uint64_t at = parse_at(view_str(event, "at", &nt));
    if (at) {
        v->first_us = v->first_us ? v->first_us : at;
        v->last_us = at;
    }
    snprintf(v->type, sizeof(v->type), "%s", type);
    size_t before = v->out.len;
    bool fold = v->at_fold, is_text = strcmp(type, "bridle.text") == 0;
    if (!is_text && strcmp(type, "bridle.exec") != 0)
        view_text_end(v);
    if (strcmp(type, "bridle.votes") != 0)
        release_decision(v, "");
    if (!view_own(v, type, data))
        view_baseline(v, type, event, data);
    if (!leads_to_ask(type))
        v->call_shown = false;
    if (fold && v->out.len != before && strcmp(type, "tool.result") != 0)
        v->at_fold = false;
    json_decref(event);
    return 0;
}

/* ---- JSON lines on a terminal -------------------------------------------------------------- */

void br_cli_put_json_safe(struct br_buf *b, const char *s, size_t n)
{
    const uint8_t *p = (const uint8_t *)s;
    for (size_t i = 0; i < n;) {
        size_t len = p[i] < 0x80 ? 1 : p[i] < 0xe0 ? 2 : p[i] < 0xf0 ? 3 : 4;
        if (len > n - i)
            len = n - i;
        BR_CLEANUP_BUF struct br_buf seen = BR_BUF_INIT(64);
        br_buf_put_visible(&seen, s + i, len, true);
        if (seen.len == len && memcmp(seen.data, s + i, len) == 0) {
            br_buf_put(b, s + i, len);
        } else if (p[i] == '\t' || p[i] == '\n' || p[i] == '\r') {
            br_buf_put(b, " ", 1); /* JSON has them only between values */
        } else {
            uint32_t cp = len == 1 ? p[i] : p[i] & (0x7fu >> len);
            for (size_t k = 1; k < len; k++)
                cp = cp << 6 | (p[i + k] & 0x3fu);
            if (cp >= 0x10000)
                br_buf_printf(b, "\\u%04x\\u%04x", 0xd7c0 + (cp >> 10), 0xdc00 + (cp & 0x3ff));
            else
                br_buf_printf(b, "\\u%04x", (unsigned)cp);
        }
        i += len;
    }
}
