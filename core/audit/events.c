/*
 * Checking an event against the table and writing it. The data comes from the session and holds
 * what a model or a tool said; nothing of it is trusted. Writing follows the table, so that the
 * order of keys is always the same.
 */
#include <stdlib.h>
#include <string.h>

#include "audit/events_priv.h"

/* The event around a data of maximal depth adds two levels. */
#define EVENT_DEPTH_MAX (BR_JSON_DEPTH_MAX + 4)
#define EVENT_NODES_MAX BR_EVENT_NODES_MAX

static int schema_error(struct br_err *err, const char *path, const char *what)
{
    return br_err_set(err, BR_E_EVENT_SCHEMA, "'%s' %s; the event was not stored", path, what);
}

bool event_value_in(const char *values, const char *s)
{
    size_t n = strlen(s);
    if (strchr(s, '|'))
        return false; /* several of them are none of them */
    for (const char *p = values; n && p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL)
        if (strncmp(p, s, n) == 0 && (p[n] == '|' || p[n] == 0))
            return true;
    return false;
}

static int put_any(struct br_buf *out, const json_t *v, const char *path, struct br_err *err)
{
    BR_CLEANUP_FREE char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text)
        return schema_error(err, path, "cannot be written as JSON");
    size_t n = strlen(text);
    if (n > BR_TOOL_JSON_MAX)
        return br_err_set(err, BR_E_EVENT_SCHEMA,
                          "'%s' has %zu bytes, more than %u; the event was not stored", path, n,
                          BR_TOOL_JSON_MAX);
    if (br_json_scan(text, n, BR_JSON_DEPTH_MAX, BR_JSON_NODES_MAX, err) < 0) {
        if (err)
            err->code = BR_E_EVENT_SCHEMA;
        br_err_wrap(err, "'%s'", path);
        return -BR_E_EVENT_SCHEMA;
    }
    br_buf_put(out, text, n);
    return 0;
}

static int put_text(struct br_buf *out, const struct event_field *f, const json_t *v,
                    const char *path, struct br_err *err)
{
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);
    if (!s)
        return schema_error(err, path, "is not a string");
    if (f->kind == FIELD_ENUM && !event_value_in(f->values, s))
        return br_err_set(err, BR_E_EVENT_SCHEMA, "'%s' is none of %s; the event was not stored",
                          path, f->values);
    if (f->kind == FIELD_TEXT && (n < (size_t)f->min || n > (size_t)f->max))
        return br_err_set(err, BR_E_EVENT_SCHEMA,
                          "'%s' has %zu bytes, not %lld to %lld; the event was not stored", path, n,
                          (long long)f->min, (long long)f->max);
    br_buf_put_json_str(out, s, n);
    return 0;
}

static int put_number(struct br_buf *out, const struct event_field *f, const json_t *v,
                      const char *path, struct br_err *err)
{
    if (!json_is_integer(v) && !(f->kind == FIELD_NUM && json_is_real(v)))
        return schema_error(err, path,
                            f->kind == FIELD_NUM ? "is not a number" : "is not a whole number");
    bool inside =
        json_is_integer(v)
            ? json_integer_value(v) >= f->min && json_integer_value(v) <= f->max
            : json_real_value(v) >= (double)f->min && json_real_value(v) <= (double)f->max;
    if (!inside)
        return br_err_set(err, BR_E_EVENT_SCHEMA,
                          "'%s' is not between %lld and %lld; the event was not stored", path,
                          (long long)f->min, (long long)f->max);
    if (json_is_integer(v)) {
        br_buf_printf(out, "%lld", (long long)json_integer_value(v));
        return 0;
    }
    return put_any(out, v, path, err);
}

static int put_usage(struct br_buf *out, const json_t *v, const char *path, struct br_err *err)
{
    static const char *const names[] = {"promptTokens", "completionTokens", "totalTokens"};
    json_int_t n[3] = {0};
    if (!json_is_object(v) || json_object_size(v) != 3)
        return schema_error(err, path, "is not {promptTokens, completionTokens, totalTokens}");
    for (int i = 0; i < 3; i++) {
        const json_t *item = json_object_get(v, names[i]);
        n[i] = json_is_integer(item) ? json_integer_value(item) : -1;
        if (n[i] < 0 || n[i] > BR_EVENT_INT_MAX)
            return schema_error(err, path, "has a member that is no count of tokens");
    }
    if (n[0] + n[1] != n[2])
        return schema_error(err, path, "has a totalTokens that is not the sum");
    br_buf_printf(out, "{\"promptTokens\":%lld,\"completionTokens\":%lld,\"totalTokens\":%lld}",
                  (long long)n[0], (long long)n[1], (long long)n[2]);
    return 0;
}

static int put_record(struct br_buf *out, const struct event_field *fields, const json_t *v,
                      const char *path, struct br_err *err);

static int put_list(struct br_buf *out, const struct event_field *f, const json_t *v,
                    const char *path, struct br_err *err)
{
    if (!json_is_array(v))
        return schema_error(err, path, "is not a list");
    if (json_array_size(v) > (size_t)f->max)
        return br_err_set(err, BR_E_EVENT_SCHEMA,
                          "'%s' has %zu entries, more than %lld; the event was not stored", path,
                          json_array_size(v), (long long)f->max);
    int r = 0;
    br_buf_put_u8(out, '[');
    for (size_t i = 0; i < json_array_size(v) && r == 0; i++) {
        if (i)
            br_buf_put_u8(out, ',');
        r = put_record(out, f->fields, json_array_get(v, i), path, err);
    }
    br_buf_put_u8(out, ']');
    return r;
}

static int put_field(struct br_buf *out, const struct event_field *f, const json_t *v,
                     const char *path, struct br_err *err)
{
    switch (f->kind) {
    case FIELD_TEXT:
    case FIELD_ENUM:
        return put_text(out, f, v, path, err);
    case FIELD_INT:
    case FIELD_NUM:
        return put_number(out, f, v, path, err);
    case FIELD_BOOL:
        if (!json_is_boolean(v))
            return schema_error(err, path, "is not true or false");
        br_buf_put(out, json_is_true(v) ? "true" : "false", json_is_true(v) ? 4 : 5);
        return 0;
    case FIELD_OBJECT:
        if (!json_is_object(v))
            return schema_error(err, path, "is not an object");
        return put_any(out, v, path, err);
    case FIELD_ANY:
        return put_any(out, v, path, err);
    case FIELD_USAGE:
        return put_usage(out, v, path, err);
    case FIELD_RECORD:
        return put_record(out, f->fields, v, path, err);
    case FIELD_LIST:
        return put_list(out, f, v, path, err);
    }
    return schema_error(err, path, "has no known kind");
}

static int put_record(struct br_buf *out, const struct event_field *fields, const json_t *v,
                      const char *path, struct br_err *err)
{
    size_t found = 0, written = 0;
    int r = 0;
    if (!json_is_object(v))
        return schema_error(err, path, "is not an object");
    br_buf_put_u8(out, '{');
    for (const struct event_field *f = fields; f->name && r == 0; f++) {
        char name[128];
        const json_t *item = json_object_get(v, f->name);
        snprintf(name, sizeof(name), "%s.%s", path, f->name);
        if (!item && !f->optional)
            return schema_error(err, name, "is missing");
        if (!item && !f->or_null)
            continue;
        br_buf_printf(out, "%s\"%s\":", written++ ? "," : "", f->name);
        if (item)
            found++;
        if (item)
            r = put_field(out, f, item, name, err);
        else
            br_buf_put(out, "null", 4);
    }
    br_buf_put_u8(out, '}');
    if (r < 0 || found == json_object_size(v))
        return r;
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)v, key, item)
    {
        const struct event_field *f = fields;
        while (f->name && strcmp(f->name, key) != 0)
            f++;
        if (!f->name)
            return br_err_set(err, BR_E_EVENT_SCHEMA,
                              "'%s' has the unknown key '%.64s'; the event was not stored", path,
                              key);
    }
    return schema_error(err, path, "has an unknown key");
}

int br_event_build(const char *type, const char *actor, const json_t *data, const char *event_id,
                   uint64_t at_us, struct br_buf *out, struct br_err *err)
{
    const struct event_type *t = event_type_find(type);
    if (!t)
        return br_err_set(err, BR_E_EVENT_SCHEMA, "'%.64s' is no type of event; nothing was stored",
                          type);
    if (actor && *actor && !event_value_in(EVENT_ACTORS, actor))
        return br_err_set(err, BR_E_EVENT_SCHEMA, "'%.64s' is no actor; the event was not stored",
                          actor);
    if (!*event_id || strlen(event_id) > BR_NAME_MAX)
        return schema_error(err, "eventId", "is empty or too long");
    char at[32];
    br_time_iso(at, at_us);
    br_buf_printf(out, "{\"v\":1,\"type\":\"%s\",\"eventId\":", t->type);
    br_buf_put_json_str(out, event_id, strlen(event_id));
    br_buf_printf(out, ",\"at\":\"%s\",", at);
    if (actor && *actor)
        br_buf_printf(out, "\"actor\":\"%s\",", actor);
    br_buf_printf(out, "\"data\":");
    int r = put_record(out, t->fields, data, t->type, err);
    br_buf_put_u8(out, '}');
    if (r == 0 && (out->failed || out->len > BR_EVENT_MAX))
        return br_err_set(err, BR_E_EVENT_SCHEMA,
                          "a '%s' event is larger than %u bytes; it was not stored", t->type,
                          BR_EVENT_MAX);
    return r;
}

int br_event_parse(const void *bytes, size_t n, struct br_event *e, struct br_err *err)
{
    *e = (struct br_event){.root = NULL};
    if (n > BR_EVENT_MAX || br_json_scan(bytes, n, EVENT_DEPTH_MAX, EVENT_NODES_MAX, err) < 0)
        return br_err_set(err, BR_E_EVENT_SCHEMA, "a stored event is not JSON within its limits");
    e->root = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, NULL);
    e->type = json_string_value(json_object_get(e->root, "type"));
    e->event_id = json_string_value(json_object_get(e->root, "eventId"));
    e->actor = json_string_value(json_object_get(e->root, "actor"));
    e->data = json_object_get(e->root, "data");
    if (!e->type || !e->event_id || !e->data ||
        json_integer_value(json_object_get(e->root, "v")) != 1)
        return br_err_set(err, BR_E_EVENT_SCHEMA, "a stored event has no envelope");
    if (json_object_size(e->root) != (e->actor ? 6u : 5u))
        return br_err_set(err, BR_E_EVENT_SCHEMA, "a stored event has an unknown key");
    BR_CLEANUP_BUF struct br_buf again = BR_BUF_INIT(2 * BR_EVENT_MAX);
    return br_event_build(e->type, e->actor, e->data, e->event_id, 0, &again, err);
}

void br_event_free(struct br_event *e)
{
    json_decref(e->root);
    *e = (struct br_event){.root = NULL};
}
