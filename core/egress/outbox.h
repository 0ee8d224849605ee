/*
 * core/egress, private: what goes to the broker, in order, without ever waiting for it. What does
 * not fit into its channel now is kept; how much that can be is bounded by what transfers may still
 * say: a head and an end each, and one part of a body.
 */
#ifndef BR_EGRESS_OUTBOX_H
#define BR_EGRESS_OUTBOX_H

#include "wire/wire.h"

struct br_outbox_message;
struct br_outbox {
    struct br_chan *to; /* borrowed */
    struct br_outbox_message *first, *last;
};

void br_outbox_init(struct br_outbox *o, struct br_chan *to);
void br_outbox_free(struct br_outbox *o);
/* Takes over `out`. 0, -BR_E_TIMEOUT if something is kept now, or another negative code, and then
 * the message is lost, as its reader is. */
int br_outbox_send(struct br_outbox *o, enum br_msg_type type, uint64_t id, struct br_out *out);
/* PROV_DATA of these bytes, which are not copied if they can be sent at once. The 5 bytes in front
 * of them are overwritten. */
int br_outbox_data(struct br_outbox *o, uint64_t id, uint8_t *p, size_t n);
/* Send what is kept: as above. */
int br_outbox_flush(struct br_outbox *o);

#endif
