/*
 * The index of an image: lines of "name value" in a fixed order, the last one a checksum of the
 * others, so that an edit is noticed. It tells how the image's metadata was when all its bytes were
 * read last. Used by everything that opens an image; the file is the store owner's.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "image/image_priv.h"

#define INDEX_HEAD "bridle-image 1"

static int put_sum(struct br_buf *b, const char *name, const uint8_t sum[32])
{
    char hex[BR_IMAGE_HEX + 1];
    br_hex(hex, sum, 32);
    return br_buf_printf(b, "%s %s\n", name, hex);
}

int br_image_index_put(struct br_buf *b, const struct br_image *img)
{
    struct br_sha256 s;
    uint8_t sum[32];
    const struct br_image_stamp *f = &img->file;
    br_buf_printf(b,
                  INDEX_HEAD "\nid %s\nname %s\nformat %s\ncreated %" PRIu64 "\nbytes %" PRIu64
                             "\nentries %" PRIu64 "\n",
                  img->id, img->name, img->format, img->created_us, img->bytes, img->entries);
    br_buf_printf(b, "file %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", f->dev,
                  f->ino, f->size, f->mtime_ns, f->ctime_ns);
    if (img->has_tree) {
        put_sum(b, "tree", img->tree);
        put_sum(b, "tree-stamp", img->tree_stamp);
    }
    br_buf_printf(b, "source %s\n", img->source);
    br_sha256_init(&s);
    br_sha256_put(&s, b->data, b->len);
    br_sha256_end(&s, sum);
    put_sum(b, "sum", sum);
    return b->failed ? -BR_E_LIMIT_EXCEEDED : 0;
}

/* The value of the next line, which must be called `name`; NULL otherwise. *at moves behind it. */
static char *next(char **at, const char *name)
{
    size_t n = strlen(name);
    char *line = *at, *end = line ? strchr(line, '\n') : NULL;
    if (!end || strncmp(line, name, n) != 0 || line[n] != ' ')
        return NULL;
    *end = 0;
    *at = end + 1;
    return line + n + 1;
}

static bool get_text(char **at, const char *name, char *dst, size_t cap)
{
    const char *v = next(at, name);
    if (!v || strlen(v) >= cap)
        return false;
    memcpy(dst, v, strlen(v) + 1);
    return true;
}

static bool get_numbers(char **at, const char *name, uint64_t *v, unsigned n)
{
    char *p = next(at, name);
    for (unsigned i = 0; p && i < n; i++) {
        char *end;
        errno = 0;
        v[i] = strtoull(p, &end, 10);
        if (errno || end == p || *p < '0' || *p > '9' || *end != (i + 1 < n ? ' ' : 0))
            return false;
        p = end + 1;
    }
    return p != NULL;
}

static bool get_sum(char **at, const char *name, uint8_t sum[32])
{
    const char *v = next(at, name);
    if (!v || strlen(v) != BR_IMAGE_HEX || strspn(v, "0123456789abcdef") != BR_IMAGE_HEX)
        return false;
    for (unsigned i = 0; i < 32; i++) {
        const char pair[3] = {v[(size_t)i * 2], v[(size_t)i * 2 + 1], 0};
        sum[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return true;
}

static bool parse(char *text, struct br_image *img)
{
    char *at = text;
    uint64_t f[5];
    if (strncmp(at, INDEX_HEAD "\n", sizeof(INDEX_HEAD)) != 0)
        return false;
    at += sizeof(INDEX_HEAD);
    if (!get_text(&at, "id", img->id, sizeof(img->id)) ||
        !get_text(&at, "name", img->name, sizeof(img->name)) ||
        !get_text(&at, "format", img->format, sizeof(img->format)) ||
        !get_numbers(&at, "created", &img->created_us, 1) ||
        !get_numbers(&at, "bytes", &img->bytes, 1) ||
        !get_numbers(&at, "entries", &img->entries, 1) || !get_numbers(&at, "file", f, 5))
        return false;
    img->file = (struct br_image_stamp){f[0], f[1], f[2], f[3], f[4]};
    img->has_tree = strncmp(at, "tree ", 5) == 0;
    if (img->has_tree &&
        (!get_sum(&at, "tree", img->tree) || !get_sum(&at, "tree-stamp", img->tree_stamp)))
        return false;
    return get_text(&at, "source", img->source, sizeof(img->source)) && *at == 0;
}

int br_image_index_get(const char *text, size_t n, const char *id, struct br_image *img,
                       struct br_err *err)
{
    char copy[BR_IMAGE_INDEX_MAX + 1];
    /* "sum ", 64 digits and the end of the line */
    const size_t tail = 4 + BR_IMAGE_HEX + 1;
    struct br_sha256 s;
    uint8_t want[32], got[32];
    memset(img, 0, sizeof(*img));
    bool ok = n > tail && n <= BR_IMAGE_INDEX_MAX && !memchr(text, 0, n);
    if (ok) {
        memcpy(copy, text, n);
        copy[n] = 0;
        char *at = copy + n - tail;
        ok = get_sum(&at, "sum", want) && *at == 0;
        copy[n - tail] = 0;
    }
    if (ok) {
        br_sha256_init(&s);
        br_sha256_put(&s, text, n - tail);
        br_sha256_end(&s, got);
        ok = memcmp(want, got, sizeof(got)) == 0 && parse(copy, img) && strcmp(img->id, id) == 0;
    }
    if (!ok)
        return br_err_set(err, BR_E_INVALID_IMAGE,
                          "the index of image '%s' was changed or is damaged; nothing was started. "
                          "Remove the image and import it again",
                          id);
    return 0;
}

int br_image_index_read(const struct br_image_store *s, const char *id, struct br_image *img,
                        struct br_err *err)
{
    char name[BR_IMAGE_FILE_MAX];
    struct stat st;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_IMAGE_INDEX_MAX);
    br_image_file_name(name, id, ".index");
    BR_CLEANUP_FD int fd = br_open_beneath(s->fd, name, O_RDONLY | O_NONBLOCK, 0);
    if (fd < 0 && errno == ENOENT)
        return br_err_set(err, BR_E_NOT_FOUND,
                          "there is no image '%s'; nothing was started. 'bridle image list' shows "
                          "which there are",
                          id);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
        (st.st_mode & 022))
        return br_err_set(err, BR_E_INVALID_IMAGE,
                          "the index of image '%s' is not a file that only its owner, uid %u, can "
                          "write to; nothing was started. Remove the image and import it again",
                          id, (unsigned)geteuid());
    int r = br_read_all(fd, &b, name, err);
    if (r == -BR_E_LIMIT_EXCEEDED)
        return br_image_index_get("", 0, id, img, err);
    return r < 0 ? r : br_image_index_get((const char *)b.data, b.len, id, img, err);
}

int br_image_index_write(const struct br_image_store *s, const struct br_image *img,
                         struct br_err *err)
{
    char name[BR_IMAGE_FILE_MAX], fresh[BR_ID_MAX];
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_IMAGE_INDEX_MAX);
    br_image_file_name(name, img->id, ".index");
    br_id_make(fresh, "new");
    if (br_image_index_put(&b, img) < 0)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED, "the index of image '%s' is too large",
                          img->id);
    return br_image_put_file(s->fd, fresh, name, b.data, b.len) < 0
               ? br_err_errno(err, BR_E_STORE_FAILED,
                              "the index of image '%s' could not be written", img->id)
               : 0;
}
