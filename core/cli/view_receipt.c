/*
 * The isolation receipt of a run, for people: what its sandbox was measured to be. Shown by `bridle
 * show RUN`; `--json` gives the stored event as it is. The receipt is a stored event, so that its
 * texts are shown like anybody's.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/view_priv.h"
#include "session/isolation.h"

#define LABEL_WIDTH 13u

/* A row is put together raw, and made visible and cut to the width as a whole. */
struct row {
    struct br_cli_view *v;
    struct br_buf text;
};

static void row_begin(struct row *w, struct br_cli_view *v)
{
    *w = (struct row){.v = v, .text = BR_BUF_INIT(BR_VIEW_MAX)};
}

static void row_end(struct row *w, const char *label)
{
    view_word(w->v, VIEW_DIM, label, LABEL_WIDTH + 2);
    br_cli_put_line(&w->v->out, (const char *)w->text.data, w->text.len,
                    w->v->width - LABEL_WIDTH - 2);
    br_buf_printf(&w->v->out, "\n");
    br_buf_free(&w->text);
}

static void text(struct row *w, const json_t *o, const char *key, size_t max)
{
    size_t n;
    const char *s = view_str(o, key, &n);
    br_buf_put(&w->text, s, n > max ? br_utf8_floor(s, max) : n);
}

static void put_identity(struct br_cli_view *v, const json_t *r)
{
    struct row w;
    const json_t *who = json_object_get(r, "identity");
    row_begin(&w, v);
    text(&w, who, "kind", 24);
    br_buf_printf(&w.text, ", uid %llu, gid %llu outside, 1000 inside%s",
                  (unsigned long long)view_u64(who, "uid"),
                  (unsigned long long)view_u64(who, "gid"),
                  json_is_true(json_object_get(who, "idmapped")) ? ", idmapped" : "");
    row_end(&w, "    identity");
}

static void put_locks(struct br_cli_view *v, const json_t *r)
{
    struct row w;
    const json_t *filter = json_object_get(r, "seccompFilter"), *caps, *c, *init;
    const char *name;
    uint64_t all = 0;
    caps = json_object_get(r, "capabilities");
    json_object_foreach((json_t *)(uintptr_t)caps, name, c) all |= (uint64_t)json_integer_value(c);
    init = json_object_get(r, "init");
    row_begin(&w, v);
    br_buf_printf(
        &w.text, "%s, %s, filter table %llu ", caps && !all ? "no capabilities" : "CAPABILITIES",
        json_is_true(json_object_get(r, "noNewPrivs")) ? "no_new_privs" : "NO no_new_privs",
        (unsigned long long)view_u64(filter, "tableVersion"));
    text(&w, filter, "sha256", 12);
    row_end(&w, "    locks");
    unsigned long long abi = view_u64(r, "landlock");
    row_begin(&w, v);
    if (abi)
        br_buf_printf(&w.text, "Landlock ABI %llu, ", abi);
    else
        br_buf_printf(&w.text, "no Landlock, ");
    br_buf_printf(&w.text, "tried: filter %s, Landlock %s",
                  json_is_true(json_object_get(init, "filterRefuses")) ? "refuses" : "not proved",
                  json_is_true(json_object_get(init, "landlockRefuses")) ? "refuses"
                                                                         : "not proved");
    row_end(&w, "");
}

static void put_limits(struct br_cli_view *v, const json_t *r)
{
    struct row w;
    const json_t *l = json_object_get(r, "limits");
    row_begin(&w, v);
    br_buf_printf(&w.text, "memory ");
    view_put_bytes(&w.text, view_u64(l, "memoryBytes"));
    if (json_object_get(l, "swap")) /* else it is counted with memory */
        br_buf_printf(&w.text, ", no swap on this host");
    br_buf_printf(&w.text, ", %llu processes, %llu %% CPU", (unsigned long long)view_u64(l, "pids"),
                  (unsigned long long)view_u64(l, "cpuPercent"));
    row_end(&w, "    limits");
    row_begin(&w, v);
    br_buf_printf(&w.text, "%llu descriptors, files of ",
                  (unsigned long long)view_u64(l, "nofile"));
    view_put_bytes(&w.text, view_u64(l, "fsize"));
    row_end(&w, "");
}

static void put_cgroups(struct br_cli_view *v, const json_t *r)
{
    struct row w;
    const json_t *c;
    size_t i;
    json_array_foreach(json_object_get(r, "cgroups"), i, c)
    {
        row_begin(&w, v);
        br_buf_printf(&w.text, "v%llu ", (unsigned long long)view_u64(c, "version"));
        text(&w, c, "path", 512);
        row_end(&w, i ? "" : "    cgroups");
    }
}

static void put_mounts(struct br_cli_view *v, const json_t *r)
{
    struct row w;
    const json_t *m;
    size_t i;
    json_array_foreach(json_object_get(r, "mountTable"), i, m)
    {
        row_begin(&w, v);
        text(&w, m, "target", 512);
        br_buf_printf(&w.text, "  ");
        text(&w, m, "type", 12);
        br_buf_printf(&w.text, "  ");
        text(&w, m, "flags", 40);
        if (json_object_get(m, "bytes")) {
            br_buf_printf(&w.text, "  ");
            view_put_bytes(&w.text, view_u64(m, "bytes"));
            br_buf_printf(&w.text, ", %llu inodes", (unsigned long long)view_u64(m, "inodes"));
        }
        row_end(&w, i ? "" : "    mounts");
    }
}

static void put_image(struct br_cli_view *v, const json_t *r)
{
    struct row w;
    size_t n;
    const json_t *image = json_object_get(r, "image");
    const char *verified = view_str(image, "verified", &n);
    row_begin(&w, v);
    text(&w, image, "id", 7 + 12);
    br_buf_printf(&w.text, ", ");
    if (n == 0 || strcmp(verified, "not") == 0)
        br_buf_printf(&w.text, "not verified");
    else
        text(&w, image, "verified", 24);
    row_end(&w, "    image");
}

/* The quotas of disks: their mounts above say nothing of them. */
static void put_leases(struct br_cli_view *v, const json_t *r)
{
    struct row w;
    const json_t *l;
    size_t i;
    json_array_foreach(json_object_get(r, "leases"), i, l)
    {
        row_begin(&w, v);
        text(&w, l, "point", 512);
        br_buf_printf(&w.text, "  ");
        text(&w, l, "kind", 12);
        br_buf_printf(&w.text, "  ");
        view_put_bytes(&w.text, view_u64(l, "bytes"));
        br_buf_printf(&w.text, ", %llu inodes", (unsigned long long)view_u64(l, "inodes"));
        const json_t *copied = json_object_get(l, "copied");
        if (copied)
            br_buf_printf(&w.text, ", %llu files copied",
                          (unsigned long long)view_u64(copied, "files"));
        row_end(&w, i ? "" : "    leases");
    }
}

void view_receipt(struct br_cli_view *v, const json_t *data)
{
    struct row w;
    const json_t *r = json_object_get(data, "receipt");
    if (!json_is_object(r))
        return;
    row_begin(&w, v);
    br_buf_printf(&w.text, "receipt version %llu, ", (unsigned long long)view_u64(r, "version"));
    text(&w, r, "backend", 12);
    br_buf_printf(&w.text, ", sha256 ");
    text(&w, r, "sha256", 12);
    if (json_object_get(r, "sha256"))
        br_buf_printf(&w.text, br_isolation_verify(r) ? " (matches)" : " (DOES NOT MATCH)");
    row_end(&w, "  isolation");
    put_image(v, r);
    put_identity(v, r);
    put_locks(v, r);
    put_limits(v, r);
    put_cgroups(v, r);
    put_mounts(v, r);
    put_leases(v, r);
}
