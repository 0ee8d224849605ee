/*
 * When a commit is on disk. SQLite writes a commit to the write-ahead log and does not wait for the
 * disk (synchronous=NORMAL); br_store_commit() then does, as synchronous=FULL would, and
 * br_store_commit_later() leaves it to the caller, who goes on meanwhile: the kernel syncs in the
 * background (io_submit(2), IOCB_CMD_FDSYNC) and says so on an eventfd. What is not synced is shown
 * to nobody; another process that reads the store syncs the log itself before it shows a row.
 * Called by the audit process only.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
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
    if (r == 0 && (s->sync_errno || fdatasync(s->log_fd) < 0))
        r = sync_failed(s, err);
    return r;
}

/* Once; false: there is no such thing here. */
static bool prepare(struct br_store *s)
{
    aio_context_t aio = 0;
    if (s->event_fd >= 0 || s->no_aio)
        return s->event_fd >= 0;
    s->no_aio = true;
    if (syscall(SYS_io_setup, 1, &aio) < 0)
        return false;
    s->aio = aio;
    s->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return s->event_fd >= 0;
}

int br_store_sync_begin(struct br_store *s, struct br_err *err)
{
    br_require(!s->syncing);
    int r = open_log(s, err);
    if (r < 0)
        return r;
    if (!s->sync_errno && prepare(s)) {
        struct iocb one = {.aio_lio_opcode = IOCB_CMD_FDSYNC,
                           .aio_fildes = (uint32_t)s->log_fd,
                           .aio_flags = IOCB_FLAG_RESFD,
                           .aio_resfd = (uint32_t)s->event_fd};
        struct iocb *all[1] = {&one};
        if (syscall(SYS_io_submit, (aio_context_t)s->aio, 1, all) == 1) {
            s->syncing = true;
            return 1;
        }
    }
    return br_store_sync(s, err); /* no room, or this file system cannot: then it is waited for */
}

int br_store_sync_fd(const struct br_store *s)
{
    return s->event_fd;
}

int br_store_sync_end(struct br_store *s, bool wait, struct br_err *err)
{
    struct pollfd p = {.fd = s->event_fd, .events = POLLIN};
    uint64_t count;
    br_require(s->syncing);
    while (read(s->event_fd, &count, sizeof(count)) < 0) {
        if (errno != EAGAIN && errno != EINTR)
            return sync_error(err, errno);
        if (!wait)
            return -BR_E_TIMEOUT;
        (void)poll(&p, 1, -1);
    }
    struct io_event e;
    if (syscall(SYS_io_getevents, (aio_context_t)s->aio, 1, 1, &e, NULL) != 1)
        return sync_error(err, errno);
    s->syncing = false;
    errno = (int)-e.res;
    return e.res < 0 ? sync_failed(s, err) : 0;
}

void store_sync_close(struct br_store *s)
{
    if (s->event_fd >= 0)
        (void)syscall(SYS_io_destroy, (aio_context_t)s->aio); /* waits for what is under way */
    br_close(&s->event_fd);
    br_close(&s->log_fd);
}
