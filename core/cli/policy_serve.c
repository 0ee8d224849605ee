/*
 * bridle policy test --serve: what decides for a spec. bridle.testing, in the operator's busted,
 * starts one for each bundle and writes lines of JSON: a request as policy_ask() takes it,
 * {"mutant": ...} to decide by a mutant from now on, {"recorded": FILE} for the calls of an export,
 * or {} to hear whether the bundle compiled. Every line is answered by one, also by a bundle that
 * did not compile, until standard input ends. The lines are the operator's own, and checked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/policy_priv.h"

#define LINE_NODES_MAX 100000u

static json_t *failure(const struct br_err *err)
{
    return json_pack("{s:{s:s, s:s}}", "error", "code", br_code_name(err->code), "message",
                     err->text);
}

static const json_t *find_rule(const json_t *table, const char *id)
{
    static const char *const lists[] = {"rules", "fallbacks"};
    const json_t *rule;
    size_t i;
    for (size_t k = 0; id && k < BR_ARRAY_LEN(lists); k++)
        json_array_foreach(json_object_get(table, lists[k]), i, rule)
        {
            const char *other = json_string_value(json_object_get(rule, "id"));
            if (other && strcmp(other, id) == 0)
                return rule;
        }
    return NULL;
}

/* Beside a "ruleId": "rule", as its author wrote it, and "where". */
static void spell(const json_t *table, json_t *o)
{
    char where[BR_PATH_MAX + 16];
    const char *id = json_string_value(json_object_get(o, "ruleId"));
    const char *colon = id ? strchr(id, ':') : NULL, *bare = colon ? colon + 1 : id;
    const json_t *rule = find_rule(table, id);
    if (bare)
        json_object_set_new(o, "rule", json_stringn(bare, policy_base_id(bare)));
    if (rule && *policy_where(rule, where))
        json_object_set_new(o, "where", json_string(where));
}

static json_t *ask(struct policy_link *l, json_t *q, struct br_err *err)
{
    json_t *said = NULL, *vote;
    size_t i;
    if (policy_ask(l, json_incref(q), &said, err) < 0)
        return NULL;
    spell(l->table, said);
    json_array_foreach(json_object_get(said, "votes"), i, vote) spell(l->table, vote);
    return said;
}

/* Decide by the bundle with a place of its text changed. */
static json_t *use_changed(struct policy_link *l, const struct br_cli_args *a, const json_t *site,
                           struct br_err *err)
{
    policy_close(l);
    int r = policy_open_changed(l, a, a->noperands > 1 ? a->operands[1] : NULL,
                                (size_t)json_integer_value(site), err);
    return r < 0 ? NULL : json_object();
}

static json_t *use_mutant(struct policy_link *l, const struct br_cli_args *a, const json_t *mutant,
                          struct br_err *err)
{
    if (json_object_get(mutant, "site"))
        return use_changed(l, a, json_object_get(mutant, "site"), err);
    json_t *table = policy_mutate(l->table, mutant);
    int r = table ? policy_use_json(l, table, err)
                  : br_err_set(err, BR_E_NOT_FOUND, "the bundle has no rule to change");
    json_decref(table);
    return r < 0 ? NULL : json_object();
}

static json_t *read_recorded(const char *file, struct br_err *err)
{
    struct policy_history h = {.nruns = 0};
    json_t *list = json_array();
    int r = policy_history_file(&h, file, err);
    for (size_t i = 0; r == 0 && i < h.nruns; i++)
        for (size_t k = 0; k < h.runs[i].n; k++) {
            const struct policy_decision *d = &h.runs[i].d[k];
            json_array_append_new(list,
                                  json_pack("{s:s, s:O, s:O, s:O, s:b, s:o}", "run", h.runs[i].id,
                                            "callId", json_object_get(d->votes, "callId"), "effect",
                                            json_object_get(d->votes, "effect"), "ruleId",
                                            json_object_get(d->votes, "ruleId"), "redacted",
                                            (int)d->redacted, "request", policy_request(d)));
        }
    policy_history_free(&h);
    if (r == 0)
        return json_pack("{s:o}", "recorded", list);
    json_decref(list);
    return NULL;
}

static json_t *answer(struct policy_link *l, const struct br_cli_args *a, const char *line,
                      size_t n)
{
    struct br_err err = {.code = BR_OK};
    json_t *q = NULL, *said = NULL;
    if (br_json_scan(line, n, BR_JSON_DEPTH_MAX, LINE_NODES_MAX, NULL) == 0)
        q = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);
    const char *recorded = json_string_value(json_object_get(q, "recorded"));
    if (!json_is_object(q))
        (void)br_err_set(&err, BR_E_INVALID_JSON, "the request is not a JSON object");
    else if (json_object_get(q, "mutant"))
        said = use_mutant(l, a, json_object_get(q, "mutant"), &err);
    else if (recorded)
        said = read_recorded(recorded, &err);
    else if (json_object_size(q) == 0)
        said = json_object();
    else
        said = ask(l, q, &err);
    json_decref(q);
    return said ? said : failure(&err);
}

static int put_line(json_t *said)
{
    BR_CLEANUP_FREE char *text = json_dumps(said, JSON_COMPACT);
    json_decref(said);
    if (!text)
        return -1;
    if (br_write_all(STDOUT_FILENO, text, strlen(text)) < 0)
        return -1;
    return br_write_all(STDOUT_FILENO, "\n", 1);
}

int policy_serve(const struct br_cli_args *a)
{
    struct br_err err = {.code = BR_OK};
    struct policy_link l;
    BR_CLEANUP_FREE char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int r = policy_open_good(&l, a, a->noperands > 1 ? a->operands[1] : NULL, &err), w = 0;
    while (w == 0 && (n = getline(&line, &cap, stdin)) >= 0)
        w = put_line(r < 0 ? failure(&err) : answer(&l, a, line, (size_t)n));
    policy_close(&l);
    return r < 0 ? br_code_exit(r) : 0;
}
