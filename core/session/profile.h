/*
 * core/session: profiles as the session knows them. Used by launch.c, compile.c and plan.c.
 */
#ifndef BR_SESSION_PROFILE_H
#define BR_SESSION_PROFILE_H

#include <jansson.h>

#include "base/base.h"
#include "session/profile_texts.h"
#include "wire/types.h"

/* What a profile makes of a launch plan, and what it offers where the host lacks something. */
struct profile {
    struct br_plan plan; /* no allowed path; image "" where one is required */
    bool image_required;
    struct br_plan offers[8]; /* likewise */
    uint32_t noffers;
};

/*
 * Find the text of the chosen profile and its hash. -BR_E_NOT_FOUND for a name that no built-in
 * profile has; the text is not the caller's to free.
 */
int profile_choose(const struct br_profile_choice *c, const char **label, const char **text,
                   uint8_t sha256[32], struct br_err *err);
/*
 * Read the launch object that bridle-script compiled: strict, every member, nothing else.
 * -BR_E_INVALID_PROFILE, or -BR_E_LIMIT_EXCEEDED for what is over the compiled-in ceiling.
 */
int profile_read(const void *json, size_t n, struct profile *out, struct br_err *err);
/* Put the operator's image ("" none) where the profile requires one. */
int profile_image(struct profile *p, const char *image, struct br_err *err);

#endif
