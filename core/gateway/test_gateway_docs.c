/*
 * docs/protocol.md is what the gateway does: its examples are played, line by line, its table of
 * errors is the one of the code, and every method and parameter is named.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/harness_priv.h"
#include "gateway/test_strict.h"

static char *read_page(void)
{
    char path[BR_PATH_MAX];
    const char *root = getenv("BRIDLE_SOURCE");
    assert_non_null(root);
    snprintf(path, sizeof(path), "%s/docs/protocol.md", root);
    BR_CLEANUP_FILE FILE *f = fopen(path, "re");
    assert_non_null(f);
    char *text = calloc(1, 1 << 18);
    assert_true(fread(text, 1, (1 << 18) - 1, f) > 0);
    return text;
}

/* The page's `perm_1` is whatever the ledger made. */
static void replace(char *text, const char *from, const char *to)
{
    char *at;
    while ((at = strstr(text, from))) {
        memmove(at + strlen(to), at + strlen(from), strlen(at + strlen(from)) + 1);
        memcpy(at, to, strlen(to));
    }
}

struct example {
    struct gateway *g;
    struct conn *c;
    char permission[BR_ID_MAX];
};

static void happens(struct example *x, const char *what)
{
    struct run *r = &x->g->runs[0];
    if (strcmp(what, "another client") == 0)
        x->c = world_connect(x->g, &gw_harness, "uid:1000", BR_ACCESS_OPERATE);
    else if (strcmp(what, "the agent asks whether it may write") == 0)
        world_ask(x->g, r, "c1", false, x->permission);
    else if (strcmp(what, "the answer is recorded") == 0)
        world_resolved(x->g, r, "c1", x->permission);
    else if (strcmp(what, "the run ends") == 0)
        world_end(x->g, r, "completed");
    else
        fail_msg("nobody knows how '%s' happens", what);
}

static void example_line(struct example *x, const char *line)
{
    char *text = malloc(strlen(line) + 4096);
    strcpy(text, line);
    if (x->permission[0])
        replace(text, "perm_1", x->permission);
    if (text[0] == '>') {
        silent(x->c); /* everything that the page has was heard */
        world_say(x->g, x->c, "%s", text + 2);
    } else if (text[0] == '<') {
        hears(x->c, text + 2);
    } else {
        assert_int_equal(text[0], '#');
        happens(x, text + 2);
    }
    free(text);
}

static void test_examples(void **state)
{
    struct example x = {.g = world_new()};
    char *page = read_page(), *save = NULL;
    bool inside = false;
    unsigned lines = 0;
    (void)state;
    x.c = world_connect(x.g, &gw_harness, "uid:1000", BR_ACCESS_OPERATE);
    for (char *line = strtok_r(page, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (strcmp(line, "```") == 0) {
            inside = !inside;
        } else if (inside) {
            example_line(&x, line);
            lines++;
        }
    }
    silent(x.c);
    assert_true(lines > 25 && !inside);
    free(page);
    assert_true(world_free(&x.g));
}

static void test_errors(void **state)
{
    char *page = read_page(), row[128];
    unsigned rows = 0, known = 0;
    (void)state;
#define ROW(name, number, text)                                                                    \
    snprintf(row, sizeof(row), "\n| %d | `" text "` | ", number);                                  \
    if (!strstr(page, row))                                                                        \
        fail_msg("docs/protocol.md has no row%s", row);                                            \
    known++;
    HARNESS_ERRORS(ROW)
#undef ROW
    for (const char *p = page; (p = strstr(p, "\n| -32")); p++)
        rows++;
    assert_int_equal(rows, known);
    free(page);
}

/* Longer lists have longer limits: what a method takes stands in its section. */
static void names_method(const char *page, const struct harness_method *m)
{
    char title[64], bold[64];
    snprintf(title, sizeof(title), "### %s\n", m->name);
    snprintf(bold, sizeof(bold), "**%s** `{", m->name);
    const char *at = strstr(page, title);
    at = at ? at : strstr(page, bold);
    if (!at)
        at = strstr(page, "**session/resume**"); /* which has those of load */
    if (!at || (strcmp(m->name, "session/resume") != 0 && at == strstr(page, "**session/resume**")))
        fail_msg("docs/protocol.md does not say what '%s' is", m->name);
    const char *end = strstr(at + 4, "\n#");
    for (unsigned i = 0; i < HARNESS_PARAMS_MAX && m->params[i].name; i++) {
        const char *found = strstr(at, m->params[i].name);
        bool extra = m->params[i].kind == PARAM_SCOPE && strstr(page, "takes `scope?: once|run`");
        bool same = strcmp(m->name, "session/resume") == 0;
        if (!extra && !same && (!found || (end && found > end)))
            fail_msg("docs/protocol.md does not say that '%s' has '%s'", m->name,
                     m->params[i].name);
    }
}

static void test_methods(void **state)
{
    char *page = read_page();
    (void)state;
    for (unsigned i = 0; i < harness_base_count; i++)
        names_method(page, &harness_base[i]);
    for (unsigned i = 0; i < harness_more_count; i++)
        names_method(page, &harness_more[i]);
    free(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_methods),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
