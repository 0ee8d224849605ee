// A guest that is the clients people use: npm's openai and @anthropic-ai/sdk, told nothing but a base URL that
// cannot exist, a key that is the run's token, and a fetch that goes to the provider's socket. The prompt
// says what to do; the artifact says, as JSON, what came of it and how often the network was used.
import { readFileSync, writeSync } from "node:fs";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { Agent, fetch as undiciFetch } from "undici";

const input = readFileSync(0);
const packet = JSON.parse(input.subarray(4));
const dispatcher = new Agent({ connect: { socketPath: packet.provider.socket } });
const used = []; // the status of each answer
const over = async (url, init) => {
  const response = await undiciFetch(url, { ...init, dispatcher, redirect: "manual" });
  used.push(response.status);
  return response;
};

const openai = new OpenAI({ baseURL: "http://provider.invalid/v1", apiKey: packet.provider.token, fetch: over });
const anthropic = new Anthropic({ baseURL: "http://provider.invalid", apiKey: packet.provider.token, fetch: over });
const model = packet.model.id;
const messages = [{ role: "user", content: "Say it." }];
const parameters = { type: "object", properties: { path: { type: "string" } }, required: ["path"] };
const tools = [{ type: "function", function: { name: "read", description: "reads", parameters } }];

const does = {
  async chat() {
    const r = await openai.chat.completions.create({ model, messages, tools, max_tokens: 100 });
    return { text: r.choices[0].message.content, usage: r.usage.total_tokens, finish: r.choices[0].finish_reason };
  },
  async "chat-stream"() {
    const stream = openai.chat.completions.stream({ model, messages, tools, stream_options: { include_usage: true } });
    const r = await stream.finalChatCompletion();
    return { text: r.choices[0].message.content, usage: r.usage.total_tokens, finish: r.choices[0].finish_reason };
  },
  async "chat-plain-stream"() {
    let text = "";
    let usage = "none";
    for await (const chunk of await openai.chat.completions.create({ model, messages, stream: true })) {
      text += chunk.choices[0]?.delta.content ?? "";
      if (chunk.usage) usage = "some"; // it did not ask for it
    }
    return { text, usage };
  },
  async responses() {
    const r = await openai.responses.create({ model, input: "Say it.", max_output_tokens: 100 });
    return { text: r.output_text, usage: r.usage.total_tokens };
  },
  async "responses-stream"() {
    const r = await openai.responses.stream({ model, input: "Say it." }).finalResponse();
    return { text: r.output_text, usage: r.usage.total_tokens };
  },
  async messages() {
    const r = await anthropic.messages.create({ model, messages, max_tokens: 100 });
    return { text: r.content[0].text, usage: r.usage.input_tokens + r.usage.output_tokens };
  },
  async "messages-stream"() {
    const r = await anthropic.messages.stream({ model, messages, max_tokens: 100 }).finalMessage();
    return { text: r.content[0].text, usage: r.usage.input_tokens + r.usage.output_tokens };
  },
  async models() {
    const list = [];
    for await (const m of openai.models.list()) list.push(m.id);
    return { list };
  },
  "other-model": () => openai.chat.completions.create({ model: "another", messages }),
  "other-model-messages": () => anthropic.messages.create({ model: "another", messages, max_tokens: 100 }),
  "two-answers": () => openai.chat.completions.create({ model, messages, n: 2 }),
  "other-route": () => openai.embeddings.create({ model, input: "x" }),
  "other-token": () =>
    new OpenAI({ baseURL: "http://provider.invalid/v1", apiKey: "0".repeat(64), fetch: over }).chat.completions.create({
      model,
      messages,
    }),
};

async function one(name) {
  used.length = 0;
  try {
    return { name, ...(await does[name]()), statuses: [...used] };
  } catch (error) {
    const code = error.code ?? error.error?.error?.code ?? error.error?.error?.type;
    return { name, status: error.status, code, statuses: [...used] };
  }
}

async function main() {
  const said = [];
  for (const name of packet.prompt.split(/\s+/).filter((word) => word in does)) said.push(await one(name));
  const result = {
    runId: packet.runId,
    status: "completed",
    adapter: packet.adapter,
    session: {},
    artifact: { kind: "text", text: JSON.stringify(said) },
    tools: [],
  };
  const body = Buffer.from(JSON.stringify(result));
  const head = Buffer.alloc(4);
  head.writeUInt32BE(body.length);
  writeSync(1, Buffer.concat([head, body]));
  process.exit(0);
}

void main();
