// One run of the guest without a cache, which leaves what V8 compiled on the way: bake.mjs starts it.
"use strict";
const { writeFileSync } = require("node:fs");
const { join } = require("node:path");
const boot = require("./boot.cjs");

const script = boot.script(undefined);
const { exit } = process;
process.exit = (code) => {
  if (code === 0) writeFileSync(join(__dirname, "guest.cache"), script.createCachedData());
  exit(code);
};
boot.start(script);
