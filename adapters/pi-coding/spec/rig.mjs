// What the specs of the guest share: a provider on a Unix socket that plays what a spec says, and the guest as
// the image has it, outside of a sandbox, with all its paths below a directory of the spec's own.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const cache = process.env.PI_CACHE ?? "";
export const node = join(cache, "root/opt/pi/bin/node");
export const guest = join(cache, "root/opt/pi/lib/boot.cjs");
export const TOKEN = "0123456789abcdef".repeat(4);

export function frame(value) {
  const body = Buffer.isBuffer(value) ? value : Buffer.from(JSON.stringify(value));
  const head = Buffer.alloc(4);
  head.writeUInt32BE(body.length);
  return Buffer.concat([head, body]);
}

// Turns: what the model says, one after another: { text, calls: [[name, input]], finish, status, body, delay }.
export const dialects = {
  "/v1/chat/completions"(turn, n, request, response) {
    const send = (choices, usage) =>
      response.write(
        `data: ${JSON.stringify({ id: "x", object: "chat.completion.chunk", created: 1, model: request.model, choices, usage })}\n\n`,
      );
    const delta = (d, finish_reason = null) => send([{ index: 0, delta: d, finish_reason }]);
    delta({ role: "assistant", content: turn.text ?? "" });
    (turn.calls ?? []).forEach(([name, input], index) => {
      const call = { name, arguments: JSON.stringify(input) };
      delta({ tool_calls: [{ index, id: `call_${n}_${index}`, type: "function", function: call }] });
    });
    delta({}, turn.finish ?? (turn.calls ? "tool_calls" : "stop"));
    send([], { prompt_tokens: 100, completion_tokens: 10, total_tokens: 110 });
    response.end("data: [DONE]\n\n");
  },
  "/v1/responses"(turn, n, request, response) {
    let sequence_number = 0;
    const send = (type, data) =>
      response.write(`event: ${type}\ndata: ${JSON.stringify({ type, sequence_number: sequence_number++, ...data })}\n\n`);
    const usage = {
      input_tokens: 100,
      output_tokens: 10,
      total_tokens: 110,
      input_tokens_details: { cached_tokens: 0 },
      output_tokens_details: { reasoning_tokens: 0 },
    };
    const base = { id: `resp_${n}`, object: "response", created_at: 1, model: request.model };
    const output = [];
    send("response.created", { response: { ...base, status: "in_progress", output: [] } });
    (turn.calls ?? []).forEach(([name, input], i) => {
      const item = { type: "function_call", id: `fc_${n}_${i}`, call_id: `call_${n}_${i}`, name, arguments: "" };
      send("response.output_item.added", { output_index: i, item });
      item.arguments = JSON.stringify(input);
      send("response.function_call_arguments.delta", { item_id: item.id, output_index: i, delta: item.arguments });
      send("response.function_call_arguments.done", { item_id: item.id, output_index: i, arguments: item.arguments });
      send("response.output_item.done", { output_index: i, item: { ...item, status: "completed" } });
      output.push(item);
    });
    if (!turn.calls) {
      const item = { type: "message", id: `msg_${n}`, role: "assistant", status: "in_progress", content: [] };
      const part = { type: "output_text", text: "", annotations: [] };
      const at = { item_id: item.id, output_index: 0, content_index: 0 };
      send("response.output_item.added", { output_index: 0, item });
      send("response.content_part.added", { ...at, part });
      send("response.output_text.delta", { ...at, delta: turn.text });
      send("response.output_text.done", { ...at, text: turn.text });
      const done = { ...item, status: "completed", content: [{ ...part, text: turn.text }] };
      send("response.output_item.done", { output_index: 0, item: done });
      output.push(done);
    }
    send("response.completed", { response: { ...base, status: "completed", output, usage } });
    response.end();
  },
  "/v1/messages"(turn, n, request, response) {
    const send = (type, data) => response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`);
    const usage = { input_tokens: 100, output_tokens: 1 };
    const message = { id: `msg_${n}`, type: "message", role: "assistant", model: request.model, content: [], usage };
    send("message_start", { message: { ...message, stop_reason: null, stop_sequence: null } });
    const blocks = turn.calls
      ? turn.calls.map(([name, input], i) => [
          { type: "tool_use", id: `toolu_${n}_${i}`, name, input: {} },
          { type: "input_json_delta", partial_json: JSON.stringify(input) },
        ])
      : [[{ type: "text", text: "" }, { type: "text_delta", text: turn.text }]];
    blocks.forEach(([content_block, delta], index) => {
      send("content_block_start", { index, content_block });
      send("content_block_delta", { index, delta });
      send("content_block_stop", { index });
    });
    const stop_reason = turn.calls ? "tool_use" : "end_turn";
    send("message_delta", { delta: { stop_reason, stop_sequence: null }, usage: { output_tokens: 10 } });
    send("message_stop", {});
    response.end();
  },
};

// The same, not streamed; only text.
const whole = {
  "/v1/chat/completions": (turn, n, { model }) => ({
    id: `x${n}`,
    object: "chat.completion",
    created: 1,
    model,
    choices: [{ index: 0, message: { role: "assistant", content: turn.text, refusal: null }, finish_reason: "stop", logprobs: null }],
    usage: { prompt_tokens: 100, completion_tokens: 10, total_tokens: 110 },
  }),
  "/v1/responses": (turn, n, { model }) => ({
    id: `resp_${n}`,
    object: "response",
    created_at: 1,
    status: "completed",
    model,
    output: [
      {
        type: "message",
        id: `msg_${n}`,
        role: "assistant",
        status: "completed",
        content: [{ type: "output_text", text: turn.text, annotations: [] }],
      },
    ],
    usage: {
      input_tokens: 100,
      output_tokens: 10,
      total_tokens: 110,
      input_tokens_details: { cached_tokens: 0 },
      output_tokens_details: { reasoning_tokens: 0 },
    },
  }),
  "/v1/messages": (turn, n, { model }) => ({
    id: `msg_${n}`,
    type: "message",
    role: "assistant",
    model,
    content: [{ type: "text", text: turn.text }],
    stop_reason: "end_turn",
    stop_sequence: null,
    usage: { input_tokens: 100, output_tokens: 10 },
  }),
};

export function play(turns, requests) {
  return createServer((message, response) => {
    let body = "";
    message.on("data", (chunk) => (body += chunk));
    message.on("end", () => {
      const n = requests.length;
      const turn = turns[Math.min(n, turns.length - 1)];
      const request = body ? JSON.parse(body) : {};
      requests.push({ path: message.url, method: message.method, headers: message.headers, body: request });
      const say = () => {
        if (turn.status) {
          response.writeHead(turn.status, { "content-type": "application/json", ...turn.headers });
          return response.end(turn.body);
        }
        const path = message.url.replace("?beta=true", "");
        const dialect = dialects[path];
        if (!dialect) return response.writeHead(404).end();
        if (!request.stream) {
          response.writeHead(200, { "content-type": "application/json" });
          return response.end(JSON.stringify(whole[path](turn, n, request)));
        }
        response.writeHead(200, { "content-type": "text/event-stream" });
        return dialect(turn, n, request, response);
      };
      if (turn.delay) setTimeout(say, turn.delay).unref();
      else say();
    });
  });
}

export class Rig {
  constructor() {
    this.root = mkdtempSync(join(tmpdir(), "pi-"));
    for (const d of ["workspace", "state", "broker", "home"]) mkdirSync(join(this.root, d));
    this.requests = [];
    this.open = [];
  }

  path(name) {
    return join(this.root, name);
  }

  write(name, text) {
    mkdirSync(join(this.root, name, ".."), { recursive: true });
    writeFileSync(join(this.root, name), text);
  }

  read(name) {
    return readFileSync(join(this.root, name), "utf8");
  }

  listen(server, where) {
    this.open.push(server);
    return new Promise((resolve) => server.listen(where, () => resolve(server)));
  }

  async provider(...turns) {
    await this.listen(play(turns, this.requests), this.path("broker/provider.sock"));
  }

  packet(changes = {}) {
    return {
      protocol: "bridle/run/1",
      runId: "run-1",
      adapter: { id: "pi-coding", revision: 1 },
      profile: "workspace-v1",
      prompt: "Do it.",
      model: { id: "scripted/spec", routes: ["chat"], answerTokens: 4096, streaming: true },
      provider: { socket: this.path("broker/provider.sock"), token: TOKEN },
      tools: ["read", "bash", "edit", "write", "grep", "find", "ls"],
      session: { intent: "new", id: "s-1" },
      ceilings: { outputBytes: 65536, traceBytes: 4096 },
      deadline: new Date(Date.now() + 30000).toISOString(),
      ...changes,
    };
  }

  // The guest with these bytes on stdin.
  start(stdin, env = {}) {
    return new Promise((resolve) => {
      const child = spawn(node, [guest, "--root", this.root], {
        cwd: this.path("workspace"),
        env: { PATH: process.env.PATH, HOME: this.path("home"), ...env },
      });
      const out = [];
      const err = [];
      child.stdout.on("data", (chunk) => out.push(chunk));
      child.stderr.on("data", (chunk) => err.push(chunk));
      child.stdin.on("error", () => {}); // it may not read to the end
      child.on("close", (code) => {
        const bytes = Buffer.concat(out);
        const result = bytes.length > 4 ? JSON.parse(bytes.subarray(4)) : undefined;
        const whole = bytes.length >= 4 && bytes.readUInt32BE(0) === bytes.length - 4;
        resolve({ code, bytes, whole, result, stderr: Buffer.concat(err).toString() });
      });
      child.stdin.end(stdin);
    });
  }

  run(changes, env) {
    return this.start(frame(this.packet(changes)), env);
  }

  close() {
    for (const server of this.open) {
      server.closeAllConnections?.();
      server.close();
    }
    rmSync(this.root, { recursive: true });
  }
}
