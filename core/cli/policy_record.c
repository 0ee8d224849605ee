/*
 * Recorded decisions, out of the store or out of a file that `bridle show --json` wrote: for each
 * one the call as the model made it, when, and what was decided; and for each run its pinned table.
 * The store's bytes were checked by bridle-audit. A file is anybody's: it is scanned and parsed
 * strictly, and one bad line refuses it whole.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/policy_priv.h"

#define DECISIONS_MAX 200000u
#define RUNS_MAX 10000u
#define LINE_NODES_MAX 100000u

void policy_history_free(struct policy_history *h)
{
    for (size_t i = 0; i < h->nruns; i++) {
        struct policy_run *r = &h->runs[i];
        for (size_t k = 0; k < r->n; k++) {
            json_decref(r->d[k].call);
            json_decref(r->d[k].votes);
            json_decref(r->d[k].context);
        }
        free(r->d);
        json_decref(r->run);
        json_decref(r->table);
        json_decref(r->calls);
    }
    free(h->runs);
    memset(h, 0, sizeof(*h));
}

static struct policy_run *new_run(struct policy_history *h, const char *id)
{
    if (h->nruns == RUNS_MAX)
        return NULL;
    struct policy_run *runs = realloc(h->runs, (h->nruns + 1) * sizeof(*runs));
    if (!runs)
        return NULL;
    h->runs = runs;
    struct policy_run *r = &runs[h->nruns++];
    *r = (struct policy_run){.calls = json_object()};
    snprintf(r->id, sizeof(r->id), "%s", id);
    return r;
}

/* "2026-03-01T10:00:00.123+00:00": always UTC. 0 if it is none. */
static json_int_t unix_time(const char *at)
{
    struct tm tm = {.tm_isdst = 0};
    const char *rest = strptime(at, "%Y-%m-%dT%H:%M:%S", &tm);
    return rest ? (json_int_t)timegm(&tm) : 0;
}

static bool holds_redacted(const json_t *call)
{
    BR_CLEANUP_FREE char *text = json_dumps(call, JSON_COMPACT);
    return text && strstr(text, "[redacted:");
}

static int on_votes(struct policy_run *r, const json_t *data, const char *at)
{
    const char *id = json_string_value(json_object_get(data, "callId"));
    if (r->n == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 64;
        struct policy_decision *d = cap > DECISIONS_MAX ? NULL : realloc(r->d, cap * sizeof(*d));
        if (!d)
            return -BR_E_LIMIT_EXCEEDED;
        r->d = d;
        r->cap = cap;
    }
    struct policy_decision *d = &r->d[r->n++];
    *d = (struct policy_decision){.votes = json_incref((json_t *)(uintptr_t)data)};
    json_t *call = json_object_get(r->calls, id);
    if (call)
        d->call = json_pack("{s:O, s:O}", "tool", json_object_get(call, "tool"), "input",
                            json_object_get(call, "input"));
    else /* of a record without it: as it was decided; a command's subject is a line of a shell */
        d->call = json_pack(
            "{s:O, s:O*}", "action", json_object_get(data, "action"),
            strcmp(json_string_value(json_object_get(data, "action")), "process.exec") == 0
                ? "shell"
                : "subject",
            json_object_get(data, "subject"));
    d->redacted = holds_redacted(d->call);
    const char *model = json_string_value(json_object_get(r->run, "model"));
    bool exec = json_string_value(json_object_get(r->run, "mode")) &&
                strcmp(json_string_value(json_object_get(r->run, "mode")), "exec") == 0;
    d->context = json_pack("{s:I, s:s, s:I, s:I, s:I}", "time", unix_time(at), "model",
                           model && !exec ? model : "", "calls", (json_int_t)r->ncalls, "tokens",
                           (json_int_t)r->tokens, "asks", (json_int_t)r->asks);
    return 0;
}

static int on_part(struct policy_run *r, const json_t *data)
{
    uint64_t part = view_u64(data, "part"), parts = view_u64(data, "parts");
    json_t *table = json_object_get(data, "table");
    r->parts = parts;
    if (part != r->seen + 1 || (part > 1 && !r->table))
        return -BR_E_INVALID_JSON;
    r->seen++;
    if (part == 1)
        r->table = json_deep_copy(table);
    else
        json_array_extend(json_object_get(r->table, "rules"), json_object_get(table, "rules"));
    return 0;
}

static bool is_decision(const json_t *data)
{
    const char *effect = json_string_value(json_object_get(data, "effect"));
    return json_is_string(json_object_get(data, "action")) &&
           json_is_string(json_object_get(data, "ruleId")) && effect &&
           (strcmp(effect, "allow") == 0 || strcmp(effect, "ask") == 0 ||
            strcmp(effect, "deny") == 0);
}

int policy_history_event(struct policy_history *h, const char *text, size_t n, struct br_err *err)
{
    json_t *e = NULL;
    if (br_json_scan(text, n, BR_JSON_DEPTH_MAX, LINE_NODES_MAX, NULL) == 0)
        e = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    const char *type = json_string_value(json_object_get(e, "type"));
    const char *at = json_string_value(json_object_get(e, "at"));
    const json_t *data = json_object_get(e, "data");
    const char *id = json_string_value(json_object_get(data, "callId"));
    struct policy_run *r = h->nruns ? &h->runs[h->nruns - 1] : NULL;
    int bad = type && at && json_is_object(data) ? 0 : -BR_E_INVALID_JSON;
    if (bad) {
        json_decref(e);
        return br_err_set(err, BR_E_INVALID_JSON, "it is not an event of a record");
    }
    if (strcmp(type, "session.created") == 0) {
        const char *run = json_string_value(json_object_get(data, "sessionId"));
        bad = run && new_run(h, run) ? 0 : -BR_E_LIMIT_EXCEEDED;
    } else if (!r) {
        bad = -BR_E_INVALID_JSON;
    } else if (strcmp(type, "bridle.run") == 0) {
        json_decref(r->run);
        r->run = json_incref((json_t *)(uintptr_t)data);
    } else if (strcmp(type, "bridle.table") == 0) {
        bad = on_part(r, data);
    } else if (strcmp(type, "tool.call") == 0) {
        r->ncalls++;
        if (id)
            json_object_set(r->calls, id, (json_t *)(uintptr_t)data);
    } else if (strcmp(type, "tool.result") == 0) {
        if (id)
            json_object_del(r->calls, id);
    } else if (strcmp(type, "model.response") == 0) {
        r->tokens += view_u64(json_object_get(data, "usage"), "totalTokens");
    } else if (strcmp(type, "permission.requested") == 0) {
        r->asks++;
    } else if (strcmp(type, "bridle.votes") == 0) {
        bad = id && is_decision(data) ? on_votes(r, data, at) : -BR_E_INVALID_JSON;
    }
    json_decref(e);
    return bad == -BR_E_LIMIT_EXCEEDED
               ? br_err_set(err, BR_E_LIMIT_EXCEEDED, "the record has too many decisions")
           : bad ? br_err_set(err, BR_E_INVALID_JSON, "it does not belong where it stands")
                 : 0;
}

bool policy_table_usable(const struct policy_run *r)
{
    return r->table && r->seen == r->parts && json_is_array(json_object_get(r->table, "rules")) &&
           json_is_array(json_object_get(r->table, "sources"));
}

bool policy_table_exact(const struct policy_run *r)
{
    BR_CLEANUP_FREE char *text = json_dumps(r->table, JSON_COMPACT | JSON_SORT_KEYS);
    const char *want = json_string_value(json_object_get(r->run, "tableSha256"));
    struct br_sha256 sha;
    uint8_t sum[32];
    char hex[65];
    if (!text || !want)
        return false;
    br_sha256_init(&sha);
    br_sha256_put(&sha, text, strlen(text));
    br_sha256_end(&sha, sum);
    br_hex(hex, sum, 32);
    return strcmp(hex, want) == 0;
}

/* ---- out of the store ---- */

struct reading {
    struct policy_history *h;
    bool list; /* of the runs; one that is read has a row as well */
    char (*ids)[BR_ID_MAX];
    size_t n;
};

static int on_event(void *ctx, const char *text, size_t n, struct br_err *err)
{
    return policy_history_event(((struct reading *)ctx)->h, text, n, err);
}

static int on_row(void *ctx, const struct br_cli_row *row)
{
    struct reading *r = ctx;
    if (!r->list)
        return 0;
    void *ids = r->n < RUNS_MAX ? realloc(r->ids, (r->n + 1) * sizeof(*r->ids)) : NULL;
    if (!ids)
        return r->n < RUNS_MAX ? -BR_E_NOMEM : 0;
    r->ids = ids;
    snprintf(r->ids[r->n++], sizeof(*r->ids), "%s", row->run_id);
    return 0;
}

static const struct br_cli_hooks hooks = {.event = on_event, .row = on_row};

static int ask_store(struct reading *rd, const char *run, struct br_err *err)
{
    struct br_cli_client c;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    if (strlen(run) >= BR_ID_MAX)
        return br_err_set(err, BR_E_NOT_FOUND,
                          "'%.80s' is no id of a run; 'bridle show' lists them", run);
    br_cli_put_show(&o.buf, run);
    int r = br_cli_client_ask(&c, &hooks, rd, BR_MSG_CTL_SHOW, &o, err);
    if (r == 0 && c.code)
        r = br_err_set(err, c.code, "%s", c.text);
    br_cli_client_close(&c);
    return r;
}

int policy_history_store(struct policy_history *h, const char *run, struct br_err *err)
{
    return ask_store(&(struct reading){.h = h}, run, err);
}

int policy_history_all(struct policy_history *h, uint32_t last, struct br_err *err)
{
    struct reading rd = {.h = h, .list = true};
    int r = ask_store(&rd, "", err);
    for (size_t i = 0; r == 0 && i < rd.n && i < last; i++)
        r = policy_history_store(h, rd.ids[i], err);
    free(rd.ids);
    return r;
}

/* ---- out of a file ---- */

bool policy_names_file(const char *word)
{
    return strpbrk(word, "/.") != NULL;
}

/* The line that `bridle show --json` writes before the events of a run. Adds how many there are. */
static bool is_row(const char *line, size_t n, uint64_t *events)
{
    json_t *o =
        n < BR_GOAL_MAX * 4 && br_json_scan(line, n, BR_JSON_DEPTH_MAX, LINE_NODES_MAX, NULL) == 0
            ? json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL)
            : NULL;
    bool row = json_object_get(o, "runId") && json_object_get(o, "startedAt") &&
               !json_object_get(o, "type");
    if (row)
        *events += view_u64(o, "events");
    json_decref(o);
    return row;
}

int policy_history_file(struct policy_history *h, const char *path, struct br_err *err)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return br_err_errno(err, errno == ENOENT ? BR_E_NOT_FOUND : BR_E_IO,
                            "the export '%.512s' could not be read", path);
    BR_CLEANUP_FREE char *line = NULL;
    size_t cap = 0, number = 0;
    uint64_t announced = 0, events = 0;
    ssize_t n;
    int r = 0;
    while (r == 0 && (n = getline(&line, &cap, f)) >= 0) {
        number++;
        if (n > 0 && line[n - 1] == '\n')
            n--;
        if (n == 0)
            continue;
        if (is_row(line, (size_t)n, &announced))
            continue;
        events++;
        r = n > (ssize_t)BR_EVENT_MAX
                ? br_err_set(err, BR_E_INVALID_JSON, "it is longer than an event")
                : policy_history_event(h, line, (size_t)n, err);
    }
    if (r == 0 && announced > events)
        r = br_err_set(err, BR_E_INVALID_JSON, "the end is missing: %llu events of %llu are there",
                       (unsigned long long)events, (unsigned long long)announced);
    if (r == 0 && ferror(f))
        r = br_err_errno(err, BR_E_IO, "the export '%.512s' could not be read", path);
    fclose(f);
    if (r < 0 && number)
        (void)br_err_wrap(err, "'%.512s' line %zu", path, number);
    if (r == 0 && h->nruns == 0)
        r = br_err_set(err, BR_E_INVALID_JSON,
                       "'%.512s' holds no record; 'bridle show --json RUN' writes one", path);
    return r;
}

int policy_history_read(struct policy_history *h, char *const *words, unsigned n, uint32_t last,
                        struct br_err *err)
{
    int r = n == 0 ? policy_history_all(h, last, err) : 0;
    for (unsigned i = 0; r == 0 && i < n; i++)
        r = policy_names_file(words[i]) ? policy_history_file(h, words[i], err)
                                        : policy_history_store(h, words[i], err);
    return r;
}

json_t *policy_request(const struct policy_decision *d)
{
    json_t *q = json_copy(d->call);
    json_object_set(q, "context", d->context);
    return q;
}
