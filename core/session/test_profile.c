/*
 * Profiles in the session: the choice of one, and the launch object that a script made of it, which
 * is not believed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "session/profile.h"

#define LIMITS                                                                                     \
    "\"limits\":{\"memory_bytes\":1048576,\"pids\":10,\"cpu_percent\":100,\"nofile\":64,"          \
    "\"fsize_bytes\":4096,\"tmp_bytes\":4096,\"tmp_inodes\":10,\"output_bytes\":4096,"             \
    "\"exec_seconds\":10,\"wall_seconds\":60}"
#define HEAD "\"name\":\"test-v1\",\"version\":3,\"backend\":\"native\""
#define REST                                                                                       \
    "\"identity\":\"owner\",\"landlock\":\"none\",\"workspace\":\"bind\",\"noexec\":[\"tmp\","     \
    "\"state\"],\"sockets\":[],\"alone\":false," LIMITS                                            \
    ",\"disks\":{\"scratch\":{\"kind\":\"tmpfs\",\"bytes\":1048576,"                               \
    "\"inodes\":16}}"
static const char good[] = "{" HEAD ",\"image\":\"host\"," REST ",\"offers\":[]}";

static void test_good(void **state)
{
    (void)state;
    struct profile p;
    struct br_err err = {.code = BR_OK};
    if (profile_read(good, strlen(good), &p, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(p.plan.profile, "test-v1");
    assert_int_equal(p.plan.profile_version, 3);
    assert_int_equal(p.plan.backend, BR_BACKEND_NATIVE);
    assert_int_equal(p.plan.identity, BR_IDENTITY_OWNER);
    assert_int_equal(p.plan.workspace, BR_WORKSPACE_BIND);
    assert_int_equal(p.plan.flags, BR_PLAN_TMP_NOEXEC | BR_PLAN_STATE_NOEXEC | BR_PLAN_NO_LANDLOCK);
    assert_string_equal(p.plan.image, "host");
    assert_int_equal(p.plan.limits.pids, 10);
    assert_int_equal(p.plan.limits.wall_seconds, 60);
    assert_int_equal(p.plan.disks[BR_DISK_SCRATCH].kind, BR_QUOTA_TMPFS);
    assert_int_equal(p.plan.disks[BR_DISK_SCRATCH].inodes, 16);
    assert_int_equal(p.plan.disks[BR_DISK_STATE].kind, BR_QUOTA_NONE);
    assert_int_equal(p.plan.nallowed, 0);
    assert_false(p.image_required);
    assert_int_equal(p.noffers, 0);
}

/* The good one with one text in place of another; freed by the caller. */
static char *changed(const char *from, const char *to)
{
    char *text = calloc(1, sizeof(good) + strlen(to) + 1);
    const char *at = strstr(good, from);
    assert_non_null(text);
    assert_non_null(at);
    snprintf(text, sizeof(good) + strlen(to) + 1, "%.*s%s%s", (int)(at - good), good, to,
             at + strlen(from));
    return text;
}

#define STATE(name) "\"state\":{\"name\":\"" name "\",\"kind\":\"ext4\""
#define NAME_63 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa3"

static void test_state_name(void **state)
{
    (void)state;
    struct profile p;
    struct br_err err = {.code = BR_OK};
    BR_CLEANUP_FREE char *text = changed("\"scratch\":{\"kind\":\"tmpfs\"", STATE(NAME_63));
    if (profile_read(text, strlen(text), &p, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(p.plan.state, NAME_63);
    assert_int_equal(p.plan.disks[BR_DISK_STATE].kind, BR_QUOTA_EXT4);
}

static void test_bad(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        int code;
    } list[] = {
        {"\"offers\":[]", "\"offers\":[],\"mounts\":[]", BR_E_INVALID_PROFILE},
        {"\"offers\":[]", "\"offers\":[],\"environment\":{}", BR_E_INVALID_PROFILE},
        {"\"offers\":[]", "\"offers\":{}", BR_E_INVALID_PROFILE},
        {"\"offers\":[]", "\"offers\":[{}]", BR_E_INVALID_PROFILE},
        {"test-v1", "Test V1", BR_E_INVALID_PROFILE},
        {"test-v1", "", BR_E_INVALID_PROFILE},
        {"\"version\":3", "\"version\":0", BR_E_INVALID_PROFILE},
        {"\"version\":3", "\"version\":\"3\"", BR_E_INVALID_PROFILE},
        {"\"native\"", "\"chroot\"", BR_E_INVALID_PROFILE},
        {"\"native\"", "\"\"", BR_E_INVALID_PROFILE},
        {"\"host\"", "\"debian\"", BR_E_INVALID_PROFILE},
        {"\"host\"", "7", BR_E_INVALID_PROFILE},
        {"\"owner\"", "\"root\"", BR_E_INVALID_PROFILE},
        {"\"landlock\":\"none\"", "\"landlock\":false", BR_E_INVALID_PROFILE},
        {"\"workspace\":\"bind\"", "\"workspace\":\"lease\"", BR_E_INVALID_PROFILE},
        {"\"state\"]", "\"/usr\"]", BR_E_INVALID_PROFILE},
        {"\"sockets\":[]", "\"sockets\":[\"docker\"]", BR_E_INVALID_PROFILE},
        {"\"sockets\":[]", "\"sockets\":{}", BR_E_INVALID_PROFILE},
        {"\"alone\":false", "\"alone\":0", BR_E_INVALID_PROFILE},
        {"\"pids\":10", "\"pids\":0", BR_E_INVALID_PROFILE},
        {"\"pids\":10", "\"pids\":-1", BR_E_INVALID_PROFILE},
        {"\"pids\":10", "\"pids\":1.5", BR_E_INVALID_PROFILE},
        {"\"pids\":10", "\"pids\":4097", BR_E_LIMIT_EXCEEDED},
        {"\"pids\":10", "\"pids\":4294967306", BR_E_LIMIT_EXCEEDED},
        {"\"pids\":10,", "", BR_E_INVALID_PROFILE},
        {"\"pids\":10", "\"pids\":10,\"more\":1", BR_E_INVALID_PROFILE},
        {"\"wall_seconds\":60", "\"wall_seconds\":86401", BR_E_LIMIT_EXCEEDED},
        {"\"kind\":\"tmpfs\"", "\"kind\":\"none\"", BR_E_INVALID_PROFILE},
        {"\"kind\":\"tmpfs\"", "\"kind\":\"tmpfs\",\"path\":\"/\"", BR_E_INVALID_PROFILE},
        {"\"scratch\"", "\"root\"", BR_E_INVALID_PROFILE},
        {"\"kind\":\"tmpfs\"", "\"name\":\"notes\",\"kind\":\"ext4\"", BR_E_INVALID_PROFILE},
        {"\"scratch\":{", "\"state\":{\"name\":\"notes\",", BR_E_INVALID_PROFILE},
        {"\"scratch\":{\"kind\":\"tmpfs\"", STATE("../x"), BR_E_INVALID_PROFILE},
        {"\"scratch\":{\"kind\":\"tmpfs\"", STATE(""), BR_E_INVALID_PROFILE},
        {"\"scratch\":{\"kind\":\"tmpfs\"", STATE(NAME_63 "4"), BR_E_INVALID_PROFILE},
        {"\"inodes\":16", "\"inodes\":15", BR_E_LIMIT_EXCEEDED},
        {"{\"name\"", "[\"name\"", BR_E_INVALID_PROFILE},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(list); i++) {
        struct profile p;
        struct br_err err = {.code = BR_OK};
        BR_CLEANUP_FREE char *text = changed(list[i].from, list[i].to);
        int r = profile_read(text, strlen(text), &p, &err);
        if (r != -list[i].code)
            fail_msg("%s: %d '%s'", list[i].to, r, err.text);
    }
}

static void test_ceiling_is_inclusive(void **state)
{
    (void)state;
    struct profile p;
    BR_CLEANUP_FREE char *text = changed("\"pids\":10", "\"pids\":4096");
    assert_int_equal(profile_read(text, strlen(text), &p, NULL), 0);
    assert_int_equal(p.plan.limits.pids, 4096);
}

static void test_offers(void **state)
{
    (void)state;
    static const char one[] = "{" HEAD ",\"image\":\"required\"," REST "}";
    struct profile p;
    struct br_err err = {.code = BR_OK};
    for (unsigned n = 8; n <= 9; n++) {
        BR_CLEANUP_BUF struct br_buf list = BR_BUF_INIT(65536);
        br_buf_printf(&list, "\"offers\":[");
        for (unsigned i = 0; i < n; i++)
            br_buf_printf(&list, "%s%s", i ? "," : "", one);
        br_buf_printf(&list, "]");
        BR_CLEANUP_FREE char *text = changed("\"offers\":[]", br_buf_cstr(&list));
        int r = profile_read(text, strlen(text), &p, &err);
        assert_int_equal(r, n == 8 ? 0 : -BR_E_INVALID_PROFILE);
    }
}

static void test_image(void **state)
{
    (void)state;
    struct profile p;
    struct br_err err = {.code = BR_OK};
    static const char id[] =
        "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    BR_CLEANUP_FREE char *text = changed("\"host\"", "\"required\"");
    assert_int_equal(profile_read(text, strlen(text), &p, NULL), 0);
    assert_true(p.image_required);
    assert_int_equal(profile_image(&p, "", &err), -BR_E_REQUIREMENT_MISSING);
    assert_int_equal(profile_image(&p, "debian", &err), -BR_E_INVALID_IMAGE);
    assert_int_equal(profile_image(&p, "sha256:0123", &err), -BR_E_INVALID_IMAGE);
    assert_int_equal(profile_image(&p, id, &err), 0);
    assert_string_equal(p.plan.image, id);
    /* one that names its image takes no other */
    assert_int_equal(profile_read(good, strlen(good), &p, NULL), 0);
    assert_int_equal(profile_image(&p, id, &err), -BR_E_USAGE);
    assert_string_equal(p.plan.image, "host");
    assert_int_equal(profile_image(&p, "host", &err), 0);
    assert_int_equal(profile_image(&p, "", &err), 0);
}

static void test_choice(void **state)
{
    (void)state;
    const char *label, *text;
    uint8_t first[32], second[32];
    struct br_err err = {.code = BR_OK};
    struct br_profile_choice c = {.name = ""};
    assert_int_equal(profile_choose(&c, &label, &text, first, &err), 0);
    assert_string_equal(label, "run-v1");
    assert_non_null(strstr(text, "name = \"run-v1\""));
    for (const struct br_profile_text *t = br_profile_texts; t->name; t++) {
        snprintf(c.name, sizeof(c.name), "%s", t->name);
        assert_int_equal(profile_choose(&c, &label, &text, second, &err), 0);
        assert_int_equal(memcmp(first, second, 32) == 0, strcmp(t->name, "run-v1") == 0);
    }
    snprintf(c.name, sizeof(c.name), "run-v2");
    assert_int_equal(profile_choose(&c, &label, &text, second, &err), -BR_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "run-owner-v1"));
    c.name[0] = 0;
    c.source = (char *)(uintptr_t) "return {}";
    snprintf(c.path, sizeof(c.path), "/home/op/mine.lua");
    assert_int_equal(profile_choose(&c, &label, &text, second, &err), 0);
    assert_string_equal(label, "/home/op/mine.lua");
    assert_string_equal(text, "return {}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),   cmocka_unit_test(test_state_name),
        cmocka_unit_test(test_bad),    cmocka_unit_test(test_ceiling_is_inclusive),
        cmocka_unit_test(test_offers), cmocka_unit_test(test_image),
        cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
