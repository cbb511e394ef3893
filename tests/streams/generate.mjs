// Writes ai-sdk-streams.json and ../../examples/answer.sse: what the real `ai` package 6 does. Same output every time.
import { writeFileSync } from "node:fs";
import { answerSse } from "./answer.mjs";
import { modelScripts } from "./models.mjs";
import { randomChunks } from "./random.mjs";
import { scripts } from "./scripts.mjs";
import { validationChunks } from "./validation.mjs";
import { write } from "./writing.mjs";

const output = process.argv[2] ?? ".";
const answer = process.argv[3] ?? "../../examples/answer.sse";
const RANDOM_STREAMS = 64;

const drawn = Array.from({ length: RANDOM_STREAMS }, (_, index) => ({
  name: `random-${String(index + 1).padStart(2, "0")}`,
  tags: ["random"],
  chunks: randomChunks(index + 1),
  mostCuts: 6,
}));
await write(`${output}/ai-sdk-streams.json`, 6, [...scripts, ...(await modelScripts()), ...drawn], validationChunks());
writeFileSync(answer, await answerSse());
