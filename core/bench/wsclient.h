/*
 * core/bench, private: a WebSocket client that costs little, the same for every server.
 */
#ifndef BR_BENCH_WSCLIENT_H
#define BR_BENCH_WSCLIENT_H

#include "base/base.h"

struct bench_ws {
    int fd;
    uint8_t *in;
    size_t have, room;
    struct br_buf out; /* what the socket did not take yet */
};
/* Connect to 127.0.0.1:port and shake hands. */
int bench_ws_open(struct bench_ws *w, uint16_t port, const char *path, struct br_err *err);
void bench_ws_close(struct bench_ws *w);
/* One text message, masked; sent with the next flush. */
void bench_ws_put(struct bench_ws *w, const char *text, size_t n);
int bench_ws_flush(struct bench_ws *w, struct br_err *err);
/* What has come: `text` is called for each text message; pings are answered. Never waits.
 * -BR_E_PEER_GONE if the server closes. */
typedef void bench_ws_fn(void *ctx, const char *text, size_t n);
int bench_ws_take(struct bench_ws *w, bench_ws_fn *text, void *ctx, struct br_err *err);
/* Wait for one text message that has `part` in it and copy it; 10 s at most. */
int bench_ws_wait(struct bench_ws *w, const char *part, char *dst, size_t cap, struct br_err *err);

#endif
