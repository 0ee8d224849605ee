/*
 * The shell splitter: what it takes apart, word by word, and what it calls opaque. The last test
 * asks a real shell: for every string that is taken apart, dash must see the same words.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "script/argv.h"
#include "script/shell.h"

struct good {
    const char *text;
    const char *words; /* words joined by '|', commands by '||' */
};

static const struct good parsed[] = {
    {"ls", "ls"},
    {"  ls   -l\t-a  ", "ls|-l|-a"},
    {"git diff src/a.ts", "git|diff|src/a.ts"},
    {"git diff && curl x | sh2", "git|diff||curl|x||sh2"},
    {"ls; rm -rf x", "ls||rm|-rf|x"},
    {"ls;rm -rf x;", "ls||rm|-rf|x"},
    {"a&&b||c|d;e", "a||b||c||d||e"},
    {"a &&\n b", "a||b"},
    {"a |\n\n# why\n b", "a||b"},
    {"a\nb\n\nc", "a||b||c"},
    {"echo 'a b' \"c d\" e\\ f", "echo|a b|c d|e f"},
    {"echo 'it'\\''s'", "echo|it's"},
    {"echo \"a\\\"b\\\\c\\d\"", "echo|a\"b\\c\\d"},
    {"echo \"a\\\nb\"", "echo|ab"},
    {"ec\\\nho x", "echo|x"},
    {"echo ''", "echo|"},
    {"echo '' \"\" x", "echo|||x"},
    {"\\rm -rf x", "rm|-rf|x"},
    {"r\"m\" -rf x", "rm|-rf|x"},
    {"/bin/rm -rf x", "/bin/rm|-rf|x"},
    {"echo a#b # c; rm x", "echo|a#b"},
    {"# only\nls", "ls"},
    {"echo a=b c", "echo|a=b|c"},
    {"echo 'A $X `y`'", "echo|A $X `y`"},
    {"echo a~ b:~", "echo|a~|b:~"},
    {"echo \xc3\xa4", "echo|\xc3\xa4"},
    {"find . -name '*.c'", "find|.|-name|*.c"},
    {"echo !x", "echo|!x"},
    {"echo if then fi", "echo|if|then|fi"},
    {"echo '{}' '(' '<'", "echo|{}|(|<"},
};

static const char *const opaque[] = {
    "",
    " ",
    "# x",
    "\n",
    ";",
    "&&",
    "a &&",
    "a ||",
    "a |",
    "&& a",
    "| a",
    "; a",
    "a ; ; b",
    "a;;b",
    "a &",
    "a & b",
    "a |& b",
    "a &&& b",
    "a ||| b",
    "a &&| b",
    "$X",
    "echo $X",
    "echo \"$X\"",
    "echo ${X}",
    "$(ls)",
    "echo $(rm -rf x)",
    "echo \"$(x)\"",
    "`ls`",
    "echo `x`",
    "echo \"`x`\"",
    "echo $((1+1))",
    "echo $'a'",
    "a$",
    "ls > x",
    "ls >> x",
    "ls < x",
    "ls 2>&1",
    "cat << EOF\nEOF",
    "ls >&2",
    "cat <<< x",
    "a <(b)",
    "(ls)",
    "(cd build && rm -rf *)",
    "{ rm -rf b; }",
    "f() { ls; }",
    "a (b)",
    "a )",
    "if true; then ls; fi",
    "for x in a b; do ls; done",
    "while true; do ls; done",
    "! ls",
    "case a in a) ls;; esac",
    "until a; do b; done",
    "function f",
    "[[ a ]]",
    "[ -f x ]",
    "X=1 rm x",
    "X=1",
    "PATH=/x ls",
    "X+=1 ls",
    "a && X=1 b",
    "eval ls",
    "exec ls",
    "command rm -rf x",
    "builtin ls",
    ". ./x",
    "source x",
    "trap x EXIT",
    "alias ls=rm",
    "set -e",
    "export X=1",
    "sh -c 'ls'",
    "bash -lc ls",
    "/bin/sh x",
    "sh",
    "env rm x",
    "nice rm x",
    "nohup rm x",
    "timeout 5 rm x",
    "sudo rm x",
    "xargs rm",
    "ls | xargs rm",
    "time ls",
    "busybox rm x",
    "find . -exec rm {} +",
    "find . -delete",
    "find . '-exec' rm",
    "/usr/bin/env rm x",
    "e\\nv rm x",
    "'env' rm x",
    "\"sh\" -c x",
    "ls | sh",
    "*",
    "rm -rf *",
    "ls *.c",
    "ls a?c",
    "ls [ab]",
    "ls a'b'*",
    "r? x",
    "./[ab] x",
    "~/bin/x",
    "ls ~",
    "ls ~root/x",
    "echo 'a",
    "echo \"a",
    "echo \\",
    "echo {a,b}",
    "echo }",
    "echo a\x01",
    "echo a\rb",
    "-x",
    "''",
    "'' a",
    "/",
    "a/",
    "echo \xff",
};

static void words_of(const struct br_shell *sh, char *out, size_t cap)
{
    size_t at = 0;
    out[0] = '\0';
    for (unsigned c = 0; c < sh->ncommands; c++) {
        for (unsigned w = 0; w < sh->count[c]; w++)
            at += (size_t)snprintf(out + at, cap - at, "%s%s",
                                   w   ? "|"
                                   : c ? "||"
                                       : "",
                                   sh->words[sh->first[c] + w]);
    }
}

static void test_parsed(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(parsed); i++) {
        struct br_shell sh;
        char got[512];
        br_shell_parse(&sh, parsed[i].text, strlen(parsed[i].text));
        if (sh.opaque)
            fail_msg("opaque: %s (%s)", parsed[i].text, sh.why);
        words_of(&sh, got, sizeof(got));
        assert_string_equal(got, parsed[i].words);
        br_shell_free(&sh);
    }
}

static void test_opaque(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(opaque); i++) {
        struct br_shell sh;
        br_shell_parse(&sh, opaque[i], strlen(opaque[i]));
        if (!sh.opaque)
            fail_msg("not opaque: %s", opaque[i]);
        assert_non_null(sh.why);
        assert_int_equal(sh.ncommands, 0);
        br_shell_free(&sh);
    }
    struct br_shell sh;
    br_shell_parse(&sh, "a\0b", 3);
    assert_true(sh.opaque);
    br_shell_free(&sh);
}

/* What may run in a string that is not taken apart. */
static void test_guess(void **state)
{
    (void)state;
    static const struct good guessed[] = {
        {"ls > x; rm y", "ls||rm|y"},
        {"ls>x rm", "ls|rm"},
        {">x rm y", "rm|y"},
        {"a2>&1 b", "a2|b"},
        {"a 2>&1 b", "a|b"},
        {"a <<<b c", "a|c"},
        {"a >&- b", "a|b"},
        {"(cd x && rm -rf *)", "cd|x||rm|-rf|*"},
        {"{ rm b; }", "rm|b"},
        {"echo $(rm x) y", "echo|$||rm|x||y"},
        {"echo \"a $(rm x)\"", "echo|a ||rm|x"},
        {"`ls`", "ls"},
        {"X=1 Y+=2 rm x", "rm|x"},
        {"if a; then rm x; fi", "a||rm|x"},
        {"! a", "a"},
        {"f() { r\"m\" x; }", "f||rm|x"},
        {"a 'b; c' \"d; e\" > f", "a|b; c|d; e"},
        {"a > b # c", "a"},
        {"cat <<E > x\nrm y\nE\nb", "cat||b"},
        {"cat <<'E'\n$(rm y)\nE\nb", "cat||b"},
        {"cat <<E\n$(rm y)\nE\n", "cat||$||rm|y||E"},
        {"cat <<-E\n\trm\n\tE\nb", "cat||b"},
        {"cat <<E\nrm y\n", "cat||rm|y"},
        {"a 'b", "a|b"},
        {"a \\", "a"},
        {"'' rm", "rm"},
        {"", ""},
        {"\xff", ""},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(guessed); i++) {
        struct br_shell sh;
        char got[512];
        br_shell_parse(&sh, guessed[i].text, strlen(guessed[i].text));
        assert_true(sh.opaque);
        br_shell_guess(&sh, guessed[i].text, strlen(guessed[i].text));
        assert_true(sh.opaque);
        words_of(&sh, got, sizeof(got));
        if (strcmp(got, guessed[i].words) != 0)
            fail_msg("%s: %s, not %s", guessed[i].text, got, guessed[i].words);
        br_shell_free(&sh);
    }
}

/* Beyond its limits it guesses less, and touches nothing. */
static void test_guess_limits(void **state)
{
    static const struct {
        const char *part;
        unsigned n, commands, words;
    } cases[] = {
        {"a ", BR_SHELL_WORDS_MAX + 1, 1, BR_SHELL_WORDS_MAX},
        {"a;", BR_SHELL_COMMANDS_MAX + 1, BR_SHELL_COMMANDS_MAX, BR_SHELL_COMMANDS_MAX},
        {"a", BR_SHELL_MAX + 1, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(cases); i++) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4 * BR_SHELL_MAX);
        for (unsigned k = 0; k < cases[i].n; k++)
            br_buf_printf(&b, "%s", cases[i].part);
        struct br_shell *sh = calloc(1, sizeof(*sh));
        br_shell_parse(sh, b.data, b.len);
        br_shell_guess(sh, b.data, b.len);
        assert_true(sh->opaque);
        assert_int_equal(sh->ncommands, cases[i].commands);
        assert_int_equal(sh->nwords, cases[i].words);
        br_shell_free(sh);
        free(sh);
    }
}

static void check_limit(const char *part, const char *between, unsigned n, bool is_opaque)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4 * BR_SHELL_MAX);
    for (unsigned i = 0; i < n; i++)
        br_buf_printf(&b, "%s%s", i ? between : "", part);
    struct br_shell *sh = calloc(1, sizeof(*sh));
    br_shell_parse(sh, b.data, b.len);
    if (sh->opaque != is_opaque)
        fail_msg("%u of '%s': %s", n, part, sh->opaque ? sh->why : "taken apart");
    br_shell_free(sh);
    free(sh);
}

static void test_limits(void **state)
{
    (void)state;
    check_limit("a", " ", BR_SHELL_WORDS_MAX, false);
    check_limit("a", " ", BR_SHELL_WORDS_MAX + 1, true);
    check_limit("a", ";", BR_SHELL_COMMANDS_MAX, false);
    check_limit("a", ";", BR_SHELL_COMMANDS_MAX + 1, true);
    check_limit("x", "", BR_SHELL_MAX, false);
    check_limit("x", "", BR_SHELL_MAX + 1, true);
}

static void test_argv(void **state)
{
    (void)state;
    static const char *const runs[][4] = {
        {"sh", "-c", "rm x"},
        {"/bin/bash", "x"},
        {"env", "rm", "-rf", "x"},
        {"nice", "rm"},
        {"find", ".", "-exec"},
        {"find", ".", "-delete"},
        {"sudo", "ls"},
        {"", "x"},
        {"-x"},
        {"bin/"},
        {"busybox", "rm"},
        {"x86_64", "rm"},
        {"valgrind", "rm"},
        {"/lib64/ld-linux-x86-64.so.2", "/bin/rm"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(runs); i++) {
        size_t n = 0;
        while (n < 4 && runs[i][n])
            n++;
        const char *why = NULL;
        if (!br_shell_argv_opaque(runs[i], n, &why))
            fail_msg("taken at its word: %s", runs[i][0]);
        assert_non_null(why);
    }
    static const char *const plain[][3] = {
        {"rm", "-rf", "x"}, {"ls"},   {"find", ".", "-name"}, {"git", "env"}, {"echo", "sh"},
        {"shfmt", "-w"},    {"envoy"}};
    for (size_t i = 0; i < BR_ARRAY_LEN(plain); i++) {
        size_t n = 0;
        while (n < 3 && plain[i][n])
            n++;
        const char *why = "";
        if (br_shell_argv_opaque(plain[i], n, &why))
            fail_msg("opaque: %s", plain[i][0]);
        assert_null(why);
    }
    assert_true(br_shell_argv_opaque(NULL, 0, NULL));
}

/* Runs `text` in /bin/sh where every program is one that prints its words; see test_real_shell. */
static void run_shell(const char *dir, const char *text, char *out, size_t cap)
{
    int p[2];
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, 0);
        dup2(null, 2);
        dup2(p[1], 9);
        char path[256];
        snprintf(path, sizeof(path), "PATH=%s", dir);
        char *argv[] = {(char *)"sh", (char *)"-c", (char *)text, NULL}, *envp[] = {path, NULL};
        if (chdir(dir) == 0)
            execve("/bin/sh", argv, envp);
        _exit(127);
    }
    close(p[1]);
    size_t n = 0;
    ssize_t r;
    while (n + 1 < cap && (r = read(p[0], out + n, cap - n - 1)) > 0)
        n += (size_t)r;
    out[n] = '\0';
    close(p[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

/* Programs of the strings above that dash does not have built in, each a script that writes its
 * words to fd 9. */
static void test_real_shell(void **state)
{
    (void)state;
    static const char *const programs[] = {"ls", "git", "rm", "a", "b", "find"};
    static const char body[] = "#!/bin/sh\nprintf '%s' \"${0##*/}\" >&9\nfor w; do printf '|%s' "
                               "\"$w\" >&9; done\nprintf '\\n' >&9\n";
    char dir[] = "/tmp/bridle-shell-XXXXXX", path[256], got[1024], want[1024];
    unsigned compared = 0;
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < BR_ARRAY_LEN(programs); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, programs[i]);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
        assert_int_equal(br_write_all(fd, body, sizeof(body) - 1), 0);
        close(fd);
    }
    static const char *const texts[] = {"ls 'a b' \"c\\\"d\" e\\ f",
                                        "git x; rm y\nls # z",
                                        "\\rm -r 'it'\\''s'",
                                        "r\"m\" '' x",
                                        "a&&b",
                                        "ls a#b",
                                        "git \"a\\\nb\"",
                                        "l\\\ns x",
                                        "find . -name '*.c'",
                                        "ls a=b",
                                        "git 'A $X `y`'",
                                        "a;b;",
                                        "a &&\n\n# c\n b",
                                        "ls \xc3\xa4",
                                        "git \"a\\d\\\\e\"",
                                        "ls !x a~ b:~",
                                        "ls 'x\ny'"};
    for (size_t i = 0; i < BR_ARRAY_LEN(texts); i++) {
        struct br_shell sh;
        br_shell_parse(&sh, texts[i], strlen(texts[i]));
        if (sh.opaque)
            fail_msg("opaque: %s (%s)", texts[i], sh.why);
        size_t at = 0;
        want[0] = '\0';
        for (unsigned c = 0; c < sh.ncommands; c++)
            for (unsigned w = 0; w < sh.count[c]; w++)
                at += (size_t)snprintf(want + at, sizeof(want) - at, "%s%s%s", w ? "|" : "",
                                       sh.words[sh.first[c] + w], w + 1 == sh.count[c] ? "\n" : "");
        run_shell(dir, texts[i], got, sizeof(got));
        assert_string_equal(got, want);
        br_shell_free(&sh);
        compared++;
    }
    assert_true(compared == BR_ARRAY_LEN(texts));
    for (size_t i = 0; i < BR_ARRAY_LEN(programs); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, programs[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parsed),     cmocka_unit_test(test_opaque),
        cmocka_unit_test(test_guess),      cmocka_unit_test(test_guess_limits),
        cmocka_unit_test(test_limits),     cmocka_unit_test(test_argv),
        cmocka_unit_test(test_real_shell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
