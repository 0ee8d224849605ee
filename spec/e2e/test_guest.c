/*
 * A guest and its provider, from end to end: every request is one turn of the record, the lease and
 * the token hold, and nothing of what was said between the two is kept.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "e2e/harness_rig.h"

static const char scenario[] =
    "{\"v\":1,\"name\":\"canaries\",\"turns\":[{\"when\":{\"last_user_contains\":\"call\"},"
    "\"text\":"
    "\"canary-reasoning\",\"tool_calls\":[{\"name\":\"bash\",\"arguments\":{\"command\":"
    "\"canary-argument\"}}]},{\"when\":{\"last_user_contains\":\"fail\"},\"fault\":{\"status\":500,"
    "\"body\":\"canary-exception\"}},{\"when\":{\"last_user_contains\":\"slow\"},\"text\":"
    "\"one two three four five "
    "six\",\"delay_ms\":200,\"chunk_words\":1},{\"text\":\"canary-body\"}]}\n";

/* post TEXT [TOKEN [MODEL [MORE]]]: the status, and the answer in /tmp/answer. */
static const char poster[] =
    "token=$(printf %s \"$json\" | sed -nE 's/.*\"token\":\"([^\"]*)\".*/\\1/p')\n"
    "model=$(printf %s \"$json\" | sed -nE 's/.*\"model\":\\{[^}]*\"id\":\"([^\"]*)\".*/\\1/p')\n"
    "post() { curl -s -o /tmp/answer -w '%{http_code}' --unix-socket /broker/provider.sock -H "
    "'Content-Type: application/json' -H \"Authorization: Bearer ${2:-$token}\" -d "
    "'{\"model\":\"'\"${3:-$model}\"'\",\"max_tokens\":100,\"messages\":[{\"role\":\"user\","
    "\"content\":\"'\"$1\"'\"}]'"
    "\"${4:-}\"'}' http://localhost/v1/chat/completions; }\n"
    "seen() { grep -c \"$1\" /tmp/answer || true; }\n";
#define TOOLS(name)                                                                                \
    "',\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":{}}}]" \
    "'"

static void run(struct e2e *t, const char *body, int status, struct e2e_result *r)
{
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(65536);
    br_buf_printf(&text, "%s%s", poster, body);
    harness_guest(t, br_buf_cstr(&text));
    e2e_run(t, r, "bridle", "run", "--json", "-C", "workspace", "--profile", "hosted.lua",
            "--config", "bridle.lua", "-a", "test-guest@3", "--scenario", "scenario.json", "do it",
            NULL);
    e2e_expect(r, status, NULL);
}

static void open_provider(struct e2e *t, const char *terms)
{
    harness_open(t, terms);
    e2e_write(t, "scenario.json", scenario);
    harness_activate(t, "hosted.lua", NULL);
}

/* What it was told reaches the guest, which is the control, and no byte of the store. */
static void test_turns(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    open_provider(&t, NULL);
    run(&t,
        "a=$(post plain); a=$a:$(seen canary-body)\n"
        "b=$(post 'call canary-prompt' '' '' " TOOLS(
            "bash") ")\n"
                    "b=$b:$(seen canary-reasoning):$(seen canary-argument)\n"
                    "c=$(post fail)\n"
                    "say \"$(result \"told: $a $b ${c%??}\")\"\n",
        0, &r);
    e2e_expect(&r, 0, "told: 200:1 200:1:1 5");
    e2e_expect(&r, 0, "\"requestId\":\"guest-1\"");
    e2e_expect(&r, 0, "\"finishReason\":\"tool_calls\"");
    e2e_expect(&r, 0, "\"finishReason\":\"error\"");
    e2e_expect(&r, 0, "\"status\":\"completed\",\"steps\":3,\"toolCalls\":1");
    e2e_result_free(&r);
    static const char *const canaries[] = {"canary-body", "canary-reasoning", "canary-argument",
                                           "canary-prompt", "canary-exception"};
    for (size_t i = 0; i < BR_ARRAY_LEN(canaries); i++)
        if (harness_stored(&t, canaries[i]))
            fail_msg("'%s' is in the store", canaries[i]);
    assert_true(harness_stored(&t, "told: 200"));
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* Another token, another model, a tool that the adapter does not have, one request too many. */
static void test_refused(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    open_provider(&t, "lease = { requests = 2 }");
    run(&t,
        "a=$(post plain $(printf %064d 1))\n"
        "b=$(post plain '' canary-model)\n"
        "c=$(post plain '' '' " TOOLS(
            "curl") ")\n"
                    "d=$(post plain); e=$(post plain); f=$(post plain)\n"
                    "say \"$(result \"told: ${a%??} ${b%??} ${c%??} $d $e ${f%??}\")\"\n",
        0, &r);
    e2e_expect(&r, 0, "told: 4 4 4 200 200 4");
    e2e_expect(&r, 0, "\"type\":\"bridle.provider.refused\"");
    e2e_expect(&r, 0, "\"status\":\"completed\",\"steps\":2,\"toolCalls\":1");
    e2e_result_free(&r);
    assert_false(harness_stored(&t, "canary-model"));
    assert_false(harness_stored(&t, "canary-tool"));
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* A guest that leaves while it is being answered: what that cost is known, and recorded. */
static void test_early_leave(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    open_provider(&t, NULL);
    run(&t,
        "post slow '' '' ',\"stream\":true' >/dev/null & sleep 0.5\n"
        "say \"$(result left)\"\n",
        0, &r);
    e2e_expect(&r, 0, "\"text\":\"left\"");
    e2e_expect(&r, 0, "\"type\":\"model.response\"");
    e2e_expect(&r, 0, "\"settled\":true");
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

static unsigned long tokens_of(const struct e2e_result *r, const char *key)
{
    const char *text = (const char *)r->out.data, *at = strstr(text, "\"type\":\"model.response\"");
    at = at ? strstr(at, key) : NULL;
    return at ? strtoul(at + strlen(key), NULL, 10) : 0;
}

static void within(struct e2e *t, unsigned long tokens, const char *body, int status,
                   struct e2e_result *r)
{
    char task[512];
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(65536);
    snprintf(task, sizeof(task),
             "id: e2e\ntitle: t\ngoal: g\nacceptance: [a]\nallowed_paths: [src/**]\n"
             "permissions: {}\nbudget: {max_model_tokens: %lu}\ndelivery: {type: none}\n",
             tokens);
    e2e_write(t, "task.yaml", task);
    br_buf_printf(&text, "%s%s\nsay \"$(result over)\"\n", poster, body);
    harness_guest(t, br_buf_cstr(&text));
    e2e_run(t, r, "bridle", "run", "--json", "-C", "workspace", "-t", "task.yaml", "--profile",
            "hosted.lua", "--config", "bridle.lua", "-a", "test-guest@3", "--scenario",
            "scenario.json", "do it", NULL);
    e2e_expect(r, status, status ? "\"status\":\"budget_exceeded\"" : "\"status\":\"completed\"");
}

/* What does not fit into its budget is not sent. What its answers cost is counted to the end, also
 * of one that it did not wait for; a run that has used more than its budget is not completed. */
static void test_budget(void **state)
{
    static const char *const bodies[] = {"a=$(post slow)", "post slow >/dev/null & sleep 0.4"};
    struct e2e t;
    struct e2e_result r;
    (void)state;
    open_provider(&t, NULL);
    within(&t, 100000, bodies[0], 0, &r);
    unsigned long prompt = tokens_of(&r, "\"promptTokens\":");
    unsigned long all = tokens_of(&r, "\"totalTokens\":");
    assert_true(prompt > 10 && all > prompt + 2);
    e2e_result_free(&r);
    within(&t, 10, bodies[0], 7, &r);
    e2e_expect(&r, 7, "\"type\":\"bridle.provider.refused\"");
    assert_null(strstr((const char *)r.out.data, "\"type\":\"model.request\""));
    e2e_result_free(&r);
    for (size_t i = 0; i < BR_ARRAY_LEN(bodies); i++) {
        within(&t, all - 1, bodies[i], 7, &r);
        assert_int_equal(tokens_of(&r, "\"totalTokens\":"), all);
        e2e_result_free(&r);
    }
    within(&t, all, bodies[0], 0, &r);
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* As an ordinary user: the same, with the operator's own uid in every place. */
static void test_ordinary_user(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    char bin[128], real[BR_PATH_MAX], name[32];
    const unsigned uid = 61877;
    if (geteuid() != 0) {
        print_message(
            "starts as root; what an ordinary user's run does is the rest of this file\n");
        skip();
    }
    harness_open_as(&t, uid, NULL);
    snprintf(real, sizeof(real), "%s", e2e_bin());
    e2e_copy_bin(&t, NULL, NULL, bin); /* the build may lie where only root gets to */
    assert_int_equal(setenv("BRIDLE_BIN", bin, 1), 0);
    e2e_write(&t, "scenario.json", scenario);
    t.uid = 0;
    snprintf(name, sizeof(name), "%u", uid);
    e2e_run(&t, &r, "bridle", "doctor", "--delegate", name, NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    t.uid = uid;
    harness_activate(&t, "hosted.lua", NULL);
    run(&t, "say \"$(result \"told: $(post plain):$(seen canary-body)\")\"\n", 0, &r);
    e2e_expect(&r, 0, "told: 200:1");
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    /* empty directories: what the delegation made, and nothing else has this name */
    assert_int_equal(system("find /sys/fs/cgroup -ignore_readdir_race -depth -type d -name "
                            "'bridle-61877' -exec rmdir {} +"),
                     0); /* NOLINT(cert-env33-c) */
    assert_int_equal(setenv("BRIDLE_BIN", real, 1), 0);
    e2e_close(&t);
}

int main(void)
{
    e2e_isolate();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),         cmocka_unit_test(test_refused),
        cmocka_unit_test(test_early_leave),   cmocka_unit_test(test_budget),
        cmocka_unit_test(test_ordinary_user),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
