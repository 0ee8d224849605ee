/*
 * The one clock and the one source of randomness and ids. Tests replace them with br_world_set().
 */
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/base.h"

static struct br_world world;

static uint64_t clock_us(clockid_t id)
{
    struct timespec ts;
    br_require(clock_gettime(id, &ts) == 0);
    return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

void br_world_set(const struct br_world *w)
{
    world = w ? *w : (struct br_world){0};
}

uint64_t br_now_wall_us(void)
{
    return world.wall_us ? world.wall_us() : clock_us(CLOCK_REALTIME);
}

uint64_t br_now_us(void)
{
    return world.mono_us ? world.mono_us() : clock_us(CLOCK_MONOTONIC);
}

void br_random(void *p, size_t n)
{
    if (world.random) {
        world.random(p, n);
        return;
    }
    for (size_t off = 0; off < n;) {
        ssize_t r = getrandom((char *)p + off, n - off, 0);
        if (r < 0 && errno == EINTR)
            continue;
        br_require(r > 0);
        off += (size_t)r;
    }
}

void br_id_from(char dst[BR_ID_MAX], const char *prefix, const uint8_t random[BR_ID_RANDOM])
{
    static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";
    size_t at = strlen(prefix);
    br_require(at + 28 <= BR_ID_MAX);
    memcpy(dst, prefix, at);
    dst[at++] = '_';
    /* 48 bits of time and 80 random ones, as 26 digits of 5 bits; the first digit holds the top 3
     */
    unsigned __int128 v = br_now_wall_us() / 1000 & 0xffffffffffff;
    for (unsigned i = 0; i < BR_ID_RANDOM; i++)
        v = v << 8 | random[i];
    for (int i = 25; i >= 0; i--, v >>= 5)
        dst[at + (size_t)i] = digits[(unsigned)v & 31];
    dst[at + 26] = 0;
}

void br_id_make(char dst[BR_ID_MAX], const char *prefix)
{
    uint8_t random[BR_ID_RANDOM];
    br_random(random, sizeof(random));
    br_id_from(dst, prefix, random);
}

void br_time_iso(char dst[32], uint64_t wall_us)
{
    time_t s = (time_t)(wall_us / 1000000u);
    struct tm tm;
    char day[20];
    br_require(gmtime_r(&s, &tm) != NULL);
    strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(dst, 32, "%s.%03u+00:00", day, (unsigned)(wall_us / 1000u % 1000u));
}
