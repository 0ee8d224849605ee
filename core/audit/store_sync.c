/*
 * When a commit is on disk. SQLite writes a commit to the write-ahead log and does not wait for the
 * disk (synchronous=NORMAL); br_store_commit() then does, as synchronous=FULL would, and
 * br_store_commit_later() leaves it to the caller, who goes on meanwhile: a thread waits for the
 * disk (syncer.h). What is not synced is shown to nobody; another process that reads the store
 * syncs the log itself before it shows a row. Called by the audit process only.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "audit/store_priv.h"

#define LOG_FILE BR_STORE_FILE "-wal"

static int sync_error(struct br_err *err, int why)
{
    errno = why;
    return br_err_errno(err, BR_E_STORE_FAILED,
                        "the audit store '%s' could not be brought to the disk", BR_STORE_FILE);
}

/* The kernel tells a failure once and may have dropped what it could not write, so that a later
 * sync says nothing of it: after the first one there is none that is believed. */
static int sync_failed(struct br_store *s, struct br_err *err)
{
    s->sync_errno = s->sync_errno ? s->sync_errno : errno;
    return sync_error(err, s->sync_errno);
}

/* The log exists as long as the store is open. Closing a descriptor of it drops no lock: SQLite
 * locks other files. Its name is on disk before anything in it counts. */
static int open_log(struct br_store *s, struct br_err *err)
{
    if (s->log_fd >= 0)
        return 0;
    BR_CLEANUP_FD int dir = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    BR_CLEANUP_FD int fd = open(LOG_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || dir < 0 || fsync(dir) < 0)
        return sync_error(err, errno);
    s->log_fd = br_steal_fd(&fd);
    return 0;
}

int br_store_sync(struct br_store *s, struct br_err *err)
{
    int r = open_log(s, err);
    if (r < 0)
        return r;
    /* who was first may have been told of a failure, and then nobody else is */
    errno = s->syncing ? br_syncer_wait(s->syncer) : 0;
    if (errno || s->sync_errno || fdatasync(s->log_fd) < 0)
        return sync_failed(s, err);
    return 0;
}

void br_store_use(struct br_store *s, struct br_syncer *syncer)
{
    s->syncer = syncer;
}

int br_store_sync_begin(struct br_store *s, struct br_err *err)
{
    int r = open_log(s, err);
    if (r < 0 || s->sync_errno || !s->syncer)
        return r < 0 ? r : br_store_sync(s, err);
    br_syncer_begin(s->syncer, s->log_fd);
    s->syncing = true;
    return 1;
}

int br_store_sync_fd(const struct br_store *s)
{
    return s->syncer ? br_syncer_fd(s->syncer) : -1;
}

int br_store_sync_end(struct br_store *s, bool wait, struct br_err *err)
{
    int result = 0;
    if (!br_syncer_end(s->syncer, wait, &result))
        return -BR_E_TIMEOUT;
    s->syncing = false;
    errno = result;
    return result || s->sync_errno ? sync_failed(s, err) : 0;
}

void store_sync_close(struct br_store *s)
{
    if (s->syncing)
        (void)br_store_sync_end(s, true, NULL);
    br_close(&s->log_fd);
}
