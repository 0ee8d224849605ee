/*
 * The terminal side of 'bridle repl': line editing, completion and history, with libedit.
 */
#include <dirent.h>
#include <errno.h>
#include <histedit.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/history.h"
#include "cli/repl.h"

#define HISTORY_FILE "repl_history"
/* Words that are offered at once. */
#define OFFERS_MAX 120u

struct repl_edit {
    struct repl *repl;
    EditLine *el;
    struct br_cli_history history;
    bool more;
    char *line;
    struct br_buf offers; /* NUL after each */
    unsigned noffers;
};

void repl_edit_remember(struct repl_edit *e, const char *line)
{
    br_cli_history_add(&e->history, line);
}

/* ---- completion ---- */

static void offer(struct repl_edit *e, const char *word, const char *typed)
{
    if (strncmp(word, typed, strlen(typed)) != 0 || e->noffers == OFFERS_MAX)
        return;
    for (size_t at = 0; at < e->offers.len; at += strlen((char *)e->offers.data + at) + 1)
        if (strcmp((char *)e->offers.data + at, word) == 0)
            return;
    if (br_buf_put(&e->offers, word, strlen(word) + 1) == 0)
        e->noffers++;
}

/* The ids of sessions, or the names of leases: the value of `key` in each line. */
static void offer_ids(struct repl_edit *e, const char *what, const char *key, const char *typed)
{
    struct repl_query q = {.what = what, .id = "", .type = ""};
    struct repl_data d;
    if (repl_data_get(&q, &d, NULL) == 0)
        for (size_t at = 0; at < d.lines.len;) {
            const uint8_t *line = d.lines.data + at, *nl = memchr(line, '\n', d.lines.len - at);
            json_t *v = json_loadb((const char *)line, (size_t)(nl - line), 0, NULL);
            const char *id = json_string_value(json_object_get(v, key));
            if (id)
                offer(e, id, typed);
            json_decref(v);
            at += (size_t)(nl - line) + 1;
        }
    repl_data_free(&d);
}

static void offer_words(struct repl_edit *e, unsigned kinds, const char *typed)
{
    for (const struct br_word *w = br_words; w->name; w++)
        if (w->kinds & kinds)
            offer(e, w->name, typed);
}

static void offer_names(struct repl_edit *e, const char *expression, const char *typed)
{
    struct repl_script *s = &e->repl->script;
    if (strlen(expression) >= BR_NAME_MAX || repl_script_names(s, expression, NULL) < 0)
        return;
    for (size_t at = 0; at < s->names.len; at += strlen((char *)s->names.data + at) + 1)
        offer(e, (char *)s->names.data + at, typed);
}

static void offer_types(struct repl_edit *e, const char *typed)
{
    static const char *const types[] = {
        "session.created",      "agent.started",       "agent.stopped",
        "model.request",        "model.response",      "tool.call",
        "tool.result",          "policy.decision",     "sandbox.started",
        "permission.requested", "permission.resolved", "sandbox.stopped",
        "bridle.run",           "bridle.votes",        "bridle.ask",
        "bridle.asks",          "bridle.grant",        "bridle.launch",
        "bridle.text",          "bridle.workspace",    "bridle.provider",
        "bridle.answered",      "bridle.exec",         "error"};
    for (size_t i = 0; i < BR_ARRAY_LEN(types); i++)
        offer(e, types[i], typed);
}

/* Lua files and directories that begin so. */
static void offer_files(struct repl_edit *e, const char *typed)
{
    char dir[BR_PATH_MAX], path[BR_PATH_MAX + 300];
    const char *slash = strrchr(typed, '/');
    snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - typed) + 1 : 2, slash ? typed : "./");
    DIR *d = opendir(dir);
    for (struct dirent *f; d && (f = readdir(d));) {
        const char *dot = strrchr(f->d_name, '.');
        struct stat st;
        if (f->d_name[0] == '.' || fstatat(dirfd(d), f->d_name, &st, 0) < 0 ||
            !(S_ISDIR(st.st_mode) || (dot && strcmp(dot, ".lua") == 0)) ||
            !br_utf8_valid(f->d_name, strlen(f->d_name)))
            continue;
        snprintf(path, sizeof(path), "%s%s%s", slash ? dir : "", f->d_name,
                 S_ISDIR(st.st_mode) ? "/" : "");
        offer(e, path, typed);
    }
    if (d)
        closedir(d);
}

/* What may stand at the end of `text`; returns where the part that it completes begins. */
static const char *find_offers(struct repl_edit *e, const char *text)
{
    br_buf_reset(&e->offers);
    e->noffers = 0;
    const char *blank = strrchr(text, ' '), *verb_end = text + strspn(text, " ");
    const struct br_word *verb = blank && blank > verb_end ? repl_line_verb(text) : NULL;
    if (verb) {
        const char *typed = blank + 1;
        unsigned words = 0;
        for (const char *p = verb_end; p < blank; p++)
            words += *p == ' ' && p[1] != ' ' && p + 1 <= blank;
        if (strcmp(verb->name, "help") == 0)
            offer_words(e, BR_WORD_VERB | BR_WORD_NAME, typed);
        else if (strcmp(verb->name, "events") == 0 && words >= 1)
            offer_types(e, typed);
        else if (strcmp(verb->name, "lease") == 0)
            offer_ids(e, "leases", "name", typed);
        else if (strcmp(verb->name, "policy") == 0)
            offer_files(e, typed);
        if (verb->verb && strstr(verb->verb, " ID") && words == 0) {
            offer(e, "last", typed);
            offer_ids(e, "sessions", "runId", typed);
        }
        return typed;
    }
    size_t n = strlen(text), at = n;
    while (at > 0 &&
           (strchr("_.[]", text[at - 1]) || (text[at - 1] >= '0' && text[at - 1] <= '9') ||
            ((text[at - 1] | 32) >= 'a' && (text[at - 1] | 32) <= 'z')))
        at--;
    /* a text of Lua code: session("run_ */
    if (at > 0 && (text[at - 1] == '"' || text[at - 1] == '\'')) {
        offer(e, "last", text + at);
        offer_ids(e, "sessions", "runId", text + at);
        return text + at;
    }
    const char *expression = text + at, *dot = strrchr(expression, '.');
    const char *typed = dot ? dot + 1 : expression;
    if (expression == verb_end)
        offer_words(e, BR_WORD_VERB, typed);
    offer_names(e, expression, typed);
    return typed;
}

/* How many bytes all offers have in common. */
static size_t common(const struct repl_edit *e)
{
    const char *first = (const char *)e->offers.data;
    size_t n = strlen(first);
    for (size_t at = 0; at < e->offers.len; at += strlen((char *)e->offers.data + at) + 1) {
        const char *other = (const char *)e->offers.data + at;
        size_t k = 0;
        while (k < n && first[k] == other[k])
            k++;
        n = k;
    }
    return n;
}

static void list_offers(struct repl_edit *e)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(64u * 1024);
    unsigned column = 0, width = e->repl->term.width;
    br_buf_printf(&b, "\n");
    for (size_t at = 0; at < e->offers.len; at += strlen((char *)e->offers.data + at) + 1) {
        const char *word = (const char *)e->offers.data + at;
        unsigned n = (unsigned)strlen(word);
        if (column && column + n + 2 > width) {
            br_buf_printf(&b, "\n");
            column = 0;
        }
        br_buf_printf(&b, column ? "  " : "");
        br_buf_put_visible(&b, word, n, true);
        column += n + 2;
    }
    br_buf_printf(&b, e->noffers == OFFERS_MAX ? "  ...\n" : "\n");
    br_cli_term_write(&e->repl->term, b.data, b.len);
}

static unsigned char complete(EditLine *el, int ch)
{
    struct repl_edit *e = NULL;
    char text[1024];
    (void)ch;
    (void)el_get(el, EL_CLIENTDATA, &e);
    const LineInfo *info = el_line(el);
    size_t n = (size_t)(info->cursor - info->buffer);
    if (!e || n >= sizeof(text))
        return CC_ERROR;
    memcpy(text, info->buffer, n);
    text[n] = '\0';
    const char *typed = find_offers(e, text);
    if (e->noffers == 0)
        return CC_ERROR;
    size_t have = strlen(typed), all = common(e);
    if (all <= have && e->noffers > 1) {
        list_offers(e);
        return CC_REDISPLAY;
    }
    char *more = strndup((char *)e->offers.data + have, all - have);
    if (!more || (more[0] && el_insertstr(el, more) < 0)) {
        free(more);
        return CC_ERROR;
    }
    free(more);
    return CC_REFRESH;
}

/* ---- lines ---- */

static char *prompt(EditLine *el)
{
    static char first[] = "bridle> ", next[] = "    ... ";
    struct repl_edit *e = NULL;
    (void)el_get(el, EL_CLIENTDATA, &e);
    return e && e->more ? next : first;
}

struct repl_edit *repl_edit_open(struct repl *r)
{
    struct repl_edit *e = calloc(1, sizeof(*e));
    if (!e)
        return NULL;
    e->repl = r;
    br_cli_history_open(&e->history, HISTORY_FILE);
    br_buf_init(&e->offers, 256u * 1024);
    br_cli_utf8_locale();
    e->el = el_init("bridle", stdin, stdout, stderr);
    if (!e->el || !e->history.lines) {
        repl_edit_close(&e);
        return NULL;
    }
    (void)el_set(e->el, EL_CLIENTDATA, e);
    (void)el_set(e->el, EL_PROMPT, prompt);
    (void)el_set(e->el, EL_EDITOR, "emacs");
    (void)el_set(e->el, EL_SIGNAL, 1);
    (void)el_set(e->el, EL_HIST, history, e->history.lines);
    /* (the other el_set() makes copies of both texts, and never frees them) */
    (void)el_wset(e->el, EL_ADDFN, L"bridle-complete", L"complete what is typed", complete);
    (void)el_set(e->el, EL_BIND, "^I", "bridle-complete", NULL);
    (void)el_set(e->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    return e;
}

void repl_edit_close(struct repl_edit **e)
{
    if (!*e)
        return;
    if ((*e)->el)
        el_end((*e)->el);
    br_cli_history_close(&(*e)->history);
    br_buf_free(&(*e)->offers);
    free((*e)->line);
    free(*e);
    *e = NULL;
}

enum repl_edit_end repl_edit_read(struct repl_edit *e, bool more, const char **line)
{
    int n = 0;
    struct br_cli_term *t = &e->repl->term;
    e->more = more;
    repl_interrupted = 0;
    const char *got = el_gets(e->el, &n);
    /* the terminal may have another size by now */
    br_cli_term_init(t, t->in, t->out);
    e->repl->view.width = t->width;
    if (repl_interrupted) {
        (void)br_write_all(t->out, "^C\n", 3);
        el_reset(e->el);
        return REPL_EDIT_INTERRUPTED;
    }
    free(e->line);
    e->line = got && n > 0 ? strndup(got, (size_t)n) : NULL;
    if (!e->line) {
        (void)br_write_all(t->out, "\n", 1);
        return REPL_EDIT_EOF;
    }
    e->line[strcspn(e->line, "\r\n")] = '\0';
    *line = e->line;
    return REPL_EDIT_LINE;
}
