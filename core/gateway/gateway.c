/*
 * What the layers of the gateway ask of the whole: its settings and counters, and the way to
 * bridled, which never waits. Both may write to each other at once, so what bridled's channel has
 * no room for is kept here until there is; how much that can be is bounded by what clients may ask.
 */
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "gateway/conn_priv.h"

/* ---- to bridled ---- */

static void letters_flush(struct gateway *g)
{
    while (g->letters) {
        struct gw_letter *l = g->letters;
        int r = br_chan_send(&g->sup, l->type, l->id, &l->out, NULL);
        if (r == -BR_E_TIMEOUT)
            break;
        g->letters = l->next;
        br_out_free(&l->out);
        free(l);
    }
    if (!g->letters)
        g->letters_end = &g->letters;
    (void)poll_watch(g, EPOLL_CTL_MOD, g->sup_out, g->letters ? EPOLLOUT : 0, &g->sup_io);
}

static void on_sup_room(void *ctx, uint32_t events)
{
    if (events & EPOLLOUT)
        letters_flush(ctx);
}

int gw_to_bridled(struct gateway *g, enum br_msg_type type, uint64_t id, struct br_out *o,
                  struct br_err *err)
{
    struct br_out none = BR_OUT_INIT;
    if (!o)
        o = &none;
    int r = g->letters ? -BR_E_TIMEOUT : br_chan_send(&g->sup, type, id, o, err);
    if (r != -BR_E_TIMEOUT) {
        br_out_free(o);
        return r;
    }
    struct gw_letter *l = calloc(1, sizeof(*l));
    if (!l) {
        br_out_free(o);
        return br_err_set(err, BR_E_NOMEM, "no memory for a message to 'bridled'");
    }
    *l = (struct gw_letter){.type = type, .id = id, .out = *o};
    *o = none;
    *g->letters_end = l;
    g->letters_end = &l->next;
    letters_flush(g);
    return 0;
}

int letters_init(struct gateway *g)
{
    g->sup_io = (struct gw_io){.fn = on_sup_room, .ctx = g};
    g->letters_end = &g->letters;
    g->sup_out = dup(g->sup.fd); /* epoll knows a descriptor once; this one is for room */
    return g->sup_out < 0 ? -1 : poll_watch(g, EPOLL_CTL_ADD, g->sup_out, 0, &g->sup_io);
}

/* ---- what the other layers ask ---- */

const struct br_service *gw_settings(const struct gateway *g)
{
    return &g->settings;
}

struct gw_counters *gw_counters(struct gateway *g)
{
    return &g->counters;
}

bool gw_draining(const struct gateway *g)
{
    return g->draining;
}

char *const *gw_models(const struct gateway *g, unsigned *n)
{
    *n = g->nmodels;
    return g->models;
}

const char *gw_version(void)
{
    return BRIDLE_VERSION;
}

void **gw_sessions_slot(struct gateway *g)
{
    return &g->sessions;
}

void **gw_otlp_slot(struct gateway *g)
{
    return &g->otlp;
}

void **gw_replays_slot(struct gateway *g)
{
    return &g->replays;
}
