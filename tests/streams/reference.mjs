// What the real reducer of the `ai` package makes of a list of chunks. Each function takes the package, 6 or 7, first.
import { isDeepStrictEqual } from "node:util";

export const plain = (value) => JSON.parse(JSON.stringify(value));

// The reducer emits no state after a chunk like start-step, so a file part is fed last and taken off again.
const PROBE = { type: "file", url: "probe:", mediaType: "x/probe" };

export async function run(sdk, chunks, initial) {
  const stream = new ReadableStream({
    start(controller) {
      chunks.concat(PROBE).forEach((chunk) => controller.enqueue(plain(chunk)));
      controller.close();
    },
  });
  const errorTexts = [];
  let last = null;
  let fatal = null;
  const onError = (error) => {
    if (error.name !== "AI_UIMessageStreamError") errorTexts.push(error.message);
    else fatal ??= error; // reported twice: by the transform and by its consumer
  };
  for await (const state of sdk.readUIMessageStream({ message: initial && plain(initial), stream, onError })) last = state;
  if (fatal) return { fatal, errorTexts };
  last.parts.pop();
  return { message: plain(last), live: last, errorTexts, fatal };
}

// The majors whose validator accepts a message as JSON, and those for which the JSON converts to the same model messages as the
// reducer's own object. AI SDK 7 reads the rawInput of 6, and says so on the console.
export async function verdict(sdks, { message, live }) {
  const valid = [];
  const converts = [];
  console.warn = () => {};
  for (const [major, sdk] of Object.entries(sdks)) {
    if (!(await sdk.safeValidateUIMessages({ messages: [message] })).success) continue;
    valid.push(Number(major));
    const model = async (one) => {
      try {
        return plain(await sdk.convertToModelMessages([one]));
      } catch (error) {
        return String(error);
      }
    };
    if (isDeepStrictEqual(await model(message), await model(live))) converts.push(Number(major));
  }
  return { valid, converts };
}

function thinned(count, most) {
  const all = Array.from({ length: count }, (_, index) => index + 1);
  return count <= most ? all : all.filter((k) => k === count || Math.floor((k * most) / count) > Math.floor(((k - 1) * most) / count));
}

export async function vector(sdk, sdks, { name, tags, note, initial, chunks, mostCuts = 14 }) {
  let readable = chunks.length;
  let fatal = null;
  if ((await run(sdk, chunks, initial)).fatal) {
    for (readable = 0; !fatal; readable += 1) {
      const { fatal: error } = await run(sdk, chunks.slice(0, readable + 1), initial);
      if (error) fatal = { at: readable, chunkType: error.chunkType, chunkId: error.chunkId };
    }
    readable = fatal.at;
  }
  const after = (count) => run(sdk, chunks.slice(0, count), initial);
  const cuts = [];
  for (const consumed of thinned(readable, mostCuts)) cuts.push({ consumed, message: (await after(consumed)).message });
  const previous = [];
  for (let at = 0; at < readable; at += 1) {
    if (chunks[at].type !== "start" || chunks[at].messageId == null) continue;
    const { message } = await after(at);
    if (message.id !== chunks[at].messageId && (message.id !== "" || message.parts.length > 0)) previous.push(message);
  }
  const ended = await after(readable);
  return {
    name,
    tags,
    ...(note && { note }),
    ...(initial && { initial }),
    chunks,
    message: ended.message,
    ...(await verdict(sdks, ended)),
    ...(previous.length > 0 && { previous_messages: previous }),
    error_texts: ended.errorTexts,
    fatal,
    cuts,
  };
}

export async function partialJson(sdk, text) {
  const { value, state } = await sdk.parsePartialJson(text);
  return plain({ text, state, value });
}

export async function chunkVerdict(sdk, chunk) {
  return { chunk, accepted: (await sdk.asSchema(sdk.uiMessageChunkSchema).validate(chunk)).success };
}
