/*
 * Durable events: appended, redacted, checked, chained, stored, synced, shown, 64 on their way.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/recorder.h"

#define SECONDS 5u

/* How many events are in one message. */
static unsigned count(const uint8_t *p, size_t n)
{
    struct br_msg_header h;
    unsigned events = 0;
    memcpy(&h, p, sizeof(h));
    if (h.type == BR_MSG_EVENT)
        return 1;
    for (size_t at = sizeof(h) + 8; h.type == BR_MSG_EVENTS && at + 4 <= n; events++) {
        uint32_t size;
        memcpy(&size, p + at, 4);
        at += 4 + size;
    }
    return events;
}

static int take(int fd, uint64_t *shown, struct br_err *err)
{
    static uint8_t room[BR_MSG_MAX + 64];
    for (;;) {
        ssize_t n = recv(fd, room, sizeof(room), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n <= 0)
            return br_err_errno(err, BR_E_IO, "the events could not be read");
        *shown += count(room, (size_t)n);
    }
}

int bench_durable_alone(double *rate, struct br_err *err)
{
    struct bench_recorder r;
    uint64_t shown = 0;
    int ret = bench_recorder_open(&r, bench_scratch(), "run_bench", err);
    uint64_t start = br_now_us(), end = start + SECONDS * 1000000u, now = start;
    while (ret == 0 && ((now = br_now_us()) < end || shown < r.made)) {
        if (now < end && r.made - shown < BENCH_IN_FLIGHT)
            ret = bench_recorder_append(&r, (unsigned)(BENCH_IN_FLIGHT - (r.made - shown)), err);
        struct pollfd p[2] = {{.fd = r.client, .events = POLLIN},
                              {.fd = r.session, .events = POLLIN}};
        if (ret == 0)
            (void)poll(p, 2, 1000);
        if (ret == 0)
            ret = bench_recorder_answers(&r, err);
        if (ret == 0)
            ret = take(r.client, &shown, err);
    }
    *rate = (double)shown * 1e6 / (double)(br_now_us() - start);
    int c = bench_recorder_close(&r, ret < 0 ? NULL : err);
    bench_note("  processor time of bridle-audit: %.2f us an event", r.cpu_us / (double)shown);
    return ret < 0 ? ret : c;
}
