/*
 * How often an address may begin a handshake, which is what costs a TLS server most. Called by
 * main.c for what was accepted, before there is any state of TLS; the address is the peer's choice.
 * A rate is the time at which its bucket would be full again (the generic cell rate algorithm). The
 * table has a fixed size: of those that share a row the one that has waited longest is forgotten,
 * mostly one whose bucket is full. Which addresses share a row depends on a random seed.
 */
#include <netinet/in.h>
#include <string.h>

#include "tls/tls_priv.h"

#define EVERY_US (1000000u / TLS_SHAKES_PER_SECOND)

void tls_rates_init(struct tls_rates *r)
{
    *r = (struct tls_rates){.seed = 0};
    br_random(&r->seed, sizeof(r->seed));
}

/* IPv4 as IPv6 says it, and of others the first 64 bits: who has one, has all of those. */
static void key_of(const struct sockaddr_storage *from, uint8_t key[16])
{
    memset(key, 0, 16);
    if (from->ss_family == AF_INET) {
        key[10] = key[11] = 0xff;
        memcpy(key + 12, &((const struct sockaddr_in *)from)->sin_addr, 4);
    } else if (from->ss_family == AF_INET6) {
        const struct in6_addr *six = &((const struct sockaddr_in6 *)from)->sin6_addr;
        memcpy(key, six, IN6_IS_ADDR_V4MAPPED(six) ? 16 : 8);
    }
}

static struct tls_rate *row_of(struct tls_rates *r, const uint8_t key[16])
{
    uint64_t h = r->seed;
    for (size_t i = 0; i < 16; i++) {
        h = (h ^ key[i]) * 0x100000001b3u;
        h ^= h >> 29;
    }
    return r->rows[h % BR_ARRAY_LEN(r->rows)];
}

bool tls_may_shake(struct tls_rates *r, const struct sockaddr_storage *from, uint64_t now)
{
    uint8_t key[16];
    key_of(from, key);
    struct tls_rate *row = row_of(r, key), *at = row;
    for (size_t i = 0; i < BR_ARRAY_LEN(r->rows[0]); i++) {
        if (row[i].full_us && memcmp(row[i].key, key, sizeof(key)) == 0) {
            at = &row[i];
            break;
        }
        if (row[i].full_us < at->full_us)
            at = &row[i];
    }
    if (!at->full_us || memcmp(at->key, key, sizeof(key)) != 0) {
        memcpy(at->key, key, sizeof(key));
        at->full_us = 0;
    }
    if (at->full_us > now && at->full_us - now > (TLS_SHAKES_BURST - 1) * EVERY_US)
        return false;
    at->full_us = (at->full_us > now ? at->full_us : now) + EVERY_US;
    return true;
}
