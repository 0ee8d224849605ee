/*
 * What is written about the client agrees with its table of verbs: man pages, shell completion.
 */
#include <dirent.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the above first */
#include <cmocka.h>

#include "cli/cli.h"

static char *read_source(const char *path)
{
    const char *root = getenv("BRIDLE_SOURCE");
    assert_non_null(root);
    char full[2 * BR_PATH_MAX];
    snprintf(full, sizeof(full), "%s/%s", root, path);
    FILE *f = fopen(full, "re");
    if (!f)
        fail_msg("there is no '%s'", path);
    char *text = calloc(1, 1 << 18);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 18) - 1, f) > 0);
    fclose(f);
    return text;
}

static void test_every_verb_has_a_man_page(void **state)
{
    (void)state;
    char path[256], want[256];
    BR_CLEANUP_FREE char *overview = read_source("docs/man/bridle.1.scd");
    for (const struct br_cli_verb *v = br_cli_verbs; v->name; v++) {
        snprintf(want, sizeof(want), "*%s*", v->name);
        if (!strstr(overview, want))
            fail_msg("bridle(1) does not name '%s'", v->name);
        bool own = strcmp(v->name, "help") != 0;
        snprintf(path, sizeof(path), "docs/man/bridle-%s.1.scd", v->name);
        BR_CLEANUP_FREE char *page = own ? read_source(path) : strdup(overview);
        for (unsigned i = 0; i < BR_CLI_OPTS_MAX && v->opts[i].name; i++) {
            snprintf(want, sizeof(want), "*--%s*", v->opts[i].name);
            if (!strstr(page, want))
                fail_msg("the page of '%s' does not name '%s'", v->name, want);
        }
    }
}

static void test_help_fits_the_width(void **state)
{
    (void)state;
    for (const struct br_cli_verb *v = br_cli_verbs; v->name; v++) {
        const char *text = v->details;
        while (*text) {
            size_t n = strcspn(text, "\n");
            assert_in_range(n, 0, BR_CLI_WIDTH);
            text += n + (text[n] == '\n');
        }
        for (unsigned i = 0; i < BR_CLI_OPTS_MAX && v->opts[i].name; i++)
            for (text = v->opts[i].text; *text; text += *text == '\n') {
                size_t n = strcspn(text, "\n");
                if (24 + n > BR_CLI_WIDTH)
                    fail_msg("--%s of %s: %zu columns", v->opts[i].name, v->name, 24 + n);
                text += n;
            }
    }
}

static void completion_is_current(const char *shell, const char *path)
{
    char cmd[BR_PATH_MAX];
    snprintf(cmd, sizeof(cmd), "'%s/bridle' help --completion %s", getenv("BRIDLE_BIN"), shell);
    FILE *f = popen(cmd, "re");
    assert_non_null(f);
    BR_CLEANUP_FREE char *made = calloc(1, 1 << 18);
    BR_CLEANUP_FREE char *kept = read_source(path);
    assert_non_null(made);
    (void)!fread(made, 1, (1 << 18) - 1, f);
    assert_int_equal(pclose(f), 0);
    if (strcmp(made, kept) != 0)
        fail_msg("'%s' is not what 'bridle help --completion %s' prints; make it again", path,
                 shell);
}

static void test_completion(void **state)
{
    (void)state;
    completion_is_current("bash", "share/completions/bridle.bash");
    completion_is_current("zsh", "share/completions/_bridle");
}

/* The built-in profiles are those of the directory, in both shells. */
static void test_completion_of_profiles(void **state)
{
    (void)state;
    static const char *const files[] = {"share/completions/bridle.bash",
                                        "share/completions/_bridle"};
    char path[BR_PATH_MAX];
    snprintf(path, sizeof(path), "%s/profiles", getenv("BRIDLE_SOURCE"));
    for (size_t i = 0; i < BR_ARRAY_LEN(files); i++) {
        BR_CLEANUP_FREE char *script = read_source(files[i]);
        const char *backends = strstr(script, "native bwrap docker");
        assert_non_null(backends);
        unsigned n = 0;
        DIR *d = opendir(path);
        assert_non_null(d);
        for (struct dirent *e; (e = readdir(d));) {
            char *end = strstr(e->d_name, ".lua");
            if (!end || end[4])
                continue;
            *end = '\0';
            n++;
            if (!strstr(script, e->d_name))
                fail_msg("'%s' does not know the profile '%s'", files[i], e->d_name);
        }
        closedir(d);
        assert_true(n >= 6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_verb_has_a_man_page),
        cmocka_unit_test(test_help_fits_the_width),
        cmocka_unit_test(test_completion),
        cmocka_unit_test(test_completion_of_profiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
