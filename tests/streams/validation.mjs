// Chunks with each field right, missing, null and of another type; the verdicts come from the real schema.
// A payload of unknown type (input, output, data) is never left out: zod releases disagree on that, and persist takes it as absent.

const PAYLOADS = ["input", "output", "data", "messageMetadata"];
const strings = (...names) => names.map((name) => [name, "x", true]);
const provider = ["providerMetadata", { p: { a: 1 } }, false];
const title = ["title", "T", false];
const tool = [provider, ["toolMetadata", { a: [1] }, false], ["providerExecuted", true, false], ["dynamic", true, false]];

const FIELDS = {
  start: [["messageId", "m", false], ["messageMetadata", 1, false]],
  finish: [["finishReason", "tool-calls", false], ["messageMetadata", { a: 1 }, false]],
  abort: [["reason", "user", false]],
  error: strings("errorText"),
  "message-metadata": [["messageMetadata", { a: 1 }, true]],
  "start-step": [],
  "finish-step": [],
  "text-start": [...strings("id"), provider],
  "text-delta": [...strings("id", "delta"), provider],
  "text-end": [...strings("id"), provider],
  "reasoning-start": [...strings("id"), provider],
  "reasoning-delta": [...strings("id", "delta"), provider],
  "reasoning-end": [...strings("id"), provider],
  "source-url": [...strings("sourceId", "url"), title, provider],
  "source-document": [...strings("sourceId", "mediaType", "title"), ["filename", "f", false], provider],
  file: [...strings("url", "mediaType"), provider],
  "data-x": [["id", "d", false], ["data", null, true], ["transient", true, false]],
  "data-": [["data", 1, true]],
  "tool-input-start": [...strings("toolCallId", "toolName"), ["inputEncoding", "text", false], title, ...tool],
  "tool-input-delta": strings("toolCallId", "inputTextDelta"),
  "tool-input-available": [...strings("toolCallId", "toolName"), ["input", { a: 1 }, true], title, ...tool],
  "tool-input-error": [...strings("toolCallId", "toolName", "errorText"), ["input", "x", true], title, ...tool],
  "tool-approval-request": [...strings("approvalId", "toolCallId"), ["approvalDescriptor", 1, false], ["inputSchemaInput", 1, false], ["signature", "s", false]],
  "tool-output-available": [...strings("toolCallId"), ["output", 1, true], ["preliminary", true, false], ...tool],
  "tool-output-error": [...strings("toolCallId", "errorText"), ...tool],
  "tool-output-denied": strings("toolCallId"),
};

export function validationChunks() {
  const chunks = [{ type: "unknown" }, { type: "" }, { type: "Data-x", data: 1 }, { type: 5 }, { type: null }, {}, [], null, "text-start", { type: "finish", finishReason: "unknown" }];
  chunks.push({ type: "tool-input-start", toolCallId: "c", toolName: "w", inputEncoding: "xml" });
  for (const shape of [{ p: null }, { p: [] }, { p: {} }, [], "x", { p: { a: { b: [null] } } }]) chunks.push({ type: "text-start", id: "a", providerMetadata: shape });
  for (const [type, fields] of Object.entries(FIELDS)) {
    const required = Object.fromEntries(fields.filter(([, , needed]) => needed).map(([name, value]) => [name, value]));
    const full = { type, ...Object.fromEntries(fields.map(([name, value]) => [name, value])) };
    chunks.push({ type, ...required }, { ...full, extra: { a: 1 } });
    for (const [name] of fields) {
      const { [name]: _, ...without } = full;
      if (!PAYLOADS.includes(name)) chunks.push(without);
      chunks.push({ ...full, [name]: null }, { ...full, [name]: 5 });
    }
  }
  return chunks;
}
