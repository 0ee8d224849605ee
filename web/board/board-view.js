// Entries of a timeline as elements. Each function takes an item of board-stream.js and gives a new
// element; what was said or given by others goes through el() and put() only.

import { basename, bytes, clock, count, duration, el, icon, plural, put, timeOf } from "./board-text.js";
import { receiptRows } from "./board-receipt.js";

const LINES = 24; // of a long block, until the reader asks for the rest
const CHARS = 4000;
const SAID = 20000; // characters of what the agent says, which is drawn again as it grows

const TOOL_ICONS = [
  [/exec|shell|bash|command/i, "run"], [/edit|write|create|patch/i, "write"], [/read|cat|view/i, "read"],
  [/list|ls|glob/i, "list"], [/search|grep|find/i, "search"],
];

const EFFECT = { allow: ["allow", "allowed"], ask: ["ask", "ask"], deny: ["deny", "denied"] };

export function chip(tone, text, shape) {
  return el("span.chip." + tone, null, shape ? icon(shape) : null, text);
}

export function effectChip(effect) {
  const known = EFFECT[effect] || ["", effect];
  return chip(known[0] || "quiet", effect, known[0]);
}

const STATUS = {
  created: ["quiet", "created", null], running: ["live", "running", null], completed: ["allow", "completed", "allow"],
  failed: ["deny", "failed", "deny"], canceled: ["quiet", "canceled", "stop"],
  interrupted: ["deny", "interrupted", "warn"], budget_exceeded: ["ask", "over budget", "warn"],
};
export function statusChip(status) {
  const [tone, text, shape] = STATUS[status] || ["quiet", String(status || "unknown"), null];
  return chip(tone, text, shape);
}

export function rows(list) {
  const dl = el("dl.rows");
  for (const [label, ...value] of list) {
    if (value.every((v) => v === null || v === undefined || v === "" || v === false)) continue;
    dl.append(el("dt", null, label), el("dd", null, ...value));
  }
  return dl;
}

export const code = (text, oneLine = true) => {
  const e = el("code");
  return put(e, oneLine ? String(text).replaceAll("\n", "\\n") : text);
};

// A block of text as it is; long ones are cut until asked for, or, without `again`, never, and scroll.
export function block(item, key, text, kind, again) {
  text = String(text);
  while (text.endsWith("\n")) text = text.slice(0, -1);
  const whole = !again || (item.whole && item.whole.has(key));
  let shown = text, more = 0;
  if (!whole) {
    let at = -1, n = 0;
    while (n < LINES && (at = text.indexOf("\n", at + 1)) >= 0) n++;
    const cut = Math.min(at < 0 ? text.length : at, CHARS);
    if (text.length - cut > 200 || (at >= 0 && text.indexOf("\n", at + 1) >= 0)) {
      shown = text.slice(0, cut);
      more = text.length - cut;
    }
  }
  const pre = el("pre.block" + (kind ? "." + kind : ""), again ? null : { tabIndex: 0 }, shown);
  if (!more) return pre;
  const button = el("button.more", {
    type: "button", "data-focus": "more-" + key,
    onclick: () => {
      (item.whole ||= new Set()).add(key);
      again(item);
    },
  }, "Show all " + plural(text.split("\n").length, "line") + ", " + bytes(new TextEncoder().encode(text).length));
  return el("div.cut", null, pre, button);
}

function pretty(value) {
  return JSON.stringify(value, null, 2);
}

// ---- what a tool was given ---------------------------------------------------------------------

export function callSummary(call) {
  const decided = call.decisions.find((d) => d.subject);
  const input = call.input;
  if (decided && decided.action === "process.exec") return decided.subject;
  if (typeof input === "object" && input !== null) {
    if (Array.isArray(input.argv)) return input.argv.join(" ");
    for (const key of ["command", "path", "file_path", "pattern", "query", "url"])
      if (typeof input[key] === "string") return input[key];
    const text = JSON.stringify(input);
    return text === "{}" ? "" : text;
  }
  if (decided) return decided.subject;
  return input === undefined || input === null ? "" : String(input);
}

const isLong = (v) => typeof v === "string" && (v.includes("\n") || v.length > 60);

const sizeOf = (text) => text.length > 400 || text.includes("\n")
  ? ` (${plural(text.replace(/\n$/, "").split("\n").length, "line")}, ${bytes(new TextEncoder().encode(text).length)})` : "";

// The arguments, whole where there is no `again`; `skip` is shown elsewhere already.
export function inputNodes(call, again, skip) {
  const input = call.input;
  if (call.cut) return [el("p.dim", null, "Let go of to bound memory; the record has it.")];
  if (input === undefined || input === null) return [];
  if (typeof input !== "object" || Array.isArray(input))
    return [block(call, "input", typeof input === "string" ? input : pretty(input), "", again)];
  const short = [], out = [];
  for (const [key, value] of Object.entries(input)) {
    if (skip !== undefined && (value === skip || key === "argv")) continue;
    if (isLong(value) || (typeof value === "string" && /^(old|new)/.test(key))) {
      const kind = /^old/.test(key) ? "minus" : /^new/.test(key) || key === "content" ? "plus" : "";
      out.push(el("div.field", null, el("span.label", null, key + sizeOf(value)), block(call, "in-" + key, value, kind, again)));
    } else if (typeof value === "object" && value !== null && JSON.stringify(value).length > 60) {
      out.push(el("div.field", null, el("span.label", null, key), block(call, "in-" + key, pretty(value), "", again)));
    } else {
      short.push([key, code(typeof value === "string" ? value : JSON.stringify(value))]);
    }
  }
  return short.length ? [rows(short), ...out] : out;
}

// ---- what it said ------------------------------------------------------------------------------

function outputNodes(call, again) {
  const o = call.output;
  if (call.cut) return [];
  if (o === undefined || o === null) return [];
  if (typeof o === "string") return [block(call, "out", o, "", again)];
  if (typeof o !== "object") return [block(call, "out", String(o), "", again)];
  if (o.denied) return [deniedRows(o.denied)];
  const out = [];
  const text = (key, kind) => {
    if (typeof o[key] === "string" && o[key] !== "")
      out.push(el("div.field", null, el("span.label", null, key), block(call, "out-" + key, o[key], kind, again)));
  };
  if ("exitCode" in o || "signal" in o || "stdout" in o) {
    text("stdout", "");
    text("stderr", "err");
  } else if (typeof o.content === "string") {
    if (o.encoding === "base64") out.push(el("p.dim", null, bytes(o.bytes || 0) + " of binary data"));
    else text("content", "");
  } else if (Array.isArray(o.entries)) {
    out.push(block(call, "out", o.entries.map((e) => e && e.name + (e.type === "dir" ? "/" : "")).join("\n"), "", again));
  } else if (Array.isArray(o.matches)) {
    out.push(block(call, "out", o.matches.map((m) => m && `${m.path}:${m.line}: ${m.text}`).join("\n"), "", again));
  } else {
    out.push(block(call, "out", pretty(o), "", again));
  }
  return out;
}

function deniedRows(d) {
  return rows([
    ["told", "the agent was told that it was denied"],
    ["answer", d.answer],
    ["rule", d.rule ? code(d.rule) : null],
    ["reason", d.reason],
    ["allowed", Array.isArray(d.allowed) && d.allowed.length ? d.allowed.map((a) => [code(a), " "]) : null],
  ]);
}

function verdict(call) {
  const o = call.output, ms = Number.isFinite(call.ms) ? duration(call.ms) : "";
  if (!call.done) {
    if (call.asks.some((a) => a.state === "open")) return chip("ask", "waits for an answer", "ask");
    if (call.asks.some((a) => a.state === "deny")) return chip("deny", "did not run", "deny");
    const p = call.progress;
    return chip("live", p ? bytes((p.stdoutBytes || 0) + (p.stderrBytes || 0)) + ", " + duration(p.elapsedMs || 0) : "running");
  }
  if (o && typeof o === "object") {
    if (o.denied) return chip("deny", "did not run", "deny");
    if (Number.isInteger(o.signal)) return chip("deny", "signal " + o.signal + (o.timedOut ? ", timed out" : ""), "deny");
    if (Number.isInteger(o.exitCode)) {
      const tail = ms ? " · " + ms : "";
      return o.exitCode === 0 ? chip("quiet", "exit 0" + tail) : chip("warn", "exit " + o.exitCode + tail, "warn");
    }
  }
  if (!call.ok) return chip("deny", (call.error && call.error.code) || "failed", "deny");
  let what = "ok";
  if (o && typeof o === "object") {
    if (Array.isArray(o.entries)) what = plural(o.entries.length, "entry", "entries");
    else if (Array.isArray(o.matches)) what = plural(o.matches.length, "match", "matches");
    else if (Number.isInteger(o.bytes)) what = bytes(o.bytes);
  }
  return chip("quiet", what + (ms ? " · " + ms : ""));
}

// ---- decisions, votes, answers -----------------------------------------------------------------

function decisionNodes(d) {
  const head = el("div.decision", null, effectChip(d.effect), el("span.action", null, d.action),
    d.subject !== undefined && d.subject !== "" ? code(d.subject) : null);
  const details = rows([
    ["rule", d.ruleId ? code(d.ruleId) : null, d.source && d.ruleId && !d.ruleId.startsWith(d.source) ? " of " + d.source : null],
    ["reason", d.reason],
    ["by", d.actor && d.actor !== "kernel" ? d.actor : null],
    ["grant", d.grant ? ["allowed before, for the rest of this run ", code(d.grant)] : null],
    ["pieces", d.opaque ? "one: the command cannot be taken apart" : null],
  ]);
  const lists = [];
  if (Array.isArray(d.votes) && d.votes.length > 1)
    lists.push(el("div.field", null, el("span.label", null, "votes"), el("ul.votes", null, d.votes.map((v) =>
      el("li", null, effectChip(v.effect), code(v.ruleId || v.source), v.reason ? el("span.dim", null, " " + v.reason) : null)))));
  if (Array.isArray(d.pieces) && d.pieces.length > 1)
    lists.push(el("div.field", null, el("span.label", null, "pieces"), el("ul.votes", null, d.pieces.map((p) =>
      el("li", null, effectChip(p.effect), el("span.action", null, p.action), code(p.subject),
        p.ruleId ? el("span.dim", null, " " + p.ruleId) : null)))));
  return el("div", null, head, details, lists);
}

// "allowed once by uid:1000: 'note'".
export function answerLine(ask) {
  if (ask.state === "open") return el("p.answer.open", null, icon("ask"), "waits for an answer");
  const allow = ask.state === "allow";
  const who = ask.by || (ask.byPerson ? "the operator at the terminal" : "Bridle itself");
  return el("p.answer." + (allow ? "allow" : "deny"), null, icon(allow ? "allow" : "deny"), el("span", null,
    allow ? (ask.scope === "run" ? "allowed for this run" : "allowed once") : "denied", " by ",
    el("b", null, who), ask.note ? [": ", el("q", null, ask.note.replaceAll("\n", " "))] : null));
}

// ---- the frame of an entry ---------------------------------------------------------------------

function entry(kind, item, ctx, parts) {
  const { shape, title, aside, below, body, label } = parts;
  const folds = Boolean(body);
  const open = folds && (item.open === undefined ? Boolean(parts.open) : item.open);
  const toggle = () => {
    item.open = !open;
    ctx.again(item);
  };
  const line = [
    el("span.mark", null, icon(shape)),
    el("span.title", null, title),
    el("span.aside", null, aside),
  ];
  const head = folds
    ? el("button.head", { type: "button", "aria-expanded": String(open), "data-focus": "fold", tabIndex: -1, onclick: toggle },
      line, el("span.turner", null, icon("fold")))
    : el("div.head", null, line);
  const article = el("article.item." + kind + (open ? ".open" : ""), { "aria-label": label }, head, below,
    open ? el("div.body", null, body()) : null);
  article.toggle = folds ? toggle : null;
  article.dataset.at = timeOf(item.at);
  return article;
}

function section(label, ...nodes) {
  const list = nodes.flat(3).filter(Boolean);
  return list.length ? el("section", null, el("h4", null, label), list) : null;
}

// Fenced pieces of what the agent says are set as code; nothing else of it is interpreted.
function prose(text) {
  const out = [];
  let fence = null, lines = [];
  const flush = () => {
    const joined = lines.join("\n");
    lines = [];
    if (fence !== null) out.push(el("pre.block", null, joined));
    else if (joined.trim()) out.push(el("div.said", null, inline(joined)));
  };
  for (const line of text.split("\n")) {
    if (/^\s*```/.test(line) && !(fence !== null && line.trim() !== "```")) {
      flush();
      fence = fence === null ? line.trim().slice(3) : null;
    } else {
      lines.push(line);
    }
  }
  flush();
  return out;
}

function inline(text) {
  return text.split(/(`[^`\n]+`)/).filter(Boolean).map((part) =>
    part.length > 2 && part[0] === "`" && part.endsWith("`") ? put(el("code"), part.slice(1, -1)) : part);
}

const DRAW = {
  head(item, ctx) {
    const d = item.data;
    return entry("head-entry", item, ctx, {
      shape: "flag", label: "The run begins",
      title: [el("b", null, d.mode === "promote" ? "Promotion" : d.mode === "exec" ? "One command" : "Run"),
        " under ", el("b", null, d.policy), d.manifest ? [" and ", code(basename(d.manifest))] : null,
        el("span.dim", null, " · " + plural(d.rules, "rule") + " · " + d.profile)],
      body: () => [rows([
        ["goal", d.goal ? el("div.said", null, d.goal) : null],
        ["model", d.model, d.scripted ? " (scripted provider: no model is called)" : null],
        ["workspace", code(d.workspace)],
        ["policy", code(d.policy), d.policyGeneration ? `, generation ${d.policyGeneration}` : null],
        ["manifest", d.manifest ? code(d.manifest) : null],
        ["rules", count(d.rules) + ", table ", code(String(d.tableSha256).slice(0, 12))],
        ["profile", d.profile],
        ["adapter", d.adapter],
        ["run", code(d.runId)],
      ])],
    });
  },
  text(item, ctx) {
    const article = el("article.item.text", { "aria-label": "The agent says" },
      el("span.mark", null, icon("says")), el("div.words", null,
        item.text.length > SAID && !(item.whole && item.whole.has("said"))
          ? [prose(item.text.slice(0, SAID)), el("button.more", {
            type: "button", "data-focus": "more-said",
            onclick: () => {
              (item.whole ||= new Set()).add("said");
              ctx.again(item);
            },
          }, "Show all of it, " + bytes(item.text.length))] : prose(item.text),
        item.cut ? el("p.dim", null, "The rest was let go of to bound memory; the record has it.") : null));
    if (!item.final) article.classList.add("writing");
    return article;
  },
  call(item, ctx) {
    const summary = callSummary(item);
    const last = item.decisions.length ? item.decisions[item.decisions.length - 1] : null;
    const shape = (TOOL_ICONS.find(([re]) => re.test(item.tool)) || [0, "box"])[1];
    const failed = item.done && (!item.ok || (item.output && item.output.denied));
    const below = [
      item.asks.map((a) => a.state === "open" ? null : answerLine(a)),
      failed && item.error && item.error.message && !(item.output && item.output.denied)
        ? el("p.answer.deny", null, item.error.message) : null,
      failed && last && last.effect === "deny" && last.reason ? el("p.answer.deny", null, last.reason) : null,
    ];
    return entry("call", item, ctx, {
      shape, below,
      label: "Tool call " + item.tool,
      title: [el("span.tool", null, item.tool), summary ? code(summary) : null],
      aside: [last && (item.asks.length === 0 || item.done) && !(last.effect === "ask" && item.asks.length)
        ? effectChip(last.grant ? "allow" : last.effect) : null, verdict(item)],
      body: () => [
        section("Asked for", inputNodes(item, ctx.again)),
        section("Decided", item.decisions.map(decisionNodes),
          item.gate ? el("p", null, "gate of the agent: ", effectChip(item.gate.decision)) : null),
        section("Answered", item.asks.map(answerLine)),
        section("Came out", item.error ? el("p.bad", null, item.error.code + ": " + item.error.message) : null,
          outputNodes(item, ctx.again),
          item.output && item.output.truncated ? el("p.dim", null, "It was longer and has been cut.") : null),
        el("p.dim.ids", null, "call ", code(item.callId), " at " + timeOf(item.at)),
      ],
    });
  },
  decision(item, ctx) {
    const d = item.decision;
    return entry("call", item, ctx, {
      shape: EFFECT[d.effect] ? d.effect : "note", label: "Decision",
      title: [el("span.tool", null, d.action), d.subject ? code(d.subject) : null],
      aside: [effectChip(d.effect)], body: () => [decisionNodes(d)],
    });
  },
  ask(item, ctx) {
    const a = item.ask;
    return entry("call", item, ctx, {
      shape: "ask", label: "Permission", title: [el("span.tool", null, a.data.action), a.data.subject ? code(a.data.subject) : null],
      below: answerLine(a),
    });
  },
  turn(item) {
    const bits = [timeOf(item.at), "turn " + item.number, item.model, item.scripted ? "scripted" : null,
      item.usage ? plural(item.usage.prompt + item.usage.completion, "token") : null,
      Number.isFinite(item.ms) ? duration(item.ms) : "…",
      item.finish && item.finish !== "stop" && item.finish !== "tool_calls" ? item.finish : null].filter(Boolean);
    const e = el("article.item.turn", { "aria-label": "Turn " + item.number + " of the model" }, el("span.line"),
      el("span", null, bits.join(" · ")), el("span.line"));
    if (item.error) return el("article.item.note.bad", { "aria-label": "Error of the model" }, el("span.mark", null, icon("warn")),
      el("div", null, el("b", null, "model: " + item.error.code), " ", item.error.message));
    return e;
  },
  sandbox(item, ctx) {
    const d = item.data, r = item.receipt, s = item.stopped;
    return entry("sandbox", item, ctx, {
      shape: "box", label: "Sandbox",
      title: [el("b", null, "Sandbox"), ` of image ${d.image}, network ${d.network}, ${plural(d.mounts, "mount")}`],
      aside: [r ? chip("quiet", "measured", "allow") : null,
        s ? chip("quiet", "removed" + (Number.isFinite(s.durationMs) ? " after " + duration(s.durationMs) : "")) : chip("live", "up")],
      body: () => [r ? rows(receiptRows(r, code)) : el("p.dim", null, "No receipt."),
        el("p.dim.ids", null, code(d.containerName || d.sandbox || ""))],
    });
  },
  note(item) {
    return el("article.item.note." + item.tone, { "aria-label": item.tone === "bad" ? "Error" : "Note" },
      el("span.mark", null, icon(item.tone === "bad" ? "warn" : "note")),
      el("div", null, el("b", null, item.code), " ", el("span.message", null, item.text)));
  },
  budget(item) {
    const d = item.data;
    return el("article.item.note.warn", { "aria-label": "Budget" }, el("span.mark", null, icon("coin")),
      el("div", null, el("b", null, "budget"), ` ${count(d.used)} of ${count(d.limit)} `,
        String(d.metric).replaceAll("_", " "), ` are used (${Math.round(d.pct)} %)`));
  },
  harness(item, ctx) {
    const d = item.data;
    return entry("sandbox", item, ctx, {
      shape: "box", label: "Agent starts", title: [el("b", null, "Agent"), ` ${d.adapter}@${d.revision}`,
        el("span.dim", null, " · " + d.profile + " · " + d.image)],
      body: () => [rows([
        ["model", d.model], ["gate", String(d.gate)],
        ["tools", Array.isArray(d.tools) ? d.tools.map((t) => [code(t.name), " "]) : null],
        ["lease", d.lease ? `${count(d.lease.tokens)} tokens, ${count(d.lease.requests)} requests, ${duration(d.lease.seconds * 1000)}` : null],
        ["deadline", String(d.deadline)],
      ])],
    });
  },
  outcome(item, ctx) {
    const d = item.data, a = d.artifact;
    return entry("sandbox", item, ctx, {
      shape: d.status === "completed" ? "flag" : "warn", label: "What came of the agent", open: true,
      title: [el("b", null, "Agent " + d.status), d.error ? el("span.dim", null, ` ${d.error.code}: ${d.error.message}`) : null],
      aside: [Number.isFinite(d.durationMs) ? chip("quiet", duration(d.durationMs)) : null],
      body: () => [
        rows([["tools", Array.isArray(d.tools) ? d.tools.map((t) => [code(t.name), ` ${t.count} ${t.status}  `]) : null],
          ["session", d.session && d.session.id ? code(d.session.id) : null]]),
        a ? block(item, "artifact", a.kind === "json" ? pretty(a.value) : a.text || "", "", ctx.again) : null,
      ],
    });
  },
  account(item, ctx) {
    const d = item.data;
    return entry("sandbox", item, ctx, {
      shape: "coin", label: "Account of the provider",
      title: [el("b", null, "Provider"), ` ${plural(d.requests, "request")}, ${plural(d.tokensCharged, "token")} charged`],
      body: () => [rows([
        ["requests", `${count(d.requests)}: ${count(d.settled)} settled, ${count(d.unsettled)} not settled, ${count(d.released)} released, ${count(d.refused)} refused`],
        ["tokens", `${count(d.tokensReserved)} reserved, ${count(d.tokensCharged)} charged`],
        ["bytes", `${bytes(d.requestBytes)} sent, ${bytes(d.responseBytes)} received`],
        ["repairs", d.repaired ? `${count(d.repaired)} answers: ` + (d.repairs || []).map((r) => r.name).join(", ") : null],
        ["cut", d.cut ? plural(d.cut, "answer") : null],
      ])],
    });
  },
  changes(item, ctx) {
    const list = Array.isArray(item.data.changed) ? item.data.changed : [];
    return entry("changes", item, ctx, {
      shape: "file", label: "Changes of the workspace", open: list.length > 0 && list.length <= 12,
      title: [el("b", null, list.length ? plural(list.length, "file") + " changed" : "Nothing changed"), " in the workspace",
        item.data.truncated ? " (the list was cut)" : null],
      body: list.length ? () => [el("ul.files", null, list.slice(0, 500).map((c) =>
        el("li." + c.change, null, el("span.change", null, c.change), code(c.path),
          Number.isFinite(c.size) ? el("span.dim", null, bytes(c.size)) : null,
          c.set_group ? chip("warn", "set-group bit " + c.set_group, "warn") : null))),
      list.length > 500 ? el("p.dim", null, "and " + count(list.length - 500) + " more") : null] : null,
    });
  },
  promote(item, ctx) {
    const d = item.data;
    return entry("changes", item, ctx, {
      shape: "file", label: "Promotion", open: true,
      title: [el("b", null, d.status), ` ${count(d.added)} added, ${count(d.modified)} modified, ${count(d.removed)} removed, ${count(d.skipped)} skipped`],
      body: () => [rows([["from", code(d.runId)], ["to", code(d.workspace)], ["note", d.note]]),
        Array.isArray(d.surface) && d.surface.length ? block(item, "surface", d.surface.map((s) => s.change).join("\n"), "", ctx.again) : null],
    });
  },
  end(item, ctx) {
    const d = item.data;
    return el("article.item.end." + d.status, { "aria-label": "The run has ended" }, statusChip(d.status),
      el("span", null, `${plural(d.steps, "step")}, ${plural(d.toolCalls, "tool call")}, ${plural(ctx.tokens(), "token")}, ${clock(ctx.elapsed())}`),
      d.note ? el("span.dim", null, d.note) : null);
  },
  other(item, ctx) {
    return entry("sandbox", item, ctx, {
      shape: "note", label: item.type, title: [code(item.type)],
      body: () => [block(item, "data", pretty(item.data), "", ctx.again)],
    });
  },
};

// ctx: {again(item), tokens(), elapsed()}.
export function drawItem(item, ctx) {
  return (DRAW[item.kind] || DRAW.other)(item, ctx);
}

// Which entries a filter shows.
export const FILTERS = {
  all: ["All", () => true],
  text: ["Text", (i) => i.kind === "text" || i.kind === "outcome"],
  calls: ["Calls", (i) => i.kind === "call" || i.kind === "decision"],
  asks: ["Asks and denials", (i) => i.kind === "ask" || (i.asks && i.asks.length > 0) ||
    (i.decisions && i.decisions.some((d) => d.effect !== "allow")) || (i.decision && i.decision.effect !== "allow")],
  receipts: ["Receipts", (i) => ["sandbox", "account", "changes", "head", "harness", "promote", "end"].includes(i.kind)],
  errors: ["Errors", (i) => (i.kind === "note" && i.tone === "bad") || i.kind === "budget" ||
    (i.kind === "turn" && i.error) || (i.kind === "call" && i.done && (!i.ok || (i.output && (i.output.denied || i.output.exitCode))))],
};
