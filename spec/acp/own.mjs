// A service of the editor's own: started where none is named, gone when the editor is, and with the
// operator's deadline for questions.
//
// Environment: also CONFIG (questions wait a second), POLICY, SCENARIO.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";

import { Editor, main, refused, selected } from "./editor.mjs";

const { CONFIG, POLICY, SCENARIO } = process.env;
const open = (w) => Editor.open(w, { args: ["--root", w.dir, "--config", CONFIG, "--policy", POLICY,
  "--scenario", SCENARIO] });

const read = (file) => readFileSync(file, "utf8").trim();
const children = (pid) => read(`/proc/${pid}/task/${pid}/children`).split(" ").map(Number);
const name = (pid) => read(`/proc/${pid}/comm`);

await main({
  async prompt(w) {
    const e = await open(w);
    assert.equal((await e.prompt(await e.session(), "HELLO")).stopReason, "end_turn");
    assert.equal(e.text(), "Hello from the script.");
    await refused(e.session("/etc"), -32602);
    await e.close();
  },

  async allowed(w) {
    const e = await open(w);
    e.answer = () => selected("allow_once");
    assert.equal((await e.prompt(await e.session(), "WRITE")).stopReason, "end_turn");
    assert.ok(w.content("out/asked.txt"));
    await e.close();
  },

  async silence_denies(w) {
    const e = await open(w);
    let late;
    e.answer = () => new Promise((done) => { late = done; });
    assert.equal((await e.prompt(await e.session(), "WRITE")).stopReason, "end_turn");
    assert.ok(e.asks[0].signal.aborted); // the question was taken back
    assert.deepEqual(e.statuses(), ["failed"]);
    late(selected("allow_once"));
    assert.equal((await e.prompt(await e.session(), "HELLO")).stopReason, "end_turn");
    assert.ok(!w.content("out/asked.txt"));
    await e.close();
  },

  // Where the operator names no policy for it, the one that is held on this machine counts; the
  // built-in one would have let this be written.
  async held_policy(w) {
    const e = await Editor.open(w, { args: ["--root", w.dir, "--scenario", SCENARIO] });
    e.answer = () => selected("reject_once");
    assert.equal((await e.prompt(await e.session(), "WRITE")).stopReason, "end_turn");
    assert.equal(e.asks.length, 1);
    assert.ok(!w.content("out/asked.txt"));
    await e.close();
    assert.equal(e.talk, ""); // its log has only what went wrong
  },

  // Killed in the middle of a tool call: nobody is left to end the service, and it ends all the same.
  async killed(w) {
    const e = await open(w);
    const prompt = e.prompt(await e.session(), "SLEEP").catch(() => "gone");
    await e.until((u) => u.status === "in_progress");
    const [service] = children(e.child.pid);
    e.child.kill("SIGKILL");
    assert.equal(await prompt, "gone");
    while (existsSync(`/proc/${service}`)) await sleep(20);
  },

  // What the editor was asked by is gone: nobody is left whose yes would count, and it is told.
  async gateway_dies(w) {
    const e = await open(w);
    e.answer = () => new Promise(() => {});
    const prompt = e.prompt(await e.session(), "WRITE").catch(() => "gone");
    await e.asked();
    const [service] = children(e.child.pid);
    const [gateway] = children(service).filter((pid) => name(pid) === "bridle-gateway");
    process.kill(gateway, "SIGKILL");
    assert.equal(await prompt, "gone");
    if (e.child.exitCode === null) await once(e.child, "exit");
    assert.equal(e.child.exitCode, 1);
    assert.match(e.talk, /PEER_GONE/);
    assert.match(e.talk, /^bridled\[\d+\]: (error|warning): /m); // and that is said
    assert.ok(!existsSync(`/proc/${service}`));
    assert.ok(!w.content("out/asked.txt"));
  },

  // Two at the same time, as two windows of an editor have.
  async two_of_them(w) {
    const [one, two] = await Promise.all([open(w), open(w)]);
    const said = await Promise.all([one, two].map(async (e) => {
      await e.prompt(await e.session(), "HELLO");
      return e.text();
    }));
    assert.deepEqual(said, ["Hello from the script.", "Hello from the script."]);
    await Promise.all([one.close(), two.close()]);
  },
});
