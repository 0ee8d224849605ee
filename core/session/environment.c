/*
 * What an effect depends on beside action and subject: everything that has to be the same again for
 * an answer "for this run" to cover it. Made of what the session itself knows, never of what a
 * client or a model says about it. Two requests that differ in any part have different hashes.
 */
#include <string.h>

#include "session/session_priv.h"

static void put(struct br_sha256 *h, const void *p, size_t n)
{
    uint64_t len = n; /* so that no two lists of parts are the same bytes */
    br_sha256_put(h, &len, sizeof(len));
    if (n)
        br_sha256_put(h, p, n);
}

static void put_count(struct br_sha256 *h, uint64_t n)
{
    put(h, &n, sizeof(n));
}

static void put_text(struct br_sha256 *h, const char *s)
{
    put(h, s ? s : "", s ? strlen(s) : 0);
}

/* The rules that asked, and why: another one that asks the next time was not answered. */
static void put_rules(struct br_sha256 *h, const struct verdict *v)
{
    const json_t *vote;
    size_t i;
    put_text(h, v->source);
    put_text(h, v->rule_id);
    put_text(h, v->reason);
    put_count(h, json_array_size(v->votes));
    json_array_foreach(v->votes, i, vote)
    {
        bool asks = strcmp(json_string_value(json_object_get(vote, "effect")), "ask") == 0;
        put_text(h, asks ? json_string_value(json_object_get(vote, "source")) : "");
        put_text(h, asks ? json_string_value(json_object_get(vote, "ruleId")) : "");
        put_text(h, asks ? json_string_value(json_object_get(vote, "reason")) : "");
    }
}

/* What a command runs with. The changes of variables in a line for a shell are in its subject. */
static void put_command(struct br_sha256 *h, const struct effect *e)
{
    uint8_t shell = e->shell;
    put(h, &shell, 1);
    put_text(h, e->op.path); /* the working directory */
    put_count(h, e->op.argc);
    for (uint32_t i = 0; i < e->op.argc; i++)
        put_text(h, e->op.argv[i]);
    put(h, e->op.text2.data, e->op.text2.len); /* its standard input */
}

void session_environment(struct session *s, const struct attempt *a,
                         uint8_t out[BR_ENVIRONMENT_BYTES])
{
    struct br_sha256 h;
    br_sha256_init(&h);
    put_text(&h, "bridle run grant 1");
    put(&h, s->table ? br_table_sha256(s->table) : NULL, s->table ? 32 : 0);
    put_text(&h, a->e->action);
    put_count(&h, s->as_of.nenv);
    for (size_t i = 0; i < s->as_of.nenv; i++)
        put_text(&h, s->as_of.env[i]);
    put_rules(&h, &a->v);
    if (a->e->op.op == BR_OP_EXEC)
        put_command(&h, a->e);
    br_sha256_end(&h, out);
}
