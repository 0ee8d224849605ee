/*
 * What the kernel or the host lacks is refused by name, and nothing happens: `bridle exec` with the
 * real programs, with openat2, Landlock, mount_setattr, seccomp, idmapped mounts and cgroups made
 * unavailable one at a time. Where a profile with another name does without, that one runs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/e2e.h"

#define WITHOUT "../tests/without"

static const char allow_all[] = "local policy = require \"bridle.policy\"\n"
                                "return policy.bundle { api = 1, name = \"test\", rules = {\n"
                                "  policy.allow { id = \"exec\", action = \"process.exec\" },\n"
                                "  policy.allow { id = \"read\", action = \"fs.read\" },\n"
                                "  policy.allow { id = \"write\", action = \"fs.write\" },\n} }\n";

static const char manifest[] = "id: e2e\ntitle: t\ngoal: g\nacceptance: [a]\n"
                               "allowed_paths: [src/**]\npermissions: {}\n"
                               "delivery: {type: none}\n";

/* what is taken away; what the refusal says; the profile that does without, or NULL */
static const struct {
    const char *what, *said, *other;
} cases[] = {
    {"openat2", "openat2", NULL},
    {"landlock", "Landlock", "run-nolandlock-v1"},
    {"mount_setattr", "mount_setattr", NULL},
    {"seccomp", "filter", NULL},
    {"idmap", "run-owner-v1", "run-owner-v1"},
    {"cgroups", "'memory' cannot be enforced", NULL},
};

static void run(struct e2e *t, struct e2e_result *r, const char *what, const char *profile)
{
    if (what)
        e2e_run(t, r, WITHOUT, what, "bridle", "exec", "--profile", profile, "-C", "workspace",
                "-p", "policy.lua", "task.yaml", "--", "touch", "src/ran", NULL);
    else
        e2e_run(t, r, "bridle", "exec", "--profile", profile, "-C", "workspace", "-p", "policy.lua",
                "task.yaml", "--", "touch", "src/ran", NULL);
}

static void expect(struct e2e *t, const struct e2e_result *r, const char *what, int status,
                   const char *said)
{
    char *ran = e2e_read(t, "workspace/src/ran");
    if (r->status != status || (said && !e2e_says(r, said)) || (status && ran))
        fail_msg("without %s: status %d, %s; expected %d and '%s' in:\n%s%s", what, r->status,
                 ran ? "it ran" : "nothing ran", status, said ? said : "", (char *)r->out.data,
                 (char *)r->err.data);
    free(ran);
}

static void test_each(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("needs root: it takes away what only root can\n");
        skip();
    }
    for (size_t i = 0; i < BR_ARRAY_LEN(cases); i++) {
        struct e2e t;
        struct e2e_result r;
        e2e_open(&t, 0);
        e2e_write(&t, "workspace/src/a.txt", "before\n");
        e2e_write(&t, "policy.lua", allow_all);
        e2e_write(&t, "task.yaml", manifest);
        e2e_run(&t, &r, "bridle", "activate", "run-v1", NULL);
        expect(&t, &r, "nothing (activate)", 0, NULL);
        e2e_result_free(&r);
        run(&t, &r, cases[i].what, "run-v1");
        expect(&t, &r, cases[i].what, 6, cases[i].said);
        e2e_result_free(&r);
        e2e_expect_clean(&t);
        if (cases[i].other) {
            e2e_run(&t, &r, WITHOUT, cases[i].what, "bridle", "activate", cases[i].other, NULL);
            expect(&t, &r, "(activate)", 0, NULL);
            e2e_result_free(&r);
            run(&t, &r, cases[i].what, cases[i].other);
            expect(&t, &r, cases[i].what, 0, NULL);
            e2e_result_free(&r);
            e2e_expect_clean(&t);
        }
        e2e_close(&t);
    }
}

/* The control: with everything there, the same command runs. */
static void test_with_everything(void **state)
{
    struct e2e t;
    struct e2e_result r;
    (void)state;
    e2e_open(&t, 0);
    e2e_write(&t, "workspace/src/a.txt", "before\n");
    e2e_write(&t, "policy.lua", allow_all);
    e2e_write(&t, "task.yaml", manifest);
    run(&t, &r, NULL, "run-v1");
    expect(&t, &r, "nothing", 0, NULL);
    char *ran = e2e_read(&t, "workspace/src/ran");
    assert_non_null(ran);
    free(ran);
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_with_everything),
        cmocka_unit_test(test_each),
    };
    e2e_isolate();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
