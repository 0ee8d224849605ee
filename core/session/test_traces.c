/*
 * How often people are asked: ten recorded traces of agents (spec/traces) are replayed with the
 * shipped default policy, compiled by a real bridle-script, through the session's own decisions,
 * questions and grants. "Before" is one question for each ask of the policy as it was; "after" are
 * the questions that are put when those of a turn come together and each is answered for the run
 * where that is offered. The counts are those of docs/asks.md; another one fails, and is printed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "script/rig.h"
#include "session/test_rig.h"

#define TRACES 10
#define TEXT_MAX (1u << 20)

struct counts {
    unsigned turns, calls, before, answers, after;
};

static char *read_file(const char *name)
{
    char path[BR_PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", getenv("BRIDLE_SOURCE"), name);
    FILE *f = fopen(path, "re");
    if (!f)
        fail_msg("'%s' is missing", path);
    char *text = calloc(1, TEXT_MAX);
    assert_non_null(text);
    size_t n = fread(text, 1, TEXT_MAX - 1, f);
    assert_true(n > 0 && n < TEXT_MAX - 1);
    assert_int_equal(fclose(f), 0);
    return text;
}

/* The table of a policy; NULL: the default one. */
static char *compiled(const char *policy)
{
    struct rig g;
    memset(&g, 0, sizeof(g));
    rig_start(&g, BR_SCRIPT_POLICY);
    rig_compile(&g, policy, NULL);
    if (g.a.type != BR_MSG_COMPILED)
        fail_msg("%s", g.a.text);
    char *json = json_dumps(g.a.table, JSON_COMPACT);
    assert_non_null(json);
    assert_int_equal(rig_stop(&g), 0);
    return json;
}

/* What a line of a trace is as a call of a model. */
static void read_call(const json_t *line, unsigned number, struct call *c)
{
    const char *tool = json_string_value(json_object_get(line, "tool"));
    const json_t *command = json_object_get(line, "command"), *path = json_object_get(line, "path");
    bool exec = tool && strcmp(tool, "exec") == 0, write = tool && strcmp(tool, "write") == 0;
    assert_true(exec || write || (tool && strcmp(tool, "read") == 0));
    assert_true(json_is_string(exec ? command : path));
    json_t *args = exec    ? json_pack("{s:O}", "command", command)
                   : write ? json_pack("{s:O, s:s}", "path", path, "content", "x")
                           : json_pack("{s:O}", "path", path);
    BR_CLEANUP_FREE char *text = json_dumps(args, JSON_COMPACT);
    struct br_err err;
    json_decref(args);
    *c = (struct call){.arguments = NULL};
    snprintf(c->id, sizeof(c->id), "call-%u", number);
    assert_int_equal(session_call_read(c,
                                       exec    ? "process_exec"
                                       : write ? "fs_write"
                                               : "fs_read",
                                       text, &err),
                     0);
    assert_int_equal(c->bad.code, BR_OK);
}

static void play_turn(struct session_rig *r, struct call *calls, size_t n)
{
    char *replies[BR_TOOL_CALLS_PER_TURN_MAX] = {NULL};
    assert_int_equal(session_calls(&r->s, calls, n, replies), 0);
    for (size_t i = 0; i < n; i++) {
        assert_non_null(replies[i]);
        free(replies[i]);
        free(calls[i].arguments);
    }
}

static void play(struct session_rig *r, const char *name, struct counts *c)
{
    char path[BR_PATH_MAX];
    struct call calls[BR_TOOL_CALLS_PER_TURN_MAX];
    size_t n = 0;
    json_int_t turn = 0;
    snprintf(path, sizeof(path), "spec/traces/%s", name);
    char *text = read_file(path), *save = NULL;
    c->turns = c->calls = 0;
    for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        json_t *line = json_loads(l, JSON_REJECT_DUPLICATES, NULL);
        json_int_t at = json_integer_value(json_object_get(line, "turn"));
        if (!line || at < 1 || at < turn)
            fail_msg("%s: a line is not one of a trace: %s", name, l);
        if (at != turn && n) {
            play_turn(r, calls, n);
            n = 0;
        }
        c->turns += at != turn;
        turn = at;
        assert_true(n < BR_ARRAY_LEN(calls));
        read_call(line, ++c->calls, &calls[n++]);
        json_decref(line);
    }
    assert_true(n > 0);
    play_turn(r, calls, n);
    free(text);
}

static void replay(const char *table, const char *name, const char *answers, struct counts *c)
{
    struct session_rig r;
    struct session_rig_options o = {
        .mode = BR_RUN_AGENT, .table = table, .answers = answers, .sandbox = true};
    session_rig_open(&r, &o);
    session_rig_load(&r, &o);
    r.s.budget.calls_max = 10000;
    play(&r, name, c);
    assert_int_equal(r.seen->requested, r.seen->resolved_allow + r.seen->resolved_deny);
    if (strcmp(answers, "y") == 0) {
        c->before = r.seen->asks;
    } else {
        c->answers = r.seen->requested;
        c->after = r.seen->prompts;
        assert_int_equal(r.seen->asks, r.seen->requested + r.seen->covered);
    }
    session_rig_close(&r);
}

static int is_trace(const struct dirent *d)
{
    size_t n = strlen(d->d_name);
    return n > 6 && strcmp(d->d_name + n - 6, ".jsonl") == 0;
}

static void test_counts(void **state)
{
    char dir[BR_PATH_MAX], row[256];
    struct dirent **list;
    struct counts all = {.calls = 0};
    (void)state;
    char *before = read_file("spec/traces/before.lua"), *page = read_file("docs/asks.md");
    char *old = compiled(before), *now = compiled(NULL);
    snprintf(dir, sizeof(dir), "%s/spec/traces", getenv("BRIDLE_SOURCE"));
    int n = scandir(dir, &list, is_trace, alphasort), missing = 0;
    assert_int_equal(n, TRACES);
    for (int i = 0; i <= n; i++) {
        struct counts c = {.calls = 0};
        if (i < n) {
            replay(old, list[i]->d_name, "y", &c);
            replay(now, list[i]->d_name, "r", &c);
            all.turns += c.turns;
            all.calls += c.calls;
            all.before += c.before;
            all.answers += c.answers;
            all.after += c.after;
        } else {
            c = all;
        }
        snprintf(row, sizeof(row), "| %.*s | %u | %u | %u | %u | %u |\n",
                 i < n ? (int)strlen(list[i]->d_name) - 6 : 8, i < n ? list[i]->d_name : "together",
                 c.turns, c.calls, c.before, c.answers, c.after);
        if (!strstr(page, row)) {
            print_message("docs/asks.md does not say: %s", row);
            missing++;
        }
        if (i < n)
            free(list[i]);
    }
    free(list);
    free(before);
    free(page);
    free(old);
    free(now);
    assert_int_equal(missing, 0);
    assert_true(all.after < all.before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
