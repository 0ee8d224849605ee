/*
 * A command is decided on what will run: the real table, the real splitter (in the peers of the
 * rig), and the session's decision between them. No spelling may get an allow that the plain one
 * does not get, and a rule that names a command is met under each of its names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "session/test_rig.h"

struct rule {
    const char *pattern; /* "*": any */
    const char *effect;
};

static const struct rule operator_rules[] = {
    {"git *", "allow"},     {"git push*", "deny"},     {"ls*", "allow"},   {"rm *", "deny"},
    {"./run.sh", "allow"},  {"make", "allow"},         {"cat *", "allow"}, {"cat .env*", "deny"},
    {"wc ?", "allow"},      {"cd src", "allow"},       {"tail *", "ask"},  {"/bin/tail *", "allow"},
    {"/bin/rm *", "allow"}, {"timeout * ls", "allow"},
};
static const struct rule star_rules[] = {{"rm *", "deny"}, {"*", "allow"}};
static const struct rule star_deny_rules[] = {{"./run.sh", "allow"}, {"*", "deny"}};
static const struct rule no_star_rules[] = {{"./run.sh", "allow"}, {"ls *", "allow"}};

struct fixture {
    struct session_rig rig;
    char table[4096];
};

static void add(struct br_buf *b, const char *kind, const struct rule *rules, size_t n)
{
    bool star = false;
    br_buf_printf(b, "{\"v\":2,\"sources\":[{\"kind\":\"%s\",\"name\":\"test\"}],\"rules\":[",
                  kind);
    for (size_t i = 0; i < n; i++) {
        bool any = strcmp(rules[i].pattern, "*") == 0;
        star |= any;
        br_buf_printf(b,
                      "%s{\"id\":\"%s:%s\",\"source\":0,\"action\":\"process.exec\",\"match\":"
                      "\"%s\",\"pattern\":\"%s\",\"effect\":\"%s\"}",
                      i ? "," : "", kind, rules[i].pattern, any ? "any" : "command",
                      any ? "" : rules[i].pattern, rules[i].effect);
    }
    br_buf_printf(b, "],\"fallbacks\":[");
    if (strcmp(kind, "manifest") == 0 && !star)
        br_buf_printf(b, "{\"id\":\"unmatched\",\"source\":0,\"action\":\"process.exec\","
                         "\"effect\":\"deny\"}");
    br_buf_printf(b, "],\"predicates\":false}");
}

static void open_with(struct fixture *f, const char *kind, const struct rule *rules, size_t n)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(sizeof(f->table) - 1);
    add(&b, kind, rules, n);
    snprintf(f->table, sizeof(f->table), "%s", br_buf_cstr(&b));
    struct session_rig_options o = {.mode = BR_RUN_EXEC, .table = f->table};
    session_rig_open(&f->rig, &o);
    session_rig_load(&f->rig, &o);
}

static void expect_args(struct fixture *f, json_t *args, const char *what, enum br_effect want)
{
    struct effect e;
    struct br_err err = {.code = BR_OK};
    enum br_effect got = BR_EFFECT_NONE;
    if (tools_resolve("process_exec", args, &e, &err) < 0)
        fail_msg("%s: %s", what, err.text);
    /* nobody can be asked here: only an allow is 0 */
    int r = session_rig_authorize(&f->rig, &e, &got, &err);
    if (got != want || (r == 0) != (want == BR_EFFECT_ALLOW))
        fail_msg("%s: %s, not %s (%s)", what, br_effect_name(got), br_effect_name(want), err.text);
    effect_free(&e);
    json_decref(args);
}

static void expect_line(struct fixture *f, const char *line, enum br_effect want)
{
    expect_args(f, json_pack("{s:s}", "command", line), line, want);
}

/* Words separated by one space each. */
static void expect_argv(struct fixture *f, const char *words, enum br_effect want)
{
    json_t *list = json_array();
    char *copy = strdup(words), *save = NULL;
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        json_array_append_new(list, json_string(w));
    free(copy);
    expect_args(f, json_pack("{s:o}", "argv", list), words, want);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    open_with(f, "operator", operator_rules, BR_ARRAY_LEN(operator_rules));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    session_rig_close(&f->rig);
    free(f);
    return 0;
}

/* Positive controls. */
static void test_plain(void **state)
{
    struct fixture *f = *state;
    expect_argv(f, "git log x", BR_EFFECT_ALLOW);
    expect_argv(f, "git push x", BR_EFFECT_DENY);
    expect_argv(f, "rm x", BR_EFFECT_DENY);
    expect_argv(f, "nobody x", BR_EFFECT_ASK);
    expect_line(f, "git log x && ls", BR_EFFECT_ALLOW);
    expect_line(f, "ls; rm -rf x", BR_EFFECT_DENY);
    expect_line(f, "ls | nobody", BR_EFFECT_ASK);
}

/* The same program by another path: what a rule says against its name counts, what it says for it
 * does not. */
static void test_paths_of_programs(void **state)
{
    struct fixture *f = *state;
    expect_argv(f, "/usr/bin/rm x", BR_EFFECT_DENY);
    expect_argv(f, "./rm x", BR_EFFECT_DENY);
    expect_argv(f, "../../bin/rm x", BR_EFFECT_DENY);
    expect_argv(f, "/bin/rm x", BR_EFFECT_DENY);
    expect_argv(f, "/usr/bin/git push", BR_EFFECT_DENY);
    expect_argv(f, "/usr/bin/git log", BR_EFFECT_ASK);
    expect_argv(f, "./ls", BR_EFFECT_ASK);
    expect_argv(f, "/bin/tail x", BR_EFFECT_ASK);
    expect_argv(f, "./run.sh", BR_EFFECT_ALLOW);
    expect_line(f, "ls && /usr/bin/rm x", BR_EFFECT_DENY);
    expect_line(f, "./run.sh", BR_EFFECT_ALLOW);
}

static void expect_manifest(const struct rule *rules, size_t n, const char *words,
                            enum br_effect want)
{
    struct fixture f;
    open_with(&f, "manifest", rules, n);
    expect_argv(&f, words, want);
    session_rig_close(&f.rig);
}

/* A map's default is not a word about the name. */
static void test_paths_under_a_manifest(void **state)
{
    (void)state;
    expect_manifest(star_rules, BR_ARRAY_LEN(star_rules), "/bin/rm x", BR_EFFECT_DENY);
    expect_manifest(star_rules, BR_ARRAY_LEN(star_rules), "/bin/ls x", BR_EFFECT_ALLOW);
    expect_manifest(star_deny_rules, BR_ARRAY_LEN(star_deny_rules), "./run.sh", BR_EFFECT_ALLOW);
    expect_manifest(no_star_rules, BR_ARRAY_LEN(no_star_rules), "./run.sh", BR_EFFECT_ALLOW);
    expect_manifest(no_star_rules, BR_ARRAY_LEN(no_star_rules), "/bin/ls x", BR_EFFECT_DENY);
}

/* A file named `push` makes `git p?sh` push; one character in a rule is not a pattern's many. */
static void test_patterns(void **state)
{
    struct fixture *f = *state;
    expect_line(f, "git p?sh", BR_EFFECT_DENY);
    expect_line(f, "git pus[h]", BR_EFFECT_DENY);
    expect_line(f, "cat .e*", BR_EFFECT_DENY);
    expect_line(f, "cat x*", BR_EFFECT_ALLOW);
    expect_line(f, "cat $X", BR_EFFECT_DENY);
    expect_line(f, "git log \"$X\" *.c", BR_EFFECT_ALLOW);
    expect_line(f, "wc *", BR_EFFECT_ASK);
    expect_line(f, "ls '*.c'", BR_EFFECT_ALLOW);
    expect_line(f, "rm *", BR_EFFECT_DENY);
    expect_argv(f, "git p?sh", BR_EFFECT_ALLOW); /* no shell: the word is what it is */
}

/* Where a command runs is a part of what runs. */
static void test_directory(void **state)
{
    struct fixture *f = *state;
    expect_args(f, json_pack("{s:[s], s:s}", "argv", "make", "cwd", "."), "make", BR_EFFECT_ALLOW);
    expect_args(f, json_pack("{s:[s], s:s}", "argv", "make", "cwd", "evil"), "make in evil",
                BR_EFFECT_ASK);
    expect_args(f, json_pack("{s:[s], s:s}", "argv", "make", "cwd", "src"), "make in src",
                BR_EFFECT_ALLOW);
    expect_args(f, json_pack("{s:s, s:s}", "command", "make", "cwd", "evil"), "shell in evil",
                BR_EFFECT_ASK);
    expect_args(f, json_pack("{s:[s,s], s:s}", "argv", "rm", "x", "cwd", "src"), "rm in src",
                BR_EFFECT_DENY);
}

/* What cannot be taken apart is asked about, unless a rule against a command in it is certain. */
static void test_opaque_lines(void **state)
{
    struct fixture *f = *state;
    static const char *const denied[] = {
        "ls > x; rm y",
        "rm x > y",
        "> y rm x",
        "ls 2>&1 && git push 2>&1",
        "(cd x && rm -rf y)",
        "{ rm x; }",
        "echo $(rm x)",
        "echo `rm x`",
        "echo \"a $(rm x)\"",
        "if true; then rm x; fi",
        "for i in a b; do rm $i; done",
        "! rm x",
        "A=1 rm x",
        "ls & rm x",
        "f() { rm x; }",
        "ls > x; /bin/r\"m\" y",
        "ls > x; r\\m y",
        "cat <<E\n$(rm x)\nE\n",
        "cat <<'E'\nrm x\nE\nrm y",
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(denied); i++)
        expect_line(f, denied[i], BR_EFFECT_DENY);
    static const char *const asked[] = {
        "ls > x",
        "ls > rm",
        "ls 'a; rm x' > y",
        "ls \"a; rm x\" > y",
        "ls > x # rm y",
        "cat <<'E'\nrm x\nE\n",
        "cat <<-E\n\trm x\n\tE\n",
        "$X y",
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(asked); i++)
        expect_line(f, asked[i], BR_EFFECT_ASK);
}

/* What a wrapper runs is decided as if it were not there; a rule about the wrapper can only
 * tighten that. */
static void test_wrappers(void **state)
{
    struct fixture *f = *state;
    expect_argv(f, "timeout 5 ls", BR_EFFECT_ALLOW);
    expect_argv(f, "timeout 5 nobody", BR_EFFECT_ASK);
    expect_argv(f, "timeout --unknown 5 ls", BR_EFFECT_ASK);
    expect_argv(f, "./timeout 5 ls", BR_EFFECT_ASK);
    expect_argv(f, "sudo ls", BR_EFFECT_ASK);
    expect_argv(f, "timeout 5 rm x", BR_EFFECT_DENY);
    expect_argv(f, "env A=1 /bin/rm x", BR_EFFECT_DENY);
    expect_argv(f, "find . -exec rm {} +", BR_EFFECT_DENY);
    expect_argv(f, "find . -exec ls {} +", BR_EFFECT_ASK);
    expect_line(f, "ls | xargs rm -f", BR_EFFECT_DENY);
    expect_args(f, json_pack("{s:[s,s,s]}", "argv", "bash", "-lc", "ls; rm x"), "bash -lc",
                BR_EFFECT_DENY);
    expect_args(f, json_pack("{s:[s,s,s]}", "argv", "bash", "-lc", "ls > x; rm x"), "bash -lc >",
                BR_EFFECT_DENY);
    expect_args(f, json_pack("{s:[s,s,s]}", "argv", "bash", "-lc", "ls"), "bash -lc ls",
                BR_EFFECT_ALLOW);
    expect_line(f, "sh -c 'ls; rm x'", BR_EFFECT_DENY);
    expect_line(f, "sh -c 'sh -c \"rm x\"'", BR_EFFECT_DENY);
}

int main(void)
{
#define T_(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        T_(test_plain),
        T_(test_paths_of_programs),
        cmocka_unit_test(test_paths_under_a_manifest),
        T_(test_patterns),
        T_(test_directory),
        T_(test_opaque_lines),
        T_(test_wrappers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
