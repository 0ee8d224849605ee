/*
 * bridle state: the sessions and the kept workspaces that runs have left, and their removal.
 * bridled knows and removes them; this shows names, figures and times. What is in a session's
 * private state is nobody's to see here.
 */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/view_priv.h"

struct states {
    bool json, purge;
    unsigned n;
    struct br_cli_view view;
};

static void put_json(struct br_buf *b, const struct br_state_row *w)
{
    static const char *const kinds[] = {"", "session", "workspace"};
    char when[32];
    br_buf_printf(b, "{\"kind\":\"%s\",\"id\":", kinds[w->kind]);
    br_buf_put_json_str(b, w->id, strlen(w->id));
    br_buf_printf(b, ",\"owner\":%u", w->owner);
    const struct {
        const char *name, *value;
    } texts[] = {{"adapter", w->adapter},
                 {"profile", w->profile},
                 {"image", w->image},
                 {"workspace", w->workspace}};
    for (size_t i = 0; i < BR_ARRAY_LEN(texts); i++) {
        if (!texts[i].value[0])
            continue;
        br_buf_printf(b, ",\"%s\":", texts[i].name);
        br_buf_put_json_str(b, texts[i].value, strlen(texts[i].value));
    }
    br_time_iso(when, w->created * 1000000u);
    br_buf_printf(b, ",\"createdAt\":\"%s\"", when);
    br_time_iso(when, w->used * 1000000u);
    br_buf_printf(b, ",\"usedAt\":\"%s\"", when);
    br_time_iso(when, w->expires * 1000000u);
    br_buf_printf(b, ",\"expiresAt\":\"%s\",\"bytes\":%llu,\"inUse\":%s,\"interrupted\":%s}", when,
                  (unsigned long long)w->bytes, w->in_use ? "true" : "false",
                  w->interrupted ? "true" : "false");
}

static void put_when(struct br_buf *b, uint64_t seconds)
{
    char text[32] = "?";
    time_t t = (time_t)seconds;
    struct tm tm;
    if (localtime_r(&t, &tm))
        (void)strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &tm);
    br_buf_printf(b, "%-16s", text);
}

static void put_row(struct states *s, const struct br_state_row *w)
{
    struct br_cli_view *v = &s->view;
    if (s->n == 1) {
        view_style_on(v, VIEW_BOLD);
        br_buf_printf(&v->out, "%-10s %-32s %-16s  %-16s  %9s  %s\n", "kind", "id", "last used",
                      "kept until", "on disk", "owner");
        view_style_off(v, VIEW_BOLD);
    }
    br_buf_printf(&v->out, "%-10s ", w->kind == BR_STATE_SESSION ? "session" : "workspace");
    br_cli_put_line(&v->out, w->id, strlen(w->id), 48);
    for (size_t n = strlen(w->id); n < 33; n++)
        br_buf_put_u8(&v->out, ' ');
    put_when(&v->out, w->used);
    br_buf_printf(&v->out, "  ");
    put_when(&v->out, w->expires);
    br_buf_printf(&v->out, "  %6.1f MB  %u\n  ", (double)w->bytes / 1e6, w->owner);
    view_style_on(v, VIEW_DIM);
    if (w->adapter[0]) {
        br_cli_put_line(&v->out, w->adapter, strlen(w->adapter), 40);
        br_buf_printf(&v->out, "  ");
    }
    br_cli_put_line(&v->out, w->profile, strlen(w->profile), 24);
    br_buf_printf(&v->out, "  ");
    br_cli_put_line(&v->out, w->workspace, strlen(w->workspace), v->width - 34);
    view_style_off(v, VIEW_DIM);
    if (w->interrupted || w->in_use)
        br_buf_printf(&v->out, "  %s", w->in_use ? "in use" : "promotion interrupted");
    br_buf_printf(&v->out, "\n");
}

static int on_state(void *ctx, const struct br_state_row *w)
{
    struct states *s = ctx;
    s->n++;
    if (s->json) {
        br_buf_printf(&s->view.out, s->n > 1 ? ",\n" : "");
        put_json(&s->view.out, w);
    } else if (s->purge) {
        br_buf_printf(&s->view.out, "removed %s ",
                      w->kind == BR_STATE_SESSION ? "session" : "workspace of");
        br_cli_put_line(&s->view.out, w->id, strlen(w->id), 64);
        br_buf_printf(&s->view.out, "\n");
    } else {
        put_row(s, w);
    }
    return 0;
}

/* Which question the arguments are; 0 and a sentence if they are none. */
static uint8_t which(const struct br_cli_args *a, const char **id, struct br_err *err)
{
    const char *action = a->operands[0];
    bool expired = br_cli_opt(a, "expired"), all = br_cli_opt(a, "all");
    *id = a->noperands > 1 ? a->operands[1] : "";
    if (strcmp(action, "list") == 0) {
        if (!**id && !expired && !all)
            return BR_STATE_LIST;
        (void)br_err_set(err, BR_E_USAGE, "'bridle state list' lists everything; it takes no more");
    } else if (strcmp(action, "purge") != 0) {
        (void)br_err_set(err, BR_E_USAGE,
                         "'%.80s' is no action of 'bridle state'; list and purge "
                         "are",
                         action);
    } else if ((**id != 0) + expired + all != 1) {
        (void)br_err_set(err, BR_E_USAGE,
                         "'bridle state purge' takes one of ID, --expired and --all; nothing was "
                         "removed");
    } else if (strlen(*id) >= 64) {
        (void)br_err_set(err, BR_E_NOT_FOUND, "'%.80s' is no id; nothing was removed", *id);
    } else {
        return **id ? BR_STATE_PURGE_ID : expired ? BR_STATE_PURGE_EXPIRED : BR_STATE_PURGE_ALL;
    }
    return 0;
}

int br_cli_state(const struct br_cli_args *a)
{
    static const struct br_cli_hooks hooks = {.state = on_state};
    static const char none[] = "no session and no workspace is kept\n";
    struct br_err err = {.code = BR_OK};
    struct br_cli_client c;
    struct br_cli_term term;
    const char *id;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    struct states s = {.json = br_cli_opt(a, "json") != NULL};
    uint8_t what = which(a, &id, &err);
    if (!what)
        return br_cli_fail(&err);
    s.purge = what != BR_STATE_LIST;
    br_cli_term_init(&term, STDIN_FILENO, STDOUT_FILENO);
    br_cli_view_init(&s.view, term.colour, term.width);
    br_buf_put_u8(&o.buf, what);
    br_buf_put_str(&o.buf, id);
    if (s.json)
        br_buf_printf(&s.view.out, "[");
    int r = br_cli_client_ask(&c, &hooks, &s, BR_MSG_CTL_STATE, &o, &err);
    int code = r == 0 ? (int)c.exit_code : br_code_exit(r);
    if (r == 0 && c.code)
        (void)br_err_set(&err, c.code, "%s", c.text);
    br_cli_client_close(&c);
    if (s.json)
        br_buf_printf(&s.view.out, "]\n");
    br_cli_term_write(&term, s.view.out.data, s.view.out.len);
    if (!s.json && !s.purge && code == 0 && s.n == 0)
        (void)br_write_all(STDERR_FILENO, none, sizeof(none) - 1);
    if (term.broken)
        code = br_cli_lost_output(term.error);
    else if (err.code)
        (void)br_cli_fail(&err);
    br_cli_view_free(&s.view);
    return code;
}
