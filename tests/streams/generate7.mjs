// Writes ai-sdk-7-streams.json: what the real `ai` package 7 does. Same output every time.
import { modelScripts } from "./models7.mjs";
import { randomChunks, spoilt } from "./random.mjs";
import { scripts } from "./scripts7.mjs";
import { validationChunks } from "./validation.mjs";
import { write } from "./writing.mjs";

const output = process.argv[2] ?? ".";
const RANDOM_STREAMS = 64;
const SPOILT_STREAMS = 32;

const numbered = (name, index) => `${name}-${String(index + 1).padStart(2, "0")}`;
const drawn = Array.from({ length: RANDOM_STREAMS }, (_, index) => ({ name: numbered("random", index), tags: ["random"], chunks: randomChunks(1000 + index, 7), mostCuts: 6 }));
const hostile = Array.from({ length: SPOILT_STREAMS }, (_, index) => ({ name: numbered("spoilt", index), tags: ["spoilt"], chunks: spoilt(2000 + index, 7), mostCuts: 6 }));
await write(`${output}/ai-sdk-7-streams.json`, 7, [...scripts, ...(await modelScripts()), ...drawn, ...hostile], validationChunks(7));
