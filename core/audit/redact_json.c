/*
 * Redaction of JSON values: every string and every key is redacted as text, and a string under a
 * key that names a credential is replaced whatever it says. The result is a copy; the input is not
 * changed. Depth and number of values are bounded before this is called (br_json_scan), and again
 * here.
 */
#include <ctype.h>
#include <string.h>

#include "audit/redact_priv.h"

struct walk {
    const struct br_redact *r;
    unsigned nodes;
    bool brief;
    struct br_buf scratch;
    struct br_err *err;
};

/* A key is compared without case and separators, by its end: "x-api-key", "DB_PASSWORD",
 * "clientSecret". Plurals and counters ("max_tokens", "promptTokens") end otherwise. */
static const struct {
    const char *end, *name;
    bool whole;
} credential_keys[] = {
    {"password", "password", false},
    {"passwd", "password", false},
    {"passphrase", "password", false},
    {"pwd", "password", true},
    {"secret", "secret", false},
    {"secrets", "secret", true},
    {"token", "token", false},
    {"apikey", "api-key", false},
    {"apitoken", "token", false},
    {"accesskey", "access-key", false},
    {"accountkey", "access-key", false},
    {"secretkey", "secret", false},
    {"secretaccesskey", "secret", false},
    {"privatekey", "private-key", false},
    {"signingkey", "private-key", false},
    {"encryptionkey", "private-key", false},
    {"authorization", "authorization", false},
    {"cookie", "cookie", false},
    {"cookies", "cookie", true},
    {"credential", "credential", false},
    {"credentials", "credential", false},
    {"bearer", "bearer", true},
    {"jwt", "jwt", true},
    {"connectionstring", "credential", false},
};

const char *br_redact_key(const char *key)
{
    char norm[64];
    size_t len = strlen(key), n = 0;
    /* only the end counts */
    size_t from = len > 128 ? len - 128 : 0;
    for (size_t i = from; i < len; i++) {
        if (!isalnum((unsigned char)key[i]))
            continue;
        if (n == sizeof(norm)) {
            memmove(norm, norm + 1, sizeof(norm) - 1);
            n--;
        }
        norm[n++] = (char)tolower((unsigned char)key[i]);
    }
    for (size_t i = 0; i < BR_ARRAY_LEN(credential_keys); i++) {
        size_t k = strlen(credential_keys[i].end);
        if ((credential_keys[i].whole ? n == k : n >= k) &&
            memcmp(norm + n - k, credential_keys[i].end, k) == 0)
            return credential_keys[i].name;
    }
    return NULL;
}

static json_t *walk_fail(struct walk *w, const char *why)
{
    br_err_set(w->err, BR_E_REDACTION_FAILED, "a value %s; it was not stored", why);
    return NULL;
}

static json_t *redact_string(struct walk *w, const char *s, size_t n, const char *name)
{
    br_buf_reset(&w->scratch);
    int r = 0;
    if (name && n)
        r = br_buf_printf(&w->scratch, "%s%s%s",
                          w->brief ? "" : "[redacted:", w->brief ? "*" : name, w->brief ? "" : "]");
    else if (w->brief)
        r = br_redact_text_brief(w->r, s, n, &w->scratch, w->err);
    else
        r = br_redact_text(w->r, s, n, &w->scratch, w->err);
    if (r < 0)
        return NULL;
    json_t *v = json_stringn((const char *)w->scratch.data, w->scratch.len);
    return v ? v : n == 0 ? json_string("") : walk_fail(w, "did not stay text when redacted");
}

static json_t *walk_value(struct walk *w, const json_t *v, unsigned depth, const char *name);

static json_t *walk_array(struct walk *w, const json_t *v, unsigned depth, const char *name)
{
    json_t *out = json_array();
    for (size_t i = 0; out && i < json_array_size(v); i++) {
        json_t *item = walk_value(w, json_array_get(v, i), depth + 1, name);
        if (!item || json_array_append_new(out, item) < 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out ? out : walk_fail(w, "does not fit into memory");
}

/* Two keys that become equal when redacted stay two. */
static bool set_unique(json_t *o, const char *key, json_t *value)
{
    if (!json_object_get(o, key))
        return json_object_set_new(o, key, value) == 0;
    for (unsigned k = 2; k < BR_REDACT_NODES_MAX; k++) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_BLOB_MAX);
        br_buf_printf(&b, "%s#%u", key, k);
        const char *other = br_buf_cstr(&b);
        if (other && !json_object_get(o, other))
            return json_object_set_new(o, other, value) == 0;
    }
    json_decref(value);
    return false;
}

static json_t *walk_object(struct walk *w, const json_t *v, unsigned depth)
{
    json_t *out = json_object(), *item;
    const char *key;
    if (!out)
        return walk_fail(w, "does not fit into memory");
    json_object_foreach((json_t *)v, key, item)
    {
        json_t *value = walk_value(w, item, depth + 1, br_redact_key(key));
        json_t *name = value ? redact_string(w, key, strlen(key), NULL) : NULL;
        bool ok = name && set_unique(out, json_string_value(name), value);
        if (!name)
            json_decref(value);
        json_decref(name);
        if (!ok) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

static json_t *walk_value(struct walk *w, const json_t *v, unsigned depth, const char *name)
{
    if (depth > BR_JSON_DEPTH_MAX + 8 || ++w->nodes > BR_REDACT_NODES_MAX)
        return walk_fail(w, "is too deep or has too many parts");
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return walk_object(w, v, depth);
    case JSON_ARRAY:
        return walk_array(w, v, depth, name);
    case JSON_STRING:
        return redact_string(w, json_string_value(v), json_string_length(v), name);
    default:
        return json_copy((json_t *)v);
    }
}

json_t *br_redact_json(const struct br_redact *r, const json_t *value, bool brief,
                       struct br_err *err)
{
    struct br_err local = {.code = BR_OK};
    struct walk w = {
        .r = r, .brief = brief, .scratch = BR_BUF_INIT(BR_BLOB_MAX), .err = err ? err : &local};
    json_t *out = walk_value(&w, value, 0, NULL);
    if (!out && !w.err->code)
        walk_fail(&w, "could not be redacted");
    if (w.scratch.data)
        explicit_bzero(w.scratch.data, w.scratch.cap);
    br_buf_free(&w.scratch);
    return out;
}
