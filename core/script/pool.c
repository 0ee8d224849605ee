/*
 * The memory of a Lua state. A state makes a million blocks of 16 to 512 bytes and gives nearly all
 * of them back at its end, for which malloc() does too much: here a block is taken from a list of
 * its size or cut from a chunk, and the chunks end together. Called by state.c alone, whose
 * allocator counts the bytes and has the cap; this one bounds what lists of other sizes keep.
 */
#include <stdlib.h>
#include <string.h>

#include "script/pool.h"

#define STEP 16u
#define SMALL_MAX (BR_POOL_CLASSES * STEP)
/* A large block has room for a pointer behind what a small one may use: see keep(). */
#define LARGE_MIN (SMALL_MAX + sizeof(void *))
#define CHUNK (32u * 1024)

struct chunk {
    void *next;
    uint64_t unused; /* blocks are aligned to 16 bytes */
};

static unsigned class_of(size_t n)
{
    return (unsigned)((n + STEP - 1) / STEP - 1);
}

static bool is_small(const struct br_pool *p, size_t n)
{
    return !p->plain && n <= SMALL_MAX;
}

static size_t large(const struct br_pool *p, size_t n)
{
    return !p->plain && n < LARGE_MIN ? LARGE_MIN : n;
}

/* A large block that should become a small one, for which there is no memory: it stays where it is,
 * is a small one from now on, and is given back at the end. */
static void *keep(struct br_pool *p, void *block)
{
    memcpy((uint8_t *)block + SMALL_MAX, &p->kept, sizeof(void *));
    p->kept = block;
    return block;
}

static void *take(struct br_pool *p, size_t n)
{
    unsigned c = class_of(n);
    size_t size = (c + 1) * STEP;
    void *block = p->freed[c];
    if (block) {
        memcpy(&p->freed[c], block, sizeof(void *));
        return block;
    }
    if (p->room < size) {
        struct chunk *k = p->bytes + CHUNK <= p->max ? malloc(CHUNK) : NULL;
        if (!k)
            return NULL;
        k->next = p->chunks;
        p->chunks = k;
        p->bytes += CHUNK;
        p->at = (uint8_t *)(k + 1);
        p->room = CHUNK - sizeof(*k);
    }
    block = p->at;
    p->at += size;
    p->room -= size;
    return block;
}

void br_pool_free(struct br_pool *p, void *block, size_t n)
{
    if (!block)
        return;
    if (!is_small(p, n)) {
        free(block);
        return;
    }
    memcpy(block, &p->freed[class_of(n)], sizeof(void *));
    p->freed[class_of(n)] = block;
}

void *br_pool_realloc(struct br_pool *p, void *block, size_t old, size_t n)
{
    bool was_small = is_small(p, old), small = is_small(p, n);
    if (!block)
        return small ? take(p, n) : malloc(large(p, n));
    if (!was_small && !small)
        return realloc(block, large(p, n));
    if (was_small && small && class_of(old) == class_of(n))
        return block;
    void *moved = small ? take(p, n) : malloc(large(p, n));
    if (!moved && n > old)
        return NULL;
    if (!moved)
        return was_small ? block : keep(p, block);
    memcpy(moved, block, old < n ? old : n);
    br_pool_free(p, block, old);
    return moved;
}

static void free_list(void *head, size_t link)
{
    for (void *next; head; head = next) {
        memcpy(&next, (uint8_t *)head + link, sizeof(next));
        free(head);
    }
}

void br_pool_end(struct br_pool *p)
{
    free_list(p->chunks, 0);
    free_list(p->kept, SMALL_MAX);
    p->chunks = p->kept = NULL;
}
