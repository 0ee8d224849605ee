/*
 * Fuzzes the URL of a service: what is accepted names a host, a port and a path without anything
 * that a request or a terminal acts on, and without TLS only this machine.
 */
#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "cli/remote.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *s, bool blanks)
{
    for (; *s; s++)
        br_require((unsigned char)*s > (blanks ? 0x1f : 0x20) && *s != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[4096];
    struct br_cli_url u;
    struct br_err err = {.code = BR_OK};
    struct in_addr v4;
    size_t n = size < sizeof(text) - 1 ? size : sizeof(text) - 1;
    memcpy(text, data, n);
    text[n] = '\0';
    if (!text[0])
        return 0;
    if (br_cli_url_parse(text, &u, &err) < 0) {
        br_require(err.code == BR_E_USAGE);
        return 0;
    }
    check_text(u.socket, true);
    check_text(u.path, false);
    check_text(u.authority, false);
    br_require(u.path[0] == '/');
    br_require(u.local == (u.socket[0] != 0) && u.local == (u.port == 0));
    if (!u.local && !u.tls)
        br_require(strcasecmp(u.host, "localhost") == 0 || strcmp(u.host, "::1") == 0 ||
                   strchr(u.host, ':') ||
                   (inet_pton(AF_INET, u.host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127));
    return 0;
}
