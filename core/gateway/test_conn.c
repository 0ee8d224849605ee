/*
 * Connections of bridle-gateway, against the real program: bytes in every way that a client may
 * send them, and the ends that the protocol knows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include "gateway/test_rig.h"

#include <cmocka.h>

static const char ask[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"nonsense\"}";

static void expect_answer(struct gate_client *c)
{
    char *text = gate_read_text(c);
    assert_non_null(text);
    assert_non_null(strstr(text, "-32601"));
}

static void each_way(void **state)
{
    struct gate_rig r;
    (void)state;
    gate_start(&r, NULL);
    for (enum gate_way w = 0; w < GATE_WAYS; w++) {
        struct gate_client *c =
            gate_open_as(&r, w, "harness.acp.1", w == GATE_TLS ? GATE_TOKEN_OPERATE : NULL);
        gate_send_text(c, ask);
        expect_answer(c);
        gate_send_frame(c, 0x88, "\x03\xe8", 2);
        gate_expect_close(c, 1000);
        gate_expect_eof(c);
    }
    gate_stop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
