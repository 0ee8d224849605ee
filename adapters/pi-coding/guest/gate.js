// The inline gate: before each tool call the parent is asked over a socket (docs/run-frame.md). Whatever goes
// wrong, and whatever is not exactly the answer `allow` to this question, is a refusal.
import { createConnection } from "node:net";
import { relative } from "node:path";

const ANSWER_MAX = 64 << 10;
const REFUSED = "The operator did not allow this call. Do not try it again.";

function exchange(path, question) {
  return new Promise((resolve, reject) => {
    const body = Buffer.from(JSON.stringify(question), "utf8");
    const head = Buffer.alloc(4);
    head.writeUInt32BE(body.length, 0);
    const socket = createConnection({ path });
    let got = Buffer.alloc(0);
    const fail = () => {
      socket.destroy();
      reject(new Error("no answer"));
    };
    socket.once("error", fail);
    socket.once("close", fail);
    socket.once("connect", () => socket.write(Buffer.concat([head, body])));
    socket.on("data", (chunk) => {
      got = Buffer.concat([got, chunk]);
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

// What is decided about: a command as it is, of everything else the path as the workspace knows it.
function inputOf(tool, input, workspace, resolvePath) {
  if (tool === "bash") return { command: input.command };
  const path = resolvePath(input.path ?? ".", workspace);
  const inside = relative(workspace, path);
  if (inside === "") return {};
  return { path: inside.startsWith("..") ? path : inside };
}

// `ask(id, tool, input)` gives undefined for "allowed", else why not, in words for the model. `resolvePath(path,
// directory)` is how Pi's tools understand a path.
export function gate(path, workspace, resolvePath) {
  return async (id, tool, input) => {
    try {
      const answer = await exchange(path, { id, tool, input: inputOf(tool, input, workspace, resolvePath) });
      if (answer.id === id && answer.decision === "allow") return undefined;
      return answer.id === id && typeof answer.reason === "string" && answer.reason ? answer.reason : REFUSED;
    } catch {
      return REFUSED;
    }
  };
}
