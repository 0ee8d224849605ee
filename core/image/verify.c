/*
 * Is an image what its id says? Called before every launch, by 'bridle image verify' and after an
 * import. The bytes of an image are hostile (they are only hashed here); the store's owner is
 * trusted. Metadata that is the same as when all bytes were read last, the change time included,
 * stands for the bytes: nobody but the kernel sets a change time.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "image/image_priv.h"

#define CHUNK (256u * 1024)

const char *br_image_how_name(enum br_image_how how)
{
    return how == BR_IMAGE_HASHED ? "hashed" : how == BR_IMAGE_UNCHANGED ? "unchanged" : "not";
}

static uint64_t ns_of(const struct timespec *t)
{
    return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

static struct br_image_stamp stamp_of(const struct stat *st)
{
    return (struct br_image_stamp){.dev = st->st_dev,
                                   .ino = st->st_ino,
                                   .size = (uint64_t)st->st_size,
                                   .mtime_ns = ns_of(&st->st_mtim),
                                   .ctime_ns = ns_of(&st->st_ctim)};
}

int br_image_stamp(int fd, struct br_image_stamp *out)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -1;
    *out = stamp_of(&st);
    return 0;
}

bool br_image_stamp_equal(const struct br_image_stamp *a, const struct br_image_stamp *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

static int put_file(struct br_sha256 *s, int fd, const volatile int *stop, struct br_err *err)
{
    static uint8_t chunk[CHUNK];
    for (off_t at = 0;;) {
        ssize_t n = pread(fd, chunk, sizeof(chunk), at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return br_err_errno(err, BR_E_INVALID_IMAGE, "an image could not be read");
        if (stop && *stop)
            return br_err_set(err, BR_E_CANCELED, "canceled while an image was being read");
        if (n == 0)
            return 0;
        br_sha256_put(s, chunk, (size_t)n);
        at += n;
    }
}

int br_image_hash_file(int fd, const volatile int *stop, uint8_t sum[32], struct br_err *err)
{
    struct br_sha256 s;
    br_sha256_init(&s);
    int r = put_file(&s, fd, stop, err);
    br_sha256_end(&s, sum);
    return r;
}

/* ---- a tree ---- */

struct hashing {
    struct br_sha256 content, stamp;
    bool full;
    const volatile int *stop;
};

static void put_text(struct br_sha256 *s, const char *fmt, ...) BR_PRINTF(2, 3);
static void put_text(struct br_sha256 *s, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    br_require(n > 0 && (size_t)n < sizeof(text));
    br_sha256_put(s, text, (size_t)n);
}

static int put_content(struct hashing *h, const struct br_walk_entry *e, struct br_err *err)
{
    char target[BR_PATH_MAX];
    uint8_t sum[32];
    if (S_ISLNK(e->st.st_mode)) {
        ssize_t n = readlinkat(e->dir, e->name, target, sizeof(target));
        if (n < 0 || (size_t)n >= sizeof(target))
            return br_err_set(err, BR_E_INVALID_IMAGE, "a link of an image could not be read");
        br_sha256_put(&h->content, target, (size_t)n);
        return 0;
    }
    if (!S_ISREG(e->st.st_mode))
        return 0;
    BR_CLEANUP_FD int fd = openat(e->dir, e->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return br_err_errno(err, BR_E_INVALID_IMAGE, "'%.200s' of an image cannot be read",
                            e->path);
    int r = br_image_hash_file(fd, h->stop, sum, err);
    br_sha256_put(&h->content, sum, sizeof(sum));
    return r;
}

static int hash_entry(void *ctx, struct br_walk_entry *e, struct br_err *err)
{
    struct hashing *h = ctx;
    const struct br_image_stamp st = stamp_of(&e->st);
    if (h->stop && *h->stop)
        return br_err_set(err, BR_E_CANCELED, "canceled while an image was being read");
    size_t n = strlen(e->path) + 1; /* its end separates it from what follows */
    br_sha256_put(&h->stamp, e->path, n);
    put_text(&h->stamp, "%o %u %u %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
             (unsigned)e->st.st_mode, (unsigned)e->st.st_uid, (unsigned)e->st.st_gid,
             (unsigned)e->st.st_nlink, st.dev, st.ino, st.size, st.mtime_ns, st.ctime_ns);
    if (!h->full)
        return 0;
    br_sha256_put(&h->content, e->path, n);
    put_text(&h->content, "%o %" PRIu64 "\n", (unsigned)e->st.st_mode,
             S_ISDIR(e->st.st_mode) ? 0 : st.size);
    return put_content(h, e, err);
}

int br_image_hash_tree(int fd, const volatile int *stop, uint8_t *sum, uint8_t stamp[32],
                       struct br_err *err)
{
    struct hashing h = {.full = sum != NULL, .stop = stop};
    br_sha256_init(&h.content);
    br_sha256_init(&h.stamp);
    int r = br_walk(fd, false, hash_entry, &h, err);
    if (sum)
        br_sha256_end(&h.content, sum);
    br_sha256_end(&h.stamp, stamp);
    return r;
}

/* ---- an image ---- */

static int changed(const char *id, const char *why, struct br_err *err)
{
    return br_err_set(err, BR_E_INVALID_IMAGE,
                      "the image '%s' is not what its id says: %s; nothing was started. Remove it "
                      "('bridle image remove') and import it again",
                      id, why);
}

static int open_file(const struct br_image_store *s, const char *id, int *out, struct br_err *err)
{
    char name[BR_IMAGE_FILE_MAX];
    struct stat st;
    br_image_file_name(name, id, ".erofs");
    BR_CLEANUP_FD int fd = br_open_beneath(s->fd, name, O_RDONLY | O_NONBLOCK, 0);
    if (fd < 0)
        return changed(id,
                       errno == ENOENT  ? "its file is missing"
                       : errno == ELOOP ? "a symbolic link is in the place of its file"
                                        : "its file cannot be opened",
                       err);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return changed(id, "something else is in the place of its file", err);
    if (st.st_uid != geteuid() || (st.st_mode & 0222) != 0)
        return changed(id, "its file belongs to somebody else or can be written to", err);
    *out = br_steal_fd(&fd);
    return 0;
}

static int open_tree_dir(const struct br_image_store *s, const char *id, int *out,
                         struct br_err *err)
{
    char name[BR_IMAGE_FILE_MAX];
    struct stat st;
    br_image_file_name(name, id, ".tree");
    BR_CLEANUP_FD int fd = br_open_beneath(s->fd, name, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0 || fstat(fd, &st) < 0)
        return changed(id, "its unpacked directory is missing or cannot be opened", err);
    if (st.st_uid != geteuid() || (st.st_mode & 022) != 0)
        return changed(id, "its unpacked directory belongs to or can be written to by others", err);
    *out = br_steal_fd(&fd);
    return 0;
}

/* Read everything; img->file becomes what its metadata was meanwhile. */
static int hash_image(struct br_image *img, int fd, const volatile int *stop, struct br_err *err)
{
    uint8_t sum[32];
    char hex[BR_IMAGE_HEX + 1];
    struct br_image_stamp before, after;
    if (br_image_stamp(fd, &before) < 0)
        return changed(img->id, "its file cannot be read", err);
    int r = br_image_hash_file(fd, stop, sum, err);
    if (r < 0)
        return r;
    br_hex(hex, sum, 32);
    if (br_image_stamp(fd, &after) < 0 || !br_image_stamp_equal(&before, &after))
        return changed(img->id, "its file is being written to", err);
    if (strcmp(hex, img->id + 7) != 0)
        return changed(img->id, "its bytes were changed", err);
    img->file = after;
    return 0;
}

static int check_file(struct br_image *img, int fd, bool full, const volatile int *stop,
                      enum br_image_how *how, struct br_err *err)
{
    struct br_image_stamp now;
    if (br_image_stamp(fd, &now) < 0)
        return changed(img->id, "its file cannot be read", err);
    if (!full && br_image_stamp_equal(&now, &img->file))
        return 0;
    *how = BR_IMAGE_HASHED;
    return hash_image(img, fd, stop, err);
}

static int check_tree(struct br_image *img, int fd, bool full, const volatile int *stop,
                      enum br_image_how *how, struct br_err *err)
{
    uint8_t sum[32], stamp[32];
    int r = full ? 0 : br_image_hash_tree(fd, stop, NULL, stamp, err);
    if (r < 0 || (!full && memcmp(stamp, img->tree_stamp, sizeof(stamp)) == 0))
        return r;
    *how = BR_IMAGE_HASHED;
    r = br_image_hash_tree(fd, stop, sum, stamp, err);
    if (r == 0 && memcmp(sum, img->tree, sizeof(sum)) != 0)
        r = changed(img->id, "its unpacked files were changed", err);
    if (r == 0)
        memcpy(img->tree_stamp, stamp, sizeof(stamp));
    return r;
}

int br_image_verify(const struct br_image_store *s, const char *id, bool full,
                    const volatile int *stop, struct br_image *img, int *file, int *tree,
                    enum br_image_how *how, struct br_err *err)
{
    BR_CLEANUP_FD int fd = -1;
    BR_CLEANUP_FD int dir = -1;
    *how = BR_IMAGE_UNCHANGED;
    if (file)
        *file = -1;
    if (tree)
        *tree = -1;
    if (!br_image_is_id(id))
        return br_err_set(err, BR_E_INVALID_IMAGE, "'%.80s' is not the id of an image", id);
    int r = br_image_index_read(s, id, img, err);
    if (r == 0)
        r = open_file(s, id, &fd, err);
    if (r == 0)
        r = check_file(img, fd, full, stop, how, err);
    if (r == 0 && img->has_tree)
        r = open_tree_dir(s, id, &dir, err);
    if (r == 0 && img->has_tree)
        r = check_tree(img, dir, full, stop, how, err);
    if (r == 0 && file)
        *file = br_steal_fd(&fd);
    if (r == 0 && tree)
        *tree = br_steal_fd(&dir);
    return r;
}
