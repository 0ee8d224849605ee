/*
 * One run in the foreground, for `run` and `exec`: reads the operator's files, sends them to
 * bridled, shows what is stored, and puts the questions of a turn to the operator, together or one
 * by one. Only a line of `y`, `yes`, `r` or `run` that was typed at a terminal after the question
 * was shown allows; everything else denies. While a question is open, events and signals are still
 * served, so that a canceled or expired one ends.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "cli/cli.h"
#include "policy/policy.h"

#define TICK_US (250u * 1000)
#define ANSWER_MAX 64u
#define ASKS_MAX BR_TOOL_CALLS_PER_TURN_MAX

/* A question of the present turn. */
struct question {
    char id[BR_ID_MAX];
    bool run;     /* may be allowed for the rest of the run */
    bool unshown; /* it was too large to be shown whole */
};

struct fg {
    const struct br_cli_foreground *f;
    struct br_cli_client client;
    struct br_cli_term term;  /* where the view goes, and answers come from */
    struct br_cli_term asker; /* where questions are put: the same, or stderr with --json */
    struct br_cli_view view;
    bool can_ask;
    bool canceling, interrupted;
    bool unshown;                   /* a part of the last event was too large to show */
    struct question asks[ASKS_MAX]; /* open ones, the first is the one being put */
    unsigned nasks, group;          /* group: how many of the turn were put together */
    const char *after;              /* the next one is put after an event of this type */
    bool each;                      /* they are put one by one */
    bool asking;
    char answer[ANSWER_MAX];
    size_t nanswer;
    bool answer_long;
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
    if (g->term.broken && !g->canceling) {
        g->canceling = true;
        br_cli_client_cancel(&g->client);
    }
}

/* ---- asks ----------------------------------------------------------------------------------- */

static void say(struct fg *g, const char *text)
{
    br_cli_term_write(&g->asker, text, strlen(text));
}

static int on_input(void *ctx, int fd, short revents, struct br_err *err);

static void deny_all(struct fg *g, const char *note)
{
    while (g->nasks)
        br_cli_client_answer(&g->client, g->asks[--g->nasks].id, 0, note);
}

static bool all_for_the_run(const struct fg *g, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (!g->asks[i].run)
            return false;
    return true;
}

/* How many are answered by the next line. */
static unsigned asked_now(const struct fg *g)
{
    return g->each ? 1 : g->nasks;
}

static void word_question(const struct fg *g, char out[96])
{
    unsigned n = asked_now(g);
    bool run = all_for_the_run(g, n);
    if (n > 1)
        snprintf(out, 96, "  Allow all %u? y once%s, e one by one; only these do (%u s): ", n,
                 run ? ", r for this run" : "", BR_ASK_SECONDS);
    else if (run)
        snprintf(out, 96,
                 "  Allow it? y once, r for this run; only these do (%u s): ", BR_ASK_SECONDS);
    else
        snprintf(out, 96, "  Allow it this once? Only y or yes does (%u s): ", BR_ASK_SECONDS);
}

static void put_question(struct fg *g)
{
    if (g->asking || g->nasks == 0)
        return;
    if (!g->can_ask || g->canceling) {
        deny_all(g, g->canceling ? "the run was canceled" : "there was no terminal to ask at");
        return;
    }
    if (g->f->yes) { /* the operator's word, on the command line */
        while (g->nasks)
            br_cli_client_answer(&g->client, g->asks[--g->nasks].id, BR_SCOPE_ONCE, "--yes");
        return;
    }
    if (g->each && g->group > 1)
        br_cli_view_question(&g->view, g->asks[0].id, g->group - g->nasks + 1, g->group);
    if (g->view.out.failed) { /* it cannot be shown again */
        br_buf_reset(&g->view.out);
        deny_all(g, "it was too large to be shown whole");
        return;
    }
    if (g->view.out.len) { /* with --json: only the question's own part of the view */
        br_cli_term_write(&g->asker, g->view.out.data, g->view.out.len);
        br_buf_reset(&g->view.out);
    }
    (void)tcflush(g->asker.in, TCIFLUSH); /* what was typed before the question is no answer */
    char question[96];
    word_question(g, question);
    say(g, question);
    g->asking = true;
    g->nanswer = 0;
    g->answer_long = false;
    if (br_loop_watch(g->client.loop, g->asker.in, POLLIN, on_input, g) < 0)
        br_cli_client_cancel(&g->client);
}

static void end_question(struct fg *g)
{
    br_loop_unwatch(g->client.loop, g->asker.in);
    g->asking = false;
}

static void drop_ask(struct fg *g, unsigned i)
{
    memmove(&g->asks[i], &g->asks[i + 1], (g->nasks - i - 1) * sizeof(g->asks[0]));
    g->nasks--;
}

/* What was put is answered, each by an answer of its own. */
static void answered(struct fg *g, enum br_cli_answer answer, const char *note)
{
    unsigned n = asked_now(g);
    bool run = answer == BR_ANSWER_RUN && all_for_the_run(g, n);
    unsigned scope = run ? BR_SCOPE_RUN : answer == BR_ANSWER_ONCE ? BR_SCOPE_ONCE : 0;
    end_question(g);
    if (answer == BR_ANSWER_EACH && n > 1) {
        g->each = true;
        put_question(g);
        return;
    }
    for (; n; n--) {
        br_cli_client_answer(&g->client, g->asks[0].id, scope, note);
        drop_ask(g, 0);
    }
    /* what became of this one is shown before the next */
    g->after = scope == BR_SCOPE_RUN ? "bridle.grant" : "permission.resolved";
}

static int on_input(void *ctx, int fd, short revents, struct br_err *err)
{
    struct fg *g = ctx;
    char chunk[256];
    (void)revents;
    (void)err;
    ssize_t n = read(fd, chunk, sizeof(chunk));
    if (n <= 0) {
        say(g, "\n");
        answered(g, BR_ANSWER_NO, "no answer: end of input");
        return 0;
    }
    for (ssize_t i = 0; i < n; i++) {
        if (chunk[i] == '\n') {
            /* anything after the line was not typed in answer to the next question */
            answered(g, g->answer_long ? BR_ANSWER_NO : br_cli_answer_read(g->answer, g->nanswer),
                     "");
            return 0;
        }
        if (g->nanswer < sizeof(g->answer))
            g->answer[g->nanswer++] = chunk[i];
        else
            g->answer_long = true;
    }
    return 0;
}

static void ask_opened(struct fg *g, const char *id)
{
    if (g->nasks == ASKS_MAX || strlen(id) >= sizeof(g->asks[0].id)) {
        br_cli_client_answer(&g->client, id, 0, "too many open questions");
        return;
    }
    struct question *q = &g->asks[g->nasks++];
    *q = (struct question){.unshown = g->unshown};
    snprintf(q->id, sizeof(q->id), "%s", id);
}

/* bridle.ask: more about one of them. */
static void ask_described(struct fg *g, const char *id, const json_t *data)
{
    const char *scope = json_string_value(json_object_get(data, "scope"));
    for (unsigned i = 0; i < g->nasks; i++) {
        if (strcmp(g->asks[i].id, id) != 0)
            continue;
        g->asks[i].run = scope && strcmp(scope, "run") == 0;
        g->asks[i].unshown |= g->unshown;
    }
}

/* bridle.asks: these are all of the turn. */
static void asks_complete(struct fg *g)
{
    for (unsigned i = 0; i < g->nasks;) {
        if (!g->asks[i].unshown && !g->unshown) {
            i++;
            continue;
        }
        br_cli_client_answer(&g->client, g->asks[i].id, 0, "it was too large to be shown whole");
        drop_ask(g, i);
    }
    g->after = NULL;
    g->group = g->nasks;
    g->each = g->nasks == 1;
    put_question(g);
}

/* Somebody else ended an ask: its time ran out, or the run is being canceled. */
static void ask_ended(struct fg *g, const char *id)
{
    for (unsigned i = 0; i < g->nasks; i++) {
        if (strcmp(g->asks[i].id, id) != 0)
            continue;
        if (i < asked_now(g) && g->asking) {
            end_question(g);
            say(g, "\n");
        }
        drop_ask(g, i);
        break;
    }
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

/* What the view does not tell: ids of asks, and the result of the one command. */
static void look_inside(struct fg *g, const char *text, size_t n)
{
    json_t *event = json_loadb(text, n, 0, NULL);
    const json_t *data = json_object_get(event, "data");
    const char *type = json_string_value(json_object_get(event, "type"));
    const char *id = json_string_value(json_object_get(data, "permissionId"));
    if (type && id && strcmp(type, "permission.requested") == 0)
        ask_opened(g, id);
    else if (type && id && strcmp(type, "permission.resolved") == 0)
        ask_ended(g, id);
    else if (type && id && strcmp(type, "bridle.ask") == 0)
        ask_described(g, id, data);
    else if (type && strcmp(type, "bridle.asks") == 0)
        asks_complete(g);
    else if (type && strcmp(type, "tool.result") == 0 && g->f->mode == BR_RUN_EXEC && !g->f->json) {
        const json_t *output = json_object_get(data, "output");
        pass_stream(g, output, "stdout", STDOUT_FILENO);
        pass_stream(g, output, "stderr", STDERR_FILENO);
    }
    json_decref(event);
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

/* With --json the view is not shown, but what led to a question is kept for the question. */
static bool leads_to_ask(const char *type)
{
    static const char *const types[] = {"tool.call",  "policy.decision", "bridle.votes",
                                        "bridle.ask", "bridle.asks",     "permission.requested"};
    for (size_t i = 0; i < BR_ARRAY_LEN(types); i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return false;
}

static int on_event(void *ctx, const char *text, size_t n, struct br_err *err)
{
    struct fg *g = ctx;
    const char *type = g->view.type;
    int r = br_cli_view_event(&g->view, text, n, err);
    if (r < 0)
        return r;
    g->unshown = g->view.out.failed;
    if (strcmp(type, "permission.resolved") == 0)
        look_inside(g, text, n); /* before it is shown: the question's line ends here */
    if (g->f->json)
        print_json(g, text, n);
    if (g->f->json && (!leads_to_ask(type) || !g->can_ask))
        br_buf_reset(&g->view.out);
    if (g->f->schema) {
        br_buf_reset(&g->view.out);
        if (!g->f->json && strcmp(type, "bridle.harness.result") == 0)
            print_value(g, text, n);
    }
    if (!g->f->json)
        flush_view(g);
    static const char *const inside[] = {"permission.requested", "bridle.ask", "bridle.asks",
                                         "tool.result"};
    for (size_t i = 0; i < BR_ARRAY_LEN(inside); i++)
        if (strcmp(type, inside[i]) == 0)
            look_inside(g, text, n);
    if (g->after && strcmp(type, g->after) == 0) {
        g->after = NULL;
        put_question(g);
    }
    check_output(g);
    return 0;
}

static void on_refused(void *ctx, const char *text)
{
    struct fg *g = ctx;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4 * BR_ERR_TEXT_MAX);
    if (!g->can_ask || g->canceling)
        return; /* the session had denied it already */
    br_buf_printf(&b, "  the answer came too late: ");
    br_cli_put_line(&b, text, strlen(text), 200);
    br_buf_put_u8(&b, '\n');
    br_cli_term_write(&g->asker, b.data, b.len);
}

static void on_canceling(void *ctx, int signo)
{
    struct fg *g = ctx;
    g->canceling = g->interrupted = true;
    br_cli_term_clear_status(&g->term);
    if (g->asking) {
        end_question(g);
        say(g, "\n");
        put_question(g);
    }
    if (signo != SIGHUP)
        (void)!write(STDERR_FILENO, "canceling... (again to end it at once)\n", 39);
}

static int on_tick(void *ctx, struct br_err *err)
{
    struct fg *g = ctx;
    char text[256];
    (void)err;
    if (!g->asking && br_cli_view_status(&g->view, text, sizeof(text)))
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
    g->can_ask = g->f->yes || (g->asker.tty_in && g->asker.tty_out);
    const struct br_cli_term *t = g->f->json ? &g->asker : &g->term;
    br_cli_view_init(&g->view, t->colour, t->width);
    g->view.exec = exec;
}

static int serve(struct fg *g, struct br_err *err)
{
    if (g->term.tty_out && !g->f->json && !g->f->schema)
        g->tick = br_loop_timer(g->client.loop, TICK_US, on_tick, g);
    int r = br_cli_client_wait(&g->client, err);
    if (g->asking) {
        end_question(g);
        say(g, "\n");
    }
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
        if (r == 0)
            r = br_cli_documents_send(f, &d, g->can_ask, &g->client, &err);
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
