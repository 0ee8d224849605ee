/*
 * core/cli: a WebSocket connection to a service of Bridle, for the verbs that talk to one (connect,
 * acp). It owns the socket, the opening handshake, pings and the close; what the messages say is
 * its user's business. The server is not trusted: everything that it sends is bounded and checked
 * by core/ws.
 */
#ifndef BR_CLI_REMOTE_H
#define BR_CLI_REMOTE_H

#include "base/base.h"
#include "wire/wire.h"

#define BR_CLI_URL_MAX 2048u
#define BR_CLI_REMOTE_PORT 8765u
/* One message of a server: its own limit is 16 MiB at most, and an event 1 MiB. */
#define BR_CLI_REMOTE_MESSAGE_MAX (16u * 1024 * 1024)
#define BR_CLI_REMOTE_SECONDS 30u

/* Where a service is. */
struct br_cli_url {
    bool local;          /* a Unix socket */
    bool tls;            /* wss */
    char socket[108];    /* of `local`: its path */
    char host[256];      /* else: a name or an address, without brackets */
    uint16_t port;       /* 8765 for ws, 443 for wss, unless it was given */
    char authority[272]; /* the Host field */
    char path[1024];     /* "/acp" unless it was given */
};

/*
 * Take apart ws://HOST[:PORT][/PATH], wss://..., unix:PATH or ws+unix://PATH; "" and NULL are the
 * socket of the service of this machine. -BR_E_USAGE, with a sentence that repeats nothing that
 * could be a password: another scheme, credentials, a query, a fragment, a host that is none, a
 * port that is none, control characters, more than BR_CLI_URL_MAX bytes, and ws:// to anything but
 * 127.0.0.0/8, ::1 and localhost.
 */
int br_cli_url_parse(const char *text, struct br_cli_url *u, struct br_err *err);

struct br_cli_remote_hooks {
    /* One text message: valid UTF-8, terminated, valid during the call, which may run the loop. A
     * negative return ends the loop with it, as everywhere. */
    int (*message)(void *ctx, const char *text, size_t n, struct br_err *err);
    /* The connection is over: -BR_E_PEER_GONE (the server closed it, `err` says how),
     * -BR_E_PEER_PROTOCOL, -BR_E_TIMEOUT, -BR_E_LIMIT_EXCEEDED, -BR_E_IO. What it returns is what
     * the loop gets; NULL: the code itself, which ends the loop. */
    int (*ended)(void *ctx, int code, struct br_err *err);
};

struct br_cli_remote_options {
    const char *protocol;   /* the subprotocol, which the server must choose */
    const char *token_file; /* a bearer token is in it; NULL: BRIDLE_TOKEN of `env`, if it is set */
    const char *ca_file;    /* wss: PEM; NULL: the authorities of the system */
    const char *cert, *key; /* wss: what this client shows of itself, PEM files; NULL: nothing */
    /* Without TLS: who may have the server's end, beside root, this user and the gateway's role: a
     * uid, or "any"; NULL: nobody. */
    const char *server_uid;
    char *(*env)(const char *); /* the program's getenv; NULL: nothing is read */
    unsigned seconds;           /* for each step of connecting, and between signs of life */
};

struct br_cli_remote;

/*
 * Connect and shake hands; blocks for that. Then the connection is served by `loop`. 0 and *out,
 * or a negative code and nothing: -BR_E_PEER_GONE (nobody listens), -BR_E_TIMEOUT, -BR_E_DENIED
 * (the token, the certificate), -BR_E_NOT_FOUND, -BR_E_PEER_PROTOCOL, -BR_E_INVALID_CONFIG (a file
 * that was named), ...
 */
int br_cli_remote_open(struct br_cli_remote **out, struct br_loop *loop, const struct br_cli_url *u,
                       const struct br_cli_remote_options *o,
                       const struct br_cli_remote_hooks *hooks, void *ctx, struct br_err *err);
/* Queue one text message. -BR_E_PEER_GONE once it is over; -BR_E_LIMIT_EXCEEDED if the server does
 * not read. */
int br_cli_remote_send(struct br_cli_remote *r, const char *text, size_t n, struct br_err *err);
/*
 * No message is delivered until it is called again with false, once for each time with true. The
 * server is still served: its pings are answered, and what it sends waits, at most 8 MiB of it.
 */
void br_cli_remote_hold(struct br_cli_remote *r, bool hold);
/* Bytes that wait because the server does not read as fast. */
size_t br_cli_remote_queued(const struct br_cli_remote *r);
/* Close with a code and a reason, wait for at most a second for the other side, and free it. NULL
 * is left alone. No hook is called; not to be called from inside of one. */
void br_cli_remote_close(struct br_cli_remote **r, unsigned code, const char *reason);

#endif
