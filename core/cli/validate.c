/*
 * bridle validate: compile a manifest with the policy, as a run would, and say what came out. The
 * report is what the session made of it; nothing is started and nothing is recorded.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/view_priv.h"

struct validation {
    bool json, seen;
    int lost; /* errno of output that could not be written */
    const char *manifest;
    struct br_cli_view view; /* for its ways of writing text */
};

#define LABEL_WIDTH 15u

static void put_list(struct br_cli_view *v, const char *label, const json_t *list)
{
    size_t i;
    json_t *e;
    json_array_foreach(list, i, e)
    {
        const char *s = json_string_value(e);
        view_labeled(v, i ? "" : label, LABEL_WIDTH, s ? s : "?", s ? json_string_length(e) : 1, 8);
    }
}

static void put_member(struct br_cli_view *v, const char *label, const json_t *o, const char *key)
{
    size_t n;
    const char *s = view_str(o, key, &n);
    if (n)
        view_labeled(v, label, LABEL_WIDTH, s, n, 8);
}

static void put_report(struct validation *val, const json_t *report)
{
    struct br_cli_view *v = &val->view;
    const json_t *m = json_object_get(report, "manifest");
    bool ok = json_is_true(json_object_get(report, "ok"));
    br_cli_put_line(&v->out, val->manifest, strlen(val->manifest), v->width - 12);
    br_buf_printf(&v->out, ": ");
    view_word(v, ok ? VIEW_GREEN : VIEW_RED, ok ? "valid" : "not valid", 0);
    br_buf_printf(&v->out, "\n");
    put_member(v, "  id", m, "id");
    put_member(v, "  title", m, "title");
    put_member(v, "  goal", m, "goal");
    put_list(v, "  may write", json_object_get(m, "allowed_paths"));
    put_list(v, "  acceptance", json_object_get(m, "acceptance"));
    if (json_object_get(report, "rules"))
        br_buf_printf(&v->out, "  %-13s%llu\n", "rules",
                      (unsigned long long)view_u64(report, "rules"));
    put_list(v, "  warning", json_object_get(report, "warnings"));
}

static int on_report(void *ctx, const char *text, size_t n)
{
    struct validation *val = ctx;
    val->seen = true;
    if (val->json) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_VIEW_MAX);
        if (isatty(STDOUT_FILENO) == 1)
            br_cli_put_json_safe(&b, text, n);
        else
            br_buf_put(&b, text, n);
        br_buf_put_u8(&b, '\n');
        val->lost = br_write_all(STDOUT_FILENO, b.data, b.len) < 0 ? errno : 0;
        return 0;
    }
    json_t *report = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    put_report(val, report);
    json_decref(report);
    int r = br_write_all(STDOUT_FILENO, val->view.out.data, val->view.out.len);
    val->lost = r < 0 ? errno : 0;
    return 0;
}

static const struct br_cli_hooks hooks = {.report = on_report};

int br_cli_validate(const struct br_cli_args *a)
{
    struct br_err err = {.code = BR_OK};
    struct br_cli_documents d;
    struct br_cli_client c;
    struct br_cli_term t;
    struct validation val = {.json = br_cli_opt(a, "json") != NULL, .manifest = a->operands[0]};
    struct br_cli_foreground f = {.mode = BR_RUN_VALIDATE,
                                  .args = a,
                                  .dir = br_cli_opt(a, "dir"),
                                  .manifest = a->operands[0]};
    if (br_cli_documents_read(&f, &d, &err) < 0) {
        br_cli_documents_free(&d);
        return br_cli_fail(&err);
    }
    br_cli_term_init(&t, STDIN_FILENO, STDOUT_FILENO);
    br_cli_view_init(&val.view, t.colour, t.width);
    int r = br_cli_client_open(&c, &hooks, &val, &err);
    if (r == 0)
        r = br_cli_documents_send(&f, &d, false, &c, &err);
    if (r == 0)
        r = br_cli_client_wait(&c, &err);
    int code = r == 0 ? (int)c.exit_code : -1;
    if (r == 0 && c.code)
        (void)br_err_set(&err, c.code, "%s", c.text);
    br_cli_client_close(&c);
    if (err.code) {
        int failed = br_cli_fail(&err);
        code = code >= 0 ? code : failed;
    }
    if (val.lost)
        code = br_cli_lost_output(val.lost);
    br_cli_view_free(&val.view);
    br_cli_documents_free(&d);
    return code;
}
