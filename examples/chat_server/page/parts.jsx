// The parts of a message: text, files, and the calls of tools with what they ask of the person.
import { getToolName, isToolUIPart } from "ai";

export function Parts({ parts, ...rest }) {
  return parts.map((part, index) => <Part key={index} part={part} {...rest} />);
}

// Large files are references in the history, to be had from the server.
const addressOf = (session, url) => url.replace(/^persist-blob:/, `/api/sessions/${session}/files/`);

function Part({ part, session, isLast, busy, onApproval, onOutput }) {
  if (part.type === "text") return <p className="text">{part.text}</p>;
  if (part.type === "reasoning") return <details><summary>Thoughts</summary>{part.text}</details>;
  if (part.type === "file")
    return part.mediaType.startsWith("image/") ? (
      <img src={addressOf(session, part.url)} alt={part.filename ?? "An image"} />
    ) : (
      <a href={addressOf(session, part.url)} download={part.filename}>{part.filename ?? "A file"}</a>
    );
  if (part.type === "tool-choose") return <Choice part={part} isLast={isLast} busy={busy} onOutput={onOutput} />;
  if (isToolUIPart(part)) return <Call part={part} isLast={isLast} busy={busy} onApproval={onApproval} />;
  return null;
}

const SAID = {
  "input-streaming": "is being prepared",
  "input-available": "is running",
  "approval-requested": "was not approved",
  "approval-responded": "has your answer",
  "output-available": "is done",
  "output-error": "failed",
  "output-denied": "was denied",
};

// A call of an earlier message waits no more: the conversation went on without it. What a person says to a call while its answer
// goes on could not be sent yet, so the buttons come with the answer's end.
function Call({ part, isLast, busy, onApproval }) {
  const asks = isLast && part.state === "approval-requested";
  const answer = (approved) => onApproval({ id: part.approval.id, approved });
  return (
    <section className="call" data-state={part.state} aria-label={getToolName(part)}>
      <strong>{getToolName(part)}</strong> {asks ? "wants your approval" : SAID[part.state]}
      <dl>
        {Object.entries(part.input ?? {}).map(([name, value]) => (
          <div key={name}><dt>{name}</dt><dd>{typeof value === "string" ? value : JSON.stringify(value)}</dd></div>
        ))}
      </dl>
      {asks && !busy && <><button onClick={() => answer(true)}>Approve</button> <button onClick={() => answer(false)}>Deny</button></>}
      {part.errorText && <p className="note">{part.errorText}</p>}
    </section>
  );
}

function Choice({ part, isLast, busy, onOutput }) {
  const choose = (output) => onOutput({ tool: "choose", toolCallId: part.toolCallId, output });
  return (
    <section className="call" data-state={part.state} aria-label="choose">
      <strong>{part.input?.question}</strong>
      {isLast && !busy && part.state === "input-available"
        ? part.input.options.map((option) => <button key={option} onClick={() => choose(option)}>{option}</button>)
        : <p>{part.output ?? part.errorText}</p>}
    </section>
  );
}
