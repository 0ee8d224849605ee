/*
 * The bytes of a connection to the scripted provider. The parser must give the same answer for a
 * request that arrives in pieces, and whatever is complete must be answered.
 */
#include <string.h>

#include "scripted/scripted_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct br_scenario *scenario(void)
{
    static const char text[] = "{\"v\":1,\"name\":\"fuzz\",\"turns\":[{\"when\":{"
                               "\"last_tool_contains\":[\"a\",\"b\"]},\"text\":\"x\"},"
                               "{\"text\":\"y z\",\"tool_calls\":[{\"name\":\"t\","
                               "\"arguments\":{\"k\":\"v\"}}]}]}";
    static struct br_scenario *s;
    if (!s) {
        json_object_seed(1);
        br_require(br_scenario_load(text, sizeof(text) - 1, &s, NULL) == 0);
    }
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct br_http_request r, first;
    unsigned status = 0, status_first = 0;
    const char *p = (const char *)data;
    int whole = br_http_parse(p, size, &r, &status);
    br_require(whole >= 0 || (status >= 400 && status < 600));
    for (size_t n = 0; n < size && n < 512; n++) {
        int part = br_http_parse(p, n, &first, &status_first);
        if (part == 1)
            continue;
        /* decided before the end: more bytes change nothing */
        br_require(part == whole &&
                   (part < 0 ? status_first == status
                             : first.head_len == r.head_len && first.body_len == r.body_len));
        break;
    }
    if (whole != 0 || r.head_len + r.body_len != size)
        return 0;
    br_require(r.head_len <= BR_HTTP_HEAD_MAX && r.body_len <= BR_SCRIPTED_BODY_MAX);
    struct br_answer a;
    br_answer_init(&a);
    br_answer_make(&a, scenario(), &r, p + r.head_len, 1);
    br_require(a.npieces > 0 && !a.failed);
    br_answer_free(&a);
    return 0;
}
