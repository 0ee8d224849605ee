/*
 * Runs of an adapter, from end to end: what its guest is told, what of its answer counts, and that
 * of everything that is refused nothing is taken.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "e2e/harness_rig.h"

/* The same under bubblewrap. */
static void use_bwrap(struct e2e *t)
{
    char text[2048];
    const char *native = strstr(harness_profile, "native"),
               *lock = strstr(harness_profile, "required");
    snprintf(text, sizeof(text), "%.*sbwrap%.*snone%s", (int)(native - harness_profile),
             harness_profile, (int)(lock - native - 6), native + 6, lock + 8);
    e2e_write(t, "hosted.lua", text);
}

static void check_completed(bool bwrap)
{
    struct e2e t;
    struct e2e_result r;
    harness_open(&t, NULL);
    if (bwrap)
        use_bwrap(&t);
    harness_activate(&t, "hosted.lua", NULL);
    harness_run_guest(&t, "say \"$(result \"it is done\")\"\n", &r);
    e2e_expect(&r, 0, "\"type\":\"bridle.harness.started\"");
    e2e_expect(&r, 0, "\"artifact\":{\"kind\":\"text\",\"text\":\"it is done\"}");
    e2e_expect(&r, 0, "\"tools\":[{\"name\":\"bash\",\"status\":\"ok\",\"count\":2}]");
    e2e_expect(&r, 0, "\"status\":\"completed\",\"steps\":0");
    e2e_result_free(&r);
    /* the sockets are there, and nothing else can be */
    harness_run_guest(&t,
                      "test -S /broker/provider.sock && test -S /broker/gate.sock\n"
                      "test $(ls -A /broker | wc -l) = 2\n"
                      "if touch /broker/more 2>/dev/null; then exit 9; fi\n"
                      "say \"$(result sockets)\"\n",
                      &r);
    e2e_expect(&r, 0, "\"text\":\"sockets\"");
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

static void test_completed(void **state)
{
    (void)state;
    check_completed(false);
}

static void test_completed_bwrap(void **state)
{
    (void)state;
    check_completed(true);
}

/* The example, in an image that has only busybox. */
static void test_example(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    char command[1024];
    const char *source = getenv("BRIDLE_SOURCE");
    assert_non_null(source);
    harness_open(&t, NULL);
    snprintf(
        command, sizeof(command),
        "set -e; cd %s; mkdir -p root/bin root/opt/shell-example; cp $(command -v busybox) "
        "root/bin/busybox; for n in true sh dd od head sed ls wc tr cat; do ln root/bin/busybox "
        "root/bin/$n; done; cp %s/adapters/shell-example/guest/guest.sh root/opt/shell-example",
        t.dir, source);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
    e2e_run(&t, &r, "bridle", "image", "import", "--name", "small", "root", NULL);
    e2e_expect(&r, 0, "sha256:");
    e2e_result_free(&r);
    harness_activate(&t, "workspace-tmpfs-v1", "small");
    e2e_run(&t, &r, "bridle", "run", "--json", "-C", "workspace", "-p", "workspace-tmpfs-v1", "-a",
            "shell-example@1", "--config", "bridle.lua", "-m", "scripted/default", "list", "them",
            NULL);
    e2e_expect(&r, 0, "there is no curl in this image, so the model was not asked; files: a.txt");
    e2e_expect(&r, 0, "\"image\":\"sha256:");
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* What workspace-v1 is: each line of the list, as a program inside finds it. */
static const char inside[] =
    "#!/bin/sh\n"
    "set -u\n"
    "c() { if eval \"$2\" >/dev/null 2>&1; then :; else bad=\"$bad $1\"; fi; }\n"
    "bad=\n"
    "c control false\n"
    "c workspace 'echo x > /workspace/new && test -f /workspace/a.txt'\n"
    "c state 'echo x > /state/new'\n"
    "c tmp 'echo x > /tmp/new && grep -q \" /tmp tmpfs\" /proc/mounts'\n"
    "c home 'echo x > /home/agent/new && grep -q \" /home/agent tmpfs\" /proc/mounts'\n"
    "for d in / /etc /bin /opt /broker /usr /dev /run; do c \"read-only$d\" \"! (echo x > "
    "$d/new)\"; done\n"
    "c writable 'test \"$(grep -c \"[ ,]rw[ ,]\" /proc/mounts)\" = 5'\n"
    "c environment 'test \"$(env | cut -d= -f1 | sort | tr \"\\n\" \" \")\" = \"HOME LANG PATH PWD "
    "SHLVL "
    "TERM TMPDIR USER \"'\n"
    "c interfaces 'test \"$(ls /sys/class/net 2>/dev/null; tail -n +3 /proc/net/dev | cut -d: -f1 "
    "| tr -d \" \")\" = "
    "lo'\n"
    "c sockets 'test \"$(ls /broker)\" = \"$(printf \"gate.sock\\nprovider.sock\")\"'\n"
    "c docker '! test -e /var/run/docker.sock'\n"
    "c devices 'test \"$(ls /dev | tr \"\\n\" \" \")\" = \"fd full null random shm stderr stdin "
    "stdout tty "
    "urandom zero \"'\n"
    "c uid 'test $(id -u) = 1000 && test $(id -g) = 1000'\n"
    "c capabilities 'test \"$(grep ^Cap /proc/self/status | cut -f2 | sort -u)\" = "
    "0000000000000000'\n"
    "c new-privileges 'grep -q \"^NoNewPrivs:.1\" /proc/self/status'\n"
    "c seccomp 'grep -q \"^Seccomp:.2\" /proc/self/status'\n"
    "c secrets '! ls /root /home/agent/.ssh /workspace/../root'\n"
    "c stdin 'test \"$(ls /proc/self/fd | tr \"\\n\" \" \")\" = \"0 1 2 3 \"'\n"
    "set -- $(dd bs=1 count=4 2>/dev/null | od -An -tu1)\n"
    "json=$(head -c $(((($1 * 256 + $2) * 256 + $3) * 256 + $4)))\n"
    "run=$(printf %s \"$json\" | sed -nE 's/.*\"runId\":\"([^\"]*)\".*/\\1/p')\n"
    "out='{\"runId\":\"'$run'\",\"status\":\"completed\",\"adapter\":{\"id\":\"inside\","
    "\"revision\":1},"
    "\"session\":{},\"artifact\":{\"kind\":\"text\",\"text\":\"missing:'$bad'\"},\"tools\":[]}'\n"
    "n=$(printf %s \"$out\" | wc -c)\n"
    "printf \"$(printf '\\%03o\\%03o\\%03o\\%03o' 0 0 $((n / 256)) $((n % 256)))\"; printf %s "
    "\"$out\"\n";

static void check_list(const char *name)
{
    struct e2e t;
    struct e2e_result r;
    char text[1024], command[1024];
    harness_open(&t, NULL);
    e2e_write(&t, "root/opt/inside.sh", inside);
    snprintf(command, sizeof(command),
             "set -e; cd %s; mkdir -p root/bin; cp $(command -v busybox) root/bin/busybox; for n "
             "in true "
             "sh dd od head sed ls wc tr cat grep env cut sort tail id; do ln root/bin/busybox "
             "root/bin/$n; done",
             t.dir);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
    snprintf(
        text, sizeof(text),
        "return { id = 'inside', revision = 1, entry = { '/bin/sh', '/opt/inside.sh' }, profiles "
        "= { ['%s'] = { tools = {} } }, routes = { 'chat' }, artifact = { kind = 'text', bytes = "
        "1000 }, ceilings = { outputBytes = 2000, traceBytes = 1000 } }\n",
        name);
    e2e_write(&t, "adapter.lua", text);
    snprintf(text, sizeof(text),
             "return { api = 1, adapters = { ['inside@1'] = { profiles = { '%s' }, file = "
             "'%s/adapter.lua', image = 'small' } } }\n",
             name, t.dir);
    e2e_write(&t, "bridle.lua", text);
    e2e_run(&t, &r, "bridle", "image", "import", "--name", "small", "root", NULL);
    e2e_expect(&r, 0, "sha256:");
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "run", "--json", "-C", "workspace", "-p", name, "-a", "inside@1",
            "--config", "bridle.lua", "-m", "scripted/default", "look", NULL);
    e2e_expect(&r, 6, "not activated"); /* fail closed */
    e2e_result_free(&r);
    harness_activate(&t, name, "small");
    e2e_run(&t, &r, "bridle", "run", "--json", "-C", "workspace", "-p", name, "-a", "inside@1",
            "--config", "bridle.lua", "-m", "scripted/default", "look", NULL);
    e2e_expect(&r, 0, "\"text\":\"missing: control\"");
    e2e_expect(&r, 0, "\"image\":\"sha256:");
    e2e_result_free(&r);
    e2e_expect_file(&t, "workspace/new", NULL); /* the lease is a copy */
    e2e_expect_clean(&t);
    e2e_close(&t);
}

static void test_workspace_list(void **state)
{
    (void)state;
    if (geteuid() == 0)
        check_list("workspace-v1");
}

static void test_workspace_tmpfs_list(void **state)
{
    (void)state;
    check_list("workspace-tmpfs-v1");
}

/* What no refused guest gets into a record; the prompt has none of it. */
#define SAID "said-by-the-guest"

static const struct refusal {
    const char *name, *body;
    int status;
    const char *said, *result;
} refusals[] = {
    {"a second frame", "say \"$(result " SAID ")\"; say \"$(result " SAID ")\"\n", 5,
     "a second one behind it", "refused"},
    {"bytes behind it", "say \"$(result " SAID ")\"; echo\n", 5, "1 bytes behind it", "refused"},
    {"oversized", "head4 2001; printf %s " SAID "\n", 5, "more than its ceiling of 2000",
     "refused"},
    {"endless", "head4 2000; yes " SAID "\n", 5, "behind it", "refused"},
    {"truncated", "head4 100; printf %s " SAID "\n", 5, "truncated: 17 of its 100 bytes",
     "refused"},
    {"none", "echo " SAID " >&2\n", 5, "there is none", "refused"},
    {"another run", "say \"$(result " SAID " run_0)\"\n", 5, "'runId' is that of another run",
     "refused"},
    {"another revision", "say \"$(result " SAID " $run completed 4)\"\n", 5,
     "'adapter' is another one than 'test-guest@3'", "refused"},
    {"another status", "say \"$(result " SAID " $run done)\"\n", 5, "neither completed nor failed",
     "refused"},
    {"no JSON", "say '{\"" SAID "\":'\n", 5, "the frame is refused", "refused"},
    {"an unknown key", "say '{\"" SAID "\":1}'\n", 5, "a key that it cannot have", "refused"},
    {"its artifact", "say \"$(result $(head -c 999 /dev/zero | tr '\\0' a)" SAID ")\"\n", 5,
     "more than its ceiling of 1000", "refused"},
    {"a bad end", "say \"$(result " SAID ")\"; exit 3\n", 1, "ended with status 3", "refused"},
    {"a signal", "say \"$(result " SAID ")\"; kill -9 $$\n", 1, "ended by signal 9", "refused"},
    {"not there", "exec /nowhere\n", 1, "ended with status 127", "refused"},
    {"it failed",
     "say "
     "'{\"runId\":\"'$run'\",\"status\":\"failed\",\"adapter\":{\"id\":\"test-guest\",\"revision\":"
     "3},"
     "\"session\":{},\"artifact\":null,\"tools\":[{\"name\":\"read\",\"status\":\"error\","
     "\"count\":9}]}'\n",
     1, "the guest says that it could not do it", "failed"},
};

static void test_refusals(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    harness_open(&t, NULL);
    harness_activate(&t, "hosted.lua", NULL);
    for (size_t i = 0; i < BR_ARRAY_LEN(refusals); i++) {
        const struct refusal *f = &refusals[i];
        char want[128];
        print_message("%s\n", f->name);
        harness_run_guest(&t, f->body, &r);
        e2e_expect(&r, f->status, f->said);
        snprintf(want, sizeof(want), "\"status\":\"%s\",\"adapter\":\"test-guest\"", f->result);
        e2e_expect(&r, f->status, want);
        e2e_expect(&r, f->status, "\"status\":\"failed\",\"steps\":0");
        assert_false(e2e_says(&r, SAID));
        assert_false(e2e_says(&r, "\"artifact\""));
        assert_true(e2e_says(&r, "\"count\":9") == (strcmp(f->result, "failed") == 0));
        e2e_result_free(&r);
    }
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* The deadline ends it, and with it what it started. */
static void test_deadline(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    harness_open(&t, NULL);
    harness_activate(&t, "hosted.lua", NULL);
    e2e_write(&t, "workspace/guest.sh", "setsid sleep 60 & sleep 60\n");
    e2e_run(&t, &r, "bridle", "run", "--json", "-C", "workspace", "--profile", "hosted.lua",
            "--config", "bridle.lua", "-a", "test-guest@3", "-m", "scripted/default", "--timeout",
            "1", "do it", NULL);
    e2e_expect(&r, 7, "TIMEOUT");
    assert_false(e2e_says(&r, "\"artifact\""));
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* A credential, what it printed and what went wrong stay in the sandbox; what it says is kept. */
static void test_nothing_else_is_kept(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    harness_open(&t, NULL);
    harness_activate(&t, "hosted.lua", NULL);
    harness_run_guest(
        &t,
        "token=$(printf %s \"$json\" | sed -nE 's/.*\"token\":\"([^\"]*)\".*/\\1/p')\n"
        "test ${#token} = 64\n"
        "CANARY_ENV=canary-environment sh -c 'echo canary-stderr-$CANARY_ENV >&2'\n"
        "sh -c 'canary-exception' 2>&1 | cat >&2 || true\n"
        "echo canary-file > /workspace/canary-name\n"
        "say \"$(result \"kept-artifact $token ${#token}\")\"\n",
        &r);
    e2e_expect(&r, 0, "kept-artifact [");
    e2e_expect(&r, 0, " 64\"}"); /* the guest had it */
    e2e_result_free(&r);
    assert_true(harness_stored(&t, "kept-artifact"));
    assert_true(harness_stored(
        &t, "canary-name")); /* the control: names of changed files are in the record */
    assert_false(harness_stored(&t, "canary-stderr"));
    assert_false(harness_stored(&t, "canary-environment"));
    assert_false(harness_stored(&t, "canary-exception"));
    assert_false(harness_stored(&t, "canary-file"));
    assert_false(harness_stored(&t, "kept-artifact [0-9a-f]\\{64\\}"));
    e2e_expect_clean(&t);
    e2e_close(&t);
}

static void refused(struct e2e *t, int status, const char *said, const char *adapter_ref,
                    const char *profile_name, const char *image)
{
    struct e2e_result r;
    e2e_run(t, &r, "bridle", "run", "--json", "-C", "workspace", "--profile", profile_name,
            "--config", "bridle.lua", "-a", adapter_ref, "-m", "scripted/default", "do it",
            image ? "--image" : NULL, image, NULL);
    e2e_expect(&r, status, said);
    assert_false(e2e_says(&r, "bridle.harness"));
    assert_false(e2e_says(&r, "sandbox.started"));
    e2e_result_free(&r);
}

/* Only pairs that the operator named, only files that are his. */
static void test_pairs(void **state)
{
    (void)state;
    struct e2e t;
    char path[128], config[512];
    harness_open(&t, NULL);
    harness_activate(&t, "hosted.lua", NULL);
    e2e_write(&t, "workspace/guest.sh", "exit 0\n");
    refused(&t, 4, "does not name it", "test-guest@4", "hosted.lua", NULL);
    refused(&t, 4, "does not name it", "other@1", "hosted.lua", NULL);
    refused(&t, 4, "does not name that pair", "test-guest@3", "run-v1", NULL);
    refused(&t, 4, "does not name that pair", "shell-example@1", "workspace-v1", NULL);
    refused(&t, 6, "the image 'small' of the adapter", "shell-example@1", "workspace-tmpfs-v1",
            NULL);
    refused(&t, 6, "an image with an immutable id", "shell-example@1", "workspace-tmpfs-v1",
            "host");
    /* an adapter.lua that others may write, that lies in the workspace, or is another one */
    snprintf(path, sizeof(path), "%s/adapter.lua", t.dir);
    assert_int_equal(chmod(path, 0666), 0);
    refused(&t, 5, "only its owner", "test-guest@3", "hosted.lua", NULL);
    assert_int_equal(chmod(path, 0644), 0);
    snprintf(config, sizeof(config),
             "return { api = 1, adapters = { ['test-guest@4'] = { profiles = { 'hosted' }, file = "
             "'%s/adapter.lua' }, ['test-guest@3'] = { profiles = { 'hosted' }, file = "
             "'%s/workspace/adapter.lua' } } }\n",
             t.dir, t.dir);
    e2e_write(&t, "bridle.lua", config);
    refused(&t, 5, "it is the adapter 'test-guest@3'", "test-guest@4", "hosted.lua", NULL);
    e2e_write(&t, "workspace/adapter.lua", harness_adapter);
    snprintf(path, sizeof(path), "%s/workspace/adapter.lua", t.dir);
    assert_int_equal(chown(path, 0, 0), 0);
    refused(&t, 5, "lies inside of the workspace", "test-guest@3", "hosted.lua", NULL);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* The profile with one text in place of another. */
static void change_profile(struct e2e *t, const char *from, const char *to)
{
    char text[2048];
    const char *at = strstr(harness_profile, from);
    assert_non_null(at);
    snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - harness_profile), harness_profile, to,
             at + strlen(from));
    e2e_write(t, "hosted.lua", text);
    harness_activate(t, "hosted.lua", NULL);
}

/* What an adapter needs and its profile has not: nothing is started, exit 6. */
static void test_requirements(void **state)
{
    (void)state;
    struct e2e t;
    char text[1024];
    const char *revision = strstr(harness_adapter, "revision = 3");
    harness_open(&t, "gate = 'ask'");
    harness_guest(&t, "say \"$(result x)\"\n");
    change_profile(&t, "sockets = { 'provider', 'gate' }", "sockets = { 'gate' }");
    refused(&t, 6, "has no socket of a provider", "test-guest@3", "hosted.lua", NULL);
    change_profile(&t, "sockets = { 'provider', 'gate' }", "sockets = { 'provider' }");
    refused(&t, 6, "has no gate", "test-guest@3", "hosted.lua", NULL);
    change_profile(&t, "sockets = { 'provider', 'gate' }", "sockets = { 'gate', 'provider' }");
    snprintf(text, sizeof(text), "%.*ssession = true, %s", (int)(revision - harness_adapter),
             harness_adapter, revision);
    e2e_write(&t, "adapter.lua", text);
    refused(&t, 6, "has no state disk", "test-guest@3", "hosted.lua", NULL);
    /* and an adapter that cannot ask is not run where it is to */
    snprintf(text, sizeof(text), "%.*sfalse }\n",
             (int)(strstr(harness_adapter, "gate = true") + 7 - harness_adapter), harness_adapter);
    e2e_write(&t, "adapter.lua", text);
    refused(&t, 5, "cannot ask before its calls", "test-guest@3", "hosted.lua", NULL);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

#define TASK                                                                                       \
    "id: t\ntitle: t\ngoal: the goal of the task\nacceptance: [done]\nallowed_paths: [src/**]\n"   \
    "permissions: {}\ndelivery: {type: none}\n"

static void run_task(struct e2e *t, const char *text, const char *where, int status,
                     const char *said, const char *a, const char *b)
{
    struct e2e_result r;
    e2e_write(t, where, text);
    e2e_run(t, &r, "bridle", "run", "--json", "-C", "workspace", "--config", "bridle.lua", "-m",
            "scripted/default", "-t", where, a, b, NULL);
    e2e_expect(&r, status, said);
    assert_true(e2e_says(&r, "bridle.harness.started") == (status == 0));
    e2e_result_free(&r);
}

/* A manifest names a pair and nothing else; one in the workspace can only agree. */
static void test_declared(void **state)
{
    (void)state;
    struct e2e t;
    BR_CLEANUP_BUF struct br_buf guest = BR_BUF_INIT(65536);
    harness_open(&t, NULL);
    harness_activate(&t, "hosted.lua", NULL);
    br_buf_printf(
        &guest,
        "%sprompt=$(printf %%s \"$json\" | sed -nE 's/.*\"prompt\":\"([^\"]*)\".*/\\1/p')\n"
        "say \"$(result \"prompt: $prompt\")\"\n",
        harness_prelude);
    e2e_write(&t, "workspace/guest.sh", br_buf_cstr(&guest));
    const char *pair = TASK "harness: {adapter: test-guest@3, profile: hosted}\n";
    /* the profile is the operator's file, so it is named; the adapter is not */
    run_task(&t, pair, "task.yaml", 0, "prompt: the goal of the task", "--profile", "hosted.lua");
    run_task(&t, pair, "task.yaml", 0, "\"adapter\":\"test-guest@3\"", "--profile=hosted.lua",
             "--adapter=test-guest@3");
    run_task(&t, pair, "task.yaml", 2, "another one was named", "--profile=hosted.lua",
             "--adapter=shell-example@1");
    run_task(&t, pair, "task.yaml", 2, "another one was named", "--profile", "run-v1");
    run_task(&t, TASK "harness: {adapter: test-guest@3, profile: workspace-v1}\n", "task.yaml", 4,
             "does not name that pair", NULL, NULL);
    run_task(&t, TASK "harness: {adapter: test-guest@9, profile: hosted}\n", "task.yaml", 4,
             "does not name it", NULL, NULL);
    run_task(&t, TASK "harness: {adapter: test-guest@3, profile: hosted, image: x}\n", "task.yaml",
             5, "'harness.image' is refused", "--profile", "hosted.lua");
    run_task(&t, pair, "workspace/task.yaml", 5, "cannot choose a harness", "--profile",
             "hosted.lua");
    run_task(&t, pair, "workspace/task.yaml", 0, "prompt: the goal", "--profile=hosted.lua",
             "--adapter=test-guest@3");
    e2e_expect_clean(&t);
    e2e_close(&t);
}

int main(void)
{
    e2e_isolate();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_completed),
        cmocka_unit_test(test_completed_bwrap),
        cmocka_unit_test(test_example),
        cmocka_unit_test(test_workspace_list),
        cmocka_unit_test(test_workspace_tmpfs_list),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_nothing_else_is_kept),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_requirements),
        cmocka_unit_test(test_declared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
