/*
 * The table of decided commands: each line of shell_cases.txt is decided under the bundle of
 * shell_cases.lua, compiled and parsed by a real bridle-script and decided by what the session
 * uses. A line is EFFECT, RULE, `sh` or `argv`, and the command, separated by tabs; `\n`, `\t`,
 * `\\` and
 * `\xHH` in it are bytes, the words of an argv are separated by '|'.
 */
#include <stdlib.h>
#include <string.h>

#include "script/command.h"
#include "script/rig.h"

#define CASES_MIN 300u

static char *read_file(const char *name)
{
    char path[BR_PATH_MAX];
    snprintf(path, sizeof(path), "%s/core/script/%s", getenv("BRIDLE_SOURCE"), name);
    FILE *f = fopen(path, "re");
    if (!f)
        fail_msg("'%s' is missing", path);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    assert_int_equal(fclose(f), 0);
    return text;
}

static int parse_line(void *ctx, const char *line, size_t n, const void **body, size_t *len)
{
    struct rig *g = ctx;
    (void)n;
    rig_shell(g, line);
    if (g->a.type != BR_MSG_SHELL_PARSED)
        return -BR_E_PROGRAM_DIED;
    *body = g->a.body.data;
    *len = g->a.body.len;
    return 0;
}

static void unescape(char *s)
{
    char *to = s;
    for (; *s; s++) {
        if (*s != '\\' || !s[1]) {
            *to++ = *s;
            continue;
        }
        s++;
        if (*s == 'n' || *s == 't') {
            *to++ = *s == 'n' ? '\n' : '\t';
        } else if (*s == 'x') {
            char hex[3] = {s[1], s[2], 0};
            *to++ = (char)strtoul(hex, NULL, 16);
            s += 2;
        } else {
            *to++ = *s;
        }
    }
    *to = 0;
}

static void decide(const struct br_commander *c, const char *kind, char *command,
                   struct br_verdict *v)
{
    if (strcmp(kind, "sh") == 0) {
        unescape(command);
        br_command_line(c, command, "", v);
        return;
    }
    assert_string_equal(kind, "argv");
    const char *words[64];
    size_t n = 0;
    for (char *p = command; p && n < BR_ARRAY_LEN(words);) {
        char *word = strsep(&p, "|");
        unescape(word);
        words[n++] = word;
    }
    br_command_argv(c, words, n, "", v);
}

static void test_cases(void **state)
{
    (void)state;
    struct rig g;
    struct br_table *table;
    struct br_err err = {.code = BR_OK};
    char *bundle = read_file("shell_cases.lua"), *text = read_file("shell_cases.txt");
    unsigned cases = 0, bad = 0;
    rig_start(&g, BR_SCRIPT_POLICY);
    rig_compile(&g, bundle, NULL);
    if (g.a.type != BR_MSG_COMPILED)
        fail_msg("shell_cases.lua: %s", g.a.text);
    BR_CLEANUP_FREE char *json = json_dumps(g.a.table, JSON_COMPACT);
    assert_int_equal(br_table_load(json, strlen(json), &table, &err), 0);
    const struct br_context context = {.has_env = true};
    const struct br_commander c = {
        .table = table, .context = &context, .ctx = &g, .shell = parse_line};
    for (char *p = text, *line; (line = strsep(&p, "\n"));) {
        if (!*line || *line == '#')
            continue;
        const char *effect = strsep(&line, "\t"), *rule = strsep(&line, "\t"),
                   *kind = strsep(&line, "\t");
        assert_non_null(line);
        struct br_verdict v = {.effect = BR_EFFECT_NONE};
        BR_CLEANUP_FREE char *shown = strdup(line);
        decide(&c, kind, line, &v);
        if (strcmp(br_effect_name(v.effect), effect) != 0 || strcmp(v.rule_id, rule) != 0) {
            print_message("%s\t%s\t%s\t%s\t# expected %s by %s; %s\n", br_effect_name(v.effect),
                          v.rule_id, kind, shown, effect, rule, v.reason ? v.reason : "");
            bad++;
        }
        br_verdict_free(&v);
        cases++;
    }
    br_table_free(&table);
    assert_int_equal(rig_stop(&g), 0);
    free(bundle);
    free(text);
    assert_true(cases >= CASES_MIN);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
