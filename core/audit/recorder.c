/*
 * From data to a stored event, in the one order that is allowed: redact, check against the schema,
 * check against what came before, number, chain, add to the open transaction. Whatever fails, the
 * event is neither stored nor shown.
 */
#include <string.h>

#include "audit/audit_priv.h"

/* As long as nothing is missing in between, and not too much waits. */
static void keep(struct kept *k, uint64_t row, const void *bytes, size_t n)
{
    if (!k->wanted || n > AUDIT_KEPT_MAX / 4 ||
        (k->count && (row != k->first + k->count || k->bytes.len + n > AUDIT_KEPT_MAX)))
        return;
    if (!k->count) {
        k->first = row;
        k->at = 0;
        br_buf_reset(&k->bytes);
    }
    size_t before = k->bytes.len;
    if (br_buf_put_lstr(&k->bytes, bytes, n) == 0) {
        k->count++;
        return;
    }
    k->bytes.len = before;
    k->bytes.failed = false;
}

static int store_bytes(struct recorder *r, const void *bytes, size_t n, struct br_err *err)
{
    int ret = 0;
    if (!r->open) {
        ret = br_store_begin(r->store, err);
        r->open = ret == 0;
    }
    if (ret == 0)
        ret = br_store_add_event(r->store, &r->run, bytes, n, err);
    if (ret == 0)
        keep(&r->kept, r->run.rows, bytes, n);
    return ret;
}

static int store_event(struct recorder *r, const char *type, const json_t *data,
                       const struct br_buf *bytes, struct br_err *err)
{
    int ret = store_bytes(r, bytes->data, bytes->len, err);
    if (ret == 0 && strcmp(type, "agent.stopped") == 0)
        ret = br_store_add_end(r->store, &r->run, br_now_wall_us(),
                               json_string_value(json_object_get(data, "status")), err);
    return ret;
}

/* As br_id_make(dst, "evt"), with one call for the random bits of many. */
static void make_id(struct recorder *r, char dst[BR_ID_MAX])
{
    if (r->random_used == 0 || r->random_used + BR_ID_RANDOM > sizeof(r->random)) {
        br_random(r->random, sizeof(r->random));
        r->random_used = 0;
    }
    br_id_from(dst, "evt", r->random + r->random_used);
    r->random_used += BR_ID_RANDOM;
}

int recorder_add_text(struct recorder *r, const char *type, const char *actor, const void *data,
                      size_t n, struct br_err *err)
{
    char event_id[BR_ID_MAX];
    const uint8_t *bytes;
    size_t nbytes;
    if (strcmp(type, "agent.stopped") == 0)
        return 0;
    make_id(r, event_id);
    if (!br_quick_event(r->quick, r->redact, r->order, type, actor, data, n, event_id,
                        br_now_wall_us(), &bytes, &nbytes))
        return 0;
    int ret = store_bytes(r, bytes, nbytes, err);
    return ret < 0 ? ret : 1;
}

/* Redact and write one event. Replacements may make a value longer than its limit: then they are
 * written as short as what they replace, since a run must not fail over what a file contains. */
static int make_event(struct recorder *r, const char *type, const char *actor, const json_t *data,
                      const char *event_id, bool brief, struct br_buf *bytes, json_t **safe,
                      struct br_err *err)
{
    *safe = br_redact_json(r->redact, data, brief, err);
    return *safe ? br_event_build(type, actor, *safe, event_id, br_now_wall_us(), bytes, err)
                 : -BR_E_REDACTION_FAILED;
}

int recorder_add(struct recorder *r, const char *type, const char *actor, const json_t *data,
                 bool redacted, struct br_err *err)
{
    char event_id[BR_ID_MAX];
    BR_CLEANUP_BUF struct br_buf bytes = BR_BUF_INIT(2 * BR_EVENT_MAX);
    json_t *safe = NULL;
    int ret = strcmp(type, "agent.stopped") == 0 ? account_add(r, err) : 0;
    if (ret < 0)
        return ret;
    make_id(r, event_id);
    if (redacted) {
        safe = json_incref((json_t *)data);
        ret = br_event_build(type, actor, safe, event_id, br_now_wall_us(), &bytes, err);
    } else {
        ret = make_event(r, type, actor, data, event_id, false, &bytes, &safe, err);
        if (ret < 0) {
            json_decref(br_steal_ptr(&safe));
            br_buf_reset(&bytes);
            if (make_event(r, type, actor, data, event_id, true, &bytes, &safe, NULL) == 0)
                ret = 0;
        }
    }
    if (ret == 0)
        ret = br_event_order_apply(r->order, type, safe, err);
    if (ret == 0)
        ret = store_event(r, type, safe, &bytes, err);
    json_decref(safe);
    return ret;
}

int recorder_commit(struct recorder *r, struct br_err *err)
{
    int ret = recorder_commit_later(r, err);
    if (ret == 0 && r->durable < r->committed.rows) {
        ret = br_store_sync(r->store, err);
        if (ret == 0)
            r->durable = r->committed.rows;
    }
    return ret;
}

int recorder_commit_later(struct recorder *r, struct br_err *err)
{
    if (!r->open)
        return 0;
    r->open = false;
    int ret = br_store_commit_later(r->store, err);
    if (ret == 0) {
        r->committed = r->run;
        return 0;
    }
    (void)recorder_reload(r, NULL);
    return ret;
}

int recorder_reload(struct recorder *r, struct br_err *err)
{
    struct br_store_info info = {.id = r->committed.id};
    struct br_event_order *order = br_event_order_new();
    BR_CLEANUP_BUF struct br_buf body = BR_BUF_INIT(2 * BR_EVENT_MAX);
    struct br_store_run run;
    memcpy(info.run_id, r->committed.run_id, sizeof(info.run_id));
    br_store_rewind(&info, &run);
    r->accounted = false;
    r->kept.count = 0;
    int ret = order ? 1 : br_err_set(err, BR_E_NOMEM, "no memory to read a record");
    while (ret == 1) {
        struct br_event e = {.root = NULL};
        br_buf_reset(&body);
        ret = br_store_next_event(r->store, &run, &body, err);
        int ok = ret == 1 ? br_event_parse(body.data, body.len, &e, err) : 0;
        if (ret == 1 && ok == 0)
            ok = br_event_order_apply(order, e.type, e.data, err);
        if (ret == 1 && ok == 0)
            r->accounted |= strcmp(e.type, "bridle.provider.account") == 0;
        br_event_free(&e);
        ret = ok < 0 ? ok : ret;
    }
    if (ret < 0) {
        br_event_order_free(&order);
        return ret;
    }
    br_event_order_free(&r->order);
    r->order = order;
    r->run = r->committed = run;
    ret = br_store_sync(r->store, err);
    if (ret == 0)
        r->durable = run.rows;
    return ret;
}
