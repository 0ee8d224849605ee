/*
 * The encoder and the decoder of adapter.h. Called by bridle-script, bridled and bridle-session;
 * what is decoded was made by a program that ran an operator's text, and is bounded here.
 */
#include "wire/adapter.h"

#include <string.h>

static void put_fixed(struct br_buf *b, const void *p, size_t n)
{
    br_buf_put(b, p, n);
}

static void get_fixed(struct br_rd *r, uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = br_rd_u8(r);
}

/* A count of at most `max`. */
static uint32_t get_count(struct br_rd *r, uint32_t max)
{
    uint32_t n = br_rd_u32(r);
    if (n > max)
        r->failed = true;
    return r->failed ? 0 : n;
}

static uint8_t get_flag(struct br_rd *r)
{
    uint8_t v = br_rd_u8(r);
    if (v > 1)
        r->failed = true;
    return v;
}

void br_adapter_put(struct br_buf *b, const struct br_adapter *a)
{
    br_buf_put_str(b, a->id);
    br_buf_put_u32(b, a->revision);
    put_fixed(b, a->sha256, sizeof(a->sha256));
    br_buf_put_u32(b, a->nentry);
    for (uint32_t i = 0; i < a->nentry; i++)
        br_buf_put_str(b, a->entry[i]);
    br_buf_put_u32(b, a->ntools);
    for (uint32_t i = 0; i < a->ntools; i++)
        br_buf_put_str(b, a->tools[i]);
    br_buf_put_u32(b, a->routes);
    br_buf_put_u8(b, a->session);
    br_buf_put_u8(b, a->gate);
    br_buf_put_u8(b, a->artifact);
    br_buf_put_u64(b, a->artifact_bytes);
    br_buf_put_u32(b, a->output_bytes);
    br_buf_put_u32(b, a->trace_bytes);
    br_buf_put_str(b, a->system);
}

void br_adapter_get(struct br_rd *r, struct br_adapter *a)
{
    memset(a, 0, sizeof(*a));
    br_rd_str(r, a->id, sizeof(a->id));
    a->revision = br_rd_u32(r);
    get_fixed(r, a->sha256, sizeof(a->sha256));
    a->nentry = get_count(r, BR_ADAPTER_ENTRY_MAX);
    for (uint32_t i = 0; i < a->nentry; i++)
        br_rd_str(r, a->entry[i], sizeof(a->entry[i]));
    a->ntools = get_count(r, BR_LEASE_TOOLS_MAX);
    for (uint32_t i = 0; i < a->ntools; i++)
        br_rd_str(r, a->tools[i], sizeof(a->tools[i]));
    a->routes = br_rd_u32(r);
    a->session = get_flag(r);
    a->gate = get_flag(r);
    a->artifact = br_rd_u8(r);
    a->artifact_bytes = br_rd_u64(r);
    a->output_bytes = br_rd_u32(r);
    a->trace_bytes = br_rd_u32(r);
    br_rd_str(r, a->system, sizeof(a->system));
    if (!br_is_kebab(a->id, sizeof(a->id) - 1) || !a->revision || !a->nentry ||
        a->entry[0][0] != '/' || (a->routes & ~BR_ROUTES_ALL) || !a->routes || a->artifact > 2 ||
        !a->output_bytes || !a->trace_bytes)
        r->failed = true;
}

void br_adapter_terms_put(struct br_buf *b, const struct br_adapter_terms *t)
{
    br_buf_put_str(b, t->ref);
    br_buf_put_u32(b, t->nprofiles);
    for (uint32_t i = 0; i < t->nprofiles; i++)
        br_buf_put_str(b, t->profiles[i]);
    br_buf_put_str(b, t->image);
    br_buf_put_str(b, t->file);
    br_buf_put_u8(b, t->gate);
    br_buf_put_u8(b, t->context_files);
    br_buf_put_u32(b, t->requests);
    br_buf_put_u32(b, t->in_flight);
    br_buf_put_u64(b, t->tokens);
    br_buf_put_u64(b, t->request_bytes);
    br_buf_put_u64(b, t->response_bytes);
    br_buf_put_u32(b, t->answer_tokens);
    br_buf_put_u32(b, t->seconds);
    br_buf_put_u32(b, t->keep_seconds);
}

void br_adapter_terms_get(struct br_rd *r, struct br_adapter_terms *t)
{
    memset(t, 0, sizeof(*t));
    br_rd_str(r, t->ref, sizeof(t->ref));
    t->nprofiles = get_count(r, BR_ADAPTER_PROFILES_MAX);
    for (uint32_t i = 0; i < t->nprofiles; i++)
        br_rd_str(r, t->profiles[i], sizeof(t->profiles[i]));
    br_rd_str(r, t->image, sizeof(t->image));
    br_rd_str(r, t->file, sizeof(t->file));
    t->gate = get_flag(r);
    t->context_files = get_flag(r);
    t->requests = br_rd_u32(r);
    t->in_flight = br_rd_u32(r);
    t->tokens = br_rd_u64(r);
    t->request_bytes = br_rd_u64(r);
    t->response_bytes = br_rd_u64(r);
    t->answer_tokens = br_rd_u32(r);
    t->seconds = br_rd_u32(r);
    t->keep_seconds = br_rd_u32(r);
    if (!t->requests || !t->in_flight || !t->tokens || !t->request_bytes || !t->response_bytes ||
        !t->answer_tokens)
        r->failed = true;
}

bool br_adapter_allows(const struct br_adapter_terms *t, const char *profile)
{
    for (uint32_t i = 0; i < t->nprofiles; i++)
        if (strcmp(t->profiles[i], profile) == 0)
            return true;
    return false;
}

void br_harness_put(struct br_buf *b, const struct br_harness *h)
{
    br_adapter_put(b, &h->adapter);
    br_adapter_terms_put(b, &h->terms);
    br_buf_put_str(b, h->token);
    br_buf_put_str(b, h->session_id);
    br_buf_put_u8(b, h->resume);
}

void br_harness_get(struct br_rd *r, struct br_harness *h)
{
    memset(h, 0, sizeof(*h));
    br_adapter_get(r, &h->adapter);
    br_adapter_terms_get(r, &h->terms);
    br_rd_str(r, h->token, sizeof(h->token));
    br_rd_str(r, h->session_id, sizeof(h->session_id));
    h->resume = get_flag(r);
    if (strlen(h->token) != 64)
        r->failed = true;
}
