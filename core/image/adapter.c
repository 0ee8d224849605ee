/*
 * The image of an adapter, from a recipe that is part of this program (adapters/<id>/): the Debian
 * packages of a root file system, and archives of npm that `fetch` brings and compares with pinned
 * digests. Called by bridle-image for the operator. In the root that mmdebstrap makes, `image.sh`
 * turns the archives into the guest: in mmdebstrap's namespaces and without a network, like the
 * scripts of packages. From there on it is an image like any other.
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "image/make_priv.h"

extern const char recipe_pi_coding[];
extern const unsigned recipe_pi_coding_len;

struct recipe {
    const char *id;
    const char *tar;
    const unsigned *tar_len;
    const char *packages[8];
};
static const struct recipe recipes[] = {
    {"pi-coding",
     recipe_pi_coding,
     &recipe_pi_coding_len,
     /* what node is linked with; what a coding agent works with; what its tools 'grep' and 'find'
        are */
     {"libstdc++6", "git", "ripgrep", "fd-find", NULL}},
};

static const struct recipe *find(const char *id)
{
    for (unsigned i = 0; i < BR_ARRAY_LEN(recipes); i++)
        if (strcmp(recipes[i].id, id) == 0)
            return &recipes[i];
    return NULL;
}

bool br_image_is_recipe(const char *id)
{
    return find(id) != NULL;
}

unsigned br_image_recipe_packages(const char *id, const char **out, unsigned max)
{
    unsigned n = 0;
    for (const char *const *p = find(id)->packages; *p && n < max; p++)
        out[n++] = *p;
    return n;
}

/* ---- the private directory ---- */

static int put_recipe(const struct br_work *w, const struct recipe *r, struct br_err *err)
{
    static const char *const argv[] = {"tar", "--extract", "--file=recipe.tar", "--no-same-owner",
                                       NULL};
    BR_CLEANUP_FD int fd = br_open_beneath(w->fd, "recipe.tar", O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || br_write_all(fd, r->tar, *r->tar_len) < 0 || mkdirat(w->fd, "recipe", 0700) < 0 ||
        mkdirat(w->fd, "recipe/archives", 0700) < 0)
        return br_err_errno(err, BR_E_STORE_FAILED, "the store of images cannot be written to");
    return br_tool_run(
        w,
        &(struct br_tool){
            .package = "tar", .argv = argv, .in = -1, .out = -1, .read_dir = -1, .trusted = true},
        err);
}

static int fetch(const struct br_work *w, struct br_err *err)
{
    static const char *const argv[] = {"sh", "recipe/fetch", "recipe/archives", NULL};
    return br_tool_run(w,
                       &(struct br_tool){.package = "dash",
                                         .argv = argv,
                                         .in = -1,
                                         .out = -1,
                                         .read_dir = -1,
                                         .trusted = true,
                                         .operators = true},
                       err);
}

/* mmdebstrap copies the recipe itself, as who started it: its namespaces cannot read the store. */
static int hooks(const struct br_work *w, struct br_image_hooks *h, struct br_err *err)
{
    char link[32], dir[PATH_MAX];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", w->fd);
    ssize_t n = readlink(link, dir, sizeof(dir) - 1);
    if (n <= 0 || (size_t)n >= sizeof(h->copy) - 64)
        return br_err_errno(err, BR_E_STORE_FAILED, "the store of images has no path");
    dir[n] = 0;
    if (strchr(dir, '\'') || strchr(dir, '\\'))
        return br_err_set(err, BR_E_USAGE,
                          "the path of the state directory has a quote or a backslash in it; no "
                          "image was made");
    snprintf(h->copy, sizeof(h->copy), "--customize-hook=copy-in '%s/recipe' /opt", dir);
    h->options[0] = "--dpkgopt=path-exclude=/usr/share/man/*";
    h->options[1] = "--dpkgopt=path-exclude=/usr/share/locale/*";
    h->options[2] = "--dpkgopt=path-exclude=/usr/share/info/*";
    h->options[3] = h->copy;
    h->options[4] = "--customize-hook=chroot \"$1\" sh /opt/recipe/image.sh";
    h->options[5] = NULL;
    return 0;
}

int br_image_recipe_prepare(const struct br_work *w, const char *id, struct br_image_hooks *h,
                            struct br_err *err)
{
    int r = put_recipe(w, find(id), err);
    if (r == 0)
        r = fetch(w, err);
    return r < 0 ? r : hooks(w, h, err);
}
