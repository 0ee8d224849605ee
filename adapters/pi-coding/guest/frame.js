// The run frame: 4 bytes of length (big-endian), then so many bytes of JSON in UTF-8 (docs/frames.md).
// One is read from stdin, which ends behind it; one is written to stdout, and nothing else ever is.
import { readSync, writeSync } from "node:fs";
import { KnownError } from "./packet.js";

const PACKET_MAX = 4 << 20; // a prompt, a system prompt and names; the parent's own ceiling is lower

function fill(fd, buffer, from) {
  for (let at = from; at < buffer.length; ) {
    let n;
    try {
      n = readSync(fd, buffer, at, buffer.length - at, null);
    } catch (error) {
      if (error.code === "EAGAIN" || error.code === "EINTR") continue;
      throw new KnownError("stdin cannot be read");
    }
    if (n === 0) return at;
    at += n;
  }
  return buffer.length;
}

export function readPacket(fd) {
  const head = Buffer.alloc(4);
  if (fill(fd, head, 0) !== 4) throw new KnownError("the frame has no length");
  const length = head.readUInt32BE(0);
  if (length === 0 || length > PACKET_MAX) throw new KnownError("the frame has a length that no packet has");
  const body = Buffer.alloc(length);
  if (fill(fd, body, 0) !== length) throw new KnownError("the frame is shorter than its length");
  if (fill(fd, Buffer.alloc(1), 0) !== 0) throw new KnownError("something follows the frame");
  let packet;
  try {
    packet = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
  } catch {
    throw new KnownError("the frame is not JSON in UTF-8");
  }
  return packet;
}

export function writeResult(fd, result) {
  const body = Buffer.from(JSON.stringify(result), "utf8");
  const frame = Buffer.alloc(4 + body.length);
  frame.writeUInt32BE(body.length, 0);
  body.copy(frame, 4);
  for (let at = 0; at < frame.length; ) {
    try {
      at += writeSync(fd, frame, at, frame.length - at);
    } catch (error) {
      if (error.code !== "EAGAIN" && error.code !== "EINTR") throw error;
    }
  }
}
