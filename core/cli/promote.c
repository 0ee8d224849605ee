/*
 * bridle promote: what a run changed in its copy of a workspace, shown, asked about, and brought
 * back. The comparison and the change itself are made by bridle-promote; this renders them. Names
 * and contents are hostile, and reach the terminal escaped.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/view_priv.h"
#include "promote/promote.h"

static const char *type_name(uint8_t type)
{
    return type == 'f' ? "file" : type == 'd' ? "directory" : type == 'l' ? "link" : "special file";
}

static void put_surface(struct br_cli_view *v, uint32_t surface)
{
    const char *sep = "runs?  ";
    if (!surface)
        return;
    br_buf_printf(&v->out, "    ");
    view_style_on(v, VIEW_YELLOW);
    for (unsigned i = 0; i < BR_SURFACES; i++)
        if (surface & 1u << i) {
            br_buf_printf(&v->out, "%s%s", sep, br_surface_names[i]);
            sep = ", ";
        }
    view_style_off(v, VIEW_YELLOW);
    br_buf_printf(&v->out, "\n");
}

static void put_head(struct br_cli_view *v, const struct br_promote_row *w)
{
    enum view_style style = w->kind == '+' ? VIEW_GREEN : w->kind == '-' ? VIEW_RED : VIEW_YELLOW;
    view_word(v, style, w->kind == '+' ? "added" : w->kind == '-' ? "removed" : "changed", 9);
    br_cli_put_line(&v->out, w->path, strlen(w->path), BR_PATH_MAX);
    bool both = w->old_type && w->new_type;
    if (both && w->old_type != w->new_type)
        br_buf_printf(&v->out, "  (a %s becomes a %s)", type_name(w->old_type),
                      type_name(w->new_type));
    else if ((w->new_type ? w->new_type : w->old_type) != 'f')
        br_buf_printf(&v->out, "  (%s)", type_name(w->new_type ? w->new_type : w->old_type));
    if (both && w->new_type != 'l' && (w->old_mode & 0777) != w->new_mode)
        br_buf_printf(&v->out, "  mode %04o becomes %04o", (unsigned)w->old_mode & 0777,
                      (unsigned)w->new_mode);
    br_buf_printf(&v->out, "\n");
}

/* The diff was made safe to show where it was made; it is not believed. */
static void put_diff(struct br_cli_view *v, const char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t len = end ? (size_t)(end - (text + at)) : n - at;
        enum view_style style = text[at] == '+'   ? VIEW_GREEN
                                : text[at] == '-' ? VIEW_RED
                                                  : VIEW_DIM;
        br_buf_printf(&v->out, "    ");
        view_style_on(v, style);
        br_buf_put_visible(&v->out, text + at, len, true);
        view_style_off(v, style);
        br_buf_printf(&v->out, "\n");
        at += len + 1;
    }
}

void br_cli_promote_row(struct br_cli_view *v, const struct br_promote_row *w,
                        const struct br_buf *diff)
{
    put_head(v, w);
    if (w->state) {
        br_buf_printf(&v->out, "    ");
        view_style_on(v, VIEW_RED);
        br_buf_printf(&v->out, "%s: ", w->state == BR_CHANGE_CONFLICT ? "conflict" : "refused");
        br_cli_put_line(&v->out, w->why, strlen(w->why), sizeof(w->why));
        view_style_off(v, VIEW_RED);
        br_buf_printf(&v->out, "\n");
    }
    put_surface(v, w->surface);
    if (diff->len)
        put_diff(v, (const char *)diff->data, diff->len);
}

/* {"change": "added", ...}, one a line */
void br_cli_promote_row_json(struct br_buf *b, const struct br_promote_row *w,
                             const struct br_buf *diff)
{
    static const char *const states[] = {"ok", "conflict", "refused"};
    const char *sep = "";
    BR_CLEANUP_BUF struct br_buf path = BR_BUF_INIT(8 * BR_PATH_MAX);
    br_buf_put_visible(&path, w->path, strlen(w->path), true);
    br_buf_printf(b, "{\"change\":\"%s\",\"path\":",
                  w->kind == '+'   ? "added"
                  : w->kind == '-' ? "removed"
                                   : "modified");
    br_buf_put_json_str(b, (const char *)path.data, path.len);
    if (w->old_type)
        br_buf_printf(b, ",\"old\":{\"type\":\"%s\",\"mode\":\"%04o\",\"size\":%llu}",
                      type_name(w->old_type), (unsigned)w->old_mode,
                      (unsigned long long)w->old_size);
    if (w->new_type)
        br_buf_printf(b, ",\"new\":{\"type\":\"%s\",\"mode\":\"%04o\",\"size\":%llu}",
                      type_name(w->new_type), (unsigned)w->new_mode,
                      (unsigned long long)w->new_size);
    br_buf_printf(b, ",\"state\":\"%s\"", states[w->state % 3]);
    if (w->state) {
        br_buf_printf(b, ",\"why\":");
        br_buf_put_json_str(b, w->why, strlen(w->why));
    }
    br_buf_printf(b, ",\"surface\":[");
    for (unsigned i = 0; i < BR_SURFACES; i++)
        if (w->surface & 1u << i) {
            br_buf_printf(b, "%s\"%s\"", sep, br_surface_names[i]);
            sep = ",";
        }
    br_buf_printf(b, "]");
    if (diff->len) {
        br_buf_printf(b, ",\"diff\":");
        br_buf_put_json_str(b, (const char *)diff->data, diff->len);
    }
    br_buf_printf(b, "}\n");
}

void br_cli_promote_plan(struct br_cli_view *v, const struct br_cli_promotion *p)
{
    static const char *const recovered[] = {
        "", "What was interrupted is complete now: the run is promoted.\n",
        "What was interrupted was taken back: nothing of it is in the workspace.\n"};
    if (p->changes || p->recovered == 0) {
        if (p->changes)
            br_buf_printf(&v->out, "\n%u change%s of ", p->changes, p->changes == 1 ? "" : "s");
        else
            br_buf_printf(&v->out, "nothing is left to promote of ");
        br_cli_put_line(&v->out, p->run_id, strlen(p->run_id), BR_ID_MAX);
        br_buf_printf(&v->out, " to ");
        br_cli_put_line(&v->out, p->workspace, strlen(p->workspace), BR_PATH_MAX);
        if (p->conflicts || p->refused)
            br_buf_printf(&v->out, ", %u in conflict, %u refused", p->conflicts, p->refused);
        if (p->skipped)
            br_buf_printf(&v->out, ", %u left out", p->skipped);
        br_buf_printf(&v->out, "\n");
    }
    br_buf_printf(&v->out, "%s", recovered[p->recovered % 3]);
}

int br_cli_promote(const struct br_cli_args *a)
{
    struct br_err err = {.code = BR_OK};
    char *argv[2 * BR_CLI_MANY_MAX + 8];
    unsigned n = 0;
    bool yes = br_cli_opt(a, "yes"), dry = br_cli_opt(a, "dry-run");
    argv[n++] = a->operands[0];
    if (yes && dry) {
        (void)br_err_set(&err, BR_E_USAGE,
                         "--yes and --dry-run do not go together; nothing was promoted");
        return br_cli_fail(&err);
    }
    if (br_cli_opt(a, "git"))
        argv[n++] = (char *)(uintptr_t) "--git";
    if (dry)
        argv[n++] = (char *)(uintptr_t) "--dry-run";
    if (br_cli_opt(a, "recover"))
        argv[n++] = (char *)(uintptr_t) "--recover";
    for (unsigned i = 0; i < a->nmany; i++) {
        argv[n++] = (char *)(uintptr_t) "--skip";
        argv[n++] = (char *)(uintptr_t)a->many[i];
    }
    struct br_cli_foreground f = {.mode = BR_RUN_PROMOTE,
                                  .args = a,
                                  .dir = "/",
                                  .argv = argv,
                                  .argc = n,
                                  .json = br_cli_opt(a, "json") != NULL,
                                  .yes = yes};
    return br_cli_foreground(&f);
}

void br_cli_promote_receipt(struct br_cli_view *v, const json_t *data)
{
    size_t n, i;
    const json_t *surface = json_object_get(data, "surface"), *one;
    const char *run = view_str(data, "runId", &n);
    br_buf_printf(&v->out, "\n");
    const char *status = view_str(data, "status", &i);
    view_word(v, strcmp(status, "refused") == 0 ? VIEW_RED : VIEW_GREEN, status, 10);
    br_cli_put_line(&v->out, run, n, BR_ID_MAX);
    br_buf_printf(&v->out, ": %llu added, %llu changed, %llu removed, %llu left out\n",
                  (unsigned long long)view_u64(data, "added"),
                  (unsigned long long)view_u64(data, "modified"),
                  (unsigned long long)view_u64(data, "removed"),
                  (unsigned long long)view_u64(data, "skipped"));
    json_array_foreach(surface, i, one)
    {
        const char *text = view_str(one, "change", &n);
        br_buf_printf(&v->out, "  runs?  ");
        br_cli_put_line(&v->out, text, n, v->width > 20 ? v->width - 10 : 20);
        br_buf_printf(&v->out, "\n");
    }
    if (view_u64(data, "surfaceMore"))
        br_buf_printf(&v->out, "  and %llu more\n",
                      (unsigned long long)view_u64(data, "surfaceMore"));
}
