/*
 * What a service still owes an editor: the requests that were sent and have no answer yet, so that
 * `bridle acp` knows, at the end of its input, what to wait for. Called by acp.c with each message
 * of both sides. Neither is trusted: what is no JSON, or too much to remember, is only not waited
 * for, or in vain.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/acp_priv.h"

/* Requests that are remembered at one time. */
#define OWED_MAX 4096u

struct acp_request {
    struct acp_request *next;
    char *id;      /* as JSON */
    char *session; /* of a session/prompt, as JSON; else NULL */
};

static json_t *read_object(const char *text, size_t n)
{
    json_t *o = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
    if (json_is_object(o))
        return o;
    json_decref(o);
    return NULL;
}

static char *write_json(const json_t *v)
{
    return v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
}

static void free_request(struct acp_request *r)
{
    free(r->id);
    free(r->session);
    free(r);
}

void acp_owed_sent(struct acp_owed *o, const char *text, size_t n)
{
    json_t *m = read_object(text, n);
    const json_t *id = json_object_get(m, "id"), *params = json_object_get(m, "params");
    const char *method = json_string_value(json_object_get(m, "method"));
    bool answer = !method && (json_object_get(m, "result") || json_object_get(m, "error"));
    if (!m || (!method && !answer)) {
        o->nameless++; /* it is refused, and the refusal names no id */
    } else if (method && id && o->n < OWED_MAX) {
        struct acp_request *r = calloc(1, sizeof(*r));
        br_require(r);
        r->id = write_json(id);
        if (strcmp(method, "session/prompt") == 0)
            r->session = write_json(json_object_get(params, "sessionId"));
        r->next = o->first;
        o->first = r;
        o->n++;
    }
    json_decref(m);
}

void acp_owed_heard(struct acp_owed *o, const char *text, size_t n)
{
    if (o->n + o->nameless == 0)
        return;
    json_t *m = read_object(text, n);
    if (m && !json_object_get(m, "method")) {
        BR_CLEANUP_FREE char *id = write_json(json_object_get(m, "id"));
        struct acp_request **at = &o->first;
        while (*at && !(id && (*at)->id && strcmp((*at)->id, id) == 0))
            at = &(*at)->next;
        if (*at) {
            struct acp_request *r = *at;
            *at = r->next;
            o->n--;
            free_request(r);
        } else if (o->nameless) {
            o->nameless--;
        }
    }
    json_decref(m);
}

unsigned acp_owed_count(const struct acp_owed *o)
{
    return o->n + o->nameless;
}

bool acp_owed_cancels(const struct acp_owed *o, struct br_buf *lines)
{
    for (const struct acp_request *r = o->first; r; r = r->next)
        if (r->session)
            br_buf_printf(lines,
                          "{\"jsonrpc\":\"2.0\",\"method\":\"session/cancel\",\"params\":{"
                          "\"sessionId\":%s}}\n",
                          r->session);
    return lines->len > 0;
}

void acp_owed_free(struct acp_owed *o)
{
    for (struct acp_request *r = o->first, *next; r; r = next) {
        next = r->next;
        free_request(r);
    }
    *o = (struct acp_owed){.first = NULL};
}
