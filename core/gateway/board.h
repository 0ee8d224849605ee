/*
 * core/gateway: the files of the board (web/board), which are inside of the program.
 */
#ifndef BR_GATEWAY_BOARD_H
#define BR_GATEWAY_BOARD_H

#include <stddef.h>

struct board_asset {
    const char *name;
    const char *bytes;
    const unsigned *n;
};
/* By path: "/" is index.html, "/board.js" is board.js. NULL: there is no such file. */
const struct board_asset *board_asset(const char *path, size_t n);
const char *board_type(const struct board_asset *a);

#endif
