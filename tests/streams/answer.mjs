// examples/answer.sse: one long, realistic answer as a chat server sends it.
import { JsonToSseTransformStream, createUIMessageStream } from "ai";
import { call, doc, say, streamOf, think, url } from "./models.mjs";

const SENTENCES = [
  "Paris is mild today: about 21.5 degrees, a clear sky and hardly any wind.",
  "I also asked the long-range service, but it did not answer in time, so what follows rests on the station data alone.",
  "Over the last ten years the same week brought rain on three days out of seven — “umbrella weather”, as the locals say. ☔",
  "If you plan to walk along the Seine, the late afternoon is the best moment, since the light is soft and the crowds thin out.",
  "For the evening a light jacket is enough; the temperature falls to fifteen degrees shortly after ten.",
  "Museums on the left bank close at six on weekdays, with one late opening on Thursday.",
  "Trains to Versailles leave every fifteen minutes from the stations along line C, and the ride takes about forty minutes.",
  "Should the forecast change, the two sources below are updated every hour, and the report lists how each figure was measured.",
  "Tell me which day you arrive 🙂 and I will put together a plan with times, prices and places to eat.",
];

const pieces = (text, size) => text.match(new RegExp(`.{1,${size}}`, "gsu"));

export async function answerSse() {
  const steps = [
    [
      ...think("r0", pieces("The user asks about the weather in Paris. I should look at the current conditions, then at the forecast.", 6), { providerMetadata: { mock: { signature: "c2lnbmVk" } } }),
      ...say("t0", pieces("Let me look that up. ", 5)),
      ...call("call_0", "weather", { city: "Paris" }, { pieces: 5 }),
    ],
    [...think("r1", pieces("Now the forecast for the coming days.", 6)), ...call("call_0", "broken", { city: "Paris, Île-de-France" }, { pieces: 8 })],
    [url("stations"), doc("method"), ...say("t0", pieces(SENTENCES.join(" "), 2))],
  ];
  const messageMetadata = ({ part }) => (part.type === "finish" ? { totalUsage: part.totalUsage } : undefined);
  const stream = createUIMessageStream({
    execute: ({ writer }) => {
      // The start comes from here: parts written before a start with an id would belong to a message of their own.
      writer.write({ type: "start", messageId: "msg_answer", messageMetadata: { provider: "mock", startedAt: 1763650000123 } });
      writer.write({ type: "data-progress", id: "progress", data: { done: 0 } });
      writer.write({ type: "data-progress", id: "progress", data: { done: 1, label: "asking the model" } });
      writer.merge(streamOf(steps, { ui: { messageMetadata, sendStart: false } }));
    },
  });
  let text = "";
  for await (const line of stream.pipeThrough(new JsonToSseTransformStream())) text += line;
  return text;
}
