/*
 * The store's directory and the names in it. Called by bridled (to resolve what the operator
 * named), by bridle-launch and by bridle-image. Trusts the store's owner, and refuses a store that
 * anybody else can write to.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "image/image_priv.h"

#define PREFIX "sha256:"
#define SHORT_ID_MIN 8u /* digits: fewer are too easily somebody else's */

bool br_image_is_id(const char *s)
{
    return strncmp(s, PREFIX, 7) == 0 && strlen(s) == 7 + BR_IMAGE_HEX &&
           strspn(s + 7, "0123456789abcdef") == BR_IMAGE_HEX;
}

bool br_image_is_name(const char *s)
{
    size_t n = strlen(s);
    return n > 0 && n < BR_IMAGE_NAME_MAX &&
           strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789.-_") == n && s[0] != '.' &&
           s[0] != '-' && s[0] != '_' && strcmp(s, BR_IMAGE_HOST) != 0;
}

void br_image_file_name(char dst[BR_IMAGE_FILE_MAX], const char *id, const char *suffix)
{
    br_require(br_image_is_id(id));
    snprintf(dst, BR_IMAGE_FILE_MAX, "%s%s", id + 7, suffix);
}

static int check_dir(int fd, const char *what, struct br_err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISDIR(st.st_mode))
        return br_err_set(err, BR_E_INVALID_IMAGE, "%s is not a directory; no image was used",
                          what);
    if (st.st_uid != geteuid())
        return br_err_set(err, BR_E_INVALID_IMAGE,
                          "%s belongs to uid %u and not to uid %u, who uses it; no image was used. "
                          "Whoever owns it decides what runs in the sandbox",
                          what, (unsigned)st.st_uid, (unsigned)geteuid());
    if (st.st_mode & 022)
        return br_err_set(err, BR_E_INVALID_IMAGE,
                          "%s can be written to by others (mode %03o); no image was used. chmod "
                          "go-w it, then 'bridle image verify' every image",
                          what, (unsigned)st.st_mode & 0777);
    return 0;
}

static int make_dir(int at, const char *name, struct br_err *err)
{
    if (mkdirat(at, name, 0700) < 0 && errno != EEXIST)
        return br_err_errno(err, BR_E_STORE_FAILED,
                            "the directory '%s' of the store of images could not be made", name);
    return 0;
}

int br_image_store_open(int state_fd, bool create, struct br_image_store *s, struct br_err *err)
{
    s->fd = -1;
    if (state_fd < 0)
        return br_err_set(err, BR_E_NOT_FOUND, "there is no store of images; nothing was started");
    int r = check_dir(state_fd, "the state directory", err);
    if (r == 0 && create)
        r = make_dir(state_fd, BR_IMAGE_DIR, err);
    if (r < 0)
        return r;
    BR_CLEANUP_FD int fd = br_open_beneath(state_fd, BR_IMAGE_DIR, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0 && errno == ENOENT)
        return br_err_set(err, BR_E_NOT_FOUND,
                          "there is no store of images yet; nothing was started. 'bridle image "
                          "import' makes one");
    if (fd < 0)
        return br_err_set(err, BR_E_INVALID_IMAGE,
                          "the store of images ('" BR_IMAGE_DIR
                          "' in the state directory) is not a directory that can be opened: %s; no "
                          "image was used",
                          strerror(errno));
    r = check_dir(fd, "the store of images", err);
    if (r == 0 && create)
        r = make_dir(fd, BR_IMAGE_NAMES, err);
    if (r == 0)
        s->fd = br_steal_fd(&fd);
    return r;
}

void br_image_store_close(struct br_image_store *s)
{
    br_close(&s->fd);
}

int br_image_put_file(int dir, const char *fresh, const char *name, const void *p, size_t n)
{
    BR_CLEANUP_FD int fd = br_open_beneath(dir, fresh, O_WRONLY | O_CREAT | O_EXCL, 0600);
    int r = fd < 0 ? -errno : br_write_all(fd, p, n);
    if (r == 0 && (fsync(fd) < 0 || renameat(dir, fresh, dir, name) < 0))
        r = -errno;
    if (r == 0)
        return 0;
    (void)unlinkat(dir, fresh, 0);
    errno = -r;
    return -1;
}

/* ---- names ---- */

static int open_names(const struct br_image_store *s, struct br_err *err)
{
    BR_CLEANUP_FD int fd = br_open_beneath(s->fd, BR_IMAGE_NAMES, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0 && errno != ENOENT)
        return br_err_errno(err, BR_E_INVALID_IMAGE, "the names of images could not be read");
    if (fd < 0)
        return br_err_set(err, BR_E_NOT_FOUND, "no image has a name");
    int r = check_dir(fd, "the directory of the names of images", err);
    return r < 0 ? r : br_steal_fd(&fd);
}

int br_image_name_get(const struct br_image_store *s, const char *name, char id[BR_IMAGE_ID_MAX],
                      struct br_err *err)
{
    char text[BR_IMAGE_ID_MAX + 2];
    struct stat st;
    BR_CLEANUP_FD int dir = open_names(s, err);
    if (dir < 0 && dir != -BR_E_NOT_FOUND)
        return dir;
    BR_CLEANUP_FD int fd = dir < 0 ? -1 : br_open_beneath(dir, name, O_RDONLY | O_NONBLOCK, 0);
    if (dir < 0 || (fd < 0 && errno == ENOENT))
        return br_err_set(err, BR_E_NOT_FOUND,
                          "there is no image '%s'; nothing was started. 'bridle image list' shows "
                          "which there are, 'bridle image import' makes one",
                          name);
    ssize_t n = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
                        (st.st_mode & 022) == 0
                    ? read(fd, text, sizeof(text) - 1)
                    : -1;
    text[n > 0 ? n : 0] = 0;
    if (n != 7 + BR_IMAGE_HEX + 1 || text[n - 1] != '\n')
        text[0] = 0;
    else
        text[n - 1] = 0;
    if (!br_image_is_id(text))
        return br_err_set(err, BR_E_INVALID_IMAGE,
                          "the name '%s' of an image is damaged in the store; nothing was started. "
                          "Import the image again, or remove the name",
                          name);
    memcpy(id, text, strlen(text) + 1);
    return 0;
}

int br_image_name_set(const struct br_image_store *s, const char *name, const char *id,
                      struct br_err *err)
{
    char fresh[BR_ID_MAX], line[BR_IMAGE_ID_MAX + 2];
    BR_CLEANUP_FD int dir = open_names(s, err);
    if (dir < 0)
        return dir;
    br_require(br_image_is_name(name) && br_image_is_id(id));
    br_id_make(fresh, ".new");
    snprintf(line, sizeof(line), "%s\n", id);
    return br_image_put_file(dir, fresh, name, line, strlen(line)) < 0
               ? br_err_errno(err, BR_E_STORE_FAILED, "the name '%s' could not be stored", name)
               : 0;
}

int br_image_name_remove(const struct br_image_store *s, const char *name, struct br_err *err)
{
    BR_CLEANUP_FD int dir = open_names(s, err);
    if (dir < 0)
        return dir;
    if (unlinkat(dir, name, 0) < 0)
        return br_err_errno(err, errno == ENOENT ? BR_E_NOT_FOUND : BR_E_STORE_FAILED,
                            "the name '%s' was not removed", name);
    return 0;
}

/* ---- what the operator named ---- */

/* The one id that begins with these digits. */
static int resolve_short(const struct br_image_store *s, const char *digits, const char *name,
                         char id[BR_IMAGE_ID_MAX], struct br_err *err)
{
    struct br_image_ids l = {.ids = NULL};
    int r = br_image_ids_list(s, &l, err);
    unsigned found = 0;
    for (size_t i = 0; r == 0 && i < l.n; i++)
        if (strncmp(l.ids[i] + 7, digits, strlen(digits)) == 0) {
            memcpy(id, l.ids[i], BR_IMAGE_ID_MAX);
            found++;
        }
    br_image_ids_free(&l);
    if (r == 0 && found == 0)
        r = br_err_set(err, BR_E_NOT_FOUND,
                       "there is no image '%.80s'; nothing was started. 'bridle image list' shows "
                       "which there are",
                       name);
    if (r == 0 && found > 1)
        r = br_err_set(err, BR_E_NOT_FOUND,
                       "'%.80s' is the beginning of %u images; nothing was started. Give more of "
                       "it",
                       name, found);
    return r;
}

int br_image_resolve(int state_fd, const char *name, char id[BR_IMAGE_ID_MAX], struct br_err *err)
{
    struct br_image_store s;
    struct br_image img;
    if (strcmp(name, BR_IMAGE_HOST) == 0) {
        snprintf(id, BR_IMAGE_ID_MAX, "%s", BR_IMAGE_HOST);
        return 0;
    }
    const char *digits = strncmp(name, PREFIX, 7) == 0 ? name + 7 : name;
    bool hex = strlen(digits) >= SHORT_ID_MIN && strlen(digits) <= BR_IMAGE_HEX &&
               strspn(digits, "0123456789abcdef") == strlen(digits);
    if (!br_image_is_name(name) && !hex)
        return br_err_set(err, BR_E_NOT_FOUND,
                          "'%.80s' is neither the name nor the id of an image; nothing was "
                          "started. 'bridle image list' shows which there are",
                          name);
    int r = br_image_store_open(state_fd, false, &s, err);
    if (r < 0)
        return r;
    r = br_image_is_name(name) ? br_image_name_get(&s, name, id, err) : -BR_E_NOT_FOUND;
    if (r == -BR_E_NOT_FOUND && hex)
        r = resolve_short(&s, digits, name, id, err);
    if (r == 0)
        r = br_image_index_read(&s, id, &img, err);
    br_image_store_close(&s);
    return r;
}
