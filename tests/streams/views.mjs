// Adds to ai-sdk-views.json what convertToModelMessages of the installed `ai` package makes of each view, with its defaults.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { convertToModelMessages, validateUIMessages } from "ai";

const file = process.argv[2] ?? "ai-sdk-views.json";
const { version } = JSON.parse(readFileSync(createRequire(import.meta.url).resolve("ai/package.json"), "utf8"));
const document = JSON.parse(readFileSync(file, "utf8"));
document.versions = [...document.versions.filter((known) => known.split(".")[0] !== version.split(".")[0]), version].sort();
for (const { view, model } of document.views) {
  await validateUIMessages({ messages: view });
  model[version.split(".")[0]] = JSON.parse(JSON.stringify(await convertToModelMessages(view)));
}
const lines = document.views.map((one) => JSON.stringify(one)).join(",\n");
writeFileSync(file, `{\n"versions": ${JSON.stringify(document.versions)},\n"views": [\n${lines}\n]\n}\n`);
