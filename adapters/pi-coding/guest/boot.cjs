// Starts guest.cjs with the code that V8 made of it when the image was built. Without that, or if this node
// does not take it, the same program runs and begins a third of a second later.
"use strict";
const { readFileSync } = require("node:fs");
const { join } = require("node:path");
const vm = require("node:vm");

process.env.PI_OFFLINE = "1"; // Pi downloads nothing, however much it misses

const file = join(__dirname, "guest.cjs");

function cached() {
  try {
    return readFileSync(join(__dirname, "guest.cache"));
  } catch {
    return undefined;
  }
}

exports.script = function script(cachedData = cached()) {
  const source = readFileSync(file, "latin1"); // it is ASCII
  return new vm.Script(`(function(exports,require,module,__filename,__dirname){${source}\n})`, {
    filename: file,
    cachedData,
    importModuleDynamically: vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  });
};

exports.start = function start(script) {
  const m = { exports: {} };
  script.runInThisContext()(m.exports, require, m, file, __dirname);
};

if (require.main === module) exports.start(exports.script());
