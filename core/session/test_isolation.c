/*
 * The comparison of the two measurements: equal is accepted; each member that differs, or is not
 * there, refuses. And the digest of a receipt.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "session/isolation.h"

static json_t *parse(const char *text)
{
    json_error_t e;
    json_t *j = json_loads(text, 0, &e);
    if (!j)
        fail_msg("%s", e.text);
    return j;
}

static json_t *good_receipt(void)
{
    return parse("{\"identity\":{\"kind\":\"dedicated\"},\"uidMap\":\"1000 60720 1\","
                 "\"gidMap\":\"1000 60720 1\",\"seccompFilters\":1,\"mounts\":20,\"namespaces\":"
                 "{\"user\":1,\"mnt\":2,\"pid\":3,\"net\":4,\"ipc\":5,\"uts\":6,\"cgroup\":7}}");
}

static json_t *good_init(const struct br_plan *p)
{
    json_t *j = parse(
        "{\"pid\":1,\"uids\":\"1000 1000 1000 1000\",\"gids\":\"1000 1000 1000 1000\","
        "\"groups\":\"\",\"uidMap\":\"1000 60720 1\",\"gidMap\":\"1000 60720 1\","
        "\"capInh\":\"0000000000000000\",\"capPrm\":\"0000000000000000\","
        "\"capEff\":\"0000000000000000\",\"capBnd\":\"0000000000000000\","
        "\"capAmb\":\"0000000000000000\",\"noNewPrivs\":1,\"seccomp\":2,\"seccompFilters\":1,"
        "\"filterRefuses\":true,\"landlockRefuses\":true,\"dumpable\":0,\"inheritedFds\":0,"
        "\"namespaces\":{\"user\":\"user:[1]\",\"mnt\":\"mnt:[2]\",\"pid\":\"pid:[3]\","
        "\"net\":\"net:[4]\",\"ipc\":\"ipc:[5]\",\"uts\":\"uts:[6]\",\"cgroup\":\"cgroup:[7]\"},"
        "\"cgroup\":\"11:memory:/ 0::/\",\"hostname\":\"bridle\",\"cwd\":\"/workspace\","
        "\"mounts\":20}");
    json_t *quota = json_pack("{s:I,s:I}", "bytes", (json_int_t)p->limits.tmp_bytes, "inodes",
                              (json_int_t)p->limits.tmp_inodes);
    json_object_set_new(j, "rlimits",
                        json_pack("{s:i,s:I,s:i}", "nofile", (int)p->limits.nofile, "fsize",
                                  (json_int_t)p->limits.fsize_bytes, "core", 0));
    json_object_set_new(j, "quotas", json_pack("{s:O,s:o}", "/tmp", quota, "/home/agent", quota));
    return j;
}

static void test_equal(void **state)
{
    struct br_plan p;
    struct br_err err = {.code = BR_OK};
    (void)state;
    br_plan_default(&p);
    json_t *r = good_receipt(), *i = good_init(&p);
    if (br_isolation_check(r, i, &p, &err) < 0)
        fail_msg("%s", err.text);
    json_decref(r);
    json_decref(i);
    br_plan_free(&p);
}

static void refused(const json_t *r, const json_t *i, const struct br_plan *p, const char *member)
{
    struct br_err err = {.code = BR_OK};
    if (br_isolation_check(r, i, p, &err) != -BR_E_REQUIREMENT_MISSING)
        fail_msg("'%s' differs, and was accepted", member);
    assert_non_null(strstr(err.text, "before anything ran in it"));
}

/* Every member of what pid 1 says, changed and left out. */
static void test_each_member(void **state)
{
    struct br_plan p;
    const char *member;
    json_t *v, *r = good_receipt();
    (void)state;
    br_plan_default(&p);
    json_t *names = good_init(&p);
    json_object_foreach(names, member, v)
    {
        json_t *i = good_init(&p);
        json_object_del(i, member);
        refused(r, i, &p, member);
        json_object_set_new(i, member, json_string("other"));
        refused(r, i, &p, member);
        json_object_set_new(i, member, json_integer(7777));
        refused(r, i, &p, member);
        json_object_set_new(i, member, json_null());
        refused(r, i, &p, member);
        json_decref(i);
    }
    json_decref(names);
    json_decref(r);
    br_plan_free(&p);
}

static void test_weaker_values(void **state)
{
    static const struct {
        const char *path, *member, *value;
    } changes[] = {
        {NULL, "uids", "\"0 1000 1000 1000\""},
        {NULL, "groups", "\"27\""},
        {NULL, "capBnd", "\"000001ffffffffff\""},
        {NULL, "seccompFilters", "2"},
        {NULL, "filterRefuses", "false"},
        {NULL, "landlockRefuses", "null"},
        {NULL, "dumpable", "1"},
        {NULL, "inheritedFds", "1"},
        {NULL, "cgroup", "\"11:memory:/ 4:pids:/user.slice 0::/\""},
        {NULL, "cgroup", "\"\""},
        {NULL, "mounts", "21"},
        {"namespaces", "net", "\"net:[5]\""},
        {"rlimits", "nofile", "1048576"},
        {"rlimits", "core", "null"},
        {"rlimits", "fsize", "null"},
    };
    struct br_plan p;
    json_t *r = good_receipt();
    (void)state;
    br_plan_default(&p);
    for (size_t k = 0; k < BR_ARRAY_LEN(changes); k++) {
        json_t *i = good_init(&p);
        json_t *at = changes[k].path ? json_object_get(i, changes[k].path) : i;
        json_object_set_new(at, changes[k].member,
                            json_loads(changes[k].value, JSON_DECODE_ANY, NULL));
        refused(r, i, &p, changes[k].member);
        json_decref(i);
    }
    /* quotas, one byte and one inode more */
    for (int k = 0; k < 2; k++) {
        json_t *i = good_init(&p);
        json_t *q = json_object_get(json_object_get(i, "quotas"), "/tmp");
        const char *m = k ? "inodes" : "bytes";
        json_object_set_new(q, m, json_integer(json_integer_value(json_object_get(q, m)) + 1));
        refused(r, i, &p, m);
        json_decref(i);
    }
    json_decref(r);
    br_plan_free(&p);
}

static void test_exceptions(void **state)
{
    struct br_plan p;
    struct br_err err = {.code = BR_OK};
    json_t *r = good_receipt();
    (void)state;
    br_plan_default(&p);
    json_t *i = good_init(&p);
    /* a plan without Landlock must not have it either: it would not be the one that was planned */
    p.flags |= BR_PLAN_NO_LANDLOCK;
    refused(r, i, &p, "landlockRefuses");
    json_object_set_new(i, "landlockRefuses", json_false());
    assert_int_equal(br_isolation_check(r, i, &p, &err), 0);
    /* an ordinary user keeps that user's groups, and nobody else does */
    json_object_set_new(i, "groups", json_string("65534"));
    refused(r, i, &p, "groups");
    json_object_set_new(json_object_get(r, "identity"), "kind", json_string("operator"));
    assert_int_equal(br_isolation_check(r, i, &p, &err), 0);
    /* six namespaces are not seven */
    json_object_del(json_object_get(r, "namespaces"), "ipc");
    refused(r, i, &p, "namespaces");
    assert_int_equal(br_isolation_check(NULL, i, &p, &err), -BR_E_INTERNAL);
    assert_int_equal(br_isolation_check(r, NULL, &p, &err), -BR_E_INTERNAL);
    json_decref(i);
    json_decref(r);
    br_plan_free(&p);
}

static void test_digest(void **state)
{
    struct br_plan p;
    (void)state;
    br_plan_default(&p);
    json_t *i = good_init(&p), *r = br_isolation_receipt(good_receipt(), i);
    assert_non_null(r);
    assert_int_equal(strlen(json_string_value(json_object_get(r, "sha256"))), 64);
    assert_true(br_isolation_verify(r));
    json_object_set_new(r, "mounts", json_integer(19));
    assert_false(br_isolation_verify(r));
    json_object_set_new(r, "mounts", json_integer(20));
    assert_true(br_isolation_verify(r));
    json_object_del(r, "sha256");
    assert_false(br_isolation_verify(r));
    json_decref(r);
    json_decref(i);
    br_plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal),         cmocka_unit_test(test_each_member),
        cmocka_unit_test(test_weaker_values), cmocka_unit_test(test_exceptions),
        cmocka_unit_test(test_digest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
