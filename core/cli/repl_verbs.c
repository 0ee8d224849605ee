/*
 * The fixed verbs of 'bridle repl'. Each reads one snapshot and prints it; `policy` and `why
 * ACTION` are those of 'bridle policy'. No Lua is involved.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/repl.h"

/* Rows of a record that are printed at once. */
#define SCREEN_ROWS 200u

void repl_flush(struct repl *r)
{
    br_cli_term_write(&r->term, r->view.out.data, r->view.out.len);
    br_buf_reset(&r->view.out);
}

void repl_say_left_out(struct repl *r, const struct repl_query *q, const struct repl_data *d)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
    (void)r;
    br_buf_printf(&b, "%s: %llu more were left out", q->what, (unsigned long long)d->left_out);
    if (d->next)
        br_buf_printf(&b, "; the next is row %llu", (unsigned long long)d->next);
    br_buf_put_u8(&b, '\n');
    (void)br_write_all(STDERR_FILENO, b.data, b.len);
}

static void put_json(struct repl *r, const char *line, size_t n)
{
    if (r->term.tty_out)
        br_cli_put_json_safe(&r->view.out, line, n);
    else
        br_buf_put(&r->view.out, line, n);
    br_buf_put_u8(&r->view.out, '\n');
}

static int print_data(struct repl *r, const struct repl_query *q, const struct repl_data *d,
                      struct br_err *err)
{
    bool first = true, whole = strcmp(q->what, "events") == 0 && d->n == 1;
    for (size_t at = 0; at < d->lines.len && !r->term.broken;) {
        const char *line = (const char *)d->lines.data + at;
        const char *nl = memchr(line, '\n', d->lines.len - at);
        size_t n = (size_t)(nl - line);
        if (r->json) {
            put_json(r, line, n);
        } else {
            json_t *v = json_loadb(line, n, JSON_DECODE_ANY, NULL);
            if (!v)
                return br_err_set(err, BR_E_INVALID_JSON, "a value of '%s' is not JSON", q->what);
            repl_print_value(r, whole ? "event" : q->what, v, first);
            json_decref(v);
        }
        repl_flush(r);
        first = false;
        at += n + 1;
    }
    return 0;
}

static void say_none(const struct repl_query *q)
{
    static const struct {
        const char *what, *text;
    } none[] = {
        {"sessions", "no session is recorded yet; try 'bridle demo'\n"},
        {"events", "no event fits\n"},
        {"decisions", "nothing was decided in that session\n"},
        {"leases", "the lease root is empty\n"},
        {"lease", "that session had no lease\n"},
        {"activations",
         "no profile is activated; 'bridle activate run-v1' tries the default one\n"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(none); i++)
        if (strcmp(none[i].what, q->what) == 0)
            (void)br_write_all(STDERR_FILENO, none[i].text, strlen(none[i].text));
}

/* Get and print. What came before an error is printed, too. */
static int show(struct repl *r, const struct repl_query *q, struct br_err *err)
{
    struct repl_data d;
    struct br_err why = {.code = BR_OK};
    int got = repl_data_get(q, &d, &why);
    int printed = print_data(r, q, &d, err);
    if (got == 0 && d.n == 0)
        say_none(q);
    if (d.left_out)
        repl_say_left_out(r, q, &d);
    repl_data_free(&d);
    if (got < 0)
        *err = why;
    return got < 0 ? got : printed;
}

/* ---- events ---- */

static int verb_events(struct repl *r, const struct repl_line *l, struct br_err *err)
{
    struct repl_query q = {.what = "events", .id = l->words[1], .type = ""};
    if (r->interactive && !r->json)
        q.rows = SCREEN_ROWS;
    for (unsigned i = 2; i < l->n; i++) {
        const char *w = l->words[i];
        bool range = strstr(w, "..") != NULL || (w[0] >= '0' && w[0] <= '9');
        if (range ? q.from || q.to : q.type[0] != '\0')
            return br_err_set(err, BR_E_USAGE,
                              "'%.80s' is one word too many: events ID [TYPE] "
                              "[FROM..TO]",
                              w);
        if (range && !repl_line_range(w, &q.from, &q.to))
            return br_err_set(err, BR_E_USAGE,
                              "'%.80s' is no range of rows; write FROM..TO, such as 10..20, or one "
                              "row",
                              w);
        if (!range)
            q.type = w;
    }
    return show(r, &q, err);
}

/* ---- why ---- */

static bool is_about(const json_t *d, const char *call)
{
    const char *id = json_string_value(json_object_get(d, "callId"));
    char row[24];
    snprintf(row, sizeof(row), "%llu",
             (unsigned long long)json_integer_value(json_object_get(d, "row")));
    return (id && strcmp(id, call) == 0) || strcmp(row, call) == 0;
}

/* A verb of the program itself, with words of our own. */
static int run_verb(struct repl *r, const char *name, char **words, int n, struct br_err *err)
{
    const struct br_cli_verb *v = br_cli_verb_find(name);
    struct br_cli_args a;
    if (!v)
        return br_err_set(err, BR_E_NOT_FOUND,
                          "this build has no 'bridle %s', through which that is answered", name);
    repl_flush(r);
    int p = br_cli_parse(v, n, words, &a, err);
    if (p < 0)
        return p;
    int code = a.help ? 0 : v->run(&a);
    return code ? -BR_E_FAILED : 0; /* it has said why */
}

/* What the record says of a decision; the id of its call, if it has one, is copied. */
static void say_decision(struct repl *r, const json_t *d, const char *line, size_t n, char *call,
                         size_t cap)
{
    const char *id = json_string_value(json_object_get(d, "callId"));
    if (r->json)
        put_json(r, line, n);
    else
        repl_print_why(r, d, id == NULL);
    repl_flush(r);
    snprintf(call, cap, "%s", id ? id : "");
}

/* The decisions about a call, as recorded, and then what every rule has to say of it. */
static int why_recorded(struct repl *r, const char *id, const char *call, struct br_err *err)
{
    struct repl_query q = {.what = "decisions", .id = id, .type = ""};
    struct repl_data d;
    char run[BR_ID_MAX], call_id[BR_NAME_MAX + 1] = "";
    unsigned found = 0;
    snprintf(run, sizeof(run), "%s", id);
    int got = repl_data_get(&q, &d, err);
    for (size_t at = 0; at < d.lines.len;) {
        const char *line = (const char *)d.lines.data + at;
        const char *nl = memchr(line, '\n', d.lines.len - at);
        size_t n = (size_t)(nl - line);
        json_t *v = json_loadb(line, n, 0, NULL);
        if (v && is_about(v, call)) {
            found++;
            say_decision(r, v, line, n, call_id, sizeof(call_id));
        }
        json_decref(v);
        at += n + 1;
    }
    repl_data_free(&d);
    if (got == 0 && !found)
        return br_err_set(err, BR_E_NOT_FOUND,
                          "the session has no decision about the call '%.80s'; 'decisions %.48s' "
                          "lists them",
                          call, id);
    if (got < 0 || call_id[0] == '\0')
        return got;
    char run_option[BR_ID_MAX + 8], call_option[BR_NAME_MAX + 16];
    snprintf(run_option, sizeof(run_option), "--run=%s", run);
    snprintf(call_option, sizeof(call_option), "--call=%s", call_id);
    char *words[] = {(char *)(uintptr_t) "why", run_option, call_option,
                     r->json ? (char *)(uintptr_t) "--json" : NULL, NULL};
    return run_verb(r, "policy", words, r->json ? 4 : 3, err);
}

static int verb_policy(struct repl *r, const char *what, const struct repl_line *l,
                       struct br_err *err)
{
    char *words[REPL_WORDS_MAX + 8];
    int n = 0;
    words[n++] = (char *)(uintptr_t)what;
    if (r->json)
        words[n++] = (char *)(uintptr_t) "--json";
    if (strcmp(what, "why") == 0)
        words[n++] = (char *)(uintptr_t) "--";
    for (unsigned i = 1; i < l->n; i++)
        words[n++] = l->words[i];
    words[n] = NULL;
    return run_verb(r, "policy", words, n, err);
}

static int verb_why(struct repl *r, struct repl_line *l, struct br_err *err)
{
    const char *first = l->words[1];
    if (strcmp(first, "last") != 0 && strncmp(first, "run_", 4) != 0)
        return verb_policy(r, "why", l, err);
    if (l->n != 3)
        return br_err_set(err, BR_E_USAGE,
                          "name the session and one call or row: why ID CALL; 'decisions %.48s' "
                          "lists them",
                          first);
    return why_recorded(r, first, l->words[2], err);
}

/* ---- limits, help ---- */

static int verb_limits(struct repl *r, const struct repl_line *l, struct br_err *err)
{
    static const struct {
        const char *name;
        uint32_t max;
    } what[] = {{"depth", 32}, {"items", 10000}, {"bytes", 1024u * 1024}};
    uint32_t v[3] = {r->limits.depth, r->limits.items, r->limits.bytes};
    for (unsigned i = 1; i < l->n; i++)
        if (br_cli_number(what[i - 1].name, l->words[i], 1, what[i - 1].max, &v[i - 1], err) < 0)
            return -BR_E_USAGE;
    r->limits = (struct repl_limits){.depth = v[0], .items = v[1], .bytes = v[2]};
    if (r->json)
        br_buf_printf(&r->view.out, "{\"depth\":%u,\"items\":%u,\"bytes\":%u}\n", v[0], v[1], v[2]);
    else
        br_buf_printf(&r->view.out, "depth %u, items %u, bytes %u\n", v[0], v[1], v[2]);
    repl_flush(r);
    return 0;
}

static void put_word(struct br_buf *b, const struct br_word *w)
{
    br_buf_printf(b, "%s%s%s\n  ", w->verb ? w->verb : "", w->verb && w->call ? "    Lua: " : "",
                  w->call ? w->call : "");
    for (const char *p = w->text; *p; p++)
        if (*p == '\n')
            br_buf_printf(b, "\n  ");
        else
            br_buf_put_u8(b, (uint8_t)*p);
    br_buf_put_u8(b, '\n');
}

static int verb_help(struct repl *r, const struct repl_line *l, struct br_err *err)
{
    struct br_buf *b = &r->view.out;
    if (l->n > 1) {
        const char *names[64];
        size_t k = 0;
        const struct br_word *w = br_word_find(l->words[1]);
        for (const struct br_word *x = br_words; x->name && k < BR_ARRAY_LEN(names); x++)
            names[k++] = x->name;
        const char *near = w ? NULL : br_cli_nearest(l->words[1], names, k);
        if (!w)
            return br_err_set(err, BR_E_USAGE,
                              near ? "there is no help about '%.80s'; did you mean '%s'?"
                                   : "there is no help about '%.80s'; 'help' lists what there is",
                              l->words[1], near);
        put_word(b, w);
        repl_flush(r);
        return 0;
    }
    br_buf_printf(b, "verbs:\n");
    for (const struct br_word *w = br_words; w->name; w++)
        if (w->verb)
            br_buf_printf(b, "  %-30s %.*s\n", w->verb, (int)strcspn(w->text, "\n:;"), w->text);
    br_buf_printf(b, "Lua, for everything else; expressions print their value:\n ");
    for (const struct br_word *w = br_words; w->name; w++)
        if (w->call)
            br_buf_printf(b, " %s%s", w->name, strchr(w->call, '(') ? "()" : "");
    br_buf_printf(b,
                  "\n  and Lua's string, table, math, utf8 and json. 'help WORD' tells more.\n"
                  "  filter(events(\"last\"), function(e) return e.actor == \"operator\" end)\n");
    repl_flush(r);
    return 0;
}

/* ---- all ---- */

static int usage(const struct br_word *w, struct br_err *err)
{
    return br_err_set(err, BR_E_USAGE, "that is not how '%s' is written: %s", w->name, w->verb);
}

int repl_verb(struct repl *r, const struct br_word *w, struct repl_line *l, struct br_err *err)
{
    static const struct {
        const char *name;
        unsigned min, max; /* words after it */
    } verbs[] = {{"sessions", 0, 0},  {"session", 1, 1},          {"events", 1, 3},
                 {"decisions", 1, 1}, {"why", 2, REPL_WORDS_MAX}, {"leases", 0, 0},
                 {"lease", 1, 1},     {"activations", 0, 0},      {"policies", 0, 0},
                 {"policy", 0, 1},    {"limits", 0, 3},           {"help", 0, 1},
                 {"quit", 0, 0}};
    for (size_t i = 0; i < BR_ARRAY_LEN(verbs); i++)
        if (strcmp(verbs[i].name, w->name) == 0 &&
            (l->n - 1 < verbs[i].min || l->n - 1 > verbs[i].max))
            return usage(w, err);
    const char *name = w->name;
    if (strcmp(name, "quit") == 0)
        r->quit = true;
    else if (strcmp(name, "help") == 0)
        return verb_help(r, l, err);
    else if (strcmp(name, "limits") == 0)
        return verb_limits(r, l, err);
    else if (strcmp(name, "policy") == 0)
        return verb_policy(r, "show", l, err);
    else if (strcmp(name, "why") == 0)
        return verb_why(r, l, err);
    else if (strcmp(name, "events") == 0)
        return verb_events(r, l, err);
    else
        return show(
            r, &(struct repl_query){.what = name, .id = l->n > 1 ? l->words[1] : "", .type = ""},
            err);
    return 0;
}
