/*
 * The played world's store: what a GATE_READ is answered with, and what is shown on its channel.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/test_world.h"

void world_reading(struct gateway *g, int code, const char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    int fds[2];
    assert_true(g->read_call > 0);
    br_buf_put_u32(&o.buf, (uint32_t)code);
    br_buf_put_str(&o.buf, text);
    if (!code) {
        assert_int_equal(br_chan_pair(fds), 0);
        br_chan_close(&g->store);
        br_chan_init(&g->store, fds[0], "gateway", NULL, 0, NULL);
        (void)fcntl(fds[0], F_SETFL, O_NONBLOCK);
        br_out_fd(&o, fds[1], true);
    }
    assert_int_equal(br_chan_send(&g->down, BR_MSG_GATE_READING, g->read_call, &o, NULL), 0);
    g->read_call = 0;
    world_pump(g);
}

void world_row(struct gateway *g, const char *id, const char *status, const char *goal,
               uint64_t events)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, id);
    br_buf_put_u64(&o.buf, 1767225600000000);
    br_buf_put_u64(&o.buf, strcmp(status, "running") == 0 ? 0 : 1767225601000000);
    br_buf_put_str(&o.buf, status);
    br_buf_put_str(&o.buf, "scripted");
    br_buf_put_str(&o.buf, "/srv/work/a");
    br_buf_put_str(&o.buf, goal);
    br_buf_put_u64(&o.buf, events);
    (void)br_chan_send(&g->store, BR_MSG_RUN_ROW, 0, &o, NULL);
    world_pump(g);
}

void world_stored(struct gateway *g, uint64_t row, bool own)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    char text[256];
    int n = snprintf(text, sizeof(text),
                     "{\"v\":1,\"type\":\"%s\",\"eventId\":\"evt_%llu\",\"at\":"
                     "\"2026-03-01T10:00:00.000+00:00\",\"data\":{}}",
                     own ? "bridle.notice" : "error", (unsigned long long)row);
    br_buf_put_u64(&o.buf, row);
    br_out_blob(&o, text, (size_t)n);
    g->store_full = br_chan_send(&g->store, BR_MSG_EVENT, 0, &o, NULL) < 0;
    world_pump(g);
}

void world_reading_end(struct gateway *g, int code)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, (uint32_t)code);
    br_buf_put_str(&o.buf, code ? "the store is broken" : "");
    (void)br_chan_send(&g->store, BR_MSG_EVENTS_END, 0, &o, NULL);
    br_chan_close(&g->store);
    world_pump(g);
}
