/*
 * The entry of bridle-image; everything else is in main.c, so that a test can build a second
 * program that looks for its tools elsewhere.
 */
#include "image/make_priv.h"

int main(int argc, char **argv)
{
    br_log_init("bridle-image", BR_LOG_WARN);
    return br_image_main(argc, argv);
}
