/*
 * `bridle repl` over real records that real runs made, as root and as an ordinary user: verbs, Lua,
 * a terminal, pipes, and everything that can be wrong with what it is given. It changes nothing.
 */
#include "repl_rig.h"

/* The record as it is stored; free it. */
static char *stored(const char *id)
{
    struct e2e_result r;
    e2e_run(&t, &r, "bridle", "show", "--json", id, NULL);
    e2e_expect(&r, 0, NULL);
    char *text = strdup((char *)r.out.data);
    e2e_result_free(&r);
    return text;
}

static void run_id(char id[BR_ID_MAX], const char *expression)
{
    struct e2e_result r;
    char code[256];
    snprintf(code, sizeof(code), "print(%s)", expression);
    e2e_run(&t, &r, "bridle", "repl", "-e", code, NULL);
    e2e_expect(&r, 0, "run_");
    snprintf(id, BR_ID_MAX, "%s", (char *)r.out.data);
    id[strcspn(id, "\n")] = '\0';
    e2e_result_free(&r);
}

/* ---- verbs and Lua ---- */

static void over_real_records(uid_t uid)
{
    char first[BR_ID_MAX], code[256];
    open_with_runs(uid);
    char *before = stored("last");
    repl("sessions", 0, "completed");
    repl("session last", 0, "second");
    run_id(first, "sessions[1].runId");
    snprintf(code, sizeof(code), "session %s", first);
    repl(code, 0, "first");
    /* a prefix: all but the last three characters are the first one's own, as ids go by time */
    snprintf(code, sizeof(code), "session %.*s", (int)strlen(first) - 3, first);
    repl(code, 0, "first");
    repl("events last", 0, "agent.stopped");
    repl("events last policy.decision", 0, "action=fs.write effect=deny");
    repl("events last bridle. 1..2", 0, "bridle.run");
    repl("events last 1", 0, "session.created");
    repl("decisions last", 0, "answered deny by kernel");
    repl("leases", 0, "the lease root is empty");
    repl("lease last", 0, "that session had no lease");
    repl("activations", 0, "run-v1");
    repl("policy policy.lua", 0, "operator:write");
    repl("why fs.write a.txt", 0, "by ");
    repl("limits 1 2 3", 0, "depth 1, items 2, bytes 3");
    repl("help", 0, "decisions ID");
    repl("help events", 0, "events(id, {type=, from=, to=})");
    repl("quit", 0, NULL);

    repl("#sessions", 0, "2\n");
    repl("sessions[2].goal", 0, "\"second\"\n");
    repl("map(decisions('last'), function(d) return d.effect end)", 0,
         "{ \"allow\", \"ask\", \"deny\" }\n");
    repl("decisions('last')[2].answer.decision, decisions('last')[2].subject", 0,
         "\"deny\"\n\"true 'one \\x1b[31mtwo'\"\n");
    repl("decisions last", 0, "true 'one \\x1b[31mtwo'");
    repl("print(decisions('last')[2].subject)", 0, "true 'one \\x1b[31mtwo'\n");
    repl("decisions('last')[3].rule", 0, "\"operator:write\"\n");
    repl("decisions('last')[3].reason", 0, "\"frozen\"\n");
    repl("why last 99999", 1, "has no decision about the call '99999'");
    snprintf(code, sizeof(code), "#events('%s') == session('%s').events", first, first);
    repl(code, 0, "true\n");
    repl("events('last', {from = 2, to = 2})[1].type", 0, "\"bridle.run\"\n");
    repl("activations[1].profile", 0, "\"run-v1\"\n");
    repl("leases", 0, NULL);
    /* a call by its id, and by its row */
    struct e2e_result r;
    e2e_run(&t, &r, "bridle", "repl", "-e", "d = decisions('last')[3]", "-e",
            "print(d.callId, d.row)", NULL);
    e2e_expect(&r, 0, NULL);
    char call[64];
    unsigned row;
    assert_int_equal(sscanf((char *)r.out.data, "%63s %u", call, &row), 2);
    e2e_result_free(&r);
    snprintf(code, sizeof(code), "why last %s", call);
    repl(code, 0, "because frozen");
    repl(code, 0, "recorded: deny  by operator:write (operator)");
    snprintf(code, sizeof(code), "why last %u", row);
    repl(code, 0, "recorded: deny  by operator:write (operator)");
    repl("#policy.sha256, policy.table.rules[1].id ~= nil", 0, "64\ntrue\n");
    /* and all that changed nothing */
    char *after = stored("last");
    assert_string_equal(before, after);
    free(before);
    free(after);
    close_all();
}

static void test_as_root(void **state)
{
    (void)state;
    over_real_records(0);
}

static void test_as_user(void **state)
{
    (void)state;
    over_real_records(ORDINARY_UID);
}

/* Every line of --json is JSON, and the events are the stored bytes behind their row. */
static void test_json(void **state)
{
    (void)state;
    struct e2e_result r;
    open_with_runs(0);
    static const char *const codes[] = {
        "sessions",         "session last", "events last", "decisions last",  "activations",
        "leases",           "limits",       "sessions[1]", "1, 'a', {}, nil", "policy policy.lua",
        "why fs.read a.txt"};
    for (size_t i = 0; i < BR_ARRAY_LEN(codes); i++) {
        e2e_run(&t, &r, "bridle", "repl", "--json", "-e", codes[i], NULL);
        e2e_expect(&r, 0, NULL);
        char *save = NULL;
        for (char *l = strtok_r((char *)r.out.data, "\n", &save); l;
             l = strtok_r(NULL, "\n", &save)) {
            json_t *v = json_loads(l, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
            if (!v)
                fail_msg("%s: '%s' is not JSON", codes[i], l);
            json_decref(v);
        }
        e2e_result_free(&r);
    }
    char *events = stored("last");
    e2e_run(&t, &r, "bridle", "repl", "--json", "-e", "events last", NULL);
    char *save1 = NULL, *save2 = NULL;
    char *a = strtok_r(events, "\n", &save1); /* the row of the list comes first */
    a = strtok_r(NULL, "\n", &save1);
    char *b = strtok_r((char *)r.out.data, "\n", &save2);
    unsigned n = 0;
    for (; a && b; a = strtok_r(NULL, "\n", &save1), b = strtok_r(NULL, "\n", &save2)) {
        char head[32];
        snprintf(head, sizeof(head), "{\"row\":%u,", ++n);
        assert_int_equal(strncmp(b, head, strlen(head)), 0);
        assert_string_equal(b + strlen(head), a + 1);
    }
    assert_true(!a && !b && n > 20);
    free(events);
    e2e_result_free(&r);
    close_all();
}

/* ---- bad input ---- */

static void test_bad_input(void **state)
{
    (void)state;
    open_with_runs(0);
    static const struct {
        const char *code, *says;
    } rows[] = {
        {"session", "that is not how 'session' is written: session ID"},
        {"session a b", "that is not how 'session' is written"},
        {"session run_zzz", "run_zzz"},
        {"session ''", "an id is empty"},
        {"session run_", "run_"},
        {"events nothing", "nothing"},
        {"events last 9..3", "is no range of rows"},
        {"events last 0", "is no range of rows"},
        {"events last 1..2 3..4", "one word too many"},
        {"events last tool.call tool.result", "one word too many"},
        {"why last", "that is not how 'why' is written"},
        {"why run_zzz 1", "run_zzz"},
        {"why last 1 2", "name the session and one call or row"},
        {"lease nothing", "neither a file of the lease root nor the id of a session"},
        {"policy nowhere.lua", "nowhere.lua"},
        {"limits 0", "'depth' must be a number from 1 to 32"},
        {"limits x", "'depth' must be a number"},
        {"limits 33", "'depth' must be a number"},
        {"limits 1 10001", "'items' must be a number"},
        {"limits 1 1 1048577", "'bytes' must be a number"},
        {"help nothing", "there is no help about 'nothing'"},
        {"help evnts", "did you mean 'events'"},
        {"evnts last", "did you mean 'events'"},
        {"sesions", "did you mean 'sessions'"},
        {"session 'last", "the quote ' is not closed"},
        {"session \xff", "not valid UTF-8"},
        {"x = '\xff'", "not valid UTF-8"},
        {"session('run_zzz')", "run_zzz"},
        {"session('')", "an id is empty"},
        {"events('last', { tpye = 1 })", "no option 'tpye'"},
        {"sessions[1].goal = 'x'", "a snapshot cannot be changed"},
        {"io.open('/etc/passwd')", "the sandbox does not have it"},
        {"x = {", "<eof>"},
        {"error('mine')", "-e:1: mine"},
        {"\n\nnil.x()", "-e:3:"},
        {"while true do end", "it ran for more than"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++)
        repl(rows[i].code, 1, rows[i].says);
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1u << 20);
    br_buf_printf(&b, "session ");
    while (b.len < BR_ID_MAX + 8)
        br_buf_put_u8(&b, 'r');
    repl(br_buf_cstr(&b), 1, "is no id of a session");
    while (b.len < 65537)
        br_buf_put_u8(&b, 'r');
    repl(br_buf_cstr(&b), 1, "longer than 65536 bytes");
    /* the command line */
    struct e2e_result r;
    e2e_run(&t, &r, "bridle", "repl", "sessions", NULL);
    e2e_expect(&r, 2, "one word too many");
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "repl", "-e", NULL);
    e2e_expect(&r, 2, "needs a value");
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "repl", "--evl", "1", NULL);
    e2e_expect(&r, 2, "did you mean '--eval'");
    e2e_result_free(&r);
    /* the first failure ends it: nothing after it happens */
    e2e_run(&t, &r, "bridle", "repl", "-e", "print('one')", "-e", "error('two')", "-e",
            "print('three')", NULL);
    e2e_expect(&r, 1, "-e 2:1: two");
    assert_string_equal((char *)r.out.data, "one\n");
    e2e_result_free(&r);
    close_all();
}

static void test_nothing_recorded(void **state)
{
    (void)state;
    struct e2e_result r;
    e2e_open(&t, 0);
    t.activated = true;
    repl("leases", 0, "the lease root is empty");
    repl("activations", 0, "no profile is activated");
    repl("sessions", 0, "no session is recorded yet");
    repl("#sessions, #leases, #activations", 0, "0\n0\n0\n");
    repl("session last", 1, "no run is recorded yet");
    repl("events last", 1, "no run is recorded yet");
    repl("pcall(session, 'last')", 0, "false\n");
    e2e_result_free((e2e_run(&t, &r, "bridle", "repl", "--json", "-e", "sessions", NULL), &r));
    close_all();
    /* a state directory that cannot be used */
    e2e_open(&t, 0);
    t.activated = true;
    assert_int_equal(mkdir(t.state, 0700), 0);
    assert_int_equal(chmod(t.state, 0755), 0);
    repl("sessions", 1, "open to other users");
    repl("leases", 1, "open to other users");
    repl("#sessions", 1, "open to other users");
    repl("1 + 1", 0, "2\n");
    close_all();
}

/* A program that is not there, or is none. */
static void test_programs_missing(void **state)
{
    (void)state;
    char bin[128], path[160], build[BR_PATH_MAX];
    snprintf(build, sizeof(build), "%s", e2e_bin());
    open_with_runs(0);
    e2e_copy_bin(&t, NULL, NULL, bin);
    assert_int_equal(setenv("BRIDLE_BIN", bin, 1), 0);
    snprintf(path, sizeof(path), "%s/bridle-script", bin);
    assert_int_equal(unlink(path), 0);
    repl("sessions", 0, "completed"); /* verbs need no Lua */
    repl("#sessions", 1, "bridle-script' cannot be started; build or install it again");
    assert_int_equal(symlink("/bin/false", path), 0);
    repl("1", 1, "'bridle-script' ended before it was ready; nothing was evaluated");
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof(path), "%s/bridle-audit", bin);
    assert_int_equal(unlink(path), 0);
    repl("sessions", 1, "bridle-audit");
    snprintf(path, sizeof(path), "%s/bridled", bin);
    assert_int_equal(unlink(path), 0);
    repl("sessions", 1, "bridled' cannot be started");
    repl("leases", 1, "bridled' cannot be started");
    assert_int_equal(symlink("/bin/false", path), 0);
    repl("sessions", 1, "'bridled' has gone");
    assert_int_equal(setenv("BRIDLE_BIN", build, 1), 0);
    close_all();
}

/* ---- records that no run would make ---- */

static void test_odd_records(void **state)
{
    (void)state;
    open_with_runs(0);
    in_store(add_odd_runs);
    repl("session run_ab", 1, "run_ab");
    repl("session run_ab1", 0, "run_ab1");
    repl("session('run_dead').status", 0, "\"interrupted\"\n");
    repl("events run_ab1", 0, "\\x1b[2J \\u202e 1");
    repl("events('run_ab1')[1].data.message", 0, "\"\\x1b[2J \\u202e 1\"");
    /* a page is 5000 rows */
    struct e2e_result r;
    e2e_run(&t, &r, "bridle", "repl", "-e", "#events('run_exact')", NULL);
    e2e_expect(&r, 0, "5000\n");
    assert_string_equal((char *)r.err.data, "");
    e2e_result_free(&r);
    repl("#events('run_large')", 0, "events: 1 more were left out; the next is row 5001\n");
    repl("events('run_large', { from = 5001 })[1].row", 0, "5001\n");
    repl("events run_large 4999..", 0, "5001");
    repl("events run_large 6000..", 0, "no event fits");
    repl("session('run_large').types.error", 0, "5001\n");
    repl("limits 4 3", 0, NULL);
    e2e_run(&t, &r, "bridle", "repl", "-e", "limits 4 3", "-e", "events('run_exact')", NULL);
    e2e_expect(&r, 0, "... 4997 more");
    assert_true(r.out.len < 2000);
    e2e_result_free(&r);
    close_all();
}

/* A third event whose hash is not that of what is before it. */
static void add_damaged(struct br_store *s)
{
    add_run(s, "run_bad", "1:1:nobody", 2, false);
    if (sqlite3_exec(s->db,
                     "INSERT INTO events(run, row, count, body, hash) SELECT id, 3, 1, "
                     "'{\"v\":1,\"type\":\"error\",\"data\":{\"message\":\"forged\"}}', "
                     "zeroblob(32) FROM runs WHERE run_id = 'run_bad'",
                     NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_changes(s->db) != 1) {
        fprintf(stderr, "%s\n", sqlite3_errmsg(s->db));
        _exit(5);
    }
}

/* What comes before the damage is shown, and the error; nothing behind it. */
static void test_damaged(void **state)
{
    (void)state;
    open_with_runs(0);
    in_store(add_damaged);
    repl("session run_bad", 1, "AUDIT_STORE_FAILED");
    repl("session run_bad", 1, "interrupted"); /* its row of the list is sound */
    repl("events run_bad", 1, "\\x1b[2J \\u202e 2");
    repl("events run_bad", 1, "AUDIT_STORE_FAILED");
    repl("events run_bad 1..2", 1,
         "AUDIT_STORE_FAILED"); /* it cannot be told where the damage is */
    repl("decisions run_bad", 1, "AUDIT_STORE_FAILED");
    repl("events('run_bad')", 1, "-e:1:");
    struct e2e_result r;
    e2e_run(&t, &r, "bridle", "repl", "-e", "events run_bad", NULL);
    assert_false(e2e_says(&r, "forged"));
    e2e_result_free(&r);
    repl("#events('last') > 20", 1, NULL); /* 'last' is the damaged one */
    repl("#events(sessions[2].runId) > 20", 0, "true\n");
    close_all();
}

/* A run that goes on while it is looked at. */
static void test_running(void **state)
{
    (void)state;
    open_with_runs(0);
    e2e_write(&t, "allow.lua",
              "local policy = require \"bridle.policy\"\n"
              "return policy.bundle { api = 1, name = \"test\", rules = {\n"
              "  policy.allow { id = \"exec\", action = \"process.exec\" },\n} }\n");
    e2e_write(
        &t, "sleep.json",
        "{\"v\":1,\"name\":\"t\",\"turns\":[{\"when\":{\"assistant_messages\":0},"
        "\"tool_calls\":[{\"name\":\"process_exec\",\"arguments\":{\"argv\":[\"sleep\",\"60\"]}}"
        "]},{\"text\":\"The end.\"}]}");
    char *argv[] = {(char *)"bridle",     (char *)"run",
                    (char *)"-C",         (char *)"workspace",
                    (char *)"-p",         (char *)"allow.lua",
                    (char *)"--scenario", (char *)"sleep.json",
                    (char *)"third",      NULL};
    pid_t pid = e2e_spawn(&t, argv, NULL);
    assert_true(e2e_await(pid, "sleep", 0, 20000) > 0);
    /* its output files are the run's: look with a shell of our own */
    char command[512];
    snprintf(command, sizeof(command),
             "BRIDLE_STATE_DIR='%s' NO_COLOR=1 '%s/bridle' repl -e sessions -e "
             "'session(\"last\").status' "
             "-e '#sessions' </dev/null >'%s/looked.txt' 2>&1",
             t.state, e2e_bin(), t.dir);
    assert_int_equal(system(command), 0);
    char *looked = e2e_read(&t, "looked.txt");
    if (!looked || !strstr(looked, "running") || !strstr(looked, "\"running\"\n3\n"))
        fail_msg("%s", looked ? looked : "");
    free(looked);
    assert_int_equal(kill(pid, SIGINT), 0);
    struct e2e_result r;
    e2e_wait(&t, pid, 30, &r);
    e2e_result_free(&r);
    repl("session('last').status", 0, "\"canceled\"\n");
    close_all();
}

/* ---- an evaluator that was taken over ---- */

/* chatty.c in the place of bridle-script does what the code says: the client believes none of it.
 */
static void test_rogue_script(void **state)
{
    (void)state;
    static const struct {
        const char *code;
        int status;
        const char *says;
    } rows[] = {
        {"escape", 0, "\\x1b[2J\\x1b]0;x\\x07"},
        {"status", 1, "sent a malformed answer"},
        {"ready", 1, "ROLE_READY"},
        {"named", 1, "INSPECT_NAMED"},
        {"nonsense", 1, "INSPECT_WANT"},
        {"unknown", 0, "there is no snapshot 'secrets'"},
        {"path", 0, "no id of a session"},
        {"die", 1, "its process has ended"},
    };
    char bin[128], build[BR_PATH_MAX];
    struct e2e_result r;
    snprintf(build, sizeof(build), "%s", e2e_bin());
    open_with_runs(0);
    e2e_copy_bin(&t, "bridle-script", "chatty", bin);
    assert_int_equal(setenv("BRIDLE_BIN", bin, 1), 0);
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++)
        repl(rows[i].code, rows[i].status, rows[i].says);
    /* it floods, and does not heed SIGINT: it is killed */
    static const char *const floods[] = {"flood", "ask"};
    for (size_t i = 0; i < BR_ARRAY_LEN(floods); i++) {
        char *argv[] = {(char *)"bridle", (char *)"repl", (char *)"-e",
                        (char *)(uintptr_t)floods[i], NULL};
        pid_t pid = e2e_spawn(&t, argv, NULL);
        assert_true(e2e_await(pid, "bridle-script", 0, 20000) > 0);
        usleep(300000);
        assert_int_equal(kill(pid, SIGINT), 0);
        e2e_wait(&t, pid, 40, &r);
        e2e_expect(&r, 1, "did not stop and was killed");
        e2e_result_free(&r);
        e2e_expect_clean(&t);
    }
    assert_int_equal(setenv("BRIDLE_BIN", build, 1), 0);
    close_all();
}

/* ---- leases ---- */

static void test_leases(void **state)
{
    (void)state;
    char path[160];
    open_with_runs(0);
    snprintf(path, sizeof(path), "%s/leases", t.state);
    assert_true(mkdir(path, 0700) == 0 || access(path, F_OK) == 0);
    e2e_write(&t, "state/leases/state-work.img", "0123456789");
    e2e_write(&t, "state/leases/ext4-1-8-8.template", "");
    e2e_write(&t, "state/leases/odd \033[31m", "");
    repl("leases", 0, "state-work.img");
    repl("leases", 0, "odd \\x1b[31m");
    repl("lease work", 0, "10");
    repl("lease state-work.img", 0, "no");
    repl("lease('work')[1].inUse, lease('work')[1].bytes, lease('work')[1].kind", 0,
         "false\n10\n\"state\"\n");
    snprintf(path, sizeof(path), "%s/leases/state-work.img", t.state);
    BR_CLEANUP_FD int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    repl("lease('work')[1].inUse", 0, "true\n");
    br_close(&fd);
    /* it took no lock itself, and the files are what they were */
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    e2e_expect_file(&t, "state/leases/state-work.img", "0123456789");
    close_all();
}

/* ---- pipes ---- */

/* SCRIPT is a shell command in which $B is bridle; its output and status. */
static void shell(struct e2e_result *r, const char *script)
{
    char command[2 * BR_PATH_MAX];
    snprintf(command, sizeof(command), "cd '%s'; B='%s/bridle'; %s", t.dir, e2e_bin(), script);
    e2e_run(&t, r, "../tests/ptydrive", "-t", "60", "--", "/bin/bash", "-c", command, NULL);
}

static void test_pipes(void **state)
{
    (void)state;
    struct e2e_result r;
    open_with_runs(0);
    static const struct {
        const char *script;
        int status;
        const char *says;
    } rows[] = {
        {"printf 'x = 20\\nx + 22\\n' | $B repl | cat", 0, "42"},
        {"printf 'sessions\\r\\n#sessions\\r\\n' | $B repl | cat", 0, "second"},
        {"printf '\\n  \\n-- nothing\\n#sessions' | $B repl | cat", 0, "2"},
        {"printf 'for i = 1, 3 do\\n  print(i)\\nend\\nprint(\"done\")\\n' | $B repl | cat", 0,
         "done"},
        {"printf '1\\nquit\\nerror(1)\\n' | $B repl", 0, "1"},
        {"$B repl </dev/null", 0, NULL},
        {"printf 'print(1)\\n\\nerror(\"here\")\\nprint(\"never\")\\n' | $B repl", 1,
         "stdin:3: here"},
        {"printf '\\nx = {\\n1,\\n' | $B repl", 1, "stdin:3: unexpected symbol near <eof>"},
        {"printf 'a\\0b\\n' | $B repl", 1, "NUL byte"},
        {"printf 'x = \"\\xff\"\\n' | $B repl", 1, "not valid UTF-8"},
        {"head -c 65537 /dev/zero | tr '\\0' x | $B repl", 1, "longer than 65536 bytes"},
        {"$B repl <.", 1, "standard input could not be read"},
        {"$B repl -e sessions >/dev/full", 1, "the output could not be written"},
        {"$B repl -e '1' >/dev/full", 1, "the output could not be written"},
        {"$B repl -e sessions >&-", 1, NULL},
        {"set -o pipefail; $B repl -e 'for i = 1, 1e5 do print(i) end' | head -1; echo "
         "\"${PIPESTATUS[0]}\"",
         0, "1"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        shell(&r, rows[i].script);
        if (r.status != rows[i].status || (rows[i].says && !e2e_says(&r, rows[i].says)) ||
            e2e_says(&r, "never"))
            fail_msg("%s: status %d: %s", rows[i].script, r.status, (char *)r.out.data);
        e2e_result_free(&r);
    }
    close_all();
}

/* ---- who may ask bridled ---- */

/* A control channel that somebody else made is refused; one's own is served. */
static void test_peer_credentials(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("only root can be handed a channel of another user's that it can read\n");
        skip();
    }
    char path[BR_PATH_MAX];
    snprintf(path, sizeof(path), "%s/bridled", e2e_bin());
    e2e_open(&t, 0);
    for (int own = 0; own < 2; own++) {
        int ends[2], status;
        assert_int_equal(own ? 0 : seteuid(1000), 0);
        assert_int_equal(br_chan_pair(ends), 0);
        assert_int_equal(seteuid(0), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            (void)setenv("BRIDLE_STATE_DIR", t.state, 1);
            int null = open("/dev/null", O_WRONLY);
            if (dup2(null, 2) < 0 || dup2(ends[1], 3) < 0)
                _exit(126);
            execl(path, "bridled", "--private", (char *)NULL);
            _exit(127);
        }
        close(ends[1]);
        struct br_chan c;
        br_chan_init(&c, ends[0], "bridled", NULL, 0, NULL);
        (void)br_chan_send(&c, BR_MSG_CTL_LEASES, 0, NULL, NULL);
        char answer[1024];
        ssize_t n = read(c.fd, answer, sizeof(answer));
        if (own)
            assert_true(n > 0);
        else
            assert_true(n <= 0);
        br_chan_close(&c);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0) == own);
    }
    close_all();
}

int main(void)
{
    e2e_isolate();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_root),
        cmocka_unit_test(test_as_user),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_bad_input),
        cmocka_unit_test(test_nothing_recorded),
        cmocka_unit_test(test_programs_missing),
        cmocka_unit_test(test_odd_records),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_running),
        cmocka_unit_test(test_rogue_script),
        cmocka_unit_test(test_leases),
        cmocka_unit_test(test_pipes),
        cmocka_unit_test(test_peer_credentials),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
