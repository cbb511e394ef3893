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

const FIELDS_OF_7 = {
  ...FIELDS,
  "text-end": [...strings("id"), ["citations", [{ source: { type: "source", sourceType: "url", id: "s", url: "u:" }, startIndex: 0 }], false], provider],
  "tool-approval-request": [...FIELDS["tool-approval-request"], ["reason", "r", false], ["isAutomatic", true, false]],
  "tool-approval-response": [...strings("approvalId"), ["approved", false, true], ["reason", "r", false], ["providerExecuted", true, false], provider],
  custom: [...strings("kind"), provider],
  "reasoning-file": [...strings("url", "mediaType"), provider],
  "steering-message": [...strings("id"), ["parts", [{ type: "text", text: "x" }], true]],
  "reset-step": [],
};

// Shapes inside fields that only 7 has.
function nested() {
  const url = { type: "source", sourceType: "url", id: "s", url: "u:" };
  const document = { type: "source", sourceType: "document", id: "s", mediaType: "text/plain", title: "T" };
  const sources = [url, { ...url, title: "T", extra: 1 }, { ...url, title: 5 }, { ...url, type: "src" }, { ...url, sourceType: "file" }, { ...url, id: 1 }, { ...url, providerMetadata: { p: {} } }, { ...url, providerMetadata: [] }, document, { ...document, filename: "f" }, { ...document, filename: null }, { ...document, title: undefined }, null, "s"];
  const offsets = [0, 5, -1, 1.5, 2 ** 53, 2 ** 53 - 1, "1", true, null].flatMap((at) => [{ source: url, startIndex: at }, { source: url, endIndex: at }]);
  const citations = [...sources.map((source) => ({ source })), ...offsets, { source: url, citedText: "x" }, { source: url, citedText: 1 }, {}, null, 5];
  const file = { type: "file", mediaType: "text/plain", url: "u:" };
  const parts = [{ type: "text" }, { type: "text", text: "x", providerMetadata: { p: 1 } }, { type: "text", text: null }, file, { ...file, filename: "f", providerReference: { a: "b" } }, { ...file, providerReference: { a: 1 } }, { ...file, providerReference: [] }, { ...file, filename: 1 }, { ...file, url: undefined }, { ...file, providerMetadata: { p: { a: 1 } } }, { type: "reasoning", text: "x" }, {}, null, "x"];
  return [
    ...citations.map((citation) => ({ type: "text-end", id: "t", citations: [citation] })),
    { type: "text-end", id: "t", citations: [] },
    { type: "text-end", id: "t", citations: {} },
    ...parts.map((part) => ({ type: "steering-message", id: "s", parts: [part] })),
    { type: "steering-message", id: "s", parts: [] },
    { type: "steering-message", id: "s", parts: {} },
    { type: "finish", finishReason: "interrupted" },
  ].map((chunk) => JSON.parse(JSON.stringify(chunk)));
}

export function validationChunks(major = 6) {
  const chunks = [{ type: "unknown" }, { type: "" }, { type: "Data-x", data: 1 }, { type: 5 }, { type: null }, {}, [], null, "text-start", { type: "finish", finishReason: "unknown" }];
  chunks.push({ type: "tool-input-start", toolCallId: "c", toolName: "w", inputEncoding: "xml" });
  for (const shape of [{ p: null }, { p: [] }, { p: {} }, [], "x", { p: { a: { b: [null] } } }]) chunks.push({ type: "text-start", id: "a", providerMetadata: shape });
  for (const [type, fields] of Object.entries(major > 6 ? FIELDS_OF_7 : FIELDS)) {
    const required = Object.fromEntries(fields.filter(([, , needed]) => needed).map(([name, value]) => [name, value]));
    const full = { type, ...Object.fromEntries(fields.map(([name, value]) => [name, value])) };
    chunks.push({ type, ...required }, { ...full, extra: { a: 1 } });
    for (const [name] of fields) {
      const { [name]: _, ...without } = full;
      if (!PAYLOADS.includes(name)) chunks.push(without);
      chunks.push({ ...full, [name]: null }, { ...full, [name]: 5 });
    }
  }
  return major > 6 ? [...chunks, ...nested()] : chunks;
}
