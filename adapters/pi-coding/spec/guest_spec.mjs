// The guest outside of a sandbox: what it does with a packet, what it says, and what it leaves.
import assert from "node:assert/strict";
import { createServer } from "node:net";
import { closeSync, openSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { readPacket } from "../guest/frame.js";
import { gate } from "../guest/gate.js";
import { checkPacket } from "../guest/packet.js";
import { Rig, TOKEN, frame } from "./rig.mjs";

const spec = (name, body) =>
  test(name, async () => {
    const rig = new Rig();
    try {
      await body(rig);
    } finally {
      rig.close();
    }
  });

const WRITE = { text: "I write.", calls: [["write", { path: "made.txt", content: "made\n" }]] };
const DONE = { text: "Done." };

function everyByte(directory) {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => readFileSync(join(entry.parentPath, entry.name), "latin1"))
    .join("\n");
}

for (const [route, path] of [
  ["chat", "/v1/chat/completions"],
  ["responses", "/v1/responses"],
  ["messages", "/v1/messages"],
]) {
  spec(`one tool call by the route ${route}`, async (rig) => {
    await rig.provider(WRITE, DONE);
    const model = { id: "scripted/spec", routes: [route], answerTokens: 4096, streaming: true };
    const r = await rig.run({ model });
    assert.equal(r.code, 0, r.stderr);
    assert.ok(r.whole, "exactly one frame");
    assert.deepEqual(r.result, {
      runId: "run-1",
      status: "completed",
      adapter: { id: "pi-coding", revision: 1 },
      session: { id: "s-1" },
      artifact: { kind: "text", text: "Done." },
      tools: [{ name: "write", status: "ok", count: 1 }],
      usage: { promptTokens: 200, completionTokens: 20, totalTokens: 220 },
    });
    assert.equal(rig.read("workspace/made.txt"), "made\n");
    assert.deepEqual(rig.requests.map((q) => q.path.replace("?beta=true", "")), [path, path]);
    for (const q of rig.requests) {
      assert.equal(q.headers["x-api-key"] ?? q.headers.authorization.slice(7), TOKEN);
      assert.equal(q.body.model, "scripted/spec");
      assert.equal(q.body.stream, true);
    }
    assert.equal(r.stderr, "");
  });
}

spec("what it stores is in the state directory, without the token", async (rig) => {
  await rig.provider(WRITE, DONE);
  const r = await rig.run();
  assert.equal(r.result.status, "completed");
  assert.deepEqual(readdirSync(rig.path("home")), []);
  assert.deepEqual(readdirSync(rig.path("workspace")), ["made.txt"]);
  const stored = everyByte(rig.path("state"));
  assert.match(stored, /Do it\./);
  assert.ok(!stored.includes(TOKEN));
  assert.equal(statSync(rig.path("state/sessions")).mode & 0o77, 0);
});

spec("a session is resumed by its id", async (rig) => {
  await rig.provider(WRITE, DONE, { text: "Again." });
  assert.equal((await rig.run()).result.status, "completed");
  const r = await rig.run({ prompt: "And now?", session: { intent: "resume", id: "s-1" } });
  assert.equal(r.result.status, "completed");
  assert.equal(r.result.artifact.text, "Again.");
  assert.deepEqual(r.result.tools, []);
  assert.equal(r.result.usage.totalTokens, 110);
  const seen = JSON.stringify(rig.requests.at(-1).body.messages);
  assert.ok(seen.includes("Do it.") && seen.includes("I write.") && seen.includes("And now?"));
});

spec("a session that is not there is not replaced by another", async (rig) => {
  await rig.provider(DONE);
  assert.equal((await rig.run()).result.status, "completed");
  for (const id of ["s-2", "1", "s"]) {
    const r = await rig.run({ session: { intent: "resume", id } });
    assert.equal(r.result.status, "failed");
    assert.match(r.stderr, /not in this state/);
  }
  assert.equal(rig.requests.length, 1);
});

const BAD_PACKETS = [
  { protocol: "bridle/run/2" },
  { adapter: { id: "pi-coding", revision: 2 } },
  { adapter: { id: "other", revision: 1 } },
  { extra: 1 },
  { prompt: "" },
  { system: "" },
  { tools: ["read", "powershell"] },
  { tools: ["*"] },
  { tools: "read" },
  { model: { id: "m", routes: [], answerTokens: 1, streaming: true } },
  { model: { id: "m", routes: ["models"], answerTokens: 1, streaming: true } },
  { model: { id: "m", routes: ["chat"], answerTokens: 0, streaming: true } },
  { model: { id: "m", routes: ["chat"], answerTokens: 1, streaming: false } },
  { provider: { socket: "/s", token: "!id" } },
  { provider: { token: TOKEN } },
  { session: { intent: "new" } },
  { session: { intent: "new", id: "../x" } },
  { session: { intent: "recent", id: "x" } },
  { deadline: "soon" },
  { gate: {} },
  { contextFiles: "yes" },
  { ceilings: { outputBytes: 0, traceBytes: 1 } },
];

spec("packets that are none are refused with one sentence", (rig) => {
  checkPacket(rig.packet());
  for (const changes of BAD_PACKETS)
    assert.throws(() => checkPacket(rig.packet(changes)), (e) => e.known && /^[^\n]+$/.test(e.message), JSON.stringify(changes));
  for (const value of [null, [], "x", 1]) assert.throws(() => checkPacket(value), { known: true });
});

spec("frames that are none are refused with one sentence", (rig) => {
  const good = frame(rig.packet());
  const altered = (length) => {
    const copy = Buffer.from(good);
    copy.writeUInt32BE(length, 0);
    return copy;
  };
  const read = (bytes) => {
    writeFileSync(rig.path("frame"), bytes);
    const fd = openSync(rig.path("frame"));
    try {
      return readPacket(fd);
    } finally {
      closeSync(fd);
    }
  };
  assert.equal(read(good).runId, "run-1");
  for (const bytes of [
    Buffer.alloc(0),
    good.subarray(0, 3),
    good.subarray(0, good.length - 1),
    altered(0),
    altered(good.length),
    altered(0xffffffff),
    Buffer.concat([good, Buffer.from("x")]),
    Buffer.concat([good, good]),
    frame(Buffer.from("{")),
    frame(Buffer.from([0x22, 0xff, 0x22])),
  ])
    assert.throws(() => read(bytes), { known: true });
});

spec("without a packet: no result, no request, nothing written", async (rig) => {
  await rig.provider(DONE);
  for (const bytes of [Buffer.from("{}"), frame(rig.packet({ extra: 1 }))]) {
    const r = await rig.start(bytes);
    assert.equal(r.code, 5);
    assert.equal(r.bytes.length, 0);
    assert.match(r.stderr, /^pi-coding: [^\n]+\n$/);
  }
  assert.equal(rig.requests.length, 0);
  assert.deepEqual(readdirSync(rig.path("state")), []);
});

spec("only the tools of the packet are there", async (rig) => {
  await rig.provider({ calls: [["bash", { command: "touch made" }]] }, DONE);
  const r = await rig.run({ tools: ["read", "ls"] });
  assert.deepEqual(rig.requests[0].body.tools.map((t) => t.function.name).sort(), ["ls", "read"]);
  assert.equal(r.result.status, "completed");
  assert.deepEqual(r.result.tools, [], "a tool that is none is in no receipt");
  assert.deepEqual(readdirSync(rig.path("workspace")), []);
});

spec("a failed call is in the receipts, and what it said is not", async (rig) => {
  const bash = (command) => ["bash", { command }];
  await rig.provider({ calls: [bash("echo CANARY-OUT; exit 3"), bash("true"), bash("true")] }, DONE);
  const r = await rig.run();
  assert.deepEqual(r.result.tools.map((t) => [t.name, t.status, t.count]).sort(), [
    ["bash", "error", 1],
    ["bash", "ok", 2],
  ]);
  assert.ok(!r.bytes.includes("CANARY") && !r.stderr.includes("CANARY"));
});

spec("errors of the provider: one request, and none of its words", async (rig) => {
  const body = JSON.stringify({ error: { type: "t", code: "LEASE_REFUSED", message: "CANARY-TEXT" } });
  for (const turn of [
    { status: 403, body, headers: { "x-should-retry": "false" } },
    { status: 500, body },
    { status: 429, body, headers: { "retry-after": "0" } },
    { status: 307, headers: { location: "/v1/other" } },
    { status: 200, body: "CANARY no stream" },
  ]) {
    const one = new Rig();
    try {
      await one.provider(turn);
      const r = await one.run();
      assert.equal(r.code, 0);
      assert.equal(r.result.status, "failed", JSON.stringify(turn));
      assert.equal(r.result.artifact, null);
      assert.ok(!r.bytes.includes("CANARY") && !r.stderr.includes("CANARY"), r.stderr);
      assert.match(r.stderr, /^pi-coding: [^\n]+\n$/);
      if (turn.status !== 307) assert.equal(one.requests.length, 1, JSON.stringify(turn));
    } finally {
      one.close();
    }
  }
  const r = await rig.run(); // nobody listens at all
  assert.equal(r.result.status, "failed");
  assert.ok(!r.stderr.includes(rig.root), "no path of an exception");
});

spec("an answer longer than the ceiling is cut, and the frame fits", async (rig) => {
  await rig.provider({ text: '"\u{1F600}\n'.repeat(20000) });
  const r = await rig.run({ ceilings: { outputBytes: 40000, traceBytes: 4096 } });
  assert.equal(r.result.status, "completed");
  assert.ok(r.bytes.length - 4 <= 40000 && r.bytes.length > 20000);
  assert.match(r.result.artifact.text, /\[cut: /);
  assert.ok(r.result.artifact.text.isWellFormed());
});

spec("an answer that was cut by its own limit is none", async (rig) => {
  await rig.provider({ text: "half of", finish: "length" });
  const r = await rig.run();
  assert.equal(r.result.status, "failed");
  assert.match(r.stderr, /cut at its limit/);
});

spec("before the deadline there is a result", async (rig) => {
  await rig.provider({ delay: 20000, text: "late" });
  const begin = Date.now();
  const r = await rig.run({ deadline: new Date(begin + 1500).toISOString() });
  assert.equal(r.result.status, "failed");
  assert.ok(Date.now() < begin + 5000);
  assert.match(r.stderr, /deadline/);
});

spec("slashes and exclamation marks of a prompt mean nothing", async (rig) => {
  await rig.provider(DONE);
  for (const prompt of ["/model other", "/skill:x", "!touch made", "/login"]) {
    const r = await rig.run({ prompt, session: { intent: "new", id: `s-${rig.requests.length}` } });
    assert.equal(r.result.status, "completed");
    assert.equal(rig.requests.at(-1).body.messages.at(-1).content[0].text ?? "", prompt);
    assert.equal(rig.requests.at(-1).body.model, "scripted/spec");
  }
  assert.deepEqual(readdirSync(rig.path("workspace")), []);
});

// ---- the gate ----

async function gateAt(rig, answer) {
  const asked = [];
  const server = createServer((socket) => {
    let got = Buffer.alloc(0);
    socket.on("error", () => {});
    socket.on("data", (chunk) => {
      got = Buffer.concat([got, chunk]);
      if (got.length < 4 || got.length < 4 + got.readUInt32BE(0)) return;
      asked.push(JSON.parse(got.subarray(4)));
      got = Buffer.alloc(0);
      answer(socket, asked.at(-1));
    });
  });
  await rig.listen(server, rig.path("broker/gate.sock"));
  return asked;
}

for (const [decision, status] of [
  ["allow", "ok"],
  ["deny", "denied"],
])
  spec(`the gate is asked before each call: ${decision}`, async (rig) => {
    await rig.provider(WRITE, DONE);
    const asked = await gateAt(rig, (socket, q) => socket.end(frame(answerOf(q, decision))));
    const r = await rig.run({ gate: { socket: rig.path("broker/gate.sock") } });
    assert.equal(r.result.status, "completed");
    assert.deepEqual(asked.map((q) => q.tool), ["write"]);
    assert.deepEqual(r.result.tools, [{ name: "write", status, count: 1 }]);
    assert.deepEqual(readdirSync(rig.path("workspace")), decision === "allow" ? ["made.txt"] : []);
  });

spec("a gate that is not there: nothing happens", async (rig) => {
  await rig.provider(WRITE, DONE);
  const r = await rig.run({ gate: { socket: rig.path("broker/gate.sock") } });
  assert.deepEqual(r.result.tools, [{ name: "write", status: "denied", count: 1 }]);
  assert.deepEqual(readdirSync(rig.path("workspace")), []);
});

for (const [what, answer] of [
  ["closes", (socket) => socket.destroy()],
  ["says half", (socket, q) => socket.end(frame(answerOf(q, "allow")).subarray(0, 9))],
  ["answers another question", (socket) => socket.end(frame({ id: "call_2", decision: "allow" }))],
  ["says something else", (socket, { id }) => socket.end(frame({ id, decision: "ALLOW" }))],
  ["says no JSON", (socket) => socket.end(frame(Buffer.from("allow")))],
  ["says null", (socket) => socket.end(frame(null))],
  ["says more", (socket, q) => socket.end(Buffer.concat([frame(answerOf(q, "allow")), Buffer.from("x")]))],
  ["says too much", (socket) => socket.end(Buffer.from([0x7f, 0xff, 0xff, 0xff, 1]))],
])
  spec(`a gate that ${what} allows nothing`, async (rig) => {
    await gateAt(rig, answer);
    const said = await gate(rig.path("broker/gate.sock"), "/workspace", (path, from) => resolve(from, path))("call_1", "bash", { command: "x" });
    assert.equal(typeof said, "string");
  });

spec("what the gate is asked", async (rig) => {
  const asked = await gateAt(rig, (socket, q) => socket.end(frame(answerOf(q, q.input.path === "no" ? "deny" : "allow"))));
  const ask = gate(rig.path("broker/gate.sock"), "/workspace", (path, from) => resolve(from, path));
  for (const [tool, input, seen] of [
    ["bash", { command: "make", timeout: 3 }, { command: "make" }],
    ["write", { path: "a//b/../c.txt", content: "x".repeat(1 << 20) }, { path: "a/c.txt" }],
    ["edit", { path: "/workspace/d", edits: [] }, { path: "d" }],
    ["read", { path: "/etc/passwd" }, { path: "/etc/passwd" }],
    ["read", { path: "../state/x" }, { path: "/state/x" }],
    ["ls", {}, {}],
    ["grep", { pattern: "x", path: "." }, {}],
  ]) {
    assert.equal(await ask("call_9", tool, input), undefined);
    assert.deepEqual(asked.at(-1), { id: "call_9", tool, input: seen });
  }
  assert.equal(await ask("call_10", "write", { path: "no" }), "DENIED: by the spec");
});

function answerOf({ id }, decision) {
  return { id, decision, ...(decision === "deny" ? { reason: "DENIED: by the spec" } : {}) };
}
