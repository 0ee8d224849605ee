/*
 * A plan as docker would be told it: every word, and every refusal. How the native one is rendered
 * is tested end to end, beside a sandbox.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "sandbox/facts.h"

#define ID "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const struct br_docker_env env = {
    .workspace = "/home/op/project", .init = "/usr/lib/init", .seccomp = "/f", .uid = 7, .gid = 8};

static struct br_plan plan_of(void)
{
    struct br_plan p;
    br_plan_default(&p);
    snprintf(p.image, sizeof(p.image), ID);
    p.identity = BR_IDENTITY_OWNER;
    p.flags = BR_PLAN_NO_LANDLOCK | BR_PLAN_TMP_NOEXEC;
    p.disks[BR_DISK_SCRATCH] =
        (struct br_quota){.kind = BR_QUOTA_TMPFS, .bytes = 1 << 20, .inodes = 99};
    return p;
}

static void test_words(void **state)
{
    (void)state;
    struct br_plan p = plan_of();
    struct br_err err = {.code = BR_OK};
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(65536);
    p.allowed_paths[0] = (char *)(uintptr_t) "src/**";
    p.allowed_paths[1] = (char *)(uintptr_t) "-v a b";
    p.nallowed = 2;
    if (br_docker_argv(&out, &p, &env, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(
        br_buf_cstr(&out),
        "[\"docker\",\"run\",\"--rm\",\"--interactive\",\"--pull=never\",\"--network=none\","
        "\"--read-only\",\"--cap-drop=ALL\",\"--security-opt=no-new-privileges\","
        "\"--security-opt=seccomp=/f\",\"--ipc=none\",\"--cgroupns=private\","
        "\"--hostname=bridle\",\"--user=7:8\",\"--memory=2147483648\","
        "\"--memory-swap=2147483648\",\"--pids-limit=256\","
        "\"--cpu-period=100000\",\"--cpu-quota=200000\","
        "\"--ulimit=nofile=1024:1024\",\"--ulimit=fsize=1073741824:1073741824\","
        "\"--ulimit=core=0:0\",\"--log-driver=none\",\"--workdir=/workspace\","
        "\"--tmpfs=/tmp:rw,nosuid,nodev,noexec,size=268435456,nr_inodes=20000,mode=1777\","
        "\"--tmpfs=/home/agent:rw,nosuid,nodev,exec,size=268435456,nr_inodes=20000,"
        "mode=0700,uid=7,gid=8\","
        "\"--tmpfs=/scratch:rw,nosuid,nodev,exec,size=1048576,nr_inodes=99,mode=0700,uid=7,gid=8\","
        "\"--mount=type=bind,src=/usr/lib/init,dst=/bridle-init,readonly\","
        "\"--mount=type=bind,src=/home/op/project,dst=/workspace,readonly,bind-nonrecursive=true\","
        "\"--mount=type=bind,src=/home/op/project/src,dst=/workspace/src\","
        "\"--mount=type=bind,src=/home/op/project/-v a b,dst=/workspace/-v a b\","
        "\"--entrypoint=/bridle-init\",\"--\",\"" ID "\"]");
}

static void expect_refusal(const struct br_plan *p, const struct br_docker_env *e, const char *says)
{
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(65536);
    struct br_err err = {.code = BR_OK};
    assert_int_equal(br_docker_argv(&out, p, e, &err), -BR_E_REQUIREMENT_MISSING);
    if (!strstr(err.text, says))
        fail_msg("'%s' is not in: %s", says, err.text);
    assert_int_equal(out.len, 0); /* no part of a command line */
}

static void test_refusals(void **state)
{
    (void)state;
    struct br_plan p = plan_of();
    snprintf(p.image, sizeof(p.image), "host");
    expect_refusal(&p, &env, "the image 'host'");
    p = plan_of();
    p.flags &= ~(uint32_t)BR_PLAN_NO_LANDLOCK;
    expect_refusal(&p, &env, "Landlock");
    p = plan_of();
    p.identity = BR_IDENTITY_DEDICATED;
    expect_refusal(&p, &env, "idmapped mounts");
    p = plan_of();
    p.workspace = BR_WORKSPACE_LEASE;
    expect_refusal(&p, &env, "copy of the workspace");
    p = plan_of();
    p.disks[BR_DISK_STATE].kind = BR_QUOTA_EXT4;
    expect_refusal(&p, &env, "ext4");
    p = plan_of();
    snprintf(p.state, sizeof(p.state), "mine");
    expect_refusal(&p, &env, "outlives");
    p = plan_of();
    struct br_docker_env odd = env;
    odd.workspace = "/a,readonly=false";
    expect_refusal(&p, &odd, "path with ','");
}

static void test_no_workspace(void **state)
{
    (void)state;
    struct br_plan p = plan_of();
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(65536);
    p.identity = BR_IDENTITY_DEDICATED;
    p.workspace = BR_WORKSPACE_NONE;
    assert_int_equal(br_docker_argv(&out, &p, &env, NULL), 0);
    assert_null(strstr(br_buf_cstr(&out), "/home/op"));
}

static void test_facts_of_a_plan(void **state)
{
    (void)state;
    struct br_plan p = plan_of();
    BR_CLEANUP_BUF struct br_buf common = BR_BUF_INIT(100), out = BR_BUF_INIT(65536);
    br_buf_printf(&common, "kernel 6\n");
    br_facts_put(&out, &common, &p);
    assert_string_equal(
        br_buf_cstr(&out),
        "kernel 6\nprofile run-v1 1\nprofile-sha256 "
        "0000000000000000000000000000000000000000000000000000000000000000\n"
        "image " ID "\n"
        "backend native\nidentity owner\nworkspace bind\nlandlock none\n"
        "flags 0x21\nlimit.memory-bytes 2147483648\nlimit.pids 256\n"
        "limit.cpu-percent 200\nlimit.nofile 1024\n"
        "limit.fsize-bytes 1073741824\nlimit.tmp-bytes 268435456\n"
        "limit.tmp-inodes 20000\nlimit.output-bytes 65536\n"
        "limit.exec-seconds 120\n" BR_FACT_WALL " 1800\n"
        "disk.workspace none 0 0\ndisk.state none 0 0\ndisk.scratch tmpfs 1048576 99\n"
        "state -\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_workspace),
        cmocka_unit_test(test_facts_of_a_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
