/*
 * Fuzzes the short way of an event. Input: lines "type actor json". Whatever it accepts must be
 * what the long way makes of the same line.
 */
#include <stdlib.h>
#include <string.h>

#include "audit/quick_compare.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct br_quick *q;
    static struct br_redact *r;
    if (!q) {
        q = br_quick_new();
        r = br_redact_new();
        if (!q || !r || br_redact_secret(r, "KEY", "upstream-key-17", 15, NULL) < 0)
            abort();
    }
    char *copy = malloc(size + 1);
    memcpy(copy, data, size);
    copy[size] = 0;
    for (size_t at = 0; at < size;) {
        char *line = copy + at, *end = memchr(line, '\n', size - at);
        size_t n = end ? (size_t)(end - line) : size - at;
        line[n] = 0;
        at += n + 1;
        char *actor = strchr(line, ' '), *json = actor ? strchr(actor + 1, ' ') : NULL;
        if (!json)
            continue;
        *actor++ = 0;
        *json++ = 0;
        if (quick_compare(q, r, NULL, line, actor, json, n - (size_t)(json - line)) ==
            QUICK_DIFFERS)
            abort();
    }
    free(copy);
    return 0;
}
