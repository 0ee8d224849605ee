/*
 * A scan of JSON text (RFC 8259) before any parser sees it: size of the tree, depth, UTF-8. It
 * accepts nothing that a parser would refuse to begin with and leaves the grammar to the parser.
 */
#include <string.h>

#include "base/base.h"

/* The offset behind a string literal that starts at s[i] == '"'; 0 if it does not end or holds an
 * escaped NUL, which C code behind a parser would take for the end. */
static size_t skip_string(const char *s, size_t n, size_t i)
{
    for (i++; i < n; i++) {
        if (s[i] == '"')
            return i + 1;
        if (s[i] != '\\')
            continue;
        if (n - i >= 6 && memcmp(s + i + 1, "u0000", 5) == 0)
            return 0;
        i++;
    }
    return 0;
}

int br_json_scan(const char *s, size_t n, unsigned max_depth, unsigned max_nodes,
                 struct br_err *err)
{
    if (!br_utf8_valid(s, n) || memchr(s, 0, n))
        return br_err_set(err, BR_E_INVALID_JSON, "the JSON text is not valid UTF-8");
    unsigned depth = 0, nodes = 0;
    for (size_t i = 0; i < n;) {
        char c = s[i];
        if (c == '"') {
            i = skip_string(s, n, i);
            if (!i)
                return br_err_set(err, BR_E_INVALID_JSON,
                                  "the JSON text has a string that does not end or holds NUL");
            nodes++;
        } else if (c == '{' || c == '[') {
            nodes++;
            i++;
            if (++depth > max_depth)
                return br_err_set(err, BR_E_INVALID_JSON, "the JSON text is deeper than %u levels",
                                  max_depth);
        } else if (c == '}' || c == ']') {
            i++;
            if (depth-- == 0)
                return br_err_set(err, BR_E_INVALID_JSON,
                                  "the JSON text closes more brackets than it opens");
        } else if (strchr(" \t\r\n,:", c)) {
            i++;
        } else {
            nodes++;
            while (i < n && !strchr(" \t\r\n,:{}[]\"", s[i]))
                i++;
        }
        if (nodes > max_nodes)
            return br_err_set(err, BR_E_INVALID_JSON, "the JSON text has more than %u values",
                              max_nodes);
    }
    if (depth)
        return br_err_set(err, BR_E_INVALID_JSON, "the JSON text ends inside %u brackets", depth);
    return 0;
}
