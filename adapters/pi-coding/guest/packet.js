// What the packet must say for this guest to work at all. The parent wrote it and checked it; a packet that
// says something else belongs to another version of this program, and nothing is begun with it.
const ADAPTER = "pi-coding";
const REVISION = 1;
const TOOLS = ["read", "bash", "edit", "write", "grep", "find", "ls"];
const ROUTES = ["chat", "responses", "messages"]; // the first that is allowed is used

export class KnownError extends Error {
  known = true;
}

function require(condition, text) {
  if (!condition) throw new KnownError(text);
}

const isText = (v) => typeof v === "string" && v.length > 0;
const isCount = (v) => Number.isSafeInteger(v) && v > 0;
const KEYS = new Set(
  ("protocol runId adapter profile prompt system model provider gate tools session contextFiles ceilings " +
    "deadline").split(" "),
);

export function checkPacket(p) {
  require(p !== null && typeof p === "object" && !Array.isArray(p), "the packet is no object");
  require(Object.keys(p).every((key) => KEYS.has(key)), "the packet has a key that is not known");
  require(p.protocol === "bridle/run/1", "the protocol of the packet is another one");
  require(p.adapter?.id === ADAPTER && p.adapter.revision === REVISION, "the packet is for another adapter");
  require(isText(p.runId) && isText(p.profile) && isText(p.prompt), "the packet lacks run, profile or prompt");
  require(p.system === undefined || isText(p.system), "'system' is no text");
  require(isText(p.model?.id) && isCount(p.model.answerTokens), "'model' lacks its id or its answer's tokens");
  require(Array.isArray(p.model.routes) && p.model.streaming === true, "'model' allows no streamed answer");
  require(ROUTES.some((r) => p.model.routes.includes(r)), "'model' has no route that this guest speaks");
  require(isText(p.provider?.socket) && isText(p.provider.token), "'provider' lacks its socket or token");
  require(/^[0-9a-f]{64}$/.test(p.provider.token), "'provider.token' is no token");
  require(p.gate === undefined || isText(p.gate.socket), "'gate' lacks its socket");
  require(Array.isArray(p.tools) && p.tools.every((t) => TOOLS.includes(t)), "'tools' names one that Pi has not");
  require(p.session?.intent === "new" || p.session?.intent === "resume", "'session.intent' is not known");
  require(isText(p.session.id) && /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/.test(p.session.id), "'session.id' is no id");
  require(p.contextFiles === undefined || p.contextFiles === true, "'contextFiles' is neither true nor absent");
  require(isCount(p.ceilings?.outputBytes) && isCount(p.ceilings.traceBytes), "'ceilings' lacks one");
  require(Number.isFinite(Date.parse(p.deadline)), "'deadline' is no time");
  return { ...p, route: ROUTES.find((r) => p.model.routes.includes(r)) };
}

const ARTIFACT_MAX = 512 << 10;
const AROUND = 16 << 10; // everything of a result but its text
const CUT = "\n[cut: the answer is longer than the run allows]";
const size = (text) => Buffer.byteLength(JSON.stringify(text));

// What fits of a text once it is JSON.
function bounded(text, max) {
  const whole = text.toWellFormed();
  if (size(whole) <= max) return whole;
  let low = 0;
  let high = whole.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (size(whole.slice(0, middle).toWellFormed() + CUT) <= max) low = middle;
    else high = middle - 1;
  }
  // not in the middle of a pair
  const end = low > 0 && (whole.charCodeAt(low - 1) & 0xfc00) === 0xd800 ? low - 1 : low;
  return whole.slice(0, end) + CUT;
}

export function resultOf(packet, outcome) {
  const room = Math.min(ARTIFACT_MAX, packet.ceilings.outputBytes - AROUND);
  const result = {
    runId: packet.runId,
    status: outcome.completed ? "completed" : "failed",
    adapter: { id: ADAPTER, revision: REVISION },
    session: { id: packet.session.id },
    artifact: outcome.completed ? { kind: "text", text: bounded(outcome.text, Math.max(room, 256)) } : null,
    tools: outcome.tools,
  };
  if (outcome.usage) result.usage = outcome.usage;
  return result;
}
