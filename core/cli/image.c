/*
 * bridle image: becomes bridle-image, which makes images and shows them. The options were parsed
 * and known here; they and the operands are handed on in a form that cannot be taken for another.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

#define ARGS_MAX 512

int br_cli_image(const struct br_cli_args *a)
{
    static const char *const with_value[] = {"name",   "format",    "suite",    "max-seconds",
                                             "mirror", "max-bytes", "max-files"};
    static const char *const flags[][2] = {{"unpack-only", "--unpack-only"}, {"json", "--json"}};
    static char text[BR_ARRAY_LEN(with_value)][BR_PATH_MAX];
    struct br_err err = {.code = BR_OK};
    char path[BR_PATH_MAX];
    const char *argv[ARGS_MAX] = {path, a->operands[0]};
    unsigned n = 2;
    if (br_cli_program(path, "bridle-image", &err) < 0)
        return br_cli_fail(&err);
    for (unsigned i = 0; i < BR_ARRAY_LEN(with_value); i++) {
        const char *v = br_cli_opt(a, with_value[i]);
        if (!v)
            continue;
        if ((size_t)snprintf(text[i], sizeof(text[i]), "--%s=%s", with_value[i], v) >=
            sizeof(text[i])) {
            (void)br_err_set(&err, BR_E_USAGE, "the value of '--%s' is too long", with_value[i]);
            return br_cli_fail(&err);
        }
        argv[n++] = text[i];
    }
    for (unsigned i = 0; i < BR_ARRAY_LEN(flags); i++)
        if (br_cli_opt(a, flags[i][0]))
            argv[n++] = flags[i][1];
    argv[n++] = "--";
    for (unsigned i = 1; i < a->noperands && n < ARGS_MAX - 1; i++)
        argv[n++] = a->operands[i];
    argv[n] = NULL;
    execv(path, (char *const *)(uintptr_t)argv);
    (void)br_err_errno(&err, BR_E_FAILED, "'%s' could not be started", path);
    return br_cli_fail(&err);
}
