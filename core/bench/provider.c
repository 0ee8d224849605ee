/*
 * What the provider's path costs: bridle-broker and bridle-egress between a client on the guest's
 * socket and a server on loopback, beside that server asked directly and beside nginx as a proxy
 * on a Unix socket, by turns in one run. Started by main.c; it starts every process that it
 * measures and ends them.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/asker.h"
#include "bench/bench.h"
#include "bench/bridle_way.h"
#include "bench/upstream.h"

#define TURNS 1000u
#define BULKS 3u
#define STREAMS 200u
#define NGINX "/usr/sbin/nginx"

enum { DIRECT, NGINX_WAY, BRIDLE, WAYS };

struct lanes {
    struct bench_way way[WAYS];
    bool there[WAYS];
    pid_t nginx;
};

static struct samples whole[WAYS], first[WAYS], last[WAYS];

/* ---- nginx ---- */

static int nginx_conf(const char *path, const char *socket, uint16_t port, struct br_err *err)
{
    BR_CLEANUP_FILE FILE *f = fopen(path, "we");
    if (!f)
        return br_err_errno(err, BR_E_IO, "'%s' could not be written", path);
    fprintf(
        f,
        "daemon off;\nmaster_process off;\nerror_log /dev/null crit;\npid %s.pid;\n"
        "events { worker_connections 2048; }\nhttp {\n access_log off;\n"
        " client_body_temp_path %s.body; proxy_temp_path %s.proxy; fastcgi_temp_path %s.f;\n"
        " uwsgi_temp_path %s.u; scgi_temp_path %s.s; keepalive_requests 1000000;\n"
        " upstream up { server 127.0.0.1:%u; keepalive 256; keepalive_requests 1000000; }\n"
        " server { listen unix:%s;\n  location / { proxy_pass http://up; proxy_http_version 1.1;"
        " proxy_set_header Connection \"\"; proxy_buffering off; } }\n}\n",
        path, path, path, path, path, path, port, socket);
    return 0;
}

static int nginx_start(struct lanes *l, uint16_t port, struct br_err *err)
{
    char conf[160];
    struct bench_way *w = &l->way[NGINX_WAY];
    if (access(NGINX, X_OK) < 0) {
        bench_note("  nginx is not installed: measured without it");
        return 0;
    }
    snprintf(conf, sizeof(conf), "%s/nginx", bench_scratch());
    snprintf(w->path, sizeof(w->path), "%s/nginx.sock", bench_scratch());
    w->name = "nginx";
    int r = nginx_conf(conf, w->path, port, err);
    l->nginx = r < 0 ? -1 : fork();
    if (l->nginx == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl(NGINX, "nginx", "-c", conf, "-e", "/dev/null", "-p", bench_scratch(), (char *)NULL);
        _exit(127);
    }
    for (int i = 0; r == 0 && i < 300 && access(w->path, F_OK) < 0; i++)
        usleep(10000);
    l->there[NGINX_WAY] = r == 0 && access(w->path, F_OK) == 0;
    return r;
}

/* ---- rows ---- */

static int turn(struct lanes *l, struct bench_asker a[WAYS], bool stream, struct br_err *err)
{
    for (int i = 0; i < WAYS; i++) {
        if (!l->there[i])
            continue;
        int r = bench_asker_exchange(&a[i], err);
        if (r < 0)
            return r;
        samples_add(stream ? &first[i] : &whole[i], a[i].started_us,
                    stream ? a[i].first_us : a[i].ended_us);
        if (stream)
            samples_add(&last[i], a[i].started_us, a[i].ended_us);
    }
    return 0;
}

static int turns(struct lanes *l, bool stream, struct br_err *err)
{
    struct bench_asker a[WAYS] = {{.fd = -1}, {.fd = -1}, {.fd = -1}};
    int r = 0;
    for (int i = 0; r == 0 && i < WAYS; i++)
        if (l->there[i])
            r = bench_asker_open(&a[i], &l->way[i], stream ? "stream" : "whole", stream, err);
    for (unsigned i = 0; r == 0 && i < TURNS; i++)
        r = turn(l, a, stream, err);
    for (int i = 0; i < WAYS; i++)
        bench_asker_close(&a[i]);
    return r;
}

static void added_rows(const char *what, struct samples s[WAYS], bool nginx)
{
    char name[64];
    double direct = samples_median(&s[DIRECT]), p99 = samples_p99(&s[DIRECT]);
    snprintf(name, sizeof(name), "%s, added", what);
    bench_row(name, samples_median(&s[BRIDLE]) - direct, "us", NULL, 0, 120, false);
    bench_row("  99th percentile, added", samples_p99(&s[BRIDLE]) - p99, "us", NULL, 0, 1000,
              false);
    bench_note("  direct %.0f us (99th percentile %.0f), through Bridle %.0f (%.0f)", direct, p99,
               samples_median(&s[BRIDLE]), samples_p99(&s[BRIDLE]));
    if (nginx)
        bench_note("  nginx adds %.0f us (99th percentile %.0f)",
                   samples_median(&s[NGINX_WAY]) - direct, samples_p99(&s[NGINX_WAY]) - p99);
}

static int bulk_rate(const struct bench_way *w, const char *mode, double *rate, struct br_err *err)
{
    struct bench_asker a = {.fd = -1};
    *rate = 0;
    int r = bench_asker_open(&a, w, mode, true, err);
    for (unsigned i = 0; r == 0 && i < BULKS; i++) {
        r = bench_asker_exchange(&a, err);
        double now = (double)a.bytes / (double)(a.ended_us - a.started_us);
        if (r == 0 && now > *rate)
            *rate = now;
    }
    bench_asker_close(&a);
    return r;
}

static int bulk_rows(struct lanes *l, struct br_err *err)
{
    static const struct {
        const char *mode, *text;
    } kinds[] = {{"bulk", "events of 16 KiB"}, {"small", "events of 240 bytes"}};
    for (unsigned k = 0; k < BR_ARRAY_LEN(kinds); k++) {
        double rate[WAYS] = {0};
        for (int i = 0; i < WAYS; i++) {
            int r = l->there[i] ? bulk_rate(&l->way[i], kinds[k].mode, &rate[i], err) : 0;
            if (r < 0)
                return r;
        }
        if (k == 0)
            bench_row("one stream", rate[BRIDLE], "MB/s", NULL, 0, 400, true);
        bench_note("  %s: direct %.0f MB/s, nginx %.0f, through Bridle %.0f", kinds[k].text,
                   rate[DIRECT], rate[NGINX_WAY], rate[BRIDLE]);
    }
    return 0;
}

/* Many at once; the time until the last has ended, in microseconds. */
static int paced(const struct bench_way *w, double *us, struct br_err *err)
{
    static struct bench_asker a[STREAMS];
    struct pollfd p[STREAMS];
    unsigned opened = 0, open = 0;
    int r = 0;
    for (; r == 0 && opened < STREAMS; opened += r == 0)
        r = bench_asker_open(&a[opened], w, "paced", true, err);
    for (unsigned i = 0; r == 0 && i < opened; i++) {
        r = bench_asker_ask(&a[i], err);
        p[i] = (struct pollfd){.fd = a[i].fd, .events = POLLIN};
        open++;
    }
    while (r == 0 && open && poll(p, opened, 30000) > 0) {
        for (unsigned i = 0; r >= 0 && i < opened; i++) {
            if (!p[i].revents)
                continue;
            r = bench_asker_read(&a[i], err);
            if (r == 1) {
                p[i].fd = -1;
                p[i].revents = 0;
                open--;
            }
        }
        r = r < 0 ? r : 0;
    }
    if (r == 0 && open)
        r = br_err_set(err, BR_E_TIMEOUT, "%u of %u paced streams did not end", open, STREAMS);
    *us = 0;
    for (unsigned i = 0; i < opened; i++) {
        double t = (double)(a[i].ended_us - a[i].started_us);
        *us = t > *us ? t : *us;
        bench_asker_close(&a[i]);
    }
    return r;
}

static int paced_row(struct lanes *l, struct br_err *err)
{
    const double ideal = (double)BENCH_PACE_US * BENCH_PACED_EVENTS;
    double us[WAYS] = {0};
    for (int i = 0; i < WAYS; i++) {
        int r = l->there[i] ? paced(&l->way[i], &us[i], err) : 0;
        if (r < 0)
            return r;
    }
    bench_row("200 paced streams, the slowest", us[BRIDLE] / 1000, "ms", "ideal", ideal / 1000,
              1.02, false);
    bench_note("  direct %.1f ms, nginx %.1f", us[DIRECT] / 1000, us[NGINX_WAY] / 1000);
    return 0;
}

static int measure(struct lanes *l, struct br_err *err)
{
    int r = turns(l, false, err);
    if (r < 0)
        return r;
    added_rows("provider request", whole, l->there[NGINX_WAY]);
    r = turns(l, true, err);
    if (r < 0)
        return r;
    added_rows("first byte of a stream", first, l->there[NGINX_WAY]);
    bench_note("  to its end: direct %.0f us, through Bridle %.0f", samples_median(&last[DIRECT]),
               samples_median(&last[BRIDLE]));
    r = bulk_rows(l, err);
    return r < 0 ? r : paced_row(l, err);
}

static void end_process(pid_t *pid)
{
    if (*pid <= 0)
        return;
    (void)kill(*pid, SIGKILL);
    (void)waitpid(*pid, NULL, 0);
    *pid = 0;
}

int bench_provider(struct br_err *err)
{
    static struct lanes l = {.nginx = 0};
    struct bench_upstream up = {.pid = 0};
    struct bench_bridle *bridle = NULL;
    int r = bench_upstream_start(&up, err);
    l.way[DIRECT] = (struct bench_way){.name = "the server", .port = up.port};
    l.there[DIRECT] = true;
    if (r == 0)
        r = nginx_start(&l, up.port, err);
    if (r == 0)
        r = bench_bridle_open(&bridle, up.port, &l.way[BRIDLE], err);
    l.there[BRIDLE] = r == 0;
    if (r == 0)
        r = measure(&l, err);
    bench_bridle_close(&bridle);
    end_process(&l.nginx);
    end_process(&up.pid);
    return r;
}
