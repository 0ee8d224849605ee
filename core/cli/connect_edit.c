/*
 * The prompt of 'bridle connect': a line that can be edited, with history, while the connection is
 * served: libedit asks this file for each character, and while there is none, the loop runs. A line
 * that ends in a backslash goes on in the next one.
 */
#include <errno.h>
#include <histedit.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "cli/connect.h"
#include "cli/history.h"

#define HISTORY_FILE "connect_history"

struct connect_edit {
    struct connect *c;
    EditLine *el;
    struct br_cli_history history;
    struct br_buf text; /* of the lines so far */
    bool ready;
    int code; /* why there are no more characters: a negative code, or 0 */
    struct br_err *err;
};

static int on_ready(void *ctx, int fd, short revents, struct br_err *err)
{
    struct connect_edit *e = ctx;
    (void)revents;
    (void)err;
    br_loop_unwatch(e->c->loop, fd);
    e->ready = true;
    return 0;
}

/* Signals end the waiting as well. */
static int wait_ready(struct connect_edit *e)
{
    struct connect *c = e->c;
    e->ready = false;
    if (br_loop_watch(c->loop, c->term.in, POLLIN, on_ready, e) < 0)
        return -BR_E_INTERNAL;
    int r = 0;
    while (r == 0 && !e->ready && !c->edit_break && !c->left) {
        r = br_loop_run_until(c->loop, &e->ready, br_now_us() + 100000, e->err);
        if (r == -BR_E_TIMEOUT && e->err->code == BR_OK)
            r = 0;
    }
    br_loop_unwatch(c->loop, c->term.in);
    return r;
}

static int get_char(EditLine *el, wchar_t *out)
{
    struct connect_edit *e = NULL;
    mbstate_t state = {0};
    (void)el_get(el, EL_CLIENTDATA, &e);
    for (;;) {
        char byte;
        e->code = wait_ready(e);
        if (e->code < 0 || e->c->edit_break || e->c->left)
            return -1;
        ssize_t n = read(e->c->term.in, &byte, 1);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0)
            return (int)n;
        size_t k = mbrtowc(out, &byte, 1, &state);
        if (k == 0 || k == 1)
            return 1;
        if (k == (size_t)-1) /* no character: what was typed goes on behind it */
            memset(&state, 0, sizeof(state));
    }
}

static char *prompt(EditLine *el)
{
    static char first[] = "bridle> ", next[] = "    ... ";
    struct connect_edit *e = NULL;
    (void)el_get(el, EL_CLIENTDATA, &e);
    return e && e->text.len ? next : first;
}

struct connect_edit *connect_edit_open(struct connect *c)
{
    struct connect_edit *e = calloc(1, sizeof(*e));
    if (!e)
        return NULL;
    e->c = c;
    br_buf_init(&e->text, CONNECT_PROMPT_MAX + 1);
    br_cli_utf8_locale();
    br_cli_history_open(&e->history, HISTORY_FILE);
    e->el = el_init("bridle", stdin, stdout, stderr);
    if (!e->el || !e->history.lines) {
        connect_edit_close(&e);
        return NULL;
    }
    (void)el_set(e->el, EL_CLIENTDATA, e);
    (void)el_set(e->el, EL_PROMPT, prompt);
    (void)el_set(e->el, EL_EDITOR, "emacs");
    (void)el_set(e->el, EL_HIST, history, e->history.lines);
    (void)el_set(e->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    (void)el_wset(e->el, EL_GETCFN, get_char);
    return e;
}

void connect_edit_close(struct connect_edit **ep)
{
    struct connect_edit *e = br_steal_ptr(ep);
    if (!e)
        return;
    if (e->el)
        el_end(e->el);
    br_cli_history_close(&e->history);
    br_buf_free(&e->text);
    free(e);
}

/* One line; 1, 0 at the end, -BR_E_CANCELED after Ctrl-C, or what broke. */
static int read_line(struct connect_edit *e, const char **line, size_t *n)
{
    struct connect *c = e->c;
    int count = 0;
    c->edit_break = false;
    c->editing = true;
    e->code = 0;
    /* before the prompt is there: otherwise what is typed at once, a Ctrl-D, can get lost */
    (void)el_set(e->el, EL_PREP_TERM, 1);
    const char *got = el_gets(e->el, &count);
    c->editing = false;
    if (e->code < 0)
        return e->code;
    if (c->left)
        return 0;
    if (c->edit_break) {
        (void)br_write_all(c->term.out, "^C\n", 3);
        el_reset(e->el);
        return -BR_E_CANCELED;
    }
    if (!got || count <= 0) {
        (void)br_write_all(c->term.out, "\n", 1);
        return 0;
    }
    *line = got;
    *n = strcspn(got, "\r\n");
    return 1;
}

int connect_edit_read(struct connect_edit *e, const char **out, struct br_err *err)
{
    br_buf_reset(&e->text);
    e->err = err;
    for (;;) {
        const char *line = "";
        size_t n = 0;
        int r = read_line(e, &line, &n);
        if (r == -BR_E_CANCELED) {
            br_buf_reset(&e->text);
            continue;
        }
        if (r <= 0)
            return r;
        bool more = n && line[n - 1] == '\\';
        br_buf_put(&e->text, line, more ? n - 1 : n);
        if (more) {
            br_buf_put_u8(&e->text, '\n');
            continue;
        }
        const char *text = br_buf_cstr(&e->text);
        if (!text || e->text.len > CONNECT_PROMPT_MAX) {
            connect_say(e->c, "that is too long; nothing was sent\n");
            br_buf_reset(&e->text);
            continue;
        }
        if (text[strspn(text, " \t\n")]) {
            if (!strchr(text, '\n'))
                br_cli_history_add(&e->history, text);
            *out = text;
            return 1;
        }
        br_buf_reset(&e->text);
    }
}
