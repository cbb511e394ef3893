// Streams that the real streamText of AI SDK 7 produces over a mock model, with its approvals, citations, files and steering.
import { convertToModelMessages, createUIMessageStream, dynamicTool, experimental_createSteering, isStepCount, jsonSchema, streamText, tool } from "ai7";
import { MockLanguageModelV4, convertArrayToReadableStream, mockId } from "ai7/test";
import { call, collect, doc, say, think, url } from "./models.mjs";

const CITY = jsonSchema({ type: "object", properties: { city: { type: "string" } }, required: ["city"] });
const paris = { city: "Paris" };
const meta = (value) => ({ providerMetadata: { mock: value } });

const toolsWith = (steering) => ({
  weather: tool({ title: "Weather", inputSchema: CITY, execute: async ({ city }) => ({ city, celsius: 21.5 }) }),
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
      yield { city, done: 100 };
    },
  }),
  remove: tool({ inputSchema: CITY, execute: async ({ city }) => `removed ${city}` }),
  steered: tool({
    inputSchema: CITY,
    execute: async ({ city }) => {
      steering?.steer(`Use ${city}, Texas instead.`);
      return "noted";
    },
  }),
  client: tool({ inputSchema: CITY }),
  anything: dynamicTool({ inputSchema: jsonSchema({ type: "object" }), execute: async (input) => ({ echoed: input }) }),
});

const cite = (id, words, citations) => [{ type: "text-start", id }, ...words.map((delta) => ({ type: "text-delta", id, delta })), { type: "text-end", id, citations }];
const picture = { type: "file", mediaType: "image/png", data: { type: "data", data: "iVBORw0KGgo=" } };
const sketch = { type: "reasoning-file", mediaType: "image/png", data: { type: "data", data: "iVBORw0KGgo=" } };
const custom = (kind, more) => ({ type: "custom", kind, ...more });

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
  return new MockLanguageModelV4({ doStream });
}

function streamOf(steps, { messages, more, steering, id = "m1", ui } = {}) {
  const input = messages ? { messages } : { prompt: "What is the weather?" };
  const answer = streamText({ model: modelOf(steps), tools: toolsWith(steering), stopWhen: isStepCount(6), onError: () => {}, experimental_steering: steering, ...input, ...more, _internal: { generateId: mockId({ prefix: "gen" }), now: () => 0 } });
  return answer.toUIMessageStream({ sendSources: true, generateMessageId: () => id, onError: (error) => String(error?.message ?? error), ...ui });
}

const approval = (toolApproval) => ({ more: { toolApproval } });
const usageMetadata = { messageMetadata: ({ part }) => (part.type === "finish" ? { totalUsage: part.totalUsage } : undefined) };

const runs = {
  "text-only": [[say("0", ["Hel", "lo ", "wor", "ld"])]],
  "text-cited": [[cite("0", ["Paris ", "is mild."], [{ source: url("a"), startIndex: 0, endIndex: 5, citedText: "Paris" }, { source: doc("d") }])]],
  "text-cited-twice": [[[...cite("0", ["A."], [{ source: url("a") }]), ...cite("1", ["B."], [{ source: url("b") }])]]],
  "text-interleaved": [[[{ type: "text-start", id: "a" }, { type: "text-start", id: "b" }, { type: "text-delta", id: "a", delta: "A" }, { type: "text-delta", id: "b", delta: "B" }, { type: "text-end", id: "b" }, { type: "text-delta", id: "a", delta: "A" }, { type: "text-end", id: "a" }]]],
  "reasoning-with-file": [[[...think("r", ["Let me ", "draw"], meta({ signature: "s1" })), sketch, ...say("0", ["Done."])]]],
  "reasoning-over-steps": [[[...think("r", ["Plan"]), ...call("c1", "weather", paris)], [...think("r", ["Again"]), ...say("0", ["Sunny."])]]],
  "files-and-sources": [[[...say("0", ["See "]), url("a"), doc("b"), picture]]],
  "custom-content": [[[custom("mock.compaction", meta({ id: "x" })), ...say("0", ["After."]), custom("mock.note")]]],
  "metadata-merged": [[say("0", ["Hi"])], { ui: usageMetadata }],
  "tool-one-step": [[call("c1", "weather", paris), say("0", ["21 degrees."])]],
  "tool-unstreamed": [[call("c1", "weather", paris, { pieces: 0 }), say("0", ["21 degrees."])]],
  "tool-parallel": [[[...call("c1", "weather", paris), ...call("c2", "progress", { city: "Oslo" }, { pieces: 5 })], say("0", ["Both."])]],
  "tool-same-id-three-steps": [[call("call_0", "weather", paris), call("call_0", "weather", { city: "Rome" }), call("call_0", "broken", paris), say("0", ["Tried."])]],
  "tool-throws": [[call("c1", "broken", paris), say("0", ["Sorry."])]],
  "tool-invalid-json": [[call("c1", "weather", '{"city":"Par'), say("0", ["Oops."])]],
  "tool-invalid-json-dynamic": [[call("c1", "anything", '{"a":[-', { dynamic: true }), say("0", ["Oops."])]],
  "tool-unknown-name": [[call("c1", "nosuch", paris), say("0", ["Oops."])]],
  "tool-wrong-type": [[call("c1", "weather", "5"), say("0", ["Oops."])]],
  "tool-preliminary": [[call("c1", "progress", paris), say("0", ["Done."])]],
  "tool-client-side": [[[...say("0", ["Asking"]), ...call("c1", "client", paris)]]],
  "tool-dynamic": [[call("c1", "anything", { a: [-1, { b: null }] }, { dynamic: true }), say("0", ["ok"])]],
  "tool-provider-executed": [[[...call("c1", "search", { q: "x" }, { providerExecuted: true, dynamic: true, ...meta({ a: 1 }) }), { type: "tool-result", toolCallId: "c1", toolName: "search", result: [1], dynamic: true, ...meta({ b: 2 }) }, ...say("0", ["Found."])]]],
  "approval-user": [[[...say("0", ["May I?"]), ...call("c1", "remove", paris)]], approval({ remove: "user-approval" })],
  "approval-user-reason": [[call("c1", "remove", paris)], approval({ remove: { type: "user-approval", reason: "It cannot be undone." } })],
  "approval-automatic": [[call("c1", "remove", paris), say("0", ["Gone."])], approval({ remove: "approved" })],
  "approval-automatic-reason": [[call("c1", "remove", paris), say("0", ["Gone."])], approval({ remove: { type: "approved", reason: "on the list" } })],
  "approval-denied": [[call("c1", "remove", paris), say("0", ["Not done."])], approval({ remove: "denied" })],
  "approval-denied-reason": [[call("c1", "remove", paris), say("0", ["Not done."])], approval({ remove: { type: "denied", reason: "policy" } })],
  "approval-mixed": [[[...call("c1", "remove", paris), ...call("c2", "weather", paris), ...call("c3", "remove", { city: "Oslo" })], say("0", ["One."])], { more: { toolApproval: { remove: (input) => (input.city === "Oslo" ? { type: "denied", reason: "no" } : "approved") } } }],
  "approval-all-tools": [[[...call("c1", "weather", paris), ...call("c2", "anything", { a: 1 }, { dynamic: true })]], { more: { toolApproval: ({ toolCall }) => ({ type: "user-approval", reason: `runs ${toolCall.toolName}` }) } }],
  "model-error-mid-text": [[[{ type: "text-start", id: "0" }, { type: "text-delta", id: "0", delta: "par" }, { type: "error", error: new Error("overloaded") }]]],
  "everything": [[[...think("r", ["Plan"], meta({ s: 1 })), sketch, custom("mock.a"), ...say("0", ["Looking."]), ...call("c1", "weather", paris), ...call("c2", "progress", paris)], [...think("r", ["Again"]), ...call("c1", "broken", paris)], [url("a"), doc("b"), picture, ...cite("0", ["So: ", "21."], [{ source: url("a") }])]], { ui: usageMetadata }],
};

async function answered(name, approved) {
  const part = { type: "tool-remove", toolCallId: "c1", state: "approval-responded", input: paris, approval: { id: "gen-0", approved, requestReason: "sure?", ...(approved ? {} : { reason: "no" }) } };
  const initial = { id: "m1", role: "assistant", parts: [{ type: "step-start" }, part] };
  const asked = [{ id: "u1", role: "user", parts: [{ type: "text", text: "remove Paris" }] }, initial];
  const messages = await convertToModelMessages(asked, { tools: toolsWith() });
  const chunks = await collect(streamOf([say("0", ["All right."])], { messages, ui: { originalMessages: asked } }));
  return { name, tags: ["streamText", "resume", "approval"], initial, chunks };
}

async function steered(name, steps) {
  const chunks = await collect(streamOf(steps, { steering: experimental_createSteering() }));
  let ids = 0;
  for (const chunk of chunks) if (chunk.type === "steering-message") chunk.id = `steer-${(ids += 1)}`; // the package draws them
  return { name, tags: ["streamText", "steering"], chunks };
}

async function aborted() {
  const controller = new AbortController();
  const chunks = [];
  for await (const chunk of streamOf([say("0", Array(20).fill("word "))], { more: { abortSignal: controller.signal } })) {
    chunks.push(JSON.parse(JSON.stringify(chunk)));
    if (chunks.length === 6) controller.abort();
  }
  return { name: "streamText-aborted", tags: ["streamText", "abort"], chunks };
}

// A host that asks the model once more when the first answer was no good: the writer discards the step in between.
async function retried(name, first, second) {
  const stream = createUIMessageStream({
    generateId: () => "m1",
    execute: async ({ writer }) => {
      writer.write({ type: "start", messageId: "m1" });
      for await (const chunk of streamOf(first, { ui: { sendStart: false, sendFinish: false } })) if (chunk.type !== "finish-step") writer.write(chunk);
      writer.write({ type: "reset-step" });
      for await (const chunk of streamOf(second, { ui: { sendStart: false } })) if (chunk.type !== "start-step") writer.write(chunk);
    },
  });
  return { name, tags: ["streamText", "reset"], chunks: await collect(stream) };
}

// Two models whose streams are merged: a step of the one ends while a text of the other is open.
async function merged() {
  const stream = createUIMessageStream({
    generateId: () => "m1",
    execute: ({ writer }) => {
      writer.write({ type: "data-plan", id: "p", data: { steps: 2 } });
      writer.merge(streamOf([call("c1", "weather", paris), say("a", ["Sunny", "."])], { ui: { sendFinish: false } }));
      writer.merge(streamOf([say("b", ["Second ", "opinion", "."])], { ui: { sendStart: false } }));
    },
  });
  return { name: "streamText-merged", tags: ["streamText", "data"], chunks: await collect(stream) };
}

export async function modelScripts() {
  const scripts = [];
  for (const [name, [steps, options]] of Object.entries(runs)) {
    scripts.push({ name: `streamText-${name}`, tags: ["streamText", name.split("-")[0]], chunks: await collect(streamOf(steps, options)) });
  }
  scripts.push(await answered("streamText-approved", true), await answered("streamText-refused", false));
  scripts.push(await steered("streamText-steered", [call("c1", "steered", paris), say("0", ["Texas."])]));
  scripts.push(await steered("streamText-steered-twice", [[...call("c1", "steered", paris), ...call("c2", "steered", { city: "Rome" })], call("c1", "steered", paris), say("0", ["Both."])]));
  scripts.push(await retried("streamText-retried", [[...think("r", ["hm"]), ...say("0", ["bad answer"])]], [say("0", ["good answer"])]));
  scripts.push(await retried("streamText-retried-tool", [call("c1", "weather", paris), say("0", ["bad"])], [call("c1", "weather", { city: "Oslo" }), say("0", ["good"])]));
  scripts.push(await retried("streamText-retried-cut", [[{ type: "text-start", id: "0" }, { type: "text-delta", id: "0", delta: "bad an" }]], [cite("0", ["good"], [{ source: url("a") }])]));
  scripts.push(await aborted(), await merged());
  return scripts;
}
