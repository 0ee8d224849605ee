/*
 * Who comes too often: one entry for each uid of this machine and each address beyond it, with
 * its rates, and one for each of those that are known who read the store. A rate is one number, the
 * time at which its bucket would be full again (the generic cell rate algorithm), so that an entry
 * is small; entries without a connection are remembered up to a limit, the oldest go first.
 *
 * The key is hashed with a random seed: an address is the peer's choice.
 */
#include <stdlib.h>
#include <string.h>

#include "gateway/conn_priv.h"

void peers_init(struct peers *p)
{
    *p = (struct peers){.nidle = 0};
    br_random(&p->seed, sizeof(p->seed));
}

static unsigned bucket_of(const struct peers *p, const struct peer_key *k)
{
    uint64_t h = p->seed;
    const uint8_t *b = (const uint8_t *)k;
    for (size_t i = 0; i < sizeof(*k); i++) {
        h = (h ^ b[i]) * 0x100000001b3u;
        h ^= h >> 29;
    }
    return (unsigned)(h % BR_ARRAY_LEN(p->buckets));
}

static void idle_unlink(struct peers *p, struct peer *w)
{
    *(w->older ? &w->older->newer : &p->oldest) = w->newer;
    *(w->newer ? &w->newer->older : &p->newest) = w->older;
    w->older = w->newer = NULL;
    p->nidle--;
}

static void forget(struct peers *p, struct peer *w)
{
    struct peer **at = &p->buckets[bucket_of(p, &w->key)];
    while (*at != w)
        at = &(*at)->chain;
    *at = w->chain;
    idle_unlink(p, w);
    free(w);
}

struct peer *peer_enter(struct peers *p, const struct peer_key *k)
{
    struct peer **at = &p->buckets[bucket_of(p, k)], *w = *at;
    while (w && memcmp(&w->key, k, sizeof(*k)) != 0)
        w = w->chain;
    if (!w) {
        w = calloc(1, sizeof(*w));
        if (!w)
            return NULL;
        w->key = *k;
        w->chain = *at;
        *at = w;
    } else if (!w->connections) {
        idle_unlink(p, w);
    }
    w->connections++;
    return w;
}

void peer_leave(struct peers *p, struct peer *w)
{
    if (--w->connections)
        return;
    w->older = p->newest;
    *(p->newest ? &p->newest->newer : &p->oldest) = w;
    p->newest = w;
    if (++p->nidle > PEER_REMEMBERED_MAX)
        forget(p, p->oldest);
}

bool peer_rate_left(uint64_t at, uint64_t now, uint64_t every_us, uint64_t burst)
{
    return !every_us || at <= now || at - now <= (burst - 1) * every_us;
}

bool peer_rate(uint64_t *at, uint64_t now, uint64_t every_us, uint64_t burst)
{
    if (!peer_rate_left(*at, now, every_us, burst))
        return false;
    *at = (*at > now ? *at : now) + every_us;
    return true;
}

void peers_free(struct peers *p)
{
    for (size_t i = 0; i < BR_ARRAY_LEN(p->buckets); i++)
        while (p->buckets[i]) {
            struct peer *w = p->buckets[i];
            p->buckets[i] = w->chain;
            free(w);
        }
}
