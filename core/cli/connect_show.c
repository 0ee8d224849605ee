/*
 * What 'bridle connect' shows: the same view that a run in the foreground has, with tool calls in
 * one line each, a status line with time and budget, and the list of sessions. With --json only the
 * messages as they came, and on stderr the questions.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli/connect.h"
#include "cli/view_priv.h"

void connect_say(struct connect *c, const char *text)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(16 * BR_ERR_TEXT_MAX);
    br_buf_put_visible(&b, text, strlen(text), false);
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    br_cli_term_clear_status(&c->term);
    if (poll(&p, 1, 0) != 0) /* or nobody reads it */
        (void)br_write_all(STDERR_FILENO, b.data, b.len);
}

int connect_show_message(struct connect *c, const char *text, size_t n)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8u * BR_CLI_REMOTE_MESSAGE_MAX);
    if (c->term.tty_out)
        br_cli_put_json_safe(&b, text, n);
    else
        br_buf_put(&b, text, n);
    for (size_t i = 0; i < b.len; i++) /* JSON has them between values only */
        if (b.data[i] == '\n' || b.data[i] == '\r')
            b.data[i] = ' ';
    br_buf_put_u8(&b, '\n');
    br_cli_term_write(&c->term, b.data, b.len);
    return 0;
}

static void flush_view(struct connect *c)
{
    static const char lost[] = "  (a part of this was too large to show; it is in the record)\n";
    struct br_buf *b = &c->view.out;
    if (b->failed)
        br_cli_term_write(&c->term, lost, sizeof(lost) - 1);
    else
        br_cli_term_write(&c->term, b->data, b->len);
    br_buf_reset(b);
}

/* ---- events --------------------------------------------------------------------------------- */

static void note_error(struct connect *c, const json_t *data)
{
    size_t n;
    const char *name = view_str(data, "code", &n);
    c->error = BR_E_FAILED;
    for (int code = 1; code < BR_CODE_COUNT_; code++)
        if (strcmp(br_code_name(code), name) == 0)
            c->error = (enum br_code)code;
    const char *text = view_str(data, "message", &n);
    snprintf(c->error_text, sizeof(c->error_text), "%.*s", (int)n, text);
}

/* What the manifest allows is not known before a warning tells of it. */
static void note_budget(struct connect *c, const json_t *data)
{
    size_t n;
    c->limits[strcmp(view_str(data, "metric", &n), "tool_calls") == 0] = view_u64(data, "limit");
}

/* A run that nobody can watch any more is not to go on. */
static void check_output(struct connect *c)
{
    if (!c->term.broken || c->canceling)
        return;
    if (c->mine) {
        connect_cancel(c);
        br_cli_asking_cancel(&c->asking);
    } else {
        c->left = c->got = true;
    }
}

bool connect_time(const char *iso, int64_t *us)
{
    struct tm tm = {.tm_isdst = 0};
    char sign = '+';
    int at = 0, ms = 0, hours = 0, minutes = 0;
    if (!iso || sscanf(iso, "%4d-%2d-%2dT%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
                       &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &at) != 6)
        return false;
    iso += at;
    if (sscanf(iso, ".%3d%n", &ms, &at) == 1)
        iso += at;
    if (*iso != 'Z' && sscanf(iso, "%c%2d:%2d", &sign, &hours, &minutes) != 3)
        return false;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    int64_t away = (hours * 60 + minutes) * 60;
    *us = ((int64_t)timegm(&tm) - (sign == '-' ? -away : away)) * 1000000 + ms * 1000;
    return true;
}

/* One from the past is as old as the service's clock says; what comes now is new. */
static uint64_t age_of(const struct connect *c, const json_t *event)
{
    int64_t at, now = (int64_t)br_now_wall_us() + c->skew_us;
    if (!c->clock || !c->asking.hold ||
        !connect_time(json_string_value(json_object_get(event, "at")), &at))
        return 0;
    return now > at ? (uint64_t)(now - at) : 0;
}

int connect_show_event(struct connect *c, const struct br_stream_item *item, struct br_err *err)
{
    const json_t *data = json_object_get(item->value, "data");
    BR_CLEANUP_FREE char *text = json_dumps(item->value, JSON_COMPACT);
    if (!text)
        return br_err_set(err, BR_E_NOMEM, "no memory for an event");
    /* what the view cannot take is not shown, and no question about it is put */
    bool unshown = br_cli_view_event(&c->view, text, strlen(text), NULL) < 0 || c->view.out.failed;
    bool wanted = br_cli_asking_wants(item->type);
    if (wanted) /* before it is shown: a question's line ends here */
        br_cli_asking_before(&c->asking, item->type, data);
    if (c->json && (!br_cli_leads_to_ask(item->type) || !c->asking.can_ask))
        br_buf_reset(&c->view.out);
    if (!c->json)
        flush_view(c);
    c->asking.age_us = wanted ? age_of(c, item->value) : 0;
    if (wanted)
        br_cli_asking_after(&c->asking, item->type, data, unshown);
    if (strcmp(item->type, "error") == 0)
        note_error(c, data);
    if (strcmp(item->type, "budget.warning") == 0)
        note_budget(c, data);
    check_output(c);
    return 0;
}

/* ---- the status line ------------------------------------------------------------------------ */

static void put_budget(struct br_buf *b, uint64_t used, uint64_t limit, const char *what)
{
    br_buf_printf(b, ", ");
    view_put_count(b, used);
    if (limit) {
        br_buf_printf(b, " of ");
        view_put_count(b, limit);
    }
    br_buf_printf(b, " %s", what);
}

static void follow_width(struct connect *c)
{
    struct winsize ws;
    if (ioctl(c->term.out, TIOCGWINSZ, &ws) < 0 || ws.ws_col < BR_VIEW_WIDTH_MIN)
        return;
    c->term.width = ws.ws_col < BR_CLI_WIDTH ? ws.ws_col : BR_CLI_WIDTH;
    c->view.width = c->term.width;
}

void connect_show_tick(struct connect *c)
{
    char phase[256];
    follow_width(c);
    if (!c->running || c->asking.asking || c->editing || c->view.in_text || !c->began_us)
        return;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1024);
    bool known = br_cli_view_status(&c->view, phase, sizeof(phase));
    uint64_t seconds = (br_now_us() - c->began_us) / 1000000;
    br_buf_printf(&b, "%s | ", known ? phase : c->canceling ? "  canceling..." : "  working...");
    if (seconds < 60)
        br_buf_printf(&b, "%llu s", (unsigned long long)seconds);
    else
        view_put_duration(&b, seconds * 1000);
    uint64_t tokens = c->limits[0] ? c->limits[0] : c->tokens;
    uint64_t calls = c->limits[1] ? c->limits[1] : c->calls;
    put_budget(&b, c->view.prompt_tokens + c->view.completion_tokens, tokens, "tokens");
    if (c->view.tool_calls || calls)
        put_budget(&b, c->view.tool_calls, calls,
                   c->view.tool_calls == 1 && !calls ? "call" : "calls");
    const char *text = br_buf_cstr(&b);
    if (text)
        br_cli_term_status(&c->term, text);
}

/* ---- begin and end -------------------------------------------------------------------------- */

static void put_word(struct br_buf *b, const char *word)
{
    char *argv[] = {(char *)(uintptr_t)word};
    br_buf_put_u8(b, ' ');
    (void)br_exec_subject(argv, 1, b);
}

/* To be pasted: with what it took to connect, as it was given. */
static void put_record(struct connect *c)
{
    static const char *const options[][2] = {{"token-file", "--token-file"},
                                             {"ca-file", "--ca-file"},
                                             {"cert", "--cert"},
                                             {"key", "--key"},
                                             {"server-uid", "--server-uid"}};
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(sizeof(c->record));
    br_buf_printf(&b, "bridle connect");
    if (c->url_text[0])
        put_word(&b, c->url_text);
    for (size_t i = 0; i < BR_ARRAY_LEN(options); i++) {
        const char *value = br_cli_opt(c->args, options[i][0]);
        if (!value)
            continue;
        br_buf_printf(&b, " %s", options[i][1]);
        put_word(&b, value);
    }
    br_buf_printf(&b, " --watch");
    const char *text = b.failed ? NULL : br_buf_cstr(&b);
    snprintf(c->record, sizeof(c->record), "%s", text ? text : "bridle connect URL --watch");
}

void connect_show_begin(struct connect *c)
{
    const struct br_cli_term *t = c->json ? &c->asker : &c->term;
    br_cli_view_free(&c->view);
    br_cli_view_init(&c->view, t->colour, t->width);
    c->view.folded = br_cli_opt(c->args, "verbose") == NULL;
    put_record(c);
    c->view.record = c->record;
    c->began_us = br_now_us();
    c->error = BR_OK;
    c->error_text[0] = '\0';
    memset(c->limits, 0, sizeof(c->limits));
    c->canceling = c->detached = false;
    c->nsignals = 0;
    c->asking.canceling = false;
    c->asking.lone = !c->extended;
}

static int judge(struct connect *c, struct br_err *err)
{
    const char *status = br_stream_stopped(c->stream, c->session);
    bool closed = c->term.broken && !c->nsignals;
    if (c->detached) {
        connect_say(c, "it goes on without you: ");
        connect_say(c, c->record);
        connect_say(c, " ");
        connect_say(c, c->session);
        connect_say(c, "\n");
        return 0;
    }
    if (status && strcmp(status, "completed") == 0)
        return 0;
    if (!status && c->left)
        return br_err_set(err, BR_E_CANCELED,
                          c->mine
                              ? "left at once; the service denies what is asked and ends the run"
                              : "left; the run goes on");
    if (!status)
        return br_err_set(err, BR_E_FAILED, "the session has no end in its record");
    if (strcmp(status, "canceled") == 0)
        return br_err_set(err, BR_E_CANCELED, "%s",
                          closed ? "the output was closed, so the run was canceled"
                                 : "the run was canceled");
    if (strcmp(status, "budget_exceeded") == 0)
        return br_err_set(err, BR_E_BUDGET_EXCEEDED, "the run has used up its budget");
    return br_err_set(err, c->error ? c->error : BR_E_FAILED, "the run failed%s%s",
                      c->error_text[0] ? ": " : "", c->error_text);
}

int connect_show_end(struct connect *c, struct br_err *err)
{
    br_cli_asking_end(&c->asking);
    br_cli_term_clear_status(&c->term);
    if (!c->json) {
        if (!c->view.started) { /* a server without the extension does not say what ran */
            snprintf(c->view.run_id, sizeof(c->view.run_id), "%s", c->session);
            c->view.started = true;
        }
        if (!c->detached && !(c->left && !c->mine))
            br_cli_view_summary(&c->view);
        flush_view(c);
    }
    c->running = false;
    c->began_us = 0;
    return judge(c, err);
}

/* ---- the list ------------------------------------------------------------------------------- */

static enum view_style status_style(const char *status)
{
    return strcmp(status, "completed") == 0                                   ? VIEW_GREEN
           : strcmp(status, "running") == 0 || strcmp(status, "created") == 0 ? VIEW_YELLOW
                                                                              : VIEW_RED;
}

/* "2026-03-01T10:00:00.000+00:00" as the local clock shows it. */
static void put_time(struct br_buf *b, const char *iso)
{
    struct tm local;
    char text[32];
    int64_t us;
    if (connect_time(iso, &us)) {
        time_t t = (time_t)(us / 1000000);
        if (localtime_r(&t, &local) && strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &local)) {
            br_buf_printf(b, "%-16s", text);
            return;
        }
    }
    br_buf_printf(b, "%-16s", "?");
}

static void put_row(struct br_cli_view *v, const json_t *row)
{
    size_t n, nt;
    const char *id = view_str(row, "sessionId", &n), *status = view_str(row, "status", &nt);
    br_cli_put_line(&v->out, id, n, 48);
    br_buf_printf(&v->out, v->width < 64 ? "\n  " : "  ");
    put_time(&v->out, view_str(row, "startedAt", &nt));
    br_buf_printf(&v->out, "  ");
    view_word(v, status_style(status), status, 0);
    if (view_u64(row, "asks"))
        view_word(v, VIEW_YELLOW, ", asks", 0);
    if (json_is_true(json_object_get(row, "live")) && json_is_false(json_object_get(row, "owned")))
        br_buf_printf(&v->out, ", detached");
    br_buf_printf(&v->out, "\n  ");
    const char *goal = view_str(row, "goal", &n);
    if (!n)
        goal = view_str(row, "workspace", &n);
    const char *model = view_str(row, "model", &nt);
    view_style_on(v, VIEW_DIM);
    br_cli_put_line(&v->out, model, nt, 16);
    br_buf_printf(&v->out, "  ");
    br_cli_put_line(&v->out, goal, n, view_room(v, 4 + (nt < 16 ? (unsigned)nt : 16)));
    view_style_off(v, VIEW_DIM);
    br_buf_printf(&v->out, "\n");
}

void connect_show_list(struct connect *c, const json_t *result, const char *words)
{
    const json_t *list = json_object_get(result, "sessions"), *row;
    size_t i;
    if (c->json)
        return;
    json_array_foreach(list, i, row) put_row(&c->view, row);
    flush_view(c);
    if (json_array_size(list) == 0)
        connect_say(c, words[0] ? "no session has these words in it\n" : "there are no sessions\n");
    if (json_is_true(json_object_get(result, "more")))
        connect_say(c, "there are more, older ones; words behind --list narrow it\n");
}
