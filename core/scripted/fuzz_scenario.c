/*
 * A scenario file. Whatever loads must be able to answer.
 */
#include "scripted/scripted_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char body[] = "{\"model\":\"scripted/x\",\"messages\":[{\"role\":\"user\","
                               "\"content\":\"hi\"}],\"stream\":true}";
    struct br_scenario *s = NULL;
    struct br_err err = {.code = BR_OK};
    json_object_seed(1);
    if (br_scenario_load(data, size, &s, &err) < 0) {
        br_require(err.code == BR_E_INVALID_CONFIG && err.text[0] && !s);
        return 0;
    }
    struct br_http_request r = {
        .method = "POST", .path = "/chat/completions", .body_len = sizeof(body) - 1};
    struct br_answer a;
    br_answer_init(&a);
    br_answer_make(&a, s, &r, body, 1);
    for (unsigned i = 0; i < a.npieces; i++)
        br_require(a.pieces[i].offset + a.pieces[i].len <= a.bytes.len);
    br_answer_free(&a);
    br_scenario_free(&s);
    return 0;
}
