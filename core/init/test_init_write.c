/*
 * FS_WRITE, FS_EDIT and INIT_SNAPSHOT: what is written, what is refused with nothing changed, and
 * how both behave on the read-only tree with writable islands that a sandbox has.
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
    br_init_snapshot_free(&in.base);
    ws_remove(&ws);
    return 0;
}

static struct result do_write(const char *path, const char *text)
{
    struct br_init_call c;
    call_init(&c, BR_OP_FS_WRITE, path);
    br_buf_put(&c.text, text, strlen(text));
    return run_op(&in, br_init_fs_write, &c);
}

static struct result do_edit(const char *path, const char *old, const char *new, bool all)
{
    struct br_init_call c;
    call_init(&c, BR_OP_FS_EDIT, path);
    br_buf_put(&c.text, old, strlen(old));
    br_buf_put(&c.text2, new, strlen(new));
    c.flag = all;
    return run_op(&in, br_init_fs_edit, &c);
}

/* How many entries there are, so that a temporary file left behind is seen. */
static unsigned entries(const char *path)
{
    struct br_init_call c;
    call_init(&c, BR_OP_FS_LIST, path);
    c.flag = 1;
    struct result r = run_op(&in, br_init_fs_list, &c);
    unsigned n = (unsigned)json_array_size(json_object_get(r.json, "entries"));
    result_free(&r);
    return n;
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(fstatat(ws.fd, path, &st, 0), 0);
    return st.st_mode & 07777;
}

static void writes_a_new_file(void **state)
{
    (void)state;
    struct result r = do_write("a", "hello");
    assert_int_equal(r.code, 0);
    assert_true(res_bool(&r, "created"));
    assert_int_equal(res_int(&r, "bytes"), 5);
    result_free(&r);
    ws_same(&ws, "a", "hello");
    assert_int_equal(mode_of("a"), 0644);
    r = do_write("x/y/z", "deep");
    assert_int_equal(r.code, 0);
    result_free(&r);
    ws_same(&ws, "x/y/z", "deep");
    r = do_write("empty", "");
    assert_int_equal(r.code, 0);
    result_free(&r);
    ws_same(&ws, "empty", "");
    assert_int_equal(entries(""), 5);
}

static void replaces_a_file_and_keeps_its_mode(void **state)
{
    (void)state;
    ws_puts(&ws, "run.sh", "old and longer");
    assert_int_equal(fchmodat(ws.fd, "run.sh", 0750, 0), 0);
    struct result r = do_write("run.sh", "new");
    assert_false(res_bool(&r, "created"));
    result_free(&r);
    ws_same(&ws, "run.sh", "new");
    assert_int_equal(mode_of("run.sh"), 0750);
    assert_int_equal(fchmodat(ws.fd, "run.sh", 04755, 0), 0);
    r = do_write("run.sh", "newer");
    assert_int_equal(r.code, 0);
    result_free(&r);
    assert_int_equal(mode_of("run.sh"), 0755); /* never a setuid file */
    assert_int_equal(entries(""), 1);
}

static void refuses_what_is_not_a_plain_file(void **state)
{
    (void)state;
    ws_puts(&ws, "f", "untouched");
    assert_int_equal(mkdirat(ws.fd, "d", 0755), 0);
    assert_int_equal(symlinkat("f", ws.fd, "link"), 0);
    assert_int_equal(symlinkat("d", ws.fd, "dlink"), 0);
    assert_int_equal(symlinkat("nowhere", ws.fd, "dangling"), 0);
    assert_int_equal(mkfifoat(ws.fd, "fifo", 0644), 0);
    ws_puts(&ws, "h1", "untouched");
    assert_int_equal(linkat(ws.fd, "h1", ws.fd, "h2", 0), 0);
    unsigned before = entries("");
    struct result r = do_write("link", "evil");
    assert_refused(&r, BR_E_DENIED, "'link' is a symbolic link");
    r = do_write("dangling", "evil");
    assert_refused(&r, BR_E_DENIED, "'dangling' is a symbolic link");
    r = do_write("dlink/new", "evil");
    assert_refused(&r, BR_E_DENIED, "'dlink' is a symbolic link");
    r = do_write("d", "evil");
    assert_refused(&r, BR_E_INVALID_ARGUMENTS, "'d' is a directory");
    r = do_write("fifo", "evil");
    assert_refused(&r, BR_E_INVALID_ARGUMENTS, "not a regular file");
    r = do_write("h1", "evil");
    assert_refused(&r, BR_E_DENIED, "2 names");
    r = do_edit("h1", "untouched", "evil", false);
    assert_refused(&r, BR_E_DENIED, "2 names");
    r = do_write("f/x", "evil");
    assert_refused(&r, BR_E_NOT_FOUND, "not a directory");
    static const char *const bad[] = {"", ".", "../x", "/tmp/x", "d/../f", "d//x", "x/"};
    for (unsigned i = 0; i < BR_ARRAY_LEN(bad); i++) {
        r = do_write(bad[i], "evil");
        assert_refused(&r, BR_E_INVALID_ARGUMENTS, "");
    }
    assert_int_equal(entries(""), before);
    ws_same(&ws, "f", "untouched");
    ws_same(&ws, "h1", "untouched");
    assert_false(ws_has(&ws, "nowhere"));
    assert_int_equal(entries("d"), 0);
}

static void write_is_bounded(void **state)
{
    (void)state;
    struct br_init_call c;
    for (unsigned extra = 0; extra < 2; extra++) {
        call_init(&c, BR_OP_FS_WRITE, "big");
        uint8_t *zero = calloc(1, BR_INIT_FILE_MAX + 1);
        br_buf_put(&c.text, zero, BR_INIT_FILE_MAX + extra);
        free(zero);
        struct result r = run_op(&in, br_init_fs_write, &c);
        struct stat st;
        if (extra)
            assert_refused(&r, BR_E_LIMIT_EXCEEDED, "it was not written");
        else
            assert_int_equal(r.code, 0);
        result_free(&r);
        assert_int_equal(fstatat(ws.fd, "big", &st, 0), 0);
        assert_int_equal(st.st_size, BR_INIT_FILE_MAX);
    }
}

static void failure_takes_everything_back(void **state)
{
    (void)state;
    char path[400] = "new/deeper/";
    memset(path + 11, 'n', 300);
    path[311] = 0;
    struct result r = do_write(path, "x"); /* the directories can be made, the file cannot */
    assert_refused(&r, BR_E_INVALID_ARGUMENTS, "too long");
    assert_int_equal(entries(""), 0);
}

/* ---- edit ---- */

static void edits_exactly_one_place(void **state)
{
    (void)state;
    ws_puts(&ws, "a.c", "int a = 1;\nint b = 1;\n");
    assert_int_equal(fchmodat(ws.fd, "a.c", 0600, 0), 0);
    struct result r = do_edit("a.c", "int a = 1;", "int a = 2;", false);
    assert_int_equal(r.code, 0);
    assert_int_equal(res_int(&r, "replaced"), 1);
    assert_int_equal(res_int(&r, "bytes"), 22);
    result_free(&r);
    ws_same(&ws, "a.c", "int a = 2;\nint b = 1;\n");
    assert_int_equal(mode_of("a.c"), 0600);
    r = do_edit("a.c", "\nint b = 1;\n", "", false); /* removal */
    assert_int_equal(r.code, 0);
    result_free(&r);
    ws_same(&ws, "a.c", "int a = 2;");
}

static void edit_says_why_not(void **state)
{
    (void)state;
    ws_puts(&ws, "a", "x y x y xx");
    struct result r = do_edit("a", "z", "q", false);
    assert_int_equal(res_int(&r, "occurrences"), 0);
    assert_refused(&r, BR_E_INVALID_ARGUMENTS, "does not occur in 'a'; it was not changed");
    r = do_edit("a", "z", "q", true);
    assert_refused(&r, BR_E_INVALID_ARGUMENTS, "does not occur");
    r = do_edit("a", "x", "q", false);
    assert_int_equal(res_int(&r, "occurrences"), 4);
    assert_refused(&r, BR_E_INVALID_ARGUMENTS, "occurs 4 times");
    r = do_edit("a", "", "q", false);
    assert_refused(&r, BR_E_INVALID_ARGUMENTS, "is empty");
    r = do_edit("missing", "x", "q", false);
    assert_refused(&r, BR_E_NOT_FOUND, "'missing' does not exist");
    ws_same(&ws, "a", "x y x y xx");
    r = do_edit("a", "x", "qq", true);
    assert_int_equal(res_int(&r, "replaced"), 4);
    result_free(&r);
    ws_same(&ws, "a", "qq y qq y qqqq");
    assert_int_equal(entries(""), 1);
}

static void edit_is_bounded(void **state)
{
    (void)state;
    char *big = malloc(BR_INIT_FILE_MAX + 1);
    memset(big, 'x', BR_INIT_FILE_MAX + 1);
    big[0] = 'a';
    ws_put(&ws, "n", big, BR_INIT_FILE_MAX);
    ws_put(&ws, "n1", big, BR_INIT_FILE_MAX + 1);
    free(big);
    struct result r = do_edit("n", "a", "b", false);
    assert_int_equal(r.code, 0);
    result_free(&r);
    r = do_edit("n", "b", "bb", false); /* would become too large */
    assert_refused(&r, BR_E_LIMIT_EXCEEDED, "would become larger");
    r = do_edit("n1", "a", "b", false);
    assert_refused(&r, BR_E_LIMIT_EXCEEDED, "is larger than");
    char first;
    int fd = openat(ws.fd, "n1", O_RDONLY);
    assert_int_equal(read(fd, &first, 1), 1);
    close(fd);
    assert_int_equal(first, 'a');
}

/* ---- on mounts like those of a sandbox ---- */

static void bind(const char *path, bool read_only)
{
    char full[BR_PATH_MAX];
    snprintf(full, sizeof(full), "%s/%s", ws.dir, path);
    assert_int_equal(mount(full, full, NULL, MS_BIND, NULL), 0);
    if (read_only)
        assert_int_equal(mount(NULL, full, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL), 0);
}

/* The workspace read-only, but the file 'only' and the tree 'src'. */
static void in_sandbox_mounts(void)
{
    bool root = geteuid() == 0;
    unsigned uid = getuid(), gid = getgid();
    char map[64];
    assert_int_equal(unshare(CLONE_NEWNS | (root ? 0 : CLONE_NEWUSER)), 0);
    if (!root) {
        put_map("/proc/self/setgroups", "deny");
        snprintf(map, sizeof(map), "%u %u 1", uid, uid);
        put_map("/proc/self/uid_map", map);
        snprintf(map, sizeof(map), "%u %u 1", gid, gid);
        put_map("/proc/self/gid_map", map);
    }
    assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    bind("only", false);
    bind("src", false);
    /* the bind of the tree comes last and takes the islands along */
    assert_int_equal(mount(ws.dir, ws.dir, NULL, MS_BIND | MS_REC, NULL), 0);
    assert_int_equal(mount(NULL, ws.dir, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL), 0);
    in.root = open(ws.dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(in.root >= 0);
}

static void sandbox_mounts_body(void)
{
    in_sandbox_mounts();
    struct result r = do_write("f", "evil");
    assert_refused(&r, BR_E_DENIED, "'f' is not among the paths that this run may write");
    r = do_write("new", "evil");
    assert_refused(&r, BR_E_DENIED, "'new' is not among the paths that this run may write");
    r = do_write("newdir/x", "evil");
    assert_refused(&r, BR_E_DENIED, "not among the paths that this run may write");
    r = do_edit("f", "untouched", "evil", false);
    assert_refused(&r, BR_E_DENIED, "not among the paths that this run may write; it was not");
    r = do_write("src/a", "good");
    assert_int_equal(r.code, 0);
    result_free(&r);
    r = do_write("src/sub/b", "good");
    assert_int_equal(r.code, 0);
    result_free(&r);
    static const char *const texts[] = {"longer than what was there before", "short", ""};
    for (unsigned i = 0; i < 3; i++) {
        r = do_write("only", texts[i]);
        assert_int_equal(r.code, 0);
        assert_false(res_bool(&r, "created"));
        result_free(&r);
        ws_same(&ws, "only", texts[i]);
    }
    r = do_write("only", "final one");
    result_free(&r);
    r = do_edit("only", "one", "two", false);
    assert_int_equal(r.code, 0);
    result_free(&r);
}

static void writable_islands(void **state)
{
    (void)state;
    ws_puts(&ws, "f", "untouched");
    ws_puts(&ws, "only", "old");
    assert_int_equal(mkdirat(ws.fd, "src", 0755), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        sandbox_mounts_body(); /* a failed assertion leaves with another status */
        _exit(42);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 42);
    ws_same(&ws, "f", "untouched");
    ws_same(&ws, "src/a", "good");
    ws_same(&ws, "only", "final two");
    assert_false(ws_has(&ws, "new"));
    assert_false(ws_has(&ws, "newdir"));
    assert_int_equal(entries(""), 6); /* f only src src/a src/sub src/sub/b */
}

/* ---- snapshot ---- */

static struct result do_snapshot(void)
{
    struct result r = {.code = 0};
    struct br_buf out = BR_BUF_INIT(BR_TOOL_JSON_MAX);
    assert_int_equal(br_init_snapshot(&in, &out, &r.err), 0);
    r.json = parse_json(out.data, out.len);
    br_buf_free(&out);
    return r;
}

static void assert_change(const struct result *r, size_t i, const char *path, const char *what)
{
    json_t *c = json_array_get(json_object_get(r->json, "changed"), i);
    assert_string_equal(json_string_value(json_object_get(c, "path")), path);
    assert_string_equal(json_string_value(json_object_get(c, "change")), what);
}

static size_t nchanges(const struct result *r)
{
    return json_array_size(json_object_get(r->json, "changed"));
}

static void snapshot_tells_what_changed(void **state)
{
    (void)state;
    ws_puts(&ws, "a", "1");
    ws_puts(&ws, "a!", "1");
    ws_puts(&ws, "gone", "1");
    ws_puts(&ws, "sneaky", "1");
    assert_int_equal(mkdirat(ws.fd, "d", 0755), 0);
    ws_puts(&ws, "d/x", "1");
    ws_puts(&ws, "d.txt", "1");
    struct result r = do_snapshot();
    assert_int_equal(nchanges(&r), 0);
    assert_false(res_bool(&r, "truncated"));
    result_free(&r);
    r = do_snapshot();
    assert_int_equal(nchanges(&r), 0);
    result_free(&r);
    sleep_ms(20); /* more than one tick of the clock of file times */
    ws_puts(&ws, "a", "22");
    ws_puts(&ws, "d/new", "3");
    assert_int_equal(unlinkat(ws.fd, "gone", 0), 0);
    /* same size, and the old modification time put back */
    struct stat st;
    assert_int_equal(fstatat(ws.fd, "sneaky", &st, 0), 0);
    ws_puts(&ws, "sneaky", "2");
    struct timespec times[2] = {st.st_atim, st.st_mtim};
    assert_int_equal(utimensat(ws.fd, "sneaky", times, 0), 0);
    r = do_snapshot();
    assert_int_equal(nchanges(&r), 4);
    assert_change(&r, 0, "a", "modified");
    assert_change(&r, 1, "d/new", "added");
    assert_change(&r, 2, "gone", "removed");
    assert_change(&r, 3, "sneaky", "modified");
    json_t *first = json_array_get(json_object_get(r.json, "changed"), 0);
    assert_int_equal(json_integer_value(json_object_get(first, "size")), 2);
    assert_false(res_bool(&r, "truncated"));
    result_free(&r);
    r = do_snapshot(); /* always against the first */
    assert_int_equal(nchanges(&r), 4);
    result_free(&r);
}

static const char *set_group(const struct result *r, unsigned i)
{
    json_t *c = json_array_get(json_object_get(r->json, "changed"), i);
    return json_string_value(json_object_get(c, "set_group"));
}

/* A set-group-id program that a run made does not stay; one that was there, and directories do. */
static void snapshot_clears_set_group(void **state)
{
    (void)state;
    ws_puts(&ws, "old", "1");
    ws_puts(&ws, "later", "1");
    assert_int_equal(fchmodat(ws.fd, "old", 02755, 0), 0);
    struct result r = do_snapshot();
    result_free(&r);
    sleep_ms(20);
    ws_puts(&ws, "plain", "1");
    ws_puts(&ws, "new", "1");
    assert_int_equal(mkdirat(ws.fd, "team", 0755), 0);
    assert_int_equal(fchmodat(ws.fd, "team", 02775, 0), 0);
    assert_int_equal(fchmodat(ws.fd, "later", 02711, 0), 0);
    assert_int_equal(fchmodat(ws.fd, "new", 02755, 0), 0);
    assert_int_equal(fchmodat(ws.fd, "old", 02750, 0), 0);
    assert_int_equal(mode_of("new"), 02755); /* the control */
    r = do_snapshot();
    assert_int_equal(nchanges(&r), 5);
    assert_change(&r, 0, "later", "modified");
    assert_string_equal(set_group(&r, 0), "cleared");
    assert_change(&r, 1, "new", "added");
    assert_string_equal(set_group(&r, 1), "cleared");
    assert_change(&r, 2, "old", "modified");
    assert_null(set_group(&r, 2));
    assert_null(set_group(&r, 3));
    assert_null(set_group(&r, 4));
    result_free(&r);
    assert_int_equal(mode_of("later"), 0711);
    assert_int_equal(mode_of("new"), 0755);
    assert_int_equal(mode_of("old"), 02750);
    assert_int_equal(mode_of("team"), 02775);
    r = do_snapshot(); /* said once */
    assert_null(set_group(&r, 1));
    result_free(&r);
}

static void snapshot_is_bounded(void **state)
{
    (void)state;
    struct result r = do_snapshot();
    result_free(&r);
    for (unsigned i = 0; i <= BR_INIT_CHANGES_MAX; i++) {
        char name[32];
        if (i == BR_INIT_CHANGES_MAX) {
            r = do_snapshot();
            assert_int_equal(nchanges(&r), BR_INIT_CHANGES_MAX);
            assert_false(res_bool(&r, "truncated"));
            result_free(&r);
        }
        snprintf(name, sizeof(name), "%05u", i);
        ws_puts(&ws, name, "");
    }
    r = do_snapshot();
    assert_int_equal(nchanges(&r), BR_INIT_CHANGES_MAX);
    assert_true(res_bool(&r, "truncated"));
    result_free(&r);
}

static void fill(unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%05u", i);
        assert_int_equal(mknodat(ws.fd, name, S_IFREG | 0644, 0), 0);
    }
}

static void an_incomplete_snapshot_invents_nothing(void **state)
{
    (void)state;
    ws_puts(&ws, "zz", "last in the order");
    fill(0, BR_INIT_WALK_ENTRIES - 1);
    struct result r = do_snapshot();
    assert_false(res_bool(&r, "truncated"));
    result_free(&r);
    fill(BR_INIT_WALK_ENTRIES - 1, BR_INIT_WALK_ENTRIES); /* now one too many */
    r = do_snapshot();
    assert_true(res_bool(&r, "truncated"));
    assert_int_equal(nchanges(&r), 0); /* in particular, nothing was "removed" */
    result_free(&r);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(writes_a_new_file),
        T(replaces_a_file_and_keeps_its_mode),
        T(refuses_what_is_not_a_plain_file),
        T(write_is_bounded),
        T(failure_takes_everything_back),
        T(edits_exactly_one_place),
        T(edit_says_why_not),
        T(edit_is_bounded),
        T(writable_islands),
        T(snapshot_tells_what_changed),
        T(snapshot_clears_set_group),
        T(snapshot_is_bounded),
        T(an_incomplete_snapshot_invents_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
