// One session as its events tell it: what a timeline shows, what is asked, what it used. It checks
// the stream on the way, because a record that is not whole must not look as if it were. No page,
// no network: the tests run it by itself.

export class StreamFailure extends Error {}

// Of what tools were given and said, and of text; beyond it the oldest is let go of, and the record
// still has it.
const KEPT_BYTES = 24 * 1024 * 1024;
const ITEMS_MAX = 20000;
const FORGET = 1000; // at once

const SAME = ["sessionId", "callId", "action", "subject", "scope"];

export class Stream {
  // changed(item, isNew): called for each item that is to be drawn (again).
  constructor(id, changed = () => {}) {
    this.id = id;
    this.changed = changed;
    this.seq = -1;
    this.own = -1;
    this.seen = new Set();
    this.items = [];
    this.forgotten = 0;
    this.kept = 0;
    this.letGo = 0; // items before this one have been looked at
    this.calls = new Map();
    this.texts = new Map();
    this.asks = new Map();
    this.mine = new Map(); // permissionId: the decision that the server accepted from here
    this.budget = new Map();
    this.usage = { prompt: 0, completion: 0 };
    this.toolCalls = 0;
    this.turns = 0;
    this.model = "";
    this.goal = "";
    this.run = null;
    this.startedAt = "";
    this.lastAt = "";
    this.stopped = null;
    this.phase = "";
    this.turn = null;
    this.sandbox = null;
    this.pending = null; // a decision that waits for its votes
    this.lastCall = null;
    this.changes = null;
  }

  openAsks() {
    return [...this.asks.values()].filter((a) => a.state === "open");
  }

  // session/event and bridle/event; false: it was here already, which a replay that overlaps may do
  // to whoever asked for it, and nobody else.
  feed(event, seq, size = 0) {
    if (seq !== this.seq + 1)
      throw new StreamFailure(`event ${seq} came after event ${this.seq}`);
    this.check(event, false);
    this.seq = seq;
    this.take(event, size);
  }

  feedOwn(event, seq, after, size = 0) {
    if (seq !== this.own + 1)
      throw new StreamFailure(`extension event ${seq} came after ${this.own}`);
    if (after !== this.seq)
      throw new StreamFailure(`extension event ${seq} belongs behind event ${after}, and ${this.seq} was the last`);
    this.check(event, true);
    this.own = seq;
    this.take(event, size);
  }

  check(event, own) {
    if (typeof event !== "object" || event === null || event.v !== 1 || typeof event.type !== "string" ||
        typeof event.eventId !== "string" || typeof event.at !== "string" ||
        typeof event.data !== "object" || event.data === null)
      throw new StreamFailure("something that should be an event is not one");
    if (event.type.startsWith("bridle.") !== own)
      throw new StreamFailure(`an event '${event.type}' came on the wrong stream`);
    if (this.seen.has(event.eventId))
      throw new StreamFailure(`the event '${event.eventId}' came twice`);
    if (this.stopped)
      throw new StreamFailure(event.type === "agent.stopped" ? "the agent stopped twice"
        : `an event '${event.type}' came after the end`);
    this.seen.add(event.eventId);
  }

  take(event, size) {
    this.lastAt = event.at;
    if (!this.startedAt) this.startedAt = event.at;
    if (this.pending && event.type !== "bridle.votes") this.placeDecision(null);
    const f = HANDLERS.get(event.type);
    if (f) f(this, event.data, event, size);
    else this.add({ kind: "other", type: event.type, data: event.data }, event, size);
    this.bound();
  }

  add(item, event, size = 0) {
    item.id = event.eventId;
    item.at = event.at;
    item.rev = 0;
    item.weight = size;
    this.kept += size;
    this.items.push(item);
    this.changed(item, true);
    return item;
  }

  touch(item, size = 0) {
    item.rev++;
    item.weight += size;
    this.kept += size;
    this.changed(item, false);
  }

  // Memory has an end: payloads first, oldest first, then whole entries. What is open stays.
  bound() {
    while (this.kept > KEPT_BYTES && this.letGo < this.items.length - 1) {
      const item = this.items[this.letGo++];
      if (item.kind === "call" && !item.done) continue;
      this.kept -= item.weight;
      item.weight = 0;
      if (item.kind === "call") item.input = item.output = undefined;
      else if (item.kind === "text") item.text = item.text.slice(0, 2000);
      else continue;
      item.cut = true;
      this.touch(item);
    }
    if (this.items.length > ITEMS_MAX) {
      for (const item of this.items.splice(0, FORGET)) {
        this.kept -= item.weight;
        if (item.kind === "call" && item.done) this.calls.delete(item.callId);
      }
      this.forgotten += FORGET;
      this.letGo = Math.max(0, this.letGo - FORGET);
      this.changed(null, true);
    }
  }

  placeDecision(votes) {
    const d = this.pending;
    this.pending = null;
    if (!d) return;
    const call = votes ? this.calls.get(votes.callId) : this.lastCall;
    const decision = { ...d.data, actor: d.actor };
    if (votes) {
      decision.source = votes.source;
      decision.votes = votes.votes;
      decision.pieces = votes.pieces;
      decision.opaque = votes.opaque;
      decision.grant = votes.grant;
    }
    if (!call) {
      this.add({ kind: "decision", decision }, d);
      return;
    }
    call.decisions.push(decision);
    this.touch(call);
  }

  note(tone, code, text, event) {
    this.add({ kind: "note", tone, code, text }, event);
  }

  // The server accepted this answer from here.
  accepted(permissionId, decision) {
    this.mine.set(permissionId, decision);
    const ask = this.asks.get(permissionId);
    if (ask && ask.state !== "open" && ask.byPerson && ask.state !== decision)
      throw new StreamFailure("a permission was resolved in another way than it was answered here");
  }
}

function usageOf(data) {
  const u = data.usage || {};
  return { prompt: Number(u.promptTokens) || 0, completion: Number(u.completionTokens) || 0 };
}

const HANDLERS = new Map(Object.entries({
  "session.created"(s, d) {
    s.workspace = d.workspace;
  },
  "agent.started"(s, d) {
    s.model = d.model || s.model;
    s.taskId = d.taskId;
    s.phase = "starting";
  },
  "bridle.run"(s, d, e, size) {
    s.run = d;
    s.goal = d.goal || "";
    s.model = d.model || s.model;
    s.add({ kind: "head", data: d }, e, size);
  },
  "bridle.table"() {},
  "task.updated"(s, d, e) {
    s.note(d.phase === "blocked" ? "bad" : "quiet", "task " + d.taskId, d.phase + (d.note ? ": " + d.note : ""), e);
  },
  "sandbox.started"(s, d, e, size) {
    s.sandbox = s.add({ kind: "sandbox", data: d, receipt: null, stopped: null }, e, size);
  },
  "bridle.launch"(s, d, e, size) {
    if (!s.sandbox) s.sandbox = s.add({ kind: "sandbox", data: d, receipt: null, stopped: null }, e);
    s.sandbox.receipt = d.receipt;
    s.touch(s.sandbox, size);
  },
  "sandbox.stopped"(s, d) {
    if (!s.sandbox) return;
    s.sandbox.stopped = d;
    s.touch(s.sandbox);
  },
  "model.request"(s, d, e) {
    s.phase = "waiting for the model";
    s.turns++;
    s.turn = s.add({ kind: "turn", number: s.turns, model: d.model, messages: d.messageCount }, e);
  },
  "bridle.provider"(s, d) {
    if (!s.turn) return;
    s.turn.ms = d.durationMs;
    s.turn.scripted = d.scripted;
    s.turn.error = d.error;
    s.touch(s.turn);
  },
  "model.response"(s, d) {
    const u = usageOf(d);
    s.usage.prompt += u.prompt;
    s.usage.completion += u.completion;
    s.phase = "";
    if (!s.turn) return;
    s.turn.usage = u;
    s.turn.finish = d.finishReason;
    s.touch(s.turn);
  },
  "bridle.text"(s, d, e, size) {
    let item = s.texts.get(d.stream);
    if (!item) {
      if (!d.text && d.final) return;
      item = s.add({ kind: "text", text: "", final: false }, e);
      s.texts.set(d.stream, item);
    }
    if (!item.cut) item.text += d.text;
    item.final = d.final;
    if (d.final) s.texts.delete(d.stream);
    s.phase = d.final ? "" : "the model is writing";
    s.touch(item, size);
  },
  "tool.call"(s, d, e, size) {
    const item = s.add({
      kind: "call", callId: d.callId, tool: d.tool, input: d.input, decisions: [], asks: [], gate: null,
      done: false, ok: null, output: undefined, error: null, ms: null, progress: null,
    }, e, size);
    s.calls.set(d.callId, item);
    s.lastCall = item;
    s.toolCalls++;
    s.phase = "deciding about " + d.tool;
  },
  "policy.decision"(s, d, e) {
    s.pending = { data: d, actor: e.actor, eventId: e.eventId, at: e.at };
  },
  "bridle.votes"(s, d) {
    s.placeDecision(d);
    const call = s.calls.get(d.callId);
    if (call && d.effect === "allow") s.phase = "running " + call.tool;
  },
  "permission.requested"(s, d, e) {
    if (s.asks.has(d.permissionId))
      throw new StreamFailure("a permission was asked for twice");
    const ask = { id: d.permissionId, data: d, at: e.at, state: "open", more: null, note: "", by: "", byPerson: false, scope: "once" };
    s.asks.set(ask.id, ask);
    const call = s.calls.get(d.callId);
    if (call) {
      ask.call = call;
      call.asks.push(ask);
      s.touch(call);
    } else {
      s.add({ kind: "ask", ask }, e);
    }
    s.phase = "waiting for an answer";
    s.changed(null, false);
  },
  "bridle.ask"(s, d) {
    const ask = s.asks.get(d.permissionId);
    if (!ask) return;
    ask.more = d;
    s.changed(null, false);
  },
  "bridle.asks"() {},
  "permission.resolved"(s, d, e) {
    const ask = s.asks.get(d.permissionId);
    if (!ask) throw new StreamFailure("a permission was resolved that was not asked for");
    if (ask.state !== "open") throw new StreamFailure("a permission was resolved twice");
    for (const key of SAME)
      if (ask.data[key] !== d[key])
        throw new StreamFailure(`a permission was resolved with another '${key}' than it was asked with`);
    ask.byPerson = e.actor === "operator";
    if (ask.byPerson && s.mine.has(ask.id) && s.mine.get(ask.id) !== d.decision)
      throw new StreamFailure("a permission was resolved in another way than it was answered here");
    ask.state = d.decision;
    ask.note = d.note || "";
    ask.resolvedAt = e.at;
    if (ask.call) s.touch(ask.call);
    s.phase = s.openAsks().length ? "waiting for an answer" : ask.call && d.decision === "allow" ? "running " + ask.call.tool : "";
    s.changed(null, false);
  },
  "bridle.answered"(s, d) {
    const ask = s.asks.get(d.permissionId);
    if (!ask) return;
    ask.by = d.by;
    ask.scope = d.scope;
    if (ask.call) s.touch(ask.call);
    s.changed(null, false);
  },
  "bridle.grant"(s, d) {
    const ask = s.asks.get(d.permissionId);
    if (!ask) return;
    ask.scope = "run";
    if (ask.call) s.touch(ask.call);
  },
  "tool.result"(s, d, e, size) {
    let item = s.calls.get(d.callId);
    if (!item)
      item = s.add({ kind: "call", callId: d.callId, tool: d.tool, input: undefined, decisions: [], asks: [], gate: null }, e);
    item.done = true;
    item.ok = d.ok;
    item.output = d.output;
    item.error = d.error || null;
    item.ms = d.durationMs;
    item.progress = null;
    s.calls.delete(d.callId);
    if (s.lastCall === item) s.lastCall = null;
    s.phase = "";
    s.touch(item, size);
  },
  "bridle.exec"(s, d) {
    const item = s.calls.get(d.progress);
    if (!item) return;
    item.progress = d;
    s.touch(item);
  },
  "budget.warning"(s, d, e) {
    s.budget.set(d.metric, d);
    s.add({ kind: "budget", data: d }, e);
  },
  "error"(s, d, e) {
    s.note("bad", d.code, d.message, e);
  },
  "bridle.notice"(s, d, e) {
    s.note("plain", d.code, d.message, e);
  },
  "bridle.policy.error"(s, d, e) {
    s.note("bad", d.code, d.message + (d.file ? ` (${d.file}${d.line ? ":" + d.line : ""})` : ""), e);
  },
  "bridle.provider.refused"(s, d, e) {
    s.note("bad", d.code, d.message, e);
  },
  "bridle.harness.started"(s, d, e, size) {
    s.phase = "the agent is working";
    s.add({ kind: "harness", data: d }, e, size);
  },
  "bridle.harness.gate"(s, d) {
    const item = s.calls.get(d.callId);
    if (!item) return;
    item.gate = d;
    s.touch(item);
  },
  "bridle.harness.result"(s, d, e, size) {
    s.add({ kind: "outcome", data: d }, e, size);
  },
  "bridle.provider.account"(s, d, e, size) {
    s.add({ kind: "account", data: d }, e, size);
  },
  "bridle.workspace"(s, d, e, size) {
    s.changes = d;
    s.add({ kind: "changes", data: d }, e, size);
  },
  "bridle.promote"(s, d, e, size) {
    s.add({ kind: "promote", data: d }, e, size);
  },
  "run.recorded"(s, d, e) {
    s.note(d.status === "passed" ? "plain" : "bad", "recorded " + d.status, d.reportPath, e);
  },
  "agent.stopped"(s, d, e) {
    s.stopped = d;
    s.phase = "";
    s.add({ kind: "end", data: d }, e);
  },
}));

// Is the text somewhere in this item? For the search inside of a session; lower case.
export function itemHas(item, words) {
  return words.every((w) => haystack(item).includes(w));
}

function haystack(item) {
  const parts = [item.kind, item.tool, item.text, item.code, item.type];
  for (const d of item.decisions || [])
    parts.push(d.effect, d.action, d.subject, d.ruleId, d.reason);
  for (const a of item.asks || (item.ask ? [item.ask] : []))
    parts.push("ask", a.data.subject, a.state, a.by, a.note);
  for (const o of [item.input, item.output, item.data, item.error])
    if (o !== undefined && o !== null) parts.push(typeof o === "string" ? o : JSON.stringify(o));
  return parts.filter(Boolean).join("\n").toLowerCase();
}
