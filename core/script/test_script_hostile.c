/*
 * Policies that attack the process that reads them. Each must end in a typed refusal within the
 * deadline, or end the process, and never in a compiled table; a process that survived still
 * compiles a good policy. The positive control is that same good policy.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "script/rig.h"
#include "wire/types.h"

#define HEAD "local policy = require 'bridle.policy'\n"
#define GOOD HEAD "return policy.bundle { api = 1, name = 'good', rules = {} }\n"

struct attack {
    const char *name;
    const char *text;
    const char *says;
};

static const struct attack attacks[] = {
    {"endless loop", "while true do end", "ran for more than"},
    {"endless loop behind pcall", "while true do pcall(function() while true do end end) end",
     "ran for more than"},
    {"pcall storm",
     "local function f() pcall(f) pcall(f) end\n"
     "while true do pcall(f) end",
     "ran for more than"},
    {"pcall that raises pcall", "local f\nf = function() return pcall(pcall, f) and f() end\nf()",
     ""},
    {"endless recursion", "local function f() return 1 + f() end return f()", "MiB of memory"},
    {"endless recursion through metatables",
     "local t = setmetatable({}, { __index = function(t, k) return t[k .. 'x'] end })\nreturn t.a",
     "overflow"},
    {"tail calls for ever", "local function f() return f() end return f()", "ran for more than"},
    {"goto for ever", "::a:: goto a", "ran for more than"},
    {"deep nesting in the text", NULL, "overflow"}, /* made below */
    {"rep bomb", "return ('x'):rep(1e12)", "string.rep would make"},
    {"rep of nothing", "return (''):rep(1e15)", "the policy returned a string"},
    {"rep with separator", "return (''):rep(1e9, 'xxxxxxxxxxxxxxxx')", "string.rep would make"},
    {"rep overflow", "return ('xx'):rep(math.maxinteger)", "string.rep would make"},
    {"doubling", "local s = 'x' while true do s = s .. s end", "MiB of memory"},
    {"doubling behind pcall", "local s = 'x' while true do pcall(function() s = s .. s end) end",
     "ran for more than"},
    {"table bomb", "local t = {} while true do t[#t + 1] = {} end", "MiB of memory"},
    {"table bomb behind pcall",
     "local t = {} while true do pcall(function() while true do t[#t + 1] = {} end end) end",
     "ran for more than"},
    {"closures", "local t while true do local o = t t = function() return o end end",
     "MiB of memory"},
    {"find bomb", "return string.find(('a'):rep(50000), ('.-'):rep(20) .. 'b')", "too many steps"},
    {"match bomb", "return (('a'):rep(3000)):match('(a*)*b' .. ('a*'):rep(30) .. 'b')", ""},
    {"gmatch bomb", "for _ in (('a'):rep(9000)):gmatch(('a-'):rep(10) .. 'b') do end",
     "too many steps"},
    {"gsub bomb", "return (('a'):rep(9000)):gsub(('a*'):rep(10) .. 'b', '')", "too many steps"},
    {"find bomb behind pcall",
     "while true do pcall(string.find, ('a'):rep(50000), ('.-'):rep(20) .. 'b') end",
     "ran for more than"},
    {"nested captures", "return ('a'):find(('('):rep(5000) .. 'a')", "too many captures"},
    {"pattern recursion", "return (('a'):rep(300)):find(('a?'):rep(5000))", "too complex"},
    {"gsub growth",
     "local s = ('x'):rep(100000)\nfor i = 1, 10 do s = s:gsub('x', ('x'):rep(1000)) end",
     "string.gsub would make"},
    {"format width", "return string.format('%99999d', 1)", "invalid"},
    {"format address", "return string.format('%p', {})", "'%p'"},
    {"format address with flags", "return string.format('%-20p', {})", "'%p'"},
    {"concat over a false length",
     "return table.concat(setmetatable({}, { __index = function() return 'x' end }), '', 1, 1e9)",
     "access functions"},
    {"concat of a long range", "return table.concat({}, '', 1, math.maxinteger)",
     "too many elements"},
    {"insert over a false length", "table.insert(setmetatable({}, { __len = error }), 1)",
     "'__len'"},
    {"unpack of a long range", "return table.unpack({}, 1, 1e8)", "too many"},
    {"sort that never agrees",
     "local t = {} for i = 1, 1e5 do t[i] = i end\n"
     "while true do table.sort(t, function() return true end) end",
     "ran for more than"},
    {"finalizer", "setmetatable({}, { __gc = function() while true do end end })", "'__gc'"},
    {"finalizer added later",
     "local m = {}\nlocal t = setmetatable({}, m)\nm.__gc = function() while true do end end\n"
     "setmetatable(t, m)",
     "keeps it"},
    {"weak table", "setmetatable({}, { __mode = 'k' })", "'__mode'"},
    {"closer", "local x <close> = setmetatable({}, { __close = error })", "'__close'"},
    {"string metatable", "getmetatable('').__index = nil", "attempt to index a boolean"},
    {"string metatable replaced", "setmetatable('', {})", "table expected"},
    {"string library", "string.rep = nil", "cannot be set"},
    {"string library raw", "rawset(string, 'rep', nil)", "'rawset' is not there"},
    {"string library by insert", "table.insert(string, 1)", "access functions"},
    {"policy library", HEAD "policy.deny = policy.allow", "cannot be set"},
    {"rule changed",
     HEAD "local r = policy.deny { id = 'a', action = 'fs.read' }\nr.effect = 'allow'",
     "cannot be changed"},
    {"global write", "evil = 1", "cannot be set"},
    {"global environment", "_ENV.evil = 1", "cannot be set"},
    {"environment replaced", "_ENV = {}\nreturn policy", "the policy returned nothing"},
    {"global table", "return _G", "'_G' is not there"},
    {"load", "return load('x = 1')", "'load' is not there"},
    {"loadstring", "return loadstring('x = 1')", "not there"},
    {"dofile", "return dofile('/etc/passwd')", "not there"},
    {"loadfile", "return loadfile('/etc/passwd')", "not there"},
    {"io", "return io.open('/etc/passwd')", "not there"},
    {"os", "return os.execute('id')", "not there"},
    {"debug", "return debug.getregistry()", "not there"},
    {"package", "return package.loadlib", "not there"},
    {"coroutines", "return coroutine.wrap(error)", "not there"},
    {"xpcall", "return xpcall(error, error)", "not there"},
    {"collectgarbage", "return collectgarbage()", "not there"},
    {"string.dump", "return string.dump(error)", "'dump' is not there"},
    {"require a path", "return require '../../etc/passwd'", "there is no module"},
    {"require a number", "return require(7)", "there is no module"},
    {"require the adapter's parts", "return require 'posix'", "there is no module"},
    {"bytecode", "\x1bLuaS\0\x19\x93\r\n", "binary chunk"},
    {"error in error", "error(setmetatable({}, { __name = 7, __index = error }))", "a table"},
    {"json bomb", "return json.decode(('['):rep(1e6))", ""},
    {"json cycle", "local t = {} t.t = t return json.encode(t)", "deeper than"},
    {"json of a function", "return json.encode(print)", "not there"},
    {"json of a mixed table", "return json.encode({ 1, a = 2 })", "mixed"},
    {"json of infinity", "return json.encode(1 / 0)", "not finite"},
    {"json null changed", "json.null.x = 1", ""},
    {"many rules in a false list",
     HEAD "return policy.bundle { api = 1, name = 'x', rules = setmetatable({}, { __len = "
          "function() return 1e15 end }) }",
     "'__len'"},
    {"rules by proxy",
     HEAD "return policy.bundle { api = 1, name = 'x', rules = setmetatable({}, { __index = "
          "function() return policy.allow { id = 'a', action = '*' } end }) }",
     NULL}, /* an empty list: compiles, without the rule */
    {"bundle by proxy",
     HEAD "return policy.bundle(setmetatable({}, { __index = function() while true do end end }))",
     "ran for more than"},
    {"pairs for ever",
     HEAD "return policy.bundle(setmetatable({}, { __pairs = function() return function() return "
          "'api', 1 end end }))",
     "api = 1"}, /* named fields are read as they are */
    {"pairs for ever by itself",
     "for _ in pairs(setmetatable({}, { __pairs = function() return function() return 1 end end "
     "})) do end",
     "ran for more than"},
    {"rules that hold themselves",
     HEAD "local r = {}\nr[1] = r\nreturn policy.bundle { api = 1, name = 'x', rules = r }",
     "nested too deeply"},
};

static const char *deep_text(void)
{
    static char text[200000];
    memset(text, '(', sizeof(text) - 1);
    memcpy(text, "return ", 7);
    return text;
}

/* True if it was refused as said. */
static bool attack_one(struct rig *g, const struct attack *a)
{
    const char *text = a->text ? a->text : deep_text();
    size_t n = strcmp(a->name, "bytecode") == 0 ? 10 : strlen(text);
    uint64_t start = br_now_us();
    rig_compile_n(g, text, n, NULL, 0, false);
    uint64_t ms = (br_now_us() - start) / 1000;
    if (!a->says)
        return g->a.type == BR_MSG_COMPILED && !rig_rule(g, "operator:a");
    bool ok = g->a.type == BR_MSG_SCRIPT_FAILED && g->a.code == BR_E_INVALID_POLICY &&
              strstr(g->a.text, a->says) &&
              ms < 60000; /* CPU time is what is limited; the machine may be busy */
    if (!ok)
        print_error("'%s': answer 0x%x after %llu ms: '%s' is not in: %s\n", a->name, g->a.type,
                    (unsigned long long)ms, a->says, g->a.text);
    return ok;
}

/* All in one process: each refusal leaves it usable for the next. */
static void test_attacks(void **state)
{
    (void)state;
    struct rig g;
    unsigned failed = 0;
    rig_start(&g, BR_SCRIPT_POLICY);
    for (size_t i = 0; i < BR_ARRAY_LEN(attacks); i++) {
        failed += !attack_one(&g, &attacks[i]);
        if (g.a.type == BR_MSG_SCRIPT_FAILED)
            continue;
        /* compiled, and a table is pinned; or it has died */
        if (g.a.type == BR_MSG_COMPILED)
            assert_int_equal(rig_stop(&g), 0);
        else
            rig_ended(&g, 20000);
        rig_start(&g, BR_SCRIPT_POLICY);
    }
    assert_int_equal(failed, 0);
    rig_compile(&g, GOOD, NULL);
    assert_int_equal(g.a.type, BR_MSG_COMPILED);
    assert_int_equal(rig_stop(&g), 0);
}

/* A policy whose predicate does it, when the subject is "bad". */
static bool vote_one(struct rig *g, const struct attack *a)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1 << 20);
    if (!a->text || strcmp(a->name, "bytecode") == 0)
        return true; /* such a text cannot be a part of another */
    br_buf_printf(&b,
                  HEAD "local function attack(request) %s\nend\n"
                       "return policy.bundle { api = 1, name = 'x', rules = {}, check = "
                       "function(request) if request.subject == 'bad' then return attack(request) "
                       "end return 'ask', 'well' end }\n",
                  a->text);
    rig_start(g, BR_SCRIPT_POLICY);
    rig_compile_n(g, b.data, b.len, NULL, 0, false);
    bool ok = g->a.type == BR_MSG_COMPILED;
    if (ok) {
        rig_predicate(g, "{\"action\":\"fs.read\",\"subject\":\"bad\",\"callId\":\"c\"}");
        /* a typed refusal; or the attack came to nothing, and what it returned is no opinion */
        bool refused = g->a.type == BR_MSG_SCRIPT_FAILED && g->a.code == BR_E_POLICY_ERROR;
        ok = a->says ? refused : refused || g->a.type == BR_MSG_PREDICATE_VOTE;
        if (g->a.type == BR_MSG_PREDICATE_VOTE && g->a.flag == BR_EFFECT_NONE)
            /* of its own function, that is; and decode() gives nil and a message */
            ok = strcmp(a->name, "environment replaced") == 0 || strcmp(a->name, "json bomb") == 0;
    }
    if (!ok)
        print_error("'%s' in a predicate: answer 0x%x: %s\n", a->name, g->a.type, g->a.text);
    /* the next question is answered as ever */
    rig_predicate(g, "{\"action\":\"fs.read\",\"subject\":\"good\",\"callId\":\"c\"}");
    if (g->a.type != BR_MSG_PREDICATE_VOTE || g->a.flag != BR_EFFECT_ASK) {
        print_error("'%s': later: answer 0x%x: %s\n", a->name, g->a.type, g->a.text);
        ok = false;
    }
    if (g->a.type == 1)
        rig_ended(g, 20000);
    else
        (void)rig_stop(g);
    return ok;
}

/* The same attacks in the middle of a session, when the operator's text is asked for its vote. */
static void test_attacks_in_a_vote(void **state)
{
    (void)state;
    struct rig g;
    unsigned failed = 0;
    for (size_t i = 0; i < BR_ARRAY_LEN(attacks); i++)
        failed += !vote_one(&g, &attacks[i]);
    assert_int_equal(failed, 0);
}

/* A peer that goes away ends a program, also one that is busy: its own timer does. */
static void test_peer_goes(void **state)
{
    (void)state;
    struct rig g;
    rig_start(&g, BR_SCRIPT_POLICY);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, ""); /* profile */
    br_buf_put_str(&o.buf, "");
    br_buf_put_str(&o.buf, "policy.lua");
    br_out_blob(&o, "while true do end", 17);
    br_buf_put_str(&o.buf, "");
    br_out_blob(&o, "", 0);
    br_buf_put_u8(&o.buf, 0);
    br_out_blob(&o, "goal", 4);
    br_buf_put_u32(&o.buf, 0);
    assert_int_equal(br_chan_send(&g.peer, BR_MSG_COMPILE, 7, &o, NULL), 0);
    usleep(100000);
    assert_int_equal(waitpid(g.pid, NULL, WNOHANG), 0); /* it is busy */
    br_chan_close(&g.peer);
    br_chan_close(&g.sup);
    rig_ended(&g, 60000);
}

/* A time-out as the session does it: kill, and nobody else is harmed. */
static void test_killed(void **state)
{
    (void)state;
    struct rig g;
    rig_start(&g, BR_SCRIPT_POLICY);
    rig_compile(&g, GOOD, NULL);
    assert_int_equal(g.a.type, BR_MSG_COMPILED);
    assert_int_equal(kill(g.pid, SIGKILL), 0);
    rig_wait(&g, 5000);
    assert_int_equal(g.a.type, 1);
    int status = rig_ended(&g, 5000);
    assert_true(WIFSIGNALED(status));
}

static void count_fds(const struct rig *g, unsigned *n)
{
    char path[64];
    *n = 0;
    for (int fd = 0; fd < 64; fd++) {
        snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", (int)g->pid, fd);
        if (access(path, F_OK) == 0)
            ++*n;
    }
}

static void check_role(struct rig *g, int uid_wanted)
{
    char path[64], line[256], seccomp[8] = "", nnp[8] = "", uid[32] = "", caps[32] = "";
    snprintf(path, sizeof(path), "/proc/%d/status", (int)g->pid);
    BR_CLEANUP_FILE FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        (void)sscanf(line, "Seccomp: %7s", seccomp);
        (void)sscanf(line, "NoNewPrivs: %7s", nnp);
        (void)sscanf(line, "Uid: %31s", uid);
        (void)sscanf(line, "CapPrm: %31s", caps);
    }
    assert_string_equal(nnp, "1");
    assert_int_equal(atoi(uid), uid_wanted);
    assert_string_equal(caps, "0000000000000000");
#ifndef BR_SANITIZED
    assert_string_equal(seccomp, "2");
#endif
    if (geteuid() == 0) {
        unsigned n;
        count_fds(g, &n);
        assert_int_equal(n, 5); /* 0, 1, 2, supervision, peer */
    }
    /* and it works like that */
    rig_compile(g, GOOD, NULL);
    assert_int_equal(g->a.type, BR_MSG_COMPILED);
    assert_int_equal(rig_stop(g), 0);
}

/* What the program holds after it has entered its role, started by root and by somebody else. */
static void test_role(void **state)
{
    (void)state;
    struct rig g;
    bool root = geteuid() == 0;
    rig_start(&g, BR_SCRIPT_POLICY);
    check_role(&g, root ? BR_UID_SCRIPT : (int)geteuid());
    if (!root)
        return;
    rig_start_as(&g, BR_SCRIPT_POLICY, 1000);
    check_role(&g, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attacks),   cmocka_unit_test(test_attacks_in_a_vote),
        cmocka_unit_test(test_peer_goes), cmocka_unit_test(test_killed),
        cmocka_unit_test(test_role),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
