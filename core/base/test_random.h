/*
 * Random numbers for tests, the same in each run: xorshift64. Each test has a seed of its own, not
 * 0.
 */
#ifndef BR_BASE_TEST_RANDOM_H
#define BR_BASE_TEST_RANDOM_H

#include <stdint.h>

/* From 0 to n - 1; n is not 0. */
static inline unsigned br_test_roll(uint64_t *seed, unsigned n)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return (unsigned)(*seed >> 33) % n;
}

#endif
