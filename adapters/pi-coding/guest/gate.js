// The inline gate: before each tool call the parent is asked over a socket. Whatever goes wrong is a
// refusal. One connection per question; the question and the answer are frames like the run's.
import { createConnection } from "node:net";

const ANSWER_MAX = 64 << 10;
const REFUSED = { allow: false, reason: "The operator's gate did not allow this call. Do not try it again." };

function exchange(path, question) {
  return new Promise((resolve, reject) => {
    const body = Buffer.from(JSON.stringify(question), "utf8");
    const head = Buffer.alloc(4);
    head.writeUInt32BE(body.length, 0);
    const socket = createConnection({ path });
    let got = Buffer.alloc(0);
    const fail = () => {
      socket.destroy();
      reject(new Error("gate"));
    };
    socket.once("error", fail);
    socket.once("close", fail);
    socket.once("connect", () => socket.write(Buffer.concat([head, body])));
    socket.on("data", (chunk) => {
      got = Buffer.concat([got, chunk]);
      if (got.length > 4 + ANSWER_MAX) return fail();
      if (got.length < 4) return;
      const length = got.readUInt32BE(0);
      if (length > ANSWER_MAX || got.length > 4 + length) return fail();
      if (got.length < 4 + length) return;
      try {
        resolve(JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(got.subarray(4))));
        socket.destroy();
      } catch {
        fail();
      }
    });
  });
}

export function gate(path) {
  return async (tool, input) => {
    try {
      const answer = await exchange(path, { tool, input });
      return answer.decision === "allow" ? { allow: true } : REFUSED;
    } catch {
      return REFUSED;
    }
  };
}
