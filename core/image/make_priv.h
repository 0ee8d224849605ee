/*
 * core/image, private to bridle-image: making images. An import is a private directory in the
 * store, a few child programs that work in it one after another, and a look at what they made.
 */
#ifndef BR_IMAGE_MAKE_PRIV_H
#define BR_IMAGE_MAKE_PRIV_H

#include "image/image_priv.h"

/* Set by SIGINT, SIGTERM and SIGHUP: everything ends soon and cleans up after itself. */
extern volatile int br_image_stop;

/* ---- work.c: the private directory ---- */

struct br_work {
    const struct br_image_store *store;
    int fd;        /* the directory; it holds a lock that says that its maker lives */
    char name[64]; /* in the store */
    uint64_t max_bytes, max_entries; /* of the image's files */
    unsigned max_seconds;            /* from br_work_open() on */
    uint64_t deadline_us;            /* that is then */
};
#define BR_IMPORT_SECONDS 900u
#define BR_BUILD_SECONDS 3600u
#define BR_IMAGE_SECONDS_MAX 86400u
/* -BR_E_LIMIT_EXCEEDED: there is more of the image than max_bytes and max_entries allow. */
int br_work_too_large(const struct br_work *w, struct br_err *err);
/* Let the programs that run as a user of their own have a file of the directory. */
int br_work_give(int fd);
/* And have it back, for nobody else: what they made under this name, if it is a regular file. A
 * descriptor to read from. No program may be at work. */
int br_work_take(const struct br_work *w, const char *name, struct br_err *err);
/* One process at a time changes the store; waits. The lock goes with the descriptor. */
int br_store_lock(const struct br_image_store *s, struct br_err *err);
void br_store_unlock(const struct br_image_store *s);
/* Remove what makers that are dead left behind. Call it with the lock. */
int br_store_sweep(const struct br_image_store *s, struct br_err *err);
/* Takes the lock, sweeps, makes the directory, gives the lock back. */
int br_work_open(struct br_work *w, const struct br_image_store *s, struct br_err *err);
/* Removes the directory and all that is in it. */
int br_work_close(struct br_work *w, struct br_err *err);

/* ---- tool.c: child programs ---- */

struct br_tool {
    const char *package;     /* that the program is in */
    const char *const *argv; /* argv[0] is its name, without a directory */
    int in, out;             /* -1: /dev/null */
    int read_dir;            /* one more directory that it may read; -1: none */
    /* It works for the operator on what the operator trusts (apt and what it fetches), and needs
     * more of the system than its own directory, and the network. Otherwise it is confined. */
    bool trusted;
    bool operators;  /* it also gets the operator's home and settings of npm */
    bool any_status; /* its exit status says nothing */
};
/*
 * Run it in the private directory and wait. -BR_E_REQUIREMENT_MISSING names the package,
 * -BR_E_LIMIT_EXCEEDED if what it wrote went over the limits, -BR_E_TIMEOUT, -BR_E_CANCELED, and
 * -BR_E_INVALID_IMAGE with the last line of what it said if it failed.
 */
int br_tool_run(const struct br_work *w, const struct br_tool *t, struct br_err *err);
/* The path of a program, or -BR_E_REQUIREMENT_MISSING naming its package. */
int br_tool_find(const char *program, const char *package, char path[BR_PATH_MAX],
                 struct br_err *err);
/* Where programs are looked for; tests set another. Directories separated by ':'. */
extern const char *br_tool_dirs;

/* ---- clean.c ---- */

/*
 * Make unpacked files fit to be an image: what every sandbox has of its own, device files, pipes
 * and sockets are removed; setuid, setgid, sticky bits and extended attributes cleared; the owner
 * may read everything; times are 0. Counts files and bytes (a file with several names once).
 */
int br_image_clean(int root, const struct br_work *w, struct br_image *img, struct br_err *err);

/* ---- import.c ---- */

enum br_image_format {
    BR_FORMAT_AUTO,
    BR_FORMAT_DOCKER,
    BR_FORMAT_OCI,
    BR_FORMAT_TAR,
    BR_FORMAT_DIRECTORY,
};
/* "auto", "docker", ...: what --format takes, and what an index says; ends with NULL. */
extern const char *const br_image_format_names[];
struct br_import {
    const char *source; /* a path */
    const char *name;   /* NULL: from the source */
    enum br_image_format format;
    uint64_t max_bytes, max_entries; /* 0: the most there may be */
    unsigned max_seconds;            /* 0: BR_IMPORT_SECONDS */
};
/* `img` becomes what is in the store now; *existed says that it was there before. */
int br_image_import(const struct br_image_store *s, const struct br_import *in,
                    struct br_image *img, bool *existed, struct br_err *err);
/* From a tar file "plain" in the private directory to the store. */
int br_image_finish(struct br_work *w, enum br_image_format format, const char *format_name,
                    const char *source, const char *name, struct br_image *img, bool *existed,
                    struct br_err *err);

/* ---- build.c ---- */

struct br_image_build {
    const char *name, *suite;
    const char *const *mirrors; /* NULL-terminated; none: the host's apt sources */
    const char *const *packages;
    bool unpack_only;   /* run none of the packages' scripts */
    const char *recipe; /* of an adapter, whose guest goes into it as well; NULL: none */
    uint64_t max_bytes, max_entries;
    unsigned max_seconds; /* 0: BR_BUILD_SECONDS */
};
#define BR_IMAGE_SUITE_MAX 32
/* The release of this machine, by its os-release; "bookworm" if that does not say. */
void br_image_host_suite(char suite[BR_IMAGE_SUITE_MAX]);
int br_image_build(const struct br_image_store *s, const struct br_image_build *b,
                   struct br_image *img, bool *existed, struct br_err *err);

/* ---- adapter.c ---- */

bool br_image_is_recipe(const char *id);
/* The Debian packages that a recipe needs; how many. */
unsigned br_image_recipe_packages(const char *id, const char **out, unsigned max);
/* What mmdebstrap is told besides. */
struct br_image_hooks {
    const char *options[8];
    char copy[BR_PATH_MAX + 64];
};
/* Unpacks the recipe and fetches what it is made of, into the private directory. */
int br_image_recipe_prepare(const struct br_work *w, const char *id, struct br_image_hooks *h,
                            struct br_err *err);

/* ---- main.c, show.c ---- */

int br_image_main(int argc, char **argv);
/* Each returns the exit code. */
int br_image_show_made(const struct br_image *img, bool existed, bool json);
int br_image_list(const struct br_image_store *s, bool json);
int br_image_show(const struct br_image_store *s, const char *id, bool json);
int br_image_verify_all(const struct br_image_store *s, char (*ids)[BR_IMAGE_ID_MAX], size_t n,
                        bool json);
int br_image_remove(const struct br_image_store *s, const char *what, const char *id);
/* Print the error, return its exit code. */
int br_image_fail(const struct br_err *err);

#endif
