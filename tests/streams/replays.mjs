// Writes ai-sdk-replays.json: whether the real reducers rebuild the messages from the chunks that replaying.py wrote.
// node replays.mjs replays.json ai-sdk-replays.json
import { readFileSync, writeFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { run, verdict } from "./reference.mjs";
import { SDKS } from "./writing.mjs";

const [source, target] = process.argv.slice(2);
const lines = [];
for (const { name, major, message, chunks, digest } of JSON.parse(readFileSync(source, "utf8"))) {
  const rebuilt = await run(SDKS[major], chunks);
  const { valid } = rebuilt.fatal ? { valid: [] } : await verdict(SDKS, rebuilt);
  const found = { digest, rebuilt: !rebuilt.fatal && isDeepStrictEqual(rebuilt.message, message), valid: valid.includes(major) };
  lines.push(`${JSON.stringify(name)}: ${JSON.stringify(found)}`);
}
writeFileSync(target, `{\n${lines.join(",\n")}\n}\n`);
