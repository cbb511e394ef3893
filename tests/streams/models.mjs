// Streams that the real streamText produces over a mock model: nothing here is written chunk by chunk.
import { convertToModelMessages, createUIMessageStream, dynamicTool, jsonSchema, smoothStream, stepCountIs, streamText, tool } from "ai";
import { MockLanguageModelV3, convertArrayToReadableStream, mockId } from "ai/test";

globalThis.AI_SDK_LOG_WARNINGS = false;

const object = (properties) => jsonSchema({ type: "object", properties, required: Object.keys(properties) });
const CITY = object({ city: { type: "string" } });

const tools = {
  weather: tool({ title: "Weather", inputSchema: CITY, execute: async ({ city }) => ({ city, celsius: 21.5, sky: ["clear", null] }) }),
  broken: tool({
    inputSchema: CITY,
    execute: async () => {
      throw new Error("upstream timed out");
    },
  }),
  progress: tool({
    inputSchema: CITY,
    async *execute({ city }) {
      yield { city, done: 0 };
      yield { city, done: 50 };
      yield { city, done: 100 };
    },
  }),
  remove: tool({ inputSchema: CITY, needsApproval: true, execute: async ({ city }) => `removed ${city}` }),
  client: tool({ inputSchema: CITY }),
  anything: dynamicTool({ inputSchema: jsonSchema({ type: "object" }), execute: async (input) => ({ echoed: input }) }),
};

export const say = (id, words, more) => [{ type: "text-start", id, ...more }, ...words.map((delta) => ({ type: "text-delta", id, delta })), { type: "text-end", id }];
export const think = (id, words, more) => say(id, words, more).map((part) => ({ ...part, type: part.type.replace("text", "reasoning") }));
export function call(id, toolName, input, { pieces = 3, ...more } = {}) {
  const text = typeof input === "string" ? input : JSON.stringify(input);
  const size = Math.ceil(text.length / pieces);
  const deltas = Array.from({ length: pieces }, (_, index) => ({ type: "tool-input-delta", id, delta: text.slice(index * size, (index + 1) * size) }));
  const streamed = [{ type: "tool-input-start", id, toolName, ...more }, ...deltas, { type: "tool-input-end", id }];
  return [...(pieces ? streamed : []), { type: "tool-call", toolCallId: id, toolName, input: text, ...more }];
}
const result = (toolCallId, toolName, value, more) => ({ type: "tool-result", toolCallId, toolName, result: value, ...more });
export const url = (id) => ({ type: "source", sourceType: "url", id, url: `https://example.org/${id}`, title: `Page ${id}` });
export const doc = (id) => ({ type: "source", sourceType: "document", id, mediaType: "application/pdf", title: `Report ${id}`, filename: `${id}.pdf` });
const file = { type: "file", mediaType: "image/png", data: "iVBORw0KGgo=" };

function modelOf(steps) {
  let turn = 0;
  const doStream = async () => {
    const parts = steps[turn];
    turn += 1;
    const calls = parts.some((part) => part.type === "tool-call");
    const usage = { inputTokens: { total: 10 * turn, noCache: 10 * turn, cacheRead: 0, cacheWrite: 0 }, outputTokens: { total: 5, text: 5, reasoning: 0 } };
    const head = [{ type: "stream-start", warnings: [] }, { type: "response-metadata", id: `r${turn}`, modelId: "mock", timestamp: new Date(0) }];
    return { stream: convertArrayToReadableStream([...head, ...parts, { type: "finish", usage, finishReason: { unified: calls ? "tool-calls" : "stop", raw: undefined } }]) };
  };
  return new MockLanguageModelV3({ doStream });
}

export function streamOf(steps, { messages, more, id = "m1", ui } = {}) {
  const input = messages ? { messages } : { prompt: "What is the weather?" };
  const answer = streamText({ model: modelOf(steps), tools, stopWhen: stepCountIs(6), onError: () => {}, ...input, ...more, _internal: { generateId: mockId({ prefix: "gen" }), now: () => 0 } });
  return answer.toUIMessageStream({ sendSources: true, generateMessageId: () => id, onError: (error) => String(error?.message ?? error), ...ui });
}

export async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(JSON.parse(JSON.stringify(chunk)));
  return chunks;
}

const usageMetadata = {
  messageMetadata: ({ part }) => {
    if (part.type === "start") return { model: "mock", timing: { started: 1 } };
    if (part.type === "finish-step") return { timing: { steps: { last: part.finishReason } } };
    if (part.type === "finish") return { totalUsage: part.totalUsage, timing: { finished: 2 } };
    return undefined;
  },
};
const paris = { city: "Paris" };
const meta = (value) => ({ providerMetadata: { mock: value } });

const runs = {
  "text-only": [[say("0", ["Hel", "lo ", "wor", "ld"])]],
  "text-two-parts": [[[...say("0", ["one"]), ...say("1", ["two"])]].flat()],
  "text-interleaved": [[{ type: "text-start", id: "a" }, { type: "text-start", id: "b" }, { type: "text-delta", id: "a", delta: "A" }, { type: "text-delta", id: "b", delta: "B" }, { type: "text-end", id: "b" }, { type: "text-delta", id: "a", delta: "A" }, { type: "text-end", id: "a" }]],
  "reasoning-then-text": [[[...think("r", ["Let me ", "think"], meta({ signature: "s1" })), ...say("0", ["Done."], meta({ item: 1 }))]].flat()],
  "reasoning-hidden": [[[...think("r", ["secret"]), ...say("0", ["Done."])]].flat(), { ui: { sendReasoning: false } }],
  "sources-and-file": [[[...say("0", ["See "]), url("a"), doc("b"), url("a"), file]].flat()],
  "metadata-merged": [[say("0", ["Hi"])], { ui: usageMetadata }],
  "metadata-over-steps": [[call("c1", "weather", paris), say("0", ["Sunny."])], { ui: usageMetadata }],
  "tool-one-step": [[call("c1", "weather", paris), say("0", ["21 degrees."])]],
  "tool-unstreamed": [[call("c1", "weather", paris, { pieces: 0 }), say("0", ["21 degrees."])]],
  "tool-parallel": [[[...call("c1", "weather", paris), ...call("c2", "weather", { city: "Oslo" }, { pieces: 5 })], say("0", ["Both."])]],
  "tool-same-id-three-steps": [[call("call_0", "weather", paris), call("call_0", "weather", { city: "Rome" }), call("call_0", "broken", paris), say("0", ["Tried."])]],
  "tool-throws": [[call("c1", "broken", paris), say("0", ["Sorry."])]],
  "tool-mixed-outcomes": [[[...say("0", ["Trying "]), ...call("c1", "broken", paris), ...call("c2", "weather", paris)], say("0", ["Half."])]],
  "tool-invalid-json": [[call("c1", "weather", '{"city":"Par'), say("0", ["Oops."])]],
  "tool-unknown-name": [[call("c1", "nosuch", paris), say("0", ["Oops."])]],
  "tool-preliminary": [[call("c1", "progress", paris), say("0", ["Done."])]],
  "tool-client-side": [[[...say("0", ["Asking"]), ...call("c1", "client", paris)]].flat()],
  "tool-dynamic": [[call("c1", "anything", { a: [1, { b: null }] }, { dynamic: true }), say("0", ["ok"])]],
  "tool-text-encoding": [[[{ type: "tool-input-start", id: "c1", toolName: "weather", inputEncoding: "text" }, { type: "tool-input-delta", id: "c1", delta: "city: " }, { type: "tool-input-delta", id: "c1", delta: "Paris" }, { type: "tool-input-end", id: "c1" }, { type: "tool-call", toolCallId: "c1", toolName: "weather", input: '{"city":"Paris"}' }], say("0", ["ok"])]],
  "tool-provider-executed": [[[...call("c1", "search", { q: "x" }, { providerExecuted: true, dynamic: true, ...meta({ a: 1 }) }), result("c1", "search", [1], { dynamic: true, ...meta({ b: 2 }) }), ...say("0", ["Found."])]].flat()],
  "tool-provider-error": [[[...call("c1", "search", { q: "x" }, { providerExecuted: true, dynamic: true }), result("c1", "search", "no quota", { isError: true, dynamic: true }), ...say("0", ["None."])]].flat()],
  "tool-needs-approval": [[[...say("0", ["May I?"]), ...call("c1", "remove", paris)]].flat()],
  "tool-two-approvals": [[[...call("c1", "remove", paris), ...call("c2", "remove", { city: "Oslo" }), ...call("c3", "weather", paris)]].flat()],
  "model-error-mid-text": [[[{ type: "text-start", id: "0" }, { type: "text-delta", id: "0", delta: "par" }, { type: "error", error: new Error("overloaded") }]].flat()],
  "smoothed-words": [[say("0", ["The quick ", "brown fox ", "jumps over", " the lazy dog. Twice."])], { more: { experimental_transform: smoothStream({ delayInMs: null }) } }],
  "everything": [[[...think("r", ["Plan: ", "look"], meta({ s: 1 })), ...say("0", ["Looking."]), ...call("c1", "weather", paris), ...call("c2", "progress", paris)], [...think("r", ["Again"]), ...call("c1", "broken", paris)], [url("a"), doc("b"), file, ...say("0", ["So: ", "21."])]], { ui: usageMetadata }],
};

async function approvalAnswered(name, approved) {
  const part = { type: "tool-remove", toolCallId: "c1", state: "approval-responded", input: paris, approval: { id: "gen-0", approved, ...(approved ? {} : { reason: "no" }) } };
  const initial = { id: "m1", role: "assistant", parts: [{ type: "step-start" }, part] };
  const asked = [{ id: "u1", role: "user", parts: [{ type: "text", text: "remove Paris" }] }, initial];
  const messages = await convertToModelMessages(asked, { tools });
  const chunks = await collect(streamOf([say("0", ["All right."])], { messages, ui: { originalMessages: asked } }));
  return { name, tags: ["streamText", "resume", "approval"], initial, chunks };
}

async function aborted() {
  const controller = new AbortController();
  const chunks = [];
  const stream = streamOf([say("0", Array(20).fill("word "))], { more: { abortSignal: controller.signal } });
  for await (const chunk of stream) {
    chunks.push(JSON.parse(JSON.stringify(chunk)));
    if (chunks.length === 6) controller.abort();
  }
  return { name: "streamText-aborted", tags: ["streamText", "abort"], chunks };
}

async function withWriter() {
  const stream = createUIMessageStream({
    generateId: () => "m1",
    execute: ({ writer }) => {
      writer.write({ type: "data-plan", id: "p", data: { steps: 2 } });
      writer.write({ type: "data-note", data: "seen once", transient: true });
      writer.merge(streamOf([call("c1", "weather", paris), say("0", ["Sunny."])], { ui: { sendStart: true } }));
    },
  });
  return { name: "streamText-merged-into-writer", tags: ["streamText", "data"], chunks: await collect(stream) };
}

export async function modelScripts() {
  const scripts = [];
  for (const [name, [steps, options]] of Object.entries(runs)) {
    // A run is a list of steps; a single list of stream parts is one step.
    const list = Array.isArray(steps[0]) ? steps : [steps];
    scripts.push({ name: `streamText-${name}`, tags: ["streamText", name.split("-")[0]], chunks: await collect(streamOf(list, options)) });
  }
  scripts.push(await approvalAnswered("streamText-approved", true), await approvalAnswered("streamText-refused", false));
  scripts.push(await aborted(), await withWriter());
  return scripts;
}
