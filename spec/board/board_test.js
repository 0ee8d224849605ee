// The board in Chromium, against a server that the tests play (mock.js): what it shows, what it
// sends, what it refuses, and what becomes of a session that tries to get into the page.
// Usage: node board_test.js WEB CHROMIUM [name...]; BRIDLE_SHOTS=DIR keeps a picture of each test.
"use strict";
const assert = require("node:assert/strict");
const path = require("node:path");
const { Browser } = require("./browser.js");
const { Mock } = require("./mock.js");
const checks = require("./page_checks.js");

const [web, program, ...only] = process.argv.slice(2);
const AT_ONCE = 4; // most of a test is waiting
const tests = [];
const test = (name, f) => tests.push([name, f]);

// A session that waits for an answer, as most tests want it.
function waiting(mock, row = {}) {
  const s = mock.add({ workspace: "/srv/work/duration", ...row });
  s.begin(row.goal || "Make the test pass");
  s.say("model.request", { requestId: "r1", model: "scripted/demo", messageCount: 2 }, "kernel");
  for (const text of ["I will ", "run the ", "test."]) s.say("bridle.text", { stream: "t1", kind: "agent", text, final: text === "test." }, "agent");
  s.say("model.response", { requestId: "r1", model: "scripted/demo", finishReason: "tool_calls", usage: { promptTokens: 900, completionTokens: 34, totalTokens: 934 } }, "model");
  s.call("c0", "fs_read", { path: "src/a.lua" }, { action: "fs.read", subject: "src/a.lua", effect: "allow", ruleId: "operator:read" });
  s.say("tool.result", { callId: "c0", tool: "fs_read", ok: true, output: { path: "src/a.lua", content: "return 1\n", bytes: 9 }, durationMs: 1 }, "sandbox-runner");
  s.call("c1", "process_exec", { argv: ["lua5.4", "test.lua"] }, { action: "process.exec", subject: "lua5.4 test.lua", effect: "ask", ruleId: "operator:exec" });
  s.ask("p1", "c1", "process.exec", "lua5.4 test.lua");
  return s;
}
const open = (page, mock, s) => page.go(`http://127.0.0.1:${mock.port}/#/s/${s.row.sessionId}`);
const armed = "document.querySelector('.card.armed')";
const answers = (mock) => mock.requests.filter((r) => r.method === "permission/respond").map((r) => r.params);
const text = (selector) => `document.querySelector(${JSON.stringify(selector)}).innerText`;

// Wait for something of the server's.
async function reached(what) {
  for (const end = Date.now() + 30000; !what(); await new Promise((done) => setTimeout(done, 15)))
    assert.ok(Date.now() < end, `it did not come about: ${what}`);
}

test("the list: what waits, what runs, the record", async ({ page, mock }) => {
  mock.add({ goal: "Old one", status: "completed", live: false });
  const run = mock.add({ goal: "Busy one" });
  run.begin("Busy one");
  const s = waiting(mock);
  await page.go(mock.url);
  await page.until("document.querySelectorAll('.session-row').length === 3");
  assert.deepEqual(await page.eval("[...document.querySelectorAll('.home section:not([hidden]) h2')].map((h) => h.firstChild.data)"), ["Waits for an answer", "Live", "Record"]);
  assert.match(await page.eval(text(".waiting .session-row")), /Make the test pass[^]*1 question/);
  assert.match(await page.eval(text(".past .session-row")), /Old one[^]*completed/);
  await page.until("document.title === '(1) Bridle'");
  s.resolve("p1", "deny", "uid:7", "once");
  await page.until("document.title === 'Bridle' && document.querySelector('.waiting').hidden");
  const fresh = waiting(mock, { goal: "Another" });
  await page.until("document.querySelector('.waiting .session-row')?.innerText.includes('Another')");
  assert.match(await page.eval("document.querySelector('[aria-live=assertive]').textContent"), /1 question/);
  fresh.end();
  await page.until("document.querySelector('.past .session-row')?.innerText.includes('Another')");
});

test("what is not read yet is said to be loading", async ({ page, mock }) => {
  mock.slow = [];
  const hurry = async (n) => {
    await reached(() => mock.slow.length >= n);
    for (const f of mock.slow.splice(0)) f();
  };
  await page.go(mock.url);
  await page.until("document.querySelector('.overview h2')?.innerText === 'Loading what runs'");
  await page.until("document.querySelector('.home .empty').innerText === 'Loading the record'");
  await hurry(2); // watch and list
  await page.until("document.querySelector('.overview h2')?.innerText === 'Nothing runs'");
  await page.until("document.querySelector('.home .empty').innerText === 'Nothing has run here yet.'");
  const s = waiting(mock);
  await page.until("document.querySelector('.waiting .session-row')");
  await page.eval(`location.hash = "#/s/${s.row.sessionId}"`);
  await page.until("/^(?![^]*tokens)[^]*Loading/.test(document.querySelector('.gauges').innerText)");
  await hurry(1);
  await page.until("/tokens/.test(document.querySelector('.gauges').innerText)");
  assert.match(await page.eval(text(".card .reason")), /^It is asked because: a command is asked about$/);
});

test("a timeline, folded and unfolded by keys", async ({ page, mock }) => {
  const s = waiting(mock);
  s.resolve("p1", "allow", "token:ann", "once", "fine");
  s.say("tool.result", { callId: "c1", tool: "process_exec", ok: true, output: { exitCode: 1, stdout: "not ok 1\n", stderr: "oops\n" }, durationMs: 2 });
  s.say("budget.warning", { metric: "tokens", used: 934, limit: 1000, pct: 93.4 });
  s.say("bridle.workspace", { changed: [{ path: "src/a.lua", change: "modified", size: 9 }], truncated: false });
  s.end();
  await open(page, mock, s);
  await page.until("document.querySelector('.item.end')");
  assert.equal(await page.eval(text(".item.text")), "I will run the test.");
  assert.match(await page.eval(text(".gauges")), /934 of 1,000\s+tokens/);
  assert.match(await page.eval("[...document.querySelectorAll('.item.call')][1].innerText"), /lua5.4 test.lua[^]*exit 1[^]*allowed once by token:ann: [^]*fine/);
  assert.match(await page.eval(text(".item.changes")), /1 file changed[^]*src\/a.lua/);
  await page.key("t");
  await page.until("document.activeElement.matches('article')");
  await page.key("Home");
  for (let i = 0; i < 9 && !(await page.eval("document.activeElement.innerText.includes('process_exec')")); i++) await page.key("ArrowDown");
  await page.key("Enter");
  await page.until("document.activeElement.classList.contains('open')");
  const body = await page.eval("document.activeElement.querySelector('.body').innerText");
  for (const part of [/Asked for/, /operator:exec/, /Answered[^]*token:ann/, /stdout[^]*not ok 1/, /stderr[^]*oops/]) assert.match(body, part);
  await page.key("ArrowLeft");
  await page.until("!document.activeElement.classList.contains('open') && document.activeElement.matches('article')");
  await page.click("[data-filter=errors]");
  await page.until("document.querySelectorAll('.item').length === 2");
  await page.key("f");
  await page.type("no such thing");
  await page.until("document.querySelectorAll('.item').length === 0 && document.querySelector('.found').innerText.startsWith('0 of')");
});

test("an ask, allowed by a click", async ({ page, mock }) => {
  const s = waiting(mock);
  await open(page, mock, s);
  await page.until(armed);
  assert.match(await page.eval(text(".card")), /Run a command[^]*lua5.4 test.lua[^]*src\/\*\*[^]*operator:exec in default.lua:58/);
  await page.click(".card [data-answer=once]");
  await page.until("document.querySelector('.dock').hidden");
  assert.deepEqual(answers(mock), [{ sessionId: s.row.sessionId, permissionId: "p1", decision: "allow" }]);
  await page.until("document.querySelector('.feed').innerText.includes('allowed once by uid:1000')");
});

test("an ask, answered by keys, for the run and with a note", async ({ page, mock }) => {
  const s = waiting(mock);
  s.call("c2", "fs_write", { path: "b", content: "x\ny" }, { action: "fs.write", subject: "b", effect: "ask" });
  s.ask("p2", "c2", "fs.write", "b", { scope: "once", commands: [] });
  await page.go(mock.url);
  await page.until("document.querySelector('.waiting .session-row')");
  await page.key("a");
  await page.until("document.activeElement.matches('.card.armed')");
  // A key that comes before the question could be read is no answer to it.
  await page.eval("document.activeElement.classList.remove('armed')");
  await page.key("y");
  await page.eval("document.activeElement.classList.add('armed')");
  await page.key("r");
  await page.until("document.activeElement.matches('.card.armed') && document.activeElement.dataset.ask === 'p2'");
  assert.equal(await page.eval("document.querySelector('.card [data-answer=run]')"), null); // bridle.ask says once
  assert.match(await page.eval(text(".card")), /Write a file[^]*content[^]*x\ny/);
  await page.key("r");
  await page.key("e");
  await page.type("not this");
  await page.key("Escape");
  await page.key("d");
  await page.until("document.querySelector('.dock').hidden");
  assert.deepEqual(answers(mock), [
    { sessionId: s.row.sessionId, permissionId: "p1", decision: "allow", scope: "run" },
    { sessionId: s.row.sessionId, permissionId: "p2", decision: "deny", note: "not this" }]);
  await page.until("/allowed for this run by uid:1000[^]*denied by uid:1000: [^]*not this/.test(document.querySelector('.feed').innerText)");
});

test("an ask that somebody else answers", async ({ page, mock }) => {
  const s = waiting(mock);
  await open(page, mock, s);
  await page.until(armed);
  s.resolve("p1", "deny", "token:bea", "once", "no tests today");
  await page.until("document.querySelector('.card.over')?.innerText.includes('denied by token:bea: ')");
  assert.deepEqual(await page.eval("[...document.querySelectorAll('.card .answers button')].map((b) => b.disabled)"), [true, true, true]);
  await page.click(".card [data-answer=once]");
  await page.eval("document.querySelector('.card').focus()");
  await page.key("y");
  await page.click(".card button.plain");
  await page.until("document.querySelector('.dock').hidden");
  assert.deepEqual(answers(mock), []);
});

test("an answer that came too late says so", async ({ page, mock }) => {
  const s = waiting(mock);
  await open(page, mock, s);
  await page.until(armed);
  s.open.delete("p1"); // taken by somebody, whose resolution is on its way
  await page.click(".card [data-answer=once]");
  await page.until("document.querySelector('.card .refused')?.innerText.includes('Somebody else was faster')");
});

test("who only observes is offered nothing", async ({ page, mock }) => {
  mock.who = { name: "token:eve", access: "observe" };
  const s = waiting(mock);
  await open(page, mock, s);
  await page.until("document.querySelector('.card')");
  assert.deepEqual(await page.eval("[...document.querySelectorAll('.card button, [data-do]')].filter((b) => b.checkVisibility() && b.dataset.do !== 'logout').map((b) => b.innerText)"), []);
  assert.match(await page.eval(text(".card")), /You are token:eve \(observe\)/);
  await page.eval("document.querySelector('.card').focus()");
  for (const k of ["y", "r", "d", "c", "x"]) await page.key(k);
  assert.equal(await page.eval("document.querySelector('dialog')"), null);
  assert.deepEqual(mock.requests.map((r) => r.method).filter((m) => !["initialize", "session/watch", "session/list", "session/load"].includes(m)), []);
});

test("who may answer may neither start nor cancel", async ({ page, mock }) => {
  mock.who = { name: "token:bob", access: "answer" };
  const s = waiting(mock);
  await open(page, mock, s);
  await page.until(armed);
  assert.equal(await page.eval("document.querySelector('[data-do=cancel]')"), null);
  assert.equal(await page.eval("document.querySelector('[data-do=start]').hidden"), true);
  assert.equal(await page.eval("document.querySelectorAll('.card .answers button').length"), 3);
});

test("the record, in pages and searched", async ({ page, mock }) => {
  for (let i = 1; i <= 120; i++) mock.add({ goal: `Task ${i}${i % 40 ? "" : " needle"}`, status: "completed", live: false });
  await page.go(mock.url);
  const rows = "document.querySelectorAll('.past .session-row').length";
  await page.until(rows + " === 50");
  await page.click(".past button.more");
  await page.until(rows + " === 100");
  await page.click(".past button.more");
  await page.until(rows + " === 120");
  assert.equal(await page.eval("document.querySelector('.past button.more').hidden"), true);
  assert.equal(await page.eval("new Set([...document.querySelectorAll('.past a')].map((a) => a.href)).size"), 120);
  await page.key("/");
  await page.type("needle");
  await page.until(rows + " === 3");
  await page.key("ArrowDown");
  await page.key("ArrowDown");
  await page.key("Enter");
  await page.until("document.querySelector('#session-title').innerText === 'Task 80 needle'");
  await page.eval("document.querySelector('#search').focus(); document.querySelector('#search').select()");
  await page.type("nothing of the sort");
  await page.until("document.querySelector('.empty').innerText.includes('nothing of the sort')");
});

test("a connection that is lost: nothing is lost, nothing comes twice", async ({ page, mock }) => {
  const s = waiting(mock);
  await open(page, mock, s);
  await page.until(armed);
  mock.drop();
  await page.until("document.documentElement.dataset.link !== 'ready'");
  s.resolve("p1", "allow", "uid:7", "once");
  s.say("tool.result", { callId: "c1", tool: "process_exec", ok: true, output: { exitCode: 0, stdout: "ok\n" }, durationMs: 2 });
  for (const t of ["After ", "the gap."]) s.say("bridle.text", { stream: "t2", kind: "agent", text: t, final: false });
  await page.until("document.documentElement.dataset.link === 'ready' && document.querySelector('.feed').innerText.includes('After the gap.')");
  s.say("bridle.text", { stream: "t2", kind: "agent", text: " And live.", final: true });
  await page.until("document.querySelector('.feed').innerText.includes('After the gap. And live.')");
  assert.deepEqual(await page.eval("[...document.querySelectorAll('.item.text')].map((e) => e.innerText)"), ["I will run the test.", "After the gap. And live."]);
  assert.equal(await page.eval("document.querySelectorAll('.item.call').length"), 2);
  const loads = mock.requests.filter((r) => r.method === "session/load").map((r) => r.params);
  assert.equal(loads[0].after, -1);
  assert.ok(loads.length === 2 && loads[1].after > 5 && loads[1].afterBridle > 3, JSON.stringify(loads));
  await page.until("document.querySelector('.card.over')?.innerText.includes('allowed once by uid:7')");
});

test("a service that is asked too often", async ({ page, mock }) => {
  const s = mock.add({ goal: "Old one", status: "completed", live: false });
  s.begin("Old one");
  s.end();
  mock.busy["session/list"] = 2;
  await page.go(mock.url);
  await page.until("document.querySelector('.past .session-row')?.innerText.includes('Old one')");
  mock.busy["session/load"] = mock.breaks = 1;
  await open(page, mock, s);
  await page.until("document.querySelector('.item.end')");
  assert.equal(await page.eval("/too many readings|failure/i.test(document.body.innerText)"), false);
  const loads = mock.requests.filter((r) => r.method === "session/load").map((r) => r.params);
  assert.equal(loads.length, 3); // refused, broken off, and from there on
  assert.equal(loads[1].after, -1);
  assert.ok(loads[2].after >= 0);
  assert.ok(mock.requests.filter((r) => r.method === "session/list").length >= 3);
});

test("a record that is not closed yet is read to its end", async ({ page, mock }) => {
  const s = waiting(mock);
  s.row.live = false; // who told of it has died
  await open(page, mock, s);
  await page.until("document.querySelector('.item.call')");
  for (const c of mock.clients) c.follows.clear();
  s.resolve("p1", "deny", "", "once", "the run was canceled");
  s.say("agent.stopped", { agentId: "a", status: "canceled", steps: 1, toolCalls: 2 });
  s.row.status = "canceled";
  await page.until("document.querySelector('.item.end')");
  assert.equal(await page.eval("document.querySelectorAll('.item.end').length"), 1);
});

test("a stream that is not whole is read again", async ({ page, mock }) => {
  const s = waiting(mock);
  await open(page, mock, s);
  await page.until(armed);
  s.seq++; // and one event is never told
  s.say("error", { code: "LOST", message: "behind a gap" });
  await page.until("document.querySelector('.banner')?.innerText.includes('Protocol failure')");
  await page.until("document.querySelector('.banner').innerText.includes('failed again')"); // the gap is in the record, too
  s.log[s.log.length - 1].params.seq--;
  s.seq--;
  await page.click(".banner button");
  await page.until("document.querySelector('.feed').innerText.includes('behind a gap') && !document.querySelector('.banner').innerText");
});

test("a gap that is not in the record is mended", async ({ page, mock }) => {
  const s = waiting(mock);
  await open(page, mock, s);
  await page.until(armed);
  for (const c of mock.clients) c.follows.clear();
  s.say("error", { code: "UNTOLD", message: "not sent to this client" });
  for (const c of mock.clients) c.follows.add(s.row.sessionId);
  s.say("error", { code: "TOLD", message: "sent" });
  await page.until("/UNTOLD[^]*TOLD/.test(document.querySelector('.feed').innerText) && document.querySelector('.banner').innerText.includes('as it is shown now')");
  assert.equal(await page.eval("document.querySelectorAll('.item.note.bad').length"), 2);
  assert.equal(mock.requests.filter((r) => r.method === "session/load").length, 2);
});

test("a server that resolves otherwise than it was answered", async ({ page, mock }) => {
  const s = waiting(mock);
  mock.liar = true;
  await open(page, mock, s);
  await page.until(armed);
  await page.click(".card [data-answer=deny]");
  await page.until("document.querySelector('.banner')?.innerText.includes('Protocol failure')");
  await page.until("document.querySelector('.banner').innerText.includes('read again, and failed again') || document.querySelector('.banner').innerText.includes('as it is shown now')");
});

test("ten thousand events: few elements, both ends in reach", async ({ page, mock }) => {
  const s = mock.add({});
  s.begin("A long one");
  for (let i = 0; i < 2500; i++) {
    s.call("c" + i, "fs_read", { path: `src/file-${i}.lua` }, { action: "fs.read", subject: `src/file-${i}.lua`, effect: "allow" });
    s.say("tool.result", { callId: "c" + i, tool: "fs_read", ok: true, output: { content: `line ${i}\n`.repeat(10), bytes: 80 }, durationMs: 1 });
  }
  assert.ok(s.seq + s.own > 9998);
  await page.send("Network.disable"); // which would tell of each message
  await open(page, mock, s);
  await page.until("document.querySelector('.feed').innerText.includes('src/file-2499.lua')");
  const drawn = () => page.eval("document.querySelectorAll('.feed > *').length");
  assert.ok(await drawn() < 120, String(await drawn()));
  assert.ok(await page.eval("document.querySelectorAll('*').length") < 4000);
  await page.key("t");
  await page.key("Home");
  await page.until("document.activeElement.innerText.includes('Run under') && document.querySelector('.scroller').scrollTop < 30");
  assert.ok(await drawn() < 120);
  assert.equal(await page.eval("document.querySelector('.latest').hidden"), false);
  // What is looked at stays where it is while more comes.
  const before = await page.eval("document.activeElement.getBoundingClientRect().top");
  s.say("error", { code: "MORE", message: "at the end" });
  await page.until("document.querySelector('.feed > *').getAttribute('aria-setsize') === '2502'");
  assert.equal(await page.eval("document.activeElement.getBoundingClientRect().top"), before);
  await page.eval("document.querySelector('.scroller').scrollTop = 50000");
  await page.until("document.querySelector('.feed').innerText.includes('file-1') && !document.querySelector('.feed').innerText.includes('MORE')");
  await page.key("f");
  await page.type("file-1777");
  await page.until("document.querySelectorAll('.item').length === 1");
});

const EVIL = [
  "<img src=x onerror=\"window.pwned=1;alert(1)\">", "<script>window.pwned=2;alert(2)</script>", "<svg onload=alert(3)>",
  "</pre></div><iframe src=\"javascript:alert(4)\"></iframe>", "[a](javascript:alert(5)) https://evil.example/x.png",
  "{{7*7}} ${alert(6)} &lt;b&gt; <b>bold</b>",
].join("\n");
const HIDDEN = "safe\u202e\u2066gnp.exe\u2069 a\u200bb\u200d\ufeff \u001b[31mred\u001b[0m\u0007 \u0085\u{e0041} bell\r";

test("a session that tries to get into the page", async ({ page, mock }) => {
  const bad = EVIL + "\n" + HIDDEN;
  const s = mock.add({ goal: bad, workspace: "/srv/work/<b>x</b>\u202e", model: bad.slice(0, 200), sessionId: "run_<img src=x onerror=alert(9)>" });
  s.begin(bad);
  s.say("bridle.text", { stream: "t", kind: "agent", text: "```html\n" + bad + "\n```\n" + bad, final: true });
  s.call(bad, bad, { [bad]: bad, path: bad, content: bad, argv: [bad] }, { action: bad, subject: bad, effect: "ask", ruleId: bad, reason: bad });
  s.ask("p<b>", bad, bad, bad, { file: bad, reason: bad, advice: bad, rules: [{ text: bad }], why: bad, touches: { writes: [bad], reads: [bad], hosts: [bad], env: [bad], directory: bad } });
  s.say("error", { code: bad, message: bad });
  s.say("bridle.notice", { code: bad, message: bad });
  s.say("bridle.unheard", { [bad]: bad });
  s.say("bridle.launch", { sandbox: bad, image: bad, network: bad, mounts: 1, receipt: { backend: bad, image: { id: bad, verified: bad }, mountTable: [{ target: bad, type: bad, flags: bad }], cgroups: [{ version: bad, path: bad }] } });
  s.say("bridle.workspace", { changed: [{ path: bad, change: "x\" onclick=alert(1)" }], truncated: false });
  await page.go(mock.url);
  await page.until("document.querySelector('.waiting .session-row')");
  const before = await page.eval("[...new Set([...document.querySelectorAll('*')].map((e) => e.localName))]");
  await page.click(".waiting .session-row");
  await page.until(armed);
  // All of it is looked at, unfolded: from the beginning to the end, a window at a time.
  await page.eval("document.querySelector('.card').querySelectorAll('summary').forEach((e) => e.click())");
  let shown = await page.eval("document.body.innerText"), opened = new Set();
  await page.eval("document.querySelector('.scroller').scrollTop = 0");
  for (let end = false; !end;) {
    await page.eval("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
    const at = await page.eval(`(() => {
      document.querySelectorAll(".item .head[aria-expanded=false], .item summary").forEach((e) => e.click());
      const s = document.querySelector(".scroller"), text = document.querySelector(".feed").innerText, was = s.scrollTop;
      s.scrollTop += 400;
      return { text, open: [...document.querySelectorAll(".item.open")].map((e) => e.getAttribute("aria-label")), end: s.scrollTop === was };
    })()`);
    shown += at.text;
    for (const label of at.open) opened.add(label);
    end = at.end;
  }
  assert.ok(opened.size >= 5, [...opened].join());
  assert.ok(shown.includes("<img src=x onerror=\"window.pwned=1;alert(1)\">"));
  assert.ok(shown.includes("safe\\u202e\\u2066gnp.exe\\u2069 a\\u200bb\\u200d\\ufeff \\x1b[31mred\\x1b[0m\\x07 \\x85\\ue0041 bell\\x0d"), shown.slice(0, 3000));
  assert.equal(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]/.test(shown), false);
  const tags = await page.eval("[...new Set([...document.querySelectorAll('body *')].map((e) => e.localName))]");
  for (const t of ["script", "iframe", "b2", "object", "embed", "form", "base", "link", "style"]) assert.equal(tags.includes(t), false, t);
  assert.equal(await page.eval("document.querySelectorAll('img:not([src=\"icon.svg\"]), a:not([href^=\"#/\"])').length"), 0);
  assert.equal(await page.eval("[...document.querySelectorAll('*')].some((e) => [...e.attributes].some((a) => a.name.startsWith('on')))"), false);
  assert.equal(await page.eval("[...document.querySelectorAll('b')].some((e) => e.textContent === 'bold')"), false);
  assert.equal(await page.eval("window.pwned"), undefined);
  assert.deepEqual(page.dialogs, []);
  assert.ok(before.length > 10);
  const own = new URL(mock.url).origin;
  for (const url of page.requests) assert.ok(url.startsWith(own) || url === "about:blank", url);
  for (const url of page.sockets) assert.equal(url, own.replace("http", "ws") + "/acp");
  // The card's buttons are still there to be used, whatever was written above them.
  assert.equal(await page.eval("(() => { const b = document.querySelector('.card [data-answer=deny]'); b.scrollIntoView({block: 'nearest'}); const r = b.getBoundingClientRect(); return b.contains(document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2)); })()"), true);
});

test("the policy of the page stops what would get in, which works without it", async ({ page, mock }) => {
  mock.inject = "<script>window.pwned = 1</script><style>body { outline: 3px solid rgb(1, 2, 3) }</style><img src=\"http://127.0.0.1:9/x.png\" onerror=\"window.pwned2 = 1\">";
  const outcome = "({pwned: window.pwned, handler: window.pwned2, styled: getComputedStyle(document.body).outlineColor === 'rgb(1, 2, 3)'})";
  const write = "(() => { try { document.createElement('div').innerHTML = '<i></i>'; return 'written'; } catch (e) { return e.name; } })()";
  await page.go(mock.url);
  await page.until("document.querySelector('.brand')");
  assert.deepEqual(await page.eval(outcome), { styled: false });
  assert.equal(await page.eval(write), "TypeError"); // require-trusted-types-for
  assert.equal(await page.eval("(() => { try { return trustedTypes.createPolicy('x', {}) && 'made'; } catch (e) { return e.name; } })()"), "TypeError");
  assert.equal(await page.eval("fetch('http://127.0.0.1:9/').then(() => 'sent', (e) => e.name)"), "TypeError");
  await page.until("true");
  assert.ok(page.violations.some((v) => v.startsWith("script-src")) && page.violations.some((v) => v.startsWith("style-src")) && page.violations.some((v) => v.startsWith("img-src")) && page.violations.some((v) => v.startsWith("connect-src")), page.violations.join());
  const refused = page.requests.filter((u) => u.includes(":9/"));
  page.violations.length = page.console.length = 0;
  await page.send("Page.setBypassCSP", { enabled: true });
  await page.go(mock.url + "?without");
  await page.until("document.querySelector('.brand') && window.pwned2");
  assert.deepEqual(await page.eval(outcome), { pwned: 1, handler: 1, styled: true });
  assert.ok(page.requests.filter((u) => u.includes(":9/")).length > refused.length);
  await page.send("Page.setBypassCSP", { enabled: false });
  page.console.length = 0;
});

test("light and dark, by the system and by the switch", async ({ page, mock }) => {
  const s = waiting(mock);
  await page.media({ "prefers-color-scheme": "light" });
  await open(page, mock, s);
  await page.until(armed);
  const bg = "getComputedStyle(document.body).backgroundColor";
  const light = await page.eval(bg);
  await page.media({ "prefers-color-scheme": "dark" });
  const dark = await page.eval(bg);
  assert.notEqual(light, dark);
  await page.eval("document.activeElement.blur()");
  await page.key("m"); // light
  assert.equal(await page.eval(bg), light);
  await page.eval("window.old = 1");
  await page.send("Page.reload");
  await page.until("!window.old && " + armed);
  assert.equal(await page.eval(bg), light);
  await page.media({ "prefers-color-scheme": "light", "prefers-reduced-motion": "reduce" });
  await page.key("m"); // dark
  assert.equal(await page.eval(bg), dark);
  assert.equal(await page.eval("getComputedStyle(document.querySelector('.pulse')).animationName"), "none");
});

test("names, structure and contrast", async ({ page, mock }) => {
  mock.add({ goal: "Over budget", status: "budget_exceeded", live: false });
  mock.add({ goal: "Failed", status: "failed", live: false });
  mock.add({ goal: "Canceled", status: "canceled", live: false });
  mock.add({ goal: "Runs" }).begin("Runs");
  const s = waiting(mock);
  s.say("budget.warning", { metric: "tokens", used: 934, limit: 1000, pct: 93.4 });
  s.say("error", { code: "BAD", message: "broken \u0007" });
  s.call("c9", "fs_write", { path: "x", content: "y" }, { action: "fs.write", subject: "x", effect: "deny", reason: "frozen" });
  s.say("tool.result", { callId: "c9", tool: "fs_write", ok: false, output: { denied: { action: "fs.write", effect: "deny", rule: "r", source: "operator", allowed: [] } }, error: { code: "DENIED", message: "no" } });
  await open(page, mock, s);
  await page.until(armed);
  await page.eval("document.querySelectorAll('.item .head[aria-expanded=false], .card summary').forEach((e) => e.click())");
  await page.until("document.querySelectorAll('.item.open').length >= 3");
  for (const scheme of ["light", "dark"]) {
    await page.media({ "prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce" });
    const c = await page.eval(checks.contrast);
    assert.ok(c.looked > 60, String(c.looked));
    assert.deepEqual(c.out, [], scheme);
  }
  // The check finds what it looks for.
  await page.eval("document.querySelector('#session-title').style.color = 'var(--bg)'");
  assert.equal((await page.eval(checks.contrast)).out.length, 1);
  await page.eval("document.querySelector('#session-title').style.color = ''");
  assert.deepEqual(await page.eval(checks.structure), []);
  for (const key of ["", "?", "c", "x"]) {
    if (key) await page.key(key);
    if (key) await page.until("document.querySelector('dialog[open]')");
    const { roles, nameless } = await checks.names(page);
    assert.deepEqual(nameless, [], key);
    if (!key) for (const role of ["navigation", "main", "feed", "article", "region", "button", "searchbox", "link"]) assert.ok(roles.get(role), role);
    if (key) {
      assert.deepEqual((await page.eval(checks.contrast)).out, [], key);
      assert.equal(await page.eval("document.querySelector('dialog').contains(document.activeElement)"), true);
      await page.key("Escape");
      await page.until("!document.querySelector('dialog')");
    }
  }
  // Everything can be reached by Tab, and what has the focus is seen to have it.
  const seen = new Set();
  await page.eval("document.activeElement.blur()");
  for (let i = 0; i < 40; i++) {
    await page.key("Tab");
    const at = await page.eval("(() => { const e = document.activeElement; if (e === document.body) return ''; const s = getComputedStyle(e); return (s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0) + ' ' + e.localName + '.' + e.className; })()");
    assert.ok(!at.startsWith("false"), at);
    seen.add(at.replace(/^true /, ""));
  }
  for (const part of ["a.skip", "button.primary", "a.session-row", "button.danger", "button.filter", "input.find", "article.item", "button.allow", "button.run", "button.deny", "input.note"])
    assert.ok([...seen].some((s) => s.startsWith(part)), part + " of " + [...seen].join(", "));
  await page.eval("localStorage.setItem('bridle-board-keys', 'off')"); // single letters can be turned off
  await page.eval("document.querySelector('.card').focus()");
  await page.key("y");
  await page.key("?");
  assert.deepEqual(answers(mock), []);
  assert.equal(await page.eval("document.querySelector('dialog')"), null);
});

test("a window of 360 by 640", async ({ page, mock }) => {
  await page.size(360, 640);
  const s = waiting(mock, { goal: "A goal with-a-very-long-word-".repeat(8), workspace: "/srv/work/" + "deep/".repeat(20) });
  await page.go(mock.url);
  await page.until("document.querySelector('.session-row')");
  const wide = "[...document.querySelectorAll('body *')].filter((e) => e.checkVisibility() && !e.closest('.filters, .unseen, .skip, svg') && e.getBoundingClientRect().right > 361).map((e) => e.localName + '.' + e.className)";
  assert.deepEqual(await page.eval(wide), []);
  await page.click(".session-row");
  await page.until(armed);
  assert.deepEqual(await page.eval(wide), []);
  assert.equal(await page.eval("document.documentElement.scrollWidth"), 360);
  await page.click(".card [data-answer=deny]");
  await page.until("document.querySelector('.dock').hidden");
  assert.equal(answers(mock).length, 1);
  assert.ok(await page.eval("document.querySelector('.stage').clientHeight") > 200);
  await page.click(".back");
  await page.until("document.querySelector('.side').checkVisibility() && !document.querySelector('.pane').checkVisibility()");
});

test("who has to give a token", async ({ page, mock }) => {
  mock.needsToken = true;
  mock.who = { name: "token:good", access: "operate" };
  waiting(mock);
  await page.go(mock.url);
  await page.until("document.querySelector('dialog.login')");
  await page.type("bad");
  await page.key("Enter");
  await page.until("document.querySelector('dialog.login .refused').innerText.includes('not one of this')");
  await page.type("good");
  await page.key("Enter");
  await page.until("document.querySelector('.waiting .session-row') && !document.querySelector('dialog')");
  assert.equal(await page.eval("document.cookie"), ""); // HttpOnly
  assert.equal(await page.eval("JSON.stringify(localStorage).includes('good')"), false);
  await page.click("[data-do=logout]");
  await page.until("document.querySelector('dialog.login')");
  page.console.length = 0; // 401 is what was wanted
});

test("a session is started, watched and canceled", async ({ page, mock }) => {
  mock.add({ goal: "Old", status: "completed", live: false, workspace: "/srv/work/old" });
  await page.go(mock.url);
  await page.until("document.querySelector('.session-row')");
  await page.key("c");
  await page.until("document.querySelector('dialog.start')");
  await page.type("Do it\nwell");
  await page.eval("document.querySelector('dialog input').value = '/etc'");
  await page.click("dialog button.primary");
  await page.until("document.querySelector('dialog .refused').innerText.includes(\"'/etc' is not inside\")");
  await page.eval("document.querySelector('dialog input').value = '/srv/work/new'");
  await page.click("dialog button.primary");
  await page.until("document.querySelector('#session-title')?.innerText === 'Do it'");
  await page.until("document.querySelector('.item.head-entry')");
  const made = mock.requests.filter((r) => /new|prompt|detach/.test(r.method)).map((r) => [r.method, r.params]);
  assert.deepEqual(made.map((m) => m[0]), ["session/new", "session/new", "session/prompt", "session/detach"]);
  assert.deepEqual(made[1][1], { workspace: "/srv/work/new", model: "scripted/demo" });
  assert.equal(made[2][1].content, "Do it\nwell");
  await page.key("x");
  await page.until("document.querySelector('dialog.confirm')");
  assert.equal(await page.eval("document.activeElement.innerText"), "Let it run"); // Enter alone cancels nothing
  await page.key("Enter");
  await page.until("!document.querySelector('dialog')");
  assert.equal(mock.requests.some((r) => r.method === "session/cancel"), false);
  await page.click("[data-do=cancel]");
  await page.until("document.querySelector('dialog.confirm')");
  await page.click("[data-do=confirm]");
  await page.until("document.querySelector('.meta').innerText.includes('canceled') && document.querySelector('.item.end')");
  await page.until("!document.querySelector('[data-do=cancel]')");
});

test("more sessions than a connection may make", async ({ page, mock }) => {
  mock.sessionsMax = 1;
  await page.go(mock.url);
  await page.until("document.documentElement.dataset.link === 'ready'");
  for (const goal of ["First", "Second"]) {
    await page.key("c");
    await page.until("document.querySelector('dialog.start')");
    await page.eval("document.querySelector('dialog input').value = '/srv/work/a'; document.querySelector('dialog textarea').focus()");
    await page.type(goal);
    await page.click("dialog button.primary");
    await page.until(`document.querySelector('#session-title')?.innerText === '${goal}' && !document.querySelector('dialog')`);
  }
  assert.equal(mock.requests.filter((r) => r.method === "initialize").length, 2);
  assert.equal(mock.sessions.size, 2);
});

// One test, on a server and in a browser context of its own.
async function run(browser, name, f) {
  const mock = new Mock(web);
  mock.port = await mock.listen();
  mock.url = `http://127.0.0.1:${mock.port}/`;
  const page = await browser.page();
  const began = Date.now();
  let good = true;
  try {
    await f({ page, mock });
    const worse = page.console.filter((line) => !/WebSocket connection|ERR_CONNECTION|Content Security Policy|violates|404/.test(line));
    assert.deepEqual(worse, [], "said on the console");
    console.log(`ok ${name} (${Date.now() - began} ms)`);
  } catch (e) {
    good = false;
    console.log("FAILED " + name + "\n" + e.stack);
  }
  if (process.env.BRIDLE_SHOTS) await page.shot(path.join(process.env.BRIDLE_SHOTS, name.replace(/\W+/g, "-") + ".png")).catch(() => {});
  await page.close();
  mock.close();
  return good;
}

(async () => {
  const browser = await Browser.start(program);
  const todo = tests.filter(([name]) => !only.length || only.some((o) => name.includes(o)));
  const n = todo.length;
  let failed = 0;
  await Promise.all(Array.from({ length: AT_ONCE }, async () => {
    for (let t = todo.shift(); t; t = todo.shift()) if (!(await run(browser, ...t))) failed++;
  }));
  await browser.close();
  console.log(`${n} tests, ${failed} failed`);
  process.exitCode = failed || !n ? 1 : 0;
})().catch((e) => {
  console.log(e.stack);
  process.exit(1);
});
