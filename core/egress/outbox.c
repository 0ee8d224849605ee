/*
 * A queue of messages to the broker. Called by bridle-egress's loop only.
 */
#include <stdlib.h>
#include <string.h>

#include "egress/outbox.h"

struct br_outbox_message {
    struct br_outbox_message *next;
    enum br_msg_type type;
    uint64_t id;
    struct br_out out;
};

void br_outbox_init(struct br_outbox *o, struct br_chan *to)
{
    *o = (struct br_outbox){.to = to};
}

void br_outbox_free(struct br_outbox *o)
{
    for (struct br_outbox_message *m; (m = o->first);) {
        o->first = m->next;
        br_out_free(&m->out);
        free(m);
    }
    o->last = NULL;
}

static int keep(struct br_outbox *o, enum br_msg_type type, uint64_t id, struct br_out *out)
{
    struct br_outbox_message *m = calloc(1, sizeof(*m));
    br_require(m != NULL); /* who cannot say how a request ended must not go on */
    *m = (struct br_outbox_message){.type = type, .id = id, .out = *out};
    *out = (struct br_out)BR_OUT_INIT;
    if (o->last)
        o->last->next = m;
    else
        o->first = m;
    o->last = m;
    return -BR_E_TIMEOUT;
}

int br_outbox_send(struct br_outbox *o, enum br_msg_type type, uint64_t id, struct br_out *out)
{
    int r = o->to->fd < 0 ? -BR_E_PEER_GONE : -BR_E_TIMEOUT;
    if (r == -BR_E_TIMEOUT && !o->first)
        r = br_chan_send(o->to, type, id, out, NULL);
    if (r == -BR_E_TIMEOUT)
        return keep(o, type, id, out);
    br_out_free(out);
    return r;
}

int br_outbox_data(struct br_outbox *o, uint64_t id, uint8_t *p, size_t n)
{
    /* a blob inside of the message, as br_out_blob() writes it: u8 0, u32 length, the bytes */
    const uint8_t front[5] = {0, (uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16),
                              (uint8_t)(n >> 24)};
    memcpy(p - sizeof(front), front, sizeof(front));
    struct br_out there = BR_OUT_INIT;
    there.buf.data = p - sizeof(front);
    there.buf.len = n + sizeof(front);
    int r = o->to->fd < 0 ? -BR_E_PEER_GONE : -BR_E_TIMEOUT;
    if (r == -BR_E_TIMEOUT && !o->first)
        r = br_chan_send(o->to, BR_MSG_PROV_DATA, id, &there, NULL);
    if (r != -BR_E_TIMEOUT)
        return r;
    struct br_out out = BR_OUT_INIT;
    br_buf_put(&out.buf, there.buf.data, there.buf.len);
    return keep(o, BR_MSG_PROV_DATA, id, &out);
}

int br_outbox_flush(struct br_outbox *o)
{
    for (struct br_outbox_message *m; (m = o->first);) {
        int r = br_chan_send(o->to, m->type, m->id, &m->out, NULL);
        if (r == -BR_E_TIMEOUT)
            return r;
        o->first = m->next;
        if (!o->first)
            o->last = NULL;
        br_out_free(&m->out);
        free(m);
    }
    return 0;
}
