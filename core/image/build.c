/*
 * An image from Debian packages, with mmdebstrap. Called by bridle-image for the operator, who
 * trusts the mirrors that apt on this host trusts. The packages' scripts run in mmdebstrap's own
 * namespaces, for root with root's ids and around those in one of ours, so that no process outlives
 * the build; it has the host's network, for apt. Its result is a tar file, and from there on it is
 * imported like any other.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "image/make_priv.h"

#define ARGS_MAX 64
#define PACKAGES_MAX (64u * 1024) /* bytes of the list of packages */

static bool is_package(const char *s)
{
    size_t n = strlen(s);
    return n >= 2 && n < 200 && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789.+-:=~") == n &&
           ((*s >= 'a' && *s <= 'z') || (*s >= '0' && *s <= '9'));
}

static int check(const struct br_image_build *b, struct br_err *err)
{
    const char *suite = b->suite;
    if (strspn(suite, "abcdefghijklmnopqrstuvwxyz0123456789.-/") != strlen(suite) || !*suite ||
        *suite == '-')
        return br_err_set(err, BR_E_USAGE, "'%.80s' is not a suite of Debian; no image was made",
                          suite);
    for (const char *const *m = b->mirrors; *m; m++)
        if (strchr(*m, '\n') || (strncmp(*m, "deb ", 4) != 0 && strncmp(*m, "http://", 7) != 0 &&
                                 strncmp(*m, "https://", 8) != 0 && strncmp(*m, "file:/", 6) != 0 &&
                                 strncmp(*m, "copy:/", 6) != 0 && (*m)[0] != '/'))
            return br_err_set(err, BR_E_USAGE,
                              "the mirror '%.200s' is neither an address, a line that begins with "
                              "'deb ', nor the absolute path of a file of apt's; no image was made",
                              *m);
    for (const char *const *p = b->packages; *p; p++)
        if (!is_package(*p))
            return br_err_set(err, BR_E_USAGE,
                              "'%.80s' is not the name of a Debian package; no image was made", *p);
    return 0;
}

/* The host's own sources, as paths: what apt would read. */
static unsigned host_sources(char (*paths)[512], unsigned max)
{
    unsigned n = 0;
    if (access("/etc/apt/sources.list", R_OK) == 0)
        snprintf(paths[n++], sizeof(*paths), "/etc/apt/sources.list");
    DIR *d = opendir("/etc/apt/sources.list.d");
    for (struct dirent *e; d && n < max && (e = readdir(d));) {
        const char *dot = strrchr(e->d_name, '.');
        if (e->d_name[0] != '.' && dot &&
            (strcmp(dot, ".list") == 0 || strcmp(dot, ".sources") == 0))
            snprintf(paths[n++], sizeof(*paths), "/etc/apt/sources.list.d/%.256s", e->d_name);
    }
    if (d)
        closedir(d);
    return n;
}

static bool read_file(const char *path, struct br_buf *out)
{
    struct br_err ignored = {.code = BR_OK};
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return fd >= 0 && br_read_all(fd, out, path, &ignored) == 0 && br_buf_cstr(out);
}

void br_image_host_suite(char suite[BR_IMAGE_SUITE_MAX])
{
    static const char key[] = "\nVERSION_CODENAME=";
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(64u * 1024);
    br_buf_printf(&text, "\n");
    const char *at = read_file("/etc/os-release", &text) ? strstr(br_buf_cstr(&text), key) : NULL;
    at = at ? at + strlen(key) : "";
    at += *at == '"' || *at == '\'';
    size_t n = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789.-");
    snprintf(suite, BR_IMAGE_SUITE_MAX, "%.*s", n && n < BR_IMAGE_SUITE_MAX ? (int)n : 8,
             n && n < BR_IMAGE_SUITE_MAX ? at : "bookworm");
}

/* Is `word` one of the words of a file of apt's, outside of its comments? */
static bool mentions(const char *path, const char *word)
{
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(1u << 20);
    if (!read_file(path, &text))
        return false;
    size_t n = strlen(word);
    for (const char *line = br_buf_cstr(&text); *line;) {
        const char *end = line + strcspn(line, "\n");
        for (const char *p = line; *line != '#' && p < end;) {
            size_t k = strcspn(p, " \t\r\n");
            if (k == n && memcmp(p, word, n) == 0)
                return true;
            p += k + strspn(p + k, " \t\r");
        }
        line = end + (*end == '\n');
    }
    return false;
}

/* The host's sources say which releases there are, whatever mmdebstrap is told: an image of another
 * one is not to have its name. */
static int check_sources(const char *suite, char (*paths)[512], unsigned n, struct br_err *err)
{
    char own[BR_IMAGE_SUITE_MAX];
    br_image_host_suite(own);
    bool there = n == 0 || strcmp(suite, own) == 0;
    for (unsigned i = 0; i < n && !there; i++)
        there = mentions(paths[i], suite);
    return there
               ? 0
               : br_err_set(err, BR_E_USAGE,
                            "the sources of apt on this machine do not have the suite '%.80s'; no "
                            "image was made. Say where it is with --mirror",
                            suite);
}

static int bootstrap(const struct br_work *w, const struct br_image_build *b,
                     const char *const *options, struct br_err *err)
{
    static char paths[16][512];
    /* not '--quiet', which keeps what apt says from whoever has to know why */
    const char *argv[ARGS_MAX] = {"mmdebstrap", "--mode=unshare", "--format=tar",
                                  b->unpack_only ? "--variant=extract" : "--variant=essential"};
    unsigned n = 4;
    BR_CLEANUP_BUF struct br_buf include = BR_BUF_INIT(PACKAGES_MAX);
    br_buf_printf(&include, "--include=");
    for (const char *const *p = b->packages; *p; p++)
        br_buf_printf(&include, "%s%s", p == b->packages ? "" : ",", *p);
    argv[n++] = br_buf_cstr(&include);
    if (include.failed)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                          "the list of packages is too long; no image was made");
    for (; *options && n < ARGS_MAX / 2; options++)
        argv[n++] = *options;
    argv[n++] = "--";
    argv[n++] = b->suite;
    argv[n++] = "-";
    for (const char *const *m = b->mirrors; *m && n < ARGS_MAX - 1; m++)
        argv[n++] = *m;
    unsigned found = *b->mirrors ? 0 : host_sources(paths, BR_ARRAY_LEN(paths));
    int r = check_sources(b->suite, paths, found, err);
    if (r < 0)
        return r;
    for (unsigned i = 0; i < found; i++)
        argv[n++] = paths[i];
    BR_CLEANUP_FD int out = br_open_beneath(w->fd, "plain", O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (out < 0 || br_work_give(out) < 0)
        return br_err_errno(err, BR_E_STORE_FAILED, "the store of images cannot be written to");
    return br_tool_run(w,
                       &(struct br_tool){.package = "mmdebstrap",
                                         .argv = argv,
                                         .in = -1,
                                         .out = out,
                                         .read_dir = -1,
                                         .trusted = true},
                       err);
}

int br_image_build(const struct br_image_store *s, const struct br_image_build *b,
                   struct br_image *img, bool *existed, struct br_err *err)
{
    struct br_work w = {.max_bytes = b->max_bytes ? b->max_bytes : BR_IMAGE_BYTES_MAX,
                        .max_entries = b->max_entries ? b->max_entries : BR_IMAGE_ENTRIES_MAX,
                        .max_seconds = b->max_seconds ? b->max_seconds : BR_BUILD_SECONDS};
    char source[BR_IMAGE_SOURCE_MAX];
    size_t n = (size_t)snprintf(source, sizeof(source), "%s%s%s:", b->recipe ? b->recipe : "",
                                b->recipe ? " on " : "", b->suite);
    for (const char *const *p = b->packages; *p && n < sizeof(source); p++)
        n += (size_t)snprintf(source + n, sizeof(source) - n, " %s", *p);
    char path[BR_PATH_MAX];
    int r = check(b, err);
    /* an ordinary user's namespace needs the ids that /etc/subuid gives it */
    if (r == 0 && geteuid() != 0)
        r = br_tool_find("newuidmap", "uidmap", path, err);
    if (r == 0)
        r = br_work_open(&w, s, err);
    if (r < 0)
        return r;
    struct br_image_hooks hooks = {.options = {NULL}};
    if (b->recipe)
        r = br_image_recipe_prepare(&w, b->recipe, &hooks, err);
    if (r == 0)
        r = bootstrap(&w, b, hooks.options, err);
    if (r == 0)
        r = br_image_finish(&w, BR_FORMAT_TAR, "packages", source,
                            b->name     ? b->name
                            : b->recipe ? b->recipe
                                        : b->suite,
                            img, existed, err);
    int k = br_work_close(&w, r < 0 ? NULL : err);
    return r < 0 ? r : k;
}
