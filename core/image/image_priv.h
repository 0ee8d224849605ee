/*
 * core/image, private: the files of the store, walking trees, and the imports of bridle-image.
 */
#ifndef BR_IMAGE_PRIV_H
#define BR_IMAGE_PRIV_H

#include "image/image.h"

/* "<hex><suffix>" for an id that br_image_is_id(). */
#define BR_IMAGE_FILE_MAX (BR_IMAGE_HEX + 16)
void br_image_file_name(char dst[BR_IMAGE_FILE_MAX], const char *id, const char *suffix);

/* ---- index.c ---- */

int br_image_index_put(struct br_buf *b, const struct br_image *img);
/* -BR_E_INVALID_IMAGE naming the id if it is not exactly what br_image_index_put() writes. */
int br_image_index_get(const char *text, size_t n, const char *id, struct br_image *img,
                       struct br_err *err);
/* Read `<hex>.index`; -BR_E_NOT_FOUND if there is no such image. */
int br_image_index_read(const struct br_image_store *s, const char *id, struct br_image *img,
                        struct br_err *err);
/* Write it, atomically. */
int br_image_index_write(const struct br_image_store *s, const struct br_image *img,
                         struct br_err *err);

/* ---- verify.c ---- */

/* SHA-256 of a whole file from its start. */
int br_image_hash_file(int fd, const volatile int *stop, uint8_t sum[32], struct br_err *err);
/* Both sums of a tree; contents are read only if `sum` is not NULL. */
int br_image_hash_tree(int fd, const volatile int *stop, uint8_t *sum, uint8_t stamp[32],
                       struct br_err *err);

/* ---- walk.c ---- */

struct br_walk_entry {
    const char *path; /* below the root, without a leading '/' */
    int dir;          /* descriptor of the directory that it is in */
    const char *name;
    struct stat st;
};
typedef int br_walk_fn(void *ctx, struct br_walk_entry *e, struct br_err *err);

/*
 * Every entry below `root`, sorted by name, a directory before what is in it; the order is the same
 * for the same tree. The function is called before a directory is opened and may change its mode,
 * or remove what is not a directory. Never follows a link or leaves the file system.
 * -BR_E_LIMIT_EXCEEDED for more than BR_IMAGE_DEPTH_MAX levels. With `lenient` what cannot be read
 * or vanishes is passed over.
 */
int br_walk(int root, bool lenient, br_walk_fn *fn, void *ctx, struct br_err *err);
/* Remove a directory and everything in it, of any depth, whatever the modes in it are. Nobody else
 * may be at work in it. 0 also if it is not there. */
int br_remove_tree(int dir, const char *name, struct br_err *err);

/* ---- store.c, list.c ---- */

/*
 * Write a file of the store, atomically, in the place of one of that name if there is one. `fresh`
 * is what it is called until then; that it is left behind by a killed process is the caller's
 * matter. 0, or -1 and errno.
 */
int br_image_put_file(int dir, const char *fresh, const char *name, const void *p, size_t n);

/* Let NAME stand for an image, atomically. */
int br_image_name_set(const struct br_image_store *s, const char *name, const char *id,
                      struct br_err *err);
int br_image_name_get(const struct br_image_store *s, const char *name, char id[BR_IMAGE_ID_MAX],
                      struct br_err *err);
int br_image_name_remove(const struct br_image_store *s, const char *name, struct br_err *err);

struct br_image_names {
    char (*names)[BR_IMAGE_NAME_MAX];
    size_t n;
};
/* All names, sorted. Free with br_image_names_free(). */
int br_image_names_list(const struct br_image_store *s, struct br_image_names *l,
                        struct br_err *err);
void br_image_names_free(struct br_image_names *l);
struct br_image_ids {
    char (*ids)[BR_IMAGE_ID_MAX];
    size_t n;
};
/* The ids of all images that have an index, sorted. Free with br_image_ids_free(). */
int br_image_ids_list(const struct br_image_store *s, struct br_image_ids *l, struct br_err *err);
void br_image_ids_free(struct br_image_ids *l);

#endif
