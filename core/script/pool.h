/*
 * Small blocks for one Lua state, out of chunks that are given back together. Private to state.c.
 */
#ifndef BR_SCRIPT_POOL_H
#define BR_SCRIPT_POOL_H

#include "base/base.h"

#define BR_POOL_CLASSES 32u /* of 16 bytes each: blocks of up to 512 bytes */

struct br_pool {
    void *chunks;
    void *kept;  /* large blocks that could not shrink */
    uint8_t *at; /* what is left of the newest chunk */
    size_t room;
    void *freed[BR_POOL_CLASSES];
    size_t bytes, max; /* of all chunks */
    bool plain;        /* every block is one of malloc()'s, as sanitizers and their like need it */
};

/* realloc() with the old size, 0 for a new block; n is not 0. NULL without memory, never where n is
 * less than the old size, unless the pool is plain. */
void *br_pool_realloc(struct br_pool *p, void *block, size_t old, size_t n);
void br_pool_free(struct br_pool *p, void *block, size_t n);
/* Everything that is still there. Blocks of more than 512 bytes must have been freed. */
void br_pool_end(struct br_pool *p);

#endif
