/*
 * The parser of decision tables: beside jansson, which is the reference, on texts of every kind and
 * on a table with random bytes changed. What one accepts the other does, with the same values.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "policy/tree.h"

#define DEPTH 8u

static void check_same(const struct br_tree *v, const json_t *j)
{
    size_t n = 0;
    switch (json_typeof(j)) {
    case JSON_OBJECT:
    case JSON_ARRAY:
        assert_int_equal(v->type, json_is_object(j) ? BR_TREE_OBJECT : BR_TREE_LIST);
        for (const struct br_tree *c = br_tree_after(v, NULL); c; c = br_tree_after(v, c), n++) {
            const json_t *other =
                json_is_object(j) ? json_object_get(j, c->key) : json_array_get(j, n);
            assert_non_null(other);
            check_same(c, other);
            if (json_is_object(j))
                assert_ptr_equal(br_tree_get(v, c->key), c);
        }
        assert_int_equal(n, json_is_object(j) ? json_object_size(j) : json_array_size(j));
        assert_int_equal(n, br_tree_count(v));
        break;
    case JSON_STRING:
        assert_int_equal(br_tree_len(v), json_string_length(j));
        assert_string_equal(br_tree_text(v), json_string_value(j));
        break;
    case JSON_INTEGER:
        assert_int_equal(v->type, BR_TREE_INTEGER);
        assert_true(br_tree_integer(v) == json_integer_value(j));
        break;
    case JSON_REAL:
        assert_int_equal(v->type, BR_TREE_REAL);
        break;
    default:
        assert_int_equal(v->type, json_is_true(j)    ? BR_TREE_TRUE
                                  : json_is_false(j) ? BR_TREE_FALSE
                                                     : BR_TREE_NULL);
    }
}

static bool check(const char *text, size_t n)
{
    struct br_err err = {.code = BR_OK};
    if (br_json_scan(text, n, DEPTH, 10000, &err) < 0)
        return false;
    struct br_trees t;
    json_error_t je;
    int r = br_trees_parse(&t, text, n, DEPTH);
    json_t *j = json_loadb(text, n, JSON_REJECT_DUPLICATES, &je);
    if ((r == 0) != (j != NULL) && !strstr(je.text, "real number overflow"))
        fail_msg("'%.*s': %d (%s), and jansson: %s", (int)n, text, r, t.why, j ? "yes" : je.text);
    if (r == 0 && j)
        check_same(t.nodes, j);
    assert_true(r == 0 || (t.why[0] && t.line > 0 && t.column > 0));
    json_decref(j);
    br_trees_free(&t);
    return r == 0;
}

static const char *const texts[] = {
    "{}",
    "[]",
    " [ ] ",
    "[1]",
    "[1,]",
    "[,1]",
    "[1 2]",
    "{\"a\":1,}",
    "{\"a\":1,\"a\":2}",
    "{\"a\" 1}",
    "{\"a\":}",
    "{a:1}",
    "{\"a\":1}x",
    "{\"a\":1}{}",
    "1",
    "\"a\"",
    "null",
    "",
    " ",
    "[01]",
    "[-]",
    "[-0]",
    "[-01]",
    "[1.]",
    "[.5]",
    "[1.5e]",
    "[1e+5]",
    "[1E-5]",
    "[1e5x]",
    "[9223372036854775807]",
    "[9223372036854775808]",
    "[-9223372036854775808]",
    "[-9223372036854775809]",
    "[true,false,null]",
    "[tru]",
    "[truee]",
    "[nul]",
    "[\"\\u0041\\u00e4\\u20ac\\ud83d\\ude00\"]",
    "[\"\\ud83d\"]",
    "[\"\\ude00\"]",
    "[\"\\ud83d\\u0041\"]",
    "[\"\\ud83dx\"]",
    "[\"\\u00g0\"]",
    "[\"\\u00\"]",
    "[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"]",
    "[\"\\x\"]",
    "[\"\\'\"]",
    "[\"a\tb\"]",
    "[\"\x7f\"]",
    "[\"\xc3\xa4\"]",
    "{\"\":{\"\":[[],{},\"\"]}}",
    "{\"a\":{\"a\":1},\"b\":{\"a\":2}}",
    "{\"\\u0061\":1,\"a\":2}",
    "[[[[[[[[1]]]]]]]]",
    "\f[]",
    "[\v]",
};

static void test_texts(void **state)
{
    (void)state;
    unsigned good = 0;
    for (size_t i = 0; i < BR_ARRAY_LEN(texts); i++)
        good += check(texts[i], strlen(texts[i]));
    assert_int_equal(good, 17);
}

static const char table[] =
    "{\"v\":2,\"sources\":[{\"kind\":\"operator\",\"name\":\"\\u00e4\\ud83d\\ude00\"}],\"rules\":["
    "{\"id\":\"a\",\"line\":-12,\"when\":[0,1.5e3],\"command\":{\"words\":[[\"x\\n\"],[]]}},\n {}],"
    "\"predicates\":false , \"x\":null}";

static void test_mutated(void **state)
{
    (void)state;
    static const char alphabet[] = "{}[]\",:\\u0d8e1-+.eE tfn\x01\x7f/\xc3\xa4";
    uint64_t x = 0x853c49e6748fea9bull;
    unsigned good = 0;
    for (unsigned i = 0; i < 60000; i++) {
        char text[sizeof(table)];
        memcpy(text, table, sizeof(table));
        for (unsigned k = 0; k <= i % 3; k++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            text[(x >> 33) % (sizeof(table) - 1)] = alphabet[(x >> 20) % (sizeof(alphabet) - 1)];
        }
        good += check(text, sizeof(table) - 1);
    }
    assert_true(good > 1000 && good < 50000);
}

static void test_limits(void **state)
{
    (void)state;
    for (unsigned over = 0; over < 2; over++) {
        char text[2048] = "{";
        struct br_trees t;
        for (unsigned i = 0; i < BR_TREE_MEMBERS_MAX + over; i++)
            snprintf(text + strlen(text), 32, "%s\"k%u\":%u", i ? "," : "", i, i);
        strcat(text, "}");
        assert_int_equal(br_trees_parse(&t, text, strlen(text), DEPTH),
                         over ? -BR_E_INVALID_JSON : 0);
        if (over)
            assert_string_equal(t.why, "an object has too many keys");
        br_trees_free(&t);
    }
    for (unsigned over = 0; over < 2; over++) {
        struct br_trees t;
        const char *text = over ? "[[[]]]" : "[[]]";
        assert_int_equal(br_trees_parse(&t, text, strlen(text), 2), over ? -BR_E_INVALID_JSON : 0);
        br_trees_free(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_mutated),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
