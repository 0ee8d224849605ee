// A provider on loopback that speaks all three dialects and always says the same, for tests that go through
// the broker. `node upstream.mjs FILE [TURNS]`: writes its port to FILE, and a line for each request to FILE.log.
// TURNS: a JSON file of what it says, one turn after another (rig.mjs).
import { appendFileSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { play } from "./rig.mjs";

const [file, turns] = process.argv.slice(2);
const requests = {
  length: 0,
  push({ path, headers, body }) {
    requests.length++;
    const row = {
      path: path.replace("?beta=true", ""),
      key: headers.authorization ?? headers["x-api-key"],
      model: body.model,
      canary: JSON.stringify(body).includes("CANARY"),
    };
    appendFileSync(`${file}.log`, `${JSON.stringify(row)}\n`);
  },
};
const server = play(turns ? JSON.parse(readFileSync(turns)) : [{ text: "It is said." }], requests);
server.listen(0, "127.0.0.1", () => {
  writeFileSync(`${file}.new`, String(server.address().port));
  renameSync(`${file}.new`, file);
});
process.on("SIGTERM", () => process.exit(0));
