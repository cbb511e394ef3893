// Hand-written chunk sequences for what AI SDK 7 has beyond 6, and for what it reads differently.

const start = (messageId) => ({ type: "start", messageId });
const step = { type: "start-step" };
const unstep = { type: "finish-step" };
const reset = { type: "reset-step" };
const finish = { type: "finish", finishReason: "stop" };
const open = (id, more) => ({ type: "text-start", id, ...more });
const say = (id, delta, more) => ({ type: "text-delta", id, delta, ...more });
const close = (id, more) => ({ type: "text-end", id, ...more });
const text = (id, words) => [open(id), say(id, words), close(id)];
const think = (id, words) => [{ type: "reasoning-start", id }, { type: "reasoning-delta", id, delta: words }];
const begin = (toolCallId, toolName, more) => ({ type: "tool-input-start", toolCallId, toolName, ...more });
const delta = (toolCallId, inputTextDelta) => ({ type: "tool-input-delta", toolCallId, inputTextDelta });
const available = (toolCallId, toolName, input, more) => ({ type: "tool-input-available", toolCallId, toolName, input, ...more });
const refused = (toolCallId, toolName, input, more) => ({ type: "tool-input-error", toolCallId, toolName, input, errorText: "bad input", ...more });
const output = (toolCallId, value, more) => ({ type: "tool-output-available", toolCallId, output: value, ...more });
const failed = (toolCallId) => ({ type: "tool-output-error", toolCallId, errorText: "tool failed" });
const denied = (toolCallId) => ({ type: "tool-output-denied", toolCallId });
const ask = (toolCallId, approvalId, more) => ({ type: "tool-approval-request", toolCallId, approvalId, ...more });
const answer = (approvalId, approved, more) => ({ type: "tool-approval-response", approvalId, approved, ...more });
const data = (type, value, more) => ({ type: `data-${type}`, data: value, ...more });
const provider = (value) => ({ providerMetadata: { p: { value } } });
const custom = (kind, more) => ({ type: "custom", kind, ...more });
const reasoningFile = (url, more) => ({ type: "reasoning-file", url, mediaType: "image/png", ...more });
const steer = (id, ...parts) => ({ type: "steering-message", id, parts });
const url = (id, more) => ({ source: { type: "source", sourceType: "url", id, url: `https://example.org/${id}`, ...more } });
const doc = (id, more) => ({ source: { type: "source", sourceType: "document", id, mediaType: "application/pdf", title: id, ...more } });
const dynamic = { dynamic: true };
const turn = (...chunks) => [start("m1"), step, ...chunks, unstep, finish];
const message = (...parts) => ({ id: "m1", role: "assistant", parts });
const streaming = (more) => ({ type: "tool-w", toolCallId: "c", state: "input-streaming", ...more });

const scripts_by_name = {
  "custom-plain": turn(custom("openai.compaction")),
  "custom-metadata": turn(custom("openai.compaction", { ...provider({ id: "c1" }), extra: 1 }), ...text("t", "after")),
  "custom-between-texts": turn(...text("t", "one"), custom("a.b"), custom("a.b"), ...text("t", "two")),
  "custom-odd-kind": turn(custom(""), custom("no dot")),
  "reasoning-file-plain": turn(...think("r", "look"), reasoningFile("data:image/png;base64,AA=="), { type: "reasoning-end", id: "r" }),
  "reasoning-file-metadata": turn(reasoningFile("https://example.org/a.png", { ...provider(1), filename: "dropped" }), reasoningFile("https://example.org/a.png")),
  "files-of-both-kinds": turn({ type: "file", url: "data:,x", mediaType: "text/plain" }, reasoningFile("data:,x"), { type: "file", url: "data:,y", mediaType: "text/plain", ...provider(2) }),
  "steering-text": turn(...text("t", "one"), unstep, steer("s1", { type: "text", text: "Use Oslo." }), step, ...text("t", "two")),
  "steering-file": turn(unstep, steer("s1", { type: "file", mediaType: "image/png", url: "data:image/png;base64,AA==", filename: "a.png" }, { type: "text", text: "see", ...provider(1) }), step, ...text("t", "ok")),
  "steering-reference": turn(unstep, steer("s1", { type: "file", mediaType: "image/png", url: "", providerReference: { openai: "file-1" } }), step, ...text("t", "ok")),
  "steering-empty": turn(steer("", ...[]), steer("s2")),
  "steering-twice": turn(available("c", "w", 1), output("c", 1), unstep, steer("s1", { type: "text", text: "a" }), steer("s2", { type: "text", text: "b" }), step, ...text("t", "x")),
  "steering-keeps-extra-keys": turn(steer("s1", { type: "text", text: "a", state: "done", extra: [1] })),
  "steering-inside-open-text": turn(open("t"), say("t", "a"), steer("s1", { type: "text", text: "!" }), say("t", "b"), close("t")),
  "citations-url": turn(open("t"), say("t", "Paris."), close("t", { citations: [url("a", { title: "A" })] })),
  "citations-document": turn(open("t"), say("t", "Paris."), close("t", { citations: [doc("d", { filename: "d.pdf", ...provider(1) }), url("b")] })),
  "citations-ranges": turn(open("t"), say("t", "Paris."), close("t", { citations: [{ ...url("a"), startIndex: 0, endIndex: 5, citedText: "Paris" }] })),
  "citations-empty": turn(open("t"), close("t", { citations: [] })),
  "citations-with-metadata": turn(open("t", provider(1)), say("t", "x"), close("t", { ...provider(2), citations: [url("a")] })),
  "citations-not-of-reasoning": turn(...think("r", "x"), { type: "reasoning-end", id: "r", citations: [url("a")] }),
  "citations-twice-same-id": turn(open("t"), close("t", { citations: [url("a")] }), open("t"), close("t", { citations: [url("b")] })),
  "approval-reason": turn(available("c", "rm", {}), ask("c", "ap1", { reason: "It deletes." })),
  "approval-automatic": turn(available("c", "rm", {}), ask("c", "ap1", { isAutomatic: true }), answer("ap1", true), output("c", 1)),
  "approval-automatic-denied": turn(available("c", "rm", {}), ask("c", "ap1", { isAutomatic: true }), answer("ap1", false, { reason: "policy" }), denied("c")),
  "approval-not-automatic": turn(available("c", "rm", {}), ask("c", "ap1", { isAutomatic: false, reason: "" })),
  "approval-all-fields": turn(available("c", "rm", {}), ask("c", "ap1", { approvalDescriptor: { a: 1 }, inputSchemaInput: null, signature: "s", reason: "r", isAutomatic: true }), answer("ap1", true, { reason: "ok", providerExecuted: true, ...provider(1) })),
  "approval-answered-without-reason": turn(available("c", "rm", {}), ask("c", "ap1", { reason: "asked" }), answer("ap1", true)),
  "approval-answered-twice": turn(available("c", "rm", {}), ask("c", "ap1"), answer("ap1", false, { reason: "no" }), answer("ap1", true)),
  "approval-answered-after-output": turn(available("c", "rm", {}), ask("c", "ap1"), answer("ap1", true), output("c", 1), answer("ap1", false)),
  "approval-same-id-twice": turn(available("c", "rm", 1), ask("c", "ap"), available("d", "rm", 2), ask("d", "ap"), answer("ap", true)),
  "approval-of-earlier-step": turn(available("c", "rm", 1), ask("c", "ap"), unstep, step, answer("ap", true), output("c", 1)),
  "approval-dynamic": turn(available("c", "rm", 1, dynamic), ask("c", "ap", { reason: "r" }), answer("ap", false), denied("c")),
  "approval-replaced-then-answered": turn(available("c", "rm", 1), ask("c", "ap1"), ask("c", "ap2", { reason: "again" }), answer("ap2", true)),
  "approval-provider-executed": turn(available("c", "rm", 1, { providerExecuted: true, ...provider(1) }), ask("c", "ap"), answer("ap", true, { providerExecuted: false, ...provider(2) }), output("c", 1, { providerExecuted: true })),
  "approval-empty-ids": turn(available("", "rm", 1), ask("", ""), answer("", true)),
  "reset-text": turn(open("t"), say("t", "bad"), reset, ...text("t", "good")),
  "reset-nothing": turn(reset, reset, ...text("t", "x")),
  "reset-closed-text": turn(...text("t", "bad"), reset, ...text("u", "good")),
  "reset-tool-input": turn(begin("c", "w"), delta("c", '{"a":1'), reset, begin("c", "w"), delta("c", '{"b":2}'), available("c", "w", { b: 2 }), output("c", 1)),
  "reset-tool-with-output": turn(available("c", "w", 1), output("c", 1), reset, available("c", "w", 2), output("c", 2)),
  "reset-keeps-earlier-steps": turn(...text("t", "kept"), available("c", "w", 1), output("c", 1), unstep, step, ...text("u", "bad"), available("c", "w", 2), reset, output("c", "earlier again"), ...text("u", "good")),
  "reset-same-call-id-of-earlier-step": turn(available("c", "w", 1), unstep, step, available("c", "w", 2), reset, failed("c")),
  "reset-other-kind-of-call": turn(available("c", "w", 1), available("c", "w", 2, dynamic), reset, available("c", "w", 3, dynamic), output("c", 4)),
  "reset-data": turn(data("s", 1, { id: "x" }), unstep, step, data("s", 2, { id: "x" }), data("t", 1, { id: "y" }), data("u", 1), reset, data("t", 2, { id: "y" }), data("s", 3, { id: "x" })),
  "reset-everything": turn(...think("r", "hm"), custom("a.b"), reasoningFile("data:,x"), steer("s1", { type: "text", text: "go" }), { type: "source-url", sourceId: "s", url: "u:" }, { type: "file", url: "data:,x", mediaType: "text/plain" }, available("c", "rm", 1), ask("c", "ap"), reset, ...text("t", "good")),
  "reset-approval": turn(available("c", "rm", 1), ask("c", "ap"), reset, available("c", "rm", 2), ask("c", "ap"), answer("ap", true)),
  "reset-before-any-step": [start("m1"), ...text("t", "bad"), reset, step, ...text("t", "good"), unstep, finish],
  "reset-without-start": [open("t"), say("t", "bad"), reset, step, ...text("t", "good"), finish],
  "reset-several-attempts": turn(open("t"), say("t", "one"), reset, open("t"), say("t", "two"), reset, open("t"), say("t", "three"), close("t")),
  "reset-at-the-end": turn(...text("t", "bad"), reset),
  "reset-then-abort": [start("m1"), step, open("t"), say("t", "bad"), reset, { type: "abort", reason: "user" }],
  "reset-then-error": turn(open("t"), say("t", "bad"), { type: "error", errorText: "overloaded" }, reset, ...text("t", "good")),
  "reset-keeps-metadata": [{ ...start("m1"), messageMetadata: { a: 1 } }, step, ...text("t", "bad"), { type: "message-metadata", messageMetadata: { attempt: 1 } }, reset, ...text("t", "good"), finish],
  "reset-after-finish-step": turn(...text("t", "bad"), unstep, reset, ...text("t", "good")),
  "reset-after-empty-step": turn(...text("t", "kept"), unstep, step, reset, ...text("t", "good")),
  "reset-text-open-in-earlier-step": [start("m1"), step, open("t"), say("t", "left"), unstep, step, ...text("u", "bad"), reset, ...text("u", "good"), unstep, finish],
  "reset-in-second-message": [start("m1"), step, ...text("t", "one"), unstep, start("m2"), step, ...text("t", "bad"), reset, ...text("t", "good"), unstep, finish],
  "text-open-across-steps": turn(open("t"), say("t", "one "), unstep, step, say("t", "two"), close("t")),
  "text-open-after-finish-step": turn(open("t"), say("t", "one "), unstep, say("t", "two"), step, open("t"), say("t", "new"), close("t")),
  "reasoning-open-across-steps": turn(...think("r", "one "), unstep, step, { type: "reasoning-delta", id: "r", delta: "two" }, { type: "reasoning-end", id: "r", ...provider(1) }),
  "two-streams-merged": turn(open("a"), say("a", "A1 "), step, open("b"), say("b", "B1 "), unstep, say("a", "A2"), close("a"), say("b", "B2"), close("b")),
  "tool-input-error-static": turn(begin("c", "w"), delta("c", '{"a":'), refused("c", "w", '{"a":'), ...text("t", "sorry")),
  "tool-input-error-fresh": turn(refused("c", "w", { a: 1 }, { title: "T", toolMetadata: { m: 1 }, ...provider(1) })),
  "tool-input-error-absent-input": turn(begin("c", "w"), delta("c", "{}"), refused("c", "w", undefined)),
  "tool-input-error-dynamic": turn(begin("c", "w", dynamic), delta("c", "{}"), refused("c", "w", "raw", dynamic)),
  "tool-input-error-of-other-kind": turn(begin("c", "w", dynamic), refused("c", "w", [1]), begin("d", "w"), refused("d", "w", [2], dynamic)),
  "tool-input-error-then-output-error": turn(refused("c", "w", 1), failed("c")),
  "tool-output-error-keeps-raw-input": turn(begin("c", "w"), delta("c", '{"a":1}'), failed("c")),
  "tool-negative-first-item": turn(begin("c", "w"), delta("c", '{"a":[-'), delta("c", "1,-"), delta("c", "2]}"), available("c", "w", { a: [-1, -2] })),
  "tool-negative-first-item-dynamic": turn(begin("c", "w", dynamic), delta("c", "["), delta("c", " "), delta("c", "-"), delta("c", "5]")),
  "tool-array-of-junk": turn(begin("c", "w"), delta("c", "[+"), delta("c", "+"), delta("c", "1"), delta("c", "]")),
  "finish-interrupted": [start("m1"), step, ...text("t", "x"), unstep, { type: "finish", finishReason: "interrupted" }],
  "unknown-types": turn({ type: "hologram", id: "h" }, ...text("t", "x"), { type: "steering" }, { type: "Custom", kind: "a.b" }),
  "fatal-approval-response": turn(available("c", "rm", 1), ask("c", "ap1"), answer("ap2", true)),
  "fatal-approval-response-replaced": turn(available("c", "rm", 1), ask("c", "ap1"), ask("c", "ap2"), answer("ap1", true)),
  "fatal-approval-response-without-request": turn(available("ap", "rm", 1), answer("ap", true)),
  "fatal-text-delta-after-reset": turn(open("t"), say("t", "a"), reset, say("t", "b")),
  "fatal-text-delta-of-earlier-step-after-reset": turn(open("t"), unstep, step, reset, say("t", "b")),
  "fatal-reasoning-end-after-reset": turn(...think("r", "a"), reset, { type: "reasoning-end", id: "r" }),
  "fatal-tool-input-delta-after-reset": turn(begin("c", "w"), delta("c", "{"), reset, delta("c", "}")),
  "fatal-tool-output-after-reset": turn(available("c", "w", 1), reset, output("c", 1)),
  "fatal-approval-after-reset": turn(available("c", "w", 1), reset, ask("c", "ap")),
  "fatal-approval-response-after-reset": turn(available("c", "w", 1), ask("c", "ap"), reset, answer("ap", true)),
  "fatal-new-message-forgets-approval": [start("m1"), step, available("c", "w", 1), ask("c", "ap"), start("m2"), answer("ap", true)],
};

const resumed = [
  ["resume-approved-in-stream", message({ type: "step-start" }, { type: "tool-rm", toolCallId: "c", state: "approval-requested", input: {}, approval: { id: "ap1", requestReason: "r" } }), [start("m1"), answer("ap1", true, { reason: "fine" }), output("c", "done"), step, ...text("0", "ok"), unstep, finish]],
  ["resume-reset-drops-stored-step", message({ type: "step-start" }, { type: "text", text: "kept", state: "done" }, { type: "step-start" }, { type: "text", text: "cut o", state: "streaming" }), [start("m1"), reset, ...text("t", "again")]],
  ["resume-reset-keeps-earlier-call", message({ type: "step-start" }, { type: "tool-w", toolCallId: "c", state: "input-available", input: 1 }, { type: "step-start" }, { type: "tool-w", toolCallId: "c", state: "input-available", input: 2 }), [start("m1"), reset, output("c", 1)]],
  ["resume-reset-without-step", message({ type: "text", text: "old", state: "done" }), [reset, step, ...text("t", "new")]],
  ["resume-reset-data", message({ type: "data-s", id: "x", data: 1 }, { type: "step-start" }, { type: "data-s", id: "x", data: 2 }), [data("s", 3, { id: "x" }), reset, data("s", 4, { id: "x" })]],
  ["resume-parts-of-7", message({ type: "custom", kind: "a.b" }, { type: "reasoning-file", mediaType: "image/png", url: "data:,x" }, { type: "steering-message", id: "s", parts: [{ type: "text", text: "go" }] }, { type: "text", text: "x", state: "done", citations: [url("a")] }), [start("m1"), step, ...text("t", "more")]],
  ["resume-streaming-negative", message(streaming({ rawInput: "[" , input: [] })), [delta("c", "-"), delta("c", "1]")]],
  ["resume-unknown-part", message({ type: "hologram", depth: 3 }), [start("m1"), step, ...text("t", "x")]],
];

export const scripts = [
  ...Object.entries(scripts_by_name).map(([name, chunks]) => ({ name, tags: [name.split("-")[0]], chunks })),
  ...resumed.map(([name, initial, chunks]) => ({ name, tags: ["resume"], initial, chunks })),
].map((script) => JSON.parse(JSON.stringify(script)));
