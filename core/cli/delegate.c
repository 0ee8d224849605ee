/*
 * bridle doctor --delegate USER: as root, give an ordinary user a place in which sandboxes can be
 * limited. What has to be changed is known to core/sandbox; this only finds the user.
 */
#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "sandbox/sandbox.h"

int br_cli_delegate(const char *user)
{
    struct br_err err = {.code = BR_OK};
    uint32_t uid = 0;
    const struct passwd *pw = getpwnam(user);
    if (pw)
        uid = pw->pw_uid;
    else if (br_cli_number("--delegate", user, 1, UINT32_MAX - 1, &uid, &err) < 0) {
        (void)br_err_set(&err, BR_E_NOT_FOUND, "there is no user '%.80s'; nothing was changed",
                         user);
        return br_cli_fail(&err);
    }
    BR_CLEANUP_BUF struct br_buf told = BR_BUF_INIT(64 * 1024);
    int r = br_cgroup_delegate((uid_t)uid, &told, &err);
    if (told.len && !told.failed)
        (void)br_write_all(STDOUT_FILENO, told.data, told.len);
    return r < 0 ? br_cli_fail(&err) : 0;
}
