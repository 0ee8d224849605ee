/*
 * What was, for an editor: session/list shows the runs of the record, session/load tells one of
 * them again, as the updates that it would have been, and keeps its name for further prompts.
 * Called by acp.c; reads through replay.c, one at a time for a connection, and waits where its
 * client reads slowly.
 */
#include <stdlib.h>
#include <string.h>

#include "gateway/acp_priv.h"

struct acp_load {
    struct acp *acp;
    struct gw_replay *replay;
    char *id; /* of the request */
    /* session/load */
    char session[BR_ID_MAX];
    bool prompted; /* there is something in it */
    /* session/list */
    json_t *rows;
    char *cwd; /* only those; NULL: all */
    char last[BR_ID_MAX];
    unsigned seen;
};

void acp_load_free(struct acp *a)
{
    struct acp_load *l = a->load;
    a->load = NULL;
    if (!l)
        return;
    if (l->replay)
        replay_cancel(&l->replay);
    json_decref(l->rows);
    free(l->id);
    free(l->cwd);
    free(l);
}

void acp_load_give_up(struct acp *a)
{
    acp_fail(a, a->load->id, -32800, "CANCELED", "the session was closed");
    acp_load_free(a);
}

bool acp_load_is(const struct acp *a, const struct acp_session *s)
{
    return a->load && strcmp(a->load->session, s->id) == 0;
}

void acp_load_more(struct acp *a)
{
    replay_more(a->load->replay);
}

static bool on_room(void *ctx)
{
    const struct acp_load *l = ctx;
    return !l->acp->full;
}

static struct acp_load *load_new(struct acp *a, const char *id)
{
    struct acp_load *l = calloc(1, sizeof(*l));
    if (l) {
        l->acp = a;
        l->id = strdup(id);
        l->rows = json_array();
        a->load = l;
    }
    if (l && l->id && l->rows)
        return l;
    acp_load_free(a);
    acp_fail(a, id, -32603, "OUT_OF_MEMORY", "there is no memory to read the record");
    return NULL;
}

/* `done` may have been called before this returns, and then *l is no more. */
static void begin(struct acp_load *l, const char *run, const char *before,
                  const struct gw_reader *reader)
{
    struct acp *a = l->acp;
    struct gw_replay *r =
        replay_begin(a->g, run, run[0] ? 0 : ACP_LIST_PAGE, before, "", reader, l);
    if (a->load == l)
        l->replay = r;
}

/* ---- session/load ---- */

static void on_event(void *ctx, const struct gw_event *e)
{
    struct acp_load *l = ctx;
    struct acp *a = l->acp;
    const struct acp_session *s = acp_find(a, l->session);
    if (!s)
        return;
    struct acp_scope scope = {.session_id = s->id, .cwd = s->cwd, .turn = s->turns, .replay = true};
    json_t *root = json_loadb(e->bytes, e->n, 0, NULL), *data = json_object_get(root, "data");
    json_t *update = data ? acp_map_event(&scope, e->type, e->ntype, data) : NULL;
    if (update)
        acp_update(a, s->id, update);
    l->prompted = true;
    json_decref(root);
}

static void on_loaded(void *ctx, int code, const struct br_err *why)
{
    struct acp_load *l = ctx;
    struct acp *a = l->acp;
    struct acp_session *s = acp_find(a, l->session);
    bool found = code == 0 && l->prompted;
    char *id = br_steal_ptr(&l->id);
    l->replay = NULL;
    acp_load_free(a);
    if (s && found) {
        s->known = true;
        acp_reply(a, id, json_object());
    } else if (code == 0 || code == -BR_E_NOT_FOUND) {
        acp_fail(a, id, ACP_NOT_FOUND, "ACP_SESSION_NOT_FOUND",
                 "there is no run of this name in the record");
    } else {
        acp_fail_code(a, id, code, why);
    }
    if (s && !found && !s->known) {
        acp_forget_fresh(s);
        acp_session_drop(s);
    }
    free(id);
}

bool acp_may_read(struct acp *a, const char *id)
{
    if (conn_may_read(a->c))
        return true;
    acp_fail(a, id, -32603, "LIMIT_EXCEEDED",
             "too many readings of the record; try again in a second");
    return false;
}

void acp_load_begin(struct acp *a, const char *id, struct acp_session *s)
{
    static const struct gw_reader reader = {.event = on_event, .done = on_loaded, .room = on_room};
    struct acp_load *l = a->load ? NULL : load_new(a, id);
    if (a->load && !l) {
        acp_fail(a, id, -32600, "IN_USE", "the record is being read for this connection");
        return;
    }
    if (!l)
        return;
    snprintf(l->session, sizeof(l->session), "%s", s->id);
    begin(l, s->id, "", &reader);
}

/* ---- session/list ---- */

static void on_row(void *ctx, const struct gw_run_row *row)
{
    struct acp_load *l = ctx;
    char at[32];
    const char *goal = row->goal ? row->goal : "", *cwd = row->workspace ? row->workspace : "";
    size_t n = strcspn(goal, "\n");
    snprintf(l->last, sizeof(l->last), "%s", row->run_id);
    l->seen++;
    if (cwd[0] != '/' || (l->cwd && strcmp(cwd, l->cwd) != 0))
        return;
    n = n > ACP_TITLE_MAX ? br_utf8_floor(goal, ACP_TITLE_MAX) : n;
    br_time_iso(at, row->ended_us ? row->ended_us : row->started_us);
    json_array_append_new(l->rows, json_pack("{s:s, s:s, s:s%, s:s}", "sessionId", row->run_id,
                                             "cwd", cwd, "title", goal, n, "updatedAt", at));
}

static void on_listed(void *ctx, int code, const struct br_err *why)
{
    struct acp_load *l = ctx;
    struct acp *a = l->acp;
    l->replay = NULL;
    if (code < 0) {
        acp_fail_code(a, l->id, code, why);
    } else {
        json_t *result = json_pack("{s:O}", "sessions", l->rows);
        if (l->seen >= ACP_LIST_PAGE)
            json_object_set_new(result, "nextCursor", json_string(l->last));
        acp_reply(a, l->id, result);
    }
    acp_load_free(a);
}

void acp_list(struct acp *a, const char *id, const json_t *params)
{
    static const struct gw_reader reader = {.row = on_row, .done = on_listed};
    const json_t *cwd = json_object_get(params, "cwd"), *at = json_object_get(params, "cursor");
    const char *path = acp_string(params, "cwd", BR_PATH_MAX - 1),
               *cursor = acp_string(params, "cursor", BR_ID_MAX - 1);
    if (conn_who(a->c)->access < BR_ACCESS_OBSERVE) {
        acp_fail(a, id, ACP_FORBIDDEN, "ACP_FORBIDDEN", "'%s' may not read the record",
                 conn_who(a->c)->name);
        return;
    }
    if ((cwd && !json_is_null(cwd) && (!path || path[0] != '/')) ||
        (at && !json_is_null(at) && !cursor)) {
        acp_fail(a, id, -32602, "ACP_INVALID_PARAMS",
                 "'cwd' must be an absolute path, 'cursor' one that was given");
        return;
    }
    if (a->load) {
        acp_fail(a, id, -32600, "IN_USE", "the record is being read for this connection");
        return;
    }
    if (!acp_may_read(a, id))
        return;
    struct acp_load *l = load_new(a, id);
    if (!l)
        return;
    l->cwd = path ? strdup(path) : NULL;
    if (path && !l->cwd) {
        acp_load_free(a);
        acp_fail(a, id, -32603, "OUT_OF_MEMORY", "there is no memory to read the record");
        return;
    }
    begin(l, "", cursor ? cursor : "", &reader);
}
