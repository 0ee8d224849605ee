/*
 * SHA-256 (FIPS 180-4), for programs that hold privilege and therefore link no library for it.
 * Anybody may call it; it trusts nothing and keeps nothing. Not for secrets: it does not wipe.
 * Where the processor has instructions for it, they are used: a sixth of the time.
 */
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "base/base.h"

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t v, unsigned n)
{
    return v >> n | v << (32 - n);
}

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void compress_one(uint32_t state[8], const uint8_t *p)
{
    uint32_t w[64], s[8];
    memcpy(s, state, sizeof(s));
    for (unsigned i = 0; i < 16; i++)
        w[i] = big_endian(p + (size_t)i * 4);
    for (unsigned i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    for (unsigned i = 0; i < 64; i++) {
        uint32_t e = s[4], a = s[0];
        uint32_t t1 = s[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                      ((e & s[5]) ^ (~e & s[6])) + round_constants[i] + w[i];
        uint32_t t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +
                      ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof(*s));
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (unsigned i = 0; i < 8; i++)
        state[i] += s[i];
}

#ifdef __x86_64__
static bool fast;

#define WITH_SHA __attribute__((target("sha,sse4.1,ssse3")))

/* Rounds 4i to 4i + 3, with the words `now`; of the schedule what these are needed for. */
WITH_SHA static inline void four_rounds(__m128i *a, __m128i *b, __m128i now, __m128i *next,
                                        __m128i *last, unsigned i)
{
    __m128i k = _mm_loadu_si128((const __m128i *)(const void *)(round_constants + (size_t)4 * i));
    __m128i w = _mm_add_epi32(now, k);
    *b = _mm_sha256rnds2_epu32(*b, *a, w);
    if (i >= 3 && i <= 14)
        *next = _mm_sha256msg2_epu32(_mm_add_epi32(*next, _mm_alignr_epi8(now, *last, 4)), now);
    *a = _mm_sha256rnds2_epu32(*a, *b, _mm_shuffle_epi32(w, 0x0e));
    if (i >= 1 && i <= 12)
        *last = _mm_sha256msg1_epu32(*last, now);
}

/* The SHA extensions (Intel's Software Developer's Manual, volume 2, SHA256RNDS2): two halves of
 * the state, four rounds a step. */
WITH_SHA static void compress_x86(uint32_t state[8], const uint8_t *p, size_t blocks)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bll, 0x0405060700010203ll);
    __m128i t = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)state), 0xb1);
    __m128i b =
        _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)(state + 4)), 0x1b);
    __m128i a = _mm_alignr_epi8(t, b, 8);
    b = _mm_blend_epi16(b, t, 0xf0);
    for (; blocks; blocks--, p += 64) {
        __m128i m[4], a0 = a, b0 = b;
        for (unsigned i = 0; i < 4; i++)
            m[i] = _mm_shuffle_epi8(
                _mm_loadu_si128((const __m128i *)(const void *)(p + (size_t)i * 16)), swap);
        for (unsigned i = 0; i < 16; i += 4) { /* the four words change places */
            four_rounds(&a, &b, m[0], &m[1], &m[3], i);
            four_rounds(&a, &b, m[1], &m[2], &m[0], i + 1);
            four_rounds(&a, &b, m[2], &m[3], &m[1], i + 2);
            four_rounds(&a, &b, m[3], &m[0], &m[2], i + 3);
        }
        a = _mm_add_epi32(a, a0);
        b = _mm_add_epi32(b, b0);
    }
    t = _mm_shuffle_epi32(a, 0x1b);
    b = _mm_shuffle_epi32(b, 0xb1);
    _mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(t, b, 0xf0));
    _mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(b, t, 8));
}

static bool has_instructions(void)
{
    unsigned eax, ebx = 0, ecx = 0, edx;
    bool old = __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_SSSE3) && (ecx & bit_SSE4_1);
    return old && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx & bit_SHA);
}
#endif

void br_sha256_fast(bool want)
{
#ifdef __x86_64__
    fast = want && has_instructions();
#else
    (void)want;
#endif
}

static void compress(uint32_t state[8], const uint8_t *p, size_t blocks)
{
#ifdef __x86_64__
    if (fast) {
        compress_x86(state, p, blocks);
        return;
    }
#endif
    for (; blocks; blocks--, p += 64)
        compress_one(state, p);
}

void br_sha256_init(struct br_sha256 *s)
{
    *s = (struct br_sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                                      0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void br_sha256_put(struct br_sha256 *s, const void *p, size_t n)
{
    const uint8_t *from = p;
    size_t have = s->bytes % 64;
    s->bytes += n;
    while (n > 0) {
        if (have == 0 && n >= 64) {
            compress(s->state, from, n / 64);
            from += n / 64 * 64;
            n %= 64;
            continue;
        }
        size_t part = n < 64 - have ? n : 64 - have;
        memcpy(s->block + have, from, part);
        from += part;
        n -= part;
        have += part;
        if (have == 64) {
            compress(s->state, s->block, 1);
            have = 0;
        }
    }
}

void br_sha256_end(struct br_sha256 *s, uint8_t out[32])
{
    static const uint8_t padding[64] = {0x80};
    uint8_t length[8];
    uint64_t bits = s->bytes * 8;
    for (unsigned i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    br_sha256_put(s, padding, 1 + (119 - s->bytes % 64) % 64);
    br_sha256_put(s, length, sizeof(length));
    for (unsigned i = 0; i < 32; i++)
        out[i] = (uint8_t)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}
