/*
 * bridle doctor: what bridle-launch found when it tried the operations of the sandbox, as a table,
 * and what to do about what is missing.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/view_priv.h"

#define NAME_WIDTH 22u
#define RESULT_WIDTH 10u

struct checkup {
    bool json, seen;
    unsigned missing; /* required ones */
    int lost;         /* errno of output that could not be written */
    struct br_cli_view view;
};

static const char *result_name(uint8_t result)
{
    return result == BR_PROBE_OK ? "ok" : result == BR_PROBE_DEGRADED ? "degraded" : "missing";
}

#define HOST_NOTE "image host: not pinned, lower assurance"

/*
 * What each built-in profile needs: every required row, but those in `without`, and those in
 * `with`. The native profiles; bubblewrap needs less.
 */
static const struct profile_needs {
    const char *name;
    bool only; /* nothing but `with` */
    const char *with[8], *without[2];
    const char *note; /* what a probe cannot know */
} profiles[] = {
    {.name = "run-v1", .note = HOST_NOTE},
    {.name = "run-owner-v1", .without = {"idmapped mounts"}, .note = HOST_NOTE},
    {.name = "run-nolandlock-v1", .without = {"Landlock"}, .note = HOST_NOTE},
    {.name = "workspace-v1",
     .with = {"ext4 lease", "tmpfs lease", "erofs images", "overlayfs"},
     .note = "with an image: see bridle image"},
    {.name = "workspace-tmpfs-v1",
     .with = {"tmpfs lease", "overlayfs"},
     .without = {"idmapped mounts"},
     .note = "with an image: see bridle image"},
    {.name = "observer-v1",
     .only = true,
     .with = {"bubblewrap", "system call filter", "memory limit", "swap limit", "process limit",
              "CPU limit"}},
    {.name = "observer-native-v1", .with = {"overlayfs"}},
};

static bool among(const char *const *list, size_t max, const char *name)
{
    for (size_t i = 0; i < max && list[i]; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}

/* Does this profile lack that row? */
static bool lacks(const struct profile_needs *f, const struct br_probe *p)
{
    if (p->result == BR_PROBE_OK)
        return false;
    if (among(f->with, BR_ARRAY_LEN(f->with), p->requirement))
        return true;
    return !f->only && p->required && p->result == BR_PROBE_MISSING &&
           !among(f->without, BR_ARRAY_LEN(f->without), p->requirement);
}

/* The k-th thing that it lacks, or NULL. What was not probed is not there. */
static const char *lacking(const struct profile_needs *f, const struct br_probe *p, uint32_t n,
                           unsigned k)
{
    for (size_t w = 0; w < BR_ARRAY_LEN(f->with) && f->with[w]; w++) {
        bool known = false;
        for (uint32_t i = 0; i < n; i++)
            known |= strcmp(p[i].requirement, f->with[w]) == 0;
        if (!known && k-- == 0)
            return f->with[w];
    }
    for (uint32_t i = 0; i < n; i++)
        if (lacks(f, &p[i]) && k-- == 0)
            return p[i].requirement;
    return NULL;
}

static void put_json_profiles(struct br_buf *b, const struct br_probe *p, uint32_t n)
{
    for (size_t f = 0; f < BR_ARRAY_LEN(profiles); f++) {
        const char *name = lacking(&profiles[f], p, n, 0);
        br_buf_printf(b, "%s{\"profile\":\"%s\",\"eligible\":%s,\"missing\":[", f ? "," : "",
                      profiles[f].name, name ? "false" : "true");
        for (unsigned k = 0; (name = lacking(&profiles[f], p, n, k)); k++) {
            br_buf_printf(b, "%s", k ? "," : "");
            br_buf_put_json_str(b, name, strlen(name));
        }
        br_buf_printf(b, "]}");
    }
}

static void put_profiles(struct br_cli_view *v, const struct br_probe *p, uint32_t n)
{
    br_buf_printf(&v->out, "\n");
    view_style_on(v, VIEW_BOLD);
    br_buf_printf(&v->out, "%-22seligible\n", "profile");
    view_style_off(v, VIEW_BOLD);
    for (size_t f = 0; f < BR_ARRAY_LEN(profiles); f++) {
        const char *name = lacking(&profiles[f], p, n, 0);
        br_buf_printf(&v->out, "%-22s", profiles[f].name);
        view_word(v, name ? VIEW_YELLOW : VIEW_GREEN, name ? "no" : "yes",
                  name || profiles[f].note ? RESULT_WIDTH : 0);
        for (unsigned k = 0; (name = lacking(&profiles[f], p, n, k)); k++) {
            br_buf_printf(&v->out, "%s", k ? ", " : "it needs: ");
            br_cli_put_line(&v->out, name, strlen(name), 40);
        }
        if (profiles[f].note && !lacking(&profiles[f], p, n, 0))
            br_buf_printf(&v->out, "%s", profiles[f].note);
        br_buf_printf(&v->out, "\n");
    }
}

static void put_json(struct br_buf *b, const struct br_probe *p, uint32_t n, unsigned missing)
{
    br_buf_printf(b, "{\"profile\":\"run-v1\",\"eligible\":%s,\"profiles\":[",
                  missing ? "false" : "true");
    put_json_profiles(b, p, n);
    br_buf_printf(b, "],\"requirements\":[");
    for (uint32_t i = 0; i < n; i++) {
        br_buf_printf(b, "%s{\"requirement\":", i ? "," : "");
        br_buf_put_json_str(b, p[i].requirement, strlen(p[i].requirement));
        br_buf_printf(b, ",\"result\":\"%s\",\"required\":%s,\"detail\":", result_name(p[i].result),
                      p[i].required ? "true" : "false");
        br_buf_put_json_str(b, p[i].detail, strlen(p[i].detail));
        br_buf_printf(b, ",\"fix\":");
        br_buf_put_json_str(b, p[i].fix, strlen(p[i].fix));
        br_buf_printf(b, "}");
    }
    br_buf_printf(b, "]}\n");
}

static void put_table(struct br_cli_view *v, const struct br_probe *p, uint32_t n, unsigned missing)
{
    view_style_on(v, VIEW_BOLD);
    br_buf_printf(&v->out, "%-22s%-10s%s\n", "requirement", "result", "detail");
    view_style_off(v, VIEW_BOLD);
    for (uint32_t i = 0; i < n; i++) {
        enum view_style s = p[i].result == BR_PROBE_OK ? VIEW_GREEN
                            : p[i].required            ? VIEW_RED
                                                       : VIEW_YELLOW;
        br_cli_put_line(&v->out, p[i].requirement, strlen(p[i].requirement), NAME_WIDTH - 1);
        size_t used = view_columns(p[i].requirement, strlen(p[i].requirement));
        for (; used < NAME_WIDTH; used++)
            br_buf_put_u8(&v->out, ' ');
        view_word(v, s, result_name(p[i].result), RESULT_WIDTH);
        size_t at = v->out.len, indent = NAME_WIDTH + RESULT_WIDTH;
        view_labeled(v, "", (unsigned)indent, p[i].detail, strlen(p[i].detail), 6);
        if (!v->out.failed) { /* its first line continues this row */
            memmove(v->out.data + at, v->out.data + at + indent, v->out.len - at - indent);
            v->out.len -= indent;
        }
        if (p[i].result != BR_PROBE_OK && p[i].fix[0])
            view_labeled(v, "                      fix:", NAME_WIDTH + 5, p[i].fix,
                         strlen(p[i].fix), 8);
    }
    put_profiles(v, p, n);
    br_buf_printf(&v->out, "\n");
    if (missing)
        br_buf_printf(&v->out,
                      "The default profile (run-v1) cannot run here: %u required %s missing.\n",
                      missing, missing == 1 ? "thing is" : "things are");
    else
        br_buf_printf(&v->out, "The default profile (run-v1) can run here.\n");
}

static int on_probed(void *ctx, const struct br_probe *p, uint32_t n)
{
    struct checkup *c = ctx;
    if (n == 0) /* knowing nothing is not "everything is there" */
        return 0;
    c->seen = true;
    for (uint32_t i = 0; i < n; i++)
        c->missing += p[i].required && p[i].result == BR_PROBE_MISSING;
    if (c->json)
        put_json(&c->view.out, p, n, c->missing);
    else
        put_table(&c->view, p, n, c->missing);
    int r = br_write_all(STDOUT_FILENO, c->view.out.data, c->view.out.len);
    if (c->view.out.failed)
        return -BR_E_IO;
    c->lost = r < 0 ? errno : 0; /* the rest is small: it ends as it would */
    return 0;
}

static const struct br_cli_hooks hooks = {.probed = on_probed};

int br_cli_doctor(const struct br_cli_args *a)
{
    const char *user = br_cli_opt(a, "delegate");
    if (user)
        return br_cli_delegate(user);
    struct br_err err = {.code = BR_OK};
    struct br_cli_client client;
    struct br_cli_term t;
    struct checkup c = {.json = br_cli_opt(a, "json") != NULL};
    br_cli_term_init(&t, STDIN_FILENO, STDOUT_FILENO);
    br_cli_view_init(&c.view, t.colour, t.width);
    int r = br_cli_client_ask(&client, &hooks, &c, BR_MSG_CTL_DOCTOR, NULL, &err);
    int code = r == 0 ? (int)client.exit_code : br_code_exit((int)err.code);
    if (r == 0 && client.code && client.code != BR_E_REQUIREMENT_MISSING)
        (void)br_err_set(&err, client.code, "%s", client.text);
    if (r == 0 && code == 0 && !c.seen)
        code = br_cli_fail(
            &(struct br_err){.code = BR_E_INTERNAL,
                             .text = "nothing was probed, so nothing is known about this machine"});
    else if (c.lost)
        code = br_cli_lost_output(c.lost);
    else if (err.code)
        (void)br_cli_fail(&err);
    br_cli_client_close(&client);
    br_cli_view_free(&c.view);
    return code == 0 && c.missing ? br_code_exit(BR_E_REQUIREMENT_MISSING) : code;
}
