// What docs/editors.md says to write into an editor's settings is what starts an agent: the JSON and the
// Lua of that page, read as an editor reads them, and the commands that they name.
//
// Environment: also PAGE.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

import { Editor } from "./editor.mjs";

const blocks = [...readFileSync(process.env.PAGE, "utf8").matchAll(/```(\w+)\n(.*?)```/gs)]
  .map(([, language, text]) => ({ language, text }));

// What setup() was given, as the command of the agent in it.
const LUA = `
local given
package.preload["codecompanion"] = function() return { setup = function(o) given = o end } end
package.preload["codecompanion.adapters"] = function()
  return { extend = function(base, o) assert(base == "goose"); return o end }
end
package.preload["avante"] = package.preload["codecompanion"]
assert(load(io.read("a")))()
local words
if given.adapters then
  local adapter = given.adapters.acp[given.interactions.chat.adapter]()
  assert(next(adapter.defaults.mcpServers) == nil)
  words = adapter.commands.default
else
  local p = given.acp_providers[given.provider]
  words = { p.command, table.unpack(p.args) }
end
print(table.concat(words, "\\n"))`;

function commands({ language, text }) {
  if (language === "json") {
    const { command, args, ...more } = JSON.parse(text).agent_servers.Bridle;
    assert.ok(!more.use_idea_mcp && !more.use_custom_mcp);
    return [command, ...args];
  }
  return execFileSync("lua5.4", ["-e", LUA], { input: text }).toString().trim().split("\n");
}

let passed = 0;
for (const block of blocks.filter(({ language }) => language !== "elisp")) {
  const [program, verb, ...args] = commands(block);
  assert.match(program, /^(.*\/)?bridle$/);
  assert.equal(verb, "acp");
  // the page's directory is somebody's own
  const own = args.map((word) => (word.startsWith("/home/") ? process.env.WORKSPACE : word));
  const e = await Editor.open({ via: "stdio", dir: process.env.WORKSPACE }, { args: own.length ? own
    : ["--connect", `unix:${process.env.SOCKET}`] });
  assert.ok(await e.session());
  await e.close();
  console.log(`ok - ${[program, verb, ...args].join(" ")}`);
  passed++;
}
assert.equal(passed, 4);
console.log(`${passed} passed, 0 failed`);
