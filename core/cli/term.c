/*
 * The terminal: what it can do, one rewritten status line, and what counts as a yes. The view of a
 * run reaches its output through this file only; everything in it was made safe by the view.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"

/* What an output that can take something takes at once. */
#define CHUNK 512u

static bool wants_colour(void)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return !(no && no[0]) && term && term[0] && strcmp(term, "dumb") != 0;
}

void br_cli_term_init(struct br_cli_term *t, int in, int out)
{
    *t = (struct br_cli_term){.in = in, .out = out, .width = BR_CLI_WIDTH};
    t->tty_in = isatty(in) == 1;
    t->tty_out = isatty(out) == 1;
    t->colour = t->tty_out && wants_colour();
    struct winsize ws;
    if (t->tty_out && ioctl(out, TIOCGWINSZ, &ws) == 0 && ws.ws_col >= 40)
        t->width = ws.ws_col < BR_CLI_WIDTH ? ws.ws_col : BR_CLI_WIDTH;
}

static bool takes(const struct br_cli_term *t)
{
    struct pollfd p = {.fd = t->out, .events = POLLOUT};
    return !t->stalled || poll(&p, 1, 0) != 0;
}

void br_cli_term_write(struct br_cli_term *t, const void *p, size_t n)
{
    const char *at = p;
    if (n == 0 || t->broken)
        return;
    br_cli_term_clear_status(t);
    while (n && !t->broken) {
        size_t k = t->stalled && n > CHUNK ? CHUNK : n;
        if (!takes(t)) {
            t->stalls++;
            if (!t->stalled(t->stalled_ctx, t->out))
                return;
        }
        errno = EIO;
        if (br_write_all(t->out, at, k) < 0) {
            t->broken = true;
            t->error = errno;
        }
        at += k;
        n -= k;
    }
}

static bool can_rewrite(const struct br_cli_term *t)
{
    const char *term = getenv("TERM");
    return t->tty_out && !t->broken && term && term[0] && strcmp(term, "dumb") != 0;
}

void br_cli_term_status(struct br_cli_term *t, const char *text)
{
    if (!can_rewrite(t) || !takes(t))
        return;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1024);
    br_buf_printf(&b, "\r\033[K%s%.*s%s", t->colour ? "\033[2m" : "", (int)t->width - 1, text,
                  t->colour ? "\033[0m" : "");
    if (!b.failed && br_write_all(t->out, b.data, b.len) == 0)
        t->status_shown = true;
}

void br_cli_term_clear_status(struct br_cli_term *t)
{
    if (t->status_shown && takes(t))
        (void)br_write_all(t->out, "\r\033[K", 4);
    t->status_shown = false;
}

enum br_cli_answer br_cli_answer_read(const char *line, size_t n)
{
    static const struct {
        const char *word;
        enum br_cli_answer answer;
    } words[] = {{"y", BR_ANSWER_ONCE},  {"yes", BR_ANSWER_ONCE}, {"r", BR_ANSWER_RUN},
                 {"run", BR_ANSWER_RUN}, {"e", BR_ANSWER_EACH},   {"each", BR_ANSWER_EACH}};
    while (n && (line[n - 1] == '\n' || line[n - 1] == '\r' || line[n - 1] == ' ' ||
                 line[n - 1] == '\t'))
        n--;
    while (n && (*line == ' ' || *line == '\t')) {
        line++;
        n--;
    }
    for (size_t i = 0; i < BR_ARRAY_LEN(words); i++) {
        size_t at = 0;
        while (at < n && words[i].word[at] &&
               (line[at] == words[i].word[at] || line[at] == words[i].word[at] - 0x20))
            at++;
        if (at == n && !words[i].word[at] && n)
            return words[i].answer;
    }
    return BR_ANSWER_NO;
}
