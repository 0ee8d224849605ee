// Makes guest.cache while an image is built: plays a run that uses every tool against a provider that says
// what is written here, so that what a run compiles is compiled once, and then checks that node takes it.
// `node bake.mjs DIRECTORY`, which has guest.cjs, boot.cjs and bake-run.cjs.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createGate } from "node:net";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const lib = resolve(process.argv[2]);
const calls = [
  ["write", { path: "a.txt", content: "one\ntwo\n" }],
  ["read", { path: "a.txt" }],
  ["edit", { path: "a.txt", edits: [{ oldText: "two", newText: "three" }] }],
  ["bash", { command: "cat a.txt" }],
  ["ls", { path: "." }],
  ["grep", { pattern: "three", path: "." }],
  ["find", { pattern: "*.txt", path: "." }],
];

function answer(request, response) {
  let body = "";
  request.on("data", (chunk) => (body += chunk));
  request.on("end", () => {
    const { model, messages } = JSON.parse(body);
    const turn = messages.filter((m) => m.role === "assistant").length;
    const send = (choices, usage) =>
      response.write(
        `data: ${JSON.stringify({ id: "b", object: "chat.completion.chunk", created: 0, model, choices, usage })}\n\n`,
      );
    const delta = (d, finish_reason = null) => send([{ index: 0, delta: d, finish_reason }]);
    response.writeHead(200, { "content-type": "text/event-stream" });
    delta({ role: "assistant", content: "Now. " });
    if (turn < calls.length) {
      const [name, input] = calls[turn];
      const call = { name, arguments: JSON.stringify(input) };
      delta({ tool_calls: [{ index: 0, id: `c${turn}`, type: "function", function: call }] });
    }
    delta({}, turn < calls.length ? "tool_calls" : "stop");
    send([], { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 });
    response.end("data: [DONE]\n\n");
  });
}

function frame(value) {
  const body = Buffer.from(JSON.stringify(value));
  const head = Buffer.alloc(4);
  head.writeUInt32BE(body.length);
  return Buffer.concat([head, body]);
}

function packet(root) {
  return {
    protocol: "bridle/run/1",
    runId: "bake",
    adapter: { id: "pi-coding", revision: 1 },
    profile: "bake",
    prompt: "Use every tool.",
    system: "Be brief.",
    model: { id: "baked", routes: ["chat"], answerTokens: 1024, streaming: true },
    provider: { socket: `${root}/broker/provider.sock`, token: "0".repeat(64) },
    gate: { socket: `${root}/broker/gate.sock` },
    tools: calls.map(([name]) => name),
    session: { intent: "new", id: "bake" },
    contextFiles: true,
    ceilings: { outputBytes: 65536, traceBytes: 65536 },
    deadline: new Date(Date.now() + 60000).toISOString(),
  };
}

function play(root) {
  return new Promise((done, fail) => {
    const child = spawn(process.execPath, [join(lib, "bake-run.cjs"), "--root", root], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    let out = Buffer.alloc(0);
    child.stdout.on("data", (chunk) => (out = Buffer.concat([out, chunk])));
    child.on("error", fail);
    child.on("close", () => done(out.subarray(4).toString()));
    child.stdin.end(frame(packet(root)));
  });
}

const root = mkdtempSync(join(tmpdir(), "bake-"));
for (const d of ["workspace", "state", "broker"]) mkdirSync(join(root, d));
const provider = createServer(answer).listen(join(root, "broker/provider.sock"));
const gate = createGate((socket) =>
  socket.once("data", (chunk) => {
    const { id } = JSON.parse(chunk.subarray(4)); // a small one comes in one piece
    socket.end(frame({ id, decision: "allow" }));
  }),
).listen(join(root, "broker/gate.sock"));
const said = await play(root);
provider.close();
gate.close();
rmSync(root, { recursive: true });
const result = JSON.parse(said || "{}");
const used = (result.tools ?? []).filter((t) => t.status === "ok").length;
if (result.status !== "completed" || used !== calls.length) {
  console.error(`the guest could not play a run: ${said}`);
  process.exit(1);
}
const { script } = createRequire(import.meta.url)(join(lib, "boot.cjs"));
if (script(readFileSync(join(lib, "guest.cache"))).cachedDataRejected !== false) {
  console.error("node does not take the cache that it made");
  process.exit(1);
}
