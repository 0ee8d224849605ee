/*
 * Pattern and subject from anywhere: "<pattern>\0<subject>", for a command the words of the
 * subject are separated by \1. What the reference can judge must come out the same.
 */
#include <stdlib.h>
#include <string.h>

#include "policy/policy_priv.h"
#include "policy/ref_match.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void match_words(const char *pattern, char *s, bool judge)
{
    const char *words[64] = {s};
    size_t n = 1;
    for (char *p = strchr(s, 1); p && n < BR_ARRAY_LEN(words); p = strchr(p, 1)) {
        *p++ = 0;
        words[n++] = p;
    }
    bool yes = br_match_words(pattern, words, n);
    if (judge)
        br_require(yes == ref_match_words(pattern, words, n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = memchr(data, 0, size);
    if (!end)
        return 0;
    size_t np = (size_t)(end - data), ns = size - np - 1;
    char *pattern = strndup((const char *)data, np);
    char *subject = calloc(1, ns + 1);
    if (pattern && subject) {
        memcpy(subject, end + 1, ns);
        bool judge = np <= REF_PATTERN_MAX && ns <= REF_SUBJECT_MAX && br_utf8_valid(pattern, np);
        bool path = br_match_path(pattern, subject, ns), text = br_match_text(pattern, subject, ns);
        if (judge) {
            br_require(path == ref_match_path(pattern, subject, ns));
            br_require(text == ref_match_text(pattern, subject, ns));
        }
        br_match_host(pattern, subject, ns);
        match_words(pattern, subject, judge);
    }
    free(pattern);
    free(subject);
    return 0;
}
