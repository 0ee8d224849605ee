/*
 * The private directory of one import, and the sweep of what dead ones left. Called by
 * bridle-image. A directory belongs to the process that holds its lock; the kernel lets go of it
 * however that process ends. An image exists once its index does; files without one are left over.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "image/make_priv.h"

#define WORK_PREFIX "tmp."

volatile int br_image_stop;

int br_store_lock(const struct br_image_store *s, struct br_err *err)
{
    while (flock(s->fd, LOCK_EX) < 0) {
        if (errno != EINTR)
            return br_err_errno(err, BR_E_STORE_FAILED, "the store of images cannot be locked");
        if (br_image_stop)
            return br_err_set(err, BR_E_CANCELED, "canceled; nothing was changed");
    }
    return 0;
}

void br_store_unlock(const struct br_image_store *s)
{
    (void)flock(s->fd, LOCK_UN);
}

/* Only what this program makes is ever removed. */
static int sweep_entry(const struct br_image_store *s, const char *name, struct br_err *err)
{
    char index[BR_IMAGE_FILE_MAX];
    struct stat st;
    if (strncmp(name, WORK_PREFIX, strlen(WORK_PREFIX)) == 0) {
        BR_CLEANUP_FD int fd = br_open_beneath(s->fd, name, O_RDONLY | O_DIRECTORY, 0);
        if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
            return 0; /* its maker lives */
        return br_remove_tree(s->fd, name, err);
    }
    if (strncmp(name, "new_", 4) == 0)
        return unlinkat(s->fd, name, 0) < 0 && errno != ENOENT
                   ? br_err_errno(err, BR_E_STORE_FAILED, "'%s' was not removed", name)
                   : 0;
    const char *dot = strchr(name, '.');
    if (!dot || dot - name != (long)BR_IMAGE_HEX || strcmp(dot, ".index") == 0)
        return 0;
    snprintf(index, sizeof(index), "%.64s.index", name);
    if (fstatat(s->fd, index, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
        return 0;
    return strcmp(dot, ".tree") == 0 ? br_remove_tree(s->fd, name, err)
           : strcmp(dot, ".erofs") == 0 && unlinkat(s->fd, name, 0) < 0
               ? br_err_errno(err, BR_E_STORE_FAILED, "'%s' was not removed", name)
               : 0;
}

int br_store_sweep(const struct br_image_store *s, struct br_err *err)
{
    int fd = openat(s->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    int r = 0;
    if (!d) {
        br_close(&fd);
        return br_err_errno(err, BR_E_STORE_FAILED, "the store of images cannot be read");
    }
    for (struct dirent *e; r == 0 && (e = readdir(d));)
        r = sweep_entry(s, e->d_name, err);
    closedir(d);
    return r;
}

int br_work_too_large(const struct br_work *w, struct br_err *err)
{
    return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                      "the image is larger than %llu bytes or %llu files; no image was made",
                      (unsigned long long)w->max_bytes, (unsigned long long)w->max_entries);
}

int br_work_give(int fd)
{
    return geteuid() == 0 ? fchown(fd, BR_UID_IMPORT, BR_UID_IMPORT) : 0;
}

int br_work_take(const struct br_work *w, const char *name, struct br_err *err)
{
    struct stat st;
    BR_CLEANUP_FD int fd = br_open_beneath(w->fd, name, O_RDONLY | O_NONBLOCK, 0);
    if (fd < 0 || fstat(fd, &st) < 0)
        return br_err_errno(err, BR_E_INVALID_IMAGE, "'%s' was not made; no image was made", name);
    if (!S_ISREG(st.st_mode) || st.st_nlink != 1)
        return br_err_set(err, BR_E_INVALID_IMAGE,
                          "'%s' is no file with one name; no image was made", name);
    if (fchmod(fd, 0400) < 0 || (geteuid() == 0 && fchown(fd, 0, 0) < 0))
        return br_err_errno(err, BR_E_STORE_FAILED, "the image could not be stored");
    return br_steal_fd(&fd);
}

int br_work_open(struct br_work *w, const struct br_image_store *s, struct br_err *err)
{
    char id[BR_ID_MAX];
    w->store = s;
    w->fd = -1;
    w->deadline_us = br_now_us() + w->max_seconds * UINT64_C(1000000);
    br_id_make(id, "import");
    snprintf(w->name, sizeof(w->name), WORK_PREFIX "%s", id);
    int r = br_store_lock(s, err);
    if (r < 0)
        return r;
    r = br_store_sweep(s, err);
    if (r == 0 && mkdirat(s->fd, w->name, 0700) < 0)
        r = br_err_errno(err, BR_E_STORE_FAILED, "the store of images cannot be written to");
    if (r == 0) {
        w->fd = br_open_beneath(s->fd, w->name, O_RDONLY | O_DIRECTORY, 0);
        if (w->fd < 0 || flock(w->fd, LOCK_EX | LOCK_NB) < 0 || br_work_give(w->fd) < 0) {
            r = br_err_errno(err, BR_E_STORE_FAILED, "'%s' in the store cannot be locked", w->name);
            br_close(&w->fd);
            (void)unlinkat(s->fd, w->name, AT_REMOVEDIR);
        }
    }
    br_store_unlock(s);
    return r;
}

int br_work_close(struct br_work *w, struct br_err *err)
{
    if (w->fd < 0)
        return 0;
    int r = br_remove_tree(w->store->fd, w->name, err);
    br_close(&w->fd);
    return r;
}
