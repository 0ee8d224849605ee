/*
 * bridle activate: try a profile on this host (one sandbox, /bin/true in it) and keep the evidence;
 * list and remove what was kept. The work is done by bridled and its programs; this shows it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/view_priv.h"

#define NAME_WIDTH 22u

int br_cli_activation(const struct br_cli_args *a, const char *profile, struct br_cli_report *rep,
                      struct br_err *err)
{
    struct br_cli_foreground f = {
        .mode = BR_RUN_ACTIVATE, .args = a, .profile = profile, .goal = "activate"};
    return br_cli_report_get(&f, rep, err);
}

static int activate(const struct br_cli_args *a, bool json)
{
    struct br_err err = {.code = BR_OK};
    struct br_cli_report rep;
    int r = br_cli_activation(a, a->operands[0], &rep, &err);
    const json_t *profile = json_object_get(rep.report, "profile");
    size_t n;
    const char *name = view_str(profile, "name", &n);
    int lost = 0;
    if (json) {
        lost = br_cli_report_json(&rep);
    } else if (r == 0) {
        printf("The profile '%.*s' works on this host and is activated. 'bridle run --profile "
               "%.*s' uses it.\n",
               (int)n, name, (int)n, name);
        lost = br_cli_flush();
    }
    int code = rep.exit_code;
    if (r < 0)
        (void)br_cli_fail(&err);
    br_cli_report_free(&rep);
    return lost ? lost : code;
}

/* ---- list and remove ------------------------------------------------------------------------- */

struct listing {
    bool json;
    unsigned n;
    struct br_cli_view view;
};

/* The value behind the name of a line of evidence. */
static size_t value_of(const char *text, const char *name, const char **value)
{
    size_t len = strlen(name);
    for (const char *l = text; *l; l += strcspn(l, "\n") + (l[strcspn(l, "\n")] == '\n'))
        if (strncmp(l, name, len) == 0 && l[len] == ' ') {
            *value = l + len + 1;
            return strcspn(*value, "\n");
        }
    *value = "";
    return 0;
}

void br_cli_put_activation_json(struct br_buf *b, const char *profile, uint64_t seconds,
                                const char *text)
{
    const char *sep = "";
    char when[32];
    br_time_iso(when, seconds * 1000000u);
    br_buf_printf(b, "{\"profile\":");
    br_buf_put_json_str(b, profile, strlen(profile));
    br_buf_printf(b, ",\"activatedAt\":\"%s\",\"facts\":{", when);
    for (const char *l = text; *l; l += strcspn(l, "\n") + (l[strcspn(l, "\n")] == '\n')) {
        size_t n = strcspn(l, " \n"), end = strcspn(l, "\n");
        if (*l == '#' || n == 0 || l[n] != ' ')
            continue;
        br_buf_printf(b, "%s", sep);
        br_buf_put_json_str(b, l, n);
        br_buf_printf(b, ":");
        br_buf_put_json_str(b, l + n + 1, end - n - 1);
        sep = ",";
    }
    br_buf_printf(b, "}}");
}

static int on_activated(void *ctx, const char *profile, uint64_t seconds, const char *text)
{
    struct listing *l = ctx;
    struct br_buf *b = &l->view.out;
    char when[32];
    const char *value;
    br_time_iso(when, seconds * 1000000u);
    if (l->json) {
        br_buf_printf(b, l->n++ ? ",\n" : "");
        br_cli_put_activation_json(b, profile, seconds, text);
        return 0;
    }
    if (l->n++ == 0) {
        view_style_on(&l->view, VIEW_BOLD);
        br_buf_printf(b, "%-22s%-31s%s\n", "profile", "activated", "kernel, image");
        view_style_off(&l->view, VIEW_BOLD);
    }
    br_cli_put_line(b, profile, strlen(profile), NAME_WIDTH - 1);
    for (size_t used = view_columns(profile, strlen(profile)); used < NAME_WIDTH; used++)
        br_buf_put_u8(b, ' ');
    br_buf_printf(b, "%-31s", when);
    size_t n = value_of(text, "kernel", &value);
    br_cli_put_line(b, value, n, 40);
    br_buf_printf(b, ", ");
    n = value_of(text, "image", &value);
    br_cli_put_line(b, value, n, 80);
    br_buf_printf(b, "\n");
    return 0;
}

static const struct br_cli_hooks hooks = {.activated = on_activated};

/* `name` "" lists. */
static int ask_bridled(const char *name, struct listing *l, struct br_err *err)
{
    struct br_cli_client c;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, name);
    int r = br_cli_client_ask(&c, &hooks, l, BR_MSG_CTL_ACTIVATIONS, &o, err);
    if (r == 0 && c.code)
        r = br_err_set(err, c.code, "%s", c.text);
    br_cli_client_close(&c);
    return r;
}

static int list(bool json)
{
    struct br_err err = {.code = BR_OK};
    struct br_cli_term t;
    struct listing l = {.json = json};
    br_cli_term_init(&t, STDIN_FILENO, STDOUT_FILENO);
    br_cli_view_init(&l.view, t.colour, t.width);
    if (json)
        br_buf_printf(&l.view.out, "[");
    int r = ask_bridled("", &l, &err), code = 0;
    if (json)
        br_buf_printf(&l.view.out, "]\n");
    else if (r == 0 && l.n == 0)
        br_buf_printf(&l.view.out, "No profile is activated. 'bridle activate run-v1' tries the "
                                   "default one.\n");
    if (r == 0 && br_write_all(STDOUT_FILENO, l.view.out.data, l.view.out.len) < 0)
        code = br_cli_lost_output(errno);
    else if (r < 0)
        code = br_cli_fail(&err);
    br_cli_view_free(&l.view);
    return code;
}

static int remove_one(const char *name)
{
    struct br_err err = {.code = BR_OK};
    struct listing l = {.json = false};
    if (!br_is_kebab(name, 63)) {
        (void)br_err_set(&err, BR_E_USAGE, "'%.80s' is not the name of a profile", name);
        return br_cli_fail(&err);
    }
    br_cli_view_init(&l.view, false, BR_CLI_WIDTH);
    int r = ask_bridled(name, &l, &err);
    br_cli_view_free(&l.view);
    if (r < 0)
        return br_cli_fail(&err);
    printf("The profile '%s' is not activated any more; runs with it are refused.\n", name);
    return br_cli_flush();
}

int br_cli_activate(const struct br_cli_args *a)
{
    const char *remove = br_cli_opt(a, "remove");
    bool json = br_cli_opt(a, "json") != NULL, all = br_cli_opt(a, "list") != NULL;
    struct br_err err = {.code = BR_OK};
    unsigned asked = (remove != NULL) + all + (a->noperands > 0);
    if (asked != 1) {
        (void)br_err_set(&err, BR_E_USAGE,
                         "name one profile to activate, such as 'bridle activate run-v1', or give "
                         "one of --list and --remove PROFILE");
        return br_cli_fail(&err);
    }
    return all ? list(json) : remove ? remove_one(remove) : activate(a, json);
}
