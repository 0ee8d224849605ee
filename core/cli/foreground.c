/*
 * One run in the foreground, for `run` and `exec`: reads the operator's files, sends them to
 * bridled, shows what is stored, and has questions put to the operator (asking.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/asking.h"

#define TICK_US (250u * 1000)

struct fg {
    const struct br_cli_foreground *f;
    struct br_cli_client client;
    struct br_cli_term term;  /* where the view goes, and answers come from */
    struct br_cli_term asker; /* where questions are put: the same, or stderr with --json */
    struct br_cli_view view;
    struct br_cli_asking asking;
    bool interrupted;
    int tick;
    int lost; /* errno of output of the command that could not be passed on */
};

static void flush_view(struct fg *g)
{
    struct br_buf *b = &g->view.out;
    if (b->failed) {
        static const char lost[] =
            "  (a part of this was too large to show; it is in the record)\n";
        br_cli_term_write(&g->term, lost, sizeof(lost) - 1);
    } else {
        br_cli_term_write(&g->term, b->data, b->len);
    }
    br_buf_reset(b);
}

/* A run that nobody can watch any more is not to go on. */
static void check_output(struct fg *g)
{
    if (g->term.broken && !g->asking.canceling) {
        g->asking.canceling = true;
        br_cli_client_cancel(&g->client);
    }
}

/* ---- asks ----------------------------------------------------------------------------------- */

static void on_answer(void *ctx, const char *permission, unsigned scope, const char *note)
{
    struct fg *g = ctx;
    br_cli_client_answer(&g->client, permission, scope, note);
}

static void on_stuck(void *ctx)
{
    struct fg *g = ctx;
    br_cli_client_cancel(&g->client);
}

/* ---- hooks ---------------------------------------------------------------------------------- */

/* The command's own output, which is what `exec` is for. */
static void pass_stream(struct fg *g, const json_t *output, const char *key, int fd)
{
    const json_t *s = json_object_get(output, key);
    if (!json_is_string(s))
        return;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_VIEW_MAX);
    if (isatty(fd) == 1)
        br_buf_put_visible(&b, json_string_value(s), json_string_length(s), false);
    else
        br_buf_put(&b, json_string_value(s), json_string_length(s));
    errno = EIO;
    if (b.len && br_write_all(fd, b.data, b.len) < 0)
        g->lost = errno;
}

/* What the view does not tell: the result of the one command. */
static void pass_result(struct fg *g, const json_t *data)
{
    const json_t *output = json_object_get(data, "output");
    pass_stream(g, output, "stdout", STDOUT_FILENO);
    pass_stream(g, output, "stderr", STDERR_FILENO);
}

/* With a schema: the value that fits it, and nothing else. */
static void print_value(struct fg *g, const char *text, size_t n)
{
    json_t *event = json_loadb(text, n, 0, NULL);
    const json_t *artifact = json_object_get(json_object_get(event, "data"), "artifact");
    const json_t *value = json_object_get(artifact, "value");
    char *s = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS) : NULL;
    if (s) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_VIEW_MAX);
        if (g->term.tty_out)
            br_cli_put_json_safe(&b, s, strlen(s));
        else
            br_buf_put(&b, s, strlen(s));
        br_buf_put_u8(&b, '\n');
        br_cli_term_write(&g->term, b.data, b.len);
    }
    free(s);
    json_decref(event);
}

static void print_json(struct fg *g, const char *text, size_t n)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_VIEW_MAX);
    if (g->term.tty_out)
        br_cli_put_json_safe(&b, text, n);
    else
        br_buf_put(&b, text, n);
    br_buf_put_u8(&b, '\n');
    br_cli_term_write(&g->term, b.data, b.len);
}

static int on_event(void *ctx, const char *text, size_t n, struct br_err *err)
{
    struct fg *g = ctx;
    const char *type = g->view.type;
    int r = br_cli_view_event(&g->view, text, n, err);
    if (r < 0)
        return r;
    bool unshown = g->view.out.failed; /* a part of this was too large to show */
    bool result = strcmp(type, "tool.result") == 0 && g->f->mode == BR_RUN_EXEC && !g->f->json;
    bool wanted = br_cli_asking_wants(type);
    json_t *event = wanted || result ? json_loadb(text, n, 0, NULL) : NULL;
    const json_t *data = json_object_get(event, "data");
    if (wanted) /* before it is shown: a question's line ends here */
        br_cli_asking_before(&g->asking, type, data);
    if (g->f->json)
        print_json(g, text, n);
    if (g->f->json && (!br_cli_leads_to_ask(type) || !g->asking.can_ask))
        br_buf_reset(&g->view.out);
    if (g->f->schema) {
        br_buf_reset(&g->view.out);
        if (!g->f->json && strcmp(type, "bridle.harness.result") == 0)
            print_value(g, text, n);
    }
    if (!g->f->json)
        flush_view(g);
    if (result)
        pass_result(g, data);
    if (wanted)
        br_cli_asking_after(&g->asking, type, data, unshown);
    json_decref(event);
    check_output(g);
    return 0;
}

static void on_refused(void *ctx, const char *text)
{
    struct fg *g = ctx;
    br_cli_asking_refused(&g->asking, text);
}

static void on_canceling(void *ctx, int signo)
{
    struct fg *g = ctx;
    g->interrupted = true;
    br_cli_term_clear_status(&g->term);
    br_cli_asking_cancel(&g->asking);
    if (signo != SIGHUP)
        (void)!write(STDERR_FILENO, "canceling... (again to end it at once)\n", 39);
}

static int on_tick(void *ctx, struct br_err *err)
{
    struct fg *g = ctx;
    char text[256];
    (void)err;
    if (!g->asking.asking && br_cli_view_status(&g->view, text, sizeof(text)))
        br_cli_term_status(&g->term, text);
    g->tick = br_loop_timer(g->client.loop, TICK_US, on_tick, g);
    return 0;
}

/* A promotion: what it would change, before anything is asked. */
static int on_promote_row(void *ctx, const struct br_promote_row *row, const struct br_buf *diff)
{
    struct fg *g = ctx;
    if (g->f->json) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_VIEW_MAX);
        br_cli_promote_row_json(&b, row, diff);
        br_cli_term_write(&g->term, b.data, b.len);
    } else {
        br_cli_promote_row(&g->view, row, diff);
        flush_view(g);
    }
    check_output(g);
    return 0;
}

static int on_promote_plan(void *ctx, const struct br_cli_promotion *p)
{
    struct fg *g = ctx;
    if (!g->f->json) {
        br_cli_promote_plan(&g->view, p);
        flush_view(g);
    }
    check_output(g);
    return 0;
}

static const struct br_cli_hooks hooks = {.event = on_event,
                                          .refused = on_refused,
                                          .canceling = on_canceling,
                                          .promote_row = on_promote_row,
                                          .promote_plan = on_promote_plan};

static void setup_terminal(struct fg *g)
{
    bool exec = g->f->mode == BR_RUN_EXEC;
    br_cli_term_init(&g->term, STDIN_FILENO, exec && !g->f->json ? STDERR_FILENO : STDOUT_FILENO);
    br_cli_term_init(&g->asker, STDIN_FILENO, exec || g->f->json ? STDERR_FILENO : STDOUT_FILENO);
    g->asking =
        (struct br_cli_asking){.term = &g->asker,
                               .view = &g->view,
                               .answer = on_answer,
                               .stuck = on_stuck,
                               .ctx = g,
                               .yes = g->f->yes,
                               .can_ask = g->f->yes || (g->asker.tty_in && g->asker.tty_out)};
    const struct br_cli_term *t = g->f->json ? &g->asker : &g->term;
    br_cli_view_init(&g->view, t->colour, t->width);
    g->view.exec = exec;
}

static int serve(struct fg *g, struct br_err *err)
{
    if (g->term.tty_out && !g->f->json && !g->f->schema)
        g->tick = br_loop_timer(g->client.loop, TICK_US, on_tick, g);
    int r = br_cli_client_wait(&g->client, err);
    br_cli_asking_end(&g->asking);
    br_cli_term_clear_status(&g->term);
    if (!g->f->json && !g->f->schema) {
        br_cli_view_summary(&g->view);
        flush_view(g);
    }
    if (r == 0 && g->client.code) {
        bool closed = g->client.code == BR_E_CANCELED && g->term.broken && !g->interrupted;
        err->code = g->client.code;
        snprintf(err->text, sizeof(err->text), "%s",
                 !closed                  ? g->client.text
                 : g->term.error == EPIPE ? "the output was closed, so the run was canceled"
                                          : "the output could not be written any more, so the run "
                                            "was canceled");
    }
    return r;
}

int br_cli_foreground(const struct br_cli_foreground *f)
{
    struct br_err err = {.code = BR_OK};
    struct br_cli_documents d;
    struct fg *g = calloc(1, sizeof(*g));
    br_require(g);
    g->f = f;
    setup_terminal(g);
    int code = -1;
    int r = br_cli_documents_read(f, &d, &err);
    if (r == 0) {
        r = br_cli_client_open(&g->client, &hooks, g, &err);
        g->asking.loop = g->client.loop;
        if (r == 0)
            r = br_cli_documents_send(f, &d, g->asking.can_ask, &g->client, &err);
        if (r == 0)
            r = serve(g, &err);
        if (r == 0)
            code = (int)g->client.exit_code;
        br_cli_client_close(&g->client);
    }
    if (err.code) {
        int failed = br_cli_fail(&err);
        code = code >= 0 ? code : failed;
    }
    int lost = g->lost ? g->lost : g->term.broken ? g->term.error : 0;
    if (lost && code <= 0)
        code = br_cli_lost_output(lost);
    else if (lost && !err.code)
        (void)br_cli_lost_output(lost);
    br_cli_view_free(&g->view);
    br_cli_documents_free(&d);
    free(g);
    return code;
}
