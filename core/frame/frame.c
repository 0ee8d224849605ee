/*
 * One frame and the checks of what is in it. Called by packet.c and result.c; the bytes come from a
 * program in a sandbox and are hostile. The length is compared with the ceiling before anything is
 * allocated, and br_json_scan() bounds depth and size before a parser sees the text.
 */
#include <stdlib.h>
#include <string.h>

#include "frame/frame_priv.h"

/* A value of the caller's schema may be as large as the arguments of a tool. */
#define NODES_MAX BR_JSON_NODES_MAX

int frame_bad(struct br_err *err, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    text[br_utf8_floor(text, strlen(text))] = 0;
    return br_err_set(err, BR_E_INVALID_FRAME, "the frame is refused: %s", text);
}

static size_t frame_length(const uint8_t *p)
{
    return (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
}

int64_t br_frame_size(const void *p, size_t n, size_t max, struct br_err *err)
{
    if (n < BR_FRAME_HEAD)
        return 0;
    size_t want = frame_length(p);
    return want > max ? frame_bad(err, "its length is %zu bytes, more than %zu", want, max)
                      : (int64_t)(want + BR_FRAME_HEAD);
}

int br_frame_open(const void *p, size_t n, size_t max, const char **json, size_t *len,
                  struct br_err *err)
{
    const uint8_t *b = p;
    if (n == 0)
        return frame_bad(err, "there is none");
    if (n < BR_FRAME_HEAD)
        return frame_bad(err, "it is truncated: %zu of the 4 bytes of its length", n);
    size_t want = frame_length(b), have = n - BR_FRAME_HEAD;
    if (want > max)
        return frame_bad(err, "its length is %zu bytes, more than its ceiling of %zu", want, max);
    if (want > have)
        return frame_bad(err, "it is truncated: %zu of its %zu bytes", have, want);
    if (want < have) {
        const uint8_t *rest = b + BR_FRAME_HEAD + want;
        size_t nrest = have - want;
        bool second = nrest > BR_FRAME_HEAD && rest[BR_FRAME_HEAD] == '{' &&
                      frame_length(rest) >= 2 && frame_length(rest) <= max;
        return second ? frame_bad(err, "there is a second one behind it")
                      : frame_bad(err, "there are %zu bytes behind it", nrest);
    }
    *json = (const char *)b + BR_FRAME_HEAD;
    *len = want;
    return 0;
}

json_t *frame_load(const void *p, size_t n, size_t max, struct br_err *err)
{
    const char *json;
    size_t len;
    struct br_err why = {.code = BR_OK};
    json_error_t je;
    if (br_frame_open(p, n, max, &json, &len, err) < 0)
        return NULL;
    if (br_json_scan(json, len, BR_JSON_DEPTH_MAX, NODES_MAX, &why) < 0) {
        frame_bad(err, "%.200s", why.text);
        return NULL;
    }
    json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, &je);
    if (!json_is_object(root)) {
        /* what jansson says may quote the text, which is not to get into a record */
        frame_bad(err, root ? "it is not a JSON object" : "it is not JSON (line %d, column %d)",
                  je.line, je.column);
        json_decref(root);
        return NULL;
    }
    return root;
}

int br_frame_put(struct br_buf *out, const json_t *root, size_t max, struct br_err *err)
{
    char *text = json_dumps(root, JSON_COMPACT);
    size_t n = text ? strlen(text) : 0;
    int r = 0;
    if (!text)
        r = br_err_set(err, BR_E_INVALID_FRAME, "a frame could not be written as JSON");
    else if (n > max)
        r = br_err_set(err, BR_E_LIMIT_EXCEEDED,
                       "a frame of %zu bytes is larger than its ceiling of %zu", n, max);
    const uint8_t head[BR_FRAME_HEAD] = {(uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8),
                                         (uint8_t)n};
    if (r == 0 && (br_buf_put(out, head, sizeof(head)) < 0 || br_buf_put(out, text, n) < 0))
        r = br_err_set(err, BR_E_LIMIT_EXCEEDED, "a frame of %zu bytes does not fit", n);
    free(text);
    return r;
}

bool frame_number(const json_t *v, json_int_t min, json_int_t max)
{
    return json_is_integer(v) && json_integer_value(v) >= min && json_integer_value(v) <= max;
}

bool frame_is_name(const char *s, size_t max)
{
    static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t n = s ? strlen(s) : 0;
    return n > 0 && n <= max && s[strspn(s, set)] == 0;
}

int frame_index(const json_t *v, const char *const *names)
{
    const char *s = json_string_value(v);
    for (int i = 0; s && names[i]; i++)
        if (strcmp(names[i], s) == 0)
            return i;
    return -1;
}

const char *frame_text(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static const struct frame_key *key_find(const struct frame_key *keys, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(keys[i].name, name) == 0)
            return &keys[i];
    return NULL;
}

static int check_key(const json_t *v, const char *at, const struct frame_key *k, struct br_err *err)
{
    static const char *const types[] = {[JSON_OBJECT] = "an object",
                                        [JSON_ARRAY] = "a list",
                                        [JSON_STRING] = "a text",
                                        [JSON_INTEGER] = "an integer",
                                        [JSON_TRUE] = "true or false"};
    if (!v)
        return k->optional ? 0 : frame_bad(err, "'%s%s' is missing", at, k->name);
    if (k->nullable && json_is_null(v))
        return 0;
    if (k->want == JSON_TRUE ? !json_is_boolean(v) : json_typeof(v) != k->want)
        return frame_bad(err, "'%s%s' is not %s", at, k->name, types[k->want]);
    if (k->want != JSON_STRING)
        return 0;
    size_t n = json_string_length(v);
    if (n < k->min || n > k->max)
        return frame_bad(err, "'%s%s' has %zu bytes, not %zu to %zu", at, k->name, n, k->min,
                         k->max);
    return 0;
}

int frame_keys(const json_t *o, const char *at, const struct frame_key *keys, size_t n,
               struct br_err *err)
{
    const char *name;
    json_t *v;
    if (!json_is_object(o))
        return frame_bad(err, "'%.*s' is not an object", (int)(strlen(at) ? strlen(at) - 1 : 0),
                         at);
    json_object_foreach((json_t *)(uintptr_t)o, name, v)
    {
        if (!key_find(keys, n, name)) /* its name is the guest's own text */
            return frame_bad(err, "'%s' has a key that it cannot have",
                             *at ? at : "the frame itself");
    }
    for (size_t i = 0; i < n; i++) {
        int r = check_key(json_object_get(o, keys[i].name), at, &keys[i], err);
        if (r < 0)
            return r;
    }
    return 0;
}

int frame_adapter(const json_t *o, const char **id, uint32_t *revision, struct br_err *err)
{
    static const struct frame_key keys[] = {
        {"id", JSON_STRING, .min = 1, .max = BR_FRAME_NAME_MAX - 1},
        {"revision", JSON_INTEGER},
    };
    int r = frame_keys(o, "adapter.", keys, BR_ARRAY_LEN(keys), err);
    if (r < 0)
        return r;
    const json_t *v = json_object_get(o, "revision");
    if (!frame_number(v, 1, BR_FRAME_COUNT_MAX))
        return frame_bad(err, "'adapter.revision' is not an integer from 1 to %u",
                         BR_FRAME_COUNT_MAX);
    *id = frame_text(o, "id");
    *revision = (uint32_t)json_integer_value(v);
    return br_is_kebab(*id, BR_FRAME_NAME_MAX - 1)
               ? 0
               : frame_bad(err, "'adapter.id' is not kebab-case");
}
