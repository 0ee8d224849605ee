/*
 * core/gateway, private to the layer of connections (poll.c, conn.c, out.c, http.c, auth.c, peer.c,
 * metrics.c, main.c): what a connection is, and what the program keeps for all of them. The
 * layers above see `struct conn` through gateway_priv.h only.
 */
#ifndef BR_GATEWAY_CONN_PRIV_H
#define BR_GATEWAY_CONN_PRIV_H

#include "diag/diag.h"
#include "gateway/gateway_priv.h"

/* ---- limits of the layer ---- */

/* A strict client queues at most 128 unread messages: a ping after every 32, and not more than 96
 * that no pong has answered for. */
#define CONN_PING_EVERY 32u
#define CONN_WINDOW 96u
/* conn_send() says 1 from these on, and `writable` comes below the lower ones. */
#define CONN_HIGH_MESSAGES 96u
#define CONN_HIGH_BYTES (256u * 1024)
#define CONN_LOW_MESSAGES 32u
/* Pings of a client that are answered one by one. */
#define CONN_PONGS_MAX 64u
#define CONN_LOW_BYTES (64u * 1024)
/* An idle client is pinged, so that one that has vanished without a word is noticed; it has so long
 * to answer a ping, as has one that is sent much. */
#define CONN_IDLE_US (60u * 1000000u)
#define CONN_PONG_US (30u * 1000000u)
/* The other side's part of an end: its close frame, or the end of its stream. */
#define CONN_CLOSE_US (5u * 1000000u)
#define CONN_LINGER_US (2u * 1000000u)
/* An answer of HTTP must have been read by then. */
#define CONN_ANSWER_US (30u * 1000000u)
/* Bytes of one connection that are read in one turn, before the others'. */
#define CONN_READ_MAX (64u * 1024)
#define CONN_ACCEPTS_MAX 64u

/* Cookies of people who logged in, and how long one is good. */
#define AUTH_COOKIES_MAX 256u
#define AUTH_COOKIE_US (12ull * 3600 * 1000000)
/* Failed authentications of one peer: so many at once, then one in so long. */
#define AUTH_FAILURES_BURST 10u
#define AUTH_FAILURE_US (6u * 1000000u)
/* Readings of the store of one of those that are known (a user, a token, a certificate), whatever
 * its connections: each is a process of its own. So many a second, beyond a burst. */
#define CONN_READINGS_PER_SECOND 20u
#define CONN_READINGS_BURST 100u
#define AUTH_TOKEN_MAX 256u /* bytes of a presented one that are looked at */
/* Connections of one peer a second, beyond a burst of connections_per_peer. */
#define PEER_CONNECTIONS_PER_SECOND 1000u
/* Of a peer that may not operate by its uid: connections that have not said yet who they are. */
#define PEER_HEADS_MAX 256u
/* Bytes that wait for all clients together, and of their incomplete messages: where there are more,
 * who has a part of it that is not small is closed. */
#define CONN_HELD_MAX (256u * 1024 * 1024)
#define CONN_HELD_SMALL (64u * 1024)
/* Peers that are remembered though they have no connection. */
#define PEER_REMEMBERED_MAX 4096u

/* ---- poll.c ---- */

/* What epoll points at. Its owner sets fn to NULL when it ends, and frees it with gw_bury(). */
struct gw_io {
    void (*fn)(void *ctx, uint32_t events);
    void *ctx;
};
struct gw_grave {
    struct gw_grave *next;
    void *object; /* that it is inside of */
};
struct gw_poll {
    int ep;
    struct gw_timer *timers; /* a pairing heap */
    struct gw_chan_watch **watches;
    int nwatches;
    struct gw_grave *graves;
    int end; /* a code that ends the program */
    struct br_err err;
};
int poll_init(struct gw_poll *p, struct br_err *err);
void poll_free(struct gw_poll *p);
/* EPOLL_CTL_*; 0 or -1 and errno. */
int poll_watch(struct gateway *g, int op, int fd, uint32_t events, struct gw_io *io);
/* free() it when no event that was read can point at it any more. */
void gw_bury(struct gateway *g, void *p, struct gw_grave *grave);
/* Wait, at most so long (negative: as long as it takes), then one turn of events and timers; 0 or a
 * negative code that ends the program. */
int poll_turn(struct gateway *g, int max_ms, struct br_err *err);

/* ---- peer.c: who comes too often ---- */

struct peer_key {
    uint8_t kind; /* 'u' and a uid, 'a' and an address (of IPv6 its first 64 bits), or 'w' and the
                     beginning of a hash of who it is known as */
    uint8_t bytes[16];
};
struct peer {
    struct peer_key key;
    unsigned connections, heads;            /* heads: of those that are in CONN_HEAD and counted */
    uint64_t accept_at, failure_at, ask_at; /* of the rates, see peer.c */
    uint64_t read_at;                       /* of kind 'w' */
    struct peer *chain, *older, *newer;
};
struct peers {
    struct peer *buckets[1024];
    struct peer *oldest, *newest; /* of those without a connection */
    unsigned nidle;
    uint64_t seed;
};
void peers_init(struct peers *p);
void peers_free(struct peers *p);
/* One more connection of this peer; NULL: no memory. peer_leave() when it ends. */
struct peer *peer_enter(struct peers *p, const struct peer_key *k);
void peer_leave(struct peers *p, struct peer *who);
/* A rate of `per_second` with a burst; false: too often, and nothing is counted. 0: no limit. */
bool peer_rate(uint64_t *at, uint64_t now, uint64_t every_us, uint64_t burst);
/* The same, without counting. */
bool peer_rate_left(uint64_t at, uint64_t now, uint64_t every_us, uint64_t burst);

/* ---- out.c: what waits to be sent ---- */

struct out_node {
    struct out_node *next;
    uint32_t n;
    uint8_t kind; /* enum out_kind */
    uint8_t data[];
};
enum out_kind { OUT_RAW, OUT_TEXT, OUT_PING, OUT_PONG, OUT_CLOSE };
struct out {
    struct out_node *first, *last;
    size_t bytes;                 /* that wait */
    uint32_t off;                 /* of the first node that are sent */
    uint32_t messages;            /* OUT_TEXT that wait */
    uint32_t pongs;               /* OUT_PONG that wait */
    uint64_t queued, sent, acked; /* messages in all; acked: by the last pong */
    uint64_t ping;                /* what the last ping that was sent said */
    uint64_t ping_us;             /* since when an answer is waited for; 0: for none */
    bool unpaced;                 /* the end: no more pongs are waited for */
};
void out_free(struct out *o);
/* Append a node of these pieces; -1: no memory. */
int out_put(struct out *o, enum out_kind kind, const struct gw_piece *pieces, unsigned n);
/* Append a text message, and the ping that is due behind it. */
int out_text(struct out *o, const struct gw_piece *pieces, unsigned n);
int out_ping(struct out *o);
/* Append a pong. Where many wait already, only the last ping is answered (RFC 6455 section 5.5.3).
 */
int out_answer_ping(struct out *o, const void *p, size_t n);
/* Forget what waits, but for the rest of a node that is sent in part. */
void out_drop(struct out *o);
/* What a pong said; true if it was one that was waited for. */
bool out_pong(struct out *o, const char *p, size_t n, uint64_t now);
/* Send: 0: all that may be sent now is, 1: the socket has no more room, -1: it is broken. *bytes
 * and *messages grow by what was sent. */
int out_flush(struct out *o, int fd, uint64_t now, uint64_t *bytes, uint64_t *messages);

/* ---- connections ---- */

enum conn_step {
    CONN_HEAD,    /* an HTTP head is read */
    CONN_OPEN,    /* upgraded */
    CONN_ANSWER,  /* an HTTP answer is sent */
    CONN_CLOSING, /* a close frame is sent, or will be behind what waits */
    CONN_LINGER,  /* all is said; what comes is thrown away until its end */
    CONN_DEAD,
};
enum auth_how { AUTH_NOBODY, AUTH_UID, AUTH_TOKEN, AUTH_CERT };

struct conn {
    struct gw_io io;
    struct gateway *g;
    struct conn *prev, *next; /* all of them */
    struct conn *next_dirty, *next_ended;
    struct gw_grave grave;
    int fd;
    uint32_t events;        /* that epoll looks for */
    uint8_t step, listener; /* its number */
    uint8_t how;            /* enum auth_how */
    bool tls, local;        /* local: a Unix socket, or both ends are loopback */
    bool unix_socket, has_uid;
    bool dirty, ended, wants_room, head_only;
    bool counted;                      /* in peer->heads */
    bool eof, broken, got_close, told; /* told: protocol->closed was called */
    uid_t uid;
    uint64_t id;
    uint64_t stuck_us; /* since when its socket takes nothing more; 0: it does */
    uint64_t frame_us; /* since when a frame or message is incomplete; 0: none is */
    uint64_t in_us;    /* of the last bytes that came */
    struct gw_timer timer;
    struct peer *peer;
    struct peer *known; /* of kind 'w', once it reads the store; NULL */
    char *cert;         /* name in the client's certificate; NULL: none */
    char *address;      /* of a TLS peer, for logs; NULL */
    struct gw_who who;
    uint8_t proof[8]; /* of AUTH_TOKEN: the beginning of the token's hash */
    const struct gw_protocol *protocol;
    void *state;
    struct br_ws_reader reader;
    struct br_buf in; /* of the head */
    struct out out;
    size_t held; /* its part of g->held */
    unsigned close_code;
};

struct gw_listener {
    struct gw_io io;
    struct gateway *g;
    int fd;
    uint8_t index;
    struct gw_timer again; /* when there are no descriptors */
};

/* A connection of this descriptor, which is then its own; NULL: it cannot be watched. */
struct conn *conn_begin(struct gateway *g, int fd, struct peer *peer);
/* Take ownership of fd, which listens. */
int conn_listen(struct gateway *g, unsigned index, int fd, struct br_err *err);
void conns_stop_listening(struct gateway *g);
/* A connected socket, which is then the connection's. address, cert: of a TLS peer, else NULL. */
void conn_adopt(struct gateway *g, unsigned listener, int fd, const char *address,
                const char *cert);
/* Who is at the other end, for logs: "uid:1000" or an address. */
const char *conn_peer(const struct conn *c, char dst[64]);
/* What was queued during a turn is sent, and who has ended is told. */
void conns_settle(struct gateway *g);
/* Close them all, with this code. */
void conns_close_all(struct gateway *g, unsigned code, const char *reason);
void conns_free(struct gateway *g);
/* After a reload: those close whose access is no longer what it was. */
void conns_recheck(struct gateway *g);
/* A whole answer was queued (http.c): send it, then end. */
void conn_answered(struct conn *c);
/* 101 was queued (http.c). */
void conn_upgraded(struct conn *c, const struct gw_protocol *p);
/* Its id, for logs. */
const char *conn_name(const struct conn *c, char dst[64]);

/* ---- http.c ---- */

/* A head is complete, or can never be (status then is the answer). */
void http_request(struct conn *c, const struct br_http_head *h);
void http_refuse(struct conn *c, unsigned status, const char *text);

/* ---- auth.c ---- */

struct auth_cookie {
    uint8_t sha256[32];  /* of it */
    uint8_t proof[32];   /* the hash of the token that it was given for */
    uint64_t expires_us; /* 0: free */
    bool has_uid;
    uid_t uid; /* of who logged in from this machine: it is good for no other */
};
struct auth {
    int diag;
    uid_t bridled;
    struct br_token tokens[BR_TOKENS_MAX];
    unsigned ntokens;
    struct auth_cookie cookies[AUTH_COOKIES_MAX];
};
/* 0, or the status to refuse with: 400, 403. */
unsigned auth_host(const struct conn *c, const struct br_http_head *h);
unsigned auth_origin(const struct conn *c, const struct br_http_head *h);
/* Who asks? 0 and c->who, or the status to refuse with: 401, 429. */
unsigned auth_who(struct conn *c, const struct br_http_head *h);
/* POST /login: 0 and the value of Set-Cookie, or the status. */
unsigned auth_login(struct conn *c, const struct br_http_head *h, struct br_buf *set_cookie);
void auth_logout(struct conn *c, const struct br_http_head *h, struct br_buf *set_cookie);
/* Is this connection still who it was, after a reload? */
bool auth_still(const struct conn *c);
/* Does this user operate? */
bool auth_uid(const struct gateway *g, uid_t uid);
void auth_forget(struct auth *a); /* cookies whose token is gone */

/* ---- metrics.c ---- */

void metrics_put(struct gateway *g, struct br_buf *b);
void health_put(struct gateway *g, struct br_buf *b, bool whole);

/* ---- the whole: gateway.c ---- */

/* Once the channel to bridled is there; -1 and errno. */
int letters_init(struct gateway *g);

struct gw_letter {
    struct gw_letter *next;
    enum br_msg_type type;
    uint64_t id;
    struct br_out out;
};

struct gateway {
    struct gw_poll poll;
    struct br_chan sup, tls;
    struct gw_io sup_io; /* of sup_out: room in the channel */
    int sup_out;
    struct gw_letter *letters, **letters_end; /* to bridled */
    struct br_service settings;
    struct gw_counters counters;
    struct auth auth;
    struct peers peers;
    char **models;
    unsigned nmodels;
    struct gw_listener listeners[BR_LISTENERS_MAX];
    int listen_fds[BR_LISTENERS_MAX]; /* that came before GATE_START */
    bool started, draining, over;
    uint64_t leave_us; /* when it leaves at the latest; 0: something may still run */
    struct gw_timer drain;
    struct conn *conns, *dirty, *ended;
    size_t held, held_max; /* bytes in queues and incomplete messages */
    unsigned nconns;
    uint64_t next_id, started_us, max_files;
    void *sessions, *replays, *otlp;
    int log_fd;
    enum br_log_level log_max;    /* what is less is not logged */
    uint64_t log_at, log_dropped; /* the rate of warnings; lines that were not written */
};

#endif
