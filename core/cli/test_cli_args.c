/*
 * Arguments, answers, paths and files of the client.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
/* cmocka needs the above first */
#include <cmocka.h>

#include "cli/cli.h"

static int parse(const char *verb, const char *line, struct br_cli_args *a, struct br_err *err)
{
    static char words[32][64];
    static char *argv[33];
    int n = 0;
    while (*line && n < 32) {
        size_t len = strcspn(line, " ");
        snprintf(words[n], sizeof(words[n]), "%.*s", (int)len, line);
        argv[n] = words[n];
        n++;
        line += len + (line[len] == ' ');
    }
    argv[n] = NULL;
    *err = (struct br_err){.code = BR_OK};
    return br_cli_parse(br_cli_verb_find(verb), n, argv, a, err);
}

static void test_options_and_operands(void **state)
{
    (void)state;
    struct br_cli_args a;
    struct br_err err;
    assert_int_equal(parse("run", "fix -C /w --json the --policy=p.lua bug -ttask.yaml", &a, &err),
                     0);
    assert_int_equal(a.noperands, 3);
    assert_string_equal(a.operands[0], "fix");
    assert_string_equal(a.operands[2], "bug");
    assert_string_equal(br_cli_opt(&a, "dir"), "/w");
    assert_string_equal(br_cli_opt(&a, "policy"), "p.lua");
    assert_string_equal(br_cli_opt(&a, "task"), "task.yaml");
    assert_non_null(br_cli_opt(&a, "json"));
    assert_null(br_cli_opt(&a, "model"));
}

static void test_dashes_end_options(void **state)
{
    (void)state;
    struct br_cli_args a;
    struct br_err err;
    assert_int_equal(parse("run", "-- --json -x", &a, &err), 0);
    assert_int_equal(a.noperands, 2);
    assert_null(br_cli_opt(&a, "json"));
    assert_int_equal(parse("exec", "m.yaml -- ls --json -C", &a, &err), 0);
    assert_int_equal(a.noperands, 1);
    assert_int_equal(a.ntail, 3);
    assert_string_equal(a.tail[1], "--json");
    assert_null(br_cli_opt(&a, "json"));
}

static void test_refused_arguments(void **state)
{
    (void)state;
    static const struct {
        const char *verb, *line, *says;
    } rows[] = {
        {"run", "--jsn x", "did you mean '--json'"},
        {"run", "--polciy=x y", "did you mean '--policy'"},
        {"run", "-Z x", "no option '-Z'"},
        {"run", "--json=1 x", "takes no value"},
        {"run", "x -C", "needs a value"},
        {"run", "-C a -C b x", "given twice"},
        {"exec", "m.yaml", "after '--'"},
        {"exec", "m.yaml --", "after '--'"},
        {"exec", "-- ls", "something is missing"},
        {"exec", "a b -- ls", "one word too many"},
        {"validate", "", "something is missing"},
        {"show", "a b", "'b' is one word too many"},
        {"doctor", "x", "one word too many"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct br_cli_args a;
        struct br_err err;
        assert_int_equal(parse(rows[i].verb, rows[i].line, &a, &err), -BR_E_USAGE);
        if (!strstr(err.text, rows[i].says))
            fail_msg("'%s %s' says '%s'", rows[i].verb, rows[i].line, err.text);
    }
}

/* "" is a value, and never the same as none. */
static void test_empty_words(void **state)
{
    (void)state;
    static const struct {
        const char *verb, *words[5], *says;
    } rows[] = {
        {"activate", {""}, "a word is empty"},
        {"show", {""}, "a word is empty"},
        {"run", {"--profile", "", "x"}, "'--profile' is empty"},
        {"run", {"--profile=", "x"}, "'--profile' is empty"},
        {"activate", {"--image", "", "run-v1"}, "'--image' is empty"},
        {"activate", {"--remove", ""}, "'--remove' is empty"},
        {"exec", {"m.yaml", "--", ""}, "first word, the program, is empty"},
        {"plan", {"", "--", "ls"}, "a word is empty"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct br_cli_args a;
        struct br_err err = {.code = BR_OK};
        char *argv[6] = {NULL};
        int n = 0;
        for (; n < 5 && rows[i].words[n]; n++)
            argv[n] = (char *)(uintptr_t)rows[i].words[n];
        assert_int_equal(br_cli_parse(br_cli_verb_find(rows[i].verb), n, argv, &a, &err),
                         -BR_E_USAGE);
        if (!strstr(err.text, rows[i].says))
            fail_msg("row %zu says '%s'", i, err.text);
    }
    struct br_cli_args a; /* a command's further words may be empty */
    struct br_err err = {.code = BR_OK};
    char exe[] = "printf", none[] = "", dashes[] = "--", file[] = "m.yaml";
    char *argv[] = {file, dashes, exe, none, NULL};
    assert_int_equal(br_cli_parse(br_cli_verb_find("exec"), 4, argv, &a, &err), 0);
    assert_int_equal(a.ntail, 2);
}

static void test_nearest(void **state)
{
    (void)state;
    const char *names[] = {"run", "exec", "validate", "show", "doctor", "demo", "bench", "help"};
    size_t n = BR_ARRAY_LEN(names);
    assert_string_equal(br_cli_nearest("rnu", names, n), "run");
    assert_string_equal(br_cli_nearest("valdiate", names, n), "validate");
    assert_string_equal(br_cli_nearest("doc", names, n), "doctor");
    assert_string_equal(br_cli_nearest("shwo", names, n), "show");
    assert_null(br_cli_nearest("frobnicate", names, n));
    assert_null(br_cli_nearest("", names, n));
    char huge[400];
    memset(huge, 'a', sizeof(huge) - 1);
    huge[sizeof(huge) - 1] = '\0';
    assert_null(br_cli_nearest(huge, names, n));
}

static void test_number(void **state)
{
    (void)state;
    uint32_t v;
    assert_int_equal(br_cli_number("n", "1", 1, 86400, &v, NULL), 0);
    assert_int_equal(br_cli_number("n", "86400", 1, 86400, &v, NULL), 0);
    assert_int_equal(v, 86400);
    const char *bad[] = {"", "0", "86401", "-1", "+1", "1s", " 1", "0x10", "99999999999999999999"};
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++)
        assert_int_equal(br_cli_number("n", bad[i], 1, 86400, &v, NULL), -BR_E_USAGE);
}

static void test_answers(void **state)
{
    (void)state;
    static const char *const yes[] = {"y",   "Y",   "yes",       "YES", "Yes",
                                      "yEs", " y ", "\tyes\r\n", "y\n"};
    static const char *const run[] = {"r", "R", "run", " RUN\n", "rUn"};
    static const char *const each[] = {"e", "E", "each", "Each "};
    static const char *const no[] = {
        "",           "n",       "no", "yy",       "ye",  "yess", "y y", "yes!",   "ja",
        "1",          "true",    "ok", "y.",       "\n",  "  ",   "ru",  "runs",   "ea",
        "yes please", "\033[Ay", "Yn", "\xc3\xbf", "y r", "yr",   "rr",  "eaches", "all"};
    for (size_t i = 0; i < BR_ARRAY_LEN(yes); i++)
        if (br_cli_answer_read(yes[i], strlen(yes[i])) != BR_ANSWER_ONCE)
            fail_msg("'%s' should allow", yes[i]);
    for (size_t i = 0; i < BR_ARRAY_LEN(run); i++)
        if (br_cli_answer_read(run[i], strlen(run[i])) != BR_ANSWER_RUN)
            fail_msg("'%s' should allow for the run", run[i]);
    for (size_t i = 0; i < BR_ARRAY_LEN(each); i++)
        if (br_cli_answer_read(each[i], strlen(each[i])) != BR_ANSWER_EACH)
            fail_msg("'%s' should ask for each", each[i]);
    for (size_t i = 0; i < BR_ARRAY_LEN(no); i++)
        if (br_cli_answer_read(no[i], strlen(no[i])) != BR_ANSWER_NO)
            fail_msg("'%s' should not allow", no[i]);
    assert_int_equal(br_cli_answer_read("y\0", 2), BR_ANSWER_NO);
    assert_int_equal(br_cli_answer_read("yes\0", 4), BR_ANSWER_NO);
    assert_int_equal(br_cli_answer_read("\031", 1), BR_ANSWER_NO); /* differs from Y in one bit */
    assert_int_equal(br_cli_answer_read("9", 1), BR_ANSWER_NO);
}

/* ---- files ---------------------------------------------------------------------------------- */

static char dir[64];

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/bridle-test-cli.XXXXXX");
    return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
    return chdir("/") == 0 ? system(cmd) : -1;
}

static void write_file(const char *path, size_t n)
{
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    for (size_t i = 0; i < n; i++)
        fputc('x', f);
    fclose(f);
}

static int read_manifest(const char *path, struct br_cli_file *f, struct br_err *err)
{
    *err = (struct br_err){.code = BR_OK};
    return br_cli_file_read(f, path, "manifest", BR_E_INVALID_MANIFEST, 100, err);
}

static void test_file_limits(void **state)
{
    (void)state;
    struct br_cli_file f;
    struct br_err err;
    write_file("at", 100);
    write_file("over", 101);
    write_file("empty", 0);
    assert_int_equal(read_manifest("at", &f, &err), 0);
    assert_int_equal(f.text.len, 100);
    br_cli_file_free(&f);
    assert_int_equal(read_manifest("over", &f, &err), -BR_E_INVALID_MANIFEST);
    assert_non_null(strstr(err.text, "more than 100"));
    br_cli_file_free(&f);
    assert_int_equal(read_manifest("empty", &f, &err), 0);
    assert_int_equal(f.text.len, 1); /* present, so never "none" */
    br_cli_file_free(&f);
}

static void test_file_kinds(void **state)
{
    (void)state;
    struct br_cli_file f;
    struct br_err err;
    write_file("real", 3);
    assert_int_equal(symlink("real", "link"), 0);
    assert_int_equal(mkfifo("fifo", 0600), 0);
    assert_int_equal(mkdir("sub", 0700), 0);
    assert_int_equal(read_manifest("link", &f, &err), 0);
    br_cli_file_free(&f);
    static const struct {
        const char *path, *says;
        int code;
    } rows[] = {{"fifo", "is a FIFO", -BR_E_INVALID_MANIFEST},
                {"sub", "is a directory", -BR_E_INVALID_MANIFEST},
                {"/dev/null", "is a device", -BR_E_INVALID_MANIFEST},
                {"missing", "does not exist", -BR_E_NOT_FOUND},
                {"real/below", "does not exist", -BR_E_NOT_FOUND}};
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        assert_int_equal(read_manifest(rows[i].path, &f, &err), rows[i].code);
        if (!strstr(err.text, rows[i].says))
            fail_msg("'%s' says '%s'", rows[i].path, err.text);
        br_cli_file_free(&f);
    }
}

static void test_config_order(void **state)
{
    (void)state;
    struct br_cli_file f;
    struct br_err err = {.code = BR_OK};
    char conf[128];
    snprintf(conf, sizeof(conf), "%s/conf", dir);
    setenv("XDG_CONFIG_HOME", conf, 1);
    setenv("HOME", "/nonexistent", 1);
    /* none anywhere: /etc/bridle/no-such.lua does not exist either */
    assert_int_equal(
        br_cli_file_config(&f, NULL, "no-such.lua", "policy", BR_E_INVALID_POLICY, 100, &err), 0);
    assert_string_equal(f.path, "");
    assert_int_equal(f.text.len, 0);
    br_cli_file_free(&f);
    assert_int_equal(mkdir("conf", 0700), 0);
    assert_int_equal(mkdir("conf/bridle", 0700), 0);
    write_file("conf/bridle/no-such.lua", 5);
    assert_int_equal(
        br_cli_file_config(&f, NULL, "no-such.lua", "policy", BR_E_INVALID_POLICY, 100, &err), 0);
    assert_int_equal(f.text.len, 5);
    br_cli_file_free(&f);
    /* there, but not a file: an error, not "none" */
    assert_int_equal(unlink("conf/bridle/no-such.lua"), 0);
    assert_int_equal(mkdir("conf/bridle/no-such.lua", 0700), 0);
    assert_int_equal(
        br_cli_file_config(&f, NULL, "no-such.lua", "policy", BR_E_INVALID_POLICY, 100, &err),
        -BR_E_INVALID_POLICY);
    br_cli_file_free(&f);
    unsetenv("XDG_CONFIG_HOME");
}

static void test_workspace_path(void **state)
{
    (void)state;
    char path[BR_PATH_MAX], want[BR_PATH_MAX];
    struct br_err err;
    assert_int_equal(mkdir("w", 0700), 0);
    assert_int_equal(symlink("w", "wl"), 0);
    static const struct {
        const char *given, *below;
    } rows[] = {{".", ""},      {"w", "/w"},   {"./w/", "/w"},    {"w/../w", "/w"},
                {"wl/", "/wl"}, {"wl", "/wl"}, {"gone", "/gone"}, {"w//.", "/w"}};
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        assert_int_equal(br_cli_workspace(path, rows[i].given, &err), 0);
        snprintf(want, sizeof(want), "%s%s", dir, rows[i].below);
        assert_string_equal(path, want);
    }
    /* ".." behind a link means another directory: kept as written */
    assert_int_equal(mkdir("w/deep", 0700), 0);
    assert_int_equal(symlink("w/deep", "dl"), 0);
    assert_int_equal(br_cli_workspace(path, "dl/..", &err), 0);
    snprintf(want, sizeof(want), "%s/dl/..", dir);
    assert_string_equal(path, want);
    assert_int_equal(br_cli_workspace(path, "/", &err), 0);
    assert_string_equal(path, "/");
    assert_int_equal(br_cli_workspace(path, "", &err), -BR_E_INVALID_WORKSPACE);
}

static void test_path_below(void **state)
{
    (void)state;
    assert_int_equal(mkdir("in", 0700), 0);
    assert_int_equal(mkdir("inside", 0700), 0);
    write_file("in/m", 1);
    write_file("inside/m", 1);
    write_file("out", 1);
    assert_int_equal(symlink("../out", "in/points-out"), 0);
    assert_int_equal(symlink("in/m", "points-in"), 0);
    assert_true(br_cli_path_below("in/m", "in"));
    assert_false(br_cli_path_below("inside/m", "in"));
    assert_false(br_cli_path_below("out", "in"));
    assert_false(br_cli_path_below("in/points-out", "in"));
    assert_true(br_cli_path_below("points-in", "in"));
    assert_true(br_cli_path_below("out", "/"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_and_operands),
        cmocka_unit_test(test_dashes_end_options),
        cmocka_unit_test(test_refused_arguments),
        cmocka_unit_test(test_empty_words),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_number),
        cmocka_unit_test(test_answers),
        cmocka_unit_test_setup_teardown(test_file_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_file_kinds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_config_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_workspace_path, setup, teardown),
        cmocka_unit_test_setup_teardown(test_path_below, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
