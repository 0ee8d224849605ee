/*
 * Where the state directory is: the one rule that bridled and bridle-image share. Called by
 * programs, which hand in their environment; the path is the operator's word and is not opened
 * here.
 */
#include <string.h>
#include <unistd.h>

#include "base/base.h"

int br_state_path(char dst[BR_PATH_MAX], char *(*env)(const char *), struct br_err *err)
{
    const char *own = env("BRIDLE_STATE_DIR"), *xdg = env("XDG_STATE_HOME"), *home = env("HOME");
    int n;
    if (own && *own)
        n = snprintf(dst, BR_PATH_MAX, "%s", own);
    else if (geteuid() == 0)
        n = snprintf(dst, BR_PATH_MAX, "/var/lib/bridle");
    else if (xdg && xdg[0] == '/')
        n = snprintf(dst, BR_PATH_MAX, "%s/bridle", xdg);
    else if (home && home[0] == '/')
        n = snprintf(dst, BR_PATH_MAX, "%s/.local/state/bridle", home);
    else
        return br_err_set(err, BR_E_STORE_FAILED,
                          "there is no place for the record: set BRIDLE_STATE_DIR or HOME");
    if (n < 0 || (size_t)n >= BR_PATH_MAX || dst[0] != '/')
        return br_err_set(err, BR_E_STORE_FAILED,
                          "the state directory must be an absolute path shorter than %u bytes",
                          BR_PATH_MAX);
    return 0;
}
