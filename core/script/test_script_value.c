/*
 * A schema and a value in a real bridle-script: what is answered, what ends the program, and that
 * neither a hostile schema nor a hostile value costs more than the deadline.
 */
#include <stdlib.h>
#include <string.h>

#include "script/rig.h"

static void ask(struct rig *g, uint8_t schema, const void *p, size_t n)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    g->a.type = 0;
    br_buf_put_u8(&o.buf, schema);
    br_out_blob(&o, p, n);
    assert_int_equal(br_chan_send(&g->peer, BR_MSG_VALUE, 7, &o, NULL), 0);
    rig_wait(g, 20000);
}

static void fits(struct rig *g, uint8_t schema, const char *text)
{
    ask(g, schema, text, strlen(text));
    if (g->a.type != BR_MSG_VALUE_FITS)
        fail_msg("%s: %s", text, g->a.text);
}

static void refused(struct rig *g, uint8_t schema, const char *text, const char *code,
                    const char *said)
{
    ask(g, schema, text, strlen(text));
    rig_code(g, code);
    rig_says(g, said);
}

static void open_rig(struct rig *g)
{
    rig_start(g, BR_SCRIPT_POLICY);
    g->profile_path = "observer-native-v1";
    g->profile = "";
    rig_compile(g, NULL, NULL);
    assert_int_equal(g->a.type, BR_MSG_COMPILED);
}

static void test_values(void **state)
{
    (void)state;
    struct rig g;
    open_rig(&g);
    fits(&g, 1, "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"maxItems\":3}");
    fits(&g, 0, "[1,2,3]");
    fits(&g, 0, "[]");
    refused(&g, 0, "{}", "INVALID_ARGUMENTS", "must be of type array, and is of type object");
    refused(&g, 0, "[1,2,3,4]", "INVALID_ARGUMENTS", "more than 3 elements");
    refused(&g, 0, "[1,\"x\"]", "INVALID_ARGUMENTS", "'[2]' must be of type integer");
    refused(&g, 0, "[1", "INVALID_JSON", "");
    refused(&g, 0, "[1]x", "INVALID_JSON", "");
    refused(&g, 1, "{\"pattern\":\"(a+)+$\"}", "INVALID_ARGUMENTS", "'pattern' is not supported");
    fits(&g, 0, "[1]"); /* the one before counts */
    fits(&g, 1, "{\"enum\":[null,[],{}]}");
    fits(&g, 0, "null");
    fits(&g, 0, "[]"); /* a list is no object */
    fits(&g, 0, "{}");
    refused(&g, 0, "[{}]", "INVALID_ARGUMENTS", "not one of the values");
    assert_int_equal(rig_stop(&g), 0);
}

/* Two to the power of forty ways through a schema; and a product that is too large. */
static void test_time(void **state)
{
    (void)state;
    struct rig g;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1 << 20);
    open_rig(&g);
    br_buf_printf(&b, "{\"$ref\":\"#/$defs/a0\",\"$defs\":{");
    for (int i = 0; i < 40; i++)
        br_buf_printf(
            &b, "\"a%d\":{\"anyOf\":[{\"$ref\":\"#/$defs/a%d\"},{\"$ref\":\"#/$defs/a%d\"}]},", i,
            i + 1, i + 1);
    br_buf_printf(&b, "\"a40\":{\"type\":\"null\"}}}");
    fits(&g, 1, br_buf_cstr(&b));
    fits(&g, 0, "null");
    refused(&g, 0, "1", "INVALID_ARGUMENTS", "none of the 2");
    br_buf_reset(&b);
    br_buf_printf(&b, "{\"items\":{\"anyOf\":[");
    for (int i = 0; i < 900; i++)
        br_buf_printf(&b, "{\"const\":%d},", i + 1);
    br_buf_printf(&b, "{}]}}");
    fits(&g, 1, br_buf_cstr(&b));
    br_buf_reset(&b);
    br_buf_printf(&b, "[0");
    for (int i = 0; i < 9000; i++)
        br_buf_printf(&b, ",0");
    br_buf_printf(&b, "]");
    ask(&g, 0, b.data, b.len);
    rig_code(&g, "LIMIT_EXCEEDED");
    (void)rig_stop(&g);
}

static void test_before_a_policy(void **state)
{
    (void)state;
    struct rig g;
    rig_start(&g, BR_SCRIPT_POLICY);
    ask(&g, 1, "{}", 2);
    assert_int_equal(g.a.type, 1); /* it has gone */
    assert_int_not_equal(rig_ended(&g, 20000), 0);
}

static void test_malformed(void **state)
{
    (void)state;
    struct rig g;
    open_rig(&g);
    ask(&g, 2, "{}", 2);
    assert_int_equal(g.a.type, 1);
    assert_int_not_equal(rig_ended(&g, 20000), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_time),
        cmocka_unit_test(test_before_a_policy),
        cmocka_unit_test(test_malformed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
