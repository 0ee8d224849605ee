/*
 * The service's settings as they cross channels: what the operator's bridle.lua says under
 * `service`, completed with defaults, and the bearer tokens. Decoders bound every field and leave
 * `r->failed` set. Seconds and bytes are positive unless 0 is said to mean something.
 */
#ifndef BR_WIRE_SERVICE_H
#define BR_WIRE_SERVICE_H

#include "base/base.h"

#define BR_LISTENERS_MAX 8u
#define BR_ORIGINS_MAX 16u
#define BR_SERVICE_UIDS_MAX 16u
#define BR_SERVICE_NAMES_MAX 32u /* names of certificates */
#define BR_TOKENS_MAX 64u

/* What a client may do; each includes the ones before it. Zero is nothing. */
enum br_access {
    BR_ACCESS_NONE = 0,
    BR_ACCESS_OBSERVE = 1, /* list, watch, read */
    BR_ACCESS_ANSWER = 2,  /* and answer what is asked */
    BR_ACCESS_OPERATE = 3, /* and create, prompt, cancel, detach sessions */
};

/*
 * Who a client is, in events, logs and GATE_CHECK ("br_who"): "uid:1000", "token:NAME" or
 * "cert:NAME"; at most BR_WHO_MAX - 1 bytes of printable ASCII.
 */
#define BR_WHO_MAX 80u

enum br_listener_kind { BR_LISTENER_TCP = 1, BR_LISTENER_UNIX = 2 };
struct br_listener {
    uint8_t kind;
    uint8_t loopback;  /* TCP: bound to 127.0.0.0/8 or ::1 */
    uint8_t tls;       /* bridle-tls accepts on it */
    uint8_t plaintext; /* the operator said that TCP without TLS beyond loopback is intended */
    uint16_t port;     /* TCP; the one that it got, where 0 was asked for */
    char address[BR_NAME_MAX]; /* "127.0.0.1", "::1", or the path of a Unix socket */
};

struct br_service {
    uint32_t nlisteners;
    struct br_listener listeners[BR_LISTENERS_MAX];
    char root[BR_PATH_MAX]; /* workspaces lie in it, by real path */
    uint32_t norigins, nhosts, nuids, nnames;
    char origins[BR_ORIGINS_MAX][BR_NAME_MAX]; /* "https://board.example:8443" */
    char hosts[BR_ORIGINS_MAX][BR_NAME_MAX];   /* in Host, beside those of the listeners */
    uint32_t
        uids[BR_SERVICE_UIDS_MAX]; /* who operates from this machine, beside root and bridled's */
    struct {
        char name[64];  /* common name of a client's certificate */
        uint8_t access; /* enum br_access */
    } names[BR_SERVICE_NAMES_MAX];
    uint8_t token_in_url, board, board_remote, metrics, detach;
    uint32_t message_bytes;     /* of one message; 1 MiB, at most 16 MiB */
    uint32_t fragments;         /* of one message; 1024 */
    uint32_t frame_seconds;     /* for an incomplete frame or message; 30 */
    uint32_t handshake_seconds; /* from accept to upgraded; 10 */
    uint32_t queue_bytes;       /* that wait for one client that does not read; 4 MiB */
    uint32_t connections, connections_per_peer; /* 12,000 and 11,000 */
    uint32_t sessions_per_connection;           /* 32, all it ever makes */
    uint32_t unprompted_seconds;  /* a created session waits so long for its prompt; 300 */
    uint32_t ask_seconds;         /* an ask waits so long; 120 */
    uint32_t running;             /* runs at one time; more wait in line */
    uint32_t requests_per_second; /* of one peer, burst of ten times that; 0: no limit */
    char otlp[BR_PATH_MAX];       /* "http://127.0.0.1:4318"; "": nothing is exported */
};
/* Everything but listeners and root as documented above. */
void br_service_default(struct br_service *s);
void br_service_put(struct br_buf *b, const struct br_service *s);
void br_service_get(struct br_rd *r, struct br_service *s);

/*
 * "ADDRESS:PORT", "[ADDRESS]:PORT" or an absolute path; addresses are numbers, not names. 0 with
 * all of `l` filled but tls and plaintext, or -BR_E_INVALID_CONFIG and a sentence.
 */
int br_listener_parse(const char *text, struct br_listener *l, struct br_err *err);

/* All that bridle.lua says of the service: what goes to the gateway, and bridled's own part. */
struct br_service_config {
    uint8_t given;       /* it has `service`; else everything is a default */
    struct br_service s; /* no listeners: the default ones; root "": not said */
    uint32_t nusers;     /* beside s.uids: */
    char users[BR_SERVICE_UIDS_MAX][64];
    char cert[BR_PATH_MAX], key[BR_PATH_MAX], client_ca[BR_PATH_MAX]; /* "": there is none */
    uint8_t require_client_cert;
    uint32_t drain_seconds; /* how long those that run may go on when the service ends; 30 */
};
void br_service_config_default(struct br_service_config *c);
void br_service_config_put(struct br_buf *b, const struct br_service_config *c);
void br_service_config_get(struct br_rd *r, struct br_service_config *c);

/* A bearer token: 32 random bytes as 64 hex digits, of which only the hash is kept. */
struct br_token {
    char name[64];      /* kebab-case */
    uint8_t access;     /* enum br_access */
    uint8_t sha256[32]; /* of the 64 digits */
};
void br_token_put(struct br_buf *b, const struct br_token *t);
void br_token_get(struct br_rd *r, struct br_token *t);

#endif
