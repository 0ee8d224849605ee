/*
 * The profiles that are built in (made by CMake from profiles/). Used by the session, which runs
 * one, and by bridled, which tells by its hash whether that is the one that was chosen.
 */
#ifndef BR_SESSION_PROFILE_TEXTS_H
#define BR_SESSION_PROFILE_TEXTS_H

#include <stddef.h>

struct br_profile_text {
    const char *name; /* NULL ends the table */
    const char *text;
    const unsigned *len;
};
extern const struct br_profile_text br_profile_texts[];

#endif
