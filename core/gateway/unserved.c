/*
 * What bridle-gateway does without protocols and sessions: every request is answered with "method
 * not found". Each function gives way to the one of the same name in session.c, replay.c,
 * harness.c, acp.c and otlp.c.
 */
#include <string.h>

#include "gateway/gateway_priv.h"

#define WEAK __attribute__((weak))

static void on_open(struct conn *c)
{
    (void)c;
}

static void on_message(struct conn *c, const char *text, size_t n)
{
    static const char error[] = "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32601,"
                                "\"message\":\"method not found\",\"data\":{\"code\":"
                                "\"ACP_METHOD_NOT_FOUND\"}}}";
    (void)text;
    (void)n;
    (void)conn_send(c, &(struct gw_piece){error, sizeof(error) - 1}, 1);
}

WEAK const struct gw_protocol gw_harness = {"harness.acp.1", on_open, on_message, NULL, on_open};

WEAK int replay_on_reading(struct gateway *g, struct br_msg *m, struct br_err *err)
{
    (void)g;
    return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridled' sent %s unasked", br_msg_name(m->type));
}

WEAK struct gw_replay *replay_begin(struct gateway *g, const char *run_id, uint32_t limit,
                                    const char *before, const char *words,
                                    const struct gw_reader *r, void *ctx)
{
    (void)g, (void)run_id, (void)limit, (void)before, (void)words;
    r->done(ctx, -BR_E_NOT_FOUND, NULL);
    return NULL;
}

WEAK void replay_more(struct gw_replay *p)
{
    (void)p;
}

WEAK void replay_cancel(struct gw_replay **p)
{
    *p = NULL;
}

WEAK int otlp_begin(struct gateway *g, int fd, struct br_err *err)
{
    (void)g;
    (void)err;
    br_close(&fd);
    return 0;
}

WEAK void otlp_event(struct gateway *g, struct gw_session *s, const struct gw_event *e)
{
    (void)g, (void)s, (void)e;
}

WEAK void otlp_ended(struct gateway *g, struct gw_session *s)
{
    (void)g, (void)s;
}
