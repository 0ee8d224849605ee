/*
 * The store as a library: indexes, names and ids, walking and removing trees, the state directory.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "image/image_priv.h"

static char dir[64];
static int state_fd;

static int make(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/bridle-store-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    state_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return state_fd < 0 ? -1 : 0;
}

static int unmake(void **state)
{
    (void)state;
    br_close(&state_fd);
    BR_CLEANUP_FD int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return br_remove_tree(tmp, dir + sizeof("/tmp"), NULL);
}

static struct br_image sample(char digit)
{
    struct br_image img = {.name = "name",
                           .format = "tar",
                           .source = "a source, with blanks",
                           .created_us = 1234567,
                           .bytes = 42,
                           .entries = UINT64_MAX,
                           .file = {1, 2, 3, 4, UINT64_MAX},
                           .has_tree = true};
    memset(img.id, digit, 71);
    memcpy(img.id, "sha256:", 7);
    memset(img.tree, 0xab, sizeof(img.tree));
    return img;
}

static void test_index(void **state)
{
    struct br_image img = sample('a'), got;
    struct br_buf b = BR_BUF_INIT(BR_IMAGE_INDEX_MAX);
    char changed[BR_IMAGE_INDEX_MAX];
    (void)state;
    for (int tree = 0; tree < 2; tree++) {
        img = sample('a');
        img.has_tree = tree;
        if (!tree)
            memset(img.tree, 0, sizeof(img.tree));
        br_buf_reset(&b);
        assert_int_equal(br_image_index_put(&b, &img), 0);
        assert_int_equal(br_image_index_get((char *)b.data, b.len, img.id, &got, NULL), 0);
        assert_memory_equal(&img, &got, sizeof(img));
        /* every single byte counts, and every length */
        for (size_t i = 0; i < b.len; i++) {
            memcpy(changed, b.data, b.len);
            changed[i] ^= 1;
            assert_int_equal(br_image_index_get(changed, b.len, img.id, &got, NULL),
                             -BR_E_INVALID_IMAGE);
            assert_int_equal(br_image_index_get((char *)b.data, i, img.id, &got, NULL),
                             -BR_E_INVALID_IMAGE);
        }
        /* that of another image */
        assert_int_equal(br_image_index_get((char *)b.data, b.len, sample('b').id, &got, NULL),
                         -BR_E_INVALID_IMAGE);
    }
    br_buf_free(&b);
}

static void test_names(void **state)
{
    char longest[BR_IMAGE_NAME_MAX + 1];
    (void)state;
    memset(longest, 'a', sizeof(longest));
    longest[BR_IMAGE_NAME_MAX - 1] = 0;
    assert_true(br_image_is_name(longest));
    longest[BR_IMAGE_NAME_MAX - 1] = 'a';
    longest[BR_IMAGE_NAME_MAX] = 0;
    assert_false(br_image_is_name(longest));
    static const char *const good[] = {"a", "0", "debian-12", "node_22.1", "deadbeef"};
    static const char *const bad[] = {"",   "host", ".",   "..",  ".a",      "-a",
                                      "_a", "A",    "a/b", "a b", "sha256:a"};
    for (unsigned i = 0; i < BR_ARRAY_LEN(good); i++)
        assert_true(br_image_is_name(good[i]));
    for (unsigned i = 0; i < BR_ARRAY_LEN(bad); i++)
        assert_false(br_image_is_name(bad[i]));
    assert_true(br_image_is_id(sample('a').id));
    assert_false(br_image_is_id(sample('A').id));
    assert_false(br_image_is_id("sha256:"));
    assert_false(br_image_is_id("host"));
}

static void put(const struct br_image_store *s, const struct br_image *img, const char *name)
{
    assert_int_equal(br_image_index_write(s, img, NULL), 0);
    if (name)
        assert_int_equal(br_image_name_set(s, name, img->id, NULL), 0);
}

static void resolves(const char *what, const char *want)
{
    char id[BR_IMAGE_ID_MAX];
    struct br_err err = {.code = BR_OK};
    if (br_image_resolve(state_fd, what, id, &err) < 0)
        fail_msg("'%s': %s", what, err.text);
    assert_string_equal(id, want);
}

static void does_not(const char *what, int code)
{
    char id[BR_IMAGE_ID_MAX];
    struct br_err err = {.code = BR_OK};
    int r = br_image_resolve(state_fd, what, id, &err);
    if (r != -code || !err.text[0])
        fail_msg("'%s': %d %s", what, r, err.text);
}

static void test_resolve(void **state)
{
    struct br_image_store s;
    struct br_image a = sample('a'), b = sample('b'), c = sample('b');
    (void)state;
    c.id[70] = 'c';
    resolves("host", "host");
    does_not("a", BR_E_NOT_FOUND); /* there is no store */
    assert_int_equal(br_image_store_open(state_fd, true, &s, NULL), 0);
    put(&s, &a, "one");
    put(&s, &b, "two");
    put(&s, &c, NULL);
    resolves("one", a.id);
    resolves("two", b.id);
    resolves("host", "host");
    resolves(a.id, a.id);
    resolves(c.id, c.id);
    resolves("aaaaaaaa", a.id); /* 8 digits */
    resolves("sha256:aaaaaaaa", a.id);
    does_not("aaaaaaa", BR_E_NOT_FOUND);  /* 7 */
    does_not("bbbbbbbb", BR_E_NOT_FOUND); /* two of them */
    does_not("three", BR_E_NOT_FOUND);
    does_not("", BR_E_NOT_FOUND);
    does_not("../names/one", BR_E_NOT_FOUND);
    does_not("cccccccc", BR_E_NOT_FOUND);
    /* a name that looks like digits is a name first */
    assert_int_equal(br_image_name_set(&s, "aaaaaaaa", b.id, NULL), 0);
    resolves("aaaaaaaa", b.id);
    /* a name is moved */
    assert_int_equal(br_image_name_set(&s, "one", b.id, NULL), 0);
    resolves("one", b.id);
    /* names that are not in order */
    int names = openat(s.fd, "names", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(symlinkat("two", names, "link"), 0);
    does_not("link", BR_E_INVALID_IMAGE);
    assert_int_equal(mkdirat(names, "dir", 0700), 0);
    does_not("dir", BR_E_INVALID_IMAGE);
    int fd = openat(names, "short", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, b.id, 71), 71); /* no end of line */
    does_not("short", BR_E_INVALID_IMAGE);
    assert_int_equal(write(fd, "\n", 1), 1);
    resolves("short", b.id);
    assert_int_equal(fchmod(fd, 0622), 0);
    does_not("short", BR_E_INVALID_IMAGE);
    br_close(&fd);
    assert_int_equal(fchmod(names, 0722), 0);
    does_not("two", BR_E_INVALID_IMAGE);
    br_close(&names);
    /* the image of a name is gone */
    struct br_image_ids ids;
    assert_int_equal(br_image_ids_list(&s, &ids, NULL), 0);
    assert_int_equal(ids.n, 3);
    assert_string_equal(ids.ids[0], a.id);
    br_image_ids_free(&ids);
    br_image_store_close(&s);
}

static int count(void *ctx, struct br_walk_entry *e, struct br_err *err)
{
    char *order = ctx;
    (void)err;
    if (strlen(order) + strlen(e->path) < 200) {
        strcat(order, e->path);
        strcat(order, " ");
    }
    return 0;
}

static int ignore(void *ctx, struct br_walk_entry *e, struct br_err *err)
{
    (void)e, (void)err;
    ++*(unsigned *)ctx;
    return 0;
}

/* `n` directories within each other below `name`. */
static void nest(const char *name, unsigned n)
{
    int at = dup(state_fd);
    for (unsigned i = 0; i < n; i++) {
        const char *part = i ? "d" : name;
        assert_int_equal(mkdirat(at, part, 0700), 0);
        int next = openat(at, part, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(at);
        at = next;
        assert_true(at >= 0);
    }
    close(at);
}

static void test_walk(void **state)
{
    char order[256] = "";
    unsigned n = 0;
    (void)state;
    assert_int_equal(mkdirat(state_fd, "t", 0700), 0);
    BR_CLEANUP_FD int t = openat(state_fd, "t", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(t, "b", 0700), 0);
    assert_int_equal(mkdirat(t, "b/x", 0700), 0);
    assert_int_equal(symlinkat("..", t, "b/a"), 0);
    assert_int_equal(symlinkat("/", t, "a"), 0);
    assert_int_equal(mkdirat(t, "c", 0700), 0);
    assert_int_equal(br_walk(t, false, count, order, NULL), 0);
    assert_string_equal(order, "a b b/a b/x c ");
    nest("deep", BR_IMAGE_DEPTH_MAX);
    nest("deeper", BR_IMAGE_DEPTH_MAX + 1);
    BR_CLEANUP_FD int deep = openat(state_fd, "deep", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    BR_CLEANUP_FD int deeper = openat(state_fd, "deeper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(br_walk(deep, false, ignore, &n, NULL), 0);
    assert_int_equal(n, BR_IMAGE_DEPTH_MAX - 1);
    assert_int_equal(br_walk(deeper, false, ignore, &n, NULL), -BR_E_LIMIT_EXCEEDED);
}

static void test_remove(void **state)
{
    struct stat st;
    (void)state;
    nest("gone", 3000); /* its path is longer than a path may be */
    assert_int_equal(mkdirat(state_fd, "kept", 0700), 0);
    assert_int_equal(mkdirat(state_fd, "kept/in", 0700), 0);
    assert_int_equal(symlinkat("../kept", state_fd, "gone/link"), 0);
    assert_int_equal(mkdirat(state_fd, "gone/locked", 0700), 0);
    assert_int_equal(mkdirat(state_fd, "gone/locked/in", 0700), 0);
    assert_int_equal(mkdirat(state_fd, "gone/up.1", 0700), 0); /* a name that it would use */
    assert_int_equal(fchmodat(state_fd, "gone/locked/in", 0, 0), 0);
    assert_int_equal(fchmodat(state_fd, "gone/locked", 0, 0), 0);
    assert_int_equal(br_remove_tree(state_fd, "gone", NULL), 0);
    assert_int_equal(fstatat(state_fd, "gone", &st, 0), -1);
    assert_int_equal(fstatat(state_fd, "kept/in", &st, 0), 0);
    assert_int_equal(br_remove_tree(state_fd, "gone", NULL), 0); /* nothing to do */
    assert_int_equal(symlinkat("kept", state_fd, "way"), 0);
    assert_true(br_remove_tree(state_fd, "way", NULL) < 0); /* no directory */
    assert_int_equal(fstatat(state_fd, "kept/in", &st, 0), 0);
}

/* Two trees have one sum only if they are the same. */
static void test_tree_sum(void **state)
{
    uint8_t a[32], b[32], stamp[32], again[32];
    (void)state;
    nest("sum", 2);
    BR_CLEANUP_FD int t = openat(state_fd, "sum", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(br_image_hash_tree(t, NULL, a, stamp, NULL), 0);
    assert_int_equal(br_image_hash_tree(t, NULL, b, again, NULL), 0);
    assert_memory_equal(a, b, sizeof(a));
    assert_memory_equal(stamp, again, sizeof(a));
    assert_int_equal(symlinkat("x", t, "l"), 0);
    assert_int_equal(br_image_hash_tree(t, NULL, b, again, NULL), 0);
    assert_memory_not_equal(a, b, sizeof(a));
    assert_int_equal(unlinkat(t, "l", 0), 0);
    assert_int_equal(symlinkat("y", t, "l"), 0);
    assert_int_equal(br_image_hash_tree(t, NULL, a, stamp, NULL), 0);
    assert_memory_not_equal(a, b, sizeof(a)); /* another target */
    volatile int stop = 1;
    assert_int_equal(br_image_hash_tree(t, &stop, a, stamp, NULL), -BR_E_CANCELED);
}

static const char *variables[3];

static char *env(const char *name)
{
    static const char *const names[] = {"BRIDLE_STATE_DIR", "XDG_STATE_HOME", "HOME"};
    for (unsigned i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0)
            return (char *)(uintptr_t)variables[i];
    return NULL;
}

static void test_state(void **state)
{
    char path[BR_PATH_MAX];
    struct br_err err;
    (void)state;
    variables[0] = "/a/b";
    assert_int_equal(br_state_path(path, env, &err), 0);
    assert_string_equal(path, "/a/b");
    variables[0] = "relative";
    assert_int_equal(br_state_path(path, env, &err), -BR_E_STORE_FAILED);
    char longest[BR_PATH_MAX + 1];
    memset(longest, '/', sizeof(longest));
    longest[BR_PATH_MAX] = 0;
    variables[0] = longest;
    assert_int_equal(br_state_path(path, env, &err), -BR_E_STORE_FAILED);
    longest[BR_PATH_MAX - 1] = 0;
    assert_int_equal(br_state_path(path, env, &err), 0);
    variables[0] = "";
    variables[1] = "/xdg";
    variables[2] = "/home/x";
    assert_int_equal(br_state_path(path, env, &err), 0);
    assert_string_equal(path, geteuid() == 0 ? "/var/lib/bridle" : "/xdg/bridle");
    /* made, opened, and not if others may look */
    snprintf(path, sizeof(path), "%s/new/state", dir);
    BR_CLEANUP_FD int fd = br_state_open(path, &err);
    assert_true(fd >= 0);
    assert_int_equal(chmod(path, 0750), 0);
    assert_int_equal(br_state_open(path, &err), -BR_E_STORE_FAILED);
    assert_int_equal(chmod(path, 0700), 0);
    if (geteuid() == 0) { /* somebody else's, though nobody else may look */
        assert_int_equal(chown(path, 60997, 0), 0);
        assert_int_equal(br_state_open(path, &err), -BR_E_STORE_FAILED);
        assert_non_null(strstr(err.text, "belongs to uid 60997, and this is uid 0; nothing"));
        assert_int_equal(chown(path, 0, 0), 0);
        BR_CLEANUP_FD int again = br_state_open(path, &err);
        assert_true(again >= 0);
    }
    snprintf(longest, sizeof(longest), "%s/link", dir);
    assert_int_equal(symlink(path, longest), 0);
    assert_int_equal(br_state_open(longest, &err), -BR_E_STORE_FAILED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_names),
        cmocka_unit_test_setup_teardown(test_resolve, make, unmake),
        cmocka_unit_test_setup_teardown(test_walk, make, unmake),
        cmocka_unit_test_setup_teardown(test_remove, make, unmake),
        cmocka_unit_test_setup_teardown(test_tree_sum, make, unmake),
        cmocka_unit_test_setup_teardown(test_state, make, unmake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
