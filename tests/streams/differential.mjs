// Random streams through the real reducers of both majors: where do they differ, and (for differential.py) what does each make of them?
// node differential.mjs streams.jsonl [count] [first seed]
import { closeSync, openSync, writeSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { randomChunks, spoilt } from "./random.mjs";
import { run } from "./reference.mjs";
import { SDKS } from "./writing.mjs";

const [file, count = "1000", first = "100000"] = process.argv.slice(2);
const ONLY_IN_7 = ["custom", "reasoning-file", "steering-message", "tool-approval-response", "reset-step"];
const CUTS = 5;

async function reading(sdk, chunks, initial) {
  const after = async (consumed) => {
    const { message, fatal } = await run(sdk, chunks.slice(0, consumed), initial);
    return fatal ? { fatal: true } : { message };
  };
  let readable = chunks.length;
  if ((await after(readable)).fatal) {
    let refused = readable;
    for (readable = 0; refused - readable > 1; ) {
      const middle = Math.floor((readable + refused) / 2);
      if ((await after(middle)).fatal) refused = middle;
      else readable = middle;
    }
  }
  const cuts = [];
  for (let number = 1; number <= CUTS; number += 1) {
    const consumed = Math.floor((readable * number) / CUTS);
    cuts.push({ consumed, message: (await after(consumed)).message });
  }
  return { after, readable, cuts };
}

const kinds = [(seed) => randomChunks(seed, 6), (seed) => randomChunks(seed, 7), (seed) => spoilt(seed, 6), (seed) => spoilt(seed, 7)];
const output = openSync(file, "w");
const differences = {};
for (let number = 0; number < Number(count); number += 1) {
  const seed = Number(first) + number;
  const chunks = kinds[number % kinds.length](seed);
  // every eighth one continues what another stream left
  const initial = number % 8 < 4 ? undefined : (await reading(SDKS[7], randomChunks(seed + 1, 6).slice(0, 25))).cuts[CUTS - 2].message;
  const six = await reading(SDKS[6], chunks, initial);
  const seven = await reading(SDKS[7], chunks, initial);
  writeSync(output, `${JSON.stringify({ seed, chunks, ...(initial && { initial }), readings: { 6: { readable: six.readable, cuts: six.cuts }, 7: { readable: seven.readable, cuts: seven.cuts } } })}\n`);
  const known = chunks.filter(({ type }) => !ONLY_IN_7.includes(type));
  const plainly = known.map(({ citations, reason, isAutomatic, ...chunk }) => chunk);
  for (let consumed = 1; consumed <= plainly.length; consumed += 1) {
    const [one, two] = [await run(SDKS[6], plainly.slice(0, consumed), initial), await run(SDKS[7], plainly.slice(0, consumed), initial)];
    if (Boolean(one.fatal) === Boolean(two.fatal) && isDeepStrictEqual(one.message, two.message)) {
      if (one.fatal) break;
      continue;
    }
    const why = `${plainly[consumed - 1].type}${one.fatal ? " (6 refuses)" : two.fatal ? " (7 refuses)" : ""}`;
    differences[why] = (differences[why] ?? 0) + 1;
    break;
  }
}
closeSync(output);
console.log(`${count} streams; the first chunk that the majors read differently, without the chunks and fields that only 7 has:`, differences);
