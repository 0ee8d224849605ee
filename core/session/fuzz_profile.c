/*
 * The launch object of a compiled profile: whatever comes, what is accepted is within the ceiling.
 */
#include <stddef.h>
#include <stdint.h>

#include "session/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct profile p;
    if (profile_read(data, size, &p, NULL) < 0)
        return 0;
    br_require(p.plan.nallowed == 0 && p.plan.nsources == 0 && p.noffers <= 8);
    br_require(p.image_required == (p.plan.image[0] == 0));
    br_require(!p.image_required || br_plan_check(&p.plan, NULL) < 0); /* none can be forgotten */
    br_require(p.image_required || br_plan_check(&p.plan, NULL) == 0);
    return 0;
}
