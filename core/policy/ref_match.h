/*
 * The matchers once more, written to be obviously right instead of fast: plain recursion over
 * pattern and subject, with a memory of pairs that failed. For tests and fuzzers only.
 */
#ifndef BR_REF_MATCH_H
#define BR_REF_MATCH_H

#include <stdbool.h>
#include <stddef.h>

/* Longer patterns or subjects than these are not for the reference. */
#define REF_PATTERN_MAX 64u
#define REF_SUBJECT_MAX 256u

bool ref_match_path(const char *pattern, const char *subject, size_t n);
bool ref_match_text(const char *pattern, const char *subject, size_t n);
bool ref_match_words(const char *pattern, const char *const *words, size_t nwords);

#endif
