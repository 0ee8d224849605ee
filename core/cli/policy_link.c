/*
 * The link of `bridle policy` to a session in mode policy: one CTL_RUN, then requests and answers
 * until the client leaves. What arrives is JSON that the session made of an operator's texts; it is
 * parsed strictly, and shown by nothing but the view.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/policy_priv.h"

static json_t *parse(const struct br_buf *b)
{
    return json_loadb((const char *)b->data, b->len, JSON_REJECT_DUPLICATES, NULL);
}

static int on_table(void *ctx, const struct br_buf *report, const struct br_buf *table)
{
    struct policy_link *l = ctx;
    l->report = parse(report);
    l->bad = !json_is_object(l->report);
    if (table->len) {
        br_buf_init(&l->raw, BR_TABLE_MAX);
        br_buf_put(&l->raw, table->data, table->len);
        l->table = parse(table);
    }
    br_loop_stop(l->c.loop);
    return 0;
}

static int on_said(void *ctx, const struct br_buf *answer)
{
    struct policy_link *l = ctx;
    json_decref(l->said);
    l->said = parse(answer);
    l->bad = !json_is_object(l->said);
    br_loop_stop(l->c.loop);
    return 0;
}

static const struct br_cli_hooks hooks = {.table = on_table, .said = on_said};

/* Serve until there is an answer. */
static int wait_for(struct policy_link *l, json_t **what, struct br_err *err)
{
    struct br_err local = {.code = BR_OK};
    struct br_cli_client *c = &l->c;
    while (!*what && !l->bad && !c->done) {
        int r = br_loop_run(c->loop, &c->done, &local);
        if (r < 0) {
            *err = c->broken.code ? c->broken : local;
            return err->code ? r : br_err_set(err, BR_E_PROGRAM_DIED, "'bridled' has gone");
        }
    }
    if (l->bad)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "the session sent an answer that is none");
    if (*what)
        return 0;
    if (c->killed || c->nsignals)
        return br_err_set(err, BR_E_CANCELED, "interrupted");
    return c->code ? br_err_set(err, c->code, "%s", c->text)
                   : br_err_set(err, BR_E_PROGRAM_DIED, "the session ended without an answer");
}

/* The text of the bundle, changed. */
static int change(struct br_buf *text, size_t site, struct br_err *err)
{
    struct policy_sites sites;
    struct br_buf changed = BR_BUF_INIT(0);
    int r = policy_sites_find(&sites, (const char *)text->data, text->len, err);
    if (r == 0 && site >= sites.n)
        r = br_err_set(err, BR_E_NOT_FOUND, "the bundle has no place to change");
    if (r == 0)
        r = policy_site_change(&changed, (const char *)text->data, text->len, &sites.list[site],
                               err);
    policy_sites_free(&sites);
    br_buf_free(r == 0 ? text : &changed);
    if (r == 0)
        *text = changed;
    return r;
}

static int open_link(struct policy_link *l, const struct br_cli_args *a, const char *file,
                     size_t site, struct br_err *err)
{
    memset(l, 0, sizeof(*l));
    struct br_cli_foreground f = {.mode = BR_RUN_POLICY,
                                  .args = a,
                                  .policy = file,
                                  .as_read = strcmp(a->operands[0], "test") == 0,
                                  .dir = br_cli_opt(a, "dir"),
                                  .manifest = br_cli_opt(a, "manifest"),
                                  .goal = "policy"};
    int r = br_cli_documents_read(&f, &l->d, err);
    if (r < 0)
        return r;
    if (site != SIZE_MAX)
        r = change(&l->d.policy.text, site, err);
    if (r < 0)
        return r;
    l->open = true;
    r = br_cli_client_open(&l->c, &hooks, l, err);
    if (r == 0)
        r = br_cli_documents_send(&f, &l->d, false, &l->c, err);
    if (r == 0)
        r = wait_for(l, &l->report, err);
    if (r == 0 && json_is_true(json_object_get(l->report, "ok")) && !l->table)
        r = br_err_set(err, BR_E_INVALID_TABLE, "the session sent no usable table");
    return r;
}

int policy_open(struct policy_link *l, const struct br_cli_args *a, const char *file,
                struct br_err *err)
{
    return open_link(l, a, file, SIZE_MAX, err);
}

/* A bundle that did not compile is an error. */
static int compiled(const struct policy_link *l, struct br_err *err)
{
    if (json_is_true(json_object_get(l->report, "ok")))
        return 0;
    const json_t *e = json_object_get(l->report, "error");
    const char *name = json_string_value(json_object_get(e, "code"));
    const char *text = json_string_value(json_object_get(e, "message"));
    int code = BR_E_INVALID_POLICY;
    for (int i = 1; name && i < BR_CODE_COUNT_; i++)
        if (strcmp(br_code_name(i), name) == 0)
            code = i;
    return br_err_set(err, (enum br_code)code, "%s", text ? text : "it did not compile");
}

int policy_open_good(struct policy_link *l, const struct br_cli_args *a, const char *file,
                     struct br_err *err)
{
    int r = policy_open(l, a, file, err);
    return r < 0 ? r : compiled(l, err);
}

int policy_open_changed(struct policy_link *l, const struct br_cli_args *a, const char *file,
                        size_t site, struct br_err *err)
{
    int r = open_link(l, a, file, site, err);
    return r < 0 ? r : compiled(l, err);
}

static int exchange(struct policy_link *l, enum br_msg_type type, const char *text, size_t n,
                    struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    json_decref(l->said);
    l->said = NULL;
    br_out_blob(&o, text, n);
    int r = l->c.session.fd < 0 ? -BR_E_PEER_GONE
                                : br_chan_send(&l->c.session, type, ++l->next_id, &o, err);
    if (r == 0 || r == -BR_E_PEER_GONE) /* then how it ended says more */
        r = wait_for(l, &l->said, err);
    if (r < 0)
        return r;
    const json_t *e = json_object_get(l->said, "error");
    const char *said = json_string_value(json_object_get(e, "message"));
    return e ? br_err_set(err, BR_E_INVALID_ARGUMENTS, "%s", said ? said : "it was refused") : 0;
}

int policy_ask(struct policy_link *l, json_t *q, json_t **said, struct br_err *err)
{
    BR_CLEANUP_FREE char *text = q ? json_dumps(q, JSON_COMPACT) : NULL;
    *said = NULL;
    json_decref(q);
    if (!text)
        return br_err_set(err, BR_E_INVALID_ARGUMENTS, "the request is not text in UTF-8");
    int r = exchange(l, BR_MSG_POLICY_ASK, text, strlen(text), err);
    if (r == 0)
        *said = br_steal_ptr(&l->said);
    return r;
}

int policy_use(struct policy_link *l, const char *text, size_t n, struct br_err *err)
{
    return exchange(l, BR_MSG_POLICY_USE, text, n, err);
}

void policy_close(struct policy_link *l)
{
    if (l->open) {
        br_chan_close(&l->c.session);
        if (l->c.loop && l->c.ctl.fd >= 0 && !l->c.done) /* let it end by itself */
            (void)br_cli_client_wait(&l->c, NULL);
        br_cli_client_close(&l->c);
    }
    br_cli_documents_free(&l->d);
    json_decref(l->report);
    json_decref(l->table);
    json_decref(l->said);
    br_buf_free(&l->raw);
    memset(l, 0, sizeof(*l));
}
