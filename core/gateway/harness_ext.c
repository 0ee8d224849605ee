/*
 * What a connection of harness/acp/1 gets beyond the protocol: with the extension bridle/1, the
 * list of live sessions as it changes, sessions that are followed without being owned, and sessions
 * that outlive their connection. None of it is sent to, or known by, a client that did not ask for
 * it. Called by harness.c, with parameters that were checked.
 */
#include <stdlib.h>
#include <string.h>

#include "gateway/harness_priv.h"

/* ---- what is said of a live session ---- */

/* What both the list and the notification have, without the brackets. */
static void put_live(struct br_buf *b, struct gw_session *s)
{
    struct gw_about about;
    char at[32];
    unsigned asks;
    session_about(s, &about);
    (void)session_asks(s, &asks);
    br_time_iso(at, about.started_us);
    br_buf_printf(b, "\"sessionId\":\"%s\",\"status\":\"%s\"", session_id(s),
                  harness_status(session_state(s)));
    harness_put_text(b, "workspace", about.workspace, BR_PATH_MAX);
    harness_put_text(b, "model", about.model, BR_NAME_MAX);
    br_buf_printf(b, ",\"startedAt\":\"%s\",\"asks\":%u,\"owned\":%s", at, asks,
                  session_owner(s) ? "true" : "false");
}

void harness_put_session(struct br_buf *b, struct gw_session *s)
{
    struct gw_about about;
    session_about(s, &about);
    br_buf_printf(b, "{");
    put_live(b, s);
    harness_put_text(b, "goal", about.goal, BR_PATH_MAX);
    br_buf_printf(b, ",\"events\":%llu,\"live\":true}", (unsigned long long)about.rows);
}

static void put_session(void *ctx, struct gw_session *s)
{
    struct br_buf *b = ctx;
    br_buf_put(b, ",", b->data[b->len - 1] != '[');
    harness_put_session(b, s);
}

/* ---- watching ---- */

void harness_ext_changed(struct harness *h, struct gw_session *s)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8 * BR_PATH_MAX);
    br_buf_printf(&b, "{\"jsonrpc\":\"2.0\",\"method\":\"bridle/session\",\"params\":{");
    put_live(&b, s);
    br_buf_printf(&b, "}}");
    if (!b.failed)
        (void)conn_send(h->c, &(struct gw_piece){b.data, b.len}, 1);
}

static void on_changed(struct gw_watch *w, struct gw_session *s)
{
    harness_ext_changed((struct harness *)((char *)w - offsetof(struct harness, watch)), s);
}

static void do_watch(struct harness *h, const char *id, const struct harness_args *a)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(16u << 20);
    (void)a;
    br_buf_printf(&b, "{\"sessions\":[");
    sessions_each(h->g, put_session, &b);
    br_buf_printf(&b, "]}");
    if (!h->watch.gateway_) {
        h->watch.changed = on_changed;
        sessions_watch(h->g, &h->watch);
    }
    harness_reply(h, id, &b);
}

/* ---- following and leaving ---- */

static void do_unfollow(struct harness *h, const char *id, const struct harness_args *a)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8);
    struct gw_session *s = harness_session(h, id, a->text[0], true);
    if (!s)
        return;
    struct harness_follow *f = harness_follow_find(h, s);
    if (f) {
        f->quiet = true;
        harness_follow_drop(f);
    }
    br_buf_printf(&b, "{}");
    harness_reply(h, id, &b);
}

static void do_detach(struct harness *h, const char *id, const struct harness_args *a)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(32);
    struct br_err err = {.code = BR_OK};
    struct gw_session *s = harness_session(h, id, a->text[0], false);
    if (!s)
        return;
    int r = session_detach(s, &err);
    if (r < 0) {
        harness_error(h, id, r == -BR_E_DENIED ? HARNESS_FORBIDDEN : HARNESS_ALREADY_RUN, "%s",
                      err.text);
        return;
    }
    br_buf_printf(&b, "{\"detached\":true}");
    harness_reply(h, id, &b);
}

#define FROM                                                                                       \
    {"sessionId", PARAM_TEXT, true, 1, 256}, {"after", PARAM_ROW, false, 0, 0},                    \
    {                                                                                              \
        "afterBridle", PARAM_ROW, false, 0, 0                                                      \
    }

/* clang-format off */
const struct harness_method harness_more[] = {
    {"session/list", NEEDS_SESSIONS, BR_ACCESS_OBSERVE, {
        {"limit", PARAM_COUNT, false, 1, 200}, {"before", PARAM_TEXT, false, 1, 256},
        {"query", PARAM_TEXT, false, 1, 256},
     }, harness_do_list},
    {"session/load", NEEDS_SESSIONS, BR_ACCESS_OBSERVE, {FROM}, harness_do_load},
    {"session/resume", NEEDS_SESSIONS, BR_ACCESS_OPERATE, {FROM}, harness_do_resume},
    {"session/watch", NEEDS_EXTENSION, BR_ACCESS_OBSERVE, {{NULL}}, do_watch},
    {"session/unfollow", NEEDS_EXTENSION, BR_ACCESS_OBSERVE, {
        {"sessionId", PARAM_TEXT, true, 1, 256},
     }, do_unfollow},
    {"session/detach", NEEDS_EXTENSION, BR_ACCESS_OPERATE, {
        {"sessionId", PARAM_TEXT, true, 1, 256},
     }, do_detach},
};
/* clang-format on */
const unsigned harness_more_count = BR_ARRAY_LEN(harness_more);

void harness_ext_closed(struct harness *h)
{
    sessions_unwatch(&h->watch);
}
