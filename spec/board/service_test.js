// The board in Chromium, against the real service (test_service.c starts both).
// Usage: node service_test.js URL DIRECTORY CHROMIUM
"use strict";
const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const { Browser } = require("./browser.js");

const [url, dir, program] = process.argv.slice(2);
const TOKENS = { observe: "0".repeat(64), answer: "a".repeat(64), operate: "f".repeat(64) };
const workspace = path.join(dir, "workspace");
const made = (name) => fs.existsSync(path.join(workspace, "out", name));
const armed = "document.querySelector('.card.armed')";

async function board(browser, token) {
  const page = await browser.page();
  if (token) {
    await page.go(url);
    await page.until("document.querySelector('.brand')");
    const r = await page.eval(`fetch("/login", {method: "POST", headers: {Authorization: "Bearer ${TOKENS[token]}"}}).then((r) => r.status)`);
    assert.equal(r, 200);
    await page.eval("window.old = 1");
    await page.send("Page.reload");
    await page.until(`!window.old && document.querySelector('.who').innerText.startsWith('token:${token}-token')`);
  } else {
    await page.go(url);
  }
  await page.until("document.documentElement.dataset.link === 'ready' && document.querySelector('.who').innerText");
  return page;
}

async function start(page, goal) {
  await page.key("c");
  await page.until("document.querySelector('dialog.start')");
  await page.eval(`document.querySelector("dialog input").value = ${JSON.stringify(workspace)}`);
  await page.eval("document.querySelector('dialog textarea').focus()");
  await page.type(goal);
  await page.click("dialog button.primary");
  await page.until("!document.querySelector('dialog') && location.hash.startsWith('#/s/')");
  return page.eval("location.hash");
}

const ended = "document.querySelector('.item.end')";
const feed = (part) => `document.querySelector('.feed').innerText.includes(${JSON.stringify(part)})`;
// What the server says to a request that the page would not offer.
const ask = (page, method, params) => page.eval(`new Promise((done) => {
  const s = new WebSocket(location.origin.replace("http", "ws") + "/acp", "harness.acp.1");
  s.onopen = () => s.send(JSON.stringify({jsonrpc: "2.0", id: 1, method: "initialize", params: {protocolVersion: "harness/acp/1", clientName: "test", capabilities: {streaming: true, permissioning: true, sessions: true, extensions: ["bridle/1"]}}}));
  s.onmessage = (m) => {
    const a = JSON.parse(m.data);
    if (a.id === 1) s.send(JSON.stringify({jsonrpc: "2.0", id: 2, method: ${JSON.stringify(method)}, params: ${JSON.stringify(params)}}));
    else if (a.id === 2) { done(a); s.close(); }
  };
})`);

// Allowed by a click: then, and not before, there is the file.
async function byClick(page) {
  await start(page, "Make it by click");
  await page.until(armed);
  assert.equal(made("clicked"), false);
  assert.match(await page.eval("document.querySelector('.card').innerText"), /touch out\/clicked/);
  await page.click(".card [data-answer=once]");
  await page.until(ended);
  assert.equal(made("clicked"), true);
  await page.until(feed("allowed once by token:operate-token"));
  assert.match(await page.eval("document.querySelector('.item.end').innerText"), /completed/);
}

// By a key, for the run: asked once, done twice.
async function byKey(page) {
  await start(page, "Make it by key");
  await page.until(armed);
  await page.eval("document.activeElement.blur()");
  await page.key("a");
  await page.key("r");
  await page.until(ended);
  assert.equal(fs.readFileSync(path.join(workspace, "out", "keyed"), "utf8"), "x\nx\n");
  await page.until(feed("allowed for this run by token:operate-token"));
}

// Denied, with a note; nothing happens.
async function denied(page) {
  await start(page, "It is to be denied");
  await page.until(armed);
  await page.eval("document.querySelector('.card').focus()");
  await page.key("e");
  await page.type("not today");
  await page.click(".card [data-answer=deny]");
  await page.until(ended);
  await page.until(feed("denied by token:operate-token") + " && " + feed("not today") + " && " + feed("Denied. I stop."));
  assert.equal(made("denied"), false);
}

// Answered by somebody else, while a third only looks.
async function bySomebody(page, second, third) {
  const where = await start(page, "Made by somebody");
  await page.until(armed);
  await third.eval(`location.hash = ${JSON.stringify(where)}`);
  await third.until("document.querySelector('.card')?.innerText.includes('You are token:observe-token (observe)')");
  assert.equal(await third.eval("document.querySelector('.card .answers button, [data-do=cancel]')"), null);
  const sessionId = decodeURIComponent(where.slice(4));
  const permissionId = await third.eval("document.querySelector('.card').dataset.ask");
  for (const [method, params] of [["permission/respond", { sessionId, permissionId, decision: "allow" }], ["session/cancel", { sessionId }], ["session/new", { workspace }]])
    assert.equal((await ask(third, method, params)).error?.code, -32030, method);
  for (const [method, params] of [["session/cancel", { sessionId }], ["session/new", { workspace }]])
    assert.equal((await ask(second, method, params)).error?.code, -32030, method);
  assert.equal(made("second"), false);
  await second.eval(`location.hash = ${JSON.stringify(where)}`);
  await second.until(armed);
  assert.equal(await second.eval("document.querySelector('[data-do=cancel]')"), null);
  await second.click(".card [data-answer=once]");
  await page.until("document.querySelector('.card.over')?.innerText.includes('allowed once by token:answer-token')");
  assert.deepEqual(await page.eval("[...document.querySelectorAll('.card .answers button')].map((b) => b.disabled)"), [true, true, true]);
  for (const p of [page, second, third]) await p.until(ended);
  assert.equal(made("second"), true);
}

// The page goes away and comes back in the middle: a detached session goes on.
async function reloaded(page) {
  const middle = await start(page, "It is to be canceled");
  await page.until(armed);
  await page.eval("window.old = 1");
  await page.send("Page.reload");
  await page.until("!window.old && location.hash === " + JSON.stringify(middle) + " && " + armed);
  await page.click("[data-do=cancel]");
  await page.until("document.querySelector('dialog.confirm')");
  await page.click("[data-do=confirm]");
  await page.until(ended + " && document.querySelector('.meta').innerText.includes('canceled')");
  assert.equal(made("canceled"), false);
}

// The gateway dies while a question is open: the page finds the new one, and what the record says.
async function gatewayDies(page) {
  await start(page, "It is to be canceled, too");
  await page.until(armed);
  const gateway = fs.readdirSync("/proc").filter((pid) => /^[0-9]+$/.test(pid)).find((pid) => {
    try {
      return fs.readlinkSync(`/proc/${pid}/exe`).endsWith("/bridle-gateway");
    } catch {
      return false;
    }
  });
  process.kill(Number(gateway), "SIGKILL");
  await page.until("document.documentElement.dataset.link !== 'ready'");
  // What it had been given for its token has died with it; here the operating system still knows it.
  await page.until("document.documentElement.dataset.link === 'ready' && document.querySelector('.toast').innerText.includes('and were token:operate-token (operate)')");
  await page.until(ended + " && document.querySelector('.dock').hidden");
  assert.equal(made("canceled"), false);
}

// A session that tries to get into the page.
async function intruder(page) {
  await start(page, "Try <script>window.pwned = 7</script> \u202e");
  await page.until(armed + " && " + feed("I will make") + " === false");
  await page.until(feed("<script>window.pwned = 1; alert(1)</script><img src=x onerror=\"window.pwned = 2\"> safe\\u202egnp.exe a\\u200bb \\x1b[31mred\\x1b[0m"));
  assert.match(await page.eval("document.querySelector('.card').innerText"), /<img src=x onerror=alert\(4\)>[^]*\\u202etxt\.exe[^]*\\x1b\[2J/);
  await page.click(".card [data-answer=once]");
  await page.until(ended);
  assert.equal(await page.eval("document.querySelectorAll('body script, body iframe, body svg[onload], img:not([src=\"icon.svg\"])').length"), 0);
  assert.equal(await page.eval("window.pwned"), undefined);
}

async function record(page) {
  await page.key("/");
  await page.type("by somebody");
  await page.until("document.querySelectorAll('.past .session-row').length === 1");
  await page.click(".past .session-row");
  await page.until(ended + " && " + feed("allowed once by token:answer-token"));
  await page.eval("document.querySelectorAll('.item.sandbox .head[aria-expanded=false]').forEach((e) => e.click())");
  await page.until(feed("filter refuses, Landlock") + " && " + feed("no_new_privs"));
}

// Who gives no token is known by the operating system.
async function withoutToken(local) {
  assert.equal(await local.eval("document.querySelector('.who').innerText"), `uid:${process.getuid()} operate`);
  await local.until("document.querySelectorAll('.past .session-row').length === 7");
}

async function main(browser) {
  const pages = await Promise.all(["operate", "operate", "operate", "operate", "answer", "observe", ""].map((t) => board(browser, t)));
  const [one, two, three, four, second, third, local] = pages;
  await Promise.all([
    byClick(one).then(() => reloaded(one)), byKey(two).then(() => denied(two)), intruder(three),
    bySomebody(four, second, third),
  ]);
  for (const p of pages) assert.deepEqual(p.console, []);
  await gatewayDies(four);
  for (const p of pages) await p.until("document.documentElement.dataset.link === 'ready'");
  await Promise.all([record(second), withoutToken(local)]);
  const origin = new URL(url).origin;
  for (const p of pages) {
    assert.deepEqual(p.dialogs, []);
    assert.deepEqual(p.violations, []);
    for (const u of p.requests) assert.ok(u.startsWith(origin + "/") || u === "about:blank", u);
    for (const u of p.sockets) assert.equal(u, origin.replace("http", "ws") + "/acp");
  }
}

(async () => {
  const browser = await Browser.start(program);
  try {
    await main(browser);
  } finally {
    await browser.close();
  }
})().catch((e) => {
  console.log(e.stack);
  process.exit(1);
});
