/*
 * core/base: errors, buffers and readers at their limits, text, the JSON scan, ids and clock,
 * memfds, opening below a directory, the log.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

/* ---- errors ---- */

static void codes_have_names_and_exits(void **state)
{
    (void)state;
    assert_string_equal(br_code_name(0), "OK");
    assert_string_equal(br_code_name(BR_E_NOMEM), "OUT_OF_MEMORY");
    assert_string_equal(br_code_name(-BR_E_NOMEM), "OUT_OF_MEMORY");
    assert_int_equal(br_code_exit(BR_OK), 0);
    assert_int_equal(br_code_exit(-BR_E_DENIED), 4);
    for (int c = 1; c < BR_CODE_COUNT_; c++) {
        assert_in_range(br_code_exit(c), 1, 8);
        for (int d = 1; d < c; d++)
            assert_string_not_equal(br_code_name(c), br_code_name(d));
    }
    /* numbers from a peer that are no codes */
    static const int bad[] = {BR_CODE_COUNT_, -BR_CODE_COUNT_, INT_MAX, INT_MIN, INT_MIN + 1};
    for (unsigned i = 0; i < BR_ARRAY_LEN(bad); i++) {
        assert_string_equal(br_code_name(bad[i]), "INTERNAL_ERROR");
        assert_int_equal(br_code_exit(bad[i]), 1);
    }
}

static void errors_carry_text(void **state)
{
    (void)state;
    struct br_err err = {.code = BR_OK};
    assert_int_equal(br_err_set(&err, BR_E_DENIED, "'%s' was not read", "x"), -BR_E_DENIED);
    assert_string_equal(err.text, "'x' was not read");
    assert_int_equal(err.os_errno, 0);
    errno = ENOENT;
    assert_int_equal(br_err_errno(&err, BR_E_IO, "'%s' failed", "y"), -BR_E_IO);
    assert_int_equal(err.os_errno, ENOENT);
    assert_int_equal(errno, ENOENT);
    assert_string_equal(err.text, "'y' failed: No such file or directory");
    assert_int_equal(br_err_wrap(&err, "run %d", 7), -BR_E_IO);
    assert_string_equal(err.text, "run 7: 'y' failed: No such file or directory");
    assert_int_equal(br_err_set(NULL, BR_E_IO, "x"), -BR_E_IO);
    assert_int_equal(br_err_wrap(NULL, "x"), -BR_E_FAILED);
    /* over-long text is cut, not overrun */
    char big[2 * BR_ERR_TEXT_MAX];
    memset(big, 'a', sizeof(big) - 1);
    big[sizeof(big) - 1] = 0;
    br_err_set(&err, BR_E_IO, "%s", big);
    assert_int_equal(strlen(err.text), BR_ERR_TEXT_MAX - 1);
    br_err_wrap(&err, "%s", big);
    br_err_errno(&err, BR_E_IO, "%s", big);
    assert_int_equal(strlen(err.text), BR_ERR_TEXT_MAX - 1);
}

static void a_broken_promise_aborts(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        close(2);
        open("/dev/null", O_WRONLY);
        br_require(1 + 1 == 2); /* the control */
        br_require(1 + 1 == 3);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

static void stealing_leaves_nothing(void **state)
{
    (void)state;
    int fd = dup(0), old = fd;
    assert_int_equal(br_steal_fd(&fd), old);
    assert_int_equal(fd, -1);
    br_close(&fd); /* nothing */
    assert_true(fcntl(old, F_GETFD) >= 0);
    errno = EIO;
    br_close(&old);
    assert_int_equal(errno, EIO);
    assert_int_equal(old, -1);
    char *p = malloc(1), *q = p;
    assert_ptr_equal(br_steal_ptr(&p), q);
    assert_null(p);
    free(q);
}

/* ---- buffers ---- */

static void buffers_end_at_their_maximum(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 1000, 4096};
    for (unsigned i = 0; i < BR_ARRAY_LEN(sizes); i++) {
        size_t max = sizes[i];
        struct br_buf b = BR_BUF_INIT(max);
        uint8_t *bytes = calloc(1, max + 1);
        assert_int_equal(br_buf_put(&b, bytes, max), 0);
        assert_int_equal(b.len, max);
        assert_false(b.failed);
        assert_non_null(br_buf_cstr(&b)); /* the terminator is not counted */
        assert_int_equal(br_buf_put(&b, bytes, 0), 0);
        assert_int_equal(br_buf_put(&b, bytes, 1), -BR_E_LIMIT_EXCEEDED);
        assert_true(b.failed);
        assert_int_equal(br_buf_put(&b, bytes, 0), -BR_E_LIMIT_EXCEEDED); /* sticky */
        assert_null(br_buf_cstr(&b));
        assert_int_equal(b.len, max);
        br_buf_reset(&b);
        assert_int_equal(br_buf_put(&b, bytes, max + 1), -BR_E_LIMIT_EXCEEDED);
        assert_int_equal(b.len, 0);
        br_buf_free(&b);
        br_buf_free(&b); /* harmless */
        free(bytes);
    }
    struct br_buf b = BR_BUF_INIT(100);
    assert_int_equal(br_buf_put(&b, "x", SIZE_MAX), -BR_E_LIMIT_EXCEEDED);
    br_buf_reset(&b);
    br_buf_put(&b, "xy", 2);
    assert_int_equal(br_buf_put(&b, "x", SIZE_MAX - 1), -BR_E_LIMIT_EXCEEDED); /* would wrap */
    br_buf_free(&b);
}

static void formatted_text_ends_there_too(void **state)
{
    (void)state;
    struct br_buf b = BR_BUF_INIT(5);
    assert_int_equal(br_buf_printf(&b, "%s", "12345"), 0);
    assert_string_equal(br_buf_cstr(&b), "12345");
    assert_true(br_buf_printf(&b, "%c", 'x') < 0);
    assert_true(b.failed);
    br_buf_reset(&b);
    assert_true(br_buf_printf(&b, "%s", "123456") < 0);
    assert_int_equal(b.len, 0);
    br_buf_free(&b);
}

static void what_is_put_can_be_read(void **state)
{
    (void)state;
    struct br_buf b = BR_BUF_INIT(1000);
    br_buf_put_u8(&b, 0xab);
    br_buf_put_u32(&b, 0x01020304);
    br_buf_put_u64(&b, 0x0102030405060708);
    br_buf_put_str(&b, "text");
    br_buf_put_str(&b, NULL);
    br_buf_put_lstr(&b, "a\0b", 3);
    assert_false(b.failed);
    assert_memory_equal(b.data + 1, "\4\3\2\1", 4); /* little endian */
    struct br_rd r;
    char s[8];
    size_t n;
    br_rd_init(&r, b.data, b.len);
    assert_int_equal(br_rd_u8(&r), 0xab);
    assert_int_equal(br_rd_u32(&r), 0x01020304);
    assert_int_equal(br_rd_u64(&r), 0x0102030405060708);
    br_rd_str(&r, s, sizeof(s));
    assert_string_equal(s, "text");
    char *empty = br_rd_strdup(&r, 10);
    assert_string_equal(empty, "");
    free(empty);
    assert_int_equal(br_rd_done(&r), -BR_E_PEER_PROTOCOL); /* not all was read */
    assert_memory_equal(br_rd_bytes(&r, 3, &n), "a\0b", 3);
    assert_int_equal(n, 3);
    assert_int_equal(br_rd_done(&r), 0);
    br_buf_free(&b);
}

static void readers_stop_at_the_first_failure(void **state)
{
    (void)state;
    struct br_rd r;
    size_t n;
    br_rd_init(&r, "\1\2\3", 3);
    assert_int_equal(br_rd_u32(&r), 0); /* short */
    assert_true(r.failed);
    assert_int_equal(br_rd_u8(&r), 0); /* though one byte would be there */
    assert_int_equal(br_rd_u64(&r), 0);
    assert_null(br_rd_bytes(&r, 10, &n));
    assert_int_equal(n, 0);
    assert_int_equal(br_rd_done(&r), -BR_E_PEER_PROTOCOL);
    br_rd_init(&r, "\1\2\3\4\5\6\7", 7); /* a u64 whose second half is short */
    assert_int_equal(br_rd_u64(&r), 0);
    assert_true(r.failed);
}

static void strings_are_bounded(void **state)
{
    (void)state;
    struct br_rd r;
    char four[5];
    size_t n;
    static const char text[] = "\4\0\0\0abcd";
    br_rd_init(&r, text, 8);
    br_rd_str(&r, four, sizeof(four));
    assert_string_equal(four, "abcd");
    assert_int_equal(br_rd_done(&r), 0);
    br_rd_init(&r, text, 8);
    br_rd_str(&r, four, 4); /* no room for the terminator */
    assert_true(r.failed);
    assert_string_equal(four, "");
    br_rd_init(&r, text, 8);
    assert_non_null(br_rd_lstr(&r, 4, &n));
    br_rd_init(&r, text, 8);
    assert_null(br_rd_lstr(&r, 3, &n));
    assert_true(r.failed);
    br_rd_init(&r, text, 7); /* longer than the message */
    assert_null(br_rd_strdup(&r, 100));
    assert_true(r.failed);
    br_rd_init(&r,
               "\xff\xff\xff\xff"
               "abcd",
               8);
    assert_null(br_rd_bytes(&r, SIZE_MAX, &n));
    assert_true(r.failed);
    br_rd_init(&r, "\3\0\0\0a\0b", 7); /* NUL inside */
    br_rd_str(&r, four, sizeof(four));
    assert_true(r.failed);
    assert_string_equal(four, "");
    br_rd_init(&r, "\3\0\0\0a\0b", 7);
    assert_null(br_rd_strdup(&r, 10));
    assert_true(r.failed);
}

static void subjects_have_one_spelling(void **state)
{
    (void)state;
    static const struct {
        const char *argv[4];
        uint32_t argc;
        const char *want;
    } cases[] = {
        {{"ls"}, 1, "ls"},
        {{"git", "diff", "--stat=a,b"}, 3, "git diff --stat=a,b"},
        {{"rm", "a b"}, 2, "rm 'a b'"},
        {{"rm", "a", "b"}, 3, "rm a b"},
        {{"echo", ""}, 2, "echo ''"},
        {{"it's"}, 1, "'it'\\''s'"},
        {{"'"}, 1, "''\\'''"},
        {{"a;b", "$x", "~"}, 3, "'a;b' '$x' '~'"},
        {{"\n", "\xc3\xa4"}, 2, "'\n' '\xc3\xa4'"},
        {{NULL}, 0, ""},
    };
    for (unsigned i = 0; i < BR_ARRAY_LEN(cases); i++) {
        struct br_buf b = BR_BUF_INIT(100);
        assert_int_equal(br_exec_subject((char *const *)cases[i].argv, cases[i].argc, &b), 0);
        assert_string_equal(br_buf_cstr(&b), cases[i].want);
        br_buf_free(&b);
        if (cases[i].argc == 0)
            continue;
        br_buf_init(&b, strlen(cases[i].want)); /* just fits, and just not */
        assert_int_equal(br_exec_subject((char *const *)cases[i].argv, cases[i].argc, &b), 0);
        br_buf_free(&b);
        br_buf_init(&b, strlen(cases[i].want) - 1);
        assert_int_equal(br_exec_subject((char *const *)cases[i].argv, cases[i].argc, &b),
                         -BR_E_LIMIT_EXCEEDED);
        br_buf_free(&b);
    }
}

/* ---- text ---- */

#define LIT(s) s, sizeof(s) - 1

static void utf8_is_strict(void **state)
{
    (void)state;
    static const struct {
        const char *s;
        size_t n;
        bool valid;
    } cases[] = {
        {LIT(""), true},
        {LIT("plain"), true},
        {LIT("a\0b"), true},
        {LIT("\xc2\x80"), true},
        {LIT("\xdf\xbf"), true},
        {LIT("\xe0\xa0\x80"), true},
        {LIT("\xed\x9f\xbf"), true},
        {LIT("\xee\x80\x80"), true},
        {LIT("\xef\xbf\xbf"), true},
        {LIT("\xf0\x90\x80\x80"), true},
        {LIT("\xf4\x8f\xbf\xbf"), true},
        {LIT("\x80"), false},             /* continuation alone */
        {LIT("\xc0\x80"), false},         /* overlong NUL */
        {LIT("\xc1\xbf"), false},         /* overlong */
        {LIT("\xe0\x9f\xbf"), false},     /* overlong */
        {LIT("\xf0\x8f\xbf\xbf"), false}, /* overlong */
        {LIT("\xed\xa0\x80"), false},     /* surrogate */
        {LIT("\xed\xbf\xbf"), false},     /* surrogate */
        {LIT("\xf4\x90\x80\x80"), false}, /* beyond U+10FFFF */
        {LIT("\xf5\x80\x80\x80"), false},
        {LIT("\xff"), false},
        {LIT("\xe2\x82"), false}, /* cut */
        {LIT("a\xe2"), false},
        {LIT("\xe2\x28\xa1"), false},
    };
    for (unsigned i = 0; i < BR_ARRAY_LEN(cases); i++)
        assert_int_equal(br_utf8_valid(cases[i].s, cases[i].n), cases[i].valid);
}

static void floor_does_not_cut_a_character(void **state)
{
    (void)state;
    static const char s[] = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z";
    static const size_t want[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11};
    for (size_t n = 0; n < BR_ARRAY_LEN(want); n++)
        assert_int_equal(br_utf8_floor(s, n), want[n]);
    assert_int_equal(br_utf8_floor("\xff", 1), 1); /* not a start of anything: kept */
    assert_int_equal(br_utf8_floor("\x80\x80\x80\x80", 4), 4);
}

static void hex(void **state)
{
    char text[9] = "xxxxxxxx";
    (void)state;
    br_hex(text, "\x00\x0f\xa9\xff", 4);
    assert_string_equal(text, "000fa9ff");
    br_hex(text, "\x01", 1);
    assert_memory_equal(text, "01\0fa9ff", 9); /* no more than it says */
    br_hex(text, NULL, 0);
    assert_string_equal(text, "");
}

static void kebab(void **state)
{
    (void)state;
    assert_true(br_is_kebab("a", 1));
    assert_true(br_is_kebab("fix-bug-12", 10));
    assert_false(br_is_kebab("fix-bug-12", 9));
    static const char *const bad[] = {"",    "-a",  "a-",       "a--b", "A",
                                      "a_b", "a b", "\xc3\xa4", "a/b",  "a\n"};
    for (unsigned i = 0; i < BR_ARRAY_LEN(bad); i++)
        assert_false(br_is_kebab(bad[i], 100));
}

static void assert_visible(const char *s, size_t n, bool one_line, const char *want)
{
    struct br_buf b = BR_BUF_INIT(1000);
    assert_int_equal(br_buf_put_visible(&b, s, n, one_line), 0);
    assert_string_equal(br_buf_cstr(&b), want);
    br_buf_free(&b);
}

static void nothing_reaches_the_terminal(void **state)
{
    (void)state;
    assert_visible(LIT("plain \xc3\xa4 \xe2\x82\xac"), false, "plain \xc3\xa4 \xe2\x82\xac");
    assert_visible(LIT("a\n\tb"), false, "a\n\tb");
    assert_visible(LIT("a\n\tb"), true, "a\\n\\tb");
    assert_visible(LIT("\x1b[31mred"), false, "\\x1b[31mred");
    assert_visible(LIT("\x1b]0;title\x07"), true, "\\x1b]0;title\\x07");
    assert_visible(LIT("a\rb\bc\x7f"), false, "a\\x0db\\x08c\\x7f");
    assert_visible(LIT("a\0b"), false, "a\\x00b");
    assert_visible(LIT("\xc2\x9b"
                       "31m"),
                   false, "\\x9b31m"); /* C1 as UTF-8 */
    assert_visible(LIT("\x9b"
                       "31m"),
                   false, "\\x9b31m"); /* C1 as a byte */
    assert_visible(LIT("\xc2\x85"), true, "\\x85");
    assert_visible(LIT("\xe2\x80\xae"
                       "abc"),
                   false, "\\u202eabc"); /* right-to-left override */
    assert_visible(LIT("\xe2\x81\xa6"
                       "x\xe2\x81\xa9"),
                   false, "\\u2066x\\u2069");
    assert_visible(LIT("\xe2\x80\x8e\xe2\x80\x8f\xd8\x9c"), false, "\\u200e\\u200f\\u061c");
    assert_visible(LIT("\xe2\x80\xa8"), true, "\\u2028"); /* line separator */
    assert_visible(LIT("a\xe2\x80\x8b\xe2\x80\x8c\xe2\x80\x8d\xe2\x81\xa0z"), false,
                   "a\\u200b\\u200c\\u200d\\u2060z"); /* of no width */
    assert_visible(LIT("\xe2\x80\x8a\xe2\x81\x9f"), false,
                   "\xe2\x80\x8a\xe2\x81\x9f"); /* their neighbours have one */
    assert_visible(LIT("\xff\xc3"), false, "\\xff\\xc3");
    assert_visible(LIT("\xf3\xa0\x81\x81"), false, "\\ue0041"); /* tag characters */
    struct br_buf b = BR_BUF_INIT(3);
    assert_true(br_buf_put_visible(&b, LIT("\x1b"), false) < 0); /* no half escape */
    assert_true(b.failed);
    br_buf_free(&b);
}

static void json_strings(void **state)
{
    (void)state;
    struct br_buf b = BR_BUF_INIT(1000);
    br_buf_put_json_str(&b, LIT("a\"\\\n\t\r\x01\x7f\0\xc3\xa4\xff\xe2\x82"));
    assert_string_equal(br_buf_cstr(&b), "\"a\\\"\\\\\\n\\t\\r\\u0001\\u007f\\u0000\xc3\xa4"
                                         "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    br_buf_free(&b);
    br_buf_init(&b, 2);
    assert_int_equal(br_buf_put_json_str(&b, NULL, 0), 0);
    assert_string_equal(br_buf_cstr(&b), "\"\"");
    br_buf_free(&b);
}

/* ---- JSON scan ---- */

static int scan(const char *s)
{
    struct br_err err = {.code = BR_OK};
    int r = br_json_scan(s, strlen(s), 3, 5, &err);
    assert_int_equal(r, -(int)err.code);
    return r;
}

static void json_scan_bounds(void **state)
{
    (void)state;
    static const char *const good[] = {
        "",          "1",  "\"a\"",        "[[[]]]",        "[[[1]]]",  "{\"a\":{\"b\":1}}",
        "[1,2,3,4]", "[]", "[\"[[[[[[\"]", "\"\\\\u0000\"", "\"\\\"\"", "[true,false,null,-1e5]",
    };
    static const char *const bad[] = {
        "[[[[]]]]",                  /* depth 4 */
        "[1,2,3,4,5]",               /* six values */
        "{\"a\":1,\"b\":2,\"c\":3}", /* keys count */
        "[",
        "[[1]",
        "{",
        "]",
        "[]]",
        "}",
        "\"a",
        "\"a\\",
        "\"a\\\"",
        "\"\\u0000\"",
        "[\"a\\u0000b\"]",
        "\xff",
        "\"\xc3\"",
        "\"\xed\xa0\x80\"",
    };
    for (unsigned i = 0; i < BR_ARRAY_LEN(good); i++)
        if (scan(good[i]) != 0)
            fail_msg("refused: %s", good[i]);
    for (unsigned i = 0; i < BR_ARRAY_LEN(bad); i++)
        if (scan(bad[i]) != -BR_E_INVALID_JSON)
            fail_msg("accepted: %s", bad[i]);
    assert_int_equal(br_json_scan("a\0b", 3, 9, 9, NULL), -BR_E_INVALID_JSON);
}

static void json_scan_product_limits(void **state)
{
    (void)state;
    struct br_buf b = BR_BUF_INIT(1 << 20);
    for (unsigned extra = 0; extra < 2; extra++) {
        int want = extra ? -BR_E_INVALID_JSON : 0;
        br_buf_reset(&b);
        for (unsigned i = 0; i < BR_JSON_DEPTH_MAX + extra; i++)
            br_buf_put_u8(&b, '[');
        for (unsigned i = 0; i < BR_JSON_DEPTH_MAX + extra; i++)
            br_buf_put_u8(&b, ']');
        assert_int_equal(
            br_json_scan((char *)b.data, b.len, BR_JSON_DEPTH_MAX, BR_JSON_NODES_MAX, NULL), want);
        br_buf_reset(&b);
        br_buf_put_u8(&b, '[');
        for (unsigned i = 0; i < BR_JSON_NODES_MAX - 1 + extra; i++)
            br_buf_put(&b, ",0" + (i == 0), 2 - (i == 0));
        br_buf_put_u8(&b, ']');
        assert_int_equal(
            br_json_scan((char *)b.data, b.len, BR_JSON_DEPTH_MAX, BR_JSON_NODES_MAX, NULL), want);
    }
    br_buf_free(&b);
}

/* ---- clock and ids ---- */

static uint64_t fake_wall;
static uint64_t wall(void)
{
    return fake_wall;
}
static void not_random(void *p, size_t n)
{
    memset(p, 0xff, n);
}

static void ids_sort_by_time(void **state)
{
    (void)state;
    struct br_world w = {.wall_us = wall, .random = not_random};
    char last[BR_ID_MAX] = "run_", id[BR_ID_MAX];
    br_world_set(&w);
    static const uint64_t times[] = {
        0, 1000, 1772359200123456, 1772359200124456, 9999999999999000, 281474976710655000};
    for (unsigned i = 0; i < BR_ARRAY_LEN(times); i++) {
        fake_wall = times[i];
        br_id_make(id, "run");
        assert_int_equal(strlen(id), 4 + 26);
        assert_int_equal(strspn(id + 4, "0123456789abcdefghjkmnpqrstvwxyz"), 26);
        assert_true(strcmp(last, id) < 0);
        memcpy(last, id, sizeof(last));
    }
    assert_string_equal(id, "run_7zzzzzzzzzzzzzzzzzzzzzzzzz"); /* 128 bits, all set */
    fake_wall = 0;
    br_id_make(id, "x");
    assert_string_equal(id, "x_0000000000zzzzzzzzzzzzzzzz");
    br_world_set(NULL);
    char a[BR_ID_MAX], b[BR_ID_MAX];
    br_id_make(a, "x");
    br_id_make(b, "x");
    assert_string_not_equal(a, b);
}

static void the_clock_is_injectable(void **state)
{
    (void)state;
    struct br_world w = {.wall_us = wall};
    fake_wall = 42;
    br_world_set(&w);
    assert_int_equal(br_now_wall_us(), 42);
    uint64_t mono = br_now_us(); /* not set: the kernel's */
    assert_true(mono > 0 && br_now_us() >= mono);
    br_world_set(NULL);
    assert_true(br_now_wall_us() > 1700000000000000);
}

static void iso_times(void **state)
{
    (void)state;
    char s[32];
    br_time_iso(s, 0);
    assert_string_equal(s, "1970-01-01T00:00:00.000+00:00");
    br_time_iso(s, 1772359200999999);
    assert_string_equal(s, "2026-03-01T10:00:00.999+00:00");
    br_time_iso(s, 253402300799999999);
    assert_string_equal(s, "9999-12-31T23:59:59.999+00:00");
}

/* ---- descriptors ---- */

static void reading_is_bounded(void **state)
{
    (void)state;
    for (size_t max = 9; max <= 10; max++) {
        int fd = memfd_create("t", MFD_CLOEXEC);
        struct br_buf b = BR_BUF_INIT(max);
        struct br_err err = {.code = BR_OK};
        assert_int_equal(br_write_all(fd, "0123456789", 10), 0);
        assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
        assert_int_equal(br_read_all(fd, &b, "t", &err), max == 10 ? 0 : -BR_E_LIMIT_EXCEEDED);
        if (max == 10)
            assert_memory_equal(b.data, "0123456789", 10);
        else
            assert_non_null(strstr(err.text, "'t' is larger than 9 bytes"));
        br_buf_free(&b);
        close(fd);
    }
    assert_int_equal(br_write_all(-1, "x", 1), -EBADF);
}

static void small_files_are_cut(void **state)
{
    (void)state;
    char path[] = "/tmp/bridle-text-XXXXXX", link[64], text[8];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    snprintf(link, sizeof(link), "%s.link", path);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(br_read_text(AT_FDCWD, path, text, sizeof(text)), 0);
    assert_string_equal(text, "");
    assert_int_equal(br_write_all(fd, "0123456", 7), 0);
    assert_int_equal(br_read_text(AT_FDCWD, path, text, sizeof(text)), 7);
    assert_string_equal(text, "0123456");
    assert_int_equal(br_write_all(fd, "7", 1), 0);
    assert_int_equal(br_read_text(AT_FDCWD, path, text, sizeof(text)), 7);
    assert_string_equal(text, "0123456");
    assert_int_equal(br_read_text(AT_FDCWD, link, text, sizeof(text)), -1);
    assert_int_equal(errno, ELOOP);
    assert_string_equal(text, "");
    assert_int_equal(unlink(link), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(br_read_text(AT_FDCWD, path, text, sizeof(text)), -1);
    assert_int_equal(errno, ENOENT);
    close(fd);
}

static int memfd_with(int seals)
{
    int fd = memfd_create("t", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(br_write_all(fd, "0123456789", 10), 0);
    if (seals)
        assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static int try_memfd(int fd, size_t max)
{
    struct br_buf b = BR_BUF_INIT(max);
    int r = br_memfd_read(fd, max, &b, NULL);
    if (r == 0)
        assert_memory_equal(b.data, "0123456789", b.len);
    else
        assert_int_equal(b.len, 0);
    br_buf_free(&b);
    close(fd);
    return r;
}

static void only_sealed_memfds_are_read(void **state)
{
    (void)state;
    int fd = br_memfd_sealed("t", "0123456789", 10);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(write(fd, "x", 1), -1);
    assert_int_equal(ftruncate(fd, 1), -1);
    assert_int_equal(try_memfd(fd, 10), 0);
    assert_int_equal(try_memfd(br_memfd_sealed("t", "0123456789", 10), 9), -BR_E_LIMIT_EXCEEDED);
    assert_int_equal(try_memfd(br_memfd_sealed("t", NULL, 0), 0), 0);
    static const int all[] = {F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE};
    for (unsigned missing = 0; missing < 4; missing++) {
        int seals = 0;
        for (unsigned i = 0; i < 4; i++)
            seals |= i == missing ? 0 : all[i];
        assert_int_equal(try_memfd(memfd_with(seals), 10), -BR_E_PEER_PROTOCOL);
    }
    assert_int_equal(try_memfd(memfd_with(0), 10), -BR_E_PEER_PROTOCOL);
    assert_int_equal(try_memfd(open("/dev/null", O_RDONLY), 10), -BR_E_PEER_PROTOCOL);
    assert_int_equal(try_memfd(open("/proc/self/exe", O_RDONLY), 10), -BR_E_PEER_PROTOCOL);
}

static bool opens(int dir, const char *path, int flags)
{
    int fd = br_open_beneath(dir, path, flags, 0600);
    if (fd >= 0) {
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        close(fd);
    }
    return fd >= 0;
}

static void opening_stays_beneath(void **state)
{
    (void)state;
    char dir[] = "/tmp/bridle-base-XXXXXX", inner[64];
    assert_non_null(mkdtemp(dir));
    snprintf(inner, sizeof(inner), "%s/in", dir);
    assert_int_equal(mkdir(inner, 0700), 0);
    int fd = open(inner, O_PATH | O_DIRECTORY), out = open(dir, O_PATH | O_DIRECTORY);
    assert_true(opens(out, "secret", O_WRONLY | O_CREAT));
    assert_true(opens(fd, "f", O_WRONLY | O_CREAT));
    assert_int_equal(mkdirat(fd, "d", 0700), 0);
    assert_true(opens(fd, "d/g", O_WRONLY | O_CREAT));
    assert_int_equal(symlinkat("f", fd, "link"), 0);
    assert_int_equal(symlinkat("d", fd, "dlink"), 0);
    assert_int_equal(symlinkat("../secret", fd, "outlink"), 0);
    static const char *const escapes[] = {"../secret", "d/../../secret", "link",          "dlink/g",
                                          "outlink",   "/etc/passwd",    "/proc/self/exe"};
    for (unsigned i = 0; i < BR_ARRAY_LEN(escapes); i++) {
        assert_false(opens(fd, escapes[i], O_RDONLY));
        int plain = openat(fd, escapes[i], O_RDONLY); /* the control: openat would do it */
        assert_true(plain >= 0);
        close(plain);
    }
    assert_false(opens(fd, "../new", O_WRONLY | O_CREAT));
    struct stat st;
    assert_int_equal(fstatat(out, "new", &st, 0), -1);
    assert_true(opens(fd, "d/../f", O_RDONLY)); /* stays inside */
    close(fd);
    close(out);
    char cmd[64];
    snprintf(cmd, sizeof(cmd), "rm -r '%s'", dir);
    assert_int_equal(system(cmd), 0);
}

static void close_from_keeps_what_it_was_told(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        static const int keep[] = {207, 203, 203};
        for (int fd = 200; fd < 210; fd++)
            dup2(0, fd);
        br_close_from(200, keep, 3);
        int bad = 0;
        for (int fd = 200; fd < 210; fd++)
            bad += (fcntl(fd, F_GETFD) >= 0) != (fd == 203 || fd == 207);
        bad += fcntl(0, F_GETFD) < 0;
        _exit(bad);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* ---- log ---- */

static void log_lines_are_single_and_clean(void **state)
{
    (void)state;
    int fds[2], saved = dup(2);
    char got[512] = "";
    assert_int_equal(pipe(fds), 0);
    dup2(fds[1], 2);
    br_log_init("prog", BR_LOG_WARN);
    errno = EIO;
    br_log(BR_LOG_WARN, "bad \x1b[31m\nsecond %d", 7);
    assert_int_equal(errno, EIO);
    br_log(BR_LOG_INFO, "not shown");
    dup2(saved, 2);
    close(saved);
    close(fds[1]);
    assert_true(read(fds[0], got, sizeof(got) - 1) > 0);
    close(fds[0]);
    char want[128];
    snprintf(want, sizeof(want), "prog[%d]: warning: bad \\x1b[31m\\nsecond 7\n", (int)getpid());
    assert_string_equal(got, want);
    br_log_init("bridle", BR_LOG_ERROR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_have_names_and_exits),
        cmocka_unit_test(errors_carry_text),
        cmocka_unit_test(a_broken_promise_aborts),
        cmocka_unit_test(stealing_leaves_nothing),
        cmocka_unit_test(buffers_end_at_their_maximum),
        cmocka_unit_test(formatted_text_ends_there_too),
        cmocka_unit_test(what_is_put_can_be_read),
        cmocka_unit_test(readers_stop_at_the_first_failure),
        cmocka_unit_test(strings_are_bounded),
        cmocka_unit_test(subjects_have_one_spelling),
        cmocka_unit_test(utf8_is_strict),
        cmocka_unit_test(floor_does_not_cut_a_character),
        cmocka_unit_test(hex),
        cmocka_unit_test(kebab),
        cmocka_unit_test(nothing_reaches_the_terminal),
        cmocka_unit_test(json_strings),
        cmocka_unit_test(json_scan_bounds),
        cmocka_unit_test(json_scan_product_limits),
        cmocka_unit_test(ids_sort_by_time),
        cmocka_unit_test(the_clock_is_injectable),
        cmocka_unit_test(iso_times),
        cmocka_unit_test(reading_is_bounded),
        cmocka_unit_test(small_files_are_cut),
        cmocka_unit_test(only_sealed_memfds_are_read),
        cmocka_unit_test(opening_stays_beneath),
        cmocka_unit_test(close_from_keeps_what_it_was_told),
        cmocka_unit_test(log_lines_are_single_and_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
