/*
 * What a sandbox looks like from inside, as root and as an ordinary user: identity, capabilities,
 * filter, network, files, processes, environment, descriptors. Every attack that must fail has a
 * control: the same attack against a sandbox without that lock succeeds.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "launch/test_rig.h"

static void check_identity(struct rig *r)
{
    const char *out;
    assert_int_equal(rig_sh(r, "id -u; id -g; id -un; hostname; pwd; echo $HOME", &out), 0);
    assert_string_equal(out, "1000\n1000\nagent\nbridle\n/workspace\n/home/agent\n");
    assert_int_equal(
        rig_sh(r, "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | tr -d '\\t\\n '", &out),
        0);
    assert_string_equal(out, "CapInh:0000000000000000CapPrm:0000000000000000CapEff:"
                             "0000000000000000CapBnd:0000000000000000CapAmb:0000000000000000"
                             "NoNewPrivs:1Seccomp:2");
    assert_int_equal(
        rig_sh(r, "grep -c . /proc/self/uid_map; cat /proc/1/status | grep ^NSpid", &out), 0);
    assert_string_equal(out, "1\nNSpid:\t1\n");
}

static void check_files(struct rig *r)
{
    const char *out;
    /* reads and writes as allowed */
    assert_int_equal(rig_sh(r,
                            "cat readme && echo more >> src/a && echo new > src/deep/b && "
                            "echo one > exact && cat exact",
                            &out),
                     0);
    assert_string_equal(out, "hello\none\n");
    /* and nothing else */
    static const char *const refused[] = {
        "echo x > readme",
        "echo x > new",
        "rm readme",
        "rm exact",
        "mv exact src/exact",
        "mkdir other",
        "rmdir src",
        "echo x > sub/file",
        "ln readme src/link",
        "chmod 777 .",
        "touch -d yesterday readme",
        "echo x > /usr/x",
        "echo x > /x",
        "echo x > /etc/passwd",
        "echo x > /proc/sys/kernel/hostname",
        "echo x > /proc/sysrq-trigger",
        "echo x > /dev/x",
        "mknod /tmp/disk b 8 0",
        "test -e /root",
        "test -e /var/log",
        "test -e /etc/shadow",
        "test -e /sys/kernel",
        "test -s /proc/kcore",
        "test -s /proc/keys",
        "head -c1 /dev/vda",
        "cp /bin/true /.bridle-init",
        "exec 5>/proc/1/exe",
        "exec 5>>/.bridle-init",
    };
    for (unsigned i = 0; i < BR_ARRAY_LEN(refused); i++)
        if (rig_sh(r, refused[i], &out) == 0)
            fail_msg("this succeeded inside: %s", refused[i]);
    /* nothing happened outside */
    struct stat st;
    char path[256];
    snprintf(path, sizeof(path), "%s/new", r->ws);
    assert_int_equal(stat(path, &st), -1);
    snprintf(path, sizeof(path), "%s/readme", r->ws);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 6);
    /* what was written belongs to the owner of the workspace */
    snprintf(path, sizeof(path), "%s/src/deep/b", r->ws);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_uid, r->uid ? r->uid : RIG_OWNER);
}

static void check_isolation(struct rig *r)
{
    const char *out;
    assert_int_equal(rig_sh(r, "ls -d /proc/[0-9]* | wc -l", &out), 0);
    assert_true(atoi(out) >= 1 && atoi(out) < 8);
    assert_int_equal(rig_sh(r, "tr '\\0' '\\n' < /proc/1/environ; env", &out), 0);
    assert_null(strstr(out, "marker-of-the-rig"));
    assert_null(strstr(out, "BRIDLE_TEST"));
    /* 0 to 2 are /dev/null, 3 the channel, 4 the pipe through which this output comes */
    assert_int_equal(
        rig_sh(r, "ls /proc/1/fd | tr '\\n' ' '; readlink /proc/1/fd/0 /proc/1/fd/2", &out), 0);
    assert_string_equal(out, "0 1 2 3 4 /dev/null\n/dev/null\n");
    assert_int_equal(
        rig_sh(r, "ls /sys/class/net 2>/dev/null; tail -n +3 /proc/net/dev | wc -l", &out), 0);
    assert_string_equal(out, "1\n"); /* loopback */
    assert_int_not_equal(rig_sh(r, "cat /proc/1/root/etc/shadow", &out), 0);
    /* its own session */
    assert_int_equal(
        rig_sh(r, "cut -d' ' -f6 /proc/1/stat; cat /proc/self/cgroup | grep -c bridle", &out), 1);
    assert_string_equal(out, "1\n0\n");
}

static void check_network(struct rig *r)
{
    const char *out;
    /* loopback works for the project's own tests */
    assert_int_equal(rig_sh(r,
                            "python3 -c 'import socket\ns=socket.socket()\ns.bind((\"127.0.0.1\","
                            "0))\ns.listen()\nc=socket.create_connection(s.getsockname())\n"
                            "print(\"ok\")'",
                            &out),
                     0);
    assert_string_equal(out, "ok\n");
    /* nothing beyond it: no route at all */
    assert_int_not_equal(
        rig_sh(r, "python3 -c 'import socket\nsocket.create_connection((\"192.0.2.1\",80),2)'",
               &out),
        0);
    assert_non_null(strstr(out, "Network is unreachable"));
}

static void view(uid_t uid)
{
    struct rig r;
    rig_need_root();
    rig_open(&r, uid);
    rig_put(&r, "readme", "hello\n");
    rig_put(&r, "exact", "zero\n");
    rig_put(&r, "src/", NULL);
    rig_put(&r, "src/a", "a\n");
    rig_put(&r, "src/deep/", NULL);
    rig_put(&r, "sub/", NULL);
    rig_allow(&r, "src/**");
    rig_allow(&r, "exact");
    assert_true(rig_launch(&r));
    check_identity(&r);
    check_files(&r);
    check_isolation(&r);
    check_network(&r);
    rig_exit(&r, 5);
    rig_close(&r);
}

static void test_view_as_root(void **state)
{
    (void)state;
    view(0);
}

static void test_view_as_user(void **state)
{
    (void)state;
    rig_need_root();
    view(RIG_USER);
}

/* The host's listening socket: reachable from here, not from inside. */
static void test_host_network_unreachable(void **state)
{
    struct rig r;
    struct sockaddr_in { /* as in <netinet/in.h> */
        unsigned short family, port;
        unsigned addr;
        char zero[8];
    } sa = {.family = AF_INET, .addr = __builtin_bswap32(0x7f000001)};
    socklen_t len = sizeof(sa);
    char script[256];
    const char *out;
    (void)state;
    rig_need_root();
    BR_CLEANUP_FD int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    BR_CLEANUP_FD int c = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(listen(s, 4), 0);
    assert_int_equal(getsockname(s, (struct sockaddr *)&sa, &len), 0);
    assert_int_equal(connect(c, (struct sockaddr *)&sa, sizeof(sa)), 0); /* control */
    rig_open(&r, 0);
    assert_true(rig_launch(&r));
    snprintf(script, sizeof(script),
             "python3 -c 'import socket\nsocket.create_connection((\"127.0.0.1\",%u),2)'",
             (unsigned)__builtin_bswap16(sa.port));
    assert_int_not_equal(rig_sh(&r, script, &out), 0);
    assert_non_null(strstr(out, "Connection refused"));
    rig_exit(&r, 0);
    rig_close(&r);
}

/* name, what the filter answers, what a sandbox without the filter answers (-1: not compared) */
static const struct {
    const char *call;
    int with, without;
} calls[] = {
    {"unshare-user", EPERM, 0},
    {"clone-user", EPERM, 0},
    {"clone3", ENOSYS, EINVAL},
    {"unshare-files", 0, 0},
    {"setns", EPERM, EINVAL},
    {"fsopen", EPERM, EPERM},
    {"open_tree", EPERM, 0},
    {"mount", EPERM, EPERM},
    {"ptrace", EPERM, 0},
    {"bpf", EPERM, -1},
    {"keyctl", EPERM, -1},
    {"userfaultfd", EPERM, 0},
    {"io_uring_setup", EPERM, -1},
    {"perf_event_open", EPERM, -1},
    {"init_module", EPERM, -1},
    {"kexec_load", EPERM, -1},
    {"swapon", EPERM, EPERM},
    {"reboot", EPERM, EPERM},
    {"personality-32", 0, 0},
    {"personality-odd", EPERM, 0},
    {"unknown", ENOSYS, ENOSYS},
    {"tiocsti", EPERM, ENOTTY},
    {"tiocsti-high", EPERM, ENOTTY},
    {"tioclinux", EPERM, ENOTTY},
    {"ioctl-other", ENOTTY, ENOTTY},
    {"socket 1", 0, 0},
    {"socket 2", 0, 0},
    {"socket 10", 0, 0},
    {"socket 16", EAFNOSUPPORT, -1},
    {"socket 17", EAFNOSUPPORT, EPERM},
    {"socket 40", EAFNOSUPPORT, -1},
    {"setuid", EINVAL, EINVAL},
    {"getpid", 0, 0},
};

static void test_filter_and_control(void **state)
{
    (void)state;
    rig_need_root();
    for (int weak = 0; weak < 2; weak++) {
        struct rig r;
        rig_make(&r, 0);
        r.weak = weak ? "filter" : NULL;
        rig_start(&r);
        assert_true(rig_launch(&r));
        for (unsigned i = 0; i < BR_ARRAY_LEN(calls); i++) {
            int want = weak ? calls[i].without : calls[i].with;
            int got = rig_call(&r, calls[i].call);
            if (want >= 0 && got != want)
                fail_msg("%s (%s the filter): errno %d, expected %d", calls[i].call,
                         weak ? "without" : "with", got, want);
            if (want < 0 && got == calls[i].with)
                fail_msg("%s: the control is refused like the attack: %d", calls[i].call, got);
        }
        rig_exit(&r, 0);
        rig_close(&r);
    }
}

/* mount, chroot and setuid games need capabilities: with them, and without the other locks, they
 * work; so it is the missing capabilities that stop them, and the filter on top. */
static void test_capabilities_control(void **state)
{
    struct rig r;
    const char *out;
    (void)state;
    rig_need_root();
    rig_make(&r, 0);
    r.weak = "caps";
    rig_start(&r);
    assert_true(rig_launch(&r));
    assert_int_equal(rig_sh(&r, "grep CapBnd /proc/self/status", &out), 0);
    assert_null(strstr(out, "0000000000000000"));
    assert_int_equal(rig_call(&r, "mount"), EPERM); /* by the filter alone */
    rig_exit(&r, 0);
    rig_close(&r);
}

/* The tools that agents use. */
static void test_tools_run(void **state)
{
    static const struct {
        const char *need, *script, *expect;
    } tools[] = {
        {"bash", "bash -c 'x=(1 2 3); echo ${#x[@]} <(true) | cut -c1-2; echo hi | cat'",
         "3 \nhi\n"},
        {"git",
         "cd /tmp && git init -q g && cd g && git -c user.name=a -c user.email=a@b commit "
         "-q --allow-empty -m x && git log --format=%s",
         "x\n"},
        {"gcc",
         "cd /tmp && printf '#include <stdio.h>\\nint main(void){puts(\"c\");}' > t.c && "
         "gcc t.c -o t && ./t",
         "c\n"},
        {"python3",
         "python3 -c 'import subprocess,threading,ssl\nt=threading.Thread(target=print,"
         "args=(\"py\",))\nt.start()\nt.join()'",
         "py\n"},
        {"node", "node -e 'setTimeout(()=>console.log(\"js\"),1)'", "js\n"},
        {"perl", "perl -e 'print qq(pl\\n)'", "pl\n"},
        {"make", "cd /tmp && printf 'all:\\n\\t@echo mk\\n' > Makefile && make -s -j2", "mk\n"},
        {"lua5.4", "lua5.4 -e 'print(\"lua\")'", "lua\n"},
    };
    struct rig r;
    const char *out;
    char need[64];
    (void)state;
    rig_need_root();
    rig_open(&r, 0);
    assert_true(rig_launch(&r));
    for (unsigned i = 0; i < BR_ARRAY_LEN(tools); i++) {
        snprintf(need, sizeof(need), "command -v %s", tools[i].need);
        if (rig_sh(&r, need, &out) != 0) {
            print_message("not on this host: %s\n", tools[i].need);
            continue;
        }
        int code = rig_sh(&r, tools[i].script, &out);
        if (code != 0 || strcmp(out, tools[i].expect) != 0)
            fail_msg("%s: exit %d: %s", tools[i].need, code, out);
    }
    rig_exit(&r, 0);
    rig_close(&r);
}

/* As many allowed paths as there may be, and then not one more. */
static void test_many_allowed_paths(void **state)
{
    struct rig r;
    const char *out;
    char name[32];
    (void)state;
    rig_need_root();
    rig_open(&r, 0);
    for (unsigned i = 0; i < BR_ALLOWED_PATHS_MAX; i++) {
        snprintf(name, sizeof(name), "d%u/", i);
        rig_put(&r, name, NULL);
        rig_allow(&r, name);
    }
    rig_put(&r, "one-more/", NULL);
    assert_true(rig_launch(&r));
    assert_int_equal(rig_sh(&r,
                            "for i in $(seq 0 63); do echo x > d$i/f || exit 9; done; "
                            "echo x > one-more/f",
                            &out),
                     2);
    assert_non_null(strstr(out, "Read-only file system"));
    assert_true(r.mounts > BR_ALLOWED_PATHS_MAX);
    rig_exit(&r, 0);
    rig_close(&r);
}

/* Inside of an allowed directory links are the sandbox's own business; they lead nowhere. */
static void test_links_lead_nowhere(void **state)
{
    struct rig r;
    const char *out;
    char path[256], secret[256];
    (void)state;
    rig_need_root();
    rig_open(&r, 0);
    rig_put(&r, "src/", NULL);
    snprintf(secret, sizeof(secret), "%s/secret", r.dir);
    BR_CLEANUP_FD int fd = open(secret, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_true(fd >= 0 && br_write_all(fd, "host", 4) == 0 && fchmod(fd, 0666) == 0);
    snprintf(path, sizeof(path), "%s/src/link", r.ws);
    assert_int_equal(symlink(secret, path), 0);
    rig_allow(&r, "src/**");
    assert_true(rig_launch(&r));
    assert_int_not_equal(rig_sh(&r, "cat src/link", &out), 0);
    assert_int_not_equal(rig_sh(&r, "echo x >> src/link", &out), 0);
    struct stat st;
    assert_int_equal(stat(secret, &st), 0);
    assert_int_equal(st.st_size, 4);
    rig_exit(&r, 0);
    rig_close(&r);
}

static void test_receipt(void **state)
{
    struct rig r;
    char want[64];
    (void)state;
    rig_need_root();
    rig_open(&r, 0);
    assert_true(rig_launch(&r));
    assert_int_equal(br_json_scan(r.receipt, strlen(r.receipt), 8, 2000, NULL), 0);
    snprintf(want, sizeof(want), "\"uidMap\":\"1000 %u 1\"", rig_box_uid(&r));
    assert_non_null(strstr(r.receipt, want));
    assert_non_null(strstr(r.receipt, "\"noNewPrivs\":true,\"seccomp\":2"));
    assert_non_null(strstr(r.receipt, "\"pids\":256"));
    assert_non_null(strstr(r.receipt, "\"sigpending\":"));
    assert_non_null(strstr(r.receipt, "\"msgqueue\":"));
    assert_true(r.mounts > 10);
    rig_exit(&r, 0);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_view_as_root),
        cmocka_unit_test(test_view_as_user),
        cmocka_unit_test(test_host_network_unreachable),
        cmocka_unit_test(test_filter_and_control),
        cmocka_unit_test(test_capabilities_control),
        cmocka_unit_test(test_tools_run),
        cmocka_unit_test(test_many_allowed_paths),
        cmocka_unit_test(test_links_lead_nowhere),
        cmocka_unit_test(test_receipt),
    };
    return cmocka_run_group_tests(tests, rig_delegate, rig_undelegate);
}
