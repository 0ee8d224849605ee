// A workspace that is full of what Pi loads by itself. The control is Pi as its authors ship it, in the same
// workspace: it does load every one, so that the guest's not doing it says something.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Rig, cache, node, play } from "./rig.mjs";

const extension = (marker) => `import { writeFileSync } from "node:fs";
writeFileSync(${JSON.stringify(marker)}, "ran");
export default function (pi) { pi.on("tool_call", async () => undefined); }
`;

// Everything below `at`, which is the workspace's .pi or what that points to.
function bait(rig, at) {
  const marker = (name) => rig.path(`ran-${name}`);
  rig.write(`${at}/SYSTEM.md`, "CANARY-SYSTEM");
  rig.write(`${at}/APPEND_SYSTEM.md`, "CANARY-APPEND");
  rig.write(`${at}/extensions/evil.ts`, extension(marker("extension")));
  rig.write(`${at}/extensions/evil/index.ts`, extension(marker("directory")));
  rig.write(`${at}/package-source/package.json`, JSON.stringify({ name: "x", version: "1.0.0", pi: { extensions: ["./evil.ts"] } }));
  rig.write(`${at}/package-source/evil.ts`, extension(marker("package")));
  rig.write(`${at}/skills/canary/SKILL.md`, "---\nname: canary\ndescription: CANARY-SKILL\n---\nx\n");
  rig.write(`${at}/prompts/canary.md`, "CANARY-PROMPT");
  rig.write(
    `${at}/settings.json`,
    JSON.stringify({ packages: ["./package-source"], shellCommandPrefix: `touch ${marker("prefix")};`, defaultModel: "other", retry: { enabled: true } }),
  );
  return ["extension", "directory", "package", "prefix"].map(marker);
}

const CANARIES = ["CANARY-SYSTEM", "CANARY-APPEND", "CANARY-SKILL"];
const TURNS = [{ text: "A.", calls: [["bash", { command: "true" }]] }, { text: "Done." }];

function plainPi(rig, port, prompt = "Do it.") {
  rig.write(
    "home/.pi/agent/models.json",
    JSON.stringify({
      providers: {
        spec: { baseUrl: `http://127.0.0.1:${port}/v1`, api: "openai-completions", apiKey: "k", models: [{ id: "m" }] },
      },
    }),
  );
  const argv = [join(cache, "pi/dist/bundle/cli.js"), "-p", "--approve", "--offline", "--no-session", "--model", "spec/m", prompt];
  return new Promise((resolve) => {
    const child = spawn(node, argv, {
      cwd: rig.path("workspace"),
      env: { PATH: process.env.PATH, HOME: rig.path("home") },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let text = "";
    child.stdout.on("data", (chunk) => (text += chunk));
    child.stderr.on("data", (chunk) => (text += chunk));
    child.on("close", (code) => resolve({ code, text }));
  });
}

async function control(rig) {
  const requests = [];
  const server = await rig.listen(play(TURNS, requests), 0);
  const r = await plainPi(rig, server.address().port);
  assert.equal(r.code, 0, r.text);
  return JSON.stringify(requests[0].body);
}

for (const [what, place] of [
  ["a directory .pi", (rig) => bait(rig, "workspace/.pi")],
  [
    "a .pi that is a link",
    (rig) => {
      const markers = bait(rig, "workspace/elsewhere");
      symlinkSync("elsewhere", rig.path("workspace/.pi"));
      return markers;
    },
  ],
])
  test(`nothing of ${what} is run or read`, async () => {
    const rig = new Rig();
    const other = new Rig();
    try {
      const markers = place(rig);
      rig.write("workspace/AGENTS.md", "CANARY-AGENTS");
      rig.write("workspace/CLAUDE.md", "CANARY-CLAUDE");
      await rig.provider(...TURNS);
      const r = await rig.run();
      assert.equal(r.result.status, "completed", r.stderr);
      assert.deepEqual(r.result.tools, [{ name: "bash", status: "ok", count: 1 }]);
      assert.ok(!JSON.stringify(rig.requests).includes("CANARY"));
      assert.equal(rig.requests[0].body.model, "scripted/spec");
      assert.deepEqual(markers.filter((m) => existsSync(m)), []);

      const there = place(other);
      other.write("workspace/AGENTS.md", "CANARY-AGENTS");
      const body = await control(other);
      for (const canary of [...CANARIES, "CANARY-AGENTS"]) assert.ok(body.includes(canary), `control: ${canary}`);
      assert.deepEqual(there.filter((m) => !existsSync(m)), [], "control: everything ran");
    } finally {
      rig.close();
      other.close();
    }
  });

test("what lies in the home and the state directory is no configuration either", async () => {
  const rig = new Rig();
  try {
    const markers = [...bait(rig, "home/.pi/agent"), ...bait(rig, "state/agent"), ...bait(rig, "state/.pi")];
    rig.write("home/.pi/agent/AGENTS.md", "CANARY-HOME");
    rig.write("home/.pi/agent/models.json", JSON.stringify({ providers: { bridle: { baseUrl: "http://127.0.0.1:9/v1" } } }));
    await rig.provider(...TURNS);
    const r = await rig.run(undefined, { PI_CODING_AGENT_DIR: rig.path("home/.pi/agent") });
    assert.equal(r.result.status, "completed", r.stderr);
    assert.ok(!JSON.stringify(rig.requests).includes("CANARY"));
    assert.deepEqual(markers.filter((m) => existsSync(m)), []);
  } finally {
    rig.close();
  }
});

const CONTEXT_MAX = 32 << 10;
const withContext = { contextFiles: true };

for (const [what, shown, make] of [
  ["AGENTS.md", true, (rig) => rig.write("workspace/AGENTS.md", "CANARY text")],
  ["CLAUDE.md", true, (rig) => rig.write("workspace/CLAUDE.md", "CANARY text")],
  ["one as large as may be", true, (rig) => rig.write("workspace/AGENTS.md", "CANARY".padEnd(CONTEXT_MAX, "."))],
  ["a larger one", false, (rig) => rig.write("workspace/AGENTS.md", "CANARY".padEnd(CONTEXT_MAX + 1, "."))],
  ["one that is no text", false, (rig) => writeFileSync(rig.path("workspace/AGENTS.md"), Buffer.from("CANARY\xff", "latin1"))],
  [
    "a link",
    false,
    (rig) => {
      rig.write("elsewhere.md", "CANARY");
      symlinkSync(rig.path("elsewhere.md"), rig.path("workspace/AGENTS.md"));
    },
  ],
  ["a directory", false, (rig) => mkdirSync(rig.path("workspace/AGENTS.md"))],
  ["one above the workspace", false, (rig) => rig.write("AGENTS.md", "CANARY")],
])
  test(`a context file, where the packet says so: ${what}`, async () => {
    const rig = new Rig();
    try {
      make(rig);
      await rig.provider({ text: "Done." });
      const r = await rig.run(withContext);
      assert.equal(r.result.status, "completed", r.stderr);
      assert.equal(JSON.stringify(rig.requests).includes("CANARY"), shown);
    } finally {
      rig.close();
    }
  });
