/*
 * Profiles in the compiler's process: what a text becomes, where it goes wrong, and that it has
 * nothing to do with what the policy's text did.
 */
#include "script/rig.h"

#include <stdlib.h>
#include <string.h>

#define PROFILE(name_, rest_)                                                                      \
    "local limits = { memory_bytes = 1 << 20, pids = 10, cpu_percent = 100, nofile = 64,\n"        \
    "  fsize_bytes = 1, tmp_bytes = 1, tmp_inodes = 1, output_bytes = 1, exec_seconds = 1,\n"      \
    "  wall_seconds = 1 }\n"                                                                       \
    "return { name = '" name_ "', version = 1, rules = { { id = 'none', effect = 'deny',\n"        \
    "  actions = { 'network' }, match = 'any', patterns = {} } },\n"                               \
    "  sandbox = { backend = 'native', image = 'host', identity = 'owner', landlock = 'none',\n"   \
    "    workspace = 'bind', limits = limits" rest_ " } }\n"

static void compile(struct rig *g, const char *path, const char *profile)
{
    rig_start(g, BR_SCRIPT_POLICY);
    g->profile_path = path;
    g->profile = profile;
    rig_compile(g, NULL, NULL);
}

static const char *launch_text(const struct rig *g, const char *key)
{
    const char *s = json_string_value(json_object_get(g->a.launch, key));
    return s ? s : "";
}

static void test_default(void **state)
{
    (void)state;
    struct rig g;
    compile(&g, NULL, NULL);
    assert_int_equal(g.a.type, BR_MSG_COMPILED);
    assert_string_equal(launch_text(&g, "name"), "run-v1");
    assert_string_equal(launch_text(&g, "identity"), "dedicated");
    assert_int_equal(json_array_size(json_object_get(g.a.launch, "offers")), 2);
    assert_non_null(rig_rule(&g, "profile:no-network"));
    assert_int_equal(rig_stop(&g), 0);
}

static void test_builtin(void **state)
{
    (void)state;
    struct rig g;
    compile(&g, "observer-v1", NULL);
    assert_int_equal(g.a.type, BR_MSG_COMPILED);
    assert_string_equal(launch_text(&g, "backend"), "bwrap");
    assert_non_null(rig_rule(&g, "profile:no-shell"));
    assert_int_equal(rig_stop(&g), 0);
    compile(&g, "observer-v2", NULL);
    rig_code(&g, "NOT_FOUND");
    assert_int_equal(rig_stop(&g), 0);
}

static void test_own(void **state)
{
    (void)state;
    struct rig g;
    compile(&g, "/home/op/mine.lua", PROFILE("mine", ", noexec = { 'tmp' }"));
    if (g.a.type != BR_MSG_COMPILED)
        fail_msg("%s", g.a.text);
    assert_string_equal(launch_text(&g, "name"), "mine");
    assert_int_equal(json_array_size(json_object_get(g.a.launch, "noexec")), 1);
    assert_int_equal(json_array_size(json_object_get(g.a.launch, "offers")), 0);
    assert_non_null(rig_rule(&g, "profile:none"));
    assert_null(rig_rule(&g, "profile:no-network"));
    assert_int_equal(rig_stop(&g), 0);
}

static void test_bad(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } list[] = {
        {PROFILE("mine", ", mounts = {}"), "mine.lua:7: 'sandbox.mounts' is not a key here"},
        {"return {", "mine.lua:1:"},
        {"return nil", "must end with 'return"},
        {"\n\nerror('no')", "mine.lua:3: no"},
        {"while true do end", "ran for more than"},
        {"return string.rep('x', 1 << 40)", "mine.lua"},
        {"return os.getenv('HOME')", "'os' is not there"},
        {"return require 'profiles.run-v2'", "run-v2"},
        {"return require 'bridle.policy'", "there is no module 'bridle.policy'"},
        {"return require 'bridle.profile'", "there is no module 'bridle.profile'"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(list); i++) {
        struct rig g;
        compile(&g, "/home/op/mine.lua", list[i].text);
        rig_code(&g, "INVALID_PROFILE");
        rig_says(&g, list[i].says);
        assert_string_equal(g.a.file, "/home/op/mine.lua");
        assert_null(g.a.table);
        assert_int_equal(rig_stop(&g), 0);
    }
}

/* The policy's text runs in another state: what it does to shared modules changes no profile. */
static void test_policy_cannot_reach_it(void **state)
{
    (void)state;
    struct rig g;
    rig_start(&g, BR_SCRIPT_POLICY);
    rig_compile(&g,
                "local function try(name, f) local ok, m = pcall(require, name)\n"
                "  if ok then pcall(f, m) error('reached ' .. name) end end\n"
                "try('bridle.profile', function(p) p.load = function() return {} end end)\n"
                "try('profiles.run-v1', function(r) r.sandbox.limits.pids = 4096 end)\n"
                "local policy = require 'bridle.policy'\n"
                "return policy.bundle { api = 1, name = 'x', rules = {} }\n",
                NULL);
    if (g.a.type != BR_MSG_COMPILED)
        fail_msg("%s", g.a.text);
    assert_non_null(rig_rule(&g, "profile:no-network"));
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(g.a.launch, "limits"), "pids")), 256);
    assert_int_equal(rig_stop(&g), 0);
}

/* A text at the limit is taken; one byte more is no message of this protocol. */
static void test_size(void **state)
{
    (void)state;
    static char text[BR_PROFILE_MAX + 2];
    struct rig g;
    int n = snprintf(text, sizeof(text), "%s--", PROFILE("mine", ""));
    memset(text + n, 'x', BR_PROFILE_MAX - (size_t)n);
    compile(&g, "mine.lua", text);
    if (g.a.type != BR_MSG_COMPILED)
        fail_msg("%s", g.a.text);
    assert_int_equal(rig_stop(&g), 0);
    text[BR_PROFILE_MAX] = 'x';
    compile(&g, "mine.lua", text);
    assert_int_equal(g.a.type, 1); /* it has gone */
    (void)rig_ended(&g, 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_default),
        cmocka_unit_test(test_builtin),
        cmocka_unit_test(test_own),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_policy_cannot_reach_it),
        cmocka_unit_test(test_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
