/*
 * Walks of granted trees and of workspaces: what changes a fingerprint, what is refused by name,
 * and the limits at N and N + 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/test_tools.h"
#include "sandbox/tree.h"

struct place {
    char dir[64];
    int fd;
    struct br_allowed_root root;
    struct br_tree tree;
    struct br_covers *covers;
    uint32_t entries;
    uint8_t sum[32];
    struct br_err err;
};

static void in(const struct place *p, const char *name, char path[512])
{
    snprintf(path, 512, "%s/%s", p->dir, name);
}

static void dir(const struct place *p, const char *name)
{
    assert_int_equal(mkdirat(p->fd, name, 0755), 0);
}

static void file(const struct place *p, const char *name)
{
    BR_CLEANUP_FD int fd = openat(p->fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
}

static void hard_link(const struct place *p, const char *from, const char *to)
{
    assert_int_equal(linkat(p->fd, from, p->fd, to, 0), 0);
}

static void listener(const struct place *p, const char *name)
{
    char path[512];
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    in(p, name, path);
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%.100s", path);
    BR_CLEANUP_FD int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&sa, sizeof(sa)), 0);
}

static int make(void **state)
{
    struct place *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    p->covers = calloc(1, sizeof(*p->covers));
    assert_non_null(p->covers);
    snprintf(p->dir, sizeof(p->dir), "/tmp/bridle-tree-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    p->fd = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(p->fd >= 0);
    assert_int_equal(br_allowed_root_open(&p->root, p->fd, NULL), 0);
    dir(p, "d");
    file(p, "d/b");
    file(p, "d/a");
    dir(p, "d/sub");
    file(p, "d/sub/x");
    *state = p;
    return 0;
}

static int destroy(void **state)
{
    struct place *p = *state;
    close(p->fd);
    free(p->covers);
    int r = test_remove_tree(p->dir);
    free(p);
    return r;
}

/* Walk `name`; the tree stays open for more. */
static int walk(struct place *p, const char *name, bool within)
{
    char pattern[600];
    struct br_allowed a;
    snprintf(pattern, sizeof(pattern), "%s/**", name);
    p->err.code = BR_OK;
    assert_int_equal(br_allowed_open(&p->root, pattern, &a, NULL), 0);
    int r = br_tree_fingerprint(&p->tree, &p->root, &a, within, &p->entries, p->sum, &p->err);
    br_allowed_close(&a);
    return r;
}

static int look(struct place *p, const char *name, uint32_t max)
{
    br_tree_init(&p->tree, p->covers, max);
    int r = walk(p, name, false);
    if (r == 0)
        r = br_tree_check_links(&p->tree, &p->err);
    br_tree_free(&p->tree);
    return r;
}

static void good(struct place *p, uint8_t sum[32])
{
    if (look(p, "d", BR_TREE_ENTRIES_MAX) != 0)
        fail_msg("refused: %s", p->err.text);
    memcpy(sum, p->sum, 32);
}

static void refused(struct place *p, const char *text)
{
    assert_int_equal(look(p, "d", BR_TREE_ENTRIES_MAX), -BR_E_INVALID_ALLOWED_PATH);
    if (!strstr(p->err.text, text) || !strstr(p->err.text, "nothing was started"))
        fail_msg("expected '%s', got '%s'", text, p->err.text);
}

#define SAME(p, sum)                                                                               \
    do {                                                                                           \
        uint8_t now_[32];                                                                          \
        good(p, now_);                                                                             \
        assert_memory_equal(now_, sum, 32);                                                        \
    } while (0)
#define CHANGED(p, sum)                                                                            \
    do {                                                                                           \
        uint8_t now_[32];                                                                          \
        good(p, now_);                                                                             \
        assert_memory_not_equal(now_, sum, 32);                                                    \
        memcpy(sum, now_, 32);                                                                     \
    } while (0)

static void test_fingerprint(void **state)
{
    struct place *p = *state;
    uint8_t sum[32], first[32];
    good(p, sum);
    assert_int_equal(p->entries, 4);
    SAME(p, sum);
    memcpy(first, sum, sizeof(first));
    /* a name that comes and goes leaves no trace, whatever the directory's own order is then */
    file(p, "d/c");
    CHANGED(p, sum);
    assert_int_equal(unlinkat(p->fd, "d/c", 0), 0);
    SAME(p, first);
    assert_int_equal(renameat(p->fd, "d/sub/x", p->fd, "d/sub/y"), 0);
    CHANGED(p, sum);
    assert_int_equal(renameat(p->fd, "d/sub/y", p->fd, "d/x"), 0);
    CHANGED(p, sum);
    /* another file under the same name, while the first is kept so that its number is not reused */
    assert_int_equal(renameat(p->fd, "d/a", p->fd, "kept"), 0);
    file(p, "d/a");
    CHANGED(p, sum);
    assert_int_equal(unlinkat(p->fd, "d/a", 0), 0);
    assert_int_equal(symlinkat("b", p->fd, "d/a"), 0);
    CHANGED(p, sum);
    hard_link(p, "d/b", "d/sub/b");
    CHANGED(p, sum);
    /* the content of a file is not the shape of a tree */
    BR_CLEANUP_FD int fd = openat(p->fd, "d/b", O_WRONLY | O_CLOEXEC);
    assert_int_equal(br_write_all(fd, "x", 1), 0);
    SAME(p, sum);
}

/* "a/b" next to "c" is not "a" next to "b" and "c". */
static void test_nesting_counts(void **state)
{
    struct place *p = *state;
    uint8_t sum[32];
    dir(p, "d/p");
    dir(p, "d/p/q");
    good(p, sum);
    assert_int_equal(renameat(p->fd, "d/p/q", p->fd, "d/q"), 0);
    CHANGED(p, sum);
}

static void test_hard_links(void **state)
{
    struct place *p = *state;
    uint8_t sum[32];
    dir(p, "other");
    hard_link(p, "d/b", "d/sub/b");
    good(p, sum);
    hard_link(p, "d/b", "other/b");
    refused(p, "has 3 hard links of which 2 are in allowed paths");
    assert_non_null(strstr(p->err.text, "'d/"));
    /* both granted: every name is inside */
    br_tree_init(&p->tree, p->covers, BR_TREE_ENTRIES_MAX);
    assert_int_equal(walk(p, "d", false), 0);
    assert_int_equal(walk(p, "other", false), 0);
    assert_int_equal(br_tree_check_links(&p->tree, &p->err), 0);
    br_tree_free(&p->tree);
    /* a tree in a tree does not count twice, or a link outside would be made up for */
    hard_link(p, "d/sub/x", "outside");
    br_tree_init(&p->tree, p->covers, BR_TREE_ENTRIES_MAX);
    assert_int_equal(walk(p, "d", false), 0);
    assert_int_equal(walk(p, "d/sub", true), 0);
    assert_int_equal(walk(p, "other", false), 0);
    assert_int_equal(br_tree_check_links(&p->tree, &p->err), -BR_E_INVALID_ALLOWED_PATH);
    assert_non_null(strstr(p->err.text, "'d/sub/x'"));
    br_tree_free(&p->tree);
}

static const struct br_cover *covered(const struct place *p, const char *path)
{
    for (uint32_t i = 0; i < p->covers->n; i++)
        if (strcmp(p->covers->text + p->covers->items[i].path, path) == 0)
            return &p->covers->items[i];
    return NULL;
}

static void test_git(void **state)
{
    struct place *p = *state;
    uint8_t sum[32];
    struct stat st;
    dir(p, "d/.git");
    dir(p, "d/sub/.GIT");
    file(p, "d/.git/config");
    good(p, sum);
    assert_int_equal(p->covers->n, 3);
    assert_int_equal(fstatat(p->fd, "d/sub", &st, 0), 0);
    assert_int_equal(covered(p, "d/sub")->kind, BR_COVER_PIN);
    assert_int_equal(covered(p, "d/sub")->ino, st.st_ino);
    assert_int_equal(fstatat(p->fd, "d/.git", &st, 0), 0);
    assert_int_equal(covered(p, "d/.git")->ino, st.st_ino);
    assert_int_equal(covered(p, "d/.git")->kind, BR_COVER_READ_ONLY);
    assert_non_null(covered(p, "d/sub/.GIT"));
    /* what git does in it meanwhile does not matter; a socket in it does */
    hard_link(p, "d/.git/config", "shared");
    file(p, "d/.git/index");
    SAME(p, sum);
    listener(p, "d/.git/ipc");
    SAME(p, sum);
    assert_int_equal(covered(p, "d/.git/ipc")->kind, BR_COVER_HIDE);
    /* a file, as in a submodule */
    file(p, "d/sub/.git");
    CHANGED(p, sum);
    assert_non_null(covered(p, "d/sub/.git"));
    assert_int_equal(unlinkat(p->fd, "d/sub/.git", 0), 0);
    assert_int_equal(symlinkat("../.git", p->fd, "d/sub/.git"), 0);
    refused(p, "'d/sub/.git', which is a symbolic link");
}

/* Each directory on the way to a `.git` is covered, once; others are not. */
static void test_pins(void **state)
{
    struct place *p = *state;
    static const char *const made[] = {"d/k",   "d/k/b",      "d/k/b/c", "d/k/b/c/.git",
                                       "d/k/e", "d/k/e/.git", "d/z",     "d/z/.gitx"};
    static const char *const pinned[] = {"d/k", "d/k/b", "d/k/b/c", "d/k/e"};
    uint8_t sum[32];
    uint32_t n = 0;
    for (unsigned i = 0; i < BR_ARRAY_LEN(made); i++)
        dir(p, made[i]);
    good(p, sum);
    for (uint32_t i = 0; i < p->covers->n; i++)
        n += p->covers->items[i].kind == BR_COVER_PIN;
    assert_int_equal(n, BR_ARRAY_LEN(pinned));
    for (unsigned i = 0; i < BR_ARRAY_LEN(pinned); i++) {
        struct stat st;
        assert_int_equal(fstatat(p->fd, pinned[i], &st, 0), 0);
        assert_non_null(covered(p, pinned[i]));
        assert_int_equal(covered(p, pinned[i])->kind, BR_COVER_PIN);
        assert_int_equal(covered(p, pinned[i])->ino, st.st_ino);
    }
    /* as many as there may be, and one more */
    char name[32];
    for (unsigned i = p->covers->n; i < BR_COVERS_MAX; i++) {
        snprintf(name, sizeof(name), "d/f%u", i);
        assert_int_equal(mkfifoat(p->fd, name, 0644), 0);
    }
    good(p, sum);
    assert_int_equal(p->covers->n, BR_COVERS_MAX);
    assert_int_equal(unlinkat(p->fd, name, 0), 0);
    dir(p, "d/zz");
    dir(p, "d/zz/.git");
    refused(p, "'d/zz/.git' is one too many of the sockets");
}

static void test_sockets(void **state)
{
    struct place *p = *state;
    uint8_t sum[32];
    listener(p, "d/sub/s");
    assert_int_equal(mkfifoat(p->fd, "d/f", 0644), 0);
    good(p, sum);
    assert_int_equal(p->covers->n, 2);
    assert_int_equal(covered(p, "d/sub/s")->kind, BR_COVER_HIDE);
    assert_int_equal(covered(p, "d/f")->kind, BR_COVER_HIDE);
}

static int search(struct place *p, uint32_t max, const char *granted)
{
    struct br_allowed a = {.fd = -1, .dir = true};
    snprintf(a.rel, sizeof(a.rel), "%s", granted ? granted : "");
    br_tree_init(&p->tree, p->covers, max);
    int r = br_tree_search(&p->tree, p->fd, &a, granted ? 1 : 0, &p->err);
    br_tree_free(&p->tree);
    return r;
}

static void test_search(void **state)
{
    struct place *p = *state;
    listener(p, "top");
    listener(p, "d/sub/s");
    assert_int_equal(mkfifoat(p->fd, "d/f", 0644), 0);
    assert_int_equal(symlinkat("top", p->fd, "link"), 0);
    assert_int_equal(symlinkat("..", p->fd, "d/up"), 0);
    assert_int_equal(search(p, 100, NULL), 0);
    assert_int_equal(p->covers->n, 3);
    assert_non_null(covered(p, "top"));
    assert_non_null(covered(p, "d/sub/s"));
    assert_non_null(covered(p, "d/f"));
    assert_int_equal(search(p, 100, "d/sub"), 0);
    assert_int_equal(p->covers->n, 2);
    assert_null(covered(p, "d/sub/s"));
    /* d, a, b, f, up, sub, x, s, top, link */
    assert_int_equal(search(p, 10, NULL), 0);
    assert_int_equal(search(p, 9, NULL), -BR_E_INVALID_WORKSPACE);
    assert_non_null(strstr(p->err.text, "workspace lease"));
}

static void test_entries(void **state)
{
    struct place *p = *state;
    assert_int_equal(look(p, "d", 4), 0);
    assert_int_equal(look(p, "d", 3), -BR_E_INVALID_ALLOWED_PATH);
    assert_non_null(strstr(p->err.text, "more than 3 entries"));
    assert_non_null(strstr(p->err.text, "workspace lease"));
    /* over all trees of a run */
    dir(p, "e");
    file(p, "e/x");
    br_tree_init(&p->tree, p->covers, 5);
    assert_int_equal(walk(p, "d", false), 0);
    assert_int_equal(walk(p, "e", false), 0);
    file(p, "e/y");
    br_tree_free(&p->tree);
    br_tree_init(&p->tree, p->covers, 5);
    assert_int_equal(walk(p, "d", false), 0);
    assert_int_equal(walk(p, "e", false), -BR_E_INVALID_ALLOWED_PATH);
    br_tree_free(&p->tree);
}

static void test_depth(void **state)
{
    struct place *p = *state;
    char path[1024] = "d";
    for (unsigned level = 1; level < BR_TREE_DEPTH_MAX; level++) {
        strcat(path, "/n");
        dir(p, path);
    }
    assert_int_equal(look(p, "d", BR_TREE_ENTRIES_MAX), 0);
    strcat(path, "/n");
    dir(p, path);
    refused(p, "is more than 128 levels deep");
}

static void test_covers(void **state)
{
    struct place *p = *state;
    char name[32];
    uint8_t sum[32];
    for (unsigned i = 0; i < BR_COVERS_MAX; i++) {
        snprintf(name, sizeof(name), "d/f%u", i);
        assert_int_equal(mkfifoat(p->fd, name, 0644), 0);
    }
    good(p, sum);
    assert_int_equal(p->covers->n, BR_COVERS_MAX);
    assert_int_equal(mkfifoat(p->fd, "d/one-more", 0644), 0);
    refused(p, "is one too many of the sockets");
}

/* Names are shown so that they cannot play with a terminal. */
static void test_names(void **state)
{
    struct place *p = *state;
    dir(p, "d/x\x1b[2J");
    assert_int_equal(symlinkat("..", p->fd, "d/x\x1b[2J/.git"), 0);
    refused(p, "'d/x\\x1b[2J/.git'");
    assert_null(strchr(p->err.text, '\x1b'));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make, destroy)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_fingerprint), TEST(test_nesting_counts), TEST(test_hard_links),
        TEST(test_git),         TEST(test_pins),           TEST(test_sockets),
        TEST(test_search),      TEST(test_entries),        TEST(test_depth),
        TEST(test_covers),      TEST(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
