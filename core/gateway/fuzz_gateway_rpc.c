/*
 * JSON-RPC from anybody: the reader never reads past its text, an id that it gives back is JSON of
 * the same value, strict is never wider than lenient, and an answer with that id is one message.
 */
#include <stdlib.h>
#include <string.h>

#include "gateway/gateway_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct br_buf sent = BR_BUF_INIT(1 << 20);

int conn_send(struct conn *c, const struct gw_piece *pieces, unsigned n)
{
    (void)c;
    for (unsigned i = 0; i < n; i++)
        br_require(br_buf_put(&sent, pieces[i].p, pieces[i].n) == 0);
    return 0;
}

static void check_answer(const char *id)
{
    struct rpc_message m;
    br_buf_reset(&sent);
    rpc_result(NULL, id, "{}", 2);
    br_require(rpc_read((char *)sent.data, sent.len, false, &m, NULL) == 0);
    br_require(m.kind == RPC_RESPONSE && strcmp(m.id, id) == 0 && json_is_object(m.result));
    rpc_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rpc_message m, wide;
    struct br_err err = {.code = BR_OK};
    char *s = malloc(size ? size : 1);
    if (!s)
        return 0;
    if (size)
        memcpy(s, data, size);
    int strict = rpc_read(s, size, true, &m, &err);
    int lenient = rpc_read(s, size, false, &wide, NULL);
    br_require(strict == 0 || strict == -32700 || strict == -32600);
    br_require((strict == 0) == (err.code == BR_OK));
    br_require(strict < 0 || (lenient == 0 && strcmp(m.id, wide.id) == 0));
    br_require(strict != -32700 || lenient == -32700);
    if (strict == 0 && m.kind == RPC_REQUEST) {
        json_t *id = json_loads(m.id, JSON_DECODE_ANY, NULL);
        br_require(id && json_equal(id, json_object_get(m.root_, "id")));
        json_decref(id);
        check_answer(m.id);
    }
    rpc_free(&m);
    rpc_free(&wide);
    free(s);
    return 0;
}
