/*
 * What a run changed, what somebody else changed, and what of it may run: each row with a control
 * that is no such thing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "promote/promote_priv.h"
#include "promote/test_rig.h"

static void expect(const struct rig *r, const char *path, char kind, enum br_change_state state)
{
    const struct br_change *c = rig_change(r, path);
    if (!c)
        fail_msg("'%s' is no change", path);
    if (c->kind != kind || c->state != state)
        fail_msg("'%s' is %c, state %d (%s)", path, c->kind, c->state, c->why ? c->why : "");
}

static void test_nothing(void **state)
{
    (void)state;
    struct rig r;
    struct br_err err = {.code = BR_OK};
    rig_open(&r);
    rig_copy(&r);
    assert_int_equal(rig_plan(&r, &err), 0);
    assert_int_equal(r.p.nchanges, 0);
    /* only the workspace's was changed, or both have the same: nothing to do */
    rig_sh(&r, "workspace", "echo mine > src/b.txt; rm old/one; echo new > new");
    assert_int_equal(rig_plan(&r, &err), 0);
    assert_int_equal(r.p.nchanges, 0);
    rig_sh(&r, "lease", "echo mine > src/b.txt; rm old/one; echo new > new; touch a.txt");
    assert_int_equal(rig_plan(&r, &err), 0);
    assert_int_equal(r.p.nchanges, 0);
    rig_close(&r);
}

static void test_changes(void **state)
{
    (void)state;
    struct rig r;
    struct br_err err = {.code = BR_OK};
    rig_open(&r);
    rig_copy(&r);
    rig_sh(&r, "lease",
           "echo four >> a.txt; mv src lib; rm -r old; ln -sfn src link; chmod 700 .vscode; mkdir "
           "new; echo x > new/x; chmod 644 tool.sh");
    assert_int_equal(rig_plan(&r, &err), 0);
    expect(&r, "a.txt", '~', BR_CHANGE_OK);
    expect(&r, "src", '-', BR_CHANGE_OK);
    expect(&r, "src/b.txt", '-', BR_CHANGE_OK);
    expect(&r, "src/deep/c.txt", '-', BR_CHANGE_OK);
    expect(&r, "lib", '+', BR_CHANGE_OK);
    expect(&r, "lib/b.txt", '+', BR_CHANGE_OK); /* though never changed itself */
    expect(&r, "lib/deep/c.txt", '+', BR_CHANGE_OK);
    expect(&r, "old", '-', BR_CHANGE_OK);
    expect(&r, "old/two", '-', BR_CHANGE_OK);
    expect(&r, "link", '~', BR_CHANGE_OK);
    expect(&r, ".vscode", '~', BR_CHANGE_OK);
    expect(&r, "new", '+', BR_CHANGE_OK);
    expect(&r, "new/x", '+', BR_CHANGE_OK);
    expect(&r, "tool.sh", '~', BR_CHANGE_OK);
    assert_int_equal(r.p.nchanges, 17);
    assert_int_equal(r.p.conflicts + r.p.refused, 0);
    rig_close(&r);
}

/* Two directories that changed places: nothing in them was changed by itself. */
static void test_swapped(void **state)
{
    (void)state;
    struct rig r;
    struct br_err err = {.code = BR_OK};
    rig_open(&r);
    rig_sh(&r, "workspace", "mkdir p q; echo 1 > p/f; echo 2 > q/f; touch -d 2020-01-01 p/f q/f");
    rig_copy(&r);
    rig_sh(&r, "lease", "mv p x; mv q p; mv x q");
    assert_int_equal(rig_plan(&r, &err), 0);
    expect(&r, "p/f", '~', BR_CHANGE_OK);
    expect(&r, "q/f", '~', BR_CHANGE_OK);
    rig_close(&r);
}

/* The time of a change that the run can set is not believed. */
static void test_faked_time(void **state)
{
    (void)state;
    struct rig r;
    struct br_err err = {.code = BR_OK};
    rig_open(&r);
    rig_copy(&r);
    rig_sh(&r, "lease", "touch -r src/b.txt ../t; echo BEE > src/b.txt; touch -r ../t src/b.txt");
    assert_int_equal(rig_plan(&r, &err), 0);
    expect(&r, "src/b.txt", '~', BR_CHANGE_OK);
    rig_close(&r);
}

static void test_conflicts(void **state)
{
    (void)state;
    static const struct {
        const char *run, *people, *path;
        char kind;
        const char *why; /* NULL: none */
    } rows[] = {
        {"echo x > a.txt", "echo y > a.txt", "a.txt", '~', "was changed"},
        {"echo x > a.txt", "true", "a.txt", '~', NULL},
        {"echo x > a.txt", "chmod 600 a.txt", "a.txt", '~', "was changed"},
        {"echo x > a.txt", "rm a.txt", "a.txt", '~', "was removed"},
        {"echo x > a.txt", "rm a.txt; mkdir a.txt", "a.txt", '~', "was changed"},
        {"echo x > a.txt", "rm a.txt; ln -s tool.sh a.txt", "a.txt", '~', "was changed"},
        {"echo x > n", "echo y > n", "n", '+', "appeared"},
        {"echo x > n", "mkdir n", "n", '+', "appeared"},
        {"echo x > n", "ln -s a.txt n", "n", '+', "appeared"},
        {"rm a.txt", "echo y > a.txt", "a.txt", '-', "was changed"},
        {"rm a.txt", "true", "a.txt", '-', NULL},
        {"rm -r old", "echo 3 > old/three", "old", '-', "did not know"},
        {"rm -r old", "mkfifo old/fifo", "old", '-', "did not know"},
        {"rm -r old; echo x > old", "echo 3 > old/three", "old", '~', "did not know"},
        {"rm -r old; echo x > old", "true", "old", '~', NULL},
        {"echo x > src/new", "mv src else", "src/new", '+', "none in the workspace"},
        {"echo x > src/new", "mv src else; ln -s else src", "src/new", '+',
         "none in the workspace"},
        {"echo x > src/new", "true", "src/new", '+', NULL},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct rig r;
        struct br_err err = {.code = BR_OK};
        rig_open(&r);
        rig_copy(&r);
        rig_sh(&r, "lease", rows[i].run);
        rig_sh(&r, "workspace", rows[i].people);
        assert_int_equal(rig_plan(&r, &err), 0);
        expect(&r, rows[i].path, rows[i].kind, rows[i].why ? BR_CHANGE_CONFLICT : BR_CHANGE_OK);
        if (rows[i].why && !strstr(rig_change(&r, rows[i].path)->why, rows[i].why))
            fail_msg("row %zu: %s", i, rig_change(&r, rows[i].path)->why);
        rig_close(&r);
    }
}

static void test_surface(void **state)
{
    (void)state;
    static const struct {
        const char *line, *path;
        uint32_t surface;
        enum br_change_state now;
    } rows[] = {
        {"echo > plain.c", "plain.c", 0, BR_CHANGE_OK},
        {"mkdir -p .git; echo > .git/config", ".git/config", BR_SURFACE_GIT_CONFIG,
         BR_CHANGE_REFUSED},
        {"mkdir -p .git/hooks; echo > .git/hooks/pre-commit", ".git/hooks/pre-commit",
         BR_SURFACE_GIT_CONFIG | BR_SURFACE_GIT_HOOKS, BR_CHANGE_REFUSED},
        {"mkdir -p s/.GIT; echo > s/.GIT/config", "s/.GIT/config", BR_SURFACE_GIT_CONFIG,
         BR_CHANGE_REFUSED},
        {"mkdir -p bare.git; echo > bare.git/config", "bare.git/config", BR_SURFACE_GIT_CONFIG,
         BR_CHANGE_REFUSED},
        /* one that is not named like one, and what is none */
        {"mkdir -p s/t/objects s/t/refs; echo > s/t/HEAD; echo > s/t/config", "s/t/config",
         BR_SURFACE_GIT_CONFIG, BR_CHANGE_REFUSED},
        {"mkdir -p s/t/objects s/t/refs s/t/x; echo > s/t/HEAD; echo > s/t/x/y", "s/t/x/y",
         BR_SURFACE_GIT_CONFIG, BR_CHANGE_REFUSED},
        {"mkdir -p s/t/objects s/t/refs; echo > s/t/HEAD", "s/t", BR_SURFACE_GIT_CONFIG,
         BR_CHANGE_REFUSED},
        {"mkdir -p s/t/objects s/t/refs; echo > s/t/HEAD; echo > s/u", "s/u", 0, BR_CHANGE_OK},
        {"mkdir -p s/t/objects; ln -s objects s/t/refs; echo > s/t/HEAD; echo > s/t/config",
         "s/t/config", BR_SURFACE_GIT_CONFIG, BR_CHANGE_REFUSED},
        {"mkdir -p s/t; echo > s/t/commondir; echo > s/t/HEAD; echo > s/t/config", "s/t/config",
         BR_SURFACE_GIT_CONFIG, BR_CHANGE_REFUSED},
        {"mkdir objects refs; echo > HEAD; echo > plain.c", "plain.c", BR_SURFACE_GIT_CONFIG,
         BR_CHANGE_REFUSED},
        {"mkdir -p s/t/objects s/t/refs; echo > s/t/config", "s/t/config", 0, BR_CHANGE_OK},
        {"mkdir -p s/t/objects; echo > s/t/HEAD; echo > s/t/config", "s/t/config", 0, BR_CHANGE_OK},
        {"echo > .gdbinit", ".gdbinit", BR_SURFACE_EDITOR, BR_CHANGE_OK},
        {"echo > .bazelrc", ".bazelrc", BR_SURFACE_SCRIPTS, BR_CHANGE_OK},
        {"echo > bunfig.toml", "bunfig.toml", BR_SURFACE_SCRIPTS, BR_CHANGE_OK},
        {"echo > bridle.lua", "bridle.lua", BR_SURFACE_AGENT, BR_CHANGE_OK},
        {"echo > src/policy.lua", "src/policy.lua", BR_SURFACE_AGENT, BR_CHANGE_OK},
        {"echo > .gitattributes", ".gitattributes", BR_SURFACE_GIT_ATTRIBUTES, BR_CHANGE_OK},
        {"echo > .gitignore", ".gitignore", 0, BR_CHANGE_OK},
        {"echo > .gitmodules", ".gitmodules", BR_SURFACE_SUBMODULES, BR_CHANGE_OK},
        {"mkdir -p .husky; echo > .husky/p", ".husky/p", BR_SURFACE_GIT_HOOKS, BR_CHANGE_OK},
        {"echo > .vscode/tasks.json", ".vscode/tasks.json", BR_SURFACE_EDITOR, BR_CHANGE_OK},
        {"mkdir vscode; echo > vscode/tasks.json", "vscode/tasks.json", 0, BR_CHANGE_OK},
        {"mkdir .idea; echo > .idea/x", ".idea/x", BR_SURFACE_EDITOR, BR_CHANGE_OK},
        {"echo > src/.envrc", "src/.envrc", BR_SURFACE_ENVRC, BR_CHANGE_OK},
        {"echo > src/envrc", "src/envrc", 0, BR_CHANGE_OK},
        {"echo > package.json", "package.json", BR_SURFACE_SCRIPTS, BR_CHANGE_OK},
        {"echo > package.json.txt", "package.json.txt", 0, BR_CHANGE_OK},
        {"echo > Makefile", "Makefile", BR_SURFACE_SCRIPTS, BR_CHANGE_OK},
        {"echo > build.rs", "build.rs", BR_SURFACE_SCRIPTS, BR_CHANGE_OK},
        {"echo > setup.py", "setup.py", BR_SURFACE_SCRIPTS, BR_CHANGE_OK},
        {"echo > rules.mk", "rules.mk", BR_SURFACE_SCRIPTS, BR_CHANGE_OK},
        {"mkdir -p .github/workflows; echo > .github/workflows/x.yml", ".github/workflows/x.yml",
         BR_SURFACE_CI, BR_CHANGE_OK},
        {"echo > .gitlab-ci.yml", ".gitlab-ci.yml", BR_SURFACE_CI, BR_CHANGE_OK},
        {"echo > AGENTS.md", "AGENTS.md", BR_SURFACE_AGENT, BR_CHANGE_OK},
        {"echo > README.md", "README.md", 0, BR_CHANGE_OK},
        {"echo > x; chmod 755 x", "x", BR_SURFACE_EXECUTABLE, BR_CHANGE_OK},
        {"chmod 755 a.txt", "a.txt", BR_SURFACE_EXECUTABLE, BR_CHANGE_OK},
        {"ln -s src/b.txt in", "in", BR_SURFACE_SYMLINK, BR_CHANGE_OK},
        {"ln -s ../a.txt src/in", "src/in", BR_SURFACE_SYMLINK, BR_CHANGE_OK},
        {"ln -s missing in", "in", BR_SURFACE_SYMLINK, BR_CHANGE_OK},
        {"ln -s src d; ln -s d/b.txt in", "in", BR_SURFACE_SYMLINK, BR_CHANGE_OK},
        {"ln -s /etc/passwd out", "out", BR_SURFACE_SYMLINK | BR_SURFACE_SYMLINK_OUT,
         BR_CHANGE_REFUSED},
        {"ln -s ../x out", "out", BR_SURFACE_SYMLINK | BR_SURFACE_SYMLINK_OUT, BR_CHANGE_REFUSED},
        {"ln -s src/../../x out", "out", BR_SURFACE_SYMLINK | BR_SURFACE_SYMLINK_OUT,
         BR_CHANGE_REFUSED},
        {"ln -s missing/../../x out", "out", BR_SURFACE_SYMLINK | BR_SURFACE_SYMLINK_OUT,
         BR_CHANGE_REFUSED},
        {"ln -s src/deep d; ln -s d/../../../x out", "out",
         BR_SURFACE_SYMLINK | BR_SURFACE_SYMLINK_OUT, BR_CHANGE_REFUSED},
        {"ln -s .. src/deep/up; ln -s src/deep/up/../../x out", "out",
         BR_SURFACE_SYMLINK | BR_SURFACE_SYMLINK_OUT, BR_CHANGE_REFUSED},
        {"ln -s out out", "out", BR_SURFACE_SYMLINK | BR_SURFACE_SYMLINK_OUT, BR_CHANGE_REFUSED},
        {"ln a.txt twin", "twin", BR_SURFACE_HARD_LINK, BR_CHANGE_OK},
        {"echo > x; chmod 4644 x", "x", BR_SURFACE_SETID, BR_CHANGE_REFUSED},
        {"echo > x; chmod 2644 x", "x", BR_SURFACE_SETID, BR_CHANGE_REFUSED},
        {"mkdir x; chmod 2755 x", "x", BR_SURFACE_SETID, BR_CHANGE_REFUSED},
        {"mkfifo x", "x", BR_SURFACE_FIFO, BR_CHANGE_REFUSED},
        {"perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0); bind(S,sockaddr_un(\"x\"))'", "x",
         BR_SURFACE_SOCKET, BR_CHANGE_REFUSED},
        {"echo > \"$(printf 'a\\033[2J')\"", "a\033[2J", BR_SURFACE_NAME, BR_CHANGE_REFUSED},
        {"echo > \"$(printf 'a\\nb')\"", "a\nb", BR_SURFACE_NAME, BR_CHANGE_REFUSED},
        {"echo > \"$(printf 'a\\377')\"", "a\377", BR_SURFACE_NAME, BR_CHANGE_REFUSED},
        {"mkdir .bridle-promote-x", ".bridle-promote-x", 0, BR_CHANGE_REFUSED},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct rig r;
        struct br_err err = {.code = BR_OK};
        rig_open(&r);
        rig_copy(&r);
        rig_sh(&r, "lease", rows[i].line);
        assert_int_equal(rig_plan(&r, &err), 0);
        expect(&r, rows[i].path, strcmp(rows[i].path, "a.txt") == 0 ? '~' : '+', rows[i].now);
        if (rig_change(&r, rows[i].path)->surface != rows[i].surface)
            fail_msg("row %zu (%s): surface %#x", i, rows[i].line,
                     rig_change(&r, rows[i].path)->surface);
        rig_close(&r);
    }
}

/* What only root can make. */
static void test_surface_root(void **state)
{
    (void)state;
    struct rig r;
    struct br_err err = {.code = BR_OK};
    if (geteuid() != 0) {
        print_message("devices and capabilities need root\n");
        skip();
    }
    rig_open(&r);
    rig_copy(&r);
    rig_sh(&r, "lease", "mknod c c 1 3; mknod b b 7 0; echo > x; echo > y");
    static const uint32_t caps[5] = {0x02000001, 1};
    char path[128];
    snprintf(path, sizeof(path), "%s/x", r.lease);
    assert_int_equal(setxattr(path, "security.capability", caps, sizeof(caps), 0), 0);
    snprintf(path, sizeof(path), "%s/y", r.lease);
    assert_int_equal(setxattr(path, "trusted.a", "b", 1, 0), 0);
    assert_int_equal(rig_plan(&r, &err), 0);
    expect(&r, "c", '+', BR_CHANGE_REFUSED);
    assert_int_equal(rig_change(&r, "c")->surface, BR_SURFACE_DEVICE);
    expect(&r, "b", '+', BR_CHANGE_REFUSED);
    expect(&r, "x", '+', BR_CHANGE_REFUSED);
    assert_int_equal(rig_change(&r, "x")->surface, BR_SURFACE_CAPABILITY);
    expect(&r, "y", '+', BR_CHANGE_OK);
    assert_int_equal(rig_change(&r, "y")->surface, BR_SURFACE_XATTR);
    rig_close(&r);
}

static void test_git_and_skip(void **state)
{
    (void)state;
    static const char *const skip[] = {"src", "a.txt/"};
    struct rig r;
    struct br_err err = {.code = BR_OK};
    rig_open(&r);
    rig_copy(&r);
    rig_sh(&r, "lease", "mkdir .git; echo > .git/HEAD; echo > src/n; echo x > a.txt; echo > srcs");
    r.p.with_git = true;
    assert_int_equal(rig_plan(&r, &err), 0);
    expect(&r, ".git/HEAD", '+', BR_CHANGE_OK);
    assert_int_equal(r.p.refused, 0);
    r.p.skip = skip;
    r.p.nskip = 2;
    assert_int_equal(rig_plan(&r, &err), 0);
    assert_null(rig_change(&r, "src/n"));
    assert_null(rig_change(&r, "a.txt"));
    expect(&r, "srcs", '+', BR_CHANGE_OK);
    assert_int_equal(r.p.skipped, 2);
    rig_close(&r);
}

/* A repository that people have, and one that is none without what is left out. */
static void test_repositories(void **state)
{
    (void)state;
    static const char *const skip[] = {"t/HEAD"};
    struct rig r;
    struct br_err err = {.code = BR_OK};
    rig_open(&r);
    rig_sh(&r, "workspace", "mkdir -p p/objects p/refs; echo > p/HEAD; echo > p/config");
    rig_copy(&r);
    rig_sh(&r, "lease",
           "echo x > p/config; rm -r p/HEAD p/refs; mkdir -p t/objects t/refs; echo > t/HEAD; "
           "echo > t/config");
    assert_int_equal(rig_plan(&r, &err), 0);
    expect(&r, "p/config", '~', BR_CHANGE_REFUSED);
    expect(&r, "t/config", '+', BR_CHANGE_REFUSED);
    r.p.skip = skip;
    r.p.nskip = 1;
    assert_int_equal(rig_plan(&r, &err), 0);
    expect(&r, "p/config", '~', BR_CHANGE_REFUSED);
    expect(&r, "t/config", '+', BR_CHANGE_OK);
    r.p.with_git = true;
    r.p.nskip = 0;
    assert_int_equal(rig_plan(&r, &err), 0);
    assert_int_equal(r.p.refused, 0);
    expect(&r, "t/config", '+', BR_CHANGE_OK);
    assert_true(rig_change(&r, "t/config")->surface & BR_SURFACE_GIT_CONFIG);
    rig_close(&r);
}

static void test_damaged_base(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "dd if=/dev/zero of=base bs=1 count=1 conv=notrunc status=none", "truncate -s -1 base",
        "truncate -s 10 base", "echo x >> base"};
    struct rig r;
    struct br_err err = {.code = BR_OK};
    rig_open(&r);
    rig_copy(&r);
    rig_sh(&r, ".", "cp base whole");
    for (size_t i = 0; i < BR_ARRAY_LEN(lines); i++) {
        rig_sh(&r, ".", "cp whole base");
        rig_sh(&r, ".", lines[i]);
        assert_true(rig_plan(&r, &err) < 0);
    }
    rig_sh(&r, ".", "cp whole base");
    assert_int_equal(rig_plan(&r, &err), 0);
    rig_close(&r);
}

/* A path that leaves the tree, in a record that somebody forged. */
static void test_deep(void **state)
{
    (void)state;
    struct rig r;
    struct br_err err = {.code = BR_OK};
    char line[512];
    rig_open(&r);
    rig_copy(&r);
    for (int i = 0; i < 2; i++) { /* N levels, and one more */
        snprintf(line, sizeof(line), "p=.; for i in $(seq %u); do p=$p/d; done; mkdir -p $p",
                 BR_PROMOTE_DEPTH_MAX - 1 + (unsigned)i);
        rig_sh(&r, "lease", line);
        assert_int_equal(rig_plan(&r, &err), i ? -BR_E_LIMIT_EXCEEDED : 0);
    }
    rig_close(&r);
}

static void diff(const char *a, const char *b, const char *said)
{
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(1 << 20);
    br_diff_lines(a, strlen(a), b, strlen(b), 1000, &out);
    assert_string_equal(br_buf_cstr(&out) ? br_buf_cstr(&out) : "", said);
}

static void test_diff(void **state)
{
    (void)state;
    diff("", "", "");
    diff("a\n", "a\n", "");
    diff("", "a\nb\n", "+a\n+b\n");
    diff("a\nb\n", "", "-a\n-b\n");
    diff("a\nb\nc\n", "a\nx\nc\n", " a\n-b\n+x\n c\n");
    diff("1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n",
         "@@ line 8\n 8\n 9\n+10\n");
    diff("a\n", "\033[2J\xe2\x80\xae\n", "-a\n+\\x1b[2J\\u202e\n");
    diff("a", "a\n", "-a\n+a\n");
    BR_CLEANUP_BUF struct br_buf a = BR_BUF_INIT(1 << 20), b = BR_BUF_INIT(1 << 20),
                                 out = BR_BUF_INIT(1 << 20);
    for (int i = 0; i < 1000; i++) {
        br_buf_printf(&a, "a%d\n", i);
        br_buf_printf(&b, "b%d\n", i);
    }
    br_diff_lines((char *)a.data, a.len, (char *)b.data, b.len, 1000, &out);
    assert_non_null(strstr(br_buf_cstr(&out), "too different"));
    br_buf_reset(&out);
    br_diff_lines("", 0, (char *)b.data, 800, 100, &out);
    assert_true(out.len < 200);
    assert_non_null(strstr(br_buf_cstr(&out), "more lines\n"));
}

static void test_diff_of_changes(void **state)
{
    (void)state;
    struct rig r;
    struct br_err err = {.code = BR_OK};
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(1 << 20);
    rig_open(&r);
    rig_copy(&r);
    rig_sh(&r, "lease",
           "sed -i s/two/TWO/ a.txt; ln -sfn tool.sh link; printf 'a\\0b' > bin; rm src/b.txt; "
           "truncate -s 600000 big");
    assert_int_equal(rig_plan(&r, &err), 0);
    for (size_t i = 0; i < r.p.nchanges; i++)
        br_promotion_diff(&r.p, &r.p.changes[i], &out);
    assert_string_equal(br_buf_cstr(&out), " one\n-two\n+TWO\n three\n"
                                           "  too large to be shown: 0 bytes become 600000\n"
                                           "  no text: 0 bytes become 3\n"
                                           "--> a.txt\n+-> tool.sh\n"
                                           "-bee\n");
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing),      cmocka_unit_test(test_changes),
        cmocka_unit_test(test_swapped),      cmocka_unit_test(test_faked_time),
        cmocka_unit_test(test_conflicts),    cmocka_unit_test(test_surface),
        cmocka_unit_test(test_surface_root), cmocka_unit_test(test_git_and_skip),
        cmocka_unit_test(test_damaged_base), cmocka_unit_test(test_deep),
        cmocka_unit_test(test_diff),         cmocka_unit_test(test_diff_of_changes),
        cmocka_unit_test(test_repositories),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
