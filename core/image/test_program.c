/*
 * Tests only: bridle-image that looks for other people's programs where BRIDLE_TEST_TOOLS says, so
 * that a test can leave one out, or put a hostile one in its place.
 */
#include <stdlib.h>

#include "image/make_priv.h"

int main(int argc, char **argv)
{
    const char *dirs = getenv("BRIDLE_TEST_TOOLS");
    if (dirs)
        br_tool_dirs = dirs;
    return br_image_main(argc, argv);
}
