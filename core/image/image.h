/*
 * core/image: the store of images, STATE/images/. An image is one read-only erofs file, named by
 * the SHA-256 of its bytes. Everything in the store belongs to the user who launches sandboxes.
 *
 *   <hex>.erofs   the image
 *   <hex>.tree/   the same files unpacked; only where an ordinary user owns the store, to whom the
 *                 kernel does not let mount erofs
 *   <hex>.index   what is known of it, and what its metadata was when it was hashed last
 *   names/NAME    a file that holds an id
 *   tmp.XXXX/     the private directory of an import, locked by the process that makes it
 *
 * This header is the library that bridled and bridle-launch link: opening, checking, resolving. No
 * JSON, no child processes. What makes images is the program bridle-image (image_priv.h).
 *
 * Every file is opened by descriptor beneath the store, without following a symbolic link. Who can
 * write to the store as its owner is trusted; everybody else must not be able to.
 */
#ifndef BR_IMAGE_H
#define BR_IMAGE_H

#include <sys/stat.h>

#include "base/base.h"
#include "wire/types.h"

#define BR_IMAGE_NONE "none"     /* nothing: no program but pid 1's own */
#define BR_IMAGE_HOST "host"     /* the id of the host's own root: nothing pins what is in it */
#define BR_IMAGE_DIR "images"    /* in the state directory */
#define BR_IMAGE_NAMES "names"   /* in the store */
#define BR_IMAGE_HEX 64u         /* digits of an id */
#define BR_IMAGE_NAME_MAX 64u    /* with its end */
#define BR_IMAGE_SOURCE_MAX 512u /* with its end */
#define BR_IMAGE_INDEX_MAX 8192u /* bytes of an index */
#define BR_IMAGE_DEPTH_MAX 128u  /* directories within each other; each is an open descriptor */
#define BR_IMAGE_ENTRIES_MAX 2000000u    /* files and directories: more than any distribution has */
#define BR_IMAGE_BYTES_MAX (64ull << 30) /* of all files: likewise */

/* Metadata that changes when somebody writes to a file, or puts another one in its place. */
struct br_image_stamp {
    uint64_t dev, ino, size, mtime_ns, ctime_ns;
};

struct br_image {
    char id[BR_IMAGE_ID_MAX];         /* "sha256:<hex>" */
    char name[BR_IMAGE_NAME_MAX];     /* at the import; names/ decides */
    char source[BR_IMAGE_SOURCE_MAX]; /* what the operator named, for people; visible characters */
    char format[16];                  /* "docker", "oci", "tar", "directory" or "packages" */
    uint64_t created_us;
    uint64_t bytes, entries; /* of the files in it */
    struct br_image_stamp file;
    bool has_tree;
    uint8_t tree[32];       /* of paths, types, modes, contents and link targets */
    uint8_t tree_stamp[32]; /* of paths, identities and times */
};

/* How an image was found to be what its id says. */
enum br_image_how {
    BR_IMAGE_UNCHANGED = 1, /* its metadata is what it was when it was hashed last */
    BR_IMAGE_HASHED = 2,    /* all its bytes were read */
};
const char *br_image_how_name(enum br_image_how how); /* "unchanged", "hashed" */

struct br_image_store {
    int fd; /* STATE/images, -1 when not open */
};

/* True for "sha256:" and 64 lower-case hex digits. */
bool br_image_is_id(const char *s);
/* A name for an image: kebab-case with dots and underscores allowed, not "host", no longer than
 * BR_IMAGE_NAME_MAX - 1. */
bool br_image_is_name(const char *s);

/*
 * Open the store; `create` makes it. -BR_E_INVALID_IMAGE if it, or the state directory, belongs to
 * somebody else or others can write to it; -BR_E_NOT_FOUND if there is none. state_fd stays the
 * caller's.
 */
int br_image_store_open(int state_fd, bool create, struct br_image_store *s, struct br_err *err);
void br_image_store_close(struct br_image_store *s);

/*
 * What the operator called an image ("host", a name, an id, or the first 8 or more digits of one
 * that only one image has) as an id. Reads names only: the image itself is checked before it is
 * used. -BR_E_NOT_FOUND with the next step; -BR_E_INVALID_IMAGE if the store is not in order.
 */
int br_image_resolve(int state_fd, const char *name, char id[BR_IMAGE_ID_MAX], struct br_err *err);

/*
 * Find an image and check that it is what its id says: cheaply by its metadata, and by reading all
 * of it when that differs or `full` is set. *file (may be NULL) gets its erofs file, *tree (may be
 * NULL) its directory, or -1 if it has none; the caller closes them. On failure neither is open.
 * -BR_E_NOT_FOUND, -BR_E_INVALID_IMAGE. `stop` (may be NULL) ends a long read with
 * -BR_E_CANCELED when it becomes true.
 */
int br_image_verify(const struct br_image_store *s, const char *id, bool full,
                    const volatile int *stop, struct br_image *img, int *file, int *tree,
                    enum br_image_how *how, struct br_err *err);

/* The metadata of an open image file. */
int br_image_stamp(int fd, struct br_image_stamp *st);
bool br_image_stamp_equal(const struct br_image_stamp *a, const struct br_image_stamp *b);

#endif
