/*
 * The reader of JSON text, and the machine for a call's arguments, against jansson: what a parser
 * reads they read, and what they refuse a parser refuses, but for what only one of them has an
 * opinion on.
 */
#include <jansson.h>
#include <string.h>

#include "broker/dialect_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct br_err err;
    struct br_scan j;
    struct br_argjson t = {.state = 0};
    json_error_t e;
    json_object_seed(1);
    br_scan_init(&j, data, size, true);
    bool ok = size && br_scan_peek(&j) == '{' && br_scan_skip(&j, NULL) && br_scan_done(&j);
    if (br_utf8_valid(data, size)) {
        size_t half = size / 2;
        br_argjson_put(&t, (const char *)data, half);
        br_argjson_put(&t, (const char *)data + half, size - half);
        /* this one counts values */
        br_require(!t.begun || !br_argjson_ok(&t) || ok);
        br_require(!ok || br_argjson_ok(&t) || t.nodes > BR_JSON_NODES_MAX ||
                   t.size > BR_TOOL_JSON_MAX);
    }
    json_t *v = json_loadb((const char *)data, size, JSON_ALLOW_NUL, &e);
    if (v && json_is_object(v) &&
        br_json_scan((const char *)data, size, BR_JSON_DEPTH_MAX, 1u << 30, &err) == 0)
        br_require(ok);
    /* half surrogates and numbers out of range are all that it may refuse alone */
    if (ok && !v)
        br_require(json_error_code(&e) == json_error_numeric_overflow ||
                   memmem(data, size, "\\u", 2) != NULL);
    json_decref(v);
    return 0;
}
