/*
 * Any bytes as an allowed path: the check never accepts what the rules forbid.
 */
#include <stdlib.h>
#include <string.h>

#include "sandbox/allowed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ".." as a whole segment; "a.." is a name like any other. */
static int climbs(const char *s)
{
    for (const char *p = s; (p = strstr(p, "..")) != NULL; p++)
        if ((p == s || p[-1] == '/') && (p[2] == '/' || p[2] == '\0'))
            return 1;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct br_err err = {.code = BR_OK};
    char *s = malloc(size + 1);
    if (!s)
        return 0;
    memcpy(s, data, size);
    s[size] = 0;
    int r = br_allowed_path_check(s, &err);
    if (r == 0) {
        size_t n = strlen(s);
        br_require(n > 0 && n < BR_PATH_MAX && s[0] != '/');
        br_require(!strchr(s, ',') && !strchr(s, '\\') && !strchr(s, '?') && !strchr(s, '\n'));
        br_require(!climbs(s) && !strstr(s, "//"));
        char *star = strchr(s, '*');
        br_require(!star || (n > 3 && star == s + n - 2 && strcmp(star - 1, "/**") == 0));
    } else {
        br_require(r == -BR_E_INVALID_ALLOWED_PATH && err.text[0]);
        br_require(br_utf8_valid(err.text, strlen(err.text)));
    }
    free(s);
    return 0;
}
