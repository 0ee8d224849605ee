// An editor, made of the protocol's own SDK: over standard input and output of 'bridle acp', or over a
// WebSocket of the service. What it is told is kept; what it answers is the test's matter.
//
// Environment: ACP_CLIENTS (node_modules of prepare.sh), BRIDLE, SOCKET, PORT, WORKSPACE.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chownSync, existsSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { Readable, Writable } from "node:stream";

const modules = `${process.env.ACP_CLIENTS}/node_modules`;
const { client, methods, ndJsonStream } = await import(
  `${modules}/@agentclientprotocol/sdk/dist/v1/stable/acp.js`);
const { createWebSocketStream } = await import(
  `${modules}/@agentclientprotocol/sdk/dist/transports/ws-stream.js`);
const { WebSocket } = await import(`${modules}/ws/wrapper.mjs`);

export const selected = (optionId) => ({ outcome: { outcome: "selected", optionId } });

// What the protocol's own JSON Schema says of what an agent sends, strictly: the SDK forgives.
const { z } = await import(`${modules}/zod/index.js`);
const { $schema, $defs } = JSON.parse(
  readFileSync(`${modules}/@agentclientprotocol/sdk/schema/v1/schema.json`, "utf8"));
const schemas = {};
const RESULTS = { initialize: "InitializeResponse", "session/new": "NewSessionResponse",
  "session/prompt": "PromptResponse", "session/load": "LoadSessionResponse",
  "session/list": "ListSessionsResponse", "session/close": "CloseSessionResponse" };
const SENT = { "session/update": "SessionNotification",
  "session/request_permission": "RequestPermissionRequest",
  "$/cancel_request": "CancelRequestNotification" };

export function check(name, value) {
  schemas[name] ??= z.fromJSONSchema({ $schema, $defs, $ref: `#/$defs/${name}` });
  const { success, error } = schemas[name].safeParse(value);
  return success ? [] : [`${name}: ${error.message}\n${JSON.stringify(value)}`];
}

// Each message of both sides, before the SDK sees it; what is wrong with it is added to `wrong`.
function tapped(stream, seen, wrong) {
  const methods_of = new Map();
  const out = new TransformStream({
    transform(message, controller) {
      if (message.method && message.id !== undefined) methods_of.set(message.id, message.method);
      controller.enqueue(message);
    },
  });
  out.readable.pipeTo(stream.writable).catch(() => {});
  const from = new TransformStream({
    transform(message, controller) {
      seen(message);
      if (message.jsonrpc !== "2.0") wrong.push(JSON.stringify(message));
      if (message.method) wrong.push(...(SENT[message.method] ? check(SENT[message.method], message.params)
        : [`it sends '${message.method}'`]));
      else if (message.error) wrong.push(...check("Error", message.error));
      else wrong.push(...check(RESULTS[methods_of.get(message.id)] ?? "none", message.result));
      controller.enqueue(message);
    },
  });
  return { writable: out.writable, readable: stream.readable.pipeThrough(from) };
}

export class Editor {
  updates = [];
  asks = [];
  messages = [];
  wrong = [];
  answer = () => { throw new Error("nothing was to be asked"); };

  static async open(w, more = {}) {
    const e = new Editor();
    e.dir = w.dir;
    let stream;
    if (w.via !== "ws") {
      const args = more.args ?? ["--connect", `unix:${process.env.SOCKET}`];
      e.child = spawn(process.env.BRIDLE, ["acp", ...args], { stdio: ["pipe", "pipe", "pipe"] });
      e.talk = "";
      e.child.stderr.on("data", (text) => { e.talk += text; });
      stream = ndJsonStream(Writable.toWeb(e.child.stdin), Readable.toWeb(e.child.stdout));
    } else {
      stream = createWebSocketStream(`ws://127.0.0.1:${process.env.PORT}/acp`,
        { WebSocket, protocols: ["acp.v1"] });
    }
    const app = client({ name: "test" })
      .onNotification(methods.client.session.update, ({ params }) => { e.updates.push(params); })
      .onRequest(methods.client.session.requestPermission, async ({ params, signal }) => {
        const ask = { params, signal };
        e.asks.push(ask);
        e.wake?.();
        return await e.answer(params, signal);
      });
    // what an agent of Bridle never asks a client to do
    for (const never of ["fs/read_text_file", "fs/write_text_file", "terminal/create"])
      app.onRequest(never, (x) => x, () => assert.fail(`${never} was called`));
    e.connection = app.connect(tapped(stream, (m) => e.messages.push(m), e.wrong));
    e.agent = e.connection.agent;
    e.initialized = await e.agent.request("initialize", {
      protocolVersion: 1,
      clientCapabilities: { fs: { readTextFile: true, writeTextFile: true }, terminal: true },
      clientInfo: { name: "test", version: "1" },
    });
    return e;
  }

  async session(cwd = this.dir) {
    const { sessionId } = await this.agent.request("session/new", { cwd, mcpServers: [] });
    return sessionId;
  }

  prompt(sessionId, text) {
    return this.agent.request("session/prompt", { sessionId, prompt: [{ type: "text", text }] });
  }

  // The next permission request that nobody waited for yet.
  async asked() {
    this.waited ??= 0;
    while (this.asks.length <= this.waited)
      await new Promise((done) => { this.wake = done; });
    return this.asks[this.waited++];
  }

  // Until an update fits.
  async until(fits) {
    for (;;) {
      const found = this.updates.find(({ update }) => fits(update));
      if (found) return found.update;
      await new Promise((done) => setTimeout(done, 5));
    }
  }

  text() {
    return this.updates.filter(({ update }) => update.sessionUpdate === "agent_message_chunk")
      .map(({ update }) => update.content.text).join("");
  }

  // The last status of each tool call.
  statuses() {
    const calls = {};
    for (const { update } of this.updates)
      if (update.status) calls[update.toolCallId] = update.status;
    return Object.values(calls);
  }

  async close() {
    assert.deepEqual(this.wrong, []);
    this.connection.close();
    if (this.child && this.child.exitCode === null) {
      this.child.stdin.end();
      await once(this.child, "exit");
    }
    if (this.child) assert.equal(this.child.exitCode, 0, this.talk);
  }
}

// Another operator, with harness/acp/1 and its extension.
export async function operator() {
  const socket = new WebSocket(`ws://127.0.0.1:${process.env.PORT}/acp`, ["harness.acp.1"]);
  const waiting = new Map(), events = [];
  let last = 0;
  socket.on("message", (text) => {
    const m = JSON.parse(text);
    if (m.method === "session/event") events.push(m.params.event);
    else if (m.error) waiting.get(m.id)?.[1](new Error(m.error.message));
    else waiting.get(m.id)?.[0](m.result);
  });
  await once(socket, "open");
  const request = (method, params) => new Promise((...done) => {
    waiting.set(++last, done);
    socket.send(JSON.stringify({ jsonrpc: "2.0", id: last, method, params }));
  });
  await request("initialize", { protocolVersion: "harness/acp/1", clientName: "test",
    capabilities: { streaming: true, permissioning: true, sessions: true, extensions: ["bridle/1"] } });
  return { request, events, close: () => socket.close() };
}

// An error of this code.
export async function refused(promise, code) {
  await assert.rejects(promise, (error) => {
    assert.equal(error.code, code, error.message);
    return true;
  });
}

// A workspace of a case's own, in the service's root, and what is in it.
class Workspace {
  constructor(via, name) {
    this.via = via;
    this.dir = `${process.env.WORKSPACE}/${name}-${via}`;
    const { uid, gid } = statSync(process.env.WORKSPACE);
    for (const dir of [this.dir, this.path("out")]) {
      mkdirSync(dir);
      chownSync(dir, uid, gid);
    }
    writeFileSync(this.path("a.txt"), "first line of a\nsecond line\n");
    chownSync(this.path("a.txt"), uid, gid);
    symlinkSync("/etc", this.path("outside"));
  }

  path(name) {
    return `${this.dir}/${name}`;
  }

  content(name) {
    return existsSync(this.path(name)) ? readFileSync(this.path(name), "utf8") : null;
  }
}

// Runs every case, several at a time, each with connections and a workspace of its own; those that
// the command line names, or all.
export async function main(cases) {
  const [via, ...words] = process.argv.slice(2);
  const waiting = Object.entries(cases).filter(([name]) => !words.length || words.includes(name));
  let failed = 0, passed = 0;
  await Promise.all(Array.from({ length: 6 }, async () => {
    for (let next; (next = waiting.shift());) {
      const [name, run] = next;
      try {
        await run(new Workspace(via, name));
        console.log(`ok - ${name} (${via})`);
        passed++;
      } catch (error) {
        console.log(`not ok - ${name} (${via})\n${error.stack}`);
        failed++;
      }
    }
  }));
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed || !passed || passed < words.length ? 1 : 0);
}
