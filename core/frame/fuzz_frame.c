/*
 * libFuzzer target: any bytes as a packet and as a result. What is accepted is written and read
 * again, and says the same; what is refused leaves nothing behind and says why.
 */
#include <stdlib.h>
#include <string.h>

#include "frame/frame.h"

static void as_packet(const uint8_t *data, size_t size)
{
    struct br_frame_packet p, again;
    struct br_err err = {.code = BR_OK};
    if (br_frame_packet_get(data, size, &p, &err) == 0) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(2 * BR_FRAME_PACKET_MAX);
        if (br_frame_packet_put(&b, &p, &err) == 0) {
            if (br_frame_packet_get(b.data, b.len, &again, &err) < 0 ||
                !json_equal(p.root, again.root))
                abort();
            br_frame_packet_free(&again);
        }
    } else if (err.code != BR_E_INVALID_FRAME) {
        abort();
    }
    br_frame_packet_free(&p);
}

static void as_result(const uint8_t *data, size_t size)
{
    static const char *const tools[] = {"read", "bash"};
    struct br_frame_result r, again;
    struct br_err err = {.code = BR_OK};
    struct br_frame_expect e = {.run_id = "run_1",
                                .adapter = "shell-example",
                                .revision = 1,
                                .tools = tools,
                                .ntools = 2,
                                .kind = size & 1 ? BR_ARTIFACT_TEXT : BR_ARTIFACT_JSON,
                                .artifact_bytes = 256,
                                .output_bytes = 4096};
    int k = br_frame_result_get(data, size, &e, &r, &err);
    if (k < 0) {
        if (err.code != BR_E_INVALID_FRAME || r.root || r.artifact || r.ntools)
            abort();
        return;
    }
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_FRAME_OUTPUT_MAX);
    e.output_bytes = BR_FRAME_OUTPUT_MAX; /* \/ and the like may become longer */
    e.artifact_bytes = BR_FRAME_ARTIFACT_MAX;
    if (br_frame_result_put(&b, &r, &err) == 0) {
        if (br_frame_result_get(b.data, b.len, &e, &again, &err) < 0 ||
            !json_equal(r.root, again.root))
            abort();
        br_frame_result_free(&again);
    }
    br_frame_result_free(&r);
}

static void as_ask(const uint8_t *data, size_t size)
{
    static const char *const tools[] = {"read", "bash"};
    struct br_frame_ask a;
    struct br_err err = {.code = BR_OK};
    int64_t want = br_frame_size(data, size, BR_FRAME_ASK_MAX, &err);
    int r = br_frame_ask_get(data, size, tools, 2, &a, &err);
    if (r == 0) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_FRAME_ASK_MAX);
        if (want != (int64_t)size || !json_is_object(a.input) || !a.tool ||
            br_frame_answer_put(&b, a.id, size & 1, "because", &err) < 0)
            abort();
    }
    br_frame_ask_free(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    as_packet(data, size);
    as_result(data, size);
    as_ask(data, size);
    return 0;
}
