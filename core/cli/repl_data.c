/*
 * Snapshots for 'bridle repl': each is one question to bridled, as other verbs ask it, and becomes
 * JSON values, one a line. Bounded: of the list of sessions the last ones are kept, of a record the
 * rows that were asked for, and what is left out is counted.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/repl.h"

struct getting {
    const struct repl_query *q;
    struct repl_data *d;
    struct repl_join join;
    uint64_t row; /* of the last event that came */
    bool one;     /* a session, and its row came */
    bool enough;
    bool found; /* a lease */
    int signo;  /* that came while bridled was asked */
};

static bool is(const struct getting *g, const char *what)
{
    return strcmp(g->q->what, what) == 0;
}

static uint64_t rows_max(const struct getting *g)
{
    return g->q->rows ? g->q->rows : REPL_ROWS_MAX;
}

static int add_tree(struct repl_data *d, const json_t *v, struct br_err *err)
{
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text)
        return br_err_set(err, BR_E_NOMEM, "no memory for a snapshot");
    size_t n = strlen(text);
    if (d->lines.len + n + 1 > REPL_DATA_MAX) {
        d->left_out++;
    } else {
        br_buf_put(&d->lines, text, n);
        br_buf_put_u8(&d->lines, '\n');
        d->n++;
    }
    free(text);
    return 0;
}

/* ---- sessions ---- */

/* Make room: the older half goes. */
static void drop_older(struct repl_data *d)
{
    size_t at = 0;
    uint64_t dropped = 0;
    while (at < d->lines.len / 2) {
        const uint8_t *nl = memchr(d->lines.data + at, '\n', d->lines.len - at);
        at = (size_t)(nl - d->lines.data) + 1;
        dropped++;
    }
    memmove(d->lines.data, d->lines.data + at, d->lines.len - at);
    d->lines.len -= at;
    d->left_out += dropped;
    d->n -= dropped;
}

static int on_row(void *ctx, const struct br_cli_row *row)
{
    struct getting *g = ctx;
    struct repl_data *d = g->d;
    if (!is(g, "sessions")) {
        g->one = true;
        return is(g, "events") ? 0 : repl_join_open(&g->join, row, NULL);
    }
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(64u * 1024);
    br_cli_put_row_json(&b, row);
    if (d->lines.len + b.len + 1 > REPL_DATA_MAX || d->n >= rows_max(g))
        drop_older(d);
    br_buf_put(&d->lines, b.data, b.len);
    br_buf_put_u8(&d->lines, '\n');
    d->n++;
    return 0;
}

/* ---- events ---- */

static bool is_type(const char *text, size_t n, const char *type)
{
    static const char head[] = "{\"v\":1,\"type\":\"";
    size_t h = sizeof(head) - 1, len = strlen(type);
    if (len == 0)
        return true;
    if (n < h + len + 1 || memcmp(text, head, h) != 0 || memcmp(text + h, type, len) != 0)
        return false;
    return type[len - 1] == '.' || text[h + len] == '"';
}

static int take_event(struct getting *g, const char *text, size_t n)
{
    struct repl_data *d = g->d;
    const struct repl_query *q = g->q;
    if (g->row < q->from || !is_type(text, n, q->type))
        return 0;
    if (q->to && g->row > q->to) {
        g->enough = true; /* the rest need not be read */
        return -BR_E_CANCELED;
    }
    if (d->left_out || d->n >= rows_max(g) || d->lines.len + n + 32 > REPL_DATA_MAX || n < 2) {
        if (!d->left_out++)
            d->next = g->row;
        return 0;
    }
    br_buf_printf(&d->lines, "{\"row\":%llu,", (unsigned long long)g->row);
    br_buf_put(&d->lines, text + 1, n - 1);
    br_buf_put_u8(&d->lines, '\n');
    d->n++;
    return 0;
}

static int on_event(void *ctx, const char *text, size_t n, struct br_err *err)
{
    struct getting *g = ctx;
    g->row++;
    return is(g, "events") ? take_event(g, text, n)
                           : repl_join_event(&g->join, g->row, text, n, err);
}

/* ---- leases, activations ---- */

static const char *kind_of(const char *name)
{
    size_t n = strlen(name);
    if (n > 9 && strcmp(name + n - 9, ".template") == 0)
        return "template";
    if (strncmp(name, "state-", 6) == 0)
        return "state";
    if (strncmp(name, "run-", 4) == 0)
        return "workspace";
    return n > 4 && strcmp(name + n - 4, ".tmp") == 0 ? "temporary" : "unknown";
}

static int on_leased(void *ctx, const struct br_cli_lease *l)
{
    struct getting *g = ctx;
    struct repl_data *d = g->d;
    char when[32];
    if (!l->name) {
        d->left_out++;
        return 0;
    }
    /* `lease NAME` also finds state-NAME.img */
    char image[BR_NAME_MAX + 16];
    snprintf(image, sizeof(image), "state-%s.img", g->q->id);
    if (is(g, "lease") && strcmp(g->q->id, l->name) != 0 && strcmp(image, l->name) != 0)
        return 0;
    g->found = true;
    br_time_iso(when, l->seconds * 1000000u);
    br_buf_printf(&d->lines, "{\"name\":");
    br_buf_put_json_str(&d->lines, l->name, strlen(l->name));
    br_buf_printf(&d->lines,
                  ",\"kind\":\"%s\",\"bytes\":%llu,\"allocated\":%llu,\"modifiedAt\":\"%s\","
                  "\"inUse\":%s}\n",
                  kind_of(l->name), (unsigned long long)l->bytes, (unsigned long long)l->allocated,
                  when, l->in_use ? "true" : "false");
    d->n++;
    return 0;
}

static int on_activated(void *ctx, const char *profile, uint64_t seconds, const char *text)
{
    struct getting *g = ctx;
    br_cli_put_activation_json(&g->d->lines, profile, seconds, text);
    br_buf_put_u8(&g->d->lines, '\n');
    g->d->n++;
    return 0;
}

static int on_policy(void *ctx, const struct br_policy_row *row)
{
    struct getting *g = ctx;
    br_cli_put_policy_json(&g->d->lines, row);
    br_buf_put_u8(&g->d->lines, '\n');
    g->d->n++;
    return 0;
}

/* ---- asking ---- */

static void on_canceling(void *ctx, int signo)
{
    struct getting *g = ctx;
    g->signo = signo;
}

static const struct br_cli_hooks hooks = {.canceling = on_canceling,
                                          .row = on_row,
                                          .event = on_event,
                                          .leased = on_leased,
                                          .policy = on_policy,
                                          .activated = on_activated};

static int ask(struct getting *g, enum br_msg_type type, const char *name, struct br_err *err)
{
    struct br_cli_client c;
    struct br_err local = {.code = BR_OK};
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    if (type == BR_MSG_CTL_SHOW)
        br_cli_put_show(&o.buf, name);
    else if (type != BR_MSG_CTL_LEASES && type != BR_MSG_CTL_POLICIES)
        br_buf_put_str(&o.buf, name);
    int r = br_cli_client_ask(&c, &hooks, g, type, &o, &local);
    if (r == 0 && c.code)
        r = br_err_set(&local, c.code, "%s", c.text);
    if (c.nsignals)
        r = br_err_set(&local, BR_E_CANCELED, "interrupted; nothing more was read");
    br_cli_client_close(&c);
    if (g->signo && g->signo != SIGINT)
        (void)raise(g->signo); /* it was to end this program, which it does now */
    if (r < 0 && g->enough)
        return 0;
    if (r < 0 && err)
        *err = local;
    return r;
}

/* What the record of one session says, as far as it could be read. */
static int add_joined(struct getting *g, struct br_err *err)
{
    const json_t *list = is(g, "decisions") ? g->join.decisions : g->join.leases;
    if (is(g, "session"))
        return add_tree(g->d, g->join.session, err);
    for (size_t i = 0; i < json_array_size(list); i++) {
        int r = add_tree(g->d, json_array_get(list, i), err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int check_id(const struct repl_query *q, struct br_err *err)
{
    size_t n = strlen(q->id);
    bool lease = strcmp(q->what, "lease") == 0;
    if (n == 0)
        return br_err_set(err, BR_E_USAGE, "an id is empty; 'sessions' lists them");
    if (n >= (lease ? BR_NAME_MAX : BR_ID_MAX) || !br_utf8_valid(q->id, n))
        return br_err_set(err, BR_E_NOT_FOUND,
                          lease ? "'%.80s' is no lease; 'leases' lists them"
                                : "'%.80s' is no id of a session; 'sessions' "
                                  "lists them",
                          q->id);
    return 0;
}

static int get_lease(struct getting *g, struct br_err *err)
{
    int r = ask(g, BR_MSG_CTL_LEASES, "", err);
    if (r < 0 || g->found)
        return r;
    struct br_err why = {.code = BR_OK};
    if (strlen(g->q->id) < BR_ID_MAX)
        r = ask(g, BR_MSG_CTL_SHOW, g->q->id, &why);
    if (!g->one && (r == 0 || why.code == BR_E_NOT_FOUND))
        return br_err_set(err, BR_E_NOT_FOUND,
                          "'%.80s' is neither a file of the lease root nor the id of a session; "
                          "'leases' and 'sessions' list them",
                          g->q->id);
    if (r < 0) {
        *err = why;
        return r;
    }
    return add_joined(g, err);
}

int repl_data_get(const struct repl_query *q, struct repl_data *d, struct br_err *err)
{
    *d = (struct repl_data){.lines = BR_BUF_INIT(REPL_DATA_MAX + 2 * BR_EVENT_MAX)};
    struct getting g = {.q = q, .d = d};
    int r;
    if (is(&g, "sessions")) {
        r = ask(&g, BR_MSG_CTL_SHOW, "", err);
    } else if (is(&g, "leases")) {
        r = ask(&g, BR_MSG_CTL_LEASES, "", err);
    } else if (is(&g, "activations")) {
        r = ask(&g, BR_MSG_CTL_ACTIVATIONS, "", err);
    } else if (is(&g, "policies")) {
        r = ask(&g, BR_MSG_CTL_POLICIES, "", err);
    } else if (is(&g, "policy")) {
        r = repl_policy_get(&d->lines, err);
        d->n = r == 0;
    } else if (check_id(q, err) < 0) {
        return -(int)err->code;
    } else if (is(&g, "lease")) {
        r = get_lease(&g, err);
    } else if (is(&g, "session") || is(&g, "events") || is(&g, "decisions")) {
        r = ask(&g, BR_MSG_CTL_SHOW, q->id, err);
        if (g.one && !is(&g, "events")) {
            struct br_err more = {.code = BR_OK};
            int added = add_joined(&g, &more);
            if (r == 0 && added < 0) {
                *err = more;
                r = added;
            }
        }
    } else {
        r = br_err_set(err, BR_E_USAGE, "there is no snapshot '%.40s'", q->what);
    }
    repl_join_free(&g.join);
    if (r == 0 && d->lines.failed)
        r = br_err_set(err, BR_E_NOMEM, "no memory for a snapshot");
    return r;
}

void repl_data_free(struct repl_data *d)
{
    br_buf_free(&d->lines);
}
