/*
 * FS_WRITE and FS_EDIT. A file is replaced in one step (a temporary file, then rename) wherever its
 * directory may be written; where only the file itself may be, its space is reserved first and then
 * it is written in place. A failure leaves what was there. Called by serve.c after the grant was
 * checked; trusts neither the arguments nor the tree. What may be written is decided by the mounts
 * of the sandbox: everything but the task's allowed_paths is read-only.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "init/init_priv.h"

#define UNWRITTEN "it was not written"

/* A file on its way: the directory it goes to, and how to take back what was made for it. */
struct target {
    struct br_init *in;
    const char *path;
    const char *name; /* the last part of path */
    int dir;
    int old;                         /* the file that is there, open for writing; -1 if none */
    mode_t mode;                     /* of the file */
    size_t made[BR_INIT_WALK_DEPTH]; /* lengths of the path's parts whose directories are new */
    unsigned nmade;
};

static void target_close(struct target *t)
{
    br_close(&t->dir);
    br_close(&t->old);
}

/* Remove the directories that were made for a file that was then not written. */
static void take_back(struct target *t)
{
    char part[BR_PATH_MAX];
    while (t->nmade) {
        snprintf(part, sizeof(part), "%.*s", (int)t->made[--t->nmade], t->path);
        (void)unlinkat(t->in->root, part, AT_REMOVEDIR);
    }
}

/* Open the directory of the file, making what is missing of it. */
static int open_parent(struct target *t, struct br_err *err)
{
    char part[BR_PATH_MAX];
    t->dir = br_init_beneath(t->in->root, ".", O_PATH | O_DIRECTORY);
    t->name = t->path;
    const char *slash;
    while (t->dir >= 0 && (slash = strchr(t->name, '/'))) {
        snprintf(part, sizeof(part), "%.*s", (int)(slash - t->name), t->name);
        int next = br_init_beneath(t->dir, part, O_PATH | O_DIRECTORY);
        if (next < 0 && errno == ENOENT) {
            if (t->nmade == BR_ARRAY_LEN(t->made))
                return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                                  "more than %u directories would have to be made; " UNWRITTEN,
                                  BR_INIT_WALK_DEPTH);
            if (mkdirat(t->dir, part, 0755) == 0) {
                t->made[t->nmade++] = (size_t)(slash - t->path);
                next = br_init_beneath(t->dir, part, O_PATH | O_DIRECTORY);
            }
        }
        if (next < 0)
            break;
        br_close(&t->dir);
        t->dir = next;
        t->name = slash + 1;
    }
    if (t->dir < 0 || strchr(t->name, '/'))
        return br_init_path_err(t->in, t->path, UNWRITTEN, err);
    return 0;
}

/* Look at what is there under the name: nothing, or a regular file with one name. */
static int open_old(struct target *t, struct br_err *err)
{
    t->mode = 0644;
    t->old = br_init_beneath(t->dir, t->name, O_WRONLY | O_NONBLOCK | O_NOCTTY);
    if (t->old < 0)
        return errno == ENOENT ? 0 : br_init_path_err(t->in, t->path, UNWRITTEN, err);
    struct stat st;
    if (fstat(t->old, &st) < 0 || !S_ISREG(st.st_mode)) {
        errno = ENXIO;
        return br_init_path_err(t->in, t->path, UNWRITTEN, err);
    }
    if (st.st_nlink != 1)
        return br_err_set(err, BR_E_DENIED,
                          "%s has %llu names (hard links), and the others may lie outside of what "
                          "may be written; " UNWRITTEN,
                          br_init_shown(t->path).text, (unsigned long long)st.st_nlink);
    t->mode = st.st_mode & 0777;
    return 0;
}

/* 0, or -1 and errno: nothing was changed. */
static int replace(struct target *t, const struct br_buf *content)
{
    char tmp[64];
    uint64_t tag;
    br_random(&tag, sizeof(tag));
    snprintf(tmp, sizeof(tmp), ".bridle-%016llx.tmp", (unsigned long long)tag);
    BR_CLEANUP_FD int fd =
        openat(t->dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    int r = br_write_all(fd, content->data, content->len);
    if (r == 0 && (fchmod(fd, t->mode) < 0 || renameat(t->dir, tmp, t->dir, t->name) < 0))
        r = -errno;
    if (r == 0)
        return 0;
    (void)unlinkat(t->dir, tmp, 0);
    errno = -r;
    return -1;
}

/* The same, into the file that is there; its space is reserved before its first byte changes. */
static int overwrite(struct target *t, const struct br_buf *content)
{
    struct stat st;
    if (fstat(t->old, &st) < 0)
        return -1;
    if ((off_t)content->len > st.st_size &&
        fallocate(t->old, 0, st.st_size, (off_t)content->len - st.st_size) < 0 &&
        (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
        int saved = errno;
        (void)!ftruncate(t->old, st.st_size);
        errno = saved;
        return -1;
    }
    int r =
        lseek(t->old, 0, SEEK_SET) < 0 ? -errno : br_write_all(t->old, content->data, content->len);
    if (r == 0 && ftruncate(t->old, (off_t)content->len) < 0)
        r = -errno;
    errno = -r;
    return r < 0 ? -1 : 0;
}

/* May the file itself be writable where its directory is not? */
static bool only_in_place(int e)
{
    return e == EROFS || e == EACCES || e == EPERM || e == EBUSY || e == EXDEV;
}

static int write_file(struct br_init *in, const char *path, const struct br_buf *content,
                      bool *created, struct br_err *err)
{
    int r = br_init_path_check(path, false, err);
    if (r < 0)
        return r;
    if (content->len > BR_INIT_FILE_MAX)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                          "%s would have %zu bytes, more than %u; " UNWRITTEN,
                          br_init_shown(path).text, content->len, BR_INIT_FILE_MAX);
    __attribute__((cleanup(target_close))) struct target t = {
        .in = in, .path = path, .dir = -1, .old = -1};
    r = open_parent(&t, err);
    if (r == 0)
        r = open_old(&t, err);
    if (r == 0) {
        int k = replace(&t, content);
        if (k < 0 && t.old >= 0 && only_in_place(errno))
            k = overwrite(&t, content);
        if (k < 0)
            r = br_init_path_err(in, path, UNWRITTEN, err);
    }
    if (r < 0)
        take_back(&t);
    *created = t.old < 0;
    return r;
}

int br_init_fs_write(struct br_init *in, const struct br_init_call *call, struct br_buf *out,
                     struct br_err *err)
{
    bool created = false;
    int r = write_file(in, call->path, &call->text, &created, err);
    if (r < 0)
        return r;
    br_buf_printf(out, "{\"path\":");
    br_buf_put_json_str(out, call->path, strlen(call->path));
    br_buf_printf(out, ",\"bytes\":%zu,\"created\":%s}", call->text.len,
                  created ? "true" : "false");
    return 0;
}

/* Put `text` with the old text replaced into `changed`; the number of places, counted whole. */
static unsigned replace_text(const struct br_buf *text, const struct br_buf *old,
                             const struct br_buf *new, struct br_buf *changed)
{
    unsigned n = 0;
    size_t from = 0;
    const uint8_t *hit;
    while (from < text->len &&
           (hit = memmem(text->data + from, text->len - from, old->data, old->len))) {
        size_t at = (size_t)(hit - text->data);
        br_buf_put(changed, text->data + from, at - from);
        br_buf_put(changed, new->data, new->len);
        from = at + old->len;
        n++;
    }
    br_buf_put(changed, text->data ? text->data + from : NULL, text->len - from);
    return n;
}

int br_init_fs_edit(struct br_init *in, const struct br_init_call *call, struct br_buf *out,
                    struct br_err *err)
{
    static const char unchanged[] = "it was not changed";
    struct stat st;
    struct br_shown s = br_init_shown(call->path);
    BR_CLEANUP_FD int fd = br_init_open_file(in, call->path, unchanged, &st, err);
    if (fd < 0)
        return fd;
    if (call->text.len == 0)
        return br_err_set(err, BR_E_INVALID_ARGUMENTS,
                          "the text to replace is empty; %s %s. Use fs_write to make a file",
                          s.text, "was not changed");
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(BR_INIT_FILE_MAX);
    int r = br_init_pread(fd, 0, (size_t)BR_INIT_FILE_MAX + 1, &text);
    if (r == -BR_E_LIMIT_EXCEEDED)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED, "%s is larger than %u bytes; %s", s.text,
                          BR_INIT_FILE_MAX, unchanged);
    if (r < 0)
        return br_init_path_err(in, call->path, unchanged, err);
    BR_CLEANUP_BUF struct br_buf changed = BR_BUF_INIT(BR_INIT_FILE_MAX);
    unsigned n = replace_text(&text, &call->text, &call->text2, &changed);
    if (n == 0 || (n > 1 && !call->flag)) {
        br_buf_printf(out, "{\"path\":");
        br_buf_put_json_str(out, call->path, strlen(call->path));
        br_buf_printf(out, ",\"occurrences\":%u}", n);
        if (n == 0)
            return br_err_set(
                err, BR_E_INVALID_ARGUMENTS,
                "the text to replace does not occur in %s; %s. Read the file and give "
                "the text exactly",
                s.text, unchanged);
        return br_err_set(err, BR_E_INVALID_ARGUMENTS,
                          "the text to replace occurs %u times in %s; %s. Give more of the text "
                          "around it, or ask to replace all",
                          n, s.text, unchanged);
    }
    if (changed.failed)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED, "%s would become larger than %u bytes; %s",
                          s.text, BR_INIT_FILE_MAX, unchanged);
    bool created = false;
    r = write_file(in, call->path, &changed, &created, err);
    if (r < 0)
        return r;
    br_buf_printf(out, "{\"path\":");
    br_buf_put_json_str(out, call->path, strlen(call->path));
    br_buf_printf(out, ",\"replaced\":%u,\"bytes\":%zu}", n, changed.len);
    return 0;
}
