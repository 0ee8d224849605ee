// One run of Pi: the packet in, a result out. Everything Pi could find by itself (settings, credentials,
// models, extensions, skills, templates, themes, system prompts, context files) is handed to it here,
// from memory or empty; what it stores goes to the state directory, and it works in the workspace.
import { mkdirSync } from "node:fs";
import { InMemoryCredentialStore, InMemoryModelsStore } from "@earendil-works/pi-ai";
import { Agent, install, setGlobalDispatcher } from "undici";
import { createAgentSession } from "pi/core/sdk.js";
import { createExtensionRuntime, loadExtensionFromFactory } from "pi/core/extensions/loader.js";
import { createEventBus } from "pi/core/event-bus.js";
import { ModelRuntime } from "pi/core/model-runtime.js";
import { SessionManager } from "pi/core/session-manager.js";
import { SettingsManager } from "pi/core/settings-manager.js";
import { resolveToCwd } from "pi/core/tools/path-utils.js";
import { contextFiles } from "./context.js";
import { gate } from "./gate.js";
import { findSession } from "./session.js";

const PROVIDER = "bridle";
// No name resolves here and nothing listens: only the socket below leads anywhere.
const BASE_URL = "http://provider.invalid";

const SETTINGS = {
  compaction: { enabled: false },
  retry: { enabled: false, maxRetries: 0, provider: { maxRetries: 0 } },
  enableInstallTelemetry: false,
  enableAnalytics: false,
  cacheWarming: "off",
  packages: [],
  extensions: [],
  skills: [],
  prompts: [],
  themes: [],
};

const APIS = { chat: "openai-completions", responses: "openai-responses", messages: "anthropic-messages" };

// What a Pi that is asked for nothing more sends: parameters that the lease knows, and no others.
const COMPAT = {
  "openai-completions": {
    supportsStore: false,
    supportsDeveloperRole: false,
    supportsReasoningEffort: false,
    supportsUsageInStreaming: true,
    supportsStrictMode: false,
    maxTokensField: "max_completion_tokens",
    promptCacheKeyMode: "off",
    sendSessionAffinityHeaders: false,
    supportsLongCacheRetention: false,
  },
  "openai-responses": { supportsLongCacheRetention: false },
  "anthropic-messages": { supportsLongCacheRetention: false },
};

// Nothing depends on it: Pi compares with it only to compact a session, which is off.
const CONTEXT_TOKENS = 128000;

const WHY = {
  error: "a request to the model failed",
  aborted: "the run was ended before the model had answered",
  length: "the model's answer was cut at its limit",
};

function connect(socketPath) {
  // how long a provider may take is the lease's matter
  setGlobalDispatcher(new Agent({ connect: { socketPath }, headersTimeout: 0, bodyTimeout: 0 }));
  install();
}

async function modelRuntime(packet) {
  const runtime = await ModelRuntime.create({
    credentials: new InMemoryCredentialStore(),
    modelsPath: null,
    modelsStore: new InMemoryModelsStore(),
    allowModelNetwork: false,
    refreshOnCreate: false,
  });
  const api = APIS[packet.route];
  runtime.registerProvider(PROVIDER, {
    name: "lease",
    // Anthropic's client adds /v1 by itself
    baseUrl: api === "anthropic-messages" ? BASE_URL : `${BASE_URL}/v1`,
    apiKey: packet.provider.token, // hex: no value that Pi would take for a command or a variable
    api,
    models: [
      {
        id: packet.model.id,
        name: packet.model.id,
        reasoning: false,
        input: ["text"],
        cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
        contextWindow: CONTEXT_TOKENS,
        maxTokens: packet.model.answerTokens,
        compat: COMPAT[api],
      },
    ],
  });
  return runtime;
}

// What DefaultResourceLoader would collect from the workspace and the home directory: nothing.
function resources(packet, extensions, files) {
  const none = { diagnostics: [] };
  return {
    getExtensions: () => extensions,
    getSkills: () => ({ skills: [], ...none }),
    getPrompts: () => ({ prompts: [], ...none }),
    getThemes: () => ({ themes: [], ...none }),
    getAgentsFiles: () => ({ agentsFiles: files }),
    getSystemPrompt: () => undefined,
    getSystemPromptSource: () => undefined,
    getAppendSystemPrompt: () => (packet.system ? [packet.system] : []),
    getAppendSystemPromptSources: () => [],
    extendResources: () => {},
    reload: async () => {},
  };
}

async function extensionsOf(packet, paths, counts) {
  const runtime = createExtensionRuntime();
  const result = { extensions: [], errors: [], warnings: [], runtime };
  if (packet.gate) {
    const ask = gate(packet.gate.socket, paths.workspace, resolveToCwd);
    let calls = 0;
    const asked = (pi) => pi.on("tool_call", async ({ toolCallId, toolName, input }) => {
      const reason = await ask(`call_${++calls}`, toolName, input);
      if (reason === undefined) return undefined;
      counts.deny(toolCallId);
      return { block: true, reason };
    });
    result.extensions.push(await loadExtensionFromFactory(asked, paths.workspace, createEventBus(), runtime, "<gate>"));
  }
  return result;
}

// Receipts: how often which tool ended how. Nothing of a call or of what it printed. A name that is none of
// the tools is the model's own text, and not counted.
function counter(packet, rows) {
  const denied = new Set();
  return {
    deny: (id) => denied.add(id),
    end: (event) => {
      const status = denied.delete(event.toolCallId) ? "denied" : event.isError ? "error" : "ok";
      if (!packet.tools.includes(event.toolName)) return;
      const row = rows.find((r) => r.name === event.toolName && r.status === status);
      if (row) row.count++;
      else rows.push({ name: event.toolName, status, count: 1 });
    },
  };
}

function usageOf(messages) {
  const sum = { promptTokens: 0, completionTokens: 0, totalTokens: 0 };
  for (const { role, usage } of messages) {
    if (role !== "assistant" || !usage) continue;
    sum.promptTokens += usage.input + usage.cacheRead + usage.cacheWrite;
    sum.completionTokens += usage.output;
  }
  sum.totalTokens = sum.promptTokens + sum.completionTokens;
  return sum;
}

const textOf = (message) =>
  message.content
    .filter((part) => part.type === "text")
    .map((part) => part.text)
    .join("");

function sessionManager(packet, paths) {
  const directory = `${paths.state}/sessions`;
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const { intent, id } = packet.session;
  return intent === "resume"
    ? SessionManager.open(findSession(directory, id), directory, paths.workspace)
    : SessionManager.create(paths.workspace, directory, { id });
}

async function openSession(packet, paths, counts) {
  const runtime = await modelRuntime(packet);
  const { session } = await createAgentSession({
    cwd: paths.workspace,
    agentDir: `${paths.state}/agent`,
    model: runtime.getModel(PROVIDER, packet.model.id),
    thinkingLevel: "off",
    modelRuntime: runtime,
    resourceLoader: resources(packet, await extensionsOf(packet, paths, counts), contextFiles(packet, paths)),
    settingsManager: SettingsManager.inMemory(SETTINGS, { projectTrusted: false }),
    sessionManager: sessionManager(packet, paths),
    tools: packet.tools,
  });
  return session;
}

// Ends the work a little before the parent would, so that there is still a result.
function endInTime(packet, session, say) {
  const left = Date.parse(packet.deadline) - Date.now();
  const wait = Math.max(1, Math.min(left - Math.min(2000, left / 10), 2 ** 31 - 1));
  return setTimeout(() => {
    say("the deadline of the run is near: the work was ended");
    void session.abort();
  }, wait);
}

export async function run(packet, paths, receipts, say) {
  connect(packet.provider.socket);
  const counts = counter(packet, receipts.tools);
  const session = await openSession(packet, paths, counts);
  const before = session.messages.length;
  const settled = new Promise((resolve) => {
    session.subscribe((event) => {
      if (event.type === "tool_execution_end") counts.end(event);
      else if (event.type === "message_end") receipts.usage = usageOf(session.messages.slice(before));
      else if (event.type === "agent_settled") resolve();
    });
  });
  const timer = endInTime(packet, session, say);
  await session.prompt(packet.prompt, { expandPromptTemplates: false });
  await settled;
  clearTimeout(timer);
  const fresh = session.messages.slice(before);
  receipts.usage = usageOf(fresh);
  const last = fresh.filter((message) => message.role === "assistant").at(-1);
  const completed = last?.stopReason === "stop";
  if (!completed) say(WHY[last?.stopReason] ?? "the model gave no answer");
  return { completed, text: completed ? textOf(last) : "", ...receipts };
}
