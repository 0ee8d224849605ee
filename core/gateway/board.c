/*
 * The files of the board: those of web/board, linked in by br_embed (CMakeLists.txt, which also
 * makes the table), and served by http.c as they are. They hold no secret and name nothing outside
 * of it.
 */
#include "gateway/board.h"

#include <string.h>

#define BOARD_FILE(symbol, name)                                                                   \
    extern const char symbol[];                                                                    \
    extern const unsigned symbol##_len;
#include "board_files.h"
#undef BOARD_FILE

static const struct board_asset assets[] = {
#define BOARD_FILE(symbol, name) {name, symbol, &symbol##_len},
#include "board_files.h"
#undef BOARD_FILE
    {NULL, NULL, NULL},
};

const struct board_asset *board_asset(const char *path, size_t n)
{
    static const char index[] = "/index.html";
    if (n == 1)
        path = index, n = sizeof(index) - 1;
    else if (n == sizeof(index) - 1 && memcmp(path, index, n) == 0)
        return NULL; /* it has one name */
    for (const struct board_asset *a = assets; n && a->name; a++)
        if (n - 1 == strlen(a->name) && memcmp(path + 1, a->name, n - 1) == 0)
            return a;
    return NULL;
}

const char *board_type(const struct board_asset *a)
{
    static const struct {
        const char *end, *type;
    } types[] = {{".html", "text/html; charset=utf-8"},
                 {".css", "text/css; charset=utf-8"},
                 {".js", "text/javascript; charset=utf-8"},
                 {".svg", "image/svg+xml"}};
    const char *end = strrchr(a->name, '.');
    for (size_t i = 0; end && i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(end, types[i].end) == 0)
            return types[i].type;
    return "application/octet-stream";
}
