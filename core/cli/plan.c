/*
 * bridle plan: what `bridle exec` with the same arguments would start, and what it would decide, or
 * the refusal that it would end with. The session's report is shown as it is, or for people. The
 * same look at one report serves `bridle activate`.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/view_priv.h"

#define LABEL_WIDTH 14u

static void put_line(struct br_cli_view *v, const char *label, const struct br_buf *text)
{
    if (text->len && !text->failed)
        view_labeled(v, label, LABEL_WIDTH, (const char *)text->data, text->len, 40);
}

static void put_value(struct br_buf *b, const json_t *value)
{
    size_t i;
    json_t *e;
    if (json_is_string(value))
        br_buf_put(b, json_string_value(value), json_string_length(value));
    else if (json_is_integer(value))
        br_buf_printf(b, "%lld", (long long)json_integer_value(value));
    else if (json_is_boolean(value))
        br_buf_printf(b, json_is_true(value) ? "yes" : "no");
    else if (json_is_array(value))
        json_array_foreach((json_t *)(uintptr_t)value, i, e)
        {
            br_buf_printf(b, i ? "," : "");
            put_value(b, e);
        }
}

/* A format in which %X stands for the member X of the object (one word of letters). */
static void put_members(struct br_cli_view *v, const char *label, const json_t *o,
                        const char *const *parts)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_VIEW_MAX);
    if (!json_is_object(o))
        return;
    for (; *parts; parts++) {
        if (**parts == '%')
            put_value(&b, json_object_get(o, *parts + 1));
        else
            br_buf_put(&b, *parts, strlen(*parts));
    }
    put_line(v, label, &b);
}

#define MEMBERS(...)                                                                               \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static void put_limits(struct br_cli_view *v, const json_t *l)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
    if (!json_is_object(l))
        return;
    br_buf_printf(&b, "memory ");
    view_put_bytes(&b, view_u64(l, "memoryBytes"));
    br_buf_printf(&b, ", %llu processes, %llu%% CPU, %llu descriptors, files ",
                  (unsigned long long)view_u64(l, "pids"),
                  (unsigned long long)view_u64(l, "cpuPercent"),
                  (unsigned long long)view_u64(l, "nofile"));
    view_put_bytes(&b, view_u64(l, "fsizeBytes"));
    br_buf_printf(&b, ", /tmp and home ");
    view_put_bytes(&b, view_u64(l, "tmpBytes"));
    br_buf_printf(&b, " and %llu inodes each, output ",
                  (unsigned long long)view_u64(l, "tmpInodes"));
    view_put_bytes(&b, view_u64(l, "outputBytes"));
    br_buf_printf(&b, ", one command %llu s, the run %llu s",
                  (unsigned long long)view_u64(l, "execSeconds"),
                  (unsigned long long)view_u64(l, "wallSeconds"));
    put_line(v, "  limits", &b);
}

static void put_identity(struct br_cli_view *v, const json_t *id)
{
    bool mapped = json_is_true(json_object_get(id, "idmapped"));
    put_members(v, "  identity", id,
                MEMBERS("%kind", "; uid 1000 inside, uid ", "%uid", ":", "%gid", " outside",
                        mapped ? ", workspace mapped" : ""));
}

static void put_each(struct br_cli_view *v, const char *label, const json_t *list,
                     const char *const *parts)
{
    size_t i;
    json_t *e;
    json_array_foreach((json_t *)(uintptr_t)list, i, e) put_members(v, i ? "" : label, e, parts);
}

static void put_argv(struct br_cli_view *v, const json_t *argv)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_VIEW_MAX);
    size_t i;
    json_t *e;
    json_array_foreach((json_t *)(uintptr_t)argv, i, e)
    {
        br_buf_printf(&b, i ? " " : "");
        put_value(&b, e);
    }
    put_line(v, "  command", &b);
}

static void put_plan(struct br_cli_view *v, const json_t *report)
{
    const json_t *p = json_object_get(report, "plan");
    put_members(v, "  profile", json_object_get(report, "profile"),
                MEMBERS("%name", ", version ", "%version", ", sha256 ", "%sha256"));
    if (json_object_get(report, "activated"))
        put_members(v, "  activated", report, MEMBERS("%activated"));
    put_members(v, "  backend", p, MEMBERS("%backend"));
    put_members(v, "  image", p, MEMBERS("%image", ", assurance: ", "%imageAssurance"));
    put_identity(v, json_object_get(p, "identity"));
    put_members(v, "  network", p, MEMBERS("%network"));
    put_limits(v, json_object_get(p, "limits"));
    put_each(v, "  leases", json_object_get(p, "leases"),
             MEMBERS("%target", "  ", "%kind", ", ", "%bytes", " bytes, ", "%inodes", " inodes"));
    put_each(v, "  mounts", json_object_get(p, "mounts"),
             MEMBERS("%target", "  ", "%flags", "  ", "%type", "  ", "%source"));
    put_members(
        v, "  seccomp", json_object_get(p, "seccomp"),
        MEMBERS("table ", "%table", ", ", "%instructions", " instructions, filter ", "%filter"));
    put_members(v, "  landlock", json_object_get(p, "landlock"),
                MEMBERS("required: ", "%required", ", ABI ", "%abi"));
    put_each(v, "  cgroups", json_object_get(p, "cgroups"),
             MEMBERS("version ", "%version", ", ", "%controllers", ", below ", "%below"));
    put_argv(v, json_object_get(p, "argv"));
    put_each(v, "  may write", json_object_get(p, "allowedPaths"),
             MEMBERS("%path", "  ", "%type", ", device ", "%device", ", inode ", "%inode",
                     ", mode ", "%mode", ", owner ", "%uid", ":", "%gid", ", ", "%entries",
                     " entries"));
    put_members(v, "  policy", json_object_get(report, "table"),
                MEMBERS("%rules", " rules, table ", "%sha256"));
    put_members(v, "  decision", json_object_get(report, "decision"),
                MEMBERS("%effect", "  ", "%action", "  ", "%subject", "  (", "%ruleId", ")"));
}

void br_cli_report_put(struct br_cli_view *v, const char *title, const json_t *report)
{
    bool ok = json_is_true(json_object_get(report, "ok"));
    br_buf_printf(&v->out, "%s: ", title);
    view_word(v, ok ? VIEW_GREEN : VIEW_RED, ok ? "possible" : "refused", 0);
    br_buf_printf(&v->out, "\n");
    put_plan(v, report);
    size_t i;
    json_t *w;
    json_array_foreach(json_object_get(report, "warnings"), i, w) view_labeled(
        v, i ? "" : "  warning", LABEL_WIDTH, json_string_value(w), json_string_length(w), 8);
    put_members(v, "  refusal", json_object_get(report, "refusal"),
                MEMBERS("%code", " (exit ", "%exitCode", "): ", "%text"));
}

/* ---- the report of a run that starts nothing, or nothing for long ---------------------------- */

static int on_report(void *ctx, const char *text, size_t n)
{
    struct br_cli_report *rep = ctx;
    rep->report = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    return br_buf_put(&rep->text, text, n) < 0 ? -BR_E_NOMEM : 0;
}

static const struct br_cli_hooks hooks = {.report = on_report};

int br_cli_report_get(const struct br_cli_foreground *f, struct br_cli_report *rep,
                      struct br_err *err)
{
    struct br_cli_documents d;
    struct br_cli_client c;
    memset(rep, 0, sizeof(*rep));
    br_buf_init(&rep->text, BR_VIEW_MAX);
    int r = br_cli_documents_read(f, &d, err);
    if (r == 0) {
        r = br_cli_client_open(&c, &hooks, rep, err);
        if (r == 0)
            r = br_cli_documents_send(f, &d, false, &c, err);
        if (r == 0)
            r = br_cli_client_wait(&c, err);
        rep->exit_code = r == 0 ? (int)c.exit_code : br_code_exit(r);
        if (r == 0 && c.code)
            r = br_err_set(err, c.code, "%s", c.text);
        br_cli_client_close(&c);
    } else {
        rep->exit_code = br_code_exit(r);
    }
    br_cli_documents_free(&d);
    if (r < 0 && !rep->report) {
        rep->report = json_pack("{s:b, s:{s:s, s:s, s:i}}", "ok", 0, "refusal", "code",
                                br_code_name(r), "text", err->text, "exitCode", rep->exit_code);
        BR_CLEANUP_FREE char *text = json_dumps(rep->report, JSON_COMPACT);
        br_buf_put(&rep->text, text ? text : "{}", text ? strlen(text) : 2);
    }
    return r;
}

void br_cli_report_free(struct br_cli_report *rep)
{
    json_decref(rep->report);
    br_buf_free(&rep->text);
}

int br_cli_report_json(const struct br_cli_report *rep)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_VIEW_MAX);
    if (isatty(STDOUT_FILENO) == 1)
        br_cli_put_json_safe(&b, (char *)rep->text.data, rep->text.len);
    else
        br_buf_put(&b, rep->text.data, rep->text.len);
    br_buf_put_u8(&b, '\n');
    return br_write_all(STDOUT_FILENO, b.data, b.len) < 0 ? br_cli_lost_output(errno) : 0;
}

/* ---- the verb ------------------------------------------------------------------------------- */

static int check_backend(const char *backend, struct br_err *err)
{
    for (unsigned i = 1; backend && br_backend_names[i]; i++)
        if (strcmp(backend, br_backend_names[i]) == 0)
            return 0;
    return backend ? br_err_set(err, BR_E_USAGE,
                                "there is no backend '%.40s'; there are native, bwrap and docker",
                                backend)
                   : 0;
}

int br_cli_plan(const struct br_cli_args *a)
{
    struct br_err err = {.code = BR_OK};
    struct br_cli_report rep;
    bool json = br_cli_opt(a, "json") != NULL;
    if (check_backend(br_cli_opt(a, "backend"), &err) < 0)
        return br_cli_fail(&err);
    if (a->ntail > BR_EXEC_ARGS_MAX) {
        (void)br_err_set(&err, BR_E_USAGE, "the command has %u words, more than %u", a->ntail,
                         BR_EXEC_ARGS_MAX);
        return br_cli_fail(&err);
    }
    struct br_cli_foreground f = {.mode = BR_RUN_PLAN,
                                  .args = a,
                                  .dir = br_cli_opt(a, "dir"),
                                  .manifest = a->operands[0],
                                  .argv = a->tail,
                                  .argc = a->ntail,
                                  .json = json};
    int r = br_cli_report_get(&f, &rep, &err), lost = 0;
    if (json) {
        lost = br_cli_report_json(&rep);
    } else {
        struct br_cli_term t;
        struct br_cli_view v;
        br_cli_term_init(&t, STDIN_FILENO, STDOUT_FILENO);
        br_cli_view_init(&v, t.colour, t.width);
        br_cli_report_put(&v, "plan", rep.report);
        if (br_write_all(STDOUT_FILENO, v.out.data, v.out.len) < 0)
            lost = br_cli_lost_output(errno);
        br_cli_view_free(&v);
    }
    int code = rep.exit_code;
    if (r < 0)
        (void)br_cli_fail(&err);
    br_cli_report_free(&rep);
    return lost ? lost : code;
}
