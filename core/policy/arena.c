/*
 * A bump allocator for what lives exactly as long as a decision table: thousands of small strings
 * and automata, freed at once. Called while a table is loaded, never while deciding.
 */
#include <stdlib.h>
#include <string.h>

#include "policy/policy_priv.h"

#define ARENA_CHUNK (16u * 1024)
#define ARENA_ALIGN 16u

struct br_arena_chunk {
    struct br_arena_chunk *next;
    size_t used;
    size_t size;
    size_t unused_; /* keeps `bytes` aligned */
    uint8_t bytes[];
};

void *br_arena_alloc(struct br_arena *a, size_t size)
{
    if (size > SIZE_MAX / 2)
        return NULL;
    size = (size + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
    struct br_arena_chunk *c = a->chunks;
    if (!c || c->size - c->used < size) {
        size_t want = size > ARENA_CHUNK ? size : ARENA_CHUNK;
        c = calloc(1, sizeof(*c) + want);
        if (!c)
            return NULL;
        c->size = want;
        c->next = a->chunks;
        a->chunks = c;
    }
    void *p = c->bytes + c->used;
    c->used += size;
    return p;
}

char *br_arena_strndup(struct br_arena *a, const char *s, size_t n)
{
    char *p = br_arena_alloc(a, n + 1);
    if (p)
        memcpy(p, s, n);
    return p;
}

void br_arena_free(struct br_arena *a)
{
    while (a->chunks) {
        struct br_arena_chunk *c = a->chunks;
        a->chunks = c->next;
        free(c);
    }
}
