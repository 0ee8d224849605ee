// Makes guest.cjs, the one file that the guest is: this adapter's sources and what they use of the pinned
// packages. `node build.mjs MODULES OUT`, where MODULES is a directory with what packages.txt names.
//
// What a run never needs is left out on purpose: the loader of extensions (so that no code of a workspace
// could be loaded even by mistake), other providers' clients, signing in, pictures, the terminal.
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

// esbuild is one of the packages
const { build } = createRequire(join(resolve(process.argv[2]), "x.js"))("esbuild");
const here = dirname(fileURLToPath(import.meta.url));
const modules = resolve(process.argv[2]);
const pi = join(modules, "@earendil-works/pi-coding-agent/dist");

const ABSENT_PACKAGES =
  /^(@aws-sdk\/|@google\/genai|@silvia-odwyer\/|@smithy\/|highlight\.js|https?-proxy-agent|jiti|lovely-mermaid|quickjs-wasi)/;
const ABSENT_FILES = [
  /pi-coding-agent\/dist\/utils\/syntax-highlight\.js$/,
  /pi-coding-agent\/dist\/core\/extensions\/(virtual-modules|jiti-static-loader|jiti-loader)\.js$/,
  /pi-coding-agent\/dist\/extensions\/(codemode|mcp|llama|tool-search)\/index\.js$/,
  /pi-ai\/dist\/auth\/oauth\/(?!load\.js)[a-z-]+\.js$/,
  /pi-ai\/dist\/api\/(google|bedrock|mistral|azure|cloudflare|typesafe|llama|openrouter|openai-codex|openai-decisions)[a-z-]*\.js$/,
];
const empty = { contents: "module.exports = {};", loader: "js" };

const plugin = {
  name: "pi",
  setup(b) {
    b.onResolve({ filter: /^pi\// }, (a) => ({ path: join(pi, a.path.slice(3)) }));
    b.onResolve({ filter: ABSENT_PACKAGES }, (a) => ({ path: a.path, namespace: "absent" }));
    b.onLoad({ filter: /.*/, namespace: "absent" }, () => empty);
    // the catalogs of all other providers' models
    b.onLoad({ filter: /\/pi-ai\/dist\/providers\/data\/[a-z-]+\.json$/ }, () => ({ contents: "{}", loader: "json" }));
    b.onLoad({ filter: /\/(pi-ai|pi-coding-agent)\/dist\/.*\.js$/ }, (a) => {
      return ABSENT_FILES.some((re) => re.test(a.path)) ? empty : undefined;
    });
  },
};

await build({
  entryPoints: [join(here, "guest/main.js")],
  outfile: resolve(process.argv[3]),
  bundle: true,
  platform: "node",
  target: "node24",
  format: "cjs",
  nodePaths: [modules],
  plugins: [plugin],
  define: { "import.meta.url": "__bundle_url" },
  banner: { js: 'const __bundle_url = require("node:url").pathToFileURL(__filename).href;' },
  legalComments: "none",
  minifySyntax: true,
  minifyWhitespace: true,
  charset: "ascii", // one byte a character: read and kept as it is
  metafile: process.argv[4] !== undefined,
  logLevel: "warning",
  logOverride: { "import-is-undefined": "silent" }, // of what was left out
}).then(async (r) => {
  if (!r.metafile) return;
  const { writeFileSync } = await import("node:fs");
  writeFileSync(process.argv[4], JSON.stringify(r.metafile));
});
