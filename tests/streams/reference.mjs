// What the real reducer of the `ai` package makes of a list of chunks.
import { asSchema, parsePartialJson, readUIMessageStream, uiMessageChunkSchema } from "ai";

export const plain = (value) => JSON.parse(JSON.stringify(value));

// The reducer emits no state after a chunk like start-step, so a file part is fed last and taken off again.
const PROBE = { type: "file", url: "probe:", mediaType: "x/probe" };

async function run(chunks, initial) {
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
  for await (const state of readUIMessageStream({ message: initial && plain(initial), stream, onError })) last = state;
  if (fatal) return { fatal, errorTexts };
  last.parts.pop();
  return { message: plain(last), errorTexts, fatal };
}

function thinned(count, most) {
  const all = Array.from({ length: count }, (_, index) => index + 1);
  return count <= most ? all : all.filter((k) => k === count || Math.floor((k * most) / count) > Math.floor(((k - 1) * most) / count));
}

export async function vector({ name, tags, note, initial, chunks, mostCuts = 14 }) {
  let readable = chunks.length;
  let fatal = null;
  if ((await run(chunks, initial)).fatal) {
    for (readable = 0; !fatal; readable += 1) {
      const { fatal: error } = await run(chunks.slice(0, readable + 1), initial);
      if (error) fatal = { at: readable, chunkType: error.chunkType, chunkId: error.chunkId };
    }
    readable = fatal.at;
  }
  const after = (count) => run(chunks.slice(0, count), initial);
  const cuts = [];
  for (const consumed of thinned(readable, mostCuts)) cuts.push({ consumed, message: (await after(consumed)).message });
  const previous = [];
  for (let at = 0; at < readable; at += 1) {
    if (chunks[at].type !== "start" || chunks[at].messageId == null) continue;
    const { message } = await after(at);
    if (message.id !== chunks[at].messageId && (message.id !== "" || message.parts.length > 0)) previous.push(message);
  }
  const { message, errorTexts } = await after(readable);
  return {
    name,
    tags,
    ...(note && { note }),
    ...(initial && { initial }),
    chunks,
    message,
    ...(previous.length > 0 && { previous_messages: previous }),
    error_texts: errorTexts,
    fatal,
    cuts,
  };
}

export async function partialJson(text) {
  const { value, state } = await parsePartialJson(text);
  return plain({ text, state, value });
}

export async function chunkVerdict(chunk) {
  return { chunk, accepted: (await asSchema(uiMessageChunkSchema).validate(chunk)).success };
}
