// Writes ai-sdk-posts.json: what the chat of the AI SDK, the object behind useChat, posts in everyday scenes, and what it was sent.
import { createRequire } from "node:module";
import { writeFileSync } from "node:fs";

const majors = { 6: await import("ai"), 7: await import("ai7") };
const require = createRequire(import.meta.url);
const versions = ["ai", "ai7"].map((name) => require(`${name}/package.json`).version);
const plain = (value) => JSON.parse(JSON.stringify(value));
const settled = () => new Promise((resolve) => setTimeout(resolve, 20));

const words = (text, id = "t") => [
  { type: "text-start", id },
  ...text.match(/.{1,3}/gsu).map((delta) => ({ type: "text-delta", id, delta })),
  { type: "text-end", id },
];
const call = (toolName, toolCallId, input) => ({ type: "tool-input-available", toolCallId, toolName, input });
const gate = (approvalId, toolCallId) => ({ type: "tool-approval-request", approvalId, toolCallId });
const output = (toolCallId, value) => ({ type: "tool-output-available", toolCallId, output: value });

// The state of a chat, as a page without a framework keeps it.
class State {
  status = "ready";
  error = undefined;
  messages = [];
  pushMessage = (message) => (this.messages = [...this.messages, message]);
  popMessage = () => (this.messages = this.messages.slice(0, -1));
  replaceMessage = (index, message) => (this.messages = this.messages.with(index, this.snapshot(message)));
  snapshot = (value) => structuredClone(value);
}

// A scene: a chat, and a server that answers each post with the next of `answers`, { chunks, named, lose, refuse, hang }.
function scene(sdk, answers, options = {}) {
  const steps = [];
  let number = 0;
  let client = 0;
  const transport = {
    async sendMessages({ messages, trigger, messageId, abortSignal }) {
      const { chunks, named = true, lose, refuse, hang } = answers[steps.length] ?? { chunks: words("More.") };
      const last = messages.at(-1);
      const going = messages.find((message) => message.id === messageId && message.role === "assistant");
      const goes = trigger === "submit-message" && (going ?? (last?.role === "assistant" ? last : undefined));
      const id = goes ? goes.id : `a${++number}`;
      const start = named || goes ? { type: "start", messageId: id } : { type: "start" };
      const stream = [start, { type: "start-step" }, ...chunks, { type: "finish-step" }, { type: "finish" }];
      steps.push({ post: plain({ messages, trigger, messageId }), chunks: refuse ? null : stream, continues: goes ? goes.id : null });
      if (refuse) throw new TypeError("failed to fetch");
      const sent = lose ?? hang ?? stream.length;
      return new ReadableStream({
        start(controller) {
          for (const chunk of stream.slice(0, sent)) controller.enqueue(structuredClone(chunk));
          if (hang) abortSignal?.addEventListener("abort", () => controller.error(new DOMException("aborted", "AbortError")));
          else if (lose) setTimeout(() => controller.error(new TypeError("network")), 5);
          else controller.close();
        },
      });
    },
    reconnectToStream: async () => null,
  };
  class Chat extends sdk.AbstractChat {}
  const state = new State();
  const chat = new Chat({ id: "chat", state, transport, generateId: () => `client-${++client}`, onError() {}, ...options });
  return { chat, steps };
}

const scenes = {
  async "two questions"(sdk) {
    const { chat, steps } = scene(sdk, [{ chunks: words("One, twö.") }]);
    await chat.sendMessage({ text: "first" });
    await chat.sendMessage({ text: "second" });
    return { chat, steps };
  },
  async "a question with a file, data and metadata"(sdk) {
    const { chat, steps } = scene(sdk, []);
    const file = { type: "file", mediaType: "image/png", filename: "a.png", url: "data:image/png;base64,AA==" };
    await chat.sendMessage({ text: "look", files: [file], metadata: { from: "phone" } });
    await chat.sendMessage({ parts: [{ type: "data-place", data: { lat: 1.5 } }, { type: "text", text: "here" }] });
    return { chat, steps };
  },
  async "the first question edited"(sdk) {
    const { chat, steps } = scene(sdk, []);
    await chat.sendMessage({ text: "first" });
    await chat.sendMessage({ text: "second" });
    await chat.sendMessage({ text: "first, edited", messageId: chat.messages[0].id });
    await chat.sendMessage({ text: "third" });
    return { chat, steps };
  },
  async "the last answer given again"(sdk) {
    const { chat, steps } = scene(sdk, [{ chunks: words("A bad one.") }]);
    await chat.sendMessage({ text: "first" });
    await chat.regenerate();
    await chat.sendMessage({ text: "second" });
    return { chat, steps };
  },
  async "an earlier answer given again"(sdk) {
    const { chat, steps } = scene(sdk, []);
    await chat.sendMessage({ text: "first" });
    await chat.sendMessage({ text: "second" });
    await chat.regenerate({ messageId: chat.messages[1].id });
    return { chat, steps };
  },
  async "answers whose ids are the browser's"(sdk) {
    const { chat, steps } = scene(sdk, [{ chunks: words("One."), named: false }, { chunks: words("Two."), named: false }]);
    await chat.sendMessage({ text: "first" });
    await chat.sendMessage({ text: "second" });
    await chat.regenerate({ messageId: chat.lastMessage.id });
    return { chat, steps };
  },
  async "an approval granted"(sdk) {
    return approval(sdk, { approved: true });
  },
  async "an approval denied"(sdk) {
    return approval(sdk, { approved: false, reason: "too risky" });
  },
  async "two approvals, one after the other"(sdk) {
    const asked = [call("rm", "c1", { path: "x" }), gate("ap1", "c1"), call("rm", "c2", { path: "y" }), gate("ap2", "c2")];
    const answers = [{ chunks: asked }, { chunks: [output("c1", "gone"), output("c2", "gone"), ...words("Done.")] }];
    const { chat, steps } = scene(sdk, answers, { sendAutomaticallyWhen: sdk.lastAssistantMessageIsCompleteWithApprovalResponses });
    await chat.sendMessage({ text: "delete both" });
    await chat.addToolApprovalResponse({ id: "ap1", approved: true });
    await chat.addToolApprovalResponse({ id: "ap2", approved: true });
    await settled();
    return { chat, steps };
  },
  async "an approval that a later question goes past"(sdk) {
    const { chat, steps } = scene(sdk, [{ chunks: [call("rm", "c1", {}), gate("ap", "c1")] }]);
    await chat.sendMessage({ text: "delete" });
    await chat.sendMessage({ text: "never mind" });
    await chat.addToolApprovalResponse({ id: "ap", approved: false });
    await chat.sendMessage({ text: "really" });
    return { chat, steps };
  },
  async "a client's tool with a result"(sdk) {
    return clientTool(sdk, { tool: "locate", toolCallId: "c1", output: { lat: 1.5, at: [1, null] } });
  },
  async "a client's tool without a value"(sdk) {
    return clientTool(sdk, { tool: "locate", toolCallId: "c1", output: undefined });
  },
  async "a client's tool with an error"(sdk) {
    return clientTool(sdk, { tool: "locate", toolCallId: "c1", state: "output-error", errorText: "no signal" });
  },
  async "a client's tool that answers while the answer streams"(sdk) {
    const answers = [{ chunks: [call("locate", "c1", {}), ...words("Looking.")] }, { chunks: words("Found.") }];
    const { chat, steps } = scene(sdk, answers, {
      sendAutomaticallyWhen: sdk.lastAssistantMessageIsCompleteWithToolCalls,
      onToolCall: ({ toolCall }) => void chat.addToolOutput({ tool: "locate", toolCallId: toolCall.toolCallId, output: "here" }),
    });
    await chat.sendMessage({ text: "where" });
    await settled();
    return { chat, steps };
  },
  async "stopped, and another question"(sdk) {
    const { chat, steps } = scene(sdk, [{ chunks: words("A long answer."), hang: 5 }]);
    void chat.sendMessage({ text: "first" });
    await settled();
    await chat.stop();
    await chat.sendMessage({ text: "second" });
    return { chat, steps };
  },
  async "lost in mid-answer, and another question"(sdk) {
    const { chat, steps } = scene(sdk, [{ chunks: words("A long answer."), lose: 6 }]);
    await chat.sendMessage({ text: "first" });
    await chat.sendMessage({ text: "second" });
    return { chat, steps };
  },
  async "lost in mid-answer under an id of the browser's"(sdk) {
    const { chat, steps } = scene(sdk, [{ chunks: words("A long answer."), lose: 6, named: false }]);
    await chat.sendMessage({ text: "first" });
    await chat.sendMessage({ text: "second" });
    return { chat, steps };
  },
  async "lost in the middle of a tool's input"(sdk) {
    const pieces = ['{"pa', 'th":"x"}'].map((inputTextDelta) => ({ type: "tool-input-delta", toolCallId: "c1", inputTextDelta }));
    const chunks = [{ type: "tool-input-start", toolCallId: "c1", toolName: "read" }, ...pieces, call("read", "c1", { path: "x" })];
    const { chat, steps } = scene(sdk, [{ chunks: [...chunks, output("c1", "text"), ...words("Read.")], lose: 4 }]);
    await chat.sendMessage({ text: "first" });
    await chat.sendMessage({ text: "second" });
    return { chat, steps };
  },
  async "a post that did not arrive, and another question"(sdk) {
    const { chat, steps } = scene(sdk, [{ chunks: [], refuse: true }]);
    await chat.sendMessage({ text: "first" });
    await chat.sendMessage({ text: "second" });
    return { chat, steps };
  },
  async "a post that did not arrive, sent again"(sdk) {
    const { chat, steps } = scene(sdk, [{ chunks: [], refuse: true }]);
    await chat.sendMessage({ text: "first" });
    await chat.sendMessage();
    return { chat, steps };
  },
  async "a post that did not arrive, to be answered again"(sdk) {
    const { chat, steps } = scene(sdk, [{ chunks: words("One.") }, { chunks: [], refuse: true }]);
    await chat.sendMessage({ text: "first" });
    await chat.sendMessage({ text: "second" });
    await chat.regenerate();
    return { chat, steps };
  },
};

async function approval(sdk, answer) {
  const after = answer.approved ? [output("c1", "gone")] : [{ type: "tool-output-denied", toolCallId: "c1" }];
  const answers = [{ chunks: [...words("May I?"), call("rm", "c1", { path: "x" }), gate("ap", "c1")] }, { chunks: [...after, ...words("Well.")] }];
  const { chat, steps } = scene(sdk, answers, { sendAutomaticallyWhen: sdk.lastAssistantMessageIsCompleteWithApprovalResponses });
  await chat.sendMessage({ text: "delete it" });
  await chat.addToolApprovalResponse({ id: "ap", ...answer });
  await settled();
  return { chat, steps };
}

async function clientTool(sdk, result) {
  const answers = [{ chunks: [call("locate", "c1", { precise: true })] }, { chunks: words("There.") }];
  const { chat, steps } = scene(sdk, answers, { sendAutomaticallyWhen: sdk.lastAssistantMessageIsCompleteWithToolCalls });
  await chat.sendMessage({ text: "where am I" });
  await chat.addToolOutput(result);
  await settled();
  await chat.sendMessage({ text: "and now" });
  return { chat, steps };
}

const found = [];
for (const [name, play] of Object.entries(scenes)) {
  for (const [major, sdk] of Object.entries(majors)) {
    const { chat, steps } = await play(sdk);
    await settled();
    found.push({ name, ai_sdk: Number(major), steps, messages: plain(chat.messages) });
  }
}
const lines = found.map((one) => JSON.stringify(one)).join(",\n");
writeFileSync(process.argv[2] ?? "ai-sdk-posts.json", `{\n"versions": ${JSON.stringify(versions)},\n"scenes": [\n${lines}\n]\n}\n`);
