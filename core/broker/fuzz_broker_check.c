/*
 * The body of a request as a session (later: a guest) sends it. Whatever is allowed has a limit of
 * its answer and is refused for another model.
 */
#include <jansson.h>

#include "broker/broker_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct br_broker_request q = {.max_tokens = 0};
    struct br_err err = {.code = BR_OK};
    json_object_seed(1);
    int r = br_broker_check(BR_PATH_CHAT, "m", "POST", BR_PATH_CHAT, "application/json", data, size,
                            &q, &err);
    br_require(r == 0 ? q.max_tokens >= 1 && q.max_tokens <= BR_MODEL_TOKENS_MAX
                      : r == -BR_E_LEASE_REFUSED && err.text[0]);
    if (r == 0)
        br_require(br_broker_check(BR_PATH_CHAT, "other", "POST", BR_PATH_CHAT, "application/json",
                                   data, size, &q, &err) < 0);
    return 0;
}
