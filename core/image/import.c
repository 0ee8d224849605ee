/*
 * From an archive or a directory to an image in the store. Called by bridle-image for the operator,
 * who named the source; its content is hostile. It is copied into a private directory first, so
 * that it cannot change; other people's programs take it apart there (tool.c), and what they made
 * is cleaned (clean.c) and packed. Only finished images are moved into the store.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "image/make_priv.h"

const char *const br_image_format_names[] = {"auto", "docker", "oci", "tar", "directory", NULL};

#define SLACK_BYTES (64u << 20) /* an archive is larger than what is in it */

static int run(const struct br_work *w, const char *package, const char *const *argv,
               struct br_err *err)
{
    return br_tool_run(
        w, &(struct br_tool){.package = package, .argv = argv, .in = -1, .out = -1, .read_dir = -1},
        err);
}

static int create(const struct br_work *w, const char *name, struct br_err *err)
{
    BR_CLEANUP_FD int fd = br_open_beneath(w->fd, name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || br_work_give(fd) < 0)
        return br_err_errno(err, BR_E_STORE_FAILED, "the store of images cannot be written to");
    return br_steal_fd(&fd);
}

/* ---- taking in ---- */

static int copy(const struct br_work *w, int in, int out, const char *source, struct br_err *err)
{
    uint64_t total = 0;
    bool by_kernel = true; /* not between two file systems: refused again for every chunk */
    for (;;) {
        ssize_t n = by_kernel ? copy_file_range(in, NULL, out, NULL, 8u << 20, 0) : -1;
        if (n < 0 && by_kernel && (errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP))
            by_kernel = false;
        if (!by_kernel) {
            static char chunk[1u << 20];
            n = read(in, chunk, sizeof(chunk));
            if (n > 0 && br_write_all(out, chunk, (size_t)n) < 0)
                n = -1;
        }
        if (n < 0 && errno == EINTR && !br_image_stop)
            continue;
        if (br_image_stop)
            return br_err_set(err, BR_E_CANCELED, "canceled; no image was made");
        if (n < 0)
            return br_err_errno(err, BR_E_IO, "'%.512s' could not be read; no image was made",
                                source);
        total += (uint64_t)n;
        if (total > w->max_bytes + SLACK_BYTES)
            return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                              "'%.512s' is larger than %llu bytes; no image was made", source,
                              (unsigned long long)w->max_bytes);
        if (n == 0)
            return 0;
    }
}

static int pack_directory(const struct br_work *w, int dir, int out, struct br_err *err)
{
    static const char *const argv[] = {"tar",
                                       "--create",
                                       "--file=-",
                                       "--directory=/proc/self/fd/3",
                                       "--one-file-system",
                                       "--sort=name",
                                       "--numeric-owner",
                                       "--format=pax",
                                       "--no-acls",
                                       "--no-xattrs",
                                       "--no-selinux",
                                       "--",
                                       ".",
                                       NULL};
    return br_tool_run(
        w, &(struct br_tool){.package = "tar", .argv = argv, .in = -1, .out = out, .read_dir = dir},
        err);
}

/* The source as the file "source" in the private directory. */
static int take_in(const struct br_work *w, const char *source, bool *is_dir, struct br_err *err)
{
    struct stat st;
    BR_CLEANUP_FD int in = open(source, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (in < 0 || fstat(in, &st) < 0)
        return br_err_errno(err, errno == ENOENT ? BR_E_NOT_FOUND : BR_E_IO,
                            "'%.512s' could not be opened; no image was made", source);
    *is_dir = S_ISDIR(st.st_mode);
    if (!*is_dir && !S_ISREG(st.st_mode))
        return br_err_set(err, BR_E_INVALID_IMAGE,
                          "'%.512s' is neither a file nor a directory; no image was made", source);
    BR_CLEANUP_FD int out = create(w, "source", err);
    if (out < 0)
        return out;
    return *is_dir ? pack_directory(w, in, out, err) : copy(w, in, out, source, err);
}

/* ---- what it is ---- */

struct packer {
    const char *magic;
    size_t n;
    const char *package;
    const char *argv[3];
};
static const struct packer packers[] = {
    {"\x1f\x8b", 2, "gzip", {"gzip", "-dc", NULL}},
    {"\xfd"
     "7zXZ",
     5,
     "xz-utils",
     {"xz", "-dc", NULL}},
    {"\x28\xb5\x2f\xfd", 4, "zstd", {"zstd", "-dc", NULL}},
    {"BZh", 3, "bzip2", {"bzip2", "-dc", NULL}},
};

/* "source" becomes "plain", decompressed if it was compressed. */
static int unpack_outer(const struct br_work *w, struct br_err *err)
{
    char head[8] = "";
    BR_CLEANUP_FD int in = br_open_beneath(w->fd, "source", O_RDONLY | O_NONBLOCK, 0);
    ssize_t n = in < 0 ? -1 : pread(in, head, sizeof(head), 0);
    if (n < 0)
        return br_err_errno(err, BR_E_IO, "the archive could not be read; no image was made");
    for (unsigned i = 0; i < BR_ARRAY_LEN(packers); i++) {
        const struct packer *p = &packers[i];
        if ((size_t)n < p->n || memcmp(head, p->magic, p->n) != 0)
            continue;
        BR_CLEANUP_FD int out = create(w, "plain", err);
        if (out < 0)
            return out;
        int r = br_tool_run(
            w,
            &(struct br_tool){
                .package = p->package, .argv = p->argv, .in = in, .out = out, .read_dir = -1},
            err);
        (void)unlinkat(w->fd, "source", 0);
        return r;
    }
    return renameat(w->fd, "source", w->fd, "plain") < 0
               ? br_err_errno(err, BR_E_STORE_FAILED, "the store of images cannot be written to")
               : 0;
}

/* By the member that only such an archive has at its top. */
static int detect(const struct br_work *w, enum br_image_format *format, struct br_err *err)
{
    static const char *const argv[] = {
        "tar",        "--list",       "--file=plain",  "--no-wildcards",  "--",
        "oci-layout", "./oci-layout", "manifest.json", "./manifest.json", NULL};
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(64 * 1024);
    BR_CLEANUP_FD int out = create(w, "list", err);
    if (out < 0)
        return out;
    int r = br_tool_run(w,
                        &(struct br_tool){.package = "tar",
                                          .argv = argv,
                                          .in = -1,
                                          .out = out,
                                          .read_dir = -1,
                                          .any_status = true},
                        err);
    if (r < 0)
        return r;
    (void)lseek(out, 0, SEEK_SET);
    (void)unlinkat(w->fd, "list", 0);
    if (br_read_all(out, &b, "list", NULL) < 0)
        return br_err_set(err, BR_E_INVALID_IMAGE,
                          "the archive has one member too many times; no image was made");
    const char *text = br_buf_cstr(&b);
    *format = text && strstr(text, "oci-layout\n")      ? BR_FORMAT_OCI
              : text && strstr(text, "manifest.json\n") ? BR_FORMAT_DOCKER
                                                        : BR_FORMAT_TAR;
    return 0;
}

/* ---- unpacking and packing ---- */

/* The OCI layout "layout" with one image, from whatever it is. */
static int to_layout(const struct br_work *w, enum br_image_format format, struct br_err *err)
{
    static const char *const init[] = {"umoci", "init", "--layout", "layout", NULL};
    static const char *const new[] = {"umoci", "new", "--image", "layout:image", NULL};
    static const char *const add[] = {"umoci",        "raw",   "add-layer", "--image",
                                      "layout:image", "plain", NULL};
    static const char *const oci[] = {
        "skopeo",           "--insecure-policy", /* a local file: nobody signed it */
        "--tmpdir=.",       "copy",
        "--quiet",          "oci-archive:plain",
        "oci:layout:image", NULL};
    static const char *const docker[] = {
        "skopeo",  "--insecure-policy",    "--tmpdir=.",       "copy",
        "--quiet", "docker-archive:plain", "oci:layout:image", NULL};
    int r;
    if (format == BR_FORMAT_OCI || format == BR_FORMAT_DOCKER) {
        r = run(w, "skopeo", format == BR_FORMAT_OCI ? oci : docker, err);
        if (r == -BR_E_INVALID_IMAGE)
            r = br_err_wrap(err, "the file could not be read as %s",
                            format == BR_FORMAT_OCI
                                ? "an OCI archive (a tar file with 'oci-layout' at its top)"
                                : "what 'docker save' writes (a tar file with 'manifest.json')");
    } else {
        r = run(w, "umoci", init, err);
        if (r == 0)
            r = run(w, "umoci", new, err);
        if (r == 0)
            r = run(w, "umoci", add, err);
    }
    (void)unlinkat(w->fd, "plain", 0);
    return r;
}

static int unpack(const struct br_work *w, struct br_image *img, struct br_err *err)
{
    /* rootless: it makes no device files, and everything belongs to whoever runs it */
    static const char *const argv[] = {"umoci",   "raw",          "unpack", "--rootless",
                                       "--image", "layout:image", "rootfs", NULL};
    int r = run(w, "umoci", argv, err);
    if (r < 0)
        return r;
    r = br_remove_tree(w->fd, "layout", err);
    BR_CLEANUP_FD int root = br_open_beneath(w->fd, "rootfs", O_RDONLY | O_DIRECTORY, 0);
    if (r == 0 && root < 0)
        r = br_err_errno(err, BR_E_INVALID_IMAGE, "nothing was unpacked; no image was made");
    return r < 0 ? r : br_image_clean(root, w, img, err);
}

/* The erofs file "image": the same bytes for the same files. */
static int pack(const struct br_work *w, struct br_err *err)
{
    static const char *const argv[] = {"mkfs.erofs",
                                       "--quiet",
                                       "-T0",
                                       "--all-root",
                                       "-x-1", /* no extended attributes */
                                       "-U00000000-0000-0000-0000-000000000000",
                                       "image",
                                       "rootfs",
                                       NULL};
    return run(w, "erofs-utils", argv, err);
}

/* ---- into the store ---- */

static int store_failed(struct br_err *err)
{
    return br_err_errno(err, BR_E_STORE_FAILED, "the image could not be stored");
}

static int move_in(const struct br_work *w, int fd, struct br_image *img, struct br_err *err)
{
    char file[BR_IMAGE_FILE_MAX], tree[BR_IMAGE_FILE_MAX];
    br_image_file_name(file, img->id, ".erofs");
    br_image_file_name(tree, img->id, ".tree");
    if (fchmod(fd, 0400) < 0 || fsync(fd) < 0 || renameat(w->fd, "image", w->store->fd, file) < 0)
        return store_failed(err);
    img->has_tree = geteuid() != 0;
    if (img->has_tree) {
        int r = br_remove_tree(w->store->fd, tree, err);
        if (r == 0 && renameat(w->fd, "rootfs", w->store->fd, tree) < 0)
            r = store_failed(err);
        BR_CLEANUP_FD int dir =
            r < 0 ? -1 : br_open_beneath(w->store->fd, tree, O_RDONLY | O_DIRECTORY, 0);
        if (r == 0 && dir < 0)
            r = store_failed(err);
        if (r == 0)
            r = br_image_hash_tree(dir, &br_image_stop, img->tree, img->tree_stamp, err);
        if (r < 0)
            return r;
    }
    if (br_image_stamp(fd, &img->file) < 0 || fsync(w->store->fd) < 0)
        return store_failed(err);
    return br_image_index_write(w->store, img, err);
}

/* With the store locked. */
static int commit(const struct br_work *w, int fd, struct br_image *img, bool *existed,
                  struct br_err *err)
{
    struct br_image old;
    enum br_image_how how;
    *existed =
        br_image_verify(w->store, img->id, true, &br_image_stop, &old, NULL, NULL, &how, NULL) == 0;
    /* one that is there and was changed is put right by this */
    if (*existed) {
        memcpy(old.name, img->name, sizeof(old.name));
        *img = old;
    } else {
        int r = move_in(w, fd, img, err);
        if (r < 0)
            return r;
    }
    return br_image_name_set(w->store, img->name, img->id, err);
}

/* The last part of a path as a name: "debian.tar.gz" is "debian". */
static int name_of(const char *source, char dst[BR_IMAGE_NAME_MAX], struct br_err *err)
{
    const char *end = source + strlen(source);
    while (end > source + 1 && end[-1] == '/')
        end--;
    const char *at = end;
    while (at > source && at[-1] != '/')
        at--;
    size_t n = 0;
    for (; at < end && n < BR_IMAGE_NAME_MAX - 1; at++) {
        if (*at == '.' && n > 0)
            break;
        char c = (char)tolower((unsigned char)*at);
        bool fine = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (n && strchr("-_", c));
        dst[n] = fine ? c : n ? '-' : 'x';
        n++;
    }
    dst[n] = 0;
    if (!br_image_is_name(dst))
        return br_err_set(err, BR_E_USAGE,
                          "no name for the image can be made of '%.512s'; no image was made. Give "
                          "it one with --name",
                          source);
    return 0;
}

int br_image_finish(struct br_work *w, enum br_image_format format, const char *format_name,
                    const char *source, const char *name, struct br_image *img, bool *existed,
                    struct br_err *err)
{
    uint8_t sum[32];
    char hex[BR_IMAGE_HEX + 1];
    memset(img, 0, sizeof(*img));
    int r = to_layout(w, format, err);
    if (r == 0)
        r = unpack(w, img, err);
    if (r == 0)
        r = pack(w, err);
    /* every program is dead: from here on nobody changes it */
    BR_CLEANUP_FD int fd = r < 0 ? -1 : br_work_take(w, "image", err);
    if (r == 0 && fd < 0)
        r = fd;
    if (r == 0)
        r = br_image_hash_file(fd, &br_image_stop, sum, err);
    if (r < 0)
        return r;
    br_hex(hex, sum, 32);
    snprintf(img->id, sizeof(img->id), "sha256:%s", hex);
    snprintf(img->name, sizeof(img->name), "%s", name);
    snprintf(img->format, sizeof(img->format), "%s", format_name);
    BR_CLEANUP_BUF struct br_buf visible = BR_BUF_INIT(64 * 1024);
    (void)br_buf_put_visible(&visible, source, strlen(source), true);
    const char *text = br_buf_cstr(&visible);
    snprintf(img->source, sizeof(img->source), "%s", text ? text : "");
    img->created_us = br_now_wall_us();
    r = br_store_lock(w->store, err);
    if (r < 0)
        return r;
    r = commit(w, fd, img, existed, err);
    br_store_unlock(w->store);
    return r;
}

int br_image_import(const struct br_image_store *s, const struct br_import *in,
                    struct br_image *img, bool *existed, struct br_err *err)
{
    struct br_work w = {.max_bytes = in->max_bytes ? in->max_bytes : BR_IMAGE_BYTES_MAX,
                        .max_entries = in->max_entries ? in->max_entries : BR_IMAGE_ENTRIES_MAX,
                        .max_seconds = in->max_seconds ? in->max_seconds : BR_IMPORT_SECONDS};
    char name[BR_IMAGE_NAME_MAX];
    enum br_image_format format = in->format;
    bool is_dir = false;
    int r = 0;
    if (in->name)
        snprintf(name, sizeof(name), "%s", in->name);
    else
        r = name_of(in->source, name, err);
    if (r == 0)
        r = br_work_open(&w, s, err);
    if (r < 0)
        return r;
    r = take_in(&w, in->source, &is_dir, err);
    if (r == 0)
        r = unpack_outer(&w, err);
    if (r == 0 && format == BR_FORMAT_AUTO)
        r = detect(&w, &format, err);
    if (r == 0 && is_dir && format == BR_FORMAT_TAR)
        format = BR_FORMAT_DIRECTORY;
    if (r == 0)
        r = br_image_finish(&w, format, br_image_format_names[format], in->source, name, img,
                            existed, err);
    int k = br_work_close(&w, r < 0 ? NULL : err);
    return r < 0 ? r : k;
}
