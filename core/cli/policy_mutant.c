/*
 * Mutants of a compiled table, for `bridle policy test`: a rule dropped or with another effect, and
 * what it means that a spec notices. Changes JSON that the session compiled; the session checks it
 * again when it loads it. Called by policy_test.c and, for specs that are run again,
 * policy_serve.c.
 */
#include <string.h>

#include "cli/policy_priv.h"

size_t policy_base_id(const char *id)
{
    const char *hash = strrchr(id, '#');
    return hash && hash[1] && !hash[1 + strspn(hash + 1, "0123456789")] ? (size_t)(hash - id)
                                                                        : strlen(id);
}

static bool is_of(const json_t *row, const char *rule)
{
    const char *id = json_string_value(json_object_get(row, "id"));
    size_t n = id ? policy_base_id(id) : 0;
    return id && strlen(rule) == n && memcmp(id, rule, n) == 0;
}

/* The list with the rows of `rule` changed; NULL if there are none. */
static json_t *change_list(const json_t *list, const char *rule, const json_t *effect)
{
    json_t *out = json_array(), *row;
    bool changed = false;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)list, i, row)
    {
        bool mine = is_of(row, rule);
        changed |= mine;
        if (!mine) {
            json_array_append(out, row);
        } else if (effect) {
            json_t *copy = json_copy(row);
            json_object_set(copy, "effect", (json_t *)(uintptr_t)effect);
            json_array_append_new(out, copy);
        }
    }
    if (changed)
        return out;
    json_decref(out);
    return NULL;
}

json_t *policy_mutate(const json_t *table, const json_t *mutant)
{
    static const char *const lists[] = {"rules", "fallbacks"};
    const char *rule = json_string_value(json_object_get(mutant, "rule"));
    const json_t *effect = json_object_get(mutant, "effect");
    json_t *out = json_copy((json_t *)(uintptr_t)table);
    bool changed = false;
    if (!rule && json_is_true(json_object_get(table, "predicates"))) {
        json_object_set_new(out, "predicates", json_false());
        return out;
    }
    for (size_t i = 0; rule && i < BR_ARRAY_LEN(lists); i++) {
        json_t *list = change_list(json_object_get(table, lists[i]), rule,
                                   json_is_string(effect) ? effect : NULL);
        changed |= list != NULL;
        if (list)
            json_object_set_new(out, lists[i], list);
    }
    if (changed)
        return out;
    json_decref(out);
    return NULL;
}

static bool is_named(const json_t *o, const char *rule)
{
    const char *id = json_string_value(json_object_get(o, "ruleId"));
    if (!id || strcmp(id, rule) == 0)
        return id != NULL;
    const char *colon = strchr(id, ':'), *bare = colon ? colon + 1 : id;
    size_t n = policy_base_id(bare);
    return strlen(rule) == n && memcmp(bare, rule, n) == 0;
}

bool policy_carries(const json_t *said, const json_t *vote)
{
    return json_equal(json_object_get(vote, "effect"), json_object_get(said, "effect"));
}

bool policy_expected(const json_t *said, const json_t *expect)
{
    const json_t *effect = json_object_get(expect, "effect"), *vote;
    const char *rule = json_string_value(json_object_get(expect, "rule"));
    size_t i;
    if (json_is_string(effect) && !json_equal(effect, json_object_get(said, "effect")))
        return false;
    if (!rule || is_named(said, rule))
        return true;
    json_array_foreach(json_object_get(said, "votes"), i, vote)
    {
        if (policy_carries(said, vote) && is_named(vote, rule))
            return true;
    }
    return false;
}

bool policy_same_answer(const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"effect", "ruleId", "source", "reason", "opaque"};
    static const char *const of_vote[] = {"effect", "ruleId", "source", "reason"};
    const json_t *va = json_object_get(a, "votes"), *vb = json_object_get(b, "votes");
    for (size_t i = 0; i < BR_ARRAY_LEN(keys); i++) {
        const json_t *x = json_object_get(a, keys[i]), *y = json_object_get(b, keys[i]);
        if (x != y && !json_equal(x, y))
            return false;
    }
    if (json_array_size(va) != json_array_size(vb))
        return false;
    for (size_t k = 0; k < json_array_size(va); k++)
        for (size_t i = 0; i < BR_ARRAY_LEN(of_vote); i++) {
            const json_t *x = json_object_get(json_array_get(va, k), of_vote[i]);
            const json_t *y = json_object_get(json_array_get(vb, k), of_vote[i]);
            if (x != y && !json_equal(x, y))
                return false;
        }
    return true;
}
