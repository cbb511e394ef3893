// The page of the chat: the sessions on the left, one of them on the right. The address names it: /#ses_…
import { useCallback, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { Conversation } from "./conversation.jsx";
import { get, post } from "./requests.js";
import "./page.css";

function Page() {
  const [id, setId] = useState(location.hash.slice(1));
  const [sessions, setSessions] = useState([]);
  const refresh = useCallback(() => get("/api/sessions").then(setSessions), []);
  const open = (session) => (location.hash = session.id);

  useEffect(() => {
    const follow = () => setId(location.hash.slice(1));
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  useEffect(() => void refresh(), [id, refresh]);

  return (
    <>
      <nav aria-label="Sessions">
        <button className="new" onClick={() => post("/api/sessions").then(open)}>New chat</button>
        {sessions.map((session) => (
          <a key={session.id} href={`#${session.id}`} aria-current={session.id === id ? "page" : undefined}>{session.title}</a>
        ))}
      </nav>
      {id ? <Session key={id} id={id} onChange={refresh} onFork={open} /> : <p className="hint">Begin with a new chat.</p>}
    </>
  );
}

// The stored messages come first; the conversation begins with them.
function Session({ id, ...rest }) {
  const [stored, setStored] = useState();
  const [refused, setRefused] = useState();
  useEffect(() => {
    get(`/api/sessions/${id}`).then(setStored, setRefused);
  }, [id]);
  if (refused) return <p role="alert" className="hint">{refused.message}</p>;
  return stored ? <Conversation id={id} stored={stored} {...rest} /> : <p className="hint">…</p>;
}

createRoot(document.getElementById("root")).render(<Page />);
