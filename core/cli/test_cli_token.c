/*
 * `bridle token`, the real program: what it makes, keeps and refuses.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "wire/service.h"

static char dir[64], path[96], out[65536], err_text[65536];

static int setup(void **state)
{
    (void)state;
    if (br_scratch_make(dir, sizeof(dir), "/tmp", "bridle-token-") < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/tokens", dir);
    return setenv("BRIDLE_STATE_DIR", dir, 1);
}

static int teardown(void **state)
{
    (void)state;
    return br_scratch_remove(dir);
}

static void read_back(int fd, char text[65536])
{
    ssize_t n = pread(fd, text, 65535, 0);
    assert_true(n >= 0);
    text[n] = 0;
    close(fd);
}

/* bridle token WORDS...; the exit code, `out` and `err_text`. */
static int token(const char *words)
{
    char program[BR_PATH_MAX], line[512], *argv[16] = {(char *)"bridle", (char *)"token"},
                                          *save = NULL;
    int status, n = 2, o = memfd_create("out", 0), e = memfd_create("err", 0);
    snprintf(program, sizeof(program), "%s/bridle", getenv("BRIDLE_BIN"));
    snprintf(line, sizeof(line), "%s", words);
    for (char *w = strtok_r(line, " ", &save); w; w = strtok_r(NULL, " ", &save))
        argv[n++] = w;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(o, 1);
        dup2(e, 2);
        execv(program, argv);
        _exit(127);
    }
    assert_true(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    read_back(o, out);
    read_back(e, err_text);
    return WEXITSTATUS(status);
}

static char *file(void)
{
    static char text[65536];
    read_back(open(path, O_RDONLY | O_CLOEXEC), text);
    return text;
}

static void put_file(const char *text, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && br_write_all(fd, text, strlen(text)) == 0 && fchmod(fd, mode) == 0);
    close(fd);
}

static void makes_and_ends(void **state)
{
    struct stat st;
    struct br_sha256 s;
    uint8_t sum[32];
    char hash[65], line[128];
    (void)state;
    assert_int_equal(token("list"), 0);
    assert_string_equal(out, "");
    assert_int_equal(access(path, F_OK), -1); /* a question makes no file */
    assert_int_equal(token("add ci --access observe"), 0);
    assert_int_equal(strlen(out), 65);
    assert_int_equal(strspn(out, "0123456789abcdef"), 64);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    /* its hash is in the file, and it is nowhere */
    br_sha256_init(&s);
    br_sha256_put(&s, out, 64);
    br_sha256_end(&s, sum);
    br_hex(hash, sum, 32);
    snprintf(line, sizeof(line), "ci observe sha256:%s\n", hash);
    assert_string_equal(file(), line);
    out[64] = 0;
    assert_null(strstr(err_text, out));
    char *first = strdup(out);
    assert_int_equal(token("add laptop --json"), 0);
    assert_non_null(strstr(out, "{\"name\":\"laptop\",\"access\":\"operate\",\"token\":\""));
    assert_null(strstr(out, first)); /* another one */
    free(first);
    assert_int_equal(token("list --json"), 0);
    assert_string_equal(out, "[{\"name\":\"ci\",\"access\":\"observe\"},\n"
                             "{\"name\":\"laptop\",\"access\":\"operate\"}]\n");
    assert_int_equal(token("remove ci"), 0);
    assert_int_equal(token("list"), 0);
    assert_string_equal(out, "laptop                           operate\n");
    assert_int_equal(token("remove laptop"), 0);
    assert_string_equal(file(), "");
}

static void keeps_what_others_wrote(void **state)
{
    (void)state;
#define HASH "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
    put_file("# ours\n\n  a   answer\t" HASH "\nb operate " HASH, 0600);
    assert_int_equal(token("add c"), 0);
    assert_memory_equal(file(), "# ours\n\n  a   answer\t" HASH "\nb operate " HASH "\nc operate ",
                        40);
    assert_int_equal(token("remove c"), 0);
    assert_int_equal(token("remove a"), 0);
    assert_string_equal(file(), "# ours\n\nb operate " HASH "\n");
    assert_int_equal(token("remove b"), 0);
}

/* Each with its exit code, and nothing changes. */
static void refuses(void **state)
{
    static const struct {
        const char *words;
        int code;
    } rows[] = {
        {"add there", 1},
        {"remove not-there", 3},
        {"add", 2},
        {"add UPPER", 2},
        {"add two words", 2},
        {"add a--b", 2},
        {"add ../x", 2},
        {"add x --access root", 2},
        {"add x --access none", 2},
        {"list x", 2},
        {"remove", 2},
        {"remove there --access observe", 2},
        {"purge", 2},
        {"", 2},
        {"add aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 2}, /* 65 */
    };
    (void)state;
    put_file("there operate " HASH "\n", 0600);
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        if (token(rows[i].words) != rows[i].code)
            fail_msg("bridle token %s: %s", rows[i].words, err_text);
        assert_string_equal(out, "");
        assert_string_equal(file(), "there operate " HASH "\n");
    }
}

static void refuses_odd_files(void **state)
{
    static const char *const odd[] = {
        "x\n",
        "x operate\n",
        "x operate md5:00\n",
        "x operate " HASH "0\n",
        "x root " HASH "\n",
        "X operate " HASH "\n",
        "x operate " HASH " more\n",
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(odd); i++) {
        put_file(odd[i], 0600);
        assert_int_equal(token("add y"), 5);
        assert_int_equal(token("list"), 5);
        assert_non_null(strstr(err_text, "line 1"));
        assert_string_equal(file(), odd[i]);
    }
    put_file("", 0640); /* others can read it */
    assert_int_equal(token("add y"), 5);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/tmp/elsewhere", path), 0);
    assert_int_equal(token("add y"), 5);
    assert_int_equal(unlink(path), 0);
}

static void as_many_as_can_be(void **state)
{
    char text[65536] = "";
    size_t n = 0;
    (void)state;
    for (unsigned i = 0; i < BR_TOKENS_MAX - 1; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "t%u answer " HASH "\n", i);
    put_file(text, 0600);
    assert_int_equal(token("add last"), 0);
    assert_int_equal(token("add more"), 7);
    assert_int_equal(token("list"), 0);
    assert_int_equal(token("remove t0"), 0);
    assert_int_equal(token("add more"), 0);
    assert_int_equal(unlink(path), 0);
}

/* Several at once: each has its line. */
static void several_at_once(void **state)
{
    pid_t pids[8];
    int status;
    char words[32];
    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        snprintf(words, sizeof(words), "add at-once-%u", i);
        pids[i] = fork();
        if (pids[i] == 0)
            _exit(token(words));
    }
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(token("list"), 0);
    for (unsigned i = 0; i < 8; i++) {
        snprintf(words, sizeof(words), "at-once-%u ", i);
        assert_non_null(strstr(out, words));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(makes_and_ends),    cmocka_unit_test(keeps_what_others_wrote),
        cmocka_unit_test(refuses),           cmocka_unit_test(refuses_odd_files),
        cmocka_unit_test(as_many_as_can_be), cmocka_unit_test(several_at_once),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
