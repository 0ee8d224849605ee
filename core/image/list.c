/*
 * What is in the store: all names, all ids. Called to show them and to resolve the beginning of an
 * id. Entries that are neither are passed over.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "image/image_priv.h"

#define LIST_MAX 10000u /* images of one store, and names; far more than fit on a disk */

struct list {
    char *items;
    size_t n, cap, width;
};

static int add(struct list *l, const char *text)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 16;
        char *p = cap > LIST_MAX * 2 ? NULL : realloc(l->items, cap * l->width);
        if (!p)
            return -BR_E_NOMEM;
        l->items = p;
        l->cap = cap;
    }
    snprintf(l->items + l->n * l->width, l->width, "%s", text);
    l->n++;
    return 0;
}

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int list(int store, const char *sub, bool ids, struct list *l, struct br_err *err)
{
    int fd = br_open_beneath(store, sub, O_RDONLY | O_DIRECTORY, 0);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    int r = 0;
    if (!d) {
        br_close(&fd);
        return errno == ENOENT
                   ? 0
                   : br_err_errno(err, BR_E_INVALID_IMAGE, "the store of images could not be read");
    }
    for (struct dirent *e; r == 0 && (e = readdir(d));) {
        char id[BR_IMAGE_ID_MAX];
        size_t n = strlen(e->d_name);
        if (!ids) {
            if (br_image_is_name(e->d_name))
                r = add(l, e->d_name);
        } else if (n == BR_IMAGE_HEX + 6 && strcmp(e->d_name + BR_IMAGE_HEX, ".index") == 0) {
            snprintf(id, sizeof(id), "sha256:%.64s", e->d_name);
            if (br_image_is_id(id))
                r = add(l, id);
        }
    }
    closedir(d);
    if (r < 0)
        return br_err_set(err, BR_E_NOMEM, "the store of images has too many entries");
    if (l->n)
        qsort(l->items, l->n, l->width, compare);
    return 0;
}

int br_image_names_list(const struct br_image_store *s, struct br_image_names *out,
                        struct br_err *err)
{
    struct list l = {.width = BR_IMAGE_NAME_MAX};
    int r = list(s->fd, BR_IMAGE_NAMES, false, &l, err);
    out->names = (char(*)[BR_IMAGE_NAME_MAX])l.items;
    out->n = r < 0 ? 0 : l.n;
    return r;
}

void br_image_names_free(struct br_image_names *l)
{
    free(l->names);
    *l = (struct br_image_names){.names = NULL};
}

int br_image_ids_list(const struct br_image_store *s, struct br_image_ids *out, struct br_err *err)
{
    struct list l = {.width = BR_IMAGE_ID_MAX};
    int r = list(s->fd, ".", true, &l, err);
    out->ids = (char(*)[BR_IMAGE_ID_MAX])l.items;
    out->n = r < 0 ? 0 : l.n;
    return r;
}

void br_image_ids_free(struct br_image_ids *l)
{
    free(l->ids);
    *l = (struct br_image_ids){.ids = NULL};
}
