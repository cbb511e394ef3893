// Hand-written chunk sequences: every chunk type, and every quirk that a recorder can get wrong.

const start = (messageId, messageMetadata) => ({ type: "start", ...(messageId && { messageId }), ...(messageMetadata && { messageMetadata }) });
const step = { type: "start-step" };
const unstep = { type: "finish-step" };
const finish = { type: "finish", finishReason: "stop" };
const grow = (kind) => ({
  start: (id, more) => ({ type: `${kind}-start`, id, ...more }),
  delta: (id, delta, more) => ({ type: `${kind}-delta`, id, delta, ...more }),
  end: (id, more) => ({ type: `${kind}-end`, id, ...more }),
});
const text = grow("text");
const reasoning = grow("reasoning");
const begin = (toolCallId, toolName, more) => ({ type: "tool-input-start", toolCallId, toolName, ...more });
const delta = (toolCallId, inputTextDelta) => ({ type: "tool-input-delta", toolCallId, inputTextDelta });
const available = (toolCallId, toolName, input, more) => ({ type: "tool-input-available", toolCallId, toolName, input, ...more });
const refused = (toolCallId, toolName, input, more) => ({ type: "tool-input-error", toolCallId, toolName, input, errorText: "bad input", ...more });
const output = (toolCallId, value, more) => ({ type: "tool-output-available", toolCallId, output: value, ...more });
const failed = (toolCallId, more) => ({ type: "tool-output-error", toolCallId, errorText: "tool failed", ...more });
const denied = (toolCallId) => ({ type: "tool-output-denied", toolCallId });
const approval = (toolCallId, approvalId, more) => ({ type: "tool-approval-request", toolCallId, approvalId, ...more });
const data = (type, value, more) => ({ type: `data-${type}`, data: value, ...more });
const metadata = (messageMetadata) => ({ type: "message-metadata", messageMetadata });
const provider = (value) => ({ providerMetadata: { p: { value } } });
const dynamic = { dynamic: true };
const turn = (...chunks) => [start("m1"), step, ...chunks, unstep, finish];
const message = (...parts) => ({ id: "m1", role: "assistant", parts });
const toolPart = (state, more) => ({ type: "tool-w", toolCallId: "c", state, ...more });

const text_scripts = {
  "text-plain": turn(text.start("t"), text.delta("t", "Hel"), text.delta("t", "lo"), text.end("t")),
  "text-interleaved": turn(text.start("a"), text.start("b"), text.delta("a", "A1"), text.delta("b", "B1"), text.delta("a", "A2"), text.end("b"), text.delta("a", "A3"), text.end("a")),
  "text-reopened-id": turn(text.start("t"), text.delta("t", "one"), text.end("t"), text.start("t"), text.delta("t", "two"), text.end("t")),
  "text-start-orphans-open": turn(text.start("t"), text.delta("t", "orphan"), text.start("t"), text.delta("t", "new"), text.end("t")),
  "text-open-across-steps": turn(text.start("t"), text.delta("t", "left"), unstep, step, text.start("t"), text.delta("t", "x")),
  "text-provider-metadata-replaced": turn(text.start("t", provider(1)), text.delta("t", "a", provider({ deep: 1 })), text.delta("t", "b"), text.delta("t", "c", provider({ deep: 1 })), text.end("t", provider(3))),
  "text-metadata-true-is-not-one": turn(text.start("t", provider(1)), text.delta("t", "a", provider(true)), text.end("t")),
  "text-empty-deltas": turn(text.start("t"), text.delta("t", ""), text.end("t")),
  "text-empty-id": turn(text.start(""), text.delta("", "x"), text.end("")),
  "text-prototype-ids": turn(text.start("__proto__"), text.delta("__proto__", "x"), text.start("constructor"), text.delta("constructor", "y"), text.end("__proto__")),
  "text-split-surrogate": turn(text.start("t"), text.delta("t", "a\ud83d"), text.delta("t", "\ude00b"), text.end("t")),
  "text-lone-surrogates": turn(text.start("t"), text.delta("t", "\ude00"), text.delta("t", "\ud83d"), text.end("t")),
  "text-split-surrogate-by-structure": turn(text.start("t"), text.delta("t", "\ud83d", provider(1)), text.delta("t", "\ude00", provider(2)), text.delta("t", "!")),
  "text-control-characters": turn(text.start("t"), text.delta("t", "a\u0000b\u2028\"\\\n\t\u007f"), text.end("t")),
  "text-no-start-no-step": [text.start("t"), text.delta("t", "bare"), text.end("t")],
  "text-after-finish": [...turn(text.start("t"), text.end("t")), text.start("u"), text.delta("u", "late"), text.end("u")],
  "reasoning-plain": turn(reasoning.start("r", provider(0)), reasoning.delta("r", "think"), reasoning.delta("r", "ing"), reasoning.end("r", provider(1))),
  "reasoning-and-text-share-id": turn(reasoning.start("0"), text.start("0"), reasoning.delta("0", "r"), text.delta("0", "t"), reasoning.end("0"), text.end("0")),
  "reasoning-reopened": turn(reasoning.start("0"), reasoning.delta("0", "a"), reasoning.end("0"), reasoning.start("0"), reasoning.delta("0", "b")),
};

const tool_scripts = {
  "tool-cycle": turn(begin("c", "w"), delta("c", '{"ci'), delta("c", 'ty":"Par'), delta("c", 'is"}'), available("c", "w", { city: "Paris" }), output("c", { temp: 21 })),
  "tool-without-input-stream": turn(available("c", "w", { a: 1 }), output("c", "ok")),
  "tool-two-interleaved": turn(begin("c1", "w"), begin("c2", "x"), delta("c2", "[1,"), delta("c1", '{"a":tr'), delta("c2", "2]"), available("c1", "w", { a: true }), available("c2", "x", [1, 2]), output("c2", 2), output("c1", 1)),
  "tool-nulls": turn(available("c", "w", null), output("c", null)),
  "tool-absent-payloads": turn(available("c", "w", undefined), output("c", undefined)),
  "tool-absent-output-after-output": turn(available("c", "w", 1), output("c", 1), output("c", undefined)),
  "tool-sticky": turn(begin("c", "w", { title: "T", toolMetadata: { a: 1 }, providerExecuted: true, ...provider(1) }), delta("c", "{"), available("c", "w", {}), output("c", 1, provider(2)), output("c", 2, { toolMetadata: { b: 1 }, providerExecuted: false })),
  "tool-renamed": turn(begin("c", "old"), delta("c", "{}"), available("c", "new-name", {}), output("c", 1)),
  "tool-empty-delta-first": turn(begin("c", "w"), delta("c", ""), delta("c", "{"), delta("c", "")),
  "tool-delta-not-json": turn(begin("c", "w"), delta("c", "no"), delta("c", " json")),
  "tool-delta-then-unparsable": turn(begin("c", "w"), delta("c", '{"a":1}'), delta("c", "!"), delta("c", "?")),
  "tool-delta-prototype-key": turn(begin("c", "w"), delta("c", '{"a":1,"__proto__'), delta("c", '":{"x":1}}')),
  "tool-delta-split-surrogate": turn(begin("c", "w"), delta("c", '{"a":"\ud83d'), delta("c", '\ude00"'), delta("c", "}")),
  "tool-delta-escaped-surrogate": turn(begin("c", "w"), delta("c", '["\\ud83d'), delta("c", '\\ude00"'), delta("c", "]")),
  "tool-text-encoding": turn(begin("c", "w", { inputEncoding: "text" }), delta("c", "SELECT "), delta("c", "{1"), available("c", "w", "SELECT {1}"), output("c", 1)),
  "tool-json-encoding": turn(begin("c", "w", { inputEncoding: "json" }), delta("c", "[1"), available("c", "w", [1])),
  "tool-text-encoding-empty": turn(begin("c", "w", { inputEncoding: "text" }), delta("c", "")),
  "tool-restarted": turn(begin("c", "w", { inputEncoding: "text", title: "T" }), delta("c", "ab"), begin("c", "w"), delta("c", "[1"), available("c", "w", [1])),
  "tool-restarted-after-output": turn(available("c", "w", 1), output("c", 1, { preliminary: true }), begin("c", "w"), delta("c", "{")),
  "tool-delta-after-available": turn(begin("c", "w"), delta("c", '{"a":'), available("c", "w", { a: 9 }), delta("c", "1"), delta("c", "}"), output("c", 1)),
  "tool-delta-after-output": turn(begin("c", "w", { toolMetadata: { m: 1 } }), delta("c", "{"), output("c", 1, { toolMetadata: { m: 2 } }), delta("c", '"a"'), delta("c", ":1}")),
  "tool-delta-after-approval": turn(begin("c", "w"), delta("c", "["), approval("c", "ap"), delta("c", "1"), delta("c", ",2")),
  "tool-delta-in-next-step": turn(begin("c", "w", { title: "T", ...provider(1) }), delta("c", "[1"), unstep, step, delta("c", ",2"), delta("c", ",3")),
  "dynamic-delta-in-next-step": turn(begin("c", "w", { ...dynamic, title: "T" }), delta("c", "[1"), unstep, step, delta("c", ",2"), delta("c", ",3"), delta("c", "]")),
  "dynamic-delta-in-next-step-then-output": turn(begin("c", "w", dynamic), delta("c", "[1"), step, delta("c", ",2"), output("c", 1), delta("c", "]")),
  "tool-same-id-each-step": turn(available("c", "w", 1), output("c", 1), unstep, step, available("c", "w", 2), output("c", 2), unstep, step, output("c", 3)),
  "tool-output-in-later-step": turn(available("c", "w", 1), unstep, step, text.start("t"), output("c", 1), denied("c")),
  "tool-output-latest-of-two": turn(available("c", "w", 1), unstep, step, available("c", "w", 2), unstep, step, output("c", "second")),
  "tool-both-kinds-one-id": turn(available("c", "w", 1), available("c", "d", 2, dynamic), output("c", "to the first"), unstep, step, output("c", "to the latest")),
  "dynamic-first-both-kinds": turn(available("c", "d", 2, dynamic), available("c", "w", 1), refused("c", "e", { x: 1 }), output("c", 1)),
  "tool-input-error-static": turn(begin("c", "w"), delta("c", '{"a"'), refused("c", "w", { a: "bad" }, { title: "never", ...provider(1) })),
  "tool-input-error-dynamic": turn(begin("c", "w", dynamic), delta("c", '{"a"'), refused("c", "w", { a: "bad" })),
  "tool-input-error-fresh-static": turn(refused("c", "w", "raw", { title: "never", toolMetadata: { a: 1 } })),
  "tool-input-error-fresh-dynamic": turn(refused("c", "w", "raw", dynamic)),
  "tool-input-error-without-input": turn(refused("c", "w", undefined), output("c", 1)),
  "tool-input-error-kind-of-other-step": turn(available("c", "w", 1, dynamic), unstep, step, refused("c", "w", 2)),
  "tool-output-error-static-keeps-raw": turn(begin("c", "w"), delta("c", "{"), failed("c", provider(1)), failed("c")),
  "tool-output-error-dynamic-drops-raw": turn(begin("c", "w", dynamic), delta("c", "{"), failed("c", { providerExecuted: true })),
  "tool-output-error-after-output": turn(available("c", "w", 1), output("c", 1), failed("c"), output("c", 2)),
  "tool-preliminary": turn(available("c", "w", 1), output("c", 1, { preliminary: true }), output("c", 2, { preliminary: true }), output("c", 3)),
  "tool-preliminary-false": turn(available("c", "w", 1), output("c", 1, { preliminary: false })),
  "dynamic-cycle": turn(begin("c", "w", { ...dynamic, ...provider(1), title: "T" }), delta("c", '{"a":[1'), delta("c", ",2]}"), available("c", "w2", { a: [1, 2] }, dynamic), output("c", 1, provider(2))),
  "dynamic-false-is-static": turn(begin("c", "w", { dynamic: false }), delta("c", "1"), available("c", "w", 1, { dynamic: false })),
  "dynamic-start-static-available": turn(begin("c", "w", dynamic), delta("c", "{"), available("c", "w", {}), delta("c", "}")),
  "tool-prototype-ids": turn(begin("__proto__", "constructor"), delta("__proto__", "1"), available("constructor", "__proto__", 1), output("__proto__", 1), output("constructor", 2)),
  "tool-empty-names": turn(begin("", ""), delta("", "1"), available("", "", 1), output("", 1)),
  "provider-executed": turn(available("c", "search", { q: 1 }, { providerExecuted: true, ...provider(1) }), output("c", [1], { providerExecuted: true, ...provider(2) })),
  "tool-before-any-step": [start("m1"), available("c", "w", 1), step, output("c", 1), available("c", "w", 2), output("c", 2)],
  "approval-requested": turn(available("c", "rm", { p: "x" }), approval("c", "ap1")),
  "approval-all-fields": turn(available("c", "rm", {}), approval("c", "ap1", { approvalDescriptor: { a: 1 }, inputSchemaInput: null, signature: "s" })),
  "approval-null-descriptor": turn(available("c", "rm", {}), approval("c", "ap1", { approvalDescriptor: null, inputSchemaInput: { x: 1 } })),
  "approval-replaced": turn(available("c", "rm", {}), approval("c", "ap1", { signature: "s" }), approval("c", "ap2")),
  "approval-then-denied": turn(available("c", "rm", {}), approval("c", "ap1"), denied("c")),
  "approval-then-output": turn(available("c", "rm", {}), approval("c", "ap1"), output("c", 1), failed("c")),
  "approval-while-streaming": turn(begin("c", "rm"), delta("c", '{"a":1'), approval("c", "ap1"), available("c", "rm", { a: 1 })),
  "denied-while-streaming": turn(begin("c", "rm", dynamic), delta("c", '{"a":1'), denied("c"), output("c", 1)),
};

const other_scripts = {
  "sources-and-files": turn({ type: "source-url", sourceId: "s", url: "https://example.org", title: "E", ...provider(1), extra: 1 }, { type: "source-url", sourceId: "s", url: "https://example.org" }, { type: "source-document", sourceId: "d", mediaType: "application/pdf", title: "D", filename: "d.pdf" }, { type: "source-document", sourceId: "d", mediaType: "text/plain", title: "", ...provider(1) }, { type: "file", url: "data:,x", mediaType: "text/plain", filename: "dropped", ...provider(2) }, { type: "file", url: "data:,x", mediaType: "text/plain" }),
  "data-without-id": turn(data("s", 1), data("s", 1), data("s", null), data("s", undefined, { extra: [1] })),
  "data-replaced-by-id": turn(data("s", { a: 1 }, { id: "x", extra: 1 }), data("t", 2, { id: "x" }), text.start("t"), data("s", { b: 2 }, { id: "x", other: 1 }), data("s", null, { id: "x" })),
  "data-replaced-by-absent": turn(data("s", 1, { id: "x" }), data("s", undefined, { id: "x" })),
  "data-across-steps": turn(data("s", 1, { id: "x" }), unstep, step, data("s", 2, { id: "x" }), data("s", 3, { id: "" }), data("s", 4, { id: "" })),
  "data-transient": turn(data("s", 1, { id: "x", transient: true }), data("s", 2, { id: "x", transient: false }), data("s", 3, { id: "x", transient: true }), data("s", 4, { transient: true })),
  "data-bare-prefix": turn(data("", 1, { id: "x" }), data("", 2, { id: "x" })),
  "metadata-deep": [start("m1", { a: { b: 1, c: [1] }, d: 1 }), metadata({ a: { b: { x: 1 }, e: null } }), metadata({ a: { c: [2], b: { y: 2 } }, d: { z: 1 } }), metadata({ d: null }), { ...finish, messageMetadata: { f: 1 } }],
  "metadata-null-and-empty": [start("m1"), metadata(null), metadata({}), metadata(null), metadata({ a: null }), finish],
  "metadata-prototype-keys": [start("m1", { constructor: 1, a: { prototype: 1 } }), metadata({ constructor: 2, prototype: { x: 1 }, a: { prototype: 2, constructor: 3, b: 1 }, n: { constructor: 1 } }), finish],
  "metadata-before-start": [metadata({ lost: 1 }), start("m1", { kept: 1 }), finish],
  "metadata-before-start-same-id": [metadata({ kept: 1 }), start(undefined, { also: 1 }), finish],
  "metadata-array-becomes-object": [start("m1", { a: [1] }), metadata({ a: { b: 1 } }), metadata({ a: [2] }), finish],
  "start-twice-same-id": [start("m1", { a: 1 }), step, text.start("t"), start("m1", { b: 2 }), text.delta("t", "still open"), finish],
  "start-without-id": [start(), step, text.start("t"), text.delta("t", "x"), unstep, finish],
  "start-other-id": [start("m1", { a: 1 }), step, text.start("t"), text.delta("t", "one"), start("m2"), step, text.start("t"), text.delta("t", "two"), unstep, finish],
  "start-other-id-after-parts-without-id": [step, text.start("t"), text.delta("t", "x"), start("m1"), step, text.start("t"), finish],
  "start-three-messages": [start("m1"), data("s", 1, { id: "x" }), start("m2"), data("s", 2, { id: "x" }), start("m1"), data("s", 3, { id: "x" }), finish],
  "start-other-id-forgets-open-text": [start("m1"), text.start("t"), start("m2"), text.delta("t", "x")],
  "start-other-id-forgets-tool-input": [start("m1"), begin("c", "w"), delta("c", "{"), start("m2"), step, delta("c", "}")],
  "start-other-id-forgets-tool-call": [start("m1"), available("c", "w", 1), start("m2"), output("c", 1)],
  "abort-mid-text": [start("m1"), step, text.start("t"), text.delta("t", "Once"), { type: "abort", reason: "user" }, text.delta("t", " more"), finish],
  "abort-mid-tool": [start("m1"), step, begin("c", "w"), delta("c", '{"a"'), { type: "abort" }, output("c", 1)],
  "error-continues": turn(text.start("t"), { type: "error", errorText: "quota" }, text.delta("t", "x"), { type: "error", errorText: "" }, text.end("t")),
  "unknown-types": turn({ type: "tool-input-progress", toolCallId: "c" }, { type: "raw", value: 1 }, { type: "" }, { type: "text" }, { type: "Data-x", data: 1 }),
  "empty-message": [start("m1"), finish],
  "several-finishes": [start("m1", { a: 1 }), { ...finish, messageMetadata: { b: 1 } }, { type: "finish" }, step, unstep, unstep, step],
  "fatal-text-delta": [start("m1"), text.start("a"), text.delta("b", "x"), text.delta("a", "never")],
  "fatal-text-end": [start("m1"), text.start("a"), text.end("a"), text.end("a")],
  "fatal-text-delta-after-finish-step": turn(text.start("a"), unstep, step, text.delta("a", "x")),
  "fatal-text-delta-of-reasoning": [start("m1"), reasoning.start("a"), text.delta("a", "x")],
  "fatal-reasoning-delta": [start("m1"), reasoning.delta("a", "x")],
  "fatal-reasoning-end": [start("m1"), reasoning.start("a"), reasoning.end("b")],
  "fatal-tool-input-delta": [start("m1"), available("c", "w", 1), delta("c", "x")],
  "fatal-tool-output": [start("m1"), begin("c", "w"), output("d", 1)],
  "fatal-tool-output-error": [start("m1"), failed("c")],
  "fatal-tool-output-denied": [start("m1"), text.start("c"), denied("c")],
  "fatal-tool-approval": [approval("c", "ap")],
};

const resumed = [
  ["resume-approved", message({ type: "step-start" }, toolPart("approval-responded", { input: { p: 1 }, approval: { id: "ap1", approved: true } })), [start("m1"), output("c", "done"), step, text.start("0"), text.delta("0", "ok"), text.end("0"), unstep, finish]],
  ["resume-denied", message({ type: "step-start" }, toolPart("approval-responded", { input: {}, approval: { id: "ap1", approved: false } })), [start("m1"), denied("c"), finish]],
  ["resume-streaming-input", message({ type: "step-start" }, toolPart("input-streaming", { rawInput: '{"a":', input: {}, title: "T" })), [delta("c", "1"), delta("c", "}"), available("c", "w", { a: 1 })]],
  ["resume-streaming-input-without-raw", message(toolPart("input-streaming")), [delta("c", "[1"), delta("c", "]")]],
  ["resume-streaming-text-encoding", message(toolPart("input-streaming", { inputEncoding: "text", rawInput: "ab", input: "ab" })), [delta("c", "cd"), failed("c")]],
  ["resume-streaming-dynamic", message({ type: "dynamic-tool", toolName: "w", toolCallId: "c", state: "input-streaming", rawInput: "[1", input: [1], toolMetadata: { a: 1 } }), [delta("c", ",2"), step, delta("c", ",3"), delta("c", "]")]],
  ["resume-streaming-with-stale-fields", message(toolPart("input-streaming", { rawInput: "[", output: 1, preliminary: true, errorText: "old" })), [delta("c", "1"), delta("c", "]")]],
  ["resume-streaming-in-earlier-step", message(toolPart("input-streaming", { rawInput: "[1", input: [1] }), { type: "step-start" }), [delta("c", ",2")]],
  ["resume-input-available-is-not-streaming", message(toolPart("input-available", { input: 1 })), [delta("c", "1")]],
  ["resume-open-text-stays-orphaned", message({ type: "step-start" }, { type: "text", text: "cut o", state: "streaming" }), [start("m1"), text.start("t"), text.delta("t", "new"), text.end("t")]],
  ["resume-open-text-cannot-grow", message({ type: "text", text: "cut o", state: "streaming" }), [text.delta("t", "ff")]],
  ["resume-data-and-metadata", { ...message(data("s", 1, { id: "x" }), data("s", 2, { id: "x" })), metadata: { a: { b: 1 } } }, [start("m1", { a: { c: 2 } }), data("s", 3, { id: "x" }), data("t", 4, { id: "x" })]],
  ["resume-other-id", { ...message({ type: "text", text: "old", state: "done" }), metadata: { a: 1 } }, [start("m2"), step, text.start("t"), text.delta("t", "new")]],
  ["resume-without-start", message({ type: "text", text: "old", state: "done" }), [step, text.start("t"), text.end("t")]],
  ["resume-same-id-twice", message(toolPart("output-available", { input: 1, output: 1 }), { type: "step-start" }, toolPart("input-available", { input: 2 })), [output("c", "second"), step, output("c", "latest"), available("c", "w", 3), failed("c")]],
  ["resume-user-message", { id: "u1", role: "user", parts: [{ type: "text", text: "hi" }] }, [step, text.start("t"), text.delta("t", "x")]],
];

const tagged = (scripts) => Object.entries(scripts).map(([name, chunks]) => ({ name, tags: [name.split("-")[0]], chunks }));

export const scripts = [
  ...[text_scripts, tool_scripts, other_scripts].flatMap(tagged),
  ...resumed.map(([name, initial, chunks]) => ({ name, tags: ["resume"], initial, chunks })),
].map((script) => JSON.parse(JSON.stringify(script)));
