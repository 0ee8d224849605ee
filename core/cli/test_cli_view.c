/*
 * The view: what a model or a tool says never becomes an act of the terminal, nor a line that looks
 * like one of ours, and never more than its bound.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the above first */
#include <cmocka.h>

#include "cli/view_priv.h"

#define HEAD "{\"v\":1,\"type\":\"%s\",\"eventId\":\"e\",\"at\":\"2026-01-01T00:00:0%u.500+00:00\","

static struct br_cli_view view;

static int setup(void **state)
{
    (void)state;
    br_cli_view_init(&view, false, 80);
    view.receipt = true;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    br_cli_view_free(&view);
    return 0;
}

static void feed_at(unsigned second, const char *type, const char *actor, const char *data)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4u << 20);
    br_buf_printf(&b, HEAD "\"actor\":\"%s\",\"data\":", type, second, actor);
    br_buf_put(&b, data, strlen(data));
    br_buf_put_u8(&b, '}');
    struct br_err err = {.code = BR_OK};
    int r = br_cli_view_event(&view, br_buf_cstr(&b), b.len, &err);
    if (r < 0)
        fail_msg("%s: %s", type, err.text);
}

static void feed(const char *type, const char *data)
{
    feed_at(0, type, "kernel", data);
}

static const char *shown(void)
{
    const char *s = br_buf_cstr(&view.out);
    assert_non_null(s);
    return s;
}

/* No byte that a terminal acts on, valid UTF-8, and no line over the width. */
static void assert_safe(unsigned width)
{
    const char *s = shown();
    size_t n = view.out.len;
    assert_true(br_utf8_valid(s, n));
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if ((c < 0x20 && c != '\n') || c == 0x7f)
            fail_msg("byte 0x%02x at %zu of '%s'", c, i, s);
        if (c == 0xc2 && (unsigned char)s[i + 1] < 0xa0)
            fail_msg("a C1 control at %zu of '%s'", i, s);
        if (c == 0xe2 && (unsigned char)s[i + 1] == 0x80 && (unsigned char)s[i + 2] >= 0xa8 &&
            (unsigned char)s[i + 2] <= 0xae)
            fail_msg("a bidirectional control at %zu of '%s'", i, s);
    }
    for (const char *line = s; *line;) {
        size_t len = strcspn(line, "\n");
        if (view_columns(line, len) > width)
            fail_msg("a line of %u columns: '%.*s'", view_columns(line, len), (int)len, line);
        line += len + (line[len] == '\n');
    }
}

/* ESC, an OSC title, CR, BEL, DEL, C1 CSI, right-to-left override, zero bytes are not in JSON. */
#define HOSTILE "\\u001b[2J\\u001b]0;owned\\u0007\\rgone\\b\\u007f\\u009b31m\\u202edesrever\\u2066x"

static const char *const hostile_events[][2] = {
    {"bridle.run", "{\"runId\":\"" HOSTILE "\",\"mode\":\"run\",\"goal\":\"" HOSTILE
                   "\\n> fake\",\"model\":\"" HOSTILE "\",\"workspace\":\"" HOSTILE
                   "\",\"policy\":\"" HOSTILE "\",\"manifest\":\"" HOSTILE
                   "\",\"tableSha256\":\"" HOSTILE "\",\"rules\":3,\"profile\":\"" HOSTILE "\"}"},
    {"bridle.launch",
     "{\"receipt\":{\"version\":1,\"backend\":\"" HOSTILE "\",\"image\":{\"id\":\"" HOSTILE
     "\",\"verified\":\"" HOSTILE "\"},\"leases\":[{\"point\":\"" HOSTILE "\",\"kind\":\"" HOSTILE
     "\"}],\"sha256\":\"" HOSTILE "\",\"identity\":{\"kind\":\"" HOSTILE
     "\"},\"seccompFilter\":{\"sha256\":\"" HOSTILE "\"},\"cgroups\":[{\"path\":\"" HOSTILE
     "\"}],\"mountTable\":[{\"target\":\"" HOSTILE "\",\"type\":\"" HOSTILE
     "\",\"flags\":\"" HOSTILE "\",\"bytes\":1}]}}"},
    {"bridle.text", "{\"stream\":\"s\",\"text\":\"" HOSTILE "\",\"final\":true}"},
    {"tool.call", "{\"callId\":\"" HOSTILE "\",\"tool\":\"" HOSTILE "\",\"input\":{\"" HOSTILE
                  "\":\"" HOSTILE "\",\"content\":\"" HOSTILE "\\n" HOSTILE "\"}}"},
    {"policy.decision",
     "{\"action\":\"" HOSTILE "\",\"subject\":\"" HOSTILE
     "\",\"effect\":\"deny\",\"reason\":\"" HOSTILE "\",\"ruleId\":\"" HOSTILE "\"}"},
    {"bridle.votes", "{\"source\":\"" HOSTILE "\",\"ruleId\":\"r\",\"opaque\":true,\"votes\":[{"
                     "\"source\":\"x\",\"effect\":\"" HOSTILE "\",\"ruleId\":\"" HOSTILE "\"}]}"},
    {"permission.requested",
     "{\"permissionId\":\"p\",\"action\":\"process.exec\",\"subject\":\"" HOSTILE
     "\",\"scope\":\"once\",\"reason\":\"" HOSTILE "\"}"},
    {"bridle.ask",
     "{\"permissionId\":\"p\",\"callId\":\"" HOSTILE "\",\"action\":\"" HOSTILE
     "\",\"subject\":\"" HOSTILE "\",\"scope\":\"once\",\"ruleId\":\"" HOSTILE
     "\",\"file\":\"" HOSTILE
     "\",\"line\":3,\"commands\":[{\"action\":\"process.exec\",\"subject\":\"" HOSTILE
     "\",\"effect\":\"ask\",\"ruleId\":\"" HOSTILE "\"},{\"action\":\"" HOSTILE
     "\",\"subject\":\"" HOSTILE "\\n" HOSTILE "\"}],\"more\":4,\"touches\":{\"writes\":[\"" HOSTILE
     "\",\"" HOSTILE "\"],\"hosts\":[\"" HOSTILE "\"],\"env\":[\"" HOSTILE
     "\"],\"directory\":\"" HOSTILE "\",\"writable\":[\"" HOSTILE
     "\"],\"writableMore\":3},\"advice\":\"" HOSTILE "\",\"rules\":[{\"text\":\"" HOSTILE
     "\"}],\"why\":\"" HOSTILE "\"}"},
    {"bridle.asks", "{\"asks\":[{\"permissionId\":\"p\"},{\"permissionId\":\"q\"}]}"},
    {"bridle.grant", "{\"permissionId\":\"" HOSTILE "\",\"action\":\"" HOSTILE "\"}"},
    {"bridle.answered", "{\"permissionId\":\"" HOSTILE "\",\"by\":\"" HOSTILE "\"}"},
    {"permission.resolved",
     "{\"permissionId\":\"p\",\"decision\":\"deny\",\"note\":\"" HOSTILE "\"}"},
    {"tool.result", "{\"callId\":\"c\",\"tool\":\"t\",\"ok\":false,\"output\":{\"exitCode\":1,"
                    "\"stdout\":\"" HOSTILE "\",\"stderr\":\"" HOSTILE
                    "\"},\"error\":{\"code\":\"" HOSTILE "\",\"message\":\"" HOSTILE "\"}}"},
    {"tool.result",
     "{\"ok\":true,\"output\":{\"entries\":[{\"name\":\"" HOSTILE "\",\"type\":\"dir\"}]}}"},
    {"tool.result", "{\"ok\":true,\"output\":{\"matches\":[{\"path\":\"" HOSTILE
                    "\",\"line\":1,\"text\":\"" HOSTILE "\"}]}}"},
    {"tool.result", "{\"ok\":true,\"output\":\"" HOSTILE "\"}"},
    {"tool.result", "{\"ok\":true,\"output\":{\"other\":\"" HOSTILE "\"}}"},
    {"sandbox.started", "{\"image\":\"" HOSTILE "\",\"network\":\"" HOSTILE "\",\"mounts\":4}"},
    {"budget.warning", "{\"metric\":\"" HOSTILE "\",\"used\":1,\"limit\":2}"},
    {"bridle.notice", "{\"code\":\"" HOSTILE "\",\"message\":\"" HOSTILE "\"}"},
    {"bridle.policy.error", "{\"code\":\"" HOSTILE "\",\"message\":\"" HOSTILE "\"}"},
    {"bridle.provider", "{\"error\":{\"code\":\"" HOSTILE "\",\"message\":\"" HOSTILE "\"}}"},
    {"error", "{\"code\":\"" HOSTILE "\",\"message\":\"" HOSTILE "\"}"},
    {"bridle.workspace", "{\"changed\":[{\"path\":\"" HOSTILE "\",\"change\":\"" HOSTILE "\"}]}"},
    {"agent.stopped",
     "{\"status\":\"" HOSTILE "\",\"note\":\"" HOSTILE "\",\"steps\":1,\"toolCalls\":2}"},
    {HOSTILE, "{}"},
};

static void test_hostile_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(hostile_events); i++)
        feed(hostile_events[i][0], hostile_events[i][1]);
    br_cli_view_summary(&view);
    assert_safe(80);
    assert_non_null(strstr(shown(), "\\x1b[2J")); /* it is shown, not dropped */
    assert_non_null(strstr(shown(), "\\u202e"));
}

/* In the same way where calls are folded, and in the narrowest view: only a record's command, which
 * is to be copied, may be longer than a line. */
static void test_hostile_text_folded(void **state)
{
    (void)state;
    br_cli_view_free(&view);
    br_cli_view_init(&view, false, BR_VIEW_WIDTH_MIN);
    view.folded = true;
    for (size_t i = 0; i < BR_ARRAY_LEN(hostile_events); i++)
        feed(hostile_events[i][0], hostile_events[i][1]);
    assert_safe(80);
    br_cli_view_free(&view);
    br_cli_view_init(&view, false, 80);
    view.folded = true;
    for (size_t i = 0; i < BR_ARRAY_LEN(hostile_events); i++)
        feed(hostile_events[i][0], hostile_events[i][1]);
    br_cli_view_summary(&view);
    assert_safe(80);
    assert_non_null(strstr(shown(), "\\x1b[2J"));
}

#define FOLD_CALL(id, tool, input)                                                                 \
    "{\"callId\":\"" id "\",\"tool\":\"" tool "\",\"input\":" input "}"
#define FOLD_DONE(id, tool, rest)                                                                  \
    "{\"callId\":\"" id "\",\"tool\":\"" tool "\",\"durationMs\":3," rest "}"

/* A line a call; whole only what is asked about or denied. */
static void test_folded(void **state)
{
    (void)state;
    view.folded = true;
    feed("tool.call", FOLD_CALL("a", "fs_read", "{\"path\":\"x\"}"));
    feed("policy.decision", "{\"action\":\"fs.read\",\"subject\":\"x\",\"effect\":\"allow\"}");
    feed("tool.call", FOLD_CALL("b", "fs_read", "{\"path\":\"y\"}"));
    feed("policy.decision", "{\"action\":\"fs.read\",\"subject\":\"y\",\"effect\":\"allow\"}");
    assert_string_equal(shown(), "");
    feed("tool.result", FOLD_DONE("a", "fs_read",
                                  "\"ok\":true,\"output\":{\"bytes\":7,\"content\":"
                                  "\"secret\"}"));
    feed("tool.result", FOLD_DONE("b", "fs_read",
                                  "\"ok\":false,\"output\":null,\"error\":{\"code\":\"E\","
                                  "\"message\":\"no such file\"}"));
    assert_string_equal(shown(), "\n> fs_read  path: \"x\"  ok     3 ms  7 bytes\n"
                                 "> fs_read  path: \"y\"  failed 3 ms\n"
                                 "  : no such file\n");
    br_buf_reset(&view.out);
    feed("bridle.text", "{\"text\":\"Hm.\",\"final\":true}");
    feed("tool.call", FOLD_CALL("c", "shell", "{\"command\":\"rm x\"}"));
    feed("policy.decision", "{\"action\":\"process.exec\",\"subject\":\"rm x\",\"effect\":"
                            "\"deny\",\"ruleId\":\"no-rm\",\"reason\":\"it is kept\"}");
    feed("tool.result", FOLD_DONE("c", "shell", "\"ok\":false,\"output\":null"));
    assert_string_equal(shown(),
                        "\n| Hm.\n  deny   process.exec rm x  (no-rm)\n         it is kept\n"
                        "\n> shell  command: \"rm x\"  failed 3 ms\n");
    br_buf_reset(&view.out);
    feed("tool.call", FOLD_CALL("d", "fs_write", "{\"path\":\"z\",\"content\":\"1\\n2\\n\"}"));
    feed("policy.decision", "{\"action\":\"fs.write\",\"subject\":\"z\",\"effect\":\"ask\"}");
    feed("permission.requested", "{\"permissionId\":\"p\",\"callId\":\"d\",\"action\":\"fs.write\","
                                 "\"subject\":\"z\",\"scope\":\"once\"}");
    assert_string_equal(shown(), "\n> fs_write\n    content, the whole of it (2 lines, 4 bytes):\n"
                                 "    + 1\n    + 2\n\n  permission wanted: fs.write\n    z\n");
}

/* What a question says, in 80 columns; the result of a call that is not the last one says whose it
 * is. */
static void test_questions(void **state)
{
    (void)state;
    feed("tool.call",
         "{\"callId\":\"c1\",\"tool\":\"process_exec\",\"input\":{\"command\":\"A=1 make "
         "test > log\"}}");
    feed("permission.requested",
         "{\"permissionId\":\"p1\",\"callId\":\"c1\",\"action\":\"process.exec\",\"subject\":"
         "\"A=1 make test > log\",\"scope\":\"once\",\"reason\":\"because\"}");
    feed(
        "bridle.ask",
        "{\"permissionId\":\"p1\",\"callId\":\"c1\",\"action\":\"process.exec\",\"subject\":\"A=1 "
        "make "
        "test > "
        "log\",\"scope\":\"run\",\"ruleId\":\"operator:exec\",\"source\":\"operator\",\"file\":"
        "\"p.lua\",\"line\":9,\"commands\":[{\"action\":\"process.exec\",\"subject\":\"make test\","
        "\"effect\":\"ask\",\"ruleId\":\"operator:exec\"},{\"action\":\"fs.write\",\"subject\":"
        "\"log\","
        "\"effect\":\"ask\",\"ruleId\":\"operator:write\"}],\"touches\":{\"writes\":[\"log\"],"
        "\"env\":["
        "\"A=1\"],\"writable\":[\"src/**\",\"docs/**\"],\"writableMore\":2},\"advice\":\"Add:\","
        "\"rules\":[{\"text\":\"policy.allow { id = 1 },\"}],\"why\":\"bridle policy why\"}");
    static const char *const lines[] = {"    why     because\n",
                                        "    asks    $ make test  (operator:exec)\n",
                                        "            write log  (operator:write)\n",
                                        "    touches writes log\n",
                                        "            sets A=1\n",
                                        "            can write src/**, docs/** and 2 more\n",
                                        "    rule    operator:exec in p.lua:9\n",
                                        "    change  Add:\n",
                                        "              policy.allow { id = 1 },\n",
                                        "    explain bridle policy why\n"};
    for (size_t i = 0; i < BR_ARRAY_LEN(lines); i++)
        if (!strstr(shown(), lines[i]))
            fail_msg("'%s' is not in:\n%s", lines[i], shown());
    feed("tool.call", "{\"callId\":\"c2\",\"tool\":\"fs_write\",\"input\":{\"path\":\"a\"}}");
    feed("bridle.asks", "{\"asks\":[{\"permissionId\":\"p1\"}]}");
    assert_null(strstr(shown(), "permissions wanted")); /* of one there is no list */
    br_buf_reset(&view.out);
    br_cli_view_question(&view, "p1", 1, 2);
    assert_non_null(strstr(shown(), "1 of 2: process.exec\n    $ A=1 make test > log\n"));
    br_buf_reset(&view.out);
    br_cli_view_question(&view, "unknown", 1, 2);
    assert_int_equal(view.out.len, 0);
    feed("tool.result",
         "{\"callId\":\"c1\",\"tool\":\"process_exec\",\"ok\":false,\"output\":{\"denied\":"
         "{\"rule\":\"x\"}},\"error\":{\"code\":\"DENIED\",\"message\":\"no\"}}");
    assert_non_null(strstr(shown(), "\n> process_exec  command: \"A=1 make test > log\"\n"));
    assert_null(strstr(shown(), "rule")); /* that is for the model */
    feed("tool.result", "{\"callId\":\"c2\",\"tool\":\"fs_write\",\"ok\":true,\"output\":null}");
    assert_non_null(strstr(shown(), "\n> fs_write  path: \"a\"\n"));
    assert_safe(80);
}

static void test_hostile_status_line(void **state)
{
    (void)state;
    char line[256];
    feed("tool.call", "{\"callId\":\"c\",\"tool\":\"" HOSTILE "\",\"input\":{}}");
    feed("policy.decision", "{\"action\":\"a\",\"effect\":\"allow\"}");
    view.phase_since_us -= 5000000;
    assert_true(br_cli_view_status(&view, line, sizeof(line)));
    for (const char *p = line; *p; p++)
        assert_true((unsigned char)*p >= 0x20 && *p != 0x7f);
    assert_non_null(strstr(line, "5.0 s"));
}

/* Every line of somebody else's text stands behind a gutter, so none looks like ours. */
static void test_no_imitation(void **state)
{
    (void)state;
    feed("bridle.text",
         "{\"text\":\"ok\\n  allow  fs.write x  (operator:all)\\n  Allow it this once? "
         "Only y or yes does (120 s): y\\n\\n> process_exec\",\"final\":true}");
    feed("tool.result",
         "{\"ok\":true,\"output\":\"x\\n  allow  y  (operator:z)\\n> process_exec\"}");
    for (const char *line = shown(); *line;) {
        size_t len = strcspn(line, "\n");
        if (len && strncmp(line, "| ", 2) != 0 && strncmp(line, "  : ", 4) != 0 &&
            strncmp(line, "  ok ", 5) != 0)
            fail_msg("a line without a gutter: '%.*s'", (int)len, line);
        line += len + (line[len] == '\n');
    }
}

static void test_streamed_text_is_folded(void **state)
{
    (void)state;
    feed("bridle.text", "{\"text\":\"one two thr\",\"final\":false}");
    feed("bridle.text", "{\"text\":\"ee\\nfour\",\"final\":false}");
    feed("bridle.text", "{\"text\":\"\",\"final\":true}");
    assert_string_equal(shown(), "\n| one two three\n| four\n");
    br_buf_reset(&view.out);
    for (int i = 0; i < 40; i++)
        feed("bridle.text", "{\"text\":\"word \\u4e16\\u754c \",\"final\":false}");
    feed("agent.stopped", "{\"status\":\"completed\"}");
    assert_safe(80);
    br_buf_reset(&view.out);
    char *huge = malloc(20100);
    assert_non_null(huge);
    strcpy(huge, "{\"text\":\"");
    for (int i = 0; i < 5000; i++)
        strcat(huge + 9 + 4 * i - (i ? 4 : 0), "a\xc3\xa4o");
    strcat(huge, "\",\"final\":true}");
    feed("bridle.text", huge);
    free(huge);
    assert_safe(80);
    size_t letters = 0;
    for (const char *p = shown(); *p; p++)
        letters += *p == 'a';
    assert_int_equal(letters, 5000); /* nothing is lost where the held word is full */
}

static void test_long_values_are_bounded(void **state)
{
    (void)state;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1u << 20);
    br_buf_printf(
        &b, "{\"callId\":\"c\",\"tool\":\"fs_write\",\"input\":{\"path\":\"p\",\"content\":\"");
    for (int i = 0; i < 3000; i++)
        br_buf_printf(&b, "line %d\\n", i);
    br_buf_printf(&b, "\"}}");
    feed("tool.call", br_buf_cstr(&b));
    assert_safe(80);
    size_t lines = 0;
    for (const char *p = shown(); *p; p++)
        lines += *p == '\n';
    assert_true(lines < 20);
    assert_non_null(strstr(shown(), "KiB more"));
}

/* What is to be permitted is shown whole, however long it is. */
static void test_ask_shows_the_whole_command(void **state)
{
    (void)state;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1u << 20);
    br_buf_printf(
        &b,
        "{\"permissionId\":\"p\",\"action\":\"process.exec\",\"scope\":\"once\",\"subject\":\"");
    for (int i = 0; i < 6000; i++)
        br_buf_printf(&b, "argument ");
    br_buf_printf(&b, "LAST\"}");
    feed("permission.requested", br_buf_cstr(&b));
    assert_safe(80);
    assert_non_null(strstr(shown(), "LAST"));
    assert_string_equal(view.ask_id, "p");
}

#define ASKED_CALL(action, subject)                                                                \
    "{\"permissionId\":\"p\",\"callId\":\"c\",\"action\":\"" action                                \
    "\",\"scope\":\"once\",\"subject\":"                                                           \
    "\"" subject "\"}"

static size_t count(const char *what)
{
    size_t n = 0;
    for (const char *p = shown(); (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

/* The call is folded where it is announced, and whole where it is asked about. */
static void test_ask_shows_the_whole_content(void **state)
{
    (void)state;
    static const char *const keys[] = {"content", "new_text", "old_text"};
    for (size_t k = 0; k < BR_ARRAY_LEN(keys); k++) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1u << 20);
        br_buf_printf(&b,
                      "{\"callId\":\"c\",\"tool\":\"fs_write\",\"input\":{\"path\":\"p\",\"%s\":\"",
                      keys[k]);
        for (int i = 0; i < 3000; i++)
            br_buf_printf(&b, "line %d\\n", i);
        br_buf_printf(&b, HOSTILE "\\n\\u200bLAST\"}}");
        br_buf_reset(&view.out);
        feed("tool.call", br_buf_cstr(&b));
        feed("policy.decision", "{\"action\":\"fs.write\",\"subject\":\"p\",\"effect\":\"ask\"}");
        assert_int_equal(count("LAST"), 0);
        feed("permission.requested", ASKED_CALL("fs.write", "p"));
        assert_safe(80);
        assert_non_null(strstr(shown(), "the whole of it (3,002 lines, "));
        assert_int_equal(count("\\u200bLAST"), 1);
        assert_int_equal(count("line 1500\n"), 1);
        /* and what the answer is about stands last */
        assert_true(strstr(shown(), "permission wanted") > strstr(shown(), "LAST"));
        /* a second question about the same call need not repeat it */
        feed("permission.requested", ASKED_CALL("fs.write", "p"));
        assert_int_equal(count("\\u200bLAST"), 1);
    }
    /* what was shown whole is not shown twice, unless something came between */
    br_buf_reset(&view.out);
    feed("tool.call", "{\"callId\":\"c\",\"tool\":\"fs_write\",\"input\":{\"content\":\"a\\nb\"}}");
    feed("permission.requested", ASKED_CALL("fs.write", "p"));
    assert_int_equal(count("    + a\n    + b\n"), 1);
    feed("bridle.notice", "{\"code\":\"x\",\"message\":\"y\"}");
    feed("permission.requested", ASKED_CALL("fs.write", "p"));
    assert_int_equal(count("    + a\n    + b\n"), 2);
}

static void test_ask_shows_the_input_of_a_command(void **state)
{
    (void)state;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1u << 20);
    br_buf_printf(&b, "{\"callId\":\"c\",\"tool\":\"process_exec\",\"input\":{\"argv\":[\"sh\"");
    for (int i = 0; i < 100; i++)
        br_buf_printf(&b, ",\"argument\"");
    br_buf_printf(&b, "],\"cwd\":\"some/where\",\"stdin\":\"");
    for (int i = 0; i < 50; i++)
        br_buf_printf(&b, "echo %d\\n", i);
    br_buf_printf(&b, "rm -rf everything\\n\\n\"}}");
    feed("tool.call", br_buf_cstr(&b));
    assert_int_equal(count("rm -rf"), 0);
    feed("permission.requested", ASKED_CALL("process.exec", "sh a\\nb"));
    assert_safe(80);
    assert_non_null(strstr(shown(), "    : \"some/where\"\n"));
    assert_non_null(strstr(shown(), "    : rm -rf everything\n    :\n"));
    assert_non_null(strstr(shown(), "    $ sh a\n    > b\n"));
}

/* The rest of a folded line does not look like a line. */
static void test_folds_are_told_from_lines(void **state)
{
    (void)state;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096), want = BR_BUF_INIT(4096);
    br_buf_printf(&b, "%s", "");
    for (int i = 0; i < 80; i++)
        br_buf_printf(&b, "x");
    br_buf_printf(&want, "    $ %.74s\n    . %.6s\n    > y\n", br_buf_cstr(&b), br_buf_cstr(&b));
    br_buf_printf(&b, "\ny");
    view_whole(&view, "    $ ", "    > ", (char *)b.data, b.len);
    assert_string_equal(shown(), br_buf_cstr(&want));
}

static void test_decision_names_its_rule(void **state)
{
    (void)state;
    feed("policy.decision",
         "{\"action\":\"fs.read\",\"subject\":\"src/a.lua\",\"effect\":\"allow\","
         "\"ruleId\":\"reads\"}");
    feed("bridle.votes",
         "{\"source\":\"operator\",\"ruleId\":\"reads\",\"effect\":\"allow\",\"votes\":"
         "[{\"source\":\"operator\",\"ruleId\":\"reads\",\"effect\":\"allow\"},"
         "{\"source\":\"manifest\",\"ruleId\":\"m1\",\"effect\":\"allow\"}]}");
    assert_string_equal(shown(), "  allow  fs.read src/a.lua  (operator:reads)\n"
                                 "         also allow (manifest:m1)\n");
    br_buf_reset(&view.out);
    feed("policy.decision", "{\"action\":\"fs.write\",\"subject\":\"x\",\"effect\":\"deny\","
                            "\"ruleId\":\"operator:no\",\"reason\":\"because\"}");
    feed("tool.result", "{\"ok\":false,\"error\":{\"code\":\"DENIED\",\"message\":\"no\"}}");
    assert_string_equal(shown(), "  deny   fs.write x  (operator:no)\n         because\n"
                                 "  failed   DENIED\n  : no\n");
}

static void test_summary(void **state)
{
    (void)state;
    feed_at(
        1, "bridle.run", "kernel",
        "{\"runId\":\"run_1\",\"mode\":\"run\",\"goal\":\"g\",\"model\":\"m\",\"scripted\":true,"
        "\"workspace\":\"/w\",\"policy\":\"default\",\"rules\":3}");
    assert_non_null(strstr(shown(), "scripted provider"));
    feed("model.response", "{\"usage\":{\"promptTokens\":4000,\"completionTokens\":210}}");
    feed("policy.decision", "{\"action\":\"a\",\"effect\":\"ask\"}");
    feed("permission.requested", "{\"permissionId\":\"p\",\"action\":\"a\",\"scope\":\"once\"}");
    feed_at(2, "permission.resolved", "operator",
            "{\"permissionId\":\"p\",\"decision\":\"allow\"}");
    feed("policy.decision", "{\"action\":\"a\",\"effect\":\"ask\"}");
    feed("permission.requested", "{\"permissionId\":\"q\",\"action\":\"a\",\"scope\":\"once\"}");
    feed_at(3, "permission.resolved", "kernel",
            "{\"permissionId\":\"q\",\"decision\":\"deny\",\"note\":\"nobody answered in time\"}");
    feed("bridle.workspace", "{\"changed\":[{\"path\":\"a.lua\",\"change\":\"modified\"}],"
                             "\"truncated\":false}");
    feed_at(5, "agent.stopped", "agent",
            "{\"agentId\":\"a\",\"status\":\"completed\",\"steps\":3,\"toolCalls\":2}");
    br_buf_reset(&view.out);
    br_cli_view_summary(&view);
    assert_string_equal(shown(), "\ncompleted\n"
                                 "  did        3 steps, 2 tool calls, 4,210 tokens (scripted "
                                 "provider), 4.0 s\n"
                                 "  decisions  0 allow, 2 ask, 0 deny\n"
                                 "  asks       1 allowed, 1 not answered\n"
                                 "  changed    modified  a.lua\n"
                                 "  record     bridle show run_1\n");
}

/* What was refused before its start changed nothing; that is known. */
static void test_summary_without_a_sandbox(void **state)
{
    (void)state;
    static const char stopped[] =
        "{\"agentId\":\"a\",\"status\":\"failed\",\"steps\":0,\"toolCalls\":0}";
    feed("bridle.run", "{\"runId\":\"r\",\"mode\":\"run\",\"model\":\"m\",\"rules\":1}");
    feed("agent.stopped", stopped);
    br_cli_view_summary(&view);
    assert_int_equal(count("changed    nothing: no sandbox was started\n"), 1);
    br_buf_reset(&view.out);
    feed("sandbox.started", "{}"); /* control: what that one changed was not recorded */
    br_cli_view_summary(&view);
    assert_int_equal(count("changed    not known\n"), 1);
}

static void test_summary_of_a_list_that_was_cut(void **state)
{
    (void)state;
    static const struct {
        const char *data, *shown;
    } rows[] = {
        {"{\"changed\":[],\"truncated\":true}", "changed    not known (the list was cut)\n"},
        {"{\"changed\":[],\"truncated\":false}", "changed    nothing in the workspace\n"},
        {"{\"changed\":[{\"path\":\"a\",\"change\":\"added\"}],\"truncated\":true}",
         "changed    added  a\n             the list was cut: there is more\n"},
        {"{\"changed\":[{\"path\":\"a\",\"change\":\"added\",\"set_group\":\"cleared\"}],"
         "\"truncated\":true}",
         "added  a\n                         its set-group-id bit was cleared\n"},
        {"{\"changed\":[{\"path\":\"a\",\"change\":\"added\",\"set_group\":\"kept\"}],"
         "\"truncated\":true}",
         "added  a\n                         its set-group-id bit was kept\n"},
    };
    feed("bridle.run", "{\"runId\":\"r\",\"mode\":\"run\",\"model\":\"m\",\"rules\":1}");
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        br_buf_reset(&view.out);
        feed("bridle.workspace", rows[i].data);
        br_cli_view_summary(&view);
        assert_int_equal(count(rows[i].shown), 1);
        assert_int_equal(count("cut"), i != 1);
    }
}

/* What ran and failed is not called ok. */
static void test_results(void **state)
{
    (void)state;
    static const struct {
        const char *data, *shown;
    } rows[] = {
        {"{\"ok\":true,\"output\":{\"exitCode\":0}}", "  \033[32mok\033[0m       exit 0\n"},
        {"{\"ok\":true,\"output\":{\"exitCode\":1}}", "  \033[33mexit 1\033[0m \n"},
        {"{\"ok\":true,\"output\":{\"exitCode\":126}}",
         "  \033[31mexit 126\033[0m    (it could not be run)\n"},
        {"{\"ok\":true,\"output\":{\"exitCode\":127}}",
         "  \033[31mexit 127\033[0m    (there is no such command)\n"},
        {"{\"ok\":true,\"output\":{\"signal\":9}}",
         "  \033[31msignal 9\033[0m    (killed; out of memory?)\n"},
        {"{\"ok\":true,\"output\":{\"signal\":11}}", "  \033[31msignal 11\033[0m  \n"},
        {"{\"ok\":true,\"output\":{\"signal\":9,\"timedOut\":true}}",
         "  \033[31msignal 9\033[0m    (killed), timed out\n"},
        {"{\"ok\":true,\"output\":{\"content\":\"AAAA\",\"bytes\":3,\"encoding\":\"base64\"}}",
         "  \033[32mok\033[0m       3 bytes of binary data\n"},
    };
    br_cli_view_free(&view);
    br_cli_view_init(&view, true, 80);
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        br_buf_reset(&view.out);
        feed("tool.result", rows[i].data);
        assert_string_equal(shown(), rows[i].shown);
    }
}

static void test_who_denied(void **state)
{
    (void)state;
    feed_at(0, "permission.resolved", "kernel",
            "{\"permissionId\":\"p\",\"decision\":\"deny\",\"note\":\"no terminal\"}");
    feed_at(0, "permission.resolved", "kernel", "{\"permissionId\":\"p\",\"decision\":\"deny\"}");
    feed_at(0, "permission.resolved", "operator", "{\"permissionId\":\"p\",\"decision\":\"deny\"}");
    assert_string_equal(shown(), "  denied: no terminal\n  denied: nobody answered\n"
                                 "  denied by the operator\n");
}

static void test_colour_is_only_ours(void **state)
{
    (void)state;
    br_cli_view_free(&view);
    br_cli_view_init(&view, true, 80);
    feed("tool.call",
         "{\"callId\":\"c\",\"tool\":\"\\u001b[31mred\",\"input\":{\"a\":\"\\u001b[0m\"}}");
    assert_non_null(strstr(shown(), "\033[1m> \\x1b[31mred\033[0m"));
}

static void test_what_is_not_an_event(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "{}",
                                      "[]",
                                      "null",
                                      "{\"type\":\"x\"}",
                                      "{\"type\":\"x\",\"data\":[]}",
                                      "{\"type\":1,\"data\":{}}",
                                      "{\"type\":\"x\",\"type\":\"y\",\"data\":{}}",
                                      "{\"type\":\"x\",\"data\":{}} trailing",
                                      "{\"type\":\"x\",\"data\":{\"a\":\"\xff\"}}"};
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++) {
        struct br_err err;
        assert_int_equal(br_cli_view_event(&view, bad[i], strlen(bad[i]), &err),
                         -BR_E_INVALID_JSON);
        assert_int_equal(view.out.len, 0);
    }
}

/* Wrong types in the right places are shown as nothing, never read as something else. */
static void test_wrong_types(void **state)
{
    (void)state;
    static const char *const types[] = {
        "bridle.run",       "bridle.text",          "tool.call",           "policy.decision",
        "bridle.votes",     "permission.requested", "permission.resolved", "tool.result",
        "sandbox.started",  "budget.warning",       "bridle.notice",       "bridle.provider",
        "bridle.workspace", "agent.stopped",        "model.response",      "bridle.exec"};
    static const char *const data[] = {
        "{}", "{\"text\":1,\"tool\":[],\"callId\":{},\"input\":[1,\"a\\nb\"],\"action\":null,"
              "\"effect\":7,"
              "\"votes\":{},\"output\":[[]],\"error\":\"x\",\"changed\":{\"a\":1},\"usage\":[],"
              "\"steps\":-5,\"status\":true,\"rules\":\"x\",\"permissionId\":9,\"durationMs\":-1}"};
    for (size_t i = 0; i < BR_ARRAY_LEN(types); i++)
        for (size_t k = 0; k < BR_ARRAY_LEN(data); k++)
            feed(types[i], data[k]);
    br_cli_view_summary(&view);
    assert_safe(80);
    assert_int_equal(view.steps, 0);
}

static void test_put_line(void **state)
{
    (void)state;
    struct br_buf b = BR_BUF_INIT(1000);
    br_cli_put_line(&b, "0123456789", 10, 10);
    assert_string_equal(br_buf_cstr(&b), "0123456789");
    br_buf_reset(&b);
    br_cli_put_line(&b, "0123456789a", 11, 10);
    assert_string_equal(br_buf_cstr(&b), "0123456...");
    br_buf_reset(&b);
    br_cli_put_line(&b, "a\nb\x1b", 4, 10);
    assert_string_equal(br_buf_cstr(&b), "a\\nb\\x1b");
    br_buf_free(&b);
}

static void test_json_on_a_terminal(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a\":\r\t\n\"\xc3\xa4 \x7f \xc2\x9b \xe2\x80\xae \xf3\xa0\x81\x81 \xf0\x9f\x98\x80\"}";
    struct br_buf b = BR_BUF_INIT(1000);
    br_cli_put_json_safe(&b, text, sizeof(text) - 1);
    assert_string_equal(
        br_buf_cstr(&b),
        "{\"a\":   \"\xc3\xa4 \\u007f \\u009b \\u202e \\udb40\\udc41 \xf0\x9f\x98\x80\"}");
    json_t *before = json_loadb(text, sizeof(text) - 1, 0, NULL);
    json_t *after = json_loadb((char *)b.data, b.len, 0, NULL);
    assert_true(before && json_equal(before, after));
    json_decref(before);
    json_decref(after);
    br_buf_free(&b);
}

#define VIEW_TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        VIEW_TEST(test_hostile_text),
        VIEW_TEST(test_hostile_text_folded),
        VIEW_TEST(test_folded),
        VIEW_TEST(test_questions),
        VIEW_TEST(test_hostile_status_line),
        VIEW_TEST(test_no_imitation),
        VIEW_TEST(test_streamed_text_is_folded),
        VIEW_TEST(test_long_values_are_bounded),
        VIEW_TEST(test_ask_shows_the_whole_command),
        VIEW_TEST(test_ask_shows_the_whole_content),
        VIEW_TEST(test_ask_shows_the_input_of_a_command),
        VIEW_TEST(test_folds_are_told_from_lines),
        VIEW_TEST(test_decision_names_its_rule),
        VIEW_TEST(test_summary),
        VIEW_TEST(test_summary_without_a_sandbox),
        VIEW_TEST(test_summary_of_a_list_that_was_cut),
        VIEW_TEST(test_results),
        VIEW_TEST(test_who_denied),
        VIEW_TEST(test_colour_is_only_ours),
        VIEW_TEST(test_what_is_not_an_event),
        VIEW_TEST(test_wrong_types),
        cmocka_unit_test(test_put_line),
        cmocka_unit_test(test_json_on_a_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
