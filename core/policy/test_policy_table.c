/*
 * Loading: what is accepted, and that everything else is refused as a whole, with the place and
 * what was expected there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "policy/policy_priv.h"

#define SOURCES                                                                                    \
    "\"sources\":[{\"kind\":\"profile\",\"name\":\"p\"},{\"kind\":\"operator\",\"name\":\"o\"},"   \
    "{\"kind\":\"manifest\",\"name\":\"m\"}]"
#define HEAD "{\"v\":2," SOURCES ","
#define TAIL ",\"fallbacks\":[],\"predicates\":false}"
#define RULE                                                                                       \
    "{\"id\":\"r\",\"source\":1,\"action\":\"fs.read\",\"match\":\"path\",\"pattern\":\"a/**\","   \
    "\"effect\":\"allow\",\"reason\":\"why\"}"
#define RULES(list) HEAD "\"rules\":[" list "]" TAIL
/* One rule, of which one member is wrong. */
#define BAD(id, source, action, match, pattern, effect, more)                                      \
    RULES("{\"id\":" id ",\"source\":" source ",\"action\":" action ",\"match\":" match            \
          ",\"pattern\":" pattern ",\"effect\":" effect more "}")
/* A rule for every request, and more of it; and one with conditions. */
#define ANY(more) BAD("\"r\"", "1", "\"x\"", "\"any\"", "\"\"", "\"deny\"", more)
#define WHEN(condition, list)                                                                      \
    HEAD "\"rules\":[{\"id\":\"r\",\"source\":1,\"action\":\"x\",\"match\":\"any\",\"effect\":"    \
         "\"deny\","                                                                               \
         "\"when\":" list "}],\"conditions\":[" condition "]" TAIL
#define FALLBACKS(list) HEAD "\"rules\":[],\"fallbacks\":[" list "],\"predicates\":true}"

static void check_refused(const char *json, size_t n, const char *says)
{
    struct br_table *t = (struct br_table *)&t;
    struct br_err err = {.code = BR_OK};
    int r = br_table_load(json, n, &t, &err);
    if (r != -BR_E_INVALID_TABLE || t != NULL || err.code != BR_E_INVALID_TABLE)
        fail_msg("'%.300s' was not refused (%d)", json, r);
    if (!strstr(err.text, says))
        fail_msg("'%.300s': \"%s\" does not say \"%s\"", json, err.text, says);
    assert_non_null(strstr(err.text, "was not loaded"));
    assert_int_equal(br_table_load(json, n, &t, NULL), -BR_E_INVALID_TABLE);
}

static struct br_table *load(const char *json)
{
    struct br_table *t;
    struct br_err err;
    if (br_table_load(json, strlen(json), &t, &err) < 0)
        fail_msg("'%.300s': %s", json, err.text);
    return t;
}

static void test_accepted(void **state)
{
    (void)state;
    static const char *const good[] = {
        RULES(""),
        RULES(RULE),
        RULES(RULE "," RULE),
        "{\"v\":2,\"sources\":[],\"rules\":[],\"fallbacks\":[],\"predicates\":true}",
        " {\n\"predicates\" : true, \"fallbacks\":[] ,\"rules\":[],\"sources\":[],\"v\":2 }\n",
        RULES("{\"id\":\"r\",\"source\":0,\"action\":\"*\",\"match\":\"any\",\"effect\":\"ask\"}"),
        FALLBACKS("{\"id\":\"f\",\"source\":2,\"action\":\"a\",\"effect\":\"deny\"},"
                  "{\"id\":\"f\",\"source\":2,\"action\":\"*\",\"effect\":\"ask\"}"),
        BAD("\"r\"", "1", "\"x\"", "\"text\"", "\"\\u00e9 \\\\ \\\"\"", "\"deny\"", ""),
        BAD("\"r\"", "1", "\"network\"", "\"host\"", "\"[::1]:443\"", "\"deny\"", ""),
        ANY(",\"file\":\"policy.lua\",\"line\":12"),
        WHEN("{\"tool\":[\"fs_*\"],\"model\":[\"a\"],\"env\":[\"LD_*\"],\"env_only\":[],\"time\":{"
             "\"days\":127,"
             "\"from\":1439,\"to\":1440,\"zone\":-720},\"budget\":[{\"counter\":\"asks\",\"value\":"
             "\"left\",\"is\":\"under\",\"limit\":3}]}",
             "[0]"),
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(good); i++) {
        struct br_table *t = load(good[i]);
        br_table_free(&t);
        assert_null(t);
    }
    struct br_table *t = load(RULES(RULE "," RULE));
    assert_int_equal(br_table_rules(t), 2);
    assert_false(br_table_has_predicates(t));
    br_table_free(&t);
    t = load(FALLBACKS(""));
    assert_true(br_table_has_predicates(t));
    br_table_free(&t);
    br_table_free(&t); /* of nothing: nothing */
}

static void test_hash(void **state)
{
    (void)state;
    /* printf '%s' '{"v":1,...}' | sha256sum */
    static const char json[] =
        "{\"v\":2,\"sources\":[],\"rules\":[],\"fallbacks\":[],\"predicates\":true}";
    struct br_table *t = load(json);
    char hex[65];
    for (unsigned i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", br_table_sha256(t)[i]);
    assert_string_equal(hex, "f8a494e25d691e70098d00c1d3d9f8d2b1c7df1c3f8e37ee0304bdbfe10b2f99");
    br_table_free(&t);
}

static const struct {
    const char *json, *says;
} bad[] = {
    {"", "empty"},
    {" ", "line 1"},
    {"x", "line 1"},
    {"null", "line 1"},
    {"[]", "must be an object"},
    {"{}", "'v' is missing"},
    {RULES("") "x", "line 1"},
    {RULES("") "{}", "line 1"},
    {"{\"v\":2", "ends inside"},
    {"{\"v\":2,\"v\":2}", "duplicate"},
    {"{\"v\":1," SOURCES ",\"rules\":[],\"fallbacks\":[],\"predicates\":true}", "'v' must be 2"},
    {"{\"v\":\"1\"," SOURCES ",\"rules\":[],\"fallbacks\":[],\"predicates\":true}",
     "'v' must be an integer"},
    {"{\"v\":2.0," SOURCES ",\"rules\":[],\"fallbacks\":[],\"predicates\":true}",
     "'v' must be an integer"},
    {HEAD "\"rules\":[],\"fallbacks\":[]}", "'predicates' is missing; true or false"},
    {HEAD "\"rules\":{},\"fallbacks\":[],\"predicates\":true}", "'rules' must be a list"},
    {HEAD "\"rules\":[],\"fallbacks\":[],\"predicates\":1}", "'predicates' must be true or false"},
    {HEAD "\"rules\":[],\"fallback\":[],\"predicates\":true}",
     "'fallback' is not a known key; the nearest one is 'fallbacks'"},
    /* sources */
    {"{\"v\":2,\"sources\":[{\"kind\":\"operator\",\"name\":\"o\"},{\"kind\":\"profile\",\"name\":"
     "\"p\"}],\"rules\":[],\"fallbacks\":[],\"predicates\":true}",
     "'sources[1].kind'"},
    {"{\"v\":2,\"sources\":[{\"kind\":\"operator\",\"name\":\"o\"},{\"kind\":\"operator\",\"name\":"
     "\"p\"}],\"rules\":[],\"fallbacks\":[],\"predicates\":true}",
     "'sources[1].kind'"},
    {"{\"v\":2,\"sources\":[{\"kind\":\"root\",\"name\":\"o\"}],\"rules\":[],\"fallbacks\":[],"
     "\"predicates\":true}",
     "'sources[0].kind'"},
    {"{\"v\":2,\"sources\":[{\"kind\":\"operator\"}],\"rules\":[],\"fallbacks\":[],"
     "\"predicates\":true}",
     "'sources[0].name' is missing; a text"},
    {"{\"v\":2,\"sources\":[1,2,3,4],\"rules\":[],\"fallbacks\":[],\"predicates\":true}",
     "'sources' has 4 entries"},
    {"{\"v\":2,\"sources\":[7],\"rules\":[],\"fallbacks\":[],\"predicates\":true}",
     "'sources[0]' must be an object"},
    /* rules */
    {RULES("[]"), "'rules[0]' must be an object"},
    {RULES(RULE ",{}"), "'rules[1].id' is missing"},
    {RULES(RULE "," RULE ",{\"idd\":\"x\"}"), "'rules[2].idd' is not a known key; the nearest one "
                                              "is 'id'"},
    {BAD("\"r\"", "1", "\"x\"", "\"text\"", "\"a\"", "\"alow\"", ""), "'rules[0].effect' must be"},
    {BAD("\"r\"", "1", "\"x\"", "\"text\"", "\"a\"", "\"none\"", ""), "'rules[0].effect' must be"},
    {BAD("\"r\"", "1", "\"x\"", "\"text\"", "\"a\"", "\"ALLOW\"", ""), "'rules[0].effect' must be"},
    {BAD("\"r\"", "1", "\"x\"", "\"text\"", "\"a\"", "\"\"", ""), "'rules[0].effect' must be"},
    {BAD("\"r\"", "1", "\"x\"", "\"text\"", "\"a\"", "null", ""), "'rules[0].effect' must be a"},
    {BAD("\"r\"", "3", "\"x\"", "\"text\"", "\"a\"", "\"ask\"", ""), "'rules[0].source' must be"},
    {BAD("\"r\"", "-1", "\"x\"", "\"text\"", "\"a\"", "\"ask\"", ""), "'rules[0].source' must be"},
    {BAD("\"r\"", "9223372036854775807", "\"x\"", "\"text\"", "\"a\"", "\"ask\"", ""),
     "'rules[0].source' must be"},
    {BAD("\"r\"", "9223372036854775808", "\"x\"", "\"text\"", "\"a\"", "\"ask\"", ""), "line 1"},
    {BAD("\"\"", "1", "\"x\"", "\"text\"", "\"a\"", "\"ask\"", ""), "'rules[0].id' must be a text"},
    {BAD("7", "1", "\"x\"", "\"text\"", "\"a\"", "\"ask\"", ""), "'rules[0].id' must be a text"},
    {BAD("\"a\\nb\"", "1", "\"x\"", "\"text\"", "\"a\"", "\"ask\"", ""), "control characters"},
    {BAD("\"a\\u0000b\"", "1", "\"x\"", "\"text\"", "\"a\"", "\"ask\"", ""), "NUL"},
    {BAD("\"r\"", "1", "\"fs.*\"", "\"text\"", "\"a\"", "\"ask\"", ""),
     "'rules[0].action' must be"},
    {BAD("\"r\"", "1", "\"\"", "\"text\"", "\"a\"", "\"ask\"", ""), "'rules[0].action' must be"},
    {BAD("\"r\"", "1", "\"x\"", "\"glob\"", "\"a\"", "\"ask\"", ""), "'rules[0].match' must be"},
    {BAD("\"r\"", "1", "\"x\"", "\"regex\"", "\"a\"", "\"ask\"", ""), "'rules[0].match' must be"},
    {BAD("\"r\"", "1", "\"x\"", "\"any\"", "\"a\"", "\"ask\"", ""), "'rules[0].pattern' must be"},
    {BAD("\"r\"", "1", "\"x\"", "\"text\"", "\"\"", "\"ask\"", ""), "'rules[0].pattern' must be"},
    {BAD("\"r\"", "1", "\"x\"", "\"text\"", "\"a\"", "\"ask\"", ",\"reason\":\"\""),
     "'rules[0].reason' must be"},
    {BAD("\"r\"", "1", "\"x\"", "\"text\"", "\"a\"", "\"ask\"", ",\"Reason\":\"x\""),
     "nearest one is 'reason'"},
    {BAD("\"r\"", "1", "\"x\"", "\"text\"", "\"a\"", "\"ask\"", ",\"effect\":\"allow\""),
     "duplicate"},
    {RULES("{\"id\":\"r\",\"source\":0,\"action\":\"x\",\"match\":\"text\",\"effect\":\"ask\"}"),
     "'rules[0].pattern' must be there"},
    /* matchers that would never see a subject of their action */
    {BAD("\"r\"", "1", "\"process.exec\"", "\"text\"", "\"a\"", "\"deny\"", ""),
     "'rules[0].match'"},
    {BAD("\"r\"", "1", "\"process.exec\"", "\"path\"", "\"a\"", "\"deny\"", ""),
     "'rules[0].match'"},
    {BAD("\"r\"", "1", "\"fs.write\"", "\"command\"", "\"a\"", "\"deny\"", ""), "'rules[0].match'"},
    {BAD("\"r\"", "1", "\"fs.read\"", "\"host\"", "\"a\"", "\"deny\"", ""), "'rules[0].match'"},
    {BAD("\"r\"", "1", "\"network\"", "\"path\"", "\"a\"", "\"deny\"", ""), "'rules[0].match'"},
    /* patterns that no subject can match */
    {BAD("\"r\"", "1", "\"fs.read\"", "\"path\"", "\"/etc/**\"", "\"deny\"", ""),
     "'rules[0].pattern'"},
    {BAD("\"r\"", "1", "\"fs.read\"", "\"path\"", "\"src/\"", "\"deny\"", ""),
     "a whole directory is 'dir/**'"},
    {BAD("\"r\"", "1", "\"fs.read\"", "\"path\"", "\"./src\"", "\"deny\"", ""), "rules[0].pattern"},
    {BAD("\"r\"", "1", "\"fs.read\"", "\"path\"", "\"a/../b\"", "\"deny\"", ""),
     "rules[0].pattern"},
    {BAD("\"r\"", "1", "\"fs.read\"", "\"path\"", "\"a//b\"", "\"deny\"", ""), "rules[0].pattern"},
    {BAD("\"r\"", "1", "\"process.exec\"", "\"command\"", "\"rm \"", "\"deny\"", ""),
     "without spaces at its start or end"},
    {BAD("\"r\"", "1", "\"process.exec\"", "\"command\"", "\" rm\"", "\"deny\"", ""),
     "without spaces at its start or end"},
    {BAD("\"r\"", "1", "\"network\"", "\"host\"", "\"a.example.\"", "\"deny\"", ""), "a host or"},
    {BAD("\"r\"", "1", "\"network\"", "\"host\"", "\"http://a\"", "\"deny\"", ""), "a host or"},
    {BAD("\"r\"", "1", "\"network\"", "\"host\"", "\"a:b\"", "\"deny\"", ""), "of its kind"},
    {BAD("\"r\"", "1", "\"network\"", "\"host\"", "\"a:\"", "\"deny\"", ""), "a host or"},
    /* fallbacks */
    {FALLBACKS("{\"id\":\"f\",\"source\":2,\"action\":\"a\",\"effect\":\"allow\"}"),
     "'fallbacks[0].effect' must be \"ask\" or \"deny\""},
    {FALLBACKS("{\"id\":\"f\",\"source\":0,\"action\":\"a\",\"effect\":\"ask\"}"),
     "'fallbacks[0].source' must be the manifest or the operator"},
    {FALLBACKS("{\"id\":\"f\",\"source\":1,\"action\":\"a\",\"effect\":\"deny\"}"),
     "'fallbacks[0].effect' must be \"ask\" where the source is the operator"},
    {FALLBACKS("{\"id\":\"f\",\"source\":2,\"action\":\"a\",\"effect\":\"deny\"},"
               "{\"id\":\"g\",\"source\":2,\"action\":\"a\",\"effect\":\"ask\"}"),
     "'fallbacks[1].action' must be an action that has no fallback yet"},
    {FALLBACKS("{\"id\":\"f\",\"source\":2,\"action\":\"a\"}"), "'fallbacks[0].effect' is missing"},
    {FALLBACKS("{\"id\":\"f\",\"source\":2,\"action\":\"a\",\"effect\":\"ask\",\"match\":\"x\"}"),
     "'fallbacks[0].match' is not a known key"},
    /* where it was written */
    {ANY(",\"file\":7"), "'rules[0].file' must be a text"},
    {ANY(",\"file\":\"\""), "'rules[0].file' must be a text of 1 to"},
    {ANY(",\"file\":\"a\\n\""), "'rules[0].file' must be a text without control"},
    {ANY(",\"line\":-1"), "'rules[0].line' must be an integer from 0"},
    {ANY(",\"line\":\"1\""), "'rules[0].line' must be an integer"},
    /* conditions */
    {ANY(",\"when\":[0]"), "'rules[0].when' must be a list of 1 to 16 indices"},
    {WHEN("{\"tool\":[\"a\"]}", "[]"), "'rules[0].when' must be a list"},
    {WHEN("{\"tool\":[\"a\"]}", "[1]"), "'rules[0].when' must be a list"},
    {WHEN("{\"tool\":[\"a\"]}", "[-1]"), "'rules[0].when' must be a list"},
    {WHEN("{\"tool\":[\"a\"]}", "[\"0\"]"), "'rules[0].when' must be a list"},
    {WHEN("{\"tool\":[\"a\"]}", "[0,0]"), "none twice"},
    {WHEN("{}", "[0]"), "'conditions[0].tool' must be there, or another condition"},
    {WHEN("7", "[0]"), "'conditions[0]' must be an object"},
    {WHEN("{\"tol\":[]}", "[0]"),
     "'conditions[0].tol' is not a known key; the nearest one is 'tool'"},
    {WHEN("{\"tool\":[]}", "[0]"), "'conditions[0].tool' must be a list of 1 to 256 patterns"},
    {WHEN("{\"tool\":[7]}", "[0]"), "'conditions[0].tool' must be a list"},
    {WHEN("{\"model\":[\"\"]}", "[0]"), "'conditions[0].model' must be a list"},
    {WHEN("{\"env\":[]}", "[0]"), "'conditions[0].env' must be a list"},
    {WHEN("{\"time\":{\"days\":0,\"from\":0,\"to\":1}}", "[0]"),
     "time.days' must be an integer from 1"},
    {WHEN("{\"time\":{\"days\":128,\"from\":0,\"to\":1}}", "[0]"), "time.days' must be"},
    {WHEN("{\"time\":{\"days\":1,\"from\":1440,\"to\":1}}", "[0]"), "time.from' must be"},
    {WHEN("{\"time\":{\"days\":1,\"from\":0,\"to\":1441}}", "[0]"), "time.to' must be"},
    {WHEN("{\"time\":{\"days\":1,\"from\":7,\"to\":7}}", "[0]"), "time.to' must be another minute"},
    {WHEN("{\"time\":{\"days\":1,\"from\":7,\"to\":8,\"zone\":1441}}", "[0]"),
     "time.zone' must be"},
    {WHEN("{\"time\":{\"days\":1,\"from\":7}}", "[0]"), "time.to' is missing"},
    {WHEN("{\"budget\":[]}", "[0]"), "'conditions[0].budget' must be a list of 1 to 12"},
    {WHEN("{\"budget\":[{\"counter\":\"x\",\"value\":\"used\",\"is\":\"over\",\"limit\":1}]}",
          "[0]"),
     "budget[0].counter' must be \"calls\", \"tokens\" or \"asks\""},
    {WHEN("{\"budget\":[{\"counter\":\"calls\",\"value\":\"used\",\"is\":\"ove\",\"limit\":1}]}",
          "[0]"),
     "budget[0].is' must be \"over\" or \"under\""},
    {WHEN("{\"budget\":[{\"counter\":\"calls\",\"value\":\"used\",\"is\":\"over\",\"limit\":-1}]}",
          "[0]"),
     "budget[0].limit' must be"},
    {HEAD
     "\"rules\":[{\"id\":\"r\",\"source\":2,\"action\":\"x\",\"match\":\"any\",\"effect\":\"deny\","
     "\"when\":[0]}],\"conditions\":[{\"tool\":[\"a\"]}]" TAIL,
     "'rules[0].when' must be left out in a rule of a manifest"},
    {ANY(",\"command\":{\"program\":\"a\"}"), "'rules[0].command' must be there exactly where"},
    {BAD("\"r\"", "1", "\"process.exec\"", "\"program\"", "\"a\"", "\"deny\"", ""),
     "'rules[0].command' must be there exactly where"},
    {BAD("\"r\"", "1", "\"x\"", "\"program\"", "\"a\"", "\"deny\"",
         ",\"command\":{\"program\":\"a\"}"),
     "'rules[0].match' must be another matcher"},
    {BAD("\"r\"", "2", "\"process.exec\"", "\"program\"", "\"a\"", "\"deny\"",
         ",\"command\":{\"program\":\"a\"}"),
     "'rules[0].match' must be another matcher"},
    /* text that is not text */
    {RULES("{\"id\":\"\xff\"}"), "UTF-8"},
    {RULES("{\"id\":\"\xed\xa0\x80\"}"), "UTF-8"},
    {RULES("{\"id\":\"\\ud800\"}"), "line 1"},
    {RULES("{\"id\":NaN}"), "line 1"},
    {"{\"v\":2,\"sources\":[[[[[[[[]]]]]]]]}", "deeper than 8 levels"},
    {"{\"v\":2,\"sources\":[[[]]],\"rules\":[],\"fallbacks\":[],\"predicates\":true}",
     "'sources[0]' must be an object"},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++)
        check_refused(bad[i].json, strlen(bad[i].json), bad[i].says);
    check_refused("{}\0", 3, "UTF-8");
    check_refused(NULL, 0, "empty");
}

/* Every proper prefix of a good table is refused. */
static void test_truncated(void **state)
{
    (void)state;
    static const char json[] = RULES(RULE);
    for (size_t n = 0; n < sizeof(json) - 1; n++) {
        BR_CLEANUP_FREE char *copy = malloc(n + 1); /* exactly this much, for the sanitizer */
        memcpy(copy, json, n);
        check_refused(copy, n, "");
    }
}

static void put_rules(struct br_buf *b, unsigned n, const char *id, const char *pattern,
                      const char *reason)
{
    br_buf_reset(b);
    br_buf_printf(b, "%s", HEAD "\"rules\":[");
    for (unsigned i = 0; i < n; i++)
        br_buf_printf(
            b,
            "%s{\"id\":\"%s\",\"source\":1,\"action\":\"x\",\"match\":\"text\",\"pattern\":"
            "\"%s\",\"effect\":\"deny\",\"reason\":\"%s\"}",
            i ? "," : "", id, pattern, reason);
    br_buf_printf(b, "%s", "]" TAIL);
    assert_non_null(br_buf_cstr(b));
}

static void check_loads(const struct br_buf *b, bool good, const char *says)
{
    struct br_table *t;
    if (!good) {
        check_refused((const char *)b->data, b->len, says);
        return;
    }
    struct br_err err;
    if (br_table_load(b->data, b->len, &t, &err) < 0)
        fail_msg("%s", err.text);
    br_table_free(&t);
}

static void test_limits(void **state)
{
    (void)state;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(2 * BR_TABLE_MAX);
    char text[2048];
    static const struct {
        unsigned max, which;
        const char *says;
    } texts[] = {{BR_RULE_ID_MAX, 0, "rules[0].id"},
                 {BR_PATTERN_MAX, 1, "rules[0].pattern"},
                 {BR_REASON_MAX, 2, "rules[0].reason"}};
    for (size_t i = 0; i < BR_ARRAY_LEN(texts); i++) {
        for (unsigned over = 0; over < 2; over++) {
            memset(text, 'a', sizeof(text));
            text[texts[i].max + over] = 0;
            put_rules(&b, 1, texts[i].which == 0 ? text : "r", texts[i].which == 1 ? text : "p",
                      texts[i].which == 2 ? text : "w");
            check_loads(&b, !over, texts[i].says);
        }
    }
    put_rules(&b, BR_RULES_MAX, "r", "a*", "w");
    check_loads(&b, true, NULL);
    put_rules(&b, BR_RULES_MAX + 1, "r", "a*", "w");
    check_loads(&b, false, "'rules' has 10001 rules, more than 10000");

    put_rules(&b, 1, "r", "p", "w");
    size_t n = b.len;
    while (b.len < BR_TABLE_MAX)
        br_buf_put(&b, "                ", BR_TABLE_MAX - b.len < 16 ? BR_TABLE_MAX - b.len : 16);
    check_loads(&b, true, NULL);
    br_buf_put_u8(&b, ' ');
    check_loads(&b, false, "4194305 bytes");
    assert_true(n < BR_TABLE_MAX);
}

static void test_limits_of_lists(void **state)
{
    (void)state;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_TABLE_MAX);
    char action[BR_ACTION_MAX + 2];
    for (unsigned over = 0; over < 2; over++) {
        br_buf_reset(&b);
        br_buf_printf(&b, "%s", HEAD "\"rules\":[],\"fallbacks\":[");
        for (unsigned i = 0; i < TABLE_FALLBACKS_MAX + over; i++)
            br_buf_printf(&b, "%s{\"id\":\"f\",\"source\":2,\"action\":\"a%u\",\"effect\":\"ask\"}",
                          i ? "," : "", i);
        br_buf_printf(&b, "],\"predicates\":true}");
        check_loads(&b, !over, "'fallbacks' has 1001 entries");

        memset(action, 'a', sizeof(action));
        action[BR_ACTION_MAX + over] = 0;
        br_buf_reset(&b);
        br_buf_printf(&b,
                      RULES("{\"id\":\"r\",\"source\":1,\"action\":\"%s\",\"match\":\"any\","
                            "\"effect\":\"ask\"}"),
                      action);
        check_loads(&b, !over, "'rules[0].action'");

        /* nodes: object, key, list, first element, and these */
        br_buf_reset(&b);
        br_buf_printf(&b, "{\"v\":[0");
        for (unsigned i = 0; i < TABLE_NODES_MAX - 4 + over; i++)
            br_buf_put(&b, ",0", 2);
        br_buf_put(&b, "]}", 2);
        check_loads(&b, false, over ? "more than 600000 values" : "'v' must be an integer");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted), cmocka_unit_test(test_hash),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_limits),   cmocka_unit_test(test_limits_of_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
