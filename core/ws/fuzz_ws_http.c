/*
 * Heads of requests and of responses, as they come. The first byte: where the head is cut. A head
 * that is not complete is never refused for what may still come, and one that was refused is not
 * accepted with more of it; what is found lies inside of it; an offer that is accepted is one.
 */
#include <stdlib.h>
#include <string.h>

#include "ws/ws.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void inside(struct br_http_text t, const char *p, size_t n)
{
    br_require(!t.p || (t.p >= p && t.n <= n && t.p + t.n <= p + n));
}

static void check_head(const struct br_http_head *h, const char *p, size_t n)
{
    br_require(h->nfields <= BR_WS_FIELDS_MAX && n <= BR_WS_HEAD_MAX);
    inside(h->method, p, n);
    inside(h->path, p, n);
    inside(h->query, p, n);
    for (unsigned i = 0; i < h->nfields; i++) {
        inside(h->fields[i].name, p, n);
        inside(h->fields[i].value, p, n);
        br_require(h->fields[i].name.n > 0 &&
                   !memchr(h->fields[i].value.p, '\n', h->fields[i].value.n));
    }
}

static int parse(bool response, const char *p, size_t n, struct br_http_head *h)
{
    char *exact = malloc(n ? n : 1); /* of its own: no byte behind it is there */
    struct br_err err = {.code = BR_OK};
    unsigned status = 0;
    br_require(exact);
    memcpy(exact, p, n);
    int rc = response ? br_http_response(exact, n, h, &err)
                      : br_http_request(exact, n, h, &status, &err);
    br_require(rc >= 0 || (err.text[0] && (response || (status >= 400 && status <= 505))));
    if (rc > 0) {
        struct br_ws_offer offer;
        bool many;
        check_head(h, exact, (size_t)rc);
        if (!response) {
            br_require(h->path.n > 0 && h->path.p[0] == '/');
            br_require(br_http_field(h, "host", &many).p && !many);
            if (br_ws_offer(h, &offer, &status, &err) == 0) {
                br_require(strlen(offer.accept) == 28);
                inside(offer.protocols, exact, (size_t)rc);
                inside(offer.origin, exact, (size_t)rc);
                inside(offer.authorization, exact, (size_t)rc);
            }
        } else {
            br_ws_check_accept(h, "dGhlIHNhbXBsZSBub25jZQ==", "", &err);
        }
    }
    free(exact);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct br_http_head h;
    if (size < 2)
        return 0;
    bool response = data[0] & 1;
    const char *p = (const char *)data + 2;
    size_t n = size - 2, cut = n ? (size_t)data[1] * n / 255 : 0;
    int whole = parse(response, p, n, &h), part = parse(response, p, cut, &h);
    if (part < 0)
        br_require(whole < 0);
    else if (part > 0)
        br_require(whole == part);
    else if (whole > 0)
        br_require(cut < (size_t)whole);
    return 0;
}
