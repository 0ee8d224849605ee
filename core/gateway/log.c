/*
 * The log of bridle-gateway: one JSON object a line on standard error, written at once or not at
 * all, because nothing here may wait for who reads it. Warnings are what clients can cause, so they
 * have a rate; what is left out is counted, and /metrics tells.
 */
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "gateway/conn_priv.h"

#define LOG_VALUE_MAX 256u
#define LOG_LINE_MAX 4000u /* less than PIPE_BUF: a line is whole or missing */
#define LOG_WARNINGS_BURST 200u
#define LOG_WARNING_US 20000u /* 50 a second */

static void put_string(struct br_buf *b, const char *s)
{
    size_t n = strnlen(s, LOG_VALUE_MAX + 1);
    if (n > LOG_VALUE_MAX)
        n = br_utf8_floor(s, LOG_VALUE_MAX);
    br_buf_put_json_str(b, s, n);
}

void gw_log(struct gateway *g, enum br_log_level level, const char *event, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    struct pollfd p = {.fd = g->log_fd, .events = POLLOUT};
    if (level > g->log_max)
        return;
    if ((level == BR_LOG_WARN &&
         !peer_rate(&g->log_at, br_now_us(), LOG_WARNING_US, LOG_WARNINGS_BURST)) ||
        poll(&p, 1, 0) != 1 || !(p.revents & POLLOUT)) {
        g->log_dropped++;
        return;
    }
    char at[32];
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(LOG_LINE_MAX);
    br_time_iso(at, br_now_wall_us());
    br_buf_printf(&b,
                  "{\"at\":\"%s\",\"level\":\"%s\",\"program\":\"bridle-gateway\",\"event\":", at,
                  names[level]);
    put_string(&b, event);
    va_list ap;
    va_start(ap, event);
    for (const char *name; (name = va_arg(ap, const char *));) {
        const char *value = va_arg(ap, const char *);
        br_buf_put_u8(&b, ',');
        put_string(&b, name);
        br_buf_put_u8(&b, ':');
        put_string(&b, value ? value : "");
    }
    va_end(ap);
    br_buf_printf(&b, "}\n");
    if (b.failed || write(g->log_fd, b.data, b.len) != (ssize_t)b.len)
        g->log_dropped++;
}
