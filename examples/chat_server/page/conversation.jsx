// One session: its messages, a running answer that goes on after a reload, and what a person can do about them.
import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport, convertFileListToFileUIParts, isToolUIPart } from "ai";
import { useEffect, useRef, useState } from "react";
import { Parts } from "./parts.jsx";
import { get, post } from "./requests.js";

// The server has the messages: it is sent the last one, or those from the answer on that goes on.
const transport = new DefaultChatTransport({
  api: "/api/chat",
  prepareSendMessagesRequest: ({ id, messages, trigger, messageId }) => ({
    body: { id, trigger, messageId, messages: messages.slice(messages.findIndex((message) => message.id === messageId)) },
  }),
});
const isOpen = (part) => isToolUIPart(part) && (part.state === "approval-requested" || part.state === "input-available");

export function Conversation({ id, stored, onChange, onFork }) {
  const answered = useRef(false); // whether the person has answered a call that the server has not been told of
  const chat = useChat({
    id,
    transport,
    messages: stored.messages,
    onFinish: onChange,
    sendAutomaticallyWhen: ({ messages }) => {
      const send = answered.current && !messages.at(-1).parts.some(isOpen);
      if (send) answered.current = false;
      return send;
    },
  });
  const [catchingUp, setCatchingUp] = useState(stored.running);
  const { messages, status, error, sendMessage, regenerate, setMessages, resumeStream } = chat;
  const busy = catchingUp || status === "submitted" || status === "streaming";
  const last = messages.at(-1);

  // What `resume: true` does, and then a look at what is stored: an answer may end between two requests. Until then the person
  // can add nothing, which that look would take away again.
  const catchUp = async () => {
    try {
      await resumeStream();
      setMessages((await get(`/api/sessions/${id}`)).messages);
    } finally {
      setCatchingUp(false);
    }
  };
  useEffect(() => {
    if (stored.running) void catchUp();
  }, []);

  const answer = (give) => {
    answered.current = true;
    void give();
  };
  return (
    <main>
      <div className="scroll"><div className="messages">
        {messages.map((message) => (
          <Message
            key={message.id}
            session={id}
            message={message}
            isLast={message === last}
            busy={busy}
            onApproval={(approval) => answer(() => chat.addToolApprovalResponse(approval))}
            onOutput={(output) => answer(() => chat.addToolOutput(output))}
            onEdit={(text) =>
              sendMessage({ messageId: message.id, text, files: message.parts.filter((part) => part.type === "file") })
            }
            onAgain={() => regenerate({ messageId: message.id })}
            onFork={() => post(`/api/sessions/${id}/fork`, { messageId: message.id }).then(onFork)}
          />
        ))}
        {status === "submitted" && <p className="waiting">…</p>}
        {!busy && (error || last?.role === "user") && (
          <p role="alert">
            {error ? error.message : "There is no answer."} <button onClick={() => regenerate()}>Try again</button>
          </p>
        )}
      </div></div>
      <Composer busy={busy} onSend={sendMessage} onStop={() => post(`/api/chat/${id}/stop`)} />
    </main>
  );
}

function Message({ message, busy, onEdit, onAgain, onFork, ...rest }) {
  const [draft, setDraft] = useState();
  const text = message.parts.filter((part) => part.type === "text").map((part) => part.text).join("\n");
  const cut = !busy && message.role === "assistant" && message.parts.some((part) => part.state === "streaming");
  const save = (event) => {
    event.preventDefault();
    setDraft(undefined);
    onEdit(draft);
  };
  return (
    <article className={message.role} data-id={message.id} aria-label={message.role === "user" ? "Question" : "Answer"}>
      {draft === undefined ? (
        <Parts parts={message.parts} busy={busy} {...rest} />
      ) : (
        <form onSubmit={save}>
          <textarea aria-label="Edited question" value={draft} onChange={(event) => setDraft(event.target.value)} autoFocus />
          <button>Ask again</button>
          <button type="button" onClick={() => setDraft(undefined)}>Cancel</button>
        </form>
      )}
      {cut && <p className="note">This answer was cut off.</p>}
      {!busy && draft === undefined && (
        <footer>
          {message.role === "user" && <button onClick={() => setDraft(text)}>Edit</button>}
          {message.role === "assistant" && <button onClick={onAgain}>Regenerate</button>}
          <button onClick={onFork}>Fork</button>
        </footer>
      )}
    </article>
  );
}

function Composer({ busy, onSend, onStop }) {
  const form = useRef();
  const [files, setFiles] = useState([]);
  const send = async (event) => {
    event.preventDefault();
    const { text, file } = form.current.elements;
    if (busy || (!text.value.trim() && !file.files.length)) return;
    const message = { text: text.value, files: await convertFileListToFileUIParts(file.files) };
    form.current.reset();
    setFiles([]);
    void onSend(message);
  };
  const onKeyDown = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) void send(event);
  };
  return (
    <form ref={form} className="composer" onSubmit={send}>
      {files.length > 0 && <p className="note">{files.map((file) => file.name).join(", ")}</p>}
      <textarea name="text" aria-label="Message" placeholder="Ask something" rows={2} onKeyDown={onKeyDown} autoFocus />
      <label className="attach">
        Attach
        <input name="file" type="file" accept="image/*" aria-label="Attach an image" onChange={(event) => setFiles([...event.target.files])} />
      </label>
      {busy ? <button type="button" onClick={onStop}>Stop</button> : <button>Send</button>}
    </form>
  );
}
