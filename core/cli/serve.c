/*
 * `bridle serve` becomes a bridled that serves clients (`bridled --service`), in the foreground:
 * what it says of itself goes to standard error, where it listens to standard output. Only paths
 * are made absolute here; whatever they lead to is read by bridled, and read again when it is told
 * to. The environment of systemd stays as it is: the process is the same.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

#define WORDS_MAX 48u

struct words {
    char *argv[WORDS_MAX + 1];
    unsigned n;
    char path[5][BR_PATH_MAX];
    unsigned npaths;
};

static void add(struct words *w, const char *word)
{
    br_require(w->n < WORDS_MAX);
    w->argv[w->n++] = (char *)(uintptr_t)word;
}

static int add_path(struct words *w, const struct br_cli_args *a, const char *name,
                    struct br_err *err)
{
    const char *value = br_cli_opt(a, name);
    char cwd[BR_PATH_MAX] = "", *to = w->path[w->npaths];
    if (!value)
        return 0;
    bool relative = value[0] != '/' && !(strcmp(name, "policy") == 0 && br_cli_is_shipped(value));
    if (relative && !getcwd(cwd, sizeof(cwd)))
        return br_err_errno(err, BR_E_USAGE, "the present directory has no usable path");
    int n = snprintf(to, BR_PATH_MAX, "%s%s%s", cwd, relative ? "/" : "", value);
    if (n < 0 || n >= (int)BR_PATH_MAX)
        return br_err_set(err, BR_E_USAGE, "the path of '--%s' is too long; nothing was started",
                          name);
    w->npaths++;
    return 0;
}

int br_cli_serve(const struct br_cli_args *a)
{
    static const char *const options[][2] = {{"config", "--config"},
                                             {"root", "--root"},
                                             {"policy", "--policy"},
                                             {"scenario", "--scenario"}};
    static struct words w;
    struct br_err err = {.code = BR_OK};
    char program[BR_PATH_MAX];
    int r = br_cli_program(program, "bridled", &err);
    add(&w, "bridled");
    add(&w, "--service");
    for (size_t i = 0; r == 0 && i < BR_ARRAY_LEN(options); i++) {
        unsigned before = w.npaths;
        r = add_path(&w, a, options[i][0], &err);
        if (r == 0 && w.npaths > before) {
            add(&w, options[i][1]);
            add(&w, w.path[before]);
        }
    }
    if (r == 0 && br_cli_opt(a, "model")) {
        add(&w, "--model");
        add(&w, br_cli_opt(a, "model"));
    }
    for (unsigned i = 0; r == 0 && i < a->nmany; i++) {
        add(&w, "--listen");
        add(&w, a->many[i]);
    }
    if (r < 0)
        return br_cli_fail(&err);
    execv(program, w.argv);
    (void)br_err_errno(&err, BR_E_FAILED, "'%s' could not be started", program);
    return br_cli_fail(&err);
}
