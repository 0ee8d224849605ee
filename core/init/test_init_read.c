/*
 * FS_READ, FS_LIST and FS_SEARCH with good and bad input: every way out of the workspace, files
 * that would block, and every limit at N and N + 1.
 */
#include "init/test_init.h"

static struct ws ws;
static struct br_init in;

static int setup(void **state)
{
    (void)state;
    ws_make(&ws);
    in = (struct br_init){.root = ws.fd};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ws_remove(&ws);
    return 0;
}

static struct result op(br_init_op_fn *fn, unsigned number, const char *path, const char *text,
                        unsigned flag, uint64_t offset, uint64_t limit)
{
    struct br_init_call c;
    call_init(&c, number, path);
    if (text)
        br_buf_put(&c.text, text, strlen(text));
    c.flag = (uint8_t)flag;
    c.offset = offset;
    c.limit = limit;
    return run_op(&in, fn, &c);
}

static struct result do_read(const char *path, uint64_t offset, uint64_t limit)
{
    return op(br_init_fs_read, BR_OP_FS_READ, path, NULL, 0, offset, limit);
}

static struct result do_list(const char *path, bool recursive, uint64_t limit)
{
    return op(br_init_fs_list, BR_OP_FS_LIST, path, NULL, recursive, 0, limit);
}

static struct result do_search(const char *path, const char *needle, bool fold, uint64_t limit)
{
    return op(br_init_fs_search, BR_OP_FS_SEARCH, path, needle, fold, 0, limit);
}

/* ---- paths ---- */

static void bad_paths_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",      ".",     "..",   "../x",  "a/../b", "/etc/passwd",
                                      "a//b",  "a/",    "./a",  "a/.",   "a\nb",   "a\x1b",
                                      "a\x7f", "a\xff", "a/..", "a/./b", "\xc3",   "a\xc3/b"};
    ws_puts(&ws, "a", "inside");
    for (unsigned i = 0; i < BR_ARRAY_LEN(bad); i++) {
        struct result r = do_read(bad[i], 0, 0);
        assert_refused(&r, BR_E_INVALID_ARGUMENTS, "");
    }
    /* names that only look dangerous are fine */
    static const char *const good[] = {"...", "..a", ".a", "a b", "\xc3\xa4", "-rf", "a.."};
    for (unsigned i = 0; i < BR_ARRAY_LEN(good); i++) {
        ws_puts(&ws, good[i], "x");
        struct result r = do_read(good[i], 0, 0);
        assert_int_equal(r.code, 0);
        result_free(&r);
    }
}

static void symlinks_are_named_and_not_followed(void **state)
{
    (void)state;
    assert_int_equal(mkdirat(ws.fd, "real", 0755), 0);
    ws_puts(&ws, "real/f", "inside");
    assert_int_equal(symlinkat("real", ws.fd, "dirlink"), 0);
    assert_int_equal(symlinkat("real/f", ws.fd, "link"), 0);
    assert_int_equal(symlinkat("/etc/hostname", ws.fd, "out"), 0);
    struct result r = do_read("real/f", 0, 0); /* the control */
    assert_string_equal(res_str(&r, "content"), "inside");
    result_free(&r);
    r = do_read("link", 0, 0);
    assert_refused(&r, BR_E_DENIED, "'link' is a symbolic link");
    r = do_read("out", 0, 0);
    assert_refused(&r, BR_E_DENIED, "'out' is a symbolic link");
    r = do_read("dirlink/f", 0, 0);
    assert_refused(&r, BR_E_DENIED, "'dirlink' is a symbolic link");
    r = do_list("dirlink", false, 0);
    assert_refused(&r, BR_E_DENIED, "'dirlink' is a symbolic link");
    r = do_search("dirlink", "inside", false, 0);
    assert_refused(&r, BR_E_DENIED, "'dirlink' is a symbolic link");
    char *via = ws_get(&ws, "dirlink/f"); /* an ordinary open does follow: the attack is real */
    assert_string_equal(via, "inside");
    free(via);
}

/* ---- read ---- */

static void reads_text(void **state)
{
    (void)state;
    ws_puts(&ws, "a", "0123456789");
    struct result r = do_read("a", 0, 0);
    assert_string_equal(res_str(&r, "content"), "0123456789");
    assert_int_equal(res_int(&r, "bytes"), 10);
    assert_string_equal(res_str(&r, "encoding"), "utf-8");
    assert_false(res_bool(&r, "truncated"));
    assert_null(json_object_get(r.json, "nextOffset"));
    result_free(&r);
    r = do_read("a", 3, 4);
    assert_string_equal(res_str(&r, "content"), "3456");
    assert_true(res_bool(&r, "truncated"));
    assert_int_equal(res_int(&r, "nextOffset"), 7);
    assert_int_equal(res_int(&r, "size"), 10);
    result_free(&r);
    r = do_read("a", 7, 3); /* exactly to the end */
    assert_false(res_bool(&r, "truncated"));
    result_free(&r);
    static const uint64_t beyond[] = {10, 11, 1ull << 40, UINT64_MAX};
    for (unsigned i = 0; i < BR_ARRAY_LEN(beyond); i++) {
        r = do_read("a", beyond[i], 0);
        assert_int_equal(r.code, 0);
        assert_string_equal(res_str(&r, "content"), "");
        assert_false(res_bool(&r, "truncated"));
        result_free(&r);
    }
    ws_puts(&ws, "empty", "");
    r = do_read("empty", 0, 0);
    assert_string_equal(res_str(&r, "content"), "");
    result_free(&r);
}

static void reads_what_is_not_text_as_base64(void **state)
{
    (void)state;
    ws_put(&ws, "bin", "\xff\xfe\x00\x01", 4);
    struct result r = do_read("bin", 0, 0);
    assert_string_equal(res_str(&r, "encoding"), "base64");
    assert_string_equal(res_str(&r, "content"), "//4AAQ==");
    assert_int_equal(res_int(&r, "bytes"), 4);
    result_free(&r);
    ws_put(&ws, "nul", "a\0b", 3);
    r = do_read("nul", 0, 0);
    assert_string_equal(res_str(&r, "encoding"), "base64");
    result_free(&r);
}

static void cuts_between_characters(void **state)
{
    (void)state;
    ws_puts(&ws, "u",
            "ab\xe2\x82\xac"
            "cd");
    for (unsigned limit = 3; limit <= 4; limit++) {
        struct result r = do_read("u", 0, limit);
        assert_string_equal(res_str(&r, "content"), "ab");
        assert_int_equal(res_int(&r, "nextOffset"), 2);
        result_free(&r);
    }
    struct result r = do_read("u", 2, 3);
    assert_string_equal(res_str(&r, "content"), "\xe2\x82\xac");
    result_free(&r);
}

static void read_is_bounded(void **state)
{
    (void)state;
    char *big = malloc(BR_INIT_READ_MAX + 1);
    memset(big, 'x', BR_INIT_READ_MAX + 1);
    ws_put(&ws, "n", big, BR_INIT_READ_MAX);
    ws_put(&ws, "n1", big, BR_INIT_READ_MAX + 1);
    struct result r = do_read("n", 0, UINT64_MAX);
    assert_int_equal(res_int(&r, "bytes"), BR_INIT_READ_MAX);
    assert_false(res_bool(&r, "truncated"));
    result_free(&r);
    r = do_read("n1", 0, 0);
    assert_int_equal(res_int(&r, "bytes"), BR_INIT_READ_MAX);
    assert_true(res_bool(&r, "truncated"));
    assert_int_equal(res_int(&r, "nextOffset"), BR_INIT_READ_MAX);
    result_free(&r);
    memset(big, 1, BR_INIT_READ_MAX); /* six bytes of JSON for each */
    ws_put(&ws, "ctl", big, BR_INIT_READ_MAX);
    r = do_read("ctl", 0, 0);
    assert_int_equal(r.code, 0);
    assert_true(res_bool(&r, "truncated"));
    assert_int_equal(res_int(&r, "nextOffset"), res_int(&r, "bytes"));
    assert_true(res_int(&r, "bytes") >= 1024);
    result_free(&r);
    free(big);
    /* a huge sparse file costs nothing */
    int fd = openat(ws.fd, "huge", O_WRONLY | O_CREAT, 0644);
    assert_int_equal(ftruncate(fd, (off_t)1 << 40), 0);
    close(fd);
    r = do_read("huge", (1ull << 40) - 2, 0);
    assert_int_equal(res_int(&r, "bytes"), 2);
    assert_false(res_bool(&r, "truncated"));
    result_free(&r);
}

static void reads_only_regular_files(void **state)
{
    (void)state;
    struct result r = do_read("missing", 0, 0);
    assert_refused(&r, BR_E_NOT_FOUND, "'missing' does not exist; it was not read");
    assert_int_equal(mkdirat(ws.fd, "d", 0755), 0);
    r = do_read("d", 0, 0);
    assert_refused(&r, BR_E_INVALID_ARGUMENTS, "'d' is a directory");
    ws_puts(&ws, "f", "x");
    r = do_read("f/x", 0, 0);
    assert_refused(&r, BR_E_NOT_FOUND, "not a directory");
    assert_int_equal(mkfifoat(ws.fd, "fifo", 0644), 0);
    r = do_read("fifo", 0, 0); /* must not wait for a writer */
    assert_refused(&r, BR_E_INVALID_ARGUMENTS, "'fifo' is not a regular file");
    char name[300];
    memset(name, 'n', 299);
    name[299] = 0;
    r = do_read(name, 0, 0);
    assert_refused(&r, BR_E_INVALID_ARGUMENTS, "too long");
    if (geteuid() == 0) /* as an ordinary user, what the mode forbids stays forbidden */
        return;
    ws_puts(&ws, "secret", "x");
    assert_int_equal(fchmodat(ws.fd, "secret", 0, 0), 0);
    r = do_read("secret", 0, 0);
    assert_refused(&r, BR_E_DENIED, "may not be accessed");
}

/* ---- list ---- */

static const char *entry(const struct result *r, size_t i, const char *key)
{
    return json_string_value(
        json_object_get(json_array_get(json_object_get(r->json, "entries"), i), key));
}

static void lists_sorted(void **state)
{
    (void)state;
    ws_puts(&ws, "b", "12345");
    ws_puts(&ws, "a.txt", "");
    assert_int_equal(mkdirat(ws.fd, "a", 0755), 0);
    ws_puts(&ws, "a/z", "1");
    assert_int_equal(symlinkat("/etc", ws.fd, "l"), 0);
    assert_int_equal(mkfifoat(ws.fd, "p", 0644), 0);
    for (int i = 0; i < 2; i++) {
        struct result r = do_list(i ? "." : "", false, 0);
        assert_int_equal(json_array_size(json_object_get(r.json, "entries")), 5);
        static const char *const want[][2] = {
            {"a", "dir"}, {"a.txt", "file"}, {"b", "file"}, {"l", "link"}, {"p", "other"}};
        for (unsigned k = 0; k < 5; k++) {
            assert_string_equal(entry(&r, k, "name"), want[k][0]);
            assert_string_equal(entry(&r, k, "type"), want[k][1]);
        }
        assert_false(res_bool(&r, "truncated"));
        result_free(&r);
    }
    struct result r = do_list("", true, 0);
    assert_int_equal(json_array_size(json_object_get(r.json, "entries")), 6); /* l not entered */
    assert_string_equal(entry(&r, 0, "name"), "a");
    assert_string_equal(entry(&r, 1, "name"), "a/z");
    assert_string_equal(entry(&r, 2, "name"), "a.txt");
    result_free(&r);
    r = do_list("a", false, 0);
    assert_string_equal(entry(&r, 0, "name"), "z");
    result_free(&r);
    r = do_list("b", false, 0);
    assert_refused(&r, BR_E_NOT_FOUND, "not a directory");
    r = do_list("missing", false, 0);
    assert_refused(&r, BR_E_NOT_FOUND, "it was not listed");
    r = do_list("..", false, 0);
    assert_refused(&r, BR_E_INVALID_ARGUMENTS, "");
}

static void list_is_bounded(void **state)
{
    (void)state;
    assert_int_equal(mkdirat(ws.fd, "many", 0755), 0);
    for (unsigned i = 0; i < BR_INIT_LIST_MAX; i++) {
        char name[32];
        snprintf(name, sizeof(name), "many/%05u", i);
        ws_puts(&ws, name, "");
    }
    struct result r = do_list("many", false, UINT64_MAX);
    assert_int_equal(json_array_size(json_object_get(r.json, "entries")), BR_INIT_LIST_MAX);
    assert_false(res_bool(&r, "truncated"));
    result_free(&r);
    ws_puts(&ws, "many/x", "");
    r = do_list("many", false, UINT64_MAX);
    assert_int_equal(json_array_size(json_object_get(r.json, "entries")), BR_INIT_LIST_MAX);
    assert_true(res_bool(&r, "truncated"));
    result_free(&r);
    r = do_list("many", false, 3);
    assert_int_equal(json_array_size(json_object_get(r.json, "entries")), 3);
    assert_true(res_bool(&r, "truncated"));
    result_free(&r);
    /* long names: cut by the size of the result, and said */
    for (unsigned i = 0; i < 900; i++) {
        char name[300] = "many/";
        memset(name + 5, 'n', 240);
        snprintf(name + 245, sizeof(name) - 245, "%05u", i);
        ws_puts(&ws, name, "");
    }
    r = do_list("many", false, 0);
    assert_int_equal(r.code, 0);
    result_free(&r);
    r = do_list("", true, 1000);
    assert_true(res_bool(&r, "truncated"));
    result_free(&r);
}

static void depth_is_bounded(void **state)
{
    (void)state;
    int fd = dup(ws.fd);
    for (unsigned i = 0; i < BR_INIT_WALK_DEPTH - 1; i++) {
        assert_int_equal(mkdirat(fd, "d", 0755), 0);
        int next = openat(fd, "d", O_PATH | O_DIRECTORY);
        close(fd);
        fd = next;
    }
    struct result r = do_list("", true, 0);
    assert_int_equal(json_array_size(json_object_get(r.json, "entries")), BR_INIT_WALK_DEPTH - 1);
    assert_false(res_bool(&r, "truncated"));
    result_free(&r);
    assert_int_equal(mkdirat(fd, "d", 0755), 0);
    close(fd);
    r = do_list("", true, 0);
    assert_int_equal(json_array_size(json_object_get(r.json, "entries")), BR_INIT_WALK_DEPTH);
    assert_true(res_bool(&r, "truncated"));
    result_free(&r);
}

/* ---- search ---- */

static json_t *match(const struct result *r, size_t i)
{
    return json_array_get(json_object_get(r->json, "matches"), i);
}

static void assert_match(const struct result *r, size_t i, const char *path, int line,
                         const char *text)
{
    assert_string_equal(json_string_value(json_object_get(match(r, i), "path")), path);
    assert_int_equal(json_integer_value(json_object_get(match(r, i), "line")), line);
    assert_string_equal(json_string_value(json_object_get(match(r, i), "text")), text);
}

static size_t nmatches(const struct result *r)
{
    return json_array_size(json_object_get(r->json, "matches"));
}

static void searches_lines(void **state)
{
    (void)state;
    assert_int_equal(mkdirat(ws.fd, "src", 0755), 0);
    ws_puts(&ws, "src/a.c", "one\nint main(void)\r\n\nmain main\nlast MAIN");
    ws_puts(&ws, "z", "nothing\n");
    ws_put(&ws, "bin", "main\0main", 9);
    assert_int_equal(symlinkat("/etc/passwd", ws.fd, "out"), 0);
    assert_int_equal(mkfifoat(ws.fd, "fifo", 0644), 0);
    struct result r = do_search("", "main", false, 0);
    assert_int_equal(nmatches(&r), 2); /* a line with two matches counts once */
    assert_match(&r, 0, "src/a.c", 2, "int main(void)");
    assert_match(&r, 1, "src/a.c", 4, "main main");
    assert_int_equal(res_int(&r, "filesSearched"), 2);
    assert_int_equal(res_int(&r, "binarySkipped"), 1);
    assert_false(res_bool(&r, "truncated"));
    result_free(&r);
    r = do_search("src", "Main", true, 0);
    assert_int_equal(nmatches(&r), 3);
    assert_match(&r, 2, "src/a.c", 5, "last MAIN");
    result_free(&r);
    r = do_search("src/a.c", "one", false, 0);
    assert_match(&r, 0, "src/a.c", 1, "one");
    result_free(&r);
    r = do_search("", ".*", false, 0); /* literal, not a pattern */
    assert_int_equal(nmatches(&r), 0);
    result_free(&r);
    r = do_search("fifo", "x", false, 0);
    assert_refused(&r, BR_E_INVALID_ARGUMENTS, "neither a file nor a directory");
    r = do_search("missing", "x", false, 0);
    assert_refused(&r, BR_E_NOT_FOUND, "it was not searched");
}

static void search_checks_its_needle(void **state)
{
    (void)state;
    ws_puts(&ws, "a", "x\n");
    struct result r = do_search("", "", false, 0);
    assert_refused(&r, BR_E_INVALID_ARGUMENTS, "one line");
    r = do_search("", "a\nb", false, 0);
    assert_refused(&r, BR_E_INVALID_ARGUMENTS, "one line");
    char needle[BR_INIT_NEEDLE_MAX + 2];
    memset(needle, 'x', sizeof(needle));
    needle[BR_INIT_NEEDLE_MAX] = 0;
    r = do_search("", needle, false, 0);
    assert_int_equal(r.code, 0);
    result_free(&r);
    needle[BR_INIT_NEEDLE_MAX] = 'x';
    needle[BR_INIT_NEEDLE_MAX + 1] = 0;
    r = do_search("", needle, false, 0);
    assert_refused(&r, BR_E_INVALID_ARGUMENTS, "one line");
}

static void search_is_bounded(void **state)
{
    (void)state;
    struct br_buf b = BR_BUF_INIT(BR_BLOB_MAX);
    for (unsigned i = 0; i < BR_INIT_MATCHES_MAX; i++)
        br_buf_printf(&b, "hit %u\n", i);
    ws_put(&ws, "a", b.data, b.len);
    struct result r = do_search("", "hit", false, UINT64_MAX);
    assert_int_equal(nmatches(&r), BR_INIT_MATCHES_MAX);
    assert_false(res_bool(&r, "truncated"));
    result_free(&r);
    br_buf_printf(&b, "hit\n");
    ws_put(&ws, "a", b.data, b.len);
    r = do_search("", "hit", false, UINT64_MAX);
    assert_int_equal(nmatches(&r), BR_INIT_MATCHES_MAX);
    assert_true(res_bool(&r, "truncated"));
    result_free(&r);
    r = do_search("", "hit", false, 2);
    assert_int_equal(nmatches(&r), 2);
    assert_true(res_bool(&r, "truncated"));
    result_free(&r);
    /* one line of a megabyte: what is around the match is shown */
    br_buf_reset(&b);
    for (unsigned i = 0; i < 300000; i++)
        br_buf_put(&b, "\xe2\x82\xac", 3);
    br_buf_printf(&b, "needle");
    for (unsigned i = 0; i < 1000; i++)
        br_buf_put(&b, "\xe2\x82\xac", 3);
    ws_put(&ws, "a", b.data, b.len);
    r = do_search("", "needle", false, 0);
    const char *text = json_string_value(json_object_get(match(&r, 0), "text"));
    assert_non_null(strstr(text, "needle"));
    assert_true(strlen(text) <= BR_INIT_LINE_MAX);
    assert_null(strstr(text, "\xef\xbf\xbd"));
    result_free(&r);
    /* files at and over the size that is searched */
    int fd = openat(ws.fd, "a", O_WRONLY | O_TRUNC);
    assert_int_equal(pwrite(fd, "needle", 6, BR_INIT_SEARCH_FILE_MAX - 6), 6);
    assert_int_equal(pwrite(fd, "xxxxxxxxxx", 10, 0), 10);
    for (unsigned i = 0; i < BR_INIT_SEARCH_FILE_MAX - 6; i += 4096)
        assert_int_equal(pwrite(fd, "\n", 1, i), 1);
    r = do_search("a", "needle", false, 0);
    assert_int_equal(res_int(&r, "binarySkipped"), 1); /* a sparse file is full of NUL */
    result_free(&r);
    br_buf_reset(&b);
    for (unsigned i = 0; i < BR_INIT_SEARCH_FILE_MAX - 6; i++)
        br_buf_put_u8(&b, i % 64 ? 'x' : '\n');
    br_buf_printf(&b, "needle");
    ws_put(&ws, "a", b.data, b.len);
    r = do_search("a", "needle", false, 0);
    assert_int_equal(nmatches(&r), 1);
    assert_false(res_bool(&r, "truncated"));
    result_free(&r);
    b.data[0] = 'x';
    br_buf_put_u8(&b, '\n');
    ws_put(&ws, "a", b.data, b.len);
    r = do_search("a", "needle", false, 0);
    assert_int_equal(nmatches(&r), 1);
    assert_true(res_bool(&r, "truncated"));
    result_free(&r);
    close(fd);
    br_buf_free(&b);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(bad_paths_are_refused),
        T(symlinks_are_named_and_not_followed),
        T(reads_text),
        T(reads_what_is_not_text_as_base64),
        T(cuts_between_characters),
        T(read_is_bounded),
        T(reads_only_regular_files),
        T(lists_sorted),
        T(list_is_bounded),
        T(depth_is_bounded),
        T(searches_lines),
        T(search_checks_its_needle),
        T(search_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
