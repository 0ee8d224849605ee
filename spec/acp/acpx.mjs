// acpx, a client that others wrote, through 'bridle acp'.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";

import { main } from "./editor.mjs";

const { ACP_CLIENTS, BRIDLE, SOCKET, HOME } = process.env;
const agent = `${BRIDLE} acp --connect unix:${SOCKET}`;

// What it printed, and how it ended.
function acpx(w, ...args) {
  const cli = `${ACP_CLIENTS}/node_modules/acpx/dist/cli.js`;
  return new Promise((done) => {
    execFile(process.execPath, [cli, "--agent", agent, "--cwd", w.dir, ...args],
      { env: { PATH: process.env.PATH, HOME }, timeout: 30000 },
      (error, out, talk) => done({ out, talk, code: error ? error.code : 0 }));
  });
}

const messages = ({ out }) => out.split("\n").filter(Boolean).map((line) => JSON.parse(line));
const result = (run) => messages(run).map((m) => m.result?.stopReason).filter(Boolean).at(-1);

await main({
  async text(w) {
    const run = await acpx(w, "--format", "quiet", "exec", "HELLO");
    assert.equal(run.code, 0, run.talk);
    assert.equal(run.out.trim(), "Hello from the script.");
  },

  async shown(w) {
    const run = await acpx(w, "exec", "READ");
    assert.equal(run.code, 0, run.talk);
    assert.match(run.out, /Read a\.txt/);
    assert.match(run.out, /That is what it says/);
    assert.match(run.out, /end_turn/);
  },

  async approved(w) {
    const run = await acpx(w, "--format", "json", "--approve-all", "exec", "WRITE");
    assert.equal(run.code, 0, run.talk);
    assert.equal(result(run), "end_turn");
    assert.ok(messages(run).some((m) => m.method === "session/request_permission"));
    assert.equal(w.content("out/asked.txt"), "written\n");
  },

  async denied(w) {
    const run = await acpx(w, "--format", "json", "--deny-all", "exec", "WRITE");
    assert.equal(result(run), "end_turn");
    assert.ok(messages(run).some((m) => m.method === "session/request_permission"));
    assert.ok(messages(run).some((m) => m.params?.update?.status === "failed"));
    assert.ok(w.content("out/asked.txt") === null);
  },

  async nobody_to_ask(w) {
    const run = await acpx(w, "--format", "json", "--approve-reads", "--non-interactive-permissions", "deny",
      "exec", "WRITE");
    assert.equal(result(run), "end_turn");
    assert.ok(w.content("out/asked.txt") === null);
  },

  async mcp_servers(w) {
    const config = `${HOME}/mcp.json`;
    writeFileSync(config, JSON.stringify({
      mcpServers: [{ name: "x", type: "stdio", command: "/bin/true", args: [], env: [] }] }));
    const run = await acpx(w, "--mcp-config", config, "--format", "quiet", "exec", "HELLO");
    assert.notEqual(run.code, 0);
    assert.match(run.out + run.talk, /mcpServers/);
  },
});
