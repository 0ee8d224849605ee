/*
 * core/egress, private: the provider's address and the credential, apart from the program so that
 * tests and nothing else can call them without a network.
 */
#ifndef BR_EGRESS_PRIV_H
#define BR_EGRESS_PRIV_H

#include <stdbool.h>

#include "base/base.h"

/* An address that a person writes; longer ones are mistakes. */
#define BR_EGRESS_URL_MAX 2048u
/* The longest key seen in practice (signed tokens) has under 4 KiB. */
#define BR_EGRESS_KEY_MAX (8u * 1024)
/* Below this, redaction would blank out ordinary words. */
#define BR_EGRESS_KEY_MIN 8u
/* All response headers of one answer together; real ones have 2 to 4 KiB. */
#define BR_EGRESS_HEADERS_MAX (64u * 1024)
/* One answer. The broker's lease is usually much lower; this bounds a program without one. */
#define BR_EGRESS_RESPONSE_MAX (64u * 1024 * 1024)
/* A timeout of a configuration, in seconds. */
#define BR_EGRESS_SECONDS_MAX 86400u

/* Where requests go. */
struct br_egress_target {
    char url[BR_EGRESS_URL_MAX + 1];    /* normalised, without a slash at its end */
    char prefix[BR_EGRESS_URL_MAX + 1]; /* its path, likewise; a request's path comes behind it */
    char origin[512];                   /* "https://host:port" for messages; never credentials */
    char host[256];                     /* without the brackets of an IPv6 address */
    char host_field[300];               /* of a request's head */
    uint16_t port;
    bool plaintext; /* http: every connection must end on this machine */
    bool unix_socket;
};

/*
 * Check and normalise a base URL. HTTPS anywhere; http only to 127.0.0.0/8, ::1, localhost, or
 * through a Unix socket. Refused with -BR_E_INVALID_CONFIG: other schemes, credentials, a query or
 * a fragment inside the URL, control characters, overlong text. The message never repeats the
 * text, which may hold a credential.
 */
int br_egress_target_set(struct br_egress_target *t, const char *base_url, const char *unix_socket,
                         struct br_err *err);

/* True if the request path is one that may be appended: "/" and then [A-Za-z0-9/_.-], no "..". */
bool br_egress_path_ok(const char *path);
/* True if it can be the value of a header. */
bool br_egress_content_type_ok(const char *s);

/*
 * The address of a proxy: http or https, host and port, nothing else; credentials are refused.
 * -BR_E_INVALID_CONFIG, with a message that does not repeat the text.
 */
int br_egress_proxy_check(const char *url, struct br_err *err);

/*
 * Move the environment variable `name` of this process into `key` and wipe it where it stood, so
 * that /proc/PID/environ does not show it either. -BR_E_INVALID_CONFIG if it is not set, too short,
 * too long, or holds anything but printable ASCII (it becomes a header line).
 */
int br_egress_key_take(const char *name, struct br_secret *key, struct br_err *err);

/* A key that comes through a descriptor: of a file, or of a command's output. */
struct br_egress_key_pipe {
    char bytes[BR_EGRESS_KEY_MAX + 2]; /* and a line end */
    size_t n;
};
/*
 * Read what there is. 1: there will be more, 0: that was all and `key` has it, without one line end
 * at its end, or -BR_E_INVALID_CONFIG as above; `p` is wiped then. `name` is the key's, for
 * messages.
 */
int br_egress_key_read(int fd, struct br_egress_key_pipe *p, const char *name,
                       struct br_secret *key, struct br_err *err);

#endif
