/*
 * bridle exec: one policed command in the sandbox; its output and its exit status are passed on,
 * everything else is talk on stderr.
 */
#include <string.h>

#include "cli/cli.h"

int br_cli_exec(const struct br_cli_args *a)
{
    struct br_err err = {.code = BR_OK};
    const char *timeout = br_cli_opt(a, "timeout");
    uint32_t seconds = 0;
    if (timeout && br_cli_number("--timeout", timeout, 1, BR_RUN_SECONDS_MAX, &seconds, &err) < 0)
        return br_cli_fail(&err);
    if (a->ntail > BR_EXEC_ARGS_MAX) {
        (void)br_err_set(&err, BR_E_USAGE,
                         "the command has %u words, more than %u; nothing was started", a->ntail,
                         BR_EXEC_ARGS_MAX);
        return br_cli_fail(&err);
    }
    struct br_cli_foreground f = {.mode = BR_RUN_EXEC,
                                  .args = a,
                                  .dir = br_cli_opt(a, "dir"),
                                  .manifest = a->operands[0],
                                  .argv = a->tail,
                                  .argc = a->ntail,
                                  .json = br_cli_opt(a, "json") != NULL,
                                  .wall_seconds = seconds};
    return br_cli_foreground(&f);
}
