// Pi's session files: <time>_<id>.jsonl. A session is resumed by its id or not at all.
import { readdirSync } from "node:fs";
import { KnownError } from "./packet.js";

export function findSession(directory, id) {
  const found = readdirSync(directory, { withFileTypes: true }).filter(
    (entry) => entry.isFile() && entry.name.endsWith(`_${id}.jsonl`),
  );
  if (found.length !== 1) throw new KnownError("the session is not in this state");
  return `${directory}/${found[0].name}`;
}
