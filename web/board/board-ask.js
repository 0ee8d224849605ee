// A question to the operator, as a card: the request whole, what of it needed the question, what it
// would touch, the rule that asks and how to change it, and the answers that may be given. A card
// takes no answer in its first moments: what was clicked or typed before it could be read is none.

import { bytes, clock, el, icon, plural, put } from "./board-text.js";
import { answerLine, code, inputNodes, rows } from "./board-view.js";

const ARM_MS = 500;

const WHAT = {
  "process.exec": "Run a command", "fs.write": "Write a file", "fs.read": "Read", "network": "Use the network",
  "git.push": "Push with git",
};

function touches(t) {
  if (!t) return [];
  const list = (a) => (Array.isArray(a) && a.length ? a.map((x, i) => [i ? ", " : "", code(x)]) : null);
  return [
    ["writes", list(t.writes)], ["reads", list(t.reads)],
    ["hosts", list(t.hosts), Array.isArray(t.hosts) && t.hosts.length ? " (the sandbox has no network)" : null],
    ["sets", list(t.env)], ["runs in", t.directory ? code(t.directory) : null],
    ["input", t.stdinBytes ? bytes(t.stdinBytes) : null],
    ["can write", list(t.writable), t.writableMore ? ` and ${t.writableMore} more` : null],
  ].filter((r) => r.slice(1).some(Boolean));
}

function commands(ask) {
  const m = ask.more;
  const list = m && Array.isArray(m.commands) ? m.commands : [];
  if (!list.length || (list.length === 1 && list[0].action === "process.exec" && list[0].subject === ask.data.subject))
    return null;
  return el("ul.votes", null, list.map((p) => el("li", null, el("span.action", null, p.action), code(p.subject),
    p.ruleId ? el("span.dim", null, " " + p.ruleId) : null)), m.more ? el("li", null, `and ${m.more} more`) : null);
}

// app: {may(access), online(), answer(stream, ask, decision, scope, note), deadline(ask), who(), gone(ask)}
export function askCard(stream, ask, app) {
  const d = ask.data, m = ask.more;
  const forRun = m && m.scope === "run";
  const id = "ask-" + ask.id;
  const subject = d.subject || "";
  const title = el("h3", { id: id + "-t" }, WHAT[d.action] || d.action, el("span.action", null, d.action));
  const left = el("span.left", { "aria-hidden": "true" });
  const lines = subject.split("\n").length;
  const card = el("section.card", { tabIndex: -1, "aria-labelledby": id + "-t", "aria-describedby": id + "-s", role: "group" });
  card.dataset.ask = ask.id;
  card.dataset.focus = id;
  const state = ask.ui ||= { note: "", change: false, busy: false, seen: false, error: "" };

  const noteBox = el("input.note", {
    type: "text", maxLength: 1000, placeholder: "Note (optional)", value: state.note,
    "aria-label": "Note for the record, optional", "data-focus": id + "-note", autocomplete: "off",
    oninput: (e) => { state.note = e.target.value; },
  });
  const say = el("p.refused", { role: "status" }, state.error || null);
  const buttons = [];
  const button = (cls, decision, scope, key, ...label) => {
    const b = el("button." + cls, {
      type: "button", disabled: true, "data-focus": id + "-" + (scope || decision), "data-answer": scope || decision,
      "aria-keyshortcuts": key, onclick: () => give(decision, scope),
    }, label, el("kbd", { "aria-hidden": "true" }, key));
    buttons.push(b);
    return b;
  };

  function give(decision, scope) {
    if (!card.classList.contains("armed") || state.busy || ask.state !== "open") return;
    state.busy = true;
    card.classList.add("busy");
    for (const b of buttons) b.disabled = true;
    app.answer(stream, ask, decision, scope, state.note.trim());
  }

  const answers = el("div.answers");
  if (ask.state !== "open") {
    // Somebody was faster: what could be chosen stays in sight, and who chose.
    if (app.may("answer"))
      put(answers, button("allow", "allow", "once", "y", icon("allow"), "Allow once"),
        forRun ? button("run", "allow", "run", "r", "Allow for this run") : null,
        button("deny", "deny", "", "d", icon("deny"), "Deny"));
    put(card, el("header", null, icon("ask"), title), el("pre.subject", { id: id + "-s" }, subject),
      answerLine(ask), answers,
      el("button.plain", { type: "button", "data-focus": id + "-gone", onclick: () => app.gone(ask) }, "Put it away"));
    card.classList.add("over");
    return card;
  }
  if (!app.online())
    put(answers, el("p.dim", null, "It can be answered when there is a connection again."));
  else if (app.may("answer"))
    put(answers, button("allow", "allow", "once", "y", icon("allow"), "Allow once"),
      forRun ? button("run", "allow", "run", "r", icon("allow"), "Allow for this run") : null,
      button("deny", "deny", "", "d", icon("deny"), "Deny"), noteBox);
  else
    put(answers, el("p.dim", null, `Only who may answer can do so. You are ${app.who()}.`));

  const inputs = ask.call ? inputNodes(ask.call, null, subject) : [];
  const change = m && (m.advice || (m.rules && m.rules.length)) ? el("details", {
    open: Boolean(state.change), ontoggle: (e) => { state.change = e.target.open; },
  }, el("summary", { "data-focus": id + "-change" }, "To be asked less"),
  m.advice ? el("p", null, m.advice) : null,
  Array.isArray(m.rules) ? m.rules.map((r) => el("pre.block", null, r.text)) : null,
  m.why ? el("p.dim", null, "explained by ", code(m.why)) : null) : null;

  put(card,
    el("header", null, icon("ask"), title, left),
    el("pre.subject" + (d.action === "process.exec" ? ".command" : ""), { id: id + "-s", tabIndex: lines > 8 ? 0 : null }, subject || "(no subject)"),
    lines > 8 ? el("p.dim", null, plural(lines, "line") + ", " + bytes(subject.length) + ": all of it is what you answer for") : null,
    d.reason ? el("p.reason", null, el("span.dim", null, "It is asked because: "), d.reason) : null,
    inputs.length ? el("div.input", null, inputs) : null,
    rows([
      ["asks", commands(ask)],
      ...touches(m && m.touches).map(([label, ...v]) => [label, ...v]),
      ["pieces", m && m.opaque ? "one: the command cannot be taken apart" : null],
      ["rule", m && m.ruleId ? [code(m.ruleId), m.file ? ` in ${m.file}${m.line ? ":" + m.line : ""}` : ""] : null],
      ["run", forRun && app.may("answer") ? (d.action === "process.exec"
        ? "\"for this run\" covers exactly this command, in this directory" : "\"for this run\" covers exactly this") : null],
    ]), change, say, answers);

  card.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target === noteBox || e.target.closest("button, summary") && (e.key === "Enter" || e.key === " ")) {
      if (e.target === noteBox && e.key === "Escape") {
        card.focus();
        e.stopPropagation();
      }
      return;
    }
    if (!app.keys() || !app.may("answer")) return;
    const hit = { y: ["allow", "once"], r: forRun ? ["allow", "run"] : null, d: ["deny", ""] }[e.key];
    if (hit) give(...hit);
    else if (e.key === "e") noteBox.focus();
    else return;
    e.preventDefault();
    e.stopPropagation();
  });
  // Armed once it could be read where it now is; the dock disarms it when it moves.
  card.arm = () => {
    card.classList.remove("armed");
    for (const b of buttons) b.disabled = true;
    clearTimeout(card.timer);
    if (state.busy) return;
    card.timer = setTimeout(() => {
      card.classList.add("armed");
      state.seen = true;
      for (const b of buttons) b.disabled = false;
    }, ARM_MS);
  };
  card.tick = () => {
    const rest = app.deadline(ask) - Date.now();
    left.textContent = rest > 0 ? clock(rest) + " left" : "time is up";
    left.classList.toggle("soon", rest < 20000);
  };
  card.tick();
  return card;
}
