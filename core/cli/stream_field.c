/*
 * Fields of an object that a server sent: which there must be, may be, and of what kind. Used by
 * the checks of results and notifications.
 */
#include <string.h>

#include "cli/stream_priv.h"

int stream_fail(struct br_err *err, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return br_err_set(err, BR_E_PEER_PROTOCOL, "protocol failure: %s", text);
}

static bool in_values(const char *values, const char *s)
{
    size_t n = strlen(s);
    for (const char *p = values; n && p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL)
        if (strncmp(p, s, n) == 0 && (p[n] == '|' || p[n] == 0))
            return !strchr(s, '|');
    return false;
}

static bool is_right(const struct stream_field *f, const json_t *v)
{
    json_int_t i = json_integer_value(v);
    switch (f->kind) {
    case STREAM_TEXT:
        return json_is_string(v) && json_string_length(v) >= f->min &&
               (!f->max || json_string_length(v) <= f->max) &&
               (!f->values || in_values(f->values, json_string_value(v)));
    case STREAM_COUNT:
        return json_is_integer(v) && i >= 0 && i <= BR_EVENT_INT_MAX;
    case STREAM_SEQ:
        return json_is_integer(v) && i >= -1 && i <= BR_EVENT_INT_MAX;
    case STREAM_BOOL:
        return json_is_boolean(v);
    case STREAM_OBJECT:
        return json_is_object(v);
    case STREAM_ARRAY:
        return json_is_array(v) && (!f->max || json_array_size(v) <= f->max);
    }
    return false;
}

int stream_fields(const json_t *o, const char *what, const struct stream_field *fields, size_t n,
                  bool strict, struct br_err *err)
{
    size_t found = 0;
    if (!json_is_object(o))
        return stream_fail(err, "%s is not an object", what);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_object_get(o, fields[i].name);
        if (!v && fields[i].need == STREAM_OPTIONAL)
            continue;
        if (!v)
            return stream_fail(err, "%s has no '%s'", what, fields[i].name);
        if (!is_right(&fields[i], v))
            return stream_fail(err, "'%s' of %s is not what it has to be", fields[i].name, what);
        found++;
    }
    if (!strict || found == json_object_size(o))
        return 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)o, key, value)
    {
        size_t i = 0;
        while (i < n && strcmp(fields[i].name, key) != 0)
            i++;
        if (i == n)
            return stream_fail(err, "%s has the unknown key '%.64s'", what, key);
    }
    return stream_fail(err, "%s has an unknown key", what);
}
