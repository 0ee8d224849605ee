/*
 * bridle bench: becomes bridle-bench, which links what it measures. This program does not.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

int br_cli_bench(const struct br_cli_args *a)
{
    struct br_err err = {.code = BR_OK};
    char path[BR_PATH_MAX];
    if (br_cli_program(path, "bridle-bench", &err) < 0) {
        if (err.os_errno == ENOENT)
            (void)br_err_set(&err, BR_E_FAILED,
                             "'bridle-bench' is not part of an installation, and nothing was "
                             "measured; './bridle bench' in a clone measures a build");
        return br_cli_fail(&err);
    }
    char *argv[] = {path, br_cli_opt(a, "json") ? (char *)"--json" : NULL, NULL};
    execv(path, argv);
    (void)br_err_errno(&err, BR_E_FAILED, "'%s' could not be started", path);
    return br_cli_fail(&err);
}
