/*
 * The mount table of a sandbox: parsed, compared with what is wanted, written into the receipt.
 * Called by the launcher, which reads it of a process that cannot act yet. Trusts the kernel's
 * format (proc(5), "mountinfo"); targets below a workspace are somebody else's names.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sandbox/mounts.h"
#include "sandbox/rootfs.h"

#define TEXT_MAX (2u * 1024 * 1024)

static const struct {
    const char *name;
    unsigned flag;
} flag_names[] = {
    {"ro", BR_MNT_RO},         {"nosuid", BR_MNT_NOSUID},     {"nodev", BR_MNT_NODEV},
    {"noexec", BR_MNT_NOEXEC}, {"idmapped", BR_MNT_IDMAPPED}, {"shared", BR_MNT_SHARED},
    {"slave", BR_MNT_SLAVE},
};

/* ---- reading ---- */

/* The next word of a line, ended; NULL at its end. */
static char *word(char **p)
{
    char *w = *p;
    if (!w || !*w)
        return NULL;
    char *blank = strchr(w, ' ');
    if (blank)
        *blank++ = 0;
    *p = blank;
    return w;
}

static unsigned parse_flags(const char *opts)
{
    unsigned flags = 0;
    for (const char *p = opts; *p;) {
        size_t n = strcspn(p, ",");
        for (unsigned i = 0; i < BR_ARRAY_LEN(flag_names); i++)
            if (strlen(flag_names[i].name) == n && memcmp(p, flag_names[i].name, n) == 0)
                flags |= flag_names[i].flag;
        p += n + (p[n] == ',');
    }
    return flags;
}

/* "size=1024k" or "nr_inodes=32" in the options of a tmpfs. */
static uint64_t option(const char *opts, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = opts; *p;) {
        if (strncmp(p, name, n) == 0 && p[n] == '=') {
            char *end;
            uint64_t v = strtoull(p + n + 1, &end, 10);
            return *end == 'k' ? v * 1024 : v;
        }
        p += strcspn(p, ",");
        p += *p == ',';
    }
    return 0;
}

static bool parse_line(char *line, struct br_mount *m)
{
    char *p = line, *w, *opts, *super;
    *m = (struct br_mount){.id = strtoull(p, NULL, 10)};
    (void)word(&p);
    (void)word(&p);
    m->dev = word(&p);
    m->root = word(&p);
    m->target = word(&p);
    opts = word(&p);
    if (!opts)
        return false;
    m->flags = parse_flags(opts);
    while ((w = word(&p)) && strcmp(w, "-") != 0)
        m->flags |= strncmp(w, "shared:", 7) == 0   ? BR_MNT_SHARED
                    : strncmp(w, "master:", 7) == 0 ? BR_MNT_SLAVE
                                                    : 0;
    m->type = word(&p);
    (void)word(&p);
    super = word(&p);
    if (!super)
        return false;
    if (strcmp(m->type, "tmpfs") == 0) {
        m->bytes = option(super, "size");
        m->inodes = option(super, "nr_inodes");
    }
    return true;
}

static int parse(struct br_mounts *m, struct br_err *err)
{
    char *text = (char *)m->text.data, *save = NULL;
    unsigned lines = 0;
    for (const char *p = text; (p = strchr(p, '\n')); p++)
        lines++;
    if (lines > BR_MOUNTS_MAX)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                          "there are %u mounts, more than %u; nothing was started. Choose a "
                          "workspace with fewer mounts below it",
                          lines, BR_MOUNTS_MAX);
    m->list = calloc(lines ? lines : 1, sizeof(*m->list));
    if (!m->list)
        return br_err_set(err, BR_E_NOMEM, "no memory for a mount table");
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if (m->n == lines || !parse_line(line, &m->list[m->n++]))
            return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                              "the mount table of the kernel is not understood; nothing was "
                              "started");
    return 0;
}

int br_mounts_read(struct br_mounts *m, const char *who, struct br_err *err)
{
    char path[64];
    *m = (struct br_mounts){.text = BR_BUF_INIT(TEXT_MAX)};
    snprintf(path, sizeof(path), "/proc/%s/mountinfo", who);
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "'%s' could not be read; nothing was started", path);
    int r = br_read_all(fd, &m->text, path, err);
    if (r == 0 && !br_buf_cstr(&m->text))
        r = br_err_set(err, BR_E_NOMEM, "no memory for a mount table");
    return r < 0 ? r : parse(m, err);
}

void br_mounts_below(struct br_mounts *m, const char *point)
{
    size_t n = strlen(point), kept = 0;
    for (unsigned i = 0; i < m->n; i++) {
        struct br_mount e = m->list[i];
        if (strncmp(e.target, point, n) != 0 || (e.target[n] && e.target[n] != '/'))
            continue;
        e.target = e.target[n] ? e.target + n : "/";
        /* what was mounted at the same place before, or below it, is covered */
        if (strcmp(e.target, "/") == 0)
            kept = 0;
        m->list[kept++] = e;
    }
    m->n = (unsigned)kept;
}

static int by_target(const void *a, const void *b)
{
    const struct br_mount *x = a, *y = b;
    int r = strcmp(x->target, y->target);
    return r ? r : x->target < y->target ? -1 : x->target > y->target;
}

void br_mounts_sort(struct br_mounts *m)
{
    qsort(m->list, m->n, sizeof(*m->list), by_target);
}

void br_mounts_free(struct br_mounts *m)
{
    free(m->list);
    br_buf_free(&m->text);
    *m = (struct br_mounts){.n = 0};
}

/* ---- what is wanted ---- */

/* In the kernel's spelling; NULL without memory. */
static char *spell(const char *src)
{
    size_t n = strlen(src), at = 0;
    char *dst = malloc(4 * n + 1);
    for (size_t i = 0; dst && i < n; i++) {
        if (src[i] == ' ' || src[i] == '\t' || src[i] == '\n' || src[i] == '\\')
            at += (size_t)sprintf(dst + at, "\\%03o", (unsigned char)src[i]);
        else
            dst[at++] = src[i];
    }
    if (dst)
        dst[at] = 0;
    return dst;
}

static struct br_mount_want *add(struct br_mount_wants *w)
{
    static struct br_mount_want none;
    if (w->n == w->cap) {
        unsigned cap = w->cap ? w->cap * 2 : 64;
        struct br_mount_want *p = reallocarray(w->list, cap, sizeof(*p));
        if (!p) {
            w->failed = true;
            return &none;
        }
        w->list = p;
        w->cap = cap;
    }
    w->list[w->n] = (struct br_mount_want){.kind = BR_WANT_ONE};
    return &w->list[w->n++];
}

struct br_mount_want *br_want(struct br_mount_wants *w, const char *target, unsigned must,
                              unsigned may)
{
    char *own = spell(target);
    struct br_mount_want *e = add(w);
    if (!own || w->failed) {
        free(own);
        own = NULL;
        w->failed = true;
    }
    e->target = e->own = own;
    e->must = must;
    e->may = may;
    return e;
}

void br_want_root(struct br_mount_wants *w, const struct br_mounts *root)
{
    for (unsigned i = 0; i < root->n; i++) {
        struct br_mount_want *e = add(w);
        e->target = root->list[i].target;
        e->must = root->list[i].flags;
        e->same = &root->list[i];
    }
}

void br_wants_free(struct br_mount_wants *w)
{
    for (unsigned i = 0; i < w->n; i++)
        free(w->list[i].own);
    free(w->list);
    *w = (struct br_mount_wants){.n = 0};
}

/* ---- comparing ---- */

static void put_flags(char *dst, size_t cap, unsigned flags)
{
    size_t at = 0;
    for (unsigned i = 0; i < BR_ARRAY_LEN(flag_names); i++) {
        size_t n = strlen(flag_names[i].name);
        if (!(flags & flag_names[i].flag) || at + n + 2 > cap)
            continue;
        if (at)
            dst[at++] = ',';
        memcpy(dst + at, flag_names[i].name, n);
        at += n;
    }
    dst[at] = 0;
    if (!at)
        snprintf(dst, cap, "none");
}

static int differs(struct br_err *err, const char *target, const char *how)
{
    return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                      "the sandbox was measured and is not what was planned: the mount '%.512s' "
                      "%s; nothing was started",
                      target, how);
}

static bool below(const char *target, const char *dir)
{
    size_t n = strlen(dir);
    return strncmp(target, dir, n) == 0 && target[n] == '/';
}

static int by_wanted_target(const void *a, const void *b)
{
    const struct br_mount_want *x = a, *y = b;
    return strcmp(x->target, y->target);
}

/* Both lists are sorted: the search goes on where it has found the last one. */
static struct br_mount_want *find(struct br_mount_wants *w, const struct br_mount *m)
{
    struct br_mount_want *dir = NULL;
    for (unsigned k = 0, i = w->next; k < w->n; k++, i++) {
        struct br_mount_want *e = &w->list[i < w->n ? i : (i = 0)];
        if (e->kind == BR_WANT_BELOW) {
            if (below(m->target, e->target))
                dir = e;
        } else if (!e->seen && strcmp(e->target, m->target) == 0) {
            w->next = i + 1;
            return e;
        }
    }
    return dir;
}

static uint64_t pages(uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static int compare_one(const struct br_mount *m, const struct br_mount_want *e, struct br_err *err)
{
    char how[256], got[64], want[64];
    if ((m->flags & e->must) != e->must || m->flags & ~(e->must | e->may)) {
        put_flags(got, sizeof(got), m->flags);
        put_flags(want, sizeof(want), e->must);
        snprintf(how, sizeof(how), "has the flags %s, not %s", got, want);
        return differs(err, m->target, how);
    }
    if (e->type && strcmp(m->type, e->type) != 0) {
        snprintf(how, sizeof(how), "is a %.32s, not a %.32s", m->type, e->type);
        return differs(err, m->target, how);
    }
    if (e->same && (strcmp(m->dev, e->same->dev) != 0 || strcmp(m->root, e->same->root) != 0 ||
                    strcmp(m->type, e->same->type) != 0))
        return differs(err, m->target, "is not the one that was prepared");
    if ((e->bytes && m->bytes != pages(e->bytes)) || (e->inodes && m->inodes != e->inodes)) {
        snprintf(how, sizeof(how),
                 "holds %" PRIu64 " bytes and %" PRIu64 " inodes, not %" PRIu64 " and %" PRIu64,
                 m->bytes, m->inodes, pages(e->bytes), e->inodes);
        return differs(err, m->target, how);
    }
    return 0;
}

/*
 * A mount of the workspace that is not at its place: the host has renamed or removed the name that
 * it was mounted on. It is still the planned object, but not where it was planned.
 */
static int find_moved(const struct br_mounts *m, const struct br_mount_wants *w, struct br_err *err)
{
    for (unsigned k = 0; k < w->n; k++) {
        const struct br_mount_want *e = &w->list[k];
        bool there = e->kind != BR_WANT_ONE || !below(e->target, BR_BOX_WORKSPACE);
        for (unsigned i = 0; i < m->n && !there; i++)
            there = strcmp(m->list[i].target, e->target) == 0;
        if (!there)
            return br_err_set(err, BR_E_INVALID_ALLOWED_PATH,
                              "'%.512s' was moved or removed while the sandbox was being made; "
                              "nothing was started. Start again when nothing else changes the "
                              "workspace",
                              e->target);
    }
    return 0;
}

int br_mounts_compare(const struct br_mounts *m, struct br_mount_wants *w, struct br_err *err)
{
    if (w->failed)
        return br_err_set(err, BR_E_NOMEM, "no memory for a mount table");
    for (unsigned i = 0; i < w->n; i++)
        w->list[i].seen = 0;
    w->next = 0;
    int r = find_moved(m, w, err);
    if (r < 0)
        return r;
    qsort(w->list, w->n, sizeof(*w->list), by_wanted_target);
    for (unsigned i = 0; i < m->n; i++) {
        struct br_mount_want *e = find(w, &m->list[i]);
        if (!e)
            return differs(err, m->list[i].target, "was not planned");
        e->seen++;
        r = compare_one(&m->list[i], e, err);
        if (r < 0)
            return r;
    }
    for (unsigned i = 0; i < w->n; i++)
        if (w->list[i].kind == BR_WANT_ONE && !w->list[i].seen)
            return differs(err, w->list[i].target, "is missing");
    return 0;
}

/* ---- the receipt ---- */

static void put(struct br_buf *out, const char *text)
{
    (void)br_buf_put(out, text, strlen(text));
}

void br_mounts_put(struct br_buf *out, const struct br_mounts *m)
{
    put(out, "[");
    for (unsigned i = 0; i < m->n; i++) {
        const struct br_mount *e = &m->list[i];
        char flags[64];
        put_flags(flags, sizeof(flags), e->flags);
        put(out, i ? ",{\"target\":" : "{\"target\":");
        br_buf_put_json_str(out, e->target, strlen(e->target));
        put(out, ",\"type\":\"");
        (void)br_buf_put(out, e->type, strnlen(e->type, 32));
        put(out, "\",\"flags\":\"");
        put(out, e->flags ? flags : "");
        put(out, "\"");
        if (e->bytes)
            br_buf_printf(out, ",\"bytes\":%" PRIu64, e->bytes);
        if (e->inodes)
            br_buf_printf(out, ",\"inodes\":%" PRIu64, e->inodes);
        put(out, "}");
    }
    put(out, "]");
}
