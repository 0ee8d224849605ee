/*
 * Specs of policies: busted, under the one Lua that bridle.testing is written for, with a directory
 * in which it finds that module and leaves a record of what was asked. Both programs and the specs
 * are the operator's; what they recorded is scanned and parsed strictly all the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/policy_priv.h"

#define PREFIX "bridle-policy-test-"
#define LUA "/usr/bin/lua5.4"
#define RECORDS_MAX 100000u
#define RECORD_NODES_MAX 200000u

extern const char br_lua_testing[];
extern const unsigned br_lua_testing_len;
extern char **environ;

/* ---- the programs ---- */

static bool find_program(char out[BR_PATH_MAX], const char *name)
{
    const char *path = getenv("PATH");
    for (const char *p = path && *path ? path : "/usr/bin:/bin"; *p;) {
        size_t n = strcspn(p, ":");
        int len = snprintf(out, BR_PATH_MAX, "%.*s/%s", (int)n, p, name);
        if (n && len > 0 && len < (int)BR_PATH_MAX && access(out, X_OK) == 0)
            return true;
        p += n + (p[n] == ':');
    }
    return false;
}

static int find_programs(struct policy_specs *s, struct br_err *err)
{
    if (!find_program(s->busted, "busted"))
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "'busted', which runs specs, is not installed; nothing was tested. "
                          "Install the package lua-busted");
    if (access(LUA, X_OK) < 0)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "'" LUA "', which specs run under, is not there; nothing was tested. "
                          "Install the package lua5.4");
    return br_cli_program(s->self, "bridle", err);
}

/* ---- the directory ---- */

int policy_specs_open(struct policy_specs *s, struct br_err *err)
{
    const char *tmp = getenv("TMPDIR");
    char path[BR_PATH_MAX + 32];
    int r = find_programs(s, err);
    if (r < 0)
        return r;
    if (!tmp || tmp[0] != '/')
        tmp = "/tmp";
    br_scratch_sweep(tmp, PREFIX);
    if (br_scratch_make(s->dir, sizeof(s->dir), tmp, PREFIX) < 0) {
        s->dir[0] = 0;
        return br_err_errno(err, BR_E_FAILED, "no directory could be made in '%s'", tmp);
    }
    snprintf(path, sizeof(path), "%s/bridle", s->dir);
    r = mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/bridle/testing.lua", s->dir);
    BR_CLEANUP_FD int fd = r < 0 ? -1 : open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || br_write_all(fd, br_lua_testing, br_lua_testing_len) < 0)
        return br_err_errno(err, BR_E_FAILED, "'%s' could not be written", path);
    int len = snprintf(s->record, sizeof(s->record), "%s/record", s->dir);
    return len < (int)sizeof(s->record) ? 0 : br_err_set(err, BR_E_FAILED, "'%s' is too long", tmp);
}

void policy_specs_close(struct policy_specs *s)
{
    if (s->dir[0])
        (void)br_scratch_remove(s->dir);
    s->dir[0] = 0;
}

/* ---- busted ---- */

struct words {
    char *w[BR_CLI_MANY_MAX + 16];
    unsigned n;
};

static void free_words(struct words *l)
{
    for (unsigned i = 0; i < l->n; i++)
        free(l->w[i]);
}

static void put_word(struct words *l, const char *name, const char *value)
{
    if (value && asprintf(&l->w[l->n], "%s%s", name, value) >= 0)
        l->n++;
}

/* Everything of the environment but what is said here; the array is the caller's to free. */
static char **environment(struct words *own)
{
    size_t n = 0, k = 0;
    while (environ[n])
        n++;
    char **env = calloc(n + own->n + 1, sizeof(*env));
    for (size_t i = 0; env && i < n; i++)
        if (strncmp(environ[i], "BRIDLE_POLICY_", 14) != 0 &&
            strncmp(environ[i], "BRIDLE=", 7) != 0)
            env[k++] = environ[i];
    for (unsigned i = 0; env && i < own->n; i++)
        env[k++] = own->w[i];
    return env;
}

static int spawn(pid_t *pid, char **argv, char **env, bool silent, bool to_stderr)
{
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t at;
    sigset_t none, all;
    sigemptyset(&none);
    sigemptyset(&all);
    sigaddset(&all, SIGINT);
    sigaddset(&all, SIGQUIT);
    sigaddset(&all, SIGPIPE);
    posix_spawn_file_actions_init(&fa);
    posix_spawnattr_init(&at);
    posix_spawnattr_setsigmask(&at, &none);
    posix_spawnattr_setsigdefault(&at, &all);
    posix_spawnattr_setflags(&at, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    if (silent) {
        posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0);
        posix_spawn_file_actions_addopen(&fa, 2, "/dev/null", O_WRONLY, 0);
    } else if (to_stderr) {
        posix_spawn_file_actions_adddup2(&fa, 2, 1);
    }
    int e = posix_spawn(pid, argv[0], &fa, &at, argv, env);
    posix_spawn_file_actions_destroy(&fa);
    posix_spawnattr_destroy(&at);
    return e;
}

int policy_specs_run(const struct policy_specs *s, const char *mutant, int *status,
                     struct br_err *err)
{
    char lpath[BR_PATH_MAX + 16];
    struct words argv = {.n = 0}, own = {.n = 0};
    pid_t pid = -1;
    int w = 0;
    snprintf(lpath, sizeof(lpath), "%s/?.lua", s->dir);
    put_word(&argv, "", s->busted);
    put_word(&argv, "--lua=", LUA);
    put_word(&argv, "--lpath=", lpath);
    put_word(&argv, "--pattern=", "_spec%.lua$");
    for (unsigned i = 0; i < s->nspecs; i++)
        put_word(&argv, *s->specs[i] == '-' ? "./" : "", s->specs[i]);
    put_word(&own, "BRIDLE=", s->self);
    put_word(&own, "BRIDLE_POLICY_FILE=", s->bundle);
    put_word(&own, "BRIDLE_POLICY_PROFILE=", s->profile);
    put_word(&own, "BRIDLE_POLICY_MANIFEST=", s->manifest);
    put_word(&own, "BRIDLE_POLICY_RECORD=", mutant ? NULL : s->record);
    put_word(&own, "BRIDLE_POLICY_MUTANT=", mutant);
    char **env = environment(&own);
    int e = env ? spawn(&pid, argv.w, env, mutant != NULL, s->quiet_stdout) : ENOMEM;
    while (e == 0 && waitpid(pid, &w, 0) < 0 && errno == EINTR)
        ;
    free(env);
    free_words(&argv);
    free_words(&own);
    errno = e;
    if (e)
        return br_err_errno(err, BR_E_FAILED, "'%s' could not be started", s->busted);
    *status = WIFEXITED(w) ? WEXITSTATUS(w) : 128 + WTERMSIG(w);
    if (WIFSIGNALED(w) && (WTERMSIG(w) == SIGINT || WTERMSIG(w) == SIGTERM))
        return br_err_set(err, BR_E_CANCELED, "interrupted");
    return 0;
}

/* ---- the record ---- */

int policy_specs_read(const struct policy_specs *s, json_t **records, struct br_err *err)
{
    BR_CLEANUP_FREE char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int r = 0;
    FILE *f = fopen(s->record, "re");
    *records = json_array();
    if (!f) /* nothing was asked */
        return errno == ENOENT ? 0
                               : br_err_errno(err, BR_E_IO, "'%s' could not be read", s->record);
    while (r == 0 && (n = getline(&line, &cap, f)) >= 0) {
        json_t *o = NULL;
        if (br_json_scan(line, (size_t)n, BR_JSON_DEPTH_MAX, RECORD_NODES_MAX, NULL) == 0)
            o = json_loadb(line, (size_t)n, JSON_REJECT_DUPLICATES, NULL);
        if (!json_is_object(json_object_get(o, "request")) || !json_object_get(o, "said"))
            r = br_err_set(err, BR_E_INVALID_JSON, "the specs left a record that is none");
        else if (json_array_size(*records) == RECORDS_MAX)
            r = br_err_set(err, BR_E_LIMIT_EXCEEDED, "the specs ask more than %u times",
                           RECORDS_MAX);
        else
            json_array_append(*records, o);
        json_decref(o);
    }
    fclose(f);
    return r;
}
