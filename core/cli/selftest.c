/*
 * bridle selftest: becomes bridle-selftest, which plays bridled for launchers of its own. This
 * program does not.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

int br_cli_selftest(const struct br_cli_args *a)
{
    static const char *const flags[][2] = {
        {"attack", "--attack"}, {"list", "--list"}, {"json", "--json"}, {"verbose", "--verbose"}};
    static const char *const valued[][2] = {{"class", "--class"}, {"only", "--only"}};
    struct br_err err = {.code = BR_OK};
    char path[BR_PATH_MAX];
    const char *argv[12] = {path};
    unsigned n = 1;
    if (br_cli_program(path, "bridle-selftest", &err) < 0)
        return br_cli_fail(&err);
    for (unsigned i = 0; i < BR_ARRAY_LEN(flags); i++)
        if (br_cli_opt(a, flags[i][0]))
            argv[n++] = flags[i][1];
    for (unsigned i = 0; i < BR_ARRAY_LEN(valued); i++)
        if (br_cli_opt(a, valued[i][0])) {
            argv[n++] = valued[i][1];
            argv[n++] = br_cli_opt(a, valued[i][0]);
        }
    execv(path, (char *const *)(uintptr_t)argv);
    (void)br_err_errno(&err, BR_E_FAILED, "'%s' could not be started", path);
    return br_cli_fail(&err);
}
