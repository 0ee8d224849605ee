/*
 * The page of a provider lease's account (core/wire/account.h): made here, because neither the
 * broker, which writes it, nor audit, which reads it, may open the other's files. bridled never
 * maps it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervise/supervise_priv.h"
#include "wire/account.h"

static int accounts_dir(const struct supervisor *s)
{
    return br_open_beneath(s->store_fd, BR_ACCOUNT_DIR, O_RDONLY | O_DIRECTORY, 0);
}

static bool to_audit(int fd)
{
    uid_t uid = geteuid() == 0 ? BR_UID_AUDIT : geteuid();
    struct stat st;
    return fstat(fd, &st) == 0 && (st.st_uid == uid || fchown(fd, uid, uid) == 0);
}

/* Of the disk as well: who writes into a mapped page that has no room is ended by a signal. */
static bool take_room(int fd)
{
    int r = posix_fallocate(fd, 0, BR_ACCOUNT_PAGE);
    errno = r;
    return r == 0;
}

/* Pages that nobody removed, because audit was killed before it had a record: of runs that have
 * ended long ago, since no run takes longer than a day. */
static void sweep(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    time_t old = (time_t)(br_now_wall_us() / 1000000u) - 2 * (time_t)BR_RUN_SECONDS_MAX;
    struct stat st;
    if (!d) {
        br_close(&fd);
        return;
    }
    for (struct dirent *e; (e = readdir(d));)
        if (fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
            st.st_mtime < old)
            (void)unlinkat(dir, e->d_name, 0);
    closedir(d);
}

int account_open(const struct supervisor *s, struct br_err *err)
{
    if (mkdirat(s->store_fd, BR_ACCOUNT_DIR, 0700) < 0 && errno != EEXIST)
        return br_err_errno(err, BR_E_STORE_FAILED,
                            "'%s/audit/" BR_ACCOUNT_DIR "' could not be made", s->state_dir);
    BR_CLEANUP_FD int dir = accounts_dir(s);
    BR_CLEANUP_FD int fd =
        dir < 0 ? -1 : br_open_beneath(dir, s->run_id, O_RDWR | O_CREAT | O_EXCL, 0600);
    bool made = fd >= 0 && to_audit(dir) && to_audit(fd) && take_room(fd);
    int why = errno;
    if (!made && fd >= 0)
        (void)unlinkat(dir, s->run_id, 0);
    errno = why;
    if (!made)
        return br_err_errno(err, BR_E_STORE_FAILED,
                            "the account of the provider lease could not be made in "
                            "'%s/audit/" BR_ACCOUNT_DIR "'; nothing was started",
                            s->state_dir);
    sweep(dir);
    return br_steal_fd(&fd);
}
