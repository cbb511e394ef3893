// Seeded random chunk sequences, valid until an optional fatal last chunk; and random JSON prefixes.

function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x9e3779b9) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

class Dice {
  constructor(seed) {
    this.next = generator(seed);
  }
  chance(probability) {
    return this.next() < probability;
  }
  pick(items) {
    return items[Math.floor(this.next() * items.length)];
  }
  maybe(probability, fields) {
    return this.chance(probability) ? fields() : {};
  }
}

const TEXTS = ["", "a", "Hel", "lo ", "naïve", "日本", "😀", "\ud83d", "\ude00", '"quoted"', "line\nbreak", "\u2028", "\u0000"];
const INPUT_PIECES = ['{"a":', "1", ",", '"b":"x', 'y"', "}", "[", "tru", '{"c":null', "\\u00", "e9", " ", "-", "\ud83d", "\ude00", ""];
const VALUES = [null, true, 0, -1.5, "text", [], [1, { a: null }], {}, { city: "Paris", n: [1, 2] }];

function metadata(dice) {
  const values = [null, 1, "x", [1, 2], { deep: { a: 1 } }, { deep: { b: [1] } }, { deep: null }];
  return { [dice.pick(["k1", "k2", "constructor", "usage"])]: dice.pick(values), ...dice.maybe(0.3, () => ({ k3: dice.pick(values) })) };
}

const provider = (dice) => ({ providerMetadata: { [dice.pick(["p", "q"])]: { [dice.pick(["x", "y"])]: dice.pick(VALUES) } } });

const CITATION = { source: { type: "source", sourceType: "url", id: "s", url: "https://example.org/s" } };

// `major` is that of the `ai` package the sequence is valid for. The draws for 6 are the same whatever 7 has.
export function randomChunks(seed, major = 6) {
  const dice = new Dice(seed);
  const ids = ["0", "1", "t"];
  const calls = ["call_0", "call_1", "call_2"];
  const known = { text: new Set(), reasoning: new Set(), inputs: new Set(), tools: new Set() };
  const chunks = [];
  let message = "m1";
  const reset = () => Object.values(known).forEach((set) => set.clear());
  const tool = () => ({
    toolCallId: dice.pick(calls),
    toolName: dice.pick(["weather", "search", "a-b"]),
    ...dice.maybe(0.35, () => ({ dynamic: dice.chance(0.8) })),
    ...dice.maybe(0.2, () => ({ title: dice.pick(["T", "U"]) })),
    ...dice.maybe(0.2, () => ({ toolMetadata: { m: dice.pick(VALUES) } })),
    ...dice.maybe(0.2, () => ({ providerExecuted: dice.chance(0.7) })),
    ...dice.maybe(0.2, () => provider(dice)),
  });
  const result = () => {
    const { toolName, dynamic, title, ...rest } = tool();
    return { ...rest, ...dice.maybe(0.3, () => ({ dynamic: true })) };
  };
  const makers = {
    start: () => {
      const id = dice.chance(0.15) ? dice.pick(["m1", "m2", "m3"]) : message;
      if (id !== message) reset();
      message = id;
      return { type: "start", ...dice.maybe(0.7, () => ({ messageId: id })), ...dice.maybe(0.4, () => ({ messageMetadata: metadata(dice) })) };
    },
    "start-step": () => ({ type: "start-step" }),
    "finish-step": () => {
      if (major === 6) {
        known.text.clear();
        known.reasoning.clear();
      }
      return { type: "finish-step" };
    },
    finish: () => ({ type: "finish", finishReason: "stop", ...dice.maybe(0.5, () => ({ messageMetadata: metadata(dice) })) }),
    "message-metadata": () => ({ type: "message-metadata", messageMetadata: dice.chance(0.1) ? null : metadata(dice) }),
    error: () => ({ type: "error", errorText: dice.pick(["boom", "quota"]) }),
    unknown: () => ({ type: dice.pick(["tool-input-progress", "telemetry", "raw"]), value: 1 }),
    "text-start": () => growing("text", "start"),
    "text-delta": () => growing("text", "delta"),
    "text-end": () => growing("text", "end"),
    "reasoning-start": () => growing("reasoning", "start"),
    "reasoning-delta": () => growing("reasoning", "delta"),
    "reasoning-end": () => growing("reasoning", "end"),
    "source-url": () => ({ type: "source-url", sourceId: dice.pick(ids), url: "https://example.org/a", ...dice.maybe(0.5, () => ({ title: "A" })) }),
    "source-document": () => ({ type: "source-document", sourceId: "d", mediaType: "text/plain", title: "D", ...dice.maybe(0.5, () => ({ filename: "d.txt" })) }),
    file: () => ({ type: "file", url: "data:,x", mediaType: "text/plain", ...dice.maybe(0.3, () => provider(dice)) }),
    data: () => ({
      type: dice.pick(["data-status", "data-chart"]),
      ...dice.maybe(0.7, () => ({ id: dice.pick(["d1", "d2"]) })),
      ...dice.maybe(0.95, () => ({ data: dice.pick(VALUES) })),
      ...dice.maybe(0.2, () => ({ transient: dice.chance(0.5) })),
    }),
    "tool-input-start": () => {
      const chunk = { type: "tool-input-start", ...tool(), ...dice.maybe(0.3, () => ({ inputEncoding: dice.pick(["json", "text"]) })) };
      known.inputs.add(chunk.toolCallId);
      known.tools.add(chunk.toolCallId);
      return chunk;
    },
    "tool-input-delta": () =>
      known.inputs.size && { type: "tool-input-delta", toolCallId: dice.pick([...known.inputs]), inputTextDelta: dice.pick(INPUT_PIECES) },
    "tool-input-available": () => {
      const chunk = { type: "tool-input-available", ...tool(), ...dice.maybe(0.95, () => ({ input: dice.pick(VALUES) })) };
      known.tools.add(chunk.toolCallId);
      return chunk;
    },
    "tool-input-error": () => {
      const chunk = { type: "tool-input-error", ...tool(), input: dice.pick(VALUES), errorText: "invalid input" };
      known.tools.add(chunk.toolCallId);
      return chunk;
    },
    "tool-output-available": () =>
      known.tools.size && {
        type: "tool-output-available",
        ...result(),
        toolCallId: dice.pick([...known.tools]),
        ...dice.maybe(0.95, () => ({ output: dice.pick(VALUES) })),
        ...dice.maybe(0.3, () => ({ preliminary: dice.chance(0.8) })),
      },
    "tool-output-error": () =>
      known.tools.size && { type: "tool-output-error", ...result(), toolCallId: dice.pick([...known.tools]), errorText: "tool failed" },
    "tool-output-denied": () => known.tools.size && { type: "tool-output-denied", toolCallId: dice.pick([...known.tools]) },
    "tool-approval-request": () =>
      known.tools.size && {
        type: "tool-approval-request",
        approvalId: dice.pick(["ap1", "ap2"]),
        toolCallId: dice.pick([...known.tools]),
        ...dice.maybe(0.2, () => ({ approvalDescriptor: dice.pick(VALUES) })),
        ...dice.maybe(0.2, () => ({ inputSchemaInput: dice.pick(VALUES) })),
        ...dice.maybe(0.2, () => ({ signature: "sig" })),
      },
  };
  function growing(kind, verb) {
    const open = known[kind];
    if (verb !== "start" && open.size === 0) return null;
    const id = verb === "start" ? dice.pick(ids) : dice.pick([...open]);
    if (verb === "start") open.add(id);
    if (verb === "end") open.delete(id);
    const delta = verb === "delta" ? { delta: dice.pick(TEXTS) } : {};
    const cited = major > 6 && verb === "end" ? dice.maybe(0.4, () => ({ citations: Array(dice.pick([0, 1, 2])).fill(CITATION) })) : {};
    return { type: `${kind}-${verb}`, id, ...delta, ...cited, ...dice.maybe(0.15, () => provider(dice)) };
  }
  const makers_of_7 = {
    custom: () => ({ type: "custom", kind: dice.pick(["mock.a", "mock.b"]), ...dice.maybe(0.5, () => provider(dice)) }),
    "reasoning-file": () => ({ type: "reasoning-file", url: "data:,x", mediaType: "image/png", ...dice.maybe(0.3, () => provider(dice)) }),
    "steering-message": () => ({
      type: "steering-message",
      id: dice.pick(ids),
      parts: [{ type: "text", text: dice.pick(TEXTS) }, ...(dice.chance(0.3) ? [{ type: "file", mediaType: "text/plain", url: "data:,x" }] : [])],
    }),
    "reset-step": () => {
      Object.values(known).forEach((set) => set.clear()); // calls of earlier steps are left alone from here on
      return { type: "reset-step" };
    },
    "tool-approval-asked-and-answered": () => {
      if (!known.tools.size) return null;
      const approvalId = `ap${3 + Math.floor(dice.next() * 1000)}`;
      const toolCallId = dice.pick([...known.tools]);
      chunks.push({ type: "tool-approval-request", approvalId, toolCallId, ...dice.maybe(0.4, () => ({ reason: "sure?" })), ...dice.maybe(0.4, () => ({ isAutomatic: dice.chance(0.7) })) });
      return { type: "tool-approval-response", approvalId, approved: dice.chance(0.5), ...dice.maybe(0.4, () => ({ reason: "policy" })), ...dice.maybe(0.2, () => ({ providerExecuted: dice.chance(0.5) })), ...dice.maybe(0.2, () => provider(dice)) };
    },
  };
  if (major > 6) Object.assign(makers, makers_of_7);
  const weights = { "text-delta": 6, "tool-input-delta": 7, "reasoning-delta": 3, "tool-input-start": 2, start: 0.3, finish: 0.3, unknown: 0.3 };
  const wheel = Object.keys(makers).flatMap((key) => Array(Math.ceil((weights[key] ?? 1) * 4)).fill(key));
  chunks.push({ type: "start", messageId: message }, { type: "start-step" });
  const length = 20 + Math.floor(dice.next() * 35);
  while (chunks.length < length) {
    const chunk = makers[dice.pick(wheel)]();
    if (chunk) chunks.push(chunk);
  }
  if (dice.chance(0.15)) {
    chunks.push(dice.pick([{ type: "text-delta", id: "none", delta: "x" }, { type: "tool-output-denied", toolCallId: "none" }]), { type: "finish" });
  } else if (dice.chance(0.15)) {
    chunks.push({ type: "abort" }, { type: "text-start", id: "late" });
  }
  return chunks;
}

// A random sequence with chunks lost, doubled, moved and renamed: most are refused somewhere.
export function spoilt(seed, major) {
  const dice = new Dice(seed * 7919);
  const chunks = randomChunks(seed, major);
  const others = randomChunks(seed + 1, major);
  for (let times = 1 + Math.floor(dice.next() * 3); times > 0; times -= 1) {
    const at = 2 + Math.floor(dice.next() * (chunks.length - 2));
    const [action, other] = [dice.pick(["lose", "double", "move", "take", "rename"]), dice.pick(others)];
    if (action === "lose") chunks.splice(at, 1);
    if (action === "double") chunks.splice(at, 0, chunks[at]);
    if (action === "move") chunks.splice(2 + Math.floor(dice.next() * (chunks.length - 2)), 0, ...chunks.splice(at, 1));
    if (action === "take") chunks.splice(at, 0, other);
    if (action === "rename") for (const key of ["id", "toolCallId", "approvalId"]) if (key in chunks[at]) chunks[at] = { ...chunks[at], [key]: dice.pick(["0", "call_1", "ap1", "d1"]) };
  }
  return chunks;
}

export function randomJsonTexts(seed, count) {
  const dice = new Dice(seed);
  const tokens = ["{", "}", "[", "]", ",", ":", '"a"', '"b', '"', "1", "-", "2.5e", "true", "nul", "false", " ", "\n", "\\", "\\u00", "x", "😀", "0", "+", "\ud83d"];
  const document = '{"name":"Ada","list":[1,-2.5,{"deep":[true,null,"\\u00e9\\"q"]}],"on":false,"n":-12e+3}';
  return Array.from({ length: count }, (_, index) => {
    if (index % 3 > 0) return Array.from({ length: 1 + Math.floor(dice.next() * 9) }, () => dice.pick(tokens)).join("");
    const cut = document.slice(0, Math.floor(dice.next() * document.length));
    const at = Math.floor(dice.next() * cut.length);
    return cut.slice(0, at) + dice.pick(tokens) + cut.slice(at + Math.floor(dice.next() * 2));
  });
}
