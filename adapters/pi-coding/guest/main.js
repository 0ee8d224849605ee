// The guest: one run frame on stdin, one result frame on stdout. Whatever else anything here wants to print
// goes nowhere: stdout carries the result, and stderr a few words of this program's own. What an
// exception says never leaves: it may hold anything.
import { writeSync } from "node:fs";
import { readPacket, writeResult } from "./frame.js";
import { checkPacket, resultOf } from "./packet.js";
import { run } from "./run.js";

const EXIT_INVALID = 5;

function nowhere(_chunk, encoding, callback) {
  const done = typeof encoding === "function" ? encoding : callback;
  if (done) process.nextTick(done);
  return true;
}

function say(text) {
  try {
    writeSync(2, `pi-coding: ${text}\n`);
  } catch {
    // nobody listens
  }
}

// A prefix of all paths, for tests that run this program outside of a sandbox. Nothing inside of one can
// choose its arguments.
function pathsOf(argv) {
  const root = argv[0] === "--root" ? argv[1] : "";
  return { workspace: `${root}/workspace`, state: `${root}/state` };
}

let packet;
const receipts = { tools: [], usage: undefined };

function end(outcome) {
  writeResult(1, resultOf(packet, outcome));
  process.exit(0);
}

function fail(error) {
  say(error?.known ? error.message : "the run failed inside of the guest");
  if (packet === undefined) process.exit(EXIT_INVALID);
  end({ completed: false, text: "", tools: receipts.tools, usage: receipts.usage });
}

async function main() {
  process.stdout.write = nowhere;
  process.stderr.write = nowhere;
  process.on("uncaughtException", fail);
  process.on("unhandledRejection", fail);
  try {
    packet = checkPacket(readPacket(0));
    end(await run(packet, pathsOf(process.argv.slice(2)), receipts, say));
  } catch (error) {
    fail(error);
  }
}

void main();
