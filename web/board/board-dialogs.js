// The dialogs: start a session, cancel one, give a token, the keys.

import { el, icon, put } from "./board-text.js";

function dialog(cls, title, ...children) {
  const d = el("dialog." + cls, { "aria-labelledby": "dt-" + cls },
    el("form", { method: "dialog" }, el("h2", { id: "dt-" + cls }, title), ...children));
  document.body.append(d);
  d.addEventListener("close", () => d.remove());
  return d;
}

function field(label, control, help) {
  return el("label.field", null, el("span.label", null, label), control, help ? el("span.help", null, help) : null);
}

// app.begin({...}) gives a promise of null, or of a sentence why not.
export function startDialog(app, models, workspaces, canDetach) {
  const list = el("datalist", { id: "workspaces" }, workspaces.map((w) => el("option", { value: w })));
  const workspace = el("input", { type: "text", required: true, maxLength: 4096, spellcheck: false, autocomplete: "off", value: workspaces[0] || "" });
  workspace.setAttribute("list", "workspaces");
  const prompt = el("textarea", { required: true, rows: 5 });
  const model = el("select", null, models.map((m) => el("option", { value: m }, m)));
  const task = el("input", { type: "text", pattern: "[a-z0-9]+(-[a-z0-9]+)*", maxLength: 128, spellcheck: false, autocomplete: "off" });
  const tokens = el("input", { type: "number", min: 1, step: 1 });
  const calls = el("input", { type: "number", min: 1, step: 1 });
  const stay = el("input", { type: "checkbox", checked: canDetach });
  const why = el("p.refused", { role: "alert" });
  const go = el("button.primary", { type: "submit" }, icon("run"), "Start");
  const d = dialog("start", "Start a session", list,
    field("Workspace", workspace, "A directory inside of the root that the service was given."),
    field("What should be done", prompt),
    field("Model", model),
    el("details", null, el("summary", null, "Task and budget"),
      field("Task", task, "The manifest 'tasks/TASK.yaml' of the workspace. It can only tighten what the policy allows."),
      field("At most so many tokens", tokens), field("At most so many tool calls", calls)),
    canDetach ? el("label.check", null, stay, "Goes on when this page is closed")
      : el("p.help", null, "The session ends when this page is closed: the operator's configuration does not allow sessions without an owner."),
    why, el("div.buttons", null, el("button.plain", { type: "button", onclick: () => d.close() }, "Back"), go));
  d.querySelector("form").addEventListener("submit", async (e) => {
    e.preventDefault();
    go.disabled = true;
    why.replaceChildren();
    const said = await app.begin({
      workspace: workspace.value, content: prompt.value, model: model.value, taskId: task.value,
      maxModelTokens: Number(tokens.value) || 0, maxToolCalls: Number(calls.value) || 0, detach: canDetach && stay.checked,
    });
    go.disabled = false;
    if (said === null) d.close();
    else put(why, said);
  });
  prompt.addEventListener("keydown", (e) => {
    if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) d.querySelector("form").requestSubmit();
  });
  d.showModal();
  (workspaces[0] ? prompt : workspace).focus();
}

export function confirmDialog(title, text, doIt, label) {
  const back = el("button.plain", { type: "button", onclick: () => d.close() }, "Let it run");
  const d = dialog("confirm", title, el("p", null, text), el("div.buttons", null, back,
    el("button.danger", { type: "submit", "data-do": "confirm" }, label)));
  d.querySelector("form").addEventListener("submit", () => doIt());
  d.showModal();
  back.focus();
}

export function loginDialog(link) {
  const token = el("input", { type: "password", required: true, autocomplete: "off", spellcheck: false, maxLength: 4096 });
  const why = el("p.refused", { role: "alert" });
  const go = el("button.primary", { type: "submit" }, "Sign in");
  const d = dialog("login", "Who are you?",
    el("p", null, "This server does not know you by your connection. Give a token that its operator made with 'bridle token add'."),
    field("Token", token), why, el("div.buttons", null, go));
  d.addEventListener("cancel", (e) => e.preventDefault());
  d.querySelector("form").addEventListener("submit", async (e) => {
    e.preventDefault();
    go.disabled = true;
    why.replaceChildren();
    const said = await link.login(token.value.trim());
    token.value = "";
    go.disabled = false;
    if (said === true) return d.close();
    put(why, said);
    token.focus();
  });
  d.showModal();
  return d;
}

const KEYS = [
  ["Anywhere", [["a", "go to the next question"], ["s", "go to the list of sessions"], ["t", "go to the timeline"],
    ["/", "search the record"], ["f", "find in this session"], ["c", "start a session"], ["x", "cancel this session"],
    ["m", "light, dark, as the system"], ["?", "this page"]]],
  ["In a list", [["↓ ↑", "next, previous (j, k)"], ["Home End", "first, last"], ["Enter", "open, fold"], ["→ ←", "unfold, fold"]]],
  ["At a question", [["y", "allow once"], ["r", "allow for this run"], ["d", "deny"], ["e", "write a note"]]],
];
export function keysDialog(app) {
  const on = el("input", { type: "checkbox", checked: app.keys(), onchange: (e) => app.setKeys(e.target.checked) });
  const d = dialog("keys", "Keys", el("div.columns", null, KEYS.map(([title, list]) => el("section", null, el("h3", null, title),
    el("dl", null, list.map(([k, what]) => [el("dt", null, k.split(" ").map((x) => el("kbd", null, x))), el("dd", null, what)]))))),
  el("label.check", null, on, "Keys that are a single letter work"),
  el("p.help", null, "A question takes an answer only while it has the focus, and not in the first half second: what was typed before it could be read is no answer."),
  el("div.buttons", null, el("button.primary", { type: "submit" }, "Close")));
  d.showModal();
}
