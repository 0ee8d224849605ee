/*
 * Fuzzes what `bridle policy` reads out of an export: lines of input are events of records. The
 * tables that they hold are put together with another one, and witnesses are made of their rules,
 * whatever they are.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/policy_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look_at_rules(const json_t *table)
{
    json_t *list = json_array(), *actions = json_pack("{s:b, s:b}", "process.exec", 1, "x", 1);
    char where[BR_PATH_MAX + 16], matcher[BR_PATTERN_MAX + 32];
    const json_t *rule;
    size_t i;
    json_array_foreach(json_object_get(table, "rules"), i, rule)
    {
        br_require(strlen(policy_where(rule, where)) < sizeof(where));
        br_require(strlen(policy_matcher(rule, matcher)) < sizeof(matcher));
        br_require(policy_source(table, rule) != NULL);
        policy_witnesses(list, rule, actions, json_object_get(table, "conditions"));
    }
    json_array_foreach(list, i, rule) br_require(json_is_string(json_object_get(rule, "action")) &&
                                                 json_is_string(json_object_get(rule, "rule")));
    json_decref(list);
    json_decref(actions);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct policy_history h = {.nruns = 0};
    struct br_err err = {.code = BR_OK};
    int r = 0;
    for (size_t at = 0; r == 0 && at < size && size < 65536;) {
        const uint8_t *nl = memchr(data + at, '\n', size - at);
        size_t n = nl ? (size_t)(nl - (data + at)) : size - at;
        r = policy_history_event(&h, (const char *)data + at, n, &err);
        br_require((r < 0) == (err.code != BR_OK));
        at += n + (nl != NULL);
    }
    for (size_t i = 0; i < h.nruns; i++) {
        for (size_t k = 0; k < h.runs[i].n; k++)
            json_decref(policy_request(&h.runs[i].d[k]));
        if (!policy_table_usable(&h.runs[i]))
            continue;
        (void)policy_table_exact(&h.runs[i]);
        look_at_rules(h.runs[i].table);
        json_decref(policy_merge(h.runs[i].table, h.runs[i ? i - 1 : 0].table));
    }
    policy_history_free(&h);
    return 0;
}
