// Context files of the workspace, when the packet says so: bounded text that goes into the prompt. They
// are read without following a link, from the top of the workspace only, and are never instructions
// to this program.
import { closeSync, constants, fstatSync, openSync, readSync } from "node:fs";

const NAMES = ["AGENTS.md", "CLAUDE.md"];
const BYTES_MAX = 32 << 10;

function readBounded(path) {
  let fd;
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch {
    return undefined;
  }
  try {
    const stat = fstatSync(fd);
    if (!stat.isFile() || stat.size === 0 || stat.size > BYTES_MAX) return undefined;
    const bytes = Buffer.alloc(BYTES_MAX + 1);
    const n = readSync(fd, bytes, 0, bytes.length, 0);
    return n > BYTES_MAX ? undefined : new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(0, n));
  } catch {
    return undefined;
  } finally {
    closeSync(fd);
  }
}

export function contextFiles(packet, paths) {
  if (packet.contextFiles !== true) return [];
  for (const name of NAMES) {
    const path = `${paths.workspace}/${name}`;
    const content = readBounded(path);
    if (content !== undefined) return [{ path, content }];
  }
  return [];
}
