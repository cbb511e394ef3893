// How a file of vectors is made and written, for either major release of the `ai` package.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import * as six from "ai";
import * as seven from "ai7";
import { chunkVerdict, partialJson, vector } from "./reference.mjs";
import { texts } from "./texts.mjs";

export const SDKS = { 6: six, 7: seven };

const lines = (items) => `[\n${items.map((item) => JSON.stringify(item)).join(",\n")}\n]`;

async function each(items, one) {
  const made = [];
  for (const item of items) made.push(await one(item));
  return made;
}

export async function write(file, major, scripts, chunks) {
  const sdk = SDKS[major];
  const vectors = await each(scripts, (script) => vector(sdk, SDKS, script));
  const partial_json = await each(texts, (text) => partialJson(sdk, text));
  const chunk_validation = await each(chunks, (chunk) => chunkVerdict(sdk, chunk));
  const name = major === 6 ? "ai" : "ai7";
  const { version } = JSON.parse(readFileSync(createRequire(import.meta.url).resolve(`${name}/package.json`), "utf8"));
  const meta = { package: "ai", version, vectors: vectors.length, partial_json: partial_json.length, chunk_validation: chunk_validation.length };
  const document = { meta: JSON.stringify(meta), vectors: lines(vectors), partial_json: lines(partial_json), chunk_validation: lines(chunk_validation) };
  writeFileSync(file, `{\n${Object.entries(document).map(([key, text]) => `"${key}": ${text}`).join(",\n")}\n}\n`);
}
