/*
 * Mode read: the runs of the store, or one run's events, to the client; every event's hash is
 * checked on the way. Blocking, with a bound: there is nothing else to do.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit/audit_priv.h"

/* One line of a file in /proc; false if it cannot be read. */
static bool read_line(const char *path, char *dst, size_t cap)
{
    BR_CLEANUP_FILE FILE *f = fopen(path, "re");
    if (!f || !fgets(dst, (int)cap, f))
        return false;
    dst[strcspn(dst, "\n")] = 0;
    return true;
}

bool owner_alive(const char *owner)
{
    char boot[64], stat[1024], path[64], own_boot[64];
    unsigned long pid;
    unsigned long long start, seen;
    if (sscanf(owner, "%lu:%llu:%63s", &pid, &start, boot) != 3 || pid == 0)
        return false; /* nobody wrote that: nobody is there */
    /* without /proc nothing is known, and a live run must not be closed */
    if (!read_line("/proc/sys/kernel/random/boot_id", own_boot, sizeof(own_boot)))
        return true;
    if (strcmp(boot, own_boot) != 0)
        return false;
    if (!read_line("/proc/1/stat", stat, sizeof(stat)))
        return true;
    snprintf(path, sizeof(path), "/proc/%lu/stat", pid);
    if (!read_line(path, stat, sizeof(stat)))
        return false;
    /* the name may hold anything; the fields count from behind its last parenthesis, state is 3 */
    char *p = strrchr(stat, ')');
    if (p && p[1] == ' ' && (p[2] == 'Z' || p[2] == 'X'))
        return false; /* dead, only not buried */
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    if (!p || sscanf(p, " %llu", &seen) != 1)
        return true;
    return seen == start;
}

static const char *status_of(const struct br_store_info *i)
{
    return i->status[0] ? i->status : owner_alive(i->owner) ? "running" : "interrupted";
}

static int send_info(struct audit *a, const struct br_store_info *i, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, i->run_id);
    br_buf_put_u64(&o.buf, i->started_us);
    br_buf_put_u64(&o.buf, i->ended_us);
    br_buf_put_str(&o.buf, status_of(i));
    br_buf_put_str(&o.buf, i->model);
    br_buf_put_str(&o.buf, i->workspace);
    br_buf_put_str(&o.buf, i->goal);
    br_buf_put_u64(&o.buf, i->events);
    return feed_send(a, BR_MSG_RUN_ROW, &o, err);
}

/* The store knows of a run without an end only that it has none. */
static bool has_words(const struct br_store_info *i, const struct br_store_words *w)
{
    const char *places[] = {i->run_id, i->goal, i->workspace, i->model, status_of(i)};
    for (unsigned k = 0; k < w->n; k++) {
        bool found = false;
        for (size_t p = 0; p < BR_ARRAY_LEN(places) && !found; p++)
            found = strcasestr(places[p], w->word[k]) != NULL;
        if (!found)
            return false;
    }
    return true;
}

/* Newest first, those that have the words, before a run, and no more than were asked for. */
static int read_newest(struct audit *a, struct br_err *err)
{
    struct br_store_info info = {.id = INT64_MAX};
    struct br_store_words words;
    uint32_t left = a->show.limit ? a->show.limit : UINT32_MAX;
    br_store_words(&words, a->show.words);
    int r = a->show.before[0] ? br_store_find(a->rec.store, a->show.before, &info, err) : 0;
    while (r >= 0 && left) {
        r = br_store_earlier_run(a->rec.store, info.id, &words, &info, err);
        if (r <= 0)
            return r;
        if (!info.status[0] && !has_words(&info, &words))
            continue;
        r = send_info(a, &info, err);
        left--;
    }
    return r < 0 ? r : 0;
}

static int read_list(struct audit *a, struct br_err *err)
{
    struct br_store_info info = {.id = 0};
    if (a->show.limit || a->show.words[0])
        return read_newest(a, err);
    for (;;) {
        int r = br_store_next_run(a->rec.store, info.id, false, &info, err);
        if (r <= 0)
            return r;
        r = send_info(a, &info, err);
        if (r < 0)
            return r;
    }
}

/* The rows of later runs that are promotions of this one. */
static int read_linked(struct audit *a, const struct br_store_info *of, struct br_err *err)
{
    char goal[BR_ID_MAX + 16];
    struct br_store_info info = {.id = of->id};
    snprintf(goal, sizeof(goal), "promote %s", of->run_id);
    for (;;) {
        int r = br_store_next_run(a->rec.store, info.id, false, &info, err);
        if (r <= 0)
            return r;
        if (strcmp(info.goal, goal) == 0 && strcmp(info.model, "none") == 0 &&
            (r = send_info(a, &info, err)) < 0)
            return r;
    }
}

static int read_one(struct audit *a, struct br_err *err)
{
    struct br_store_info info;
    struct br_store_run run;
    BR_CLEANUP_BUF struct br_buf body = BR_BUF_INIT(2 * BR_EVENT_MAX);
    int r = br_store_find(a->rec.store, a->show.run_id, &info, err);
    if (r == 0)
        r = send_info(a, &info, err);
    if (r < 0)
        return r;
    br_store_rewind(&info, &run);
    for (;;) {
        br_buf_reset(&body);
        r = br_store_next_event(a->rec.store, &run, &body, err);
        if (r <= 0)
            return r < 0 ? r : read_linked(a, &info, err);
        if (run.rows <= a->show.row) /* read all the same: its hash is in those behind it */
            continue;
        BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
        br_buf_put_u64(&o.buf, run.rows);
        br_out_blob(&o, body.data, body.len);
        r = feed_send(a, BR_MSG_EVENT, &o, err);
        if (r < 0)
            return r;
    }
}

int read_run(struct audit *a, struct br_err *err)
{
    if (a->client.fd < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "nobody is there to read for");
    int r = a->show.run_id[0] ? read_one(a, err) : read_list(a, err);
    feed_end(a, r, r < 0 && err ? err->text : "");
    return r;
}
