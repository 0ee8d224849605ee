/*
 * bridle show: the recorded runs, and the record of one through the same view that a run in the
 * foreground has. bridled opens the store; this program sees rows and stored events only.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/view_priv.h"

struct showing {
    bool json, list;
    unsigned nrows;
    struct br_cli_term term;
    struct br_cli_view view;
};

static int print(struct showing *s, const struct br_buf *b)
{
    br_cli_term_write(&s->term, b->data, b->len);
    return s->term.broken ? -BR_E_IO : 0;
}

void br_cli_put_row_json(struct br_buf *b, const struct br_cli_row *row)
{
    char started[32], ended[32] = "";
    br_time_iso(started, row->started_us);
    if (row->ended_us)
        br_time_iso(ended, row->ended_us);
    br_buf_printf(b, "{\"runId\":");
    br_buf_put_json_str(b, row->run_id, strlen(row->run_id));
    br_buf_printf(b, ",\"startedAt\":\"%s\"", started);
    if (row->ended_us)
        br_buf_printf(b, ",\"endedAt\":\"%s\"", ended);
    br_buf_printf(b, ",\"status\":");
    br_buf_put_json_str(b, row->status, strlen(row->status));
    br_buf_printf(b, ",\"model\":");
    br_buf_put_json_str(b, row->model, strlen(row->model));
    br_buf_printf(b, ",\"workspace\":");
    br_buf_put_json_str(b, row->workspace, strlen(row->workspace));
    br_buf_printf(b, ",\"goal\":");
    br_buf_put_json_str(b, row->goal, strlen(row->goal));
    br_buf_printf(b, ",\"events\":%llu}", (unsigned long long)row->events);
}

static void put_row(struct showing *s, const struct br_cli_row *row)
{
    struct br_cli_view *v = &s->view;
    char started[32] = "?";
    time_t t = (time_t)(row->started_us / 1000000u);
    struct tm tm;
    if (localtime_r(&t, &tm))
        (void)strftime(started, sizeof(started), "%Y-%m-%d %H:%M", &tm);
    if (s->nrows == 1) {
        view_style_on(v, VIEW_BOLD);
        br_buf_printf(&v->out, "%-30s  %-16s  %-15s  %s\n", "run", "started", "status", "events");
        view_style_off(v, VIEW_BOLD);
    }
    br_cli_put_line(&v->out, row->run_id, strlen(row->run_id), 48);
    br_buf_printf(&v->out, "  %-16s  ", started);
    const char *status = row->status[0] ? row->status : "running";
    view_word(v, strcmp(status, "completed") == 0 ? VIEW_GREEN : VIEW_YELLOW, status, 15);
    br_buf_printf(&v->out, "  %llu\n  ", (unsigned long long)row->events);
    view_style_on(v, VIEW_DIM);
    br_cli_put_line(&v->out, row->model, strlen(row->model), 24);
    br_buf_printf(&v->out, "  ");
    const char *what = row->goal[0] ? row->goal : row->workspace;
    br_cli_put_line(&v->out, what, strlen(what), v->width - 30);
    view_style_off(v, VIEW_DIM);
    br_buf_printf(&v->out, "\n");
}

/* Behind the record of one run: a later one that promotes it. */
static void put_promotion(struct showing *s, const struct br_cli_row *row)
{
    struct br_cli_view *v = &s->view;
    const char *status = row->status[0] ? row->status : "running";
    br_buf_printf(&v->out, "\npromotion ");
    view_word(v, strcmp(status, "completed") == 0 ? VIEW_GREEN : VIEW_YELLOW, status, 12);
    br_buf_printf(&v->out, "bridle show ");
    br_cli_put_line(&v->out, row->run_id, strlen(row->run_id), 48);
    br_buf_printf(&v->out, "\n");
}

static int on_row(void *ctx, const struct br_cli_row *row)
{
    struct showing *s = ctx;
    s->nrows++;
    BR_CLEANUP_BUF struct br_buf plain = BR_BUF_INIT(BR_VIEW_MAX), b = BR_BUF_INIT(BR_VIEW_MAX);
    if (s->json) {
        br_cli_put_row_json(&plain, row);
        if (s->term.tty_out)
            br_cli_put_json_safe(&b, (char *)plain.data, plain.len);
        else
            br_buf_put(&b, plain.data, plain.len);
        br_buf_put_u8(&b, '\n');
        return print(s, &b);
    }
    if (s->list || s->nrows == 1)
        put_row(s, row);
    else
        put_promotion(s, row);
    int r = print(s, &s->view.out);
    br_buf_reset(&s->view.out);
    return r;
}

static int on_event(void *ctx, const char *text, size_t n, struct br_err *err)
{
    struct showing *s = ctx;
    if (s->json) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_VIEW_MAX);
        if (s->term.tty_out)
            br_cli_put_json_safe(&b, text, n);
        else
            br_buf_put(&b, text, n);
        br_buf_put_u8(&b, '\n');
        return print(s, &b);
    }
    int r = br_cli_view_event(&s->view, text, n, err);
    if (r == 0)
        r = print(s, &s->view.out);
    br_buf_reset(&s->view.out);
    return r;
}

static const struct br_cli_hooks hooks = {.event = on_event, .row = on_row};

/* One question to the store. Returns the exit code, -1 if the connection broke. */
static int ask_store(struct showing *s, const char *run_id, struct br_err *err)
{
    struct br_cli_client c;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_cli_put_show(&o.buf, run_id);
    int r = br_cli_client_ask(&c, &hooks, s, BR_MSG_CTL_SHOW, &o, err);
    int code = r == 0 ? (int)c.exit_code : -1;
    if (r == 0 && c.code)
        (void)br_err_set(err, c.code, "%s", c.text);
    br_cli_client_close(&c);
    return code;
}

int br_cli_show(const struct br_cli_args *a)
{
    struct br_err err = {.code = BR_OK};
    struct showing s = {.json = br_cli_opt(a, "json") != NULL, .list = a->noperands == 0};
    br_cli_term_init(&s.term, STDIN_FILENO, STDOUT_FILENO);
    br_cli_view_init(&s.view, s.term.colour, s.term.width);
    s.view.receipt = true;
    const char *run = s.list ? "" : a->operands[0];
    int code = -1;
    if (strlen(run) >= BR_ID_MAX)
        (void)br_err_set(&err, BR_E_NOT_FOUND,
                         "'%.80s' is no id of a run; 'bridle show' lists them", run);
    else
        code = ask_store(&s, run, &err);
    if (code < 0)
        code = br_code_exit((int)err.code);
    if (!s.json && !s.list) {
        br_cli_view_summary(&s.view);
        (void)print(&s, &s.view.out);
    }
    static const char none[] = "no run is recorded yet; try 'bridle demo'\n";
    if (s.list && !s.json && code == 0 && s.nrows == 0)
        (void)br_write_all(STDERR_FILENO, none, sizeof(none) - 1);
    if (s.term.broken)
        code = br_cli_lost_output(s.term.error);
    else if (err.code)
        (void)br_cli_fail(&err);
    br_cli_view_free(&s.view);
    return code;
}
