/*
 * bridle repl: look through sessions, leases, decisions and policies. A line is a fixed verb, or
 * else Lua, evaluated over read-only snapshots in a process of its own (repl_script.c). Nothing
 * here can change a run, a record or a lease.
 *
 * With a terminal on both sides lines are edited and errors do not end anything; otherwise lines
 * are read from standard input, or code is given with -e, and the first failure ends it with
 * status 1.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/repl.h"

static void on_sigint(int signo)
{
    (void)signo;
    repl_interrupted = 1;
}

static void on_print(void *ctx, const char *s, size_t n)
{
    struct repl *r = ctx;
    br_buf_put_visible(&r->view.out, s, n, false);
    repl_flush(r);
}

static void on_left_out(void *ctx, const struct repl_query *q, const struct repl_data *d)
{
    repl_say_left_out(ctx, q, d);
}

/* What came back, for a terminal or a pipe; its own line ends stay. */
static void print_result(struct repl *r)
{
    const struct br_buf *b = &r->script.result;
    if (b->len == 0)
        return;
    if (!r->json)
        br_buf_put_visible(&r->view.out, (char *)b->data, b->len, false);
    else if (r->term.tty_out)
        br_cli_put_json_safe(&r->view.out, (char *)b->data, b->len - 1);
    else
        br_buf_put(&r->view.out, b->data, b->len - 1);
    if (r->json)
        br_buf_put_u8(&r->view.out, '\n');
    repl_flush(r);
}

/* 1: the code is not complete. */
static int eval_lua(struct repl *r, const char *chunk, uint32_t line, const char *code, size_t n,
                    bool may_go_on, struct br_err *err)
{
    unsigned flags = (r->json ? REPL_JSON : 0) | (may_go_on ? REPL_MORE : 0);
    if (!br_utf8_valid(code, n))
        return br_err_set(err, BR_E_USAGE, "the code is not valid UTF-8; nothing was evaluated");
    int res = repl_script_eval(&r->script, flags, &r->limits, chunk, line, code, n, err);
    if (res < 0)
        return res;
    if (r->script.status == 1)
        return 1;
    if (r->script.status == 0) {
        print_result(r);
        return 0;
    }
    *err = r->script.why;
    const char *meant = repl_line_meant(code);
    if (meant && !strstr(err->text, "did you mean")) {
        struct br_err lua = *err;
        return br_err_set(err, BR_E_USAGE,
                          "that is no verb; did you mean '%s'? As Lua it fails: %s", meant,
                          lua.text);
    }
    return -(int)err->code;
}

/* One line or one piece of code. 1: it goes on. */
static int eval(struct repl *r, const char *chunk, uint32_t line, const char *code, size_t n,
                bool may_go_on, struct br_err *err)
{
    const struct br_word *verb = NULL;
    if (memchr(code, '\0', n))
        return br_err_set(err, BR_E_USAGE, "there is a NUL byte in the line; nothing was done");
    if (r->pending.len == 0 && !memchr(code, '\n', n))
        verb = repl_line_verb(code);
    if (verb) {
        struct repl_line l;
        int res = repl_line_split(code, &l, err);
        if (res == 0)
            res = repl_verb(r, verb, &l, err);
        repl_line_free(&l);
        return res;
    }
    if (r->pending.len == 0)
        r->pending_line = line;
    else
        br_buf_put_u8(&r->pending, '\n');
    br_buf_put(&r->pending, code, n);
    const char *all = br_buf_cstr(&r->pending);
    int res = !all ? br_err_set(err, BR_E_USAGE,
                                "the code is longer than %u bytes; nothing was "
                                "evaluated",
                                4 * REPL_LINE_MAX)
                   : eval_lua(r, chunk, r->pending_line, all, r->pending.len, may_go_on, err);
    if (res != 1)
        br_buf_reset(&r->pending);
    return res;
}

/* Say why it failed; a verb that has said it itself leaves no text. */
static void complain(struct repl *r, struct br_err *err)
{
    if (repl_interrupted && r->interactive) /* behind the "^C" that the terminal shows */
        br_cli_term_write(&r->term, "\n", 1);
    if (err->text[0] && !r->term.broken)
        (void)br_cli_fail(err);
}

/* ---- where lines come from ---- */

static int run_codes(struct repl *r, const struct br_cli_args *a)
{
    for (unsigned i = 0; i < a->nmany && !r->quit && !r->term.broken; i++) {
        struct br_err err = {.code = BR_OK};
        char chunk[16];
        snprintf(chunk, sizeof(chunk), a->nmany > 1 ? "-e %u" : "-e", i + 1);
        if (eval(r, chunk, 1, a->many[i], strlen(a->many[i]), false, &err) < 0) {
            complain(r, &err);
            return 1;
        }
    }
    return 0;
}

static int run_lines(struct repl *r, FILE *in)
{
    char *line = NULL;
    size_t cap = 0;
    int res = 0;
    uint32_t number = 0;
    struct br_err err = {.code = BR_OK};
    while (res >= 0 && !r->quit && !r->term.broken) {
        errno = 0;
        ssize_t n = getline(&line, &cap, in);
        if (n < 0 && errno)
            res = br_err_errno(&err, BR_E_IO, "standard input could not be read");
        if (n < 0)
            break;
        number++;
        while (n && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            line[--n] = '\0';
        if ((size_t)n > REPL_LINE_MAX)
            res = br_err_set(&err, BR_E_USAGE, "line %u is longer than %u bytes; nothing was done",
                             number, REPL_LINE_MAX);
        else
            res = eval(r, "stdin", number, line, (size_t)n, true, &err);
        if (repl_interrupted && res >= 0)
            res = br_err_set(&err, BR_E_CANCELED, "interrupted");
    }
    if (res == 1) /* say what is wrong with what is there */
        res = eval_lua(r, "stdin", r->pending_line, (char *)r->pending.data, r->pending.len, false,
                       &err);
    free(line);
    if (res < 0)
        complain(r, &err);
    return res < 0 ? 1 : 0;
}

static int run_terminal(struct repl *r)
{
    static const char hello[] =
        "Bridle inspector: verbs or Lua, 'help' lists them, 'quit' or Ctrl-D leaves.\n";
    struct repl_edit *e = repl_edit_open(r);
    bool more = false;
    if (!e)
        return run_lines(r, stdin);
    br_cli_term_write(&r->term, hello, sizeof(hello) - 1);
    while (!r->quit && !r->term.broken) {
        const char *line;
        struct br_err err = {.code = BR_OK};
        enum repl_edit_end end = repl_edit_read(e, more, &line);
        if (end == REPL_EDIT_EOF)
            break;
        repl_interrupted = 0;
        if (end == REPL_EDIT_INTERRUPTED) {
            br_buf_reset(&r->pending);
            more = false;
            continue;
        }
        if (line[strspn(line, " \t")] == '\0' && !more)
            continue;
        repl_edit_remember(e, line);
        int res = eval(r, "line", 1, line, strlen(line), true, &err);
        more = res == 1;
        if (res < 0)
            complain(r, &err);
        repl_interrupted = 0;
    }
    repl_edit_close(&e);
    return 0;
}

int br_cli_repl(const struct br_cli_args *a)
{
    struct repl r = {.json = br_cli_opt(a, "json") != NULL,
                     .limits = {.depth = 4, .items = 40, .bytes = 64u * 1024},
                     .pending = BR_BUF_INIT(4 * REPL_LINE_MAX)};
    struct sigaction on_int = {.sa_handler = on_sigint}, old_int;
    br_cli_term_init(&r.term, STDIN_FILENO, STDOUT_FILENO);
    br_cli_view_init(&r.view, r.term.colour, r.term.width);
    repl_script_init(&r.script);
    r.script.print = on_print;
    r.script.left_out = on_left_out;
    r.script.ctx = &r;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)sigaction(SIGINT, &on_int, &old_int);
    int code;
    if (a->nmany > 0) {
        code = run_codes(&r, a);
    } else if (r.term.tty_in && r.term.tty_out) {
        r.interactive = true;
        code = run_terminal(&r);
    } else {
        code = run_lines(&r, stdin);
    }
    repl_script_close(&r.script);
    if (r.term.broken)
        code = br_cli_lost_output(r.term.error);
    br_cli_view_free(&r.view);
    br_buf_free(&r.pending);
    return code;
}
