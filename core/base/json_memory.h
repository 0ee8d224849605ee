/*
 * jansson without memory. Its lexer does not look whether a byte was kept, and its writer not
 * whether a part was written: for want of memory a text becomes another text, without an error. A
 * program whose decisions or records are made of JSON ends instead, which its peers take for a no.
 * (bridle-script refuses the text: core/script/json.c.) For programs that link jansson.
 */
#ifndef BR_JSON_MEMORY_H
#define BR_JSON_MEMORY_H

#include <jansson.h>
#include <stdlib.h>

#include "base/base.h"

static inline void *br_json_malloc(size_t n)
{
    void *p = malloc(n);
    br_require(p != NULL || n == 0);
    return p;
}

/* Before the first use of jansson. */
static inline void br_json_end_without_memory(void)
{
    json_set_alloc_funcs(br_json_malloc, free);
}

#endif
