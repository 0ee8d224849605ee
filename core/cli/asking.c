/*
 * Puts the questions of a turn to the operator, together or one by one, for `run`, `exec`,
 * `promote` and `connect`. While a question is open, events and signals are still served, so that a
 * canceled or expired one ends. What the questions are about is shown by the view.
 */
#include <poll.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "cli/asking.h"
#include "policy/policy.h"

#define SECONDS_SHOWN 5u

static void say(struct br_cli_asking *a, const char *text)
{
    br_cli_term_write(a->term, text, strlen(text));
}

static int on_input(void *ctx, int fd, short revents, struct br_err *err);

/* Without the operator's word: a guest leaves it to others. */
static void deny_unasked(struct br_cli_asking *a, const char *id, const char *note)
{
    if (!a->guest && !a->hold)
        a->answer(a->ctx, id, 0, note);
}

static void deny_all(struct br_cli_asking *a, const char *note)
{
    while (a->nasks)
        deny_unasked(a, a->asks[--a->nasks].id, note);
}

static bool all_for_the_run(const struct br_cli_asking *a, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (!a->asks[i].run)
            return false;
    return true;
}

/* How many are answered by the next line. */
static unsigned asked_now(const struct br_cli_asking *a)
{
    return a->each ? 1 : a->nasks;
}

static unsigned all_seconds(const struct br_cli_asking *a)
{
    return a->seconds ? a->seconds : BR_ASK_SECONDS;
}

/* That the first one of `n` still waits; a few that have gone do not matter. */
static unsigned seconds_left(const struct br_cli_asking *a, unsigned n)
{
    unsigned all = all_seconds(a);
    uint64_t now = br_now_us(), until = n ? UINT64_MAX : now;
    for (unsigned i = 0; i < n; i++)
        until = a->asks[i].until_us < until ? a->asks[i].until_us : until;
    unsigned left = until > now ? (unsigned)((until - now) / 1000000) : 0;
    return left + SECONDS_SHOWN >= all ? all : left ? left : 1;
}

static void word_question(const struct br_cli_asking *a, char out[96])
{
    unsigned n = asked_now(a), seconds = seconds_left(a, n);
    bool run = all_for_the_run(a, n), narrow = a->term->width < 64;
    if (narrow && n > 1)
        snprintf(out, 96, "  All %u? y%s, e each; else no (%u s): ", n, run ? ", r run" : "",
                 seconds);
    else if (narrow)
        snprintf(
            out, 96,
            run ? "  y once, r run; else no (%u s): " : "  Only y or yes does (%u s): ", seconds);
    else if (n > 1)
        snprintf(out, 96, "  Allow all %u? y once%s, e one by one; only these do (%u s): ", n,
                 run ? ", r for this run" : "", seconds);
    else if (run)
        snprintf(out, 96, "  Allow it? y once, r for this run; only these do (%u s): ", seconds);
    else
        snprintf(out, 96, "  Allow it this once? Only y or yes does (%u s): ", seconds);
}

static void put_question(struct br_cli_asking *a)
{
    if (a->asking || a->hold || a->nasks == 0)
        return;
    if (!a->can_ask || a->canceling) {
        deny_all(a, a->canceling ? "the run was canceled" : "there was no terminal to ask at");
        return;
    }
    if (a->yes) {
        while (a->nasks)
            a->answer(a->ctx, a->asks[--a->nasks].id, BR_SCOPE_ONCE, "--yes");
        return;
    }
    if (a->each && a->group > 1)
        br_cli_view_question(a->view, a->asks[0].id, a->group - a->nasks + 1, a->group);
    if (a->view->out.failed) { /* it cannot be shown again */
        br_buf_reset(&a->view->out);
        deny_all(a, "it was too large to be shown whole");
        return;
    }
    if (a->view->out.len) { /* with --json: only the question's own part of the view */
        br_cli_term_write(a->term, a->view->out.data, a->view->out.len);
        br_buf_reset(&a->view->out);
    }
    (void)tcflush(a->term->in, TCIFLUSH); /* what was typed before the question is no answer */
    char question[96];
    unsigned stalls = a->term->stalls;
    word_question(a, question);
    say(a, question);
    if (a->term->stalls != stalls) /* it was put, but could not be seen */
        (void)tcflush(a->term->in, TCIFLUSH);
    a->asking = true;
    a->nline = 0;
    a->line_long = false;
    if (br_loop_watch(a->loop, a->term->in, POLLIN, on_input, a) < 0)
        a->stuck(a->ctx);
}

static void end_question(struct br_cli_asking *a)
{
    br_loop_unwatch(a->loop, a->term->in);
    a->asking = false;
}

static void drop_ask(struct br_cli_asking *a, unsigned i)
{
    memmove(&a->asks[i], &a->asks[i + 1], (a->nasks - i - 1) * sizeof(a->asks[0]));
    a->nasks--;
}

/* What was put is answered, each by an answer of its own. */
static void answered(struct br_cli_asking *a, enum br_cli_answer answer, const char *note)
{
    unsigned n = asked_now(a);
    bool run = answer == BR_ANSWER_RUN && all_for_the_run(a, n);
    unsigned scope = run ? BR_SCOPE_RUN : answer == BR_ANSWER_ONCE ? BR_SCOPE_ONCE : 0;
    end_question(a);
    if (answer == BR_ANSWER_EACH && n > 1) {
        a->each = true;
        put_question(a);
        return;
    }
    /* what became of this one is shown before the next */
    a->after = scope == BR_SCOPE_RUN ? "bridle.grant" : "permission.resolved";
    for (; n; n--) {
        char id[sizeof(a->asks[0].id)];
        snprintf(id, sizeof(id), "%s", a->asks[0].id);
        drop_ask(a, 0);
        a->answer(a->ctx, id, scope, note);
    }
}

static void on_end_of_input(struct br_cli_asking *a)
{
    say(a, "\n");
    if (!a->guest) {
        answered(a, BR_ANSWER_NO, "no answer: end of input");
        return;
    }
    end_question(a);
    a->can_ask = false;
    a->nasks = 0;
}

static int on_input(void *ctx, int fd, short revents, struct br_err *err)
{
    struct br_cli_asking *a = ctx;
    char chunk[256];
    (void)revents;
    (void)err;
    ssize_t n = read(fd, chunk, sizeof(chunk));
    if (n <= 0) {
        on_end_of_input(a);
        return 0;
    }
    for (ssize_t i = 0; i < n; i++) {
        if (chunk[i] == '\n') {
            /* anything after the line was not typed in answer to the next question */
            answered(a, a->line_long ? BR_ANSWER_NO : br_cli_answer_read(a->line, a->nline), "");
            return 0;
        }
        if (a->nline < sizeof(a->line))
            a->line[a->nline++] = chunk[i];
        else
            a->line_long = true;
    }
    return 0;
}

/* ---- events --------------------------------------------------------------------------------- */

static void opened(struct br_cli_asking *a, const char *id, bool unshown)
{
    if (a->nasks == BR_CLI_ASKS_MAX || strlen(id) >= sizeof(a->asks[0].id)) {
        deny_unasked(a, id, "too many open questions");
        return;
    }
    if (a->nasks == 0)
        a->complete = false;
    struct br_cli_question *q = &a->asks[a->nasks++];
    uint64_t all = all_seconds(a) * 1000000ull, gone = a->age_us < all ? a->age_us : all;
    *q = (struct br_cli_question){.unshown = unshown, .until_us = br_now_us() + all - gone};
    snprintf(q->id, sizeof(q->id), "%s", id);
}

/* bridle.ask: more about one of them. */
static void described(struct br_cli_asking *a, const char *id, const json_t *data, bool unshown)
{
    const char *scope = json_string_value(json_object_get(data, "scope"));
    for (unsigned i = 0; i < a->nasks; i++) {
        if (strcmp(a->asks[i].id, id) != 0)
            continue;
        a->asks[i].run = scope && strcmp(scope, "run") == 0;
        a->asks[i].unshown |= unshown;
    }
}

/* bridle.asks: these are all of the turn. */
static void completed(struct br_cli_asking *a, bool unshown)
{
    for (unsigned i = 0; i < a->nasks;) {
        if (!a->asks[i].unshown && !unshown) {
            i++;
            continue;
        }
        deny_unasked(a, a->asks[i].id, "it was too large to be shown whole");
        drop_ask(a, i);
    }
    a->after = NULL;
    a->complete = true;
    a->group = a->lone ? 1 : a->nasks;
    a->each = a->lone || a->nasks == 1;
    put_question(a);
}

/* Somebody else ended an ask: its time ran out, or the run is being canceled. */
static void ended(struct br_cli_asking *a, const char *id)
{
    for (unsigned i = 0; i < a->nasks; i++) {
        if (strcmp(a->asks[i].id, id) != 0)
            continue;
        bool put = i < asked_now(a) && a->asking;
        if (put) {
            end_question(a);
            say(a, "\n");
        }
        drop_ask(a, i);
        if (put) /* the others are put again, once it was shown what became of this one */
            a->after = "permission.resolved";
        break;
    }
}

static const char *id_of(const json_t *data)
{
    return json_string_value(json_object_get(data, "permissionId"));
}

void br_cli_asking_before(struct br_cli_asking *a, const char *type, const json_t *data)
{
    if (strcmp(type, "permission.resolved") == 0 && id_of(data))
        ended(a, id_of(data));
}

void br_cli_asking_after(struct br_cli_asking *a, const char *type, const json_t *data,
                         bool unshown)
{
    const char *id = id_of(data);
    if (id && strcmp(type, "permission.requested") == 0) {
        opened(a, id, unshown);
        if (a->lone)
            completed(a, false);
    } else if (id && strcmp(type, "bridle.ask") == 0) {
        described(a, id, data, unshown);
    } else if (strcmp(type, "bridle.asks") == 0) {
        completed(a, unshown);
    }
    if (a->after && strcmp(type, a->after) == 0) {
        a->after = NULL;
        put_question(a);
    }
}

bool br_cli_asking_wants(const char *type)
{
    static const char *const types[] = {"permission.requested", "permission.resolved", "bridle.ask",
                                        "bridle.asks", "bridle.grant"};
    for (size_t i = 0; i < BR_ARRAY_LEN(types); i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return false;
}

void br_cli_asking_refused(struct br_cli_asking *a, const char *text)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4 * BR_ERR_TEXT_MAX);
    if (!a->can_ask || a->canceling)
        return; /* it had been denied already */
    br_buf_printf(&b, "  the answer came too late: ");
    br_cli_put_line(&b, text, strlen(text), 200);
    br_buf_put_u8(&b, '\n');
    br_cli_term_write(a->term, b.data, b.len);
    if (a->after) { /* the event that it waits for may have gone by */
        a->after = NULL;
        put_question(a);
    }
}

void br_cli_asking_release(struct br_cli_asking *a)
{
    a->hold = false;
    a->after = NULL;
    if (a->complete)
        put_question(a);
}

void br_cli_asking_cancel(struct br_cli_asking *a)
{
    a->canceling = true;
    if (a->asking) {
        end_question(a);
        say(a, "\n");
        put_question(a);
    }
}

void br_cli_asking_end(struct br_cli_asking *a)
{
    if (a->asking) {
        end_question(a);
        say(a, "\n");
    }
    a->nasks = 0;
}

bool br_cli_leads_to_ask(const char *type)
{
    static const char *const types[] = {"tool.call",  "policy.decision", "bridle.votes",
                                        "bridle.ask", "bridle.asks",     "permission.requested"};
    for (size_t i = 0; i < BR_ARRAY_LEN(types); i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return false;
}
