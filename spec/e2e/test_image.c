/*
 * Images from end to end, with the real programs: import a directory, activate a profile that
 * requires one, run a command in it, and what happens when the image is not what it was.
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

#include "support/e2e.h"

static const char policy[] = "local policy = require \"bridle.policy\"\n"
                             "return policy.bundle { api = 1, name = \"test\", rules = {\n"
                             "  policy.allow { id = \"exec\", action = \"process.exec\" },\n} }\n";
static const char manifest[] = "id: e2e\ntitle: t\ngoal: g\nacceptance: [a]\n"
                               "allowed_paths: [src/**]\npermissions: {}\n"
                               "delivery: {type: none}\n";

static void script(struct e2e *t, const char *fmt, ...) BR_PRINTF(2, 3);
static void script(struct e2e *t, const char *fmt, ...)
{
    char text[2048], full[2304];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    snprintf(full, sizeof(full), "set -e; cd %s; %s", t->dir, text);
    if (system(full) != 0) /* NOLINT(cert-env33-c) */
        fail_msg("failed: %s", full);
}

static void open_project(struct e2e *t)
{
    e2e_open(t, 0);
    t->activated = true; /* this test does it */
    e2e_write(t, "workspace/src/a.txt", "before\n");
    e2e_write(t, "policy.lua", policy);
    e2e_write(t, "task.yaml", manifest);
    e2e_write(t, "root/marker", "from the image\n");
    script(t, "mkdir root/bin; cp $(command -v busybox) root/bin/busybox; "
              "for n in true ls cat cp; do ln root/bin/busybox root/bin/$n; done; "
              /* for another machine: 183 is aarch64 */
              "cp root/bin/busybox root/bin/foreign; printf '\\267' | "
              "dd of=root/bin/foreign bs=1 seek=18 conv=notrunc status=none");
}

static void import(struct e2e *t)
{
    struct e2e_result r;
    e2e_run(t, &r, "bridle", "image", "import", "--name", "small", "root", NULL);
    e2e_expect(&r, 0, "sha256:");
    e2e_result_free(&r);
}

static void activate(struct e2e *t, const char *profile)
{
    struct e2e_result r;
    e2e_run(t, &r, "bridle", "activate", profile, "--image", "small", NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
}

static void runs(struct e2e *t, const char *profile, int status, const char *said, const char *a,
                 const char *b, const char *c)
{
    struct e2e_result r;
    e2e_run(t, &r, "bridle", "exec", "--json", "-C", "workspace", "-p", "policy.lua", "--profile",
            profile, "--image", "small", "task.yaml", "--", a, b, c, NULL);
    e2e_expect(&r, status, said);
    e2e_result_free(&r);
}

static void check_profile(const char *profile)
{
    struct e2e t;
    struct e2e_result r;
    open_project(&t);
    runs(&t, profile, 3, "'bridle image import'", "/bin/true", NULL, NULL);
    import(&t);
    runs(&t, profile, 6, "activate", "/bin/true", NULL, NULL);
    activate(&t, profile);
    runs(&t, profile, 0, "from the image", "/bin/cat", "/marker", NULL);
    runs(&t, profile, 0, "\"image\":\"sha256:", "/bin/cat", "src/a.txt", NULL);
    runs(&t, profile, 0, "\"verified\":\"unchanged\"", "/bin/cp", "src/a.txt", "src/b.txt");
    /* nothing of the host, and a command that is not there or not for this machine says so */
    runs(&t, profile, 127, "\"exitCode\":127", "/usr/bin/sha1sum", NULL, NULL);
    runs(&t, profile, 126, "\"exitCode\":126", "/bin/foreign", NULL, NULL);
    /* changed: a run names it and does not start */
    script(&t, "F=$(ls state/images/*.erofs); cp -p $F copy; printf X | dd of=$F bs=1 seek=5000 "
               "conv=notrunc status=none");
    runs(&t, profile, 5, "its bytes were changed", "/bin/true", NULL, NULL);
    e2e_run(&t, &r, "bridle", "image", "verify", "--json", NULL);
    e2e_expect(&r, 5, "INVALID_IMAGE");
    e2e_result_free(&r);
    /* put right by another import */
    import(&t);
    runs(&t, profile, 0, NULL, "/bin/true", NULL, NULL);
    /* the same name for other files: it has to be activated anew */
    e2e_write(&t, "root/marker", "another image\n");
    import(&t);
    runs(&t, profile, 6, "activate", "/bin/true", NULL, NULL);
    activate(&t, profile);
    runs(&t, profile, 0, "another image", "/bin/cat", "/marker", NULL);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

static void test_tmpfs(void **state)
{
    (void)state;
    check_profile("workspace-tmpfs-v1");
}

static void test_ext4(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("needs root: loop devices\n");
        skip();
    }
    check_profile("workspace-v1");
}

int main(void)
{
    e2e_isolate();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tmpfs), cmocka_unit_test(test_ext4)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
