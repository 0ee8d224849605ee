// What the board knows without a page: that a stream is whole, how much of it is kept, and that text
// is made visible exactly as the terminal makes it. Usage: node unit.js WEB VISIBLE
"use strict";
const assert = require("node:assert/strict");
const { execFileSync } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");
const { Mock, evt } = require("./mock.js");

const [web, visibleProgram] = process.argv.slice(2);
const load = (name) => import("data:text/javascript;base64," + fs.readFileSync(path.join(web, name)).toString("base64"));
const tests = [];
const test = (name, f) => tests.push([name, f]);

function session() {
  return new Mock("").add({ sessionId: "run_1" });
}
const feed = (stream, entry) => entry.method === "session/event" ? stream.feed(entry.params.event, entry.params.seq)
  : stream.feedOwn(entry.params.event, entry.params.seq, entry.params.after);
const play = (S, s) => {
  const stream = new S("run_1");
  for (const e of s.log) feed(stream, e);
  return stream;
};
function asked() {
  const s = session();
  s.begin("goal");
  s.call("c1", "process_exec", { argv: ["make"] }, { action: "process.exec", subject: "make", effect: "ask" });
  s.ask("p1", "c1", "process.exec", "make");
  return s;
}

test("a whole stream", ({ Stream }) => {
  const s = asked();
  s.resolve("p1", "allow", "token:ann", "run", "go on");
  s.say("tool.result", { callId: "c1", tool: "process_exec", ok: true, output: { exitCode: 0 }, durationMs: 3 });
  s.say("bridle.text", { stream: "t", kind: "agent", text: "one ", final: false });
  s.say("bridle.text", { stream: "t", kind: "agent", text: "text", final: true });
  s.say("model.response", { requestId: "r", model: "m", finishReason: "stop", usage: { promptTokens: 3, completionTokens: 4, totalTokens: 7 } });
  s.end();
  const stream = play(Stream, s);
  const call = stream.items.find((i) => i.kind === "call");
  assert.equal(call.done, true);
  assert.equal(call.decisions.length, 1);
  assert.deepEqual([call.asks[0].state, call.asks[0].by, call.asks[0].scope, call.asks[0].note], ["allow", "token:ann", "run", "go on"]);
  assert.deepEqual(stream.items.filter((i) => i.kind === "text").map((i) => i.text), ["one text"]);
  assert.deepEqual(stream.usage, { prompt: 3, completion: 4 });
  assert.equal(stream.stopped.status, "completed");
  assert.equal(stream.openAsks().length, 0);
});

test("names of JavaScript's own are names like any other", ({ Stream }) => {
  const s = session();
  s.begin("goal");
  for (const id of ["__proto__", "constructor", "toString"]) {
    s.call(id, "__proto__", JSON.parse('{"__proto__": {"x": 1}}'), { action: "fs.read", subject: "a", effect: "ask" });
    s.ask(id, id, "fs.read", "a");
    s.resolve(id, "deny", "uid:1", "once");
    s.say("tool.result", { callId: id, tool: "__proto__", ok: false, output: null });
  }
  const stream = play(Stream, s);
  assert.equal(stream.items.filter((i) => i.kind === "call" && i.done && i.asks[0].state === "deny").length, 3);
  assert.equal({}.x, undefined);
});

const refused = [
  ["a gap", (s) => s.log.splice(2, 1), /came after event/],
  ["a gap of the extension", (s) => s.log.splice(s.log.findIndex((e) => e.method === "bridle/event"), 1), /extension event 1 came after -1/],
  ["an event twice", (s) => { s.log[2].params.event.eventId = s.log[0].params.event.eventId; }, /came twice/],
  ["an extension event at another place", (s) => { s.log.find((e) => e.method === "bridle/event").params.after = 4; }, /belongs behind event 4/],
  ["an extension event on the other stream", (s) => { s.log[0].params.event.type = "bridle.x"; }, /wrong stream/],
  ["no event", (s) => { s.log[0].params.event = null; }, /not one/],
  ["no data", (s) => { delete s.log[0].params.event.data; }, /not one/],
  ["two ends", (s) => { s.end(); s.say("agent.stopped", { agentId: "a", status: "completed", steps: 1, toolCalls: 1 }); }, /stopped twice/],
  ["something after the end", (s) => { s.end(); s.say("bridle.notice", { code: "A", message: "b" }); }, /after the end/],
  ["a resolution of nothing", (s) => { s.open.set("p2", { callId: "c1", action: "process.exec", subject: "make" }); s.resolve("p2", "deny", "", "once"); }, /not asked for/],
  ["a resolution of another subject", (s) => s.resolve("p1", "allow", "uid:1", "once", "", { subject: "rm -rf /" }), /another 'subject'/],
  ["a resolution of another action", (s) => s.resolve("p1", "allow", "uid:1", "once", "", { action: "network" }), /another 'action'/],
  ["a resolution of another scope", (s) => s.resolve("p1", "allow", "uid:1", "once", "", { scope: "run" }), /another 'scope'/],
  ["two resolutions", (s) => { s.resolve("p1", "deny", "", "once"); s.open.set("p1", { callId: "c1", action: "process.exec", subject: "make" }); s.resolve("p1", "deny", "", "once"); }, /resolved twice/],
  ["a permission twice", (s) => s.ask("p1", "c1", "process.exec", "make"), /asked for twice/],
];
for (const [name, spoil, why] of refused)
  test("refused: " + name, ({ Stream, StreamFailure }) => {
    const s = asked();
    play(Stream, s); // whole before it is spoiled
    spoil(s);
    assert.throws(() => play(Stream, s), (e) => e instanceof StreamFailure && why.test(e.message));
  });

test("refused: a resolution that is not what was answered here, in both orders", ({ Stream, StreamFailure }) => {
  const s = asked(), before = play(Stream, s), after = play(Stream, s), other = play(Stream, s), n = s.log.length;
  s.resolve("p1", "allow", "uid:1", "once");
  before.accepted("p1", "deny");
  assert.throws(() => feed(before, s.log[n]), StreamFailure);
  feed(after, s.log[n]);
  assert.throws(() => after.accepted("p1", "deny"), StreamFailure);
  feed(other, s.log[n]);
  other.accepted("p1", "allow");
});

test("payloads are bounded, and what is open stays", ({ Stream }) => {
  const s = asked(), stream = play(Stream, s), size = 256 * 1024;
  const one = (i) => {
    stream.feed(evt("tool.call", { callId: "x" + i, tool: "fs_read", input: { path: "a" } }), ++s.seq, 0);
    stream.feed(evt("tool.result", { callId: "x" + i, tool: "fs_read", ok: true, output: { content: "…" } }), ++s.seq, size);
  };
  for (let i = 0; i < 96; i++) one(i);
  assert.equal(stream.items.some((i) => i.cut), false); // 24 MiB
  one(96);
  const calls = stream.items.filter((i) => i.kind === "call");
  assert.equal(calls.filter((i) => i.cut).length, 1);
  assert.equal(calls[0].cut, undefined); // the one that is asked about
  assert.equal(calls[0].input.argv[0], "make");
  assert.equal(calls[1].output, undefined);
  assert.ok(stream.kept <= 24 * 1024 * 1024);
});

test("entries are bounded", ({ Stream }) => {
  const s = session(), stream = new Stream("run_1");
  for (let i = 0; i < 20000; i++) stream.feed(evt("error", { code: "A", message: "b" }), ++s.seq);
  assert.equal(stream.items.length, 20000);
  stream.feed(evt("error", { code: "A", message: "b" }), ++s.seq);
  assert.equal(stream.items.length, 19001);
  assert.equal(stream.forgotten, 1000);
});

test("text is made visible as the terminal makes it", ({ visible }) => {
  const said = execFileSync(visibleProgram, { maxBuffer: 1 << 26 }).toString().split("\n").filter(Boolean);
  const unsafe = new Map(said.map((line) => [parseInt(line, 16), line.slice(line.indexOf(" ") + 1)]));
  assert.ok(unsafe.has(0x202e) && unsafe.has(0x1b) && unsafe.has(0x200b) && !unsafe.has(0x61));
  for (let cp = 0; cp <= 0x10ffff; cp++) {
    if (cp >= 0xd800 && cp < 0xe000) continue;
    const got = visible(String.fromCodePoint(cp), true);
    assert.equal(got, unsafe.get(cp) ?? String.fromCodePoint(cp), "U+" + cp.toString(16));
  }
  assert.equal(visible("a\n\tb\r"), "a\n\tb\\x0d");
  assert.equal(visible("\ud800x\udc00"), "\\ud800x\\udc00"); // halves of a pair, which JSON can have
});

// A Link whose server refuses the first `busy` requests; its clock does not wait.
function link({ Link }, busy) {
  const sent = [], waits = [], l = new Link({ state() {}, failed: assert.fail });
  const real = globalThis.setTimeout;
  globalThis.WebSocket = { OPEN: 1 };
  globalThis.setTimeout = (f, ms) => void (waits.push(ms), queueMicrotask(f));
  l.socket = {
    readyState: 1,
    send(text) {
      const m = JSON.parse(text), answer = sent.push(m) > busy ? { result: "done" } : { error: { code: -32031, message: "busy" } };
      queueMicrotask(() => l.socket && l.message(JSON.stringify({ jsonrpc: "2.0", id: m.id, ...answer })));
    },
    close() {},
  };
  const done = () => { globalThis.setTimeout = real; delete globalThis.WebSocket; };
  return { l, sent, waits, done };
}

test("a request that comes too often is sent again, ever later", async (modules) => {
  const { l, sent, waits, done } = link(modules, 5);
  try {
    assert.equal(await l.request("session/list", { limit: 1 }, 0), "done");
  } finally {
    done();
  }
  assert.equal(sent.length, 6);
  assert.equal(new Set(sent.map((m) => m.id)).size, 6);
  for (const m of sent) assert.deepEqual([m.method, m.params], ["session/list", { limit: 1 }]);
  waits.forEach((ms, i) => assert.ok(ms >= 187 * 2 ** i && ms <= 313 * 2 ** i, String(ms)));
  assert.equal(l.waiting.size, 0);
});

test("a request that always comes too often is refused in the end", async (modules) => {
  const { l, sent, done } = link(modules, 6);
  try {
    await assert.rejects(l.request("session/list", {}, 0), (e) => e.code === -32031);
  } finally {
    done();
  }
  assert.equal(sent.length, 6);
  assert.equal(l.waiting.size, 0);
});

test("a request that waits for its turn ends with its connection", async (modules) => {
  const { l, sent, waits, done } = link(modules, 1);
  const lost = l.request("session/list", {}, 0);
  globalThis.setTimeout = (f, ms) => void waits.push([f, ms]);
  await Promise.resolve();
  done();
  assert.equal(waits.length, 1);
  l.stop();
  await assert.rejects(lost, /connection/);
  waits[0][0]();
  assert.equal(sent.length, 1);
});

(async () => {
  const modules = { ...await load("board-stream.js"), ...await load("board-text.js"), ...await load("board-link.js") };
  let failed = 0;
  for (const [name, f] of tests) {
    try {
      await f(modules);
      console.log("ok " + name);
    } catch (e) {
      failed++;
      console.log("FAILED " + name + "\n" + e.stack);
    }
  }
  console.log(`${tests.length} tests, ${failed} failed`);
  process.exitCode = failed ? 1 : 0;
})();
