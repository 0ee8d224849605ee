/*
 * `bridle run` and `bridle exec` with the real programs and nobody at the terminal: what must work,
 * and for every bad input the typed error and the proof that nothing happened.
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

static const char allow_all[] = "local policy = require \"bridle.policy\"\n"
                                "return policy.bundle { api = 1, name = \"test\", rules = {\n"
                                "  policy.allow { id = \"exec\", action = \"process.exec\" },\n"
                                "  policy.allow { id = \"read\", action = \"fs.read\" },\n"
                                "  policy.allow { id = \"write\", action = \"fs.write\" },\n} }\n";

static const char manifest[] = "id: e2e\ntitle: t\ngoal: g\nacceptance: [a]\n"
                               "allowed_paths: [src/**]\npermissions: {}\n"
                               "delivery: {type: none}\n";

static void open_project(struct e2e *t)
{
    e2e_open(t, 0);
    e2e_write(t, "workspace/src/a.txt", "before\n");
    e2e_write(t, "policy.lua", allow_all);
    e2e_write(t, "task.yaml", manifest);
}

static void close_project(struct e2e *t)
{
    e2e_expect_clean(t);
    e2e_close(t);
}

static unsigned count(const struct br_buf *b, const char *what)
{
    unsigned n = 0;
    for (const char *p = (const char *)b->data; p && (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

/* Run a one-turn scenario (then a final text) under allow_all. */
static void play(struct e2e *t, struct e2e_result *r, const char *turn, const char *extra)
{
    char scenario[4096];
    snprintf(scenario, sizeof(scenario),
             "{\"v\":1,\"name\":\"t\",\"turns\":[{\"when\":{\"assistant_messages\":0},%s},"
             "{\"text\":\"The end.\"}]}",
             turn);
    e2e_write(t, "scenario.json", scenario);
    e2e_run(t, r, "bridle", "run", "--json", "-C", "workspace", "-t", "task.yaml", "-p",
            "policy.lua", "--scenario", "scenario.json", "go", extra, NULL);
}

static void test_write_is_done_and_recorded(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    open_project(&t);
    play(&t, &r,
         "\"tool_calls\":[{\"name\":\"fs_write\",\"arguments\":{\"path\":\"src/new.txt\","
         "\"content\":\"hello\"}}]",
         NULL);
    e2e_expect(&r, 0, "\"status\":\"completed\"");
    e2e_expect_file(&t, "workspace/src/new.txt", "hello");
    assert_int_equal(count(&r.out, "\"type\":\"tool.call\""), 1);
    assert_int_equal(count(&r.out, "\"type\":\"policy.decision\""), 1);
    assert_int_equal(count(&r.out, "\"type\":\"sandbox.started\""), 1);
    assert_int_equal(count(&r.out, "\"type\":\"sandbox.stopped\""), 1);
    assert_int_equal(count(&r.out, "\"type\":\"bridle.launch\""), 1);
    assert_int_equal(count(&r.out, "\"path\":\"src/new.txt\",\"change\":\"added\""), 1);
    e2e_result_free(&r);
    close_project(&t);
}

/* Nobody answers: what the default policy asks about is denied, and nothing is changed. */
static void test_no_terminal_denies(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    open_project(&t);
    e2e_write(&t, "policy.lua",
              "local policy = require \"bridle.policy\"\n"
              "return policy.bundle { api = 1, name = \"ask\", rules = {\n"
              "  policy.ask { id = \"write\", action = \"fs.write\" },\n} }\n");
    play(&t, &r,
         "\"tool_calls\":[{\"name\":\"fs_write\",\"arguments\":{\"path\":\"src/a.txt\","
         "\"content\":\"after\"}}]",
         NULL);
    e2e_expect(&r, 0, "\"decision\":\"deny\"");
    assert_int_equal(count(&r.out, "\"type\":\"permission.requested\""), 1);
    assert_int_equal(count(&r.out, "\"type\":\"permission.resolved\""), 1);
    e2e_expect_file(&t, "workspace/src/a.txt", "before\n");
    e2e_result_free(&r);
    close_project(&t);
}

/* A search does not read for the model what the policy does not let it read. */
static void test_search_withholds(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    open_project(&t);
    e2e_write(&t, "workspace/.env", "needle=hidden\n");
    e2e_write(&t, "workspace/src/b.txt", "needle=seen\n");
    e2e_write(&t, "policy.lua",
              "local policy = require \"bridle.policy\"\n"
              "return policy.bundle { api = 1, name = \"t\", rules = {\n"
              "  policy.allow { id = \"read\", action = \"fs.read\" },\n"
              "  policy.ask { id = \"env\", action = \"fs.read\", path = \".env\" },\n} }\n");
    play(&t, &r, "\"tool_calls\":[{\"name\":\"fs_search\",\"arguments\":{\"text\":\"needle\"}}]",
         NULL);
    e2e_expect(&r, 0, "needle=seen");
    assert_int_equal(count(&r.out, "hidden"), 0);
    assert_int_equal(count(&r.out, "\"withheld\":1"), 1);
    e2e_result_free(&r);
    close_project(&t);
}

/* allowed_paths bind also what a command does, whatever the policy allows. */
static void test_outside_allowed_paths(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    open_project(&t);
    play(&t, &r,
         "\"tool_calls\":[{\"name\":\"process_exec\",\"arguments\":{\"argv\":[\"touch\",\"top\"]}},"
         "{\"name\":\"process_exec\",\"arguments\":{\"argv\":[\"touch\",\"src/inside\"]}}]",
         NULL);
    e2e_expect(&r, 0, "Read-only file system");
    e2e_expect_file(&t, "workspace/top", NULL);
    e2e_expect_file(&t, "workspace/src/inside", ""); /* positive control */
    e2e_result_free(&r);
    close_project(&t);
}

static void test_bad_calls_have_no_effect(void **state)
{
    (void)state;
    static const struct {
        const char *turn, *code;
    } rows[] = {
        {"\"tool_calls\":[{\"name\":\"fs_delete\",\"arguments\":{\"path\":\"src/a.txt\"}}]",
         "UNKNOWN_TOOL"},
        {"\"tool_calls\":[{\"name\":\"fs_write\",\"arguments\":{\"path\":\"src/a.txt\"}}]",
         "INVALID_ARGUMENTS"},
        {"\"tool_calls\":[{\"name\":\"fs_write\",\"arguments\":{\"path\":\"../a.txt\",\"content\":"
         "\"x\"}}]",
         "INVALID_ARGUMENTS"},
        {"\"tool_calls\":[{\"name\":\"fs_write\",\"arguments\":{\"path\":\"src/a.txt\",\"content\":"
         "\"x\",\"force\":true}}]",
         "INVALID_ARGUMENTS"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct e2e t;
        struct e2e_result r;
        open_project(&t);
        play(&t, &r, rows[i].turn, NULL);
        e2e_expect(&r, 0, rows[i].code);
        assert_int_equal(count(&r.out, "\"type\":\"policy.decision\""), 0);
        assert_int_equal(count(&r.out, "\"ok\":false"), 1);
        e2e_expect_file(&t, "workspace/src/a.txt", "before\n");
        e2e_result_free(&r);
        close_project(&t);
    }
}

/* What a model writes into a call is the model's mistake: it is told, and the run goes on. */
static void test_unusable_calls_are_answered(void **state)
{
    (void)state;
    static const struct {
        const char *turn, *code, *recorded;
        unsigned failed;
    } rows[] = {
        {"\"fault\":\"bad_tool_json\",\"tool_calls\":[{\"name\":\"fs_write\",\"arguments\":"
         "{\"path\":\"src/a.txt\",\"content\":\"after\"}},{\"name\":\"fs_list\",\"arguments\":{}}]",
         "INVALID_ARGUMENTS", "\"input\":{\"unparsed\":\"{", 2},
        {"\"tool_calls\":[{\"name\":\"fs_write\\u001b[2J\",\"arguments\":{\"path\":\"src/a.txt\","
         "\"content\":\"after\"}}]",
         "UNKNOWN_TOOL", "\"tool\":\"fs_write\\\\x1b[2J\"", 1},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct e2e t;
        struct e2e_result r;
        open_project(&t);
        play(&t, &r, rows[i].turn, NULL);
        e2e_expect(&r, 0, rows[i].code);
        e2e_expect(&r, 0, rows[i].recorded);
        e2e_expect(&r, 0, "The end.");
        assert_int_equal(count(&r.out, "\"ok\":false"), rows[i].failed);
        assert_int_equal(count(&r.out, "\"ok\":true"), 0);
        assert_int_equal(count(&r.out, "\"type\":\"policy.decision\""), 0);
        e2e_expect_file(&t, "workspace/src/a.txt", "before\n");
        e2e_result_free(&r);
        close_project(&t);
    }
}

static void test_provider_faults_end_the_run(void **state)
{
    (void)state;
    static const struct {
        const char *fault, *code;
    } rows[] = {
        {"\"close\"", "PROVIDER_"},
        {"\"garbage\"", "PROVIDER_INVALID_RESPONSE"},
        {"\"no_done\"", "PROVIDER_TRUNCATED"},
        {"\"two_choices\"", "PROVIDER_INVALID_RESPONSE"},
        {"\"legacy_function_call\"", "PROVIDER_INVALID_RESPONSE"},
        {"\"bad_usage\"", "PROVIDER_INVALID_RESPONSE"},
        {"\"duplicate_ids\"", "PROVIDER_INVALID_RESPONSE"},
        {"\"wrong_finish\"", "PROVIDER_INVALID_RESPONSE"},
        {"\"redirect\"", "PROVIDER_STATUS"},
        {"{\"status\":401,\"body\":\"{\\\"error\\\":{\\\"message\\\":\\\"no\\\"}}\"}",
         "PROVIDER_STATUS"},
        {"{\"status\":500,\"body\":\"oops\"}", "PROVIDER_STATUS"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct e2e t;
        struct e2e_result r;
        char turn[512];
        open_project(&t);
        snprintf(turn, sizeof(turn),
                 "\"fault\":%s,\"tool_calls\":[{\"name\":\"fs_write\",\"arguments\":{\"path\":"
                 "\"src/a.txt\",\"content\":\"after\"}},{\"name\":\"fs_list\",\"arguments\":{}}]",
                 rows[i].fault);
        play(&t, &r, turn, NULL);
        if (r.status != 1 || !count(&r.out, rows[i].code))
            fail_msg("%s: status %d\n%s%s", rows[i].fault, r.status, (char *)r.out.data,
                     (char *)r.err.data);
        assert_int_equal(count(&r.out, "\"status\":\"failed\""), 2); /* sandbox and agent */
        assert_int_equal(count(&r.out, "\"finishReason\":\"error\""), 1);
        e2e_expect_file(&t, "workspace/src/a.txt", "before\n");
        e2e_result_free(&r);
        close_project(&t);
    }
}

static void test_provider_down(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    const char *const argv[] = {"bridle", "run",       "--json", "-C",         "workspace",
                                "-t",     "task.yaml", "-p",     "policy.lua", "-m",
                                "gpt-x",  "go",        NULL};
    const char *const env[] = {"OPENAI_BASE_URL=http://127.0.0.1:1/v1",
                               "OPENAI_API_KEY=sk-canary-0123456789abcdef", NULL};
    open_project(&t);
    e2e_wait(&t, e2e_spawn(&t, (char *const *)argv, (char *const *)env), 60, &r);
    e2e_expect(&r, 1, "PROVIDER_UNREACHABLE");
    assert_int_equal(count(&r.out, "sk-canary"), 0);
    assert_int_equal(count(&r.err, "sk-canary"), 0);
    e2e_result_free(&r);
    close_project(&t);
}

static void test_bad_policies(void **state)
{
    (void)state;
    static const struct {
        const char *what, *text, *said;
    } rows[] = {
        {"syntax", "return {", "policy.lua"},
        {"loop", "while true do end", "policy.lua"},
        {"allocation", "local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1e6) end", "policy.lua"},
        {"nonsense", "return 42", "policy.lua"},
        {"unknown global", "return os.getenv('HOME')", "policy.lua"},
        {"bytecode", "\033Lua", "policy.lua"},
        {"unknown key",
         "local p = require 'bridle.policy'\nreturn p.bundle { api = 1, name = 'x', rulez = {} }",
         "rulez"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct e2e t;
        struct e2e_result r;
        open_project(&t);
        e2e_write(&t, "policy.lua", rows[i].text);
        play(&t, &r, "\"text\":\"never\"", NULL);
        if (r.status != 5 || !count(&r.err, rows[i].said))
            fail_msg("%s: status %d\n%s%s", rows[i].what, r.status, (char *)r.out.data,
                     (char *)r.err.data);
        assert_int_equal(count(&r.out, "\"type\":\"sandbox.started\""), 0);
        assert_int_equal(count(&r.out, "\"type\":\"model.request\""), 0);
        e2e_result_free(&r);
        close_project(&t);
    }
}

static void test_bad_manifests(void **state)
{
    (void)state;
    static const struct {
        const char *what, *text;
    } rows[] = {
        {"not yaml", "id: [a\n"},
        {"unknown key", "id: e2e\ntitle: t\ngoal: g\nacceptance: [a]\nallowed_paths: [src/**]\n"
                        "permission: {}\ndelivery: {type: none}\n"},
        {"duplicate key", "id: e2e\nid: e3e\ntitle: t\ngoal: g\nacceptance: [a]\n"
                          "allowed_paths: [src/**]\npermissions: {}\ndelivery: {type: none}\n"},
        {"alias", "id: &a e2e\ntitle: *a\ngoal: g\nacceptance: [a]\nallowed_paths: [src/**]\n"
                  "permissions: {}\ndelivery: {type: none}\n"},
        {"bare **", "id: e2e\ntitle: t\ngoal: g\nacceptance: [a]\nallowed_paths: ['**']\n"
                    "permissions: {}\ndelivery: {type: none}\n"},
        {"parent", "id: e2e\ntitle: t\ngoal: g\nacceptance: [a]\nallowed_paths: [../x]\n"
                   "permissions: {}\ndelivery: {type: none}\n"},
        {"missing source", "id: e2e\ntitle: t\ngoal: g\nacceptance: [a]\nallowed_paths: [nope]\n"
                           "permissions: {}\ndelivery: {type: none}\n"},
        {"invalid UTF-8", "id: e2e\ntitle: \"\xff\"\n"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct e2e t;
        struct e2e_result r;
        open_project(&t);
        e2e_write(&t, "task.yaml", rows[i].text);
        play(&t, &r, "\"text\":\"never\"", NULL);
        if (r.status != 5)
            fail_msg("%s: status %d\n%s%s", rows[i].what, r.status, (char *)r.out.data,
                     (char *)r.err.data);
        assert_int_equal(count(&r.out, "\"type\":\"sandbox.started\""), 0);
        assert_int_equal(count(&r.out, "\"type\":\"model.request\""), 0);
        e2e_result_free(&r);
        close_project(&t);
    }
}

/* A manifest that lies where the agent writes opens no hidden entry; one from elsewhere may. */
static void test_hidden_paths(void **state)
{
    (void)state;
    static const struct {
        const char *manifest, *path;
        int status;
    } rows[] = {
        {"workspace/task.yaml", ".envrc", 5},
        {"workspace/task.yaml", ".github/**", 5},
        {"workspace/src/task.yaml", ".envrc", 5},
        {"workspace/task.yaml", ".github/x", 5},
        {"task.yaml", ".envrc", 0},
        {"workspace/task.yaml", "src/.envrc", 0},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct e2e t;
        struct e2e_result r;
        char text[300], made[80];
        bool ok = rows[i].status == 0;
        open_project(&t);
        e2e_write(&t, "workspace/.envrc", "before\n");
        e2e_write(&t, "workspace/src/.envrc", "before\n");
        e2e_write(&t, "workspace/.github/x", "before\n");
        e2e_write(&t, "workspace/src/a.txt", "written\n");
        snprintf(text, sizeof(text),
                 "id: e2e\ntitle: t\ngoal: g\nacceptance: [a]\nallowed_paths: [%s]\n"
                 "permissions: {}\ndelivery: {type: none}\n",
                 rows[i].path);
        e2e_write(&t, rows[i].manifest, text);
        const char *file = strstr(rows[i].path, "/**") ? ".github/x" : rows[i].path;
        e2e_run(&t, &r, "bridle", "exec", "--json", "-C", "workspace", "-p", "policy.lua",
                rows[i].manifest, "--", "cp", "src/a.txt", file, NULL);
        snprintf(made, sizeof(made), "workspace/%s", file);
        if (r.status != rows[i].status)
            fail_msg("%s in %s: status %d\n%s%s", rows[i].path, rows[i].manifest, r.status,
                     (char *)r.out.data, (char *)r.err.data);
        if (!ok) {
            e2e_expect(&r, 5, "INVALID_ALLOWED_PATH");
            e2e_expect(&r, 5, rows[i].path);
            e2e_expect(&r, 5, "keep the manifest outside of the workspace");
            assert_int_equal(count(&r.out, "\"type\":\"sandbox.started\""), 0);
        }
        e2e_expect_file(&t, made, ok ? "written\n" : "before\n");
        e2e_result_free(&r);
        close_project(&t);
    }
}

/* A goal is the operator's words: line ends and tabs are, other control characters are not. */
static void test_control_characters_in_a_goal(void **state)
{
    (void)state;
    static const struct {
        const char *goal, *said;
        bool manifest;
    } rows[] = {
        {"one\n\ttwo", NULL, false},     {"one\n\ttwo", NULL, true},
        {"a\033[31m", "\\\\x1b", false}, {"a\033[31m", "\\\\x1b", true},
        {"a\rb", "\\\\x0d", false},      {"a\177", "\\\\x7f", false},
        {"a\302\233", "\\\\x9b", false},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct e2e t;
        struct e2e_result r;
        open_project(&t);
        e2e_write(&t, "scenario.json",
                  "{\"v\":1,\"name\":\"t\",\"turns\":[{\"text\":\"The end.\"}]}");
        e2e_run(&t, &r, "bridle", "run", "--json", "-C", "workspace", "--scenario", "scenario.json",
                "-p", "policy.lua", rows[i].goal, rows[i].manifest ? "-t" : NULL, "task.yaml",
                NULL);
        if (rows[i].said) {
            e2e_expect(&r, 2, rows[i].said);
            assert_int_equal(count(&r.out, "INVALID_MANIFEST"), 0);
            assert_int_equal(count(&r.out, "\"type\":\"sandbox.started\""), 0);
            assert_int_equal(count(&r.out, "\"type\":\"model.request\""), 0);
        } else {
            e2e_expect(&r, 0, "\"status\":\"completed\"");
        }
        e2e_result_free(&r);
        close_project(&t);
    }
}

static void test_bad_workspaces(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    char path[160];
    struct stat st;
    static const char *const names[] = {"absent", "link", "file", "rootish", "bad\xff\xfe"};
    for (size_t i = 0; i < BR_ARRAY_LEN(names); i++) {
        open_project(&t);
        e2e_write(&t, "file", "x");
        snprintf(path, sizeof(path), "%s/link", t.dir);
        assert_int_equal(symlink("workspace", path), 0);
        snprintf(path, sizeof(path), "%s/rootish", t.dir);
        assert_int_equal(mkdir(path, 0755), 0);
        e2e_write(&t, "bad\xff\xfe/src/a.txt", "a");
        if (geteuid() != 0 && strcmp(names[i], "rootish") == 0) {
            e2e_close(&t); /* an ordinary user cannot make one */
            continue;
        }
        t.activated = true; /* there is to be no state directory */
        e2e_run(&t, &r, "bridle", "exec", "-C", names[i], "task.yaml", "--", "true", NULL);
        e2e_expect(&r, 5, "nothing was started");
        e2e_expect(&r, 5, strchr(names[i], '\xff') ? "is not valid UTF-8" : names[i]);
        assert_int_equal(stat(t.state, &st), -1); /* not even a record was begun */
        e2e_result_free(&r);
        close_project(&t);
    }
}

static void test_exec_passes_the_status_on(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    open_project(&t);
    e2e_run(&t, &r, "bridle", "exec", "-C", "workspace", "-p", "policy.lua", "task.yaml", "--",
            "cat", "src/a.txt", NULL);
    e2e_expect(&r, 0, "before");
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "exec", "-C", "workspace", "-p", "policy.lua", "task.yaml", "--",
            "grep", "nothing", "src/a.txt", NULL);
    e2e_expect(&r, 1, NULL);
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "exec", "-C", "workspace", "-p", "policy.lua", "task.yaml", "--",
            "no-such-program", NULL);
    e2e_expect(&r, 127, NULL);
    e2e_result_free(&r);
    /* opaque: asked, and there is nobody to ask */
    e2e_run(&t, &r, "bridle", "exec", "-C", "workspace", "-p", "policy.lua", "task.yaml", "--",
            "sh", "-c", "eval 'touch src/x; exit 7'", NULL);
    e2e_expect(&r, 4, NULL);
    e2e_expect_file(&t, "workspace/src/x", NULL);
    e2e_result_free(&r);
    /* where there is a state directory, doctor looks there, and finds that the above can run */
    e2e_run(&t, &r, "bridle", "doctor", NULL);
    if (r.status != 0 || !strstr((const char *)r.out.data, "idmapped mounts       ok"))
        fail_msg("status %d: %s", r.status, (const char *)r.out.data);
    e2e_result_free(&r);
    close_project(&t);
}

/* What a model says reaches neither the terminal as control characters nor, if it is a secret,
 * anything at all. */
/* Without a manifest: a tree that cannot be granted exactly is left read-only, and the run goes on.
 */
/* A command may give a file its group's identity, which does not last longer than the run. */
static void test_set_group_is_cleared(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    struct stat st;
    char path[160];
    open_project(&t);
    e2e_write(&t, "workspace/src/s.py",
              "import os, shutil\nshutil.copy('/bin/true', 'src/own')\nos.mkdir('src/team')\n"
              "os.chmod('src/own', 0o2755)\nos.chmod('src/team', 0o2775)\n"
              "print('%o' % os.stat('src/own').st_mode)\n");
    e2e_run(&t, &r, "bridle", "exec", "-C", "workspace", "-p", "policy.lua", "task.yaml", "--",
            "python3", "src/s.py", NULL);
    e2e_expect(&r, 0, "102755"); /* the control: it was there */
    assert_int_equal(count(&r.out, "its set-group-id bit was cleared") +
                         count(&r.err, "its set-group-id bit was cleared"),
                     1);
    snprintf(path, sizeof(path), "%s/src/own", t.workspace);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0755);
    snprintf(path, sizeof(path), "%s/src/team", t.workspace);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 02775);
    e2e_result_free(&r);
    close_project(&t);
}

static void test_defaults_leave_out(void **state)
{
    struct e2e t;
    struct e2e_result r;
    char from[192], to[192];
    (void)state;
    open_project(&t);
    e2e_write(&t, "workspace/store/file", "kept\n");
    e2e_write(&t, "workspace/linked/other", "x\n");
    snprintf(from, sizeof(from), "%s/outside", t.dir);
    e2e_write(&t, "outside", "canary\n");
    snprintf(to, sizeof(to), "%s/linked/file", t.workspace);
    assert_int_equal(link(from, to), 0);
    e2e_write(&t, "scenario.json",
              "{\"v\":1,\"name\":\"t\",\"turns\":[{\"when\":{\"assistant_messages\":0},"
              "\"tool_calls\":["
              "{\"name\":\"fs_write\",\"arguments\":{\"path\":\"src/new\",\"content\":\"x\"}},"
              "{\"name\":\"fs_write\",\"arguments\":{\"path\":\"store/file\",\"content\":\"x\"}},"
              "{\"name\":\"fs_write\",\"arguments\":{\"path\":\"linked/new\",\"content\":\"x\"}}]},"
              "{\"text\":\"The end.\"}]}");
    e2e_run(&t, &r, "bridle", "run", "--json", "-C", "workspace", "-p", "policy.lua", "--scenario",
            "scenario.json", "go", NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    e2e_expect_file(&t, "workspace/src/new", "x");
    e2e_expect_file(&t, "workspace/store/file", "x");
    e2e_expect_file(&t, "workspace/linked/new", NULL);
    e2e_expect_file(&t, "outside", "canary\n");
    close_project(&t);
}

static void test_hostile_text(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    open_project(&t);
    e2e_write(&t, "scenario.json",
              "{\"v\":1,\"name\":\"t\",\"turns\":[{\"text\":\"red \\u001b[31m title "
              "\\u001b]0;x\\u0007 c1 \\u009b31m bidi \\u202e key "
              "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD end\"}]}");
    e2e_run(&t, &r, "bridle", "run", "-C", "workspace", "-t", "task.yaml", "-p", "policy.lua",
            "--scenario", "scenario.json", "go", NULL);
    e2e_expect(&r, 0, "red");
    assert_int_equal(count(&r.out, "\033"), 0);
    assert_int_equal(count(&r.out, "\007"), 0);
    assert_int_equal(count(&r.out, "\xc2\x9b"), 0);
    assert_int_equal(count(&r.out, "\xe2\x80\xae"), 0);
    assert_int_equal(count(&r.out, "abcdefghijklmnop"), 0);
    assert_true(count(&r.out, "redacted") >= 1);
    assert_true(count(&r.out, "scripted") >= 1); /* labelled */
    e2e_result_free(&r);
    close_project(&t);
}

static void test_budget(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    open_project(&t);
    e2e_write(&t, "task.yaml",
              "id: e2e\ntitle: t\ngoal: g\nacceptance: [a]\nallowed_paths: [src/**]\n"
              "permissions: {}\nbudget: {max_tool_calls: 1}\ndelivery: {type: none}\n");
    play(&t, &r,
         "\"tool_calls\":[{\"name\":\"fs_list\",\"arguments\":{}},{\"name\":\"fs_write\","
         "\"arguments\":{\"path\":\"src/a.txt\",\"content\":\"after\"}}]",
         NULL);
    e2e_expect(&r, 7, "\"status\":\"budget_exceeded\"");
    e2e_expect_file(&t, "workspace/src/a.txt", "before\n");
    e2e_result_free(&r);
    close_project(&t);
}

static unsigned long tokens_of(const struct e2e_result *r, const char *key)
{
    const char *text = (const char *)r->out.data, *at;
    assert_true(text && (at = strstr(text, "\"type\":\"model.response\"")) &&
                (at = strstr(at, key)));
    return strtoul(at + strlen(key), NULL, 10);
}

static void play_within(struct e2e *t, struct e2e_result *r, const char *turn, unsigned long tokens)
{
    char task[512];
    snprintf(task, sizeof(task),
             "id: e2e\ntitle: t\ngoal: g\nacceptance: [a]\nallowed_paths: [src/**]\n"
             "permissions: {}\nbudget: {max_model_tokens: %lu}\ndelivery: {type: none}\n",
             tokens);
    e2e_write(t, "task.yaml", task);
    play(t, r, turn, NULL);
}

/* A request that is too large for what is left is not sent; an answer that is too large ends the
 * run, whatever it says, and what it calls does not happen. */
static void test_token_budget(void **state)
{
    static const char text[] = "\"text\":\"That is all that there is to say about it.\"",
                      call[] = "\"tool_calls\":[{\"name\":\"fs_write\",\"arguments\":{\"path\":"
                               "\"src/a.txt\",\"content\":\"after\"}}]";
    (void)state;
    struct e2e t;
    struct e2e_result r;
    open_project(&t);
    play_within(&t, &r, text, 100);
    e2e_expect(&r, 7, "\"status\":\"budget_exceeded\"");
    e2e_expect(&r, 7, "it was not sent");
    assert_int_equal(count(&r.out, "\"type\":\"model.request\""), 0);
    assert_int_equal(count(&r.out, "\"type\":\"bridle.provider\""), 0);
    e2e_result_free(&r);
    play_within(&t, &r, text, 1000000);
    e2e_expect(&r, 0, "\"status\":\"completed\"");
    unsigned long all = tokens_of(&r, "\"totalTokens\":");
    unsigned long prompt = tokens_of(&r, "\"promptTokens\":");
    e2e_result_free(&r);
    unsigned within = 0, beyond = 0;
    for (unsigned long max = all - 3; max <= all + 1; max++) { /* up to it, and not beyond */
        play_within(&t, &r, text, max);
        bool fits = tokens_of(&r, "\"totalTokens\":") <= max;
        e2e_expect(&r, fits ? 0 : 7,
                   fits ? "\"status\":\"completed\"" : "\"status\":\"budget_exceeded\"");
        assert_int_equal(count(&r.out, "\"type\":\"budget.warning\""), 1);
        within += fits;
        beyond += !fits;
        e2e_result_free(&r);
    }
    assert_true(within && beyond);
    play_within(&t, &r, call, prompt + 2);
    e2e_expect(&r, 7, "\"status\":\"budget_exceeded\"");
    assert_true(tokens_of(&r, "\"totalTokens\":") > prompt + 2);
    assert_int_equal(count(&r.out, "\"type\":\"tool.call\""), 0);
    e2e_result_free(&r);
    e2e_expect_file(&t, "workspace/src/a.txt", "before\n");
    play_within(&t, &r, call, prompt + 500); /* the first, and no second one */
    e2e_expect(&r, 7, "it was not sent");
    assert_int_equal(count(&r.out, "\"type\":\"model.request\""), 1);
    e2e_expect_file(&t, "workspace/src/a.txt", "after");
    e2e_result_free(&r);
    close_project(&t);
}

static void test_validate(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    struct stat st;
    open_project(&t);
    e2e_run(&t, &r, "bridle", "validate", "task.yaml", NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    e2e_write(&t, "task.yaml", "id: E2E\n");
    e2e_run(&t, &r, "bridle", "validate", "task.yaml", NULL);
    e2e_expect(&r, 5, "id");
    assert_int_equal(stat(t.state, &st), -1); /* it leaves no record */
    e2e_result_free(&r);
    close_project(&t);
}

#define ORDINARY_UID 61900u

static void undelegate(void)
{
    /* empty directories: what the delegation made, and nothing else has this name */
    assert_int_equal(system("find /sys/fs/cgroup -ignore_readdir_race -depth -type d -name "
                            "'bridle-61900' -exec rmdir {} +"),
                     0);
}

/* An ordinary user without a place for limits is refused, and told what to do; with it, all works.
 */
static void test_ordinary_user(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    if (geteuid() != 0) {
        print_message(
            "this test starts as root; an ordinary user's run is the rest of this file\n");
        skip();
    }
    char bin[128], real[BR_PATH_MAX];
    e2e_open(&t, ORDINARY_UID);
    /* the build may lie where only root gets to */
    snprintf(real, sizeof(real), "%s", e2e_bin());
    e2e_copy_bin(&t, NULL, NULL, bin);
    assert_int_equal(setenv("BRIDLE_BIN", bin, 1), 0);
    e2e_write(&t, "workspace/src/a.txt", "before\n");
    e2e_write(&t, "policy.lua", allow_all);
    e2e_write(&t, "task.yaml", manifest);
    e2e_run(&t, &r, "bridle", "exec", "-C", "workspace", "-p", "policy.lua", "task.yaml", "--",
            "touch", "src/x", NULL);
    e2e_expect(&r, 6, "bridle doctor --delegate");
    e2e_expect_file(&t, "workspace/src/x", NULL);
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "doctor", NULL);
    e2e_expect(&r, 6, "missing");
    e2e_result_free(&r);

    t.uid = 0;
    e2e_run(&t, &r, "bridle", "doctor", "--delegate", "61900", NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    t.uid = ORDINARY_UID;
    e2e_run(&t, &r, "bridle", "doctor", NULL);
    int doctor = r.status;
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "exec", "-C", "workspace", "-p", "policy.lua", "task.yaml", "--",
            "touch", "src/x", NULL);
    e2e_expect_clean(&t);
    undelegate();
    assert_int_equal(setenv("BRIDLE_BIN", real, 1), 0);
    assert_int_equal(doctor, 0);
    e2e_expect(&r, 0, NULL);
    e2e_expect_file(&t, "workspace/src/x", "");
    e2e_result_free(&r);
    e2e_close(&t);
}

int main(void)
{
    e2e_isolate();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_is_done_and_recorded),
        cmocka_unit_test(test_no_terminal_denies),
        cmocka_unit_test(test_search_withholds),
        cmocka_unit_test(test_outside_allowed_paths),
        cmocka_unit_test(test_bad_calls_have_no_effect),
        cmocka_unit_test(test_unusable_calls_are_answered),
        cmocka_unit_test(test_provider_faults_end_the_run),
        cmocka_unit_test(test_provider_down),
        cmocka_unit_test(test_bad_policies),
        cmocka_unit_test(test_bad_manifests),
        cmocka_unit_test(test_hidden_paths),
        cmocka_unit_test(test_control_characters_in_a_goal),
        cmocka_unit_test(test_bad_workspaces),
        cmocka_unit_test(test_exec_passes_the_status_on),
        cmocka_unit_test(test_set_group_is_cleared),
        cmocka_unit_test(test_defaults_leave_out),
        cmocka_unit_test(test_hostile_text),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_token_budget),
        cmocka_unit_test(test_validate),
        cmocka_unit_test(test_ordinary_user),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
