/*
 * Connections of the gateway inside of the test's process, with a clock that stands until the test
 * moves it, and a protocol that the test plays: for what takes minutes, and for what must not
 * happen inside of a call. The other end is a socket pair.
 */
#ifndef BR_GATEWAY_TEST_INSIDE_H
#define BR_GATEWAY_TEST_INSIDE_H

#include "gateway/conn_priv.h"

/* What the protocol of every connection does; the test sets it. */
struct inside_plan {
    void (*open)(struct conn *c);
    void (*message)(struct conn *c, const char *text, size_t n);
    void (*writable)(struct conn *c);
    void (*closed)(struct conn *c);
};
extern struct inside_plan inside_plan;
extern struct gateway inside;

void inside_start(void);
void inside_stop(void);
/* A connection whose head is still to come; its other end, which does not block. */
struct conn *inside_conn(int *client);
/* The same, upgraded. */
struct conn *inside_open(int *client);
/* Turns without waiting, until nothing happens any more. */
void inside_turn(void);
/* The clock goes on; timers that are due fire on the way, second by second. */
void inside_pass(uint64_t seconds);
uint64_t inside_now(void);

/* The client's side: all that is there, as frames; see test_inside.c. */
struct inside_frame {
    uint8_t op;
    const uint8_t *p;
    size_t n;
};
/* Take the next frame of `in`; false: none is whole. */
bool inside_frame(struct br_buf *in, size_t *at, struct inside_frame *f);
/* Read at most `most` bytes more; the number, 0 at the end, -1: nothing is there. */
ssize_t inside_read(int client, struct br_buf *in, size_t most);
void inside_send(int client, uint8_t first, const void *p, size_t n);

#endif
