// What an editor may rely on, through a real service, a real sandbox and the scripted provider
// (scenario.json says what it plays for which word of a prompt). What was allowed has happened in the
// w.dir, and what was not has not.
//
// Usage: node cases.mjs stdio|ws [CASE...]
import assert from "node:assert/strict";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";

import { Editor, check, main, operator, refused, selected } from "./editor.mjs";

// One prompt that asks once, and what came of it.
async function write(w, answer) {
  const e = await Editor.open(w);
  e.answer = answer;
  const response = await e.prompt(await e.session(), "WRITE");
  return { e, response };
}

async function denied(w, answer) {
  const { e, response } = await write(w, answer);
  assert.equal(e.asks.length, 1);
  assert.equal(response.stopReason, "end_turn"); // never a cancellation
  assert.deepEqual(e.statuses(), ["failed"]);
  assert.match(e.text(), /Denied; I stop/);
  assert.equal(w.content("out/asked.txt"), null);
  return e;
}

await main({
  async initialize(w) {
    const e = await Editor.open(w);
    const { protocolVersion, agentCapabilities: c, agentInfo, authMethods } = e.initialized;
    assert.equal(protocolVersion, 1);
    assert.equal(agentInfo.name, "bridle");
    assert.deepEqual(authMethods, []);
    assert.equal(c.loadSession, true);
    assert.deepEqual(c.mcpCapabilities, { http: false, sse: false });
    assert.equal(c.promptCapabilities.image, false);
    await refused(e.agent.request("authenticate", { methodId: "none" }), -32602);
    // what each case's messages are held against finds what is wrong
    const update = { sessionUpdate: "tool_call", toolCallId: "1", title: "t", kind: "read" };
    assert.deepEqual(check("SessionNotification", { sessionId: "s", update }), []);
    assert.equal(check("SessionNotification", { sessionId: "s", update: { ...update, kind: "reed" } }).length, 1);
    await e.close();
  },

  async text(w) {
    const e = await Editor.open(w);
    const session = await e.session();
    const { stopReason, _meta } = await e.prompt(session, "HELLO");
    assert.equal(stopReason, "end_turn");
    assert.equal(_meta.bridle.runId, session);
    assert.equal(e.text(), "Hello from the script.");
    // another prompt is another run, of the same session
    const again = await e.prompt(session, "READ");
    assert.equal(again.stopReason, "end_turn");
    assert.notEqual(again._meta.bridle.runId, session);
    const call = await e.until((u) => u.sessionUpdate === "tool_call");
    assert.equal(call.title, "Read a.txt");
    assert.equal(call.kind, "read");
    assert.equal(call.locations[0].path, w.path("a.txt"));
    assert.deepEqual(e.statuses(), ["completed"]);
    const result = await e.until((u) => u.status === "completed");
    assert.match(result.content[0].content.text, /first line of a/);
    assert.ok(e.updates.every(({ sessionId }) => sessionId === session));
    await e.close();
  },

  async allow_once(w) {
    const { e, response } = await write(w, (params) => {
      assert.equal(w.content("out/asked.txt"), null); // nothing has happened while it is asked
      assert.equal(params.toolCall.title, "Write out/asked.txt");
      assert.equal(params.toolCall.rawInput.content, "written\n");
      assert.deepEqual(params.options.map((o) => o.kind),
        ["allow_once", "allow_always", "reject_once"]);
      assert.match(params.options[1].name, /for this run/);
      return selected("allow_once");
    });
    assert.equal(response.stopReason, "end_turn");
    assert.deepEqual(e.statuses(), ["completed"]);
    assert.equal(w.content("out/asked.txt"), "written\n");
    await e.close();
  },

  async allow_for_the_run(w) {
    const e = await Editor.open(w);
    const session = await e.session();
    e.answer = () => selected("allow_always");
    assert.equal((await e.prompt(session, "TWICE")).stopReason, "end_turn");
    assert.equal(e.asks.length, 1); // the same command ran twice
    assert.deepEqual(e.statuses(), ["completed", "completed"]);
    assert.equal(w.content("out/copy.txt"), w.content("a.txt"));
    // once is once, and another prompt is another run
    e.answer = () => selected("allow_once");
    assert.equal((await e.prompt(session, "TWICE")).stopReason, "end_turn");
    assert.equal(e.asks.length, 3);
    await e.close();
  },

  async not_for_the_run_where_it_is_not_offered(w) {
    const e = await Editor.open(w);
    e.answer = (params) => {
      assert.deepEqual(params.options.map((o) => o.kind), ["allow_once", "reject_once"]);
      return selected("allow_always");
    };
    assert.equal((await e.prompt(await e.session(), "OPAQUE")).stopReason, "end_turn");
    assert.equal(e.asks.length, 1);
    assert.deepEqual(e.statuses(), ["failed"]);
    assert.equal(w.content("out/opaque.txt"), null);
    await e.close();
  },

  async reject(w) {
    await (await denied(w, () => selected("reject_once"))).close();
  },

  async cancelled_denies(w) {
    await (await denied(w, () => ({ outcome: { outcome: "cancelled" } }))).close();
  },

  async unknown_option_denies(w) {
    await (await denied(w, () => selected("allow_everything"))).close();
  },

  async error_denies(w) {
    await (await denied(w, () => { throw new Error("the editor is broken"); })).close();
  },

  async answered_by_another(w) {
    const e = await Editor.open(w);
    const session = await e.session();
    e.answer = () => new Promise(() => {});
    const prompt = e.prompt(session, "WRITE");
    const { signal } = await e.asked();
    const other = await operator();
    await other.request("session/load", { sessionId: session });
    const { data } = other.events.find(({ type }) => type === "permission.requested");
    await other.request("permission/respond",
      { sessionId: session, permissionId: data.permissionId, decision: "allow" });
    assert.equal((await prompt).stopReason, "end_turn");
    assert.ok(signal.aborted); // the editor's own question was taken back
    assert.equal(w.content("out/asked.txt"), "written\n");
    other.close();
    await e.close();
  },

  async policy_denies(w) {
    const e = await Editor.open(w);
    assert.equal((await e.prompt(await e.session(), "NEVER")).stopReason, "end_turn");
    assert.equal(e.asks.length, 0);
    assert.deepEqual(e.statuses(), ["failed"]);
    const result = await e.until((u) => u.status === "failed");
    assert.match(result.content[0].content.text, /Denied: .*:never'/);
    assert.equal(w.content("out/never.txt"), null);
    await e.close();
  },

  async questions_of_one_turn(w) {
    const e = await Editor.open(w);
    e.answer = ({ toolCall }) =>
      selected(toolCall.rawInput.path === "out/asked2.txt" ? "allow_once" : "reject_once");
    assert.equal((await e.prompt(await e.session(), "BOTH")).stopReason, "end_turn");
    assert.equal(e.asks.length, 2);
    assert.equal(w.content("out/asked1.txt"), null);
    assert.equal(w.content("out/asked2.txt"), "2\n");
    await e.close();
  },

  async disconnect_denies(w) {
    const e = await Editor.open(w);
    e.answer = () => new Promise(() => {});
    const prompt = e.prompt(await e.session(), "WRITE").catch(() => "gone");
    await e.asked();
    await e.close();
    assert.equal(await prompt, "gone");
    // the run is over, and was canceled; nothing was written
    const watcher = await Editor.open(w);
    for (;;) {
      const { sessions } = await watcher.agent.request("session/list", { cwd: w.dir });
      if (sessions.some((s) => s.title === "WRITE")) break;
      await sleep(20);
    }
    assert.equal(w.content("out/asked.txt"), null);
    await watcher.close();
  },

  async cancel_while_asked(w) {
    const e = await Editor.open(w);
    const session = await e.session();
    let late;
    e.answer = () => new Promise((done) => { late = done; });
    const prompt = e.prompt(session, "WRITE");
    await e.asked();
    await e.agent.notify("session/cancel", { sessionId: session });
    late({ outcome: { outcome: "cancelled" } });
    assert.equal((await prompt).stopReason, "cancelled");
    assert.deepEqual(e.statuses(), ["failed"]);
    assert.equal(w.content("out/asked.txt"), null);
    // the session is still one
    assert.equal((await e.prompt(session, "HELLO")).stopReason, "end_turn");
    await e.close();
  },

  async late_answer_is_none(w) {
    const e = await Editor.open(w);
    const session = await e.session();
    let late;
    e.answer = () => new Promise((done) => { late = done; });
    const prompt = e.prompt(session, "WRITE");
    const { signal } = await e.asked();
    await e.agent.notify("session/cancel", { sessionId: session });
    assert.equal((await prompt).stopReason, "cancelled");
    // the agent has said that it waits no more
    if (!signal.aborted) await once(signal, "abort");
    late(selected("allow_once"));
    assert.equal((await e.prompt(session, "HELLO")).stopReason, "end_turn");
    assert.equal(w.content("out/asked.txt"), null);
    await e.close();
  },

  async cancel_while_a_tool_runs(w) {
    const e = await Editor.open(w);
    const session = await e.session();
    const prompt = e.prompt(session, "SLEEP");
    await e.until((u) => u.status === "in_progress");
    await e.agent.notify("session/cancel", { sessionId: session });
    assert.equal((await prompt).stopReason, "cancelled");
    assert.deepEqual(e.statuses(), ["failed"]);
    await e.close();
  },

  async give_up_the_request(w) {
    const e = await Editor.open(w);
    const session = await e.session();
    const abort = new AbortController();
    const prompt = e.agent.request("session/prompt",
      { sessionId: session, prompt: [{ type: "text", text: "SLEEP" }] },
      { cancellationSignal: abort.signal }).then((r) => r.stopReason, (error) => error.code);
    await e.until((u) => u.status === "in_progress");
    abort.abort();
    assert.ok(["cancelled", -32800].includes(await prompt));
    await e.close();
  },

  async refusals(w) {
    const e = await Editor.open(w);
    const mcp = { name: "x", command: "/bin/true", args: [], env: [] };
    const make = (more) => e.agent.request("session/new", { cwd: w.dir, mcpServers: [], ...more });
    await refused(make({ mcpServers: [mcp] }), -32602);
    await refused(make({ additionalDirectories: [w.dir] }), -32602);
    await refused(make({ cwd: "/etc" }), -32602);
    await refused(make({ cwd: `${w.dir}/../..` }), -32602);
    await refused(make({ cwd: w.path("outside") }), -32602); // a link
    await refused(make({ cwd: w.path("nothing") }), -32602);
    await refused(make({ cwd: "relative" }), -32602);
    await refused(e.prompt("run_none", "HELLO"), -32002);
    const session = await e.session();
    await refused(e.agent.request("session/prompt", { sessionId: session, prompt: [] }), -32602);
    await refused(e.agent.request("session/prompt", { sessionId: session,
      prompt: [{ type: "image", data: "", mimeType: "image/png" }] }), -32602);
    await refused(e.agent.request("session/load", { sessionId: "run_none", cwd: w.dir,
      mcpServers: [] }), -32002);
    assert.equal(e.updates.length, 0);
    await e.close();
  },

  async one_prompt_at_a_time(w) {
    const e = await Editor.open(w);
    const [one, two] = [await e.session(), await e.session()];
    e.answer = () => new Promise((done) => { e.go = () => done(selected("reject_once")); });
    const prompt = e.prompt(one, "WRITE");
    await e.asked();
    await refused(e.prompt(one, "HELLO"), -32600);
    // of another session it is welcome
    assert.equal((await e.prompt(two, "HELLO")).stopReason, "end_turn");
    e.go();
    assert.equal((await prompt).stopReason, "end_turn");
    await e.close();
  },

  async provider_fails(w) {
    const e = await Editor.open(w);
    await refused(e.prompt(await e.session(), "FAIL"), -32603);
    await e.close();
  },

  async load_and_list(w) {
    const e = await Editor.open(w);
    const session = await e.session();
    await e.prompt(session, "READ");
    await e.close();
    const again = await Editor.open(w);
    const { sessions } = await again.agent.request("session/list", { cwd: w.dir });
    const listed = sessions.find((s) => s.sessionId === session);
    assert.equal(listed.title, "READ");
    assert.equal(listed.cwd, w.dir);
    await again.agent.request("session/load", { sessionId: session, cwd: w.dir, mcpServers: [] });
    const kinds = again.updates.map(({ update }) => update.sessionUpdate);
    assert.equal(kinds[0], "user_message_chunk");
    assert.ok(kinds.includes("tool_call") && kinds.includes("agent_message_chunk"));
    assert.deepEqual(again.statuses(), ["completed"]);
    assert.equal((await again.prompt(session, "HELLO")).stopReason, "end_turn");
    await again.close();
  },
});
