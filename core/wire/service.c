/*
 * Encoding of the service's settings. Both sides are Bridle's own programs; a decoder checks all
 * the same what an array index or an access could be made of.
 */
#include "wire/service.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

void br_service_default(struct br_service *s)
{
    *s = (struct br_service){.board = 1,
                             .metrics = 1,
                             .message_bytes = 1u << 20,
                             .fragments = 1024,
                             .frame_seconds = 30,
                             .handshake_seconds = 10,
                             .queue_bytes = 4u << 20,
                             .connections = 12000,
                             .connections_per_peer = 11000,
                             .sessions_per_connection = 32,
                             .unprompted_seconds = 300,
                             .ask_seconds = 120,
                             .running = 8,
                             .requests_per_second = 1000};
}

static int bad_listener(const char *text, const char *why, struct br_err *err)
{
    return br_err_set(err, BR_E_INVALID_CONFIG, "'%.200s' is no place to listen at: %s", text, why);
}

int br_listener_parse(const char *text, struct br_listener *l, struct br_err *err)
{
    char host[64];
    struct in_addr v4;
    struct in6_addr v6;
    memset(l, 0, sizeof(*l));
    if (text[0] == '/') {
        if (strlen(text) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
            return bad_listener(text, "the path is longer than one of a socket may be", err);
        l->kind = BR_LISTENER_UNIX;
        snprintf(l->address, sizeof(l->address), "%s", text);
        return 0;
    }
    l->kind = BR_LISTENER_TCP;
    const char *colon = strrchr(text, ':'), *port = colon ? colon + 1 : "";
    size_t n = colon ? (size_t)(colon - text) : 0;
    if (n == 0 || strlen(port) == 0 || strlen(port) > 5 ||
        strspn(port, "0123456789") != strlen(port))
        return bad_listener(text, "write ADDRESS:PORT, or the absolute path of a Unix socket", err);
    long number = strtol(port, NULL, 10);
    if (number > UINT16_MAX)
        return bad_listener(text, "a port is at most 65535", err);
    l->port = (uint16_t)number;
    bool brackets = text[0] == '[' && text[n - 1] == ']';
    snprintf(host, sizeof(host), "%.*s", (int)(brackets ? n - 2 : n), brackets ? text + 1 : text);
    if (!brackets && inet_pton(AF_INET, host, &v4) == 1) {
        l->loopback = (ntohl(v4.s_addr) >> 24) == 127;
        return inet_ntop(AF_INET, &v4, l->address, sizeof(l->address)) ? 0 : -BR_E_INTERNAL;
    }
    if (brackets && inet_pton(AF_INET6, host, &v6) == 1 && !IN6_IS_ADDR_V4MAPPED(&v6)) {
        l->loopback = IN6_IS_ADDR_LOOPBACK(&v6);
        return inet_ntop(AF_INET6, &v6, l->address, sizeof(l->address)) ? 0 : -BR_E_INTERNAL;
    }
    return bad_listener(text, "the address is a number, such as 127.0.0.1 or [::1], and no name",
                        err);
}

static void put_listener(struct br_buf *b, const struct br_listener *l)
{
    br_buf_put_u8(b, l->kind);
    br_buf_put_u8(b, l->loopback);
    br_buf_put_u8(b, l->tls);
    br_buf_put_u8(b, l->plaintext);
    br_buf_put_u32(b, l->port);
    br_buf_put_str(b, l->address);
}

static void get_listener(struct br_rd *r, struct br_listener *l)
{
    l->kind = br_rd_u8(r);
    l->loopback = br_rd_u8(r);
    l->tls = br_rd_u8(r);
    l->plaintext = br_rd_u8(r);
    uint32_t port = br_rd_u32(r);
    l->port = (uint16_t)port;
    br_rd_str(r, l->address, sizeof(l->address));
    if (port > UINT16_MAX || (l->kind != BR_LISTENER_TCP && l->kind != BR_LISTENER_UNIX))
        r->failed = true;
}

/* The numbers, in the order of the struct. */
#define NUMBERS(X)                                                                                 \
    X(message_bytes)                                                                               \
    X(fragments)                                                                                   \
    X(frame_seconds)                                                                               \
    X(handshake_seconds)                                                                           \
    X(queue_bytes)                                                                                 \
    X(connections)                                                                                 \
    X(connections_per_peer)                                                                        \
    X(sessions_per_connection)                                                                     \
    X(unprompted_seconds)                                                                          \
    X(ask_seconds)                                                                                 \
    X(running)                                                                                     \
    X(requests_per_second)

void br_service_put(struct br_buf *b, const struct br_service *s)
{
    br_buf_put_u32(b, s->nlisteners);
    for (uint32_t i = 0; i < s->nlisteners; i++)
        put_listener(b, &s->listeners[i]);
    br_buf_put_str(b, s->root);
    br_buf_put_u32(b, s->norigins);
    for (uint32_t i = 0; i < s->norigins; i++)
        br_buf_put_str(b, s->origins[i]);
    br_buf_put_u32(b, s->nhosts);
    for (uint32_t i = 0; i < s->nhosts; i++)
        br_buf_put_str(b, s->hosts[i]);
    br_buf_put_u32(b, s->nuids);
    for (uint32_t i = 0; i < s->nuids; i++)
        br_buf_put_u32(b, s->uids[i]);
    br_buf_put_u32(b, s->nnames);
    for (uint32_t i = 0; i < s->nnames; i++) {
        br_buf_put_str(b, s->names[i].name);
        br_buf_put_u8(b, s->names[i].access);
    }
    const uint8_t flags[] = {s->token_in_url, s->board, s->board_remote, s->metrics, s->detach};
    br_buf_put(b, flags, sizeof(flags));
#define PUT_NUMBER_(name) br_buf_put_u32(b, s->name);
    NUMBERS(PUT_NUMBER_)
#undef PUT_NUMBER_
    br_buf_put_str(b, s->otlp);
}

static uint32_t get_count(struct br_rd *r, uint32_t max)
{
    uint32_t n = br_rd_u32(r);
    if (n > max)
        r->failed = true;
    return r->failed ? 0 : n;
}

static uint8_t get_access(struct br_rd *r)
{
    uint8_t v = br_rd_u8(r);
    if (v < BR_ACCESS_OBSERVE || v > BR_ACCESS_OPERATE)
        r->failed = true;
    return r->failed ? BR_ACCESS_NONE : v;
}

void br_service_get(struct br_rd *r, struct br_service *s)
{
    memset(s, 0, sizeof(*s));
    s->nlisteners = get_count(r, BR_LISTENERS_MAX);
    for (uint32_t i = 0; i < s->nlisteners; i++)
        get_listener(r, &s->listeners[i]);
    br_rd_str(r, s->root, sizeof(s->root));
    s->norigins = get_count(r, BR_ORIGINS_MAX);
    for (uint32_t i = 0; i < s->norigins; i++)
        br_rd_str(r, s->origins[i], sizeof(s->origins[i]));
    s->nhosts = get_count(r, BR_ORIGINS_MAX);
    for (uint32_t i = 0; i < s->nhosts; i++)
        br_rd_str(r, s->hosts[i], sizeof(s->hosts[i]));
    s->nuids = get_count(r, BR_SERVICE_UIDS_MAX);
    for (uint32_t i = 0; i < s->nuids; i++)
        s->uids[i] = br_rd_u32(r);
    s->nnames = get_count(r, BR_SERVICE_NAMES_MAX);
    for (uint32_t i = 0; i < s->nnames; i++) {
        br_rd_str(r, s->names[i].name, sizeof(s->names[i].name));
        s->names[i].access = get_access(r);
    }
    uint8_t *const flags[] = {&s->token_in_url, &s->board, &s->board_remote, &s->metrics,
                              &s->detach};
    for (size_t i = 0; i < BR_ARRAY_LEN(flags); i++)
        if ((*flags[i] = br_rd_u8(r)) > 1)
            r->failed = true;
#define GET_NUMBER_(name) s->name = br_rd_u32(r);
    NUMBERS(GET_NUMBER_)
#undef GET_NUMBER_
    br_rd_str(r, s->otlp, sizeof(s->otlp));
}

void br_token_put(struct br_buf *b, const struct br_token *t)
{
    br_buf_put_str(b, t->name);
    br_buf_put_u8(b, t->access);
    br_buf_put(b, t->sha256, sizeof(t->sha256));
}

void br_token_get(struct br_rd *r, struct br_token *t)
{
    memset(t, 0, sizeof(*t));
    br_rd_str(r, t->name, sizeof(t->name));
    t->access = get_access(r);
    for (size_t i = 0; i < sizeof(t->sha256); i++)
        t->sha256[i] = br_rd_u8(r);
}

void br_service_config_default(struct br_service_config *c)
{
    memset(c, 0, sizeof(*c));
    br_service_default(&c->s);
    c->drain_seconds = 30;
}

void br_service_config_put(struct br_buf *b, const struct br_service_config *c)
{
    br_buf_put_u8(b, c->given);
    br_service_put(b, &c->s);
    br_buf_put_u32(b, c->nusers);
    for (uint32_t i = 0; i < c->nusers; i++)
        br_buf_put_str(b, c->users[i]);
    br_buf_put_str(b, c->cert);
    br_buf_put_str(b, c->key);
    br_buf_put_str(b, c->client_ca);
    br_buf_put_u8(b, c->require_client_cert);
    br_buf_put_u32(b, c->drain_seconds);
}

void br_service_config_get(struct br_rd *r, struct br_service_config *c)
{
    memset(c, 0, sizeof(*c));
    c->given = br_rd_u8(r);
    br_service_get(r, &c->s);
    c->nusers = get_count(r, BR_SERVICE_UIDS_MAX);
    for (uint32_t i = 0; i < c->nusers; i++)
        br_rd_str(r, c->users[i], sizeof(c->users[i]));
    br_rd_str(r, c->cert, sizeof(c->cert));
    br_rd_str(r, c->key, sizeof(c->key));
    br_rd_str(r, c->client_ca, sizeof(c->client_ca));
    c->require_client_cert = br_rd_u8(r);
    c->drain_seconds = br_rd_u32(r);
    if (c->given > 1 || c->require_client_cert > 1)
        r->failed = true;
}
