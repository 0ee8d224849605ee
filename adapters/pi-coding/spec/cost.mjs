// What a run of Pi costs in Bridle: by turns, the guest outside of a sandbox before a provider on a Unix socket,
// and `bridle run` before the scripted one, each with one tool call. Prints the medians in milliseconds, "BARE
// BRIDLE". Started by bridle-bench; PI_CACHE is what prepare.sh made, the arguments are the directory of the
// programs, an empty one to work in, and how often.
import { execFileSync } from "node:child_process";
import { chmodSync, chownSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { cache, Rig } from "./rig.mjs";

const [bin, scratch, times] = process.argv.slice(2);
const text = { path: "made.txt", content: "made" };
const state = join(scratch, "state");
const workspace = join(scratch, "project");
const env = { PATH: process.env.PATH, HOME: scratch, BRIDLE_STATE_DIR: state };
const bridle = (...words) => execFileSync(join(bin, "bridle"), words, { cwd: scratch, env, stdio: ["ignore", "pipe", "pipe"] });

mkdirSync(state, { mode: 0o700 });
execFileSync("cp", ["-a", join(cache, "state/images"), state]);
mkdirSync(workspace);
writeFileSync(join(workspace, "a.txt"), "a\n");
for (const path of [workspace, join(workspace, "a.txt")]) chownSync(path, 1000, 1000);
chmodSync(scratch, 0o755);
writeFileSync(
  join(scratch, "bridle.lua"),
  "return { api = 1, adapters = { ['pi-coding@1'] = { profiles = { 'workspace-v1' }, image = 'pi-coding' } } }\n",
);
writeFileSync(
  join(scratch, "scenario.json"),
  JSON.stringify({
    v: 1,
    name: "cost",
    turns: [
      { when: { assistant_messages: 0 }, text: "I write.", tool_calls: [{ name: "write", arguments: text }] },
      { when: {}, text: "Done." },
    ],
  }),
);
bridle("image", "verify"); // a copy is not yet known; else each launch would read all of it
bridle("activate", "workspace-v1", "--image", "pi-coding");

async function bare() {
  const rig = new Rig();
  try {
    await rig.provider({ calls: [["write", text]] }, { text: "Done." });
    const from = performance.now();
    const { result } = await rig.run();
    if (result?.status !== "completed") throw new Error("the guest by itself did not complete");
    return performance.now() - from;
  } finally {
    rig.close();
  }
}

function inBridle() {
  const from = performance.now();
  const words = ["--json", "-C", workspace, "--profile", "workspace-v1", "--config", "bridle.lua"];
  const said = bridle("run", ...words, "-a", "pi-coding@1", "--scenario", "scenario.json", "write it");
  const ms = performance.now() - from;
  if (!said.includes('"status":"completed"')) throw new Error("the run did not complete");
  bridle("state", "purge", "--all");
  return ms;
}

const median = (list) => list.sort((a, b) => a - b)[Math.floor(list.length / 2)];
const [alone, run] = [[], []];
await bare();
inBridle();
for (let i = 0; i < Number(times); i++) {
  alone.push(await bare());
  run.push(inBridle());
}
console.log(median(alone).toFixed(1), median(run).toFixed(1));
