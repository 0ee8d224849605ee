/*
 * The pinned table in the record: what `bridle policy why --run` explains a decision with, and
 * `replay` takes the profile's and the manifest's rules from. Stored once, behind bridle.run, in as
 * many events as it needs; redacted like everything else, so that a reader has to compare the hash.
 * Rules are never split: no credential in one could be cut in two.
 */
#include <stdlib.h>
#include <string.h>

#include "session/session_priv.h"

/* Of one event, well below what tool JSON may have. */
#define PART_BYTES (128u * 1024)
#define PART_VALUES 5000u
#define NODES_MAX 400000u

struct size {
    size_t bytes, values;
};

/* Values are counted by what stands before them; text may look like more, never like fewer. */
static struct size size_of(const json_t *v)
{
    struct size s = {0, 1};
    BR_CLEANUP_FREE char *text = json_dumps(v, JSON_COMPACT);
    if (!text)
        return (struct size){SIZE_MAX / 2, SIZE_MAX / 2};
    for (; text[s.bytes]; s.bytes++)
        s.values += strchr("{[,:", text[s.bytes]) != NULL;
    return s;
}

static bool fits(struct size a, struct size b)
{
    return a.bytes + b.bytes <= PART_BYTES && a.values + b.values <= PART_VALUES;
}

/* The rules, spread over objects {"rules": [...]}; the first of them is the head. New reference;
 * NULL if something in it is too large for an event. */
static json_t *split(json_t *table)
{
    json_t *rules = json_incref(json_object_get(table, "rules")), *rule, *list = json_array();
    json_t *parts = json_array();
    size_t i;
    json_object_set(table, "rules", list);
    struct size used = size_of(table);
    bool ok = fits(used, (struct size){0, 0});
    json_array_append(parts, table);
    json_array_foreach(rules, i, rule)
    {
        struct size more = size_of(rule);
        ok = ok && fits((struct size){0, 0}, more);
        if (!fits(used, more)) {
            json_decref(list);
            list = json_array();
            json_array_append_new(parts, json_pack("{s:O}", "rules", list));
            used = (struct size){16, 2};
        }
        json_array_append(list, rule);
        used.bytes += more.bytes + 1;
        used.values += more.values;
    }
    json_decref(list);
    json_decref(rules);
    if (ok)
        return parts;
    json_decref(parts);
    return NULL;
}

int session_record_table(struct session *s, const struct br_buf *text)
{
    const char *p = (const char *)text->data;
    json_t *table = NULL, *part;
    size_t i;
    int r = 0;
    if (text->len && br_json_scan(p, text->len, BR_JSON_DEPTH_MAX, NODES_MAX, NULL) == 0)
        table = json_loadb(p, text->len, JSON_REJECT_DUPLICATES, NULL);
    json_t *parts = json_is_object(table) ? split(table) : NULL;
    json_array_foreach(parts, i, part)
    {
        if (r == 0)
            r = session_record_ahead(s, "bridle.table", "kernel",
                                     json_pack("{s:I, s:I, s:O}", "part", (json_int_t)i + 1,
                                               "parts", (json_int_t)json_array_size(parts), "table",
                                               part));
    }
    json_decref(parts);
    json_decref(table);
    return r;
}
