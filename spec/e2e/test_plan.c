/*
 * Profiles end to end: what a plan shows, what starts nothing, what needs an activation, and that
 * nobody but the operator has a say in what a sandbox is made of.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/e2e.h"

static const char allow_all[] = "local policy = require 'bridle.policy'\n"
                                "return policy.bundle { api = 1, name = 'allow-all', rules = {\n"
                                "  policy.allow { id = 'all', action = '*' } } }\n";

#define MANIFEST_OF(paths_)                                                                        \
    "id: fix\ntitle: fix\ngoal: fix it\nacceptance: [done]\nallowed_paths: [" paths_ "]\n"         \
    "permissions: {process.exec: allow, fs.read: allow, fs.write: allow}\n"                        \
    "delivery: {type: none}\n"
#define MANIFEST(more_) MANIFEST_OF("src/**") more_

static void open_project(struct e2e *t)
{
    e2e_open(t, 0);
    e2e_write(t, "workspace/src/a.txt", "before\n");
    e2e_write(t, "policy.lua", allow_all);
    e2e_write(t, "task.yaml", MANIFEST(""));
}

static void close_project(struct e2e *t)
{
    e2e_expect_clean(t);
    e2e_close(t);
}

static void expect_absent(struct e2e *t, const char *path)
{
    char full[BR_PATH_MAX];
    struct stat st;
    snprintf(full, sizeof(full), "%s/%s", t->dir, path);
    if (lstat(full, &st) == 0)
        fail_msg("there is a '%s'", full);
}

/* Runs `bridle VERB -C workspace -p policy.lua OPTION... task.yaml -- touch src/x`. */
static void run_with(struct e2e *t, struct e2e_result *r, const char *verb, const char *a,
                     const char *b)
{
    char *argv[16] = {(char *)"bridle", (char *)(uintptr_t)verb, (char *)"-C", (char *)"workspace",
                      (char *)"-p",     (char *)"policy.lua"};
    int n = 6;
    if (a)
        argv[n++] = (char *)(uintptr_t)a;
    if (b)
        argv[n++] = (char *)(uintptr_t)b;
    argv[n++] = (char *)"task.yaml";
    argv[n++] = (char *)"--";
    argv[n++] = (char *)"touch";
    argv[n++] = (char *)"src/x";
    argv[n] = NULL;
    e2e_wait(t, e2e_spawn(t, argv, NULL), 60, r);
}

/* ---- plan ---- */

static void test_plan_starts_nothing(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    open_project(&t);
    run_with(&t, &r, "plan", "--json", NULL);
    e2e_expect(&r, 6, "is not activated on this host"); /* but everything else is said */
    e2e_expect(&r, 6, "\"backend\":\"native\"");
    e2e_expect(&r, 6, "\"network\":\"none\"");
    e2e_expect(&r, 6, "\"target\":\"/workspace/src\"");
    e2e_expect(&r, 6, "\"path\":\"src/**\"");
    e2e_expect(&r, 6, "\"ruleId\":\"operator:all\"");
    e2e_expect(&r, 6, "\"activated\":false");
    e2e_expect(&r, 6, "\"exitCode\":6");
    e2e_result_free(&r);
    expect_absent(&t, "workspace/src/x");
    expect_absent(&t, "state"); /* not even a place for a record */
    e2e_run(&t, &r, "bridle", "activate", "run-v1", NULL);
    e2e_expect(&r, 0, "is activated");
    e2e_result_free(&r);
    run_with(&t, &r, "plan", NULL, NULL);
    e2e_expect(&r, 0, "plan: possible");
    e2e_expect(&r, 0, "decision    allow  process.exec  touch src/x");
    e2e_result_free(&r);
    expect_absent(&t, "workspace/src/x");
    expect_absent(&t, "state/audit/bridle.db");
    run_with(&t, &r, "exec", NULL, NULL); /* the control */
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    BR_CLEANUP_FREE char *made = e2e_read(&t, "workspace/src/x");
    assert_non_null(made);
    close_project(&t);
}

/* The plan ends as exec would, before its command starts. */
/* What a rule takes from the allowed paths is said before a run as well. */
static void test_plan_warns(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    open_project(&t);
    e2e_write(&t, "task.yaml", MANIFEST_OF("src/**, .git/**"));
    e2e_run(&t, &r, "bridle", "activate", "run-v1", NULL);
    e2e_expect(&r, 0, "is activated");
    e2e_result_free(&r);
    run_with(&t, &r, "plan", NULL, NULL);
    e2e_expect(&r, 0, "'.git/**' stays read-only");
    e2e_result_free(&r);
    run_with(&t, &r, "plan", "--json", NULL);
    e2e_expect(&r, 0, "'.git/**' stays read-only: the rule");
    e2e_result_free(&r);
    close_project(&t);
}

static void test_plan_refuses_as_exec_does(void **state)
{
    (void)state;
    static const struct {
        const char *what, *option, *value, *manifest, *policy;
        int status;
        const char *says;
    } list[] = {
        {"a path", NULL, NULL,
         "id: fix\ntitle: fix\ngoal: g\nacceptance: [d]\nallowed_paths: [nowhere/**]\n"
         "permissions: {process.exec: allow}\ndelivery: {type: none}\n",
         NULL, 5, "nowhere"},
        {"a denial", NULL, NULL, NULL,
         "local policy = require 'bridle.policy'\nreturn policy.bundle { api = 1, name = 'no', "
         "rules = { policy.deny { id = 'no-touch', action = 'process.exec', command = 'touch *' } "
         "} }\n",
         4, "operator:no-touch"},
        {"a profile that is not there", "--profile", "run-v2", NULL, NULL, 3, "run-owner-v1"},
        {"an image where none is to be named", "--image",
         "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", NULL, NULL, 2,
         "names its image"},
        {"no image where one is required", "--profile", "workspace-v1", NULL, NULL, 6,
         "requires an image"},
        {"an image that is not there", "--image", "no-such-image", NULL, NULL, 3,
         "nothing was started"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(list); i++) {
        struct e2e t;
        struct e2e_result r;
        open_project(&t);
        if (list[i].manifest)
            e2e_write(&t, "task.yaml", list[i].manifest);
        if (list[i].policy)
            e2e_write(&t, "policy.lua", list[i].policy);
        e2e_run(&t, &r, "bridle", "activate", "run-v1", NULL);
        e2e_expect(&r, 0, NULL);
        e2e_result_free(&r);
        run_with(&t, &r, "plan", list[i].option, list[i].value);
        e2e_expect(&r, list[i].status, list[i].says);
        e2e_result_free(&r);
        run_with(&t, &r, "exec", list[i].option, list[i].value);
        e2e_expect(&r, list[i].status, list[i].says);
        e2e_result_free(&r);
        expect_absent(&t, "workspace/src/x");
        close_project(&t);
    }
}

/* The line of /proc/self/mountinfo whose mount point is `target`; its options, or NULL. */
static const char *find_mount(const char *mountinfo, const char *target, char options[256])
{
    char point[BR_PATH_MAX];
    for (const char *l = mountinfo; *l; l += strcspn(l, "\n") + (l[strcspn(l, "\n")] == '\n'))
        if (sscanf(l, "%*d %*d %*s %*s %4095s %255s", point, options) == 2 &&
            strcmp(point, target) == 0)
            return options;
    return NULL;
}

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *w = list; *w; w += strcspn(w, ",") + (w[strcspn(w, ",")] == ','))
        if (strncmp(w, word, n) == 0 && (w[n] == ',' || w[n] == 0))
            return true;
    return false;
}

/* Every mount that is planned is there in the sandbox, with the flags that the plan says. */
static void test_plan_is_what_is_made(void **state)
{
    (void)state;
    static const struct {
        const char *profile;
        size_t mounts;
    } list[] = {{"run-v1", 6}, {"workspace-tmpfs-v1", 7}};
    struct e2e t;
    open_project(&t);
    for (size_t k = 0; k < BR_ARRAY_LEN(list); k++) {
        struct e2e_result planned, made;
        bool lease = k == 1;
        e2e_run(&t, &made, "bridle", "activate", list[k].profile, lease ? "--image" : "--json",
                lease ? "host" : NULL, NULL);
        e2e_expect(&made, 0, NULL);
        e2e_result_free(&made);
        e2e_run(&t, &planned, "bridle", "plan", "--json", "-C", "workspace", "-p", "policy.lua",
                "--profile", list[k].profile, lease ? "--image=host" : "task.yaml",
                lease ? "task.yaml" : "--", lease ? "--" : "true", lease ? "true" : NULL, NULL);
        e2e_expect(&planned, 0, NULL);
        e2e_run(&t, &made, "bridle", "exec", "-C", "workspace", "-p", "policy.lua", "--profile",
                list[k].profile, lease ? "--image=host" : "task.yaml", lease ? "task.yaml" : "--",
                lease ? "--" : "cat", lease ? "cat" : "/proc/self/mountinfo",
                lease ? "/proc/self/mountinfo" : NULL, NULL);
        e2e_expect(&made, 0, NULL);
        json_t *report = json_loadb((char *)planned.out.data, planned.out.len, 0, NULL), *m, *f;
        json_t *mounts = json_object_get(json_object_get(report, "plan"), "mounts");
        assert_int_equal(json_array_size(mounts), list[k].mounts);
        size_t i, j;
        json_array_foreach(mounts, i, m)
        {
            char options[256];
            const char *target = json_string_value(json_object_get(m, "target"));
            if (!find_mount((char *)made.out.data, target, options))
                fail_msg("'%s' is not mounted in:\n%s", target, (char *)made.out.data);
            json_array_foreach(json_object_get(m, "flags"), j, f)
            {
                if (!has_word(options, json_string_value(f)))
                    fail_msg("'%s' has '%s', not '%s'", target, options, json_string_value(f));
            }
            BR_CLEANUP_FREE char *flags = json_dumps(json_object_get(m, "flags"), 0);
            if (has_word(options, "noexec") != (strstr(flags, "noexec") != NULL))
                fail_msg("'%s' has '%s', and the plan says '%s'", target, options, flags);
        }
        json_decref(report);
        e2e_result_free(&planned);
        e2e_result_free(&made);
    }
    close_project(&t);
}

static void test_other_backends(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    open_project(&t);
    run_with(&t, &r, "plan", "--backend=docker", NULL);
    e2e_expect(&r, 6, "Docker cannot express the image 'host'");
    e2e_result_free(&r);
    e2e_write(&t, "workspace/src/.git/config", ""); /* the mounts of ours keep it as it is */
    run_with(&t, &r, "plan", "--backend=docker", NULL);
    e2e_expect(&r, 6, "Docker cannot express that 'src/.git', below an allowed path");
    e2e_result_free(&r);
    run_with(&t, &r, "plan", "--backend=podman", NULL);
    e2e_expect(&r, 2, "native, bwrap and docker");
    e2e_result_free(&r);
    /* shown, and not called activated because another backend is */
    e2e_run(&t, &r, "bridle", "activate", "run-nolandlock-v1", NULL);
    e2e_expect(&r, 0, "is activated");
    e2e_result_free(&r);
    const char *const backends[] = {"--backend=native", "--backend=bwrap"};
    for (unsigned i = 0; i < 2; i++) {
        e2e_run(&t, &r, "bridle", "plan", "-C", "workspace", "-p", "policy.lua", "--profile",
                "run-nolandlock-v1", backends[i], "--json", "task.yaml", "--", "true", NULL);
        e2e_expect(&r, 0, i ? "\"activated\":false" : "\"activated\":true");
        e2e_expect(&r, 0, i ? "\"backend\":\"bwrap\"" : "\"backend\":\"native\"");
        e2e_result_free(&r);
    }
    close_project(&t);
}

/* ---- nobody but the operator ---- */

/* Each of these names something that a sandbox is made of; a manifest cannot. */
static void test_manifest_names_nothing(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "image: debian",
        "image: host",
        "profile: run-owner-v1",
        "mounts: [/etc]",
        "mount: /etc",
        "volumes: [/:/host]",
        "host_path: /etc",
        "route: default",
        "network: host",
        "network_mode: host",
        "runtime: runc",
        "runtime_flags: [--privileged]",
        "privileged: true",
        "env: {A: b}",
        "environment: {LD_PRELOAD: x}",
        "uid: 0",
        "user: root",
        "gid: 0",
        "capabilities: [ALL]",
        "cap_add: [SYS_ADMIN]",
        "devices: [/dev/kvm]",
        "device: /dev/kvm",
        "backend: docker",
        "sandbox: {identity: owner}",
        "limits: {pids: 4096}",
        "disks: {}",
        "landlock: none",
        "seccomp: unconfined",
    };
    struct e2e t;
    struct e2e_result r;
    char manifest[2048];
    open_project(&t);
    for (size_t i = 0; i < BR_ARRAY_LEN(keys); i++) {
        snprintf(manifest, sizeof(manifest), MANIFEST("%s\n"), keys[i]);
        e2e_write(&t, "task.yaml", manifest);
        run_with(&t, &r, "exec", NULL, NULL);
        e2e_expect(&r, 5, "is not a key here");
        e2e_expect(&r, 5, "INVALID_MANIFEST");
        e2e_result_free(&r);
        run_with(&t, &r, "plan", NULL, NULL);
        e2e_expect(&r, 5, "is not a key here");
        e2e_result_free(&r);
        expect_absent(&t, "workspace/src/x");
    }
    e2e_write(&t, "task.yaml", MANIFEST("")); /* the control */
    run_with(&t, &r, "exec", NULL, NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    close_project(&t);
}

static void write_profile(struct e2e *t, const char *path, const char *name, const char *pids)
{
    char text[4096];
    snprintf(text, sizeof(text),
             "return { name = '%s', version = 1, rules = { { id = 'no-network', effect = 'deny', "
             "actions = { 'network' }, match = 'any', patterns = {} } }, sandbox = { backend = "
             "'native', image = 'host', identity = 'dedicated', landlock = 'required', workspace = "
             "'bind', limits = { memory_bytes = 1 << 30, pids = %s, cpu_percent = 100, nofile = "
             "256, fsize_bytes = 1 << 20, tmp_bytes = 1 << 20, tmp_inodes = 100, output_bytes = "
             "4096, exec_seconds = 1, wall_seconds = 60 } } }\n",
             name, pids);
    e2e_write(t, path, text);
}

static void test_a_profile_of_ones_own(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    open_project(&t);
    write_profile(&t, "mine.lua", "mine", "32");
    t.activated = true;
    run_with(&t, &r, "exec", "--profile", "mine.lua");
    e2e_expect(&r, 6, "bridle activate mine.lua");
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "activate", "mine.lua", NULL);
    e2e_expect(&r, 0, "'mine' works");
    e2e_result_free(&r);
    run_with(&t, &r, "exec", "--profile", "mine.lua");
    e2e_expect(&r, 0, "profile mine");
    e2e_result_free(&r);
    /* its limit of one command holds, though exec itself would give it longer */
    e2e_run(&t, &r, "bridle", "exec", "-C", "workspace", "-p", "policy.lua", "--profile",
            "mine.lua", "task.yaml", "--", "sleep", "30", NULL);
    e2e_expect(&r, 7, "time limit");
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "exec", "-C", "workspace", "-p", "policy.lua", "--profile",
            "mine.lua", "task.yaml", "--", "seq", "1", "5000", NULL);
    e2e_expect(&r, 0, NULL); /* 23,893 bytes, of which it keeps 4096 */
    assert_in_range(r.out.len, 1000, 4096 + 256);
    e2e_result_free(&r);
    /* and so does that of the run */
    e2e_run(&t, &r, "bridle", "exec", "-C", "workspace", "-p", "policy.lua", "--profile",
            "mine.lua", "--timeout", "61", "task.yaml", "--", "true", NULL);
    e2e_expect(&r, 7, "allows 60");
    e2e_result_free(&r);
    /* another text under the same name is another profile */
    write_profile(&t, "mine.lua", "mine", "33");
    run_with(&t, &r, "exec", "--profile", "mine.lua");
    e2e_expect(&r, 6, "'profile-sha256' was");
    e2e_result_free(&r);
    close_project(&t);
}

static void test_profiles_that_are_refused(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    open_project(&t);
    write_profile(&t, "workspace/agent.lua", "agents", "32");
    write_profile(&t, "builtin.lua", "run-v1", "32");
    write_profile(&t, "large.lua", "large", "4097");
    write_profile(&t, "zero.lua", "zero", "0");
    e2e_write(&t, "text.lua", "return 'run-v1'\n");
    e2e_write(&t, "loop.lua", "while true do end\n");
    e2e_write(&t, "files.lua", "return io.open('/etc/passwd'):read('a')\n");
    static const struct {
        const char *file;
        int status;
        const char *says;
    } list[] = {
        {"workspace/agent.lua", 5, "lies inside of the workspace"},
        {"workspace/src/../agent.lua", 5, "lies inside of the workspace"},
        {"builtin.lua", 5, "is that of a profile that is built in"},
        {"large.lua", 7, "'pids' is 4097; it must be 1 to 4096"},
        {"zero.lua", 5, "sandbox.limits.pids"},
        {"text.lua", 5, "must end with 'return"},
        {"loop.lua", 5, "loop.lua"},
        {"files.lua", 5, "'io' is not there"},
        {"absent.lua", 3, "does not exist"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(list); i++) {
        run_with(&t, &r, "exec", "--profile", list[i].file);
        e2e_expect(&r, list[i].status, list[i].says);
        e2e_result_free(&r);
        expect_absent(&t, "workspace/src/x");
    }
    close_project(&t);
}

/* ---- activation ---- */

static void expect_evidence(struct e2e *t, bool there)
{
    BR_CLEANUP_FREE char *text = e2e_read(t, "state/activations/run-v1");
    assert_int_equal(text != NULL, there);
}

static void test_activation(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    struct stat st;
    char path[BR_PATH_MAX];
    open_project(&t);
    t.activated = true;
    run_with(&t, &r, "exec", NULL, NULL);
    e2e_expect(&r, 6, "is not activated on this host; nothing was started");
    e2e_result_free(&r);
    expect_absent(&t, "workspace/src/x");
    e2e_run(&t, &r, "bridle", "activate", "--list", NULL);
    e2e_expect(&r, 0, "No profile is activated");
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "activate", "run-v1", NULL);
    e2e_expect(&r, 0, "is activated");
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    snprintf(path, sizeof(path), "%s/activations/run-v1", t.state);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    expect_absent(&t, "state/activations/.workspace");
    expect_absent(&t, "state/activations/.run-v1.new");
    e2e_run(&t, &r, "bridle", "activate", "--list", "--json", NULL);
    e2e_expect(&r, 0, "\"profile\":\"run-v1\"");
    e2e_expect(&r, 0, "\"kernel\":");
    e2e_result_free(&r);
    run_with(&t, &r, "exec", NULL, NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    /* another profile is not activated by that */
    run_with(&t, &r, "exec", "--profile", "run-owner-v1");
    e2e_expect(&r, 6, "bridle activate run-owner-v1");
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "activate", "--remove", "run-v1", NULL);
    e2e_expect(&r, 0, "not activated any more");
    e2e_result_free(&r);
    run_with(&t, &r, "exec", NULL, NULL);
    e2e_expect(&r, 6, "is not activated");
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "activate", "--remove", "run-v1", NULL);
    e2e_expect(&r, 3, "is not activated; nothing was changed");
    e2e_result_free(&r);
    close_project(&t);
}

/* Put `to` in place of the value of a line of the evidence ("" for both: remove the line). */
static void change_evidence(struct e2e *t, const char *name, const char *to)
{
    BR_CLEANUP_FREE char *text = e2e_read(t, "state/activations/run-v1");
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(65536);
    char line[64], path[BR_PATH_MAX];
    assert_non_null(text);
    snprintf(line, sizeof(line), "\n%s ", name);
    char *at = strncmp(text, line + 1, strlen(line) - 1) == 0 ? text : strstr(text, line);
    assert_non_null(at);
    at += *at == '\n';
    br_buf_put(&b, text, (size_t)(at - text));
    if (to)
        br_buf_printf(&b, "%s %s\n", name, to);
    br_buf_printf(&b, "%s", at + strcspn(at, "\n") + 1);
    snprintf(path, sizeof(path), "%s/activations/run-v1", t->state);
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(br_write_all(fd, b.data, b.len), 0);
    close(fd);
}

static void test_what_has_changed(void **state)
{
    (void)state;
    static const char *const names[] = {
        "kernel",
        "kernel-version",
        "architecture",
        "cgroup",
        "lsm",
        "landlock-abi",
        "launcher",
        "init",
        "seccomp-filter",
        "profile-sha256",
        "image",
        "uid",
        "sysctl.user.max_user_namespaces",
        "backend",
        "identity",
        "workspace",
        "landlock",
        "flags",
        "limit.pids",
        "disk.scratch",
    };
    struct e2e t;
    struct e2e_result r;
    char says[128];
    open_project(&t);
    e2e_run(&t, &r, "bridle", "activate", "run-v1", NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    BR_CLEANUP_FREE char *good = e2e_read(&t, "state/activations/run-v1");
    assert_non_null(good);
    t.activated = true;
    for (size_t i = 0; i < BR_ARRAY_LEN(names); i++)
        for (int removed = 0; removed < 2; removed++) {
            change_evidence(&t, names[i], removed ? NULL : "something-else");
            run_with(&t, &r, "exec", NULL, NULL);
            snprintf(says, sizeof(says), "'%s' was '%s' and is '", names[i],
                     removed ? "" : "something-else");
            e2e_expect(&r, 6, "nothing was started");
            e2e_expect(&r, 6, "bridle activate run-v1");
            /* in the summary it is folded; stderr has it on one line */
            if (!strstr((char *)r.err.data, says))
                fail_msg("'%s' is not in: %s", says, (char *)r.err.data);
            e2e_result_free(&r);
            expect_absent(&t, "workspace/src/x");
            e2e_write(&t, "state/activations/run-v1", good);
        }
    run_with(&t, &r, "exec", NULL, NULL); /* the control */
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    close_project(&t);
}

/* Evidence that somebody else could have written is none. */
static void test_evidence_of_others(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    char path[BR_PATH_MAX], aside[BR_PATH_MAX];
    open_project(&t);
    e2e_run(&t, &r, "bridle", "activate", "run-v1", NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    t.activated = true;
    snprintf(path, sizeof(path), "%s/activations/run-v1", t.state);
    snprintf(aside, sizeof(aside), "%s/aside", t.dir);
    assert_int_equal(chmod(path, 0622), 0);
    run_with(&t, &r, "exec", NULL, NULL);
    e2e_expect(&r, 6, "its mode is 0622, so that others may write it; nothing was started");
    e2e_result_free(&r);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(rename(path, aside), 0);
    assert_int_equal(symlink(aside, path), 0);
    run_with(&t, &r, "exec", NULL, NULL);
    e2e_expect(&r, 6, "cannot be read");
    e2e_result_free(&r);
    expect_absent(&t, "workspace/src/x");
    close_project(&t);
}

/* Root as the owner or the group of a workspace is refused, and which of them it is is said. */
static void test_workspace_of_root(void **state)
{
    (void)state;
    static const struct {
        uid_t uid;
        gid_t gid;
        const char *says;
    } list[] = {{0, 1000, "its owner is root"},
                {1000, 0, "its group is root"},
                {0, 0, "its owner and its group are root"}};
    struct e2e t;
    struct e2e_result r;
    struct stat st;
    char path[BR_PATH_MAX];
    open_project(&t);
    snprintf(path, sizeof(path), "%s/workspace", t.dir);
    assert_int_equal(stat(path, &st), 0);
    for (unsigned i = 0; i < BR_ARRAY_LEN(list) && geteuid() == 0; i++) {
        assert_int_equal(chown(path, list[i].uid, list[i].gid), 0);
        run_with(&t, &r, "exec", NULL, NULL);
        e2e_expect(&r, 5, list[i].says);
        e2e_result_free(&r);
        expect_absent(&t, "workspace/src/x");
    }
    assert_int_equal(chown(path, st.st_uid, st.st_gid), 0);
    e2e_run(&t, &r, "bridle", "activate", "run-v1", NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    run_with(&t, &r, "exec", NULL, NULL); /* control */
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    close_project(&t);
}

/* The programs of others that make the sandbox are pinned by their content. */
static void test_helpers_are_pinned(void **state)
{
    (void)state;
    static const char line[] = "\nprogram.bwrap ";
    struct e2e t;
    struct e2e_result r;
    open_project(&t);
    t.activated = true;
    for (int changed = 0; changed < 2; changed++) {
        e2e_run(&t, &r, "bridle", "activate", "observer-v1", NULL);
        e2e_expect(&r, 0, "is activated");
        e2e_result_free(&r);
        BR_CLEANUP_FREE char *text = e2e_read(&t, "state/activations/observer-v1");
        char *at = text ? strstr(text, line) : NULL;
        assert_non_null(at);
        at += sizeof(line) - 1;
        assert_int_equal(strcspn(at, "\n"), 64);
        at[63] = changed ? (at[63] == '0' ? '1' : '0') : at[63];
        e2e_write(&t, "state/activations/observer-v1", text);
        run_with(&t, &r, "plan", "--profile", "observer-v1");
        /* no command at all is the control's own refusal: it comes after the activation's */
        if ((strstr((char *)r.err.data, "'program.bwrap' was '") != NULL) != (changed == 1))
            fail_msg("changed %d: %s", changed, (char *)r.err.data);
        e2e_result_free(&r);
    }
    close_project(&t);
}

static void test_not_activated_when_it_fails(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    open_project(&t);
    e2e_run(&t, &r, "bridle", "activate", "workspace-v1", NULL);
    e2e_expect(&r, 6, "requires an image");
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "activate", "run-v1", "--list", NULL);
    e2e_expect(&r, 2, "--list");
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "activate", NULL);
    e2e_expect(&r, 2, "bridle activate run-v1");
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "activate", "--remove", "../audit", NULL);
    e2e_expect(&r, 2, "not the name of a profile");
    e2e_result_free(&r);
    expect_evidence(&t, false);
    close_project(&t);
}

/* ---- offers ---- */

/* A file system without idmapped mounts: refused, and the one that would work is named. */
static void test_offer(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    if (geteuid() != 0) {
        print_message("only root can mount; an ordinary user needs no idmapped mounts\n");
        skip();
    }
    open_project(&t);
    assert_int_equal(mount("ramfs", t.workspace, "ramfs", MS_NOSUID | MS_NODEV, "mode=0755"), 0);
    assert_int_equal(chown(t.workspace, 1000, 1000), 0);
    e2e_write(&t, "workspace/src/a.txt", "before\n");
    run_with(&t, &r, "exec", NULL, NULL);
    e2e_expect(&r, 6, "'run-owner-v1' would work: bridle exec --profile run-owner-v1");
    if (strstr((char *)r.err.data, "'run-nolandlock-v1' would work"))
        fail_msg("it has the same need");
    e2e_result_free(&r);
    expect_absent(&t, "workspace/src/x");
    run_with(&t, &r, "plan", "--json", NULL);
    e2e_expect(&r, 6, "\"offers\":[\"run-owner-v1\"]");
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "activate", "run-owner-v1", NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    run_with(&t, &r, "exec", "--profile", "run-owner-v1"); /* it does */
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    assert_int_equal(umount2(t.workspace, MNT_DETACH), 0);
    close_project(&t);
}

/* The demo finds a profile that works, and says which and why. */
static void test_demo(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    open_project(&t);
    e2e_run(&t, &r, "bridle", "demo", NULL);
    e2e_expect(&r, 0, "The profile 'run-v1' was tried on this host and is activated");
    e2e_expect(&r, 0, "profile run-v1");
    e2e_result_free(&r);
    expect_evidence(&t, true);
    if (geteuid() == 0) { /* the trial's workspace lies in the state directory */
        assert_int_equal(mount("ramfs", t.state, "ramfs", MS_NOSUID | MS_NODEV, "mode=0700"), 0);
        e2e_run(&t, &r, "bridle", "demo", NULL);
        e2e_expect(&r, 0, "The profile 'run-v1' cannot be used on this host: ");
        e2e_expect(&r, 0, "The demo takes the profile 'run-owner-v1', which works.");
        e2e_expect(&r, 0, "profile run-owner-v1");
        e2e_result_free(&r);
        expect_absent(&t, "state/activations/run-v1");
        assert_int_equal(umount2(t.state, MNT_DETACH), 0);
    }
    close_project(&t);
}

/* A copy with a quota: what the command writes never reaches the workspace. */
static void test_leases(void **state)
{
    (void)state;
    static const char *const names[] = {"workspace-tmpfs-v1", "workspace-v1"};
    struct e2e t;
    struct e2e_result r;
    open_project(&t);
    for (size_t i = 0; i < (geteuid() == 0 ? 2 : 1); i++) {
        e2e_run(&t, &r, "bridle", "activate", "--image", "host", names[i], NULL);
        e2e_expect(&r, 0, "is activated");
        e2e_result_free(&r);
        e2e_run(&t, &r, "bridle", "exec", "-C", "workspace", "-p", "policy.lua", "--image", "host",
                "--profile", names[i], "task.yaml", "--", "cp", "src/a.txt", "src/x", NULL);
        e2e_expect(&r, 0, names[i]); /* there was an a.txt to copy */
        e2e_result_free(&r);
        expect_absent(&t, "workspace/src/x");
    }
    close_project(&t);
}

/* Where bridle.lua names the image of a profile, nobody has to. */
static void test_image_of_the_configuration(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    open_project(&t);
    e2e_write(&t, ".config/bridle/bridle.lua",
              "return { api = 1, profiles = { ['workspace-tmpfs-v1'] = { image = 'host' } } }\n");
    e2e_run(&t, &r, "bridle", "activate", "workspace-tmpfs-v1", NULL);
    e2e_expect(&r, 0, "is activated");
    e2e_result_free(&r);
    run_with(&t, &r, "plan", "--profile", "workspace-tmpfs-v1");
    e2e_expect(&r, 0, "image       host");
    e2e_result_free(&r);
    e2e_write(&t, ".config/bridle/bridle.lua",
              "return { api = 1, profiles = { ['workspace-tmpfs-v1'] = { image = 'gone' } } }\n");
    run_with(&t, &r, "plan", "--profile", "workspace-tmpfs-v1");
    e2e_expect(&r, 5, "'gone' is not the id of an image");
    e2e_result_free(&r);
    e2e_write(&t, ".config/bridle/bridle.lua",
              "return { api = 1, profiles = { ['workspace-v1'] = { mounts = {} } } }\n");
    run_with(&t, &r, "plan", "--profile", "workspace-tmpfs-v1");
    e2e_expect(&r, 5, "mounts");
    e2e_result_free(&r);
    close_project(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_starts_nothing),
        cmocka_unit_test(test_plan_warns),
        cmocka_unit_test(test_plan_refuses_as_exec_does),
        cmocka_unit_test(test_plan_is_what_is_made),
        cmocka_unit_test(test_other_backends),
        cmocka_unit_test(test_manifest_names_nothing),
        cmocka_unit_test(test_a_profile_of_ones_own),
        cmocka_unit_test(test_profiles_that_are_refused),
        cmocka_unit_test(test_activation),
        cmocka_unit_test(test_what_has_changed),
        cmocka_unit_test(test_evidence_of_others),
        cmocka_unit_test(test_workspace_of_root),
        cmocka_unit_test(test_helpers_are_pinned),
        cmocka_unit_test(test_not_activated_when_it_fails),
        cmocka_unit_test(test_offer),
        cmocka_unit_test(test_demo),
        cmocka_unit_test(test_leases),
        cmocka_unit_test(test_image_of_the_configuration),
    };
    e2e_isolate();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
