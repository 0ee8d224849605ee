/*
 * Other spellings of a command: without the path of its program, git without its global options or
 * as a program of its own (git-push), rm with its options in one word. They are only ever compared
 * with rules that tighten an answer, so that a spelling too many is no danger. Called by the
 * session (command.c) with words that a model wrote; nothing is trusted.
 */
#include <stdlib.h>
#include <string.h>

#include "script/argv.h"

static const char *base_name(const char *program)
{
    const char *slash = strrchr(program, '/');
    return slash ? slash + 1 : program;
}

size_t br_argv_git_command(const char *const *words, size_t n)
{
    static const char *const with[] = {
        "-C",          "-c",           "--git-dir",      "--work-tree",
        "--namespace", "--config-env", "--super-prefix", "--attr-source"};
    for (size_t i = 1; i < n; i++) {
        if (words[i][0] != '-')
            return i;
        for (size_t k = 0; k < BR_ARRAY_LEN(with); k++)
            if (strcmp(words[i], with[k]) == 0) {
                i++;
                break;
            }
    }
    return 0;
}

static void spell_git(const char **list, size_t n,
                      void (*fn)(void *ctx, const char *const *words, size_t n), void *ctx)
{
    size_t at = br_argv_git_command(list, n);
    if (at < 2)
        return;
    memmove(list + 1, list + at, (n - at) * sizeof(*list));
    fn(ctx, list, n - at + 1);
}

/* The options of rm as one word: what -r, -R and --recursive say, and -f and --force. `list` has
 * room for one word more than there are. */
static void spell_rm(const char *const *words, size_t n, const char **list,
                     void (*fn)(void *ctx, const char *const *words, size_t n), void *ctx)
{
    static const char *const spelled[] = {"-rf", "-fr", "-r", "-f", "-Rf"};
    bool recursive = false, force = false, ended = false;
    size_t kept = 2;
    for (size_t i = 1; i < n; i++) {
        const char *word = words[i];
        if (ended || word[0] != '-' || !word[1]) {
            list[kept++] = word;
            continue;
        }
        ended = strcmp(word, "--") == 0;
        bool letters = word[1] != '-';
        recursive |= letters ? strpbrk(word, "rR") != NULL : strncmp(word, "--r", 3) == 0;
        force |= letters ? strchr(word, 'f') != NULL : strncmp(word, "--f", 3) == 0;
    }
    list[0] = "rm";
    for (size_t i = 0; i < BR_ARRAY_LEN(spelled); i++) {
        if ((strpbrk(spelled[i], "rR") && !recursive) || (strchr(spelled[i], 'f') && !force))
            continue;
        list[1] = spelled[i];
        fn(ctx, list, kept);
    }
}

void br_argv_spellings(const char *const *words, size_t n,
                       void (*fn)(void *ctx, const char *const *words, size_t n), void *ctx)
{
    const char *name = base_name(words[0]);
    bool git = strcmp(name, "git") == 0, rm = strcmp(name, "rm") == 0;
    bool part = strncmp(name, "git-", 4) == 0 && name[4]; /* git-push, a program of its own */
    if (!*name || (name == words[0] && !git && !rm && !part))
        return;
    BR_CLEANUP_FREE const char **list = calloc(n + 2, sizeof(*list));
    if (!list) {
        fn(ctx, NULL, 0);
        return;
    }
    memcpy(list, words, n * sizeof(*list));
    list[0] = name;
    if (name != words[0])
        fn(ctx, list, n);
    if (git)
        spell_git(list, n, fn, ctx);
    if (part) {
        list[0] = "git";
        list[1] = name + 4;
        memcpy(list + 2, words + 1, (n - 1) * sizeof(*list));
        fn(ctx, list, n + 1);
    }
    if (rm)
        spell_rm(words, n, list, fn, ctx);
}
