/*
 * Commands that run other commands, by the last component of their program's path. Called by
 * bridle-session and the shell splitter with words that a model wrote; nothing is trusted, and a
 * program that is not listed is taken at its word (it may still be asked about or denied).
 */
#include <string.h>

#include "script/argv.h"

struct wrapper {
    const char *name;
    const char *why;
};

#define RUNS_ARGUMENTS "it runs the command in its arguments"
#define RUNS_SCRIPT "it is a shell, which runs a text or a file"
#define OTHER_IDENTITY "it runs the command in its arguments as somebody else"
#define SHELL_WORD "it is a word of the shell that changes what other words mean"

static const struct wrapper wrappers[] = {
    {"sh", RUNS_SCRIPT},
    {"bash", RUNS_SCRIPT},
    {"dash", RUNS_SCRIPT},
    {"rbash", RUNS_SCRIPT},
    {"zsh", RUNS_SCRIPT},
    {"ksh", RUNS_SCRIPT},
    {"mksh", RUNS_SCRIPT},
    {"fish", RUNS_SCRIPT},
    {"csh", RUNS_SCRIPT},
    {"tcsh", RUNS_SCRIPT},
    {"ash", RUNS_SCRIPT},
    {"lksh", RUNS_SCRIPT},
    {"ksh93", RUNS_SCRIPT},
    {"oksh", RUNS_SCRIPT},
    {"posh", RUNS_SCRIPT},
    {"yash", RUNS_SCRIPT},
    {"sash", RUNS_SCRIPT},
    {"bash-static", RUNS_SCRIPT},
    {"zsh-static", RUNS_SCRIPT},
    {"rzsh", RUNS_SCRIPT},
    {"env", RUNS_ARGUMENTS},
    {"nice", RUNS_ARGUMENTS},
    {"nohup", RUNS_ARGUMENTS},
    {"timeout", RUNS_ARGUMENTS},
    {"xargs", RUNS_ARGUMENTS},
    {"parallel", RUNS_ARGUMENTS},
    {"time", RUNS_ARGUMENTS},
    {"setsid", RUNS_ARGUMENTS},
    {"stdbuf", RUNS_ARGUMENTS},
    {"ionice", RUNS_ARGUMENTS},
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
    {"busybox", RUNS_ARGUMENTS},
    {"toybox", RUNS_ARGUMENTS},
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
    {"sg", OTHER_IDENTITY},
    {"newgrp", OTHER_IDENTITY},
    {"sudo", OTHER_IDENTITY},
    {"doas", OTHER_IDENTITY},
    {"su", OTHER_IDENTITY},
    {"runuser", OTHER_IDENTITY},
    {"pkexec", OTHER_IDENTITY},
    {"fakeroot", OTHER_IDENTITY},
    {"eval", SHELL_WORD},
    {"exec", SHELL_WORD},
    {"command", SHELL_WORD},
    {"builtin", SHELL_WORD},
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
    {"set", SHELL_WORD},
    {"shopt", SHELL_WORD},
    {"hash", SHELL_WORD},
    {"enable", SHELL_WORD},
    {"unset", SHELL_WORD},
    {"coproc", SHELL_WORD},
    {"mapfile", SHELL_WORD},
    {"readarray", SHELL_WORD},
    {"read", SHELL_WORD},
    {"getopts", SHELL_WORD},
};

/* Arguments of find(1) that run or write. */
static const char *const find_actions[] = {"-exec",   "-execdir", "-ok",      "-okdir", "-delete",
                                           "-fprint", "-fprint0", "-fprintf", "-fls"};

static bool listed(const char *word, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(word, list[i]) == 0)
            return true;
    return false;
}

static bool opaque(const char **why, const char *text)
{
    if (why)
        *why = text;
    return true;
}

bool br_shell_argv_opaque(const char *const *argv, size_t argc, const char **why)
{
    if (why)
        *why = NULL;
    if (argc == 0 || !argv[0] || !argv[0][0])
        return opaque(why, "there is no program");
    const char *slash = strrchr(argv[0], '/');
    const char *name = slash ? slash + 1 : argv[0];
    if (!*name)
        return opaque(why, "the program is a directory");
    if (argv[0][0] == '-')
        return opaque(why, "the program's name starts with '-'");
    for (size_t i = 0; i < BR_ARRAY_LEN(wrappers); i++)
        if (strcmp(name, wrappers[i].name) == 0)
            return opaque(why, wrappers[i].why);
    if (strncmp(name, "ld-linux", 8) == 0 || strncmp(name, "ld.so", 5) == 0 ||
        strncmp(name, "ld-musl", 7) == 0)
        return opaque(why, RUNS_ARGUMENTS);
    if (strcmp(name, "find") != 0)
        return false;
    for (size_t i = 1; i < argc; i++)
        if (listed(argv[i], find_actions, BR_ARRAY_LEN(find_actions)))
            return opaque(why, "find runs or removes what it finds");
    return false;
}
