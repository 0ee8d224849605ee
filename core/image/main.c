/*
 * bridle-image: makes images and shows them. `bridle image` becomes this program, as the operator
 * or as root; it is no part of a run, holds no secret, and talks to nobody. Its arguments are the
 * operator's.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "image/make_priv.h"

#define PACKAGES_MAX 512 /* as words on a command line */

struct options {
    const char *name, *suite;
    enum br_image_format format;
    uint64_t max_bytes, max_entries, max_seconds;
    const char *mirrors[32];
    unsigned nmirrors;
    bool json, unpack_only;
};

static void on_signal(int s)
{
    (void)s;
    br_image_stop = 1;
}

static int usage(const char *fmt, ...) BR_PRINTF(1, 2);
static int usage(const char *fmt, ...)
{
    struct br_err err = {.code = BR_E_USAGE};
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(err.text, sizeof(err.text), fmt, ap);
    va_end(ap);
    return br_image_fail(&err);
}

static int parse_number(const char *s, uint64_t max, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    if (errno || *end || end == s || *s < '0' || *s > '9' || v == 0 || v > max)
        return -1;
    *out = v;
    return 0;
}

static int parse_format(const char *s, enum br_image_format *out)
{
    for (unsigned i = 0; br_image_format_names[i]; i++)
        if (strcmp(s, br_image_format_names[i]) == 0) {
            *out = (enum br_image_format)i;
            return 0;
        }
    return -1;
}

/* 0, or the exit code of what is wrong. */
static int parse(int argc, char **argv, struct options *o)
{
    static const struct option table[] = {{"json", no_argument, NULL, 'j'},
                                          {"name", required_argument, NULL, 'n'},
                                          {"format", required_argument, NULL, 'f'},
                                          {"suite", required_argument, NULL, 's'},
                                          {"mirror", required_argument, NULL, 'm'},
                                          {"unpack-only", no_argument, NULL, 'u'},
                                          {"max-bytes", required_argument, NULL, 'b'},
                                          {"max-files", required_argument, NULL, 'e'},
                                          {"max-seconds", required_argument, NULL, 't'},
                                          {NULL, 0, NULL, 0}};
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, "", table, NULL)) != -1;) {
        switch (c) {
        case 'j':
            o->json = true;
            break;
        case 'u':
            o->unpack_only = true;
            break;
        case 'n':
            if (!br_image_is_name(optarg))
                return usage("'%s' cannot be the name of an image: at most 63 of a-z, 0-9, '.', "
                             "'-' and '_', beginning with a letter or digit, and not 'host'",
                             optarg);
            o->name = optarg;
            break;
        case 's':
            o->suite = optarg;
            break;
        case 'm':
            if (o->nmirrors == BR_ARRAY_LEN(o->mirrors) - 1)
                return usage("too many mirrors");
            o->mirrors[o->nmirrors++] = optarg;
            break;
        case 'f':
            if (parse_format(optarg, &o->format) < 0)
                return usage("'%s' is no format; there are auto, docker, oci, tar, directory",
                             optarg);
            break;
        case 'b':
            if (parse_number(optarg, BR_IMAGE_BYTES_MAX, &o->max_bytes) < 0)
                return usage("'%s' is no number of bytes up to the most that an image may have",
                             optarg);
            break;
        case 'e':
            if (parse_number(optarg, BR_IMAGE_ENTRIES_MAX, &o->max_entries) < 0)
                return usage("'%s' is no number of files up to the most that an image may have",
                             optarg);
            break;
        case 't':
            if (parse_number(optarg, BR_IMAGE_SECONDS_MAX, &o->max_seconds) < 0)
                return usage("'%s' is no number of seconds up to a day", optarg);
            break;
        default:
            return usage("'%s' is not understood; see 'bridle image --help'", argv[optind - 1]);
        }
    }
    return 0;
}

/* ---- verbs ---- */

static int verb_import(const struct br_image_store *s, const struct options *o, char **args, int n)
{
    struct br_err err = {.code = BR_OK};
    struct br_image img;
    bool existed = false;
    if (n != 1)
        return usage("'bridle image %s' takes one source; see 'bridle image --help'", "import");
    struct br_import in = {.source = args[0],
                           .name = o->name,
                           .format = o->format,
                           .max_bytes = o->max_bytes,
                           .max_entries = o->max_entries,
                           .max_seconds = (unsigned)o->max_seconds};
    int r = br_image_import(s, &in, &img, &existed, &err);
    return r < 0 ? br_image_fail(&err) : br_image_show_made(&img, existed, o->json);
}

static int verb_build(const struct br_image_store *s, const struct options *o, char **args, int n)
{
    struct br_err err = {.code = BR_OK};
    struct br_image img;
    bool existed = false;
    if (n < 1)
        return usage("'bridle image %s' needs the name of a package, or of an adapter", "build");
    const char *packages[PACKAGES_MAX + 1] = {NULL};
    bool recipe = br_image_is_recipe(args[0]);
    unsigned have = recipe ? br_image_recipe_packages(args[0], packages, 16) : 0;
    if (n > (int)(PACKAGES_MAX - have) || (recipe && o->unpack_only))
        return usage(recipe ? "an adapter's image needs its packages' scripts: '--unpack-only' "
                              "cannot be said with '%s'"
                            : "too many packages after '%s'",
                     args[0]);
    for (int i = recipe; i < n; i++)
        packages[have++] = args[i];
    char own[BR_IMAGE_SUITE_MAX];
    br_image_host_suite(own);
    struct br_image_build b = {.name = o->name,
                               .suite = o->suite ? o->suite : own,
                               .mirrors = o->mirrors,
                               .packages = packages,
                               .recipe = recipe ? args[0] : NULL,
                               .unpack_only = o->unpack_only,
                               .max_bytes = o->max_bytes,
                               .max_entries = o->max_entries,
                               .max_seconds = (unsigned)o->max_seconds};
    int r = br_image_build(s, &b, &img, &existed, &err);
    return r < 0 ? br_image_fail(&err) : br_image_show_made(&img, existed, o->json);
}

static int verb_list(const struct br_image_store *s, const struct options *o, char **args, int n)
{
    (void)args;
    if (n != 0)
        return usage("'bridle image %s' takes no operand", "list");
    return br_image_list(s, o->json);
}

static int state_fd = -1;

static int verb_show(const struct br_image_store *s, const struct options *o, char **args, int n)
{
    struct br_err err = {.code = BR_OK};
    char id[BR_IMAGE_ID_MAX];
    if (n != 1)
        return usage("'bridle image %s' takes one image", "show");
    if (strcmp(args[0], BR_IMAGE_HOST) == 0)
        return usage("'%s' is this host's own /usr: there is nothing in the store", args[0]);
    int r = br_image_resolve(state_fd, args[0], id, &err);
    return r < 0 ? br_image_fail(&err) : br_image_show(s, id, o->json);
}

static int verb_verify(const struct br_image_store *s, const struct options *o, char **args, int n)
{
    struct br_err err = {.code = BR_OK};
    struct br_image_ids ids = {.ids = NULL};
    char one[BR_IMAGE_ID_MAX];
    if (n > 1)
        return usage("'bridle image %s' takes one image, or none for all", "verify");
    int r = 0;
    if (n == 1 && br_image_is_id(args[0])) /* also one whose index is damaged */
        snprintf(one, sizeof(one), "%s", args[0]);
    else if (n == 1)
        r = br_image_resolve(state_fd, args[0], one, &err);
    else
        r = br_image_ids_list(s, &ids, &err);
    if (r < 0)
        return br_image_fail(&err);
    int code = n == 1 ? br_image_verify_all(s, &one, 1, o->json)
                      : br_image_verify_all(s, ids.ids, ids.n, o->json);
    br_image_ids_free(&ids);
    return code;
}

static int verb_remove(const struct br_image_store *s, const struct options *o, char **args, int n)
{
    struct br_err err = {.code = BR_OK};
    char id[BR_IMAGE_ID_MAX];
    (void)o;
    if (n != 1)
        return usage("'bridle image %s' takes one image", "remove");
    int r;
    if (br_image_is_id(args[0])) { /* also one that is damaged */
        snprintf(id, sizeof(id), "%s", args[0]);
        struct br_image img;
        r = br_image_index_read(s, id, &img, &err);
        if (r == -BR_E_INVALID_IMAGE)
            r = 0;
    } else {
        r = br_image_resolve(state_fd, args[0], id, &err);
        if (r == -BR_E_INVALID_IMAGE && br_image_is_name(args[0]))
            r = br_image_name_get(s, args[0], id, &err);
    }
    return r < 0 ? br_image_fail(&err) : br_image_remove(s, args[0], id);
}

static const struct verb {
    const char *name;
    bool makes; /* it makes the store if there is none */
    int (*run)(const struct br_image_store *s, const struct options *o, char **args, int n);
} verbs[] = {
    {"import", true, verb_import}, {"build", true, verb_build},    {"list", false, verb_list},
    {"show", false, verb_show},    {"verify", false, verb_verify}, {"remove", false, verb_remove},
};

static int run_verb(const struct verb *v, const struct options *o, char **args, int n)
{
    struct br_err err = {.code = BR_OK};
    struct br_image_store store = {.fd = -1};
    char path[BR_PATH_MAX];
    int r = br_state_path(path, getenv, &err);
    if (r == 0)
        r = br_state_open(path, &err);
    if (r < 0)
        return br_image_fail(&err);
    state_fd = r;
    r = br_image_store_open(state_fd, v->makes, &store, &err);
    if (r == -BR_E_NOT_FOUND && v->run == verb_list)
        r = 0; /* none yet: an empty list */
    int code = r < 0 ? br_image_fail(&err) : v->run(&store, o, args, n);
    br_image_store_close(&store);
    br_close(&state_fd);
    return code;
}

int br_image_main(int argc, char **argv)
{
    struct options o = {.name = NULL};
    struct sigaction stop = {.sa_handler = on_signal};
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (unsigned i = 0; i < BR_ARRAY_LEN(signals); i++)
        (void)sigaction(signals[i], &stop, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    umask(022);
    if (argc < 2)
        return usage("nothing was asked for; see 'bridle image --help'");
    int code = parse(argc - 1, argv + 1, &o);
    if (code)
        return code;
    for (unsigned i = 0; i < BR_ARRAY_LEN(verbs); i++)
        if (strcmp(argv[1], verbs[i].name) == 0)
            return run_verb(&verbs[i], &o, argv + 1 + optind, argc - 1 - optind);
    return usage("'bridle image %s' is not understood; there are import, build, list, show, verify "
                 "and remove",
                 argv[1]);
}
