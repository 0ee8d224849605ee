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
    const char *words; /* words joined by '|', commands by '||', see words_of() */
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
    {"echo {} a{b} @{u} HEAD^ a%b +x", "echo|{}|a{b}|@{u}|HEAD^|a%b|+x"},
    {"echo $ \"$\" a$", "echo|$|$|a$"},
    /* jobs, groups, control structures */
    {"a & b", "a||b"},
    {"a &", "a"},
    {"(cd build && rm -rf x)", "cd|build||rm|-rf|x"},
    {"{ rm -rf b; }", "rm|-rf|b"},
    {"! a", "a"},
    {"f() { rm x; }; f y", "rm|x||f|y"},
    {"if a; then b; elif c; then d; else e; fi", "a||b||c||d||e"},
    {"while a; do b; done", "a||b"},
    {"until a; do b; done", "a||b"},
    {"for x in a b; do c; done", "c"},
    {"for x in a *; do c \"$x\"; done", "c|<p>"},
    {"case a in x|y) b;; *) c;; esac", "b||c"},
    {"[ -f x ] && a", "[|<a>||a"},
    {"(a; (b))", "a||b"},
    /* redirections */
    {"ls > x", "ls >x"},
    {"ls >> x 2>&1", "ls >x"},
    {"ls < x", "ls <x"},
    {"ls 2>/dev/null >&2 <&-", "ls >/dev/null"},
    {"> x rm y", "rm|y >x"},
    {"ls > x -la", "ls|-la >x"},
    {"> x", " >x"},
    {"ls > 'a b'/c", "ls >a b/c"},
    {"ls > \"$X\"/a", "ls ><p>/a"},
    {"ls &> x", "ls >x"},
    {"ls >| x", "ls >x"},
    {"{ a; b; } > x", "a||b >x"},
    {"while a; do b; done < y", "a||b <y"},
    {"cat <<E\na 'b\nE\nls", "cat||ls"},
    {"cat <<E\n$(rm z) $X a\nE\n", "cat||rm|z"},
    {"cat <<'E' > x\n$(rm z)\nE\n", "cat >x"},
    {"cat <<E | wc -l\nx\nE\n", "cat||wc|-l"},
    {"cat <<E && b\nx\nE\nc", "cat||b||c"},
    {"cat <<-E\n\tx\n\tE\n", "cat"},
    {"python3 - <<'EOF' a\nprint('x')\nEOF\n", "python3|-|a"},
    {"cat <<< 'a b'", "cat"},
    {"cat <<< \"$(rm x)\" y", "cat|y||rm|x"},
    /* what is known only when it runs */
    {"echo $X", "echo|<a>"},
    {"echo \"$X\"", "echo|<p>"},
    {"echo \"a $X b\"", "echo|a <p> b"},
    {"echo ${X} \"${X:-y}\" \"$@\"", "echo|<a>|<p>|<a>"},
    {"echo *.c a?c", "echo|<f>.c|a<f>c"},
    {"echo [ab] a[1]b", "echo|<a>|a<a>"},
    {"echo ~ ~/x a=~", "echo|<a>|<a>/x|a=<a>"},
    {"echo {a,b}c {1..3}", "echo|<a>|<a>"},
    {"echo $((1 + 2))", "echo|<a>"},
    {"echo $(rm x) `rm y`", "echo|<a>|<a>||rm|x||rm|y"},
    {"echo \"a $(rm x)\"", "echo|a <p>||rm|x"},
    {"echo $(a $(b))", "echo|<a>||a|<a>||b"},
    {"diff <(a) <(b)", "diff|<a>|<a>||a||b"},
    {"echo $'a'", "echo|<p>"},
    {"echo a'b'\"c\"$X", "echo|abc<a>"},
    {"echo \"${X:-${Y:-z}}\" ${X%.*} ${X##*/} ${X:-\"a b\"}", "echo|<p>|<a>|<a>|<a>"},
    {"a $? $# $X", "a|<p>|<p>|<a>"},
    {"ls -- '*'", "ls|--|*"},
    /* variables */
    {"a \\\n b \\\n  c", "a|b|c"},
    {"X=1 rm x", "{X=1}rm|x"},
    {"A=1 B='x y' rm x", "{A=1}{B=x y}rm|x"},
    {"x=1; ls", "ls"},
    {"D=$(pwd) && ls \"$D\"", "pwd||ls|<p>"},
    {"export DEBUG=1; ls", "ls"},
    {"A=1 > x rm y", "{A=1}rm|y >x"},
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
    "a &&& b",
    "a ||| b",
    "a &&| b",
    "$X",
    "$X y",
    "\"$X\" y",
    "$(ls)",
    "`ls`",
    "a) b",
    "cat << EOF\nx",
    "cat <<E <<F\na\nE\nb\nF\n",
    "cat <<$X\na\n$X\n",
    "ls &> x rm y",
    "a (b)",
    "a )",
    "if true; then ls",
    "function f { rm x; }",
    "function f",
    "[[ a ]]",
    "[[ a > b ]]",
    "((rm))",
    "X=1",
    "X=(1 2)",
    "X[1]=2 ls",
    "X+=1 ls",
    "PATH=/x",
    "PATH=/x; ls",
    "IFS=x; ls",
    "for PATH in a; do ls; done",
    "LD_PRELOAD=x && ls",
    "export PATH=x",
    "export PATH",
    "declare -x A=b",
    "unset X",
    "let a=1",
    "select x in a; do ls; done",
    "for ((i=0;i<1;i++)); do ls; done",
    "case a in x) ls;& esac",
    "echo $((X + 1))",
    "echo $((PATH = 1))",
    "echo $[1]",
    "echo ${X:=y}",
    "echo ${!X}",
    "echo ${X@P}",
    "echo ${X[0]}",
    "echo `a \\`b\\``",
    "*",
    "r? x",
    "./[ab] x",
    "~/bin/x",
    "echo 'a",
    "echo \"a",
    "echo \\",
    "echo a\x01",
    "l\\\ns x",
    "a &\\\n& b",
    "echo a\rb",
    "{fd}>x ls",
    "git 22</dev/null",
    "a -f2>&1",
    "a 3<<<b",
    "echo \xff",
    "coproc ls",
};

static void show_word(struct br_buf *b, const char *word)
{
    for (; *word; word++)
        switch (*word) {
        case BR_UNKNOWN_FILE:
            br_buf_put(b, "<f>", 3);
            break;
        case BR_UNKNOWN_PART:
            br_buf_put(b, "<p>", 3);
            break;
        case BR_UNKNOWN_ANY:
            br_buf_put(b, "<a>", 3);
            break;
        default:
            br_buf_put_u8(b, (uint8_t)*word);
        }
}

static void words_of(const struct br_shell *sh, char *out, size_t cap)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(65536);
    for (unsigned c = 0; c < sh->ncommands; c++) {
        const struct br_shell_command *k = &sh->commands[c];
        br_buf_printf(&b, "%s", c ? "||" : "");
        for (unsigned w = 0; w < k->env_count; w++) {
            br_buf_put_u8(&b, '{');
            show_word(&b, sh->words[k->env_first + w]);
            br_buf_put_u8(&b, '}');
        }
        for (unsigned w = 0; w < k->count; w++) {
            br_buf_printf(&b, "%s", w ? "|" : "");
            show_word(&b, sh->words[k->first + w]);
        }
    }
    for (unsigned i = 0; i < sh->nredirects; i++) {
        br_buf_printf(&b, " %s%s", sh->redirects[i].read ? "<" : "",
                      sh->redirects[i].write ? ">" : "");
        show_word(&b, sh->redirects[i].target);
    }
    snprintf(out, cap, "%s", b.len ? br_buf_cstr(&b) : "");
}

static struct br_shell sh;

static void test_parsed(void **state)
{
    (void)state;
    unsigned bad = 0;
    for (size_t i = 0; i < BR_ARRAY_LEN(parsed); i++) {
        char got[512];
        br_shell_parse(&sh, parsed[i].text, strlen(parsed[i].text));
        words_of(&sh, got, sizeof(got));
        if (sh.opaque || strcmp(got, parsed[i].words) != 0) {
            print_message("%s: %s%s, not %s\n", parsed[i].text, got, sh.opaque ? sh.why : "",
                          parsed[i].words);
            bad++;
        }
        br_shell_free(&sh);
    }
    assert_int_equal(bad, 0);
}

static void test_opaque(void **state)
{
    (void)state;
    unsigned bad = 0;
    for (size_t i = 0; i < BR_ARRAY_LEN(opaque); i++) {
        br_shell_parse(&sh, opaque[i], strlen(opaque[i]));
        if (!sh.opaque || !sh.why) {
            print_message("not opaque: %s\n", opaque[i]);
            bad++;
        }
        br_shell_free(&sh);
    }
    br_shell_parse(&sh, "a\0b", 3);
    assert_true(sh.opaque);
    br_shell_free(&sh);
    assert_int_equal(bad, 0);
}

/* What may run in a string that is not taken apart: by the parser, or read roughly. */
static void test_guess(void **state)
{
    (void)state;
    static const struct good guessed[] = {
        {"$X; rm y", "<a>||rm|y"},
        {"PATH=/x rm y; PATH=/y; rm z", "{PATH=/x}rm|y||rm|z"},
        {"function f { rm x; }", "rm|x"},
        {"[[ a ]] && rm x", "rm|x"},
        {"for ((;;)); do rm x; done", "rm|x"},
        {"echo ${X:=$(rm y)}", "echo|<a>||rm|y"},
        {"echo \"${X:-$(rm y)}\"", "echo|<p>||rm|y"},
        {"rm x; if", "rm|x"},
        {"ls 'a; b", "ls|a; b"},
        {"a 2>&1 b; if", "a|b"},
        {"cat <<E > x; b\nrm y\nE\n", "cat||b"},
        {"cat <<E\nrm y\n", "cat||rm|y"},
        {"a \\", "a"},
        {"", ""},
        {"\xff", ""},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(guessed); i++) {
        char got[512];
        br_shell_parse(&sh, guessed[i].text, strlen(guessed[i].text));
        assert_true(sh.opaque);
        words_of(&sh, got, sizeof(got));
        if (strcmp(got, guessed[i].words) != 0)
            fail_msg("%s: %s, not %s (%s)", guessed[i].text, got, guessed[i].words, sh.why);
        br_shell_free(&sh);
    }
}

static void check_limit(const char *part, const char *between, unsigned n, bool is_opaque)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4 * BR_SHELL_MAX);
    for (unsigned i = 0; i < n; i++)
        br_buf_printf(&b, "%s%s", i ? between : "", part);
    br_shell_parse(&sh, b.data, b.len);
    if (sh.opaque != is_opaque)
        fail_msg("%u of '%s': %s", n, part, sh.opaque ? sh.why : "taken apart");
    assert_true(sh.ncommands <= BR_SHELL_COMMANDS_MAX && sh.nwords <= BR_SHELL_WORDS_MAX);
    br_shell_free(&sh);
}

static void check_depth(const char *open, const char *close, unsigned n, bool is_opaque)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4 * BR_SHELL_MAX);
    for (unsigned i = 0; i < n; i++)
        br_buf_printf(&b, "%s", open);
    br_buf_printf(&b, "rm x");
    for (unsigned i = 0; i < n; i++)
        br_buf_printf(&b, "%s", close);
    br_shell_parse(&sh, b.data, b.len);
    if (sh.opaque != is_opaque)
        fail_msg("%u of '%s': %s", n, open, sh.opaque ? sh.why : "taken apart");
    br_shell_free(&sh);
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
    check_limit(">x", " ", BR_SHELL_REDIRECTS_MAX, false);
    check_limit(">x", " ", BR_SHELL_REDIRECTS_MAX + 1, true);
    check_depth("( ", ")", 10, false);
    check_depth("( ", ")", BR_SHELL_DEPTH_MAX, true);
    check_depth("a $(", ")", 10, false);
    check_depth("a $(", ")", 2000, true);
    check_depth("{ ", "; }", 4000, true);
}

/* ---- wrappers ---- */

struct seen {
    char text[512];
};

static void see(struct seen *s, const char *what, const char *text)
{
    size_t at = strlen(s->text);
    snprintf(s->text + at, sizeof(s->text) - at, "%s%s%s", at ? "; " : "", what, text);
}

static void see_command(void *ctx, const char *const *words, size_t n)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(512);
    for (size_t i = 0; i < n; i++) {
        br_buf_printf(&b, "%s", i ? "|" : "");
        show_word(&b, words[i]);
    }
    see(ctx, "", br_buf_cstr(&b));
}

static void see_line(void *ctx, const char *line, bool certain)
{
    see(ctx, certain ? "line " : "guess ", line);
}

static void see_env(void *ctx, const char *change)
{
    see(ctx, "env ", change);
}

static const struct {
    const char *words; /* separated by '|' */
    enum br_argv_kind kind;
    const char *inner;
} wrapped[] = {
    {"ls|-l", BR_ARGV_PLAIN, ""},
    {"env|rm|-rf|x", BR_ARGV_WRAPPER, "rm|-rf|x"},
    {"env|A=1|B=2|rm", BR_ARGV_WRAPPER, "env A=1; env B=2; rm"},
    {"env|-i|-u|X|rm", BR_ARGV_WRAPPER, "env X; rm"},
    {"env|-uX|--unset=Y|-C|d|rm", BR_ARGV_WRAPPER, "env X; env Y; cd|d; rm"},
    {"env|--|A=1|rm", BR_ARGV_WRAPPER, "env A=1; rm"},
    {"env|-S|A=1 rm x|y", BR_ARGV_WRAPPER, "env A=1; rm|x|y"},
    {"env|-Srm x", BR_ARGV_WRAPPER, "rm|x"},
    {"env|-S|rm 'x'", BR_ARGV_OPAQUE, ""},
    {"env|--split-string=rm x", BR_ARGV_OPAQUE, ""},
    {"env", BR_ARGV_PLAIN, ""},
    {"env|--argv0=x|rm", BR_ARGV_OPAQUE, ""},
    {"/usr/bin/env|rm", BR_ARGV_WRAPPER, "rm"},
    {"./env|rm", BR_ARGV_OPAQUE, "rm"},
    {"nice|rm", BR_ARGV_WRAPPER, "rm"},
    {"nice|-n|5|rm|-n", BR_ARGV_WRAPPER, "rm|-n"},
    {"nice|-10|rm", BR_ARGV_WRAPPER, "rm"},
    {"nice|--adjustment=3|rm", BR_ARGV_WRAPPER, "rm"},
    {"nohup|rm|x", BR_ARGV_WRAPPER, "rm|x"},
    {"timeout|5|rm|x", BR_ARGV_WRAPPER, "rm|x"},
    {"timeout|-k|1|-s|KILL|--foreground|5s|rm", BR_ARGV_WRAPPER, "rm"},
    {"timeout|--signal|KILL|5|rm", BR_ARGV_WRAPPER, "rm"},
    {"timeout|5", BR_ARGV_PLAIN, ""},
    {"timeout|--unknown|5|rm", BR_ARGV_OPAQUE, ""},
    {"timeout|5|-x", BR_ARGV_WRAPPER, "-x"},
    {"time|-p|rm", BR_ARGV_WRAPPER, "rm"},
    {"time|-o|f|rm", BR_ARGV_OPAQUE, ""},
    {"setsid|-w|rm", BR_ARGV_WRAPPER, "rm"},
    {"stdbuf|-oL|rm", BR_ARGV_WRAPPER, "rm"},
    {"ionice|-c|3|rm", BR_ARGV_WRAPPER, "rm"},
    {"command|rm|x", BR_ARGV_WRAPPER, "rm|x"},
    {"command|-v|rm", BR_ARGV_PLAIN, ""},
    {"exec|rm|x", BR_ARGV_WRAPPER, "rm|x"},
    {"exec|-a|ls|rm", BR_ARGV_WRAPPER, "rm"},
    {"exec", BR_ARGV_OPAQUE, ""},
    {"builtin|cd|x", BR_ARGV_WRAPPER, "cd|x"},
    {"busybox|rm|x", BR_ARGV_WRAPPER, "rm|x"},
    {"busybox|--list", BR_ARGV_OPAQUE, ""},
    {"xargs|rm|-f", BR_ARGV_WRAPPER, "rm|-f|<a>"},
    {"xargs|-0|-n|1|rm", BR_ARGV_WRAPPER, "rm|<a>"},
    {"xargs|-I|{}|mv|{}|x", BR_ARGV_WRAPPER, "mv|<p>|x"},
    {"xargs|-I%|mv|a%b|x", BR_ARGV_WRAPPER, "mv|a<p>b|x"},
    {"xargs|-I|{}|{}|x", BR_ARGV_WRAPPER, "<p>|x"},
    {"xargs", BR_ARGV_PLAIN, ""},
    {"xargs|--process-slot-var=A|rm", BR_ARGV_OPAQUE, ""},
    {"find|.|-name|*.c", BR_ARGV_PLAIN, ""},
    {"find|.|-exec|rm|{}|+", BR_ARGV_BOTH, "rm|<p>"},
    {"find|.|-exec|rm|a{}b|;|-exec|ls|;", BR_ARGV_BOTH, "rm|a<p>b; ls"},
    {"find|.|-exec|rm|+|x|;", BR_ARGV_BOTH, "rm|+|x"},
    {"find|.|-okdir|rm|{}|;", BR_ARGV_BOTH, "rm|<p>"},
    {"find|.|-delete", BR_ARGV_BOTH, "rm|<p>"},
    {"find|.|-exec|rm", BR_ARGV_OPAQUE, ""},
    {"find|.|-exec", BR_ARGV_OPAQUE, ""},
    {"find|.|-exec|;", BR_ARGV_OPAQUE, ""},
    {"find|.|-fprint|x", BR_ARGV_OPAQUE, ""},
    {"sh|-c|rm x", BR_ARGV_WRAPPER, "line rm x"},
    {"bash|-lc|rm x|a|b", BR_ARGV_WRAPPER, "line rm x"},
    {"bash|-euo|pipefail|-c|rm x", BR_ARGV_WRAPPER, "line rm x"},
    {"bash|-c|--|rm x", BR_ARGV_WRAPPER, "line rm x"},
    {"bash|--norc|-c|-x|rm", BR_ARGV_WRAPPER, "line rm"},
    {"sh|-c", BR_ARGV_OPAQUE, ""},
    {"sh|x.sh", BR_ARGV_OPAQUE, ""},
    {"sh", BR_ARGV_OPAQUE, ""},
    {"bash|-ic|rm", BR_ARGV_OPAQUE, ""},
    {"bash|--rcfile|x|-c|rm", BR_ARGV_OPAQUE, ""},
    {"zsh|-c|rm", BR_ARGV_OPAQUE, ""},
    {"sudo|rm", BR_ARGV_OPAQUE, ""},
    {"chroot|x|rm", BR_ARGV_OPAQUE, ""},
    {"eval|rm", BR_ARGV_OPAQUE, ""},
    {"trap|rm|EXIT", BR_ARGV_OPAQUE, ""},
    {".|x", BR_ARGV_OPAQUE, ""},
    {"source|x", BR_ARGV_OPAQUE, ""},
    {"alias|a=b", BR_ARGV_OPAQUE, ""},
    {"read|x", BR_ARGV_OPAQUE, ""},
    {"set|-euo|pipefail", BR_ARGV_PLAIN, ""},
    {"set|-e", BR_ARGV_PLAIN, ""},
    {"set|--|x", BR_ARGV_OPAQUE, ""},
    {"set|-o|posix", BR_ARGV_OPAQUE, ""},
    {"git|push", BR_ARGV_PLAIN, ""},
    {"git|-C|d|push", BR_ARGV_PLAIN, ""},
    {"git|-c|core.pager=sh|log", BR_ARGV_OPAQUE, ""},
    {"git|-C|d|-c|alias.x=!rm|x", BR_ARGV_OPAQUE, ""},
    {"git|-c|user.name=x|commit", BR_ARGV_PLAIN, ""},
    {"git|--exec-path=x|log", BR_ARGV_OPAQUE, ""},
    {"|x", BR_ARGV_OPAQUE, ""},
    {"-x", BR_ARGV_OPAQUE, ""},
    {"bin/", BR_ARGV_OPAQUE, ""},
    {"/lib64/ld-linux-x86-64.so.2|/bin/rm", BR_ARGV_OPAQUE, ""},
    {"shfmt|-w", BR_ARGV_PLAIN, ""},
    {"echo|sh", BR_ARGV_PLAIN, ""},
};

static size_t split(char *copy, const char *words[16])
{
    size_t n = 0;
    for (char *p = copy; p && n < 16;)
        words[n++] = strsep(&p, "|");
    return n;
}

static void test_argv(void **state)
{
    (void)state;
    unsigned bad = 0;
    for (size_t i = 0; i < BR_ARRAY_LEN(wrapped); i++) {
        struct seen s = {.text = ""};
        const struct br_argv_sink sink = {&s, see_command, see_line, see_env};
        char copy[256];
        const char *words[16], *why = "";
        snprintf(copy, sizeof(copy), "%s", wrapped[i].words);
        size_t n = split(copy, words);
        enum br_argv_kind kind = br_argv_unwrap(words, n, &sink, &why);
        if (kind != wrapped[i].kind || strcmp(s.text, wrapped[i].inner) != 0 ||
            (why != NULL) != (kind == BR_ARGV_OPAQUE)) {
            print_message("%s: %d, %s (%s)\n", wrapped[i].words, (int)kind, s.text, why ? why : "");
            bad++;
        }
        /* without a sink the answer is the same */
        assert_int_equal(br_argv_unwrap(words, n, NULL, NULL), kind);
    }
    assert_int_equal(br_argv_unwrap(NULL, 0, NULL, NULL), BR_ARGV_OPAQUE);
    assert_int_equal(bad, 0);
}

static void test_spellings(void **state)
{
    static const struct good list[] = {
        {"ls|x", ""},
        {"/bin/ls|x", "ls|x"},
        {"git|push", ""},
        {"git|-C|d|push|x", "git|push|x"},
        {"git|--git-dir=x|push", "git|push"},
        {"/usr/bin/git|--no-pager|log", "git|--no-pager|log; git|log"},
        {"rm|x", ""},
        {"rm|-r|-f|x", "rm|-rf|x; rm|-fr|x; rm|-r|x; rm|-f|x; rm|-Rf|x"},
        {"rm|x|--recursive", "rm|-r|x"},
        {"rm|-v|--force|--|-r|y", "rm|-f|-r|y"},
        {"/bin/rm|x", "rm|x"},
        {"bin/", ""},
        {"git-push|x", "git|push|x"},
        {"/usr/lib/git-core/git-push", "git-push; git|push"},
        {"git-", ""},
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(list); i++) {
        struct seen s = {.text = ""};
        char copy[256];
        const char *words[16];
        snprintf(copy, sizeof(copy), "%s", list[i].text);
        size_t n = split(copy, words);
        br_argv_spellings(words, n, see_command, &s);
        assert_string_equal(s.text, list[i].words);
    }
}

static void test_variables(void **state)
{
    static const char *const harmless[] = {"DEBUG=1", "CI", "LC_ALL=C", "NO_COLOR="};
    static const char *const other[] = {
        "PATH=x",   "IFS", "LD_PRELOAD=x", "BASH_ENV=x", "ENV=x",          "GIT_SSH_COMMAND=x",
        "DEBUGX=1", "",    "=x",           "PS4=x",      "npm_config_x=y", "http_proxy=x",
        "HOME=x"};
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(harmless); i++)
        assert_true(br_env_harmless(harmless[i]) && br_env_local(harmless[i]));
    for (size_t i = 0; i < BR_ARRAY_LEN(other); i++)
        assert_false(br_env_harmless(other[i]) || br_env_local(other[i]));
    assert_true(br_env_local("x=1") && br_env_local("i") && br_env_local("my_dir=a"));
    assert_false(br_env_harmless("x=1"));
}

/* Runs `text` in a shell where every program is one that prints its words; see make_programs(). */
static void run_shell(const char *shell, const char *dir, const char *text, char *out, size_t cap)
{
    int p[2];
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, 0);
        dup2(null, 1);
        dup2(null, 2);
        dup2(p[1], 9);
        char path[256];
        snprintf(path, sizeof(path), "PATH=%s", dir);
        char *argv[] = {(char *)"sh", (char *)"-c", (char *)text, NULL}, *envp[] = {path, NULL};
        alarm(10);
        if (chdir(dir) == 0)
            execve(shell, argv, envp);
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

/* Programs that the shells do not have built in, each a script that writes its words to fd 9. */
static const char *const programs[] = {"ls", "git", "rm", "a", "b", "find", "xx"};

static void make_programs(const char *dir, bool there)
{
    static const char body[] = "#!/bin/sh\nw=${0##*/}\nfor x; do w=\"$w|$x\"; done\nprintf '%s\\n' "
                               "\"$w\" >&9\n";
    char path[256];
    for (size_t i = 0; i < BR_ARRAY_LEN(programs); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, programs[i]);
        if (!there) {
            unlink(path);
            continue;
        }
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
        assert_int_equal(br_write_all(fd, body, sizeof(body) - 1), 0);
        close(fd);
    }
}

static const char *const shells[] = {"/bin/sh", "/bin/bash"};

static void test_real_shell(void **state)
{
    (void)state;
    char dir[] = "/tmp/bridle-shell-XXXXXX", got[1024], want[1024];
    unsigned compared = 0;
    assert_non_null(mkdtemp(dir));
    make_programs(dir, true);
    static const char *const texts[] = {"ls 'a b' \"c\\\"d\" e\\ f",
                                        "git x; rm y\nls # z",
                                        "\\rm -r 'it'\\''s'",
                                        "r\"m\" '' x",
                                        "a&&b",
                                        "ls a#b",
                                        "git \"a\\\nb\"",
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
        br_shell_parse(&sh, texts[i], strlen(texts[i]));
        if (sh.opaque)
            fail_msg("opaque: %s (%s)", texts[i], sh.why);
        size_t at = 0;
        want[0] = '\0';
        for (unsigned c = 0; c < sh.ncommands; c++)
            for (unsigned w = 0; w < sh.commands[c].count; w++)
                at += (size_t)snprintf(want + at, sizeof(want) - at, "%s%s%s", w ? "|" : "",
                                       sh.words[sh.commands[c].first + w],
                                       w + 1 == sh.commands[c].count ? "\n" : "");
        for (size_t k = 0; k < BR_ARRAY_LEN(shells); k++) {
            run_shell(shells[k], dir, texts[i], got, sizeof(got));
            assert_string_equal(got, want);
        }
        br_shell_free(&sh);
        compared++;
    }
    assert_true(compared == BR_ARRAY_LEN(texts));
    make_programs(dir, false);
    assert_int_equal(rmdir(dir), 0);
}

/* ---- random strings, for which both shells must run what we say ---- */

static const char *const pieces[] = {
    "ls",    "git",  "rm",       "a",     "b",       " ",     " ",          " ",     " ",
    " ",     ";",    "&&",       "||",    "|",       "\n",    "'",          "\"",    "\\",
    "x y",   "$",    "`",        "(",     ")",       "{",     "}",          "#",     " #",
    "=",     "-f",   "--",       "*",     "~",       "!",     "if ",        "then ", "fi",
    "do",    "\\\n", "<<E",      "\nE\n", "1",       "2",     ">/dev/null", "2>&1",  "</dev/null",
    "<",     ">",    "&",        "'a b'", "\"a b\"", "\\ ",   "xx",         "; ",    " | ",
    " && ",  "A=1 ", "x=1; ",    "[",     "]",       "case ", "in ",        "esac",  ";;",
    "'\\''", "\t",   "\xc3\xa4", "^",     "%",       "@",     ",",          ".",     ":",
    "+",     "/",    "EOF",
};

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* The commands that both run everything that a string has, one line each, whatever their order. */
static int by_text(const void *x, const void *y)
{
    return strcmp(*(char *const *)x, *(char *const *)y);
}

static void sort_lines(char *text)
{
    char *lines[256], copy[8192] = "";
    size_t n = 0;
    for (char *p = text; p && *p && n < 256;)
        lines[n++] = strsep(&p, "\n");
    qsort(lines, n, sizeof(lines[0]), by_text);
    for (size_t i = 0; i < n; i++)
        snprintf(copy + strlen(copy), sizeof(copy) - strlen(copy), "%s\n", lines[i]);
    snprintf(text, 4096, "%s", copy);
}

/* What may be compared by a run: certain words, programs of ours, no operator that leaves something
 * out, no newline in a word. */
static bool comparable(const char *text)
{
    if (sh.opaque || sh.nredirects > 4 || strstr(text, "||") || strstr(text, "A=") ||
        strstr(text, "case") || strstr(text, "!"))
        return false;
    for (unsigned i = 0; i < sh.nwords; i++)
        for (const char *p = sh.words[i]; *p; p++)
            if (br_is_unknown(*p) || *p == '\n')
                return false;
    for (unsigned c = 0; c < sh.ncommands; c++) {
        bool ours = false;
        for (size_t i = 0; i < BR_ARRAY_LEN(programs); i++)
            ours |= strcmp(sh.words[sh.commands[c].first], programs[i]) == 0;
        if (!ours)
            return false;
    }
    for (unsigned i = 0; i < sh.nredirects; i++)
        if (strcmp(sh.redirects[i].target, "/dev/null") != 0)
            return false;
    return sh.ncommands > 0;
}

static void test_random(void **state)
{
    (void)state;
    enum { STRINGS = 20000, RUNS = 120 };
    char dir[] = "/tmp/bridle-shell-XXXXXX";
    static char got[4096], want[4096];
    unsigned compared = 0, same = 0;
    uint32_t seed = 20;
    assert_non_null(mkdtemp(dir));
    make_programs(dir, true);
    for (unsigned i = 0; i < STRINGS && compared < RUNS; i++) {
        char text[256];
        snprintf(text, sizeof(text), "%s", programs[next_random(&seed) % BR_ARRAY_LEN(programs)]);
        for (unsigned n = 3 + next_random(&seed) % 9; n > 0; n--)
            strncat(text, pieces[next_random(&seed) % BR_ARRAY_LEN(pieces)],
                    sizeof(text) - strlen(text) - 1);
        br_shell_parse(&sh, text, strlen(text));
        if (comparable(text)) {
            want[0] = '\0';
            for (unsigned c = 0; c < sh.ncommands; c++)
                for (unsigned w = 0; w < sh.commands[c].count; w++)
                    snprintf(want + strlen(want), sizeof(want) - strlen(want), "%s%s%s",
                             w ? "|" : "", sh.words[sh.commands[c].first + w],
                             w + 1 == sh.commands[c].count ? "\n" : "");
            sort_lines(want);
            for (size_t k = 0; k < BR_ARRAY_LEN(shells); k++) {
                run_shell(shells[k], dir, text, got, sizeof(got));
                sort_lines(got);
                same += strcmp(got, want) == 0;
                if (got[0] &&
                    strcmp(got, want) != 0) /* it may find no sense in it, and run nothing */
                    fail_msg("%s: %s\nran %swe said %s", shells[k], text, got, want);
            }
            compared++;
        }
        br_shell_free(&sh);
    }
    assert_true(compared >= RUNS / 2 && same >= compared);
    make_programs(dir, false);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parsed),    cmocka_unit_test(test_opaque),
        cmocka_unit_test(test_guess),     cmocka_unit_test(test_limits),
        cmocka_unit_test(test_argv),      cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_variables), cmocka_unit_test(test_real_shell),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
