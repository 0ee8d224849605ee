/*
 * The gate, from end to end: a guest asks before its calls, the policy and the operator answer, and
 * whatever is no answer is a denial.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "e2e/harness_rig.h"

static const char policy[] =
    "local policy = require 'bridle.policy'\n"
    "return policy.bundle { api = 1, name = 'test', rules = {\n"
    "  policy.allow { id = 'run', action = 'adapter.run' },\n"
    "  policy.allow { id = 'read', action = 'fs.read' },\n"
    "  policy.deny { id = 'no-keys', action = 'fs.read', path = 'secret/**', reason = 'not those' "
    "},\n"
    "  policy.allow { id = 'ls', action = 'process.exec', command = policy.command { 'ls' } },\n"
    "  policy.deny { id = 'no-rm', action = 'process.exec', command = policy.command { 'rm' }, "
    "reason = "
    "'nothing is removed' },\n"
    "} }\n";

/* ask TOOL INPUT: the answer of the gate, or nothing if it ends the connection. */
static const char asker[] =
    "cat > /tmp/ask.py <<'END'\n"
    "import json, socket, struct, sys\n"
    "s = socket.socket(socket.AF_UNIX)\n"
    "s.connect('/broker/gate.sock')\n"
    "def send(b): s.sendall(struct.pack('>I', len(b)) + b)\n"
    "def get(n):\n"
    "    b = b''\n"
    "    while len(b) < n:\n"
    "        p = s.recv(n - len(b))\n"
    "        if not p: sys.exit(0)\n"
    "        b += p\n"
    "    return b\n"
    "for i in range(2, len(sys.argv), 2):\n"
    "    send(json.dumps({'id': 'c%d' % i, 'tool': sys.argv[i], 'input': json.loads(sys.argv[i + "
    "1])}).encode())\n"
    "if sys.argv[1] == 'leave': sys.exit(0)\n"
    "for i in range(2, len(sys.argv), 2):\n"
    "    a = json.loads(get(struct.unpack('>I', get(4))[0]))\n"
    "    assert set(a) == {'id', 'decision', 'reason'} and a['id'] == 'c%d' % i\n"
    "    print(a['decision'], a['reason'].replace('\"', ''), end=';')\n"
    "END\n"
    "ask() { /usr/bin/python3 /tmp/ask.py \"$@\"; }\n";

static void guest(struct e2e *t, const char *body)
{
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(65536);
    br_buf_printf(&text, "%s%s", asker, body);
    harness_guest(t, br_buf_cstr(&text));
}

static void open_gate(struct e2e *t, const char *terms)
{
    harness_open(t, terms);
    e2e_write(t, "policy.lua", policy);
    harness_activate(t, "hosted.lua", NULL);
}

/* One question, and what the guest was told. */
static void told(struct e2e *t, const char *tool, const char *input, const char *want)
{
    char body[1024], artifact[512];
    struct e2e_result r;
    snprintf(body, sizeof(body), "say \"$(result \"told: $(ask stay %s '%s')\")\"\n", tool, input);
    guest(t, body);
    harness_run(t, &r, "-p", "policy.lua");
    snprintf(artifact, sizeof(artifact), "\"text\":\"told: %s", want);
    e2e_expect(&r, 0, artifact);
    e2e_result_free(&r);
}

static void test_policy(void **state)
{
    (void)state;
    struct e2e t;
    open_gate(&t, "gate = 'ask'");
    told(&t, "read", "{\"path\":\"a.txt\"}", "allow ;");
    told(&t, "read", "{\"path\":\"/workspace/secret/x\"}", "deny ");
    told(&t, "read", "{\"path\":\"/etc/passwd\"}", "deny the path '/etc/passwd' is not below");
    told(&t, "read", "{\"path\":\"../x\"}", "deny the path '../x' contains '..'");
    told(&t, "read", "{}", "deny ");
    told(&t, "bash", "{\"command\":\"ls -l\"}", "allow ;");
    told(&t, "bash", "{\"command\":\"ls && rm -f canary-argument\"}", "deny ");
    /* nobody is there to ask */
    told(&t, "bash", "{\"command\":\"make\"}",
         "deny process.exec was not permitted: there is no terminal");
    /* several at once, in their order */
    told(&t, "read '{\"path\":\"a\"}' bash '{\"command\":\"rm a\"}' read", "{\"path\":\"b\"}",
         "allow ;deny ");
    /* what is no question ends the connection */
    told(&t, "curl", "{}", "\"");
    told(&t, "read", "[]", "\"");
    /* a call that the policy decides by itself leaves only its tool and the outcome */
    assert_true(harness_stored(&t, "bridle.harness.gate"));
    assert_false(harness_stored(&t, "canary-argument"));
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* Without it there is a socket at which nobody answers. */
static void test_off(void **state)
{
    (void)state;
    struct e2e t;
    open_gate(&t, NULL);
    told(&t, "read", "{\"path\":\"a.txt\"}", "\"");
    e2e_expect_clean(&t);
    e2e_close(&t);
}

static char *bridle_path(char path[256])
{
    snprintf(path, 256, "%s/bridle", e2e_bin());
    return path;
}

/* The operator answers at his terminal: once, and for the run. */
static void test_operator(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    char path[256];
    open_gate(&t, "gate = 'ask'");
    guest(&t, "say \"$(result \"told: $(ask stay bash '{\"command\":\"make one\"}' bash "
              "'{\"command\":\"make two\"}' bash '{\"command\":\"make two\"}' bash "
              "'{\"command\":\"make three\"}')\")\"\n");
    e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "-e", "only these do (120 s): ", "send:y",
            "-e", "only these do (120 s): ", "send:r", "-e", "only these do (120 s): ", "send:n",
            "--", bridle_path(path), "run", "-C", "workspace", "--profile", "hosted.lua",
            "--config", "bridle.lua", "-a", "test-guest@3", "-m", "scripted/default", "-p",
            "policy.lua", "do it", NULL);
    e2e_expect(&r, 0, "make one");
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "show", "last", "--json", NULL);
    e2e_expect(&r, 0,
               "told: allow ;allow ;allow ;deny process.exec was not permitted: the operator");
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* A guest that leaves takes its question with it; the run goes on. */
static void test_withdrawn(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    char path[256];
    open_gate(&t, "gate = 'ask'");
    guest(&t, "ask leave bash '{\"command\":\"make gone\"}'\n"
              "say \"$(result \"told: $(ask stay read '{\"path\":\"a\"}')\")\"\n");
    e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "--", bridle_path(path), "run", "-C",
            "workspace", "--profile", "hosted.lua", "--config", "bridle.lua", "-a", "test-guest@3",
            "-m", "scripted/default", "-p", "policy.lua", "do it", NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "show", "last", "--json", NULL);
    e2e_expect(&r, 0, "told: allow ;");
    e2e_expect(&r, 0, "\"decision\":\"deny\",\"note\":\"who asked does not wait");
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* What no client would do: each ends its own connection, and the gate goes on. */
static const char hostile[] =
    "cat > /tmp/hostile.py <<'END'\n"
    "import socket, struct\n"
    "def conn():\n"
    "    s = socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect('/broker/gate.sock'); "
    "return s\n"
    "def ended(s, what):\n"
    "    try:\n"
    "        s.sendall(what)\n"
    "        return s.recv(1) == b''\n"
    "    except OSError:\n"
    "        return True\n"
    "def frame(b): return struct.pack('>I', len(b)) + b\n"
    "good = b'{\"id\":\"1\",\"tool\":\"read\",\"input\":{\"path\":\"a\"}}'\n"
    "n = 0\n"
    "n += ended(conn(), b'\\xff\\xff\\xff\\xff')\n"
    "n += ended(conn(), frame(b'{'))\n"
    "n += ended(conn(), frame(b'[' * 100000))\n"
    "n += ended(conn(), frame(good[:-1] + b',\"x\":1}'))\n"
    "n += ended(conn(), frame(b'{\"id\":\"' + b'i' * 129 + good[8:]))\n"
    "held = [conn() for i in range(8)]\n"
    "n += ended(conn(), frame(good))\n"
    "for s in held: s.sendall(frame(good)[:7])\n"
    "for s in held: s.close()\n"
    "def whole():\n"
    "    s = conn()\n"
    "    for b in frame(good): s.sendall(bytes([b]))\n"
    "    size = struct.unpack('>I', s.recv(4, socket.MSG_WAITALL))[0]\n"
    "    return b'\"decision\":\"allow\"' in s.recv(size, socket.MSG_WAITALL)\n"
    "for i in range(1000): # until it has seen that the others have left\n"
    "    try:\n"
    "        n += whole()\n"
    "        break\n"
    "    except (OSError, struct.error):\n"
    "        pass\n"
    "print(n)\n"
    "END\n"
    "say \"$(result \"ended: $(/usr/bin/python3 /tmp/hostile.py)\")\"\n";

static void test_hostile(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    open_gate(&t, "gate = 'ask'");
    harness_guest(&t, hostile);
    harness_run(&t, &r, "-p", "policy.lua");
    e2e_expect(&r, 0, "\"text\":\"ended: 7\"");
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

int main(void)
{
    e2e_isolate();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policy),   cmocka_unit_test(test_off),
        cmocka_unit_test(test_operator), cmocka_unit_test(test_withdrawn),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
