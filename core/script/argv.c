/*
 * Commands that run other commands, by the last component of their program's path. Called by
 * bridle-session and the shell decomposer with words that a model wrote; nothing is trusted. A
 * wrapper whose options are all known is looked through, any other is opaque, and a program that is
 * not listed is taken at its word (it may still be asked about or denied): `make` and `python x.py`
 * run what their files say.
 */
#include <stdlib.h>
#include <string.h>

#include "script/argv.h"

struct opaque {
    const char *name;
    const char *why;
};

#define RUNS_ARGUMENTS "it runs the command in its arguments"
#define RUNS_SCRIPT "it is a shell, which runs a text or a file"
#define OTHER_IDENTITY "it runs the command in its arguments as somebody else"
#define SHELL_WORD "it is a word of the shell that changes what other words mean"
#define SUBSCRIPT "bash would look for a command in the name of a variable"
#define OPTIONS "it runs the command in its arguments, and has an option that is not known here"

static const struct opaque opaques[] = {
    {"rbash", RUNS_SCRIPT},
    {"zsh", RUNS_SCRIPT},
    {"ksh", RUNS_SCRIPT},
    {"mksh", RUNS_SCRIPT},
    {"fish", RUNS_SCRIPT},
    {"csh", RUNS_SCRIPT},
    {"tcsh", RUNS_SCRIPT},
    {"lksh", RUNS_SCRIPT},
    {"ksh93", RUNS_SCRIPT},
    {"oksh", RUNS_SCRIPT},
    {"posh", RUNS_SCRIPT},
    {"yash", RUNS_SCRIPT},
    {"sash", RUNS_SCRIPT},
    {"bash-static", RUNS_SCRIPT},
    {"zsh-static", RUNS_SCRIPT},
    {"rzsh", RUNS_SCRIPT},
    {"parallel", RUNS_ARGUMENTS},
    {"chrt", RUNS_ARGUMENTS},
    {"taskset", RUNS_ARGUMENTS},
    {"chroot", RUNS_ARGUMENTS},
    {"unshare", RUNS_ARGUMENTS},
    {"nsenter", RUNS_ARGUMENTS},
    {"setarch", RUNS_ARGUMENTS},
    {"prlimit", RUNS_ARGUMENTS},
    {"choom", RUNS_ARGUMENTS},
    {"script", RUNS_ARGUMENTS},
    {"watch", RUNS_ARGUMENTS},
    {"strace", RUNS_ARGUMENTS},
    {"ltrace", RUNS_ARGUMENTS},
    {"gdb", RUNS_ARGUMENTS},
    {"flock", RUNS_ARGUMENTS},
    {"setpriv", RUNS_ARGUMENTS},
    {"capsh", RUNS_ARGUMENTS},
    {"linux32", RUNS_ARGUMENTS},
    {"linux64", RUNS_ARGUMENTS},
    {"run-parts", RUNS_ARGUMENTS},
    {"start-stop-daemon", RUNS_ARGUMENTS},
    {"systemd-run", RUNS_ARGUMENTS},
    {"at", RUNS_ARGUMENTS},
    {"batch", RUNS_ARGUMENTS},
    {"ssh", RUNS_ARGUMENTS},
    {"i386", RUNS_ARGUMENTS},
    {"x86_64", RUNS_ARGUMENTS},
    {"uname26", RUNS_ARGUMENTS},
    {"uclampset", RUNS_ARGUMENTS},
    {"coresched", RUNS_ARGUMENTS},
    {"numactl", RUNS_ARGUMENTS},
    {"cpulimit", RUNS_ARGUMENTS},
    {"runcon", RUNS_ARGUMENTS},
    {"logsave", RUNS_ARGUMENTS},
    {"valgrind", RUNS_ARGUMENTS},
    {"perf", RUNS_ARGUMENTS},
    {"catchsegv", RUNS_ARGUMENTS},
    {"faketime", RUNS_ARGUMENTS},
    {"eatmydata", RUNS_ARGUMENTS},
    {"rlwrap", RUNS_ARGUMENTS},
    {"unbuffer", RUNS_ARGUMENTS},
    {"xvfb-run", RUNS_ARGUMENTS},
    {"dbus-run-session", RUNS_ARGUMENTS},
    {"dbus-launch", RUNS_ARGUMENTS},
    {"tmux", RUNS_ARGUMENTS},
    {"screen", RUNS_ARGUMENTS},
    {"entr", RUNS_ARGUMENTS},
    {"daemonize", RUNS_ARGUMENTS},
    {"proot", RUNS_ARGUMENTS},
    {"fakechroot", RUNS_ARGUMENTS},
    {"bwrap", RUNS_ARGUMENTS},
    {"firejail", RUNS_ARGUMENTS},
    {"torsocks", RUNS_ARGUMENTS},
    {"proxychains4", RUNS_ARGUMENTS},
    {"proxychains", RUNS_ARGUMENTS},
    {"torify", RUNS_ARGUMENTS},
    {"tsocks", RUNS_ARGUMENTS},
    {"dtach", RUNS_ARGUMENTS},
    {"abduco", RUNS_ARGUMENTS},
    {"chronic", RUNS_ARGUMENTS},
    {"ifne", RUNS_ARGUMENTS},
    {"pee", RUNS_ARGUMENTS},
    {"mispipe", RUNS_ARGUMENTS},
    {"lckdo", RUNS_ARGUMENTS},
    {"tsp", RUNS_ARGUMENTS},
    {"chpst", RUNS_ARGUMENTS},
    {"softlimit", RUNS_ARGUMENTS},
    {"setlock", RUNS_ARGUMENTS},
    {"ssh-agent", RUNS_ARGUMENTS},
    {"aa-exec", RUNS_ARGUMENTS},
    {"sg", OTHER_IDENTITY},
    {"newgrp", OTHER_IDENTITY},
    {"sudo", OTHER_IDENTITY},
    {"doas", OTHER_IDENTITY},
    {"su", OTHER_IDENTITY},
    {"runuser", OTHER_IDENTITY},
    {"pkexec", OTHER_IDENTITY},
    {"fakeroot", OTHER_IDENTITY},
    {"eval", SHELL_WORD},
    {"source", SHELL_WORD},
    {".", SHELL_WORD},
    {"trap", SHELL_WORD},
    {"alias", SHELL_WORD},
    {"unalias", SHELL_WORD},
    {"export", SHELL_WORD},
    {"readonly", SHELL_WORD},
    {"declare", SHELL_WORD},
    {"typeset", SHELL_WORD},
    {"local", SHELL_WORD},
    {"shopt", SHELL_WORD},
    {"hash", SHELL_WORD},
    {"enable", SHELL_WORD},
    {"unset", SHELL_WORD},
    {"coproc", SHELL_WORD},
    {"mapfile", SHELL_WORD},
    {"readarray", SHELL_WORD},
    {"read", SHELL_WORD},
    {"getopts", SHELL_WORD},
    {"let", SHELL_WORD},
    {"compgen", SHELL_WORD},
    {"complete", SHELL_WORD},
    {"bind", SHELL_WORD},
    {"fc", SHELL_WORD},
};

/* A wrapper that takes its options, then so many operands, then a command. */
struct wrapper {
    const char *name;
    const char *flags, *args; /* letters of options without and with an argument */
    const char *longs;        /* " name name= " */
    unsigned operands;
};

static const struct wrapper wrappers[] = {
    {"nice", "0123456789", "n", " adjustment= ", 0},
    {"nohup", "", "", " ", 0},
    {"timeout", "fpv", "ks", " kill-after= signal= foreground preserve-status verbose ", 1},
    {"time", "pv", "f", " portability format= verbose ", 0},
    {"setsid", "cfw", "", " ctty fork wait ", 0},
    {"stdbuf", "", "ioe", " input= output= error= ", 0},
    {"ionice", "t", "cn", " class= classdata= ignore ", 0},
    {"command", "p", "", " ", 0},
    {"builtin", "", "", " ", 0},
    {"exec", "cl", "a", " ", 0},
};
static const struct wrapper xargs = {
    "xargs", "0rtxpo", "nPLIdaEs",
    " null no-run-if-empty verbose exit interactive open-tty max-args= max-procs= max-chars= "
    "delimiter= arg-file= ",
    0};
static const struct wrapper env = {"env", "i0v", "uC",
                                   " ignore-environment null debug unset= chdir= ", 0};

bool br_word_unknown(const char *word)
{
    for (; *word; word++)
        if (br_is_unknown(*word))
            return true;
    return false;
}

/* It may become several words, or none. */
static bool splits(const char *word)
{
    return br_has_mark(word, BR_UNKNOWN_ANY) || br_has_mark(word, BR_UNKNOWN_FILE);
}

static bool listed(const char *word, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(word, list[i]) == 0)
            return true;
    return false;
}

static const char *base_name(const char *program)
{
    const char *slash = strrchr(program, '/');
    return slash ? slash + 1 : program;
}

/* ---- variables ---- */

static size_t name_length(const char *change)
{
    return strcspn(change, "=");
}

static bool named(const char *change, const char *const *list, size_t n)
{
    size_t len = name_length(change);
    for (size_t i = 0; i < n; i++)
        if (strlen(list[i]) == len && memcmp(list[i], change, len) == 0)
            return true;
    return false;
}

/* Names are listed for what they can do, and these do nothing: how much is said, in which language,
 * in which colours, and whether somebody is there. */
bool br_env_harmless(const char *change)
{
    static const char *const list[] = {
        "CI",
        "DEBUG",
        "VERBOSE",
        "NO_COLOR",
        "FORCE_COLOR",
        "CLICOLOR",
        "CLICOLOR_FORCE",
        "TERM",
        "COLORTERM",
        "COLUMNS",
        "LINES",
        "TZ",
        "LANG",
        "LANGUAGE",
        "LC_ALL",
        "LC_CTYPE",
        "LC_COLLATE",
        "LC_TIME",
        "LC_NUMERIC",
        "LC_MESSAGES",
        "NODE_ENV",
        "RUST_LOG",
        "RUST_BACKTRACE",
        "PYTHONUNBUFFERED",
        "PYTHONUTF8",
        "PYTHONHASHSEED",
        "PYTHONDONTWRITEBYTECODE",
        "DEBIAN_FRONTEND",
        "GIT_TERMINAL_PROMPT",
        "SOURCE_DATE_EPOCH",
        "RAILS_ENV",
        "GOARCH",
        "GOOS",
        "CGO_ENABLED",
        "CARGO_TERM_COLOR",
        "ASAN_OPTIONS",
        "UBSAN_OPTIONS",
        "CTEST_OUTPUT_ON_FAILURE",
    };
    return named(change, list, BR_ARRAY_LEN(list));
}

bool br_env_local(const char *change)
{
    static const char *const proxies[] = {"http_proxy", "https_proxy", "ftp_proxy",
                                          "all_proxy",  "no_proxy",    "rsync_proxy"};
    size_t len = name_length(change);
    if (br_env_harmless(change))
        return true;
    if (len == 1)
        return change[0] >= 'A' && change[0] <= 'z' && change[0] != '_';
    /* nothing else that programs look for is written in small letters */
    for (size_t i = 0; i < len; i++)
        if (!((change[i] >= 'a' && change[i] <= 'z') || change[i] == '_' ||
              (change[i] >= '0' && change[i] <= '9')))
            return false;
    return len > 0 && strncmp(change, "npm_", 4) != 0 &&
           !named(change, proxies, BR_ARRAY_LEN(proxies));
}

/* ---- wrappers ---- */

static enum br_argv_kind opaque(const char **why, const char *text)
{
    if (why)
        *why = text;
    return BR_ARGV_OPAQUE;
}

/* Is `name` in a list of longs, and does it take an argument? 0 no, 1 yes, 2 yes with argument. */
static int long_option(const char *longs, const char *name, size_t len)
{
    for (const char *p = longs + 1; *p;) {
        size_t n = strcspn(p, " =");
        if (n == len && memcmp(p, name, len) == 0)
            return p[n] == '=' ? 2 : 1;
        p += strcspn(p, " ");
        p += *p == ' ';
    }
    return 0;
}

typedef void option_fn(void *ctx, char letter, const char *value);

/*
 * Behind the options of words[from..]: the index of the first operand, or 0 if an option is not
 * known or not certain. `fn` (may be NULL) gets those with an argument; a long one as the first
 * letter of its name in capitals.
 */
static size_t skip_options(const struct wrapper *w, const char *const *words, size_t n,
                           option_fn *fn, void *ctx)
{
    size_t i = 1;
    for (; i < n; i++) {
        const char *word = words[i];
        if (br_word_unknown(word))
            return 0;
        if (word[0] != '-' || !word[1])
            return i;
        if (strcmp(word, "--") == 0)
            return i + 1;
        if (word[1] == '-') {
            const char *name = word + 2, *equals = strchr(name, '=');
            size_t len = equals ? (size_t)(equals - name) : strlen(name);
            int how = long_option(w->longs, name, len);
            if (how == 0 || (how == 1 && equals) || (how == 2 && !equals && i + 1 >= n))
                return 0;
            if (how == 2) {
                const char *value = equals ? equals + 1 : words[++i];
                if (fn)
                    fn(ctx, (char)(name[0] - 'a' + 'A'), value);
            }
            continue;
        }
        for (const char *p = word + 1; *p; p++) {
            if (strchr(w->flags, *p))
                continue;
            if (!strchr(w->args, *p) || (!p[1] && i + 1 >= n))
                return 0;
            const char *value = p[1] ? p + 1 : words[++i];
            if (fn)
                fn(ctx, *p, value);
            break;
        }
    }
    return i;
}

static void tell_command(const struct br_argv_sink *sink, const char *const *words, size_t n)
{
    if (sink)
        sink->command(sink->ctx, words, n);
}

static enum br_argv_kind unwrap_simple(const struct wrapper *w, const char *const *words, size_t n,
                                       const struct br_argv_sink *sink, const char **why)
{
    size_t i = skip_options(w, words, n, NULL, NULL);
    if (i == 0)
        return opaque(why, OPTIONS);
    for (unsigned k = 0; k < w->operands && i < n; k++, i++)
        if (splits(words[i]))
            return opaque(why, OPTIONS);
    if (i >= n)
        return strcmp(w->name, "exec") == 0 ? opaque(why, SHELL_WORD) : BR_ARGV_PLAIN;
    if (strcmp(w->name, "time") == 0 && (strcmp(words[i], "!") == 0 || strchr(words[i], '='))) {
        while (i < n && (strcmp(words[i], "!") == 0 || strchr(words[i], '=')))
            i++;
        if (i < n)
            tell_command(sink, words + i, n - i);
        return opaque(why, SHELL_WORD);
    }
    tell_command(sink, words + i, n - i);
    for (size_t k = i; strcmp(words[i], "[") == 0 && k < n; k++)
        if (splits(words[k]))
            return opaque(why, SUBSCRIPT);
    return BR_ARGV_WRAPPER;
}

struct env_options {
    const struct br_argv_sink *sink;
};

static void env_option(void *ctx, char letter, const char *value)
{
    const struct br_argv_sink *sink = ((struct env_options *)ctx)->sink;
    const char *const cd[] = {"cd", value};
    if (letter == 'C')
        tell_command(sink, cd, 2);
    else if (sink) /* u, U */
        sink->env(sink->ctx, value);
}

static enum br_argv_kind unwrap_env(const char *const *words, size_t n,
                                    const struct br_argv_sink *sink, const char **why)
{
    struct env_options o = {.sink = sink};
    size_t i = skip_options(&env, words, n, env_option, &o);
    if (i == 0)
        return opaque(why, OPTIONS);
    if (i < n && strcmp(words[i], "-") == 0)
        i++;
    for (; i < n && strchr(words[i], '='); i++) {
        if (splits(words[i]) || words[i][0] == BR_UNKNOWN_PART)
            return opaque(why, OPTIONS);
        if (sink)
            sink->env(sink->ctx, words[i]);
    }
    if (i >= n)
        return BR_ARGV_PLAIN;
    tell_command(sink, words + i, n - i);
    return BR_ARGV_WRAPPER;
}

/* `env -S 'A=1 rm x'`: what has no quotes, escapes and variables is split at blanks. */
static enum br_argv_kind unwrap_split(const char *const *words, size_t n, size_t at,
                                      const char *text, const struct br_argv_sink *sink,
                                      const char **why)
{
    BR_CLEANUP_FREE char *copy = strdup(text);
    BR_CLEANUP_FREE const char **list = calloc(strlen(text) / 2 + n + 3, sizeof(*list));
    size_t count = 0;
    char *save = NULL;
    if (!copy || !list || br_word_unknown(text) || strpbrk(text, "'\"\\$#-"))
        return opaque(why, OPTIONS);
    list[count++] = "env";
    for (char *w = strtok_r(copy, " \t\n", &save); w; w = strtok_r(NULL, " \t\n", &save))
        list[count++] = w;
    for (size_t i = at; i < n; i++)
        list[count++] = words[i];
    return unwrap_env(list, count, sink, why);
}

static enum br_argv_kind unwrap_env_any(const char *const *words, size_t n,
                                        const struct br_argv_sink *sink, const char **why)
{
    if (n >= 3 && strcmp(words[1], "-S") == 0)
        return unwrap_split(words, n, 3, words[2], sink, why);
    if (n >= 2 && strncmp(words[1], "-S", 2) == 0)
        return unwrap_split(words, n, 2, words[1] + 2, sink, why);
    return unwrap_env(words, n, sink, why);
}

/* A copy of a word with a mark in the place of each `what`. */
static char *replace(const char *word, const char *what)
{
    size_t len = strlen(what);
    char *out = malloc(strlen(word) + 1), *p = out;
    if (!out)
        return NULL;
    for (; *word;) {
        if (len && strncmp(word, what, len) == 0) {
            *p++ = BR_UNKNOWN_PART;
            word += len;
        } else {
            *p++ = *word++;
        }
    }
    *p = 0;
    return out;
}

/* Tell a command in which each `what` is something unknown. */
static enum br_argv_kind tell_replaced(const struct br_argv_sink *sink, const char *const *words,
                                       size_t n, const char *what, const char **why)
{
    BR_CLEANUP_FREE char **copy = calloc(n + 1, sizeof(*copy));
    bool ok = copy && n > 0;
    for (size_t i = 0; ok && i < n; i++)
        ok = (copy[i] = replace(words[i], what)) != NULL;
    if (ok)
        tell_command(sink, (const char *const *)copy, n);
    for (size_t i = 0; copy && i < n; i++)
        free(copy[i]);
    return ok ? BR_ARGV_WRAPPER : opaque(why, RUNS_ARGUMENTS);
}

static void xargs_option(void *ctx, char letter, const char *value)
{
    if (letter == 'I')
        *(const char **)ctx = value;
}

static enum br_argv_kind unwrap_xargs(const char *const *words, size_t n,
                                      const struct br_argv_sink *sink, const char **why)
{
    static const char any[] = {BR_UNKNOWN_ANY, 0};
    const char *what = NULL;
    size_t i = skip_options(&xargs, words, n, xargs_option, &what);
    if (i == 0)
        return opaque(why, OPTIONS);
    if (i >= n)
        return BR_ARGV_PLAIN; /* it runs echo */
    if (what)
        return tell_replaced(sink, words + i, n - i, what, why);
    BR_CLEANUP_FREE const char **copy = calloc(n - i + 1, sizeof(*copy));
    if (!copy)
        return opaque(why, RUNS_ARGUMENTS);
    memcpy(copy, words + i, (n - i) * sizeof(*copy));
    copy[n - i] = any;
    tell_command(sink, copy, n - i + 1);
    return BR_ARGV_WRAPPER;
}

/* sh [options] -c LINE [arguments]. */
static enum br_argv_kind unwrap_shell(const char *const *words, size_t n,
                                      const struct br_argv_sink *sink, const char **why)
{
    static const char *const longs[] = {"--login", "--norc", "--noprofile", "--posix"};
    bool line = false;
    size_t i = 1;
    for (; i < n; i++) {
        const char *word = words[i];
        if (br_word_unknown(word))
            return opaque(why, RUNS_SCRIPT);
        if (listed(word, longs, BR_ARRAY_LEN(longs)))
            continue;
        if ((word[0] != '-' && word[0] != '+') || !word[1])
            break;
        if (strcmp(word, "--") == 0) {
            i++;
            break;
        }
        if (word[1 + strspn(word + 1, "ceuxlo")])
            return opaque(why, RUNS_SCRIPT);
        line |= word[0] == '-' && strchr(word, 'c');
        if (strchr(word, 'o') && (++i >= n || br_word_unknown(words[i])))
            return opaque(why, RUNS_SCRIPT);
    }
    if (!line || i >= n)
        return opaque(why, RUNS_SCRIPT);
    bool certain = !br_word_unknown(words[i]);
    if (sink)
        sink->line(sink->ctx, words[i], certain);
    return certain ? BR_ARGV_WRAPPER
                   : opaque(why, "it is a shell, and what it runs is known only when it runs");
}

/* ---- programs that do something by themselves, too ---- */

static enum br_argv_kind unwrap_find(const char *const *words, size_t n,
                                     const struct br_argv_sink *sink, const char **why)
{
    static const char *const runs[] = {"-exec", "-execdir", "-ok", "-okdir"};
    static const char *const writes[] = {"-fprint", "-fprint0", "-fprintf", "-fls"};
    static const char one[] = {BR_UNKNOWN_PART, 0};
    static const char *const removes[] = {"rm", one};
    enum br_argv_kind kind = BR_ARGV_PLAIN;
    for (size_t i = 1; i < n; i++) {
        if (listed(words[i], writes, BR_ARRAY_LEN(writes)))
            return opaque(why, "find writes into a file");
        if (br_has_mark(words[i], BR_UNKNOWN_ANY) || br_is_unknown(words[i][0]))
            kind = opaque(why, "it is not known what find does with what it finds");
        if (strcmp(words[i], "-delete") == 0) {
            tell_command(sink, removes, 2);
            kind = kind == BR_ARGV_OPAQUE ? kind : BR_ARGV_BOTH;
        }
        if (!listed(words[i], runs, BR_ARRAY_LEN(runs)))
            continue;
        size_t from = ++i;
        while (i < n && strcmp(words[i], ";") != 0 &&
               !(strcmp(words[i], "+") == 0 && strcmp(words[i - 1], "{}") == 0))
            i++;
        if (i >= n || tell_replaced(sink, words + from, i - from, "{}", why) == BR_ARGV_OPAQUE)
            return opaque(why, "it is not known what find runs");
        kind = kind == BR_ARGV_OPAQUE ? kind : BR_ARGV_BOTH;
    }
    return kind;
}

/* git's configuration names programs. */
static enum br_argv_kind check_git(const char *const *words, size_t n, const char **why)
{
    static const char *const safe[] = {"user.",           "color.",         "advice.",
                                       "core.quotepath=", "core.pager=cat", "init.defaultBranch=",
                                       "commit.gpgsign="};
    for (size_t i = 1; i < n && (words[i][0] == '-' || br_word_unknown(words[i])); i++) {
        if (br_has_mark(words[i], BR_UNKNOWN_ANY) || br_is_unknown(words[i][0]))
            return opaque(why, "it is not known which of git's commands it is");
        if (strncmp(words[i], "--config-env", 12) == 0 ||
            strncmp(words[i], "--exec-path=", 12) == 0)
            return opaque(why, "it changes git's configuration, which can run programs");
        if (strcmp(words[i], "-C") == 0 || strcmp(words[i], "--git-dir") == 0 ||
            strcmp(words[i], "--work-tree") == 0 || strcmp(words[i], "--namespace") == 0)
            i++;
        if (i + 1 >= n || strcmp(words[i], "-c") != 0)
            continue;
        const char *key = words[++i];
        bool ok = false;
        for (size_t k = 0; k < BR_ARRAY_LEN(safe) && !ok; k++)
            ok = strncmp(key, safe[k], strlen(safe[k])) == 0 &&
                 (!key[strlen(safe[k])] || strchr(".=", safe[k][strlen(safe[k]) - 1]));
        if (!ok)
            return opaque(why, "it changes git's configuration, which can run programs");
    }
    return BR_ARGV_PLAIN;
}

/* The sub-commands of git that run what their arguments say. */
static enum br_argv_kind check_git_command(const char *const *words, size_t n,
                                           const struct br_argv_sink *sink, const char **why)
{
    static const char *const rebase[] = {"-x", "--exec"};
    size_t at = br_argv_git_command(words, n);
    if (at == 0)
        return BR_ARGV_PLAIN;
    const char *name = words[at], *next = at + 1 < n ? words[at + 1] : "";
    bool runs = strcmp(name, "filter-branch") == 0 || strcmp(name, "for-each-repo") == 0 ||
                (strcmp(name, "bisect") == 0 && strcmp(next, "run") == 0);
    for (size_t i = at + 1; i < n && !runs; i++) {
        if (strcmp(name, "submodule") == 0)
            runs = strcmp(words[i], "foreach") == 0;
        else if (strcmp(name, "rebase") == 0)
            runs = listed(words[i], rebase, BR_ARRAY_LEN(rebase)) ||
                   strncmp(words[i], "-x", 2) == 0 || strncmp(words[i], "--exec=", 7) == 0;
    }
    if (!runs)
        return BR_ARGV_PLAIN;
    for (size_t i = at + 1; i < n && sink; i++) {
        const char *exec = strncmp(words[i], "--exec=", 7) == 0 ? words[i] + 7 : words[i];
        if (exec[strcspn(exec, " ;&|")])
            sink->line(sink->ctx, exec, false);
    }
    return opaque(why, RUNS_ARGUMENTS);
}

/* May it hold a subscript, in which bash runs what looks like a command? */
static bool subscript(const char *word)
{
    return br_word_unknown(word) || strchr(word, '[');
}

/* -v, or what may become that. */
static bool may_be_option(const char *word)
{
    return strncmp(word, "-v", 2) == 0 ||
           (br_word_unknown(word) && (word[0] == '-' || br_is_unknown(word[0])));
}

/*
 * Words of the shell that take the name of a variable behind an option: in name[subscript] bash
 * runs substitutions, whatever quotes there were. `test $X`: X may become such an option.
 */
static enum br_argv_kind check_names(const char *name, const char *const *words, size_t n,
                                     const char **why)
{
    /* the walker has looked at the words of its own "[ ..." */
    bool test = strcmp(name, "test") == 0 || (strcmp(name, "[") == 0 && n > 2);
    bool print = strcmp(name, "printf") == 0, wait = strcmp(name, "wait") == 0;
    if (strcmp(name, "jobs") == 0)
        return n > 1 ? opaque(why, RUNS_ARGUMENTS) : BR_ARGV_PLAIN;
    if (wait && n > 1 && (words[1][0] == '-' || br_word_unknown(words[1])))
        return opaque(why, SUBSCRIPT);
    if (print && n > 1 && may_be_option(words[1])) {
        bool certain = !br_word_unknown(words[1]), behind = certain && words[1][2];
        if (certain ? subscript(behind || n < 3 ? words[1] + 2 : words[2])
                    : n > 2 || splits(words[1]))
            return opaque(why, SUBSCRIPT);
    }
    for (size_t i = 1; i < n && test; i++)
        if (splits(words[i]) || (i + 1 < n && may_be_option(words[i]) && subscript(words[i + 1])))
            return opaque(why, SUBSCRIPT);
    return BR_ARGV_PLAIN;
}

static enum br_argv_kind check_set(const char *const *words, size_t n, const char **why)
{
    static const char *const options[] = {"pipefail", "errexit", "nounset", "xtrace"};
    for (size_t i = 1; i < n; i++) {
        const char *p = words[i];
        if (listed(p, options, BR_ARRAY_LEN(options)) && i > 1 && strchr(words[i - 1], 'o'))
            continue;
        if ((*p != '-' && *p != '+') || !p[1] || p[1 + strspn(p + 1, "euxo")])
            return opaque(why, SHELL_WORD);
    }
    return BR_ARGV_PLAIN;
}

/* ---- all of them ---- */

static enum br_argv_kind by_name(const char *name, const char *const *words, size_t n,
                                 const struct br_argv_sink *sink, const char **why)
{
    static const char *const shells[] = {"sh", "bash", "dash", "ash"};
    static const char *const boxes[] = {"busybox", "toybox"};
    for (size_t i = 0; i < BR_ARRAY_LEN(opaques); i++)
        if (strcmp(name, opaques[i].name) == 0)
            return opaque(why, opaques[i].why);
    if (strncmp(name, "ld-linux", 8) == 0 || strncmp(name, "ld.so", 5) == 0 ||
        strncmp(name, "ld-musl", 7) == 0)
        return opaque(why, RUNS_ARGUMENTS);
    if (strcmp(name, "command") == 0 && n > 1 &&
        (strcmp(words[1], "-v") == 0 || strcmp(words[1], "-V") == 0))
        return BR_ARGV_PLAIN; /* it only says what it would run */
    for (size_t i = 0; i < BR_ARRAY_LEN(wrappers); i++)
        if (strcmp(name, wrappers[i].name) == 0)
            return unwrap_simple(&wrappers[i], words, n, sink, why);
    if (listed(name, shells, BR_ARRAY_LEN(shells)))
        return unwrap_shell(words, n, sink, why);
    if (listed(name, boxes, BR_ARRAY_LEN(boxes))) {
        if (n < 2 || words[1][0] == '-' || br_word_unknown(words[1]))
            return opaque(why, RUNS_ARGUMENTS);
        tell_command(sink, words + 1, n - 1);
        return BR_ARGV_WRAPPER;
    }
    if (strcmp(name, "env") == 0)
        return unwrap_env_any(words, n, sink, why);
    if (strcmp(name, "xargs") == 0)
        return unwrap_xargs(words, n, sink, why);
    if (strcmp(name, "find") == 0)
        return unwrap_find(words, n, sink, why);
    if (strcmp(name, "git") == 0) {
        enum br_argv_kind kind = check_git(words, n, why);
        return kind == BR_ARGV_PLAIN ? check_git_command(words, n, sink, why) : kind;
    }
    if (strcmp(name, "set") == 0)
        return check_set(words, n, why);
    return check_names(name, words, n, why);
}

enum br_argv_kind br_argv_unwrap(const char *const *words, size_t n,
                                 const struct br_argv_sink *sink, const char **why)
{
    static const char *const places[] = {"/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/",
                                         "/usr/sbin/"};
    if (why)
        *why = NULL;
    if (n == 0 || !words[0] || !words[0][0])
        return opaque(why, "there is no program");
    const char *name = base_name(words[0]);
    if (!*name)
        return opaque(why, "the program is a directory");
    if (words[0][0] == '-')
        return opaque(why, "the program's name starts with '-'");
    if (br_word_unknown(words[0]))
        return opaque(why, "which program it runs is known only when it runs");
    enum br_argv_kind kind = by_name(name, words, n, sink, why);
    if (kind == BR_ARGV_PLAIN || kind == BR_ARGV_OPAQUE || name == words[0])
        return kind;
    for (size_t i = 0; i < BR_ARRAY_LEN(places); i++)
        if (strlen(places[i]) == (size_t)(name - words[0]) &&
            strncmp(words[0], places[i], strlen(places[i])) == 0)
            return kind;
    return opaque(why, "it has the name of a program that runs others, but is another one");
}
