// Writes ai-sdk-streams.json and ../../examples/answer.sse: what the real `ai` package does. Same output every time.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { answerSse } from "./answer.mjs";
import { modelScripts } from "./models.mjs";
import { randomChunks, randomJsonTexts } from "./random.mjs";
import { chunkVerdict, partialJson, vector } from "./reference.mjs";
import { scripts } from "./scripts.mjs";
import { validationChunks } from "./validation.mjs";

const output = process.argv[2] ?? ".";
const answer = process.argv[3] ?? "../../examples/answer.sse";
const RANDOM_STREAMS = 64;

const DOCUMENTS = ['{"city":"Paris","n":[1,2.5,null],"ok":true}', '[{"a":"\\u00e9\\n"},-1e5,[[]],{}]', '"plain \\"text\\" 😀"', " [ 1 , { \"k\" : false } ] "];
const ODD_TEXTS = [
  "", " ", "x", "NaN", "[NaN", "Infinity", "-Infinity", "undefined", "-", "-0", "01", "1.", "1e", "1e5", "1E+", "+1", ".5", "1e999", "[1e999", "9007199254740991", "123456789012345678901234567890",
  "nul", "null", "nullx", "t", "tr", "trux", "f", "fals", "false]", "[t", "[tr,", '{"a":t', '{"a":trx', "[1 2", "[1x", "[1,", "[1,,2", "[,", "[]]", "{}}", "{,", "{a", "{1",
  '{"a"', '{"a":', '{"a" 1', '{"a":1,', '{"a":1,}', '{"a":1 "b":2', '{"a":1]', "[1}", '{"a\\"b":1', '{"a\\', '"a\\', '"a\\u', '"a\\u12', '"a\\u12zz', '"a\\u00e9', '"a\\x', '"tab\t', '"line\n', '"nul\u0000', '"\u007f', "'a'", "// c", "[1] 2", "[1]x", "\ufeff1", "\u00a01",
  '{"__proto__":1}', '{"__proto__', '{"__proto__"', '{"a":{"__proto__":{"x":1}}}', '{"\\u005f_proto__":1}', '{"x":"__proto__"}', '["__proto__"]', '{"constructor":1}', '{"constructor":{"prototype":1}}', '{"constructor":{"prototype"', '{"constructor":[{"prototype":1}]}', '{"constructor":{"a":{"constructor":{"prototype":null}}}}',
  '{"a":1,"a":2}', '{"constructor":{"prototype":1},"constructor":1}', '{"__proto__":1,"a":2', '{"":1}', '"\ud83d', '"\ude00"', '"\ud83d\\ude00"', '"\\ud83d\ude00"', '"\\ud83d\\ude00"', '["\\ud83d', '{"\ud83d\\ude00":1}', '{"a":"\u2028"}', "[".repeat(30), "[".repeat(30) + "1" + "]".repeat(29), '{"a":'.repeat(20), '{"a":['.repeat(10) + '"x',
];

const prefixes = DOCUMENTS.flatMap((text) => Array.from({ length: text.length + 1 }, (_, end) => text.slice(0, end)));
const texts = [...new Set([...ODD_TEXTS, ...prefixes, ...randomJsonTexts(7, 220)])];

const vectors = [];
for (const script of [...scripts, ...(await modelScripts())]) vectors.push(await vector(script));
for (let seed = 1; seed <= RANDOM_STREAMS; seed += 1) {
  const name = `random-${String(seed).padStart(2, "0")}`;
  vectors.push(await vector({ name, tags: ["random"], chunks: randomChunks(seed), mostCuts: 6 }));
}
const partial_json = [];
for (const text of texts) partial_json.push(await partialJson(text));
const chunk_validation = [];
for (const chunk of validationChunks()) chunk_validation.push(await chunkVerdict(chunk));

const sdk = JSON.parse(readFileSync(createRequire(import.meta.url).resolve("ai/package.json"), "utf8"));
const meta = { package: "ai", version: sdk.version, vectors: vectors.length, partial_json: partial_json.length, chunk_validation: chunk_validation.length };
const lines = (items) => `[\n${items.map((item) => JSON.stringify(item)).join(",\n")}\n]`;
const document = { meta: JSON.stringify(meta), vectors: lines(vectors), partial_json: lines(partial_json), chunk_validation: lines(chunk_validation) };
writeFileSync(`${output}/ai-sdk-streams.json`, `{\n${Object.entries(document).map(([key, text]) => `"${key}": ${text}`).join(",\n")}\n}\n`);
writeFileSync(answer, await answerSse());
